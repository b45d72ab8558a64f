//! The mux machine with independent control (IEEE 802.1AX-2014, 6.4.15, figure 6-21).

use crate::pdu::State;
use crate::port::intervals::AGGREGATE_WAIT_MS;
use crate::port::{MuxState, Port, Selected};

/// Runs the machine; `ready` is Ready of the aggregator. True if a state was entered.
pub(crate) fn run(port: &mut Port, ready: bool, now: u64) -> bool {
    // A timer that has expired is no deadline any more: the port may have to wait for others' timers.
    port.wait_while = port.wait_while.filter(|at| *at > now);
    let selected = port.selected == Selected::Selected;
    let sync = port.partner.state.has(State::SYNCHRONIZATION);
    let collecting = port.partner.state.has(State::COLLECTING);
    let next = match port.mux {
        MuxState::Detached if port.selected != Selected::Unselected => MuxState::Waiting,
        MuxState::Waiting if port.selected == Selected::Unselected => MuxState::Detached,
        MuxState::Waiting if selected && ready => MuxState::Attached,
        MuxState::Attached if !selected => MuxState::Detached,
        MuxState::Attached if sync => MuxState::Collecting,
        MuxState::Collecting if !selected || !sync => MuxState::Attached,
        MuxState::Collecting if collecting => MuxState::Distributing,
        MuxState::Distributing if !selected || !sync || !collecting => MuxState::Collecting,
        _ => return false,
    };
    enter(port, next, now);
    true
}

fn enter(port: &mut Port, state: MuxState, now: u64) {
    port.mux = state;
    port.wait_while = None;
    let mut set = |bits: u8, on: bool| port.actor.state.set(bits, on);
    match state {
        MuxState::Detached => set(State::SYNCHRONIZATION | State::COLLECTING | State::DISTRIBUTING, false),
        MuxState::Waiting => port.wait_while = Some(now + AGGREGATE_WAIT_MS),
        MuxState::Attached => {
            set(State::SYNCHRONIZATION, true);
            set(State::COLLECTING, false);
        }
        MuxState::Collecting => {
            set(State::COLLECTING, true);
            set(State::DISTRIBUTING, false);
        }
        MuxState::Distributing => set(State::DISTRIBUTING, true),
    }
    // WAITING changes nothing that the partner sees.
    port.ntt |= state != MuxState::Waiting;
}

/// Ready_N: the port has waited long enough for others to join.
pub(crate) fn has_waited(port: &Port, now: u64) -> bool {
    port.mux == MuxState::Waiting && port.wait_while.is_none_or(|at| at <= now)
}
