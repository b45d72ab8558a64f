//! Lists, changes, creates and deletes links.
//!
//! Read rtnetlink(7) first. Invariant: a name passed to the kernel is a valid device name, so it is neither a
//! pattern ("eth%d") nor a path.

use crate::error::Error;
use crate::{Link, Netdev, Result, decode};
use lanyard_types::MacAddr;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Longest name of a device in bytes: IFNAMSIZ less the terminator.
pub const NAME_MAX: usize = 15;
/// Longest alias in bytes: IFALIASZ less the terminator.
const ALIAS_MAX: usize = 255;

/// Changes of one device; `None` leaves a property as it is. The kernel applies them one after the
/// other, so after a refusal the earlier ones may remain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkChange {
    /// The device.
    pub ifindex: u32,
    /// A new name, 1 to 15 bytes.
    pub name: Option<String>,
    /// A new alias, up to 255 bytes; empty removes it.
    pub alias: Option<String>,
    /// A new MAC address.
    pub mac: Option<MacAddr>,
    /// A new MTU in bytes.
    pub mtu: Option<u32>,
    /// Enslave to this device; 0 releases.
    pub master: Option<u32>,
    /// IFF_PROMISC.
    pub promisc: Option<bool>,
    /// True: the kernel creates no IPv6 link-local address; false: EUI-64, the default. Applied
    /// before `up`, so that no address exists even briefly.
    pub addrgen_none: Option<bool>,
    /// IFF_UP.
    pub up: Option<bool>,
}

/// A veth pair to create.
#[derive(Debug, Clone, Default)]
pub struct Veth<'a> {
    /// The near end.
    pub name: &'a str,
    /// The far end.
    pub peer: &'a str,
    /// The near end's MAC address; `None` lets the kernel choose.
    pub mac: Option<MacAddr>,
    /// The far end's MAC address.
    pub peer_mac: Option<MacAddr>,
    /// MTU of both ends in bytes.
    pub mtu: Option<u32>,
    /// The namespace the far end goes to.
    pub peer_netns: Option<BorrowedFd<'a>>,
}

/// True for a name that the kernel accepts for a device, other than patterns.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let forbidden = |b: u8| b == b'/' || b == b':' || b == b'%' || b <= b' ' || b == 0x7f;
    (1..=NAME_MAX).contains(&name.len()) && name != "." && name != ".." && !name.bytes().any(forbidden)
}

fn checked(name: &str) -> Result<LinkAttribute> {
    if is_valid_name(name) {
        Ok(LinkAttribute::IfName(name.to_owned()))
    } else {
        Err(Error::new(
            format!("naming a device {name:?}"),
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a name is 1 to 15 bytes without space, '/', ':' or '%'",
            ),
        ))
    }
}

impl LinkChange {
    /// A `LinkChange` of `ifindex` in which every property is `None`.
    #[must_use]
    pub fn of(ifindex: u32) -> Self {
        Self { ifindex, ..Self::default() }
    }

