//! [`Words`]: the memory the structures lie in.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words that readers see one by one, in the order they are stored.
pub trait Words {
    /// Reads one.
    fn load(&self, at: usize) -> u32;
    /// Writes one; everything stored before is seen by whoever sees this.
    fn store(&self, at: usize, word: u32);
}

impl Words for [AtomicU32] {
    fn load(&self, at: usize) -> u32 {
        self[at].load(Ordering::Acquire)
    }
    fn store(&self, at: usize, word: u32) {
        self[at].store(word, Ordering::Release);
    }
}

/// Two memories, one behind the other.
#[derive(Debug, Clone, Copy)]
pub struct Joined<'a, A: ?Sized, B: ?Sized> {
    /// The first words.
    pub first: &'a A,
    /// How many they are.
    pub words: usize,
    /// The words behind them.
    pub rest: &'a B,
}

impl<A: Words + ?Sized, B: Words + ?Sized> Words for Joined<'_, A, B> {
    fn load(&self, at: usize) -> u32 {
        match at.checked_sub(self.words) {
            None => self.first.load(at),
            Some(at) => self.rest.load(at),
        }
    }
    fn store(&self, at: usize, word: u32) {
        match at.checked_sub(self.words) {
            None => self.first.store(at, word),
            Some(at) => self.rest.store(at, word),
        }
    }
}

/// A memory without its first words.
pub(crate) struct Behind<'a, W: ?Sized> {
    pub words: &'a W,
    /// So many.
    pub skip: usize,
}

impl<W: Words + ?Sized> Words for Behind<'_, W> {
    fn load(&self, at: usize) -> u32 {
        self.words.load(self.skip + at)
    }
    fn store(&self, at: usize, word: u32) {
        self.words.store(self.skip + at, word);
    }
}

/// These words of one memory into another where they are all 0.
pub(crate) fn copy(from: &(impl Words + ?Sized), to: &(impl Words + ?Sized), words: Range<usize>) {
    for at in words {
        let word = from.load(at);
        if word != 0 {
            to.store(at, word);
        }
    }
}
