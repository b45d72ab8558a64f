//! Spanning tree driven: links, BPDUs and timers in; states, flushes, frames, events out. What to do is decided in
//! `lanyard_switch::spanning` and below.
//!
//! Invariants: a frame leaves after the states that were decided before it are in the plane, and not while the plane
//! refuses one (`loop_safety`); what a restart needs is written down before either. Times are milliseconds since the machine was started, so that they mean the same
//! to the next daemon.

use crate::context::{Context, Module};
use crate::files;
use crate::paths::Paths;
use lanyard_cli::backend::Refusal;
use lanyard_cli::view::{self, EventKind, TreeKey};
use lanyard_config::InterfaceName;
use lanyard_plane::FdbFilter;
use lanyard_stp::view::stp_state_name;
use lanyard_stp::{Duplex, ErrCause, Event, Mode, Snapshot};
use lanyard_switch::links;
use lanyard_switch::spanning::{Todo, set_up};
use lanyard_types::{InstanceId, PortId};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Longest snapshot read, in bytes.
const MAX_SNAPSHOT: usize = 64 << 20;
/// Most rounds of carrying out the bridge's actions, each of which may lead to further ones.
const MAX_ROUNDS: usize = 16;

/// The path of the snapshot.
pub(crate) fn snapshot_path(paths: &Paths) -> PathBuf {
    paths.run.join("spanning-tree.json")
}

/// The state that the last run's spanning tree has saved, if it can be read.
pub(crate) fn found(paths: &Paths) -> Option<Snapshot> {
    let text = files::read_text(&snapshot_path(paths), MAX_SNAPSHOT).ok()?;
    serde_json::from_str(&text).ok()
}

/// The part of spanning tree's state that is on disk. The machines are in [`Context::switch`].
#[derive(Debug, Default)]
pub(crate) struct SpanningTree {
    /// The generation of the bridge that was saved last.
    saved: Option<u64>,
}

/// Trapped BPDUs.
pub(crate) type Bpdus = Vec<(PortId, Vec<u8>)>;

impl Module for SpanningTree {
    type Event<'a> = Bpdus;
    /// Carries out the bridge's actions after a change of configuration.
    fn configure(&mut self, ctx: &mut Context) {
        self.act(ctx);
    }
    fn handle(&mut self, ctx: &mut Context, bpdus: Bpdus) -> usize {
        let now = ctx.clock.boot_ms();
        let Some(spanning) = ctx.switch.spanning_mut() else { return 0 };
        let count = bpdus.len();
        for (port, frame) in bpdus {
            // A refused BPDU has been counted and reported as an event.
            let _ = spanning.bridge_mut().handle_bpdu(now, port, &frame);
        }
        self.act(ctx);
        count
    }
    fn next_ms(&self, ctx: &Context) -> Option<u64> {
        let timeout = ctx.switch.spanning()?.bridge().next_timeout();
        timeout.into_iter().chain(ctx.loop_safety.next_ms()).min().map(|at| ctx.clock.of_boot(at))
    }
    fn tick(&mut self, ctx: &mut Context) {
        let now = ctx.clock.boot_ms();
        let Some(spanning) = ctx.switch.spanning_mut() else { return };
        let timeout = spanning.bridge().next_timeout().is_some_and(|at| at <= now);
        if timeout {
            spanning.bridge_mut().handle_timer(now);
        }
        if timeout || ctx.loop_safety.next_ms().is_some_and(|at| at <= now) {
            self.act(ctx);
        }
    }
}

impl SpanningTree {
    /// Tells spanning tree which links have changed.
    pub(crate) fn links(&mut self, ctx: &mut Context) {
        if ctx.switch.spanning().is_none() {
            return;
        }
        let now = ctx.clock.boot_ms();
        let Context { switch, kernel, .. } = ctx;
        switch.spanning_links(now, &mut |name| {
            let settings = kernel.settings(name).unwrap_or_default();
            let half = settings.duplex == Some(lanyard_netdev::Duplex::Half);
            (settings.speed_mbps, if half { Duplex::Half } else { Duplex::Full })
        });
    }

