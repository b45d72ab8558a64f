//! Messages and events about what planes and netdevs report: the FDB, links, routes, neighbours.
//!
//! Invariant: an event is created only while a session listens to its kind.

use crate::context::Context;
use crate::kernel_views;
use lanyard_cli::view::EventKind;
use lanyard_config::InterfaceName;
use lanyard_pipeline::state::{PlaneState, PortKind, PortState};
use lanyard_plane::FdbEntry;
use lanyard_switch::compile::{host_end, subinterface};
use serde_json::{Map, Value, json};

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

pub(crate) fn fdb(ctx: &mut Context, action: &'static str, entry: &FdbEntry, more: Value) {
    let interface = entry.port.map(|port| ctx.port_name(port));
    ctx.bus.event(EventKind::Fdb, action, || {
        let mut details = object(json!({
            "mac": entry.mac, "vlan": entry.vlan, "interface": interface.as_deref(),
        }));
        details.extend(object(more));
        details
    });
}

/// Reports which ports went up and down between two plane states.
pub(crate) fn ports(ctx: &mut Context, old: &PlaneState, next: &PlaneState) {
    for (port, after) in &next.ports {
        let before = old.ports.get(port).filter(|before| before.name == after.name);
        if before.map(|before| before.enabled) != Some(after.enabled) {
            let action = if before.is_some() { "change" } else { "add" };
            // A port that is new and down is not worth a log message.
            link(ctx, action, after, before.is_some() || after.enabled);
        }
    }
    for (port, before) in &old.ports {
        if next.ports.get(port).is_none_or(|after| after.name != before.name) {
            link(ctx, "delete", &PortState { enabled: false, ..before.clone() }, false);
        }
    }
}

fn link(ctx: &mut Context, action: &'static str, port: &PortState, loud: bool) {
    let (name, key) = match port.kind {
        PortKind::Netdev | PortKind::Routed => (port.name.clone(), InterfaceName::Netdev(port.name.clone())),
        PortKind::Subinterface { .. } => {
            let name = subinterface(&port.name);
            (name.to_owned(), InterfaceName::Netdev(name.to_owned()))
        }
        PortKind::Svi(vlan) => (host_end(vlan), InterfaceName::Vlan(vlan)),
    };
    let interface = ctx.switch.config().interfaces.get(&key);
    let shutdown = interface.is_some_and(|interface| interface.shutdown);
    let is_logged = interface.is_none_or(|interface| interface.log_link);
    let state = if port.enabled { "up" } else { "down" };
    if loud && is_logged {
        match port.kind {
            PortKind::Svi(vlan) => {
                let text = format!("Line protocol on Interface Vlan{vlan}, changed state to {state}");
                ctx.log("LINEPROTO", 5, "UPDOWN", &text);
            }
            _ if shutdown => {
                ctx.log(
                    "LINK",
                    5,
                    "CHANGED",
                    &format!("Interface {name}, changed state to administratively down"),
                );
            }
            PortKind::Netdev | PortKind::Routed | PortKind::Subinterface { .. } => {
                ctx.log("LINK", 3, "UPDOWN", &format!("Interface {name}, changed state to {state}"));
            }
        }
    }
    let up = port.enabled;
    ctx.bus.event(EventKind::Link, action, || {
        object(json!({"interface": name, "link_up": up, "admin_up": !shutdown}))
    });
}

pub(crate) fn route(
    ctx: &mut Context,
    action: &'static str,
    vrf: Option<&str>,
    route: &lanyard_netdev::Route,
) {
    if ctx.bus.wants(EventKind::Route) {
        let view = kernel_views::route(vrf, route, ctx.facts());
        let details = view.and_then(|view| serde_json::to_value(view).ok()).map(object);
        if let Some(details) = details {
            ctx.bus.event(EventKind::Route, action, || details);
        }
    }
}

pub(crate) fn neighbour(
    ctx: &mut Context,
    action: &'static str,
    vrf: Option<&str>,
    neighbour: &lanyard_netdev::Neighbour,
) {
    if ctx.bus.wants(EventKind::Neighbor) {
        let view = kernel_views::neighbour(vrf, neighbour, ctx.facts());
        let details = view.and_then(|view| serde_json::to_value(view).ok()).map(object);
        if let Some(details) = details {
            ctx.bus.event(EventKind::Neighbor, action, || details);
        }
    }
}
