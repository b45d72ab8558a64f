//! Writes routes, groups and adjacencies to the tables.
//!
//! The structures are those of `crates/fib`, one for each VRF and family in an array of its own ([`crate::fib`]). An
//! array is created with the first route, and replaced by a larger one when it is full. A [`Routes`] in this process
//! holds the data from which they are written.
//!
//! Invariants: a frame finds either the old route or the new one. Memory that programs may still be reading is not
//! written again before a grace period has passed: putting a table into an array of tables waits for one (the kernel's
//! `maybe_wait_bpf_programs`). An adopted plane continues with the tables of the previous daemon. This process fills
//! tables of its own, and uses the other bank for its groups, buckets and adjacencies, until [`Routing::publish`].

use crate::abi::{self, AdjacencyRow};
use crate::clock::now_s;
use crate::error::Result;
use crate::fib::{self, Family, Remedy, Table};
use crate::own::{Own, is_own};
use crate::tables::{Meta, Tables};
use ipnet::IpNet;
use lanyard_fib::{NONE, Runs, View, ipv4, ipv6};
use lanyard_pipeline::route::{Adjacency, RouteChange, RouteLookup, RouteTarget};
use lanyard_pipeline::tables::routes::{Limits, Routes};
use lanyard_plane::PlaneError;
use lanyard_types::{AdjacencyId, GroupId, RifId, TrapReason, VrfId};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Added to a bank in `Meta::bank` while the tables of that bank are being put in place. The number of VRFs that are
/// finished is stored above [`DONE_SHIFT`].
const PUBLISHING: u64 = 1 << 8;
const DONE_SHIFT: u32 = 16;

/// All VRFs, in the order in which their tables are put in place.
pub(crate) fn vrfs() -> impl Iterator<Item = VrfId> {
    (0..abi::VRFS as u8).filter_map(VrfId::new)
}

fn set_bank(tables: &Tables, word: u64) {
    tables.meta.u64(0, offset_of!(Meta, bank)).store(word, SeqCst);
}

/// The routing tables.
#[derive(Debug)]
pub(crate) struct Routing {
    pub rib: Routes,
    vrfs: BTreeMap<VrfId, Vrf>,
    bank: u32,
    /// True if the programs read the tables that are written here.
    live: bool,
    /// True if the programs may already read some of these tables; writes then follow the rules for tables in
    /// use.
    begun: bool,
    buckets: Runs,
    /// The first bucket of each group, and the order of the number of its buckets; a group with one member
    /// has no bucket.
    groups: BTreeMap<GroupId, (u32, u8)>,
    /// The switch's own addresses.
    own: Own,
    /// Routes refused because the table was full, by family.
    refused: [u64; fib::NAMES.len()],
}

#[derive(Debug, Default)]
struct Vrf {
    ipv4: Option<Table<ipv4::Writer>>,
    ipv6: Option<Table<ipv6::Writer>>,
}

impl Routing {
    /// Opens the tables of a plane as they are.
    pub(crate) fn open(tables: &Tables) -> Result<Self> {
        let word = tables.meta.get(0).bank;
        let bank = word as u32 % abi::BANKS;
        if word & PUBLISHING != 0 {
            // A daemon has died in `publish`: the first VRFs use the new bank, the others the old one, and neither bank
            // is free. The kernel routes packets of the others until this daemon publishes.
            for vrf in vrfs().skip((word >> DONE_SHIFT) as usize) {
                put_in_place(tables, vrf, None)?;
            }
            set_bank(tables, bank.into());
        }
        let live = !fib::any(tables);
        Ok(Self {
            rib: Routes::new(Limits { buckets: abi::BANK_BUCKETS as usize, ..Limits::default() }),
            vrfs: BTreeMap::new(),
            bank: if live { bank } else { bank ^ 1 },
            live,
            begun: live,
            buckets: Runs::new(0, abi::BANK_BUCKETS),
            groups: BTreeMap::new(),
            own: Own::default(),
            refused: [0; fib::NAMES.len()],
        })
    }

