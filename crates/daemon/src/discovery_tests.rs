//! Discovery of a whole switch, with a kernel and a plane in memory.

use super::*;
use crate::bus::Topics;
use crate::core::Core;
use crate::testing::{Bench, config, messages, received};
use lanyard_cli::backend::{Configuration, Discovery};
use lanyard_config::InterfaceName;
use lanyard_lldp::pdu::{self, Identifier, Lldpdu};
use lanyard_plane::Trapped;
use lanyard_types::{MacAddr, TrapReason};

const PORTS: &str = "hostname sw1\nip routing\ninterface eth1\n switchport\ninterface eth2\n switchport";
const FROM: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// A switch with ports eth1 and eth2 that have a link.
fn switch(text: &str) -> (Bench, Core) {
    let bench = Bench::new();
    let mut core = bench.core();
    for name in ["eth1", "eth2"] {
        bench.kernel.add(name);
        let event = bench.kernel.change(name, |link| (link.admin_up, link.carrier) = (true, true));
        core.netdev_events(vec![event]);
    }
    core.commit(config(&format!("{text}\n{PORTS}"))).expect("taken");
    (bench, core)
}

fn port(core: &Core, name: &str) -> PortId {
    core.ctx.switch.ports().get(name).expect("a port")
}

fn receive(bench: &Bench, core: &mut Core, name: &str, reason: TrapReason, frame: Vec<u8>) {
    let port = port(core, name);
    bench.plane.trapped.lock().push(Trapped { port, reason, frame });
    core.plane_events();
    core.protocol_reports();
}

/// The LLDPDUs that were sent at a port since the last call.
fn sent(bench: &Bench, at: PortId) -> Vec<Lldpdu> {
    let frames = std::mem::take(&mut *bench.plane.sent_in.lock()).into_iter();
    frames
        .filter(|(port, ..)| *port == at)
        .filter_map(|(_, frame, _)| Some(pdu::decode(&frame).ok()?.1))
        .collect()
}

fn neighbour(ttl_s: u16) -> Vec<u8> {
    let mut pdu = Lldpdu::new(Identifier::chassis_mac(FROM), Identifier::port_name("g1"), ttl_s);
    pdu.system_name = Some("sw2".into());
    pdu::encode(FROM, &pdu)
}

/// When a link becomes or ceases to be a member in use, the switch announces it by LLDP at once.
#[test]
fn lldp_announces_whether_a_member_is_in_use() {
    let (bench, mut core) = switch("lldp run");
    let eth1 = port(&core, "eth1");
    let told = |bench: &Bench| sent(bench, eth1).pop().and_then(|pdu| pdu.aggregation);
    assert_eq!(told(&bench), Some((true, false, 0)));
    let text = format!("lldp run\n{PORTS}\ninterface eth1\n channel-group 3 mode on");
    core.commit(config(&text)).expect("taken");
    core.protocol_reports();
    bench.clock.set(1000);
    core.tick();
    assert_eq!(told(&bench), Some((true, true, 3)));
    let event = bench.kernel.change("eth2", |link| link.carrier = false);
    core.netdev_events(vec![event]);
    core.commit(config(&format!("lldp run\n{PORTS}"))).expect("taken");
    core.protocol_reports();
    bench.clock.set(2000);
    core.tick();
    assert_eq!(told(&bench), Some((true, false, 0)));
}

#[test]
fn lldp_frames_follow_the_configuration() {
    let (bench, mut core) = switch("lldp run\nvlan 10");
    let eth1 = port(&core, "eth1");
    let first = sent(&bench, eth1).pop().expect("a frame at once");
    assert_eq!((first.system_name.as_deref(), first.port_id.to_string().as_str()), (Some("sw1"), "eth1"));
    assert_eq!((first.ttl_s, first.pvid), (120, Some(1)));
    let text = format!(
        "lldp run\nlldp holdtime 60\nno lldp tlv-select system-name\nvlan 10\n{PORTS}\ninterface eth1\n switchport access vlan 10"
    );
    core.commit(config(&text)).expect("taken");
    let second = sent(&bench, eth1).pop().expect("a change is sent");
    assert_eq!((second.ttl_s, second.pvid, second.system_name), (60, Some(10), None));
    core.commit(config(PORTS)).expect("taken");
    assert_eq!(sent(&bench, eth1).pop().expect("a withdrawal").ttl_s, 0);
}

