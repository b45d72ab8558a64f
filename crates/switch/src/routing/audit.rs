//! Comparing the mirror with a listing of the kernel's tables, while changes go on.
//!
//! Read first: netlink(7), on ENOBUFS. A listing takes its time, and events tell of changes meanwhile, on another socket, so
//! that either may be read first.
//!
//! Invariant: what an event has told during an audit is newer than what the listing says, so the listing is not believed
//! about it; what neither has told of by the end is gone. Nothing that is as it was leads to a change.

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

/// One VRF's audit.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// Something was missed, or the kernel did something it does not tell of.
    pub wanted: bool,
    /// Between [`Routing::audit`] and [`Routing::audited`].
    pub running: bool,
    /// One has ended.
    pub ever: bool,
    /// The number of this audit, modulo 256: candidates carry that of the last one that saw them.
    pub generation: u8,
    /// Routes that events told of during the audit.
    pub routes: HashSet<(IpNet, Rank, u32)>,
    /// The last prefix looked at for routes that are gone.
    pub sweeping: Option<Option<IpNet>>,
    pub links: Listing<u32>,
    pub objects: Listing<u32>,
    pub neighbours: Listing<(IpAddr, u32)>,
}

/// A small table being listed.
#[derive(Debug)]
pub(super) struct Listing<K> {
    running: bool,
    told: HashSet<K>,
    seen: HashSet<K>,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { running: false, told: HashSet::new(), seen: HashSet::new() }
    }
}

impl<K: Eq + Hash + Copy> Listing<K> {
    /// An event has told of `key`.
    pub fn event(&mut self, key: K) {
        if self.running {
            self.told.insert(key);
        }
    }
    fn begin(&mut self) {
        *self = Self { running: true, ..Self::default() };
    }
    /// The listing has `key`; false when an event knows better.
    fn list(&mut self, key: K) -> bool {
        self.seen.insert(key);
        !self.told.contains(&key)
    }
    /// Which of `known` are gone.
    fn end(&mut self, known: impl Iterator<Item = K>) -> Vec<K> {
        let listing = std::mem::take(self);
        known.filter(|key| !listing.seen.contains(key) && !listing.told.contains(key)).collect()
    }
}

impl Routing {
    /// True when a VRF should be audited.
    #[must_use]
    pub fn audit_wanted(&self, vrf: VrfId) -> bool {
        self.vrfs.get(&vrf).is_some_and(|vrf| vrf.audit.wanted)
    }
    /// Events were lost.
    pub fn overrun(&mut self, vrf: VrfId) {
        self.vrf(vrf).audit.wanted = true;
    }
    /// An audit begins: from here on links, objects, neighbours and routes are listed ([`Routing::listed_link`],
    /// [`Routing::listed_nexthop`], [`Routing::listed_neighbour`], [`Routing::route`] as [`super::Origin::Listed`]), in that order.
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
    /// A listed interface.
    pub fn listed_link(&mut self, vrf: VrfId, ifindex: u32, up: bool) {
        if self.vrf(vrf).audit.links.list(ifindex) {
            // This audit is the one that finds what came of it.
            self.set_link(vrf, ifindex, up);
        }
    }
    /// A listed next-hop object.
    pub fn listed_nexthop(&mut self, vrf: VrfId, object: &NextHopObject<'_>) {
        if self.vrf(vrf).audit.objects.list(object.id) {
            self.set_object(vrf, object.id, Some(value_of(object)));
        }
    }
    /// A listed neighbour.
    pub fn listed_neighbour(&mut self, vrf: VrfId, ifindex: u32, address: IpAddr, state: Neighbour) {
        if self.vrf(vrf).audit.neighbours.list((address, ifindex)) {
            self.set_neighbour(vrf, ifindex, address, Some(state));
        }
    }
    /// Everything is listed. With `complete` what was not listed is gone; without (the tables changed too much while they
    /// were read) it stays until another audit, which is then wanted.
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
    /// True while an audit of the VRF runs, or what it found is being cleared away.
    #[must_use]
    pub fn auditing(&self, vrf: VrfId) -> bool {
        self.vrfs.get(&vrf).is_some_and(|vrf| vrf.audit.running || vrf.audit.sweeping.is_some())
    }
    /// Takes up to `most` prefixes further: their routes that the audit has not seen are gone.
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
