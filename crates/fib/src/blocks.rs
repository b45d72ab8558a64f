//! [`Blocks`]: one entry for each /24, as narrow as the routes of its /12 allow.
//!
//! A block is a /12. It has one line that describes it; word 0 of that line holds the block's layout in its top four bits and
//! the first line of its 4,096 entries below:
//!
//! | Layout | The entries | Meaning of an entry |
//! |---|---|---|
//! | 0 | none | the whole block leads to the leaf in word 1 |
//! | 1, 2, 3 | 1, 2 or 4 bits each, from that line on | index into the leaves that follow word 0 |
//! | 4 | 8 bits each, from 64 lines after that line on | index into the leaves that begin at that line |
//! | 5 | a word each, from that line on | the leaf itself |
//!
//! Entries of lower addresses are in lower bits. A leaf here may also be [`NONE`] or [`DIVIDED`]. The entries are what random
//! destinations bring into the cache, so they are kept small: neighbouring prefixes lead to few different next hops,
//! whatever the size of the table. The width is chosen per block, so one block with many next hops does not widen the others.
//!
//! Invariants: a block has entries exactly while a route longer than /12 is inside it (except during an insertion that is
//! then refused). In layouts 1 to 4 a block has an index for the leaf of every route that touches it, also of routes hidden
//! by longer ones, for [`NONE`], and for [`DIVIDED`] while one of its /24s is divided; so a removal never needs a new index
//! for the leaf it uncovers, and cannot fail. An index whose leaf has gone is quarantined before it is used for another
//! leaf. A block changes its layout with one store.

use crate::trie::{Lines, line_at};
use crate::{Full, LINE, NONE, Words};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// In place of a leaf: the /24 contains routes longer than /24, which are in the trie.
pub(crate) const DIVIDED: u32 = 0x8000_0000;
/// Prefix length of a block.
pub(crate) const BITS: u8 = 12;
/// The number of blocks, and of /24s in each.
pub(crate) const BLOCKS: u32 = 1 << BITS;
const ENTRIES: u32 = 1 << (24 - BITS);

/// The position of the layout in word 0.
pub(crate) const LAYOUT_SHIFT: u32 = 28;
/// The layouts. WHOLE has no entries; SINGLE and NIBBLES are the narrowest and the widest with the leaves in the block's own
/// line; BYTES has the leaves in the run of its entries; in WORDS each entry is a leaf.
pub(crate) const WHOLE: u32 = 0;
pub(crate) const SINGLE: u32 = 1;
pub(crate) const NIBBLES: u32 = 3;
pub(crate) const BYTES: u32 = 4;
pub(crate) const WORDS: u32 = 5;
/// By layout: the bits of an entry, and the leaves it can index.
const WIDTHS: [u32; 6] = [0, 1, 2, 4, 8, 32];
const NUMBERS: [usize; 6] = [0, 2, 4, 15, 256, 0];
/// In layout [`BYTES`], the lines from the beginning of the run, where the leaves are, to the entries.
pub(crate) const TO_BYTES: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    leaf: u32,
    /// The number of routes with this leaf that touch the block.
    routes: u32,
    /// True while the index is in the quarantine, also if it has been given to the same leaf again.
    quarantined: bool,
}

/// The writer's side of all blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// The first word of block 0's line.
    at: usize,
    /// The leaves of each block, by index.
    numbers: Vec<Vec<Number>>,
    /// Indices whose leaf has gone and that a reader may still hold: block and index.
    quarantine: Vec<(u32, usize)>,
    /// True if the last refusal was because no index was free, while most indices were quarantined.
    starved: bool,
}

/// The block of an address.
pub(crate) fn block_of(address: u32) -> u32 {
    address >> (32 - BITS)
}

/// The prefix of a block.
pub(crate) fn net(block: u32) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(block << (32 - BITS)), BITS)
}

/// The entry of an address's /24: a leaf, [`NONE`] or [`DIVIDED`]. The line of block 0 begins at word `at`.
pub(crate) fn load(words: &(impl Words + ?Sized), at: usize, address: u32) -> u32 {
    let own = at + line_at(block_of(address));
    let entries = Entries::of(words.load(own));
    match entries.layout {
        WHOLE => words.load(own + 1),
        WORDS => entries.load(words, address),
        _ => words.load(entries.numbers(own) + entries.load(words, address) as usize),
    }
}

