//! vlan_egress: checks what each egress port allows (IEEE 802.1Q-2018, 8.6.4): membership, spanning tree, isolation,
//! MTU.
//!
//! If the one port of a known destination fails a check, the frame is dropped with that check's reason, in the order
//! below. The ports of a flood have passed all checks but two: a port whose MTU the frame exceeds, or a port-channel of which
//! no member can send, is removed and counts the loss.

use super::bridge::Egress;
use super::parse::Parsed;
use super::vlan_ingress::Class;
use crate::state::{PortState, StpState};
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, PortId, Stage};
use lanyard_wire::{HEADER_LEN, TAG_LEN};

/// True when a frame of `untagged_len` bytes fits the MTU; one tag inside the payload is not counted.
pub(super) fn fits(port: &PortState, untagged_len: usize) -> bool {
    untagged_len <= port.mtu as usize + HEADER_LEN + TAG_LEN
}

/// Removes the ports by which the frame may not leave; ports that a flood loses here go to `left_out`.
/// `from` is as in `bridge`.
pub(super) fn run(
    tables: &Tables,
    from: Option<(PortId, &PortState)>,
    frame: &Parsed,
    class: &Class,
    egress: Egress,
    left_out: &mut Vec<PortId>,
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
        left_out.push(port);
        notes.say(Stage::VlanEgress, || Fact::TooLong(tables.ports.name(port)));
    }
    let reason = if left_out.is_empty() { DropReason::EgressDown } else { DropReason::MtuExceeded };
    for port in ports.iter().filter(|port| lacks_members(tables, *port)).collect::<Vec<_>>() {
        ports.remove(port);
        left_out.push(port);
        notes.say(Stage::VlanEgress, || Fact::NoMember(tables.ports.name(port)));
    }
    if ports.is_empty() {
        return Err(Verdict::Dropped(reason));
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
        return Err(if state.private { DropReason::PrivateVlan } else { DropReason::EgressNotMember });
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
    if lacks_members(tables, port) {
        return Err(DropReason::EgressDown);
    }
    Ok(())
}

/// True for a port-channel of which no member can send.
fn lacks_members(tables: &Tables, port: PortId) -> bool {
    tables.ports.channel(port).is_some_and(|channel| !tables.channels.sends(channel))
}

/// The checks of a port that is in no VLAN: a routed port, or the host's end of an interface.
pub(super) fn straight(tables: &Tables, frame: &Parsed, port: PortId) -> Result<(), DropReason> {
    let state = tables.ports.get(port).filter(|state| state.enabled).ok_or(DropReason::EgressDown)?;
    if fits(state, frame.untagged_len) { Ok(()) } else { Err(DropReason::MtuExceeded) }
}
