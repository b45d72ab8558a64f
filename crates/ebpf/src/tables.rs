//! The maps with their types, opened from a loaded object or from pins. Only this module reads and writes them.
//!
//! Invariant: a [`Tables`] holds every map of [`names`], with the sizes that the headers in `bpf/` define.

use crate::abi::{
    self, AdjacencyRow, FDB_WAYS, FdbBucket, FdbTimes, Global, IfSlot, Line, Port, PortStats, PortVlans, Rif,
    SnoopVlan, TrapGroupRow, Usage, VlanPorts, VlanStats, Watchdog,
};
use crate::acl_layout as acl;
use crate::error::{Doing, Result, system};
use crate::fdb;
use crate::mdb_segments::Segments;
use crate::qos_layout::{QOS_BLOCKS, QOS_CLASSES, Row as QosRow};
use crate::shared::{Shared, map_bytes};
use crate::slots::Slots;
use crate::stages::{self, StageTables};
use lanyard_types::{PortId, VlanId};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The map of programs to which others jump.
pub(crate) const STEPS: &str = "steps";

/// The map that holds the kernel's timers of the watchdogs. Programs alone can read it.
pub(crate) const WATCHDOG_TIMER: &str = "watchdog_timer";

/// The array of the segments of the MDB.
pub(crate) const MDB: &str = "mdb";

/// A map that this crate adds to those of the object. It describes the pins: see [`Meta`].
pub(crate) const META: &str = "ly_meta";

/// A description of the pins, written when they are created and checked when they are found.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
)]
#[repr(C)]
pub(crate) struct Meta {
    /// [`abi::ABI`].
    pub abi: u32,
    /// Buckets of the FDB, a power of two.
    pub buckets: u32,
    /// The salt of the FDB's hash.
    pub salt: u64,
    /// The fingerprint of the object from which the pinned programs were loaded.
    pub object: u64,
    /// The network namespace of the ports: the inode of its nsfs file.
    pub netns: u64,
    /// The generation of the state in the tables. The state file contains the same number.
    pub generation: u64,
    /// 1 while tables are being written; their contents are then between two states.
    pub writing: u64,
    /// The bank to which the FIB's leaves refer: 0 or 1. During a change the word contains more: `routing::PUBLISHING`.
    pub bank: u64,
    /// The slots of routing tables into which an array has been put since the plane was made, one bit each. A later daemon looks
    /// up no others, because each look-up takes long on older kernels (`slots`).
    pub fib_slots: u64,
    /// The last mark of the control plane's protocols (`ProtocolPlane::mark`).
    pub mark: u64,
    /// The entries of the MDB, the largest number so far, and the refused ones.
    pub mdb_used: u64,
    pub mdb_high_water: u64,
    pub mdb_refused: u64,
    /// The same numbers for the bindings of each family.
    pub bindings: [BindingCounts; 2],
}

/// The bindings of a family, the largest number so far, and the refused ones.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
)]
#[repr(C)]
pub(crate) struct BindingCounts {
    pub used: u64,
    pub high_water: u64,
    pub refused: u64,
}

const _: () = assert!(abi::FIB_SLOTS <= u64::BITS as usize, "Meta::fib_slots has a bit for each slot");

/// The bit of a slot in [`Meta::fib_slots`]; `None` if `kind` is not an array of routing tables.
fn fib_bit(kind: &str, slot: u32) -> Option<u64> {
    kind.starts_with("fib_").then(|| 1 << slot)
}

/// The shape of a map, checked so that a pin of another make is refused before it is mapped.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Elements of this size in bytes, and their number; `None` if it is decided when the programs are loaded.
    Elements(usize, Option<usize>),
    /// A section of the object: one element of this size, which has all rows (`ROWS` in `bpf/maps.h`).
    Section(usize),
    /// A ring buffer of any size.
    Ring,
}

