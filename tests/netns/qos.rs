//! Quality of service with real netdevs: marking, policing, trust, and the queues of a port under congestion.

use crate::harness::daemon::cli;
use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, join, mac, scenarios, wait_for};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

scenarios! {
    input_policies_mark_the_frames_of_their_classes: ebpf soft;
    a_policer_drops_frames_that_exceed_its_rate: ebpf soft;
    output_policies_mark_each_copy_of_a_flood: ebpf soft;
    untrusted_ports_lose_their_code_points: ebpf soft;
    tcp_reaches_the_rate_of_a_policer: ebpf soft;
    a_policy_changes_under_traffic: ebpf soft;
    routed_packets_are_marked_and_policed: ebpf soft;
    routed_ports_have_policies: ebpf;
    port_channels_have_policies: ebpf soft;
    queues_share_a_congested_port: ebpf;
    queues_come_and_go: ebpf;
    a_plane_without_queues_refuses_them: soft;
}

const VLANS: &str = "vlan 10\n";

/// An IPv4 packet of UDP with this DSCP, from 10.0.0.SRC to port `to`.
fn udp(dst: [u8; 6], src: u16, dscp: u8, to: u16) -> Frame {
    let mut ip = vec![0x45, dscp << 2, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, src as u8, 10, 0, 0, 2];
    let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let check = !(((sum & 0xffff) + (sum >> 16)) as u16);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    ip.extend([0x30, 0x39]);
    ip.extend(to.to_be_bytes());
    ip.extend([0, 26, 0, 0]);
    ip.resize(46, 0);
    Frame([&dst[..], &mac(src), &[8, 0], &ip].concat())
}

/// The class with this name of the service policy at an interface.
fn class(bed: &Bed, interface: &str, direction: &str, name: &str) -> Value {
    let view = bed.show("show policy-map interface");
    let policies = view["service_policies"].as_array().expect("a list");
    let policy =
        policies.iter().find(|policy| policy["interface"] == interface && policy["direction"] == direction);
    let classes = policy.unwrap_or_else(|| panic!("{view}"))["classes"].as_array().expect("classes").clone();
    // A child policy has a `class-default` as well, which comes last.
    classes
        .into_iter()
        .rfind(|class| class["class"] == name)
        .unwrap_or_else(|| panic!("no class {name}: {view}"))
}

fn packets(bed: &Bed, interface: &str, direction: &str, name: &str) -> u64 {
    class(bed, interface, direction, name)["packets"].as_u64().expect("a number")
}

/// Two access ports and a trunk in VLAN 10.
fn bed(plane: Plane, config: &str) -> Bed {
    let ports = "interface range p1 - 2\n switchport access vlan 10\ninterface p3\n switchport mode trunk\n";
    Bed::new(plane, 3, &format!("{VLANS}{config}{ports}"))
}

/// Lets the switch learn the address of a host; host 3 is at the trunk.
fn teach(bed: &Bed, n: usize) {
    let own = frame(BROADCAST, mac(n as u16));
    bed.exchange(n, &[if n == 3 { own.vlan(10) } else { own }]);
    bed.learned(mac(n as u16), 10, Some(&format!("p{n}")));
}

const CLASSES: &str = "ip access-list extended SIP\n permit udp any any eq 5060\n\
    class-map match-all VOICE\n match dscp ef\n match protocol ip\n\
    class-map match-any SIGNAL\n match access-group name SIP\n match cos 3\n";

fn input_policies_mark_the_frames_of_their_classes(plane: Plane) {
    let policy = "policy-map IN\n class VOICE\n  set cos 5\n class SIGNAL\n  set dscp cs3\n class class-default\n  set dscp default\n";
    let bed = bed(plane, &format!("{CLASSES}{policy}"));
    bed.configure("interface p1\n service-policy input IN");
    let marked = |sent: &Frame, dscp: u8, cos: u16| {
        let mut bytes = udp(mac(3), 1, dscp, 0).0;
        bytes[34..].copy_from_slice(&sent.0[34..]);
        [(3, Frame(bytes).tag(0x8100, cos, 10))]
    };
    teach(&bed, 3);
    let voice = udp(mac(3), 1, 46, 4000);
    bed.expect(1, &voice, &marked(&voice, 46, 5));
    let signal = udp(mac(3), 1, 10, 5060);
    bed.expect(1, &signal, &marked(&signal, 24, 0));
    let other = udp(mac(3), 1, 10, 4000);
    bed.expect(1, &other, &marked(&other, 0, 0));
    let arp = frame(mac(3), mac(1)).ethertype(0x0806);
    bed.expect(1, &arp, &[(3, arp.vlan(10))]);
    for (name, count) in [("VOICE", 1), ("SIGNAL", 1), ("class-default", 2)] {
        assert_eq!(packets(&bed, "p1", "input", name), count, "{name}");
    }
    bed.exact.set(false);
    bed.exec(&["clear counters p1"]);
    assert_eq!(packets(&bed, "p1", "input", "VOICE"), 0);
    // The policy of one port does not apply at another port.
    let voice = udp(mac(3), 2, 46, 4000);
    bed.expect(2, &voice, &[(3, voice.vlan(10))]);
    let refused = bed.try_configure("no policy-map IN").expect_err("in use");
    assert!(refused.contains("in use") && refused.contains("interface p1"), "{refused}");
    bed.configure("interface p1\n no service-policy input IN");
    let voice = udp(mac(3), 1, 10, 4000);
    bed.expect(1, &voice, &[(3, voice.vlan(10))]);
}

