//! Notifications that a device's properties changed: its link, queueing disciplines, filters, IP settings, offloads and XDP
//! features, in this network namespace and in those that hold the far ends of its veth pairs.
//!
//! Read rtnetlink(7), netlink(7) on NETLINK_LISTEN_ALL_NSID, and the kernel's networking/ethtool-netlink and
//! netlink/specs/netdev.yaml first. A notification names a device and nothing else: the reader asks the kernel for the current
//! values, so a notification that arrives twice or out of order does no harm.
//!
//! Invariant: a lost notification is reported as [`Changed::Any`]. Programs attached to TCX send no notification at all;
//! callers have to look for such programs themselves.

#![allow(unsafe_code)]

use crate::decode::attributes;
use crate::ethtool::{ETHTOOL, HEADER, HEADER_DEV_INDEX, NETDEV, NETDEV_IFINDEX};
use crate::genl::Generic;
use crate::socket::{Channel, for_each_message};
use netlink_packet_core::parse_u32;
use netlink_packet_generic::constants::GENL_HDRLEN;
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The maximum number of datagrams that one read takes from each socket.
const DATAGRAMS_A_READ: usize = 1024;
/// Size of the receive buffers in bytes.
const WATCH_BYTES: usize = 4 << 20;
/// The buffer for one datagram: notifications are single messages, and those of links are the longest.
const DATAGRAM_BYTES: usize = 32 << 10;
/// `NETLINK_LISTEN_ALL_NSID`, linux/netlink.h: the option, and the kind of the control message.
const LISTEN_ALL_NSID: libc::c_int = 8;
/// The groups of rtnetlink that are subscribed to.
const ROUTE_GROUPS: [u32; 4] =
    [libc::RTNLGRP_LINK, libc::RTNLGRP_TC, libc::RTNLGRP_IPV4_NETCONF, libc::RTNLGRP_IPV6_NETCONF];
/// RTM_NEWNETCONF, the bytes of `struct netconfmsg` with padding, and NETCONFA_IFINDEX: linux/netconf.h.
const NEW_NETCONF: u16 = 80;
const NETCONF_HEADER: usize = 4;
const NETCONF_IFINDEX: u16 = 1;
/// The ifindex that a message about a shared block of filters has (`TCM_IFINDEX_MAGIC_BLOCK`): any device may use the block.
const SHARED_BLOCK: u32 = 0xffff_ffff;

/// The device or devices whose properties have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Changed {
    /// A device, in this namespace or in the one that `netnsid` names (as [`crate::Link::peer_netnsid`] does).
    Device {
        /// This namespace's id for the device's namespace; `None` means this namespace.
        netnsid: Option<i32>,
        /// The device's index there.
        ifindex: u32,
    },
    /// Notifications were lost, or one concerns devices that it does not name: any device may have changed.
    Any,
}

/// A subscription to changes of devices' properties.
#[derive(Debug)]
pub struct Watch {
    sockets: Vec<(Channel, Decoder)>,
    /// Notifications that this kernel does not send, each with the reason.
    missing: Vec<String>,
    buffer: Vec<u8>,
}

/// How the datagrams of one socket are read.
#[derive(Debug, Clone, Copy)]
enum Decoder {
    Route,
    Generic { ethtool: Option<u16>, netdev: Option<u16> },
}

impl Watch {
    /// Subscribes in the calling thread's network namespace, and in every namespace that has an id there.
    ///
    /// # Errors
    /// When the kernel gives no rtnetlink socket. [`Watch::missing`] lists other notifications that the
    /// kernel does not send.
    pub fn open() -> io::Result<Self> {
        let mut missing = Vec::new();
        let route = subscribed(NETLINK_ROUTE, &ROUTE_GROUPS, &mut missing)?;
        let mut sockets = vec![(route, Decoder::Route)];
        let mut asking = Generic::open()?;
        let mut groups = Vec::new();
        let mut family = |name: &'static str, group: &'static str| match asking.group(name, group) {
            Ok((family, group)) => {
                groups.push(group);
                Some(family)
            }
            Err(refusal) => {
                missing.push(format!("notifications of {name} netlink: {}", refusal.source));
                None
            }
        };
        let (ethtool, netdev) = (family(ETHTOOL, "monitor"), family(NETDEV, "mgmt"));
        if !groups.is_empty() {
            let decoder = Decoder::Generic { ethtool, netdev };
            sockets.push((subscribed(NETLINK_GENERIC, &groups, &mut missing)?, decoder));
        }
        Ok(Self { sockets, missing, buffer: vec![0; DATAGRAM_BYTES] })
    }

