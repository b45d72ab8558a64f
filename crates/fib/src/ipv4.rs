//! An array by the first 24 bits of an address; the prefixes longer than that are in a trie.
//!
//! Layout, in words: leads, the first of them the default route's; then 2^24 near entries; then a [`crate::forest`], if any
//! prefix is longer than /24. A near entry is the number of a lead, or all ones: then the /24 is divided, and what the forest's
//! hash has for its number is the entry of its trie ([`crate::trie`]). A lead is a leaf; lead 0 is 0 without a default route,
//! which so comes and goes with one store. Entries of lower addresses lie in lower bits. A number that is all ones names no
//! lead: in the word of that lead ([`Width::place`]) whoever keeps the near part and the forest apart says where it is.
//!
//! Near entries have 4, 8 or 16 bits ([`Width`]), as the number of next hops wants it: a table has few of them and as many
//! prefixes as you like, and what random destinations drag through the cache is the entries. Leads that are in use are always
//! in it.
//!
//! The trie has IPv6's prefixes: /24 number n is written as n/64, and the rest behind that. In it 0 is the default route.
//!
//! Invariants: a /24 is divided exactly while a route longer than /24 lies in it. A leaf has a lead exactly while a route of
//! 1 to 24 bits leads to it, so removing a route takes nothing. A lead that is given back keeps its word until no reader
//! can hold its number. An entry says that a /24 is divided after its trie is there, and no more before that goes: so a reader
//! that does not find it looks at the entry again.

use crate::forest::Forest;
use crate::slots::{self, Slots};
use crate::trie::{self, Around, Change, Lines, MOST_LINES, Place};
use crate::words::Behind;
use crate::{Full, MANY, NONE, Pool, Rib, Size, Words};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Bits of a near entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// For 14 next hops of routes of 1 to 24 bits.
    Four,
    /// For 254.
    Eight,
    /// For 65,534.
    Sixteen,
}

impl Width {
    /// All there are, the narrowest first.
    pub const ALL: [Self; 3] = [Self::Four, Self::Eight, Self::Sixteen];

    const fn bits(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
            Self::Sixteen => 16,
        }
    }
    /// The word of the near part that is never touched here.
    #[must_use]
    pub const fn place(self) -> usize {
        (1 << self.bits()) - 1
    }
    /// Words of the near part.
    #[must_use]
    pub const fn words(self) -> usize {
        self.place() + 1 + (1 << 24) * self.bits() as usize / 32
    }
    /// The width of a near part of so many words.
    #[must_use]
    pub fn of(words: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.words() == words)
    }
    fn wider(self) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.bits() > self.bits())
    }
    /// The entry that says that a /24 is divided.
    const fn divided(self) -> u32 {
        self.place() as u32
    }
    /// Leads for leaves.
    #[must_use]
    pub const fn leads(self) -> u32 {
        self.divided() - 1
    }

    /// Word and shift of an entry.
    const fn entry(self, address: u32) -> (usize, u32) {
        let (number, fit) = (address >> 8, 32 / self.bits());
        (self.place() + 1 + (number / fit) as usize, number % fit * self.bits())
    }
    fn load(self, words: &(impl Words + ?Sized), address: u32) -> u32 {
        let (at, shift) = self.entry(address);
        words.load(at) >> shift & self.divided()
    }
    /// The only writer has the rest of the word to itself.
    fn store(self, words: &(impl Words + ?Sized), address: u32, value: u32) {
        let (at, shift) = self.entry(address);
        words.store(at, words.load(at) & !(self.divided() << shift) | value << shift);
    }
    fn rest<W: Words + ?Sized>(self, words: &W) -> Behind<'_, W> {
        Behind { words, skip: self.words() }
    }
}

/// Where the forest's header tells of its hash.
const HEADER: usize = 1;
/// Bits of a /24 as an IPv6 prefix.
const KEY_BITS: u8 = 64;

