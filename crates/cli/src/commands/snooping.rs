//! `ip igmp snooping ...`, `ipv6 mld snooping ...`: settings, `show` and `clear` commands of multicast snooping.
//!
//! IGMP and MLD snooping have the same settings, under the names that IOS has for each. A setting of one VLAN overrides the same
//! setting of all VLANs.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::snooping as text;
use crate::setting::{Flag, Line, Number, Setting};
use crate::tree::{Node, arg, kw, number};
use crate::view::{Snooping, SnoopingGroups, SnoopingQueriers, SnoopingRouters};
use lanyard_config::text::reference;
use lanyard_config::{Config, Interface, InterfaceName, SnoopingSettings, VlanSnooping};
use lanyard_pipeline::state::Unregistered;
use lanyard_types::Family;
use std::net::IpAddr;

/// The highest limit of the number of groups at a port.
const MAX_LIMIT: u64 = 65_536;
/// The highest limit of the number of sources of a group at a port: `lanyard_snoop::MAX_SOURCES_AT_PORT`.
const MAX_SOURCES: u64 = 128;

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[
    Setting::of("ip igmp snooping", IGMP_HELP, &Flag(field!(Config, snooping.igmp.on))).line(),
    Setting::of(
        "ip igmp snooping report-suppression",
        "Send one report of each group to multicast routers",
        &Flag(field!(Config, snooping.igmp.report_suppression)),
    )
    .line(),
    Setting::of("ip igmp snooping proxy", PROXY_HELP, &Flag(field!(Config, snooping.igmp.proxy))).line(),
    Setting::of(
        "ip igmp snooping tcn flood query count",
        FLOOD_HELP,
        &Number::any(field!(Config, snooping.igmp.tcn_flood_count), 1, 10, "General queries"),
    )
    .line(),
    Setting::of(
        "ip igmp snooping tcn query solicit",
        SOLICIT_HELP,
        &Flag(field!(Config, snooping.igmp.tcn_solicit)),
    )
    .line(),
    Line::own("ip igmp", IGMP, |config| lines(config, Family::V4)),
    Setting::of("ipv6 mld snooping", MLD_HELP, &Flag(field!(Config, snooping.mld.on))).line(),
    Setting::of(
        "ipv6 mld snooping listener-message-suppression",
        "Send one report of each group to multicast routers",
        &Flag(field!(Config, snooping.mld.report_suppression)),
    )
    .line(),
    Setting::of("ipv6 mld snooping proxy", PROXY_HELP, &Flag(field!(Config, snooping.mld.proxy))).line(),
    Setting::of(
        "ipv6 mld snooping tcn flood query count",
        FLOOD_HELP,
        &Number::any(field!(Config, snooping.mld.tcn_flood_count), 1, 10, "General queries"),
    )
    .line(),
    Line::own("ipv6 mld", MLD, |config| lines(config, Family::V6)),
];

/// In interface configuration.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "ip igmp max-groups",
        "Limit the IGMP groups that hosts at the interface may join",
        &Number::any(field!(Interface, max_groups[0]), 0, MAX_LIMIT, "Groups"),
    )
    .on(physical)
    .line(),
    Setting::of(
        "ip igmp max-sources",
        "Limit the sources that hosts at the interface may choose in a group",
        &Number::any(
            field!(Interface, max_sources[0]),
            1,
            MAX_SOURCES,
            "Sources; beyond the limit the interface gets all",
        ),
    )
    .on(physical)
    .line(),
    Setting::of(
        "ipv6 mld max-sources",
        "Limit the sources that hosts at the interface may choose in a group",
        &Number::any(
            field!(Interface, max_sources[1]),
            1,
            MAX_SOURCES,
            "Sources; beyond the limit the interface gets all",
        ),
    )
    .on(physical)
    .line(),
    Setting::of(
        "ipv6 mld max-groups",
        "Limit the MLD groups that hosts at the interface may join",
        &Number::any(field!(Interface, max_groups[1]), 0, MAX_LIMIT, "Groups"),
    )
    .on(physical)
    .line(),
];

/// Help for keywords that end no line, in global configuration.
pub const GROUPS: &[(&str, &str)] = &[
    ("ip igmp", "IGMP global configuration"),
    ("ip igmp snooping tcn", "Handling of topology changes"),
    ("ip igmp snooping tcn flood", "Flooding after a topology change"),
    ("ip igmp snooping tcn flood query", "Queries until flooding ends"),
    ("ip igmp snooping tcn query", "Queries after a topology change"),
    ("ipv6 mld", "MLD global configuration"),
    ("ipv6 mld snooping tcn", "Handling of topology changes"),
    ("ipv6 mld snooping tcn flood", "Flooding after a topology change"),
    ("ipv6 mld snooping tcn flood query", "Queries until flooding ends"),
];

