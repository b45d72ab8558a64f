//! The settings of a routed interface besides addresses: ARP, broadcasts, reverse path checks, DHCP relays, router
//! advertisements, subinterface tags.
//!
//! Invariant: only routed ports, subinterfaces and VLAN interfaces have these settings. Defaults are those of IOS:
//! proxy ARP and redirects on, directed broadcasts off, router advertisements on.

use super::{forwarding, ip, need, vrf};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::setting::{Choice, Flag, Line, Number, Setting, Syntax};
use crate::tree::{Node, arg, kw, number};
use ipnet::{IpNet, Ipv6Net};
use lanyard_config::layer3::{
    Helper, HelperVrf, Layer3, Nd, NdPrefix, RaSuppress, RelayDestination, subinterface_with,
};
use lanyard_config::names::split_subinterface;
use lanyard_config::text::reference;
use lanyard_config::{Config, Interface, InterfaceName, Role};
use lanyard_pipeline::route::Urpf;
use std::net::IpAddr;

/// The maximum number of servers of one family per interface.
const MAX_SERVERS: usize = 16;
/// The maximum number of `ipv6 nd prefix` lines per interface.
const MAX_PREFIXES: usize = 64;

/// The lines before an interface's addresses.
pub const HEAD: &[Line<Interface>] = &[
    Line::Own {
        under: "",
        node: ENCAPSULATION,
        print: |interface| match interface.role {
            Role::Subinterface(vlan) => vec![format!("encapsulation dot1q {vlan}")],
            _ => Vec::new(),
        },
    },
    vrf::FORWARDING,
    vrf::IP_FORWARDING,
];

