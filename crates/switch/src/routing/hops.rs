//! Next hops: adjacencies, sets of them (what a route names), and the plane's groups.
//!
//! Read first: RFC 2992; ip-nexthop(8).
//!
//! Invariants: routes that name the same next hops share a set, and with it a group of the plane, so what happens to a next
//! hop changes groups and adjacencies and no route. An identifier is handed out only while there is one, and what the plane
//! is told never dangles: adjacencies are made before the groups that use them and removed after.

use super::buckets::{self, Member};
use super::neighbours::Around;
use super::sets::{Outcome, SetKey};
use lanyard_plane::{Adjacency, RouteChange};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, RifId, VrfId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

#[derive(Debug)]
pub(super) struct Set {
    pub vrf: VrfId,
    key: SetKey,
    /// Candidates that name it.
    refs: u32,
    /// Prefixes that the plane sends to its group.
    told: u32,
    pub outcome: Outcome,
    members: Vec<Member>,
    /// Each bucket's owner, by the adjacency's slot.
    owners: Vec<u32>,
    group: Option<GroupId>,
    /// What the plane was told of the group.
    plane: Vec<AdjacencyId>,
    /// The plane had no room for the group.
    refused: bool,
}

#[derive(Debug)]
pub(super) struct Adj {
    pub vrf: VrfId,
    pub ifindex: u32,
    pub address: IpAddr,
    /// Sets it is a member of.
    sets: Vec<u32>,
    /// Of these, those with a group.
    grouped: u32,
    id: Option<AdjacencyId>,
    /// What the plane was told of it.
    plane: Option<Adjacency>,
}

impl Adj {
    /// True when the plane has it.
    pub const fn is_told(&self) -> bool {
        self.plane.is_some()
    }
    /// The address that the plane sends to.
    pub fn mac(&self) -> Option<MacAddr> {
        self.plane?.mac
    }
}

/// Values by slot number; the lowest free slot is used first.
#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Option<T>>,
    free: BTreeSet<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: BTreeSet::new() }
    }
}

impl<T> Slots<T> {
    fn add(&mut self, value: T) -> u32 {
        match self.free.pop_first() {
            Some(slot) => {
                self.slots[slot as usize] = Some(value);
                slot
            }
            None => {
                self.slots.push(Some(value));
                (self.slots.len() - 1) as u32
            }
        }
    }
    fn take(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take();
        self.free.extend(value.is_some().then_some(slot));
        value
    }
    fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }
    fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }
    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }
}

/// The numbers of groups or adjacencies: 1 to a highest one.
#[derive(Debug)]
struct Numbers {
    slots: Slots<u32>,
    most: u32,
}

impl Numbers {
    fn new(most: u32) -> Self {
        Self { slots: Slots::default(), most }
    }
    /// A number for `owner`; `None` when all are given.
    fn give(&mut self, owner: u32) -> Option<u32> {
        ((self.slots.len() as u32) < self.most).then(|| self.slots.add(owner) + 1)
    }
    fn take_back(&mut self, number: u32) {
        self.slots.take(number - 1);
    }
    fn owner(&self, number: u32) -> Option<u32> {
        self.slots.get(number - 1).copied()
    }
}

/// All next hops, of every VRF.
#[derive(Debug)]
pub(super) struct Hops {
    sets: Slots<Set>,
    by_key: HashMap<(VrfId, SetKey), u32>,
    adjs: Slots<Adj>,
    by_address: HashMap<(VrfId, u32, IpAddr), u32>,
    groups: Numbers,
    adjacencies: Numbers,
    dirty_sets: BTreeSet<u32>,
    dirty_adjs: BTreeSet<u32>,
    /// Where frames go up that belong to a group with nobody left in it: an unresolved adjacency of no neighbour. Its
    /// number, the highest, is kept free for it.
    park: Option<RifId>,
    park_id: Option<AdjacencyId>,
    /// Sets that need more adjacencies than there are numbers.
    short: Vec<u32>,
    /// Groups that could not be made for want of numbers or room.
    pub starved: u64,
}

