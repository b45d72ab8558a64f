//! The data that a restarted daemon needs and cannot read from the kernel, kept in a file beside the pins.
//!
//! Invariant: the file is replaced as a whole. It contains the identity of the pins it belongs to (salt and
//! generation), so a file of other pins is never used.

use crate::error::{Doing, Result};
use lanyard_plane::{PlaneState, PortCounters};
use lanyard_types::PortId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file's name in the instance's state directory.
const NAME: &str = "plane.json";

/// The file's content.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// The salt of the pins, which identifies them.
    pub salt: u64,
    /// The generation of the pins that have this state.
    pub generation: u64,
    /// The state.
    pub state: PlaneState,
    /// True if the states of ports in trees are not in `state` but only in the tables.
    #[serde(default)]
    pub trees_apart: bool,
    /// The values of each port's counters when they were last cleared.
    pub cleared: BTreeMap<PortId, Counts>,
    /// Offloads to restore, by ifindex.
    pub switched_off: BTreeMap<u32, Vec<String>>,
    /// Netdevs whose GRO was switched on; `false` if an administrator has switched it off since.
    #[serde(default)]
    pub gro: BTreeMap<u32, bool>,
    /// Netdevs whose VLAN tag parsing an administrator turned on after it was switched off for XDP.
    #[serde(default)]
    pub tags_kept: BTreeSet<u32>,
    /// Netdevs whose clsact qdisc the plane has created.
    pub made_qdisc: BTreeSet<u32>,
}

/// A port's counters as plain numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    rx_bytes: u64,
    tx_frames: u64,
    tx_bytes: u64,
    trapped: u64,
    forwarded: u64,
    tx_dropped: u64,
    dropped: Vec<u64>,
}

impl Counts {
    /// Converts the counters.
    pub(crate) fn of(counters: &PortCounters) -> Self {
        Self {
            rx_bytes: counters.rx.bytes,
            tx_frames: counters.tx.frames,
            tx_bytes: counters.tx.bytes,
            trapped: counters.trapped,
            forwarded: counters.forwarded,
            tx_dropped: counters.tx_dropped,
            dropped: counters.dropped.to_vec(),
        }
    }
    /// The counts since the counters were cleared. The number of received frames is computed as the sum of all
    /// outcomes, as everywhere, so the two agree even if a frame was being processed when the counters were cleared.
    pub(crate) fn since(&self, now: &PortCounters) -> PortCounters {
        let mut since = now.clone();
        for (count, base) in since.dropped.iter_mut().zip(&self.dropped) {
            *count = count.wrapping_sub(*base);
        }
        since.trapped = now.trapped.wrapping_sub(self.trapped);
        since.forwarded = now.forwarded.wrapping_sub(self.forwarded);
        since.tx_dropped = now.tx_dropped.wrapping_sub(self.tx_dropped);
        since.tx.frames = now.tx.frames.wrapping_sub(self.tx_frames);
        since.tx.bytes = now.tx.bytes.wrapping_sub(self.tx_bytes);
        since.rx.bytes = now.rx.bytes.wrapping_sub(self.rx_bytes);
        since.rx.frames = since
            .dropped
            .iter()
            .fold(since.trapped.wrapping_add(since.forwarded), |sum, n| sum.wrapping_add(*n));
        since
    }
}

/// The location of the file.
#[derive(Debug, Clone)]
pub(crate) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// The file in `dir`, which need not exist.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { path: dir.join(NAME) }
    }
    /// Reads it; `None` when it does not exist or cannot be parsed.
    pub(crate) fn read(&self) -> Option<Saved> {
        serde_json::from_slice(&fs::read(&self.path).ok()?).ok()
    }
    /// Writes the new file beside the old one; [`StateFile::commit`] replaces the old one by it.
    pub(crate) fn prepare(&self, saved: &Saved) -> Result<()> {
        let doing = || format!("writing {}", self.path.display());
        let text = serde_json::to_vec(saved).doing(doing)?;
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir).doing(doing)?;
        }
        fs::write(self.next(), text).doing(doing)
    }
    /// Puts the prepared file in place.
    pub(crate) fn commit(&self) -> Result<()> {
        fs::rename(self.next(), &self.path).doing(|| format!("writing {}", self.path.display()))
    }
    /// Removes it. A missing file is no error.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let _ = fs::remove_file(self.next());
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
    fn next(&self) -> PathBuf {
        self.path.with_extension("json.next")
    }
}