#[test]
fn a_neighbour_is_shown_announced_and_aged_out() {
    let (bench, mut core) = switch("lldp run");
    let kinds = [EventKind::Discovery].into();
    let mut listener = core.ctx.bus.subscribe(Topics::Events(kinds)).expect("room");
    receive(&bench, &mut core, "eth2", TrapReason::Lldp, neighbour(20));
    let shown = core.neighbours_of(Protocol::Lldp, None).neighbors;
    let [known] = shown.as_slice() else { unreachable!("{shown:?}") };
    assert_eq!((known.interface.as_str(), known.chassis_id.as_str()), ("eth2", "02:00:00:00:00:09"));
    assert_eq!((known.port_id.as_str(), known.system_name.as_deref(), known.ttl_s), ("g1", Some("sw2"), 20));
    let only = InterfaceName::Netdev("eth1".into());
    assert!(core.neighbours_of(Protocol::Lldp, Some(&only)).neighbors.is_empty());
    assert!(core.neighbours_of(Protocol::Cdp, None).neighbors.is_empty());
    bench.clock.set(20_000);
    core.tick();
    assert!(core.neighbours_of(Protocol::Lldp, None).neighbors.is_empty());
    let events = received(&mut listener);
    let actions: Vec<_> =
        events.iter().map(|event| (event["action"].as_str(), event["interface"].as_str())).collect();
    assert_eq!(actions, [(Some("add"), Some("eth2")), (Some("delete"), Some("eth2"))]);
    assert_eq!(events[1]["cause"], "aged");
    let state = core.discovery(Protocol::Lldp);
    let eth2 = state.interfaces.iter().find(|port| port.interface == "eth2").expect("listed");
    assert_eq!((eth2.frames_in, eth2.aged_out, eth2.rx_state), (1, 1, Some("WAIT FOR FRAME")));
}

#[test]
fn a_native_vlan_mismatch_is_logged() {
    let (bench, mut core) = switch("cdp run");
    let pdu = cdp::Cdpdu {
        version: 2,
        ttl_s: 180,
        device_id: "sw2".into(),
        port_id: "Gi0/1".into(),
        native_vlan: Some(20),
        ..cdp::Cdpdu::default()
    };
    receive(&bench, &mut core, "eth1", TrapReason::Cdp, cdp::encode(FROM, &pdu));
    let logged = messages(&core.ctx);
    let text = "NATIVE_VLAN_MISMATCH: Native VLAN mismatch discovered on eth1 (1), with sw2 Gi0/1 (20).";
    assert!(logged.iter().any(|line| line == text), "{logged:?}");
    assert_eq!(core.neighbours_of(Protocol::Cdp, None).neighbors.len(), 1);
    core.clear_discovery_table(Protocol::Cdp);
    assert!(core.neighbours_of(Protocol::Cdp, None).neighbors.is_empty());
    core.clear_discovery_counters(Protocol::Cdp);
    assert!(core.discovery(Protocol::Cdp).interfaces.iter().all(|port| port.frames_in == 0));
}

#[test]
fn a_link_that_goes_down_silences_its_port() {
    let (bench, mut core) = switch("lldp run");
    let event = bench.kernel.change("eth1", |link| link.carrier = false);
    core.netdev_events(vec![event]);
    let eth1 = port(&core, "eth1");
    sent(&bench, eth1);
    bench.clock.set(100_000);
    core.tick();
    assert!(sent(&bench, eth1).is_empty());
    let state = core.discovery(Protocol::Lldp);
    assert!(state.interfaces.iter().any(|port| port.interface == "eth1" && !port.link_up));
    let event = bench.kernel.change("eth1", |link| link.carrier = true);
    core.netdev_events(vec![event]);
    assert_eq!(sent(&bench, eth1).len(), 1);
}

#[test]
fn detach_withdraws() {
    let (bench, mut core) = switch("lldp run");
    let eth1 = port(&core, "eth1");
    sent(&bench, eth1);
    core.detach().expect("detached");
    assert_eq!(sent(&bench, eth1).iter().map(|pdu| pdu.ttl_s).collect::<Vec<_>>(), [0]);
}

#[test]
fn names_of_network_policies() {
    let shown = |application, unknown| {
        policy(&NetworkPolicy { application, unknown, tagged: true, vlan: 30, priority: 5, dscp: 46 })
    };
    assert_eq!(shown(1, false), "voice, VLAN 30, tagged, priority 5, DSCP 46");
    assert_eq!(
        (shown(6, true), shown(9, true)),
        ("video conferencing, unknown".into(), "application 9, unknown".into())
    );
}