impl Hops {
    pub fn new(groups: u32, adjacencies: u32) -> Self {
        Self {
            sets: Slots::default(),
            by_key: HashMap::new(),
            adjs: Slots::default(),
            by_address: HashMap::new(),
            groups: Numbers::new(groups),
            adjacencies: Numbers::new(adjacencies.saturating_sub(1)),
            dirty_sets: BTreeSet::new(),
            dirty_adjs: BTreeSet::new(),
            park: None,
            park_id: AdjacencyId::new(adjacencies),
            short: Vec::new(),
            starved: 0,
        }
    }
    /// Groups and adjacencies that the plane has.
    pub fn used(&self) -> (usize, usize) {
        (self.groups.slots.len(), self.adjacencies.slots.len() + usize::from(self.park.is_some()))
    }
    pub fn set(&self, slot: u32) -> Option<&Set> {
        self.sets.get(slot)
    }
    pub fn adj(&self, slot: u32) -> Option<&Adj> {
        self.adjs.get(slot)
    }
    pub fn adj_at(&self, vrf: VrfId, ifindex: u32, address: IpAddr) -> Option<u32> {
        self.by_address.get(&(vrf, ifindex, address)).copied()
    }
    pub fn adj_of(&self, id: AdjacencyId) -> Option<&Adj> {
        self.adjs.get(self.adjacencies.owner(id.get())?)
    }
    /// The set of these next hops, with one more candidate that names it. `like` is the set that the prefix used before: a
    /// new set leaves flows where that had them.
    pub fn intern(&mut self, around: &Around, key: SetKey, like: Option<u32>) -> u32 {
        let vrf = around.vrf;
        let full = (vrf, key);
        if let Some(&slot) = self.by_key.get(&full) {
            if let Some(set) = self.sets.get_mut(slot) {
                set.refs += 1;
            }
            return slot;
        }
        let owners =
            like.and_then(|like| self.sets.get(like)).map_or_else(Vec::new, |set| set.owners.clone());
        let set = Set {
            vrf,
            key: full.1.clone(),
            refs: 1,
            told: 0,
            outcome: Outcome::Kernel,
            members: Vec::new(),
            owners,
            group: None,
            plane: Vec::new(),
            refused: false,
        };
        let slot = self.sets.add(set);
        self.by_key.insert(full, slot);
        self.evaluate(around, slot);
        slot
    }
    /// A candidate lets go of a set.
    pub fn release(&mut self, slot: u32) {
        if let Some(set) = self.sets.get_mut(slot) {
            set.refs -= 1;
            self.dirty_sets.insert(slot);
        }
    }
    /// True when IPv6 merges routes that name these next hops into one (they all have a gateway, and are no object).
    pub fn merges(&self, slot: u32) -> bool {
        match self.sets.get(slot).map(|set| &set.key) {
            Some(SetKey::One(_, via)) => via.is_some(),
            Some(SetKey::Many(hops)) => hops.iter().all(|(_, via, _)| via.is_some()),
            _ => false,
        }
    }

    /// The set of these next hops, if something names it.
    pub fn find(&self, vrf: VrfId, key: &SetKey) -> Option<u32> {
        self.by_key.get(&(vrf, key.clone())).copied()
    }
    /// The slots of a set's members.
    pub fn members(&self, slot: u32) -> Vec<u32> {
        self.sets
            .get(slot)
            .map_or_else(Vec::new, |set| set.members.iter().map(|(member, _)| *member).collect())
    }
    /// What is left of a set without the next hops of `less`; `None` when nothing is.
    pub fn without(&self, slot: u32, less: &SetKey) -> Option<SetKey> {
        let SetKey::Many(hops) = &self.sets.get(slot)?.key else { return None };
        let goes = |way: &(u32, Option<IpAddr>, u32)| match less {
            SetKey::One(ifindex, via) => (way.0, way.1) == (*ifindex, *via),
            SetKey::Many(less) => less.iter().any(|other| (other.0, other.1) == (way.0, way.1)),
            SetKey::Object(_) | SetKey::Way(_) => true,
        };
        let rest: Vec<_> = hops.iter().copied().filter(|way| !goes(way)).collect();
        match rest[..] {
            [] => None,
            [(ifindex, via, _)] => Some(SetKey::One(ifindex, via)),
            _ => Some(SetKey::Many(rest.into())),
        }
    }

