//! Checks policy maps by the rules that need no facts about ports: those of IOS on Catalyst switches, and the limits of Lanyard.

use crate::{
    Bandwidth, CLASS_DEFAULT, ClassActions, Config, MAX_POLICY_CLASSES, Police, PolicyMap, Priority, Qos,
    QosRate,
};

/// The errors in the service policies of a configuration: one sentence for each policy map and each interface with an error.
/// Empty for every configuration that the command line has made.
#[must_use]
pub fn qos_errors(config: &Config) -> Vec<String> {
    let policies = config.qos.policies.keys().filter_map(|name| policy_error(config, name));
    let attached = config.interfaces.iter().flat_map(|(interface, settings)| {
        let uses = [("input", &settings.qos.input), ("output", &settings.qos.output)];
        uses.into_iter().filter_map(move |(way, name)| {
            let name = name.as_ref()?;
            let exists = config.qos.policies.contains_key(name);
            (!exists)
                .then(|| format!("{interface}: service-policy {way} {name}: the policy map does not exist"))
        })
    });
    policies.chain(attached).collect()
}

/// The first error of a policy map, in itself and with the policy maps and interfaces that refer to it; `None` if it has none or
/// does not exist.
#[must_use]
pub fn policy_error(config: &Config, name: &str) -> Option<String> {
    let policy = config.qos.policies.get(name)?;
    classes_error(&config.qos, policy)
        .or_else(|| policy.actions().find_map(|(class, actions)| actions_error(class, actions)))
        .or_else(|| shares_error(policy))
        .or_else(|| child_error(&config.qos, policy))
        .or_else(|| parent_error(&config.qos, name, policy))
        .or_else(|| input_error(config, name, policy))
}

/// Why a policy map cannot be the `service-policy input` of an interface; `None` if it can.
#[must_use]
pub fn input_refusal(name: &str, policy: &PolicyMap) -> Option<String> {
    let (class, actions) = policy.actions().find(|(_, actions)| actions.queues())?;
    Some(format!(
        "queueing is not supported in the input direction: class {class} of policy map {name} has {}",
        queueing(actions)
    ))
}

/// The keyword of the first queueing action of a class.
fn queueing(actions: &ClassActions) -> &'static str {
    match actions {
        ClassActions { priority: Some(_), .. } => "priority",
        ClassActions { bandwidth: Some(_), .. } => "bandwidth",
        ClassActions { shape: Some(_), .. } => "shape",
        ClassActions { queue_limit: Some(_), .. } => "queue-limit",
        _ => "a service policy",
    }
}

fn classes_error(qos: &Qos, policy: &PolicyMap) -> Option<String> {
    let count = policy.classes.len() + 1;
    if count > MAX_POLICY_CLASSES {
        return Some(format!(
            "the policy map would have {count} classes: at most {MAX_POLICY_CLASSES}, {CLASS_DEFAULT} included"
        ));
    }
    let missing = policy.classes.iter().find(|(class, _)| !qos.classes.contains_key(class));
    missing.map(|(class, _)| format!("class map {class} not configured"))
}

fn actions_error(class: &str, actions: &ClassActions) -> Option<String> {
    if actions.priority.is_some() && actions.bandwidth.is_some() {
        return Some(format!("class {class} cannot have both priority and bandwidth: remove one of them"));
    }
    actions.police.as_ref().and_then(police_error)
}

fn police_error(police: &Police) -> Option<String> {
    let higher = match (police.cir, police.pir) {
        (QosRate::Bps(cir), Some(QosRate::Bps(pir))) if pir < cir => Some((pir, cir, "bit/s")),
        (QosRate::Percent(cir), Some(QosRate::Percent(pir))) if pir < cir => {
            Some((pir.into(), cir.into(), "percent"))
        }
        _ => None,
    };
    if let Some((pir, cir, unit)) = higher {
        return Some(format!(
            "pir {pir} is below cir {cir} {unit}: the peak rate is at least the committed rate"
        ));
    }
    if police.be.is_some() && police.pir.is_none() && police.violate.is_none() {
        return Some("be needs pir or a violate-action: a policer of two colours has one burst".into());
    }
    None
}

