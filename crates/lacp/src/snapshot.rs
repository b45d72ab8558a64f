//! The state that a restarted system needs so that its partners notice nothing: [`Snapshot`].
//!
//! A partner keeps a link in the aggregation as long as LACPDUs come and describe it as before. So a system that continues
//! needs what it knew of each partner, and the states of the machines that follow from it. A snapshot that is out of date
//! does no harm for longer than a timeout: the partner's next LACPDU corrects it, and without one the port expires.

use crate::pdu::{PortInfo, State};
use crate::port::intervals::{LONG_TIMEOUT_MS, SHORT_TIMEOUT_MS};
use crate::port::{MuxState, Port, RxState, Selected};
use lanyard_types::PortId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The ports that are selected, with what is known about their partners.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    ports: BTreeMap<PortId, Kept>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    actor: PortInfo,
    partner: PortInfo,
    mux: MuxState,
}

impl Snapshot {
    /// The ports of `ports` to be kept: those whose partner is known at present and that are attached to their channel.
    pub(crate) fn of(ports: &BTreeMap<PortId, Port>) -> Self {
        let attached = |port: &Port| {
            port.rx == RxState::Current
                && port.selected == Selected::Selected
                && port.mux >= MuxState::Attached
        };
        let keep = |port: &Port| Kept { actor: port.actor, partner: port.partner, mux: port.mux };
        Self {
            ports: ports
                .iter()
                .filter(|(_, port)| attached(port))
                .map(|(id, port)| (*id, keep(port)))
                .collect(),
        }
    }
    /// Continues with a port as it was kept. A port whose own information has changed since starts anew.
    pub(crate) fn restore(&self, id: PortId, port: &mut Port, now: u64) {
        let Some(kept) = self.ports.get(&id).filter(|kept| kept.actor.is_same_link(&port.actor)) else {
            return;
        };
        let short = port.actor.state.has(State::TIMEOUT);
        port.enabled = true;
        port.partner = kept.partner;
        for bits in [State::SYNCHRONIZATION, State::COLLECTING, State::DISTRIBUTING] {
            port.actor.state.set(bits, kept.actor.state.has(bits));
        }
        port.actor.state.set(State::DEFAULTED | State::EXPIRED, false);
        port.mux = kept.mux;
        port.selected = Selected::Selected;
        port.rx = RxState::Current;
        port.current_while = Some(now + if short { SHORT_TIMEOUT_MS } else { LONG_TIMEOUT_MS });
        // An LACPDU is sent at once; the partner answers it if its information differs.
        port.ntt = true;
    }
}
