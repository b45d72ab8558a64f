//! `lanyard bench control-path`: TCP between a host behind a port of a switch chip and the switch itself, by both paths of the
//! CPU port.
//!
//! ```text
//!   [host eth0] ═ swp1-wire [chip] CPU port ─ tun: daemon, TAP ──── swp1 [kernel's TCP]
//!                                           └ kernel: eBPF, veth ─┘
//! ```
//!
//! *rx* is what the switch receives, *tx* what it sends. Rounds of the paths are interleaved. The published figures are those
//! that docs/offload.md cites, of a switch whose CPU port was a TUN device.
//!
//! The ends write and read 128 KB at a time, as iperf3 does. The rows with targets use the congestion control that is the default
//! of Debian's kernels. The rows `own` use this machine's default if it is another one: BBR, for instance, limits a stream by
//! timers, which hides a part of the difference between the paths.

use super::chip_switch::ChipSwitch;
use crate::report::{Arm, Outputs, Results, Row, Target, Unit};
use anyhow::{Context, Result, bail, ensure};
use lanyard_tester::os::{self, Netns};
use nix::sys::socket::sockopt::{SendTimeout, TcpCongestion};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike as _};
use serde_json::json;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `lanyard bench control-path`.
#[derive(Debug, Clone, clap::Args)]
#[command(about = "Measures both paths of a switch chip's CPU port")]
pub struct Args {
    /// Measurements of each row, 1-100
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of each measurement, 0.2-60
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub seconds: f64,
    /// Only these cases: the MTU and the direction, after `own-` for this machine's congestion control: 9000-rx, own-9000-rx
    #[arg(long, value_name = "CASE,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// The default congestion control of Debian's kernels.
const DEBIANS: &str = "cubic";
const PATHS: [&str; 2] = ["tun", "kernel"];
const MTUS: [u32; 2] = [1500, 9000];
const DIRECTIONS: [&str; 2] = ["rx", "tx"];
/// The switch's address and the host's.
const SWITCH: &str = "10.255.1.254";
const HOST: &str = "10.255.1.1";
/// Published figures of a CPU port that is a TUN device: MTU, direction, Mbit/s.
const PUBLISHED: [(u32, &str, f64); 4] =
    [(1500, "rx", 12.0), (9000, "rx", 72.0), (1500, "tx", 69.0), (9000, "tx", 189.0)];
/// How long the switch may take to be ready, and to be reached.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How many seconds a connection may take.
const CONNECTED_WITHIN_S: i64 = 10;
/// Bytes of one write to a stream, as iperf3 has it.
const CHUNK: usize = 1 << 17;
/// How long a stream runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);

/// Runs `lanyard bench control-path`. The exit code is 0 when every row met its target, 1 when one missed it or broke.
///
/// # Errors
/// For bad arguments, without the rights, while another process measures, or on ctrl-C.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!((1..=100).contains(&args.rounds), "{} rounds: 1-100", args.rounds);
    ensure!((0.2..=60.0).contains(&args.seconds), "{} seconds: 0.2-60", args.seconds);
    args.outputs.check()?;
    let _alone = os::begin()?;
    let mut results = Results::new("control-path");
    results.parameter("rounds", args.rounds);
    results.parameter("seconds", args.seconds);
    let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().to_owned();
    results.parameter("congestion", DEBIANS);
    results.parameter("own_congestion", &own);
    let mut all = vec![Ends { id: "", control: DEBIANS }];
    if own != DEBIANS {
        all.push(Ends { id: "own-", control: &own });
    }
    let cases = cases(&all);
    if let Some(stray) = args.only.iter().find(|only| !cases.contains(only)) {
        bail!("no case {stray}: the cases are {}", cases.join(", "));
    }
    let found = measure_all(args, &all)?;
    for rates in found.iter().filter(|rates| rates.ends == all[0]) {
        figure(&mut results, rates);
    }
    for ends in all {
        gains(&mut results, &found, ends);
    }
    print!("{}", results.table());
    args.outputs.write(&results)?;
    Ok(results.exit_code())
}

/// How the ends of a TCP stream are prepared: see the module comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends<'a> {
    /// The part of the rows' names that stands for this preparation.
    id: &'static str,
    /// The congestion control of both ends.
    control: &'a str,
}