    /// Carries out one change.
    pub(crate) fn change(
        &mut self,
        tables: &Tables,
        change: &RouteChange,
        rif: impl Fn(RifId) -> bool,
    ) -> Result<(), PlaneError> {
        let undo = self.rib.change(change, rif)?;
        if *change == undo && !matches!(change, RouteChange::VrfGone(_)) {
            return Ok(());
        }
        if let RouteChange::Adjacency(id, None) = undo {
            // A previous daemon may have used this row for another adjacency.
            tables.adjacencies.u32(self.row(id.get()), offset_of!(AdjacencyRow, used_s)).store(0, Relaxed);
        }
        let done = self.write(tables, change, &undo);
        if done.is_err() && !matches!(change, RouteChange::VrfGone(_)) {
            // Undoing a change that was accepted does not fail.
            let _ = self.rib.change(&undo, |_| true);
        }
        done
    }

    fn write(&mut self, tables: &Tables, change: &RouteChange, undo: &RouteChange) -> Result<()> {
        match change {
            RouteChange::Adjacency(id, new) => self.write_adjacency(tables, *id, *new),
            RouteChange::Group(id, new) => return self.write_group(tables, *id, new.as_deref()),
            RouteChange::Route(vrf, prefix, new) => {
                let RouteChange::Route(_, _, old) = undo else { return Ok(()) };
                let (was_own, own) = (is_own(*old), is_own(*new));
                if own && !was_own {
                    self.own.add(tables, *vrf, *prefix);
                }
                let done = self.write_route(tables, *vrf, *prefix, [*old, *new]);
                if was_own != own && own == done.is_err() {
                    self.own.remove(tables, *vrf, Some(*prefix), self.live);
                }
                return done;
            }
            RouteChange::VrfGone(vrf) => {
                if self.begun && self.vrfs.contains_key(vrf) {
                    put_in_place(tables, *vrf, None)?;
                }
                self.vrfs.remove(vrf);
                self.own.remove(tables, *vrf, None, self.live);
            }
        }
        Ok(())
    }

    fn row(&self, number: u32) -> usize {
        (self.bank * abi::BANK_ROWS + number) as usize
    }

    fn write_adjacency(&self, tables: &Tables, id: AdjacencyId, new: Option<Adjacency>) {
        let word = tables.adjacencies.u64(self.row(id.get()), 0);
        let next = new.map_or(0, |new| {
            let mac = new.mac.map_or(0, |mac| abi::raw_mac(mac) | abi::ADJ_RESOLVED);
            u64::from(new.rif.get()) << 48 | mac
        });
        word.store(next, Relaxed);
    }

    /// Writes a group. Its buckets contain no guess of the next hops' positions: the programs find and write
    /// these (`LY_NH_GUESS_SHIFT`).
    fn write_group(&mut self, tables: &Tables, id: GroupId, new: Option<&[AdjacencyId]>) -> Result<()> {
        let word = |routing: &Self| tables.nh_groups.u64(routing.row(id.get()), 0);
        let Some(new) = new else {
            word(self).store(0, Relaxed);
            if let Some((base, order)) = self.groups.remove(&id) {
                self.buckets.give_back(base, order);
            }
            return Ok(());
        };
        let held = self.groups.get(&id).copied();
        if let [only] = new {
            word(self).store(1 << 32 | self.row(only.get()) as u64, Relaxed);
            self.groups.remove(&id);
            held.into_iter().for_each(|(base, order)| self.buckets.give_back(base, order));
            return Ok(());
        }
        let order = new.len().trailing_zeros() as u8;
        // If the number of buckets stays the same, they change one by one, each with a single store. Nothing is
        // freed then, and no grace period is needed.
        let base = match held {
            Some((base, had)) if had == order => base,
            _ => self.take_buckets(tables, order)?,
        };
        let all = tables.nh_buckets.all();
        let at = (self.bank * abi::BANK_BUCKETS + base) as usize;
        for (bucket, adjacency) in all[at..at + new.len()].iter().zip(new) {
            bucket.store(self.row(adjacency.get()) as u32, Relaxed);
        }
        word(self).store((new.len() as u64) << 32 | at as u64, std::sync::atomic::Ordering::Release);
        self.groups.insert(id, (base, order));
        let freed = held.filter(|held| *held != (base, order));
        freed.into_iter().for_each(|(base, order)| self.buckets.give_back(base, order));
        Ok(())
    }

    fn take_buckets(&mut self, tables: &Tables, order: u8) -> Result<u32> {
        if let Some(base) = self.buckets.take(order) {
            return Ok(base);
        }
        self.wait_for_readers(tables)?;
        let size = abi::BANK_BUCKETS.into();
        self.buckets.take(order).ok_or(PlaneError::TableFull { table: "next_hop_buckets", size })
    }

