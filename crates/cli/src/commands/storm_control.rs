//! Storm control: `storm-control KIND level ...` and `storm-control action ...` under an interface, and `show storm-control`,
//! which prints the levels and the frames dropped over them.

use super::interface::port;
use super::need;
use super::shared::get_interfaces;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::config_view::configured;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::feature::Feature;
use crate::field;
use crate::number::scaled;
use crate::outcome::Outcome;
use crate::render::{columns, ios_netdev};
use crate::setting::{Flag, Line, Setting};
use crate::tree::{Node, arg, kw};
use lanyard_config::Interface;
use lanyard_types::{DropReason, StormKind, StormLevel};
use serde::Serialize;

/// The feature.
pub const FEATURE: Feature = Feature {
    name: "storm-control",
    title: "Storm control",
    about: "\
`storm-control broadcast|multicast|unicast level ...` under a switch port limits the traffic from
that port that the switch would flood: broadcast, multicast, and unicast to stations that are not in
the FDB. The level is one of

- `pps N`: N frames per second, 0-999999999;
- `bps N`: N bits per second, 0-400000000000, without preamble and frame check sequence;
- `N` or `N.NN`: a share of the port's speed in percent, 0.00-100.00. Where the netdev reports no speed,
  it is a share of 1 Gbit/s. 100 % is no limit.

`pps` and `bps` take the suffixes `k`, `m` and `g`. The limit is a token bucket that holds the frames
or bits of one second: after a quiet second, that much passes at once, and then the rate. A level of
0 lets nothing of its type pass. The switch drops a frame over the limit with the reason `storm`
before it learns the source, so that a loop elsewhere does not move stations. Frames for the control
plane (BPDUs, LLDP, slow protocols), unicast to known stations and unicast to the router's address do
not count. XDP passes floods from a port with a limit to TC.

The switch looks once a second whether storm control has dropped frames. With `storm-control action
trap` it logs the beginning of a storm (`%STORM_CONTROL-3-FILTERED`); a second without drops ends it.
With `storm-control action shutdown` it shuts the port down (err-disable, cause `storm-control`):
see `errdisable recovery`.

Where IOS differs: IOS measures for a second and then blocks the type of traffic until it falls below
a second, lower level. Lanyard drops only what exceeds the level, and has no lower level.",
    json: "\
`interfaces`: `interface`, `type` (`broadcast`, `multicast`, `unicast`), `filter_state`
(`forwarding`, `link_down`), `level_pps`, `level_bps`, `level_percent` (the configured one; the others
are `null`), `actions` (`shutdown`, `trap`), `dropped` (frames of all types dropped at the
interface).",
    safety: true,
    groups: &[
        ("storm-control", "Storm configuration"),
        ("storm-control action", "Action to take for storm-control"),
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

/// The maximum length of a number with its suffix, in bytes.
const MAX_NUMBER: usize = 16;

const LEVEL: Node = kw("level", "Set storm suppression level on this interface").no(level).then(&[
    kw("bps", "Enter suppression level in bits per second").then(&[arg(
        Kind::Word("0-400000000000[k|m|g]", MAX_NUMBER),
        "Bits per second; 0 drops all",
    )
    .run(level)]),
    kw("pps", "Enter suppression level in packets per second").then(&[arg(
        Kind::Word("0-999999999[k|m|g]", MAX_NUMBER),
        "Packets per second; 0 drops all",
    )
    .run(level)]),
    arg(Kind::Word("0.00-100.00", MAX_NUMBER), "Share of the port's speed in percent; 0 drops all")
        .run(level),
]);

const LINES: &[Line<Interface>] = &[
    Line::own("storm-control broadcast", LEVEL, |interface| print(interface, StormKind::Broadcast)),
    Line::own("storm-control multicast", LEVEL, |interface| print(interface, StormKind::Multicast)),
    Line::own("storm-control unicast", LEVEL, |interface| print(interface, StormKind::Unicast)),
    Setting::of(
        "storm-control action shutdown",
        "Shutdown this interface if a storm occurs",
        &Flag(field!(Interface, switchport.stages.storm_action.shutdown)),
    )
    .on(port)
    .line(),
    Setting::of(
        "storm-control action trap",
        "Log a message if a storm occurs",
        &Flag(field!(Interface, switchport.stages.storm_action.trap)),
    )
    .on(port)
    .line(),
];

fn level(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    const KINDS: &[(&str, StormKind)] = &[
        ("broadcast", StormKind::Broadcast),
        ("multicast", StormKind::Multicast),
        ("unicast", StormKind::Unicast),
    ];
    let kind = need(args.among(KINDS))?;
    let set = args.form == Form::Set;
    let value = if set { Some(parse(args)?) } else { None };
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            interface.switchport.stages.storm[kind.index()] = value;
        }
        Ok(())
    })
}

