//! Sends GRE packets over IPv4 by a raw socket, raw(7): the kernel makes the IPv4 header, routes the packet, and fragments it
//! where it exceeds the MTU of the route.
//!
//! Invariants: sending never waits, and the socket receives nothing, although raw sockets of a protocol receive its packets.

use crate::packet::{open_raw, set};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
use std::io::{IoSlice, Result};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

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
        // Keeps nothing: a filter of one instruction, "return 0".
        let mut code = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
        let filter = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        // No packet has DF, and each is fragmented where it has to be.
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
