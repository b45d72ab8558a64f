//! The forwarding plane inside the kernel: [`EbpfPlane`] loads the programs of `bpf/`, lowers a
//! [`PlaneState`](lanyard_plane::PlaneState) into their tables, and attaches them to ports.
//!
//! Read first: `bpf/abi.h`, then `bpf/lanyard.bpf.c`. The way through this crate: `plane` (the trait) -> `apply` (one
//! change at a time) -> `lower` (state to table rows) -> `tables` and `shared` (the maps); beside it `object` (loading),
//! `bpffs` and `saved` (what outlives the daemon), `attach`, `facts` and `follow` (netdevs), `pairs` and `protocols` (the
//! part that protocols use on a thread of their own), `watchdog` (spanning tree without a daemon), `dry` and `words` (traces).
//!
//! Invariants: the daemon is never on the forwarding path; what it writes into a table is one aligned word at a time, in
//! an order that closes before it opens; programs, maps and links are pinned, so that forwarding does not end with it.

mod abi;
mod apply;
#[allow(unsafe_code)]
mod attach;
#[allow(unsafe_code)]
mod bound;
mod bpffs;
mod clock;
#[allow(unsafe_code)]
mod dry;
mod error;
mod events;
mod facts;
mod fdb;
mod fib;
mod follow;
mod hurry;
#[allow(unsafe_code)]
mod inject;
mod lower;
#[allow(unsafe_code)]
mod object;
mod open;
mod own;
mod pairs;
mod plane;
mod present;
mod probe;
mod protocols;
mod recover;
mod refusal;
mod rifs;
mod routing;
mod saved;
#[allow(unsafe_code)]
mod shared;
#[allow(unsafe_code)]
mod tables;
#[cfg(test)]
mod tests;
mod watchdog;
mod words;

pub use dry::{DryMode, DryRun};
pub use open::Options;
pub use plane::EbpfPlane;
pub use probe::{available, support};
