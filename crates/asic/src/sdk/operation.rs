//! [`Operation`]: one step of a transaction. A chip's whole configuration is a list of operations, too: applied to an
//! empty chip they give the same chip again, which is how a driver reads the configuration back after a restart.
//!
//! Frequent operations are encoded in a few bytes. Settings of ports, VLANs and router interfaces are JSON texts, whose
//! keys are those of `lanyard_pipeline::state`.

use super::bytes::{Malformed, Reader, Writer, malformed};
use super::list;
use crate::tables::{AclRule, PortRange};
use ipnet::IpNet;
use lanyard_acl::PlaneList;
use lanyard_pipeline::route::{Adjacency, BUCKETS, RifState, RouteTarget};
use lanyard_pipeline::state::{
    CHANNEL_BUCKETS, ChannelMembers, FdbTarget, GlobalState, PortState, VlanState,
};
use lanyard_pipeline::tables::mdb::{Flooded, MdbChange, check};
use lanyard_types::{
    AclId, AdjacencyId, ChannelId, Family, GroupId, InstanceId, MAX_PORTS, MacAddr, PortId, PortSet, RifId,
    StpState, TrapReason, VlanId, VrfId,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::IpAddr;
use std::sync::Arc;

/// One step of a transaction; `None` removes the object. The object gets its new value regardless of the old one, and removing an
/// absent object succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Settings of the whole chip.
    Global(Box<GlobalState>),
    /// A port's settings.
    Port(PortId, Option<Box<PortState>>),
    /// A VLAN.
    Vlan(VlanId, Option<VlanState>),
    /// A port's state in a tree.
    Stp(InstanceId, PortId, StpState),
    /// An FDB entry that the control plane has set, not a learned one.
    Fdb(VlanId, MacAddr, Option<FdbTarget>),
    /// A router interface.
    Rif(RifId, Option<Box<RifState>>),
    /// A next hop's MAC address and interface.
    Adjacency(AdjacencyId, Option<Adjacency>),
    /// The adjacency of each bucket of a next-hop group.
    Group(GroupId, Option<Vec<AdjacencyId>>),
    /// A route.
    Route(VrfId, IpNet, Option<RouteTarget>),
    /// A rule of an access list (true: present) that only takes entries in the tables, without an effect on frames. The lists by
    /// which frames are judged are set by [`Operation::List`].
    Rule(AclRule, bool),
    /// The ports with members of a multicast group of a VLAN, for packets from one source or (`None`) from sources without an
    /// entry of their own. It takes an entry in the tables, or is refused.
    Multicast(VlanId, IpAddr, Option<IpAddr>, Option<Box<PortSet>>),
    /// The ports of a VLAN that lead to multicast routers; an empty set removes.
    Routers(VlanId, Family, Box<PortSet>),
    /// The groups of a VLAN that are flooded although it is snooped; [`Flooded::Nothing`] removes.
    Flood(VlanId, Family, Flooded),
    /// An access list, which ports and VLANs refer to. It takes the entries of all of its rules, or is refused.
    List(AclId, Option<Arc<PlaneList>>),
    /// True: a list, which need not exist yet, is diverted. It takes no entries, and the driver judges the frames that the chip
    /// would judge by it ([`Notice::Diverted`](super::message::Notice::Diverted)). False: it takes its entries, or the operation
    /// is refused.
    Divert(AclId, bool),
    /// The members in use of a port-channel, which need not exist yet. The settings of a port ([`Operation::Port`]) make it a
    /// member; the chip's settings ([`Operation::Global`]) determine the fields that are hashed.
    Channel(ChannelId, Option<Box<ChannelMembers>>),
    /// True: the watchdog of spanning tree blocks the port in the tree when it expires
    /// ([`Request::TreeWatchdog`](super::message::Request::TreeWatchdog)).
    Watched(InstanceId, PortId, bool),
}

