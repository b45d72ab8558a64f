//! `show ip ...`, `show ipv6 ...`, `show arp`.

use super::ios_netdev;
use super::table::columns;
use crate::backend::Family;
use crate::config_view::{IpInterface, IpInterfaces};
use crate::view::{Neighbors, Route, Routes};
use std::fmt::Write;
use std::net::IpAddr;

fn states(i: &IpInterface) -> (&'static str, &'static str) {
    match (i.admin_up, i.link_up) {
        (false, _) => ("administratively down", "down"),
        (true, true) => ("up", "up"),
        (true, false) => ("down", "down"),
    }
}

/// `show ip interface brief`.
pub fn ip_brief(view: &IpInterfaces) -> String {
    let row = |i: &IpInterface| {
        let address = i.addresses.first().map_or_else(|| "unassigned".into(), |net| net.addr().to_string());
        let (status, protocol) = states(i);
        vec![ios_netdev(&i.interface), address, "YES".into(), i.method.into(), status.into(), protocol.into()]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Interface", "IP-Address", "OK?", "Method", "Status", "Protocol"], &rows, &[])
}

/// `show ipv6 interface brief`.
pub fn ipv6_brief(view: &IpInterfaces) -> String {
    let mut out = String::new();
    for i in &view.interfaces {
        let (status, protocol) = states(i);
        let _ = writeln!(out, "{:<22} [{status}/{protocol}]", ios_netdev(&i.interface));
        if i.addresses.is_empty() {
            out.push_str("    unassigned\n");
        }
        for net in &i.addresses {
            let _ = writeln!(out, "    {}", net.addr());
        }
    }
    out
}

/// `show ip interface`, `show ipv6 interface`.
pub fn ip_interfaces(view: &IpInterfaces, family: Family) -> String {
    let word = if family == Family::V4 { "Internet" } else { "IPv6" };
    let mut out = String::new();
    for i in &view.interfaces {
        let (status, protocol) = states(i);
        let _ = writeln!(out, "{} is {status}, line protocol is {protocol}", ios_netdev(&i.interface));
        if i.addresses.is_empty() {
            let _ = writeln!(out, "  {word} protocol processing disabled");
        }
        for (at, net) in i.addresses.iter().enumerate() {
            let which = if at == 0 { format!("{word} address is") } else { "Secondary address".into() };
            let _ = writeln!(out, "  {which} {net}");
        }
        let _ = writeln!(out, "  MTU is {} bytes", i.mtu);
    }
    out
}

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

/// `show ip route`, `show ipv6 route`.
pub fn routes(view: &Routes) -> String {
    let mut out = String::from("Codes: L - local, C - connected, S - static, R - RIP, O - OSPF, D - EIGRP\n");
    out.push_str("       i - IS-IS, B - BGP, K - another protocol of the kernel\n\n");
    for route in &view.routes {
        let head = format!("{:<5}{}", code(route), route.prefix);
        if route.nexthops.is_empty() {
            let _ = writeln!(out, "{head} is discarded");
        }
        for (at, hop) in route.nexthops.iter().enumerate() {
            let lead = if at == 0 { head.clone() } else { " ".repeat(head.len()) };
            let _ = match hop.via {
                Some(via) => {
                    writeln!(out, "{lead} [{}] via {via}, {}", route.metric, ios_netdev(&hop.interface))
                }
                None => writeln!(out, "{lead} is directly connected, {}", ios_netdev(&hop.interface)),
            };
        }
    }
    out
}

/// `show arp`, `show ipv6 neighbors`.
pub fn neighbors(view: &Neighbors) -> String {
    let mac =
        |mac: Option<lanyard_types::MacAddr>| mac.map_or_else(|| "Incomplete".into(), |mac| mac.to_string());
    let is_v6 = view.neighbors.first().is_some_and(|n| matches!(n.address, IpAddr::V6(_)));
    let row = |n: &crate::view::Neighbor| {
        let (address, state) = (n.address.to_string(), n.state.to_uppercase());
        if is_v6 {
            vec![address, mac(n.mac), state, ios_netdev(&n.interface)]
        } else {
            vec!["Internet".into(), address, mac(n.mac), "ARPA".into(), ios_netdev(&n.interface), state]
        }
    };
    let rows: Vec<_> = view.neighbors.iter().map(row).collect();
    if is_v6 {
        columns(&["IPv6 Address", "Link-layer Addr", "State", "Interface"], &rows, &[])
    } else {
        columns(&["Protocol", "Address", "Hardware Addr", "Type", "Interface", "State"], &rows, &[])
    }
}
