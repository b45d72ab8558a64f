//! Receives frames of one netdev through memory shared with the kernel: packet(7), TPACKET_V3,
//! Documentation/networking/packet_mmap.rst.
//!
//! The kernel fills a block with frames of any length, and hands it to this process when it is full or old enough;
//! after the frames are read, the process hands it back. The kernel reports the outermost tag of a frame out of band,
//! and also the pending checksum and segmentation: a virtio_net_hdr.
//!
//! Invariants: no reference into a block outlives the process's ownership of that block; every offset that the kernel
//! wrote is checked against the block; a frame is passed on whole or not at all; a frame for which there was no room is
//! counted, even if the count is read much later.

#![allow(unsafe_code)]

use super::raw;
use std::io::{Error, Result};
use std::mem::{offset_of, size_of, take};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The kernel requires a frame size even though frames may have any length.
const FRAME_SIZE: u32 = 2048;
/// Bytes of a virtio_net_hdr as packet sockets have it (VIRTIO 1.2, 5.1.6, without `num_buffers`).
pub const VNET_HEADER_LEN: usize = 10;
/// The least number of bytes before each frame in a block: the kernel's header, and an address that
/// is not read.
const BEFORE: usize = size_of::<libc::tpacket3_hdr>() + size_of::<libc::sockaddr_ll>();
/// Bytes of the two addresses, and of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// The dimensions of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingShape {
    /// Blocks of the ring.
    pub blocks: u32,
    /// Size of a block in bytes, a multiple of a page. Longer frames are lost.
    pub block_size: u32,
    /// How long a frame may wait for its block to fill, in milliseconds.
    pub block_age_ms: u32,
    /// True if frames are received and sent with a virtio_net_hdr: checksums and segmentation may
    /// be pending.
    pub vnet_header: bool,
}

/// A socket at one netdev that sees received frames, and its ring.
#[derive(Debug)]
pub struct PacketRing {
    blocks: Blocks,
    socket: Arc<OwnedFd>,
    ifindex: u32,
    missed: u64,
}

impl PacketRing {
    /// Opens a ring at the netdev with this index in the calling thread's network namespace. Once
    /// the netdev is up, the ring sees all received frames, including those for other stations.
    ///
    /// # Errors
    /// No such netdev; no right (CAP_NET_RAW); no memory for the ring.
    pub fn open(ifindex: u32, shape: RingShape) -> Result<Self> {
        let socket = raw::open()?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        raw::set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        raw::set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &i32::from(shape.vnet_header))?;
        raw::set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        let blocks = Blocks::map(&socket, shape)?;
        raw::set_promiscuous(&socket, ifindex)?;
        raw::bind(&socket, ifindex, libc::ETH_P_ALL as u16)?;
        Ok(Self { blocks, socket: Arc::new(socket), ifindex, missed: 0 })
    }
    /// The socket, for waiting and for sending.
    #[must_use]
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }
    /// Passes the frames of the next block to `handle` and returns the block to the kernel. Returns
    /// the number of frames, or `None` when the kernel has not released a block.
    pub fn take(&mut self, handle: impl FnMut(RingFrame<'_>)) -> Option<usize> {
        let (status, block) = self.blocks.next()?;
        let (whole, cut) = frames(block, handle);
        self.blocks.give_back();
        self.missed += cut as u64;
        // The kernel counts in 32 bits. The block's status says when there is a number to read.
        if status & libc::TP_STATUS_LOSING != 0
            && let Ok(missed) = raw::missed(&self.socket)
        {
            self.missed += u64::from(missed);
        }
        Some(whole)
    }
    /// The number of received frames since the last call that the ring had no room for.
    ///
    /// # Errors
    /// Never with a live socket.
    pub fn missed(&mut self) -> Result<u64> {
        self.missed += u64::from(raw::missed(&self.socket)?);
        Ok(take(&mut self.missed))
    }
    /// False once the netdev was removed or moved to another network namespace: the kernel then ends the binding.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        raw::bound(&self.socket) == Some(self.ifindex)
    }
    /// Binds the socket again, to the netdev that now has the index with which the ring was opened. The ring stays mapped.
    ///
    /// # Errors
    /// No such netdev.
    pub fn bind_again(&self) -> Result<()> {
        raw::set_promiscuous(&self.socket, self.ifindex)?;
        raw::bind(&self.socket, self.ifindex, libc::ETH_P_ALL as u16)
    }
    /// Clears a pending error, which reports once that the netdev went down or was removed. Frames
    /// are received again if it comes back up.
    pub fn clear_error(&self) {
        raw::clear_error(&self.socket);
    }
}

