//! [`Words`]: the memory the structures lie in.

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

/// The first words of one memory into another, where they are 0.
pub(crate) fn copy(from: &(impl Words + ?Sized), to: &(impl Words + ?Sized), words: usize) {
    for at in 0..words {
        let word = from.load(at);
        if word != 0 {
            to.store(at, word);
        }
    }
}
