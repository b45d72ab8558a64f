//! What arrives at a port, through a packet socket: for those who may not load the BPF program that [`super::judge`] attaches.
//!
//! Read first: packet(7), Documentation/networking/packet_mmap.rst (TPACKET_V3); `verdict` for what is made of a frame. The
//! kernel notes when each frame arrived, so it does not matter when it is looked at. A packet socket is a tap: frames go on
//! to the stack as well. Invariants: no reference into a block outlives our ownership of it; what the ring had no room for is
//! counted, so loss of the tester's own is never taken for the device's.

#![allow(unsafe_code)]

use super::abi::FlowAbi;
use super::verdict::Verdicts;
use crate::os::{Elsewhere, Netns, monotonic_ns};
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Error;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const BLOCK_SIZE: usize = 64 * 1024;
/// Blocks of a ring: 8 MB, some 50,000 frames of 64 bytes.
const BLOCKS: usize = 128;
/// The kernel wants a frame size even where frames have any length.
const FRAME_SIZE: usize = 2048;
/// How long a frame may wait for its block to fill, less than [`super::QUIET`]. Blocks that are handed over with a frame
/// each fill the ring no sooner than in 1.2 s: so long may another program have our core.
const BLOCK_AGE_MS: u32 = 10;
/// The longest time until a dropped one has ended.
const LOOK_MS: u16 = 50;
const STATUS_USER: u32 = 1;
const STATUS_KERNEL: u32 = 0;

/// Listens at a port for as long as it lives.
pub struct Listener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    socket: OwnedFd,
    verdicts: Mutex<Verdicts>,
    missed: AtomicU64,
    stop: AtomicBool,
}

