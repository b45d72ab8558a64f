//! The look-up structures of a router's longest-prefix match, as words in memory that somebody else reads meanwhile.
//!
//! [`ipv4`] is DIR-24-8 (Gupta, Lin and McKeown, "Routing lookups in hardware at memory access speeds", INFOCOM 1998);
//! [`ipv6`] a trie of one cache line a node with compressed paths. The eBPF plane puts their words into arrays that its
//! programs read; `bpf/fib.h` is the reader in C, [`ipv4::lookup`] and [`ipv6::lookup`] are the same in Rust.
//!
//! Invariant: at every moment, also between any two stores of an update, a look-up answers what it answered before the update
//! or what it answers after it. What a reader may still be standing on is not written again until [`Pool::settle`] says that
//! all readers of before are gone.

pub mod ipv4;
pub mod ipv6;
mod pool;
mod rib;
mod words;

pub use pool::Pool;
pub use rib::{Rib, View};
pub use words::Words;

/// No route.
pub const NONE: u32 = 0;
/// The first number that is no leaf: what a route leads to is 1..LEAVES, and means nothing here.
pub const LEAVES: u32 = 1 << 30;
/// Words of a line: a cache line of 64 bytes.
pub const LINE: usize = 16;

/// The structure has no room for what the route needs; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;
