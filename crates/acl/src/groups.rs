//! Object groups: addresses and services that rules name together.

use crate::fields::{Address, PortMatch};
use ipnet::Ipv6Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A member of a network group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkMember {
    /// `host A.B.C.D`.
    Host(Ipv4Addr),
    /// `A.B.C.D MASK`: an address and a mask, whose set bits are compared.
    Net(Ipv4Addr, Ipv4Addr),
    /// An IPv6 prefix.
    V6(Ipv6Net),
}

impl NetworkMember {
    pub(crate) fn address(self) -> Address {
        match self {
            Self::Host(host) => Address::V4(host, Ipv4Addr::UNSPECIFIED),
            Self::Net(net, mask) => Address::V4(net, Ipv4Addr::from_bits(!mask.to_bits())),
            Self::V6(net) => Address::V6(net),
        }
    }
}

/// `object-group network`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkGroup {
    /// `description`.
    pub description: Option<String>,
    /// The members.
    pub members: Vec<NetworkMember>,
}

/// A member of a service group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The protocol; `None` is any.
    pub protocol: Option<u8>,
    /// The source port.
    pub src_port: Option<PortMatch>,
    /// The destination port.
    pub dst_port: Option<PortMatch>,
}

/// `object-group service`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceGroup {
    /// `description`.
    pub description: Option<String>,
    /// The members.
    pub members: Vec<Service>,
}

/// The object groups of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// `object-group network`, by name.
    pub networks: BTreeMap<String, NetworkGroup>,
    /// `object-group service`, by name.
    pub services: BTreeMap<String, ServiceGroup>,
}
