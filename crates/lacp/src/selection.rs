//! The selection logic (IEEE 802.1AX-2014, 6.4.14): which ports of a channel belong to its aggregator.
//!
//! A channel has one aggregator. Its partner is that of the ports which are in it already, or else of the best port; ports
//! with another partner stay out, because frames to two systems must not share a channel. Of more ports than the channel may
//! have members the better ones are chosen, by the priorities of the better system, so that both ends choose the same
//! (6.7.1).

use crate::config::ChannelConfig;
use crate::pdu::{PortInfo, State};
use crate::port::{MuxState, Port, RxState, Selected};
use lanyard_types::{MacAddr, PortId};
use std::collections::BTreeMap;

/// The values that ports must have in common: the partner's system and key.
type Partner = (u16, MacAddr, u16);

fn partner(port: &Port) -> Partner {
    (port.partner.system_priority, port.partner.system, port.partner.key)
}

/// True if the port may be in an aggregation: its partner is known, and both sides allow it.
fn may_aggregate(port: &Port) -> bool {
    let known =
        matches!(port.rx, RxState::Current | RxState::Expired) && !port.actor.state.has(State::DEFAULTED);
    let both = |info: &PortInfo| info.state.has(State::AGGREGATION);
    // A port that was unselected is selected again only after it has been detached (6.4.14.1 m).
    let free = port.selected != Selected::Unselected || port.mux == MuxState::Detached;
    known && free && both(&port.actor) && both(&port.partner) && !is_own(port)
}

/// True if the partner is this system: a cable between two of its ports.
fn is_own(port: &Port) -> bool {
    port.partner.system == port.actor.system
}

/// The rank of a port: the priority and number that the better system has given it.
fn order(port: &Port) -> (u16, u16) {
    let system = |info: &PortInfo| (info.system_priority, info.system);
    let by = if system(&port.actor) <= system(&port.partner) { &port.actor } else { &port.partner };
    (by.port_priority, by.port)
}

/// Selects the ports of a channel, whose numbers are `members`; true if a port's selection has changed.
pub(crate) fn run(ports: &mut BTreeMap<PortId, Port>, members: &[PortId], channel: ChannelConfig) -> bool {
    let candidates = || {
        members
            .iter()
            .filter_map(|id| ports.get(id).map(|port| (*id, port)))
            .filter(|(_, port)| may_aggregate(port))
    };
    // The port with the highest mux state comes first, so that the channel keeps the partner that it exchanges frames with.
    let kept = candidates().filter(|(_, port)| port.selected != Selected::Unselected);
    let first = kept
        .min_by_key(|(_, port)| (std::cmp::Reverse(port.mux), order(port)))
        .or_else(|| candidates().min_by_key(|(_, port)| order(port)));
    let chosen: Vec<PortId> = first.map_or_else(Vec::new, |(_, first)| {
        let mut same: Vec<_> = candidates().filter(|(_, port)| partner(port) == partner(first)).collect();
        same.sort_by_key(|(_, port)| order(port));
        same.into_iter().map(|(id, _)| id).collect()
    });
    let mut changed = false;
    for id in members {
        let Some(port) = ports.get_mut(id) else { continue };
        let selected = match chosen.iter().position(|chosen| chosen == id) {
            None => Selected::Unselected,
            Some(at) if at < usize::from(channel.max_bundle) => Selected::Selected,
            Some(_) => Selected::Standby,
        };
        changed |= port.selected != selected;
        port.selected = selected;
    }
    changed
}
