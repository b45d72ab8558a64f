//! The data of `show` commands as values: the backend fills them in, `| json` serializes them, the renderer
//! formats them as text.
//!
//! Invariant: the JSON keys of contract commands are exactly the contract's. A field that only text output
//! needs is `#[serde(skip)]`. Times are in seconds with the unit in the key; counters are integers.

mod access;
mod access_list;
mod aggregation;
mod change;
mod discovery;
mod dot1x;
mod erspan;
mod fpm;
mod guard;
mod interface;
mod layer3;
mod machine;
mod nd_inspection;
mod ntp;
mod platform;
mod port_security;
mod qos;
mod sflow;
mod snooping;
mod spanning_tree;
mod tacacs;

pub use access::*;
pub use access_list::*;
pub use aggregation::*;
pub use change::*;
pub use discovery::*;
pub use dot1x::*;
pub use erspan::*;
pub use fpm::*;
pub use guard::*;
pub use interface::*;
pub use layer3::*;
pub use machine::*;
pub use nd_inspection::*;
pub use ntp::*;
pub use platform::*;
pub use port_security::*;
pub use qos::*;
pub use sflow::*;
pub use snooping::*;
pub use spanning_tree::*;
pub use tacacs::*;

use lanyard_types::MacAddr;
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;

/// The offload state of an object: whether the forwarding plane carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// The plane forwards by it.
    Offloaded,
    /// The plane has it, and it sends frames to the kernel.
    Trapped,
    /// The plane refused it.
    Failed,
    /// The plane has no table for it; the kernel forwards.
    #[default]
    None,
}

/// The keys of `show mac address-table` after its list `entries`, which is printed in parts ([`crate::listing`]).
#[derive(Debug, Clone, Default, Serialize)]
pub struct MacTotal {
    /// The number of entries listed.
    pub total: u64,
    /// The maximum number of dynamic entries.
    pub capacity: u64,
}

/// One FDB entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// Seconds since a frame from the address was last seen; 0 for entries that do not age.
    pub age_s: u32,
    /// Its offload state.
    pub offload: Offload,
}

/// `show mac address-table count`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MacCount {
    /// The number of dynamic entries.
    pub dynamic: u64,
    /// The number of configured entries.
    #[serde(rename = "static")]
    pub fixed: u64,
    /// The number of sticky entries.
    pub sticky: u64,
    /// The number of the switch's own addresses.
    #[serde(rename = "self")]
    pub own: u64,
    /// The number of all entries.
    pub total: u64,
    /// The maximum number of dynamic entries.
    pub capacity: u64,
    /// Dynamic entries refused since the plane was created, because a limit was reached.
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
    /// True when the port's frames of this VLAN carry a tag.
    pub tagged: bool,
    /// True for a trunk, which `show vlan` as text does not list.
    #[serde(skip)]
    pub trunk: bool,
}

/// `show users`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Users {
    /// The sessions.
    pub users: Vec<User>,
    /// Sessions that were dropped because their client did not read, since the start of the daemon.
    pub stalled: u64,
    /// Connections that were closed at once because there were too many.
    pub turned_away: u64,
}

/// One session.
#[derive(Debug, Clone, Serialize)]
pub struct User {
    /// Its terminal line, such as `vty 0`.
    pub line: String,
    /// The user's name.
    pub user: String,
    /// The client's host; `local` for the control socket.
    pub host: String,
    /// Seconds since its last command.
    pub idle_s: u64,
    /// True for the session that runs the command.
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
    /// Seconds since the plane was created; the plane outlives the daemon. `None` when unknown.
    pub plane_uptime_s: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// The switch's base MAC address.
    pub base_mac: Option<MacAddr>,
    /// The number of switch ports.
    pub ports: u32,
    /// The startup-config's file.
    pub startup_config: Option<String>,
}

