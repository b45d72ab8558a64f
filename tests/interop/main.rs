//! Other programs as neighbours: FRR in the switch's namespace and beyond its ports.
//!
//! The fixtures are those of `tests/netns`; read `frr.rs` for what is added. Tests wait for conditions, and print times
//! without checking them. Without root or the package each prints `skipped: reason`.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../netns/harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
// The harness serves the scenarios of several programs; this one uses a part of it.
mod harness;

mod fpm;
mod frr;
mod lab;
mod multicast;
mod protocols;
mod scale;
