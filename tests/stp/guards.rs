//! Edge ports and guards.

use crate::fixture::{Beds, bare, becomes, ports, start, tree, wire};
use crate::harness::{BROADCAST, Bed, DEADLINE, Frame, Plane, frame, scenarios, wait_for, wait_until};

scenarios! {
    portfast_forwards_at_once: ebpf soft;
    portfast_disable_forbids_an_edge_port: ebpf;
    bpdu_guard_shuts_the_port_down: ebpf;
    a_port_comes_back_after_the_recovery_interval: ebpf;
    root_guard_holds_a_superior_bridge_off: ebpf;
    loop_guard_blocks_a_port_that_receives_no_more_bpdus: ebpf;
    a_filtered_port_neither_hears_nor_speaks: ebpf;
    an_edge_port_that_hears_a_bridge_is_none: ebpf;
    a_shared_link_waits_for_its_timers: ebpf;
    hostile_bpdus_are_counted: ebpf;
}

/// An RST BPDU (IEEE 802.1D-2004, 9.3.3) of a designated, forwarding bridge with this priority, built by hand.
pub fn bpdu(priority: u16) -> Frame {
    let id = [&priority.to_be_bytes()[..], &[0x02, 0, 0, 0, 0xee, 1]].concat();
    let mut body = vec![0x42, 0x42, 0x03, 0, 0, 2, 2, 0x3c];
    body.extend(&id);
    body.extend([0, 0, 0, 0]);
    body.extend(&id);
    body.extend([0x80, 0x01, 0, 0, 20, 0, 2, 0, 15, 0, 0]);
    let mut bytes = vec![0x01, 0x80, 0xc2, 0, 0, 0, 0x02, 0, 0, 0, 0xee, 1];
    bytes.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes.resize(60, 0);
    Frame(bytes)
}

fn portfast_forwards_at_once(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp", &[]);
    for port in ["p1", "p2"] {
        becomes(&bed, 0, port, "designated", "forwarding");
    }
    let changes = || tree(&bed, 0)["topology_changes"].as_u64().unwrap();
    let before = changes();
    bed.net.ip("link set p2 down");
    becomes(&bed, 0, "p2", "disabled", "discarding");
    bed.net.ip("link set p2 up");
    becomes(&bed, 0, "p2", "designated", "forwarding");
    assert_eq!(changes(), before, "an edge port is no change of the topology");
}

/// Waits until management has shut p1 down, which it does when it has the protocol thread's report; returns `show errdisable
/// recovery`.
fn held(bed: &Bed) -> serde_json::Value {
    wait_for("p1 to be shut down", || {
        let held = bed.ask("show errdisable recovery");
        (held["interfaces"][0]["interface"] == "p1").then_some(held)
    })
}

fn bpdu_guard_shuts_the_port_down(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp\nspanning-tree portfast bpduguard default", &[]);
    becomes(&bed, 0, "p1", "designated", "forwarding");
    bed.host(1).send(&bpdu(4096));
    becomes(&bed, 0, "p1", "disabled", "discarding");
    assert_eq!(held(&bed)["interfaces"][0]["cause"], "bpduguard");
    wait_for("the port to be down", || {
        let view = bed.ask("show interfaces status");
        let rows = view["interfaces"].as_array().unwrap().clone();
        rows.iter().find(|row| row["interface"] == "p1" && row["status"] == "err-disabled").map(|_| ())
    });
    wait_for("the message", || {
        let log = bed.exec(&["show logging"]);
        log.contains("%PM-4-ERR_DISABLE: bpduguard error detected on p1").then_some(())
    });
    assert_eq!(ports(&bed, 0)["p2"].1, "forwarding");
    // A restarted daemon does not enable the port. A thread writes the snapshot that it continues from.
    let snapshot = std::path::Path::new("/run/lanyard").join(&bed.instance).join("spanning-tree.json");
    wait_for("the snapshot with the port's error", || {
        let kept: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&snapshot).ok()?).ok()?;
        let links = kept["trees"]["links"].as_object()?;
        links.values().any(|link| !link["err_disabled"].is_null()).then_some(())
    });
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.start();
    assert_eq!(ports(&bed, 0)["p1"].1, "discarding");
    bed.configure("interface p1\nshutdown\nno shutdown");
    becomes(&bed, 0, "p1", "designated", "forwarding");
    assert_eq!(bed.ask("show errdisable recovery")["interfaces"].as_array().unwrap().len(), 0);
}

