//! Longest-prefix-match tables in shared memory: one writer updates them while readers on other processors look up.
//!
//! Read first: Gupta, Lin and McKeown, "Routing lookups in hardware at memory access speeds" (INFOCOM 1998) for DIR-24-8.
//!
//! [`ipv4`] has one entry for each /24, as DIR-24-8 has, in as few bits as the routes around it allow; prefixes longer than
//! /24 are in a trie. [`ipv6`] is such a trie throughout: nodes of one cache line with compressed paths, entered through hash
//! tables of the first 64 or 48 bits. A table is one array of cache lines that [`Runs`] allocates; a full table is copied as
//! it is into a larger array. The eBPF plane maps the array into its programs: `bpf/fib.h` is the reader in C,
//! [`ipv4::lookup`] and [`ipv6::lookup`] are the same reader in Rust. The cost of a random destination is the cache lines
//! that it alone touches: one for most routes.
//!
//! Invariant: at every moment, also between two stores of an update, a look-up returns either the result from before the
//! update or the one from after it. Memory that a reader may still hold is quarantined: it is not written again until
//! [`Writer::settle`] confirms that all earlier readers have finished.

mod blocks;
mod hash;
pub mod ipv4;
pub mod ipv6;
pub mod layout;
mod rib;
mod runs;
mod trie;
mod words;

pub use rib::{Rib, View};
pub use runs::Runs;
pub use words::Words;

/// No route.
pub const NONE: u32 = 0;
/// The first number that is not a leaf. A leaf, 1..LEAVES, stands for what a route leads to; this crate does not interpret
/// it.
pub const LEAVES: u32 = 1 << 30;
/// Words of a line: a cache line of 64 bytes.
pub const LINE: usize = 16;

/// The writer's side of a table: which parts of its memory are in use. The memory itself, zeroed at first, is an argument
/// of each call.
pub trait Writer {
    /// IPv4 or IPv6.
    type Net;

    /// An empty table. Its memory has `sizes[0]` lines at first and can grow to each of the following sizes.
    #[must_use]
    fn new(sizes: &'static [u32]) -> Self;
    /// Changes the leaf of `prefix` from `old` to `new`; [`NONE`] means no route.
    ///
    /// # Errors
    /// [`Full`] when the update needs more free lines or slots than there are. [`Writer::settle`] may free some; else the
    /// table must grow ([`Writer::larger`]).
    fn set(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Self::Net,
        old: u32,
        new: u32,
        rib: &impl Rib<Self::Net>,
    ) -> Result<(), Full>;
    /// The allocator of the table's lines.
    fn lines(&self) -> &Runs;
    /// Quarantined lines, slots and numbers, which [`Writer::settle`] would free.
    fn waiting(&self) -> u32;
    /// True if the last [`Writer::set`] failed mainly because freed resources are still quarantined: wait one grace period
    /// before growing.
    fn worth_waiting(&self) -> bool;
    /// Ends the quarantine. The caller guarantees that every reader has finished that was active when something was last
    /// freed.
    fn settle(&mut self);
    /// The number of lines of the next larger memory; `None` at the largest.
    fn larger(&self) -> Option<u32>;
    /// Continues in memory of that size.
    fn grow(&mut self);
    /// Copies the table to `to`, zeroed memory of the next larger size, and continues there.
    fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized)) {
        words::copy(from, to, self.lines().capacity() as usize * LINE);
        self.grow();
    }
}

/// Quarantined items from which on waiting for a grace period is better than growing the table.
const MANY: u32 = 64;

/// The table has no room for the update; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;
