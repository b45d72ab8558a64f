//! `interface I`, `interface range ...`, and the lines under them.
//!
//! Invariant: an interface whose role is unset has no switchport settings that imply one, and only routed
//! ports and VLAN interfaces have addresses; so the text of a configuration describes it completely.

use super::{
    access_list, aggregation, discovery, ip, layer3, location, need, platform, qos, snooping, spanning_tree,
    vrrp,
};
use crate::args::{Args, Form, Kind, Names};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::mode::ConfigMode;
use crate::setting::{Choice, Flag, Line, Number, OneVlan, Setting, Station, Text};
use crate::tree::{Node, arg, kw};
use lanyard_config::layer3::Layer3;
use lanyard_config::names::split_subinterface;
use lanyard_config::{
    AccessGroups, Config, Duplex, Interface, InterfaceName, PortAccess, QosPort, Role, Switchport,
    SwitchportMode, Vlan, Voice, text,
};
use lanyard_pipeline::state::{Delivery, HookChoice, Tpid};
use lanyard_types::{ChannelId, VlanId, VlanSet};
use std::sync::LazyLock;

/// The maximum length of a subinterface's name, in bytes: the kernel's limit without the prefix `ly`.
const MAX_SUBINTERFACE: usize = 13;
/// The maximum length of a description, in bytes.
const MAX_DESCRIPTION: usize = 240;
/// The speeds that can be configured, in Mbit/s.
const SPEEDS: &[u64] =
    &[10, 100, 1000, 2500, 5000, 10_000, 20_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000];

/// Under global configuration.
pub const ENTRY: Node = kw("interface", "Select an interface to configure").then(&[
    kw("range", "Several interfaces at once").then(&[arg(
        Kind::InterfaceRange,
        "Interfaces, such as swp1 - 4 , eth7",
    )
    .run(enter_range)]),
    arg(Kind::Interface, "Network device, or VLAN interface").run(enter),
]);

/// The lines of `(config-if)#`, in the order in which the running configuration prints them.
pub static LINES: LazyLock<Vec<&'static [Line<Interface>]>> = LazyLock::new(|| {
    let features = super::FEATURES.iter().map(|feature| feature.lines);
    let after = [
        AFTER_FEATURES,
        super::SVI_LINES,
        layer3::HEAD,
        LINK,
        platform::PORT,
        spanning_tree::PORT,
        discovery::PORT,
        location::PORT,
        snooping::PORT,
        aggregation::PORT,
        ip::ADDRESSES,
        super::accepted::PORT,
        layer3::LINES,
        vrrp::LINES,
        access_list::BINDINGS,
        qos::PORT,
        TAIL,
    ];
    [HEAD, SWITCHPORT]
        .into_iter()
        .chain(super::PORT_LINES.iter().copied())
        .chain(features)
        .chain(after)
        .collect()
});

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] = &[
    ("dot1q", "802.1Q parameters"),
    ("dot1q tunneling", "802.1Q tunneling"),
    ("logging", "Configure logging for interface"),
    ("logging event", "Interface events"),
    ("mac", "MAC configuration"),
    ("mac address-table", "MAC forwarding table"),
    ("switchport access", "Set access mode characteristics of the interface"),
    ("switchport voice", "Voice appliance attributes"),
    ("switchport block", "Disable forwarding of unknown uni/multi cast addresses"),
    ("switchport trunk", "Set trunking characteristics of the interface"),
    ("switchport trunk allowed", "Set allowed VLAN characteristics when interface is in trunking mode"),
    ("switchport trunk native", "Set trunking native characteristics when interface is in trunking mode"),
];

const HEAD: &[Line<Interface>] = &[Setting::of(
    "description",
    "Interface specific description",
    &Text {
        field: field!(Interface, description),
        kind: Kind::Line(MAX_DESCRIPTION),
        help: "Up to 240 characters describing this interface",
    },
)
.line()];

