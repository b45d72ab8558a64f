//! The IPv6 table: a trie with three entrances, for prefixes of 64 bits and more, of 48 to 63 bits, and shorter.
//!
//! A look-up tries the entrances in this order; the first that has a matching route has the longest one. A route can change
//! while a look-up passes from one entrance to the next, so that it misses a longer route that has just come and a shorter one
//! that has just gone. A counter of changes in the header detects this, and the look-up starts again.
//!
//! The first two entrances are hash tables ([`crate::hash`]) of a prefix's first 64 or 48 bits. Their value is the route or the
//! root of a trie of longer routes. So a random destination in a table of many /48s and /64s costs one cache line; walking
//! there four bits at a time would cost three or four lines that no other frame has touched.
//!
//! Layout: line 0 is the header; then 2^16 entries, by the first 16 bits, for the short prefixes; then allocated lines. Word 0
//! of the header is the default route, words 1 and 2 locate the hash tables for 64 and 48 bits, word 5 counts changes. Entries
//! are those of [`crate::trie`]. A prefix of 48 bits or more in ffff::/16, which is multicast and never routed, is accepted
//! but not stored: the hash table's half-written keys look like it.

use crate::hash::{self, Keys, PrefixHash};
use crate::trie::{Around, Change, Lines, MOST_LINES, Place, bits_of, mask, shift, walk};
use crate::{Full, LINE, MANY, NONE, Rib, Runs, Words};
use ipnet::Ipv6Net;
use std::net::Ipv6Addr;

/// Bits that index the entries of short prefixes.
const DIRECT: u8 = 16;
/// The first word of these entries, and the first line that is allocated.
pub(crate) const ENTRIES: usize = LINE;
const FIRST_LINE: u32 = 1 + (1 << DIRECT) / LINE as u32;

/// The word of the header that counts changes.
pub(crate) const CHANGES: usize = 5;
/// The hashed lengths, the header's word for each, and the format of their keys.
pub(crate) const HASHED: [(u8, usize, Keys); 2] = [(64, 1, Keys::LONG), (48, 2, Keys::MIDDLE)];

/// The leaf of the longest route that matches an address; [`NONE`] when no route does.
pub fn lookup(words: &(impl Words + ?Sized), address: Ipv6Addr) -> u32 {
    let key = u128::from(address);
    loop {
        let changes = words.load(CHANGES);
        for (bits, header, keys) in HASHED {
            let entry = hash::find(words, header, keys, hashed(key, bits));
            let word = walk(words, entry, shift(key, bits));
            if word != NONE {
                return word;
            }
        }
        let entry = words.load(ENTRIES + (key >> (128 - DIRECT)) as usize);
        let mut word = walk(words, entry, shift(key, DIRECT));
        if word == NONE {
            word = words.load(0);
        }
        if words.load(CHANGES) == changes {
            return word;
        }
    }
}

/// The hash key of an address: its first `bits` bits, 48 or 64.
fn hashed(address: u128, bits: u8) -> u64 {
    (address >> (128 - bits)) as u64
}

/// The entrance of a prefix: the index of its hash table, or one past them for a short prefix.
fn entrance(prefix: Ipv6Net) -> usize {
    HASHED.iter().position(|(bits, ..)| prefix.prefix_len() >= *bits).unwrap_or(HASHED.len())
}

/// The routes of one entrance.
struct AtEntrance<'a, R> {
    rib: &'a R,
    entrance: usize,
}

impl<R: Rib<Ipv6Net>> AtEntrance<'_, R> {
    fn counts(&self, other: Ipv6Net) -> bool {
        entrance(other) == self.entrance
    }
    fn covering(&self, prefix: Ipv6Net) -> Option<u32> {
        self.rib.covering(prefix, |other| self.counts(other))
    }
}

impl<R: Rib<Ipv6Net>> Around for AtEntrance<'_, R> {
    fn longest(&self, prefix: Ipv6Net) -> Option<(u8, u32)> {
        self.rib.longest(prefix, |other| self.counts(other))
    }
    fn inside(&self, prefix: Ipv6Net) -> impl Iterator<Item = Ipv6Net> {
        self.rib.inside(prefix).filter(|other| self.counts(*other))
    }
}

/// The writer's side of an IPv6 table.
#[derive(Debug)]
pub struct Writer {
    lines: Lines,
    hashes: [PrefixHash; HASHED.len()],
}

impl crate::Writer for Writer {
    type Net = Ipv6Net;

    fn new(sizes: &'static [u32]) -> Self {
        let hashes = HASHED.map(|(_, header, keys)| PrefixHash::new(header, keys));
        Self { lines: Lines::new(FIRST_LINE, sizes), hashes }
    }
    fn set(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv6Net,
        _: u32,
        new: u32,
        rib: &impl Rib<Ipv6Net>,
    ) -> Result<(), Full> {
        self.change(words, prefix, new, rib)?;
        words.store(CHANGES, words.load(CHANGES).wrapping_add(1));
        Ok(())
    }
    fn lines(&self) -> &Runs {
        &self.lines.runs
    }
    fn waiting(&self) -> u32 {
        self.lines.runs.waiting() + self.hashes_waiting()
    }
    fn worth_waiting(&self) -> bool {
        self.lines.runs.waiting().max(self.hashes_waiting()) > MANY
    }
    fn settle(&mut self) {
        self.lines.runs.settle();
        self.hashes.iter_mut().for_each(PrefixHash::settle);
    }
    fn larger(&self) -> Option<u32> {
        self.lines.larger()
    }
    fn grow(&mut self) {
        self.lines.grow();
    }
}

impl Writer {
    fn hashes_waiting(&self) -> u32 {
        self.hashes.iter().map(PrefixHash::waiting).sum()
    }

    fn change(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv6Net,
        new: u32,
        rib: &impl Rib<Ipv6Net>,
    ) -> Result<(), Full> {
        let (len, entrance) = (prefix.prefix_len(), entrance(prefix));
        if len == 0 {
            words.store(0, new);
            return Ok(());
        }
        let around = AtEntrance { rib, entrance };
        let value = if new == NONE { around.covering(prefix).unwrap_or(NONE) } else { new };
        let covers = around.inside(prefix).next().is_some();
        let change = Change { words, around, prefix, value, covers };
        let lines = &mut self.lines;
        if let Some((bits, ..)) = HASHED.get(entrance).copied() {
            let key = hashed(bits_of(prefix), bits);
            if bits_of(prefix) >> 112 == 0xffff {
                return Ok(());
            }
            let hash = &mut self.hashes[entrance];
            let at = match hash.held(words, key) {
                None if new == NONE => return Ok(()),
                None => hash.claim(words, key, lines)?,
                Some(at) => at,
            };
            let done = if new == NONE { Ok(()) } else { lines.room(MOST_LINES) };
            let place = Place { at, bits: bits_of(prefix) & mask(bits), depth: bits };
            let done = done.and_then(|()| lines.set_in(&change, place, new));
            if words.load(at) == NONE {
                hash.give_back(words, at, key);
            }
            return done;
        }
        let first = (bits_of(prefix) >> (128 - DIRECT)) as usize;
        let entry = |n: usize| Place { at: ENTRIES + n, bits: (n as u128) << (128 - DIRECT), depth: DIRECT };
        if len <= DIRECT {
            (first..first + (1 << (DIRECT - len))).for_each(|n| change.paint(entry(n)));
            return Ok(());
        }
        if new != NONE {
            lines.room(MOST_LINES)?;
        }
        lines.set_in(&change, entry(first), new)
    }
}