    /// Waits for a grace period. Afterwards no program reads anything that was removed from the tables
    /// before.
    fn wait_for_readers(&mut self, tables: &Tables) -> Result<()> {
        if self.begun {
            self.vrfs.values().find_map(|held| held.put_again(tables)).unwrap_or(Ok(()))?;
        }
        self.buckets.settle();
        for vrf in self.vrfs.values_mut() {
            vrf.ipv4.iter_mut().for_each(Table::settle);
            vrf.ipv6.iter_mut().for_each(Table::settle);
        }
        Ok(())
    }

    fn write_route(
        &mut self,
        tables: &Tables,
        vrf: VrfId,
        prefix: IpNet,
        [old, new]: [Option<RouteTarget>; 2],
    ) -> Result<()> {
        let word = if self.bank == 0 { encode::<0> } else { encode::<1> };
        let [old, new] = [old, new].map(|target| target.as_ref().map_or(NONE, word));
        let live = self.begun.then_some(tables);
        loop {
            let held = self.vrfs.entry(vrf).or_default();
            let Some(rib) = self.rib.vrf(vrf) else { return Ok(()) };
            let done = match prefix.trunc() {
                IpNet::V4(prefix) => {
                    let table = in_place(&mut held.ipv4, vrf, live)?;
                    table.set(prefix, [old, new], &View::new(&rib.ipv4, word))
                }
                IpNet::V6(prefix) => {
                    let table = in_place(&mut held.ipv6, vrf, live)?;
                    table.set(prefix, [old, new], &View::new(&rib.ipv6, word))
                }
            };
            match done {
                Ok(()) => return Ok(()),
                Err(Remedy::Wait) => self.wait_for_readers(tables)?,
                Err(Remedy::Grow) => match (prefix, held) {
                    (IpNet::V4(_), Vrf { ipv4: Some(table), .. }) => table.grow(live)?,
                    (IpNet::V6(_), Vrf { ipv6: Some(table), .. }) => table.grow(live)?,
                    _ => return Ok(()),
                },
                Err(Remedy::None) => {
                    let nth = usize::from(prefix.addr().is_ipv6());
                    self.refused[nth] += 1;
                    return Err(PlaneError::TableFull { table: fib::NAMES[nth], size: fib::LINES.into() });
                }
            }
        }
    }

    /// Makes the programs read the tables that were written since the plane was adopted.
    pub(crate) fn publish(&mut self, tables: &Tables) -> Result<()> {
        if self.live {
            return Ok(());
        }
        self.begun = true;
        for (done, vrf) in (0u64..).zip(vrfs()) {
            self.publish_vrf(tables, done, vrf)?;
        }
        set_bank(tables, self.bank.into());
        self.own.set(tables, false);
        self.live = true;
        Ok(())
    }

    /// Makes the programs read the tables of one VRF, after `done` others. Until all are done, `Meta::bank` records the
    /// progress for the next daemon, in case this one dies here.
    pub(crate) fn publish_vrf(&self, tables: &Tables, done: u64, vrf: VrfId) -> Result<()> {
        set_bank(tables, u64::from(self.bank) | PUBLISHING | done << DONE_SHIFT);
        put_in_place(tables, vrf, self.vrfs.get(&vrf))
    }

    /// The route that a packet to `address` uses, according to the tables that the programs read.
    pub(crate) fn lookup(&self, tables: &Tables, vrf: VrfId, address: IpAddr) -> RouteLookup {
        if self.live {
            return self.rib.lookup(vrf, address);
        }
        let word = fib::lookup_left(tables, vrf, address);
        let target = decode(word);
        let buckets = match target {
            Some(RouteTarget::Group(_)) => {
                let group = tables.nh_groups.u64((word & 0xff_ffff) as usize, 0).load(Relaxed);
                let (at, count) = (group as u32 as usize, (group >> 32) as usize);
                let adjacency = |word: u32| AdjacencyId::new(word % abi::BANK_ROWS); // above it is a guess
                match count {
                    1 => adjacency(at as u32).into_iter().collect(),
                    _ => {
                        let found = tables.nh_buckets.all().get(at..at + count).unwrap_or_default();
                        found.iter().filter_map(|bucket| adjacency(bucket.load(Relaxed))).collect()
                    }
                }
            }
            _ => Vec::new(),
        };
        RouteLookup { target, buckets }
    }