/// The lines of layer 2. `no switchport` comes after those that make the port a switch port.
const SWITCHPORT: &[Line<Interface>] = &[
    Line::Own { under: "switchport access", node: ACCESS_VLAN, print: print_access_vlan },
    Line::Own { under: "switchport voice", node: VOICE_VLAN, print: print_voice_vlan },
    Setting::of(
        "switchport trunk native vlan",
        "Set native VLAN when interface is in trunking mode",
        &OneVlan {
            field: field!(Interface, switchport.native_vlan),
            help: "VLAN ID of the native VLAN when this port is in trunking mode",
        },
    )
    .on(port)
    .line(),
    Line::Own { under: "switchport trunk allowed", node: ALLOWED, print: print_allowed },
    Setting::of(
        "switchport mode",
        "Set trunking mode of the interface",
        &Choice {
            field: field!(Interface, switchport.mode),
            of: &[
                ("access", SwitchportMode::Access, "Set trunking mode to ACCESS unconditionally"),
                ("dot1q-tunnel", SwitchportMode::Tunnel, "Set trunking mode to TUNNEL unconditionally"),
                ("trunk", SwitchportMode::Trunk, "Set trunking mode to TRUNK unconditionally"),
            ],
        },
    )
    .on(port)
    .always(|interface| interface.role == Role::Switchport)
    .line(),
    Setting::of(
        "switchport protected",
        "Configure an interface to be a protected port",
        &Flag(field!(Interface, switchport.protected)),
    )
    .on(port)
    .line(),
    Setting::of(
        "switchport block unicast",
        "Block unknown unicast addresses",
        &Flag(field!(Interface, switchport.block_unicast)),
    )
    .on(port)
    .line(),
    Setting::of(
        "switchport block multicast",
        "Block unknown multicast addresses",
        &Flag(field!(Interface, switchport.block_multicast)),
    )
    .on(port)
    .line(),
];

/// The layer-2 lines that the running configuration prints after those of [`crate::commands::FEATURES`].
const AFTER_FEATURES: &[Line<Interface>] = &[
    Line::Own {
        under: "",
        node: kw("switchport", "Make this a port of the switch; set its characteristics").run(switchport),
        print: |interface| routed_line(interface).into_iter().collect(),
    },
    Setting::of(
        "mac address-table learning",
        "Learn addresses on this port",
        &Flag(field!(Interface, switchport.learning)),
    )
    .on(physical)
    .line(),
    Setting::of(
        "mac address-table limit",
        "Dynamic addresses allowed on this port",
        &Number::any(field!(Interface, switchport.fdb_limit), 1, 1_000_000, "Dynamic addresses"),
    )
    .on(physical)
    .line(),
    Setting::of(
        "dot1q tunneling ethertype",
        "EtherType of this port's VLAN tags",
        &Choice {
            field: field!(Interface, switchport.tpid),
            of: &[
                ("0x8100", Tpid::Dot1q, "The customer tag, 802.1Q"),
                ("0x88a8", Tpid::Dot1ad, "The service tag, 802.1ad"),
                ("0x9100", Tpid::Stacked9100, "The EtherType of older equipment for stacked tags"),
            ],
        },
    )
    .on(physical)
    .line(),
];

const LINK: &[Line<Interface>] = &[
    Setting::of(
        "mtu",
        "Set the interface Maximum Transmission Unit (MTU)",
        &Number::any(field!(Interface, mtu), 68, 9216, "MTU size in bytes"),
    )
    .on(own_mtu)
    .then(|interface, _| {
        // As in IOS, an IP MTU larger than the MTU is removed.
        let mtu = interface.mtu;
        interface.layer3.ip_mtu = interface.layer3.ip_mtu.filter(|ip| mtu.is_none_or(|mtu| *ip <= mtu));
        Ok(())
    })
    .line(),
    Setting::of("mac-address", "Set the interface MAC address", &Station { field: field!(Interface, mac) })
        .on(own_mtu)
        .line(),
    Setting::of(
        "speed",
        "Configure speed operation",
        &Number {
            field: field!(Interface, speed_mbps),
            range: (10, 400_000),
            help: "Speed in Mbit/s",
            words: &[("auto", None, "Enable AUTO speed configuration")],
            check: |speed| {
                let known: Vec<String> = SPEEDS.iter().map(ToString::to_string).collect();
                if SPEEDS.contains(&speed) {
                    return Ok(());
                }
                Err(format!("{speed} is not a speed: enter auto or one of {}", known.join(", ")))
            },
        },
    )
    .on(netdev)
    .line(),
    Setting::of(
        "duplex",
        "Configure duplex operation",
        &Choice {
            field: field!(Interface, duplex),
            of: &[
                ("auto", Duplex::Auto, "Enable AUTO duplex configuration"),
                ("full", Duplex::Full, "Force full duplex operation"),
                ("half", Duplex::Half, "Force half-duplex operation"),
            ],
        },
    )
    .on(netdev)
    .line(),
    Setting::of(
        "hook",
        "Kernel hook that forwards this port",
        &Choice {
            field: field!(Interface, hook),
            of: &[
                ("auto", HookChoice::Auto, "XDP where the driver supports it and it is faster, else TC"),
                ("tc", HookChoice::Tc, "Traffic control ingress"),
                ("xdp", HookChoice::Xdp, "Express data path; refused where the driver does not support it"),
            ],
        },
    )
    .on(netdev)
    .line(),
    Setting::of(
        "delivery",
        "How frames are handed to a veth port whose far end is in another namespace",
        &Choice {
            field: field!(Interface, delivery),
            of: &[
                (
                    "auto",
                    Delivery::Auto,
                    "Directly to the far end unless that bypasses something, else through the device",
                ),
                ("device", Delivery::Device, "Through the port's own transmit path"),
                ("peer", Delivery::Peer, "Directly to the far end"),
            ],
        },
    )
    .on(netdev)
    .line(),
];

