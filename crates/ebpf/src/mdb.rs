//! The MDB and the ports of multicast routers (`bpf/stages/snoop.h`): finding, writing and reading back entries.
//!
//! Programs read while this process writes, and nothing waits for them. Invariants: an entry's word in the index is written
//! after its row and removed before it; a row is not used again until [`REST`] after its word was removed, and a program
//! that has read the word by then has ended. The ports of an entry change by one store: of the word that differs, or of
//! the index's word, which then names a new row.
//!
//! The table begins with [`FIRST_SEGMENTS`] and doubles when it is half full, at most once in [`REST`]. A thread makes the new
//! segments, because the kernel waits for grace periods meanwhile ([`crate::mdb_segments`]); then the writer copies the entries
//! that belong there, lets the programs use them by one store, and removes the old copies after [`REST`]. A program that has read
//! the number of segments before the store finds the old copies, and every other one the new copies.

use crate::abi::{self, MdbBucket, MdbRow, SnoopVlan};
use crate::error::{Result, system};
use crate::mdb_segments::Segment;
use crate::tables::{MDB, Meta, Tables};
use lanyard_pipeline::state::{Unregistered, VlanState};
use lanyard_pipeline::tables::mdb::{Flooded, MDB_CAPACITY, MdbChange, check};
use lanyard_plane::{PlaneError, TableUsage};
use lanyard_types::{Family, PortSet, VlanId};
use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How long a freed row is quarantined: no program runs that long (the kernel reports one that occupies a processor for 21 s as a
/// fault, and one frame takes microseconds).
const REST: Duration = Duration::from_secs(1);

/// The segments of an empty table.
const FIRST_SEGMENTS: usize = 2;

/// The time between a failed enlargement and the next attempt.
const GROW_AGAIN: Duration = Duration::from_secs(10);

/// The key of an entry: VLAN, group, and source (`None`: any source).
type Key = (VlanId, IpAddr, Option<IpAddr>);

/// A row: its segment, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    segment: usize,
    row: u16,
}

/// The place of an entry's word in the index, and the tag that the word has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    segment: usize,
    bucket: usize,
    tag: u32,
}

/// The enlargement of the table.
#[derive(Debug)]
enum Growth {
    /// None is under way.
    Idle,
    /// A thread creates the missing ones of this many segments, and then sends the result.
    Making(usize, Receiver<Result<()>>),
    /// The last enlargement failed at this time, with this error.
    Failed(Instant, PlaneError),
}

/// The writer of the MDB. There is one at a time.
#[derive(Debug)]
pub(crate) struct Mdb {
    tables: Arc<Tables>,
    rows: BTreeMap<Key, Row>,
    /// The number of entries for sources of each group.
    sources: BTreeMap<(VlanId, IpAddr), u32>,
    /// The free rows of each segment in use.
    free: Vec<Vec<u16>>,
    /// The quarantined rows, and since when.
    resting: VecDeque<(Instant, Row)>,
    /// Old copies of entries that have moved to other segments: since when, bucket and row.
    moved: VecDeque<(Instant, usize, Row)>,
    growth: Growth,
}

impl Mdb {
    /// Takes over the entries that the tables hold.
    ///
    /// # Errors
    /// When the segments of a new table cannot be made.
    pub(crate) fn open(tables: Arc<Tables>) -> Result<Self> {
        let segments = segments(&tables).max(FIRST_SEGMENTS);
        tables.mdb.create(tables.map(MDB), segments)?;
        tables.mdb_state.u64(0, 0).store(segments as u64 - 1, Release);
        let mut mdb = Self {
            tables,
            rows: BTreeMap::new(),
            sources: BTreeMap::new(),
            free: Vec::new(),
            resting: VecDeque::new(),
            moved: VecDeque::new(),
            growth: Growth::Idle,
        };
        for segment in 0..segments {
            mdb.adopt(segment);
        }
        // A process that ended while it enlarged the table has left copies that no program has read.
        for unused in (segments..abi::MDB_SEGMENTS).filter_map(|number| mdb.tables.mdb.get(number)) {
            (0..abi::MDB_BUCKETS).for_each(|bucket| unused.index.set(bucket, &MdbBucket::default()));
        }
        Ok(mdb)
    }

