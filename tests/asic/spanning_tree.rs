//! Spanning tree on a chip whose daemon has ended or hangs: no frame is lost while the neighbours hold its last BPDU, and there
//! is no loop after the last BPDU has aged out. The tests of the eBPF plane are in `../stp/watchdog.rs`.

use crate::fixture::{Beds, Ports, bare, becomes, ports, settle, start, wire};
use crate::harness::{BROADCAST, Bed, DEADLINE, Host, Net, Plane, frame, wait_for, wait_until};
use crate::loops::{Beyond, Loops, SHORT, kernel_bridge, kernel_state, takes_over};
use crate::restarts::answers_during;
use crate::rig::Rig;
use lanyard_netdev::Reaped;
use nix::sys::signal::Signal;
use std::time::Instant;

const RAPID: &str = "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1";

/// A switch on a chip with two hosts at `swp1` and `swp2`, trunks at `swp3` and `swp4`, and a third port for a host, `swp5`. The
/// ports of hosts are edge ports. The fields are dropped in their order: the neighbours before the wires.
struct Chip {
    neighbours: Beds,
    hosts: Vec<Host>,
    rig: Rig,
}

impl Chip {
    fn new(lines: &str, neighbours: Beds) -> Self {
        let edge = |n| format!("interface swp{n}\n switchport\n spanning-tree portfast\n");
        let trunk = |n| format!("interface swp{n}\n switchport mode trunk\n");
        let config = [lines, "\n", &edge(1), &edge(2), &trunk(3), &trunk(4), &edge(5)].concat();
        let mut rig = Rig::new(2, &config);
        let nets: Vec<Net> = rig.hosts.drain(..).collect();
        let hosts = (1..).zip(nets).map(|(n, net)| Host::new(net, n)).collect();
        Self { neighbours, hosts, rig }
    }
    /// Connects the chip by two trunks to a switch with the eBPF plane. The switch on the chip is the root.
    fn with_two_trunks() -> Self {
        let neighbours = Beds(vec![bare(Plane::ebpf, 2)]);
        let chip = Self::new(&format!("{RAPID}\nspanning-tree vlan 1 priority 4096"), neighbours);
        let neighbour = &chip.neighbours[0];
        chip.plug(3, &neighbour.net, "t1");
        chip.plug(4, &neighbour.net, "t2");
        start(neighbour, &format!("{RAPID}\nspanning-tree vlan 1 priority 8192"), &["t1", "t2"]);
        chip
    }
    /// Connects a port to a netdev of a neighbour.
    fn plug(&self, port: u8, to: &Net, name: &str) {
        self.rig.net.ip(&format!("link add swp{port}-wire type veth peer name {name} netns {}", to.path()));
    }
    fn ports(&self) -> Ports {
        let view = self.rig.show("show spanning-tree");
        let rows = view["instances"][0]["ports"].as_array().cloned().unwrap_or_default();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        rows.iter().map(|row| (text(row, "interface"), (text(row, "role"), text(row, "state")))).collect()
    }
    /// Waits until a port has this role and state.
    fn becomes(&self, port: &str, role: &str, state: &str) {
        let (mut last, wanted) = (Ports::new(), (role.to_owned(), state.to_owned()));
        let found = wait_until(DEADLINE, || {
            last = self.ports();
            (last.get(port) == Some(&wanted)).then_some(())
        });
        assert!(found.is_some(), "{port} should be {role} {state}, is {last:?}");
    }
    /// Waits until the neighbour behind two trunks has chosen one of them.
    fn settle(&self) {
        self.becomes("swp3", "designated", "forwarding");
        self.becomes("swp4", "designated", "forwarding");
        becomes(&self.neighbours[0], 0, "t1", "root", "forwarding");
        becomes(&self.neighbours[0], 0, "t2", "alternate", "discarding");
    }
    /// Asserts that the hosts of the switch without a daemon reach each other, and that none of their frames leaves by its
    /// trunks.
    fn edges_only(&self, neighbour: &Host) {
        neighbour.drain();
        let mut loops = Loops::between(&self.hosts[0], &self.hosts[1]);
        (0..20).for_each(|_| loops.probe());
        while let Some(received) = neighbour.next() {
            assert!(!loops.sent.contains(&received), "a frame left at a trunk that should be blocked");
        }
    }
    /// Asserts that broadcasts arrive once, in both directions.
    fn no_loop(&self, neighbour: &Bed) {
        for (from, to) in [(&self.hosts[0], neighbour.host(1)), (neighbour.host(1), &self.hosts[0])] {
            let mut loops = Loops::between(from, to);
            (0..25).for_each(|_| loops.probe());
        }
    }
    fn expiries(&self) -> serde_json::Value {
        self.rig.show("show spanning-tree")["watchdog"]["expiries"].clone()
    }
}

