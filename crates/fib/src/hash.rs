//! [`PrefixHash`]: a hash table of the prefixes of one length; each key has a trie entry.
//!
//! The buckets are a run of lines. One word of the table's header holds the first line of the run in its low 24 bits and the
//! code of the bucket count above ([`buckets`]); 0 means that there are no buckets. A bucket is a chain of lines, in most
//! cases a single one. A line has as many slots as fit for keys of that length, because each line that random destinations
//! touch costs a cache miss:
//!
//! | Words | Content | 24-bit keys | 48-bit | 64-bit |
//! |---|---|---|---|---|
//! | from 0 | low 32 bits of each key, inverted | 0-6 | 0-5 | 0-4 |
//! | then | high 16 or 32 bits of each key, inverted, the first in the low half | | 6-8 | 5-9 |
//! | up to 14 | the entry of each key; 0: free slot | 8-14 | 9-14 | 10-14 |
//! | 15 | 0, or the next line of the bucket | | | |
//!
//! Invariants: a key is written before its entry and erased after it, and a freed slot takes no other key until all readers
//! have finished; so an entry that a reader finds for its key belongs to that key. A half-written key has all ones in its
//! high part, and no prefix with such bits is ever inserted. A larger set of buckets is written elsewhere and replaces the
//! old set with one store.

use crate::trie::{Lines, line_at};
use crate::{Full, LINE, NONE, Words};
use std::collections::HashMap;

/// The word of a line that links to the bucket's next line.
pub(crate) const NEXT: usize = LINE - 1;
/// The most lines of a bucket; readers follow no more.
pub(crate) const CHAIN: usize = 8;
/// Codes of the first and the largest bucket count ([`buckets`]).
const FIRST: u8 = 6;
const MOST: u8 = 34;
/// The position of that code in the header's word.
pub(crate) const COUNT_SHIFT: u32 = 24;

/// Multipliers of the hash of a key.
pub(crate) const HASH_A: u64 = 0x9e37_79b9_7f4a_7c15;
pub(crate) const HASH_B: u64 = 0xd6e8_feb8_6659_fd93;

/// The first line of the buckets, and the code of their count ([`buckets`]).
type Place = (u32, u8);

/// The bucket count with this code: 16, 24, 32, 48 and so on, powers of two and the values half way between them.
fn buckets(count: u8) -> u32 {
    (2 + u32::from(count & 1)) << (count >> 1)
}

/// The allocator's runs that make up these buckets.
fn runs((begin, count): Place) -> impl Iterator<Item = (u32, u8)> {
    let half = count >> 1;
    let odd = (count & 1 == 1).then_some((begin + (2 << half), half));
    [(begin, half + 1)].into_iter().chain(odd)
}

/// How keys of one length are stored in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) slots: usize,
    /// The number of bits of a key's high part.
    bits: u32,
}

impl Keys {
    /// Keys of 24 bits.
    pub(crate) const SHORT: Self = Self { slots: 7, bits: 0 };
    /// Keys of 48 bits.
    pub(crate) const MIDDLE: Self = Self { slots: 6, bits: 16 };
    /// Keys of 64 bits.
    pub(crate) const LONG: Self = Self { slots: 5, bits: 32 };

    /// The word of a line that has the entry of slot 0.
    const fn entry(self) -> usize {
        NEXT - self.slots
    }
    /// Where a slot has the high part of its key: word of the line, shift and mask.
    fn upper(self, slot: usize) -> Option<(usize, u32, u32)> {
        let bit = slot as u32 * self.bits;
        (self.bits > 0).then(|| (self.slots + (bit / 32) as usize, bit % 32, u32::MAX >> (32 - self.bits)))
    }
    fn load(self, words: &(impl Words + ?Sized), line: usize, slot: usize) -> u64 {
        let lower = !words.load(line + slot);
        let upper = self.upper(slot).map_or(0, |(at, shift, mask)| !words.load(line + at) >> shift & mask);
        u64::from(upper) << 32 | u64::from(lower)
    }
    /// Stores the key of the slot whose entry is word `at`, the low part first.
    fn store(self, words: &(impl Words + ?Sized), at: usize, inverted: u64) {
        let slot = at % LINE - self.entry();
        let line = at - at % LINE;
        words.store(line + slot, inverted as u32);
        if let Some((at, shift, mask)) = self.upper(slot) {
            let others = words.load(line + at) & !(mask << shift);
            words.store(line + at, others | ((inverted >> 32) as u32 & mask) << shift);
        }
    }
}

/// The writer's side of one hash table.
#[derive(Debug)]
pub(crate) struct PrefixHash {
    /// The word of the table's header that locates the buckets.
    header: usize,
    keys: Keys,
    place: Option<Place>,
    used: u32,
    /// Freed slots that a reader may still hold, with the keys they had.
    quarantine: HashMap<usize, u64>,
}

