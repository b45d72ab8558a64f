//! DIR-24-8: the first 24 bits of an address are an index; where a /24 is divided, the entry leads to a group of 256.
//!
//! Layout, in words: 2^16 leads, the first of them the default route; then 2^24 entries of 16 bits, two a word, the
//! lower address in the lower half; then the groups. An entry is the number of a lead. A lead is a leaf, 0 (the default route
//! answers), or [`GROUP`] and the group's first word; so entry 0 answers by the default route, which comes and goes with one
//! store. A table has few different next hops and as many prefixes as you like: entries of half the size are half the
//! memory that random destinations drag through the cache, and the leads that are in use are always in it.
//!
//! Invariants: a /24 has a group exactly while a route longer than /24 lies in it. A leaf has a lead exactly while a route of
//! 1 to 24 bits leads to it, so removing a route takes nothing. A lead that is given back keeps its word until no reader
//! can hold its number.

use crate::{Full, NONE, Pool, Rib, Words};
use ipnet::Ipv4Net;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Marks a lead to a group.
pub const GROUP: u32 = 0x8000_0000;
/// Leads there are, the default route's included.
pub const LEADS: usize = 1 << 16;
/// Where the entries begin.
const ENTRIES: usize = LEADS;
/// Where the groups begin.
const GROUPS: usize = ENTRIES + (1 << 23);
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
    let mut word = words.load(entry(words, address));
    if word & GROUP != 0 {
        word = words.load((word & !GROUP) as usize + (address & 0xff) as usize);
    }
    if word == NONE { words.load(0) } else { word }
}

const fn place(address: u32) -> (usize, u32) {
    (ENTRIES + (address >> 9) as usize, (address >> 8 & 1) * 16)
}

/// The lead of an address.
fn entry(words: &(impl Words + ?Sized), address: u32) -> usize {
    let (at, shift) = place(address);
    (words.load(at) >> shift & 0xffff) as usize
}

/// The only writer has the other half to itself.
fn set_entry(words: &(impl Words + ?Sized), address: u32, lead: usize) {
    let (at, shift) = place(address);
    words.store(at, words.load(at) & !(0xffff << shift) | (lead as u32) << shift);
}

/// The writer's side: what is in use. The words themselves are handed to each call, all 0 at first.
#[derive(Debug)]
pub struct Writer {
    groups: Pool,
    most: u32,
    /// Of leaves and groups; piece n is lead n + 1.
    leads: Pool,
    /// The leaves that have a lead, and how many routes of 1 to 24 bits lead to each.
    leaves: HashMap<u32, (usize, u32)>,
}

impl crate::Writer for Writer {
    type Net = Ipv4Net;

    fn set(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        old: u32,
        new: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        match prefix.prefix_len() {
            0 => words.store(0, new),
            1..=24 => self.set_short(words, prefix, old, new, rib)?,
            _ => self.set_long(words, prefix, new, rib)?,
        }
        Ok(())
    }
    fn words(&self) -> usize {
        words(self.groups.capacity())
    }
    fn pool(&self) -> &Pool {
        &self.groups
    }
    fn waiting(&self) -> u32 {
        self.groups.waiting() + self.leads.waiting()
    }
    fn settle(&mut self) {
        self.groups.settle();
        self.leads.settle();
    }
    fn larger(&self) -> Option<usize> {
        (self.groups.capacity() < self.most && self.groups.available() == 0).then(|| words(self.next_size()))
    }
    fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized)) {
        crate::words::copy(from, to, self.words());
        self.groups.grow(self.next_size());
    }
}

impl Writer {
    /// For memory with room for so many groups, at first and at most.
    #[must_use]
    pub fn new(groups: u32, most: u32) -> Self {
        let leads = Pool::new(LEADS as u32 - 1);
        Self { groups: Pool::new(groups), most, leads, leaves: HashMap::new() }
    }

    fn next_size(&self) -> u32 {
        (self.groups.capacity() * 2).clamp(1, self.most)
    }

    fn take_lead(&mut self, words: &(impl Words + ?Sized), word: u32) -> Result<usize, Full> {
        let lead = self.leads.take().ok_or(Full)? as usize + 1;
        words.store(lead, word);
        Ok(lead)
    }

