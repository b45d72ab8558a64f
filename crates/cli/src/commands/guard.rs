//! First-hop security: `ip dhcp snooping ...`, `ip arp inspection ...`, `ip source binding`, `ip verify source`, `ipv6 nd
//! raguard`, `ipv6 dhcp guard`; the commands that show and clear their bindings and statistics.

use super::interface::port;
use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::{Refusal, SnoopedFilter};
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::guard as text;
use crate::setting::{Flag, Line, Number, Setting};
use crate::tree::{Node, arg, kw, number};
use crate::view::{
    Guard, GuardArp, GuardBinding, GuardBindings, GuardDhcp, GuardDhcpPort, GuardPorts, GuardSource,
    GuardSources, GuardStatistics,
};
use lanyard_config::text::{chunks, reference};
use lanyard_config::{Config, Interface, InterfaceName, StaticBinding};
use lanyard_types::{ArpLimit, ArpValidation, MAX_BINDINGS, VerifySource, VlanId, VlanSet};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The highest rate limit for ARP or DHCP at a port, in frames per second, as in IOS.
const MAX_RATE: u64 = 2048;

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[
    Setting::of("ip dhcp snooping", "DHCP Snooping", &Flag(field!(Config, guard.dhcp))).line(),
    Line::own("ip dhcp snooping", DHCP_VLAN, |config| {
        vlan_lines("ip dhcp snooping", &config.guard.dhcp_vlans)
    }),
    Setting::of(
        "ip dhcp snooping information option",
        "DHCP Snooping information option",
        &Flag(field!(Config, guard.option)),
    )
    .line(),
    Setting::of(
        "ip dhcp snooping information option allow-untrusted",
        "Accept option 82 of clients at untrusted ports",
        &Flag(field!(Config, guard.allow_untrusted)),
    )
    .line(),
    Setting::of(
        "ip dhcp snooping verify mac-address",
        "DHCP snooping verify mac-address",
        &Flag(field!(Config, guard.verify_mac)),
    )
    .line(),
    Line::own("ip arp inspection", ARP_VALIDATE, validate_lines),
    Line::own("ip arp inspection", ARP_VLAN, |config| {
        vlan_lines("ip arp inspection", &config.guard.arp_vlans)
    }),
];

/// In global configuration. The lines name interfaces, so the running configuration prints them after the interfaces.
pub const AFTER: &[Line<Config>] = &[Line::own("ip source", BINDING, binding_lines)];

/// Under an interface.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "ip dhcp snooping trust",
        "DHCP Snooping trust config",
        &Flag(field!(Interface, switchport.stages.guard.dhcp_trust)),
    )
    .on(port)
    .line(),
    Setting::of(
        "ip dhcp snooping limit rate",
        "DHCP Snooping limit",
        &Number::any(
            field!(Interface, switchport.stages.guard.dhcp_rate),
            1,
            MAX_RATE,
            "DHCP snooping rate limit",
        ),
    )
    .on(port)
    .line(),
    Setting::of(
        "ip arp inspection trust",
        "Configure Trust state",
        &Flag(field!(Interface, switchport.stages.guard.arp_trust)),
    )
    .on(port)
    .line(),
    Line::own("ip arp inspection", ARP_LIMIT, limit_lines),
    Line::own("ip verify", VERIFY, verify_lines),
    Setting::of(
        "ipv6 nd raguard",
        "Drop router advertisements and redirects of hosts",
        &Flag(field!(Interface, switchport.stages.guard.no_routers)),
    )
    .on(port)
    .line(),
    Setting::of(
        "ipv6 dhcp guard",
        "Drop DHCPv6 messages of servers",
        &Flag(field!(Interface, switchport.stages.guard.no_dhcpv6_servers)),
    )
    .on(port)
    .line(),
];