/// The kind of an operation or of another request to the chip, as named in a fault plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// [`Operation::Global`].
    Global = 1,
    /// [`Operation::Port`].
    Port = 2,
    /// [`Operation::Vlan`].
    Vlan = 3,
    /// [`Operation::Stp`].
    Stp = 4,
    /// [`Operation::Fdb`].
    Fdb = 5,
    /// [`Operation::Rif`].
    Rif = 6,
    /// [`Operation::Adjacency`].
    Adjacency = 7,
    /// [`Operation::Group`].
    Group = 8,
    /// [`Operation::Route`].
    Route = 9,
    /// [`Operation::Rule`].
    Rule = 10,
    /// [`Operation::Multicast`].
    Multicast = 11,
    /// [`Operation::List`].
    List = 12,
    /// [`Operation::Divert`].
    Divert = 13,
    /// [`Operation::Routers`].
    Routers = 14,
    /// [`Operation::Flood`].
    Flood = 15,
    /// [`Operation::Channel`].
    Channel = 16,
    /// [`Operation::Watched`].
    Watched = 17,
    /// A change of a table's size: the first kind that is not a step of a transaction.
    Resize = 64,
    /// A query of any kind.
    Query,
    /// The removal of learned entries.
    Flush,
    /// The ageing of learned entries.
    Age,
    /// A frame from the CPU, or a diverted one that comes back.
    Packet,
    /// A request about a watchdog.
    Watchdog,
}

impl OperationKind {
    /// Every kind.
    pub const ALL: [Self; 23] = [
        Self::Global,
        Self::Port,
        Self::Vlan,
        Self::Stp,
        Self::Fdb,
        Self::Rif,
        Self::Adjacency,
        Self::Group,
        Self::Route,
        Self::Rule,
        Self::Multicast,
        Self::List,
        Self::Divert,
        Self::Routers,
        Self::Flood,
        Self::Channel,
        Self::Watched,
        Self::Resize,
        Self::Query,
        Self::Flush,
        Self::Age,
        Self::Packet,
        Self::Watchdog,
    ];
    /// True for a step of a transaction.
    #[must_use]
    pub const fn is_step(self) -> bool {
        (self as u8) < Self::Resize as u8
    }
    /// True for a step that the protocols of the switch write, through a connection of their own: states of ports in trees and
    /// which of them are watched, what multicast snooping has learned, and the members in use of port-channels.
    #[must_use]
    pub const fn is_of_protocols(self) -> bool {
        matches!(
            self,
            Self::Stp | Self::Watched | Self::Multicast | Self::Routers | Self::Flood | Self::Channel
        )
    }
    /// The name in fault plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Port => "port",
            Self::Vlan => "vlan",
            Self::Stp => "stp",
            Self::Fdb => "fdb",
            Self::Rif => "rif",
            Self::Adjacency => "adjacency",
            Self::Group => "group",
            Self::Route => "route",
            Self::Rule => "rule",
            Self::Multicast => "multicast",
            Self::List => "list",
            Self::Divert => "divert",
            Self::Routers => "routers",
            Self::Flood => "flood",
            Self::Channel => "channel",
            Self::Watched => "watched",
            Self::Resize => "resize",
            Self::Query => "query",
            Self::Flush => "flush",
            Self::Age => "age",
            Self::Packet => "packet",
            Self::Watchdog => "watchdog",
        }
    }
}

