//! A trie of prefixes with four bits per node, one cache line per node, and compressed paths. Its root entries are elsewhere:
//! in the array for the first bits of all prefixes, or in a [`crate::hash`] table.
//!
//! Lines are numbered from the beginning of the table's memory. An entry is 0 (no route), a leaf, [`NODE`] with the line of
//! 16 entries for the next four bits, or [`SKIP`] with a line that compares many bits at once:
//!
//! | Words | Content of a skip |
//! |---|---|
//! | 0-3 | the bits the address must have from here on, as two 64-bit numbers, the high one first |
//! | 4-7 | the mask of compared bits, likewise |
//! | 8 | the entry for addresses that match |
//! | 9 | the leaf for addresses that do not |
//! | 10 | the number of compared bits: a multiple of four, 4..=112 |
//!
//! Prefixes are IPv6 prefixes here; [`crate::ipv4`] describes how it writes its own as such.
//!
//! Invariants, with respect to the routes [`Around`] an entry: an entry is a leaf exactly while no route longer than the entry's
//! prefix is inside it; every route below a skip has the skip's bits and at least its length; a leaf is that of the longest
//! route that covers it, the default route excluded.

use crate::{Full, LEAVES, LINE, NONE, Runs, Words};
use ipnet::Ipv6Net;
use std::net::Ipv6Addr;

/// Marks an entry that points to a node.
pub(crate) const NODE: u32 = 0x8000_0000;
/// Marks an entry that points to a skip; it includes [`NODE`].
pub(crate) const SKIP: u32 = 0xc000_0000;
pub(crate) const LINE_MASK: u32 = LEAVES - 1;

/// The words of a skip.
pub(crate) const MATCH: usize = 0;
pub(crate) const MASK: usize = 4;
pub(crate) const CHILD: usize = 8;
pub(crate) const OTHERWISE: usize = 9;
pub(crate) const BITS: usize = 10;

/// The most lines that an update takes: for a split skip, the path to the new prefix, and one more line of a bucket.
pub(crate) const MOST_LINES: u32 = 6;

/// The routes of one trie; [`crate::Rib`] is the same for all routes of a table.
pub(crate) trait Around {
    /// The longest route that covers `prefix` or is `prefix`: its length and its leaf.
    fn longest(&self, prefix: Ipv6Net) -> Option<(u8, u32)>;
    /// The routes inside `prefix` that are longer than it.
    fn inside(&self, prefix: Ipv6Net) -> impl Iterator<Item = Ipv6Net>;
}

/// A table's memory: its allocator, and the sizes it can have.
#[derive(Debug)]
pub(crate) struct Lines {
    pub runs: Runs,
    sizes: &'static [u32],
}

impl Lines {
    /// Lines from `first` on are free; the memory has the first of `sizes`.
    pub(crate) fn new(first: u32, sizes: &'static [u32]) -> Self {
        Self { runs: Runs::new(first, sizes.first().copied().unwrap_or(first)), sizes }
    }
    /// The next larger size; `None` at the largest.
    pub(crate) fn larger(&self) -> Option<u32> {
        self.sizes.iter().copied().find(|size| *size > self.runs.capacity())
    }
    /// Continues in memory of the next larger size.
    pub(crate) fn grow(&mut self) {
        let capacity = self.larger().unwrap_or_default();
        self.runs.grow(capacity);
    }
    /// Checks that this many single lines are free.
    pub(crate) fn room(&self, lines: u32) -> Result<(), Full> {
        if self.runs.available() < lines { Err(Full) } else { Ok(()) }
    }
    pub(crate) fn take(&mut self) -> Result<u32, Full> {
        self.take_run(0)
    }
    pub(crate) fn take_run(&mut self, order: u8) -> Result<u32, Full> {
        self.runs.take(order).ok_or(Full)
    }
    pub(crate) fn give_back(&mut self, line: u32) {
        self.runs.give_back(line, 0);
    }
}

/// Follows an entry to its leaf; `key` has the address bits below the entry, left-aligned.
pub(crate) fn walk(words: &(impl Words + ?Sized), mut word: u32, mut key: u128) -> u32 {
    while word >= NODE {
        let line = line_of(word);
        if word < SKIP {
            word = words.load(line + (key >> 124) as usize);
            key <<= 4;
        } else if (key ^ load128(words, line + MATCH)) & load128(words, line + MASK) == 0 {
            key = shift(key, words.load(line + BITS) as u8);
            word = words.load(line + CHILD);
        } else {
            word = words.load(line + OTHERWISE);
        }
    }
    word
}