fn a_policer_drops_frames_that_exceed_its_rate(plane: Plane) {
    // A frame of 60 bytes takes 60 ms; the bucket holds 1,000 bytes, 16 frames.
    let policy = "policy-map LIMIT\n class VOICE\n  police cir 8000 bc 1000 exceed-action drop\n";
    let bed = bed(plane, &format!("{CLASSES}{policy}"));
    bed.configure("interface p1\n service-policy input LIMIT");
    teach(&bed, 2);
    bed.exact.set(false);
    let began = Instant::now();
    for n in 0..60 {
        bed.host(1).send(&udp(mac(2), 1, 46, 4000 + n));
        bed.host(1).send(&udp(mac(2), 1, 10, 4000 + n));
    }
    let all = wait_for("every frame", || {
        let of = class(&bed, "p1", "input", "VOICE");
        (of["packets"] == 60 && packets(&bed, "p1", "input", "class-default") == 60).then_some(of)
    });
    let most = 16 + 1 + began.elapsed().as_millis() as u64 / 60;
    let conformed = all["police"]["conformed_packets"].as_u64().expect("a number");
    assert!((16..=most).contains(&conformed), "{conformed} of 60 conformed, {most} at most");
    assert_eq!(bed.drops(1, "policed_in"), 60 - conformed);
    let arrived = bed.arrivals()[1].iter().filter(|frame| frame.0.get(15) == Some(&(46 << 2))).count() as u64;
    assert_eq!(arrived, conformed, "what conforms arrives");
    // The station's address has been learned although some of its frames were dropped.
    bed.learned(mac(1), 10, Some("p1"));
}

fn output_policies_mark_each_copy_of_a_flood(plane: Plane) {
    let policies = "policy-map ONE\n class VOICE\n  set dscp cs1\n  set cos 1\npolicy-map TWO\n class VOICE\n  set dscp cs2\n\
        policy-map NONE\n class VOICE\n  police cir 8000 bc 1000 conform-action drop exceed-action drop\n";
    let bed = bed(plane, &format!("{CLASSES}{policies}"));
    bed.configure("interface p2\n service-policy output TWO\ninterface p3\n service-policy output ONE");
    let sent = udp(BROADCAST, 1, 46, 4000);
    let (mut two, mut one) = (udp(BROADCAST, 1, 16, 4000), udp(BROADCAST, 1, 8, 4000));
    two.0[34..].copy_from_slice(&sent.0[34..]);
    one.0[34..].copy_from_slice(&sent.0[34..]);
    bed.expect(1, &sent, &[(2, two.clone()), (3, one.tag(0x8100, 1, 10))]);
    bed.configure("interface p3\n no service-policy output ONE\n service-policy output NONE");
    bed.expect(1, &sent, &[(2, two)]);
    bed.configure("interface p2\n no service-policy output TWO\n service-policy output NONE");
    bed.expect_drop(1, &sent, "policed_out");
    let other = udp(BROADCAST, 1, 10, 4000);
    bed.expect(1, &other, &[(2, other.clone()), (3, other.vlan(10))]);
}

fn untrusted_ports_lose_their_code_points(plane: Plane) {
    let bed = bed(plane, "mls qos\n");
    bed.configure("interface p3\n mls qos trust dscp");
    teach(&bed, 2);
    bed.expect(1, &udp(mac(2), 1, 46, 4000), &[(2, udp(mac(2), 1, 0, 4000))]);
    let voice = udp(mac(2), 3, 46, 4000);
    bed.expect(3, &voice.vlan(10), &[(2, voice)]);
    // At a port that trusts the class of service, the map determines the DSCP from it.
    bed.configure("mls qos map cos-dscp 0 8 16 26 32 46 48 56\ninterface p3\n mls qos trust cos");
    let with = udp(mac(2), 3, 46, 4000);
    bed.expect(3, &udp(mac(2), 3, 0, 4000).tag(0x8100, 5, 10), &[(2, with)]);
    bed.configure("no mls qos\ninterface p3\n no mls qos trust cos");
    let kept = udp(mac(2), 1, 46, 4000);
    bed.expect(1, &kept, &[(2, kept.clone())]);
}