/// The mapped blocks.
#[derive(Debug)]
struct Blocks {
    map: NonNull<u8>,
    size: usize,
    count: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; whichever thread has the value has the mapping.
unsafe impl Send for Blocks {}

impl Blocks {
    fn map(socket: &OwnedFd, shape: RingShape) -> Result<Self> {
        let RingShape { blocks, block_size, block_age_ms, .. } = shape;
        let request = libc::tpacket_req3 {
            tp_block_size: block_size,
            tp_block_nr: blocks,
            tp_frame_size: FRAME_SIZE,
            tp_frame_nr: (block_size / FRAME_SIZE).saturating_mul(blocks),
            tp_retire_blk_tov: block_age_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        raw::set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let (size, count) = (block_size as usize, blocks as usize);
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, socket.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice, which refuses any other length than the ring's; the
        // result is checked.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), size * count, access, libc::MAP_SHARED, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or_else(|| Error::other("mapped at zero"))?;
        Ok(Self { map, size, count, next: 0 })
    }

    fn status(&self) -> &AtomicU32 {
        let at = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: `next` is below `count`, so this is an aligned word of the mapping, which both sides change as a whole.
        unsafe { AtomicU32::from_ptr(self.map.add(self.next * self.size + at).cast().as_ptr()) }
    }

    /// The next block and its status, if the kernel has released it.
    fn next(&mut self) -> Option<(u32, &mut [u8])> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: `next` is below `count`, so the block lies within the mapping. The kernel has handed it over and does
        // not touch it until `give_back`, which needs `self` exclusively.
        let block = unsafe {
            std::slice::from_raw_parts_mut(self.map.add(self.next * self.size).as_ptr(), self.size)
        };
        Some((status, block))
    }

    fn give_back(&mut self) {
        fence(Ordering::SeqCst);
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.count;
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `map`, unmapped once.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.size * self.count) };
    }
}

/// A frame in a block.
#[derive(Debug)]
pub struct RingFrame<'a> {
    /// The kernel's header, other data of the block, and the frame.
    bytes: &'a mut [u8],
    /// The offset of the frame in `bytes`; at least [`BEFORE`].
    start: usize,
}

