//! The route stage: a table of cases, and an oracle that interprets packet and routes in the simplest way.

use crate::support::{base, host, pipeline, port, run, tags, vlan};
use lanyard_pipeline::route::{Adjacency, RifAttachment, RifState, RouteChange, RouteTarget, Urpf};
use lanyard_pipeline::state::{FdbTarget, PlaneState, PortKind, PortState, TrapRate};
use lanyard_pipeline::tables::routes::{Limits, Refused, Routes};
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::validate::check as check_rifs;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, RifId, TrapGroup, TrapReason, VrfId};
use lanyard_wire::ip::ones_complement_sum;
use lanyard_wire::{Builder, Tag};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const ROUTER: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
const VIRTUAL: MacAddr = MacAddr([0, 0, 0x5e, 0, 1, 7]);

fn rif(n: u16) -> RifId {
    RifId::new(n).unwrap()
}
fn adjacency(n: u32) -> AdjacencyId {
    AdjacencyId::new(n).unwrap()
}
fn group(n: u32) -> GroupId {
    GroupId::new(n).unwrap()
}
fn to(n: u32) -> Option<RouteTarget> {
    Some(RouteTarget::Group(group(n)))
}
fn route(prefix: &str, target: Option<RouteTarget>) -> RouteChange {
    RouteChange::Route(VrfId::DEFAULT, prefix.parse().unwrap(), target)
}

fn interface(name: &str, attachment: RifAttachment) -> RifState {
    RifState {
        name: name.into(),
        vrf: VrfId::DEFAULT,
        attachment,
        mac: ROUTER,
        virtual_macs: BTreeSet::new(),
        mtu: 1500,
        ipv4: true,
        ipv6: true,
        urpf_ipv4: Urpf::Off,
        urpf_ipv6: Urpf::Off,
        while_confirmed: false,
    }
}

/// The base switch with routing: interface 1 on VLAN 10 (up at port 5), 2 on VLAN 20 (up at 8), 3 on routed port 9, 4
/// on its tag 100 (up at 11); its tag 200 is a subinterface without routing (up at 12); port 10 is routed and has no
/// interface.
fn routing() -> PlaneState {
    let mut state = base();
    let mut add = |n: u16, kind: PortKind| {
        let new = PortState { kind, flood_unicast: false, ..PortState::new(&format!("eth{n}"), n.into()) };
        state.ports.insert(port(n), new);
    };
    add(8, PortKind::Svi(vlan(20)));
    add(9, PortKind::Routed);
    add(10, PortKind::Routed);
    add(11, PortKind::Subinterface { parent: port(9), vlan: vlan(100) });
    add(12, PortKind::Subinterface { parent: port(9), vlan: vlan(200) });
    let svi = state.ports.get_mut(&port(8)).unwrap();
    (svi.pvid, svi.untagged) = (Some(vlan(20)), "20".parse().unwrap());
    let vlan_rif = |n, up| RifAttachment::Vlan { vlan: vlan(n), up: port(up) };
    state.rifs.insert(rif(1), interface("vlan10", vlan_rif(10, 5)));
    state.rifs.insert(rif(2), interface("vlan20", vlan_rif(20, 8)));
    state.rifs.insert(rif(3), interface("eth9", RifAttachment::Port(port(9))));
    let sub = RifAttachment::Subinterface { parent: port(9), vlan: vlan(100), up: port(11) };
    state.rifs.insert(rif(4), interface("eth9.100", sub));
    state.fdb.insert((vlan(10), ROUTER), FdbTarget::SelfAddress(port(5)));
    state.fdb.insert((vlan(20), host(66)), FdbTarget::Static(port(6)));
    state.fdb.insert((vlan(20), host(77)), FdbTarget::Static(port(7)));
    check_rifs(&state).unwrap();
    state
}

