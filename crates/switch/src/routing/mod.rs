//! Mirrors the kernel's routing tables into a plane: kernel messages in, [`RouteChange`]s out.
//!
//! Read first: ip-route(8), ip-nexthop(8), ip-rule(8); docs/routing.md, "Following the kernel". `rib` holds routes in
//! the kernel's order of preference; `neighbours` holds what they depend on; `hops` turns next hops into groups;
//! `audit` compares with a listing after events were lost; `program` decides what the plane is given and when. The
//! daemon feeds [`Routing`] and passes what [`Routing::poll`] returns to [`Plane::route`](lanyard_plane::Plane::route).
//!
//! Invariants: packets for a prefix that the plane cannot handle as the kernel does go to the kernel (`RoutePolicy`),
//! never to a shorter prefix. A change of a next hop changes groups, not routes. Everything is bounded: identifiers by
//! [`Limits`], work by the caller, memory by the kernel's own tables.
//!
//! The kernel's own offload flags are not set, because rtnetlink has no request for that (drivers set them inside the
//! kernel). `show ip route` shows the state of a kernel route instead. A client that sends routes over FPM is answered
//! over FPM.

mod audit;
mod buckets;
mod classify;
mod fpm;
mod hops;
mod neighbours;
mod program;
mod rib;
mod sets;
mod shown;

pub use neighbours::Neighbour;

use audit::Audit;
use classify::{alone, classify, place, value_of};
use hops::Hops;
use ipnet::IpNet;
use lanyard_plane::RouteChange;
use lanyard_types::{RifId, VrfId};
use lanyard_wire::rtnetlink::{self as wire, NextHopObject, Route};
use neighbours::{Around, Object};
use program::Programmed;
use rib::{Candidate, DIRTY, FAILED, FORCED, NONE, REFUSED, Rank, Rib};
use sets::SetKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Milliseconds on a monotonic clock.
pub type Millis = u64;

/// The numbers of identifiers that the plane has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Groups, 1..=65,535.
    pub groups: u32,
    /// Adjacencies, 1..=65,535.
    pub adjacencies: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { groups: 65_535, adjacencies: 65_535 }
    }
}

/// Where a route message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// An event: the route was added. Contains the NLM_F_* flags of the message.
    New(u16),
    /// An event: the route was removed.
    Gone,
    /// The route is part of a listing (see [`Routing::audit`]).
    Listed,
}

/// The state of a route in the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// It forwards (or drops) packets by this route.
    Offloaded,
    /// It sends the packets to the kernel.
    Trapped,
    /// It had no room for the route.
    Failed,
    /// The route does not concern the plane.
    None,
}

/// A neighbour that the kernel should resolve or confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// The VRF it belongs to.
    pub vrf: VrfId,
    /// The index of its interface.
    pub ifindex: u32,
    /// Its address.
    pub address: IpAddr,
}

/// How many entries there are of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prefixes.
    pub prefixes: u64,
    /// Groups that the plane has.
    pub groups: u64,
    /// Adjacencies that the plane has.
    pub adjacencies: u64,
    /// How often, since the start, a prefix or a set of next hops was left to the kernel because no group or adjacency was
    /// available. Each attempt counts.
    pub refused_groups: u64,
    /// Prefixes that the plane had no room for.
    pub failed: u64,
}

/// The first interval, in milliseconds, between requests to resolve a next hop. It doubles with each request.
const ASK_MS: Millis = 1000;
/// The longest interval, in milliseconds, between requests to resolve a next hop.
const ASK_MOST_MS: Millis = 32_000;
/// Refused changes are tried again this many milliseconds after the last refusal, once something has been removed.
const RETRY_MS: Millis = 10_000;

/// The mirror of all VRFs' routing.
#[derive(Debug)]
pub struct Routing {
    vrfs: BTreeMap<VrfId, Vrf>,
    hops: Hops,
    neighbours: BTreeSet<Ask>,
    /// Unresolved next hops, each with the time of the next request and the interval since the last one.
    asks: BTreeMap<Ask, (Millis, Millis)>,
    /// True if a change was refused, and true if something was removed since.
    refused: bool,
    freed: bool,
    retry_ms: Millis,
    limits: Limits,
    /// The prefixes that [`Routing::fpm_settled`] returns next.
    fpm_settled: Vec<(VrfId, IpNet)>,
}

