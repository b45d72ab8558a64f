//! First-hop security.

use lanyard_types::MacAddr;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The contents of `show ip dhcp snooping`, `show ip arp inspection`, `show ip source binding`, `show ip verify source` and `show
/// ipv6 nd raguard`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Guard {
    /// True if DHCP snooping is on.
    pub dhcp_snooping: bool,
    /// The VLANs of `ip dhcp snooping vlan`.
    pub dhcp_vlans: Vec<u16>,
    /// The VLANs of `ip dhcp snooping vlan` that are active; none while DHCP snooping is off.
    pub operational_vlans: Vec<u16>,
    /// True if a client's message at an untrusted port is dropped unless the frame's source address is the client's MAC address.
    pub verify_mac: bool,
    /// True if option 82 is inserted into clients' messages.
    pub information_option: bool,
    /// True if clients' messages at untrusted ports may have an option 82.
    pub allow_untrusted: bool,
    /// The VLANs with ARP inspection.
    pub arp_vlans: Vec<u16>,
    /// True if ARP inspection compares the source address of the frame with the sender's MAC address.
    pub validate_src_mac: bool,
    /// True if ARP inspection compares the destination address of a reply's frame with the target's MAC address.
    pub validate_dst_mac: bool,
    /// True if ARP inspection drops packets with an IPv4 address that no host can have: 0.0.0.0, 255.255.255.255 or multicast.
    pub validate_ip: bool,
    /// True if `validate_ip` permits the sender's address 0.0.0.0.
    pub allow_zeros: bool,
    /// The switch ports, in natural order.
    pub ports: Vec<GuardPort>,
    /// The bindings, by VLAN and address.
    pub bindings: Vec<GuardBinding>,
    /// The maximum number of bindings.
    pub capacity: usize,
    /// DHCP messages that the switch has forwarded.
    pub forwarded: u64,
    /// DHCP messages that were dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Leases and bindings that were refused because there was no room.
    pub refused: u64,
}

/// A switch port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardPort {
    /// Its name.
    pub interface: String,
    /// True if DHCP servers may be behind the port.
    pub dhcp_trusted: bool,
    /// The maximum rate of DHCP messages per second; `None`: no limit.
    pub dhcp_rate_pps: Option<u32>,
    /// True if ARP packets are not inspected at the port.
    pub arp_trusted: bool,
    /// The maximum rate of ARP packets per second; `None`: no limit.
    pub arp_rate_pps: Option<u32>,
    /// The permitted burst of ARP packets, as seconds of packets at the rate `arp_rate_pps`.
    pub arp_burst_interval_s: u8,
    /// `off`, `ip` or `ip-mac`.
    pub verify_source: &'static str,
    /// `ipv6 nd raguard`.
    pub raguard: bool,
    /// `ipv6 dhcp guard`.
    pub dhcp_guard: bool,
    /// Frames that first-hop security has dropped at the port, by reason; reasons without frames are left out.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// A binding: the host that has an IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardBinding {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its VLAN.
    pub vlan: u16,
    /// Its port.
    pub interface: String,
    /// `dhcp-snooping` or `static`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Seconds until the lease ends; `None` if it does not end.
    pub lease_s: Option<u64>,
}

/// `show ip dhcp snooping`.
#[derive(Debug, Serialize)]
pub struct GuardDhcp {
    /// True if DHCP snooping is on.
    pub enabled: bool,
    /// The VLANs of `ip dhcp snooping vlan`.
    pub vlans: Vec<u16>,
    /// The VLANs of `ip dhcp snooping vlan` that are active; none while DHCP snooping is off.
    pub operational_vlans: Vec<u16>,
    /// See [`Guard::information_option`].
    pub information_option: bool,
    /// See [`Guard::allow_untrusted`].
    pub allow_untrusted: bool,
    /// See [`Guard::verify_mac`].
    pub verify_mac: bool,
    /// The ports that are trusted, or have a rate limit for DHCP.
    pub interfaces: Vec<GuardDhcpPort>,
}

/// A port of `show ip dhcp snooping`.
#[derive(Debug, Serialize)]
pub struct GuardDhcpPort {
    /// Its name.
    pub interface: String,
    /// True if DHCP servers may be behind the port.
    pub trusted: bool,
    /// The maximum rate of DHCP messages per second; `None`: no limit.
    pub rate_limit_pps: Option<u32>,
}

/// `show ip dhcp snooping binding`, `show ip source binding`.
#[derive(Debug, Serialize)]
pub struct GuardBindings {
    /// The bindings.
    pub bindings: Vec<GuardBinding>,
    /// Their number.
    pub total: usize,
    /// The maximum number of bindings.
    pub capacity: usize,
}

/// `show ip dhcp snooping statistics`.
#[derive(Debug, Serialize)]
pub struct GuardStatistics {
    /// DHCP messages that the switch has forwarded.
    pub forwarded: u64,
    /// DHCP messages that were dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Messages of DHCP servers that the plane has dropped at untrusted ports.
    pub dropped_by_plane: u64,
    /// Leases and bindings that were refused because there was no room.
    pub refused: u64,
}

/// `show ip arp inspection`.
#[derive(Debug, Serialize)]
pub struct GuardArp {
    /// See [`Guard::validate_src_mac`].
    pub validate_src_mac: bool,
    /// See [`Guard::validate_dst_mac`].
    pub validate_dst_mac: bool,
    /// See [`Guard::validate_ip`].
    pub validate_ip: bool,
    /// See [`Guard::allow_zeros`].
    pub allow_zeros: bool,
    /// The VLANs with ARP inspection.
    pub vlans: Vec<u16>,
}

/// `show ip arp inspection interfaces`, `show ip arp inspection statistics`, `show ipv6 nd raguard`.
#[derive(Debug, Serialize)]
pub struct GuardPorts {
    /// The ports.
    pub interfaces: Vec<GuardPort>,
}

/// `show ip verify source`.
#[derive(Debug, Serialize)]
pub struct GuardSources {
    /// The source addresses that each port with `ip verify source` permits.
    pub filters: Vec<GuardSource>,
}

/// A source address that a port permits; a port without bindings permits none.
#[derive(Debug, Serialize)]
pub struct GuardSource {
    /// The port.
    pub interface: String,
    /// `ip` or `ip-mac`.
    pub filter_type: &'static str,
    /// The binding; `None` if the port has none.
    pub binding: Option<GuardBinding>,
    /// Packets that were dropped at the port.
    pub dropped: u64,
}