/// The receiving rate of TCP in Mbit/s from host 1 to host 2, with the segmentation offloads that hosts come with.
fn tcp_mbps(bed: &Bed, seconds: u64) -> f64 {
    let began = Instant::now();
    let mut bytes = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        bed.host(1).tcp(bed.host(2), "10.0.0.2", 1 << 20);
        bytes += 1_u64 << 20;
    }
    bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e6
}

fn tcp_reaches_the_rate_of_a_policer(plane: Plane) {
    let policy = "policy-map LIMIT\n class class-default\n  police cir 20m bc 100000\n";
    let bed = bed(plane, policy);
    bed.host(1).address("10.0.0.1/24");
    bed.host(2).address("10.0.0.2/24");
    bed.host(1).reaches("10.0.0.2");
    bed.configure("interface p1\n service-policy input LIMIT");
    // TCP sends buffers of up to 64 KB. A buffer passes because the bucket needs room for one of its segments only.
    let mbps = tcp_mbps(&bed, 3);
    assert!(mbps < 25.0, "{mbps} Mbit/s through a policer of 20");
    assert!(mbps > 2.0, "{mbps} Mbit/s: TCP starves");
    let of = class(&bed, "p1", "input", "class-default");
    assert!(of["police"]["conformed_packets"].as_u64() > Some(10), "{of}");
}

/// A policy is replaced while frames pass: none is lost, and each is in the old class or in the new one.
fn a_policy_changes_under_traffic(plane: Plane) {
    let bed = bed(plane, CLASSES);
    bed.exact.set(false);
    bed.configure("policy-map IN\n class VOICE\n  set dscp cs1\ninterface p1\n service-policy input IN");
    teach(&bed, 2);
    let frames = udp(mac(2), 1, 46, 4000);
    let (mut sent, mut seen) = (0_u64, std::collections::BTreeMap::new());
    let instance = bed.instance.clone();
    let done = std::sync::atomic::AtomicBool::new(false);
    let count = |seen: &mut std::collections::BTreeMap<u8, u64>| {
        while let Some(frame) = bed.host(2).next() {
            *seen.entry(frame.0[15] >> 2).or_default() += 1;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..10 {
                let mark = if n % 2 == 0 { "set dscp cs2" } else { "set dscp cs1" };
                let lines = [
                    &["configure terminal", "policy-map IN", "class VOICE", mark][..],
                    &["configure terminal", "class-map match-all VOICE", "match not vlan 77"],
                    &["configure terminal", "class-map match-all VOICE", "no match not vlan 77"],
                ];
                lines.into_iter().for_each(|lines| drop(cli(&instance, lines).expect("taken")));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            // Keep fewer frames under way than the rings hold.
            if sent < seen.values().sum::<u64>() + 100 {
                sent += u64::from(bed.host(1).try_send(&frames).is_ok());
            }
            count(&mut seen);
        }
    });
    wait_for("every frame", || {
        count(&mut seen);
        let missed = u64::from(bed.host(2).missed());
        (seen.values().sum::<u64>() + missed >= sent).then_some(())
    });
    let codes: Vec<u8> = seen.keys().copied().collect();
    assert_eq!(codes, [8, 16], "{seen:?} of {sent}: a frame was in no class");
}

/// Gives two hosts the router as their gateway, and checks the policies with pings from the first to the second that have a code
/// point.
fn routed(bed: &Bed) {
    bed.exact.set(false);
    for (n, own) in [(1, "10.0.1"), (2, "10.0.2")] {
        bed.host(n).address(&format!("{own}.1/24"));
        bed.host(n).net.ip(&format!("route add default via {own}.254"));
    }
    wait_for("the plane to know the way", || {
        bed.host(1).reaches("10.0.2.1");
        (bed.routed(1).0 > 0).then_some(())
    });
    bed.by_the_plane(1, 5, "pings with a code point", || {
        assert!(bed.host(1).ping("-c 8 -i 0.1 -Q 184 10.0.2.1"));
    });
    assert!(packets(bed, "p1", "input", "VOICE") >= 8);
    // The second host sees what the input policy has written, and so does the output policy.
    bed.configure("interface p2\n service-policy output SEEN");
    // A ping that is lost, as on a busy machine, is sent again.
    wait_for("three pings by the output policy", || {
        bed.host(1).ping("-c 3 -i 0.1 -Q 184 10.0.2.1");
        (packets(bed, "p2", "output", "MARKED") >= 3).then_some(())
    });
    bed.configure("interface p2\n no service-policy output SEEN\n service-policy output NONE");
    assert!(!bed.host(1).ping("-c 2 -W 1 10.0.2.1"), "the output policy drops all");
    assert!(packets(bed, "p2", "output", "class-default") >= 2);
}