#[derive(Debug)]
struct Vrf {
    rib: Rib,
    around: Around,
    /// The queue of prefixes whose target may have changed. New and changed targets are programmed longest prefix
    /// first, then removals, shortest first. So a frame meets its old longest match or its new one, whatever else
    /// changes at the same time.
    coming: BTreeSet<(Reverse<u8>, IpNet)>,
    going: BTreeSet<(u8, IpNet)>,
    /// True while the plane has no routes yet: it is given none until all prefixes are in the queue.
    filling: bool,
    /// Prefixes that the plane has no room for.
    failed: BTreeSet<IpNet>,
    /// While every prefix is being evaluated again: the last prefix done, or `Some(None)` before the first. Otherwise `None`.
    scan: Option<Option<IpNet>>,
    /// For IPv4 and IPv6: true if the kernel routes by more than the destination.
    policy: [bool; 2],
    audit: Audit,
    fpm: fpm::Fpm,
}

impl Vrf {
    fn new(vrf: VrfId) -> Self {
        Self {
            rib: Rib::default(),
            around: Around::new(vrf),
            coming: BTreeSet::new(),
            going: BTreeSet::new(),
            filling: true,
            failed: BTreeSet::new(),
            scan: None,
            policy: [false; 2],
            audit: Audit::default(),
            fpm: fpm::Fpm::default(),
        }
    }
}

