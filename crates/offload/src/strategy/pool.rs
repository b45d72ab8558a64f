//! The free units of each table according to the chip's last figures, and the units spent since.

use super::{Layout, Write};
use lanyard_asic::tables::Usage;

/// See the module comment.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    pub(super) layout: Layout,
    /// For each table the units that may be spent without asking the chip.
    pub(super) credits: Vec<i64>,
    /// For each table the free units in the last figures, minus those spent since the figures were requested.
    pub(super) free: Vec<i64>,
    /// For each table the units spent since figures were last requested.
    spent: Vec<i64>,
    /// True if nothing has been written since figures were last requested.
    pub(super) fresh: bool,
}

impl Pool {
    pub(super) fn new(layout: Layout) -> Self {
        let none = vec![0; layout.tables.len()];
        Self { layout, credits: none.clone(), free: none.clone(), spent: none, fresh: false }
    }
    pub(super) fn asked(&mut self) {
        self.spent.fill(0);
        self.fresh = true;
    }
    /// Processes figures; at most `grant` units of each table become credits.
    pub(super) fn figures(&mut self, tables: &[Usage], grant: i64) {
        for (at, (path, _)) in self.layout.tables.iter().enumerate() {
            let Some(table) = tables.iter().find(|table| table.path == *path) else { continue };
            self.free[at] = i64::from(table.size) - i64::from(table.used) - self.spent[at];
            self.credits[at] = self.free[at].min(grant);
        }
    }
    /// The first table whose credits are not sufficient.
    pub(super) fn lacks(&self, writes: &[Write]) -> Option<usize> {
        self.layout
            .needs(writes)
            .into_iter()
            .find(|(table, units)| self.credits[*table] < *units)
            .map(|(table, _)| table)
    }
    /// Spends the units that the writes take.
    pub(super) fn spend(&mut self, writes: &[Write]) {
        self.fresh &= writes.is_empty();
        for (table, units) in self.layout.needs(writes) {
            self.credits[table] -= units;
            self.free[table] -= units;
            self.spent[table] += units;
        }
    }
}
