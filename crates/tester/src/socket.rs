//! Sends frames that are made in this process through sockets. AF_PACKET has one system call per frame: it is slow, but
//! every device takes the frames, including those longer than a page. AF_XDP has one system call for 32 frames.
//!
//! Read first: packet(7). Invariant: streams keep to their times like those made in the kernel (`SenderAbi::due`); a
//! frame for which the device had no room counts as not sent.

use super::send::{Progress, Schedule, Sends};
use super::xsk::XdpSocket;
use super::{Planned, SendMethod, Template};
use crate::os::{Netns, monotonic_ns};
use anyhow::{Context, Result};
use lanyard_netdev::PacketSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The streams of one core that are sent through sockets.
#[derive(Default)]
pub struct SocketSender {
    lanes: Mutex<Vec<Lane>>,
    exits: Mutex<Vec<Exit>>,
    progress: Vec<Shared>,
    start_ns: u64,
    end_ns: u64,
    change_ns: u64,
    done: AtomicBool,
}

struct Lane {
    template: Template,
    /// The index in `exits` of the socket that sends the stream.
    exit: usize,
}

/// The socket through which a port sends.
enum Exit {
    Packet(PacketSocket),
    Xdp(XdpSocket),
}

impl Exit {
    /// Sends a frame. A `paced` frame is sent at once, others are sent in groups.
    fn send(&mut self, frame: &[u8], paced: bool) -> std::io::Result<()> {
        match self {
            Self::Packet(socket) => socket.send(frame),
            Self::Xdp(socket) if paced => socket.send(frame).and_then(|()| socket.kick()),
            Self::Xdp(socket) => socket.send(frame),
        }
    }
}

#[derive(Default)]
struct Shared {
    slot: usize,
    sent: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
}

impl SocketSender {
    /// Sockets of one kind for the ports of `streams`.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or for a device that is gone.
    pub fn new(ports: &[(Netns, u32)], streams: Vec<Planned>, way: SendMethod) -> Result<Self> {
        let mut sender = Self::default();
        let lanes = sender.lanes.get_mut().unwrap_or_else(PoisonError::into_inner);
        let exits = sender.exits.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut known: Vec<usize> = Vec::new();
        for (slot, port, template) in streams {
            let exit = match known.iter().position(|p| *p == port) {
                Some(exit) => exit,
                None => {
                    let (netns, ifindex) = ports.get(port).context("no such port")?;
                    let _inside = netns.enter()?;
                    exits.push(match way {
                        SendMethod::Xsk => Exit::Xdp(XdpSocket::new(*ifindex)?),
                        _ => Exit::Packet(PacketSocket::sender(*ifindex).context("a packet socket")?),
                    });
                    known.push(port);
                    known.len() - 1
                }
            };
            lanes.push(Lane { template, exit });
            sender.progress.push(Shared { slot, ..Default::default() });
        }
        Ok(sender)
    }

    fn send(&self, lane: &mut Lane, exit: &mut Exit, shared: &Shared, now_ns: u64) -> Result<()> {
        let seq = lane.template.abi.sent;
        let frame = lane.template.frame(seq, now_ns);
        let paced = lane.template.abi.interval_256 > 0;
        loop {
            match exit.send(&frame, paced) {
                Ok(()) => break,
                // The device's queue is full: the frame has not been sent, and is tried again.
                Err(why) if why.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
                // The watch over the links ends the trial. Nothing is sent until then.
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
        let mut exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        while !stop.load(Ordering::Relaxed) {
            let mut unfinished = false;
            for (lane, shared) in lanes.iter_mut().zip(&self.progress) {
                let now_ns = monotonic_ns()?;
                if now_ns >= self.end_ns || lane.template.abi.sent >= lane.template.abi.limit {
                    continue;
                }
                unfinished = true;
                if now_ns >= self.start_ns && lane.template.abi.due(now_ns, self.change_ns) {
                    let exit = exits.get_mut(lane.exit).context("no socket")?;
                    self.send(lane, exit, shared, now_ns)?;
                }
            }
            if !unfinished {
                break;
            }
        }
        for exit in exits.iter_mut() {
            if let Exit::Xdp(socket) = exit {
                // A failure means that the device is down and the queued frames are lost.
                let _ = socket.kick();
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
