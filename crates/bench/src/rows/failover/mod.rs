//! `lanyard bench failover`: a ring of switches in which a wire is cut while hosts send across it. The figure is the
//! time for which the hosts cannot reach each other.
//!
//! Read first: RFC 6413, sections 3.6 and 4 (convergence times derived from loss). `ring.rs` builds the ring and cuts
//! its wires. `probe.rs` measures: it sends frames in both directions at a fixed interval, and takes the time from the
//! first lost frame to the first frame after the last lost one.

mod probe;
mod ring;

use crate::dut::Executable;
use crate::report::{Arm, Outputs, Results, Row, Target, Unit};
use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use lanyard_tester::os;
use probe::{Host, Outage};
use ring::{Cut, Ring};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `lanyard bench failover`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    about = "Measures how long hosts at a ring of switches cannot reach each other after a wire is cut"
)]
pub struct Args {
    /// Switches in the ring, 3-16
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub switches: usize,
    /// Cuts of each kind, 1-1000
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub cuts: usize,
    /// Seconds of rest before a cut, in which the counts of sent BPDUs run down and hellos pass round the ring
    #[arg(long, value_name = "S", default_value_t = 8.0)]
    pub rest: f64,
    /// Only these kinds of cut
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_enum)]
    pub only: Vec<Kind>,
    /// What the switches run
    #[arg(long, value_enum, default_value_t = Mode::Rstp)]
    pub mode: Mode,
    /// More configuration for every switch, one line each
    #[arg(long, value_name = "LINE")]
    pub line: Vec<String>,
    /// The lanyard to measure (default: this one)
    #[arg(long, value_name = "PATH")]
    pub lanyard: Option<PathBuf>,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// A kind of cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// The wire disappears at once, at both ends, in a ring that has been at rest
    Gone,
    /// One end is set down, the other loses its carrier
    Down,
    /// As `gone`, repeated as soon as the ring is whole
    Again,
}

/// A spanning-tree mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs)] // they are their names
pub enum Mode {
    Rstp,
    Mst,
    RapidPvst,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Gone, Self::Down, Self::Again];

    /// Name and description of the two rows of a kind: one for the host beside the cut, one for the host far
    /// from it.
    const fn rows(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Gone => [
                ("gone", "wire gone, host at the next switch"),
                ("gone-indirect", "wire gone, host at the switch that unblocks"),
            ],
            Self::Down => [
                ("down", "one end down, host at the next switch"),
                ("down-indirect", "one end down, host at the switch that unblocks"),
            ],
            Self::Again => [
                ("again", "wire gone again at once, host at the next switch"),
                ("again-indirect", "wire gone again at once, host at the switch that unblocks"),
            ],
        }
    }

    /// The targets of the two rows, in milliseconds. A ring that is not at rest has no target.
    const fn targets(self) -> [Target; 2] {
        match self {
            Self::Gone | Self::Down => [Target::Below(50.0), Target::Below(1000.0)],
            Self::Again => [Target::None, Target::None],
        }
    }

    const fn cut(self) -> Cut {
        match self {
            Self::Gone | Self::Again => Cut::Gone,
            Self::Down => Cut::Down,
        }
    }
}

/// Runs `lanyard bench failover`. The exit code is 0 when every row met its target, 1 when one missed it or could
/// not be measured to the end.
///
/// # Errors
/// Without the rights to measure, for bad arguments, or on ctrl-C. Nothing is left behind in any case.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!((3..=16).contains(&args.switches), "{} switches: 3-16", args.switches);
    ensure!((1..=1000).contains(&args.cuts), "{} cuts: 1-1000", args.cuts);
    ensure!((0.0..=600.0).contains(&args.rest), "a rest of {} s: 0-600", args.rest);
    args.outputs.check()?;
    let _alone = os::begin()?;
    let results = run(args)?;
    print!("{}", results.table());
    for series in &results.series {
        let rounds: Vec<String> = series.rounds.iter().map(|ms| format!("{ms:.1}")).collect();
        println!("{}: {} ms", series.key.test, rounds.join(" "));
    }
    args.outputs.write(&results)?;
    os::check_interrupted()?;
    Ok(results.exit_code())
}

fn run(args: &Args) -> Result<Results> {
    let kinds: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| args.only.is_empty() || args.only.contains(kind)).collect();
    let bar = ProgressBar::new((kinds.len() * args.cuts) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left {eta}) {msg}") {
        bar.set_style(style);
    }
    bar.set_message("building the ring");
    let mut lines = vec![format!("spanning-tree mode {}", args.mode.word())];
    lines.extend(args.line.iter().cloned());
    let ring = Ring::up(args.switches, &Executable::new(args.lanyard.as_deref())?, &lines)?;
    let mut results = Results::new("failover");
    results.parameter("rounds", args.cuts);
    for kind in kinds {
        bar.set_message(kind.rows()[0].0);
        let rest = if kind == Kind::Again { Duration::ZERO } else { Duration::from_secs_f64(args.rest) };
        let (mut outages, mut broken) = (Vec::<[Outage; 2]>::new(), None);
        for _ in 0..args.cuts {
            match cut(&ring, kind.cut(), rest) {
                Ok(found) => outages.push(found),
                Err(why) => broken = Some(format!("{why:#}")),
            }
            if broken.is_some() {
                break;
            }
            bar.inc(1);
        }
        for (at, (id, title)) in kind.rows().into_iter().enumerate() {
            let rounds = outages.iter().map(|found| found[at].time.as_secs_f64() * 1e3).collect();
            let twice: u64 = outages.iter().map(|found| found[at].twice).sum();
            let caveat = (twice > 0).then(|| format!("{twice} frames came more than once"));
            let row = Row::new(id, title, Unit::Milliseconds, kind.targets()[at]).broken_by(broken.clone());
            results.push_row(row, vec![Arm::lanyard(rounds)], caveat);
        }
        if broken.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

/// Cuts the wire once and returns the outages of the near and the far host, each the longer one of both directions.
fn cut(ring: &Ring, how: Cut, rest: Duration) -> Result<[Outage; 2]> {
    ring.settle(true)?;
    os::pause(rest)?;
    let hosts: [Host; 3] = ring.hosts();
    let found = probe::outages(&hosts, || ring.cut(how))?;
    ring.settle(false)?;
    ring.mend(how)?;
    Ok(found)
}

impl Mode {
    const fn word(self) -> &'static str {
        match self {
            Self::Rstp => "rstp",
            Self::Mst => "mst",
            Self::RapidPvst => "rapid-pvst",
        }
    }
}
