//! `interface I`, `interface range ...`, and what stands under them.
//!
//! Invariant: an interface whose role is unset has no switchport settings that imply one, and only routed
//! ports and VLAN interfaces have addresses; so the text of a configuration says all there is.

use super::{layer3, need, spanning_tree, vrf, vrrp};
use crate::args::{Args, Kind, Names};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::parse::Form;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::layer3::{Layer3, split_subinterface};
use lanyard_config::{Config, Duplex, Interface, InterfaceName, Role, Switchport, SwitchportMode, Vlan};
use lanyard_pipeline::state::{Delivery, HookChoice, Tpid};
use lanyard_types::{VlanId, VlanSet};

/// Longest name of a subinterface, in bytes: the kernel's limit less `ly`.
const MAX_SUBINTERFACE: usize = 13;
/// Longest description, in bytes.
const MAX_DESCRIPTION: usize = 240;
/// Speeds a port can be told to have, in Mbit/s.
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

/// `(config-if)#`.
pub const TREE: &[Node] = &[
    layer3::ARP,
    kw("delivery", "How frames are handed to a veth port whose far end is in another namespace")
        .no(delivery)
        .then(&[
            kw("auto", "Straight to the far end where nothing is skipped by it").run(delivery),
            kw("device", "Through the port's own transmit path").run(delivery),
            kw("peer", "Straight to the far end").run(delivery),
        ]),
    kw("description", "Interface specific description").no(description).then(&[arg(
        Kind::Line(MAX_DESCRIPTION),
        "Up to 240 characters describing this interface",
    )
    .run(description)]),
    kw("dot1q", "802.1Q parameters").then(&[kw("tunneling", "802.1Q tunneling").then(&[kw(
        "ethertype",
        "EtherType of this port's VLAN tags",
    )
    .no(ethertype)
    .then(&[
        kw("0x8100", "The customer tag, 802.1Q").run(ethertype),
        kw("0x88a8", "The service tag, 802.1ad").run(ethertype),
        kw("0x9100", "What older equipment uses for stacked tags").run(ethertype),
    ])])]),
    kw("duplex", "Configure duplex operation").no(duplex).then(&[
        kw("auto", "Enable AUTO duplex configuration").run(duplex),
        kw("full", "Force full duplex operation").run(duplex),
        kw("half", "Force half-duplex operation").run(duplex),
    ]),
    layer3::ENCAPSULATION,
    kw("hook", "Kernel hook that forwards this port").no(hook).then(&[
        kw("auto", "XDP where the driver has it and it pays, else TC").run(hook),
        kw("tc", "Traffic control ingress").run(hook),
        kw("xdp", "Express data path; refused where the driver has none").run(hook),
    ]),
    layer3::INTERFACE_V4,
    layer3::INTERFACE_V6,
    kw("mac", "MAC configuration").then(&[kw("address-table", "MAC forwarding table").then(&[
        kw("learning", "Learn addresses on this port").run(learning),
        kw("limit", "Dynamic addresses allowed on this port").no(limit).then(&[number(
            1,
            1_000_000,
            "Dynamic addresses",
        )
        .run(limit)]),
    ])]),
    kw("mac-address", "Set the interface MAC address")
        .no(mac_address)
        .then(&[arg(Kind::Mac, "MAC address").run(mac_address)]),
    kw("mtu", "Set the interface Maximum Transmission Unit (MTU)").no(mtu).then(&[number(
        68,
        9216,
        "MTU size in bytes",
    )
    .run(mtu)]),
    kw("shutdown", "Shutdown the selected interface").run(shutdown),
    spanning_tree::INTERFACE,
    kw("speed", "Configure speed operation").no(speed).then(&[
        kw("auto", "Enable AUTO speed configuration").run(speed),
        number(10, 400_000, "Speed in Mbit/s").run(speed),
    ]),
    SWITCHPORT,
    vrf::FORWARDING,
    vrrp::TREE,
];

