//! The commands that show and clear the neighbours found by LLDP and CDP.

use crate::core::Core;
use crate::discovery::shown;
use lanyard_cli::backend;
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_lldp::{Counters, Neighbour, PduError, Protocol, RxState, TxState};
use lanyard_types::PortId;

impl backend::Discovery for Core {
    fn neighbours_of(
        &mut self,
        protocol: Protocol,
        only: Option<&InterfaceName>,
    ) -> view::DiscoveryNeighbours {
        let only = only.map(ToString::to_string);
        let (now, known) = self.ctx.protocols.with(move |engine| {
            let known = engine.discovery.machines().neighbours();
            let known: Vec<Neighbour> =
                known.filter(|known| known.info.protocol() == protocol).cloned().collect();
            (engine.now(), known)
        });
        let mut neighbors: Vec<_> = known
            .iter()
            .map(|neighbour| {
                (neighbour.port, shown(now, neighbour, self.ctx.port_name(neighbour.port).to_string()))
            })
            .filter(|(_, neighbour)| only.as_ref().is_none_or(|only| *only == neighbour.interface))
            .collect();
        // The sort is stable, so neighbours at one port stay in the order in which they were found.
        neighbors.sort_by_key(|(_, neighbour)| InterfaceName::Netdev(neighbour.interface.clone()));
        view::DiscoveryNeighbours {
            neighbors: neighbors.into_iter().map(|(_, neighbour)| neighbour).collect(),
        }
    }

    fn discovery(&mut self, protocol: Protocol) -> view::DiscoveryState {
        let settings = &self.ctx.switch.config().discovery;
        let (running, timer_s, holdtime_s, reinit_s) = match protocol {
            Protocol::Lldp => (
                settings.lldp_runs,
                settings.lldp.timer_s,
                settings.lldp.holdtime_s,
                Some(settings.lldp.reinit_s),
            ),
            Protocol::Cdp => {
                (settings.cdp_runs, settings.cdp.timer_s.into(), settings.cdp.holdtime_s.into(), None)
            }
        };
        let mut interfaces = self.ctx.protocols.with(move |engine| {
            let machines = engine.discovery.machines();
            let port = |(id, port): (&PortId, &lanyard_lldp::PortConfig)| {
                Some(interface(protocol, port, machines.states(*id)?, &machines.counters(*id, protocol)?))
            };
            machines.config().ports.iter().filter_map(port).collect::<Vec<_>>()
        });
        interfaces.sort_by_key(|port| InterfaceName::Netdev(port.interface.clone()));
        view::DiscoveryState { running, timer_s, holdtime_s, reinit_s, interfaces }
    }

    fn clear_discovery_table(&mut self, protocol: Protocol) {
        self.ctx.protocols.change(move |engine| engine.discovery.machines_mut().clear_table(protocol));
    }

    fn clear_discovery_counters(&mut self, protocol: Protocol) {
        self.ctx.protocols.with(move |engine| engine.discovery.machines_mut().clear_counters(protocol));
    }
}

fn interface(
    protocol: Protocol,
    port: &lanyard_lldp::PortConfig,
    (tx, rx): (TxState, RxState),
    counters: &Counters,
) -> view::DiscoveryInterface {
    let lldp = protocol == Protocol::Lldp;
    let tx_state = match tx {
        TxState::Initialize => "INIT",
        TxState::Idle => "IDLE",
        TxState::Shutdown => "SHUTDOWN",
    };
    let rx_state = match rx {
        RxState::WaitPortOperational => "WAIT PORT OPER",
        RxState::Initialize => "INIT",
        RxState::WaitForFrame => "WAIT FOR FRAME",
    };
    let errors = PduError::ALL.iter().zip(counters.errors).filter(|(_, count)| *count > 0);
    view::DiscoveryInterface {
        interface: port.name.clone(),
        link_up: rx != RxState::WaitPortOperational,
        transmit: if lldp { port.lldp.transmits() } else { port.cdp },
        receive: if lldp { port.lldp.receives() } else { port.cdp },
        tx_state: lldp.then_some(tx_state),
        rx_state: lldp.then_some(rx_state),
        frames_out: counters.sent,
        frames_in: counters.received,
        frames_discarded: counters.discarded,
        errors: errors.map(|(error, count)| (error.name(), count)).collect(),
        tlvs_discarded: counters.tlvs_discarded,
        tlvs_unrecognized: counters.tlvs_unrecognized,
        aged_out: counters.aged_out,
        table_full: counters.too_many,
    }
}
