//! The part of spanning tree on the management thread: passes links and configuration to the protocol thread,
//! and handles its reports: log messages and events. The trees are in
//! [`crate::protocols::trees`].
//!
//! Invariant: the switch's copy of the bridge ([`lanyard_switch::Switch::spanning`]) is updated before any
//! decision uses it.

use crate::context::Context;
use crate::kernel::Kernel;
use crate::protocols::work::{Report, Reports};
use lanyard_cli::backend::Refusal;
use lanyard_cli::view::{self, EventKind, TreeKey};
use lanyard_config::InterfaceName;
use lanyard_config::names::channel_of;
use lanyard_stp::view::stp_state_name;
use lanyard_stp::{Duplex, Event, Mode};
use lanyard_switch::spanning::Reconfigure;
use lanyard_switch::{Plan, Switch};
use lanyard_types::{ChannelId, ErrCause, InstanceId, PortId};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Updates the copy of the bridge.
pub(crate) fn refresh(ctx: &mut Context) {
    let running = ctx.protocols.with(|engine| engine.trees.spanning().cloned());
    ctx.switch.set_spanning(running);
}

/// Passes the links that have changed to spanning tree. When this returns, the plane has the resulting
/// states.
pub(crate) fn links(ctx: &mut Context) {
    refresh(ctx);
    let Context { switch, kernel, .. } = ctx;
    let changes = switch.unreported_links(&mut |name| {
        if let Some(channel) = channel_of(name) {
            return (speed_of(switch, &**kernel, channel), Duplex::Full);
        }
        let settings = kernel.settings(name).unwrap_or_default();
        let half = settings.duplex == Some(lanyard_netdev::Duplex::Half);
        (settings.speed_mbps, if half { Duplex::Half } else { Duplex::Full })
    });
    if !changes.is_empty() {
        ctx.protocols.change(move |engine| {
            let now = engine.now();
            engine.trees.links(now, &changes);
        });
        refresh(ctx);
    }
}

/// The speed of a port-channel in Mbit/s: the sum of its members' speeds; `None` while none is known.
pub(crate) fn channel_speed(ctx: &Context, channel: ChannelId) -> Option<u32> {
    speed_of(&ctx.switch, &*ctx.kernel, channel)
}

fn speed_of(switch: &Switch, kernel: &dyn Kernel, channel: ChannelId) -> Option<u32> {
    let up = switch.config().members(channel).map(|(name, _)| name.to_string());
    let speed =
        |name: String| kernel.settings(&name).ok().filter(|_| switch.facts().forwards(&name))?.speed_mbps;
    up.filter_map(speed).reduce(u32::saturating_add)
}

/// Begins a commit: until [`take`] or [`release`] no port forwards that the planned bridge does not
/// let forward.
pub(crate) fn hold(ctx: &Context, plan: &Plan) {
    let to_come = plan.spanning.as_ref().map(|spanning| spanning.decided());
    ctx.protocols.with(|engine| {
        let (trees, mut io) = engine.trees_and_io();
        trees.hold(&mut io, to_come);
    });
}

/// Ends a commit that failed.
pub(crate) fn release(ctx: &Context) {
    ctx.protocols.with(|engine| {
        let (trees, mut io) = engine.trees_and_io();
        trees.release(&mut io);
    });
}

/// Ends a commit that succeeded: the bridge takes the new settings.
pub(crate) fn take(ctx: &mut Context, change: Reconfigure) {
    let taken = ctx.protocols.change(move |engine| {
        let now = engine.now();
        engine.trees.take(now, &change)
    });
    refresh(ctx);
    if let Err(reason) = taken {
        // A bridge that refuses new settings keeps its own; without one before, there is none now.
        let text = match ctx.switch.spanning() {
            Some(kept) => format!(
                "the bridge refused new settings of spanning tree and continues in mode {} with the previous ones: {reason}",
                kept.bridge().config().mode.name()
            ),
            None => format!("the bridge refused the settings of spanning tree, which remains off: {reason}"),
        };
        ctx.log("SPANTREE", 2, "CONFIG", &text);
    }
}

