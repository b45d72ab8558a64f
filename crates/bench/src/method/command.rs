//! `lanyard bench rfc2544`, `rfc2889` and `overload`: their arguments, and the course of a run.
//!
//! Invariants: arguments and files are checked before anything is created. However the run ends, the results
//! so far are printed and written.

use super::devices::{Chosen, DeviceArgs};
use super::flow::Pattern;
use super::{Precision, Run, Timing, overload, rfc2544, rfc2889};
use crate::report::{Outputs, Results};
use anyhow::{Result, bail, ensure};
use lanyard_tester::SIZE_JUMBO;
use lanyard_tester::bpf;
use lanyard_tester::os;
use lanyard_tester::traffic::{HOSTS_OF_A_PORT, SIZE_MIN};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments that all three commands have.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Method")]
pub struct MethodArgs {
    /// Frame sizes with FCS, 64-9216
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    pub sizes: Vec<usize>,
    /// Rounds, 1-1000 (default 3): each round gives one figure; `bench compare` needs about five to show a
    /// difference of a few percent
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Length of a trial in milliseconds, 50-600000 (default 500)
    #[arg(long, value_name = "MS", conflicts_with = "rfc_durations")]
    pub window: Option<u64>,
    /// Few sizes, short trials, two rounds: for a first impression, not for a published result
    #[arg(long, conflicts_with = "rfc_durations")]
    pub quick: bool,
    /// The durations of the RFCs: trials of 60 s, latency for 120 s, 20 times; takes hours
    #[arg(long)]
    pub rfc_durations: bool,
    /// Loss in percent, 0-50, that a trial may have and still pass
    #[arg(long, value_name = "PERCENT")]
    pub loss_tolerance: Option<f64>,
    /// The precision of the search, in percent of the figure, 0.01-50
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub resolution: f64,
    /// Trials that must agree before a load is judged, 1-9: 1 is the RFC's search, 2 is the best of three
    #[arg(long, value_name = "N")]
    pub votes: Option<u32>,
    /// The most trials of one search, 5-1000 (default 22, which keeps a table of seven sizes and two devices under 15
    /// minutes; 60 with --rfc-durations); a search that needs more reports its precision
    #[arg(long, value_name = "N")]
    pub trials: Option<u32>,
    /// Hosts behind each port, 1-65000
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hosts: u32,
}

/// Arguments of `lanyard bench rfc2544`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    about = "RFC 2544: throughput, latency, frame loss, back-to-back, recovery, reset",
    long_about = "Measures devices as RFC 2544, section 26, says, by frame size, beside each other in one run: they take \
        turns trial by trial. Prints a table a test; figures are means over the rounds with half of a 95 % confidence \
        interval. Ctrl-C ends it with what it has."
)]
pub struct Rfc2544Args {
    /// The tests (default: all)
    #[arg(long, value_enum, value_name = "TEST,...", value_delimiter = ',')]
    pub tests: Vec<rfc2544::Test>,
    /// Route between the ports instead of bridging
    #[arg(long)]
    pub routed: bool,
    /// Send in both directions at once (RFC 2544, 14)
    #[arg(long)]
    pub bidirectional: bool,
    /// The load of the latency test in percent of the throughput, 1-100
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    pub latency_load: f64,
    /// Steps of the frame loss test in percent of the greatest rate, 1-10
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub loss_step: f64,
    /// Check the payload of every frame (RFC 2544, 10); the tester then sends more slowly
    #[arg(long)]
    pub verify: bool,
    /// How to measure.
    #[command(flatten)]
    pub method: MethodArgs,
    /// The devices to measure.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `lanyard bench rfc2889`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    about = "RFC 2889: meshed traffic, congestion, maximum forwarding rate, addresses, errored frames, broadcast",
    long_about = "Measures switches as RFC 2889, section 5, says, beside each other in one run. What veth makes \
        meaningless (forward pressure, congested ports, check sequences) is printed in the report. Ctrl-C ends it with what \
        it has."
)]
pub struct Rfc2889Args {
    /// The tests (default: all)
    #[arg(long, value_enum, value_name = "TEST,...", value_delimiter = ',')]
    pub tests: Vec<rfc2889::Test>,
    /// Ports of each device, 2-32
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "ports")]
    pub port_count: usize,
    /// The most addresses that the capacity test tries, 1-8000000
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    pub addresses: u32,
    /// Addresses per second in the capacity test; choose a rate that every device can learn
    #[arg(long, value_name = "PPS", default_value_t = 50_000)]
    pub learning_pps: u32,
    /// The time in seconds for which a device given by --ports remembers an address
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub ageing: u64,
    /// Steps down from the maximum load in percent of it, 1-50
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub load_step: f64,
    /// How to measure.
    #[command(flatten)]
    pub method: MethodArgs,
    /// The devices to measure.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `lanyard bench overload`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    about = "Loads up to twice the saturating one, in steps: rate, latency, processors",
    long_about = "Finds the load that saturates each device (the greatest at which it loses no more than \
        --loss-tolerance), then offers parts of it through 200 %, and reports what is forwarded, how late, and how busy each \
        processor is. A device that loses no throughput past the knee keeps 100 % of the most it forwards."
)]
pub struct OverloadArgs {
    /// Offered loads in percent of the saturating load, ascending
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',')]
    pub loads: Vec<f64>,
    /// Route between the ports instead of bridging
    #[arg(long)]
    pub routed: bool,
    /// How to measure.
    #[command(flatten)]
    pub method: MethodArgs,
    /// The devices to measure.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