/// The shortest recovery interval is 30 s.
fn a_port_comes_back_after_the_recovery_interval(plane: Plane) {
    let bed = bare(plane, 2);
    let lines = "spanning-tree mode rstp\nspanning-tree portfast bpduguard default\n\
        errdisable recovery cause bpduguard\nerrdisable recovery interval 30";
    start(&bed, lines, &[]);
    becomes(&bed, 0, "p1", "designated", "forwarding");
    bed.host(1).send(&bpdu(4096));
    becomes(&bed, 0, "p1", "disabled", "discarding");
    held(&bed);
    wait_for("p1 alone to be listed", || {
        let down = bed.ask("show interfaces status err-disabled");
        let rows = down["interfaces"].as_array().unwrap().clone();
        (rows.len() == 1 && rows[0]["interface"] == "p1").then_some(())
    });
    let table = bed.exec(&["show interfaces status err-disabled"]);
    assert!(table.contains("err-disabled") && table.contains("bpduguard"), "{table}");
    let held = bed.ask("show errdisable recovery");
    let left = held["interfaces"][0]["time_left_s"].as_u64();
    assert!(left.is_some_and(|left| (1..=30).contains(&left)), "{held}");
    let back = wait_until(3 * DEADLINE, || (ports(&bed, 0)["p1"].1 == "forwarding").then_some(()));
    assert!(back.is_some(), "p1 should be back: {}", bed.ask("show errdisable recovery"));
    assert!(bed.exec(&["show logging"]).contains("%PM-4-ERR_RECOVER"));
    assert!(bed.ask("show interfaces status err-disabled")["interfaces"].as_array().unwrap().is_empty());
}

/// A hello time of one second: a neighbour counts as silent after three seconds.
const QUICK: &str = "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1\nspanning-tree vlan 1 forward-time 4\n\
    spanning-tree vlan 1 max-age 6";

/// Two switches with one wire between them; the first is the root.
fn pair(plane: Plane) -> Beds {
    let beds = Beds(vec![bare(plane, 1), bare(plane, 1)]);
    wire((&beds[0], "right"), (&beds[1], "left"));
    start(&beds[0], &format!("{QUICK}\nspanning-tree vlan 1 priority 4096"), &["right"]);
    start(&beds[1], &format!("{QUICK}\nspanning-tree vlan 1 priority 8192"), &["left"]);
    becomes(&beds[1], 0, "left", "root", "forwarding");
    becomes(&beds[0], 0, "right", "designated", "forwarding");
    beds
}

fn loop_guard_blocks_a_port_that_receives_no_more_bpdus(plane: Plane) {
    let beds = pair(plane);
    beds[1].configure("interface left\nspanning-tree guard loop");
    // The link stays up, but the root no longer sends BPDUs.
    beds[0].configure("interface right\nspanning-tree bpdufilter enable");
    wait_for("the port to be inconsistent", || {
        beds[1].exec(&["show spanning-tree inconsistentports"]).contains("Loop Inconsistent").then_some(())
    });
    assert_eq!(ports(&beds[1], 0)["left"].1, "discarding");
    assert!(beds[1].exec(&["show logging"]).contains("%SPANTREE-2-LOOPGUARD_BLOCK"));
    beds[0].configure("interface right\nno spanning-tree bpdufilter");
    becomes(&beds[1], 0, "left", "root", "forwarding");
    assert!(beds[1].exec(&["show logging"]).contains("%SPANTREE-2-LOOPGUARD_UNBLOCK"));
}

fn a_filtered_port_neither_hears_nor_speaks(plane: Plane) {
    let beds = pair(plane);
    beds[1].configure("interface left\nspanning-tree bpdufilter enable");
    becomes(&beds[1], 0, "left", "designated", "forwarding");
    assert!(tree(&beds[1], 0)["root_port"].is_null(), "it hears nobody");
    let hosts = [beds[0].host(1), beds[1].host(1)];
    hosts[1].drain();
    let sent = frame(BROADCAST, hosts[0].mac);
    hosts[0].send(&sent);
    wait_for("a frame", || hosts[1].next().filter(|frame| *frame == sent));
    beds[1].configure("interface left\nno spanning-tree bpdufilter");
    becomes(&beds[1], 0, "left", "root", "forwarding");
}

