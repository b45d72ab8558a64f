//! The daemon's clocks: a monotonic one for deadlines, and the time of day for messages.

use jiff::Timestamp;
use std::time::Instant;

/// A monotonic clock in milliseconds, which starts at 0.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Instant,
    /// The machine's uptime at the start of this clock, in milliseconds.
    boot_ms: u64,
    /// The time set by a test.
    #[cfg(test)]
    manual: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

impl Clock {
    /// A clock that starts at 0.
    #[must_use]
    pub fn start() -> Self {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds: f64 = uptime.split_whitespace().next().and_then(|s| s.parse().ok()).unwrap_or(0.0);
        Self {
            start: Instant::now(),
            boot_ms: (seconds * 1000.0) as u64,
            #[cfg(test)]
            manual: None,
        }
    }
    /// A clock that stands still until `now_ms` is set.
    #[cfg(test)]
    pub fn manual(now_ms: std::sync::Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self { start: Instant::now(), boot_ms: 0, manual: Some(now_ms) }
    }
    /// Milliseconds since the start.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        #[cfg(test)]
        if let Some(now_ms) = &self.manual {
            return now_ms.load(std::sync::atomic::Ordering::SeqCst);
        }
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
    /// The instant that corresponds to a time on this clock.
    #[must_use]
    pub fn instant(&self, at_ms: u64) -> Instant {
        self.start + std::time::Duration::from_millis(at_ms)
    }
    /// The machine's uptime in milliseconds: the time base of data that outlives this daemon.
    #[must_use]
    pub fn boot_ms(&self) -> u64 {
        self.boot_ms + self.now_ms()
    }
    /// The time of day in milliseconds of Unix time; of a clock that a test sets, its time.
    #[must_use]
    pub fn unix_ms(&self) -> u64 {
        #[cfg(test)]
        if self.manual.is_some() {
            return self.now_ms();
        }
        u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
    }
    /// Converts an uptime to a time on this clock.
    #[must_use]
    pub const fn of_boot(&self, at_ms: u64) -> u64 {
        at_ms.saturating_sub(self.boot_ms)
    }
}

/// The time of day now, RFC 3339, UTC, milliseconds: `2026-01-31T23:59:59.123Z`.
#[must_use]
pub fn wall_clock() -> String {
    rfc3339(Timestamp::now())
}

/// Milliseconds until the clock, in a time zone so many minutes east of UTC, next shows this time of day: more than 0 and at most
/// 24 hours.
#[must_use]
pub fn until_time_of_day(hour: u8, minute: u8, east_minutes: i32) -> u64 {
    let wanted_ms = (u64::from(hour) * 60 + u64::from(minute)) * 60_000;
    let local_ms = Timestamp::now().as_millisecond() + i64::from(east_minutes) * 60_000;
    until(local_ms.rem_euclid(DAY_MS.cast_signed()).cast_unsigned(), wanted_ms)
}

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Milliseconds from one time of day to the next occurrence of another.
const fn until(now_ms: u64, wanted_ms: u64) -> u64 {
    if wanted_ms > now_ms { wanted_ms - now_ms } else { wanted_ms + DAY_MS - now_ms }
}

fn rfc3339(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        assert_eq!(until(60_000, 120_000), 60_000);
        assert_eq!(until(120_000, 60_000), DAY_MS - 60_000);
        assert_eq!(until(60_000, 60_000), DAY_MS);
        assert!((1..=DAY_MS).contains(&until_time_of_day(23, 59, -1439)));
    }

    #[test]
    fn calendar() {
        for (unix_s, want) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_799, "2000-02-29T23:59:59.007Z"),
            (1_735_689_599, "2024-12-31T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::new(unix_s, 7_999_999).expect("a time")), want);
        }
    }
}
