//! The configuration of a plane as plain values: [`PlaneState`].
//!
//! Invariant: two planes with equal `PlaneState`s and equal FDBs forward every frame alike. The terms of IOS
//! (access, trunk, native VLAN...) have been translated to membership before this point, so a plane knows
//! ports, VLANs and sets of them, and nothing of the command line.

use crate::route::RifState;
use lanyard_acl::PlaneList;
use lanyard_types::{
    AclId, ChannelId, InstanceId, LoadBalance, MacAddr, PortId, PortSettings, RifId, TrapGroup, Tunnelled,
    VlanGuard, VlanId, VlanSet,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use lanyard_types::StpState;

/// The whole configuration of a plane, without learned entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneState {
    /// Settings that belong to no port or VLAN.
    pub global: GlobalState,
    /// The ports.
    pub ports: BTreeMap<PortId, PortState>,
    /// The active VLANs; frames of any other VLAN are dropped as `vlan_inactive`.
    pub vlans: BTreeMap<VlanId, VlanState>,
    /// Spanning-tree states that are not [`StpState::Forwarding`].
    #[serde(with = "pairs")]
    pub stp: BTreeMap<(InstanceId, PortId), StpState>,
    /// Ports that stop forwarding in a tree when the control plane stops running spanning tree
    /// (`lanyard_plane::Plane::watchdog`): those behind which another bridge may be. They have no effect while the
    /// control plane runs.
    #[serde(default)]
    pub watched: BTreeSet<(InstanceId, PortId)>,
    /// FDB entries the control plane owns: static and self. An entry's port exists in `ports`.
    #[serde(with = "pairs")]
    pub fdb: BTreeMap<(VlanId, MacAddr), FdbTarget>,
    /// Router interfaces. Routes, next-hop groups and adjacencies are not part of the state: they are changed
    /// one by one with [`crate::route::RouteChange`], because there may be a million of them.
    #[serde(default)]
    pub rifs: BTreeMap<RifId, RifState>,
    /// Access lists. Ports and VLANs refer to them.
    #[serde(default)]
    pub acls: BTreeMap<AclId, Arc<PlaneList>>,
    /// The members in use of each port-channel. One that is not named has none. A port-channel that does not exist yet may
    /// be named.
    #[serde(default)]
    pub channels: BTreeMap<ChannelId, ChannelMembers>,
}

impl PlaneState {
    /// The VLAN under which the tables have the addresses and groups of `vlan`: for a secondary private VLAN, its primary VLAN.
    #[must_use]
    pub fn shared(&self, vlan: VlanId) -> VlanId {
        self.vlans.get(&vlan).and_then(|state| state.shares).map_or(vlan, |shares| shares.primary)
    }
    /// True if `wanted` holds for the first-hop security of a VLAN in which the port may receive frames. A secondary private VLAN
    /// has the first-hop security of its primary VLAN.
    #[must_use]
    pub fn is_guarded(&self, port: &PortState, wanted: impl Fn(&VlanGuard) -> bool) -> bool {
        let receives = |vlan: VlanId| {
            port.tagged.contains(vlan) || port.untagged.contains(vlan) || port.pvid == Some(vlan)
        };
        let guarded =
            |vlan: &VlanId| self.vlans.get(&self.shared(*vlan)).is_some_and(|vlan| wanted(&vlan.guard));
        self.vlans.keys().any(|vlan| receives(*vlan) && guarded(vlan))
    }
}

/// The access lists that judge frames at one place, by the family of the frames (`lanyard_acl::FrameFamily::index`). `None`
/// lets all frames of the family pass.
pub type AclBindings = [Option<AclId>; 3];

/// Settings of the whole plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalState {
    /// The action for each reserved address 01:80:C2:00:00:00-0F, by its last nibble. The action at index 1
    /// (PAUSE) is always [`ReservedAction::Drop`], whatever is stored here.
    pub reserved: [ReservedAction; 16],
    /// VLANs whose PVST+ BPDUs (01:00:0C:CC:CC:CD) are trapped; in other VLANs they are ordinary multicast. A PVST+
    /// BPDU that belongs to no VLAN is trapped if the set is not empty.
    pub trap_pvst: VlanSet,
    /// True if frames for 01:00:0C:CC:CC:CC (CDP and Cisco's other protocols of one link) are trapped; they are ordinary
    /// multicast otherwise.
    #[serde(default)]
    pub trap_cdp: bool,
    /// The limit of dynamic FDB entries in total, 1..=the plane's capacity.
    pub fdb_limit: u32,
    /// Token bucket of each trap group, by `TrapGroup::index()`.
    pub trap_rate: [TrapRate; TrapGroup::SLOTS],
    /// The share of each group that one port may use: a flood at one port leaves the other ports their shares.
    pub trap_port_rate: [TrapRate; TrapGroup::SLOTS],
    /// The fields of a frame that decide by which member of a port-channel it leaves.
    #[serde(default)]
    pub load_balance: LoadBalance,
}

