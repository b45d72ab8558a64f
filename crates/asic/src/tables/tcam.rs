//! Ternary match: entries in the order of priority, and the entries that a range of ports takes.
//!
//! A TCAM consists of blocks. A block serves entries of one width at a time, so a TCAM can refuse wide entries while
//! blocks of narrow ones have room, and the reverse. Within the blocks of a width, entries are in the order of
//! priority: an insertion between two neighbours moves the entries up to the nearest free place, with one write each.
//! Read first: Shah and Gupta, "Fast updating algorithms for TCAMs" (2001); Srinivasan et al., "Fast and scalable layer
//! four switching" (1998), on ranges as prefixes.
//!
//! Invariant: of two entries of the same width the one with the lower order comes first, and a refusal changes nothing.

use super::Shortage;
use crate::object::Width;
use std::collections::BTreeMap;

/// The order of an entry: the lower one comes first and wins. The second number distinguishes entries of equal
/// priority.
pub type Order = (u64, u64);

/// See the module comment.
#[derive(Debug, Clone)]
pub struct Tcam {
    /// Slots per block.
    block: u32,
    blocks: u32,
    /// For each width the places in the blocks that serve it, in the order of priority; `None` is a free place.
    rows: BTreeMap<Width, Vec<Option<Order>>>,
}

impl Tcam {
    /// An empty TCAM of `size` slots in blocks of `block`.
    #[must_use]
    pub fn new(size: u32, block: u32) -> Self {
        let block = block.clamp(1, size.max(1));
        Self { block, blocks: size / block, rows: BTreeMap::new() }
    }

    /// The number of all slots.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.blocks * self.block
    }
    /// The slots that entries take. Free places in a block that serves another width are not included, although no
    /// other entry can use them.
    #[must_use]
    pub fn used(&self) -> u32 {
        let of =
            |(width, row): (&Width, &Vec<Option<Order>>)| row.iter().flatten().count() as u32 * width.units();
        self.rows.iter().map(of).sum()
    }
    fn blocks_taken(&self) -> u32 {
        self.rows.iter().map(|(width, row)| self.blocks_of(*width, row.len())).sum()
    }
    fn blocks_of(&self, width: Width, places: usize) -> u32 {
        places as u32 / (self.block / width.units()).max(1)
    }

    /// Inserts an entry; returns the number of other entries that were moved.
    ///
    /// # Errors
    /// [`Shortage::Full`] when no slots are free, [`Shortage::Fragmented`] when the free ones are in blocks of another
    /// width.
    pub fn insert(&mut self, order: Order, width: Width) -> Result<u32, Shortage> {
        let has_hole = self.rows.get(&width).is_some_and(|row| row.iter().rev().any(Option::is_none));
        if !has_hole {
            let per_block = self.block / width.units();
            if per_block == 0 || self.blocks_taken() == self.blocks {
                let free = self.size() - self.used();
                return Err(if free < width.units() { Shortage::Full } else { Shortage::Fragmented });
            }
            let row = self.rows.entry(width).or_default();
            row.resize(row.len() + per_block as usize, None);
        }
        let row = self.rows.entry(width).or_default();
        // The first place after every entry that comes before this one.
        let place =
            row.iter().rposition(|entry| entry.is_some_and(|other| other < order)).map_or(0, |at| at + 1);
        let right = row[place..].iter().position(Option::is_none).map(|distance| place + distance);
        // The search to the left ends where a free place would be farther away than the one on the right.
        let near = right.map_or(0, |hole| place.saturating_sub(hole - place + 1));
        let left = row[near..place].iter().rposition(Option::is_none).map(|at| near + at);
        let moved = match (left, right) {
            (_, Some(hole)) if left.is_none_or(|left| hole - place <= place - 1 - left) => {
                row[place..=hole].rotate_right(1);
                row[place] = Some(order);
                hole - place
            }
            (Some(hole), _) => {
                row[hole..place].rotate_left(1);
                row[place - 1] = Some(order);
                place - 1 - hole
            }
            // Never reached: a row without a free place was given another block above.
            (None, _) => return Err(Shortage::Full),
        };
        Ok(moved as u32)
    }

    /// Removes an entry; returns false when it was not there. Blocks after the last entry of a width become free for
    /// any width.
    pub fn remove(&mut self, order: Order, width: Width) -> bool {
        let Some(row) = self.rows.get_mut(&width) else { return false };
        let Some(place) = row.iter().rposition(|entry| *entry == Some(order)) else { return false };
        row[place] = None;
        let per_block = (self.block / width.units()).max(1) as usize;
        let last = row.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
        row.truncate(last.div_ceil(per_block) * per_block);
        if row.is_empty() {
            self.rows.remove(&width);
        }
        true
    }

    /// Changes the number of slots of the TCAM.
    ///
    /// # Errors
    /// When more blocks are in use than it would have.
    pub fn resize(&mut self, size: u32) -> Result<(), Shortage> {
        if size / self.block < self.blocks_taken() {
            return Err(Shortage::Full);
        }
        self.blocks = size / self.block;
        Ok(())
    }
}

