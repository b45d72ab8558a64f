//! [`Rib`]: the routes themselves, which an update asks what is around the prefix that changes.

use prefix_trie::{Prefix, PrefixMap};

/// The routes of one family. While a prefix is being changed it does not matter whether this has its old value or its new one;
/// while it is being removed this must not have it any more.
pub trait Rib<P> {
    /// The longest route of those that count that covers `prefix`, itself included: its length and its word.
    fn longest(&self, prefix: P, counts: impl Fn(P) -> bool) -> Option<(u8, u32)>;
    /// The longest one of those that covers it and is shorter than it, the default route aside.
    fn covering(&self, prefix: P, counts: impl Fn(P) -> bool) -> Option<u32>;
    /// What the routes lead to that cover it, itself included, the default route aside.
    fn covers(&self, prefix: P) -> impl Iterator<Item = u32>;
    /// The routes inside `prefix` that are longer than it, in the order of their addresses, the shorter before the longer.
    fn inside(&self, prefix: P) -> impl Iterator<Item = P>;
}

/// A [`Rib`] over a map of something that has a word.
pub struct View<'a, P, T> {
    map: &'a PrefixMap<P, T>,
    word: fn(&T) -> u32,
}

impl<'a, P, T> View<'a, P, T> {
    /// `word` is 1..[`crate::LEAVES`].
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
