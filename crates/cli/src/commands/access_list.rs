//! Access lists: `access-list`, `ip access-list`, `ipv6 access-list`, `mac access-list`, and the lines of a list; the lines that
//! bind a list to an interface; `show access-lists`.
//!
//! `lanyard_acl::text` parses and prints rules. Invariant: the printed lines, entered again, give equal lists.

use super::need;
use crate::args::{Args, Form, Kind, is_quad, not_ipv4, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::help::{few, incomplete};
use crate::mode::ConfigMode;
use crate::outcome::Outcome;
use crate::render;
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use crate::view::{AccessListView, AccessLists, RuleView};
use lanyard_acl::list::{MAX_SEQ, SEQ_STEP};
use lanyard_acl::text::{self, Expected, Wrong};
use lanyard_acl::{AccessList, Entry, FrameFamily, Kind as ListKind, MAX_RULES, Rule, shadow};
use lanyard_config::{AccessGroups, Config, Interface, InterfaceName, Role};
use std::net::Ipv4Addr;

/// The maximum number of lists.
const MAX_LISTS: usize = 1023;
/// The maximum length of a rule or remark, in bytes.
const MAX_LINE: usize = 400;
/// The maximum number of entries of a list of which a new rule is compared with the other rules, to warn about shadowed rules.
const MAX_COMPARED: usize = 1024;

/// A name of a list as an argument of other commands.
pub const NAME: Node = arg(Kind::Word("WORD", text::MAX_NAME), "Access list name or number");

/// Under global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::own("", NUMBERED, print_lists),
    // The first entry prints the lists of all kinds.
    Line::unprinted(
        "ip",
        kw("access-list", "Named access list").then(&[
            kw("extended", "Extended access list").then(&[NAME.run(enter_extended)]),
            kw("log-update", "Control access list log updates").then(&[kw(
                "threshold",
                "Access list log threshold",
            )
            .no(log_threshold)
            .then(&[number(
                1,
                MAX_SEQ as u64,
                "Number of matches after which the log has a line",
            )
            .run(log_threshold)])]),
            kw("logging", "Control access list logging").then(&[kw(
                "interval",
                "Set rate limit for logging",
            )
            .no(log_interval)
            .then(&[
                number(0, i32::MAX as u64, "Access list logging interval in milliseconds").run(log_interval)
            ])]),
            kw("resequence", "Resequence access list").then(&[NAME.then(&[number(
                1,
                MAX_SEQ as u64,
                "Starting sequence number",
            )
            .then(&[number(1, MAX_SEQ as u64, "Step to increment the sequence number").set(resequence)])])]),
            kw("standard", "Standard access list").then(&[NAME.run(enter_standard)]),
        ]),
    ),
    Line::unprinted("ipv6", kw("access-list", "Configure access lists").then(&[NAME.run(enter_ipv6)])),
    Line::unprinted(
        "mac",
        kw("access-list", "Named access list")
            .then(&[kw("extended", "Extended access list").then(&[NAME.run(enter_mac)])]),
    ),
];

const NUMBERED: Node = kw("access-list", "Add an access list entry").then(&[number(
    1,
    2699,
    "1-99, 1300-1999: standard; 100-199, 2000-2699: extended; 700-799, 1100-1199: MAC",
)
.no(remove_numbered)
.then(&[
    kw("deny", "Specify packets to reject").then(&[arg(Kind::Rule(MAX_LINE), RULE).run(numbered)]),
    kw("permit", "Specify packets to forward").then(&[arg(Kind::Rule(MAX_LINE), RULE).run(numbered)]),
    kw("remark", "Access list entry comment").then(&[arg(Kind::Line(MAX_LINE), "Comment").run(numbered)]),
])]);

const RULE: &str = "Protocol, source, destination and conditions, as in IOS: see docs/access-lists.md";

/// Inside a list.
pub const RULES: &[Node] = &[
    kw("deny", "Specify packets to reject").then(&[arg(Kind::Rule(MAX_LINE), RULE).run(rule)]),
    kw("permit", "Specify packets to forward").then(&[arg(Kind::Rule(MAX_LINE), RULE).run(rule)]),
    kw("remark", "Access list entry comment").then(&[arg(Kind::Line(MAX_LINE), "Comment").run(rule)]),
    kw("sequence", "Sequence number for this entry").then(&[SEQUENCED]),
    SEQUENCED,
];