const SWITCHPORT: Node =
    kw("switchport", "Make this a port of the switch; set its characteristics").run(switchport).then(&[
        kw("access", "Set access mode characteristics of the interface").then(&[kw(
            "vlan",
            "Set VLAN when interface is in access mode",
        )
        .no(access_vlan)
        .then(&[arg(Kind::Vlan, "VLAN ID of the VLAN when this port is in access mode").run(access_vlan)])]),
        kw("block", "Disable forwarding of unknown uni/multi cast addresses").then(&[
            kw("multicast", "Block unknown multicast addresses").run(flag),
            kw("unicast", "Block unknown unicast addresses").run(flag),
        ]),
        kw("mode", "Set trunking mode of the interface").no(mode).then(&[
            kw("access", "Set trunking mode to ACCESS unconditionally").run(mode),
            kw("dot1q-tunnel", "Set trunking mode to TUNNEL unconditionally").run(mode),
            kw("trunk", "Set trunking mode to TRUNK unconditionally").run(mode),
        ]),
        kw("protected", "Configure an interface to be a protected port").run(flag),
        kw("trunk", "Set trunking characteristics of the interface").then(&[
            kw("allowed", "Set allowed VLAN characteristics when interface is in trunking mode").then(&[kw(
                "vlan",
                "Set allowed VLANs when interface is in trunking mode",
            )
            .no(allowed)
            .then(&[
                kw("add", "Add VLANs to the current list").then(ALLOWED_LIST),
                kw("all", "All VLANs").set(allowed),
                kw("except", "All VLANs except the following").then(ALLOWED_LIST),
                kw("none", "No VLANs").set(allowed),
                kw("remove", "Remove VLANs from the current list").then(ALLOWED_LIST),
                arg(Kind::VlanList, "VLAN IDs of the allowed VLANs").run(allowed),
            ])]),
            kw("native", "Set trunking native characteristics when interface is in trunking mode").then(&[
                kw("vlan", "Set native VLAN when interface is in trunking mode").no(native).then(&[arg(
                    Kind::Vlan,
                    "VLAN ID of the native VLAN when this port is in trunking mode",
                )
                .run(native)]),
            ]),
        ]),
    ]);

const ALLOWED_LIST: &[Node] = &[arg(Kind::VlanList, "VLAN IDs, such as 10 or 10,20-30").set(allowed)];

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
            (InterfaceName::Netdev(netdev), Some(exists)) => {
                !exists.is_netdev(netdev) && !subinterface(edit.config, exists, netdev)?
            }
            _ => false,
        };
        if missing && !edit.config.interfaces.contains_key(name) {
            return Err(
                format!("Interface {name} does not exist: there is no such network device here").into()
            );
        }
    }
    for name in names.iter().filter(|_| args.form != Form::Set) {
        has_subinterfaces(edit.config, name)?;
    }
    for name in &names {
        let is_vlan = matches!(name, InterfaceName::Vlan(_));
        match args.form {
            Form::Set if is_vlan => {
                edit.config.interfaces.entry(name.clone()).or_default();
            }
            Form::Set => {}
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

/// True when `netdev` would be a subinterface of a netdev that is there: `eth1.100`.
fn subinterface(config: &Config, exists: &dyn Names, netdev: &str) -> Result<bool, Refusal> {
    let Some((parent, _)) = split_subinterface(netdev) else { return Ok(false) };
    let key = InterfaceName::Netdev(parent.to_owned());
    if !exists.is_netdev(parent) && !config.interfaces.contains_key(&key) {
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

/// Refuses what only a physical port has.
fn physical(name: &InterfaceName, what: &str) -> Result<(), Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(()),
        InterfaceName::Vlan(vlan) => Err(format!("Vlan{vlan} is a VLAN interface: it has no {what}").into()),
    }
}

fn description(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let text = if args.form == Form::Set { Some(need(args.text())?) } else { None };
    edit.each_interface(|interface, _| {
        interface.description.clone_from(&text);
        Ok(())
    })
}

fn shutdown(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.each_interface(|interface, _| {
        interface.shutdown = args.form == Form::Set;
        Ok(())
    })
}

fn mtu(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mtu = if args.form == Form::Set { Some(need(args.number_u32())?) } else { None };
    edit.each_interface(|interface, _| {
        interface.mtu = mtu;
        // As in IOS: an IP MTU that does not fit goes.
        interface.layer3.ip_mtu = interface.layer3.ip_mtu.filter(|ip| mtu.is_none_or(|mtu| *ip <= mtu));
        Ok(())
    })
}

fn mac_address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mac = if args.form == Form::Set { Some(need(args.mac())?) } else { None };
    if let Some(mac) = mac.filter(|mac| mac.is_group() || mac.is_zero()) {
        return Err(format!("{mac} can't be an interface's address: it is no station's").into());
    }
    edit.each_interface(|interface, _| {
        interface.mac = mac;
        Ok(())
    })
}

fn speed(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let speed = match args.form {
        Form::Set if !args.has("auto") => Some(need(args.number())?),
        _ => None,
    };
    if let Some(speed) = speed.filter(|speed| !SPEEDS.contains(speed)) {
        let known: Vec<String> = SPEEDS.iter().map(ToString::to_string).collect();
        return Err(format!("{speed} is not a speed: {}", known.join(", ")).into());
    }
    edit.each_interface(|interface, name| {
        physical(name, "speed")?;
        interface.speed_mbps = speed.and_then(|speed| u32::try_from(speed).ok());
        Ok(())
    })
}

fn duplex(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let duplex = match (args.form, args.has("full"), args.has("half")) {
        (Form::Set, true, _) => Duplex::Full,
        (Form::Set, _, true) => Duplex::Half,
        _ => Duplex::Auto,
    };
    edit.each_interface(|interface, name| {
        physical(name, "duplex")?;
        interface.duplex = duplex;
        Ok(())
    })
}

fn hook(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let hook = match (args.form, args.has("tc"), args.has("xdp")) {
        (Form::Set, true, _) => HookChoice::Tc,
        (Form::Set, _, true) => HookChoice::Xdp,
        _ => HookChoice::Auto,
    };
    edit.each_interface(|interface, name| {
        physical(name, "hook")?;
        interface.hook = hook;
        Ok(())
    })
}

fn delivery(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let delivery = match (args.form, args.has("peer"), args.has("device")) {
        (Form::Set, true, _) => Delivery::Peer,
        (Form::Set, _, true) => Delivery::Device,
        _ => Delivery::Auto,
    };
    edit.each_interface(|interface, name| {
        physical(name, "delivery")?;
        interface.delivery = delivery;
        Ok(())
    })
}

fn ethertype(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let tpid = match (args.form, args.has("0x88a8"), args.has("0x9100")) {
        (Form::Set, true, _) => Tpid::Dot1ad,
        (Form::Set, _, true) => Tpid::Stacked9100,
        _ => Tpid::Dot1q,
    };
    edit.each_interface(|interface, name| {
        physical(name, "tags")?;
        interface.switchport.tpid = tpid;
        Ok(())
    })
}

fn learning(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        physical(name, "learning")?;
        interface.switchport.learning = args.form != Form::No;
        Ok(())
    })
}

