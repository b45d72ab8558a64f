//! Stages, their configuration at a port, drop reasons, trap reasons and trap groups. Each name is defined here and
//! nowhere else.

use crate::{PortGuard, PortMirror, SamplingRate};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// One more than the highest number: the size of a table indexed by this type.
            pub const SLOTS: usize = { let mut max = 0; $(if $value > max { max = $value; })* max + 1 };

            /// The name used in text, JSON, counters and traces.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
            /// The value with this number.
            #[must_use]
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }
            /// The number, as a table index.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

named! {
    /// The pipeline's stages. The order of this list is the order in which they run; each stage is
    /// `crates/pipeline/src/stages/NAME.rs` and `bpf/stages/NAME.h`.
    Stage {
        /// Checks length and source address, and finds tags and headers.
        Parse = 1, "parse";
        /// Copies received frames for monitor sessions; drops those that a destination port of a session receives.
        Mirror = 2, "mirror";
        /// Draws received frames at random for the control plane (sFlow).
        Sample = 3, "sample";
        /// Sends control frames to the control plane.
        Trap = 4, "trap";
        /// Checks the port's own state; maps a member of a port-channel to the port-channel.
        Port = 5, "port";
        /// Classifies the frame into a VLAN; checks membership and spanning-tree state.
        VlanIngress = 6, "vlan_ingress";
        /// Judges the frame by the inbound access lists of its port, its VLAN and its VLAN interface.
        AclIngress = 7, "acl_ingress";
        /// Limits the rate of frames that would be flooded.
        Storm = 8, "storm";
        /// First-hop security: inspects DHCP, ARP and IPv6 neighbour discovery, and verifies the source of IP packets.
        Guard = 9, "guard";
        /// Enters the source address into the FDB.
        Learn = 10, "learn";
        /// Applies the input policy of the port: classifies the frame, polices its class, and marks it.
        QosIngress = 11, "qos_ingress";
        /// Routes frames for the router: header checks, longest match, next hop, rewrite.
        Route = 12, "route";
        /// Multicast snooping: sends membership messages to the control plane, and limits a group's frames to the ports of
        /// its members.
        Snoop = 13, "snoop";
        /// Looks the destination up: one port, or a flood set.
        Bridge = 14, "bridge";
        /// Checks what each egress port allows.
        VlanEgress = 15, "vlan_egress";
        /// Judges the frame by the outbound access lists of its egress VLAN and of each egress port.
        AclEgress = 16, "acl_egress";
        /// Applies the output policy of each egress port: classifies the frame, polices its class, marks it, and chooses its queue.
        QosEgress = 17, "qos_egress";
        /// Rewrites tags and sends the copies, in an order that needs the fewest tag operations.
        Replicate = 18, "replicate";
        /// Updates counters.
        Count = 19, "count";
    }
}

