//! The common part of the ways of sending: when a stream is to send, and how far it has come.

use super::abi::SenderAbi;
use crate::traffic::Stream;
use crate::trial::Offer;
use anyhow::Result;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The streams of one core while they are sent. `run` is called in a thread of its own; meanwhile another
/// thread calls the other methods.
pub trait Sends: Sync {
    /// Takes the times of the trial. Called before `run`.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn begin(&mut self, schedule: &Schedule) -> Result<()>;

    /// Sends until all frames are sent, the time is up, or `stop` is set.
    ///
    /// # Errors
    /// When nothing can be sent.
    fn run(&self, stop: &AtomicBool) -> Result<()>;

    /// True when nothing more will be sent.
    ///
    /// # Errors
    /// When the kernel does not report it.
    fn done(&self) -> Result<bool>;

    /// Interrupts the system call of `run`, if there is one: after `done`, or to stop.
    fn nudge(&self);

    /// How far each stream has come.
    ///
    /// # Errors
    /// When the kernel does not report it.
    fn progress(&self) -> Result<Vec<Progress>>;
}

/// A paced stream that is late by less than this (50 us, in 1/256 ns) catches up at once. A longer delay is caught up slowly.
const AT_ONCE_256: u64 = 50_000 << 8;
/// The most delay that is caught up (100 ms, in 1/256 ns); the rest is given up.
const DEBT_MAX_256: u64 = 100_000_000 << 8;

impl SenderAbi {
    /// Returns true if the stream's next frame is due at `now_ns`, and then schedules the frame after it. From `change_ns` on
    /// (0: never) the interval is `later_256`. Does the same as `due` in `bpf/send.bpf.c`.
    pub fn due(&mut self, now_ns: u64, change_ns: u64) -> bool {
        let changed = change_ns > 0 && now_ns >= change_ns;
        let interval = if changed { self.later_256 } else { self.interval_256 };
        let now = now_ns << 8;
        if self.interval_256 == 0 || now < self.due_256 {
            return self.interval_256 == 0;
        }
        let late = now - self.due_256;
        if late > AT_ONCE_256 {
            self.debt_256 = (self.debt_256 + late - AT_ONCE_256).min(DEBT_MAX_256);
            self.due_256 = now - AT_ONCE_256;
        }
        let paid = (interval / 16).min(self.debt_256);
        self.debt_256 -= paid;
        self.due_256 += interval - paid;
        true
    }
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The stream's place in the offer.
    pub slot: usize,
    /// Frames sent.
    pub sent: u64,
    /// When the first frame was sent, in ns of CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// When the last frame was sent, in ns of CLOCK_MONOTONIC.
    pub last_ns: u64,
}

impl Progress {
    /// How long the stream took to send. Each frame, including the last one, counts with its share of the
    /// time.
    pub fn tx_time(&self) -> Duration {
        let between = self.last_ns.saturating_sub(self.first_ns);
        match self.sent {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(between),
            n => Duration::from_nanos((u128::from(between) * u128::from(n) / u128::from(n - 1)) as u64),
        }
    }
}

/// The times of a trial, in ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// When sending begins.
    pub start_ns: u64,
    /// When sending ends at the latest.
    pub end_ns: u64,
    /// When rates change, 0 for never.
    pub change_ns: u64,
    /// The sum of all rates; `None` when a stream is sent at the greatest rate.
    pub total_pps: Option<u64>,
    /// True if the sender reads the clock for each frame: a stream has a rate or time stamps.
    pub timed: bool,
    frames: Option<u64>,
    intervals: Vec<(u64, u64)>,
}

