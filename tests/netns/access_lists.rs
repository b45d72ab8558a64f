//! Access lists at ports, VLANs and VLAN interfaces: what passes, what is counted, and what happens when lists change.

use crate::harness::frame::{Frame, Mac};
use crate::harness::{BROADCAST, Bed, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::PacketSocket;
use std::sync::atomic::{AtomicBool, Ordering};

scenarios! {
    lists_at_ports: ebpf soft;
    mac_lists: ebpf soft;
    vlan_maps: ebpf soft;
    lists_of_vlan_interfaces: ebpf soft;
    flows_are_logged: ebpf soft;
    vlan_maps_and_mac_lists_log: ebpf soft;
    lists_of_routed_ports_log: ebpf;
    lists_at_routed_ports_are_refused: soft;
    a_flood_of_logged_packets: ebpf soft;
    a_list_survives_a_restart: ebpf;
    a_full_list_is_replaced_under_traffic: ebpf;
}

const THREE: &str = "interface range p1 - 3\n switchport\n";

/// A UDP packet from 10.0.0.`last` to 10.0.0.99, to this port.
fn udp(dst: Mac, src: Mac, last: u8, port: u16) -> Frame {
    let [high, low] = port.to_be_bytes();
    let header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, last, 10, 0, 0, 99];
    let Frame(mut bytes) = frame(dst, src).ethertype(0x0800);
    bytes[14..34].copy_from_slice(&header);
    bytes[34..42].copy_from_slice(&[0x30, 0x39, high, low, 0, 26, 0, 0]);
    Frame(bytes)
}

/// The number of matches of a rule.
fn matches(bed: &Bed, list: &str, seq: u64) -> u64 {
    let shown = bed.show(&format!("show access-lists {list}"));
    let rules = shown["access_lists"][0]["rules"].as_array().unwrap();
    let rule =
        rules.iter().find(|rule| rule["seq"] == seq).unwrap_or_else(|| panic!("no rule {seq}: {shown}"));
    rule["matches"].as_u64().unwrap()
}

fn lists_at_ports(plane: Plane) {
    let config = format!(
        "ip access-list extended in1\n 10 permit udp host 10.0.0.1 any eq 53\n 20 deny udp any any eq 53\n \
         30 permit ip any any\nip access-list standard out3\n deny 10.0.0.7\n permit any\n{THREE}interface p1\n \
         ip access-group in1 in\ninterface p3\n ip access-group out3 out\n"
    );
    let bed = Bed::new(plane, 3, &config);
    bed.expect_at(1, &udp(BROADCAST, mac(1), 1, 53), &[2, 3]);
    bed.expect_drop(1, &udp(BROADCAST, mac(4), 2, 53), "acl_port_in");
    bed.learned(mac(4), 1, None);
    bed.expect_at(1, &udp(BROADCAST, mac(1), 2, 54), &[2, 3]);
    // Other frames are not judged by an IP list.
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    assert_eq!([10, 20, 30].map(|seq| matches(&bed, "in1", seq)), [1, 1, 1]);
    // An outbound list removes the port from a flood, and drops what only that port would get.
    bed.expect_at(2, &udp(BROADCAST, mac(2), 7, 53), &[1]);
    bed.expect_at(3, &frame(BROADCAST, mac(3)), &[1, 2]);
    bed.expect_drop(2, &udp(mac(3), mac(2), 7, 53), "acl_port_out");
    bed.expect_at(2, &udp(mac(3), mac(2), 8, 53), &[3]);
    // A rule that is inserted takes effect at once, and the others keep their counts.
    bed.configure("ip access-list extended in1\n5 permit ip host 10.0.0.2 any");
    bed.expect_at(1, &udp(BROADCAST, mac(1), 2, 53), &[2, 3]);
    assert_eq!([5, 10, 20].map(|seq| matches(&bed, "in1", seq)), [1, 1, 1]);
    bed.configure("ip access-list extended in1\nno 30");
    bed.expect_drop(1, &udp(BROADCAST, mac(1), 3, 54), "acl_port_in");
    bed.exec(&["clear access-list counters in1"]);
    assert_eq!(matches(&bed, "in1", 5), 0);
    bed.configure("interface p1\nno ip access-group in1 in");
    bed.expect_at(1, &udp(BROADCAST, mac(1), 3, 53), &[2, 3]);
    let printed = bed.try_configure("interface p1\nmac access-group in1 in").unwrap_err();
    assert!(printed.contains("cannot stand here"), "{printed}");
}

