//! Views of layer 3: routes, neighbours, forwarding entries, VRFs, tracked objects, virtual routers, relays.

use super::{Offload, Route};
use lanyard_types::MacAddr;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr};

/// `show ip cef`: the plane's forwarding entries.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cef {
    /// The entries, by prefix.
    pub entries: Vec<CefEntry>,
    /// The number of entries.
    pub total: u64,
}

/// One entry of the plane's forwarding table.
#[derive(Debug, Clone, Serialize)]
pub struct CefEntry {
    /// The destination.
    pub prefix: ipnet::IpNet,
    /// `forward`, `receive` (the switch's own), `glean` (a connected subnet), `punt` (left to the kernel), `drop` (a
    /// blackhole) or `none` (no route).
    pub action: &'static str,
    /// The next hops; empty unless the action is `forward`.
    pub nexthops: Vec<CefNextHop>,
    /// Its offload state.
    pub offload: Offload,
    /// Why the plane leaves the prefix to the kernel; `None` when it does not.
    pub reason: Option<String>,
}

/// One next hop of the plane.
#[derive(Debug, Clone, Serialize)]
pub struct CefNextHop {
    /// The gateway, or the destination itself when it is on link; `None` when it is not known.
    pub via: Option<IpAddr>,
    /// The egress netdev.
    pub interface: String,
    /// The destination MAC address of the frames; `None` while it is being resolved.
    pub mac: Option<MacAddr>,
    /// Its share of the group's buckets.
    pub weight: u32,
    /// Seconds since the plane last used it; `None` when it has not, or when the plane does not report this.
    pub idle_s: Option<u32>,
}

/// The fields of a packet that select one of a route's next hops.
#[derive(Debug, Clone, Serialize)]
pub struct Flow {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol number.
    pub protocol: u8,
    /// The source port; 0 for a protocol without ports.
    pub source_port: u16,
    /// The destination port; 0 for a protocol without ports.
    pub destination_port: u16,
}

/// `show ip cef exact-route`: the one next hop of a flow.
#[derive(Debug, Clone, Serialize)]
pub struct CefExact {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The longest matching prefix; `None` without a match.
    pub prefix: Option<ipnet::IpNet>,
    /// The action, as in [`CefEntry`].
    pub action: &'static str,
    /// The number of next hops to choose from.
    pub choices: u64,
    /// The chosen next hop.
    pub nexthop: Option<CefNextHop>,
}

/// `show ip cef summary`: how the plane follows a routing table, since the daemon's start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CefSummary {
    /// The number of known prefixes of both families in this table.
    pub prefixes: u64,
    /// The number of next-hop groups in the plane, for all tables.
    pub groups: u64,
    /// The number of adjacencies in the plane, for all tables.
    pub adjacencies: u64,
    /// How often, since the start, a prefix or a next-hop set got no group, because no group or adjacency was free or the plane
    /// refused it; of all tables. Each attempt counts.
    #[serde(rename = "starved")]
    pub refused_groups: u64,
    /// Prefixes for which the plane had no room, of all tables.
    pub failed: u64,
    /// Changes of routes, groups and adjacencies that were written to the plane, of all tables.
    pub changes: u64,
    /// How often the kernel's tables were listed and compared with the daemon's.
    pub audits: u64,
    /// How often events of the kernel were lost because a buffer was full.
    pub overruns: u64,
    /// The forwarder of this table's IPv4 packets.
    pub ipv4: Forwarder,
    /// The forwarder of its IPv6 packets.
    pub ipv6: Forwarder,
}

/// The forwarder of packets: the plane or the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Forwarder {
    /// `plane`, `kernel`, or `none` where this family is not routed.
    pub routed_by: &'static str,
    /// Why the kernel routes them.
    pub reason: Option<String>,
}

impl Forwarder {
    /// The forwarder as text, such as `the kernel: REASON`; `None` where this family is not routed.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match (self.routed_by, &self.reason) {
            ("plane" | "kernel", None) => Some(format!("the {}", self.routed_by)),
            ("plane" | "kernel", Some(reason)) => Some(format!("the {}: {reason}", self.routed_by)),
            _ => None,
        }
    }
}

/// `show ip route summary`. Made from the routes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RouteSummary {
    /// The numbers, by protocol.
    pub protocols: Vec<ProtocolRoutes>,
    /// All routes.
    pub total: u64,
    /// Routes that the plane forwards by.
    pub offloaded: u64,
    /// Routes that the plane leaves to the kernel.
    pub trapped: u64,
    /// Routes that the plane refused.
    pub failed: u64,
}

/// The routes of one protocol.
#[derive(Debug, Clone, Serialize)]
pub struct ProtocolRoutes {
    /// The protocol, as in [`Route`].
    pub protocol: String,
    /// The number of routes.
    pub routes: u64,
    /// The number of routes that the plane forwards by.
    pub offloaded: u64,
}