/// Adjacencies 1..5: host 66 and host 77 in VLAN 20, host 101 in VLAN 10, host 9 at the routed port, host 100 at its
/// tag; 6 is unresolved. Group n contains adjacency n only, group 7 contains 1 and 2.
fn changes() -> Vec<RouteChange> {
    let behind = [(2, Some(66)), (2, Some(77)), (1, Some(101)), (3, Some(9)), (4, Some(100)), (2, None)];
    let mut list = Vec::new();
    for (n, (on, mac)) in (1..).zip(behind) {
        let new = Adjacency { rif: rif(on), mac: mac.map(host) };
        list.push(RouteChange::Adjacency(adjacency(n), Some(new)));
        list.push(RouteChange::Group(group(n), Some(vec![adjacency(n)])));
    }
    list.push(RouteChange::Group(group(7), Some(vec![adjacency(1), adjacency(2)])));
    list.extend([
        route("10.0.20.0/24", Some(RouteTarget::Connected(rif(2)))),
        route("10.0.20.254/32", Some(RouteTarget::Up(TrapReason::LocalAddress))),
        route("10.0.20.66/32", to(1)),
        route("10.0.20.77/32", to(2)),
        route("10.0.20.9/32", to(6)),
        route("10.0.10.0/24", Some(RouteTarget::Connected(rif(1)))),
        route("10.0.10.1/32", to(3)),
        route("10.9.0.0/16", to(4)),
        route("10.100.0.0/16", to(5)),
        route("192.0.2.0/24", Some(RouteTarget::Blackhole)),
        route("198.51.100.0/24", Some(RouteTarget::Up(TrapReason::RoutePolicy))),
        route("169.254.0.0/16", to(1)),
        route("2001:db8:20::/64", to(1)),
        route("2001:db8:9::/64", to(4)),
        route("fe80::/10", to(1)),
    ]);
    list
}

/// An IPv4 header and 8 bytes of payload.
fn v4(src: &str, dst: &str, ttl: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 28, 0, 1, 0x40, 0, ttl, 17, 0, 0];
    for address in [src, dst] {
        let IpAddr::V4(address) = address.parse().unwrap() else { panic!("{address}") };
        bytes.extend(address.octets());
    }
    bytes.extend([0x12, 0x34, 0, 53, 0, 8, 0, 0]);
    seal(bytes)
}

pub fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[10..12].fill(0);
    let len = (usize::from(bytes[0] & 15) * 4).min(bytes.len());
    let sum = !ones_complement_sum(&bytes[..len]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn v6(src: &str, dst: &str, hops: u8, next: u8) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 8, next, hops];
    for address in [src, dst] {
        let IpAddr::V6(address) = address.parse().unwrap() else { panic!("{address}") };
        bytes.extend(address.octets());
    }
    bytes.extend([0x12, 0x34, 0, 53, 0, 8, 0, 0]);
    bytes
}

fn changed(mut bytes: Vec<u8>, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut bytes);
    seal(bytes)
}

/// A frame to `dst` from host 101; `tag` is (priority, VLAN).
fn eth(dst: MacAddr, tag: Option<(u8, u16)>, packet: &[u8]) -> Vec<u8> {
    let builder = Builder::new(dst, host(101));
    let builder = match tag {
        Some((pcp, vid)) => builder.tag(0x8100, Tag { pcp, dei: false, vid }),
        None => builder,
    };
    builder.ethertype(if packet[0] >> 4 == 6 { 0x86dd } else { 0x0800 }).payload(packet).build()
}

fn ready(change: impl Fn(&mut PlaneState)) -> Pipeline {
    let mut state = routing();
    change(&mut state);
    let mut pipeline = pipeline(&state);
    for change in changes() {
        // A case may have removed the interface of this change.
        let _ = pipeline.route(&change);
    }
    pipeline
}

type Case = (&'static str, fn(&mut PlaneState), u16, Vec<u8>, &'static str);

fn check(cases: Vec<Case>) {
    for (name, change, at, frame, want) in cases {
        assert_eq!(run(&mut ready(change), at, &frame), want, "{name}");
    }
}

fn as_is(_: &mut PlaneState) {}

fn of(state: &mut PlaneState, n: u16) -> &mut RifState {
    state.rifs.get_mut(&rif(n)).unwrap()
}

