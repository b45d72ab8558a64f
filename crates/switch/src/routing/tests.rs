//! Tests the mirror between a kernel that is a list of routes and a plane that is a map.
//!
//! Invariant checked after every single change: a frame meets its old target or its new one, or goes to the kernel.

mod random;
mod world;

use super::*;
use lanyard_plane::{Adjacency, PlaneError, RouteTarget};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, TrapReason};
use lanyard_wire::rtnetlink::{Hop, Route, Writer};
use std::collections::HashMap;
use world::{Known, Meets, PROBES, World};

const VRF: VrfId = VrfId::DEFAULT;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn rif(ifindex: u32) -> RifId {
    RifId::new(ifindex as u16).expect("a small number")
}

fn exact() -> World {
    World::new(Limits::default(), None)
}

#[test]
fn connected_and_beyond() {
    let mut world = exact();
    let local = Known { table: 255, kind: wire::LOCAL, ..Known::new("10.0.1.254/32", &[(1, "")]) };
    for route in [
        local,
        Known::new("10.0.1.0/24", &[(1, "")]),
        Known::new("0.0.0.0/0", &[(1, "10.0.1.5")]),
        Known { kind: wire::BLACKHOLE, ..Known::new("10.9.0.0/16", &[]) },
        Known { kind: wire::UNREACHABLE, ..Known::new("10.1.0.0/16", &[]) },
    ] {
        let before = world.now();
        world.add(&route, false);
        world.settle(&before);
        world.check(true);
    }
    assert_eq!(world.plane.meets(ip("10.0.1.254")), Meets::Up(TrapReason::LocalAddress));
    assert_eq!(world.plane.meets(ip("10.0.1.5")), Meets::Up(TrapReason::Glean));
    let asks = world.mirror.asks(0, 10);
    assert_eq!(asks, [Ask { vrf: VRF, ifindex: 1, address: ip("10.0.1.5") }], "the gateway is asked for");
    assert_eq!(world.mirror.asks(999, 10), [], "and again after a while");
    assert_eq!(world.mirror.asks(1000, 10).len(), 1);
    let before = world.now();
    world.neighbour(1, "10.0.1.5", Some((Some(5), false)));
    world.settle(&before);
    world.check(true);
    assert!(matches!(world.plane.meets(ip("99.0.0.1")), Meets::Send(_)));
    assert_eq!(world.mirror.next_ask(), None);
    // The host's own route and the default route share the group and the adjacency.
    assert_eq!((world.plane.groups.len(), world.plane.adjacencies.len()), (1, 1));
    let offload = |world: &World, prefix: &str, local| world.mirror.offload(VRF, net(prefix), 0, local);
    assert_eq!(offload(&world, "0.0.0.0/0", false), Offload::Offloaded);
    assert_eq!(offload(&world, "10.0.1.0/24", false), Offload::Offloaded);
    assert_eq!(offload(&world, "10.0.1.254/32", true), Offload::Trapped);
    assert_eq!(offload(&world, "10.77.0.0/16", false), Offload::None);
    world.set_rifs(&[]);
    assert!(
        world.plane.routes.is_empty() && world.plane.groups.is_empty() && world.plane.adjacencies.is_empty()
    );
    assert_eq!(offload(&world, "0.0.0.0/0", false), Offload::None);
    world.set_rifs(&[1, 2]);
    world.check(true);
}

#[test]
fn a_next_hop_dies_and_no_route_changes() {
    let mut world = exact();
    for (ifindex, gateway) in [(1, "10.0.1.1"), (2, "10.0.2.1"), (3, "10.0.3.1")] {
        world.neighbour(ifindex, gateway, Some((Some(1), false)));
    }
    let next_hops = [(1, "10.0.1.1"), (2, "10.0.2.1"), (3, "10.0.3.1")];
    for third in 0..=255u8 {
        world.add(&Known::new(&format!("10.{third}.0.0/16"), &next_hops), false);
    }
    let before = vec![Meets::Drop; 8];
    world.probes.clear();
    world.settle(&before);
    world.probes = PROBES[3..].iter().map(|text| ip(text)).collect();
    assert_eq!(world.plane.groups.len(), 1);
    let owners = world.plane.groups.values().next().expect("a group").clone();
    let count = world.changes;
    world.down.insert(2);
    world.mirror.link(VRF, 2, false);
    assert!(world.mirror.audit_wanted(VRF), "the kernel may have flushed routes without a word");
    let mut out = Vec::new();
    world.mirror.poll(1, &mut out);
    let groups = out.iter().filter(|change| matches!(change, RouteChange::Group(..))).count();
    assert!(groups == 1 && out.len() <= 2, "{out:?}");
    let before = world.now();
    world.hand(&out, &before);
    world.check(true);
    let lent = world.plane.groups.values().next().expect("a group").clone();
    let dead = owners
        .iter()
        .zip(&lent)
        .filter(|(own, lent)| own != lent)
        .map(|(own, _)| *own)
        .collect::<BTreeSet<_>>();
    assert_eq!(dead.len(), 1, "only the dead one's buckets are lent");
    world.down.remove(&2);
    world.mirror.link(VRF, 2, true);
    world.settle(&before);
    assert_eq!(*world.plane.groups.values().next().expect("a group"), owners);
    assert!(world.changes - count < 10, "no route was touched");
    // A neighbour that failed stays dead after the kernel has removed its entry.
    for state in [Some((None, true)), None] {
        world.neighbour(3, "10.0.3.1", state);
        world.settle(&before);
        let Meets::Send(next_hops) = world.plane.meets(ip("10.1.1.5")) else { panic!("a group") };
        assert_eq!(next_hops.iter().map(|(rif, _)| rif.get()).collect::<Vec<_>>(), [1, 2]);
    }
}

