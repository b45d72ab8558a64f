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
    // The kernel lists an IPv6 blackhole with `lo` as its interface.
    let is_discard = route.kind == RouteKind::Blackhole;
    Some(view::Route {
        prefix: route.dest,
        protocol,
        metric: route.metric,
        nexthops: route.next_hops.iter().filter(|_| !is_discard).map(hop).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use lanyard_netdev::{NextHop, Route};

    fn facts() -> Facts {
        let mut world = World::new();
        world.kernel.add("eth1");
        world.ctx.refresh();
        world.ctx.facts().clone()
    }

    fn shown(dest: &str, change: impl FnOnce(&mut Route)) -> Option<view::Route> {
        let mut of = Route::new(dest.parse().expect("a prefix"));
        change(&mut of);
        route(None, &of, &facts())
    }

    #[test]
    fn a_route_is_named_by_kind_and_protocol() {
        let hop = |via: Option<&str>, ifindex| NextHop {
            via: via.map(|via| via.parse().expect("an address")),
            ifindex: Some(ifindex),
            ..NextHop::default()
        };
        let connected = shown("10.0.0.0/8", |r| (r.protocol, r.next_hops) = (2, vec![hop(None, 1)]));
        let connected = connected.expect("shown");
        assert_eq!(
            (connected.protocol.as_str(), connected.nexthops[0].interface.as_str()),
            ("connected", "eth1")
        );
        for (protocol, want) in [
            (2, "kernel"),
            (lanyard_netdev::ROUTE_PROTOCOL, "static"),
            (186, "bgp"),
            (11, "zebra"),
            (250, "250"),
        ] {
            let route = shown("10.0.0.0/8", |r| {
                (r.protocol, r.next_hops) = (protocol, vec![hop(Some("10.1.0.1"), 9)])
            });
            let route = route.expect("shown");
            assert_eq!(route.protocol, want, "{protocol}");
            assert_eq!(route.nexthops[0].interface, "if9", "a netdev that is not known");
        }
        let local = shown("10.0.0.1/32", |r| (r.kind, r.protocol) = (RouteKind::Local, 2));
        assert_eq!(local.map(|route| route.protocol), Some("local".into()));
    }

    #[test]
    fn routes_of_the_host_to_itself_are_not_shown() {
        for (dest, kind) in [
            ("127.0.0.1/32", RouteKind::Local),
            ("10.255.255.255/32", RouteKind::Broadcast),
            ("224.0.0.0/4", RouteKind::Multicast),
            ("10.0.0.0/8", RouteKind::Other(9)),
        ] {
            assert!(shown(dest, |route| route.kind = kind).is_none(), "{dest} {kind:?}");
        }
        let hop = NextHop { ifindex: Some(1), ..NextHop::default() };
        let discard =
            shown("2001:db8::/32", |route| (route.kind, route.next_hops) = (RouteKind::Blackhole, vec![hop]));
        assert!(discard.is_some_and(|route| route.nexthops.is_empty()), "as Null0, without an interface");
    }

    #[test]
    fn a_neighbour_is_shown_with_the_address_it_has() {
        let facts = facts();
        let entry = |state, mac, proxy| lanyard_netdev::Neighbour {
            ifindex: 1,
            addr: "10.0.0.9".parse().expect("an address"),
            mac,
            state,
            router: false,
            proxy,
        };
        let mac = lanyard_types::MacAddr([2, 0, 0, 0, 0, 9]);
        let known =
            neighbour(None, &entry(NeighbourState::Reachable, Some(mac), false), &facts).expect("shown");
        assert_eq!((known.mac, known.interface.as_str(), known.state), (Some(mac), "eth1", "reachable"));
        let zero = lanyard_types::MacAddr([0; 6]);
        let failed =
            neighbour(None, &entry(NeighbourState::Failed, Some(zero), false), &facts).expect("shown");
        assert_eq!(failed.mac, None);
        for (state, proxy) in [(NeighbourState::NoArp, false), (NeighbourState::Reachable, true)] {
            assert!(neighbour(None, &entry(state, Some(mac), proxy), &facts).is_none(), "{state:?} {proxy}");
        }
    }
}