const SEQUENCED: Node = number(1, MAX_SEQ as u64, "Sequence number").no(rule).then(&[
    kw("deny", "Specify packets to reject").then(&[arg(Kind::Rule(MAX_LINE), RULE).run(rule)]),
    kw("permit", "Specify packets to forward").then(&[arg(Kind::Rule(MAX_LINE), RULE).run(rule)]),
    kw("remark", "Access list entry comment").then(&[arg(Kind::Line(MAX_LINE), "Comment").run(rule)]),
]);

const DIRECTIONS: &[Node] = &[kw("in", "Inbound packets").run(bind), kw("out", "Outbound packets").run(bind)];

/// Under an interface.
pub const BINDINGS: &[Line<Interface>] = &[
    Line::own(
        "ip",
        kw("access-group", "Specify access control for packets").then(&[NAME.then(DIRECTIONS)]),
        print_bindings,
    ),
    // The first entry prints the lines of all families.
    Line::unprinted(
        "ipv6",
        kw("traffic-filter", "Access control list for packets").then(&[NAME.then(DIRECTIONS)]),
    ),
    Line::unprinted(
        "mac",
        kw("access-group", "MAC access-group configuration").then(&[NAME.then(DIRECTIONS)]),
    ),
];

/// `show access-lists`.
pub const SHOW: Node = kw("access-lists", "List access lists").exec(show_all).then(&[NAME.exec(show_all)]);
/// `show ip access-lists`.
pub const SHOW_IP: Node =
    kw("access-lists", "List IP access lists").exec(show_ip).then(&[NAME.exec(show_ip)]);
/// `show ipv6 access-list`.
pub const SHOW_IPV6: Node =
    kw("access-list", "Summary of access lists").exec(show_ipv6).then(&[NAME.exec(show_ipv6)]);
/// `clear access-list counters`.
pub const CLEAR: Node = kw("access-list", "Clear access list statistical information").then(&[kw(
    "counters",
    "Clear access list counters",
)
.exec(clear)
.then(&[NAME.exec(clear)])]);

/// The lines of all access lists in the running configuration.
fn print_lists(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    lines
        .extend(config.lists.log_threshold.map(|most| format!("ip access-list log-update threshold {most}")));
    let interval_ms = Some(config.lists.log_interval_ms).filter(|ms| *ms > 0);
    lines.extend(interval_ms.map(|ms| format!("ip access-list logging interval {ms}")));
    for (name, list) in &config.lists.access {
        lines.push(format!("{} {name}", list.kind.command()));
        let number = if list.kind == ListKind::Ipv6 { "sequence " } else { "" };
        lines.extend(list.entries().iter().map(|(seq, entry)| match entry {
            Entry::Rule(rule) => format!(" {number}{seq} {}", rule.text(list.kind)),
            Entry::Remark(text) => format!(" {number}{seq} remark {text}"),
        }));
    }
    lines
}

/// `ip access-list log-update threshold N`.
fn log_threshold(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let most = args.numbers().into_iter().next().and_then(|most| u32::try_from(most).ok());
    edit.config.lists.log_threshold = most.filter(|_| matches!(args.form, Form::Set));
    Ok(())
}

/// `ip access-list logging interval MS`.
fn log_interval(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ms = args.number().and_then(|ms| u32::try_from(ms).ok()).filter(|_| args.form == Form::Set);
    edit.config.lists.log_interval_ms = ms.unwrap_or_default();
    Ok(())
}

fn print_bindings(interface: &Interface) -> Vec<String> {
    let AccessGroups { inbound, outbound } = &interface.access_groups;
    let line = |family: FrameFamily, name: &Option<String>, way| {
        name.as_ref().map(|name| format!("{} {name} {way}", AccessGroups::command(family)))
    };
    let both = FrameFamily::ALL.into_iter().flat_map(|family| {
        [line(family, &inbound[family.index()], "in"), line(family, &outbound[family.index()], "out")]
    });
    both.flatten().collect()
}

/// The refusal of words that are not a rule, or not a member of a service group. `expected` returns what may follow the beginning
/// of a rule or member.
pub(super) fn refusal(
    wrong: Wrong,
    words: &[&str],
    expected: impl Fn(&[&str]) -> Result<Expected, Wrong>,
) -> Refusal {
    let word = |at: usize| short(words.get(at).copied().unwrap_or_default());
    let choices = |upto: usize| {
        let found = expected(words.get(..upto).unwrap_or(words)).map(|found| found.choices);
        few(found.unwrap_or_default().into_iter().map(|(label, _)| label))
    };
    match wrong {
        Wrong::Incomplete => incomplete(&choices(words.len())).into(),
        Wrong::Invalid(at) if is_quad(&word(at)) && word(at).parse::<Ipv4Addr>().is_err() => {
            not_ipv4(&word(at)).into()
        }
        Wrong::Invalid(at) => {
            let there = match choices(at).as_slice() {
                [] => "the rule ends before it".into(),
                [one] => format!("enter {one}"),
                some => format!("enter one of these: {}", some.join(", ")),
            };
            format!("Invalid input detected at \"{}\": {there}", word(at)).into()
        }
        Wrong::Ambiguous(at) => format!("Ambiguous command: \"{}\"", word(at)).into(),
        Wrong::Refused(_, why) => why.into(),
    }
}

