//! Tests the mirror between a kernel that is a list of routes and a plane that is a map.
//!
//! Invariant checked after every single change: a frame meets its old target or its new one, or goes to the kernel.

mod random;

use super::*;
use lanyard_plane::{Adjacency, PlaneError, RouteTarget};
use lanyard_types::{GroupId, MacAddr, TrapReason};
use lanyard_wire::rtnetlink::{Hop, Route, Writer};
use std::collections::HashMap;

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

/// A plane that records what it is given, and refuses dangling references and entries beyond its limits.
#[derive(Default)]
struct Fake {
    routes: HashMap<IpNet, RouteTarget>,
    groups: HashMap<GroupId, Vec<AdjacencyId>>,
    adjacencies: HashMap<AdjacencyId, Adjacency>,
    room: Option<usize>,
}

impl Fake {
    fn apply(&mut self, change: &RouteChange) -> Result<(), PlaneError> {
        let dangling = |what: String| Err(PlaneError::Invalid(what));
        match change {
            RouteChange::Adjacency(id, Some(value)) => {
                self.adjacencies.insert(*id, *value).map_or((), |_| ())
            }
            RouteChange::Adjacency(id, None) => {
                if self.groups.values().flatten().any(|used| used == id) {
                    return dangling(format!("adjacency {id} is in use"));
                }
                assert!(self.adjacencies.remove(id).is_some(), "an adjacency that was there");
            }
            RouteChange::Group(id, Some(buckets)) => {
                assert!(buckets.len().is_power_of_two() && buckets.len() <= lanyard_plane::BUCKETS);
                if let Some(lost) = buckets.iter().find(|bucket| !self.adjacencies.contains_key(bucket)) {
                    return dangling(format!("group {id} names adjacency {lost}"));
                }
                self.groups.insert(*id, buckets.clone());
            }
            RouteChange::Group(id, None) => {
                if self.routes.values().any(|target| *target == RouteTarget::Group(*id)) {
                    return dangling(format!("group {id} is in use"));
                }
                drop(self.groups.remove(id).expect("a group that was there"));
            }
            RouteChange::Route(_, prefix, Some(target)) => {
                if let RouteTarget::Group(id) = target
                    && !self.groups.contains_key(id)
                {
                    return dangling(format!("{prefix} names group {id}"));
                }
                let full = self.room.is_some_and(|room| self.routes.len() >= room);
                if full && !self.routes.contains_key(prefix) {
                    return Err(PlaneError::TableFull { table: "fib", size: self.routes.len() as u64 });
                }
                self.routes.insert(*prefix, *target);
            }
            RouteChange::Route(_, prefix, None) => drop(self.routes.remove(prefix)),
            RouteChange::VrfGone(_) => self.routes.clear(),
        }
        Ok(())
    }
    fn meets(&self, address: IpAddr) -> Meets {
        let longest = self.routes.iter().filter(|(prefix, _)| prefix.contains(&address));
        match longest.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, target)| *target) {
            None => Meets::Up(TrapReason::NoRoute),
            Some(RouteTarget::Up(reason)) => Meets::Up(reason),
            Some(RouteTarget::Connected(_)) => Meets::Up(TrapReason::Glean),
            Some(RouteTarget::Blackhole) => Meets::Drop,
            Some(RouteTarget::Group(id)) => {
                let ways = self.groups[&id].iter().map(|id| self.adjacencies[id]);
                Meets::Send(ways.map(|way| (way.rif, way.mac)).collect()).plain()
            }
        }
    }
}

/// What happens to frames for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meets {
    Up(TrapReason),
    Drop,
    /// They are sent to one of these; without a MAC address they go to the kernel.
    Send(BTreeSet<(RifId, Option<MacAddr>)>),
}

impl Meets {
    /// Treats next hops of which none is resolved as gleaned.
    fn plain(self) -> Self {
        match self {
            Self::Send(ways) if ways.iter().all(|(_, mac)| mac.is_none()) => Self::Up(TrapReason::Glean),
            other => other,
        }
    }
    /// True if every frame is treated as in `a` or as in `b`, or goes to the kernel.
    fn is_between(&self, a: &Self, b: &Self) -> bool {
        match self {
            Self::Up(_) => true,
            Self::Drop => *a == Self::Drop || *b == Self::Drop,
            Self::Send(ways) => ways.iter().all(|way| {
                way.1.is_none() || [a, b].into_iter().any(|x| matches!(x, Self::Send(of) if of.contains(way)))
            }),
        }
    }
}

