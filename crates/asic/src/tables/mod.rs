//! The chip's tables, created from a platform, and their contents.
//!
//! Invariants: an item is in the tables with everything it needs or not at all. The occupancy is the sum of what the
//! items take, never an estimate. A refusal is counted at the table that had no room.

mod exact;
mod index;
mod items;
mod journal;
mod tcam;

pub use exact::{Exact, Key, Shape};
pub use index::Index;
pub use items::{AclRule, Item, ListSize, PortRange};
pub use tcam::{Order, Tcam, expand_range};

use crate::object::{Object, TableKind, Width};
use crate::platform::Platform;
use items::{ExactKey, Held};
use std::collections::HashMap;

/// Slots per TCAM block.
const TCAM_BLOCK: u32 = 128;

/// The reason why a table has no room for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Fewer units are free than the entry takes.
    Full,
    /// Units are free, but not in the buckets of the entry's hash.
    Collision,
    /// Units are free, but they are not adjacent, or they are in blocks that serve entries of another width.
    Fragmented,
}

impl Shortage {
    /// Its name in messages and in the SDK.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Collision => "collision",
            Self::Fragmented => "fragmented",
        }
    }
}

/// The reason why the chip refused an item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A table has no room.
    #[error("table {table} has no room: {} ({used} of {size} units are in use)", shortage.name())]
    NoRoom {
        /// The table's path: `kvd/hash_single`.
        table: String,
        /// The kind of shortage.
        shortage: Shortage,
        /// Units in use.
        used: u32,
        /// All units.
        size: u32,
    },
    /// The item is in the tables already.
    #[error("{0} is in the chip already")]
    Exists(String),
    /// The item is invalid: a group without members or with more than a table could contain, or a rule that
    /// no frame matches.
    #[error("{0}")]
    Invalid(String),
    /// No table of this name.
    #[error("no table {0}")]
    NoTable(String),
}

/// One table's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Memory and table: `kvd/hash_single`.
    pub path: String,
    /// All units.
    pub size: u32,
    /// Units in use.
    pub used: u32,
    /// The most units that were in use at any time.
    pub high_water: u32,
    /// Items refused because this table had no room.
    pub refused: u64,
    /// The kinds of objects it contains, with the units that one object takes.
    pub holds: Vec<(Object, Width)>,
}

#[derive(Debug, Clone)]
enum Store {
    Exact(Exact<ExactKey>),
    /// A table of prefixes, of which only the number of used units is known: which units a prefix takes does not matter.
    Lpm {
        size: u32,
        used: u32,
    },
    Tcam(Tcam),
    Index(Index),
}

impl Store {
    fn size(&self) -> u32 {
        match self {
            Self::Exact(table) => table.size(),
            Self::Lpm { size, .. } => *size,
            Self::Tcam(table) => table.size(),
            Self::Index(table) => table.size(),
        }
    }
    fn used(&self) -> u32 {
        match self {
            Self::Exact(table) => table.used(),
            Self::Lpm { used, .. } => *used,
            Self::Tcam(table) => table.used(),
            Self::Index(table) => table.used(),
        }
    }
    fn resize(&mut self, to: u32) -> Result<(), Shortage> {
        match self {
            Self::Exact(table) => table.resize(to),
            Self::Lpm { used, .. } if to < *used => Err(Shortage::Full),
            Self::Lpm { size, .. } => {
                *size = to;
                Ok(())
            }
            Self::Tcam(table) => table.resize(to),
            Self::Index(table) => table.resize(to),
        }
    }
}

#[derive(Debug, Clone)]
struct Table {
    path: String,
    /// Index of its memory.
    memory: usize,
    /// The size must be a multiple of this number of units.
    step: u32,
    store: Store,
    holds: Vec<(Object, Width)>,
    high_water: u32,
    refused: u64,
}

/// See the module comment.
#[derive(Debug, Clone)]
pub struct Tables {
    tables: Vec<Table>,
    /// Units of each memory.
    memories: Vec<u32>,
    /// The table of each kind of object, by `Object as usize`.
    places: [usize; Object::ALL.len()],
    widths: [Width; Object::ALL.len()],
    items: HashMap<Item, Vec<Held>>,
    journal: Option<journal::Journal>,
}

