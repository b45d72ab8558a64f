//! The tables that a frame is looked up in, one file each, and [`Tables`], all of them together.
//!
//! Invariant: stages read tables and never change them. What a frame changes (the FDB, a token bucket, the
//! counters) is changed by [`crate::Pipeline::process`] according to the stages' decision.

pub mod acls;
pub mod bindings;
pub mod channels;
pub mod counters;
pub mod fdb;
pub mod mdb;
pub mod ports;
pub mod rifs;
pub mod routes;
pub mod stp;
pub mod trap;
pub mod vlans;

use acls::Acls;
use bindings::Bindings;
use channels::Channels;
use fdb::Fdb;
use mdb::Mdb;
use ports::Ports;
use rifs::Rifs;
use routes::{Limits, Routes};
use stp::SpanningTree;
use trap::TrapTable;
use vlans::Vlans;

/// All tables that stages read.
#[derive(Debug)]
pub struct Tables {
    /// The ports, and sets of ports by property.
    pub ports: Ports,
    /// The VLANs and their members.
    pub vlans: Vlans,
    /// Spanning-tree states.
    pub stp: SpanningTree,
    /// The FDB.
    pub fdb: Fdb,
    /// The MDB.
    pub mdb: Mdb,
    /// The addresses of hosts at ports with first-hop security.
    pub bindings: Bindings,
    /// Which control frames are trapped, and the token buckets that limit them.
    pub trap: TrapTable,
    /// Router interfaces.
    pub rifs: Rifs,
    /// The members in use of port-channels.
    pub channels: Channels,
    /// Routes, next-hop groups and adjacencies.
    pub routes: Routes,
    /// Access lists.
    pub acls: Acls,
    /// The salt that makes the hashes of flows unpredictable.
    pub salt: u64,
}

impl Tables {
    /// Empty tables; `salt` makes the hashes of the FDB and of flows unpredictable.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self {
            ports: Ports::default(),
            vlans: Vlans::default(),
            stp: SpanningTree::default(),
            fdb: Fdb::new(salt),
            mdb: Mdb::default(),
            bindings: Bindings::default(),
            trap: TrapTable::default(),
            rifs: Rifs::default(),
            channels: Channels::default(),
            routes: Routes::new(Limits::default()),
            acls: Acls::default(),
            salt,
        }
    }
}
