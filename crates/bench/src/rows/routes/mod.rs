//! `lanyard bench routes`: how fast the plane follows the kernel's routing tables, and how much memory the routes take.
//!
//! ```text
//!  [gateways]  g1 ═ p1  VLAN 10 ┐
//!              g2 ═ p2  VLAN 20 ┼ [switch]   routes of `ip -batch` lead to the gateways
//!  [host]      h3 ═ p3  VLAN 30 ┘            the row `death` sends from here
//! ```
//!
//! Read first: docs/routing.md, "Following the kernel". The bench reads the plane's routes by `show ip cef ADDRESS`
//! over one open connection, so a figure includes the time of that request. Outages are measured with datagrams
//! (`flows`).

mod asker;
mod flows;

use crate::dut::{Executable, Lanyard};
use crate::report::{Arm, Outputs, Results, Row, Target, Unit};
use anyhow::{Context, Result, bail, ensure};
use asker::Asker;
use flows::Flows;
use lanyard_tester::os::{self, Netns, wait_until};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `lanyard bench routes`.
#[derive(Debug, Clone, clap::Args)]
#[command(about = "Measures how fast the plane follows the kernel's routing tables")]
pub struct Args {
    /// Routes of the row `load`, 1000-4000000
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub routes: u32,
    /// Measurements of each row, 1-100
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Only these rows: batch, load, memory, death
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    pub only: Vec<String>,
    /// The lanyard to measure (default: this one)
    #[arg(long, value_name = "PATH")]
    pub lanyard: Option<PathBuf>,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Routes of the row `batch`.
const BATCH: u32 = 10_000;
/// Routes of the row `death`, each by both gateways, one of which fails.
const BEHIND: u32 = 100_000;
const INSTANCE: &str = "bench-routes";
const LIMIT: Duration = Duration::from_secs(300);
const CONFIG: &str = "hostname routes\nvlan 10,20,30\nip routing\n\
    interface p1\n switchport access vlan 10\ninterface p2\n switchport access vlan 20\n\
    interface p3\n switchport access vlan 30\ninterface vlan 30\n ip address 10.0.30.254/24\n\
    interface vlan 10\n ip address 10.0.10.254/24\ninterface vlan 20\n ip address 10.0.20.254/24\n";

/// Runs `lanyard bench routes`. The exit code is 0 when every row met its target, 1 when one missed it or could not be
/// measured to the end.
///
/// # Errors
/// Without the rights to measure, for bad arguments, or on ctrl-C. Nothing is left behind in any case.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!((1000..=4_000_000).contains(&args.routes), "{} routes: 1000-4000000", args.routes);
    ensure!((1..=100).contains(&args.rounds), "{} rounds: 1-100", args.rounds);
    args.outputs.check()?;
    let _alone = os::begin()?;
    let executable = Executable::new(args.lanyard.as_deref())?;
    let wanted = |id: &str| args.only.is_empty() || args.only.iter().any(|only| only == id);
    let mut results = Results::new("routes");
    results.parameter("rounds", args.rounds);
    if wanted("batch") {
        let title = format!("{BATCH} routes by ip -batch, from the last acknowledgement");
        let rounds = rounds(args, || Rig::up(&executable)?.batch());
        push(&mut results, Row::new("batch", &title, Unit::Milliseconds, Target::Below(100.0)), rounds);
    }
    if wanted("load") || wanted("memory") {
        let found = rounds(args, || Rig::up(&executable)?.load(args.routes));
        let (times, memory) = match found {
            Ok(found) => {
                let (times, memory) = found.into_iter().unzip();
                (Ok(times), Ok(memory))
            }
            Err(why) => (Err(why.clone()), Err(why)),
        };
        let title = format!("{} kernel routes, from ready to the last one in the plane", args.routes);
        push(&mut results, Row::new("load", &title, Unit::Milliseconds, Target::Below(10_000.0)), times);
        let title = format!("daemon's memory for {} routes", args.routes);
        push(&mut results, Row::new("memory", &title, Unit::Megabytes, Target::None), memory);
    }
    if wanted("death") {
        let title = format!("a next hop dies, {BEHIND} routes behind it: traffic on the alternate");
        let rounds = rounds(args, || Rig::up(&executable)?.death());
        push(&mut results, Row::new("death", &title, Unit::Milliseconds, Target::Below(20.0)), rounds);
    }
    print!("{}", results.table());
    args.outputs.write(&results)?;
    Ok(results.exit_code())
}

fn rounds<T>(args: &Args, mut once: impl FnMut() -> Result<T>) -> Result<Vec<T>, String> {
    (0..args.rounds).map(|_| once()).collect::<Result<_>>().map_err(|why| format!("{why:#}"))
}

