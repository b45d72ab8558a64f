//! Scenarios with a single tree, RSTP and STP, in simulated time, in the language of `sim`.

use crate::sim::{self, check};

#[test]
fn two_bridges_forward_by_proposal_and_agreement() {
    check(
        "bridge A prio 4096: a b
         bridge B: a b
         link A.a B.a
         run 100ms
         expect A is root
         expect A.a designated forwarding
         expect B.a root forwarding
         expect B cost 20000
         link A.b B.b
         run 100ms
         expect A.b designated
         expect B.b alternate discarding
         run 5s
         expect tree",
    );
}

#[test]
fn failover_to_an_alternate_port_needs_no_timer() {
    check(
        "bridge A prio 4096: a b
         bridge B: a b
         link A.a B.a
         link A.b B.b
         run 5s
         expect B.b alternate discarding
         cut A.a
         run 5ms
         expect B.b root forwarding
         expect A.b designated forwarding
         run 5s
         restore A.a
         run 50ms
         expect B.a root forwarding
         expect B.b alternate discarding
         expect tree",
    );
}

/// A root, two bridges with direct links to it, redundant links below them, and a shared LAN with two ports
/// of one bridge.
#[test]
fn roles_and_costs_of_a_small_campus() {
    let campus = "
         bridge R prio 0: a b
         bridge X prio 4096: a b c d
         bridge Y prio 8192: a b c d
         bridge Z: a b c d
         link R.a X.a speed 1000
         link R.b Y.a speed 1000
         link X.b Y.b speed 1000
         link X.c Z.a speed 100
         link Y.c Z.b speed 1000
         hub Z.c Z.d Y.d
         settle within 90s
         expect tree";
    check(&format!(
        "{campus}
         expect R is root
         expect R.a designated forwarding
         expect R.b designated forwarding
         expect X.a root forwarding
         expect X cost 20000
         expect Y.a root forwarding
         expect Y cost 20000
         expect X.b designated forwarding     # equal costs: X has the better identifier
         expect Y.b alternate discarding
         expect Z cost 40000
         expect Z.b root forwarding           # 1 Gbit/s through Y beats 100 Mbit/s through X
         expect Z.a alternate discarding
         expect Y.d designated forwarding     # the shared LAN is Y's
         expect Z.c alternate discarding
         expect Z.d alternate discarding"
    ));
    check(&format!(
        "{campus}
         unplug Y.d
         settle within 90s
         expect Z.c designated forwarding     # nobody else: the lower port number serves the LAN
         expect Z.d backup discarding
         cut R.b
         run 500ms
         expect Y.b root forwarding
         expect Y cost 40000
         expect Z cost 60000
         cut R.a
         settle within 60s
         expect X is root
         expect Z port b"
    ));
    check(&format!(
        "{campus}
         set Z.a cost 10
         run 500ms
         expect Z.a root forwarding
         expect Z cost 20010
         expect Z.b alternate discarding
         set Z prio 0
         set R prio 61440
         settle within 60s
         expect Z is root
         expect tree"
    ));
}

#[test]
fn tie_breaks() {
    check(
        "bridge A prio 0: a b c
         bridge B: a b c
         link A.a B.c
         link A.b B.b
         link A.c B.a
         run 5s
         expect B port c                      # the neighbour's lowest port identifier
         set A.b prio 16
         run 1s
         expect B port b
         set B.a cost 19999
         run 1s
         expect B port a
         expect tree",
    );
}