/// The first word of a line.
pub(crate) fn line_at(number: u32) -> usize {
    number as usize * LINE
}

fn line_of(word: u32) -> usize {
    line_at(word & LINE_MASK)
}

pub(crate) fn shift(key: u128, bits: u8) -> u128 {
    key.checked_shl(bits.into()).unwrap_or(0)
}

/// A mask of the highest `bits` bits.
pub(crate) fn mask(bits: u8) -> u128 {
    !u128::MAX.checked_shr(bits.into()).unwrap_or(0)
}

/// Loads 128 bits stored as two 64-bit numbers in native byte order, the high one first: C reads them as `__u64`.
fn load128(words: &(impl Words + ?Sized), at: usize) -> u128 {
    let half = |at: usize| {
        let ([a, b, c, d], [e, f, g, h]) = (words.load(at).to_ne_bytes(), words.load(at + 1).to_ne_bytes());
        u128::from(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    };
    half(at) << 64 | half(at + 2)
}

fn store128(words: &(impl Words + ?Sized), at: usize, value: u128) {
    for (at, half) in [(at, (value >> 64) as u64), (at + 2, value as u64)] {
        let [a, b, c, d, e, f, g, h] = half.to_ne_bytes();
        words.store(at, u32::from_ne_bytes([a, b, c, d]));
        words.store(at + 1, u32::from_ne_bytes([e, f, g, h]));
    }
}

/// An entry's position: its word, and the prefix (bits and depth) that leads to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub at: usize,
    pub bits: u128,
    pub depth: u8,
}

impl Place {
    fn prefix(self) -> Ipv6Net {
        prefix(self.bits, self.depth)
    }
    /// Entry `nibble` of the node in `line`, to which this entry points.
    fn slot(self, line: usize, nibble: usize) -> Self {
        let bits = self.bits | (nibble as u128) << (124 - self.depth);
        Self { at: line + nibble, bits, depth: self.depth + 4 }
    }
    /// The matching entry of the skip in `line`, to which this entry points.
    fn behind(self, words: &(impl Words + ?Sized), line: usize) -> Self {
        let bits = self.bits | load128(words, line + MATCH) >> self.depth;
        Self { at: line + CHILD, bits, depth: self.depth + words.load(line + BITS) as u8 }
    }
}

pub(crate) fn prefix(bits: u128, len: u8) -> Ipv6Net {
    // No depth exceeds 128, so the length is valid.
    Ipv6Net::new_assert(Ipv6Addr::from(bits & mask(len)), len)
}

pub(crate) fn bits_of(prefix: Ipv6Net) -> u128 {
    u128::from(prefix.network())
}

/// The slots of a node at `depth` that a prefix longer than `depth` by at most four covers.
fn slots(prefix: Ipv6Net, depth: u8) -> std::ops::RangeInclusive<usize> {
    let first = (bits_of(prefix) << depth >> 124) as usize;
    first..=first + (1 << (depth + 4 - prefix.prefix_len())) - 1
}

/// A change of one prefix.
pub(crate) struct Change<'a, W: ?Sized, A> {
    pub words: &'a W,
    pub around: A,
    pub prefix: Ipv6Net,
    /// The new leaf of those of its addresses that no longer route covers.
    pub value: u32,
    /// True if there are longer routes inside the prefix.
    pub covers: bool,
}

impl Lines {
    /// Carries out a change below `place`, whose prefix covers the changed one.
    pub(crate) fn set_in<W: Words + ?Sized, A: Around>(
        &mut self,
        change: &Change<'_, W, A>,
        place: Place,
        new: u32,
    ) -> Result<(), Full> {
        if place.depth == change.prefix.prefix_len() {
            change.paint(place);
        } else if new == NONE {
            self.remove(change, place);
        } else {
            self.insert(change, place)?;
        }
        Ok(())
    }

    /// Inserts the changed prefix, which is longer than that of `place` and inside it.
    fn insert<W: Words + ?Sized, A: Around>(
        &mut self,
        change: &Change<'_, W, A>,
        mut place: Place,
    ) -> Result<(), Full> {
        let (words, len, bits) = (change.words, change.prefix.prefix_len(), bits_of(change.prefix));
        loop {
            let held = words.load(place.at);
            if held < NODE {
                let path = self.path(change, place, held)?;
                words.store(place.at, path);
                return Ok(());
            }
            let line = line_of(held);
            if held < SKIP {
                if len <= place.depth + 4 {
                    slots(change.prefix, place.depth).for_each(|n| change.paint(place.slot(line, n)));
                    return Ok(());
                }
                place = place.slot(line, (bits << place.depth >> 124) as usize);
                continue;
            }
            let behind = place.behind(words, line);
            let same = ((bits ^ behind.bits).leading_zeros() as u8).min(len).min(behind.depth);
            if same < behind.depth {
                let split = self.split(change, place, held, same)?;
                words.store(place.at, split);
                self.give_back(held & LINE_MASK);
                return Ok(());
            }
            if len == behind.depth {
                change.paint(behind);
                return Ok(());
            }
            place = behind;
        }
    }

