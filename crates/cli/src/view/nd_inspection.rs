//! ND inspection and IPv6 source guard.

use lanyard_types::MacAddr;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// `show ipv6 nd inspection`. The bindings are those of `show ipv6 neighbors binding`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NdInspection {
    /// The VLANs of `ipv6 nd inspection vlan`.
    pub vlans: Vec<u16>,
    /// The VLANs of `ipv6 nd inspection vlan` that are active.
    pub operational_vlans: Vec<u16>,
    /// The switch ports, in natural order.
    pub interfaces: Vec<NdPort>,
    /// Messages of neighbour discovery that the daemon has forwarded.
    pub forwarded: u64,
    /// Messages of neighbour discovery that the daemon has dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Messages of neighbour discovery that the plane has dropped because they were hidden from inspection: in a fragment, behind
    /// extension headers, or truncated.
    pub dropped_by_plane: u64,
    /// Neighbour solicitations that the switch has sent to find other owners of an address, or to test an owner.
    pub probes: u64,
    /// Bindings that the plane has refused.
    pub refused: u64,
    /// The bindings, by VLAN and address.
    #[serde(skip)]
    pub bindings: Vec<NeighborBinding>,
    /// The maximum number of bindings.
    #[serde(skip)]
    pub capacity: usize,
}

/// A switch port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NdPort {
    /// Its name.
    pub interface: String,
    /// True if messages of neighbour discovery are not inspected at the port.
    pub trusted: bool,
    /// The maximum number of addresses that are learned at the port.
    pub address_limit: u32,
    /// The number of addresses that are learned at the port, or that a host claims at present.
    pub addresses: u32,
    /// `ipv6 source-guard`.
    pub source_guard: bool,
    /// Frames that first-hop security has dropped at the port, by reason; reasons without frames are left out.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// A binding: the host that has, or claims, an IPv6 address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NeighborBinding {
    /// Its address.
    pub address: Ipv6Addr,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its VLAN.
    pub vlan: u16,
    /// Its port.
    pub interface: String,
    /// `nd` or `static`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `INCOMPLETE`: claimed, and not a binding yet. `REACHABLE`: a binding. `VERIFY`: a binding whose owner the switch is
    /// probing.
    pub state: &'static str,
    /// Seconds until the state ends; `None` if it does not end.
    pub left_s: Option<u64>,
}

/// `show ipv6 neighbors binding`.
#[derive(Debug, Serialize)]
pub struct NeighborBindings {
    /// The bindings.
    pub bindings: Vec<NeighborBinding>,
    /// Their number.
    pub total: usize,
    /// The maximum number of bindings.
    pub capacity: usize,
}
