//! `show class-map`, `show policy-map ...` and `show mls qos` as text.

use super::table::columns;
use crate::config_view::{ClassMaps, MlsQos, PolicyMaps};
use crate::qos_text::{criterion, kind, police_action, sets};
use crate::view::{PolicerView, QueueView, ServiceClassView, ServicePolicies, ServicePolicyView};
use lanyard_config::{CLASS_DEFAULT, ClassActions, Config, PoliceAction, PolicyMap};
use std::fmt::Write;

/// `show class-map`.
pub fn class_maps(view: &ClassMaps) -> String {
    let mut out = String::new();
    for class in &view.class_maps {
        let _ = writeln!(out, " Class Map {} {}", class.kind, class.name);
        if let Some(text) = &class.description {
            let _ = writeln!(out, "   Description: {text}");
        }
        class.criteria.iter().for_each(|of| _ = writeln!(out, "   Match {of}"));
        if class.criteria.is_empty() {
            let _ = writeln!(out, "   Match none");
        }
        let _ = writeln!(out);
    }
    out
}

/// `show policy-map`.
pub fn policy_maps(view: &PolicyMaps) -> String {
    let mut out = String::new();
    for policy in &view.policy_maps {
        let _ = writeln!(out, "  Policy Map {}", policy.name);
        if let Some(text) = &policy.description {
            let _ = writeln!(out, "    Description: {text}");
        }
        for class in &policy.classes {
            let _ = writeln!(out, "    Class {}", class.class);
            class.actions.iter().for_each(|line| _ = writeln!(out, "      {line}"));
        }
        for at in &policy.interfaces {
            let _ = writeln!(out, "    Attached: {} {}", at.interface, at.direction);
        }
        let _ = writeln!(out);
    }
    out
}

/// `show policy-map interface`. `view` has the counters; `config` has the criteria and the actions of the classes.
pub fn service_policies(view: &ServicePolicies, config: &Config) -> String {
    let mut out = String::new();
    let mut last = "";
    for policy in &view.service_policies {
        if policy.interface != last {
            let _ = writeln!(out, " {}\n", super::ios_netdev(&policy.interface));
        }
        last = &policy.interface;
        let _ = writeln!(out, "  Service-policy {}: {}\n", policy.direction, policy.policy);
        service_policy(policy, config, &mut out);
    }
    out
}

fn service_policy(view: &ServicePolicyView, config: &Config, out: &mut String) {
    let parent = config.qos.policies.get(&view.policy);
    let child_name = parent.and_then(|policy| policy.default.child.as_deref());
    let child = child_name.and_then(|name| config.qos.policies.get(name));
    let mut in_child = false;
    for class in &view.classes {
        if class.child && !in_child {
            let _ = writeln!(out, "      Service-policy: {}\n", child_name.unwrap_or_default());
        }
        in_child = class.child;
        let policy = if class.child { child } else { parent };
        let actions = policy.and_then(|policy| actions_of(policy, &class.class));
        let mut text = String::new();
        class_text(class, actions, config, &mut text);
        let indent = if class.child { "        " } else { "    " };
        for line in text.lines() {
            let _ = if line.is_empty() { writeln!(out) } else { writeln!(out, "{indent}{line}") };
        }
    }
}

fn actions_of<'a>(policy: &'a PolicyMap, class: &str) -> Option<&'a ClassActions> {
    policy.actions().find(|(name, _)| *name == class).map(|(_, actions)| actions)
}

fn class_text(view: &ServiceClassView, actions: Option<&ClassActions>, config: &Config, out: &mut String) {
    let map = config.qos.classes.get(&view.class);
    let word = if view.class == CLASS_DEFAULT { "match-any" } else { map.map_or("match-all", kind) };
    let _ = writeln!(out, "Class-map: {} ({word})", view.class);
    let _ = writeln!(out, "  {} packets, {} bytes", view.packets, view.bytes);
    if view.class == CLASS_DEFAULT {
        let _ = writeln!(out, "  Match: any");
    }
    for of in map.into_iter().flat_map(|map| &map.criteria) {
        let _ = writeln!(out, "  Match: {}", criterion(of));
    }
    let sets = actions.map(sets).unwrap_or_default();
    if !sets.is_empty() {
        let _ = writeln!(out, "  QoS Set");
        sets.iter().for_each(|set| _ = writeln!(out, "    {set}"));
    }
    if let Some(policer) = &view.police {
        police_text(policer, actions, out);
    }
    if let Some(queue) = &view.queue {
        queue_text(queue, actions, out);
    }
    let _ = writeln!(out);
}

fn police_text(view: &PolicerView, actions: Option<&ClassActions>, out: &mut String) {
    let police = actions.and_then(|actions| actions.police);
    let _ = writeln!(out, "  police:");
    let _ = writeln!(out, "      cir {} bps, bc {} bytes", view.cir_bps, view.bc_bytes);
    match (view.pir_bps, view.be_bytes) {
        (Some(pir), Some(be)) => _ = writeln!(out, "      pir {pir} bps, be {be} bytes"),
        (None, Some(be)) => _ = writeln!(out, "      be {be} bytes"),
        _ => {}
    }
    let mut colour = |name: &str, packets: u64, bytes: u64, action: Option<PoliceAction>| {
        let _ = writeln!(out, "    {name} {packets} packets, {bytes} bytes; actions:");
        let _ = writeln!(out, "      {}", action.map_or_else(String::new, police_action));
    };
    colour("conformed", view.conformed_packets, view.conformed_bytes, police.map(|police| police.conform));
    colour("exceeded", view.exceeded_packets, view.exceeded_bytes, police.map(|police| police.exceed));
    if view.be_bytes.is_some() || view.pir_bps.is_some() {
        let action = police.map(|police| police.violate.unwrap_or(police.exceed));
        colour("violated", view.violated_packets, view.violated_bytes, action);
    }
}

fn queue_text(view: &QueueView, actions: Option<&ClassActions>, out: &mut String) {
    let _ = writeln!(out, "  Queueing");
    let _ = writeln!(out, "  queue limit {} {}", view.limit, view.limit_unit);
    let _ = writeln!(out, "  (queue depth/total drops) {}/{}", view.depth_packets, view.dropped_packets);
    let _ = writeln!(out, "  (pkts output/bytes output) {}/{}", view.sent_packets, view.sent_bytes);
    for line in actions.map(crate::qos_text::queueing).unwrap_or_default() {
        if !line.starts_with("queue-limit") {
            let _ = writeln!(out, "  {line}");
        }
    }
    let _ = writeln!(out, "  guaranteed {} bps, at most {} bps", view.rate_bps, view.ceil_bps);
}

/// `show mls qos`.
pub fn mls_qos(view: &MlsQos) -> String {
    let mut out = format!("QoS is {}\n", if view.enabled { "enabled" } else { "disabled" });
    let _ = writeln!(out, "\nCos-dscp map:");
    let row = |head: &str, values: &mut dyn Iterator<Item = String>| {
        format!("{head:>9}: {}\n", values.map(|value| format!("{value:>3}")).collect::<String>())
    };
    out.push_str(&row("cos", &mut (0..8).map(|cos| cos.to_string())));
    out.push_str(&row("dscp", &mut view.cos_dscp.iter().map(ToString::to_string)));
    let rows: Vec<_> = view
        .interfaces
        .iter()
        .map(|of| vec![super::ios_netdev(&of.interface), of.trust.to_owned()])
        .collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&columns(&["Interface", "Trust"], &rows, &[]));
    }
    out
}
