//! Next hops: adjacencies, sets of next hops (what a route names), and the plane's groups.
//!
//! Read first: RFC 2992; ip-nexthop(8).
//!
//! Invariants: routes that name the same next hops share a set, and with it a group of the plane. A change of a next
//! hop therefore changes groups and adjacencies, but no route. Adjacencies are created before the groups that use them
//! and removed after these, so the plane never holds a dangling reference.

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
    /// The number of candidates that name this set.
    refs: u32,
    /// The number of prefixes that the plane sends to the set's group.
    programmed: u32,
    pub outcome: Outcome,
    members: Vec<Member>,
    /// The owner of each bucket: the slot number of an adjacency.
    owners: Vec<u32>,
    group: Option<GroupId>,
    /// The group's buckets as they were last programmed.
    plane: Vec<AdjacencyId>,
    /// True if the plane had no room for the group.
    refused: bool,
}

#[derive(Debug)]
pub(super) struct Adj {
    pub vrf: VrfId,
    pub ifindex: u32,
    pub address: IpAddr,
    /// The sets of which this neighbour is a member.
    sets: Vec<u32>,
    /// The number of these sets that have a group.
    grouped: u32,
    id: Option<AdjacencyId>,
    /// The adjacency as it was last programmed.
    plane: Option<Adjacency>,
}

impl Adj {
    /// True when the plane has this adjacency.
    pub const fn is_programmed(&self) -> bool {
        self.plane.is_some()
    }
    /// The MAC address to which the plane sends; `None` while the plane has none.
    pub fn mac(&self) -> Option<MacAddr> {
        self.plane?.mac
    }
}

/// Values by slot number. The lowest free slot is used first.
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

/// The pool of group or adjacency numbers, from 1 to a maximum.
#[derive(Debug)]
struct Numbers {
    slots: Slots<u32>,
    most: u32,
}

