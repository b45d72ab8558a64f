//! The configuration of DHCP snooping and ND inspection.

use crate::neighbour::{Key, Owner};
use lanyard_types::{BindingKey, MacAddr, PortId, PortSet, VlanId};
use std::collections::BTreeMap;

/// The configuration of [`crate::Snooper`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The VLANs that are snooped, each with its ports.
    pub vlans: BTreeMap<VlanId, PortSet>,
    /// The ports of those VLANs.
    pub ports: BTreeMap<PortId, PortConfig>,
    /// `verify mac-address`: a client's message has the client's address as its source.
    pub verify_mac: bool,
    /// `information option`: option 82 is inserted into clients' messages and removed from the answers.
    pub insert_option: bool,
    /// `information option allow-untrusted`: clients' messages may have an option 82 already.
    pub allow_untrusted: bool,
    /// The switch's address, the remote ID of its option 82.
    pub mac: MacAddr,
    /// `ip source binding`: bindings that DHCP has no part in.
    pub statics: BTreeMap<BindingKey, MacAddr>,
}

/// A port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Servers may be behind it.
    pub trusted: bool,
}

/// The configuration of [`crate::Inspector`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NdConfig {
    /// The VLANs that are inspected, each with its ports.
    pub vlans: BTreeMap<VlanId, PortSet>,
    /// The ports of those VLANs.
    pub ports: BTreeMap<PortId, NdPort>,
    /// The switch's address, the source of its questions.
    pub mac: MacAddr,
    /// `ipv6 neighbor binding`: bindings that are not learned.
    pub statics: BTreeMap<Key, Owner>,
}

/// A port of ND inspection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NdPort {
    /// Its messages are not inspected.
    pub trusted: bool,
    /// The most addresses that are learned.
    pub limit: u32,
    /// Its hosts reach no other hosts: a host port of a private VLAN.
    pub private: bool,
}
