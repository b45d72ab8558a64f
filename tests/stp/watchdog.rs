//! A daemon that has ended or hangs: no frame is lost while the neighbours hold its last BPDU, and there is no loop
//! after that information has aged out. In each test a neighbour takes over the links, which is the moment at which a
//! loop could arise.

use crate::fixture::{Beds, bare, becomes, no_loop, ports, quiet, ring, settle, start, wire};
use crate::harness::daemon::Daemon;
use crate::harness::{BROADCAST, Bed, DEADLINE, Host, Plane, frame, scenarios, wait_for, wait_until};
use crate::loops::{Beyond, Loops, SHORT, kernel_becomes, kernel_bridge, kernel_state, takes_over};
use crate::peers::{ovs, wired};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

scenarios! {
    a_daemon_that_was_ended: ebpf;
    a_daemon_that_was_killed: ebpf;
    a_daemon_that_hangs: ebpf;
    a_daemon_that_crashes_again_and_again: ebpf;
    a_ring_unblocks_a_port_without_a_loop_when_its_middle_switch_fails: ebpf;
    a_tree_for_each_vlan: ebpf;
    the_kernels_bridge_takes_over: ebpf;
    open_vswitch_takes_over: ebpf;
    without_spanning_tree_the_plane_goes_on: ebpf;
    xdp_trunks_are_blocked_when_the_daemon_ends: ebpf;
    sighup_is_not_noticed: ebpf;
    detach_disarms: ebpf;
}

const RAPID: &str = "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1";

/// Two switches with two hosts each and two trunks between them; the first is the root.
fn pair(plane: Plane, lines: &str) -> Beds {
    let beds = Beds(vec![bare(plane, 2), bare(plane, 2)]);
    for trunk in ["t1", "t2"] {
        wire((&beds[0], trunk), (&beds[1], trunk));
    }
    for (bed, priority) in beds.iter().zip([4096, 8192]) {
        start(bed, &format!("{lines}\nspanning-tree vlan 1 priority {priority}"), &["t1", "t2"]);
    }
    beds
}

fn forwards(bed: &Bed, trunks: &[&str]) -> bool {
    let ports = ports(bed, 0);
    trunks.iter().all(|trunk| ports[*trunk].1 == "forwarding")
}

/// The hosts of a switch without a daemon reach each other, and none of their frames leaves by its trunks.
fn edges_only(dead: &Bed, neighbour: &Bed) {
    neighbour.host(1).drain();
    let mut loops = Loops::at(dead);
    (0..20).for_each(|_| loops.probe());
    while let Some(received) = neighbour.host(1).next() {
        assert!(!loops.sent.contains(&received), "a frame left at a trunk that should be blocked");
    }
}

/// The first switch's daemon dies; the second switch takes over both trunks; then the daemon starts again.
fn dies(beds: &Beds, die: impl FnOnce(&Bed), come_back: impl FnOnce(&Bed)) {
    let [root, other] = &beds[..] else { panic!("two switches") };
    settle(beds, 0, 1);
    assert!(
        root.exec(&["show spanning-tree"]).contains("Watchdog: running; without a daemon it blocks t1, t2")
    );
    let mut loops = Loops::at(other);
    die(root);
    let dead = Instant::now();
    loops.until("the neighbour to take both trunks over", || forwards(other, &["t1", "t2"]));
    println!("the neighbour forwards at both trunks {:?} after the end", dead.elapsed());
    edges_only(root, other);
    come_back(root);
    settle(beds, 0, 1);
    no_loop(beds);
    assert!(root.exec(&["show logging"]).contains("%SPANTREE-2-WATCHDOG: "));
    assert!(root.exec(&["show spanning-tree"]).contains("expired 1 time(s) since the daemon was started"));
    assert_eq!(root.ask("show spanning-tree")["watchdog"]["expiries"], 1);
}

fn a_daemon_that_was_ended(plane: Plane) {
    dies(&pair(plane, RAPID), |bed| bed.end_daemon(Signal::SIGTERM), Bed::start);
}

fn a_daemon_that_was_killed(plane: Plane) {
    dies(&pair(plane, RAPID), |bed| bed.end_daemon(Signal::SIGKILL), Bed::start);
}

fn a_daemon_that_hangs(plane: Plane) {
    let of = |bed: &Bed, what: fn(&Daemon)| what(bed.daemon.borrow().as_ref().unwrap());
    dies(&pair(plane, RAPID), |bed| of(bed, Daemon::pause), |bed| of(bed, Daemon::resume));
}

/// Each new daemon is killed before it can send BPDUs.
fn a_daemon_that_crashes_again_and_again(plane: Plane) {
    let beds = pair(plane, RAPID);
    let [root, other] = &beds[..] else { panic!("two switches") };
    settle(&beds, 0, 1);
    let mut loops = Loops::at(other);
    root.end_daemon(Signal::SIGKILL);
    let (config, log) = (root.config_file(), root.file("log"));
    loops.until("the neighbour to take both trunks over", || {
        drop(Daemon::spawn(&root.net, &root.instance, root.plane, Some(&config), &log));
        forwards(other, &["t1", "t2"])
    });
    edges_only(root, other);
    root.start();
    settle(&beds, 0, 1);
    no_loop(&beds);
}