/// Help for keywords that end no line, in global configuration.
pub const GROUPS: &[(&str, &str)] = &[
    ("ip arp", "IP ARP global configuration"),
    ("ip arp inspection", "Arp Inspection configuration"),
    ("ip dhcp snooping information", "DHCP Snooping information"),
    ("ip dhcp snooping verify", "DHCP snooping verify"),
    ("ip source", "IP source guard"),
];

/// Help for keywords that end no line, under an interface.
pub const PORT_GROUPS: &[(&str, &str)] = &[
    ("ip arp", "Configure ARP features"),
    ("ip arp inspection", "Arp Inspection configuration"),
    ("ip dhcp snooping", "DHCP Snooping"),
    ("ip dhcp snooping limit", "DHCP Snooping limit"),
    ("ip verify", "Verify the source of packets"),
];

const DHCP_VLAN: Node =
    kw("vlan", "DHCP Snooping vlan").then(&[arg(Kind::VlanList, "DHCP Snooping vlans").run(dhcp_vlans)]);
const ARP_VLAN: Node = kw("vlan", "Enable/Disable ARP Inspection on vlans").then(&[arg(
    Kind::VlanList,
    "vlan range, example: 1,3-5,7,9-11",
)
.run(arp_vlans)]);

const ARP_VALIDATE: Node = kw("validate", "Validate addresses").no(validate).then(&[
    kw("src-mac", "Validate source MAC address").run(validate).then(&[DST_MAC, IP]),
    DST_MAC,
    IP,
]);
const DST_MAC: Node = kw("dst-mac", "Validate destination MAC address").run(validate).then(&[IP]);
const IP: Node =
    kw("ip", "Validate IP addresses").run(validate).then(&[kw("allow", "Allow zeros").then(&[kw(
        "zeros",
        "Allow 0.0.0.0 sender IP addresses",
    )
    .run(validate)])]);

const ARP_LIMIT: Node =
    kw("limit", "Configure Rate limit of incoming ARP packets").no(arp_limit).then(&[
        kw("none", "No limit").set(arp_limit),
        kw("rate", "Rate Limit").then(&[number(0, MAX_RATE, "Packets per second").set(arp_limit).then(&[
            kw("burst", "Configure Burst parameters for ARP packets").then(&[kw(
                "interval",
                "Configure Burst interval for ARP packets",
            )
            .then(&[number(1, 15, "Number of seconds").set(arp_limit)])]),
        ])]),
    ]);

const VERIFY: Node = kw("source", "Verify source").run(verify).then(&[kw(
    "port-security",
    "Verify the source MAC address, too",
)
.set(verify)]);

const BINDING: Node = kw("binding", "IP source binding").then(&[arg(Kind::Mac, "binding MAC address").then(
    &[kw("vlan", "binding VLAN").then(&[arg(Kind::Vlan, "VLAN ID").then(&[arg(
        Kind::Ipv4,
        "binding IP address",
    )
    .then(
        &[kw("interface", "binding interface").then(&[arg(Kind::Interface, "Interface").run(binding)])],
    )])])],
)]);

fn dhcp_vlans(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_vlans(&mut edit.config.guard.dhcp_vlans, args)
}

fn arp_vlans(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_vlans(&mut edit.config.guard.arp_vlans, args)
}

pub(super) fn change_vlans(vlans: &mut VlanSet, args: &Args) -> Result<(), Refusal> {
    let set = need(args.vlans())?;
    *vlans = if args.form == Form::Set { vlans.union(&set) } else { vlans.difference(&set) };
    Ok(())
}

pub(super) fn vlan_lines(words: &str, vlans: &VlanSet) -> Vec<String> {
    chunks(vlans).into_iter().map(|part| format!("{words} vlan {part}")).collect()
}

