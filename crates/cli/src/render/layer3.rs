//! `show ip ...`, `show ipv6 ...`, `show arp`.

use super::ios_netdev;
use super::table::columns;
use crate::config_view::{IpInterface, IpInterfaces};
use crate::view::Neighbors;
use lanyard_types::Family;
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
            let which = match net.addr() {
                IpAddr::V6(address) if address.is_unicast_link_local() => "Link-local address is".to_owned(),
                IpAddr::V4(_) if at > 0 => "Secondary address".to_owned(),
                _ => format!("{word} address is"),
            };
            let _ = writeln!(out, "  {which} {net}");
        }
        let _ = writeln!(out, "  MTU is {} bytes", i.mtu);
        if !i.addresses.is_empty() {
            settings(i, family, &mut out);
        }
    }
    out
}

/// The settings of an interface besides its addresses.
fn settings(i: &IpInterface, family: Family, out: &mut String) {
    let is = |on: bool| if on { "enabled" } else { "disabled" };
    match i.helper_addresses.as_slice() {
        [] => out.push_str("  Helper address is not set\n"),
        [one] => drop(writeln!(out, "  Helper address is {one}")),
        many => {
            let _ = writeln!(out, "  Helper addresses are {}", many.join("\n                       "));
        }
    }
    if family == Family::V4 {
        let _ = writeln!(out, "  Directed broadcast forwarding is {}", is(i.directed_broadcast));
        let list = |name: &Option<String>| name.clone().unwrap_or_else(|| "not set".into());
        let _ = writeln!(out, "  Outgoing access list is {}", list(&i.outbound_access_list));
        let _ = writeln!(out, "  Inbound  access list is {}", list(&i.inbound_access_list));
        let _ = writeln!(out, "  Proxy ARP is {}", is(i.proxy_arp));
        let _ = writeln!(out, "  Local Proxy ARP is {}", is(i.local_proxy_arp));
        let _ = writeln!(out, "  ICMP redirects are {} sent", if i.redirects { "always" } else { "never" });
    }
    if family == Family::V6 {
        for (place, list) in [("Outgoing", &i.outbound_access_list), ("Inbound", &i.inbound_access_list)] {
            if let Some(list) = list {
                let _ = writeln!(out, "  {place} access list {list}");
            }
        }
    }
    match i.verify_source {
        "rx" => out.push_str("  IP verify source reachable-via RX\n"),
        "any" => out.push_str("  IP verify source reachable-via ANY\n"),
        _ => {}
    }
    if let Some(vrf) = &i.vrf {
        let _ = writeln!(out, "  VPN Routing/Forwarding \"{vrf}\"");
    }
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