/// The first line of a key's bucket, as a word index.
fn bucket(key: u64, (begin, count): Place) -> usize {
    let mixed = key.wrapping_mul(HASH_A);
    let hash = (mixed ^ mixed >> 32).wrapping_mul(HASH_B) >> 32;
    line_at(begin + ((hash * u64::from(buckets(count))) >> 32) as u32)
}

/// The next line of a bucket, if there is one.
fn next(words: &(impl Words + ?Sized), line: usize) -> Option<usize> {
    Some(words.load(line + NEXT)).filter(|line| *line != 0).map(line_at)
}

/// The entry of a key; [`NONE`] when the table does not have the key.
pub(crate) fn find(words: &(impl Words + ?Sized), header: usize, keys: Keys, key: u64) -> u32 {
    let place = match words.load(header) {
        0 => return NONE,
        word => (word & ((1 << COUNT_SHIFT) - 1), (word >> COUNT_SHIFT) as u8),
    };
    let mut at = Some(bucket(key, place));
    for _ in 0..CHAIN {
        let Some(line) = at else { break };
        for slot in 0..keys.slots {
            if keys.load(words, line, slot) == key {
                let entry = words.load(line + keys.entry() + slot);
                if entry != NONE {
                    return entry;
                }
            }
        }
        at = next(words, line);
    }
    NONE
}

/// Visits the lines of a key's bucket until `stop` returns true. Returns the last line visited and how many there were.
fn walk(
    words: &(impl Words + ?Sized),
    place: Place,
    key: u64,
    mut stop: impl FnMut(usize) -> bool,
) -> (usize, usize) {
    let (mut line, mut lines) = (bucket(key, place), 1);
    while !stop(line) {
        let Some(further) = next(words, line) else { break };
        (line, lines) = (further, lines + 1);
    }
    (line, lines)
}

/// Finds a free slot in a key's bucket and returns the word of its entry. If the bucket is full, a line is added to it and
/// returned as well.
fn find_room(
    words: &(impl Words + ?Sized),
    (place, keys): (Place, Keys),
    key: u64,
    free: impl Fn(usize) -> bool,
    lines: &mut Lines,
) -> Result<(usize, Option<u32>), Full> {
    let mut found = None;
    let (last, length) = walk(words, place, key, |line| {
        found = (line + keys.entry()..line + NEXT).find(|at| free(*at));
        found.is_some()
    });
    match found {
        Some(at) => Ok((at, None)),
        None if length >= CHAIN => Err(Full),
        None => {
            let number = lines.take()?;
            let line = line_at(number);
            (line..line + LINE).for_each(|at| words.store(at, 0));
            words.store(last + NEXT, number);
            Ok((line + keys.entry(), Some(number)))
        }
    }
}

impl PrefixHash {
    pub(crate) fn new(header: usize, keys: Keys) -> Self {
        Self { header, keys, place: None, used: 0, quarantine: HashMap::new() }
    }
    pub(crate) fn waiting(&self) -> u32 {
        self.quarantine.len() as u32
    }
    pub(crate) fn settle(&mut self) {
        self.quarantine.clear();
    }

    /// The word index of a key's entry; `None` when the table does not have the key.
    pub(crate) fn held(&self, words: &(impl Words + ?Sized), key: u64) -> Option<usize> {
        let (keys, mut held) = (self.keys, None);
        walk(words, self.place?, key, |line| {
            let entry = line + keys.entry();
            let mut slots = (0..keys.slots).map(|slot| (entry + slot, keys.load(words, line, slot)));
            held = slots.find(|(at, found)| *found == key && words.load(*at) != NONE).map(|(at, _)| at);
            held.is_some()
        });
        held
    }

    /// Inserts a key and returns the word index of its entry, which is [`NONE`] until the caller stores it.
    ///
    /// # Errors
    /// [`Full`] when a line is needed and none is free.
    pub(crate) fn claim(
        &mut self,
        words: &(impl Words + ?Sized),
        key: u64,
        lines: &mut Lines,
    ) -> Result<usize, Full> {
        // Beyond 70 % occupancy too many buckets would have a second line.
        let wanted = match self.place {
            None => Some(FIRST),
            Some((_, count)) => {
                let crowded =
                    u64::from(self.used) * 10 >= u64::from(buckets(count)) * self.keys.slots as u64 * 7;
                (crowded && count < MOST).then_some(count + 1)
            }
        };
        if let Some(count) = wanted {
            let grown = self.grow(words, count, lines);
            // If the memory cannot grow any more, the key goes into the existing buckets.
            if grown.is_err() && (self.place.is_none() || lines.larger().is_some()) {
                return Err(Full);
            }
        }
        let Some(place) = self.place else { return Err(Full) };
        let free =
            |at: usize| words.load(at) == NONE && self.quarantine.get(&at).is_none_or(|was| *was == key);
        let (at, _) = find_room(words, (place, self.keys), key, free, lines)?;
        self.quarantine.remove(&at);
        self.used += 1;
        self.keys.store(words, at, !key);
        Ok(at)
    }

