//! The tester over network devices: [`PortTester`] runs trials between any devices of any namespaces.
//!
//! Read first: `trial.rs` for what a trial is; `bpf/send.bpf.c` and `bpf/checker.bpf.c`, which send and check the
//! frames. `live`, `socket` and `xsk` are the ways to send, `checker` and `listen` the ways to receive; `template`
//! builds the frames. Invariant: a tester leaves nothing behind: its programs, sockets and threads end with it, and
//! with each trial.

mod abi;
mod answer;
#[allow(missing_docs)] // the fields are documented where they are defined, in bpf/traffic.h
pub mod bpf;
mod checker;
mod cpu;
pub mod histogram;
mod listen;
mod live;
pub mod os;
mod ports;
mod send;
mod socket;
mod template;
pub mod traffic;
pub mod trial;
mod verdict;
mod xsk;

pub use answer::Answers;
pub use live::LENGTH_MAX as LIVE_LENGTH_MAX;
pub use ports::Port;
pub use template::{SIZE_JUMBO, SIZE_RUNT, Template};

use crate::histogram::Histogram;
use crate::os::{Netns, Pinned, monotonic_ns};
use crate::traffic::{CountAt, FCS};
use crate::trial::{About, Gap, Offer, Outcome, StreamOutcome, Tester};
use abi::{EPOCHS, FlowAbi, SLOTS_MAX};
use anyhow::{Context, Result, anyhow, bail, ensure};
use checker::Checker;
use live::LiveSender;
use ports::Watch;
use send::{Progress, Schedule, Sends};
use socket::SocketSender;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time from the setup of a trial to its first frame, in which the kernel creates its page pool.
pub const LEAD: Duration = Duration::from_millis(30);
/// The interval at which a running trial is checked.
const LOOK: Duration = Duration::from_millis(2);
/// The interval at which the trial's links are checked.
const LOOK_AT_LINKS: Duration = Duration::from_millis(50);
/// A trial is over when everything has arrived and nothing more arrives for this time.
const QUIET: Duration = Duration::from_millis(20);

/// The number of attempts at a trial in which no frame could be sent.
const TRIES: usize = 3;

/// The settings of a tester.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cores that send. Ports are assigned to them in turn.
    pub cores: Vec<usize>,
    /// The hook at which arrivals are checked. Without the right to load BPF it is a packet socket,
    /// regardless of this setting.
    pub count_at: CountAt,
    /// The number of copies of a frame that the device may make. With many copies, fewer frames are sent
    /// between two rounds of the softirqs.
    pub copies: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { cores: vec![0], count_at: CountAt::Xdp, copies: 1 }
    }
}

/// The way in which frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendMethod {
    /// An XDP program in the kernel makes them.
    Live,
    /// This process makes them and sends them through an AF_XDP socket.
    Xsk,
    /// This process makes them and sends them through a packet socket.
    Socket,
}

/// A stream to be sent: its slot in the trial, the number of its port, and its template.
type Planned = (usize, usize, Template);

/// Senders that work through sockets, each with its core.
type Sockets = Vec<(usize, SocketSender)>;

/// A tester whose ports are network devices.
pub struct PortTester {
    ports: Vec<Port>,
    checkers: Vec<Checker>,
    options: Options,
    ways: Vec<(SendMethod, String)>,
    live: BTreeMap<usize, LiveSender>,
    epoch: u32,
    own_latency_ns: Option<u64>,
}

impl PortTester {
    /// A tester with these ports, each a device that is up. Frames to these ports are checked from now on. A device
    /// under test that examines which ports it may redirect to must therefore come up after its tester.
    ///
    /// # Errors
    /// For a device that is missing or down, and when the kernel refuses the receiver's socket. (When the kernel
    /// refuses BPF programs, the tester uses sockets instead, as [`About::engine`] says.)
    pub fn new(ports: Vec<Port>, options: Options) -> Result<Self> {
        ensure!((1..=live::PORTS_MAX).contains(&ports.len()), "{} ports: 1-{}", ports.len(), live::PORTS_MAX);
        ensure!(!options.cores.is_empty(), "no core to send from");
        os::expect_nudges()?;
        for port in &ports {
            port.check_up()?;
        }
        let refused = bpf::refused();
        let count_at = if refused.is_some() { CountAt::Socket } else { options.count_at };
        let options = Options { count_at, ..options };
        let checkers = ports
            .iter()
            .map(|port| {
                Checker::new(port.netns(), port.ifindex(), options.count_at, &options.cores)
                    .context(port.name().to_owned())
            })
            .collect::<Result<Vec<_>>>()?;
        let ways = ports.iter().map(|port| port.best_way(refused)).collect();
        Ok(Self { ports, checkers, options, ways, live: BTreeMap::new(), epoch: 0, own_latency_ns: None })
    }

