//! Links, addresses, routes and neighbours as plain values.
//!
//! Read rtnetlink(7) first. Invariant: nothing here depends on a netlink crate, so callers and
//! their tests can construct these values.

use ipnet::IpNet;
use lanyard_types::MacAddr;
use std::net::IpAddr;

/// One network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The index, unique in its namespace and not reused soon.
    pub ifindex: u32,
    /// The name, 1 to 15 bytes.
    pub name: String,
    /// The alias (`ip link set alias`), up to 255 bytes.
    pub alias: Option<String>,
    /// True for an Ethernet device. Loopback and layer-3 tunnels are not.
    pub ethernet: bool,
    /// True for the loopback device.
    pub loopback: bool,
    /// The MAC address; all zeros when the device has none of six bytes.
    pub mac: MacAddr,
    /// Layer-3 MTU in bytes.
    pub mtu: u32,
    /// The smallest MTU that the device accepts, in bytes.
    pub min_mtu: u32,
    /// The largest MTU that the device accepts, in bytes; 0 means no limit.
    pub max_mtu: u32,
    /// IFF_UP: administratively up.
    pub admin_up: bool,
    /// True when the device is up, has carrier, and its operational state lets frames pass.
    pub link_up: bool,
    /// The carrier as the driver reports it (false while the device is down).
    pub carrier: bool,
    /// The number of changes of the carrier.
    pub carrier_changes: u32,
    /// True when an administrator has set IFF_PROMISC.
    pub promiscuous: bool,
    /// The number of users that have requested promiscuous mode, packet sockets and the kernel included.
    pub promiscuity: u32,
    /// The bridge, team or bond that this device belongs to.
    pub master: Option<u32>,
    /// The kind of that master: `bridge`, `bond`...
    pub master_kind: Option<String>,
    /// The kind of virtual device: `veth`, `tun`, `bridge`...; `None` for hardware.
    pub kind: Option<String>,
    /// IFLA_LINK: the other end of a veth, or the lower device of a stacked device. The index belongs to the
    /// namespace that `peer_netnsid` names.
    pub peer_ifindex: Option<u32>,
    /// This namespace's id for the namespace that `peer_ifindex` belongs to; `None` means this namespace.
    pub peer_netnsid: Option<i32>,
    /// True when the kernel forwards IPv4 or IPv6 packets received here.
    pub forwards: bool,
    /// The root queueing discipline: `noqueue`, `fq_codel`...
    pub qdisc: String,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Largest GSO frame in bytes.
    pub gso_max_size: u32,
    /// Largest GRO frame in bytes.
    pub gro_max_size: u32,
    /// Counters since the device was made.
    pub stats: LinkStats,
    /// The XDP program on the device, of any process.
    pub xdp: Option<XdpAttached>,
}

/// A device's own counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Received.
    pub rx: DirectionStats,
    /// Sent.
    pub tx: DirectionStats,
    /// Multicast frames received, if the driver counts them.
    pub rx_multicast: u64,
}

/// Counters of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
    /// Malformed frames.
    pub errors: u64,
    /// Frames dropped for lack of buffers.
    pub dropped: u64,
}

/// An XDP program on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpAttached {
    /// Where it runs.
    pub mode: XdpMode,
    /// The program's id; 0 when the kernel did not report it.
    pub prog_id: u32,
}

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver (native).
    Driver,
    /// After the frame has become an skb (generic).
    Generic,
    /// In the device.
    Hardware,
    /// In more than one of these.
    Multiple,
}

/// An address on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The device.
    pub ifindex: u32,
    /// The address with its prefix length; the host bits are kept.
    pub net: IpNet,
    /// True when an administrator set it, false for autoconfiguration.
    pub permanent: bool,
    /// IPv4: true when it is not the first address in its prefix.
    pub secondary: bool,
    /// IPv6: duplicate address detection is still running.
    pub tentative: bool,
    /// IPv6: duplicate address detection found another station with this address.
    pub dad_failed: bool,
    /// IPv6: not to be used for new connections.
    pub deprecated: bool,
    /// RT_SCOPE_*: 0 global, 253 link, 254 host.
    pub scope: u8,
}

/// Options for adding an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressFlags {
    /// IPv6: the kernel does no duplicate address detection.
    pub no_dad: bool,
    /// The kernel adds no route for the prefix.
    pub no_prefix_route: bool,
}

/// The protocol number of the routes that Lanyard adds (`proto 76`, "L"). Neither the kernel's rtnetlink.h nor
/// iproute2's rt_protos name it, so Lanyard can tell its routes from an administrator's `proto static` and
/// from a routing daemon's, and replaces or removes only its own.
pub const ROUTE_PROTOCOL: u8 = 0x4c;