fn parse(args: &Args) -> Result<StormLevel, Refusal> {
    let text = need(args.text())?;
    let number = |unit: &str, most: u64| {
        let value = scaled(&text).filter(|value| *value <= most);
        value.ok_or_else(|| {
            Refusal::from(format!("{text} {unit}: enter 0-{most}, or a number with the suffix k, m or g"))
        })
    };
    match args.among(&[("pps", true), ("bps", false)]) {
        Some(true) => {
            let pps = number("pps", StormLevel::MAX_PPS.into())?;
            Ok(StormLevel::Pps(u32::try_from(pps).unwrap_or(StormLevel::MAX_PPS)))
        }
        Some(false) => Ok(StormLevel::Bps(number("bps", StormLevel::MAX_BPS)?)),
        None => hundredths(&text).map(StormLevel::Percent).ok_or_else(|| {
            format!("{text} is not a share in percent: enter 0.00-100.00, or bps or pps before a rate").into()
        }),
    }
}

/// Parses a percentage with at most two decimals; returns hundredths of a percent, 0..=10,000.
fn hundredths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, most: usize| {
        let good = (1..=most).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
        good.then(|| text.parse::<u16>().ok()).flatten()
    };
    let scale = if part.len() == 1 { 10 } else { 1 };
    let value = digits(whole, 3)?.checked_mul(100)?.checked_add(digits(part, 2)? * scale)?;
    (value <= 10_000).then_some(value)
}

fn print(interface: &Interface, kind: StormKind) -> Vec<String> {
    let level = interface.switchport.stages.storm[kind.index()].map(words);
    level.map(|level| format!("storm-control {kind} level {level}")).into_iter().collect()
}

/// The words after `level` in the running configuration.
fn words(level: StormLevel) -> String {
    match level {
        StormLevel::Pps(pps) => format!("pps {pps}"),
        StormLevel::Bps(bps) => format!("bps {bps}"),
        StormLevel::Percent(share) => percent(share),
    }
}

fn percent(hundredths: u16) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[derive(Debug, Serialize)]
struct StormControl {
    interfaces: Vec<Rate>,
}

/// The storm control of one kind of frames at one port.
#[derive(Debug, Serialize)]
struct Rate {
    interface: String,
    r#type: StormKind,
    filter_state: &'static str,
    level_pps: Option<u32>,
    level_bps: Option<u64>,
    level_percent: Option<f64>,
    actions: Vec<&'static str>,
    /// Frames of all kinds that storm control has dropped at the interface.
    dropped: u64,
    #[serde(skip)]
    level: StormLevel,
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
        let action = port.stages.storm_action;
        let actions = [("shutdown", action.shutdown), ("trap", action.trap)];
        interfaces.extend(StormKind::ALL.iter().filter_map(|kind| {
            let level = port.stages.storm[kind.index()]?;
            Some(Rate {
                interface: view.name.clone(),
                r#type: *kind,
                filter_state,
                level_pps: if let StormLevel::Pps(pps) = level { Some(pps) } else { None },
                level_bps: if let StormLevel::Bps(bps) = level { Some(bps) } else { None },
                level_percent: match level {
                    StormLevel::Percent(share) => Some(f64::from(share) / 100.0),
                    _ => None,
                },
                actions: actions.iter().filter(|(_, on)| *on).map(|(word, _)| *word).collect(),
                dropped,
                level,
            })
        }));
    }
    Ok(exec.present(&StormControl { interfaces }, text))
}

fn text(view: &StormControl) -> String {
    let row = |rate: &Rate| {
        let state = if rate.filter_state == "forwarding" { "Forwarding" } else { "Link Down" };
        let level = match rate.level {
            StormLevel::Pps(pps) => format!("{pps} pps"),
            StormLevel::Bps(bps) => format!("{bps} bps"),
            StormLevel::Percent(share) => format!("{}%", percent(share)),
        };
        let actions = if rate.actions.is_empty() { "None".to_owned() } else { rate.actions.join(",") };
        vec![
            ios_netdev(&rate.interface),
            rate.r#type.to_string(),
            state.into(),
            level,
            actions,
            rate.dropped.to_string(),
        ]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Interface", "Type", "Filter State", "Level", "Action", "Dropped"], &rows, &[3, 5])
}

#[cfg(test)]
mod tests {
    use super::{hundredths, percent};
    use crate::number::scaled;

    #[test]
    fn numbers_with_suffixes() {
        for (text, value) in [
            ("0", Some(0)),
            ("64", Some(64)),
            ("64k", Some(64_000)),
            ("2M", Some(2_000_000)),
            ("1g", Some(1_000_000_000)),
            ("k", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5m", None),
            ("1kk", None),
            ("99999999999999999999", None),
            ("99999999999999g", None),
            ("1é", None),
        ] {
            assert_eq!(scaled(text), value, "{text}");
        }
    }

    #[test]
    fn percentages_have_at_most_two_decimals() {
        for (text, value) in [
            ("0", Some(0)),
            ("0.5", Some(50)),
            ("0.05", Some(5)),
            ("12.34", Some(1234)),
            ("100", Some(10_000)),
            ("100.00", Some(10_000)),
            ("100.01", None),
            ("1.234", None),
            ("1.", None),
            (".5", None),
            ("101", None),
            ("9999", None),
            ("-1", None),
            ("1,5", None),
        ] {
            assert_eq!(hundredths(text), value, "{text}");
        }
        assert_eq!((percent(5), percent(10_000)), ("0.05".into(), "100.00".into()));
    }
}
