//! Static routes, static ARP entries, and the DHCP relay information option.
//!
//! Invariant: a static route names at least one of next hop, interface and Null0; no two routes have the same
//! destination, next hop and interface.

use super::{ip, need, vrf};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::setting::{Choice, Flag, Line, Setting};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::layer3::{RelayPolicy, arp_lines, route_line};
use lanyard_config::{Config, StaticRoute};
use std::net::{IpAddr, Ipv4Addr};

/// The maximum number of static routes.
const MAX_ROUTES: usize = 100_000;
/// The maximum number of static ARP entries.
const MAX_ARPS: usize = 4096;
/// The maximum length of the name of a static route, in bytes.
const MAX_NAME: usize = 50;

/// `ip dhcp relay information option`.
pub const RELAY_OPTION: Line<Config> = Setting::of(
    "ip dhcp relay information option",
    "Insert relay information in client messages",
    &Flag(field!(Config, relay.option)),
)
.line();

/// `ip dhcp relay information policy`.
pub const RELAY_POLICY: Line<Config> = Setting::of(
    "ip dhcp relay information policy",
    "Action for messages that already contain relay information",
    &Choice {
        field: field!(Config, relay.policy),
        of: &[
            ("drop", RelayPolicy::Drop, "Do not forward the message"),
            ("keep", RelayPolicy::Keep, "Keep it"),
            ("replace", RelayPolicy::Replace, "Replace it by the switch's own"),
        ],
    },
)
.line();

/// `ip dhcp relay information trust-all`.
pub const RELAY_TRUST_ALL: Line<Config> = Setting::of(
    "ip dhcp relay information trust-all",
    "Accept relay information from clients at every interface",
    &Flag(field!(Config, relay.trust_all)),
)
.line();

/// Static routes of both families.
pub const ROUTES: &[Line<Config>] = &[
    Line::own("ip", IPV4, |config| config.routes.iter().map(route_line).collect()),
    // The first entry prints the routes of both families, in one order.
    Line::unprinted("ipv6", IPV6),
];

/// Static ARP entries.
pub const ARPS: &[Line<Config>] = &[Line::own("", ARP, |config| arp_lines(&config.arps))];

const IPV4: Node = kw("route", "Establish static routes").then(&[
    arg(Kind::Ipv4, "Destination prefix").then(&[MASK_V4]),
    PREFIX_V4,
    kw("vrf", "Configure static route for a VRF")
        .then(&[vrf::NAME.then(&[arg(Kind::Ipv4, "Destination prefix").then(&[MASK_V4]), PREFIX_V4])]),
]);

const IPV6: Node = kw("route", "Configure static routes")
    .then(&[PREFIX_V6, kw("vrf", "Configure static route for a VRF").then(&[vrf::NAME.then(&[PREFIX_V6])])]);

const ARP: Node = kw("arp", "Set a static ARP entry")
    .then(&[ARP_ENTRY, kw("vrf", "Static ARP entry for a VRF").then(&[vrf::NAME.then(&[ARP_ENTRY])])]);

const ARP_ENTRY: Node = arg(Kind::Ipv4, "IP address of the ARP entry").no(arp).then(&[arg(
    Kind::Mac,
    "48-bit hardware address of the ARP entry",
)
.run(arp)
.then(&[kw("arpa", "ARP type ARPA").run(arp)])]);

const MASK_V4: Node = arg(Kind::Ipv4, "Destination prefix mask").no(route).then(WAY_V4);
const PREFIX_V4: Node = arg(Kind::Ipv4Prefix, "Destination prefix").no(route).then(WAY_V4);
const PREFIX_V6: Node = arg(Kind::Ipv6Prefix, "IPv6 prefix").no(route).then(WAY_V6);

const OPTIONS: &[Node] = &[
    kw("name", "Specify name of the next hop")
        .then(&[arg(Kind::Word("WORD", MAX_NAME), "Name of the next hop")]),
    kw("permanent", "Permanent route: kept when its interface goes down"),
    kw("tag", "Set tag for this route").then(&[number(1, 4_294_967_295, "Tag value")]),
    kw("track", "Install route depending on tracked item").then(&[number(1, 1000, "Tracked object number")]),
];
const DISTANCE: Node = number(1, 255, "Distance metric for this route").run(route).options(OPTIONS);
const NULL: Node = kw("null0", "Drop packets").run(discard).options(OPTIONS).then(&[number(
    1,
    255,
    "Distance metric for this route",
)
.run(discard)
.options(OPTIONS)]);
const WAY_V4: &[Node] = &[
    NULL,
    arg(Kind::Ipv4, "Forwarding router's address").run(route).options(OPTIONS).then(&[DISTANCE]),
    arg(Kind::Interface, "Egress interface").run(route).options(OPTIONS).then(&[
        arg(Kind::Ipv4, "Forwarding router's address").run(route).options(OPTIONS).then(&[DISTANCE]),
        DISTANCE,
    ]),
];
const WAY_V6: &[Node] = &[
    NULL,
    arg(Kind::Ipv6, "Forwarding router's address").run(route).options(OPTIONS).then(&[DISTANCE]),
    arg(Kind::Interface, "Egress interface").run(route).options(OPTIONS).then(&[
        arg(Kind::Ipv6, "Forwarding router's address").run(route).options(OPTIONS).then(&[DISTANCE]),
        DISTANCE,
    ]),
];

