//! The hooks at which the kernel's packet filter, NAT and IPsec handle packets that the kernel forwards.
//!
//! Read nft(8), the kernel's networking/nf_flowtable and xfrm(8) (ip-xfrm) first. nftables and XFRM announce changes
//! over netlink; legacy iptables and BPF programs announce nothing and are listed at intervals
//! ([`FilterWatch::unannounced`]).
//!
//! Invariants: a hook that is announced is returned with the announcement ([`FilterWatch::events`]), before anything is
//! listed; a failed listing is an error and never an empty list; reading allocates no more than [`MOST`] hooks.

mod decode;
mod legacy;
mod programs;

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
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;

/// The most hooks returned by one listing or one reading of events. The kernel allows more, but one
/// hook is enough to decide.
pub const MOST: usize = 4096;
/// The maximum number of datagrams read in one call of [`FilterWatch::events`].
const MOST_DATAGRAMS: usize = 1024;

/// A hook at which the kernel handles forwarded packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// It sees IPv4 packets.
    pub ipv4: bool,
    /// It sees IPv6 packets.
    pub ipv6: bool,
    /// Where in the packet's path it is.
    pub point: HookPoint,
    /// The owner of the hook, for messages: `nftables chain inet filter forward`.
    pub owner: String,
}

/// Where in the packet's path a hook is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPoint {
    /// Prerouting, forward, postrouting, or XFRM: all forwarded packets pass it.
    Forwarding,
    /// At the ingress of these netdevs. A name that ends in `*` is a prefix.
    Ingress(Vec<String>),
    /// At the egress of these netdevs.
    Egress(Vec<String>),
}

/// Sockets that follow the hooks of one network namespace.
#[derive(Debug)]
pub struct FilterWatch {
    namespace: File,
    /// The nftables sockets; `None` when this kernel has no nftables.
    nftables: Option<Sockets>,
    /// The XFRM sockets; `None` when this kernel has no XFRM.
    xfrm: Option<Sockets>,
    programs: programs::Links,
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
            // Without the right to listen, listing is refused too, and that is reported.
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
            programs: programs::Links::default(),
        })
    }
    /// As [`Self::open`], but without XFRM: enough to follow chains at netdevs.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open_chains() -> io::Result<Self> {
        let nftables = Sockets::open(NETLINK_NETFILTER, &[decode::NFNLGRP_NFTABLES])?;
        Ok(Self { namespace: netns::current()?, nftables, xfrm: None, programs: programs::Links::default() })
    }
    /// The descriptors become readable when [`Self::events`] has something.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.nftables, &self.xfrm].into_iter().flatten().map(|sockets| sockets.events.fd())
    }

    /// Reads announcements and adds new hooks to `new`. Returns true if something else has changed
    /// or announcements were lost, so that [`Self::list`] has to be called.
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
                                // The chain's table may be dormant, which only a listing shows.
                                changed = true;
                            }
                            Announced::Hook(_) | Announced::Change => changed = true,
                            Announced::Nothing => {}
                        }
                    }),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // ENOBUFS, or another error that may have cost an announcement.
                    Err(_) => changed = true,
                }
            }
        }
        changed
    }

    /// Lists the hooks of nftables and of XFRM, without chains of dormant tables.
    ///
    /// # Errors
    /// When the kernel does not list them, for example without CAP_NET_ADMIN.
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
            hooks.extend(live.map(|chain| chain.hook).take(MOST + 1));
            if hooks.len() > MOST {
                // A hook that is left out might be the only one of its family or netdev.
                let many = io::Error::other(format!("there are more than {MOST}"));
                return Err(Error::new("listing the chains of nftables", many));
            }
        }
        if let Some(sockets) = &mut self.xfrm {
            let wrong = |refusal| Error::refused("listing the policies of XFRM", refusal);
            let policies = ask(sockets, decode::GET_POLICY, &[], decode::policy).map_err(wrong)?;
            hooks.extend(policies);
            hooks.extend(default_policy(sockets).map_err(wrong)?);
        }
        Ok(hooks)
    }

    /// Lists the hooks that are not announced: the chains of legacy iptables that handle forwarded packets (those with rules, and
    /// those with a policy other than ACCEPT; listing rules with iptables loads a table that has neither), and BPF programs.
    ///
    /// # Errors
    /// When the kernel does not list them.
    pub fn unannounced(&mut self) -> Result<BTreeSet<Hook>> {
        let legacy = |error| Error::new("listing the tables of iptables", error);
        let programs = |error| Error::new("listing the BPF programs at netfilter", error);
        let mut hooks = inside(&self.namespace, legacy::hooks).map_err(legacy)?;
        let links = &mut self.programs;
        hooks.extend(inside(&self.namespace, || links.list()).map_err(programs)?);
        Ok(hooks)
    }
}

/// Runs `list` in `namespace`: on the calling thread if it is in that namespace, otherwise on a fresh thread.
fn inside<T: Send>(namespace: &File, list: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let (this, that) = (netns::current()?.metadata()?, namespace.metadata()?);
    if (this.dev(), this.ino()) == (that.dev(), that.ino()) {
        list()
    } else {
        netns::run_in(namespace, list)?
    }
}

/// Lists one kind of object. A kernel without that kind has none.
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

/// The hook for `ip xfrm policy setdefault`, which decides on packets that no policy matches.
fn default_policy(sockets: &mut Sockets) -> Result<Option<Hook>, Refusal> {
    let mut hook = None;
    let request = Request { kind: decode::GET_DEFAULT, body: vec![0; 4] };
    let outcome = sockets.asking.request(0, request, |kind, body| hook = decode::default_policy(kind, body));
    match outcome {
        Err(refusal) if !absent(&refusal) => Err(refusal),
        _ => Ok(hook),
    }
}

/// True for the errors of a kernel that lacks the requested feature.
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