fn mac_lists(plane: Plane) {
    let config = format!(
        "mac access-list extended m\n permit host 0200.0000.0001 any\n permit any any 0x88b6 0x0\n{THREE}interface p1\n \
         mac access-group m in\n"
    );
    let bed = Bed::new(plane, 3, &config);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    bed.expect_drop(1, &frame(BROADCAST, mac(9)), "acl_port_in");
    bed.expect_at(1, &frame(BROADCAST, mac(9)).ethertype(0x88b6), &[2, 3]);
    // A MAC list does not judge IP packets.
    bed.expect_at(1, &udp(BROADCAST, mac(9), 1, 53), &[2, 3]);
}

fn vlan_maps(plane: Plane) {
    let config = "vlan 10,20\nip access-list extended web\n permit udp any any eq 80\nip access-list standard ten\n \
        permit 10.0.0.0 0.0.0.15\nvlan access-map m 10\n match ip address web\n action drop\nvlan access-map m 20\n \
        match ip address ten\n action forward\nvlan filter m vlan-list 10\ninterface range p1 - 2\n \
        switchport access vlan 10\ninterface range p3 - 4\n switchport access vlan 20\n";
    let bed = Bed::new(plane, 4, config);
    bed.expect_drop(1, &udp(BROADCAST, mac(1), 1, 80), "acl_vlan_in");
    bed.expect_at(1, &udp(BROADCAST, mac(1), 1, 81), &[2]);
    bed.expect_drop(1, &udp(BROADCAST, mac(1), 16, 81), "acl_vlan_in");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.expect_at(3, &udp(BROADCAST, mac(3), 16, 80), &[4]);
    bed.configure("no vlan filter m");
    bed.expect_at(1, &udp(BROADCAST, mac(1), 1, 80), &[2]);
}

/// Lists at VLAN interfaces judge routed packets, and packets to the switch itself. The hosts are real ones.
fn lists_of_vlan_interfaces(plane: Plane) {
    let config = "ip routing\nvlan 10,20\ninterface p1\n switchport access vlan 10\ninterface p2\n switchport access vlan 20\n\
        interface vlan 10\n ip address 10.0.10.254 255.255.255.0\ninterface vlan 20\n ip address 10.0.20.254/24\n";
    let bed = Bed::new(plane, 2, config);
    bed.chatter.set(true);
    bed.host(1).join_vlan(10);
    bed.host(2).join_vlan(20);
    bed.host(1).reaches("10.0.20.1");
    bed.host(1).reaches("10.0.10.254");
    let pings = |host: usize, address: &str| bed.host(host).ping(&format!("-c 1 -W 1 {address}"));
    bed.configure("ip access-list extended r\ndeny icmp any host 10.0.20.1\npermit ip any any\ninterface vlan 10\nip access-group r in");
    assert!(!pings(1, "10.0.20.1"), "a denied packet was routed");
    assert!(pings(1, "10.0.10.254"));
    assert!(matches(&bed, "r", 10) > 0 && bed.drops(1, "acl_router_in") > 0);
    bed.configure("ip access-list extended r\n5 deny icmp any host 10.0.10.254");
    assert!(!pings(1, "10.0.10.254"), "a denied packet has reached the switch");
    bed.configure("interface vlan 10\nno ip access-group r in");
    assert!(pings(1, "10.0.20.1") && pings(1, "10.0.10.254"));
    bed.configure("ip access-list extended o\ndeny icmp host 10.0.10.1 any\npermit ip any any\ninterface vlan 20\nip access-group o out");
    assert!(!pings(1, "10.0.20.1"), "a denied packet has left by the VLAN interface");
    assert!(bed.drops(1, "acl_router_out") > 0);
    assert!(pings(2, "10.0.20.254"));
}

/// Waits until the log contains this text.
fn logged(bed: &Bed, text: &str) {
    wait_for(&format!("{text} in the log"), || bed.exec(&["show logging"]).contains(text).then_some(()));
}

