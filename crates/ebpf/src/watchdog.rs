//! The watchdog of spanning tree: starting it, and taking note of what it has done (`bpf/watchdog.h`).
//!
//! Invariant: from the moment the watchdog expires until [`EbpfPlane::take_expired`] has been called, no state that is
//! applied lets a watched port forward; after it, `state` names the watched ports as discarding.

use crate::abi::{self, FdbCall, Watchdog};
use crate::error::{Result, system};
use crate::plane::EbpfPlane;
use crate::tables::run_call;
use lanyard_pipeline::state::StpState;
use lanyard_plane::PlaneState;
use lanyard_types::{InstanceId, PortId};
use std::mem::offset_of;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

impl EbpfPlane {
    /// Starts the kernel's timer anew, or stops it.
    pub(crate) fn set_watchdog(&mut self, after: Option<Duration>) -> Result<()> {
        let doing = || match after {
            Some(after) => format!("setting the spanning-tree watchdog to {} ms", after.as_millis()),
            None => "stopping the spanning-tree watchdog".to_owned(),
        };
        let nanoseconds = after.map_or(0, |after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX).max(1));
        let mut call = FdbCall { value: nanoseconds, ..FdbCall::default() };
        run_call(&self.programs.watchdog_set, &mut call).map_err(|cause| system(doing(), cause))?;
        match call.result {
            0 => Ok(()),
            errno => Err(system(doing(), std::io::Error::from_raw_os_error(-errno))),
        }
    }

    /// True once after the watchdog has expired: `state` then says what it has blocked.
    pub(crate) fn take_expired(&mut self) -> bool {
        if !self.expired() {
            return false;
        }
        self.block_again();
        self.events.discard_bpdus();
        self.phase().store(abi::WATCHDOG_WAITS, SeqCst);
        true
    }

    /// What becomes of `next` while an expiry has not been taken note of; `None` when there is none.
    pub(crate) fn blocked_by_watchdog(&self, next: &PlaneState) -> Option<PlaneState> {
        if !self.expired() {
            return None;
        }
        let mut blocked = next.clone();
        // What was watched when the watchdog expired is blocked as well as what is to be watched now.
        let ports = &next.ports;
        let pairs = self.state.watched.union(&next.watched).filter(|(_, port)| ports.contains_key(port));
        blocked.stp.extend(pairs.map(|pair| (*pair, StpState::Discarding)));
        Some(blocked)
    }

    /// Blocks what has been opened while the watchdog expired.
    pub(crate) fn block_again(&mut self) {
        if !self.expired() {
            return;
        }
        let watched: Vec<(InstanceId, PortId)> = self.state.watched.iter().copied().collect();
        for (instance, port) in watched {
            self.state.stp.insert((instance, port), StpState::Discarding);
            self.write_tree_port(instance, port);
        }
    }

    fn phase(&self) -> &std::sync::atomic::AtomicU64 {
        self.tables.watchdog.u64(0, offset_of!(Watchdog, phase))
    }

    /// Has the watchdog expired? Blocking takes it a millisecond at most; that is waited for.
    fn expired(&self) -> bool {
        loop {
            match self.phase().load(SeqCst) {
                abi::WATCHDOG_WAITS => return false,
                abi::WATCHDOG_BLOCKS => thread::yield_now(),
                _ => return true,
            }
        }
    }
}
