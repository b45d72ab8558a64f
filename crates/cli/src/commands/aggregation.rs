//! Link aggregation: `channel-group`, `port-channel ...`, `lacp ...`, `show etherchannel`, `show lacp`.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::mode::ConfigMode;
use crate::outcome::Outcome;
use crate::render::aggregation as text;
use crate::setting::{Choice, Flag, Line, Number, Setting};
use crate::tree::{Node, arg, kw};
use crate::view::{Channels, EtherchannelSummary, InternalVlan, InternalVlans};
use lanyard_config::aggregation::{MAX_BUNDLED, MAX_LACP_MEMBERS};
use lanyard_config::layer3::Layer3;
use lanyard_config::{Config, Interface, InterfaceName, Role, Switchport};
use lanyard_lacp::Mode;
use lanyard_types::{BalanceFields, ChannelId, LoadBalance};

const fn by(source: bool, destination: bool, fields: BalanceFields) -> LoadBalance {
    LoadBalance { source, destination, fields, symmetric: false }
}

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[
    Setting::of(
        "lacp system-priority",
        "LACP priority for the system",
        &Number::any(
            field!(Config, aggregation.system_priority),
            0,
            65_535,
            "Priority value; less is better",
        ),
    )
    .line(),
    Setting::of(
        "port-channel load-balance",
        "Load Balancing method",
        &Choice {
            field: field!(Config, aggregation.load_balance),
            of: &[
                ("dst-ip", by(false, true, BalanceFields::Ip), "Dst IP Addr"),
                ("dst-mac", by(false, true, BalanceFields::Mac), "Dst Mac Addr"),
                ("dst-mixed-ip-port", by(false, true, BalanceFields::IpPort), "Dst IP Addr and TCP/UDP Port"),
                ("dst-port", by(false, true, BalanceFields::Port), "Dst TCP/UDP Port"),
                ("src-dst-ip", by(true, true, BalanceFields::Ip), "Src XOR Dst IP Addr"),
                ("src-dst-mac", by(true, true, BalanceFields::Mac), "Src XOR Dst Mac Addr"),
                (
                    "src-dst-mixed-ip-port",
                    by(true, true, BalanceFields::IpPort),
                    "Src XOR Dst IP Addr and TCP/UDP Port",
                ),
                ("src-dst-port", by(true, true, BalanceFields::Port), "Src XOR Dst TCP/UDP Port"),
                ("src-ip", by(true, false, BalanceFields::Ip), "Src IP Addr"),
                ("src-mac", by(true, false, BalanceFields::Mac), "Src Mac Addr"),
                ("src-mixed-ip-port", by(true, false, BalanceFields::IpPort), "Src IP Addr and TCP/UDP Port"),
                ("src-port", by(true, false, BalanceFields::Port), "Src TCP/UDP Port"),
            ],
        },
    )
    .line(),
    Setting::of(
        "port-channel load-balance symmetric",
        "Both directions of a conversation choose by the same hash",
        &Flag(field!(Config, aggregation.symmetric)),
    )
    .line(),
];

/// In interface configuration.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "lacp port-priority",
        "LACP priority on this interface",
        &Number::any(field!(Interface, aggregation.priority), 0, 65_535, "Priority value; less is better"),
    )
    .on(member)
    .line(),
    Setting::of(
        "lacp rate",
        "Set LACP control packets transmission rate",
        &Choice {
            field: field!(Interface, aggregation.fast),
            of: &[
                ("fast", true, "The partner sends LACP control packets once every second"),
                ("normal", false, "The partner sends LACP control packets every 30 seconds"),
            ],
        },
    )
    .on(member)
    .line(),
    Setting::of(
        "lacp max-bundle",
        "LACP maximum number of ports to bundle in this port channel",
        &Number::any(field!(Interface, aggregation.max_bundle), 1, 8, "Max number of ports to bundle"),
    )
    .on(channel)
    .line(),
    Setting::of(
        "port-channel min-links",
        "Minimum number of bundled links needed for this port channel",
        &Number::any(field!(Interface, aggregation.min_links), 1, 8, "Minimum number of bundled links"),
    )
    .on(channel)
    .line(),
    Line::own("", CHANNEL_GROUP, print_group),
];

/// Help for keywords that end no line, in global configuration.
pub const GROUPS: &[(&str, &str)] =
    &[("lacp", "LACP configuration"), ("port-channel", "EtherChannel configuration")];

/// Help for keywords that end no line, in interface configuration.
pub const PORT_GROUPS: &[(&str, &str)] =
    &[("lacp", "LACP interface subcommands"), ("port-channel", "EtherChannel interface subcommands")];

