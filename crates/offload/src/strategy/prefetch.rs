//! Prefetch: asks the chip for room for N units at once, and then accepts N units without asking. The request that
//! exceeds them waits for the next query.

use super::pool::Pool;
use super::{Decision, Layout, Strategy, Write};
use lanyard_asic::platform::Platform;
use lanyard_asic::tables::Usage;

/// See the module comment.
#[derive(Debug)]
pub(super) struct Prefetch {
    pool: Pool,
    units: i64,
}

impl Prefetch {
    pub(super) fn new(platform: &Platform, units: u32) -> Self {
        Self { pool: Pool::new(Layout::new(platform)), units: units.into() }
    }
}

impl Strategy for Prefetch {
    fn name(&self) -> &'static str {
        "prefetch"
    }
    fn admit(&mut self, writes: &[Write]) -> Decision {
        if let Some(table) = self.pool.lacks(writes) {
            // Writes of more than N units at once are verified as long as there seems to be room.
            let need = self
                .pool
                .layout
                .needs(writes)
                .into_iter()
                .find(|(at, _)| *at == table)
                .map_or(0, |(_, units)| units);
            return match (self.pool.fresh, self.pool.free[table] >= need) {
                (false, _) => Decision::Query,
                (true, true) => Decision::Verify,
                (true, false) => self.pool.layout.refuse(table, self.pool.free[table]),
            };
        }
        self.pool.spend(writes);
        if self.pool.layout.must_verify(writes) { Decision::Verify } else { Decision::Accept }
    }
    fn asked(&mut self) {
        self.pool.asked();
    }
    fn figures(&mut self, tables: &[Usage]) {
        self.pool.figures(tables, self.units);
    }
    fn wrote(&mut self, _operations: &[lanyard_asic::sdk::Operation]) {
        self.pool.fresh = false;
    }
    fn distrust(&mut self) {
        self.pool.credits.fill(0);
        self.pool.fresh = false;
    }
}
