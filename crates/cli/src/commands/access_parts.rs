//! The objects to which access lists refer, and VLAN maps: `object-group`, `time-range`, `vlan access-map`, `vlan filter`.

use super::access_list::{NAME, check_name, refusal};
use super::need;
use crate::args::{Args, Form, Kind, Value, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use lanyard_acl::FrameFamily;
use lanyard_acl::groups::{NetworkMember, Service};
use lanyard_acl::list::{MapEntry, map_action};
use lanyard_acl::text::{MAX_NAME, expected_service, parse_service};
use lanyard_acl::time::{DAYS, Date, MONTHS, Periodic, TimeRange};
use lanyard_config::Config;
use lanyard_config::text::chunks;
use lanyard_types::VlanSet;
use std::net::IpAddr;

/// The maximum number of members of an object group.
const MAX_MEMBERS: usize = 1024;
/// The maximum number of groups, of time ranges, and of VLAN maps.
const MAX_NAMED: usize = 1024;
/// The maximum number of `periodic` lines of a time range.
const MAX_PERIODS: usize = 64;
/// The maximum length of the rest of a line that is parsed word by word, such as a date, in bytes.
const MAX_LINE: usize = 200;

const NEW_NAME: Node = arg(Kind::Word("WORD", MAX_NAME), "Name");

/// Under global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::own(
        "",
        kw("object-group", "Configure object group").then(&[
            kw("network", "Network group").then(&[NEW_NAME.run(enter_networks)]),
            kw("service", "Service group").then(&[NEW_NAME.run(enter_services)]),
        ]),
        print_groups,
    ),
    Line::own(
        "",
        kw("time-range", "Define time range entries").then(&[NEW_NAME.run(enter_time)]),
        print_times,
    ),
    Line::own(
        "vlan",
        kw("access-map", "Create VLAN access-map or enter VLAN access-map command mode").then(&[NEW_NAME
            .run(enter_map)
            .then(&[number(0, 65_535, "Sequence to insert or delete").run(enter_map)])]),
        print_maps,
    ),
];

/// `vlan filter`, which the running configuration prints after the sections of VLANs.
pub const FILTERS: &[Line<Config>] = &[Line::own(
    "vlan",
    kw("filter", "Apply a VLAN map").then(&[arg(Kind::Word("WORD", MAX_NAME), "VLAN map name")
        .no(filter)
        .then(&[
            kw("vlan-list", "VLANs to apply the map to").then(&[arg(Kind::VlanList, "VLAN IDs").run(filter)])
        ])]),
    print_filters,
)];

/// Inside `object-group network`.
pub const NETWORK: &[Node] = &[
    kw("host", "Host address of the group member").then(&[arg(Kind::Ipv4, "Host address").run(network)]),
    arg(Kind::Ipv4, "Network address").then(&[arg(Kind::Ipv4, "Network mask").run(network)]),
    arg(Kind::Ipv6Prefix, "IPv6 prefix").run(network),
];

/// Inside `object-group service`: a protocol, and ports.
pub const SERVICE: &[Node] = &[
    kw("icmp", "ICMP").run(service),
    kw("ip", "Any protocol").run(service),
    kw("sctp", "SCTP").run(service).then(&[arg(Kind::Line(MAX_LINE), PORTS).run(service)]),
    kw("tcp", "TCP").run(service).then(&[arg(Kind::Line(MAX_LINE), PORTS).run(service)]),
    kw("udp", "UDP").run(service).then(&[arg(Kind::Line(MAX_LINE), PORTS).run(service)]),
    number(0, 255, "A protocol number").run(service),
];
const PORTS: &str = "[source] eq|neq|lt|gt|range PORTS";

/// Inside `time-range`.
pub const TIME: &[Node] = &[
    kw("absolute", "Absolute time and date").no(absolute).then(&[arg(
        Kind::Line(MAX_LINE),
        "start hh:mm DAY MONTH YEAR and end hh:mm DAY MONTH YEAR, or one of them",
    )
    .run(absolute)]),
    kw("periodic", "Periodic time and date")
        .then(&[arg(Kind::Line(MAX_LINE), "DAYS hh:mm to [DAY] hh:mm").run(periodic)]),
];

/// Inside `vlan access-map`.
pub const MAP: &[Node] = &[
    kw("action", "Take the action")
        .then(&[kw("drop", "Drop packets").run(action), kw("forward", "Forward packets").run(action)]),
    kw("match", "Match values").then(&[
        kw("ip", "IP based match").then(&[kw("address", "Match IP address").then(&[NAME.run(matches)])]),
        kw("ipv6", "IPv6 based match")
            .then(&[kw("address", "Match IPv6 address").then(&[NAME.run(matches)])]),
        kw("mac", "MAC based match").then(&[kw("address", "Match MAC address").then(&[NAME.run(matches)])]),
    ]),
];

