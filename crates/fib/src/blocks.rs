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
const FIRST: u32 = 1;
const NIBBLES: u32 = 3;
const BYTES: u32 = 4;
const WORDS: u32 = 5;
/// By layout: bits of an entry, and numbers there are.
const WIDTHS: [u32; 6] = [0, 1, 2, 4, 8, 32];
const NUMBERS: [usize; 6] = [0, 2, 4, 15, 256, 0];
/// Lines from a run of bytes' beginning, where their numbers are, to the bytes.
const TO_BYTES: u32 = 64;

/// The numbers of one block, by themselves.
type Numbers = Vec<Number>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    leaf: u32,
    /// Routes that lead to it and touch the block.
    routes: u32,
    /// A reader may hold it.
    waits: bool,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Where the line of block 0 is.
    at: usize,
    numbers: Vec<Numbers>,
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
        FIRST..=NIBBLES => words.load(own + 1 + entries.load(words, address) as usize),
        BYTES => words.load(line_at(entries.line) + entries.load(words, address) as usize),
        _ => entries.load(words, address),
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
        let order = match layout {
            BYTES => 7,
            layout => (ENTRIES * WIDTHS[layout as usize] / 32 / LINE as u32).trailing_zeros() as u8,
        };
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
            BYTES => [Some((self.line, 4)), Some((self.line + TO_BYTES, 6))],
            _ => [Some((self.line, (ENTRIES * self.bits() / 32 / LINE as u32).trailing_zeros() as u8)), None],
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

    /// What a /24 leads to from now on; in a whole block, all of it.
    pub(crate) fn store(&self, words: &(impl Words + ?Sized), address: u32, leaf: u32) {
        let block = block_of(address);
        let entries = self.entries(words, block);
        match entries.layout {
            WHOLE => words.store(self.own(block) + 1, leaf),
            WORDS => entries.store(words, address, leaf),
            _ => {
                let numbers = &self.numbers[block as usize];
                // It has one, by the invariant.
                let number = numbers.iter().position(|number| number.leaf == leaf && number.routes > 0);
                entries.store(words, address, number.unwrap_or(0) as u32);
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
        let entries = Entries::take(words, FIRST, lines)?;
        let numbers = &mut self.numbers[block as usize];
        let first = Number { leaf: words.load(own + 1), routes: 1, waits: false };
        match numbers.first_mut() {
            Some(number) => *number = first,
            None => numbers.push(first),
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
        for (at, number) in self.numbers[block as usize].iter_mut().enumerate() {
            if number.routes > 0 {
                *number = Number { routes: 0, waits: true, ..*number };
                self.limbo.push((block, at));
            }
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
                let first = if entries.layout == BYTES { line_at(entries.line) } else { own + 1 };
                words.store(first + at, leaf);
                let routes = numbers.get(at).map_or(0, |number| number.routes);
                let number = Number { leaf, routes: routes + 1, waits: false };
                match numbers.get_mut(at) {
                    Some(known) => *known = number,
                    None => numbers.push(number),
                }
                return Ok(());
            }
            let waiting = numbers.iter().filter(|number| number.waits).count();
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
        numbers[at].routes -= 1;
        if numbers[at].routes == 0 {
            numbers[at].waits = true;
            self.limbo.push((block, at));
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
        let first = if had.layout == BYTES { line_at(had.line) } else { own + 1 };
        for address in (0..ENTRIES).map(|entry| entry << 8) {
            let number = had.load(words, address);
            let value = if entries.layout == WORDS { words.load(first + number as usize) } else { number };
            if value != 0 {
                entries.store(words, address, value);
            }
        }
        if entries.layout == BYTES {
            (0..NUMBERS[NIBBLES as usize])
                .for_each(|number| words.store(line_at(entries.line) + number, words.load(first + number)));
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
