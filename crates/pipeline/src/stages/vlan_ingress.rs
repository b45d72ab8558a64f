//! vlan_ingress: classifies the frame into a VLAN (IEEE 802.1Q-2018, 6.9), and checks membership (8.6.2) and
//! spanning-tree state (8.4).
//!
//! Order: classification, membership, activity of the VLAN, spanning-tree state. Priority and drop eligibility of a
//! recognised tag are kept, also those of a priority tag.
//!
//! A host port or promiscuous port of private VLANs receives in one VLAN and sends in others: it is the port's PVID that
//! decides what it may receive, and not membership.

use super::Arrival;
use super::parse::Parsed;
use crate::route::{RifAttachment, RifState};
use crate::state::{PlaneState, PortState, Shares, StpState, Tpid};
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, InstanceId, Rng, Stage, VlanId, VlanSet};
use lanyard_wire::Tag;

/// The VID of a priority tag, which names no VLAN.
pub(super) const PRIORITY_VID: u16 = 0;
/// The reserved VID.
const RESERVED_VID: u16 = 4095;

/// A frame's VLAN, and what depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// The VLAN.
    pub vlan: VlanId,
    /// Its spanning-tree instance.
    pub instance: InstanceId,
    /// The VLAN under which the FDB and the MDB have its addresses and groups: for a secondary private VLAN, its primary VLAN.
    pub shared: VlanId,
    /// The ingress port's state in that instance: learning or forwarding.
    pub stp: StpState,
    /// The tag of copies that leave tagged.
    pub tag: Tag,
}

/// Classifies the frame and checks that the port may receive it.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    ingress: &PortState,
    frame: &Parsed,
    notes: &mut Notes,
) -> Result<Class, Verdict> {
    let vlan = classify(ingress, frame, notes).map_err(Verdict::Dropped)?;
    let Some(state) = tables.vlans.get(vlan) else { return Err(Verdict::Dropped(DropReason::VlanInactive)) };
    let stp = tables.stp.get(state.instance, arrival.port);
    if stp == StpState::Discarding {
        return Err(Verdict::Dropped(DropReason::StpDiscarding));
    }
    let tag = Tag { vid: vlan.get(), ..frame.tag.unwrap_or_default() };
    Ok(Class { vlan, instance: state.instance, shared: tables.vlans.shared(vlan), stp, tag })
}

/// In a third of the generated states, makes some VLANs secondary ones of others, and some access ports host or promiscuous
/// ports.
pub(super) fn randomise(rng: &mut Rng, plane: &mut PlaneState) {
    let vlans: Vec<VlanId> = plane.vlans.keys().copied().collect();
    let Some(primary) = rng.pick(&vlans).filter(|_| rng.below(3) == 0) else { return };
    let instance = plane.vlans[&primary].instance;
    let has_rif = |vlan: VlanId| {
        let on =
            |rif: &RifState| matches!(rif.attachment, RifAttachment::Vlan { vlan: at, .. } if at == vlan);
        plane.rifs.values().any(on)
    };
    let free: Vec<VlanId> =
        vlans.iter().copied().filter(|vlan| *vlan != primary && !has_rif(*vlan)).collect();
    let mut secondaries = VlanSet::EMPTY;
    for vlan in free {
        if let Some(state) = plane.vlans.get_mut(&vlan).filter(|_| rng.percent(60)) {
            (state.instance, state.shares) = (instance, Some(Shares { primary, routed: rng.percent(50) }));
            secondaries.insert(vlan);
        }
    }
    for port in plane.ports.values_mut().filter(|port| port.access && port.tpid != Tpid::None) {
        let own: VlanSet = port.pvid.into_iter().collect();
        let some: VlanSet = secondaries.iter().filter(|_| rng.percent(60)).collect();
        let primary: VlanSet = [primary].into_iter().collect();
        match rng.below(4) {
            // Promiscuous, or isolated, or of a community.
            0 => (port.private, port.untagged) = (true, own.union(&some)),
            1 => (port.private, port.untagged) = (true, primary),
            2 => (port.private, port.untagged) = (true, own.union(&primary)),
            _ => {}
        }
    }
}

fn classify(ingress: &PortState, frame: &Parsed, notes: &mut Notes) -> Result<VlanId, DropReason> {
    let member = |vlan| match ingress.private {
        true => ingress.pvid == Some(vlan),
        false => ingress.tagged.contains(vlan) || ingress.untagged.contains(vlan),
    };
    let vid = frame.tag.map_or(PRIORITY_VID, |tag| tag.vid);
    if vid == RESERVED_VID {
        return Err(DropReason::VlanInvalid);
    }
    if let Some(vlan) = VlanId::new(vid) {
        notes.say(Stage::VlanIngress, || Fact::Vlan { vlan, tagged: true });
        return match (member(vlan), ingress.access) {
            (true, _) => Ok(vlan),
            (false, true) => Err(DropReason::TaggedOnAccess),
            (false, false) => Err(DropReason::VlanNotAllowed),
        };
    }
    let vlan = ingress.pvid.ok_or(DropReason::UntaggedNotAllowed)?;
    notes.say(Stage::VlanIngress, || Fact::Vlan { vlan, tagged: false });
    if member(vlan) { Ok(vlan) } else { Err(DropReason::VlanNotAllowed) }
}
