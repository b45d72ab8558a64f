//! Follows one namespace's routing: reports changes as they happen, and lists its tables piece by piece.
//!
//! Read netlink(7) and rtnetlink(7) first. Routes and next-hop objects are passed on as the views of
//! [`lanyard_wire::rtnetlink`], which borrow the datagram: there may be a million routes, and decoding each into a
//! value with `netlink-packet-route` takes twice as long, and allocates for each next hop (`routes_a_second` below
//! measures both). Objects of which there are few are decoded into values as in the rest of the crate.
//!
//! Invariants: a lost event is reported ([`Notification::Overrun`]); nothing here waits; reading is bounded by the caller.

use crate::socket::{Channel, for_each_message};
use crate::{Address, Link, Neighbour, decode};
use lanyard_wire::rtnetlink::{self as wire, NextHopObject, Route};
use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

/// The multicast groups subscribed to.
const GROUPS: [u32; 11] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
    RTNLGRP_NEXTHOP,
];
/// From linux/rtnetlink.h; the libc crate does not have it yet.
const RTNLGRP_NEXTHOP: u32 = 32;
/// Size of the receive buffer in bytes: room for some 80,000 routes.
const EVENTS_BYTES: usize = 64 << 20;
/// NTF_USE of linux/neighbour.h.
const NTF_USE: u8 = 1;
/// The maximum number of neighbours reported as used in one datagram.
const USE_BATCH: usize = 64;

/// A message from the kernel.
#[derive(Debug)]
pub enum Notification<'a> {
    /// A route.
    Route {
        /// The route.
        route: Route<'a>,
        /// NLM_F_* of the message.
        flags: u16,
        /// True if it was removed.
        gone: bool,
    },
    /// A next-hop object, and whether it was removed.
    NextHop(NextHopObject<'a>, bool),
    /// A neighbour, and whether it was removed.
    Neighbour(Neighbour, bool),
    /// A device, and whether it was removed.
    Link(Box<Link>, bool),
    /// An address, and whether it was removed.
    Address(Address, bool),
    /// A policy routing rule, and whether it was removed.
    Rule(Rule, bool),
    /// A change of the sysctl `forwarding`.
    Forwarding(Forwarding),
    /// A message that could not be decoded, so a change was missed.
    Unreadable,
    /// Some events were lost because the receive buffer was full.
    Overrun,
}

/// A policy routing rule (`ip rule`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its family.
    pub ipv6: bool,
    /// For one of the kernel's default rules: the table that it looks up for every packet.
    pub standard: Option<u32>,
}

/// `net.ipv4.conf.IF.forwarding` or `net.ipv6.conf.IF.forwarding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// The family.
    pub ipv6: bool,
    /// The device's index; `None` is `all`.
    pub ifindex: Option<u32>,
    /// Its value.
    pub on: bool,
}

/// A table that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // named after their contents
pub enum Table {
    Links,
    Addresses,
    Forwarding4,
    Forwarding6,
    Rules4,
    Rules6,
    NextHops,
    Neighbours,
    Routes4,
    Routes6,
}

impl Table {
    /// The message type of the request, the header that follows it, and the length of that header in bytes.
    fn request(self) -> (u16, [u8; 16], usize) {
        let mut header = [0; 16];
        let (kind, length, family) = match self {
            Self::Links => (libc::RTM_GETLINK, 16, 0),
            Self::Addresses => (libc::RTM_GETADDR, 8, 0),
            Self::Forwarding4 => (RTM_GETNETCONF, 4, wire::INET),
            Self::Forwarding6 => (RTM_GETNETCONF, 4, wire::INET6),
            Self::Rules4 => (libc::RTM_GETRULE, 12, wire::INET),
            Self::Rules6 => (libc::RTM_GETRULE, 12, wire::INET6),
            Self::NextHops => (RTM_GETNEXTHOP, 8, 0),
            Self::Neighbours => (libc::RTM_GETNEIGH, 12, 0),
            Self::Routes4 => (libc::RTM_GETROUTE, 12, wire::INET),
            Self::Routes6 => (libc::RTM_GETROUTE, 12, wire::INET6),
        };
        header[0] = family;
        (kind, header, length)
    }
}

const RTM_GETNEXTHOP: u16 = 106;
const RTM_NEWNETCONF: u16 = 80;
const RTM_GETNETCONF: u16 = 82;

/// The progress of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The listing is not complete: read on, at the latest when [`Follower::listing_fd`] is readable.
    More,
    /// The listing is complete. If it is not `consistent`, the table changed while it was read, and
    /// entries may have been left out.
    Done {
        /// True if the kernel reported no interruption.
        consistent: bool,
    },
}

