//! The record of the labs that are up: one file for each lab, /run/lanyard/labs/NAME.json.
//!
//! Invariants: the file names everything that a lab may create before anything is created, so that
//! `lab down` can remove the remains of a crash. A process belongs to the lab only while its start
//! time is the recorded one.

use crate::netns;
use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The directories of instances; that of a switch is `LAB-NODE`.
pub const RUN: &str = "/run/lanyard";

/// The directories that instances keep across a reboot.
pub const KEPT: &str = "/var/lib/lanyard";

/// A lab, as recorded in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabState {
    /// The lab's name.
    pub name: String,
    /// The topology file, absolute; empty for the built-in demo.
    pub file: String,
    /// The state of its construction.
    pub phase: Phase,
    /// Its nodes, in the order of the topology.
    pub nodes: Vec<NodeState>,
}

/// The state of a lab's construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Being built, or its construction was interrupted.
    Starting,
    /// Built.
    Up,
    /// Being taken down, or its removal was interrupted.
    Stopping,
}

/// A node, as recorded in the lab's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeState {
    /// The node's name.
    pub name: String,
    /// `lanyard` or `host`.
    pub kind: String,
    /// Its namespace; also the instance of a switch.
    pub netns: String,
    /// The daemon of a switch, once started.
    pub process: Option<ProcessId>,
    /// The end of the daemon's ready line: `4 ports, plane ebpf`.
    pub ready: Option<String>,
}

impl NodeState {
    /// True for a switch.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.kind == "lanyard"
    }

    /// The node's condition: `gone` without its namespace; else `up` for a host, and `not started`, `starting`, `ready` or `dead`
    /// for a switch.
    #[must_use]
    pub fn condition(&self) -> &'static str {
        match (netns::path(&self.netns).exists(), self.is_switch(), &self.process) {
            (false, _, _) => "gone",
            (true, false, _) => "up",
            (true, true, None) => "not started",
            (true, true, Some(process)) if !process.alive() => "dead",
            (true, true, Some(_)) if self.ready.is_some() => "ready",
            (true, true, Some(_)) => "starting",
        }
    }
}

/// A process, identified so that it cannot be confused with a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its process number.
    pub pid: i32,
    /// When it was started, in the kernel's clock ticks since boot.
    pub started_ticks: u64,
}

impl ProcessId {
    /// The process with this number, if it exists and has not ended.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain any text; after the last `)` follows `state ppid
        // ...`.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        // proc(5): starttime is field 22; state was field 3.
        let started_ticks = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, started_ticks })
    }

    /// True while it runs.
    #[must_use]
    pub fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// The directory of the labs' files.
#[must_use]
pub fn labs() -> PathBuf {
    Path::new(RUN).join("labs")
}

/// The run directory of a switch instance: its socket and state, and `log` and `lab.cfg` from the
/// lab.
#[must_use]
pub fn instance(netns: &str) -> PathBuf {
    Path::new(RUN).join(netns)
}

/// The state directory of a switch instance, which would survive a reboot. The lab removes it.
#[must_use]
pub fn kept(netns: &str) -> PathBuf {
    Path::new(KEPT).join(netns)
}

/// Held while a lab is built or taken down, so that only one process does so at a time.
pub struct Lock(#[allow(dead_code, reason = "held, not read")] Flock<File>);

impl Drop for Lock {
    /// Remove the directories with the last lab; this fails while other labs or instances use them.
    fn drop(&mut self) {
        let _ = fs::remove_dir(labs());
        let _ = fs::remove_dir(RUN);
    }
}

/// Takes the lock.
///
/// # Errors
/// Another process holds it, or the directory cannot be created.
pub fn lock() -> Result<Lock> {
    let folder = labs();
    fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
    let file = File::open(&folder).with_context(|| format!("can't open {}", folder.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Lock(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
            bail!("another `lanyard lab up` or `down` is at work; wait for it to end")
        }
        Err((_, errno)) => Err(errno).with_context(|| format!("can't lock {}", folder.display())),
    }
}

impl LabState {
    /// Reads the record of the lab of this name; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is not a record of a lab.
    pub fn load(name: &str) -> Result<Option<Self>> {
        let path = labs().join(format!("{name}.json"));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("can't read {}", path.display())),
        };
        let state = serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
        Ok(Some(state))
    }

    /// All recorded labs by name, and the files that could not be read.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all() -> Result<(Vec<Self>, Vec<String>)> {
        let (mut labs_found, mut damaged) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(labs()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((labs_found, damaged)),
            Err(error) => return Err(error).with_context(|| format!("can't read {}", labs().display())),
        };
        for entry in entries.flatten() {
            let file = entry.file_name();
            let Some(name) = file.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
            match Self::load(name) {
                Ok(state) => labs_found.extend(state),
                Err(error) => damaged.push(format!("{error:#}")),
            }
        }
        labs_found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((labs_found, damaged))
    }

    /// Writes the file, completely or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self) -> Result<()> {
        let path = labs().join(format!("{}.json", self.name));
        let new = labs().join(format!(".{}.json.new", self.name));
        let write = || -> Result<()> {
            let mut file = File::create(&new)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            fs::rename(&new, &path)?;
            Ok(())
        };
        write().with_context(|| format!("can't write {}", path.display()))
    }

    /// Removes the record of the lab.
    ///
    /// # Errors
    /// Something could not be removed.
    pub fn forget(name: &str) -> Result<()> {
        remove(fs::remove_file(labs().join(format!(".{name}.json.new"))))?;
        remove(fs::remove_file(labs().join(format!("{name}.json"))))
            .with_context(|| format!("can't forget lab {name}"))?;
        Ok(())
    }
}

/// Turns "not found" into success when removing a file.
pub(crate) fn remove(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
