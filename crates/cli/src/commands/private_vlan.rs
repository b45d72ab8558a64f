//! Private VLANs: `private-vlan ...` under VLANs and VLAN interfaces, `switchport private-vlan ...` under ports, and
//! `show vlan private-vlan`.
//!
//! Invariant: only a primary VLAN has associated VLANs.

use super::interface::port;
use super::need;
use crate::args::{Args, Form, Kind, Value};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::outcome::Outcome;
use crate::render::{columns, ios_netdev};
use crate::setting::Line;
use crate::tree::{Node, arg, kw};
use lanyard_config::{Config, Interface, InterfaceName, PrivateKind, Role, SwitchportMode, Vlan, text};
use lanyard_types::{VlanId, VlanSet};
use serde::Serialize;

/// VLANs that cannot be private: the default VLAN, and those that IOS reserves for FDDI and Token Ring.
const ORDINARY: [u16; 5] = [1, 1002, 1003, 1004, 1005];

/// Help for keywords that end no line.
pub const PORT_GROUPS: &[(&str, &str)] = &[
    ("private-vlan", "Configure a private VLAN SVI interface mapping"),
    ("switchport mode private-vlan", "Set private-vlan mode"),
    ("switchport private-vlan", "Set the private VLAN configuration"),
];

/// Help for keywords under `vlan` that end no line.
pub const VLAN_GROUPS: &[(&str, &str)] = &[("private-vlan", "Configure a private VLAN")];

/// Under `vlan LIST`.
pub const VLAN: &[Line<Vlan>] = &[
    Line::own(
        "private-vlan",
        kw("primary", "Configure the VLAN as a primary private VLAN").run(kind),
        |vlan| vlan.private.iter().map(|kind| format!("private-vlan {}", kind.name())).collect(),
    ),
    Line::unprinted(
        "private-vlan",
        kw("isolated", "Configure the VLAN as an isolated private VLAN").run(kind),
    ),
    Line::unprinted(
        "private-vlan",
        kw("community", "Configure the VLAN as a community private VLAN").run(kind),
    ),
    Line::own("private-vlan", ASSOCIATION, |vlan| listed("private-vlan association", &vlan.associated)),
];

/// Under a switch port.
pub const PORT: &[Line<Interface>] = &[
    Line::own("switchport private-vlan", HOST, |interface| {
        let host = interface.switchport.private.host;
        host.iter()
            .map(|(primary, secondary)| {
                format!("switchport private-vlan host-association {primary} {secondary}")
            })
            .collect()
    }),
    Line::own("switchport private-vlan", MAPPING, |interface| match &interface.switchport.private.mapping {
        Some((primary, list)) => listed(&format!("switchport private-vlan mapping {primary}"), list),
        None => Vec::new(),
    }),
    Line::own(
        "switchport mode private-vlan",
        kw("host", "Set the mode to private-vlan host").run(mode),
        |interface| {
            let word = match interface.switchport.mode {
                SwitchportMode::PrivateHost => Some("host"),
                SwitchportMode::PrivatePromiscuous => Some("promiscuous"),
                _ => None,
            };
            word.map(|word| format!("switchport mode private-vlan {word}")).into_iter().collect()
        },
    ),
    Line::unprinted(
        "switchport mode private-vlan",
        kw("promiscuous", "Set the mode to private-vlan promiscuous").run(mode),
    ),
];

/// Under a VLAN interface.
pub const SVI: &[Line<Interface>] = &[Line::own("private-vlan", SVI_MAPPING, |interface| {
    listed("private-vlan mapping", &interface.private_mapping)
})];

const LIST: Node = arg(Kind::VlanList, "VLAN IDs of the secondary VLANs, such as 101 or 101,103-105");

const ASSOCIATION: Node =
    kw("association", "Configure association between private VLANs").no(association).then(&[
        kw("add", "Add VLANs to the list").then(&[LIST.set(association)]),
        kw("remove", "Remove VLANs from the list").then(&[LIST.set(association)]),
        LIST.run(association),
    ]);

const HOST: Node = kw("host-association", "Set the private VLAN host association").no(host).then(&[arg(
    Kind::Vlan,
    "VLAN ID of the primary VLAN",
)
.then(&[arg(Kind::Vlan, "VLAN ID of the secondary VLAN").run(host)])]);

const MAPPING: Node = kw("mapping", "Set the private VLAN promiscuous mapping").no(mapping).then(&[arg(
    Kind::Vlan,
    "VLAN ID of the primary VLAN",
)
.then(&[
    kw("add", "Add VLANs to the list").then(&[LIST.set(mapping)]),
    kw("remove", "Remove VLANs from the list").then(&[LIST.set(mapping)]),
    LIST.run(mapping),
])]);

