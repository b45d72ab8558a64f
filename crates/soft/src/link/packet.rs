//! A netdev over AF_PACKET: packet(7), Documentation/networking/packet_mmap.rst.
//!
//! Receiving is a ring shared with the kernel (`PacketRing`), whose blocks are ours when they are full or a millisecond old.
//! Sending is `sendmmsg` on the same socket (see `batch`), through the netdev's queue: its bypass drops what the device can't
//! segment itself. Both carry a virtio_net_hdr (see `vnet`). Invariant: the tag of a received frame, which comes out of band,
//! is back in line.

#![allow(unsafe_code)]

use super::Received;
use super::batch::Batch;
use super::host::HostStack;
use super::vnet::Offload;
use lanyard_netdev::{PacketRing, RingFrame, RingShape};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::Result;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// The ring of a port, 32 MB: it holds a burst of 10,000 frames of 1,514 bytes while the thread does
/// other things. A block has room for the largest segmentation buffer (64 KB), and so for 81 such
/// frames. The kernel also closes a block that is 1 ms old, the shortest block age that it supports,
/// so the number of blocks is also the milliseconds that the thread may stay away while few frames
/// arrive: a burst of 64 frames a millisecond closes 156 blocks with 10,000 frames.
const RING: RingShape = RingShape { blocks: 256, block_size: 128 * 1024, block_age_ms: 1, vnet_header: true };
/// The smallest ring that is tried where memory is short.
const FEWEST_BLOCKS: u32 = 8;
/// The send buffer requested, in bytes: some full segmentation buffers.
const SEND_BUFFER: usize = 4 << 20;
/// After this many successive errors without a frame the link counts as broken.
const MAX_ERRORS: u32 = 64;

/// A netdev's socket and ring.
#[derive(Debug)]
pub struct PacketLink {
    ring: PacketRing,
    /// The size of the ring in bytes.
    memory: u64,
    ifindex: u32,
    name: String,
    errors: u32,
    batch: Batch,
    /// Present while the host's stack is kept off.
    quiet: Option<HostStack>,
}

impl PacketLink {
    /// Opens the netdev with this index in the calling thread's network namespace. It carries
    /// frames once it is up. Its ring takes at most `room` bytes of memory, but at least 1 MB.
    pub fn open(ifindex: u32, room: u64) -> Result<Self> {
        let (ring, memory) = open_ring(ifindex, room)?;
        setsockopt(ring.socket(), sockopt::SndBuf, &SEND_BUFFER)?;
        let name = interface_name(ifindex)?;
        Ok(Self { ring, memory, ifindex, name, errors: 0, batch: Batch::default(), quiet: None })
    }
    /// If `off`, keeps the host's stack off the netdev. Otherwise lets it receive and answer there, as at
    /// a routed port; this is the initial state.
    ///
    /// # Errors
    /// When the netdev has been removed.
    pub fn keep_host_off(&mut self, off: bool) -> Result<()> {
        if off && self.quiet.is_none() {
            self.quiet = Some(HostStack::quiet(&interface_name(self.ifindex)?));
        } else if !off {
            self.quiet = None;
        }
        Ok(())
    }
    /// The descriptor to wait on.
    pub fn fd(&self) -> Arc<OwnedFd> {
        self.ring.socket().clone()
    }
    /// The netdev's index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
    /// The memory of the ring, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }
    /// Clears a pending error (the netdev went down or was removed); false after [`MAX_ERRORS`]
    /// successive errors without a frame.
    pub fn recover(&mut self) -> bool {
        self.ring.clear_error();
        self.errors += 1;
        self.errors < MAX_ERRORS
    }
    /// True after the netdev was removed or moved to another network namespace.
    pub fn is_lost(&self) -> bool {
        !self.ring.is_bound()
    }
    /// Looks for a netdev with this link's index and name, which was moved away and came back, and uses it again. False while
    /// there is none.
    pub fn find_again(&mut self) -> bool {
        let same = interface_name(self.ifindex).is_ok_and(|name| name == self.name);
        let found = same && self.ring.bind_again().is_ok();
        if found && let Some(quiet) = &mut self.quiet {
            quiet.repeat();
        }
        found
    }
    /// Passes the frames of one block to `handle`.
    pub fn receive(&mut self, handle: &mut dyn FnMut(Received<'_>)) -> usize {
        let taken = self.ring.take(|frame| handle(received(frame))).unwrap_or(0);
        if taken > 0 {
            self.errors = 0;
        }
        taken
    }
    /// The number of frames since the last call that the ring had no room for.
    pub fn missed(&mut self) -> u64 {
        // Reading the counter of a live socket does not fail.
        self.ring.missed().unwrap_or(0)
    }
    /// Adds a frame to the batch, or sends it at once if it is too long for that; false when it was refused.
    pub fn put(&mut self, frame: &[u8], offload: Offload) -> bool {
        if Batch::takes(frame) {
            self.batch.push(self.ring.socket(), frame, offload);
            return true;
        }
        self.batch.send(self.ring.socket());
        self.send(frame, offload)
    }
    /// True while frames wait.
    pub fn waits(&self) -> bool {
        self.batch.waits()
    }
    /// Sends the waiting frames; returns the lengths of the frames refused since the last call.
    pub fn flush(&mut self) -> Vec<usize> {
        self.batch.flush(self.ring.socket())
    }
    /// Sends a frame at once; false when it was refused.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> bool {
        let mut header = offload.to_bytes();
        let mut parts = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
            libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() },
        ];
        // SAFETY: msghdr is plain data, for which zeros are valid.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the message points at two parts that live through the call, and sendmsg only reads them.
        let sent =
            unsafe { libc::sendmsg(self.ring.socket().as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        sent >= 0
    }
}

/// Opens a ring of at most `room` bytes, or a smaller one where the kernel has no memory for it.
/// Returns the ring and its size in bytes.
fn open_ring(ifindex: u32, room: u64) -> Result<(PacketRing, u64)> {
    let bytes = |shape: RingShape| u64::from(shape.blocks) * u64::from(shape.block_size);
    let mut shape = RING;
    while bytes(shape) > room && shape.blocks > FEWEST_BLOCKS {
        shape.blocks /= 2;
    }
    loop {
        match PacketRing::open(ifindex, shape) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && shape.blocks > FEWEST_BLOCKS => {
                shape.blocks /= 2;
            }
            opened => return Ok((opened?, bytes(shape))),
        }
    }
}

/// The netdev's name.
fn interface_name(index: u32) -> Result<String> {
    let name = nix::net::if_::if_indextoname(index)?;
    Ok(name.to_string_lossy().into_owned())
}

/// The frame, its tag in line.
fn received(frame: RingFrame<'_>) -> Received<'_> {
    let offload = Offload::from_bytes(frame.vnet_header());
    let len = frame.bytes().len();
    let bytes = frame.in_line();
    Received { bytes, offload: offload.moved((bytes.len() - len) as isize) }
}
