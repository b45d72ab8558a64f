//! Addresses, routes, neighbours and namespace ids.
//!
//! Read rtnetlink(7) first. Invariant: a listing contains only the family and the table asked for.

use crate::error::Error;
use crate::socket::Refusal;
use crate::{Address, AddressFlags, Neighbour, Netdev, NextHop, Result, Route, RouteKind, decode};
use ipnet::IpNet;
use lanyard_types::{Family, MacAddr};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Parseable};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags as KernelFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState as KernelState};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteScope,
    RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of struct rtgenmsg, padded.
const NSID_HEADER: usize = 4;

fn family_of(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

fn address_message(ifindex: u32, net: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family_of(Family::of(net.addr()));
    message.header.prefix_len = net.prefix_len();
    message.header.index = ifindex;
    if net.addr().is_loopback() {
        message.header.scope = AddressScope::Host;
    }
    message.attributes.push(AddressAttribute::Local(net.addr()));
    message.attributes.push(AddressAttribute::Address(net.addr()));
    message
}

/// The message for `route`. A deletion leaves the scope unspecified, so that the caller need not
/// know it.
fn route_message(route: &Route, deleting: bool) -> RouteMessage {
    let v4 = route.dest.addr().is_ipv4();
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family_of(Family::of(route.dest.addr()));
    header.destination_prefix_length = route.dest.prefix_len();
    header.protocol = route.protocol.into();
    header.kind = kind_of(route.kind);
    let gateway = route.nexthop_id.is_some() || route.next_hops.iter().any(|hop| hop.via.is_some());
    header.scope = match route.kind {
        _ if deleting => RouteScope::NoWhere,
        RouteKind::Local => RouteScope::Host,
        RouteKind::Unicast if v4 && !gateway => RouteScope::Link,
        _ => RouteScope::Universe,
    };
    match u8::try_from(route.table) {
        Ok(table) => header.table = table,
        Err(_) => {
            header.table = RouteHeader::RT_TABLE_UNSPEC;
            message.attributes.push(RouteAttribute::Table(route.table));
        }
    }
    if route.dest.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(route.dest.network().into()));
    }
    if route.metric != 0 {
        message.attributes.push(RouteAttribute::Priority(route.metric));
    }
    message.attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    message.attributes.extend(route.nexthop_id.map(RouteAttribute::NhId));
    match route.next_hops.as_slice() {
        [] => {}
        [hop] => {
            if hop.onlink {
                message.header.flags |= RouteFlags::Onlink;
            }
            message.attributes.extend(hop.via.map(|via| gateway_attribute(v4, via)));
            message.attributes.extend(hop.ifindex.map(RouteAttribute::Oif));
        }
        hops => {
            let hops = hops.iter().map(|hop| multipath_hop(v4, hop)).collect();
            message.attributes.push(RouteAttribute::MultiPath(hops));
        }
    }
    message
}

/// An IPv4 route through an IPv6 gateway (RFC 5549) names its family.
fn gateway_attribute(v4: bool, via: IpAddr) -> RouteAttribute {
    if v4 == via.is_ipv4() {
        RouteAttribute::Gateway(via.into())
    } else {
        RouteAttribute::Via(RouteVia::from(via))
    }
}

fn multipath_hop(v4: bool, hop: &NextHop) -> RouteNextHop {
    let mut message = RouteNextHop::default();
    message.interface_index = hop.ifindex.unwrap_or(0);
    message.hops = u8::try_from(hop.weight.clamp(1, 256) - 1).unwrap_or(u8::MAX);
    if hop.onlink {
        message.flags |= RouteNextHopFlags::Onlink;
    }
    message.attributes.extend(hop.via.map(|via| gateway_attribute(v4, via)));
    message
}

fn kind_of(kind: RouteKind) -> RouteType {
    match kind {
        RouteKind::Unicast => RouteType::Unicast,
        RouteKind::Local => RouteType::Local,
        RouteKind::Broadcast => RouteType::Broadcast,
        RouteKind::Multicast => RouteType::Multicast,
        RouteKind::Blackhole => RouteType::BlackHole,
        RouteKind::Unreachable => RouteType::Unreachable,
        RouteKind::Prohibit => RouteType::Prohibit,
        RouteKind::Other(number) => number.into(),
    }
}

