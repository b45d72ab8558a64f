//! `class-map` and the lines under it.
//!
//! Invariant: every class map that a policy map names exists; so the running configuration, which prints class maps before policy
//! maps, can be entered again.

use super::access_list::check_name;
use super::need;
use crate::args::{Args, Form, Kind, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::qos_text::{class_head, criterion, dscp, precedence};
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use lanyard_acl::Kind as ListKind;
use lanyard_acl::text::MAX_NAME;
use lanyard_config::{
    CLASS_DEFAULT, ClassMap, Config, Criterion, MAX_CRITERIA, MAX_QOS_MAPS, MAX_QOS_NAME, Match, QosProtocol,
};
use std::collections::BTreeSet;

/// The longest description of a class map or policy map, in bytes.
pub const MAX_DESCRIPTION: usize = 200;

/// The name of a class map or policy map.
pub const NAME: Kind = Kind::Word("WORD", MAX_QOS_NAME);

/// The argument of a line for a DSCP.
pub const DSCP: Node = arg(Kind::Word("DSCP", 10), "0-63, or a name: af11 to af43, cs1 to cs7, default, ef");
/// The argument of a line for an IP precedence.
pub const PRECEDENCE: Node = arg(
    Kind::Word("PRECEDENCE", 16),
    "0-7, or a name: routine, priority, immediate, flash, flash-override, critical, internet, network",
);

/// Under global configuration.
pub const LINES: &[Line<Config>] = &[Line::own(
    "",
    kw("class-map", "Configure QoS Class Map").then(&[
        kw("match-all", "Logical-AND all matching statements under this classmap").then(&[arg(
            NAME,
            "Class-map name",
        )
        .run(enter)]),
        kw("match-any", "Logical-OR all matching statements under this classmap").then(&[arg(
            NAME,
            "Class-map name",
        )
        .run(enter)]),
        arg(NAME, "Class-map name").run(enter),
    ]),
    print_classes,
)];

/// Inside `class-map`.
pub const TREE: &[Node] = &[
    kw("description", "Class-Map description").no(describe).then(&[arg(
        Kind::Line(MAX_DESCRIPTION),
        "Class-Map description",
    )
    .run(describe)]),
    kw("match", "Classification criteria").then(&[
        GROUP,
        ANY,
        COS,
        kw("dscp", "Match DSCP in IPv4 and IPv6 packets").then(DSCPS),
        IP,
        kw("not", "Negate this match result").then(&[
            GROUP,
            ANY,
            COS,
            kw("dscp", "Match DSCP in IPv4 and IPv6 packets").then(DSCPS),
            IP,
            kw("precedence", "Match Precedence in IPv4 and IPv6 packets").then(PRECEDENCES),
            PROTOCOL,
            VLAN,
        ]),
        kw("precedence", "Match Precedence in IPv4 and IPv6 packets").then(PRECEDENCES),
        PROTOCOL,
        VLAN,
    ]),
];

const GROUP: Node = kw("access-group", "Access group").then(&[
    kw("name", "Named Access List")
        .then(&[arg(Kind::Word("WORD", MAX_NAME), "Access list name").run(matches)]),
    number(1, 2699, "Access list number").run(matches),
]);
const ANY: Node = kw("any", "Any packets").run(matches);
const COS: Node = kw("cos", "IEEE 802.1Q class of service; 0 in a frame without a tag").then(COSES);
const IP: Node = kw("ip", "IP specific values").then(&[
    kw("dscp", "Match DSCP in IPv4 packets only").then(DSCPS),
    kw("precedence", "Match Precedence in IPv4 packets only").then(PRECEDENCES),
]);
const PROTOCOL: Node =
    kw("protocol", "Protocol")
        .then(&[arg(Kind::Word("PROTOCOL", 40), "arp, ip (IPv4) or ipv6").run(matches)]);
const VLAN: Node = kw("vlan", "VLANs to match").then(&[arg(Kind::VlanList, "VLAN IDs").run(matches)]);

/// Declares a chain of nodes for up to [`lanyard_config::MAX_MATCH_VALUES`] values, one after the other; the line may end after
/// each.
macro_rules! up_to_eight {
    ($name:ident, $value:expr) => {
        const $name: &[Node] = &[$value.run(matches).then(&[$value.run(matches).then(&[$value
            .run(matches)
            .then(&[$value.run(matches).then(&[$value.run(matches).then(&[$value
                .run(matches)
                .then(&[$value.run(matches).then(&[$value.run(matches)])])])])])])])];
    };
}
up_to_eight!(DSCPS, DSCP);
up_to_eight!(PRECEDENCES, PRECEDENCE);
up_to_eight!(COSES, number(0, 7, "Class of service"));

fn print_classes(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, class) in &config.qos.classes {
        lines.push(class_head(name, class));
        lines.extend(class.description.iter().map(|text| format!(" description {text}")));
        lines.extend(class.criteria.iter().map(|of| format!(" match {}", criterion(of))));
    }
    lines
}