fn print_groups(config: &Config) -> Vec<String> {
    let groups = &config.lists.groups;
    let mut lines = Vec::new();
    for (name, group) in &groups.networks {
        lines.push(format!("object-group network {name}"));
        lines.extend(group.members.iter().map(|member| format!(" {}", member.text())));
    }
    for (name, group) in &groups.services {
        lines.push(format!("object-group service {name}"));
        lines.extend(group.members.iter().map(|member| format!(" {}", member.text())));
    }
    lines
}

fn print_times(config: &Config) -> Vec<String> {
    let section = |(name, range): (&String, &TimeRange)| {
        let head = [format!("time-range {name}")];
        head.into_iter().chain(range.lines().into_iter().map(|line| format!(" {line}"))).collect::<Vec<_>>()
    };
    config.lists.times.iter().flat_map(section).collect()
}

const FAMILIES: &[(&str, FrameFamily)] =
    &[("ip", FrameFamily::Ipv4), ("ipv6", FrameFamily::Ipv6), ("mac", FrameFamily::Mac)];

fn print_maps(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, map) in &config.lists.maps {
        for (seq, entry) in map {
            lines.push(format!("vlan access-map {name} {seq}"));
            for (word, family) in FAMILIES {
                let lists = entry.lists[family.index()].iter();
                lines.extend(lists.map(|list| format!(" match {word} address {list}")));
            }
            lines.push(format!(" action {}", map_action(entry.forward)));
        }
    }
    lines
}

fn print_filters(config: &Config) -> Vec<String> {
    let mut maps: std::collections::BTreeMap<&str, Vec<_>> = std::collections::BTreeMap::new();
    config.vlan_maps.iter().for_each(|(vlan, map)| maps.entry(map).or_default().push(*vlan));
    let lines = |(map, vlans): (&str, Vec<_>)| {
        let vlans: VlanSet = vlans.into_iter().collect();
        chunks(&vlans)
            .into_iter()
            .map(move |part| format!("vlan filter {map} vlan-list {part}"))
            .collect::<Vec<_>>()
    };
    maps.into_iter().flat_map(lines).collect()
}

/// Adds or removes a named object, and enters its mode.
fn enter<T: Default>(
    edit: &mut Edit<'_>,
    args: &Args,
    of: fn(&mut Config) -> &mut std::collections::BTreeMap<String, T>,
    mode: fn(String) -> ConfigMode,
) -> Result<(), Refusal> {
    let name = need(args.text())?;
    check_name(&name)?;
    let all = of(edit.config);
    if args.form != Form::Set {
        return all.remove(&name).map(drop).ok_or_else(|| format!("{} does not exist", short(&name)).into());
    }
    if all.len() >= MAX_NAMED && !all.contains_key(&name) {
        return Err(format!("there are {MAX_NAMED} already: remove one").into());
    }
    all.entry(name.clone()).or_default();
    *edit.mode = mode(name);
    Ok(())
}

/// Refuses to remove a group, or its last member, while a rule names the group: a rule with a group that has no members matches
/// nothing, so the frames that it denied would pass.
fn unused(config: &Config, name: &str) -> Result<(), Refusal> {
    let mut lists = config.lists.access.iter();
    match lists.find(|(_, list)| list.rules().any(|(_, rule)| rule.names_group(name))) {
        Some((list, _)) => Err(format!(
            "object group {name} is in use by access list {list}: remove the rules that name it first"
        )
        .into()),
        None => Ok(()),
    }
}

/// [`unused`] for a line that removes a group.
fn removable(edit: &Edit<'_>, args: &Args, exists: impl Fn(&Config, &str) -> bool) -> Result<(), Refusal> {
    let name = need(args.text())?;
    if args.form != Form::Set && exists(edit.config, &name) { unused(edit.config, &name) } else { Ok(()) }
}

fn enter_networks(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    removable(edit, args, |config, name| config.lists.groups.networks.contains_key(name))?;
    enter(edit, args, |config| &mut config.lists.groups.networks, ConfigMode::NetworkGroup)
}
fn enter_services(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    removable(edit, args, |config, name| config.lists.groups.services.contains_key(name))?;
    enter(edit, args, |config| &mut config.lists.groups.services, ConfigMode::ServiceGroup)
}
fn enter_time(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    enter(edit, args, |config| &mut config.lists.times, ConfigMode::TimeRange)
}

