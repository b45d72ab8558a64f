//! The MDB and the ports of multicast routers (`bpf/stages/snoop.h`): finding, writing and reading back entries.
//!
//! Programs read while this process writes, and nothing waits for them. Invariants: an entry's word in the index is written
//! after its row and removed before it; a row is not used again until [`REST`] after its word was removed, and a program
//! that has read the word by then has ended. The ports of an entry change by one store: of the word that differs, or of
//! the index's word, which then names a new row.

use crate::abi::{self, MdbBucket, MdbRow, SnoopVlan};
use crate::tables::{Meta, Tables};
use lanyard_pipeline::state::{Unregistered, VlanState};
use lanyard_pipeline::tables::mdb::{Flooded, MDB_CAPACITY, MdbChange, check};
use lanyard_plane::{PlaneError, TableUsage};
use lanyard_types::{Family, PortId, PortSet, VlanId};
use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

/// How long a row rests: no program runs that long (the kernel reports one that occupies a processor for 21 s as a fault, and
/// one frame takes microseconds).
const REST: Duration = Duration::from_secs(1);

/// An entry's name.
type Key = (VlanId, IpAddr, Option<IpAddr>);

/// The writer of the MDB. There is one at a time.
#[derive(Debug)]
pub(crate) struct Mdb {
    tables: Arc<Tables>,
    rows: BTreeMap<Key, u16>,
    /// The number of entries for sources of each group.
    sources: BTreeMap<(VlanId, IpAddr), u32>,
    free: Vec<u16>,
    /// Rows that rest, and since when.
    resting: VecDeque<(Instant, u16)>,
}

impl Mdb {
    /// Takes over the entries that the tables hold.
    pub(crate) fn open(tables: Arc<Tables>) -> Self {
        let (mut rows, mut sources) = (BTreeMap::new(), BTreeMap::new());
        let mut used = vec![false; abi::MDB_ROWS];
        for bucket in 0..abi::MDB_BUCKETS {
            for way in 0..abi::MDB_WAYS {
                let row = tables.mdb_index.u32(bucket, way * 4).load(Relaxed) as u16;
                let Some(key) = Some(row).filter(|row| *row != 0).and_then(|row| key_of(&tables, row)) else {
                    continue;
                };
                used[usize::from(row)] = true;
                rows.insert(key, row);
                if key.2.is_some() {
                    *sources.entry((key.0, key.1)).or_insert(0) += 1;
                }
            }
        }
        let now = Instant::now();
        let resting = (1..abi::MDB_ROWS).filter(|row| !used[*row]).map(|row| (now, row as u16));
        // A table that holds nothing has never been read.
        let (free, resting) = if rows.is_empty() {
            (resting.map(|(_, row)| row).rev().collect(), VecDeque::new())
        } else {
            (Vec::new(), resting.collect())
        };
        Self { tables, rows, sources, free, resting }
    }