const CHANNEL_GROUP: Node =
    kw("channel-group", "Etherchannel/port bundling configuration").no(leave).then(&[arg(
        Kind::Number(1, 255),
        "Channel group number",
    )
    .then(&[kw("mode", "Etherchannel Mode of the interface").then(&[
        kw("active", "Enable LACP unconditionally").set(join),
        kw("on", "Enable Etherchannel only").set(join),
        kw("passive", "Enable LACP only if a LACP device is detected").set(join),
    ])])]);

fn print_group(interface: &Interface) -> Vec<String> {
    let line = |(channel, mode)| format!("channel-group {channel} mode {}", mode_name(mode));
    interface.aggregation.group.map(line).into_iter().collect()
}

/// The keyword of a mode.
#[must_use]
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Active => "active",
        Mode::Passive => "passive",
        Mode::On => "on",
    }
}

/// The condition of settings of members: VLAN interfaces and port-channels do not have them.
fn member(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    match (name, name.channel()) {
        (InterfaceName::Netdev(_), None) => Ok(true),
        _ => {
            Err(format!("Command rejected: {words} is a setting of physical ports, and {name} is none.")
                .into())
        }
    }
}

/// The condition of settings that only port-channels have.
fn channel(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    match name.channel() {
        Some(_) => Ok(true),
        None => {
            Err(format!("Command rejected: {words} is a setting of port-channels, and {name} is none.")
                .into())
        }
    }
}

/// `no channel-group`.
fn leave(edit: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    edit.each_interface(|interface, _| {
        interface.aggregation.group = None;
        Ok(())
    })
}

/// `channel-group N mode M`. A port-channel that does not exist yet gets the layer-2 settings of its first member, and is routed
/// if this member is a routed port.
fn join(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let channel = need(args.number().and_then(|number| ChannelId::new(u8::try_from(number).ok()?)))?;
    let modes = [("active", Mode::Active), ("on", Mode::On), ("passive", Mode::Passive)];
    let mode = need(args.among(&modes))?;
    let ConfigMode::Interface { names, .. } = &*edit.mode else {
        return Err("this command needs an interface mode: enter interface first".into());
    };
    let names = names.clone();
    check_members(edit.config, &names, channel, mode)?;
    let key = InterfaceName::of_channel(channel);
    if !edit.config.interfaces.contains_key(&key) {
        let first = names.first().and_then(|name| edit.config.interfaces.get(name));
        let switchport = first.map_or_else(Switchport::default, |first| first.switchport.clone());
        let role = if first.is_some_and(Interface::is_routed) { Role::Routed } else { Role::Switchport };
        let interface = Interface { role, switchport, ..Interface::default() };
        edit.config.interfaces.insert(key.clone(), interface);
        edit.notices.push(format!("Creating a port-channel interface {key}"));
    }
    let role = edit.config.interfaces.get(&key).map_or(Role::Switchport, |channel| channel.role);
    for name in &names {
        super::layer3::has_subinterfaces(edit.config, name)?;
    }
    edit.each_interface(|interface, name| {
        can_join(interface, name, channel, role)?;
        interface.role = role;
        interface.aggregation.group = Some((channel, mode));
        Ok(())
    })
}

/// Refuses an interface that cannot be a member of `channel`, a port-channel with the role `role`.
fn can_join(
    interface: &Interface,
    name: &InterfaceName,
    channel: ChannelId,
    role: Role,
) -> Result<(), Refusal> {
    if name.channel().is_some() || matches!(name, InterfaceName::Vlan(_)) {
        return Err(format!("Command rejected: {name} is no physical port.").into());
    }
    super::qos::may_join(interface, name)?;
    let layer =
        |role| if role == Role::Routed { "a routed port (layer 3)" } else { "a switch port (layer 2)" };
    if interface.role != Role::Unset && interface.role != role {
        let word = if role == Role::Routed { "no switchport" } else { "switchport" };
        return Err(format!(
            "Command rejected: {name} is {}, and port-channel{channel} is {}: enter {word} at {name} first.",
            layer(interface.role),
            layer(role)
        )
        .into());
    }
    let addresses = !interface.ipv4.is_empty() || !interface.ipv6.is_empty();
    if addresses || interface.layer3 != Layer3::default() {
        return Err(format!(
            "Command rejected: {name} has IP settings: remove them (default interface {name}), and enter them at interface \
             port-channel {channel}."
        )
        .into());
    }
    Ok(())
}

