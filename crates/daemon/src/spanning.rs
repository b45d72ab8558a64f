//! Spanning tree driven: links, BPDUs and timers in; states, flushes, frames, events out. What to do is decided in
//! `lanyard_switch::spanning` and below.
//!
//! Invariants: a frame leaves after the states that were decided before it are in the plane, and not while the plane
//! refuses one (`loop_safety`); what a restart needs is written down before either. Times are milliseconds since the machine was started, so that they mean the same
//! to the next daemon.

use crate::core::Core;
use crate::files;
use crate::paths::Paths;
use lanyard_cli::backend::Refusal;
use lanyard_cli::view::{self, EventKind, TreeKey};
use lanyard_config::InterfaceName;
use lanyard_plane::FdbFilter;
use lanyard_stp::view::stp_state_name;
use lanyard_stp::{Duplex, ErrCause, Event, Mode, Snapshot};
use lanyard_switch::links::{self, Netdevs};
use lanyard_switch::spanning::{Todo, set_up};
use lanyard_types::{InstanceId, PortId};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Longest snapshot read, in bytes.
const MAX_SNAPSHOT: usize = 64 << 20;
/// Most rounds of doing what the bridge wants, each of which may make it want more.
const MAX_ROUNDS: usize = 16;

/// Where the snapshot is.
pub(crate) fn snapshot_path(paths: &Paths) -> PathBuf {
    paths.run.join("spanning-tree.json")
}

/// What the last run's spanning tree left, if it can be read.
pub(crate) fn found(paths: &Paths) -> Option<Snapshot> {
    let text = files::read_text(&snapshot_path(paths), MAX_SNAPSHOT).ok()?;
    serde_json::from_str(&text).ok()
}

impl Core {
    /// Tells spanning tree which links came and went.
    pub(crate) fn spanning_links(&mut self) {
        if self.switch.spanning().is_none() {
            return;
        }
        let now = self.clock.boot_ms();
        let netdev = self.kernel.netdev();
        self.switch.spanning_links(now, &mut |name| {
            let settings = netdev.settings(name).unwrap_or_default();
            let half = settings.duplex == Some(lanyard_netdev::Duplex::Half);
            (settings.speed_mbps, if half { Duplex::Half } else { Duplex::Full })
        });
    }

    /// BPDUs came up.
    pub(crate) fn spanning_bpdus(&mut self, frames: Vec<(PortId, Vec<u8>)>) {
        let now = self.clock.boot_ms();
        let Some(spanning) = self.switch.spanning_mut() else { return };
        for (port, frame) in frames {
            // A refused one has been counted, and is an event.
            let _ = spanning.bridge_mut().handle_bpdu(now, port, &frame);
        }
        self.spanning();
    }

    /// Timers that are due.
    pub(crate) fn spanning_tick(&mut self) {
        let now = self.clock.boot_ms();
        let Some(spanning) = self.switch.spanning_mut() else { return };
        let timeout = spanning.bridge().next_timeout().is_some_and(|at| at <= now);
        if timeout {
            spanning.bridge_mut().handle_timer(now);
        }
        if timeout || self.loop_safety.next_ms().is_some_and(|at| at <= now) {
            self.spanning();
        }
    }

    /// When [`Core::spanning_tick`] has something to do, on the daemon's clock.
    pub(crate) fn spanning_due(&self) -> Option<u64> {
        let timeout = self.switch.spanning()?.bridge().next_timeout();
        timeout.into_iter().chain(self.loop_safety.next_ms()).min().map(|at| self.clock.of_boot(at))
    }

    /// Takes over what spanning tree wants done; before the plane is given a new state, so that it is in there.
    pub(crate) fn spanning_todo(&mut self) -> Todo {
        let now = self.clock.boot_ms();
        let silent = self.was_silent(now);
        let Core { switch, plane, .. } = self;
        let mut todo = Todo::default();
        if let Some(spanning) = switch.spanning_mut() {
            todo = spanning.todo(plane.state());
            if silent {
                spanning.silence(now, plane.state(), &mut todo);
            }
        }
        self.spanning_save();
        todo
    }