/// The lines after an interface's addresses.
pub const LINES: &[Line<Interface>] = &[
    Setting::of(
        "ip mtu",
        "Set IP Maximum Transmission Unit",
        &Number::any(field!(Interface, layer3.ip_mtu), 68, 9216, "MTU (bytes)"),
    )
    .on(routed)
    .then(|interface, name| match (interface.layer3.ip_mtu, interface.mtu) {
        (Some(ip), Some(link)) if ip > link => {
            Err(format!("IP MTU {ip} is more than the MTU of {name}, {link}").into())
        }
        _ => Ok(()),
    })
    .line(),
    flag("ip proxy-arp", "Enable proxy ARP", &Flag(field!(Interface, layer3.proxy_arp))),
    flag("ip local-proxy-arp", "Enable local-proxy ARP", &Flag(field!(Interface, layer3.local_proxy_arp))),
    flag(
        "ip directed-broadcast",
        "Enable forwarding of directed broadcasts",
        &Flag(field!(Interface, layer3.directed_broadcast)),
    ),
    flag("ip redirects", "Enable sending ICMP Redirect messages", &Flag(field!(Interface, layer3.redirects))),
    flag(
        "ip dhcp relay information trusted",
        "Received relay information is trusted",
        &Flag(field!(Interface, layer3.relay_trusted)),
    ),
    Line::Own {
        under: "ip",
        node: kw("unreachables", "Enable sending ICMP Unreachable messages").run(unreachables),
        print: |_| Vec::new(),
    },
    Setting::of(
        "ip verify unicast source reachable-via",
        REACHABLE_VIA,
        &Choice { field: field!(Interface, layer3.urpf_ipv4), of: URPF },
    )
    .on(routed)
    .line(),
    Setting::of(
        "ipv6 verify unicast source reachable-via",
        REACHABLE_VIA,
        &Choice { field: field!(Interface, layer3.urpf_ipv6), of: URPF },
    )
    .on(routed)
    .line(),
    forwarding::INTERFACE.on(routed).line(),
    Setting::of(
        "arp timeout",
        "Set ARP cache timeout",
        &Number::any(
            field!(Interface, layer3.arp_timeout_s),
            1,
            2_147_483,
            "Seconds until an unconfirmed entry is resolved again",
        ),
    )
    .on(routed)
    .line(),
    Line::Own {
        under: "ip",
        node: HELPERS,
        print: |interface| interface.layer3.helpers.iter().map(helper_line).collect(),
    },
    Line::Own {
        under: "ipv6 dhcp relay",
        node: kw("destination", "Configure relay destination").no(destination).then(&[arg(
            Kind::Ipv6,
            "IPv6 address",
        )
        .run(destination)
        .then(&[arg(Kind::Interface, "Egress interface").run(destination)])]),
        print: |interface| interface.layer3.relay_destinations.iter().map(relay_destination_line).collect(),
    },
    Line::Own {
        under: "ipv6 nd",
        node: PREFIX,
        print: |interface| interface.layer3.nd.prefixes.iter().map(prefix_line).collect(),
    },
    flag(
        "ipv6 nd managed-config-flag",
        "Hosts should use DHCP for address config",
        &Flag(field!(Interface, layer3.nd.managed)),
    ),
    flag(
        "ipv6 nd other-config-flag",
        "Hosts should use DHCP for non-address config",
        &Flag(field!(Interface, layer3.nd.other)),
    ),
    Line::Own { under: "ipv6 nd ra", node: INTERVAL, print: |interface| interval_line(&interface.layer3.nd) },
    Setting::of(
        "ipv6 nd ra lifetime",
        "Set IPv6 Router Advertisement Lifetime",
        &Number::any(
            field!(Interface, layer3.nd.lifetime_s),
            0,
            9000,
            "RA Lifetime (seconds); 0: no default router",
        ),
    )
    .on(routed)
    .then(|interface, _| lifetime_fits(&interface.layer3.nd))
    .line(),
    Setting::of(
        "ipv6 nd ra suppress",
        "Suppress IPv6 Router Advertisements",
        &Choice {
            field: field!(Interface, layer3.nd.suppress),
            of: &[
                ("", RaSuppress::Periodic, ""),
                ("all", RaSuppress::All, "Suppress answers to router solicitations, too"),
            ],
        },
    )
    .on(routed)
    .line(),
];

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] = &[
    ("arp", "Set ARP parameters"),
    ("ip", "Interface Internet Protocol config commands"),
    ("ip dhcp", "Configure DHCP parameters for this interface"),
    ("ip dhcp relay", "DHCP relay agent parameters"),
    ("ip dhcp relay information", "DHCP relay agent information option"),
    ("ip forwarding", "Configure IP forwarding"),
    ("ip verify", "Enable per packet validation"),
    ("ip verify unicast", "Enable per packet validation for unicast"),
    ("ip verify unicast source", "Validation of source address"),
    ("ip vrf", "VRF parameters on the interface"),
    ("ipv6", "IPv6 interface subcommands"),
    ("ipv6 dhcp", "IPv6 DHCP interface subcommands"),
    ("ipv6 dhcp relay", "Act as an IPv6 DHCP relay"),
    ("ipv6 nd", "IPv6 interface Neighbor Discovery subcommands"),
    ("ipv6 nd ra", "Router Advertisement control"),
    ("ipv6 verify", "Enable per packet validation"),
    ("ipv6 verify unicast", "Enable per packet validation for unicast"),
    ("ipv6 verify unicast source", "Validation of source address"),
    ("vrf", "VPN Routing/Forwarding parameters on the interface"),
];

const REACHABLE_VIA: &str = "Specify reachability check to apply to the source address";
const URPF: &[(&str, Urpf, &str)] = &[
    ("any", Urpf::Loose, "Source is reachable via any interface"),
    ("rx", Urpf::Strict, "Source is reachable via interface on which packet was received"),
];

/// An on/off setting of layer-3 interfaces.
const fn flag(
    words: &'static str,
    help: &'static str,
    value: &'static dyn Syntax<Interface>,
) -> Line<Interface> {
    Setting::of(words, help, value).on(routed).line()
}

const ENCAPSULATION: Node = kw("encapsulation", "Set encapsulation type for an interface")
    .no(encapsulation)
    .then(&[kw("dot1q", "IEEE 802.1Q Virtual LAN")
        .then(&[arg(Kind::Vlan, "IEEE 802.1Q VLAN ID").run(encapsulation)])]);