impl Operation {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Global(_) => OperationKind::Global,
            Self::Port(..) => OperationKind::Port,
            Self::Vlan(..) => OperationKind::Vlan,
            Self::Stp(..) => OperationKind::Stp,
            Self::Fdb(..) => OperationKind::Fdb,
            Self::Rif(..) => OperationKind::Rif,
            Self::Adjacency(..) => OperationKind::Adjacency,
            Self::Group(..) => OperationKind::Group,
            Self::Route(..) => OperationKind::Route,
            Self::Rule(..) => OperationKind::Rule,
            Self::Multicast(..) => OperationKind::Multicast,
            Self::List(..) => OperationKind::List,
            Self::Divert(..) => OperationKind::Divert,
            Self::Routers(..) => OperationKind::Routers,
            Self::Flood(..) => OperationKind::Flood,
            Self::Channel(..) => OperationKind::Channel,
            Self::Watched(..) => OperationKind::Watched,
        }
    }

    /// Appends the operation to a message.
    pub fn write(&self, into: &mut Writer) {
        into.u8(self.kind() as u8);
        match self {
            Self::Global(state) => json(into, Some(state)),
            Self::Port(port, state) => {
                into.u16(port.get());
                json(into, state.as_ref());
            }
            Self::Vlan(vlan, state) => {
                into.u16(vlan.get());
                json(into, state.as_ref());
            }
            Self::Rif(rif, state) => {
                into.u16(rif.get());
                json(into, state.as_ref());
            }
            Self::Stp(instance, port, state) => {
                into.u8(instance.get());
                into.u16(port.get());
                into.u8(*state as u8);
            }
            Self::Fdb(vlan, mac, target) => write_fdb(into, *vlan, *mac, *target),
            Self::Adjacency(id, adjacency) => {
                into.u32(id.get());
                into.u16(adjacency.map_or(0, |adjacency| adjacency.rif.get()));
                let mac = adjacency.and_then(|adjacency| adjacency.mac);
                into.u8(u8::from(mac.is_some()));
                into.raw(&mac.unwrap_or_default().0);
            }
            Self::Group(id, buckets) => {
                into.u32(id.get());
                into.u16(buckets.as_ref().map_or(0, Vec::len) as u16);
                buckets.iter().flatten().for_each(|adjacency| into.u32(adjacency.get()));
            }
            Self::Route(vrf, prefix, target) => write_route(into, *vrf, prefix, *target),
            Self::Rule(rule, present) => {
                into.u8(u8::from(*present));
                into.u32(rule.list);
                into.u32(rule.sequence);
                into.u8(u8::from(rule.ipv6));
                for port in [rule.source.low, rule.source.high, rule.destination.low, rule.destination.high] {
                    into.u16(port);
                }
            }
            Self::Multicast(vlan, group, source, ports) => {
                into.u8(u8::from(ports.is_some()));
                into.u16(vlan.get());
                into.address(Some(*group));
                into.address(*source);
                ports.iter().for_each(|ports| write_ports(into, ports));
            }
            Self::Routers(vlan, family, ports) => {
                into.u16(vlan.get());
                into.u8(family_code(*family));
                write_ports(into, ports);
            }
            Self::Flood(vlan, family, flooded) => {
                into.u16(vlan.get());
                into.u8(family_code(*family));
                into.u8(*flooded as u8);
            }
            Self::List(id, rules) => {
                into.u16(id.get());
                into.u8(u8::from(rules.is_some()));
                rules.iter().for_each(|rules| list::write(into, rules));
            }
            Self::Divert(id, on) => {
                into.u16(id.get());
                into.u8(u8::from(*on));
            }
            Self::Channel(id, members) => write_channel(into, *id, members.as_deref()),
            Self::Watched(instance, port, on) => {
                into.u8(instance.get());
                into.u16(port.get());
                into.u8(u8::from(*on));
            }
        }
    }

    /// Reads an operation.
    ///
    /// # Errors
    /// When a field is out of its range.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let code = from.u8()?;
        let Some(kind) = OperationKind::ALL.into_iter().find(|kind| *kind as u8 == code) else {
            return malformed(format!("{code} is no operation"));
        };
        Ok(match kind {
            OperationKind::Global => match parse(from, "global")? {
                Some(state) => Self::Global(Box::new(state)),
                None => return malformed("the global settings cannot be removed"),
            },
            OperationKind::Port => Self::Port(port(from)?, parse(from, "port")?.map(Box::new)),
            OperationKind::Vlan => Self::Vlan(vlan(from)?, parse(from, "VLAN")?),
            OperationKind::Rif => Self::Rif(rif(from)?, parse(from, "router interface")?.map(Box::new)),
            OperationKind::Stp => read_stp(from)?,
            OperationKind::Fdb => read_fdb(from)?,
            OperationKind::Adjacency => read_adjacency(from)?,
            OperationKind::Group => read_group(from)?,
            OperationKind::Route => read_route(from)?,
            OperationKind::Rule => read_rule(from)?,
            OperationKind::Multicast => read_multicast(from)?,
            OperationKind::Routers => {
                let (vlan, family) = (vlan(from)?, family(from)?);
                Self::Routers(vlan, family, Box::new(read_ports(from)?))
            }
            OperationKind::Flood => {
                let (vlan, family) = (vlan(from)?, family(from)?);
                let flooded = match from.u8()? {
                    0 => Flooded::Nothing,
                    1 => Flooded::Unregistered,
                    2 => Flooded::All,
                    other => {
                        return malformed(format!("{other} where 0, 1 or 2 says which groups are flooded"));
                    }
                };
                Self::Flood(vlan, family, flooded)
            }
            OperationKind::Divert => Self::Divert(acl(from)?, from.flag()?),
            OperationKind::Channel => read_channel(from)?,
            OperationKind::Watched => Self::Watched(tree(from)?, port(from)?, from.flag()?),
            OperationKind::List => {
                let id = acl(from)?;
                let present = from.flag()?;
                Self::List(id, if present { Some(Arc::new(list::read(from)?)) } else { None })
            }
            OperationKind::Resize
            | OperationKind::Query
            | OperationKind::Flush
            | OperationKind::Age
            | OperationKind::Packet
            | OperationKind::Watchdog => {
                return malformed(format!("{} is no step of a transaction", kind.name()));
            }
        })
    }
}

