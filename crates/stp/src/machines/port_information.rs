//! Port information, per tree: the source and age of the information that a port holds, and how a message
//! changes it. IEEE 802.1Q-2018, 13.35; 802.1D-2004, 17.27.
//!
//! Invariant: portPriority changes only in UPDATE (to the bridge's own) and SUPERIOR_DESIGNATED (to the
//! neighbour's), and each clears the agreements that the change makes void.

use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{InfoIs, RcvdInfo, Role, Timer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    Disabled,
    Aged,
    Update,
    Current,
    Receive,
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    NotDesignated,
    Other,
}

fn next(e: &Entity, p: usize, t: usize) -> Option<State> {
    let port = &e.ports[p];
    let tree = &port.trees[t];
    if !port.params.enabled {
        let settled =
            tree.info_is == InfoIs::Disabled && !tree.rcvd_msg && tree.information == State::Disabled;
        return (!settled).then_some(State::Disabled);
    }
    match tree.information {
        State::Disabled => Some(State::Aged),
        State::Aged => (tree.selected && tree.updt_info).then_some(State::Update),
        State::Current => {
            if tree.selected && tree.updt_info {
                return Some(State::Update);
            }
            let message = e.rcvd_xst_msg(p, t);
            if tree.info_is == InfoIs::Received
                && tree.rcvd_info_while.is_zero(e.now)
                && !tree.updt_info
                && !message
            {
                return Some(State::Aged);
            }
            (message && !e.updt_xst_info(p, t)).then_some(State::Receive)
        }
        State::Receive => Some(match tree.rcvd_info {
            RcvdInfo::SuperiorDesignated => State::SuperiorDesignated,
            RcvdInfo::RepeatedDesignated => State::RepeatedDesignated,
            RcvdInfo::InferiorDesignated => State::InferiorDesignated,
            RcvdInfo::InferiorRootAlternate => State::NotDesignated,
            RcvdInfo::Other => State::Other,
        }),
        _ => Some(State::Current),
    }
}

fn enter(e: &mut Entity, p: usize, t: usize, state: State) {
    let was = e.ports[p].trees[t].information;
    e.ports[p].trees[t].information = state;
    match state {
        State::Disabled => disabled(e, p, t),
        State::Aged => aged(e, p, t, was),
        State::Update => update(e, p, t),
        State::Current => {}
        State::Receive => {
            e.ports[p].trees[t].rcvd_info = e.rcv_info(p, t);
            e.record_mastered(p, t);
            loop_guard_release(e, p, t);
        }
        State::SuperiorDesignated => superior(e, p, t),
        State::RepeatedDesignated => {
            adopt_region(e, p, t);
            e.record_proposal(p, t);
            e.set_tc_flags(p, t);
            e.record_agreement(p, t);
            e.updt_rcvd_info_while(p, t);
        }
        State::InferiorDesignated => e.record_dispute(p, t),
        State::NotDesignated => {
            e.record_agreement(p, t);
            e.set_tc_flags(p, t);
        }
        State::Other => {}
    }
    if !matches!(state, State::Aged | State::Update | State::Current | State::Receive) {
        e.ports[p].trees[t].rcvd_msg = false;
    }
    if t == 0 {
        // An MSTI's message waits until the CIST's is processed, and at a boundary takes its flags from it.
        e.mark_all_trees(p);
    }
}

fn disabled(e: &mut Entity, p: usize, t: usize) {
    let tree = &mut e.ports[p].trees[t];
    tree.rcvd_msg = false;
    tree.proposing = false;
    tree.proposed = false;
    tree.agree = false;
    tree.agreed = false;
    tree.disputed = false;
    tree.dispute_while = Timer::Zero;
    tree.stale_while = Timer::Zero;
    tree.conveyed = None;
    tree.advertised = None;
    tree.promised = false;
    tree.rcvd_info_while = Timer::Zero;
    tree.info_is = InfoIs::Disabled;
    tree.inconsistent = Default::default();
    e.reselect(p, t);
}

fn aged(e: &mut Entity, p: usize, t: usize, was: State) {
    let port = &mut e.ports[p];
    let tree = &mut port.trees[t];
    let silent = was == State::Current && matches!(tree.role, Role::Root | Role::Alternate | Role::Backup);
    tree.info_is = InfoIs::Aged;
    if silent && port.params.loop_guard && !tree.inconsistent.loop_guard {
        tree.inconsistent.loop_guard = true;
        let (instance, port) = (e.trees[t].instance, port.id);
        e.event(Event::LoopGuard { instance, vlan: e.vlan, port, blocked: true });
    }
    e.reselect(p, t);
}

/// Ends loop guard's blocking: a message of the tree was received, so the neighbour sends again.
fn loop_guard_release(e: &mut Entity, p: usize, t: usize) {
    let port = &mut e.ports[p];
    if std::mem::take(&mut port.trees[t].inconsistent.loop_guard) {
        let (instance, port) = (e.trees[t].instance, port.id);
        e.event(Event::LoopGuard { instance, vlan: e.vlan, port, blocked: false });
        e.reselect(p, t);
    }
}

fn update(e: &mut Entity, p: usize, t: usize) {
    let keeps = e.better_or_same_info(p, t, InfoIs::Mine);
    let tree = &mut e.ports[p].trees[t];
    tree.proposing = false;
    tree.proposed = false;
    tree.agreed &= keeps;
    tree.synced &= tree.agreed;
    tree.port_priority = tree.designated_priority;
    tree.port_times = tree.designated_times;
    tree.updt_info = false;
    tree.info_is = InfoIs::Mine;
    e.trees[t].sync.valid = false;
    e.new_info(p, t);
}

fn adopt_region(e: &mut Entity, p: usize, t: usize) {
    let port = &mut e.ports[p];
    if t == 0 && port.info_internal != port.rcvd_internal {
        port.info_internal = port.rcvd_internal;
        for t in 0..e.trees.len() {
            e.reselect(p, t);
        }
    }
}

fn superior(e: &mut Entity, p: usize, t: usize) {
    adopt_region(e, p, t);
    let keeps = e.better_or_same_info(p, t, InfoIs::Received);
    let tree = &mut e.ports[p].trees[t];
    tree.agreed = false;
    tree.proposing = false;
    tree.agree &= keeps;
    e.record_proposal(p, t);
    e.set_tc_flags(p, t);
    e.record_agreement(p, t);
    let tree = &mut e.ports[p].trees[t];
    tree.synced &= tree.agreed;
    // The neighbour's information is better than what this port has sent, so nothing sent before binds the
    // port.
    tree.advertised = None;
    e.record_priority_and_times(p, t);
    e.updt_rcvd_info_while(p, t);
    e.ports[p].trees[t].info_is = InfoIs::Received;
    e.reselect(p, t);
}

/// Makes one transition; returns whether it did.
pub(crate) fn step(e: &mut Entity, p: usize, t: usize) -> bool {
    let Some(state) = next(e, p, t) else { return false };
    enter(e, p, t, state);
    true
}
