//! First-hop security: `ip dhcp snooping ...`, `ip arp inspection ...`, `ip source binding`, `ipv6 nd inspection ...`, `ipv6
//! neighbor binding`. The settings of a port are in `PortSettings::guard`.

use crate::InterfaceName;
use lanyard_types::{ArpValidation, MacAddr, VlanId, VlanSet};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The settings of the whole switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// `ip dhcp snooping`, off by default. While it is off, `dhcp_vlans` has no effect.
    pub dhcp: bool,
    /// `ip dhcp snooping vlan LIST`.
    pub dhcp_vlans: VlanSet,
    /// `ip dhcp snooping verify mac-address`, on by default.
    pub verify_mac: bool,
    /// `ip dhcp snooping information option`, on by default.
    pub option: bool,
    /// `ip dhcp snooping information option allow-untrusted`.
    pub allow_untrusted: bool,
    /// `ip arp inspection vlan LIST`.
    pub arp_vlans: VlanSet,
    /// `ip arp inspection validate ...`.
    pub validate: ArpValidation,
    /// `ip source binding MAC vlan V A.B.C.D interface I`.
    pub bindings: BTreeMap<(VlanId, Ipv4Addr), StaticBinding>,
    /// `ipv6 nd inspection vlan LIST`.
    pub nd_vlans: VlanSet,
    /// `ipv6 neighbor binding vlan V X:X::X interface I MAC`.
    pub neighbors: BTreeMap<(VlanId, Ipv6Addr), StaticBinding>,
}

/// `ip source binding`, `ipv6 neighbor binding`: the host that has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticBinding {
    /// The host's MAC address.
    pub mac: MacAddr,
    /// The port behind which the host is.
    pub interface: InterfaceName,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            dhcp: false,
            dhcp_vlans: VlanSet::EMPTY,
            verify_mac: true,
            option: true,
            allow_untrusted: false,
            arp_vlans: VlanSet::EMPTY,
            validate: ArpValidation::default(),
            bindings: BTreeMap::new(),
            nd_vlans: VlanSet::EMPTY,
            neighbors: BTreeMap::new(),
        }
    }
}

impl Guard {
    /// True if DHCP is snooped in a VLAN.
    #[must_use]
    pub fn snoops(&self, vlan: VlanId) -> bool {
        self.dhcp && self.dhcp_vlans.contains(vlan)
    }
}
