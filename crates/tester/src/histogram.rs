//! A histogram of times with the same buckets as in the kernel: log-linear, 32 per octave.
//!
//! Read first: `bucket_of` in `bpf/trial.h`, which fills what [`Histogram::from_kernel`] reads. Invariant: a value
//! computed from its bucket (the bucket's middle) differs from the recorded one by at most 1 part in 64. Minimum,
//! maximum and mean are exact.

use serde::{Deserialize, Serialize};

/// The binary logarithm of the number of buckets per octave.
const SUB_BITS: u32 = 5;
/// Buckets in all: values up to [`VALUE_MAX`].
pub const BUCKETS: usize = 1024;
/// The largest value with a bucket of its own, in ns: 68.7 s. A larger value counts as this one.
pub const VALUE_MAX: u64 = (1 << 36) - 1;

/// The bucket of a value in ns.
#[must_use]
pub const fn bucket_of(value: u64) -> usize {
    let value = if value > VALUE_MAX { VALUE_MAX } else { value };
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    ((shift << SUB_BITS) as u64 + (value >> shift)) as usize
}

/// The smallest value of a bucket in ns, and the number of values that it covers.
#[must_use]
pub const fn bucket_range(bucket: usize) -> (u64, u64) {
    if bucket < 2 << SUB_BITS {
        return (bucket as u64, 1);
    }
    let shift = (bucket >> SUB_BITS) - 1;
    (((bucket - (shift << SUB_BITS)) as u64) << shift, 1 << shift)
}

/// A count of times in nanoseconds by bucket.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Sparse", try_from = "Sparse")]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Converts the kernel's counts. `counts` shorter than [`BUCKETS`] are those of the smallest values.
    #[must_use]
    pub fn from_kernel(counts: &[u32], sum: u64, min: u64, max: u64) -> Self {
        let mut histogram = Self::default();
        for (mine, theirs) in histogram.counts.iter_mut().zip(counts) {
            *mine = u64::from(*theirs);
        }
        histogram.count = histogram.counts.iter().sum();
        if histogram.count > 0 {
            (histogram.sum, histogram.min, histogram.max) = (sum, min, max);
        }
        histogram
    }

    /// Counts one value in ns.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The number of values that were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value in ns, exact; `None` without values, like the other statistics.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value in ns, exact.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean in ns, exact.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The value in ns that `percent` (0..=100) of all values do not exceed: 50 is the median. Exact to 1 part in
    /// 64.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        let (low, width) = bucket_range(bucket);
        Some((low + width / 2).clamp(self.min, self.max))
    }

    /// Every bucket that is not empty: its smallest value in ns, the number of values it covers, and its
    /// count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(bucket, n)| {
            let (low, width) = bucket_range(bucket);
            (low, width, *n)
        })
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (min, median, max) = (self.min(), self.percentile(50.0), self.max());
        write!(f, "Histogram({} of {min:?} {median:?} {max:?} ns)", self.count)
    }
}

/// The serialised form of a histogram, which omits empty buckets.
#[derive(Serialize, Deserialize)]
struct Sparse {
    /// Bucket number and count.
    buckets: Vec<(usize, u64)>,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl From<Histogram> for Sparse {
    fn from(h: Histogram) -> Self {
        let buckets = h.counts.iter().copied().enumerate().filter(|(_, n)| *n > 0).collect();
        Self { buckets, sum_ns: h.sum, min_ns: h.min().unwrap_or(0), max_ns: h.max }
    }
}

impl TryFrom<Sparse> for Histogram {
    type Error = String;

    fn try_from(sparse: Sparse) -> Result<Self, String> {
        let mut histogram = Self::default();
        for (bucket, n) in sparse.buckets {
            let slot = histogram.counts.get_mut(bucket).ok_or_else(|| format!("bucket {bucket}"))?;
            *slot = n;
            histogram.count = histogram.count.checked_add(n).ok_or("more than can be counted")?;
        }
        if histogram.count > 0 {
            (histogram.sum, histogram.min, histogram.max) = (sparse.sum_ns, sparse.min_ns, sparse.max_ns);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_once() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, width) = bucket_range(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(low + width - 1)), (bucket, bucket));
            next = low + width;
        }
        assert_eq!(next, VALUE_MAX + 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_value_comes_back_within_two_percent() {
        let check = |value: u64| {
            let mut histogram = Histogram::default();
            histogram.record(value);
            // A single value would be exact, because results are clamped to minimum and maximum. Put it
            // between two others.
            histogram.record(0);
            histogram.record(VALUE_MAX);
            let reported = histogram.percentile(50.0).unwrap_or(0);
            let error = (reported as f64 - value as f64).abs() / value as f64;
            assert!(error <= 1.0 / 64.0, "{value} reported as {reported}");
        };
        for value in [1, 31, 32, 63, 64, 65, 999, 1000, 1_000_003, 123_456_789_012 / 2] {
            check(value);
        }
        let mut value = 7u64;
        for _ in 0..2000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            check((value >> 28).max(1));
        }
    }

    #[test]
    fn figures() {
        let mut all = Histogram::default();
        assert_eq!((all.min(), all.max(), all.mean(), all.percentile(50.0)), (None, None, None, None));
        let mut half = Histogram::default();
        for value in 1..=10 {
            if value % 2 == 0 {
                half.record(value)
            } else {
                all.record(value)
            };
        }
        all.merge(&half);
        assert_eq!((all.count(), all.min(), all.max(), all.mean()), (10, Some(1), Some(10), Some(5.5)));
        let at = |percent| all.percentile(percent);
        assert_eq!(
            (at(0.0), at(10.0), at(50.0), at(99.0), at(100.0)),
            (Some(1), Some(1), Some(5), Some(10), Some(10))
        );
        all.merge(&Histogram::default());
        assert_eq!(all.min(), Some(1));
    }

    #[test]
    fn writing_it_down_loses_nothing() {
        for values in [&[][..], &[5, 5, 1_000_000, 77]] {
            let mut histogram = Histogram::default();
            values.iter().for_each(|v| histogram.record(*v));
            let text = serde_json::to_string(&histogram).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Histogram>(&text).ok(), Some(histogram), "{text}");
        }
        let bad = r#"{"buckets":[[1024,1]],"sum_ns":0,"min_ns":0,"max_ns":0}"#;
        assert!(serde_json::from_str::<Histogram>(bad).is_err());
    }
}