    /// Takes over a segment in use.
    fn adopt(&mut self, segment: usize) {
        let (now, mut used) = (Instant::now(), vec![false; abi::MDB_ROWS]);
        for (bucket, way) in
            (0..abi::MDB_BUCKETS).flat_map(|bucket| (0..abi::MDB_WAYS).map(move |way| (bucket, way)))
        {
            let Some(held) = self.tables.mdb.get(segment) else { return };
            let row = Row { segment, row: row_of(held.index.u32(bucket, way * 4).load(Relaxed)) };
            let Some(key) = Some(row).filter(|row| row.row != 0).and_then(|row| key_of(&self.tables, row))
            else {
                continue;
            };
            used[usize::from(row.row)] = true;
            if place(&self.tables, key).segment != segment {
                self.moved.push_back((now, bucket, row));
                continue;
            }
            self.rows.insert(key, row);
            if key.2.is_some() {
                *self.sources.entry((key.0, key.1)).or_insert(0) += 1;
            }
        }
        // A row that has been written may have had an entry a moment ago, which a program still reads.
        let Some(written) = self.tables.mdb.get(segment).map(Segment::written) else { return };
        let unused = (1..abi::MDB_ROWS).rev().filter(|row| !used[*row]).map(|row| row as u16);
        let (resting, free): (Vec<u16>, Vec<u16>) = unused.partition(|row| written[usize::from(*row)]);
        self.free.push(free);
        self.resting.extend(resting.into_iter().map(|row| (now, Row { segment, row })));
    }

    /// Carries out a change.
    ///
    /// # Errors
    /// [`PlaneError::TableFull`] when a new entry has no room, [`PlaneError::Growing`] when it will have room soon;
    /// [`PlaneError::Invalid`] for addresses that no entry has.
    pub(crate) fn change(&mut self, change: &MdbChange) -> Result<()> {
        match change {
            MdbChange::Entry { vlan, group, source, ports } => {
                check(*group, *source)?;
                self.reclaim();
                let key = (*vlan, *group, *source);
                match (ports, self.rows.get(&key).copied()) {
                    (None, None) => {}
                    (None, Some(row)) => self.remove(key, row),
                    (Some(ports), None) => self.insert(key, ports)?,
                    (Some(ports), Some(row)) => self.replace(key, row, ports)?,
                }
            }
            MdbChange::Routers { vlan, family, ports } => {
                let at = offset_of!(SnoopVlan, routers) + family.index() * 8 * abi::PORT_WORDS;
                for (word, bits) in ports.words().iter().enumerate() {
                    self.tables.snoop_vlans.u64(vlan.index(), at + word * 8).store(*bits, Relaxed);
                }
            }
            MdbChange::Flood { vlan, family, flooded } => {
                let at = offset_of!(SnoopVlan, flooded) + family.index();
                self.tables.snoop_vlans.u8(vlan.index(), at).store(*flooded as u8, Relaxed);
            }
        }
        Ok(())
    }

    /// The number of rows that new entries can take now.
    #[cfg(test)]
    pub(crate) fn free_rows(&self) -> usize {
        self.free.iter().map(Vec::len).sum()
    }

    /// The changes that make an empty table equal to this one.
    pub(crate) fn changes(&self) -> Vec<MdbChange> {
        let entry = |((vlan, group, source), row): (&Key, &Row)| {
            let ports = Some(Box::new(port_set(&row_value(&self.tables, *row)?.ports)));
            Some(MdbChange::Entry { vlan: *vlan, group: *group, source: *source, ports })
        };
        let mut list: Vec<MdbChange> = self.rows.iter().filter_map(entry).collect();
        for vlan in VlanId::all() {
            let row = self.tables.snoop_vlans.get(vlan.index());
            for family in Family::ALL {
                let ports = port_set(&row.routers[family.index()]);
                if !ports.is_empty() {
                    list.push(MdbChange::Routers { vlan, family, ports: Box::new(ports) });
                }
                let flooded = match row.flooded[family.index()] {
                    0 => continue,
                    1 => Flooded::Unregistered,
                    _ => Flooded::All,
                };
                list.push(MdbChange::Flood { vlan, family, flooded });
            }
        }
        list
    }