impl RouteSummary {
    /// Counts `routes`.
    #[must_use]
    pub fn of(routes: &[Route]) -> Self {
        let mut by: std::collections::BTreeMap<&str, (u64, u64)> = std::collections::BTreeMap::new();
        let state = |wanted: Offload| routes.iter().filter(|route| route.offload == wanted).count() as u64;
        for route in routes {
            let (all, offloaded) = by.entry(&route.protocol).or_default();
            *all += 1;
            *offloaded += u64::from(route.offload == Offload::Offloaded);
        }
        let row = |(protocol, (routes, offloaded)): (&str, (u64, u64))| ProtocolRoutes {
            protocol: protocol.to_owned(),
            routes,
            offloaded,
        };
        Self {
            protocols: by.into_iter().map(row).collect(),
            total: routes.len() as u64,
            offloaded: state(Offload::Offloaded),
            trapped: state(Offload::Trapped),
            failed: state(Offload::Failed),
        }
    }
}

/// `show vrf`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Vrfs {
    /// The VRFs, by name.
    pub vrfs: Vec<VrfView>,
}

/// One VRF.
#[derive(Debug, Clone, Serialize)]
pub struct VrfView {
    /// Its name, which is also the name of its network namespace.
    pub name: String,
    /// `rd`.
    pub rd: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `ipv4`, `ipv6`.
    pub protocols: Vec<&'static str>,
    /// The interfaces in the VRF.
    pub interfaces: Vec<String>,
    /// True when its namespace exists.
    pub present: bool,
}

/// `show track`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tracks {
    /// The objects, by number.
    pub tracks: Vec<TrackView>,
}

/// One tracked object.
#[derive(Debug, Clone, Serialize)]
pub struct TrackView {
    /// Its number.
    pub track: u16,
    /// The object as configured: `interface eth1 line-protocol`, `ip route 10.0.0.0/8 reachability`.
    pub object: String,
    /// Its state, with delays applied.
    pub up: bool,
    /// Seconds until a delayed change takes effect.
    pub pending_s: Option<u64>,
    /// The number of changes since the daemon started.
    pub changes: u64,
    /// Seconds since the last change, or since the object was created.
    pub last_change_s: u64,
    /// `delay up` in seconds.
    pub delay_up_s: u8,
    /// `delay down` in seconds.
    pub delay_down_s: u8,
    /// The static routes and virtual routers that depend on it.
    pub tracked_by: Vec<String>,
}

/// `show vrrp`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Vrrps {
    /// The virtual routers, by interface and group.
    pub groups: Vec<VrrpView>,
}

/// One virtual router.
#[derive(Debug, Clone, Serialize)]
pub struct VrrpView {
    /// The netdev.
    pub interface: String,
    /// The group.
    pub group: u8,
    /// `description`.
    pub description: Option<String>,
    /// `shutdown`.
    pub shutdown: bool,
    /// `master`, `backup`, `init` (down, shut down or without address) or `unavailable` (keepalived does not run).
    pub state: &'static str,
    /// The virtual address; `None` when it is not configured.
    pub address: Option<Ipv4Addr>,
    /// Further virtual addresses.
    pub secondary_addresses: Vec<Ipv4Addr>,
    /// The virtual MAC address.
    pub mac: MacAddr,
    /// The priority in force, reduced by the decrements of tracked objects that are down.
    pub priority: u8,
    /// The configured priority.
    pub configured_priority: u8,
    /// `preempt`.
    pub preempt: bool,
    /// `timers advertise` in seconds.
    pub advertise_s: u8,
    /// Tracked objects that are down.
    pub tracks_down: Vec<u16>,
}

/// `show ip dhcp relay`, `show ipv6 dhcp relay`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Relay {
    /// The interfaces with servers.
    pub interfaces: Vec<RelayInterface>,
    /// The numbers of messages, by outcome.
    pub counters: Vec<RelayCounter>,
    /// Why the relay does not work, such as a UDP port that another program uses; `None` while it works.
    pub error: Option<String>,
}

/// An interface whose clients' messages are relayed.
#[derive(Debug, Clone, Serialize)]
pub struct RelayInterface {
    /// The netdev.
    pub interface: String,
    /// Its servers.
    pub servers: Vec<RelayServer>,
    /// True when option 82 in clients' messages is accepted here.
    pub trusted: bool,
}

/// One server.
#[derive(Debug, Clone, Serialize)]
pub struct RelayServer {
    /// Its address.
    pub address: IpAddr,
    /// The routing table in which the server is reached; `None` means the switch's own.
    pub vrf: Option<String>,
    /// The egress interface, if configured.
    pub interface: Option<String>,
}

/// A counter of messages.
#[derive(Debug, Clone, Serialize)]
pub struct RelayCounter {
    /// `to_server`, `to_client`, or `dropped_` with a reason, such as `dropped_hops`.
    pub counter: &'static str,
    /// The number of messages.
    pub messages: u64,
}