    /// Visits each adjacency with the seconds since it was used.
    pub(crate) fn used(&self, tables: &Tables, visit: &mut dyn FnMut(AdjacencyId, u32)) {
        let now = now_s();
        for id in self.rib.adjacencies() {
            let row = self.row(id.get());
            let used = tables.adjacencies.u32(row, offset_of!(AdjacencyRow, used_s)).load(Relaxed);
            if used != 0 {
                // A packet may have used it since `now` was read.
                visit(id, now.saturating_sub(used));
            }
        }
    }

    /// The structures of all VRFs together.
    pub(crate) fn structures(&self) -> Vec<Structure> {
        let named = |(name, refused): (&&'static str, &u64)| Structure {
            name,
            refused: *refused,
            ..Structure::default()
        };
        let mut all: Vec<Structure> = fib::NAMES.iter().zip(&self.refused).map(named).collect();
        for vrf in self.vrfs.values() {
            vrf.ipv4.iter().for_each(|table| add(&mut all, table));
            vrf.ipv6.iter().for_each(|table| add(&mut all, table));
        }
        all
    }
}

impl Vrf {
    /// Puts a table into the slot in which it already is, which waits for a grace period; `None` if the VRF has no table.
    fn put_again(&self, tables: &Tables) -> Option<Result<()>> {
        let four = self.ipv4.as_ref().map(|table| table.put(tables));
        four.or_else(|| self.ipv6.as_ref().map(|table| table.put(tables)))
    }
}

/// Makes the programs use these tables for a VRF, and no others.
fn put_in_place(tables: &Tables, vrf: VrfId, held: Option<&Vrf>) -> Result<()> {
    fib::replace(tables, vrf, held.and_then(|held| held.ipv4.as_ref()))?;
    fib::replace(tables, vrf, held.and_then(|held| held.ipv6.as_ref()))
}

/// Adds a table to the totals of its family.
fn add<W: Family>(all: &mut [Structure], table: &Table<W>) {
    let (to, lines) = (&mut all[W::NTH], table.writer().lines());
    to.size += u64::from(fib::LINES);
    to.used += u64::from(lines.used());
    to.high_water += u64::from(lines.high_water());
    to.bytes += table.bytes();
}

/// The use of a family's structures.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    pub name: &'static str,
    pub size: u64,
    pub used: u64,
    pub high_water: u64,
    pub refused: u64,
    pub bytes: u64,
}

/// The table, created and put in place for its first route if necessary.
fn in_place<'a, W: Family>(
    held: &'a mut Option<Table<W>>,
    vrf: VrfId,
    live: Option<&Tables>,
) -> Result<&'a mut Table<W>> {
    let table = match held.take() {
        Some(table) => table,
        None => {
            let table = Table::new(vrf)?;
            if let Some(tables) = live {
                table.put(tables)?;
            }
            table
        }
    };
    Ok(held.insert(table))
}

/// The leaf that stands for a target, with its group in bank `BANK`.
fn encode<const BANK: u32>(target: &RouteTarget) -> u32 {
    let (kind, value) = match target {
        RouteTarget::Group(group) => (abi::TARGET_GROUP, BANK * abi::BANK_ROWS + group.get()),
        RouteTarget::Up(reason) => (abi::TARGET_UP, *reason as u32),
        RouteTarget::Blackhole => (abi::TARGET_BLACKHOLE, 0),
        RouteTarget::Connected(rif) => (abi::TARGET_CONNECTED, rif.get().into()),
    };
    kind << 24 | value
}

/// The target of a leaf of either bank; `None` is no route.
pub(crate) fn decode(word: u32) -> Option<RouteTarget> {
    let value = word & 0xff_ffff;
    match word >> 24 {
        abi::TARGET_GROUP => GroupId::new(value % abi::BANK_ROWS).map(RouteTarget::Group),
        abi::TARGET_UP => TrapReason::from_u8(value as u8).map(RouteTarget::Up),
        abi::TARGET_BLACKHOLE => Some(RouteTarget::Blackhole),
        abi::TARGET_CONNECTED => RifId::new(value as u16).map(RouteTarget::Connected),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_round_trip() {
        for target in [
            RouteTarget::Group(GroupId::MAX),
            RouteTarget::Up(TrapReason::HostStack),
            RouteTarget::Blackhole,
            RouteTarget::Connected(RifId::MAX),
        ] {
            assert_eq!(decode(encode::<1>(&target)), Some(target));
            assert!((1..lanyard_fib::LEAVES).contains(&encode::<1>(&target)));
        }
        assert_eq!(decode(NONE), None);
    }
}
