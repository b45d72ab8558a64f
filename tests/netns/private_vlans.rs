//! Private VLANs: which ports reach each other, on one switch and across a trunk to a second one; addresses are known in both
//! directions.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use std::net::{Ipv4Addr, UdpSocket};

scenarios! {
    every_pair_of_ports: ebpf soft;
    across_a_trunk_to_a_second_switch: ebpf soft;
    the_vlan_interface_is_promiscuous: ebpf soft;
    groups_are_those_of_the_primary_vlan: ebpf soft;
    settings_take_effect_and_go: ebpf soft;
    on_xdp: ebpf;
    a_restart_keeps_the_isolation: ebpf;
}

/// Primary 100 with isolated 101 and the communities 102 and 103.
const VLANS: &str = "vlan 101\n private-vlan isolated\nvlan 102,103\n private-vlan community\nvlan 100\n private-vlan primary\n \
                     private-vlan association 101-103\n";

/// p1: promiscuous. p2, p3: isolated. p4, p5: of community 102. p6: of community 103. p7: promiscuous for 102 only. p8: a trunk.
const PORTS: &str = "\
interface p1
 switchport mode private-vlan promiscuous
 switchport private-vlan mapping 100 101-103
interface range p2 - 3
 switchport mode private-vlan host
 switchport private-vlan host-association 100 101
interface range p4 - 5
 switchport mode private-vlan host
 switchport private-vlan host-association 100 102
interface p6
 switchport mode private-vlan host
 switchport private-vlan host-association 100 103
interface p7
 switchport mode private-vlan promiscuous
 switchport private-vlan mapping 100 102
interface p8
 switchport mode trunk
 switchport trunk allowed vlan 100-103
";
const TRUNK: usize = 8;

/// The VLAN of the frames that a port receives, and the ports that get its broadcasts.
fn hears(from: usize) -> (u16, &'static [usize]) {
    match from {
        1 => (100, &[2, 3, 4, 5, 6, 7, 8]),
        2 | 3 => (101, &[1, 8]),
        4 => (102, &[1, 5, 7, 8]),
        5 => (102, &[1, 4, 7, 8]),
        6 => (103, &[1, 8]),
        _ => (100, &[1, 2, 3, 4, 5, 6, 8]),
    }
}

/// The forms in which `sent`, untagged, arrives at `ports`: tagged at the trunk alone.
fn at(sent: &Frame, vlan: u16, ports: &[usize]) -> Vec<(usize, Frame)> {
    ports.iter().map(|port| (*port, if *port == TRUNK { sent.vlan(vlan) } else { sent.clone() })).collect()
}

/// Every host sends a broadcast, and then a frame to each of the others: each arrives where private VLANs allow it, and nowhere
/// else.
fn whole_matrix(bed: &Bed) {
    for from in 1..TRUNK {
        let (vlan, ports) = hears(from);
        let sent = frame(BROADCAST, mac(from as u16));
        bed.expect(from, &sent, &at(&sent, vlan, ports));
        bed.learned(mac(from as u16), 100, Some(&format!("p{from}")));
    }
    for (vlan, ports) in
        [(101, &[1][..]), (102, &[1, 4, 5, 7]), (103, &[1, 6]), (100, &[1, 2, 3, 4, 5, 6, 7])]
    {
        let sent = frame(BROADCAST, mac(TRUNK as u16));
        let wanted: Vec<_> = ports.iter().map(|port| (*port, sent.clone())).collect();
        bed.expect(TRUNK, &sent.vlan(vlan), &wanted);
        for to in 1..TRUNK {
            let sent = frame(mac(to as u16), mac(TRUNK as u16));
            if ports.contains(&to) {
                bed.expect(TRUNK, &sent.vlan(vlan), &[(to, sent)]);
            } else {
                bed.expect_drop(TRUNK, &sent.vlan(vlan), "private_vlan");
            }
        }
    }
    for (from, to) in
        (1..TRUNK).flat_map(|from| (1..=TRUNK).map(move |to| (from, to))).filter(|(a, b)| a != b)
    {
        let (vlan, ports) = hears(from);
        let sent = frame(mac(to as u16), mac(from as u16));
        if ports.contains(&to) {
            bed.expect(from, &sent, &at(&sent, vlan, &[to]));
        } else {
            bed.expect_drop(from, &sent, "private_vlan");
        }
    }
}