    /// Works out anew what a set comes to; true when that is another kind of thing than before, so that its routes need
    /// another target.
    pub fn evaluate(&mut self, around: &Around, slot: u32) -> bool {
        let Some(set) = self.sets.get(slot) else { return false };
        let (was, refused) = (set.outcome, set.refused);
        let (mut outcome, hops) = around.outcome(&set.key);
        if refused && outcome == Outcome::Group {
            outcome = Outcome::Kernel;
        }
        let mut members: BTreeMap<u32, u32> = BTreeMap::new();
        if outcome == Outcome::Group {
            for (ifindex, address, weight) in hops {
                *members.entry(self.adj_for(around.vrf, ifindex, address)).or_default() += weight;
            }
        }
        self.enlist(slot, members.into_iter().collect());
        let Some(set) = self.sets.get_mut(slot) else { return false };
        set.outcome = outcome;
        if outcome == Outcome::Group {
            set.owners = buckets::assign(&set.members, &set.owners);
        }
        self.dirty_sets.insert(slot);
        was != outcome
    }
    /// Sets whose outcome depends on what is around: those of `vrf`, or only those that name `object`.
    pub fn slots(&self, vrf: VrfId, objects_only: bool) -> Vec<u32> {
        let wanted = |set: &Set| set.vrf == vrf && (!objects_only || matches!(set.key, SetKey::Object(_)));
        self.sets.iter().filter(|(_, set)| wanted(set)).map(|(slot, _)| slot).collect()
    }
    /// Gives those that were refused another chance; true when there are any.
    pub fn forgive(&mut self) -> Vec<u32> {
        let mut slots = Vec::new();
        for (slot, set) in (0..).zip(&mut self.sets.slots) {
            if let Some(set) = set.as_mut().filter(|set| set.refused) {
                set.refused = false;
                slots.push(slot);
            }
        }
        slots
    }

    fn adj_for(&mut self, vrf: VrfId, ifindex: u32, address: IpAddr) -> u32 {
        let adjs = &mut self.adjs;
        *self.by_address.entry((vrf, ifindex, address)).or_insert_with(|| {
            adjs.add(Adj { vrf, ifindex, address, sets: Vec::new(), grouped: 0, id: None, plane: None })
        })
    }
    /// Makes `members` a set's members.
    fn enlist(&mut self, slot: u32, members: Vec<Member>) {
        let Some(set) = self.sets.get_mut(slot) else { return };
        let grouped = u32::from(set.group.is_some());
        let old = std::mem::replace(&mut set.members, members.clone());
        for (member, _) in &members {
            if let Some(adj) = self.adjs.get_mut(*member).filter(|_| old.iter().all(|(old, _)| old != member))
            {
                adj.sets.push(slot);
                adj.grouped += grouped;
                self.dirty_adjs.insert(*member);
            }
        }
        for (member, _) in old.iter().filter(|(old, _)| members.iter().all(|(new, _)| new != old)) {
            if let Some(adj) = self.adjs.get_mut(*member) {
                adj.sets.retain(|of| *of != slot);
                adj.grouped -= grouped;
                self.dirty_adjs.insert(*member);
            }
        }
    }
    /// Something about a neighbour has changed: its adjacency, and the groups it is in.
    pub fn touch(&mut self, slot: u32) {
        if let Some(adj) = self.adjs.get(slot) {
            self.dirty_adjs.insert(slot);
            self.dirty_sets.extend(adj.sets.iter().copied().filter(|set| {
                // A group of one has nobody to lend its bucket to.
                self.sets.get(*set).is_some_and(|set| set.members.len() > 1)
            }));
        }
    }
    /// The neighbours behind an interface.
    pub fn behind(&self, vrf: VrfId, ifindex: u32) -> Vec<u32> {
        let there = |adj: &Adj| adj.vrf == vrf && adj.ifindex == ifindex;
        self.adjs.iter().filter(|(_, adj)| there(adj)).map(|(slot, _)| slot).collect()
    }
    /// Every neighbour that a set names.
    pub fn adjs(&self) -> impl Iterator<Item = (u32, &Adj)> {
        self.adjs.iter().filter(|(_, adj)| !adj.sets.is_empty())
    }

    /// One more prefix is sent to a set's group, which is made if need be; false when there is no room for it.
    pub fn use_group(&mut self, around: &Around, slot: u32, out: &mut Vec<RouteChange>) -> bool {
        let made =
            self.sets.get(slot).is_some_and(|set| set.group.is_some()) || self.make_group(around, slot, out);
        if let Some(set) = self.sets.get_mut(slot).filter(|_| made) {
            set.told += 1;
        }
        made
    }
    /// The number of a set's group.
    pub fn group(&self, slot: u32) -> Option<GroupId> {
        self.sets.get(slot)?.group
    }
    /// The buckets of a set's group, as the plane has them.
    pub fn told(&self, slot: u32) -> Vec<AdjacencyId> {
        self.sets.get(slot).map_or_else(Vec::new, |set| set.plane.clone())
    }
    /// A prefix is no longer sent to a set's group.
    pub fn leave_group(&mut self, slot: u32) {
        if let Some(set) = self.sets.get_mut(slot) {
            set.told -= 1;
            if set.told == 0 {
                self.dirty_sets.insert(slot);
            }
        }
    }