/// The third switch blocks one of its ports, and unblocks it when the middle switch becomes silent.
fn a_ring_unblocks_a_port_without_a_loop_when_its_middle_switch_fails(plane: Plane) {
    let beds = ring(plane, 3, RAPID);
    settle(&beds, 0, 1);
    let [_, middle, last] = &beds[..] else { panic!("three switches") };
    middle.end_daemon(Signal::SIGKILL);
    let found = wait_until(2 * DEADLINE, || {
        let this = frame(BROADCAST, last.host(1).mac);
        last.host(1).send(&this);
        wait_for("a broadcast at the root", || beds[0].host(1).next().filter(|received| *received == this));
        while let Some(received) = last.host(1).next() {
            assert_ne!(received, this, "a broadcast came back to its sender: a loop");
        }
        forwards(last, &["left", "right"]).then_some(())
    });
    assert!(found.is_some(), "the last switch should open its port: {:?}", ports(last, 0));
    middle.start();
    settle(&beds, 0, 1);
    no_loop(&beds);
}

/// A VLAN without a tree is still forwarded over the trunks of a switch whose daemon has died.
fn a_tree_for_each_vlan(plane: Plane) {
    let lines =
        "vlan 20\nspanning-tree mode rapid-pvst\nno spanning-tree vlan 20\nspanning-tree vlan 1 hello-time 1";
    let beds = Beds(vec![bare(plane, 2), bare(plane, 2)]);
    wire((&beds[0], "t1"), (&beds[1], "t1"));
    beds.iter().for_each(|bed| start(bed, lines, &["t1"]));
    beds.iter().for_each(|bed| bed.configure("interface p2\nswitchport access vlan 20"));
    for bed in beds.iter() {
        becomes(bed, 1, "p1", "designated", "forwarding");
    }
    let [first, second] = &beds[..] else { panic!("two switches") };
    let arrives = |n: usize| {
        let this = frame(BROADCAST, first.host(n).mac);
        first.host(n).send(&this);
        wait_until(Duration::from_millis(300), || second.host(n).next().filter(|received| *received == this))
            .is_some()
    };
    wait_for("a frame in each VLAN", || (arrives(1) && arrives(2)).then_some(()));
    first.end_daemon(Signal::SIGKILL);
    wait_for("the trunk to be blocked in VLAN 1", || (!arrives(1)).then_some(()));
    assert!(arrives(2), "VLAN 20 has no tree");
    first.start();
    wait_for("a frame in VLAN 1", || arrives(1).then_some(()));
}

fn the_kernels_bridge_takes_over(plane: Plane) {
    let (peer, bed) = wired(plane);
    kernel_bridge(&peer, 0xf000);
    let beyond = Beyond::new(&peer);
    peer.ip("link set k3 master br0");
    start(
        &bed,
        &format!("spanning-tree mode rstp\nspanning-tree vlan 1 priority 4096\n{SHORT}"),
        &["w1", "w2"],
    );
    let open = |port: &str| kernel_state(&peer, port) == "forwarding";
    wait_for("one wire to be blocked", || {
        (open("k1") && kernel_state(&peer, "k2") == "blocking").then_some(())
    });
    kernel_becomes(&peer, "k3", "forwarding");
    takes_over(&beyond, || bed.end_daemon(Signal::SIGKILL), || open("k1") && open("k2"));
    bed.start();
    wait_for("one wire to be blocked again", || (kernel_state(&peer, "k2") == "blocking").then_some(()));
    beyond.hears(bed.host(1), "the kernel's bridge after the daemon came back");
}

fn open_vswitch_takes_over(plane: Plane) {
    let (peer, bed) = wired(plane);
    let beyond = Beyond::new(&peer);
    let Some(ovs) = ovs(&peer, &["other_config:rstp-priority=61440", "rstp_enable=true"]) else { return };
    start(
        &bed,
        &format!("spanning-tree mode rstp\nspanning-tree vlan 1 priority 4096\n{SHORT}"),
        &["w1", "w2"],
    );
    let is = |port: &str, state: &str| ovs.port_state(&peer, port) == state;
    wait_for("one wire to be blocked", || (is("k1", "Forwarding") && is("k2", "Discarding")).then_some(()));
    takes_over(
        &beyond,
        || bed.end_daemon(Signal::SIGKILL),
        || is("k1", "Forwarding") && is("k2", "Forwarding"),
    );
    bed.start();
    wait_for("one wire to be blocked again", || is("k2", "Discarding").then_some(()));
    beyond.hears(bed.host(1), "Open vSwitch after the daemon came back");
}

