//! The words of class maps and policy maps, for the running configuration and for `show`; names of DSCP and precedence.

use crate::args::short;
use crate::number::scaled;
use crate::refusal::Refusal;
use lanyard_acl::names::{DSCP, Names, PRECEDENCE};
use lanyard_config::{
    Bandwidth, ClassActions, ClassMap, Criterion, MAX_QOS_BPS, MIN_QOS_BPS, Match, Police, PoliceAction,
    Priority, QosRate, QueueLimit, SetIp,
};
use std::collections::BTreeSet;

/// The value of a word that is a number up to `most`, a name of `table`, or an unambiguous abbreviation of one.
fn named(word: &str, table: Names<u8>, most: u8, refusal: &str) -> Result<u8, Refusal> {
    let wrong = || Refusal::from(format!("{} is not {refusal}", short(word)));
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return word.parse().ok().filter(|value| *value <= most).ok_or_else(wrong);
    }
    let lower = word.to_ascii_lowercase();
    if let Some((_, value)) = table.iter().find(|(name, _)| *name == lower) {
        return Ok(*value);
    }
    let mut begun = table.iter().filter(|(name, _)| name.starts_with(&lower));
    match (begun.next(), begun.next()) {
        (Some((_, value)), None) => Ok(*value),
        _ => Err(wrong()),
    }
}

/// Parses a DSCP.
pub fn dscp(word: &str) -> Result<u8, Refusal> {
    named(word, DSCP, 63, "a DSCP: 0 to 63, af11 to af43, cs1 to cs7, default or ef")
}

/// Parses an IP precedence.
pub fn precedence(word: &str) -> Result<u8, Refusal> {
    let names = "a precedence: 0 to 7, or routine, priority, immediate, flash, flash-override, critical, internet or network";
    named(word, PRECEDENCE, 7, names)
}

/// Parses a rate of a policer or shaper, in bits per second, with an optional suffix `k`, `m` or `g`.
pub fn rate(word: &str) -> Result<QosRate, Refusal> {
    let rate = scaled(word).filter(|rate| (MIN_QOS_BPS..=MAX_QOS_BPS).contains(rate));
    rate.map(QosRate::Bps).ok_or_else(|| {
        format!(
            "{} is not a rate in bit/s: {MIN_QOS_BPS} to {MAX_QOS_BPS}, or a number with the suffix k, m or g",
            short(word)
        )
        .into()
    })
}

/// The name of a DSCP, or its number where it has none.
fn dscp_name(value: u8) -> String {
    let named = DSCP.iter().find(|(_, of)| *of == value);
    named.map_or_else(|| value.to_string(), |(name, _)| (*name).to_owned())
}

fn joined(values: &BTreeSet<u8>, of: fn(u8) -> String) -> String {
    values.iter().map(|value| of(*value)).collect::<Vec<_>>().join(" ")
}

/// The line that leads into a class map.
pub fn class_head(name: &str, class: &ClassMap) -> String {
    format!("class-map {} {name}", kind(class))
}

/// `match-any` or `match-all`.
pub fn kind(class: &ClassMap) -> &'static str {
    if class.any { "match-any" } else { "match-all" }
}

/// The words after `match` in a line.
pub fn criterion(criterion: &Criterion) -> String {
    let ip = |ipv4: bool| if ipv4 { "ip " } else { "" };
    let of = match &criterion.of {
        Match::Any => "any".to_owned(),
        Match::AccessGroup(list) if list.bytes().all(|b| b.is_ascii_digit()) => {
            format!("access-group {list}")
        }
        Match::AccessGroup(list) => format!("access-group name {list}"),
        Match::Dscp { values, ipv4 } => format!("{}dscp {}", ip(*ipv4), joined(values, dscp_name)),
        Match::Precedence { values, ipv4 } => {
            format!("{}precedence {}", ip(*ipv4), joined(values, |value| value.to_string()))
        }
        Match::Cos(values) => format!("cos {}", joined(values, |value| value.to_string())),
        Match::Vlan(vlans) => format!("vlan {vlans}"),
        Match::Protocol(protocol) => format!("protocol {}", protocol.name()),
    };
    format!("{}{of}", if criterion.negated { "not " } else { "" })
}

