//! [`Slots`]: a hash of prefixes of one length, each with an entry of a trie.
//!
//! The buckets are a run of lines; a word of the header says where it begins and, above 24 bits, how many they are ([`buckets`]);
//! 0: there are none. A bucket is a chain of lines, nearly always one. A line has as many slots as keys of that length and
//! their entries have room for, so that as few lines as may be are what random destinations drag through the cache:
//!
//! | Words | | 24 bits | 48 | 64 |
//! |---|---|---|---|---|
//! | from 0 | the keys' lower 32 bits, inverted | 0-6 | 0-5 | 0-4 |
//! | behind them | the upper 16 or 32, likewise, the first in the lower half | | 6-8 | 5-9 |
//! | up to 14 | the entry of each; 0: none | 8-14 | 9-14 | 10-14 |
//! | 15 | 0, or the line where the bucket goes on | | | |
//!
//! Invariants: a key is there before its entry, and goes after it; a slot that was given back takes no other key until all readers
//! have ended. So an entry that a reader finds behind its key is that key's. A key that is half written has ones in
//! its upper part: such a prefix has no slot. More buckets are written beside those there are, and take their place with one store.

use crate::trie::{Lines, line_at};
use crate::{Full, LINE, NONE, Words};
use std::collections::HashMap;

/// Where a line goes on.
const NEXT: usize = LINE - 1;
/// Lines of a bucket at most: what a reader is ready to walk.
const CHAIN: usize = 8;
/// Numbers of buckets, as [`buckets`] has them: at first, and at most.
const FIRST: u8 = 6;
const MOST: u8 = 34;
/// Where a header's word has that number.
const COUNT_SHIFT: u32 = 24;

/// Where buckets begin, as a line, and how many there are ([`buckets`]).
type Place = (u32, u8);

/// 16, 24, 32, 48 and so on: powers of two, and what lies half way.
fn buckets(count: u8) -> u32 {
    (2 + u32::from(count & 1)) << (count >> 1)
}

/// The runs that so many lines are.
fn runs((begin, count): Place) -> impl Iterator<Item = (u32, u8)> {
    let half = count >> 1;
    let odd = (count & 1 == 1).then_some((begin + (2 << half), half));
    [(begin, half + 1)].into_iter().chain(odd)
}

/// What keys of a length look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    slots: usize,
    /// Of the upper part.
    bits: u32,
}

impl Keys {
    /// 24 bits.
    pub(crate) const SHORT: Self = Self { slots: 7, bits: 0 };
    /// 48.
    pub(crate) const MIDDLE: Self = Self { slots: 6, bits: 16 };
    /// 64.
    pub(crate) const LONG: Self = Self { slots: 5, bits: 32 };

    /// Slot 0's entry in a line.
    const fn entry(self) -> usize {
        NEXT - self.slots
    }
    /// Word of a line, shift and mask of a key's upper part.
    fn upper(self, slot: usize) -> Option<(usize, u32, u32)> {
        let bit = slot as u32 * self.bits;
        (self.bits > 0).then(|| (self.slots + (bit / 32) as usize, bit % 32, u32::MAX >> (32 - self.bits)))
    }
    fn load(self, words: &(impl Words + ?Sized), line: usize, slot: usize) -> u64 {
        let lower = !words.load(line + slot);
        let upper = self.upper(slot).map_or(0, |(at, shift, mask)| !words.load(line + at) >> shift & mask);
        u64::from(upper) << 32 | u64::from(lower)
    }
    /// Of the slot whose entry is at word `at`; the lower part first.
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

/// One length's slots.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The word of the header that says where the buckets are.
    header: usize,
    keys: Keys,
    place: Option<Place>,
    used: u32,
    /// Slots given back that a reader may have found, and what their keys were.
    limbo: HashMap<usize, u64>,
}

/// The line a key's bucket begins with.
fn bucket(key: u64, (begin, count): Place) -> usize {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    line_at(begin + ((hash * u64::from(buckets(count))) >> 32) as u32)
}

/// Follows a bucket. 0 as a line ends it.
fn next(words: &(impl Words + ?Sized), line: usize) -> Option<usize> {
    Some(words.load(line + NEXT)).filter(|line| *line != 0).map(line_at)
}

/// The entry behind a key; [`NONE`] when there is none.
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

/// Looks at the lines of a key's bucket until it is told to stop; the last line, and how many there were.
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

/// A slot that is free, in one more line if need be; that line.
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

impl Slots {
    pub(crate) fn new(header: usize, keys: Keys) -> Self {
        Self { header, keys, place: None, used: 0, limbo: HashMap::new() }
    }
    pub(crate) fn waiting(&self) -> u32 {
        self.limbo.len() as u32
    }
    pub(crate) fn settle(&mut self) {
        self.limbo.clear();
    }

    /// The word of the entry behind a key that has one.
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

    /// The word of a new entry: [`NONE`], with its key in front of it.
    ///
    /// # Errors
    /// [`Full`] when there is no line for what it takes.
    pub(crate) fn claim(
        &mut self,
        words: &(impl Words + ?Sized),
        key: u64,
        lines: &mut Lines,
    ) -> Result<usize, Full> {
        // More than seven tenths are crowded.
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
            // Where there is no larger memory, crowded ones go on.
            if grown.is_err() && (self.place.is_none() || lines.larger().is_some()) {
                return Err(Full);
            }
        }
        let Some(place) = self.place else { return Err(Full) };
        let free = |at: usize| words.load(at) == NONE && self.limbo.get(&at).is_none_or(|was| *was == key);
        let (at, _) = find_room(words, (place, self.keys), key, free, lines)?;
        self.limbo.remove(&at);
        self.used += 1;
        self.keys.store(words, at, !key);
        Ok(at)
    }

    /// An entry that has become [`NONE`].
    pub(crate) fn give_back(&mut self, words: &(impl Words + ?Sized), at: usize, key: u64) {
        self.keys.store(words, at, 0);
        self.limbo.insert(at, key);
        self.used -= 1;
    }

    /// Writes the same slots into so many buckets.
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
        self.limbo.clear();
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

    /// Slots grow with what is in them, beside those there are, and keys that come and go find theirs again.
    #[test]
    fn slots_grow_and_keep_what_they_hold() {
        for (keys, key) in [
            (Keys::SHORT, (|n| n) as fn(u64) -> u64),
            (Keys::MIDDLE, |n| n << 16 | 0x2001 << 32),
            (Keys::LONG, |n| n << 20 | 0x2001 << 48),
        ] {
            let words = vec![Cell::new(7); LINE << 13];
            words[1].set(0);
            let (mut slots, mut lines) = (Slots::new(1, keys), Lines::new(1, &[1 << 13]));
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
                let again = slots.claim(&words, key(n), &mut lines).expect("its own slot");
                assert_eq!(again, at);
                words.store(again, n);
            }
            assert_eq!(lines.runs.used(), used);
            // At least 47 in a hundred are taken, and few buckets go on.
            let most = 6000 * 100 / 46 / keys.slots as u32;
            assert!(used < most * 11 / 10, "{used} lines, {keys:?}");
            (1..=6000)
                .for_each(|n| slots.give_back(&words, slots.held(&words, key(n)).expect("a slot"), key(n)));
        }
    }
}