/// Adds a member to a group, or removes it.
fn member<T: PartialEq>(members: &mut Vec<T>, new: T, form: Form) -> Result<(), Refusal> {
    let held = members.iter().position(|held| *held == new);
    match (form, held) {
        (Form::Set, Some(_)) => Ok(()),
        (Form::Set, None) if members.len() >= MAX_MEMBERS => {
            Err(format!("the group has {MAX_MEMBERS} members already: remove one").into())
        }
        (Form::Set, None) => {
            members.push(new);
            Ok(())
        }
        (_, Some(at)) => {
            members.remove(at);
            Ok(())
        }
        (_, None) => Err("the group has no such member".into()),
    }
}

fn network(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ConfigMode::NetworkGroup(name) = &*edit.mode else {
        return Err("this command needs the mode of a group: enter object-group network first".into());
    };
    let new = match (args.prefix(), args.addresses().as_slice()) {
        (Some(ipnet::IpNet::V6(net)), _) => NetworkMember::V6(net.trunc()),
        (_, [IpAddr::V4(host)]) => NetworkMember::Host(*host),
        (_, [IpAddr::V4(net), IpAddr::V4(mask)]) => {
            NetworkMember::Net((net.to_bits() & mask.to_bits()).into(), *mask)
        }
        _ => return Err("Incomplete command.".into()),
    };
    let group = edit.config.lists.groups.networks.get(name);
    if args.form != Form::Set && group.is_some_and(|group| group.members == [new]) {
        unused(edit.config, name)?;
    }
    let group = edit.config.lists.groups.networks.entry(name.clone()).or_default();
    member(&mut group.members, new, args.form)
}

fn service(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ConfigMode::ServiceGroup(name) = &*edit.mode else {
        return Err("this command needs the mode of a group: enter object-group service first".into());
    };
    let number = args.number().map(|number| number.to_string());
    let first = number.as_deref().or(args
        .words
        .iter()
        .copied()
        .find(|word| ["icmp", "ip", "sctp", "tcp", "udp"].contains(word)));
    let text = args.text().unwrap_or_default();
    let words: Vec<&str> = first.into_iter().chain(text.split_whitespace()).collect();
    let new: Service = parse_service(&words).map_err(|wrong| refusal(wrong, &words, expected_service))?;
    let group = edit.config.lists.groups.services.get(name);
    if args.form != Form::Set && group.is_some_and(|group| group.members == [new.clone()]) {
        unused(edit.config, name)?;
    }
    let group = edit.config.lists.groups.services.entry(name.clone()).or_default();
    member(&mut group.members, new, args.form)
}

fn range<'a>(edit: &'a mut Edit<'_>) -> Result<&'a mut TimeRange, Refusal> {
    let ConfigMode::TimeRange(name) = &*edit.mode else {
        return Err("this command needs the mode of a time range: enter time-range first".into());
    };
    Ok(edit.config.lists.times.entry(name.clone()).or_default())
}

/// The hour and the minute of a word `hh:mm`; `None` if it is no time of day.
fn clock(word: Option<&&str>) -> Option<(u8, u8)> {
    let (hour, minute) = word?.split_once(':')?;
    let (hour, minute) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some((hour, minute))
}

fn absolute(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let range = range(edit)?;
    if args.form != Form::Set {
        (range.start, range.end) = (None, None);
        return Ok(());
    }
    let text = need(args.text())?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let wrong =
        || Refusal::from("a date is hh:mm DAY MONTH YEAR, such as 08:00 1 January 2026, from 1993 to 2035");
    let date = |words: &[&str]| -> Option<Date> {
        let (hour, minute) = clock(words.first())?;
        let lower = words.get(2)?.to_ascii_lowercase();
        let month = MONTHS
            .iter()
            .position(|month| lower.len() >= 3 && month.to_ascii_lowercase().starts_with(&lower))?;
        let date = Date {
            year: words.get(3)?.parse().ok()?,
            month: month as u8 + 1,
            day: words.get(1)?.parse().ok()?,
            hour,
            minute,
        };
        date.minute_of().map(|_| date)
    };
    let (mut start, mut end) = (None, None);
    for part in words.chunks(5) {
        let found = part.get(1..).and_then(date).ok_or_else(wrong)?;
        match part.first() {
            Some(&"start") if start.is_none() => start = Some(found),
            Some(&"end") if end.is_none() => end = Some(found),
            _ => return Err(wrong()),
        }
    }
    let minute = |date: Option<Date>| date.and_then(Date::minute_of);
    if let (Some(start), Some(end)) = (minute(start), minute(end))
        && end < start
    {
        return Err("the end is before the start".into());
    }
    (range.start, range.end) = (start, end);
    Ok(())
}