/// `ip arp inspection validate ...`. As in IOS a line replaces the checks of an earlier one. The `no` form ends the checks that
/// it names, or all if it names none.
fn validate(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    // The line begins with `ip`, which is also the name of a check: only the words from `validate` on count.
    let words: Vec<&str> = args.words.iter().copied().skip_while(|word| *word != "validate").collect();
    let named = ArpValidation {
        src_mac: words.contains(&"src-mac"),
        dst_mac: words.contains(&"dst-mac"),
        ip: words.contains(&"ip"),
        allow_zeros: words.contains(&"zeros"),
    };
    let checks = &mut edit.config.guard.validate;
    if args.form == Form::Set {
        *checks = named;
    } else if !named.src_mac && !named.dst_mac && !named.ip {
        *checks = ArpValidation::default();
    } else {
        checks.src_mac &= !named.src_mac;
        checks.dst_mac &= !named.dst_mac;
        checks.ip &= !named.ip;
        checks.allow_zeros &= checks.ip;
    }
    Ok(())
}

fn validate_lines(config: &Config) -> Vec<String> {
    let ArpValidation { src_mac, dst_mac, ip, allow_zeros } = config.guard.validate;
    let words = [(src_mac, " src-mac"), (dst_mac, " dst-mac"), (ip, " ip"), (allow_zeros, " allow zeros")];
    let words: String = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
    if words.is_empty() { Vec::new() } else { vec![format!("ip arp inspection validate{words}")] }
}

fn arp_limit(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let numbers = args.numbers();
    let limit = match (args.form, numbers.first()) {
        (Form::Set, None) => ArpLimit::None,
        (Form::Set, Some(pps)) => ArpLimit::Rate {
            pps: u32::try_from(*pps).unwrap_or(0),
            interval_s: numbers.get(1).and_then(|seconds| u8::try_from(*seconds).ok()).unwrap_or(1),
        },
        _ => ArpLimit::Default,
    };
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            interface.switchport.stages.guard.arp_limit = limit;
        }
        Ok(())
    })
}

fn limit_lines(interface: &Interface) -> Vec<String> {
    match interface.switchport.stages.guard.arp_limit {
        ArpLimit::Default => Vec::new(),
        ArpLimit::None => vec!["ip arp inspection limit none".into()],
        ArpLimit::Rate { pps, interval_s: 1 } => vec![format!("ip arp inspection limit rate {pps}")],
        ArpLimit::Rate { pps, interval_s } => {
            vec![format!("ip arp inspection limit rate {pps} burst interval {interval_s}")]
        }
    }
}

fn verify(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let verify = match args.form {
        Form::Set => args.among(&[("port-security", VerifySource::IpAndMac)]).unwrap_or(VerifySource::Ip),
        Form::No | Form::Default => VerifySource::Off,
    };
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            interface.switchport.stages.guard.verify = verify;
        }
        Ok(())
    })
}

fn verify_lines(interface: &Interface) -> Vec<String> {
    match interface.switchport.stages.guard.verify {
        VerifySource::Off => Vec::new(),
        VerifySource::Ip => vec!["ip verify source".into()],
        VerifySource::IpAndMac => vec!["ip verify source port-security".into()],
    }
}

fn binding(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let Some(IpAddr::V4(address)) = args.addresses().first().copied() else {
        return Err("Incomplete command.".into());
    };
    let nobody =
        address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback();
    change_bindings("ip source binding", &mut edit.config.guard.bindings, args, address, !nobody)
}