/// The FDB's default limit.
pub const FDB_LIMIT_DEFAULT: u32 = 1_000_000;

impl Default for GlobalState {
    fn default() -> Self {
        let mut reserved = [ReservedAction::Drop; 16];
        // With spanning tree off BPDUs are relayed, as the Linux bridge does.
        reserved[0] = ReservedAction::Forward;
        let mut trap_rate = [TrapRate::default(); TrapGroup::SLOTS];
        let mut trap_port_rate = [TrapRate { rate_pps: 100, burst: 64 }; TrapGroup::SLOTS];
        // Each of these groups causes a different kind of work in the kernel. Because each has its own rate, a flood in one group
        // does not reduce the rate of the others.
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
        // The members of thousands of groups at one port answer a query within seconds.
        trap_rate[TrapGroup::Multicast.index()] = TrapRate { rate_pps: 20_000, burst: 4096 };
        trap_port_rate[TrapGroup::Multicast.index()] = TrapRate { rate_pps: 15_000, burst: 4096 };
        // Hundreds of clients at one port may start at the same time.
        trap_rate[TrapGroup::Dhcp.index()] = TrapRate { rate_pps: 2_000, burst: 512 };
        trap_port_rate[TrapGroup::Dhcp.index()] = TrapRate { rate_pps: 500, burst: 256 };
        // Every host solicits its neighbours once, and then a binding explains it; a scan for neighbours does not fill the group.
        trap_rate[TrapGroup::Nd.index()] = TrapRate { rate_pps: 2_000, burst: 512 };
        trap_port_rate[TrapGroup::Nd.index()] = TrapRate { rate_pps: 200, burst: 128 };
        trap_rate[TrapGroup::Guarded.index()] = TrapRate { rate_pps: 100, burst: 64 };
        trap_port_rate[TrapGroup::Guarded.index()] = TrapRate { rate_pps: 10, burst: 8 };
        // Notes are for lines of the log, most of which are about new flows.
        trap_rate[TrapGroup::AclLog.index()] = TrapRate { rate_pps: 200, burst: 256 };
        trap_port_rate[TrapGroup::AclLog.index()] = TrapRate { rate_pps: 100, burst: 128 };
        // A login takes a dozen messages. Other frames of hosts that are not authenticated yet belong to the group `Guarded`.
        trap_rate[TrapGroup::Eapol.index()] = TrapRate { rate_pps: 1_000, burst: 256 };
        trap_port_rate[TrapGroup::Eapol.index()] = TrapRate { rate_pps: 50, burst: 32 };
        // The cost of a flood at one port for the kernel's stack is bounded, and so is its effect on other ports.
        for group in [TrapGroup::Neighbour, TrapGroup::LinkMulticast, TrapGroup::Flooded] {
            trap_rate[group.index()] = TrapRate { rate_pps: 20_000, burst: 4096 };
            trap_port_rate[group.index()] = TrapRate { rate_pps: 10_000, burst: 2048 };
        }
        // Ordinary traffic has no limit but the kernel's own speed.
        trap_rate[TrapGroup::Host.index()] = TrapRate::UNLIMITED;
        trap_port_rate[TrapGroup::Host.index()] = TrapRate::UNLIMITED;
        Self {
            reserved,
            trap_pvst: VlanSet::EMPTY,
            trap_cdp: false,
            fdb_limit: FDB_LIMIT_DEFAULT,
            trap_rate,
            trap_port_rate,
            load_balance: LoadBalance::default(),
        }
    }
}

/// A token bucket: limits the frames that a trap group may send up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrapRate {
    /// Sustained rate in frames per second.
    pub rate_pps: u32,
    /// Bucket depth in frames.
    pub burst: u32,
}

impl TrapRate {
    /// No limit: no token bucket is used.
    pub const UNLIMITED: Self = Self { rate_pps: u32::MAX, burst: u32::MAX };
}

impl Default for TrapRate {
    fn default() -> Self {
        Self { rate_pps: 1000, burst: 256 }
    }
}

/// The action for frames with a reserved destination address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum ReservedAction {
    /// Dropped as `reserved_address`.
    #[default]
    Drop = 0,
    /// Relayed as multicast.
    Forward = 1,
    /// Trapped to the control plane and not relayed.
    Trap = 2,
}

