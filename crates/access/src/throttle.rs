//! Limits on failed logins, so that secrets cannot be tried at the speed of the processor.
//!
//! A source (the address of a remote host, or a local user) that fails [`TRIES`] times within [`WINDOW_MS`] is blocked for
//! [`BLOCK_MS`]. The scheme is that of `login block-for` in the IOS command reference, but applied to each source
//! separately, so that one source cannot block the others.
//!
//! Invariant: at most [`MAX_SOURCES`] sources are remembered. When there is no room, further sources share one entry.

use std::collections::BTreeMap;

/// Failures within [`WINDOW_MS`] that block a source.
pub const TRIES: u32 = 5;
/// How long a failure counts, in milliseconds.
pub const WINDOW_MS: u64 = 60_000;
/// How long a source is blocked, in milliseconds.
pub const BLOCK_MS: u64 = 60_000;
/// The maximum number of sources.
pub const MAX_SOURCES: usize = 1024;

/// The key of the entry that further sources share when the table is full.
const OTHERS: &str = "";

/// The sources that have failed recently.
#[derive(Debug, Default)]
pub struct Throttle {
    sources: BTreeMap<String, Failures>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Failures {
    count: u32,
    first_ms: u64,
    blocked_until_ms: u64,
}

impl Failures {
    fn is_over(&self, now_ms: u64) -> bool {
        self.blocked_until_ms <= now_ms && now_ms.saturating_sub(self.first_ms) > WINDOW_MS
    }
}

impl Throttle {
    /// The time until `source` may try again, in milliseconds; `None` when it may try now.
    #[must_use]
    pub fn blocked_ms(&self, now_ms: u64, source: &str) -> Option<u64> {
        let until_ms = self.sources.get(self.key(source))?.blocked_until_ms;
        until_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0)
    }
    /// Records that `source` has failed; returns true when that blocks it.
    pub fn failed(&mut self, now_ms: u64, source: &str) -> bool {
        self.sources.retain(|_, failures| !failures.is_over(now_ms));
        let key = if self.sources.len() < MAX_SOURCES { source } else { self.key(source) }.to_owned();
        let failures = self.sources.entry(key).or_default();
        if now_ms.saturating_sub(failures.first_ms) > WINDOW_MS {
            *failures = Failures { first_ms: now_ms, ..Failures::default() };
        }
        if failures.count == 0 {
            failures.first_ms = now_ms;
        }
        failures.count += 1;
        if failures.count < TRIES {
            return false;
        }
        *failures = Failures { blocked_until_ms: now_ms + BLOCK_MS, first_ms: now_ms, count: 0 };
        true
    }
    /// Records that `source` has logged in.
    pub fn succeeded(&mut self, source: &str) {
        self.sources.remove(source);
    }

    fn key<'a>(&self, source: &'a str) -> &'a str {
        if self.sources.contains_key(source) || self.sources.len() < MAX_SOURCES { source } else { OTHERS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_blocked_after_its_tries() {
        let mut throttle = Throttle::default();
        for n in 1..TRIES {
            assert!(!throttle.failed(u64::from(n), "a"));
            assert_eq!(throttle.blocked_ms(u64::from(n), "a"), None);
        }
        assert!(throttle.failed(10, "a"));
        assert_eq!(throttle.blocked_ms(10, "a"), Some(BLOCK_MS));
        assert_eq!(throttle.blocked_ms(10 + BLOCK_MS - 1, "a"), Some(1));
        assert_eq!(throttle.blocked_ms(10 + BLOCK_MS, "a"), None);
        assert_eq!(throttle.blocked_ms(10, "b"), None, "another source");
    }

    #[test]
    fn failures_are_forgotten() {
        let mut throttle = Throttle::default();
        for n in 0..20 {
            assert!(!throttle.failed(n * (WINDOW_MS / 2), "slow"), "try {n}");
        }
        for _ in 1..TRIES {
            throttle.failed(2_000_000, "b");
        }
        throttle.succeeded("b");
        assert!(!throttle.failed(2_000_000, "b"));
    }

    #[test]
    fn many_sources_share_an_entry() {
        let mut throttle = Throttle::default();
        for n in 0..MAX_SOURCES {
            throttle.failed(0, &format!("host {n}"));
        }
        for n in 0..TRIES {
            throttle.failed(0, &format!("further {n}"));
        }
        assert!(throttle.sources.len() <= MAX_SOURCES + 1);
        assert!(throttle.blocked_ms(0, "another one").is_some());
        assert_eq!(throttle.blocked_ms(0, "host 0"), None);
        throttle.failed(WINDOW_MS + BLOCK_MS + 1, "new");
        assert_eq!(throttle.sources.len(), 1, "old entries are dropped");
    }
}
