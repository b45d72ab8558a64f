//! `lanyard bench compare`: compares two files of results, figure by figure, and reports only differences that exceed
//! the noise.
//!
//! Read first: `statistics::Contrast`. A table of many figures at 95 % each would show a difference in every twentieth
//! figure where there is none. The intervals are therefore made wider (Bonferroni): all of them together hold with the
//! stated confidence. Invariant: without an interval there is no verdict, and only figures of the same key are
//! compared.

use crate::report::statistics::{Contrast, Estimate, Scale};
use crate::report::{Axis, Better, Key, Results, Series, Unit, markdown};
use anyhow::{Result, bail, ensure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `lanyard bench compare`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    about = "Compares two files of results: faster, slower, or no difference shown",
    long_about = "Compares two files that --json of a bench command wrote, figure by figure: the ratio of the second \
        to the first, its confidence interval, and a verdict that knows noise. The intervals hold together, so a \
        table of a hundred figures is as unlikely to show a difference that is not there as a table of one.\n\n\
        Two runs of the same thing at different hours differ by more than the noise within each. When both files have \
        a device that did not change (the kernel bridge), --relative-to takes that out: each round's figure is \
        divided by that device's in the same round."
)]
#[command(
    after_help = "Exit status: 0 when nothing is slower, 1 when something is, or the files can't be compared."
)]
pub struct Args {
    /// The results to compare with
    #[arg(value_name = "A.json")]
    pub first: PathBuf,
    /// The results to be judged
    #[arg(value_name = "B.json")]
    pub second: PathBuf,
    /// Confidence of all intervals together, in percent, 50-99.99
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0)]
    pub confidence: f64,
    /// Differences below this do not count, in percent, 0-100: two runs may differ by this much although the rounds
    /// of each agree
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    pub margin: f64,
    /// Compare figures divided by this device's in the same round and file
    #[arg(long, value_name = "DEVICE")]
    pub relative_to: Option<String>,
    /// Compare a device of the first file with another of the second: `bridge=lanyard-xdp`
    #[arg(long, value_name = "A=B", conflicts_with = "relative_to")]
    pub devices: Option<String>,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

/// The result of comparing a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second file's figure is better.
    Faster,
    /// The second file's figure is worse.
    Slower,
    /// The figures differ, and neither direction is better.
    Different,
    /// The difference may be noise.
    NoDifference,
    /// One of the figures has fewer than two rounds.
    TooFewRounds,
}

/// One figure of both files.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// The key of the second file's figure.
    #[serde(flatten)]
    pub key: Key,
    /// Unit of both figures; of a ratio when figures are relative.
    pub unit: Unit,
    /// The first file's mean.
    pub first: f64,
    /// The second file's mean.
    pub second: f64,
    /// The difference with its interval, if it can be computed.
    pub contrast: Option<Contrast>,
    /// The conclusion from `contrast`.
    pub verdict: Verdict,
}

/// The comparison of two files.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Figures in both files.
    pub lines: Vec<Line>,
    /// Keys that only one file has, and other remarks.
    pub notes: Vec<String>,
}

/// How to compare.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Confidence of all intervals together, 0..1.
    pub confidence: f64,
    /// Differences below this part of the figure do not count, 0..=1.
    pub margin: f64,
    /// Compare figures divided by this device's in the same round and file; `None`: compare the figures themselves.
    pub relative_to: Option<String>,
    /// A device of the first file, and the one of the second file that it is compared with; `None`: compare devices of one name.
    pub devices: Option<(String, String)>,
}