const TAIL: &[Line<Interface>] = &[
    Setting::of(
        "logging event link-status",
        "Log when the link goes up or down",
        &Flag(field!(Interface, log_link)),
    )
    .line(),
    Setting::of(
        "sflow enable",
        "Sample received frames and report counters",
        &Flag(field!(Interface, sflow)),
    )
    .on(netdev)
    .line(),
    Setting::of("shutdown", "Shutdown the selected interface", &Flag(field!(Interface, shutdown))).line(),
];

const ACCESS_VLAN: Node = kw("vlan", "Set VLAN when interface is in access mode")
    .no(access_vlan)
    .then(&[arg(Kind::Vlan, "VLAN ID of the VLAN when this port is in access mode").run(access_vlan)]);

const VOICE_VLAN: Node = kw("vlan", "VLAN for voice traffic").no(voice_vlan).then(&[
    kw("dot1p", "Priority tagged on PVID").set(voice_vlan),
    kw("none", "Don't tell telephone about voice vlan").set(voice_vlan),
    kw("untagged", "Untagged on PVID").set(voice_vlan),
    arg(Kind::Vlan, "Vlan for voice traffic").set(voice_vlan),
]);

fn print_voice_vlan(interface: &Interface) -> Vec<String> {
    let words = |voice| match voice {
        Voice::Vlan(vlan) => format!("switchport voice vlan {vlan}"),
        Voice::Dot1p => "switchport voice vlan dot1p".to_owned(),
        Voice::Untagged => "switchport voice vlan untagged".to_owned(),
    };
    interface.switchport.voice.map(words).into_iter().collect()
}

/// `switchport voice vlan N|dot1p|none|untagged`. Like an access VLAN, a voice VLAN that does not exist yet is created.
fn voice_vlan(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let words = [("dot1p", Some(Voice::Dot1p)), ("none", None), ("untagged", Some(Voice::Untagged))];
    let vlan = args.vlan().filter(|_| args.form == Form::Set);
    let voice = match (args.form, vlan) {
        (Form::Set, Some(vlan)) => Some(Voice::Vlan(vlan)),
        (Form::Set, None) => need(args.among(&words))?,
        _ => None,
    };
    each_port(edit, args.form, |port| port.voice = voice)?;
    if let Some(vlan) = vlan.filter(|vlan| !edit.config.vlans.contains_key(vlan)) {
        edit.config.vlans.insert(vlan, Vlan::default());
        edit.notices.push(format!("% Voice VLAN does not exist. Creating vlan {vlan}"));
    }
    Ok(())
}

const ALLOWED: Node =
    kw("vlan", "Set allowed VLANs when interface is in trunking mode").no(allow_all).then(&[
        kw("add", "Add VLANs to the current list").then(&[ALLOWED_LIST.set(allow_more)]),
        kw("all", "All VLANs").set(allow_all),
        kw("except", "All VLANs except the following").then(&[ALLOWED_LIST.set(allow_all_but)]),
        kw("none", "No VLANs").set(allow_none),
        kw("remove", "Remove VLANs from the current list").then(&[ALLOWED_LIST.set(allow_fewer)]),
        arg(Kind::VlanList, "VLAN IDs of the allowed VLANs").run(allow),
    ]);

const ALLOWED_LIST: Node = arg(Kind::VlanList, "VLAN IDs, such as 10 or 10,20-30");

fn print_access_vlan(interface: &Interface) -> Vec<String> {
    let vlan = interface.switchport.access_vlan;
    if vlan == VlanId::DEFAULT { Vec::new() } else { vec![format!("switchport access vlan {vlan}")] }
}

fn print_allowed(interface: &Interface) -> Vec<String> {
    let allowed = &interface.switchport.allowed_vlans;
    if *allowed == Switchport::default().allowed_vlans {
        return Vec::new();
    }
    let parts = text::chunks(allowed);
    if parts.is_empty() {
        return vec!["switchport trunk allowed vlan none".to_owned()];
    }
    let line = |(at, part): (usize, String)| {
        format!("switchport trunk allowed vlan {}{part}", if at == 0 { "" } else { "add " })
    };
    parts.into_iter().enumerate().map(line).collect()
}

