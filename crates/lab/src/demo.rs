//! `lanyard lab demo`: the LiSA four-port example with real hosts and real traffic, in under a minute.
//!
//! Read first: labs/lisa.clab.yml. Invariant: every result that is printed was measured in this run; a result
//! that differs from what the VLANs demand makes the demo fail.

use crate::load::{self, Lab};
use crate::netns::{self, Place};
use crate::program::program;
use crate::state::LabState;
use crate::steps::{Step, colour_stdout};
use crate::topology::PlaneChoice;
use crate::up::{self, Interrupts};
use crate::{down, graph};
use anyhow::{Context, Result, bail};
use lanyard_netdev::Reaped;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long to wait until hosts that should reach each other do so.
const REACH_WITHIN: Duration = Duration::from_secs(20);
/// The time between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// The maximum number of wrong results that are printed.
const TOLD: usize = 10;
/// The number of pings that run at the same time.
const WORKERS: usize = 16;

/// The options of `lanyard lab demo`.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// `--plane`.
    pub plane: Option<PlaneChoice>,
    /// `--keep`.
    pub keep: bool,
    /// `--seconds`: the duration of each rate measurement.
    pub seconds: u32,
}

/// How a packet got from one host to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// Bridged: it arrived with its hop limit of 64.
    Bridged,
    /// Routed: one router decremented the hop limit to 63.
    Routed,
    /// Some other hop limit.
    Odd(u8),
    /// No answer.
    No,
}

impl Reached {
    fn word(self) -> String {
        match self {
            Self::Bridged => "bridged".into(),
            Self::Routed => "routed".into(),
            Self::Odd(ttl) => format!("an answer with TTL {ttl}"),
            Self::No => "no answer".into(),
        }
    }
}

#[derive(Debug, Clone)]
struct Host {
    name: String,
    netns: String,
    vlan: String,
    /// The IPv4 and the IPv6 address.
    addresses: [String; 2],
}

/// The expected result for a pair of hosts, by their VLANs.
fn expected(a: &Host, b: &Host) -> Reached {
    let routed = |host: &Host| matches!(host.vlan.as_str(), "VLAN 2" | "VLAN 3");
    if a.vlan == b.vlan {
        Reached::Bridged
    } else if routed(a) && routed(b) {
        Reached::Routed
    } else {
        Reached::No
    }
}

/// Runs the demo.
///
/// # Errors
/// The lab cannot be built, a program is missing, or hosts reach each other otherwise than they should.
pub fn run(options: Options) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        return rootless();
    }
    if let Some(printed) = netns::rights()? {
        eprintln!("note: {printed}");
    }
    if Command::new("ping").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        bail!("`ping` is missing; install the package iputils-ping");
    }
    let lab = load::demo()?;
    let name = &lab.topology.name;
    if let Some(state) = LabState::load(name)? {
        if !state.file.is_empty() {
            bail!("lab {name} is up from {}; `lanyard lab down {name}` first", state.file);
        }
        eprintln!("lab {name} is left from an earlier demo; taking it down");
        down::down(name, Some(&lab.topology))?;
    }
    let interrupts = Interrupts::hold()?;
    let colour = colour_stdout();
    println!("{}", graph::text(&lab.topology, colour));
    let state = up::up(&lab, up::Options { plane: options.plane, strict: true, quiet: false }, &interrupts)?;
    println!();
    let result = Demo { lab: &lab, state: &state, options, interrupts: &interrupts, colour }.show();
    if options.keep {
        println!("\nThe lab is up. Look around:");
        for line in crate::hints(&lab) {
            println!("  {line}");
        }
    } else {
        let step = Step::begin("down", false);
        let cleared = down::down(name, Some(&lab.topology))?.unwrap_or_default();
        step.done(&format!("{} switches and {} namespaces", cleared.switches, cleared.namespaces));
        println!(
            "\nTo look around in it: `lanyard lab demo --keep`, or `lanyard lab up labs/lisa.clab.yml`."
        );
    }
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the same command again in a new user namespace.
fn rootless() -> Result<ExitCode> {
    eprintln!(
        "note: not root: the demo runs in a user namespace of its own (unshare -Urnm), on the soft plane"
    );
    let error = Command::new("unshare").arg("-Urnm").arg(program()?).args(std::env::args_os().skip(1)).exec();
    Err(error).context("can't run `unshare`; run the demo as root, or install util-linux")
}