    /// Takes spanning tree's actions, before the plane is given a new state, so that the state
    /// contains them.
    pub(crate) fn todo(&mut self, ctx: &mut Context) -> Todo {
        let now = ctx.clock.boot_ms();
        let silent = ctx.was_silent(now);
        let Context { switch, plane, .. } = ctx;
        let mut todo = Todo::default();
        if let Some(spanning) = switch.spanning_mut() {
            todo = spanning.todo(plane.state());
            if silent {
                spanning.silence(now, plane.state(), &mut todo);
            }
        }
        self.save(ctx);
        todo
    }

    /// Carries out spanning tree's actions.
    pub(crate) fn act(&mut self, ctx: &mut Context) {
        for _ in 0..MAX_ROUNDS {
            let todo = self.todo(ctx);
            if todo.is_empty() && !ctx.loop_safety.behind {
                break;
            }
            if todo.bridges || !todo.states.is_empty() || ctx.loop_safety.behind {
                set_states(ctx);
            }
            let refused = ctx.loop_safety.behind;
            carry_out(ctx, todo);
            if refused {
                break;
            }
        }
        ctx.feed_watchdog();
    }

    /// `clear spanning-tree detected-protocols`.
    pub(crate) fn clear_protocols(
        &mut self,
        ctx: &mut Context,
        only: Option<&InterfaceName>,
    ) -> Result<(), Refusal> {
        let port = port(ctx, only)?;
        let now = ctx.clock.boot_ms();
        if let Some(spanning) = ctx.switch.spanning_mut() {
            spanning.bridge_mut().handle_mcheck(now, port);
        }
        self.act(ctx);
        Ok(())
    }

    /// Saves what a restart needs, if it has changed.
    fn save(&mut self, ctx: &mut Context) {
        let generation = ctx.switch.spanning().map(|spanning| spanning.bridge().generation());
        if generation == self.saved {
            return;
        }
        let path = snapshot_path(&ctx.paths);
        let result = match ctx.switch.spanning() {
            None => std::fs::remove_file(&path),
            Some(spanning) => serde_json::to_vec(&spanning.bridge().snapshot())
                .map_err(std::io::Error::from)
                .and_then(|text| files::replace_quickly(&path, &text)),
        };
        match result {
            Ok(()) => self.saved = generation,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && generation.is_none() => {
                self.saved = None;
            }
            Err(error) => ctx.log("SPANTREE", 3, "SNAPSHOT", &format!("{}: {error}", path.display())),
        }
    }
}

/// Gives the plane the states of ports in trees that were decided on, and nothing else.
fn set_states(ctx: &mut Context) {
    let mut next = ctx.plane.state().clone();
    if let Some(spanning) = ctx.switch.spanning() {
        spanning.decide(&mut next);
    }
    let result = ctx.plane.apply(&next);
    ctx.states_applied(result.err().map(|reason| reason.to_string()));
}

/// Carries out the remaining actions once the plane has the states: flushes, ports to shut down,
/// frames, events.
pub(crate) fn carry_out(ctx: &mut Context, todo: Todo) {
    let flushes: BTreeSet<(Option<PortId>, Option<u16>)> =
        todo.flushes.iter().map(|filter| (filter.port, filter.vlan.map(|vlan| vlan.get()))).collect();
    for (port, vlan) in flushes {
        let vlan = vlan.and_then(lanyard_types::VlanId::new);
        ctx.plane.fdb_flush(&FdbFilter { port, vlan, ..FdbFilter::default() });
    }
    let frames = if ctx.may_send() { &todo.frames[..] } else { &[] };
    for (port, frame) in frames {
        // Sending fails if the port has lost its link, which an event will report.
        let _ = ctx.plane.inject(*port, frame);
    }
    for event in &todo.events {
        tell(ctx, event);
    }
    for (port, cause) in &todo.ports {
        set_port(ctx, *port, *cause);
    }
}

