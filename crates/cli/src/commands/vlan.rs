//! The VLAN database: `vlan LIST` and the lines under it (IEEE 802.1Q-2018, clause 8.6; IOS "vlan").
//!
//! Invariant: VLAN 1 always exists and cannot be changed; no two VLANs have the same name in `show vlan`.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::mode::ConfigMode;
use crate::setting::{Choice, Flag, Line, Setting};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{Config, Vlan};
use lanyard_types::VlanId;

/// The maximum length of a VLAN name, in bytes.
const MAX_NAME: usize = 32;

/// Under `vlan LIST`.
const LINES: &[Line<Vlan>] = &[
    // The limit is not printed here: the table of `mac address-table` in global configuration stores and prints it.
    Line::unprinted("mac address-table", LIMIT),
    Line::own("", NAME, |vlan| vlan.name.iter().map(|name| format!("name {name}")).collect()),
    Setting::of("remote-span", "Configure as Remote SPAN VLAN", &Flag(field!(Vlan, remote_span)))
        .then(|vlan, id| {
            if vlan.remote_span && *id == VlanId::DEFAULT {
                return Err("Default VLAN 1 may not be configured as a remote-span VLAN.".into());
            }
            Ok(())
        })
        .line(),
    Setting::of(
        "state",
        "Operational state of the VLAN",
        &Choice {
            field: field!(Vlan, suspended),
            of: &[
                ("active", false, "VLAN active state"),
                ("suspend", true, "VLAN suspended state: it forwards nothing"),
            ],
        },
    )
    .then(|vlan, id| {
        if vlan.suspended && *id == VlanId::DEFAULT {
            return Err("Default VLAN 1 may not have its state changed.".into());
        }
        Ok(())
    })
    .line(),
    Setting::of("shutdown", "Shut the VLAN down: it forwards nothing", &Flag(field!(Vlan, shutdown)))
        .then(|vlan, id| {
            if vlan.shutdown && *id == VlanId::DEFAULT {
                return Err("Default VLAN 1 may not be shutdown.".into());
            }
            Ok(())
        })
        .line(),
];

/// The tables of `(config-vlan)#`, in the order in which the running configuration prints them.
pub const TABLES: &[&[Line<Vlan>]] = &[LINES, super::private_vlan::VLAN];

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] =
    &[("mac", "MAC configuration"), ("mac address-table", "MAC forwarding table")];

const LIMIT: Node = kw("limit", "Dynamic addresses allowed in the VLAN").no(limit).then(&[number(
    1,
    1_000_000,
    "Dynamic addresses",
)
.run(limit)]);

const NAME: Node = kw("name", "ASCII name of the VLAN").no(name).then(&[arg(
    Kind::Word("WORD", MAX_NAME),
    "The name, up to 32 characters",
)
.run(name)]);

/// Under global configuration: `vlan LIST`.
pub const ENTRY: Node = arg(Kind::VlanList, "VLAN IDs, such as 10 or 10,20-30").run(vlan);

fn vlan(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let set = need(args.vlans())?;
    if args.form == Form::Set {
        for vlan in set.iter() {
            edit.config.vlans.entry(vlan).or_default();
        }
        *edit.mode = ConfigMode::Vlan(set);
        return Ok(());
    }
    if set.contains(VlanId::DEFAULT) {
        return Err("Default VLAN 1 may not be deleted.".into());
    }
    for vlan in set.iter() {
        edit.config.vlans.remove(&vlan);
    }
    Ok(())
}

/// Refuses a name that another VLAN has or would have: `VLAN0010` is reserved for VLAN 10, whether it exists or
/// not, so that a VLAN can always be created.
fn unique_name(config: &Config, vlan: VlanId, name: &str) -> Result<(), Refusal> {
    let named = |(id, other): &(&VlanId, &Vlan)| **id != vlan && other.name.as_deref() == Some(name);
    let by_name = config.vlans.iter().find(named).map(|(id, _)| *id);
    let number =
        name.strip_prefix("VLAN").filter(|digits| digits.len() == 4).and_then(|digits| digits.parse().ok());
    let by_default = if name == "default" { Some(VlanId::DEFAULT) } else { number };
    match by_name.or_else(|| by_default.filter(|id| *id != vlan)) {
        Some(other) => Err(format!("VLAN #{vlan} and #{other} have an identical name: {name}").into()),
        None => Ok(()),
    }
}

fn name(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ConfigMode::Vlan(set) = &*edit.mode else {
        return Err("this command needs a VLAN mode: enter vlan first".into());
    };
    let name = if args.form == Form::Set { Some(need(args.text())?) } else { None };
    if set.contains(VlanId::DEFAULT) {
        return Err("Default VLAN 1 may not have its name changed.".into());
    }
    if name.is_some() && set.len() > 1 {
        return Err(format!("VLANs {set} can't all have the same name").into());
    }
    if let (Some(name), Some(vlan)) = (&name, set.iter().next()) {
        unique_name(edit.config, vlan, name)?;
    }
    // A name that equals the default is not stored.
    edit.each_vlan(|settings, vlan| {
        settings.name = name.clone().filter(|name| *name != Vlan::default().display_name(vlan));
        Ok(())
    })
}

fn limit(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ConfigMode::Vlan(set) = &*edit.mode else {
        return Err("this command needs a VLAN mode: enter vlan first".into());
    };
    let limit = if args.form == Form::Set { Some(need(args.number_u32())?) } else { None };
    for vlan in set.iter() {
        match limit {
            Some(limit) => edit.config.fdb.vlan_limits.insert(vlan, limit),
            None => edit.config.fdb.vlan_limits.remove(&vlan),
        };
    }
    Ok(())
}