const HELPERS: Node =
    kw("helper-address", "Specify a destination address for DHCP broadcasts").no(helper).then(&[
        HELPER.run(helper),
        kw("global", "Helper-address is global").then(&[HELPER.run(global_helper)]),
        kw("vrf", "VRF name for helper-address (if different from interface VRF)")
            .then(&[vrf::NAME.then(&[HELPER.run(vrf_helper)])]),
    ]);

const HELPER: Node = arg(Kind::Ipv4, "IP destination address");

const PREFIX: Node =
    kw("prefix", "Configure IPv6 Routing Prefix Advertisement").then(&[arg(Kind::Ipv6Prefix, "IPv6 prefix")
        .run(nd_prefix)
        .options(PREFIX_FLAGS)
        .then(&[arg(Kind::Lifetime, "Valid Lifetime (secs)").then(&[arg(
            Kind::Lifetime,
            "Preferred Lifetime (secs)",
        )
        .run(nd_prefix)
        .options(PREFIX_FLAGS)])])]);

const PREFIX_FLAGS: &[Node] = &[
    kw("no-advertise", "Do not advertise prefix"),
    kw("no-autoconfig", "Do not use prefix for autoconfiguration"),
    kw("off-link", "Do not use prefix for onlink determination"),
];

const INTERVAL: Node =
    kw("interval", "Set IPv6 Router Advertisement Interval").no(nd_interval).then(&[number(
        4,
        1800,
        "RA Interval (secs)",
    )
    .run(nd_interval)
    .then(&[number(3, 1350, "Minimum RA Interval (secs)").run(nd_interval)])]);

fn helper_line(helper: &Helper) -> String {
    match &helper.vrf {
        HelperVrf::Own => format!("ip helper-address {}", helper.address),
        HelperVrf::Global => format!("ip helper-address global {}", helper.address),
        HelperVrf::Named(vrf) => format!("ip helper-address vrf {vrf} {}", helper.address),
    }
}

fn relay_destination_line(destination: &RelayDestination) -> String {
    let interface = destination.interface.as_ref().map_or_else(String::new, |i| format!(" {}", reference(i)));
    format!("ipv6 dhcp relay destination {}{interface}", destination.address)
}

fn prefix_line((prefix, settings): (&Ipv6Net, &NdPrefix)) -> String {
    let mut line = format!("ipv6 nd prefix {prefix}");
    for seconds in settings.lifetimes_s.into_iter().flat_map(|(valid, preferred)| [valid, preferred]) {
        line.push(' ');
        line.push_str(&if seconds == u32::MAX { "infinite".to_owned() } else { seconds.to_string() });
    }
    for (on, word) in [
        (settings.no_advertise, " no-advertise"),
        (settings.off_link, " off-link"),
        (settings.no_autoconfig, " no-autoconfig"),
    ] {
        line.push_str(if on { word } else { "" });
    }
    line
}

fn interval_line(nd: &Nd) -> Vec<String> {
    match nd.interval_s {
        None => Vec::new(),
        Some((max, None)) => vec![format!("ipv6 nd ra interval {max}")],
        Some((max, Some(min))) => vec![format!("ipv6 nd ra interval {max} {min}")],
    }
}

/// The condition for settings of layer-3 interfaces.
fn routed(interface: &mut Interface, name: &InterfaceName, _: Form, _: &str) -> Result<bool, Refusal> {
    ip::layer3(interface, name).map(|()| true)
}

/// `ip unreachables`: accepted without effect. The `no` form is refused, because the kernel has no such setting for a
/// single interface.
fn unreachables(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form == Form::No {
        return Err(
            "the kernel sends unreachables on every interface or on none: no ip unreachables is not \
                    available; ip route ... Null0 drops silently"
                .into(),
        );
    }
    edit.each_interface(|interface, name| ip::layer3(interface, name))
}

/// `ip helper-address A.B.C.D`; the `no` form without an address removes every helper.
fn helper(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put_helper(edit, args, HelperVrf::Own)
}

fn global_helper(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put_helper(edit, args, HelperVrf::Global)
}

