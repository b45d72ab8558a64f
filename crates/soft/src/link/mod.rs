//! The connection of a port: [`Link`].
//!
//! Invariants: `send` and `put` never block. A frame that cannot be sent at once is refused, and
//! the pipeline counts it; it also counts received frames that were missed.

mod batch;
pub mod host;
pub mod packet;
pub mod tap;
pub mod vnet;

use nix::poll::PollFlags;
use packet::PacketLink;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tap::TapLink;
use vnet::Offload;

/// Most frames that wait in the queue of a memory port.
const MEMORY_FRAMES: usize = 4096;

/// A port's connection.
#[derive(Debug)]
pub enum Link {
    /// Nothing: the port has no netdev, or it was removed.
    Gone,
    /// Sent frames wait in this queue.
    Memory(VecDeque<Vec<u8>>),
    /// A netdev, over AF_PACKET.
    Packet(PacketLink),
    /// The far end of a TAP netdev.
    Tap(TapLink),
}

/// A received frame: its bytes, tags in line, and the work that the kernel has left to do.
pub struct Received<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Pending checksum and segmentation.
    pub offload: Offload,
}

impl Link {
    /// The descriptor to wait on; `None` if no frames arrive by the link.
    pub fn fd(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Gone | Self::Memory(_) => None,
            Self::Packet(link) => Some(link.fd()),
            Self::Tap(link) => Some(link.fd()),
        }
    }
    /// The memory of the link's ring in bytes; 0 without a ring.
    pub fn memory(&self) -> u64 {
        if let Self::Packet(link) = self { link.memory() } else { 0 }
    }
    /// The netdev's index; 0 without one.
    pub fn ifindex(&self) -> u32 {
        match self {
            Self::Gone | Self::Memory(_) => 0,
            Self::Packet(link) => link.ifindex(),
            Self::Tap(link) => link.ifindex(),
        }
    }
    /// Passes a bounded number of waiting frames to `handle`; returns their number.
    pub fn receive(&mut self, handle: &mut dyn FnMut(Received<'_>)) -> usize {
        match self {
            Self::Gone | Self::Memory(_) => 0,
            Self::Packet(link) => link.receive(handle),
            Self::Tap(link) => link.receive(handle),
        }
    }
    /// The number of frames since the last call that arrived but found no room. A TAP reports none:
    /// its netdev counts frames that its queue has no room for as not sent.
    pub fn missed(&mut self) -> u64 {
        match self {
            Self::Packet(link) => link.missed(),
            Self::Gone | Self::Memory(_) | Self::Tap(_) => 0,
        }
    }
    /// Sends a frame; false when it was refused.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> bool {
        match self {
            Self::Gone => false,
            Self::Memory(queue) => {
                let room = queue.len() < MEMORY_FRAMES;
                if room {
                    queue.push_back(frame.to_vec());
                }
                room
            }
            Self::Packet(link) => link.send(frame, offload),
            Self::Tap(link) => link.send(frame, offload),
        }
    }
    /// Sends a frame now, or with [`Link::flush`] at the latest; false when the frame was refused at once.
    pub fn put(&mut self, frame: &[u8], offload: Offload) -> bool {
        match self {
            Self::Packet(link) => link.put(frame, offload),
            Self::Gone | Self::Memory(_) | Self::Tap(_) => self.send(frame, offload),
        }
    }
    /// True while frames wait for [`Link::flush`].
    pub fn waits(&self) -> bool {
        match self {
            Self::Packet(link) => link.waits(),
            Self::Gone | Self::Memory(_) | Self::Tap(_) => false,
        }
    }
    /// Sends the waiting frames; returns the lengths of those that were refused.
    pub fn flush(&mut self) -> Vec<usize> {
        match self {
            Self::Packet(link) => link.flush(),
            Self::Gone | Self::Memory(_) | Self::Tap(_) => Vec::new(),
        }
    }
    /// True when the link's netdev was removed or moved to another network namespace.
    pub fn is_lost(&self) -> bool {
        if let Self::Packet(link) = self { link.is_lost() } else { false }
    }
    /// Looks for the netdev of a lost link; true when the netdev is back and the link uses it again.
    pub fn find_again(&mut self) -> bool {
        if let Self::Packet(link) = self { link.find_again() } else { false }
    }
    /// Handles poll flags; false when the link is broken.
    pub fn check(&mut self, events: PollFlags) -> bool {
        let broken = events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL);
        match self {
            Self::Packet(link) if broken => link.recover(),
            Self::Tap(_) => !broken,
            Self::Gone | Self::Memory(_) | Self::Packet(_) => true,
        }
    }
}
