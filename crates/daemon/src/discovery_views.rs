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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config, messages};
    use lanyard_cli::backend::{Configuration, Discovery as _};
    use lanyard_lldp::cdp::{self, Cdpdu};
    use lanyard_lldp::pdu::{self, Identifier, Lldpdu};
    use lanyard_plane::Trapped;
    use lanyard_types::{MacAddr, TrapReason};

    const FROM: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const PORTS: [&str; 4] = ["eth10", "eth3", "eth2", "eth1"];

    fn text(lines: &str) -> String {
        PORTS.map(|name| format!("interface {name}\n switchport\n")).concat() + lines
    }

    /// A switch with four ports that have a link.
    fn switch(lines: &str) -> (Bench, Core) {
        let bench = Bench::new();
        let mut core = bench.core();
        for name in PORTS {
            bench.kernel.add(name);
            link(&bench, &mut core, name, true);
        }
        core.commit(config(&text(lines))).expect("taken");
        (bench, core)
    }

    fn link(bench: &Bench, core: &mut Core, name: &str, up: bool) {
        let event = bench.kernel.change(name, |link| (link.admin_up, link.carrier) = (true, up));
        core.netdev_events(vec![event]);
    }

    fn receive(bench: &Bench, core: &mut Core, name: &str, reason: TrapReason, frame: Vec<u8>) {
        let port = core.ctx.switch.ports().get(name).expect("a port");
        bench.plane.trapped.lock().push(Trapped { port, reason, frame });
        core.plane_events();
        core.protocol_reports();
    }

    /// A frame of the neighbour's port `port`, by LLDP.
    fn lldp(port: &str, ttl_s: u16) -> Vec<u8> {
        pdu::encode(FROM, &Lldpdu::new(Identifier::chassis_mac(FROM), Identifier::port_name(port), ttl_s))
    }

    /// A frame of the neighbour's port g1, by CDP.
    fn cdp() -> Vec<u8> {
        let (device_id, port_id) = ("sw2".into(), "g1".into());
        cdp::encode(FROM, &Cdpdu { version: 2, ttl_s: 180, device_id, port_id, ..Cdpdu::default() })
    }

    fn state_of(core: &mut Core, protocol: Protocol, name: &str) -> view::DiscoveryInterface {
        let list = core.discovery(protocol).interfaces;
        list.into_iter().find(|port| port.interface == name).expect("listed")
    }

    #[test]
    fn neighbours_of_a_protocol_are_listed_by_interface_until_they_are_cleared() {
        let (bench, mut core) = switch("lldp run\ncdp run");
        for (name, port, ttl_s) in [("eth10", "a", 20), ("eth2", "z", 30), ("eth2", "b", 40)] {
            receive(&bench, &mut core, name, TrapReason::Lldp, lldp(port, ttl_s));
        }
        receive(&bench, &mut core, "eth2", TrapReason::Cdp, cdp());
        bench.clock.set(1_001);
        let neighbours = |core: &mut Core, protocol, only: Option<&str>| -> Vec<String> {
            let only = only.map(|name| InterfaceName::Netdev(name.into()));
            let list = core.neighbours_of(protocol, only.as_ref()).neighbors;
            list.iter().map(|it| format!("{} {} {}", it.interface, it.port_id, it.ttl_s)).collect()
        };
        let all = ["eth2 z 29", "eth2 b 39", "eth10 a 19"];
        for (protocol, only, want) in [
            (Protocol::Lldp, None, &all[..]),
            (Protocol::Lldp, Some("eth10"), &all[2..]),
            (Protocol::Lldp, Some("eth1"), &[]),
            (Protocol::Cdp, None, &["eth2 g1 179"]),
            (Protocol::Cdp, Some("eth10"), &[]),
        ] {
            assert_eq!(neighbours(&mut core, protocol, only), want, "{protocol:?} {only:?}");
        }
        core.clear_discovery_table(Protocol::Lldp);
        assert_eq!(neighbours(&mut core, Protocol::Lldp, None), [""; 0]);
        assert_eq!(neighbours(&mut core, Protocol::Cdp, None).len(), 1, "the other protocol");
        receive(&bench, &mut core, "eth2", TrapReason::Lldp, lldp("b", 40));
        assert_eq!(neighbours(&mut core, Protocol::Lldp, None), ["eth2 b 40"], "its next frame");
    }

    #[test]
    fn ports_are_shown_with_the_states_of_their_machines() {
        let lines = "lldp run\nlldp timer 10\nlldp holdtime 40\nlldp reinit 3\ncdp timer 9\ncdp holdtime 27\n\
                     interface eth2\n no lldp transmit\n no cdp enable\ninterface eth3\n no lldp receive";
        let (bench, mut core) = switch(lines);
        link(&bench, &mut core, "eth10", false);
        for (protocol, want) in
            [(Protocol::Lldp, (true, 10, 40, Some(3))), (Protocol::Cdp, (false, 9, 27, None))]
        {
            let it = core.discovery(protocol);
            assert_eq!((it.running, it.timer_s, it.holdtime_s, it.reinit_s), want);
        }
        for (protocol, name, link_up, flags, states) in [
            (Protocol::Lldp, "eth1", true, (true, true), Some(("IDLE", "WAIT FOR FRAME"))),
            (Protocol::Lldp, "eth2", true, (false, true), Some(("INIT", "WAIT FOR FRAME"))),
            (Protocol::Lldp, "eth3", true, (true, false), Some(("IDLE", "INIT"))),
            (Protocol::Lldp, "eth10", false, (true, true), Some(("INIT", "WAIT PORT OPER"))),
            (Protocol::Cdp, "eth2", true, (false, false), None),
            (Protocol::Cdp, "eth3", true, (true, true), None),
        ] {
            let it = state_of(&mut core, protocol, name);
            let shown = (it.link_up, (it.transmit, it.receive), it.tx_state.zip(it.rx_state));
            assert_eq!(shown, (link_up, flags, states), "{protocol:?} {name}");
        }
        // A port that has ceased to send waits for `lldp reinit` before it may begin again.
        core.commit(config(&text(&format!("{lines}\ninterface eth1\n no lldp transmit")))).expect("taken");
        for (now_ms, want) in [(0, "SHUTDOWN"), (2_999, "SHUTDOWN"), (3_000, "INIT")] {
            bench.clock.set(now_ms);
            core.tick();
            assert_eq!(state_of(&mut core, Protocol::Lldp, "eth1").tx_state, Some(want), "{now_ms}");
        }
    }

    #[test]
    fn refused_frames_and_neighbours_without_room_are_counted() {
        let (bench, mut core) = switch("lldp run\ncdp run");
        let mut truncated = lldp("g1", 20);
        truncated.truncate(20);
        receive(&bench, &mut core, "eth1", TrapReason::Lldp, truncated);
        receive(&bench, &mut core, "eth1", TrapReason::Cdp, cdp());
        // With the neighbour of CDP these are two more than a port may have.
        for n in 0..=lanyard_lldp::MAX_PER_PORT {
            receive(&bench, &mut core, "eth1", TrapReason::Lldp, lldp(&format!("g{n}"), 20));
        }
        let counters = |core: &mut Core, protocol| {
            let it = state_of(core, protocol, "eth1");
            (it.frames_in, it.frames_discarded, it.table_full, it.errors)
        };
        assert_eq!(counters(&mut core, Protocol::Lldp), (34, 3, 2, [("tlv_truncated", 1)].into()));
        let full = "TABLE_FULL: Interface eth1: a neighbor is not kept, because the table is full (32 at a port, 2048 in all)";
        assert_eq!(messages(&core.ctx).iter().filter(|line| *line == full).count(), 1, "logged once");
        core.clear_discovery_counters(Protocol::Lldp);
        assert_eq!(counters(&mut core, Protocol::Lldp), (0, 0, 0, [].into()));
        assert_eq!(counters(&mut core, Protocol::Cdp), (1, 0, 0, [].into()), "the other protocol");
    }
}
