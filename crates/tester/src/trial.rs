//! One trial: the load offered to a device under test at each port of the tester, and the result.
//!
//! Read first: RFC 2544, sections 23 and 24 (a trial is: learn, wait, send, wait two seconds for frames under way),
//! RFC 1242 for the terms. This is the interface between the procedures, which search, and the traffic, which is
//! measured. A procedure uses only the trait [`Tester`], so it can be tested against simulated ones. Invariant: a
//! trial that ended early says so in [`Outcome::cut_short`] and still contains the results until then.

use crate::histogram::Histogram;
use crate::traffic::Stream;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The load of one trial.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The streams, and for each the tester's port that sends it, numbered from 0 in the order of the command
    /// line. The `id`s must differ.
    pub streams: Vec<(usize, Stream)>,
    /// The number of frames of each stream, for a burst; `None` is as many as fit into the window. A stream
    /// without a rate sends them back to back.
    pub frames: Option<u64>,
    /// How long to send; with `frames`, the longest time.
    pub window: Duration,
    /// How long to listen when the last frame has been sent (RFC 2544 section 23: two seconds). Shorter when every
    /// frame has arrived once.
    pub settle: Duration,
    /// A change of rate during the trial (RFC 2544, 26.5: system recovery).
    pub change: Option<RateChange>,
}

/// From `after` on, every paced stream has `factor` times its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateChange {
    /// The time from the start of sending to the change.
    pub after: Duration,
    /// The factor by which the rates are multiplied, more than 0 and at most 1.
    pub factor: f64,
}

impl Offer {
    /// An offer of `streams` for `window`, with the two seconds of RFC 2544 for frames under way.
    #[must_use]
    pub const fn new(streams: Vec<(usize, Stream)>, window: Duration) -> Self {
        Self { streams, frames: None, window, settle: Duration::from_secs(2), change: None }
    }

    /// A burst of exactly `frames` frames of each stream.
    #[must_use]
    pub const fn burst(streams: Vec<(usize, Stream)>, frames: u64) -> Self {
        let mut offer = Self::new(streams, Duration::from_secs(60));
        offer.frames = Some(frames);
        offer
    }
}

/// The result of one stream. Points in time are counted from the trial's first frame.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// The stream's `id`.
    pub id: u16,
    /// Frames sent.
    pub sent: u64,
    /// Different frames that arrived intact at some port; a frame that arrives at three ports counts three
    /// times.
    pub received: u64,
    /// `received`, by port of the tester.
    pub received_at: Vec<u64>,
    /// Frames that arrived again at the same port. They are not in `received`.
    pub duplicated: u64,
    /// Frames that came after a later one of the same stream at the same port (RFC 4737, 3.3: their number is smaller
    /// than the largest seen). They are in `received`.
    pub reordered: u64,
    /// Frames whose payload or addresses differ from what was sent. They are found only with [`Stream::verify`],
    /// except when the number itself is corrupted. They are not in `received`.
    pub corrupted: u64,
    /// The time from the generator's stamp to the receiver's hook, for each received frame; only with
    /// [`Stream::stamp`].
    pub latency: Histogram,
    /// How long the stream was sent: the time by which `sent` is divided for a rate.
    pub tx_time: Duration,
    /// The time from the first arrival to the last.
    pub rx_time: Duration,
    /// When the first frame arrived.
    pub first_at: Option<Duration>,
    /// The longest time between two successive arrivals at one port; `None` with fewer than two.
    pub longest_gap: Option<Gap>,
    /// When the last frame arrived before which sequence numbers were missing: loss had ended then. `None` if none were missing.
    pub last_loss_at: Option<Duration>,
}

/// An interval without a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// When the frame before it arrived.
    pub at: Duration,
    /// The time until the next frame.
    pub length: Duration,
}

impl StreamOutcome {
    /// Frames that did not arrive, for a stream each of whose frames has one receiver.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Frames per second sent; 0 when none were sent.
    #[must_use]
    pub fn tx_pps(&self) -> f64 {
        per_second(self.sent, self.tx_time)
    }

    /// Frames per second received, over the time in which they were sent.
    #[must_use]
    pub fn rx_pps(&self) -> f64 {
        per_second(self.received, self.tx_time)
    }
}

fn per_second(frames: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { frames as f64 / time.as_secs_f64() }
}

/// The use of one processor during a trial: each part is 0..=1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShare {
    /// Its number.
    pub cpu: usize,
    /// The part of the time in which it was not idle. A core that generates is never idle.
    pub busy: f64,
    /// The part of the time in interrupts and soft interrupts, which receive and forward.
    pub softirq: f64,
    /// The part of the time in system calls; the generator runs in one.
    pub system: f64,
    /// The part of the time in programs.
    pub user: f64,
    /// The part of the time that the hypervisor gave to other machines. It is included in `busy`.
    #[serde(default)]
    pub stolen: f64,
}

/// The result of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// One for each stream, in the order of the offer.
    pub streams: Vec<StreamOutcome>,
    /// The use of each processor while frames were sent.
    pub cpu: Vec<CpuShare>,
    /// The part of the trial in which the threads that poll the device's ports were running, where 1 is a whole core.
    /// `None` where the ports have no threads of their own.
    #[serde(default)]
    pub device_busy: Option<f64>,
    /// Frames with the tester's mark that belong to no stream of this trial, or whose number is corrupted.
    pub unidentified: u64,
    /// Frames that reached the tester but that it had no time to check. They are in no stream's `received`, and are not
    /// the device's loss.
    #[serde(default)]
    pub missed: u64,
    /// The reason why the trial ended early (a link went down, ctrl-C), or `None`. The figures then cover the time
    /// until the end.
    pub cut_short: Option<String>,
}

impl Outcome {
    /// The sum of `of` over all streams.
    #[must_use]
    pub fn total(&self, of: impl Fn(&StreamOutcome) -> u64) -> u64 {
        self.streams.iter().map(of).sum()
    }

    /// The latency of all streams together.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.streams.iter().for_each(|stream| all.merge(&stream.latency));
        all
    }
}

/// A tester's description of itself, for the report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Its ports by name.
    pub ports: Vec<String>,
    /// How frames are made and counted, and the reason if it is not the best way.
    pub engine: String,
    /// The latency that the tester itself adds, if it was calibrated: the median over a wire, in ns. RFC 2544
    /// requires the device's latency alone, so a latency test may subtract this value; the bench does not.
    pub own_latency_ns: Option<u64>,
}

/// An object that can run trials.
pub trait Tester {
    /// The number of its ports.
    fn ports(&self) -> usize;

    /// The number of frames of `frame_bytes` (with FCS) that a port can carry in a second (RFC 2544, 20); `None`
    /// without a line rate, as on veth.
    fn line_rate_pps(&self, frame_bytes: usize) -> Option<f64>;

    /// Offers the load, waits, and returns the result. The receivers start from zero in every trial.
    ///
    /// # Errors
    /// When the offer is invalid, or nothing could be sent at all. A later failure is reported in
    /// [`Outcome::cut_short`].
    fn trial(&mut self, offer: &Offer) -> Result<Outcome>;

    /// Its description of itself.
    fn about(&self) -> About {
        About::default()
    }
}
