//! The churn detection machines (IEEE 802.1AX-2014, 6.4.17, figures 6-23 and 6-24): a port that should be in sync and is
//! not, for a minute, shows that the two systems do not agree on a configuration.

use crate::pdu::State;
use crate::port::intervals::CHURN_DETECTION_MS;
use crate::port::{ChurnState, Port};

/// Runs both machines; true if a churn was found now.
pub(crate) fn run(port: &mut Port, now: u64) -> bool {
    let runs = port.enabled && port.lacp_enabled();
    let actor = step(runs, port.actor.state, &mut port.actor_churn, &mut port.actor_churn_timer, now);
    let partner = step(runs, port.partner.state, &mut port.partner_churn, &mut port.partner_churn_timer, now);
    actor || partner
}

fn step(runs: bool, of: State, state: &mut ChurnState, timer: &mut Option<u64>, now: u64) -> bool {
    if !runs {
        // BEGIN: the time begins when the port is enabled.
        (*state, *timer) = (ChurnState::Monitor, None);
        return false;
    }
    if of.has(State::SYNCHRONIZATION) {
        (*state, *timer) = (ChurnState::None, None);
        return false;
    }
    match *state {
        ChurnState::Churn => false,
        ChurnState::Monitor if timer.is_some_and(|at| at <= now) => {
            (*state, *timer) = (ChurnState::Churn, None);
            true
        }
        ChurnState::Monitor | ChurnState::None => {
            *state = ChurnState::Monitor;
            timer.get_or_insert(now + CHURN_DETECTION_MS);
            false
        }
    }
}
