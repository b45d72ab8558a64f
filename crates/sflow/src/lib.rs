//! An sFlow agent, version 5 (sFlow.org, July 2004): datagrams with samples of frames and with counters of interfaces.
//!
//! Nothing here does I/O or reads a clock: [`Agent`] takes samples, counters, configuration and the time in milliseconds, and
//! returns datagrams. Frames are drawn by the plane (`lanyard_pipeline::stages::sample`). The agent answers no frame and keeps no
//! state of a network: its only input from a network is the samples, of which it uses at most [`MAX_HEAD`] bytes each.
//!
//! Reading order: `agent`, then the format `datagram` with "sFlow Version 5" beside it.

mod agent;
pub mod datagram;
mod xdr;

pub use agent::{Agent, Config, Interface, Sample, Totals};
pub use datagram::{Counters, MAX_DATAGRAM, MAX_HEAD};
