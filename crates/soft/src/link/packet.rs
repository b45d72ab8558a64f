//! A netdev over AF_PACKET: packet(7), Documentation/networking/packet_mmap.rst.
//!
//! Receiving is a TPACKET_V3 ring of blocks: the kernel fills a block with frames of any length, gives it to us when it
//! is full or a millisecond old, and gets it back when we have read it. Sending is `sendmmsg` on the same socket (see
//! `batch`), through the netdev's queue: its bypass drops what the device can't segment itself. Both carry a
//! virtio_net_hdr (see `vnet`). The tag of a received frame comes out of band and is put back in line.
//!
//! Invariant: no reference into a block outlives our ownership of that block, and every offset the kernel wrote is
//! checked against the block.

#![allow(unsafe_code)]

use super::Received;
use super::batch::Batch;
use super::host::HostStack;
use super::vnet::{self, Offload};
use std::io::{Error, Result};
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Bytes of a block: room for the longest buffer the kernel makes of segments (64 KB), and then some.
const BLOCK_SIZE: usize = 128 * 1024;
/// Blocks of a ring: 1 MB a port.
const BLOCKS: usize = 8;
/// The kernel wants a frame size even where frames have any length.
const FRAME_SIZE: usize = 2048;
/// How long a frame may wait for its block to fill, in milliseconds: the kernel's shortest.
const BLOCK_AGE_MS: u32 = 1;
/// Send buffer asked for, in bytes: some full buffers of segments.
const SEND_BUFFER: i32 = 4 << 20;
/// Waits in a row that report an error and bring no frame before the link counts as broken.
const MAX_ERRORS: u32 = 64;
/// Bytes of the two addresses, and of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const STATUS_USER: u32 = 1;
const STATUS_KERNEL: u32 = 0;
const TPACKET_V3: i32 = 2;

/// A netdev's socket and ring.
#[derive(Debug)]
pub struct PacketLink {
    socket: Arc<OwnedFd>,
    ring: Ring,
    ifindex: u32,
    errors: u32,
    batch: Batch,
    /// While the host's own stack is kept off.
    quiet: Option<HostStack>,
}

impl PacketLink {
    /// Opens the netdev with this index in the calling thread's network namespace. Frames flow once it is up.
    pub fn open(ifindex: u32) -> Result<Self> {
        let index = i32::try_from(ifindex).map_err(|_| Error::from_raw_os_error(libc::ENODEV))?;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain system call; the result is checked and owned at once.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V3)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER)?;
        let ring = Ring::new(&socket)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        // SAFETY: sockaddr_ll is plain data, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address lives through the call, and `len` is its size.
        if unsafe { libc::bind(fd, (&raw const address).cast(), len) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(Self { socket: Arc::new(socket), ring, ifindex, errors: 0, batch: Batch::default(), quiet: None })
    }
    /// Keeps the host's own stack off the netdev, or lets it hear what arrives, as at first: at a routed port it is the
    /// one that answers.
    ///
    /// # Errors
    /// When the netdev has gone.
    pub fn keep_host_off(&mut self, off: bool) -> Result<()> {
        if off && self.quiet.is_none() {
            self.quiet = Some(HostStack::quiet(&interface_name(self.ifindex.cast_signed())?));
        } else if !off {
            self.quiet = None;
        }
        Ok(())
    }
    /// The descriptor to wait on.
    pub fn fd(&self) -> Arc<OwnedFd> {
        self.socket.clone()
    }
    /// The netdev's index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
    /// Clears a pending error (the netdev went down or away); false when errors are all there is.
    pub fn recover(&mut self) -> bool {
        let mut error = 0i32;
        let mut len = size_of::<i32>() as libc::socklen_t;
        let (fd, value) = (self.socket.as_raw_fd(), (&raw mut error).cast());
        // SAFETY: value and length live through the call, and the length is the value's size.
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, value, &raw mut len) };
        self.errors += 1;
        self.errors < MAX_ERRORS
    }
    /// Hands the frames of one block to `handle`.
    pub fn receive(&mut self, handle: &mut dyn FnMut(Received<'_>)) -> usize {
        let taken = self.ring.take(handle);
        if taken > 0 {
            self.errors = 0;
        }
        taken
    }
    /// Sends a frame, with others.
    pub fn put(&mut self, frame: &[u8], offload: Offload) -> bool {
        if Batch::takes(frame) {
            self.batch.push(&self.socket, frame, offload);
            return true;
        }
        self.batch.send(&self.socket);
        self.send(frame, offload)
    }
    /// True while frames wait.
    pub fn waits(&self) -> bool {
        self.batch.waits()
    }
    /// Sends what waits; hands over the lengths of the frames refused since the last time.
    pub fn flush(&mut self) -> Vec<usize> {
        self.batch.flush(&self.socket)
    }
    /// Sends a frame at once.
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
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        sent >= 0
    }
}

