//! A VRF's routing table of one family: a structure of `crates/fib` in an array. The programs find it in one of three
//! arrays of arrays, by the size of the table.
//!
//! Read first: the head comments of `crates/fib/src/lib.rs`, `ipv4.rs` and `ipv6.rs`; `bpf/fib.h`, the reader.
//!
//! Invariant: where there are two arrays for a table, programs read the one of the smaller kind. A larger array is
//! therefore put in place first; then the smaller one is removed, and only then the larger one is written to. The
//! switch takes effect with one store, and until then the array that programs read does not change.

use crate::abi::{self, Line};
use crate::error::{Doing, Result};
use crate::shared::{Shared, map_bytes};
use crate::tables::Tables;
use lanyard_fib::{Full, NONE, Rib, Writer, ipv4, ipv6};
use lanyard_types::VrfId;
use libbpf_rs::{MapCore, MapHandle, MapType};
use std::net::IpAddr;
use std::os::fd::AsFd;

/// The sizes of a table in lines: the first one, and those to which it grows.
const SIZES: [u32; 5] = [abi::FIB_SMALL, abi::FIB_MEDIUM, 1 << 19, 1 << 20, 1 << 21];
/// The most lines of a table.
pub(crate) const LINES: u32 = SIZES[SIZES.len() - 1];
/// The names of the tables, by family.
pub(crate) const NAMES: [&str; 2] = ["fib4_lines", "fib6_lines"];

/// A family's writer.
pub(crate) trait Family: Writer + Sized {
    /// Its place in [`NAMES`].
    const NTH: usize;
}

impl Family for ipv4::Writer {
    const NTH: usize = 0;
}

impl Family for ipv6::Writer {
    const NTH: usize = 1;
}

/// One table.
#[derive(Debug)]
pub(crate) struct Table<W> {
    array: Array,
    writer: W,
}

impl<W: Family> Table<W> {
    /// Creates an empty table that programs do not use yet.
    pub(crate) fn new(vrf: VrfId) -> Result<Self> {
        Ok(Self { array: Array::new(slot(vrf, W::NTH), SIZES[0])?, writer: W::new(&SIZES) })
    }
    /// Writes a route. If it is refused, returns the remedy.
    pub(crate) fn set(
        &mut self,
        prefix: W::Net,
        [old, new]: [u32; 2],
        rib: &impl Rib<W::Net>,
    ) -> Result<(), Remedy> {
        let writer = &mut self.writer;
        writer.set(self.array.lines.all(), prefix, old, new, rib).map_err(|Full| {
            let larger = writer.larger().is_some();
            match writer.waiting() > 0 && (writer.worth_waiting() || !larger) {
                true => Remedy::Wait,
                false if larger => Remedy::Grow,
                false => Remedy::None,
            }
        })
    }
    /// Copies the table into larger memory. If the programs use the table, they are switched to the
    /// copy, and the old memory is released.
    pub(crate) fn grow(&mut self, live: Option<&Tables>) -> Result<()> {
        let Some(lines) = self.writer.larger() else { return Ok(()) };
        let array = Array::new(self.array.slot, lines)?;
        self.writer.move_to(self.array.lines.all(), array.lines.all());
        let had = std::mem::replace(&mut self.array, array);
        live.map_or(Ok(()), |tables| self.put(tables).map(|()| had.clear_beside(&self.array, tables)))
    }
    /// Makes the programs use this table, and waits until none reads the previous one.
    pub(crate) fn put(&self, tables: &Tables) -> Result<()> {
        self.array.put(tables)
    }
    /// Ends the quarantine: every program that was running when something was last freed has ended.
    pub(crate) fn settle(&mut self) {
        self.writer.settle();
    }
    pub(crate) fn writer(&self) -> &W {
        &self.writer
    }
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        map_bytes(self.array.map.as_fd())
    }
}

/// The ways to make room for a refused route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Waiting for a grace period, and then [`Table::settle`].
    Wait,
    /// [`Table::grow`].
    Grow,
    /// Nothing: all lines are in use.
    None,
}

/// Makes the programs use this table for a VRF and family, or none; the previous one is released.
pub(crate) fn replace<W: Family>(tables: &Tables, vrf: VrfId, new: Option<&Table<W>>) -> Result<()> {
    if let Some(table) = new {
        table.put(tables)?;
    }
    for kind in KINDS.into_iter().filter(|kind| new.is_none_or(|table| table.array.kind != *kind)) {
        tables.clear_slot(kind, slot(vrf, W::NTH));
    }
    Ok(())
}

/// True if the programs use any table.
pub(crate) fn any(tables: &Tables) -> bool {
    (0..abi::FIB_SLOTS as u32).any(|slot| KINDS.into_iter().any(|kind| tables.slot(kind, slot).is_some()))
}

/// The leaf for an address in the tables that an earlier daemon has left.
pub(crate) fn lookup_left(tables: &Tables, vrf: VrfId, address: IpAddr) -> u32 {
    let left = |slot| {
        let id = KINDS.into_iter().find_map(|kind| tables.slot(kind, slot))?;
        let map = MapHandle::from_map_id(id).ok()?;
        Shared::<Line>::map(map.as_fd(), map.max_entries() as usize).ok()
    };
    match address {
        IpAddr::V4(address) => {
            left(slot(vrf, ipv4::Writer::NTH)).map_or(NONE, |table| ipv4::lookup(table.all(), address))
        }
        IpAddr::V6(address) => {
            left(slot(vrf, ipv6::Writer::NTH)).map_or(NONE, |table| ipv6::lookup(table.all(), address))
        }
    }
}

/// The arrays of arrays, the smaller kind first.
const KINDS: [&str; 3] = ["fib_small", "fib_medium", "fib_large"];

/// The slot for a VRF and family in each of them.
fn slot(vrf: VrfId, family: usize) -> u32 {
    (abi::VRFS * family) as u32 + u32::from(vrf.get())
}

/// A mapped array of lines, and its slot.
#[derive(Debug)]
pub(crate) struct Array {
    kind: &'static str,
    slot: u32,
    map: MapHandle,
    lines: Shared<Line>,
}

impl Array {
    pub(crate) fn new(slot: u32, lines: u32) -> Result<Self> {
        let doing = || format!("making a routing table of {lines} lines");
        let (kind, free_size) = match lines {
            abi::FIB_SMALL => (KINDS[0], 0),
            abi::FIB_MEDIUM => (KINDS[1], 0),
            _ => (KINDS[2], libbpf_sys::BPF_F_INNER_MAP),
        };
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE | free_size,
            ..Default::default()
        };
        let row = size_of::<Line>() as u32;
        let map = MapHandle::create(MapType::Array, Some("ly_fib"), 4, row, lines, &opts).doing(doing)?;
        let lines = Shared::map(map.as_fd(), lines as usize).doing(doing)?;
        Ok(Self { kind, slot, map, lines })
    }
    pub(crate) fn put(&self, tables: &Tables) -> Result<()> {
        tables
            .put_slot(self.kind, self.slot, &self.map)
            .doing(|| format!("putting a routing table in place {} of {}", self.slot, self.kind))
    }
    /// Empties the slots of the other kinds, unless `other` has taken this one's place.
    fn clear_beside(&self, other: &Self, tables: &Tables) {
        if self.kind != other.kind {
            tables.clear_slot(self.kind, self.slot);
        }
    }
}
