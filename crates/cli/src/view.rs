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
mod layer3;
mod machine;
mod nd_inspection;
mod ntp;
mod platform;
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
pub use layer3::*;
pub use machine::*;
pub use nd_inspection::*;
pub use ntp::*;
pub use platform::*;
pub use qos::*;
pub use sflow::*;
pub use snooping::*;
pub use spanning_tree::*;
pub use tacacs::*;

use lanyard_types::{ErrCause, MacAddr};
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

/// `show interfaces`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Interfaces {
    /// The interfaces, in natural order of their names.
    pub interfaces: Vec<InterfaceView>,
}

/// The kind of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceKind {
    /// A port of the switch.
    Switchport,
    /// A port on which the kernel routes.
    Routed,
    /// A VLAN interface.
    Svi,
    /// A port-channel.
    Lag,
}

/// One interface.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceView {
    /// The netdev's name.
    pub name: String,
    /// Its kind.
    pub kind: InterfaceKind,
    /// True when it is not `shutdown`.
    pub admin_up: bool,
    /// True when it has carrier.
    pub link_up: bool,
    /// Its MAC address; `None` when the netdev does not exist.
    pub mac: Option<MacAddr>,
    /// Layer-3 MTU in bytes; 0 when the netdev does not exist.
    pub mtu: u32,
    /// Speed in Mbit/s; `None` when unknown.
    pub speed_mbps: Option<u32>,
    /// `full`, `half` or `unknown`.
    pub duplex: &'static str,
    /// Received frames.
    pub rx: Counters,
    /// Sent frames.
    pub tx: Counters,
    /// The hook, `tc`, `xdp`, `soft` or `asic`; `None` for an interface at which the plane has none.
    pub hook: Option<&'static str>,
    /// Remarks on how the port is forwarded, one sentence each.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// The number of frames received at this port that the plane forwarded to at least one port. Together with
    /// those trapped and those dropped they are all received frames.
    #[serde(skip)]
    pub forwarded: u64,
    /// The number of received frames that were only trapped.
    #[serde(skip)]
    pub trapped: u64,
    /// True when the netdev exists.
    #[serde(skip)]
    pub present: bool,
    /// The netdev's driver (`veth`, `e1000e`), if known.
    #[serde(skip)]
    pub driver: Option<String>,
    /// The addresses that the netdev has in the kernel, IPv4 first, with link-local ones.
    #[serde(skip)]
    pub addresses: Vec<ipnet::IpNet>,
    /// The forwarder of IPv4 packets received at the interface, and that of IPv6 packets; `None` if it is not a router interface.
    #[serde(skip)]
    pub routed_by: Option<[Forwarder; 2]>,
    /// Why the switch does not use the port although it is configured, such as `enslaved to br0`.
    #[serde(skip)]
    pub error: Option<String>,
}

/// The frames of one direction.
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

/// A port that the switch has shut down by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrDisabledPort {
    /// The port's name.
    pub interface: String,
    /// The cause for which the port was shut down.
    pub cause: ErrCause,
    /// Seconds until the port is enabled again; `None` when it is not enabled automatically.
    pub time_left_s: Option<u64>,
}

/// `show port-security`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PortSecurityView {
    /// The ports with port security.
    pub ports: Vec<SecurePort>,
    /// Their secure addresses, by VLAN and address.
    pub addresses: Vec<SecureAddressView>,
}

/// A port with port security.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecurePort {
    /// The port's name.
    pub interface: String,
    /// `secure-up`, `secure-down` or `secure-shutdown`.
    pub status: &'static str,
    /// `protect`, `restrict` or `shutdown`.
    pub violation: &'static str,
    /// The maximum number of secure addresses.
    pub maximum: u32,
    /// The number of secure addresses.
    pub total: usize,
    /// The number of secure addresses that were entered as lines.
    pub configured: usize,
    /// The number of sticky secure addresses.
    pub sticky: usize,
    /// True if learned addresses become sticky.
    pub sticky_learning: bool,
    /// The age at which learned addresses are removed, in minutes; 0: never.
    pub aging_min: u32,
    /// The number of violations; always 0 with `violation protect`.
    pub violations: u64,
    /// Frames that port security has dropped.
    pub dropped: u64,
    /// The source address of the last violation that was reported.
    pub last_source: Option<MacAddr>,
    /// The VLAN of this violation.
    pub last_vlan: Option<u16>,
}

