//! Routes and neighbours of the kernel in the form of `show` commands and events.

use lanyard_cli::view::{self, Offload};
use lanyard_netdev::{NeighbourState, RouteKind};
use lanyard_switch::Facts;

/// Converts a kernel route; `None` for broadcast and multicast routes, and for routes of the host to itself.
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

/// The names of protocols in iproute2's rt_protos; other protocols by number.
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

/// Converts a neighbour; `None` for multicast and loopback entries.
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
