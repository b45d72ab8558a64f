//! What `show` commands show, as values: the backend fills them in, `| json` serializes them, the renderer
//! draws them as text.
//!
//! Invariant: the JSON keys of contract commands are exactly the contract's. A field that only text output
//! needs is `#[serde(skip)]`. Times are in seconds with the unit in the key; counters are integers.

mod fpm;
mod layer3;

pub use fpm::*;
pub use layer3::*;

use lanyard_stp::view::{InstanceView, PortSummary, PortView};
use lanyard_types::{MacAddr, VlanId};
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;

/// Whether the forwarding plane carries an object itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Forwarded by the plane.
    Offloaded,
    /// In the plane, pointing at the kernel.
    Trapped,
    /// The plane refused it.
    Failed,
    /// The plane has no such table; the kernel forwards.
    #[default]
    None,
}

/// `show mac address-table`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MacTable {
    /// The entries that passed the filter, by VLAN and address.
    pub entries: Vec<MacEntry>,
    /// Entries listed.
    pub total: u64,
    /// Dynamic entries the table may hold.
    pub capacity: u64,
}

/// One FDB entry.
#[derive(Debug, Clone, Serialize)]
pub struct MacEntry {
    /// The address.
    pub mac: MacAddr,
    /// The VLAN.
    pub vlan: u16,
    /// The port or VLAN interface; `None` for an entry that drops.
    pub interface: Option<Arc<str>>,
    /// `dynamic`, `static`, `sticky` or `self`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Seconds since the address was last seen; 0 for entries that do not age.
    pub age_s: u32,
    /// Its offload state.
    pub offload: Offload,
}

/// `show mac address-table count`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MacCount {
    /// Dynamic entries.
    pub dynamic: u64,
    /// Configured entries.
    #[serde(rename = "static")]
    pub fixed: u64,
    /// Sticky entries.
    pub sticky: u64,
    /// The switch's own addresses.
    #[serde(rename = "self")]
    pub own: u64,
    /// All of them.
    pub total: u64,
    /// Dynamic entries the table may hold.
    pub capacity: u64,
    /// Dynamic entries refused since the plane was made, because a limit was reached.
    pub refused: u64,
}

/// `show vlan`. Made from the configuration.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VlanTable {
    /// The VLANs, ascending.
    pub vlans: Vec<VlanEntry>,
}

/// One VLAN.
#[derive(Debug, Clone, Serialize)]
pub struct VlanEntry {
    /// Its number.
    pub vlan: u16,
    /// Its name.
    pub name: String,
    /// `active`, `suspended`, `act/lshut` or `sus/lshut`.
    pub status: &'static str,
    /// Its member ports.
    pub ports: Vec<VlanPort>,
}

/// A member port of a VLAN.
#[derive(Debug, Clone, Serialize)]
pub struct VlanPort {
    /// The port.
    pub interface: String,
    /// True when its frames of this VLAN carry a tag.
    pub tagged: bool,
    /// True for a trunk, which the text form leaves out.
    #[serde(skip)]
    pub trunk: bool,
}

/// `show interfaces`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Interfaces {
    /// In natural order of their names.
    pub interfaces: Vec<InterfaceView>,
}

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceKind {
    /// A port of the switch.
    Switchport,
    /// A port the kernel routes on.
    Routed,
    /// A VLAN interface.
    Svi,
}

/// One interface.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceView {
    /// The netdev's name.
    pub name: String,
    /// What it is.
    pub kind: InterfaceKind,
    /// Not `shutdown`.
    pub admin_up: bool,
    /// It has carrier.
    pub link_up: bool,
    /// Its address; `None` when the netdev does not exist.
    pub mac: Option<MacAddr>,
    /// Layer-3 MTU in bytes; 0 when the netdev does not exist.
    pub mtu: u32,
    /// Speed in Mbit/s; `None` when unknown.
    pub speed_mbps: Option<u32>,
    /// `full`, `half` or `unknown`.
    pub duplex: &'static str,
    /// Received.
    pub rx: Counters,
    /// Sent.
    pub tx: Counters,
    /// `tc`, `xdp` or `soft`; `None` for an interface the plane has nothing attached to.
    pub hook: Option<&'static str>,
    /// What is worth knowing about the way the port is forwarded, a sentence each.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// How many of the frames that the plane received at this port it forwarded to at least one port; with those
    /// trapped and those dropped they are all of them.
    #[serde(skip)]
    pub forwarded: u64,
    /// How many of them went to the control plane only.
    #[serde(skip)]
    pub trapped: u64,
    /// True when there is such a netdev at the moment.
    #[serde(skip)]
    pub present: bool,
    /// The netdev's driver (`veth`, `e1000e`), when known.
    #[serde(skip)]
    pub driver: Option<String>,
    /// The netdev's addresses as the kernel has them, IPv4 first, link-local ones included.
    #[serde(skip)]
    pub addresses: Vec<ipnet::IpNet>,
    /// What routes the IPv4 and the IPv6 packets received here; `None` for what is no router interface.
    #[serde(skip)]
    pub routed_by: Option<[Forwarder; 2]>,
    /// Why the switch does not use the port although it is configured, e.g. `enslaved to br0`.
    #[serde(skip)]
    pub error: Option<String>,
}

