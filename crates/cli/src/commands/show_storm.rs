//! `show storm-control`: the rates of storm control and the frames dropped over them.

use super::shared::get_interfaces;
use crate::args::{Args, Kind};
use crate::backend::Refusal;
use crate::config_view::configured;
use crate::outcome::Outcome;
use crate::render::{columns, ios_netdev};
use crate::session::Exec;
use crate::tree::{Node, arg, kw};
use lanyard_types::{DropReason, StormKind};
use serde::Serialize;

/// `show storm-control [INTERFACE]`.
pub const TREE: Node = kw("storm-control", "Show packet storm control information").exec(show).then(&[arg(
    Kind::Interface,
    "Interface",
)
.exec(show)]);

#[derive(Debug, Serialize)]
struct StormControl {
    interfaces: Vec<Rate>,
}

/// One rate of one port.
#[derive(Debug, Serialize)]
struct Rate {
    interface: String,
    r#type: StormKind,
    filter_state: &'static str,
    level_pps: u32,
    /// Frames of all kinds that storm control has dropped at the interface.
    dropped: u64,
}

fn show(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let found = get_interfaces(exec, args)?;
    let drops = exec.backend.drops(args.interface().as_ref());
    let config = exec.backend.running();
    let mut interfaces = Vec::new();
    for view in &found.interfaces {
        let Some(port) = configured(config, view).map(|interface| &interface.switchport) else { continue };
        let of_storm =
            drops.drops.iter().filter(|d| d.interface == view.name && d.reason == DropReason::Storm.name());
        let dropped = of_storm.map(|d| d.frames).sum();
        let filter_state = if view.admin_up && view.link_up { "forwarding" } else { "link_down" };
        interfaces.extend(StormKind::ALL.iter().filter_map(|kind| {
            let level_pps = port.storm_pps[kind.index()]?;
            Some(Rate { interface: view.name.clone(), r#type: *kind, filter_state, level_pps, dropped })
        }));
    }
    Ok(exec.present(&StormControl { interfaces }, text))
}

fn text(view: &StormControl) -> String {
    let row = |rate: &Rate| {
        let state = if rate.filter_state == "forwarding" { "Forwarding" } else { "Link Down" };
        let level = format!("{} pps", rate.level_pps);
        vec![
            ios_netdev(&rate.interface),
            rate.r#type.to_string(),
            state.into(),
            level,
            rate.dropped.to_string(),
        ]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Interface", "Type", "Filter State", "Level", "Dropped"], &rows, &[3, 4])
}
