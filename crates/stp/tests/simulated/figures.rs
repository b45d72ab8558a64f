//! The example networks of IEEE 802.1D-2004, figures 17-4 to 17-7, with the roles and costs that they show. Read clause
//! 17.3 first. A port is named after its LAN; a LAN with one end has only hosts.
//!
//! Invariant: all LANs are point-to-point at 1 Gbit/s, so each hop costs 20,000.

use crate::sim::{self, Sim};
use std::collections::BTreeMap;

/// Builds bridges, by address, with their LANs in the order of their port numbers.
fn network(bridges: &[(u32, &str)]) -> Sim {
    let (mut text, mut lans) = (String::new(), BTreeMap::<&str, Vec<String>>::new());
    for (address, ports) in bridges {
        text += &format!("bridge B{address} mac {address}: {ports}\n");
        for port in ports.split_whitespace() {
            // Two ports of one bridge on a LAN: `o1 o2`.
            lans.entry(&port[..1]).or_default().push(format!("B{address}.{port}"));
        }
    }
    for ends in lans.values() {
        text += &match &ends[..] {
            [host] => format!("host {host}\n"),
            ends => format!("link {}\n", ends.join(" ")),
        };
    }
    sim::check(&format!("{text}settle within 60s\nexpect tree"))
}

/// For each bridge its cost (0: the root), and for each of its ports the role: R, D, A, B.
fn expect(sim: &mut Sim, figure: &[(u32, u32, &str)]) {
    for (address, hops, roles) in figure {
        let name = format!("B{address}");
        let ports = sim.nodes[sim.node(&name)].ports.clone();
        if *hops == 0 {
            sim.lines(&format!("expect {name} is root"));
        }
        sim.lines(&format!("expect {name} cost {}", hops * 20_000));
        assert_eq!(ports.len(), roles.len(), "{name}");
        for (port, role) in ports.iter().zip(roles.chars()) {
            let words = match role {
                'R' => "root forwarding",
                'D' => "designated forwarding",
                'A' => "alternate discarding",
                'B' => "backup discarding",
                _ => panic!("role {role}"),
            };
            sim.lines(&format!("expect {name}.{port} {words}"));
        }
    }
}

const BACKBONE: [(u32, &str); 7] = [
    (111, "a b e c"),
    (222, "a b d f"),
    (333, "c d l j h g"),
    (444, "e f n m k i"),
    (555, "g i p q"),
    (666, "h k r s"),
    (777, "j m t u"),
];
const BACKBONE_ROLES: [(u32, u32, &str); 7] = [
    (111, 0, "DDDD"),
    (222, 1, "RADD"),
    (333, 1, "RADDDD"),
    (444, 1, "RADDDD"),
    (555, 2, "RADD"),
    (666, 2, "RADD"),
    (777, 2, "RADD"),
];

#[test]
fn figure_17_4_a_backbone_with_redundant_links() {
    let mut sim = network(&[&BACKBONE[..], &[(888, "l n v w")]].concat());
    expect(&mut sim, &[&BACKBONE_ROLES[..], &[(888, 2, "RADD")]].concat());
}

#[test]
fn figure_17_5_two_ports_of_a_bridge_on_one_lan() {
    let mut sim = network(&[&BACKBONE[..], &[(888, "l n o1 o2")]].concat());
    expect(&mut sim, &[&BACKBONE_ROLES[..], &[(888, 2, "RADB")]].concat());
}

#[test]
fn figure_17_6_a_ring_backbone() {
    let ring =
        [(111, "a b l"), (222, "b c d"), (333, "d e f"), (444, "f g h"), (555, "j h i"), (666, "l j k")];
    let mut sim = network(&ring);
    let roles = [
        (111, 0, "DDD"),
        (222, 1, "RDD"),
        (333, 2, "RDD"),
        (444, 3, "RDA"),
        (555, 2, "RDD"),
        (666, 1, "RDD"),
    ];
    expect(&mut sim, &roles);
    // The link between 111 and 222 fails: the ports of 222 and 333 change direction.
    sim.lines(
        "cut B111.b\nrun 100ms\nexpect B444.h root forwarding\nexpect B444.f designated\nsettle within 30s",
    );
    sim.lines(
        "expect B333.f root forwarding\nexpect B222.d root forwarding\nexpect B222 cost 100000\nexpect tree",
    );
}

#[test]
fn figure_17_7_port_priorities_choose_between_parallel_links() {
    let mut sim = network(&[(10, "b"), (111, "a b d f h g e c"), (222, "g h j l n m k i")]);
    // Port h has the lower port number at 111; the numbers at 222 do not matter.
    expect(&mut sim, &[(10, 0, "D"), (111, 1, "DRDDDDDD"), (222, 2, "ARDDDDDD")]);
    sim.lines("set B111.g prio 112\nrun 1s\nexpect tree");
    expect(&mut sim, &[(111, 1, "DRDDDDDD"), (222, 2, "RADDDDDD")]);
    sim.lines("set B222.h prio 0\nrun 1s");
    expect(&mut sim, &[(222, 2, "RADDDDDD")]);
}
