//! A table that the programs and this process share: a `BPF_F_MMAPABLE` array.
//!
//! Read first: Documentation/bpf/map_array.rst of the kernel, on BPF_F_MMAPABLE. The programs read while this process
//! writes, so every access is one atomic load or store of one aligned word.
//!
//! The kernel enters every page of such an array into the page table when it is mapped, whether it is read or not. Most
//! tables are used in a small part (48 ports of 1,023, 10,000 hosts of a million), so a part of a table is mapped when it is
//! first accessed. A new array is full of zeros, so writing zeros there maps nothing either.
//!
//! Invariant: `entries * stride` bytes from `base` on are reserved for as long as the value lives, and the parts whose bits
//! `mapped` has are mapped.

use crate::error::{Doing, Result};
use libbpf_rs::{MapCore, MapHandle};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The smallest part of a table that is mapped by itself, in bytes: a multiple of every page size in use.
const PART: usize = 1 << 16;
/// The most parts of a table: one bit of a word for each.
const PARTS: usize = u64::BITS as usize;

/// The protection of a mapping (mmap(2)).
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// An array of `T`, each in a slot of `stride` bytes.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    base: NonNull<u8>,
    entries: usize,
    /// The array, from which parts are mapped; `None` if the table is one part. The table begins at its byte `offset`.
    array: Option<OwnedFd>,
    offset: usize,
    /// The size of a part in bytes, as a power of two. The last part may be smaller.
    part_log2: u32,
    /// A bit for each part that is mapped.
    mapped: AtomicU64,
    /// Held while a part is mapped.
    mapping: Mutex<()>,
    /// True if this process has made the array.
    new: bool,
    row: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process and not to a thread, and is accessed by single atomic words
// only.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above; threads that write more than a word together use a lock.
unsafe impl<T> Sync for Shared<T> {}

impl<T: FromBytes + IntoBytes + Immutable> Shared<T> {
    /// The kernel aligns array elements to 8 bytes.
    const STRIDE: usize = size_of::<T>().next_multiple_of(8);

    /// Opens the array behind `fd`, which has `entries` elements of `T`'s size.
    pub(crate) fn map(fd: BorrowedFd<'_>, entries: usize) -> io::Result<Self> {
        Self::map_from(fd, 0, entries)
    }

    /// Opens `entries` elements from byte `offset` of the array behind `fd` on. The offset must be a multiple of a page.
    pub(crate) fn map_from(fd: BorrowedFd<'_>, offset: usize, entries: usize) -> io::Result<Self> {
        let len = Self::bytes(entries);
        let part = len.div_ceil(PARTS).next_power_of_two().max(PART);
        let (array, base, mapped) = match len <= part {
            true => (None, map_at(None, len, fd, offset, READ_WRITE)?, 1),
            false => (Some(fd.try_clone_to_owned()?), reserve(len, fd, offset)?, 0),
        };
        Ok(Self {
            base,
            entries,
            array,
            offset,
            part_log2: part.trailing_zeros(),
            mapped: AtomicU64::new(mapped),
            mapping: Mutex::new(()),
            new: false,
            row: PhantomData,
        })
    }