fn neighbour_message(ifindex: u32, addr: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(Family::of(addr));
    message.header.ifindex = ifindex;
    message.attributes.push(NeighbourAttribute::Destination(addr.into()));
    message
}

fn nsid(payload: &[u8]) -> Option<i32> {
    decode::attributes(payload, NSID_HEADER).find_map(|nla| match NsidAttribute::parse(&nla) {
        Ok(NsidAttribute::Id(id)) => (id >= 0).then_some(id),
        _ => None,
    })
}

impl Netdev {
    fn ask(&self, flags: u16, request: RouteNetlinkMessage) -> Result<(), Refusal> {
        self.route.borrow_mut().request(flags, request, |_, _| {})
    }

    /// Addresses of both families, of one device or of all.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn addresses(&self, ifindex: Option<u32>) -> Result<Vec<Address>> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let addresses = self.route.borrow_mut().dump(request, |_, payload| {
            decode::address(payload).filter(|address| ifindex.is_none_or(|wanted| wanted == address.ifindex))
        });
        addresses.map_err(|refusal| Error::refused("listing the addresses", refusal))
    }

    /// Adds an address with its prefix length. IPv4 addresses in a prefix shorter than /31 get its broadcast
    /// address.
    ///
    /// # Errors
    /// The kernel's refusal: [`Error::exists`], no such device, IPv6 switched off on it.
    pub fn add_address(&self, ifindex: u32, net: IpNet, flags: AddressFlags) -> Result<()> {
        let mut message = address_message(ifindex, net);
        if let IpNet::V4(v4) = net
            && v4.prefix_len() < 31
            && !v4.addr().is_loopback()
        {
            message.attributes.push(AddressAttribute::Broadcast(v4.broadcast()));
        }
        let mut wanted = KernelFlags::empty();
        wanted.set(KernelFlags::Nodad, flags.no_dad && matches!(net, IpNet::V6(_)));
        wanted.set(KernelFlags::Noprefixroute, flags.no_prefix_route);
        if !wanted.is_empty() {
            // The header has room for the first eight flags. The attribute replaces it on kernels
            // that know it.
            message.header.flags = AddressHeaderFlags::from_bits_retain((wanted.bits() & 0xff) as u8);
            message.attributes.push(AddressAttribute::Flags(wanted));
        }
        self.ask(NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewAddress(message))
            .map_err(|refusal| Error::refused(format!("adding {net} to {}", self.label(ifindex)), refusal))
    }

    /// Removes an address.
    ///
    /// # Errors
    /// The kernel's refusal; [`Error::is_gone`] when the device or the address is not there.
    pub fn del_address(&self, ifindex: u32, net: IpNet) -> Result<()> {
        self.ask(0, RouteNetlinkMessage::DelAddress(address_message(ifindex, net))).map_err(|refusal| {
            Error::refused(format!("removing {net} from {}", self.label(ifindex)), refusal)
        })
    }

    /// The routes of one table ([`crate::TABLE_MAIN`]) without cached exceptions.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn routes(&self, family: Family, table: u32) -> Result<Vec<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family_of(family);
        let routes = self.route.borrow_mut().dump(RouteNetlinkMessage::GetRoute(message), |_, payload| {
            decode::route(payload)
                .filter(|route| route.table == table && Family::of(route.dest.addr()) == family)
        });
        routes.map_err(|refusal| Error::refused("listing the routes", refusal))
    }

    /// The routes of the main table with one protocol number. The kernel filters them, so listing a
    /// few among a million is cheap.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn routes_of(&self, family: Family, protocol: u8) -> Result<Vec<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family_of(family);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = protocol.into();
        let routes = self.strict.borrow_mut().dump(RouteNetlinkMessage::GetRoute(message), |_, payload| {
            decode::route(payload).filter(|route| {
                (route.table, route.protocol) == (crate::TABLE_MAIN, protocol)
                    && Family::of(route.dest.addr()) == family
            })
        });
        match routes {
            // The namespace has never had a route.
            Err(refusal) if refusal.source.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
            routes => routes.map_err(|refusal| Error::refused("listing the static routes", refusal)),
        }
    }

    /// Adds a route.
    ///
    /// # Errors
    /// The kernel's refusal: [`Error::exists`] when the table has one with this destination and metric, an
    /// unreachable gateway, no such device.
    pub fn add_route(&self, route: &Route) -> Result<()> {
        self.put_route(NLM_F_CREATE | NLM_F_EXCL, route)
    }

    /// Adds a route, or replaces the one with the same destination, metric and table,
    /// whichever program installed that.
    ///
    /// # Errors
    /// The kernel's refusal: an unreachable gateway, no such device.
    pub fn replace_route(&self, route: &Route) -> Result<()> {
        self.put_route(NLM_F_CREATE | NLM_F_REPLACE, route)
    }

    fn put_route(&self, flags: u16, route: &Route) -> Result<()> {
        self.ask(flags, RouteNetlinkMessage::NewRoute(route_message(route, false)))
            .map_err(|refusal| Error::refused(format!("adding the route to {}", route.dest), refusal))
    }

    /// Removes a route. Destination, table, kind and protocol must match; metric, next hops and
    /// source must match where `route` specifies them.
    ///
    /// # Errors
    /// The kernel's refusal; [`Error::is_gone`] when there is no such route.
    pub fn del_route(&self, route: &Route) -> Result<()> {
        self.ask(0, RouteNetlinkMessage::DelRoute(route_message(route, true)))
            .map_err(|refusal| Error::refused(format!("removing the route to {}", route.dest), refusal))
    }

    /// The ARP or ND table, including entries that need no resolution (NUD_NOARP).
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn neighbours(&self, family: Family) -> Result<Vec<Neighbour>> {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(family);
        let request = RouteNetlinkMessage::GetNeighbour(message);
        let neighbours = self.route.borrow_mut().dump(request, |_, payload| {
            decode::neighbour(payload).filter(|neighbour| Family::of(neighbour.addr) == family)
        });
        neighbours.map_err(|refusal| Error::refused("listing the neighbours", refusal))
    }

    /// Adds a permanent neighbour, or makes an existing one permanent (`arp IP MAC`).
    ///
    /// # Errors
    /// The kernel's refusal; [`Error::is_gone`] when the device is not there.
    pub fn set_neighbour(&self, ifindex: u32, addr: IpAddr, mac: MacAddr) -> Result<()> {
        let mut message = neighbour_message(ifindex, addr);
        message.header.state = KernelState::Permanent;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        self.ask(NLM_F_CREATE | NLM_F_REPLACE, RouteNetlinkMessage::NewNeighbour(message)).map_err(
            |refusal| {
                Error::refused(format!("setting the neighbour {addr} of {}", self.label(ifindex)), refusal)
            },
        )
    }

    /// Removes a neighbour.
    ///
    /// # Errors
    /// The kernel's refusal; [`Error::is_gone`] when it is not there.
    pub fn del_neighbour(&self, ifindex: u32, addr: IpAddr) -> Result<()> {
        self.ask(0, RouteNetlinkMessage::DelNeighbour(neighbour_message(ifindex, addr))).map_err(|refusal| {
            Error::refused(format!("removing the neighbour {addr} of {}", self.label(ifindex)), refusal)
        })
    }

    /// The ids by which this namespace refers to others, as in [`crate::Link::peer_netnsid`].
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn netns_ids(&self) -> Result<Vec<i32>> {
        let request = RouteNetlinkMessage::GetNsId(NsidMessage::default());
        let ids = self.route.borrow_mut().dump(request, |_, payload| nsid(payload));
        ids.map_err(|refusal| Error::refused("listing the namespace ids", refusal))
    }

    /// This namespace's id for `netns`; `None` when it has none.
    ///
    /// # Errors
    /// When `netns` is no namespace.
    pub fn netns_id(&self, netns: BorrowedFd<'_>) -> Result<Option<i32>> {
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(netns.as_raw_fd().unsigned_abs()));
        let mut id = None;
        let request = RouteNetlinkMessage::GetNsId(message);
        let outcome = self.route.borrow_mut().request(0, request, |_, payload| id = nsid(payload));
        outcome.map(|()| id).map_err(|refusal| Error::refused("asking for a namespace's id", refusal))
    }
}
