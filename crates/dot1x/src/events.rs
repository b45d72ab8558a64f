//! What the authenticator returns: actions, events for the log, the access of ports, and the sessions that outlive the daemon.

use crate::radius::Invalid;
use crate::session::{GrantKind, Method};
use lanyard_types::{MacAddr, PortId, VlanId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Whom a port is open for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// The VLAN assigned to the port; `None`: the configured one.
    pub vlan: Option<VlanId>,
    /// The hosts that may send; `None`: all.
    pub hosts: Option<BTreeSet<MacAddr>>,
    /// True if the port is open for at least one host.
    pub open: bool,
}

/// Something that the daemon has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a frame out of a port, after the plane has opened or closed it as [`crate::Authenticator::access`] says.
    Send(PortId, Vec<u8>),
    /// Send a datagram to a server.
    Ask(SocketAddr, Vec<u8>),
    /// Shut a port down.
    Shut(PortId),
    /// Log an event.
    Log(Event),
}

/// An event for the log. The `u32` is the number of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A method begins.
    Started(PortId, MacAddr, u32, Method),
    /// A method has succeeded (true) or failed (false).
    Result(PortId, MacAddr, u32, Method, bool),
    /// The VLAN that is to be assigned to the host does not exist.
    NoVlan(PortId, MacAddr, u32, String),
    /// The VLAN that is to be assigned to the host is not that of the hosts that the port is open for.
    OtherVlan(PortId, MacAddr, u32, VlanId),
    /// The port is open for a host.
    Authorized(PortId, MacAddr, u32, GrantKind, Option<VlanId>),
    /// The port is no longer open for a host.
    Unauthorized(PortId, MacAddr, u32),
    /// A second host is seen at a port for one host (host mode `single-host`).
    Violation(PortId, MacAddr),
    /// There is no room for a session of a host.
    Full(PortId, MacAddr),
    /// The number of events of a port that were not logged, because there were too many.
    Suppressed(PortId, u64),
    /// A server does not answer.
    Dead(SocketAddr),
    /// A server answers again.
    Alive(SocketAddr),
    /// Datagrams from a server's address were not valid answers: the reason of the last one, and their number.
    Invalid(SocketAddr, Invalid, u64),
}

impl Event {
    /// The port at which the event occurred; `None` for an event of a server.
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

/// A session with a grant, in the form that outlives the daemon.
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
    /// When it was let in, in milliseconds.
    pub since_ms: u64,
    /// The number of the session.
    pub id: u32,
}
