//! The IPv4 table: an entry for each /24 ([`crate::blocks`]); prefixes longer than /24 are in a trie.
//!
//! Layout, in lines: the header; one line for each block; then the lines that [`Runs`] allocates. Word 0 of the header is the
//! default route, so that it changes with one store; word 1 locates the hash table of the divided /24s ([`crate::hash`]). Its
//! key is the number of the /24, its value the root entry of that /24's trie ([`crate::trie`]). The trie is made for IPv6
//! prefixes, so /24 number n is written as n/64 with the rest of the prefix after it. An entry of 0 means the default route.
//!
//! Invariants: a /24 is divided exactly while it contains a route longer than /24. Its entry becomes [`DIVIDED`] after its trie
//! is complete, and changes back before the trie is removed; so a reader that does not find the trie reads the entry again.

use crate::blocks::{self, BITS, BLOCKS, Blocks, DIVIDED, block_of};
use crate::hash::{self, Keys, PrefixHash};
use crate::trie::{self, Around, Change, Lines, MOST_LINES, Place};
use crate::{Full, LINE, MANY, NONE, Rib, Runs, Words};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::Ipv4Addr;

/// The word of the header that locates the hash table.
pub(crate) const HASH: usize = 1;
/// The first word of block 0's line, and the first line that is allocated.
pub(crate) const BLOCKS_AT: usize = LINE;
const FIRST_LINE: u32 = 1 + BLOCKS;
/// The length of a /24 when it is written as an IPv6 prefix.
const KEY_BITS: u8 = 64;

/// The leaf of the longest route that matches an address; [`NONE`] when no route does.
pub fn lookup(words: &(impl Words + ?Sized), address: Ipv4Addr) -> u32 {
    let address = u32::from(address);
    let or_default = |word| if word == NONE { words.load(0) } else { word };
    loop {
        let word = blocks::load(words, BLOCKS_AT, address);
        if word != DIVIDED {
            return or_default(word);
        }
        let entry = hash::find(words, HASH, Keys::SHORT, (address >> 8).into());
        if entry != NONE {
            return or_default(trie::walk(words, entry, u128::from(address & 0xff) << 120));
        }
    }
}

/// A prefix of /24 or longer, as the trie stores it.
fn long(prefix: Ipv4Net) -> Ipv6Net {
    let address = u128::from(u32::from(prefix.network()));
    trie::prefix(address >> 8 << 64 | (address & 0xff) << 56, prefix.prefix_len() - 24 + KEY_BITS)
}

/// The routes as the trie sees them: a route that covers a /24 counts as the /24 itself.
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

/// The writer's side of an IPv4 table.
#[derive(Debug)]
pub struct Writer {
    lines: Lines,
    blocks: Blocks,
    divided: PrefixHash,
}

impl crate::Writer for Writer {
    type Net = Ipv4Net;

    fn new(sizes: &'static [u32]) -> Self {
        let (blocks, divided) = (Blocks::new(BLOCKS_AT), PrefixHash::new(HASH, Keys::SHORT));
        Self { lines: Lines::new(FIRST_LINE, sizes), blocks, divided }
    }
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
            1..=24 => self.set_short(words, prefix, [old, new], rib)?,
            _ => self.set_long(words, prefix, new, rib)?,
        }
        Ok(())
    }
    fn lines(&self) -> &Runs {
        &self.lines.runs
    }
    fn waiting(&self) -> u32 {
        self.lines.runs.waiting() + self.divided.waiting() + self.blocks.waiting()
    }
    fn worth_waiting(&self) -> bool {
        self.blocks.starved() || self.lines.runs.waiting().max(self.divided.waiting()) > MANY
    }
    fn settle(&mut self) {
        self.lines.runs.settle();
        self.divided.settle();
        self.blocks.settle();
    }
    fn larger(&self) -> Option<u32> {
        self.lines.larger()
    }
    fn grow(&mut self) {
        self.lines.grow();
    }
}

impl Writer {
    fn set_short(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        [old, new]: [u32; 2],
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        let [first, last] = [prefix.network(), prefix.broadcast()].map(|address| block_of(address.into()));
        if new != NONE {
            for block in first..=last {
                if let Err(full) = self.hold(words, block, prefix, new, rib) {
                    (first..block).for_each(|held| self.blocks.let_go(words, held, new));
                    return Err(full);
                }
            }
        }
        let value = if new == NONE { rib.covering(prefix, |_| true).unwrap_or(NONE) } else { new };
        let mut painted = None;
        gaps(prefix, rib, |first, last| {
            for block in block_of(first)..=block_of(last) {
                let all = blocks::net(block);
                let range = [first.max(all.network().into()), last.min(all.broadcast().into())];
                self.blocks.fill(words, range, value, |address| {
                    // One /24 may contain several gaps; paint it once.
                    if painted.replace(address) != Some(address) {
                        self.paint(words, address, value, rib);
                    }
                });
            }
        });
        if old != NONE {
            (first..=last).for_each(|block| self.blocks.let_go(words, block, old));
        }
        if new == NONE {
            self.tidy(words, first, rib);
        }
        Ok(())
    }