impl MethodArgs {
    fn timing(&self) -> Result<Timing> {
        let window = self.window.unwrap_or(if self.quick { 250 } else { 500 });
        ensure!((50..=600_000).contains(&window), "--window {window}: 50-600000");
        Ok(if self.rfc_durations { Timing::rfc() } else { Timing::short(Duration::from_millis(window)) })
    }

    fn rounds(&self) -> Result<usize> {
        let rounds = self.rounds.unwrap_or(match (self.quick, self.rfc_durations) {
            (true, _) => 2,
            (_, true) => 1,
            _ => 3,
        });
        ensure!((1..=1000).contains(&rounds), "--rounds {rounds}: 1-1000");
        Ok(rounds)
    }

    fn sizes(&self, usual: &[usize]) -> Result<Vec<usize>> {
        let quick = [64, 512, 1518];
        let mut sizes = match (self.sizes.is_empty(), self.quick) {
            (false, _) => self.sizes.clone(),
            (_, true) => {
                usual.iter().copied().filter(|size| usual.len() < 3 || quick.contains(size)).collect()
            }
            _ => usual.to_vec(),
        };
        for size in &sizes {
            ensure!((SIZE_MIN..=SIZE_JUMBO).contains(size), "--sizes {size}: {SIZE_MIN}-{SIZE_JUMBO}");
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }

    fn precision(&self, usual_tolerance: f64) -> Result<Precision> {
        let tolerance = self.loss_tolerance.unwrap_or(usual_tolerance);
        let votes = self.votes.unwrap_or(if self.rfc_durations { 1 } else { 2 });
        ensure!((0.0..=50.0).contains(&tolerance), "--loss-tolerance {tolerance}: 0-50");
        ensure!((0.01..=50.0).contains(&self.resolution), "--resolution {}: 0.01-50", self.resolution);
        ensure!((1..=9).contains(&votes), "--votes {votes}: 1-9");
        let trials = self.trials.unwrap_or(if self.rfc_durations { 60 } else { 22 });
        ensure!((5..=1000).contains(&trials), "--trials {trials}: 5-1000");
        Ok(Precision { resolution: self.resolution / 100.0, tolerance: tolerance / 100.0, votes, trials })
    }

    fn check_hosts(&self) -> Result<u32> {
        ensure!((1..=HOSTS_OF_A_PORT).contains(&self.hosts), "--hosts {}: 1-{HOSTS_OF_A_PORT}", self.hosts);
        Ok(self.hosts)
    }

    fn describe(&self, results: &mut Results, precision: Precision, rounds: usize) {
        results.parameter("rounds", rounds);
        results.parameter("hosts", self.hosts);
        results.parameter("loss_tolerance", format!("{} %", precision.tolerance * 100.0));
        results.parameter("resolution", format!("{} %", precision.resolution * 100.0));
        results.parameter("votes", precision.votes);
        results.parameter("trials", precision.trials);
        results.parameter("rfc_durations", self.rfc_durations);
        if !self.rfc_durations {
            results
                .note("durations are shorter than the RFC's (--rfc-durations has those); see the parameters");
        }
    }
}

fn percent(name: &str, value: f64, least: f64, most: f64) -> Result<f64> {
    ensure!((least..=most).contains(&value), "{name} {value}: {least}-{most}");
    Ok(value / 100.0)
}

/// Runs `lanyard bench rfc2544`.
///
/// # Errors
/// For bad arguments, without the rights to measure, on ctrl-C or when no device is left. The results so far have been
/// printed by then.
pub fn rfc2544(args: &Rfc2544Args) -> Result<ExitCode> {
    let method = &args.method;
    let tests = match (args.tests.is_empty(), method.quick) {
        (false, _) => args.tests.clone(),
        (_, true) => vec![rfc2544::Test::Throughput, rfc2544::Test::Latency],
        _ => rfc2544::Test::ALL.to_vec(),
    };
    let plan = rfc2544::Plan {
        tests,
        sizes: method.sizes(&rfc2544::SIZES)?,
        rounds: method.rounds()?,
        precision: method.precision(0.0)?,
        pattern: if args.bidirectional { Pattern::PairsBoth } else { Pattern::Pairs },
        hosts: method.check_hosts()?,
        latency_load: percent("--latency-load", args.latency_load, 1.0, 100.0)?,
        latency_trials: if method.rfc_durations { 20 } else { 1 },
        loss_step: percent("--loss-step", args.loss_step, 1.0, 10.0)?,
        verify: args.verify,
    };
    let chosen = args.devices.choose(args.devices.ports.len().max(2), args.routed)?;
    let mut results = Results::new("rfc2544");
    method.describe(&mut results, plan.precision, plan.rounds);
    results.parameter("direction", if args.bidirectional { "both" } else { "one" });
    results.parameter("latency_load", format!("{} %", args.latency_load));
    results.parameter("latency_trials", plan.latency_trials);
    conduct(results, chosen, method.timing()?, &args.outputs, plan.steps(), |run| {
        rfc2544::measure(run, &plan)
    })
}

/// Runs `lanyard bench rfc2889`.
///
/// # Errors
/// As [`rfc2544`].
pub fn rfc2889(args: &Rfc2889Args) -> Result<ExitCode> {
    let method = &args.method;
    ensure!((2..=32).contains(&args.port_count), "--port-count {}: 2-32", args.port_count);
    ensure!((1..=8_000_000).contains(&args.addresses), "--addresses {}: 1-8000000", args.addresses);
    ensure!(
        (100..=10_000_000).contains(&args.learning_pps),
        "--learning-pps {}: 100-10000000",
        args.learning_pps
    );
    ensure!(args.ageing <= 86_400, "--ageing {}: 0-86400", args.ageing);
    let plan = rfc2889::Plan {
        tests: if args.tests.is_empty() { rfc2889::Test::ALL.to_vec() } else { args.tests.clone() },
        sizes: method.sizes(&rfc2889::SIZES)?,
        rounds: method.rounds()?,
        precision: method.precision(0.0)?,
        hosts: method.check_hosts()?,
        addresses: args.addresses,
        learning_pps: args.learning_pps,
        ageing: Duration::from_secs(args.ageing),
        load_step: percent("--load-step", args.load_step, 1.0, 50.0)?,
    };
    let ports = if args.devices.ports.is_empty() { args.port_count } else { args.devices.ports.len() };
    let chosen = args.devices.choose(ports, false)?;
    let mut results = Results::new("rfc2889");
    method.describe(&mut results, plan.precision, plan.rounds);
    results.parameter("learning_pps", plan.learning_pps);
    results.parameter("addresses", plan.addresses);
    conduct(results, chosen, method.timing()?, &args.outputs, plan.steps(), |run| {
        rfc2889::measure(run, &plan)
    })
}

/// Runs `lanyard bench overload`.
///
/// # Errors
/// As [`rfc2544`].
pub fn overload(args: &OverloadArgs) -> Result<ExitCode> {
    let method = &args.method;
    let mut steps = overload::STEPS.to_vec();
    if !args.loads.is_empty() {
        steps =
            args.loads.iter().map(|load| percent("--loads", *load, 1.0, 1000.0)).collect::<Result<_>>()?;
        ensure!(steps.is_sorted_by(|a, b| a < b), "--loads: not ascending");
    }
    let plan = overload::Plan {
        sizes: method.sizes(&[64])?,
        rounds: method.rounds()?,
        // A software device loses a frame now and then long before it is saturated.
        precision: method.precision(0.1)?,
        hosts: method.check_hosts()?,
        steps,
    };
    let chosen = args.devices.choose(args.devices.ports.len().max(2), args.routed)?;
    let mut results = Results::new("overload");
    method.describe(&mut results, plan.precision, plan.rounds);
    conduct(results, chosen, method.timing()?, &args.outputs, plan.steps(), |run| {
        overload::measure(run, &plan)
    })
}

/// Starts the devices, measures, and reports.
fn conduct(
    mut results: Results,
    mut chosen: Chosen,
    timing: Timing,
    outputs: &Outputs,
    steps: usize,
    measure: impl FnOnce(&mut Run) -> Result<()>,
) -> Result<ExitCode> {
    outputs.check()?;
    if let Some(why) = os::cannot_measure_by_sockets() {
        bail!("cannot measure here: {why}");
    }
    os::catch_interrupts()?;
    let _alone = os::only_one()?;
    if let Some(why) = bpf::refused() {
        chosen.by_sockets(&mut results, why);
    }
    chosen.describe(&mut results);
    timing.describe(&mut results);
    let devices = chosen.up()?;
    let mut run = Run::new(results, timing, devices.up, |results| outputs.write(results));
    run.results.devices.extend(devices.down);
    run.show_progress(steps);
    let measured = measure(&mut run);
    let results = run.finish(measured.as_ref().err().map(|why| format!("{why:#}")));
    print!("{}", results.table());
    outputs.write(&results)?;
    measured?;
    Ok(results.exit_code())
}
