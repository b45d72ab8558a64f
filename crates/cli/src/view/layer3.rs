//! Views of layer 3: routes, neighbours, forwarding entries, VRFs, tracked objects, virtual routers, relays.

use super::{Offload, Route};
use lanyard_types::MacAddr;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr};

/// `show ip cef`: what the plane forwards by.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cef {
    /// By prefix.
    pub entries: Vec<CefEntry>,
    /// How many.
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
    /// Where frames go; empty unless `forward`.
    pub nexthops: Vec<CefNextHop>,
    /// Its offload state.
    pub offload: Offload,
    /// Why the plane leaves it to the kernel; `None` when it does not.
    pub reason: Option<String>,
}

/// One next hop of the plane.
#[derive(Debug, Clone, Serialize)]
pub struct CefNextHop {
    /// The router, or the destination itself when it is on link; `None` when it is not known.
    pub via: Option<IpAddr>,
    /// The egress netdev.
    pub interface: String,
    /// Where frames are sent; `None` while it is being resolved.
    pub mac: Option<MacAddr>,
    /// Its share of the group's buckets.
    pub weight: u32,
    /// Seconds since the plane last used it; `None` when it has not, or the plane does not say.
    pub idle_s: Option<u32>,
}

/// What chooses among the next hops of a route.
#[derive(Debug, Clone, Serialize)]
pub struct Flow {
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// The protocol's number.
    pub protocol: u8,
    /// The source's port; 0 for a protocol without.
    pub source_port: u16,
    /// The destination's.
    pub destination_port: u16,
}

/// `show ip cef exact-route`: the one next hop of a flow.
#[derive(Debug, Clone, Serialize)]
pub struct CefExact {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The longest match.
    pub prefix: Option<ipnet::IpNet>,
    /// As for [`CefEntry`].
    pub action: &'static str,
    /// How many next hops there are to choose from.
    pub choices: u64,
    /// Where its frames go.
    pub nexthop: Option<CefNextHop>,
}

/// `show ip cef summary`: how the plane follows a routing table, since the daemon's start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CefSummary {
    /// Prefixes of both families that are known, this table's.
    pub prefixes: u64,
    /// Next-hop groups that the plane has, for all tables.
    pub groups: u64,
    /// Neighbours that the plane has, for all tables.
    pub adjacencies: u64,
    /// Prefixes left to the kernel because no group or neighbour was to be had, of all tables.
    pub starved: u64,
    /// Prefixes there was no room for, of all tables.
    pub failed: u64,
    /// Changes that the plane was told: of routes, groups and neighbours, of all tables.
    pub changes: u64,
    /// How often the kernel's tables were listed, and compared with what was known.
    pub audits: u64,
    /// How often the kernel had more to tell than there was room for.
    pub overruns: u64,
    /// What routes this table's IPv4 packets.
    pub ipv4: Forwarder,
    /// What routes its IPv6 packets.
    pub ipv6: Forwarder,
}

/// What routes packets: the plane or the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Forwarder {
    /// `plane`, `kernel`, or `none` where this family is not routed.
    pub routed_by: &'static str,
    /// Why it is the kernel.
    pub reason: Option<String>,
}

impl Forwarder {
    /// For people: `the kernel: REASON`; `None` where this family is not routed.
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
    /// By protocol.
    pub protocols: Vec<ProtocolRoutes>,
    /// All of them.
    pub total: u64,
    /// Those the plane forwards.
    pub offloaded: u64,
    /// Those the plane leaves to the kernel.
    pub trapped: u64,
    /// Those the plane refused.
    pub failed: u64,
}

/// The routes of one protocol.
#[derive(Debug, Clone, Serialize)]
pub struct ProtocolRoutes {
    /// As in [`Route`].
    pub protocol: String,
    /// How many.
    pub routes: u64,
    /// How many the plane forwards.
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
    /// By name.
    pub vrfs: Vec<VrfView>,
}

/// One VRF.
#[derive(Debug, Clone, Serialize)]
pub struct VrfView {
    /// Its name, which is its network namespace's.
    pub name: String,
    /// `rd`.
    pub rd: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `ipv4`, `ipv6`.
    pub protocols: Vec<&'static str>,
    /// The interfaces in it.
    pub interfaces: Vec<String>,
    /// True when its namespace is there.
    pub present: bool,
}

/// `show track`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tracks {
    /// By number.
    pub tracks: Vec<TrackView>,
}

/// One tracked object.
#[derive(Debug, Clone, Serialize)]
pub struct TrackView {
    /// Its number.
    pub track: u16,
    /// What is looked at, as configured: `interface eth1 line-protocol`, `ip route 10.0.0.0/8 reachability`.
    pub object: String,
    /// Its state, delays included.
    pub up: bool,
    /// Seconds until a change that is delayed takes effect.
    pub pending_s: Option<u64>,
    /// Changes since the daemon started.
    pub changes: u64,
    /// Seconds since the last one, or since the object was made.
    pub last_change_s: u64,
    /// `delay up` in seconds.
    pub delay_up_s: u8,
    /// `delay down` in seconds.
    pub delay_down_s: u8,
    /// Who goes by it: static routes and virtual routers.
    pub tracked_by: Vec<String>,
}

/// `show vrrp`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Vrrps {
    /// By interface and group.
    pub groups: Vec<VrrpView>,
}

/// One virtual router.
#[derive(Debug, Clone, Serialize)]
pub struct VrrpView {
    /// The netdev.
    pub interface: String,
    /// The group.
    pub group: u8,
    /// `master`, `backup`, `init` (down, shut down or without address) or `unavailable` (keepalived does not run).
    pub state: &'static str,
    /// The virtual address; `None` while there is none.
    pub address: Option<Ipv4Addr>,
    /// Further virtual addresses.
    pub secondary_addresses: Vec<Ipv4Addr>,
    /// The virtual MAC address.
    pub mac: MacAddr,
    /// The priority in force: what tracked objects take is taken.
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
    /// Messages by what became of them.
    pub counters: Vec<RelayCounter>,
    /// Why the relay does not work, if so: its port is taken.
    pub error: Option<String>,
}

/// One interface whose clients are relayed for.
#[derive(Debug, Clone, Serialize)]
pub struct RelayInterface {
    /// The netdev.
    pub interface: String,
    /// Its servers.
    pub servers: Vec<RelayServer>,
    /// Option 82 of a client's own message is taken here.
    pub trusted: bool,
}

/// One server.
#[derive(Debug, Clone, Serialize)]
pub struct RelayServer {
    /// Its address.
    pub address: IpAddr,
    /// The routing table it is reached in; `None` is the switch's own.
    pub vrf: Option<String>,
    /// The egress interface, when it is configured.
    pub interface: Option<String>,
}

/// Messages counted.
#[derive(Debug, Clone, Serialize)]
pub struct RelayCounter {
    /// `to_server`, `to_client`, or `dropped` and why: `dropped_hops`.
    pub counter: &'static str,
    /// How many.
    pub messages: u64,
}
