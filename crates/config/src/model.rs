//! The model of the configuration. `Default` gives the defaults; a value that equals its default is not
//! printed.

use crate::access::Access;
use crate::aggregation::{Aggregation, AggregationPort};
use crate::appliance::Appliance;
use crate::discovery::{Discovery, DiscoveryPort};
use crate::dot1x::{PortAccess, Radius};
use crate::fpm::FpmServer;
use crate::guard::Guard;
use crate::layer3::{ForwardingPlane, Layer3, RelayInformation, StaticRoute, Track, Vrf};
use crate::monitor::MonitorSession;
use crate::port_security::PortSecurity;
use crate::private_vlan::{PrivateKind, PrivatePort};
use crate::sflow::Sflow;
use crate::snooping::Snooping;
use crate::spanning_tree::{ErrDisable, SpanningTree, SpanningTreePort};
use crate::tacacs::Tacacs;
use ipnet::{Ipv4Net, Ipv6Net};
use lanyard_acl::{FrameFamily, Lists};
use lanyard_pipeline::state::{Delivery, FDB_LIMIT_DEFAULT, HookChoice, ReservedAction, Tpid};
pub use lanyard_plane::{Breakout, ChipSettings, ControlPath, Fec, Strategy, TablePolicy, Thresholds};
use lanyard_types::{MacAddr, PortSettings, Tunnelled, VlanId, VlanSet};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The whole configuration. The comment of a field begins with the command that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `hostname`.
    pub hostname: String,
    /// The VLAN database; VLAN 1 is always in it.
    pub vlans: BTreeMap<VlanId, Vlan>,
    /// Interfaces that have been configured, in natural order of their names.
    pub interfaces: BTreeMap<InterfaceName, Interface>,
    /// `mac address-table ...`.
    pub fdb: FdbConfig,
    /// `ip routing`.
    pub ip_routing: bool,
    /// `ipv6 unicast-routing`.
    pub ipv6_routing: bool,
    /// `ip forwarding plane`.
    pub forwarding_plane: ForwardingPlane,
    /// `ip route` and `ipv6 route`.
    pub routes: Vec<StaticRoute>,
    /// `vrf definition`, by name.
    pub vrfs: BTreeMap<String, Vrf>,
    /// `track`, by number, 1..=1000.
    pub tracks: BTreeMap<u16, Track>,
    /// `arp [vrf V] A.B.C.D MAC arpa`.
    pub arps: BTreeMap<(Option<String>, Ipv4Addr), MacAddr>,
    /// `ip dhcp relay information ...`.
    pub relay: RelayInformation,
    /// `reserved-address N forward`: by N, the actions that are not the default for the reserved addresses 01:80:C2:00:00:0N.
    pub reserved: BTreeMap<u8, ReservedAction>,
    /// `vlan dot1q tag native`: trunks tag their native VLAN, and drop untagged frames.
    pub tag_native: bool,
    /// `spanning-tree ...`.
    pub spanning_tree: SpanningTree,
    /// `monitor session N ...`, by number, 1..=[`MAX_MONITOR_SESSION`](crate::MAX_MONITOR_SESSION).
    pub monitor: BTreeMap<u16, MonitorSession>,
    /// `sflow ...`.
    pub sflow: Sflow,
    /// `errdisable recovery ...`.
    pub errdisable: ErrDisable,
    /// `lldp ...` and `cdp ...`.
    pub discovery: Discovery,
    /// `location ...`.
    pub locations: crate::Locations,
    /// `ip igmp snooping ...` and `ipv6 mld snooping ...`.
    pub snooping: Snooping,
    /// `ip dhcp snooping ...`, `ip arp inspection ...`, `ip source binding`, `ipv6 nd inspection ...`.
    pub guard: Guard,
    /// `dot1x system-auth-control`.
    pub dot1x: bool,
    /// `radius server`, `radius-server ...`, `ip radius source-interface`.
    pub radius: Radius,
    /// `tacacs server`, `tacacs-server ...`, `ip tacacs source-interface`.
    pub tacacs: Tacacs,
    /// `port-channel ...` and `lacp ...`.
    pub aggregation: Aggregation,
    /// `fpm server`; `None` is off.
    pub fpm: Option<FpmServer>,
    /// `banner motd|login|exec`, with line feeds between the lines of a text.
    pub banners: BTreeMap<Banner, String>,
    /// Access lists, object groups, time ranges, VLAN maps.
    pub lists: Lists,
    /// `vlan filter MAP vlan-list LIST`: the map of each VLAN.
    pub vlan_maps: BTreeMap<VlanId, String>,
    /// `class-map`, `policy-map`, `mls qos`.
    pub qos: crate::Qos,
    /// `platform ...`: the switch chip, without its ports, whose settings are in [`Interface`].
    pub chip: ChipSettings,
    /// Names of interfaces, time, the log.
    pub appliance: Appliance,
    /// `username`, `enable secret`, `privilege`, `platform socket group`.
    pub access: Access,
}

