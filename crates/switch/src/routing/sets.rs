//! How routes name their next hops, and what such a set of next hops currently amounts to.

use std::net::IpAddr;

/// How a route names its next hops; interfaces by their index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SetKey {
    /// One.
    One(u32, Option<IpAddr>),
    /// Several with their weights, sorted, each once.
    Many(Box<[(u32, Option<IpAddr>, u32)]>),
    /// A next-hop object.
    Object(u32),
    /// A way of FPM's, by its serial number.
    Way(u32),
}

/// What a set comes to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A connected network on this interface.
    Connected(u32),
    /// Its frames are dropped.
    Blackhole,
    /// Only the kernel can do it.
    Kernel,
    /// One or more next hops of the plane's.
    Group,
}