fn every_pair_of_ports(plane: Plane) {
    let bed = Bed::new(plane, 8, &format!("{VLANS}{PORTS}"));
    whole_matrix(&bed);
    // No tag leads a host into another VLAN.
    for (from, own) in [(1, 100), (2, 101), (4, 102)] {
        for vlan in 100..=103 {
            let sent = frame(BROADCAST, mac(from as u16));
            if vlan == own {
                bed.expect(from, &sent.vlan(vlan), &at(&sent, vlan, hears(from).1));
            } else {
                bed.expect_drop(from, &sent.vlan(vlan), "tagged_on_access");
            }
        }
    }
    // An unknown address is flooded to the ports that the port reaches.
    let unknown = frame(mac(99), mac(4));
    bed.expect(4, &unknown, &at(&unknown, 102, hears(4).1));
    let shown = bed.show("show vlan private-vlan");
    let want = serde_json::json!([
        {"primary": 100, "secondary": 101, "type": "isolated", "ports": ["p1", "p2", "p3"]},
        {"primary": 100, "secondary": 102, "type": "community", "ports": ["p1", "p4", "p5", "p7"]},
        {"primary": 100, "secondary": 103, "type": "community", "ports": ["p1", "p6"]},
    ]);
    assert_eq!(shown["private_vlans"], want);
}

/// Sends `sent` from a host of `a`, and returns what arrives at the hosts of `b` once its trunk has received `frames` frames.
fn over(a: &Bed, b: &Bed, from: usize, sent: &Frame, frames: u64) -> Vec<(usize, Frame)> {
    let before = b.counters()["t1"].rx;
    b.hosts.iter().for_each(crate::harness::Host::drain);
    a.exchange(from, std::slice::from_ref(sent));
    wait_for("the frame on the trunk", || (b.counters()["t1"].rx == before + frames).then_some(()));
    let list = b.arrivals().into_iter().enumerate();
    list.flat_map(|(at, frames)| frames.into_iter().map(move |frame| (at + 1, frame))).collect()
}

fn across_a_trunk_to_a_second_switch(plane: Plane) {
    let hosts = "interface p1\n switchport mode private-vlan promiscuous\n switchport private-vlan mapping 100 101-103\n\
                 interface p2\n switchport mode private-vlan host\n switchport private-vlan host-association 100 101\n\
                 interface p3\n switchport mode private-vlan host\n switchport private-vlan host-association 100 102\n\
                 interface t1\n switchport mode trunk\n switchport trunk allowed vlan 100-103\n";
    let [a, b] = [1, 2].map(|_| {
        let bed = Bed::without_switch(plane, 3, 1500);
        std::fs::write(bed.config_file(), format!("{VLANS}{hosts}")).unwrap();
        bed
    });
    a.net.ip(&format!("link add t1 type veth peer name t1 netns {}\nlink set t1 up", b.net.path()));
    b.net.ip("link set t1 up");
    a.start();
    b.start();
    // The stations of `a` have the numbers 1 to 3, those of `b` 11 to 13. Their broadcasts make all of them known on both sides.
    let station = |bed: usize, n: usize| mac((bed * 10 + n) as u16);
    let floods: [&[usize]; 3] = [&[1, 2, 3], &[1], &[1, 3]];
    for n in 1..=3 {
        let sent = frame(BROADCAST, station(0, n));
        let wanted: Vec<_> = floods[n - 1].iter().map(|to| (*to, sent.clone())).collect();
        assert_eq!(over(&a, &b, n, &sent, 1), wanted, "host {n} of a");
        let sent = frame(BROADCAST, station(1, n));
        let wanted: Vec<_> = floods[n - 1].iter().map(|to| (*to, sent.clone())).collect();
        assert_eq!(over(&b, &a, n, &sent, 1), wanted, "host {n} of b");
        b.learned(station(0, n), 100, Some("t1"));
    }
    for (from, to) in (1..=3).flat_map(|from| (1..=3).map(move |to| (from, to))) {
        let sent = frame(station(1, to), station(0, from));
        let dropped = |bed: &Bed| -> u64 {
            let view = bed.ask("show interfaces counters drops");
            let rows = view["drops"].as_array().unwrap();
            let row = rows.iter().find(|row| row["interface"] == "t1" && row["reason"] == "private_vlan");
            row.map_or(0, |row| row["frames"].as_u64().unwrap())
        };
        let before = dropped(&b);
        let got = over(&a, &b, from, &sent, 1);
        if floods[from - 1].contains(&to) {
            assert_eq!(got, [(to, sent)], "from {from} to {to}");
        } else {
            // Switch `a` sends the frame, because the station is behind the trunk; switch `b` knows the station's port, and drops
            // the frame.
            assert_eq!(got, [], "from {from} to {to}");
            assert_eq!(dropped(&b), before + 1, "from {from} to {to}");
        }
    }
    // A trunk without the primary VLAN carries no secondary VLANs.
    b.configure("interface t1\nswitchport trunk allowed vlan 101-103");
    assert_eq!(over(&a, &b, 2, &frame(BROADCAST, station(0, 2)), 1), []);
}

