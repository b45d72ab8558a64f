//! The periodic transmission machine (IEEE 802.1AX-2014, 6.4.13, figure 6-19).

use crate::pdu::State;
use crate::port::intervals::{FAST_PERIODIC_MS, SLOW_PERIODIC_MS};
use crate::port::{PeriodicState, Port};

/// Runs the machine; true if a state was entered.
pub(crate) fn run(port: &mut Port, now: u64) -> bool {
    let wants = if !port.may_talk() {
        PeriodicState::None
    } else if port.partner.state.has(State::TIMEOUT) {
        PeriodicState::Fast
    } else {
        PeriodicState::Slow
    };
    let due = port.periodic_timer.is_some_and(|at| at <= now);
    if wants == port.periodic && !due {
        return false;
    }
    // PERIODIC_TX: on expiry, and when a slow partner becomes a fast one.
    port.ntt |= due || (port.periodic, wants) == (PeriodicState::Slow, PeriodicState::Fast);
    port.periodic = wants;
    port.periodic_timer = match wants {
        PeriodicState::None => None,
        PeriodicState::Fast => Some(now + FAST_PERIODIC_MS),
        PeriodicState::Slow => Some(now + SLOW_PERIODIC_MS),
    };
    true
}