/// Adds or removes the static binding of an address in `bindings`. `line` has the first words of the line, for messages;
/// `is_host` is true if a host may have the address.
pub(super) fn change_bindings<A: Copy + Ord + std::fmt::Display>(
    line: &str,
    bindings: &mut BTreeMap<(VlanId, A), StaticBinding>,
    args: &Args,
    address: A,
    is_host: bool,
) -> Result<(), Refusal> {
    let (mac, vlan, interface) = (need(args.mac())?, need(args.vlan())?, need(args.interface())?);
    if mac.is_group() || mac.is_zero() {
        return Err(format!("{mac} is not the address of a host: enter a unicast MAC address").into());
    }
    if !is_host {
        return Err(format!("{address} is not the address of a host: enter a unicast address").into());
    }
    if let InterfaceName::Vlan(vlan) = &interface {
        return Err(format!("Vlan{vlan} is not a port: enter the port behind which the host is").into());
    }
    let (key, made) = ((vlan, address), StaticBinding { mac, interface });
    match args.form {
        Form::Set if bindings.len() >= MAX_BINDINGS && !bindings.contains_key(&key) => {
            let text = format!(
                "the switch has {MAX_BINDINGS} bindings, as many as it can hold: remove some with no {line}"
            );
            return Err(text.into());
        }
        Form::Set => _ = bindings.insert(key, made),
        Form::No | Form::Default if bindings.get(&key) == Some(&made) => _ = bindings.remove(&key),
        Form::No | Form::Default => {}
    }
    Ok(())
}

fn binding_lines(config: &Config) -> Vec<String> {
    let bindings = config.guard.bindings.iter();
    bindings
        .map(|((vlan, address), binding)| {
            let (mac, interface) = (binding.mac, reference(&binding.interface));
            format!("ip source binding {mac} vlan {vlan} {address} interface {interface}")
        })
        .collect()
}

const VLAN: Node = kw("vlan", "One VLAN").then(&[arg(Kind::Vlan, "VLAN ID")]);
const INTERFACE: Node = kw("interface", "One interface").then(&[arg(Kind::Interface, "Interface")]);
pub(super) const FILTERS: &[Node] = &[INTERFACE, VLAN];

/// `show ip dhcp snooping ...`.
pub const SHOW_DHCP: Node = kw("snooping", "DHCP snooping").exec(dhcp).then(&[
    kw("binding", "DHCP snooping bindings").exec(dhcp_bindings).options(FILTERS),
    kw("statistics", "DHCP snooping statistics").exec(statistics),
]);
/// `show ip arp inspection ...`.
pub const SHOW_ARP: Node = kw("inspection", "Arp Inspection information").exec(arp).then(&[
    kw("interfaces", "Interface status").exec(arp_interfaces),
    kw("statistics", "Packets dropped at each interface").exec(arp_statistics),
    kw("vlan", "Selected vlan range").then(&[arg(Kind::VlanList, "VLANs").exec(arp)]),
]);
/// `show ip source ...`.
pub const SHOW_SOURCE: Node = kw("source", "Show source binding")
    .then(&[kw("binding", "Show all bindings").exec(all_bindings).options(FILTERS)]);
/// `show ip verify ...`.
pub const SHOW_VERIFY: Node =
    kw("verify", "Show verify").then(&[kw("source", "Verify source").exec(sources).options(&[INTERFACE])]);
/// `show ipv6 nd raguard`.
pub const SHOW_RAGUARD: Node = kw("raguard", "RA guard and DHCPv6 guard at each interface").exec(guards);
/// `clear ip dhcp ...`.
pub const CLEAR_DHCP: Node = kw("dhcp", "DHCP").then(&[kw("snooping", "DHCP snooping").then(&[
    kw("binding", "Forget the addresses that clients have got")
        .exec(clear)
        .then(&[kw("*", "All of them").exec(clear), arg(Kind::Ipv4, "One address").exec(clear)])
        .options(FILTERS),
    kw("statistics", "Set the statistics to zero").exec(clear_statistics),
])]);

fn filter(args: &Args) -> SnoopedFilter {
    let address = args.addresses().first().copied();
    SnoopedFilter {
        interface: args.interface(),
        vlan: args.vlan(),
        address: address.and_then(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }),
    }
}

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.backend.clear_snooped(&filter(args));
    Ok(Outcome::Text(String::new()))
}

fn clear_statistics(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    exec.backend.clear_snooped_statistics();
    Ok(Outcome::Text(String::new()))
}

