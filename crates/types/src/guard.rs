//! First-hop security: what the stage `guard` is configured with at a port and in a VLAN.

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
    /// `ip verify source`: IPv4 packets need the source of a binding.
    pub verify: VerifySource,
    /// `ipv6 nd raguard`: router advertisements and redirects are dropped.
    pub no_routers: bool,
    /// `ipv6 dhcp guard`: messages of DHCPv6 servers are dropped.
    pub no_dhcpv6_servers: bool,
    /// `ipv6 nd inspection trust`: messages of neighbour discovery are not inspected.
    pub nd_trust: bool,
    /// `ipv6 nd inspection limit address-count`: the IPv6 addresses that ND inspection learns at the port, 1..=16,384. The
    /// planes ignore it.
    pub nd_limit: u32,
    /// `ipv6 source-guard`: IPv6 packets need the source of a binding.
    pub verify_ipv6: bool,
    /// 802.1X: whom the port is open for. The configuration has it in a place of its own.
    pub lock: PortLock,
}

/// Whom a port with access control is open for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortLock {
    /// All hosts.
    #[default]
    Open,
    /// The hosts of the port's entries of the control plane in the FDB.
    Hosts,
    /// Nobody.
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
    /// The IPv6 addresses that ND inspection learns at a port where no limit is configured.
    pub const ND_LIMIT: u32 = 128;
    /// ARP packets per second of a port that is not trusted, where no limit is configured (as in IOS).
    pub const ARP_RATE: u32 = 15;

    /// True if the port checks frames whatever its VLANs check.
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
    /// The rate and the burst that DHCP messages may have at the port; `None`: no limit.
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
        /// Seconds over which a burst may reach the rate, 1..=15.
        interval_s: u8,
    },
}

/// `ip verify source`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerifySource {
    /// Off.
    #[default]
    Off,
    /// The source address of IPv4 packets is that of a binding.
    Ip,
    /// `port-security`: the source MAC address is that of the same binding, too.
    IpAndMac,
}

/// The first-hop security of a VLAN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VlanGuard {
    /// DHCP snooping; it also decides where `ip verify source` holds.
    pub dhcp: bool,
    /// ARP inspection.
    pub arp: bool,
    /// `ip arp inspection validate`.
    pub validate: ArpValidation,
    /// ND inspection; it also decides where `ipv6 source-guard` holds.
    pub nd: bool,
}

impl VlanGuard {
    /// True when nothing is on.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        !self.dhcp && !self.arp && !self.nd
    }
}

/// `ip arp inspection validate`: checks besides that of the sender's binding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArpValidation {
    /// The source of the frame is the sender's MAC address.
    pub src_mac: bool,
    /// The destination of a reply's frame is the target's MAC address.
    pub dst_mac: bool,
    /// Addresses are neither 0.0.0.0 nor 255.255.255.255 nor multicast.
    pub ip: bool,
    /// With `ip`: the sender's address may be 0.0.0.0.
    pub allow_zeros: bool,
}

/// A host's address, as DHCP snooping or ND inspection has learned it or as it was configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey {
    /// The port behind which the host is.
    pub port: PortId,
    /// Its VLAN.
    pub vlan: VlanId,
    /// Its address.
    pub address: IpAddr,
}

/// A binding: the address and the MAC address that belongs to it.
pub type Binding = (BindingKey, MacAddr);

/// The most bindings of IPv4 addresses that a plane holds, and the most of IPv6 addresses.
pub const MAX_BINDINGS: usize = 16_384;
