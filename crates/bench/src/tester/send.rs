//! What the ways of sending have in common: when a stream is to send, and how far it has come.

use super::abi::SenderAbi;
use crate::traffic::Stream;
use crate::trial::Offer;
use anyhow::Result;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The streams of one core on their way. `run` is called in a thread of its own, everything else meanwhile from
/// another.
pub trait Sends: Sync {
    /// Takes the times of the trial. Then comes `run`.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn begin(&mut self, schedule: &Schedule) -> Result<()>;

    /// Sends until all is sent, time is up, or `stop`.
    ///
    /// # Errors
    /// When nothing can be sent.
    fn run(&self, stop: &AtomicBool) -> Result<()>;

    /// True when nothing more will be sent.
    ///
    /// # Errors
    /// When the kernel won't say.
    fn done(&self) -> Result<bool>;

    /// Ends a system call that `run` is in, if there is one: after `done`, or to stop.
    fn nudge(&self);

    /// How far each stream has come.
    ///
    /// # Errors
    /// When the kernel won't say.
    fn progress(&self) -> Result<Vec<Progress>>;
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The stream's place in the offer.
    pub slot: usize,
    /// Frames sent.
    pub sent: u64,
    /// When the first was sent, in ns of CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// When the last was sent.
    pub last_ns: u64,
}

impl Progress {
    /// How long the stream took to send: each frame has its share of the time, the last one, too.
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
    /// And when it ends at the latest.
    pub end_ns: u64,
    /// When rates change, 0 for never.
    pub change_ns: u64,
    /// All rates together; `None` when a stream goes as fast as it can.
    pub total_pps: Option<u64>,
    frames: Option<u64>,
    intervals: Vec<(u64, u64)>,
}

impl Schedule {
    /// Of an offer whose sending begins at `start_ns`.
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
