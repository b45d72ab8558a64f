//! `track N ...`: objects that are up or down, for static routes and virtual routers.

use super::{ip, need, vrf};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::setting::{Line, Target};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::layer3::{Track, TrackObject};

/// The maximum number of tracked objects; they are numbered 1..=1000.
pub const MAX: u64 = 1000;

const REACHABILITY: &[Node] = &[kw("reachability", "Reachability of the IP address").run(object)];

/// Under global configuration.
pub const ENTRY: Node =
    kw("track", "Object tracking configuration commands").then(&[number(1, MAX, "Tracked object")
        .set(enter)
        .no(remove)
        .then(&[
            kw("interface", "Select an interface to track").then(&[arg(Kind::Interface, "Interface")
                .then(&[kw("line-protocol", "Track interface line-protocol").run(object)])]),
            kw("ip", "IP protocol").then(&[kw("route", "IP routing table").then(&[
                arg(Kind::Ipv4, "IP prefix <network>")
                    .then(&[arg(Kind::Ipv4, "IP prefix mask").then(REACHABILITY)]),
                arg(Kind::Ipv4Prefix, "IP prefix").then(REACHABILITY),
            ])]),
            kw("ipv6", "IPv6 protocol").then(&[kw("route", "IPv6 routing table").then(&[arg(
                Kind::Ipv6Prefix,
                "IPv6 prefix",
            )
            .then(REACHABILITY)])]),
        ])]);

/// `(config-track)#`.
pub const LINES: &[Line<Track>] = &[
    Line::own(
        "",
        kw("vrf", "Routing table that contains the route").no(table).then(&[arg(
            Kind::Word("VRF-NAME", vrf::MAX_NAME),
            "VRF name",
        )
        .run(table)]),
        print_table,
    ),
    Line::own("", DELAY, print_delay),
];

const DELAY: Node =
    kw("delay", "Tracking delay").no(delay).then(&[
        kw("down", "Delay down change notification").then(&[number(0, 180, "Seconds").run(delay).then(&[
            kw("up", "Delay up change notification").then(&[number(0, 180, "Seconds").run(delay)]),
        ])]),
        kw("up", "Delay up change notification").then(&[number(0, 180, "Seconds").run(delay).then(&[kw(
            "down",
            "Delay down change notification",
        )
        .then(&[number(0, 180, "Seconds").run(delay)])])]),
    ]);

fn print_table(track: &Track) -> Vec<String> {
    match &track.object {
        TrackObject::LineProtocol(_) => Vec::new(),
        TrackObject::Route { vrf, .. } => vrf.iter().map(|vrf| format!("vrf {vrf}")).collect(),
    }
}

fn print_delay(track: &Track) -> Vec<String> {
    let line = match (track.up_s, track.down_s) {
        (0, 0) => None,
        (up, 0) => Some(format!("delay up {up}")),
        (0, down) => Some(format!("delay down {down}")),
        (up, down) => Some(format!("delay up {up} down {down}")),
    };
    line.into_iter().collect()
}

/// The number of the tracked object of a line.
fn of(args: &Args) -> Result<u16, Refusal> {
    need(args.number().and_then(|n| u16::try_from(n).ok()))
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = of(args)?;
    if !edit.config.tracks.contains_key(&number) {
        return Err(format!("tracked object {number} does not exist yet: enter what it tracks").into());
    }
    *edit.mode = ConfigMode::Track(number);
    Ok(())
}

fn remove(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = of(args)?;
    match edit.config.tracks.remove(&number) {
        Some(_) => Ok(()),
        None => Err(format!("there is no tracked object {number}").into()),
    }
}

fn object(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        return remove(edit, args);
    }
    let number = of(args)?;
    let object = match args.interface() {
        Some(interface) => TrackObject::LineProtocol(interface),
        None => {
            let (prefix, _) = need(ip::prefix(args)?)?;
            if prefix.network() != prefix.addr() {
                return Err(format!(
                    "Inconsistent address and mask: {prefix} has bits set beyond its prefix length"
                )
                .into());
            }
            TrackObject::Route { vrf: None, prefix }
        }
    };
    let same = |track: &Track| match (&track.object, &object) {
        (TrackObject::Route { prefix: a, .. }, TrackObject::Route { prefix: b, .. }) => a == b,
        (a, b) => a == b,
    };
    // A line with the same object only enters its mode; a line with another object replaces it.
    if !edit.config.tracks.get(&number).is_some_and(same) {
        edit.config.tracks.insert(number, Track { object, up_s: 0, down_s: 0 });
    }
    *edit.mode = ConfigMode::Track(number);
    Ok(())
}

/// Selects one of the two delays, in seconds.
type Seconds = fn(&mut Track) -> &mut u8;

fn delay(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mut numbers = args.numbers().into_iter().map(u8::try_from);
    let set = args.form == Form::Set;
    // Each keyword is followed by its seconds; `no delay` may have neither keywords nor seconds.
    let field: &[(&str, Seconds)] = &[("up", |track| &mut track.up_s), ("down", |track| &mut track.down_s)];
    let named = args.words.iter().filter_map(|word| field.iter().find(|(of, _)| of == word));
    let named: Vec<_> = named.map(|(_, field)| (field, numbers.next().and_then(Result::ok))).collect();
    Track::each(edit, &mut |track, _| {
        if named.is_empty() {
            (track.up_s, track.down_s) = (0, 0);
        }
        for (field, seconds) in &named {
            *field(track) = seconds.filter(|_| set).unwrap_or(0);
        }
        Ok(())
    })
}

fn table(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = if args.form == Form::Set { vrf::known(edit.config, args)? } else { None };
    Track::each(edit, &mut |track, _| match &mut track.object {
        TrackObject::Route { vrf, .. } => {
            vrf.clone_from(&name);
            Ok(())
        }
        TrackObject::LineProtocol(_) => {
            Err("the line protocol of an interface does not depend on a routing table".into())
        }
    })
}