struct Demo<'a> {
    lab: &'a Lab,
    state: &'a LabState,
    options: Options,
    interrupts: &'a Interrupts,
    colour: bool,
}

impl Demo<'_> {
    fn show(&self) -> Result<()> {
        self.plane()?;
        let hosts = self.hosts()?;
        let reached = self.reach(&hosts)?;
        let wrong = self.matrix(&hosts, &reached);
        for command in ["show vlan", "show mac address-table", "show interfaces status"] {
            self.interrupts.check()?;
            self.command("sw1", command)?;
        }
        if !wrong.is_empty() {
            let more = match wrong.len().saturating_sub(TOLD) {
                0 => String::new(),
                more => format!("\n  and {more} more"),
            };
            bail!("not as the VLANs say:\n  {}{more}", wrong[..wrong.len().min(TOLD)].join("\n  "));
        }
        self.rates(&hosts)
    }

    /// Prints a note if the switches run on the soft plane although no plane was chosen.
    fn plane(&self) -> Result<()> {
        let ready = self.state.nodes.iter().find_map(|node| node.ready.as_deref()).unwrap_or_default();
        if self.options.plane.is_some() || !ready.contains("plane soft") {
            return Ok(());
        }
        println!("BPF can't be loaded here, so the switches run on the soft plane:");
        let output = Command::new(program()?).arg("version").stdin(Stdio::null()).output()?;
        for line in String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains("ebpf")) {
            println!("  {}", line.trim());
        }
        println!();
        Ok(())
    }

    /// The hosts, sorted by VLAN, with the addresses that their commands configured.
    fn hosts(&self) -> Result<Vec<Host>> {
        let topology = &self.lab.topology;
        let mut hosts = Vec::new();
        for (index, node) in topology.nodes.iter().enumerate().filter(|(_, node)| !node.kind.is_switch()) {
            let addresses = graph::details(topology, index);
            let one = |v6: bool| {
                let address = addresses.iter().find(|address| address.contains(':') == v6)?;
                Some(address.split('/').next()?.to_owned())
            };
            let (Some(v4), Some(v6), Some(vlan)) = (one(false), one(true), node.group.clone()) else {
                bail!("host {} has no group, or not both addresses", node.name);
            };
            let netns = topology.namespace(node);
            hosts.push(Host { name: node.name.clone(), netns, vlan, addresses: [v4, v6] });
        }
        hosts.sort_by(|a, b| (&a.vlan, &a.name).cmp(&(&b.vlan, &b.name)));
        Ok(hosts)
    }

    /// Pings every pair in both directions by IPv4 and IPv6: first those that should answer,
    /// repeatedly until they do, then the others once.
    fn reach(&self, hosts: &[Host]) -> Result<Vec<Vec<[Reached; 2]>>> {
        let step = Step::begin("traffic", false);
        let mut jobs = Vec::new();
        for from in 0..hosts.len() {
            for to in (0..hosts.len()).filter(|&to| to != from) {
                jobs.extend([0, 1].map(|family| (from, to, family)));
            }
        }
        let total = jobs.len();
        // Jobs are popped from the end. The pairs that should get no answer come last, when all FDBs and
        // neighbour tables are filled.
        jobs.sort_by_key(|&(from, to, _)| expected(&hosts[from], &hosts[to]) != Reached::No);
        let silent =
            jobs.iter().filter(|&&(from, to, _)| expected(&hosts[from], &hosts[to]) == Reached::No).count();
        let (quiet, answering) = jobs.split_at(silent);
        let mut reached = vec![vec![[Reached::No; 2]; hosts.len()]; hosts.len()];
        let deadline = Instant::now() + REACH_WITHIN;
        for (group, until) in [(answering, Some(deadline)), (quiet, None)] {
            let queue = Mutex::new(group.to_vec());
            let found = Mutex::new(Vec::new());
            std::thread::scope(|scope| -> Result<()> {
                let workers: Vec<_> = (0..WORKERS)
                    .map(|_| scope.spawn(|| work(hosts, self.interrupts, &queue, &found, until)))
                    .collect();
                for worker in workers {
                    match worker.join() {
                        Ok(result) => result?,
                        Err(_) => bail!("a helper thread ended early"),
                    }
                }
                Ok(())
            })?;
            for ((from, to, family), way) in found.into_inner().unwrap_or_default() {
                reached[from][to][family] = way;
            }
        }
        step.done(&format!("{total} pings between {} hosts, IPv4 and IPv6", hosts.len()));
        Ok(reached)
    }

    /// Prints which host reached which. Returns the results that are wrong.
    fn matrix(&self, hosts: &[Host], reached: &[Vec<[Reached; 2]>]) -> Vec<String> {
        let paint = |colour: &str, text: &str| {
            if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
        };
        let gap = |index: usize| {
            if index > 0 && hosts[index - 1].vlan != hosts[index].vlan { "   " } else { " " }
        };
        let mut wrong = Vec::new();
        let (mut vlans, mut names) = (String::new(), String::new());
        for (index, host) in hosts.iter().enumerate() {
            let _ = write!(names, "{}{:<5}", gap(index), host.name);
            if index + 1 == hosts.len() || hosts[index + 1].vlan != host.vlan {
                // Print a VLAN's name above the first of its hosts.
                let at = hosts.iter().take_while(|other| other.vlan != host.vlan).count();
                let _ = write!(vlans, "{}{}", gap(at), host.vlan);
                let wide = names.chars().count();
                vlans = format!("{vlans:<wide$}");
            }
        }
        println!("\nWho reaches whom, rows to columns (B bridged, R routed by sw1, · no answer):\n");
        println!("{:12}{}", "", vlans.trim_end());
        println!("{:12}{}", "", paint("1", names.trim_end()));
        for (from, host) in hosts.iter().enumerate() {
            if from > 0 && hosts[from - 1].vlan != host.vlan {
                println!();
            }
            let first = from == 0 || hosts[from - 1].vlan != host.vlan;
            print!("{:6} {}", if first { &host.vlan } else { "" }, paint("1", &format!("{:<5}", host.name)));
            for (to, other) in hosts.iter().enumerate() {
                let should = expected(host, other);
                let right = from == to || reached[from][to] == [should; 2];
                let cell = match (from == to, right, should) {
                    (true, _, _) => paint("2", "-    "),
                    (_, true, Reached::Bridged) => paint("32", "B    "),
                    (_, true, Reached::Routed) => paint("36", "R    "),
                    (_, true, _) => paint("2", "·    "),
                    (_, false, _) => paint("1;31", "WRONG"),
                };
                print!("{}{cell}", gap(to));
                for (family, way) in ["IPv4", "IPv6"].iter().zip(reached[from][to]) {
                    if from != to && way != should {
                        let (way, should) = (way.word(), should.word());
                        wrong.push(format!(
                            "{} to {} {family}: {way} instead of {should}",
                            host.name, other.name
                        ));
                    }
                }
            }
            println!();
        }
        let verdict = if wrong.is_empty() {
            paint("32", "As it should be: VLANs apart, 2 and 3 joined by the router, IPv4 and IPv6 alike.")
        } else {
            paint("1;31", &format!("{} answers are not as they should be.", wrong.len()))
        };
        println!("\n{verdict}");
        wrong
    }

    /// Runs an exec command on a switch and prints it as a session would show it.
    fn command(&self, node: &str, text: &str) -> Result<()> {
        let netns = format!("{}-{node}", self.lab.topology.name);
        let output = netns::within(Place::Named(&netns), || {
            let mut command = Command::new(program()?);
            command.args(["cli", "--instance", &netns, "-c", text]).stdin(Stdio::null());
            Ok(command.output()?)
        })?;
        let prompt =
            if self.colour { format!("\x1b[1m{node}#\x1b[0m {text}") } else { format!("{node}# {text}") };
        println!("\n{prompt}\n{}", String::from_utf8_lossy(&output.stdout).trim_end());
        if !output.status.success() {
            bail!("`{text}` on {node} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Measures TCP between two hosts, bridged and routed.
    fn rates(&self, hosts: &[Host]) -> Result<()> {
        println!();
        if Command::new("iperf3").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            println!("Rate: skipped: `iperf3` is missing; install the package iperf3");
            return Ok(());
        }
        let pairs = [
            ("bridged", "h1v2", "h2v2", "sw1, sw2"),
            ("routed", "h1v2", "h1v3", "sw1"),
            ("routed", "h2v2", "h3v3", "sw2, sw1, sw3"),
        ];
        let mut lines = Vec::new();
        for (way, from, to, path) in pairs {
            let find = |name| hosts.iter().find(|host| host.name == name).context("no such host");
            let (from, to) = (find(from)?, find(to)?);
            let step = Step::begin("rate", false);
            step.progress(&format!("{} to {}, {} s", from.name, to.name, self.options.seconds));
            let gbps = self.rate(from, to)? / 1e9;
            drop(step);
            lines
                .push(format!("  {way:<8} {} to {}  {gbps:>6.2} Gbit/s  through {path}", from.name, to.name));
        }
        println!("Rate, one TCP stream over IPv4:\n\n{}\n", lines.join("\n"));
        Ok(())
    }

    /// The rate in bits per second, as the receiver measured it.
    fn rate(&self, from: &Host, to: &Host) -> Result<f64> {
        let server = netns::within(Place::Named(&to.netns), || {
            let mut command = Command::new("iperf3");
            command.args(["--server", "--one-off"]).stdin(Stdio::null());
            Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
        })?;
        let _server = Reaped(server);
        let deadline = Instant::now() + REACH_WITHIN;
        loop {
            self.interrupts.check()?;
            let output = netns::within(Place::Named(&from.netns), || {
                let mut command = Command::new("iperf3");
                command.args(["--client", &to.addresses[0], "--json", "--connect-timeout", "2000"]);
                command.args(["--time", &self.options.seconds.to_string()]);
                Ok(command.stdin(Stdio::null()).output()?)
            })?;
            let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if let Some(rate) = answer["end"]["sum_received"]["bits_per_second"].as_f64() {
                return Ok(rate);
            }
            // The server may not listen yet; retry.
            if Instant::now() > deadline {
                bail!("iperf3 from {} to {}: {}", from.name, to.name, answer["error"]);
            }
            std::thread::sleep(TRY_EVERY);
        }
    }
}

type Job = (usize, usize, usize);

/// Takes jobs until there are none. With a deadline, a job is repeated until it succeeds or the
/// deadline has passed.
fn work(
    hosts: &[Host],
    interrupts: &Interrupts,
    queue: &Mutex<Vec<Job>>,
    found: &Mutex<Vec<(Job, Reached)>>,
    until: Option<Instant>,
) -> Result<()> {
    loop {
        let Some(job) = queue.lock().ok().and_then(|mut queue| queue.pop()) else { return Ok(()) };
        let (from, to, family) = job;
        let way = loop {
            interrupts.check()?;
            let way = ping(&hosts[from].netns, &hosts[to].addresses[family])?;
            if way != Reached::No || until.is_none_or(|until| Instant::now() > until) {
                break way;
            }
            std::thread::sleep(TRY_EVERY);
        };
        if let Ok(mut found) = found.lock() {
            found.push((job, way));
        }
    }
}

/// Sends one echo request, and concludes from the answer's hop limit how it was forwarded.
fn ping(netns: &str, address: &str) -> Result<Reached> {
    let output = netns::within(Place::Named(netns), || {
        let mut command = Command::new("ping");
        command.args(["-n", "-c", "1", "-W", "1", address]).env("LC_ALL", "C").stdin(Stdio::null());
        command.output().context("can't run `ping`; install the package iputils-ping")
    })?;
    Ok(reached_by(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads the result from the output of `ping`: `64 bytes from 192.168.2.1: icmp_seq=1 ttl=63 time=0.1 ms`.
fn reached_by(text: &str) -> Reached {
    let answer = text.lines().filter(|line| line.contains("bytes from"));
    let ttl = answer.filter_map(|line| line.split("ttl=").nth(1)?.split(' ').next()?.parse().ok()).next();
    match ttl {
        None => Reached::No,
        Some(64) => Reached::Bridged,
        Some(63) => Reached::Routed,
        Some(other) => Reached::Odd(other),
    }
}

#[cfg(test)]
mod tests {
    use super::{Reached, reached_by};

    #[test]
    fn the_hop_limit_distinguishes_routed_from_bridged() {
        let cases = [
            ("64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.1 ms", Reached::Bridged),
            ("64 bytes from 2001:db8::1: icmp_seq=1 ttl=63 time=0.1 ms", Reached::Routed),
            ("64 bytes from 10.0.0.1: icmp_seq=1 ttl=62 time=0.1 ms", Reached::Odd(62)),
            ("From 10.0.0.9 icmp_seq=1 Destination Host Unreachable", Reached::No),
            ("", Reached::No),
        ];
        for (text, wanted) in cases {
            assert_eq!(reached_by(text), wanted, "{text}");
        }
    }
}
