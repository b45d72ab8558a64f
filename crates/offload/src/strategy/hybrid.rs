//! Hybrid: counts units where a count is exact, and asks the twin of `predict-model` where it is not.
//!
//! A table of prefixes takes everything that its units allow, so a count decides there, and the caller does not wait for the
//! twin. The twin gets these operations later: before it has to decide itself, and with the chip's figures, which the manager
//! asks for about once a second. It gets all operations in the order in which the chip gets them, so it decides as if it had
//! received them at once. Transactions have up to 64 operations, so that a batch needs few messages.

use super::model::Model;
use super::{Decision, Strategy, Write};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::message::Event;
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::tables::Usage;

/// The most operations of a transaction for which no caller waits.
const CHUNK: usize = 64;
/// The number of operations from which on the twin is given those that it has not received.
const MAX_BEHIND: usize = 1 << 14;

/// See the module comment.
#[derive(Debug)]
pub(super) struct Hybrid {
    twin: Model,
    /// The free units of each table as they are counted here; `None` after the twin has decided: the twin's figures are exact
    /// then, because `behind` is empty.
    free: Option<Vec<i64>>,
    /// The operations that the twin has not received yet, oldest first.
    behind: Vec<Operation>,
}

impl Hybrid {
    pub(super) fn new(platform: &Platform, salt: u64) -> Self {
        Self { twin: Model::new(platform, salt), free: None, behind: Vec::new() }
    }

    /// Gives the twin the operations that it has not received.
    fn catch_up(&mut self) {
        let behind = std::mem::take(&mut self.behind);
        self.twin.replay(&behind);
    }

    /// The twin after it has received all operations, for a call that may change the number of free units.
    fn current(&mut self) -> &mut Model {
        self.catch_up();
        self.free = None;
        &mut self.twin
    }

    /// Takes the units that the writes need, if all of them are in tables in which a count is exact, and these have room. Returns
    /// false if nothing was taken.
    fn take(&mut self, writes: &[Write]) -> bool {
        if !self.twin.is_counted(writes) {
            return false;
        }
        let free = self.free.get_or_insert_with(|| self.twin.free());
        let layout = self.twin.layout();
        if layout.needs(writes).iter().any(|(table, units)| free[*table] < *units) {
            // The writes may also free units; the twin takes that into account.
            return false;
        }
        layout.differences(writes).for_each(|(table, units)| free[table] -= units);
        true
    }
}

impl Strategy for Hybrid {
    fn name(&self) -> &'static str {
        "hybrid"
    }
    fn admit(&mut self, writes: &[Write]) -> Decision {
        if !self.take(writes) {
            return self.current().admit(writes);
        }
        self.behind.extend(writes.iter().map(|write| write.operation.clone()));
        if self.behind.len() >= MAX_BEHIND {
            self.catch_up();
        }
        Decision::Accept
    }
    fn wrote(&mut self, operations: &[Operation]) {
        self.current().wrote(operations);
    }
    fn distrust(&mut self) {
        self.twin.distrust();
    }
    fn figures(&mut self, tables: &[Usage]) {
        self.current().figures(tables);
    }
    fn resized(&mut self, path: &str, units: u32) {
        self.current().resized(path, units);
    }
    fn restarted(&mut self, salt: u64) {
        self.twin.restarted(salt);
    }
    fn resync(&mut self, entries: &[Operation]) {
        // The twin begins anew, with what the chip holds.
        self.behind.clear();
        self.current().resync(entries);
    }
    fn received(&mut self, event: &Event) {
        self.twin.received(event);
    }
    fn chunk(&self) -> usize {
        CHUNK
    }
    fn confidence(&self) -> f64 {
        self.twin.confidence()
    }
}