named! {
    /// Why a frame was dropped. Every dropped frame has exactly one reason. The comment of each begins with the stage that drops.
    DropReason {
        /// parse: shorter than an Ethernet header, or cut off inside its tag.
        Truncated = 1, "truncated";
        /// parse: the source is a group address.
        SourceGroup = 2, "source_group";
        /// parse: the source is all zeros.
        SourceZero = 3, "source_zero";
        /// trap: PAUSE or another MAC control frame (01:80:C2:00:00:01), which no bridge relays.
        Pause = 4, "pause";
        /// trap: a reserved address 01:80:C2:00:00:0X that is neither relayed nor consumed.
        ReservedAddress = 5, "reserved_address";
        /// trap: meant for the control plane only, and over the trap group's rate.
        TrapPoliced = 6, "trap_policed";
        /// port: the ingress port is shut down, has no link, or is no port of this switch.
        PortDown = 7, "port_down";
        /// vlan_ingress: VLAN identifier 4095.
        VlanInvalid = 8, "vlan_invalid";
        /// vlan_ingress: an access port received a tag of another VLAN.
        TaggedOnAccess = 9, "tagged_on_access";
        /// vlan_ingress: the VLAN is not in the port's allowed list.
        VlanNotAllowed = 10, "vlan_not_allowed";
        /// vlan_ingress: the VLAN does not exist, or is suspended or shut down.
        VlanInactive = 11, "vlan_inactive";
        /// vlan_ingress: an untagged or priority-tagged frame on a port with no untagged VLAN.
        UntaggedNotAllowed = 12, "untagged_not_allowed";
        /// vlan_ingress: the spanning-tree state of the port is discarding.
        StpDiscarding = 13, "stp_discarding";
        /// learn: the spanning-tree state of the port is learning; the source was learned, and the frame is not
        /// forwarded.
        StpLearning = 14, "stp_learning";
        /// learn: the source has a static drop entry.
        SourceBlackhole = 15, "source_blackhole";
        /// bridge: the destination has a static drop entry.
        DestinationBlackhole = 16, "destination_blackhole";
        /// bridge: the destination was learned at the ingress port.
        SamePort = 17, "same_port";
        /// bridge: a flood for which no port is left, or a routed frame for a VLAN that is not active.
        NoEgress = 18, "no_egress";
        /// vlan_egress: the egress port is not a member of the VLAN.
        EgressNotMember = 19, "egress_not_member";
        /// vlan_egress: the egress port is not forwarding in the VLAN's spanning tree.
        EgressStp = 20, "egress_stp";
        /// vlan_egress: both ports are protected.
        Isolated = 21, "isolated";
        /// vlan_egress: the frame is longer than the egress port's MTU.
        MtuExceeded = 22, "mtu_exceeded";
        /// vlan_egress: the egress port is shut down, has no link, or is gone.
        EgressDown = 23, "egress_down";
        /// replicate: the kernel refused the frame (out of memory, device gone).
        TransmitFailed = 24, "transmit_failed";
        /// route: the IP header has a wrong version, length or checksum; RFC 1812 (5.2.2) and RFC 8200 forbid to forward such a
        /// packet.
        IpHeaderInvalid = 25, "ip_header_invalid";
        /// route: reverse-path check (RFC 3704): the source is not reachable through the interface (strict mode), or not
        /// reachable at all (loose mode).
        UrpfFailed = 26, "urpf_failed";
        /// route: the longest match is a blackhole route.
        RouteBlackhole = 27, "route_blackhole";
        /// route: the source or destination is an address that no packet on a wire may have, or that no router may
        /// forward (RFC 1812, 5.3.7; RFC 3927, 2.7; RFC 4291, 2.5).
        Martian = 28, "martian";
        /// count: the port's receive ring had no room for the frame, so no other stage has seen it. The soft
        /// plane only.
        Overrun = 29, "overrun";
        /// route: the source is one of the switch's own addresses (RFC 1812, 5.3.7).
        MartianSource = 30, "martian_source";
        /// storm: broadcast, multicast or unknown unicast above the rate that the ingress port allows for it.
        Storm = 31, "storm";
        /// trap: a BPDU (IEEE or PVST+), LLDP or Cisco discovery frame of a customer on a dot1q-tunnel port, whose protocol
        /// the port does not carry.
        TunnelProtocol = 32, "tunnel_protocol";
        /// trap: a frame for 01:00:0C:CD:CD:D0 on a dot1q-tunnel port; only provider bridges send those, to each other.
        TunnelAddress = 33, "tunnel_address";
        /// acl_ingress: denied by the inbound access list of the port.
        AclPortIn = 34, "acl_port_in";
        /// acl_ingress: dropped by the map of the VLAN in which the frame was received.
        AclVlanIn = 35, "acl_vlan_in";
        /// acl_ingress: for the router, and denied by the inbound access list of the VLAN interface.
        AclRouterIn = 36, "acl_router_in";
        /// acl_ingress: from the switch's own stack, and denied by the outbound access list of its VLAN interface.
        AclHostOut = 37, "acl_host_out";
        /// acl_egress: denied by the outbound access list of the port, or of every port of a flood.
        AclPortOut = 38, "acl_port_out";
        /// acl_egress: routed, and dropped by the map of the VLAN into which it was routed.
        AclVlanOut = 39, "acl_vlan_out";
        /// acl_egress: routed, and denied by the outbound access list of the VLAN interface.
        AclRouterOut = 40, "acl_router_out";
        /// acl_egress: for the switch's own stack, and denied by the inbound access list of its VLAN interface.
        AclHostIn = 41, "acl_host_in";
        /// port: the ingress port is a member of a port-channel that does not collect: LACP or `min-links` keeps it out.
        NotCollecting = 42, "not_collecting";
        /// learn: the port has port security, and the source is not one of its secure addresses.
        PortSecurity = 43, "port_security";
        /// mirror: received at a port that is the destination of a monitor session.
        MirrorDestination = 44, "mirror_destination";
        /// vlan_egress: the destination is at a host or promiscuous port to which no frame of this private VLAN may go: from
        /// an isolated port to another, or between communities.
        PrivateVlan = 45, "private_vlan";
        /// guard: an ARP packet that is malformed, or whose sender's addresses match no binding at the port (ARP inspection).
        ArpInspection = 46, "arp_inspection";
        /// guard: ARP above the rate that the port allows (`ip arp inspection limit`).
        ArpRate = 47, "arp_rate";
        /// guard: a message of a DHCP server at a port that is not trusted (DHCP snooping).
        DhcpServer = 48, "dhcp_server";
        /// guard: DHCP above the rate that the port allows (`ip dhcp snooping limit rate`).
        DhcpRate = 49, "dhcp_rate";
        /// guard: an IP packet whose source has no binding at the port (IP source guard, IPv6 source guard).
        SourceGuard = 50, "source_guard";
        /// guard: a router advertisement or a redirect at a port of hosts (RA guard).
        RaGuard = 51, "ra_guard";
        /// guard: a message of a DHCPv6 server at a port of clients (DHCPv6 guard).
        Dhcpv6Guard = 52, "dhcpv6_guard";
        /// guard: the port is not open for the host, which has to be authenticated first (802.1X, MAB).
        Unauthorized = 53, "unauthorized";
        /// guard: a message of neighbour discovery that is hidden from ND inspection: in a fragment, behind extension headers, or
        /// cut off.
        NdInspection = 54, "nd_inspection";
        /// qos_ingress: over the rate of its class in the input policy of the port.
        PolicedIn = 58, "policed_in";
        /// qos_egress: over the rate of its class in the output policy of the port, or of every port of a flood.
        PolicedOut = 59, "policed_out";
        /// acl_ingress: the frame had to be judged by an access list for which the chip has no room, and the software that judges
        /// in the chip's place was not connected, or had no room for the frame.
        AclUnjudged = 60, "acl_unjudged";
    }
}