    fn make_group(&mut self, around: &Around, slot: u32, out: &mut Vec<RouteChange>) -> bool {
        let Some(set) = self.sets.get(slot).filter(|set| !set.refused) else { return false };
        let members = set.members.clone();
        let fresh: Vec<u32> = members
            .iter()
            .map(|(member, _)| *member)
            .filter(|member| self.adjs.get(*member).is_some_and(|adj| adj.id.is_none()))
            .collect();
        let room = (self.adjacencies.most as usize).saturating_sub(self.adjacencies.slots.len());
        let number = if fresh.len() <= room { self.groups.give(slot) } else { None };
        let Some(group) = number.and_then(GroupId::new) else {
            self.starved += 1;
            return false;
        };
        for member in fresh {
            let id = self.adjacencies.give(member).and_then(AdjacencyId::new);
            if let Some(adj) = self.adjs.get_mut(member) {
                adj.id = id;
            }
        }
        for (member, _) in &members {
            if let Some(adj) = self.adjs.get_mut(*member) {
                adj.grouped += 1;
            }
            self.tell_adj(around, *member, out);
        }
        let buckets = self.buckets(around, slot);
        out.push(RouteChange::Group(group, Some(buckets.clone())));
        if let Some(set) = self.sets.get_mut(slot) {
            (set.group, set.plane) = (Some(group), buckets);
        }
        true
    }
    /// The adjacency of each bucket, with those of the dead lent out.
    fn buckets(&self, around: &Around, slot: u32) -> Vec<AdjacencyId> {
        let Some(set) = self.sets.get(slot) else { return Vec::new() };
        let dead = |member: &u32| {
            self.adjs.get(*member).is_none_or(|adj| !around.is_alive(adj.ifindex, adj.address))
        };
        let dead: BTreeSet<u32> = set.members.iter().map(|(member, _)| *member).filter(dead).collect();
        let owners = buckets::lend(&set.owners, &set.members, &dead);
        owners.iter().filter_map(|owner| self.adjs.get(*owner)?.id).collect()
    }
    fn tell_adj(&mut self, around: &Around, slot: u32, out: &mut Vec<RouteChange>) {
        let Some(adj) = self.adjs.get_mut(slot) else { return };
        let (Some(id), Some(rif)) = (adj.id, around.rif(adj.ifindex)) else { return };
        let value = Adjacency { rif, mac: around.mac(adj.ifindex, adj.address) };
        if adj.plane != Some(value) {
            adj.plane = Some(value);
            out.push(RouteChange::Adjacency(id, Some(value)));
        }
    }