fn without_spanning_tree_the_plane_goes_on(plane: Plane) {
    let beds = Beds(vec![bare(plane, 1), bare(plane, 1)]);
    wire((&beds[0], "t1"), (&beds[1], "t1"));
    beds.iter().for_each(|bed| start(bed, RAPID, &["t1"]));
    settle(&beds, 0, 0);
    assert!(beds[0].exec(&["show spanning-tree"]).contains("Watchdog: running"));
    beds.iter().for_each(|bed| bed.configure("no spanning-tree mode"));
    beds[0].end_daemon(Signal::SIGKILL);
    let end = Instant::now();
    while end.elapsed() < Duration::from_secs(5) {
        let this = frame(BROADCAST, beds[0].host(1).mac);
        beds[0].host(1).send(&this);
        wait_for("a frame over the trunk", || beds[1].host(1).next().filter(|received| *received == this));
    }
}

/// XDP forwards known unicast without reading a list of flood ports; the watchdog must stop it, too.
fn xdp_trunks_are_blocked_when_the_daemon_ends(plane: Plane) {
    let beds = pair(
        plane,
        &format!("{RAPID}\ninterface range p1 - 2\n hook xdp\ninterface range t1 - 2\n hook xdp"),
    );
    let [root, other] = &beds[..] else { panic!("two switches") };
    settle(&beds, 0, 1);
    for name in ["p1", "p2", "t1", "t2"] {
        assert_eq!(root.ask(&format!("show interfaces {name}"))["interfaces"][0]["hook"], "xdp", "{name}");
    }
    let (near, far) = (root.host(1), other.host(1));
    let arrives = |from: &Host, to: &Host| {
        let this = frame(to.mac, from.mac);
        from.send(&this);
        wait_until(Duration::from_millis(200), || to.next().filter(|received| *received == this)).is_some()
    };
    wait_for("unicast frames over a trunk, both ways", || {
        (arrives(near, far) && arrives(far, near)).then_some(())
    });
    root.end_daemon(Signal::SIGKILL);
    assert!(arrives(near, far) && arrives(far, near), "nothing is lost while the last BPDU is believed");
    wait_for("the trunks of the switch without a daemon to be blocked", || {
        (!arrives(near, far) && !arrives(far, near)).then_some(())
    });
    wait_for("the neighbour to take both trunks over", || forwards(other, &["t1", "t2"]).then_some(()));
    for _ in 0..20 {
        assert!(!arrives(near, far) && !arrives(far, near), "a unicast frame passed a blocked trunk");
        assert!(arrives(near, root.host(2)), "unicast between edge ports goes on");
    }
    root.start();
    settle(&beds, 0, 1);
    wait_for("unicast frames over a trunk, both ways", || {
        (arrives(near, far) && arrives(far, near)).then_some(())
    });
}

/// SIGHUP reopens the log and does nothing else: for longer than a BPDU is valid no frame is lost and no topology
/// changes.
fn sighup_is_not_noticed(plane: Plane) {
    let beds = pair(plane, RAPID);
    let [root, other] = &beds[..] else { panic!("two switches") };
    settle(&beds, 0, 1);
    let before = quiet(&beds);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        root.daemon.borrow().as_ref().unwrap().signal(Signal::SIGHUP);
        let this = frame(BROADCAST, root.host(1).mac);
        root.host(1).send(&this);
        wait_for("a frame over the trunk", || other.host(1).next().filter(|received| *received == this));
    }
    assert_eq!(quiet(&beds), before);
    assert_eq!(root.ask("show spanning-tree")["watchdog"]["expiries"], 0);
}

/// After `lanyard detach` no timer remains that could block a port of a later switch.
fn detach_disarms(plane: Plane) {
    let beds = pair(plane, RAPID);
    let [root, other] = &beds[..] else { panic!("two switches") };
    settle(&beds, 0, 1);
    root.end_daemon(Signal::SIGKILL);
    root.detach().unwrap();
    root.net.ip("link add br0 type bridge stp_state 0\nlink set p1 master br0\nlink set t1 master br0\nlink set br0 up\nlink set p1 up\nlink set t1 up");
    other.configure("no spanning-tree mode\ninterface t2\nshutdown");
    wait_for("the host's link", || root.host(1).is_linked().then_some(()));
    let mut received = Duration::ZERO;
    let begin = Instant::now();
    // A BPDU is valid for 3 s; after 5 s the watchdog would have acted.
    while begin.elapsed() < Duration::from_secs(5) {
        let this = frame(BROADCAST, root.host(1).mac);
        root.host(1).send(&this);
        if wait_until(Duration::from_millis(200), || other.host(1).next().filter(|frame| *frame == this))
            .is_some()
        {
            received = begin.elapsed();
        }
    }
    assert!(received > Duration::from_millis(4500), "the last frame arrived after {received:?}");
    root.net.ip("link del br0");
    root.start();
}
