//! `lanyard bench selftest`: the limits of the tester on this machine, and a check that it measures correctly.
//!
//! Read first: `dut/impaired.rs` for the wires with known impairments. Invariant: a figure whose true value is known is
//! compared with it. Counts must be exact; times and rates must lie within the tolerance that is printed beside them.

use crate::dut::{Impaired, Impairment};
use crate::report::Environment;
use crate::testbed::{Setup, TestBed};
use anyhow::{Context, Result, bail};
use lanyard_tester::SendMethod;
use lanyard_tester::histogram::Histogram;
use lanyard_tester::os;
use lanyard_tester::traffic::{CountAt, Stream};
use lanyard_tester::trial::{Offer, StreamOutcome, Tester};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The rate that the generator should reach with 64-byte frames from one core.
const RATE_PPS: f64 = 2e6;
/// The permitted error of a rate.
const RATE_ERROR: f64 = 0.01;
/// The permitted error of a latency.
const LATENCY_ERROR_NS: f64 = 1000.0;
/// The number of attempts at a rate or a latency: another process may have disturbed the first one.
const TRIES: usize = 3;

/// Arguments of `lanyard bench selftest`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    about = "Tests the tester: rates, latency, and wires that lose, double, spoil, delay and reorder frames"
)]
pub struct Args {
    /// The core that sends
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub core: usize,
    /// Write the results to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What is checked.
    pub what: String,
    /// The true value, or the required one.
    pub expected: String,
    /// The value that the tester measured.
    pub found: String,
    /// True if the value passes; `None` for a figure that is only reported.
    pub right: Option<bool>,
}

/// The results of a self-test.
#[derive(Debug, Clone, Serialize)]
pub struct SelfTest {
    /// The machine and the time of the run.
    pub environment: Environment,
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The reason why the self-test ended early; `None` if it ran to its end.
    pub incomplete: Option<String>,
}

/// Runs `lanyard bench selftest`. The exit code is 1 when a check fails.
///
/// # Errors
/// Without the rights to measure.
pub fn main(args: &Args) -> Result<ExitCode> {
    let _alone = os::begin()?;
    let mut test = SelfTest { environment: Environment::here(), checks: Vec::new(), incomplete: None };
    if let Err(why) = run(args.core, &mut test.checks) {
        test.incomplete = Some(format!("{why:#}"));
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&test)? + "\n")
            .with_context(|| format!("{}", path.display()))?;
    }
    if let Some(why) = &test.incomplete {
        println!("not to the end: {why}");
    }
    let wrong = test.incomplete.is_some() || test.checks.iter().any(|c| c.right == Some(false));
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs all checks and prints each result at once.
///
/// # Errors
/// When something breaks, or on ctrl-C.
pub fn run(core: usize, checks: &mut Vec<Check>) -> Result<()> {
    let setup = Setup { count_at: Some(CountAt::Xdp), cores: vec![core], ..Setup::new()? };
    let mut report = |check: Check| {
        println!("{}", line(&check));
        checks.push(check);
    };
    let mut wire = TestBed::wire(&setup)?;
    report(Check {
        what: "tester".to_owned(),
        expected: String::new(),
        found: wire.about().engine,
        right: None,
    });
    rates(&mut wire, &mut report)?;
    let own = own_latency(&mut wire)?;
    report(Check {
        what: "own latency over a wire".to_owned(),
        expected: "median below 1 us".to_owned(),
        found: show(&own),
        right: Some(own.percentile(50.0).is_some_and(|ns| (ns as f64) < LATENCY_ERROR_NS)),
    });
    drop(wire);
    counts(&setup, &mut report)?;
    delays(&setup, &mut report)?;
    fallbacks(&setup, &mut report)
}

/// The latency of the tester itself: over a wire, at 10,000 frames/s.
///
/// # Errors
/// When the trial breaks.
pub fn own_latency(wire: &mut TestBed) -> Result<Histogram> {
    let stream = Stream { rate_pps: Some(10_000), stamp: true, ..wire.stream(0, 1, 1) };
    let outcome = wire.trial(&Offer::new(vec![(0, stream)], Duration::from_millis(500)))?;
    Ok(outcome.latency())
}

