//! `lanyard bench profile`: the time that a frame takes, by part of the work and by function.
//!
//! Read first: `symbols.rs` for the parts; `docs/performance.md`, "The tester". Generator, device and receiver share
//! one core, so its time divided by the frames is the cost of a frame; the report shows the tester's own part.
//! Invariant: tools that slow the device down (statistics of BPF programs, callgrind) are on only in a run of their
//! own.

mod callgrind;
mod perf;
mod programs;
mod symbols;

pub use symbols::Part;

use crate::dut::{Executable, Kind};
use crate::report::Unit;
use crate::report::{Axis, Bars, Better, DeviceNote, Key, Outputs, Results, Series};
use crate::testbed::{Setup, TestBed};
use anyhow::{Result, bail, ensure};
use lanyard_tester;
use lanyard_tester::os;
use lanyard_tester::traffic::{Ip, Order, Stream};
use lanyard_tester::trial::{Offer, Outcome, Tester};
use perf::{Counters, Sample, Sampler};
use programs::Programs;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use symbols::Symbols;

/// The number of functions in each report.
const FUNCTIONS: usize = 15;
/// The length of the bar for 100 %, in characters.
const BAR: f64 = 40.0;

/// Arguments of `lanyard bench profile`.
#[derive(Debug, Clone, clap::Args)]
#[command(about = "The time that a frame takes: by part of the work, by function, by BPF program")]
pub struct Args {
    /// Devices under test
    #[arg(
        long = "dut",
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "lanyard-tc,lanyard-xdp,bridge"
    )]
    pub devices: Vec<String>,
    /// Hosts among which frames move, 2-130000; random pairs of them
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,2048")]
    pub hosts: Vec<u32>,
    /// Frame size with FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub size: usize,
    /// Length of one run in milliseconds, 100-3000
    #[arg(long, value_name = "MS", default_value_t = 1500)]
    pub window: u64,
    /// The core that generator, device and receiver share
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub core: usize,
    /// The lanyard to measure (default: this one)
    #[arg(long, value_name = "PATH")]
    pub lanyard: Option<PathBuf>,
    /// Where reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// The distribution of a run's processor time.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// Samples by part and function.
    pub functions: BTreeMap<(Part, String), u64>,
    /// Samples that were lost because the ring was full.
    pub lost: u64,
}

impl Profile {
    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.functions.values().sum()
    }

    /// The share of each part in all samples, 0..=1, in the order of [`Part::ALL`].
    #[must_use]
    pub fn parts(&self) -> Vec<(Part, f64)> {
        let all = self.samples().max(1) as f64;
        let of =
            |part: Part| self.functions.iter().filter(|((p, _), _)| *p == part).map(|(_, n)| n).sum::<u64>();
        Part::ALL.into_iter().map(|part| (part, of(part) as f64 / all)).collect()
    }

    /// The `count` functions with most samples, and the share of each in all samples, 0..=1.
    #[must_use]
    pub fn top(&self, count: usize) -> Vec<(Part, String, f64)> {
        let all = self.samples().max(1) as f64;
        let mut functions: Vec<_> =
            self.functions.iter().map(|((part, name), n)| (*part, name.clone(), *n as f64 / all)).collect();
        functions.sort_by(|a, b| b.2.total_cmp(&a.2));
        functions.truncate(count);
        functions
    }
}

