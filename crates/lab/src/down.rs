//! `lanyard lab down`: removes switches, other processes in the lab, namespaces and files, in this
//! order.
//!
//! Invariants: it removes what exists, however that came about, and can be repeated: after a crash,
//! for a half-built lab, without a state file. Only processes that live in the lab's own
//! namespaces, or that the lab has recorded with their start time, are ended.

use crate::netns::{self, Place};
use crate::program::program;
use crate::state::{self, LabState, NodeState, Phase, ProcessId};
use crate::topology::Topology;
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The numbers of removed objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleared {
    /// Switches detached.
    pub switches: usize,
    /// Processes ended.
    pub processes: usize,
    /// Namespaces deleted.
    pub namespaces: usize,
}

/// Takes down the lab of this name, by its state file or, without one, by its topology. `None` if
/// there was nothing to take down.
///
/// # Errors
/// The parts that could not be taken down; the command can be repeated.
pub fn down(name: &str, topology: Option<&Topology>) -> Result<Option<Cleared>> {
    let _lock = state::lock()?;
    let state = match LabState::load(name) {
        Ok(Some(state)) => state,
        // The state file is missing or damaged, so the topology says what the lab consists of.
        other => match topology {
            Some(topology) => from_topology(topology),
            None => match other {
                Err(error) => return Err(error.context("name the topology file, to take the lab down by it")),
                Ok(_) => {
                    LabState::forget(name)?;
                    return Ok(None);
                }
            },
        },
    };
    let cleared = clear(&state)?;
    Ok((cleared != Cleared::default()).then_some(cleared))
}

fn from_topology(topology: &Topology) -> LabState {
    let nodes = topology.nodes.iter().map(|node| NodeState {
        name: node.name.clone(),
        kind: node.kind.word().into(),
        netns: topology.namespace(node),
        process: None,
        ready: None,
    });
    LabState {
        name: topology.name.clone(),
        file: String::new(),
        phase: Phase::Stopping,
        nodes: nodes.collect(),
    }
}

/// Takes down everything that a state file names. The caller holds the lock.
///
/// # Errors
/// The parts that could not be taken down; the state file stays, so that the command can be repeated.
pub fn clear(state: &LabState) -> Result<Cleared> {
    let mut cleared = Cleared::default();
    let mut problems = Vec::new();
    let mut known: Vec<ProcessId> = state.nodes.iter().filter_map(|node| node.process).collect();
    let namespaces: Vec<String> = state.nodes.iter().map(|node| node.netns.clone()).collect();
    let spared = ancestors();
    let mut find = || {
        let found = netns::processes(&namespaces).into_iter().filter_map(ProcessId::of);
        known.extend(found);
        known.retain(|process| process.alive() && !spared.contains(&process.pid));
        known.sort_by_key(|process| (process.pid, process.started_ticks));
        known.dedup();
        known.clone()
    };
    if LabState::load(&state.name).is_ok_and(|found| found.is_some()) {
        LabState { phase: Phase::Stopping, ..state.clone() }.save()?;
    }
    // Twice, because a process may start a child while the first list is made.
    for _ in 0..2 {
        let processes = find();
        cleared.processes += processes.len();
        end(&processes, &mut problems);
    }
    for node in state.nodes.iter().filter(|node| node.is_switch()) {
        match detach(node) {
            Ok(done) => cleared.switches += usize::from(done),
            Err(error) => problems.push(format!("{}: {error:#}", node.name)),
        }
    }
    let there: Vec<&String> = namespaces.iter().filter(|name| netns::path(name).exists()).collect();
    let delete: Vec<String> = there.iter().map(|name| format!("netns delete {name}")).collect();
    if let Err(error) = netns::batch(Place::Here, &delete, true) {
        problems.push(format!("{error:#}"));
    }
    cleared.namespaces = there.iter().filter(|name| !netns::path(name).exists()).count();
    if !problems.is_empty() {
        bail!("not all of lab {} could be taken down:\n  {}", state.name, problems.join("\n  "));
    }
    for node in state.nodes.iter().filter(|node| node.is_switch()) {
        for folder in [state::instance(&node.netns), state::kept(&node.netns)] {
            state::remove(fs::remove_dir_all(&folder))
                .with_context(|| format!("can't remove {}", folder.display()))?;
        }
    }
    for node in &state.nodes {
        crate::frr::forget(&node.netns)?;
    }
    // This fails while other instances use the directory.
    let _ = fs::remove_dir(state::KEPT);
    LabState::forget(&state.name)?;
    Ok(cleared)
}

/// Asks processes to end, and ends those that do not.
fn end(processes: &[ProcessId], problems: &mut Vec<String>) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for process in processes.iter().filter(|process| process.alive()) {
            // The process may end by itself between the check and the signal.
            let _ = kill(Pid::from_raw(process.pid), signal);
        }
        let deadline = Instant::now() + ENDS_WITHIN;
        while processes.iter().any(|process| process.alive()) && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    for process in processes {
        // Children of this process have to be reaped; for other processes this fails with ECHILD.
        let _ = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
        if process.alive() {
            problems.push(format!("process {} does not end", process.pid));
        }
    }
}

/// Removes a switch's plane, pins and netdevs. Returns false if the switch was never started.
fn detach(node: &NodeState) -> Result<bool> {
    if !state::instance(&node.netns).exists() {
        return Ok(false);
    }
    // Run `detach` in the node's namespace or in an empty one, never in that of this process, where a port's name may
    // belong to another netdev.
    let here = netns::path(&node.netns).exists();
    let place = if here { Place::Named(&node.netns) } else { Place::Nowhere };
    let program = program()?;
    let output = netns::within(place, || {
        Command::new(&program)
            .args(["detach", "--instance", &node.netns])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("can't run {}", program.display()))
    })?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!("`lanyard detach --instance {}` failed: {}", node.netns, printed.trim());
    }
    Ok(true)
}

/// This process and its ancestors, which `down` must not end when it is run from inside the lab.
fn ancestors() -> HashSet<i32> {
    let mut pids = HashSet::new();
    let mut pid = nix::unistd::getpid().as_raw();
    while pid > 0 && pids.insert(pid) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1));
        pid = parent.and_then(|parent| parent.parse().ok()).unwrap_or(0);
    }
    pids
}
