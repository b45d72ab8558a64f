//! [`Slots`]: a hash of prefixes of one length, each with an entry of a trie.
//!
//! A bucket is a chain of lines, nearly always one. A line, in words:
//!
//! | Words | |
//! |---|---|
//! | 0-9 | five keys, lower half first: a prefix as a number of 64 bits, inverted |
//! | 10-14 | the entry of each; 0: none |
//! | 15 | 0, or the line where the bucket goes on |
//!
//! Invariants: a key is there before its entry, and goes after it; a slot that was given back takes no other key until all readers
//! have ended. So an entry that a reader finds behind its key is that key's. A key that is half written begins with 32
//! bits 1: such a prefix has no slot.

use crate::trie::{Lines, line_at};
use crate::{Full, LINE, NONE, Words};
use std::collections::HashMap;

const SLOTS: usize = 5;
const ENTRY: usize = 2 * SLOTS;
const NEXT: usize = ENTRY + SLOTS;
/// Lines of a bucket at most: what a reader is ready to walk.
const CHAIN: usize = 8;
/// Buckets at first.
const FIRST: u32 = 16;

/// One length's slots.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Words of the header that say where the buckets begin, as a line, and how many there are.
    header: usize,
    buckets: u32,
    most: u32,
    used: u32,
    /// Slots given back that a reader may have found, and what their keys were.
    limbo: HashMap<usize, u64>,
}

/// Where the buckets of a length begin, and how many there are.
fn place(words: &(impl Words + ?Sized), header: usize) -> (usize, u32) {
    (words.load(header) as usize * LINE, words.load(header + 1))
}

/// The line a key's bucket begins with.
fn bucket(key: u64, begin: usize, buckets: u32) -> usize {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    begin + ((hash * u64::from(buckets)) >> 32) as usize * LINE
}

fn key_at(words: &(impl Words + ?Sized), line: usize, slot: usize) -> u64 {
    !(u64::from(words.load(line + 2 * slot)) | u64::from(words.load(line + 2 * slot + 1)) << 32)
}

fn store_key(words: &(impl Words + ?Sized), at: usize, inverted: u64) {
    let slot = at % LINE - ENTRY;
    let line = at - ENTRY - slot;
    words.store(line + 2 * slot, inverted as u32);
    words.store(line + 2 * slot + 1, (inverted >> 32) as u32);
}

/// Follows a bucket. 0 as a line ends it.
fn next(words: &(impl Words + ?Sized), line: usize) -> Option<usize> {
    Some(words.load(line + NEXT)).filter(|line| *line != 0).map(line_at)
}

/// The entry behind a key; [`NONE`] when there is none.
pub(crate) fn find(words: &(impl Words + ?Sized), header: usize, key: u64) -> u32 {
    let (begin, buckets) = place(words, header);
    if buckets == 0 {
        return NONE;
    }
    let mut at = Some(bucket(key, begin, buckets));
    for _ in 0..CHAIN {
        let Some(line) = at else { break };
        for slot in 0..SLOTS {
            if key_at(words, line, slot) == key {
                let entry = words.load(line + ENTRY + slot);
                if entry != NONE {
                    return entry;
                }
            }
        }
        at = next(words, line);
    }
    NONE
}

impl Slots {
    pub(crate) fn new(header: usize, most: u32) -> Self {
        Self { header, buckets: 0, most, used: 0, limbo: HashMap::new() }
    }
    pub(crate) fn buckets(&self) -> u32 {
        self.buckets
    }
    pub(crate) fn waiting(&self) -> u32 {
        self.limbo.len() as u32
    }
    pub(crate) fn settle(&mut self) {
        self.limbo.clear();
    }
    /// The next larger number of buckets.
    pub(crate) fn larger(&self) -> Option<u32> {
        let next = if self.buckets == 0 { FIRST.min(self.most) } else { (self.buckets * 2).min(self.most) };
        (next > self.buckets).then_some(next)
    }
    /// So full that it ought to grow if it can: more than seven tenths.
    fn crowded(&self) -> bool {
        u64::from(self.used) * 10 >= u64::from(self.buckets) * SLOTS as u64 * 7
    }

    /// The word of the entry behind a key that has one.
    pub(crate) fn held(&self, words: &(impl Words + ?Sized), key: u64) -> Option<usize> {
        let mut held = None;
        self.walk(words, key, |line| {
            let mut slots = (0..SLOTS).map(|slot| (line + ENTRY + slot, key_at(words, line, slot)));
            held = slots.find(|(at, found)| *found == key && words.load(*at) != NONE).map(|(at, _)| at);
            held.is_some()
        });
        held
    }

    /// Looks at the lines of a key's bucket until it is told to stop; the last line, and how many there were.
    fn walk(
        &self,
        words: &(impl Words + ?Sized),
        key: u64,
        mut stop: impl FnMut(usize) -> bool,
    ) -> (usize, usize) {
        let (begin, buckets) = place(words, self.header);
        let (mut line, mut lines) = (bucket(key, begin, buckets), 1);
        while buckets != 0 && !stop(line) {
            let Some(further) = next(words, line) else { break };
            (line, lines) = (further, lines + 1);
        }
        (line, lines)
    }

