//! Sends and receives whole frames at one netdev over AF_PACKET. [`PacketSocket`] is for few frames, in both
//! directions; [`PacketRing`] for many received frames.
//!
//! Read packet(7) first. The kernel takes the outermost tag out of a frame and reports it beside the frame; the tag is
//! put back in line here. Invariants: a socket sees one netdev only; a frame is passed on whole or not at all.

#![allow(unsafe_code)]

mod raw;
mod ring;

pub(crate) use raw::{open_raw, queue_drops, set};
pub use ring::{PacketRing, RingFrame, RingShape, VNET_HEADER_LEN};

use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Largest buffer received, in bytes: 64 KB of segments, their headers and a tag.
const MAX_FRAME: usize = (64 << 10) + 256;
/// Bytes of a tag.
const TAG: usize = 4;
/// The receive buffer requested, in bytes. The kernel grants as much as the rights allow.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;
/// Bytes of the two addresses.
const ADDRESSES: usize = 12;

thread_local! {
    /// The buffer for received frames, whose length is not known before.
    static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A packet socket at one netdev. Neither sending nor receiving blocks.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    /// True if frames are received and sent with a virtio_net_hdr.
    pending: bool,
}

/// A frame received or sent at a netdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its bytes from the destination address on, tags in line, without FCS.
    pub frame: Vec<u8>,
    /// True when the netdev sent it, false when it received it.
    pub outgoing: bool,
    /// The work that its sender has left to a NIC, as a `struct virtio_net_hdr` whose offsets are those of
    /// [`Packet::frame`]; zeros unless the socket was opened by [`PacketSocket::open_pending`].
    pub pending: [u8; VNET_HEADER_LEN],
}

/// A [`Packet`] in the buffer that it was received into.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrived<'a> {
    /// See [`Packet::frame`].
    pub frame: &'a mut [u8],
    /// See [`Packet::outgoing`].
    pub outgoing: bool,
    /// See [`Packet::pending`].
    pub pending: [u8; VNET_HEADER_LEN],
}

impl PacketSocket {
    /// Opens a socket at the netdev with this index in the calling thread's network namespace. From
    /// then on it sees all frames, including those for other stations.
    ///
    /// # Errors
    /// No such netdev; no right (CAP_NET_RAW).
    pub fn open(ifindex: u32) -> Result<Self> {
        let this = Self::bound(ifindex, libc::ETH_P_ALL as u16)?;
        raw::set_promiscuous(&this.socket, ifindex)?;
        Ok(this)
    }

    /// As [`Self::open`], but [`Packet::pending`] describes the work that the sender of a frame has left to be done: checksum and
    /// segmentation.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_pending(ifindex: u32) -> Result<Self> {
        let this = Self::open(ifindex)?;
        raw::set(&this.socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        Ok(Self { pending: true, ..this })
    }