    fn doing(&self) -> &'static str {
        match self {
            Self { name: Some(_), .. } => "renaming",
            Self { alias: Some(_), .. } => "setting the alias of",
            Self { mac: Some(_), .. } => "setting the MAC address of",
            Self { mtu: Some(_), .. } => "setting the MTU of",
            Self { master: Some(_), .. } => "setting the master of",
            Self { promisc: Some(_), .. } => "setting promiscuous mode of",
            Self { addrgen_none: Some(_), .. } => "setting IPv6 address generation of",
            Self { up: Some(true), .. } => "bringing up",
            Self { up: Some(false), .. } => "shutting down",
            Self { .. } => "changing",
        }
    }

    /// The messages for the change, in order.
    fn messages(&self) -> Result<Vec<LinkMessage>> {
        let mut main = message(self.ifindex);
        let mut messages = Vec::with_capacity(2);
        if let Some(none) = self.addrgen_none {
            let mode = if none { In6AddrGenMode::None } else { In6AddrGenMode::Eui64 };
            let mut first = message(self.ifindex);
            first.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
                AfSpecInet6::AddrGenMode(mode),
            ])]));
            messages.push(first);
        }
        if let Some(name) = &self.name {
            main.attributes.push(checked(name)?);
        }
        if let Some(alias) = &self.alias {
            if alias.len() > ALIAS_MAX || alias.contains('\0') {
                let reason = io::Error::new(io::ErrorKind::InvalidInput, "an alias is up to 255 bytes");
                return Err(Error::new("setting an alias", reason));
            }
            main.attributes.push(LinkAttribute::IfAlias(alias.clone()));
        }
        main.attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        main.attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        main.attributes.extend(self.master.map(LinkAttribute::Controller));
        for (wanted, flag) in [(self.promisc, LinkFlags::Promisc), (self.up, LinkFlags::Up)] {
            if let Some(on) = wanted {
                main.header.change_mask |= flag;
                main.header.flags.set(flag, on);
            }
        }
        if !main.attributes.is_empty() || !main.header.change_mask.is_empty() {
            messages.push(main);
        }
        Ok(messages)
    }
}

fn message(ifindex: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message
}

impl Veth<'_> {
    fn message(&self) -> Result<LinkMessage> {
        let mut far = message(0);
        far.attributes.push(checked(self.peer)?);
        far.attributes.extend(self.peer_mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        far.attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        far.attributes.extend(self.peer_netns.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        let mut near = message(0);
        near.attributes.push(checked(self.name)?);
        near.attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        near.attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        near.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
        ]));
        Ok(near)
    }
}