/// Runs `lanyard bench compare`.
///
/// # Errors
/// For files that cannot be read, or that [`compare`] refuses.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!((50.0..=99.99).contains(&args.confidence), "--confidence {}: 50-99.99", args.confidence);
    ensure!((0.0..=100.0).contains(&args.margin), "--margin {}: 0-100", args.margin);
    let devices = match args.devices.as_deref().map(|text| text.split_once('=')) {
        None => None,
        Some(Some((a, b))) if !a.is_empty() && !b.is_empty() => Some((a.to_owned(), b.to_owned())),
        Some(_) => bail!("--devices {}: not A=B", args.devices.as_deref().unwrap_or_default()),
    };
    let options = Options {
        confidence: args.confidence / 100.0,
        margin: args.margin / 100.0,
        relative_to: args.relative_to.clone(),
        devices,
    };
    let (first, second) = (Results::load(&args.first)?, Results::load(&args.second)?);
    let comparison = compare(&first, &second, &options)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&comparison)?);
    } else {
        print!("{}", comparison.text(&options));
    }
    Ok(if comparison.any(Verdict::Slower) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Compares the figures that both files have.
///
/// # Errors
/// When they are results of different commands, were run with different parameters that change what a figure means, or
/// have no figure in common.
pub fn compare(first: &Results, second: &Results, options: &Options) -> Result<Comparison> {
    ensure!(
        first.bench == second.bench,
        "unlike files: the first is of `bench {}`, the second of `bench {}`",
        first.bench,
        second.bench
    );
    let mut notes = conditions(first, second)?;
    let (mut pairs, mut missing) = (Vec::new(), 0);
    for series in &first.series {
        let mut key = series.key.clone();
        if let Some((from, to)) = &options.devices {
            if key.device != *from {
                continue;
            }
            key.device.clone_from(to);
        }
        if options.relative_to.as_ref() == Some(&key.device) {
            continue;
        }
        match second.get(&key) {
            Some(other) if other.unit == series.unit => pairs.push((series, other)),
            Some(other) => bail!("unlike files: {} in {:?} and {:?}", key.title(), series.unit, other.unit),
            None => missing += 1,
        }
    }
    ensure!(!pairs.is_empty(), "unlike files: no figure is in both{}", hint(first, second, options));
    if missing > 0 {
        notes.push(format!("{missing} figures of the first file are not in the second, and not compared"));
    }
    let limited = pairs.iter().filter(|(a, b)| !(a.caveats.is_empty() && b.caveats.is_empty())).count();
    if limited > 0 {
        notes.push(format!(
            "{limited} of the figures have caveats (the tester was the limit, say): see the reports"
        ));
    }
    // The intervals hold together: each one may fail with its share of the allowed probability.
    let each = 1.0 - (1.0 - options.confidence) / pairs.len() as f64;
    let lines = pairs.into_iter().map(|(a, b)| line((first, a), (second, b), options, each));
    Ok(Comparison { lines: lines.collect::<Result<_>>()?, notes })
}

/// The differences between the conditions of the two runs.
///
/// # Errors
/// When parameters differ that change what a figure means.
fn conditions(first: &Results, second: &Results) -> Result<Vec<String>> {
    const MEANING: [&str; 6] = ["mode", "direction", "hosts", "ports", "loss_tolerance", "latency_load"];
    for name in MEANING {
        let (a, b) = (first.parameters.get(name), second.parameters.get(name));
        ensure!(
            a == b,
            "unlike files: {name} is {} in the first and {} in the second",
            a.map_or("not set", String::as_str),
            b.map_or("not set", String::as_str)
        );
    }
    let mut notes = Vec::new();
    let (a, b) = (&first.environment, &second.environment);
    for (what, a, b) in
        [("kernel", &a.kernel, &b.kernel), ("processor", &a.cpu, &b.cpu), ("boot options", &a.boot, &b.boot)]
    {
        if a != b {
            notes.push(format!("not the same {what}: {a} / {b}"));
        }
    }
    for (name, value) in &first.parameters {
        // A result of the run is not one of its conditions.
        let outcome = ["trials_", "saturation_", "frame_loss_100_", "learning_rate_addresses_"];
        if outcome.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        if let Some(other) = second.parameters.get(name).filter(|other| *other != value) {
            notes.push(format!("not the same {name}: {value} / {other}"));
        }
    }
    for (which, results) in [("first", first), ("second", second)] {
        if let Some(why) = &results.incomplete {
            notes.push(format!("the {which} file is not complete: {why}"));
        }
    }
    Ok(notes)
}

fn hint(first: &Results, second: &Results, options: &Options) -> String {
    let names = |results: &Results| -> String {
        let mut names: Vec<&str> = Vec::new();
        for series in &results.series {
            if !names.contains(&series.key.device.as_str()) {
                names.push(&series.key.device);
            }
        }
        names.join(", ")
    };
    let how = if options.devices.is_none() { "; --devices A=B compares two devices" } else { "" };
    format!(" (devices of the first: {}; of the second: {}{how})", names(first), names(second))
}

fn line(
    first: (&Results, &Series),
    second: (&Results, &Series),
    options: &Options,
    each: f64,
) -> Result<Line> {
    let ((a, a_step), (b, b_step)) = (figures(first, options)?, figures(second, options)?);
    let contrast = Contrast::between((&a, a_step), (&b, b_step), each);
    let (series, better) = (second.1, second.1.better);
    let mean = |values: &[f64]| Estimate::of(values, 0.0, each).map_or(f64::NAN, |e| e.mean);
    Ok(Line {
        key: series.key.clone(),
        unit: series.unit,
        first: mean(&a),
        second: mean(&b),
        contrast,
        verdict: verdict(contrast, better, options.margin, mean(&a)),
    })
}

/// The figures to compare, one per round, and their resolution. With [`Options::relative_to`] they are ratios.
fn figures((results, series): (&Results, &Series), options: &Options) -> Result<(Vec<f64>, f64)> {
    let Some(device) = &options.relative_to else { return Ok((series.rounds.clone(), series.resolution)) };
    let key = Key { device: device.clone(), ..series.key.clone() };
    let reference = results.get(&key);
    let Some(reference) = reference.filter(|r| r.rounds.iter().all(|v| *v != 0.0)) else {
        bail!("--relative-to {device}: no figure of it for {}", place(&series.key));
    };
    ensure!(
        reference.rounds.len() == series.rounds.len(),
        "--relative-to {device}: {} rounds of it and {} of {} for {}",
        reference.rounds.len(),
        series.rounds.len(),
        series.key.device,
        place(&series.key)
    );
    let ratios: Vec<f64> = series.rounds.iter().zip(&reference.rounds).map(|(a, b)| a / b).collect();
    let part = |s: &Series| {
        let mean = Estimate::of(&s.rounds, 0.0, options.confidence).map_or(0.0, |e| e.mean);
        if mean == 0.0 { 0.0 } else { s.resolution / mean }
    };
    let mean = Estimate::of(&ratios, 0.0, options.confidence).map_or(0.0, |e| e.mean);
    let step = mean * (part(series) + part(reference));
    Ok((ratios, step))
}

fn verdict(contrast: Option<Contrast>, better: Better, margin: f64, first: f64) -> Verdict {
    let Some(contrast) = contrast else { return Verdict::TooFewRounds };
    let (low, high) = match contrast.scale {
        Scale::Ratio => (1.0 / (1.0 + margin), 1.0 + margin),
        Scale::Difference => (-first.abs() * margin, first.abs() * margin),
    };
    match (contrast.low > high, contrast.high < low, better) {
        (true, _, Better::Higher) | (_, true, Better::Lower) => Verdict::Faster,
        (true, _, Better::Lower) | (_, true, Better::Higher) => Verdict::Slower,
        (false, false, _) => Verdict::NoDifference,
        (_, _, Better::Neither) => Verdict::Different,
    }
}

fn place(key: &Key) -> String {
    let at = key.at.map_or_else(String::new, |(axis, at): (Axis, f64)| format!(", {}", axis.show(at)));
    format!("{}{at}", key.title())
}

impl Comparison {
    /// True when some figure has this verdict.
    #[must_use]
    pub fn any(&self, verdict: Verdict) -> bool {
        self.lines.iter().any(|line| line.verdict == verdict)
    }

    /// The comparison as a table for a terminal, with its notes.
    #[must_use]
    pub fn text(&self, options: &Options) -> String {
        let head = ["What", "Device", "First", "Second", "Second to first", "Interval", "Verdict"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.lines.iter().map(|line| line.cells(options)));
        let mut text = markdown(&lines);
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let count = |verdict| self.lines.iter().filter(|line| line.verdict == verdict).count();
        let _ = writeln!(
            text,
            "{} faster, {} slower, {} no difference shown{}; all intervals together hold with {} % confidence, \
             differences below {} % do not count",
            count(Verdict::Faster),
            count(Verdict::Slower),
            count(Verdict::NoDifference),
            match count(Verdict::TooFewRounds) + count(Verdict::Different) {
                0 => String::new(),
                other => format!(", {other} other"),
            },
            (options.confidence * 1e4).round() / 100.0,
            (options.margin * 1e4).round() / 100.0
        );
        text
    }
}

impl Line {
    fn cells(&self, options: &Options) -> Vec<String> {
        let show = |value: f64| match options.relative_to {
            Some(_) => format!("{value:.3} x"),
            None => self.unit.show(value),
        };
        let (middle, interval) = match self.contrast {
            Some(c) if c.scale == Scale::Ratio => {
                let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
                (percent(c.middle), format!("{} to {}", percent(c.low), percent(c.high)))
            }
            Some(c) => (show(c.middle), format!("{} to {}", show(c.low), show(c.high))),
            None => Default::default(),
        };
        let verdict = match (self.verdict, self.unit) {
            (Verdict::Faster, Unit::Addresses | Unit::Fraction | Unit::Frames | Unit::Megabytes) => "better",
            (Verdict::Slower, Unit::Addresses | Unit::Fraction | Unit::Frames | Unit::Megabytes) => "worse",
            (Verdict::Faster, _) => "faster",
            (Verdict::Slower, _) => "slower",
            (Verdict::Different, _) => "different",
            (Verdict::NoDifference, _) => "no difference shown",
            (Verdict::TooFewRounds, _) => "too few rounds",
        };
        let device = self.key.device.clone();
        vec![
            place(&self.key),
            device,
            show(self.first),
            show(self.second),
            middle,
            interval,
            verdict.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::noise::Noise;

    const SIZES: [f64; 8] = [64.0, 128.0, 256.0, 512.0, 1024.0, 1280.0, 1518.0, 9018.0];

    /// A run of devices that forward at given rates, with noise of the relative standard deviation
    /// `deviation`.
    fn run(noise: &mut Noise, deviation: f64, rounds: usize, devices: &[(&str, f64)]) -> Results {
        let mut results = Results::new("rfc2544");
        for (device, rate) in devices {
            for size in SIZES {
                let key = Key::new("throughput", "", device).at(Axis::FrameBytes, size);
                let rounds = (0..rounds).map(|_| rate * (1.0 + deviation * noise.normal())).collect();
                results
                    .series
                    .push(Series { rounds, ..Series::new(key, "", Unit::FramesPerSecond, Better::Higher) });
            }
        }
        results
    }

    fn options() -> Options {
        Options { confidence: 0.95, ..Options::default() }
    }

    fn compared(a: &Results, b: &Results, options: &Options) -> Comparison {
        compare(a, b, options).expect("comparable")
    }

    /// The same device measured twice: in at most one of twenty pairs of files may any of the eight figures
    /// differ.
    #[test]
    fn the_same_run_twice_agrees_within_its_own_confidence() {
        let mut noise = Noise::new(1);
        for (deviation, rounds) in [(0.03, 3), (0.03, 5), (0.002, 7)] {
            let runs = 1000;
            let wrong = (0..runs).filter(|_| {
                let (a, b) = (
                    run(&mut noise, deviation, rounds, &[("dut", 1e6)]),
                    run(&mut noise, deviation, rounds, &[("dut", 1e6)]),
                );
                let found = compared(&a, &b, &options());
                found.any(Verdict::Faster) || found.any(Verdict::Slower)
            });
            let wrong = wrong.count();
            // Three standard deviations of a binomial above 5 %.
            assert!(wrong <= 71, "{wrong} of {runs} pairs differ, {rounds} rounds of {deviation}");
            // The interval is not so wide that nothing is ever outside it.
            assert!(wrong >= 5, "{wrong} of {runs} pairs differ, {rounds} rounds of {deviation}");
        }
    }

    #[test]
    fn a_difference_is_found_and_has_its_sign() {
        let mut noise = Noise::new(2);
        for (factor, verdict) in [(1.1, Verdict::Faster), (0.9, Verdict::Slower)] {
            let found = (0..200).filter(|_| {
                let a = run(&mut noise, 0.01, 5, &[("dut", 1e6)]);
                let b = run(&mut noise, 0.01, 5, &[("dut", 1e6 * factor)]);
                compared(&a, &b, &options()).lines.iter().all(|line| line.verdict == verdict)
            });
            let found = found.count();
            assert!(found >= 190, "{found} of 200 at {factor}");
        }
    }

    #[test]
    fn a_difference_below_the_margin_is_not_reported() {
        let mut noise = Noise::new(3);
        let a = run(&mut noise, 0.0001, 7, &[("dut", 1e6)]);
        let b = run(&mut noise, 0.0001, 7, &[("dut", 1.01e6)]);
        assert!(compared(&a, &b, &options()).any(Verdict::Faster));
        let wide = Options { margin: 0.02, ..options() };
        assert!(!compared(&a, &b, &wide).any(Verdict::Faster));
    }

    /// The machine was a third slower on the second day, the device was not: relative to a reference device
    /// there is no difference.
    #[test]
    fn a_reference_takes_the_day_out() {
        let mut noise = Noise::new(4);
        let a = run(&mut noise, 0.005, 5, &[("dut", 3e6), ("bridge", 1e6)]);
        let b = run(&mut noise, 0.005, 5, &[("dut", 2e6), ("bridge", 0.667e6)]);
        assert!(compared(&a, &b, &options()).any(Verdict::Slower));
        let relative = Options { relative_to: Some("bridge".to_owned()), margin: 0.02, ..options() };
        let found = compared(&a, &b, &relative);
        assert!(!found.any(Verdict::Slower), "{}", found.text(&relative));
        assert_eq!(found.lines.len(), SIZES.len(), "the reference is not held against itself");
    }

    #[test]
    fn one_round_has_no_verdict() {
        let mut noise = Noise::new(5);
        let (a, b) = (run(&mut noise, 0.0, 1, &[("dut", 1e6)]), run(&mut noise, 0.0, 1, &[("dut", 2e6)]));
        let found = compared(&a, &b, &options());
        assert!(found.lines.iter().all(|line| line.verdict == Verdict::TooFewRounds));
        assert!(found.text(&options()).contains("too few rounds"));
    }

    #[test]
    fn less_is_better_where_it_is() {
        let contrast = |low: f64, high: f64| {
            Some(Contrast { scale: Scale::Ratio, middle: f64::midpoint(low, high), low, high })
        };
        let check = |contrast, better, expected| assert_eq!(verdict(contrast, better, 0.02, 1.0), expected);
        check(contrast(1.1, 1.2), Better::Lower, Verdict::Slower);
        check(contrast(0.7, 0.9), Better::Lower, Verdict::Faster);
        check(contrast(0.7, 0.9), Better::Neither, Verdict::Different);
        check(contrast(0.9, 1.1), Better::Lower, Verdict::NoDifference);
        check(contrast(1.019, 1.2), Better::Higher, Verdict::NoDifference);
        check(None, Better::Higher, Verdict::TooFewRounds);
    }

    #[test]
    fn unlike_files_are_refused_with_the_reason() {
        let mut noise = Noise::new(6);
        let a = run(&mut noise, 0.01, 3, &[("bridge", 1e6)]);
        let check = |b: &Results, options: &Options, why: &str| {
            let printed = compare(&a, b, options).expect_err(why).to_string();
            assert!(printed.contains(why), "{printed}");
        };
        let other = Results { bench: "overload".to_owned(), ..a.clone() };
        check(&other, &options(), "`bench rfc2544`, the second of `bench overload`");
        let mut other = a.clone();
        other.parameter("loss_tolerance", 0.01);
        check(&other, &options(), "loss_tolerance is not set in the first and 0.01 in the second");
        let other = run(&mut noise, 0.01, 3, &[("lanyard", 1e6)]);
        check(&other, &options(), "devices of the first: bridge; of the second: lanyard; --devices A=B");
        check(&a, &Options { relative_to: Some("ovs".to_owned()), ..options() }, "--relative-to ovs");
        // Two devices, one in each file.
        let paired = Options { devices: Some(("bridge".to_owned(), "lanyard".to_owned())), ..options() };
        assert_eq!(compared(&a, &other, &paired).lines.len(), SIZES.len());
    }
}
