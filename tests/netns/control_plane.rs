//! The control plane under a flood of one port: BPDUs, ARP, IGMP, unknown sources and slow protocols as fast as a thread can
//! send them. Spanning tree does not move, the router still resolves neighbours and answers packets that are too long, and
//! at least 95 % of the known unicast between other ports arrives. The test judges loss, not rates: sender, flood and switch
//! share the processors, so the stream is sent more slowly beside a flood.

use crate::harness::frame::{Mac, reserved};
use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::PacketSocket;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

scenarios! {
    a_flood_of_control_frames: ebpf;
    a_flood_of_broadcasts: ebpf soft;
}

const IGMP_QUERIERS: Mac = [1, 0, 0x5e, 0, 0, 22];
/// Known unicast frames of one measurement.
const STREAM: usize = 4_000;

/// p1 is the attacker; p2 and p3 are hosts of VLAN 1; p4 leads to the root of the tree; p5 is a host behind the router, in
/// VLAN 20, whose interface has a smaller MTU.
const CONFIG: &str = "spanning-tree mode rstp\nip routing\nvlan 20\ninterface range p1 - 4\n switchport\ninterface p5\n \
    switchport access vlan 20\ninterface range p1 - 3\n spanning-tree portfast\ninterface p5\n spanning-tree portfast\n\
    interface vlan 1\n ip address 10.0.1.254 255.255.255.0\ninterface vlan 20\n ip address 10.0.20.254 255.255.255.0\n ip mtu 1400\n";

/// The flags of a designated port: one that forwards, and one that discards.
const FORWARDS: u8 = 0x7c;
const DISCARDS: u8 = 0x0c;

/// An RSTP configuration message of a root with this priority (IEEE 802.1D-2004, 9.3.3). Its forward delay is the shortest one.
fn bpdu(priority: u16, src: Mac, flags: u8) -> Frame {
    let mut bytes = vec![0x42, 0x42, 3, 0, 0, 2, 2, flags];
    for cost in [Some(0u32), None] {
        bytes.extend(priority.to_be_bytes());
        bytes.extend(src);
        bytes.extend(cost.into_iter().flat_map(u32::to_be_bytes));
    }
    bytes.extend([0x80, 1, 0, 0, 6, 0, 2, 0, 4, 0, 0]);
    let mut frame = [&reserved(0)[..], &src, &(bytes.len() as u16).to_be_bytes(), &bytes].concat();
    frame.resize(60, 0);
    Frame(frame)
}

/// A BPDU without effect on the tree: its root has a bad priority, and it comes from a port that discards.
pub fn harmless_bpdu(src: Mac) -> Frame {
    bpdu(0xf000, src, DISCARDS)
}

/// Frames of the attacker. Each of them costs the control plane something if it gets there.
fn attacks() -> Vec<Frame> {
    let mut frames = Vec::new();
    for n in 0..64u16 {
        let src = mac(1000 + n);
        let mut arp = frame(BROADCAST, src).ethertype(0x0806);
        arp.0[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        let mut igmp = frame(IGMP_QUERIERS, src).ethertype(0x0800);
        let packet = [
            0x46, 0, 0, 32, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 1, 9, 224, 0, 0, 22, 0x94, 4, 0, 0, 0x16, 0, 0, 0,
        ];
        igmp.0[14..42].copy_from_slice(&packet);
        frames.extend([arp, igmp, frame(mac(3), src), frame(reserved(2), src).ethertype(0x8809)]);
        // The BPDU has no effect on the tree: the switch would have to accept a better root, and to block a port at which another
        // bridge forwards as well.
        frames.push(harmless_bpdu(src));
    }
    frames
}

/// Sends the attacks one after the other until `stop`; counts the frames sent.
fn attack(wire: &PacketSocket, frames: &[Frame], stop: &AtomicBool, sent: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        for frame in frames {
            // Sending may fail because a queue is full.
            let taken = wire.send(&frame.0).is_ok();
            sent.fetch_add(u64::from(taken), Ordering::Relaxed);
        }
    }
}

/// Sends known unicast from host 2 to host 3; returns the number of frames that arrived, and the rate of sending in frames per
/// second.
fn stream(bed: &Bed) -> (usize, f64) {
    let (mut got, begin) = (0, Instant::now());
    for _ in 0..STREAM / 50 {
        for _ in 0..50 {
            bed.host(2).send(&frame(mac(3), mac(2)));
        }
        while let Some(arrived) = bed.host(3).next() {
            got += usize::from(arrived.0[6..12] == mac(2));
        }
    }
    let rate = STREAM as f64 / begin.elapsed().as_secs_f64();
    // Wait for the frames that are still under way.
    let last = wait_for_quiet(bed);
    (got + last, rate)
}

fn wait_for_quiet(bed: &Bed) -> usize {
    let mut got = 0;
    bed.host(2).send(&frame(mac(3), mac(4242)));
    wait_for("the last frame", || {
        while let Some(arrived) = bed.host(3).next() {
            if arrived.0[6..12] == mac(4242) {
                return Some(());
            }
            got += usize::from(arrived.0[6..12] == mac(2));
        }
        None
    });
    got
}

/// The root, the root port, and the number of changes of topology.
fn tree(bed: &Bed) -> (Value, Value, Value) {
    let view = bed.show("show spanning-tree");
    let tree = &view["instances"][0];
    (tree["root_id"].clone(), tree["root_port"].clone(), tree["topology_changes"].clone())
}

fn state(bed: &Bed, port: &str) -> String {
    let view = bed.show("show spanning-tree");
    let ports = view["instances"][0]["ports"].as_array().expect("ports").clone();
    let found = ports.iter().find(|row| row["interface"] == port);
    found.and_then(|row| row["state"].as_str()).unwrap_or("-").to_owned()
}