named! {
    /// The kinds of traffic that storm control limits separately.
    StormKind {
        /// Frames for ff:ff:ff:ff:ff:ff.
        Broadcast = 1, "broadcast";
        /// Frames for any other group address.
        Multicast = 2, "multicast";
        /// Frames for a station that the FDB does not contain.
        Unicast = 3, "unicast";
    }
}

/// The traffic of one [`StormKind`] that a port lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StormLevel {
    /// Frames per second, at most [`StormLevel::MAX_PPS`].
    Pps(u32),
    /// Bits per second, at most [`StormLevel::MAX_BPS`]; the bits of a frame from the destination address to the end of the
    /// payload count.
    Bps(u64),
    /// Hundredths of a percent of the port's speed, 0..=10,000.
    Percent(u16),
}

impl StormLevel {
    /// The highest rate in frames per second that a token bucket can distinguish from no limit.
    pub const MAX_PPS: u32 = 999_999_999;
    /// The highest rate in bits per second, the speed of the fastest port.
    pub const MAX_BPS: u64 = 400_000_000_000;
    /// The speed in Mbit/s to which percentages refer at a port whose netdev reports no speed.
    pub const DEFAULT_MBPS: u32 = 1000;

    /// The level as a rate at a port of this speed in Mbit/s. `None` for 100 %, which is no limit (as in IOS).
    #[must_use]
    pub fn at_speed(self, speed_mbps: Option<u32>) -> Option<Self> {
        match self {
            Self::Percent(10_000..) => None,
            Self::Percent(share) => {
                let speed = u64::from(speed_mbps.unwrap_or(Self::DEFAULT_MBPS));
                Some(Self::Bps((speed * 100 * u64::from(share)).min(Self::MAX_BPS)))
            }
            rate => Some(rate),
        }
    }
}

