//! [`Rng`]: random numbers from a seed, for generated states and frames.

/// A seeded random generator (xorshift64*). It must not be used for secrets.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Returns a generator; different seeds give different sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // One step of splitmix64, so that small seeds differ in all bits; the state must not be 0.
        let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mut rng = Self((z ^ (z >> 27)) | 1);
        rng.next_u64();
        rng
    }
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// A number less than `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next_u64() >> 11).checked_rem(bound).unwrap_or(0)
    }
    /// Returns true with a probability of `percent` %.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    /// One of `items`; `None` when the slice is empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.below(items.len() as u64) as usize).copied()
    }
}
