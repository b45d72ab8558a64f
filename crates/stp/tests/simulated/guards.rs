//! Guards, BPDU filters and ports that receive their own BPDUs, in simulated time, in the language of `sim`.

use crate::sim::{self, check};

#[test]
fn bpdu_guard_shuts_down_and_recovers() {
    check(
        "bridge A prio 0: a b
         bridge B: a
         set A portfast-default
         set A bpduguard-default
         set A recovery 30
         link A.a B.a
         run 100ms
         expect A.a errdisabled
         expect A.a disabled discarding
         expect event ErrDisabled
         set B.a bpdufilter
         run 31s
         expect event Recovering
         expect A.a designated forwarding edge
         expect B.a designated                       # deaf and dumb by its filter",
    );
}

#[test]
fn bpdu_filter_default_falls_silent_after_ten() {
    let sim = check(
        "bridge A prio 0: a b
         set A portfast-default
         set A bpdufilter-default
         host A.a
         run 60s
         expect A.a forwarding edge",
    );
    assert_eq!(sim.port_view("A.a", sim::vlan(1)).bpdus.tx(), 10);
}

#[test]
fn root_guard_holds_a_superior_neighbour_off() {
    check(
        "bridge A prio 4096: a b
         bridge B: a b
         bridge Evil prio 0: a
         link A.a B.a
         set B.b guard root
         run 5s
         link B.b Evil.a
         run 1s
         expect A is root
         expect B.b alternate discarding root-inconsistent
         expect event RootGuard
         set Evil prio 61440
         run 1s
         expect B.b designated forwarding consistent
         expect tree",
    );
}

#[test]
fn loop_guard_keeps_a_silent_neighbour_blocked() {
    let triangle = "bridge A prio 0: a b
         bridge B prio 4096: a b
         bridge C: a b
         link A.a B.a
         link B.b C.a
         link C.b A.b
         run 5s
         expect C.a alternate discarding";
    check(&format!(
        "{triangle}
         set C loopguard-default
         deaf C.a
         run 30s
         expect C.a discarding loop-inconsistent
         expect event LoopGuard
         hears C.a
         run 3s
         expect C.a alternate discarding consistent
         expect tree"
    ));
    // Without the guard C.a becomes designated, and B receives inferior BPDUs of a neighbour that learns, and
    // disputes its role.
    check(&format!(
        "{triangle}
         set C.a auto-edge off
         deaf C.a
         run 60s
         expect B.b discarding disputed
         expect event Disputed
         hears C.a
         run 20s
         expect C.a alternate discarding
         expect B.b designated forwarding
         expect tree"
    ));
}

#[test]
fn a_port_that_hears_itself_is_blocked() {
    let mut sim = check(
        "bridge A prio 0: a b
         set A.a auto-edge off
         host A.a
         run 60s
         expect A.a designated forwarding",
    );
    let body = lanyard_stp::bpdu::ConfigBody {
        flags: Default::default(),
        root: lanyard_stp::BridgeId::new(0, 0, lanyard_types::MacAddr([2, 0, 0, 0, 0, 1])),
        root_path_cost: 0,
        bridge: lanyard_stp::BridgeId::new(0, 0, lanyard_types::MacAddr([2, 0, 0, 0, 0, 1])),
        port: lanyard_stp::PortIdentifier::new(128, 1),
        message_age: 0,
        max_age: 20 * 256,
        hello_time: 512,
        forward_delay: 15 * 256,
    };
    let frame = lanyard_stp::bpdu::encode(
        lanyard_types::MacAddr([2, 0, 0, 0, 0, 1]),
        None,
        lanyard_stp::bpdu::Encapsulation::Ieee,
        &lanyard_stp::bpdu::Bpdu::Rst(body),
    );
    sim.inject(0, sim::port(1), &frame).unwrap();
    sim.lines("expect A.a designated discarding self-loop\nrun 30s\nexpect A.a forwarding consistent");
}

#[test]
fn bpdu_filter_of_an_interface_neither_sends_nor_hears() {
    let sim = check(
        "bridge A prio 4096: a b
         bridge B prio 0: a
         set A.a bpdufilter
         link A.a B.a
         run 60s
         expect A is root                            # B is better, and not received
         expect A.a designated forwarding",
    );
    let view = sim.port_view("A.a", sim::vlan(1));
    assert_eq!((view.bpdus.tx(), view.bpdus.rx()), (0, 0));
    assert!(sim.nodes[0].bridge.port_summaries(sim.now)[0].counters.filtered > 20);
}

#[test]
fn bpdu_filter_default_ends_where_a_bridge_is_heard() {
    check(
        "bridge A prio 4096: a b
         bridge B prio 0: a
         set A portfast-default
         set A bpdufilter-default
         link A.a B.a
         run 5s
         expect A.a root forwarding non-edge
         expect B is root
         expect B.a designated forwarding
         expect tree",
    );
}
