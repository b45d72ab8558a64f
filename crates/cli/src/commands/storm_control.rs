//! Storm control: `storm-control KIND level pps N` under an interface, and `show storm-control`, which prints the rates and the
//! frames dropped over them.

use super::interface::port;
use super::shared::get_interfaces;
use crate::args::{Args, Kind};
use crate::backend::Refusal;
use crate::config_view::configured;
use crate::exec::Exec;
use crate::feature::Feature;
use crate::field;
use crate::outcome::Outcome;
use crate::render::{columns, ios_netdev};
use crate::setting::{Line, Number, Setting};
use crate::tree::{Node, arg, kw};
use lanyard_config::Interface;
use lanyard_types::{DropReason, StormKind};
use serde::Serialize;

/// The feature.
pub const FEATURE: Feature = Feature {
    name: "storm-control",
    title: "Storm control",
    about: "\
`storm-control broadcast|multicast|unicast level pps N` under a switch port limits the rate of
frames from that port that the switch would flood: broadcast, multicast, and unicast to stations
that are not in the FDB. The limit is a token bucket that holds the frames of one second: after a
quiet second, N frames pass at once, then N in each second. With `level pps 0` no frame of that
type passes. The switch drops a frame over the limit with the reason `storm` before it learns the
source, so that a loop elsewhere does not move stations. Frames for the control plane (BPDUs, LLDP,
slow protocols), unicast to known stations and unicast to the router's address do not count. XDP
passes floods from a port with a limit to TC.

Lanyard does not support levels in percent or bits per second, nor `storm-control action`.",
    json: "\
`interfaces`: `interface`, `type` (`broadcast`, `multicast`, `unicast`), `filter_state`
(`forwarding`, `link_down`), `level_pps`, `dropped` (frames of all types dropped at the interface).",
    safety: true,
    groups: &[
        ("storm-control", "Storm configuration"),
        ("storm-control broadcast", "Broadcast address storm control"),
        ("storm-control broadcast level", "Set storm suppression level on this interface"),
        ("storm-control multicast", "Multicast address storm control"),
        ("storm-control multicast level", "Set storm suppression level on this interface"),
        ("storm-control unicast", "Storm control of unicast to unknown addresses"),
        ("storm-control unicast level", "Set storm suppression level on this interface"),
    ],
    lines: LINES,
    show: kw("storm-control", "Show packet storm control information").exec(show).then(SHOW),
};

/// `show storm-control [INTERFACE]`.
const SHOW: &[Node] = &[arg(Kind::Interface, "Interface").exec(show)];

/// The highest rate in frames per second that the token bucket of a port can tell from no limit.
const MAX_PPS: u64 = 999_999_999;

/// `storm-control KIND level pps N`; `no storm-control KIND level`.
macro_rules! level {
    ($words:literal, $kind:ident) => {
        Setting::of(
            concat!($words, " level pps"),
            "Enter suppression level in packets per second",
            &Number::any(
                field!(Interface, switchport.stages.storm_pps[StormKind::$kind.index()]),
                0,
                MAX_PPS,
                "Packets per second; 0 drops all",
            ),
        )
        .undo(concat!($words, " level"))
        .on(port)
        .line()
    };
}

const LINES: &[Line<Interface>] = &[
    level!("storm-control broadcast", Broadcast),
    level!("storm-control multicast", Multicast),
    level!("storm-control unicast", Unicast),
];

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
            let level_pps = port.stages.storm_pps[kind.index()]?;
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