/// The log lines contain the addresses of the senders, which are real hosts, wherever the list is bound.
fn flows_are_logged(plane: Plane) {
    let config = "ip access-list log-update threshold 3\nip routing\nipv6 unicast-routing\nvlan 10,20\ninterface p1\n switchport access vlan 10\n\
        interface p2\n switchport access vlan 20\ninterface vlan 10\n ip address 10.0.10.254 255.255.255.0\n \
        ipv6 address fd00:10::254/64\ninterface vlan 20\n ip address 10.0.20.254/24\n ipv6 address fd00:20::254/64\n\
        ip access-list extended in1\n 10 permit tcp any any log\n 20 permit icmp any any log-input\n 30 deny udp any any eq 53 log\n \
        40 permit ip any any\nip access-list standard out2\n permit 10.0.10.1 log\n permit any\n\
        ipv6 access-list six\n sequence 10 permit icmp any any echo-request log\n sequence 20 permit ipv6 any any\n";
    let bed = Bed::new(plane, 2, config);
    bed.chatter.set(true);
    bed.host(1).join_vlan(10);
    bed.host(2).join_vlan(20);
    bed.host(1).reaches("10.0.20.1");
    bed.host(1).reaches("fd00:20::1");
    bed.configure("interface p1\nip access-group in1 in\nipv6 traffic-filter six in\ninterface vlan 20\nip access-group out2 out");
    bed.host(1).tcp(bed.host(2), "10.0.20.1", 100_000);
    logged(&bed, "%SEC-6-IPACCESSLOGP: list in1 permitted tcp 10.0.10.1(");
    logged(&bed, ") -> 10.0.20.1(5001), 1 packet");
    // With the threshold the summary comes long before the usual five minutes are over.
    logged(&bed, "(5001), 3 packets");
    logged(&bed, "%SEC-6-IPACCESSLOGS: list out2 permitted 10.0.10.1 1 packet");
    // Notes are policed, and those about the stream may have emptied the bucket: then a later packet is the first to be noted.
    let pinged = |to: &str, line: &str| {
        wait_for(&format!("{line} in the log"), || {
            bed.host(1).reaches(to);
            bed.exec(&["show logging"]).contains(line).then_some(())
        });
    };
    pinged("10.0.20.1", "%SEC-6-IPACCESSLOGDP: list in1 permitted icmp 10.0.10.1 (p1 ");
    logged(&bed, ") -> 10.0.20.1 (8/0), 1 packet");
    pinged(
        "fd00:20::1",
        "%IPV6_ACL-6-ACCESSLOGDP: list six/10 permitted icmpv6 fd00:10::1 -> fd00:20::1 (128/0), 1 packet",
    );
    bed.host(1).net.run(|| {
        let socket = std::net::UdpSocket::bind("10.0.10.1:4000").expect("a socket");
        socket.send_to(b"question", "10.0.20.1:53").expect("sent");
    });
    logged(&bed, "%SEC-6-IPACCESSLOGP: list in1 denied udp 10.0.10.1(4000) -> 10.0.20.1(53), 1 packet");
    assert_eq!(matches(&bed, "in1", 30), 1);
}

/// A VLAN map logs with the name of the list that has decided, and by its own action; a MAC list logs the EtherType.
fn vlan_maps_and_mac_lists_log(plane: Plane) {
    let config = format!(
        "ip access-list extended dns\n 10 permit udp any any eq 53 log\n 20 permit udp any any eq 54\n\
         ip access-list extended web\n 10 permit udp any any eq 80 log\n 20 permit ip any any\n\
         mac access-list extended m\n 10 deny any any 0x88b6 0 log\n 20 permit any any 0x88b5 0 log\n 30 permit any any\n\
         {THREE}vlan access-map vm 10\n match ip address dns\n action drop\n\
         vlan access-map vm 20\n match ip address web\n action forward\nvlan filter vm vlan-list 1\n\
         interface p2\n mac access-group m in\n"
    );
    let bed = Bed::new(plane, 3, &config);
    bed.expect_drop(1, &udp(BROADCAST, mac(1), 1, 53), "acl_vlan_in");
    bed.expect_drop(1, &udp(BROADCAST, mac(1), 1, 54), "acl_vlan_in");
    bed.expect_at(1, &udp(BROADCAST, mac(1), 1, 80), &[2, 3]);
    bed.expect_at(1, &udp(BROADCAST, mac(1), 1, 81), &[2, 3]);
    bed.expect_drop(2, &frame(BROADCAST, mac(2)).ethertype(0x88b6), "acl_port_in");
    bed.expect_at(2, &frame(BROADCAST, mac(2)).ethertype(0x88b5), &[1, 3]);
    bed.expect_at(2, &frame(BROADCAST, mac(2)).ethertype(0x88b7), &[1, 3]);
    logged(&bed, "%SEC-6-IPACCESSLOGP: list dns denied udp 10.0.0.1(12345) -> 10.0.0.99(53), 1 packet");
    logged(&bed, "%SEC-6-IPACCESSLOGP: list web permitted udp 10.0.0.1(12345) -> 10.0.0.99(80), 1 packet");
    let addresses = format!("{} -> ffff.ffff.ffff, 1 packet", lanyard_types::MacAddr(mac(2)));
    logged(&bed, &format!("%SEC-6-MACACCESSLOG: list m denied 0x88b6 {addresses}"));
    logged(&bed, &format!("%SEC-6-MACACCESSLOG: list m permitted 0x88b5 {addresses}"));
    let log = bed.exec(&["show logging"]);
    for silent in ["10.0.0.99(54)", "10.0.0.99(81)", "0x88b7"] {
        assert!(!log.contains(silent), "a rule without log has a line about {silent}: {log}");
    }
    assert_eq!([matches(&bed, "m", 10), matches(&bed, "m", 20)], [1, 1]);
}