/// Refuses a name that class maps and policy maps may not have.
pub(super) fn check_map_name(name: &str) -> Result<(), Refusal> {
    check_name(name)?;
    if name.to_ascii_lowercase().starts_with("system-cpp-") {
        return Err(format!(
            "{name} is a name of control-plane policing, whose rates Lanyard does not let be configured: show platform traps \
             has its counters"
        )
        .into());
    }
    Ok(())
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    check_map_name(&name)?;
    let any = args.among(&[("match-any", true), ("match-all", false)]);
    let qos = &mut edit.config.qos;
    if args.form != Form::Set {
        if !qos.classes.contains_key(&name) {
            return Err(format!("class map {} not configured", short(&name)).into());
        }
        let user = qos.policies.iter().find(|(_, policy)| policy.classes.iter().any(|(of, _)| *of == name));
        if let Some((policy, _)) = user {
            return Err(format!(
                "class map {name} is in use by policy map {policy}: enter no class {name} there first"
            )
            .into());
        }
        qos.classes.remove(&name);
        return Ok(());
    }
    if name == CLASS_DEFAULT {
        return Err(format!(
            "{CLASS_DEFAULT} is the class of all frames that match no other: it has no class map"
        )
        .into());
    }
    if qos.classes.len() >= MAX_QOS_MAPS && !qos.classes.contains_key(&name) {
        return Err(format!("there are {MAX_QOS_MAPS} class maps already: remove one").into());
    }
    let class = qos.classes.entry(name.clone()).or_default();
    class.any = any.unwrap_or(class.any);
    *edit.mode = ConfigMode::ClassMap(name);
    Ok(())
}

fn class<'a>(edit: &'a mut Edit<'_>) -> Result<&'a mut ClassMap, Refusal> {
    let ConfigMode::ClassMap(name) = &*edit.mode else {
        return Err("this command needs the mode of a class map: enter class-map first".into());
    };
    let class = edit.config.qos.classes.get_mut(name);
    class.ok_or_else(|| {
        format!("class map {name} does not exist any more: enter class-map {name} again").into()
    })
}

fn describe(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    class(edit)?.description = if args.form == Form::Set { Some(need(args.text())?) } else { None };
    Ok(())
}

/// The criterion of a `match` line.
fn read(args: &Args) -> Result<Criterion, Refusal> {
    #[derive(Clone, Copy)]
    enum Of {
        Group,
        Any,
        Cos,
        Dscp,
        Precedence,
        Protocol,
        Vlan,
    }
    let of = args.among(&[
        ("access-group", Of::Group),
        ("any", Of::Any),
        ("cos", Of::Cos),
        ("dscp", Of::Dscp),
        ("precedence", Of::Precedence),
        ("protocol", Of::Protocol),
        ("vlan", Of::Vlan),
    ]);
    let ipv4 = args.among(&[("ip", ())]).is_some();
    let values = |of: fn(&str) -> Result<u8, Refusal>| {
        args.texts().iter().map(|word| of(word)).collect::<Result<BTreeSet<u8>, Refusal>>()
    };
    let of = match need(of)? {
        Of::Any => Match::Any,
        Of::Group => Match::AccessGroup(list(args)?),
        Of::Dscp => Match::Dscp { values: values(dscp)?, ipv4 },
        Of::Precedence => Match::Precedence { values: values(precedence)?, ipv4 },
        Of::Cos => Match::Cos(args.numbers().into_iter().filter_map(|cos| u8::try_from(cos).ok()).collect()),
        Of::Vlan => Match::Vlan(need(args.vlans())?),
        Of::Protocol => Match::Protocol(protocol(&need(args.text())?)?),
    };
    Ok(Criterion { negated: args.among(&[("not", ())]).is_some(), of })
}

/// The access list of `match access-group`.
fn list(args: &Args) -> Result<String, Refusal> {
    let name = match args.number() {
        Some(number) => number.to_string(),
        None => need(args.text())?,
    };
    check_name(&name)?;
    if name.bytes().all(|b| b.is_ascii_digit()) && ListKind::of_number(&name).is_none() {
        return Err(format!("{name} is not the number of a list: see access-list ?").into());
    }
    Ok(name)
}

fn protocol(word: &str) -> Result<QosProtocol, Refusal> {
    let lower = word.to_ascii_lowercase();
    let found = QosProtocol::ALL.into_iter().find(|protocol| protocol.name() == lower);
    found.ok_or_else(|| {
        format!(
            "{} is not a protocol that a class map matches: enter arp, ip or ipv6. Lanyard has no application recognition \
             (NBAR): match an access list",
            short(word)
        )
        .into()
    })
}

fn matches(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let new = read(args)?;
    let class = class(edit)?;
    let held = class.criteria.iter().position(|held| *held == new);
    match (args.form, held) {
        (Form::Set, Some(_)) => {}
        (Form::Set, None) if class.criteria.len() >= MAX_CRITERIA => {
            return Err(format!("the class map has {MAX_CRITERIA} match lines already: remove one").into());
        }
        (Form::Set, None) => class.criteria.push(new),
        (_, Some(at)) => drop(class.criteria.remove(at)),
        (_, None) => return Err("the class map has no such line".into()),
    }
    Ok(())
}