/// `show logging`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Logging {
    /// The messages, the oldest first.
    pub messages: Vec<LogMessage>,
    /// The maximum number of messages in the buffer.
    pub capacity: u64,
    /// The number of messages that the buffer no longer has.
    pub overwritten: u64,
    /// The buffer gets messages of the severities 0 to this one; `None` when it gets no messages.
    pub level: Option<u8>,
    /// The receivers of `logging host`.
    pub receivers: Vec<LogReceiver>,
    /// `logging rate-limit`, and the number of messages that it has suppressed; `None` if it is not configured and has suppressed
    /// none.
    pub rate_limit: Option<LogLimit>,
    /// `logging rate-limit console`, which limits only what is written to stderr; `None` as for `rate_limit`.
    pub console_rate_limit: Option<LogLimit>,
    /// `logging persistent`, without the messages of the files; `None` if it is off.
    pub persistent: Option<PersistentLog>,
}

/// A message: `TIME: %FACILITY-SEVERITY-MNEMONIC: TEXT`.
#[derive(Debug, Clone, Serialize)]
pub struct LogMessage {
    /// The time in UTC, RFC 3339.
    pub time: String,
    /// The severity, 0 (emergency) to 7 (debugging).
    pub severity: u8,
    /// The facility, such as `LINK`.
    pub facility: String,
    /// The mnemonic, such as `UPDOWN`.
    pub mnemonic: String,
    /// The text.
    pub text: String,
}

/// `show platform packet-trace`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PacketTrace {
    /// The stages, in the order in which they ran.
    pub stages: Vec<TraceStage>,
    /// `forwarded`, `trapped` or `dropped`.
    pub verdict: &'static str,
    /// The drop or trap reason.
    pub reason: Option<&'static str>,
    /// The frames that would be sent, in the order of emission.
    pub egress: Vec<TraceEgress>,
}

/// One stage of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct TraceStage {
    /// `Stage::name()`.
    pub stage: &'static str,
    /// What the stage has looked up and decided, as text.
    pub detail: String,
}

/// One frame sent.
#[derive(Debug, Clone, Serialize)]
pub struct TraceEgress {
    /// The egress interface.
    pub interface: String,
    /// The frame, lower-case hexadecimal, tags in line.
    pub hex: String,
}

/// `show ip route` / `show ipv6 route`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Routes {
    /// The routes, by prefix.
    pub routes: Vec<Route>,
    /// The number of routes.
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
    /// The next hops; empty for blackholes.
    pub nexthops: Vec<NextHop>,
    /// Its offload state.
    pub offload: Offload,
}

/// One next hop.
#[derive(Debug, Clone, Serialize)]
pub struct NextHop {
    /// The gateway; `None` when the destination is on link.
    pub via: Option<IpAddr>,
    /// The egress netdev.
    pub interface: String,
    /// Its share of the traffic among the next hops, 1..=256.
    pub weight: u32,
}

/// `show arp` / `show ipv6 neighbors`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Neighbors {
    /// The neighbours, by address.
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
    /// The state as the kernel names it, in lower case: `reachable`, `stale`, `delay`, `probe`, `permanent`,
    /// `incomplete`, `failed`.
    pub state: &'static str,
    /// Its offload state.
    pub offload: Offload,
}

/// One line of `monitor events`.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// The time in UTC, RFC 3339.
    pub time: String,
    /// The kind of event.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// `add`, `change` or `delete`.
    pub action: &'static str,
    /// The other fields, by kind: `fdb` has `mac`, `vlan`, `interface` (and `from` on a move); `link` has
    /// `interface`, `link_up`, `admin_up`; docs/cli documents the others.
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
    /// Tables that become nearly full.
    Resource,
    /// Neighbours that LLDP and CDP have found.
    Discovery,
    /// Multicast groups.
    Multicast,
}

impl EventKind {
    /// All kinds, in the order of the command's help.
    pub const ALL: [Self; 8] = [
        Self::Fdb,
        Self::Link,
        Self::Stp,
        Self::Route,
        Self::Neighbor,
        Self::Resource,
        Self::Discovery,
        Self::Multicast,
    ];
    /// The keyword on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fdb => "fdb",
            Self::Link => "link",
            Self::Stp => "stp",
            Self::Route => "route",
            Self::Neighbor => "neighbor",
            Self::Resource => "resource",
            Self::Discovery => "discovery",
            Self::Multicast => "multicast",
        }
    }
}