/// The layout of a block and the first line of its entries.
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
    /// The word and the bit position of an entry.
    fn place(self, address: u32) -> (usize, u32) {
        let line = if self.layout == BYTES { self.line + TO_BYTES } else { self.line };
        let bit = (address >> 8 & (ENTRIES - 1)) * self.bits();
        (line_at(line) + (bit / 32) as usize, bit % 32)
    }
    fn bits(self) -> u32 {
        WIDTHS[self.layout as usize]
    }
    /// The first word of the leaves that entries index; `own` is the first word of the block's line.
    fn numbers(self, own: usize) -> usize {
        if self.layout == BYTES { line_at(self.line) } else { own + 1 }
    }
    /// The order of the run that holds the entries.
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
    /// Stores one entry. There is a single writer, so the other entries of the word cannot change meanwhile.
    fn store(self, words: &(impl Words + ?Sized), address: u32, value: u32) {
        let (at, shift) = self.place(address);
        words.store(at, words.load(at) & !(self.mask() << shift) | value << shift);
    }

    /// Allocates the memory of a layout; all entries are 0.
    fn take(words: &(impl Words + ?Sized), layout: u32, lines: &mut Lines) -> Result<Self, Full> {
        let order = Self { layout, line: 0 }.order() + u8::from(layout == BYTES);
        let entries = Self { layout, line: lines.take_run(order)? };
        if layout == BYTES {
            // The lines between the leaves and the entries are not needed.
            lines.runs.put_back(entries.line + 16, 4);
            lines.runs.put_back(entries.line + 32, 5);
        }
        for (line, order) in entries.runs() {
            (line_at(line)..line_at(line + (1 << order))).for_each(|at| words.store(at, 0));
        }
        Ok(entries)
    }
    /// The allocated runs.
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
    /// All blocks without routes; the line of block 0 begins at word `at`.
    pub(crate) fn new(at: usize) -> Self {
        let numbers = vec![Vec::new(); BLOCKS as usize];
        Self { at, numbers, quarantine: Vec::new(), starved: false }
    }
    pub(crate) fn waiting(&self) -> u32 {
        self.quarantine.len() as u32
    }
    /// True if the last refusal was because no index was free, although [`Blocks::settle`] would free some.
    pub(crate) fn starved(&self) -> bool {
        self.starved
    }
    /// Frees the quarantined indices: no reader holds them any more.
    pub(crate) fn settle(&mut self) {
        for (block, number) in std::mem::take(&mut self.quarantine) {
            let numbers = &mut self.numbers[block as usize];
            numbers[number].quarantined = false;
        }
    }

    fn own(&self, block: u32) -> usize {
        self.at + line_at(block)
    }
    fn entries(&self, words: &(impl Words + ?Sized), block: u32) -> Entries {
        Entries::of(words.load(self.own(block)))
    }
    /// True for a block without entries.
    pub(crate) fn is_whole(&self, words: &(impl Words + ?Sized), block: u32) -> bool {
        self.entries(words, block).layout == WHOLE
    }
    pub(crate) fn load(&self, words: &(impl Words + ?Sized), address: u32) -> u32 {
        load(words, self.at, address)
    }

    /// The value of an entry that leads to `leaf`; `None` when the block has no index for it.
    fn entry(&self, entries: Entries, block: u32, leaf: u32) -> Option<u32> {
        if entries.layout == WORDS {
            return Some(leaf);
        }
        let numbers = &self.numbers[block as usize];
        numbers.iter().position(|number| number.leaf == leaf && number.routes > 0).map(|at| at as u32)
    }
    /// Sets the leaf of a /24, in a block that is not whole.
    pub(crate) fn store(&self, words: &(impl Words + ?Sized), address: u32, leaf: u32) {
        let entries = self.entries(words, block_of(address));
        // By the invariant the block has an index for the leaf.
        entries.store(words, address, self.entry(entries, block_of(address), leaf).unwrap_or(0));
    }
    /// Sets the leaf of the addresses from the first to the last, all in one block, except in divided /24s, which are passed
    /// to `divided` instead. In a whole block the range is always the block.
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

    /// Gives a whole block entries, and indices for the leaves of the routes that cover it.
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
            None => numbers.push(Number { leaf, routes: 1, quarantined: false }),
        }
        words.store(own, entries.word());
        for leaf in covers.chain([NONE]) {
            if let Err(full) = self.hold(words, block, leaf, lines) {
                self.close(words, block, words.load(own + 1), lines);
                return Err(full);
            }
        }
        // The block's first leaf is that of a covering route or NONE, and was counted once too often above.
        let first = &mut self.numbers[block as usize][0];
        first.routes = first.routes.saturating_sub(1);
        Ok(())
    }

    /// Makes a block whole again.
    pub(crate) fn close(&mut self, words: &(impl Words + ?Sized), block: u32, leaf: u32, lines: &mut Lines) {
        let (own, entries) = (self.own(block), self.entries(words, block));
        // Every entry leads to `leaf` by now, so a reader that already has an entry gets the same answer.
        words.store(own + 1, leaf);
        words.store(own, Entries { layout: WHOLE, line: 0 }.word());
        entries.runs().for_each(|(line, order)| lines.runs.give_back(line, order));
        self.forget(block);
    }

    /// Quarantines all indices of a block whose new layout has none.
    fn forget(&mut self, block: u32) {
        for at in 0..self.numbers[block as usize].len() {
            self.give_back(block, at);
        }
    }

    /// Quarantines an index whose leaf has gone. It is quarantined once, however often its leaf comes and goes meanwhile.
    fn give_back(&mut self, block: u32, at: usize) {
        let number = &mut self.numbers[block as usize][at];
        let was = std::mem::replace(number, Number { routes: 0, quarantined: number.in_use(), ..*number });
        if was.in_use() && !was.quarantined {
            self.quarantine.push((block, at));
        }
    }

    /// Counts one more route with this leaf that touches the block, which is not whole; allots an index if needed.
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
                    None => numbers.push(Number { leaf, routes: 1, quarantined: false }),
                }
                return Ok(());
            }
            let quarantined =
                numbers.iter().filter(|number| number.quarantined && number.routes == 0).count();
            if entries.layout >= NIBBLES && quarantined > room / 2 {
                self.starved = true;
                return Err(Full);
            }
            self.widen(words, block, entries, lines)?;
        }
    }

    /// Counts one route less with this leaf that touches the block. Quarantines the leaf's index after the last one.
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

    /// Copies the entries into the next wider layout.
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
    /// True if a route or a reader may refer to the index.
    fn in_use(self) -> bool {
        self.routes > 0 || self.quarantined
    }
}
