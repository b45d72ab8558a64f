//! Which ports the front panel has: the parts that a split makes of a port, and the neighbour that it takes away.
//!
//! Read first: devlink-port(8), `split`. Invariants: a split is one that the platform file lists; a port that is split, or that a
//! neighbour's split takes away, has no netdev; a port is not taken away while it is configured, and neither are its parts.

use lanyard_asic::platform::{Front, FrontPort, Platform};
use lanyard_plane::{Breakout, ChipSettings, PortSettings};
use lanyard_types::PortId;
use std::collections::{BTreeMap, BTreeSet};

/// The ports that the front panel has with these settings.
///
/// # Errors
/// When the platform does not allow a split or a speed; the text names the port and what is permitted.
pub(crate) fn active(platform: &Platform, settings: &ChipSettings) -> Result<Vec<Front>, String> {
    let rows: BTreeMap<String, (u16, &FrontPort)> =
        platform.ports().map(|(number, row)| (format!("swp{number}"), (number, row))).collect();
    let broken = broken_out(settings);
    let mut taken = BTreeMap::new();
    for (name, breakout) in &broken {
        let Some((number, row)) = rows.get(*name) else {
            return Err(format!("{name} is no port of the front panel that can be split"));
        };
        check(name, row, *breakout)?;
        let other = i32::from(*number) + i32::from(row.split_disables);
        if breakout.parts > 2 && row.split_disables != 0 {
            taken.insert(format!("swp{other}"), (*name).to_owned());
        }
    }
    for (name, by) in &taken {
        if broken.contains_key(name.as_str()) {
            return Err(format!("{name} cannot be split: the split of {by} has taken it away"));
        }
    }
    let mut front: Vec<Front> = platform
        .front()
        .filter(|port| !taken.contains_key(&port.name) && !broken.contains_key(port.name.as_str()))
        .collect();
    for (parent, mut part) in platform.parts() {
        let Some(breakout) = broken.get(format!("swp{parent}").as_str()) else { continue };
        let lane = part.name.rsplit('s').next().and_then(|lane| lane.parse::<u8>().ok());
        if lane.is_some_and(|lane| lane < breakout.parts) {
            part.speed_mbps = breakout.speed_mbps;
            front.push(part);
        }
    }
    for (name, port) in &settings.ports {
        check_speed(platform, name, port)?;
    }
    Ok(front)
}

/// All ports that a front panel can have with any splits, by the names of their netdevs.
pub(crate) fn all_ports(platform: &Platform) -> BTreeMap<String, PortId> {
    platform.front().chain(platform.parts().map(|(_, part)| part)).map(|port| (port.name, port.id)).collect()
}

fn broken_out(settings: &ChipSettings) -> BTreeMap<&str, Breakout> {
    let broken = settings.ports.iter().filter_map(|(name, port)| Some((name.as_str(), port.breakout?)));
    broken.collect()
}

fn check(name: &str, row: &FrontPort, breakout: Breakout) -> Result<(), String> {
    let fits = |split: &lanyard_asic::platform::Split| {
        (split.parts, split.speed) == (breakout.parts, breakout.speed_mbps)
    };
    if row.split.iter().any(fits) {
        return Ok(());
    }
    let known: Vec<String> = row
        .split
        .iter()
        .map(|split| Breakout { parts: split.parts, speed_mbps: split.speed }.to_string())
        .collect();
    let known = if known.is_empty() { "no split".to_owned() } else { known.join(", ") };
    Err(format!("{name} cannot be split into {breakout}: the platform allows {known}"))
}

/// The speeds in Mbit/s of the port with this name, the greatest first; empty if there is no such port.
pub(crate) fn speeds(platform: &Platform, name: &str) -> Vec<u32> {
    let whole = platform.ports().find(|(number, _)| format!("swp{number}") == name);
    match whole {
        Some((_, row)) => row.speeds.clone(),
        None => {
            platform.parts().filter(|(_, part)| part.name == name).map(|(_, part)| part.speed_mbps).collect()
        }
    }
}

fn check_speed(platform: &Platform, name: &str, port: &PortSettings) -> Result<(), String> {
    let Some(speed) = port.speed_mbps else { return Ok(()) };
    let known = speeds(platform, name);
    if known.is_empty() || known.contains(&speed) {
        return Ok(());
    }
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    Err(format!("{name} cannot have a speed of {speed} Mbit/s: its speeds are {}", known.join(", ")))
}

