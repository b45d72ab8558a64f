//! The kinds of objects in a chip's tables, and the units that an object takes.

use serde::{Deserialize, Serialize};

/// The way in which entries are found in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// A hash table of buckets: it can refuse an entry before it is full.
    Exact,
    /// Longest-prefix match; only the number of used units counts, not which ones.
    Lpm,
    /// Ternary match in the order of priority; an insertion may move entries.
    Tcam,
    /// Numbered entries that are allocated in runs: next hops of a group, router interfaces.
    Index,
}

/// A kind of object. A platform determines the table for each kind and the units that one object takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// A MAC address in a VLAN.
    Mac,
    /// A neighbour: an IPv4 /32.
    Ipv4Host,
    /// A neighbour: an IPv6 /128.
    Ipv6Host,
    /// An IPv4 multicast group of a VLAN, with or without a source.
    Ipv4Group,
    /// An IPv6 multicast group of a VLAN, with or without a source.
    Ipv6Group,
    /// An IPv4 prefix.
    Ipv4Prefix,
    /// An IPv6 prefix of at most 64 bits.
    Ipv6Prefix64,
    /// An IPv6 prefix of 65 to 128 bits.
    Ipv6Prefix128,
    /// A rule of an access list for IPv4 or MAC fields, after its port ranges have been expanded.
    AclIpv4,
    /// A rule of an access list for IPv6 fields.
    AclIpv6,
    /// A member of a next-hop group.
    EcmpMember,
    /// A next-hop group.
    EcmpGroup,
    /// A router interface.
    Rif,
    /// A routing table.
    Vrf,
    /// A port-channel.
    PortChannel,
    /// A member of a port-channel.
    PortChannelMember,
}

impl Object {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::Mac,
        Self::Ipv4Host,
        Self::Ipv6Host,
        Self::Ipv4Group,
        Self::Ipv6Group,
        Self::Ipv4Prefix,
        Self::Ipv6Prefix64,
        Self::Ipv6Prefix128,
        Self::AclIpv4,
        Self::AclIpv6,
        Self::EcmpMember,
        Self::EcmpGroup,
        Self::Rif,
        Self::Vrf,
        Self::PortChannel,
        Self::PortChannelMember,
    ];

    /// The name in platform files, messages and the SDK.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mac => "mac",
            Self::Ipv4Host => "ipv4_host",
            Self::Ipv6Host => "ipv6_host",
            Self::Ipv4Group => "ipv4_group",
            Self::Ipv6Group => "ipv6_group",
            Self::Ipv4Prefix => "ipv4_prefix",
            Self::Ipv6Prefix64 => "ipv6_prefix64",
            Self::Ipv6Prefix128 => "ipv6_prefix128",
            Self::AclIpv4 => "acl_ipv4",
            Self::AclIpv6 => "acl_ipv6",
            Self::EcmpMember => "ecmp_member",
            Self::EcmpGroup => "ecmp_group",
            Self::Rif => "rif",
            Self::Vrf => "vrf",
            Self::PortChannel => "port_channel",
            Self::PortChannelMember => "port_channel_member",
        }
    }

    /// True if a table of this kind can contain objects of this kind.
    #[must_use]
    pub const fn fits(self, kind: TableKind) -> bool {
        match self {
            Self::Mac | Self::Ipv4Host | Self::Ipv6Host | Self::Ipv4Group | Self::Ipv6Group => {
                matches!(kind, TableKind::Exact)
            }
            Self::Ipv4Prefix | Self::Ipv6Prefix64 | Self::Ipv6Prefix128 => {
                matches!(kind, TableKind::Lpm | TableKind::Tcam)
            }
            Self::AclIpv4 | Self::AclIpv6 => matches!(kind, TableKind::Tcam),
            Self::EcmpMember
            | Self::EcmpGroup
            | Self::Rif
            | Self::Vrf
            | Self::PortChannel
            | Self::PortChannelMember => matches!(kind, TableKind::Index),
        }
    }
}

/// The units of memory that one entry takes: a power of two, 1-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Width(u32);

impl Width {
    /// A width of this many units. The widths of a platform file are checked when it is read.
    #[must_use]
    pub const fn new(units: u32) -> Self {
        Self(units)
    }
    /// The units.
    #[must_use]
    pub const fn units(self) -> u32 {
        self.0
    }
}