/// The settings of stages at a port, in the form that both the configuration and the planes use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PortSettings {
    /// `storm`: what the port lets in of each [`StormKind`], by its number; `None` lets all of it in.
    pub storm: [Option<StormLevel>; StormKind::SLOTS],
    /// `learn`: port security. Frames whose source is not, and cannot become, an address of this port are dropped.
    pub secure: bool,
    /// `guard`: first-hop security.
    pub guard: PortGuard,
    /// `mirror`: the copies for monitor sessions. A configuration leaves it empty, and has the sessions in `Config::monitor`.
    pub mirror: PortMirror,
    /// `sample`: received frames are sampled at this rate. A configuration leaves it `None`, and has the settings of sFlow in
    /// `Config::sflow` and `Interface::sflow`.
    pub sample: Option<SamplingRate>,
    /// `storm`: what management does when the stage drops frames; the planes ignore it.
    pub storm_action: StormAction,
}

/// `storm-control action`: what else happens when storm control drops frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StormAction {
    /// `shutdown`: the port is shut down (err-disable).
    pub shutdown: bool,
    /// `trap`: a message is logged.
    pub trap: bool,
}

impl PortSettings {
    /// True if a setting is a share of the port's speed.
    #[must_use]
    pub fn has_shares(&self) -> bool {
        self.storm.iter().any(|level| matches!(level, Some(StormLevel::Percent(_))))
    }
    /// The settings for the planes: with rates in place of shares of the port's speed in Mbit/s.
    #[must_use]
    pub fn at_speed(&self, speed_mbps: Option<u32>) -> Self {
        Self { storm: self.storm.map(|level| level?.at_speed(speed_mbps)), ..self.clone() }
    }
}

named! {
    /// The customers' protocols that a dot1q-tunnel port can carry (`l2protocol-tunnel`).
    TunnelledProtocol {
        /// Spanning tree: IEEE and PVST+ BPDUs.
        Stp = 1, "stp";
        /// Cisco's discovery protocol.
        Cdp = 2, "cdp";
        /// LLDP, IEEE 802.1AB.
        Lldp = 3, "lldp";
    }
}

/// The protocols of customers that a port carries through the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tunnelled {
    /// Spanning tree.
    pub stp: bool,
    /// CDP.
    pub cdp: bool,
    /// LLDP.
    pub lldp: bool,
}

impl Tunnelled {
    /// No protocol.
    pub const NONE: Self = Self { stp: false, cdp: false, lldp: false };

    /// True when frames of this protocol are carried.
    #[must_use]
    pub const fn carries(self, protocol: TunnelledProtocol) -> bool {
        match protocol {
            TunnelledProtocol::Stp => self.stp,
            TunnelledProtocol::Cdp => self.cdp,
            TunnelledProtocol::Lldp => self.lldp,
        }
    }
}