    fn insert(&mut self, key: Key, ports: &PortSet) -> Result<()> {
        self.grow();
        let place = place(&self.tables, key);
        if self.rows.len() >= self.free.len() * abi::MDB_SEGMENT {
            return Err(self.refuse());
        }
        let (Some(way), Some(row)) = (self.way(place, None), self.take_row(place.segment)) else {
            return Err(self.refuse());
        };
        self.write_row(key, row, ports);
        self.set_word(place, way, row);
        self.rows.insert(key, row);
        if key.2.is_some() {
            let count = self.sources.entry((key.0, key.1)).or_insert(0);
            *count += 1;
            self.write_sources(key);
        }
        self.count_used();
        Ok(())
    }

    fn remove(&mut self, key: Key, row: Row) {
        let place = place(&self.tables, key);
        if let Some(way) = self.way(place, Some(row)) {
            self.clear_word(place.segment, place.bucket, way);
        }
        self.rows.remove(&key);
        if key.2.is_some()
            && let Some(count) = self.sources.get_mut(&(key.0, key.1))
        {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&(key.0, key.1));
            }
            self.write_sources(key);
        }
        self.resting.push_back((Instant::now(), row));
        self.count_used();
    }

    fn replace(&mut self, key: Key, row: Row, ports: &PortSet) -> Result<()> {
        let Some(segment) = self.tables.mdb.get(row.segment) else { return Ok(()) };
        let held = segment.rows.get(row.row.into()).ports;
        let differ: Vec<usize> = (0..abi::PORT_WORDS).filter(|at| held[*at] != ports.words()[*at]).collect();
        if let [at] = differ[..] {
            let offset = offset_of!(MdbRow, ports) + at * 8;
            segment.rows.u64(row.row.into(), offset).store(ports.words()[at], Relaxed);
        } else if !differ.is_empty() {
            let next = self.take_row(row.segment).ok_or_else(|| self.refuse())?;
            self.write_row(key, next, ports);
            let place = place(&self.tables, key);
            if let Some(way) = self.way(place, Some(row)) {
                self.set_word(place, way, next);
            }
            self.rows.insert(key, next);
            self.resting.push_back((Instant::now(), row));
        }
        Ok(())
    }

    /// Begins to enlarge a table that is half full, and completes what has been begun.
    fn grow(&mut self) {
        let segments = self.free.len();
        match &self.growth {
            Growth::Making(wanted, made) => match made.try_recv() {
                Ok(Ok(())) => {
                    let wanted = *wanted;
                    self.growth = Growth::Idle;
                    self.spread(wanted);
                }
                Ok(Err(cause)) => self.growth = Growth::Failed(Instant::now(), cause),
                Err(TryRecvError::Disconnected) => {
                    let ended = system("enlarging the MDB", "the thread ended");
                    self.growth = Growth::Failed(Instant::now(), ended);
                }
                Err(TryRecvError::Empty) => {}
            },
            Growth::Failed(since, _) if since.elapsed() < GROW_AGAIN => {}
            Growth::Idle | Growth::Failed(..) => {
                let half_full = self.rows.len() * 2 >= segments * abi::MDB_SEGMENT;
                // Old copies occupy up to half of a segment, so the next ones wait until these are gone.
                if half_full && segments < abi::MDB_SEGMENTS && self.moved.is_empty() {
                    self.growth = make(self.tables.clone(), segments * 2);
                }
            }
        }
    }

    /// Lets the programs use this many segments, twice as many as before. All of them exist.
    fn spread(&mut self, segments: usize) {
        let now = Instant::now();
        let all = (1..abi::MDB_ROWS as u16).rev();
        self.free.resize_with(segments, || all.clone().collect());
        let entries: Vec<(Key, Row)> = self.rows.iter().map(|(key, row)| (*key, *row)).collect();
        for (key, row) in entries {
            let before = place(&self.tables, key);
            let after = place_among(&self.tables, key, segments);
            if after.segment == before.segment {
                continue;
            }
            let Some(copy) = self.copy(row, after) else { continue };
            self.rows.insert(key, copy);
            self.moved.push_back((now, before.bucket, row));
        }
        self.tables.mdb_state.u64(0, 0).store(segments as u64 - 1, Release);
    }

    /// Copies an entry into a segment that the programs do not use yet. It holds no more than the entry's own segment did,
    /// and the entries of a bucket come from one bucket, so there is room.
    fn copy(&mut self, row: Row, to: Place) -> Option<Row> {
        let value = self.tables.mdb.get(row.segment)?.rows.get(row.row.into());
        let copy = Row { segment: to.segment, row: self.free.get_mut(to.segment)?.pop()? };
        self.tables.mdb.get(to.segment)?.rows.set(copy.row.into(), &value);
        self.set_word(to, self.way(to, None)?, copy);
        Some(copy)
    }

    /// A row of a segment that no program reads; `None` if all are in use or quarantined.
    fn take_row(&mut self, segment: usize) -> Option<Row> {
        Some(Row { segment, row: self.free.get_mut(segment)?.pop()? })
    }

    /// Removes old copies of moved entries and frees quarantined rows, after [`REST`].
    fn reclaim(&mut self) {
        while self.moved.front().is_some_and(|(since, ..)| since.elapsed() >= REST) {
            let Some((_, bucket, row)) = self.moved.pop_front() else { break };
            let place = Place { segment: row.segment, bucket, tag: 0 };
            if let Some(way) = self.way(place, Some(row)) {
                self.clear_word(row.segment, bucket, way);
            }
            // No program has looked for this copy since it was replaced.
            self.free[row.segment].push(row.row);
        }
        while self.resting.front().is_some_and(|(since, _)| since.elapsed() >= REST) {
            let Some((_, row)) = self.resting.pop_front() else { break };
            self.free[row.segment].push(row.row);
        }
    }

    fn write_row(&self, key: Key, row: Row, ports: &PortSet) {
        let wanted = words(key);
        let sources = match key.2 {
            None => self.sources.get(&(key.0, key.1)).copied().unwrap_or(0),
            Some(_) => 0,
        };
        let (group, source) = (wanted.group, wanted.source);
        let row_value = MdbRow { group, source, place: wanted.place, sources, ports: *ports.words() };
        if let Some(segment) = self.tables.mdb.get(row.segment) {
            segment.rows.set(row.row.into(), &row_value);
        }
    }
    /// Writes the number of sources into the row of a source's group, if that has one.
    fn write_sources(&self, (vlan, group, _): Key) {
        if let Some(row) = self.rows.get(&(vlan, group, None))
            && let Some(segment) = self.tables.mdb.get(row.segment)
        {
            let count = self.sources.get(&(vlan, group)).copied().unwrap_or(0);
            segment.rows.u32(row.row.into(), offset_of!(MdbRow, sources)).store(count, Relaxed);
        }
    }
    /// The way of a bucket that names `row`; for `None`, a free way.
    fn way(&self, place: Place, row: Option<Row>) -> Option<usize> {
        let segment = self.tables.mdb.get(place.segment)?;
        let held = |way: &usize| segment.index.u32(place.bucket, way * 4).load(Relaxed);
        (0..abi::MDB_WAYS).find(|way| match row {
            Some(row) => row_of(held(way)) == row.row,
            None => held(way) == 0,
        })
    }
    fn set_word(&self, place: Place, way: usize, row: Row) {
        if let Some(segment) = self.tables.mdb.get(place.segment) {
            segment.index.u32(place.bucket, way * 4).store(place.tag << 16 | u32::from(row.row), Release);
        }
    }
    fn clear_word(&self, segment: usize, bucket: usize, way: usize) {
        if let Some(segment) = self.tables.mdb.get(segment) {
            segment.index.u32(bucket, way * 4).store(0, Release);
        }
    }
    /// The reason why an entry has no room.
    fn refuse(&self) -> PlaneError {
        let growing = self.free.len() < abi::MDB_SEGMENTS && !self.moved.is_empty();
        if growing || matches!(self.growth, Growth::Making(..)) {
            return PlaneError::Growing { table: MDB };
        }
        self.tables.meta.u64(0, offset_of!(Meta, mdb_refused)).fetch_add(1, Relaxed);
        match &self.growth {
            Growth::Failed(_, cause) => cause.clone(),
            _ => full(),
        }
    }
    fn count_used(&self) {
        let used = self.rows.len() as u64;
        self.tables.meta.u64(0, offset_of!(Meta, mdb_used)).store(used, Relaxed);
        self.tables.meta.u64(0, offset_of!(Meta, mdb_high_water)).fetch_max(used, Relaxed);
    }
}

