//! What a port is connected to: [`Link`].
//!
//! Invariants: `send` and `put` never wait. A frame that can't be taken at once is refused, and the pipeline counts it; so it
//! does one that came in and was missed.

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

/// Frames a memory port holds for who takes them.
const MEMORY_FRAMES: usize = 4096;

/// A port's connection.
#[derive(Debug)]
pub enum Link {
    /// Nothing: no netdev, or one that has gone.
    Gone,
    /// Frames sent wait here to be taken.
    Memory(VecDeque<Vec<u8>>),
    /// A netdev, over AF_PACKET.
    Packet(PacketLink),
    /// The far end of a TAP netdev.
    Tap(TapLink),
}

/// A frame received: its bytes, tags in line, and what the kernel left undone in it.
pub struct Received<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Checksum and segmentation still to be done.
    pub offload: Offload,
}

impl Link {
    /// The descriptor to wait on.
    pub fn fd(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Gone | Self::Memory(_) => None,
            Self::Packet(link) => Some(link.fd()),
            Self::Tap(link) => Some(link.fd()),
        }
    }
    /// The netdev's index; 0 without one.
    pub fn ifindex(&self) -> u32 {
        match self {
            Self::Gone | Self::Memory(_) => 0,
            Self::Packet(link) => link.ifindex(),
            Self::Tap(link) => link.ifindex(),
        }
    }
    /// Hands a bounded number of waiting frames to `handle`; answers how many.
    pub fn receive(&mut self, handle: &mut dyn FnMut(Received<'_>)) -> usize {
        match self {
            Self::Gone | Self::Memory(_) => 0,
            Self::Packet(link) => link.receive(handle),
            Self::Tap(link) => link.receive(handle),
        }
    }
    /// Frames that arrived since the last call and that there was no room for. What a TAP's queue has no room for, its netdev
    /// has never sent: it counts it itself.
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
    /// Sends a frame no later than [`Link::flush`]; false when it was refused already.
    pub fn put(&mut self, frame: &[u8], offload: Offload) -> bool {
        match self {
            Self::Packet(link) => link.put(frame, offload),
            Self::Gone | Self::Memory(_) | Self::Tap(_) => self.send(frame, offload),
        }
    }
    /// True while frames that were put wait.
    pub fn waits(&self) -> bool {
        match self {
            Self::Packet(link) => link.waits(),
            Self::Gone | Self::Memory(_) | Self::Tap(_) => false,
        }
    }
    /// Sends what was put; hands over the lengths of the frames that were refused after all.
    pub fn flush(&mut self) -> Vec<usize> {
        match self {
            Self::Packet(link) => link.flush(),
            Self::Gone | Self::Memory(_) | Self::Tap(_) => Vec::new(),
        }
    }
    /// Looks at what a wait reported; false when the link is over.
    pub fn check(&mut self, events: PollFlags) -> bool {
        let broken = events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL);
        match self {
            Self::Packet(link) if broken => link.recover(),
            Self::Tap(_) => !broken,
            Self::Gone | Self::Memory(_) | Self::Packet(_) => true,
        }
    }
}