fn enter_standard(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    enter(edit, args, ListKind::Standard)
}
fn enter_extended(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    enter(edit, args, ListKind::Extended)
}
fn enter_ipv6(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    enter(edit, args, ListKind::Ipv6)
}
fn enter_mac(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    enter(edit, args, ListKind::Mac)
}

fn enter(edit: &mut Edit<'_>, args: &Args, kind: ListKind) -> Result<(), Refusal> {
    let name = need(args.text())?;
    if args.form != Form::Set {
        let found = edit.config.lists.access.get(&name).is_some_and(|list| list.kind == kind);
        if !found {
            return Err(missing(&name));
        }
        edit.config.lists.access.remove(&name);
        return Ok(());
    }
    create(edit.config, &name, kind)?;
    *edit.mode = ConfigMode::AccessList(kind, name);
    Ok(())
}

fn missing(name: &str) -> Refusal {
    format!("access list {} does not exist", short(name)).into()
}

/// Refuses a name that lists, groups and time ranges may not have.
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
    if plain && name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    let rule = "letters, digits, -, _, . and :, beginning with a letter or digit";
    Err(format!("{} is not a name: {rule}", short(name)).into())
}

/// The list of this name and kind; it is made if it does not exist.
fn create<'a>(config: &'a mut Config, name: &str, kind: ListKind) -> Result<&'a mut AccessList, Refusal> {
    check_name(name)?;
    let digits = name.bytes().all(|b| b.is_ascii_digit());
    if digits && ListKind::of_number(name) != Some(kind) {
        let ranges: Vec<String> =
            kind.numbers().iter().map(|(low, high)| format!("{low} to {high}")).collect();
        let may_be =
            if ranges.is_empty() { "it has a name, not a number".into() } else { ranges.join(" or ") };
        let title = kind.title();
        return Err(format!("{} is not the number of this kind, {title}: {may_be}", short(name)).into());
    }
    let lists = &config.lists.access;
    if !lists.contains_key(name) && lists.len() >= MAX_LISTS {
        return Err(format!("there are {MAX_LISTS} access lists already: remove one").into());
    }
    if !lists.contains_key(name)
        && let Some(family) = other_use(config, name, kind.family())
    {
        let frames = AccessGroups::command(family).split_once(' ').map_or("", |(word, _)| word);
        return Err(format!("{} is in use for {frames} frames: choose another name", short(name)).into());
    }
    let list = config.lists.access.entry(name.to_owned()).or_insert_with(|| AccessList::new(kind));
    if list.kind != kind {
        return Err(format!("a list {} exists and is an {}", short(name), list.kind.title()).into());
    }
    Ok(list)
}

/// A family other than `family` of which an interface or a VLAN map refers to a list `name`, which does not exist yet.
fn other_use(config: &Config, name: &str, family: FrameFamily) -> Option<FrameFamily> {
    let groups = config.interfaces.values().map(|interface| &interface.access_groups);
    let bound = groups.flat_map(|groups| [&groups.inbound, &groups.outbound]);
    let entries = config.lists.maps.values().flat_map(|map| map.values());
    let uses = |other: FrameFamily| {
        let at = other.index();
        bound.clone().any(|of| of[at].as_deref() == Some(name))
            || entries.clone().any(|entry| entry.lists[at].iter().any(|list| list == name))
    };
    [FrameFamily::Ipv4, FrameFamily::Ipv6, FrameFamily::Mac]
        .into_iter()
        .find(|other| *other != family && uses(*other))
}

fn numbered(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.number())?.to_string();
    let Some(kind) = ListKind::of_number(&name) else {
        return Err(format!("{name} is not the number of a list: see access-list ?").into());
    };
    if args.form != Form::Set && !edit.config.lists.access.contains_key(&name) {
        return Err(missing(&name));
    }
    create(edit.config, &name, kind)?;
    change(edit, &name, None, args)
}