impl From<&MdbChange> for Operation {
    fn from(change: &MdbChange) -> Self {
        match change.clone() {
            MdbChange::Entry { vlan, group, source, ports } => Self::Multicast(vlan, group, source, ports),
            MdbChange::Routers { vlan, family, ports } => Self::Routers(vlan, family, ports),
            MdbChange::Flood { vlan, family, flooded } => Self::Flood(vlan, family, flooded),
        }
    }
}

impl Operation {
    /// The operation as a change of the MDB; `None` for an operation that is none.
    #[must_use]
    pub fn mdb_change(&self) -> Option<MdbChange> {
        match self.clone() {
            Self::Multicast(vlan, group, source, ports) => {
                Some(MdbChange::Entry { vlan, group, source, ports })
            }
            Self::Routers(vlan, family, ports) => Some(MdbChange::Routers { vlan, family, ports }),
            Self::Flood(vlan, family, flooded) => Some(MdbChange::Flood { vlan, family, flooded }),
            _ => None,
        }
    }
}

pub(super) fn acl(from: &mut Reader<'_>) -> Result<AclId, Malformed> {
    let number = from.u16()?;
    from.index("access list", number, AclId::new)
}

fn json(into: &mut Writer, value: Option<&impl Serialize>) {
    // The types of the pipeline's state have no maps with keys other than texts, so they can always be written as JSON.
    // An empty text stands for `None`, which removes the object.
    let text = value.and_then(|value| serde_json::to_string(value).ok());
    into.text(text.as_deref().unwrap_or_default());
}

fn parse<T: DeserializeOwned>(from: &mut Reader<'_>, what: &str) -> Result<Option<T>, Malformed> {
    match from.text()? {
        "" => Ok(None),
        text => serde_json::from_str(text).map(Some).or_else(|error| malformed(format!("{what}: {error}"))),
    }
}

