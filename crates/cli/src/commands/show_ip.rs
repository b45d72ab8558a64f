//! `show ip ...`, `show ipv6 ...`, `show arp`, `show vrf`, `show track`, `show vrrp`; `clear arp-cache` and `clear
//! ipv6 neighbors`.

use super::{access_list, guard, nd_inspection, need, snooping, vrf};
use crate::args::{Args, Kind};
use crate::backend::{Refusal, RouteQuery};
use crate::config_view as made;
use crate::exec::Exec;
use crate::outcome::Outcome;
use crate::render;
use crate::tree::{Node, arg, kw, number};
use crate::view;
use ipnet::IpNet;
use lanyard_types::Family;
use std::net::IpAddr;

const INTERFACE: Node = arg(Kind::Interface, "Interface");
const VRF: &str = "A VRF's table";

/// `show arp`.
pub const ARP: Node = kw("arp", "ARP table").exec(arp).then(&[kw("vrf", VRF).then(&[vrf::NAME.exec(arp)])]);

/// `show ip`.
pub const IP: Node = kw("ip", "IP information").then(&[
    access_list::SHOW_IP,
    kw("arp", "ARP table").exec(arp).then(&[guard::SHOW_ARP, kw("vrf", VRF).then(&[vrf::NAME.exec(arp)])]),
    kw("cef", "Forwarding entries of the plane").exec(cef).then(&[
        CEF_V4,
        CEF_EXACT_V4,
        CEF_SUMMARY,
        kw("vrf", VRF).then(&[vrf::NAME.exec(cef).then(&[CEF_V4, CEF_EXACT_V4, CEF_SUMMARY])]),
    ]),
    kw("dhcp", "Show items in the DHCP database")
        .then(&[kw("relay", "DHCP relay: servers and counters").exec(relay), guard::SHOW_DHCP]),
    snooping::SHOW_IGMP,
    kw("interface", "IP interface status and configuration").exec(interface).then(&[
        kw("brief", "Brief summary of IP status and configuration").exec(ip_brief),
        INTERFACE.exec(interface),
    ]),
    kw("route", "IP routing table").exec(route).then(&[
        arg(Kind::Ipv4, "Network to display information about or hostname").exec(route),
        arg(Kind::Ipv4Prefix, "One prefix").exec(route),
        kw("connected", "Connected").exec(route_by_protocol),
        kw("static", "Static routes").exec(route_by_protocol),
        kw("bgp", "Border Gateway Protocol (BGP)").exec(route_by_protocol),
        kw("ospf", "Open Shortest Path First (OSPF)").exec(route_by_protocol),
        kw("summary", "Summary of all routes").exec(summary),
        kw("vrf", VRF).then(&[vrf::NAME.exec(route).then(&[
            arg(Kind::Ipv4, "Network to display information about or hostname").exec(route),
            arg(Kind::Ipv4Prefix, "One prefix").exec(route),
            kw("connected", "Connected").exec(route_by_protocol),
            kw("static", "Static routes").exec(route_by_protocol),
            kw("bgp", "Border Gateway Protocol (BGP)").exec(route_by_protocol),
            kw("ospf", "Open Shortest Path First (OSPF)").exec(route_by_protocol),
            kw("summary", "Summary of all routes").exec(summary),
        ])]),
    ]),
    guard::SHOW_SOURCE,
    guard::SHOW_VERIFY,
]);

