//! `lanyard bench resources`: what each strategy of the resource manager costs those who ask, and the traffic.
//!
//! ```text
//!   flows ═ swp1 [chip, its own thread and socket] swp2 ═ old next hop, dead from the start
//!                       ║ SDK                      swp3 ═ new next hop: first frame of each flow
//!               [resource manager] <- 10,000 routes, one request each
//! ```
//!
//! A route to all flows leads to the old next hop. It dies, and 10,000 longer routes by the new one are asked for. *Users* is the
//! time until the asker has all answers, *outage* that until the last of the flows arrives at the new next hop. Frames, bus
//! latency and clock are real; wires are datagram sockets, so no right is needed.
//!
//! The published figures are those that docs/offload.md cites; users and outage are defined as there.

mod rig;

use crate::os;
use crate::report::{Arm, Outputs, Results, Row, Target, Unit};
use anyhow::{Result, ensure};
use lanyard_offload::strategy::NAMES;
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
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Microseconds per write.
const WRITE_US: u32 = 60;
/// Published figures: method, microseconds per query, users' latency and outage in milliseconds.
const PUBLISHED: [(&str, u32, f64, f64); 4] = [
    ("lockstep", 35, 600.0, 1100.0),
    ("credit", 35, 480.0, 810.0),
    ("lockstep", 350, 600.0, 3980.0),
    ("credit", 350, 480.0, 840.0),
];

/// The figures of one strategy at one latency, one per round, in milliseconds.
#[derive(Debug, Clone)]
struct Cost {
    method: &'static str,
    query_us: u32,
    users: Vec<f64>,
    outage: Vec<f64>,
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
    let mut results = Results::new("resources");
    results.parameter("rounds", args.rounds);
    results.parameter("routes", args.routes);
    results.parameter("write_us", WRITE_US);
    let wanted = |name: &&&str| args.only.is_empty() || args.only.iter().any(|only| only == **name);
    let methods: Vec<&'static str> = NAMES.iter().filter(wanted).copied().collect();
    let mut costs = Vec::new();
    for query_us in &args.query_us {
        let mut found: Vec<Cost> = methods
            .iter()
            .map(|method| Cost { method, query_us: *query_us, users: Vec::new(), outage: Vec::new() })
            .collect();
        // Rounds of different methods are interleaved, so a disturbance of the machine affects all of them.
        for _ in 0..args.rounds {
            for cost in &mut found {
                os::check_interrupted()?;
                let (users, outage) = Rig::up(cost.method, WRITE_US, *query_us)?.measure(args.routes)?;
                cost.users.push(users);
                cost.outage.push(outage);
            }
        }
        costs.extend(found);
    }
    costs.iter().for_each(|cost| figures(&mut results, cost, args.routes));
    comparisons(&mut results, &costs);
    print!("{}", results.table());
    args.outputs.write(&results)?;
    Ok(results.exit_code())
}

/// The rows of one strategy at one latency, beside the published figures.
fn figures(results: &mut Results, cost: &Cost, routes: u32) {
    let Cost { method, query_us, .. } = *cost;
    let published = PUBLISHED.iter().find(|row| row.0 == method && row.1 == query_us);
    let limit = f64::from(routes) * f64::from(WRITE_US) / 1e3;
    let mut facts = vec![
        ("method", json!(method)),
        ("write_us", json!(WRITE_US)),
        ("query_us", json!(query_us)),
        ("users_ms", json!(median(&cost.users))),
        ("outage_ms", json!(median(&cost.outage))),
    ];
    facts.extend(
        published
            .into_iter()
            .flat_map(|row| [("published_users_ms", json!(row.2)), ("published_outage_ms", json!(row.3))]),
    );
    let best = method == "hybrid" && query_us == 35 && routes == 10_000;
    let note = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("; published {ms:.0} ms"));
    for (what, rounds, target, published) in [
        (
            "users",
            &cost.users,
            if best { Target::Below(60.0) } else { Target::None },
            published.map(|row| row.2),
        ),
        (
            "outage",
            &cost.outage,
            if best { Target::Below(1.2 * limit) } else { Target::None },
            published.map(|row| row.3),
        ),
    ] {
        let title = format!("{what}, {routes} routes, query {query_us} us{}", note(published));
        let mut row = Row::new(&format!("{what}-{method}-{query_us}"), &title, Unit::Milliseconds, target);
        row.facts = facts.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let arm = Arm { label: method.to_owned(), detail: String::new(), rounds: rounds.clone() };
        results.push_row(row, vec![arm], None);
    }
}

/// Rows that compare strategies with each other, and one strategy at two latencies.
fn comparisons(results: &mut Results, costs: &[Cost]) {
    let of = |method: &str, us: u32| costs.iter().find(|cost| cost.method == method && cost.query_us == us);
    let arm = |cost: &Cost, rounds: &[f64], at: bool| {
        let label = if at { format!("{} {} us", cost.method, cost.query_us) } else { cost.method.to_owned() };
        Arm { label, detail: String::new(), rounds: rounds.to_vec() }
    };
    let mut push = |id: &str, title: &str, target, first: Option<Arm>, second: Option<Arm>| {
        let (Some(first), Some(second)) = (first, second) else { return };
        results.push_row(Row::new(id, title, Unit::Milliseconds, target), vec![first, second], None);
    };
    let users = |method: &str, us: u32, at: bool| of(method, us).map(|cost| arm(cost, &cost.users, at));
    let outage = |method: &str, us: u32| of(method, us).map(|cost| arm(cost, &cost.outage, false));
    push(
        "credit-users-35",
        "lockstep to credit, users, query 35 us",
        Target::RatioAtLeast(1.25),
        users("lockstep", 35, false),
        users("credit", 35, false),
    );
    push(
        "credit-users-350",
        "credit, users, query 350 us to 35 us",
        Target::RatioBelow(1.05),
        users("credit", 350, true),
        users("credit", 35, true),
    );
    push(
        "credit-outage-35",
        "lockstep to credit, outage, query 35 us",
        Target::RatioAtLeast(1.3),
        outage("lockstep", 35),
        outage("credit", 35),
    );
    push(
        "credit-outage-350",
        "lockstep to credit, outage, query 350 us",
        Target::RatioAtLeast(4.5),
        outage("lockstep", 350),
        outage("credit", 350),
    );
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