#[test]
fn where_it_goes() {
    let v = |dst| eth(ROUTER, None, &v4("10.0.10.1", dst, 64));
    let with = |tag, dst| eth(ROUTER, Some(tag), &v4("10.0.10.1", dst, 64));
    check(vec![
        ("VLAN to VLAN", as_is, 1, v("10.0.20.66"), "6:-"),
        ("into a trunk, with its priority", as_is, 3, with((5, 10), "10.0.20.77"), "7:8100.20.5"),
        ("from a trunk to an access port", as_is, 3, with((5, 10), "10.0.20.66"), "6:-"),
        ("back out of the port it came in at", as_is, 1, v("10.0.10.1"), "1:-"),
        (
            "back out of a trunk, in another VLAN",
            |s| _ = s.fdb.insert((vlan(20), host(66)), FdbTarget::Static(port(3))),
            3,
            with((1, 10), "10.0.20.66"),
            "3:8100.20.1",
        ),
        (
            "unknown in its VLAN: flooded, also where it came in",
            |s| _ = s.fdb.remove(&(vlan(20), host(66))),
            3,
            with((0, 10), "10.0.20.66"),
            "6:- 3:8100.20.0 7:8100.20.0",
        ),
        (
            "protected ports are no concern of the router",
            |s| [1, 6].into_iter().for_each(|n| s.ports.get_mut(&port(n)).unwrap().isolated = true),
            1,
            v("10.0.20.66"),
            "6:-",
        ),
        ("out of a routed port", as_is, 1, v("10.9.1.1"), "9:-"),
        ("out of a subinterface", as_is, 3, with((3, 10), "10.100.1.1"), "9:8100.100.3"),
        ("in at a routed port", as_is, 9, v("10.0.20.66"), "6:-"),
        ("in and out at a routed port", as_is, 9, v("10.9.1.1"), "9:-"),
        ("in at a subinterface, into a trunk", as_is, 9, with((2, 100), "10.0.20.77"), "7:8100.20.2"),
        ("in and out at a subinterface", as_is, 9, with((2, 100), "10.100.1.1"), "9:8100.100.2"),
        ("priority-tagged at a routed port", as_is, 9, with((2, 0), "10.0.20.77"), "7:8100.20.2"),
        ("no VLAN there", |s| _ = s.vlans.remove(&vlan(20)), 1, v("10.0.20.66"), "dropped no_egress"),
        (
            "routed port down",
            |s| s.ports.get_mut(&port(9)).unwrap().enabled = false,
            1,
            v("10.9.1.1"),
            "dropped egress_down",
        ),
        (
            "virtual address",
            |s| _ = of(s, 1).virtual_macs.insert(VIRTUAL),
            1,
            eth(VIRTUAL, None, &v4("10.0.10.1", "10.0.20.66", 64)),
            "6:-",
        ),
        ("IPv6", as_is, 1, eth(ROUTER, None, &v6("2001:db8:10::1", "2001:db8:20::5", 64, 17)), "6:-"),
    ]);
}

#[test]
fn frames_that_are_not_routed_are_switched_trapped_or_dropped() {
    let packet = v4("10.0.10.1", "10.0.20.66", 64);
    let arp = Builder::new(ROUTER, host(101)).ethertype(0x0806).build();
    check(vec![
        ("another's address in a VLAN", as_is, 1, eth(host(102), None, &packet), "2:-"),
        (
            "the router's address in a VLAN without interface",
            |s| _ = s.rifs.remove(&rif(1)),
            1,
            eth(ROUTER, None, &packet),
            "5:-",
        ),
        ("ARP to the router", as_is, 1, arp.clone(), "5:-"),
        ("IPv4 not routed", |s| of(s, 1).ipv4 = false, 1, eth(ROUTER, None, &packet), "5:-"),
        ("from the host", as_is, 5, eth(ROUTER, None, &packet), "dropped same_port"),
        (
            "broadcast in a VLAN",
            as_is,
            6,
            eth(MacAddr::BROADCAST, None, &packet),
            "8:- 3:8100.20.0 7:8100.20.0",
        ),
        ("ARP at a routed port", as_is, 9, arp.clone(), "trapped neighbour"),
        ("broadcast at a routed port", as_is, 9, eth(MacAddr::BROADCAST, None, &packet), "trapped flooded"),
        ("another's at a routed port", as_is, 9, eth(host(9), None, &packet), "trapped host_stack"),
        (
            "IPv4 not routed there",
            |s| of(s, 3).ipv4 = false,
            9,
            eth(ROUTER, None, &packet),
            "trapped host_stack",
        ),
        ("a tag nobody has", as_is, 9, eth(ROUTER, Some((0, 300)), &packet), "trapped host_stack"),
        ("tag 4095", as_is, 9, eth(ROUTER, Some((0, 4095)), &packet), "trapped host_stack"),
        ("no interface on the port", as_is, 10, eth(ROUTER, None, &packet), "trapped host_stack"),
        (
            "broadcast at a subinterface",
            as_is,
            9,
            eth(MacAddr::BROADCAST, Some((0, 100)), &packet),
            "trapped flooded 11:-",
        ),
        (
            "a subinterface that routes nothing",
            as_is,
            9,
            eth(ROUTER, Some((0, 200)), &packet),
            "trapped host_stack 12:-",
        ),
        ("the host's frame from a subinterface", as_is, 11, eth(host(100), None, &packet), "9:8100.100.0"),
        (
            "the host's frame, port down",
            |s| s.ports.get_mut(&port(9)).unwrap().enabled = false,
            11,
            eth(host(100), None, &packet),
            "dropped egress_down",
        ),
        (
            "subinterface down",
            |s| s.ports.get_mut(&port(12)).unwrap().enabled = false,
            9,
            eth(ROUTER, Some((0, 200)), &packet),
            "dropped egress_down",
        ),
        (
            "pause at a routed port",
            as_is,
            9,
            eth(crate::support::reserved(1), None, &packet),
            "dropped pause",
        ),
    ]);
}

