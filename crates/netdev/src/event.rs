//! What changes in the kernel, told as it happens.

use crate::{Address, Link, Neighbour, Route};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// One change. `Overrun` says that some were lost: list everything again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A device came or changed.
    Link(Box<Link>),
    /// A device is gone.
    LinkGone {
        /// Its index.
        ifindex: u32,
        /// Its name.
        name: String,
    },
    /// An address came or changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route came or was replaced.
    Route(Box<Route>),
    /// A route is gone.
    RouteGone(Box<Route>),
    /// A neighbour came or changed.
    Neighbour(Neighbour),
    /// A neighbour is gone.
    NeighbourGone(Neighbour),
    /// The kernel had no room for some events.
    Overrun,
}

/// A subscription to links, addresses, routes and neighbours of one namespace.
#[derive(Debug)]
pub struct Events {}

impl Events {
    /// Subscribes in the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        todo!()
    }
    /// What has happened since the last call, at most a few thousand events a call; never blocks. Call again
    /// while [`Events::fd`] is readable.
    pub fn read(&mut self) -> Vec<Event> {
        todo!()
    }
    /// Readable when there is something to read.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        todo!()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
