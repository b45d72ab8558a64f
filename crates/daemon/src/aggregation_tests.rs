//! Link aggregation of a whole switch, with a kernel and a plane in memory; the partner is `lanyard_lacp` itself.

use super::*;
use crate::testing::{Bench, config, messages};
use lanyard_cli::backend::{Aggregation, Configuration};
use lanyard_lacp::{Action, Lacp, PortConfig};
use lanyard_pipeline::state::CHANNEL_BUCKETS;
use lanyard_plane::Trapped;
use lanyard_types::{MacAddr, TrapReason};

const STATIC: &str = "interface eth1\n channel-group 1 mode on\ninterface eth2\n channel-group 1 mode on";
const LACP: &str =
    "interface eth1\n channel-group 1 mode active\ninterface eth2\n channel-group 1 mode active";

fn link(bench: &Bench, core: &mut Core, name: &str, up: bool) {
    let event = bench.kernel.change(name, |link| (link.admin_up, link.carrier) = (true, up));
    core.netdev_events(vec![event]);
}

/// A switch with ports eth1 and eth2 that have a link.
fn switch(text: &str) -> (Bench, Core) {
    let bench = Bench::new();
    let mut core = bench.core();
    for name in ["eth1", "eth2"] {
        bench.kernel.add(name);
        link(&bench, &mut core, name, true);
    }
    core.commit(config(text)).expect("taken");
    (bench, core)
}

fn port(core: &Core, name: &str) -> PortId {
    core.ctx.switch.ports().get(name).expect("a port")
}

/// The members that the plane has, and the numbers of their buckets.
fn members(bench: &Bench, core: &Core) -> Vec<(String, usize)> {
    let held = bench.plane.channels.lock().values().next().cloned().unwrap_or_default();
    let count = |port: PortId| held.buckets.iter().filter(|bucket| **bucket == port).count();
    held.collecting.iter().map(|port| (core.ctx.port_name(*port).to_string(), count(*port))).collect()
}

/// Whether the plane's port of the port-channel is enabled.
fn is_up(core: &Core) -> bool {
    core.ctx.plane.state().ports[&port(core, "port-channel1")].enabled
}

#[test]
fn static_members_follow_their_links() {
    let (bench, mut core) = switch(STATIC);
    let half = CHANNEL_BUCKETS / 2;
    assert_eq!(members(&bench, &core), [("eth1".into(), half), ("eth2".into(), half)]);
    assert!(is_up(&core));
    link(&bench, &mut core, "eth1", false);
    assert_eq!(members(&bench, &core), [("eth2".into(), CHANNEL_BUCKETS)]);
    assert!(is_up(&core));
    link(&bench, &mut core, "eth2", false);
    assert_eq!(members(&bench, &core), []);
    assert!(!is_up(&core));
    link(&bench, &mut core, "eth1", true);
    assert_eq!(members(&bench, &core), [("eth1".into(), CHANNEL_BUCKETS)]);
    assert!(is_up(&core));
    let log = messages(&core.ctx).join("\n");
    for text in
        ["BUNDLE: Interface eth1 joined", "UNBUNDLE: Interface eth2 left", "CHANNELDOWN: port-channel1"]
    {
        assert!(log.contains(text), "{text} in {log}");
    }
}

#[test]
fn a_port_that_leaves_is_an_ordinary_one() {
    let (bench, mut core) = switch(STATIC);
    let next = STATIC.replace("interface eth1\n channel-group 1 mode on", "interface eth1\n switchport");
    core.commit(config(&format!("{next}\ninterface port-channel 1\n switchport"))).expect("taken");
    assert_eq!(members(&bench, &core), [("eth2".into(), CHANNEL_BUCKETS)]);
    let state = core.ctx.plane.state().ports[&port(&core, "eth1")].clone();
    assert_eq!(state.aggregation, lanyard_pipeline::state::Aggregation::None);
    core.commit(config("interface eth1\n switchport\ninterface eth2\n switchport")).expect("taken");
    assert_eq!(members(&bench, &core), []);
}

