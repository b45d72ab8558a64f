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
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longest snapshot read, in bytes.
const MAX_SNAPSHOT: usize = 64 << 20;
/// How long the end of the daemon waits for the disk.
const END_WAIT: Duration = Duration::from_millis(500);

/// The path of the snapshot.
pub(crate) fn snapshot_path(paths: &Paths) -> PathBuf {
    paths.run.join("spanning-tree.json")
}

/// The content of spanning tree's file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The change that it describes.
    pub(crate) mark: u64,
    pub(crate) trees: Snapshot,
}

/// The path of link aggregation's snapshot.
pub(crate) fn aggregation_path(paths: &Paths) -> PathBuf {
    paths.run.join("lacp.json")
}

/// What the last run's link aggregation has saved, if it can be read.
pub(crate) fn found_aggregation(paths: &Paths) -> Option<lanyard_lacp::Snapshot> {
    let text = files::read_text(&aggregation_path(paths), MAX_SNAPSHOT).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes link aggregation's snapshots.
pub(crate) fn of_aggregation(paths: &Paths) -> Keeper<lanyard_lacp::Snapshot> {
    Keeper { path: aggregation_path(paths), writer: None }
}

/// A lease of DHCP snooping. Times are of the machine's clock since its start, because the file does not outlive that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptLease {
    pub(crate) interface: String,
    pub(crate) vlan: VlanId,
    pub(crate) mac: MacAddr,
    pub(crate) address: Ipv4Addr,
    pub(crate) expires_ms: Option<u64>,
}

/// The path of the leases that DHCP snooping knows.
pub(crate) fn leases_path(paths: &Paths) -> PathBuf {
    paths.run.join("dhcp-snooping.json")
}

/// The leases of the last run, if they can be read.
pub(crate) fn found_leases(paths: &Paths) -> Option<Vec<KeptLease>> {
    let text = files::read_text(&leases_path(paths), MAX_SNAPSHOT).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes the leases.
pub(crate) fn of_leases(paths: &Paths) -> Keeper<Vec<KeptLease>> {
    Keeper { path: leases_path(paths), writer: None }
}

/// The mark and the trees that the last run's spanning tree has saved, if they can be read.
pub(crate) fn found(paths: &Paths) -> Option<(u64, Snapshot)> {
    let text = files::read_text(&snapshot_path(paths), MAX_SNAPSHOT).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    Some((kept.mark, kept.trees))
}

/// Writes snapshots.
pub(crate) struct Keeper<T> {
    path: PathBuf,
    writer: Option<Writer<T>>,
}

struct Writer<T> {
    shared: Arc<(Mutex<Slot<T>>, Condvar)>,
    /// Disconnected once everything has been written.
    ended: Receiver<()>,
}

struct Slot<T> {
    /// The snapshot to be written; `None` inside removes the file.
    latest: Option<Option<T>>,
    error: Option<String>,
    end: bool,
}

impl Keeper<Kept> {
    /// Writes spanning tree's snapshots, on the thread of the caller until [`Keeper::start`].
    pub(crate) fn new(paths: &Paths) -> Self {
        Self { path: snapshot_path(paths), writer: None }
    }
}

impl<T: Serialize + Send + 'static> Keeper<T> {
    /// Makes a thread write from now on. If no thread can be started, the caller continues to write.
    pub(crate) fn start(&mut self) {
        let shared = Arc::new((Mutex::new(Slot { latest: None, error: None, end: false }), Condvar::new()));
        let (end, ended) = sync_channel::<()>(0);
        let (slot, path) = (shared.clone(), self.path.clone());
        let thread = std::thread::Builder::new().name("lanyard-keeper".into()).spawn(move || {
            run(&slot, &path);
            drop(end);
        });
        self.writer = thread.ok().map(|_| Writer { shared, ended });
    }
    /// Queues a snapshot to be written, or the file to be removed; returns why an earlier write failed.
    pub(crate) fn put(&mut self, wanted: Option<T>) -> Option<String> {
        let Some(Writer { shared, .. }) = &self.writer else {
            return write(&self.path, wanted.as_ref()).err().map(|error| error.to_string());
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

fn run<T: Serialize>(shared: &(Mutex<Slot<T>>, Condvar), path: &Path) {
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
        if let Err(error) = write(path, latest.as_ref()) {
            let text = format!("{}: {error}", path.display());
            shared.0.lock().unwrap_or_else(PoisonError::into_inner).error = Some(text);
        }
    }
}

fn write<T: Serialize>(path: &Path, wanted: Option<&T>) -> io::Result<()> {
    match wanted {
        Some(snapshot) => files::replace_quickly(path, &serde_json::to_vec(snapshot)?),
        None => match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}
