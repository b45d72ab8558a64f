//! `lanyard bench trees`: the processor time that spanning tree takes on two switches with many trees on many ports,
//! when hellos are sent every second.
//!
//! ```text
//! [root] ═ l1 ═ ... ═ lN ═ [leaf]     the root sends BPDUs of every tree on every port to the leaf
//! ```
//!
//! Read first: `failover`, which measures such switches when the topology changes. The figure is the time for which the
//! daemon's threads were on a core, by the scheduler's own account, as a part of one core. During the measurement only
//! hellos are sent.

use crate::dut::{Executable, Lanyard};
use crate::report::{Arm, Better, Outputs, Results, Row, Target, Unit};
use anyhow::{Context, Result, ensure};
use lanyard_tester::os::{self, Netns, wait_until};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `lanyard bench trees`.
#[derive(Debug, Clone, clap::Args)]
#[command(about = "Measures the daemon's processor time for many trees on many ports")]
pub struct Args {
    /// Ports, 1-60
    #[arg(long, value_name = "N", default_value_t = 48)]
    pub ports: usize,
    /// Trees, 2-64; in per-VLAN mode 63 at most
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub trees: usize,
    /// Measurements of each row, 1-100
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub rounds: usize,
    /// Length of one measurement in seconds, 1-600
    #[arg(long, value_name = "S", default_value_t = 5)]
    pub window: u64,
    /// The lanyard to measure (default: this one)
    #[arg(long, value_name = "PATH")]
    pub lanyard: Option<PathBuf>,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// The processor time that a switch may take, as a part of one core.
const TARGET: Target = Target::Below(0.03);
/// The longest the switches may take to agree.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// Most trees of the per-VLAN modes.
const PER_VLAN_MAX: usize = 63;

/// The modes, and the names of their rows.
const MODES: [(&str, [&str; 2]); 2] =
    [("mst", ["mst-root", "mst-leaf"]), ("rapid-pvst", ["pvst-root", "pvst-leaf"])];

/// Runs `lanyard bench trees`. The exit code is 0 when every row met its target, 1 when one missed it or could not be
/// measured to the end.
///
/// # Errors
/// Without the rights to measure, for bad arguments, or on ctrl-C. Nothing is left behind in any case.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!((1..=60).contains(&args.ports), "{} ports: 1-60", args.ports);
    ensure!((2..=64).contains(&args.trees), "{} trees: 2-64", args.trees);
    ensure!((1..=100).contains(&args.rounds), "{} rounds: 1-100", args.rounds);
    ensure!((1..=600).contains(&args.window), "a window of {} s: 1-600", args.window);
    args.outputs.check()?;
    let _alone = os::begin()?;
    let executable = Executable::new(args.lanyard.as_deref())?;
    let mut results = Results::new("trees");
    results.parameter("rounds", args.rounds);
    results.parameter("window_ms", args.window * 1000);
    for (mode, ids) in MODES {
        let trees = if mode == "mst" { args.trees } else { args.trees.min(PER_VLAN_MAX) };
        let (found, broken) = match measure(args, mode, trees, &executable) {
            Ok(found) => (found, None),
            Err(why) => (Default::default(), Some(format!("{why:#}"))),
        };
        for (id, (rounds, detail)) in ids.into_iter().zip(found) {
            let title = format!("{trees} trees on {} ports", args.ports);
            let row = Row { better: Better::Lower, ..Row::new(id, &title, Unit::Fraction, TARGET) };
            let arm = Arm { detail, ..Arm::lanyard(rounds) };
            results.push_row(row.broken_by(broken.clone()), vec![arm], None);
        }
        os::check_interrupted()?;
    }
    print!("{}", results.table());
    args.outputs.write(&results)?;
    Ok(results.exit_code())
}

