//! Index newtypes: ports, VLANs, spanning-tree instances.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of port slots in every plane, with slot 0 (no port); the Linux bridge has the same limit.
pub const MAX_PORTS: usize = 1024;
/// The number of VLAN slots; 0 and 4095 are included so that a VLAN identifier indexes a table directly.
pub const MAX_VLANS: usize = 4096;

/// A port of the switch: 1..=1023, stable for as long as the port is configured. 0 means "no port" in the
/// planes' tables and is not a value of this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortId(u16);

impl PortId {
    /// The port with this index; `None` outside 1..=1023.
    #[must_use]
    pub const fn new(index: u16) -> Option<Self> {
        if index >= 1 && (index as usize) < MAX_PORTS { Some(Self(index)) } else { None }
    }
    /// The index, 1..=1023.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
    /// The index as a table index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// Every port, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..MAX_PORTS as u16).map(Self)
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($int:ty), $min:literal..=$max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($int);

        impl $name {
            /// The highest valid value.
            pub const MAX: Self = Self($max);

            /// The identifier with this number; `None` when the number is out of range.
            #[must_use]
            pub const fn new(index: $int) -> Option<Self> {
                match index {
                    $min..=$max => Some(Self(index)),
                    _ => None,
                }
            }
            /// The number.
            #[must_use]
            pub const fn get(self) -> $int {
                self.0
            }
            /// The number as a table index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// A routing table of the plane: 0 is the switch's own, 1..=31 are VRFs (each a network namespace).
    VrfId(u8), 0..=31
}

impl VrfId {
    /// The switch's own routing table.
    pub const DEFAULT: Self = Self(0);
}

index! {
    /// A router interface: VLAN interface, routed port or subinterface that the plane routes for. 0 means "none" in
    /// the planes' tables.
    RifId(u16), 1..=4095
}

index! {
    /// An adjacency: a next hop with its resolved MAC address. 0 means "none" in the planes' tables.
    AdjacencyId(u32), 1..=65_535
}

index! {
    /// A next-hop group: the adjacencies that a route refers to. 0 means "none" in the planes' tables.
    GroupId(u32), 1..=65_535
}

index! {
    /// An access list in a plane's tables; or the list that a VLAN map becomes there for one family of frames. 0 means
    /// "none" in the planes' tables.
    AclId(u16), 1..=1023
}

index! {
    /// A port-channel (link aggregation group): the number of `interface port-channel N`. 0 means "none" in the planes'
    /// tables.
    ChannelId(u8), 1..=255
}

/// The first VLAN above the range of VTP (1 to 1005), where IOS begins to allocate internal VLANs.
const FIRST_INTERNAL_VLAN: u16 = 1006;

impl ChannelId {
    /// The VLAN that a routed port-channel has to itself, 1006 for the first. No other port is a member of it, it has no
    /// spanning tree, and it cannot be configured.
    #[must_use]
    pub const fn internal_vlan(self) -> Option<VlanId> {
        VlanId::new(FIRST_INTERNAL_VLAN - 1 + self.0 as u16)
    }
}

/// A VLAN identifier: 1..=4094 (IEEE 802.1Q-2018, 9.6; 0 is the priority tag, 4095 is reserved).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VlanId(u16);

/// The error for a number that is not a VLAN identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a VLAN: 1 to 4094")]
pub struct VlanIdError(pub String);

impl VlanId {
    /// VLAN 1, which always exists.
    pub const DEFAULT: Self = Self(1);

    /// The VLAN with this number; `None` outside 1..=4094.
    #[must_use]
    pub const fn new(id: u16) -> Option<Self> {
        if id >= 1 && id <= 4094 { Some(Self(id)) } else { None }
    }
    /// The number, 1..=4094.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
    /// The number as a table index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// All 4,094 VLANs, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=4094).map(Self)
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for VlanId {
    type Err = VlanIdError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().ok().and_then(Self::new).ok_or_else(|| VlanIdError(s.to_owned()))
    }
}

/// A spanning-tree instance: 0 is the common tree (or the only tree), 1..=63 are further ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct InstanceId(u8);

impl InstanceId {
    /// The number of instance slots.
    pub const MAX: usize = 64;
    /// The instance with this index; `None` above 63.
    #[must_use]
    pub const fn new(index: u8) -> Option<Self> {
        if (index as usize) < Self::MAX { Some(Self(index)) } else { None }
    }
    /// The index, 0..=63.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
    /// The index as a table index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A port's state in one spanning tree (IEEE 802.1Q-2018, 8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum StpState {
    /// The port neither learns addresses nor forwards frames.
    Discarding,
    /// The port learns addresses and does not forward frames.
    Learning,
    /// The port learns addresses and forwards frames.
    #[default]
    Forwarding,
}
