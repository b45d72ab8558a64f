//! A trie over IPv6 prefixes, entered in three places: one for prefixes of 64 bits and more, one for 48 to 63, one for the rest.
//! A look-up asks in this order, and the first that knows a route has the longest. One that has asked in several places while a
//! route changed asks again: it may have been too early for a longer route that came, and too late for a shorter one that went.
//!
//! The upper two are hashes ([`crate::slots`]) of the prefixes' first 64 or 48 bits, and what they find is the route, or the
//! trie of the longer ones in there. So a random destination in a table of many /48s and /64s costs one line; to walk
//! there four bits at a time would cost three or four that no other frame has touched.
//!
//! Layout: line 0 is the header; then 2^16 entries for the first 16 bits of the short prefixes; then lines that are given out. The
//! header's word 0 is the default route, 1 and 2 say where the hashes for 64 and for 48 bits are, 5 counts changes. Entries
//! are those of [`crate::trie`]; a trie's routes are those of its place. A prefix of 48 bits and more in ffff::/16, which is multicast, is taken and not there.

use crate::slots::{self, Keys, Slots};
use crate::trie::{Around, Change, Lines, MOST_LINES, Place, bits_of, mask, shift, walk};
use crate::{Full, LINE, MANY, NONE, Rib, Runs, Words};
use ipnet::Ipv6Net;
use std::net::Ipv6Addr;

/// Bits by index.
const DIRECT: u8 = 16;
/// Where the entries begin, and the first line for a trie.
const ENTRIES: usize = LINE;
const FIRST_LINE: u32 = 1 + (1 << DIRECT) / LINE as u32;

/// The word of the header that counts changes.
const CHANGES: usize = 5;
/// The hashed lengths, where the header tells of them, and what their keys are like.
const HASHED: [(u8, usize, Keys); 2] = [(64, 1, Keys::LONG), (48, 2, Keys::MIDDLE)];

/// What the longest match of an address leads to; [`NONE`] without one.
pub fn lookup(words: &(impl Words + ?Sized), address: Ipv6Addr) -> u32 {
    let key = u128::from(address);
    loop {
        let changes = words.load(CHANGES);
        for (bits, header, keys) in HASHED {
            let entry = slots::find(words, header, keys, hashed(key, bits));
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

/// The key of the first `bits`, 48 or 64, of an address.
fn hashed(address: u128, bits: u8) -> u64 {
    (address >> (128 - bits)) as u64
}

/// The place of a prefix: which of the hashed, or the last, by the first bits.
fn entrance(prefix: Ipv6Net) -> usize {
    HASHED.iter().position(|(bits, ..)| prefix.prefix_len() >= *bits).unwrap_or(HASHED.len())
}

/// The routes of one place.
struct InPlace<'a, R> {
    rib: &'a R,
    entrance: usize,
}

impl<R: Rib<Ipv6Net>> InPlace<'_, R> {
    fn counts(&self, other: Ipv6Net) -> bool {
        entrance(other) == self.entrance
    }
    fn covering(&self, prefix: Ipv6Net) -> Option<u32> {
        self.rib.covering(prefix, |other| self.counts(other))
    }
}

impl<R: Rib<Ipv6Net>> Around for InPlace<'_, R> {
    fn longest(&self, prefix: Ipv6Net) -> Option<(u8, u32)> {
        self.rib.longest(prefix, |other| self.counts(other))
    }
    fn inside(&self, prefix: Ipv6Net) -> impl Iterator<Item = Ipv6Net> {
        self.rib.inside(prefix).filter(|other| self.counts(*other))
    }
}

/// The writer's side: what is in use.
#[derive(Debug)]
pub struct Writer {
    lines: Lines,
    hashes: [Slots; HASHED.len()],
}

impl crate::Writer for Writer {
    type Net = Ipv6Net;

    fn new(sizes: &'static [u32]) -> Self {
        let hashes = HASHED.map(|(_, header, keys)| Slots::new(header, keys));
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
        self.lines.runs.waiting() + self.slots_waiting()
    }
    fn worth_waiting(&self) -> bool {
        self.lines.runs.waiting().max(self.slots_waiting()) > MANY
    }
    fn settle(&mut self) {
        self.lines.runs.settle();
        self.hashes.iter_mut().for_each(Slots::settle);
    }
    fn larger(&self) -> Option<u32> {
        self.lines.larger()
    }
    fn grow(&mut self) {
        self.lines.grow();
    }
}

impl Writer {
    fn slots_waiting(&self) -> u32 {
        self.hashes.iter().map(Slots::waiting).sum()
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
        let around = InPlace { rib, entrance };
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
