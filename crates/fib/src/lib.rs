//! The look-up structures of a router's longest-prefix match, as words in memory that somebody else reads meanwhile.
//!
//! [`ipv4`] has an entry for each /24, as DIR-24-8 has (Gupta, Lin and McKeown, "Routing lookups in hardware at memory
//! access speeds", INFOCOM 1998), of as few bits as it can; behind it is what [`ipv6`] has from the beginning: a trie of one
//! cache line a node with compressed paths, entered by hashes. A table is one memory of lines, given out as they are wanted
//! ([`Runs`]); one that is full is copied into a larger one as it is. The eBPF plane puts it into an array that its programs read;
//! `bpf/fib.h` is the reader in C, [`ipv4::lookup`] and [`ipv6::lookup`] are the same in Rust. What a random destination
//! costs is the cache lines it touches that no other frame does: one for most.
//!
//! Invariant: at every moment, also between any two stores of an update, a look-up answers what it answered before the update
//! or what it answers after it. What a reader may still be standing on is not written again until [`Writer::settle`] says that
//! all readers of before are gone.

mod blocks;
pub mod ipv4;
pub mod ipv6;
mod rib;
mod runs;
mod slots;
mod trie;
mod words;

pub use rib::{Rib, View};
pub use runs::Runs;
pub use words::Words;

/// No route.
pub const NONE: u32 = 0;
/// The first number that is no leaf: what a route leads to is 1..LEAVES, and means nothing here.
pub const LEAVES: u32 = 1 << 30;
/// Words of a line: a cache line of 64 bytes.
pub const LINE: usize = 16;

/// The writer's side of a structure: what of its memory is in use. The words themselves are handed to each call, all
/// 0 at first.
pub trait Writer {
    /// IPv4 or IPv6.
    type Net;

    /// An empty structure in memory that has so many lines at first, and can have each of the other `sizes` after it.
    #[must_use]
    fn new(sizes: &'static [u32]) -> Self;
    /// Makes `prefix`, which led to `old`, lead to `new`; [`NONE`] is no route.
    ///
    /// # Errors
    /// [`Full`] when what it takes is not there. [`Writer::settle`] may help, then [`Writer::larger`].
    fn set(
        &mut self,
        words: &(impl Words + ?Sized),
        prefix: Self::Net,
        old: u32,
        new: u32,
        rib: &impl Rib<Self::Net>,
    ) -> Result<(), Full>;
    /// The lines of the memory.
    fn lines(&self) -> &Runs;
    /// Pieces that [`Writer::settle`] would free.
    fn waiting(&self) -> u32;
    /// Among them are so many of those [`Writer::set`] last found no room for that it is better to settle than to grow.
    fn worth_waiting(&self) -> bool;
    /// Every reader that was under way when pieces were last given back has ended.
    fn settle(&mut self);
    /// Lines of the next larger memory; `None` at the largest.
    fn larger(&self) -> Option<u32>;
    /// Goes on in that memory.
    fn grow(&mut self);
    /// Writes the same routes into that memory, all 0, and goes on by it.
    fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized)) {
        words::copy(from, to, self.lines().capacity() as usize * LINE);
        self.grow();
    }
}

/// Pieces given back that are worth a grace period.
const MANY: u32 = 64;

/// The structure has no room for what the route needs; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;
