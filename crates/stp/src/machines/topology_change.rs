//! Topology change, per port and tree: detects, propagates and acknowledges changes, and flushes learned
//! addresses. IEEE 802.1Q-2018, 13.39; 802.1D-2004, 17.31.
//!
//! Invariant: an edge port neither detects nor propagates a change and is not flushed.

use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{Effect, Role, Timer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    Inactive,
    Learning,
    Detected,
    Active,
    NotifiedTcn,
    NotifiedTc,
    Propagating,
    Acknowledged,
}

fn next(e: &Entity, p: usize, t: usize) -> Option<State> {
    let port = &e.ports[p];
    let tree = &port.trees[t];
    let tcn = t == 0 && port.rcvd_tcn;
    let ack = t == 0 && port.rcvd_tc_ack;
    match tree.change {
        State::Inactive => tree.learn.then_some(State::Learning),
        State::Learning => {
            let received = tree.rcvd_tc || tcn || ack || tree.tc_prop;
            if tree.role.active() && tree.forward && !port.oper_edge {
                Some(State::Detected)
            } else if received {
                Some(State::Learning)
            } else {
                (!tree.role.active() && !tree.learn && !tree.learning).then_some(State::Inactive)
            }
        }
        State::Active => {
            if !tree.role.active() || port.oper_edge {
                Some(State::Learning)
            } else if tcn {
                Some(State::NotifiedTcn)
            } else if tree.rcvd_tc {
                Some(State::NotifiedTc)
            } else if tree.tc_prop {
                Some(State::Propagating)
            } else {
                ack.then_some(State::Acknowledged)
            }
        }
        State::NotifiedTcn => Some(State::NotifiedTc),
        State::Detected | State::NotifiedTc | State::Propagating | State::Acknowledged => Some(State::Active),
    }
}

fn enter(e: &mut Entity, p: usize, t: usize, state: State) {
    let port = &mut e.ports[p];
    let tree = &mut port.trees[t];
    tree.change = state;
    match state {
        State::Inactive => {
            tree.tc_while = Timer::Zero;
            if t == 0 {
                port.tc_ack = false;
            }
            e.fdb_flush(p, t, true);
        }
        State::Learning => {
            tree.rcvd_tc = false;
            tree.tc_prop = false;
            if t == 0 {
                port.rcvd_tcn = false;
                port.rcvd_tc_ack = false;
            }
        }
        State::Detected => {
            tree.topology_changes += 1;
            e.note_change(p, t, true);
            e.new_tc_while(p, t);
            e.set_tc_prop_tree(p, t);
            e.new_info(p, t);
        }
        State::Active => {}
        State::NotifiedTcn => e.new_tc_while(p, t),
        State::NotifiedTc => {
            tree.rcvd_tc = false;
            if t == 0 {
                port.rcvd_tcn = false;
                port.tc_ack |= port.trees[0].role == Role::Designated;
            }
            e.note_change(p, t, false);
            e.set_tc_prop_tree(p, t);
        }
        State::Propagating => {
            tree.tc_prop = false;
            e.new_tc_while(p, t);
            e.fdb_flush(p, t, false);
        }
        State::Acknowledged => {
            tree.tc_while = Timer::Zero;
            port.rcvd_tc_ack = false;
            // A restarted bridge that does not know of the acknowledgement would report the change to the root again.
            e.effects.push_back(Effect::Remember);
        }
    }
}

impl Entity {
    /// Counts a topology change, detected here or received. A neighbour repeats the flag in every BPDU for a
    /// while; flags within two hello times of the last one count as the same change.
    fn note_change(&mut self, p: usize, t: usize, detected: bool) {
        let now = self.now;
        let window_ms = 2 * self.hello_time(p);
        let id = self.ports[p].id;
        let tree = &mut self.trees[t];
        let fresh = detected || tree.last_heard_ms.is_none_or(|last| now > last + window_ms);
        if !detected {
            tree.last_heard_ms = Some(now);
        }
        if !fresh {
            return;
        }
        tree.topology_changes += 1;
        tree.last_change_ms = Some(now);
        tree.last_change_port = Some(id);
        let instance = tree.instance;
        self.event(Event::TopologyChange { instance, vlan: self.vlan, port: id, detected });
    }
}

/// Makes one transition; returns whether it did.
pub(crate) fn step(e: &mut Entity, p: usize, t: usize) -> bool {
    let Some(state) = next(e, p, t) else { return false };
    enter(e, p, t, state);
    true
}
