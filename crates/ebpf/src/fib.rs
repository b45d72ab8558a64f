//! A VRF's table of one family: a structure of `crates/fib` in arrays that the programs find in arrays of arrays. An IPv6 table
//! is one array in `fib6`; an IPv4 table is its near part in `fib4` and, once there is one, its far part in `fib4_far`.
//!
//! Read first: the head comments of `crates/fib/src/lib.rs` and `ipv4.rs`; `bpf/fib.h`, the reader.
//!
//! Invariants: a near part names the slot of its far part before it is put in place, and never another. A far part is put in
//! place before anything leads to it, and goes when no program reads the near part any more. So a table takes another's place
//! with one store, whatever parts the two have: the slots of a VRF are two, and a new table has the one that is not in use.

use crate::abi::{self, Line};
use crate::error::{Doing, Result};
use crate::shared::{Shared, map_bytes};
use crate::tables::Tables;
use lanyard_fib::{Full, Joined, LINE, NONE, Rib, Words, Writer, ipv4, ipv6};
use lanyard_types::VrfId;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU32;
use zerocopy::IntoBytes;

/// Groups of 256 (IPv4) and lines (IPv6) of a table at first, and at most.
const GROUPS4: (u32, u32) = (256, 1 << 16);
const LINES6: (u32, u32) = (1 << 10, 1 << 20);

/// One table.
#[derive(Debug)]
pub(crate) struct Table<W> {
    /// What stays where it is: an IPv4 table's near part.
    near: Option<Array>,
    /// What is made anew when it is full; an IPv4 table's is not there before it is needed.
    rest: Option<Array>,
    rest_place: Place,
    writer: W,
}

/// A family's writer, and what its tables are like.
pub(crate) trait Family: Writer + Sized {
    /// The pieces that fill up, and how many a table has at most.
    const PIECES: (&'static str, u32);
    /// An empty table, not yet in place.
    fn table(tables: &Tables, vrf: VrfId) -> Result<Table<Self>>;
}

impl Family for ipv4::Writer {
    const PIECES: (&'static str, u32) = ("fib_groups", GROUPS4.1);

    fn table(tables: &Tables, vrf: VrfId) -> Result<Table<Self>> {
        let place = Place::fib4(vrf);
        let side = place.array_left(tables).map_or(0, |near| near.all().load(ipv4::FAR_PLACE) & 1 ^ 1);
        let rest_place = Place::fib4_far(vrf, side);
        let near = Array::make(place, ipv4::NEAR_WORDS, libbpf_sys::BPF_F_MMAPABLE)?;
        near.lines.all().store(ipv4::FAR_PLACE, rest_place.1);
        Ok(Table { near: Some(near), rest: None, rest_place, writer: Self::new(GROUPS4.0, GROUPS4.1) })
    }
}

impl Family for ipv6::Writer {
    const PIECES: (&'static str, u32) = ("fib_lines", LINES6.1);

    fn table(_: &Tables, vrf: VrfId) -> Result<Table<Self>> {
        let (rest_place, writer) = (Place::fib6(vrf), Self::new(LINES6.0, LINES6.1));
        let rest = Array::make_growing(rest_place, writer.words())?;
        Ok(Table { near: None, rest: Some(rest), rest_place, writer })
    }
}

impl<W: Family> Table<W> {
    /// Writes a route; how much a grace period would give back, and whether the table can grow.
    pub(crate) fn set(
        &mut self,
        prefix: W::Net,
        [old, new]: [u32; 2],
        rib: &impl Rib<W::Net>,
    ) -> (Result<(), Full>, u32, bool) {
        let words = joined(self.near.as_ref(), self.rest.as_ref());
        let done = self.writer.set(&words, prefix, old, new, rib);
        (done, self.writer.waiting(), self.writer.larger().is_some())
    }
    /// The same routes in a larger array; that is put in place by `put`.
    pub(crate) fn grow(&mut self, put: impl FnOnce(&Array) -> Result<()>) -> Result<()> {
        let Some(words) = self.writer.larger() else { return Ok(()) };
        let rest = Array::make_growing(self.rest_place, words - W::STAYS)?;
        let near = self.near.as_ref();
        self.writer.move_to(&joined(near, self.rest.as_ref()), &joined(near, Some(&rest)));
        put(self.rest.insert(rest))
    }
    /// Every program that was under way when something was last given back has ended.
    pub(crate) fn settle(&mut self) {
        self.writer.settle();
    }
    pub(crate) fn writer(&self) -> &W {
        &self.writer
    }
    /// The arrays there are, in the order in which they are put in place.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.rest, &self.near].into_iter().flatten()
    }
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.arrays().map(|array| map_bytes(array.map.as_fd())).sum()
    }
}

/// Has the programs find a VRF's tables of both families, or none where there is none; what they found before goes.
pub(crate) fn replace(
    tables: &Tables,
    vrf: VrfId,
    four: Option<&Table<ipv4::Writer>>,
    six: Option<&Table<ipv6::Writer>>,
) -> Result<()> {
    let four = four.into_iter().flat_map(Table::arrays);
    let arrays: Vec<_> = four.chain(six.into_iter().flat_map(Table::arrays)).collect();
    arrays.iter().try_for_each(|array| array.put(tables))?;
    // The near part first: after that nobody reads the far one.
    let [far, other] = [0, 1].map(|side| Place::fib4_far(vrf, side));
    for place in [Place::fib4(vrf), far, other, Place::fib6(vrf)] {
        if arrays.iter().all(|array| array.place != place) {
            place.clear(tables);
        }
    }
    Ok(())
}

/// Whether the programs find any table.
pub(crate) fn any(tables: &Tables) -> bool {
    let vrfs = (0..abi::VRFS as u8).filter_map(VrfId::new);
    let mut places = vrfs.flat_map(|vrf| {
        let [far, other] = [0, 1].map(|side| Place::fib4_far(vrf, side));
        [Place::fib4(vrf), far, other, Place::fib6(vrf)]
    });
    places.any(|place| place.held(tables).is_some())
}

/// The leaf of an address by the tables that an earlier daemon has left.
pub(crate) fn lookup_left(tables: &Tables, vrf: VrfId, address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => Place::fib4(vrf).array_left(tables).map_or(NONE, |near| {
            let place = Place("fib4_far", near.all().load(ipv4::FAR_PLACE));
            let far = place.array_left(tables);
            let rest = far.as_ref().map_or(&[][..], Shared::all);
            ipv4::lookup(&Joined { first: near.all(), words: ipv4::NEAR_WORDS, rest }, address)
        }),
        IpAddr::V6(address) => {
            Place::fib6(vrf).array_left(tables).map_or(NONE, |table| ipv6::lookup(table.all(), address))
        }
    }
}

