//! Log messages and events about changes that planes and netdevs report: the FDB, links, routes, neighbours.
//!
//! Invariant: an event is created only while a session listens to its kind.

use crate::context::Context;
use crate::kernel_views;
use lanyard_cli::view::EventKind;
use lanyard_config::InterfaceName;
use lanyard_pipeline::state::{PlaneState, PortKind, PortState};
use lanyard_plane::FdbEntry;
use lanyard_switch::compile::{host_end, subinterface, vlan_of};
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
            // A new port that is down gets no log message.
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
        PortKind::Svi(vlan) if vlan_of(&port.name) == Some(vlan) => {
            (host_end(vlan), InterfaceName::Vlan(vlan))
        }
        // The port of the port-channel itself has been reported.
        PortKind::Svi(_) => return,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{Subscription, Topics};
    use crate::testing::{World, accept, config, messages, received};
    use lanyard_netdev::{Neighbour, NeighbourState};
    use lanyard_plane::FdbKind;
    use lanyard_types::{MacAddr, PortId, VlanId};

    fn listen(world: &mut World, kind: EventKind) -> Subscription {
        world.ctx.bus.subscribe(Topics::Events([kind].into())).expect("room")
    }

    fn state(ports: &[PortState]) -> PlaneState {
        let number = |at: usize| PortId::new(at as u16 + 1).expect("a port number");
        PlaneState {
            ports: ports.iter().enumerate().map(|(at, port)| (number(at), port.clone())).collect(),
            ..PlaneState::default()
        }
    }

    fn port(name: &str, enabled: bool) -> PortState {
        PortState { enabled, ..PortState::new(name, 1) }
    }

    fn svi(vlan: u16, enabled: bool) -> PortState {
        let kind = PortKind::Svi(VlanId::new(vlan).expect("a VLAN"));
        PortState { enabled, kind, ..PortState::new(&format!("ly{vlan}"), 2) }
    }

    /// The messages and events of a change between two states.
    #[test]
    fn ports_that_go_up_and_down() {
        let up = "UPDOWN: Interface eth1, changed state to up";
        let down = "UPDOWN: Interface eth1, changed state to down";
        let line = "UPDOWN: Line protocol on Interface Vlan10, changed state to down";
        let admin = "CHANGED: Interface eth1, changed state to administratively down";
        for (text, old, next, want_log, want_event) in [
            ("", vec![], vec![port("eth1", true)], Some(up), Some(("add", "eth1", true))),
            ("", vec![], vec![port("eth1", false)], None, Some(("add", "eth1", false))),
            (
                "",
                vec![port("eth1", true)],
                vec![port("eth1", false)],
                Some(down),
                Some(("change", "eth1", false)),
            ),
            ("", vec![port("eth1", true)], vec![port("eth1", true)], None, None),
            ("", vec![port("eth1", true)], vec![], None, Some(("delete", "eth1", false))),
            ("", vec![svi(10, true)], vec![svi(10, false)], Some(line), Some(("change", "vlan10", false))),
            (
                "shutdown",
                vec![port("eth1", true)],
                vec![port("eth1", false)],
                Some(admin),
                Some(("change", "eth1", false)),
            ),
            (
                "no logging event link-status",
                vec![port("eth1", true)],
                vec![port("eth1", false)],
                None,
                Some(("change", "eth1", false)),
            ),
        ] {
            let mut world = World::new();
            accept(&mut world.ctx, config(&format!("interface eth1\n switchport\n {text}")));
            let mut events = listen(&mut world, EventKind::Link);
            ports(&mut world.ctx, &state(&old), &state(&next));
            let want_log: Vec<String> = want_log.map(str::to_owned).into_iter().collect();
            assert_eq!(messages(&world.ctx), want_log, "{text} {old:?} {next:?}");
            let got = received(&mut events);
            let got: Vec<_> = got
                .iter()
                .map(|e| (e["action"].as_str(), e["interface"].as_str(), e["link_up"].as_bool()))
                .collect();
            let want_event = want_event.map(|(action, name, up)| (Some(action), Some(name), Some(up)));
            assert_eq!(got, want_event.into_iter().collect::<Vec<_>>(), "{text} {old:?} {next:?}");
        }
    }

    /// If a port number is used for another netdev, one port is removed and another one added.
    #[test]
    fn a_port_number_that_is_used_again() {
        let mut world = World::new();
        let mut events = listen(&mut world, EventKind::Link);
        ports(&mut world.ctx, &state(&[port("eth1", true)]), &state(&[port("eth2", true)]));
        let got: Vec<_> = received(&mut events)
            .iter()
            .map(|event| (event["action"].to_string(), event["interface"].to_string()))
            .collect();
        let want = [("\"add\"", "\"eth2\""), ("\"delete\"", "\"eth1\"")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(got, want);
    }

    #[test]
    fn fdb_route_and_neighbour_events_reach_only_their_subscribers() {
        let mut world = World::new();
        let ifindex = world.kernel.add("eth1");
        world.ctx.refresh();
        let entry = FdbEntry {
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
            vlan: VlanId::new(10).expect("a VLAN"),
            port: PortId::new(1),
            kind: FdbKind::Dynamic,
            age_s: 0,
        };
        let route_message = lanyard_netdev::Route::new("10.9.0.0/16".parse().expect("a prefix"))
            .via("10.0.0.9".parse().ok(), Some(ifindex));
        let neighbour_message = Neighbour {
            ifindex,
            addr: [10, 0, 0, 9].into(),
            mac: Some(entry.mac),
            state: NeighbourState::Reachable,
            router: false,
            proxy: false,
        };
        let mut subscriptions =
            [EventKind::Fdb, EventKind::Route, EventKind::Neighbor].map(|kind| listen(&mut world, kind));
        fdb(&mut world.ctx, "change", &entry, json!({"from": "eth2"}));
        route(&mut world.ctx, "add", None, &route_message);
        neighbour(&mut world.ctx, "delete", None, &neighbour_message);
        let [fdb, route, neighbour] = subscriptions.each_mut().map(received);
        assert_eq!(fdb.len(), 1, "nobody gets what it did not ask for");
        assert_eq!((&fdb[0]["mac"], &fdb[0]["from"]), (&json!("02:00:00:00:00:09"), &json!("eth2")));
        assert_eq!((&route[0]["prefix"], &route[0]["action"]), (&json!("10.9.0.0/16"), &json!("add")));
        assert_eq!((&neighbour[0]["interface"], neighbour.len()), (&json!("eth1"), 1));
    }
}
