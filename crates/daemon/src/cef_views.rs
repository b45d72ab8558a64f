//! The plane's routes and its answers for single addresses, for `show` commands.
//!
//! Invariant: the look-up of one address returns the plane's own answer; a list shows the routes that were
//! written to the plane.

use crate::context::Context;
use crate::routing::Following;
use ipnet::IpNet;
use lanyard_cli::backend::Refusal;
use lanyard_cli::view::{self, CefEntry, CefNextHop};
use lanyard_pipeline::route::{IpHeader, flow_bucket};
use lanyard_plane::{RouteLookup, RouteTarget};
use lanyard_switch::forwarding::{self, Forwarder};
use lanyard_types::{AdjacencyId, Family, TrapReason, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Converts a forwarder to the form of the view.
pub(crate) fn routed_by(forwarder: Forwarder) -> view::Forwarder {
    let (routed_by, reason) = match forwarder {
        Forwarder::Nothing => ("none", None),
        Forwarder::Plane => ("plane", None),
        Forwarder::Kernel(reason) => ("kernel", Some(reason)),
    };
    view::Forwarder { routed_by, reason }
}

/// The reason why there is nothing to show.
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
    let entries: Vec<CefEntry> = found
        .into_iter()
        .map(|(prefix, lookup)| entry(ctx, following, vrf, prefix, &lookup, &idle_s))
        .collect();
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
    vrf: Option<&str>,
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
        // Each namespace has its own indices.
        let link = known.and_then(|(ask, _)| ctx.facts().by_index_in(vrf, ask.ifindex));
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
    let received = following.received(vrf);
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
        refused_groups: usage.refused_groups,
        failed: usage.failed,
        changes: following.changes,
        audits: received.audits,
        overruns: received.overruns,
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
        entry(ctx, following, vrf, prefix.unwrap_or_else(|| flow.destination.into()), &lookup, &idle_s);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::testing::{Bench, FakeNotification, config, route};
    use lanyard_netdev::{Neighbour, NeighbourState};
    use lanyard_types::MacAddr;

    /// A switch that routes to 10.9.0.0/16 by two next hops.
    fn switch() -> (Bench, Core) {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        let mut core = bench.core();
        let text = "ip routing\ninterface eth1\n no switchport\n ip address 10.0.0.1 255.255.255.0";
        core.take(config(text)).expect("taken");
        bench.kernel.say(FakeNotification::Link(Box::new(bench.kernel.get("eth1"))));
        for last in [8, 9] {
            bench.kernel.say(FakeNotification::Neighbour(Neighbour {
                ifindex: 1,
                addr: [10, 0, 0, last].into(),
                mac: Some(MacAddr([2, 0, 0, 0, 0, last])),
                state: NeighbourState::Reachable,
                router: false,
                proxy: false,
            }));
        }
        bench
            .kernel
            .say(FakeNotification::Route(route("10.9.0.0/16", &[[10, 0, 0, 8], [10, 0, 0, 9]], 1), false));
        let turns = (0..100).take_while(|_| core.routing_turn()).count();
        assert!(turns < 100, "it comes to an end");
        (bench, core)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_route_with_its_next_hops() {
        let (_bench, mut core) = switch();
        let Core { ctx, following, .. } = &mut core;
        let shown = cef(ctx, following, Family::V4, None, Some(address("10.9.1.1"))).expect("routed");
        assert_eq!(shown.total, 1);
        let entry = &shown.entries[0];
        assert_eq!((entry.prefix.to_string().as_str(), entry.action), ("10.9.0.0/16", "forward"));
        let hops: Vec<_> = entry.nexthops.iter().map(|hop| (hop.via, hop.interface.as_str())).collect();
        assert_eq!(hops, [(Some(address("10.0.0.8")), "eth1"), (Some(address("10.0.0.9")), "eth1")]);
        let list = cef(ctx, following, Family::V4, None, None).expect("routed");
        assert!(list.entries.iter().any(|entry| entry.prefix.to_string() == "10.9.0.0/16"));
        let none = cef(ctx, following, Family::V4, None, Some(address("192.0.2.1"))).expect("routed");
        assert_eq!(
            (none.entries[0].prefix.to_string().as_str(), none.entries[0].action),
            ("0.0.0.0/0", "none")
        );
        let none = cef(ctx, following, Family::V6, None, Some(address("2001:db8::1"))).expect("routed");
        assert_eq!(none.entries[0].prefix.to_string(), "::/0");
    }

    #[test]
    fn the_next_hop_of_a_flow_is_one_of_them_and_the_same_each_time() {
        let (_bench, mut core) = switch();
        let flow = |port| view::Flow {
            source: address("10.0.0.50"),
            destination: address("10.9.1.1"),
            protocol: 6,
            source_port: port,
            destination_port: 80,
        };
        let Core { ctx, following, .. } = &mut core;
        let mut chosen = BTreeSet::new();
        for port in 0..64 {
            let mut via = || {
                let shown = exact(ctx, following, None, &flow(port)).expect("routed");
                assert_eq!((shown.choices, shown.action), (2, "forward"));
                shown.nexthop.and_then(|hop| hop.via)
            };
            let first = via();
            assert_eq!(via(), first, "flow {port}");
            chosen.extend(first);
        }
        assert_eq!(chosen, [address("10.0.0.8"), address("10.0.0.9")].into(), "flows are spread");
    }

    #[test]
    fn the_summary_counts() {
        let (_bench, mut core) = switch();
        let Core { ctx, following, .. } = &mut core;
        let shown = summary(ctx, following, None).expect("routed");
        assert_eq!((shown.ipv4.routed_by, shown.ipv6.routed_by), ("plane", "none"));
        assert!(shown.prefixes > 0 && shown.groups > 0 && shown.adjacencies >= 2, "{shown:?}");
        assert_eq!((shown.overruns, shown.failed), (0, 0));
    }

    #[test]
    fn a_table_that_is_not_routed_is_refused_by_name() {
        let (_bench, mut core) = switch();
        let Core { ctx, following, .. } = &mut core;
        let error = summary(ctx, following, Some("red")).map(drop).expect_err("no such VRF");
        assert_eq!(error.to_string(), "the plane does not route in table red");
        core.take(config("")).expect("taken");
        let error = summary(&core.ctx, &core.following, None).map(drop).expect_err("nothing is routed");
        assert_eq!(error.to_string(), "the plane does not route in table default");
    }

    #[test]
    fn every_target_has_a_word() {
        let up = |reason| Some(RouteTarget::Up(reason));
        for (target, want, reason) in [
            (None, "none", true),
            (Some(RouteTarget::Blackhole), "drop", false),
            (up(TrapReason::LocalAddress), "receive", false),
            (up(TrapReason::NoRoute), "punt", true),
        ] {
            let (word, why) = action(target);
            assert_eq!((word, why.is_some()), (want, reason), "{target:?}");
        }
        for (forwarder, want) in [
            (Forwarder::Nothing, ("none", None)),
            (Forwarder::Plane, ("plane", None)),
            (Forwarder::Kernel("a filter".into()), ("kernel", Some("a filter".to_owned()))),
        ] {
            let shown = routed_by(forwarder);
            assert_eq!((shown.routed_by, shown.reason), want);
        }
    }
}
