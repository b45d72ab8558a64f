//! The segments of the MDB (`bpf/stages/snoop.h`): arrays of one element, which has an index and rows, in an array of arrays.
//!
//! Invariant: a segment stays where it was put for as long as the plane exists, and what is mapped of it stays mapped.

use crate::abi::{self, MdbBucket, MdbRow, MdbSegment};
use crate::error::{Doing, Result};
use crate::shared::{Shared, map_bytes};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use zerocopy::IntoBytes;

/// One segment.
#[derive(Debug)]
pub(crate) struct Segment {
    map: MapHandle,
    /// True if this process has made the segment, so that no daemon before it has written a row.
    is_new: bool,
    pub(crate) index: Shared<MdbBucket>,
    pub(crate) rows: Shared<MdbRow>,
}

impl Segment {
    fn new() -> Result<Self> {
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let bytes = size_of::<MdbSegment>() as u32;
        let map = MapHandle::create(MapType::Array, Some("ly_mdb"), 4, bytes, 1, &opts)
            .doing(|| format!("making a segment of {} entries for the MDB", abi::MDB_SEGMENT))?;
        Self::of(map, true)
    }

    fn of(map: MapHandle, is_new: bool) -> Result<Self> {
        let doing = || "mapping a segment of the MDB".into();
        let index = Shared::map(map.as_fd(), abi::MDB_BUCKETS).doing(doing)?;
        let rows = Shared::map_from(map.as_fd(), offset_of!(MdbSegment, row), abi::MDB_ROWS).doing(doing)?;
        Ok(Self { map, is_new, index, rows })
    }

    /// For each row, true if it has been written by a daemon before this one. The place of such a row is not 0, because it contains
    /// the VLAN; one that cannot be read counts as written. The rows are read from a copy: what is read of mapped ones stays in
    /// this process's memory.
    pub(crate) fn written(&self) -> Vec<bool> {
        let copy =
            if self.is_new { None } else { self.map.lookup(0_u32.as_bytes(), MapFlags::ANY).ok().flatten() };
        let rows =
            copy.as_deref().and_then(|bytes| bytes.get(offset_of!(MdbSegment, row)..)).unwrap_or_default();
        let place = offset_of!(MdbRow, place)..offset_of!(MdbRow, place) + 4;
        let written = |row: &[u8]| row.get(place.clone()).is_some_and(|place| place != [0; 4]);
        let mut all: Vec<bool> = rows.chunks(size_of::<MdbRow>()).map(written).collect();
        all.resize(abi::MDB_ROWS, !self.is_new);
        all
    }
}

/// The segments that exist. Threads add and read them without a lock.
#[derive(Debug)]
pub(crate) struct Segments([OnceLock<Segment>; abi::MDB_SEGMENTS]);

impl Segments {
    /// No segments yet.
    pub(crate) fn empty() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// The segments that the array of arrays contains.
    pub(crate) fn open(outer: &MapHandle) -> Result<Self> {
        let segments = Self::empty();
        for (number, place) in (0_u32..).zip(&segments.0) {
            let Some(id) = outer.lookup(number.as_bytes(), MapFlags::ANY).ok().flatten() else { continue };
            let id = id.try_into().map_or(0, u32::from_ne_bytes);
            let map = MapHandle::from_map_id(id).doing(|| format!("opening segment {number} of the MDB"))?;
            // The places are empty until now.
            let _ = place.set(Segment::of(map, false)?);
        }
        Ok(segments)
    }

    /// Creates the missing ones of the first `count` segments. Waits for a grace period for each.
    pub(crate) fn create(&self, outer: &MapHandle, count: usize) -> Result<()> {
        for (number, place) in (0_u32..).zip(&self.0).take(count) {
            if place.get().is_some() {
                continue;
            }
            let segment = Segment::new()?;
            outer
                .update(number.as_bytes(), (segment.map.as_fd().as_raw_fd() as u32).as_bytes(), MapFlags::ANY)
                .doing(|| format!("putting segment {number} of the MDB in place"))?;
            // One thread creates segments at a time.
            let _ = place.set(segment);
        }
        Ok(())
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Segment> {
        self.0.get(number)?.get()
    }
    /// The memory of all segments, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().filter_map(OnceLock::get).map(|segment| map_bytes(segment.map.as_fd())).sum()
    }
}

/// Where the rows begin, a multiple of every page size in use (64 KB at most), so that they can be mapped by themselves.
const _: () = assert!(offset_of!(MdbSegment, row).is_multiple_of(1 << 16));