/// Frames one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Frames.
    pub frames: u64,
    /// Bytes without FCS.
    pub bytes: u64,
    /// Frames dropped by the switch.
    pub dropped: u64,
    /// Frames the netdev reports as damaged or lost.
    pub errors: u64,
}

/// `show interfaces counters drops`. Only reasons that have counted something are listed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Drops {
    /// By interface and reason.
    pub drops: Vec<DropEntry>,
}

/// Frames dropped at one interface for one reason.
#[derive(Debug, Clone, Serialize)]
pub struct DropEntry {
    /// Where they came in.
    pub interface: String,
    /// `DropReason::name()`; `tx_dropped` for copies not sent out of the interface.
    pub reason: &'static str,
    /// How many.
    pub frames: u64,
}

/// `show users`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Users {
    /// The sessions.
    pub users: Vec<User>,
}

/// One session.
#[derive(Debug, Clone, Serialize)]
pub struct User {
    /// Its line, e.g. `vty 0`.
    pub line: String,
    /// Who.
    pub user: String,
    /// From where; `local` for the control socket.
    pub host: String,
    /// Seconds since its last command.
    pub idle_s: u64,
    /// True for the session that asks.
    pub own: bool,
}

/// `show version`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Version {
    /// Lanyard's version.
    pub version: String,
    /// The configured hostname.
    pub hostname: String,
    /// `--instance`.
    pub instance: String,
    /// The active plane.
    pub plane: String,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// Seconds since the plane was made, which outlives the daemon; `None` when unknown.
    pub plane_uptime_s: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// The switch's base MAC address.
    pub base_mac: Option<MacAddr>,
    /// Switch ports.
    pub ports: u32,
    /// The startup-config's file.
    pub startup_config: Option<String>,
}

/// `show logging`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Logging {
    /// Oldest first.
    pub messages: Vec<LogMessage>,
    /// Messages the buffer holds at most.
    pub capacity: u64,
    /// Messages that fell out of it.
    pub overwritten: u64,
}

/// A message: `TIME: %FACILITY-SEVERITY-MNEMONIC: TEXT`.
#[derive(Debug, Clone, Serialize)]
pub struct LogMessage {
    /// RFC 3339, UTC.
    pub time: String,
    /// 0 (emergency) to 7 (debugging).
    pub severity: u8,
    /// E.g. `LINK`.
    pub facility: String,
    /// E.g. `UPDOWN`.
    pub mnemonic: String,
    /// What happened.
    pub text: String,
}

/// `show platform`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Platform {
    /// The active plane: `ebpf`, `soft` or `asic`.
    pub plane: String,
    /// True when it goes on forwarding without the daemon.
    pub survives_daemon: bool,
    /// Most ports.
    pub max_ports: u64,
    /// Most FDB entries.
    pub max_mac_addresses: u64,
    /// What the plane can't do here and why.
    pub notes: Vec<String>,
}

/// `show platform resources`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resources {
    /// The finite tables.
    pub tables: Vec<Resource>,
    /// The resource manager that decides before a change is accepted; `none` where the plane needs none.
    pub manager: String,
}

/// One finite table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// Entries it can hold.
    pub size: u64,
    /// Entries it holds.
    pub used: u64,
    /// The most it has held.
    pub high_water: u64,
    /// Entries refused.
    pub refused: u64,
    /// Memory it occupies, in bytes.
    pub bytes: u64,
    /// Tables that share its memory.
    pub shared_with: Vec<String>,
}

/// `show platform traps`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Traps {
    /// The trap groups.
    pub traps: Vec<Trap>,
    /// Why frames went up, those within the rates.
    pub reasons: Vec<TrapReason>,
}

/// One reason for which frames go up.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TrapReason {
    /// `TrapReason::name()`.
    pub reason: &'static str,
    /// The group that polices it.
    pub group: &'static str,
    /// Frames.
    pub frames: u64,
}