fn remove_numbered(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.number())?.to_string();
    edit.config.lists.access.remove(&name).map(drop).ok_or_else(|| missing(&name))
}

fn rule(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ConfigMode::AccessList(_, name) = &*edit.mode else {
        return Err("this command needs the mode of an access list: enter ip access-list first".into());
    };
    let name = name.clone();
    change(edit, &name, args.number_u32(), args)
}

/// Adds the entry that a line describes to the list `name`, or removes it.
fn change(edit: &mut Edit<'_>, name: &str, seq: Option<u32>, args: &Args) -> Result<(), Refusal> {
    let list = edit.config.lists.access.get_mut(name).ok_or_else(|| missing(name))?;
    let what = args.among(&[("deny", "deny"), ("permit", "permit"), ("remark", "remark")]);
    let entry = match (what, args.text()) {
        (Some("remark"), Some(text)) => Some(Entry::Remark(text)),
        (Some(action), Some(text)) => {
            let words: Vec<&str> = std::iter::once(action).chain(text.split_whitespace()).collect();
            Some(Entry::Rule(
                text::parse(list.kind, &words)
                    .map_err(|wrong| refusal(wrong, &words, |words| text::expected(list.kind, words)))?,
            ))
        }
        _ => None,
    };
    if args.form != Form::Set {
        let same = |(at, held): &(&u32, &Entry)| {
            seq.is_none_or(|seq| seq == **at) && entry.as_ref().is_none_or(|entry| entry == *held)
        };
        let found = list.entries().iter().find(same).map(|(at, _)| *at);
        let at = found.ok_or("there is no such entry: show access-lists prints them")?;
        list.remove(at);
        return Ok(());
    }
    let entry = need(entry)?;
    let equal = if let Entry::Rule(rule) = &entry { list.find(rule) } else { None };
    if let Some(at) = equal {
        return match seq {
            Some(seq) if seq != at => Err(format!("the list has this rule already, with number {at}").into()),
            _ => Ok(()),
        };
    }
    if list.entries().len() >= MAX_RULES {
        return Err(
            format!("the list has {MAX_RULES} entries already: remove one, or divide the list").into()
        );
    }
    let seq = match seq.or_else(|| list.next_seq()) {
        Some(seq) => seq,
        None => return Err(format!("no number is left behind the last entry: enter ip access-list resequence {name} {SEQ_STEP} {SEQ_STEP}").into()),
    };
    if list.entries().contains_key(&seq) {
        return Err(format!(
            "Duplicate sequence number {seq}: remove that entry first, or choose another number"
        )
        .into());
    }
    let is_rule = matches!(entry, Entry::Rule(_));
    list.insert(seq, entry);
    if is_rule && edit.exists.is_some() && list.entries().len() <= MAX_COMPARED {
        let warnings = shadows(edit.config, name, seq);
        edit.notices.extend(warnings);
    }
    Ok(())
}

/// Warnings about shadowed rules: about the rule `seq` if an earlier rule shadows it, and about the rules that it shadows.
fn shadows(config: &Config, name: &str, seq: u32) -> Vec<String> {
    let Some(list) = config.lists.plane_list(name, &|_| true) else { return Vec::new() };
    // A rule with a time range shadows no rule, because it matches nothing while the range is not active.
    let timed = |seq: u32| match config.lists.access.get(name).and_then(|list| list.entries().get(&seq)) {
        Some(Entry::Rule(rule)) => rule.time_range.is_some(),
        _ => false,
    };
    let found = shadow::shadowed(list.family, &list.rules, &|rule| rule.seq == seq);
    let pairs = found.into_iter().map(|(late, early)| (list.rules[late].seq, list.rules[early].seq));
    let mut pairs: Vec<_> =
        pairs.filter(|(late, early)| late != early && *late != 0 && !timed(*early)).collect();
    pairs.dedup();
    let text = |(late, early)| {
        format!(
            "% Warning: rule {late} of access list {name} never matches: rule {early} matches all its packets"
        )
    };
    pairs.into_iter().map(text).collect()
}

fn resequence(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    let list = edit.config.lists.access.get_mut(&name).ok_or_else(|| missing(&name))?;
    let numbers: Vec<u32> = args.numbers().into_iter().filter_map(|n| u32::try_from(n).ok()).collect();
    let [start, step] = numbers[..] else { return Err("Incomplete command.".into()) };
    list.resequence(start, step).map_err(|last| {
        format!("the last number would be {last}: at most {MAX_SEQ}, choose a smaller start or step").into()
    })
}

