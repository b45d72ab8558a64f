//! Rings of switches: one port blocks, there is no loop, a cut is repaired, and a killed daemon has no effect
//! on the tree.

use crate::fixture::{
    Beds, arrives, becomes, calm, heard_again, mixed_ring, no_loop, ports, quiet, ring, settle, tree,
};
use crate::harness::daemon::Daemon;
use crate::harness::{Plane, frame, scenarios, wait_for};
use nix::sys::signal::Signal;
use std::time::Instant;

scenarios! {
    rapid: ebpf soft;
    per_vlan: ebpf;
    regions: ebpf;
    a_cut_is_healed: ebpf soft;
    a_killed_daemon_is_not_noticed: ebpf;
    nor_is_one_among_mst_rstp_and_stp: ebpf;
    off_is_off: ebpf;
}

fn rapid(plane: Plane) {
    let beds = ring(plane, 4, "spanning-tree mode rstp");
    settle(&beds, 0, 1);
    assert!(tree(&beds[0], 0)["root_port"].is_null());
    // The switch that is farthest from the root has two paths of equal cost; the path through the lower
    // bridge identifier wins.
    assert_eq!(ports(&beds[2], 0)["right"].0, "alternate");
    no_loop(&beds);
}

fn per_vlan(plane: Plane) {
    let lines = "vlan 10,20\nspanning-tree mode rapid-pvst\nno spanning-tree vlan 1\nspanning-tree vlan 10 hello-time 1";
    let beds = ring(plane, 3, lines);
    beds[1].configure("spanning-tree vlan 10 root primary\ninterface p1\nswitchport access vlan 10");
    beds[0].configure("spanning-tree vlan 20 priority 0\ninterface p1\nswitchport access vlan 10");
    beds[2].configure("interface p1\nswitchport access vlan 10");
    settle(&beds, 10, 1);
    settle(&beds, 20, 1);
    assert!(tree(&beds[1], 10)["root_port"].is_null());
    assert!(tree(&beds[0], 20)["root_port"].is_null());
    assert_eq!(tree(&beds[0], 1), serde_json::Value::Null);
}

fn regions(plane: Plane) {
    let lines = "vlan 10,20\nspanning-tree mode mst\nspanning-tree mst configuration\nname r\nrevision 1\n\
        instance 1 vlan 10\ninstance 2 vlan 20\nexit";
    let beds = ring(plane, 3, lines);
    beds[1].configure("spanning-tree mst 1 priority 4096");
    beds[2].configure("spanning-tree mst 2 priority 4096");
    for instance in 0..3 {
        settle(&beds, instance, 1);
    }
    assert!(tree(&beds[1], 1)["root_port"].is_null());
    assert!(tree(&beds[2], 2)["root_port"].is_null());
    no_loop(&beds);
}

fn a_cut_is_healed(plane: Plane) {
    let beds = ring(plane, 4, "spanning-tree mode rstp");
    settle(&beds, 0, 1);
    let (from, to) = (&beds[0], &beds[1]);
    // Both stations are known, so frames take the other path only because the FDB is flushed.
    to.host(1).send(&frame(from.host(1).mac, to.host(1).mac));
    wait_for("the other's frame", || from.host(1).next());
    let sent = frame(to.host(1).mac, from.host(1).mac);
    from.host(1).send(&sent);
    arrives(to, &sent);
    from.net.ip("link set right down");
    let cut = Instant::now();
    wait_for("a frame by the other way", || {
        from.host(1).send(&frame(to.host(1).mac, from.host(1).mac));
        to.host(1).next().filter(|frame| frame.0[6..12] == from.host(1).mac)
    });
    println!("{}: frames flow {:?} after the cut", plane.name(), cut.elapsed());
    settle(&beds, 0, 0);
    from.net.ip("link set right up");
    settle(&beds, 0, 1);
    no_loop(&beds);
}

/// Every frame must arrive, whichever daemon was killed.
fn a_killed_daemon_is_not_noticed(plane: Plane) {
    killed_daemons(&ring(plane, 3, "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1"));
}

/// One switch of each kind: the root has an MST region, the next runs RSTP, the third runs STP only.
fn nor_is_one_among_mst_rstp_and_stp(plane: Plane) {
    let short = |mode: &str, tree: &str| {
        let times = ["hello-time 1", "forward-time 4", "max-age 6"];
        let lines = times.map(|time| format!("spanning-tree {tree} {time}\n"));
        format!("spanning-tree mode {mode}\n{}", lines.concat())
    };
    let lines = [short("mst", "mst"), short("rstp", "vlan 1"), short("stp", "vlan 1")];
    let beds = mixed_ring(plane, &lines.each_ref().map(String::as_str));
    settle(&beds, 0, 1);
    assert_eq!(tree(&beds[0], 0)["protocol"], "mst");
    assert_eq!(tree(&beds[2], 0)["protocol"], "stp");
    wait_for("the neighbour to be known for what it is", || {
        beds[1].exec(&["show spanning-tree"]).contains("Peer(STP)").then_some(())
    });
    killed_daemons(&beds);
}

fn killed_daemons(beds: &Beds) {
    settle(beds, 0, 1);
    // The frames pass the switch in the middle of the path, and their host is behind the one whose port
    // blocks.
    let [root, middle, _] = &beds[..] else { panic!("three switches") };
    let before = quiet(beds);
    let (from, to) = (root.host(1), middle.host(1));
    to.send(&frame(from.mac, to.mac));
    wait_for("the other's frame", || from.next());
    to.drain();
    for victim in beds.iter() {
        let pass = || {
            let this = frame(to.mac, from.mac);
            from.send(&this);
            // The wait fails if the frame is lost.
            wait_for("a frame while a daemon is away", || to.next().filter(|frame| *frame == this));
        };
        victim.end_daemon(Signal::SIGKILL);
        (0..100).for_each(|_| pass());
        let (config, log) = (victim.config_file(), victim.file("log"));
        let daemon = Daemon::spawn(&victim.net, &victim.instance, victim.plane, Some(&config), &log);
        while !daemon.printed().contains(" ready: ") {
            pass();
        }
        victim.adopt(daemon);
        (0..100).for_each(|_| pass());
        settle(beds, 0, 1);
        heard_again(beds);
        for (before, after) in before.iter().zip(beds.iter().map(|bed| calm(bed, 0))) {
            // A daemon starts with the count at the last change of a role, which may be lower; the count must not grow.
            let printed = || {
                let what = ["show clock", "show spanning-tree detail", "show logging"];
                let lines = beds.iter().map(|bed| format!("{}\n{}", bed.instance, bed.exec(&what)));
                lines.collect::<String>()
            };
            assert!(after.0 <= before.0, "{}: {after:?}, before {before:?}\n{}", victim.instance, printed());
            assert_eq!((&after.1, &after.2), (&before.1, &before.2));
        }
    }
    no_loop(beds);
}

fn off_is_off(plane: Plane) {
    let beds = ring(plane, 3, "spanning-tree mode rstp");
    settle(&beds, 0, 1);
    // Without the third link there is no loop when spanning tree is turned off.
    beds[2].net.ip("link set right down");
    settle(&beds, 0, 0);
    beds[1].configure("no spanning-tree mode");
    assert_eq!(beds[1].ask("show spanning-tree")["instances"].as_array().unwrap().len(), 0);
    // A bridge without spanning tree relays BPDUs: the third switch still receives the root's.
    becomes(&beds[2], 0, "left", "root", "forwarding");
    let sent = frame(crate::harness::BROADCAST, beds[0].host(1).mac);
    beds[0].host(1).send(&sent);
    arrives(&beds[1], &sent);
}
