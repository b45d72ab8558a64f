//! `show ip route`, `show arp` and their IPv6 forms: the kernel's tables, and the plane's treatment of each
//! entry.

use crate::cef_views;
use crate::context::Context;
use crate::core::Core;
use crate::kernel::KernelError;
use crate::kernel_views::{neighbour, route};
use crate::routing::Following;
use lanyard_cli::backend::{Neighbors, Refusal, RouteQuery, Routes};
use lanyard_cli::view;
use lanyard_netdev::NeighbourState;
use lanyard_switch::Facts;
use lanyard_types::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Neighbors for Core {
    fn neighbors(&mut self, family: Family, vrf: Option<&str>) -> Result<view::Neighbors, Refusal> {
        Ok(neighbours(&self.ctx, &self.following, family, vrf)?)
    }
    fn clear_neighbors(
        &mut self,
        family: Family,
        vrf: Option<&str>,
        only: Option<IpAddr>,
    ) -> Result<u64, Refusal> {
        Ok(forget_neighbours(&self.ctx, family, vrf, only)?)
    }
}

impl Routes for Core {
    fn routes(&mut self, query: &RouteQuery) -> Result<view::Routes, Refusal> {
        Ok(routes(&self.ctx, &self.following, query)?)
    }
    fn cef(&mut self, family: Family, vrf: Option<&str>, only: Option<IpAddr>) -> Result<view::Cef, Refusal> {
        Ok(cef_views::cef(&mut self.ctx, &self.following, family, vrf, only)?)
    }
    fn cef_summary(&mut self, vrf: Option<&str>) -> Result<view::CefSummary, Refusal> {
        Ok(cef_views::summary(&self.ctx, &self.following, vrf)?)
    }
    fn cef_exact(&mut self, vrf: Option<&str>, flow: &view::Flow) -> Result<view::CefExact, Refusal> {
        Ok(cef_views::exact(&mut self.ctx, &self.following, vrf, flow)?)
    }
    fn vrfs_present(&mut self) -> BTreeSet<String> {
        let config = self.ctx.switch.config();
        self.ctx.kernel.vrfs().into_iter().filter(|vrf| config.vrfs.contains_key(vrf)).collect()
    }
}

impl From<KernelError> for Refusal {
    fn from(error: KernelError) -> Self {
        Self(error.to_string())
    }
}