/// The occasions on which a banner is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Banner {
    /// `banner exec`: when a command-line session begins.
    Exec,
    /// `banner login`: before the login.
    Login,
    /// `banner motd`: when a terminal connects.
    Motd,
}

impl Banner {
    /// Its keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Login => "login",
            Self::Motd => "motd",
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hostname: "Lanyard".into(),
            vlans: [(VlanId::DEFAULT, Vlan::default())].into(),
            interfaces: BTreeMap::new(),
            fdb: FdbConfig::default(),
            ip_routing: false,
            ipv6_routing: false,
            forwarding_plane: ForwardingPlane::Auto,
            routes: Vec::new(),
            vrfs: BTreeMap::new(),
            tracks: BTreeMap::new(),
            arps: BTreeMap::new(),
            relay: RelayInformation::default(),
            reserved: BTreeMap::new(),
            tag_native: false,
            spanning_tree: SpanningTree::default(),
            monitor: BTreeMap::new(),
            sflow: Sflow::default(),
            errdisable: ErrDisable::default(),
            discovery: Discovery::default(),
            locations: crate::Locations::default(),
            snooping: Snooping::default(),
            guard: Guard::default(),
            dot1x: false,
            radius: Radius::default(),
            tacacs: Tacacs::default(),
            aggregation: Aggregation::default(),
            fpm: None,
            banners: BTreeMap::new(),
            lists: Lists::default(),
            vlan_maps: BTreeMap::new(),
            qos: crate::Qos::default(),
            chip: ChipSettings::default(),
            appliance: Appliance::default(),
            access: Access::default(),
        }
    }
}

/// A VLAN of the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vlan {
    /// `name`; unset shows as `default` for VLAN 1 and `VLAN0010` for others.
    pub name: Option<String>,
    /// `state suspend`: kept in the database, forwards nothing.
    pub suspended: bool,
    /// `shutdown`: locally shut down, forwards nothing.
    pub shutdown: bool,
    /// `remote-span`: the VLAN carries copies of monitor sessions of other switches; no address is learned in it.
    pub remote_span: bool,
    /// `private-vlan primary|isolated|community`.
    pub private: Option<PrivateKind>,
    /// `private-vlan association`: the secondary VLANs of a primary one.
    pub associated: VlanSet,
}

impl Vlan {
    /// The name shown for this VLAN.
    #[must_use]
    pub fn display_name(&self, vlan: VlanId) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None if vlan == VlanId::DEFAULT => "default".into(),
            None => format!("VLAN{:04}", vlan.get()),
        }
    }
}

/// The name of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InterfaceName {
    /// A netdev, by the kernel's name (1..=15 bytes, no `/`, no white space); or a port-channel, `port-channelN`, which has no
    /// netdev ([`InterfaceName::channel`]).
    Netdev(String),
    /// `interface vlan N`, netdev `vlanN`.
    Vlan(VlanId),
}

/// Orders `Netdev` before `Vlan`, and netdevs by natural order (`eth2` before `eth10`).
impl Ord for InterfaceName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Netdev(a), Self::Netdev(b)) => natural(a, b).then_with(|| a.cmp(b)),
            (Self::Vlan(a), Self::Vlan(b)) => a.cmp(b),
            (Self::Netdev(_), Self::Vlan(_)) => std::cmp::Ordering::Less,
            (Self::Vlan(_), Self::Netdev(_)) => std::cmp::Ordering::Greater,
        }
    }
}

