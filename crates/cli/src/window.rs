//! The next entries of an unordered table in order: [`Window`].
//!
//! The table is walked once for each window, so a listing of any length needs the memory of one window. Invariant: a window
//! has every entry that was offered between its bounds, so the entries are printed in order, each VLAN and address at most once.

use crate::view::MacEntry;
use lanyard_types::MacAddr;

/// The least number of entries of the first full window, and of the largest: each is twice as large as the one before, so that the
/// first page appears soon, and a long list takes few walks. A window has at most twice as many entries.
const KEPT: [usize; 2] = [1 << 14, 1 << 16];

/// VLAN and address in one word, in the order in which entries are listed.
#[inline]
const fn key(vlan: u16, mac: MacAddr) -> u64 {
    (vlan as u64) << 48 | mac.to_u64()
}

/// The entries with the lowest keys from a bound on.
#[derive(Debug)]
pub struct Window {
    /// Entries below this key are refused, because earlier windows have listed them.
    from: u64,
    /// Entries from this key on are refused, because the window is full of entries with lower keys.
    below: u64,
    entries: Vec<MacEntry>,
    kept: usize,
    /// The limit of `kept`.
    most: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { most: KEPT[1], ..Self::keeping(KEPT[0]) }
    }
}

impl Window {
    /// A window at the beginning of the table that keeps at least this many entries, and at most twice as many, as do all after it.
    pub(crate) const fn keeping(kept: usize) -> Self {
        Self { from: 0, below: u64::MAX, entries: Vec::new(), kept, most: kept }
    }
    /// True when the window has room for an entry with this key.
    // `inline` compiles this function with the optimisation of the crate that walks the table.
    #[inline]
    #[must_use]
    pub fn wants(&self, vlan: u16, mac: MacAddr) -> bool {
        (self.from..self.below).contains(&key(vlan, mac))
    }
    /// Offers an entry.
    #[inline]
    pub fn offer(&mut self, entry: MacEntry) {
        if !self.wants(entry.vlan, entry.mac) {
            return;
        }
        self.entries.push(entry);
        if self.entries.len() >= 2 * self.kept {
            let (_, first, _) =
                self.entries.select_nth_unstable_by_key(self.kept, |entry| key(entry.vlan, entry.mac));
            self.below = key(first.vlan, first.mac);
            self.entries.truncate(self.kept);
        }
    }
    /// Called after a walk of the table: takes the entries, in order, and moves the window after the last of them. The second
    /// value is true when the walk has offered no entries after them.
    pub(crate) fn take(&mut self) -> (Vec<MacEntry>, bool) {
        let is_last = self.below == u64::MAX;
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_by_cached_key(|entry| key(entry.vlan, entry.mac));
        // An entry that moved during the walk may have been offered twice.
        entries.dedup_by_key(|entry| key(entry.vlan, entry.mac));
        if let Some(last) = entries.last() {
            self.from = key(last.vlan, last.mac) + 1;
        }
        self.below = u64::MAX;
        self.kept = (2 * self.kept).min(self.most);
        (entries, is_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Offload;

    fn entry(number: u64) -> MacEntry {
        MacEntry {
            mac: MacAddr::from_u64(number & 0xff),
            vlan: (number >> 8) as u16,
            interface: None,
            kind: "dynamic",
            age_s: 0,
            offload: Offload::Offloaded,
        }
    }

    /// The rows that windows of 4 to 7 entries list of a table.
    fn listed(table: &[u64]) -> Vec<Vec<u64>> {
        let (mut window, mut all) = (Window::keeping(4), Vec::new());
        loop {
            for number in table {
                window.offer(entry(*number));
                assert!(window.entries.len() < 8, "a window is bounded");
            }
            let (entries, is_last) = window.take();
            all.push(entries.iter().map(|e| u64::from(e.vlan) << 8 | e.mac.to_u64()).collect());
            if is_last {
                return all;
            }
        }
    }

    #[test]
    fn every_entry_once_and_in_order() {
        for len in 0..40_u64 {
            // Multiples of 7919 modulo 1000 are not in order.
            let table: Vec<u64> = (0..len).map(|n| n * 7919 % 1000).collect();
            let mut sorted = table.clone();
            sorted.sort_unstable();
            let listed = listed(&table);
            assert_eq!(listed.concat(), sorted, "{len}");
            assert!(len < 8 || listed.iter().rev().skip(1).all(|part| part.len() >= 4), "{listed:?}");
        }
    }

    #[test]
    fn windows_grow_to_a_limit() {
        let mut window = Window { most: 12, ..Window::keeping(4) };
        let mut lens = Vec::new();
        for _ in 0..5 {
            (0..100).for_each(|number| window.offer(entry(number)));
            lens.push(window.take().0.len());
        }
        assert!(
            lens.iter().zip([4, 8, 12, 12, 12]).all(|(len, kept)| (kept..2 * kept).contains(len)),
            "{lens:?}"
        );
    }

    #[test]
    fn an_entry_that_moved_is_listed_once() {
        let twice: Vec<u64> = (0..20).chain(0..20).chain([3, 3, 3]).collect();
        assert_eq!(listed(&twice).concat(), (0..20).collect::<Vec<u64>>());
        assert_eq!(listed(&[5; 30]).concat(), [5]);
    }

    #[test]
    fn a_window_has_room_only_for_entries_that_it_would_keep() {
        let mut window = Window::keeping(2);
        for number in [9, 5, 7, 1] {
            assert!(window.wants(0, MacAddr::from_u64(number)));
            window.offer(entry(number));
        }
        assert!(window.wants(0, MacAddr::from_u64(6)) && !window.wants(0, MacAddr::from_u64(8)));
        window.take();
        assert!(!window.wants(0, MacAddr::from_u64(5)) && window.wants(0, MacAddr::from_u64(8)));
    }
}
