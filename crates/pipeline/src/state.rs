//! What the control plane wants of a plane, as plain values: [`PlaneState`].
//!
//! Invariant: two equal `PlaneState`s forward every frame alike (given equal FDBs). Everything IOS-shaped
//! (access, trunk, native VLAN...) has been lowered to membership by the time it gets here, so the planes
//! know ports, VLANs and bits, and nothing of the command line.

use crate::route::RifState;
use lanyard_types::{InstanceId, MacAddr, PortId, RifId, StormKind, TrapGroup, Tunnelled, VlanId, VlanSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use lanyard_types::StpState;

/// Everything a plane is configured with, except what it learns itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneState {
    /// Settings that belong to no port or VLAN.
    pub global: GlobalState,
    /// The ports.
    pub ports: BTreeMap<PortId, PortState>,
    /// The active VLANs: one that is not here drops its frames as `vlan_inactive`.
    pub vlans: BTreeMap<VlanId, VlanState>,
    /// Spanning-tree states that are not [`StpState::Forwarding`].
    #[serde(with = "pairs")]
    pub stp: BTreeMap<(InstanceId, PortId), StpState>,
    /// Ports that stop forwarding in a tree when the control plane stops running spanning tree (`lanyard_plane::Plane::watchdog`):
    /// those behind which another bridge may be. They change nothing while the control plane runs.
    #[serde(default)]
    pub watched: BTreeSet<(InstanceId, PortId)>,
    /// FDB entries the control plane owns: static and self. An entry's port exists in `ports`.
    #[serde(with = "pairs")]
    pub fdb: BTreeMap<(VlanId, MacAddr), FdbTarget>,
    /// Router interfaces. Routes, next-hop groups and adjacencies are no part of the state: they come and go by
    /// [`crate::route::RouteChange`], a million of them if need be.
    #[serde(default)]
    pub rifs: BTreeMap<RifId, RifState>,
}

/// Settings of the whole plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalState {
    /// What happens to each reserved address 01:80:C2:00:00:00-0F, by its last nibble. Index 1 (PAUSE) is
    /// [`ReservedAction::Drop`] whatever is written here.
    pub reserved: [ReservedAction; 16],
    /// VLANs whose PVST+ BPDUs (01:00:0C:CC:CC:CD) go to the control plane; in the others they are ordinary multicast. One that
    /// comes without a VLAN goes to the control plane when any does.
    pub trap_pvst: VlanSet,
    /// Dynamic FDB entries allowed altogether, 1..=the plane's capacity.
    pub fdb_limit: u32,
    /// Token bucket of each trap group, by `TrapGroup::index()`.
    pub trap_rate: [TrapRate; TrapGroup::SLOTS],
    /// What one port may have of each group: a storm at one port takes nothing from the others.
    pub trap_port_rate: [TrapRate; TrapGroup::SLOTS],
}

/// The FDB's default limit.
pub const FDB_LIMIT_DEFAULT: u32 = 1_000_000;

impl Default for GlobalState {
    fn default() -> Self {
        let mut reserved = [ReservedAction::Drop; 16];
        // With spanning tree off its frames are relayed, as the Linux bridge does.
        reserved[0] = ReservedAction::Forward;
        let mut trap_rate = [TrapRate::default(); TrapGroup::SLOTS];
        let mut trap_port_rate = [TrapRate { rate_pps: 100, burst: 64 }; TrapGroup::SLOTS];
        // Each makes another kind of work for the kernel: a storm of one leaves the others their rate.
        let exceptions = [
            TrapGroup::RouteException,
            TrapGroup::Glean,
            TrapGroup::TtlExpired,
            TrapGroup::RouteMtu,
            TrapGroup::IpOptions,
        ];
        for group in exceptions {
            trap_rate[group.index()] = TrapRate { rate_pps: 10_000, burst: 1024 };
            trap_port_rate[group.index()] = TrapRate { rate_pps: 5_000, burst: 512 };
        }
        // Ordinary traffic, as fast as the kernel takes it.
        trap_rate[TrapGroup::Host.index()] = TrapRate::UNLIMITED;
        trap_port_rate[TrapGroup::Host.index()] = TrapRate::UNLIMITED;
        Self { reserved, trap_pvst: VlanSet::EMPTY, fdb_limit: FDB_LIMIT_DEFAULT, trap_rate, trap_port_rate }
    }
}