fn routed_line(interface: &Interface) -> Option<String> {
    (interface.role == Role::Routed).then(|| "no switchport".to_owned())
}
fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    select(edit, args, false)
}

fn enter_range(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    select(edit, args, true)
}

fn select(edit: &mut Edit<'_>, args: &Args, range: bool) -> Result<(), Refusal> {
    let names = need(args.interfaces())?;
    for name in &names {
        let missing = match (name, edit.exists) {
            (InterfaceName::Netdev(netdev), Some(exists)) if name.channel().is_none() => {
                !exists.is_netdev(netdev) && !subinterface(edit.config, exists, netdev)?
            }
            _ => false,
        };
        if missing && !edit.config.interfaces.contains_key(name) {
            let refusal = match (name, edit.exists) {
                (InterfaceName::Netdev(netdev), Some(exists)) => exists.netdev_refusal(netdev),
                _ => None,
            };
            return Err(match refusal {
                Some(reason) => format!("{name} {reason}").into(),
                None => {
                    format!("Interface {name} does not exist: there is no such network device here").into()
                }
            });
        }
    }
    for name in names.iter().filter(|_| args.form != Form::Set) {
        layer3::has_subinterfaces(edit.config, name)?;
    }
    for name in &names {
        let is_vlan = matches!(name, InterfaceName::Vlan(_));
        match args.form {
            Form::Set if is_vlan => {
                edit.config.interfaces.entry(name.clone()).or_default();
            }
            Form::Set if name.channel().is_some() => {
                let port = Interface { role: Role::Switchport, ..Interface::default() };
                edit.config.interfaces.entry(name.clone()).or_insert(port);
            }
            Form::Set => {}
            Form::Default | Form::No if name.channel().is_some() => {
                if let Some(channel) = name.channel() {
                    aggregation::remove(edit.config, channel);
                }
                edit.config.interfaces.remove(name);
            }
            Form::Default if is_vlan && edit.config.interfaces.contains_key(name) => {
                edit.config.interfaces.insert(name.clone(), Interface::default());
            }
            Form::Default | Form::No => {
                edit.config.interfaces.remove(name);
            }
        }
    }
    if args.form == Form::Set {
        *edit.mode = ConfigMode::Interface { names, range };
    }
    Ok(())
}

/// True when `netdev` has the form of a subinterface's name, `eth1.100`, and its parent exists or is configured.
fn subinterface(config: &Config, exists: &dyn Names, netdev: &str) -> Result<bool, Refusal> {
    let Some((parent, _)) = split_subinterface(netdev) else { return Ok(false) };
    let key = InterfaceName::Netdev(parent.to_string());
    if !exists.is_netdev(&parent) && !config.interfaces.contains_key(&key) {
        return Ok(false);
    }
    if netdev.len() > MAX_SUBINTERFACE {
        return Err(format!(
            "{netdev} is {} bytes long: a subinterface's name has at most {MAX_SUBINTERFACE}, because its \
             pipeline end is called ly{netdev}",
            netdev.len()
        )
        .into());
    }
    Ok(true)
}

/// The condition of settings that VLAN interfaces do not have.
fn physical(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(true),
        InterfaceName::Vlan(vlan) => Err(format!("Vlan{vlan} is a VLAN interface: it has no {words}").into()),
    }
}

/// The condition of settings that VLAN interfaces and port-channels do not have.
fn netdev(interface: &mut Interface, name: &InterfaceName, form: Form, words: &str) -> Result<bool, Refusal> {
    if name.channel().is_some() {
        return Err(format!("{name} is a port-channel: {words} is a setting of its members").into());
    }
    physical(interface, name, form, words)
}

/// The condition of the MTU and the MAC address, which a port-channel takes from its members.
fn own_mtu(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    match name.channel() {
        None => Ok(true),
        Some(_) => Err(format!("{name} is a port-channel: {words} is a setting of its members").into()),
    }
}

