//! Port-channels: static ones with hosts as the far ends, and LACP with Open vSwitch, whose bond is the partner.
//!
//! One scenario has the kernel's bonding driver as the partner; where the kernel lacks it, the scenario is skipped.

use crate::harness::frame::{Frame, Mac, reserved, text};
use crate::harness::ovs::Ovs;
use crate::harness::{Bed, DEADLINE, Plane, frame, join, mac, scenarios, wait_for, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

scenarios! {
    members_are_one_port: ebpf soft;
    a_lost_member_is_replaced_at_once: ebpf soft;
    spanning_tree_runs_at_the_port_channel: ebpf soft;
    lists_judge_the_frames_of_the_port_channel: ebpf soft;
    a_vlan_interface_routes_at_the_port_channel: ebpf soft;
    a_routed_port_channel: ebpf soft;
    subinterfaces_of_a_port_channel: ebpf soft;
    lines_that_do_not_fit_are_refused: soft;
    open_vswitch_bundles_with_each_mode: ebpf soft;
    a_silent_partner_loses_its_member: ebpf;
    a_restart_keeps_static_members: ebpf;
    the_kernels_bond_bundles: ebpf;
}

/// Hosts 1 and 2 are the far ends of a port-channel in VLAN 10; host 3 is in VLAN 10, too.
const STATIC: &str = "vlan 10\ninterface p1\n switchport access vlan 10\n channel-group 1 mode on\ninterface p2\n channel-group 1 mode on\n\
    interface p3\n switchport access vlan 10\nport-channel load-balance src-mac\n";

/// The summary's entry of port-channel 1.
fn channel(bed: &Bed) -> Value {
    bed.ask("show etherchannel summary")["channels"][0].clone()
}

/// The members in use of port-channel 1.
fn bundled(bed: &Bed) -> BTreeSet<String> {
    let members = channel(bed)["members"].clone();
    let members = members.as_array().expect("members");
    let used = members.iter().filter(|member| member["bundled"] == true);
    used.filter_map(|member| member["interface"].as_str().map(str::to_owned)).collect()
}

fn wait_bundled(bed: &Bed, wanted: &[&str]) {
    let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
    let mut last = Value::Null;
    let done = wait_until(2 * DEADLINE, || {
        last = channel(bed);
        (bundled(bed) == wanted && last["up"] == !wanted.is_empty()).then_some(())
    });
    assert!(
        done.is_some(),
        "in vain: members {wanted:?} of {last}; {}",
        bed.exec(&["show etherchannel detail"])
    );
}

fn members_are_one_port(plane: Plane) {
    let bed = Bed::new(plane, 3, STATIC);
    wait_bundled(&bed, &["p1", "p2"]);
    // A frame that either member receives is learned at the port-channel, goes to host 3, and not back by the other member.
    for host in [1, 2] {
        bed.expect_at(host, &frame([0xff; 6], mac(100 + host as u16)), &[3]);
        bed.learned(mac(100 + host as u16), 10, Some("port-channel1"));
    }
    bed.expect_drop(2, &frame(mac(101), mac(9)), "same_port");
    // Frames of many sources use both members; each frame leaves once, whether its destination is known or it is flooded.
    let mut used = BTreeSet::new();
    for n in 0..40 {
        let known = n % 2 == 0;
        let sent = frame(if known { mac(101) } else { [0xff; 6] }, mac(200 + n / 2));
        let arrived = bed.exchange(3, std::slice::from_ref(&sent));
        let at: Vec<usize> = (0..2).filter(|host| arrived[*host] == [sent.clone()]).collect();
        assert_eq!(at.len(), 1, "{sent:?} arrived at {at:?}");
        used.insert(at[0]);
    }
    assert_eq!(used.len(), 2, "40 sources use both members");
    let view = bed.ask("show interfaces port-channel 1");
    let shown = &view["interfaces"][0];
    assert_eq!((&shown["kind"], &shown["link_up"]), (&"lag".into(), &true.into()), "{view}");
    assert_eq!(shown["rx"]["frames"], 3, "{view}");
    assert_eq!(shown["tx"]["frames"], 40, "{view}");
    let vlan = bed.ask("show vlan").to_string();
    assert!(vlan.contains("port-channel1") && !vlan.contains("\"p1\""), "{vlan}");
    // The removal of the port-channel shuts its members down.
    bed.configure("no interface port-channel 1");
    let config = bed.exec(&["show running-config interface p1"]);
    assert!(config.contains(" shutdown") && !config.contains("channel-group"), "{config}");
}

/// Streams from 16 sources, one frame each half a millisecond, while the members lose their links in turn. The rounds follow each
/// other in less than a second, the time for which the kernel delays its reports of carriers.
fn a_lost_member_is_replaced_at_once(plane: Plane) {
    const ROUNDS: usize = 9;
    let bed = Bed::new(plane, 3, STATIC);
    bed.exact.set(false);
    wait_bundled(&bed, &["p1", "p2"]);
    bed.expect_at(1, &frame([0xff; 6], mac(101)), &[3]);
    let mut outages: Vec<Duration> = (0..ROUNDS).map(|round| outage(&bed, 1 + round % 2)).collect();
    outages.sort_unstable();
    let median = outages[ROUNDS / 2];
    println!("{plane:?}: a lost member's flows have moved after {median:?} (median), {outages:?}");
    // docs/etherchannel.md, "Times".
    assert!(median < Duration::from_millis(20), "the flows of a lost member moved after {outages:?}");
}

/// The time from the start of `ip link set down` at this host until the last lost frame was sent, in a stream that goes on
/// meanwhile. Afterwards the link is up again.
fn outage(bed: &Bed, host: usize) -> Duration {
    const GAP: Duration = Duration::from_micros(500);
    let mut arrived = BTreeSet::new();
    let mut receive = || {
        for host in [1, 2] {
            arrived.extend(std::iter::from_fn(|| bed.host(host).next()));
        }
    };
    let begin = Instant::now();
    let (mut sent, mut down) = (Vec::new(), None);
    while begin.elapsed() < Duration::from_millis(400) {
        let frame = frame(mac(101), mac(300 + sent.len() as u16 % 16));
        bed.host(3).send(&frame);
        sent.push((Instant::now(), frame));
        if down.is_none() && begin.elapsed() > Duration::from_millis(100) {
            let mut command = Command::new("ip");
            command.args(["link", "set", "eth0", "down"]);
            down = Some((Instant::now(), bed.host(host).net.spawn(&mut command)));
        }
        receive();
        std::thread::sleep(GAP);
    }
    let (down, mut command) = down.expect("the stream is longer");
    assert!(command.wait().is_ok_and(|status| status.success()), "the link cannot be taken down");
    wait_bundled(bed, &[if host == 1 { "p2" } else { "p1" }]);
    receive();
    bed.host(host).net.ip("link set eth0 up");
    wait_bundled(bed, &["p1", "p2"]);
    let lost: Vec<Instant> =
        sent.iter().filter(|(_, frame)| !arrived.contains(frame)).map(|(at, _)| *at).collect();
    let early = lost.iter().filter(|at| **at < down).count();
    println!("{} of {} frames were lost, {early} of them before the link", lost.len(), sent.len());
    lost.last().map(|last| last.saturating_duration_since(down)).unwrap_or_default()
}

/// An RST BPDU of a bridge that is better than every other one (IEEE 802.1D-2004, 9.3.3).
fn better_bpdu(source: Mac) -> Frame {
    let bridge = [0, 0, 2, 0, 0, 0, 0, 0xee];
    let times = [0, 0, 20, 0, 2, 0, 15, 0];
    let mut bytes =
        [&reserved(0)[..], &source, &39_u16.to_be_bytes(), &[0x42, 0x42, 3, 0, 0, 2, 2, 0x3c]].concat();
    bytes.extend([&bridge[..], &[0; 4], &bridge, &[0x80, 1], &times, &[0]].concat());
    Frame(bytes).len(60)
}

/// The tree contains the port-channel, and none of its members. The port-channel sends its BPDUs by one member and receives them
/// by any; the loss of a member changes nothing in the tree.
fn spanning_tree_runs_at_the_port_channel(plane: Plane) {
    let bed = Bed::new(plane, 3, &format!("spanning-tree mode rstp\n{STATIC}"));
    bed.chatter.set(true);
    bed.exact.set(false);
    wait_bundled(&bed, &["p1", "p2"]);
    let ports = || {
        let view = bed.ask("show spanning-tree");
        let ports = view["instances"][0]["ports"].as_array().expect("ports").clone();
        let of = |port: &Value| {
            let text = |key: &str| port[key].as_str().expect("text").to_owned();
            (text("interface"), text("role"), text("state"))
        };
        ports.iter().map(of).collect::<Vec<_>>()
    };
    let names: BTreeSet<String> = ports().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["p3".to_owned(), "port-channel1".to_owned()].into());
    let is_bpdu = |frame: &Frame| frame.0[..6] == reserved(0);
    let bpdus = |host: usize| std::iter::from_fn(|| bed.host(host).next()).filter(is_bpdu).count();
    let mut seen = 0;
    wait_for("BPDUs", || {
        seen += bpdus(1) + bpdus(2);
        (seen >= 2).then_some(())
    });
    let root = ("port-channel1".to_owned(), "root".to_owned(), "forwarding".to_owned());
    for host in [2, 1] {
        wait_for("the port-channel is the root port", || {
            bed.host(host).send(&better_bpdu(mac(host as u16)));
            ports().contains(&root).then_some(())
        });
    }
    let changes = || bed.ask("show spanning-tree")["instances"][0]["topology_changes"].clone();
    let before = changes();
    bed.host(1).net.ip("link set eth0 down");
    wait_bundled(&bed, &["p2"]);
    bed.host(2).send(&better_bpdu(mac(2)));
    assert!(ports().contains(&root), "{:?}", ports());
    assert_eq!(changes(), before, "the tree does not notice");
}