/// The family of a list, by the first keyword of the line that binds it to an interface.
const FAMILIES: &[(&str, FrameFamily)] =
    &[("ip", FrameFamily::Ipv4), ("ipv6", FrameFamily::Ipv6), ("mac", FrameFamily::Mac)];

fn bind(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    let family = need(args.among(FAMILIES))?;
    let inbound = need(args.among(&[("in", true), ("out", false)]))?;
    check_name(&name)?;
    if let Some(list) = edit.config.lists.access.get(&name).filter(|list| list.kind.family() != family) {
        return Err(format!("{} is an {}, which cannot stand here", short(&name), list.kind.title()).into());
    }
    let set = args.form == Form::Set;
    let mut members = Vec::new();
    edit.each_interface(|interface, of| {
        if set {
            may_bind(interface, of, family)?;
            members.extend(interface.aggregation.group.map(|(channel, _)| (of.clone(), channel)));
        }
        let groups = &mut interface.access_groups;
        let slot = if inbound { &mut groups.inbound } else { &mut groups.outbound };
        let slot = &mut slot[family.index()];
        if !set && slot.as_deref() != Some(&name) {
            return Err(format!("{} has no such line", render::ios_name(of)).into());
        }
        *slot = set.then(|| name.clone());
        Ok(())
    })?;
    edit.notices.extend(members.into_iter().map(|(of, channel)| {
        format!(
            "{of} is a member of port-channel {channel}: its lists have no effect until it leaves. Bind the list to the \
             port-channel"
        )
    }));
    Ok(())
}

/// Refuses an interface that cannot have a list of this family.
fn may_bind(interface: &Interface, name: &InterfaceName, family: FrameFamily) -> Result<(), Refusal> {
    match (name, interface.role) {
        (InterfaceName::Vlan(_), _) if family == FrameFamily::Mac => {
            Err("a VLAN interface has no MAC access list: bind it to the ports, or use a VLAN map".into())
        }
        (InterfaceName::Vlan(_), _) | (_, Role::Switchport | Role::Routed) => Ok(()),
        (name, Role::Subinterface(_)) => {
            Err(format!("{name} is a subinterface, which has no access list: bind it to the routed port")
                .into())
        }
        (name, Role::Unset) => {
            Err(format!("{name} is not a port of the switch: enter switchport or no switchport first").into())
        }
    }
}

fn show_all(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    show(exec, args, &|_| true)
}
fn show_ip(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    show(exec, args, &|family| family == FrameFamily::Ipv4)
}
fn show_ipv6(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    show(exec, args, &|family| family == FrameFamily::Ipv6)
}

fn show(exec: &mut Exec<'_>, args: &Args, wanted: &dyn Fn(FrameFamily) -> bool) -> Result<Outcome, Refusal> {
    let only = args.text();
    let config = exec.backend.running().lists.clone();
    let chosen = config
        .access
        .iter()
        .filter(|(name, list)| wanted(list.kind.family()) && only.as_ref().is_none_or(|only| only == *name));
    let mut access_lists = Vec::new();
    for (name, list) in chosen {
        let matches = exec.backend.access_list_matches(name);
        let row = |(seq, rule): (u32, &Rule)| RuleView {
            seq,
            text: rule.shown(list.kind),
            matches: matches.get(&seq).copied().unwrap_or(0),
        };
        access_lists.push(AccessListView {
            name: name.clone(),
            family: ["ipv4", "ipv6", "mac"][list.kind.family().index()],
            kind: list.kind,
            rules: list.rules().map(row).collect(),
        });
    }
    Ok(exec.present(&AccessLists { access_lists }, render_lists))
}

fn render_lists(view: &AccessLists) -> String {
    let mut out = String::new();
    for list in &view.access_lists {
        out += &format!("{} {}\n", list.kind.title(), list.name);
        for RuleView { seq, text, matches } in &list.rules {
            let count = match matches {
                0 => String::new(),
                1 => " (1 match)".into(),
                many => format!(" ({many} matches)"),
            };
            out += &match list.kind {
                ListKind::Ipv6 => format!("    {text}{count} sequence {seq}\n"),
                _ => format!("    {seq} {text}{count}\n"),
            };
        }
    }
    out
}

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let only = args.text();
    if let Some(name) =
        only.as_deref().filter(|name| !exec.backend.running().lists.access.contains_key(*name))
    {
        return Err(missing(name));
    }
    exec.backend.clear_access_list_matches(only.as_deref());
    Ok(Outcome::Text(String::new()))
}
