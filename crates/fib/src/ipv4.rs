//! DIR-24-8: the first 24 bits of an address are an index; where a /24 is divided, the entry leads to a group of 256.
//!
//! Layout, in words: line 0 is the header, whose word 0 is the default route; then 2^24 entries; then the groups. An entry
//! is 0 (the default route answers), a leaf, or [`GROUP`] and the group's first word. So a default route that comes or goes
//! is one store, and any other look-up takes one or two reads.
//!
//! Invariant: a /24 has a group exactly while a route longer than /24 lies in it.

use crate::{Full, LINE, NONE, Pool, Rib, Words};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Marks an entry that leads to a group.
pub const GROUP: u32 = 0x8000_0000;
/// Where the entries begin.
const ENTRIES: usize = LINE;
/// Where the groups begin.
const GROUPS: usize = ENTRIES + (1 << 24);
/// Words of a group.
const GROUP_WORDS: usize = 256;

/// Words of memory for so many groups.
#[must_use]
pub const fn words(groups: u32) -> usize {
    GROUPS + groups as usize * GROUP_WORDS
}

/// What the longest match of an address leads to; [`NONE`] without one.
pub fn lookup(words: &(impl Words + ?Sized), address: Ipv4Addr) -> u32 {
    let address = u32::from(address);
    let mut word = words.load(entry(address));
    if word & GROUP != 0 {
        word = words.load((word & !GROUP) as usize + (address & 0xff) as usize);
    }
    if word == NONE { words.load(0) } else { word }
}

const fn entry(address: u32) -> usize {
    ENTRIES + (address >> 8) as usize
}

/// The writer's side: which groups are in use. The words themselves are handed to each call, all 0 at first.
#[derive(Debug)]
pub struct Writer {
    /// The groups.
    pub groups: Pool,
}

impl Writer {
    /// For memory with room for so many groups.
    #[must_use]
    pub fn new(groups: u32) -> Self {
        Self { groups: Pool::new(groups) }
    }

    /// Makes `prefix` lead to `word`; [`NONE`] removes its route.
    ///
    /// # Errors
    /// [`Full`] when it takes a group and there is none.
    pub fn set(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        word: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        if prefix.prefix_len() == 0 {
            words.store(0, word);
            return Ok(());
        }
        let value = if word == NONE { rib.covering(prefix).unwrap_or(NONE) } else { word };
        let (first, last) = (u32::from(prefix.network()), u32::from(prefix.broadcast()));
        if prefix.prefix_len() > 24 {
            return self.set_long(words, prefix, (word, value), rib);
        }
        // What lies between the routes inside it.
        let mut next = u64::from(first);
        for inner in rib.inside(prefix) {
            let (from, to) = (u64::from(u32::from(inner.network())), u64::from(u32::from(inner.broadcast())));
            if from > next {
                self.paint(words, next as u32, (from - 1) as u32, value);
            }
            next = next.max(to + 1);
        }
        if next <= u64::from(last) {
            self.paint(words, next as u32, last, value);
        }
        Ok(())
    }

    /// A route inside one /24.
    fn set_long(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        (word, value): (u32, u32),
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        let whole = Ipv4Net::new(prefix.network(), 24).map_err(|_| Full)?.trunc();
        let at = entry(u32::from(prefix.network()));
        let held = words.load(at);
        if word == NONE && rib.inside(whole).next().is_none() {
            // It was the last in here.
            words.store(at, value);
            self.release(held);
            return Ok(());
        }
        let group = if held & GROUP != 0 { (held & !GROUP) as usize } else { self.divide(words, held)? };
        let (first, last) = (u32::from(prefix.network()), u32::from(prefix.broadcast()));
        let mut next = u64::from(first);
        let paint = |from: u64, to: u64| {
            (from..=to).for_each(|address| words.store(group + (address & 0xff) as usize, value));
        };
        for inner in rib.inside(prefix) {
            let (from, to) = (u64::from(u32::from(inner.network())), u64::from(u32::from(inner.broadcast())));
            if from > next {
                paint(next, from - 1);
            }
            next = next.max(to + 1);
        }
        if next <= u64::from(last) {
            paint(next, u64::from(last));
        }
        if held & GROUP == 0 {
            words.store(at, GROUP | group as u32);
        }
        Ok(())
    }

    /// A group that says what one entry said; not yet led to.
    fn divide(&mut self, words: &(impl Words + ?Sized), held: u32) -> Result<usize, Full> {
        let number = self.groups.take().ok_or(Full)?;
        let group = GROUPS + number as usize * GROUP_WORDS;
        (group..group + GROUP_WORDS).for_each(|at| words.store(at, held));
        Ok(group)
    }

    fn release(&mut self, held: u32) {
        if held & GROUP != 0 {
            self.groups.give_back(((held & !GROUP) as usize - GROUPS).div_euclid(GROUP_WORDS) as u32);
        }
    }

    /// Addresses that no route longer than the one that changes covers. A /24 of which only a part is meant has a group, because
    /// what makes it a part is a route longer than /24.
    fn paint(&mut self, words: &(impl Words + ?Sized), first: u32, last: u32, value: u32) {
        let mut address = u64::from(first);
        while address <= u64::from(last) {
            let at = entry(address as u32);
            let end = (address | 0xff).min(u64::from(last));
            let held = words.load(at);
            if held & GROUP == 0 {
                words.store(at, value);
            } else {
                let group = (held & !GROUP) as usize;
                (address..=end).for_each(|one| words.store(group + (one & 0xff) as usize, value));
            }
            address = end + 1;
        }
    }
}