fn dhcp(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.guard();
    let ports = view.ports.into_iter().filter(|port| port.dhcp_trusted || port.dhcp_rate_pps.is_some());
    let dhcp = GuardDhcp {
        enabled: view.dhcp_snooping,
        vlans: view.dhcp_vlans,
        operational_vlans: view.operational_vlans,
        information_option: view.information_option,
        allow_untrusted: view.allow_untrusted,
        verify_mac: view.verify_mac,
        interfaces: ports
            .map(|port| GuardDhcpPort {
                interface: port.interface,
                trusted: port.dhcp_trusted,
                rate_limit_pps: port.dhcp_rate_pps,
            })
            .collect(),
    };
    Ok(exec.present(&dhcp, text::dhcp))
}

fn bindings(exec: &mut Exec<'_>, args: &Args, wanted: fn(&GuardBinding) -> bool) -> Outcome {
    let filter = filter(args);
    let Guard { mut bindings, capacity, .. } = exec.backend.guard();
    bindings.retain(|binding| {
        wanted(binding)
            && filter.vlan.is_none_or(|vlan| vlan.get() == binding.vlan)
            && filter.interface.as_ref().is_none_or(|name| name.to_string() == binding.interface)
    });
    let total = bindings.len();
    exec.present(&GuardBindings { bindings, total, capacity }, text::bindings)
}

fn dhcp_bindings(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    Ok(bindings(exec, args, |binding| binding.kind == "dhcp-snooping"))
}

fn all_bindings(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    Ok(bindings(exec, args, |_| true))
}

fn statistics(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.guard();
    let dropped_by_plane = view.ports.iter().filter_map(|port| port.dropped.get("dhcp_server")).sum();
    let statistics = GuardStatistics {
        forwarded: view.forwarded,
        dropped: view.dropped,
        dropped_by_plane,
        refused: view.refused,
    };
    Ok(exec.present(&statistics, text::statistics))
}

fn arp(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.guard();
    let only = args.vlans();
    let shown = |vlan: &u16| only.as_ref().is_none_or(|only| only.iter().any(|only| only.get() == *vlan));
    let arp = GuardArp {
        validate_src_mac: view.validate_src_mac,
        validate_dst_mac: view.validate_dst_mac,
        validate_ip: view.validate_ip,
        allow_zeros: view.allow_zeros,
        vlans: view.arp_vlans.into_iter().filter(shown).collect(),
    };
    Ok(exec.present(&arp, text::arp))
}

fn ports(exec: &mut Exec<'_>, args: &Args, text: fn(&GuardPorts) -> String) -> Outcome {
    let only = args.interface().map(|name| name.to_string());
    let mut interfaces = exec.backend.guard().ports;
    interfaces.retain(|port| only.as_ref().is_none_or(|only| *only == port.interface));
    exec.present(&GuardPorts { interfaces }, text)
}

fn arp_interfaces(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    Ok(ports(exec, args, text::arp_interfaces))
}

fn arp_statistics(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    Ok(ports(exec, args, text::arp_statistics))
}

fn guards(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    Ok(ports(exec, args, text::guards))
}

fn sources(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let only = args.interface().map(|name| name.to_string());
    let Guard { ports, bindings, .. } = exec.backend.guard();
    let shown = ports.iter().filter(|port| {
        port.verify_source != "off" && only.as_ref().is_none_or(|only| *only == port.interface)
    });
    let mut filters = Vec::new();
    for port in shown {
        let of = bindings.iter().filter(|binding| binding.interface == port.interface);
        let mut found: Vec<Option<GuardBinding>> = of.cloned().map(Some).collect();
        if found.is_empty() {
            found.push(None);
        }
        filters.extend(found.into_iter().map(|binding| GuardSource {
            interface: port.interface.clone(),
            filter_type: port.verify_source,
            binding,
            dropped: port.dropped.get("source_guard").copied().unwrap_or(0),
        }));
    }
    Ok(exec.present(&GuardSources { filters }, text::sources))
}
