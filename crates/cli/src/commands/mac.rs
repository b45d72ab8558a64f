//! `mac address-table ...` in global configuration.

use super::need;
use crate::args::{Args, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::parse::Form;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{FdbConfig, InterfaceName, StaticTarget};
use lanyard_pipeline::state::FDB_LIMIT_DEFAULT;

/// Under global configuration.
pub const ENTRY: Node = kw("mac", "MAC configuration").then(&[kw("address-table", "MAC forwarding table")
    .then(&[
        kw("aging-time", "Time an address stays in the table unseen").no(ageing).then(&[
            kw("0", "Never remove dynamic addresses").run(ageing),
            number(10, 1_000_000, "Ageing time in seconds").run(ageing),
        ]),
        kw("learning", "MAC learning").then(&[kw("vlan", "In VLANs").then(&[arg(
            Kind::VlanList,
            "VLAN IDs, such as 10 or 10,20-30",
        )
        .run(learning)])]),
        kw("limit", "Dynamic addresses allowed").no(limit).then(&[
            number(1, 1_000_000, "Dynamic addresses")
                .run(limit)
                .then(&[kw("vlan", "In one VLAN").then(&[arg(Kind::Vlan, "VLAN ID").run(limit)])]),
            kw("vlan", "In one VLAN").then(&[arg(Kind::Vlan, "VLAN ID").no(limit)]),
        ]),
        kw("static", "Static address").then(&[arg(Kind::Mac, "MAC address").then(&[kw(
            "vlan",
            "In a VLAN",
        )
        .then(&[arg(Kind::Vlan, "VLAN ID").no(fixed).then(&[
            kw("drop", "Drop frames from and to the address").run(fixed),
            kw("interface", "Where the address is").then(&[arg(Kind::Interface, "Interface").run(fixed)]),
        ])])])]),
    ])]);

fn ageing(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.fdb.ageing_s = match args.form {
        Form::Set if args.has("0") => 0,
        Form::Set => need(args.number_u32())?,
        Form::No | Form::Default => FdbConfig::default().ageing_s,
    };
    Ok(())
}

fn learning(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let set = need(args.vlans())?;
    let off = &edit.config.fdb.no_learning;
    edit.config.fdb.no_learning = if args.form == Form::No { off.union(&set) } else { off.difference(&set) };
    Ok(())
}

fn limit(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let fdb = &mut edit.config.fdb;
    match (args.form, args.vlan()) {
        (Form::Set, Some(vlan)) => {
            fdb.vlan_limits.insert(vlan, need(args.number_u32())?);
        }
        (Form::Set, None) => fdb.limit = need(args.number_u32())?,
        (_, Some(vlan)) => {
            fdb.vlan_limits.remove(&vlan);
        }
        (_, None) => fdb.limit = FDB_LIMIT_DEFAULT,
    }
    Ok(())
}

fn fixed(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let (mac, vlan) = (need(args.mac())?, need(args.vlan())?);
    let statics = &mut edit.config.fdb.statics;
    if args.form != Form::Set {
        return match statics.remove(&(vlan, mac)) {
            Some(_) => Ok(()),
            None => Err(format!("there is no static address {mac} in VLAN {vlan}").into()),
        };
    }
    if mac.is_group() {
        return Err(format!("{mac} is a group address: a static address is a station's").into());
    }
    if mac.is_zero() {
        return Err(format!("{mac} is no station's address").into());
    }
    let target = match args.interface() {
        None => StaticTarget::Drop,
        Some(InterfaceName::Vlan(vlan)) => {
            return Err(format!("Vlan{vlan} is no port: a static address is at a port").into());
        }
        Some(name) => StaticTarget::Interface(name),
    };
    statics.insert((vlan, mac), target);
    Ok(())
}
