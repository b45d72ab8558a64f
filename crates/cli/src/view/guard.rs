//! First-hop security.

use lanyard_types::MacAddr;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// `show ip dhcp snooping`, `show ip arp inspection`, `show ip verify source` and their like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Guard {
    /// DHCP snooping is on.
    pub dhcp_snooping: bool,
    /// The VLANs that are named for it.
    pub dhcp_vlans: Vec<u16>,
    /// Those of them that are active.
    pub operational_vlans: Vec<u16>,
    /// A client's message has the client's address as its source.
    pub verify_mac: bool,
    /// Option 82 is inserted.
    pub information_option: bool,
    /// Clients' messages may have an option 82.
    pub allow_untrusted: bool,
    /// The VLANs with ARP inspection.
    pub arp_vlans: Vec<u16>,
    /// ARP inspection compares the source of the frame,
    pub validate_src_mac: bool,
    /// the destination of the frame,
    pub validate_dst_mac: bool,
    /// and refuses addresses that no host has,
    pub validate_ip: bool,
    /// but for a sender without an address.
    pub allow_zeros: bool,
    /// The switch ports, in natural order.
    pub ports: Vec<GuardPort>,
    /// The bindings, by VLAN and address.
    pub bindings: Vec<GuardBinding>,
    /// The most bindings.
    pub capacity: usize,
    /// DHCP messages that were sent on.
    pub forwarded: u64,
    /// Those that were dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Leases and bindings for which there was no room.
    pub refused: u64,
}

/// A switch port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardPort {
    /// Its name.
    pub interface: String,
    /// DHCP servers may be behind it.
    pub dhcp_trusted: bool,
    /// DHCP messages per second; `None`: no limit.
    pub dhcp_rate_pps: Option<u32>,
    /// ARP is not inspected.
    pub arp_trusted: bool,
    /// ARP packets per second; `None`: no limit.
    pub arp_rate_pps: Option<u32>,
    /// Seconds over which a burst may reach that rate.
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

/// The address of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardBinding {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its VLAN.
    pub vlan: u16,
    /// Its port.
    pub interface: String,
    /// `dhcp-snooping` or `static`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Seconds until the lease ends; `None`: it does not.
    pub lease_s: Option<u64>,
}

/// `show ip dhcp snooping`.
#[derive(Debug, Serialize)]
pub struct GuardDhcp {
    /// DHCP snooping is on.
    pub enabled: bool,
    /// The VLANs that are named for it.
    pub vlans: Vec<u16>,
    /// Those of them that are active.
    pub operational_vlans: Vec<u16>,
    /// See [`Guard`].
    pub information_option: bool,
    /// See [`Guard`].
    pub allow_untrusted: bool,
    /// See [`Guard`].
    pub verify_mac: bool,
    /// The ports that are trusted, or have a rate.
    pub interfaces: Vec<GuardDhcpPort>,
}

/// A port of `show ip dhcp snooping`.
#[derive(Debug, Serialize)]
pub struct GuardDhcpPort {
    /// Its name.
    pub interface: String,
    /// DHCP servers may be behind it.
    pub trusted: bool,
    /// Messages per second; `None`: no limit.
    pub rate_limit_pps: Option<u32>,
}

/// `show ip dhcp snooping binding`, `show ip source binding`.
#[derive(Debug, Serialize)]
pub struct GuardBindings {
    /// The bindings.
    pub bindings: Vec<GuardBinding>,
    /// Their number.
    pub total: usize,
    /// The most bindings.
    pub capacity: usize,
}

/// `show ip dhcp snooping statistics`.
#[derive(Debug, Serialize)]
pub struct GuardStatistics {
    /// Messages that were sent on.
    pub forwarded: u64,
    /// Messages that were dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Messages of servers that the plane has dropped at ports that are not trusted.
    pub dropped_by_plane: u64,
    /// Leases and bindings for which there was no room.
    pub refused: u64,
}

/// `show ip arp inspection`.
#[derive(Debug, Serialize)]
pub struct GuardArp {
    /// The source of the frame is compared,
    pub validate_src_mac: bool,
    /// the destination,
    pub validate_dst_mac: bool,
    /// and addresses that no host has are refused,
    pub validate_ip: bool,
    /// but for a sender without one.
    pub allow_zeros: bool,
    /// The VLANs.
    pub vlans: Vec<u16>,
}

/// Commands that show every switch port.
#[derive(Debug, Serialize)]
pub struct GuardPorts {
    /// The ports.
    pub interfaces: Vec<GuardPort>,
}

/// `show ip verify source`.
#[derive(Debug, Serialize)]
pub struct GuardSources {
    /// The addresses that each port with `ip verify source` lets in.
    pub filters: Vec<GuardSource>,
}

/// An address that a port lets in; a port without bindings lets none in.
#[derive(Debug, Serialize)]
pub struct GuardSource {
    /// The port.
    pub interface: String,
    /// `ip` or `ip-mac`.
    pub filter_type: &'static str,
    /// The binding; `None`: the port has none.
    pub binding: Option<GuardBinding>,
    /// Packets that were dropped at the port.
    pub dropped: u64,
}