/// An array of lines, mapped, and where it belongs.
#[derive(Debug)]
pub(crate) struct Array {
    place: Place,
    map: MapHandle,
    lines: Shared<Line>,
}

impl Array {
    /// For a place where arrays may differ in size.
    fn make_growing(place: Place, words: usize) -> Result<Self> {
        Self::make(place, words, libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP)
    }
    fn make(place: Place, words: usize, map_flags: u32) -> Result<Self> {
        let lines = words.div_ceil(LINE);
        let doing = || format!("making a routing table of {lines} lines");
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags,
            ..Default::default()
        };
        let row = size_of::<Line>() as u32;
        let map =
            MapHandle::create(MapType::Array, Some("ly_fib"), 4, row, lines as u32, &opts).doing(doing)?;
        let lines = Shared::map(map.as_fd(), lines).doing(doing)?;
        Ok(Self { place, map, lines })
    }
    /// Puts it where the programs find it, and waits until none reads what was there.
    pub(crate) fn put(&self, tables: &Tables) -> Result<()> {
        let (Place(name, slot), value) = (self.place, self.map.as_fd().as_raw_fd() as u32);
        tables
            .map(name)
            .update(slot.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .doing(|| format!("putting a routing table in place {slot} of {name}"))
    }
}

/// A slot of an array of arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(&'static str, u32);

impl Place {
    fn fib4(vrf: VrfId) -> Self {
        Self("fib4", vrf.get().into())
    }
    fn fib4_far(vrf: VrfId, side: u32) -> Self {
        Self("fib4_far", abi::fib4_far_slot(vrf, side))
    }
    fn fib6(vrf: VrfId) -> Self {
        Self("fib6", vrf.get().into())
    }
    /// The number of the map that is there.
    fn held(self, tables: &Tables) -> Option<u32> {
        let id = tables.map(self.0).lookup(self.1.as_bytes(), MapFlags::ANY).ok().flatten()?;
        Some(u32::from_ne_bytes(id.try_into().ok()?))
    }
    /// The array that is there, whoever made it.
    fn array_left(self, tables: &Tables) -> Option<Shared<Line>> {
        let map = MapHandle::from_map_id(self.held(tables)?).ok()?;
        Shared::map(map.as_fd(), map.max_entries() as usize).ok()
    }
    /// Leaves nothing there, and waits until no program reads what was.
    fn clear(self, tables: &Tables) {
        if self.held(tables).is_some() {
            // It was there a moment ago; whatever stands in the way of deleting it has deleted it.
            let _ = tables.map(self.0).delete(self.1.as_bytes());
        }
    }
}

fn joined<'a>(near: Option<&'a Array>, rest: Option<&'a Array>) -> Joined<'a, [AtomicU32], [AtomicU32]> {
    let [first, rest] = [near, rest].map(|array| array.map_or(&[][..], |array| array.lines.all()));
    Joined { first, words: first.len(), rest }
}