/// Lists of the port-channel judge what any member receives, and each frame that leaves once; lists of a member judge nothing.
fn lists_judge_the_frames_of_the_port_channel(plane: Plane) {
    let lists = "mac access-list extended in1\n deny host 0200.0000.0066 any\n permit any any\n\
        mac access-list extended out1\n deny host 0200.0000.0077 any\n permit any any\n\
        mac access-list extended none\n deny any any\n";
    let bed = Bed::new(plane, 3, &format!("{lists}{STATIC}"));
    wait_bundled(&bed, &["p1", "p2"]);
    bed.configure("interface port-channel 1\nmac access-group in1 in\nmac access-group out1 out");
    let printed = bed.exec(&["configure terminal", "interface p1", "mac access-group none in"]);
    assert!(printed.contains("no effect"), "{printed}");
    for host in [1, 2] {
        bed.expect_drop(host, &frame([0xff; 6], mac(0x66)), "acl_port_in");
        bed.expect_at(host, &frame([0xff; 6], mac(110 + host as u16)), &[3]);
    }
    let matches = |list: &str| -> Vec<u64> {
        let shown = bed.ask(&format!("show access-lists {list}"));
        let rules = shown["access_lists"][0]["rules"].as_array().expect("rules").clone();
        rules.iter().map(|rule| rule["matches"].as_u64().expect("a number")).collect()
    };
    assert_eq!((matches("in1"), matches("none")), (vec![2, 2], vec![0]));
    bed.expect_drop(3, &frame([0xff; 6], mac(0x77)), "acl_port_out");
    bed.expect_drop(3, &frame(mac(111), mac(0x77)), "acl_port_out");
    for dst in [[0xff; 6], mac(111)] {
        let arrived = bed.exchange(3, &[frame(dst, mac(5))]);
        assert_eq!(arrived[0].len() + arrived[1].len(), 1, "{arrived:?}");
    }
    assert_eq!(matches("out1"), [2, 2]);
    // Without members the frame is dropped before a list counts it.
    bed.exact.set(false);
    bed.host(1).net.ip("link set eth0 down");
    bed.host(2).net.ip("link set eth0 down");
    wait_bundled(&bed, &[]);
    bed.host(3).send(&frame(mac(111), mac(0x77)));
    bed.host(3).send(&frame([0xff; 6], mac(0x77)));
    wait_for("the drops", || {
        let drops = bed.ask("show interfaces counters drops");
        let of = |reason: &str| {
            let list = drops["drops"].as_array().expect("a list").iter();
            list.filter(|drop| drop["interface"] == "p3" && drop["reason"] == reason)
                .map(|drop| drop["frames"].as_u64().unwrap_or(0))
                .sum::<u64>()
        };
        (of("egress_down") + of("no_egress") == 2).then_some(())
    });
    assert_eq!(matches("out1"), [2, 2]);
}