#[test]
fn exceptions() {
    fn strict(state: &mut PlaneState) {
        (of(state, 1).urpf_ipv4, of(state, 1).urpf_ipv6) = (Urpf::Strict, Urpf::Strict);
    }
    fn loose(state: &mut PlaneState) {
        of(state, 1).urpf_ipv4 = Urpf::Loose;
    }
    let v = |src, dst, ttl| eth(ROUTER, None, &v4(src, dst, ttl));
    let odd =
        |change: fn(&mut Vec<u8>)| eth(ROUTER, None, &changed(v4("10.0.10.1", "10.0.20.66", 64), change));
    let six = |src, dst, hops, next| eth(ROUTER, None, &v6(src, dst, hops, next));
    let message = |kind: u8| {
        let mut packet = v6("fe80::1", "fe80::2", 255, 58);
        packet[40] = kind;
        eth(ROUTER, None, &packet)
    };
    let mut cases: Vec<Case> = vec![
        ("TTL 1", as_is, 1, v("10.0.10.1", "10.0.20.66", 1), "trapped ttl_expired 5:-"),
        ("TTL 0", as_is, 1, v("10.0.10.1", "10.0.20.66", 0), "trapped ttl_expired 5:-"),
        ("TTL 1 to the switch", as_is, 1, v("10.0.10.1", "10.0.20.254", 1), "trapped local_address 5:-"),
        ("TTL 1 at a routed port", as_is, 9, v("10.9.0.1", "10.0.20.66", 1), "trapped ttl_expired"),
        ("no route", as_is, 1, v("10.0.10.1", "8.8.8.8", 64), "trapped no_route 5:-"),
        ("policy", as_is, 1, v("10.0.10.1", "198.51.100.1", 64), "trapped route_policy 5:-"),
        ("blackhole", as_is, 1, v("10.0.10.1", "192.0.2.1", 64), "dropped route_blackhole"),
        ("connected", as_is, 1, v("10.0.10.1", "10.0.20.5", 64), "trapped glean 5:-"),
        ("unresolved", as_is, 1, v("10.0.10.1", "10.0.20.9", 64), "trapped glean 5:-"),
        (
            "egress interface gone",
            |s| _ = s.rifs.remove(&rif(2)),
            1,
            v("10.0.10.1", "10.0.20.66", 64),
            "trapped glean 5:-",
        ),
        (
            "longer than the egress MTU",
            |s| of(s, 2).mtu = 27,
            1,
            v("10.0.10.1", "10.0.20.66", 64),
            "trapped route_mtu 5:-",
        ),
        ("as long as the egress MTU", |s| of(s, 2).mtu = 28, 1, v("10.0.10.1", "10.0.20.66", 64), "6:-"),
        (
            "host end down",
            |s| s.ports.get_mut(&port(5)).unwrap().enabled = false,
            1,
            v("10.0.10.1", "8.8.8.8", 64),
            "dropped egress_down",
        ),
        (
            "over the rate",
            |s| s.global.trap_rate[TrapGroup::RouteException.index()] = TrapRate { rate_pps: 0, burst: 0 },
            1,
            v("10.0.10.1", "8.8.8.8", 64),
            "dropped trap_policed",
        ),
        (
            "another exception is not over it",
            |s| s.global.trap_rate[TrapGroup::RouteException.index()] = TrapRate { rate_pps: 0, burst: 0 },
            1,
            v("10.0.10.1", "10.0.20.66", 1),
            "trapped ttl_expired 5:-",
        ),
        (
            "an exception over its own rate",
            |s| s.global.trap_rate[TrapGroup::TtlExpired.index()] = TrapRate { rate_pps: 0, burst: 0 },
            1,
            v("10.0.10.1", "10.0.20.66", 1),
            "dropped trap_policed",
        ),
        (
            "what is for the switch is not over it",
            |s| s.global.trap_rate[TrapGroup::RouteException.index()] = TrapRate { rate_pps: 0, burst: 0 },
            1,
            v("10.0.10.1", "10.0.20.254", 64),
            "trapped local_address 5:-",
        ),
        (
            "options",
            as_is,
            1,
            odd(|b| {
                b[0] = 0x46;
                b[3] = 32;
                b.splice(20..20, [1, 1, 1, 1]);
            }),
            "trapped ip_options 5:-",
        ),
        ("version", as_is, 1, odd(|b| b[0] = 0x55), "dropped ip_header_invalid"),
        ("header length", as_is, 1, odd(|b| b[0] = 0x44), "dropped ip_header_invalid"),
        ("total length", as_is, 1, odd(|b| b[3] = 200), "dropped ip_header_invalid"),
        ("link-local source", as_is, 1, v("169.254.1.1", "10.0.20.66", 64), "dropped martian"),
        (
            "link-local source to the switch",
            as_is,
            1,
            v("169.254.1.1", "10.0.20.254", 64),
            "trapped local_address 5:-",
        ),
        ("link-local destination", as_is, 1, v("10.0.10.1", "169.254.1.1", 64), "dropped martian"),
        ("link-local source, no route", as_is, 1, v("169.254.1.1", "8.8.8.8", 64), "dropped martian"),
        ("link-local source, unresolved", as_is, 1, v("169.254.1.1", "10.0.20.5", 64), "dropped martian"),
        ("link-local source, policy", as_is, 1, v("169.254.1.1", "198.51.100.1", 64), "dropped martian"),
        ("strict, right way", strict, 1, v("10.0.10.1", "10.0.20.66", 64), "6:-"),
        ("strict, connected subnet", strict, 1, v("10.0.10.99", "10.0.20.66", 64), "6:-"),
        ("strict, another's subnet", strict, 1, v("10.0.20.99", "10.0.20.66", 64), "dropped urpf_failed"),
        ("strict, another way", strict, 1, v("10.0.20.77", "10.0.20.66", 64), "dropped urpf_failed"),
        ("strict, no route", strict, 1, v("8.8.8.8", "10.0.20.66", 64), "dropped urpf_failed"),
        ("strict, to the switch", strict, 1, v("8.8.8.8", "10.0.20.254", 64), "dropped urpf_failed"),
        ("strict, the switch's own", strict, 1, v("10.0.20.254", "10.0.20.66", 64), "dropped martian_source"),
        ("from the switch's own", as_is, 1, v("10.0.20.254", "10.0.20.66", 64), "dropped martian_source"),
        (
            "from and to the switch's own",
            as_is,
            1,
            v("10.0.20.254", "10.0.20.254", 64),
            "dropped martian_source",
        ),
        ("strict, only the kernel knows", strict, 1, v("198.51.100.1", "10.0.20.66", 64), "6:-"),
        ("loose, another way", loose, 1, v("10.0.20.77", "10.0.20.66", 64), "6:-"),
        ("loose, no route", loose, 1, v("8.8.8.8", "10.0.20.66", 64), "dropped urpf_failed"),
        ("loose, blackhole", loose, 1, v("192.0.2.7", "10.0.20.66", 64), "dropped urpf_failed"),
        ("IPv6 hops", as_is, 1, six("2001:db8:10::1", "2001:db8:20::5", 1, 17), "trapped ttl_expired 5:-"),
        (
            "hop-by-hop header",
            as_is,
            1,
            six("2001:db8:10::1", "2001:db8:20::5", 64, 0),
            "trapped ip_options 5:-",
        ),
        (
            "to a router's link-local address",
            strict,
            1,
            six("fe80::1", "fe80::2", 64, 58),
            "trapped local_address 5:-",
        ),
        (
            "neighbour discovery to a router's link-local address",
            as_is,
            1,
            message(136),
            "trapped neighbour 5:-",
        ),
        ("no message of neighbour discovery", as_is, 1, message(138), "trapped local_address 5:-"),
        (
            "from a link-local address",
            as_is,
            1,
            six("fe80::1", "2001:db8:20::5", 64, 58),
            "trapped martian 5:-",
        ),
        ("IPv6 strict", strict, 1, six("2001:db8:9::1", "2001:db8:20::5", 64, 17), "dropped urpf_failed"),
    ];
    let from = |address| ("martian source", as_is as fn(&mut PlaneState), 1, address, "dropped martian");
    let to = |address, want| ("martian destination", as_is as fn(&mut PlaneState), 1, address, want);
    for address in ["0.0.0.0", "0.9.9.9", "127.0.0.1", "240.0.0.1"] {
        cases.push(from(v(address, "10.0.20.66", 64)));
        cases.push(to(v("10.0.10.1", address, 64), "dropped martian"));
    }
    for address in ["224.0.0.5", "239.1.1.1", "255.255.255.255"] {
        cases.push(from(v(address, "10.0.20.66", 64)));
        cases.push(to(v("10.0.10.1", address, 64), "trapped martian 5:-"));
    }
    for (address, want) in [
        ("::", "dropped martian"),
        ("::1", "dropped martian"),
        ("::ffff:10.0.0.1", "dropped martian"),
        ("ff02::1", "trapped martian 5:-"),
    ] {
        cases.push(from(six(address, "2001:db8:20::5", 64, 17)));
        cases.push(to(six("2001:db8:10::1", address, 64, 17), want));
    }
    check(cases);
    let mut bad = v("10.0.10.1", "10.0.20.66", 64);
    bad[24] ^= 1;
    check(vec![("checksum", as_is, 1, bad, "dropped ip_header_invalid")]);
}

