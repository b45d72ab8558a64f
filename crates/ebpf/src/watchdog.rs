//! The watchdogs: starting them, and processing their expiry (`bpf/watchdog.h`). The watchdog of spanning tree blocks
//! ports; that of leases makes frames for veth ports, and frames from NICs that may parse tags, take TC instead of XDP; that
//! of snooping ends the limits of groups; that of routing leaves routed packets to the kernel.
//!
//! Invariant: from the moment the watchdog of spanning tree expires until the expiry has been acknowledged, no applied
//! state lets a watched port forward. Afterwards the states contain the watched ports as discarding. [`crate::pairs`]
//! contains the other half.

use crate::abi::{self, Port, Rif, Watchdog, WatchdogCall};
use crate::error::{Result, system};
use crate::events::Events;
use crate::pairs::Pairs;
use crate::tables::{Tables, run_call};
use lanyard_pipeline::state::StpState;
use lanyard_plane::PlaneState;
use lanyard_types::{PortId, RifId};
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// How often a timer is created again after the kernel had no memory for it. The kernel does not wait for memory there
/// (`bpf_timer_init`), so that the first attempt may fail while plenty can be freed.
const CREATE_TRIES: u32 = 6;

/// Restarts the timer of the watchdog `kind` (`enum ly_watchdog_kind`), or stops it.
pub(crate) fn set(program: impl AsFd, kind: u16, after: Option<Duration>) -> Result<()> {
    let doing = || {
        let name = match kind {
            abi::WATCHDOG_TREES => "spanning-tree",
            abi::WATCHDOG_SNOOPING => "snooping",
            abi::WATCHDOG_ROUTING => "routing",
            _ => "lease",
        };
        match after {
            Some(after) => format!("setting the {name} watchdog to {} ms", after.as_millis()),
            None => format!("stopping the {name} watchdog"),
        }
    };
    let after_ns = after.map_or(0, |after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX).max(1));
    let mut tries = 0;
    loop {
        let mut call = WatchdogCall { after_ns, kind: kind.into(), ..WatchdogCall::default() };
        run_call(&program, &mut call).map_err(|cause| system(doing(), cause))?;
        tries += 1;
        match -call.result {
            0 => return Ok(()),
            // 1, 2, 4, 8 and 16 ms.
            libc::ENOMEM if tries < CREATE_TRIES => {
                std::thread::sleep(Duration::from_millis(1 << (tries - 1)))
            }
            errno => return Err(system(doing(), std::io::Error::from_raw_os_error(errno))),
        }
    }
}

/// Returns true once after the watchdog of spanning tree has expired; `state` then contains the blocked pairs.
pub(crate) fn take_expired(pairs: &Pairs, events: &mut Events, state: &mut PlaneState) -> bool {
    if !pairs.expired() {
        return false;
    }
    block_again(pairs, state);
    events.discard_bpdus();
    pairs.note_expiry();
    true
}

/// The state that is applied for `next`, after `state`, when `next` may not set the states of ports in trees: either
/// protocols set these, or an expiry of the watchdog has not been acknowledged. `None` when `next` is applied unchanged.
pub(crate) fn with_own_trees(pairs: &Pairs, state: &PlaneState, next: &PlaneState) -> Option<PlaneState> {
    if pairs.lock().claimed() {
        let none = next.stp.is_empty() && next.watched.is_empty() && next.channels.is_empty();
        let without = || PlaneState {
            stp: Default::default(),
            watched: Default::default(),
            channels: Default::default(),
            ..next.clone()
        };
        return (!none).then(without);
    }
    if !pairs.expired() {
        return None;
    }
    let mut blocked = next.clone();
    // The pairs watched when the watchdog expired are blocked, and so are those to be watched now.
    let ports = &next.ports;
    let watched = state.watched.union(&next.watched).filter(|(_, port)| ports.contains_key(port));
    blocked.stp.extend(watched.map(|pair| (*pair, StpState::Discarding)));
    Some(blocked)
}

/// Blocks the pairs that were opened while the watchdog expired, and records them in `state`.
pub(crate) fn block_again(pairs: &Pairs, state: &mut PlaneState) {
    if !pairs.expired() {
        return;
    }
    // Releasing the lock writes the blocked pairs.
    let trees = pairs.lock().trees();
    if !pairs.lock().claimed() {
        state.stp = trees.stp;
    }
}

/// Ends the lease in a port's row that has just been written if leases have ended.
pub(crate) fn end_lease_again(tables: &Tables, id: PortId) {
    let row = |offset| tables.ports.u32(id.index(), offset);
    if !leases_ended(tables) {
        return;
    }
    let flags = row(offset_of!(Port, flags));
    if flags.load(SeqCst) & abi::PORT_LEASED != 0 {
        flags.fetch_and(!(abi::PORT_XDP_TX | abi::PORT_XDP_SG), SeqCst);
    }
    if flags.load(SeqCst) & abi::PORT_LEASED_TAGS != 0 {
        flags.fetch_or(abi::PORT_XDP_ENDED, SeqCst);
    }
}

/// True from when leases end until they begin again.
pub(crate) fn leases_ended(tables: &Tables) -> bool {
    lease_phase(tables).load(SeqCst) != abi::WATCHDOG_WAITS
}

/// The phase of the watchdog of leases.
pub(crate) fn lease_phase(tables: &Tables) -> &AtomicU64 {
    tables.watchdog.u64(abi::WATCHDOG_LEASES.into(), offset_of!(Watchdog, phase))
}

/// The phase of the watchdog of snooping.
pub(crate) fn snooping_phase(tables: &Tables) -> &AtomicU64 {
    tables.watchdog.u64(abi::WATCHDOG_SNOOPING.into(), offset_of!(Watchdog, phase))
}

/// Ends routing in the row of an interface that has just been written, if the watchdog of routing has expired and the
/// interface depends on it.
pub(crate) fn end_routing_again(tables: &Tables, id: RifId) {
    if !routing_ended(tables) {
        return;
    }
    // The flags are the last byte of this word (`WATCHDOG_FAMILIES`).
    let word = tables.rifs.u32(id.index(), offset_of!(Rif, up));
    if word.load(SeqCst).to_le_bytes()[3] & abi::RIF_CONFIRMED != 0 {
        word.fetch_and(!u32::from_le_bytes([0, 0, 0, abi::RIF_IPV4 | abi::RIF_IPV6]), SeqCst);
    }
}

/// True from when the watchdog of routing expires until routing is confirmed.
pub(crate) fn routing_ended(tables: &Tables) -> bool {
    routing_phase(tables).load(SeqCst) != abi::WATCHDOG_WAITS
}

/// The phase of the watchdog of routing.
pub(crate) fn routing_phase(tables: &Tables) -> &AtomicU64 {
    tables.watchdog.u64(abi::WATCHDOG_ROUTING.into(), offset_of!(Watchdog, phase))
}