    /// Makes an entry in place of `leaf`: it leads to the new value for the changed prefix and to `leaf` for everything else.
    fn path<W: Words + ?Sized, A: Around>(
        &mut self,
        change: &Change<'_, W, A>,
        place: Place,
        leaf: u32,
    ) -> Result<u32, Full> {
        let (words, len) = (change.words, change.prefix.prefix_len());
        let bits = bits_of(change.prefix);
        if len.is_multiple_of(4) {
            return self.skip(words, place, (bits, len), change.value, leaf);
        }
        let depth = len & !3;
        let node = self.node(words, leaf)?;
        let line = line_of(node);
        slots(change.prefix, depth).for_each(|n| words.store(line + n, change.value));
        if depth == place.depth { Ok(node) } else { self.skip(words, place, (bits, depth), node, leaf) }
    }

    /// Makes an entry in place of the skip `held`: the changed prefix leaves its path, or ends on it, after `same` bits.
    fn split<W: Words + ?Sized, A: Around>(
        &mut self,
        change: &Change<'_, W, A>,
        place: Place,
        held: u32,
        same: u8,
    ) -> Result<u32, Full> {
        let (words, len) = (change.words, change.prefix.prefix_len());
        let behind = place.behind(words, line_of(held));
        let (child, leaf) = (words.load(behind.at), words.load(line_of(held) + OTHERWISE));
        // The node in which the two paths separate.
        let depth = same.min(len - 1) & !3;
        let node = self.node(words, leaf)?;
        let line = line_of(node);
        let top = Place { at: place.at, bits: behind.bits & mask(depth), depth };
        let old = top.slot(line, (behind.bits << depth >> 124) as usize);
        let rest = if old.depth == behind.depth {
            child
        } else {
            self.skip(words, old, (behind.bits, behind.depth), child, leaf)?
        };
        words.store(old.at, rest);
        if len <= depth + 4 {
            slots(change.prefix, depth).for_each(|n| change.paint(top.slot(line, n)));
        } else {
            let new = top.slot(line, (bits_of(change.prefix) << depth >> 124) as usize);
            let path = self.path(change, new, leaf)?;
            words.store(new.at, path);
        }
        if depth == place.depth {
            Ok(node)
        } else {
            self.skip(words, place, (behind.bits, depth), node, leaf)
        }
    }

    fn node(&mut self, words: &(impl Words + ?Sized), leaf: u32) -> Result<u32, Full> {
        let node = NODE | self.take()?;
        let line = line_of(node);
        (line..line + LINE).for_each(|at| words.store(at, leaf));
        Ok(node)
    }

    /// Makes a skip from `from` to the position with these bits and this depth.
    fn skip(
        &mut self,
        words: &(impl Words + ?Sized),
        from: Place,
        (bits, depth): (u128, u8),
        child: u32,
        otherwise: u32,
    ) -> Result<u32, Full> {
        let skip = SKIP | self.take()?;
        let (line, count) = (line_of(skip), depth - from.depth);
        store128(words, line + MATCH, (bits << from.depth) & mask(count));
        store128(words, line + MASK, mask(count));
        words.store(line + CHILD, child);
        words.store(line + OTHERWISE, otherwise);
        words.store(line + BITS, count.into());
        Ok(skip)
    }

