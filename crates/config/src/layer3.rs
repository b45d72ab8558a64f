//! Layer 3: VRFs, the settings of routed interfaces besides addresses, static routes, tracked objects, relays. The
//! model and its text.
//!
//! Invariant: a value that equals its default is not printed; a VRF that a line names exists and is printed before that
//! line.

use crate::format::reference;
use crate::names::split_subinterface;
use crate::{Config, Interface, InterfaceName};
use ipnet::{IpNet, Ipv6Net};
use lanyard_pipeline::route::Urpf;
use lanyard_types::{MacAddr, VlanId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `ip forwarding plane`: whether the plane or the kernel routes the packets that the plane can route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForwardingPlane {
    /// The plane forwards, unless the kernel's packet filter, NAT or XFRM would handle the packets; then the kernel
    /// forwards.
    #[default]
    Auto,
    /// The plane forwards, whatever the kernel's packet filter contains.
    Always,
    /// The kernel forwards.
    Never,
}

impl ForwardingPlane {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// The keyword.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
    /// The line of the configuration.
    #[must_use]
    pub fn line(self) -> String {
        format!("ip forwarding plane {}", self.word())
    }
}

/// `vrf definition V`: a separate routing table. In the kernel, it is a network namespace of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vrf {
    /// `description`, at most 240 bytes.
    pub description: Option<String>,
    /// `rd`, as typed; only FRR's BGP uses it.
    pub rd: Option<String>,
    /// `address-family ipv4`.
    pub ipv4: bool,
    /// `address-family ipv6`.
    pub ipv6: bool,
    /// `ip forwarding plane`; unset means the switch's own setting.
    pub forwarding_plane: Option<ForwardingPlane>,
}

/// The settings of a routed interface besides its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer3 {
    /// `vrf forwarding`.
    pub vrf: Option<String>,
    /// `ip mtu`, 68..=9216 bytes; unset means the interface's MTU.
    pub ip_mtu: Option<u32>,
    /// `ip proxy-arp`, on by default.
    pub proxy_arp: bool,
    /// `ip local-proxy-arp`.
    pub local_proxy_arp: bool,
    /// `ip directed-broadcast`.
    pub directed_broadcast: bool,
    /// `ip redirects`, on by default.
    pub redirects: bool,
    /// `ip forwarding plane`, for packets received here; unset means the VRF's setting.
    pub forwarding_plane: Option<ForwardingPlane>,
    /// `ip verify unicast source reachable-via`.
    pub urpf_ipv4: Urpf,
    /// `ipv6 verify unicast source reachable-via`.
    pub urpf_ipv6: Urpf,
    /// `arp timeout` in seconds, 1..=2,147,483; unset means the kernel's default.
    pub arp_timeout_s: Option<u32>,
    /// `ip helper-address`, in order of entry.
    pub helpers: Vec<Helper>,
    /// `ip dhcp relay information trusted`.
    pub relay_trusted: bool,
    /// `ipv6 dhcp relay destination`, in order of entry.
    pub relay_destinations: Vec<RelayDestination>,
    /// `ipv6 nd ...`.
    pub nd: Nd,
    /// `vrrp N ...`.
    pub vrrp: BTreeMap<u8, Vrrp>,
}

impl Default for Layer3 {
    fn default() -> Self {
        Self {
            vrf: None,
            ip_mtu: None,
            proxy_arp: true,
            local_proxy_arp: false,
            directed_broadcast: false,
            redirects: true,
            forwarding_plane: None,
            urpf_ipv4: Urpf::Off,
            urpf_ipv6: Urpf::Off,
            arp_timeout_s: None,
            helpers: Vec::new(),
            relay_trusted: false,
            relay_destinations: Vec::new(),
            nd: Nd::default(),
            vrrp: BTreeMap::new(),
        }
    }
}

/// `ip helper-address`: a DHCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// The routing table in which the server is reached.
    pub vrf: HelperVrf,
    /// Its address.
    pub address: Ipv4Addr,
}

/// The routing table in which a helper is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HelperVrf {
    /// The interface's own routing table.
    #[default]
    Own,
    /// `global`: the switch's own routing table.
    Global,
    /// `vrf V`.
    Named(String),
}

/// `ipv6 dhcp relay destination`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayDestination {
    /// The address of a server or of another relay.
    pub address: Ipv6Addr,
    /// The egress interface; required for a link-local address.
    pub interface: Option<InterfaceName>,
}

