//! DIR-24-8: the first 24 bits of an address are an index; where a /24 is divided, the entry leads to a group of 256.
//!
//! Layout, in words: 2^16 leads, the first of them the default route; then 2^24 near entries of a byte; then 2^24 far entries of
//! 16 bits; then the groups. Entries of lower addresses lie in lower bits. A near entry is the number of a lead, or [`FAR`]: the
//! far entry is. A lead is a leaf, 0 (the default route answers), or [`GROUP`] and the group's first word; so entry 0 answers
//! by the default route, which comes and goes with one store. The last lead is none: it is the word [`FAR_PLACE`].
//!
//! Leads and near entries are the near part, [`NEAR_WORDS`] that there always are; far entries and groups are the far part,
//! which there is from the first /24 that is divided, or the first next hop too many for a byte. So the two may lie apart.
//!
//! A table has few different next hops and as many prefixes as you like. Bytes are a quarter of the memory of words, and so
//! of what random destinations drag through the cache; the leads that are in use are always in it.
//!
//! Invariants: a /24 has a group exactly while a route longer than /24 lies in it. A leaf has a lead exactly while a route of
//! 1 to 24 bits leads to it, so removing a route takes nothing. A lead that is given back keeps its word until no reader
//! can hold its number. Nothing leads to the far part before it is there.

use crate::{Full, NONE, Pool, Rib, Words};
use ipnet::Ipv4Net;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Marks a lead to a group.
pub const GROUP: u32 = 0x8000_0000;
/// Leads there are, the default route's included.
pub const LEADS: usize = FAR_PLACE;
/// The word behind the leads is never touched here: who keeps the two parts apart writes there how readers find the far one.
pub const FAR_PLACE: usize = (1 << 16) - 1;
/// Words of the near part.
pub const NEAR_WORDS: usize = FAR_ENTRIES;
/// The first lead that a near entry has no number for.
const FAR: u32 = 255;
/// Where the entries begin.
const NEAR_ENTRIES: usize = FAR_PLACE + 1;
const FAR_ENTRIES: usize = NEAR_ENTRIES + (1 << 22);
/// Where the groups begin.
const GROUPS: usize = FAR_ENTRIES + (1 << 23);
/// Words of a group.
const GROUP_WORDS: usize = 256;

/// Words of memory for so many groups; without any there is no far part.
const fn words(groups: u32) -> usize {
    if groups == 0 { NEAR_WORDS } else { GROUPS + groups as usize * GROUP_WORDS }
}

/// What the longest match of an address leads to; [`NONE`] without one.
pub fn lookup(words: &(impl Words + ?Sized), address: Ipv4Addr) -> u32 {
    let address = u32::from(address);
    let mut word = words.load(entry(words, address) as usize);
    if word & GROUP != 0 {
        word = words.load((word & !GROUP) as usize + (address & 0xff) as usize);
    }
    if word == NONE { words.load(0) } else { word }
}

/// A part of a word: its place, and its mask.
struct Part(usize, u32, u32);

impl Part {
    const fn near(address: u32) -> Self {
        Self(NEAR_ENTRIES + (address >> 10) as usize, (address >> 8 & 3) * 8, 0xff)
    }
    const fn far(address: u32) -> Self {
        Self(FAR_ENTRIES + (address >> 9) as usize, (address >> 8 & 1) * 16, 0xffff)
    }
    fn load(&self, words: &(impl Words + ?Sized)) -> u32 {
        words.load(self.0) >> self.1 & self.2
    }
    /// The only writer has the rest of the word to itself.
    fn store(&self, words: &(impl Words + ?Sized), value: u32) {
        words.store(self.0, words.load(self.0) & !(self.2 << self.1) | value << self.1);
    }
}

/// The lead of an address.
fn entry(words: &(impl Words + ?Sized), address: u32) -> u32 {
    match Part::near(address).load(words) {
        FAR => Part::far(address).load(words),
        near => near,
    }
}

/// Whoever is still on its way from the near entry to the far one finds the old lead there, or the new one.
fn set_entry(words: &(impl Words + ?Sized), address: u32, lead: u32) {
    if lead >= FAR {
        Part::far(address).store(words, lead);
    }
    Part::near(address).store(words, lead.min(FAR));
}

