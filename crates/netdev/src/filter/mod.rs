//! The kernel's packet filter, NAT and IPsec: where they handle packets that the kernel forwards.
//!
//! Read nft(8), the kernel's networking/nf_flowtable and xfrm(8) (ip-xfrm) first. nftables and XFRM announce changes over
//! netlink; legacy iptables announces nothing and is listed at intervals ([`FilterWatch::legacy`]).
//!
//! Invariants: a hook that is announced is handed over with the announcement ([`FilterWatch::events`]), before anything is
//! listed; what can't be listed is an error and never an empty list; reading allocates no more than [`MOST`] hooks.

mod decode;
mod legacy;

use crate::Result;
use crate::error::Error;
use crate::netns;
use crate::socket::{Channel, Refusal, for_each_message};
use decode::Announced;
use netlink_packet_core::NetlinkSerializable;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_XFRM};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Most hooks that one listing or one reading of events answers with. The kernel allows more, and one is enough to decide.
pub const MOST: usize = 4096;
/// Most datagrams read in one call of [`FilterWatch::events`].
const MOST_DATAGRAMS: usize = 1024;

/// One place where the kernel handles packets on their way through it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// It sees IPv4 packets.
    pub ipv4: bool,
    /// It sees IPv6 packets.
    pub ipv6: bool,
    /// Where it stands.
    pub point: HookPoint,
    /// What stands there, for people: `nftables chain inet filter forward`.
    pub owner: String,
}

/// Where a hook stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPoint {
    /// Prerouting, forward, postrouting, or XFRM: all forwarded packets pass it.
    Forwarding,
    /// At the ingress of these netdevs. A name that ends in `*` stands for all that begin so.
    Ingress(Vec<String>),
    /// At the egress of these netdevs.
    Egress(Vec<String>),
}

/// Sockets that follow the hooks of one network namespace.
#[derive(Debug)]
pub struct FilterWatch {
    namespace: File,
    /// `None`: this kernel has no nftables.
    nftables: Option<Sockets>,
    /// `None`: this kernel has no XFRM.
    xfrm: Option<Sockets>,
}

/// The sockets of one netlink family.
#[derive(Debug)]
struct Sockets {
    events: Channel,
    asking: Channel,
}

impl Sockets {
    /// `None` when the kernel does not have the family.
    fn open(protocol: isize, groups: &[u32]) -> io::Result<Option<Self>> {
        let events = match Channel::open(protocol) {
            Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(None),
            events => events?,
        };
        events.socket().set_non_blocking(true)?;
        for group in groups {
            // Without the right to listen there is none to list either, and that is reported.
            let _ = events.socket().add_membership(*group);
        }
        Ok(Some(Self { events, asking: Channel::open(protocol)? }))
    }
}

