//! [`Forest`]: tries and the hashes whose slots they begin at, in one memory that is made anew, larger, when it is full.
//!
//! Layout: what is in front of the first line for a trie is the owner's, a header line above all; then lines; then the buckets
//! of each hash. The header says where those begin ([`crate::slots`]).

use crate::slots::Slots;
use crate::trie::{Lines, line_at};
use crate::{Full, LINE, MANY, Words};

/// Lines of tries, and `N` hashes.
#[derive(Debug)]
pub(crate) struct Forest<const N: usize> {
    pub lines: Lines,
    pub hashes: [Slots; N],
    /// Lines that there are at first, if there are any, and at most.
    first: u32,
    most: u32,
    /// The hash that wants to be larger; otherwise it is the lines.
    narrow: Option<usize>,
}

impl<const N: usize> Forest<N> {
    /// Over memory that there is not yet.
    pub(crate) fn new(lines: Lines, hashes: [Slots; N], first: u32, most: u32) -> Self {
        Self { lines, hashes, first, most, narrow: None }
    }
    /// Lines that a trie may take.
    ///
    /// # Errors
    /// [`Full`], and it is the lines that want to be more.
    pub(crate) fn room(&mut self, lines: u32) -> Result<(), Full> {
        if self.lines.pool.available() < lines {
            self.narrow = None;
            return Err(Full);
        }
        Ok(())
    }
    /// [`Slots::claim`] of a hash.
    pub(crate) fn claim(
        &mut self,
        words: &(impl Words + ?Sized),
        hash: usize,
        key: u64,
    ) -> Result<usize, Full> {
        let claimed = self.hashes[hash].claim(words, key, &mut self.lines);
        claimed.inspect_err(|_| self.narrow = Some(hash))
    }
    /// Words there are: none while there is no line.
    pub(crate) fn words(&self) -> usize {
        match self.lines.pool.capacity() {
            0 => 0,
            lines => self.words_of((lines, self.buckets())),
        }
    }
    pub(crate) fn waiting(&self) -> u32 {
        self.lines.pool.waiting() + self.hashes.iter().map(Slots::waiting).sum::<u32>()
    }
    /// A grace period would give back much of what was last wanting.
    pub(crate) fn worth_waiting(&self) -> bool {
        self.narrow.map_or(self.lines.pool.waiting(), |hash| self.hashes[hash].waiting()) > MANY
    }
    pub(crate) fn settle(&mut self) {
        self.lines.pool.settle();
        self.hashes.iter_mut().for_each(Slots::settle);
    }
    /// Words of the next larger memory that has more of what was last wanting.
    pub(crate) fn larger(&self) -> Option<usize> {
        self.next().map(|size| self.words_of(size))
    }
    /// Writes everything into that memory.
    pub(crate) fn move_to(&mut self, from: &(impl Words + ?Sized), to: &(impl Words + ?Sized)) {
        let Some((lines, buckets)) = self.next() else { return };
        if self.words() > 0 {
            crate::words::copy(from, to, 0..self.lines.end(self.lines.pool.capacity()));
        }
        self.lines.pool.grow(lines);
        let mut begin = self.lines.end(lines);
        for (hash, buckets) in self.hashes.iter_mut().zip(buckets) {
            hash.move_to(from, to, (begin, buckets), &mut self.lines);
            begin += line_at(buckets);
        }
    }

    fn buckets(&self) -> [u32; N] {
        std::array::from_fn(|hash| self.hashes[hash].buckets())
    }
    fn words_of(&self, (lines, buckets): (u32, [u32; N])) -> usize {
        self.lines.end(lines) + buckets.iter().sum::<u32>() as usize * LINE
    }
    /// Lines, and buckets of each hash.
    fn next(&self) -> Option<(u32, [u32; N])> {
        let (lines, mut buckets) = (self.lines.pool.capacity(), self.buckets());
        if lines == 0 {
            return Some((self.first, self.hashes.each_ref().map(|hash| hash.larger().unwrap_or(0))));
        }
        if let Some(hash) = self.narrow {
            buckets[hash] = self.hashes[hash].larger()?;
            return Some((lines, buckets));
        }
        (lines < self.most).then(|| ((lines * 2).min(self.most), buckets))
    }
}
