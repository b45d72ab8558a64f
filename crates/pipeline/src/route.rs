//! What routing is made of, as plain values: router interfaces (part of [`crate::state::PlaneState`]), and routes,
//! next-hop groups and adjacencies, which the control plane hands to a plane by [`RouteChange`].
//!
//! Read first: RFC 1812, sections 5.2 and 5.3; RFC 8200, section 4; RFC 2992 on choosing among equal paths.
//! Invariant: a change is carried out whole or refused with a reason, and a frame that passes meanwhile is routed by the
//! old value or by the new one. Routes point at groups, groups at adjacencies: when a next hop dies a few groups
//! change, and no route.

use ipnet::IpNet;
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, TrapReason, VlanId, VrfId};
pub use lanyard_wire::ip::IpHeader;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A router interface: frames for one of its MAC addresses are routed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RifState {
    /// The kernel's interface, for messages and traces: `vlan10`, `eth1`, `eth1.100`.
    pub name: String,
    /// Its routing table.
    pub vrf: VrfId,
    /// Where its frames come in and go out.
    pub attachment: RifAttachment,
    /// Its own address; the source of what is routed out of it.
    pub mac: MacAddr,
    /// Addresses it answers for besides its own: VRRP virtual routers. At most [`VIRTUAL_MACS`].
    pub virtual_macs: BTreeSet<MacAddr>,
    /// Layer-3 MTU in bytes, 68..=65535.
    pub mtu: u32,
    /// IPv4 is routed from here (`ip routing`, and the kernel forwards on it).
    pub ipv4: bool,
    /// IPv6 is routed from here (`ipv6 unicast-routing`).
    pub ipv6: bool,
    /// `ip verify unicast source reachable-via`.
    pub urpf_ipv4: Urpf,
    /// `ipv6 verify unicast source reachable-via`.
    pub urpf_ipv6: Urpf,
}

/// Most virtual router addresses of one interface.
pub const VIRTUAL_MACS: usize = 8;

/// What a router interface stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RifAttachment {
    /// A VLAN: routed frames are bridged in it; exceptions go to `up`, the pipeline's end of `vlanN`.
    Vlan {
        /// The VLAN.
        vlan: VlanId,
        /// A port of kind [`crate::state::PortKind::Svi`].
        up: PortId,
    },
    /// A routed port: exceptions go on up the netdev's own stack.
    Port(PortId),
    /// A tag on a routed port: exceptions go to `up`, the pipeline's end of the subinterface, without the tag.
    Subinterface {
        /// The routed port.
        parent: PortId,
        /// The tag.
        vlan: VlanId,
        /// A port of kind [`crate::state::PortKind::Subinterface`].
        up: PortId,
    },
}

/// Unicast reverse path forwarding (RFC 3704, section 2): is the source reachable?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Urpf {
    /// Not asked.
    #[default]
    Off = 0,
    /// `any`: there is a route to it, and not a blackhole.
    Loose = 1,
    /// `rx`: its route leads out of the interface the frame came in at (one of them, when there are several).
    Strict = 2,
}

/// What a route does with the frames it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RouteTarget {
    /// Sends them to a next hop of a group.
    Group(GroupId),
    /// Leaves them to the kernel, for a reason of routing: `LocalAddress`, `Glean` (a connected subnet: the neighbour has no
    /// entry of its own), `NoRoute` (unreachable, prohibited), `RoutePolicy`.
    Up(#[serde(with = "reason")] TrapReason),
    /// A connected subnet behind this interface, for the neighbours that have no entry of their own: to the kernel as
    /// `Glean`. Unlike `Up(Glean)` it tells strict reverse path checks where such neighbours are.
    Connected(RifId),
    /// Drops them.
    Blackhole,
}

/// A neighbour and how to reach it. A connected neighbour is itself a host route (/32, /128) to a group of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adjacency {
    /// The interface it is behind.
    pub rif: RifId,
    /// Its address; `None` while it is unresolved: frames go up as `Glean`.
    pub mac: Option<MacAddr>,
}

/// One step. An object is made before what points at it and removed after; a plane refuses what would dangle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteChange {
    /// Makes, changes or (`None`) removes an adjacency.
    Adjacency(AdjacencyId, Option<Adjacency>),
    /// Makes, changes or (`None`) removes a next-hop group: the adjacency of each bucket. The number of buckets is a power of two,
    /// 1..=[`BUCKETS`]; a flow's hash, modulo that number, is its bucket. Who fills the buckets decides about weights and about which
    /// flows move when a member leaves.
    Group(GroupId, Option<Vec<AdjacencyId>>),
    /// Makes, changes or (`None`) removes a route. A prefix without a route falls to the next shorter one, and
    /// after the last is `NoRoute`.
    Route(VrfId, IpNet, Option<RouteTarget>),
    /// Removes every route of a VRF, and frees its memory.
    VrfGone(VrfId),
}

/// Most buckets of a group.
pub const BUCKETS: usize = 256;

/// What the plane would do with a destination: `show ip cef`, and tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteLookup {
    /// The target of the longest match; `None` is no route.
    pub target: Option<RouteTarget>,
    /// The group's buckets, when the target is one.
    pub buckets: Vec<AdjacencyId>,
}

/// The bucket of a packet's flow among `count`, a power of two. Addresses, protocol and ports decide; `salt` keeps strangers
/// from aiming flows at one path, and a row of switches from all choosing alike.
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
    (hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40) as usize & (count - 1)
}

fn flow_mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
