//! Other people's programs as neighbours: FRR in the switch's namespace and beyond its ports.
//!
//! The fixtures are those of `tests/netns`; read `frr.rs` for what is added. Nothing sleeps and no time is judged: measured
//! times are printed. Without root or the package each says `skipped: reason`.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../netns/harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
// most of it is for frames, which other scenarios are about
mod harness;

mod fpm;
mod frr;
mod lab;
mod protocols;
mod scale;
