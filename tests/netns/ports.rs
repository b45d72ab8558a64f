//! Ports that are shut down, without a link, removed and added again, or used by another program.

use crate::harness::{BROADCAST, Bed, Frame, Net, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::PacketSocket;

scenarios! {
    shutdown: ebpf soft;
    a_link_flaps: ebpf soft;
    a_netdev_goes_and_comes_back: ebpf soft;
    a_netdev_goes_and_comes_back_at_xdp: ebpf;
    moved_to_another_namespace: ebpf soft;
    enslaved_elsewhere: ebpf soft;
    detach_leaves_ports_as_they_were: ebpf soft;
    /// The eBPF plane has no receive ring: it runs where the kernel receives the frame.
    frames_that_overrun_the_receive_ring_are_counted: soft;
}

const THREE: &str = "interface range p1 - 3\n switchport\n";

fn shutdown(plane: Plane) {
    let bed = Bed::new(plane, 3, THREE);
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
    bed.configure("interface p2\nshutdown");
    let view = bed.show("show interfaces p2");
    let port = &view["interfaces"][0];
    assert_eq!((&port["admin_up"], &port["link_up"]), (&false.into(), &false.into()), "{view}");
    bed.learned(mac(2), 1, None);
    bed.expect_at(1, &frame(mac(2), mac(1)), &[3]);
    bed.configure("interface p2\nno shutdown");
    wait_for("the link to come up", || {
        bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
    });
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2, 3]);
    bed.expect_at(2, &frame(mac(1), mac(2)), &[1]);
}

fn a_link_flaps(plane: Plane) {
    let bed = Bed::new(plane, 3, THREE);
    let host = &bed.host(2).net;
    for _ in 0..5 {
        bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
        bed.learned(mac(2), 1, Some("p2"));
        host.ip("link set eth0 down");
        wait_for("the addresses behind the link to go", || bed.entry(mac(2), 1).is_none().then_some(()));
        bed.expect_at(1, &frame(mac(2), mac(1)), &[3]);
        host.ip("link set eth0 up");
        wait_for("the link to come up", || {
            bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
        });
        bed.expect_at(1, &frame(mac(2), mac(1)), &[2, 3]);
    }
    // The link changes faster than the daemon can follow; only the final state matters.
    host.ip(&"link set eth0 down\nlink set eth0 up\n".repeat(50));
    wait_for("the link to be up in the end", || {
        bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
    });
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
}

/// The netdev of a port belongs to another namespace for a while: the stack of that namespace receives the frames, and the switch
/// receives none.
fn moved_to_another_namespace(plane: Plane) {
    let bed = Bed::new(plane, 3, THREE);
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
    bed.chatter.set(true);
    bed.exact.set(false);
    let elsewhere = Net::new(false);
    bed.net.ip(&format!("link set p2 netns {}", elsewhere.path()));
    // The soft plane has turned ARP off at the netdev, and it stays off.
    elsewhere.ip("link set p2 arp on up\naddress add 10.0.0.9/24 dev p2");
    bed.host(2).address("10.0.0.2/24");
    bed.host(2).reaches("10.0.0.9");
    bed.host(2).send(&frame(BROADCAST, mac(2)));
    let arrived = bed.arrivals();
    let from_2 = |at: usize| arrived[at - 1].iter().any(|seen| seen.0[6..12] == mac(2));
    assert!(!from_2(1) && !from_2(3), "the switch forwards frames of a netdev in another namespace");
    // Frames of host 1 still reach host 3, and host 2 no more.
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[3]);
    elsewhere.ip(&format!("link set p2 netns {}", bed.net.path()));
    bed.net.ip("link set p2 up");
    bed.open_senders();
    wait_for("the port to be back", || {
        bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
    });
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
}

fn a_netdev_goes_and_comes_back(plane: Plane) {
    goes_and_comes_back(plane, THREE);
}

/// At XDP the kernel also follows the program that is bound to the netdev: see `ebpf::bound`.
fn a_netdev_goes_and_comes_back_at_xdp(plane: Plane) {
    goes_and_comes_back(plane, "interface range p1 - 3\n switchport\n hook xdp\n");
}

