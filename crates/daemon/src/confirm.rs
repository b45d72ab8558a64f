//! `commit confirmed`: the earlier configuration is restored unless the change is confirmed in
//! time.

use lanyard_config::Config;

/// The pending confirmation, if any.
#[derive(Debug, Default)]
pub(crate) struct Confirmation {
    waiting: Option<Rollback>,
    /// How often in a row the restoration was refused.
    refused: u32,
}

/// Longest time between two attempts to restore.
const MAX_RETRY_S: u64 = 60;

/// The configuration to restore, and the time for it.
#[derive(Debug)]
struct Rollback {
    config: Config,
    at_ms: u64,
}

impl Confirmation {
    /// Waits for a confirmation until `at_ms`; `before` is restored without one. If an earlier change is
    /// still waiting for confirmation, the configuration from before that change is restored instead.
    pub(crate) fn await_until(&mut self, at_ms: u64, before: Config) {
        let config = self.waiting.take().map_or(before, |waiting| waiting.config);
        self.waiting = Some(Rollback { config, at_ms });
        self.refused = 0;
    }
    /// Schedules another attempt after a restoration was refused: after 1 s, then 2 s, 4 s, up to
    /// [`MAX_RETRY_S`]. Returns the seconds until then.
    pub(crate) fn retry(&mut self, now_ms: u64, config: Config) -> u64 {
        let wait_s = 1u64.checked_shl(self.refused).map_or(MAX_RETRY_S, |wait_s| wait_s.min(MAX_RETRY_S));
        self.refused = self.refused.saturating_add(1);
        self.waiting = Some(Rollback { config, at_ms: now_ms + wait_s * 1000 });
        wait_s
    }
    /// The configuration from before the change that waits for confirmation.
    pub(crate) fn before(&self) -> Option<&Config> {
        self.waiting.as_ref().map(|waiting| &waiting.config)
    }
    /// Confirms the change; false when none was awaiting it.
    pub(crate) fn confirm(&mut self) -> bool {
        self.waiting.take().is_some()
    }
    /// Seconds until the restoration; `None` when no confirmation is awaited.
    pub(crate) fn left_s(&self, now_ms: u64) -> Option<u64> {
        self.waiting.as_ref().map(|waiting| waiting.at_ms.saturating_sub(now_ms).div_ceil(1000))
    }
    /// When [`Confirmation::overdue`] returns something.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.waiting.as_ref().map(|waiting| waiting.at_ms)
    }
    /// The configuration to restore, when the time for confirmation is over. The wait ends with
    /// this call.
    pub(crate) fn overdue(&mut self, now_ms: u64) -> Option<Config> {
        self.waiting.take_if(|waiting| waiting.at_ms <= now_ms).map(|waiting| waiting.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(hostname: &str) -> Config {
        Config { hostname: hostname.into(), ..Config::default() }
    }

    #[test]
    fn rollback_restores_the_state_before_the_first_of_several_changes() {
        let mut confirmation = Confirmation::default();
        confirmation.await_until(5000, named("first"));
        confirmation.await_until(1000, named("second"));
        assert_eq!((confirmation.next_ms(), confirmation.left_s(1)), (Some(1000), Some(1)));
        assert_eq!(confirmation.overdue(999), None);
        assert_eq!(confirmation.overdue(1000), Some(named("first")));
        assert!(!confirmation.confirm());
        confirmation.await_until(2000, named("third"));
        assert!(confirmation.confirm());
        assert_eq!((confirmation.next_ms(), confirmation.overdue(9000)), (None, None));
    }

    #[test]
    fn a_refused_rollback_is_tried_again() {
        let mut confirmation = Confirmation::default();
        confirmation.await_until(1000, named("first"));
        let mut now_ms = 1000;
        for wait_s in [1, 2, 4, 8, 16, 32, 60, 60] {
            let config = confirmation.overdue(now_ms).expect("due");
            assert_eq!(confirmation.retry(now_ms, config), wait_s);
            assert_eq!(confirmation.left_s(now_ms), Some(wait_s), "it still awaits confirmation");
            now_ms += wait_s * 1000;
        }
        assert!(confirmation.confirm());
        confirmation.await_until(now_ms, named("second"));
        let config = confirmation.overdue(now_ms).expect("due");
        assert_eq!(confirmation.retry(now_ms, config), 1, "another change, another count");
    }
}