/// What the longest match of an address leads to; [`NONE`] without one.
pub fn lookup(words: &(impl Words + ?Sized), width: Width, address: Ipv4Addr) -> u32 {
    let address = u32::from(address);
    loop {
        let lead = width.load(words, address);
        if lead != width.divided() {
            return words.load(lead as usize);
        }
        let rest = width.rest(words);
        let entry = slots::find(&rest, HEADER, (address >> 8).into());
        let word = trie::walk(&rest, entry, u128::from(address & 0xff) << 120);
        if word != NONE {
            return word;
        }
        if width.load(words, address) == width.divided() {
            return words.load(0);
        }
    }
}

/// A prefix of 24 bits and more, as the trie has it.
fn long(prefix: Ipv4Net) -> Ipv6Net {
    let address = u128::from(u32::from(prefix.network()));
    trie::prefix(address >> 8 << 64 | (address & 0xff) << 56, prefix.prefix_len() - 24 + KEY_BITS)
}

/// The routes as the trie has them. Those that cover a /24 are its own there.
struct Long<'a, R>(&'a R);

impl<R> Long<'_, R> {
    fn short(prefix: Ipv6Net) -> Ipv4Net {
        let bits = trie::bits_of(prefix);
        let address = Ipv4Addr::from((bits >> 64 << 8 | bits >> 56 & 0xff) as u32);
        Ipv4Net::new_assert(address, prefix.prefix_len() - KEY_BITS + 24)
    }
}

impl<R: Rib<Ipv4Net>> Around for Long<'_, R> {
    fn longest(&self, prefix: Ipv6Net) -> Option<(u8, u32)> {
        let (len, word) = self.0.longest(Self::short(prefix), |_| true)?;
        Some((len.max(24) - 24 + KEY_BITS, word))
    }
    fn inside(&self, prefix: Ipv6Net) -> impl Iterator<Item = Ipv6Net> {
        self.0.inside(Self::short(prefix)).map(long)
    }
}

/// The writer's side: what is in use. The words themselves are handed to each call, all 0 at first.
#[derive(Debug)]
pub struct Writer {
    width: Width,
    /// Piece n is lead n + 1.
    leads: Pool,
    /// The leaves that have a lead, and how many routes of 1 to 24 bits lead to each.
    leaves: HashMap<u32, (u32, u32)>,
    forest: Forest<1>,
    /// It is leads that were last wanting; otherwise it is in the forest.
    narrow: bool,
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
    fn size(&self) -> Size {
        Size { near: self.width.words(), rest: self.forest.words() }
    }
    fn pool(&self) -> &Pool {
        &self.forest.lines.pool
    }
    fn waiting(&self) -> u32 {
        self.forest.waiting() + self.leads.waiting()
    }
    fn worth_waiting(&self) -> bool {
        match self.narrow {
            // A table that has become wider stays so, but next hops that come and go all the time want many numbers.
            true => self.leads.waiting() > (self.leads.capacity() / 2).min(MANY),
            false => self.forest.worth_waiting(),
        }
    }
    fn settle(&mut self) {
        self.leads.settle();
        self.forest.settle();
    }
    fn larger(&self) -> Option<Size> {
        if self.narrow {
            return self.width.wider().map(|width| Size { near: width.words(), ..self.size() });
        }
        self.forest.larger().map(|rest| Size { rest, ..self.size() })
    }
    fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized)) {
        let had = self.width;
        if !self.narrow {
            self.forest.move_to(&had.rest(from), &had.rest(to));
            return;
        }
        let Some(width) = had.wider() else { return };
        crate::words::copy(from, to, 0..had.place());
        let fit = 32 / had.bits();
        for first in (0..1_u32 << 24).step_by(fit as usize) {
            if from.load(had.entry(first << 8).0) == 0 {
                continue;
            }
            for address in (first..first + fit).map(|number| number << 8) {
                match had.load(from, address) {
                    lead if lead == had.divided() => width.store(to, address, width.divided()),
                    lead => width.store(to, address, lead),
                }
            }
        }
        self.leads.grow(width.leads());
        self.width = width;
    }
}