#[test]
fn ring_of_eight() {
    let ring = |n: usize| {
        let mut text = String::new();
        (0..n)
            .for_each(|at| text += &format!("bridge B{at} prio {}: l r\n", if at == 0 { 0 } else { 32768 }));
        (0..n).for_each(|at| text += &format!("link B{at}.r B{}.l\n", (at + 1) % n));
        text
    };
    check(&format!(
        "{}settle within 30s
         expect tree
         expect B4.l root forwarding          # B3 and B5 are as far from the root; B3 has the lower address
         expect B4.r alternate discarding
         expect B5.l designated
         cut B4.l                             # far from the root
         run 40ms
         expect B4.r root forwarding
         expect B5.l designated forwarding
         run 3s
         expect tree
         restore B4.l
         settle within 10s
         expect tree
         cut B0.r                             # at the root: the worst, four bridges turn around
         run 60ms
         expect B1.r root forwarding
         expect B4.r root forwarding
         run 3s
         expect tree
         restore B0.r
         settle within 10s
         snip B2.r                            # indirect: no link goes down, information ages out
         run 6100ms
         expect B2.l root forwarding
         expect B3.r root forwarding
         settle within 20s
         expect tree",
        ring(8)
    ));
}

#[test]
fn information_counts_to_infinity_and_stops() {
    check(
        "bridge R prio 0: a
         bridge A: a b c
         bridge B: a b
         bridge C: a b
         link R.a A.a
         link A.b B.a
         link B.b C.a
         link C.b A.c
         settle within 30s
         cut R.a
         settle within 60s
         expect A is root
         expect tree
         restore R.a
         settle within 30s
         expect R is root
         expect tree",
    );
}

/// Failures in sequence do not count to infinity: the tree recovers from each as fast as from the first.
#[test]
fn a_ring_that_is_cut_again_and_again_does_not_count() {
    let names = ["A", "B", "C", "D", "E", "F", "G", "H"];
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        text += &format!("bridge {name} prio {}: left right\n", at * 4096);
    }
    for (at, name) in names.iter().enumerate() {
        text += &format!("link {name}.right {}.left\n", names[(at + 1) % names.len()]);
    }
    text += "run 10s\n expect tree\n expect E.right alternate discarding\n";
    // The ring is whole for as long as it is cut, then for a short time only, then cut for a short time only.
    for (whole, cut) in
        [("8s", "8s"), ("8s", "8s"), ("8s", "8s"), ("1500ms", "8s"), ("9s", "2s"), ("9s", "2s")]
    {
        text +=
            &format!("run {whole}\n cut A.right\n run 30ms\n expect tree\n expect B.right root forwarding\n");
        text += &format!("expect E.left designated forwarding\n run {cut}\n restore A.right\n");
    }
    check(&text);
}

/// The bridge loses paths, each longer than the one before, within a second of each other.
#[test]
fn two_failures_in_a_row_do_not_count() {
    check(
        "bridge R prio 0: a b c
         bridge X: a b c d
         bridge Y prio 4096: a b
         link R.a X.a
         link R.b Y.a
         link Y.b X.b
         link R.c X.c speed 10
         host X.d
         run 30s
         expect X.a root forwarding
         cut X.a
         run 30ms
         expect X.b root forwarding
         run 1s
         cut X.b
         run 30ms
         expect X.c root forwarding
         expect tree",
    );
}

#[test]
fn hosts_get_edge_ports_and_lose_them() {
    check(
        "bridge A prio 0: a b c d
         bridge B: a
         host A.a
         run 2900ms
         expect A.a designated discarding non-edge
         run 200ms
         expect A.a designated forwarding edge       # three seconds of silence
         set A.b portfast
         host A.b
         run 1ms
         expect A.b forwarding edge                  # at once
         set A.c auto-edge off
         host A.c
         run 19s
         expect A.c discarding
         run 17s
         expect A.c forwarding non-edge              # the timers: max age, then forward delay
         forget events
         link A.d B.a down
         set A.d portfast
         restore A.d
         run 100ms
         expect A.d designated forwarding non-edge   # a bridge: portfast does not last
         expect event edge: false",
    );
}