/// A route of the simulated kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    prefix: IpNet,
    table: u32,
    kind: u8,
    metric: u32,
    hops: Vec<(u32, Option<IpAddr>, u32)>,
    object: Option<u32>,
}

impl Known {
    fn new(text: &str, via: &[(u32, &str)]) -> Self {
        let hop = |(ifindex, via): &(u32, &str)| (*ifindex, (!via.is_empty()).then(|| ip(via)), 1);
        let hops = via.iter().map(hop).collect();
        Self { prefix: net(text), table: 254, kind: wire::UNICAST, metric: 0, hops, object: None }
    }
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut value = Route::to(self.prefix);
        (value.table, value.kind) = (self.table, self.kind);
        (value.metric, value.nexthop_id) = (self.metric, self.object);
        let mut writer = Writer::route(&mut out, wire::NEW_ROUTE, 0, &value);
        let hops: Vec<Hop> = self
            .hops
            .iter()
            .map(|(ifindex, via, weight)| Hop { via: *via, ifindex: *ifindex, weight: *weight, flags: 0 })
            .collect();
        writer.hops(self.prefix, &hops);
        writer.end();
        out
    }
}

/// The simulated kernel, the mirror and the plane.
struct World {
    routes: Vec<Known>,
    neighbours: BTreeMap<(IpAddr, u32), Neighbour>,
    down: BTreeSet<u32>,
    rifs: BTreeMap<u32, RifId>,
    mirror: Routing,
    plane: Fake,
    probes: Vec<IpAddr>,
    changes: usize,
}

const PROBES: [&str; 8] =
    ["10.0.1.5", "10.0.1.6", "10.0.2.7", "10.1.1.5", "10.1.1.6", "10.1.9.9", "10.9.9.9", "99.0.0.1"];