fn rates(wire: &mut TestBed, report: &mut impl FnMut(Check)) -> Result<()> {
    for (what, verify, stamp) in
        [("", false, false), (", stamped", false, true), (", stamped and verified", true, true)]
    {
        let stream = Stream { verify, stamp, ..wire.stream(0, 1, 1) };
        let seen = best(wire, stream, StreamOutcome::rx_pps)?;
        report(Check {
            what: format!("64-byte frames from one core{what}"),
            expected: format!("{:.1} Mpps or more", RATE_PPS / 1e6),
            found: format!("{:.3} Mpps sent, {:.3} received", seen.tx_pps() / 1e6, seen.rx_pps() / 1e6),
            right: Some(seen.rx_pps() >= RATE_PPS),
        });
    }
    for rate in [100, 1_000, 10_000, 100_000, 500_000, 1_000_000, 2_000_000] {
        let stream = Stream { rate_pps: Some(rate), ..wire.stream(0, 1, 1) };
        let seen = best(wire, stream, |s| -(s.tx_pps() / f64::from(rate) - 1.0).abs())?;
        let error = seen.tx_pps() / f64::from(rate) - 1.0;
        report(Check {
            what: format!("paced at {rate} frames/s"),
            expected: "within 1 %".to_owned(),
            found: format!("{:.1}/s, {:+.3} %, {} lost", seen.tx_pps(), error * 100.0, seen.lost()),
            right: Some(error.abs() <= RATE_ERROR),
        });
    }
    Ok(())
}

/// Runs [`TRIES`] trials of half a second and returns the result for which `of` is greatest.
fn best(bed: &mut TestBed, stream: Stream, of: impl Fn(&StreamOutcome) -> f64) -> Result<StreamOutcome> {
    let mut best: Option<StreamOutcome> = None;
    for _ in 0..TRIES {
        let outcome = bed.trial(&Offer::new(vec![(0, stream)], Duration::from_millis(500)))?;
        if let Some(why) = outcome.cut_short {
            bail!("{why}");
        }
        let seen = outcome.streams.into_iter().next().context("no stream")?;
        best = match best {
            Some(other) if of(&other) >= of(&seen) => Some(other),
            _ => Some(seen),
        };
    }
    best.context("no trial")
}

fn impaired(setup: &Setup, impairment: Impairment) -> Result<TestBed> {
    TestBed::with("impaired", setup, false, |bed| Ok(Box::new(Impaired::up(bed, impairment)?)))
}

fn counts(setup: &Setup, report: &mut impl FnMut(Check)) -> Result<()> {
    let frames = 20_000;
    for (what, impairment, rate, expected) in [
        ("a dropper of 1 in 10", Impairment::Drop(10), 100_000, [2000, 0, 0, 0]),
        ("a dropper of 1 in 999", Impairment::Drop(999), 100_000, [20, 0, 0, 0]),
        ("a duplicator of 1 in 7", Impairment::Duplicate(7), 100_000, [0, 2857, 0, 0]),
        ("a corrupter of 1 in 100", Impairment::Corrupt(100), 100_000, [200, 0, 0, 200]),
        // The last frame that was held back is never released.
        ("a reorderer of 1 in 10", Impairment::Reorder(10), 10_000, [1, 0, 1999, 0]),
    ] {
        if matches!(impairment, Impairment::Reorder(_)) && os::cores() < 2 {
            report(Check {
                what: what.to_owned(),
                expected: String::new(),
                found: "needs a second core".to_owned(),
                right: None,
            });
            continue;
        }
        let mut bed = impaired(setup, impairment)?;
        let stream = Stream { rate_pps: Some(rate), verify: true, stamp: true, ..bed.stream(0, 1, 1) };
        let outcome = bed.trial(&Offer::burst(vec![(0, stream)], frames))?;
        let seen = &outcome.streams[0];
        let found = [seen.lost(), seen.duplicated, seen.reordered, seen.corrupted];
        let show = |[lost, twice, late, spoiled]: [u64; 4]| {
            format!("{lost} lost, {twice} twice, {late} late, {spoiled} spoiled")
        };
        report(Check {
            what: format!("{what}, {frames} frames"),
            expected: show(expected),
            found: show(found),
            right: Some(found == expected && seen.sent == frames),
        });
    }
    Ok(())
}

