//! What a routed interface has besides addresses: ARP, broadcasts, reverse path checks, DHCP relays, router advertisements,
//! subinterface tags.
//!
//! Invariant: only routed ports, subinterfaces and VLAN interfaces have any of it. Defaults are those of IOS: proxy ARP and
//! redirects on, directed broadcasts off, router advertisements on.

use super::{forwarding, ip, need, vrf};
use crate::args::{Args, Kind, Value};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::parse::Form;
use crate::tree::{Node, arg, kw, number};
use ipnet::{IpNet, Ipv6Net};
use lanyard_config::layer3::{
    Helper, HelperVrf, Layer3, Nd, NdPrefix, RaSuppress, RelayDestination, split_subinterface,
    subinterface_with,
};
use lanyard_config::{InterfaceName, Role};
use lanyard_pipeline::route::Urpf;
use std::net::IpAddr;

/// Most servers of one family of an interface.
const MAX_SERVERS: usize = 16;
/// Most `ipv6 nd prefix` of an interface.
const MAX_PREFIXES: usize = 64;

/// `ip ...` under an interface.
pub const INTERFACE_V4: Node = kw("ip", "Interface Internet Protocol config commands").then(&[
    ip::ADDRESS_V4,
    kw("dhcp", "Configure DHCP parameters for this interface").then(&[kw(
        "relay",
        "DHCP relay agent parameters",
    )
    .then(&[kw("information", "DHCP relay agent information option").then(&[kw(
        "trusted",
        "Received relay information is trusted",
    )
    .run(flag)])])]),
    kw("directed-broadcast", "Enable forwarding of directed broadcasts").run(flag),
    forwarding::PLANE,
    kw("helper-address", "Specify a destination address for DHCP broadcasts").no(helper).then(&[
        HELPER,
        kw("global", "Helper-address is global").then(&[HELPER]),
        kw("vrf", "VRF name for helper-address (if different from interface VRF)")
            .then(&[vrf::NAME.then(&[HELPER])]),
    ]),
    kw("local-proxy-arp", "Enable local-proxy ARP").run(flag),
    kw("mtu", "Set IP Maximum Transmission Unit").no(mtu).then(&[number(68, 9216, "MTU (bytes)").run(mtu)]),
    kw("proxy-arp", "Enable proxy ARP").run(flag),
    kw("redirects", "Enable sending ICMP Redirect messages").run(flag),
    kw("unreachables", "Enable sending ICMP Unreachable messages").run(unreachables),
    VERIFY,
]);

/// `ipv6 ...` under an interface.
pub const INTERFACE_V6: Node = kw("ipv6", "IPv6 interface subcommands").then(&[
    ip::ADDRESS_V6,
    kw("dhcp", "IPv6 DHCP interface subcommands").then(&[kw("relay", "Act as an IPv6 DHCP relay").then(&[
        kw("destination", "Configure relay destination").no(destination).then(&[arg(
            Kind::Ipv6,
            "IPv6 address",
        )
        .run(destination)
        .then(&[arg(Kind::Interface, "Egress interface").run(destination)])]),
    ])]),
    kw("nd", "IPv6 interface Neighbor Discovery subcommands").then(&[
        kw("managed-config-flag", "Hosts should use DHCP for address config").run(nd_flag),
        kw("other-config-flag", "Hosts should use DHCP for non-address config").run(nd_flag),
        kw("prefix", "Configure IPv6 Routing Prefix Advertisement").then(&[arg(
            Kind::Ipv6Prefix,
            "IPv6 prefix",
        )
        .run(nd_prefix)
        .options(PREFIX_FLAGS)
        .then(&[arg(Kind::Lifetime, "Valid Lifetime (secs)").then(&[arg(
            Kind::Lifetime,
            "Preferred Lifetime (secs)",
        )
        .run(nd_prefix)
        .options(PREFIX_FLAGS)])])]),
        kw("ra", "Router Advertisement control").then(&[
            kw("interval", "Set IPv6 Router Advertisement Interval").no(nd_interval).then(&[number(
                4,
                1800,
                "RA Interval (secs)",
            )
            .run(nd_interval)
            .then(&[number(3, 1350, "Minimum RA Interval (secs)").run(nd_interval)])]),
            kw("lifetime", "Set IPv6 Router Advertisement Lifetime").no(nd_lifetime).then(&[number(
                0,
                9000,
                "RA Lifetime (seconds); 0: no default router",
            )
            .run(nd_lifetime)]),
            kw("suppress", "Suppress IPv6 Router Advertisements").run(nd_suppress).then(&[kw(
                "all",
                "Those that were asked for, too",
            )
            .run(nd_suppress)]),
        ]),
    ]),
    VERIFY,
]);

