//! Traffic between hosts: ARP, ICMP, TCP, UDP, neighbour discovery, long frames.

use crate::harness::{Bed, Plane, scenarios};
use std::net::UdpSocket;

scenarios! {
    access_ports_talk: ebpf soft;
    jumbo_frames: ebpf soft;
}

const TWO: &str =
    "interface p1\n switchport\ninterface p2\n switchport\ninterface p3\n switchport access vlan 20\n";

fn access_ports_talk(plane: Plane) {
    let bed = Bed::new(plane, 3, TWO);
    let (one, two) = (bed.host(1), bed.host(2));
    one.address("10.0.0.1/24");
    two.address("10.0.0.2/24");
    one.address("fd00::1/64");
    two.address("fd00::2/64");
    one.reaches("10.0.0.2");
    two.reaches("10.0.0.1");
    one.reaches("fd00::2");
    assert!(one.ping("-c 20 -s 1472 -M do 10.0.0.2"));
    one.tcp(two, "10.0.0.2", 4 << 20);
    two.tcp(one, "fd00::1", 4 << 20);
    let server = two.net.run(|| UdpSocket::bind("10.0.0.2:7").unwrap());
    let client = one.net.run(|| UdpSocket::bind("10.0.0.1:0").unwrap());
    server.set_read_timeout(Some(crate::harness::DEADLINE)).unwrap();
    // The last datagram is fragmented.
    for len in [0, 1, 18, 1472, 8000] {
        let sent: Vec<u8> = (0..len).map(|at| at as u8).collect();
        client.send_to(&sent, "10.0.0.2:7").unwrap();
        let mut got = [0; 9000];
        let (len, from) = server.recv_from(&mut got).unwrap();
        assert_eq!((&got[..len], from), (&sent[..], client.local_addr().unwrap()));
    }
    // None of these frames reached the other VLAN.
    assert_eq!(bed.arrivals()[2], []);
    bed.learned(one.mac, 1, Some("p1"));
    bed.learned(two.mac, 1, Some("p2"));
}

fn jumbo_frames(plane: Plane) {
    let bed = Bed::with_mtu(plane, 2, 9000, TWO.split("interface p3").next().unwrap());
    let (one, two) = (bed.host(1), bed.host(2));
    one.address("10.0.0.1/24");
    two.address("10.0.0.2/24");
    one.reaches("10.0.0.2");
    assert!(one.ping("-c 3 -s 8972 -M do 10.0.0.2"));
    one.tcp(two, "10.0.0.2", 4 << 20);
}
