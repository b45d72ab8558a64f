//! A VRF's table of one family: a structure of `crates/fib` in arrays that the programs find in arrays of arrays. An IPv6 table
//! is one array in `fib_lines`; an IPv4 table is its near part in the map of its width and, once a prefix is longer than /24, the
//! rest in `fib_lines`.
//!
//! Read first: the head comments of `crates/fib/src/lib.rs` and `ipv4.rs`; `bpf/fib.h`, the reader.
//!
//! Invariants: a near part names the slot of its rest before it is put in place, and never another. The rest is put in
//! place before anything leads to it, and goes when no program reads the near part any more. So a table takes another's place
//! with one store, whatever parts the two have: the slots of a VRF are two, and a new table has the one that is not in use. Of
//! two near parts programs read the narrower one; it goes, when there is a wider one in place, before that is written to.

use crate::abi::{self, Line};
use crate::error::{Doing, Result};
use crate::shared::{Shared, map_bytes};
use crate::tables::Tables;
use lanyard_fib::ipv4::Width;
use lanyard_fib::{Full, Joined, LINE, NONE, Pool, Rib, Words, Writer, ipv4, ipv6};
use lanyard_types::VrfId;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU32;
use zerocopy::IntoBytes;

/// Lines of a table at first, and at most.
const LINES: (u32, u32) = (1 << 10, 1 << 20);

