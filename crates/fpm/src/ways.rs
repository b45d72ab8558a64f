//! Ways: what a route does with its packets, each kept once however many routes use it.
//!
//! Read first: linux/nexthop.h. Invariant: a way lives as long as a route uses it, and its number is not given to another
//! way before its end has been told.

use crate::Hop;
use lanyard_wire::rtnetlink::{BLACKHOLE, PROHIBIT, UNICAST, UNREACHABLE};
use lanyard_wire::rtnetlink::{NextHopAction, NextHopObject, Route as Message};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WayId(pub u32);

/// What a route does with its packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Sends each to one of these; never empty.
    Hops(Arc<[Hop]>),
    /// Drops them.
    Blackhole,
    /// Drops them and tells the sender: host unreachable.
    Unreachable,
    /// Drops them and tells the sender: prohibited.
    Prohibit,
    /// Something that only the kernel can do, or a next-hop object that is not known.
    Up,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Hop(Hop),
    Group(Arc<[(u32, u32)]>),
    Blackhole,
    Other,
    /// A route uses it, and the client has not said what it is, or has deleted it.
    Unknown,
}

#[derive(Debug)]
struct Object {
    action: Action,
    current: bool,
    way: Option<WayId>,
}

#[derive(Debug)]
struct Slot {
    way: Way,
    routes: u32,
    /// The next-hop object it is of; `None` when routes spelled it out.
    object: Option<u32>,
    told: bool,
}

/// All ways, and the next-hop objects they come from.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    slots: Vec<Option<Slot>>,
    free: Vec<WayId>,
    /// Ended since the last [`Ways::flush`].
    ended: Vec<WayId>,
    spelled: BTreeMap<Way, WayId>,
    objects: BTreeMap<u32, Object>,
    /// (member, group).
    memberships: BTreeSet<(u32, u32)>,
    changed: BTreeSet<u32>,
    fresh: Vec<WayId>,
    limit: usize,
}

