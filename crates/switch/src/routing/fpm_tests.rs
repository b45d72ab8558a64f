//! Routes from FPM next to those of the kernel.

use super::*;
use lanyard_fpm::{Hop, NextHopSet, NextHopSetId, Route as FpmRoute, Update};
use lanyard_plane::{Adjacency, RouteTarget};
use lanyard_types::{AdjacencyId, GroupId, MacAddr};
use lanyard_wire::rtnetlink::Writer;
use std::collections::HashMap;

const VRF: VrfId = VrfId::DEFAULT;

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// The mirror, and a plane that records what it is given.
struct Bed {
    routing: Routing,
    routes: HashMap<IpNet, RouteTarget>,
    groups: HashMap<GroupId, Vec<AdjacencyId>>,
    adjacencies: HashMap<AdjacencyId, Adjacency>,
    /// A route that the plane refuses because it has no room.
    full: Option<IpNet>,
    /// The number of routes changed by the last `settle`.
    changed: usize,
}

impl Bed {
    /// Interfaces 1 to 3, each with a neighbour 10.0.N.1 whose address ends in N.
    fn new() -> Self {
        let mut routing = Routing::default();
        let rifs = (1..=3).filter_map(|n| Some((n, RifId::new(n as u16)?))).collect();
        routing.set_rifs(VRF, &rifs, &mut Vec::new());
        routing.audit(VRF);
        for n in 1..=3u8 {
            routing.listed_link(VRF, n.into(), true);
            let neighbour = Neighbour { mac: Some(MacAddr([2, 0, 0, 0, 0, n])), failed: false, stale: false };
            routing.listed_neighbour(VRF, n.into(), IpAddr::from([10, 0, n, 1]), neighbour);
        }
        routing.audited(VRF, true);
        let (routes, groups, adjacencies) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut bed = Self { routing, routes, groups, adjacencies, full: None, changed: 0 };
        bed.settle();
        bed
    }
    fn settle(&mut self) {
        self.changed = 0;
        let mut more = true;
        while more {
            let mut changes = Vec::new();
            more = self.routing.poll(10, &mut changes);
            for change in changes {
                match &change {
                    RouteChange::Route(_, prefix, Some(_)) if self.full == Some(*prefix) => {
                        self.routes.remove(prefix);
                        self.routing.refuse(0, &change);
                        more = true;
                    }
                    RouteChange::Route(_, prefix, target) => {
                        self.changed += 1;
                        match target {
                            Some(target) => drop(self.routes.insert(*prefix, *target)),
                            None => drop(self.routes.remove(prefix)),
                        }
                    }
                    RouteChange::Group(id, Some(buckets)) => drop(self.groups.insert(*id, buckets.clone())),
                    RouteChange::Group(id, None) => drop(self.groups.remove(id)),
                    RouteChange::Adjacency(id, Some(to)) => drop(self.adjacencies.insert(*id, *to)),
                    RouteChange::Adjacency(id, None) => drop(self.adjacencies.remove(id)),
                    RouteChange::VrfGone(_) => self.routes.clear(),
                }
            }
        }
    }
    fn fpm(&mut self, updates: &[Update]) {
        self.routing.fpm(VRF, updates.to_vec());
        self.settle();
    }
    /// The kernel's route to `dest` through the neighbour at interface `n`.
    fn kernel(&mut self, dest: &str, n: u8, origin: Origin) {
        let mut route = Route::to(net(dest));
        (route.table, route.metric) = (254, 20);
        let mut out = Vec::new();
        let mut writer = Writer::route(&mut out, wire::NEW_ROUTE, 0, &route);
        writer.hops(route.dest, &[hop(n, 1)]);
        writer.end();
        let body = &out[wire::HEADER_LEN..];
        self.routing.route(VRF, &Route::new(body).expect("a route"), origin);
        self.settle();
    }
    /// The interfaces by which the plane forwards frames for a prefix; empty when it sends them to the kernel or drops
    /// them.
    fn leaves(&self, dest: &str) -> BTreeSet<u16> {
        match self.routes.get(&net(dest)) {
            Some(RouteTarget::Group(id)) => {
                self.groups[id].iter().map(|id| self.adjacencies[id].rif.get()).collect()
            }
            _ => BTreeSet::new(),
        }
    }
    fn programmed(&mut self) -> Vec<(String, Offload)> {
        let mut programmed: Vec<_> =
            self.routing.fpm_settled().into_iter().map(|(_, prefix)| prefix).collect();
        programmed.sort();
        programmed.dedup();
        programmed.iter().map(|prefix| (prefix.to_string(), self.routing.fpm_offload(VRF, *prefix))).collect()
    }
}

fn hop(n: u8, weight: u32) -> Hop {
    Hop { via: Some(IpAddr::from([10, 0, n, 1])), ifindex: n.into(), weight, flags: 0 }
}

fn way(id: u32, hops: &[Hop]) -> Update {
    Update::NextHops(NextHopSetId(id), NextHopSet::Hops(hops.into()))
}

fn set(dest: &str, id: u32) -> Update {
    Update::Route(net(dest), Some(FpmRoute { protocol: 186, metric: 20, next_hops: NextHopSetId(id) }))
}

fn unset(dest: &str) -> Update {
    Update::Route(net(dest), None)
}

