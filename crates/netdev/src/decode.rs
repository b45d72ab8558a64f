//! Decodes rtnetlink messages into the values of `model`, attribute by attribute.
//!
//! Read linux/rtnetlink.h and linux/if_link.h first. Invariant: an attribute that is unknown, malformed or
//! not needed is skipped alone; a message that is too short for its header, or lacks what every link,
//! address, route or neighbour has, gives `None`.

use crate::{
    Address, DirectionStats, Link, LinkStats, Neighbour, NeighbourState, NextHop, Route, RouteKind,
    XdpAttached, XdpMode,
};
use ipnet::IpNet;
use lanyard_types::MacAddr;
use netlink_packet_core::{NlaBuffer, NlasIterator, Parseable, ParseableParametrized, parse_string};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeader};
use netlink_packet_route::link::{
    LinkAttribute, LinkFlags, LinkHeader, LinkLayerType, LinkXdp, XdpAttached as KernelXdp,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourState as KernelState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteLwEnCapType, RouteNextHop, RouteNextHopFlags,
    RouteType, RouteVia,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of struct ifinfomsg in bytes.
const LINK_HEADER: usize = 16;
/// Length of struct ifaddrmsg in bytes.
const ADDRESS_HEADER: usize = 8;
/// Length of struct rtmsg in bytes.
const ROUTE_HEADER: usize = 12;
/// Length of struct ndmsg in bytes.
const NEIGHBOUR_HEADER: usize = 12;

/// The attributes after a header of `header` bytes, up to the first that is truncated.
pub(crate) fn attributes(payload: &[u8], header: usize) -> impl Iterator<Item = NlaBuffer<&[u8]>> {
    NlasIterator::new(payload.get(header..).unwrap_or_default()).map_while(Result::ok)
}

/// Decodes RTM_NEWLINK and RTM_DELLINK. Messages of family AF_BRIDGE describe bridge ports and are
/// not links.
pub(crate) fn link(payload: &[u8]) -> Option<Link> {
    let header = LinkHeader::parse(payload).ok()?;
    if header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let up = header.flags.contains(LinkFlags::Up);
    let lower_up = header.flags.contains(LinkFlags::LowerUp);
    let mut link = Link {
        ifindex: header.index,
        ethernet: header.link_layer_type == LinkLayerType::Ether,
        loopback: header.flags.contains(LinkFlags::Loopback),
        admin_up: up,
        // IFF_RUNNING carries the operational state (RFC 2863), IFF_LOWER_UP the carrier.
        link_up: up && lower_up && header.flags.contains(LinkFlags::Running),
        carrier: lower_up,
        promiscuous: header.flags.contains(LinkFlags::Promisc),
        ..Link::default()
    };
    for nla in attributes(payload, LINK_HEADER) {
        match nla.kind() {
            libc::IFLA_AF_SPEC => link.forwards = forwards(nla.value()),
            // Long attributes that a `Link` does not need.
            libc::IFLA_STATS | libc::IFLA_PROTINFO | libc::IFLA_VFINFO_LIST => {}
            libc::IFLA_LINKINFO => link_info(&mut link, nla.value()),
            _ => {
                if let Ok(attribute) = LinkAttribute::parse_with_param(&nla, AddressFamily::Unspec) {
                    link_attribute(&mut link, attribute);
                }
            }
        }
    }
    (!link.name.is_empty()).then_some(link)
}

/// True when a family of IFLA_AF_SPEC forwards. The family's settings are an array (IFLA_INET_CONF, IFLA_INET6_CONF;
/// linux/ip.h and linux/ipv6.h), which begins with `forwarding` for both families.
fn forwards(value: &[u8]) -> bool {
    const INET_CONF: u16 = 1;
    const INET6_CONF: u16 = 2;
    attributes(value, 0).any(|family| {
        let wanted = match i32::from(family.kind()) {
            libc::AF_INET => INET_CONF,
            libc::AF_INET6 => INET6_CONF,
            _ => return false,
        };
        let settings = attributes(family.value(), 0).find(|nla| nla.kind() == wanted);
        settings.is_some_and(|nla| nla.value().get(..4).is_some_and(|first| first != [0; 4]))
    })
}

/// Reads only the kinds of the device and of its master. `netlink-packet-route` also decodes the data that follows a kind, and
/// returns not even the kind if it cannot decode the data.
fn link_info(link: &mut Link, value: &[u8]) {
    for nla in attributes(value, 0) {
        match nla.kind() {
            libc::IFLA_INFO_KIND => link.kind = parse_string(nla.value()).ok(),
            libc::IFLA_INFO_SLAVE_KIND => link.master_kind = parse_string(nla.value()).ok(),
            _ => {}
        }
    }
}

fn link_attribute(link: &mut Link, attribute: LinkAttribute) {
    match attribute {
        LinkAttribute::IfName(name) => link.name = name,
        LinkAttribute::IfAlias(alias) => link.alias = Some(alias.trim_end_matches('\0').to_owned()),
        LinkAttribute::Address(bytes) => link.mac = mac(&bytes).unwrap_or_default(),
        LinkAttribute::Mtu(mtu) => link.mtu = mtu,
        LinkAttribute::MinMtu(mtu) => link.min_mtu = mtu,
        LinkAttribute::MaxMtu(mtu) => link.max_mtu = mtu,
        LinkAttribute::CarrierChanges(count) => link.carrier_changes = count,
        LinkAttribute::Promiscuity(count) => link.promiscuity = count,
        LinkAttribute::Controller(master) => link.master = (master != 0).then_some(master),
        LinkAttribute::Link(peer) => link.peer_ifindex = (peer != 0).then_some(peer),
        LinkAttribute::LinkNetNsId(id) => link.peer_netnsid = (id >= 0).then_some(id),
        LinkAttribute::Qdisc(qdisc) => link.qdisc = qdisc,
        LinkAttribute::NumRxQueues(count) => link.rx_queues = count,
        LinkAttribute::NumTxQueues(count) => link.tx_queues = count,
        LinkAttribute::GsoMaxSize(bytes) => link.gso_max_size = bytes,
        LinkAttribute::GroMaxSize(bytes) => link.gro_max_size = bytes,
        LinkAttribute::Stats64(s) => {
            link.stats = LinkStats {
                rx: DirectionStats {
                    frames: s.rx_packets,
                    bytes: s.rx_bytes,
                    errors: s.rx_errors,
                    dropped: s.rx_dropped,
                },
                tx: DirectionStats {
                    frames: s.tx_packets,
                    bytes: s.tx_bytes,
                    errors: s.tx_errors,
                    dropped: s.tx_dropped,
                },
                rx_multicast: s.multicast,
            };
        }
        LinkAttribute::Xdp(attributes) => link.xdp = xdp(&attributes),
        _ => {}
    }
}

fn xdp(attributes: &[LinkXdp]) -> Option<XdpAttached> {
    let mut mode = None;
    let mut prog_id = 0;
    for attribute in attributes {
        match attribute {
            LinkXdp::Attached(KernelXdp::Driver) => mode = Some(XdpMode::Driver),
            LinkXdp::Attached(KernelXdp::SocketBuffer) => mode = Some(XdpMode::Generic),
            LinkXdp::Attached(KernelXdp::Hardware) => mode = Some(XdpMode::Hardware),
            LinkXdp::Attached(KernelXdp::Multiple) => mode = Some(XdpMode::Multiple),
            LinkXdp::ProgId(id) => prog_id = *id,
            _ => {}
        }
    }
    mode.map(|mode| XdpAttached { mode, prog_id })
}

fn mac(bytes: &[u8]) -> Option<MacAddr> {
    bytes.try_into().ok().map(MacAddr)
}

/// Decodes RTM_NEWADDR and RTM_DELADDR.
pub(crate) fn address(payload: &[u8]) -> Option<Address> {
    let header = AddressHeader::parse(payload).ok()?;
    let mut flags = AddressFlags::from_bits_retain(u32::from(header.flags.bits()));
    let (mut local, mut addr) = (None, None);
    for nla in attributes(payload, ADDRESS_HEADER) {
        match AddressAttribute::parse(&nla) {
            Ok(AddressAttribute::Local(ip)) => local = Some(ip),
            Ok(AddressAttribute::Address(ip)) => addr = Some(ip),
            Ok(AddressAttribute::Flags(all)) => flags = all,
            _ => {}
        }
    }
    // On a point-to-point device IFA_ADDRESS is the peer's address, and IFA_LOCAL, if present, the
    // device's own.
    Some(Address {
        ifindex: header.index,
        net: IpNet::new(local.or(addr)?, header.prefix_len).ok()?,
        permanent: flags.contains(AddressFlags::Permanent),
        secondary: flags.contains(AddressFlags::Secondary),
        tentative: flags.contains(AddressFlags::Tentative),
        dad_failed: flags.contains(AddressFlags::Dadfailed),
        deprecated: flags.contains(AddressFlags::Deprecated),
        scope: header.scope.into(),
    })
}

/// Decodes RTM_NEWROUTE and RTM_DELROUTE of IPv4 and IPv6, without cached exceptions.
pub(crate) fn route(payload: &[u8]) -> Option<Route> {
    let header = RouteHeader::parse(payload).ok()?;
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let mut dest = any;
    let mut route = Route::new(IpNet::new(any, 0).ok()?);
    route.table = u32::from(header.table);
    route.kind = kind_from(header.kind);
    route.protocol = header.protocol.into();
    route.scope = header.scope.into();
    let mut single = NextHop::default();
    for nla in attributes(payload, ROUTE_HEADER) {
        let parameters = (header.address_family, header.kind, RouteLwEnCapType::None);
        match RouteAttribute::parse_with_param(&nla, parameters) {
            Ok(RouteAttribute::Destination(address)) => dest = ip(&address)?,
            Ok(RouteAttribute::Table(table)) => route.table = table,
            Ok(RouteAttribute::Priority(metric)) => route.metric = metric,
            Ok(RouteAttribute::PrefSource(address)) => route.source = ip(&address),
            Ok(RouteAttribute::NhId(id)) => route.nexthop_id = Some(id),
            Ok(RouteAttribute::MultiPath(hops)) => route.next_hops = hops.iter().map(next_hop).collect(),
            Ok(attribute) => next_hop_attribute(&mut single, &attribute),
            Err(_) => {}
        }
    }
    route.dest = IpNet::new(dest, header.destination_prefix_length).ok()?.trunc();
    if route.next_hops.is_empty() && (single.via.is_some() || single.ifindex.is_some()) {
        single.onlink = header.flags.contains(RouteFlags::Onlink);
        single.dead = header.flags.contains(RouteFlags::Dead);
        single.link_down = header.flags.contains(RouteFlags::Linkdown);
        route.next_hops.push(single);
    }
    Some(route)
}

fn next_hop(hop: &RouteNextHop) -> NextHop {
    let mut next_hop = NextHop {
        ifindex: (hop.interface_index != 0).then_some(hop.interface_index),
        weight: u16::from(hop.hops) + 1,
        onlink: hop.flags.contains(RouteNextHopFlags::Onlink),
        dead: hop.flags.contains(RouteNextHopFlags::Dead),
        link_down: hop.flags.contains(RouteNextHopFlags::Linkdown),
        ..NextHop::default()
    };
    for attribute in &hop.attributes {
        next_hop_attribute(&mut next_hop, attribute);
    }
    next_hop
}

fn next_hop_attribute(hop: &mut NextHop, attribute: &RouteAttribute) {
    match attribute {
        RouteAttribute::Gateway(address) => hop.via = ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => hop.via = Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => hop.via = Some((*address).into()),
        RouteAttribute::Oif(ifindex) => hop.ifindex = (*ifindex != 0).then_some(*ifindex),
        _ => {}
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn kind_from(kind: RouteType) -> RouteKind {
    match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        RouteType::Broadcast => RouteKind::Broadcast,
        RouteType::Multicast => RouteKind::Multicast,
        RouteType::BlackHole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        other => RouteKind::Other(other.into()),
    }
}

/// Decodes RTM_NEWNEIGH and RTM_DELNEIGH of IPv4 and IPv6, without the FDB entries of bridges
/// (AF_BRIDGE).
pub(crate) fn neighbour(payload: &[u8]) -> Option<Neighbour> {
    let header = NeighbourHeader::parse(payload).ok()?;
    let mut addr: Option<IpAddr> = None;
    let mut lladdr = None;
    if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6) {
        return None;
    }
    for nla in attributes(payload, NEIGHBOUR_HEADER) {
        match NeighbourAttribute::parse_with_param(&nla, header.family) {
            Ok(NeighbourAttribute::Destination(NeighbourAddress::Inet(v4))) => addr = Some(v4.into()),
            Ok(NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6))) => addr = Some(v6.into()),
            Ok(NeighbourAttribute::LinkLayerAddress(bytes)) => lladdr = mac(&bytes),
            _ => {}
        }
    }
    Some(Neighbour {
        ifindex: header.ifindex,
        addr: addr?,
        mac: lladdr,
        state: match header.state {
            KernelState::None => NeighbourState::None,
            KernelState::Incomplete => NeighbourState::Incomplete,
            KernelState::Reachable => NeighbourState::Reachable,
            KernelState::Stale => NeighbourState::Stale,
            KernelState::Delay => NeighbourState::Delay,
            KernelState::Probe => NeighbourState::Probe,
            KernelState::Failed => NeighbourState::Failed,
            KernelState::Noarp => NeighbourState::NoArp,
            KernelState::Permanent => NeighbourState::Permanent,
            other => NeighbourState::Other(other.into()),
        },
        router: header.flags.contains(NeighbourFlags::Router),
        proxy: header.flags.contains(NeighbourFlags::Proxy),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_bad_attribute_costs_itself() {
        let mut payload = vec![0; LINK_HEADER];
        payload[4] = 9;
        payload.extend(nla(libc::IFLA_MTU, &[1]));
        payload.extend(nla(999, &[1, 2, 3]));
        payload.extend(nla(libc::IFLA_IFNAME, b"p0\0"));
        payload.extend(nla(libc::IFLA_LINKINFO, &nla(libc::IFLA_INFO_KIND, b"new-kind\0")));
        payload.extend([200, 0, 4, 0]);
        let link = link(&payload).unwrap();
        assert_eq!((link.name.as_str(), link.ifindex, link.mtu), ("p0", 9, 0));
        assert_eq!(link.kind.as_deref(), Some("new-kind"));
    }

    #[test]
    fn not_ours() {
        let mut bridge_port = vec![0; LINK_HEADER];
        bridge_port[0] = libc::AF_BRIDGE as u8;
        bridge_port.extend(nla(libc::IFLA_IFNAME, b"p0\0"));
        assert_eq!(link(&bridge_port), None);
        let mut fdb = vec![0; NEIGHBOUR_HEADER];
        fdb[0] = libc::AF_BRIDGE as u8;
        fdb.extend(nla(1, &[10, 0, 0, 1]));
        assert_eq!(neighbour(&fdb), None);
        let mut prefix_too_long = vec![libc::AF_INET as u8, 33, 0, 0, 1, 0, 0, 0];
        prefix_too_long.extend(nla(2, &[10, 0, 0, 1]));
        assert_eq!(address(&prefix_too_long), None);
    }

    proptest! {
        /// No input may panic.
        #[test]
        fn any_bytes(
            family in prop::sample::select(vec![0u8, 2, 7, 10]),
            rest in prop::collection::vec(any::<u8>(), 0..64),
            attributes in prop::collection::vec((0u16..70, prop::collection::vec(any::<u8>(), 0..70)), 0..8),
        ) {
            let mut payload = vec![family];
            payload.extend(rest);
            for length in [8, 12, 16] {
                let mut payload = payload.clone();
                payload.resize(length, 0);
                for (kind, value) in &attributes {
                    payload.extend(nla(*kind, value));
                }
                let _ = (link(&payload), address(&payload), route(&payload), neighbour(&payload));
            }
            let _ = (link(&payload), address(&payload), route(&payload), neighbour(&payload));
        }
    }
}