    /// Counts a route in a block that it touches. Returns true when the block was given entries for it.
    fn hold(
        &mut self,
        words: &(impl Words + ?Sized),
        block: u32,
        prefix: Ipv4Net,
        leaf: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<bool, Full> {
        let opens = self.blocks.is_whole(words, block);
        if opens {
            if prefix.prefix_len() <= BITS {
                return Ok(false);
            }
            self.blocks.open(words, block, rib.covers(blocks::net(block)), &mut self.lines)?;
        }
        match self.blocks.hold(words, block, leaf, &mut self.lines) {
            Err(full) => {
                if opens {
                    self.close(words, block, rib);
                }
                Err(full)
            }
            Ok(()) => Ok(opens),
        }
    }

    /// Makes a block whole again.
    fn close(&mut self, words: &(impl Words + ?Sized), block: u32, rib: &impl Rib<Ipv4Net>) {
        let leaf = rib.covers(blocks::net(block)).last().unwrap_or(NONE);
        self.blocks.close(words, block, leaf, &mut self.lines);
    }

    /// After a removal: makes the block whole if no route longer than /12 is left in it.
    fn tidy(&mut self, words: &(impl Words + ?Sized), block: u32, rib: &impl Rib<Ipv4Net>) {
        if !self.blocks.is_whole(words, block) && rib.inside(blocks::net(block)).next().is_none() {
            self.close(words, block, rib);
        }
    }

    /// Sets, in a divided /24, the leaf of the addresses that no route longer than /24 covers.
    fn paint(&self, words: &(impl Words + ?Sized), address: u32, value: u32, rib: &impl Rib<Ipv4Net>) {
        if let Some(at) = self.divided.held(words, (address >> 8).into()) {
            let change =
                Change { words, around: Long(rib), prefix: long(whole(address)), value, covers: true };
            change.paint(root(address, at));
        }
    }

    /// Changes a route longer than /24, which is inside one /24.
    fn set_long(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Ipv4Net,
        new: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        let address = u32::from(prefix.network());
        let (before, key) = (self.blocks.load(words, address), u64::from(address >> 8));
        let held = match before == DIVIDED {
            true => self.divided.held(words, key),
            false => None,
        };
        let value = if new == NONE { rib.covering(prefix, |_| true).unwrap_or(NONE) } else { new };
        let covers = rib.inside(prefix).next().is_some();
        let change = Change { words, around: Long(rib), prefix: long(prefix), value, covers };
        if new == NONE {
            match held {
                Some(at) if rib.inside(whole(address)).next().is_none() => {
                    // It was the last route longer than /24 in this /24.
                    self.blocks.store(words, address, value);
                    let entry = words.load(at);
                    words.store(at, NONE);
                    self.lines.release(words, entry);
                    self.divided.give_back(words, at, key);
                    self.blocks.let_go(words, block_of(address), DIVIDED);
                    self.tidy(words, block_of(address), rib);
                }
                Some(at) => self.lines.set_in(&change, root(address, at), new)?,
                None => {}
            }
            return Ok(());
        }
        if let Some(at) = held {
            self.lines.room(MOST_LINES)?;
            return self.lines.set_in(&change, root(address, at), new);
        }
        let block = block_of(address);
        let opened = self.hold(words, block, prefix, DIVIDED, rib)?;
        if let Err(full) = self.divide(&change, address, before) {
            self.blocks.let_go(words, block, DIVIDED);
            if opened {
                self.close(words, block, rib);
            }
            return Err(full);
        }
        self.blocks.store(words, address, DIVIDED);
        Ok(())
    }

    /// Makes the trie of a /24 with its first route.
    fn divide<W: Words + ?Sized, A: Around>(
        &mut self,
        change: &Change<'_, W, A>,
        address: u32,
        before: u32,
    ) -> Result<(), Full> {
        let (words, key) = (change.words, u64::from(address >> 8));
        let at = self.divided.claim(words, key, &mut self.lines)?;
        if let Err(full) = self.lines.room(MOST_LINES) {
            self.divided.give_back(words, at, key);
            return Err(full);
        }
        words.store(at, before);
        self.lines.set_in(change, root(address, at), change.value)
    }
}

/// The /24 of an address.
fn whole(address: u32) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(address & !0xff), 24)
}

/// The root of a divided /24's trie.
fn root(address: u32, at: usize) -> Place {
    Place { at, bits: u128::from(address >> 8) << 64, depth: KEY_BITS }
}

/// Calls `run` with the first and last address of each range of `prefix` that no longer route covers.
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