    /// Stores the latency that the tester itself adds: the median of a trial over a wire.
    pub fn calibrated(&mut self, own_latency_ns: u64) {
        self.own_latency_ns = Some(own_latency_ns);
    }

    /// Makes all ports send in another way than the best one.
    ///
    /// # Errors
    /// Where that way is not available.
    pub fn send_by(&mut self, way: SendMethod) -> Result<()> {
        for port in &self.ports {
            let _inside = port.netns().enter()?;
            if way == SendMethod::Xsk {
                xsk::XdpSocket::new(port.ifindex())?;
            }
        }
        self.ways =
            self.ports.iter().map(|_| (way, format!("{} as requested", ports::describe(way)))).collect();
        Ok(())
    }

    fn check(&self, offer: &Offer) -> Result<()> {
        ensure!(!offer.streams.is_empty(), "no stream to send");
        ensure!(offer.streams.len() <= SLOTS_MAX, "{} streams: at most {SLOTS_MAX}", offer.streams.len());
        ensure!(!offer.window.is_zero(), "no time to send in");
        ensure!(offer.change.is_none_or(|c| c.factor > 0.0 && c.factor <= 1.0), "a change of rate by 0 to 1");
        let mut ids = BTreeSet::new();
        for (port, stream) in &offer.streams {
            ensure!(*port < self.ports.len(), "no port {port}: 0-{}", self.ports.len() - 1);
            ensure!(ids.insert(stream.id), "two streams have the number {}", stream.id);
        }
        Ok(())
    }

    /// Prepares the senders of an offer. Returns the cores on which the kernel sends, and the socket senders
    /// with the core of each.
    fn prepare(&mut self, offer: &Offer) -> Result<(BTreeSet<usize>, Sockets)> {
        let mut groups: BTreeMap<(usize, SendMethod), Vec<Planned>> = BTreeMap::new();
        for (slot, (port, stream)) in offer.streams.iter().enumerate() {
            let template =
                Template::new(stream, slot, self.epoch).with_context(|| format!("stream {}", stream.id))?;
            let core = self.options.cores[port % self.options.cores.len()];
            let most = match self.ways[*port].0 {
                SendMethod::Live => live::LENGTH_MAX,
                SendMethod::Xsk => xsk::CHUNK,
                SendMethod::Socket => SIZE_JUMBO,
            };
            let way = if stream.size - FCS <= most { self.ways[*port].0 } else { SendMethod::Socket };
            groups.entry((core, way)).or_default().push((slot, *port, template));
        }
        let ports = self
            .ports
            .iter()
            .map(|p| Ok((p.netns().try_clone()?, p.ifindex())))
            .collect::<Result<Vec<_>>>()?;
        let (mut live, mut sockets) = (BTreeSet::new(), Vec::new());
        for ((core, way), streams) in groups {
            match way {
                SendMethod::Live => {
                    if !self.live.get(&core).is_some_and(|sender| sender.takes(streams.len())) {
                        self.live.insert(core, LiveSender::new(&ports, streams.len())?);
                    }
                    let sender = self.live.get_mut(&core).context("no sender")?;
                    sender.prepare(&streams, self.options.copies)?;
                    live.insert(core);
                }
                SendMethod::Xsk | SendMethod::Socket => {
                    sockets.push((core, SocketSender::new(&ports, streams, way)?))
                }
            }
        }
        Ok((live, sockets))
    }