fn push(results: &mut Results, row: Row, found: Result<Vec<f64>, String>) {
    let (rounds, broken) = match found {
        Ok(rounds) => (rounds, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    results.push_row(row.broken_by(broken), vec![Arm::lanyard(rounds)], None);
}

/// The switch, its two gateways and a host.
struct Rig {
    lanyard: Lanyard,
    asker: Asker,
    switch: Netns,
    gateways: Netns,
    host: Netns,
}

/// The prefix of route number `n`: a /24, counted from 11.0.0.0.
fn prefix(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0000 + (n << 8))
}

fn host(n: u32) -> String {
    Ipv4Addr::from(u32::from(prefix(n)) + 1).to_string()
}

fn batch(count: u32, rest: &str) -> String {
    let mut text = String::new();
    for n in 0..count {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "route add {}/24 {rest}", prefix(n));
    }
    text
}

const ONE_WAY: &str = "via 10.0.10.1";
const TWO_WAYS: &str = "nexthop via 10.0.10.1 nexthop via 10.0.20.1";

impl Rig {
    fn up(executable: &Executable) -> Result<Self> {
        let (switch, gateways, host) = (Netns::new()?, Netns::new()?, Netns::new()?);
        let mut wires = String::new();
        for (n, far, name) in [(1, &gateways, "g1"), (2, &gateways, "g2"), (3, &host, "h3")] {
            let _ = writeln!(wires, "link add p{n} type veth peer name {name} netns {}", far.path());
        }
        switch.ip(&wires)?;
        host.ip("link set h3 up")?;
        gateways.ip(
            "link set g1 up\nlink set g2 up\naddress add 10.0.10.1/24 dev g1\naddress add 10.0.20.1/24 dev g2",
        )?;
        let lanyard = Lanyard::with_config(&switch, executable, INSTANCE, CONFIG)?;
        let mut asker = Asker::connect(INSTANCE)?;
        if let Some(why) = asker.refusal("10.0.10.1")? {
            bail!("{why}");
        }
        // Make both gateways known to the kernel before anything is measured.
        for gateway in ["10.0.10.1", "10.0.20.1"] {
            wait_until("the gateway to answer", LIMIT, || {
                let _ = switch.run("ping", &["-c", "1", "-W", "1", gateway], "");
                Ok(asker.action(gateway)? == "forward")
            })?;
        }
        Ok(Self { lanyard, asker, switch, gateways, host })
    }
    /// Milliseconds from the last acknowledgement to the last route in the plane.
    fn batch(mut self) -> Result<f64> {
        self.switch.ip(&batch(BATCH, ONE_WAY))?;
        let start = Instant::now();
        self.await_last(BATCH)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        // Check a sample of all routes, not only the last one.
        for n in (0..BATCH).step_by(97) {
            ensure!(self.asker.action(&host(n))? == "forward", "{} is missing", prefix(n));
        }
        Ok(ms)
    }
    /// Milliseconds from the restarted daemon's `ready` to the last route in the plane, and the daemon's memory then
    /// in megabytes.
    fn load(mut self, count: u32) -> Result<(f64, f64)> {
        self.lanyard.kill();
        self.switch.ip(&batch(count, ONE_WAY))?;
        self.lanyard.start()?;
        let start = Instant::now();
        self.asker = Asker::connect(INSTANCE)?;
        self.await_last(count)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        Ok((ms, self.lanyard.resident_kib()? as f64 * 1024.0 / 1e6))
    }
    /// Milliseconds for which flows are lost when the gateway they use loses its link.
    fn death(mut self) -> Result<f64> {
        self.switch.ip(&batch(BEHIND, TWO_WAYS))?;
        self.await_last(BEHIND)?;
        let last = host(BEHIND - 1);
        wait_until("both ways", LIMIT, || Ok(self.asker.ways(&last)? == 2))?;
        let to: Vec<Ipv4Addr> =
            (0..BEHIND).step_by(997).map(|n| Ipv4Addr::from(u32::from(prefix(n)) + 1)).collect();
        let flows = Flows::find(&self.switch, &self.host, &self.gateways, &to)?;
        let g2 = self.gateways.try_clone()?;
        let outage = flows.outage(|| g2.ip("link set g2 down").map(drop))?;
        // All routes share one next-hop group, so a sample shows them all.
        for n in (0..BEHIND).step_by(9973) {
            ensure!(self.asker.ways(&host(n))? == 1, "{} is still by the dead next hop", prefix(n));
        }
        Ok(outage.as_secs_f64() * 1e3)
    }
    fn await_last(&mut self, count: u32) -> Result<()> {
        let last = host(count - 1);
        let start = Instant::now();
        while self.asker.action(&last).context("show ip cef")? != "forward" {
            os::check_interrupted()?;
            ensure!(start.elapsed() < LIMIT, "{last} is not in the plane");
        }
        Ok(())
    }
}