/// Why the shares of a port that the classes of one policy map get are wrong; `None` if they are right.
fn shares_error(policy: &PolicyMap) -> Option<String> {
    let bandwidths = || policy.actions().filter_map(|(class, actions)| Some((class, actions.bandwidth?)));
    let mut units = bandwidths().map(|(class, bandwidth)| (class, unit(bandwidth)));
    if let Some((first, of)) = units.next()
        && let Some((other, is)) = units.find(|(_, unit)| *unit != of)
    {
        return Some(format!(
            "class {other} has {is} and class {first} has {of}: all classes of a policy map have the same unit of bandwidth"
        ));
    }
    let open =
        policy.actions().find(|(_, actions)| matches!(actions.priority, Some(Priority { rate: None, .. })));
    let fixed =
        bandwidths().find(|(_, bandwidth)| matches!(bandwidth, Bandwidth::Bps(_) | Bandwidth::Percent(_)));
    if let (Some((open, _)), Some((class, bandwidth))) = (open, fixed) {
        return Some(format!(
            "class {class} has {} and class {open} has priority without a rate, which may take all of the port: enter bandwidth \
             remaining, or priority with a rate",
            unit(bandwidth)
        ));
    }
    let guaranteed = |(_, actions): (&str, &ClassActions)| {
        let bandwidth = match actions.bandwidth {
            Some(Bandwidth::Percent(percent)) => u32::from(percent),
            _ => 0,
        };
        let priority = match actions.priority {
            Some(Priority { rate: Some(QosRate::Percent(percent)), .. }) => u32::from(percent),
            _ => 0,
        };
        bandwidth + priority
    };
    let total: u32 = policy.actions().map(guaranteed).sum();
    if total > 100 {
        return Some(format!(
            "bandwidth percent and priority percent of all classes would be {total}: at most 100"
        ));
    }
    let remaining = |(_, bandwidth): (&str, Bandwidth)| match bandwidth {
        Bandwidth::RemainingPercent(percent) => u32::from(percent),
        _ => 0,
    };
    let total: u32 = bandwidths().map(remaining).sum();
    (total > 100).then(|| format!("bandwidth remaining percent of all classes would be {total}: at most 100"))
}

fn unit(bandwidth: Bandwidth) -> &'static str {
    match bandwidth {
        Bandwidth::Bps(_) => "bandwidth in kbit/s",
        Bandwidth::Percent(_) => "bandwidth percent",
        Bandwidth::RemainingPercent(_) => "bandwidth remaining percent",
        Bandwidth::RemainingRatio(_) => "bandwidth remaining ratio",
    }
}

/// Why the child that a class of the policy map names is not allowed; `None` if it is, or if no class names one.
fn child_error(qos: &Qos, policy: &PolicyMap) -> Option<String> {
    if let Some((class, _)) = policy.classes.iter().find(|(_, actions)| actions.child.is_some()) {
        return Some(format!(
            "class {class} cannot have a service policy: only {CLASS_DEFAULT} with shape average may"
        ));
    }
    let child = policy.default.child.as_deref()?;
    if policy.default.shape.is_none() {
        return Some(format!(
            "{CLASS_DEFAULT} needs shape average for service-policy {child}: the child divides what the class shapes"
        ));
    }
    if let Some((class, _)) = policy.classes.first() {
        return Some(format!(
            "a policy map with service-policy {child} has no class but {CLASS_DEFAULT}: remove class {class}"
        ));
    }
    match qos.policies.get(child) {
        None => Some(format!("policy map {child} not configured")),
        Some(of) => divides_error(child, of),
    }
}

/// Why a policy map cannot be a child; `None` if it can.
fn divides_error(name: &str, policy: &PolicyMap) -> Option<String> {
    if policy.actions().any(|(_, actions)| actions.child.is_some()) {
        return Some(format!("policy map {name} has a service policy itself: a child has no child"));
    }
    let acts = policy.queues() || policy.actions().any(|(_, actions)| actions.police.is_some());
    (!acts).then(|| format!("policy map {name} neither queues nor polices, which a child has to do"))
}

/// Why a policy map cannot be the child that another one names; `None` if it can, or if none names it.
fn parent_error(qos: &Qos, name: &str, policy: &PolicyMap) -> Option<String> {
    let wrong = divides_error(name, policy)?;
    let parent = qos.policies.iter().find(|(_, parent)| parent.default.child.as_deref() == Some(name));
    parent.map(|(parent, _)| format!("{wrong}; it is the child of policy map {parent}"))
}

/// Why a policy map cannot be the input policy of the interface that names it; `None` if it can, or if none names it.
fn input_error(config: &Config, name: &str, policy: &PolicyMap) -> Option<String> {
    let refusal = input_refusal(name, policy)?;
    let at = config.interfaces.iter().find(|(_, settings)| settings.qos.input.as_deref() == Some(name));
    at.map(|(interface, _)| format!("{refusal}, and {interface} has it as service-policy input"))
}
