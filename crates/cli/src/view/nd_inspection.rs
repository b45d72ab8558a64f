//! ND inspection and IPv6 source guard.

use lanyard_types::MacAddr;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// `show ipv6 nd inspection`. The bindings are those of `show ipv6 neighbors binding`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NdInspection {
    /// The VLANs that are named for it.
    pub vlans: Vec<u16>,
    /// Those of them that are active.
    pub operational_vlans: Vec<u16>,
    /// The switch ports, in natural order.
    pub interfaces: Vec<NdPort>,
    /// Messages that the daemon has sent on.
    pub forwarded: u64,
    /// Messages that it has dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Messages that the plane has dropped, because they were hidden.
    pub dropped_by_plane: u64,
    /// Questions for duplicate address detection that the switch has sent.
    pub probes: u64,
    /// Bindings that the plane has refused.
    pub refused: u64,
    /// The bindings, by VLAN and address.
    #[serde(skip)]
    pub bindings: Vec<NeighborBinding>,
    /// The most bindings.
    #[serde(skip)]
    pub capacity: usize,
}

/// A switch port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NdPort {
    /// Its name.
    pub interface: String,
    /// Its messages are not inspected.
    pub trusted: bool,
    /// The most addresses that are learned.
    pub address_limit: u32,
    /// The addresses that are learned, or claimed at this moment.
    pub addresses: u32,
    /// `ipv6 source-guard`.
    pub source_guard: bool,
    /// Frames that first-hop security has dropped at the port, by reason; reasons without frames are left out.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// The IPv6 address of a host.
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
    /// `INCOMPLETE`: claimed, and not a binding yet. `REACHABLE`: a binding. `VERIFY`: a binding whose owner is asked.
    pub state: &'static str,
    /// Seconds until the state ends; `None`: it does not.
    pub left_s: Option<u64>,
}

/// `show ipv6 neighbors binding`.
#[derive(Debug, Serialize)]
pub struct NeighborBindings {
    /// The bindings.
    pub bindings: Vec<NeighborBinding>,
    /// Their number.
    pub total: usize,
    /// The most bindings.
    pub capacity: usize,
}