impl PartialOrd for InterfaceName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Natural order: runs of digits compare as numbers, other characters as bytes.
fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let number = |s: &[u8]| s.iter().take_while(|c| c.is_ascii_digit()).count();
        let order = match (number(a), number(b)) {
            (0, _) | (_, 0) => match (a.split_first(), b.split_first()) {
                (Some((x, rest_a)), Some((y, rest_b))) => {
                    (a, b) = (rest_a, rest_b);
                    x.cmp(y)
                }
                (x, y) => return x.is_some().cmp(&y.is_some()),
            },
            (x, y) => {
                let (number_a, rest_a) = a.split_at(x);
                let (number_b, rest_b) = b.split_at(y);
                (a, b) = (rest_a, rest_b);
                let zeros = |s: &[u8]| s.iter().take_while(|c| **c == b'0').count();
                let (value_a, value_b) = (&number_a[zeros(number_a)..], &number_b[zeros(number_b)..]);
                value_a.len().cmp(&value_b.len()).then_with(|| value_a.cmp(value_b))
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The netdev's name: `eth1`, `vlan10`.
impl std::fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Netdev(name) => f.pad(name),
            Self::Vlan(vlan) => f.pad(&format!("vlan{vlan}")),
        }
    }
}

/// An interface's configuration. Settings that do not apply to its role are kept, as in IOS, and have no
/// effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// `description`, at most 240 bytes.
    pub description: Option<String>,
    /// `shutdown`.
    pub shutdown: bool,
    /// `mtu`, 68..=9216 bytes of layer 3; unset leaves the netdev's MTU unchanged.
    pub mtu: Option<u32>,
    /// `mac-address`; for VLAN interfaces and routed ports.
    pub mac: Option<MacAddr>,
    /// The role of the netdev; VLAN interfaces are always `Unset` here.
    pub role: Role,
    /// `switchport ...`.
    pub switchport: Switchport,
    /// `ip address`, the primary first.
    pub ipv4: Vec<Ipv4Net>,
    /// `ipv6 address`.
    pub ipv6: Vec<Ipv6Net>,
    /// All other settings of layer 3.
    pub layer3: Layer3,
    /// `hook auto|tc|xdp`.
    pub hook: HookChoice,
    /// `delivery auto|peer|device`: how frames are handed to a veth whose far end is in another namespace.
    pub delivery: Delivery,
    /// `speed` in Mbit/s, 10..=400,000; `None` is auto.
    pub speed_mbps: Option<u32>,
    /// `duplex`.
    pub duplex: Duplex,
    /// `spanning-tree ...`.
    pub spanning_tree: SpanningTreePort,
    /// `lldp ...` and `cdp ...`.
    pub discovery: DiscoveryPort,
    /// `ip igmp max-groups` and `ipv6 mld max-groups`, 0..=65,536, by `Family::index()`; `None`: no limit at this interface.
    pub max_groups: [Option<u32>; 2],
    /// `ip igmp max-sources` and `ipv6 mld max-sources`, 1..=128, by `Family::index()`; `None`: 128.
    pub max_sources: [Option<u32>; 2],
    /// `ip access-group`, `ipv6 traffic-filter`, `mac access-group`.
    pub access_groups: AccessGroups,
    /// `channel-group`, `port-channel ...` and `lacp ...`.
    pub aggregation: AggregationPort,
    /// `dot1x ...`, `authentication ...` and `mab`.
    pub access: PortAccess,
    /// `logging event link-status`, on by default.
    pub log_link: bool,
    /// `sflow enable`.
    pub sflow: bool,
    /// `breakout`: the parts that this front-panel port is split into.
    pub breakout: Option<Breakout>,
    /// `fec`.
    pub fec: Fec,
    /// `private-vlan mapping` under a VLAN interface: the secondary VLANs that reach it.
    pub private_mapping: VlanSet,
    /// `service-policy` and `mls qos trust`.
    pub qos: crate::QosPort,
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            description: None,
            shutdown: false,
            mtu: None,
            mac: None,
            role: Role::default(),
            switchport: Switchport::default(),
            ipv4: Vec::new(),
            ipv6: Vec::new(),
            layer3: Layer3::default(),
            hook: HookChoice::default(),
            delivery: Delivery::default(),
            speed_mbps: None,
            duplex: Duplex::default(),
            spanning_tree: SpanningTreePort::default(),
            discovery: DiscoveryPort::default(),
            max_groups: [None; 2],
            max_sources: [None; 2],
            access_groups: AccessGroups::default(),
            aggregation: AggregationPort::default(),
            access: PortAccess::default(),
            log_link: true,
            sflow: false,
            breakout: None,
            fec: Fec::default(),
            private_mapping: VlanSet::EMPTY,
            qos: crate::QosPort::default(),
        }
    }
}

