//! [`Runs`]: a buddy allocator for the lines of a table, with a quarantine for freed lines that a reader may still hold.
//!
//! Read first: Knuth, The Art of Computer Programming 1, section 2.5, on the buddy system.

use std::collections::BTreeSet;

/// Number of orders: a run has 2^0 to 2^21 lines.
const ORDERS: usize = 22;

/// Allocates runs of 2^order lines; a line is named by its number from the beginning of the memory.
#[derive(Debug, Clone)]
pub struct Runs {
    first: u32,
    capacity: u32,
    /// The first lines of the free runs, by order.
    free: [BTreeSet<u32>; ORDERS],
    /// Freed runs that a reader may still hold: first line and order.
    quarantine: Vec<(u32, u8)>,
    available: u32,
    waiting: u32,
    high_water: u32,
}

impl Runs {
    /// The lines from `first` to `capacity`, at most 2^21 in all, all of them free.
    #[must_use]
    pub fn new(first: u32, capacity: u32) -> Self {
        let free = [const { BTreeSet::new() }; ORDERS];
        let mut runs = Self {
            first,
            capacity: first,
            free,
            quarantine: Vec::new(),
            available: 0,
            waiting: 0,
            high_water: 0,
        };
        runs.grow(capacity);
        runs
    }
    /// The number of lines, including those before `first`.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    /// Adds free lines at the end, up to `capacity`.
    pub fn grow(&mut self, capacity: u32) {
        while self.capacity < capacity {
            let room = (capacity - self.capacity).ilog2();
            let order = self.capacity.trailing_zeros().min(room) as u8;
            self.put_back(self.capacity, order);
            self.capacity += 1 << order;
        }
    }
    /// Free lines, not necessarily adjacent.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.available
    }
    /// Lines in use; quarantined lines do not count.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.capacity - self.first - self.available - self.waiting
    }
    /// The most lines that were ever in use at once.
    #[must_use]
    pub fn high_water(&self) -> u32 {
        self.high_water
    }
    /// Quarantined lines.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }
    /// Frees the quarantined lines. The caller guarantees that every reader has finished that was active when they were freed.
    pub fn settle(&mut self) {
        for (base, order) in std::mem::take(&mut self.quarantine) {
            self.put_back(base, order);
        }
        self.waiting = 0;
    }
    /// Allocates 2^order lines and returns the number of the first, a multiple of 2^order; `None` when there is no such run.
    pub fn take(&mut self, order: u8) -> Option<u32> {
        let order = usize::from(order);
        let from = (order..ORDERS).find(|order| !self.free[*order].is_empty())?;
        let base = self.free[from].pop_first()?;
        for half in order..from {
            self.free[half].insert(base + (1 << half));
        }
        self.available -= 1 << order;
        self.high_water = self.high_water.max(self.used());
        Some(base)
    }
    /// Frees a run that a reader may hold: it is quarantined.
    pub fn give_back(&mut self, base: u32, order: u8) {
        self.quarantine.push((base, order));
        self.waiting += 1 << order;
    }
    /// Frees a run that no reader can have reached: it is free at once.
    pub fn put_back(&mut self, mut base: u32, order: u8) {
        self.available += 1 << order;
        let mut order = usize::from(order);
        while order + 1 < ORDERS && self.free[order].remove(&(base ^ 1 << order)) {
            base &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_runs_merge_into_the_largest() {
        let mut runs = Runs::new(5, 1 << 10);
        runs.grow(1 << 18);
        let mut held = Vec::new();
        for n in 0..4000 {
            let order = [0, 0, 1, 3, 8][n % 5];
            let base = runs.take(order).expect("room");
            assert!(base.is_multiple_of(1 << order) && base >= 5);
            held.push((base, order));
        }
        let mut ends: Vec<_> = held.iter().map(|(base, order)| (*base, base + (1 << order))).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two overlap");
        let used = runs.used();
        held.into_iter().for_each(|(base, order)| runs.give_back(base, order));
        assert_eq!((runs.used(), runs.waiting(), runs.high_water()), (0, used, used));
        runs.settle();
        assert_eq!((runs.available(), runs.waiting()), ((1 << 18) - 5, 0));
        assert_eq!((runs.take(17), runs.take(17)), (Some(1 << 17), None));
    }
}
