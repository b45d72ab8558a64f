//! Frames through packet sockets, one system call each: slower, but any device takes them, also those that are longer
//! than a page or shorter than Ethernet allows.
//!
//! Read first: packet(7). Invariant: streams keep to their times as those made in the kernel do (see `due` in
//! `bpf/send.bpf.c`); a frame that the device had no room for was not sent.

use super::send::{Progress, Schedule, Sends};
use super::{Planned, Template};
use crate::os::{Netns, monotonic_ns};
use anyhow::{Context, Result};
use lanyard_netdev::PacketSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Late by more than this, a paced stream is a sixteenth faster than its rate until it has caught up.
const AT_ONCE_256: u64 = 50_000 << 8;
/// Late by more than this, it forgets what it is behind.
const FORGET_256: u64 = 100_000_000 << 8;

/// The streams of one core that leave through sockets.
#[derive(Default)]
pub struct SocketSender {
    lanes: Mutex<Vec<Lane>>,
    progress: Vec<Shared>,
    start_ns: u64,
    end_ns: u64,
    change_ns: u64,
    done: AtomicBool,
}

struct Lane {
    template: Template,
    socket: PacketSocket,
}

#[derive(Default)]
struct Shared {
    slot: usize,
    sent: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
}

impl SocketSender {
    /// A socket for each of `streams`.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or for a device that is gone.
    pub fn new(ports: &[(Netns, u32)], streams: Vec<Planned>) -> Result<Self> {
        let mut sender = Self::default();
        let lanes = sender.lanes.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (slot, port, template) in streams {
            let (netns, ifindex) = ports.get(port).context("no such port")?;
            let _inside = netns.enter()?;
            let socket = PacketSocket::sender(*ifindex).context("a packet socket")?;
            lanes.push(Lane { template, socket });
            sender.progress.push(Shared { slot, ..Default::default() });
        }
        Ok(sender)
    }

    fn due(&self, lane: &mut Lane, now_ns: u64) -> bool {
        let abi = &mut lane.template.abi;
        let interval = match self.change_ns {
            at if at > 0 && now_ns >= at => abi.later_256,
            _ => abi.interval_256,
        };
        let now = now_ns << 8;
        if interval == 0 || now < abi.due_256 {
            return interval == 0;
        }
        let late = now - abi.due_256;
        if late > AT_ONCE_256 {
            if abi.sent > 0 && now < (abi.last_ns << 8) + interval - interval / 16 {
                return false;
            }
            if late > FORGET_256 {
                abi.due_256 = now;
            }
        }
        abi.due_256 += interval;
        true
    }

    fn send(&self, lane: &mut Lane, shared: &Shared, now_ns: u64) -> Result<()> {
        let seq = lane.template.abi.sent;
        let frame = lane.template.frame(seq, now_ns);
        loop {
            match lane.socket.send(&frame) {
                Ok(()) => break,
                // The device's queue is full: it has not been sent, and has its turn again.
                Err(why) if why.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
                // Whoever watches the link ends the trial; until then nothing is sent.
                Err(why) if why.raw_os_error() == Some(libc::ENETDOWN) => return Ok(()),
                Err(why) => {
                    return Err(why).with_context(|| format!("sending {} bytes (MTU?)", frame.len()));
                }
            }
            if monotonic_ns()? >= self.end_ns {
                return Ok(());
            }
        }
        let abi = &mut lane.template.abi;
        abi.sent += 1;
        abi.last_ns = now_ns;
        if seq == 0 {
            shared.first_ns.store(now_ns, Ordering::Relaxed);
        }
        shared.last_ns.store(now_ns, Ordering::Relaxed);
        shared.sent.store(abi.sent, Ordering::Relaxed);
        Ok(())
    }
}

impl Sends for SocketSender {
    fn begin(&mut self, schedule: &Schedule) -> Result<()> {
        (self.start_ns, self.end_ns, self.change_ns) =
            (schedule.start_ns, schedule.end_ns, schedule.change_ns);
        let lanes = self.lanes.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (lane, shared) in lanes.iter_mut().zip(&self.progress) {
            lane.template.abi = schedule.plan(shared.slot, lane.template.abi);
        }
        Ok(())
    }

    fn run(&self, stop: &AtomicBool) -> Result<()> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        while !stop.load(Ordering::Relaxed) {
            let mut unfinished = false;
            for (lane, shared) in lanes.iter_mut().zip(&self.progress) {
                let now_ns = monotonic_ns()?;
                if now_ns >= self.end_ns || lane.template.abi.sent >= lane.template.abi.limit {
                    continue;
                }
                unfinished = true;
                if now_ns >= self.start_ns && self.due(lane, now_ns) {
                    self.send(lane, shared, now_ns)?;
                }
            }
            if !unfinished {
                break;
            }
        }
        self.done.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn done(&self) -> Result<bool> {
        Ok(self.done.load(Ordering::Relaxed))
    }

    fn nudge(&self) {}

    fn progress(&self) -> Result<Vec<Progress>> {
        let read = |shared: &Shared| Progress {
            slot: shared.slot,
            sent: shared.sent.load(Ordering::Relaxed),
            first_ns: shared.first_ns.load(Ordering::Relaxed),
            last_ns: shared.last_ns.load(Ordering::Relaxed),
        };
        Ok(self.progress.iter().map(read).collect())
    }
}