    /// The lead of a leaf for one more route.
    fn hold(&mut self, words: &(impl Words + ?Sized), leaf: u32) -> Result<usize, Full> {
        if let Some((lead, routes)) = self.leaves.get_mut(&leaf) {
            *routes += 1;
            return Ok(*lead);
        }
        let lead = self.take_lead(words, leaf)?;
        self.leaves.insert(leaf, (lead, 1));
        Ok(lead)
    }

    fn let_go(&mut self, leaf: u32) {
        let Some((lead, routes)) = self.leaves.get_mut(&leaf) else { return };
        *routes -= 1;
        if *routes == 0 {
            self.leads.give_back(*lead as u32 - 1);
            self.leaves.remove(&leaf);
        }
    }

    /// The lead of a leaf that a route of 1 to 24 bits leads to, or of none.
    fn lead_of(&self, leaf: u32) -> usize {
        self.leaves.get(&leaf).map_or(0, |(lead, _)| *lead)
    }

    fn set_short(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        old: u32,
        new: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        let (lead, value) = if new == NONE {
            let value = rib.covering(prefix, |_| true).unwrap_or(NONE);
            (self.lead_of(value), value)
        } else {
            (self.hold(words, new)?, new)
        };
        gaps(prefix, rib, |first, last| paint(words, first, last, lead, value));
        if old != NONE {
            self.let_go(old);
        }
        Ok(())
    }

    /// A route inside one /24.
    fn set_long(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        new: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        let whole = Ipv4Net::new(prefix.network(), 24).map_err(|_| Full)?.trunc();
        let address = u32::from(prefix.network());
        let value = if new == NONE { rib.covering(prefix, |_| true).unwrap_or(NONE) } else { new };
        let lead = entry(words, address);
        let held = words.load(lead);
        if new == NONE && rib.inside(whole).next().is_none() {
            // It was the last in here.
            if held & GROUP != 0 {
                set_entry(words, address, self.lead_of(value));
                self.groups.give_back(((held & !GROUP) as usize - GROUPS).div_euclid(GROUP_WORDS) as u32);
                self.leads.give_back(lead as u32 - 1);
            }
            return Ok(());
        }
        let divided = held & GROUP != 0;
        let (lead, group) = match divided {
            true => (lead, (held & !GROUP) as usize),
            false => self.divide(words, if lead == 0 { NONE } else { held })?,
        };
        gaps(prefix, rib, |first, last| paint_group(words, group, first, last, value));
        if !divided {
            set_entry(words, address, lead);
        }
        Ok(())
    }

    /// A group that says what one entry said; not yet led to.
    fn divide(&mut self, words: &(impl Words + ?Sized), held: u32) -> Result<(usize, usize), Full> {
        if self.leads.available() == 0 {
            return Err(Full);
        }
        let number = self.groups.take().ok_or(Full)?;
        let group = GROUPS + number as usize * GROUP_WORDS;
        (group..group + GROUP_WORDS).for_each(|at| words.store(at, held));
        Ok((self.take_lead(words, GROUP | group as u32)?, group))
    }
}

/// The addresses of a prefix that no longer route covers, as first and last of each run.
fn gaps(prefix: Ipv4Net, rib: &impl Rib<Ipv4Net>, mut run: impl FnMut(u32, u32)) {
    let (mut next, last) = (u64::from(u32::from(prefix.network())), u32::from(prefix.broadcast()));
    for inner in rib.inside(prefix) {
        let (from, to) = (u32::from(inner.network()), u32::from(inner.broadcast()));
        if u64::from(from) > next {
            run(next as u32, from - 1);
        }
        next = next.max(u64::from(to) + 1);
    }
    if next <= u64::from(last) {
        run(next as u32, last);
    }
}

/// A run of addresses. A /24 of which only a part is meant has a group, because what makes it a part is a route longer than
/// /24.
fn paint(words: &(impl Words + ?Sized), first: u32, last: u32, lead: usize, value: u32) {
    let mut address = u64::from(first);
    while address <= u64::from(last) {
        let end = (address | 0xff).min(u64::from(last));
        let was = entry(words, address as u32);
        let held = words.load(was);
        if held & GROUP != 0 {
            paint_group(words, (held & !GROUP) as usize, address as u32, end as u32, value);
        } else {
            set_entry(words, address as u32, lead);
        }
        address = end + 1;
    }
}

/// A run of addresses in one /24.
fn paint_group(words: &(impl Words + ?Sized), group: usize, first: u32, last: u32, value: u32) {
    (first & 0xff..=last & 0xff).for_each(|low| words.store(group + low as usize, value));
}