/// The access lists of an interface, by the family of the frames (`FrameFamily::index`). A list that does not exist permits
/// everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessGroups {
    /// `in`: for frames that the interface receives.
    pub inbound: [Option<String>; 3],
    /// `out`: for frames that leave by the interface.
    pub outbound: [Option<String>; 3],
}

impl AccessGroups {
    /// The keywords of a family's line.
    #[must_use]
    pub const fn command(family: FrameFamily) -> &'static str {
        match family {
            FrameFamily::Ipv4 => "ip access-group",
            FrameFamily::Ipv6 => "ipv6 traffic-filter",
            FrameFamily::Mac => "mac access-group",
        }
    }
    /// The names of all lists.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.inbound.iter().chain(&self.outbound).flatten().map(String::as_str)
    }
}

/// The role of a netdev in the switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// The configuration names the netdev, but the switch does not change or use it.
    #[default]
    Unset,
    /// `switchport`.
    Switchport,
    /// `no switchport`: the kernel routes on it.
    Routed,
    /// `encapsulation dot1q N`: a tag on a routed port. The interface is named after its parent: `eth1.100`.
    Subinterface(VlanId),
}

/// `duplex`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Duplex {
    /// Negotiated.
    #[default]
    Auto,
    /// `duplex half`.
    Half,
    /// `duplex full`.
    Full,
}

/// `switchport ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switchport {
    /// `switchport mode`.
    pub mode: SwitchportMode,
    /// `switchport access vlan`; also the tunnel's VLAN in `dot1q-tunnel` mode.
    pub access_vlan: VlanId,
    /// `switchport voice vlan`; takes effect in `access` mode.
    pub voice: Option<Voice>,
    /// `switchport trunk native vlan`.
    pub native_vlan: VlanId,
    /// `switchport trunk allowed vlan`.
    pub allowed_vlans: VlanSet,
    /// `dot1q tunneling ethertype`: the TPID of the tags that this port sends and recognises as a trunk.
    /// `Tpid::Dot1q` by default.
    pub tpid: Tpid,
    /// `switchport protected`.
    pub protected: bool,
    /// `switchport block unicast`.
    pub block_unicast: bool,
    /// `switchport block multicast`.
    pub block_multicast: bool,
    /// `mac address-table learning` under the interface; false after `no ...`.
    pub learning: bool,
    /// `mac address-table limit N` under the interface, 1..=1,000,000; `None`: no limit of its own.
    pub fdb_limit: Option<u32>,
    /// Settings of single stages of the pipeline, in the form that the planes use, too.
    pub stages: PortSettings,
    /// `switchport port-security ...`.
    pub security: PortSecurity,
    /// `l2protocol-tunnel stp|cdp|lldp`; takes effect in `dot1q-tunnel` mode.
    pub tunnelled: Tunnelled,
    /// `switchport private-vlan ...`.
    pub private: PrivatePort,
}

/// `switchport voice vlan`: how the telephone at an access port tags voice frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// With tags of this VLAN, of which the port becomes a member.
    Vlan(VlanId),
    /// With priority tags, in the access VLAN.
    Dot1p,
    /// Without tags, in the access VLAN.
    Untagged,
}

