//! The watchdog of spanning tree: starting it, and taking note of what it has done (`bpf/watchdog.h`).
//!
//! Invariant: from the moment the watchdog expires until the expiry has been taken note of, no
//! state that is applied lets a watched port forward; after it, the states name the watched ports
//! as discarding. [`crate::pairs`] holds the other half.

use crate::abi::FdbCall;
use crate::error::{Result, system};
use crate::plane::EbpfPlane;
use crate::tables::run_call;
use lanyard_pipeline::state::StpState;
use lanyard_plane::PlaneState;
use std::os::fd::AsFd;
use std::time::Duration;

/// Starts the kernel's timer anew, or stops it.
pub(crate) fn set(program: impl AsFd, after: Option<Duration>) -> Result<()> {
    let doing = || match after {
        Some(after) => format!("setting the spanning-tree watchdog to {} ms", after.as_millis()),
        None => "stopping the spanning-tree watchdog".to_owned(),
    };
    let nanoseconds = after.map_or(0, |after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX).max(1));
    let mut call = FdbCall { value: nanoseconds, ..FdbCall::default() };
    run_call(program, &mut call).map_err(|cause| system(doing(), cause))?;
    match call.result {
        0 => Ok(()),
        errno => Err(system(doing(), std::io::Error::from_raw_os_error(-errno))),
    }
}

impl EbpfPlane {
    /// True once after the watchdog has expired: `state` then says what it has blocked.
    pub(crate) fn take_expired(&mut self) -> bool {
        if !self.pairs.expired() {
            return false;
        }
        self.block_again();
        self.events.discard_bpdus();
        self.pairs.note_expiry();
        true
    }

    /// What `next` comes to when the states of ports in trees are not its own to set: they are
    /// protocols', or an expiry of the watchdog has not been taken note of. `None` when it is taken
    /// as it is.
    pub(crate) fn with_own_trees(&self, next: &PlaneState) -> Option<PlaneState> {
        if self.pairs.lock().claimed() {
            let none = next.stp.is_empty() && next.watched.is_empty();
            let without =
                || PlaneState { stp: Default::default(), watched: Default::default(), ..next.clone() };
            return (!none).then(without);
        }
        if !self.pairs.expired() {
            return None;
        }
        let mut blocked = next.clone();
        // What was watched when the watchdog expired is blocked as well as what is to be watched now.
        let ports = &next.ports;
        let pairs = self.state.watched.union(&next.watched).filter(|(_, port)| ports.contains_key(port));
        blocked.stp.extend(pairs.map(|pair| (*pair, StpState::Discarding)));
        Some(blocked)
    }

    /// Blocks what has been opened while the watchdog expired, and notes it.
    pub(crate) fn block_again(&mut self) {
        if !self.pairs.expired() {
            return;
        }
        // The end of the lock writes what is blocked.
        let trees = self.pairs.lock().trees();
        if !self.pairs.lock().claimed() {
            self.state.stp = trees.stp;
        }
    }
}