const ROUTED: &str = "class-map match-all VOICE\n match dscp ef\nclass-map match-all MARKED\n match dscp af41\n\
    policy-map IN\n class VOICE\n  set dscp af41\npolicy-map SEEN\n class MARKED\n  set cos 1\n\
    policy-map NONE\n class class-default\n  police cir 8000 bc 1000 conform-action drop exceed-action drop\nip routing\n";

fn routed_packets_are_marked_and_policed(plane: Plane) {
    let vlans = "vlan 10,20\ninterface p1\n switchport access vlan 10\n service-policy input IN\n\
        interface p2\n switchport access vlan 20\n\
        interface vlan 10\n ip address 10.0.1.254/24\ninterface vlan 20\n ip address 10.0.2.254/24\n";
    routed(&Bed::new(plane, 2, &format!("{ROUTED}{vlans}")));
}

fn routed_ports_have_policies(plane: Plane) {
    let ports = "interface p1\n no switchport\n ip address 10.0.1.254/24\n service-policy input IN\n\
        interface p2\n no switchport\n ip address 10.0.2.254/24\n";
    routed(&Bed::new(plane, 2, &format!("{ROUTED}{ports}")));
}

/// Two switches with a static port-channel of two links: the policy of the port-channel covers both members.
fn port_channels_have_policies(plane: Plane) {
    let config = "vlan 10\ninterface range p2 - 3\n channel-group 1 mode on\ninterface port-channel 1\n switchport access vlan 10\n\
        interface p1\n switchport access vlan 10\n";
    let (left, right) = (Bed::new(plane, 3, &format!("{CLASSES}{config}")), Bed::new(plane, 3, config));
    join(&left, 2, &right, 2);
    join(&left, 3, &right, 3);
    left.configure(
        "policy-map OUT\n class VOICE\n  set dscp cs5\npolicy-map IN\n class VOICE\n  set dscp cs6\n\
         interface port-channel 1\n service-policy output OUT\n service-policy input IN",
    );
    let refused = left.try_configure("interface p2\n service-policy output OUT").expect_err("a member");
    assert!(refused.contains("port-channel 1"), "{refused}");
    left.exact.set(false);
    right.exact.set(false);
    // Repeat the packet: the members join again after the ports were connected.
    let crosses = |from: &Bed, to: &Bed, src: u16, dscp: u8| {
        wait_for("the packet", || {
            from.host(1).send(&udp(BROADCAST, src, 46, 4000));
            let mut arrived = std::iter::from_fn(|| to.host(1).next());
            arrived.any(|frame| frame.0[12..14] == [8, 0] && frame.0[15] >> 2 == dscp).then_some(())
        });
    };
    crosses(&left, &right, 1, 40);
    crosses(&right, &left, 7, 48);
    assert!(packets(&left, "port-channel1", "output", "VOICE") > 0);
    assert!(packets(&left, "port-channel1", "input", "VOICE") > 0);
}