/// Asserts that the switch routes between host 3 and the far end of each member while only that member has a link. Hosts 1 and 2
/// are the far ends of the members, in 10.0.10.0/24; host 3 is in 10.0.20.0/24.
fn routes_by_each_member(bed: &Bed) {
    for (host, other, member) in [(1, 2, "p1"), (2, 1, "p2")] {
        bed.host(host).net.ip("link set eth0 up\nroute replace default via 10.0.10.254");
        bed.host(other).net.ip("link set eth0 down");
        wait_bundled(bed, &[member]);
        bed.host(host).reaches("10.0.20.3");
        bed.host(3).reaches(&format!("10.0.10.{host}"));
    }
}

fn a_vlan_interface_routes_at_the_port_channel(plane: Plane) {
    let routed = "interface p3\n switchport access vlan 20\ninterface vlan 10\n ip address 10.0.10.254/24\n\
        interface vlan 20\n ip address 10.0.20.254/24\nip routing\n";
    let members = "interface p1\n switchport access vlan 10\n channel-group 1 mode on\ninterface p2\n channel-group 1 mode on\n";
    let bed = Bed::new(plane, 3, &format!("vlan 10\nvlan 20\n{members}{routed}"));
    bed.chatter.set(true);
    bed.exact.set(false);
    for (host, net) in [(1, 10), (2, 10), (3, 20)] {
        bed.host(host).address(&format!("10.0.{net}.{host}/24"));
        bed.host(host).net.ip(&format!("route add default via 10.0.{net}.254"));
    }
    routes_by_each_member(&bed);
}