    fn remove<W: Words + ?Sized, A: Around>(&mut self, change: &Change<'_, W, A>, mut place: Place) {
        let (words, len, bits) = (change.words, change.prefix.prefix_len(), bits_of(change.prefix));
        let mut before = None;
        loop {
            let held = words.load(place.at);
            if held < NODE {
                return;
            }
            if change.around.inside(place.prefix()).next().is_none() {
                // It was the last route inside this entry; the route that covers it covers all of the entry.
                words.store(place.at, change.value);
                self.release(words, held);
                return;
            }
            let line = line_of(held);
            if held < SKIP {
                if len <= place.depth + 4 {
                    slots(change.prefix, place.depth).for_each(|n| change.paint(place.slot(line, n)));
                    self.tighten(change, before, place);
                    return;
                }
                before = Some(place);
                place = place.slot(line, (bits << place.depth >> 124) as usize);
                // Removing a whole node below may leave this one with a single child.
                if change.around.inside(place.prefix()).next().is_none() && words.load(place.at) >= NODE {
                    let gone = words.load(place.at);
                    words.store(place.at, change.value);
                    self.release(words, gone);
                    let above = before.take();
                    if let Some(node) = above {
                        self.tighten(change, None, node);
                    }
                    return;
                }
                continue;
            }
            let behind = place.behind(words, line);
            if len < behind.depth || (bits ^ behind.bits) & mask(behind.depth) != 0 {
                return; // The prefix was not in the trie.
            }
            if len == behind.depth {
                change.paint(behind);
                return;
            }
            before = Some(place);
            place = behind;
        }
    }

    /// Frees the lines below an entry that is no longer reachable.
    pub(crate) fn release(&mut self, words: &(impl Words + ?Sized), held: u32) {
        if held < NODE {
            return;
        }
        let line = line_of(held);
        if held < SKIP {
            (line..line + LINE).for_each(|at| self.release(words, words.load(at)));
        } else {
            self.release(words, words.load(line + CHILD));
        }
        self.give_back(held & LINE_MASK);
    }

    /// Replaces a node that has only one child left by a skip.
    fn tighten<W: Words + ?Sized, A: Around>(
        &mut self,
        change: &Change<'_, W, A>,
        before: Option<Place>,
        place: Place,
    ) {
        let words = change.words;
        let held = words.load(place.at);
        let Some((only, leaf)) = only_child(words, line_of(held)) else { return };
        let branch = place.slot(line_of(held), only);
        let child = words.load(branch.at);
        // Every route below must go through that child and be at least as long as the end of the new skip.
        let end = if child < SKIP { branch } else { branch.behind(words, line_of(child)) };
        if change
            .around
            .inside(place.prefix())
            .any(|route| route.prefix_len() < end.depth || (bits_of(route) ^ end.bits) & mask(end.depth) != 0)
        {
            return;
        }
        let (target, otherwise) = (if child < SKIP { child } else { words.load(end.at) }, leaf);
        if self.runs.available() == 0 {
            return;
        }
        // A skip that points to this node can be extended, unless a route ends between the two.
        let up = before.filter(|up| {
            let above = words.load(up.at);
            above >= SKIP
                && words.load(line_of(above) + OTHERWISE) == otherwise
                && change.around.longest(place.prefix()).is_none_or(|(len, _)| len < place.depth)
        });
        let from = Place { at: up.unwrap_or(place).at, ..up.unwrap_or(place) };
        let Ok(skip) = self.skip(words, from, (end.bits, end.depth), target, otherwise) else { return };
        let replaced = words.load(from.at);
        words.store(from.at, skip);
        let lines = [replaced, held, child];
        for line in lines
            .iter()
            .enumerate()
            .filter(|(n, word)| (*n != 0 || up.is_some()) && (*n != 2 || **word >= SKIP))
        {
            self.give_back(line.1 & LINE_MASK);
        }
    }
}

/// The only entry of a node that is not a leaf, and the leaf that all others share.
fn only_child(words: &(impl Words + ?Sized), line: usize) -> Option<(usize, u32)> {
    let mut children = (0..LINE).filter(|n| words.load(line + n) >= NODE);
    let only = children.next().filter(|_| children.next().is_none())?;
    let leaf = words.load(line + usize::from(only == 0));
    (0..LINE).all(|n| n == only || words.load(line + n) == leaf).then_some((only, leaf))
}

impl<W: Words + ?Sized, A: Around> Change<'_, W, A> {
    /// Stores the value in every leaf at and below `place` that no route longer than the changed prefix covers; the prefix
    /// covers `place`.
    pub(crate) fn paint(&self, place: Place) {
        let held = self.words.load(place.at);
        if held < NODE {
            self.paint_leaf(place.at, place);
        } else if held < SKIP {
            let line = line_of(held);
            (0..LINE).for_each(|n| self.paint(place.slot(line, n)));
        } else {
            let line = line_of(held);
            self.paint_leaf(line + OTHERWISE, place);
            self.paint(place.behind(self.words, line));
        }
    }

    fn paint_leaf(&self, at: usize, place: Place) {
        let longer = |(len, _): (u8, u32)| len > self.prefix.prefix_len();
        if !self.covers || !self.around.longest(place.prefix()).is_some_and(longer) {
            self.words.store(at, self.value);
        }
    }
}