/// Prints the rate of a policer or shaper, in bits per second.
pub fn rate_text(rate: QosRate) -> String {
    match rate {
        QosRate::Bps(bps) => bps.to_string(),
        QosRate::Percent(percent) => format!("percent {percent}"),
    }
}

/// Prints a rate that lines have in kbit/s.
fn kbps_text(rate: QosRate) -> String {
    match rate {
        QosRate::Bps(bps) => (bps / 1_000).to_string(),
        QosRate::Percent(percent) => format!("percent {percent}"),
    }
}

/// An action of a policer.
pub fn police_action(action: PoliceAction) -> String {
    match action {
        PoliceAction::Transmit => "transmit".to_owned(),
        PoliceAction::Drop => "drop".to_owned(),
        PoliceAction::SetDscp(value) => format!("set-dscp-transmit {}", dscp_name(value)),
        PoliceAction::SetPrecedence(value) => format!("set-prec-transmit {value}"),
        PoliceAction::SetCos(value) => format!("set-cos-transmit {value}"),
    }
}

/// A policer in one line.
pub fn police(police: &Police) -> String {
    let mut line = format!("police cir {}", rate_text(police.cir));
    let mut add = |text: String| line.push_str(&text);
    police.bc.into_iter().for_each(|burst| add(format!(" bc {burst}")));
    police.pir.into_iter().for_each(|rate| add(format!(" pir {}", rate_text(rate))));
    police.be.into_iter().for_each(|burst| add(format!(" be {burst}")));
    add(format!(" conform-action {}", police_action(police.conform)));
    add(format!(" exceed-action {}", police_action(police.exceed)));
    police.violate.into_iter().for_each(|action| add(format!(" violate-action {}", police_action(action))));
    line
}

/// The fields that a class sets in its frames, as the ends of `set` lines.
pub fn sets(actions: &ClassActions) -> Vec<String> {
    let ip = actions.set.map(|set| match set {
        SetIp::Dscp(value) => format!("dscp {}", dscp_name(value)),
        SetIp::Precedence(value) => format!("precedence {value}"),
    });
    ip.into_iter().chain(actions.set_cos.map(|cos| format!("cos {cos}"))).collect()
}

/// The lines of the queueing actions of a class, without `service-policy`.
pub fn queueing(actions: &ClassActions) -> Vec<String> {
    let priority = actions.priority.map(|Priority { level, rate }| {
        let level = if level == 1 { String::new() } else { format!(" level {level}") };
        format!("priority{level}{}", rate.map_or_else(String::new, |rate| format!(" {}", kbps_text(rate))))
    });
    let bandwidth = actions.bandwidth.map(|bandwidth| match bandwidth {
        Bandwidth::Bps(bps) => format!("bandwidth {}", bps / 1_000),
        Bandwidth::Percent(percent) => format!("bandwidth percent {percent}"),
        Bandwidth::RemainingPercent(percent) => format!("bandwidth remaining percent {percent}"),
        Bandwidth::RemainingRatio(ratio) => format!("bandwidth remaining ratio {ratio}"),
    });
    let shape = actions.shape.map(|rate| format!("shape average {}", rate_text(rate)));
    let limit = actions.queue_limit.map(|limit| match limit {
        QueueLimit::Packets(packets) => format!("queue-limit {packets} packets"),
        QueueLimit::Bytes(bytes) => format!("queue-limit {bytes} bytes"),
    });
    [priority, bandwidth, shape, limit].into_iter().flatten().collect()
}

/// The lines of a class in a policy map.
pub fn actions(actions: &ClassActions) -> Vec<String> {
    let mut lines: Vec<String> = sets(actions).into_iter().map(|set| format!("set {set}")).collect();
    lines.extend(actions.police.as_ref().map(police));
    lines.extend(queueing(actions));
    lines.extend(actions.child.iter().map(|child| format!("service-policy {child}")));
    lines
}
