//! The look-up structures of a router's longest-prefix match, as words in memory that somebody else reads meanwhile.
//!
//! [`ipv4`] is an array by the first 24 bits, as in DIR-24-8 (Gupta, Lin and McKeown, "Routing lookups in hardware at memory
//! access speeds", INFOCOM 1998), and behind it what is in [`ipv6`] from the beginning: a trie of one cache line a node with
//! compressed paths, entered by hashes. The eBPF plane puts their
//! words into arrays that its programs read; `bpf/fib.h` is the reader in C, [`ipv4::lookup`] and [`ipv6::lookup`] are the same
//! in Rust. What a random destination costs is the cache lines it touches that no other frame does: one for most.
//!
//! Invariant: at every moment, also between any two stores of an update, a look-up answers what it answered before the update
//! or what it answers after it. What a reader may still be standing on is not written again until [`Writer::settle`] says that
//! all readers of before are gone.

mod forest;
pub mod ipv4;
pub mod ipv6;
mod pool;
mod rib;
mod slots;
mod trie;
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
    fn size(&self) -> Size;
    /// The pieces that fill up.
    fn pool(&self) -> &Pool;
    /// Pieces that [`Writer::settle`] would free.
    fn waiting(&self) -> u32;
    /// Among them are so many of those [`Writer::set`] last found no room for that it is better to settle than to grow.
    fn worth_waiting(&self) -> bool;
    /// Every reader that was under way when pieces were last given back has ended.
    fn settle(&mut self);
    /// The next larger memory that has more of what [`Writer::set`] last found no room for: one of its two parts is larger,
    /// the other stays. `None` at the largest.
    fn larger(&self) -> Option<Size>;
    /// Writes the same routes into that memory, all 0 where it is larger, and goes on by it.
    fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized));
}

/// Words of the two parts of a structure's memory, which may lie apart ([`Joined`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// What all destinations need; none of an IPv6 structure.
    pub near: usize,
    /// What some need, behind it.
    pub rest: usize,
}

/// Pieces given back that are worth a grace period.
const MANY: u32 = 64;

/// The structure has no room for what the route needs; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;
