//! The plane's reports, from those of the chip: capabilities, counters, names of tables.

use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::message::PortCounts;
use lanyard_plane::{Capabilities, MAX_TRACE_FRAME, PlaneError, PortCounters};
use lanyard_types::{DropReason, FrameCount, MAX_PORTS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The capabilities of a plane on this platform; `fdb` is the size of its table of addresses, and `watchdog` is true if the chip
/// has a watchdog of spanning tree.
pub(crate) fn capabilities(platform: &Platform, fdb: u32, watchdog: bool) -> Capabilities {
    let mut notes = vec![
        format!("the chip is {} ({} ports)", platform.name, platform.ports().count()),
        "ports are those of the front panel; they have no choice of hook or delivery".into(),
        "the chip counts no frames of VLANs".into(),
        "the chip reports no addresses for rules of access lists with log, only how often they match".into(),
    ];
    if !watchdog {
        notes.push(
            "the chip has no watchdog of spanning tree: ports towards other bridges go on forwarding when the daemon has ended"
                .into(),
        );
    }
    Capabilities {
        name: "asic",
        survives_daemon: true,
        hooks: false,
        ports: MAX_PORTS - 1,
        fdb,
        multicast: true,
        policies: false,
        acl_notes: false,
        queues: false,
        routing: true,
        notes,
    }
}

/// A port's counters since they were set to zero.
pub(crate) fn counters(now: &PortCounts, was: &PortCounts) -> PortCounters {
    let count = |now: FrameCount, was: FrameCount| FrameCount {
        frames: now.frames.saturating_sub(was.frames),
        bytes: now.bytes.saturating_sub(was.bytes),
    };
    let mut counters = PortCounters {
        rx: count(now.rx, was.rx),
        tx: count(now.tx, was.tx),
        forwarded: now.forwarded.saturating_sub(was.forwarded),
        trapped: now.trapped.saturating_sub(was.trapped),
        tx_dropped: now.tx_dropped.saturating_sub(was.tx_dropped),
        ..PortCounters::default()
    };
    let before: BTreeMap<u8, u64> = was.dropped.iter().copied().collect();
    for (reason, frames) in &now.dropped {
        if let Some(slot) = counters.dropped.get_mut(usize::from(*reason)) {
            *slot = frames.saturating_sub(before.get(reason).copied().unwrap_or(0));
        }
    }
    counters
}

/// Refuses a frame that is too long.
pub(crate) fn check_len(frame: &[u8]) -> Result<(), PlaneError> {
    match frame.len() {
        len if len > MAX_TRACE_FRAME => {
            Err(PlaneError::Invalid(format!("a frame of {len} bytes; {MAX_TRACE_FRAME} is the most")))
        }
        _ => Ok(()),
    }
}

/// A copy of a table's name that lives as long as the process. A platform has few names, and each is copied once.
pub(crate) fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}

/// The SDK encodes a drop reason in one byte.
const _: () = assert!(DropReason::SLOTS <= 256);