#[test]
fn too_few_links_take_the_port_channel_down() {
    let text = format!("{STATIC}\ninterface port-channel 1\n port-channel min-links 2");
    let (bench, mut core) = switch(&text);
    assert!(is_up(&core));
    link(&bench, &mut core, "eth2", false);
    assert!(!is_up(&core) && members(&bench, &core).is_empty());
    link(&bench, &mut core, "eth2", true);
    assert!(is_up(&core));
}

/// Carries the frames between the switch and its partner until neither has one. Returns how many were carried.
fn talk(bench: &Bench, core: &mut Core, partner: &mut Lacp, now: u64) -> usize {
    let mut carried = 0;
    loop {
        let sent = std::mem::take(&mut *bench.plane.injected.lock());
        let mut answers = Vec::new();
        for (port, frame) in &sent {
            let _ = partner.handle_frame(now, *port, frame);
        }
        while let Some(action) = partner.poll_action() {
            if let Action::Send(port, frame) = action {
                answers.push(Trapped { port, reason: TrapReason::SlowProtocol, frame });
            }
        }
        if sent.is_empty() && answers.is_empty() {
            return carried;
        }
        carried += sent.len() + answers.len();
        bench.plane.trapped.lock().extend(answers);
        core.plane_events();
        core.protocol_reports();
    }
}

/// A partner with both ports in one channel.
fn partner(core: &Core) -> Lacp {
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let ports = ["eth1", "eth2"].map(|name| (port(core, name), PortConfig { mac, ..PortConfig::default() }));
    let mut partner = Lacp::new();
    let config = lanyard_lacp::Config {
        system: mac,
        system_priority: 32_768,
        ports: ports.into(),
        ..lanyard_lacp::Config::default()
    };
    partner.configure(0, config);
    ["eth1", "eth2"].iter().for_each(|name| partner.handle_link(0, port(core, name), true));
    partner
}

/// Runs switch and partner for some seconds.
fn pass(bench: &Bench, core: &mut Core, partner: &mut Lacp, from_ms: u64, seconds: u64) {
    for now in (from_ms..=from_ms + seconds * 1000).step_by(100) {
        bench.clock.set(now);
        core.tick();
        partner.handle_timer(now);
        talk(bench, core, partner, now);
    }
}

#[test]
fn lacp_bundles_with_a_partner_and_notices_its_silence() {
    let fast = LACP.replace("mode active", "mode active\n lacp rate fast");
    let (bench, mut core) = switch(&fast);
    let mut partner = partner(&core);
    assert_eq!(members(&bench, &core), [], "nothing is in use before the partner agrees");
    assert!(!is_up(&core));
    pass(&bench, &mut core, &mut partner, 0, 10);
    assert_eq!(members(&bench, &core).len(), 2);
    assert!(is_up(&core));
    let view = core.channels();
    let member = &view.channels[0].members[0];
    let lacp = member.lacp.as_ref().expect("LACP");
    assert_eq!((member.state, lacp.partner.system), ("bundled", MacAddr([2, 0, 0, 0, 0, 9])));
    assert!(lacp.received > 0 && lacp.sent > 0 && lacp.errors.is_empty(), "{lacp:?}");
    // Silence: after the short timeout the members leave.
    for now in (10_000..14_000).step_by(100) {
        bench.clock.set(now);
        core.tick();
    }
    assert_eq!(members(&bench, &core), []);
    assert!(!is_up(&core));
}