const SVI_MAPPING: Node =
    kw("mapping", "Set the private VLAN SVI interface mapping").no(svi_mapping).then(&[
        kw("add", "Add VLANs to the list").then(&[LIST.set(svi_mapping)]),
        kw("remove", "Remove VLANs from the list").then(&[LIST.set(svi_mapping)]),
        LIST.run(svi_mapping),
    ]);

/// The lines of a list of VLANs in the running configuration, the later ones with `add`; no lines for an empty list.
fn listed(words: &str, set: &VlanSet) -> Vec<String> {
    let line = |(at, part): (usize, String)| format!("{words} {}{part}", if at == 0 { "" } else { "add " });
    text::chunks(set).into_iter().enumerate().map(line).collect()
}

/// The list of VLANs that results from the line: the line's list, or `held` with `add` or `remove` applied; empty for the `no`
/// form.
fn next(args: &Args, held: &VlanSet) -> Result<VlanSet, Refusal> {
    if args.form != Form::Set {
        return Ok(VlanSet::EMPTY);
    }
    let list = need(args.vlans())?;
    ordinary(&list)?;
    Ok(match args.among(&[("add", true), ("remove", false)]) {
        Some(true) => held.union(&list),
        Some(false) => held.difference(&list),
        None => list,
    })
}

fn ordinary(list: &VlanSet) -> Result<(), Refusal> {
    match list.iter().find(|vlan| ORDINARY.contains(&vlan.get())) {
        Some(vlan) => Err(format!(
            "Command rejected: VLAN {vlan} cannot be a private VLAN: use another of 2-1001, 1006-4094"
        )
        .into()),
        None => Ok(()),
    }
}

fn kind(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let kinds =
        [PrivateKind::Primary, PrivateKind::Isolated, PrivateKind::Community].map(|kind| (kind.name(), kind));
    let chosen = need(args.among(&kinds))?;
    edit.each_vlan(|vlan, id| {
        if args.form == Form::Set {
            ordinary(&[id].into_iter().collect())?;
            vlan.private = Some(chosen);
        } else if vlan.private == Some(chosen) {
            vlan.private = None;
        }
        if vlan.private != Some(PrivateKind::Primary) {
            vlan.associated = VlanSet::EMPTY;
        }
        Ok(())
    })
}

fn association(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.each_vlan(|vlan, id| {
        if args.form == Form::Set && vlan.private != Some(PrivateKind::Primary) {
            return Err(format!(
                "Command rejected: VLAN {id} is not a primary VLAN: enter private-vlan primary first"
            )
            .into());
        }
        let list = next(args, &vlan.associated)?;
        if list.contains(id) {
            return Err(format!("Command rejected: VLAN {id} cannot be its own secondary VLAN").into());
        }
        vlan.associated = list;
        Ok(())
    })
}

/// The VLAN arguments of a line, in order.
fn vlans(args: &Args) -> Vec<VlanId> {
    args.values
        .iter()
        .filter_map(|value| if let Value::Vlan(vlan) = value { Some(*vlan) } else { None })
        .collect()
}

fn host(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let pair = match (args.form, vlans(args).as_slice()) {
        (Form::Set, [primary, secondary]) if primary == secondary => {
            return Err("Command rejected: Primary and secondary VLAN cannot be the same".into());
        }
        (Form::Set, [primary, secondary]) => Some((*primary, *secondary)),
        (Form::Set, _) => return Err("Incomplete command.".into()),
        _ => None,
    };
    ordinary(&pair.into_iter().flat_map(|(primary, secondary)| [primary, secondary]).collect())?;
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            interface.switchport.private.host = pair;
        }
        Ok(())
    })
}

fn mapping(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let primary = args.vlan();
    ordinary(&primary.into_iter().collect())?;
    edit.each_interface(|interface, name| {
        if !port(interface, name, args.form, "")? {
            return Ok(());
        }
        let held = interface.switchport.private.mapping.take();
        let same = held.filter(|(held, _)| Some(*held) == primary).map(|(_, list)| list).unwrap_or_default();
        let list = next(args, &same)?;
        if primary.is_some_and(|primary| list.contains(primary)) {
            return Err("Command rejected: Primary and secondary VLAN cannot be the same".into());
        }
        interface.switchport.private.mapping =
            primary.map(|primary| (primary, list)).filter(|(_, list)| !list.is_empty());
        Ok(())
    })
}

fn mode(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let modes = [("host", SwitchportMode::PrivateHost), ("promiscuous", SwitchportMode::PrivatePromiscuous)];
    let chosen = need(args.among(&modes))?;
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            interface.switchport.mode = if args.form == Form::Set { chosen } else { SwitchportMode::Access };
        }
        Ok(())
    })
}

