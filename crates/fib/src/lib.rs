//! The look-up structures of a router's longest-prefix match, as words in memory that somebody else reads meanwhile.
//!
//! [`ipv4`] is DIR-24-8 (Gupta, Lin and McKeown, "Routing lookups in hardware at memory access speeds", INFOCOM 1998);
//! [`ipv6`] a trie of one cache line a node with compressed paths, entered at 16, 48 or 64 bits. The eBPF plane puts their
//! words into arrays that its programs read; `bpf/fib.h` is the reader in C, [`ipv4::lookup`] and [`ipv6::lookup`] are the same
//! in Rust. What a random destination costs is the cache lines it touches that no other frame does: one for most.
//!
//! Invariant: at every moment, also between any two stores of an update, a look-up answers what it answered before the update
//! or what it answers after it. What a reader may still be standing on is not written again until [`Writer::settle`] says that
//! all readers of before are gone.

pub mod ipv4;
pub mod ipv6;
mod pool;
mod rib;
mod slots;
mod words;

pub use pool::Pool;
pub use rib::{Rib, View};
pub use words::{Joined, Words};

/// No route.
pub const NONE: u32 = 0;
/// The first number that is no leaf: what a route leads to is 1..LEAVES, and means nothing here.
pub const LEAVES: u32 = 1 << 30;
/// Words of a line: a cache line of 64 bytes.
pub const LINE: usize = 16;

/// The writer's side of a structure: which pieces of its memory are in use. The words themselves are handed to each call, all
/// 0 at first.
pub trait Writer {
    /// IPv4 or IPv6.
    type Net;
    /// Words at the beginning that stay where they are when the memory grows: every larger memory begins with the same ones.
    const STAYS: usize;

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
    /// Words of memory there are.
    fn words(&self) -> usize;
    /// The pieces that fill up.
    fn pool(&self) -> &Pool;
    /// Pieces that [`Writer::settle`] would free.
    fn waiting(&self) -> u32;
    /// Every reader that was under way when pieces were last given back has ended.
    fn settle(&mut self);
    /// Words of the next larger memory that has more of what [`Writer::set`] last found no room for; `None` at the largest.
    fn larger(&self) -> Option<usize>;
    /// Writes the same routes into that memory, behind what stays, and goes on by it.
    fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized));
}

/// The structure has no room for what the route needs; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;