/// One trap group.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Trap {
    /// `TrapGroup::name()`.
    pub group: &'static str,
    /// Sustained rate in frames per second.
    pub rate_pps: u32,
    /// Bucket depth in frames.
    pub burst: u32,
    /// What one port may have of it, in frames per second.
    pub port_rate_pps: u32,
    /// Bucket depth of a port, in frames.
    pub port_burst: u32,
    /// Frames that reached the control plane.
    pub trapped: u64,
    /// Frames over the rate of their port or of all.
    pub policed: u64,
    /// Frames within the rates that there was no room for on the way.
    pub lost: u64,
}

/// `show platform packet-trace`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PacketTrace {
    /// In the order they ran.
    pub stages: Vec<TraceStage>,
    /// `forwarded`, `trapped` or `dropped`.
    pub verdict: &'static str,
    /// The drop or trap reason.
    pub reason: Option<&'static str>,
    /// What would be sent, in emission order.
    pub egress: Vec<TraceEgress>,
}

/// One stage of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct TraceStage {
    /// `Stage::name()`.
    pub stage: &'static str,
    /// What it found or decided.
    pub detail: String,
}

/// One frame sent.
#[derive(Debug, Clone, Serialize)]
pub struct TraceEgress {
    /// Where to.
    pub interface: String,
    /// The frame, lower-case hexadecimal, tags in line.
    pub hex: String,
}

/// `show ip route` / `show ipv6 route`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Routes {
    /// By prefix.
    pub routes: Vec<Route>,
    /// How many.
    pub total: u64,
}

/// One route of the kernel's main and local tables.
#[derive(Debug, Clone, Serialize)]
pub struct Route {
    /// The destination.
    pub prefix: ipnet::IpNet,
    /// `connected`, `local`, `static` (Lanyard's own), or the kernel's protocol name: `kernel`, `boot`, `bgp`...
    pub protocol: String,
    /// The kernel's metric.
    pub metric: u32,
    /// Where to; empty for blackholes.
    pub nexthops: Vec<NextHop>,
    /// Its offload state.
    pub offload: Offload,
}

/// One next hop.
#[derive(Debug, Clone, Serialize)]
pub struct NextHop {
    /// The router; `None` when on link.
    pub via: Option<IpAddr>,
    /// The egress netdev.
    pub interface: String,
    /// Its share among the next hops, 1..=256.
    pub weight: u32,
}

/// `show arp` / `show ipv6 neighbors`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Neighbors {
    /// By address.
    pub neighbors: Vec<Neighbor>,
}

/// One neighbour of the kernel's table.
#[derive(Debug, Clone, Serialize)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address; `None` while it is being resolved.
    pub mac: Option<MacAddr>,
    /// The netdev.
    pub interface: String,
    /// The kernel's word in lower case: `reachable`, `stale`, `delay`, `probe`, `permanent`, `incomplete`, `failed`.
    pub state: &'static str,
    /// Its offload state.
    pub offload: Offload,
}

/// Which tree a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKey {
    /// A VLAN's; VLAN 1's is the one tree of modes stp and rstp.
    Vlan(VlanId),
    /// An MST instance's.
    Mst(u16),
}

/// `show spanning-tree`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SpanningTree {
    /// The trees: by VLAN in the per-VLAN modes, by MSTID in mode mst, else one.
    pub instances: Vec<StpInstance>,
    /// The mode; `None` when spanning tree is off.
    #[serde(skip)]
    pub mode: Option<lanyard_stp::Mode>,
    /// The ports whatever the trees.
    #[serde(skip)]
    pub ports: Vec<StpPortState>,
    /// The plane's watchdog; `None` when spanning tree is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<StpWatchdog>,
}

/// What blocks the ports when the daemon is gone or hangs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StpWatchdog {
    /// The ports it blocks.
    pub ports: Vec<String>,
    /// When it expires if no BPDU is sent until then; `None` while it is stopped.
    pub expires_in_s: Option<f64>,
    /// How often this daemon has found that it had expired.
    pub expiries: u64,
    /// When this daemon last found that, RFC 3339.
    pub last_expiry: Option<String>,
    /// True while no BPDU is sent because the plane refuses a port's state.
    #[serde(rename = "bpdus_withheld")]
    pub withheld: bool,
}

