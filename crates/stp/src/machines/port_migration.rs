//! Port protocol migration: STP towards a neighbour that supports nothing else, RSTP otherwise. IEEE
//! 802.1Q-2018, 13.32; 802.1D-2004, 17.24.
//!
//! Invariant: sendRSTP changes only on entry to CHECKING_RSTP and SELECTING_STP, at most once in MigrateTime.

use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{BridgeVars, Timer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    CheckingRstp,
    SelectingStp,
    Sensing,
}

fn next(e: &Entity, p: usize) -> Option<State> {
    let port = &e.ports[p];
    let enabled = port.params.enabled;
    let elapsed = port.mdelay_while.is_zero(e.now);
    match port.migration {
        State::CheckingRstp if !enabled => {
            let held = port.mdelay_while == Timer::Held(BridgeVars::MIGRATE_TIME_MS);
            (!held).then_some(State::CheckingRstp)
        }
        State::CheckingRstp => elapsed.then_some(State::Sensing),
        State::Sensing => {
            let upgrade = e.bridge.rstp_version() && !port.send_rstp && port.rcvd_rstp;
            if !enabled || port.mcheck || upgrade {
                Some(State::CheckingRstp)
            } else {
                (port.send_rstp && port.rcvd_stp).then_some(State::SelectingStp)
            }
        }
        State::SelectingStp => (elapsed || !enabled || port.mcheck).then_some(State::Sensing),
    }
}

fn enter(e: &mut Entity, p: usize, state: State) {
    let now = e.now;
    let was = e.ports[p].send_rstp;
    let rstp = e.bridge.rstp_version();
    let port = &mut e.ports[p];
    port.migration = state;
    match state {
        State::CheckingRstp => {
            port.mcheck = false;
            port.send_rstp = rstp;
            port.mdelay_while = Timer::Held(BridgeVars::MIGRATE_TIME_MS);
            if port.params.enabled {
                port.mdelay_while.release(now);
            }
        }
        State::SelectingStp => {
            port.send_rstp = false;
            port.mdelay_while = Timer::start(now, BridgeVars::MIGRATE_TIME_MS);
        }
        State::Sensing => {
            port.rcvd_rstp = false;
            port.rcvd_stp = false;
        }
    }
    if was != port.send_rstp {
        let (id, enabled) = (port.id, port.params.enabled);
        // The designated priority depends on sendRSTP (13.10).
        e.reselect(p, 0);
        if enabled {
            let to_stp = was;
            e.event(Event::Migrated { vlan: e.vlan, port: id, to_stp });
        }
    }
}

/// Makes one transition; returns whether it did.
pub(crate) fn step(e: &mut Entity, p: usize) -> bool {
    let Some(state) = next(e, p) else { return false };
    enter(e, p, state);
    true
}