    /// The address of the byte `at` of the table. Maps the part that has it.
    fn place(&self, at: usize) -> *const u8 {
        let part = at >> self.part_log2;
        if self.mapped.load(Acquire) >> part & 1 == 0 {
            self.map_part(part);
        }
        // SAFETY: the callers assert that `at` is in the table, whose addresses are one reservation.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Maps a part, if it is not mapped. The kernel refuses that only if it has no memory for page tables; then the process
    /// ends, and the plane continues without it.
    #[cold]
    fn map_part(&self, part: usize) {
        let _one = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(array) = self.array.as_ref().filter(|_| self.mapped.load(Relaxed) >> part & 1 == 0) else {
            return;
        };
        let from = part << self.part_log2;
        let len = (Self::bytes(self.entries) - from).min(1 << self.part_log2);
        // SAFETY: the callers assert that the part begins in the table, whose addresses are one reservation.
        let place = unsafe { self.base.add(from) };
        let done = map_at(Some(place), len, array.as_fd(), self.offset + from, READ_WRITE);
        assert!(done.is_ok(), "mapping {len} bytes of a table: {done:?}");
        self.mapped.fetch_or(1 << part, Release);
    }

    /// Opens the table `name`, which this process has made if it is `new`.
    pub(crate) fn of(name: &str, map: &MapHandle, new: bool) -> Result<Self> {
        let bytes = map.max_entries() as usize * map.value_size() as usize;
        let mut table = Self::whole(map.as_fd(), bytes).doing(|| format!("mapping the table {name}"))?;
        table.new = new;
        Ok(table)
    }

    /// Opens the array behind `fd`, whose elements have `bytes` bytes together: one row per element, or all
    /// rows in one element.
    pub(crate) fn whole(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::map(fd, (bytes / size_of::<T>()).max(1))
    }

    fn bytes(entries: usize) -> usize {
        (Self::STRIDE * entries).next_multiple_of(page_size())
    }

    /// A word of a row, by its offset in bytes.
    pub(crate) fn u64(&self, row: usize, offset: usize) -> &AtomicU64 {
        assert!(
            row < self.entries && offset + 8 <= Self::STRIDE && offset.is_multiple_of(8),
            "row {row}, offset {offset}"
        );
        // SAFETY: in bounds and aligned by the assertion (STRIDE is a multiple of 8), mapped by
        // `place`; the other side of the sharing is the kernel's programs, whose accesses are single words.
        unsafe { &*self.place(row * Self::STRIDE + offset).cast::<AtomicU64>() }
    }
    /// Half a word of a row, by its offset in bytes.
    pub(crate) fn u32(&self, row: usize, offset: usize) -> &AtomicU32 {
        assert!(
            row < self.entries && offset + 4 <= Self::STRIDE && offset.is_multiple_of(4),
            "row {row}, offset {offset}"
        );
        // SAFETY: as in `u64`.
        unsafe { &*self.place(row * Self::STRIDE + offset).cast::<AtomicU32>() }
    }

    /// One byte of a row, by its offset.
    pub(crate) fn u8(&self, row: usize, offset: usize) -> &AtomicU8 {
        assert!(row < self.entries && offset < Self::STRIDE, "row {row}, offset {offset}");
        // SAFETY: as in `u64`.
        unsafe { &*self.place(row * Self::STRIDE + offset).cast::<AtomicU8>() }
    }

    /// All words of the table, for rows that consist of `u32`s only.
    pub(crate) fn all(&self) -> &[AtomicU32] {
        let parts = Self::bytes(self.entries).div_ceil(1 << self.part_log2);
        if self.mapped.load(Acquire).count_ones() as usize != parts {
            (0..parts).for_each(|part| self.map_part(part));
        }
        // SAFETY: mapped now, and for as long as `self` lives: `entries` rows of STRIDE bytes, a multiple of 8; the mapping
        // begins at a page; sharing as in `u64`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), Self::STRIDE / 4 * self.entries) }
    }

    /// Copies a row. A word that changes meanwhile is old or new, independently of the others.
    pub(crate) fn get(&self, row: usize) -> T {
        let mut words = vec![0_u64; Self::STRIDE / 8];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.u64(row, at * 8).load(Relaxed);
        }
        let bytes = &words.as_bytes()[..size_of::<T>()];
        T::read_from_bytes(bytes).unwrap_or_else(|_| T::new_zeroed())
    }
    /// True if the row is part of a new array in which this process has accessed no row near it: it is as it was made, zeros,
    /// unless a program has written into it.
    pub(crate) fn is_blank(&self, row: usize) -> bool {
        let part = |at: usize| self.mapped.load(Acquire) >> (at >> self.part_log2) & 1;
        let from = row * Self::STRIDE;
        self.new && row < self.entries && part(from) == 0 && part(from + Self::STRIDE - 1) == 0
    }
    /// Writes the words of a row that differ. Zeros are not written into a blank row, so the row must not be one that programs
    /// write into before this process does.
    pub(crate) fn set(&self, row: usize, value: &T) {
        if self.is_blank(row) && is_zero(value) {
            return;
        }
        for (at, new) in words(value).enumerate() {
            let word = self.u64(row, at * 8);
            if word.load(Relaxed) != new {
                word.store(new, Relaxed);
            }
        }
    }
}

