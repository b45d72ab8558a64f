//! Next-hop sets: the actions of routes for their packets. Routes with the same next hops share one set.
//!
//! Read first: linux/nexthop.h. Invariant: a set exists as long as a route uses it, and its number is not reused before
//! its removal has been announced.

use crate::Hop;
use lanyard_wire::rtnetlink::{BLACKHOLE, PROHIBIT, UNICAST, UNREACHABLE};
use lanyard_wire::rtnetlink::{NextHopAction, NextHopObject, Route as Message};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of a next-hop set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHopSetId(pub u32);

/// The action of a route for its packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHopSet {
    /// Sends each packet to one of these next hops; never empty.
    Hops(Arc<[Hop]>),
    /// Drops its packets.
    Blackhole,
    /// Drops its packets and answers "host unreachable".
    Unreachable,
    /// Drops its packets and answers "prohibited".
    Prohibit,
    /// Leaves its packets to the kernel: only the kernel can do what the route asks, or the route's next-hop object is
    /// unknown.
    Kernel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Hop(Hop),
    Group(Arc<[(u32, u32)]>),
    Blackhole,
    Other,
    /// A route uses this object, but the client has not defined it yet or has deleted it.
    Unknown,
}

#[derive(Debug)]
struct Object {
    action: Action,
    current: bool,
    next_hops: Option<NextHopSetId>,
}

#[derive(Debug)]
struct Slot {
    next_hops: NextHopSet,
    routes: u32,
    /// The next-hop object that this set stands for; `None` when routes list their next hops themselves.
    object: Option<u32>,
    announced: bool,
}

/// All next-hop sets, and the next-hop objects that they come from.
#[derive(Debug, Default)]
pub(crate) struct NextHopSets {
    slots: Vec<Option<Slot>>,
    free: Vec<NextHopSetId>,
    /// Sets removed since the last [`NextHopSets::flush`].
    ended: Vec<NextHopSetId>,
    spelled: BTreeMap<NextHopSet, NextHopSetId>,
    objects: BTreeMap<u32, Object>,
    /// Pairs (member, group) of the identifiers of next-hop objects.
    memberships: BTreeSet<(u32, u32)>,
    changed: BTreeSet<u32>,
    fresh: Vec<NextHopSetId>,
    limit: usize,
}