/// Makes segments on a thread of its own: the caller must not wait for the kernel's grace periods.
fn make(tables: Arc<Tables>, segments: usize) -> Growth {
    let (done, made) = channel();
    let work = move || {
        let outcome = tables.mdb.create(tables.map(MDB), segments);
        // Sending fails if the writer has been dropped.
        let _ = done.send(outcome);
    };
    match std::thread::Builder::new().name("mdb".into()).spawn(work) {
        Ok(_) => Growth::Making(segments, made),
        Err(cause) => {
            Growth::Failed(Instant::now(), system("starting the thread that enlarges the MDB", cause))
        }
    }
}

const fn full() -> PlaneError {
    PlaneError::TableFull { table: MDB, size: MDB_CAPACITY as u64 }
}

/// The occupancy of the MDB, for any thread.
pub(crate) fn usage(tables: &Tables) -> TableUsage {
    let meta = tables.meta.get(0);
    TableUsage {
        name: MDB,
        size: MDB_CAPACITY as u64,
        used: meta.mdb_used,
        high_water: meta.mdb_high_water,
        refused: meta.mdb_refused,
        bytes: tables.mdb.bytes() + tables.bytes(&["snoop_vlans"]),
        shared_with: Vec::new(),
    }
}

/// `snoop_vlans[vlan].config`.
pub(crate) fn write_config(tables: &Tables, vlan: VlanId, state: Option<&VlanState>) {
    let snooping = state.map(|state| state.snooping).unwrap_or_default();
    for (family, config) in Family::ALL.into_iter().zip(snooping) {
        let bits = match config {
            None => 0,
            Some(Unregistered::Flood) => abi::SNOOP_ON,
            Some(Unregistered::Routers) => abi::SNOOP_ON | abi::SNOOP_ROUTERS,
        };
        let at = offset_of!(SnoopVlan, config) + family.index();
        if bits != 0 || !tables.snoop_vlans.is_blank(vlan.index()) {
            tables.snoop_vlans.u8(vlan.index(), at).store(bits, Relaxed);
        }
    }
}

