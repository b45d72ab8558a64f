//! Lockstep: before each write it asks the chip for free room, and afterwards it waits for the result. It is always
//! correct, and as slow as the bus: a query and a write for each entry.

use super::pool::Pool;
use super::{Decision, Layout, Strategy, Write};
use lanyard_asic::platform::Platform;
use lanyard_asic::tables::Usage;

/// See the module comment.
#[derive(Debug)]
pub(super) struct Lockstep {
    pool: Pool,
    asked: bool,
}

impl Lockstep {
    pub(super) fn new(platform: &Platform) -> Self {
        Self { pool: Pool::new(Layout::new(platform)), asked: false }
    }
}

impl Strategy for Lockstep {
    fn name(&self) -> &'static str {
        "lockstep"
    }
    fn admit(&mut self, writes: &[Write]) -> Decision {
        if !std::mem::replace(&mut self.asked, false) {
            self.asked = true;
            return Decision::Query;
        }
        self.asked = false;
        match self.pool.lacks(writes) {
            Some(table) => self.pool.layout.refuse(table, self.pool.free[table]),
            None => Decision::Verify,
        }
    }
    fn asked(&mut self) {
        self.pool.asked();
    }
    fn figures(&mut self, tables: &[Usage]) {
        self.pool.figures(tables, i64::MAX);
    }
}