/// Help for keywords that end no line, in interface configuration.
pub const PORT_GROUPS: &[(&str, &str)] =
    &[("ip igmp", "IGMP interface subcommands"), ("ipv6 mld", "MLD interface subcommands")];

const IGMP_HELP: &str = "Global IGMP snooping enable; on by default";
const MLD_HELP: &str = "Global MLD snooping enable";
const PROXY_HELP: &str = "Report to multicast routers for all hosts, whose own reports stay at the switch";
const FLOOD_HELP: &str = "General queries until groups are no longer flooded after a topology change";
const SOLICIT_HELP: &str = "Ask the querier for a general query after a topology change";

fn physical(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(true),
        InterfaceName::Vlan(vlan) => Err(format!("Vlan{vlan} is a VLAN interface: it has no {words}").into()),
    }
}

/// The nodes of the settings that can be configured both for all VLANs and for one VLAN, followed by the nodes `more`.
macro_rules! settings {
    ($count:literal, $interval:literal, $address:expr, $version:literal $(, $more:expr)*) => {
        &[
            kw($count, "Queries before a last member is removed")
                .no(setting)
                .then(&[number(1, 7, "Queries").run(setting)]),
            kw($interval, "Time within which members answer when a host has left")
                .no(setting)
                .then(&[number(100, 32_767, "Milliseconds").run(setting)]),
            kw("querier", "Send queries while no multicast router does").run(setting).then(&[
                kw("address", "Source address of queries")
                    .no(setting)
                    .then(&[arg($address, "Address").run(setting)]),
                kw("max-response-time", "Time within which members answer a general query")
                    .no(setting)
                    .then(&[number(1, 25, "Seconds").run(setting)]),
                kw("query-interval", "Time between two general queries")
                    .no(setting)
                    .then(&[number(1, 18_000, "Seconds").run(setting)]),
                kw("timer", "Timers of the querier").then(&[kw(
                    "expiry",
                    "Time after which another querier counts as absent",
                )
                .no(setting)
                .then(&[number(60, 300, "Seconds").run(setting)])]),
                kw("version", "Version of queries")
                    .no(setting)
                    .then(&[number(1, $version, "Version").run(setting)]),
            ]),
            kw("robustness-variable", "Number of lost messages that memberships survive")
                .no(setting)
                .then(&[number(1, 7, "Robustness").run(setting)]),
            kw("unregistered", "Treatment of groups without members").no(setting).then(&[
                kw("flood", "Send their frames to all ports").run(setting),
                kw("mrouter", "Send their frames to the ports of multicast routers only").run(setting),
            ]),
            $($more,)*
        ]
    };
}

/// The nodes of the settings of one VLAN, after `vlan N`.
macro_rules! vlan_settings {
    ($count:literal, $interval:literal, $address:expr, $version:literal) => {
        settings!(
            $count,
            $interval,
            $address,
            $version,
            kw("immediate-leave", "Remove a port from a group when its last known member leaves").run(own),
            kw("mrouter", "Port of a multicast router").then(&[kw("interface", "Interface").then(&[arg(
                Kind::Interface,
                "Interface"
            )
            .run(own)])]),
            kw("static", "Static member of a group").then(&[arg($address, "Group").then(&[kw(
                "interface",
                "Interface"
            )
            .then(&[arg(Kind::Interface, "Interface").run(own)])])])
        )
    };
}

const IGMP: Node = kw("snooping", IGMP_HELP).then(settings!(
    "last-member-query-count",
    "last-member-query-interval",
    Kind::Ipv4,
    3,
    kw("vlan", "Settings of one VLAN").then(&[arg(Kind::Vlan, "VLAN ID")
        .run(switched)
        .then(vlan_settings!("last-member-query-count", "last-member-query-interval", Kind::Ipv4, 3))])
));

const MLD: Node = kw("snooping", MLD_HELP).then(settings!(
    "last-listener-query-count",
    "last-listener-query-interval",
    Kind::Ipv6,
    2,
    kw("vlan", "Settings of one VLAN").then(&[arg(Kind::Vlan, "VLAN ID")
        .run(switched)
        .then(vlan_settings!("last-listener-query-count", "last-listener-query-interval", Kind::Ipv6, 2))])
));

/// The family of a line: IPv6 for `mld`, IPv4 for `igmp`.
fn family(args: &Args) -> Family {
    if args.words.contains(&"mld") { Family::V6 } else { Family::V4 }
}