impl Tables {
    /// Creates the empty tables of a platform. `salt` determines which keys of the hash tables collide.
    #[must_use]
    pub fn new(platform: &Platform, salt: u64) -> Self {
        let mut tables = Vec::new();
        let mut places = [0; Object::ALL.len()];
        let mut widths = [Width::new(1); Object::ALL.len()];
        for (memory, described) in platform.memory.iter().enumerate() {
            for table in &described.table {
                for (object, width) in &table.holds {
                    places[*object as usize] = tables.len();
                    widths[*object as usize] = *width;
                }
                let (size, ways, banks, moves) = (table.size, table.ways, table.banks, table.moves);
                let (store, step) = match table.kind {
                    TableKind::Exact => {
                        (Store::Exact(Exact::new(Shape { size, ways, banks, moves }, salt)), ways * banks)
                    }
                    TableKind::Lpm => (Store::Lpm { size, used: 0 }, 1),
                    TableKind::Tcam => {
                        (Store::Tcam(Tcam::new(size, TCAM_BLOCK)), TCAM_BLOCK.min(size).max(1))
                    }
                    TableKind::Index => (Store::Index(Index::new(size)), 1),
                };
                tables.push(Table {
                    path: format!("{}/{}", described.name, table.name),
                    memory,
                    step: least_common_multiple(step, described.granularity),
                    store,
                    holds: table.holds.iter().map(|(object, width)| (*object, *width)).collect(),
                    high_water: 0,
                    refused: 0,
                });
            }
        }
        let memories = platform.memory.iter().map(|memory| memory.size).collect();
        Self { tables, memories, places, widths, items: HashMap::new(), journal: None }
    }

    /// Puts an item into the tables it needs; returns the number of entries written, including those that had to
    /// move.
    ///
    /// # Errors
    /// The table without room, or that the item is there already. Nothing has changed then.
    pub fn insert(&mut self, item: &Item) -> Result<u32, Refusal> {
        if self.items.contains_key(item) {
            return Err(Refusal::Exists(item.to_string()));
        }
        item.check()?;
        if let Some((object, count)) = item.bulk() {
            self.has_units(object, count)?;
        }
        let mut held = Vec::new();
        let mut writes = 0;
        for need in item.needs() {
            match self.place(&need) {
                Ok((entry, written)) => {
                    held.push(entry);
                    writes += written;
                }
                Err(refusal) => {
                    held.iter().rev().for_each(|entry| self.release(entry));
                    return Err(refusal);
                }
            }
        }
        // Once for each table: the entries of an item in the same table are consecutive, and a list has many.
        for same in held.chunk_by(|one, other| one.object() == other.object()) {
            let table = &mut self.tables[self.places[same[0].object() as usize]];
            table.high_water = table.high_water.max(table.store.used());
        }
        self.note(item, None);
        self.items.insert(item.clone(), held);
        Ok(writes)
    }

    /// Removes an item; returns false when it was not there.
    pub fn remove(&mut self, item: &Item) -> bool {
        let Some(held) = self.items.remove(item) else { return false };
        held.iter().rev().for_each(|entry| self.release(entry));
        self.note(item, Some(held));
        true
    }