impl Schedule {
    /// The schedule of an offer whose sending begins at `start_ns`.
    pub fn new(offer: &Offer, start_ns: u64) -> Self {
        let after = |time: Duration| start_ns + time.as_nanos() as u64;
        let rate = |(_, stream): &(usize, Stream)| stream.rate_pps;
        let interval = |factor: f64| {
            move |stream: &(usize, Stream)| {
                rate(stream).map_or(0, |pps| (256e9 / (f64::from(pps) * factor)) as u64)
            }
        };
        let now = offer.streams.iter().map(interval(1.0));
        let later = offer.streams.iter().map(interval(offer.change.map_or(1.0, |c| c.factor)));
        Self {
            start_ns,
            end_ns: after(offer.window),
            change_ns: offer.change.map_or(0, |change| after(change.after)),
            total_pps: offer.streams.iter().map(|s| rate(s).map(u64::from)).sum(),
            timed: offer.streams.iter().any(|s| s.1.stamp || rate(s).is_some()),
            frames: offer.frames,
            intervals: now.zip(later).collect(),
        }
    }

    /// A template with its rate and limit. Streams begin one after the other within their first interval, so that
    /// those of one rate do not send all at once.
    pub fn plan(&self, slot: usize, abi: SenderAbi) -> SenderAbi {
        let (interval, later) = self.intervals.get(slot).copied().unwrap_or_default();
        let stagger = interval * slot as u64 / self.intervals.len().max(1) as u64;
        SenderAbi {
            limit: self.frames.unwrap_or(u64::MAX),
            due_256: (self.start_ns << 8) + stagger,
            interval_256: interval,
            later_256: later,
            ..abi
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros as _;

    /// Simulates a loop that runs `due` every `step_ns`, except in `pauses` (from, to, in ns). Returns the
    /// frames sent in `ms` at `pps`, and the most within 100 us.
    fn sent(pps: u64, ms: u64, step_ns: u64, pauses: &[(u64, u64)]) -> (u64, u64) {
        let mut abi = SenderAbi { interval_256: 256_000_000_000 / pps, ..SenderAbi::new_zeroed() };
        let (mut count, mut most) = (0, 0);
        let mut recent = std::collections::VecDeque::new();
        let mut now = 0;
        while now < ms * 1_000_000 {
            if !pauses.iter().any(|(from, to)| (*from..*to).contains(&now)) && abi.due(now, 0) {
                count += 1;
                recent.push_back(now);
                while recent.front().is_some_and(|t| *t + 100_000 <= now) {
                    recent.pop_front();
                }
                most = most.max(recent.len() as u64);
            }
            now += step_ns;
        }
        (count, most)
    }

    #[test]
    fn a_pace_is_kept_through_pauses_and_without_bursts() {
        assert_eq!(sent(10_000, 100, 100, &[]).0, 1000);
        // 7 us of every 20 us are lost: the stream catches up at once.
        let often: Vec<(u64, u64)> = (0..5000).map(|n| (n * 20_000, n * 20_000 + 7_000)).collect();
        assert!((199_900..=200_000).contains(&sent(2_000_000, 100, 100, &often).0));
        // 2 ms are lost: the stream catches up within the next 100 ms, at no more than 17/16 of the rate,
        // apart from the 50 us at once.
        let (count, most) = sent(1_000_000, 100, 100, &[(10_000_000, 12_000_000)]);
        assert!((99_900..=100_000).contains(&count), "{count}");
        assert!(most <= 160, "{most} in 100 us, of 100");
        // A whole second is lost: only a tenth of it is caught up.
        let (count, _) = sent(1_000, 3_000, 1_000, &[(500_000_000, 1_500_000_000)]);
        assert!((2_000..=2_101).contains(&count), "{count}");
    }

    #[test]
    fn a_rate_changes_when_it_should() {
        let mut abi = SenderAbi { interval_256: 1000 << 8, later_256: 4000 << 8, ..SenderAbi::new_zeroed() };
        let count = (0..20_000).filter(|now| abi.due(*now, 10_000)).count();
        assert!((12..=13).contains(&count), "{count}");
        let mut free = SenderAbi::new_zeroed();
        assert!((0..10).all(|now| free.due(now, 0)));
    }
}
