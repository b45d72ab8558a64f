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
//! Three preparations of the ends are measured. The rows without a prefix measure the path and not what an application does with
//! the bytes: the receiving end discards them in the kernel (`MSG_TRUNC`, as `iperf3 --skip-rx-copy`), because on a machine that is
//! host and switch at once the copy to the receiver takes the processor that the path needs. The rows `read` copy them, as most
//! applications do. Both have the targets, and use the congestion control that Debian's kernels use by default. The rows `own` copy,
//! too, and use this machine's default if it is another one: BBR for instance limits a stream by timers, which hides a part of the
//! difference between the paths.

use super::chip_switch::ChipSwitch;
use crate::report::{Arm, Outputs, Results, Row, Target, Unit};
use anyhow::{Context, Result, bail, ensure};
use lanyard_tester::os::{self, Netns};
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt::TcpCongestion};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
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
/// Published figures through a TUN device: MTU, direction, Mbit/s.
const PUBLISHED: [(u32, &str, f64); 4] =
    [(1500, "rx", 12.0), (9000, "rx", 72.0), (1500, "tx", 69.0), (9000, "tx", 189.0)];
/// How long the switch may take to be ready, and to be reached.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of one write to a stream, as iperf3 has it.
const CHUNK: usize = 1 << 17;
/// How long a stream runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);

/// Runs `lanyard bench control-path`. The exit code is 0 when every row met its target, 1 when one missed it or broke.
///
/// # Errors
/// For bad arguments, without root, or on ctrl-C.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!((1..=100).contains(&args.rounds), "{} rounds: 1-100", args.rounds);
    ensure!((0.2..=60.0).contains(&args.seconds), "{} seconds: 0.2-60", args.seconds);
    ensure!(nix::unistd::geteuid().is_root(), "network namespaces need root");
    args.outputs.check()?;
    let mut results = Results::new("control-path");
    results.parameter("rounds", args.rounds);
    results.parameter("seconds", args.seconds);
    let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().to_owned();
    results.parameter("congestion", DEBIANS);
    results.parameter("own_congestion", &own);
    let mut all = vec![
        Ends { id: "", control: DEBIANS, copies: false },
        Ends { id: "read-", control: DEBIANS, copies: true },
    ];
    if own != DEBIANS {
        all.push(Ends { id: "own-", control: &own, copies: true });
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

/// How the ends of a stream were prepared: see the module comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends<'a> {
    /// The part of the rows' names that stands for this preparation.
    id: &'static str,
    /// The congestion control.
    control: &'a str,
    /// True if the receiver copies the bytes from the kernel.
    copies: bool,
}

impl std::fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let receiver = if self.copies { "receiver copies" } else { "receiver discards" };
        write!(f, "{}, {receiver}", self.control)
    }
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
    for mtu in MTUS {
        let switches: Vec<Switch> = PATHS.iter().map(|path| Switch::up(path, mtu)).collect::<Result<_>>()?;
        for direction in DIRECTIONS {
            for ends in all.iter().copied() {
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
                let of = of.find(|rates| rates.mtu == mtu && rates.direction == direction);
                let rounds = of.map(|rates| rates.rounds.clone()).unwrap_or_default();
                Arm { label: path.to_owned(), detail: String::new(), rounds }
            };
            let target = if ends.control == DEBIANS { Target::RatioAtLeast(bound) } else { Target::None };
            let title = format!("kernel to tun, MTU {mtu}, {}, {ends}", word(direction));
            let row =
                Row::new(&format!("gain-{}{mtu}-{direction}", ends.id), &title, Unit::BitsPerSecond, target);
            results.push_row(row, vec![arm("kernel"), arm("tun")], None);
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
    let title = format!("TCP by path {path}, MTU {mtu}, {}, {ends}{note}", word(direction));
    let mut row = Row::new(&format!("{path}-{mtu}-{direction}"), &title, Unit::BitsPerSecond, Target::None);
    let mut sorted = rounds.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
    let mut facts = vec![
        ("path", json!(path)),
        ("mtu", json!(mtu)),
        ("direction", json!(direction)),
        ("congestion", json!(ends.control)),
        ("receiver_copies", json!(ends.copies)),
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

    /// The rate of a TCP stream in bit/s, with the ends prepared so.
    fn stream(&self, direction: &str, ends: Ends<'_>, time: Duration) -> Result<f64> {
        let (server, address, client) = match direction {
            "rx" => (&self.switch.netns, SWITCH, &self.host),
            _ => (&self.host, HOST, &self.switch.netns),
        };
        let listener = {
            let _inside = server.enter()?;
            TcpListener::bind((address, 0))?
        };
        let port = listener.local_addr()?.port();
        let sender = {
            let _inside = client.enter()?;
            TcpStream::connect_timeout(
                &std::net::SocketAddr::new(address.parse()?, port),
                Duration::from_secs(10),
            )?
        };
        setsockopt(&sender, TcpCongestion, &OsString::from(ends.control))
            .with_context(|| format!("TCP congestion control {}", ends.control))?;
        let (receiver, _) = listener.accept()?;
        let (arrived, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let rate = std::thread::scope(|scope| {
            scope.spawn(|| send(&sender, &stop));
            scope.spawn(|| receive(&receiver, ends.copies, &arrived));
            let rate = measure(&arrived, time);
            stop.store(true, Ordering::Release);
            // Segments on the way are not waited for.
            let _ = sender.shutdown(std::net::Shutdown::Both);
            rate
        });
        ensure!(rate > 0.0, "no byte arrived: {direction}");
        Ok(rate)
    }
}

fn send(mut stream: &TcpStream, stop: &AtomicBool) {
    let chunk = vec![0x5a; CHUNK];
    while !stop.load(Ordering::Acquire) && stream.write_all(&chunk).is_ok() {}
}

fn receive(stream: &TcpStream, copies: bool, arrived: &AtomicU64) {
    let mut chunk = vec![0; CHUNK];
    let flags = if copies { MsgFlags::empty() } else { MsgFlags::MSG_TRUNC };
    while let Ok(count) = recv(stream.as_raw_fd(), &mut chunk, flags) {
        if count == 0 {
            return;
        }
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
