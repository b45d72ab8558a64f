//! What changes in the kernel, told as it happens.
//!
//! Read rtnetlink(7) first. Invariant: an event that was lost is told as [`Event::Overrun`], never left out
//! in silence.

use crate::socket::{Channel, for_each_message};
use crate::{Address, Link, Neighbour, Route, decode};
use netlink_packet_core::NetlinkBuffer;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Most events handed over by one read, the datagram that reaches it finished.
const EVENTS_A_READ: usize = 4096;

/// Room for events that have not been read, in bytes: a routing daemon adds thousands of routes at once.
const EVENTS_BYTES: usize = 32 << 20;

/// What is subscribed to.
const GROUPS: [u32; 6] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
];

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
    /// A route came or was replaced, in any table.
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
pub struct Events {
    channel: Channel,
}

impl Events {
    /// Subscribes in the calling thread's network namespace. Subscribe first and list afterwards: what changes
    /// in between is then told twice rather than never.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let channel = Channel::open(NETLINK_ROUTE)?;
        // FORCE wants CAP_NET_ADMIN; without it losses are likelier, and told.
        let _ = setsockopt(&channel.fd(), sockopt::RcvBufForce, &EVENTS_BYTES);
        for group in GROUPS {
            channel.socket().add_membership(group)?;
        }
        channel.socket().set_non_blocking(true)?;
        Ok(Self { channel })
    }

    /// What has happened since the last call; never blocks. Empty means that there is nothing more to read;
    /// otherwise call again, or wait until [`Events::fd`] is readable (level-triggered).
    pub fn read(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < EVENTS_A_READ {
            match self.channel.receive() {
                Ok(datagram) => for_each_message(datagram, |message| events.extend(event(&message))),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS, and whatever else may have cost a message.
                Err(_) => {
                    events.push(Event::Overrun);
                    break;
                }
            }
        }
        events
    }

    /// Readable when there is something to read.
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