impl Ways {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }
    /// Ways in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.ended.len()
    }
    /// Next-hop objects the client has.
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }
    pub(crate) fn get(&self, id: WayId) -> Option<&Way> {
        self.slot(id).map(|slot| &slot.way)
    }

    /// Takes in an object; false when there is no room for it.
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
    /// The client has deleted an object. Routes that use it are left to the kernel.
    pub(crate) fn delete_object(&mut self, id: u32) {
        match self.objects.get(&id).map(|object| object.way.is_some()) {
            None => {}
            Some(true) => self.set_action(id, Action::Unknown),
            Some(false) => {
                self.set_action(id, Action::Unknown);
                self.objects.remove(&id);
            }
        }
    }
    /// Nothing has been seen in the session that begins.
    pub(crate) fn age(&mut self) {
        self.objects.values_mut().for_each(|object| object.current = false);
    }
    /// Deletes objects that this session has not had.
    pub(crate) fn sweep(&mut self) {
        let stale: Vec<u32> =
            self.objects.iter().filter(|(_, object)| !object.current).map(|(id, _)| *id).collect();
        for id in stale {
            self.delete_object(id);
        }
    }

    fn set_action(&mut self, id: u32, action: Action) {
        let object =
            self.objects.entry(id).or_insert(Object { action: Action::Unknown, current: true, way: None });
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

    /// One more route goes the way of this message; `None` when there is no room for another way.
    pub(crate) fn take(&mut self, message: &Message<'_>) -> Option<WayId> {
        if let (UNICAST, Some(id), false) = (message.kind, message.nexthop_id, message.encapsulates) {
            if let Some(way) = self.objects.get(&id).and_then(|object| object.way) {
                return self.again(way);
            }
            let placeholder = Object { action: Action::Unknown, current: true, way: None };
            if !self.objects.contains_key(&id) && self.objects.len() >= self.limit {
                return None;
            }
            let made = self.make(Way::Up, Some(id))?;
            self.objects.entry(id).or_insert(placeholder).way = Some(made);
            let way = self.way_of(id);
            if let Some(slot) = self.slot_mut(made) {
                slot.way = way;
            }
            return Some(made);
        }
        let way = spelled(message);
        match self.spelled.get(&way) {
            Some(id) => self.again(*id),
            None => {
                let id = self.make(way.clone(), None)?;
                self.spelled.insert(way, id);
                Some(id)
            }
        }
    }
    /// One route less goes this way.
    pub(crate) fn release(&mut self, id: WayId) {
        let Some(slot) = self.slot_mut(id) else { return };
        slot.routes -= 1;
        if slot.routes > 0 {
            return;
        }
        let Some(slot) = self.slots[id.0 as usize].take() else { return };
        self.ended.push(id);
        match slot.object {
            None => drop(self.spelled.remove(&slot.way)),
            Some(object) => {
                if let Some(known) = self.objects.get_mut(&object) {
                    known.way = None;
                    if known.action == Action::Unknown {
                        self.objects.remove(&object);
                    }
                }
            }
        }
        if !slot.told {
            // Nobody has heard of it: nobody has to hear of its end.
            self.ended.pop();
            self.fresh.retain(|fresh| *fresh != id);
            self.free.push(id);
        }
    }

    /// Ways that are new or have changed since the last call, and those that have ended.
    pub(crate) fn flush(&mut self) -> (Vec<(WayId, Way)>, Vec<WayId>) {
        let mut touched: BTreeSet<WayId> = std::mem::take(&mut self.fresh).into_iter().collect();
        let changed = std::mem::take(&mut self.changed);
        let mut objects = changed.clone();
        for id in changed {
            let groups = self.memberships.range((id, 0)..=(id, u32::MAX));
            objects.extend(groups.map(|(_, group)| *group));
        }
        for id in objects {
            let Some(way) = self.objects.get(&id).and_then(|object| object.way) else { continue };
            let new = self.way_of(id);
            if let Some(slot) = self.slot_mut(way)
                && slot.way != new
            {
                slot.way = new;
                touched.insert(way);
            }
        }
        let mut ways = Vec::with_capacity(touched.len());
        for id in touched {
            if let Some(slot) = self.slot_mut(id) {
                slot.told = true;
                ways.push((id, slot.way.clone()));
            }
        }
        let ended = std::mem::take(&mut self.ended);
        self.free.extend(&ended);
        (ways, ended)
    }

    /// Every way is new to somebody.
    pub(crate) fn tell_again(&mut self) {
        let used = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_some());
        self.fresh.extend(used.map(|(id, _)| WayId(id)));
    }

    /// What an object comes to now.
    fn way_of(&self, id: u32) -> Way {
        match self.objects.get(&id).map(|object| &object.action) {
            Some(Action::Hop(hop)) => Way::Hops([*hop].into()),
            Some(Action::Blackhole) => Way::Blackhole,
            Some(Action::Group(members)) => {
                let mut hops = Vec::with_capacity(members.len());
                for (member, weight) in members.iter() {
                    match self.objects.get(member).map(|object| &object.action) {
                        Some(Action::Hop(hop)) => hops.push(Hop { weight: *weight, ..*hop }),
                        // As in the kernel: an object that goes leaves its groups.
                        Some(Action::Unknown) | None => {}
                        Some(_) => return Way::Up,
                    }
                }
                if hops.is_empty() { Way::Up } else { Way::Hops(hops.into()) }
            }
            Some(Action::Other | Action::Unknown) | None => Way::Up,
        }
    }

    fn make(&mut self, way: Way, object: Option<u32>) -> Option<WayId> {
        if self.len() >= self.limit {
            return None;
        }
        let slot = Some(Slot { way, routes: 1, object, told: false });
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id.0 as usize] = slot;
                id
            }
            None => {
                let id = WayId(u32::try_from(self.slots.len()).ok()?);
                self.slots.push(slot);
                id
            }
        };
        self.fresh.push(id);
        Some(id)
    }
    fn again(&mut self, id: WayId) -> Option<WayId> {
        let slot = self.slot_mut(id)?;
        slot.routes = slot.routes.checked_add(1)?;
        Some(id)
    }
    fn slot(&self, id: WayId) -> Option<&Slot> {
        self.slots.get(id.0 as usize)?.as_ref()
    }
    fn slot_mut(&mut self, id: WayId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }
}

fn spelled(message: &Message<'_>) -> Way {
    match message.kind {
        UNICAST if !message.encapsulates => {
            let hops: Arc<[Hop]> = message.hops().collect();
            if hops.is_empty() { Way::Up } else { Way::Hops(hops) }
        }
        BLACKHOLE => Way::Blackhole,
        UNREACHABLE => Way::Unreachable,
        PROHIBIT => Way::Prohibit,
        _ => Way::Up,
    }
}
