//! `show platform packet-trace` predicts what happens to a frame: the test then sends the frame and compares.

use crate::harness::frame::{DOT1AD, DOT1Q, reserved};
use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios};
use serde_json::Value;

scenarios! {
    packet_trace_agrees_with_forwarding: ebpf soft;
    packet_trace_agrees_with_forwarding_at_xdp: ebpf;
}

const CONFIG: &str = "\
vlan 10,20,100
mac address-table static 0200.0000.0032 vlan 10 interface p2
mac address-table static 0200.0000.0033 vlan 10 drop
interface range p1 - 2
 switchport access vlan 10
 switchport protected
interface p3
 switchport access vlan 20
 no mac address-table learning
interface p4
 switchport mode trunk
 switchport trunk allowed vlan 1,10,20,30
interface p5
 switchport mode trunk
 switchport trunk native vlan 20
 switchport trunk allowed vlan 10,20,100
 dot1q tunneling ethertype 0x88a8
interface p6
 switchport access vlan 100
 switchport mode dot1q-tunnel
interface p7
 switchport access vlan 10
 switchport block unicast
 mac address-table limit 1
";

fn packet_trace_agrees_with_forwarding(plane: Plane) {
    compare(&Bed::new(plane, 7, CONFIG));
}

fn packet_trace_agrees_with_forwarding_at_xdp(plane: Plane) {
    compare(&Bed::new(plane, 7, &format!("{CONFIG}interface range p1 - 7\n hook xdp\n")));
}

fn compare(bed: &Bed) {
    let destinations = [
        BROADCAST,
        mac(1),
        mac(2),
        mac(4),
        mac(7),
        mac(0x32),
        mac(0x33),
        mac(99),
        reserved(0),
        reserved(2),
        reserved(1),
    ];
    let sources = |port: u16| [mac(port), mac(0x33), mac(1), [0; 6], BROADCAST];
    let tags: [fn(&Frame) -> Frame; 7] = [
        Frame::clone,
        |f| f.vlan(10),
        |f| f.tag(DOT1Q, 5, 0),
        |f| f.vlan(20),
        |f| f.vlan(30),
        |f| f.vlan(4095),
        |f| f.tag(DOT1AD, 2, 100).clone(),
    ];
    let (mut seed, mut verdicts) = (0x9e37_79b9_7f4a_7c15u64, std::collections::BTreeSet::new());
    let mut pick = |count: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % count
    };
    for _ in 0..250 {
        let port = 1 + pick(7);
        // Most sources are the port's own stations.
        let source = sources(port as u16)[pick(9).saturating_sub(4)];
        let sent = tags[pick(tags.len())](&frame(destinations[pick(destinations.len())], source));
        let trace = bed.ask(&format!("show platform packet-trace interface p{port} hex {}", sent.hex()));
        verdicts.insert(format!("{} {}", trace["verdict"], trace["reason"]));
        let wanted = egress(&trace);
        match trace["verdict"].as_str() {
            Some("dropped") => {
                assert_eq!(wanted, [], "{trace}");
                bed.expect_drop(port, &sent, trace["reason"].as_str().unwrap());
            }
            Some("forwarded") => bed.expect(port, &sent, &wanted),
            _ => panic!("{trace}"),
        }
    }
    assert!(verdicts.len() >= 12, "too few ways to end: {verdicts:?}");
}

/// The frames that a trace predicts, by host.
fn egress(trace: &Value) -> Vec<(usize, Frame)> {
    let frame = |copy: &Value| {
        let port = copy["interface"].as_str().unwrap().strip_prefix('p').unwrap().parse().unwrap();
        let hex = copy["hex"].as_str().unwrap().as_bytes();
        let bytes =
            hex.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        (port, Frame(bytes.collect()))
    };
    let mut list: Vec<(usize, Frame)> = trace["egress"].as_array().unwrap().iter().map(frame).collect();
    list.sort();
    list
}