impl<'a> RingFrame<'a> {
    /// The frame whose tpacket3_hdr is at `at`. `None` when it is truncated or inconsistent.
    fn at(block: &'a mut [u8], at: usize) -> Option<Self> {
        let bytes = block.get_mut(at..)?;
        let len = u32_at(bytes, offset_of!(libc::tpacket3_hdr, tp_snaplen))?;
        let whole = len == u32_at(bytes, offset_of!(libc::tpacket3_hdr, tp_len))?;
        let start = usize::from(u16_at(bytes, offset_of!(libc::tpacket3_hdr, tp_mac))?);
        if !whole || start < BEFORE {
            return None;
        }
        Some(Self { bytes: bytes.get_mut(..start.checked_add(len as usize)?)?, start })
    }
    /// The frame's bytes, without the tag that the kernel has removed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
    /// The tag that the kernel has removed from the frame; `None` if it has removed none.
    #[must_use]
    pub fn tag(&self) -> Option<[u8; TAG]> {
        let header = offset_of!(libc::tpacket3_hdr, hv1);
        let status = u32_at(self.bytes, offset_of!(libc::tpacket3_hdr, tp_status))?;
        let tpid = u16_at(self.bytes, header + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid))?;
        let tci = u32_at(self.bytes, header + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci))?;
        raw::tag(status, tpid, tci as u16)
    }
    /// The frame's bytes with the tag put back in line. This overwrites the virtio_net_hdr, so read that
    /// first.
    #[must_use]
    pub fn in_line(self) -> &'a [u8] {
        match self.tag().filter(|_| self.bytes().len() >= ADDRESSES) {
            Some(tag) => {
                let bytes = &mut self.bytes[self.start - TAG..];
                bytes.copy_within(TAG..TAG + ADDRESSES, 0);
                bytes[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
                bytes
            }
            None => &self.bytes[self.start..],
        }
    }
    /// The virtio_net_hdr, which precedes the frame if the ring was opened with
    /// [`RingShape::vnet_header`].
    #[must_use]
    pub fn vnet_header(&self) -> [u8; VNET_HEADER_LEN] {
        let mut header = [0; VNET_HEADER_LEN];
        header.copy_from_slice(&self.bytes[self.start - VNET_HEADER_LEN..self.start]);
        header
    }
    /// The time at which the frame arrived, in nanoseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn arrived_ns(&self) -> u64 {
        let field = |at| u64::from(u32_at(self.bytes, at).unwrap_or(0));
        field(offset_of!(libc::tpacket3_hdr, tp_sec)) * 1_000_000_000
            + field(offset_of!(libc::tpacket3_hdr, tp_nsec))
    }
}

/// Passes every complete frame of a block to `handle`. Returns how many were complete, and how many
/// were not.
fn frames(block: &mut [u8], mut handle: impl FnMut(RingFrame<'_>)) -> (usize, usize) {
    let header = offset_of!(libc::tpacket_block_desc, hdr);
    let count = u32_at(block, header + offset_of!(libc::tpacket_hdr_v1, num_pkts)).unwrap_or(0);
    let first = u32_at(block, header + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt));
    let mut at = first.unwrap_or(0) as usize;
    let (mut whole, mut cut) = (0, 0);
    for _ in 0..count {
        let next = u32_at(block, at.saturating_add(offset_of!(libc::tpacket3_hdr, tp_next_offset)));
        match RingFrame::at(block, at) {
            Some(frame) => {
                handle(frame);
                whole += 1;
            }
            None => cut += 1,
        }
        match next {
            Some(0) | None => break,
            Some(next) => at = at.saturating_add(next as usize),
        }
    }
    (whole, cut)
}