/// `encapsulation dot1q` under a subinterface.
pub const ENCAPSULATION: Node = kw("encapsulation", "Set encapsulation type for an interface")
    .no(encapsulation)
    .then(&[kw("dot1q", "IEEE 802.1Q Virtual LAN")
        .then(&[arg(Kind::Vlan, "IEEE 802.1Q VLAN ID").run(encapsulation)])]);

/// `arp timeout` under an interface.
pub const ARP: Node = kw("arp", "Set ARP parameters").then(&[kw("timeout", "Set ARP cache timeout")
    .no(arp_timeout)
    .then(&[number(1, 2_147_483, "Seconds until an entry that is not confirmed is asked for anew")
        .run(arp_timeout)])]);

const HELPER: Node = arg(Kind::Ipv4, "IP destination address").run(helper);
const PREFIX_FLAGS: &[Node] = &[
    kw("no-advertise", "Do not advertise prefix"),
    kw("no-autoconfig", "Do not use prefix for autoconfiguration"),
    kw("off-link", "Do not use prefix for onlink determination"),
];
const VERIFY: Node = kw("verify", "Enable per packet validation").then(&[kw(
    "unicast",
    "Enable per packet validation for unicast",
)
.then(&[kw("source", "Validation of source address").then(&[kw(
    "reachable-via",
    "Specify reachability check to apply to the source address",
)
.no(verify)
.then(&[
    kw("any", "Source is reachable via any interface").run(verify),
    kw("rx", "Source is reachable via interface on which packet was received").run(verify),
])])])]);

/// Edits what every interface of the mode has of layer 3.
fn each(edit: &mut Edit<'_>, mut set: impl FnMut(&mut Layer3)) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        ip::layer3(interface, name)?;
        set(&mut interface.layer3);
        Ok(())
    })
}

fn flag(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let default = Layer3::default();
    each(edit, |settings| {
        let (field, usual) = if args.has("proxy-arp") {
            (&mut settings.proxy_arp, default.proxy_arp)
        } else if args.has("local-proxy-arp") {
            (&mut settings.local_proxy_arp, default.local_proxy_arp)
        } else if args.has("directed-broadcast") {
            (&mut settings.directed_broadcast, default.directed_broadcast)
        } else if args.has("redirects") {
            (&mut settings.redirects, default.redirects)
        } else {
            (&mut settings.relay_trusted, default.relay_trusted)
        };
        *field = match args.form {
            Form::Set => true,
            Form::No => false,
            Form::Default => usual,
        };
    })
}

/// The kernel has no such setting of one interface.
fn unreachables(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form == Form::No {
        return Err(
            "the kernel sends unreachables on every interface or on none: no ip unreachables is not \
                    available; ip route ... Null0 drops without a word"
                .into(),
        );
    }
    each(edit, |_| ())
}

fn mtu(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mtu = if args.form == Form::Set { Some(need(args.number_u32())?) } else { None };
    edit.each_interface(|interface, name| {
        ip::layer3(interface, name)?;
        if let (Some(ip), Some(link)) = (mtu, interface.mtu)
            && ip > link
        {
            return Err(format!("IP MTU {ip} is more than the MTU of {name}, {link}").into());
        }
        interface.layer3.ip_mtu = mtu;
        Ok(())
    })
}

