//! The switch on a chip: `lanyard run --plane asic` with the chip as a process of its own, and hosts at its front panel.
//!
//! Read `rig.rs` first. Without root each test prints `skipped: reason`.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, unused_imports, unused_macros)] // this program uses a part of the harness
#[path = "../netns/harness/mod.rs"]
mod harness;

#[allow(dead_code)] // as above
#[path = "../stp/fixture.rs"]
mod fixture;
#[allow(dead_code)] // as above
#[path = "../stp/loops.rs"]
mod loops;

mod bridging;
mod channels;
mod full;
mod lists;
mod multicast;
mod panel;
mod restarts;
mod rig;
mod spanning_tree;

/// Runs a test, or prints why it is skipped.
fn check(test: fn()) {
    if nix::unistd::geteuid().is_root() {
        test();
    } else {
        println!("skipped: namespaces and packet sockets need root");
    }
}
