//! A simulated device between the ports of a simulated tester. Its figures are known, so a test can show that a
//! procedure finds them.
//!
//! The model has rates, not frames: the part of a load above the device's capacity is lost once its buffer is full.
//! The clock is simulated too.

use super::noise::Noise;
use super::{Run, Subject, Timing};
use crate::report::Results;
use anyhow::{Result, bail};
use lanyard_tester::traffic::{Cast, Hosts, Stream};
use lanyard_tester::trial::{CpuShare, Offer, Outcome, StreamOutcome, Tester};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The properties of the device and of the tester.
#[derive(Debug, Clone)]
pub struct Model {
    /// Ports of the tester.
    pub ports: usize,
    /// The tester's limit at a port, frames per second.
    pub tester_pps: f64,
    /// Bits per second of a port; `None` on veth.
    pub line_bps: Option<f64>,
    /// Nanoseconds of the device's time for a frame, and for a byte of it. One processor serves all ports.
    pub frame_ns: f64,
    pub byte_ns: f64,
    /// The relative standard deviation of the device's speed from trial to trial.
    pub noise: f64,
    /// The part of trials that are disturbed, and the part of frames lost in them.
    pub disturbed: (f64, f64),
    /// The part of the device's speed that remains when it is overloaded.
    pub collapse: f64,
    /// After an overload the device stays slow until it has rested for this time.
    pub hysteresis: Duration,
    /// The number of frames that the device can store.
    pub buffer: f64,
    /// Frames are lost for this time after an overload ends.
    pub recovery: Duration,
    /// After a reset the device forwards nothing for this time; `None` if it cannot be reset.
    pub reset: Option<Duration>,
    /// The most frames per second that an output port forwards, `None` for no limit; and true if a full port blocks other traffic
    /// of the same input ports.
    pub output_pps: Option<f64>,
    pub head_of_line: bool,
    /// The number of addresses that the device can learn, and how many of them per second.
    pub table: usize,
    pub learn_pps: f64,
    /// True if the device can be made to forget its addresses.
    pub forgets: bool,
    /// The latency of the idle device, and that of the tester itself, `None` if it was not calibrated.
    pub latency_ns: f64,
    pub own_ns: Option<u64>,
    /// The parts of the frames that arrive late, twice, corrupted.
    pub reordered: f64,
    pub duplicated: f64,
    pub corrupted: f64,
    /// The number of trials after which the device's link goes down; `None` if it never does.
    pub breaks_at: Option<u32>,
    /// The size in bytes of the largest frame that the device forwards.
    pub largest: usize,
}

impl Model {
    /// A device on veth that forwards `pps` frames a second of any size, perfectly.
    pub fn new(pps: f64) -> Self {
        Self {
            ports: 2,
            tester_pps: 1e7,
            line_bps: None,
            frame_ns: 1e9 / pps,
            byte_ns: 0.0,
            noise: 0.0,
            disturbed: (0.0, 0.0),
            collapse: 1.0,
            hysteresis: Duration::ZERO,
            buffer: 100.0,
            recovery: Duration::ZERO,
            reset: None,
            output_pps: None,
            head_of_line: false,
            table: 1 << 20,
            learn_pps: 1e9,
            forgets: true,
            latency_ns: 5_000.0,
            own_ns: None,
            reordered: 0.0,
            duplicated: 0.0,
            corrupted: 0.0,
            breaks_at: None,
            largest: 9216,
        }
    }

    /// The frames per second that the device can forward, for frames of `size` bytes.
    pub fn capacity(&self, size: usize) -> f64 {
        1e9 / (self.frame_ns + self.byte_ns * size as f64)
    }
}

/// The device and its tester.
pub struct Simulated {
    model: Model,
    noise: Noise,
    /// The ranges of addresses that the device has learned, and the port of each.
    learned: Vec<(Hosts, usize)>,
    overloaded: bool,
    trials: u32,
    name: String,
    offers: Log,
}