/// A counter of a trap group.
pub fn counted(bed: &Bed, key: &str, group: &str) -> u64 {
    let view = bed.show("show platform traps");
    let rows = view["traps"].as_array().unwrap();
    rows.iter().find(|row| row["group"] == group).and_then(|row| row[key].as_u64()).unwrap()
}

fn a_flood_of_control_frames(plane: Plane) {
    let bed = Bed::new(plane, 5, CONFIG);
    bed.chatter.set(true);
    bed.exact.set(false);
    for (host, address, router) in [(2, "10.0.1.2/24", "10.0.1.254"), (5, "10.0.20.5/24", "10.0.20.254")] {
        bed.host(host).address(address);
        bed.host(host).net.ip(&format!("route add default via {router}"));
    }
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let hello = AtomicBool::new(true);
    let open = |host: usize| {
        bed.host(host).net.run(|| {
            let index = nix::net::if_::if_nametoindex("eth0").expect("a port");
            PacketSocket::open(index).expect("a packet socket")
        })
    };
    let (attacker, root) = (open(1), open(4));
    let frames = attacks();
    std::thread::scope(|scope| {
        // The root sends hellos more often than it has to, so that the tree does not change when this thread is late.
        let (hello, stop_hello) = (&hello, &stop);
        scope.spawn(move || {
            while hello.load(Ordering::Relaxed) {
                let _ = root.send(&bpdu(4096, mac(4), FORWARDS).0);
                std::thread::park_timeout(std::time::Duration::from_millis(200));
            }
            stop_hello.store(true, Ordering::Relaxed);
        });
        // The threads end even if the test fails below.
        let end = End(hello, &stop);
        wait_for("the root port", || (tree(&bed).1 == "p4").then_some(()));
        bed.host(2).reaches("10.0.20.5");
        // The attacker's first BPDU shows the switch that p1 has a neighbour.
        attacker.send(&harmless_bpdu(mac(1000)).0).expect("sent");
        wait_for("the BPDU", || (counted(&bed, "trapped", "stp") > 0).then_some(()));
        wait_for("p1 to forward", || (state(&bed, "p1") == "forwarding").then_some(()));
        stream(&bed);
        let before = tree(&bed);
        let (quiet, quiet_pps) = stream(&bed);
        assert_eq!(quiet, STREAM, "without a flood");
        let flooded = Instant::now();
        scope.spawn(|| attack(&attacker, &frames, &stop, &sent));
        wait_for("the flood to be policed", || (counted(&bed, "policed", "stp") > 0).then_some(()));
        let (mut got, mut rates) = (0, Vec::new());
        for _ in 0..5 {
            let (arrived, pps) = stream(&bed);
            got += arrived;
            rates.push(pps);
        }
        bed.exec(&["clear arp-cache"]);
        bed.host(2).reaches("10.0.20.5");
        assert!(!bed.host(2).ping("-c 1 -M do -s 1450 10.0.20.5"), "longer than the MTU");
        let cached =
            bed.host(2).net.output(std::process::Command::new("ip").args(["route", "get", "10.0.20.5"]));
        let cached = String::from_utf8_lossy(&cached.stdout).into_owned();
        assert!(cached.contains("mtu 1400"), "path MTU: {cached}");
        let after = tree(&bed);
        let flood_pps = sent.load(Ordering::Relaxed) as f64 / flooded.elapsed().as_secs_f64();
        drop(end);
        rates.sort_by(f64::total_cmp);
        println!(
            "flood {flood_pps:.0} frames/s; {got} of {} known unicast frames arrived; sent at {:.2} of the quiet rate",
            5 * STREAM,
            rates[2] / quiet_pps
        );
        assert_eq!(after, before, "spanning tree has moved");
        assert!(got * 100 >= 5 * STREAM * 95, "{got} of {} frames arrived", 5 * STREAM);
    });
    for group in ["stp", "multicast", "neighbour"] {
        let (passed, policed) = (counted(&bed, "trapped", group), counted(&bed, "policed", group));
        println!("{group}: {passed} trapped, {policed} policed");
        assert!(passed > 0, "the flood has not reached the control plane");
    }
}

/// A flood of broadcasts at one port costs the kernel's stack a limited number of copies. Addresses are still resolved, because
/// ARP has a trap group of its own, and a second port has its own share.
fn a_flood_of_broadcasts(plane: Plane) {
    let config = "ip routing\ninterface range p1 - 3\n switchport\ninterface vlan 1\n ip address 10.0.1.254 255.255.255.0\n";
    let bed = Bed::new(plane, 3, config);
    bed.chatter.set(true);
    bed.exact.set(false);
    bed.host(2).address("10.0.1.2/24");
    let attacker = bed.host(1).net.run(|| {
        let index = nix::net::if_::if_nametoindex("eth0").expect("a port");
        PacketSocket::open(index).expect("a packet socket")
    });
    let mut flood = frame(BROADCAST, mac(1000)).ethertype(0x0800).0;
    flood[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 9, 10, 0, 1, 255]);
    // Send until the group drops copies: on a slow machine several bursts may be within its rate.
    wait_for("copies over the rate", || {
        (0..10_000).for_each(|_| _ = attacker.send(&flood));
        (counted(&bed, "policed", "flooded") > 0).then_some(())
    });
    bed.host(2).reaches("10.0.1.254");
    assert!(counted(&bed, "trapped", "flooded") > 0);
    assert!(counted(&bed, "trapped", "neighbour") > 0, "the ARP request of host 2");
    assert_eq!(counted(&bed, "policed", "neighbour"), 0);
}

/// Ends the threads of the test when it is dropped.
struct End<'a>(&'a AtomicBool, &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        self.1.store(true, Ordering::Relaxed);
    }
}