impl FilterWatch {
    /// Subscribes in the calling thread's network namespace. List afterwards.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            namespace: netns::current()?,
            nftables: Sockets::open(NETLINK_NETFILTER, &[decode::NFNLGRP_NFTABLES])?,
            xfrm: Sockets::open(NETLINK_XFRM, &[decode::XFRMNLGRP_EXPIRE, decode::XFRMNLGRP_POLICY])?,
        })
    }
    /// Readable when [`Self::events`] has something.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        [&self.nftables, &self.xfrm].into_iter().flatten().map(|sockets| sockets.events.fd().as_raw_fd())
    }

    /// Reads announcements. Hooks that are new are added to `new`; true means that something else has changed, or that
    /// announcements were lost, and that [`Self::list`] will find out what.
    pub fn events(&mut self, new: &mut BTreeSet<Hook>) -> bool {
        let mut changed = false;
        for (sockets, read) in [
            (&mut self.nftables, decode::nftables as fn(u16, &[u8]) -> Announced),
            (&mut self.xfrm, decode::xfrm),
        ] {
            let Some(sockets) = sockets else { continue };
            for _ in 0..MOST_DATAGRAMS {
                match sockets.events.receive() {
                    Ok(datagram) => for_each_message(datagram, |message| {
                        match read(message.message_type(), message.payload()) {
                            Announced::Hook(hook) if new.len() < MOST => {
                                new.insert(hook);
                                // Its table may be dormant: a listing knows.
                                changed = true;
                            }
                            Announced::Hook(_) | Announced::Change => changed = true,
                            Announced::Nothing => {}
                        }
                    }),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // ENOBUFS, and whatever else may have cost an announcement.
                    Err(_) => changed = true,
                }
            }
        }
        changed
    }

    /// The hooks of nftables and of XFRM. A chain of a dormant table is none.
    ///
    /// # Errors
    /// When the kernel does not list them, for want of CAP_NET_ADMIN for instance.
    pub fn list(&mut self) -> Result<BTreeSet<Hook>> {
        let mut hooks = BTreeSet::new();
        if let Some(sockets) = &mut self.nftables {
            let wrong = |refusal| Error::refused("listing the chains of nftables", refusal);
            let tables =
                ask(sockets, decode::GET_TABLE, &decode::ANY_FAMILY, decode::dormant).map_err(wrong)?;
            let dormant: BTreeSet<_> = tables.into_iter().collect();
            let chains =
                ask(sockets, decode::GET_CHAIN, &decode::ANY_FAMILY, decode::chain).map_err(wrong)?;
            let live = chains.into_iter().filter(|chain| !dormant.contains(&chain.table));
            hooks.extend(live.map(|chain| chain.hook).take(MOST));
        }
        if let Some(sockets) = &mut self.xfrm {
            let wrong = |refusal| Error::refused("listing the policies of XFRM", refusal);
            let policies = ask(sockets, decode::GET_POLICY, &[], decode::policy).map_err(wrong)?;
            hooks.extend(policies);
            hooks.extend(default_policy(sockets).map_err(wrong)?);
        }
        Ok(hooks)
    }

    /// The chains of legacy iptables that handle forwarded packets: those with rules, and those whose policy is not to
    /// accept. A table that iptables has only looked at has neither.
    ///
    /// # Errors
    /// When the kernel does not list them.
    pub fn legacy(&self) -> Result<BTreeSet<Hook>> {
        let wrong = |error| Error::new("listing the tables of iptables", error);
        legacy::hooks(&self.namespace).map_err(wrong)
    }
}

/// A listing; a kernel that has no such table has nothing in it.
fn ask<T>(
    sockets: &mut Sockets,
    kind: u16,
    body: &[u8],
    parse: impl Fn(u16, &[u8]) -> Option<T>,
) -> Result<Vec<T>, Refusal> {
    match sockets.asking.dump(Request { kind, body: body.to_vec() }, parse) {
        Err(refusal) if absent(&refusal) => Ok(Vec::new()),
        answer => answer,
    }
}

/// `ip xfrm policy setdefault`: what is done with packets that no policy names.
fn default_policy(sockets: &mut Sockets) -> Result<Option<Hook>, Refusal> {
    let mut hook = None;
    let request = Request { kind: decode::GET_DEFAULT, body: vec![0; 4] };
    let outcome = sockets.asking.request(0, request, |kind, body| hook = decode::default_policy(kind, body));
    match outcome {
        Err(refusal) if !absent(&refusal) => Err(refusal),
        _ => Ok(hook),
    }
}

/// The answers of a kernel that does not have what is asked for.
fn absent(refusal: &Refusal) -> bool {
    matches!(refusal.source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT))
}

/// A request of any netlink family.
#[derive(Debug, Clone)]
struct Request {
    kind: u16,
    body: Vec<u8>,
}

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        self.kind
    }
    fn buffer_len(&self) -> usize {
        self.body.len()
    }
    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..self.body.len()].copy_from_slice(&self.body);
    }
}