fn delays(setup: &Setup, report: &mut impl FnMut(Check)) -> Result<()> {
    for micros in [10, 50, 500] {
        let delay = Duration::from_micros(micros);
        let mut bed = impaired(setup, Impairment::Delay(delay))?;
        let stream = Stream { rate_pps: Some(1_000), stamp: true, ..bed.stream(0, 1, 1) };
        // Take the trial with the least mean, because a disturbance by the machine only adds latency.
        let seen = best(&mut bed, stream, |s| -s.latency.mean().unwrap_or(f64::MAX))?;
        let truth = delay.as_nanos() as f64;
        let (least, median) =
            (seen.latency.min().unwrap_or(0) as f64, seen.latency.percentile(50.0).unwrap_or(0) as f64);
        // A median is only as precise as its bucket.
        let width = truth / 64.0;
        report(Check {
            what: format!("a delay line of {micros} us"),
            expected: format!("within {:.0} ns and the bucket ({width:.0} ns)", LATENCY_ERROR_NS),
            found: format!(
                "{}; least {:+.0} ns, median {:+.0} ns off",
                show(&seen.latency),
                least - truth,
                median - truth
            ),
            right: Some(
                least >= truth
                    && least - truth < LATENCY_ERROR_NS
                    && (median - truth).abs() < LATENCY_ERROR_NS + width,
            ),
        });
    }
    if os::cores() < 2 {
        return Ok(());
    }
    let delay = Duration::from_millis(5);
    let mut bed = impaired(setup, Impairment::Queue(delay))?;
    let stream = Stream { rate_pps: Some(2_000), stamp: true, ..bed.stream(0, 1, 1) };
    let seen = best(&mut bed, stream, |s| -s.latency.mean().unwrap_or(f64::MAX))?;
    let least = seen.latency.min().unwrap_or(0);
    report(Check {
        what: "a queue of 5 ms (a thread: late when the machine is busy)".to_owned(),
        expected: "5 ms and the thread's own time, below 100 us".to_owned(),
        found: show(&seen.latency),
        right: Some((5_000_000..5_100_000).contains(&least)),
    });
    Ok(())
}

/// The other ways of sending, for machines and devices without live frames.
fn fallbacks(setup: &Setup, report: &mut impl FnMut(Check)) -> Result<()> {
    for (name, way) in [("AF_XDP", SendMethod::Xsk), ("packet socket", SendMethod::Socket)] {
        let mut wire = TestBed::wire(setup)?;
        if let Err(why) = wire.send_by(way) {
            report(Check {
                what: name.to_owned(),
                expected: String::new(),
                found: format!("{why:#}"),
                right: None,
            });
            continue;
        }
        let stream = wire.stream(0, 1, 1);
        let fast = best(&mut wire, stream, StreamOutcome::rx_pps)?;
        let rate = 20_000;
        let paced = best(&mut wire, Stream { rate_pps: Some(rate), stamp: true, ..stream }, |s| {
            -(s.tx_pps() / f64::from(rate) - 1.0).abs()
        })?;
        let error = paced.tx_pps() / f64::from(rate) - 1.0;
        report(Check {
            what: format!("{name}: 64-byte frames, and {rate} frames/s"),
            expected: "within 1 %, none lost".to_owned(),
            found: format!(
                "{:.3} Mpps; {:+.3} %, {} lost, {}",
                fast.rx_pps() / 1e6,
                error * 100.0,
                paced.lost(),
                show(&paced.latency)
            ),
            right: Some(error.abs() <= RATE_ERROR && paced.lost() == 0),
        });
    }
    Ok(())
}

fn show(latency: &Histogram) -> String {
    let at = |percent| latency.percentile(percent).map_or_else(|| "-".to_owned(), |ns| ns.to_string());
    format!("{} / {} / {} ns (least, median, 99 %)", at(0.0), at(50.0), at(99.0))
}

fn line(check: &Check) -> String {
    let mark = match check.right {
        Some(true) => "right",
        Some(false) => "WRONG",
        None => "",
    };
    let mut text = format!("{mark:5} {}: {}", check.what, check.found);
    if !check.expected.is_empty() {
        let _ = write!(text, " [{}]", check.expected);
    }
    text
}
