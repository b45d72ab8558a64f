//! The forwarding database (FDB; IEEE 802.1Q-2018, 8.8): maps an address of a VLAN to the port where it was seen.
//!
//! One hash table under a salted hash holds dynamic and control-plane entries, at most one for each key. When a
//! limit is reached, a new address is refused and counted, and existing entries stay: a host that invents
//! addresses cannot displace others, and frames to its addresses are flooded.
//!
//! Invariant: the counts of dynamic entries (total, per port, per VLAN) are those of the table, and a
//! control-plane entry changes only by [`Fdb::set`].

use crate::Timestamp;
use crate::state::FdbTarget;
use lanyard_types::{MAX_PORTS, MAX_VLANS, MacAddr, PortId, VlanId};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// One FDB entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdbEntry {
    /// The VLAN.
    pub vlan: VlanId,
    /// The address.
    pub mac: MacAddr,
    /// The port; `None` for an entry that drops.
    pub port: Option<PortId>,
    /// The kind of entry.
    pub kind: FdbKind,
    /// Seconds since a frame from the address was last seen; 0 for entries that do not age.
    pub age_s: u32,
}

/// The kind of an FDB entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FdbKind {
    /// Learned, and ages out.
    Dynamic = 1,
    /// Configured.
    Static = 2,
    /// Learned, and does not age.
    Sticky = 3,
    /// An address of the switch itself.
    SelfAddress = 4,
}

impl FdbKind {
    /// The keyword used in text and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Static => "static",
            Self::Sticky => "sticky",
            Self::SelfAddress => "self",
        }
    }
}

/// Selects FDB entries; every field that is set must match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FdbFilter {
    /// Only this VLAN.
    pub vlan: Option<VlanId>,
    /// Only this port.
    pub port: Option<PortId>,
    /// Only this address.
    pub mac: Option<MacAddr>,
    /// Only this kind.
    pub kind: Option<FdbKind>,
}

impl FdbFilter {
    /// True when `entry` matches.
    #[must_use]
    pub fn matches(&self, entry: &FdbEntry) -> bool {
        self.vlan.is_none_or(|vlan| vlan == entry.vlan)
            && self.port.is_none_or(|port| Some(port) == entry.port)
            && self.mac.is_none_or(|mac| mac == entry.mac)
            && self.kind.is_none_or(|kind| kind == entry.kind)
    }
}

/// The result of a sweep of the FDB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweep {
    /// The number of entries that aged out.
    pub aged: u64,
    /// Seconds until the next dynamic entry expires if no frame refreshes it; `None` when there is none.
    pub next_in_s: Option<u32>,
}

/// A change to a dynamic entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdbEvent {
    /// Learned.
    Added(FdbEntry),
    /// Moved to another port.
    Moved {
        /// The entry with its new port.
        entry: FdbEntry,
        /// The port it was at before.
        from: PortId,
    },
    /// Aged out.
    Aged(FdbEntry),
    /// Flushed, replaced by a control-plane entry, or removed with its port or VLAN.
    Deleted(FdbEntry),
}

/// The result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The port; `None` for an entry that drops.
    pub port: Option<PortId>,
    /// The kind of entry.
    pub kind: FdbKind,
    /// When a frame from the address was last seen, in whole seconds of the pipeline's clock.
    pub updated_s: u32,
}

/// The limit that refuses a further dynamic entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The table's own.
    Table,
    /// The port's.
    Port,
    /// The VLAN's.
    Vlan,
}

impl Limit {
    /// The keyword used in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Port => "port",
            Self::Vlan => "VLAN",
        }
    }
}

/// Frames whose source was not learned, by the first limit that was reached, in the order table, port, VLAN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The table's limit.
    pub table: u64,
    /// A port's limit.
    pub port: u64,
    /// A VLAN's limit.
    pub vlan: u64,
}

