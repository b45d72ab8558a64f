//! The items that the switch puts into the chip, and the entries that each item takes.

use super::Refusal;
use super::exact::Key;
use super::tcam::{Order, expand_range};
use crate::object::Object;
use ipnet::IpNet;
use lanyard_acl::key::TRANSPORT;
use lanyard_acl::{Condition, FlatRule, FrameFamily, PlaneList, Verdict};
use lanyard_types::{AclId, GroupId, MacAddr, PortId, RifId, VlanId, VrfId};
use std::fmt;
use std::net::IpAddr;

/// The most members of a next-hop group.
const MAX_MEMBERS: u32 = 4096;

/// A range of TCP or UDP ports, including both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The lowest.
    pub low: u16,
    /// The highest.
    pub high: u16,
}

impl PortRange {
    /// Every port.
    pub const ANY: Self = Self { low: 0, high: u16::MAX };
}

/// A rule of an access list, with the properties that determine its entries in the chip.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AclRule {
    /// The number of the list.
    pub list: u32,
    /// The rule's number within the list: lower numbers match first.
    pub sequence: u32,
    /// True for a rule for IPv6 fields, false for IPv4 or MAC fields.
    pub ipv6: bool,
    /// Source ports.
    pub source: PortRange,
    /// Destination ports.
    pub destination: PortRange,
}

/// An access list, with the properties that determine its entries in the chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListSize {
    /// The list.
    pub id: AclId,
    /// True for a list for IPv6 frames.
    pub ipv6: bool,
    /// The number of its entries.
    pub entries: u32,
}

impl ListSize {
    /// Counts the entries of a list: one for each combination of the prefixes that a rule's ranges expand to, one more for a rule
    /// that permits later fragments, which have no ports, and one for the frames that no rule matches.
    #[must_use]
    pub fn of(id: AclId, list: &PlaneList) -> Self {
        let entries = list.rules.iter().fold(1_u64, |all, rule| all.saturating_add(entries_of(rule)));
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        Self { id, ipv6: list.family == FrameFamily::Ipv6, entries }
    }
    fn object(self) -> Object {
        if self.ipv6 { Object::AclIpv6 } else { Object::AclIpv4 }
    }
}

fn entries_of(rule: &FlatRule) -> u64 {
    let prefixes = |condition: &Condition| match condition {
        Condition::Mask { .. } => 1,
        Condition::Ranges(ranges) => {
            ranges.iter().map(|(low, high)| expand_range(*low, *high).len() as u64).sum()
        }
    };
    let combined =
        rule.conditions.iter().fold(1_u64, |all, (_, condition)| all.saturating_mul(prefixes(condition)));
    let compares_ports = rule.conditions.iter().any(|(half, _)| TRANSPORT >> half & 1 == 1);
    let fragments = rule.fragments && rule.verdict != Verdict::Deny && compares_ports;
    combined.saturating_add(u64::from(fragments))
}

/// An item in the chip.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Item {
    /// A MAC address.
    Mac(VlanId, MacAddr),
    /// A neighbour.
    Host(VrfId, IpAddr),
    /// A multicast group, with its source where forwarding depends on the source.
    Group(VlanId, IpAddr, Option<IpAddr>),
    /// A prefix.
    Prefix(VrfId, IpNet),
    /// A rule of an access list.
    Rule(AclRule),
    /// An access list.
    List(ListSize),
    /// A next-hop group with this many members.
    NextHops(GroupId, u32),
    /// A router interface.
    Rif(RifId),
    /// A routing table.
    Vrf(VrfId),
    /// A port-channel, identified by the number of its port.
    Channel(PortId),
    /// A port that is a member of a port-channel.
    Member(PortId),
}

/// The key of an entry in a hash table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ExactKey {
    Mac(VlanId, MacAddr),
    Host(VrfId, IpAddr),
    Group(VlanId, IpAddr, Option<IpAddr>),
}

impl Key for ExactKey {
    fn words(&self) -> Vec<u64> {
        let address = |address: IpAddr| match address {
            IpAddr::V4(address) => [4, u64::from(u32::from(address))],
            IpAddr::V6(address) => [(u128::from(address) >> 64) as u64, u128::from(address) as u64],
        };
        match self {
            Self::Mac(vlan, mac) => vec![1 << 56 | u64::from(vlan.get()), mac.to_u64()],
            Self::Host(vrf, host) => [vec![2 << 56 | vrf.index() as u64], address(*host).to_vec()].concat(),
            Self::Group(vlan, group, source) => {
                let mut words = vec![3 << 56 | u64::from(vlan.get())];
                words.extend(address(*group));
                words.extend(source.map(address).into_iter().flatten());
                words
            }
        }
    }
}

/// An entry that an item takes in the table for its kind of object, or will take when it is inserted.
#[derive(Debug, Clone)]
pub(super) enum Held {
    Key(Object, ExactKey),
    Prefix(Object, Order),
    Rule(Object, Order),
    /// The first entry (0 before it is allocated) and the number of entries.
    Run(Object, u32, u32),
}

impl Held {
    pub(super) fn object(&self) -> Object {
        match self {
            Self::Key(object, _)
            | Self::Prefix(object, _)
            | Self::Rule(object, _)
            | Self::Run(object, ..) => *object,
        }
    }
}