/// A secure address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecureAddressView {
    /// The port.
    pub interface: String,
    /// The VLAN.
    pub vlan: u16,
    /// The address.
    pub mac: MacAddr,
    /// `configured`, `sticky` or `dynamic`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Seconds until it is removed; `None` if it does not age.
    pub remaining_s: Option<u64>,
}

/// `show interfaces counters drops`. Only reasons with frames are listed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Drops {
    /// The frames, by interface and reason.
    pub drops: Vec<DropEntry>,
}

/// Frames dropped at one interface for one reason.
#[derive(Debug, Clone, Serialize)]
pub struct DropEntry {
    /// The ingress interface.
    pub interface: String,
    /// `DropReason::name()`; `tx_dropped` for copies that the interface did not send.
    pub reason: &'static str,
    /// The number of frames.
    pub frames: u64,
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

/// `show platform`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Platform {
    /// The active plane: `ebpf`, `soft` or `asic`.
    pub plane: String,
    /// True when the plane continues to forward without the daemon.
    pub survives_daemon: bool,
    /// The maximum number of ports.
    pub max_ports: u64,
    /// The maximum number of FDB entries.
    pub max_mac_addresses: u64,
    /// The chip, for the plane `asic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chip: Option<ChipState>,
    /// The limits of the plane on this machine, with their reasons.
    pub notes: Vec<String>,
}

/// The state of a switch chip.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ChipState {
    /// The platform's name.
    pub platform: String,
    /// The forwarder: `chip`, or `software` while no chip answers.
    pub forwards: &'static str,
    /// The path of frames between the CPU port and interfaces: `tun` or `kernel`.
    pub control_path: &'static str,
    /// The resource manager's strategy.
    pub manager: String,
    /// The probability that the strategy's next decision is right, 0 to 1.
    pub confidence: f64,
    /// The number of hidden routes, whose packets the software forwards.
    pub hidden_routes: u64,
    /// The diverted access lists: the chip has no room for them, and the software applies them.
    pub diverted_lists: Vec<String>,
}

/// `show platform resources`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resources {
    /// The finite tables.
    pub tables: Vec<Resource>,
    /// The strategy of the resource manager, which determines whether a change fits before it is accepted; `none` where the plane
    /// needs no resource manager.
    pub manager: String,
}

/// One finite table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// The number of entries it can hold.
    pub size: u64,
    /// The number of entries it holds.
    pub used: u64,
    /// The largest number of entries it has held.
    pub high_water: u64,
    /// The number of refused entries.
    pub refused: u64,
    /// Its memory in bytes.
    pub bytes: u64,
    /// The other tables in the same memory.
    pub shared_with: Vec<String>,
    /// The memory that an entry of each kind takes, in units of the chip; `entry` for a table that counts entries.
    pub unit: String,
    /// The policy for routes or access lists for which the table has no room; `None` for tables that are not in a chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<&'static str>,
    /// True while the table is nearly full: by default from 90 % on, until its use falls below 80 %.
    pub alarm: bool,
}

/// `show platform traps`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Traps {
    /// The trap groups.
    pub traps: Vec<Trap>,
    /// The numbers of frames trapped within the rates, by reason.
    pub reasons: Vec<TrapReason>,
}

/// A trap reason.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TrapReason {
    /// `TrapReason::name()`.
    pub reason: &'static str,
    /// The trap group that polices it.
    pub group: &'static str,
    /// The number of frames.
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
    /// The rate of the group that one port may use, in frames per second.
    pub port_rate_pps: u32,
    /// Bucket depth of a port, in frames.
    pub port_burst: u32,
    /// Frames that reached the control plane.
    pub trapped: u64,
    /// Frames above the rate of their port or of the group.
    pub policed: u64,
    /// Frames within the rates that were lost on the way because a queue was full.
    pub lost: u64,
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
