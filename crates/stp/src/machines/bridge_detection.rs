//! Bridge detection: whether the other end of the port is a bridge, or only hosts. IEEE 802.1Q-2018, 13.33;
//! 802.1D-2004, 17.25.
//!
//! Invariant: operEdge is cleared by any BPDU and set only here.

use crate::entity::Entity;
use crate::events::Event;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    NotEdge,
    Edge,
}

fn next(e: &Entity, p: usize) -> Option<State> {
    let port = &e.ports[p];
    match port.detection {
        State::Edge => {
            let admin = port.params.enabled || port.params.admin_edge;
            (!admin || !port.oper_edge).then_some(State::NotEdge)
        }
        State::NotEdge => {
            let by_admin = !port.params.enabled && port.params.admin_edge;
            // A port that a guard blocks gets no answer to its proposals, so a silent neighbour is not proof
            // of an edge port.
            let by_silence = port.params.enabled
                && port.params.auto_edge
                && port.send_rstp
                && port.trees[0].proposing
                && !port.trees[0].inconsistent.blocks()
                && port.edge_delay_while.is_zero(e.now);
            (by_admin || by_silence).then_some(State::Edge)
        }
    }
}

fn enter(e: &mut Entity, p: usize, state: State) {
    let port = &mut e.ports[p];
    port.detection = state;
    port.oper_edge = state == State::Edge;
    let (id, enabled) = (port.id, port.params.enabled);
    e.mark_all_trees(p);
    if enabled {
        e.event(Event::Edge { vlan: e.vlan, port: id, edge: state == State::Edge });
    }
}

/// Makes one transition; returns whether it did.
pub(crate) fn step(e: &mut Entity, p: usize) -> bool {
    let Some(state) = next(e, p) else { return false };
    enter(e, p, state);
    true
}
