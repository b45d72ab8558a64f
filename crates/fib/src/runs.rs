//! [`Runs`]: lines of one memory to give out, 2^n at a time, and those given back that a reader may still be standing on.
//!
//! Read first: Knuth, The Art of Computer Programming 1, section 2.5, on the buddy system.

use std::collections::BTreeSet;

/// Orders there are: 1 to 2^21 pieces at a time.
const ORDERS: usize = 22;

/// Pieces of memory, by their number from its beginning.
#[derive(Debug, Clone)]
pub struct Runs {
    first: u32,
    capacity: u32,
    /// Where free runs begin, by order.
    free: [BTreeSet<u32>; ORDERS],
    /// Given back, and not yet known to be out of every reader's hands.
    limbo: Vec<(u32, u8)>,
    available: u32,
    waiting: u32,
    high_water: u32,
}

impl Runs {
    /// The pieces from `first` to `capacity`, at most 2^21, all free.
    #[must_use]
    pub fn new(first: u32, capacity: u32) -> Self {
        let free = [const { BTreeSet::new() }; ORDERS];
        let mut runs =
            Self { first, capacity: first, free, limbo: Vec::new(), available: 0, waiting: 0, high_water: 0 };
        runs.grow(capacity);
        runs
    }
    /// Pieces there are, those in front of the first included.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    /// More pieces, at the end.
    pub fn grow(&mut self, capacity: u32) {
        while self.capacity < capacity {
            let room = (capacity - self.capacity).ilog2();
            let order = self.capacity.trailing_zeros().min(room) as u8;
            self.put_back(self.capacity, order);
            self.capacity += 1 << order;
        }
    }
    /// Pieces that can be taken now, if one at a time will do.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.available
    }
    /// Pieces in use; those that wait for readers count as free.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.capacity - self.first - self.available - self.waiting
    }
    /// The most that were in use.
    #[must_use]
    pub fn high_water(&self) -> u32 {
        self.high_water
    }
    /// Pieces that [`Runs::settle`] would free.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }
    /// Every reader that was under way when pieces were last given back has ended.
    pub fn settle(&mut self) {
        for (base, order) in std::mem::take(&mut self.limbo) {
            self.put_back(base, order);
        }
        self.waiting = 0;
    }
    /// 2^order pieces, the first of them at a multiple of that.
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
    /// Gives back what a reader may have found.
    pub fn give_back(&mut self, base: u32, order: u8) {
        self.limbo.push((base, order));
        self.waiting += 1 << order;
    }
    /// Gives back what no reader can have found.
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
    fn runs_come_back_whole() {
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
