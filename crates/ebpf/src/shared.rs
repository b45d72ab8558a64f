//! A table that the programs and this process share: a `BPF_F_MMAPABLE` array, mapped as a whole.
//!
//! Read first: Documentation/bpf/map_array.rst of the kernel, on BPF_F_MMAPABLE. The programs read while this process
//! writes, so every access is one atomic load or store of one aligned word.
//!
//! Invariant: `entries * stride` bytes from `base` on stay mapped for as long as the value lives.

use crate::error::{Doing, Result};
use libbpf_rs::{MapCore, MapHandle};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A mapped array of `T`, each in a slot of `stride` bytes.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    base: NonNull<u8>,
    entries: usize,
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

    /// Maps the array behind `fd`, which has `entries` elements of `T`'s size.
    pub(crate) fn map(fd: BorrowedFd<'_>, entries: usize) -> io::Result<Self> {
        Self::map_from(fd, 0, entries)
    }

    /// Maps `entries` elements from byte `offset` of the array behind `fd` on. The offset must be a multiple of a page.
    pub(crate) fn map_from(fd: BorrowedFd<'_>, offset: usize, entries: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let len = Self::bytes(entries);
        // SAFETY: a new shared mapping of an open descriptor; the kernel refuses a length that the map does not
        // have.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Self { base, entries, row: PhantomData })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Maps the table `name`.
    pub(crate) fn of(name: &str, map: &MapHandle) -> Result<Self> {
        Self::whole(map.as_fd(), map.max_entries() as usize * map.value_size() as usize)
            .doing(|| format!("mapping the table {name}"))
    }

    /// Maps the array behind `fd`, whose elements have `bytes` bytes together: one row per element, or all
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
        // SAFETY: in bounds and aligned by the assertion (STRIDE is a multiple of 8), mapped by the type's
        // invariant; the other side of the sharing is the kernel's programs, whose accesses are single words.
        unsafe { &*self.base.as_ptr().add(row * Self::STRIDE + offset).cast::<AtomicU64>() }
    }
    /// Half a word of a row, by its offset in bytes.
    pub(crate) fn u32(&self, row: usize, offset: usize) -> &AtomicU32 {
        assert!(
            row < self.entries && offset + 4 <= Self::STRIDE && offset.is_multiple_of(4),
            "row {row}, offset {offset}"
        );
        // SAFETY: as in `u64`.
        unsafe { &*self.base.as_ptr().add(row * Self::STRIDE + offset).cast::<AtomicU32>() }
    }

    /// One byte of a row, by its offset.
    pub(crate) fn u8(&self, row: usize, offset: usize) -> &AtomicU8 {
        assert!(row < self.entries && offset < Self::STRIDE, "row {row}, offset {offset}");
        // SAFETY: as in `u64`.
        unsafe { &*self.base.as_ptr().add(row * Self::STRIDE + offset).cast::<AtomicU8>() }
    }

    /// All words of the table, for rows that consist of `u32`s only.
    pub(crate) fn all(&self) -> &[AtomicU32] {
        // SAFETY: mapped by the type's invariant for as long as `self` lives, `entries` rows of STRIDE bytes, a multiple of
        // 8; the mapping begins at a page; sharing as in `u64`.
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
    /// Writes the words of a row that differ.
    pub(crate) fn set(&self, row: usize, value: &T) {
        for (at, new) in words(value).enumerate() {
            let word = self.u64(row, at * 8);
            if word.load(Relaxed) != new {
                word.store(new, Relaxed);
            }
        }
    }
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
        // SAFETY: this is the mapping made by `map`, and no references to it are left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
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