    /// Carries out a change.
    ///
    /// # Errors
    /// [`PlaneError::TableFull`] when a new entry has no room; [`PlaneError::Invalid`] for addresses that no entry has.
    pub(crate) fn change(&mut self, change: &MdbChange) -> Result<(), PlaneError> {
        match change {
            MdbChange::Entry { vlan, group, source, ports } => {
                check(*group, *source)?;
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

    /// The changes that make an empty table equal to this one.
    pub(crate) fn changes(&self) -> Vec<MdbChange> {
        let entry = |((vlan, group, source), row): (&Key, &u16)| MdbChange::Entry {
            vlan: *vlan,
            group: *group,
            source: *source,
            ports: Some(Box::new(port_set(&self.tables.mdb.get(usize::from(*row)).ports))),
        };
        let mut list: Vec<MdbChange> = self.rows.iter().map(entry).collect();
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

    fn insert(&mut self, key: Key, ports: &PortSet) -> Result<(), PlaneError> {
        let place = place(&self.tables, key, None);
        let (Some((bucket, way)), Some(row)) = (place, self.take_row()) else { return Err(self.refuse()) };
        self.write_row(key, row, ports);
        self.set_word(bucket, way, key, row);
        self.rows.insert(key, row);
        if key.2.is_some() {
            let count = self.sources.entry((key.0, key.1)).or_insert(0);
            *count += 1;
            self.write_sources(key);
        }
        self.count_used();
        Ok(())
    }

    fn remove(&mut self, key: Key, row: u16) {
        if let Some((bucket, way)) = place(&self.tables, key, Some(row)) {
            self.tables.mdb_index.u32(bucket, way * 4).store(0, Release);
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

    fn replace(&mut self, key: Key, row: u16, ports: &PortSet) -> Result<(), PlaneError> {
        let held = self.tables.mdb.get(usize::from(row)).ports;
        let differ: Vec<usize> = (0..abi::PORT_WORDS).filter(|at| held[*at] != ports.words()[*at]).collect();
        if let [at] = differ[..] {
            let at = (at, offset_of!(MdbRow, ports) + at * 8);
            self.tables.mdb.u64(row.into(), at.1).store(ports.words()[at.0], Relaxed);
        } else if !differ.is_empty() {
            let next = self.take_row().ok_or_else(|| self.refuse())?;
            self.write_row(key, next, ports);
            if let Some((bucket, way)) = place(&self.tables, key, Some(row)) {
                self.set_word(bucket, way, key, next);
            }
            self.rows.insert(key, next);
            self.resting.push_back((Instant::now(), row));
        }
        Ok(())
    }

    /// A row that no program reads; `None` when all are in use or rest.
    fn take_row(&mut self) -> Option<u16> {
        while self.resting.front().is_some_and(|(since, _)| since.elapsed() >= REST) {
            self.free.extend(self.resting.pop_front().map(|(_, row)| row));
        }
        if self.rows.len() >= MDB_CAPACITY { None } else { self.free.pop() }
    }

    fn write_row(&self, key: Key, row: u16, ports: &PortSet) {
        let wanted = words(key);
        let sources = match key.2 {
            None => self.sources.get(&(key.0, key.1)).copied().unwrap_or(0),
            Some(_) => 0,
        };
        let (group, source) = (wanted.group, wanted.source);
        let row_value = MdbRow { group, source, place: wanted.place, sources, ports: *ports.words() };
        self.tables.mdb.set(row.into(), &row_value);
    }
    /// Writes the number of sources into the row of a source's group, if that has one.
    fn write_sources(&self, (vlan, group, _): Key) {
        if let Some(row) = self.rows.get(&(vlan, group, None)) {
            let count = self.sources.get(&(vlan, group)).copied().unwrap_or(0);
            self.tables.mdb.u32((*row).into(), offset_of!(MdbRow, sources)).store(count, Relaxed);
        }
    }
    fn set_word(&self, bucket: usize, way: usize, key: Key, row: u16) {
        let (_, tag) = hash(self.tables.meta.get(0).salt, key);
        self.tables.mdb_index.u32(bucket, way * 4).store(tag << 16 | u32::from(row), Release);
    }
    fn refuse(&self) -> PlaneError {
        self.tables.meta.u64(0, offset_of!(Meta, mdb_refused)).fetch_add(1, Relaxed);
        PlaneError::TableFull { table: "mdb", size: MDB_CAPACITY as u64 }
    }
    fn count_used(&self) {
        let used = self.rows.len() as u64;
        self.tables.meta.u64(0, offset_of!(Meta, mdb_used)).store(used, Relaxed);
        self.tables.meta.u64(0, offset_of!(Meta, mdb_high_water)).fetch_max(used, Relaxed);
    }
}

/// The occupancy of the MDB, for any thread.
pub(crate) fn usage(tables: &Tables) -> TableUsage {
    let meta = tables.meta.get(0);
    TableUsage {
        name: "mdb",
        size: MDB_CAPACITY as u64,
        used: meta.mdb_used,
        high_water: meta.mdb_high_water,
        refused: meta.mdb_refused,
        bytes: tables.bytes(&["mdb", "mdb_index", "snoop_vlans"]),
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
        tables.snoop_vlans.u8(vlan.index(), at).store(bits, Relaxed);
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
        let (bucket, _) = hash(tables.meta.get(0).salt, key);
        let rows = (0..abi::MDB_WAYS).map(|way| tables.mdb_index.u32(bucket, way * 4).load(Relaxed) as u16);
        rows.into_iter().find(|row| *row != 0 && key_of(tables, *row) == Some(key))
    };
    let Some(any) = find(None) else {
        let limited = config & abi::SNOOP_ROUTERS != 0 && flooded == 0;
        return limited.then(|| port_set(&row.routers[family]));
    };
    let ports = tables.mdb.get(find(Some(source)).unwrap_or(any).into()).ports;
    Some(port_set(&ports).union(&port_set(&row.routers[family])))
}

fn port_set(words: &[u64; abi::PORT_WORDS]) -> PortSet {
    PortId::all().filter(|port| words[port.index() / 64] >> (port.index() % 64) & 1 == 1).collect()
}

/// The bucket and way of an entry's word, or of a free one.
fn place(tables: &Tables, key: Key, row: Option<u16>) -> Option<(usize, usize)> {
    let (bucket, _) = hash(tables.meta.get(0).salt, key);
    let held = |way: &usize| tables.mdb_index.u32(bucket, way * 4).load(Relaxed);
    let way = (0..abi::MDB_WAYS).find(|way| match row {
        Some(row) => held(way) as u16 == row,
        None => held(way) == 0,
    })?;
    Some((bucket, way))
}

/// What a row has of its key.
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
fn key_of(tables: &Tables, row: u16) -> Option<Key> {
    let row = (usize::from(row) < abi::MDB_ROWS).then(|| tables.mdb.get(row.into()))?;
    let vlan = VlanId::new((row.place & (abi::MDB_FAMILY - 1)) as u16)?;
    let family = if row.place & abi::MDB_FAMILY == 0 { Family::V4 } else { Family::V6 };
    let source = (row.place & abi::MDB_SOURCE != 0).then(|| address(row.source, family));
    Some((vlan, address(row.group, family), source))
}

/// The bucket and the tag of a key, as `mdb_find` computes them.
fn hash(salt: u64, key: Key) -> (usize, u32) {
    let Words { group, source, place } = words(key);
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(abi::HASH_A);
        hash ^ hash >> 32
    };
    let words = [place.into(), group[0], group[1], source[0], source[1]];
    let hash = words.into_iter().fold(salt, mix);
    ((hash >> (64 - abi::MDB_BUCKET_BITS)) as usize, (hash >> 32) as u32 & 0xffff)
}

const _: () = assert!(abi::MDB_ROWS <= 1 << 16);
const _: () = assert!(abi::MDB == MDB_CAPACITY && size_of::<MdbBucket>() == 4 * abi::MDB_WAYS);