/// The salted hash: the finaliser of splitmix64 over key and salt.
#[derive(Debug, Clone, Copy)]
struct Salt(u64);

/// See [`Salt`].
struct SaltedHasher(u64);

impl BuildHasher for Salt {
    type Hasher = SaltedHasher;
    fn build_hasher(&self) -> SaltedHasher {
        SaltedHasher(self.0)
    }
}

impl Hasher for SaltedHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, value: u64) {
        let mut z = (value ^ self.0).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = (z ^ (z >> 31)).wrapping_add(self.0.rotate_left(17));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The number of shards; a power of two.
const SHARDS: usize = 64;

/// The entries in several maps, so that a walk can stop between two of them and continue later. A map of the standard
/// library has no place at which to continue.
#[derive(Debug)]
struct Shards([HashMap<u64, Found, Salt>; SHARDS]);

impl Shards {
    fn new(salt: u64) -> Self {
        Self(std::array::from_fn(|_| HashMap::with_hasher(Salt(salt))))
    }
    /// The index of the shard of a key. A host that chooses addresses of a single shard makes one part of a walk longer, and
    /// nothing else.
    const fn at(key: u64) -> usize {
        (key ^ key >> 12 ^ key >> 24 ^ key >> 48) as usize % SHARDS
    }
    fn of(&self, key: u64) -> &HashMap<u64, Found, Salt> {
        &self.0[Self::at(key)]
    }
    fn of_mut(&mut self, key: u64) -> &mut HashMap<u64, Found, Salt> {
        &mut self.0[Self::at(key)]
    }
}

/// The forwarding database.
#[derive(Debug)]
pub struct Fdb {
    entries: Shards,
    dynamic: u64,
    per_port: Vec<u32>,
    per_vlan: Vec<u32>,
    high_water: u64,
    refusals: Refusals,
}

impl Fdb {
    /// An empty table.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self {
            entries: Shards::new(salt),
            dynamic: 0,
            per_port: vec![0; MAX_PORTS],
            per_vlan: vec![0; MAX_VLANS],
            high_water: 0,
            refusals: Refusals::default(),
        }
    }
    /// Looks an address up.
    #[must_use]
    pub fn get(&self, vlan: VlanId, mac: MacAddr) -> Option<Found> {
        let key = key(vlan, mac);
        self.entries.of(key).get(&key).copied()
    }
    /// The number of entries of every kind.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.0.iter().map(HashMap::len).sum::<usize>() as u64
    }
    /// True when it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.0.iter().all(HashMap::is_empty)
    }
    /// The number of dynamic entries.
    #[must_use]
    pub fn dynamic(&self) -> u64 {
        self.dynamic
    }
    /// The number of dynamic entries at a port.
    #[must_use]
    pub fn dynamic_at(&self, port: PortId) -> u32 {
        self.per_port[port.index()]
    }
    /// The number of dynamic entries in a VLAN.
    #[must_use]
    pub fn dynamic_in(&self, vlan: VlanId) -> u32 {
        self.per_vlan[vlan.index()]
    }
    /// The largest number of entries of every kind that the table has held.
    #[must_use]
    pub fn high_water(&self) -> u64 {
        self.high_water
    }
    /// The sources that were not learned because a limit was reached.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }
    /// The memory of the table in bytes, estimated from its slots and their control bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let slots: usize = self.entries.0.iter().map(HashMap::capacity).sum();
        (slots * (size_of::<(u64, Found)>() + 1)) as u64
    }

    /// Learns an address that is not in the table, or moves or refreshes a dynamic one.
    pub(crate) fn learn(
        &mut self,
        vlan: VlanId,
        mac: MacAddr,
        port: PortId,
        now: Timestamp,
    ) -> Option<FdbEvent> {
        let entry = FdbEntry { vlan, mac, port: Some(port), kind: FdbKind::Dynamic, age_s: 0 };
        let found = Found { port: Some(port), kind: FdbKind::Dynamic, updated_s: now.as_secs() };
        let key = key(vlan, mac);
        let was = self.entries.of_mut(key).insert(key, found);
        debug_assert!(was.is_none_or(|was| was.kind == FdbKind::Dynamic));
        if let Some(from) = was.and_then(|was| was.port) {
            if from == port {
                return None;
            }
            self.per_port[from.index()] -= 1;
            self.per_port[port.index()] += 1;
            return Some(FdbEvent::Moved { entry, from });
        }
        self.count_added(vlan, port);
        Some(FdbEvent::Added(entry))
    }
    /// Counts a source that a limit refused.
    pub(crate) fn refuse(&mut self, limit: Limit) {
        match limit {
            Limit::Table => self.refusals.table += 1,
            Limit::Port => self.refusals.port += 1,
            Limit::Vlan => self.refusals.vlan += 1,
        }
    }
    /// Sets or removes a control-plane entry; it replaces a dynamic entry with the same key.
    pub fn set(
        &mut self,
        vlan: VlanId,
        mac: MacAddr,
        target: Option<FdbTarget>,
        now: Timestamp,
        on: &mut dyn FnMut(FdbEvent),
    ) {
        let (key, was) = (key(vlan, mac), self.get(vlan, mac));
        let was_dynamic = was.is_some_and(|was| was.kind == FdbKind::Dynamic);
        let Some(target) = target else {
            if !was_dynamic {
                self.entries.of_mut(key).remove(&key);
            }
            return;
        };
        if was_dynamic {
            let one = FdbFilter { vlan: Some(vlan), mac: Some(mac), ..FdbFilter::default() };
            self.flush(&one, now, on);
        }
        let kind = match target {
            FdbTarget::Static(_) | FdbTarget::Blackhole => FdbKind::Static,
            FdbTarget::Sticky(_) => FdbKind::Sticky,
            FdbTarget::SelfAddress(_) => FdbKind::SelfAddress,
        };
        self.entries.of_mut(key).insert(key, Found { port: target.port(), kind, updated_s: 0 });
        self.high_water = self.high_water.max(self.len());
    }
    /// Removes control-plane entries for which `keep` returns false.
    pub(crate) fn retain_controlled(&mut self, keep: impl Fn(VlanId, MacAddr) -> bool) {
        for shard in &mut self.entries.0 {
            shard.retain(|key, found| {
                found.kind == FdbKind::Dynamic || split(*key).is_some_and(|(vlan, mac)| keep(vlan, mac))
            });
        }
    }

    /// Visits the entries that match `filter` in one part of the table, in no particular order. The first part begins at 0;
    /// returns where the next one begins, `None` after the last.
    pub fn part(
        &self,
        filter: &FdbFilter,
        from: u32,
        now: Timestamp,
        visit: &mut dyn FnMut(FdbEntry),
    ) -> Option<u32> {
        /// Shards are visited until this many entries have been looked at.
        const ENOUGH: usize = 4096;
        if let (Some(vlan), Some(mac)) = (filter.vlan, filter.mac) {
            let found = self.get(vlan, mac).map(|found| entry(vlan, mac, &found, now));
            found.filter(|entry| filter.matches(entry)).into_iter().for_each(visit);
            return None;
        }
        let mut seen = 0;
        for (at, shard) in self.entries.0.iter().enumerate().skip(from as usize) {
            if seen >= ENOUGH {
                return u32::try_from(at).ok();
            }
            for (key, found) in shard {
                let Some((vlan, mac)) = split(*key) else { continue };
                let entry = entry(vlan, mac, found, now);
                if filter.matches(&entry) {
                    visit(entry);
                }
            }
            seen += shard.len();
        }
        None
    }
    /// Visits every entry that matches `filter`, in no particular order.
    pub fn walk(&self, filter: &FdbFilter, now: Timestamp, visit: &mut dyn FnMut(FdbEntry)) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.part(filter, from, now, visit);
        }
    }
    /// Removes the dynamic entries that match `filter`; returns their number.
    pub fn flush(&mut self, filter: &FdbFilter, now: Timestamp, on: &mut dyn FnMut(FdbEvent)) -> u64 {
        if filter.port.is_some_and(|port| self.dynamic_at(port) == 0)
            || filter.vlan.is_some_and(|vlan| self.dynamic_in(vlan) == 0)
        {
            return 0;
        }
        if let (Some(vlan), Some(mac)) = (filter.vlan, filter.mac) {
            let found = self.get(vlan, mac).map(|found| entry(vlan, mac, &found, now));
            let Some(gone) = found.filter(|e| e.kind == FdbKind::Dynamic && filter.matches(e)) else {
                return 0;
            };
            let key = key(vlan, mac);
            self.entries.of_mut(key).remove(&key);
            self.count_removed(&gone);
            on(FdbEvent::Deleted(gone));
            return 1;
        }
        self.remove_dynamic(now, |entry| filter.matches(entry), &mut |entry| on(FdbEvent::Deleted(entry)))
    }
    /// Removes dynamic entries that were not seen for `ageing_s` seconds or more, and returns when the next is
    /// due. `None` means that ageing is off.
    pub fn sweep(&mut self, ageing_s: Option<u32>, now: Timestamp, on: &mut dyn FnMut(FdbEvent)) -> Sweep {
        let Some(ageing_s) = ageing_s else { return Sweep::default() };
        let mut oldest_s = None;
        let expired = |entry: &FdbEntry| {
            if entry.age_s < ageing_s {
                oldest_s = oldest_s.max(Some(entry.age_s));
            }
            entry.age_s >= ageing_s
        };
        let aged = self.remove_dynamic(now, expired, &mut |entry| on(FdbEvent::Aged(entry)));
        Sweep { aged, next_in_s: oldest_s.map(|age_s: u32| ageing_s - age_s) }
    }

    fn remove_dynamic(
        &mut self,
        now: Timestamp,
        mut goes: impl FnMut(&FdbEntry) -> bool,
        on: &mut dyn FnMut(FdbEntry),
    ) -> u64 {
        let mut gone = Vec::new();
        for shard in &mut self.entries.0 {
            shard.retain(|key, found| {
                let Some((vlan, mac)) = split(*key).filter(|_| found.kind == FdbKind::Dynamic) else {
                    return true;
                };
                let entry = entry(vlan, mac, found, now);
                let goes = goes(&entry);
                if goes {
                    gone.push(entry);
                }
                !goes
            });
        }
        for entry in &gone {
            self.count_removed(entry);
            on(*entry);
        }
        gone.len() as u64
    }
    fn count_added(&mut self, vlan: VlanId, port: PortId) {
        self.dynamic += 1;
        self.per_port[port.index()] += 1;
        self.per_vlan[vlan.index()] += 1;
        self.high_water = self.high_water.max(self.len());
    }
    fn count_removed(&mut self, entry: &FdbEntry) {
        self.dynamic -= 1;
        self.per_vlan[entry.vlan.index()] -= 1;
        if let Some(port) = entry.port {
            self.per_port[port.index()] -= 1;
        }
    }
}

/// VLAN and address in one word.
fn key(vlan: VlanId, mac: MacAddr) -> u64 {
    u64::from(vlan.get()) << 48 | mac.to_u64()
}

fn split(key: u64) -> Option<(VlanId, MacAddr)> {
    VlanId::new((key >> 48) as u16).map(|vlan| (vlan, MacAddr::from_u64(key)))
}

fn entry(vlan: VlanId, mac: MacAddr, found: &Found, now: Timestamp) -> FdbEntry {
    let age_s =
        if found.kind == FdbKind::Dynamic { now.as_secs().saturating_sub(found.updated_s) } else { 0 };
    FdbEntry { vlan, mac, port: found.port, kind: found.kind, age_s }
}