/// Hosts 1 and 2 are the far ends of a routed port-channel, as a Catalyst's configuration has it; host 3 is on a trunk with every
/// VLAN.
const ROUTED: &str = "vlan 20\nspanning-tree mode rapid-pvst\nip routing\n\
    interface p1\n no switchport\n channel-group 1 mode on\ninterface p2\n no switchport\n channel-group 1 mode on\n\
    interface port-channel 1\n ip address 10.0.10.254 255.255.255.0\n\
    interface p3\n switchport mode trunk\n switchport trunk native vlan 20\n spanning-tree portfast trunk\n\
    interface vlan 20\n ip address 10.0.20.254 255.255.255.0\n";

fn a_routed_port_channel(plane: Plane) {
    let bed = Bed::new(plane, 3, ROUTED);
    bed.chatter.set(true);
    bed.exact.set(false);
    wait_bundled(&bed, &["p1", "p2"]);
    let summary = bed.exec(&["show etherchannel summary"]);
    assert!(summary.contains("Po1(RU)"), "{summary}");
    // The internal VLAN of the port-channel is no other port's, and has no spanning tree.
    let usage = bed.ask("show vlan internal usage");
    assert_eq!(usage["internal"][0]["vlan"], 1006, "{usage}");
    assert!(!bed.ask("show spanning-tree").to_string().contains("port-channel1"));
    bed.expect_drop(3, &frame([0xff; 6], mac(9)).tag(0x8100, 0, 1006), "vlan_not_allowed");
    bed.expect_at(1, &frame([0xff; 6], mac(101)), &[]);
    let refused = bed.try_configure("vlan 1006").expect_err("internal");
    assert!(refused.contains("VLAN 1006 is the internal VLAN of port-channel1"), "{refused}");

    for (host, net) in [(1, 10), (2, 10), (3, 20)] {
        bed.host(host).address(&format!("10.0.{net}.{host}/24"));
        bed.host(host).net.ip(&format!("route add default via 10.0.{net}.254"));
    }
    routes_by_each_member(&bed);
    let address = "10.0.10.2";
    bed.by_the_plane(3, 50, address, || bed.host(3).tcp(bed.host(2), address, 4 << 20));
    let brief = bed.exec(&["show ip interface brief"]);
    assert!(brief.lines().any(|line| line.starts_with("port-channel1") && line.contains("up")), "{brief}");
    // Without members the interface has no carrier, and its subnet leaves the routing table.
    bed.host(2).net.ip("link set eth0 down");
    wait_bundled(&bed, &[]);
    let connected = || bed.ask("show ip route").to_string().contains("10.0.10.0/24");
    wait_for("the subnet to leave", || (!connected()).then_some(()));
    routes_by_each_member(&bed);

    // A restarted daemon reads the configuration as the previous one has printed it.
    bed.exec(&["copy running-config startup-config"]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.start();
    wait_bundled(&bed, &["p2"]);
    routes_by_each_member(&bed);
    // As a switch port it has no addresses and no netdev.
    bed.configure("interface port-channel 1\nswitchport\nswitchport access vlan 20");
    wait_for("the netdev to go", || (!bed.net.links().contains(&"port-channel1".to_owned())).then_some(()));
    let config = bed.exec(&["show running-config"]);
    assert!(!config.contains("no switchport") && !config.contains("10.0.10.254"), "{config}");
    bed.host(2).net.ip("addr add 10.0.20.2/24 dev eth0");
    bed.host(2).reaches("10.0.20.3");
}

/// Two members lead to a plain switch with a trunk; its hosts are in the nets of two subinterfaces and in that of the
/// port-channel's untagged frames.
fn subinterfaces_of_a_port_channel(plane: Plane) {
    const BUNDLE: &str = "interface p1\n channel-group 1 mode on\ninterface p2\n channel-group 1 mode on\n";
    let routed = BUNDLE.replace(" channel", " no switchport\n channel");
    let router = Bed::new(
        plane,
        3,
        &format!(
            "ip routing\n{routed}interface port-channel 1\n ip address 10.0.10.254 255.255.255.0\n\
             interface port-channel1.100\n encapsulation dot1Q 100\n ip address 10.0.100.254 255.255.255.0\n\
             interface Po1.7\n encapsulation dot1Q 70\n ip address 10.0.70.254 255.255.255.0\n\
             vlan 20\ninterface p3\n switchport mode trunk\n spanning-tree portfast trunk\n"
        ),
    );
    let members = BUNDLE.replace(" channel", " switchport mode trunk\n channel");
    let hosts = "interface p3\n switchport access vlan 100\ninterface p4\n switchport access vlan 70\ninterface p5\n switchport\n";
    let switch = Bed::new(plane, 5, &format!("vlan 70,100\n{members}{hosts}"));
    for bed in [&router, &switch] {
        bed.chatter.set(true);
        bed.exact.set(false);
        wait_bundled(bed, &["p1", "p2"]);
    }
    let usage = router.ask("show vlan internal usage")["internal"].clone();
    let used = |at: usize| (usage[at]["vlan"].as_u64(), usage[at]["interface"].as_str());
    assert_eq!(
        [used(0), used(1), used(2)],
        [(Some(70), Some("po1.7")), (Some(100), Some("po1.100")), (Some(1006), Some("port-channel1"))]
    );
    // The internal VLANs are no other port's, and no other use of them is accepted.
    router.expect_drop(3, &frame([0xff; 6], mac(9)).tag(0x8100, 0, 100), "vlan_not_allowed");
    router.expect_drop(1, &frame([0xff; 6], mac(8)).tag(0x8100, 0, 20), "vlan_not_allowed");
    router.expect_at(1, &frame([0xff; 6], mac(101)).tag(0x8100, 0, 100), &[]);
    for (lines, why) in [
        ("vlan 100", "VLAN 100 is the internal VLAN of po1.100"),
        ("interface po1.8\nencapsulation dot1q 100", "already configured on po1.100"),
        ("interface po1.8\nencapsulation dot1q 1006", "the internal VLAN of port-channel1"),
        ("interface port-channel 1\nswitchport", "has subinterfaces: remove po1.7 first"),
    ] {
        let refused = router.try_configure(lines).expect_err(lines);
        assert!(refused.contains(why), "{lines}: {refused}");
    }
    join(&router, 1, &switch, 1);
    join(&router, 2, &switch, 2);
    for (host, net) in [(3, 100), (4, 70), (5, 10)] {
        switch.host(host).address(&format!("10.0.{net}.1/24"));
        switch.host(host).net.ip(&format!("route add default via 10.0.{net}.254"));
    }
    let reached = || {
        switch.host(3).reaches("10.0.70.1");
        switch.host(4).reaches("10.0.10.1");
        switch.host(5).reaches("10.0.100.1");
    };
    reached();
    // One member is enough, and the plane routes.
    for bed in [&router, &switch] {
        bed.configure("interface p2\nshutdown");
        wait_bundled(bed, &["p1"]);
    }
    reached();
    let address = "10.0.70.1";
    router.by_the_plane(1, 50, address, || switch.host(3).tcp(switch.host(4), address, 4 << 20));
    // A restarted daemon reads the configuration as the previous one has printed it, and the removal of a subinterface leaves
    // nothing behind.
    router.exec(&["copy running-config startup-config"]);
    router.end_daemon(nix::sys::signal::Signal::SIGKILL);
    router.start();
    wait_bundled(&router, &["p1"]);
    reached();
    router.configure("no interface port-channel1.100\nvlan 100");
    wait_for("the netdev to go", || (!router.net.links().contains(&"po1.100".to_owned())).then_some(()));
    switch.host(4).reaches("10.0.10.1");
}

fn lines_that_do_not_fit_are_refused(plane: Plane) {
    let bed = Bed::new(plane, 3, STATIC);
    // The counters of a port whose role changes start at 0.
    bed.exact.set(false);
    let refused = |lines: &str, why: &str| {
        let said = bed.try_configure(lines).expect_err(lines);
        assert!(said.contains(why), "{lines}: {said}");
    };
    refused("interface p3\nchannel-group 1 mode active", "mode on");
    refused("interface p1\nno switchport", "member of channel group 1");
    refused("interface port-channel 1\nip address 10.0.0.1/24", "L2 links");
    refused("interface p3\nno switchport\nchannel-group 1 mode on", "is a routed port (layer 3)");
    bed.configure("interface p3\nswitchport");
    refused(
        "interface port-channel 1\nno switchport\ninterface p1\nip address 10.0.0.1/24",
        "member of a port-channel",
    );
    refused("interface port-channel1.10\nencapsulation dot1q 10", "VLAN 10 is the internal VLAN of po1.10");
    refused("interface port-channel1.10000000", "1 to 9999999");
    bed.configure("interface port-channel 1\nswitchport\nswitchport access vlan 10");
    refused("interface port-channel 1\nmtu 9000", "setting of its members");
    refused("interface port-channel 300", "1 to 255");
    refused("interface p3\nport-channel min-links 2", "port-channels");
    refused("interface p3\nchannel-group 1 mode desirable", "not supported by Lanyard");
    wait_bundled(&bed, &["p1", "p2"]);
    // Too few members: the port-channel is down as a whole.
    bed.configure("interface port-channel 1\nport-channel min-links 2");
    bed.host(1).net.ip("link set eth0 down");
    wait_for("the port-channel is down", || (channel(&bed)["up"] == false).then_some(()));
    bed.expect_drop(2, &frame([0xff; 6], mac(5)), "not_collecting");
    bed.host(1).net.ip("link set eth0 up");
    wait_bundled(&bed, &["p1", "p2"]);
}

/// A switch with host 2 at p2, and p1 and q1 as two wires to the namespace of host 1.
fn with_partner(plane: Plane, mode: &str) -> Bed {
    let bed = Bed::without_switch(plane, 2, 1500);
    bed.net.ip(&format!("link add q1 type veth peer name eth1 netns {}", bed.host(1).net.path()));
    bed.host(1).net.ip("link set eth1 up");
    // The kernel of the partner must not answer by the bond's links for the address of the bridge.
    let quiet = || std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1");
    bed.host(1).net.run(quiet).expect("arp_ignore is set");
    let config = format!(
        "interface p1\n channel-group 1 mode {mode}\n lacp rate fast\ninterface q1\n channel-group 1 mode {mode}\n \
         lacp rate fast\ninterface p2\n switchport\n"
    );
    std::fs::write(bed.config_file(), config).expect("a startup-config");
    bed.chatter.set(true);
    bed.exact.set(false);
    bed.start();
    bed
}

/// Gives br0 of the partner and host 2 addresses, and pings.
fn talk(bed: &Bed) {
    bed.host(1).net.ip("address replace 10.0.0.1/24 dev br0\nlink set br0 up");
    bed.host(2).net.ip("address replace 10.0.0.2/24 dev eth0");
    bed.host(2).reaches("10.0.0.1");
}

fn open_vswitch_bundles_with_each_mode(plane: Plane) {
    for (mode, partner, fast) in
        [("active", "passive", true), ("passive", "active", true), ("active", "active", false)]
    {
        let bed = with_partner(plane, mode);
        let lacp = format!("lacp={partner}");
        let time = if fast { "other_config:lacp-time=fast" } else { "other_config:lacp-time=slow" };
        let Some(ovs) = Ovs::start(&bed.host(1).net, &[&lacp, time]) else { return };
        wait_bundled(&bed, &["p1", "q1"]);
        wait_for("the partner has negotiated", || ovs.negotiated().then_some(()));
        talk(&bed);
        let view = bed.ask("show lacp neighbor");
        let members = view["channels"][0]["members"].as_array().expect("members").clone();
        assert_eq!(members.len(), 2, "{view}");
        for member in &members {
            let state = member["lacp"]["partner"]["state"].as_str().expect("letters");
            assert_eq!(
                (state.starts_with('A'), state.contains('T')),
                (partner == "active", fast),
                "{member}"
            );
            assert_eq!(member["lacp"]["errors"], serde_json::json!({}), "{member}");
        }
        assert_eq!(channel(&bed)["protocol"], "lacp");
        // One of the wires goes down: the other one carries all frames.
        bed.host(1).net.ip("link set eth1 down");
        wait_bundled(&bed, &["p1"]);
        bed.host(2).reaches("10.0.0.1");
        bed.host(1).net.ip("link set eth1 up");
        wait_bundled(&bed, &["p1", "q1"]);
        bed.host(2).reaches("10.0.0.1");
    }
}

/// A partner that ends without taking its links down: with the short timeout its members leave after three seconds, and after
/// three more the port is without a partner (IEEE 802.1AX-2014, 6.4.12).
fn a_silent_partner_loses_its_member(plane: Plane) {
    let bed = with_partner(plane, "active");
    let Some(mut ovs) = Ovs::start(&bed.host(1).net, &["lacp=active", "other_config:lacp-time=fast"]) else {
        return;
    };
    wait_bundled(&bed, &["p1", "q1"]);
    let begin = Instant::now();
    ovs.end();
    wait_bundled(&bed, &[]);
    let took = begin.elapsed();
    println!("the members left {took:?} after the partner's end");
    assert!(
        took >= Duration::from_millis(1900) && took < Duration::from_secs(5),
        "{took:?}: the timeout is 3 s"
    );
    wait_for("the ports are individual", || {
        let members = channel(&bed)["members"].clone();
        members.as_array()?.iter().all(|member| member["state"] == "individual").then_some(())
    });
}

/// A daemon that is killed leaves the members forwarding; the next one does not interrupt them.
fn a_restart_keeps_static_members(plane: Plane) {
    let bed = Bed::new(plane, 3, STATIC);
    wait_bundled(&bed, &["p1", "p2"]);
    bed.expect_at(1, &frame([0xff; 6], mac(101)), &[3]);
    let member = |bed: &Bed, source: u16| {
        let sent = frame(mac(101), mac(source));
        bed.hosts.iter().for_each(crate::harness::Host::drain);
        bed.host(3).send(&sent);
        wait_for("the frame arrives", || {
            [1, 2]
                .into_iter()
                .find(|host| std::iter::from_fn(|| bed.host(*host).next()).any(|frame| frame == sent))
        })
    };
    let before: Vec<usize> = (300..332).map(|source| member(&bed, source)).collect();
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    let without: Vec<usize> = (300..332).map(|source| member(&bed, source)).collect();
    assert_eq!(without, before, "without a daemon");
    bed.start();
    wait_bundled(&bed, &["p1", "p2"]);
    let after: Vec<usize> = (300..332).map(|source| member(&bed, source)).collect();
    assert_eq!(after, before, "the buckets are those from before the restart");
    bed.exact.set(false);
}

fn the_kernels_bond_bundles(plane: Plane) {
    let bed = with_partner(plane, "active");
    let bond = "link add bond0 type bond mode 802.3ad lacp_rate fast miimon 10";
    if let Err(said) = bed.host(1).net.try_ip(bond) {
        println!("skipped: this kernel has no bonding driver: {}", said.trim());
        return;
    }
    bed.host(1).net.ip(
        "link set eth0 down\nlink set eth1 down\nlink set eth0 master bond0\nlink set eth1 master bond0\n\
         address add 10.0.0.1/24 dev bond0\nlink set bond0 up",
    );
    wait_bundled(&bed, &["p1", "q1"]);
    bed.host(2).net.ip("address replace 10.0.0.2/24 dev eth0");
    bed.host(2).reaches("10.0.0.1");
    let partner =
        bed.ask("show lacp neighbor")["channels"][0]["members"][0]["lacp"]["partner"]["system"].clone();
    assert_ne!(partner, text([0; 6]), "the bond's address");
}