fn verify(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let urpf = match (args.form, args.has("rx")) {
        (Form::Set, true) => Urpf::Strict,
        (Form::Set, false) => Urpf::Loose,
        _ => Urpf::Off,
    };
    let is_v6 = args.has("ipv6");
    each(edit, |settings| *(if is_v6 { &mut settings.urpf_ipv6 } else { &mut settings.urpf_ipv4 }) = urpf)
}

fn arp_timeout(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let seconds = if args.form == Form::Set { Some(need(args.number_u32())?) } else { None };
    each(edit, |settings| settings.arp_timeout_s = seconds)
}

fn helper(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let table = if args.has("global") {
        HelperVrf::Global
    } else {
        vrf::known(edit.config, args)?.map_or(HelperVrf::Own, HelperVrf::Named)
    };
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
                Some(helper) => Err(format!("{} is no helper address of {name}", helper.address).into()),
                None => Ok(()),
            }
        });
    }
    let helper = need(helper)?;
    let address = helper.address;
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() || address.is_broadcast() {
        return Err(format!("{address} is no address of a server").into());
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
                Some(gone) => Err(format!("{} is no relay destination of {name}", gone.address).into()),
                None => Ok(()),
            }
        });
    }
    let destination = need(destination)?;
    let address = destination.address;
    if address.is_unspecified() || address.is_loopback() {
        return Err(format!("{address} is no address of a server").into());
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

fn nd_flag(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let on = args.form == Form::Set;
    nd(edit, |nd| {
        *(if args.has("managed-config-flag") { &mut nd.managed } else { &mut nd.other }) = on;
        Ok(())
    })
}

fn nd_interval(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mut numbers = args
        .values
        .iter()
        .filter_map(|v| if let Value::Number(n) = v { u16::try_from(*n).ok() } else { None });
    let (max, min) = (numbers.next(), numbers.next());
    let interval_s = if args.form == Form::Set { Some((need(max)?, min)) } else { None };
    // RFC 4861, 6.2.1: MinRtrAdvInterval.
    if let Some((max, Some(min))) = interval_s
        && u32::from(min) * 4 > u32::from(max) * 3
    {
        return Err(format!("a minimum of {min} is more than three quarters of {max}").into());
    }
    nd(edit, |nd| {
        nd.interval_s = interval_s;
        lifetime_fits(nd)
    })
}

fn nd_lifetime(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let seconds = if args.form == Form::Set { need(args.number())?.try_into().ok() } else { None };
    nd(edit, |nd| {
        nd.lifetime_s = seconds;
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

fn nd_suppress(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let suppress = match (args.form, args.has("all")) {
        (Form::Set, true) => RaSuppress::All,
        (Form::Set, false) => RaSuppress::Periodic,
        _ => RaSuppress::No,
    };
    nd(edit, |nd| {
        nd.suppress = suppress;
        Ok(())
    })
}

/// The lifetimes a line names: none or two.
fn lifetimes(args: &Args) -> Option<(u32, u32)> {
    let mut numbers = args
        .values
        .iter()
        .filter_map(|v| if let Value::Number(n) = v { u32::try_from(*n).ok() } else { None });
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

fn encapsulation(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan = if args.form == Form::Set { Some(need(args.vlan())?) } else { None };
    let names = match &*edit.mode {
        crate::mode::ConfigMode::Interface { names, .. } => names.clone(),
        _ => Vec::new(),
    };
    for name in &names {
        let InterfaceName::Netdev(text) = name else {
            return Err(format!("{} is no subinterface", crate::render::ios_name(name)).into());
        };
        let Some((parent, _)) = split_subinterface(text) else {
            return Err(format!("{text} is no subinterface: {text}.1 would be one").into());
        };
        let parent_role =
            edit.config.interfaces.get(&InterfaceName::Netdev(parent.to_owned())).map(|i| i.role);
        let Some(vlan) = vlan else { continue };
        if parent_role != Some(Role::Routed) {
            return Err(format!("{parent} is no routed port: enter no switchport there first").into());
        }
        if let Some(other) = subinterface_with(edit.config, parent, vlan, name) {
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
        (Some(_), _) => Err(format!("{name} is a port of its own").into()),
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
