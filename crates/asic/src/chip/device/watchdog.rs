//! The watchdog of multicast snooping. Without a driver no host can join a group, so when none restarts the watchdog in time, the
//! chip floods groups, and messages about memberships go to all ports, until a driver restarts it.
//!
//! Invariant: the entries stay as they are; the watchdog costs nothing for each frame.

use super::Device;
use lanyard_pipeline::Timestamp;

impl Device {
    /// Restarts the watchdog with a period of `after_ms` milliseconds; 0 stops it. Returns true if the watchdog had expired: the chip
    /// then resumes snooping.
    pub(super) fn restart_watchdog(&mut self, now: Timestamp, after_ms: u32) -> bool {
        if after_ms == 0 {
            self.watchdog = None;
            return false;
        }
        self.watchdog = Some(now.as_nanos() + u64::from(after_ms) * 1_000_000);
        self.chip.set_snooping(true, now)
    }

    /// Stops snooping when the watchdog has expired.
    pub(super) fn watch(&mut self, now: Timestamp) {
        if self.watchdog.is_some_and(|due| due <= now.as_nanos()) {
            self.watchdog = None;
            self.chip.set_snooping(false, now);
        }
    }
}
