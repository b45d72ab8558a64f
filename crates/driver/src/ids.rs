//! [`Ids`]: translates the switch's numbers of objects to the chip's.
//!
//! A switch that has been restarted numbers its next hops again, while the chip continues to use the old numbers. The
//! switch's numbers are therefore translated: a group or an adjacency that the chip already has keeps the chip's
//! number. Invariant: no two numbers of the switch have the same number of the chip.

use std::collections::{BTreeMap, BTreeSet};

/// See the module comment. `new` makes a `K` from a number and returns `None` if that is out of range.
#[derive(Debug)]
pub(crate) struct Ids<K> {
    to_chip: BTreeMap<K, K>,
    used: BTreeSet<K>,
    new: fn(u32) -> Option<K>,
}

impl<K: Ord + Copy> Ids<K> {
    pub(crate) const fn new(new: fn(u32) -> Option<K>) -> Self {
        Self { to_chip: BTreeMap::new(), used: BTreeSet::new(), new }
    }
    /// The chip's number for a number of the switch; `None` if none is assigned.
    pub(crate) fn get(&self, id: K) -> Option<K> {
        self.to_chip.get(&id).copied()
    }
    /// The switch's number for a number of the chip.
    pub(crate) fn back(&self, chip: K) -> Option<K> {
        self.to_chip.iter().find(|(_, bound)| **bound == chip).map(|(id, _)| *id)
    }
    /// Reserves a number of the chip for which the switch has no number.
    pub(crate) fn hold(&mut self, chip: K) {
        self.used.insert(chip);
    }
    /// Assigns this number of the chip to a number of the switch.
    pub(crate) fn bind(&mut self, id: K, chip: K) {
        self.used.insert(chip);
        self.to_chip.insert(id, chip);
    }
    /// The chip's number of `id`. If it has none, one is assigned: the same number if it is free, else the lowest free
    /// one. `None` when no number is free.
    pub(crate) fn assign(&mut self, id: K) -> Option<K> {
        if let Some(chip) = self.get(id) {
            return Some(chip);
        }
        let free = |chip: &K| !self.used.contains(chip);
        let lowest = || (1..=u32::MAX).map_while(self.new).find(free);
        let chip = Some(id).filter(free).or_else(lowest)?;
        self.bind(id, chip);
        Some(chip)
    }
    /// Removes a number of the switch.
    pub(crate) fn release(&mut self, id: K) {
        if let Some(chip) = self.to_chip.remove(&id) {
            self.used.remove(&chip);
        }
    }
    /// Frees a number of the chip that was reserved.
    pub(crate) fn let_go(&mut self, chip: K) {
        self.used.remove(&chip);
    }
    /// True when a number of the switch has this number of the chip.
    pub(crate) fn is_bound(&self, chip: K) -> bool {
        self.to_chip.values().any(|bound| *bound == chip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_types::GroupId;

    fn group(number: u32) -> GroupId {
        GroupId::new(number).expect("a group")
    }

    #[test]
    fn numbers_stay_the_same_where_they_can() {
        let mut ids = Ids::new(GroupId::new);
        assert_eq!(ids.assign(group(7)), Some(group(7)));
        ids.hold(group(1));
        assert_eq!(ids.assign(group(1)), Some(group(2)), "the chip uses 1 already");
        ids.bind(group(9), group(1));
        assert_eq!((ids.get(group(9)), ids.back(group(1))), (Some(group(1)), Some(group(9))));
        assert!(ids.is_bound(group(2)) && !ids.is_bound(group(3)));
        ids.release(group(1));
        assert_eq!(ids.assign(group(2)), Some(group(2)), "it is free again");
        ids.hold(group(3));
        ids.let_go(group(3));
        assert_eq!(ids.assign(group(3)), Some(group(3)));
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut ids = Ids::new(GroupId::new);
        (1..=GroupId::MAX.get()).for_each(|number| ids.hold(group(number)));
        assert_eq!(ids.assign(group(5)), None);
    }
}
