//! The configuration of layer 3: VRFs, routed ports, static routes that float and depend on tracked objects, proxy ARP
//! and static ARP entries.

use crate::harness::daemon::cli;
use crate::harness::{Bed, Plane, scenarios, wait_for};
use lanyard_netdev::netns;
use std::path::Path;

scenarios! {
    vrfs_isolate: ebpf soft;
    vrfs_come_and_go: ebpf;
    a_routed_port_in_a_vrf: ebpf soft;
    addresses_in_order: ebpf soft;
    routed_ports: ebpf soft;
    floating_and_tracked_routes: ebpf soft;
    permanent_and_discard: ebpf soft;
    proxy_arp: ebpf soft;
    local_proxy_arp: ebpf soft;
    static_arp: ebpf soft;
    redirects_and_broadcasts: ebpf soft;
}

/// A VRF name that no other bed uses: named namespaces are visible on the whole machine.
fn name(bed: &Bed, word: &str) -> String {
    format!("{}-{word}", bed.instance)
}

fn exists(vrf: &str) -> bool {
    Path::new("/run/netns").join(vrf).exists()
}

/// Hosts 1 and 2 are in VRF a, VLANs 10 and 20; hosts 3 and 4 in VRF b, with the same addresses, VLANs 30 and 40.
fn two_vrfs(plane: Plane) -> (Bed, String, String) {
    let bed = Bed::new(plane, 4, "vlan 10,20,30,40\nip routing\nipv6 unicast-routing\n");
    bed.chatter.set(true);
    let (a, b) = (name(&bed, "a"), name(&bed, "b"));
    bed.configure(&format!("vrf definition {a}\nvrf definition {b}"));
    for (port, vlan, vrf, net) in [(1, 10, &a, 1), (2, 20, &a, 2), (3, 30, &b, 1), (4, 40, &b, 2)] {
        bed.configure(&format!(
            "interface p{port}\nswitchport access vlan {vlan}\ninterface vlan {vlan}\nvrf forwarding {vrf}\n\
             ip address 10.0.{net}.254 255.255.255.0\nipv6 address fd00:{net}::254/64"
        ));
        let host = bed.host(port);
        host.address(&format!("10.0.{net}.1/24"));
        host.address(&format!("fd00:{net}::1/64"));
        host.net
            .ip(&format!("route add default via 10.0.{net}.254\nroute replace default via fd00:{net}::254"));
    }
    (bed, a, b)
}