/// The fewest prefixes (value and number of significant leading bits, of 16) that together match `low..=high`: at most
/// 30.
#[must_use]
pub fn expand_range(low: u16, high: u16) -> Vec<(u16, u8)> {
    let mut prefixes = Vec::new();
    let (mut next, end) = (u32::from(low), u32::from(high));
    while next <= end {
        let aligned = if next == 0 { 16 } else { next.trailing_zeros().min(16) };
        let fits = (end - next + 1).ilog2();
        let bits = aligned.min(fits);
        prefixes.push((next as u16, 16 - bits as u8));
        next += 1 << bits;
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: Width = Width::new(1);
    const TWO: Width = Width::new(2);

    #[test]
    fn insertions_in_order_move_no_entries() {
        let mut tcam = Tcam::new(8, 8);
        for order in 0..8 {
            assert_eq!(tcam.insert((order, 0), ONE), Ok(0));
        }
        assert_eq!(tcam.insert((9, 0), ONE), Err(Shortage::Full));
    }

    #[test]
    fn an_entry_before_all_others_moves_them() {
        let mut tcam = Tcam::new(8, 8);
        for order in (1..8).rev() {
            assert_eq!(tcam.insert((order, 0), ONE), Ok(7 - order as u32));
        }
        assert!(tcam.remove((4, 0), ONE));
        // Entry 4 has freed the place before entry 5, so that only entry 5 moves.
        assert_eq!(tcam.insert((5, 1), ONE), Ok(1));
    }

    #[test]
    fn blocks_serve_one_width_at_a_time() {
        let mut tcam = Tcam::new(16, 8);
        assert_eq!(tcam.insert((1, 0), ONE), Ok(0));
        assert_eq!(tcam.insert((1, 0), TWO), Ok(0));
        for order in 2..5 {
            assert_eq!(tcam.insert((order, 0), TWO), Ok(0));
        }
        assert_eq!(tcam.used(), 9);
        assert_eq!(tcam.insert((5, 0), TWO), Err(Shortage::Fragmented));
        assert!(tcam.remove((1, 0), ONE));
        assert_eq!(tcam.insert((5, 0), TWO), Ok(0));
        assert_eq!(tcam.resize(8), Err(Shortage::Full));
    }

    #[test]
    fn the_worst_range_takes_thirty_prefixes() {
        assert_eq!(expand_range(1, 65_534).len(), 30);
        assert_eq!(expand_range(0, 65_535), [(0, 0)]);
        assert_eq!(expand_range(80, 80), [(80, 16)]);
        assert_eq!(expand_range(1024, 65_535).len(), 6);
        assert!(expand_range(9, 8).is_empty());
    }

    proptest! {
        /// Each number in the range is matched by exactly one prefix, and no other number is matched.
        #[test]
        fn prefixes_cover_the_range(low: u16, high: u16, probe: u16) {
            let matches = expand_range(low, high).into_iter().filter(|(value, length)| {
                let mask = if *length == 0 { 0 } else { u16::MAX << (16 - length) };
                probe & mask == *value
            });
            prop_assert_eq!(matches.count(), usize::from((low..=high).contains(&probe)));
        }

        /// Entries are in order after any insertions and removals, and the used slots are those of the
        /// entries.
        #[test]
        fn entries_lie_in_order(steps in prop::collection::vec((0_u64..40, prop::bool::ANY, prop::bool::ANY), 0..300)) {
            let mut tcam = Tcam::new(48, 8);
            let mut model = std::collections::BTreeSet::new();
            for (order, wide, insert) in steps {
                let width = if wide { TWO } else { ONE };
                if !insert {
                    prop_assert_eq!(tcam.remove((order, 0), width), model.remove(&(order, width)));
                } else if !model.contains(&(order, width)) && tcam.insert((order, 0), width).is_ok() {
                    model.insert((order, width));
                }
                for row in tcam.rows.values() {
                    prop_assert!(row.iter().flatten().is_sorted());
                }
                prop_assert_eq!(tcam.used(), model.iter().map(|(_, width)| width.units()).sum::<u32>());
                prop_assert!(tcam.blocks_taken() <= tcam.blocks);
            }
        }
    }
}