/// True if every byte of a value is 0.
pub(crate) fn is_zero<T: IntoBytes + Immutable>(value: &T) -> bool {
    value.as_bytes().iter().all(|byte| *byte == 0)
}

/// The words of a value; the last one is padded with zeros.
fn words<T: IntoBytes + Immutable>(value: &T) -> impl Iterator<Item = u64> + '_ {
    value.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let len = (size_of::<T>().next_multiple_of(8) * self.entries).next_multiple_of(page_size());
        // SAFETY: this is the reservation made by `map_from`, with the parts in it, and no references to it are left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
}

/// Reserves addresses for `len` bytes of an array, without mapping any. The kernel refuses a length that the array does not have.
fn reserve(len: usize, array: BorrowedFd<'_>, offset: usize) -> io::Result<NonNull<u8>> {
    let page = page_size();
    let last = map_at(None, page, array, offset + len - page, READ_WRITE)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the first call removes the mapping that was made above, which nothing refers to. The second one makes a new
    // mapping, without access.
    unsafe {
        libc::munmap(last.as_ptr().cast(), page);
        address(libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0))
    }
}

/// Maps `len` bytes of an array from byte `offset` on: at `place`, where the caller has reserved them, or anywhere.
fn map_at(
    place: Option<NonNull<u8>>,
    len: usize,
    array: BorrowedFd<'_>,
    offset: usize,
    access: i32,
) -> io::Result<NonNull<u8>> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let flags = libc::MAP_SHARED | if place.is_some() { libc::MAP_FIXED } else { 0 };
    let place = place.map_or(std::ptr::null_mut(), NonNull::as_ptr);
    // SAFETY: a shared mapping of an open descriptor, in the place of a reservation of the caller or in a new place.
    address(unsafe { libc::mmap(place.cast(), len, access, flags, array.as_raw_fd(), offset) })
}

/// The result of mmap(2).
fn address(returned: *mut libc::c_void) -> io::Result<NonNull<u8>> {
    let found = NonNull::new(returned.cast::<u8>()).filter(|_| returned != libc::MAP_FAILED);
    found.ok_or_else(io::Error::last_os_error)
}

/// The bytes that wait in a ring (BPF_MAP_TYPE_RINGBUF). Its memory begins with two pages that have a position each: up to which
/// this process has read, and up to which programs have written. Only these are mapped.
pub(crate) fn ring_bytes(ring: BorrowedFd<'_>) -> io::Result<u64> {
    let (page, len) = (page_size(), 2 * page_size());
    let pages = map_at(None, len, ring, 0, libc::PROT_READ)?;
    // SAFETY: two mapped pages, each of which begins with a word that the kernel or another thread may change; nothing refers to
    // them after they have been unmapped.
    let [read, written] = unsafe {
        let positions = [0, page].map(|at| (*pages.add(at).cast::<AtomicU64>().as_ref()).load(Acquire));
        libc::munmap(pages.as_ptr().cast(), len);
        positions
    };
    Ok(written.saturating_sub(read))
}

