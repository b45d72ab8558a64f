//! `logging rate-limit`: how many messages a second the log takes.
//!
//! Invariant: a message that a limit suppresses is counted, and each count is reported in the log once the limit has room again.

use lanyard_config::LogRate;

/// How long messages are suppressed before their number is reported, in milliseconds.
const REPORT_MS: u64 = 1000;

/// A token bucket.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    per_s: u64,
    burst: u64,
    /// The tokens in the bucket, in thousandths of a message.
    tokens: u64,
    at_ms: u64,
}

impl Bucket {
    /// A full bucket: `burst` messages at once, and `per_s` a second.
    pub(crate) const fn full(now_ms: u64, per_s: u64, burst: u64) -> Self {
        Self { per_s, burst, tokens: burst * 1000, at_ms: now_ms }
    }
    /// Takes a message out; false when there is none.
    pub(crate) fn take(&mut self, now_ms: u64) -> bool {
        let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(self.per_s);
        self.at_ms = now_ms;
        self.tokens = self.tokens.saturating_add(gained).min(self.burst * 1000);
        let has_one = self.tokens >= 1000;
        if has_one {
            self.tokens -= 1000;
        }
        has_one
    }
}

/// A limit, and what it has suppressed.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    rate: Option<(LogRate, Bucket)>,
    suppressed: u64,
    /// The number of suppressed messages that have not been reported, and the time at which they will be.
    unreported: u64,
    report_ms: u64,
}

impl Limit {
    /// Follows the configuration. A limit that stays the same keeps its state.
    pub(crate) fn configure(&mut self, now_ms: u64, rate: Option<LogRate>) {
        if self.rate() != rate {
            let bucket = |rate: LogRate| (rate, Bucket::full(now_ms, rate.per_s.into(), rate.per_s.into()));
            self.rate = rate.map(bucket);
        }
    }
    /// True when a message of this severity is within the limit; otherwise it is counted.
    pub(crate) fn admits(&mut self, now_ms: u64, severity: u8) -> bool {
        let Some((rate, bucket)) = &mut self.rate else { return true };
        if !rate.limits(severity) || bucket.take(now_ms) {
            return true;
        }
        if self.unreported == 0 {
            self.report_ms = now_ms + REPORT_MS;
        }
        self.suppressed += 1;
        self.unreported += 1;
        false
    }
    /// The number of messages to report, if a report is due.
    pub(crate) fn report(&mut self, now_ms: u64) -> Option<u64> {
        self.next_ms().filter(|at_ms| *at_ms <= now_ms).map(|_| std::mem::take(&mut self.unreported))
    }
    /// When a report is due.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        (self.unreported > 0).then_some(self.report_ms)
    }
    pub(crate) fn rate(&self) -> Option<LogRate> {
        self.rate.as_ref().map(|(rate, _)| *rate)
    }
    /// All messages that were suppressed since [`Limit::clear`].
    pub(crate) const fn suppressed(&self) -> u64 {
        self.suppressed
    }
    pub(crate) fn clear(&mut self) {
        self.suppressed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(per_s: u32, debugging: bool, except: Option<u8>) -> Limit {
        let mut limit = Limit::default();
        limit.configure(0, Some(LogRate { per_s, debugging, except }));
        limit
    }

    #[test]
    fn messages_over_the_rate_are_counted_and_reported_once() {
        let mut limit = limit(10, false, None);
        assert_eq!((0..15).filter(|_| limit.admits(0, 5)).count(), 10);
        assert_eq!((limit.suppressed(), limit.next_ms(), limit.report(999)), (5, Some(1000), None));
        assert_eq!((limit.report(1000), limit.report(1000), limit.next_ms()), (Some(5), None, None));
        assert_eq!((0..15).filter(|_| limit.admits(1500, 5)).count(), 10, "a second's messages at most");
        assert_eq!((limit.suppressed(), limit.report(2500)), (10, Some(5)));
        limit.clear();
        assert_eq!(limit.suppressed(), 0);
    }

    #[test]
    fn severities_that_are_not_limited() {
        let admitted = |mut limit: Limit, severity| (0..3).filter(|_| limit.admits(0, severity)).count();
        for (debugging, except, severity, count) in [
            (false, None, 0, 1),
            (false, None, 7, 3),
            (true, None, 7, 1),
            (false, Some(3), 3, 3),
            (false, Some(3), 4, 1),
            (true, Some(7), 7, 3),
        ] {
            assert_eq!(admitted(limit(1, debugging, except), severity), count, "{except:?} {severity}");
        }
        let mut none = Limit::default();
        assert!((0..100_000).all(|_| none.admits(0, 5)));
    }

    #[test]
    fn a_limit_that_stays_keeps_its_state() {
        let mut limit = limit(2, false, None);
        let rate = limit.rate();
        assert!(limit.admits(0, 5) && limit.admits(0, 5) && !limit.admits(0, 5));
        limit.configure(0, rate);
        assert!(!limit.admits(0, 5));
        limit.configure(0, None);
        assert!(limit.admits(0, 5));
        assert_eq!((limit.suppressed(), limit.report(5000)), (2, Some(2)), "counts outlive the limit");
    }
}