    /// Runs the senders until they are done. Returns the reason if the trial was cut short.
    fn send(senders: &[(usize, &mut dyn Sends)], watch: &Watch, end_ns: u64) -> Result<Option<String>> {
        let stop = AtomicBool::new(false);
        let ended = AtomicUsize::new(0);
        thread::scope(|scope| {
            let threads: Vec<_> = senders
                .iter()
                .map(|(core, sender)| {
                    let (stop, ended) = (&stop, &ended);
                    scope.spawn(move || {
                        let result = Pinned::to(*core).and_then(|_core| sender.run(stop));
                        ended.fetch_add(1, Ordering::SeqCst);
                        result
                    })
                })
                .collect();
            let mut cut_short = None;
            let mut looked = Instant::now();
            while ended.load(Ordering::SeqCst) < threads.len() {
                thread::sleep(LOOK);
                if cut_short.is_none() {
                    cut_short = os::check_interrupted().err().map(|why| format!("{why:#}"));
                }
                if cut_short.is_none() && looked.elapsed() > LOOK_AT_LINKS {
                    cut_short = watch.trouble();
                    looked = Instant::now();
                }
                // A program that never gets the processor cannot report that it is done.
                let late = monotonic_ns()? > end_ns + 100_000_000;
                stop.fetch_or(cut_short.is_some() || late, Ordering::SeqCst);
                for (_, sender) in senders {
                    if stop.load(Ordering::SeqCst) || sender.done()? {
                        sender.nudge();
                    }
                }
            }
            for thread in threads {
                thread.join().map_err(|_| anyhow!("a sender died"))??;
            }
            Ok(cut_short)
        })
    }

    /// Waits for the frames that are still under way.
    fn settle(&self, offer: &Offer, sent: u64) -> Result<()> {
        let begin = Instant::now();
        let (mut last, mut quiet_since) = (0, begin);
        while begin.elapsed() < offer.settle && os::check_interrupted().is_ok() {
            let (mut seen, mut all) = (0, 0);
            for checker in &self.checkers {
                for slot in 0..offer.streams.len() {
                    let flow = checker.flow(slot)?;
                    seen += flow.received;
                    all += flow.received + flow.duplicated + flow.corrupted;
                }
            }
            if all != last {
                (last, quiet_since) = (all, Instant::now());
            }
            if seen >= sent && quiet_since.elapsed() >= QUIET {
                break;
            }
            thread::sleep(LOOK * 2);
        }
        Ok(())
    }

    fn outcome(&self, offer: &Offer, progress: &[Progress]) -> Result<Outcome> {
        let start_ns = progress.iter().filter(|p| p.sent > 0).map(|p| p.first_ns).min().unwrap_or(0);
        let mut streams = Vec::new();
        for (slot, (_, stream)) in offer.streams.iter().enumerate() {
            let progress = progress.iter().find(|p| p.slot == slot).context("a stream without a sender")?;
            let flows = self.checkers.iter().map(|checker| checker.flow(slot)).collect::<Result<Vec<_>>>()?;
            streams.push(stream_outcome(stream.id, progress, &flows, start_ns));
        }
        let unidentified = self.checkers.iter().map(Checker::unidentified).sum::<Result<u64>>()?;
        let missed = self.checkers.iter().map(Checker::missed).sum::<Result<u64>>()?;
        Ok(Outcome { streams, unidentified, missed, ..Default::default() })
    }
}

/// Combines the counts of one stream's sender with those of the checkers at all ports.
fn stream_outcome(id: u16, progress: &Progress, flows: &[FlowAbi], start_ns: u64) -> StreamOutcome {
    let since = |ns: u64| Duration::from_nanos(ns.saturating_sub(start_ns));
    let sum = |of: fn(&FlowAbi) -> u64| flows.iter().map(of).sum();
    let seen: Vec<&FlowAbi> = flows.iter().filter(|f| f.first_ns > 0).collect();
    let first = seen.iter().map(|f| f.first_ns).min();
    let last = seen.iter().map(|f| f.last_ns).max();
    let mut latency = Histogram::default();
    for f in &seen {
        latency.merge(&Histogram::from_kernel(&f.buckets, f.latency_sum, f.latency_min, f.latency_max));
    }
    let longest = seen.iter().filter(|f| f.gap_ns > 0).max_by_key(|f| f.gap_ns);
    StreamOutcome {
        id,
        sent: progress.sent,
        received: sum(|f| f.received),
        received_at: flows.iter().map(|f| f.received).collect(),
        duplicated: sum(|f| f.duplicated),
        reordered: sum(|f| f.reordered),
        corrupted: sum(|f| f.corrupted),
        latency,
        tx_time: progress.tx_time(),
        rx_time: first.zip(last).map_or(Duration::ZERO, |(a, b)| Duration::from_nanos(b - a)),
        first_at: first.map(since),
        longest_gap: longest.map(|f| Gap { at: since(f.gap_at_ns), length: Duration::from_nanos(f.gap_ns) }),
        last_loss_at: seen.iter().map(|f| f.loss_ns).max().filter(|ns| *ns > 0).map(since),
    }
}