/// The state of one port. `hook` and `delivery` concern how the plane attaches to the netdev; the other
/// fields decide forwarding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// The netdev's name, for messages and traces.
    pub name: String,
    /// The netdev's index; 0 for a port without a netdev (in memory, or removed).
    pub ifindex: u32,
    /// The kind of port.
    pub kind: PortKind,
    /// False: every received frame is dropped as `port_down`, and nothing is sent. Combines admin state and
    /// link.
    pub enabled: bool,
    /// The EtherType that counts as this port's VLAN tag.
    pub tpid: Tpid,
    /// The VLAN of untagged and priority-tagged frames; `None` drops them as `untagged_not_allowed`.
    pub pvid: Option<VlanId>,
    /// VLANs that are sent tagged. Disjoint from `untagged`.
    pub tagged: VlanSet,
    /// VLANs that are sent untagged. A received frame that is tagged with one of them is accepted, too, unless the port is
    /// `private`.
    pub untagged: VlanSet,
    /// A host or promiscuous port of private VLANs: what it receives belongs to `pvid`, even if it is not a member of that
    /// VLAN, and what it sends is decided by membership.
    #[serde(default)]
    pub private: bool,
    /// Selects the drop reason for the tag of a VLAN that is not allowed: `tagged_on_access` when true, else
    /// `vlan_not_allowed`.
    pub access: bool,
    /// False: source addresses of its frames are not learned.
    pub learning: bool,
    /// Protected: no frame goes from one protected port to another.
    pub isolated: bool,
    /// False: floods of unknown unicast leave the port out (`switchport block unicast`; always so for VLAN
    /// interfaces).
    pub flood_unicast: bool,
    /// False: floods of multicast leave the port out; broadcast does not.
    pub flood_multicast: bool,
    /// Layer-3 MTU in bytes, 68..=65535. A frame fits when its length without this port's tag is at most
    /// MTU + 14 (Ethernet) + 4 (one tag that belongs to the payload), the Linux bridge's rule.
    pub mtu: u32,
    /// The limit of dynamic FDB entries at this port; `None` means no limit of its own.
    pub fdb_limit: Option<u32>,
    /// The configuration of single stages.
    #[serde(flatten)]
    pub stages: PortSettings,
    /// The customers' protocols that a dot1q-tunnel port carries; without effect at other ports.
    #[serde(default)]
    pub tunnelled: Tunnelled,
    /// The lists for frames that the port receives. Of the pipeline's end of a VLAN interface: for frames from the host, and
    /// for packets that are routed into the VLAN.
    #[serde(default)]
    pub acl_in: AclBindings,
    /// The lists for frames that leave by the port. Of the pipeline's end of a VLAN interface: for frames to the host, and
    /// for frames of the VLAN that are addressed to the router.
    #[serde(default)]
    pub acl_out: AclBindings,
    /// Quality of service. Only a port of kind `Netdev` or `Routed` has policies.
    #[serde(default)]
    pub qos: crate::qos::PortQos,
    /// The port's part in link aggregation.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// The kernel hook at which the port's frames enter the pipeline.
    pub hook: HookChoice,
    /// How frames are handed to a veth whose other end is in another namespace.
    pub delivery: Delivery,
}

impl PortState {
    /// True for a dot1q-tunnel port: it recognises no tag, and its frames, control frames included, are a
    /// customer's.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        self.kind == PortKind::Netdev && self.tpid == Tpid::None
    }
    /// An enabled, learning port that is a member of no VLAN, for callers and tests to modify.
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
            private: false,
            access: false,
            learning: true,
            isolated: false,
            flood_unicast: true,
            flood_multicast: true,
            mtu: 1500,
            fdb_limit: None,
            stages: PortSettings::default(),
            tunnelled: Tunnelled::NONE,
            acl_in: AclBindings::default(),
            acl_out: AclBindings::default(),
            qos: crate::qos::PortQos::default(),
            aggregation: Aggregation::None,
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

/// The part of a port in link aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Aggregation {
    /// None: an ordinary port.
    #[default]
    None,
    /// A port-channel: a port without a netdev of its own. Its frames arrive and leave by its members.
    Channel(ChannelId),
    /// A member of a port-channel. It is in no VLAN. What the stages before `port` read (TPID, PVID, tunnelled protocols) has
    /// the port-channel's values.
    Member {
        /// The port of the port-channel.
        of: PortId,
        /// Its number.
        channel: ChannelId,
    },
}

impl Aggregation {
    /// The number of a port-channel; `None` for other ports.
    #[must_use]
    pub const fn channel(self) -> Option<ChannelId> {
        match self {
            Self::Channel(number) => Some(number),
            _ => None,
        }
    }
    /// The port of the port-channel that this one is a member of; `None` for other ports.
    #[must_use]
    pub const fn member_of(self) -> Option<PortId> {
        match self {
            Self::Member { of, .. } => Some(of),
            _ => None,
        }
    }
}

