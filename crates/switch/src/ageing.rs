//! Schedules the sweeps of the FDB that remove aged entries (IEEE 802.1Q-2018, 8.8.3).
//!
//! Invariants: a sweep is due when the oldest entry may expire, not at a fixed interval. It comes at least every
//! [`SWEEP_WITHIN_S`], because the clock by which a plane dates entries may wrap around. An empty FDB needs no sweep.
//! Sweeps are at least a second, and at least ten times their own duration, apart.

use lanyard_plane::{SWEEP_WITHIN_S, Sweep};

/// Milliseconds on a monotonic clock.
pub type Millis = u64;

/// The schedule of sweeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ageing {
    ageing_s: u32,
    next_ms: Option<Millis>,
}

/// Least time between sweeps.
const MIN_GAP_MS: Millis = 1000;

impl Ageing {
    /// A schedule whose first sweep is due soon, because an adopted FDB may hold old entries. `ageing_s` 0 turns ageing
    /// off.
    #[must_use]
    pub fn new(now_ms: Millis, ageing_s: u32) -> Self {
        let next_ms = (ageing_s > 0).then_some(now_ms + MIN_GAP_MS);
        Self { ageing_s, next_ms }
    }
    /// The ageing time that [`Plane::fdb_sweep`](lanyard_plane::Plane::fdb_sweep) takes.
    #[must_use]
    pub const fn ageing_s(&self) -> Option<u32> {
        if self.ageing_s == 0 { None } else { Some(self.ageing_s) }
    }
    /// Sets the ageing time. The next sweep, which removes older entries, is due soon.
    pub fn set(&mut self, now_ms: Millis, ageing_s: u32) {
        if self.ageing_s != ageing_s {
            *self = Self::new(now_ms, ageing_s);
        }
    }
    /// Notes that an address was learned, or that events that may have reported one were lost.
    pub fn learned(&mut self, now_ms: Millis) {
        if self.next_ms.is_none() && self.ageing_s > 0 {
            self.next_ms = Some(now_ms + Millis::from(self.ageing_s.min(SWEEP_WITHIN_S)) * 1000);
        }
    }
    /// Notes that a sweep that took `took_ms` ended at `now_ms`.
    pub fn swept(&mut self, now_ms: Millis, took_ms: Millis, sweep: &Sweep) {
        let within = |next_in_s: u32| Millis::from(next_in_s.min(SWEEP_WITHIN_S)) * 1000;
        let gap = |next_in_s| within(next_in_s).max(MIN_GAP_MS).max(took_ms * 10);
        self.next_ms = sweep.next_in_s.filter(|_| self.ageing_s > 0).map(|next_in_s| now_ms + gap(next_in_s));
    }
    /// When the next sweep is due; `None` while there is nothing to age.
    #[must_use]
    pub const fn next_ms(&self) -> Option<Millis> {
        self.next_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_next_expiry() {
        let mut ageing = Ageing::new(0, 300);
        assert_eq!(ageing.next_ms(), Some(1000));
        let sweep = |next_in_s| Sweep { aged: 0, next_in_s };
        ageing.swept(1000, 0, &sweep(None));
        assert_eq!(ageing.next_ms(), None, "an empty FDB needs no sweep");
        ageing.learned(5000);
        ageing.learned(9000);
        assert_eq!(ageing.next_ms(), Some(125_000), "a plane wants to see its entries now and then");
        ageing.swept(125_000, 0, &sweep(Some(180)));
        assert_eq!(ageing.next_ms(), Some(245_000));
        ageing.swept(245_000, 0, &sweep(Some(60)));
        assert_eq!(ageing.next_ms(), Some(305_000), "the first learned is the first to expire");
        ageing.swept(305_000, 0, &sweep(Some(4)));
        assert_eq!(ageing.next_ms(), Some(309_000));
        ageing.swept(309_000, 0, &sweep(Some(0)));
        assert_eq!(ageing.next_ms(), Some(310_000), "never more often than each second");
        ageing.swept(310_000, 400, &sweep(Some(1)));
        assert_eq!(ageing.next_ms(), Some(314_000), "a long sweep earns a long rest");
    }

    #[test]
    fn a_new_ageing_time() {
        let mut ageing = Ageing::new(0, 0);
        assert_eq!((ageing.next_ms(), ageing.ageing_s()), (None, None));
        ageing.learned(10);
        ageing.swept(10, 0, &Sweep { aged: 0, next_in_s: Some(7) });
        assert_eq!(ageing.next_ms(), None, "0 never ages");
        ageing.set(2000, 10);
        assert_eq!((ageing.next_ms(), ageing.ageing_s()), (Some(3000), Some(10)));
        ageing.set(2500, 10);
        assert_eq!(ageing.next_ms(), Some(3000), "the same time again changes nothing");
    }
}