fn goes_and_comes_back(plane: Plane, ports: &str) {
    let mut bed = Bed::new(plane, 3, ports);
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
    let before = bed.show("show running-config");
    bed.net.ip("link delete p2");
    wait_for("the port to be down", || {
        (!bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap()).then_some(())
    });
    wait_for("its addresses to go", || bed.entry(mac(2), 1).is_none().then_some(()));
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[3]);
    assert_eq!(bed.show("show running-config"), before);
    // The port's counters include frames for the previous host.
    bed.exact.set(false);
    bed.rewire(2);
    wait_for("the port to be up again", || {
        bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
    });
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
    // The netdev is missing while it is configured, and the configuration applies when it appears.
    bed.net.ip("link delete p3");
    bed.configure("interface p3\nswitchport access vlan 1\nswitchport protected");
    bed.rewire(3);
    wait_for("the port to be up again", || {
        bed.ask("show interfaces p3")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
    });
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
}

fn enslaved_elsewhere(plane: Plane) {
    let bed = Bed::new(plane, 3, "interface p1\n switchport\n");
    // The kernel sends IPv6 frames there before the port belongs to the switch.
    bed.exact.set(false);
    bed.net.ip("link add br0 type bridge\nlink set p2 master br0\nlink set p2 up");
    let printed = bed.try_configure("interface p2\nswitchport").unwrap_err();
    assert!(printed.contains("p2") && printed.contains("br0"), "{printed}");
    assert_eq!(bed.netdev.link("p2").unwrap().master, Some(bed.net.index("br0")), "the bridge keeps it");
    bed.net.ip("link set p2 nomaster");
    bed.configure("interface p2\nswitchport");
    wait_for("the port to be up", || {
        bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
    });
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    // The netdev is enslaved to a bridge while it is a port, and released again.
    bed.net.ip("link set p2 master br0");
    wait_for("the port to be down", || {
        let drop = bed.ask("show platform packet-trace interface p1 hex ffffffffffff02000000000188b5");
        (drop["verdict"] == "dropped").then_some(())
    });
    bed.net.ip("link set p2 nomaster");
    wait_for("the port to be back", || {
        let drop = bed.ask("show platform packet-trace interface p1 hex ffffffffffff02000000000188b5");
        (drop["verdict"] == "forwarded").then_some(())
    });
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.net.ip("link delete br0");
}

/// The state of a netdev that a switch could have changed.
fn state_of(bed: &Bed) -> String {
    let sysctl = |family: &str, name: &str, key: &str| {
        let path = format!("/proc/sys/net/{family}/conf/{name}/{key}");
        format!("{key}={}", bed.net.run(|| std::fs::read_to_string(&path).unwrap_or_default()).trim())
    };
    // A netdev that has never been up has the qdisc `noop`, which cannot be restored.
    let qdisc = |name: &str| if name == "noop" { "noqueue".to_owned() } else { name.to_owned() };
    let one = |name: &str| {
        let link = bed.netdev.link(name).unwrap();
        let addresses = bed.netdev.addresses(Some(link.ifindex)).unwrap();
        let v6 =
            ["disable_ipv6", "addr_gen_mode", "forwarding", "accept_ra"].map(|key| sysctl("ipv6", name, key));
        let v4 =
            ["arp_ignore", "arp_announce", "forwarding", "rp_filter"].map(|key| sysctl("ipv4", name, key));
        format!(
            "{name}: up {} promiscuous {} promiscuity {} mtu {} mac {} master {:?} alias {:?} qdisc {} xdp {:?} {} {} addresses {}",
            link.admin_up,
            link.promiscuous,
            link.promiscuity,
            link.mtu,
            link.mac,
            link.master,
            link.alias,
            qdisc(&link.qdisc),
            link.xdp,
            v4.join(" "),
            v6.join(" "),
            addresses.len(),
        )
    };
    let qdiscs = bed.netdev.qdiscs().unwrap();
    let qdiscs = qdiscs.iter().filter(|(_, kind)| kind != "noqueue" && kind != "noop").count();
    let all = ["ipv4", "ipv6"].map(|family| sysctl(family, "all", "forwarding")).join(" ");
    let ports: Vec<String> = ["p1", "p2", "p3"].map(one).into();
    format!("{}\nall: {all}, {qdiscs} queueing disciplines, links {:?}", ports.join("\n"), bed.net.links())
}