fn an_edge_port_that_hears_a_bridge_is_none(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, &format!("{QUICK}\nspanning-tree vlan 1 priority 4096"), &[]);
    becomes(&bed, 0, "p1", "designated", "forwarding");
    let edge = || {
        let tree = tree(&bed, 0);
        let row = tree["ports"].as_array().unwrap().iter().find(|port| port["interface"] == "p1").cloned();
        row.unwrap()["edge"].as_bool().unwrap()
    };
    assert!(edge());
    bed.host(1).send(&bpdu(61440));
    wait_for("the port to be no edge", || (!edge()).then_some(()));
    assert_eq!(ports(&bed, 0)["p2"].1, "forwarding");
    bed.net.ip("link set p1 down");
    becomes(&bed, 0, "p1", "disabled", "discarding");
    bed.net.ip("link set p1 up");
    becomes(&bed, 0, "p1", "designated", "forwarding");
    assert!(edge(), "portfast is what it is configured to be when the link comes back");
}

fn a_shared_link_waits_for_its_timers(plane: Plane) {
    let beds = pair(plane);
    beds[0].configure("interface right\nspanning-tree link-type shared");
    assert!(beds[0].exec(&["show spanning-tree"]).contains("Shr"));
    beds[0].net.ip("link set right down");
    becomes(&beds[0], 0, "right", "disabled", "discarding");
    beds[0].net.ip("link set right up");
    // On a shared link there is no proposal: the port goes through the learning state, which a point-to-point
    // link avoids.
    becomes(&beds[0], 0, "right", "designated", "learning");
    becomes(&beds[0], 0, "right", "designated", "forwarding");
}

fn root_guard_holds_a_superior_bridge_off(plane: Plane) {
    let beds = Beds(vec![bare(plane, 1), bare(plane, 1)]);
    wire((&beds[0], "right"), (&beds[1], "left"));
    start(&beds[0], "spanning-tree mode rstp\nspanning-tree vlan 1 priority 8192", &["right"]);
    beds[0].configure("interface right\nspanning-tree guard root");
    start(&beds[1], "spanning-tree mode rstp\nspanning-tree vlan 1 priority 4096", &["left"]);
    wait_for("the port to be inconsistent", || {
        beds[0].exec(&["show spanning-tree inconsistentports"]).contains("Root Inconsistent").then_some(())
    });
    assert!(tree(&beds[0], 0)["root_port"].is_null());
    assert_eq!(ports(&beds[0], 0)["right"].1, "discarding");
    beds[1].configure("spanning-tree vlan 1 priority 61440");
    becomes(&beds[0], 0, "right", "designated", "forwarding");
}

fn hostile_bpdus_are_counted(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp\nspanning-tree vlan 1 priority 0", &[]);
    becomes(&bed, 0, "p1", "designated", "forwarding");
    // A max age of 0 is out of range.
    let mut wrong = bpdu(0);
    wrong.0[14 + 3 + 29..14 + 3 + 31].fill(0);
    bed.host(1).send(&wrong);
    wait_for("the refused BPDU to be counted", || {
        bed.exec(&["show spanning-tree detail"]).contains("Refused BPDUs").then_some(())
    });
    assert!(tree(&bed, 0)["root_port"].is_null());
    assert!(bed.exec(&["show logging"]).contains("%SPANTREE-4-BPDU_REJECTED"));
}

/// Without `portfast disable` the port would be an edge port after three seconds without BPDUs; the other port shows
/// that this time is over.
fn portfast_disable_forbids_an_edge_port(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp", &[]);
    bed.configure("interface p1\nspanning-tree portfast disable\nshutdown\nno shutdown");
    bed.configure("interface p2\nno spanning-tree portfast\nshutdown\nno shutdown");
    becomes(&bed, 0, "p2", "designated", "forwarding");
    becomes(&bed, 0, "p1", "designated", "discarding");
}