impl Ends<'_> {
    /// The name of a case with this preparation.
    fn case(&self, mtu: u32, direction: &str) -> String {
        format!("{}{mtu}-{direction}", self.id)
    }
}

/// The names of all cases.
fn cases(all: &[Ends<'_>]) -> Vec<String> {
    let directions = DIRECTIONS.iter().flat_map(|direction| MTUS.map(|mtu| (mtu, *direction)));
    directions.flat_map(|(mtu, direction)| all.iter().map(move |ends| ends.case(mtu, direction))).collect()
}

/// The rates of one path, in bit/s, a figure a round.
struct Rates<'a> {
    path: &'static str,
    mtu: u32,
    direction: &'static str,
    ends: Ends<'a>,
    rounds: Vec<f64>,
}

fn measure_all<'a>(args: &Args, all: &[Ends<'a>]) -> Result<Vec<Rates<'a>>> {
    let mut found: Vec<Rates<'_>> = Vec::new();
    let time = Duration::from_secs_f64(args.seconds);
    let wanted = |case: &String| args.only.is_empty() || args.only.contains(case);
    for mtu in MTUS {
        let of_mtu = |direction: &&str| all.iter().any(|ends| wanted(&ends.case(mtu, direction)));
        if !DIRECTIONS.iter().any(of_mtu) {
            continue;
        }
        let switches: Vec<Switch> = PATHS.iter().map(|path| Switch::up(path, mtu)).collect::<Result<_>>()?;
        for direction in DIRECTIONS {
            for ends in all.iter().copied().filter(|ends| wanted(&ends.case(mtu, direction))) {
                let rates = |path: &&'static str| Rates { path, mtu, direction, ends, rounds: Vec::new() };
                let mut rows: Vec<Rates<'_>> = PATHS.iter().map(rates).collect();
                for _ in 0..args.rounds {
                    for (switch, row) in switches.iter().zip(&mut rows) {
                        os::check_interrupted()?;
                        row.rounds.push(switch.stream(direction, ends, time)?);
                    }
                }
                found.extend(rows);
            }
        }
    }
    Ok(found)
}

/// The ratios of the paths with one preparation of the ends. They have targets with Debian's congestion control.
fn gains(results: &mut Results, found: &[Rates<'_>], ends: Ends<'_>) {
    for mtu in MTUS {
        for (direction, bound) in DIRECTIONS.into_iter().zip([4.0, 2.0]) {
            let arm = |path: &str| {
                let mut of = found.iter().filter(|rates| rates.ends == ends && rates.path == path);
                let of = of.find(|rates| rates.mtu == mtu && rates.direction == direction)?;
                Some(Arm { label: path.to_owned(), detail: String::new(), rounds: of.rounds.clone() })
            };
            let Some(arms) = ["kernel", "tun"].into_iter().map(arm).collect() else { continue };
            let target = if ends.control == DEBIANS { Target::RatioAtLeast(bound) } else { Target::None };
            let title = format!("kernel to tun, MTU {mtu}, {}, {}", word(direction), ends.control);
            let id = format!("gain-{}", ends.case(mtu, direction));
            results.push_row(Row::new(&id, &title, Unit::BitsPerSecond, target), arms, None);
        }
    }
}

fn word(direction: &str) -> &'static str {
    if direction == "rx" { "received by the switch" } else { "sent by the switch" }
}

fn figure(results: &mut Results, rates: &Rates<'_>) {
    let Rates { path, mtu, direction, ends, rounds } = rates;
    let published = PUBLISHED.iter().find(|row| row.0 == *mtu && row.1 == *direction).map(|row| row.2);
    let published = published.filter(|_| *path == "tun");
    let note = published.map_or_else(String::new, |mbps| format!("; published {mbps:.0} Mbit/s"));
    let title = format!("TCP by path {path}, MTU {mtu}, {}, {}{note}", word(direction), ends.control);
    let mut row = Row::new(&format!("{path}-{mtu}-{direction}"), &title, Unit::BitsPerSecond, Target::None);
    let mut sorted = rounds.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
    let mut facts = vec![
        ("path", json!(path)),
        ("mtu", json!(mtu)),
        ("direction", json!(direction)),
        ("congestion", json!(ends.control)),
        ("mbps", json!(median / 1e6)),
    ];
    facts.extend(published.map(|mbps| ("published_mbps", json!(mbps))));
    row.facts = facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let arm = Arm { label: (*path).to_owned(), detail: String::new(), rounds: rounds.clone() };
    results.push_row(row, vec![arm], None);
}