/// The keywords of the last-member query count and interval, for which IOS has different words in the two families.
const fn last_words(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("last-member-query-count", "last-member-query-interval"),
        Family::V6 => ("last-listener-query-count", "last-listener-query-interval"),
    }
}

/// `... snooping vlan N`.
fn switched(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan = need(args.vlan())?;
    let off = &mut edit.config.snooping.of_mut(family(args)).off_vlans;
    match args.form {
        Form::No => off.insert(vlan),
        Form::Set | Form::Default => off.remove(vlan),
    };
    Ok(())
}

/// Changes a setting of all VLANs, or of one if the line names it.
fn setting(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let (family, mut refusal) = (family(args), Ok(()));
    let snooping = edit.config.snooping.of_mut(family);
    match args.vlan() {
        Some(vlan) => snooping.change_vlan(vlan, |own| refusal = put(&mut own.settings, args, family)),
        None => refusal = put(&mut snooping.common, args, family),
    }
    refusal
}

fn put(settings: &mut SnoopingSettings, args: &Args, family: Family) -> Result<(), Refusal> {
    let set = args.form == Form::Set;
    let small = || args.numbers().first().and_then(|number| u8::try_from(*number).ok()).filter(|_| set);
    let number = || args.numbers().first().and_then(|number| u16::try_from(*number).ok()).filter(|_| set);
    let (count, interval) = last_words(family);
    match args.words.last().copied().unwrap_or_default() {
        word if word == count => settings.last_member_count = small(),
        word if word == interval => settings.last_member_ms = number(),
        "robustness-variable" => settings.robustness = small(),
        "address" => {
            let address = args.addresses().first().copied().filter(|_| set);
            if let Some(address) = address
                && !sends(address)
            {
                return Err(format!(
                    "{address} is not a source address of queries: enter {}",
                    match family {
                        Family::V4 => "a unicast address",
                        Family::V6 => "a link-local address",
                    }
                )
                .into());
            }
            settings.querier_address = address;
        }
        "max-response-time" => settings.max_response_s = small(),
        "query-interval" => settings.query_interval_s = number(),
        "expiry" => settings.querier_expiry_s = number(),
        "version" => settings.querier_version = small(),
        "flood" => settings.unregistered = Some(Unregistered::Flood).filter(|_| set),
        "mrouter" => settings.unregistered = Some(Unregistered::Routers).filter(|_| set),
        "unregistered" => settings.unregistered = None,
        "querier" => {
            settings.querier = match args.form {
                Form::Set => Some(true),
                Form::No if args.vlan().is_some() => Some(false),
                Form::No | Form::Default => None,
            };
        }
        other => return Err(format!("{other} is not a setting of snooping").into()),
    }
    Ok(())
}

/// True for an address that queries may come from (RFC 3376, 4.1.12; RFC 3810, 5.1.14).
fn sends(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !address.is_multicast()
                && !address.is_broadcast()
                && !address.is_loopback()
                && !address.is_unspecified()
        }
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Changes a setting that exists for single VLANs only.
fn own(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let (family, vlan, set) = (family(args), need(args.vlan())?, args.form == Form::Set);
    let interface = args.interface();
    if let Some(InterfaceName::Vlan(vlan)) = &interface {
        return Err(format!("Vlan{vlan} is not a port: enter a port of the VLAN").into());
    }
    let group = args.addresses().first().copied();
    if let Some(group) =
        group.filter(|group| !group.is_multicast() || lanyard_wire::group::is_always_flooded(*group))
    {
        return Err(format!("{group} is not a group that can be limited to ports: enter a multicast address that is not of link scope").into());
    }
    let change = |own: &mut VlanSnooping| match (interface, group) {
        (None, _) => own.immediate_leave = set,
        (Some(name), None) if set => _ = own.mrouters.insert(name),
        (Some(name), None) => _ = own.mrouters.remove(&name),
        (Some(name), Some(group)) if set => _ = own.statics.entry(group).or_default().insert(name),
        (Some(name), Some(group)) => {
            if let Some(members) = own.statics.get_mut(&group) {
                members.remove(&name);
                if members.is_empty() {
                    own.statics.remove(&group);
                }
            }
        }
    };
    edit.config.snooping.of_mut(family).change_vlan(vlan, change);
    Ok(())
}