/// Sockets that follow one namespace.
#[derive(Debug)]
pub struct Follower {
    events: Channel,
    listing: Channel,
    asking: Channel,
    sequence: u32,
    consistent: bool,
}

impl Follower {
    /// Subscribes in the calling thread's network namespace. List afterwards: a change in between
    /// is then seen twice rather than never.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let open = || {
            let channel = Channel::open(NETLINK_ROUTE)?;
            channel.socket().set_non_blocking(true)?;
            io::Result::Ok(channel)
        };
        let events = open()?;
        // RcvBufForce needs CAP_NET_ADMIN. Without it losses are likelier; they are reported.
        let _ = setsockopt(&events.fd(), sockopt::RcvBufForce, &EVENTS_BYTES);
        for group in GROUPS {
            // Fails on a kernel without next-hop objects or IPv6, which has no such events.
            let _ = events.socket().add_membership(group);
        }
        Ok(Self { events, listing: open()?, asking: open()?, sequence: 0, consistent: true })
    }
    /// Becomes readable when [`Follower::read`] has something.
    #[must_use]
    pub fn events_fd(&self) -> RawFd {
        self.events.fd().as_raw_fd()
    }
    /// Becomes readable when [`Follower::read_listing`] has something.
    #[must_use]
    pub fn listing_fd(&self) -> RawFd {
        self.listing.fd().as_raw_fd()
    }

    /// Passes up to about `most` events to `each` and returns their number. Fewer than `most` means
    /// that there is nothing more to read.
    pub fn read(&mut self, most: usize, each: &mut dyn FnMut(Notification<'_>)) -> usize {
        let mut count = 0;
        while count < most {
            match self.events.receive() {
                Ok(datagram) => for_each_message(datagram, |message| {
                    count += 1;
                    notify(message.message_type(), message.flags(), message.payload(), each);
                }),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS, or another error that may have cost a message. The next read continues.
                Err(_) => {
                    count += 1;
                    each(Notification::Overrun);
                }
            }
        }
        count
    }

    /// Begins a listing. One that is running is abandoned.
    ///
    /// # Errors
    /// When the kernel does not take the request.
    pub fn list(&mut self, table: Table) -> io::Result<()> {
        if !self.drained() {
            // A socket can run only one listing at a time.
            let fresh = Channel::open(NETLINK_ROUTE)?;
            fresh.socket().set_non_blocking(true)?;
            self.listing = fresh;
        }
        let (kind, header, length) = table.request();
        self.sequence = self.sequence.wrapping_add(1);
        self.consistent = true;
        let bytes = message(kind, NLM_F_REQUEST | NLM_F_DUMP, self.sequence, &header[..length]);
        self.listing.socket().send(&bytes, 0).map(drop)
    }
    fn drained(&mut self) -> bool {
        self.sequence == 0 || self.listing.receive().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }
    /// Passes up to about `most` entries of the running listing to `each`.
    ///
    /// # Errors
    /// When the kernel does not list this table, with its reason, and when an answer was lost.
    pub fn read_listing(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(Notification<'_>),
    ) -> io::Result<Progress> {
        let mut count = 0;
        let sequence = self.sequence;
        while count < most {
            let datagram = match self.listing.receive() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::More),
                datagram => datagram?,
            };
            let mut end = None;
            let mut interrupted = false;
            for_each_message(datagram, |message| {
                if message.sequence_number() != sequence {
                    return;
                }
                interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
                match message.message_type() {
                    NLMSG_DONE | NLMSG_ERROR => end = Some(code(message.payload())),
                    kind => {
                        count += 1;
                        notify(kind, message.flags(), message.payload(), each);
                    }
                }
            });
            self.consistent &= !interrupted;
            match end {
                Some(0) => return Ok(Progress::Done { consistent: self.consistent }),
                Some(code) => return Err(io::Error::from_raw_os_error(code.saturating_neg())),
                None => {}
            }
        }
        Ok(Progress::More)
    }

    /// Reports to the kernel that neighbours are in use (NTF_USE): it resolves those that it does not know,
    /// and probes those from which it has received nothing for some time. Neighbours on a removed device are
    /// left out.
    pub fn use_neighbours(&mut self, neighbours: &[(u32, IpAddr)]) {
        for batch in neighbours.chunks(USE_BATCH) {
            let mut bytes = Vec::new();
            for (ifindex, address) in batch {
                let mut body = [0; 12];
                body[0] = if address.is_ipv4() { wire::INET } else { wire::INET6 };
                body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
                body[10] = NTF_USE;
                let mut body = body.to_vec();
                match address {
                    IpAddr::V4(v4) => attribute(&mut body, 1, &v4.octets()),
                    IpAddr::V6(v6) => attribute(&mut body, 1, &v6.octets()),
                }
                bytes.extend(message(libc::RTM_NEWNEIGH, NLM_F_REQUEST | NLM_F_CREATE, 0, &body));
            }
            // A refusal means that the device or its address was just removed, which an event
            // reports.
            let _ = self.asking.socket().send(&bytes, 0);
            while self.asking.receive().is_ok() {}
        }
    }
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(wire::HEADER_LEN + body.len());
    bytes.extend(((wire::HEADER_LEN + body.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// The code of NLMSG_DONE or NLMSG_ERROR; 0 is success.
fn code(payload: &[u8]) -> i32 {
    payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes)).min(0)
}

fn notify(kind: u16, flags: u16, body: &[u8], each: &mut dyn FnMut(Notification<'_>)) {
    match kind {
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => match Route::new(body) {
            Ok(route) => each(Notification::Route { route, flags, gone: kind == libc::RTM_DELROUTE }),
            // Routes of another family, such as multicast routing and MPLS.
            Err(wire::Malformed::Family) => {}
            Err(_) => each(Notification::Unreadable),
        },
        wire::NEW_NEXTHOP | wire::DEL_NEXTHOP => match NextHopObject::new(body) {
            Ok(object) => each(Notification::NextHop(object, kind == wire::DEL_NEXTHOP)),
            Err(_) => each(Notification::Unreadable),
        },
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
            let gone = kind == libc::RTM_DELNEIGH;
            decode::neighbour(body)
                .into_iter()
                .for_each(|neighbour| each(Notification::Neighbour(neighbour, gone)));
        }
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            let gone = kind == libc::RTM_DELLINK;
            decode::link(body).into_iter().for_each(|link| each(Notification::Link(Box::new(link), gone)));
        }
        libc::RTM_NEWADDR | libc::RTM_DELADDR => {
            let gone = kind == libc::RTM_DELADDR;
            decode::address(body).into_iter().for_each(|address| each(Notification::Address(address, gone)));
        }
        libc::RTM_NEWRULE | libc::RTM_DELRULE => {
            let gone = kind == libc::RTM_DELRULE;
            rule(body).into_iter().for_each(|rule| each(Notification::Rule(rule, gone)));
        }
        RTM_NEWNETCONF => forwarding(body).into_iter().for_each(|it| each(Notification::Forwarding(it))),
        _ => {}
    }
}