fn limit(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let limit = if args.form == Form::Set { Some(need(args.number_u32())?) } else { None };
    edit.each_interface(|interface, name| {
        physical(name, "learning")?;
        interface.switchport.fdb_limit = limit;
        Ok(())
    })
}

/// Refuses to take a routed port away from under its subinterfaces.
fn has_subinterfaces(config: &Config, name: &InterfaceName) -> Result<(), Refusal> {
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

/// `switchport`, `no switchport` (routed), `default switchport` (no port of the switch).
fn switchport(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if let (ConfigMode::Interface { names, .. }, true) = (&*edit.mode, args.form != Form::No) {
        names.iter().try_for_each(|name| has_subinterfaces(edit.config, name))?;
    }
    edit.each_interface(|interface, name| {
        switching(name)?;
        if let Role::Subinterface(_) = interface.role {
            return Err(format!("Command rejected: {name} not a switching port.").into());
        }
        interface.role = match args.form {
            Form::Set => Role::Switchport,
            Form::No => Role::Routed,
            Form::Default => Role::Unset,
        };
        if interface.role != Role::Routed {
            interface.ipv4.clear();
            interface.ipv6.clear();
            interface.layer3 = Layer3::default();
        }
        if interface.role == Role::Unset {
            let Switchport { tpid, learning, fdb_limit, .. } = interface.switchport;
            interface.switchport = Switchport { tpid, learning, fdb_limit, ..Switchport::default() };
        }
        Ok(())
    })
}

fn switching(name: &InterfaceName) -> Result<(), Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(()),
        InterfaceName::Vlan(vlan) => {
            Err(format!("Command rejected: Vlan{vlan} not a switching port.").into())
        }
    }
}

/// Edits the layer-2 settings of every interface of the mode; a plain command makes a netdev a switch port.
fn each_port(edit: &mut Edit<'_>, form: Form, mut set: impl FnMut(&mut Switchport)) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        switching(name)?;
        if form == Form::Set {
            match interface.role {
                Role::Unset => interface.role = Role::Switchport,
                Role::Switchport => {}
                Role::Routed | Role::Subinterface(_) => {
                    return Err(format!("Command rejected: {name} not a switching port.").into());
                }
            }
        }
        if interface.role != Role::Unset {
            set(&mut interface.switchport);
        }
        Ok(())
    })
}

fn mode(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mode = match (args.form, args.has("trunk"), args.has("dot1q-tunnel")) {
        (Form::Set, true, _) => SwitchportMode::Trunk,
        (Form::Set, _, true) => SwitchportMode::Tunnel,
        _ => SwitchportMode::Access,
    };
    each_port(edit, args.form, |port| port.mode = mode)
}

/// `switchport protected`, `switchport block unicast|multicast`.
fn flag(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let on = args.form == Form::Set;
    each_port(edit, args.form, |port| {
        let flag = if args.has("protected") {
            &mut port.protected
        } else if args.has("unicast") {
            &mut port.block_unicast
        } else {
            &mut port.block_multicast
        };
        *flag = on;
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

fn native(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan = if args.form == Form::Set { need(args.vlan())? } else { VlanId::DEFAULT };
    each_port(edit, args.form, |port| port.native_vlan = vlan)
}

fn allowed(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let list = args.vlans().unwrap_or_default();
    each_port(edit, args.form, |port| {
        let now = &port.allowed_vlans;
        port.allowed_vlans = if args.form != Form::Set || args.has("all") {
            VlanSet::all()
        } else if args.has("none") {
            VlanSet::EMPTY
        } else if args.has("add") {
            now.union(&list)
        } else if args.has("remove") {
            now.difference(&list)
        } else if args.has("except") {
            VlanSet::all().difference(&list)
        } else {
            list.clone()
        };
    })
}
