//! Port receive: accepts or discards each BPDU. IEEE 802.1Q-2018, 13.31; 802.1D-2004, 17.23.
//!
//! Invariant: a port that is not enabled holds edgeDelayWhile at its full value and has no message pending.

use crate::bpdu::Bpdu;
use crate::entity::Entity;
use crate::vars::{BridgeVars, Timer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    Discard,
    Receive,
}

fn next(e: &Entity, p: usize) -> Option<State> {
    let port = &e.ports[p];
    let open = port.params.enabled && port.params.enable_bpdu_rx;
    let held = port.edge_delay_while == Timer::Held(BridgeVars::MIGRATE_TIME_MS);
    if (port.rcvd_bpdu && !open) || (!port.params.enabled && !held) {
        return Some(State::Discard);
    }
    let busy = port.trees.iter().any(|tree| tree.rcvd_msg);
    (port.rcvd_bpdu && open && !busy).then_some(State::Receive)
}

fn enter(e: &mut Entity, p: usize, state: State, bpdu: Option<&Bpdu>) {
    let now = e.now;
    let port = &mut e.ports[p];
    port.receive = state;
    port.rcvd_bpdu = false;
    match state {
        State::Discard => {
            port.rcvd_rstp = false;
            port.rcvd_stp = false;
            port.boundary &= port.params.enabled;
            port.heard_bridge &= port.params.enabled;
            port.trees.iter_mut().for_each(|tree| tree.rcvd_msg = false);
            port.edge_delay_while = Timer::Held(BridgeVars::MIGRATE_TIME_MS);
            if port.params.enabled {
                port.edge_delay_while.release(now);
            }
        }
        State::Receive => {
            port.oper_edge = false;
            port.heard_bridge = true;
            let edge_delay_ms = e.edge_delay(p);
            e.ports[p].edge_delay_while = Timer::start(now, edge_delay_ms);
            let Some(bpdu) = bpdu else { return };
            e.updt_bpdu_version(p, bpdu);
            e.ports[p].rcvd_internal = e.from_same_region(bpdu);
            e.ports[p].boundary = !e.ports[p].rcvd_internal;
            e.rcv_msgs(p, bpdu);
        }
    }
}

/// Makes one transition; `bpdu` is the BPDU that the port has just received.
pub(crate) fn step(e: &mut Entity, p: usize, bpdu: Option<&Bpdu>) -> bool {
    let Some(state) = next(e, p) else { return false };
    enter(e, p, state, bpdu);
    true
}
