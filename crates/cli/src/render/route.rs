//! `show ip route`, `show ip cef` and their IPv6 forms.

use super::ios_netdev;
use super::table::columns;
use crate::view::{
    Cef, CefEntry, CefExact, CefNextHop, CefSummary, NextHop, Offload, Route, RouteSummary, Routes,
};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// IOS's letter for a protocol.
fn code(route: &Route) -> &'static str {
    match route.protocol.as_str() {
        "connected" => "C",
        "local" => "L",
        "static" => "S",
        "rip" => "R",
        "ospf" => "O",
        "eigrp" => "D",
        "isis" => "i",
        "bgp" => "B",
        _ => "K",
    }
}

/// `[distance/metric]` for Lanyard's static routes, whose distance is their metric in the kernel; `[metric]`, as the kernel has
/// it, for other routes.
fn cost(route: &Route) -> String {
    if route.protocol == "static" { format!("[{}/0]", route.metric) } else { format!("[{}]", route.metric) }
}

const LEGEND: &str = "\
Codes: L - local, C - connected, S - static, R - RIP, O - OSPF, D - EIGRP
       i - IS-IS, B - BGP, K - another protocol of the kernel
       * - candidate default, ! - not forwarded by the plane
";

/// `show ip route`, `show ipv6 route`, of a VRF or of the switch.
pub fn routes(view: &Routes, vrf: Option<&str>) -> String {
    let mut out = String::new();
    if let Some(vrf) = vrf {
        let _ = writeln!(out, "Routing Table: {vrf}");
    }
    out.push_str(LEGEND);
    let default = view.routes.iter().find(|route| route.prefix.prefix_len() == 0);
    let via = default.and_then(|route| Some((route, route.nexthops.iter().find_map(|hop| hop.via)?)));
    match (default, via) {
        (_, Some((route, via))) => {
            let network = route.prefix.network();
            let _ = writeln!(out, "\nGateway of last resort is {via} to network {network}\n");
        }
        (Some(route), None) => {
            let network = route.prefix.network();
            let _ = writeln!(out, "\nGateway of last resort is on link to network {network}\n");
        }
        (None, None) => out.push_str("\nGateway of last resort is not set\n\n"),
    }
    for route in &view.routes {
        let star = if route.prefix.prefix_len() == 0 { "*" } else { "" };
        let failed = if route.offload == Offload::Failed { "!" } else { "" };
        let head = format!("{:<5}{}", format!("{}{star}{failed}", code(route)), route.prefix);
        if route.nexthops.is_empty() {
            let _ = writeln!(out, "{head} {} is directly connected, Null0", cost(route));
        }
        for (at, hop) in route.nexthops.iter().enumerate() {
            let lead = if at == 0 { head.clone() } else { " ".repeat(head.len()) };
            let _ = match hop.via {
                Some(via) => {
                    writeln!(out, "{lead} {} via {via}, {}", cost(route), ios_netdev(&hop.interface))
                }
                None => writeln!(out, "{lead} is directly connected, {}", ios_netdev(&hop.interface)),
            };
        }
    }
    out
}

/// `show ip route A.B.C.D`.
pub fn route_entries(view: &Routes) -> String {
    let mut out = String::new();
    for route in &view.routes {
        let _ = writeln!(out, "Routing entry for {}", route.prefix);
        let (distance, metric) = match route.protocol.as_str() {
            "connected" | "local" => (0, 0),
            "static" => (route.metric, 0),
            _ => (0, route.metric),
        };
        let _ = if route.protocol == "static" || distance == 0 && metric == 0 {
            writeln!(out, "  Known via \"{}\", distance {distance}, metric {metric}", route.protocol)
        } else {
            writeln!(out, "  Known via \"{}\", metric {metric}", route.protocol)
        };
        let _ = writeln!(out, "  Offload state: {}", offload(route.offload));
        out.push_str("  Routing Descriptor Blocks:\n");
        if route.nexthops.is_empty() {
            out.push_str("  * directly connected, via Null0\n");
        }
        let all: u32 = route.nexthops.iter().map(|hop| hop.weight).sum();
        for hop in &route.nexthops {
            let _ = writeln!(out, "  * {}", way(hop));
            let _ = writeln!(out, "      Traffic share is {} of {all}", hop.weight);
        }
    }
    out
}

fn way(hop: &NextHop) -> String {
    match hop.via {
        Some(via) => format!("{via}, via {}", ios_netdev(&hop.interface)),
        None => format!("directly connected, via {}", ios_netdev(&hop.interface)),
    }
}