/// A token bucket: the frames a trap group may send up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrapRate {
    /// Sustained rate in frames per second.
    pub rate_pps: u32,
    /// Bucket depth in frames.
    pub burst: u32,
}

impl TrapRate {
    /// Lets everything pass: no bucket is asked.
    pub const UNLIMITED: Self = Self { rate_pps: u32::MAX, burst: u32::MAX };
}

impl Default for TrapRate {
    fn default() -> Self {
        Self { rate_pps: 1000, burst: 256 }
    }
}

/// What happens to a frame for a reserved address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum ReservedAction {
    /// Dropped as `reserved_address`.
    #[default]
    Drop = 0,
    /// Relayed like any multicast.
    Forward = 1,
    /// To the control plane only.
    Trap = 2,
}

/// One port. Hooking it to a netdev is the plane's business; what is here decides forwarding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// The netdev's name, for messages and traces.
    pub name: String,
    /// The netdev's index; 0 for a port with no netdev behind it (in-memory, or vanished).
    pub ifindex: u32,
    /// What kind of port.
    pub kind: PortKind,
    /// False: every frame in is dropped as `port_down`, and nothing is sent out. Admin state and link together.
    pub enabled: bool,
    /// The EtherType that counts as this port's VLAN tag.
    pub tpid: Tpid,
    /// VLAN of untagged and priority-tagged frames; `None` drops them as `untagged_not_allowed`.
    pub pvid: Option<VlanId>,
    /// VLANs sent tagged. Disjoint from `untagged`.
    pub tagged: VlanSet,
    /// VLANs sent untagged. A frame tagged with one of them is accepted, too.
    pub untagged: VlanSet,
    /// Names the refusal of a foreign tag: `tagged_on_access` when true, else `vlan_not_allowed`.
    pub access: bool,
    /// False: teaches the FDB nothing.
    pub learning: bool,
    /// Protected: sends nothing to another protected port.
    pub isolated: bool,
    /// False: is in no flood of unknown unicast (`switchport block unicast`; always so for VLAN interfaces).
    pub flood_unicast: bool,
    /// False: is in no flood of multicast (broadcast always is).
    pub flood_multicast: bool,
    /// Layer-3 MTU in bytes, 68..=65535. A frame fits when its length without this port's tag is at most
    /// MTU + 14 (Ethernet) + 4 (one tag that belongs to the payload), the Linux bridge's rule.
    pub mtu: u32,
    /// Dynamic FDB entries allowed on this port; `None` is no limit of its own.
    pub fdb_limit: Option<u32>,
    /// Frames per second that the port lets in of each [`StormKind`], by its number; `None` lets all of them in.
    #[serde(default)]
    pub storm_pps: [Option<u32>; StormKind::SLOTS],
    /// Control frames of customers that a dot1q-tunnel port carries; at other ports it means nothing.
    #[serde(default)]
    pub tunnelled: Tunnelled,
    /// Which kernel hook forwards this port.
    pub hook: HookChoice,
    /// How frames are handed to a veth whose other end is in another namespace.
    pub delivery: Delivery,
}

impl PortState {
    /// A dot1q-tunnel port: it recognises no tag, and what comes in is a customer's, control frames included.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        self.kind == PortKind::Netdev && self.tpid == Tpid::None
    }
    /// An enabled, learning, untagged member of no VLAN: a starting point for tests and callers to change.
    #[must_use]
    pub fn new(name: &str, ifindex: u32) -> Self {
        Self {
            name: name.to_owned(),
            ifindex,
            kind: PortKind::Netdev,
            enabled: true,
            tpid: Tpid::Dot1q,
            pvid: None,
            tagged: VlanSet::EMPTY,
            untagged: VlanSet::EMPTY,
            access: false,
            learning: true,
            isolated: false,
            flood_unicast: true,
            flood_multicast: true,
            mtu: 1500,
            fdb_limit: None,
            storm_pps: [None; StormKind::SLOTS],
            tunnelled: Tunnelled::NONE,
            hook: HookChoice::Auto,
            delivery: Delivery::Auto,
        }
    }

    /// An access port of `vlan`.
    #[must_use]
    pub fn access(name: &str, ifindex: u32, vlan: VlanId) -> Self {
        let untagged = [vlan].into_iter().collect();
        Self { pvid: Some(vlan), untagged, access: true, ..Self::new(name, ifindex) }
    }
}

