//! A busy machine, or a neighbour that floods BPDUs: the tree does not change, and frames are still forwarded.
//!
//! All quantities are limited. The tests wait for a number of BPDUs that were received meanwhile, which measures time
//! as the switches see it.

use crate::fixture::{Beds, arrives, bare, becomes, calm, quiet, ring, settle, start, wire};
use crate::guards::bpdu;
use crate::harness::{BROADCAST, Bed, Plane, frame, scenarios, wait_for, wait_until};
use lanyard_netdev::PacketSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

scenarios! {
    a_storm_of_bpdus_is_its_senders_own_trouble: ebpf soft;
    a_busy_machine_is_no_change_of_the_topology: ebpf soft;
}

/// The maximum number of BPDUs of a storm.
const STORM: usize = 2_000_000;
/// Without BPDUs a neighbour is given up after three hello times; this many must be received during the
/// disturbance.
const HELLOS: u64 = 5;
/// A hello time of one second; information ages out after six seconds.
const QUICK: &str = "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1\nspanning-tree vlan 1 forward-time 4\nspanning-tree vlan 1 max-age 6";

/// The counters for BPDUs in `show platform traps`: those that reached the control plane, and those policed.
fn traps(bed: &Bed) -> (u64, u64) {
    let view = bed.ask("show platform traps");
    let row = view["traps"].as_array().unwrap().iter().find(|row| row["group"] == "stp").cloned().unwrap();
    (row["trapped"].as_u64().unwrap(), row["policed"].as_u64().unwrap())
}

/// The number of BPDUs that a port has received, from `show spanning-tree detail`.
fn received(bed: &Bed, port: &str) -> u64 {
    let text = bed.exec(&[&format!("show spanning-tree interface {port} detail")]);
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("BPDU: sent "));
    let count = line.and_then(|line| line.rsplit(' ').next()).and_then(|count| count.parse().ok());
    count.unwrap_or_else(|| panic!("BPDUs received in {text}"))
}

/// Runs `work` on several threads until `done` returns.
fn meanwhile<T>(count: usize, work: impl Fn(&AtomicBool) + Sync, done: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The threads also stop when `done` panics.
        let _stop = Stop(&over);
        (0..count).for_each(|_| drop(scope.spawn(|| work(&over))));
        done()
    })
}

/// The host at the second switch sends inferior BPDUs at full rate. The switch still receives the root's BPDUs, and
/// forwards.
fn a_storm_of_bpdus_is_its_senders_own_trouble(plane: Plane) {
    let beds = Beds(vec![bare(plane, 1), bare(plane, 2)]);
    wire((&beds[0], "right"), (&beds[1], "left"));
    start(&beds[0], &format!("{QUICK}\nspanning-tree vlan 1 priority 4096"), &["right"]);
    start(&beds[1], &format!("{QUICK}\nspanning-tree vlan 1 priority 8192"), &["left"]);
    becomes(&beds[1], 0, "left", "root", "forwarding");
    let (far, near, shouter) = (beds[0].host(1), beds[1].host(2), beds[1].host(1));
    let before = quiet(&beds).pop().unwrap();
    let (trapped, policed) = traps(&beds[1]);
    let socket = shouter.net.run(|| {
        let index = nix::net::if_::if_nametoindex("eth0").unwrap();
        PacketSocket::sender(index).unwrap()
    });
    let storm = |over: &AtomicBool| {
        let frame = bpdu(61440);
        for _ in 0..STORM {
            // A storm fills the wire, so sending may fail.
            let _ = socket.send(&frame.0);
            if over.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    meanwhile(1, storm, || {
        wait_for("the storm to be policed", || (traps(&beds[1]).1 > policed + 1000).then_some(()));
        let start = received(&beds[1], "left");
        wait_for("the root to be received all the same", || {
            far.send(&frame(near.mac, far.mac));
            (received(&beds[1], "left") >= start + HELLOS).then_some(())
        });
        near.drain();
        let sent = frame(BROADCAST, far.mac);
        far.send(&sent);
        wait_for("a frame while there is a storm", || near.next().filter(|frame| *frame == sent));
    });
    let (after, shouted) = (calm(&beds[1], 0), traps(&beds[1]));
    assert_eq!((after.0, after.1, &after.2["left"]), (before.0, before.1, &before.2["left"]));
    let (up, over) = (shouted.0 - trapped, shouted.1 - policed);
    println!("{}: {up} BPDUs reached the switch, {over} were too many", plane.name());
    assert!(over > up, "{over} BPDUs were policed, {up} were not");
    assert!(beds[1].exec(&["show interfaces counters drops"]).contains("trap_policed"));
}

/// All processors are busy with other work, and the switches forward as much as they can.
fn a_busy_machine_is_no_change_of_the_topology(plane: Plane) {
    let beds = ring(plane, 3, QUICK);
    settle(&beds, 0, 1);
    let before = quiet(&beds);
    let from = beds[0].host(1);
    let socket = from.net.run(|| {
        let index = nix::net::if_::if_nametoindex("eth0").unwrap();
        PacketSocket::sender(index).unwrap()
    });
    let flood = frame(BROADCAST, from.mac);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let busy = |over: &AtomicBool| {
        while !over.load(Ordering::Relaxed) {
            let _ = socket.send(&flood.0);
            (0..10_000).for_each(|_| std::hint::spin_loop());
        }
    };
    meanwhile(2 * cores, busy, || {
        let ports = [(1, "left"), (2, "right")];
        let start: Vec<u64> = ports.iter().map(|(at, port)| received(&beds[*at], port)).collect();
        let done = wait_until(Duration::from_secs(120), || {
            let now = ports.iter().map(|(at, port)| received(&beds[*at], port));
            start.iter().zip(now).all(|(start, now)| now >= start + 2 * HELLOS).then_some(())
        });
        assert!(done.is_some(), "hellos are not received");
    });
    for (bed, before) in beds.iter().zip(before) {
        assert_eq!(calm(bed, 0), before);
    }
    beds.iter().for_each(|bed| bed.host(1).drain());
    let sent = frame(BROADCAST, beds[1].host(1).mac);
    beds[1].host(1).send(&sent);
    arrives(&beds[2], &sent);
}
