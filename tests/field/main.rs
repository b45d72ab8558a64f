//! The field storm: random actions of hosts, administrators, other programs and crashes on a switch, while traffic is
//! checked.
//!
//! `LANYARD_FIELD_S` is the duration in seconds: 60 by default, and 0 skips the storm. `LANYARD_FIELD_SEED` repeats a
//! storm: the seed alone determines the events and their order, and it is printed. Read `storm.rs` and `others.rs` for the
//! events, `model.rs` for what they allow, `traffic.rs` for what is checked.
//!
//! Invariants at all times: a frame arrives only at ports that were in its VLAN at some moment between its sending and
//! its arrival, with the tag that the port's mode demands, at each at most once, and never, bridged, at its ingress port.
//! Two further ports are the ends of one cable: a loop that spanning tree has to break. A packet is routed only to a port
//! in the VLAN of its destination address, and never while the host's packet filter or a blackhole route forbids it. After
//! each event frames and packets pass between hosts that the configuration connects. At the end counters balance at every
//! port, and the switch does what its configuration demands, also after one more restart.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../netns/harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
// The harness serves the scenarios of several programs; this one uses a part of it.
mod harness;

mod model;
mod others;
mod storm;
mod traffic;

use crate::harness::{Plane, scenarios};
use crate::storm::Storm;
use std::time::{Duration, Instant};

/// The duration in CI, in seconds.
const SECONDS: u64 = 60;

scenarios! {
    storm_of_events: ebpf soft;
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

fn storm_of_events(plane: Plane) {
    let seconds = number("LANYARD_FIELD_S").unwrap_or(SECONDS);
    if seconds == 0 {
        return println!("skipped: LANYARD_FIELD_S is 0");
    }
    if std::process::Command::new("nft").arg("--version").output().is_err() {
        return println!("skipped: no nft");
    }
    let from_clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.subsec_nanos().into());
    let seed = number("LANYARD_FIELD_SEED").unwrap_or_else(from_clock);
    println!("plane {}: repeat with LANYARD_FIELD_SEED={seed} LANYARD_FIELD_S={seconds}", plane.name());
    let mut storm = Storm::new(plane, seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        storm.event();
    }
    storm.end();
}
