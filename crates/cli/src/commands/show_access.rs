//! `show vlan access-map`, `show vlan filter`, `show object-group` and `show time-range`.

use super::access_list::NAME;
use crate::args::{Args, Kind, short};
use crate::backend::Refusal;
use crate::exec::Exec;
use crate::outcome::Outcome;
use crate::tree::{Node, arg, kw};
use lanyard_acl::Rule;
use lanyard_acl::list::{Lists, map_action};
use lanyard_types::VlanSet;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Under `show vlan`.
pub const ACCESS_MAP: Node = kw("access-map", "VLAN access-map").exec(maps).then(&[NAME.exec(maps)]);
/// Under `show vlan`.
pub const FILTER: Node = kw("filter", "VLAN filter information").exec(filters).then(&[
    kw("access-map", "VLANs of one map").then(&[NAME.exec(filters)]),
    kw("vlan", "The map of one VLAN").then(&[arg(Kind::Vlan, "VLAN ID").exec(filters)]),
]);
/// Under `show`.
pub const OBJECT_GROUP: Node = kw("object-group", "Object groups").exec(groups).then(&[NAME.exec(groups)]);
/// Under `show`.
pub const TIME_RANGE: Node = kw("time-range", "Time ranges").exec(times).then(&[NAME.exec(times)]);

/// The name of each family in the JSON, and its word in the text, in the order of [`lanyard_acl::FrameFamily`].
const FAMILIES: [(&str, &str); 3] = [("ipv4", "ip"), ("ipv6", "ipv6"), ("mac", "mac")];

#[derive(Serialize)]
struct Maps {
    access_maps: Vec<Map>,
}

#[derive(Serialize)]
struct Map {
    name: String,
    entries: Vec<MapEntry>,
}

#[derive(Serialize)]
struct MapEntry {
    seq: u32,
    matches: Vec<Match>,
    action: &'static str,
}

#[derive(Serialize)]
struct Match {
    family: &'static str,
    access_list: String,
}

#[derive(Serialize)]
struct Filters {
    filters: Vec<Filter>,
}

#[derive(Serialize)]
struct Filter {
    access_map: String,
    exists: bool,
    vlans: String,
}

#[derive(Serialize)]
struct Groups {
    object_groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    name: String,
    kind: &'static str,
    members: Vec<String>,
    rules: usize,
}

#[derive(Serialize)]
struct Times {
    time_ranges: Vec<Time>,
}

#[derive(Serialize)]
struct Time {
    name: String,
    active: bool,
    lines: Vec<String>,
    rules: usize,
}

/// The entries of `named` that the command shows.
///
/// # Errors
/// When the line names one that does not exist.
fn chosen<'a, T>(
    named: impl Iterator<Item = (&'a String, T)>,
    args: &Args,
    what: &str,
) -> Result<Vec<(&'a String, T)>, Refusal> {
    let Some(only) = args.text() else { return Ok(named.collect()) };
    let found: Vec<_> = named.filter(|(name, _)| **name == only).collect();
    if found.is_empty() { Err(format!("there is no {what} {}", short(&only)).into()) } else { Ok(found) }
}

fn maps(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let lists = exec.backend.running().lists.clone();
    let entry = |(seq, entry): (&u32, &lanyard_acl::list::MapEntry)| MapEntry {
        seq: *seq,
        matches: FAMILIES
            .iter()
            .zip(&entry.lists)
            .flat_map(|((family, _), lists)| lists.iter().map(|list| (*family, list.clone())))
            .map(|(family, access_list)| Match { family, access_list })
            .collect(),
        action: map_action(entry.forward),
    };
    let map = |(name, entries): (&String, &BTreeMap<u32, _>)| Map {
        name: name.clone(),
        entries: entries.iter().map(entry).collect(),
    };
    let access_maps = chosen(lists.maps.iter(), args, "VLAN map")?.into_iter().map(map).collect();
    Ok(exec.present(&Maps { access_maps }, render_maps))
}

