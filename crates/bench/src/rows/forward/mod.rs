//! `lanyard bench forward`: measures devices under test side by side under the same load, in interleaved
//! rounds.
//!
//! Read first: `docs/performance.md` for the method, `rows.rs` for the rows.

mod attack;
mod frames;
mod hosts;
mod joins;
mod life;
mod rig;
mod routed;
mod rows;

pub use attack::Attack;
pub use frames::{FrameLoad, FrameRig, SILENT, Sinks, Source};
pub use rig::{Rig, Settings};
pub use rows::{Arm, Load, RowPlan, all};

use crate::dut::Executable;
use crate::report::{self, Outputs, Results, Row};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use lanyard_tester::os;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `lanyard bench forward`.
#[derive(Debug, Clone, clap::Args)]
#[command(about = "Measures forwarding against the kernel bridge, bare redirects and Open vSwitch")]
pub struct Args {
    /// Fewer rounds and shorter windows: for a first impression, not for a published result
    #[arg(long)]
    pub quick: bool,
    /// Only these rows; a name that ends in `-` or is cut short selects all rows that begin with it
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print the rows and their targets, and exit
    #[arg(long)]
    pub list: bool,
    /// Rounds, 1-1000 (default 7, quick 3); publish no result of fewer than 5
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Length of one measurement in milliseconds, 50-60000 (default 1000, quick 200)
    #[arg(long, value_name = "MS")]
    pub window: Option<u64>,
    /// The core that generator, switch and receiver share
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub core: usize,
    /// The lanyard to measure (default: this one)
    #[arg(long, value_name = "PATH")]
    pub lanyard: Option<PathBuf>,
    /// Another build of lanyard, for the rows `against-*`
    #[arg(long, value_name = "PATH")]
    pub against: Option<PathBuf>,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Runs `lanyard bench forward`. The exit code is 0 when every row that was measured met its target, 1 when one
/// missed it or could not be measured to the end.
///
/// # Errors
/// Without the rights to measure, for bad arguments, or on ctrl-C. Nothing is left behind in any case.
pub fn main(args: &Args) -> Result<ExitCode> {
    let rows = chosen(&args.only)?;
    if args.list {
        for row in rows {
            let arms: Vec<String> = row.arms.iter().map(Arm::label).collect();
            println!("{:18} {} ({})", row.id, row.title, arms.join(" / "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (settings, rounds) = settings(args)?;
    args.outputs.check()?;
    let _alone = os::begin()?;
    let mut results = run(&rows, rounds, &settings);
    print!("{}", results.table());
    let interrupted = os::check_interrupted();
    results.incomplete = interrupted.as_ref().err().map(ToString::to_string);
    // An interrupted run keeps the rows that it has measured.
    args.outputs.write(&results)?;
    interrupted?;
    Ok(results.exit_code())
}

fn chosen(only: &[String]) -> Result<Vec<RowPlan>> {
    let rows = all();
    for name in only {
        let known = rows.iter().any(|row| row.id.starts_with(name.as_str()));
        ensure!(known && !name.is_empty(), "no row `{name}`: see --list");
    }
    // A full name selects only that row, even if other names begin with it.
    let wanted = |row: &RowPlan| {
        only.iter().any(|name| match rows.iter().any(|r| r.id == *name) {
            true => row.id == *name,
            false => row.id.starts_with(name.as_str()),
        })
    };
    Ok(rows.iter().filter(|row| only.is_empty() || wanted(row)).cloned().collect())
}

fn settings(args: &Args) -> Result<(Settings, usize)> {
    let rounds = args.rounds.unwrap_or(if args.quick { 3 } else { 7 });
    let window_ms = args.window.unwrap_or(if args.quick { 200 } else { 1000 });
    ensure!((1..=1000).contains(&rounds), "{rounds} rounds: 1-1000");
    ensure!((50..=60_000).contains(&window_ms), "a window of {window_ms} ms: 50-60000");
    let cores = os::cores();
    ensure!(args.core < cores, "no core {}: 0-{}", args.core, cores - 1);
    let other_core = if cores == 1 { 0 } else { (args.core + 1) % cores };
    let lanyard = Executable::new(args.lanyard.as_deref())?;
    let other = args.against.as_deref().map(|path| Executable::new(Some(path))).transpose()?;
    let window = Duration::from_millis(window_ms);
    Ok((Settings { lanyard, other, window, core: args.core, other_core }, rounds))
}

/// Measures `rows`. A row that breaks is reported as broken with the reason, and the others continue; ctrl-C breaks
/// the current row and ends the run.
#[must_use]
pub fn run(rows: &[RowPlan], rounds: usize, settings: &Settings) -> Results {
    let bar = ProgressBar::new((rows.len() * rounds) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left {eta}) {msg}") {
        bar.set_style(style);
    }
    let mut results = Results::new("forward");
    results.parameter("rounds", rounds);
    results.parameter("window_ms", settings.window.as_millis());
    results.note(
        "one core runs generator, device and receiver in turn (lanyard_tester::traffic); \
         `bench rfc2544` and `bench overload` use the tester with a core of its own",
    );
    for (number, row) in rows.iter().enumerate() {
        measure(row, rounds, settings, &bar, &mut results);
        if os::check_interrupted().is_err() {
            break;
        }
        bar.set_position((rounds * (number + 1)) as u64);
    }
    bar.finish_and_clear();
    results
}

fn measure(plan: &RowPlan, rounds: usize, settings: &Settings, bar: &ProgressBar, results: &mut Results) {
    bar.set_message(plan.id.clone());
    bar.tick();
    let mut row = Row::new(&plan.id, &plan.title, plan.unit, plan.target);
    if let Some((test, axis, at)) = &plan.place {
        (row.test, row.at) = (test.clone(), Some((*axis, *at)));
    }
    let label = |arm: &Arm| report::Arm { label: arm.label(), ..report::Arm::default() };
    let mut arms: Vec<report::Arm> = plan.arms.iter().map(label).collect();
    let mut caveat = None;
    match plan.arms.iter().find_map(|arm| unavailable(arm, settings)) {
        Some(why) => row.skipped = Some(why),
        None => match turns(plan, rounds, settings, bar, &mut arms) {
            Ok(found) => (row.prepared, caveat) = found,
            Err(why) => row = row.broken_by(Some(format!("{why:#}"))),
        },
    }
    results.push_row(row, arms, caveat);
}

/// The reason why an arm cannot be measured, or `None` if it can.
fn unavailable(arm: &Arm, settings: &Settings) -> Option<String> {
    match (arm.load, &settings.other) {
        (Load::Against(_), None) => Some("no other build: give --against PATH".into()),
        (Load::Against(_), Some(other)) => arm.kind.unavailable(other),
        _ => arm.kind.unavailable(&settings.lanyard),
    }
}

/// Brings up every arm of a row and measures them alternately, round by round. Returns the preparations made for the
/// row, and the reason if its figures are less than the row requires.
fn turns(
    row: &RowPlan,
    rounds: usize,
    settings: &Settings,
    bar: &ProgressBar,
    arms: &mut [report::Arm],
) -> Result<(Vec<String>, Option<String>)> {
    let mut rigs = Vec::new();
    for arm in &row.arms {
        rigs.push(arm.up(settings).with_context(|| arm.label())?);
    }
    for _ in 0..rounds {
        for (rig, arm) in rigs.iter_mut().zip(arms.iter_mut()) {
            arm.rounds.push(rig.round().with_context(|| arm.label.clone())?);
            arm.detail = rig.detail();
        }
        bar.inc(1);
    }
    let caveat = rigs.iter().find_map(|rig| rig.caveat());
    let mut prepared: Vec<String> = rigs.iter().flat_map(|rig| rig.prepared()).collect();
    prepared.sort();
    prepared.dedup();
    Ok((prepared, caveat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_or_beginning() {
        let ids = |only: &[&str]| -> Option<Vec<String>> {
            let only: Vec<String> = only.iter().map(|s| (*s).to_owned()).collect();
            chosen(&only).ok().map(|rows| rows.into_iter().map(|r| r.id).collect())
        };
        assert_eq!(ids(&[]).map(|v| v.len()), Some(all().len()));
        assert_eq!(ids(&["tcp"]), Some(vec!["tcp".to_owned()]));
        assert_eq!(ids(&["limit-tc-p", "ping"]), Some(vec!["limit-tc-peer".to_owned(), "ping".to_owned()]));
        assert_eq!(ids(&["flood-"]).map(|v| v.len()), Some(10));
        assert_eq!(ids(&["no-such-row"]), None);
        assert_eq!(ids(&[""]), None);
    }
}