fn detach_leaves_ports_as_they_were(plane: Plane) {
    let bed = Bed::without_switch(plane, 3, 1600);
    // One netdev is up with addresses, one is down with an MTU of its own, and one is promiscuous.
    bed.net
        .ip("link set p1 up\naddress add 192.0.2.1/24 dev p1\nlink set p2 mtu 1400\nlink set p3 promisc on");
    wait_for("the link-local address to be there", || {
        let index = bed.net.index("p1");
        let addresses = bed.netdev.addresses(Some(index)).unwrap();
        (addresses.len() == 2).then_some(())
    });
    let before = state_of(&bed);
    let config = "vlan 10\nip routing\nipv6 unicast-routing\ninterface p1\n switchport\ninterface p2\n switchport mode trunk\n mtu 1500\n\
        interface p3\n switchport\ninterface vlan 10\n ip address 10.0.0.1/24\ninterface vlan 1\n";
    let hook = if plane == Plane::ebpf { "interface p3\n hook xdp\n" } else { "" };
    std::fs::write(bed.config_file(), format!("{config}{hook}")).unwrap();
    bed.start();
    bed.chatter.set(true);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    let during = state_of(&bed);
    assert_ne!(during, before);
    bed.detach().unwrap();
    wait_for("the link-local address to be back", || {
        let index = bed.net.index("p1");
        let addresses = bed.netdev.addresses(Some(index)).unwrap();
        (addresses.len() == 2).then_some(())
    });
    assert_eq!(state_of(&bed), before);
    assert_eq!(crate::harness::check::left_behind(&bed), Vec::<String>::new());
    // Nothing is forwarded any more.
    bed.arrivals();
    let f = frame(BROADCAST, mac(1));
    bed.host(1).send(&f);
    assert!(bed.arrivals().iter().all(|list| !list.contains(&f)));
}

/// The size of the soft plane's ring at a port, and the length of the frames that fill it soon, both in bytes.
const RING: usize = 32 << 20;
const LONG: usize = 9014;

/// Sends from host 1 far more frames than the ring of its port holds, while the daemon is stopped.
fn overrun(bed: &Bed) -> Vec<Frame> {
    let index = bed.net.index("p1");
    let tap = bed.net.run(|| PacketSocket::open(index).unwrap());
    let frames: Vec<Frame> = (0..3 * RING / LONG).map(|_| frame(BROADCAST, mac(1)).len(LONG)).collect();
    bed.daemon.borrow().as_ref().unwrap().pause();
    for frame in &frames {
        bed.host(1).send(frame);
        // Wait until the frame has passed all queues of the kernel before sending the next, so that none is
        // lost there.
        wait_for("its arrival", || tap.receive().unwrap().filter(|packet| !packet.outgoing));
    }
    bed.daemon.borrow().as_ref().unwrap().resume();
    frames
}

fn frames_that_overrun_the_receive_ring_are_counted(plane: Plane) {
    let bed = Bed::with_mtu(plane, 2, 9000, "interface range p1 - 2\n switchport\n");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    let before = bed.counters()["p1"];
    let sent = overrun(&bed);
    let received = |count: u64| {
        wait_for("every frame to be counted", || {
            let now = bed.counters()["p1"];
            (now.rx - before.rx >= count).then_some(now)
        })
    };
    let after = received(sent.len() as u64);
    // The first frames were forwarded and the others dropped, and each is counted as one or the other.
    let passed = (after.forwarded - before.forwarded) as usize;
    assert!((1..=RING / LONG).contains(&passed), "{passed} of {} have passed: {after:?}", sent.len());
    assert_eq!(after.rx - before.rx, sent.len() as u64);
    assert_eq!(bed.drops(1, "overrun"), (sent.len() - passed) as u64);
    assert_eq!(after.rx_dropped - before.rx_dropped, (sent.len() - passed) as u64);
    // On a busy machine the kernel sometimes refuses a frame before the ring is full, so those that
    // arrive are not always the first ones.
    let arrived = bed.arrivals().swap_remove(1);
    let mut left = sent.iter();
    assert!(arrived.iter().all(|frame| left.any(|sent| sent == frame)), "out of order");
    assert_eq!(arrived.len(), passed);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    // Frames that were lost before the counters were cleared are not counted afterwards.
    bed.exact.set(false);
    overrun(&bed);
    bed.exec(&["clear counters p1"]);
    assert_eq!(bed.drops(1, "overrun"), 0);
}