/// `switchport`, `no switchport` (routed), `default switchport` (not a port of the switch).
fn switchport(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if let (ConfigMode::Interface { names, .. }, true) = (&*edit.mode, args.form != Form::No) {
        names.iter().try_for_each(|name| layer3::has_subinterfaces(edit.config, name))?;
    }
    edit.each_interface(|interface, name| {
        switching(name)?;
        if let Role::Subinterface(_) = interface.role {
            return Err(format!("Command rejected: {name} not a switching port.").into());
        }
        let role = match args.form {
            Form::Set => Role::Switchport,
            Form::No => Role::Routed,
            // A port-channel is always a port of the switch, because it has no netdev that other programs could use.
            Form::Default if name.channel().is_some() => Role::Switchport,
            Form::Default => Role::Unset,
        };
        if let Some((channel, _)) = interface.aggregation.group {
            if interface.role == role {
                return Ok(());
            }
            return Err(format!(
                "Command rejected: {name} is a member of channel group {channel}: enter the command at interface \
                 port-channel {channel}, or no channel-group first."
            )
            .into());
        }
        interface.role = role;
        if interface.role != Role::Routed {
            interface.ipv4.clear();
            interface.ipv6.clear();
            interface.layer3 = Layer3::default();
        }
        // As in IOS, only switch ports have 802.1X.
        if interface.role != Role::Switchport {
            interface.access = PortAccess::default();
        }
        if interface.role == Role::Unset {
            let Switchport { tpid, learning, fdb_limit, .. } = interface.switchport;
            interface.switchport = Switchport { tpid, learning, fdb_limit, ..Switchport::default() };
            interface.access_groups = AccessGroups::default();
            interface.qos = QosPort::default();
        }
        Ok(())
    })?;
    if let ConfigMode::Interface { names, .. } = &*edit.mode {
        names
            .iter()
            .filter_map(InterfaceName::channel)
            .for_each(|channel| like_channel(edit.config, channel));
    }
    Ok(())
}

/// Gives the members of a port-channel its role: switched or routed.
fn like_channel(config: &mut Config, channel: ChannelId) {
    let Some(role) = config.interfaces.get(&InterfaceName::of_channel(channel)).map(|it| it.role) else {
        return;
    };
    let members = config
        .interfaces
        .values_mut()
        .filter(|member| member.aggregation.group.is_some_and(|(of, _)| of == channel));
    members.for_each(|member| member.role = role);
}

fn switching(name: &InterfaceName) -> Result<(), Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(()),
        InterfaceName::Vlan(vlan) => {
            Err(format!("Command rejected: Vlan{vlan} not a switching port.").into())
        }
    }
}

/// The condition of layer-2 settings: a plain line makes an unused netdev a switch port; the `no` form leaves it unused.
pub(super) fn port(
    interface: &mut Interface,
    name: &InterfaceName,
    form: Form,
    _: &str,
) -> Result<bool, Refusal> {
    switching(name)?;
    match (form, interface.role) {
        (Form::Set, Role::Unset) => interface.role = Role::Switchport,
        (Form::Set, Role::Routed | Role::Subinterface(_)) => {
            return Err(format!("Command rejected: {name} not a switching port.").into());
        }
        _ => {}
    }
    Ok(interface.role != Role::Unset)
}

/// Edits the layer-2 settings of every interface of the mode.
pub(super) fn each_port(
    edit: &mut Edit<'_>,
    form: Form,
    mut set: impl FnMut(&mut Switchport),
) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        if port(interface, name, form, "")? {
            set(&mut interface.switchport);
        }
        Ok(())
    })
}

fn access_vlan(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan = if args.form == Form::Set { need(args.vlan())? } else { VlanId::DEFAULT };
    let create = !edit.config.vlans.contains_key(&vlan) && args.form == Form::Set;
    each_port(edit, args.form, |port| port.access_vlan = vlan)?;
    if create {
        edit.config.vlans.insert(vlan, Vlan::default());
        edit.notices.push(format!("% Access VLAN does not exist. Creating vlan {vlan}"));
    }
    Ok(())
}

/// Sets the allowed VLANs of every interface of the mode to the result of `change` for its present list and the line's list.
fn change_allowed(
    edit: &mut Edit<'_>,
    args: &Args,
    change: impl Fn(&VlanSet, &VlanSet) -> VlanSet,
) -> Result<(), Refusal> {
    let list = args.vlans().unwrap_or_default();
    each_port(edit, args.form, |port| port.allowed_vlans = change(&port.allowed_vlans, &list))
}

/// `switchport trunk allowed vlan LIST`; its `no` form allows all.
fn allow(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        return allow_all(edit, args);
    }
    change_allowed(edit, args, |_, list| list.clone())
}

fn allow_all(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_allowed(edit, args, |_, _| VlanSet::all())
}

fn allow_none(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_allowed(edit, args, |_, _| VlanSet::EMPTY)
}

fn allow_more(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_allowed(edit, args, VlanSet::union)
}

fn allow_fewer(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_allowed(edit, args, VlanSet::difference)
}

fn allow_all_but(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_allowed(edit, args, |_, list| VlanSet::all().difference(list))
}