    /// True when the item is in the tables.
    #[must_use]
    pub fn contains(&self, item: &Item) -> bool {
        self.items.contains_key(item)
    }
    /// The number of items in the tables.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// True when no item is in the tables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// Every table's figures, in the order of the platform file.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let of = |table: &Table| Usage {
            path: table.path.clone(),
            size: table.store.size(),
            used: table.store.used(),
            high_water: table.high_water,
            refused: table.refused,
            holds: table.holds.clone(),
        };
        self.tables.iter().map(of).collect()
    }
    /// The table for objects of a kind, by its index in [`Tables::usage`], and the units that one object
    /// takes.
    #[must_use]
    pub fn place_of(&self, object: Object) -> (usize, Width) {
        (self.places[object as usize], self.widths[object as usize])
    }

    /// Changes the size of a table within its memory.
    ///
    /// # Errors
    /// When there is no such table, the size is not a permitted multiple, the memory has no room, or the table's
    /// contents would not fit. Nothing has changed then.
    pub fn resize(&mut self, path: &str, size: u32) -> Result<(), Refusal> {
        let Some(at) = self.tables.iter().position(|table| table.path == path) else {
            return Err(Refusal::NoTable(path.to_owned()));
        };
        let table = &self.tables[at];
        if size == 0 || !size.is_multiple_of(table.step) {
            let step = table.step;
            return Err(Refusal::Invalid(format!(
                "table {path}: size {size} is not a positive multiple of {step}"
            )));
        }
        let memory = table.memory;
        let others =
            self.tables.iter().enumerate().filter(|(other, table)| *other != at && table.memory == memory);
        let others: u64 = others.map(|(_, table)| u64::from(table.store.size())).sum();
        let room = u64::from(self.memories[memory]).saturating_sub(others);
        if u64::from(size) > room {
            return Err(Refusal::Invalid(format!(
                "table {path}: {size} units; its memory has room for {room}"
            )));
        }
        let table = &mut self.tables[at];
        let (used, shortage) = (table.store.used(), table.store.resize(size));
        shortage.map_err(|shortage| Refusal::NoRoom { table: path.to_owned(), shortage, used, size })
    }

    /// Refuses `count` entries if their table has too few free units.
    fn has_units(&mut self, object: Object, count: u32) -> Result<(), Refusal> {
        let units = u64::from(count) * u64::from(self.widths[object as usize].units());
        let table = &mut self.tables[self.places[object as usize]];
        let (used, size) = (table.store.used(), table.store.size());
        if units <= u64::from(size - used) {
            return Ok(());
        }
        table.refused += 1;
        Err(Refusal::NoRoom { table: table.path.clone(), shortage: Shortage::Full, used, size })
    }

    fn place(&mut self, need: &Held) -> Result<(Held, u32), Refusal> {
        let object = need.object();
        self.keep(self.places[object as usize]);
        let width = self.widths[object as usize];
        let table = &mut self.tables[self.places[object as usize]];
        let placed = match (&mut table.store, need) {
            (Store::Exact(store), Held::Key(_, key)) => {
                store.insert(key, width).map(|moved| (need.clone(), moved + 1))
            }
            (Store::Lpm { size, used }, Held::Prefix(..)) => {
                if *size - *used < width.units() {
                    Err(Shortage::Full)
                } else {
                    *used += width.units();
                    Ok((need.clone(), 1))
                }
            }
            (Store::Tcam(store), Held::Prefix(_, order) | Held::Rule(_, order)) => {
                store.insert(*order, width).map(|moved| (need.clone(), moved + 1))
            }
            (Store::Index(store), Held::Run(_, _, count)) => {
                store.take(count * width.units()).map(|first| (Held::Run(object, first, *count), *count))
            }
            // Never reached: the check of the platform file ensures that each object fits its table (`Object::fits`).
            _ => Err(Shortage::Full),
        };
        placed.map_err(|shortage| {
            table.refused += 1;
            let (used, size) = (table.store.used(), table.store.size());
            Refusal::NoRoom { table: table.path.clone(), shortage, used, size }
        })
    }

    fn release(&mut self, held: &Held) {
        let object = held.object();
        self.keep(self.places[object as usize]);
        let width = self.widths[object as usize];
        let table = &mut self.tables[self.places[object as usize]];
        match (&mut table.store, held) {
            (Store::Exact(store), Held::Key(_, key)) => _ = store.remove(key),
            (Store::Lpm { used, .. }, Held::Prefix(..)) => *used = used.saturating_sub(width.units()),
            (Store::Tcam(store), Held::Prefix(_, order) | Held::Rule(_, order)) => {
                _ = store.remove(*order, width);
            }
            (Store::Index(store), Held::Run(_, first, count)) => {
                store.give_back(*first, count * width.units())
            }
            _ => {}
        }
    }
}

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    // No overflow: both are at most 2^24, and the size of a platform's table is a multiple of both.
    a / x * b
}