fn periodic(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let range = range(edit)?;
    let text = need(args.text())?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let day = |word: &&str| {
        let lower = word.to_ascii_lowercase();
        let fits =
            |(name, _): &&(&str, u8)| lower.len() >= 2 && name.to_ascii_lowercase().starts_with(&lower);
        let mut found = DAYS.iter().filter(fits);
        found.next().filter(|_| found.next().is_none() || lower == "weekdays").map(|(_, days)| *days)
    };
    let read = || -> Option<Periodic> {
        let count = words.iter().take_while(|word| !word.starts_with(|c: char| c.is_ascii_digit())).count();
        let days = words[..count].iter().map(day).collect::<Option<Vec<u8>>>()?;
        let days = days.into_iter().reduce(|all, day| all | day)?;
        let from = clock(words.get(count))?;
        let rest = words.get(count + 1..)?.strip_prefix(&["to"])?;
        let (to_day, rest) = match rest {
            [one, _] => (day(one).filter(|day| day.count_ones() == 1)?, &rest[1..]),
            _ => (0, rest),
        };
        let minute = |(hour, minute): (u8, u8)| u16::from(hour) * 60 + u16::from(minute);
        let [last] = rest else { return None };
        Some(Periodic { days, from: minute(from), to_day, to: minute(clock(Some(last))?) })
    };
    let new = read().ok_or("a period is DAYS hh:mm to [DAY] hh:mm, such as weekdays 8:00 to 17:00")?;
    let held = range.periodic.iter().position(|held| *held == new);
    match (args.form, held) {
        (Form::Set, Some(_)) => {}
        (Form::Set, None) if range.periodic.len() >= MAX_PERIODS => {
            return Err(format!("the range has {MAX_PERIODS} periods already: remove one").into());
        }
        (Form::Set, None) => range.periodic.push(new),
        (_, Some(at)) => drop(range.periodic.remove(at)),
        (_, None) => return Err("the range has no such period".into()),
    }
    Ok(())
}

fn enter_map(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    check_name(&name)?;
    let seq = args.number_u32();
    let maps = &mut edit.config.lists.maps;
    if args.form != Form::Set {
        let missing = || Refusal::from(format!("VLAN map {} has no such entry", short(&name)));
        let map = maps.get_mut(&name).ok_or_else(missing)?;
        match seq {
            Some(seq) => drop(map.remove(&seq).ok_or_else(missing)?),
            None => map.clear(),
        }
        if map.is_empty() {
            maps.remove(&name);
        }
        return Ok(());
    }
    if maps.len() >= MAX_NAMED && !maps.contains_key(&name) {
        return Err(format!("there are {MAX_NAMED} VLAN maps already: remove one").into());
    }
    let map = maps.entry(name.clone()).or_default();
    // As in IOS, a line without a sequence number leads to a new entry, 10 after the last one.
    let seq = seq.unwrap_or_else(|| map.last_key_value().map_or(10, |(last, _)| last + 10)).min(65_535);
    map.entry(seq).or_default();
    *edit.mode = ConfigMode::AccessMap(name, seq);
    Ok(())
}

fn entry<'a>(edit: &'a mut Edit<'_>) -> Result<&'a mut MapEntry, Refusal> {
    let ConfigMode::AccessMap(name, seq) = &*edit.mode else {
        return Err("this command needs the mode of a VLAN map: enter vlan access-map first".into());
    };
    Ok(edit.config.lists.maps.entry(name.clone()).or_default().entry(*seq).or_default())
}

fn action(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let forward = args.form != Form::Set || need(args.among(&[("forward", true), ("drop", false)]))?;
    entry(edit)?.forward = forward;
    Ok(())
}

fn matches(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    check_name(&name)?;
    let family = need(args.among(FAMILIES))?;
    if edit.config.lists.access.get(&name).is_some_and(|list| list.kind.family() != family) {
        return Err(format!("{} is a list for other frames", short(&name)).into());
    }
    member(&mut entry(edit)?.lists[family.index()], name, args.form)
}

fn filter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    check_name(&name)?;
    let listed = args.values.iter().find_map(|value| match value {
        Value::Vlans(vlans) => Some(vlans.clone()),
        _ => None,
    });
    if args.form != Form::Set {
        let before = edit.config.vlan_maps.len();
        edit.config
            .vlan_maps
            .retain(|vlan, map| *map != name || listed.as_ref().is_some_and(|list| !list.contains(*vlan)));
        let changed = edit.config.vlan_maps.len() < before;
        return if changed { Ok(()) } else { Err("there is no such line".into()) };
    }
    need(listed)?.iter().for_each(|vlan| drop(edit.config.vlan_maps.insert(vlan, name.clone())));
    Ok(())
}
