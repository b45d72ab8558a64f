//! `show ip route`, `show arp` and their IPv6 forms: the kernel's tables, and what the plane does
//! with each entry.

use crate::context::Context;
use crate::kernel::KernelError;
use crate::routing::Following;
use lanyard_cli::backend::{Family, RouteQuery};
use lanyard_cli::view::{self, Offload};
use lanyard_netdev::{NeighbourState, RouteKind};
use lanyard_switch::Facts;

pub(crate) fn routes(
    ctx: &Context,
    following: &Following,
    query: &RouteQuery,
) -> Result<view::Routes, KernelError> {
    const TABLE_LOCAL: u32 = 255;
    let mut routes = Vec::new();
    let facts = facts_in(ctx, query.vrf.as_deref())?;
    for table in [lanyard_netdev::TABLE_MAIN, TABLE_LOCAL] {
        let list = ctx.kernel.routes(query.vrf.as_deref(), kernel_family(query.family), table)?;
        let local = table == TABLE_LOCAL;
        let shown = list.iter().filter_map(|entry| {
            let entry = &in_use(query.vrf.as_deref(), entry, &facts)?;
            let offload = following.route_offload(query.vrf.as_deref(), entry.dest, entry.metric, local);
            Some(view::Route { offload, ..route(query.vrf.as_deref(), entry, &facts)? })
        });
        routes.extend(shown);
    }
    routes.sort_by_key(|route| (route.prefix.addr(), route.prefix.prefix_len(), route.metric));
    Ok(query.narrow(routes))
}

/// All netdevs of a namespace, including those that the switch does not manage, for their names.
fn facts_in(ctx: &Context, vrf: Option<&str>) -> Result<Facts, KernelError> {
    let links = ctx.kernel.links(vrf)?;
    Ok(links.iter().map(|link| ctx.kernel.link_facts(vrf, link)).collect())
}

pub(crate) fn neighbours(
    ctx: &Context,
    following: &Following,
    family: Family,
    vrf: Option<&str>,
) -> Result<view::Neighbors, KernelError> {
    let facts = facts_in(ctx, vrf)?;
    let list = ctx.kernel.neighbours(vrf, kernel_family(family))?;
    let shown = list.iter().filter_map(|entry| {
        let offload = following.neighbour_offload(vrf, entry.ifindex, entry.addr);
        Some(view::Neighbor { offload, ..neighbour(vrf, entry, &facts)? })
    });
    let mut neighbors: Vec<_> = shown.collect();
    neighbors.sort_by(|a, b| (a.address, &a.interface).cmp(&(b.address, &b.interface)));
    Ok(view::Neighbors { neighbors })
}

/// `clear arp-cache`: removes learned entries, of one address or all.
pub(crate) fn forget_neighbours(
    ctx: &Context,
    family: Family,
    vrf: Option<&str>,
    only: Option<std::net::IpAddr>,
) -> Result<u64, KernelError> {
    let list = ctx.kernel.neighbours(vrf, kernel_family(family))?;
    let learned = |n: &&lanyard_netdev::Neighbour| {
        let fixed = [NeighbourState::Permanent, NeighbourState::NoArp].contains(&n.state);
        !fixed && only.is_none_or(|only| only == n.addr)
    };
    let mut count = 0;
    for neighbour in list.iter().filter(learned) {
        match ctx.kernel.del_neighbour(vrf, neighbour.ifindex, neighbour.addr) {
            Ok(()) => count += 1,
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

const fn kernel_family(family: Family) -> lanyard_netdev::Family {
    match family {
        Family::V4 => lanyard_netdev::Family::V4,
        Family::V6 => lanyard_netdev::Family::V6,
    }
}

/// The part of a kernel route that is in use. As in IOS, next hops by an interface that is down are
/// left out, although the kernel lists them.
fn in_use(vrf: Option<&str>, route: &lanyard_netdev::Route, facts: &Facts) -> Option<lanyard_netdev::Route> {
    let down = |hop: &lanyard_netdev::NextHop| {
        let link = hop.ifindex.and_then(|ifindex| facts.by_index_in(vrf, ifindex));
        hop.dead || hop.link_down || link.is_some_and(|link| !link.carrier && !link.loopback)
    };
    let mut route = route.clone();
    let any = !route.next_hops.is_empty();
    route.next_hops.retain(|hop| !down(hop));
    (!any || !route.next_hops.is_empty()).then_some(route)
}

/// A kernel route as it is shown; `None` for broadcast and multicast routes, and for routes of the
/// host to itself.
pub(crate) fn route(vrf: Option<&str>, route: &lanyard_netdev::Route, facts: &Facts) -> Option<view::Route> {
    if matches!(route.kind, RouteKind::Broadcast | RouteKind::Multicast | RouteKind::Other(_)) {
        return None;
    }
    if route.kind == RouteKind::Local && route.dest.addr().is_loopback() {
        return None;
    }
    let on_link = route.next_hops.iter().all(|hop| hop.via.is_none());
    let protocol = match route.protocol {
        _ if route.kind == RouteKind::Local => "local".into(),
        2 if on_link => "connected".into(),
        lanyard_netdev::ROUTE_PROTOCOL => "static".into(),
        other => protocol_name(other),
    };
    let hop = |hop: &lanyard_netdev::NextHop| view::NextHop {
        via: hop.via,
        interface: hop.ifindex.map_or_else(String::new, |ifindex| netdev_name(vrf, ifindex, facts)),
        weight: hop.weight.into(),
    };
    Some(view::Route {
        prefix: route.dest,
        protocol,
        metric: route.metric,
        nexthops: route.next_hops.iter().map(hop).collect(),
        offload: Offload::None,
    })
}

/// The names in iproute2's rt_protos; other protocols by number.
fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        other => return other.to_string(),
    };
    name.into()
}

fn netdev_name(vrf: Option<&str>, ifindex: u32, facts: &Facts) -> String {
    facts.by_index_in(vrf, ifindex).map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
}

/// A neighbour as it is shown; `None` for multicast and loopback entries.
pub(crate) fn neighbour(
    vrf: Option<&str>,
    entry: &lanyard_netdev::Neighbour,
    facts: &Facts,
) -> Option<view::Neighbor> {
    if entry.proxy
        || matches!(entry.state, NeighbourState::NoArp | NeighbourState::None | NeighbourState::Other(_))
    {
        return None;
    }
    Some(view::Neighbor {
        address: entry.addr,
        mac: entry.mac.filter(|mac| !mac.is_zero()),
        interface: netdev_name(vrf, entry.ifindex, facts),
        state: entry.state.name(),
        offload: Offload::None,
    })
}