/// `ipv6 nd ...`: router advertisements (RFC 4861, 6.2.1). The switch sends them where IPv6 is routed and the
/// interface has an address that is not link-local.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nd {
    /// `ra suppress [all]`.
    pub suppress: RaSuppress,
    /// `managed-config-flag`.
    pub managed: bool,
    /// `other-config-flag`.
    pub other: bool,
    /// `ra interval MAX [MIN]` in seconds: MAX is 4..=1800, 200 by default; MIN is 3..=0.75 x MAX.
    pub interval_s: Option<(u16, Option<u16>)>,
    /// `ra lifetime` in seconds, 0..=9000; 1800 by default.
    pub lifetime_s: Option<u16>,
    /// `prefix`.
    pub prefixes: BTreeMap<Ipv6Net, NdPrefix>,
}

/// `ipv6 nd ra suppress`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RaSuppress {
    /// Advertisements are sent.
    #[default]
    No,
    /// `ra suppress`: advertisements are sent only as answers to solicitations.
    Periodic,
    /// `ra suppress all`: no advertisements are sent.
    All,
}

/// `ipv6 nd prefix`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NdPrefix {
    /// Valid and preferred lifetime in seconds, `u32::MAX` for ever; 2,592,000 and 604,800 by default.
    pub lifetimes_s: Option<(u32, u32)>,
    /// `no-advertise`.
    pub no_advertise: bool,
    /// `off-link`.
    pub off_link: bool,
    /// `no-autoconfig`.
    pub no_autoconfig: bool,
}

/// `vrrp N ...`: a virtual router (RFC 3768).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vrrp {
    /// `ip`, then the `ip ... secondary`; the group is inactive while the list is empty.
    pub addresses: Vec<Ipv4Addr>,
    /// `description`, at most 80 bytes.
    pub description: Option<String>,
    /// `priority`, 1..=254; 100 by default.
    pub priority: u8,
    /// `timers advertise` in seconds, 1..=255; 1 by default.
    pub advertise_s: u8,
    /// `preempt`, on by default.
    pub preempt: bool,
    /// `preempt delay minimum` in seconds, 0..=1000, which is keepalived's range.
    pub preempt_delay_s: u16,
    /// `track N decrement D`: by object, the amount by which the priority is reduced while the object is down, 1..=255.
    pub tracks: BTreeMap<u16, u8>,
    /// `shutdown`.
    pub shutdown: bool,
}

impl Default for Vrrp {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            description: None,
            priority: 100,
            advertise_s: 1,
            preempt: true,
            preempt_delay_s: 0,
            tracks: BTreeMap::new(),
            shutdown: false,
        }
    }
}

/// The default of the decrement of `vrrp N track`.
pub const DEFAULT_DECREMENT: u8 = 10;

/// `ip route` / `ipv6 route`; the daemon enters it into the kernel's routing table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaticRoute {
    /// The routing table that the route is in: a VRF, or `None` for the switch's own table.
    pub vrf: Option<String>,
    /// The destination.
    pub prefix: IpNet,
    /// The next hop's address, if the line names one.
    pub via: Option<IpAddr>,
    /// The egress interface, if the line names one.
    pub interface: Option<InterfaceName>,
    /// `Null0`: packets are dropped.
    pub discard: bool,
    /// The administrative distance, 1..=255.
    pub distance: u8,
    /// `tag`, 1..=4,294,967,295.
    pub tag: Option<u32>,
    /// `name`, one word of at most 50 bytes.
    pub name: Option<String>,
    /// `permanent`: the route stays when its interface goes down.
    pub permanent: bool,
    /// `track`: the route is in the table only while this object is up.
    pub track: Option<u16>,
}

impl StaticRoute {
    /// A route with distance 1 and nothing else.
    #[must_use]
    pub fn new(prefix: IpNet) -> Self {
        Self {
            vrf: None,
            prefix,
            via: None,
            interface: None,
            discard: false,
            distance: 1,
            tag: None,
            name: None,
            permanent: false,
            track: None,
        }
    }
    /// True if both routes have the same table, destination, next hop and interface. Of such routes the one entered
    /// last replaces the earlier one.
    #[must_use]
    pub fn same_way(&self, other: &Self) -> bool {
        (&self.vrf, self.prefix, self.via, &self.interface, self.discard)
            == (&other.vrf, other.prefix, other.via, &other.interface, other.discard)
    }
}

/// `track N ...`: an object that is up or down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// The object that is observed.
    pub object: TrackObject,
    /// `delay up` in seconds, 0..=180.
    pub up_s: u8,
    /// `delay down` in seconds, 0..=180.
    pub down_s: u8,
}