/// The number of hash values of a port-channel; each is assigned to one member.
pub const CHANNEL_BUCKETS: usize = 256;

/// The members of a port-channel that are in use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChannelMembers {
    /// The members whose frames are accepted; those of others are dropped as `not_collecting`.
    pub collecting: BTreeSet<PortId>,
    /// The member by which frames of each hash value leave: [`CHANNEL_BUCKETS`] members, or none while the port-channel
    /// cannot send.
    pub buckets: Vec<PortId>,
}

/// The connection of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortKind {
    /// A network device: NIC, veth, TAP.
    Netdev,
    /// The pipeline's end of VLAN interface `vlanN`: frames sent to this port are delivered to the kernel's IP
    /// stack.
    Svi(VlanId),
    /// A routed port (`no switchport`): it is in no VLAN, and learns nothing. The netdev itself is the kernel's
    /// interface: frames that the plane does not route continue up its stack, and frames that the kernel sends do not
    /// pass the plane.
    Routed,
    /// The pipeline's end of a subinterface's veth pair: frames sent to this port are delivered up; frames received
    /// from it leave at `parent`, a routed port, tagged with `vlan`.
    Subinterface {
        /// The routed port.
        parent: PortId,
        /// The tag (`encapsulation dot1q`).
        vlan: VlanId,
    },
}

/// The EtherType of a port's VLAN tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Tpid {
    /// No tag is recognised: every frame, tagged or not, belongs to the PVID's VLAN (`dot1q-tunnel`).
    None = 0,
    /// 0x8100, the customer tag (IEEE 802.1Q-2018, table 9-1).
    Dot1q = 1,
    /// 0x88A8, the service tag.
    Dot1ad = 2,
    /// 0x9100, which older equipment uses for stacked tags.
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

/// The configured kernel hook of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HookChoice {
    /// XDP where the driver has native XDP and XDP is faster, else TC.
    #[default]
    Auto,
    /// TC only.
    Tc,
    /// XDP first, and TC for the frames that XDP passes up; refused where the driver has no native XDP.
    Xdp,
}

/// How a frame reaches the far end of a veth port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Delivery {
    /// `Peer` where the far end is in another namespace and nothing would be bypassed that must see the
    /// frame, else `Device`.
    #[default]
    Auto,
    /// `bpf_redirect_peer`: directly to the far end; bypasses this side's egress queue, taps and counters.
    Peer,
    /// Through the port's own transmit path.
    Device,
}

/// The state of one active VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanState {
    /// False: source addresses of its frames are not learned.
    pub learning: bool,
    /// The limit of dynamic FDB entries in this VLAN; `None` means no limit of its own.
    pub fdb_limit: Option<u32>,
    /// The spanning-tree instance of this VLAN.
    pub instance: InstanceId,
    /// Multicast snooping, by `Family::index()`; `None`: off.
    #[serde(default)]
    pub snooping: [Option<Unregistered>; 2],
    /// First-hop security.
    #[serde(default)]
    pub guard: VlanGuard,
    /// The VLAN's map, as a list for each family: for frames that are received in the VLAN or routed into it.
    #[serde(default)]
    pub acl: AclBindings,
    /// Of a secondary private VLAN: what it shares with its primary VLAN.
    #[serde(default)]
    pub shares: Option<Shares>,
}

/// The part that a secondary private VLAN shares with its primary VLAN: the addresses of the FDB (shared VLAN learning, IEEE
/// 802.1Q-2018, 8.8.8) and the members of multicast groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// The primary VLAN, which is not a secondary one itself.
    pub primary: VlanId,
    /// True if frames of this VLAN also reach the router interface of the primary VLAN.
    pub routed: bool,
}

impl Default for VlanState {
    fn default() -> Self {
        Self {
            learning: true,
            fdb_limit: None,
            instance: InstanceId::default(),
            snooping: [None; 2],
            guard: VlanGuard::default(),
            acl: AclBindings::default(),
            shares: None,
        }
    }
}

/// The treatment of frames of groups without members (RFC 4541, 2.1.2, rule 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Unregistered {
    /// They go to all ports of the VLAN.
    #[default]
    Flood = 1,
    /// They go to the ports that lead to multicast routers, and to no others.
    Routers = 2,
}

/// The target of a control-plane FDB entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FdbTarget {
    /// A static entry: frames go to this port, and the address cannot move.
    Static(PortId),
    /// A sticky entry: learned, then kept and shown as sticky; forwards like a static one.
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

/// Serialises a map as a list of pairs, because keys in JSON can only be strings.
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
