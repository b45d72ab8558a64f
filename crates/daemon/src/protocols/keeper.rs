//! Writes the snapshots of protocols that a restart needs to files, each on a thread of its own.
//!
//! The protocol thread does not wait for the file. For spanning tree it stores a number in the plane (`ProtocolPlane::mark`)
//! before it sets the states and sends the frames that follow from a change, and the file contains the number
//! of the change that it describes. A daemon that finds the same number in both continues where the last one
//! stopped. Otherwise it begins as if all links had just come up, which is safe whatever the last daemon did
//! after the file was written. Link aggregation needs no number: its partners correct what is out of date.
//!
//! Invariant: at most one snapshot waits, the latest. The file is replaced as a whole.

use crate::files;
use crate::paths::Paths;
use lanyard_stp::Snapshot;
use lanyard_types::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longest snapshot read, in bytes.
const MAX_SNAPSHOT: usize = 64 << 20;
/// How long the end of the daemon waits for the disk.
const END_WAIT: Duration = Duration::from_millis(500);

/// The path of spanning tree's snapshot.
pub(crate) fn snapshot_path(paths: &Paths) -> PathBuf {
    paths.run.join("spanning-tree.json")
}

/// The content of spanning tree's file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The number of the change that the snapshot describes.
    pub(crate) mark: u64,
    pub(crate) trees: Snapshot,
}

/// The path of link aggregation's snapshot.
pub(crate) fn aggregation_path(paths: &Paths) -> PathBuf {
    paths.run.join("lacp.json")
}

/// The saved state of the last run's link aggregation, if it can be read.
pub(crate) fn found_aggregation(paths: &Paths) -> Option<lanyard_lacp::Snapshot> {
    let text = files::read_text(&aggregation_path(paths), MAX_SNAPSHOT).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes link aggregation's snapshots.
pub(crate) fn of_aggregation(paths: &Paths) -> Keeper<lanyard_lacp::Snapshot> {
    Keeper { path: aggregation_path(paths), replace: files::replace_quickly, writer: None }
}

/// A lease of DHCP snooping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptLease {
    pub(crate) interface: String,
    pub(crate) vlan: VlanId,
    pub(crate) mac: MacAddr,
    pub(crate) address: Ipv4Addr,
    /// When it ends, in milliseconds since the machine was started; `None`: never.
    pub(crate) expires_ms: Option<u64>,
}

/// A binding of ND inspection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptNeighbour {
    pub(crate) interface: String,
    pub(crate) vlan: VlanId,
    pub(crate) mac: MacAddr,
    pub(crate) address: Ipv6Addr,
}

/// A moment on both clocks: milliseconds since the machine was started, and Unix time in milliseconds, by which a later start of
/// the machine converts the former.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// The kernel's identifier of this start of the machine.
    pub(crate) boot: String,
    pub(crate) boot_ms: u64,
    pub(crate) unix_ms: u64,
}

/// The content of the files of leases, and of what ND inspection has learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptLeases {
    /// When they were written.
    pub(crate) at: Moment,
    pub(crate) leases: Vec<KeptLease>,
    /// The bindings have no end: ND inspection asks the hosts whether they still have the addresses.
    #[serde(default)]
    pub(crate) neighbours: Vec<KeptNeighbour>,
}

impl KeptLeases {
    /// Converts the leases to the clock of `now`, without those that have ended while the machine was off. If the time of day is
    /// earlier than when the file was written, no time counts as passed.
    fn at(mut self, now: &Moment) -> Self {
        if self.at.boot != now.boot {
            let passed_ms = now.unix_ms.saturating_sub(self.at.unix_ms);
            let left_ms = |at_ms: u64| at_ms.saturating_sub(self.at.boot_ms).saturating_sub(passed_ms);
            self.leases.retain(|lease| lease.expires_ms.is_none_or(|at_ms| left_ms(at_ms) > 0));
            for lease in &mut self.leases {
                lease.expires_ms = lease.expires_ms.map(|at_ms| now.boot_ms.saturating_add(left_ms(at_ms)));
            }
        }
        self
    }
}

/// The name of the files of leases.
const LEASES: &str = "dhcp-snooping.json";

/// The leases and neighbours of the last run, if they can be read: from the run directory, or, after a start of the machine, from
/// the state directory.
pub(crate) fn found_leases(paths: &Paths, now: &Moment) -> Option<KeptLeases> {
    let read = |directory: &Path| -> Option<KeptLeases> {
        serde_json::from_str(&files::read_text(&directory.join(LEASES), MAX_SNAPSHOT).ok()?).ok()
    };
    let latest = read(&paths.run).filter(|kept| kept.at.boot == now.boot);
    latest.or_else(|| read(&paths.state)).map(|kept| kept.at(now))
}

/// Writes the leases for a restart of the daemon.
pub(crate) fn of_leases(paths: &Paths) -> Keeper<KeptLeases> {
    Keeper { path: paths.run.join(LEASES), replace: files::replace_quickly, writer: None }
}