#[test]
fn a_segmented_packet_fits_by_its_segments() {
    let mut pipeline = ready(as_is);
    let mut packet = v4("10.0.10.1", "10.0.20.66", 64);
    packet.resize(4000, 7);
    packet[2..4].copy_from_slice(&4000_u16.to_be_bytes());
    let frame = eth(ROUTER, None, &seal(packet));
    for (longest, want) in [
        (1514, Verdict::Forwarded),
        (1515, Verdict::Trapped(TrapReason::RouteMtu)),
        (frame.len(), Verdict::Trapped(TrapReason::RouteMtu)),
    ] {
        let mut state = routing();
        state.ports.values_mut().for_each(|port| port.mtu = 9000);
        pipeline.set_state(&state, Timestamp::default(), &mut |_| {});
        let mut out = Output::default();
        assert_eq!(
            pipeline.process_segments(Timestamp::default(), port(1), &frame, longest, &mut out),
            want,
            "{longest}"
        );
    }
}

#[test]
fn a_routed_frame_has_new_addresses_vlan_tag_and_ttl() {
    let mut pipeline = ready(as_is);
    let came = eth(ROUTER, Some((6, 10)), &v4("10.0.10.1", "10.0.20.77", 64));
    let mut out = Output::default();
    let now = Timestamp::from_secs(7);
    assert_eq!(pipeline.process(now, port(3), &came, &mut out), Verdict::Forwarded);
    let mut want = came.clone();
    want[..6].copy_from_slice(&host(77).0);
    want[6..12].copy_from_slice(&ROUTER.0);
    want[14..16].copy_from_slice(&(6_u16 << 13 | 20).to_be_bytes());
    let packet = v4("10.0.10.1", "10.0.20.77", 63);
    want[18..18 + packet.len()].copy_from_slice(&packet);
    assert_eq!(out.sent, vec![(port(7), want)]);
    assert_eq!(tags(&out.sent[0].1), "8100.20.6");
    assert_eq!(pipeline.adjacencies_used().collect::<Vec<_>>(), vec![(adjacency(2), now)]);
    let trace = pipeline.trace(port(3), &came);
    let described: Vec<String> =
        trace.stages.iter().map(|step| format!("{}: {}", step.stage, step.detail())).collect();
    assert!(
        described.contains(
            &"route: for the router on vlan10; 10.0.20.77 is in 10.0.20.77/32: group 2; bucket 0 of 1 in group 2: \
              adjacency 2; to 0200.0000.004d out of vlan20, TTL 63"
                .to_owned()
        ),
        "{described:#?}"
    );
}

