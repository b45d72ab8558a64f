//! Port transmit: when a BPDU is sent, of which type, and how many per second. IEEE 802.1Q-2018, 13.34;
//! 802.1D-2004, 17.26.
//!
//! Invariant: txCount never exceeds TxHoldCount, and is decremented once a second; so at most TxHoldCount
//! BPDUs are sent in a burst.

use crate::entity::Entity;
use crate::vars::{Role, Timer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    TransmitInit,
    Idle,
    TransmitPeriodic,
    TransmitConfig,
    TransmitTcn,
    TransmitRstp,
    /// Not in the standard: newInfo is set on a root port that speaks STP and has no topology change to
    /// report.
    NothingToSend,
}

fn next(e: &Entity, p: usize) -> Option<State> {
    let port = &e.ports[p];
    if !e.may_transmit(p) {
        return (port.transmit != State::TransmitInit).then_some(State::TransmitInit);
    }
    if port.transmit != State::Idle {
        return Some(State::Idle);
    }
    if port.trees.iter().any(|tree| !tree.selected || tree.updt_info) {
        return None;
    }
    if port.hello_when.is_zero(e.now) {
        return Some(State::TransmitPeriodic);
    }
    if port.tx_count >= e.bridge.tx_hold_count {
        return None;
    }
    if port.send_rstp {
        let master = port.trees[1..].iter().any(|tree| tree.role == Role::Master);
        let wanted = port.new_info || (port.new_info_msti && !master);
        return wanted.then_some(State::TransmitRstp);
    }
    match port.trees[0].role {
        _ if !port.new_info => None,
        Role::Designated => Some(State::TransmitConfig),
        Role::Root if !port.trees[0].tc_while.is_zero(e.now) => Some(State::TransmitTcn),
        _ => Some(State::NothingToSend),
    }
}

fn enter(e: &mut Entity, p: usize, state: State) {
    let now = e.now;
    let hello_time = e.hello_time(p);
    let port = &mut e.ports[p];
    port.transmit = state;
    match state {
        State::TransmitInit => {
            port.new_info = true;
            port.new_info_msti = true;
            port.tx_count = 0;
            port.tx_count_down = Timer::Zero;
            port.hello_when = Timer::Zero;
        }
        State::Idle => port.hello_when = Timer::start(now, hello_time),
        State::TransmitPeriodic => {
            let speaks = |tree: &crate::vars::PortTreeVars| {
                tree.role == Role::Designated || (tree.role == Role::Root && !tree.tc_while.is_zero(now))
            };
            port.new_info |= speaks(&port.trees[0]);
            port.new_info_msti |= port.trees[1..].iter().any(speaks);
        }
        State::TransmitConfig => {
            port.new_info = false;
            e.tx_config(p);
        }
        State::TransmitTcn => {
            port.new_info = false;
            e.tx_tcn(p);
        }
        State::TransmitRstp => {
            port.new_info = false;
            port.new_info_msti = false;
            e.tx_rstp(p);
        }
        State::NothingToSend => port.new_info = false,
    }
    if matches!(state, State::TransmitConfig | State::TransmitTcn | State::TransmitRstp) {
        let port = &mut e.ports[p];
        port.tx_count += 1;
        if state != State::TransmitTcn {
            port.tc_ack = false;
        }
        if port.tx_count_down.is_zero(now) {
            port.tx_count_down = Timer::start(now, 1000);
        }
    }
}

/// Decrements txCount once a second (13.30).
pub(crate) fn count_down(e: &mut Entity, p: usize) {
    let now = e.now;
    let port = &mut e.ports[p];
    while let Timer::Until(at) = port.tx_count_down {
        if at > now {
            break;
        }
        port.tx_count = port.tx_count.saturating_sub(1);
        port.tx_count_down = if port.tx_count > 0 { Timer::Until(at + 1000) } else { Timer::Zero };
    }
}

/// Makes one transition; returns whether it did.
pub(crate) fn step(e: &mut Entity, p: usize) -> bool {
    let Some(state) = next(e, p) else { return false };
    enter(e, p, state);
    true
}
