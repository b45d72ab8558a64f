//! Sends control-plane frames out of a port by AF_PACKET, without the egress queue.
//!
//! Read first: packet(7). Such a frame leaves at the netdev's egress; the programs at ingress do
//! not see it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// linux/if_packet.h.
const PACKET_QDISC_BYPASS: i32 = 20;

/// The socket.
#[derive(Debug)]
pub(crate) struct Injector(OwnedFd);

impl Injector {
    /// A socket that receives nothing (protocol 0).
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: no pointers; the returned descriptor is owned by nobody else.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let on: libc::c_int = 1;
        // SAFETY: the option's value is a live int of the stated length.
        let answer = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_QDISC_BYPASS,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(socket)) }
    }

    /// Sends `frame` out of the netdev.
    pub(crate) fn send(&self, ifindex: u32, frame: &[u8]) -> io::Result<()> {
        let mut to = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: i32::try_from(ifindex).map_err(io::Error::other)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        if let (Some(protocol), Some(dst)) = (frame.get(12..14), frame.get(..6)) {
            to.sll_protocol = u16::from_ne_bytes([protocol[0], protocol[1]]);
            to.sll_addr[..6].copy_from_slice(dst);
        }
        // SAFETY: frame and address are live and of the stated lengths.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