named! {
    /// Why a frame, or a copy of it, was sent up to the control plane or to the kernel.
    TrapReason {
        /// A BPDU, for 01:80:C2:00:00:00, while spanning tree is on.
        Bpdu = 1, "bpdu";
        /// A PVST+ BPDU, for 01:00:0C:CC:CC:CD.
        PvstBpdu = 2, "pvst_bpdu";
        /// A slow protocol (LACP, marker, OAM), for 01:80:C2:00:00:02.
        SlowProtocol = 3, "slow_protocol";
        /// LLDP, for 01:80:C2:00:00:0E.
        Lldp = 4, "lldp";
        /// A frame for any other reserved address whose frames the configuration or a protocol sends to the control plane.
        Reserved = 5, "reserved";
        /// route: the destination is an address of the switch itself.
        LocalAddress = 6, "local_address";
        /// route: the next hop's MAC address is not known; the kernel resolves it.
        Glean = 7, "glean";
        /// route: the TTL or hop limit would become 0; the kernel answers.
        TtlExpired = 8, "ttl_expired";
        /// route: the packet is longer than the egress interface's MTU; the kernel fragments it, or answers.
        RouteMtu = 9, "route_mtu";
        /// route: the packet has IPv4 options or an IPv6 hop-by-hop header.
        IpOptions = 10, "ip_options";
        /// route: to a group address, or from a link-local IPv6 address. The plane never forwards those, but the
        /// kernel may answer.
        Martian = 11, "martian";
        /// route: no route; the kernel answers.
        NoRoute = 12, "no_route";
        /// route: the longest match is a route that only the kernel can use (a policy, an encapsulation, a full table).
        RoutePolicy = 13, "route_policy";
        /// route: packets at a routed port or subinterface that the kernel's own stack handles: multicast, other
        /// protocols.
        HostStack = 14, "host_stack";
        /// CDP or another protocol of Cisco's for one link, for 01:00:0C:CC:CC:CC, while CDP runs.
        Cdp = 15, "cdp";
        /// snoop: IGMP, in a VLAN with IGMP snooping.
        Igmp = 16, "igmp";
        /// snoop: MLD, or multicast router discovery over IPv6, in a VLAN with MLD snooping.
        Mld = 17, "mld";
        /// snoop: a PIM hello, in a VLAN with snooping of its family.
        PimHello = 18, "pim_hello";
        /// guard: a DHCP message in a VLAN with DHCP snooping. The control plane inspects it and sends it on.
        Dhcp = 19, "dhcp";
        /// guard: a copy of a frame that the stage `guard` has dropped, for the log.
        Guarded = 20, "guarded";
        /// EAPOL, for 01:80:C2:00:00:03, while ports have access control.
        Eapol = 21, "eapol";
        /// guard: a copy of a frame of a host for which the port is not open.
        Unauthorized = 22, "unauthorized";
        /// guard: in a VLAN with ND inspection, a message of neighbour discovery that agrees with no binding, or an advertisement
        /// to all nodes. The control plane inspects it and sends it on.
        Nd = 23, "nd";
        /// acl_ingress, acl_egress: a note about a frame that a rule with `log` has decided about. It has no bytes of the frame.
        AclLog = 24, "acl_log";
        /// route, replicate: ARP or neighbour discovery over IPv6 for the kernel's stack, at a routed port or a VLAN interface.
        Neighbour = 25, "neighbour";
        /// route, replicate: for a group of one link (224.0.0.0/24, ff02::/120), as the hellos of routing protocols are; for the
        /// kernel's stack.
        LinkMulticast = 26, "link_multicast";
        /// route, replicate: a broadcast at a routed port, or the copy for a VLAN interface of any other frame that is flooded.
        Flooded = 27, "flooded";
        /// acl_ingress, acl_egress: the frame has to be judged by an access list for which the chip has no room; the software
        /// judges it, and gives it back to the chip.
        AclDiverted = 28, "acl_diverted";
    }
}