/// The maps that this process reads and writes as shared memory: name, row, number of rows. `section` is `ROWS` in
/// `bpf/maps.h`, `array` is `TABLE`.
macro_rules! tables {
    (@shape array $row:ty, $rows:expr) => { Shape::Elements(size_of::<$row>(), Some($rows as usize)) };
    (@shape section $row:ty, $rows:expr) => { Shape::Section(size_of::<$row>() * $rows as usize) };
    ($($(#[$doc:meta])* $place:ident $name:ident: [$row:ty; $rows:expr],)*) => {
        const MAPPED: &[(&str, Shape)] = &[$((stringify!($name), tables!(@shape $place $row, $rows))),*];

        /// Every map.
        #[derive(Debug)]
        pub(crate) struct Tables {
            $($(#[$doc])* pub $name: Shared<$row>,)*
            /// The tables of single stages.
            pub stages: StageTables,
            /// The MDB.
            pub mdb: Segments,
            pub meta: Shared<Meta>,
            slots: Slots,
            /// The buckets of the FDB behind `fdb_near`.
            fdb: Shared<FdbBucket>,
            fdb_times: Shared<FdbTimes>,
            maps: Vec<MapHandle>,
            buckets: u32,
        }

        impl Tables {
            fn open(maps: Vec<MapHandle>, new: bool) -> Result<Self> {
                let find = |name: &str| {
                    let at = names().position(|n| n == name).and_then(|at| maps.get(at));
                    at.ok_or_else(|| system(format!("opening the map {name}"), "it is not there"))
                };
                Ok(Self {
                    $($name: Shared::of(stringify!($name), find(stringify!($name))?, new)?,)*
                    stages: StageTables::open(&find, new)?,
                    mdb: if new { Segments::empty() } else { Segments::open(find(MDB)?)? },
                    slots: Slots::new(new),
                    meta: Shared::of(META, find(META)?, new)?,
                    fdb: Shared::of("fdb", find("fdb")?, new)?,
                    fdb_times: Shared::of("fdb_times", find("fdb_times")?, new)?,
                    buckets: find("fdb_times")?.max_entries(),
                    maps,
                })
            }
        }
    };
}

tables! {
    section if_slots: [IfSlot; abi::IFMAP],
    section ports: [Port; abi::PORTS],
    section channels: [abi::Channel; abi::CHANNELS],
    section port_vlans: [PortVlans; abi::PORTS],
    section shared_vlans: [u64; abi::VLANS],
    array vlan_ports: [VlanPorts; abi::VLANS],
    section global: [Global; 1],
    array fdb_usage: [Usage; abi::USAGES],
    section fdb_near: [FdbBucket; abi::FDB_NEAR],
    /// `ly_fdb_state`: see [`Tables::fdb_masks`].
    section fdb_state: [u64; 1],
    array snoop_vlans: [SnoopVlan; abi::VLANS],
    /// The number of segments of the MDB in use, minus 1.
    section mdb_state: [u64; 1],
    array trap_groups: [TrapGroupRow; abi::GROUPS],
    array trap_reasons: [u64; abi::TRAP_REASONS],
    /// The clocks of the ports' shares, [`abi::trap_port`].
    array trap_ports: [u64; abi::GROUPS * abi::PORTS],
    array lost: [u64; 1],
    section rifs: [Rif; abi::RIFS],
    section vlan_rifs: [u64; abi::VLANS],
    section own_addresses: [u64; abi::OWN_WORDS],
    section nh_groups: [u64; abi::BANKS * abi::BANK_ROWS],
    array nh_buckets: [Line; abi::BANKS * abi::BANK_BUCKETS / 16],
    section adjacencies: [AdjacencyRow; abi::BANKS * abi::BANK_ROWS],
    section watchdog: [Watchdog; abi::WATCHDOGS],
    section acl_ports: [acl::Bindings; abi::PORTS],
    section acl_vlans: [acl::Bindings; abi::VLANS],
    array qos_rows: [QosRow; QOS_BLOCKS * QOS_CLASSES],
    section qos_policies: [u64; 2 * abi::PORTS],
    section guard_vlans: [u64; abi::VLANS],
}

/// The other maps of the object that hold state.
const OTHERS: &[(&str, Shape)] = &[
    ("if_ports", Shape::Elements(4, Some(abi::PORTS))),
    ("fdb", Shape::Elements(size_of::<FdbBucket>(), None)),
    ("fdb_times", Shape::Elements(size_of::<FdbTimes>(), None)),
    ("port_stats", Shape::Elements(size_of::<PortStats>(), Some(abi::PORTS))),
    ("vlan_stats", Shape::Elements(size_of::<VlanStats>(), Some(abi::VLANS))),
    ("fdb_events", Shape::Ring),
    ("traps", Shape::Ring),
    ("samples", Shape::Ring),
    (MDB, Shape::Elements(4, Some(abi::MDB_SEGMENTS))),
    ("xdp_ports", Shape::Elements(4, Some(abi::PORTS))),
    ("xdp_flood", Shape::Elements(8, Some(abi::XDP_FLOOD))),
    (STEPS, Shape::Elements(4, Some(abi::STEPS))),
    ("sub_rifs", Shape::Elements(4, Some(abi::SUB_RIFS))),
    ("bindings", Shape::Elements(8, Some(stages::guard::BINDINGS))),
    ("bindings6", Shape::Elements(8, Some(stages::guard::BINDINGS))),
    ("fib_small", Shape::Elements(4, Some(abi::FIB_SLOTS))),
    ("fib_medium", Shape::Elements(4, Some(abi::FIB_SLOTS))),
    ("fib_large", Shape::Elements(4, Some(abi::FIB_SLOTS))),
    (acl::KINDS[0], Shape::Elements(4, Some(acl::ACLS))),
    (acl::KINDS[1], Shape::Elements(4, Some(acl::ACLS))),
    ("journal", Shape::Elements(size_of::<abi::Journal>(), Some(1))),
    ("journal_bytes", Shape::Elements(abi::JOURNAL_BYTES, Some(abi::JOURNAL_FORMS))),
    (WATCHDOG_TIMER, Shape::Elements(16, Some(abi::WATCHDOGS))),
];

/// Every map that holds state and its shape. [`META`] is last: it is pinned when all others are.
fn shapes() -> impl Iterator<Item = (&'static str, Shape)> {
    let stages = stages::TABLES.iter().map(|t| (t.name, Shape::Elements(t.row, Some(t.rows))));
    let meta = (META, Shape::Elements(size_of::<Meta>(), Some(1)));
    MAPPED.iter().chain(OTHERS).copied().chain(stages).chain([meta])
}

/// Every map that holds state, by its name in `bpf/*.h` and its pin's name; [`META`] is this crate's own.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    shapes().map(|(name, _)| name)
}

impl Tables {
    /// Takes the maps, one for each of [`names`] in that order. `new` is true if this process has made them.
    pub(crate) fn new(maps: Vec<MapHandle>, new: bool) -> Result<Self> {
        for ((name, shape), map) in shapes().zip(&maps) {
            check_shape(name, shape, map)?;
        }
        Self::open(maps, new)
    }

    /// The map with this name, which must be one of [`names`].
    pub(crate) fn map(&self, name: &str) -> &MapHandle {
        let at = names().position(|n| n == name).unwrap_or(0);
        &self.maps[at]
    }
    /// Each map, with its name.
    pub(crate) fn maps(&self) -> impl Iterator<Item = (&'static str, &MapHandle)> {
        names().zip(&self.maps)
    }
    /// False if a slot of the array of arrays `kind` is known to be empty.
    fn may_hold(&self, kind: &'static str, slot: u32) -> bool {
        let is_put = |bit: u64| self.meta.u64(0, offset_of!(Meta, fib_slots)).load(SeqCst) & bit != 0;
        self.slots.may_hold(kind, slot) && fib_bit(kind, slot).is_none_or(is_put)
    }
    /// The number of the map in a slot of the array of arrays `kind`, if there is one.
    pub(crate) fn slot(&self, kind: &'static str, slot: u32) -> Option<u32> {
        if !self.may_hold(kind, slot) {
            return None;
        }
        let id = self.map(kind).lookup(slot.as_bytes(), MapFlags::ANY).ok().flatten()?;
        Some(u32::from_ne_bytes(id.try_into().ok()?))
    }
    /// Puts an array into a slot of `kind`. Returns when no program uses the array that was there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn put_slot(&self, kind: &'static str, slot: u32, array: &MapHandle) -> libbpf_rs::Result<()> {
        self.slots.put(kind, slot);
        if let Some(bit) = fib_bit(kind, slot) {
            // Before the array, so that a daemon that dies in between leaves none in a slot that later daemons take for empty.
            self.meta.u64(0, offset_of!(Meta, fib_slots)).fetch_or(bit, SeqCst);
        }
        let fd = array.as_fd().as_raw_fd() as u32;
        self.map(kind).update(slot.as_bytes(), fd.as_bytes(), MapFlags::ANY)
    }
    /// Empties a slot of `kind`, and waits until no program uses its array.
    pub(crate) fn clear_slot(&self, kind: &'static str, slot: u32) {
        if self.slot(kind, slot).is_some() {
            // The entry existed a moment ago; deleting it fails only if it has been deleted meanwhile.
            let _ = self.map(kind).delete(slot.as_bytes());
        }
    }
    /// The memory of these maps together, in bytes.
    pub(crate) fn bytes(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| map_bytes(self.map(name).as_fd())).sum()
    }
    /// The capacity of the FDB in entries.
    pub(crate) const fn fdb_size(&self) -> u64 {
        self.buckets as u64 * FDB_WAYS as u64
    }

    /// Writes the port of an ifindex: to its slot, or to the hash when another ifindex has the slot.
    pub(crate) fn set_ifindex(&self, ifindex: u32, port: PortId) -> Result<()> {
        let row = (ifindex % abi::IFMAP) as usize;
        let slot = self.if_slots.get(row);
        if slot.ifindex == 0 || slot.ifindex == ifindex {
            self.if_slots.set(row, &IfSlot { ifindex, port: u32::from(port.get()) });
            return Ok(());
        }
        self.map("if_ports")
            .update(ifindex.as_bytes(), u32::from(port.get()).as_bytes(), MapFlags::ANY)
            .doing(|| format!("entering interface {ifindex} into if_ports"))
    }
    /// Removes an ifindex, if it belongs to `port`.
    pub(crate) fn clear_ifindex(&self, ifindex: u32, port: PortId) {
        let row = (ifindex % abi::IFMAP) as usize;
        if self.if_slots.get(row) == (IfSlot { ifindex, port: u32::from(port.get()) }) {
            self.if_slots.set(row, &IfSlot::default());
        }
        let map = self.map("if_ports");
        let held = map.lookup(ifindex.as_bytes(), MapFlags::ANY).ok().flatten();
        if held.as_deref() == Some(u32::from(port.get()).as_bytes()) {
            // It existed a moment ago; if deleting it fails, it has been deleted meanwhile.
            let _ = map.delete(ifindex.as_bytes());
        }
    }

    /// Sets the limit of a usage slot without changing its count.
    pub(crate) fn set_limit(&self, slot: usize, limit: Option<u32>) {
        self.fdb_usage.u32(slot, offset_of!(Usage, limit)).store(limit.unwrap_or(abi::UNLIMITED), Relaxed);
    }
    /// The number of dynamic FDB entries, the highest number so far, and the refusals.
    pub(crate) fn usage_table(&self) -> Usage {
        self.fdb_usage.get(abi::USAGE_TABLE)
    }

    /// A port's statistics, summed over the processors.
    pub(crate) fn port_stats(&self, port: PortId) -> PortStats {
        let mut sum = PortStats::new_zeroed();
        for one in per_cpu::<PortStats>(self.map("port_stats"), port.get().into()) {
            for (total, part) in u64s(&mut sum).iter_mut().zip(one_u64s(&one)) {
                *total = total.wrapping_add(*part);
            }
        }
        sum
    }
    /// A VLAN's statistics, summed over the processors.
    pub(crate) fn vlan_stats(&self, vlan: VlanId) -> VlanStats {
        let mut sum = VlanStats::default();
        for one in per_cpu::<VlanStats>(self.map("vlan_stats"), vlan.get().into()) {
            sum.frames = sum.frames.wrapping_add(one.frames);
            sum.bytes = sum.bytes.wrapping_add(one.bytes);
        }
        sum
    }

    /// The part of the FDB in use, as index masks: the current one, and the previous one while entries are
    /// still being moved.
    pub(crate) fn fdb_masks(&self) -> (u32, u32) {
        let all = self.buckets - 1;
        match self.fdb_state.u64(0, 0).load(Relaxed) {
            0 => (all, all),
            word => ((word as u32).min(all), ((word >> 32) as u32).min(all)),
        }
    }
    /// Makes a new FDB use its near part only.
    pub(crate) fn set_fdb_near(&self) {
        let near = (self.buckets - 1).min(abi::FDB_NEAR - 1);
        self.fdb_state.u64(0, 0).store(u64::from(near) << 32 | u64::from(near), Relaxed);
    }

    /// Visits every key and value of the FDB, in bounded memory.
    pub(crate) fn fdb_walk(&self, visit: &mut dyn FnMut(u64, abi::FdbValue)) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.fdb_part(from, visit);
        }
    }
    /// Visits the keys and values in a few buckets of the FDB, from the bucket `from` on; returns the bucket with which to
    /// continue.
    pub(crate) fn fdb_part(&self, from: u32, visit: &mut dyn FnMut(u64, abi::FdbValue)) -> Option<u32> {
        const PART: u32 = 4096;
        let salt = self.meta.get(0).salt;
        let (now, was) = self.fdb_masks();
        let end = now.max(was) + 1;
        let next = end.min(from.saturating_add(PART));
        for bucket in from..next {
            for way in 0..FDB_WAYS {
                // The programs write an entry's time before the entry.
                let word = self.fdb_way(bucket, way).load(Acquire);
                if word == 0 {
                    continue;
                }
                let updated_s = self.fdb_times.u32(bucket as usize, way * size_of::<u32>()).load(Relaxed);
                if let Some((key, value)) = fdb::entry(salt, bucket, word, updated_s) {
                    visit(key, value);
                }
            }
        }
        Some(next).filter(|next| *next < end)
    }

    /// A way of a bucket of the FDB.
    fn fdb_way(&self, bucket: u32, way: usize) -> &AtomicU64 {
        match bucket.checked_sub(abi::FDB_NEAR) {
            None => self.fdb_near.u64(bucket as usize, way * size_of::<u64>()),
            Some(far) => self.fdb.u64(far as usize, way * size_of::<u64>()),
        }
    }

    /// The whole of `journal[0]`.
    pub(crate) fn journal(&self) -> Result<Box<abi::Journal>> {
        let mut journal = Box::new(abi::Journal::new_zeroed());
        self.map("journal")
            .lookup_into(&0_u32.to_ne_bytes(), journal.as_mut_bytes(), MapFlags::ANY)
            .doing(|| "reading the journal".into())?;
        Ok(journal)
    }
    /// Writes `journal[0]`.
    pub(crate) fn set_journal(&self, journal: &abi::Journal) -> Result<()> {
        self.map("journal")
            .update(&0_u32.to_ne_bytes(), journal.as_bytes(), MapFlags::ANY)
            .doing(|| "writing the journal".into())
    }
    /// `journal_bytes[form]`, of which the first `len` bytes are valid.
    pub(crate) fn journal_bytes(&self, form: usize, len: usize) -> Result<Vec<u8>> {
        let key = u32::try_from(form).unwrap_or(0).to_ne_bytes();
        let found = self
            .map("journal_bytes")
            .lookup(&key, MapFlags::ANY)
            .doing(|| "reading the journal's frame".into())?;
        let mut bytes = found.unwrap_or_default();
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// Runs a syscall program with the context `call`, which it may change. `T` is the context that bpf/abi.h names for the program.
pub(crate) fn run_call<T: FromBytes + IntoBytes>(program: impl AsFd, call: &mut T) -> io::Result<()> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: (&raw mut *call).cast(),
        ctx_size_in: size_of::<T>() as u32,
        ..Default::default()
    };
    // SAFETY: the context is a live T, whose size is passed and which may have any bytes; the kernel copies it in and back,
    // and refuses a context that is shorter than what the program accesses.
    let answer = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut opts) };
    crate::error::check(answer).map(drop)
}

/// The values of all processors; empty when the map cannot be read.
fn per_cpu<T: FromBytes>(map: &MapHandle, key: u32) -> Vec<T> {
    let values = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
    values.iter().filter_map(|value| T::read_from_bytes(value).ok()).collect()
}

fn u64s(stats: &mut PortStats) -> &mut [u64] {
    <[u64]>::mut_from_bytes(stats.as_mut_bytes()).unwrap_or_default()
}

fn one_u64s(stats: &PortStats) -> &[u64] {
    <[u64]>::ref_from_bytes(stats.as_bytes()).unwrap_or_default()
}

fn check_shape(name: &str, shape: Shape, map: &MapHandle) -> Result<()> {
    let (value, entries) = match shape {
        Shape::Elements(value, entries) => (value, entries.unwrap_or(map.max_entries() as usize)),
        Shape::Section(bytes) => (bytes, 1),
        Shape::Ring => return Ok(()),
    };
    if map.value_size() as usize == value && map.max_entries() as usize == entries {
        return Ok(());
    }
    let found = format!("{} x {} bytes instead of {entries} x {value}", map.max_entries(), map.value_size());
    Err(system(format!("opening the map {name}"), found))
}
