//! Receives the frames at a port through a packet socket, for users who may not load the BPF program that
//! [`super::checker`] attaches.
//!
//! Read first: `lanyard_netdev::PacketRing`; `verdict` for the check of a frame. The kernel records when each frame
//! arrived, so it does not matter when the frame is read. A packet socket receives copies: the frames go on to the
//! stack as well. Invariant: frames for which the ring had no room are counted, so the tester's own loss is never taken
//! for the device's.

use super::abi::FlowAbi;
use super::verdict::Verdicts;
use crate::os::{Elsewhere, Netns, monotonic_ns};
use anyhow::{Context, Result};
use lanyard_netdev::{PacketRing, RingFrame, RingShape};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A ring of 8 MB, some 50,000 frames of 64 bytes. A frame waits for its block to fill for less than [`super::QUIET`].
/// Even if every block is handed over with a single frame, the ring fills in no less than 1.2 s, so another program may
/// use the listener's core for that long without loss.
const RING: RingShape =
    RingShape { blocks: 128, block_size: 64 * 1024, block_age_ms: 10, vnet_header: false };
/// The longest time from dropping a listener to the end of its thread.
const LOOK_MS: u16 = 50;

/// Receives at a port for as long as it lives.
pub struct Listener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    received: Mutex<Heard>,
    stop: AtomicBool,
}

struct Heard {
    ring: PacketRing,
    verdicts: Verdicts,
    /// Frames that arrived since the trial's beginning and for which the ring had no room.
    missed: u64,
}

impl Listener {
    /// Begins to receive, in a thread that stays off the cores that send.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or for a device that is gone.
    pub fn new(netns: &Netns, ifindex: u32, senders: &[usize]) -> Result<Self> {
        let ring = {
            let _inside = netns.enter()?;
            PacketRing::open(ifindex, RING).context("listening with a packet socket (CAP_NET_RAW?)")?
        };
        let socket = Arc::clone(ring.socket());
        let received = Heard { ring, verdicts: Verdicts::default(), missed: 0 };
        let shared = Arc::new(Shared { received: Mutex::new(received), stop: AtomicBool::new(false) });
        let (mine, senders) = (Arc::clone(&shared), senders.to_vec());
        let thread = thread::spawn(move || mine.run(&socket, &senders));
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Resets all counts and counts the streams of trial `epoch` from now on. `verify` says for each stream
    /// whether its frames are verified.
    ///
    /// # Errors
    /// Never with a live socket.
    pub fn begin(&mut self, epoch: u32, verify: &[bool]) -> Result<()> {
        let flows = verify.iter().map(|verify| FlowAbi::empty(*verify)).collect();
        let mut received = self.shared.received();
        received.verdicts = Verdicts { epoch, flows, unidentified: 0 };
        received.count_missed()?;
        received.missed = 0;
        Ok(())
    }

    /// The counts of the stream in `slot`.
    pub fn flow(&self, slot: usize) -> FlowAbi {
        self.shared.received().verdicts.flows.get(slot).copied().unwrap_or(FlowAbi::empty(false))
    }

    /// Frames that could not be assigned to a stream.
    pub fn unidentified(&self) -> u64 {
        self.shared.received().verdicts.unidentified
    }

    /// Frames that arrived and for which the ring had no room.
    ///
    /// # Errors
    /// Never with a live socket.
    pub fn missed(&self) -> Result<u64> {
        let mut received = self.shared.received();
        received.count_missed()?;
        Ok(received.missed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn received(&self) -> MutexGuard<'_, Heard> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, socket: &OwnedFd, senders: &[usize]) {
        // If the thread can't be moved, it works on any core.
        let _elsewhere = Elsewhere::than(senders);
        while !self.stop.load(Ordering::Relaxed) {
            if self.received().take() {
                continue;
            }
            let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut waiting, PollTimeout::from(LOOK_MS));
            let broken = waiting[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
            if ready.is_err() || broken {
                // The link is down. The watch over the trial ends the trial. The socket reports the error once,
                // and the link may come up again.
                self.received().ring.clear_error();
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Heard {
    /// Checks the frames of one block; returns false when no block is ready. (A VLAN tag that the device has removed is
    /// not put back, because no check depends on it.)
    fn take(&mut self) -> bool {
        // The kernel stamps frames with the time of day, senders with the time since the start. Both clocks
        // run at the same rate, so their difference is constant.
        let Ok(ahead_ns) = time_of_day_ns().and_then(|day| Ok(day.wrapping_sub(monotonic_ns()?))) else {
            return false;
        };
        let verdicts = &mut self.verdicts;
        let checker = |frame: RingFrame<'_>| {
            verdicts.take(frame.bytes(), frame.arrived_ns().wrapping_sub(ahead_ns));
        };
        self.ring.take(checker).is_some()
    }

    fn count_missed(&mut self) -> Result<()> {
        self.missed += self.ring.missed().context("what a packet socket missed")?;
        Ok(())
    }
}

fn time_of_day_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
