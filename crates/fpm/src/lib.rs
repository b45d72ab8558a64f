//! The FPM server: receives routes and next-hop groups from a routing suite, and answers whether the plane forwards by
//! them. It has no socket and no clock.
//!
//! Read first: FRR's user guide, "FIB Push Interface", and rtnetlink(7). The client sends frames over TCP. A frame has
//! a 4-byte header (version 1, type 1, and the length in network order, header included) and contains rtnetlink
//! messages: next-hop objects, routes that use them, and updates as a deletion and an addition in one frame. After
//! connecting, a client sends all its routes, but no message marks the end of this replay.
//!
//! The caller gives a [`Server`] received bytes and the time, and takes from it [`Update`]s for the switch, bytes for
//! the client, and the time of the next call. [`Server::offload`] reports what the plane did with a route.
//!
//! Invariants: the state that a client can cause is bounded by [`Limits`]; routes beyond them are counted and answered
//! "failed". Routes of an earlier session stay until a new session has had no input for [`Timers::quiet_ms`], or no
//! client has reconnected within [`Timers::hold_ms`]. An update within a batch replaces a route's next hops without a gap.

mod answer;
mod counters;
mod frame;
mod fuzz;
mod next_hops;
mod rib;
mod server;

pub use counters::{Counters, Framing, Ignored};
pub use frame::frame;
pub use fuzz::fuzz;
pub use lanyard_wire::rtnetlink::{Hop, Malformed};
pub use next_hops::{NextHopSet, NextHopSetId};
pub use rib::{Limits, Offload, Route, Update};
pub use server::{Phase, Server, Timers};

/// The TCP port that FRR connects to by default.
pub const PORT: u16 = 2620;
/// The longest frame that the length field allows, header included.
pub const MAX_FRAME: usize = u16::MAX as usize;