fn the_vlan_interface_is_promiscuous(plane: Plane) {
    let svi = "vlan 20\ninterface vlan 100\n ip address 10.0.100.254 255.255.255.0\n private-vlan mapping 101-102\n\
               interface vlan 20\n ip address 10.0.20.254 255.255.255.0\n";
    let bed = Bed::new(plane, 8, &format!("{VLANS}{PORTS}{svi}"));
    bed.configure("interface p8\nswitchport mode access\nswitchport access vlan 20");
    bed.chatter.set(true);
    for (host, address) in
        [(2, "10.0.100.2/24"), (3, "10.0.100.3/24"), (4, "10.0.100.4/24"), (6, "10.0.100.6/24")]
    {
        bed.host(host).address(address);
        bed.host(host).net.ip("route add default via 10.0.100.254");
    }
    bed.host(8).address("10.0.20.8/24");
    bed.host(8).net.ip("route add default via 10.0.20.254");
    bed.host(2).reaches("10.0.100.254");
    bed.host(4).reaches("10.0.100.254");
    assert!(!bed.host(2).ping("-c 1 -W 1 10.0.100.3"), "isolated hosts reach each other");
    assert!(!bed.host(6).ping("-c 1 -W 1 10.0.100.254"), "VLAN 103 is not mapped");
    bed.configure("ip routing");
    bed.host(2).reaches("10.0.20.8");
    bed.host(8).reaches("10.0.100.4");
    bed.by_the_plane(2, 50, "from an isolated host to another VLAN", || {
        bed.host(2).tcp(bed.host(8), "10.0.20.8", 4 << 20);
    });
    bed.configure("interface vlan 100\nprivate-vlan mapping add 103\nprivate-vlan mapping remove 101");
    bed.host(6).reaches("10.0.20.8");
    bed.host(2).net.ip("neigh flush all");
    assert!(!bed.host(2).ping("-c 1 -W 1 10.0.20.8"), "VLAN 101 is not mapped any more");
    let refused = bed.try_configure("interface vlan 101").unwrap_err();
    assert!(refused.contains("has no interface"), "{refused}");
}

