//! From what planes and netdevs report to log messages and bus events.

use crate::core::{Change, Core};
use lanyard_cli::view::EventKind;
use lanyard_config::InterfaceName;
use lanyard_netdev::{Event, NeighbourState};
use lanyard_pipeline::state::{PlaneState, PortKind, PortState};
use lanyard_plane::{FdbEntry, PlaneEvent};
use lanyard_switch::compile::{host_end, subinterface};
use lanyard_types::TrapGroup;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Which tables were nearly full, and how many refusals had been counted, when last looked at.
#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    seen: BTreeMap<&'static str, (bool, u64)>,
    next_ms: u64,
}

/// Tables are looked at this often at most.
const WATCH_GAP_MS: u64 = 1000;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Core {
    /// Takes over what the plane has to say; answers how many events that was.
    pub fn plane_events(&mut self) -> usize {
        let mut events = Vec::new();
        self.plane.poll_events(&mut |event| events.push(event));
        let count = events.len();
        if count == 0 {
            return 0;
        }
        let now_ms = self.clock.now_ms();
        let fdb = self.bus.wants(EventKind::Fdb);
        let mut bpdus = Vec::new();
        for event in events {
            match event {
                PlaneEvent::FdbAdded(entry) => {
                    self.ageing.learned(now_ms);
                    if fdb {
                        self.tell_fdb("add", &entry, json!({}));
                    }
                }
                PlaneEvent::FdbMoved { entry, from } if fdb => {
                    let from = self.port_name(from);
                    self.tell_fdb("change", &entry, json!({"from": *from}));
                }
                PlaneEvent::FdbAged(entry) if fdb => {
                    self.tell_fdb("delete", &entry, json!({"cause": "aged"}))
                }
                PlaneEvent::FdbDeleted(entry) if fdb => {
                    self.tell_fdb("delete", &entry, json!({"cause": "flushed"}))
                }
                PlaneEvent::FdbMoved { .. } | PlaneEvent::FdbAged(_) | PlaneEvent::FdbDeleted(_) => {}
                PlaneEvent::Trapped { reason, port, frame, .. } => {
                    if reason.group() == TrapGroup::Stp {
                        bpdus.push((port, frame));
                    }
                }
                PlaneEvent::PortChanged { port, what } => {
                    let name = self.port_name(port);
                    self.log("PLANE", 5, "PORT", &format!("Interface {name}: {what}"));
                }
                PlaneEvent::Lost(lost) => {
                    self.ageing.learned(now_ms);
                    self.bus.event(EventKind::Fdb, "change", || object(json!({"lost": lost})));
                }
            }
        }
        if !bpdus.is_empty() {
            self.spanning_bpdus(bpdus);
        }
        self.watch_resources(now_ms);
        count
    }

    fn tell_fdb(&mut self, action: &'static str, entry: &FdbEntry, more: Value) {
        let interface = entry.port.map(|port| self.port_name(port));
        self.bus.event(EventKind::Fdb, action, || {
            let mut details = object(json!({
                "mac": entry.mac, "vlan": entry.vlan, "interface": interface.as_deref(),
            }));
            details.extend(object(more));
            details
        });
    }

    /// Says so when a table is nearly full (nine tenths), when it no longer is, and when it has refused entries.
    pub(crate) fn watch_resources(&mut self, now_ms: u64) {
        if now_ms < self.resources.next_ms {
            return;
        }
        self.resources.next_ms = now_ms + WATCH_GAP_MS;
        for table in self.plane.resources() {
            let nearly_full = table.used >= table.size - table.size / 10 && table.size > 0;
            let (was_full, refused) = self.resources.seen.get(table.name).copied().unwrap_or_default();
            self.resources.seen.insert(table.name, (nearly_full, table.refused));
            if nearly_full == was_full && table.refused == refused {
                continue;
            }
            if nearly_full && !was_full {
                let text = format!("table {} is filling up: {} of {}", table.name, table.used, table.size);
                self.log("RESOURCE", 4, "THRESHOLD", &text);
            }
            if table.refused > refused && refused == 0 {
                self.log(
                    "RESOURCE",
                    3,
                    "FULL",
                    &format!("table {} refuses entries: {} of {} used", table.name, table.used, table.size),
                );
            }
            self.bus.event(EventKind::Resource, "change", || {
                object(json!({"table": table.name, "size": table.size, "used": table.used, "refused": table.refused}))
            });
        }
    }

    /// Says which ports went up and down between two plane states.
    pub(crate) fn tell_changes(&mut self, old: &PlaneState, next: &PlaneState) {
        for (port, after) in &next.ports {
            let before = old.ports.get(port).filter(|before| before.name == after.name);
            if before.map(|before| before.enabled) != Some(after.enabled) {
                let action = if before.is_some() { "change" } else { "add" };
                // A port that is new and down is no news for the log.
                self.tell_link(action, after, before.is_some() || after.enabled);
            }
        }
        for (port, before) in &old.ports {
            if next.ports.get(port).is_none_or(|after| after.name != before.name) {
                self.tell_link("delete", &PortState { enabled: false, ..before.clone() }, false);
            }
        }
    }

    fn tell_link(&mut self, action: &'static str, port: &PortState, loud: bool) {
        let (name, key) = match port.kind {
            PortKind::Netdev | PortKind::Routed => {
                (port.name.clone(), InterfaceName::Netdev(port.name.clone()))
            }
            PortKind::Subinterface { .. } => {
                let name = subinterface(&port.name);
                (name.to_owned(), InterfaceName::Netdev(name.to_owned()))
            }
            PortKind::Svi(vlan) => (host_end(vlan), InterfaceName::Vlan(vlan)),
        };
        let shutdown = self.switch.config().interfaces.get(&key).is_some_and(|interface| interface.shutdown);
        let state = if port.enabled { "up" } else { "down" };
        if loud {
            match port.kind {
                PortKind::Svi(vlan) => {
                    let text = format!("Line protocol on Interface Vlan{vlan}, changed state to {state}");
                    self.log("LINEPROTO", 5, "UPDOWN", &text);
                }
                _ if shutdown => {
                    self.log(
                        "LINK",
                        5,
                        "CHANGED",
                        &format!("Interface {name}, changed state to administratively down"),
                    );
                }
                PortKind::Netdev | PortKind::Routed | PortKind::Subinterface { .. } => {
                    self.log("LINK", 3, "UPDOWN", &format!("Interface {name}, changed state to {state}"));
                }
            }
        }
        let up = port.enabled;
        self.bus.event(EventKind::Link, action, || {
            object(json!({"interface": name, "link_up": up, "admin_up": !shutdown}))
        });
    }

    /// Takes over what the kernel has to say about the switch's own namespace.
    pub fn netdev_events(&mut self, events: Vec<Event>) {
        self.netdev_events_in(None, events);
    }

    /// Takes over what the kernel has to say about VRFs; answers how many events that was.
    pub fn vrf_events(&mut self) -> usize {
        let mut count = 0;
        for (vrf, events) in self.kernel.spaces.events() {
            count += events.len();
            self.netdev_events_in(Some(&vrf), events);
        }
        count
    }

    fn netdev_events_in(&mut self, vrf: Option<&str>, events: Vec<Event>) {
        let mut changes = Vec::new();
        let of = || vrf.map(str::to_owned);
        for event in events {
            match event {
                // What was said about a netdev before it was moved is no longer so, and in a VRF only those are ours
                // that we have moved there.
                Event::Link(link) if self.kernel.spaces.home(&link.name) != vrf => {}
                Event::Link(link) => changes.push(Change::Link(self.kernel.link_facts_in(of(), &link))),
                Event::LinkGone { ifindex, .. } => changes.push(Change::Gone { vrf: of(), ifindex }),
                Event::Overrun => changes.push(Change::All),
                Event::Route(route) => {
                    self.routes_seen.remove(&(of(), route.dest));
                    self.statics.doubt_about(vrf, &route);
                    self.tell_route("add", vrf, &route);
                }
                Event::RouteGone(route) => {
                    self.routes_seen.remove(&(of(), route.dest));
                    self.statics.doubt_about(vrf, &route);
                    self.tell_route("delete", vrf, &route);
                }
                Event::Neighbour(neighbour) => {
                    if neighbour.state != NeighbourState::Permanent {
                        let (index, address) = (neighbour.ifindex, neighbour.addr);
                        self.kernel.neighbour_changed(vrf, index, address, self.switch.facts());
                    }
                    self.tell_neighbour("add", vrf, &neighbour);
                }
                Event::NeighbourGone(neighbour) => {
                    let (index, address) = (neighbour.ifindex, neighbour.addr);
                    self.kernel.neighbour_changed(vrf, index, address, self.switch.facts());
                    self.tell_neighbour("delete", vrf, &neighbour);
                }
                Event::Address(_) => {}
                // With its last address an interface loses its routes.
                Event::AddressGone(_) => self.statics.doubt(),
            }
        }
        if !changes.is_empty() {
            // A route may have lost its interface without a word about the route.
            self.routes_seen.clear();
        }
        self.netdevs_changed(changes);
    }

    fn tell_route(&mut self, action: &'static str, vrf: Option<&str>, route: &lanyard_netdev::Route) {
        if self.bus.wants(EventKind::Route) {
            let view = crate::views::route(vrf, route, self.facts());
            let details = view.and_then(|view| serde_json::to_value(view).ok()).map(object);
            if let Some(details) = details {
                self.bus.event(EventKind::Route, action, || details);
            }
        }
    }

    fn tell_neighbour(
        &mut self,
        action: &'static str,
        vrf: Option<&str>,
        neighbour: &lanyard_netdev::Neighbour,
    ) {
        if self.bus.wants(EventKind::Neighbor) {
            let view = crate::views::neighbour(vrf, neighbour, self.facts());
            let details = view.and_then(|view| serde_json::to_value(view).ok()).map(object);
            if let Some(details) = details {
                self.bus.event(EventKind::Neighbor, action, || details);
            }
        }
    }
}
