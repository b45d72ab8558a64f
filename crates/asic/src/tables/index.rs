//! Numbered entries in runs: the members of a next-hop group are adjacent, and there may be no run of the required
//! length although enough entries are free.
//!
//! Invariants: runs do not overlap; free ranges are maximal, so two of them are never adjacent.

use super::Shortage;
use std::collections::BTreeMap;

/// See the module comment.
#[derive(Debug, Clone)]
pub struct Index {
    size: u32,
    used: u32,
    /// The first number and the length of each free range.
    free: BTreeMap<u32, u32>,
}

impl Index {
    /// An empty table of `size` entries.
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self { size, used: 0, free: if size == 0 { BTreeMap::new() } else { [(0, size)].into() } }
    }
    /// The number of all entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }
    /// The number of used entries.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Takes `count` adjacent entries; returns the number of the first one.
    ///
    /// # Errors
    /// [`Shortage::Full`] when fewer are free, [`Shortage::Fragmented`] when they are not adjacent.
    pub fn take(&mut self, count: u32) -> Result<u32, Shortage> {
        if self.size - self.used < count {
            return Err(Shortage::Full);
        }
        // Take the shortest range that is long enough, to keep the long ones whole.
        let best = self
            .free
            .iter()
            .filter(|(_, length)| **length >= count)
            .min_by_key(|(first, length)| (**length, **first));
        let (first, length) = best.map(|(first, length)| (*first, *length)).ok_or(Shortage::Fragmented)?;
        self.free.remove(&first);
        if length > count {
            self.free.insert(first + count, length - count);
        }
        self.used += count;
        Ok(first)
    }

    /// Frees a run that [`Index::take`] returned.
    pub fn give_back(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.used = self.used.saturating_sub(count);
        let (mut first, mut count) = (first, count);
        if let Some(length) = self.free.remove(&(first + count)) {
            count += length;
        }
        if let Some((before, length)) =
            self.free.range(..first).next_back().map(|(at, length)| (*at, *length))
            && before + length == first
        {
            self.free.remove(&before);
            (first, count) = (before, count + length);
        }
        self.free.insert(first, count);
    }

    /// Changes the number of entries of the table.
    ///
    /// # Errors
    /// When an entry beyond the new size is in use.
    pub fn resize(&mut self, size: u32) -> Result<(), Shortage> {
        let tail = self.free.iter().next_back().map(|(first, length)| (*first, *length));
        let tail = tail.filter(|(first, length)| first + length == self.size);
        let end = tail.map_or(self.size, |(first, _)| first);
        if size < end {
            return Err(Shortage::Full);
        }
        if let Some((first, _)) = tail {
            self.free.remove(&first);
        }
        if size > end {
            self.free.insert(end, size - end);
        }
        self.size = size;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_that_are_given_back_join() {
        let mut index = Index::new(8);
        let (a, b, c) = (index.take(2), index.take(4), index.take(2));
        assert_eq!((a, b, c), (Ok(0), Ok(2), Ok(6)));
        assert_eq!(index.take(1), Err(Shortage::Full));
        index.give_back(0, 2);
        index.give_back(6, 2);
        assert_eq!(index.take(4), Err(Shortage::Fragmented));
        index.give_back(2, 4);
        assert_eq!(index.take(8), Ok(0));
    }

    #[test]
    fn used_entries_are_never_cut_off() {
        let mut index = Index::new(8);
        assert_eq!(index.take(3), Ok(0));
        assert_eq!(index.resize(2), Err(Shortage::Full));
        assert_eq!(index.resize(3), Ok(()));
        assert_eq!(index.resize(10), Ok(()));
        assert_eq!(index.take(7), Ok(3));
    }

    proptest! {
        /// Runs never overlap, and every entry is either taken or free.
        #[test]
        fn runs_do_not_overlap(steps in prop::collection::vec((1_u32..9, prop::bool::ANY), 0..200)) {
            let mut index = Index::new(64);
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for (count, take) in steps {
                if take {
                    if let Ok(first) = index.take(count) {
                        prop_assert!(runs.iter().all(|(at, length)| first + count <= *at || at + length <= first));
                        runs.push((first, count));
                    }
                } else if !runs.is_empty() {
                    let (first, length) = runs.swap_remove(count as usize % runs.len());
                    index.give_back(first, length);
                }
                prop_assert_eq!(index.used(), runs.iter().map(|(_, length)| length).sum::<u32>());
                prop_assert_eq!(index.used() + index.free.values().sum::<u32>(), 64);
            }
        }
    }
}
