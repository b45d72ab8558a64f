//! The wires of the front panel: netdevs through packet sockets, and datagram sockets for tests and simulation.

use lanyard_netdev::{Netdev, PacketSocket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

/// Longest frame taken from a datagram socket, in bytes.
const MAX_FRAME: usize = 9_234;
/// Frames taken from one wire before the others have their turn.
const TURN: usize = 64;

/// What a port of the front panel is connected to.
#[derive(Debug)]
pub enum Wire {
    /// A netdev of the network namespace that the chip was started in.
    Netdev {
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
    /// When there is none of this name, or no right to open it.
    pub fn netdev(name: &str) -> io::Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| io::Error::other(format!("{name}: {error}"));
        let link = Netdev::open()?.link(name).map_err(|error| wrong(&error))?;
        let socket = PacketSocket::open(link.ifindex).map_err(|error| wrong(&error))?;
        Ok(Self::Netdev { ifindex: link.ifindex, socket })
    }
    /// Connects to a datagram socket, which must not block.
    ///
    /// # Errors
    /// When the socket refuses to be made non-blocking.
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
    /// Sends a frame; false when the wire did not take it.
    pub(super) fn send(&self, frame: &[u8]) -> bool {
        match self {
            Self::Netdev { socket, .. } => socket.send(frame).is_ok(),
            Self::Datagram(socket) => socket.send(frame).is_ok(),
        }
    }
    /// The frames that wait, a bounded number.
    pub(super) fn receive(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < TURN {
            match self {
                // An error is reported once, and says that the netdev went down: the link is followed elsewhere.
                Self::Netdev { socket, .. } => match socket.receive() {
                    Ok(Some(packet)) if packet.outgoing => {}
                    Ok(Some(packet)) => all.push(packet.frame),
                    Ok(None) | Err(_) => break,
                },
                Self::Datagram(socket) => {
                    let mut frame = vec![0; MAX_FRAME];
                    let Ok(length) = socket.recv(&mut frame) else { break };
                    frame.truncate(length);
                    all.push(frame);
                }
            }
        }
        all
    }
    /// True while the wire has a link.
    pub(super) fn is_up(&self, netdev: Option<&Netdev>) -> bool {
        match self {
            Self::Netdev { ifindex, .. } => {
                netdev.and_then(|netdev| netdev.link_by_index(*ifindex).ok()).is_some_and(|link| link.link_up)
            }
            Self::Datagram(_) => true,
        }
    }
}