/// The writer's side: what is in use. The words themselves are handed to each call, all 0 at first.
#[derive(Debug)]
pub struct Writer {
    groups: Pool,
    /// Groups that the far part is made with, and that there can be.
    first: u32,
    most: u32,
    /// Leads for leaves; piece n is lead n + 1.
    near: Pool,
    /// Leads for groups, and for the leaves that are left; piece n is lead n + [`FAR`]. None without a far part.
    far: Pool,
    /// The leaves that have a lead, and how many routes of 1 to 24 bits lead to each.
    leaves: HashMap<u32, (u32, u32)>,
}

impl crate::Writer for Writer {
    type Net = Ipv4Net;
    const STAYS: usize = NEAR_WORDS;

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
        self.groups.waiting() + self.near.waiting() + self.far.waiting()
    }
    fn settle(&mut self) {
        self.groups.settle();
        self.near.settle();
        self.far.settle();
    }
    fn larger(&self) -> Option<usize> {
        let more = self.groups.capacity() < self.most && self.groups.available() == 0;
        more.then(|| words(self.next_size()))
    }
    fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized)) {
        crate::words::copy(from, to, NEAR_WORDS..self.words());
        self.groups.grow(self.next_size());
        self.far.grow(LEADS as u32 - FAR);
    }
}

impl Writer {
    /// For a near part alone; the far part will have room for so many groups, at first and at most.
    #[must_use]
    pub fn new(first: u32, most: u32) -> Self {
        let (near, far, groups) = (Pool::new(FAR - 1), Pool::default(), Pool::default());
        Self { groups, first, most, near, far, leaves: HashMap::new() }
    }

    fn next_size(&self) -> u32 {
        (self.groups.capacity() * 2).max(self.first).clamp(1, self.most)
    }

    fn give_back(&mut self, lead: u32) {
        match lead.checked_sub(FAR) {
            None => self.near.give_back(lead - 1),
            Some(far) => self.far.give_back(far),
        }
    }

    /// The lead of a leaf for one more route.
    fn hold(&mut self, words: &(impl Words + ?Sized), leaf: u32) -> Result<u32, Full> {
        if let Some((lead, routes)) = self.leaves.get_mut(&leaf) {
            *routes += 1;
            return Ok(*lead);
        }
        let near = self.near.take().map(|near| near + 1);
        let lead = near.or_else(|| self.far.take().map(|far| far + FAR)).ok_or(Full)?;
        words.store(lead as usize, leaf);
        self.leaves.insert(leaf, (lead, 1));
        Ok(lead)
    }

    fn let_go(&mut self, leaf: u32) {
        let Some((lead, routes)) = self.leaves.get_mut(&leaf) else { return };
        *routes -= 1;
        if *routes == 0 {
            let lead = *lead;
            self.leaves.remove(&leaf);
            self.give_back(lead);
        }
    }

    /// The lead of a leaf that a route of 1 to 24 bits leads to, or of none.
    fn lead_of(&self, leaf: u32) -> u32 {
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
        let held = words.load(lead as usize);
        if new == NONE && rib.inside(whole).next().is_none() {
            // It was the last in here.
            if held & GROUP != 0 {
                set_entry(words, address, self.lead_of(value));
                self.groups.give_back(((held & !GROUP) as usize - GROUPS).div_euclid(GROUP_WORDS) as u32);
                self.give_back(lead);
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

    /// A group that says what one entry said, and its lead; not yet led to.
    fn divide(&mut self, words: &(impl Words + ?Sized), held: u32) -> Result<(u32, usize), Full> {
        if self.groups.available() == 0 {
            return Err(Full);
        }
        let lead = self.far.take().ok_or(Full)? + FAR;
        let number = self.groups.take().ok_or(Full)?;
        let group = GROUPS + number as usize * GROUP_WORDS;
        (group..group + GROUP_WORDS).for_each(|at| words.store(at, held));
        words.store(lead as usize, GROUP | group as u32);
        Ok((lead, group))
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
fn paint(words: &(impl Words + ?Sized), first: u32, last: u32, lead: u32, value: u32) {
    let mut address = u64::from(first);
    while address <= u64::from(last) {
        let end = (address | 0xff).min(u64::from(last));
        let was = entry(words, address as u32);
        let held = words.load(was as usize);
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