#[test]
fn topology_changes_flush_the_right_ports() {
    check(
        "bridge A prio 0: a b h
         bridge B: a b h
         bridge C: a b h
         link A.a B.a
         link B.b C.a
         link C.b A.b
         host A.h
         host B.h
         host C.h
         settle within 30s
         expect C.a alternate discarding
         expect B.b designated
         forget events
         run 10s
         expect no event TopologyChange
         cut C.h                                     # an edge port: nobody cares
         run 5s
         expect no event TopologyChange
         restore C.h
         run 10s
         expect no event TopologyChange
         forget events
         cut C.b
         run 500ms
         expect C.a root forwarding
         expect event TopologyChange
         expect flush C.b
         expect flush A.b
         expect flush B.a
         expect no flush A.a                         # where the news came from
         expect no flush A.h
         expect no flush B.h
         expect no flush C.h
         run 5s
         forget events
         run 10s
         expect no event TopologyChange              # tcWhile is over",
    );
    check(
        "bridge A prio 0: a h
         bridge B: a b
         bridge C: a b
         link A.a B.a
         link B.b C.a
         set A.h auto-edge off
         host A.h
         set B.b tcn-guard
         settle within 60s
         set C.b auto-edge off
         forget events
         host C.b
         settle within 60s
         expect no flush A.h                         # C's change stops at B's guard
         expect no flush B.a",
    );
}

#[test]
fn stp_takes_its_time_and_acknowledges() {
    check(
        "mode stp
         bridge A prio 0: a b
         bridge B: a b
         bridge C: a b
         link A.a B.a
         link B.b C.a
         link C.b A.b
         run 14s
         expect A.a discarding
         settle within 60s
         expect tree
         expect C.a alternate discarding
         expect B cost 20000
         forget events
         cut C.b
         run 1s
         expect C.a root discarding
         run 35s
         expect C.a root forwarding
         expect event TopologyChange                 # reported to the root with TCN BPDUs
         expect flush B.a
         run 60s
         expect tree",
    );
}

#[test]
fn migration_to_stp_and_back() {
    check(
        "bridge A prio 0: a b
         mode stp
         bridge S: a b
         mode rstp
         bridge C: a
         link A.a S.a
         link A.b C.a
         run 1s
         expect A.a rapid
         run 4s
         expect A.a stp                              # received configuration BPDUs
         expect A.b rapid                            # the others do not mind
         expect C.a root forwarding
         run 60s
         expect tree
         expect A.a designated forwarding
         expect S.a root forwarding
         set S mode rstp
         run 4s
         expect S.a rapid                            # it starts afresh; A's port still speaks STP
         run 4s
         mcheck A
         run 5s
         expect A.a rapid
         expect S.a rapid
         expect tree",
    );
}

#[test]
fn two_ports_of_one_bridge_on_a_cable() {
    check(
        "bridge A: a b c
         link A.a A.b
         settle within 60s
         expect A.a designated
         expect A.b backup discarding
         expect tree",
    );
}

#[test]
fn shared_links_wait_for_timers() {
    check(
        "bridge A prio 0: a
         bridge B: a
         bridge C: a
         hub A.a B.a C.a
         run 1s
         expect A.a designated discarding
         expect B.a root forwarding
         settle within 60s
         expect A.a designated forwarding
         expect tree",
    );
    check(
        "bridge A prio 0: a
         bridge B: a
         link A.a B.a half down
         set A.a link-type p2p
         set B.a link-type p2p
         restore A.a
         run 100ms
         expect A.a designated forwarding",
    );
}

#[test]
fn lossy_links_recover() {
    // Where BPDUs are lost, RSTP cannot promise that no loop exists for a moment.
    check(
        "loops allowed
         bridge A prio 0: a b c
         bridge B prio 4096: a b c
         bridge C: a b c
         link A.a B.a loss 20
         link B.b C.a loss 20
         link C.b A.b loss 20
         link B.c C.c loss 20
         host A.c
         run 300s
         mend A.a
         mend B.b
         mend C.b
         mend B.c
         settle within 60s
         expect tree",
    );
}

#[test]
fn a_restarted_daemon_is_not_noticed() {
    for mode in ["rstp", "stp", "mst", "rapid-pvst", "pvst"] {
        check(&format!(
            "mode {mode}
             vlans 1
             bridge A prio 0 trunk: a b
             bridge B prio 4096 trunk: a b
             bridge C trunk: a b
             link A.a B.a
             link B.b C.a
             link C.b A.b
             settle within 90s
             forget events
             restart A away 3s
             run 20s
             restart B away 3s
             run 20s
             restart C away 3s
             run 20s
             expect no event TopologyChange
             expect no event State
             expect no event Role
             expect tree"
        ));
    }
}