impl Numbers {
    fn new(most: u32) -> Self {
        Self { slots: Slots::default(), most }
    }
    /// Assigns a number to `owner`; `None` when all numbers are in use.
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

/// All next hops of all VRFs.
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
    /// The router interface of the parking adjacency: an unresolved adjacency without a neighbour, which sends the
    /// frames of groups without a live member to the kernel. The highest adjacency number is reserved for it.
    park: Option<RifId>,
    park_id: Option<AdjacencyId>,
    /// Sets that need more adjacencies than there are numbers.
    short: Vec<u32>,
    /// How often a group was not created because numbers were used up, or because the plane refused it.
    pub refused_groups: u64,
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
            refused_groups: 0,
        }
    }
    /// The number of groups and of adjacencies that the plane has.
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
    /// Returns the set of these next hops, and counts one more candidate that names it. `like` is the set that the prefix
    /// used before: a new set keeps the flows of `like` on their next hops where possible.
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
            programmed: 0,
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
    /// Ends one candidate's use of a set.
    pub fn release(&mut self, slot: u32) {
        if let Some(set) = self.sets.get_mut(slot) {
            set.refs -= 1;
            self.dirty_sets.insert(slot);
        }
    }
    /// True if IPv6 merges routes with these next hops into one route: they all have a gateway and are not an object.
    pub fn merges(&self, slot: u32) -> bool {
        match self.sets.get(slot).map(|set| &set.key) {
            Some(SetKey::One(_, via)) => via.is_some(),
            Some(SetKey::Many(hops)) => hops.iter().all(|(_, via, _)| via.is_some()),
            _ => false,
        }
    }

    /// The set of these next hops, if a candidate names it.
    pub fn find(&self, vrf: VrfId, key: &SetKey) -> Option<u32> {
        self.by_key.get(&(vrf, key.clone())).copied()
    }
    /// The slot numbers of a set's members.
    pub fn members(&self, slot: u32) -> Vec<u32> {
        self.sets
            .get(slot)
            .map_or_else(Vec::new, |set| set.members.iter().map(|(member, _)| *member).collect())
    }
    /// The set without the next hops of `less`; `None` if none would be left, or if the set does not name several next hops.
    pub fn without(&self, slot: u32, less: &SetKey) -> Option<SetKey> {
        let SetKey::Many(hops) = &self.sets.get(slot)?.key else { return None };
        let goes = |hop: &(u32, Option<IpAddr>, u32)| match less {
            SetKey::One(ifindex, via) => (hop.0, hop.1) == (*ifindex, *via),
            SetKey::Many(less) => less.iter().any(|other| (other.0, other.1) == (hop.0, hop.1)),
            SetKey::Object(_) | SetKey::Fpm(_) => true,
        };
        let rest: Vec<_> = hops.iter().copied().filter(|hop| !goes(hop)).collect();
        match rest[..] {
            [] => None,
            [(ifindex, via, _)] => Some(SetKey::One(ifindex, via)),
            _ => Some(SetKey::Many(rest.into())),
        }
    }

    /// Resolves a set from the present surroundings. Returns true if its outcome has changed, so that its routes need
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
    /// The slot numbers of the sets of `vrf`: of all, or, if `objects_only`, of those that refer to next-hop objects.
    pub fn slots(&self, vrf: VrfId, objects_only: bool) -> Vec<u32> {
        let wanted = |set: &Set| set.vrf == vrf && (!objects_only || matches!(set.key, SetKey::Object(_)));
        self.sets.iter().filter(|(_, set)| wanted(set)).map(|(slot, _)| slot).collect()
    }
    /// Makes refused groups and adjacencies eligible again; returns the sets concerned.
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
    /// Sets the members of a set.
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
    /// Notes that a neighbour has changed, and with it its adjacency and the groups that it belongs to.
    pub fn touch(&mut self, slot: u32) {
        if let Some(adj) = self.adjs.get(slot) {
            self.dirty_adjs.insert(slot);
            self.dirty_sets.extend(adj.sets.iter().copied().filter(|set| {
                // A group with one member has no other member to lend its bucket to.
                self.sets.get(*set).is_some_and(|set| set.members.len() > 1)
            }));
        }
    }
    /// The slot numbers of the neighbours on an interface.
    pub fn behind(&self, vrf: VrfId, ifindex: u32) -> Vec<u32> {
        let there = |adj: &Adj| adj.vrf == vrf && adj.ifindex == ifindex;
        self.adjs.iter().filter(|(_, adj)| there(adj)).map(|(slot, _)| slot).collect()
    }
    /// All neighbours that a set names.
    pub fn adjs(&self) -> impl Iterator<Item = (u32, &Adj)> {
        self.adjs.iter().filter(|(_, adj)| !adj.sets.is_empty())
    }

    /// Counts one more prefix that is sent to a set's group, and creates the group if necessary. Returns false when
    /// there is no room for it.
    pub fn use_group(&mut self, around: &Around, slot: u32, out: &mut Vec<RouteChange>) -> bool {
        let made =
            self.sets.get(slot).is_some_and(|set| set.group.is_some()) || self.make_group(around, slot, out);
        if let Some(set) = self.sets.get_mut(slot).filter(|_| made) {
            set.programmed += 1;
        }
        made
    }
    /// The number of a set's group.
    pub fn group(&self, slot: u32) -> Option<GroupId> {
        self.sets.get(slot)?.group
    }
    /// The buckets of a set's group, as they were last programmed.
    pub fn programmed(&self, slot: u32) -> Vec<AdjacencyId> {
        self.sets.get(slot).map_or_else(Vec::new, |set| set.plane.clone())
    }
    /// Counts one prefix less that is sent to a set's group.
    pub fn leave_group(&mut self, slot: u32) {
        if let Some(set) = self.sets.get_mut(slot) {
            set.programmed -= 1;
            if set.programmed == 0 {
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
            self.refused_groups += 1;
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
            self.program_adjacency(around, *member, out);
        }
        let buckets = self.buckets(around, slot);
        out.push(RouteChange::Group(group, Some(buckets.clone())));
        if let Some(set) = self.sets.get_mut(slot) {
            (set.group, set.plane) = (Some(group), buckets);
        }
        true
    }
    /// The adjacency of each bucket, with the buckets of dead members lent to the others.
    fn buckets(&self, around: &Around, slot: u32) -> Vec<AdjacencyId> {
        let Some(set) = self.sets.get(slot) else { return Vec::new() };
        let dead = |member: &u32| {
            self.adjs.get(*member).is_none_or(|adj| !around.is_alive(adj.ifindex, adj.address))
        };
        let dead: BTreeSet<u32> = set.members.iter().map(|(member, _)| *member).filter(dead).collect();
        let owners = buckets::lend(&set.owners, &set.members, &dead);
        owners.iter().filter_map(|owner| self.adjs.get(*owner)?.id).collect()
    }
    fn program_adjacency(&mut self, around: &Around, slot: u32, out: &mut Vec<RouteChange>) {
        let Some(adj) = self.adjs.get_mut(slot) else { return };
        let (Some(id), Some(rif)) = (adj.id, around.rif(adj.ifindex)) else { return };
        let value = Adjacency { rif, mac: around.mac(adj.ifindex, adj.address) };
        if adj.plane != Some(value) {
            adj.plane = Some(value);
            out.push(RouteChange::Adjacency(id, Some(value)));
        }
    }

    /// Emits the changed adjacencies and groups, and removes groups that no prefix is sent to any more. `around` gives
    /// the surroundings of a VRF; `any_rif` is a router interface that exists.
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
                self.program_adjacency(around, *slot, out);
            }
        }
        for slot in sets {
            if let Some(around) = self.sets.get(slot).and_then(|set| around(set.vrf)) {
                self.program_set(around, slot, any_rif, out);
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
    /// The sets that turned out to need more numbers than there are. They have to be resolved again.
    pub fn short(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.short)
    }
    /// Numbers the adjacency of a member whose group was created before the member was added.
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
    fn program_set(
        &mut self,
        around: &Around,
        slot: u32,
        any_rif: Option<RifId>,
        out: &mut Vec<RouteChange>,
    ) {
        let Some(set) = self.sets.get(slot) else { return };
        let Some(group) = set.group.filter(|_| set.programmed > 0) else { return };
        let mut buckets = match set.outcome {
            Outcome::Group => self.buckets(around, slot),
            _ => Vec::new(),
        };
        if buckets.len() != set.owners.len() || buckets.is_empty() {
            // No member is alive, or one has no number: frames go to the kernel until the routes have been programmed
            // again.
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
    /// Removes a group that no prefix is sent to, and the set if no candidate names it.
    fn retire_set(&mut self, slot: u32, out: &mut Vec<RouteChange>) {
        let Some(set) = self.sets.get_mut(slot).filter(|set| set.programmed == 0) else { return };
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

    /// Handles the plane's refusal of a group or an adjacency: the routes concerned go to the kernel. Returns their
    /// sets.
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
    /// Marks these sets as refused: the plane has no group for them.
    pub fn deny(&mut self, slots: &[u32]) {
        for slot in slots {
            if let Some(set) = self.sets.get_mut(*slot) {
                set.refused = true;
                set.plane.clear();
                self.refused_groups += 1;
            }
        }
    }
}