/// Decodes a rule (linux/fib_rules.h). A rule with any attribute that may change its meaning is not
/// a default rule.
fn rule(body: &[u8]) -> Option<Rule> {
    const TO_TABLE: u8 = 1;
    const INVERT: u32 = 2;
    const PRIORITY: u16 = 6;
    const SUPPRESS_PREFIXLEN: u16 = 14;
    const TABLE: u16 = 15;
    const PAD: u16 = 18;
    const PROTOCOL: u16 = 21;
    let &[family, dst_len, src_len, tos, table, _, _, action, f0, f1, f2, f3, ..] = body else { return None };
    let ipv6 = match family {
        wire::INET => false,
        wire::INET6 => true,
        _ => return None,
    };
    let mut plain = (dst_len, src_len, tos, action) == (0, 0, 0, TO_TABLE)
        && u32::from_ne_bytes([f0, f1, f2, f3]) & INVERT == 0;
    let (mut priority, mut table) = (0, u32::from(table));
    for nla in decode::attributes(body, 12) {
        let number = nla.value().try_into().map(u32::from_ne_bytes);
        match (nla.kind(), number) {
            (PRIORITY, Ok(number)) => priority = number,
            (TABLE, Ok(number)) => table = number,
            (SUPPRESS_PREFIXLEN, Ok(u32::MAX)) | (PAD | PROTOCOL, _) => {}
            _ => plain = false,
        }
    }
    let standard = plain && matches!((priority, table), (0, 255) | (32_766, 254) | (32_767, 253));
    Some(Rule { ipv6, standard: standard.then_some(table) })
}

