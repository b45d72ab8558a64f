//! Wires with known impairments, for testing the tester.
//!
//! `bpf/impair.bpf.c` drops, duplicates, corrupts and delays frames inside the kernel; [`Relay`]
//! delays and reorders them in a queue of its own. Invariant: an impairment is exact, not random:
//! of N frames a known number is affected.

use super::Device;
use crate::bed::Bed;
use anyhow::{Context, Result, ensure};
use lanyard_netdev::PacketSocket;
use lanyard_tester::bpf::{self, Attached, LoadOptions};
use lanyard_tester::os::{Pinned, cores, monotonic_ns};
use libbpf_rs::Object;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// An impairment of the wire from `p0` to `p1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Impairment {
    /// One frame in this many is lost.
    Drop(u32),
    /// One frame in this many arrives twice.
    Duplicate(u32),
    /// One frame in this many has a bit of its last byte inverted.
    Corrupt(u32),
    /// Each frame is held until this time after its stamp, at most a millisecond. The core that
    /// sends waits meanwhile.
    Delay(Duration),
    /// As `Delay`, but frames wait in a queue while the core continues.
    Queue(Duration),
    /// One frame in this many is held until two later ones have passed.
    Reorder(u32),
}

/// `impair` in `impair.bpf.c`.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct ImpairAbi {
    far_end: u32,
    what: u32,
    every: u32,
    delay_ns: u32,
}

/// An impaired wire, which is removed when this is dropped.
pub enum Impaired {
    /// A BPF program in the kernel impairs the frames.
    Kernel {
        /// Dropping this detaches the program, which cuts the wire.
        _attached: Attached,
        /// The object with the program.
        _object: Object,
    },
    /// A thread of this process relays the frames.
    Relay(Relay),
}

impl Impaired {
    /// Connects `p0` to `p1`, but not `p1` to `p0`.
    ///
    /// # Errors
    /// For an impairment of one frame in 0, an [`Impairment::Delay`] above a millisecond, or when the kernel refuses.
    pub fn up(bed: &Bed, impairment: Impairment) -> Result<Self> {
        ensure!(bed.outputs == 1, "a wire has two ends");
        let (what, every, delay) = match impairment {
            Impairment::Drop(n) => (0, n, Duration::ZERO),
            Impairment::Duplicate(n) => (1, n, Duration::ZERO),
            Impairment::Corrupt(n) => (2, n, Duration::ZERO),
            Impairment::Delay(time) => (3, 1, time),
            Impairment::Queue(_) | Impairment::Reorder(_) => {
                return Ok(Self::Relay(Relay::up(bed, impairment)?));
            }
        };
        ensure!(every > 0, "one in none");
        ensure!(delay <= Duration::from_millis(1), "a delay of {delay:?} in the kernel: at most 1 ms");
        let (from, to) = (bed.switch.ifindex("p0")?, bed.switch.ifindex("p1")?);
        let abi = ImpairAbi { far_end: to, what, every, delay_ns: delay.as_nanos() as u32 };
        let object =
            bpf::load(bpf::IMPAIR, &LoadOptions { constants: abi.as_bytes(), ..Default::default() })?;
        let _inside = bed.switch.enter()?;
        let attached = bpf::attach_tc(&bpf::program(&object, "impair_tc")?, from)?;
        Ok(Self::Kernel { _attached: attached, _object: object })
    }
}

impl Device for Impaired {}

/// A thread that receives frames at `p0` and sends them at `p1`, later or in another order.
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// Offset of the time stamp: after Ethernet, IPv4, UDP, magic, stream and number.
const TIME_AT: usize = 42 + 8;
/// A frame that is held back passes after this many later ones.
const OVERTAKEN_BY: usize = 2;
/// The longest time from dropping a [`Relay`] to the end of its thread.
const LOOK: Duration = Duration::from_millis(20);
/// The most frames in the queue of [`Impairment::Queue`].
const QUEUE_MAX: usize = 65_536;

impl Relay {
    fn up(bed: &Bed, impairment: Impairment) -> Result<Self> {
        let (near, far) = {
            let (near, far) = (bed.switch.ifindex("p0")?, bed.switch.ifindex("p1")?);
            let _inside = bed.switch.enter()?;
            (PacketSocket::open(near).context("p0")?, PacketSocket::sender(far).context("p1")?)
        };
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // Run on another core than the sender, which polls.
            let _core = if cores() > 1 { Some(Pinned::to(cores() - 1)?) } else { None };
            match impairment {
                Impairment::Reorder(every) => reorder(&asked, &near, &far, every.max(1)),
                Impairment::Queue(delay) => queue(&asked, &near, &far, delay),
                _ => Ok(()),
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(why))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("lanyard bench: the relay: {why:#}");
        }
    }
}

/// The next frame received, and its time stamp in ns; `None` if no frame is waiting or the next one cannot have a stamp.
fn next(socket: &PacketSocket) -> Result<Option<(Vec<u8>, u64)>> {
    let Some(packet) = socket.receive()? else { return Ok(None) };
    let Some(time) = packet.frame.get(TIME_AT..TIME_AT + 6).filter(|_| !packet.outgoing) else {
        return Ok(None);
    };
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(time);
    Ok(Some((packet.frame, u64::from_ne_bytes(bytes))))
}

/// Waits until a frame arrives, or for `time`, but at most for [`LOOK`].
fn wait(socket: &PacketSocket, time: Duration) -> Result<()> {
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    ppoll(&mut ready, Some(TimeSpec::from_duration(time.min(LOOK))), None)?;
    Ok(())
}

fn queue(stop: &AtomicBool, near: &PacketSocket, far: &PacketSocket, delay: Duration) -> Result<()> {
    let mut waiting: VecDeque<(Vec<u8>, u64)> = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        let mut now_ns = monotonic_ns()?;
        while waiting.front().is_some_and(|(_, release_ns)| *release_ns <= now_ns) {
            if let Some((frame, _)) = waiting.pop_front() {
                far.send(&frame)?;
            }
            now_ns = monotonic_ns()?;
        }
        let left_ns = waiting.front().map_or(u64::MAX, |(_, release_ns)| release_ns - now_ns);
        wait(near, Duration::from_nanos(left_ns))?;
        while waiting.len() < QUEUE_MAX
            && let Some((frame, stamp_ns)) = next(near)?
        {
            waiting.push_back((frame, stamp_ns + delay.as_nanos() as u64));
        }
    }
    Ok(())
}

fn reorder(stop: &AtomicBool, near: &PacketSocket, far: &PacketSocket, every: u32) -> Result<()> {
    let mut kept: Option<(Vec<u8>, usize)> = None;
    let mut seen = 0u32;
    while !stop.load(Ordering::Relaxed) {
        let Some((frame, _)) = next(near)? else {
            wait(near, LOOK)?;
            continue;
        };
        seen = seen.wrapping_add(1);
        if seen.is_multiple_of(every) && kept.is_none() {
            kept = Some((frame, 0));
            continue;
        }
        far.send(&frame)?;
        if let Some((_, passed)) = &mut kept {
            *passed += 1;
        }
        if let Some((frame, _)) = kept.take_if(|(_, passed)| *passed >= OVERTAKEN_BY) {
            far.send(&frame)?;
        }
    }
    Ok(())
}