/// Runs `lanyard bench profile`.
///
/// # Errors
/// Without the rights to measure, for bad arguments, or on ctrl-C; the results so far are written.
pub fn main(args: &Args) -> Result<ExitCode> {
    args.outputs.check()?;
    let _alone = os::begin()?;
    let results = run(args)?;
    os::check_interrupted()?;
    let broken = |note: &DeviceNote| note.broken.is_some();
    Ok(if results.devices.iter().any(broken) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures each device, prints its results at once, and writes the requested files.
///
/// # Errors
/// For bad arguments, or when a file cannot be written. A device that breaks is noted, and the others
/// continue.
pub fn run(args: &Args) -> Result<Results> {
    let kinds = args.devices.iter().map(|name| Kind::named(name)).collect::<Result<Vec<_>>>()?;
    ensure!((100..=3000).contains(&args.window), "a window of {} ms: 100-3000", args.window);
    ensure!(args.hosts.iter().all(|n| (2..=130_000).contains(n)), "hosts {:?}: 2-130000", args.hosts);
    ensure!(args.core < os::cores(), "no core {}: 0-{}", args.core, os::cores() - 1);
    let lanyard = Executable::new(args.lanyard.as_deref())?;
    let mut results = Results::new("profile");
    results.parameter("size", args.size);
    results.parameter("window", format!("{} ms", args.window));
    for kind in kinds {
        let mut note = DeviceNote { name: kind.name().to_owned(), detail: String::new(), broken: None };
        note.broken = kind.unavailable(&lanyard);
        for hosts in &args.hosts {
            if note.broken.is_none() && os::check_interrupted().is_ok() {
                let done = device(args, kind, *hosts, &lanyard, &mut results, &mut note);
                note.broken = done.err().map(|why| format!("{hosts} hosts: {why:#}"));
            }
        }
        if let Some(why) = &note.broken {
            println!("{}: {why}", kind.name());
        }
        results.devices.push(note);
        args.outputs.write(&results)?;
    }
    Ok(results)
}

fn device(
    args: &Args,
    kind: Kind,
    hosts: u32,
    lanyard: &Executable,
    results: &mut Results,
    note: &mut DeviceNote,
) -> Result<()> {
    let setup = Setup { lanyard: lanyard.clone(), cores: vec![args.core], ..Setup::new()? };
    let mut bed = TestBed::up(kind, &setup)?;
    note.detail = bed.detail();
    bed.learn(hosts / 2, Ip::V4)?;
    let order = if hosts > 2 { Order::Random } else { Order::Sequential };
    let stream = Stream { order, ..bed.stream(0, 1, hosts / 2) }.size(args.size);
    let mut offer = Offer::new(vec![(0, stream)], Duration::from_millis(args.window));
    // Lost frames do not matter here, so do not wait for them.
    offer.settle = Duration::from_millis(100);
    let title = format!("{}, {hosts} hosts, {} B", kind.name(), args.size);
    let (profile, outcome, counters) = sampled(&mut bed, &offer, kind, args.core)?;
    let pps = outcome.streams[0].rx_pps();
    ensure!(pps > 0.0, "nothing arrives");
    print_profile(&title, &profile, pps, kind.own_threads());
    record(results, &title, kind, hosts, &profile, pps);
    match counters {
        Ok(counted) => {
            let frames = outcome.streams[0].received.max(1) as f64;
            let each: Vec<String> =
                counted.iter().map(|(name, n)| format!("{:.1} {name}", *n as f64 / frames)).collect();
            println!("  a frame, on core {}: {}", args.core, each.join(", "));
            results.note(format!("{title}: a frame costs {}", each.join(", ")));
        }
        Err(why) => {
            println!("  hardware counters: {why:#}");
            results.note(format!("hardware counters: {why:#}"));
        }
    }
    for (name, runs, nanos) in Programs::during(|| bed.trial(&offer).map(drop))? {
        println!("  bpf {name}: {runs} runs, {nanos:.0} ns each (with what counting them costs)");
        let key = Key::new("BPF program", &name, kind.name()).at(Axis::Hosts, f64::from(hosts));
        let series = results.series_mut(key, |key| Series::new(key, "", Unit::Microseconds, Better::Lower));
        series.rounds.push(nanos / 1e3);
    }
    drop(bed);
    if kind == Kind::Lanyard(crate::dut::Hook::Soft) {
        match callgrind::functions(&setup, hosts, args.size) {
            Ok(found) => {
                println!("  instructions of a frame (callgrind): {:.0}", found.per_frame);
                for (name, part) in found.functions.iter().take(FUNCTIONS) {
                    println!("    {:5.1} % {name}", part * 100.0);
                }
                let bars = found
                    .functions
                    .iter()
                    .map(|(name, part)| (name.clone(), vec![("switch".to_owned(), *part)]));
                results.bars.push(Bars {
                    title: format!("{title}, instructions (callgrind)"),
                    bars: bars.take(FUNCTIONS).collect(),
                });
            }
            Err(why) => {
                println!("  callgrind: {why:#}");
                results.note(format!("callgrind: {why:#}"));
            }
        }
    }
    Ok(())
}

type Counted = Result<Vec<(String, u64)>>;

/// A trial with samples of all relevant processors, and counters of the one that forwards.
fn sampled(bed: &mut TestBed, offer: &Offer, kind: Kind, core: usize) -> Result<(Profile, Outcome, Counted)> {
    let cpus = if kind.own_threads() { (0..os::cores()).collect() } else { vec![core] };
    let samplers = cpus.into_iter().map(Sampler::start).collect::<Result<Vec<_>>>()?;
    let counters = Counters::start(core);
    let outcome = bed.trial(offer);
    let counted = counters.map(|counters| counters.read());
    let mut samples = Vec::new();
    let mut profile = Profile::default();
    for sampler in samplers {
        let (some, lost) = sampler.stop();
        samples.extend(some);
        profile.lost += lost;
    }
    let outcome = outcome?;
    if let Some(why) = &outcome.cut_short {
        bail!("{why}");
    }
    // Read the symbols now, while the device's BPF programs are still loaded.
    let symbols = Symbols::load()?;
    let mut processes = BTreeMap::new();
    let window = sending(&symbols, &samples);
    for sample in samples.iter().filter(|sample| window.contains(&sample.time_ns)) {
        let process = processes.entry(sample.pid).or_insert_with(|| Process::of(sample.pid));
        if let Some(key) = place(&symbols, sample, process, core) {
            *profile.functions.entry(key).or_default() += 1;
        }
    }
    Ok((profile, outcome, counted))
}

/// The interval in which frames were sent; before and after it, the tester prepares and cleans up.
fn sending(symbols: &Symbols, samples: &[Sample]) -> RangeInclusive<u64> {
    let sends = samples.iter().filter(|sample| symbols.classify(sample).1 == "bpf:send");
    let times = || sends.clone().map(|sample| sample.time_ns);
    let lead = lanyard_tester::LEAD.as_nanos() as u64;
    times().min().map_or(u64::MAX, |first| first + lead)..=times().max().unwrap_or(0)
}

/// A process that was seen in samples.
struct Process {
    name: String,
    /// True if this process or one of its descendants started it: it belongs to the device under test.
    device: bool,
}

impl Process {
    fn of(pid: u32) -> Self {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let ancestors = std::iter::successors(parent(pid), |pid| parent(*pid)).take(16);
        let device = ancestors.into_iter().any(|ancestor| ancestor == std::process::id());
        Self { name: name.trim().to_owned(), device }
    }
}

/// The parent of a process, from /proc/PID/stat: `PID (NAME) STATE PARENT ...`, where NAME may contain any character.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The part and the function of a sample; `None` if the sample has nothing to do with the trial.
fn place(symbols: &Symbols, sample: &Sample, process: &Process, core: usize) -> Option<(Part, String)> {
    let own = sample.pid == std::process::id();
    let kernel = sample.ip >> 63 == 1;
    // On the sending core, work caused by frames happens in this process's own system call or in
    // the kernel's threads for it.
    let thread = ["ksoftirqd", "napi/"].iter().any(|name| process.name.starts_with(name));
    let sends = sample.cpu == core && (own || thread);
    match kernel {
        true if sends || process.device => Some(symbols.classify(sample)),
        false if process.device => Some((Part::Switch, format!("program {}", process.name))),
        _ => None,
    }
}

fn print_profile(title: &str, profile: &Profile, pps: f64, own_threads: bool) {
    println!("{title}: {:.3} Mpps, {} samples", pps / 1e6, profile.samples());
    let bar = |part: f64| "#".repeat((part * BAR).round() as usize);
    for (part, share) in profile.parts() {
        // Without threads of its own the device shares one core with the tester, which spends all of its time on frames.
        let each = if own_threads { String::new() } else { format!("{:6.0} ns", share * 1e9 / pps) };
        println!("  {:10} {:5.1} %{each:10} {}", part.name(), share * 100.0, bar(share));
    }
    for (part, name, share) in profile.top(FUNCTIONS) {
        println!("    {:5.1} % {:9} {name}", share * 100.0, part.name());
    }
    if profile.lost > 0 {
        println!("  {} samples had no room", profile.lost);
    }
}

fn record(results: &mut Results, title: &str, kind: Kind, hosts: u32, profile: &Profile, pps: f64) {
    let parts = profile.parts().into_iter().map(|(part, share)| (part.name().to_owned(), share)).collect();
    let whole = "Where the time goes";
    match results.bars.iter_mut().find(|bars| bars.title == whole) {
        Some(bars) => bars.bars.push((title.to_owned(), parts)),
        None => {
            results.bars.insert(0, Bars { title: whole.to_owned(), bars: vec![(title.to_owned(), parts)] })
        }
    }
    let functions = profile.top(FUNCTIONS).into_iter();
    let functions =
        functions.map(|(part, name, share)| (name, vec![(part.name().to_owned(), share)])).collect();
    results.bars.push(Bars { title: format!("{title}, by function"), bars: functions });
    let key = Key::new("rate", "", kind.name()).at(Axis::Hosts, f64::from(hosts));
    results
        .series_mut(key, |key| Series::new(key, "", Unit::FramesPerSecond, Better::Higher))
        .rounds
        .push(pps);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_devices_and_others_are_not() {
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.unwrap_or_else(|why| unreachable!("sleep: {why}"));
        let device = Process::of(child.id()).device;
        // The child is no longer needed, and its end is not part of the test.
        let _ = child.kill().and_then(|()| child.wait());
        assert!(device);
        assert!(!Process::of(std::process::id()).device);
        assert!(!Process::of(1).device);
    }
}
