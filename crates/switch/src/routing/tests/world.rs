//! A kernel that is a list of routes, a plane that is a map, and the mirror between them.

use super::*;

/// A plane that records what it is given, and refuses dangling references and entries beyond its limits.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) routes: HashMap<IpNet, RouteTarget>,
    pub(super) groups: HashMap<GroupId, Vec<AdjacencyId>>,
    pub(super) adjacencies: HashMap<AdjacencyId, Adjacency>,
    pub(super) room: Option<usize>,
}

impl Fake {
    pub(super) fn apply(&mut self, change: &RouteChange) -> Result<(), PlaneError> {
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
    pub(super) fn meets(&self, address: IpAddr) -> Meets {
        let longest = self.routes.iter().filter(|(prefix, _)| prefix.contains(&address));
        match longest.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, target)| *target) {
            None => Meets::Up(TrapReason::NoRoute),
            Some(RouteTarget::Up(reason)) => Meets::Up(reason),
            Some(RouteTarget::Connected(_)) => Meets::Up(TrapReason::Glean),
            Some(RouteTarget::Blackhole) => Meets::Drop,
            Some(RouteTarget::Group(id)) => {
                let next_hops = self.groups[&id].iter().map(|id| self.adjacencies[id]);
                Meets::Send(next_hops.map(|hop| (hop.rif, hop.mac)).collect()).plain()
            }
        }
    }
}

/// The fate of frames for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meets {
    Up(TrapReason),
    Drop,
    /// They are sent to one of these; without a MAC address they go to the kernel.
    Send(BTreeSet<(RifId, Option<MacAddr>)>),
}

impl Meets {
    /// Treats next hops of which none is resolved as gleaned.
    pub(super) fn plain(self) -> Self {
        match self {
            Self::Send(next_hops) if next_hops.iter().all(|(_, mac)| mac.is_none()) => {
                Self::Up(TrapReason::Glean)
            }
            other => other,
        }
    }
    /// True if every frame is treated as in `a` or as in `b`, or goes to the kernel.
    pub(super) fn is_between(&self, a: &Self, b: &Self) -> bool {
        match self {
            Self::Up(_) => true,
            Self::Drop => *a == Self::Drop || *b == Self::Drop,
            Self::Send(next_hops) => next_hops.iter().all(|hop| {
                hop.1.is_none() || [a, b].into_iter().any(|x| matches!(x, Self::Send(of) if of.contains(hop)))
            }),
        }
    }
}

/// A route of the simulated kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) prefix: IpNet,
    pub(super) table: u32,
    pub(super) kind: u8,
    pub(super) metric: u32,
    pub(super) hops: Vec<(u32, Option<IpAddr>, u32)>,
    pub(super) object: Option<u32>,
}

impl Known {
    pub(super) fn new(text: &str, via: &[(u32, &str)]) -> Self {
        let hop = |(ifindex, via): &(u32, &str)| (*ifindex, (!via.is_empty()).then(|| ip(via)), 1);
        let hops = via.iter().map(hop).collect();
        Self { prefix: net(text), table: 254, kind: wire::UNICAST, metric: 0, hops, object: None }
    }
    pub(super) fn message(&self) -> Vec<u8> {
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
pub(super) struct World {
    pub(super) routes: Vec<Known>,
    pub(super) neighbours: BTreeMap<(IpAddr, u32), Neighbour>,
    pub(super) down: BTreeSet<u32>,
    pub(super) rifs: BTreeMap<u32, RifId>,
    pub(super) mirror: Routing,
    pub(super) plane: Fake,
    pub(super) probes: Vec<IpAddr>,
    pub(super) changes: usize,
}

pub(super) const PROBES: [&str; 8] =
    ["10.0.1.5", "10.0.1.6", "10.0.2.7", "10.1.1.5", "10.1.1.6", "10.1.9.9", "10.9.9.9", "99.0.0.1"];

impl World {
    pub(super) fn new(limits: Limits, room: Option<usize>) -> Self {
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
    pub(super) fn set_rifs(&mut self, list: &[u32]) {
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
                self.plane.adjacencies.values().all(|hop| step.values().any(|rif| *rif == hop.rif)),
                "a rif is let go of"
            );
        }
    }
    pub(super) fn feed(&mut self, route: &Known, origin: Origin) {
        let message = route.message();
        self.mirror.route(VRF, &Route::new(&message[wire::HEADER_LEN..]).expect("well formed"), origin);
    }
    /// Adds or replaces a route as the kernel does, and sends the event unless `lost`.
    pub(super) fn add(&mut self, route: &Known, lost: bool) {
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
    pub(super) fn delete(&mut self, at: usize, lost: bool) {
        let route = self.routes.remove(at);
        if !lost {
            self.feed(&route, Origin::Gone);
        }
    }
    pub(super) fn neighbour(&mut self, ifindex: u32, address: &str, state: Option<(Option<u8>, bool)>) {
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
    /// The fate of frames for `address` in the simulated kernel.
    pub(super) fn expected(&self, address: IpAddr) -> Meets {
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
    pub(super) fn expectations(&self) -> Vec<Meets> {
        self.probes.iter().map(|address| self.expected(*address)).collect()
    }
    /// The fate of frames for the probe addresses in the plane.
    pub(super) fn now(&self) -> Vec<Meets> {
        self.probes.iter().map(|address| self.plane.meets(*address)).collect()
    }
    /// Applies `changes` to the plane one by one, and checks after each that every address meets its target of `before`
    /// or its new one.
    pub(super) fn hand(&mut self, changes: &[RouteChange], before: &[Meets]) {
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
                self.mirror.refuse(0, change);
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
    pub(super) fn settle(&mut self, before: &[Meets]) {
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
    pub(super) fn check(&mut self, exact: bool) {
        for (address, want) in self.probes.iter().zip(self.expectations()) {
            let meets = self.plane.meets(*address);
            let good = if exact { meets == want } else { meets.is_between(&want, &want) };
            assert!(good, "{address} meets {meets:?} and not {want:?}; {:#?}", self.routes);
        }
    }
    pub(super) fn audit(&mut self) {
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
    pub(super) fn check_clean(&self) {
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