impl World {
    fn new(limits: Limits, room: Option<usize>) -> Self {
        let mut world = Self {
            routes: Vec::new(),
            neighbours: BTreeMap::new(),
            down: BTreeSet::new(),
            rifs: BTreeMap::new(),
            mirror: Routing::new(limits),
            plane: Fake { room, ..Fake::default() },
            probes: PROBES.iter().map(|text| ip(text)).collect(),
            changes: 0,
        };
        world.audit();
        world.set_rifs(&[1, 2, 3]);
        world
    }
    fn set_rifs(&mut self, list: &[u32]) {
        let wanted: BTreeMap<u32, RifId> = list.iter().map(|ifindex| (*ifindex, rif(*ifindex))).collect();
        let before = self.now();
        let both: BTreeMap<_, _> =
            self.rifs.iter().filter(|(i, _)| wanted.contains_key(i)).map(|(i, r)| (*i, *r)).collect();
        self.rifs = wanted.clone();
        for step in [both, wanted] {
            let mut out = Vec::new();
            self.mirror.set_rifs(VRF, &step, &mut out);
            self.hand(&out, &before);
            self.settle(&before);
            assert!(
                self.plane.adjacencies.values().all(|way| step.values().any(|rif| *rif == way.rif)),
                "a rif is let go of"
            );
        }
    }
    fn feed(&mut self, route: &Known, origin: Origin) {
        let message = route.message();
        self.mirror.route(VRF, &Route::new(&message[wire::HEADER_LEN..]).expect("well formed"), origin);
    }
    /// Adds or replaces a route as the kernel does, and sends the event unless `lost`.
    fn add(&mut self, route: &Known, lost: bool) {
        let same = |other: &&mut Known| {
            (other.prefix, other.table, other.metric) == (route.prefix, route.table, route.metric)
        };
        match self.routes.iter_mut().find(same) {
            Some(old) => *old = route.clone(),
            None => self.routes.push(route.clone()),
        }
        if !lost {
            self.feed(route, Origin::New(wire::FLAG_REPLACE));
        }
    }
    fn delete(&mut self, at: usize, lost: bool) {
        let route = self.routes.remove(at);
        if !lost {
            self.feed(&route, Origin::Gone);
        }
    }
    fn neighbour(&mut self, ifindex: u32, address: &str, state: Option<(Option<u8>, bool)>) {
        let address = ip(address);
        let state = state.map(|(mac, failed)| Neighbour {
            mac: mac.map(|last| MacAddr([2, 0, 0, 0, ifindex as u8, last])),
            failed,
            stale: false,
        });
        let key = (address, ifindex);
        match state {
            Some(state) => drop(self.neighbours.insert(key, state)),
            None => drop(self.neighbours.remove(&key)),
        }
        self.mirror.neighbour(VRF, ifindex, address, state);
    }
    /// What the simulated kernel would do with frames for `address`.
    fn expected(&self, address: IpAddr) -> Meets {
        if self.rifs.is_empty() {
            return Meets::Up(TrapReason::NoRoute);
        }
        let fitting = self.routes.iter().filter(|route| route.prefix.contains(&address));
        let Some(route) =
            fitting.min_by_key(|r| (std::cmp::Reverse(r.prefix.prefix_len()), r.table == 254, r.metric))
        else {
            return Meets::Up(TrapReason::NoRoute);
        };
        match route.kind {
            wire::LOCAL => return Meets::Up(TrapReason::LocalAddress),
            wire::BLACKHOLE => return Meets::Drop,
            wire::UNREACHABLE => return Meets::Up(TrapReason::NoRoute),
            _ => {}
        }
        if route.hops.iter().any(|(ifindex, ..)| !self.rifs.contains_key(ifindex)) {
            return Meets::Up(TrapReason::RoutePolicy);
        }
        let mac = |ifindex: u32, address: IpAddr| {
            self.neighbours
                .get(&(address, ifindex))
                .filter(|_| !self.down.contains(&ifindex))
                .and_then(|n| n.mac)
        };
        if let [(ifindex, None, _)] = route.hops[..] {
            return match mac(ifindex, address) {
                Some(mac) => Meets::Send([(self.rifs[&ifindex], Some(mac))].into()),
                None => Meets::Up(TrapReason::Glean),
            };
        }
        let all: Vec<(u32, IpAddr)> =
            route.hops.iter().filter_map(|(i, via, _)| Some((*i, (*via)?))).collect();
        let alive: Vec<_> = all
            .iter()
            .copied()
            .filter(|(i, via)| {
                !self.down.contains(i)
                    && !self.neighbours.get(&(*via, *i)).is_some_and(|n| n.failed && n.mac.is_none())
            })
            .collect();
        let used = if alive.is_empty() { all } else { alive };
        Meets::Send(used.into_iter().map(|(i, via)| (self.rifs[&i], mac(i, via))).collect()).plain()
    }
    fn expectations(&self) -> Vec<Meets> {
        self.probes.iter().map(|address| self.expected(*address)).collect()
    }
    /// What the plane does with frames for the probe addresses.
    fn now(&self) -> Vec<Meets> {
        self.probes.iter().map(|address| self.plane.meets(*address)).collect()
    }
    /// Applies `changes` to the plane one by one, and checks after each that every address meets its target of `before`
    /// or its new one.
    fn hand(&mut self, changes: &[RouteChange], before: &[Meets]) {
        let after = self.expectations();
        for change in changes {
            self.changes += 1;
            let result = self.plane.apply(change);
            let refused = result.is_err();
            if let Err(error) = result {
                assert!(
                    matches!(error, PlaneError::TableFull { .. }) || self.plane.room.is_some(),
                    "{change:?}: {error}"
                );
                self.mirror.refuse(0, change, &error);
            }
            for ((address, before), after) in self.probes.iter().zip(before).zip(&after) {
                let meets = self.plane.meets(*address);
                // Later changes of the same batch correct what the plane just refused.
                assert!(
                    refused || self.plane.room.is_some() || meets.is_between(before, after),
                    "{change:?}: {address} meets {meets:?}: neither {before:?} nor {after:?}"
                );
            }
        }
    }
    fn settle(&mut self, before: &[Meets]) {
        for _ in 0..1000 {
            let mut out = Vec::new();
            let more = self.mirror.poll(3, &mut out);
            let idle = out.is_empty();
            self.hand(&out, before);
            if !more && idle {
                return;
            }
        }
        panic!("the mirror does not settle");
    }
    fn check(&mut self, exact: bool) {
        for (address, want) in self.probes.iter().zip(self.expectations()) {
            let meets = self.plane.meets(*address);
            let good = if exact { meets == want } else { meets.is_between(&want, &want) };
            assert!(good, "{address} meets {meets:?} and not {want:?}; {:#?}", self.routes);
        }
    }
    fn audit(&mut self) {
        self.mirror.audit(VRF);
        for ifindex in [1, 2, 3] {
            self.mirror.listed_link(VRF, ifindex, !self.down.contains(&ifindex));
        }
        for ((address, ifindex), state) in self.neighbours.clone() {
            self.mirror.listed_neighbour(VRF, ifindex, address, state);
        }
        for route in self.routes.clone() {
            self.feed(&route, Origin::Listed);
        }
        self.mirror.audited(VRF, true);
    }
    /// Checks that the plane has no entry that nothing needs.
    fn check_clean(&self) {
        let used: BTreeSet<_> = self
            .plane
            .routes
            .values()
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|t| match t {
                RouteTarget::Group(id) => Some(*id),
                _ => None,
            })
            .collect();
        assert_eq!(self.plane.groups.keys().copied().collect::<BTreeSet<_>>(), used, "groups");
        let adjacencies: BTreeSet<_> = self.plane.groups.values().flatten().copied().collect();
        // Dead neighbours keep their adjacencies, because they may recover.
        assert!(self.plane.adjacencies.len() >= adjacencies.len());
        let usage = self.mirror.usage();
        assert_eq!(
            (usage.groups, usage.adjacencies),
            (self.plane.groups.len() as u64, self.plane.adjacencies.len() as u64)
        );
    }
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
    let ways = [(1, "10.0.1.1"), (2, "10.0.2.1"), (3, "10.0.3.1")];
    for third in 0..=255u8 {
        world.add(&Known::new(&format!("10.{third}.0.0/16"), &ways), false);
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
        let Meets::Send(ways) = world.plane.meets(ip("10.1.1.5")) else { panic!("a group") };
        assert_eq!(ways.iter().map(|(rif, _)| rif.get()).collect::<Vec<_>>(), [1, 2]);
    }
}

