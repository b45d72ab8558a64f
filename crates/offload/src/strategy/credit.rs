//! Credit: a bucket of units for each table, refilled by queries for which no request waits. When a bucket is half empty,
//! the manager queries the chip's figures. The bucket grows whenever a request had to wait nevertheless, and shrinks while
//! it is hardly used.

use super::pool::Pool;
use super::{Decision, Layout, Strategy, Write};
use lanyard_asic::platform::Platform;
use lanyard_asic::tables::Usage;

/// The smallest and the largest bucket, in units.
const LEAST: i64 = 64;
const MOST: i64 = 1 << 14;

/// See the module comment.
#[derive(Debug)]
pub(super) struct Credit {
    pool: Pool,
    grant: i64,
    under_way: bool,
    wanted: bool,
}

impl Credit {
    pub(super) fn new(platform: &Platform) -> Self {
        Self { pool: Pool::new(Layout::new(platform)), grant: 256, under_way: false, wanted: true }
    }
}

impl Strategy for Credit {
    fn name(&self) -> &'static str {
        "credit"
    }
    fn admit(&mut self, writes: &[Write]) -> Decision {
        if let Some(table) = self.pool.lacks(writes) {
            let need = self
                .pool
                .layout
                .needs(writes)
                .into_iter()
                .find(|(at, _)| *at == table)
                .map_or(0, |(_, units)| units);
            if self.pool.fresh && !self.under_way {
                if self.pool.free[table] < need {
                    return self.pool.layout.refuse(table, self.pool.free[table]);
                }
                if self.grant >= MOST {
                    return Decision::Verify;
                }
            }
            self.grant = (self.grant * 2).max(need).min(MOST);
            self.wanted = true;
            return Decision::Wait;
        }
        self.pool.spend(writes);
        for (table, _) in self.pool.layout.needs(writes) {
            let low = self.pool.credits[table] < self.grant / 2;
            // Figures help only where the chip has more free units than the credits left here.
            self.wanted |= low && self.pool.free[table] > self.pool.credits[table];
        }
        if self.pool.layout.must_verify(writes) { Decision::Verify } else { Decision::Accept }
    }
    fn asked(&mut self) {
        self.under_way = true;
        self.wanted = false;
        self.pool.asked();
    }
    fn figures(&mut self, tables: &[Usage]) {
        self.under_way = false;
        if self.pool.credits.iter().all(|credits| *credits > self.grant * 3 / 4) {
            self.grant = (self.grant / 2).max(LEAST);
        }
        self.pool.figures(tables, self.grant);
    }
    fn wants_figures(&mut self) -> bool {
        self.wanted && !self.under_way
    }
    fn wrote(&mut self, _operations: &[lanyard_asic::sdk::Operation]) {
        self.pool.fresh = false;
    }
    fn distrust(&mut self) {
        self.pool.credits.fill(0);
        self.pool.fresh = false;
        self.under_way = false;
        self.wanted = true;
    }
}