fn port(from: &mut Reader<'_>) -> Result<PortId, Malformed> {
    let number = from.u16()?;
    from.index("port", number, PortId::new)
}
fn vlan(from: &mut Reader<'_>) -> Result<VlanId, Malformed> {
    let number = from.u16()?;
    from.index("VLAN", number, VlanId::new)
}
fn rif(from: &mut Reader<'_>) -> Result<RifId, Malformed> {
    let number = from.u16()?;
    from.index("router interface", number, RifId::new)
}
fn adjacency(from: &mut Reader<'_>) -> Result<AdjacencyId, Malformed> {
    let number = from.u32()?;
    from.index("adjacency", number, AdjacencyId::new)
}

const fn family_code(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}
fn family(from: &mut Reader<'_>) -> Result<Family, Malformed> {
    match from.u8()? {
        4 => Ok(Family::V4),
        6 => Ok(Family::V6),
        other => malformed(format!("address family {other} is not 4 or 6")),
    }
}

/// A set of ports: their count, then their numbers, ascending.
pub(super) fn write_ports(into: &mut Writer, ports: &PortSet) {
    into.u16(ports.len() as u16);
    ports.iter().for_each(|port| into.u16(port.get()));
}
pub(super) fn read_ports(from: &mut Reader<'_>) -> Result<PortSet, Malformed> {
    let count = usize::from(from.u16()?);
    if count >= MAX_PORTS {
        return malformed(format!("a set of {count} ports; {} are the most", MAX_PORTS - 1));
    }
    let (mut set, mut last) = (PortSet::EMPTY, None);
    for _ in 0..count {
        let next = port(from)?;
        if last >= Some(next) {
            return malformed(format!("port {next} of a set of ports is not in ascending order"));
        }
        last = Some(next);
        set.insert(next);
    }
    Ok(set)
}

/// Appends the collecting members, the number of buckets, and the member of each bucket. `None` is written like a value without
/// members and buckets.
fn write_channel(into: &mut Writer, id: ChannelId, members: Option<&ChannelMembers>) {
    into.u8(id.get());
    let collecting = members.map(|members| members.collecting.iter().copied().collect());
    write_ports(into, &collecting.unwrap_or_default());
    let buckets = members.map_or(&[][..], |members| &members.buckets);
    into.u16(buckets.len() as u16);
    buckets.iter().for_each(|member| into.u16(member.get()));
}

fn read_channel(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let number = from.u8()?;
    let id = from.index("port-channel", number, ChannelId::new)?;
    let collecting = read_ports(from)?.iter().collect();
    let count = usize::from(from.u16()?);
    if count != 0 && count != CHANNEL_BUCKETS {
        return malformed(format!("{count} buckets of port-channel {id}, not 0 or {CHANNEL_BUCKETS}"));
    }
    let buckets = (0..count).map(|_| port(from)).collect::<Result<_, _>>()?;
    let members = ChannelMembers { collecting, buckets };
    Ok(Operation::Channel(id, (members != ChannelMembers::default()).then(|| Box::new(members))))
}

fn read_multicast(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let present = from.flag()?;
    let vlan = vlan(from)?;
    let Some(group) = from.address()? else {
        return malformed("a multicast group without an address");
    };
    let source = from.address()?;
    check(group, source).or_else(|why| malformed(why.to_string()))?;
    let ports = if present { Some(Box::new(read_ports(from)?)) } else { None };
    Ok(Operation::Multicast(vlan, group, source, ports))
}

fn tree(from: &mut Reader<'_>) -> Result<InstanceId, Malformed> {
    let number = from.u8()?;
    from.index("tree", number, InstanceId::new)
}

fn read_stp(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let (instance, port) = (tree(from)?, port(from)?);
    let state = match from.u8()? {
        0 => StpState::Discarding,
        1 => StpState::Learning,
        2 => StpState::Forwarding,
        other => return malformed(format!("{other} is no spanning-tree state")),
    };
    Ok(Operation::Stp(instance, port, state))
}