named! {
    /// Trap reasons that share one token bucket, so that a flood of one kind cannot starve the others.
    TrapGroup {
        /// BPDUs.
        Stp = 1, "stp";
        /// Slow protocols.
        Slow = 2, "slow";
        /// Discovery and other link-local protocols.
        Discovery = 3, "discovery";
        /// Routing exceptions that have no group of their own: no route, and addresses that are not forwarded.
        RouteException = 4, "route_exception";
        /// Packets for the switch's own addresses; not policed unless configured.
        Host = 5, "host";
        /// Packets whose next hop the kernel has to resolve.
        Glean = 6, "glean";
        /// Packets whose TTL or hop limit has run out.
        TtlExpired = 7, "ttl_expired";
        /// Packets that are too long for the egress interface.
        RouteMtu = 8, "route_mtu";
        /// Packets with IPv4 options or an IPv6 hop-by-hop header.
        IpOptions = 9, "ip_options";
        /// The messages of hosts and routers about multicast groups.
        Multicast = 10, "multicast";
        /// DHCP messages in VLANs with DHCP snooping.
        Dhcp = 11, "dhcp";
        /// Copies of frames that first-hop security has dropped.
        Guarded = 12, "guarded";
        /// EAPOL: the messages by which hosts authenticate themselves.
        Eapol = 13, "eapol";
        /// Messages of neighbour discovery in VLANs with ND inspection.
        Nd = 14, "nd";
        /// Notes about frames that rules of access lists with `log` have decided about.
        AclLog = 15, "acl_log";
        /// ARP and neighbour discovery for the switch's own stack.
        Neighbour = 16, "neighbour";
        /// Packets for groups of one link, for the switch's own stack.
        LinkMulticast = 17, "link_multicast";
        /// Broadcasts, and copies of other flooded frames, for the switch's own stack.
        Flooded = 18, "flooded";
    }
}

impl TrapReason {
    /// The reason for a frame to the reserved address 01:80:C2:00:00:0`nibble` (IEEE 802.1Q-2018, table 8-1).
    #[must_use]
    pub const fn of_reserved(nibble: u8) -> Self {
        match nibble {
            0x0 => Self::Bpdu,
            0x2 => Self::SlowProtocol,
            0x3 => Self::Eapol,
            0xe => Self::Lldp,
            _ => Self::Reserved,
        }
    }
    /// The group whose token bucket polices this reason.
    #[must_use]
    pub const fn group(self) -> TrapGroup {
        match self {
            Self::Bpdu | Self::PvstBpdu => TrapGroup::Stp,
            Self::SlowProtocol => TrapGroup::Slow,
            Self::Lldp | Self::Cdp | Self::Reserved => TrapGroup::Discovery,
            Self::Glean => TrapGroup::Glean,
            Self::TtlExpired => TrapGroup::TtlExpired,
            Self::RouteMtu => TrapGroup::RouteMtu,
            Self::IpOptions => TrapGroup::IpOptions,
            Self::Martian | Self::NoRoute => TrapGroup::RouteException,
            // These are ordinary traffic: for the switch itself, through a prefix that the kernel routes, or diverted to an
            // access list of the software.
            Self::LocalAddress | Self::RoutePolicy | Self::HostStack | Self::AclDiverted => TrapGroup::Host,
            Self::Igmp | Self::Mld | Self::PimHello => TrapGroup::Multicast,
            Self::Dhcp => TrapGroup::Dhcp,
            Self::Nd => TrapGroup::Nd,
            Self::Guarded | Self::Unauthorized => TrapGroup::Guarded,
            Self::Eapol => TrapGroup::Eapol,
            Self::AclLog => TrapGroup::AclLog,
            Self::Neighbour => TrapGroup::Neighbour,
            Self::LinkMulticast => TrapGroup::LinkMulticast,
            Self::Flooded => TrapGroup::Flooded,
        }
    }
}

