//! snoop: multicast snooping (RFC 4541). Messages about memberships go to the control plane, which relays them to the
//! ports that need them. A frame of a group goes to the ports of its members and to those of routers; `bridge`
//! takes these from the flood set, so every other restriction of a flood holds as well.
//!
//! The stage follows `learn`, because the source of such a message is a station, and a port that spanning tree blocks has
//! no members. 224.0.0.0/24 and IPv6 groups of link scope are never limited (`lanyard_wire::group`).

use super::Arrival;
use super::parse::Parsed;
use super::vlan_ingress::Class;
use crate::state::{PlaneState, Unregistered};
use crate::tables::Tables;
use crate::tables::mdb::{Flooded, MdbChange};
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{Family, PortSet, Rng, Stage, TrapReason, VlanId};
use lanyard_wire::group::{Membership, Packet};
use lanyard_wire::{HEADER_LEN, TAG_LEN};
use std::net::IpAddr;

/// Traps a message about memberships. For any other frame, returns the ports to which it is limited; `None` if it is not limited.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    frame: &Parsed,
    class: &Class,
    notes: &mut Notes,
) -> Result<Option<PortSet>, Verdict> {
    let snooping = tables.vlans.get(class.shared).map(|vlan| vlan.snooping).unwrap_or_default();
    if snooping == [None; 2] || !frame.dst.is_group() {
        return Ok(None);
    }
    let at = HEADER_LEN + if frame.tag.is_some() { TAG_LEN } else { 0 };
    let (Some([high, low]), Some(payload)) = (arrival.bytes.get(at - 2..at), arrival.bytes.get(at..)) else {
        return Ok(None);
    };
    let ethertype = u16::from_be_bytes([*high, *low]);
    let Some(unregistered) = snooping[Packet::family(ethertype).index()] else { return Ok(None) };
    match Packet::read(frame.dst, ethertype, payload) {
        None | Some(Packet::LinkLocal) => Ok(None),
        Some(Packet::Membership(message)) => {
            let reason = reason(message);
            notes.say(Stage::Snoop, || Fact::Trapped { dst: frame.dst, reason });
            Err(Verdict::Trapped(reason))
        }
        Some(Packet::Group { group, source }) => {
            let ports = members(tables, class.shared, group, source, unregistered);
            if let Some(ports) = &ports {
                let count = ports.len();
                notes.say(Stage::Snoop, || Fact::Members { group, source, ports: count });
            }
            Ok(ports)
        }
    }
}

/// The reason for which a message is trapped.
#[must_use]
pub const fn reason(message: Membership) -> TrapReason {
    match message {
        Membership::Igmp => TrapReason::Igmp,
        Membership::Mld => TrapReason::Mld,
        Membership::PimHello => TrapReason::PimHello,
    }
}

/// The ports that get a group's packets, those of routers included; `None`: all.
fn members(
    tables: &Tables,
    vlan: VlanId,
    group: IpAddr,
    source: IpAddr,
    unregistered: Unregistered,
) -> Option<PortSet> {
    let family = Family::of(group);
    let flooded = tables.mdb.flooded(vlan, family);
    if flooded == Flooded::All {
        return None;
    }
    match tables.mdb.lookup(vlan, group, source) {
        Some(ports) => Some(ports.union(tables.mdb.routers(vlan, family))),
        None if unregistered == Unregistered::Flood || flooded == Flooded::Unregistered => None,
        None => Some(tables.mdb.routers(vlan, family).clone()),
    }
}

/// Turns snooping on in some VLANs of a generated state.
pub(super) fn randomise(rng: &mut Rng, plane: &mut PlaneState) {
    for vlan in plane.vlans.values_mut() {
        for family in &mut vlan.snooping {
            let some = [None, Some(Unregistered::Flood), Some(Unregistered::Routers)];
            *family = rng.pick(&some).flatten();
        }
    }
}

/// A change of the MDB of a generated state: few groups and sources occur, so that generated frames match them.
pub(crate) fn random_change(rng: &mut Rng, vlan: VlanId, ports: &PortSet) -> MdbChange {
    let family = if rng.percent(50) { Family::V4 } else { Family::V6 };
    let some = |rng: &mut Rng| Box::new(ports.iter().filter(|_| rng.percent(35)).collect::<PortSet>());
    match rng.below(10) {
        0 => MdbChange::Routers { vlan, family, ports: some(rng) },
        1 => {
            let flooded =
                rng.pick(&[Flooded::Nothing, Flooded::Nothing, Flooded::Unregistered, Flooded::All]);
            MdbChange::Flood { vlan, family, flooded: flooded.unwrap_or_default() }
        }
        _ => {
            let source = rng.percent(30).then(|| random_source(rng, family));
            let ports = (!rng.percent(15)).then(|| some(rng));
            MdbChange::Entry { vlan, group: random_group(rng, family), source, ports }
        }
    }
}

/// One of few groups; some of them are always flooded.
pub(crate) fn random_group(rng: &mut Rng, family: Family) -> IpAddr {
    let last = rng.below(4) as u8;
    match (family, rng.below(8)) {
        (Family::V4, 0) => [224, 0, 0, 1 + last].into(),
        (Family::V4, _) => [239, 1, 1, last].into(),
        (Family::V6, scope) => {
            let mut octets = [0; 16];
            (octets[0], octets[1], octets[15]) = (0xff, if scope == 0 { 0x02 } else { 0x05 }, last);
            octets.into()
        }
    }
}

/// One of few sources.
pub(crate) fn random_source(rng: &mut Rng, family: Family) -> IpAddr {
    let last = 1 + rng.below(3) as u8;
    match family {
        Family::V4 => [10, 0, 0, last].into(),
        Family::V6 => [0xfe80, 0, 0, 0, 0, 0, 0, u16::from(last)].into(),
    }
}
