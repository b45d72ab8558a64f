//! VLAN interfaces: the switch as a host, and as the router between its VLANs.

use crate::harness::{BROADCAST, Bed, Plane, frame, mac, scenarios, wait_for};

scenarios! {
    the_switch_answers: ebpf soft;
    routing_between_vlans: ebpf soft;
    up_and_down: ebpf soft;
}

const CONFIG: &str = "\
vlan 10,20
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 20
interface p3
 switchport mode trunk
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
 ipv6 address fd00:10::254/64
interface vlan 20
 ip address 10.0.20.254/24
 ipv6 address fd00:20::254/64
";

fn with_hosts(plane: Plane) -> Bed {
    let bed = Bed::new(plane, 3, CONFIG);
    bed.chatter.set(true);
    for (host, vlan) in [(1, 10), (2, 20)] {
        bed.host(host).join_vlan(vlan);
    }
    bed
}

fn the_switch_answers(plane: Plane) {
    let bed = with_hosts(plane);
    bed.host(1).reaches("10.0.10.254");
    bed.host(1).reaches("fd00:10::254");
    bed.host(2).reaches("10.0.20.254");
    let printed = bed.exec(&["ping 10.0.10.1 repeat 2", "ping ipv6 fd00:20::1 repeat 2"]);
    assert!(printed.contains(" 0% packet loss"), "{printed}");
    let table = bed.show("show mac address-table self");
    assert_eq!(table["total"], 2, "{table}");
    let arp = bed.show("show arp");
    let known = |a: &str| {
        arp["neighbors"].as_array().unwrap().iter().any(|n| n["address"] == a && n["mac"].is_string())
    };
    assert!(known("10.0.10.1") && known("10.0.20.1"), "{arp}");
    // To a host in a VLAN without an interface, the router's address is unknown, so the frame is flooded.
    let own = table["entries"][0]["mac"].as_str().unwrap().to_owned();
    let own: Vec<u8> = own.split(':').map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
    let own: [u8; 6] = own.try_into().unwrap();
    bed.configure("vlan 30\ninterface p1\nswitchport access vlan 30");
    let f = frame(own, mac(7));
    bed.expect(1, &f, &[(3, f.vlan(30))]);
    // A frame for the router's address in its own VLAN goes to the router and is not flooded.
    let f = frame(own, mac(8));
    bed.expect(3, &f.vlan(10), &[]);
}

fn routing_between_vlans(plane: Plane) {
    let bed = with_hosts(plane);
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.20.1"), "routed without ip routing");
    bed.configure("ip routing\nipv6 unicast-routing");
    bed.host(1).reaches("10.0.20.1");
    bed.host(2).reaches("fd00:10::1");
    bed.host(1).tcp(bed.host(2), "10.0.20.1", 2 << 20);
    bed.host(2).tcp(bed.host(1), "fd00:10::1", 2 << 20);
    let routes = bed.show("show ip route");
    let connected = |prefix: &str| {
        let is = |route: &serde_json::Value| route["prefix"] == prefix && route["protocol"] == "connected";
        routes["routes"].as_array().unwrap().iter().any(is)
    };
    assert!(connected("10.0.10.0/24") && connected("10.0.20.0/24"), "{routes}");
    bed.configure("ip route 10.9.0.0 255.255.0.0 10.0.20.1");
    bed.host(2).net.ip("address add 10.9.0.1/32 dev lo");
    bed.host(1).reaches("10.9.0.1");
    bed.configure("no ip routing");
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.20.1"), "routed after no ip routing");
}

fn up_and_down(plane: Plane) {
    let bed = with_hosts(plane);
    let up = |vlan: u16| {
        bed.ask(&format!("show interfaces vlan {vlan}"))["interfaces"][0]["link_up"].as_bool().unwrap()
    };
    bed.host(1).reaches("10.0.10.254");
    bed.configure("interface vlan 10\nshutdown");
    assert!(!up(10) && up(20));
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.10.254"), "answers although shut down");
    bed.configure("interface vlan 10\nno shutdown");
    assert!(up(10));
    bed.host(1).reaches("10.0.10.254");
    bed.host(1).reaches("fd00:10::254");
    // Autostate: the interface goes down because no port of the VLAN is up.
    bed.configure("interface p3\nswitchport trunk allowed vlan remove 10");
    // Frames that the switch sends itself meanwhile may get lost.
    bed.exact.set(false);
    bed.host(1).net.ip("link set eth0 down");
    wait_for("the VLAN interface to follow its last port down", || (!up(10)).then_some(()));
    assert!(up(20));
    bed.host(1).net.ip("link set eth0 up");
    wait_for("the VLAN interface to come back", || up(10).then_some(()));
    bed.host(1).net.ip("route replace default via 10.0.10.254");
    bed.host(1).reaches("10.0.10.254");
    // The MTU of the interface is that of the netdev.
    bed.configure("interface vlan 10\nmtu 1280\nmac-address 0200.0000.beef");
    let link = bed.netdev.link("vlan10").unwrap();
    assert_eq!((link.mtu, link.mac.to_string().as_str()), (1280, "0200.0000.beef"));
    assert_eq!(bed.entry([2, 0, 0, 0, 0xbe, 0xef], 10), Some(("vlan10".into(), "self".into())));
    bed.host(1).net.ip("neighbor flush all");
    bed.host(1).reaches("10.0.10.254");
    assert!(!bed.host(1).ping("-c 1 -W 1 -s 1300 -M do 10.0.10.254"), "answers what is longer than its MTU");
    bed.configure("no interface vlan 10");
    assert_eq!(bed.entry([2, 0, 0, 0, 0xbe, 0xef], 10), None);
    let links = bed.net.links();
    assert!(!links.iter().any(|name| name == "vlan10" || name == "ly10"), "{links:?}");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[]);
}