/// A switch on a chip, and a host at its first port.
struct Switch {
    switch: ChipSwitch,
    host: Netns,
}

impl Switch {
    fn up(path: &str, mtu: u32) -> Result<Self> {
        let (netns, host) = (Netns::new()?, Netns::new()?);
        netns.ip(&format!(
            "link add swp1-wire mtu {mtu} type veth peer name eth0 mtu {mtu} netns {}\nlink set swp1-wire up\n",
            host.path()
        ))?;
        host.ip(&format!("address add {HOST}/24 dev eth0\nlink set eth0 up\n"))?;
        let config = format!(
            "platform control-path {path}\ninterface swp1\n no switchport\n mtu {mtu}\n ip address {SWITCH} 255.255.255.0\n"
        );
        let switch = ChipSwitch::start(netns, &format!("{path}-{mtu}"), &config)?;
        let deadline = Instant::now() + READY_WITHIN;
        while host.run("ping", &["-n", "-c", "1", "-W", "1", SWITCH], "").is_err() {
            os::check_interrupted()?;
            if Instant::now() > deadline {
                bail!("the switch with control path {path} does not answer within {READY_WITHIN:?}");
            }
        }
        Ok(Self { switch, host })
    }

    /// Measures the rate of a TCP stream in bit/s over `time`, with the congestion control of `ends`.
    fn stream(&self, direction: &str, ends: Ends<'_>, time: Duration) -> Result<f64> {
        let (server, address, client) = match direction {
            "rx" => (&self.switch.netns, SWITCH, &self.host),
            _ => (&self.host, HOST, &self.switch.netns),
        };
        let listener = {
            let _inside = server.enter()?;
            TcpListener::bind((address, 0))?
        };
        choose(&listener, ends.control)?;
        let to = SocketAddrV4::new(address.parse()?, listener.local_addr()?.port());
        let sender = {
            let _inside = client.enter()?;
            connect(to, ends.control)?
        };
        let (receiver, _) = listener.accept()?;
        let (arrived, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let rate = std::thread::scope(|scope| {
            scope.spawn(|| send(&sender, &stop));
            scope.spawn(|| receive(&receiver, &arrived));
            let rate = measure(&arrived, time);
            stop.store(true, Ordering::Release);
            // Do not wait for segments that are still under way.
            let _ = sender.shutdown(std::net::Shutdown::Both);
            rate
        });
        ensure!(rate > 0.0, "no byte arrived: {direction}");
        Ok(rate)
    }
}

/// Connects a stream with this congestion control. It is chosen before the connection is made, because the kernel continues to
/// pace a stream by timers if it began with BBR and is then changed to CUBIC.
fn connect(to: SocketAddrV4, control: &str) -> Result<TcpStream> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    choose(&socket, control)?;
    setsockopt(&socket, SendTimeout, &TimeVal::seconds(CONNECTED_WITHIN_S))?;
    nix::sys::socket::connect(socket.as_raw_fd(), &SockaddrIn::from(to))
        .with_context(|| format!("a connection to {to}"))?;
    setsockopt(&socket, SendTimeout, &TimeVal::seconds(0))?;
    Ok(socket.into())
}

fn choose(socket: &impl AsFd, control: &str) -> Result<()> {
    setsockopt(socket, TcpCongestion, &OsString::from(control))
        .with_context(|| format!("TCP congestion control {control}"))
}

fn send(mut stream: &TcpStream, stop: &AtomicBool) {
    let chunk = vec![0x5a; CHUNK];
    while !stop.load(Ordering::Acquire) && stream.write_all(&chunk).is_ok() {}
}

fn receive(mut stream: &TcpStream, arrived: &AtomicU64) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        arrived.fetch_add(count as u64, Ordering::Relaxed);
    }
}

fn measure(arrived: &AtomicU64, time: Duration) -> f64 {
    std::thread::sleep(WARM_UP);
    let (start, before) = (Instant::now(), arrived.load(Ordering::Relaxed));
    std::thread::sleep(time);
    let bytes = arrived.load(Ordering::Relaxed) - before;
    bytes as f64 * 8.0 / start.elapsed().as_secs_f64()
}