    /// What has changed of adjacencies and groups, and of groups whose routes have gone elsewhere. `around` answers for a
    /// VRF; `any_rif` is one that exists.
    pub fn flush<'a>(
        &mut self,
        around: &dyn Fn(VrfId) -> Option<&'a Around>,
        any_rif: Option<RifId>,
        out: &mut Vec<RouteChange>,
    ) {
        let sets = std::mem::take(&mut self.dirty_sets);
        let adjs = std::mem::take(&mut self.dirty_adjs);
        self.keep_park(any_rif, out);
        for slot in &adjs {
            if let Some(around) = self.adjs.get(*slot).and_then(|adj| around(adj.vrf)) {
                self.number(*slot);
                self.tell_adj(around, *slot, out);
            }
        }
        for slot in sets {
            if let Some(around) = self.sets.get(slot).and_then(|set| around(set.vrf)) {
                self.tell_set(around, slot, any_rif, out);
            }
            self.retire_set(slot, out);
        }
        let left = std::mem::take(&mut self.dirty_adjs);
        for slot in adjs.union(&left) {
            self.retire_adj(*slot, out);
        }
        let parked = |set: &Set| set.group.is_some() && set.outcome != Outcome::Group;
        if self.park.is_some() && !self.sets.iter().any(|(_, set)| parked(set)) {
            self.park = None;
            out.extend(self.park_id.map(|id| RouteChange::Adjacency(id, None)));
        }
    }
    /// Sets that turned out to need more than there is: they are to be evaluated anew.
    pub fn short(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.short)
    }
    /// Gives a member of a group its number, when the group got it after it was made.
    fn number(&mut self, slot: u32) {
        if let Some(adj) = self.adjs.get_mut(slot).filter(|adj| adj.grouped > 0 && adj.id.is_none()) {
            adj.id = self.adjacencies.give(slot).and_then(AdjacencyId::new);
        }
    }
    fn keep_park(&mut self, any_rif: Option<RifId>, out: &mut Vec<RouteChange>) {
        if self.park.is_some() && any_rif.is_some() && self.park != any_rif {
            self.park = None;
            self.parking(any_rif, out);
        }
    }
    fn tell_set(&mut self, around: &Around, slot: u32, any_rif: Option<RifId>, out: &mut Vec<RouteChange>) {
        let Some(set) = self.sets.get(slot) else { return };
        let Some(group) = set.group.filter(|_| set.told > 0) else { return };
        let mut buckets = match set.outcome {
            Outcome::Group => self.buckets(around, slot),
            _ => Vec::new(),
        };
        if buckets.len() != set.owners.len() || buckets.is_empty() {
            // Nobody left, or no number for one of them: its frames go up until its routes have been told.
            if set.outcome == Outcome::Group {
                self.short.push(slot);
            }
            let Some(park) = self.parking(any_rif, out) else { return };
            buckets = vec![park];
        }
        let Some(set) = self.sets.get_mut(slot).filter(|set| set.plane != buckets) else { return };
        set.plane.clone_from(&buckets);
        out.push(RouteChange::Group(group, Some(buckets)));
    }
    fn parking(&mut self, any_rif: Option<RifId>, out: &mut Vec<RouteChange>) -> Option<AdjacencyId> {
        let (id, rif) = (self.park_id?, any_rif?);
        if self.park.is_none() {
            self.park = Some(rif);
            out.push(RouteChange::Adjacency(id, Some(Adjacency { rif, mac: None })));
        }
        Some(id)
    }
    /// A group that no prefix is sent to goes; a set that no candidate names goes with it.
    fn retire_set(&mut self, slot: u32, out: &mut Vec<RouteChange>) {
        let Some(set) = self.sets.get_mut(slot).filter(|set| set.told == 0) else { return };
        if let Some(group) = set.group.take() {
            set.plane.clear();
            out.push(RouteChange::Group(group, None));
            self.groups.take_back(group.get());
            for (member, _) in set.members.clone() {
                if let Some(adj) = self.adjs.get_mut(member) {
                    adj.grouped -= 1;
                    self.dirty_adjs.insert(member);
                }
            }
        }
        if self.sets.get(slot).is_some_and(|set| set.refs == 0) {
            self.enlist(slot, Vec::new());
            if let Some(set) = self.sets.take(slot) {
                self.by_key.remove(&(set.vrf, set.key));
            }
        }
    }
    fn retire_adj(&mut self, slot: u32, out: &mut Vec<RouteChange>) {
        let Some(adj) = self.adjs.get_mut(slot).filter(|adj| adj.grouped == 0) else { return };
        if let Some(id) = adj.id.take() {
            if adj.plane.take().is_some() {
                out.push(RouteChange::Adjacency(id, None));
            }
            self.adjacencies.take_back(id.get());
        }
        if adj.sets.is_empty()
            && let Some(adj) = self.adjs.take(slot)
        {
            self.by_address.remove(&(adj.vrf, adj.ifindex, adj.address));
        }
    }

    /// The plane refused a group, or an adjacency that some need: their routes go up.
    pub fn refuse(&mut self, change: &RouteChange) -> Vec<u32> {
        let slots = match change {
            RouteChange::Group(id, Some(_)) => self.groups.owner(id.get()).into_iter().collect(),
            RouteChange::Adjacency(id, Some(_)) => {
                let adj = self.adjacencies.owner(id.get()).and_then(|slot| self.adjs.get_mut(slot));
                adj.map_or_else(Vec::new, |adj| {
                    adj.plane = None;
                    adj.sets.clone()
                })
            }
            _ => Vec::new(),
        };
        self.deny(&slots);
        slots
    }
    /// The groups of these sets can't be had.
    pub fn deny(&mut self, slots: &[u32]) {
        for slot in slots {
            if let Some(set) = self.sets.get_mut(*slot) {
                set.refused = true;
                set.plane.clear();
                self.starved += 1;
            }
        }
    }
}