#[test]
fn next_hop_objects() {
    let mut world = exact();
    world.probes.clear();
    let tell = |world: &mut World, id: u32, attribute: &[u8], gone: bool| {
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
    tell(&mut world, 1, &one(1, 1), false);
    tell(&mut world, 2, &one(2, 1), false);
    tell(&mut world, 9, &group(&[(1, 1), (2, 3)]), false);
    let Meets::Send(ways) = meets(&world) else { panic!("a group") };
    assert_eq!(ways.len(), 2);
    let buckets = |world: &World| world.plane.groups.values().next().expect("a group").clone();
    let before = buckets(&world);
    assert!(world.changes > was);
    // A member is removed: the group changes, and other buckets keep their owners.
    tell(&mut world, 9, &group(&[(1, 1)]), false);
    tell(&mut world, 9, &group(&[(1, 1), (2, 3)]), false);
    let moved = before.iter().zip(buckets(&world)).filter(|(old, new)| **old != *new).count();
    assert!(moved <= before.len() / 2, "{moved}");
    tell(&mut world, 9, &[4, 0, 4, 0], false);
    assert_eq!(meets(&world), Meets::Drop);
    tell(&mut world, 9, &[], true);
    assert_eq!(meets(&world), Meets::Up(TrapReason::RoutePolicy), "until the audit finds the route gone");
    assert!(world.mirror.audit_wanted(VRF));
    world.check_clean();
}

#[test]
fn ipv6_tells_of_members_one_by_one() {
    let mut world = exact();
    world.probes.clear();
    let two = [(1, "fd00:1::1"), (2, "fd00:2::1")];
    for (ifindex, gateway) in two {
        world.neighbour(ifindex, gateway, Some((Some(1), false)));
    }
    let route = |ways: &[(u32, &str)]| Known { metric: 1024, ..Known::new("2001:db8::/32", ways) };
    let ways = |world: &World| match world.plane.meets(ip("2001:db8::1")) {
        Meets::Send(ways) => ways.len(),
        _ => 0,
    };
    world.feed(&route(&two[..1]), Origin::New(0));
    world.settle(&[]);
    assert_eq!(ways(&world), 1);
    // `ip route append`: the message describes the whole route.
    world.feed(&route(&two), Origin::New(wire::FLAG_APPEND));
    world.settle(&[]);
    assert_eq!(ways(&world), 2);
    world.feed(&route(&two[..1]), Origin::Gone);
    world.settle(&[]);
    assert_eq!(ways(&world), 1);
    world.feed(&route(&two[1..]), Origin::Gone);
    world.settle(&[]);
    assert_eq!((ways(&world), world.plane.routes.contains_key(&net("2001:db8::/32"))), (0, false));
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
fn what_the_plane_cannot_do_goes_up() {
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