/// The output of `tc` with these arguments, in the switch's namespace.
fn tc(bed: &Bed, arguments: &str) -> String {
    let arguments = arguments.split(' ');
    let output = bed.net.output(Command::new("tc").args(arguments));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const QUEUES: &str = "class-map match-all VOICE\n match dscp ef\nclass-map match-all BULK\n match dscp af11\n\
    policy-map CHILD\n class VOICE\n  priority percent 20\n class BULK\n  bandwidth percent 60\n  queue-limit 30 packets\n\
     class class-default\n  queue-limit 30 packets\n\
    policy-map PARENT\n class class-default\n  shape average 8m\n  service-policy CHILD\n";

/// Three flows that together are far more than the port's rate: the guarantees hold, and voice does not wait.
fn queues_share_a_congested_port(plane: Plane) {
    let bed = bed(plane, QUEUES);
    bed.configure("interface p2\n service-policy output PARENT");
    teach(&bed, 2);
    bed.exact.set(false);
    // 1,000 bytes: voice at 1 Mbit/s, bulk and others at 20 Mbit/s each, for two seconds.
    let long = |dscp: u8, src: u16| {
        let mut frame = udp(mac(2), src, dscp, 4000);
        frame.0[16..18].copy_from_slice(&986_u16.to_be_bytes());
        frame.0.resize(1000, 0);
        frame.0[24..26].fill(0);
        let sum: u32 =
            frame.0[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
        let check = !(((sum & 0xffff) + (sum >> 16)) as u16);
        frame.0[24..26].copy_from_slice(&check.to_be_bytes());
        frame
    };
    let began = Instant::now();
    let (mut n, mut voice) = (0_u64, 0_u64);
    while began.elapsed() < Duration::from_secs(2) {
        // Every 400 us a frame of bulk and of others; every 8 ms one of voice.
        for dscp in [10, 0] {
            let _ = bed.host(1).try_send(&long(dscp, 1));
        }
        if n % 20 == 0 && bed.host(1).try_send(&long(46, 1)).is_ok() {
            voice += 1;
        }
        n += 1;
        let next = Duration::from_micros(400 * n);
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    let of = |name: &str| class(&bed, "p2", "output", name);
    let queue =
        |name: &str, key: &str| of(name)["queue"][key].as_u64().unwrap_or_else(|| panic!("{}", of(name)));
    let (bulk, others) = (queue("BULK", "sent_bytes"), queue("class-default", "sent_bytes"));
    assert_eq!(queue("VOICE", "dropped_packets"), 0, "{}", of("VOICE"));
    assert!(queue("VOICE", "sent_packets") + 2 >= voice, "{} of {voice}", of("VOICE"));
    assert!(queue("BULK", "dropped_packets") > 0 && queue("class-default", "dropped_packets") > 0);
    // Bulk has 60 % and its share of the unused rate; the others have what is left. The bounds leave room for a busy machine.
    assert!(bulk > others * 3, "bulk {bulk} bytes, others {others}");
    let total = bulk + others + queue("VOICE", "sent_bytes");
    let most = 8_000_000 / 8 * (began.elapsed().as_millis() as u64 + 1_000) / 1_000;
    assert!(total <= most, "{total} bytes left at 8 Mbit/s, {most} at most");
}

fn queues_come_and_go(plane: Plane) {
    let bed = bed(plane, QUEUES);
    bed.configure("interface p2\n service-policy output PARENT");
    let root = || tc(&bed, "qdisc show dev p2 root");
    assert!(root().contains("htb 4c59:"), "{}", root());
    assert_eq!(
        tc(&bed, "class show dev p2").matches("class htb").count(),
        4,
        "{}",
        tc(&bed, "class show dev p2")
    );
    // A class that is removed from the policy is removed from the queueing discipline.
    bed.configure("policy-map CHILD\n no class BULK");
    assert_eq!(tc(&bed, "class show dev p2").matches("class htb").count(), 3);
    // When the daemon dies, the queues stay, and the next daemon takes them over.
    bed.exec(&["copy running-config startup-config"]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    assert!(root().contains("htb 4c59:"));
    bed.start();
    assert!(class(&bed, "p2", "output", "VOICE")["queue"]["rate_bps"].is_u64());
    bed.configure("interface p2\n no service-policy output PARENT");
    assert!(!root().contains("htb"), "{}", root());
    // Another program's discipline is left alone.
    bed.net.output(Command::new("tc").args("qdisc add dev p2 root handle 7: htb".split(' ')));
    let refused = bed.try_configure("interface p2\n service-policy output PARENT").expect_err("refused");
    assert!(refused.contains("htb") && refused.contains("tc qdisc del"), "{refused}");
    assert!(!bed.exec(&["show running-config interface p2"]).contains("service-policy"));
    assert!(root().contains("htb 7:"), "{}", root());
    bed.net.output(Command::new("tc").args("qdisc del dev p2 root".split(' ')));
    bed.configure("interface p2\n service-policy output PARENT");
    assert!(root().contains("htb 4c59:"));
    // A queueing discipline that another program removes is set again, and this is logged.
    bed.net.output(Command::new("tc").args("qdisc del dev p2 root".split(' ')));
    wait_for("the queues", || root().contains("htb 4c59:").then_some(()));
    assert!(bed.exec(&["show logging"]).contains("%QOS-4-QUEUES"));
    bed.detach().expect("detached");
    assert!(!root().contains("htb"), "{}", root());
}

fn a_plane_without_queues_refuses_them(plane: Plane) {
    let bed = bed(plane, QUEUES);
    let refused = bed.try_configure("interface p2\n service-policy output PARENT").expect_err("refused");
    assert!(refused.contains("does not use the queues"), "{refused}");
    assert!(!bed.exec(&["show running-config"]).contains("service-policy output"));
}