impl TrapReason {
    /// The stage that traps for this reason: `Trap`, `Guard` and `Snoop` send to the control plane, `Route` to the kernel's IP
    /// stack. `AclEgress` also uses `AclLog` and `AclDiverted`; and `Replicate` uses `Neighbour`, `LinkMulticast` and `Flooded`
    /// for copies of bridged frames.
    #[must_use]
    pub const fn stage(self) -> Stage {
        match self {
            Self::Bpdu
            | Self::PvstBpdu
            | Self::SlowProtocol
            | Self::Lldp
            | Self::Cdp
            | Self::Eapol
            | Self::Reserved => Stage::Trap,
            Self::LocalAddress
            | Self::Glean
            | Self::TtlExpired
            | Self::RouteMtu
            | Self::IpOptions
            | Self::Martian
            | Self::NoRoute
            | Self::RoutePolicy
            | Self::HostStack
            | Self::Neighbour
            | Self::LinkMulticast
            | Self::Flooded => Stage::Route,
            Self::Igmp | Self::Mld | Self::PimHello => Stage::Snoop,
            Self::Dhcp | Self::Nd | Self::Guarded | Self::Unauthorized => Stage::Guard,
            Self::AclLog | Self::AclDiverted => Stage::AclIngress,
        }
    }
}

impl DropReason {
    /// True when the frame was over a rate: a moment later it might have passed. A trace takes no token, so it shows such
    /// a frame as one within the rate.
    #[must_use]
    pub const fn is_over_rate(self) -> bool {
        matches!(
            self,
            Self::TrapPoliced
                | Self::Storm
                | Self::ArpRate
                | Self::DhcpRate
                | Self::PolicedIn
                | Self::PolicedOut
        )
    }
    /// The reason for which a plane sends copies of the dropped frames to the control plane, at a limited rate; `None`: it sends
    /// no copies.
    #[must_use]
    pub const fn report(self) -> Option<TrapReason> {
        match self {
            Self::ArpInspection
            | Self::DhcpServer
            | Self::SourceGuard
            | Self::RaGuard
            | Self::Dhcpv6Guard
            | Self::NdInspection => Some(TrapReason::Guarded),
            Self::Unauthorized => Some(TrapReason::Unauthorized),
            _ => None,
        }
    }
    /// The stage that drops for this reason.
    #[must_use]
    pub const fn stage(self) -> Stage {
        match self {
            Self::Truncated | Self::SourceGroup | Self::SourceZero => Stage::Parse,
            Self::MirrorDestination => Stage::Mirror,
            Self::Pause
            | Self::ReservedAddress
            | Self::TrapPoliced
            | Self::TunnelProtocol
            | Self::TunnelAddress => Stage::Trap,
            Self::PortDown | Self::NotCollecting => Stage::Port,
            Self::VlanInvalid
            | Self::TaggedOnAccess
            | Self::VlanNotAllowed
            | Self::VlanInactive
            | Self::UntaggedNotAllowed
            | Self::StpDiscarding => Stage::VlanIngress,
            Self::AclPortIn | Self::AclVlanIn | Self::AclRouterIn | Self::AclHostOut | Self::AclUnjudged => {
                Stage::AclIngress
            }
            Self::AclPortOut | Self::AclVlanOut | Self::AclRouterOut | Self::AclHostIn => Stage::AclEgress,
            Self::Storm => Stage::Storm,
            Self::ArpInspection
            | Self::ArpRate
            | Self::DhcpServer
            | Self::DhcpRate
            | Self::SourceGuard
            | Self::RaGuard
            | Self::Dhcpv6Guard
            | Self::NdInspection
            | Self::Unauthorized => Stage::Guard,
            Self::PolicedIn => Stage::QosIngress,
            Self::PolicedOut => Stage::QosEgress,
            Self::StpLearning | Self::SourceBlackhole | Self::PortSecurity => Stage::Learn,
            Self::IpHeaderInvalid
            | Self::UrpfFailed
            | Self::RouteBlackhole
            | Self::Martian
            | Self::MartianSource => Stage::Route,
            Self::DestinationBlackhole | Self::SamePort | Self::NoEgress => Stage::Bridge,
            Self::EgressNotMember
            | Self::EgressStp
            | Self::Isolated
            | Self::PrivateVlan
            | Self::MtuExceeded
            | Self::EgressDown => Stage::VlanEgress,
            Self::TransmitFailed => Stage::Replicate,
            Self::Overrun => Stage::Count,
        }
    }
}
