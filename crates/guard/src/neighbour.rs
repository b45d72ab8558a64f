//! The types of ND inspection: hosts, the states of their addresses, and why messages are dropped.

use lanyard_types::{MacAddr, PortId, VlanId};
use std::net::Ipv6Addr;

/// An address in a VLAN.
pub(crate) type Key = (VlanId, Ipv6Addr);

/// The host that has an address: a port, and the MAC address behind it (the binding anchor of RFC 6620).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The port.
    pub port: PortId,
    /// The MAC address.
    pub mac: MacAddr,
}

/// A host and its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// The VLAN.
    pub vlan: VlanId,
    /// The address.
    pub address: Ipv6Addr,
    /// The host.
    pub owner: Owner,
}

/// The states of an address (RFC 6620, 3.2.3); one that is not known is in state NO_BIND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// TENTATIVE: claimed, and asked for behind the trusted ports.
    Tentative,
    /// VALID: the plane has the binding.
    Valid,
    /// TESTING_TP-LT: the owner is asked, because its lifetime has ended or another host is behind a trusted port.
    TestingTrusted,
    /// TESTING_VP: the owner is asked, because another host claims the address.
    TestingClaim,
    /// TESTING_VP': both hosts detect duplicates of the address.
    TestingBoth,
}

impl State {
    /// The name, as IOS has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tentative => "INCOMPLETE",
            Self::Valid => "REACHABLE",
            Self::TestingTrusted | Self::TestingClaim | Self::TestingBoth => "VERIFY",
        }
    }
}

/// How a host claims an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// By duplicate address detection, before it uses it.
    Detection,
    /// By an advertisement to all nodes.
    Defence,
    /// By another message.
    Other,
    /// By a packet that the plane has dropped.
    Data,
}

/// Why a message was not sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum NdDrop {
    /// No host accepts it (RFC 4861, 7.1).
    Malformed = 0,
    /// Its option names another MAC address than the frame's source.
    LinkAddress = 1,
    /// The address is bound to another host.
    NotOwner = 2,
    /// Another message of the host waits until its claim is decided.
    Tentative = 3,
    /// The address is in use behind a trusted port.
    Duplicate = 4,
    /// The port has as many addresses as it may have.
    Limit = 5,
    /// The switch has as many bindings as it can hold.
    Full = 6,
    /// The VLAN is not inspected any more, or the port not in it.
    NoPort = 7,
}

impl NdDrop {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::LinkAddress,
        Self::NotOwner,
        Self::Tentative,
        Self::Duplicate,
        Self::Limit,
        Self::Full,
        Self::NoPort,
    ];

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::LinkAddress => "link_address_mismatch",
            Self::NotOwner => "binding_mismatch",
            Self::Tentative => "tentative",
            Self::Duplicate => "duplicate",
            Self::Limit => "address_limit",
            Self::Full => "table_full",
            Self::NoPort => "no_output_port",
        }
    }
}

/// The messages that were handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NdCounters {
    /// Those sent on.
    pub forwarded: u64,
    /// Those dropped, by the number of [`NdDrop`].
    pub dropped: [u64; NdDrop::ALL.len()],
    /// Questions for duplicate address detection that the switch has sent.
    pub probes: u64,
}

/// A change of the bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// An address has been learned.
    Created,
    /// An address has moved to another host.
    Changed,
    /// The owner of an address did not answer.
    Deleted,
}