fn forwards(bed: &Bed) -> bool {
    let ports = ports(bed, 0);
    ["t1", "t2"].iter().all(|trunk| ports.get(*trunk).is_some_and(|(_, state)| state == "forwarding"))
}

/// Without a daemon the neighbour takes both trunks over, and the chip forwards at its edges alone. The daemon comes back without
/// a loop. `meanwhile` is called repeatedly until the neighbour forwards.
fn is_replaced(chip: &mut Chip, mut meanwhile: impl FnMut(&mut Rig), come_back: fn(&mut Rig)) {
    let (neighbour, began) = (&chip.neighbours[0], Instant::now());
    let mut loops = Loops::at(neighbour);
    loops.until("the neighbour to take both trunks over", || {
        meanwhile(&mut chip.rig);
        forwards(neighbour)
    });
    println!("the neighbour forwards at both trunks after {:?}", began.elapsed());
    chip.edges_only(neighbour.host(1));
    come_back(&mut chip.rig);
    chip.settle();
    chip.no_loop(&chip.neighbours[0]);
}

/// The daemon dies, and the neighbour takes over both trunks; then the daemon starts again.
fn dies(die: fn(&mut Rig), come_back: fn(&mut Rig)) {
    let mut chip = Chip::with_two_trunks();
    chip.settle();
    let text = chip.rig.exec(&["show spanning-tree"]);
    assert!(text.contains("Watchdog: running; without a daemon it blocks swp3, swp4"), "{text}");
    let process = chip.rig.chip();
    die(&mut chip.rig);
    let neighbour = &chip.neighbours[0];
    let this = frame(BROADCAST, chip.hosts[0].mac);
    chip.hosts[0].send(&this);
    wait_for("a frame while the last BPDU is believed", || {
        neighbour.host(1).next().filter(|received| *received == this)
    });
    is_replaced(&mut chip, |_| (), come_back);
    assert!(chip.rig.exec(&["show logging"]).contains("%SPANTREE-2-WATCHDOG: "));
    assert_eq!(chip.expiries(), 1);
    assert_eq!(chip.rig.chip(), process, "the chip is the same process");
}

#[test]
fn a_daemon_that_was_ended() {
    crate::check(|| {
        let end = |rig: &mut Rig| {
            let mut daemon = rig.daemon.take().expect("a daemon runs");
            daemon.signal(Signal::SIGTERM);
            daemon.end();
        };
        dies(end, Rig::start);
    });
}

#[test]
fn a_daemon_that_was_killed() {
    crate::check(|| dies(Rig::kill_daemon, Rig::start));
}

#[test]
fn a_daemon_that_hangs() {
    crate::check(|| {
        let pause = |rig: &mut Rig| rig.daemon.as_ref().expect("a daemon runs").pause();
        let resume = |rig: &mut Rig| rig.daemon.as_ref().expect("a daemon runs").resume();
        dies(pause, resume);
    });
}

/// Each new daemon is killed before it can send BPDUs.
#[test]
fn a_daemon_that_crashes_again_and_again() {
    crate::check(|| {
        let mut chip = Chip::with_two_trunks();
        chip.settle();
        chip.rig.kill_daemon();
        is_replaced(&mut chip, |rig| drop(rig.spawn()), Rig::start);
    });
}

/// A daemon that is back before the neighbours discard its last BPDU: no frame is lost and no tree changes.
#[test]
fn a_restart_within_three_hello_times_loses_no_frame() {
    crate::check(|| {
        let mut chip = Chip::with_two_trunks();
        chip.settle();
        let Chip { neighbours, rig, .. } = &mut chip;
        let far = &neighbours[0].host(1).net;
        far.ip("address add 10.0.0.9/24 dev eth0");
        // `Rig` runs programs in the namespaces of its list of hosts, so add a host to that list.
        let near = Net::new(false);
        rig.net.ip(&format!("link add swp5-wire type veth peer name eth0 netns {}", near.path()));
        near.ip("address add 10.0.0.5/24 dev eth0\nlink set eth0 up");
        rig.hosts.push(near);
        rig.reaches(1, "10.0.0.9");
        let before = crate::fixture::quiet(neighbours);
        let answers = answers_during(rig, 1, "10.0.0.9", |rig| {
            for _ in 0..2 {
                rig.kill_daemon();
                rig.start();
            }
        });
        assert_eq!(answers, 1000, "frames were lost");
        assert_eq!(crate::fixture::quiet(neighbours), before);
        assert_eq!(rig.show("show spanning-tree")["watchdog"]["expiries"], 0);
    });
}

