//! `mac address-table ...` in global configuration.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::setting::{Line, Number, Setting};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::text::{chunks, reference};
use lanyard_config::{Config, InterfaceName, StaticTarget};
use lanyard_pipeline::state::FDB_LIMIT_DEFAULT;
use lanyard_types::{MacAddr, VlanId};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Setting::of(
        "mac address-table aging-time",
        "Time until an address that is not seen is removed",
        &Number {
            field: field!(Config, fdb.ageing_s),
            range: (10, 1_000_000),
            help: "Ageing time in seconds",
            words: &[("0", Some(0), "Never remove dynamic addresses")],
            check: |_| Ok(()),
        },
    )
    .line(),
    Line::own("mac address-table", LIMIT, print_limits),
    Line::own("mac address-table", LEARNING, print_learning),
    Line::own("mac address-table", STATIC, print_statics),
];

const LIMIT: Node = kw("limit", "Dynamic addresses allowed").no(limit).then(&[
    number(1, 1_000_000, "Dynamic addresses").run(limit).then(&[kw("vlan", "In one VLAN").then(&[arg(
        Kind::Vlan,
        "VLAN ID",
    )
    .run(limit)])]),
    kw("vlan", "In one VLAN").then(&[arg(Kind::Vlan, "VLAN ID").no(limit)]),
]);

const LEARNING: Node = kw("learning", "MAC learning").then(&[kw("vlan", "In VLANs").then(&[arg(
    Kind::VlanList,
    "VLAN IDs, such as 10 or 10,20-30",
)
.run(learning)])]);

const STATIC: Node =
    kw("static", "Static address").then(&[arg(Kind::Mac, "MAC address").then(&[kw("vlan", "In a VLAN")
        .then(&[arg(Kind::Vlan, "VLAN ID").no(fixed).then(&[
            kw("drop", "Drop frames from and to the address").run(fixed),
            kw("interface", "Interface of the address").then(&[arg(Kind::Interface, "Interface").run(fixed)]),
        ])])])]);

fn print_limits(config: &Config) -> Vec<String> {
    let fdb = &config.fdb;
    let global = (fdb.limit != FDB_LIMIT_DEFAULT).then(|| format!("mac address-table limit {}", fdb.limit));
    let vlan = |(vlan, limit): (&VlanId, &u32)| format!("mac address-table limit {limit} vlan {vlan}");
    global.into_iter().chain(fdb.vlan_limits.iter().map(vlan)).collect()
}

fn print_learning(config: &Config) -> Vec<String> {
    let line = |part: String| format!("no mac address-table learning vlan {part}");
    chunks(&config.fdb.no_learning).into_iter().map(line).collect()
}

fn print_statics(config: &Config) -> Vec<String> {
    let line = |((vlan, mac), target): (&(VlanId, MacAddr), &StaticTarget)| {
        let target = match target {
            StaticTarget::Interface(name) => format!("interface {}", reference(name)),
            StaticTarget::Drop => "drop".into(),
        };
        format!("mac address-table static {mac} vlan {vlan} {target}")
    };
    config.fdb.statics.iter().map(line).collect()
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
        return Err(format!("{mac} is a group address: a static address must be a unicast address").into());
    }
    if mac.is_zero() {
        return Err(format!("{mac} is not a unicast address").into());
    }
    let target = match args.interface() {
        None => StaticTarget::Drop,
        Some(InterfaceName::Vlan(vlan)) => {
            return Err(format!("Vlan{vlan} is not a port: a static address needs a port").into());
        }
        Some(name) => StaticTarget::Interface(name),
    };
    statics.insert((vlan, mac), target);
    Ok(())
}
