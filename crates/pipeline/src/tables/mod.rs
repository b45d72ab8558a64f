//! The tables a frame is looked up in, one file each, and [`Tables`], all of them together.
//!
//! Invariant: stages read tables and never change them; what a frame changes (the FDB, a token bucket, the
//! counters) is changed by [`crate::Pipeline::process`] from what the stages decided.

pub mod counters;
pub mod fdb;
pub mod ports;
pub mod rifs;
pub mod routes;
pub mod stp;
pub mod trap;
pub mod vlans;

use fdb::Fdb;
use ports::Ports;
use rifs::Rifs;
use routes::{Limits, Routes};
use stp::SpanningTree;
use trap::TrapTable;
use vlans::Vlans;

/// Every table a stage may look at.
#[derive(Debug)]
pub struct Tables {
    /// The ports, and sets of them by what they do.
    pub ports: Ports,
    /// The VLANs and their members.
    pub vlans: Vlans,
    /// Spanning-tree states.
    pub stp: SpanningTree,
    /// Addresses and where they are.
    pub fdb: Fdb,
    /// Which control frames go up, and how many.
    pub trap: TrapTable,
    /// Router interfaces.
    pub rifs: Rifs,
    /// Where they route to.
    pub routes: Routes,
    /// Keeps the hashes from being guessed.
    pub salt: u64,
}

impl Tables {
    /// Empty tables; `salt` keeps the hashes of the FDB and of flows from being guessed.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self {
            ports: Ports::default(),
            vlans: Vlans::default(),
            stp: SpanningTree::default(),
            fdb: Fdb::new(salt),
            trap: TrapTable::default(),
            rifs: Rifs::default(),
            routes: Routes::new(Limits::default()),
            salt,
        }
    }
}