const fn offload(state: Offload) -> &'static str {
    match state {
        Offload::Offloaded => "offloaded",
        Offload::Trapped => "trapped to the kernel",
        Offload::Failed => "refused by the plane",
        Offload::None => "none",
    }
}

/// `show ip route summary`.
pub fn route_summary(view: &RouteSummary) -> String {
    let row = |p: &crate::view::ProtocolRoutes| {
        vec![p.protocol.clone(), p.routes.to_string(), p.offloaded.to_string()]
    };
    let mut rows: Vec<_> = view.protocols.iter().map(row).collect();
    rows.push(vec!["Total".into(), view.total.to_string(), view.offloaded.to_string()]);
    let mut out = columns(&["Route Source", "Networks", "Offloaded"], &rows, &[1, 2]);
    if view.trapped + view.failed > 0 {
        let _ = writeln!(out, "{} left to the kernel, {} refused by the plane", view.trapped, view.failed);
    }
    out
}

fn action(action: &str) -> &str {
    match action {
        "glean" => "attached",
        "none" => "no route",
        other => other,
    }
}

fn hop_text(hop: &CefNextHop) -> String {
    match hop.via {
        Some(via) => via.to_string(),
        None => "attached".into(),
    }
}

/// `show ip cef`.
pub fn cef(view: &Cef) -> String {
    let mut rows = Vec::new();
    for entry in &view.entries {
        let prefix = entry.prefix.to_string();
        if entry.nexthops.is_empty() {
            rows.push(vec![prefix, action(entry.action).into(), String::new()]);
            continue;
        }
        for (at, hop) in entry.nexthops.iter().enumerate() {
            let first = if at == 0 { prefix.clone() } else { String::new() };
            rows.push(vec![first, hop_text(hop), ios_netdev(&hop.interface)]);
        }
    }
    columns(&["Prefix", "Next Hop", "Interface"], &rows, &[])
}

/// `show ip cef A.B.C.D detail`.
pub fn cef_detail(view: &Cef) -> String {
    let mut out = String::new();
    for CefEntry { prefix, action: does, nexthops, offload: state, reason } in &view.entries {
        let _ = writeln!(out, "{prefix}, {}, {}", action(does), offload(*state));
        if let Some(reason) = reason {
            let _ = writeln!(out, "  left to the kernel: {reason}");
        }
        for hop in nexthops {
            let mac = hop.mac.map_or_else(|| "incomplete".into(), |mac| mac.to_string());
            let used = hop.idle_s.map_or_else(|| "not used yet".into(), |s| format!("used {s} s ago"));
            let _ = writeln!(
                out,
                "  nexthop {} {}, {mac}, share {}, {used}",
                hop_text(hop),
                ios_netdev(&hop.interface),
                hop.weight
            );
        }
    }
    out
}

/// `show ip cef summary`.
pub fn cef_summary(view: &CefSummary) -> String {
    let CefSummary {
        prefixes,
        groups,
        adjacencies,
        refused_groups,
        failed,
        changes,
        audits,
        overruns,
        ipv4,
        ipv6,
    } = view;
    let mut out = String::new();
    for (family, forwarder) in [("IPv4", ipv4), ("IPv6", ipv6)] {
        let by = forwarder.text().unwrap_or_else(|| "nothing: routing is off".into());
        let _ = writeln!(out, "{family} packets are routed by {by}");
    }
    let _ = write!(
        out,
        "{prefixes} prefixes of both families, {failed} without room in the plane\n\
         {groups} groups and {adjacencies} neighbours in the plane\n\
         {refused_groups} times since the start there was no room for a group\n\
         {changes} changes written to the plane\n\
         {audits} comparisons with the kernel's tables, {overruns} after events were lost\n"
    );
    out
}

/// `show ip cef exact-route`.
pub fn cef_exact(view: &CefExact) -> String {
    let flow = &view.flow;
    let end = |address: IpAddr, port: u16| match (port, address) {
        (0, address) => address.to_string(),
        (port, address) => SocketAddr::new(address, port).to_string(),
    };
    let pair =
        format!("{} -> {}", end(flow.source, flow.source_port), end(flow.destination, flow.destination_port));
    match &view.nexthop {
        Some(hop) => format!("{pair} : {} (next hop {})\n", ios_netdev(&hop.interface), hop_text(hop)),
        None => format!("{pair} : {}\n", action(view.action)),
    }
}
