//! The clock by which the programs date entries: the kernel's jiffies, in nanoseconds (`ticks_ns`
//! in bpf/frame.h).
//!
//! Jiffies follow CLOCK_MONOTONIC tick by tick, from a start value that the kernel chooses. The
//! offset is determined once per process, by a program that reads jiffies. Invariant: this clock is
//! never behind the programs', and at most two ticks ahead of it.

use crate::abi::ClockCall;
use crate::error::{Doing, Result};
use crate::tables::run_call;
use nix::time::{ClockId, clock_getres, clock_gettime};
use std::os::fd::AsFd;
use std::sync::OnceLock;

static AHEAD_NS: OnceLock<u64> = OnceLock::new();

/// Nanoseconds between two jiffies, which the kernel reports as the resolution of its coarse clocks.
pub(crate) fn tick_ns() -> u64 {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE);
    // Every kernel that loads the programs reports it; otherwise assume the longest tick.
    tick.map_or(10_000_000, |tick| tick.tv_nsec() as u64).max(1)
}

fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Determines the offset of the programs' clock by the program `clock_read`.
///
/// # Errors
/// When the program cannot be run.
pub(crate) fn set(clock_read: impl AsFd) -> Result<()> {
    if AHEAD_NS.get().is_some() {
        return Ok(());
    }
    let before = monotonic_ns();
    let mut call = ClockCall::default();
    run_call(clock_read, &mut call).doing(|| "reading the programs' clock".into())?;
    let _ = AHEAD_NS.set(call.now_ns.wrapping_add(tick_ns()).wrapping_sub(before));
    Ok(())
}

/// The programs' time at the time `ns` of CLOCK_MONOTONIC.
pub(crate) fn of_monotonic(ns: u64) -> u64 {
    ns.wrapping_add(AHEAD_NS.get().copied().unwrap_or(0))
}

/// The programs' clock in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    of_monotonic(monotonic_ns())
}

/// The programs' clock in seconds.
pub(crate) fn now_s() -> u32 {
    seconds(now_ns())
}

/// Nanoseconds to seconds as the programs count them (`seconds()` in bpf/frame.h).
pub(crate) const fn seconds(ns: u64) -> u32 {
    ((ns >> 20).wrapping_mul(1_125_900) >> 30) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_in_seconds() {
        for s in [0_u64, 1, 59, 86_400, 31_536_000] {
            let counted = seconds(s * 1_000_000_000 + 999_000_000);
            assert!(u64::from(counted).abs_diff(s) <= 1 + s / 1_000_000, "{s}: {counted}");
        }
    }

    #[test]
    fn a_tick_is_some_milliseconds() {
        assert!((900_000..=10_000_000).contains(&tick_ns()), "{}", tick_ns());
    }
}