/// The ports to which the tables limit a packet of a group; `None`: all. Used to describe a dry run.
pub(crate) fn members(tables: &Tables, vlan: VlanId, group: IpAddr, source: IpAddr) -> Option<PortSet> {
    let row = tables.snoop_vlans.get(vlan.index());
    let family = Family::of(group).index();
    let (config, flooded) = (row.config[family], row.flooded[family]);
    let stopped = tables.watchdog.get(abi::WATCHDOG_SNOOPING.into()).phase != abi::WATCHDOG_WAITS;
    if config & abi::SNOOP_ON == 0 || flooded == Flooded::All as u8 || stopped {
        return None;
    }
    let find = |source| {
        let key = (vlan, group, source);
        let place = place(tables, key);
        let index = &tables.mdb.get(place.segment)?.index;
        let rows = (0..abi::MDB_WAYS).map(|way| row_of(index.u32(place.bucket, way * 4).load(Relaxed)));
        let mut rows = rows.map(|row| Row { segment: place.segment, row });
        rows.find(|row| row.row != 0 && key_of(tables, *row) == Some(key))
    };
    let Some(any) = find(None) else {
        let limited = config & abi::SNOOP_ROUTERS != 0 && flooded == 0;
        return limited.then(|| port_set(&row.routers[family]));
    };
    let ports = row_value(tables, find(Some(source)).unwrap_or(any))?.ports;
    Some(port_set(&ports).union(&port_set(&row.routers[family])))
}