fn routes(ctx: &Context, following: &Following, query: &RouteQuery) -> Result<view::Routes, KernelError> {
    const TABLE_LOCAL: u32 = 255;
    let mut routes = Vec::new();
    let facts = facts_in(ctx, query.vrf.as_deref())?;
    for table in [lanyard_netdev::TABLE_MAIN, TABLE_LOCAL] {
        let list = ctx.kernel.routes(query.vrf.as_deref(), query.family, table)?;
        let local = table == TABLE_LOCAL;
        let shown = list.iter().filter_map(|entry| {
            let entry = &in_use(query.vrf.as_deref(), entry, &facts)?;
            let offload = following.route_offload(query.vrf.as_deref(), entry.dest, entry.metric, local);
            let id = following.vrf(query.vrf.as_deref());
            let hidden = id.is_some_and(|id| ctx.plane.is_hidden(id, entry.dest));
            let offload = match offload {
                view::Offload::Offloaded if hidden => view::Offload::Trapped,
                offload => offload,
            };
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

fn neighbours(
    ctx: &Context,
    following: &Following,
    family: Family,
    vrf: Option<&str>,
) -> Result<view::Neighbors, KernelError> {
    let facts = facts_in(ctx, vrf)?;
    let list = ctx.kernel.neighbours(vrf, family)?;
    let shown = list.iter().filter_map(|entry| {
        let offload = following.neighbour_offload(vrf, entry.ifindex, entry.addr);
        Some(view::Neighbor { offload, ..neighbour(vrf, entry, &facts)? })
    });
    let mut neighbors: Vec<_> = shown.collect();
    neighbors.sort_by(|a, b| (a.address, &a.interface).cmp(&(b.address, &b.interface)));
    Ok(view::Neighbors { neighbors })
}

/// `clear arp-cache`: removes learned entries, of one address or all.
fn forget_neighbours(
    ctx: &Context,
    family: Family,
    vrf: Option<&str>,
    only: Option<IpAddr>,
) -> Result<u64, KernelError> {
    let list = ctx.kernel.neighbours(vrf, family)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use lanyard_cli::view::Offload;
    use lanyard_netdev::{Neighbour, NextHop, Route, RouteKind};

    /// A world with `eth1`, which is up, and `eth2`, which has no link.
    fn world() -> World {
        let mut world = World::new();
        for (name, carrier) in [("eth1", true), ("eth2", false)] {
            world.kernel.add(name);
            world.kernel.change(name, |link| (link.admin_up, link.carrier) = (true, carrier));
        }
        world.ctx.refresh();
        world
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn entry(dest: &str, protocol: u8, via: Option<&str>, ifindex: u32) -> Route {
        let route = Route::new(dest.parse().expect("a prefix"));
        Route { protocol, ..route }.via(via.map(address), Some(ifindex))
    }

    fn shown(world: &World, query: &RouteQuery) -> Vec<String> {
        let following = Following::new().expect("a descriptor");
        let list = super::routes(&world.ctx, &following, query).expect("listed").routes;
        let hops = |route: &view::Route| {
            route
                .nexthops
                .iter()
                .map(|hop| {
                    format!(" {} {}", hop.via.map_or("-".into(), |via| via.to_string()), hop.interface)
                })
                .collect::<String>()
        };
        list.iter().map(|route| format!("{} {}{}", route.prefix, route.protocol, hops(route))).collect()
    }

    #[test]
    fn routes_are_shown_as_the_kernel_uses_them() {
        let world = world();
        let both = entry("10.3.0.0/16", 186, Some("10.0.0.8"), 1).via(Some(address("10.9.0.8")), Some(2));
        let mut dead = entry("10.5.0.0/16", 4, Some("10.0.0.8"), 1);
        dead.next_hops[0].dead = true;
        let broadcast = Route { kind: RouteKind::Broadcast, ..entry("10.0.0.255/32", 2, None, 1) };
        let black =
            Route { kind: RouteKind::Blackhole, next_hops: Vec::new(), ..entry("10.6.0.0/16", 4, None, 1) };
        let own = |dest: &str, ifindex| Route {
            kind: RouteKind::Local,
            table: 255,
            ..entry(dest, 2, None, ifindex)
        };
        let list = vec![
            entry("10.9.0.0/16", lanyard_netdev::ROUTE_PROTOCOL, Some("10.0.0.9"), 1),
            entry("10.0.0.0/24", 2, None, 1),
            entry("10.2.0.0/16", 77, Some("10.0.0.9"), 9),
            entry("10.4.0.0/16", 4, Some("10.9.0.9"), 2),
            both,
            dead,
            broadcast,
            black,
            own("10.0.0.1/32", 1),
            own("127.0.0.1/32", 1),
            entry("2001:db8::/32", 2, None, 1),
        ];
        world.kernel.state().routes.insert(None, list);
        let all = RouteQuery::all(Family::V4, None);
        let want = [
            "10.0.0.0/24 connected - eth1",
            "10.0.0.1/32 local - eth1",
            "10.2.0.0/16 77 10.0.0.9 if9",
            // The next hop without link is left out, and so is a route that has only such next hops.
            "10.3.0.0/16 bgp 10.0.0.8 eth1",
            "10.6.0.0/16 static",
            "10.9.0.0/16 static 10.0.0.9 eth1",
        ];
        assert_eq!(shown(&world, &all), want);
        assert_eq!(shown(&world, &RouteQuery::all(Family::V6, None)), ["2001:db8::/32 connected - eth1"]);
        let longest = RouteQuery { address: Some(address("10.0.0.1")), ..all.clone() };
        assert_eq!(shown(&world, &longest), [want[1]]);
        let connected = RouteQuery { protocol: Some("connected"), ..all };
        assert_eq!(shown(&world, &connected), want[..2]);
    }

    #[test]
    fn routes_are_shown_without_offload_state_without_routing() {
        let world = world();
        world.kernel.state().routes.insert(None, vec![entry("10.0.0.0/24", 2, None, 1)]);
        let following = Following::new().expect("a descriptor");
        let list = super::routes(&world.ctx, &following, &RouteQuery::all(Family::V4, None)).expect("listed");
        assert_eq!(list.routes[0].offload, Offload::None);
        assert_eq!(list.total, 1);
    }

    fn neighbor(text: &str, state: NeighbourState) -> Neighbour {
        let mac = lanyard_types::MacAddr([2, 0, 0, 0, 0, 9]);
        Neighbour { ifindex: 1, addr: address(text), mac: Some(mac), state, router: false, proxy: false }
    }

    #[test]
    fn neighbours_are_shown_in_order_without_proxy_and_noarp_entries() {
        let world = world();
        let proxy = Neighbour { proxy: true, ..neighbor("10.0.0.3", NeighbourState::Permanent) };
        let failed = Neighbour { mac: None, ..neighbor("10.0.0.2", NeighbourState::Failed) };
        world.kernel.state().learned = vec![
            neighbor("10.0.0.9", NeighbourState::Reachable),
            failed,
            proxy,
            neighbor("224.0.0.1", NeighbourState::NoArp),
            neighbor("fe80::1", NeighbourState::Stale),
        ];
        let following = Following::new().expect("a descriptor");
        let list = |family| {
            let list = neighbours(&world.ctx, &following, family, None).expect("listed").neighbors;
            list.iter().map(|n| format!("{} {} {}", n.address, n.state, n.mac.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(list(Family::V4), ["10.0.0.2 failed false", "10.0.0.9 reachable true"]);
        assert_eq!(list(Family::V6), ["fe80::1 stale true"]);
    }

    #[test]
    fn only_learned_neighbours_are_removed() {
        let world = world();
        let learned = vec![
            neighbor("10.0.0.7", NeighbourState::Permanent),
            neighbor("10.0.0.8", NeighbourState::Stale),
            neighbor("10.0.0.9", NeighbourState::Reachable),
        ];
        world.kernel.state().learned = learned.clone();
        let forget = |only: Option<&str>| {
            forget_neighbours(&world.ctx, Family::V4, None, only.map(address)).expect("forgotten")
        };
        assert_eq!(forget(Some("10.0.0.7")), 0, "it is configured");
        assert_eq!((forget(Some("10.0.0.8")), forget(Some("10.0.0.8"))), (1, 0));
        assert_eq!(forget(None), 1);
        assert_eq!(world.kernel.state().learned, learned[..1]);
    }

    #[test]
    fn a_next_hop_that_is_down() {
        let world = world();
        let down = NextHop { link_down: true, ifindex: Some(1), ..NextHop::default() };
        let route = Route { next_hops: vec![down], ..entry("10.0.0.0/8", 4, None, 1) };
        assert_eq!(in_use(None, &route, world.ctx.facts()), None);
        let empty = Route { next_hops: Vec::new(), ..route };
        assert_eq!(in_use(None, &empty, world.ctx.facts()), Some(empty.clone()));
    }
}