/// `show ipv6`.
pub const IPV6: Node = kw("ipv6", "IPv6 information").then(&[
    access_list::SHOW_IPV6,
    kw("cef", "Forwarding entries of the plane").exec(cef).then(&[
        CEF_V6,
        CEF_EXACT_V6,
        CEF_SUMMARY,
        kw("vrf", VRF).then(&[vrf::NAME.exec(cef).then(&[CEF_V6, CEF_EXACT_V6, CEF_SUMMARY])]),
    ]),
    kw("dhcp", "Show IPv6 DHCP information")
        .then(&[kw("relay", "DHCP relay: servers and counters").exec(relay)]),
    kw("interface", "IPv6 interface status and configuration").exec(interface).then(&[
        kw("brief", "Brief summary of IPv6 status and configuration").exec(ipv6_brief),
        INTERFACE.exec(interface),
    ]),
    snooping::SHOW_MLD,
    kw("nd", "Neighbor discovery").then(&[nd_inspection::SHOW, guard::SHOW_RAGUARD]),
    kw("neighbors", "Show IPv6 neighbor cache entries")
        .exec(neighbors)
        .then(&[nd_inspection::SHOW_BINDINGS, kw("vrf", VRF).then(&[vrf::NAME.exec(neighbors)])]),
    kw("route", "Show IPv6 route table entries").exec(route).then(&[
        arg(Kind::Ipv6, "IPv6 address").exec(route),
        arg(Kind::Ipv6Prefix, "One prefix").exec(route),
        kw("connected", "Connected").exec(route_by_protocol),
        kw("static", "Static routes").exec(route_by_protocol),
        kw("bgp", "Border Gateway Protocol (BGP)").exec(route_by_protocol),
        kw("ospf", "Open Shortest Path First (OSPF)").exec(route_by_protocol),
        kw("summary", "Summary of all routes").exec(summary),
        kw("vrf", VRF).then(&[vrf::NAME.exec(route).then(&[
            arg(Kind::Ipv6, "IPv6 address").exec(route),
            arg(Kind::Ipv6Prefix, "One prefix").exec(route),
            kw("connected", "Connected").exec(route_by_protocol),
            kw("static", "Static routes").exec(route_by_protocol),
            kw("bgp", "Border Gateway Protocol (BGP)").exec(route_by_protocol),
            kw("ospf", "Open Shortest Path First (OSPF)").exec(route_by_protocol),
            kw("summary", "Summary of all routes").exec(summary),
        ])]),
    ]),
]);

/// `show vrf`.
pub const VRFS: Node = kw("vrf", "VPN Routing/Forwarding instance information")
    .exec(vrfs)
    .then(&[vrf::NAME.exec(vrfs), kw("brief", "Brief VRF information").exec(vrfs)]);

/// `show track`.
pub const TRACK: Node = kw("track", "Tracking information").exec(tracks).then(&[
    number(1, super::track::MAX, "Tracked object number").exec(tracks),
    kw("brief", "Brief output").exec(tracks_brief),
]);

/// `show vrrp`.
pub const VRRP: Node = kw("vrrp", "VRRP information").exec(vrrp).then(&[
    kw("brief", "Brief output").exec(vrrp_brief),
    kw("interface", "VRRP interface status and configuration").then(&[INTERFACE.exec(vrrp)]),
]);

/// `clear arp-cache`.
pub const CLEAR_ARP: Node = kw("arp-cache", "Clear the entire ARP cache").exec(clear).then(&[
    arg(Kind::Ipv4, "IP address to delete").exec(clear),
    kw("vrf", VRF)
        .then(&[vrf::NAME.exec(clear).then(&[arg(Kind::Ipv4, "IP address to delete").exec(clear)])]),
]);

/// `clear ipv6 neighbors`.
pub const CLEAR_IPV6: Node = kw("ipv6", "Clear IPv6 information").then(&[
    snooping::CLEAR_MLD,
    nd_inspection::CLEAR,
    kw("neighbors", "Neighbors").exec(clear).then(&[
        nd_inspection::CLEAR_BINDINGS,
        arg(Kind::Ipv6, "IPv6 address to delete").exec(clear),
        kw("vrf", VRF)
            .then(&[vrf::NAME.exec(clear).then(&[arg(Kind::Ipv6, "IPv6 address to delete").exec(clear)])]),
    ]),
]);