/// Ends the bridge, because the plane is being removed.
pub(crate) fn end(ctx: &Context) {
    ctx.protocols.with(|engine| {
        let (trees, mut io) = engine.trees_and_io();
        trees.end(&mut io);
    });
}

/// Logs the reports of spanning tree. Returns the ports that a guard has shut down, or, with `None`, no longer holds
/// down; the copy of the bridge is up to date then.
pub(crate) fn handle(ctx: &mut Context, reports: Reports) -> BTreeMap<PortId, Option<ErrCause>> {
    for report in reports.waiting {
        announce(ctx, &report);
    }
    if reports.lost > 0 {
        let text = format!("{} messages of protocols were lost: too many came at once", reports.lost);
        ctx.log("SYS", 4, "LOST", &text);
    }
    if !reports.ports.is_empty() {
        refresh(ctx);
    }
    reports.ports
}

/// `clear spanning-tree detected-protocols`.
pub(crate) fn clear_protocols(ctx: &mut Context, only: Option<&InterfaceName>) -> Result<(), Refusal> {
    let port = port(ctx, only)?;
    ctx.protocols.change(move |engine| {
        let now = engine.now();
        if let Some(bridge) = engine.trees.bridge_mut() {
            bridge.handle_mcheck(now, port);
        }
    });
    Ok(())
}

fn announce(ctx: &mut Context, report: &Report) {
    match report {
        Report::Tree { event, mode, mstid } => announce_event(ctx, event, *mode, *mstid),
        // `Core::protocol_reports` passes these to their own modules.
        Report::Discovery(_)
        | Report::Snooping(_)
        | Report::Guard(_)
        | Report::Access(_)
        | Report::Aggregation(_)
        | Report::ChannelRefused(..) => {}
        Report::Expired(ports) => {
            let names: Vec<String> = ports.iter().map(|port| ctx.port_name(*port).to_string()).collect();
            let text = format!(
                "no BPDU was sent for three hello times: the watchdog blocked {}; the ports start again as if their links had come up",
                names.join(", ")
            );
            ctx.log("SPANTREE", 2, "WATCHDOG", &text);
        }
        Report::Refused(reason) => {
            let text = format!(
                "the plane refused a port's state, and no BPDU is sent until it accepts it: {reason}"
            );
            ctx.log("SPANTREE", 2, "PLANE", &text);
        }
        Report::Unwatched(reason) => {
            let text = format!("ports would continue to forward without a daemon: {reason}");
            ctx.log("SPANTREE", 2, "WATCHDOG", &text);
        }
        Report::NotKept { facility, reason } => ctx.log(facility, 3, "SNAPSHOT", reason),
    }
}

fn announce_event(ctx: &mut Context, event: &Event, mode: Mode, mstid: u16) {
    let name = |port: PortId| ctx.port_name(port).to_string();
    let mstid = |_: InstanceId| mstid;
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
    let names = ctx.port_names().to_vec();
    ctx.protocols.with(move |engine| {
        let name = |port: PortId| {
            names
                .get(port.index())
                .cloned()
                .flatten()
                .map_or_else(|| format!("port{port}"), |name| name.to_string())
        };
        engine.trees.view(engine.now(), &name)
    })
}

/// See [`lanyard_cli::backend::SpanningTree::root_primary_priority`].
pub(crate) fn root_primary(ctx: &Context, key: TreeKey) -> Option<u16> {
    ctx.protocols.with(move |engine| engine.trees.root_primary(engine.now(), key))
}

