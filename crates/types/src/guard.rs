//! First-hop security: the settings of the stage `guard` at a port and in a VLAN.

use crate::{MacAddr, PortId, VlanId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The first-hop security of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortGuard {
    /// `ip dhcp snooping trust`: DHCP servers may be behind the port.
    pub dhcp_trust: bool,
    /// `ip dhcp snooping limit rate`: DHCP messages per second; `None`: no limit.
    pub dhcp_rate: Option<u32>,
    /// `ip arp inspection trust`: ARP packets are not inspected.
    pub arp_trust: bool,
    /// `ip arp inspection limit`.
    pub arp_limit: ArpLimit,
    /// `ip verify source`: IPv4 packets are dropped unless a binding at the port has their source address.
    pub verify: VerifySource,
    /// `ipv6 nd raguard`: router advertisements and redirects are dropped.
    pub no_routers: bool,
    /// `ipv6 dhcp guard`: messages of DHCPv6 servers are dropped.
    pub no_dhcpv6_servers: bool,
    /// `ipv6 nd inspection trust`: messages of neighbour discovery are not inspected.
    pub nd_trust: bool,
    /// `ipv6 nd inspection limit address-count`: the most IPv6 addresses that ND inspection learns at the port,
    /// 1..=16,384. The planes ignore it.
    pub nd_limit: u32,
    /// `ipv6 source-guard`: true if IPv6 packets are dropped unless a binding at the port has their source address.
    pub verify_ipv6: bool,
    /// 802.1X: the hosts for which the port is open. No command sets it; the authenticator decides.
    pub lock: PortLock,
}

/// The hosts for which a port with access control is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortLock {
    /// All hosts.
    #[default]
    Open,
    /// The hosts that the control plane has entered into the FDB at this port.
    Hosts,
    /// No host.
    Closed,
}

impl Default for PortGuard {
    fn default() -> Self {
        Self {
            dhcp_trust: false,
            dhcp_rate: None,
            arp_trust: false,
            arp_limit: ArpLimit::Default,
            verify: VerifySource::Off,
            no_routers: false,
            no_dhcpv6_servers: false,
            nd_trust: false,
            nd_limit: Self::ND_LIMIT,
            verify_ipv6: false,
            lock: PortLock::Open,
        }
    }
}

impl PortGuard {
    /// The most IPv6 addresses that ND inspection learns at a port without a configured limit.
    pub const ND_LIMIT: u32 = 128;
    /// The limit of ARP packets per second at a port that is not trusted and has no configured limit (as in IOS).
    pub const ARP_RATE: u32 = 15;

    /// True if settings of the port make the stage check frames; the settings of the VLAN are not considered.
    #[must_use]
    pub fn checks(&self) -> bool {
        self.no_routers
            || self.no_dhcpv6_servers
            || self.verify != VerifySource::Off
            || self.verify_ipv6
            || self.lock != PortLock::Open
    }
    /// The rate in frames per second and the burst in frames that ARP packets may have at the port; `None`: no limit.
    #[must_use]
    pub const fn arp_bucket(&self) -> Option<(u32, u32)> {
        match self.arp_limit {
            ArpLimit::Default if self.arp_trust => None,
            ArpLimit::Default => Some((Self::ARP_RATE, Self::ARP_RATE)),
            ArpLimit::None => None,
            ArpLimit::Rate { pps, interval_s } => Some((pps, pps.saturating_mul(interval_s as u32))),
        }
    }
    /// The rate in frames per second and the burst in frames that DHCP messages may have at the port; `None`: no
    /// limit.
    #[must_use]
    pub const fn dhcp_bucket(&self) -> Option<(u32, u32)> {
        match self.dhcp_rate {
            Some(pps) => Some((pps, pps)),
            None => None,
        }
    }
}

/// `ip arp inspection limit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArpLimit {
    /// Not configured: 15 packets per second at ports that are not trusted, no limit at others.
    #[default]
    Default,
    /// `limit none`.
    None,
    /// `limit rate N [burst interval S]`.
    Rate {
        /// Packets per second, 0..=2048.
        pps: u32,
        /// The burst as a time, 1..=15 seconds: at most the packets that the rate allows in this time may arrive at
        /// once.
        interval_s: u8,
    },
}

/// `ip verify source`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerifySource {
    /// Off.
    #[default]
    Off,
    /// A binding at the port must have the packet's source address.
    Ip,
    /// `port-security`: a binding at the port must have the packet's source address and the frame's source MAC
    /// address.
    IpAndMac,
}

/// The first-hop security of a VLAN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VlanGuard {
    /// True if DHCP snooping is on. `ip verify source` takes effect only in VLANs where it is.
    pub dhcp: bool,
    /// True if ARP inspection is on.
    pub arp: bool,
    /// `ip arp inspection validate`.
    pub validate: ArpValidation,
    /// True if ND inspection is on. `ipv6 source-guard` takes effect only in VLANs where it is.
    pub nd: bool,
}

impl VlanGuard {
    /// True when neither DHCP snooping nor ARP inspection nor ND inspection is on.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        !self.dhcp && !self.arp && !self.nd
    }
}

/// `ip arp inspection validate`: the checks of ARP packets besides the check of the sender's binding. A check is made
/// if its field is true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArpValidation {
    /// The source address of the frame must be the sender's MAC address.
    pub src_mac: bool,
    /// The destination address of a reply's frame must be the target's MAC address.
    pub dst_mac: bool,
    /// IP addresses must not be 0.0.0.0, 255.255.255.255 or multicast.
    pub ip: bool,
    /// With `ip`: the sender's address may be 0.0.0.0.
    pub allow_zeros: bool,
}

/// A host's address, as DHCP snooping or ND inspection has learned it or as it was configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey {
    /// The port behind which the host is.
    pub port: PortId,
    /// The host's VLAN.
    pub vlan: VlanId,
    /// The host's IP address.
    pub address: IpAddr,
}

/// A binding: a host's IP address, with port and VLAN, and the host's MAC address.
pub type Binding = (BindingKey, MacAddr);

/// The most bindings of IPv4 addresses that a plane holds, and the most of IPv6 addresses.
pub const MAX_BINDINGS: usize = 16_384;
