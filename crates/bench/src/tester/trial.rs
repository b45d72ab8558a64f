//! One trial: what is offered to a device under test at which port of the tester, and what came of it.
//!
//! Read first: RFC 2544, sections 23 and 24 (a trial is: learn, wait, send, wait two seconds for what is under way),
//! RFC 1242 for the words. This is what stands between the procedures (which search) and the traffic (which is
//! measured): a procedure knows a [`Tester`] and nothing else, so it can be tested against simulated ones.
//! Invariant: a trial that ended early says so in [`Outcome::cut_short`] and still tells what was seen until then.

use crate::tester::histogram::Histogram;
use crate::tester::traffic::Stream;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is offered in one trial.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// Streams and the tester's port each leaves by, numbered from 0 in the order of the command line. Their `id`s
    /// must differ.
    pub streams: Vec<(usize, Stream)>,
    /// So many frames of each stream, instead of as many as fit into the window: a burst. A stream without a rate
    /// sends them back to back.
    pub frames: Option<u64>,
    /// How long to send. With `frames`: at most so long.
    pub window: Duration,
    /// How long to listen when the last frame has been sent (RFC 2544 section 23: two seconds). Shorter when every
    /// frame has arrived once.
    pub settle: Duration,
    /// A change of rate on the way (RFC 2544, 26.5: system recovery).
    pub change: Option<RateChange>,
}

/// From `after` on, every paced stream has `factor` times its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateChange {
    /// Since the first frame.
    pub after: Duration,
    /// More than 0, at most 1.
    pub factor: f64,
}

impl Offer {
    /// These streams for this long, with the two seconds of RFC 2544 for what is under way.
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

/// What became of one stream. Times of day are since the trial's first frame was sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// The stream's `id`.
    pub id: u16,
    /// Frames sent.
    pub sent: u64,
    /// Different frames that arrived whole at some port; a frame that arrives at three ports counts three times.
    pub received: u64,
    /// The same, by port of the tester.
    pub received_at: Vec<u64>,
    /// Frames that had arrived before at the same port. They are not in `received`.
    pub duplicated: u64,
    /// Frames that came after a later one of the same stream at the same port (RFC 4737, 3.3: their number is smaller
    /// than the largest seen). They are in `received`.
    pub reordered: u64,
    /// Frames whose payload or addresses are not what was sent; found only with [`Stream::verify`], except when the
    /// number itself is spoiled. They are not in `received`.
    pub corrupted: u64,
    /// Time from the generator's stamp to the receiver's hook, of each frame received; only with [`Stream::stamp`].
    pub latency: Histogram,
    /// How long the stream was sent: what a rate of `sent` is to be divided by.
    pub tx_time: Duration,
    /// From the first arrival to the last.
    pub rx_time: Duration,
    /// When the first frame arrived.
    pub first_at: Option<Duration>,
    /// The longest time without a frame between two arrivals.
    pub longest_gap: Option<Gap>,
    /// When the last frame arrived whose predecessor is missing: loss was over then.
    pub last_loss_at: Option<Duration>,
}

/// An interval without a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// When the frame before it arrived.
    pub at: Duration,
    /// Until the next one.
    pub length: Duration,
}

impl StreamOutcome {
    /// Frames that did not arrive, of a stream whose every frame has one receiver.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Frames per second sent; 0 when nothing was.
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

/// What one processor did during a trial, in parts of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShare {
    /// Its number.
    pub cpu: usize,
    /// Not idle. A core that generates is never idle.
    pub busy: f64,
    /// In soft interrupts: what receives and forwards.
    pub softirq: f64,
    /// In system calls: the generator is one.
    pub system: f64,
    /// In programs.
    pub user: f64,
    /// Taken by whoever runs this machine as one of several: it was busy and did nothing.
    #[serde(default)]
    pub stolen: f64,
}

/// What came of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// One for each stream, in the order of the offer.
    pub streams: Vec<StreamOutcome>,
    /// One for each processor, while frames were sent.
    pub cpu: Vec<CpuShare>,
    /// The part of the trial that the threads which poll the device's ports were at work, whatever else the machine did: 1 is
    /// a core. `None` where they are nobody's own.
    #[serde(default)]
    pub device_busy: Option<f64>,
    /// Frames with our mark that belong to no stream of this trial, or whose number is spoiled.
    pub unidentified: u64,
    /// Frames that reached the tester and that it had no time to look at: they are in no stream's `received`, and not the
    /// device's loss either.
    #[serde(default)]
    pub missed: u64,
    /// Why the trial ended before its time (a link went down, ctrl-C), or `None`. The figures are those until then.
    pub cut_short: Option<String>,
}

impl Outcome {
    /// The sum over all streams of what `of` says.
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

/// What a tester says about itself, for the report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Its ports by name.
    pub ports: Vec<String>,
    /// How frames are made and counted, and why so if it is not the best way.
    pub engine: String,
    /// What the tester itself adds to a latency, if it was calibrated: median over a wire, in ns. RFC 2544 wants the
    /// device's latency, so a latency test may subtract it; nothing here does.
    pub own_latency_ns: Option<u64>,
}

/// Something that can run trials.
pub trait Tester {
    /// How many ports it has.
    fn ports(&self) -> usize;

    /// Frames of `frame_bytes` (with FCS) that a port can carry in a second (RFC 2544, 20); `None` where there is no
    /// line rate, as on veth.
    fn line_rate_pps(&self, frame_bytes: usize) -> Option<f64>;

    /// Offers, waits, and tells. The receivers start from zero in every trial.
    ///
    /// # Errors
    /// When the offer makes no sense, or nothing could be sent at all. What breaks on the way is told in
    /// [`Outcome::cut_short`].
    fn trial(&mut self, offer: &Offer) -> Result<Outcome>;

    /// What it says about itself.
    fn about(&self) -> About {
        About::default()
    }
}
