//! Port state transition, per port and tree: reports the state to the forwarding plane. IEEE 802.1Q-2018,
//! 13.38; 802.1D-2004, 17.30.
//!
//! Invariant: learning and forwarding follow learn and forward, and each change is one effect.

use crate::entity::Entity;
use crate::vars::Effect;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    Discarding,
    Learning,
    Forwarding,
}

fn next(e: &Entity, p: usize, t: usize) -> Option<State> {
    let tree = &e.ports[p].trees[t];
    match tree.state {
        State::Discarding => tree.learn.then_some(State::Learning),
        State::Learning if !tree.learn => Some(State::Discarding),
        State::Learning => tree.forward.then_some(State::Forwarding),
        State::Forwarding => (!tree.forward).then_some(State::Discarding),
    }
}

fn enter(e: &mut Entity, p: usize, t: usize, state: State) {
    let tree = &mut e.ports[p].trees[t];
    tree.state = state;
    tree.learning = state != State::Discarding;
    tree.forwarding = state == State::Forwarding;
    tree.forward_transitions += u64::from(tree.forwarding);
    let state = tree.stp_state();
    let (instance, port) = (e.trees[t].instance, e.ports[p].id);
    e.effects.push_back(Effect::SetState { instance, port, state });
    e.event(crate::events::Event::State { instance, vlan: e.vlan, port, state });
}

/// Makes one transition; returns whether it did.
pub(crate) fn step(e: &mut Entity, p: usize, t: usize) -> bool {
    let Some(state) = next(e, p, t) else { return false };
    enter(e, p, t, state);
    e.note_sync_moved(t);
    true
}
