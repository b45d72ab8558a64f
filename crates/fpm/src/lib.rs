//! The FPM server: routes and next-hop groups from a routing suite, and answers to it, without a socket or a clock.
//!
//! Read first: FRR's user guide, "FIB Push Interface", and rtnetlink(7). Over TCP come frames of a 4-byte header (version 1,
//! type 1, the length with the header in network order) and routing netlink's messages: next-hop objects, routes that
//! use them, an update as a deletion and an addition in one frame. After it has connected a client sends all it has, and
//! says nowhere that this was all.
//!
//! A [`Server`] is given bytes and the time, and answers with [`Update`]s for the switch, bytes for the client and a time to be
//! called again. The switch says with [`Server::offload`] what became of a route.
//!
//! Invariants: what a client can make this remember is bounded ([`Limits`]), and what exceeds it is counted and answered
//! "failed". What an earlier session left stays until a new one has been quiet for a while, or none has come back for
//! long enough ([`Timers`]): never sooner. Within a batch a route goes from its old way to its new one, with nothing between.

mod answer;
mod counters;
mod fuzz;
mod rib;
mod server;
mod ways;

pub use counters::{Counters, Framing, Ignored};
pub use fuzz::fuzz;
pub use lanyard_wire::rtnetlink::{Hop, Malformed};
pub use rib::{Limits, Offload, Route, Update};
pub use server::{Phase, Server, Timers};
pub use ways::{Way, WayId};

/// The port FRR connects to unless told otherwise.
pub const PORT: u16 = 2620;
/// Longest frame, header included: what its length field can say.
pub const MAX_FRAME: usize = u16::MAX as usize;