/// The main routing table, RT_TABLE_MAIN.
pub const TABLE_MAIN: u32 = 254;

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The table: [`TABLE_MAIN`], or a VRF's.
    pub table: u32,
    /// The destination prefix; its host bits are zero.
    pub dest: IpNet,
    /// The kernel's action for a packet that matches.
    pub kind: RouteKind,
    /// RTPROT_*: 2 kernel, 3 boot, 4 static, [`ROUTE_PROTOCOL`] Lanyard, 186 BGP, 188 OSPF...
    pub protocol: u8,
    /// RT_SCOPE_*: 0 global, 253 link, 254 host. Ignored when a route is added: the scope follows from the
    /// next hops.
    pub scope: u8,
    /// The metric; 0 means that none is given (for IPv6 the kernel then uses 1024).
    pub metric: u32,
    /// The next hops; empty for kinds without one and for routes that name a next-hop object.
    pub next_hops: Vec<NextHop>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Next-hop object id (`ip nexthop`).
    pub nexthop_id: Option<u32>,
}

impl Route {
    /// A unicast route of Lanyard in the main table, without a next hop.
    #[must_use]
    pub const fn new(dest: IpNet) -> Self {
        Self {
            table: TABLE_MAIN,
            dest,
            kind: RouteKind::Unicast,
            protocol: ROUTE_PROTOCOL,
            scope: 0,
            metric: 0,
            next_hops: Vec::new(),
            source: None,
            nexthop_id: None,
        }
    }
    /// Returns the route with one more next hop of weight 1.
    #[must_use]
    pub fn via(mut self, via: Option<IpAddr>, ifindex: Option<u32>) -> Self {
        self.next_hops.push(NextHop { via, ifindex, ..NextHop::default() });
        self
    }
}

/// RTN_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    /// The packet is sent to a next hop.
    Unicast,
    /// The packet is for this host.
    Local,
    /// The destination is a broadcast address.
    Broadcast,
    /// A multicast route.
    Multicast,
    /// The packet is dropped silently (IOS: `Null0`).
    Blackhole,
    /// The packet is dropped and answered with ICMP host unreachable.
    Unreachable,
    /// The packet is dropped and answered with ICMP administratively prohibited.
    Prohibit,
    /// Any other, by number.
    Other(u8),
}

/// One next hop of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// The gateway; `None` for a connected network. May be IPv6 in an IPv4 route.
    pub via: Option<IpAddr>,
    /// The device; `None` lets the kernel choose it.
    pub ifindex: Option<u32>,
    /// Share of the traffic, 1..=256.
    pub weight: u16,
    /// The gateway is treated as on the link even when no address covers it.
    pub onlink: bool,
    /// The kernel has taken the next hop out of use (device down).
    pub dead: bool,
    /// The device has no carrier.
    pub link_down: bool,
}

impl Default for NextHop {
    fn default() -> Self {
        Self { via: None, ifindex: None, weight: 1, onlink: false, dead: false, link_down: false }
    }
}

/// An ARP or ND entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The device.
    pub ifindex: u32,
    /// The neighbour's address.
    pub addr: IpAddr,
    /// Its MAC address, if resolved.
    pub mac: Option<MacAddr>,
    /// Its state.
    pub state: NeighbourState,
    /// IPv6: the neighbour is a router.
    pub router: bool,
    /// A proxy entry rather than a neighbour.
    pub proxy: bool,
}

/// NUD_*, RFC 4861 section 7.3.2 and the kernel's own additions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourState {
    /// No state yet.
    None,
    /// The kernel is resolving the address.
    Incomplete,
    /// The neighbour has recently answered.
    Reachable,
    /// The neighbour has not been confirmed recently; the kernel confirms it at the next use.
    Stale,
    /// The stale entry has been used; the kernel probes it next.
    Delay,
    /// The kernel is probing the neighbour.
    Probe,
    /// The neighbour did not answer.
    Failed,
    /// The neighbour needs no resolution.
    NoArp,
    /// An administrator configured the entry.
    Permanent,
    /// Any other, by number.
    Other(u16),
}

impl NeighbourState {
    /// The name iproute2 prints, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Delay => "delay",
            Self::Probe => "probe",
            Self::Failed => "failed",
            Self::NoArp => "noarp",
            Self::Permanent => "permanent",
            Self::Other(_) => "other",
        }
    }
    /// True when frames can be sent to the MAC address: NUD_VALID.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        matches!(
            self,
            Self::Reachable | Self::Stale | Self::Delay | Self::Probe | Self::NoArp | Self::Permanent
        )
    }
}