    /// Frees the slot of a key whose entry the caller has set to [`NONE`]; the slot is quarantined.
    pub(crate) fn give_back(&mut self, words: &(impl Words + ?Sized), at: usize, key: u64) {
        self.keys.store(words, at, 0);
        self.quarantine.insert(at, key);
        self.used -= 1;
    }

    /// Copies all entries into buckets of the count with this code.
    fn grow(&mut self, words: &(impl Words + ?Sized), count: u8, lines: &mut Lines) -> Result<(), Full> {
        let half = count >> 1;
        let place = (lines.take_run(half + 1 + (count & 1))?, count);
        if count & 1 == 1 {
            lines.runs.put_back(place.0 + (3 << half), half);
        }
        let begin = line_at(place.0);
        (begin..begin + LINE * buckets(count) as usize).for_each(|at| words.store(at, 0));
        let (keys, mut taken, mut further, mut done) = (self.keys, Vec::new(), Vec::new(), Ok(()));
        let had = self.place.into_iter().flat_map(|(begin, count)| begin..begin + buckets(count));
        for mut line in had.map(line_at) {
            loop {
                for slot in 0..keys.slots {
                    let (key, entry) = (keys.load(words, line, slot), words.load(line + keys.entry() + slot));
                    if entry == NONE || done.is_err() {
                        continue;
                    }
                    match find_room(words, (place, keys), key, |at| words.load(at) == NONE, lines) {
                        Ok((at, more)) => {
                            taken.extend(more);
                            keys.store(words, at, !key);
                            words.store(at, entry);
                        }
                        Err(full) => done = Err(full),
                    }
                }
                let Some(onward) = next(words, line) else { break };
                line = onward;
                further.push((line / LINE) as u32);
            }
        }
        if done.is_err() {
            taken.into_iter().for_each(|line| lines.runs.put_back(line, 0));
            runs(place).for_each(|(begin, order)| lines.runs.put_back(begin, order));
            return done;
        }
        words.store(self.header, place.0 | u32::from(count) << COUNT_SHIFT);
        let had = self.place.replace(place).into_iter().flat_map(runs);
        had.for_each(|(begin, order)| lines.runs.give_back(begin, order));
        further.into_iter().for_each(|line| lines.give_back(line));
        self.quarantine.clear();
        Ok(())
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

    /// The table grows with its keys; a key that is removed and inserted again gets its quarantined slot back.
    #[test]
    fn the_hash_grows_and_keeps_its_entries() {
        for (keys, key) in [
            (Keys::SHORT, (|n| n) as fn(u64) -> u64),
            (Keys::MIDDLE, |n| n << 16 | 0x2001 << 32),
            (Keys::LONG, |n| n << 20 | 0x2001 << 48),
        ] {
            let words = vec![Cell::new(7); LINE << 13];
            words[1].set(0);
            let (mut slots, mut lines) = (PrefixHash::new(1, keys), Lines::new(1, &[1 << 13]));
            let key = |n: u32| key(n.into());
            for n in 1..=6000 {
                let at = slots.claim(&words, key(n), &mut lines).expect("room");
                words[at].set(n);
                lines.runs.settle();
            }
            assert!((1..=6000).all(|n| find(&words, 1, keys, key(n)) == n));
            assert_eq!(find(&words, 1, keys, key(6001)), NONE);
            let used = lines.runs.used();
            for n in (1..=6000).cycle().take(20_000) {
                let at = slots.held(&words, key(n)).expect("a slot");
                words.store(at, NONE);
                slots.give_back(&words, at, key(n));
                assert_eq!(find(&words, 1, keys, key(n)), NONE);
                let again = slots.claim(&words, key(n), &mut lines).expect("the quarantined slot");
                assert_eq!(again, at);
                words.store(again, n);
            }
            assert_eq!(lines.runs.used(), used);
            // At least 47 % of the slots are in use, and few buckets have a second line.
            let most = 6000 * 100 / 46 / keys.slots as u32;
            assert!(used < most * 11 / 10, "{used} lines, {keys:?}");
            (1..=6000)
                .for_each(|n| slots.give_back(&words, slots.held(&words, key(n)).expect("a slot"), key(n)));
        }
    }
}