const CEF_V4: Node = arg(Kind::Ipv4, "Show the longest match of this address").exec(cef).then(&[kw(
    "detail",
    "Show full information",
)
.exec(cef_detail)]);
const CEF_V6: Node = arg(Kind::Ipv6, "Show the longest match of this address").exec(cef).then(&[kw(
    "detail",
    "Show full information",
)
.exec(cef_detail)]);
const CEF_SUMMARY: Node = kw("summary", "How the plane follows the kernel's table").exec(cef_summary);
const FLOW_END: &[Node] = &[
    kw("dest-port", "Layer 4 destination port").then(&[number(0, 65535, "Destination port")]),
    kw("protocol", "IP protocol (default: ICMP; with ports TCP)").then(&[number(0, 255, "Protocol number")]),
];
const DESTINATION_V4: Node = arg(Kind::Ipv4, "Destination address").exec(cef_exact).options(FLOW_END);
const DESTINATION_V6: Node = arg(Kind::Ipv6, "Destination address").exec(cef_exact).options(FLOW_END);
const CEF_EXACT_V4: Node =
    kw("exact-route", "Show src-dst exact route").then(&[arg(Kind::Ipv4, "Source address").then(&[
        DESTINATION_V4,
        kw("src-port", "Layer 4 source port")
            .then(&[number(0, 65535, "Source port").then(&[DESTINATION_V4])]),
    ])]);
const CEF_EXACT_V6: Node =
    kw("exact-route", "Show src-dst exact route").then(&[arg(Kind::Ipv6, "Source address").then(&[
        DESTINATION_V6,
        kw("src-port", "Layer 4 source port")
            .then(&[number(0, 65535, "Source port").then(&[DESTINATION_V6])]),
    ])]);

/// The address family that a line's keyword selects.
fn family(args: &Args) -> Result<Family, Refusal> {
    need(args.among(&[
        ("ip", Family::V4),
        ("arp", Family::V4),
        ("arp-cache", Family::V4),
        ("ipv6", Family::V6),
    ]))
}

/// The VRF of a line, which must be configured; `None` if the line names none.
fn table(exec: &Exec<'_>, args: &Args) -> Result<Option<String>, Refusal> {
    vrf::known(exec.backend.running(), args)
}

fn query(exec: &Exec<'_>, args: &Args) -> Result<RouteQuery, Refusal> {
    let prefix = args.prefix().map(|prefix: IpNet| prefix.trunc());
    let address: Option<IpAddr> = args.addresses().first().copied();
    Ok(RouteQuery { family: family(args)?, vrf: table(exec, args)?, address, prefix, protocol: None })
}

/// The protocols to which `show ip route` and `show ipv6 route` can be limited.
const PROTOCOLS: [&str; 4] = ["connected", "static", "bgp", "ospf"];

fn route_by_protocol(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let protocol = need(args.among(&PROTOCOLS.map(|protocol| (protocol, protocol))))?;
    let query = RouteQuery { protocol: Some(protocol), ..query(exec, args)? };
    let view = exec.backend.routes(&query)?;
    Ok(exec.present(&view, |view| render::routes(view, query.vrf.as_deref())))
}

fn route(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let query = query(exec, args)?;
    let view = exec.backend.routes(&query)?;
    let one = query.address.map(|address| address.to_string()).or(query.prefix.map(|net| net.to_string()));
    if let Some(wanted) = one {
        if view.routes.is_empty() {
            return Err(format!("{wanted} is not in the routing table").into());
        }
        return Ok(exec.present(&view, render::route_entries));
    }
    Ok(exec.present(&view, |view| render::routes(view, query.vrf.as_deref())))
}

fn summary(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let query = RouteQuery::all(family(args)?, table(exec, args)?);
    let view = view::RouteSummary::of(&exec.backend.routes(&query)?.routes);
    Ok(exec.present(&view, render::route_summary))
}

fn arp(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let table = table(exec, args)?;
    let view = exec.backend.neighbors(Family::V4, table.as_deref())?;
    Ok(exec.present(&view, render::neighbors))
}

fn neighbors(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let table = table(exec, args)?;
    let view = exec.backend.neighbors(Family::V6, table.as_deref())?;
    Ok(exec.present(&view, render::neighbors))
}

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let (table, only) = (table(exec, args)?, args.addresses().first().copied());
    let gone = exec.backend.clear_neighbors(family(args)?, table.as_deref(), only)?;
    match only.filter(|_| gone == 0) {
        Some(address) => Err(format!("there is no learned entry for {address}").into()),
        None => Ok(Outcome::Text(String::new())),
    }
}