/// Decodes a netconf message (linux/netconf.h).
fn forwarding(body: &[u8]) -> Option<Forwarding> {
    const IFINDEX: u16 = 1;
    const FORWARDING: u16 = 2;
    const ALL: i32 = -1;
    let ipv6 = match *body.first()? {
        wire::INET => false,
        wire::INET6 => true,
        _ => return None,
    };
    let (mut ifindex, mut on) = (0, None);
    for nla in decode::attributes(body, 4) {
        let number = nla.value().try_into().map(i32::from_ne_bytes);
        match (nla.kind(), number) {
            (IFINDEX, Ok(number)) => ifindex = number,
            (FORWARDING, Ok(number)) => on = Some(number != 0),
            _ => {}
        }
    }
    let ifindex = match ifindex {
        ALL => None,
        // `default`, which belongs to no device.
        ..=0 => return None,
        index => Some(index.unsigned_abs()),
    };
    Some(Forwarding { ipv6, ifindex, on: on? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Instant;

    fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        attribute(&mut bytes, kind, value);
        bytes
    }

    #[test]
    fn rules() {
        let check = |header: [u8; 8], list: &[(u16, u32)], want: Option<u32>| {
            let mut body = header.to_vec();
            body.extend([0; 4]);
            for (kind, value) in list {
                body.extend(nla(*kind, &value.to_ne_bytes()));
            }
            assert_eq!(rule(&body).unwrap().standard, want, "{header:?} {list:?}");
        };
        let header = [2, 0, 0, 0, 254, 0, 0, 1];
        let suppress = (14, u32::MAX);
        check([2, 0, 0, 0, 255, 0, 0, 1], &[(15, 255), suppress], Some(255));
        check(header, &[(15, 254), suppress, (6, 32_766)], Some(254));
        check([10, 0, 0, 0, 253, 0, 0, 1], &[(15, 253), (6, 32_767)], Some(253));
        check(header, &[(15, 100), (6, 32_766)], None);
        check(header, &[(15, 254), (6, 100)], None);
        check(header, &[(15, 254), (6, 32_766), (10, 7)], None);
        check([2, 24, 0, 0, 254, 0, 0, 1], &[(15, 254), (6, 32_766)], None);
        check([2, 0, 0, 0, 254, 0, 0, 6], &[(15, 254), (6, 32_766)], None);
        assert_eq!(rule(&[2; 11]), None);
        assert_eq!(rule(&[7; 12]), None);
    }

    #[test]
    fn forwarding_of_an_interface() {
        let check = |family: u8, list: &[(u16, i32)], want: Option<(Option<u32>, bool)>| {
            let mut body = vec![family, 0, 0, 0];
            for (kind, value) in list {
                body.extend(nla(*kind, &value.to_ne_bytes()));
            }
            assert_eq!(forwarding(&body).map(|it| (it.ifindex, it.on)), want, "{list:?}");
        };
        check(2, &[(1, 7), (2, 1), (3, 0)], Some((Some(7), true)));
        check(10, &[(1, -1), (2, 0)], Some((None, false)));
        check(2, &[(1, -2), (2, 1)], None);
        check(2, &[(1, 7)], None);
        check(3, &[(1, 7), (2, 1)], None);
    }

    /// Prints the figures in the comment at the top of this file; it asserts no timing.
    #[test]
    fn routes_a_second() {
        let net = |n: u32| ipnet::IpNet::new(std::net::Ipv4Addr::from(n << 8).into(), 24).unwrap();
        let mut bodies = Vec::new();
        for n in 0..10_000 {
            let mut route = Route::to(net(n));
            route.table = 254;
            let mut out = Vec::new();
            let mut writer = wire::Writer::route(&mut out, wire::NEW_ROUTE, 0, &route);
            let hop = wire::Hop { via: Some([10, 0, 0, 1].into()), ifindex: 3, weight: 1, flags: 0 };
            writer.hops(route.dest, &[hop]);
            writer.end();
            bodies.push(out.split_off(wire::HEADER_LEN));
        }
        let start = Instant::now();
        let views = bodies
            .iter()
            .filter(|body| Route::new(body).is_ok_and(|route| route.hops().count() == 1))
            .count();
        let view_time = start.elapsed();
        let start = Instant::now();
        let values =
            bodies.iter().filter(|body| decode::route(body).is_some_and(|r| r.next_hops.len() == 1)).count();
        println!("10,000 routes: {view_time:?} as views, {:?} as values", start.elapsed());
        assert_eq!((views, values), (10_000, 10_000));
    }

    proptest! {
        /// No input may panic.
        #[test]
        fn any_bytes(kind in prop::sample::select(vec![16u16, 20, 24, 25, 28, 32, 33, 80, 104, 105]), bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            notify(kind, 0, &bytes, &mut |notification| drop(format!("{notification:?}")));
        }
    }
}
