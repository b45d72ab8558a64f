//! [`Blocks`]: what each /24 leads to, as many bits for each as the block it is in wants.
//!
//! A block is a /12, and has a line that describes it. Word 0 there is a line number and, above it, how the 4,096 entries lie:
//!
//! | Word 0 >> 28 | The entries | An entry is |
//! |---|---|---|
//! | 0 | none: all are what word 1 is | |
//! | 1, 2, 3 | of 1, 2, 4 bits, from the line on | the number of a word behind word 0 |
//! | 4 | of 8 bits, from 64 lines behind the line on | the number of a word from the line on |
//! | 5 | words, from the line on | itself |
//!
//! Entries of lower addresses lie in lower bits. The words that entries number are leaves, [`NONE`] or [`DIVIDED`]. What random
//! destinations drag through the cache is the entries, and whatever the size of a table, few next hops lead to what
//! is near each other: so they have few bits, where they are wanted none, and no table is wide because one block is.
//!
//! Invariants: a block has no entries exactly while no route longer than 12 bits lies in it (but for a moment, when one is refused).
//! One with numbers has one for each leaf that a route touching it leads to, seen or covered by longer ones, for [`NONE`], and for
//! [`DIVIDED`] while a /24 is; so what a removal uncovers has its number, and removing takes nothing. A number whose leaf has gone
//! takes no other until no reader can hold it. A block changes from one layout to the next with one store.

use crate::trie::{Lines, line_at};
use crate::{Full, LINE, NONE, Words};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// In place of a leaf: routes longer than /24 lie in the /24.
pub(crate) const DIVIDED: u32 = 0x8000_0000;
/// Bits of a block.
pub(crate) const BITS: u8 = 12;
/// Blocks there are, and /24s of each.
pub(crate) const BLOCKS: u32 = 1 << BITS;
const ENTRIES: u32 = 1 << (24 - BITS);

/// Where word 0 has the layout.
const LAYOUT_SHIFT: u32 = 28;
/// Layouts: no entries; the first and the widest with numbers in the block's own line; with numbers of their own; without.
const WHOLE: u32 = 0;
const SINGLE: u32 = 1;
const NIBBLES: u32 = 3;
const BYTES: u32 = 4;
const WORDS: u32 = 5;
/// By layout: bits of an entry, and numbers there are.
const WIDTHS: [u32; 6] = [0, 1, 2, 4, 8, 32];
const NUMBERS: [usize; 6] = [0, 2, 4, 15, 256, 0];
/// Lines from a run of bytes' beginning, where their numbers are, to the bytes.
const TO_BYTES: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    leaf: u32,
    /// Routes that lead to it and touch the block.
    routes: u32,
    /// It is in limbo: a reader may hold it, whatever it has come to mean again.
    waits: bool,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Where the line of block 0 is.
    at: usize,
    /// The numbers of each block, by themselves.
    numbers: Vec<Vec<Number>>,
    /// Numbers whose leaf has gone: block and number.
    limbo: Vec<(u32, usize)>,
    /// It is such numbers that were last wanting.
    starved: bool,
}

/// The block of an address.
pub(crate) fn block_of(address: u32) -> u32 {
    address >> (32 - BITS)
}

/// A block's addresses.
pub(crate) fn net(block: u32) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(block << (32 - BITS)), BITS)
}

/// What a /24 leads to: a leaf, [`NONE`] or [`DIVIDED`]. The line of block 0 is at word `at`.
pub(crate) fn load(words: &(impl Words + ?Sized), at: usize, address: u32) -> u32 {
    let own = at + line_at(block_of(address));
    let entries = Entries::of(words.load(own));
    match entries.layout {
        WHOLE => words.load(own + 1),
        WORDS => entries.load(words, address),
        _ => words.load(entries.numbers(own) + entries.load(words, address) as usize),
    }
}

/// How a block's entries lie.
#[derive(Debug, Clone, Copy)]
struct Entries {
    layout: u32,
    line: u32,
}

impl Entries {
    fn of(word: u32) -> Self {
        Self { layout: word >> LAYOUT_SHIFT, line: word & ((1 << LAYOUT_SHIFT) - 1) }
    }
    fn word(self) -> u32 {
        self.layout << LAYOUT_SHIFT | self.line
    }
    /// Word and shift of an entry.
    fn place(self, address: u32) -> (usize, u32) {
        let line = if self.layout == BYTES { self.line + TO_BYTES } else { self.line };
        let bit = (address >> 8 & (ENTRIES - 1)) * self.bits();
        (line_at(line) + (bit / 32) as usize, bit % 32)
    }
    fn bits(self) -> u32 {
        WIDTHS[self.layout as usize]
    }
    /// Where the words that they number begin; the block's own line begins at `own`.
    fn numbers(self, own: usize) -> usize {
        if self.layout == BYTES { line_at(self.line) } else { own + 1 }
    }
    /// The order of the lines they lie in.
    fn order(self) -> u8 {
        (ENTRIES * self.bits() / 32 / LINE as u32).trailing_zeros() as u8
    }
    fn mask(self) -> u32 {
        u32::MAX >> (32 - self.bits())
    }
    fn load(self, words: &(impl Words + ?Sized), address: u32) -> u32 {
        let (at, shift) = self.place(address);
        words.load(at) >> shift & self.mask()
    }
    /// The only writer has the rest of the word to itself.
    fn store(self, words: &(impl Words + ?Sized), address: u32, value: u32) {
        let (at, shift) = self.place(address);
        words.store(at, words.load(at) & !(self.mask() << shift) | value << shift);
    }