fn arp(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vrf = vrf::known(edit.config, args)?;
    let Some(IpAddr::V4(address)) = args.addresses().first().copied() else {
        return Err("Incomplete command.".into());
    };
    let arps = &mut edit.config.arps;
    if args.form != Form::Set {
        return match arps.remove(&(vrf, address)) {
            Some(_) => Ok(()),
            None => Err(format!("there is no static ARP entry for {address}").into()),
        };
    }
    let mac = need(args.mac())?;
    if mac.is_group() || mac.is_zero() {
        return Err(format!("{mac} is not a unicast address").into());
    }
    if address.is_multicast()
        || address.is_loopback()
        || address.is_unspecified()
        || address == Ipv4Addr::BROADCAST
    {
        return Err(format!("Not a valid host address - {address}").into());
    }
    if arps.len() >= MAX_ARPS && !arps.contains_key(&(vrf.clone(), address)) {
        return Err(format!("there are {MAX_ARPS} static ARP entries already").into());
    }
    arps.insert((vrf, address), mac);
    Ok(())
}

/// The distance of a line, and the numbers after `tag` and `track`; `None` for those that the line does not have.
fn distance_tag_track(args: &Args) -> (Option<u8>, Option<u32>, Option<u16>) {
    let all = args.numbers();
    let labels: Vec<&str> =
        args.words.iter().copied().filter(|word| ["tag", "track"].contains(word)).collect();
    let (own, labelled) = all.split_at(all.len().saturating_sub(labels.len()));
    let of =
        |label: &str| labels.iter().position(|word| *word == label).and_then(|at| labelled.get(at)).copied();
    let distance = own.first().and_then(|n| u8::try_from(*n).ok());
    (distance, of("tag").and_then(|n| u32::try_from(n).ok()), of("track").and_then(|n| u16::try_from(n).ok()))
}

fn route(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put_route(edit, args, false)
}

fn discard(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put_route(edit, args, true)
}

/// Adds or removes the route of a line; `discard` is true for a route that drops its packets (`Null0`).
fn put_route(edit: &mut Edit<'_>, args: &Args, discard: bool) -> Result<(), Refusal> {
    let vrf = vrf::known(edit.config, args)?;
    let Some((prefix, behind)) = ip::prefix(args)? else { return Err("Incomplete command.".into()) };
    if prefix.network() != prefix.addr() {
        return Err(
            format!("Inconsistent address and mask: {prefix} has bits set beyond its prefix length").into()
        );
    }
    let (distance, tag, track) = distance_tag_track(args);
    let route = StaticRoute {
        vrf,
        via: behind.first().copied(),
        interface: args.interface(),
        discard,
        distance: distance.unwrap_or(1),
        tag,
        // The name is the last text of the line, because with `vrf V` the first one is V.
        name: args.has("name").then(|| args.texts().pop()).flatten(),
        permanent: args.has("permanent"),
        track,
        ..StaticRoute::new(prefix)
    };
    if args.form != Form::Set {
        return remove(edit, &route, distance);
    }
    check(&route)?;
    let routes = &mut edit.config.routes;
    match routes.iter().position(|other| other.same_way(&route)) {
        Some(at) => {
            routes.remove(at);
        }
        None if routes.len() >= MAX_ROUTES => {
            return Err(format!("there are {MAX_ROUTES} static routes already").into());
        }
        None => {}
    }
    let at = routes.partition_point(|other| *other < route);
    routes.insert(at, route);
    Ok(())
}

/// Removes every route to the destination of `named` that has the next hop, the interface and the `Null0` of `named`, as far as
/// `named` has them, and the distance, if the line has one.
fn remove(edit: &mut Edit<'_>, named: &StaticRoute, distance: Option<u8>) -> Result<(), Refusal> {
    let before = edit.config.routes.len();
    let gone = |route: &StaticRoute| {
        (&route.vrf, route.prefix) == (&named.vrf, named.prefix)
            && (named.via.is_none() || route.via == named.via)
            && (named.interface.is_none() || route.interface == named.interface)
            && (!named.discard || route.discard)
            && distance.is_none_or(|distance| route.distance == distance)
    };
    edit.config.routes.retain(|route| !gone(route));
    if edit.config.routes.len() < before { Ok(()) } else { Err("No matching route to delete".into()) }
}

fn check(route: &StaticRoute) -> Result<(), Refusal> {
    let prefix = route.prefix;
    let address = prefix.addr();
    if address.is_multicast() || address.is_loopback() {
        let kind = if address.is_multicast() { "multicast" } else { "loopback" };
        return Err(format!("Invalid destination prefix: {prefix} is for {kind} addresses").into());
    }
    let wrong = |via: &IpAddr| {
        via.is_unspecified() || via.is_multicast() || via.is_loopback() || *via == Ipv4Addr::BROADCAST
    };
    if let Some(via) = route.via.filter(wrong) {
        return Err(format!("Invalid next hop address: {via}").into());
    }
    let link_local = matches!(route.via, Some(IpAddr::V6(a)) if a.is_unicast_link_local());
    if link_local && route.interface.is_none() {
        return Err("Interface has to be specified for a link-local nexthop".into());
    }
    if route.permanent && route.track.is_some() {
        return Err(
            "permanent and track exclude each other: permanent keeps the route, track removes it".into()
        );
    }
    Ok(())
}