impl SpanningTree {
    /// What a bridge is at `now`, which is in milliseconds of its clock; `name` says what its ports are called.
    #[must_use]
    pub fn of(
        bridge: &lanyard_stp::Bridge,
        now: u64,
        name: &dyn Fn(lanyard_types::PortId) -> String,
    ) -> Self {
        let mode = bridge.config().mode;
        let natural = |port: &StpPort| lanyard_config::InterfaceName::Netdev(port.interface.clone());
        let instance = |detail: InstanceView| {
            let port = |detail: PortView| StpPort {
                interface: name(detail.port),
                role: detail.role.name(),
                state: lanyard_stp::view::stp_state_name(detail.state),
                cost: detail.cost,
                priority: detail.priority,
                edge: detail.edge,
                detail,
            };
            let mut ports: Vec<StpPort> = detail.ports.iter().cloned().map(port).collect();
            ports.sort_by_key(natural);
            StpInstance {
                instance: detail.vlan.map_or(detail.mstid, VlanId::get),
                protocol: detail.protocol,
                root_id: detail.root_id.to_string(),
                root_cost: detail.root_cost,
                root_port: detail.root_port.map(name),
                bridge_id: detail.bridge_id.to_string(),
                topology_changes: detail.topology_changes,
                ports,
                name: lanyard_stp::tree_name(mode, detail.mstid, detail.vlan),
                detail,
            }
        };
        let mut instances: Vec<StpInstance> = bridge.view(now).into_iter().map(instance).collect();
        instances.sort_by_key(|instance| instance.instance);
        let summary = |summary: PortSummary| StpPortState { interface: name(summary.port), summary };
        let mut ports: Vec<StpPortState> = bridge.port_summaries(now).into_iter().map(summary).collect();
        ports.sort_by_key(|port| lanyard_config::InterfaceName::Netdev(port.interface.clone()));
        Self { instances, mode: Some(mode), ports, watchdog: None }
    }
}

/// One tree.
#[derive(Debug, Clone, Serialize)]
pub struct StpInstance {
    /// The VLAN in the per-VLAN modes, the MSTID in mode mst, else 0.
    pub instance: u16,
    /// `stp`, `rstp` or `mst`.
    pub protocol: &'static str,
    /// The root, `PRIO.MAC`.
    pub root_id: String,
    /// Cost of the path to it.
    pub root_cost: u32,
    /// The root port; `None` when this bridge is the root.
    pub root_port: Option<String>,
    /// This bridge, `PRIO.MAC`.
    pub bridge_id: String,
    /// Topology changes, detected and heard of.
    pub topology_changes: u64,
    /// Its ports, in natural order.
    pub ports: Vec<StpPort>,
    /// What IOS calls the tree: `VLAN0001`, `MST0`.
    #[serde(skip)]
    pub name: String,
    /// Everything else.
    #[serde(skip)]
    pub detail: InstanceView,
}

/// A port in a tree.
#[derive(Debug, Clone, Serialize)]
pub struct StpPort {
    /// The port.
    pub interface: String,
    /// Its role.
    pub role: &'static str,
    /// `discarding`, `learning` or `forwarding`.
    pub state: &'static str,
    /// Path cost in force.
    pub cost: u32,
    /// Port priority, 0..=240.
    pub priority: u8,
    /// True for an edge port, configured or detected.
    pub edge: bool,
    /// Everything else.
    #[serde(skip)]
    pub detail: PortView,
}

/// A port whatever the trees.
#[derive(Debug, Clone)]
pub struct StpPortState {
    /// The port.
    pub interface: String,
    /// Its guards, its counters, and why it is shut down.
    pub summary: PortSummary,
}

/// One line of `monitor events`.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// RFC 3339, UTC.
    pub time: String,
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// `add`, `change` or `delete`.
    pub action: &'static str,
    /// The rest, by kind: `fdb` has `mac`, `vlan`, `interface` (and `from` on a move); `link` has `interface`,
    /// `link_up`, `admin_up`; others as documented in docs/cli.
    #[serde(flatten)]
    pub details: serde_json::Map<String, serde_json::Value>,
}

/// The kinds of event `monitor events` can be limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// FDB entries.
    Fdb,
    /// Ports.
    Link,
    /// Spanning tree.
    Stp,
    /// Routes.
    Route,
    /// Neighbours.
    Neighbor,
    /// Tables filling up.
    Resource,
}

impl EventKind {
    /// Every kind, in the order of the command's help.
    pub const ALL: [Self; 6] =
        [Self::Fdb, Self::Link, Self::Stp, Self::Route, Self::Neighbor, Self::Resource];
    /// The word on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fdb => "fdb",
            Self::Link => "link",
            Self::Stp => "stp",
            Self::Route => "route",
            Self::Neighbor => "neighbor",
            Self::Resource => "resource",
        }
    }
}
