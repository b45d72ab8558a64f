//! Edge ports and guards.

use crate::fixture::{Beds, bare, becomes, ports, start, tree, wire};
use crate::harness::{Frame, Plane, scenarios, wait_for};

scenarios! {
    portfast_forwards_at_once: ebpf soft;
    bpdu_guard_shuts_the_port_down: ebpf;
    root_guard_holds_a_superior_bridge_off: ebpf;
    hostile_bpdus_are_counted: ebpf;
}

/// An RST BPDU (IEEE 802.1D-2004, 9.3.3) of a bridge with this priority, designated and forwarding, written down by hand.
fn bpdu(priority: u16) -> Frame {
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

fn bpdu_guard_shuts_the_port_down(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp\nspanning-tree portfast bpduguard default", &[]);
    becomes(&bed, 0, "p1", "designated", "forwarding");
    bed.host(1).send(&bpdu(4096));
    becomes(&bed, 0, "p1", "disabled", "discarding");
    let held = bed.ask("show errdisable recovery");
    assert_eq!(held["interfaces"][0]["interface"], "p1", "{held}");
    assert_eq!(held["interfaces"][0]["cause"], "bpduguard");
    wait_for("the port to be down", || {
        let view = bed.ask("show interfaces status");
        let rows = view["interfaces"].as_array().unwrap().clone();
        rows.iter().find(|row| row["interface"] == "p1" && row["status"] == "err-disabled").map(|_| ())
    });
    assert!(bed.exec(&["show logging"]).contains("%PM-4-ERR_DISABLE: bpduguard error detected on p1"));
    assert_eq!(ports(&bed, 0)["p2"].1, "forwarding");
    // A restarted daemon does not bring it up.
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.start();
    assert_eq!(ports(&bed, 0)["p1"].1, "discarding");
    bed.configure("interface p1\nshutdown\nno shutdown");
    becomes(&bed, 0, "p1", "designated", "forwarding");
    assert_eq!(bed.ask("show errdisable recovery")["interfaces"].as_array().unwrap().len(), 0);
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
    // Max age 0 is out of its range.
    let mut wrong = bpdu(0);
    wrong.0[14 + 3 + 29..14 + 3 + 31].fill(0);
    bed.host(1).send(&wrong);
    wait_for("the refused BPDU to be counted", || {
        bed.exec(&["show spanning-tree detail"]).contains("Refused BPDUs").then_some(())
    });
    assert!(tree(&bed, 0)["root_port"].is_null());
    assert!(bed.exec(&["show logging"]).contains("%SPANTREE-4-BPDU_REJECTED"));
}