    /// The notifications that this kernel does not send, one line each.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The sockets; each is readable when it has a notification.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(channel, _)| channel.fd())
    }

    /// Passes the changes since the last call to `each`, repetitions included; does not wait.
    pub fn read(&mut self, mut each: impl FnMut(Changed)) {
        for (channel, decoder) in &self.sockets {
            for _ in 0..DATAGRAMS_A_READ {
                match receive(channel.fd(), &mut self.buffer) {
                    Ok((length, netnsid)) => decode(*decoder, &self.buffer[..length], netnsid, &mut each),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // ENOBUFS, or another error that may have cost a message.
                    Err(_) => {
                        each(Changed::Any);
                        break;
                    }
                }
            }
        }
    }
}

/// Opens a socket in these multicast groups for every namespace that has an id here.
fn subscribed(protocol: isize, groups: &[u32], missing: &mut Vec<String>) -> io::Result<Channel> {
    let channel = Channel::open(protocol)?;
    // RcvBufForce needs CAP_NET_ADMIN. Without it losses are likelier; they are reported.
    let _ = setsockopt(&channel.fd(), sockopt::RcvBufForce, &WATCH_BYTES);
    if let Err(error) = channel.socket().set_listen_all_namespaces(true) {
        missing.push(format!("notifications of other network namespaces: {error}"));
    }
    for group in groups {
        channel.socket().add_membership(*group)?;
    }
    channel.socket().set_non_blocking(true)?;
    Ok(channel)
}

/// The devices that a datagram is about.
fn decode(decoder: Decoder, datagram: &[u8], netnsid: Option<i32>, each: &mut impl FnMut(Changed)) {
    for_each_message(datagram, |message| {
        let payload = message.payload();
        let ifindex = match (decoder, message.message_type()) {
            (Decoder::Route, kind) => route_ifindex(kind, payload),
            (Decoder::Generic { ethtool, .. }, kind) if Some(kind) == ethtool => ethtool_ifindex(payload),
            (Decoder::Generic { netdev, .. }, kind) if Some(kind) == netdev => {
                attribute_u32(payload.get(GENL_HDRLEN..).unwrap_or_default(), NETDEV_IFINDEX)
            }
            _ => None,
        };
        match ifindex {
            Some(ifindex) if ifindex != 0 && ifindex != SHARED_BLOCK => {
                each(Changed::Device { netnsid, ifindex });
            }
            Some(SHARED_BLOCK) => each(Changed::Any),
            _ => {}
        }
    });
}

/// The device index of a message: `struct ifinfomsg` and `struct tcmsg` have it at the same offset, a change of IP
/// settings as an attribute.
fn route_ifindex(kind: u16, payload: &[u8]) -> Option<u32> {
    if kind == NEW_NETCONF {
        // The settings for all devices, and the defaults for new ones, have negative numbers instead of an
        // index.
        return attribute_u32(payload.get(NETCONF_HEADER..).unwrap_or_default(), NETCONF_IFINDEX)
            .filter(|ifindex| i32::try_from(*ifindex).is_ok());
    }
    let known = matches!(
        kind,
        libc::RTM_NEWLINK
            | libc::RTM_DELLINK
            | libc::RTM_NEWQDISC
            | libc::RTM_DELQDISC
            | libc::RTM_NEWTFILTER
            | libc::RTM_DELTFILTER
    );
    let bytes = payload.get(4..8).filter(|_| known)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn ethtool_ifindex(payload: &[u8]) -> Option<u32> {
    let payload = payload.get(GENL_HDRLEN..)?;
    let header = attributes(payload, 0).find(|nla| nla.kind() == HEADER)?;
    attribute_u32(header.value(), HEADER_DEV_INDEX)
}

fn attribute_u32(bytes: &[u8], kind: u16) -> Option<u32> {
    let found = attributes(bytes, 0).find(|nla| nla.kind() == kind)?;
    parse_u32(found.value()).ok()
}

/// The buffer of the control message that names a namespace.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    netnsid: i32,
    /// Padding: control messages are aligned to eight bytes.
    rest: i32,
}

/// Receives one datagram of the kernel, and the id of its namespace.
fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    // SAFETY: all three are plain data of the C library, for which zeros are valid.
    let (mut from, mut control, mut header): (libc::sockaddr_nl, Control, libc::msghdr) =
        unsafe { (zeroed(), zeroed(), zeroed()) };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    header.msg_name = (&raw mut from).cast();
    header.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the header names live memory with its sizes, none of it otherwise borrowed during the call.
    let length = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    if header.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    // Other processes may send to this socket; only datagrams of the kernel are accepted.
    let length = if from.nl_pid == 0 { length as usize } else { 0 };
    let named = header.msg_controllen >= size_of::<libc::cmsghdr>() + size_of::<i32>()
        && control.header.cmsg_level == libc::SOL_NETLINK
        && control.header.cmsg_type == LISTEN_ALL_NSID;
    Ok((length, named.then_some(control.netnsid)))
}