/// Refuses a change that takes configured ports away.
///
/// # Errors
/// The text names the first such port, and what to do.
pub(crate) fn check_configured(
    now: &[Front],
    next: &[Front],
    configured: &BTreeSet<String>,
) -> Result<(), String> {
    let stays: BTreeSet<&str> = next.iter().map(|port| port.name.as_str()).collect();
    match now.iter().find(|port| !stays.contains(port.name.as_str()) && configured.contains(&port.name)) {
        Some(port) => Err(format!(
            "{} is configured and would be taken away: enter `default interface {}` first",
            port.name, port.name
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECTRUM: &str = include_str!("../../../platforms/spectrum-like.toml");

    fn settings(text: &str) -> ChipSettings {
        let mut settings = ChipSettings::default();
        for line in text.split_whitespace() {
            let (name, split) = line.split_once('=').expect("PORT=SPLIT");
            let (parts, speed) = split.split_once('x').expect("PARTSxSPEED");
            let breakout = Breakout {
                parts: parts.parse().expect("parts"),
                speed_mbps: speed.parse::<u32>().expect("a speed") * 1000,
            };
            let port = PortSettings { breakout: Some(breakout), ..PortSettings::default() };
            settings.ports.insert(name.to_owned(), port);
        }
        settings
    }
    fn names(text: &str) -> Result<Vec<String>, String> {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        Ok(active(&platform, &settings(text))?.into_iter().map(|port| port.name).collect())
    }

    #[test]
    fn a_split_gives_parts_and_takes_a_neighbour_away() {
        let whole = names("").expect("no split");
        assert_eq!((whole.len(), whole[0].as_str()), (32, "swp1"));
        let four = names("swp1=4x25").expect("allowed");
        assert!(!four.contains(&"swp1".into()) && !four.contains(&"swp2".into()), "{four:?}");
        assert_eq!(&four[30..], ["swp1s0", "swp1s1", "swp1s2", "swp1s3"]);
        let two = names("swp1=2x50").expect("allowed");
        assert!(
            two.contains(&"swp2".into()) && two.ends_with(&["swp1s0".into(), "swp1s1".into()]),
            "{two:?}"
        );
    }

    #[test]
    fn splits_the_platform_does_not_allow_are_refused() {
        for (text, want) in [
            ("swp2=4x25", "swp2 cannot be split into 4x25g: the platform allows 2x50g"),
            ("swp99=2x50", "swp99 is no port"),
            ("swp1=4x25 swp2=2x50", "swp2 cannot be split: the split of swp1 has taken it away"),
        ] {
            let error = names(text).expect_err(text);
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn configured_ports_are_not_taken_away() {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        let front = |text: &str| active(&platform, &settings(text)).expect("allowed");
        let configured = |name: &str| [name.to_owned()].into_iter().collect::<BTreeSet<_>>();
        let (whole, four) = (front(""), front("swp1=4x25"));
        for (now, next, name, fine) in [
            (&whole, &four, "swp1", false),
            (&whole, &four, "swp2", false),
            (&whole, &four, "swp3", true),
            (&four, &whole, "swp1s3", false),
            (&four, &whole, "swp3", true),
        ] {
            assert_eq!(check_configured(now, next, &configured(name)).is_ok(), fine, "{name}");
        }
    }

    #[test]
    fn a_speed_is_one_of_the_ports() {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        let with = |name: &str, speed| {
            let mut settings = settings("swp1=4x25");
            let mut port = settings.ports.get(name).copied().unwrap_or_default();
            port.speed_mbps = Some(speed);
            settings.ports.insert(name.to_owned(), port);
            active(&platform, &settings).map(drop)
        };
        assert_eq!(with("swp3", 40_000), Ok(()));
        assert!(with("swp3", 1000).is_err_and(|error| error.contains("its speeds are 100000, 50000")));
    }

    #[test]
    fn parts_have_numbers_and_addresses_of_their_own() {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        let all: Vec<Front> = platform.front().chain(platform.parts().map(|(_, part)| part)).collect();
        let distinct = |of: &dyn Fn(&Front) -> u64| all.iter().map(of).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(&|port| port.id.get().into()), all.len());
        assert_eq!(distinct(&|port| port.mac.to_u64()), all.len());
    }
}
