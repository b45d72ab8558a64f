//! Sends and receives GRE packets over IPv4 by raw sockets, raw(7). The kernel makes the IPv4 header of a packet, routes it, and
//! fragments it where it exceeds the MTU of the route; it reassembles received packets, and processes them itself as well,
//! as it would without a socket.
//!
//! Invariants: nothing here waits, and a [`GreSocket`] receives nothing, although the kernel passes each packet of a
//! protocol to every raw socket of that protocol.

use crate::packet::{open_raw, queue_drops, set};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, bind, recv, sendmsg};
use std::io::{IoSlice, Result};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The most bytes of an IPv4 packet.
const MAX_PACKET: usize = 65_535;
/// The receive buffer requested, in bytes of the kernel's memory: some 10,000 packets of 1,500 bytes.
const RECEIVE_BUFFER: libc::c_int = 32 << 20;

/// A socket for GRE packets, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct GreSocket {
    socket: OwnedFd,
}

impl GreSocket {
    /// Opens the socket.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn open() -> Result<Self> {
        let socket = open_raw(libc::AF_INET, libc::IPPROTO_GRE)?;
        // The socket receives nothing: a filter of one instruction, "return 0".
        let mut code = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
        let filter = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        // The kernel does not set DF, so packets can be fragmented everywhere.
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_DONT)?;
        Ok(Self { socket })
    }

    /// Sets the TTL, and the DSCP (0 to 63), of the packets that follow.
    ///
    /// # Errors
    /// When the kernel refuses a value.
    pub fn set(&self, ttl: u8, dscp: u8) -> Result<()> {
        set(&self.socket, libc::IPPROTO_IP, libc::IP_TTL, &i32::from(ttl))?;
        set(&self.socket, libc::IPPROTO_IP, libc::IP_TOS, &(i32::from(dscp) << 2))
    }

    /// Sends one packet with this payload, GRE's header first.
    ///
    /// # Errors
    /// `ENETUNREACH` or `EHOSTUNREACH` without a route, `ENETUNREACH` or `EINVAL` when `from` is no address of this namespace,
    /// `EAGAIN` or `ENOBUFS` when a queue is full.
    pub fn send(&self, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Result<()> {
        let source = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr { s_addr: u32::from(from).to_be() },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let control = [ControlMessage::Ipv4PacketInfo(&source)];
        let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
        let flags = MsgFlags::MSG_DONTWAIT;
        sendmsg(self.socket.as_raw_fd(), &[IoSlice::new(payload)], &control, flags, Some(&to))?;
        Ok(())
    }
}

/// A socket that receives the GRE packets for one address, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct GreReceiver {
    socket: OwnedFd,
    address: Ipv4Addr,
}

impl GreReceiver {
    /// Opens the socket.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` when the address is not one of this namespace; without CAP_NET_RAW.
    pub fn open(address: Ipv4Addr) -> Result<Self> {
        let socket = open_raw(libc::AF_INET, libc::IPPROTO_GRE)?;
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(address, 0)))?;
        Ok(Self { socket, address })
    }

    /// The payload of the next packet, GRE's header first; `None` when there is none at the moment. `buffer` receives the
    /// packet.
    ///
    /// # Errors
    /// When the socket has failed.
    pub fn receive<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>> {
        buffer.resize(MAX_PACKET, 0);
        loop {
            let len = match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => len,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(packet) = buffer.get(..len) else { continue };
            let header = packet.first().map_or(usize::MAX, |first| usize::from(first & 0x0f) * 4);
            // Packets for other addresses may have come before the socket was bound.
            if len >= header && packet.get(16..20) == Some(&self.address.octets()) {
                return Ok(buffer.get(header..len));
            }
        }
    }

    /// The number of packets for which the receive buffer had no room, since the socket was opened; it wraps.
    ///
    /// # Errors
    /// Before Linux 4.12.
    pub fn missed(&self) -> Result<u32> {
        queue_drops(&self.socket)
    }
}

impl AsFd for GreReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