/// Measures root and leaf: for each, the processor time per round as a part of one core, and a text with its rate of BPDUs.
fn measure(
    args: &Args,
    mode: &str,
    trees: usize,
    executable: &Executable,
) -> Result<[(Vec<f64>, String); 2]> {
    let netns = [Netns::new()?, Netns::new()?];
    let mut batch = String::new();
    for port in 1..=args.ports {
        // Writing to a String cannot fail.
        let _ = writeln!(batch, "link add l{port} type veth peer name l{port} netns {}", netns[1].path());
    }
    netns[0].ip(&batch)?;
    let config = |priority| config(mode, trees, args.ports, priority);
    let switches = [(4096, "trees-root"), (8192, "trees-leaf")];
    let mut up = Vec::new();
    for (netns, (priority, name)) in netns.iter().zip(switches) {
        let switch = Lanyard::with_config(netns, executable, name, &config(priority));
        up.push(switch.with_context(|| name.to_owned())?);
    }
    settle(&up, trees, args.ports)?;
    let mut found: [(Vec<f64>, String); 2] = Default::default();
    let bpdus = |switch: &Lanyard| -> Result<u64> {
        let view: Value = serde_json::from_str(&switch.show("show platform traps | json")?)?;
        Ok(view["traps"][0]["trapped"].as_u64().unwrap_or(0))
    };
    for _ in 0..args.rounds {
        let start = Instant::now();
        let before =
            up.iter().map(|switch| Ok((switch.cpu_time()?, bpdus(switch)?))).collect::<Result<Vec<_>>>()?;
        os::pause(Duration::from_secs(args.window))?;
        let elapsed = start.elapsed().as_secs_f64();
        for ((switch, (cpu, received)), (figures, detail)) in up.iter().zip(before).zip(&mut found) {
            figures.push(switch.cpu_time()?.saturating_sub(cpu).as_secs_f64() / elapsed);
            *detail = format!("{:.0} BPDUs received a second", (bpdus(switch)? - received) as f64 / elapsed);
        }
    }
    Ok(found)
}

/// Waits until the leaf has one root port in every tree, which forwards, and blocks all other ports.
fn settle(switches: &[Lanyard], trees: usize, ports: usize) -> Result<()> {
    let mut last = String::new();
    let settled = wait_until("the trees to settle", SETTLE_LIMIT, || {
        let view: Value = serde_json::from_str(&switches[1].show("show spanning-tree | json")?)?;
        let all = view["instances"].as_array().cloned().unwrap_or_default();
        let rests = |tree: &&Value| {
            let ports = tree["ports"].as_array().map_or(&[][..], Vec::as_slice);
            let blocked = ports.iter().filter(|port| port["role"] == "alternate").count();
            let open = ports.iter().filter(|port| port["role"] == "root" && port["state"] == "forwarding");
            (blocked, open.count()) == (ports.len() - 1, 1)
        };
        let resting = all.iter().filter(rests).count();
        last = format!("{resting} of {} trees rest", all.len());
        let whole = all.iter().all(|tree| tree["ports"].as_array().is_some_and(|list| list.len() == ports));
        Ok(resting == trees && whole)
    });
    settled.with_context(|| last)?;
    os::pause(Duration::from_secs(4))
}

fn config(mode: &str, trees: usize, ports: usize, priority: usize) -> String {
    let mut text = format!("hostname trees\nspanning-tree mode {mode}\n");
    if mode == "mst" {
        let _ = writeln!(text, "vlan 2-{trees}\nspanning-tree mst hello-time 1");
        for instance in 0..trees {
            let _ = writeln!(text, "spanning-tree mst {instance} priority {priority}");
        }
        text += "spanning-tree mst configuration\n name bench\n revision 1\n";
        for instance in 1..trees {
            let _ = writeln!(text, " instance {instance} vlan {}", instance + 1);
        }
        text += "exit\n";
    } else {
        let _ = writeln!(text, "vlan 2-{trees}\nspanning-tree vlan 1-{trees} hello-time 1");
        let _ = writeln!(text, "spanning-tree vlan 1-{trees} priority {priority}");
    }
    for port in 1..=ports {
        let _ = writeln!(text, "interface l{port}\n switchport mode trunk");
    }
    text
}