#[test]
fn before_the_kernels_and_after_it() {
    let mut bed = Bed::new();
    bed.kernel("10.9.0.0/16", 1, Origin::New(0));
    assert_eq!(bed.leaves("10.9.0.0/16"), [1].into());
    bed.fpm(&[way(0, &[hop(2, 1), hop(3, 1)]), set("10.9.0.0/16", 0), set("10.8.0.0/16", 0)]);
    assert_eq!(bed.leaves("10.9.0.0/16"), [2, 3].into());
    assert_eq!(bed.leaves("10.8.0.0/16"), [2, 3].into(), "the kernel need not have it");
    assert_eq!(bed.routing.offload(VRF, net("10.9.0.0/16"), 20, false), Offload::Offloaded, "as `show` asks");
    let offloaded = |dest: &str| (dest.to_owned(), Offload::Offloaded);
    assert_eq!(bed.programmed(), [offloaded("10.8.0.0/16"), offloaded("10.9.0.0/16")]);
    // The kernel's route changes: the one from FPM is still used.
    bed.kernel("10.9.0.0/16", 1, Origin::Gone);
    bed.kernel("10.9.0.0/16", 3, Origin::New(0));
    assert_eq!(bed.leaves("10.9.0.0/16"), [2, 3].into());
    // An audit lists the kernel's routes only.
    bed.routing.audit(VRF);
    bed.kernel("10.9.0.0/16", 3, Origin::Listed);
    bed.routing.audited(VRF, true);
    bed.settle();
    assert_eq!(bed.leaves("10.8.0.0/16"), [2, 3].into());
    bed.fpm(&[unset("10.9.0.0/16"), unset("10.8.0.0/16"), Update::NextHopsRemoved(NextHopSetId(0))]);
    assert_eq!((bed.leaves("10.9.0.0/16"), bed.routes.len()), ([3].into(), 1), "the kernel's");
}

#[test]
fn a_way_changes_and_no_route() {
    let mut bed = Bed::new();
    let dests: Vec<String> = (0..50).map(|n| format!("10.9.{n}.0/24")).collect();
    let mut updates = vec![way(7, &[hop(1, 1)])];
    updates.extend(dests.iter().map(|dest| set(dest, 7)));
    bed.fpm(&updates);
    assert_eq!(bed.changed, 50);
    bed.fpm(&[way(7, &[hop(2, 1), hop(3, 2)])]);
    assert_eq!((bed.changed, bed.leaves(&dests[9])), (0, [2, 3].into()));
    // The set becomes one of another kind: each route gets another target, and the client is answered.
    bed.programmed();
    bed.fpm(&[Update::NextHops(NextHopSetId(7), NextHopSet::Kernel)]);
    assert_eq!(bed.leaves(&dests[9]), [].into());
    assert!(bed.programmed().iter().all(|(_, offload)| *offload == Offload::Trapped) && bed.changed == 50);
    bed.fpm(&[Update::NextHops(NextHopSetId(7), NextHopSet::Blackhole)]);
    assert_eq!(bed.routes[&net(&dests[9])], RouteTarget::Blackhole);
    assert_eq!(bed.programmed().len(), 50);
}

#[test]
fn a_number_that_is_used_again_is_another_way() {
    let mut bed = Bed::new();
    bed.fpm(&[way(0, &[hop(1, 1)]), set("10.8.0.0/16", 0)]);
    // One batch, applied to the plane one prefix at a time: at no moment are packets for 10.8/16 sent to the new next
    // hops.
    let updates = [
        unset("10.8.0.0/16"),
        Update::NextHopsRemoved(NextHopSetId(0)),
        way(0, &[hop(2, 1)]),
        set("10.9.0.0/16", 0),
    ];
    bed.routing.fpm(VRF, updates.to_vec());
    let mut more = true;
    while more {
        let mut changes = Vec::new();
        more = bed.routing.poll(1, &mut changes);
        for change in changes {
            if let RouteChange::Group(id, Some(buckets)) = &change {
                assert!(bed.groups.get(id).is_none_or(|old| old == buckets), "an old group is led astray");
            }
        }
    }
}

#[test]
fn unsupported_fpm_routes_are_trapped_and_routes_without_room_failed() {
    let mut bed = Bed::new();
    bed.full = Some(net("10.7.0.0/16"));
    let elsewhere = Hop { ifindex: 99, ..hop(1, 1) };
    bed.fpm(&[
        way(0, &[hop(1, 1)]),
        way(1, &[elsewhere]),
        Update::NextHops(NextHopSetId(2), NextHopSet::Unreachable),
        Update::NextHops(NextHopSetId(3), NextHopSet::Hops([Hop { via: None, ..hop(1, 1) }].into())),
        set("10.6.0.0/16", 1),
        set("10.7.0.0/16", 0),
        set("10.8.0.0/16", 2),
        set("10.9.0.0/16", 3),
        set("fe80::/64", 3),
    ]);
    let want = [
        ("10.6.0.0/16", Offload::Trapped),
        ("10.7.0.0/16", Offload::Failed),
        ("10.8.0.0/16", Offload::Trapped),
        ("10.9.0.0/16", Offload::Offloaded),
        ("fe80::/64", Offload::Trapped),
    ];
    assert_eq!(bed.programmed(), want.map(|(dest, offload)| (dest.to_owned(), offload)));
    bed.routing.set_policy(VRF, false, true);
    assert_eq!(bed.routing.fpm_offload(VRF, net("10.9.0.0/16")), Offload::Trapped, "rules of the kernel's");
}