#[test]
fn next_hop_objects() {
    let mut world = exact();
    world.probes.clear();
    let next_hop = |world: &mut World, id: u32, attribute: &[u8], gone: bool| {
        let mut body = vec![2, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0];
        body.extend(id.to_ne_bytes());
        body.extend(attribute);
        world.mirror.nexthop(VRF, &NextHopObject::new(&body).expect("an object"), gone);
        world.settle(&[]);
    };
    let one = |ifindex: u8, last: u8| [8, 0, 5, 0, ifindex, 0, 0, 0, 8, 0, 6, 0, 10, 0, ifindex, last];
    let group = |members: &[(u8, u8)]| {
        let mut value = vec![4 + members.len() as u8 * 8, 0, 2, 0];
        for (id, weight) in members {
            value.extend([*id, 0, 0, 0, weight - 1, 0, 0, 0]);
        }
        value
    };
    world.neighbour(1, "10.0.1.1", Some((Some(1), false)));
    world.neighbour(2, "10.0.2.1", Some((Some(1), false)));
    // A route's event may arrive before that of its next-hop object.
    world.add(&Known { object: Some(9), ..Known::new("10.1.0.0/16", &[]) }, false);
    world.settle(&[]);
    let meets = |world: &World| world.plane.meets(ip("10.1.1.1"));
    assert_eq!(meets(&world), Meets::Up(TrapReason::RoutePolicy));
    let was = world.changes;
    next_hop(&mut world, 1, &one(1, 1), false);
    next_hop(&mut world, 2, &one(2, 1), false);
    next_hop(&mut world, 9, &group(&[(1, 1), (2, 3)]), false);
    let Meets::Send(next_hops) = meets(&world) else { panic!("a group") };
    assert_eq!(next_hops.len(), 2);
    let buckets = |world: &World| world.plane.groups.values().next().expect("a group").clone();
    let before = buckets(&world);
    assert!(world.changes > was);
    // A member is removed: the group changes, and other buckets keep their owners.
    next_hop(&mut world, 9, &group(&[(1, 1)]), false);
    next_hop(&mut world, 9, &group(&[(1, 1), (2, 3)]), false);
    let moved = before.iter().zip(buckets(&world)).filter(|(old, new)| **old != *new).count();
    assert!(moved <= before.len() / 2, "{moved}");
    next_hop(&mut world, 9, &[4, 0, 4, 0], false);
    assert_eq!(meets(&world), Meets::Drop);
    next_hop(&mut world, 9, &[], true);
    assert_eq!(meets(&world), Meets::Up(TrapReason::RoutePolicy), "until the audit finds the route gone");
    assert!(world.mirror.audit_wanted(VRF));
    world.check_clean();
}

#[test]
fn ipv6_next_hops_are_added_and_removed_one_by_one() {
    let mut world = exact();
    world.probes.clear();
    let two = [(1, "fd00:1::1"), (2, "fd00:2::1")];
    for (ifindex, gateway) in two {
        world.neighbour(ifindex, gateway, Some((Some(1), false)));
    }
    let route = |next_hops: &[(u32, &str)]| Known { metric: 1024, ..Known::new("2001:db8::/32", next_hops) };
    let next_hops = |world: &World| match world.plane.meets(ip("2001:db8::1")) {
        Meets::Send(next_hops) => next_hops.len(),
        _ => 0,
    };
    world.feed(&route(&two[..1]), Origin::New(0));
    world.settle(&[]);
    assert_eq!(next_hops(&world), 1);
    // `ip route append`: the message describes the whole route.
    world.feed(&route(&two), Origin::New(wire::FLAG_APPEND));
    world.settle(&[]);
    assert_eq!(next_hops(&world), 2);
    world.feed(&route(&two[..1]), Origin::Gone);
    world.settle(&[]);
    assert_eq!(next_hops(&world), 1);
    world.feed(&route(&two[1..]), Origin::Gone);
    world.settle(&[]);
    assert_eq!((next_hops(&world), world.plane.routes.contains_key(&net("2001:db8::/32"))), (0, false));
    // The same prefix on two links is two routes.
    for ifindex in [1, 2] {
        world.feed(&Known { metric: 256, ..Known::new("fd00:9::/64", &[(ifindex, "")]) }, Origin::New(0));
    }
    world.feed(&Known { metric: 256, ..Known::new("fd00:9::/64", &[(2, "")]) }, Origin::Gone);
    world.settle(&[]);
    assert_eq!(world.plane.meets(ip("fd00:9::1")), Meets::Up(TrapReason::Glean));
    for apart in ["fe80::/64", "ff00::/8", "::1/128"] {
        world.feed(&Known::new(apart, &[(1, "")]), Origin::New(0));
    }
    world.settle(&[]);
    assert_eq!(world.plane.routes.len(), 1, "{:?}", world.plane.routes);
}