impl Tester for PortTester {
    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn line_rate_pps(&self, frame_bytes: usize) -> Option<f64> {
        // RFC 2544, 20: preamble and gap take 20 bytes. The slowest port decides, so that every port can be
        // offered the rate.
        let speeds: Option<Vec<f64>> = self.ports.iter().map(Port::bits_per_second).collect();
        let slowest = speeds?.into_iter().reduce(f64::min)?;
        Some(slowest / ((frame_bytes + 20) * 8) as f64)
    }

    fn trial(&mut self, offer: &Offer) -> Result<Outcome> {
        self.check(offer)?;
        // Another process may have had the core for the whole time.
        for _ in 0..TRIES {
            if let Some(outcome) = self.attempt(offer)? {
                return Ok(outcome);
            }
        }
        bail!("nothing could be sent")
    }

    fn about(&self) -> About {
        let ports: Vec<String> = self.ports.iter().map(|p| p.name().to_owned()).collect();
        let hook = match self.options.count_at {
            CountAt::Xdp => "judged in XDP",
            CountAt::Tc => "judged in TC",
            CountAt::Socket => "judged behind a packet socket",
        };
        let mut ways: Vec<String> =
            self.ways.iter().zip(&ports).map(|((_, why), port)| format!("{port}: {why}")).collect();
        ways.dedup_by(|a, b| a.split(": ").nth(1) == b.split(": ").nth(1));
        About { ports, engine: format!("{}; {hook}", ways.join(", ")), own_latency_ns: self.own_latency_ns }
    }
}

impl PortTester {
    /// Runs a trial; `None` if no frame was sent during the whole trial.
    fn attempt(&mut self, offer: &Offer) -> Result<Option<Outcome>> {
        os::check_interrupted()?;
        self.epoch = (self.epoch + 1) % EPOCHS;
        let verify: Vec<bool> = offer.streams.iter().map(|(_, s)| s.verify).collect();
        for checker in &mut self.checkers {
            checker.begin(self.epoch, &verify)?;
        }
        // Programs are loaded on any core: a device may poll on the other ones with a higher priority than this thread.
        let (cores, mut sockets) = self.prepare(offer)?;
        let _elsewhere = os::Elsewhere::than(&self.options.cores)?;
        let watch = Watch::over(&self.ports)?;
        if let Some(why) = watch.trouble() {
            bail!("{why}");
        }
        let live = self.live.iter_mut().filter(|(core, _)| cores.contains(core));
        let mut senders: Vec<(usize, &mut dyn Sends)> =
            live.map(|(core, sender)| (*core, sender as &mut dyn Sends)).collect();
        senders.extend(sockets.iter_mut().map(|(core, sender)| (*core, sender as &mut dyn Sends)));
        let schedule = Schedule::new(offer, monotonic_ns()? + LEAD.as_nanos() as u64);
        for (_, sender) in &mut senders {
            sender.begin(&schedule)?;
        }
        let before = cpu::Times::now()?;
        let mut cut_short = Self::send(&senders, &watch, schedule.end_ns)?;
        let cpu = cpu::Times::now()?.since(&before);
        let mut progress = Vec::new();
        for (_, sender) in &senders {
            progress.extend(sender.progress()?);
        }
        let sent: u64 = progress.iter().map(|p| p.sent).sum();
        if sent == 0 && cut_short.is_none() {
            return Ok(None);
        }
        if cut_short.is_none() {
            self.settle(offer, sent)?;
            cut_short =
                os::check_interrupted().err().map(|why| format!("{why:#}")).or_else(|| watch.trouble());
        }
        Ok(Some(Outcome { cpu, cut_short, ..self.outcome(offer, &progress)? }))
    }
}

/// Ports of the namespace `netns` by name.
///
/// # Errors
/// For a name without a device.
pub fn ports_of(netns: &Netns, names: &[String]) -> Result<Vec<Port>> {
    names.iter().map(|name| Port::new(netns, name)).collect()
}