fn vrf_helper(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vrf = need(vrf::known(edit.config, args)?)?;
    put_helper(edit, args, HelperVrf::Named(vrf))
}

fn put_helper(edit: &mut Edit<'_>, args: &Args, table: HelperVrf) -> Result<(), Refusal> {
    let helper = match args.addresses().first() {
        Some(IpAddr::V4(address)) => Some(Helper { vrf: table, address: *address }),
        _ => None,
    };
    if args.form != Form::Set {
        return edit.each_interface(|interface, name| {
            let helpers = &mut interface.layer3.helpers;
            let before = helpers.len();
            helpers.retain(|other| helper.as_ref().is_some_and(|helper| helper != other));
            match helper.as_ref().filter(|_| helpers.len() == before) {
                Some(helper) => Err(format!("{} is not a helper address of {name}", helper.address).into()),
                None => Ok(()),
            }
        });
    }
    let helper = need(helper)?;
    let address = helper.address;
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() || address.is_broadcast() {
        return Err(format!("{address} is not an address of a server").into());
    }
    edit.each_interface(|interface, name| {
        ip::layer3(interface, name)?;
        add(&mut interface.layer3.helpers, helper.clone(), name)
    })
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T, name: &InterfaceName) -> Result<(), Refusal> {
    if list.contains(&item) {
        return Ok(());
    }
    if list.len() >= MAX_SERVERS {
        return Err(format!("{name} has {MAX_SERVERS} servers already").into());
    }
    list.push(item);
    Ok(())
}

fn destination(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let destination = match args.addresses().first() {
        Some(IpAddr::V6(address)) => {
            Some(RelayDestination { address: *address, interface: args.interface() })
        }
        _ => None,
    };
    if args.form != Form::Set {
        return edit.each_interface(|interface, name| {
            let list = &mut interface.layer3.relay_destinations;
            let before = list.len();
            list.retain(|other| destination.as_ref().is_some_and(|gone| gone != other));
            match destination.as_ref().filter(|_| list.len() == before) {
                Some(gone) => Err(format!("{} is not a relay destination of {name}", gone.address).into()),
                None => Ok(()),
            }
        });
    }
    let destination = need(destination)?;
    let address = destination.address;
    if address.is_unspecified() || address.is_loopback() {
        return Err(format!("{address} is not an address of a server").into());
    }
    if (address.is_unicast_link_local() || address.is_multicast()) && destination.interface.is_none() {
        return Err(format!("Interface has to be specified for {address}").into());
    }
    edit.each_interface(|interface, name| {
        ip::layer3(interface, name)?;
        add(&mut interface.layer3.relay_destinations, destination.clone(), name)
    })
}

fn nd(edit: &mut Edit<'_>, mut set: impl FnMut(&mut Nd) -> Result<(), Refusal>) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        ip::layer3(interface, name)?;
        set(&mut interface.layer3.nd)
    })
}

fn nd_interval(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mut numbers = args.numbers().into_iter().filter_map(|n| u16::try_from(n).ok());
    let (max, min) = (numbers.next(), numbers.next());
    let interval_s = if args.form == Form::Set { Some((need(max)?, min)) } else { None };
    // RFC 4861, 6.2.1: MinRtrAdvInterval is at most three quarters of MaxRtrAdvInterval.
    if let Some((max, Some(min))) = interval_s
        && u32::from(min) * 4 > u32::from(max) * 3
    {
        return Err(
            format!("a minimum interval of {min} is more than three quarters of the maximum, {max}").into()
        );
    }
    nd(edit, |nd| {
        nd.interval_s = interval_s;
        lifetime_fits(nd)
    })
}

/// RFC 4861, 6.2.1: AdvDefaultLifetime is 0 or at least MaxRtrAdvInterval.
fn lifetime_fits(nd: &Nd) -> Result<(), Refusal> {
    match (nd.lifetime_s, nd.interval_s) {
        (Some(lifetime @ 1..), Some((max, _))) if lifetime < max => {
            Err(format!("a lifetime of {lifetime} is less than the interval, {max}").into())
        }
        _ => Ok(()),
    }
}