#[test]
fn routes_the_plane_does_not_support_are_trapped() {
    let check = |change: fn(&mut Route<'_>), hops: &[Hop]| {
        let mut route = Route::to(net("10.1.0.0/16"));
        route.table = 254;
        change(&mut route);
        let mut world = exact();
        world.probes.clear();
        world.add(&Known::new("0.0.0.0/0", &[(1, "10.0.1.1")]), false);
        let mut out = Vec::new();
        let mut writer = Writer::route(&mut out, wire::NEW_ROUTE, 0, &route);
        writer.hops(route.dest, hops);
        writer.end();
        let mut parsed = Route::new(&out[wire::HEADER_LEN..]).expect("well formed");
        parsed.source_specific = route.source_specific;
        parsed.encapsulates = route.encapsulates;
        parsed.limits_mtu = route.limits_mtu;
        world.mirror.route(VRF, &parsed, Origin::New(0));
        world.settle(&[]);
        assert_eq!(world.plane.meets(ip("10.1.1.1")), Meets::Up(TrapReason::RoutePolicy), "{parsed:?}");
        if parsed.table == 254 {
            assert_eq!(world.mirror.offload(VRF, net("10.1.0.0/16"), 0, false), Offload::Trapped);
        }
    };
    let hop = |ifindex: u32, via: Option<&str>| Hop { via: via.map(ip), ifindex, weight: 1, flags: 0 };
    let one = [hop(1, Some("10.0.1.1"))];
    check(|route| route.tos = 8, &one);
    check(|route| route.source_specific = true, &one);
    check(|route| route.encapsulates = true, &one);
    check(|route| route.limits_mtu = true, &one);
    check(|route| route.kind = 9, &[]);
    check(|route| route.table = 253, &one);
    check(|_| {}, &[hop(77, Some("10.0.1.1"))]);
    check(|_| {}, &[hop(1, Some("10.0.1.1")), hop(77, Some("10.0.1.2"))]);
    check(|_| {}, &[hop(1, None), hop(2, Some("10.0.2.1"))]);
    check(|route| route.nexthop_id = Some(4), &one);
}

#[test]
fn an_audit_changes_only_differences() {
    let mut world = exact();
    world.probes.clear();
    world.neighbour(1, "10.0.1.1", Some((Some(1), false)));
    for third in 0..100u8 {
        world.add(&Known::new(&format!("10.1.{third}.0/24"), &[(1, "10.0.1.1")]), false);
    }
    world.settle(&[]);
    let (count, state) = (world.changes, format!("{:?}", world.mirror.usage()));
    world.audit();
    world.settle(&[]);
    assert_eq!((world.changes, format!("{:?}", world.mirror.usage())), (count, state));
    // Lost events: two routes removed, one changed, one added.
    world.delete(3, true);
    world.delete(3, true);
    world.add(&Known { kind: wire::BLACKHOLE, ..Known::new("10.1.9.0/24", &[]) }, true);
    world.add(&Known::new("10.2.0.0/16", &[(1, "10.0.1.1")]), true);
    world.audit();
    // Events that arrive during the listing override it.
    world.mirror.audit(VRF);
    for ifindex in [1, 2, 3] {
        world.mirror.listed_link(VRF, ifindex, true);
    }
    let stale = Known::new("10.1.50.0/24", &[(1, "10.0.1.1")]);
    let at = world.routes.iter().position(|route| *route == stale).expect("there");
    world.delete(at, false);
    let listing = world.routes.clone();
    world.feed(&stale, Origin::Listed);
    let late = Known::new("10.3.0.0/16", &[(1, "10.0.1.1")]);
    world.add(&late, false);
    for route in listing {
        world.feed(&route, Origin::Listed);
    }
    for ((address, ifindex), state) in world.neighbours.clone() {
        world.mirror.listed_neighbour(VRF, ifindex, address, state);
    }
    world.mirror.audited(VRF, true);
    world.settle(&[]);
    assert_eq!(world.changes, count + 2 + 1 + 1 + 1 + 1);
    let want: BTreeSet<IpNet> = world.routes.iter().map(|route| route.prefix).collect();
    assert_eq!(world.plane.routes.keys().copied().collect::<BTreeSet<_>>(), want);
}
