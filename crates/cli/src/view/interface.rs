//! The data about interfaces: state, counters, drops, and ports that the switch has shut down.

use super::Forwarder;
use lanyard_types::{ErrCause, MacAddr};
use serde::Serialize;

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