/// Refuses new members `names` if the port-channel would have too many, or if its other members use another protocol.
fn check_members(
    config: &Config,
    names: &[InterfaceName],
    channel: ChannelId,
    mode: Mode,
) -> Result<(), Refusal> {
    let others: Vec<_> = config.members(channel).filter(|(name, _)| !names.contains(name)).collect();
    let other = others.iter().find_map(|(name, interface)| {
        let (_, other) = interface.aggregation.group?;
        ((other == Mode::On) != (mode == Mode::On)).then_some((name, other))
    });
    if let Some((name, other)) = other {
        return Err(format!(
            "Command rejected: {name} is in channel group {channel} with mode {}: the members either all have mode on, or all \
             have LACP.",
            mode_name(other)
        )
        .into());
    }
    let most = if mode == Mode::On { usize::from(MAX_BUNDLED) } else { MAX_LACP_MEMBERS };
    let count = others.len() + names.len();
    if count > most {
        return Err(format!(
            "Command rejected: channel group {channel} would have {count} members; the most with mode {} is {most}.",
            mode_name(mode)
        )
        .into());
    }
    Ok(())
}

/// `no interface port-channel N`: the members leave it and are shut down, as in IOS, so that they form no loop.
pub(super) fn remove(config: &mut Config, channel: ChannelId) {
    let group = Some(channel);
    for interface in config.interfaces.values_mut() {
        if interface.aggregation.group.map(|(channel, _)| channel) == group {
            interface.aggregation.group = None;
            interface.shutdown = true;
        }
    }
}

const NUMBER: Node = arg(Kind::Number(1, 255), "Channel group number");
const DETAIL: Node = kw("detail", "Detail information").exec(detail);
const PORT_CHANNEL: Node = kw("port-channel", "Port-channel information").exec(port_channel);
const SUMMARY: Node = kw("summary", "One-line summary per channel-group").exec(summary);

/// `show etherchannel ...`.
pub const SHOW_ETHERCHANNEL: Node = kw("etherchannel", "EtherChannel information").exec(summary).then(&[
    DETAIL,
    kw("load-balance", "Load-balance/frame-distribution scheme among ports in port-channel")
        .exec(load_balance),
    PORT_CHANNEL,
    SUMMARY,
    NUMBER.exec(summary).then(&[DETAIL, PORT_CHANNEL, SUMMARY]),
]);

const COUNTERS: Node = kw("counters", "Traffic information").exec(lacp_counters);
const INTERNAL: Node = kw("internal", "Internal information").exec(lacp_internal);
const NEIGHBOR: Node = kw("neighbor", "Neighbor information").exec(lacp_neighbor);

/// `show vlan internal usage`.
pub const SHOW_INTERNAL_VLANS: Node = kw("internal", "VLANs that the switch uses for routed port-channels")
    .then(&[kw("usage", "The VLANs and their interfaces").exec(internal_vlans)]);

/// `show lacp ...`.
pub const SHOW_LACP: Node = kw("lacp", "Port channel information").then(&[
    COUNTERS,
    INTERNAL,
    NEIGHBOR,
    kw("sys-id", "LACP System ID").exec(sys_id),
    NUMBER.then(&[COUNTERS, INTERNAL, NEIGHBOR]),
]);

/// `clear lacp counters`.
pub const CLEAR_LACP: Node =
    kw("lacp", "Clear LACP statistics").then(&[kw("counters", "Clear traffic information").exec(
        |exec, _| {
            exec.backend.clear_lacp_counters();
            Ok(Outcome::Text(String::new()))
        },
    )]);

type Shown = Result<Outcome, Refusal>;

/// The port-channel that the line names, or all.
fn channels(exec: &mut Exec<'_>, args: &Args) -> Channels {
    let mut view = exec.backend.channels();
    if let Some(number) = args.number() {
        view.channels.retain(|channel| u64::from(channel.number) == number);
    }
    view
}

fn summary(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = channels(exec, args);
    Ok(exec.present(&EtherchannelSummary::of(&view), |_| text::summary(&view)))
}

fn port_channel(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = channels(exec, args);
    Ok(exec.present(&view, text::port_channel))
}

fn detail(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = channels(exec, args);
    Ok(exec.present(&view, text::detail))
}

fn load_balance(exec: &mut Exec<'_>, _: &Args) -> Shown {
    let view = exec.backend.channels().load_balance;
    Ok(exec.present(&view, text::load_balance))
}

fn internal_vlans(exec: &mut Exec<'_>, _: &Args) -> Shown {
    let used = exec.backend.running().internal_vlans();
    let mut internal: Vec<_> =
        used.map(|it| InternalVlan { vlan: it.vlan.get(), interface: it.name.to_string() }).collect();
    internal.sort_by_key(|it| it.vlan);
    let view = InternalVlans { internal };
    Ok(exec.present(&view, text::internal_vlans))
}

fn lacp_neighbor(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = channels(exec, args);
    Ok(exec.present(&view, text::neighbor))
}

fn lacp_internal(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = channels(exec, args);
    Ok(exec.present(&view, text::internal))
}

fn lacp_counters(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = channels(exec, args);
    Ok(exec.present(&view, text::counters))
}

fn sys_id(exec: &mut Exec<'_>, _: &Args) -> Shown {
    let view = exec.backend.channels().system;
    Ok(exec.present(&view, text::sys_id))
}