impl Writer {
    /// Without a forest; that will have so many lines, at first and at most, and a quarter as many buckets.
    #[must_use]
    pub fn new(lines: u32, most: u32) -> Self {
        let (width, hash) = (Width::Four, Slots::new(HEADER, (most / 4).max(1)));
        let forest = Forest::new(Lines::new(1, 0), [hash], lines, most);
        Self { width, leads: Pool::new(width.leads()), leaves: HashMap::new(), forest, narrow: false }
    }
    /// Bits of the near entries.
    #[must_use]
    pub fn width(&self) -> Width {
        self.width
    }
    /// The numbers that next hops of routes of 1 to 24 bits have.
    #[must_use]
    pub fn leads(&self) -> &Pool {
        &self.leads
    }
    /// It is such a number that [`crate::Writer::set`] last found no room for.
    #[must_use]
    pub fn wants_lead(&self) -> bool {
        self.narrow
    }

    /// The lead of a leaf for one more route.
    fn hold(&mut self, words: &(impl Words + ?Sized), leaf: u32) -> Result<u32, Full> {
        if let Some((lead, routes)) = self.leaves.get_mut(&leaf) {
            *routes += 1;
            return Ok(*lead);
        }
        self.narrow = true;
        let lead = self.leads.take().ok_or(Full)? + 1;
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
            self.leads.give_back(lead - 1);
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
        let mut painted = None;
        gaps(prefix, rib, |first, last| {
            for number in first >> 8..=last >> 8 {
                let address = number << 8;
                if self.width.load(words, address) != self.width.divided() {
                    self.width.store(words, address, lead);
                } else if painted != Some(number) {
                    painted = Some(number);
                    self.paint(words, address, value, rib);
                }
            }
        });
        if old != NONE {
            self.let_go(old);
        }
        Ok(())
    }

    /// What a divided /24 has for the addresses that no route longer than it covers.
    fn paint(&self, words: &(impl Words + ?Sized), address: u32, value: u32, rib: &impl Rib<Ipv4Net>) {
        let words = &self.width.rest(words);
        if let Some(at) = self.forest.hashes[0].held(words, (address >> 8).into()) {
            let change =
                Change { words, around: Long(rib), prefix: long(whole(address)), value, covers: true };
            change.paint(root(address, at));
        }
    }

    /// A route inside one /24.
    fn set_long(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        new: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        let (width, address) = (self.width, u32::from(prefix.network()));
        let (lead, key, rest) = (width.load(words, address), u64::from(address >> 8), &width.rest(words));
        let held = match lead == width.divided() {
            true => self.forest.hashes[0].held(rest, key),
            false => None,
        };
        let value = if new == NONE { rib.covering(prefix, |_| true).unwrap_or(NONE) } else { new };
        let covers = rib.inside(prefix).next().is_some();
        let change = Change { words: rest, around: Long(rib), prefix: long(prefix), value, covers };
        if new == NONE {
            match held {
                Some(at) if rib.inside(whole(address)).next().is_none() => {
                    // It was the last in here.
                    width.store(words, address, self.lead_of(value));
                    let entry = rest.load(at);
                    rest.store(at, NONE);
                    self.forest.lines.release(rest, entry);
                    self.forest.hashes[0].give_back(rest, at, key);
                }
                Some(at) => self.forest.lines.set_in(&change, root(address, at), new)?,
                None => {}
            }
            return Ok(());
        }
        self.narrow = false;
        self.forest.room(MOST_LINES)?;
        if let Some(at) = held {
            return self.forest.lines.set_in(&change, root(address, at), new);
        }
        let at = self.forest.claim(rest, 0, key)?;
        rest.store(at, if lead == 0 { NONE } else { words.load(lead as usize) });
        self.forest.lines.set_in(&change, root(address, at), new)?;
        width.store(words, address, width.divided());
        Ok(())
    }
}

/// The /24 of an address.
fn whole(address: u32) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(address & !0xff), 24)
}

/// Where the trie of a divided /24 begins.
fn root(address: u32, at: usize) -> Place {
    Place { at, bits: u128::from(address >> 8) << 64, depth: KEY_BITS }
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