/// Every offer that was made to any device of a run, in order.
pub type Log = Rc<RefCell<Vec<(String, Offer)>>>;

impl Simulated {
    pub fn new(name: &str, model: Model, seed: u64, offers: Log) -> Self {
        Self {
            name: name.to_owned(),
            model,
            noise: Noise::new(seed),
            learned: Vec::new(),
            overloaded: false,
            trials: 0,
            offers,
        }
    }

    /// The number of addresses in a range that the device has learned at `port`.
    fn known(&self, hosts: Hosts, port: usize) -> u32 {
        let overlap = |(range, at): &(Hosts, usize)| {
            let first = range.first.max(hosts.first);
            let end = (range.first + range.count).min(hosts.first + hosts.count);
            if *at == port { end.saturating_sub(first) } else { 0 }
        };
        self.learned.iter().map(overlap).sum()
    }

    fn known_anywhere(&self, hosts: Hosts) -> Option<(usize, u32)> {
        (0..self.model.ports)
            .map(|port| (port, self.known(hosts, port)))
            .max_by_key(|(_, n)| *n)
            .filter(|(_, n)| *n > 0)
    }

    /// Learns the sources of a stream: as many as fit, and as fast as the device can.
    fn learn(&mut self, port: usize, stream: &Stream, rate: f64, frames: f64) {
        let hosts = stream.src;
        let spoke = (frames.min(f64::from(hosts.count))) as u32;
        let in_time = (f64::from(spoke) * (self.model.learn_pps / rate).min(1.0)) as u32;
        let known = self.known(hosts, port);
        if known >= in_time {
            return;
        }
        let used: usize = self.learned.iter().map(|(range, _)| range.count as usize).sum();
        let room = self.model.table.saturating_sub(used) as u32;
        let new = (in_time - known).min(room);
        if new > 0 {
            self.learned.push((Hosts { first: hosts.first + known, count: new }, port));
        }
    }

    /// The result of an offer if the device forwards nothing for `outage`.
    fn run(&mut self, offer: &Offer, outage: Duration) -> Outcome {
        self.offers.borrow_mut().push((self.name.clone(), offer.clone()));
        self.trials += 1;
        let streams: Vec<Sent> =
            offer.streams.iter().map(|(port, stream)| self.sent(offer, *port, stream)).collect();
        for sent in &streams {
            self.learn(sent.port, &sent.stream, sent.rate, sent.frames);
        }
        let seconds = streams.iter().map(|s| s.seconds).fold(1e-9, f64::max);
        let total: f64 = streams.iter().map(|s| s.frames * s.copies(self.model.ports)).sum();
        let size = offer.streams.first().map_or(64, |(_, stream)| stream.size);
        let mut capacity = self.model.capacity(size) * (1.0 + self.model.noise * self.noise.normal());
        if self.overloaded {
            capacity *= self.model.collapse;
        }
        let rate = total / seconds;
        let changed = offer.change.map_or(1.0, |change| change.factor);
        let mut kept = 1.0;
        if rate > capacity {
            let through = capacity * if self.overloaded { 1.0 } else { self.model.collapse };
            let before = offer.change.map_or(seconds, |change| change.after.as_secs_f64());
            let lost = ((rate - through) * before - self.model.buffer).max(0.0);
            kept = 1.0 - lost / total.max(1.0);
            if lost > 0.0 && !self.model.hysteresis.is_zero() {
                self.overloaded = true;
            }
        }
        if size > self.model.largest {
            kept = 0.0;
        }
        if self.noise.uniform() < self.model.disturbed.0 {
            kept *= 1.0 - self.model.disturbed.1;
        }
        let load = (rate * changed / capacity).min(1.0);
        if self.model.hysteresis <= offer.settle {
            self.overloaded = false;
        }
        let outcome: Vec<StreamOutcome> =
            streams.iter().map(|sent| self.outcome(sent, kept, load, outage, &streams)).collect();
        let recovery = offer.change.filter(|_| kept < 1.0).map(|change| change.after + self.model.recovery);
        Outcome {
            streams: outcome
                .into_iter()
                .map(|stream| StreamOutcome { last_loss_at: recovery.or(stream.last_loss_at), ..stream })
                .collect(),
            cpu: vec![
                CpuShare { cpu: 0, busy: load, softirq: load, ..CpuShare::default() },
                CpuShare { cpu: 1, busy: 1.0, system: 1.0, ..CpuShare::default() },
            ],
            ..Outcome::default()
        }
    }