/// Packets that the plane routes from one routed port to another: both directions of both lists have lines.
fn lists_of_routed_ports_log(plane: Plane) {
    let config = "ip routing\nipv6 unicast-routing\n\
        interface p1\n no switchport\n ip address 10.0.1.254/24\n ipv6 address fd00:1::254/64\n\
        interface p2\n no switchport\n ip address 10.0.2.254/24\n ipv6 address fd00:2::254/64\n\
        ip access-list extended in1\n 10 permit icmp any any log-input\n 20 deny udp any any eq 53 log\n 30 permit ip any any\n\
        ip access-list extended out2\n 10 deny udp any any eq 54 log\n 20 permit ip any any\n\
        ipv6 access-list six\n sequence 10 permit icmp any any echo-reply log\n sequence 20 permit ipv6 any any\n";
    let bed = Bed::new(plane, 2, config);
    bed.chatter.set(true);
    // The kernel sends frames of its own by routed ports as well.
    bed.exact.set(false);
    // The hosts get the addresses and routes of hosts in VLANs 1 and 2.
    bed.host(1).join_vlan(1);
    bed.host(2).join_vlan(2);
    bed.host(1).reaches("10.0.2.1");
    bed.host(1).reaches("fd00:2::1");
    bed.configure(
        "interface p1\nip access-group in1 in\nipv6 traffic-filter six out\ninterface p2\nip access-group out2 out",
    );
    bed.host(1).reaches("10.0.2.1");
    logged(&bed, "%SEC-6-IPACCESSLOGDP: list in1 permitted icmp 10.0.1.1 (p1 ");
    logged(&bed, ") -> 10.0.2.1 (8/0), 1 packet");
    bed.host(1).reaches("fd00:2::1");
    logged(
        &bed,
        "%IPV6_ACL-6-ACCESSLOGDP: list six/10 permitted icmpv6 fd00:2::1 -> fd00:1::1 (129/0), 1 packet",
    );
    bed.host(1).net.run(|| {
        let socket = std::net::UdpSocket::bind("10.0.1.1:4000").expect("a socket");
        for port in [53, 54, 55] {
            socket.send_to(b"question", ("10.0.2.1", port)).expect("sent");
        }
    });
    logged(&bed, "%SEC-6-IPACCESSLOGP: list in1 denied udp 10.0.1.1(4000) -> 10.0.2.1(53), 1 packet");
    logged(&bed, "%SEC-6-IPACCESSLOGP: list out2 denied udp 10.0.1.1(4000) -> 10.0.2.1(54), 1 packet");
    assert_eq!([matches(&bed, "in1", 20), matches(&bed, "out2", 10)], [1, 1]);
}

/// On the soft plane the kernel routes the packets of routed ports, so a list there would have no effect.
fn lists_at_routed_ports_are_refused(plane: Plane) {
    let config = "ip access-list extended a\n deny udp any any\ninterface p1\n no switchport\n ip address 10.0.1.254/24\n";
    let bed = Bed::new(plane, 1, config);
    // The kernel sends frames of its own by routed ports as well.
    bed.chatter.set(true);
    bed.exact.set(false);
    for line in ["ip access-group a in", "ip access-group a out"] {
        let refused = bed.try_configure(&format!("interface p1\n{line}")).expect_err("refused");
        assert!(
            refused.contains("access lists at the routed port p1, whose packets the kernel routes"),
            "{refused}"
        );
    }
    assert!(!bed.exec(&["show running-config"]).contains("access-group"));
}