/// The netdev's name.
fn interface_name(index: i32) -> Result<String> {
    let name = nix::net::if_::if_indextoname(index.unsigned_abs())?;
    Ok(name.to_string_lossy().into_owned())
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is a live T and `len` its size; the kernel only reads it.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The mapped ring.
#[derive(Debug)]
struct Ring {
    map: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; whichever thread has the value has the mapping.
unsafe impl Send for Ring {}

impl Ring {
    fn new(socket: &OwnedFd) -> Result<Self> {
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_SIZE as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: FRAME_SIZE as u32,
            tp_frame_nr: (BLOCK_SIZE / FRAME_SIZE * BLOCKS) as u32,
            tp_retire_blk_tov: BLOCK_AGE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, socket.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), BLOCK_SIZE * BLOCKS, access, libc::MAP_SHARED, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        NonNull::new(map.cast())
            .map(|map| Self { map, next: 0 })
            .ok_or_else(|| Error::other("mapped at zero"))
    }

    /// Hands over the frames of the next block if it is ours, and gives the block back.
    fn take(&mut self, handle: &mut dyn FnMut(Received<'_>)) -> usize {
        // SAFETY: `next` is below BLOCKS, so the block lies within the mapping.
        let base = unsafe { self.map.add(self.next * BLOCK_SIZE) };
        let at = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: the status is an aligned word of the mapping, which both sides change as a whole.
        let status = unsafe { AtomicU32::from_ptr(base.add(at).cast().as_ptr()) };
        if status.load(Ordering::Acquire) & STATUS_USER == 0 {
            return 0;
        }
        // SAFETY: the kernel has given us the block and leaves it alone until its status says so again; the slice
        // ends with this scope, before that.
        let taken = frames(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), BLOCK_SIZE) }, handle);
        fence(Ordering::SeqCst);
        status.store(STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS;
        taken
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, unmapped once.
        unsafe { libc::munmap(self.map.as_ptr().cast(), BLOCK_SIZE * BLOCKS) };
    }
}

