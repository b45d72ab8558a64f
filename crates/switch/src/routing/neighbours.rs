//! What a VRF's routes depend on besides themselves: interfaces, links, neighbours, next-hop objects.
//!
//! Read first: RFC 826; RFC 4861, section 7.3.
//!
//! Invariant: a next hop is dead while its link is down, and from when its neighbour did not answer until it does.

use super::sets::{Outcome, SetKey};
use lanyard_plane::BUCKETS;
use lanyard_types::{MacAddr, RifId, VrfId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// A neighbour as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address, while the kernel would send to it.
    pub mac: Option<MacAddr>,
    /// It did not answer.
    pub failed: bool,
    /// Its address is known and has not been confirmed for some time: use should be told to the kernel.
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
    /// Router interfaces, by the kernel's index.
    pub rifs: BTreeMap<u32, RifId>,
    /// Interfaces that are down, or have no link.
    pub down: BTreeSet<u32>,
    pub neighbours: BTreeMap<(IpAddr, u32), Neighbour>,
    /// Next hops that failed and have not answered since, whatever the kernel has forgotten meanwhile.
    pub dead: BTreeSet<(IpAddr, u32)>,
    pub objects: HashMap<u32, Object>,
    /// Ways of FPM's routes, by serial number.
    pub ways: HashMap<u32, lanyard_fpm::Way>,
}

/// An interface's index, a neighbour's address and its weight.
type Way = (u32, IpAddr, u32);

impl Around {
    pub fn new(vrf: VrfId) -> Self {
        Self {
            vrf,
            rifs: BTreeMap::new(),
            down: BTreeSet::new(),
            neighbours: BTreeMap::new(),
            dead: BTreeSet::new(),
            objects: HashMap::new(),
            ways: HashMap::new(),
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
    /// Where frames for a neighbour go; `None` leaves them to the kernel.
    pub fn mac(&self, ifindex: u32, address: IpAddr) -> Option<MacAddr> {
        if self.down.contains(&ifindex) {
            return None;
        }
        self.neighbours.get(&(address, ifindex))?.mac
    }
    /// The neighbours whose address is in `first..=last`.
    pub fn between(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = (IpAddr, u32)> {
        self.neighbours.range((first, 0)..=(last, u32::MAX)).map(|(key, _)| *key)
    }

    /// What a set comes to, and its next hops if that is a group.
    pub fn outcome(&self, key: &SetKey) -> (Outcome, Vec<Way>) {
        let kernel = (Outcome::Kernel, Vec::new());
        let ways: Vec<(u32, Option<IpAddr>, u32)> = match key {
            SetKey::One(ifindex, via) => vec![(*ifindex, *via, 1)],
            SetKey::Many(hops) => hops.to_vec(),
            SetKey::Object(id) => match self.objects.get(id) {
                Some(Object::One(ifindex, via)) => vec![(*ifindex, *via, 1)],
                Some(Object::Blackhole) => return (Outcome::Blackhole, Vec::new()),
                Some(Object::Group(members)) => match self.expand(members) {
                    Some(ways) => ways,
                    None => return kernel,
                },
                Some(Object::Other) | None => return kernel,
            },
            SetKey::Way(serial) => match self.ways.get(serial) {
                Some(lanyard_fpm::Way::Hops(hops)) => {
                    hops.iter().map(|hop| (hop.ifindex, hop.via, hop.weight)).collect()
                }
                Some(lanyard_fpm::Way::Blackhole) => return (Outcome::Blackhole, Vec::new()),
                Some(_) | None => return kernel,
            },
        };
        if ways.is_empty()
            || ways.len() > BUCKETS
            || ways.iter().any(|(ifindex, ..)| self.rif(*ifindex).is_none())
        {
            return kernel;
        }
        if let [(ifindex, None, _)] = ways[..] {
            return (Outcome::Connected(ifindex), Vec::new());
        }
        // On-link among several: the kernel resolves each destination on one of them.
        let ways: Option<Vec<Way>> =
            ways.into_iter().map(|(ifindex, via, weight)| Some((ifindex, via?, weight))).collect();
        ways.map_or(kernel, |ways| (Outcome::Group, ways))
    }
    /// A group's members, each a single next hop: the kernel has no groups of groups.
    fn expand(&self, members: &[(u32, u32)]) -> Option<Vec<(u32, Option<IpAddr>, u32)>> {
        let one = |(id, weight): &(u32, u32)| match self.objects.get(id) {
            Some(Object::One(ifindex, via)) => Some((*ifindex, *via, (*weight).min(65_536))),
            _ => None,
        };
        members.iter().map(one).collect()
    }
}
