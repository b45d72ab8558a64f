//! The listening socket of the telnet server; [`crate::telnet_sessions`] serves its clients.
//!
//! Invariant: the socket exists if and only if some `line vty` has `transport input telnet`.

use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use tokio::sync::Notify;

/// The port of telnet (RFC 854).
const PORT: u16 = 23;
/// The most connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// The telnet port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("telnet: port {PORT}: {0}")]
pub(crate) struct ListenError(#[from] io::Error);

/// The telnet server's socket.
#[derive(Debug, Default)]
pub(crate) struct TelnetServer {
    socket: Option<Rc<std::net::TcpListener>>,
    changed: Rc<Notify>,
}

impl TelnetServer {
    /// Opens the socket for a coming configuration, unless it is open.
    ///
    /// # Errors
    /// When the port is in use, or may not be opened.
    pub(crate) fn prepare(&self, is_wanted: bool) -> Result<Option<Rc<std::net::TcpListener>>, ListenError> {
        match &self.socket {
            _ if !is_wanted => Ok(None),
            Some(socket) => Ok(Some(socket.clone())),
            None => Ok(Some(Rc::new(open(PORT)?))),
        }
    }
    /// The socket to listen at; `None` when telnet is off.
    pub(crate) fn listening(&self) -> Option<std::net::TcpListener> {
        self.socket.as_ref()?.try_clone().ok()
    }
    /// What is notified when [`TelnetServer::listening`] has changed.
    pub(crate) fn changed(&self) -> Rc<Notify> {
        self.changed.clone()
    }
    /// Uses the socket that was prepared; returns true when telnet was off before. Sessions go on when it is turned off.
    pub(crate) fn adopt(&mut self, socket: Option<Rc<std::net::TcpListener>>) -> bool {
        let (was, is) = (self.socket.is_some(), socket.is_some());
        self.socket = socket;
        if was != is {
            self.changed.notify_one();
        }
        is && !was
    }
}

/// Listens on every address: IPv6 and IPv4, or IPv4 alone where the machine has no IPv6.
fn open(port: u16) -> io::Result<std::net::TcpListener> {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let at = |address: IpAddr| {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        if address.is_ipv6() {
            setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
        }
        bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, port)))?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        Ok::<_, io::Error>(fd.into())
    };
    at(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| at(Ipv4Addr::UNSPECIFIED.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn both_families_and_one_port() {
        let socket = open(0).expect("opened");
        let port = socket.local_addr().expect("bound").port();
        socket.set_nonblocking(false).expect("blocking");
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .expect("IPv4")
            .write_all(b"x")
            .expect("sent");
        assert!(socket.accept().expect("accepted").1.ip().to_canonical().is_ipv4());
        assert!(open(port).is_err(), "in use");
    }

    #[test]
    fn the_socket_follows_the_configuration() {
        let mut server = TelnetServer::default();
        assert!(matches!(server.prepare(false), Ok(None)));
        let socket = Rc::new(open(0).expect("opened"));
        assert!(server.adopt(Some(socket.clone())));
        let again = server.prepare(true).expect("the same").expect("one");
        assert!(Rc::ptr_eq(&again, &socket) && !server.adopt(Some(again)));
        assert!(!server.adopt(None) && server.socket.is_none());
    }
}