fn svi_mapping(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        let InterfaceName::Vlan(vlan) = name else {
            return Err(format!(
                "Command rejected: {name} is no VLAN interface: enter switchport private-vlan mapping, or interface vlan"
            )
            .into());
        };
        let list = next(args, &interface.private_mapping)?;
        if list.contains(*vlan) {
            return Err("Command rejected: Primary and secondary VLAN cannot be the same".into());
        }
        interface.private_mapping = list;
        Ok(())
    })
}

/// Under `show vlan`.
pub const SHOW: Node = kw("private-vlan", "Private VLAN information").exec(show).then(&[kw(
    "type",
    "Private VLAN type information",
)
.exec(show_types)]);

/// `show vlan private-vlan`.
#[derive(Debug, Serialize)]
struct PrivateVlans {
    private_vlans: Vec<Pair>,
}

/// A primary VLAN and one of its secondary VLANs; or a primary or secondary VLAN without an association, alone.
#[derive(Debug, Serialize)]
struct Pair {
    primary: Option<u16>,
    secondary: Option<u16>,
    /// `isolated` or `community`; `primary` for a primary VLAN alone; `non-operational` if the associated VLAN does not exist or
    /// is no secondary VLAN of this primary one.
    #[serde(rename = "type")]
    kind: &'static str,
    ports: Vec<String>,
}

fn show(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = PrivateVlans { private_vlans: pairs(exec.backend.running()) };
    Ok(exec.present(&view, pairs_text))
}

fn pairs(config: &Config) -> Vec<Pair> {
    let mut list = Vec::new();
    for (id, vlan) in &config.vlans {
        let alone =
            |primary, secondary, kind: &'static str| Pair { primary, secondary, kind, ports: Vec::new() };
        match vlan.private {
            Some(PrivateKind::Primary) if vlan.associated.is_empty() => {
                list.push(alone(Some(id.get()), None, "primary"));
            }
            Some(PrivateKind::Primary) => list.extend(vlan.associated.iter().map(|secondary| {
                let kind = config.vlans.get(&secondary).and_then(|vlan| vlan.private);
                let works = config.primary_of(secondary) == Some(*id);
                let kind = kind.filter(|_| works).map_or("non-operational", PrivateKind::name);
                Pair {
                    primary: Some(id.get()),
                    secondary: Some(secondary.get()),
                    kind,
                    ports: ports(config, *id, secondary),
                }
            })),
            Some(kind) if config.primary_of(*id).is_none() => {
                list.push(alone(None, Some(id.get()), kind.name()))
            }
            _ => {}
        }
    }
    list.sort_by_key(|pair| (pair.primary.is_none(), pair.primary, pair.secondary));
    list
}

/// The host and promiscuous ports of a pair.
fn ports(config: &Config, primary: VlanId, secondary: VlanId) -> Vec<String> {
    let of_pair = |interface: &Interface| {
        let (port, private) = (&interface.switchport, &interface.switchport.private);
        interface.role == Role::Switchport
            && match port.mode {
                SwitchportMode::PrivateHost => private.host == Some((primary, secondary)),
                SwitchportMode::PrivatePromiscuous => private
                    .mapping
                    .as_ref()
                    .is_some_and(|(to, list)| *to == primary && list.contains(secondary)),
                _ => false,
            }
    };
    config
        .interfaces
        .iter()
        .filter(|(_, interface)| of_pair(interface))
        .map(|(name, _)| name.to_string())
        .collect()
}

fn pairs_text(view: &PrivateVlans) -> String {
    let number = |vlan: Option<u16>| vlan.map_or("none".into(), |vlan| vlan.to_string());
    let row = |pair: &Pair| {
        let ports: Vec<String> = pair.ports.iter().map(|name| ios_netdev(name)).collect();
        vec![number(pair.primary), number(pair.secondary), pair.kind.to_owned(), ports.join(", ")]
    };
    let rows: Vec<_> = view.private_vlans.iter().map(row).collect();
    columns(&["Primary", "Secondary", "Type", "Ports"], &rows, &[])
}

/// `show vlan private-vlan type`.
#[derive(Debug, Serialize)]
struct Types {
    vlans: Vec<OfType>,
}

#[derive(Debug, Serialize)]
struct OfType {
    vlan: u16,
    #[serde(rename = "type")]
    kind: &'static str,
}

fn show_types(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let of = |(id, vlan): (&VlanId, &Vlan)| Some(OfType { vlan: id.get(), kind: vlan.private?.name() });
    let view = Types { vlans: exec.backend.running().vlans.iter().filter_map(of).collect() };
    Ok(exec.present(&view, |view| {
        let rows: Vec<_> =
            view.vlans.iter().map(|vlan| vec![vlan.vlan.to_string(), vlan.kind.to_owned()]).collect();
        columns(&["Vlan", "Type"], &rows, &[])
    }))
}
