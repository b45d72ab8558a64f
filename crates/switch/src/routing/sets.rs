//! How routes name their next hops, and what such a set of next hops resolves to.

use std::net::IpAddr;

/// How a route names its next hops. Interfaces are given by their index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SetKey {
    /// One next hop.
    One(u32, Option<IpAddr>),
    /// Several next hops with their weights, sorted and without repetition.
    Many(Box<[(u32, Option<IpAddr>, u32)]>),
    /// A next-hop object.
    Object(u32),
    /// A next-hop set from FPM, by its serial number.
    Fpm(u32),
}

/// The adjacencies to which a set currently resolves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A connected network on this interface.
    Connected(u32),
    /// Its packets are dropped.
    Blackhole,
    /// Only the kernel can handle its packets.
    Kernel,
    /// One or more next hops that the plane can use.
    Group,
}
