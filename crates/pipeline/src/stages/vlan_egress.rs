//! vlan_egress: what each egress port allows (IEEE 802.1Q-2018, 8.6.4): membership, spanning tree, isolation, MTU.
//!
//! A known destination that may not be reached ends the frame with a name, in the order of the checks below. A flood
//! has asked all but the MTU already; a port it is too long for is taken out and counted there.

use super::bridge::Egress;
use super::parse::Parsed;
use super::vlan_ingress::Class;
use crate::state::{PortState, StpState};
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, PortId, Stage};
use lanyard_wire::{HEADER_LEN, TAG_LEN};

/// True when a frame of `untagged_len` bytes fits: one tag of the payload's own is not held against it.
fn fits(port: &PortState, untagged_len: usize) -> bool {
    untagged_len <= port.mtu as usize + HEADER_LEN + TAG_LEN
}

/// What is left of where the frame was to go; ports a flood is too long for go to `oversize`. `from` as in `bridge`.
pub(super) fn run(
    tables: &Tables,
    from: Option<(PortId, &PortState)>,
    frame: &Parsed,
    class: &Class,
    egress: Egress,
    oversize: &mut Vec<PortId>,
    notes: &mut Notes,
) -> Result<Egress, Verdict> {
    let mut ports = match egress {
        Egress::Unicast(port) => {
            unicast(tables, from, frame, class, port).map_err(Verdict::Dropped)?;
            notes.say(Stage::VlanEgress, || Fact::Allowed(tables.ports.name(port)));
            return Ok(Egress::Unicast(port));
        }
        Egress::Flood(ports) => ports,
    };
    debug_assert!(from.is_none_or(|(port, _)| !ports.contains(port)));
    let too_long =
        |port: &PortId| tables.ports.get(*port).is_none_or(|state| !fits(state, frame.untagged_len));
    for port in ports.iter().filter(too_long).collect::<Vec<_>>() {
        ports.remove(port);
        oversize.push(port);
        notes.say(Stage::VlanEgress, || Fact::TooLong(tables.ports.name(port)));
    }
    if ports.is_empty() {
        return Err(Verdict::Dropped(DropReason::MtuExceeded));
    }
    notes.say(Stage::VlanEgress, || Fact::AllowedPorts(ports.len()));
    Ok(Egress::Flood(ports))
}

fn unicast(
    tables: &Tables,
    from: Option<(PortId, &PortState)>,
    frame: &Parsed,
    class: &Class,
    port: PortId,
) -> Result<(), DropReason> {
    let state = tables.ports.get(port).filter(|state| state.enabled).ok_or(DropReason::EgressDown)?;
    if !tables.vlans.members(class.vlan).contains(port) {
        return Err(DropReason::EgressNotMember);
    }
    if tables.stp.get(class.instance, port) != StpState::Forwarding {
        return Err(DropReason::EgressStp);
    }
    if from.is_some_and(|(_, ingress)| ingress.isolated) && state.isolated {
        return Err(DropReason::Isolated);
    }
    if !fits(state, frame.untagged_len) {
        return Err(DropReason::MtuExceeded);
    }
    Ok(())
}

/// What a port in no VLAN allows: a routed port, or the host's end of an interface.
pub(super) fn straight(tables: &Tables, frame: &Parsed, port: PortId) -> Result<(), DropReason> {
    let state = tables.ports.get(port).filter(|state| state.enabled).ok_or(DropReason::EgressDown)?;
    if fits(state, frame.untagged_len) { Ok(()) } else { Err(DropReason::MtuExceeded) }
}