/// The native-order number of `N` bytes at `at`.
fn read<const N: usize>(block: &[u8], at: usize) -> Option<[u8; N]> {
    block.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn read_u32(block: &[u8], at: usize) -> Option<u32> {
    read(block, at).map(u32::from_ne_bytes)
}

fn read_u16(block: &[u8], at: usize) -> Option<u16> {
    read(block, at).map(u16::from_ne_bytes)
}

/// Hands over every frame of a block.
fn frames(block: &mut [u8], handle: &mut dyn FnMut(Received<'_>)) -> usize {
    let header = offset_of!(libc::tpacket_block_desc, hdr);
    let count = read_u32(block, header + offset_of!(libc::tpacket_hdr_v1, num_pkts)).unwrap_or(0);
    let mut at =
        read_u32(block, header + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt)).unwrap_or(0) as usize;
    let mut taken = 0;
    for _ in 0..count {
        if let Some(frame) = frame(block, at) {
            handle(frame);
            taken += 1;
        }
        match read_u32(block, at + offset_of!(libc::tpacket3_hdr, tp_next_offset)) {
            Some(0) | None => break,
            Some(next) => at += next as usize,
        }
    }
    taken
}

/// The frame whose tpacket3_hdr is at `at`, its tag put back in line. `None` for one that was cut off, or makes no sense.
fn frame(block: &mut [u8], at: usize) -> Option<Received<'_>> {
    let field = |offset: usize| read_u32(block, at + offset);
    let status = field(offset_of!(libc::tpacket3_hdr, tp_status))?;
    let len = field(offset_of!(libc::tpacket3_hdr, tp_snaplen))? as usize;
    if len != field(offset_of!(libc::tpacket3_hdr, tp_len))? as usize {
        return None;
    }
    let mac = usize::from(read_u16(block, at + offset_of!(libc::tpacket3_hdr, tp_mac))?);
    let hv1 = at + offset_of!(libc::tpacket3_hdr, hv1);
    let tci = read_u32(block, hv1 + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci))? as u16;
    let tpid = read_u16(block, hv1 + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid))?;

    // The virtio_net_hdr stands right before the frame; read, its place is room for the tag.
    let start = at + mac;
    let room = start.checked_sub(vnet::HEADER_LEN)?;
    let offload = Offload::from_bytes(read(block, room)?);
    if status & STATUS_VLAN_VALID == 0 || len < ADDRESSES {
        return Some(Received { bytes: block.get(start..start.checked_add(len)?)?, offload });
    }
    let tpid = if status & STATUS_VLAN_TPID_VALID == 0 { libc::ETH_P_8021Q as u16 } else { tpid };
    let bytes = block.get_mut(start - TAG..start.checked_add(len)?)?;
    bytes.copy_within(TAG..TAG + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tpid.to_be_bytes());
    bytes[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&tci.to_be_bytes());
    Some(Received { bytes, offload: offload.moved(TAG as isize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with one frame of 60 bytes at offset 48, as the kernel lays it out.
    fn block(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut block = vec![0; 400];
        let mut put = |at: usize, value: u32| block[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        put(8, STATUS_USER);
        put(12, 1);
        put(16, 48);
        put(48 + 12, 60);
        put(48 + 16, 60);
        put(48 + 20, STATUS_USER);
        put(48 + 24, 96);
        (0..60).for_each(|n| block[48 + 96 + n] = n as u8);
        change(&mut block);
        block
    }

    fn check(name: &str, mut block: Vec<u8>, want: Option<Vec<u8>>) {
        let mut got = Vec::new();
        frames(&mut block, &mut |frame| got.push(frame.bytes.to_vec()));
        assert_eq!(got, want.into_iter().collect::<Vec<_>>(), "{name}");
    }

    #[test]
    fn layout() {
        assert_eq!(offset_of!(libc::tpacket_block_desc, hdr), 8);
        assert_eq!(offset_of!(libc::tpacket3_hdr, hv1), 28);
        assert_eq!(BLOCK_SIZE % FRAME_SIZE, 0);
    }

    #[test]
    fn frames_of_a_block() {
        let plain: Vec<u8> = (0..60).collect();
        let tagged = |tpid: [u8; 2]| [&plain[..12], &tpid, &[0x60, 10], &plain[12..]].concat();
        let word = |block: &mut Vec<u8>, at: usize, value: u32| {
            block[at..at + 4].copy_from_slice(&value.to_ne_bytes())
        };
        let vlan = |status: u32| {
            block(move |b| {
                word(b, 48 + 20, STATUS_USER | status);
                word(b, 48 + 32, 0x600a);
                b[48 + 36..48 + 38].copy_from_slice(&0x88a8u16.to_ne_bytes());
            })
        };
        check("plain", block(|_| {}), Some(plain.clone()));
        check(
            "tag out of band",
            vlan(STATUS_VLAN_VALID | STATUS_VLAN_TPID_VALID),
            Some(tagged([0x88, 0xa8])),
        );
        check("without its TPID", vlan(STATUS_VLAN_VALID), Some(tagged([0x81, 0])));
        check("cut off", block(|b| word(b, 48 + 16, 61)), None);
        check("past the block", block(|b| (word(b, 48 + 12, 4000), word(b, 48 + 16, 4000)).0), None);
        check("no room before it", block(|b| (word(b, 16, 0), word(b, 24, 0), word(b, 12, 0)).0), None);
        check("offset past the block", block(|b| word(b, 16, u32::MAX)), None);
    }
}
