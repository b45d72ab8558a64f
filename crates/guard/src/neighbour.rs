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

/// The states of an address (RFC 6620, 3.2.3); an address without an entry is in state NO_BIND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// TENTATIVE: a host has claimed the address, and it is tested whether a host behind a trusted port has it.
    Tentative,
    /// VALID: the plane has the binding.
    Valid,
    /// TESTING_TP-LT: the owner is asked, because the binding's lifetime has ended or a host behind a trusted port has advertised
    /// the address.
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
    /// By duplicate address detection, before it uses the address.
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
    /// The host's claim is not decided yet, and another message of the host waits for it, or too many of other hosts.
    Tentative = 3,
    /// The address is in use behind a trusted port.
    Duplicate = 4,
    /// The port has as many addresses as it may have.
    Limit = 5,
    /// The switch has as many bindings as it can hold.
    Full = 6,
    /// The VLAN is no longer inspected, the port is not in it, or the claim was removed.
    Removed = 7,
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
        Self::Removed,
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
            // The key in JSON stays as released: later versions only add keys (docs/cli/json.md).
            Self::Removed => "no_output_port",
        }
    }
}

/// The numbers of messages handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NdCounters {
    /// Messages sent on.
    pub forwarded: u64,
    /// Messages dropped, indexed by the number of [`NdDrop`].
    pub dropped: [u64; NdDrop::ALL.len()],
    /// Solicitations for duplicate address detection that the switch has sent.
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
