//! [`Strategy`], which determines whether an entry fits into the chip, with one file for each strategy.
//!
//! A strategy never accesses the chip. It decides, or states what information it needs; the manager then asks the chip.
//!
//! Invariant: [`Decision::Accept`] is returned only when the strategy is sure. A count of free units is sufficient
//! where every unit can hold every entry (prefixes by units, runs of one index). Hash tables and TCAMs refuse entries
//! earlier, so a strategy that only counts lets the chip verify those.

mod credit;
mod flat;
mod hybrid;
mod lockstep;
mod model;
mod pool;
mod prefetch;

use lanyard_asic::object::{Object, TableKind};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::message::{Code, Event, Refused};
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::tables::{Shortage, Usage};

/// An operation that is to be written, with the objects that it adds and removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The operation.
    pub operation: Operation,
    /// Objects that it adds, and how many.
    pub adds: Vec<(Object, u32)>,
    /// Objects that it removes, and how many.
    pub removes: Vec<(Object, u32)>,
    /// True if it may take more than is known here (a VRF's first route), so that only the chip can tell.
    pub unsure: bool,
}

/// The decision about some writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// They fit: the request is answered, and the writes are sent.
    Accept,
    /// Only the chip can tell: the writes are sent, and its answer is awaited.
    Verify,
    /// They do not fit.
    Refuse(Refused),
    /// Ask the chip for its figures, wait for them, and ask the strategy again.
    Query,
    /// Wait for figures that have been requested, and ask the strategy again.
    Wait,
}

/// See the module comment.
pub trait Strategy: std::fmt::Debug + Send {
    /// Its name in commands and reports.
    fn name(&self) -> &'static str;
    /// Decides about writes that are carried out together.
    fn admit(&mut self, writes: &[Write]) -> Decision;
    /// Called when the manager queries the chip's figures. Writes admitted from now on are not included in them.
    fn asked(&mut self) {}
    /// Called with the chip's figures.
    fn figures(&mut self, _tables: &[Usage]) {}
    /// True when the manager should query the chip's figures in the background.
    fn wants_figures(&mut self) -> bool {
        false
    }
    /// Called when writes have been carried out that were verified, or that the strategy did not have to
    /// decide about.
    fn wrote(&mut self, _operations: &[Operation]) {}
    /// Called when the chip has not carried out accepted writes, or its state is not as expected.
    fn distrust(&mut self) {}
    /// Called when a table has been given another number of units.
    fn resized(&mut self, _path: &str, _units: u32) {
        self.distrust();
    }
    /// Called when the chip has been restarted or replaced, with its salt.
    fn restarted(&mut self, _salt: u64) {
        self.distrust();
    }
    /// Called with the chip's configuration as it was read back.
    fn resync(&mut self, _entries: &[Operation]) {}
    /// Called with each event of the chip.
    fn received(&mut self, _event: &Event) {}
    /// The most operations of a transaction for which no caller waits.
    fn chunk(&self) -> usize {
        1
    }
    /// The probability that the next decision is right: 1 is certain.
    fn confidence(&self) -> f64 {
        1.0
    }
}

/// The names of all strategies.
pub const NAMES: [&str; 6] = ["lockstep", "prefetch", "credit", "predict-flat", "predict-model", "hybrid"];

/// Creates a strategy by its name. `prefetch` is the number of units it fetches at a time, 1 or more; `salt` is the
/// chip's.
///
/// # Errors
/// When there is none of this name.
pub fn by_name(
    name: &str,
    platform: &Platform,
    salt: u64,
    prefetch: u32,
) -> Result<Box<dyn Strategy>, String> {
    Ok(match name {
        "lockstep" => Box::new(lockstep::Lockstep::new(platform)),
        "prefetch" => Box::new(prefetch::Prefetch::new(platform, prefetch.max(1))),
        "credit" => Box::new(credit::Credit::new(platform)),
        "predict-flat" => Box::new(flat::Flat::new(platform)),
        "predict-model" => Box::new(model::Model::new(platform, salt)),
        "hybrid" => Box::new(hybrid::Hybrid::new(platform, salt)),
        other => return Err(format!("strategy {other:?}: one of {}", NAMES.join(", "))),
    })
}

/// The tables of a platform, for strategies that count units.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Path and size of each table.
    pub(crate) tables: Vec<(String, u32)>,
    /// For each kind of object its table, the units of one object, and the kind of table, which determines whether a count of
    /// free units is sufficient to decide that an object fits.
    places: Vec<(usize, u32, TableKind)>,
}

impl Layout {
    pub(crate) fn new(platform: &Platform) -> Self {
        let mut tables = Vec::new();
        for memory in &platform.memory {
            tables.extend(
                memory.table.iter().map(|table| (format!("{}/{}", memory.name, table.name), table.size)),
            );
        }
        let place = |object: &Object| {
            let (memory, table, width) = platform.table_of(*object)?;
            let path = format!("{}/{}", memory.name, table.name);
            Some((tables.iter().position(|(other, _)| *other == path)?, width.units(), table.kind))
        };
        let places =
            Object::ALL.iter().map(|object| place(object).unwrap_or((0, 1, TableKind::Exact))).collect();
        Self { tables, places }
    }
    /// The units that `count` objects take, and their table.
    pub(crate) fn units(&self, object: Object, count: u32) -> (usize, i64) {
        let (table, units, _) = self.places[object as usize];
        (table, i64::from(units) * i64::from(count))
    }
    /// True when only the chip can tell whether these fit.
    pub(crate) fn must_verify(&self, writes: &[Write]) -> bool {
        writes.iter().any(|write| {
            write.unsure
                || write.adds.iter().any(|(object, count)| match self.places[*object as usize].2 {
                    TableKind::Lpm => false,
                    TableKind::Index => *count > 1,
                    TableKind::Exact | TableKind::Tcam => true,
                })
        })
    }
    /// The units that the writes take of each table, without counting those that they free.
    pub(crate) fn needs(&self, writes: &[Write]) -> Vec<(usize, i64)> {
        let mut needs: Vec<(usize, i64)> = Vec::new();
        for (object, count) in writes.iter().flat_map(|write| &write.adds) {
            let (table, units) = self.units(*object, *count);
            match needs.iter_mut().find(|(other, _)| *other == table) {
                Some((_, sum)) => *sum += units,
                None => needs.push((table, units)),
            }
        }
        needs
    }
    /// How the units in use of a table change with each object that the writes add and remove.
    pub(crate) fn differences<'a>(&'a self, writes: &'a [Write]) -> impl Iterator<Item = (usize, i64)> + 'a {
        writes.iter().flat_map(|write| {
            let added = write.adds.iter().map(|(object, count)| self.units(*object, *count));
            let removed = write.removes.iter().map(|(object, count)| self.units(*object, *count));
            added.chain(removed.map(|(table, units)| (table, -units)))
        })
    }
    /// Refuses because a table has no room.
    pub(crate) fn refuse(&self, table: usize, free: i64) -> Decision {
        let (path, size) = &self.tables[table];
        let used = u32::try_from(i64::from(*size) - free.max(0)).unwrap_or(0);
        Decision::Refuse(Refused {
            code: Code::NoRoom,
            at: 0,
            table: path.clone(),
            shortage: Some(Shortage::Full),
            units: (used, *size),
            text: format!("table {path} has no room ({used} of {size} units are in use)"),
        })
    }
}
