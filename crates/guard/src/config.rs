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
    /// `verify mac-address`: true if a client's message is accepted only with the client's address as its source.
    pub verify_mac: bool,
    /// `information option`: true if option 82 is inserted into clients' messages and removed from the answers.
    pub insert_option: bool,
    /// `information option allow-untrusted`: true if clients' messages may already have an option 82.
    pub allow_untrusted: bool,
    /// The switch's address, the remote ID of its option 82.
    pub mac: MacAddr,
    /// `ip source binding`: the static bindings.
    pub statics: BTreeMap<BindingKey, MacAddr>,
}

/// A port of DHCP snooping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// True if DHCP servers may be behind the port.
    pub trusted: bool,
}

/// The configuration of [`crate::Inspector`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NdConfig {
    /// The VLANs that are inspected, each with its ports.
    pub vlans: BTreeMap<VlanId, PortSet>,
    /// The ports of those VLANs.
    pub ports: BTreeMap<PortId, NdPort>,
    /// The switch's address, the source of its solicitations.
    pub mac: MacAddr,
    /// `ipv6 neighbor binding`: the static bindings.
    pub statics: BTreeMap<Key, Owner>,
}

/// A port of ND inspection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NdPort {
    /// True if messages from this port are not inspected.
    pub trusted: bool,
    /// The most addresses that are learned at the port.
    pub limit: u32,
    /// True for a host port of a private VLAN: its hosts do not reach the hosts of other ports.
    pub private: bool,
}
