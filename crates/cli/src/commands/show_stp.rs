//! `show spanning-tree ...`, `clear spanning-tree ...`, `debug spanning-tree ...`.

use crate::args::{Args, Kind};
use crate::backend::Refusal;
use crate::config_view as made;
use crate::exec::Exec;
use crate::outcome::Outcome;
use crate::render;
use crate::tree::{Node, arg, kw, number};
use crate::view::{EventKind, SpanningTree, StpPort};
use lanyard_types::StpState;

const INTERFACE: Node = arg(Kind::Interface, "Interface");

/// Under `show`.
pub const TREE: Node = kw("spanning-tree", "Spanning tree topology").exec(plain).then(&[
    kw("active", "Report on active interfaces only").exec(active),
    kw("blockedports", "Show blocked ports").exec(blocked),
    kw("detail", "Detailed information").exec(detail),
    kw("inconsistentports", "Show inconsistent ports").exec(inconsistent),
    kw("interface", "Spanning Tree interface status and configuration")
        .then(&[INTERFACE.exec(interface).then(&[kw("detail", "Detailed information").exec(detail)])]),
    kw("mst", "Multiple spanning trees").exec(mst).then(&[
        kw("configuration", "MST current region configuration").exec(region).then(&[kw(
            "digest",
            "Digest of the vlan mapping",
        )
        .exec(region)]),
        kw("detail", "Detailed information").exec(mst_detail),
        number(0, 4094, "MST instance")
            .exec(mst)
            .then(&[kw("detail", "Detailed information").exec(mst_detail)]),
    ]),
    kw("root", "Show status and configuration of the root bridge").exec(root),
    kw("summary", "Summary of port states").exec(summary),
    kw("vlan", "VLAN Switch Spanning Trees").then(&[arg(
        Kind::VlanList,
        "vlan range, example: 1,3-5,7,9-11",
    )
    .exec(plain)
    .then(&[
        kw("detail", "Detailed information").exec(detail),
        kw("root", "Show status and configuration of the root bridge").exec(root),
    ])]),
]);

/// Under `clear`.
pub const CLEAR: Node = kw("spanning-tree", "Clear spanning-tree").then(&[
    kw("counters", "Spanning-tree counters").exec(clear_counters).then(&[kw(
        "interface",
        "Of one interface",
    )
    .then(&[INTERFACE.exec(clear_counters)])]),
    kw("detected-protocols", "Restart the protocol migration process").exec(clear_detected).then(&[kw(
        "interface",
        "Of one interface",
    )
    .then(&[INTERFACE.exec(clear_detected)])]),
]);

/// `debug ...`.
pub const DEBUG: Node = kw("debug", "Print events of the switch until interrupted").privileged().then(&[kw(
    "spanning-tree",
    "Spanning tree information",
)
.then(&[kw("events", "Roles, states, topology changes, one JSON object per line").exec(debug)])]);

/// The trees and ports that a line selects.
fn get(exec: &mut Exec<'_>, args: &Args) -> Result<SpanningTree, Refusal> {
    let mut view = exec.backend.spanning_tree();
    if let Some(list) = args.vlans() {
        let region = &exec.backend.running().spanning_tree.region;
        let mode = view.mode;
        let wanted = |instance: &crate::view::StpInstance| match instance.detail.vlan {
            Some(vlan) => list.contains(vlan),
            None if mode == Some(lanyard_stp::Mode::Mst) => {
                list.iter().any(|vlan| region.mstid_of(vlan) == instance.instance)
            }
            None => list.contains(lanyard_types::VlanId::DEFAULT),
        };
        view.instances.retain(wanted);
        if view.instances.is_empty() {
            return Err(format!("Spanning tree instance(s) for vlan {list} does not exist.").into());
        }
    }
    if let Some(name) = args.interface() {
        let name = name.to_string();
        view.ports.retain(|port| port.interface == name);
        keep(&mut view, |port| port.interface == name);
        view.instances.retain(|instance| !instance.ports.is_empty());
        if view.instances.is_empty() {
            return Err(format!("no spanning tree info available for {name}").into());
        }
    }
    Ok(view)
}

/// The MST instances a line is about.
fn get_mst(exec: &mut Exec<'_>, args: &Args) -> Result<SpanningTree, Refusal> {
    let mut view = get(exec, args)?;
    if view.mode != Some(lanyard_stp::Mode::Mst) {
        view.instances.clear();
    }
    if let Some(number) = args.number() {
        view.instances.retain(|instance| u64::from(instance.instance) == number);
        if view.instances.is_empty() {
            return Err(format!("No mst information available for instance(s) {number}").into());
        }
    }
    Ok(view)
}

fn keep(view: &mut SpanningTree, wanted: impl Fn(&StpPort) -> bool) {
    view.instances.iter_mut().for_each(|instance| instance.ports.retain(&wanted));
}

fn plain(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get(exec, args)?;
    Ok(exec.present(&view, render::spanning_tree))
}

fn active(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut view = get(exec, args)?;
    keep(&mut view, |port| port.detail.role != lanyard_stp::Role::Disabled);
    Ok(exec.present(&view, render::spanning_tree))
}

fn blocked(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut view = get(exec, args)?;
    let is_up = |port: &StpPort| port.detail.role != lanyard_stp::Role::Disabled;
    keep(&mut view, |port| is_up(port) && port.detail.state == StpState::Discarding);
    Ok(exec.present(&view, render::spanning_tree_blocked))
}

fn inconsistent(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut view = get(exec, args)?;
    keep(&mut view, |port| port.detail.inconsistent.any());
    Ok(exec.present(&view, render::spanning_tree_inconsistent))
}

fn detail(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get(exec, args)?;
    Ok(exec.present(&view, render::spanning_tree_detail))
}

fn interface(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get(exec, args)?;
    Ok(exec.present(&view, render::spanning_tree_interface))
}

fn root(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get(exec, args)?;
    Ok(exec.present(&view, render::spanning_tree_root))
}

fn summary(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get(exec, args)?;
    let view = made::stp_summary(&view, exec.backend.running());
    Ok(exec.present(&view, render::spanning_tree_summary))
}

fn mst(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_mst(exec, args)?;
    let mapping = made::mst_configuration(exec.backend.running());
    Ok(exec.present(&view, |view| render::mst(view, &mapping)))
}

fn mst_detail(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_mst(exec, args)?;
    Ok(exec.present(&view, render::spanning_tree_detail))
}

fn region(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::mst_configuration(exec.backend.running());
    Ok(exec.present(&view, |view| render::mst_configuration(view, args.has("digest"))))
}

fn clear_counters(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.backend.clear_spanning_tree_counters(args.interface().as_ref())?;
    Ok(Outcome::Text(String::new()))
}

fn clear_detected(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.backend.clear_detected_protocols(args.interface().as_ref())?;
    Ok(Outcome::Text(String::new()))
}

fn debug(_: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    Ok(Outcome::Stream(vec![EventKind::Stp]))
}
