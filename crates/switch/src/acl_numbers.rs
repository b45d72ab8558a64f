//! The numbers of access lists, which ports and VLANs refer to.
//!
//! Invariants: a list keeps its number while it is in force, and a number is not given to another list in the same step.

use lanyard_acl::PlaneList;
use lanyard_types::AclId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The lists in force.
pub type InForce = BTreeMap<AclId, Arc<PlaneList>>;

/// The lists of a plane state that is being made, with their numbers.
pub(crate) struct Numbered<'a> {
    before: &'a InForce,
    /// The lists that have been numbered so far.
    pub(crate) state_lists: InForce,
}

impl<'a> Numbered<'a> {
    /// No list yet; `before` are the lists in force.
    pub(crate) const fn new(before: &'a InForce) -> Self {
        Self { before, state_lists: BTreeMap::new() }
    }
    /// The number of a policy map's list: that of an equal list, or else a free one, so a list that has changed gets another
    /// number. `None` when no number is free.
    pub(crate) fn number_of_equal(&mut self, list: PlaneList) -> Option<AclId> {
        let in_use = self.state_lists.iter().find(|(_, other)| ***other == list);
        if let Some((id, _)) = in_use {
            return Some(*id);
        }
        if let Some((id, held)) = self.before.iter().find(|(_, other)| ***other == list) {
            self.state_lists.insert(*id, held.clone());
            return Some(*id);
        }
        let free = |id: &AclId| !self.before.contains_key(id) && !self.state_lists.contains_key(id);
        let id = (1..=AclId::MAX.get()).filter_map(AclId::new).find(free)?;
        self.state_lists.insert(id, Arc::new(list));
        Some(id)
    }
    /// The number of a list: that of the list with the same name and family, or else a free one. `None` when no number is free.
    pub(crate) fn number(&mut self, list: PlaneList) -> Option<AclId> {
        let same = |other: &PlaneList| other.name == list.name && other.family == list.family;
        if let Some((id, _)) = self.state_lists.iter().find(|(_, other)| same(other)) {
            return Some(*id);
        }
        let held = self.before.iter().find(|(_, other)| same(other));
        let free = |id: &AclId| !self.before.contains_key(id) && !self.state_lists.contains_key(id);
        let id = match held {
            Some((id, _)) => *id,
            None => (1..=AclId::MAX.get()).filter_map(AclId::new).find(free)?,
        };
        // An equal list is not stored twice: planes compare pointers first.
        let stored = held.filter(|(_, other)| ***other == list).map(|(_, other)| other.clone());
        self.state_lists.insert(id, stored.unwrap_or_else(|| Arc::new(list)));
        Some(id)
    }
}