fn render_maps(view: &Maps) -> String {
    let mut out = String::new();
    for map in &view.access_maps {
        for entry in &map.entries {
            let _ = writeln!(out, "Vlan access-map \"{}\"  {}\n  Match clauses:", map.name, entry.seq);
            for Match { family, access_list } in &entry.matches {
                let word = FAMILIES.iter().find(|(name, _)| name == family).map_or("", |(_, word)| word);
                let _ = writeln!(out, "    {word} address: {access_list}");
            }
            let _ = writeln!(out, "  Action:\n    {}", entry.action);
        }
    }
    out
}

fn filters(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let config = exec.backend.running().clone();
    let (only_map, only_vlan) = (args.text(), args.vlan());
    let mut maps: BTreeMap<&String, VlanSet> = BTreeMap::new();
    for (vlan, map) in &config.vlan_maps {
        let fits =
            only_map.as_ref().is_none_or(|only| only == map) && only_vlan.is_none_or(|only| only == *vlan);
        if fits {
            maps.entry(map).or_default().insert(*vlan);
        }
    }
    let filter = |(map, vlans): (&String, VlanSet)| Filter {
        access_map: map.clone(),
        exists: config.lists.maps.contains_key(map),
        vlans: vlans.to_string(),
    };
    let filters = maps.into_iter().map(filter).collect();
    Ok(exec.present(&Filters { filters }, render_filters))
}

fn render_filters(view: &Filters) -> String {
    let mut out = String::new();
    for Filter { access_map, exists, vlans } in &view.filters {
        let state = if *exists { "" } else { " (not configured: it filters nothing)" };
        let _ = writeln!(out, "VLAN Map {access_map} is filtering VLANs:{state}\n  {vlans}");
    }
    out
}

/// The number of rules in all lists for which `uses` returns true.
fn rules(lists: &Lists, uses: impl Fn(&Rule) -> bool) -> usize {
    lists.access.values().flat_map(|list| list.rules()).filter(|(_, rule)| uses(rule)).count()
}

fn groups(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let lists = exec.backend.running().lists.clone();
    let networks = lists.groups.networks.iter().map(|(name, group)| {
        (name, ("network", group.members.iter().map(|member| member.text()).collect::<Vec<_>>()))
    });
    let services = lists.groups.services.iter().map(|(name, group)| {
        (name, ("service", group.members.iter().map(|member| member.text()).collect::<Vec<_>>()))
    });
    let group = |(name, (kind, members)): (&String, (&'static str, Vec<String>))| Group {
        name: name.clone(),
        kind,
        members,
        rules: rules(&lists, |rule| rule.names_group(name)),
    };
    let object_groups =
        chosen(networks.chain(services), args, "object group")?.into_iter().map(group).collect();
    Ok(exec.present(&Groups { object_groups }, render_groups))
}

fn render_groups(view: &Groups) -> String {
    let mut out = String::new();
    for Group { name, kind, members, rules } in &view.object_groups {
        let title = if *kind == "network" { "Network" } else { "Service" };
        let _ = writeln!(out, "{title} object group {name} ({})", used(*rules));
        out.extend(members.iter().map(|member| format!(" {member}\n")));
    }
    out
}

fn times(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let minute = exec.backend.minute();
    let lists = exec.backend.running().lists.clone();
    let time = |(name, range): (&String, &lanyard_acl::time::TimeRange)| Time {
        name: name.clone(),
        active: range.active(minute),
        lines: range.lines(),
        rules: rules(&lists, |rule| rule.time_range.as_ref() == Some(name)),
    };
    let time_ranges = chosen(lists.times.iter(), args, "time range")?.into_iter().map(time).collect();
    Ok(exec.present(&Times { time_ranges }, render_times))
}

fn render_times(view: &Times) -> String {
    let mut out = String::new();
    for Time { name, active, lines, rules } in &view.time_ranges {
        let state = if *active { "active" } else { "inactive" };
        let _ = writeln!(out, "time-range entry: {name} ({state}, {})", used(*rules));
        out.extend(lines.iter().map(|line| format!("   {line}\n")));
    }
    out
}

fn used(rules: usize) -> String {
    match rules {
        0 => "used by no rule".into(),
        1 => "used by 1 rule".into(),
        many => format!("used by {many} rules"),
    }
}
