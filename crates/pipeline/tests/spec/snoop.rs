//! The stage `snoop` with the MDB: which ports get a group's frames.

use super::support::{pipeline, port, run, vlan};
use lanyard_pipeline::Pipeline;
use lanyard_pipeline::state::{PlaneState, PortState, StpState, Unregistered, VlanState};
use lanyard_pipeline::tables::mdb::{Flooded, MdbChange};
use lanyard_types::{Family, InstanceId, MacAddr, PortId, PortSet};
use lanyard_wire::Builder;
use std::net::IpAddr;

const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// Five access ports of VLAN 10, and a trunk, port 6. Port 5 is blocked by spanning tree.
fn state(snooping: [Option<Unregistered>; 2]) -> PlaneState {
    let mut state = PlaneState::default();
    state.vlans.insert(vlan(10), VlanState { snooping, ..VlanState::default() });
    for n in 1..=5 {
        state.ports.insert(port(n), PortState::access(&format!("p{n}"), n.into(), vlan(10)));
    }
    let mut trunk = PortState::new("p6", 6);
    trunk.tagged.insert(vlan(10));
    state.ports.insert(port(6), trunk);
    state.stp.insert((InstanceId::default(), port(5)), StpState::Discarding);
    state
}

fn set(ports: &[u16]) -> Box<PortSet> {
    Box::new(ports.iter().filter_map(|n| PortId::new(*n)).collect())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn entry(group: &str, source: Option<&str>, ports: &[u16]) -> MdbChange {
    let source = source.map(address);
    MdbChange::Entry { vlan: vlan(10), group: address(group), source, ports: Some(set(ports)) }
}

fn routers(family: Family, ports: &[u16]) -> MdbChange {
    MdbChange::Routers { vlan: vlan(10), family, ports: set(ports) }
}

/// A packet of a protocol from a source to a group, untagged.
fn packet(source: &str, group: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (mac, ethertype, mut packet) = match (address(source), address(group)) {
        (IpAddr::V4(source), IpAddr::V4(group)) => {
            let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 1, protocol, 0, 0];
            packet.extend(source.octets());
            packet.extend(group.octets());
            let [_, b, c, d] = group.octets();
            (MacAddr([1, 0, 0x5e, b & 0x7f, c, d]), 0x0800, packet)
        }
        (IpAddr::V6(source), IpAddr::V6(group)) => {
            let mut packet = vec![0x60, 0, 0, 0, 0, 8, protocol, 1];
            packet.extend(source.octets());
            packet.extend(group.octets());
            let octets = group.octets();
            (MacAddr([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]), 0x86dd, packet)
        }
        _ => panic!("addresses of two families"),
    };
    packet.extend(payload);
    Builder::new(mac, HOST).ethertype(ethertype).payload(&packet).build()
}

#[track_caller]
fn check(pipeline: &mut Pipeline, source: &str, group: &str, expected: &str) {
    assert_eq!(run(pipeline, 1, &packet(source, group, 17, &[])), expected, "{source} to {group}");
}

const ALL: &str = "2:- 3:- 4:- 6:8100.10.0";

#[test]
fn members_and_routers_get_a_group() {
    let mut p = pipeline(&state([Some(Unregistered::Flood); 2]));
    for change in [
        entry("239.1.1.1", None, &[1, 2, 5]),
        entry("239.1.1.2", None, &[1]),
        entry("239.1.1.3", None, &[]),
        entry("239.1.1.3", Some("10.0.0.7"), &[3]),
        entry("ff05::1", None, &[4]),
        routers(Family::V6, &[6]),
    ] {
        p.multicast(&change).unwrap();
    }
    // The frame goes neither to its ingress port nor to a blocked port.
    check(&mut p, "10.0.0.1", "239.1.1.1", "2:-");
    check(&mut p, "10.0.0.1", "239.1.1.2", "dropped no_egress");
    check(&mut p, "10.0.0.1", "239.1.1.3", "dropped no_egress");
    check(&mut p, "10.0.0.7", "239.1.1.3", "3:-");
    check(&mut p, "fe80::1", "ff05::1", "4:- 6:8100.10.0");
    check(&mut p, "10.0.0.1", "239.1.1.9", ALL);
    // Another group with the same MAC address.
    check(&mut p, "10.0.0.1", "238.129.1.1", ALL);
    check(&mut p, "10.0.0.1", "224.0.0.5", ALL);
    check(&mut p, "fe80::1", "ff02::1:ff00:1", ALL);
    check(&mut p, "fe80::1", "ff05::2", ALL);
}

#[test]
fn unregistered_groups_go_to_routers_only_when_configured() {
    let mut p = pipeline(&state([Some(Unregistered::Routers), None]));
    check(&mut p, "10.0.0.1", "239.1.1.9", "dropped no_egress");
    p.multicast(&routers(Family::V4, &[3])).unwrap();
    p.multicast(&routers(Family::V6, &[3])).unwrap();
    check(&mut p, "10.0.0.1", "239.1.1.9", "3:-");
    check(&mut p, "10.0.0.1", "224.0.0.251", ALL);
    check(&mut p, "fe80::1", "ff05::1", ALL);
    p.multicast(&entry("239.1.1.9", None, &[2])).unwrap();
    check(&mut p, "10.0.0.1", "239.1.1.9", "2:- 3:-");
    for (flooded, unregistered, registered) in [
        (Flooded::Unregistered, ALL, "2:- 3:-"),
        (Flooded::All, ALL, ALL),
        (Flooded::Nothing, "3:-", "2:- 3:-"),
    ] {
        p.multicast(&MdbChange::Flood { vlan: vlan(10), family: Family::V4, flooded }).unwrap();
        check(&mut p, "10.0.0.1", "239.1.1.8", unregistered);
        check(&mut p, "10.0.0.1", "239.1.1.9", registered);
    }
}

#[test]
fn messages_about_memberships_are_trapped_where_a_vlan_is_snooped() {
    let report = packet("10.0.0.1", "224.0.0.22", 2, &[0x22, 0, 0, 0]);
    let hello = packet("10.0.0.1", "224.0.0.13", 103, &[0x20, 0, 0, 0]);
    let join = packet("10.0.0.1", "224.0.0.13", 103, &[0x23, 0, 0, 0]);
    let mld = packet("fe80::1", "ff02::16", 0, &[58, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0]);
    let solicitation = packet("fe80::1", "ff02::1:ff00:1", 58, &[135, 0, 0, 0]);
    let mut p = pipeline(&state([Some(Unregistered::Flood), Some(Unregistered::Routers)]));
    for (frame, expected) in [
        (&report, "trapped igmp"),
        (&hello, "trapped pim_hello"),
        (&mld, "trapped mld"),
        (&join, ALL),
        (&solicitation, ALL),
    ] {
        assert_eq!(run(&mut p, 1, frame), expected);
    }
    assert_eq!(run(&mut p, 5, &report), "dropped stp_discarding");
    assert!(p.fdb().get(vlan(10), HOST).is_some(), "the source of a trapped message was learned");
    let mut off = pipeline(&state([None, None]));
    off.multicast(&entry("239.1.1.1", None, &[2])).unwrap();
    for frame in [&report, &mld, &packet("10.0.0.1", "239.1.1.1", 17, &[])] {
        assert_eq!(run(&mut off, 1, frame), ALL);
    }
}
