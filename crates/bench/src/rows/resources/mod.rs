//! `lanyard bench resources`: the costs of each strategy of the resource manager for askers and for the traffic; and what a full
//! table does.
//!
//! ```text
//!   flows ═ swp1 [chip, its own thread and socket] swp2 ═ old next hop, dead from the start
//!                       ║ SDK                      swp3 ═ new next hop: first frame of each flow
//!               [resource manager] <- 10,000 routes, one request each
//! ```
//!
//! One route for all flows leads to the old next hop, which is dead. Then 10,000 longer routes by the new next hop are requested.
//! *Users* is the time until all requests are answered, *outage* the time until the last flow arrives at the new next hop.
//! Both are measured on two clocks. On the real one ([`rig`]) the chip has a thread and a socket of its own, and other work of
//! this machine disturbs the figures. On the bus's own clock ([`bus_clock`]) they are exact even on a busy machine. Wires are
//! datagram sockets, so this needs no rights. [`askers`] measures routes that reach a whole switch from outside, which needs
//! root. [`full`] measures the full table; [`published`] compares with the figures of others, which docs/offload.md cites.

mod askers;
mod bus_clock;
mod full;
mod network;
mod published;
mod rig;

use crate::report::{Axis, Better, DeviceNote, Key, Outputs, Results, Row, Series, Target, Unit};
use anyhow::{Result, ensure};
use askers::Asker;
use lanyard_offload::Policy;
use lanyard_offload::strategy::NAMES;
use lanyard_tester::os;
use published::PUBLISHED;
use rig::Rig;
use serde_json::json;
use std::process::ExitCode;

/// Arguments of `lanyard bench resources`.
#[derive(Debug, Clone, clap::Args)]
#[command(about = "Measures the strategies of the resource manager")]
pub struct Args {
    /// Routes to request, 100-60000
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub routes: u32,
    /// Measurements of each row, 1-100
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Only these strategies
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Microseconds of a query
    #[arg(long, value_name = "US", value_delimiter = ',', default_values_t = [35, 350])]
    pub query_us: Vec<u32>,
    /// The real clock, with what else the machine does in the figures; the bus's own, without; or both
    #[arg(long, value_name = "CLOCK", value_delimiter = ',', default_values_t = [Clock::Real, Clock::Bus], value_enum)]
    pub clock: Vec<Clock>,
    /// Who asks a switch on a chip for the routes, which needs root; none without it
    #[arg(long, value_name = "ASKER", value_delimiter = ',', default_values_t = [Asker::IpBatch, Asker::Fpm, Asker::Api], value_enum)]
    pub asker: Vec<Asker>,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// The clock by which the figures are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// That of the machine.
    Real,
    /// That of the chip's bus, and the processor time of the manager.
    Bus,
}

impl Clock {
    const fn name(self) -> &'static str {
        match self {
            Self::Real => "real clock",
            Self::Bus => "bus clock",
        }
    }
    /// The suffix of the names of rows measured on this clock.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Real => "",
            Self::Bus => "-bus",
        }
    }
}

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Real { "real" } else { "bus" })
    }
}

/// The bus's time for a write, in microseconds.
const WRITE_US: u32 = 60;

/// The results of one measurement.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Milliseconds until the asker has all answers.
    users_ms: f64,
    /// Milliseconds until the last flow arrives at the new next hop.
    outage_ms: f64,
    /// Microseconds of one write and of one query that the manager waits for.
    write_us: f64,
    query_us: f64,
}

/// The costs of one strategy with one latency of queries, measured on one clock: a figure per round.
#[derive(Debug, Clone)]
struct Cost {
    method: &'static str,
    query_us: u32,
    clock: Clock,
    rounds: Vec<Figures>,
}

impl Cost {
    fn of(&self, figure: fn(&Figures) -> f64) -> Vec<f64> {
        self.rounds.iter().map(figure).collect()
    }
    fn users(&self) -> Vec<f64> {
        self.of(|figures| figures.users_ms)
    }
    fn outage(&self) -> Vec<f64> {
        self.of(|figures| figures.outage_ms)
    }
}

/// Runs `lanyard bench resources`. The exit code is 0 when every row met its target, 1 when one missed it or broke.
///
/// # Errors
/// For bad arguments, or on ctrl-C.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!((100..=60_000).contains(&args.routes), "{} routes: 100-60000", args.routes);
    ensure!((1..=100).contains(&args.rounds), "{} rounds: 1-100", args.rounds);
    if let Some(stray) = args.only.iter().find(|only| !NAMES.contains(&only.as_str())) {
        anyhow::bail!("strategy {stray:?}: one of {}", NAMES.join(", "));
    }
    args.outputs.check()?;
    os::catch_interrupts()?;
    let mut results = Results::new("resources");
    results.parameter("rounds", args.rounds);
    results.parameter("routes", args.routes);
    results.parameter("write_us", WRITE_US);
    let wanted = |name: &&&str| args.only.is_empty() || args.only.iter().any(|only| only == **name);
    let methods: Vec<&'static str> = NAMES.iter().filter(wanted).copied().collect();
    let costs = measure(args, &methods)?;
    costs.iter().for_each(|cost| figures(&mut results, cost, args.routes));
    accesses(&mut results, &costs);
    args.clock.iter().for_each(|clock| comparisons(&mut results, &costs, *clock));
    published::beside(&mut results, &costs);
    if args.only.is_empty() {
        asked(&mut results, args)?;
    }
    full_tables(&mut results, &methods)?;
    published::differences(&mut results, &costs, args.routes);
    print!("{}", results.table());
    args.outputs.write(&results)?;
    Ok(results.exit_code())
}

