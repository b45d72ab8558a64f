//! What happens to control frames, and the token buckets that keep them from drowning the control plane.
//!
//! Invariant: a bucket never holds more than its burst, and a rate of 0 passes nothing. Its level is counted
//! in frames x 10^9, so that a refill by nanoseconds is exact in integers.

use crate::Timestamp;
use crate::state::{GlobalState, ReservedAction, TrapRate};
use lanyard_types::{TrapGroup, TrapReason};

/// One frame's worth of level.
const FRAME: u64 = 1_000_000_000;

/// A token bucket, full at first.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: TrapRate,
    level: u64,
    filled: Option<Timestamp>,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: TrapRate) -> Self {
        Self { rate, level: u64::from(rate.burst) * FRAME, filled: None }
    }
    /// Takes one frame's token; false when there is none.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let elapsed_ns = self.filled.map_or(0, |filled| now.as_nanos().saturating_sub(filled.as_nanos()));
        self.filled = Some(self.filled.map_or(now, |filled| filled.max(now)));
        let refill =
            u64::try_from(u128::from(elapsed_ns) * u128::from(self.rate.rate_pps)).unwrap_or(u64::MAX);
        self.level = self.level.saturating_add(refill).min(u64::from(self.rate.burst) * FRAME);
        if self.rate.rate_pps == 0 || self.level < FRAME {
            return false;
        }
        self.level -= FRAME;
        true
    }
}

/// The trap stage's table.
#[derive(Debug)]
pub struct TrapTable {
    global: GlobalState,
    buckets: [TokenBucket; TrapGroup::SLOTS],
}

impl Default for TrapTable {
    fn default() -> Self {
        let global = GlobalState::default();
        let buckets = global.trap_rate.map(TokenBucket::new);
        Self { global, buckets }
    }
}

impl TrapTable {
    /// What happens to reserved address 01:80:C2:00:00:0`nibble`.
    #[must_use]
    pub fn reserved(&self, nibble: u8) -> ReservedAction {
        self.global.reserved[usize::from(nibble & 15)]
    }
    /// True when PVST+ BPDUs are trapped.
    #[must_use]
    pub fn pvst(&self) -> bool {
        self.global.trap_pvst
    }
    /// The settings as they are.
    #[must_use]
    pub fn global(&self) -> &GlobalState {
        &self.global
    }
    /// Takes a token for a frame trapped for `reason`; false when its group is over its rate.
    pub fn admit(&mut self, reason: TrapReason, now: Timestamp) -> bool {
        self.buckets[reason.group().index()].take(now)
    }
    /// Takes new settings. A bucket whose rate changes is full again; the others keep their level.
    pub fn set(&mut self, global: GlobalState) {
        for (bucket, rate) in self.buckets.iter_mut().zip(global.trap_rate) {
            if bucket.rate != rate {
                *bucket = TokenBucket::new(rate);
            }
        }
        self.global = global;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames offered at these times (ns), and which of them pass.
    fn check(rate_pps: u32, burst: u32, offered: &[(u64, bool)]) {
        let mut bucket = TokenBucket::new(TrapRate { rate_pps, burst });
        for (at, (ns, want)) in offered.iter().enumerate() {
            assert_eq!(
                bucket.take(Timestamp::from_nanos(*ns)),
                *want,
                "frame {at} at {ns} ns, {rate_pps}/{burst}"
            );
        }
    }

    #[test]
    fn starts_full_and_refills_by_the_nanosecond() {
        let s = 1_000_000_000;
        check(
            10,
            2,
            &[(0, true), (0, true), (0, false), (s / 10 - 1, false), (s / 10, true), (s / 10, false)],
        );
        check(
            1,
            3,
            &[
                (5, true),
                (5, true),
                (5, true),
                (5, false),
                (100 * s, true),
                (100 * s, true),
                (100 * s, true),
                (100 * s, false),
            ],
        );
        check(3, 1, &[(0, true), (333_333_333, false), (333_333_334, true)]);
    }

    #[test]
    fn edges() {
        check(0, 5, &[(0, false), (u64::MAX, false)]);
        check(5, 0, &[(0, false), (u64::MAX, false)]);
        check(u32::MAX, u32::MAX, &[(0, true), (u64::MAX, true)]);
        check(1, 1, &[(1000, true), (0, false), (1000, false)]); // a clock that steps back refills nothing
    }
}