impl Switchport {
    /// The VLAN of a telephone's tagged frames; `None` if the port is not an access port, or has no voice VLAN besides its access
    /// VLAN.
    #[must_use]
    pub fn voice_vlan(&self) -> Option<VlanId> {
        match (self.mode, self.voice) {
            (SwitchportMode::Access, Some(Voice::Vlan(vlan))) => {
                Some(vlan).filter(|vlan| *vlan != self.access_vlan)
            }
            _ => None,
        }
    }
    /// True if its mode makes the port a member of the VLAN, whether the VLAN exists or not. A port of private VLANs counts as a
    /// member of the primary VLAN.
    #[must_use]
    pub fn carries(&self, vlan: VlanId) -> bool {
        match self.mode {
            SwitchportMode::Trunk => self.allowed_vlans.contains(vlan),
            _ => self.untagged_vlan() == vlan || self.voice_vlan() == Some(vlan),
        }
    }
}

impl Interface {
    /// True for an interface with IP addresses of its own: a routed port, a routed port-channel or a subinterface. The members
    /// of a routed port-channel have none.
    #[must_use]
    pub const fn is_routed(&self) -> bool {
        matches!(self.role, Role::Routed | Role::Subinterface(_)) && self.aggregation.group.is_none()
    }
}

impl Default for Switchport {
    fn default() -> Self {
        Self {
            mode: SwitchportMode::Access,
            access_vlan: VlanId::DEFAULT,
            voice: None,
            native_vlan: VlanId::DEFAULT,
            allowed_vlans: VlanSet::all(),
            tpid: Tpid::Dot1q,
            protected: false,
            block_unicast: false,
            block_multicast: false,
            learning: true,
            fdb_limit: None,
            stages: PortSettings::default(),
            security: PortSecurity::default(),
            tunnelled: Tunnelled::NONE,
            private: PrivatePort::default(),
        }
    }
}

/// `switchport mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SwitchportMode {
    /// The port carries one VLAN, untagged.
    #[default]
    Access,
    /// The port carries many VLANs, all tagged except the native one.
    Trunk,
    /// `dot1q-tunnel`: every received frame, with its tags, is carried inside the access VLAN.
    Tunnel,
    /// `private-vlan host`: an isolated port, or one of a community.
    PrivateHost,
    /// `private-vlan promiscuous`: it reaches all hosts of its secondary VLANs.
    PrivatePromiscuous,
}

/// `mac address-table ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdbConfig {
    /// `aging-time` in seconds, 10..=1,000,000; 0: entries never age out.
    pub ageing_s: u32,
    /// `limit N` globally, 1..=1,000,000.
    pub limit: u32,
    /// `static M vlan V interface I` or `... drop`.
    pub statics: BTreeMap<(VlanId, MacAddr), StaticTarget>,
    /// `no mac address-table learning vlan V`.
    pub no_learning: VlanSet,
    /// `mac address-table limit N vlan V`.
    pub vlan_limits: BTreeMap<VlanId, u32>,
}

impl Default for FdbConfig {
    fn default() -> Self {
        Self {
            ageing_s: 300,
            limit: FDB_LIMIT_DEFAULT,
            statics: BTreeMap::new(),
            no_learning: VlanSet::EMPTY,
            vlan_limits: BTreeMap::new(),
        }
    }
}

/// The target of a static address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticTarget {
    /// `interface I`.
    Interface(InterfaceName),
    /// `drop`.
    Drop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_in_natural_order() {
        let netdev = |name: &str| InterfaceName::Netdev(name.into());
        let sorted = ["a", "eth", "eth1", "eth01", "eth2", "eth2s1", "eth2s10", "eth10", "swp1"];
        let mut list: Vec<_> = sorted.iter().rev().map(|name| netdev(name)).collect();
        list.sort();
        let want: Vec<_> =
            ["a", "eth", "eth01", "eth1", "eth2", "eth2s1", "eth2s10", "eth10", "swp1"].map(netdev).into();
        assert_eq!(list, want);
        assert!(netdev("zzz") < InterfaceName::Vlan(VlanId::DEFAULT));
    }
}
