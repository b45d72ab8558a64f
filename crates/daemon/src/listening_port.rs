//! The listening sockets of telnet and SSH; [`crate::telnet_sessions`] and [`crate::ssh_server`] serve their clients.
//!
//! Invariant: a socket exists if and only if some `line vty` has its protocol in `transport input`.

use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use tokio::sync::Notify;

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// A port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: port {}: {cause}", service.name, service.port)]
pub(crate) struct PortError {
    service: Service,
    #[source]
    cause: io::Error,
}

/// A protocol of the network with its own port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    name: &'static str,
    port: u16,
    /// True when several sockets of the same user may be bound to the port: the program that serves SSH may still hold its
    /// socket for a moment after the daemon has ended.
    is_shared: bool,
}

/// Telnet (RFC 854).
pub(crate) const TELNET: Service = Service { name: "telnet", port: 23, is_shared: false };
/// SSH (RFC 4253).
pub(crate) const SSH: Service = Service { name: "ssh", port: 22, is_shared: true };

/// The socket of a protocol.
#[derive(Debug)]
pub(crate) struct ListeningPort {
    service: Service,
    socket: Option<Rc<std::net::TcpListener>>,
    changed: Rc<Notify>,
    /// The number of changes.
    changes: u64,
}

impl ListeningPort {
    /// No socket yet.
    pub(crate) fn new(service: Service) -> Self {
        Self { service, socket: None, changed: Rc::new(Notify::new()), changes: 0 }
    }
    /// Opens the socket for a coming configuration, unless it is open.
    ///
    /// # Errors
    /// When the port is in use, or may not be opened.
    pub(crate) fn prepare(&self, is_wanted: bool) -> Result<Option<Rc<std::net::TcpListener>>, PortError> {
        match &self.socket {
            _ if !is_wanted => Ok(None),
            Some(socket) => Ok(Some(socket.clone())),
            None => {
                let error = |cause| PortError { service: self.service, cause };
                Ok(Some(Rc::new(open(self.service.port, self.service.is_shared).map_err(error)?)))
            }
        }
    }
    /// The socket to listen at; `None` when the protocol is off.
    pub(crate) fn listening(&self) -> Option<std::net::TcpListener> {
        self.socket.as_ref()?.try_clone().ok()
    }
    /// How often [`ListeningPort::listening`] has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
    /// Notified when [`ListeningPort::listening`] has changed.
    pub(crate) fn changed(&self) -> Rc<Notify> {
        self.changed.clone()
    }
    /// Uses the socket that was prepared; returns true when the protocol was off before. Sessions go on when it is turned off.
    pub(crate) fn adopt(&mut self, socket: Option<Rc<std::net::TcpListener>>) -> bool {
        let (was, is) = (self.socket.is_some(), socket.is_some());
        self.socket = socket;
        if was != is {
            self.changes += 1;
            self.changed.notify_one();
        }
        is && !was
    }
}

/// Listens on every address: IPv6 and IPv4, or IPv4 alone where the machine has no IPv6.
fn open(port: u16, is_shared: bool) -> io::Result<std::net::TcpListener> {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let at = |address: IpAddr| {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        setsockopt(&fd, sockopt::ReusePort, &is_shared)?;
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
        let socket = open(0, false).expect("opened");
        let port = socket.local_addr().expect("bound").port();
        socket.set_nonblocking(false).expect("blocking");
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .expect("IPv4")
            .write_all(b"x")
            .expect("sent");
        assert!(socket.accept().expect("accepted").1.ip().to_canonical().is_ipv4());
        assert!(open(port, false).is_err(), "in use");
    }

    #[test]
    fn the_socket_follows_the_configuration() {
        let mut server = ListeningPort::new(TELNET);
        assert!(matches!(server.prepare(false), Ok(None)));
        let socket = Rc::new(open(0, false).expect("opened"));
        assert!(server.adopt(Some(socket.clone())));
        let again = server.prepare(true).expect("the same").expect("one");
        assert!(Rc::ptr_eq(&again, &socket) && !server.adopt(Some(again)));
        assert!(!server.adopt(None) && server.socket.is_none());
    }
}
