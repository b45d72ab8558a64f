//! Predict-model: a twin of the chip, with the same tables and the same hashes, decides in its place.
//!
//! A driver sets the seed of a chip's hashes, so it can compute where every key collides. The twin receives the same
//! operations as the chip in the same order, so it refuses exactly the entries that the chip will refuse, and no
//! request waits for the bus. The twin cannot predict what others write: addresses that the chip learns, and multicast groups,
//! which the protocols write, take room in a shared hash table. If a table is shared with these, or after a failure, when
//! entries are in another order than the twin's, the chip verifies entries of hash tables and TCAMs. Counts of units remain
//! reliable.

use super::{Decision, Layout, Strategy, Write};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::object::Object;
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::message::Event;
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::tables::Usage;
use lanyard_pipeline::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// See the module comment.
#[derive(Debug)]
pub(super) struct Model {
    platform: Platform,
    salt: u64,
    layout: Layout,
    twin: Chip,
    /// The sizes in units that tables have been given, by path.
    sizes: BTreeMap<String, u32>,
    /// True if the twin's entries are in the same places as the chip's.
    exact: bool,
    /// The tables in which others write entries, too.
    shared: BTreeSet<usize>,
}

impl Model {
    pub(super) fn new(platform: &Platform, salt: u64) -> Self {
        let layout = Layout::new(platform);
        Self {
            platform: platform.clone(),
            salt,
            layout,
            twin: Chip::new(platform, salt),
            sizes: BTreeMap::new(),
            exact: true,
            shared: BTreeSet::new(),
        }
    }

    /// True when the twin's answer about these writes may differ from the chip's.
    fn unsure(&self, writes: &[Write]) -> bool {
        !self.exact && self.layout.must_verify(writes) || self.is_shared(writes)
    }

    /// True when some writes go to a table in which others write entries, too.
    fn is_shared(&self, writes: &[Write]) -> bool {
        let mut added = writes.iter().flat_map(|write| &write.adds);
        !self.shared.is_empty()
            && added.any(|(object, count)| self.shared.contains(&self.layout.units(*object, *count).0))
    }

    /// True when a count of free units is sufficient to decide about some writes.
    pub(super) fn is_counted(&self, writes: &[Write]) -> bool {
        !self.layout.must_verify(writes) && !self.is_shared(writes)
    }

    /// The tables of the platform.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The free units of each table of [`Model::layout`].
    pub(super) fn free(&self) -> Vec<i64> {
        let usage = self.twin.usage();
        let free = |path: &str| {
            let table = usage.iter().find(|table| table.path == path);
            table.map_or(0, |table| i64::from(table.size) - i64::from(table.used))
        };
        self.layout.tables.iter().map(|(path, _)| free(path)).collect()
    }

    /// Carries out, one by one, operations that were accepted without the twin.
    pub(super) fn replay(&mut self, operations: &[Operation]) {
        for operation in operations {
            self.exact &= self.send(std::slice::from_ref(operation)).is_ok();
        }
    }

    /// Notes that others write entries of this object.
    fn share(&mut self, object: Object) {
        self.shared.insert(self.layout.units(object, 1).0);
    }

    fn send(&mut self, operations: &[Operation]) -> Result<(), lanyard_asic::sdk::Refused> {
        // The protocols write groups in VLANs that are snooped, and nowhere else.
        let snooped = |operation: &Operation| match operation {
            Operation::Vlan(_, Some(state)) => state.snooping != [None; 2],
            _ => false,
        };
        if operations.iter().any(snooped) {
            self.share(Object::Ipv4Group);
            self.share(Object::Ipv6Group);
        }
        self.twin.commit(Timestamp::default(), operations, &mut Effects::default()).map(drop)
    }
}

impl Strategy for Model {
    fn name(&self) -> &'static str {
        "predict-model"
    }
    fn admit(&mut self, writes: &[Write]) -> Decision {
        if self.unsure(writes) {
            return Decision::Verify;
        }
        let operations: Vec<Operation> = writes.iter().map(|write| write.operation.clone()).collect();
        match self.send(&operations) {
            Ok(()) => Decision::Accept,
            Err(refused) => Decision::Refuse(refused),
        }
    }
    fn wrote(&mut self, operations: &[Operation]) {
        self.exact &= self.send(operations).is_ok();
    }
    fn distrust(&mut self) {
        self.exact = false;
    }
    fn figures(&mut self, tables: &[Usage]) {
        // Tables that shrink make room for those that grow.
        let own = self.twin.usage();
        let size = |path: &str| own.iter().find(|table| table.path == path).map_or(0, |table| table.size);
        let mut changed: Vec<&Usage> =
            tables.iter().filter(|table| size(&table.path) != table.size).collect();
        changed.sort_by_key(|table| table.size > size(&table.path));
        changed.into_iter().for_each(|table| self.resized(&table.path, table.size));
    }
    fn resized(&mut self, path: &str, units: u32) {
        self.sizes.insert(path.to_owned(), units);
        self.exact &= self.twin.resize(path, units).is_ok();
    }
    fn restarted(&mut self, salt: u64) {
        self.salt = salt;
        self.exact = false;
    }
    fn resync(&mut self, entries: &[Operation]) {
        self.twin = Chip::new(&self.platform, self.salt);
        // Tables that shrink make room for those that grow.
        for _ in 0..2 {
            self.sizes.iter().for_each(|(path, units)| _ = self.twin.resize(path, *units));
        }
        for operation in entries {
            let _ = self.send(std::slice::from_ref(operation));
        }
        self.exact = entries.len() <= 1;
    }
    fn received(&mut self, event: &Event) {
        if matches!(event, Event::Learned(_) | Event::Lost(_)) {
            self.share(Object::Mac);
        }
    }
    fn confidence(&self) -> f64 {
        match (self.exact, self.shared.is_empty()) {
            (true, true) => 1.0,
            (true, false) => 0.95,
            (false, _) => 0.9,
        }
    }
}
