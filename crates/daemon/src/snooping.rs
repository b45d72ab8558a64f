//! Multicast snooping's half on the management thread: passes the configuration to the protocol thread, and turns its reports
//! into log lines and events. The machines are in [`crate::protocols::snooping`].

use crate::announce;
use crate::context::{Context, Module};
use crate::protocols::work::SnoopingEvent as Event;
use lanyard_cli::view::EventKind;
use lanyard_snoop::Config;
use lanyard_switch::snooping::{Classifier, classifiers, lower};
use lanyard_types::{Family, PortId, PortSet};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The configuration that was last passed to the protocol thread.
#[derive(Debug, Default)]
pub(crate) struct Snooping {
    given: Option<(Config, BTreeMap<PortId, Classifier>)>,
}

impl Module for Snooping {
    type Event<'a> = Event;

    fn configure(&mut self, ctx: &mut Context) {
        let (switch, plane) = (&ctx.switch, &ctx.plane);
        if !plane.capabilities().multicast {
            return;
        }
        let config = lower(switch.config(), plane.state(), switch.ports(), switch.identity());
        let classifiers = classifiers(plane.state());
        let given = Some((config.clone(), classifiers.clone()));
        if self.given == given {
            return;
        }
        self.given = given;
        ctx.protocols.change(move |engine| {
            let (snooping, mut io) = engine.snooping_and_io();
            snooping.configure(&mut io, config, classifiers);
        });
    }

    fn handle(&mut self, ctx: &mut Context, event: Event) -> usize {
        let name = |port: PortId| ctx.port_name(port).to_string();
        let names = |ports: &PortSet| ports.iter().map(name).collect::<Vec<_>>();
        match event {
            Event::Full { vlan, port } => {
                let text = match port {
                    Some(port) => format!(
                        "Interface {}: a host in VLAN {vlan} was refused a group, because the interface has as many as max-groups allows",
                        name(port)
                    ),
                    None => format!(
                        "a host in VLAN {vlan} was refused a group, because the switch has {} memberships; groups without members are flooded there",
                        lanyard_snoop::MAX_MEMBERSHIPS
                    ),
                };
                ctx.log("SNOOPING", 4, "LIMIT", &text);
            }
            Event::Refused { vlan, group, reason } => {
                let text = format!(
                    "group {group} in VLAN {vlan} is not limited to its members, and groups without members are flooded there: {reason}"
                );
                ctx.log("SNOOPING", 4, "TABLE_FULL", &text);
            }
            Event::Group { vlan, group, source, ports } => {
                let action = if ports.is_some() { "change" } else { "delete" };
                let ports = ports.map(|ports| names(&ports)).unwrap_or_default();
                tell(
                    ctx,
                    action,
                    json!({"event": "group", "vlan": vlan.get(), "group": group, "source": source, "ports": ports}),
                );
            }
            Event::Routers { vlan, family, ports } => {
                let protocol = if family == Family::V4 { "igmp" } else { "mld" };
                let ports = names(&ports);
                tell(
                    ctx,
                    "change",
                    json!({"event": "mrouter", "vlan": vlan.get(), "protocol": protocol, "ports": ports}),
                );
            }
        }
        1
    }
}

/// Ends snooping, because the plane is being removed.
pub(crate) fn end(ctx: &Context) {
    ctx.protocols.with(|engine| {
        let (snooping, mut io) = engine.snooping_and_io();
        snooping.configure(&mut io, Config::default(), BTreeMap::new());
    });
}

/// Sends an event to the listeners. If there are none, makes the protocol thread report no further events of groups.
fn tell(ctx: &mut Context, action: &'static str, details: Value) {
    if ctx.bus.wants(EventKind::Multicast) {
        ctx.bus.event(EventKind::Multicast, action, || announce::object(details));
    } else {
        ctx.protocols.with(|engine| engine.snooping_and_io().0.events = false);
    }
}

/// Makes the protocol thread report events of groups, if a session listens to them. Called when a session begins to listen.
pub(crate) fn listen(ctx: &Context) {
    if ctx.bus.wants(EventKind::Multicast) {
        ctx.protocols.with(|engine| engine.snooping_and_io().0.events = true);
    }
}

#[cfg(test)]
#[path = "snooping_tests.rs"]
mod tests;