#[test]
fn restarts_among_regions_and_older_bridges_are_not_noticed() {
    check(
        "mode mst
         vlans 1,10
         region east 1: 1=10
         bridge A prio 4096 trunk: a b c
         bridge B prio 8192 trunk: a b c
         mode rstp
         bridge R prio 0 trunk: a b c
         mode stp
         bridge S trunk: a b c
         mode rapid-pvst
         bridge P trunk: a b
         link A.a B.a
         link A.b R.a
         link B.b S.a
         link R.b S.b
         link A.c P.a
         link B.c P.b
         settle within 120s
         expect tree
         forget events
         restart A away 3s
         run 20s
         restart S away 3s
         run 20s
         restart P away 3s
         run 20s
         restart R away 3s
         run 20s
         restart B away 3s
         run 20s
         expect no event TopologyChange
         expect no event State
         expect no event Role
         expect no event PvstSim
         expect tree",
    );
}

#[test]
fn transmit_hold_count_limits_bursts() {
    let mut sim = check(
        "bridge A prio 0: a
         set A hold-count 3
         host A.a
         run 10s",
    );
    let before = sim.port_view("A.a", sim::vlan(1)).bpdus.tx();
    for cost in 1..200 {
        sim.lines(&format!("set A prio {}\nrun 5ms", (cost % 15) * 4096));
    }
    let sent = sim.port_view("A.a", sim::vlan(1)).bpdus.tx() - before;
    assert!(sent <= 5, "{sent} BPDUs in a second");
}

#[test]
fn timers_of_the_root_rule() {
    let sim = check(
        "bridge A prio 0: a
         bridge B: a
         set A hello 1
         set A maxage 6
         set A forward 4
         link A.a B.a
         run 5s",
    );
    let view = &sim.nodes[1].bridge.view(sim.now)[0];
    assert_eq!((view.hello_time_ms, view.forward_delay_ms, view.max_age_ms), (1000, 4000, 6000));
    assert_eq!(view.own_times_ms, [2000, 15000, 20000]);
}

/// Ports that forwarded towards other bridges propose again; edge ports are not affected.
#[test]
fn a_bridge_that_was_silent_begins_anew() {
    for mode in ["rstp", "mst", "rapid-pvst"] {
        check(&format!(
            "mode {mode}
             vlans 1
             bridge A prio 0 trunk: a b c
             bridge B prio 4096 trunk: a b
             link A.a B.a
             link A.b B.b
             set A.c portfast
             host A.c
             settle within 90s
             run 20s
             expect A.c forwarding edge
             silence A
             expect A.a designated discarding
             expect A.b designated discarding
             expect A.c forwarding edge
             run 100ms
             expect A.a designated forwarding
             expect B.a root forwarding
             settle within 10s
             expect tree"
        ));
    }
}

/// A neighbour believes a BPDU for three hello times.
#[test]
fn neighbours_believe_the_last_bpdu_for_three_hello_times() {
    use lanyard_stp::{Bridge, Config, Duplex, Mode, PortConfig};
    use lanyard_types::{MacAddr, PortId};
    let port = PortId::new(1).unwrap();
    let mut config = Config::new(Mode::Rstp, MacAddr([2, 0, 0, 0, 0, 1]));
    config.ports.insert(port, PortConfig { auto_edge: false, ..PortConfig::default() });
    let mut bridge = Bridge::new(0, config).unwrap();
    bridge.handle_link(1000, port, true, Some(1000), Duplex::Full);
    assert_eq!(bridge.bridged().count(), 1);
    assert_eq!(bridge.believed_until(1000), Some(7000));
    assert_eq!(bridge.believed_until(2500), Some(7000), "no BPDU has left since");
    while let Some(at) = bridge.next_timeout().filter(|at| *at <= 3000) {
        bridge.handle_timer(at);
    }
    assert_eq!(bridge.believed_until(3000), Some(9000));
}