    /// Takes what a layout takes, all entries 0.
    fn take(words: &(impl Words + ?Sized), layout: u32, lines: &mut Lines) -> Result<Self, Full> {
        let order = Self { layout, line: 0 }.order() + u8::from(layout == BYTES);
        let entries = Self { layout, line: lines.take_run(order)? };
        if layout == BYTES {
            // Between the numbers and the bytes.
            lines.runs.put_back(entries.line + 16, 4);
            lines.runs.put_back(entries.line + 32, 5);
        }
        for (line, order) in entries.runs() {
            (line_at(line)..line_at(line + (1 << order))).for_each(|at| words.store(at, 0));
        }
        Ok(entries)
    }
    /// What it takes.
    fn runs(self) -> impl Iterator<Item = (u32, u8)> {
        let runs = match self.layout {
            WHOLE => [None, None],
            BYTES => [Some((self.line, 4)), Some((self.line + TO_BYTES, self.order()))],
            _ => [Some((self.line, self.order())), None],
        };
        runs.into_iter().flatten()
    }
}

impl Blocks {
    /// With the line of block 0 at word `at`.
    pub(crate) fn new(at: usize) -> Self {
        let numbers = vec![Vec::new(); BLOCKS as usize];
        Self { at, numbers, limbo: Vec::new(), starved: false }
    }
    pub(crate) fn waiting(&self) -> u32 {
        self.limbo.len() as u32
    }
    /// What was last refused was so for want of numbers, which come back.
    pub(crate) fn starved(&self) -> bool {
        self.starved
    }
    /// No reader holds what has been given back.
    pub(crate) fn settle(&mut self) {
        for (block, number) in std::mem::take(&mut self.limbo) {
            let numbers = &mut self.numbers[block as usize];
            numbers[number].waits = false;
        }
    }

    fn own(&self, block: u32) -> usize {
        self.at + line_at(block)
    }
    fn entries(&self, words: &(impl Words + ?Sized), block: u32) -> Entries {
        Entries::of(words.load(self.own(block)))
    }
    /// It has no entries.
    pub(crate) fn is_whole(&self, words: &(impl Words + ?Sized), block: u32) -> bool {
        self.entries(words, block).layout == WHOLE
    }
    pub(crate) fn load(&self, words: &(impl Words + ?Sized), address: u32) -> u32 {
        load(words, self.at, address)
    }

    /// What an entry is that leads to a leaf; `None` when nothing here does.
    fn entry(&self, entries: Entries, block: u32, leaf: u32) -> Option<u32> {
        if entries.layout == WORDS {
            return Some(leaf);
        }
        let numbers = &self.numbers[block as usize];
        numbers.iter().position(|number| number.leaf == leaf && number.routes > 0).map(|at| at as u32)
    }
    /// What a /24 of a block that is not whole leads to from now on.
    pub(crate) fn store(&self, words: &(impl Words + ?Sized), address: u32, leaf: u32) {
        let entries = self.entries(words, block_of(address));
        // It has a number, by the invariant.
        entries.store(words, address, self.entry(entries, block_of(address), leaf).unwrap_or(0));
    }
    /// What the addresses of one block from the first to the last lead to from now on, but for the divided /24s, which are told. A
    /// whole block has no route longer than it in it, so all of it is meant.
    pub(crate) fn fill(
        &self,
        words: &(impl Words + ?Sized),
        [first, last]: [u32; 2],
        leaf: u32,
        mut divided: impl FnMut(u32),
    ) {
        let block = block_of(first);
        let entries = self.entries(words, block);
        if entries.layout == WHOLE {
            return words.store(self.own(block) + 1, leaf);
        }
        let [new, leads_on] = [leaf, DIVIDED].map(|leaf| self.entry(entries, block, leaf));
        for address in (first >> 8..=last >> 8).map(|number| number << 8) {
            if leads_on == Some(entries.load(words, address)) {
                divided(address);
            } else {
                entries.store(words, address, new.unwrap_or(0));
            }
        }
    }