/// The kinds of tracked objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrackObject {
    /// `interface I line-protocol`.
    LineProtocol(InterfaceName),
    /// `ip route P reachability`, `ipv6 route P reachability`: the table has a usable route for exactly this prefix.
    Route {
        /// `ip vrf V` under the object.
        vrf: Option<String>,
        /// The prefix.
        prefix: IpNet,
    },
}

/// `ip dhcp relay information ...`, globally.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayInformation {
    /// `option`: the relay adds option 82 to clients' messages.
    pub option: bool,
    /// `policy`: what the relay does with an option 82 that a message already has.
    pub policy: RelayPolicy,
    /// `trust-all`: the relay accepts messages with option 82 and no relay address at every interface.
    pub trust_all: bool,
}

/// `ip dhcp relay information policy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RelayPolicy {
    /// The relay replaces it by its own.
    #[default]
    Replace,
    /// The relay keeps it.
    Keep,
    /// The relay drops the message.
    Drop,
}

impl Config {
    /// The `ip forwarding plane` setting of a routing table; `None` is the switch's own table.
    #[must_use]
    pub fn forwarding_plane(&self, vrf: Option<&str>) -> ForwardingPlane {
        let of_vrf = vrf.and_then(|vrf| self.vrfs.get(vrf)?.forwarding_plane);
        of_vrf.unwrap_or(self.forwarding_plane)
    }
    /// The VRFs that the configuration names without defining them, each once.
    #[must_use]
    pub fn missing_vrfs(&self) -> BTreeSet<&str> {
        let interfaces = self.interfaces.values().filter_map(|interface| interface.layer3.vrf.as_deref());
        let routes = self.routes.iter().filter_map(|route| route.vrf.as_deref());
        let arps = self.arps.keys().filter_map(|(vrf, _)| vrf.as_deref());
        interfaces.chain(routes).chain(arps).filter(|vrf| !self.vrfs.contains_key(*vrf)).collect()
    }
}

/// A tracked object as the command line names it.
#[must_use]
pub fn track_object(object: &TrackObject) -> String {
    match object {
        TrackObject::LineProtocol(name) => format!("interface {} line-protocol", reference(name)),
        TrackObject::Route { prefix, .. } => format!("{} reachability", destination("route", *prefix)),
    }
}

/// A destination as IOS prints it: `ip WORD A.B.C.D MASK`, `ipv6 WORD P`.
fn destination(word: &str, prefix: IpNet) -> String {
    match prefix {
        IpNet::V4(net) => format!("ip {word} {} {}", net.network(), net.netmask()),
        IpNet::V6(net) => format!("ipv6 {word} {net}"),
    }
}

/// The text of a static route.
#[must_use]
pub fn route_line(route: &StaticRoute) -> String {
    let word = route.vrf.as_ref().map_or_else(|| "route".to_owned(), |vrf| format!("route vrf {vrf}"));
    let mut line = destination(&word, route.prefix);
    if route.discard {
        line.push_str(" Null0");
    }
    if let Some(interface) = &route.interface {
        let _ = write!(line, " {}", reference(interface));
    }
    if let Some(via) = route.via {
        let _ = write!(line, " {via}");
    }
    if route.distance != 1 {
        let _ = write!(line, " {}", route.distance);
    }
    if let Some(tag) = route.tag {
        let _ = write!(line, " tag {tag}");
    }
    if let Some(name) = &route.name {
        let _ = write!(line, " name {name}");
    }
    if route.permanent {
        line.push_str(" permanent");
    }
    if let Some(track) = route.track {
        let _ = write!(line, " track {track}");
    }
    line
}

/// The lines of static ARP entries.
#[must_use]
pub fn arp_lines(arps: &BTreeMap<(Option<String>, Ipv4Addr), MacAddr>) -> Vec<String> {
    let line = |((vrf, address), mac): (&(Option<String>, Ipv4Addr), &MacAddr)| {
        let vrf = vrf.as_ref().map_or_else(String::new, |vrf| format!(" vrf {vrf}"));
        format!("arp{vrf} {address} {mac} arpa")
    };
    arps.iter().map(line).collect()
}

/// The subinterface of `parent`, other than `except`, that already has the tag `vlan`; `None` if there is none.
#[must_use]
pub fn subinterface_with(
    config: &Config,
    parent: &str,
    vlan: VlanId,
    except: &InterfaceName,
) -> Option<String> {
    let is = |(name, interface): (&InterfaceName, &Interface)| {
        let InterfaceName::Netdev(text) = name else { return None };
        let of_parent = split_subinterface(text).is_some_and(|(of, _)| of == parent);
        let has = name != except && of_parent && interface.role == crate::Role::Subinterface(vlan);
        has.then(|| text.clone())
    };
    config.interfaces.iter().find_map(is)
}