fn port_set(words: &[u64; abi::PORT_WORDS]) -> PortSet {
    PortSet::from_words(*words)
}

/// The number of segments in use.
fn segments(tables: &Tables) -> usize {
    tables.mdb_state.u64(0, 0).load(Relaxed) as usize % abi::MDB_SEGMENTS + 1
}

/// The row that a word of the index names; 0: none.
const fn row_of(word: u32) -> u16 {
    word as u16
}

fn row_value(tables: &Tables, row: Row) -> Option<MdbRow> {
    let rows = &tables.mdb.get(row.segment)?.rows;
    (usize::from(row.row) < abi::MDB_ROWS).then(|| rows.get(row.row.into()))
}

/// An entry's key, in the form in which a row contains it.
struct Words {
    group: [u64; 2],
    source: [u64; 2],
    place: u32,
}

fn words((vlan, group, source): Key) -> Words {
    let family = if Family::of(group) == Family::V6 { abi::MDB_FAMILY } else { 0 };
    let one = if source.is_some() { abi::MDB_SOURCE } else { 0 };
    Words {
        group: address_words(group),
        source: source.map_or([0; 2], address_words),
        place: u32::from(vlan.get()) | family | one,
    }
}

fn address_words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [u32::from_le_bytes(address.octets()).into(), 0],
        IpAddr::V6(address) => {
            let all = u128::from_le_bytes(address.octets());
            [all as u64, (all >> 64) as u64]
        }
    }
}

fn address([low, high]: [u64; 2], family: Family) -> IpAddr {
    match family {
        Family::V4 => (low as u32).to_le_bytes().into(),
        Family::V6 => (u128::from(low) | u128::from(high) << 64).to_le_bytes().into(),
    }
}

/// The key of a row; `None` for a free one.
fn key_of(tables: &Tables, row: Row) -> Option<Key> {
    let row = row_value(tables, row)?;
    let vlan = VlanId::new((row.place & (abi::MDB_FAMILY - 1)) as u16)?;
    let family = if row.place & abi::MDB_FAMILY == 0 { Family::V4 } else { Family::V6 };
    let source = (row.place & abi::MDB_SOURCE != 0).then(|| address(row.source, family));
    Some((vlan, address(row.group, family), source))
}

/// The place of a key in the segments in use, as `mdb_find` computes it.
fn place(tables: &Tables, key: Key) -> Place {
    place_among(tables, key, segments(tables))
}

/// The place of a key in this many segments, a power of two.
fn place_among(tables: &Tables, key: Key, segments: usize) -> Place {
    let Words { group, source, place } = words(key);
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(abi::HASH_A);
        hash ^ hash >> 32
    };
    let words = [place.into(), group[0], group[1], source[0], source[1]];
    let hash = words.into_iter().fold(tables.meta.u64(0, offset_of!(Meta, salt)).load(Relaxed), mix);
    Place {
        segment: (hash >> 48) as usize & (segments - 1),
        bucket: (hash >> (64 - abi::MDB_BUCKET_BITS)) as usize,
        tag: (hash >> 32) as u32 & 0xffff,
    }
}

const _: () = assert!(abi::MDB_ROWS <= 1 << 16 && abi::MDB_SEGMENTS.is_power_of_two());
const _: () = assert!(abi::MDB_ROWS == 1 << abi::MDB_ROW_BITS && abi::MDB_ROWS > abi::MDB_SEGMENT);
const _: () = assert!(abi::MDB == MDB_CAPACITY && size_of::<MdbBucket>() == 4 * abi::MDB_WAYS);