fn groups_are_those_of_the_primary_vlan(plane: Plane) {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
    let bed = Bed::new(plane, 8, &format!("{VLANS}{PORTS}"));
    bed.configure("ip igmp snooping unregistered mrouter");
    bed.chatter.set(true);
    bed.exact.set(false); // the switch's own queries are not counted
    for host in [2, 4] {
        bed.host(host).address(&format!("10.0.100.{host}/24"));
    }
    // The packet that host 1 sends to the group.
    let stream = || {
        let mut sent = frame([1, 0, 0x5e, 1, 1, 1], mac(1)).ethertype(0x0800);
        let mut header = [0x45, 0, 0, 46, 0, 0, 0, 0, 8, 17, 0, 0, 10, 0, 100, 1, 239, 1, 1, 1];
        let sum: u32 = header.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        sent.0[14..34].copy_from_slice(&header);
        sent
    };
    let join = |host: usize, address: Ipv4Addr| {
        bed.host(host).net.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.join_multicast_v4(&GROUP, &address).unwrap();
            socket
        })
    };
    bed.expect(1, &stream(), &[]);
    let _isolated = join(2, Ipv4Addr::new(10, 0, 100, 2));
    let ports = |want: &[&str]| {
        wait_for("the members", || {
            let groups = bed.ask("show ip igmp snooping groups");
            let group = groups["groups"].as_array()?.iter().find(|group| group["group"] == "239.1.1.1")?;
            assert_eq!(group["vlan"], 100, "{group}");
            (group["ports"] == serde_json::json!(want)).then_some(())
        });
    };
    ports(&["p2"]);
    bed.expect(1, &stream(), &[(2, stream())]);
    let _community = join(4, Ipv4Addr::new(10, 0, 100, 4));
    ports(&["p2", "p4"]);
    bed.expect(1, &stream(), &[(2, stream()), (4, stream())]);
    // A packet from community 102 reaches only members of the group in that community.
    let mut own = stream();
    own.0[6..12].copy_from_slice(&mac(5));
    bed.expect(5, &own, &[(4, own.clone())]);
}

fn settings_take_effect_and_go(plane: Plane) {
    let bed = Bed::new(plane, 8, &format!("{VLANS}{PORTS}"));
    let sent = frame(BROADCAST, mac(5));
    bed.expect(5, &sent, &at(&sent, 102, hears(5).1));
    // Port 5 becomes an isolated port. While its VLAN is not associated with the primary one, it accepts no frames.
    bed.configure("interface p5\nswitchport private-vlan host-association 100 101");
    bed.expect(5, &sent, &at(&sent, 101, &[1, 8]));
    bed.configure("vlan 100\nprivate-vlan association remove 101");
    bed.expect_drop(5, &sent, "untagged_not_allowed");
    bed.configure("vlan 100\nprivate-vlan association add 101");
    bed.expect(5, &sent, &at(&sent, 101, &[1, 8]));
    // The isolated VLAN becomes a community, and its ports reach each other.
    bed.configure("vlan 101\nprivate-vlan community");
    bed.expect(5, &sent, &at(&sent, 101, &[1, 2, 3, 8]));
    bed.configure("vlan 101\nprivate-vlan isolated");
    bed.expect(5, &sent, &at(&sent, 101, &[1, 8]));
    // An access port of a private VLAN is in no VLAN.
    bed.configure("interface p5\nswitchport mode access\nswitchport access vlan 100");
    bed.expect_drop(5, &sent, "untagged_not_allowed");
    bed.configure("vlan 100\nshutdown");
    let late = frame(BROADCAST, mac(4));
    bed.expect_drop(4, &late, "vlan_inactive");
    bed.configure("vlan 100\nno shutdown\nno private-vlan primary\nvlan 102\nno private-vlan community");
    bed.configure("interface range p4 - 5\nswitchport mode access\nswitchport access vlan 102");
    bed.expect(4, &late, &[(5, late.clone()), (8, late.vlan(102))]);
    bed.learned(mac(4), 102, Some("p4"));
    for line in ["vlan 1\nprivate-vlan primary", "vlan 103\nprivate-vlan association 101"] {
        let refused = bed.try_configure(line).unwrap_err();
        assert!(refused.contains("Command rejected"), "{refused}");
    }
}

fn on_xdp(plane: Plane) {
    let bed = Bed::new(plane, 8, &format!("{VLANS}{PORTS}interface range p1 - 8\n hook xdp\n"));
    whole_matrix(&bed);
}

fn a_restart_keeps_the_isolation(plane: Plane) {
    let bed = Bed::new(plane, 8, &format!("{VLANS}{PORTS}"));
    whole_matrix(&bed);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.start();
    whole_matrix(&bed);
}