fn measure(args: &Args, methods: &[&'static str]) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for clock in &args.clock {
        for query_us in &args.query_us {
            let cost = |method: &&'static str| Cost {
                method,
                query_us: *query_us,
                clock: *clock,
                rounds: Vec::new(),
            };
            let mut found: Vec<Cost> = methods.iter().map(cost).collect();
            // Rounds of different methods are interleaved, so a disturbance of the machine affects all of them.
            for _ in 0..args.rounds {
                for cost in &mut found {
                    os::check_interrupted()?;
                    cost.rounds.push(match clock {
                        Clock::Real => Rig::up(cost.method, WRITE_US, *query_us)?.measure(args.routes)?,
                        Clock::Bus => bus_clock::measure(cost.method, WRITE_US, *query_us, args.routes)?,
                    });
                }
            }
            costs.extend(found);
        }
    }
    Ok(costs)
}

/// The key of a strategy's figures.
fn key(what: &str, clock: Clock, method: &str, query_us: u32) -> Key {
    let (test, at) = (format!("{what}, {}", clock.name()), f64::from(query_us));
    Key::new(&test, "all strategies", method).at(Axis::QueryUs, at)
}

fn push_series(results: &mut Results, key: Key, unit: Unit, rounds: Vec<f64>) {
    if !results.devices.iter().any(|device| device.name == key.device) {
        let name = key.device.clone();
        results.devices.push(DeviceNote { name, detail: String::new(), broken: None });
    }
    results.series_mut(key, |key| Series::new(key, "", unit, Better::Lower)).rounds.extend(rounds);
}

/// Adds the rows of one strategy with one latency of queries, beside the published figures.
fn figures(results: &mut Results, cost: &Cost, routes: u32) {
    let Cost { method, query_us, clock, .. } = *cost;
    let published = PUBLISHED.iter().find(|row| row.0 == method && row.1 == query_us);
    let limit = f64::from(routes) * f64::from(WRITE_US) / 1e3;
    let mut facts = vec![
        ("method", json!(method)),
        ("asker", json!("manager")),
        ("clock", json!(clock.to_string())),
        ("write_us", json!(WRITE_US)),
        ("query_us", json!(query_us)),
        ("users_ms", json!(median(&cost.users()))),
        ("outage_ms", json!(median(&cost.outage()))),
        ("measured_write_us", json!(median(&cost.of(|figures| figures.write_us)))),
        ("measured_query_us", json!(median(&cost.of(|figures| figures.query_us)))),
    ];
    facts.extend(
        published
            .into_iter()
            .flat_map(|row| [("published_users_ms", json!(row.2)), ("published_outage_ms", json!(row.3))]),
    );
    let best = method == "hybrid" && query_us == 35 && routes == 10_000;
    let target = |bound: f64| if best { Target::Below(bound) } else { Target::None };
    let note = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("; published {ms:.0} ms"));
    for (what, rounds, target, published) in [
        ("users", cost.users(), target(60.0), published.map(|row| row.2)),
        ("outage", cost.outage(), target(1.2 * limit), published.map(|row| row.3)),
    ] {
        let key = key(what, clock, method, query_us);
        let title =
            format!("{what}, {routes} routes, query {query_us} us, {}{}", clock.name(), note(published));
        let id = format!("{what}-{method}-{query_us}{}", clock.suffix());
        let mut row = Row::new(&id, &title, Unit::Milliseconds, target);
        (row.test, row.at) = (key.test.clone(), key.at);
        row.facts = facts.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        row.arms = vec![key.clone()];
        push_series(results, key, Unit::Milliseconds, rounds);
        results.rows.push(row);
    }
}

/// Adds the duration of one write and of one query for a caller that waits: the bus's latency and the round trip to the chip.
fn accesses(results: &mut Results, costs: &[Cost]) {
    for cost in costs.iter().filter(|cost| cost.clock == Clock::Real) {
        for (what, figure) in [
            ("a write", (|figures| figures.write_us) as fn(&Figures) -> f64),
            ("a query", |figures| figures.query_us),
        ] {
            let at = f64::from(cost.query_us);
            let key = Key::new("latency of one access", "", what).at(Axis::QueryUs, at);
            push_series(results, key, Unit::Microseconds, cost.of(figure));
        }
    }
}