    /// Does what spanning tree wants done.
    pub(crate) fn spanning(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let todo = self.spanning_todo();
            if todo.is_empty() && !self.loop_safety.behind {
                break;
            }
            if todo.bridges || !todo.states.is_empty() || self.loop_safety.behind {
                self.spanning_states();
            }
            let refused = self.loop_safety.behind;
            self.spanning_rest(todo);
            if refused {
                break;
            }
        }
        self.feed_watchdog();
    }

    /// Gives the plane the states of ports in trees as they are decided, and nothing else.
    fn spanning_states(&mut self) {
        let mut next = self.plane.state().clone();
        if let Some(spanning) = self.switch.spanning() {
            spanning.decide(&mut next);
        }
        let result = self.plane.apply(&next);
        self.states_applied(result.err().map(|reason| reason.to_string()));
    }

    /// What is left once the plane has the states: flushes, ports shut down, frames, events.
    pub(crate) fn spanning_rest(&mut self, todo: Todo) {
        let flushes: BTreeSet<(Option<PortId>, Option<u16>)> =
            todo.flushes.iter().map(|filter| (filter.port, filter.vlan.map(|vlan| vlan.get()))).collect();
        for (port, vlan) in flushes {
            let vlan = vlan.and_then(lanyard_types::VlanId::new);
            self.plane.fdb_flush(&FdbFilter { port, vlan, ..FdbFilter::default() });
        }
        let frames = if self.may_send() { &todo.frames[..] } else { &[] };
        for (port, frame) in frames {
            // A port that can't send has lost its link, which will be heard of.
            let _ = self.plane.inject(*port, frame);
        }
        for event in &todo.events {
            self.tell_spanning(event);
        }
        for (port, cause) in &todo.ports {
            self.set_port(*port, *cause);
        }
    }

    /// Shuts a port down for a cause, or brings it up again.
    fn set_port(&mut self, port: PortId, cause: Option<ErrCause>) {
        let Some(name) = self.switch.ports().name(port).map(str::to_owned) else { return };
        let key = InterfaceName::Netdev(name.clone());
        let shutdown = self.switch.config().interfaces.get(&key).is_some_and(|interface| interface.shutdown);
        let up = cause.is_none() && !shutdown;
        if let Some(action) = set_up(self.switch.facts(), &name, up) {
            self.close(links::taken_down(std::slice::from_ref(&action)));
            for error in self.kernel.act(&[action]).into_iter().filter_map(Result::err) {
                self.log("PM", 3, "ERR_DISABLE", &error);
            }
        }
    }

    /// Writes down what a restart needs, when it has changed.
    fn spanning_save(&mut self) {
        let generation = self.switch.spanning().map(|spanning| spanning.bridge().generation());
        if generation == self.spanning_saved {
            return;
        }
        let path = snapshot_path(&self.paths);
        let result = match self.switch.spanning() {
            None => std::fs::remove_file(&path),
            Some(spanning) => serde_json::to_vec(&spanning.bridge().snapshot())
                .map_err(std::io::Error::from)
                .and_then(|text| files::replace_quickly(&path, &text)),
        };
        match result {
            Ok(()) => self.spanning_saved = generation,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && generation.is_none() => {
                self.spanning_saved = None;
            }
            Err(error) => self.log("SPANTREE", 3, "SNAPSHOT", &format!("{}: {error}", path.display())),
        }
    }

    fn tell_spanning(&mut self, event: &Event) {
        let Some(spanning) = self.switch.spanning() else { return };
        let bridge = spanning.bridge();
        let mode = bridge.config().mode;
        let name = |port: PortId| self.port_name(port).to_string();
        let mstid = |instance: InstanceId| bridge.mstid_of(instance);
        let line = event.log(mode, &name, &mstid);
        let details = self.bus.wants(EventKind::Stp).then(|| details(event, mode, &name, &mstid));
        if let Some(line) = line {
            self.log(line.facility, line.severity, line.mnemonic, &line.text);
        }
        if let Some(details) = details {
            self.bus.event(EventKind::Stp, "change", || details);
        }
    }

    /// `show spanning-tree`.
    pub(crate) fn view_spanning_tree(&self) -> view::SpanningTree {
        let Some(spanning) = self.switch.spanning() else { return view::SpanningTree::default() };
        let (bridge, now) = (spanning.bridge(), self.clock.boot_ms());
        let watchdog = Some(self.view_watchdog(now));
        view::SpanningTree {
            watchdog,
            ..view::SpanningTree::of(bridge, now, &|port| self.port_name(port).to_string())
        }
    }

    /// See [`lanyard_cli::backend::SpanningTree::root_primary_priority`].
    pub(crate) fn root_primary(&self, key: TreeKey) -> Option<u16> {
        let usual = Some(24576);
        let Some(spanning) = self.switch.spanning() else { return usual };
        let bridge = spanning.bridge();
        let tree = bridge.view(self.clock.boot_ms()).into_iter().find(|tree| match key {
            TreeKey::Vlan(vlan) => match bridge.config().mode {
                Mode::Stp | Mode::Rstp => vlan == lanyard_types::VlanId::DEFAULT,
                _ => tree.vlan == Some(vlan),
            },
            TreeKey::Mst(mstid) => bridge.config().mode == Mode::Mst && tree.mstid == mstid,
        });
        tree.map_or(usual, |tree| bridge.root_primary_priority(tree.instance))
    }

    /// The port that `only` is, when it takes part.
    fn spanning_port(&self, only: Option<&InterfaceName>) -> Result<Option<PortId>, Refusal> {
        let Some(name) = only else { return Ok(None) };
        let bridge = self.switch.spanning().map(|spanning| spanning.bridge());
        let port = self
            .port_of(name)
            .filter(|port| bridge.is_some_and(|bridge| bridge.config().ports.contains_key(port)));
        port.map(Some).ok_or_else(|| format!("{name} takes no part in spanning tree").into())
    }

    /// `clear spanning-tree detected-protocols`.
    pub(crate) fn clear_protocols(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        let port = self.spanning_port(only)?;
        let now = self.clock.boot_ms();
        if let Some(spanning) = self.switch.spanning_mut() {
            spanning.bridge_mut().handle_mcheck(now, port);
        }
        self.spanning();
        Ok(())
    }

    /// `clear spanning-tree counters`.
    pub(crate) fn clear_bpdu_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        let port = self.spanning_port(only)?;
        if let Some(spanning) = self.switch.spanning_mut() {
            spanning.bridge_mut().clear_counters(port);
        }
        Ok(())
    }
}