fn page_size() -> usize {
    // SAFETY: sysconf reads a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The memory that a map occupies in bytes, from its descriptor's fdinfo; 0 when the kernel does not report
/// it.
pub(crate) fn map_bytes(fd: BorrowedFd<'_>) -> u64 {
    let read = || -> io::Result<String> {
        io::read_to_string(File::open(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?)
    };
    let text = read().unwrap_or_default();
    let memlock = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    memlock.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::{MapFlags, MapType};

    const ROWS: usize = 16 * PART / 8;

    /// An array of one element of [`ROWS`] words; `None` where this process may not make one.
    fn array() -> Option<MapHandle> {
        if let Err(why) = crate::available() {
            println!("skipped: {why}");
            return None;
        }
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let made = MapHandle::create(MapType::Array, Some("ly_test"), 4, ROWS as u32 * 8, 1, &opts);
        Some(made.expect("an array"))
    }

    #[test]
    fn a_part_is_mapped_when_it_is_accessed() {
        let Some(array) = array() else { return };
        let table = Shared::<u64>::map(array.as_fd(), ROWS).expect("opened");
        assert_eq!(table.mapped.load(Relaxed), 0);
        table.set(ROWS - 1, &9);
        table.u32(0, 4).store(7, Relaxed);
        assert_eq!(table.mapped.load(Relaxed), 1 << 15 | 1);
        assert_eq!([table.get(0), table.get(ROWS - 1), table.get(PART / 8 - 1)], [7 << 32, 9, 0]);
        let bytes = array.lookup(&[0; 4], MapFlags::ANY).expect("read").expect("an element");
        assert_eq!((bytes[4], bytes[(ROWS - 1) * 8]), (7, 9), "the kernel has the same words");
        let all = table.all();
        assert_eq!((all.len(), all[1].load(Relaxed), all[2 * (ROWS - 1)].load(Relaxed)), (2 * ROWS, 7, 9));
        assert_eq!(table.mapped.load(Relaxed), 0xffff);
    }

    #[test]
    fn zeros_are_not_written_into_a_blank_row() {
        let Some(array) = array() else { return };
        let table = Shared::<u64>::of("test", &array, true).expect("opened");
        table.set(5, &0);
        assert_eq!((table.mapped.load(Relaxed), table.is_blank(5)), (0, true));
        table.set(5, &1);
        table.set(5, &0);
        assert_eq!((table.get(5), table.is_blank(4), table.is_blank(PART / 8)), (0, false, true));
        // An array that was found may hold anything.
        table.set(ROWS - 1, &1);
        let found = Shared::<u64>::of("test", &array, false).expect("opened");
        assert!(!found.is_blank(ROWS - 1));
        found.set(ROWS - 1, &0);
        assert_eq!(table.get(ROWS - 1), 0);
    }

    #[test]
    fn a_row_that_reaches_into_a_mapped_part_is_not_blank() {
        let Some(array) = array() else { return };
        let table = Shared::<[u64; 65]>::of("test", &array, true).expect("opened");
        let straddles = PART / 520;
        table.u64(straddles, 512).store(3, Relaxed);
        assert_eq!((table.mapped.load(Relaxed), table.is_blank(straddles)), (2, false));
        table.set(straddles, &[0; 65]);
        assert_eq!(table.get(straddles), [0; 65]);
    }

    #[test]
    fn a_new_ring_holds_no_bytes() {
        if let Err(why) = crate::available() {
            return println!("skipped: {why}");
        }
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let ring = MapHandle::create(MapType::RingBuf, Some("ly_test"), 0, 0, 1 << 16, &opts);
        // The kernel refuses to map the position of the programs for writing.
        assert_eq!(ring_bytes(ring.expect("a ring").as_fd()).expect("mapped"), 0);
    }

    #[test]
    fn a_length_that_the_array_does_not_have_is_refused() {
        let Some(array) = array() else { return };
        for rows in [ROWS + 1, 100 * ROWS] {
            assert!(Shared::<u64>::map(array.as_fd(), rows).is_err());
        }
        let behind = Shared::<u64>::map_from(array.as_fd(), PART, ROWS);
        assert!(behind.is_err());
    }
}
