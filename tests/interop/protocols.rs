//! OSPF and BGP with FRR: between two switches over VLAN interfaces, and towards a plain Linux router.

use crate::frr::{Beds, Frr, PATIENCE, missing};
use crate::harness::{Bed, Plane, scenarios, wait_until};

scenarios! {
    two_switches_and_a_router: ebpf soft;
}

/// Host 1 is in VLAN 10; VLAN 20 leads to the other switch.
const FIRST: &str = "\
vlan 10,20
ip routing
interface p1
 switchport access vlan 10
interface uplink
 switchport mode trunk
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
interface vlan 20
 ip address 10.0.20.1 255.255.255.252
";

/// VLAN 20 leads to the other switch; host 1 is a router behind a routed port, host 2 is in VLAN 30.
const SECOND: &str = "\
vlan 20,30
ip routing
interface uplink
 switchport mode trunk
interface p1
 no switchport
 ip address 10.0.40.1 255.255.255.252
interface p2
 switchport access vlan 30
interface vlan 20
 ip address 10.0.20.2 255.255.255.252
interface vlan 30
 ip address 10.0.30.254 255.255.255.0
";

const OSPF_FIRST: &str = "\
interface vlan20
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
router ospf
 ospf router-id 10.0.0.1
 timers throttle spf 10 100 1000
 passive-interface vlan10
 network 10.0.10.0/24 area 0
 network 10.0.20.0/30 area 0
";

const OSPF_AND_BGP_SECOND: &str = "\
interface vlan20
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
router ospf
 ospf router-id 10.0.0.2
 timers throttle spf 10 100 1000
 redistribute bgp
 passive-interface vlan30
 network 10.0.20.0/30 area 0
 network 10.0.30.0/24 area 0
router bgp 65001
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 neighbor 10.0.40.2 remote-as 65002
 neighbor 10.0.40.2 timers 3 9
 neighbor 10.0.40.2 timers connect 1
 address-family ipv4 unicast
  network 10.0.30.0/24
  redistribute ospf
";

const BGP_ROUTER: &str = "\
router bgp 65002
 bgp router-id 10.0.0.3
 no bgp ebgp-requires-policy
 neighbor 10.0.40.1 remote-as 65001
 neighbor 10.0.40.1 timers 3 9
 neighbor 10.0.40.1 timers connect 1
 address-family ipv4 unicast
  network 10.99.0.0/24
";

fn routes_to(bed: &Bed, prefix: &str, protocol: &str) -> Option<()> {
    let view = bed.ask("show ip route");
    let is = |route: &serde_json::Value| route["prefix"] == prefix && route["protocol"] == protocol;
    view["routes"].as_array()?.iter().any(is).then_some(())
}

fn await_route(bed: &Bed, prefix: &str, protocol: &str) {
    let there = wait_until(PATIENCE, || routes_to(bed, prefix, protocol));
    assert!(there.is_some(), "no {protocol} route to {prefix}: {}", bed.exec(&["show ip route"]));
}

fn two_switches_and_a_router(plane: Plane) {
    if let Some(reason) = missing() {
        return println!("skipped: {reason}");
    }
    let beds = Beds(vec![Bed::without_switch(plane, 1, 1500), Bed::without_switch(plane, 2, 1500)]);
    let (first, second) = (&beds[0], &beds[1]);
    first.net.ip(&format!("link add name uplink type veth peer name uplink netns {}", second.net.path()));
    for (bed, config) in [(first, FIRST), (second, SECOND)] {
        // Do not check counters: FRR sends frames that the bed does not know.
        bed.exact.set(false);
        bed.chatter.set(true);
        std::fs::write(bed.config_file(), config).unwrap();
        bed.start();
    }
    let (host, router, other) = (first.host(1), second.host(1), second.host(2));
    host.address("10.0.10.1/24");
    host.net.ip("route add default via 10.0.10.254");
    other.address("10.0.30.1/24");
    other.net.ip("route add default via 10.0.30.254");
    router.address("10.0.40.2/30");
    router.net.ip("address add 10.99.0.1/24 dev lo");

    let _first = Frr::start(&first.net, &["ospfd"], OSPF_FIRST);
    let _second = Frr::start(&second.net, &["ospfd", "bgpd"], OSPF_AND_BGP_SECOND);
    let _router = Frr::start(&router.net, &["bgpd"], BGP_ROUTER);
    await_route(first, "10.0.30.0/24", "ospf");
    host.reaches("10.0.30.1");
    await_route(second, "10.99.0.0/24", "bgp");
    await_route(first, "10.99.0.0/24", "ospf");
    let back = wait_until(PATIENCE, || host.ping("-c 1 -W 1 10.99.0.1").then_some(()));
    assert!(back.is_some(), "the router behind BGP does not answer: {}", second.exec(&["show ip route"]));
    host.tcp(other, "10.0.30.1", 1 << 20);

    // The link between the switches goes down, and its routes are removed; when it comes up, they are back.
    first.configure("interface uplink\nshutdown");
    let gone = wait_until(PATIENCE, || routes_to(first, "10.0.30.0/24", "ospf").is_none().then_some(()));
    assert!(gone.is_some(), "{}", first.exec(&["show ip route"]));
    first.configure("interface uplink\nno shutdown");
    await_route(first, "10.99.0.0/24", "ospf");
    let back = wait_until(PATIENCE, || host.ping("-c 1 -W 1 10.99.0.1").then_some(()));
    assert!(back.is_some(), "{}", first.exec(&["show ip route"]));
}