fn vrfs_isolate(plane: Plane) {
    let (bed, a, b) = two_vrfs(plane);
    for (from, to) in [(1, 2), (2, 1), (3, 4), (4, 3)] {
        let net = if to % 2 == 0 { 2 } else { 1 };
        bed.host(from).reaches(&format!("10.0.{net}.1"));
        bed.host(from).reaches(&format!("fd00:{net}::1"));
    }
    for (from, to) in [(1, 2), (3, 4)] {
        for address in ["10.0.2.1", "fd00:2::1"] {
            bed.by_the_plane(from, 50, address, || bed.host(from).tcp(bed.host(to), address, 4 << 20));
        }
    }
    // An address to which only one of the VRFs has a route.
    bed.host(2).net.ip("address add 10.9.0.1/32 dev lo");
    bed.configure(&format!("ip route vrf {a} 10.9.0.0 255.255.0.0 10.0.2.1"));
    bed.host(1).reaches("10.9.0.1");
    assert!(!bed.host(3).ping("-c 1 -W 1 10.9.0.1"), "VRF b reaches what only VRF a has");
    let prefixes = |vrf: &str| -> Vec<String> {
        let view = bed.show(&format!("show ip route vrf {vrf} static"));
        view["routes"].as_array().unwrap().iter().map(|r| r["prefix"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((prefixes(&a), prefixes(&b)), (vec!["10.9.0.0/16".to_owned()], vec![]));
    let arp = bed.show(&format!("show ip arp vrf {a}"));
    assert!(arp["neighbors"].as_array().unwrap().iter().any(|n| n["interface"] == "vlan10"), "{arp}");
    let own = bed.show("show ip route");
    assert!(own["routes"].as_array().unwrap().iter().all(|r| r["prefix"] != "10.0.1.0/24"), "{own}");
    let printed = bed.exec(&[&format!("ping vrf {a} 10.9.0.1 repeat 2")]);
    assert!(printed.contains(" 0% packet loss"), "{printed}");
    let view = bed.show("show vrf");
    assert!(view["vrfs"].as_array().unwrap().iter().all(|vrf| vrf["present"] == true), "{view}");
    let brief = bed.exec(&["show ip interface brief"]);
    assert_eq!(brief.matches("manual").count(), 4, "{brief}");
}

/// A routed port of a VRF is in another namespace, where the plane cannot send: the kernel routes to it.
fn a_routed_port_in_a_vrf(plane: Plane) {
    let bed = Bed::new(plane, 2, "vlan 10\nip routing\n");
    bed.chatter.set(true);
    bed.exact.set(false);
    let red = name(&bed, "red");
    bed.configure(&format!(
        "vrf definition {red}\ninterface p1\nswitchport access vlan 10\ninterface vlan 10\nvrf forwarding {red}\n\
         ip address 10.0.1.254 255.255.255.0\ninterface p2\nno switchport\nvrf forwarding {red}\n\
         ip address 10.0.2.254 255.255.255.0"
    ));
    for n in [1, 2] {
        bed.host(n).address(&format!("10.0.{n}.1/24"));
        bed.host(n).net.ip(&format!("route add default via 10.0.{n}.254"));
    }
    bed.host(1).reaches("10.0.2.1");
    // The neighbours are resolved now; packets for them were once dropped by the plane.
    assert!(bed.host(1).ping("-c 3 -i 0.2 10.0.2.1"));
    assert!(bed.host(2).ping("-c 3 -i 0.2 10.0.1.1"));
}

/// The kernel's addresses are those of the configuration, and the first one is the primary, after each change.
fn addresses_in_order(plane: Plane) {
    let bed = Bed::new(plane, 1, "vlan 20\ninterface p1\nswitchport access vlan 20\n");
    bed.chatter.set(true);
    for (lines, want) in [
        (
            "ip address 10.0.20.1 255.255.255.0\nip address 10.0.20.2 255.255.255.0 secondary\n\
             ip address 10.0.21.1 255.255.255.0 secondary\nip address 10.0.21.2 255.255.255.0 secondary",
            ["10.0.20.1/24", "10.0.20.2/24", "10.0.21.1/24", "10.0.21.2/24"].as_slice(),
        ),
        (
            "ip address 10.0.20.3 255.255.255.0",
            &["10.0.20.3/24", "10.0.20.2/24", "10.0.21.1/24", "10.0.21.2/24"],
        ),
        (
            "no ip address 10.0.21.1 255.255.255.0 secondary",
            &["10.0.20.3/24", "10.0.20.2/24", "10.0.21.2/24"],
        ),
        ("ip address 10.0.22.1 255.255.255.0", &["10.0.22.1/24", "10.0.20.2/24", "10.0.21.2/24"]),
    ] {
        bed.configure(&format!("interface vlan 20\n{lines}"));
        let mut show = std::process::Command::new("ip");
        let output = bed.net.output(show.args(["-4", "-br", "address", "show", "dev", "vlan20"]));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let held: Vec<&str> = text.split_whitespace().filter(|word| word.contains('/')).collect();
        assert_eq!(held.first(), want.first(), "{lines}: {text}");
        let (mut all, mut wanted) = (held.clone(), want.to_vec());
        all.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(all, wanted, "{lines}");
    }
}

fn vrfs_come_and_go(plane: Plane) {
    let (bed, a, b) = two_vrfs(plane);
    assert!(exists(&a) && exists(&b));
    bed.host(1).reaches("10.0.2.1");
    // As in IOS, an interface that moves to another VRF loses its addresses.
    let printed = bed.try_configure(&format!("interface vlan 20\nvrf forwarding {b}")).unwrap();
    assert!(printed.contains("% Interface Vlan20 IP addresses removed due to enabling VRF"), "{printed}");
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.2.1"));
    let refused = bed.try_configure("interface vlan 20\nip address 10.0.2.254/24").unwrap_err();
    assert!(refused.contains("overlaps with Vlan40"), "{refused}");
    bed.configure(&format!("interface vlan 20\nvrf forwarding {a}\nip address 10.0.2.254/24"));
    bed.host(1).reaches("10.0.2.1");
    // After a restart the VRFs and their interfaces are as before.
    bed.exec(&["write memory"]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.start();
    bed.chatter.set(true);
    bed.host(1).reaches("10.0.2.1");
    bed.host(3).reaches("10.0.2.1");
    // A namespace that Lanyard did not make is used, and not deleted.
    let foreign = name(&bed, "f");
    netns::create(&foreign).unwrap();
    let printed = bed.try_configure(&format!("vrf definition {foreign}")).unwrap();
    assert!(printed.contains("existed already"), "{printed}");
    bed.configure(&format!("no vrf definition {foreign}"));
    let stayed = exists(&foreign);
    netns::delete(&foreign).unwrap();
    assert!(stayed, "a namespace that was there before is deleted");
    // A refused command leaves the netdevs in their namespaces.
    let refused = bed.try_configure("interface vlan 20\nvrf forwarding nothing").unwrap_err();
    assert!(refused.contains("VRF nothing is not configured"), "{refused}");
    bed.configure(&format!("no vrf definition {a}"));
    assert!(!exists(&a) && exists(&b));
    assert!(bed.net.links().contains(&"vlan10".to_owned()), "it is back in the switch's own namespace");
    bed.configure("interface vlan 10\nip address 10.0.1.254/24");
    bed.host(1).reaches("10.0.1.254");
    bed.detach().unwrap();
    assert!(!exists(&b), "detach leaves a namespace");
}

/// Host 1 is behind a routed port, host 2 in VLAN 20, host 3 behind another routed port; host 3 is also a plain Linux
/// router.
fn routed_ports(plane: Plane) {
    let bed = Bed::new(
        plane,
        3,
        "\
ip routing
ipv6 unicast-routing
vlan 20
interface p1
 no switchport
 ip address 10.0.1.254 255.255.255.0
 ip address 10.1.1.254 255.255.255.0 secondary
 ipv6 address fd00:1::254/64
interface p2
 switchport access vlan 20
interface vlan 20
 ip address 10.0.2.254 255.255.255.0
 ipv6 address fd00:2::254/64
interface p3
 no switchport
 ip address 10.0.3.254 255.255.255.0
ip route 10.9.0.0 255.255.0.0 10.0.3.1
",
    );
    bed.chatter.set(true);
    bed.exact.set(false);
    for n in 1..=3 {
        bed.host(n).address(&format!("10.0.{n}.1/24"));
        bed.host(n).net.ip(&format!("route add default via 10.0.{n}.254"));
    }
    for n in 1..=2 {
        bed.host(n).address(&format!("fd00:{n}::1/64"));
        bed.host(n).net.ip(&format!("route replace default via fd00:{n}::254"));
    }
    bed.host(1).reaches("10.0.2.1");
    bed.host(1).reaches("fd00:2::1");
    bed.host(2).reaches("10.0.3.1");
    bed.host(1).tcp(bed.host(2), "10.0.2.1", 1 << 20);
    bed.host(1).net.ip("address add 10.1.1.1/24 dev eth0");
    bed.host(1).reaches("10.1.1.254");
    // Host 3 routes to a network behind it.
    bed.host(3).net.ip("address add 10.9.0.1/32 dev lo");
    bed.host(2).reaches("10.9.0.1");
    let view = bed.show("show interfaces p1");
    assert_eq!(view["interfaces"][0]["kind"], "routed");
    // The routed port becomes a switch port: its addresses are removed, and it bridges.
    bed.configure("interface p1\nswitchport\nswitchport access vlan 20");
    bed.host(1).net.ip("address add 10.0.2.7/24 dev eth0");
    bed.host(1).reaches("10.0.2.1");
    let addresses = bed.netdev.addresses(Some(bed.net.index("p1"))).unwrap();
    assert!(
        addresses.iter().all(|a| a.net.addr().is_ipv6() && a.net.addr().to_string().starts_with("fe80")),
        "{addresses:?}"
    );
}

/// 10.9.0.1 can be reached through host 2 and through host 3.
fn two_ways(plane: Plane) -> Bed {
    let bed = Bed::new(plane, 3, "ip routing\nvlan 10,20,30\n");
    bed.chatter.set(true);
    bed.exact.set(false);
    for (n, vlan) in [(1, 10), (2, 20), (3, 30)] {
        bed.configure(&format!(
            "interface p{n}\nswitchport access vlan {vlan}\ninterface vlan {vlan}\n\
             ip address 10.0.{vlan}.254 255.255.255.0"
        ));
        bed.host(n).address(&format!("10.0.{vlan}.1/24"));
        bed.host(n).net.ip(&format!("route add default via 10.0.{vlan}.254"));
    }
    for n in [2, 3] {
        bed.host(n).net.ip("address add 10.9.0.1/32 dev lo");
    }
    bed
}

/// The next hop that the kernel selects for 10.9.0.1.
fn way(bed: &Bed) -> Option<String> {
    let output = bed.net.output(std::process::Command::new("ip").args(["route", "get", "10.9.0.1"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "via");
    words.nth(1).map(str::to_owned)
}

fn floating_and_tracked_routes(plane: Plane) {
    let bed = two_ways(plane);
    bed.configure("ip route 10.9.0.0 255.255.0.0 10.0.20.1\nip route 10.9.0.0 255.255.0.0 10.0.30.1 200");
    bed.host(1).reaches("10.9.0.1");
    assert_eq!(way(&bed).as_deref(), Some("10.0.20.1"));
    let table = bed.exec(&["show ip route static"]);
    assert!(table.contains("[1/0] via 10.0.20.1") && table.contains("[200/0] via 10.0.30.1"), "{table}");
    // When the link goes down, the floating route takes over; when it comes up, the better route is back.
    bed.host(2).net.ip("link set eth0 down");
    wait_for("the floating route", || (way(&bed).as_deref() == Some("10.0.30.1")).then_some(()));
    bed.host(1).reaches("10.9.0.1");
    bed.host(2).net.ip("link set eth0 up\nroute replace default via 10.0.20.254");
    wait_for("the better route", || (way(&bed).as_deref() == Some("10.0.20.1")).then_some(()));
    // The route through host 2 depends on a tracked object: when host 3's link goes down, the route is
    // removed.
    bed.configure(
        "track 1 interface p3 line-protocol\ntrack 2 ip route 10.8.0.0 255.255.0.0 reachability\n\
         ip route 10.9.0.0 255.255.0.0 10.0.20.1 track 1",
    );
    assert_eq!(way(&bed).as_deref(), Some("10.0.20.1"));
    let up = |number: usize| bed.ask("show track")["tracks"][number - 1]["up"].as_bool().unwrap();
    assert!(up(1) && !up(2));
    bed.host(3).net.ip("link set eth0 down");
    wait_for("the object to go down", || (!up(1)).then_some(()));
    wait_for("neither way to be left", || way(&bed).is_none().then_some(()));
    bed.host(3).net.ip("link set eth0 up");
    wait_for("the object to come up", || up(1).then_some(()));
    wait_for("the way back", || (way(&bed).as_deref() == Some("10.0.20.1")).then_some(()));
    // Any route can be a tracked object, whatever program has added it.
    bed.configure("ip route 10.9.0.0 255.255.0.0 10.0.20.1 track 2");
    wait_for("the floating route again", || (way(&bed).as_deref() == Some("10.0.30.1")).then_some(()));
    bed.net.ip("route add 10.8.0.0/16 via 10.0.10.1");
    wait_for("the route to be seen", || up(2).then_some(()));
    wait_for("the tracked route", || (way(&bed).as_deref() == Some("10.0.20.1")).then_some(()));
    bed.net.ip("route del 10.8.0.0/16");
    wait_for("the route to be missed", || (!up(2)).then_some(()));
    wait_for("the tracked route to go", || (way(&bed).as_deref() == Some("10.0.30.1")).then_some(()));
    let log = bed.exec(&["show logging"]);
    assert!(log.contains("%TRACK-6-STATE: 1 interface p3 line-protocol Up -> Down"), "{log}");
}

fn permanent_and_discard(plane: Plane) {
    let bed = two_ways(plane);
    bed.configure(
        "ip route 10.9.0.0 255.255.0.0 10.0.20.1 permanent\nip route 10.9.0.0 255.255.0.0 10.0.30.1 200\n\
         ip route 10.8.0.0 255.255.0.0 Null0",
    );
    bed.host(1).reaches("10.9.0.1");
    let unreachable = |address: &str| {
        let mut command = std::process::Command::new("ip");
        let output = bed.net.output(command.args(["route", "get", address]));
        String::from_utf8_lossy(&output.stderr).contains("Invalid argument") || !output.status.success()
    };
    assert!(unreachable("10.8.0.1"), "Null0 leads somewhere");
    bed.host(2).net.ip("link set eth0 down");
    wait_for("the permanent route to lead nowhere", || unreachable("10.9.0.1").then_some(()));
    bed.host(2).net.ip("link set eth0 up\nroute replace default via 10.0.20.254");
    wait_for("the permanent route", || (way(&bed).as_deref() == Some("10.0.20.1")).then_some(()));
    bed.configure("no ip route 10.8.0.0 255.255.0.0 Null0");
    let table = bed.show("show ip route static");
    assert_eq!(table["total"], 2, "{table}");
}

/// Proxy ARP for a host that treats every address as its neighbour.
fn proxy_arp(plane: Plane) {
    let bed = two_ways(plane);
    bed.host(1).net.ip("route del default\nroute add 10.0.0.0/16 dev eth0");
    bed.host(1).reaches("10.0.20.1");
    bed.configure("interface vlan 10\nno ip proxy-arp");
    bed.host(1).net.ip("neighbor flush all");
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.20.1"), "answers for others although configured not to");
    bed.configure("interface vlan 10\nip proxy-arp");
    bed.host(1).reaches("10.0.20.1");
    let sysctl = |key: &str| bed.net.run(|| lanyard_netdev::sysctl::ipv4_conf("vlan10", key).unwrap());
    assert_eq!((sysctl("proxy_arp").as_str(), sysctl("proxy_arp_pvlan").as_str()), ("1", "0"));
    bed.configure("interface vlan 10\nip local-proxy-arp");
    assert_eq!(sysctl("proxy_arp_pvlan"), "1");
    bed.configure("no ip routing");
    assert_eq!(sysctl("proxy_arp"), "0", "a switch that does not route answers no ARP by proxy");
}

/// Local proxy ARP: hosts of one subnet on protected ports reach each other through the router, if it answers
/// for them.
fn local_proxy_arp(plane: Plane) {
    let bed = Bed::new(
        plane,
        2,
        "ip routing\nvlan 10\ninterface range p1 - 2\n switchport access vlan 10\n switchport protected\n\
         interface vlan 10\n ip address 10.0.10.254 255.255.255.0\n",
    );
    bed.chatter.set(true);
    bed.exact.set(false);
    for n in 1..=2 {
        bed.host(n).address(&format!("10.0.10.{n}/24"));
        bed.host(n).reaches("10.0.10.254");
    }
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.10.2"), "protected ports talk");
    bed.configure("interface vlan 10\nip local-proxy-arp");
    bed.host(1).net.ip("neighbor flush all");
    bed.host(1).reaches("10.0.10.2");
    bed.by_the_plane(1, 20, "to the neighbour", || assert!(bed.host(1).ping("-c 20 10.0.10.2")));
    bed.by_the_plane(1, 20, "to the neighbour", || bed.host(1).tcp(bed.host(2), "10.0.10.2", 1 << 20));
    // The switch sends no ICMP redirect that would tell the hosts to bypass the router.
    let sysctl = |at: &str| bed.net.run(|| lanyard_netdev::sysctl::ipv4_conf(at, "send_redirects").unwrap());
    assert_eq!((sysctl("all").as_str(), sysctl("vlan10").as_str()), ("0", "0"));
    bed.configure("interface vlan 10\nno ip local-proxy-arp");
    assert_eq!((sysctl("all").as_str(), sysctl("vlan10").as_str()), ("1", "1"));
    bed.host(1).net.ip("neighbor flush all");
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.10.2"), "protected ports talk");
}

fn static_arp(plane: Plane) {
    let bed = two_ways(plane);
    let state = |address: &str| {
        let view = bed.ask("show arp");
        let found = view["neighbors"].as_array().unwrap().iter().find(|n| n["address"] == address).cloned();
        found.map(|n| format!("{} {}", n["mac"].as_str().unwrap_or("-"), n["state"].as_str().unwrap()))
    };
    bed.configure("arp 10.0.20.77 0200.0000.0077 arpa");
    let wanted = Some("02:00:00:00:00:77 permanent".to_owned());
    wait_for("the entry", || (state("10.0.20.77") == wanted).then_some(()));
    // The kernel removes the entry when the interface goes down.
    bed.configure("interface vlan 20\nshutdown");
    bed.configure("interface vlan 20\nno shutdown");
    wait_for("the entry to come back", || (state("10.0.20.77") == wanted).then_some(()));
    bed.host(1).reaches("10.0.20.1");
    assert!(state("10.0.20.1").is_some());
    bed.exec(&["clear arp-cache"]);
    assert_eq!(state("10.0.20.77"), wanted, "configured entries are not cleared");
    bed.configure("no arp 10.0.20.77");
    wait_for("the entry to go", || (state("10.0.20.77") != wanted).then_some(()));
}

fn redirects_and_broadcasts(plane: Plane) {
    let bed = two_ways(plane);
    let sysctl =
        |device: &str, key: &str| bed.net.run(|| lanyard_netdev::sysctl::ipv4_conf(device, key).unwrap());
    let redirects = || (sysctl("all", "send_redirects"), sysctl("vlan10", "send_redirects"));
    assert_eq!(redirects(), ("1".into(), "1".into()));
    bed.configure("interface vlan 10\nno ip redirects");
    assert_eq!(redirects(), ("0".into(), "0".into()));
    bed.configure("interface vlan 10\nip redirects");
    assert_eq!(redirects(), ("1".into(), "1".into()));
    // A directed broadcast reaches the subnet only where it is configured.
    let received = || bed.host(1).ping("-c 1 -W 1 -b 10.0.20.255");
    bed.host(2).net.run(|| {
        lanyard_netdev::sysctl::set(&["ipv4", "icmp_echo_ignore_broadcasts"], "0").unwrap();
    });
    assert!(!received());
    bed.configure("interface vlan 10\nip directed-broadcast\ninterface vlan 20\nip directed-broadcast");
    wait_for("an answer to a directed broadcast", || received().then_some(()));
    bed.configure("interface vlan 10\nno ip directed-broadcast\ninterface vlan 20\nno ip directed-broadcast");
    assert_eq!(sysctl("all", "bc_forwarding"), "0");
    assert!(!received());
    let refused = cli(&bed.instance, &["configure terminal", "interface vlan 10", "no ip unreachables"]);
    assert!(refused.unwrap_err().contains("not available"));
}
