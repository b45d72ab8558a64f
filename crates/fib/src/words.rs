//! [`Words`]: the memory of a table, as 32-bit words.

use std::sync::atomic::{AtomicU32, Ordering};

/// Words that a writer stores while readers load. A reader sees the stores in their order.
pub trait Words {
    /// Loads the word with this index.
    fn load(&self, at: usize) -> u32;
    /// Stores a word with release semantics: a reader that loads it also sees every earlier store.
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

/// Copies the first `words` words of one memory into another that is zeroed.
pub(crate) fn copy(from: &(impl Words + ?Sized), to: &(impl Words + ?Sized), words: usize) {
    for at in 0..words {
        let word = from.load(at);
        if word != 0 {
            to.store(at, word);
        }
    }
}