/// The valid and the preferred lifetime of a line, in seconds; `None` if the line has none.
fn lifetimes(args: &Args) -> Option<(u32, u32)> {
    let mut numbers = args.numbers().into_iter().filter_map(|n| u32::try_from(n).ok());
    Some((numbers.next()?, numbers.next()?))
}

fn nd_prefix(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let Some(IpNet::V6(prefix)) = args.prefix() else { return Err("Incomplete command.".into()) };
    let prefix: Ipv6Net = prefix.trunc();
    if args.form != Form::Set {
        return nd(edit, |nd| match nd.prefixes.remove(&prefix) {
            Some(_) => Ok(()),
            None => Err(format!("{prefix} is not configured here").into()),
        });
    }
    let lifetimes_s = lifetimes(args);
    if let Some((valid, preferred)) = lifetimes_s.filter(|(valid, preferred)| preferred > valid) {
        return Err(format!("preferred lifetime {preferred} is longer than valid lifetime {valid}").into());
    }
    if prefix.addr().is_unicast_link_local() || prefix.addr().is_multicast() {
        return Err(format!("{prefix} can't be advertised").into());
    }
    let settings = NdPrefix {
        lifetimes_s,
        no_advertise: args.has("no-advertise"),
        off_link: args.has("off-link"),
        no_autoconfig: args.has("no-autoconfig"),
    };
    nd(edit, |nd| {
        nd.prefixes.insert(prefix, settings);
        if nd.prefixes.len() > MAX_PREFIXES {
            return Err(format!("there are {MAX_PREFIXES} prefixes already").into());
        }
        Ok(())
    })
}

/// Refuses a port that has subinterfaces, because its role cannot be changed.
pub(super) fn has_subinterfaces(config: &Config, name: &InterfaceName) -> Result<(), Refusal> {
    let parent = name.to_string();
    let of_parent = |(name, interface): &(&InterfaceName, &Interface)| match name {
        InterfaceName::Netdev(text) => {
            matches!(interface.role, Role::Subinterface(_))
                && split_subinterface(text).is_some_and(|(of, _)| of == parent)
        }
        InterfaceName::Vlan(_) => false,
    };
    match config.interfaces.iter().find(of_parent) {
        Some((child, _)) => Err(format!("{name} has subinterfaces: remove {child} first").into()),
        None => Ok(()),
    }
}

fn encapsulation(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan = if args.form == Form::Set { Some(need(args.vlan())?) } else { None };
    let names = match &*edit.mode {
        crate::mode::ConfigMode::Interface { names, .. } => names.clone(),
        _ => Vec::new(),
    };
    for name in &names {
        let InterfaceName::Netdev(text) = name else {
            return Err(format!("{} is not a subinterface", crate::render::ios_name(name)).into());
        };
        let Some((parent, _)) = split_subinterface(text) else {
            return Err(
                format!("{text} is not a subinterface: its name would be {text}.1, for example").into()
            );
        };
        let parent_name = InterfaceName::Netdev(parent.to_string());
        let parent_interface = edit.config.interfaces.get(&parent_name);
        let Some(vlan) = vlan else { continue };
        if !parent_interface.is_some_and(|it| it.role == Role::Routed && it.is_routed()) {
            return Err(format!("{parent} is not a routed port: enter no switchport there first").into());
        }
        if let Some(other) = subinterface_with(edit.config, &parent, vlan, name) {
            return Err(format!(
                "Configuration of multiple subinterfaces of {parent} with the same VID ({vlan}) is not \
                 permitted. This VID is already configured on {other}."
            )
            .into());
        }
    }
    edit.each_interface(|interface, name| match (vlan, interface.role) {
        (Some(vlan), Role::Unset | Role::Subinterface(_)) => {
            interface.role = Role::Subinterface(vlan);
            Ok(())
        }
        (Some(_), _) => Err(format!("{name} is a port already, with another role").into()),
        (None, _) => {
            if let Role::Subinterface(_) = interface.role {
                interface.role = Role::Unset;
                interface.ipv4.clear();
                interface.ipv6.clear();
                interface.layer3 = Layer3::default();
            }
            Ok(())
        }
    })
}