    fn sent(&self, offer: &Offer, port: usize, stream: &Stream) -> Sent {
        let here = offer.streams.iter().filter(|(p, _)| *p == port).count() as f64;
        let most = self.model.tester_pps / here;
        let mut rate = stream.rate_pps.map_or(most, |rate| f64::from(rate).min(most));
        if let Some(line) = self.model.line_bps {
            rate = rate.min(line_pps(line, stream.size) / here);
        }
        let seconds = match offer.frames {
            Some(frames) => (frames as f64 / rate).min(offer.window.as_secs_f64()),
            None => offer.window.as_secs_f64(),
        };
        let frames = match offer.frames {
            Some(frames) => (frames as f64).min((rate * seconds).round()),
            None => (rate * seconds).round(),
        };
        Sent { port, stream: *stream, rate, seconds, frames }
    }

    fn outcome(
        &mut self,
        sent: &Sent,
        kept: f64,
        load: f64,
        outage: Duration,
        all: &[Sent],
    ) -> StreamOutcome {
        let frames = (sent.frames * kept * (1.0 - self.model.corrupted)).round();
        let lost_by_outage = (outage.as_secs_f64() * sent.rate).min(frames);
        let frames = frames - lost_by_outage.round();
        let mut received_at = vec![0u64; self.model.ports];
        let everywhere = |received_at: &mut Vec<u64>, frames: f64| {
            for (port, count) in received_at.iter_mut().enumerate().filter(|(port, _)| *port != sent.port) {
                let _ = port;
                *count += frames as u64;
            }
        };
        let mut waits = 1.0;
        match self.known_anywhere(sent.stream.dst) {
            Some((port, known)) if sent.stream.cast == Cast::Unicast => {
                let part = f64::from(known) / f64::from(sent.stream.dst.count);
                let passed = self.output_share(sent, port, all);
                received_at[port] += (frames * part * passed).round() as u64;
                everywhere(&mut received_at, (frames * (1.0 - part)).round());
            }
            _ => {
                waits = 2.0;
                everywhere(&mut received_at, frames);
            }
        }
        let received: u64 = received_at.iter().sum();
        let mut latency = lanyard_tester::histogram::Histogram::default();
        if sent.stream.stamp {
            // A queue grows as 1 / (1 - load), up to what the buffer holds.
            let queue = (1.0 / (1.0 - load).max(1e-3)).min(1.0 + self.model.buffer);
            let size = sent.stream.size as f64;
            let on_the_line = self.model.line_bps.map_or(0.0, |line| 2.0 * size * 8e9 / line);
            let own = self.model.own_ns.unwrap_or(0) as f64 + on_the_line;
            for n in 0..200 {
                let wait = self.model.latency_ns * queue * waits * (0.9 + 0.001 * f64::from(n));
                latency.record((wait + own) as u64);
            }
        }
        StreamOutcome {
            id: sent.stream.id,
            sent: sent.frames as u64,
            received,
            received_at,
            duplicated: (frames * self.model.duplicated) as u64,
            reordered: (frames * self.model.reordered) as u64,
            corrupted: (sent.frames * self.model.corrupted) as u64,
            latency,
            tx_time: Duration::from_secs_f64(sent.seconds),
            rx_time: Duration::from_secs_f64(sent.seconds),
            ..StreamOutcome::default()
        }
    }