impl Default for Routing {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Routing {
    /// An empty mirror of an empty plane.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            vrfs: BTreeMap::new(),
            hops: Hops::new(limits.groups, limits.adjacencies),
            neighbours: BTreeSet::new(),
            asks: BTreeMap::new(),
            refused: false,
            freed: false,
            retry_ms: 0,
            limits,
            fpm_settled: Vec::new(),
        }
    }
    fn vrf(&mut self, vrf: VrfId) -> &mut Vrf {
        self.vrfs.entry(vrf).or_insert_with(|| Vrf::new(vrf))
    }

    /// Sets the router interfaces of a VRF, by the kernel's index. Before the plane takes a state that lacks some of
    /// the previous ones, call this with those that remain and give the plane what [`Routing::poll`] returns. Add new
    /// ones after the plane has taken the state.
    pub fn set_rifs(&mut self, vrf: VrfId, rifs: &BTreeMap<u32, RifId>, out: &mut Vec<RouteChange>) {
        let known = self.vrf(vrf);
        if known.around.rifs == *rifs {
            return;
        }
        let was_active = !known.around.rifs.is_empty();
        known.around.rifs.clone_from(rifs);
        if rifs.is_empty() && was_active {
            self.forget(vrf, out);
        }
        self.reconsider(vrf, false);
        self.ask_all(vrf);
        let every: Vec<_> = self.vrf(vrf).around.neighbours.keys().copied().collect();
        self.neighbours.extend(every.into_iter().map(|(address, ifindex)| Ask { vrf, ifindex, address }));
        let known = self.vrf(vrf);
        known.scan = Some(None);
        known.filling |= !was_active;
    }
    /// The router interfaces that [`Routing::set_rifs`] was last given.
    #[must_use]
    pub fn rifs(&self, vrf: VrfId) -> Option<&BTreeMap<u32, RifId>> {
        self.vrfs.get(&vrf).map(|vrf| &vrf.around.rifs)
    }
    /// Stops following a VRF and removes everything that belongs to it.
    pub fn drop_vrf(&mut self, vrf: VrfId, out: &mut Vec<RouteChange>) {
        self.forget(vrf, out);
        let Some(mut gone) = self.vrfs.remove(&vrf) else { return };
        for prefix in gone.rib.walk(None, usize::MAX) {
            for candidate in gone.rib.candidates(prefix).filter(|candidate| candidate.set != NONE) {
                self.hops.release(candidate.set);
            }
        }
        gone.around.rifs.clear();
        self.hops.flush(&|_| Some(&gone.around), None, out);
        self.neighbours.retain(|ask| ask.vrf != vrf);
        self.asks.retain(|ask, _| ask.vrf != vrf);
    }
    /// Removes all routes of a VRF from the plane. The mirror of the kernel's routes stays.
    fn forget(&mut self, vrf: VrfId, out: &mut Vec<RouteChange>) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        let mut programmed = false;
        for prefix in known.rib.walk(None, usize::MAX) {
            let Some(entry) = known.rib.get_mut(prefix) else { continue };
            if let Programmed::Group(set) = Programmed::unpack(entry.programmed) {
                self.hops.leave_group(set);
            }
            programmed |= entry.programmed != NONE;
            entry.programmed = NONE;
            entry.flags &= !(DIRTY | REFUSED | FAILED | FORCED);
            if entry.best.rank == Rank::Gone {
                known.rib.remove(prefix);
            }
        }
        known.failed.clear();
        known.coming.clear();
        known.going.clear();
        if programmed {
            out.push(RouteChange::VrfGone(vrf));
        }
    }
    /// Resolves the sets of a VRF again: all, or those that refer to next-hop objects. If an outcome has changed, the routes get
    /// new targets.
    fn reconsider(&mut self, vrf: VrfId, objects_only: bool) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        for slot in self.hops.slots(vrf, objects_only) {
            if self.hops.evaluate(&known.around, slot) {
                known.scan = Some(None);
            }
        }
    }

    /// Handles the state of an interface: `up` means administratively up and with link. The kernel may have removed
    /// routes without an event; the next audit finds those.
    pub fn link(&mut self, vrf: VrfId, ifindex: u32, up: bool) {
        self.vrf(vrf).audit.links.event(ifindex);
        if self.set_link(vrf, ifindex, up) {
            self.vrf(vrf).audit.wanted = true;
        }
    }
    fn set_link(&mut self, vrf: VrfId, ifindex: u32, up: bool) -> bool {
        let around = &mut self.vrf(vrf).around;
        let changed = if up { around.down.remove(&ifindex) } else { around.down.insert(ifindex) };
        if changed {
            self.touch_behind(vrf, ifindex);
        }
        changed
    }
    /// Handles the removal of an interface.
    pub fn link_gone(&mut self, vrf: VrfId, ifindex: u32) {
        self.link(vrf, ifindex, false);
        // The index is not reused, so remembering it would only grow the set.
        self.vrf(vrf).around.down.remove(&ifindex);
        self.touch_behind(vrf, ifindex);
    }
    fn touch_behind(&mut self, vrf: VrfId, ifindex: u32) {
        for slot in self.hops.behind(vrf, ifindex) {
            self.touch(slot);
        }
    }
    fn touch(&mut self, slot: u32) {
        self.hops.touch(slot);
        let Some(adj) = self.hops.adj(slot) else { return };
        let ask = Ask { vrf: adj.vrf, ifindex: adj.ifindex, address: adj.address };
        let Some(known) = self.vrfs.get(&adj.vrf) else { return };
        let unresolved = !known.around.down.contains(&ask.ifindex)
            && known.around.rif(ask.ifindex).is_some()
            && known.around.mac(ask.ifindex, ask.address).is_none();
        if unresolved {
            self.asks.entry(ask).or_insert((0, ASK_MS));
        } else {
            self.asks.remove(&ask);
        }
    }

    /// Handles the state of a neighbour; `None` when it was removed.
    pub fn neighbour(&mut self, vrf: VrfId, ifindex: u32, address: IpAddr, state: Option<Neighbour>) {
        let known = self.vrf(vrf);
        known.audit.neighbours.event((address, ifindex));
        self.set_neighbour(vrf, ifindex, address, state);
    }
    fn set_neighbour(&mut self, vrf: VrfId, ifindex: u32, address: IpAddr, state: Option<Neighbour>) {
        let around = &mut self.vrf(vrf).around;
        let key = (address, ifindex);
        let old = match state {
            Some(state) => around.neighbours.insert(key, state),
            None => around.neighbours.remove(&key),
        };
        let was_dead = around.dead.contains(&key);
        if state.is_some_and(|state| state.mac.is_some()) {
            around.dead.remove(&key);
        } else if state.is_some_and(|state| state.failed) {
            around.dead.insert(key);
        }
        let is_dead = around.dead.contains(&key);
        if old.and_then(|old| old.mac) == state.and_then(|state| state.mac) && was_dead == is_dead {
            return;
        }
        self.neighbours.insert(Ask { vrf, ifindex, address });
        match self.hops.adj_at(vrf, ifindex, address) {
            Some(slot) => self.touch(slot),
            // The neighbour is no next hop, so its failure need not be remembered.
            None => drop(self.vrf(vrf).around.dead.remove(&key)),
        }
    }

    /// Handles a new, changed or removed next-hop object.
    pub fn nexthop(&mut self, vrf: VrfId, object: &NextHopObject<'_>, gone: bool) {
        self.vrf(vrf).audit.objects.event(object.id);
        self.set_object(vrf, object.id, (!gone).then(|| value_of(object)));
        // The kernel removes the object's routes without an event for each.
        self.vrf(vrf).audit.wanted |= gone;
    }
    fn set_object(&mut self, vrf: VrfId, id: u32, object: Option<Object>) {
        let objects = &mut self.vrf(vrf).around.objects;
        let same = objects.get(&id) == object.as_ref();
        match object {
            Some(object) => drop(objects.insert(id, object)),
            None => drop(objects.remove(&id)),
        }
        if !same {
            // The change of a member also changes its groups.
            self.reconsider(vrf, true);
            self.ask_all(vrf);
        }
    }
    fn ask_all(&mut self, vrf: VrfId) {
        let slots: Vec<u32> =
            self.hops.adjs().filter(|(_, adj)| adj.vrf == vrf).map(|(slot, _)| slot).collect();
        for slot in slots {
            self.touch(slot);
        }
    }

    /// Sets whether the kernel routes a family by more than the destination, because it has rules besides the default ones.
    pub fn set_policy(&mut self, vrf: VrfId, ipv6: bool, on: bool) {
        self.vrf(vrf).policy[usize::from(ipv6)] = on;
    }
    /// Returns what [`Routing::set_policy`] set last. If true, the plane must not route the family. Its routes stay mirrored,
    /// so that the plane can route again as soon as the rules are removed.
    #[must_use]
    pub fn policy(&self, vrf: VrfId, ipv6: bool) -> bool {
        self.vrfs.get(&vrf).is_some_and(|vrf| vrf.policy[usize::from(ipv6)])
    }

    /// Handles a route message.
    pub fn route(&mut self, vrf: VrfId, route: &Route<'_>, origin: Origin) {
        let Some((mut candidate, key)) = classify(route) else { return };
        let known = self.vrf(vrf);
        let touched = (route.dest, candidate.rank, candidate.metric);
        match origin {
            Origin::Listed if known.audit.routes.contains(&touched) => return,
            Origin::Listed => {}
            _ if known.audit.running => drop(known.audit.routes.insert(touched)),
            _ => {}
        }
        candidate.seen = known.audit.generation;
        if origin == Origin::Gone {
            self.route_gone(vrf, route.dest, candidate, key);
        } else {
            let flags = if let Origin::New(flags) = origin { flags } else { wire::FLAG_APPEND };
            self.route_came(vrf, route.dest, candidate, key, flags);
        }
    }
    fn route_came(
        &mut self,
        vrf: VrfId,
        prefix: IpNet,
        mut candidate: Candidate,
        key: Option<SetKey>,
        flags: u16,
    ) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        let like = known.rib.get(prefix).map(|entry| entry.best.set).filter(|set| *set != NONE);
        if let Some(key) = key {
            candidate.set = self.hops.intern(&known.around, key, like);
        }
        // The common case: the prefix is new, or this route is its only one.
        let only = known.rib.only(prefix).filter(|only| only.is(&candidate));
        if let Some(only) = only {
            only.seen = candidate.seen;
            if candidate.set != NONE {
                self.hops.release(candidate.set);
            }
            return;
        }
        let mut list: Vec<Candidate> = known.rib.candidates(prefix).copied().collect();
        if list.is_empty() {
            known.rib.set(prefix, &[candidate]);
        } else {
            let merges = !prefix.addr().is_ipv4() && candidate.set != NONE && self.hops.merges(candidate.set);
            let gone = place(&mut list, candidate, flags, |other| {
                merges && other.set != NONE && self.hops.merges(other.set)
            });
            known.rib.set(prefix, &list);
            for set in gone.into_iter().filter(|set| *set != NONE) {
                self.hops.release(set);
            }
        }
        self.resolve_members(candidate.set);
        self.changed(vrf, prefix, candidate.rank == Rank::Local);
    }
    /// Requests resolution of the unresolved neighbours of a set.
    fn resolve_members(&mut self, set: u32) {
        for slot in self.hops.members(set) {
            self.touch(slot);
        }
    }
    fn route_gone(&mut self, vrf: VrfId, prefix: IpNet, mut candidate: Candidate, key: Option<SetKey>) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        if let Some(key) = &key {
            candidate.set = self.hops.find(vrf, key).unwrap_or(NONE);
        }
        let mut list: Vec<Candidate> = known.rib.candidates(prefix).copied().collect();
        let same =
            list.iter().position(|other| other.is(&candidate) && (key.is_none() || candidate.set != NONE));
        let Some(at) = same.or_else(|| alone(&list, &candidate)) else {
            // An event was lost if the deletion does not match a known route.
            known.audit.wanted |= list.iter().any(|other| other.same_key(&candidate));
            return;
        };
        // IPv6 reports the members of a multipath route one by one.
        let rest = (same.is_none())
            .then(|| key.as_ref().and_then(|key| self.hops.without(list[at].set, key)))
            .flatten();
        let old = list[at].set;
        match rest {
            Some(rest) => list[at].set = self.hops.intern(&known.around, rest, Some(old)),
            None => drop(list.remove(at)),
        }
        known.rib.set(prefix, &list);
        if old != NONE {
            self.hops.release(old);
        }
        self.changed(vrf, prefix, candidate.rank == Rank::Local);
    }
    /// Handles a changed list of candidates: the prefix, and the neighbours inside it, may need another target.
    fn changed(&mut self, vrf: VrfId, prefix: IpNet, local: bool) {
        let Some(known) = self.vrfs.get(&vrf) else { return };
        let inside = known.around.between(prefix.network(), prefix.broadcast());
        self.neighbours.extend(inside.map(|(address, ifindex)| Ask { vrf, ifindex, address }));
        if local && prefix.prefix_len() < prefix.max_prefix_len() {
            // A prefix of the local table hides longer prefixes of the main table.
            for hidden in known.rib.inside(prefix) {
                self.enqueue(vrf, hidden);
            }
        }
        self.enqueue(vrf, prefix);
    }
    fn enqueue(&mut self, vrf: VrfId, prefix: IpNet) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        let Some(entry) = known.rib.get_mut(prefix) else { return };
        entry.flags |= DIRTY;
        let length = prefix.prefix_len();
        if entry.best.rank == Rank::Gone || entry.flags & FAILED != 0 {
            known.coming.remove(&(Reverse(length), prefix));
            known.going.insert((length, prefix));
        } else {
            known.going.remove(&(length, prefix));
            known.coming.insert((Reverse(length), prefix));
        }
    }

    /// At most `most` next hops that the kernel should resolve now.
    pub fn asks(&mut self, now: Millis, most: usize) -> Vec<Ask> {
        let mut due: Vec<Ask> =
            self.asks.iter().filter(|(_, (at, _))| *at <= now).map(|(ask, _)| *ask).take(most).collect();
        due.retain(|ask| {
            let used = self.hops.adj_at(ask.vrf, ask.ifindex, ask.address).is_some();
            if !used {
                self.asks.remove(ask);
            } else if let Some((at, gap)) = self.asks.get_mut(ask) {
                *at = now + *gap;
                *gap = (*gap * 2).min(ASK_MOST_MS);
            }
            used
        });
        due
    }
    /// When [`Routing::asks`] next has a next hop to return; `None` if no next hop is unresolved.
    #[must_use]
    pub fn next_ask(&self) -> Option<Millis> {
        self.asks.values().map(|(at, _)| *at).min()
    }
}

#[cfg(test)]
mod fpm_tests;
#[cfg(test)]
#[allow(clippy::panic)] // only a mistake in a test gets here
mod tests;