/// The lines of a family in the running configuration, without those that are a [`Setting`] each.
fn lines(config: &Config, family: Family) -> Vec<String> {
    let words = match family {
        Family::V4 => "ip igmp snooping",
        Family::V6 => "ipv6 mld snooping",
    };
    let snooping = config.snooping.of(family);
    let mut lines = setting_lines(words, &snooping.common, family);
    lines.extend(snooping.off_vlans.iter().map(|vlan| format!("no {words} vlan {vlan}")));
    for (vlan, own) in &snooping.vlans {
        let words = format!("{words} vlan {vlan}");
        lines.extend(setting_lines(&words, &own.settings, family));
        lines.extend(own.immediate_leave.then(|| format!("{words} immediate-leave")));
        lines
            .extend(own.mrouters.iter().map(|name| format!("{words} mrouter interface {}", reference(name))));
        for (group, members) in &own.statics {
            let line = |name| format!("{words} static {group} interface {}", reference(name));
            lines.extend(members.iter().map(line));
        }
    }
    lines
}

fn setting_lines(words: &str, settings: &SnoopingSettings, family: Family) -> Vec<String> {
    let (count, interval) = last_words(family);
    let value = |word: &str, value: Option<String>| value.map(|value| format!("{words} {word} {value}"));
    let number = |word: &str, number: Option<u16>| value(word, number.map(|number| number.to_string()));
    let small = |word: &str, number: Option<u8>| value(word, number.map(|number| number.to_string()));
    let unregistered = settings.unregistered.map(|policy| match policy {
        Unregistered::Flood => "flood".to_owned(),
        Unregistered::Routers => "mrouter".to_owned(),
    });
    let querier = settings
        .querier
        .map(|on| if on { format!("{words} querier") } else { format!("no {words} querier") });
    [
        small(count, settings.last_member_count),
        number(interval, settings.last_member_ms),
        querier,
        value("querier address", settings.querier_address.map(|address| address.to_string())),
        small("querier max-response-time", settings.max_response_s),
        number("querier query-interval", settings.query_interval_s),
        number("querier timer expiry", settings.querier_expiry_s),
        small("querier version", settings.querier_version),
        small("robustness-variable", settings.robustness),
        value("unregistered", unregistered),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const VLAN: Node = arg(Kind::Vlan, "VLAN ID");

/// The nodes after `show ... snooping`: `first`, and the tables of all VLANs or of one.
macro_rules! shows {
    ($first:expr) => {
        &[
            $first,
            kw("groups", "Groups and the ports of their members")
                .exec(groups)
                .then(&[kw("vlan", "One VLAN").then(&[VLAN.exec(groups)])]),
            kw("mrouter", "Ports of multicast routers")
                .exec(routers)
                .then(&[kw("vlan", "One VLAN").then(&[VLAN.exec(routers)])]),
            kw("querier", "The querier of each VLAN")
                .exec(queriers)
                .then(&[kw("vlan", "One VLAN").then(&[VLAN.exec(queriers)])]),
        ]
    };
}

const SHOW: Node =
    kw("snooping", "Multicast snooping").exec(snooping).then(shows!(kw("vlan", "One VLAN").then(&[
        VLAN.exec(snooping).then(&[
            kw("groups", "Groups and the ports of their members").exec(groups),
            kw("mrouter", "Ports of multicast routers").exec(routers),
            kw("querier", "The querier of the VLAN").exec(queriers),
        ])
    ])));

/// `show ip igmp ...`.
pub const SHOW_IGMP: Node = kw("igmp", "IGMP information").then(&[SHOW]);
/// `show ipv6 mld ...`.
pub const SHOW_MLD: Node = kw("mld", "MLD information").then(&[SHOW]);

const CLEAR: Node = kw("snooping", "Multicast snooping").then(&[kw(
    "membership",
    "Forget the members that have been learned",
)
.exec(clear)]);
/// `clear ip igmp ...`.
pub const CLEAR_IGMP: Node = kw("igmp", "IGMP").then(&[CLEAR]);
/// `clear ipv6 mld ...`.
pub const CLEAR_MLD: Node = kw("mld", "MLD").then(&[CLEAR]);

fn view(exec: &mut Exec<'_>, args: &Args) -> Snooping {
    let mut view = exec.backend.snooping(family(args));
    if let Some(only) = args.vlan() {
        view.vlans.retain(|vlan| vlan.vlan == only.get());
    }
    view
}

fn snooping(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = view(exec, args);
    Ok(exec.present(&view, text::snooping))
}

fn groups(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = SnoopingGroups::of(view(exec, args));
    Ok(exec.present(&view, text::groups))
}

fn routers(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = SnoopingRouters::of(view(exec, args));
    Ok(exec.present(&view, text::routers))
}

fn queriers(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = SnoopingQueriers::of(view(exec, args));
    Ok(exec.present(&view, text::queriers))
}

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.backend.clear_snooping(family(args));
    Ok(Outcome::Text(String::new()))
}