#[test]
fn flows_spread_and_stay() {
    let mut pipeline = ready(as_is);
    pipeline.route(&route("203.0.113.0/24", to(7))).unwrap();
    let mut seen = BTreeMap::new();
    for flow in 0..200_u8 {
        let packet = changed(v4("10.0.10.1", "203.0.113.5", 64), |b| b[21] = flow);
        let once: BTreeSet<String> =
            (0..3).map(|_| run(&mut pipeline, 1, &eth(ROUTER, None, &packet))).collect();
        assert_eq!(once.len(), 1, "flow {flow}");
        *seen.entry(once).or_insert(0) += 1;
        // All fragments of a packet take the same path, although only the first has ports.
        let fragments = [0x2000_u16, 0x0003].map(|bits| {
            let packet = changed(packet.clone(), |b| b[6..8].copy_from_slice(&bits.to_be_bytes()));
            run(&mut pipeline, 1, &eth(ROUTER, None, &packet))
        });
        assert_eq!(fragments[0], fragments[1]);
    }
    assert!(seen.len() == 2 && seen.values().all(|n| *n > 60), "{seen:?}");
}

#[test]
fn route_changes_with_dangling_references_are_refused() {
    let mut routes = Routes::new(Limits { ipv4: 2, ipv6: 2, buckets: 4 });
    let mut apply = |change: RouteChange| match routes.change(&change, |rif| rif.get() < 5) {
        Ok(undo) => {
            // The inverse of the change succeeds, and the change can be made again.
            routes.change(&undo, |_| true).unwrap();
            routes.change(&change, |_| true).unwrap();
            "taken".to_owned()
        }
        Err(Refused::Full { table, .. }) => format!("full: {table}"),
        Err(Refused::Invalid(_)) => "refused".to_owned(),
    };
    let adj = |n, on| RouteChange::Adjacency(adjacency(n), Some(Adjacency { rif: rif(on), mac: None }));
    let buckets =
        |n, list: &[u32]| RouteChange::Group(group(n), Some(list.iter().map(|n| adjacency(*n)).collect()));
    for (n, (change, want)) in [
        (buckets(1, &[1]), "refused"),
        (adj(1, 9), "refused"),
        (adj(1, 1), "taken"),
        (adj(2, 1), "taken"),
        (route("10.0.0.0/8", to(1)), "refused"),
        (buckets(1, &[1, 2]), "taken"),
        (buckets(2, &[1, 2, 2]), "refused"),
        (buckets(2, &[]), "refused"),
        (buckets(2, &[1, 1, 1, 1]), "full: next_hop_buckets"),
        (buckets(2, &[1, 1]), "taken"),
        (route("10.0.0.0/8", to(1)), "taken"),
        (RouteChange::Group(group(1), None), "refused"),
        (RouteChange::Adjacency(adjacency(2), None), "refused"),
        (route("10.1.0.0/16", to(2)), "taken"),
        (route("10.2.0.0/16", to(1)), "full: routes_ipv4"),
        (route("10.1.0.0/16", to(1)), "taken"),
        (RouteChange::Group(group(2), None), "taken"),
        (buckets(1, &[1]), "taken"),
        (RouteChange::Adjacency(adjacency(2), None), "taken"),
        (RouteChange::VrfGone(VrfId::DEFAULT), "taken"),
        (RouteChange::Group(group(1), None), "taken"),
        (RouteChange::Adjacency(adjacency(1), None), "taken"),
    ]
    .into_iter()
    .enumerate()
    {
        if matches!(change, RouteChange::VrfGone(_)) {
            routes_gone(&mut apply, change);
        } else {
            assert_eq!(apply(change.clone()), want, "step {n}: {change:?}");
        }
    }
}

/// The removal of a VRF cannot be undone by an inverse change.
fn routes_gone(apply: &mut impl FnMut(RouteChange) -> String, change: RouteChange) {
    assert_eq!(apply(change), "taken");
}