/// Notes over the rate of their trap group are left out and counted; the list judges all packets.
fn a_flood_of_logged_packets(plane: Plane) {
    let config = format!(
        "ip access-list extended a\n 10 deny udp any any log\n 20 permit ip any any\n{THREE}interface p1\n ip access-group a in\n"
    );
    let bed = Bed::new(plane, 3, &config);
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
    const PACKETS: u64 = 2_000;
    (0..PACKETS as u16).for_each(|port| bed.host(1).send(&udp(mac(2), mac(1), 1, port)));
    wait_for("the count of the frames", || (matches(&bed, "a", 10) == PACKETS).then_some(()));
    logged(&bed, "%SEC-6-IPACCESSLOGRL: access-list logging rate-limited or missed ");
    let shown = bed.show("show platform traps");
    let group = shown["traps"].as_array().unwrap().iter().find(|group| group["group"] == "acl_log").unwrap();
    let [trapped, policed, lost] = ["trapped", "policed", "lost"].map(|count| group[count].as_u64().unwrap());
    assert!(policed > 0 && trapped > 0 && trapped + policed + lost == PACKETS, "{group}");
    bed.arrivals();
    bed.expect_at(3, &frame(BROADCAST, mac(3)), &[1, 2]);
}

/// The lists go on judging while there is no daemon, and keep their counts.
fn a_list_survives_a_restart(plane: Plane) {
    let config = format!(
        "ip access-list extended a\n permit udp any any eq 53\n{THREE}interface p1\n ip access-group a in\n"
    );
    let bed = Bed::new(plane, 3, &config);
    bed.expect_at(1, &udp(BROADCAST, mac(1), 1, 53), &[2, 3]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.host(1).send(&udp(BROADCAST, mac(1), 1, 54));
    bed.host(1).send(&udp(BROADCAST, mac(1), 1, 53));
    bed.start();
    wait_for("the count of the frames", || (matches(&bed, "a", 10) == 2).then_some(()));
    bed.arrivals();
    bed.expect_drop(1, &udp(BROADCAST, mac(1), 1, 54), "acl_port_in");
}

/// 4,096 rules are replaced by others while frames pass that both lists permit, at different places. A frame that was judged by
/// parts of both would be denied.
fn a_full_list_is_replaced_under_traffic(plane: Plane) {
    let list = |odd: u32| {
        let mut text = String::from("ip access-list extended big\n");
        for n in 0..4094_u32 {
            let host = n * 2 + odd;
            text += &format!(
                "{} deny udp host 10.{}.{}.{} any eq {}\n",
                n + 1,
                1 + (host >> 16),
                host >> 8 & 255,
                host & 255,
                1 + n
            );
            if n == 1000 + 2000 * odd {
                text += &format!("{} permit udp host 10.0.0.1 any eq 53\n", 5000 + odd);
            }
        }
        text
    };
    let config = format!("{}{THREE}interface p1\n ip access-group big in\n", list(0));
    let bed = Bed::new(plane, 3, &config);
    bed.expect_at(1, &udp(BROADCAST, mac(1), 1, 53), &[2, 3]);
    bed.expect_drop(1, &udp(BROADCAST, mac(1), 2, 53), "acl_port_in");
    let denied = bed.drops(1, "acl_port_in");
    let files: Vec<_> = (0..2)
        .map(|odd| {
            let path = bed.file(&format!("list{odd}"));
            let body = format!("no ip access-list extended big\n{}", list(odd));
            std::fs::write(&path, body).unwrap();
            path
        })
        .collect();
    let stop = AtomicBool::new(false);
    let socket = bed.host(1).net.run(|| {
        PacketSocket::sender(nix::net::if_::if_nametoindex("eth0").expect("eth0")).expect("a packet socket")
    });
    // Copies of these frames are not compared: the sender is not the bed.
    bed.exact.set(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let sender = scope.spawn(move || {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                socket.send(&udp(BROADCAST, mac(1), 1, 53).0).expect("sent");
                sent += 1;
                std::thread::yield_now();
            }
            sent
        });
        for round in 0..4 {
            let path = files[(round + 1) % 2].display().to_string();
            let began = std::time::Instant::now();
            bed.exec(&[&format!("copy {path} running-config")]);
            println!("replaced in {:?}, the command and its text included", began.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap();
        println!("{sent} frames passed meanwhile");
        assert!(sent > 100);
    });
    assert_eq!(bed.drops(1, "acl_port_in"), denied, "a frame that both lists permit was denied");
}
