//! The objects of routing as plain values: router interfaces (part of [`crate::state::PlaneState`]), and routes,
//! next-hop groups and adjacencies, which the control plane hands to a plane by [`RouteChange`].
//!
//! Read first: RFC 1812, sections 5.2 and 5.3; RFC 8200, section 4; RFC 2992 on choosing among equal paths. Invariant:
//! a change is carried out whole or refused with a reason, and a frame that is forwarded meanwhile is routed by the old
//! value or by the new one. Routes refer to groups, and groups to adjacencies: when a next hop fails, a few groups
//! change and no route does.

use ipnet::IpNet;
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, TrapReason, VlanId, VrfId};
pub use lanyard_wire::ip::IpHeader;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A router interface: frames for one of its MAC addresses are routed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RifState {
    /// The name of the kernel's interface, for messages and traces: `vlan10`, `eth1`, `eth1.100`.
    pub name: String,
    /// Its routing table.
    pub vrf: VrfId,
    /// The VLAN or port whose frames it receives and sends.
    pub attachment: RifAttachment,
    /// Its own MAC address, which is the source of frames routed out of it.
    pub mac: MacAddr,
    /// Further MAC addresses that it routes for: VRRP virtual routers. At most [`VIRTUAL_MACS`].
    pub virtual_macs: BTreeSet<MacAddr>,
    /// Layer-3 MTU in bytes, 68..=65535.
    pub mtu: u32,
    /// True when IPv4 received here is routed (`ip routing`, and the kernel forwards on the interface).
    pub ipv4: bool,
    /// True when IPv6 received here is routed (`ipv6 unicast-routing`).
    pub ipv6: bool,
    /// `ip verify unicast source reachable-via`.
    pub urpf_ipv4: Urpf,
    /// `ipv6 verify unicast source reachable-via`.
    pub urpf_ipv6: Urpf,
    /// True when the plane routes here only as long as the control plane confirms that no hook of the kernel sees the
    /// packets (`lanyard_plane::Plane::confirm_routing`). It has no effect while the control plane runs.
    #[serde(default)]
    pub while_confirmed: bool,
}

/// The maximum number of virtual router addresses of one interface.
pub const VIRTUAL_MACS: usize = 8;

/// The attachment of a router interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RifAttachment {
    /// A VLAN. Routed frames are bridged in it; exceptions go to `up`, the pipeline's end of `vlanN`.
    Vlan {
        /// The VLAN.
        vlan: VlanId,
        /// A port of kind [`crate::state::PortKind::Svi`].
        up: PortId,
    },
    /// A routed port. Exceptions continue up the netdev's own stack.
    Port(PortId),
    /// A subinterface, which is a tag on a routed port. Exceptions go to `up`, the pipeline's end of the
    /// subinterface, without the tag.
    Subinterface {
        /// The routed port.
        parent: PortId,
        /// The tag.
        vlan: VlanId,
        /// A port of kind [`crate::state::PortKind::Subinterface`].
        up: PortId,
    },
}

impl RifAttachment {
    /// The pipeline's end of the host's interface; `None` for a routed port.
    #[must_use]
    pub const fn up(self) -> Option<PortId> {
        match self {
            Self::Vlan { up, .. } | Self::Subinterface { up, .. } => Some(up),
            Self::Port(_) => None,
        }
    }
}

/// Unicast reverse path forwarding (RFC 3704, section 2): checks that the source is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Urpf {
    /// No check.
    #[default]
    Off = 0,
    /// `any`: the source must have a route that is not a blackhole.
    Loose = 1,
    /// `rx`: the route to the source must lead out of the ingress interface, or have it among several.
    Strict = 2,
}

/// The action of a route for the packets that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RouteTarget {
    /// Sends them to a next hop of a group.
    Group(GroupId),
    /// Sends them to the kernel, for one of these reasons: `LocalAddress`, `Glean` (a connected subnet: the neighbour
    /// has no entry of its own), `NoRoute` (unreachable, prohibited), `RoutePolicy`.
    Up(#[serde(with = "reason")] TrapReason),
    /// A connected subnet behind this interface, for the neighbours that have no entry of their own: to the kernel as
    /// `Glean`. Unlike `Up(Glean)` it names the interface, which strict reverse path checks need.
    Connected(RifId),
    /// Drops them.
    Blackhole,
}

/// A next hop and its MAC address. A connected neighbour is itself a host route (/32, /128) to a group of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adjacency {
    /// The interface it is behind.
    pub rif: RifId,
    /// Its MAC address; `None` while it is unresolved: frames go up as `Glean`.
    pub mac: Option<MacAddr>,
}

/// One routing change. An object is made before those that refer to it and removed after them; a plane
/// refuses a change that would leave a reference to a missing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteChange {
    /// Adds, changes or (`None`) removes an adjacency.
    Adjacency(AdjacencyId, Option<Adjacency>),
    /// Adds, changes or (`None`) removes a next-hop group: the adjacency of each bucket. The number of buckets is a
    /// power of two, 1..=[`BUCKETS`]; a flow's hash modulo that number is its bucket. The caller's choice of
    /// adjacencies for the buckets implements weights, and decides which flows move when a member leaves.
    Group(GroupId, Option<Vec<AdjacencyId>>),
    /// Adds, changes or (`None`) removes a route. A prefix without a route falls back to the next shorter one,
    /// and without any to `NoRoute`.
    Route(VrfId, IpNet, Option<RouteTarget>),
    /// Removes every route of a VRF, and frees its memory.
    VrfGone(VrfId),
}

/// The maximum number of buckets of a group.
pub const BUCKETS: usize = 256;

/// The plane's decision about a destination, for `show ip cef` and tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteLookup {
    /// The target of the longest match; `None` means no route.
    pub target: Option<RouteTarget>,
    /// The buckets of the group, when the target is a group.
    pub buckets: Vec<AdjacencyId>,
}

/// The bucket of a packet's flow among `count`, which is a power of two. The hash is of addresses, protocol and ports.
/// `salt` keeps attackers from aiming flows at one path, and keeps switches in a row from all making the same choice.
#[must_use]
pub fn flow_bucket(salt: u64, header: &IpHeader, count: usize) -> usize {
    if count < 2 {
        return 0;
    }
    let halves = |address: IpAddr| match address {
        IpAddr::V4(address) => (0, u64::from(u32::from(address))),
        IpAddr::V6(address) => ((u128::from(address) >> 64) as u64, u128::from(address) as u64),
    };
    let ((src_high, src), (dst_high, dst)) = (halves(header.src), halves(header.dst));
    let mut hash = salt;
    if header.src.is_ipv4() {
        hash = flow_mix(hash, src << 32 | dst);
    } else {
        for word in [src_high, src, dst_high, dst] {
            hash = flow_mix(hash, word);
        }
    }
    hash = flow_mix(hash, u64::from(header.protocol) << 32 | u64::from(header.ports));
    (hash.wrapping_mul(FLOW_HASH[1]) >> 40) as usize & (count - 1)
}

/// Multipliers of [`flow_bucket`]'s hash.
pub const FLOW_HASH: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

pub(crate) fn flow_mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(FLOW_HASH[0]);
    mixed ^ mixed >> 32
}

mod reason {
    use lanyard_types::TrapReason;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(reason: &TrapReason, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*reason as u8)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TrapReason, D::Error> {
        let number = u8::deserialize(deserializer)?;
        TrapReason::from_u8(number).ok_or_else(|| D::Error::custom(format!("{number} is no trap reason")))
    }
}