/// The number of `N` bytes at `at`, in native order.
fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    read(bytes, at).map(u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    read(bytes, at).map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// A block with one frame of 60 bytes, as the kernel lays it out: the header at offset 48, the
    /// frame 96 bytes after it. Each of `changes` overwrites the word at an offset.
    fn block(changes: &[(usize, u32)]) -> Vec<u8> {
        let mut block = vec![0; 400];
        (0..60).for_each(|n| block[48 + 96 + n] = n as u8);
        (0..VNET_HEADER_LEN).for_each(|n| block[48 + 86 + n] = 0xe0 + n as u8);
        let usual = [(12, 1), (16, 48), (52, 3), (56, 7), (60, 60), (64, 60), (72, 96)];
        for (at, value) in usual.iter().chain(changes) {
            block[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        block
    }

    #[test]
    fn layout() {
        assert_eq!(offset_of!(libc::tpacket_block_desc, hdr), 8);
        assert_eq!(offset_of!(libc::tpacket3_hdr, hv1), 28);
        assert_eq!(BEFORE, 68);
    }

    #[test]
    fn frames_of_a_block() {
        let check = |name: &str, changes: &[(usize, u32)], expected: (usize, usize)| {
            let got = frames(&mut block(changes), |frame| {
                assert_eq!((frame.bytes().len(), frame.bytes()[59]), (60, 59), "{name}");
                assert_eq!(frame.arrived_ns(), 3_000_000_007, "{name}");
                assert_eq!(frame.vnet_header()[..2], [0xe0, 0xe1], "{name}");
            });
            assert_eq!(got, expected, "{name}");
        };
        check("one", &[], (1, 0));
        check("none", &[(12, 0)], (0, 0));
        check("cut off", &[(64, 61)], (0, 1));
        check("past the block", &[(60, 4000), (64, 4000)], (0, 1));
        check("offset past the block", &[(16, u32::MAX)], (0, 1));
        check("begins past the block", &[(72, 0xffff)], (0, 1));
        check("begins in its header", &[(72, 67)], (0, 1));
        check("says two, has one", &[(12, 2)], (1, 0));
        check("the second past the block", &[(12, 2), (48, u32::MAX)], (1, 1));
    }

    #[test]
    fn tags_come_back_in_line() {
        let plain: Vec<u8> = (0..60).collect();
        let check = |name: &str, status: u32, tag: &[u8]| {
            let tpid = u32::from(0x88a8u16);
            let mut block = block(&[(68, libc::TP_STATUS_USER | status), (80, 0x600a), (84, tpid)]);
            let mut got = Vec::new();
            frames(&mut block, |frame| {
                assert_eq!(frame.tag().as_ref().map_or(&[][..], |tag| tag), tag, "{name}");
                got.push(frame.in_line().to_vec());
            });
            assert_eq!(got, [[&plain[..12], tag, &plain[12..]].concat()], "{name}");
        };
        check("none", 0, &[]);
        let valid = libc::TP_STATUS_VLAN_VALID;
        check("out of band", valid | libc::TP_STATUS_VLAN_TPID_VALID, &[0x88, 0xa8, 0x60, 10]);
        check("without its TPID", valid, &[0x81, 0, 0x60, 10]);
    }

    fn until(mut done: impl FnMut() -> bool) {
        let started = std::time::Instant::now();
        while !done() {
            assert!(started.elapsed().as_secs() < 20, "never");
            std::thread::yield_now();
        }
    }

    /// Tests the internal state; `tests/packet.rs` tests what can be observed from outside.
    #[test]
    fn missed_frames_flagged_in_a_block_are_counted() {
        const SENT: usize = 50;
        let outcome = crate::netns::run_in_new(|| {
            let lo = 1;
            crate::Netdev::open().expect("netlink").set_up(lo, true).expect("the loopback");
            let shape = RingShape { blocks: 2, block_size: 4096, block_age_ms: 1, vnet_header: false };
            let mut ring = PacketRing::open(lo, shape).expect("a ring");
            let socket = crate::PacketSocket::open(lo).expect("a socket");
            for _ in 0..SENT {
                socket.send(&[0; 1000]).expect("sent");
                // The socket sees each frame twice: sent, and received, when the ring has it too.
                until(|| socket.receive().expect("the link is up").is_some_and(|packet| !packet.outgoing));
            }
            let mut taken = 0;
            while let Some(frames) = ring.take(|_| ()) {
                taken += frames;
            }
            assert!((1..SENT).contains(&taken), "{taken} taken");
            socket.send(&[0; 1000]).expect("sent");
            let before = taken;
            until(|| {
                taken += ring.take(|_| ()).unwrap_or(0);
                taken > before
            });
            assert_eq!(raw::missed(&ring.socket).expect("a live socket"), 0, "asked already");
            assert_eq!(ring.missed().expect("a live socket") as usize + taken, SENT + 1);
        });
        match outcome {
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::StorageFull) => {
                println!("skipped: no network namespace: {e}");
            }
            outcome => outcome.expect("a namespace"),
        }
    }
}
