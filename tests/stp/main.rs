//! Spanning tree among real switches in namespaces: rings of Lanyard switches, and the kernel's bridge and
//! Open vSwitch as neighbours. The tests check the trees, that there is no loop, and that frames take another
//! path after a failure.
//!
//! The fixtures are those of `tests/netns`; read `fixture.rs` for what is added. Only `stalls` checks times;
//! other tests print measured times.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../netns/harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
// The harness serves the scenarios of several programs; this one uses a part of it.
mod harness;

mod fixture;
mod guards;
mod load;
mod loops;
mod peers;
mod ring;
mod stalls;
mod transparent;
mod watchdog;
