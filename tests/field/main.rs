//! The field storm: what hosts, administrators, other programs and crashes do to a switch, at random, under checked traffic.
//!
//! `LANYARD_FIELD_S` says for how many seconds (60 is a short run, 1800 the long one); without it the storm is skipped.
//! `LANYARD_FIELD_SEED` repeats a storm: the seed alone decides which events come in which order, and it is printed. Read
//! `storm.rs` for the events and the model.
//!
//! What holds at all times: a frame arrives only at ports that were in its VLAN at some moment between its sending and its
//! arrival, at each at most once, and never where it came from. After each event frames pass between two hosts that the
//! configuration connects. At the end counters balance at every port, and the switch does what its configuration says, also
//! after one more restart.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../netns/harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
// most of it is for frames, which other scenarios are about
mod harness;

mod storm;
mod traffic;

use crate::harness::{Plane, scenarios};
use crate::storm::Storm;
use std::time::{Duration, Instant};

scenarios! {
    storm_of_events: ebpf soft;
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

fn storm_of_events(plane: Plane) {
    let Some(seconds) = number("LANYARD_FIELD_S") else {
        return println!("skipped: LANYARD_FIELD_S does not say for how many seconds");
    };
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
