//! The answers of the authenticator.

use crate::radius::Invalid;
use crate::session::{GrantKind, Method};
use lanyard_types::{MacAddr, PortId, VlanId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Whom a port is open for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// The VLAN of the port, if it is not the configured one.
    pub vlan: Option<VlanId>,
    /// The hosts that may send; `None`: all.
    pub hosts: Option<BTreeSet<MacAddr>>,
    /// False: nobody.
    pub open: bool,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a frame by a port, after the port has been locked or opened ([`crate::Authenticator::access`]).
    Send(PortId, Vec<u8>),
    /// Send a datagram to a server.
    Ask(SocketAddr, Vec<u8>),
    /// Shut a port down.
    Shut(PortId),
    /// Log an event.
    Log(Event),
}

/// An event for the log. `id` is the number of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A method begins.
    Started(PortId, MacAddr, u32, Method),
    /// A method has succeeded, or failed.
    Result(PortId, MacAddr, u32, Method, bool),
    /// The server's VLAN does not exist.
    NoVlan(PortId, MacAddr, u32, String),
    /// The server's VLAN is not that of the hosts that the port is open for.
    OtherVlan(PortId, MacAddr, u32, VlanId),
    /// The port is open for a host.
    Authorized(PortId, MacAddr, u32, GrantKind, Option<VlanId>),
    /// It is not, or no longer.
    Unauthorized(PortId, MacAddr, u32),
    /// A host is seen at a port for one host, which another one has.
    Violation(PortId, MacAddr),
    /// There is no room for a session of a host.
    Full(PortId, MacAddr),
    /// Events of a port that were not logged, because it had too many.
    Suppressed(PortId, u64),
    /// A server does not answer.
    Dead(SocketAddr),
    /// It answers again.
    Alive(SocketAddr),
    /// Datagrams in the name of a server were no answers.
    Invalid(SocketAddr, Invalid, u64),
}

impl Event {
    /// The port that it is about.
    pub(crate) const fn port(&self) -> Option<PortId> {
        match self {
            Self::Started(port, ..)
            | Self::Result(port, ..)
            | Self::NoVlan(port, ..)
            | Self::OtherVlan(port, ..)
            | Self::Authorized(port, ..)
            | Self::Unauthorized(port, ..)
            | Self::Violation(port, _)
            | Self::Full(port, _)
            | Self::Suppressed(port, _) => Some(*port),
            Self::Dead(_) | Self::Alive(_) | Self::Invalid(..) => None,
        }
    }
}

/// A session that the port is open for, as it outlives the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The host.
    pub mac: MacAddr,
    /// Why it is let in.
    pub kind: GrantKind,
    /// Its VLAN, if it is not the configured one.
    pub vlan: Option<VlanId>,
    /// The user's name.
    pub user: String,
    /// When it was let in.
    pub since_ms: u64,
    /// The number of the session.
    pub id: u32,
}
