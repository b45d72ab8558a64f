//! `show ip route`, `show arp` and their IPv6 forms: the kernel's tables, and what the plane does
//! with each entry.

use crate::cef_views;
use crate::context::Context;
use crate::core::Core;
use crate::kernel::KernelError;
use crate::kernel_views::{neighbour, route};
use crate::routing::Following;
use lanyard_cli::backend::{Family, Neighbors, Refusal, RouteQuery, Routes};
use lanyard_cli::view;
use lanyard_netdev::NeighbourState;
use lanyard_switch::Facts;
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

fn neighbours(
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
fn forget_neighbours(
    ctx: &Context,
    family: Family,
    vrf: Option<&str>,
    only: Option<IpAddr>,
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