/// A chip that is started in place of one that ended has the states and a watchdog already before the daemon's next BPDU.
#[test]
fn a_chip_that_was_started_again_is_watched() {
    crate::check(|| {
        let mut chip = Chip::with_two_trunks();
        chip.settle();
        chip.rig.kill_chip();
        let _process = Reaped(chip.rig.start_chip());
        wait_for("the chip", || chip.rig.printed().contains("%PLANE-5-CHIPUP").then_some(()));
        chip.rig.kill_daemon();
        is_replaced(&mut chip, |_| (), Rig::start);
    });
}

/// In a ring of three switches the last one unblocks its port when the chip in the middle becomes silent.
#[test]
fn a_ring_unblocks_a_port_without_a_loop_when_its_middle_chip_fails() {
    crate::check(|| {
        let beds = Beds(vec![bare(Plane::ebpf, 1), bare(Plane::ebpf, 1)]);
        wire((&beds[0], "left"), (&beds[1], "right"));
        let mut chip = Chip::new(&format!("{RAPID}\nspanning-tree vlan 1 priority 8192"), beds);
        let [root, last] = &chip.neighbours[..] else { panic!("two switches") };
        chip.plug(3, &root.net, "right");
        chip.plug(4, &last.net, "left");
        for (bed, priority) in [(root, 4096), (last, 12288)] {
            start(bed, &format!("{RAPID}\nspanning-tree vlan 1 priority {priority}"), &["left", "right"]);
        }
        let rests = |chip: &Chip| {
            chip.becomes("swp3", "root", "forwarding");
            chip.becomes("swp4", "designated", "forwarding");
            settle(&chip.neighbours, 0, 1);
        };
        rests(&chip);
        chip.rig.kill_daemon();
        let [root, last] = &chip.neighbours[..] else { panic!("two switches") };
        let open = || ports(last, 0).values().filter(|(_, state)| state == "forwarding").count() == 3;
        let mut loops = Loops::between(last.host(1), root.host(1));
        loops.until("the last switch to open its port", open);
        chip.edges_only(root.host(1));
        chip.rig.start();
        rests(&chip);
        chip.no_loop(&chip.neighbours[0]);
        chip.no_loop(&chip.neighbours[1]);
    });
}

#[test]
fn the_kernels_bridge_takes_over_from_a_chip() {
    crate::check(|| {
        let peer = Net::new(false);
        let lines = format!("spanning-tree mode rstp\nspanning-tree vlan 1 priority 4096\n{SHORT}");
        let mut chip = Chip::new(&lines, Beds(Vec::new()));
        chip.plug(3, &peer, "k1");
        chip.plug(4, &peer, "k2");
        peer.ip("link set k1 up\nlink set k2 up");
        kernel_bridge(&peer, 0xf000);
        let beyond = Beyond::new(&peer);
        peer.ip("link set k3 master br0");
        let is = |port: &str, state: &str| kernel_state(&peer, port) == state;
        let rests =
            || wait_until(2 * DEADLINE, || (is("k1", "forwarding") && is("k2", "blocking")).then_some(()));
        assert!(rests().is_some(), "one wire should be blocked");
        let begin = Instant::now();
        wait_for("the bridge's host port", || is("k3", "forwarding").then_some(()));
        takes_over(&beyond, || chip.rig.kill_daemon(), || is("k1", "forwarding") && is("k2", "forwarding"));
        println!("the kernel's bridge forwards at both wires after {:?}", begin.elapsed());
        chip.edges_only_at(&beyond);
        chip.rig.start();
        assert!(rests().is_some(), "one wire should be blocked again");
        beyond.hears(&chip.hosts[0], "the kernel's bridge after the daemon came back");
    });
}

impl Chip {
    /// Like [`Chip::edges_only`], with the host behind another implementation.
    fn edges_only_at(&self, beyond: &Beyond) {
        let mut loops = Loops::between(&self.hosts[0], &self.hosts[1]);
        (0..20).for_each(|_| loops.probe());
        while let Ok(Some(packet)) = beyond.0.receive() {
            let left = loops.sent.iter().any(|sent| sent.0 == packet.frame);
            assert!(!left, "a frame left at a trunk that should be blocked");
        }
    }
}