    /// As [`Self::open`], but sees received frames of one EtherType only, after TC has passed them.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn of_type(ifindex: u32, ether_type: u16) -> Result<Self> {
        let this = Self::bound(ifindex, ether_type)?;
        raw::set_promiscuous(&this.socket, ifindex)?;
        Ok(this)
    }

    /// A socket that only sends, and does not make the netdev promiscuous.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn sender(ifindex: u32) -> Result<Self> {
        Self::bound(ifindex, 0)
    }

    fn bound(ifindex: u32, protocol: u16) -> Result<Self> {
        let socket = raw::open()?;
        raw::set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1i32)?;
        if raw::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
            raw::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        raw::bind(&socket, ifindex, protocol)?;
        Ok(Self { socket, pending: false })
    }

    /// Sends a frame as it is, tags in line.
    ///
    /// # Errors
    /// When the netdev is down or gone, or the frame is longer than its MTU allows.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        if self.pending {
            return self.send_pending(&[0; VNET_HEADER_LEN], frame);
        }
        // SAFETY: the bytes live through the call, which only reads them.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(Error::last_os_error()) } else { Ok(()) }
    }

    /// The next frame; `None` when there is none at the moment.
    ///
    /// # Errors
    /// When the netdev went down or was removed. This is reported once; frames are received again
    /// if it comes back up.
    pub fn receive(&self) -> Result<Option<Packet>> {
        self.receive_in_place(|Arrived { frame, outgoing, pending }| Packet {
            frame: frame.to_vec(),
            outgoing,
            pending,
        })
    }

    /// As [`Self::receive`], without a copy: `take` is called with the frame in the calling thread's receive buffer, and must not
    /// receive from a socket itself.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn receive_in_place<T>(&self, take: impl FnOnce(Arrived<'_>) -> T) -> Result<Option<T>> {
        BUFFER.with_borrow_mut(|buffer| Ok(self.receive_by(buffer)?.map(take)))
    }

    /// Sends a frame with what is left to be done on it, as a `struct virtio_net_hdr`. Only for a socket that
    /// [`Self::open_pending`] has opened.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn send_pending(&self, pending: &[u8; VNET_HEADER_LEN], frame: &[u8]) -> Result<()> {
        self.send_parts(pending, [frame, &[], &[]])
    }

    /// As [`Self::send_pending`], with the frame in parts that follow each other.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn send_parts(&self, pending: &[u8; VNET_HEADER_LEN], parts: [&[u8]; 3]) -> Result<()> {
        let [first, second, third] = parts.map(std::io::IoSlice::new);
        let parts = [std::io::IoSlice::new(pending), first, second, third];
        Ok(nix::sys::uio::writev(&self.socket, &parts).map(drop)?)
    }

    fn receive_by<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<Arrived<'a>>> {
        buffer.resize(TAG + MAX_FRAME, 0);
        let mut pending = [0; VNET_HEADER_LEN];
        let room = &mut buffer[TAG..];
        let mut parts = [
            libc::iovec { iov_base: pending.as_mut_ptr().cast(), iov_len: pending.len() },
            libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
        ];
        let parts = if self.pending { &mut parts[..] } else { &mut parts[1..] };
        let mut control = [0u64; 16];
        // SAFETY: sockaddr_ll is plain data, for which zeros are valid.
        let mut from: libc::sockaddr_ll = unsafe { zeroed() };
        // SAFETY: msghdr is plain data, for which zeros are valid.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: every pointer of the message leads to a live buffer of the length beside it.
        let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        let Ok(len) = usize::try_from(len) else {
            let error = Error::last_os_error();
            return if error.kind() == std::io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        };
        let len = if self.pending { len.saturating_sub(VNET_HEADER_LEN) } else { len };
        if len > MAX_FRAME {
            return Err(Error::other(format!("a frame of {len} bytes is longer than any netdev's")));
        }
        let outgoing = from.sll_pkttype == libc::PACKET_OUTGOING;
        let Some(tag) = tag(&message).filter(|_| len >= ADDRESSES) else {
            return Ok(Some(Arrived { frame: &mut buffer[TAG..TAG + len], outgoing, pending }));
        };
        // The addresses move into the room before the frame, and the tag takes their place.
        buffer.copy_within(TAG..TAG + ADDRESSES, 0);
        buffer[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
        // Header length and start of the checksum.
        for at in [2, 6] {
            let moved = u16::from_ne_bytes([pending[at], pending[at + 1]]).wrapping_add(TAG as u16);
            pending[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
        }
        Ok(Some(Arrived { frame: &mut buffer[..TAG + len], outgoing, pending }))
    }

    /// The number of frames lost since the last call because the receive buffer was full.
    ///
    /// # Errors
    /// Never with a live socket.
    pub fn missed(&self) -> Result<u32> {
        raw::missed(&self.socket)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The tag that the kernel has removed from the frame, as bytes.
fn tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel has filled in the message; the macro stays within its control buffer.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so it points at a whole header in the control buffer.
        let found = unsafe { *header };
        // SAFETY: as above.
        let room = found.cmsg_len as usize
            >= unsafe { libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) } as usize;
        if found.cmsg_level == libc::SOL_PACKET && found.cmsg_type == libc::PACKET_AUXDATA && room {
            // SAFETY: the header says that its data is a whole tpacket_auxdata.
            let data: libc::tpacket_auxdata =
                unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
            return raw::tag(data.tp_status, data.tp_vlan_tpid, data.tp_vlan_tci);
        }
        // SAFETY: as for the first.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}
