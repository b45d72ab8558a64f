//! Sampling of received frames (sFlow), in the form that the configuration and the planes use.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// One frame in this many is sampled, at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SamplingRate(NonZeroU32);

impl SamplingRate {
    /// The most bytes of a sampled frame that a plane reports, tags included.
    pub const HEAD: usize = 128;
    /// The shortest mean time between two samples, in nanoseconds. The limit holds for each processor in the kernel,
    /// and for all ports together in the soft plane.
    pub const INTERVAL_NS: u64 = 250_000;
    /// The most samples that may be taken at once after a time without samples.
    pub const BURST: u64 = 1000;
    /// The highest number of frames of which one is sampled.
    pub const MAX: u32 = 16_777_215;

    /// One frame in `frames`, 1 to [`SamplingRate::MAX`]; `None` for other numbers.
    #[must_use]
    pub fn new(frames: u32) -> Option<Self> {
        NonZeroU32::new(frames).filter(|frames| frames.get() <= Self::MAX).map(Self)
    }
    /// The number of frames of which one is sampled.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
    /// The probability that a frame is sampled, in units of 2^-32.
    #[must_use]
    pub const fn chance(self) -> u64 {
        (1 << 32) / self.0.get() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_is_one_in_so_many() {
        let chance = |frames| SamplingRate::new(frames).map(SamplingRate::chance);
        assert_eq!((chance(1), chance(4)), (Some(1 << 32), Some(1 << 30)));
        assert_eq!(
            (chance(SamplingRate::MAX), chance(SamplingRate::MAX + 1), chance(0)),
            (Some(256), None, None)
        );
    }
}