    /// The word of a new entry: [`NONE`], with its key in front of it.
    ///
    /// # Errors
    /// [`Full`] when the bucket has no room, or the whole wants to be larger and may.
    pub(crate) fn claim(
        &mut self,
        words: &(impl Words + ?Sized),
        key: u64,
        lines: &mut Lines,
    ) -> Result<usize, Full> {
        if self.buckets == 0 || self.crowded() && self.larger().is_some() {
            return Err(Full);
        }
        let free = |at: usize| words.load(at) == NONE && self.limbo.get(&at).is_none_or(|was| *was == key);
        let mut found = None;
        let (last, length) = self.walk(words, key, |line| {
            found = (line + ENTRY..line + NEXT).find(|at| free(*at));
            found.is_some()
        });
        let at = match found {
            Some(at) => at,
            None if length >= CHAIN => return Err(Full),
            None => {
                let number = lines.take()?;
                let line = line_at(number);
                (line..line + LINE).for_each(|at| words.store(at, 0));
                words.store(last + NEXT, number);
                line + ENTRY
            }
        };
        self.limbo.remove(&at);
        self.used += 1;
        store_key(words, at, !key);
        Ok(at)
    }

    /// An entry that has become [`NONE`].
    pub(crate) fn give_back(&mut self, words: &(impl Words + ?Sized), at: usize, key: u64) {
        store_key(words, at, 0);
        self.limbo.insert(at, key);
        self.used -= 1;
    }

    /// Writes the same slots into memory where `buckets` of them begin at word `begin`. With twice as many a bucket becomes
    /// two, which take no more lines together than it did: so it finds room.
    pub(crate) fn move_to(
        &mut self,
        from: &(impl Words + ?Sized),
        to: &(impl Words + ?Sized),
        (begin, buckets): (usize, u32),
        lines: &mut Lines,
    ) {
        let (old, had) = if self.buckets == 0 { (0, 0) } else { place(from, self.header) };
        to.store(self.header, (begin / LINE) as u32);
        to.store(self.header + 1, buckets);
        self.limbo.clear();
        (self.buckets, self.used) = (buckets, 0);
        let most = std::mem::replace(&mut self.most, buckets); // claims find no larger one
        for bucket in 0..had as usize {
            let mut held = Vec::new();
            let mut at = Some(old + bucket * LINE);
            while let Some(line) = at {
                let slots = (0..SLOTS).map(|slot| (key_at(from, line, slot), from.load(line + ENTRY + slot)));
                held.extend(slots.filter(|(_, entry)| *entry != NONE));
                at = next(from, line);
                if at.is_some() {
                    lines.give_back(from.load(line + NEXT));
                }
            }
            // Nobody reads the new memory yet.
            lines.pool.settle();
            for (key, entry) in held {
                if let Ok(at) = self.claim(to, key, lines) {
                    to.store(at, entry);
                }
            }
        }
        self.most = most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    impl Words for Vec<Cell<u32>> {
        fn load(&self, at: usize) -> u32 {
            self[at].get()
        }
        fn store(&self, at: usize, word: u32) {
            self[at].set(word);
        }
    }

    /// Slots grow with what is in them, whole buckets at a time, and keys that come and go find theirs again.
    #[test]
    fn slots_grow_and_keep_what_they_hold() {
        let memory = || vec![Cell::new(0); 4097 * LINE];
        let begin = 2049 * LINE;
        let (mut words, mut lines) = (memory(), Lines::new(1, 2048));
        let mut slots = Slots::new(1, 2048);
        let key = |n: u32| u64::from(n) << 20 | 0x2001 << 48;
        for n in 1..=6000 {
            let at = loop {
                match slots.claim(&words, key(n), &mut lines) {
                    Ok(at) => break at,
                    Err(Full) => {
                        let (next, larger) = (memory(), slots.larger().expect("room"));
                        slots.move_to(&words, &next, (begin, larger), &mut lines);
                        words = next;
                    }
                }
            };
            words.store(at, n);
        }
        assert!((1..=6000).all(|n| find(&words, 1, key(n)) == n));
        assert_eq!(find(&words, 1, key(6001)), NONE);
        let used = lines.pool.used();
        for n in (1..=6000).cycle().take(50_000) {
            let at = slots.held(&words, key(n)).expect("a slot");
            words.store(at, NONE);
            slots.give_back(&words, at, key(n));
            assert_eq!(find(&words, 1, key(n)), NONE);
            let again = slots.claim(&words, key(n), &mut lines).expect("its own slot");
            assert_eq!(again, at);
            words.store(again, n);
        }
        assert_eq!(lines.pool.used(), used);
        assert!(used < 2048 / 5, "{used} lines behind 2048 buckets");
    }
}