/// Writes the leases for a start of the machine.
pub(crate) fn of_lasting_leases(paths: &Paths) -> Keeper<KeptLeases> {
    Keeper { path: paths.state.join(LEASES), replace: files::replace, writer: None }
}

/// The mark and the trees that the last run's spanning tree has saved, if they can be read.
pub(crate) fn found(paths: &Paths) -> Option<(u64, Snapshot)> {
    let text = files::read_text(&snapshot_path(paths), MAX_SNAPSHOT).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    Some((kept.mark, kept.trees))
}

/// Replaces a file as a whole.
type Replace = fn(&Path, &[u8]) -> io::Result<()>;

/// Writes snapshots.
pub(crate) struct Keeper<T> {
    path: PathBuf,
    replace: Replace,
    writer: Option<Writer<T>>,
}

struct Writer<T> {
    shared: Arc<(Mutex<Slot<T>>, Condvar)>,
    /// Disconnected once everything has been written.
    ended: Receiver<()>,
}

struct Slot<T> {
    /// The snapshot to be written; `Some(None)` removes the file, `None` means that there is nothing to do.
    latest: Option<Option<T>>,
    error: Option<String>,
    end: bool,
}

impl Keeper<Kept> {
    /// Writes spanning tree's snapshots, on the thread of the caller until [`Keeper::start`].
    pub(crate) fn new(paths: &Paths) -> Self {
        Self { path: snapshot_path(paths), replace: files::replace_quickly, writer: None }
    }
}

impl<T: Serialize + Send + 'static> Keeper<T> {
    /// Makes a thread write from now on. If no thread can be started, the caller continues to write.
    pub(crate) fn start(&mut self) {
        let shared = Arc::new((Mutex::new(Slot { latest: None, error: None, end: false }), Condvar::new()));
        let (end, ended) = sync_channel::<()>(0);
        let (slot, path, replace) = (shared.clone(), self.path.clone(), self.replace);
        let thread = std::thread::Builder::new().name("lanyard-keeper".into()).spawn(move || {
            run(&slot, &path, replace);
            drop(end);
        });
        self.writer = thread.ok().map(|_| Writer { shared, ended });
    }
    /// Queues a snapshot to be written, or the file to be removed; returns why an earlier write failed.
    pub(crate) fn put(&mut self, wanted: Option<T>) -> Option<String> {
        let Some(Writer { shared, .. }) = &self.writer else {
            return write(&self.path, wanted.as_ref(), self.replace).err().map(|error| error.to_string());
        };
        // The thread holds the lock only to take the snapshot, not while it writes.
        let mut slot = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.latest = Some(wanted);
        let error = slot.error.take();
        drop(slot);
        shared.1.notify_one();
        error
    }
}

impl<T> Drop for Writer<T> {
    /// Waits for the last snapshot, for a limited time.
    fn drop(&mut self) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).end = true;
        self.shared.1.notify_one();
        let _ = self.ended.recv_timeout(END_WAIT);
    }
}

fn run<T: Serialize>(shared: &(Mutex<Slot<T>>, Condvar), path: &Path, replace: Replace) {
    loop {
        let mut slot = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = loop {
            match slot.latest.take() {
                Some(latest) => break latest,
                None if slot.end => return,
                None => slot = shared.1.wait(slot).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(slot);
        if let Err(error) = write(path, latest.as_ref(), replace) {
            let text = format!("{}: {error}", path.display());
            shared.0.lock().unwrap_or_else(PoisonError::into_inner).error = Some(text);
        }
    }
}

fn write<T: Serialize>(path: &Path, wanted: Option<&T>, replace: Replace) -> io::Result<()> {
    match wanted {
        Some(snapshot) => replace(path, &serde_json::to_vec(snapshot)?),
        None => match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_end_while_the_machine_is_off() {
        let moment = |boot: &str, boot_ms, unix_ms| Moment { boot: boot.into(), boot_ms, unix_ms };
        let lease = |last: u8, expires_ms| KeptLease {
            interface: "eth1".into(),
            vlan: VlanId::DEFAULT,
            mac: MacAddr([2, 0, 0, 0, 0, last]),
            address: [10, 0, 0, last].into(),
            expires_ms,
        };
        let leases = vec![lease(1, Some(1_100)), lease(2, Some(1_101)), lease(3, None), lease(4, Some(500))];
        let kept = KeptLeases { at: moment("a", 1_000, 50_000), leases, neighbours: Vec::new() };
        assert_eq!(kept.clone().at(&moment("a", 9_000, 0)).leases, kept.leases, "the same clock");
        let want = [lease(2, Some(8)), lease(3, None)];
        assert_eq!(kept.clone().at(&moment("b", 7, 50_100)).leases, want, "100 ms later");
        let want = [lease(1, Some(107)), lease(2, Some(108)), lease(3, None)];
        assert_eq!(kept.clone().at(&moment("b", 7, 0)).leases, want, "a machine without a clock");
        assert_eq!(kept.at(&moment("b", u64::MAX, 50_000)).leases[0], lease(1, Some(u64::MAX)));
    }
}