impl Item {
    /// Refuses items that no chip could contain.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::NextHops(_, members) if !(1..=MAX_MEMBERS).contains(members) => {
                Err(Refusal::Invalid(format!("{self}: a group has 1 to {MAX_MEMBERS} members")))
            }
            Self::Rule(rule)
                if rule.source.low > rule.source.high || rule.destination.low > rule.destination.high =>
            {
                Err(Refusal::Invalid(format!("{self}: the range of ports ends before it begins")))
            }
            Self::Prefix(_, prefix) if *prefix != prefix.trunc() => {
                Err(Refusal::Invalid(format!("{self}: bits are set behind its length")))
            }
            _ => Ok(()),
        }
    }

    /// The kind and the number of the entries of an item that may have very many, so that their number is checked before they are
    /// inserted one by one; `None` for other items.
    pub(super) fn bulk(&self) -> Option<(Object, u32)> {
        match self {
            Self::List(list) => Some((list.object(), list.entries)),
            _ => None,
        }
    }

    /// The entries that it takes, in the order in which they are written.
    pub(super) fn needs(&self) -> Vec<Held> {
        let of = |ipv4: bool, four: Object, six: Object| if ipv4 { four } else { six };
        match self {
            Self::Mac(vlan, mac) => vec![Held::Key(Object::Mac, ExactKey::Mac(*vlan, *mac))],
            Self::Host(vrf, host) => {
                let object = of(host.is_ipv4(), Object::Ipv4Host, Object::Ipv6Host);
                vec![Held::Key(object, ExactKey::Host(*vrf, *host))]
            }
            Self::Group(vlan, group, source) => {
                let object = of(group.is_ipv4(), Object::Ipv4Group, Object::Ipv6Group);
                vec![Held::Key(object, ExactKey::Group(*vlan, *group, *source))]
            }
            Self::Prefix(vrf, prefix) => {
                let long = of(prefix.prefix_len() <= 64, Object::Ipv6Prefix64, Object::Ipv6Prefix128);
                let object = of(prefix.addr().is_ipv4(), Object::Ipv4Prefix, long);
                vec![Held::Prefix(object, prefix_order(*vrf, prefix))]
            }
            Self::Rule(rule) => rule.entries(),
            Self::List(list) => {
                let priority = 1 << 63 | u64::from(list.id.get()) << 32;
                (0..u64::from(list.entries)).map(|part| Held::Rule(list.object(), (priority, part))).collect()
            }
            Self::NextHops(_, members) => {
                vec![Held::Run(Object::EcmpGroup, 0, 1), Held::Run(Object::EcmpMember, 0, *members)]
            }
            Self::Rif(_) => vec![Held::Run(Object::Rif, 0, 1)],
            Self::Vrf(_) => vec![Held::Run(Object::Vrf, 0, 1)],
            Self::Channel(_) => vec![Held::Run(Object::PortChannel, 0, 1)],
            Self::Member(_) => vec![Held::Run(Object::PortChannelMember, 0, 1)],
        }
    }
}

/// The order of a prefix in a TCAM: longer prefixes come first; prefixes of equal length are distinguished by the address.
fn prefix_order(vrf: VrfId, prefix: &IpNet) -> Order {
    let bits = match prefix {
        IpNet::V4(prefix) => u128::from(u32::from(prefix.network())),
        IpNet::V6(prefix) => u128::from(prefix.network()),
    };
    let length = u64::from(prefix.max_prefix_len() - prefix.prefix_len());
    let family = u64::from(prefix.addr().is_ipv6());
    (
        length << 56 | family << 48 | (vrf.index() as u64) << 40 | (bits >> 104) as u64,
        bits as u64 ^ (bits >> 40) as u64,
    )
}

impl AclRule {
    /// The entries of a rule: one for each pair of prefixes to which its port ranges expand.
    fn entries(&self) -> Vec<Held> {
        let object = if self.ipv6 { Object::AclIpv6 } else { Object::AclIpv4 };
        let count = expand_range(self.source.low, self.source.high).len()
            * expand_range(self.destination.low, self.destination.high).len();
        let priority = u64::from(self.list) << 32 | u64::from(self.sequence);
        (0..count as u64).map(|part| Held::Rule(object, (priority, part))).collect()
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(vlan, mac) => write!(f, "MAC address {mac} in VLAN {vlan}"),
            Self::Host(vrf, host) => write!(f, "neighbour {host} in VRF {vrf}"),
            Self::Group(vlan, group, None) => write!(f, "group {group} in VLAN {vlan}"),
            Self::Group(vlan, group, Some(source)) => write!(f, "group {group} from {source} in VLAN {vlan}"),
            Self::Prefix(vrf, prefix) => write!(f, "prefix {prefix} in VRF {vrf}"),
            Self::Rule(rule) => write!(f, "rule {} of access list {}", rule.sequence, rule.list),
            Self::List(list) => write!(f, "access list {} with {} entries", list.id, list.entries),
            Self::NextHops(group, members) => write!(f, "next-hop group {group} with {members} members"),
            Self::Rif(rif) => write!(f, "router interface {rif}"),
            Self::Vrf(vrf) => write!(f, "VRF {vrf}"),
            Self::Channel(port) => write!(f, "port-channel at port {port}"),
            Self::Member(port) => write!(f, "member {port} of a port-channel"),
        }
    }
}