    /// Gives a whole block entries, and numbers for what the routes that cover it lead to.
    pub(crate) fn open(
        &mut self,
        words: &(impl Words + ?Sized),
        block: u32,
        covers: impl Iterator<Item = u32>,
        lines: &mut Lines,
    ) -> Result<(), Full> {
        let own = self.own(block);
        let entries = Entries::take(words, SINGLE, lines)?;
        let numbers = &mut self.numbers[block as usize];
        let leaf = words.load(own + 1);
        match numbers.first_mut() {
            Some(first) => *first = Number { leaf, routes: 1, ..*first },
            None => numbers.push(Number { leaf, routes: 1, waits: false }),
        }
        words.store(own, entries.word());
        for leaf in covers.chain([NONE]) {
            if let Err(full) = self.hold(words, block, leaf, lines) {
                self.close(words, block, words.load(own + 1), lines);
                return Err(full);
            }
        }
        // One of those that cover it, or NONE, was there before.
        let first = &mut self.numbers[block as usize][0];
        first.routes = first.routes.saturating_sub(1);
        Ok(())
    }

    /// Makes a block whole again.
    pub(crate) fn close(&mut self, words: &(impl Words + ?Sized), block: u32, leaf: u32, lines: &mut Lines) {
        let (own, entries) = (self.own(block), self.entries(words, block));
        // All of it leads there by now, so who still goes by an entry and meets this is answered well.
        words.store(own + 1, leaf);
        words.store(own, Entries { layout: WHOLE, line: 0 }.word());
        entries.runs().for_each(|(line, order)| lines.runs.give_back(line, order));
        self.forget(block);
    }

    /// The numbers of a block that has none any more; the first is that of all, if it is whole.
    fn forget(&mut self, block: u32) {
        for at in 0..self.numbers[block as usize].len() {
            self.give_back(block, at);
        }
    }

    /// A number whose leaf has gone. It is in limbo once, however often it comes and goes.
    fn give_back(&mut self, block: u32, at: usize) {
        let number = &mut self.numbers[block as usize][at];
        let was = std::mem::replace(number, Number { routes: 0, waits: number.in_use(), ..*number });
        if was.in_use() && !was.waits {
            self.limbo.push((block, at));
        }
    }

    /// One more route leads to a leaf and touches the block, which is not whole.
    pub(crate) fn hold(
        &mut self,
        words: &(impl Words + ?Sized),
        block: u32,
        leaf: u32,
        lines: &mut Lines,
    ) -> Result<(), Full> {
        self.starved = false;
        loop {
            let entries = self.entries(words, block);
            if entries.layout == WORDS {
                return Ok(());
            }
            let (room, own) = (NUMBERS[entries.layout as usize], self.own(block));
            let numbers = &mut self.numbers[block as usize];
            let known = numbers.iter().position(|number| number.leaf == leaf && number.in_use());
            let free = || numbers.iter().position(|number| !number.in_use());
            let at = known.or_else(free).unwrap_or(numbers.len());
            if at < room {
                words.store(entries.numbers(own) + at, leaf);
                match numbers.get_mut(at) {
                    Some(number) => *number = Number { leaf, routes: number.routes + 1, ..*number },
                    None => numbers.push(Number { leaf, routes: 1, waits: false }),
                }
                return Ok(());
            }
            let waiting = numbers.iter().filter(|number| number.waits && number.routes == 0).count();
            if entries.layout >= NIBBLES && waiting > room / 2 {
                self.starved = true;
                return Err(Full);
            }
            self.widen(words, block, entries, lines)?;
        }
    }

    /// One route less does.
    pub(crate) fn let_go(&mut self, words: &(impl Words + ?Sized), block: u32, leaf: u32) {
        if matches!(self.entries(words, block).layout, WHOLE | WORDS) {
            return;
        }
        let numbers = &mut self.numbers[block as usize];
        let Some(at) = numbers.iter().position(|number| number.leaf == leaf && number.routes > 0) else {
            return;
        };
        if numbers[at].routes == 1 {
            self.give_back(block, at);
        } else {
            numbers[at].routes -= 1;
        }
    }

    /// The same entries in the next layout.
    fn widen(
        &mut self,
        words: &(impl Words + ?Sized),
        block: u32,
        had: Entries,
        lines: &mut Lines,
    ) -> Result<(), Full> {
        let entries = Entries::take(words, had.layout + 1, lines)?;
        let own = self.own(block);
        let (first, numbers) = (had.numbers(own), entries.numbers(own));
        for address in (0..ENTRIES).map(|entry| entry << 8) {
            let number = had.load(words, address);
            let value = if entries.layout == WORDS { words.load(first + number as usize) } else { number };
            if value != 0 {
                entries.store(words, address, value);
            }
        }
        if entries.layout == BYTES {
            (0..NUMBERS[NIBBLES as usize])
                .for_each(|number| words.store(numbers + number, words.load(first + number)));
        }
        words.store(own, entries.word());
        had.runs().for_each(|(line, order)| lines.runs.give_back(line, order));
        if entries.layout == WORDS {
            self.forget(block);
        }
        Ok(())
    }
}

impl Number {
    /// It has a meaning to somebody.
    fn in_use(self) -> bool {
        self.routes > 0 || self.waits
    }
}
