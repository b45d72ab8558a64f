//! The objects that the routes of a VRF depend on: interfaces, links, neighbours and next-hop objects.
//!
//! Read first: RFC 826; RFC 4861, section 7.3.
//!
//! Invariant: a next hop is dead while its link is down, and after its neighbour failed to answer until it answers
//! again.

use super::sets::{Outcome, SetKey};
use lanyard_fpm::NextHopSet;
use lanyard_plane::BUCKETS;
use lanyard_types::{MacAddr, RifId, VrfId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// A neighbour in the kernel's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its MAC address, while the kernel considers it valid for sending.
    pub mac: Option<MacAddr>,
    /// True if it did not answer.
    pub failed: bool,
    /// True if its address has not been confirmed for some time: each use by the plane should be reported to the kernel.
    pub stale: bool,
}

/// A next-hop object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    One(u32, Option<IpAddr>),
    Group(Vec<(u32, u32)>),
    Blackhole,
    Other,
}

#[derive(Debug)]
pub(super) struct Around {
    pub vrf: VrfId,
    /// Router interfaces, by the kernel's interface index.
    pub rifs: BTreeMap<u32, RifId>,
    /// Interfaces that are administratively down or have no link.
    pub down: BTreeSet<u32>,
    pub neighbours: BTreeMap<(IpAddr, u32), Neighbour>,
    /// Next hops that failed and have not answered since, including those whose entry the kernel has removed meanwhile.
    pub dead: BTreeSet<(IpAddr, u32)>,
    pub objects: HashMap<u32, Object>,
    /// The next-hop sets of FPM's routes, by serial number.
    pub fpm_sets: HashMap<u32, NextHopSet>,
}

/// An interface's index, a neighbour's address and its weight.
type Hop = (u32, IpAddr, u32);

impl Around {
    pub fn new(vrf: VrfId) -> Self {
        Self {
            vrf,
            rifs: BTreeMap::new(),
            down: BTreeSet::new(),
            neighbours: BTreeMap::new(),
            dead: BTreeSet::new(),
            objects: HashMap::new(),
            fpm_sets: HashMap::new(),
        }
    }
    pub fn rif(&self, ifindex: u32) -> Option<RifId> {
        self.rifs.get(&ifindex).copied()
    }
    pub fn is_alive(&self, ifindex: u32, address: IpAddr) -> bool {
        let key = (address, ifindex);
        let failed = || self.neighbours.get(&key).is_some_and(|known| known.failed && known.mac.is_none());
        !self.down.contains(&ifindex) && !self.dead.contains(&key) && !failed()
    }
    /// The MAC address of a neighbour; `None` leaves its frames to the kernel.
    pub fn mac(&self, ifindex: u32, address: IpAddr) -> Option<MacAddr> {
        if self.down.contains(&ifindex) {
            return None;
        }
        self.neighbours.get(&(address, ifindex))?.mac
    }
    /// The neighbours whose addresses are in `first..=last`.
    pub fn between(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = (IpAddr, u32)> {
        self.neighbours.range((first, 0)..=(last, u32::MAX)).map(|(key, _)| *key)
    }

    /// Resolves a set: its outcome, and its next hops if the outcome is a group.
    pub fn outcome(&self, key: &SetKey) -> (Outcome, Vec<Hop>) {
        let kernel = (Outcome::Kernel, Vec::new());
        let hops: Vec<(u32, Option<IpAddr>, u32)> = match key {
            SetKey::One(ifindex, via) => vec![(*ifindex, *via, 1)],
            SetKey::Many(hops) => hops.to_vec(),
            SetKey::Object(id) => match self.objects.get(id) {
                Some(Object::One(ifindex, via)) => vec![(*ifindex, *via, 1)],
                Some(Object::Blackhole) => return (Outcome::Blackhole, Vec::new()),
                Some(Object::Group(members)) => match self.expand(members) {
                    Some(hops) => hops,
                    None => return kernel,
                },
                Some(Object::Other) | None => return kernel,
            },
            SetKey::Fpm(serial) => match self.fpm_sets.get(serial) {
                Some(NextHopSet::Hops(hops)) => {
                    hops.iter().map(|hop| (hop.ifindex, hop.via, hop.weight)).collect()
                }
                Some(NextHopSet::Blackhole) => return (Outcome::Blackhole, Vec::new()),
                Some(_) | None => return kernel,
            },
        };
        if hops.is_empty()
            || hops.len() > BUCKETS
            || hops.iter().any(|(ifindex, ..)| self.rif(*ifindex).is_none())
        {
            return kernel;
        }
        if let [(ifindex, None, _)] = hops[..] {
            return (Outcome::Connected(ifindex), Vec::new());
        }
        // If one of several next hops has no gateway, the kernel resolves each destination on that link: leave it to
        // the kernel.
        let hops: Option<Vec<Hop>> =
            hops.into_iter().map(|(ifindex, via, weight)| Some((ifindex, via?, weight))).collect();
        hops.map_or(kernel, |hops| (Outcome::Group, hops))
    }
    /// The members of a next-hop object that is a group. Each is a single next hop, because the kernel has no groups of
    /// groups.
    fn expand(&self, members: &[(u32, u32)]) -> Option<Vec<(u32, Option<IpAddr>, u32)>> {
        let one = |(id, weight): &(u32, u32)| match self.objects.get(id) {
            Some(Object::One(ifindex, via)) => Some((*ifindex, *via, (*weight).min(65_536))),
            _ => None,
        };
        members.iter().map(one).collect()
    }
}
