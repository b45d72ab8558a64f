//! The wires of the front panel: netdevs with packet sockets, and datagram sockets for tests and simulation.

use super::segments::{self, NOTHING, Offload};
use crate::sdk::cpu::{CpuHeader, TAG};
use lanyard_netdev::{Netdev, PacketSocket, sysctl};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

/// The longest frame read from a datagram socket, in bytes.
const MAX_FRAME: usize = 9_234;
/// The most frames read from one wire in one turn.
const TURN: usize = 64;

/// True when a netdev of this name exists in this namespace.
pub(super) fn exists(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

/// The netdev of the CPU port: a frame there carries its CPU header as a tag ([`CpuHeader::to_tag`]).
#[derive(Debug)]
pub(super) struct CpuWire {
    ifindex: u32,
    socket: PacketSocket,
}

/// Bytes of the addresses of a frame.
const ADDRESSES: usize = 12;

impl CpuWire {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        match Wire::plug(name)? {
            Wire::Netdev { ifindex, socket, .. } => Ok(Self { ifindex, socket }),
            Wire::Datagram(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
    pub(super) fn is_gone(&self, netdev: &Netdev) -> bool {
        netdev.link_by_index(self.ifindex).is_err_and(|error| error.is_gone())
    }
    /// Sends a frame to the kernel. A frame that the kernel refuses is lost, like one that finds a queue full.
    pub(super) fn send(&self, header: &CpuHeader, frame: &[u8], pending: &Offload) {
        if let Some((addresses, rest)) = frame.split_at_checked(ADDRESSES) {
            let pending = segments::moved(pending, TAG as isize);
            let _ = self.socket.send_parts(&pending, [addresses, &header.to_tag(), rest]);
        }
    }
    /// Calls `take` for each frame that the kernel has sent, at most [`TURN`], and returns how many it has received. Frames
    /// without a CPU header are dropped.
    pub(super) fn receive(&self, mut take: impl FnMut(CpuHeader, &[u8], &Offload)) -> usize {
        for taken in 0..TURN {
            let arrived = self.socket.receive_in_place(|arrived| {
                if arrived.outgoing {
                    return;
                }
                let pending = segments::moved(&arrived.pending, -(TAG as isize));
                if let Some((header, frame)) = untag(arrived.frame) {
                    take(header, frame, &pending);
                }
            });
            if !matches!(arrived, Ok(Some(()))) {
                return taken;
            }
        }
        TURN
    }
}

/// Removes the CPU header from a frame, by moving the addresses towards its end.
fn untag(frame: &mut [u8]) -> Option<(CpuHeader, &[u8])> {
    let tag = frame.get(ADDRESSES..)?.first_chunk::<TAG>()?;
    let header = CpuHeader::from_tag(*tag)?;
    frame.copy_within(..ADDRESSES, TAG);
    Some((header, &frame[TAG..]))
}

/// The connection of a port of the front panel.
#[derive(Debug)]
pub enum Wire {
    /// A netdev of the network namespace in which the chip was started.
    Netdev {
        /// Its name.
        name: String,
        /// Its index.
        ifindex: u32,
        /// Its socket.
        socket: PacketSocket,
    },
    /// A connected datagram socket: a frame is a datagram.
    Datagram(UnixDatagram),
}

impl Wire {
    /// Connects to a netdev.
    ///
    /// # Errors
    /// When no netdev has this name, or the process may not open it.
    pub fn netdev(name: &str) -> io::Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| io::Error::other(format!("{name}: {error}"));
        let link = Netdev::open()?.link(name).map_err(|error| wrong(&error))?;
        let socket = PacketSocket::open_pending(link.ifindex).map_err(|error| wrong(&error))?;
        Ok(Self::Netdev { name: name.to_owned(), ifindex: link.ifindex, socket })
    }
    /// Connects to a netdev that serves only as a wire: it is set up, and the host's own IP stack is kept off it.
    ///
    /// # Errors
    /// As for [`Wire::netdev`].
    pub fn plug(name: &str) -> io::Result<Self> {
        // On a kernel without IPv6 there is nothing to switch off.
        let _ = sysctl::set_disable_ipv6(name, true);
        let _ = sysctl::set_ipv4_conf(name, "arp_ignore", "8");
        let wire = Self::netdev(name)?;
        if let Self::Netdev { ifindex, .. } = &wire {
            Netdev::open()?.set_up(*ifindex, true).map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(wire)
    }
    /// Connects to a datagram socket, which is made non-blocking.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn datagram(socket: UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::Datagram(socket))
    }

    /// The descriptor to wait on.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Netdev { socket, .. } => socket.as_fd(),
            Self::Datagram(socket) => socket.as_fd(),
        }
    }
    /// Sends a frame; returns false when the wire has refused it.
    pub(super) fn send(&self, frame: &[u8], pending: &Offload) -> bool {
        match self {
            Self::Netdev { socket, .. } => socket.send_pending(pending, frame).is_ok(),
            Self::Datagram(socket) => {
                segments::whole(pending, frame.to_vec()).iter().all(|frame| socket.send(frame).is_ok())
            }
        }
    }
    /// Calls `take` for each waiting frame, at most [`TURN`], and returns how many it has received.
    pub(super) fn receive(&self, mut take: impl FnMut(&[u8], &Offload)) -> usize {
        for taken in 0..TURN {
            let more = match self {
                // An error is ignored: the socket reports one when the netdev goes down, and `is_up` follows the link state.
                Self::Netdev { socket, .. } => {
                    let arrived = socket.receive_in_place(|arrived| {
                        if !arrived.outgoing {
                            take(arrived.frame, &arrived.pending);
                        }
                    });
                    matches!(arrived, Ok(Some(())))
                }
                Self::Datagram(socket) => {
                    let mut buffer = [0; MAX_FRAME];
                    let length = socket.recv(&mut buffer);
                    length.map(|length| take(&buffer[..length], &NOTHING)).is_ok()
                }
            };
            if !more {
                return taken;
            }
        }
        TURN
    }
    /// True when the netdev does not exist any more.
    pub(super) fn is_gone(&self, netdev: &Netdev) -> bool {
        match self {
            Self::Netdev { ifindex, .. } => {
                netdev.link_by_index(*ifindex).is_err_and(|error| error.is_gone())
            }
            Self::Datagram(_) => false,
        }
    }
    /// The name of the netdev; `None` for a datagram socket.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Netdev { name, .. } => Some(name),
            Self::Datagram(_) => None,
        }
    }
    /// True while the wire has a link. The netdev's driver is asked first, because it reports a change before the kernel's list
    /// of links does. A datagram socket always has a link.
    pub(super) fn is_up(&self, netdev: Option<&Netdev>) -> bool {
        match self {
            Self::Netdev { name, ifindex, .. } => netdev.is_some_and(|netdev| {
                let listed = || netdev.link_by_index(*ifindex).is_ok_and(|link| link.link_up);
                netdev.has_link(name).unwrap_or_else(|_| listed())
            }),
            Self::Datagram(_) => true,
        }
    }
}
