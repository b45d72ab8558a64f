//! Events about changes of links, addresses, routes and neighbours.
//!
//! Read rtnetlink(7) first. Invariant: lost events are reported as [`Event::Overrun`].

use crate::socket::{Channel, for_each_message};
use crate::{Address, Link, Neighbour, Route, decode};
use netlink_packet_core::NetlinkBuffer;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// One read returns about this many events at most; it processes the rest of the datagram in which it reaches
/// the number.
const EVENTS_A_READ: usize = 4096;

/// Size of the receive buffer in bytes: a routing daemon adds thousands of routes at once.
const EVENTS_BYTES: usize = 32 << 20;

/// The multicast groups subscribed to.
const GROUPS: [u32; 6] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
];

/// A change, or a loss of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A device appeared or changed.
    Link(Box<Link>),
    /// A device was removed.
    LinkGone {
        /// Its index.
        ifindex: u32,
        /// Its name.
        name: String,
    },
    /// An address was added or changed.
    Address(Address),
    /// An address was removed.
    AddressGone(Address),
    /// A route was added or replaced, in any table.
    Route(Box<Route>),
    /// A route was removed.
    RouteGone(Box<Route>),
    /// A neighbour was added or changed.
    Neighbour(Neighbour),
    /// A neighbour was removed.
    NeighbourGone(Neighbour),
    /// Some events were lost, because the receive buffer was full. The reader has to list everything again.
    Overrun,
}

/// A subscription to links, addresses, routes and neighbours of one namespace.
#[derive(Debug)]
pub struct Events {
    channel: Channel,
}

impl Events {
    /// Subscribes in the calling thread's network namespace. Subscribe first and list afterwards: a
    /// change in between is then seen twice rather than never.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let channel = Channel::open(NETLINK_ROUTE)?;
        // RcvBufForce needs CAP_NET_ADMIN. Without it losses are likelier; they are reported.
        let _ = setsockopt(&channel.fd(), sockopt::RcvBufForce, &EVENTS_BYTES);
        for group in GROUPS {
            channel.socket().add_membership(group)?;
        }
        channel.socket().set_non_blocking(true)?;
        Ok(Self { channel })
    }

    /// Returns the events since the last call, without blocking. An empty result means that there is
    /// nothing more to read. Otherwise call again, or wait until [`Events::fd`] is readable
    /// (level-triggered).
    pub fn read(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < EVENTS_A_READ {
            match self.channel.receive() {
                Ok(datagram) => for_each_message(datagram, |message| events.extend(event(&message))),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS, or another error that may have cost a message.
                Err(_) => {
                    events.push(Event::Overrun);
                    break;
                }
            }
        }
        events
    }

    /// Becomes readable when there is something to read.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

fn event(message: &NetlinkBuffer<&[u8]>) -> Option<Event> {
    let payload = message.payload();
    match message.message_type() {
        libc::RTM_NEWLINK => decode::link(payload).map(|link| Event::Link(Box::new(link))),
        libc::RTM_DELLINK => {
            decode::link(payload).map(|link| Event::LinkGone { ifindex: link.ifindex, name: link.name })
        }
        libc::RTM_NEWADDR => decode::address(payload).map(Event::Address),
        libc::RTM_DELADDR => decode::address(payload).map(Event::AddressGone),
        libc::RTM_NEWROUTE => decode::route(payload).map(|route| Event::Route(Box::new(route))),
        libc::RTM_DELROUTE => decode::route(payload).map(|route| Event::RouteGone(Box::new(route))),
        libc::RTM_NEWNEIGH => decode::neighbour(payload).map(Event::Neighbour),
        libc::RTM_DELNEIGH => decode::neighbour(payload).map(Event::NeighbourGone),
        _ => None,
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}