    /// The part of a flow that the output ports let through.
    fn output_share(&self, sent: &Sent, port: usize, all: &[Sent]) -> f64 {
        let Some(most) = self.model.output_pps else { return 1.0 };
        let share = |port: usize| {
            let to_port = |s: &&Sent| self.known_anywhere(s.stream.dst).is_some_and(|(p, _)| p == port);
            let rate: f64 = all.iter().filter(to_port).map(|s| s.rate).sum();
            (most / rate).min(1.0)
        };
        if !self.model.head_of_line {
            return share(port);
        }
        // Frames that wait for a full output block those behind them.
        let same_input = all.iter().filter(|s| s.port == sent.port);
        let outputs = same_input.filter_map(|s| self.known_anywhere(s.stream.dst).map(|(p, _)| p));
        outputs.map(share).fold(1.0, f64::min)
    }
}

/// A stream with the rate, the time and the number of frames that the tester really sends.
struct Sent {
    port: usize,
    stream: Stream,
    rate: f64,
    seconds: f64,
    frames: f64,
}

impl Sent {
    /// The number of copies of each frame that the device forwards.
    fn copies(&self, ports: usize) -> f64 {
        if self.stream.cast == Cast::Unicast { 1.0 } else { (ports - 1) as f64 }
    }
}

/// The frames per second that a line of `bps` bit/s carries. Preamble and gap are 20 bytes (RFC 2544, 20).
pub fn line_pps(bps: f64, size: usize) -> f64 {
    bps / ((size + 20) as f64 * 8.0)
}

impl Tester for Simulated {
    fn ports(&self) -> usize {
        self.model.ports
    }

    fn line_rate_pps(&self, frame_bytes: usize) -> Option<f64> {
        self.model.line_bps.map(|line| line_pps(line, frame_bytes))
    }

    fn trial(&mut self, offer: &Offer) -> Result<Outcome> {
        if self.model.breaks_at.is_some_and(|at| self.trials >= at) {
            bail!("the link of port 1 went down");
        }
        Ok(self.run(offer, Duration::ZERO))
    }

    fn about(&self) -> lanyard_tester::trial::About {
        lanyard_tester::trial::About { own_latency_ns: self.model.own_ns, ..Default::default() }
    }
}

impl Subject for Simulated {
    fn tester(&mut self) -> &mut dyn Tester {
        self
    }

    fn forget(&mut self) -> Result<bool> {
        if self.model.forgets {
            self.learned.clear();
        }
        Ok(self.model.forgets)
    }

    fn trial_with_reset(&mut self, offer: &Offer, _after: Duration) -> Result<Option<Outcome>> {
        Ok(self.model.reset.map(|outage| self.run(offer, outage)))
    }

    fn pause(&mut self, time: Duration) -> Result<()> {
        if time >= self.model.hysteresis {
            self.overloaded = false;
        }
        // Addresses age out in five minutes.
        if time >= Duration::from_secs(300) {
            self.learned.clear();
        }
        Ok(())
    }
}

/// A run of simulated devices, each with a name.
pub fn run(models: &[(&str, Model)], seed: u64) -> Run<'static> {
    run_logged(models, seed, Log::default())
}

/// As [`run`], and every offer is written to `log`.
pub fn run_logged(models: &[(&str, Model)], seed: u64, log: Log) -> Run<'static> {
    let device = |(index, (name, model)): (usize, &(&str, Model))| {
        let seed = seed * 31 + index as u64;
        let subject: Box<dyn Subject> = Box::new(Simulated::new(name, model.clone(), seed, log.clone()));
        ((*name).to_owned(), subject)
    };
    let devices = models.iter().enumerate().map(device).collect();
    Run::new(Results::new("test"), Timing::short(Duration::from_secs(1)), devices, |_| Ok(()))
}

/// The rounds of a figure; empty when it was not measured.
pub fn rounds(run: &Run, key: &crate::report::Key) -> Vec<f64> {
    run.results.get(key).map(|series| series.rounds.clone()).unwrap_or_default()
}
