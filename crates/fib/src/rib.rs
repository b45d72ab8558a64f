//! [`Rib`]: the routes themselves. An update queries them for the prefixes around the one that changes.

use prefix_trie::{Prefix, PrefixMap};

/// The routes of one address family. While a prefix is being changed the set may hold its old or its new value; while it is
/// being removed the set must no longer hold it.
pub trait Rib<P> {
    /// The longest route that covers `prefix` (or is `prefix`) and passes the filter `counts`: its length and its leaf.
    fn longest(&self, prefix: P, counts: impl Fn(P) -> bool) -> Option<(u8, u32)>;
    /// The leaf of the longest route that is shorter than `prefix`, covers it and passes the filter; the default route
    /// excluded.
    fn covering(&self, prefix: P, counts: impl Fn(P) -> bool) -> Option<u32>;
    /// The leaves of the routes that cover `prefix` or are `prefix`, the default route excluded, shortest first.
    fn covers(&self, prefix: P) -> impl Iterator<Item = u32>;
    /// The routes inside `prefix` that are longer than it, by address, and shorter before longer.
    fn inside(&self, prefix: P) -> impl Iterator<Item = P>;
}

/// A [`Rib`] over a map whose values contain a leaf.
pub struct View<'a, P, T> {
    map: &'a PrefixMap<P, T>,
    word: fn(&T) -> u32,
}

impl<'a, P, T> View<'a, P, T> {
    /// `word` returns the leaf of a value, 1..[`crate::LEAVES`].
    #[must_use]
    pub fn new(map: &'a PrefixMap<P, T>, word: fn(&T) -> u32) -> Self {
        Self { map, word }
    }
}

impl<P: Prefix + Copy, T> Rib<P> for View<'_, P, T> {
    fn longest(&self, prefix: P, counts: impl Fn(P) -> bool) -> Option<(u8, u32)> {
        let found = self.map.cover(&prefix).filter(|(found, _)| counts(*found)).last();
        found.map(|(found, value)| (found.prefix_len(), (self.word)(value)))
    }
    fn covering(&self, prefix: P, counts: impl Fn(P) -> bool) -> Option<u32> {
        let shorter =
            |found: &(P, &T)| (1..prefix.prefix_len()).contains(&found.0.prefix_len()) && counts(found.0);
        self.map.cover(&prefix).filter(shorter).last().map(|(_, value)| (self.word)(value))
    }
    fn covers(&self, prefix: P) -> impl Iterator<Item = u32> {
        let all = self.map.cover(&prefix).filter(|(found, _)| found.prefix_len() > 0);
        all.map(|(_, value)| (self.word)(value))
    }
    fn inside(&self, prefix: P) -> impl Iterator<Item = P> {
        let longer = move |found: &P| found.prefix_len() > prefix.prefix_len();
        self.map.children(&prefix).map(|(found, _)| found).filter(longer)
    }
}
