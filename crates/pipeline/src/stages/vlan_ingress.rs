//! vlan_ingress: classifies the frame into a VLAN (IEEE 802.1Q-2018, 6.9), and checks membership (8.6.2) and
//! spanning-tree state (8.4).
//!
//! Order: classification, membership, activity of the VLAN, spanning-tree state. Priority and drop eligibility of a
//! recognised tag are kept, also those of a priority tag.

use super::Arrival;
use super::parse::Parsed;
use crate::state::{PortState, StpState};
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, InstanceId, Stage, VlanId};
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
    Ok(Class { vlan, instance: state.instance, stp, tag })
}

fn classify(ingress: &PortState, frame: &Parsed, notes: &mut Notes) -> Result<VlanId, DropReason> {
    let member = |vlan| ingress.tagged.contains(vlan) || ingress.untagged.contains(vlan);
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
