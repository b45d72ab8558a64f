//! The forwarding plane inside the kernel: [`EbpfPlane`] loads the programs of `bpf/`, converts a
//! [`PlaneState`](lanyard_plane::PlaneState) to rows of their tables, and attaches the programs to ports.
//!
//! Read first: `bpf/abi.h`, then `bpf/lanyard.bpf.c`. Read this crate in the order `plane` (the trait), `apply` (one
//! change at a time), `lower` and `stages` (state to table rows), `tables` and `shared` (the maps). Beside these there are `object`
//! (loading), `bpffs` and `saved` (the data that outlives the daemon), `ports`, `xdp_ports`, `attach`, `facts` and `follow`
//! (netdevs), `pairs`, `mdb`, `mdb_segments` and `protocols` (the part that protocols use on a thread of their own), `watchdog`
//! (the watchdogs, which act when the daemon has ended or hangs), `dry` and `words` (traces).
//!
//! Invariants: the daemon is never on the forwarding path. It writes a table by aligned words, one at a time, in an
//! order that closes before it opens. Programs, maps and links are pinned, so that forwarding continues when the daemon
//! ends.

mod abi;
mod acl;
mod acl_layout;
mod apply;
#[allow(unsafe_code)]
mod attach;
mod bindings;
#[allow(unsafe_code)]
mod bound;
mod bpffs;
mod chains;
mod clock;
mod cpuport;
#[allow(unsafe_code)]
mod dry;
mod embedded;
mod error;
mod events;
mod facts;
mod fdb;
mod fib;
mod follow;
mod hurry;
#[allow(unsafe_code)]
mod inject;
mod kernel_release;
mod lower;
mod mdb;
mod mdb_segments;
#[allow(unsafe_code)]
mod object;
mod open;
mod own;
mod pairs;
mod plane;
mod port_rows;
mod ports;
mod present;
mod probe;
mod protocols;
mod qos;
mod qos_layout;
mod rate;
mod recover;
mod refusal;
mod rifs;
mod routing;
mod saved;
#[allow(unsafe_code)]
mod shared;
mod slots;
mod stages;
#[allow(unsafe_code)]
mod tables;
#[allow(unsafe_code)]
mod tc;
#[cfg(test)]
mod tests;
mod watchdog;
mod words;
mod xdp_ports;
#[allow(unsafe_code)]
mod xdp_probe;

pub use cpuport::{Behind, CpuPort, Passed};
pub use dry::{DryMode, DryRun, EmissionKind};
pub use object::fingerprint;
pub use open::Options;
pub use plane::EbpfPlane;
pub use probe::{available, support};