/// The port of the interface `only`, if it is given; refused if the interface takes no part in spanning tree.
fn port(ctx: &Context, only: Option<&InterfaceName>) -> Result<Option<PortId>, Refusal> {
    let Some(name) = only else { return Ok(None) };
    let bridge = ctx.switch.spanning().map(|spanning| spanning.bridge());
    let port = ctx
        .port_of(name)
        .filter(|port| bridge.is_some_and(|bridge| bridge.config().ports.contains_key(port)));
    port.map(Some).ok_or_else(|| format!("{name} takes no part in spanning tree").into())
}

/// `clear spanning-tree counters`.
pub(crate) fn clear_bpdu_counters(ctx: &Context, only: Option<&InterfaceName>) -> Result<(), Refusal> {
    let port = port(ctx, only)?;
    ctx.protocols.with(move |engine| {
        if let Some(bridge) = engine.trees.bridge_mut() {
            bridge.clear_counters(port);
        }
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::Topics;
    use crate::core::Core;
    use crate::testing::{Bench, World, config, messages, received};
    use lanyard_cli::backend::Configuration;
    use lanyard_stp::{BpduError, BridgeId, Role};
    use lanyard_switch::facts::LinkMode;
    use lanyard_types::{MacAddr, StpState, VlanId, VlanSet};

    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).expect("a VLAN")
    }

    /// A switch with these ports, whose links are up, each with its speed in Mbit/s and true for full duplex.
    fn switch(ports: &[(&str, u32, bool)], text: &str) -> (Bench, Core) {
        let bench = Bench::new();
        let mut core = bench.core();
        for (name, speed_mbps, full_duplex) in ports {
            bench.kernel.add(name);
            let mode = LinkMode::Fixed { speed_mbps: *speed_mbps, full_duplex: *full_duplex };
            bench.kernel.state().modes.insert((*name).into(), mode);
            let event = bench.kernel.change(name, |link| (link.admin_up, link.carrier) = (true, true));
            core.netdev_events(vec![event]);
        }
        core.commit(config(text)).expect("taken");
        (bench, core)
    }

    #[test]
    fn reports_make_log_lines() {
        let text = "interface eth1\n switchport\ninterface eth2\n switchport";
        let (_bench, mut core) = switch(&[("eth1", 1000, true), ("eth2", 1000, true)], text);
        let ctx = &mut core.ctx;
        let [one, two] = ["eth1", "eth2"].map(|name| ctx.switch.ports().get(name).expect("a port"));
        let instance = InstanceId::default();
        let tree = |event, mode, mstid| Report::Tree { event, mode, mstid };
        let guard = Event::RootGuard { instance, vlan: Some(vlan(10)), port: one, blocked: true };
        let change = Event::TopologyChange { instance, vlan: None, port: one, detected: true };
        let role = Event::Role { instance, vlan: None, port: one, role: Role::Root };
        for (report, want) in [
            (
                Report::Expired(vec![one, two]),
                "%SPANTREE-2-WATCHDOG: no BPDU was sent for three hello times: the watchdog blocked eth1, eth2; \
                 the ports start again as if their links had come up",
            ),
            (
                Report::Refused("no space".into()),
                "%SPANTREE-2-PLANE: the plane refused a port's state, and no BPDU is sent until it accepts it: no space",
            ),
            (
                Report::Unwatched("no timer".into()),
                "%SPANTREE-2-WATCHDOG: ports would continue to forward without a daemon: no timer",
            ),
            (Report::NotKept { facility: "LACP", reason: "disk full".into() }, "%LACP-3-SNAPSHOT: disk full"),
            (
                tree(guard, Mode::RapidPvst, 0),
                "%SPANTREE-2-ROOTGUARD_BLOCK: Root guard blocking port eth1 on VLAN0010.",
            ),
            (tree(change, Mode::Mst, 7), "%SPANTREE-5-TOPOTRAP: Topology Change Trap for MST7"),
            // Roles are events without a line.
            (tree(role, Mode::Rstp, 0), ""),
        ] {
            let old = ctx.log.view().messages.len();
            let reports = Reports { waiting: [report].into(), ..Reports::default() };
            assert!(handle(ctx, reports).is_empty());
            let new = ctx.log.view().messages.into_iter().skip(old);
            let lines: Vec<String> = new
                .map(|line| format!("%{}-{}-{}: {}", line.facility, line.severity, line.mnemonic, line.text))
                .collect();
            assert_eq!(lines.join("\n"), want);
        }
        let shut = BTreeMap::from([(one, Some(ErrCause::BpduGuard)), (two, None)]);
        let reports = Reports { lost: 3, ports: shut.clone(), ..Reports::default() };
        assert_eq!(handle(ctx, reports), shut);
        let lost = "LOST: 3 messages of protocols were lost: too many came at once";
        assert_eq!(messages(ctx).last().map(String::as_str), Some(lost));
    }

    /// Programs read these keys: docs/cli/json.md lists them.
    #[test]
    fn events_have_the_keys_of_their_kind() {
        let (instance, port) = (InstanceId::new(2).expect("an instance"), PortId::new(3).expect("a port"));
        let (ten, none) = (Some(vlan(10)), None);
        let root = BridgeId::new(4096, 10, MacAddr([2, 0, 0, 0, 0, 9]));
        let root_id = "4106.02:00:00:00:00:09";
        let of_port =
            |event: &str, instance: u16| json!({"event": event, "instance": instance, "interface": "eth3"});
        let with = |mut value: Value, key: &str, to: Value| {
            value[key] = to;
            value
        };
        for (event, want) in [
            (
                Event::Role { instance, vlan: none, port, role: Role::Root },
                with(of_port("role", 7), "role", json!("root")),
            ),
            (
                Event::State { instance, vlan: ten, port, state: StpState::Learning },
                with(of_port("state", 10), "state", json!("learning")),
            ),
            (
                Event::RootChanged { instance, vlan: ten, root, port: Some(port) },
                with(of_port("root", 10), "root_id", json!(root_id)),
            ),
            (
                Event::RootChanged { instance, vlan: none, root, port: None },
                json!({"event": "root", "instance": 7, "interface": null, "root_id": root_id}),
            ),
            (
                Event::TopologyChange { instance, vlan: none, port, detected: false },
                with(of_port("topology_change", 7), "detected", json!(false)),
            ),
            (Event::Edge { vlan: none, port, edge: true }, with(of_port("edge", 0), "edge", json!(true))),
            (
                Event::Migrated { vlan: ten, port, to_stp: true },
                with(of_port("migrated", 10), "protocol", json!("stp")),
            ),
            (
                Event::Migrated { vlan: none, port, to_stp: false },
                with(of_port("migrated", 0), "protocol", json!("mst")),
            ),
            (Event::Disputed { instance, vlan: none, port }, of_port("disputed", 7)),
            (
                Event::SelfLoop { vlan: none, port, blocked: true },
                with(of_port("self_loop", 0), "blocked", json!(true)),
            ),
            (
                Event::RootGuard { instance, vlan: ten, port, blocked: false },
                with(of_port("root_guard", 10), "blocked", json!(false)),
            ),
            (
                Event::LoopGuard { instance, vlan: none, port, blocked: true },
                with(of_port("loop_guard", 7), "blocked", json!(true)),
            ),
            (
                Event::PvidMismatch { vlan: vlan(10), peer: vlan(20), port },
                with(of_port("pvid_mismatch", 10), "peer_vlan", json!(20)),
            ),
            (Event::TypeMismatch { vlan: vlan(10), port }, of_port("type_mismatch", 10)),
            (Event::Consistent { vlan: vlan(10), port }, of_port("consistent", 10)),
            (
                Event::PvstSimFail { vlan: vlan(10), port, root, superior: true },
                with(of_port("pvst_simulation_failed", 10), "root_id", json!(root_id)),
            ),
            (Event::PvstSimOk { port }, json!({"event": "pvst_simulation_ok", "interface": "eth3"})),
            (
                Event::Rejected { port, error: BpduError::ProtocolId },
                json!({"event": "rejected", "interface": "eth3", "reason": "protocol_id"}),
            ),
            (
                Event::ErrDisabled { port, cause: ErrCause::BpduGuard },
                json!({"event": "err_disabled", "interface": "eth3", "cause": "bpduguard"}),
            ),
            (
                Event::Recovering { port, cause: ErrCause::BpduGuard },
                json!({"event": "recovering", "interface": "eth3", "cause": "bpduguard"}),
            ),
            (Event::NotSettled { vlan: ten }, json!({"event": "not_settled", "instance": 10})),
        ] {
            let got = details(&event, Mode::Mst, &|port| format!("eth{port}"), &|_| 7);
            assert_eq!(Value::Object(got), want);
        }
        let mut world = World::new();
        let mut listener = world.ctx.bus.subscribe(Topics::Events([EventKind::Stp].into())).expect("room");
        announce_event(&mut world.ctx, &Event::PvstSimOk { port }, Mode::Mst, 0);
        let events = received(&mut listener);
        assert_eq!(events.len(), 1);
        let (kind, action, event) = (&events[0]["type"], &events[0]["action"], &events[0]["event"]);
        assert_eq!((kind, action, event), (&json!("stp"), &json!("change"), &json!("pvst_simulation_ok")));
    }

    /// The speed of a port-channel is the sum of those of its members that forward.
    #[test]
    fn links_are_reported_with_speed_and_duplex() {
        let ports = [("eth1", 1000, true), ("eth2", 100, false), ("eth3", 1000, true), ("eth4", 100, true)];
        let text = "spanning-tree mode rstp\nspanning-tree pathcost method long\ninterface eth1\n switchport\n\
            interface eth2\n switchport\ninterface eth3\n channel-group 1 mode on\n\
            interface eth4\n channel-group 1 mode on\ninterface port-channel 1\n switchport";
        let (_bench, core) = switch(&ports, text);
        let shown = view(&core.ctx).instances.remove(0).ports;
        let costs: Vec<_> =
            shown.iter().map(|port| (&*port.interface, port.cost, port.detail.point_to_point)).collect();
        let want =
            [("eth1", 20_000, true), ("eth2", 200_000, false), ("port-channel1", 20_000_000 / 1100, true)];
        assert_eq!(costs, want);
        let channel = ChannelId::new(1).expect("a port-channel");
        assert_eq!(channel_speed(&core.ctx, channel), Some(1100));
        assert_eq!(channel_speed(&core.ctx, ChannelId::new(2).expect("a port-channel")), None);
    }

    #[test]
    fn settings_that_the_bridge_refuses_are_logged() {
        let mut world = World::new();
        let good = lanyard_stp::Config::new(Mode::Rstp, MacAddr([2, 0, 0, 0, 0, 0]));
        let bad = lanyard_stp::Config { mode: Mode::Stp, hello_time_s: 11, ..good.clone() };
        let change =
            |wanted| Reconfigure { wanted: Some(wanted), cleared: Vec::new(), vlans: VlanSet::EMPTY };
        take(&mut world.ctx, change(bad.clone()));
        let off = "CONFIG: the bridge refused the settings of spanning tree, which remains off: hello-time 11 is not 1 to 10";
        assert_eq!(messages(&world.ctx), [off]);
        assert!(view(&world.ctx).mode.is_none() && world.ctx.switch.spanning().is_none());
        take(&mut world.ctx, change(good.clone()));
        take(&mut world.ctx, change(bad));
        let kept = "CONFIG: the bridge refused new settings of spanning tree and continues in mode rstp with the previous ones: \
            hello-time 11 is not 1 to 10";
        assert_eq!(messages(&world.ctx), [off, kept]);
        assert_eq!(world.ctx.switch.spanning().map(|kept| kept.bridge().config()), Some(&good));
    }
}
