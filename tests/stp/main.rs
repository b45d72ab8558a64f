//! Spanning tree among real switches in namespaces: rings of Lanyards, the kernel's bridge and Open vSwitch as
//! neighbours; what the trees are, that nothing loops, that frames find another way.
//!
//! The fixtures are those of `tests/netns`; read `fixture.rs` for what is added. Only `stalls`
//! judges time; elsewhere measured times are printed.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../netns/harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
// most of it is for frames, which other scenarios are about
mod harness;

mod fixture;
mod guards;
mod load;
mod peers;
mod ring;
mod stalls;
mod transparent;
mod watchdog;