/// What stands behind a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortKind {
    /// A network device: NIC, veth, TAP.
    Netdev,
    /// The pipeline's end of VLAN interface `vlanN`: what is sent here is delivered up to the kernel's IP stack.
    Svi(VlanId),
    /// A routed port (`no switchport`): in no VLAN, and learns nothing. The netdev itself is the kernel's interface: what
    /// the plane does not route goes on up its stack, and what the kernel sends never passes the plane.
    Routed,
    /// The pipeline's end of a subinterface's veth pair: what is sent here is delivered up; what comes from here leaves
    /// at `parent`, a routed port, tagged with `vlan`.
    Subinterface {
        /// The routed port.
        parent: PortId,
        /// The tag (`encapsulation dot1q`).
        vlan: VlanId,
    },
}

/// The EtherType a port's VLAN tags carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Tpid {
    /// No tag is recognised: every frame, tagged or not, belongs to the PVID (`dot1q-tunnel`).
    None = 0,
    /// 0x8100, the customer tag (IEEE 802.1Q-2018, table 9-1).
    Dot1q = 1,
    /// 0x88A8, the service tag.
    Dot1ad = 2,
    /// 0x9100, what older equipment used for stacked tags.
    Stacked9100 = 3,
}

impl Tpid {
    /// The EtherType; `None` for a port that recognises no tag.
    #[must_use]
    pub const fn ethertype(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::Dot1q => Some(0x8100),
            Self::Dot1ad => Some(0x88a8),
            Self::Stacked9100 => Some(0x9100),
        }
    }
}

/// The kernel hook a port is forwarded at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HookChoice {
    /// XDP where the driver has it natively and it pays, else TC.
    #[default]
    Auto,
    /// TC only.
    Tc,
    /// XDP first, TC for what it passes up; refused where the driver has no native XDP.
    Xdp,
}

/// How a frame reaches the far end of a veth port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Delivery {
    /// `Peer` where the far end is in another namespace and nothing between would be skipped, else `Device`.
    #[default]
    Auto,
    /// `bpf_redirect_peer`: straight into the far end, past this side's egress queue, taps and counters.
    Peer,
    /// Through the port's own transmit path.
    Device,
}

/// One active VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanState {
    /// False: its frames teach the FDB nothing.
    pub learning: bool,
    /// Dynamic FDB entries allowed in this VLAN; `None` is no limit of its own.
    pub fdb_limit: Option<u32>,
    /// Its spanning-tree instance.
    pub instance: InstanceId,
}

impl Default for VlanState {
    fn default() -> Self {
        Self { learning: true, fdb_limit: None, instance: InstanceId::default() }
    }
}

/// Where a control-plane FDB entry points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FdbTarget {
    /// A static entry: frames go to this port, and the address cannot move.
    Static(PortId),
    /// A sticky entry: learned, kept, shown as sticky; forwards like a static one.
    Sticky(PortId),
    /// An address of the switch itself, reached at this port (a VLAN interface's).
    SelfAddress(PortId),
    /// Frames from and to the address are dropped.
    Blackhole,
}

impl FdbTarget {
    /// The port, unless the entry drops.
    #[must_use]
    pub const fn port(self) -> Option<PortId> {
        match self {
            Self::Static(port) | Self::Sticky(port) | Self::SelfAddress(port) => Some(port),
            Self::Blackhole => None,
        }
    }
}

/// A map as a list of pairs: JSON has no keys but strings.
mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Vec::<(K, V)>::deserialize(deserializer).map(|pairs| pairs.into_iter().collect())
    }
}
