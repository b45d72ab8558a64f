//! The receive machine (IEEE 802.1AX-2014, 6.4.12, figure 6-18).

use crate::pdu::{Lacpdu, PortInfo, State};
use crate::port::intervals::{LONG_TIMEOUT_MS, SHORT_TIMEOUT_MS};
use crate::port::{Port, RxState, Selected};

/// The state bits of a port that its partner has to know (update_NTT, 6.4.9).
const TOLD: u8 = State::ACTIVITY | State::TIMEOUT | State::SYNCHRONIZATION | State::AGGREGATION;

/// Runs the machine without a PDU; true if a state was entered.
pub(crate) fn run(port: &mut Port, now: u64) -> bool {
    let next = match port.rx {
        RxState::Initialize => RxState::PortDisabled,
        _ if !port.enabled && port.rx != RxState::PortDisabled => RxState::PortDisabled,
        RxState::PortDisabled if port.enabled && port.lacp_enabled() => RxState::Expired,
        RxState::PortDisabled if port.enabled => RxState::LacpDisabled,
        RxState::Expired if expired(port, now) => RxState::Defaulted,
        RxState::Current if expired(port, now) => RxState::Expired,
        _ => return false,
    };
    enter(port, next, now);
    true
}

/// Handles a PDU: enters CURRENT from the three states that accept one, and ignores the PDU in the others.
pub(crate) fn take(port: &mut Port, pdu: &Lacpdu, now: u64) {
    if !matches!(port.rx, RxState::Expired | RxState::Defaulted | RxState::Current) {
        return;
    }
    // update_Selected
    if !pdu.actor.is_same_link(&port.partner) {
        port.selected = Selected::Unselected;
    }
    // update_NTT
    let known = PortInfo { state: State(pdu.partner.state.0 & TOLD), ..pdu.partner };
    if known != (PortInfo { state: State(port.actor.state.0 & TOLD), ..port.actor }) {
        port.ntt = true;
    }
    record(port, pdu);
    let timeout = if port.actor.state.has(State::TIMEOUT) { SHORT_TIMEOUT_MS } else { LONG_TIMEOUT_MS };
    port.current_while = Some(now + timeout);
    port.actor.state.set(State::EXPIRED, false);
    port.rx = RxState::Current;
}

fn expired(port: &Port, now: u64) -> bool {
    port.current_while.is_some_and(|at| at <= now)
}

fn enter(port: &mut Port, state: RxState, now: u64) {
    port.rx = state;
    port.current_while = None;
    match state {
        RxState::Initialize | RxState::Current => {}
        RxState::PortDisabled => port.partner.state.set(State::SYNCHRONIZATION, false),
        RxState::Expired => {
            port.partner.state.set(State::SYNCHRONIZATION, false);
            port.partner.state.set(State::TIMEOUT, true);
            port.current_while = Some(now + SHORT_TIMEOUT_MS);
            port.actor.state.set(State::EXPIRED, true);
        }
        RxState::LacpDisabled => {
            port.selected = Selected::Unselected;
            record_default(port);
            port.partner.state.set(State::AGGREGATION, false);
            port.actor.state.set(State::EXPIRED, false);
        }
        RxState::Defaulted => {
            // update_Default_Selected
            if !Port::partner_admin().is_same_link(&port.partner) {
                port.selected = Selected::Unselected;
            }
            record_default(port);
            port.actor.state.set(State::EXPIRED, false);
        }
    }
}

/// recordPDU (6.4.9).
fn record(port: &mut Port, pdu: &Lacpdu) {
    let own = port.actor;
    port.partner = pdu.actor;
    port.actor.state.set(State::DEFAULTED, false);
    let active = pdu.actor.state.has(State::ACTIVITY)
        || own.state.has(State::ACTIVITY) && pdu.partner.state.has(State::ACTIVITY);
    let matches = pdu.partner.is_same_link(&own) || !pdu.actor.state.has(State::AGGREGATION);
    let sync = matches && active && pdu.actor.state.has(State::SYNCHRONIZATION);
    port.partner.state.set(State::SYNCHRONIZATION, sync);
}

/// recordDefault (6.4.9).
pub(crate) fn record_default(port: &mut Port) {
    port.partner = Port::partner_admin();
    port.actor.state.set(State::DEFAULTED, true);
}