/// An event's JSON: `event`, `instance` where it is about a tree, `interface` where it is about a port, and more.
fn details(
    event: &Event,
    mode: Mode,
    name: &dyn Fn(PortId) -> String,
    mstid: &dyn Fn(InstanceId) -> u16,
) -> Map<String, Value> {
    use lanyard_types::VlanId;
    let tree = |instance: InstanceId, vlan: Option<VlanId>| vlan.map_or_else(|| mstid(instance), VlanId::get);
    let on = |vlan: Option<VlanId>| vlan.map_or(0, VlanId::get);
    let value = match *event {
        Event::Role { instance, vlan, port, role } => {
            json!({"event": "role", "instance": tree(instance, vlan), "interface": name(port), "role": role.name()})
        }
        Event::State { instance, vlan, port, state } => {
            json!({"event": "state", "instance": tree(instance, vlan), "interface": name(port), "state": stp_state_name(state)})
        }
        Event::RootChanged { instance, vlan, root, port } => {
            json!({"event": "root", "instance": tree(instance, vlan), "interface": port.map(name), "root_id": root.to_string()})
        }
        Event::TopologyChange { instance, vlan, port, detected } => {
            json!({"event": "topology_change", "instance": tree(instance, vlan), "interface": name(port), "detected": detected})
        }
        Event::Edge { vlan, port, edge } => {
            json!({"event": "edge", "instance": on(vlan), "interface": name(port), "edge": edge})
        }
        Event::Migrated { vlan, port, to_stp } => {
            json!({"event": "migrated", "instance": on(vlan), "interface": name(port), "protocol": if to_stp { "stp" } else { mode.protocol() }})
        }
        Event::Disputed { instance, vlan, port } => {
            json!({"event": "disputed", "instance": tree(instance, vlan), "interface": name(port)})
        }
        Event::SelfLoop { vlan, port, blocked } => {
            json!({"event": "self_loop", "instance": on(vlan), "interface": name(port), "blocked": blocked})
        }
        Event::RootGuard { instance, vlan, port, blocked } => {
            json!({"event": "root_guard", "instance": tree(instance, vlan), "interface": name(port), "blocked": blocked})
        }
        Event::LoopGuard { instance, vlan, port, blocked } => {
            json!({"event": "loop_guard", "instance": tree(instance, vlan), "interface": name(port), "blocked": blocked})
        }
        Event::PvidMismatch { vlan, peer, port } => {
            json!({"event": "pvid_mismatch", "instance": vlan, "interface": name(port), "peer_vlan": peer})
        }
        Event::TypeMismatch { vlan, port } => {
            json!({"event": "type_mismatch", "instance": vlan, "interface": name(port)})
        }
        Event::Consistent { vlan, port } => {
            json!({"event": "consistent", "instance": vlan, "interface": name(port)})
        }
        Event::PvstSimFail { vlan, port, root, .. } => {
            json!({"event": "pvst_simulation_failed", "instance": vlan, "interface": name(port), "root_id": root.to_string()})
        }
        Event::PvstSimOk { port } => json!({"event": "pvst_simulation_ok", "interface": name(port)}),
        Event::Rejected { port, error } => {
            json!({"event": "rejected", "interface": name(port), "reason": error.name()})
        }
        Event::ErrDisabled { port, cause } => {
            json!({"event": "err_disabled", "interface": name(port), "cause": cause.name()})
        }
        Event::Recovering { port, cause } => {
            json!({"event": "recovering", "interface": name(port), "cause": cause.name()})
        }
        Event::NotSettled { vlan } => json!({"event": "not_settled", "instance": on(vlan)}),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