impl Listener {
    /// Begins to listen, in a thread that stays off the cores that send.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or for a device that is gone.
    pub fn new(netns: &Netns, ifindex: u32, senders: &[usize]) -> Result<Self> {
        let (socket, ring) = {
            let _inside = netns.enter()?;
            open(ifindex).context("listening with a packet socket (CAP_NET_RAW?)")?
        };
        let shared = Arc::new(Shared {
            socket,
            verdicts: Mutex::default(),
            missed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let (mine, senders) = (Arc::clone(&shared), senders.to_vec());
        let thread = thread::spawn(move || mine.run(ring, &senders));
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Forgets everything, and counts the streams of trial `epoch` from now on; each is verified or not.
    ///
    /// # Errors
    /// Never with a live socket.
    pub fn begin(&mut self, epoch: u32, verify: &[bool]) -> Result<()> {
        let flows = verify.iter().map(|verify| FlowAbi::empty(*verify)).collect();
        *self.shared.verdicts() = Verdicts { epoch, flows, unidentified: 0 };
        self.shared.drops()?;
        self.shared.missed.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// What has arrived of the stream in `slot`.
    pub fn flow(&self, slot: usize) -> FlowAbi {
        self.shared.verdicts().flows.get(slot).copied().unwrap_or(FlowAbi::empty(false))
    }

    /// Frames that could not be told.
    pub fn unidentified(&self) -> u64 {
        self.shared.verdicts().unidentified
    }

    /// Frames that arrived and that the ring had no room for.
    ///
    /// # Errors
    /// Never with a live socket.
    pub fn missed(&self) -> Result<u64> {
        let more = self.shared.drops()?;
        Ok(self.shared.missed.fetch_add(more, Ordering::Relaxed) + more)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut ring: Ring, senders: &[usize]) {
        // Wherever it runs, it sees the same.
        let _elsewhere = Elsewhere::than(senders);
        while !self.stop.load(Ordering::Relaxed) {
            if self.take(&mut ring) {
                continue;
            }
            let mut waiting = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut waiting, PollTimeout::from(LOOK_MS));
            let broken = waiting[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
            if ready.is_err() || broken {
                // A link that is down: whoever watches it ends the trial. It is told once, and may be up again.
                self.forget_error();
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Judges the frames of one block; false when none is ours.
    fn take(&self, ring: &mut Ring) -> bool {
        // The kernel stamps with the time of day, senders with the time since the start: both run alike.
        let Ok(ahead_ns) = time_of_day_ns().and_then(|day| Ok(day.wrapping_sub(monotonic_ns()?))) else {
            return false;
        };
        let Some(block) = ring.next() else { return false };
        let mut verdicts = self.verdicts();
        frames(block, &mut |frame, day_ns| verdicts.take(frame, day_ns.wrapping_sub(ahead_ns)));
        drop(verdicts);
        ring.give_back();
        true
    }

    /// Frames dropped since the last call.
    fn drops(&self) -> Result<u64> {
        // SAFETY: plain data, for which zeros are valid.
        let mut stats: libc::tpacket_stats_v3 = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        let (fd, value) = (self.socket.as_raw_fd(), (&raw mut stats).cast());
        // SAFETY: value and length live through the call, and the length is the value's size.
        let done = unsafe {
            libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &raw mut length)
        };
        if done != 0 {
            return Err(Error::last_os_error()).context("what a packet socket dropped");
        }
        Ok(stats.tp_drops.into())
    }

    fn forget_error(&self) {
        let mut error = 0i32;
        let mut length = size_of::<i32>() as libc::socklen_t;
        let (fd, value) = (self.socket.as_raw_fd(), (&raw mut error).cast());
        // SAFETY: value and length live through the call, and the length is the value's size.
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, value, &raw mut length) };
    }
}

fn time_of_day_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// A socket at the device with this index in the calling thread's network namespace, and its ring.
fn open(ifindex: u32) -> std::io::Result<(OwnedFd, Ring)> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call; the result is checked and owned at once. Protocol 0: nothing is received yet.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let index = i32::try_from(ifindex).map_err(|_| Error::from_raw_os_error(libc::ENODEV))?;
    set(&socket, libc::PACKET_VERSION, &2i32)?; // TPACKET_V3
    set(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
    let ring = Ring::new(&socket)?;
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(&socket, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    // SAFETY: sockaddr_ll is plain data, for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and `length` is its size.
    match unsafe { libc::bind(fd, (&raw const address).cast(), length) } {
        0 => Ok((socket, ring)),
        _ => Err(Error::last_os_error()),
    }
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> std::io::Result<()> {
    let (fd, length) = (socket.as_raw_fd(), size_of::<T>() as libc::socklen_t);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` is a live T and `length` its size; the kernel only reads it.
    match unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, value, length) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// The mapped ring.
struct Ring {
    map: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; whichever thread has the value has the mapping.
unsafe impl Send for Ring {}

impl Ring {
    fn new(socket: &OwnedFd) -> std::io::Result<Self> {
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_SIZE as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: FRAME_SIZE as u32,
            tp_frame_nr: (BLOCK_SIZE / FRAME_SIZE * BLOCKS) as u32,
            tp_retire_blk_tov: BLOCK_AGE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(socket, libc::PACKET_RX_RING, &request)?;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, socket.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), BLOCK_SIZE * BLOCKS, access, libc::MAP_SHARED, fd, 0) };
        match NonNull::new(map.cast::<u8>()) {
            Some(map) if map.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => Ok(Self { map, next: 0 }),
            _ => Err(Error::last_os_error()),
        }
    }

    fn status(&self) -> &AtomicU32 {
        let at = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: `next` is below BLOCKS, so this is an aligned word of the mapping, which both sides change as a whole.
        unsafe { AtomicU32::from_ptr(self.map.add(self.next * BLOCK_SIZE + at).cast().as_ptr()) }
    }

    /// The next block, if it is ours.
    fn next(&mut self) -> Option<&[u8]> {
        if self.status().load(Ordering::Acquire) & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel has given us the block and leaves it alone until `give_back`, which wants `self` for itself.
        Some(unsafe { std::slice::from_raw_parts(self.map.add(self.next * BLOCK_SIZE).as_ptr(), BLOCK_SIZE) })
    }

    fn give_back(&mut self) {
        fence(Ordering::SeqCst);
        self.status().store(STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, unmapped once.
        unsafe { libc::munmap(self.map.as_ptr().cast(), BLOCK_SIZE * BLOCKS) };
    }
}

fn u32_at(block: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(block.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Hands over every frame of a block that is whole, and the time of day at which it arrived. (A tag that the device took
/// out is not put back: nothing that is judged depends on it.)
fn frames(block: &[u8], handle: &mut dyn FnMut(&[u8], u64)) {
    let header = offset_of!(libc::tpacket_block_desc, hdr);
    let count = u32_at(block, header + offset_of!(libc::tpacket_hdr_v1, num_pkts)).unwrap_or(0);
    let first = u32_at(block, header + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt));
    let mut at = first.unwrap_or(0) as usize;
    for _ in 0..count {
        if let Some((frame, time)) = frame(block, at) {
            handle(frame, time);
        }
        match u32_at(block, at + offset_of!(libc::tpacket3_hdr, tp_next_offset)) {
            Some(0) | None => break,
            Some(next) => at += next as usize,
        }
    }
}

fn frame(block: &[u8], at: usize) -> Option<(&[u8], u64)> {
    let field = |offset: usize| u32_at(block, at + offset);
    let length = field(offset_of!(libc::tpacket3_hdr, tp_snaplen))?;
    let (seconds, nanos) =
        (field(offset_of!(libc::tpacket3_hdr, tp_sec))?, field(offset_of!(libc::tpacket3_hdr, tp_nsec))?);
    let mac = at + offset_of!(libc::tpacket3_hdr, tp_mac);
    let mac = u16::from_ne_bytes(block.get(mac..mac + 2)?.try_into().ok()?);
    let start = at + usize::from(mac);
    let whole = length == field(offset_of!(libc::tpacket3_hdr, tp_len))?;
    let bytes = block.get(start..start + length as usize).filter(|_| whole)?;
    Some((bytes, u64::from(seconds) * 1_000_000_000 + u64::from(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_block() {
        let check = |name: &str, changes: &[(usize, u32)], expected: usize| {
            let mut block = vec![0; 400];
            (0..60).for_each(|n| block[48 + 96 + n] = n as u8);
            let usual = [(12, 1), (16, 48), (52, 3), (56, 7), (60, 60), (64, 60), (72, 96)];
            for (at, value) in usual.iter().chain(changes) {
                block[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
            }
            let mut got = 0;
            frames(&block, &mut |frame, time| {
                assert_eq!((frame.len(), frame[59], time), (60, 59, 3_000_000_007), "{name}");
                got += 1;
            });
            assert_eq!(got, expected, "{name}");
        };
        check("one", &[], 1);
        check("cut off", &[(64, 61)], 0);
        check("past the block", &[(60, 4000), (64, 4000)], 0);
        check("offset past the block", &[(16, u32::MAX)], 0);
        check("begins past the block", &[(72, 0xffff)], 0);
        check("says two, has one", &[(12, 2)], 1);
    }
}
