//! Predict-flat: counts units for each table, with the table's size from the platform file. It asks the chip for figures
//! only at the start, after a verified write and after a failure. The chip verifies objects in a hash table or a TCAM.

use super::{Decision, Layout, Strategy, Write};
use lanyard_asic::platform::Platform;
use lanyard_asic::tables::Usage;

/// See the module comment.
#[derive(Debug)]
pub(super) struct Flat {
    layout: Layout,
    used: Vec<i64>,
    /// True if the counts are unreliable until figures have arrived.
    lost: bool,
}

impl Flat {
    pub(super) fn new(platform: &Platform) -> Self {
        let layout = Layout::new(platform);
        Self { used: vec![0; layout.tables.len()], layout, lost: true }
    }
}

impl Strategy for Flat {
    fn name(&self) -> &'static str {
        "predict-flat"
    }
    fn admit(&mut self, writes: &[Write]) -> Decision {
        if self.lost {
            return Decision::Query;
        }
        // A verified write may be refused, so its units are counted from the next figures.
        if self.layout.must_verify(writes) {
            self.lost = true;
            return Decision::Verify;
        }
        for (table, units) in self.layout.needs(writes) {
            let free = i64::from(self.layout.tables[table].1) - self.used[table];
            if free < units {
                return self.layout.refuse(table, free);
            }
        }
        self.layout.differences(writes).for_each(|(table, units)| self.used[table] += units);
        Decision::Accept
    }
    fn figures(&mut self, tables: &[Usage]) {
        for (at, (path, size)) in self.layout.tables.iter_mut().enumerate() {
            if let Some(table) = tables.iter().find(|table| table.path == *path) {
                self.used[at] = table.used.into();
                *size = table.size;
            }
        }
        self.lost = false;
    }
    fn wrote(&mut self, _operations: &[lanyard_asic::sdk::Operation]) {
        self.lost = true;
    }
    fn distrust(&mut self) {
        self.lost = true;
    }
    fn confidence(&self) -> f64 {
        if self.lost { 0.0 } else { 1.0 }
    }
}