impl NextHopSets {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }
    /// The number of sets in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.ended.len()
    }
    /// The number of next-hop objects that the client has defined or that a route uses.
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }
    pub(crate) fn get(&self, id: NextHopSetId) -> Option<&NextHopSet> {
        self.slot(id).map(|slot| &slot.next_hops)
    }

    /// Adds or changes an object; false when there is no room for it.
    pub(crate) fn set_object(&mut self, message: &NextHopObject<'_>) -> bool {
        let action = match message.action {
            NextHopAction::Hop(hop) => Action::Hop(hop),
            NextHopAction::Group(members) if members.iter().len() > self.limit => return false,
            NextHopAction::Group(members) => Action::Group(members.iter().collect()),
            NextHopAction::Blackhole => Action::Blackhole,
            NextHopAction::Other => Action::Other,
        };
        let known = self.objects.contains_key(&message.id);
        let members = if let Action::Group(members) = &action { members.len() } else { 0 };
        if !known && self.objects.len() >= self.limit || self.memberships.len() + members > 16 * self.limit {
            return false;
        }
        self.set_action(message.id, action);
        true
    }
    /// Handles the client's deletion of an object. Routes that use it are left to the kernel.
    pub(crate) fn delete_object(&mut self, id: u32) {
        match self.objects.get(&id).map(|object| object.next_hops.is_some()) {
            None => {}
            Some(true) => self.set_action(id, Action::Unknown),
            Some(false) => {
                self.set_action(id, Action::Unknown);
                self.objects.remove(&id);
            }
        }
    }
    /// Marks all objects as not yet seen in the session that begins.
    pub(crate) fn age(&mut self) {
        self.objects.values_mut().for_each(|object| object.current = false);
    }
    /// Deletes the objects that the client has not sent in this session.
    pub(crate) fn sweep(&mut self) {
        let stale: Vec<u32> =
            self.objects.iter().filter(|(_, object)| !object.current).map(|(id, _)| *id).collect();
        for id in stale {
            self.delete_object(id);
        }
    }

    fn set_action(&mut self, id: u32, action: Action) {
        let object = self.objects.entry(id).or_insert(Object {
            action: Action::Unknown,
            current: true,
            next_hops: None,
        });
        object.current = true;
        if object.action == action {
            return;
        }
        let old = std::mem::replace(&mut object.action, action.clone());
        if let Action::Group(members) = old {
            for (member, _) in members.iter() {
                self.memberships.remove(&(*member, id));
            }
        }
        if let Action::Group(members) = action {
            self.memberships.extend(members.iter().map(|(member, _)| (*member, id)));
        }
        self.changed.insert(id);
    }

    /// Returns the set for the next hops of this message, with one more route that uses it; `None` when there is no
    /// room for another set.
    pub(crate) fn take(&mut self, message: &Message<'_>) -> Option<NextHopSetId> {
        if let (UNICAST, Some(id), false) = (message.kind, message.nexthop_id, message.encapsulates) {
            if let Some(next_hops) = self.objects.get(&id).and_then(|object| object.next_hops) {
                return self.again(next_hops);
            }
            let placeholder = Object { action: Action::Unknown, current: true, next_hops: None };
            if !self.objects.contains_key(&id) && self.objects.len() >= self.limit {
                return None;
            }
            let made = self.make(NextHopSet::Kernel, Some(id))?;
            self.objects.entry(id).or_insert(placeholder).next_hops = Some(made);
            let next_hops = self.resolve(id);
            if let Some(slot) = self.slot_mut(made) {
                slot.next_hops = next_hops;
            }
            return Some(made);
        }
        let next_hops = spelled(message);
        match self.spelled.get(&next_hops) {
            Some(id) => self.again(*id),
            None => {
                let id = self.make(next_hops.clone(), None)?;
                self.spelled.insert(next_hops, id);
                Some(id)
            }
        }
    }
    /// Ends one route's use of the set, and removes the set after the last one.
    pub(crate) fn release(&mut self, id: NextHopSetId) {
        let Some(slot) = self.slot_mut(id) else { return };
        slot.routes -= 1;
        if slot.routes > 0 {
            return;
        }
        let Some(slot) = self.slots[id.0 as usize].take() else { return };
        self.ended.push(id);
        match slot.object {
            None => drop(self.spelled.remove(&slot.next_hops)),
            Some(object) => {
                if let Some(known) = self.objects.get_mut(&object) {
                    known.next_hops = None;
                    if known.action == Action::Unknown {
                        self.objects.remove(&object);
                    }
                }
            }
        }
        if !slot.announced {
            // The set was never announced, so its removal is not announced either.
            self.ended.pop();
            self.fresh.retain(|fresh| *fresh != id);
            self.free.push(id);
        }
    }

    /// Returns the sets that are new or have changed since the last call, and those that were removed.
    pub(crate) fn flush(&mut self) -> (Vec<(NextHopSetId, NextHopSet)>, Vec<NextHopSetId>) {
        let mut touched: BTreeSet<NextHopSetId> = std::mem::take(&mut self.fresh).into_iter().collect();
        let changed = std::mem::take(&mut self.changed);
        let mut objects = changed.clone();
        for id in changed {
            let groups = self.memberships.range((id, 0)..=(id, u32::MAX));
            objects.extend(groups.map(|(_, group)| *group));
        }
        for id in objects {
            let Some(next_hops) = self.objects.get(&id).and_then(|object| object.next_hops) else { continue };
            let new = self.resolve(id);
            if let Some(slot) = self.slot_mut(next_hops)
                && slot.next_hops != new
            {
                slot.next_hops = new;
                touched.insert(next_hops);
            }
        }
        let mut next_hop_sets = Vec::with_capacity(touched.len());
        for id in touched {
            if let Some(slot) = self.slot_mut(id) {
                slot.announced = true;
                next_hop_sets.push((id, slot.next_hops.clone()));
            }
        }
        let ended = std::mem::take(&mut self.ended);
        self.free.extend(&ended);
        (next_hop_sets, ended)
    }

    /// Makes the next [`NextHopSets::flush`] return every set.
    pub(crate) fn announce_all(&mut self) {
        let used = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_some());
        self.fresh.extend(used.map(|(id, _)| NextHopSetId(id)));
    }

    /// Resolves an object to its next hops as they are now.
    fn resolve(&self, id: u32) -> NextHopSet {
        match self.objects.get(&id).map(|object| &object.action) {
            Some(Action::Hop(hop)) => NextHopSet::Hops([*hop].into()),
            Some(Action::Blackhole) => NextHopSet::Blackhole,
            Some(Action::Group(members)) => {
                let mut hops = Vec::with_capacity(members.len());
                for (member, weight) in members.iter() {
                    match self.objects.get(member).map(|object| &object.action) {
                        Some(Action::Hop(hop)) => hops.push(Hop { weight: *weight, ..*hop }),
                        // As in the kernel, a deleted object leaves its groups.
                        Some(Action::Unknown) | None => {}
                        Some(_) => return NextHopSet::Kernel,
                    }
                }
                if hops.is_empty() { NextHopSet::Kernel } else { NextHopSet::Hops(hops.into()) }
            }
            Some(Action::Other | Action::Unknown) | None => NextHopSet::Kernel,
        }
    }

    fn make(&mut self, next_hops: NextHopSet, object: Option<u32>) -> Option<NextHopSetId> {
        if self.len() >= self.limit {
            return None;
        }
        let slot = Some(Slot { next_hops, routes: 1, object, announced: false });
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id.0 as usize] = slot;
                id
            }
            None => {
                let id = NextHopSetId(u32::try_from(self.slots.len()).ok()?);
                self.slots.push(slot);
                id
            }
        };
        self.fresh.push(id);
        Some(id)
    }
    fn again(&mut self, id: NextHopSetId) -> Option<NextHopSetId> {
        let slot = self.slot_mut(id)?;
        slot.routes = slot.routes.checked_add(1)?;
        Some(id)
    }
    fn slot(&self, id: NextHopSetId) -> Option<&Slot> {
        self.slots.get(id.0 as usize)?.as_ref()
    }
    fn slot_mut(&mut self, id: NextHopSetId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }
}

fn spelled(message: &Message<'_>) -> NextHopSet {
    match message.kind {
        UNICAST if !message.encapsulates => {
            let hops: Arc<[Hop]> = message.hops().collect();
            if hops.is_empty() { NextHopSet::Kernel } else { NextHopSet::Hops(hops) }
        }
        BLACKHOLE => NextHopSet::Blackhole,
        UNREACHABLE => NextHopSet::Unreachable,
        PROHIBIT => NextHopSet::Prohibit,
        _ => NextHopSet::Kernel,
    }
}