fn interface(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let family = family(args)?;
    let view =
        made::ip_interfaces(&super::shared::get_interfaces(exec, args)?, exec.backend.running(), family);
    Ok(exec.present(&view, |view| render::ip_interfaces(view, family)))
}

fn ip_brief(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view =
        made::ip_interfaces(&super::shared::get_interfaces(exec, args)?, exec.backend.running(), Family::V4);
    Ok(exec.present(&view, render::ip_brief))
}

fn ipv6_brief(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view =
        made::ip_interfaces(&super::shared::get_interfaces(exec, args)?, exec.backend.running(), Family::V6);
    Ok(exec.present(&view, render::ipv6_brief))
}

fn get_cef(exec: &mut Exec<'_>, args: &Args) -> Result<view::Cef, Refusal> {
    let table = table(exec, args)?;
    exec.backend.cef(family(args)?, table.as_deref(), args.addresses().first().copied())
}

fn cef(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_cef(exec, args)?;
    Ok(exec.present(&view, render::cef))
}

fn cef_detail(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_cef(exec, args)?;
    Ok(exec.present(&view, render::cef_detail))
}

fn cef_summary(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let table = table(exec, args)?;
    let view = exec.backend.cef_summary(table.as_deref())?;
    Ok(exec.present(&view, render::cef_summary))
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;

fn cef_exact(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let table = table(exec, args)?;
    let addresses = args.addresses();
    let (source, destination) = (need(addresses.first().copied())?, need(addresses.get(1).copied())?);
    let mut numbers = args.numbers().into_iter();
    let (mut source_port, mut destination_port, mut protocol) = (None, None, None);
    for word in &args.words {
        match *word {
            "src-port" => source_port = numbers.next(),
            "dest-port" => destination_port = numbers.next(),
            "protocol" => protocol = numbers.next(),
            _ => {}
        }
    }
    let usual = match source_port.or(destination_port) {
        Some(_) => TCP,
        None if source.is_ipv4() => ICMP,
        None => ICMPV6,
    };
    let port = |port: Option<u64>| port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
    let flow = view::Flow {
        source,
        destination,
        protocol: protocol.and_then(|protocol| u8::try_from(protocol).ok()).unwrap_or(usual),
        source_port: port(source_port),
        destination_port: port(destination_port),
    };
    let view = exec.backend.cef_exact(table.as_deref(), &flow)?;
    Ok(exec.present(&view, render::cef_exact))
}

fn relay(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let family = family(args)?;
    let view = exec.backend.dhcp_relay(family);
    Ok(exec.present(&view, |view| render::dhcp_relay(view, family)))
}

fn vrfs(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let present = exec.backend.vrfs_present();
    let mut view = made::vrfs(exec.backend.running(), &present);
    if let Some(name) = args.text() {
        view.vrfs.retain(|vrf| vrf.name == name);
        if view.vrfs.is_empty() {
            return Err(vrf::missing(&name));
        }
    }
    Ok(exec.present(&view, render::vrfs))
}

fn get_tracks(exec: &mut Exec<'_>, args: &Args) -> Result<view::Tracks, Refusal> {
    let mut view = exec.backend.tracks();
    if let Some(number) = args.number() {
        view.tracks.retain(|track| u64::from(track.track) == number);
        if view.tracks.is_empty() {
            return Err(format!("there is no tracked object {number}").into());
        }
    }
    Ok(view)
}

fn tracks(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_tracks(exec, args)?;
    Ok(exec.present(&view, render::tracks))
}

fn tracks_brief(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_tracks(exec, args)?;
    Ok(exec.present(&view, render::tracks_brief))
}

fn get_vrrp(exec: &mut Exec<'_>, args: &Args) -> view::Vrrps {
    let mut view = exec.backend.vrrp();
    if let Some(interface) = args.interface() {
        view.groups.retain(|group| group.interface == interface.to_string());
    }
    view
}

fn vrrp(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_vrrp(exec, args);
    Ok(exec.present(&view, render::vrrp))
}

fn vrrp_brief(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_vrrp(exec, args);
    Ok(exec.present(&view, render::vrrp_brief))
}