fn write_fdb(into: &mut Writer, vlan: VlanId, mac: MacAddr, target: Option<FdbTarget>) {
    into.u16(vlan.get());
    into.raw(&mac.0);
    into.u8(match target {
        None => 0,
        Some(FdbTarget::Static(_)) => 1,
        Some(FdbTarget::Sticky(_)) => 2,
        Some(FdbTarget::SelfAddress(_)) => 3,
        Some(FdbTarget::Blackhole) => 4,
    });
    into.u16(target.and_then(FdbTarget::port).map_or(0, PortId::get));
}

fn read_fdb(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let (vlan, mac, kind, number) = (vlan(from)?, from.mac()?, from.u8()?, from.u16()?);
    let target: fn(PortId) -> FdbTarget = match (kind, number) {
        (0, 0) => return Ok(Operation::Fdb(vlan, mac, None)),
        (4, 0) => return Ok(Operation::Fdb(vlan, mac, Some(FdbTarget::Blackhole))),
        (1, _) => FdbTarget::Static,
        (2, _) => FdbTarget::Sticky,
        (3, _) => FdbTarget::SelfAddress,
        _ => return malformed(format!("{kind} with port {number} is no FDB entry")),
    };
    let port = from.index("port", number, PortId::new)?;
    Ok(Operation::Fdb(vlan, mac, Some(target(port))))
}

fn read_adjacency(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let (id, number, known, mac) = (adjacency(from)?, from.u16()?, from.flag()?, from.mac()?);
    if number == 0 {
        return Ok(Operation::Adjacency(id, None));
    }
    let rif = from.index("router interface", number, RifId::new)?;
    Ok(Operation::Adjacency(id, Some(Adjacency { rif, mac: known.then_some(mac) })))
}

fn read_group(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let number = from.u32()?;
    let id = from.index("next-hop group", number, GroupId::new)?;
    let count = usize::from(from.u16()?);
    if count > BUCKETS {
        return malformed(format!("{count} buckets; {BUCKETS} is the most"));
    }
    let buckets = (0..count).map(|_| adjacency(from)).collect::<Result<Vec<_>, _>>()?;
    Ok(Operation::Group(id, (count > 0).then_some(buckets)))
}

fn write_route(into: &mut Writer, vrf: VrfId, prefix: &IpNet, target: Option<RouteTarget>) {
    into.u8(vrf.get());
    into.prefix(prefix);
    let (kind, value) = match target {
        None => (0, 0),
        Some(RouteTarget::Group(group)) => (1, group.get()),
        Some(RouteTarget::Up(reason)) => (2, reason.index() as u32),
        Some(RouteTarget::Connected(rif)) => (3, rif.get().into()),
        Some(RouteTarget::Blackhole) => (4, 0),
    };
    into.u8(kind);
    into.u32(value);
}

fn read_route(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let number = from.u8()?;
    let vrf = from.index("VRF", number, VrfId::new)?;
    let prefix = from.prefix()?;
    let (kind, value) = (from.u8()?, from.u32()?);
    let target = match kind {
        0 if value == 0 => None,
        1 => Some(RouteTarget::Group(from.index("next-hop group", value, GroupId::new)?)),
        2 => match u8::try_from(value).ok().and_then(TrapReason::from_u8) {
            Some(reason) => Some(RouteTarget::Up(reason)),
            None => return malformed(format!("{value} is no trap reason")),
        },
        3 => {
            let number = u16::try_from(value).unwrap_or(0);
            Some(RouteTarget::Connected(from.index("router interface", number, RifId::new)?))
        }
        4 if value == 0 => Some(RouteTarget::Blackhole),
        _ => return malformed(format!("{kind} with {value} is no target of a route")),
    };
    Ok(Operation::Route(vrf, prefix, target))
}

fn read_rule(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let present = from.flag()?;
    let (list, sequence, ipv6) = (from.u32()?, from.u32()?, from.flag()?);
    let source = PortRange { low: from.u16()?, high: from.u16()? };
    let destination = PortRange { low: from.u16()?, high: from.u16()? };
    Ok(Operation::Rule(AclRule { list, sequence, ipv6, source, destination }, present))
}
