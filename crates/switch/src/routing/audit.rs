//! Compares the mirror of the kernel's routing with complete listings, while routes keep changing.
//!
//! Read first: netlink(7), on ENOBUFS. A listing takes time. Changes that happen meanwhile arrive as events on another
//! socket, so an event may be read before or after the listed entry that it concerns.
//!
//! Invariants: an event that arrives during an audit is newer than the listing, so it overrides the listed entry. What
//! neither an event nor the listing has reported by the end is gone. An unchanged entry causes no change in the plane.

use super::Routing;
use super::classify::value_of;
use super::neighbours::Neighbour;
use super::rib::{NONE, Rank};
use ipnet::IpNet;
use lanyard_types::VrfId;
use lanyard_wire::rtnetlink::NextHopObject;
use std::collections::HashSet;
use std::hash::Hash;
use std::net::IpAddr;

/// The audit of one VRF.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// True when an audit is needed: an event was lost, or the kernel has changed something without an event.
    pub wanted: bool,
    /// True between [`Routing::audit`] and [`Routing::audited`].
    pub running: bool,
    /// True once an audit has been completed.
    pub ever: bool,
    /// The number of this audit, modulo 256. Each candidate carries the number of the audit that saw it last.
    pub generation: u8,
    /// Routes that events reported during the audit.
    pub routes: HashSet<(IpNet, Rank, u32)>,
    /// While gone routes are being removed: the last prefix examined, or `Some(None)` before the first. Otherwise `None`.
    pub sweeping: Option<Option<IpNet>>,
    pub links: Listing<u32>,
    pub objects: Listing<u32>,
    pub neighbours: Listing<(IpAddr, u32)>,
}

/// The listing of a small table.
#[derive(Debug)]
pub(super) struct Listing<K> {
    running: bool,
    /// The keys that events have reported since the listing began: the listed entry may be older.
    reported: HashSet<K>,
    seen: HashSet<K>,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { running: false, reported: HashSet::new(), seen: HashSet::new() }
    }
}

impl<K: Eq + Hash + Copy> Listing<K> {
    /// Notes that an event has reported `key`.
    pub fn event(&mut self, key: K) {
        if self.running {
            self.reported.insert(key);
        }
    }
    fn begin(&mut self) {
        *self = Self { running: true, ..Self::default() };
    }
    /// Notes that the listing contains `key`. Returns false if an event overrides it.
    fn list(&mut self, key: K) -> bool {
        self.seen.insert(key);
        !self.reported.contains(&key)
    }
    /// Ends the listing. Returns which of `known` are gone.
    fn end(&mut self, known: impl Iterator<Item = K>) -> Vec<K> {
        let listing = std::mem::take(self);
        known.filter(|key| !listing.seen.contains(key) && !listing.reported.contains(key)).collect()
    }
}

impl Routing {
    /// True when an audit of the VRF is needed.
    #[must_use]
    pub fn audit_wanted(&self, vrf: VrfId) -> bool {
        self.vrfs.get(&vrf).is_some_and(|vrf| vrf.audit.wanted)
    }
    /// Notes that events were lost, so that an audit is needed.
    pub fn overrun(&mut self, vrf: VrfId) {
        self.vrf(vrf).audit.wanted = true;
    }
    /// Begins an audit. The caller then lists links, next-hop objects, neighbours and routes in this order:
    /// [`Routing::listed_link`], [`Routing::listed_nexthop`], [`Routing::listed_neighbour`], and [`Routing::route`]
    /// with [`super::Origin::Listed`].
    pub fn audit(&mut self, vrf: VrfId) {
        let audit = &mut self.vrf(vrf).audit;
        audit.wanted = false;
        audit.running = true;
        audit.sweeping = None;
        audit.generation = audit.generation.wrapping_add(1);
        audit.routes.clear();
        audit.links.begin();
        audit.objects.begin();
        audit.neighbours.begin();
    }
    /// Handles a listed interface.
    pub fn listed_link(&mut self, vrf: VrfId, ifindex: u32, up: bool) {
        if self.vrf(vrf).audit.links.list(ifindex) {
            // No further audit is needed for the routes that changed with the link: this one finds them.
            self.set_link(vrf, ifindex, up);
        }
    }
    /// Handles a listed next-hop object.
    pub fn listed_nexthop(&mut self, vrf: VrfId, object: &NextHopObject<'_>) {
        if self.vrf(vrf).audit.objects.list(object.id) {
            self.set_object(vrf, object.id, Some(value_of(object)));
        }
    }
    /// Handles a listed neighbour.
    pub fn listed_neighbour(&mut self, vrf: VrfId, ifindex: u32, address: IpAddr, state: Neighbour) {
        if self.vrf(vrf).audit.neighbours.list((address, ifindex)) {
            self.set_neighbour(vrf, ifindex, address, Some(state));
        }
    }
    /// Ends the listing. If it is `complete`, whatever was not listed is gone. If not, because the tables changed too
    /// much while they were read, everything stays and another audit is wanted.
    pub fn audited(&mut self, vrf: VrfId, complete: bool) {
        let known = self.vrf(vrf);
        known.audit.running = false;
        if !std::mem::replace(&mut known.audit.ever, true) {
            known.scan = Some(None);
        }
        known.audit.routes = HashSet::new();
        if !complete {
            known.audit.wanted = true;
            known.audit.links = Listing::default();
            known.audit.objects = Listing::default();
            known.audit.neighbours = Listing::default();
            return;
        }
        known.audit.sweeping = Some(None);
        let around = &known.around;
        let links = known.audit.links.end(around.down.iter().copied());
        let objects = known.audit.objects.end(around.objects.keys().copied());
        let neighbours = known.audit.neighbours.end(around.neighbours.keys().copied());
        for ifindex in links {
            self.vrf(vrf).around.down.remove(&ifindex);
            self.touch_behind(vrf, ifindex);
        }
        for id in objects {
            self.set_object(vrf, id, None);
        }
        for (address, ifindex) in neighbours {
            self.set_neighbour(vrf, ifindex, address, None);
        }
        let hops = &self.hops;
        if let Some(known) = self.vrfs.get_mut(&vrf) {
            known.around.dead.retain(|(address, ifindex)| hops.adj_at(vrf, *ifindex, *address).is_some());
        }
    }
    /// True while an audit of the VRF runs or routes that it did not see are being removed.
    #[must_use]
    pub fn auditing(&self, vrf: VrfId) -> bool {
        self.vrfs.get(&vrf).is_some_and(|vrf| vrf.audit.running || vrf.audit.sweeping.is_some())
    }
    /// Continues the removal of routes that the audit did not see, by up to `most` prefixes.
    pub(super) fn sweep(&mut self, vrf: VrfId, most: usize) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        let Some(from) = known.audit.sweeping else { return };
        let generation = known.audit.generation;
        let part = known.rib.walk(from, most);
        known.audit.sweeping = part.last().map(|last| Some(*last));
        for prefix in part {
            let Some(known) = self.vrfs.get_mut(&vrf) else { return };
            let stale = |c: &super::Candidate| c.rank.is_kernel() && c.seen != generation;
            if !known.rib.candidates(prefix).any(stale) {
                continue;
            }
            let list: Vec<_> = known.rib.candidates(prefix).copied().collect();
            let (gone, rest): (Vec<_>, Vec<_>) = list.into_iter().partition(stale);
            known.rib.set(prefix, &rest);
            for candidate in gone.iter().filter(|candidate| candidate.set != NONE) {
                self.hops.release(candidate.set);
            }
            self.changed(vrf, prefix, gone.iter().any(|candidate| candidate.rank == Rank::Local));
        }
    }
}