/// A BPDU that a member receives belongs to the port-channel; one that arrives at a member that does not collect
/// belongs to no port.
#[test]
fn bpdus_belong_to_the_port_channel() {
    let (bench, mut core) = switch(&format!("spanning-tree mode rstp\n{STATIC}"));
    let channel = port(&core, "port-channel1");
    let trees = core.ctx.protocols.with(|engine| {
        engine
            .trees
            .spanning()
            .map(|spanning| spanning.bridge().config().ports.keys().copied().collect::<Vec<_>>())
    });
    assert_eq!(trees, Some(vec![channel]), "members take no part themselves");
    let (eth1, eth2) = (port(&core, "eth1"), port(&core, "eth2"));
    let owner = |core: &Core, port| core.ctx.protocols.with(move |engine| engine.aggregation.owner(port));
    assert_eq!((owner(&core, eth1), owner(&core, eth2)), (Some(channel), Some(channel)));
    link(&bench, &mut core, "eth2", false);
    assert_eq!((owner(&core, eth1), owner(&core, eth2)), (Some(channel), None));
}

/// A new daemon continues with the members of the last one: the plane gets no change, and the partner notices
/// none.
#[test]
fn a_restart_continues_with_the_snapshot() {
    let (bench, mut core) = switch(LACP);
    let mut partner = partner(&core);
    let keeper = || crate::protocols::keeper::of_aggregation(&bench.paths());
    let first = keeper();
    core.ctx.protocols.with(move |engine| engine.aggregation.resume(first, None));
    pass(&bench, &mut core, &mut partner, 0, 10);
    assert_eq!(members(&bench, &core).len(), 2);
    let before = bench.plane.channels.lock().clone();
    drop(core);
    bench.plane.injected.lock().clear();
    let found = crate::protocols::keeper::found_aggregation(&bench.paths());
    assert!(found.is_some(), "saved");
    let mut core = bench.core();
    let next = keeper();
    core.ctx.protocols.with(move |engine| engine.aggregation.resume(next, found));
    core.commit(config(LACP)).expect("taken");
    assert_eq!(*bench.plane.channels.lock(), before);
    assert!(is_up(&core), "at once");
    for now in (10_000..20_000).step_by(100) {
        bench.clock.set(now);
        core.tick();
        partner.handle_timer(now);
        talk(&bench, &mut core, &mut partner, now);
        assert_eq!(*bench.plane.channels.lock(), before, "at {now} ms");
    }
}

/// The protocol thread learns of a lost link before management does, and management's other work does not restore
/// the member.
#[test]
fn a_lost_link_removes_its_member_before_management_handles_it() {
    let (bench, mut core) = switch(STATIC);
    let (eth1, eth2) = (port(&core, "eth1"), port(&core, "eth2"));
    let half = CHANNEL_BUCKETS / 2;
    let lose = |core: &Core, port, up| {
        core.ctx.protocols.change(move |engine| {
            let (aggregation, mut io) = engine.aggregation_and_io();
            aggregation.handle_link(&mut io, port, up);
        });
    };
    lose(&core, eth1, false);
    assert_eq!(members(&bench, &core), [("eth2".into(), CHANNEL_BUCKETS)]);
    core.protocol_reports();
    core.settle();
    assert_eq!(members(&bench, &core), [("eth2".into(), CHANNEL_BUCKETS)]);
    // The link comes back without an event to management, or management gets the events of loss and return
    // together.
    lose(&core, eth1, true);
    assert_eq!(members(&bench, &core), [("eth1".into(), half), ("eth2".into(), half)]);
    lose(&core, eth1, false);
    link(&bench, &mut core, "eth1", false);
    lose(&core, eth1, true);
    assert_eq!(members(&bench, &core), [("eth2".into(), CHANNEL_BUCKETS)], "management knows of no link");
    link(&bench, &mut core, "eth1", true);
    assert_eq!(members(&bench, &core), [("eth1".into(), half), ("eth2".into(), half)]);
    // Link aggregation ignores the link of a port that is not a member.
    core.commit(config("interface eth1\n switchport\ninterface eth2\n channel-group 1 mode on"))
        .expect("taken");
    lose(&core, eth1, false);
    lose(&core, eth2, false);
    assert_eq!(members(&bench, &core), []);
}