impl Netdev {
    /// All devices of the namespace, in the kernel's order.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn links(&self) -> Result<Vec<Link>> {
        let request = RouteNetlinkMessage::GetLink(message(0));
        let links = self.route.borrow_mut().dump(request, |_, payload| decode::link(payload));
        links.map_err(|refusal| Error::refused("listing the devices", refusal))
    }

    /// The device called `name`.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is none.
    pub fn link(&self, name: &str) -> Result<Link> {
        let mut request = message(0);
        request.attributes.push(checked(name)?);
        self.get_link(request).map_err(|refusal| Error::refused(format!("looking up {name}"), refusal))
    }

    /// The device with this index.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is none.
    pub fn link_by_index(&self, ifindex: u32) -> Result<Link> {
        let doing = || format!("looking up interface {ifindex}");
        if ifindex == 0 {
            return Err(Error::new(doing(), io::Error::from_raw_os_error(libc::ENODEV)));
        }
        self.get_link(message(ifindex)).map_err(|refusal| Error::refused(doing(), refusal))
    }

    /// The device with this index in another namespace, by this namespace's id for it ([`Link::peer_netnsid`]).
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is none; [`Error::is_permission`] without CAP_NET_ADMIN over that namespace.
    pub fn link_in_netns(&self, netnsid: i32, ifindex: u32) -> Result<Link> {
        let mut request = message(ifindex);
        request.attributes.push(LinkAttribute::IfNetnsId(netnsid));
        let doing = || format!("looking up interface {ifindex} of namespace {netnsid}");
        self.get_link(request).map_err(|refusal| Error::refused(doing(), refusal))
    }

    fn get_link(&self, request: LinkMessage) -> Result<Link, crate::socket::Refusal> {
        let mut link = None;
        let mut route = self.route.borrow_mut();
        route.request(0, RouteNetlinkMessage::GetLink(request), |_, payload| {
            link = link.take().or_else(|| decode::link(payload));
        })?;
        link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV).into())
    }

    /// The name of a device for an error message, or its index if it has been removed.
    pub(crate) fn label(&self, ifindex: u32) -> String {
        self.link_by_index(ifindex).map_or_else(|_| format!("interface {ifindex}"), |link| link.name)
    }

    /// Makes many changes in few system calls, in the order given; returns one result for each.
    #[must_use]
    pub fn change(&self, changes: &[LinkChange]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = Vec::with_capacity(changes.len());
        let mut owners = Vec::with_capacity(changes.len());
        let mut requests = Vec::with_capacity(changes.len());
        for (index, change) in changes.iter().enumerate() {
            let messages = change.messages();
            results.push(match messages {
                Ok(messages) => {
                    owners.extend(std::iter::repeat_n(index, messages.len()));
                    requests.extend(messages.into_iter().map(|m| (0, RouteNetlinkMessage::SetLink(m))));
                    Ok(())
                }
                Err(e) => Err(e),
            });
        }
        let answers = self.route.borrow_mut().batch(requests);
        for (index, answer) in owners.into_iter().zip(answers) {
            if let (Ok(()), Err(refusal)) = (&results[index], answer) {
                let change = &changes[index];
                let doing = format!("{} {}", change.doing(), self.label(change.ifindex));
                results[index] = Err(Error::refused(doing, refusal));
            }
        }
        results
    }

    fn change_one(&self, change: LinkChange) -> Result<()> {
        self.change(std::slice::from_ref(&change)).pop().unwrap_or(Ok(()))
    }

    /// Sets or clears IFF_UP: `no shutdown`, `shutdown`.
    ///
    /// # Errors
    /// The kernel's refusal; [`Error::is_gone`] when there is no such device.
    pub fn set_up(&self, ifindex: u32, up: bool) -> Result<()> {
        self.change_one(LinkChange { up: Some(up), ..LinkChange::of(ifindex) })
    }

    /// Sets the layer-3 MTU in bytes.
    ///
    /// # Errors
    /// The kernel's refusal: the value is outside [`Link::min_mtu`] to [`Link::max_mtu`], an XDP program does
    /// not allow it, or [`Error::is_gone`].
    pub fn set_mtu(&self, ifindex: u32, mtu: u32) -> Result<()> {
        self.change_one(LinkChange { mtu: Some(mtu), ..LinkChange::of(ifindex) })
    }

    /// Sets the MAC address.
    ///
    /// # Errors
    /// The kernel's refusal: a group address, a driver that requires the device to be down, or
    /// [`Error::is_gone`].
    pub fn set_mac(&self, ifindex: u32, mac: MacAddr) -> Result<()> {
        self.change_one(LinkChange { mac: Some(mac), ..LinkChange::of(ifindex) })
    }

    /// Sets or clears IFF_PROMISC, which remains after this process has ended.
    ///
    /// # Errors
    /// The kernel's refusal; [`Error::is_gone`].
    pub fn set_promisc(&self, ifindex: u32, on: bool) -> Result<()> {
        self.change_one(LinkChange { promisc: Some(on), ..LinkChange::of(ifindex) })
    }

    /// Sets the alias; an empty one removes it.
    ///
    /// # Errors
    /// An alias of more than 255 bytes; the kernel's refusal; [`Error::is_gone`].
    pub fn set_alias(&self, ifindex: u32, alias: &str) -> Result<()> {
        self.change_one(LinkChange { alias: Some(alias.to_owned()), ..LinkChange::of(ifindex) })
    }

    /// Renames a device.
    ///
    /// # Errors
    /// An invalid name; the kernel's refusal: [`Error::exists`], [`Error::is_gone`].
    pub fn rename(&self, ifindex: u32, name: &str) -> Result<()> {
        self.change_one(LinkChange { name: Some(name.to_owned()), ..LinkChange::of(ifindex) })
    }

    /// Enslaves a device to the bridge `master`; `None` releases it.
    ///
    /// # Errors
    /// The kernel's refusal; [`Error::is_gone`].
    pub fn set_master(&self, ifindex: u32, master: Option<u32>) -> Result<()> {
        self.change_one(LinkChange { master: Some(master.unwrap_or(0)), ..LinkChange::of(ifindex) })
    }

    /// Makes the kernel give the device no IPv6 link-local address when it next comes up.
    ///
    /// # Errors
    /// The kernel's refusal (an MTU below 1280 leaves a device without IPv6); [`Error::is_gone`].
    pub fn set_addrgen_none(&self, ifindex: u32) -> Result<()> {
        self.change_one(LinkChange { addrgen_none: Some(true), ..LinkChange::of(ifindex) })
    }

    /// Moves a device to another namespace, where it keeps its name and is down. Its index may change.
    ///
    /// # Errors
    /// The kernel's refusal: the name is taken in that namespace, or [`Error::is_gone`].
    pub fn move_to_netns(&self, ifindex: u32, netns: BorrowedFd<'_>) -> Result<()> {
        let mut request = message(ifindex);
        request.attributes.push(LinkAttribute::NetNsFd(netns.as_raw_fd()));
        let outcome = self.route.borrow_mut().request(0, RouteNetlinkMessage::SetLink(request), |_, _| {});
        outcome.map_err(|refusal| {
            Error::refused(format!("moving {} to another namespace", self.label(ifindex)), refusal)
        })
    }

    /// Creates a veth pair.
    ///
    /// # Errors
    /// An invalid name; the kernel's refusal: [`Error::exists`], no permission.
    pub fn create_veth(&self, veth: &Veth<'_>) -> Result<()> {
        self.create_veths(std::slice::from_ref(veth)).pop().unwrap_or(Ok(()))
    }

    /// Creates many veth pairs in few system calls, in the order given; returns one result for each.
    #[must_use]
    pub fn create_veths(&self, veths: &[Veth<'_>]) -> Vec<Result<()>> {
        let mut results = Vec::with_capacity(veths.len());
        let mut owners = Vec::with_capacity(veths.len());
        let mut requests = Vec::with_capacity(veths.len());
        for (index, veth) in veths.iter().enumerate() {
            results.push(veth.message().map(|message| {
                owners.push(index);
                requests.push((NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(message)));
            }));
        }
        let answers = self.route.borrow_mut().batch(requests);
        for (index, answer) in owners.into_iter().zip(answers) {
            if let Err(refusal) = answer {
                let Veth { name, peer, .. } = veths[index];
                results[index] = Err(Error::refused(format!("making the veth pair {name}, {peer}"), refusal));
            }
        }
        results
    }

    /// Creates a device of a kind that needs no parameters: `bridge`, `ifb`...
    ///
    /// # Errors
    /// An invalid name; the kernel's refusal: [`Error::exists`], [`Error::is_unsupported`], no permission.
    pub fn create(&self, name: &str, kind: &str) -> Result<()> {
        let mut request = message(0);
        request.attributes.push(checked(name)?);
        request.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::from(kind))]));
        let request = RouteNetlinkMessage::NewLink(request);
        let outcome = self.route.borrow_mut().request(NLM_F_CREATE | NLM_F_EXCL, request, |_, _| {});
        outcome.map_err(|refusal| Error::refused(format!("making the {kind} {name}"), refusal))
    }

    /// Deletes a device, and with a veth also its other end.
    ///
    /// # Errors
    /// The kernel's refusal: hardware cannot be deleted, or [`Error::is_gone`].
    pub fn delete(&self, ifindex: u32) -> Result<()> {
        if ifindex == 0 {
            // The kernel would take index 0 as a request to delete a group of devices.
            return Err(Error::new("deleting interface 0", io::Error::from_raw_os_error(libc::ENODEV)));
        }
        let request = RouteNetlinkMessage::DelLink(message(ifindex));
        let outcome = self.route.borrow_mut().request(0, request, |_, _| {});
        outcome.map_err(|refusal| Error::refused(format!("deleting {}", self.label(ifindex)), refusal))
    }
}
