//! The pipeline's time, which its caller supplies.

/// A point in time: nanoseconds since an origin that the caller chooses and keeps for the pipeline's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// The time `secs` seconds after the origin.
    #[must_use]
    pub const fn from_secs(secs: u32) -> Self {
        Self(secs as u64 * 1_000_000_000)
    }
    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Whole seconds since the origin, at most `u32::MAX` (136 years).
    #[must_use]
    pub fn as_secs(self) -> u32 {
        u32::try_from(self.0 / 1_000_000_000).unwrap_or(u32::MAX)
    }
}