/// Shuts a port down for a cause, or brings it up again.
fn set_port(ctx: &mut Context, port: PortId, cause: Option<ErrCause>) {
    let Some(name) = ctx.switch.ports().name(port).map(str::to_owned) else { return };
    let key = InterfaceName::Netdev(name.clone());
    let shutdown = ctx.switch.config().interfaces.get(&key).is_some_and(|interface| interface.shutdown);
    let up = cause.is_none() && !shutdown;
    if let Some(action) = set_up(ctx.switch.facts(), &name, up) {
        ctx.disable_ports(links::taken_down(std::slice::from_ref(&action)));
        for error in ctx.kernel.act(&[action]).into_iter().filter_map(Result::err) {
            ctx.log("PM", 3, "ERR_DISABLE", &error.to_string());
        }
    }
}

fn tell(ctx: &mut Context, event: &Event) {
    let Some(spanning) = ctx.switch.spanning() else { return };
    let bridge = spanning.bridge();
    let mode = bridge.config().mode;
    let name = |port: PortId| ctx.port_name(port).to_string();
    let mstid = |instance: InstanceId| bridge.mstid_of(instance);
    let line = event.log(mode, &name, &mstid);
    let details = ctx.bus.wants(EventKind::Stp).then(|| details(event, mode, &name, &mstid));
    if let Some(line) = line {
        ctx.log(line.facility, line.severity, line.mnemonic, &line.text);
    }
    if let Some(details) = details {
        ctx.bus.event(EventKind::Stp, "change", || details);
    }
}

/// `show spanning-tree`.
pub(crate) fn view(ctx: &Context) -> view::SpanningTree {
    let Some(spanning) = ctx.switch.spanning() else { return view::SpanningTree::default() };
    let (bridge, now) = (spanning.bridge(), ctx.clock.boot_ms());
    let watchdog = Some(ctx.view_watchdog(now));
    view::SpanningTree {
        watchdog,
        ..view::SpanningTree::of(bridge, now, &|port| ctx.port_name(port).to_string())
    }
}

/// See [`lanyard_cli::backend::SpanningTree::root_primary_priority`].
pub(crate) fn root_primary(ctx: &Context, key: TreeKey) -> Option<u16> {
    let usual = Some(24576);
    let Some(spanning) = ctx.switch.spanning() else { return usual };
    let bridge = spanning.bridge();
    let tree = bridge.view(ctx.clock.boot_ms()).into_iter().find(|tree| match key {
        TreeKey::Vlan(vlan) => match bridge.config().mode {
            Mode::Stp | Mode::Rstp => vlan == lanyard_types::VlanId::DEFAULT,
            _ => tree.vlan == Some(vlan),
        },
        TreeKey::Mst(mstid) => bridge.config().mode == Mode::Mst && tree.mstid == mstid,
    });
    tree.map_or(usual, |tree| bridge.root_primary_priority(tree.instance))
}

/// The port of `only`, if it takes part in spanning tree.
fn port(ctx: &Context, only: Option<&InterfaceName>) -> Result<Option<PortId>, Refusal> {
    let Some(name) = only else { return Ok(None) };
    let bridge = ctx.switch.spanning().map(|spanning| spanning.bridge());
    let port = ctx
        .port_of(name)
        .filter(|port| bridge.is_some_and(|bridge| bridge.config().ports.contains_key(port)));
    port.map(Some).ok_or_else(|| format!("{name} takes no part in spanning tree").into())
}

/// `clear spanning-tree counters`.
pub(crate) fn clear_bpdu_counters(ctx: &mut Context, only: Option<&InterfaceName>) -> Result<(), Refusal> {
    let port = port(ctx, only)?;
    if let Some(spanning) = ctx.switch.spanning_mut() {
        spanning.bridge_mut().clear_counters(port);
    }
    Ok(())
}

/// An event as JSON: `event`, `instance` if it concerns a tree, `interface` if it concerns a port,
/// and further keys.
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
