//! What the plane does with routes, for `show`.
//!
//! Invariant: the look-up of one address is the plane's own answer; a list shows what the plane was
//! programmed with.

use crate::context::Context;
use crate::routing::Following;
use ipnet::IpNet;
use lanyard_cli::backend::{Family, Refusal};
use lanyard_cli::view::{self, CefEntry, CefNextHop};
use lanyard_pipeline::route::{IpHeader, flow_bucket};
use lanyard_plane::{RouteLookup, RouteTarget};
use lanyard_switch::forwarding::{self, Forwarder};
use lanyard_types::{AdjacencyId, TrapReason, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What routes packets, in the form of the view.
pub(crate) fn routed_by(forwarder: Forwarder) -> view::Forwarder {
    let (routed_by, reason) = match forwarder {
        Forwarder::Nothing => ("none", None),
        Forwarder::Plane => ("plane", None),
        Forwarder::Kernel(reason) => ("kernel", Some(reason)),
    };
    view::Forwarder { routed_by, reason }
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CefError {
    #[error("plane {0} does not route")]
    Plane(&'static str),
    #[error("the plane does not route in table {0}")]
    Table(String),
}

impl From<CefError> for Refusal {
    fn from(error: CefError) -> Self {
        Self(error.to_string())
    }
}

fn action(target: Option<RouteTarget>) -> (&'static str, Option<String>) {
    match target {
        None => ("none", Some(TrapReason::NoRoute.to_string())),
        Some(RouteTarget::Group(_)) => ("forward", None),
        Some(RouteTarget::Connected(_)) => ("glean", None),
        Some(RouteTarget::Blackhole) => ("drop", None),
        Some(RouteTarget::Up(TrapReason::LocalAddress)) => ("receive", None),
        Some(RouteTarget::Up(reason)) => ("punt", Some(reason.to_string())),
    }
}

fn routed_table(ctx: &Context, following: &Following, vrf: Option<&str>) -> Result<VrfId, CefError> {
    let able = ctx.plane.capabilities();
    if !able.routing {
        return Err(CefError::Plane(able.name));
    }
    let name = vrf.unwrap_or("default");
    following.vrf(vrf).ok_or_else(|| CefError::Table(name.to_owned()))
}
pub(crate) fn cef(
    ctx: &mut Context,
    following: &Following,
    family: Family,
    vrf: Option<&str>,
    only: Option<IpAddr>,
) -> Result<view::Cef, CefError> {
    let id = routed_table(ctx, following, vrf)?;
    let found = match only {
        Some(address) => {
            let prefix = following.mirror.matched(id, address);
            let none = if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            let none = none.parse().unwrap_or_else(|_| IpNet::from(address));
            vec![(prefix.unwrap_or(none), ctx.plane.route_lookup(id, address))]
        }
        None => following.mirror.programmed(id, family == Family::V6),
    };
    let idle_s = idle(ctx);
    let entries: Vec<CefEntry> =
        found.into_iter().map(|(prefix, lookup)| entry(ctx, following, prefix, &lookup, &idle_s)).collect();
    Ok(view::Cef { total: entries.len() as u64, entries })
}
fn idle(ctx: &mut Context) -> BTreeMap<AdjacencyId, u32> {
    let mut idle_s = BTreeMap::new();
    ctx.plane.adjacencies_used(&mut |id, age_s| {
        idle_s.insert(id, age_s);
    });
    idle_s
}
fn entry(
    ctx: &Context,
    following: &Following,
    prefix: IpNet,
    lookup: &RouteLookup,
    idle_s: &BTreeMap<AdjacencyId, u32>,
) -> CefEntry {
    let (action, reason) = action(lookup.target);
    let offload = match lookup.target {
        None => view::Offload::None,
        Some(RouteTarget::Up(_)) => view::Offload::Trapped,
        Some(_) => view::Offload::Offloaded,
    };
    let mut shares: BTreeMap<AdjacencyId, u32> = BTreeMap::new();
    for id in &lookup.buckets {
        *shares.entry(*id).or_default() += 1;
    }
    let hop = |(id, weight): (AdjacencyId, u32)| {
        let known = following.mirror.adjacency(id);
        let link = known.and_then(|(ask, _)| ctx.facts().by_index(ask.ifindex));
        CefNextHop {
            via: known.map(|(ask, _)| ask.address),
            interface: link.map_or_else(String::new, |link| link.name.clone()),
            mac: known.and_then(|(_, mac)| mac),
            weight,
            idle_s: idle_s.get(&id).copied(),
        }
    };
    CefEntry { prefix, action, nexthops: shares.into_iter().map(hop).collect(), offload, reason }
}
pub(crate) fn summary(
    ctx: &Context,
    following: &Following,
    vrf: Option<&str>,
) -> Result<view::CefSummary, CefError> {
    let id = routed_table(ctx, following, vrf)?;
    let usage = following.mirror.usage();
    let heard = following.heard(vrf);
    let table = vrf.map(str::to_owned);
    let forwarder = |ipv6| {
        let (config, routers) = (ctx.switch.config(), ctx.switch.routers());
        routed_by(forwarding::forwarder(config, routers, &table, None, ipv6))
    };
    Ok(view::CefSummary {
        ipv4: forwarder(false),
        ipv6: forwarder(true),
        prefixes: following.mirror.prefixes(id),
        groups: usage.groups,
        adjacencies: usage.adjacencies,
        starved: usage.starved,
        failed: usage.failed,
        changes: following.changes,
        audits: heard.audits,
        overruns: heard.overruns,
    })
}
pub(crate) fn exact(
    ctx: &mut Context,
    following: &Following,
    vrf: Option<&str>,
    flow: &view::Flow,
) -> Result<view::CefExact, CefError> {
    let id = routed_table(ctx, following, vrf)?;
    let prefix = following.mirror.matched(id, flow.destination);
    let mut lookup = ctx.plane.route_lookup(id, flow.destination);
    let choices = lookup.buckets.iter().collect::<BTreeSet<_>>().len() as u64;
    let bucket = flow_bucket(ctx.plane.flow_salt(), &header(flow), lookup.buckets.len());
    lookup.buckets = lookup.buckets.get(bucket).copied().into_iter().collect();
    let idle_s = idle(ctx);
    let mut shown =
        entry(ctx, following, prefix.unwrap_or_else(|| flow.destination.into()), &lookup, &idle_s);
    let nexthop = shown.nexthops.pop();
    Ok(view::CefExact { flow: flow.clone(), prefix, action: shown.action, choices, nexthop })
}

/// The header fields that the pipeline would read from a flow's packets.
fn header(flow: &view::Flow) -> IpHeader {
    IpHeader {
        src: flow.source,
        dst: flow.destination,
        ttl: 64,
        protocol: flow.protocol,
        options: false,
        len: 40,
        ports: u32::from(flow.source_port) << 16 | u32::from(flow.destination_port),
    }
}