/// What fills up, and how many of it a table has at most.
pub(crate) type Pieces = (&'static str, u32);
/// Lines, and the numbers of next hops of IPv4 routes up to /24.
pub(crate) const PIECES: [Pieces; 3] =
    [("fib4_lines", LINES.1), ("fib4_next_hops", Width::Sixteen.leads()), ("fib6_lines", LINES.1)];

/// One table.
#[derive(Debug)]
pub(crate) struct Table<W> {
    vrf: VrfId,
    /// An IPv4 table's near part, made anew when it has to be wider.
    near: Option<Array>,
    /// What is made anew when it is full; an IPv4 table's is not there before it is needed.
    rest: Option<Array>,
    rest_place: Place,
    writer: W,
}

/// A family's writer, and what its tables are like.
pub(crate) trait Family: Writer + Sized {
    /// The pieces that fill up, how many a table has at most, and how they are.
    fn pieces(&self) -> Vec<(Pieces, &Pool)>;
    /// The ones that a route was just refused for.
    fn wanting(&self) -> Pieces;
    /// An empty table, not yet in place.
    fn table(tables: &Tables, vrf: VrfId) -> Result<Table<Self>>;
}

impl Family for ipv4::Writer {
    fn pieces(&self) -> Vec<(Pieces, &Pool)> {
        vec![(PIECES[0], self.pool()), (PIECES[1], self.leads())]
    }
    fn wanting(&self) -> Pieces {
        PIECES[usize::from(self.wants_lead())]
    }

    fn table(tables: &Tables, vrf: VrfId) -> Result<Table<Self>> {
        let side = near_left(tables, vrf).map_or(0, |(width, near)| near.all().load(width.place()) & 1 ^ 1);
        let (rest_place, writer) = (Place::fib4_rest(vrf, side), Self::new(LINES.0, LINES.1));
        let near = Array::make_near(vrf, writer.size().near, rest_place)?;
        Ok(Table { vrf, near: Some(near), rest: None, rest_place, writer })
    }
}

impl Family for ipv6::Writer {
    fn pieces(&self) -> Vec<(Pieces, &Pool)> {
        vec![(PIECES[2], self.pool())]
    }
    fn wanting(&self) -> Pieces {
        PIECES[2]
    }

    fn table(_: &Tables, vrf: VrfId) -> Result<Table<Self>> {
        let (rest_place, writer) = (Place::fib6(vrf), Self::new(LINES.0, LINES.1));
        let rest = Array::make_growing(rest_place, writer.size().rest)?;
        Ok(Table { vrf, near: None, rest: Some(rest), rest_place, writer })
    }
}

impl<W: Family> Table<W> {
    /// Writes a route; what to do if it is refused.
    pub(crate) fn set(
        &mut self,
        prefix: W::Net,
        [old, new]: [u32; 2],
        rib: &impl Rib<W::Net>,
    ) -> Result<(), Remedy> {
        let (words, writer) = (joined(self.near.as_ref(), self.rest.as_ref()), &mut self.writer);
        writer.set(&words, prefix, old, new, rib).map_err(|Full| {
            let larger = writer.larger().is_some();
            match writer.waiting() > 0 && (writer.worth_waiting() || !larger) {
                true => Remedy::Wait,
                false if larger => Remedy::Grow,
                false => Remedy::None(writer.wanting()),
            }
        })
    }
    /// The same routes in larger memory; what is made anew is put in place if the programs read the table, and what was there
    /// goes.
    pub(crate) fn grow(&mut self, live: Option<&Tables>) -> Result<()> {
        let (had, Some(size)) = (self.writer.size(), self.writer.larger()) else { return Ok(()) };
        let before = joined(self.near.as_ref(), self.rest.as_ref());
        if size.near == had.near {
            let rest = Array::make_growing(self.rest_place, size.rest)?;
            self.writer.move_to(&before, &joined(self.near.as_ref(), Some(&rest)));
            return live.map_or(Ok(()), |tables| rest.put(tables)).map(|()| _ = self.rest.insert(rest));
        }
        let near = Array::make_near(self.vrf, size.near, self.rest_place)?;
        self.writer.move_to(&before, &joined(Some(&near), self.rest.as_ref()));
        if let Some(tables) = live {
            near.put(tables)?;
            self.near.iter().for_each(|narrower| narrower.place.clear(tables));
        }
        self.near = Some(near);
        Ok(())
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

/// What makes room for a route that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// A grace period, and [`Table::settle`].
    Wait,
    /// [`Table::grow`].
    Grow,
    /// Nothing does: these are used up.
    None(Pieces),
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
    for place in Place::all(vrf) {
        if arrays.iter().all(|array| array.place != place) {
            place.clear(tables);
        }
    }
    Ok(())
}

/// Whether the programs find any table.
pub(crate) fn any(tables: &Tables) -> bool {
    let mut places = (0..abi::VRFS as u8).filter_map(VrfId::new).flat_map(Place::all);
    places.any(|place| place.held(tables).is_some())
}

/// The near part that an earlier daemon has left.
fn near_left(tables: &Tables, vrf: VrfId) -> Option<(Width, Shared<Line>)> {
    let left = |width| Some((width, Place::fib4(vrf, width).array_left(tables)?));
    Width::ALL.into_iter().find_map(left)
}

/// The leaf of an address by the tables that an earlier daemon has left.
pub(crate) fn lookup_left(tables: &Tables, vrf: VrfId, address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => near_left(tables, vrf).map_or(NONE, |(width, near)| {
            let place = Place("fib_lines", near.all().load(width.place()));
            let rest = place.array_left(tables);
            let rest = rest.as_ref().map_or(&[][..], Shared::all);
            let words = Joined { first: near.all(), words: width.words(), rest };
            ipv4::lookup(&words, width, address)
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
    /// The near part of an IPv4 table whose rest belongs there.
    fn make_near(vrf: VrfId, words: usize, rest: Place) -> Result<Self> {
        let width = Width::of(words).unwrap_or(Width::Four);
        let place = Place::fib4(vrf, width);
        let near = match width {
            Width::Sixteen => Self::make_growing(place, words)?,
            _ => Self::make(place, words, libbpf_sys::BPF_F_MMAPABLE)?,
        };
        near.lines.all().store(width.place(), rest.1);
        Ok(near)
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
    fn fib4(vrf: VrfId, width: Width) -> Self {
        let map = match width {
            Width::Four => "fib4_4bit",
            Width::Eight => "fib4_8bit",
            Width::Sixteen => "fib4_16bit",
        };
        Self(map, vrf.get().into())
    }
    fn fib4_rest(vrf: VrfId, side: u32) -> Self {
        Self("fib_lines", abi::fib4_slot(vrf, side))
    }
    fn fib6(vrf: VrfId) -> Self {
        Self("fib_lines", vrf.get().into())
    }
    /// All of a VRF's, near parts before their rest: when they have gone nobody reads that.
    fn all(vrf: VrfId) -> [Self; 6] {
        let [four, eight, sixteen] = Width::ALL.map(|width| Self::fib4(vrf, width));
        let [rest, other] = [0, 1].map(|side| Self::fib4_rest(vrf, side));
        [four, eight, sixteen, rest, other, Self::fib6(vrf)]
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