/// Adds the rows that compare two strategies, or one strategy at two latencies of queries, on one clock.
fn comparisons(results: &mut Results, costs: &[Cost], clock: Clock) {
    let mut push = |id: &str, title: &str, target, what: &str, arms: [(&str, u32); 2]| {
        let known = |(method, us): &(&str, u32)| {
            let same = |cost: &&Cost| (cost.method, cost.query_us, cost.clock) == (*method, *us, clock);
            costs.iter().any(|cost| same(&cost))
        };
        if arms.iter().all(known) {
            let id = format!("{id}{}", clock.suffix());
            let mut row = Row::new(&id, &format!("{title}, {}", clock.name()), Unit::Milliseconds, target);
            row.arms = arms.map(|(method, us)| key(what, clock, method, us)).to_vec();
            results.rows.push(row);
        }
    };
    push(
        "credit-users-35",
        "lockstep to credit, users, query 35 us",
        Target::RatioAtLeast(1.25),
        "users",
        [("lockstep", 35), ("credit", 35)],
    );
    push(
        "credit-users-350",
        "credit, users, query 350 us to 35 us",
        Target::RatioBelow(1.05),
        "users",
        [("credit", 350), ("credit", 35)],
    );
    push(
        "credit-outage-35",
        "lockstep to credit, outage, query 35 us",
        Target::RatioAtLeast(1.3),
        "outage",
        [("lockstep", 35), ("credit", 35)],
    );
    push(
        "credit-outage-350",
        "lockstep to credit, outage, query 350 us",
        Target::RatioAtLeast(4.5),
        "outage",
        [("lockstep", 350), ("credit", 350)],
    );
}

/// Adds the rows of routes that reach a switch from outside. Their figures contain all work of switch and asker, so their
/// `method` names the asker besides the strategy `hybrid`.
fn asked(results: &mut Results, args: &Args) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        results.note(
            "Routes by ip -batch, FPM and the API were not measured: network namespaces need root."
                .to_owned(),
        );
        return Ok(());
    }
    let mut found: Vec<(Asker, Vec<askers::Asked>)> =
        args.asker.iter().map(|asker| (*asker, Vec::new())).collect();
    for round in 0..args.rounds {
        for (asker, rounds) in &mut found {
            os::check_interrupted()?;
            rounds.push(askers::measure(*asker, args.routes, round)?);
        }
    }
    for (asker, rounds) in &found {
        let users: Vec<f64> = rounds.iter().map(|asked| asked.users_ms).collect();
        let outage: Vec<f64> = rounds.iter().map(|asked| asked.outage_ms).collect();
        let facts = [
            ("method", json!(format!("hybrid by {asker}"))),
            ("asker", json!(asker.to_string())),
            ("clock", json!(Clock::Real.to_string())),
            ("write_us", json!(WRITE_US)),
            ("query_us", json!(35)),
            ("users_ms", json!(median(&users))),
            ("outage_ms", json!(median(&outage))),
        ];
        for (what, rounds) in [("users", users), ("outage", outage)] {
            let key = Key::new(&format!("{what}, a whole switch"), "all askers", asker.name());
            let title =
                format!("{what}, {} routes by {asker} to a switch, query 35 us, real clock", args.routes);
            let mut row = Row::new(&format!("{what}-by-{asker}"), &title, Unit::Milliseconds, Target::None);
            row.test = key.test.clone();
            row.facts = facts.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            row.arms = vec![key.clone()];
            push_series(results, key, Unit::Milliseconds, rounds);
            results.rows.push(row);
        }
    }
    Ok(())
}

/// Adds the rows of the full table.
fn full_tables(results: &mut Results, methods: &[&'static str]) -> Result<()> {
    for policy in [Policy::Sync, Policy::Hybrid] {
        let (mut unanswered, mut wrong, mut stuck) = (0, 0, 0);
        let (mut frames, mut last) = (0, full::Found::default());
        for method in methods {
            os::check_interrupted()?;
            last = full::measure(method, policy)?;
            // Besides the offered routes the chip has the shorter one that contains them all.
            let right = last.offloaded - 1 + last.refused + last.hidden;
            unanswered += last.offered.abs_diff(right).max(last.unanswered);
            wrong += last.wrong;
            frames += last.frames;
            stuck += last.not_recovered;
        }
        let name = policy.name();
        let text = format!(
            "of {} routes {} in the chip, {} refused, {} hidden",
            last.offered, last.offloaded, last.refused, last.hidden
        );
        for (what, title, figure) in [
            (
                "unanswered",
                format!("full table, policy {name}: routes without a right answer; {text}"),
                unanswered.into(),
            ),
            (
                "wrong",
                format!("full table, policy {name}: frames to a wrong next hop, of {frames}"),
                wrong as f64,
            ),
            (
                "stuck",
                format!("full table, policy {name}: hidden routes left after there was room"),
                stuck.into(),
            ),
        ] {
            let id = format!("full-{what}-{name}");
            let mut row = Row::new(&id, &title, Unit::Frames, Target::NeverOver(0.0));
            let key = Key::new("full table", "what must not be", &format!("{what}, {name}"));
            row.arms = vec![key.clone()];
            push_series(results, key, Unit::Frames, vec![figure]);
            results.rows.push(row);
        }
    }
    Ok(())
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
