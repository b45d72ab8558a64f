//! Commit, undo, restart, detach and link changes of a whole switch, with a kernel and a plane in
//! memory.

use super::*;
use crate::testing::{Bench, FakeNotification, config, messages, route};
use lanyard_netdev::{Event, Link, Neighbour, NeighbourState};
use lanyard_plane::{ChipSettings, ControlPath};
use lanyard_switch::facts::{HostStack, Knob, LinkMode};
use lanyard_types::MacAddr;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const BEFORE: &str = "vlan 10\ninterface eth1\n switchport\n switchport access vlan 10";
pub(super) const AFTER: &str = "vlan 10\nvlan 20\nip routing\ninterface eth1\n switchport\n switchport access vlan 20\n mtu 1600\n\
    interface eth2\n switchport\n switchport mode trunk\ninterface eth3\n no switchport\n ip address 10.3.0.1 255.255.255.0\n\
    interface vlan 10\n ip address 10.0.0.1 255.255.255.0\ninterface vlan 20\n ip address 10.2.0.1 255.255.255.0";

/// Everything that must be unchanged after a refused change.
#[derive(Debug, PartialEq)]
pub(super) struct Picture {
    kernel: KernelPicture,
    plane: PlaneState,
    config: Config,
    record: Option<Record>,
}

/// The kernel's part of a [`Picture`].
#[derive(Debug, PartialEq)]
pub(super) struct KernelPicture {
    links: BTreeMap<(Option<String>, String), Link>,
    hosts: BTreeMap<String, HostStack>,
    addresses: BTreeSet<(String, ipnet::IpNet)>,
    namespaces: BTreeMap<String, String>,
    knobs: BTreeMap<(Option<String>, Knob), bool>,
    modes: BTreeMap<String, LinkMode>,
    routes: Vec<String>,
}

pub(super) fn kernel_picture(bench: &Bench) -> KernelPicture {
    let state = bench.kernel.state();
    let touched = |host: &HostStack| *host != HostStack::default();
    let changed = |(_, knob): &(Option<String>, Knob), on: &bool| *on != (*knob == Knob::Redirects);
    let mut routes: Vec<String> = state
        .routes
        .iter()
        .flat_map(|(vrf, list)| list.iter().map(move |r| format!("{vrf:?} {r:?}")))
        .collect();
    routes.sort();
    KernelPicture {
        links: state.links.clone(),
        hosts: state.hosts.clone().into_iter().filter(|(_, host)| touched(host)).collect(),
        addresses: state.addresses.clone(),
        namespaces: state.namespaces.clone(),
        knobs: state.knobs.clone().into_iter().filter(|(knob, on)| changed(knob, on)).collect(),
        modes: state.modes.clone(),
        routes,
    }
}

impl Picture {
    pub(super) const fn kernel(&self) -> &KernelPicture {
        &self.kernel
    }
}

pub(super) fn picture(bench: &Bench, core: &Core) -> Picture {
    let record = std::fs::read(bench.paths().record()).ok();
    Picture {
        kernel: kernel_picture(bench),
        plane: core.ctx.plane.state().clone(),
        config: core.ctx.switch.config().clone(),
        record: record.map(|text| serde_json::from_slice(&text).expect("a record")),
    }
}

/// A switch with three netdevs that runs `text`. The first does not negotiate its speed.
pub(super) fn running(text: &str) -> (Bench, Core) {
    let bench = Bench::new();
    for name in ["eth1", "eth2", "eth3"] {
        bench.kernel.add(name);
    }
    bench.kernel.state().modes.insert("eth1".into(), LinkMode::Fixed { speed_mbps: 10, full_duplex: false });
    let mut core = bench.core();
    core.take(config(text)).expect("taken");
    (bench, core)
}

#[test]
fn a_fault_at_each_step_leaves_the_switch_as_it_was() {
    let (_, core) = running(BEFORE);
    let steps = core.ctx.switch.plan(0, config(AFTER)).expect("a plan").actions.before.len();
    assert!(steps > 8, "{steps} steps");
    for step in 1..=steps {
        let (bench, mut core) = running(BEFORE);
        let before = picture(&bench, &core);
        bench.kernel.state().fail_at = Some(step);
        let error = core.take(config(AFTER)).expect_err("refused");
        assert!(matches!(error, CommitError::Netdevs(_)), "step {step}: {error:?}");
        assert!(error.to_string().contains("the fault of the test: refused"), "step {step}: {error}");
        assert_eq!(picture(&bench, &core), before, "step {step}");
        core.take(config(AFTER)).expect("taken, once nothing fails");
    }
}

#[test]
fn the_first_commit_replaces_the_chip_settings_of_an_earlier_daemon() {
    let bench = Bench::new();
    let kept = ChipSettings { control_path: ControlPath::Tun, ..ChipSettings::default() };
    *bench.plane.chip.lock() = Some(kept.clone());
    let mut core = bench.core();
    core.take(config("vlan 10")).expect("taken");
    assert_eq!(*bench.plane.chip.lock(), Some(ChipSettings::default()));
    core.take(config("platform control-path tun")).expect("taken");
    assert_eq!(*bench.plane.chip.lock(), Some(kept));
}

#[test]
fn a_state_that_the_plane_refuses_is_undone() {
    let (bench, mut core) = running(BEFORE);
    let before = picture(&bench, &core);
    *bench.plane.refused_port.lock() = Some("eth2".into());
    let error = core.take(config(AFTER)).expect_err("refused");
    assert!(matches!(&error, CommitError::Port { interface, .. } if interface == "eth2"), "{error:?}");
    assert_eq!(picture(&bench, &core), before);
}

#[test]
fn a_port_that_the_plane_refuses_later_is_left_out() {
    let (bench, mut core) = running(AFTER);
    bench.kernel.state().links.remove(&(None, "eth2".into()));
    core.netdev_events(vec![Event::LinkGone { ifindex: 2, name: "eth2".into() }]);
    let index = bench.kernel.add("eth2");
    *bench.plane.refused_port.lock() = Some("eth2".into());
    let came = bench.kernel.change("eth2", |_| {});
    core.netdev_events(vec![came]);
    let port = |core: &Core, name: &str| {
        core.ctx.plane.state().ports.values().find(|port| port.name == name).map(|p| (p.ifindex, p.enabled))
    };
    assert_eq!(port(&core, "eth2"), Some((0, false)));
    assert_eq!(port(&core, "eth1"), Some((1, true)));
    assert_eq!(core.ports.faults["eth2"], "eth2 is refused by the test");
    assert!(
        messages(&core.ctx)
            .contains(&"PORT: Interface eth2 does not forward: eth2 is refused by the test".into())
    );
    *bench.plane.refused_port.lock() = None;
    core.settle();
    assert_eq!(port(&core, "eth2"), Some((index, true)));
    assert!(core.ports.faults.is_empty());
}

#[test]
fn links_that_flap_disable_and_enable_their_port() {
    let (bench, mut core) = running(BEFORE);
    let enabled = |core: &Core| core.ctx.plane.state().ports.values().any(|port| port.enabled);
    assert!(enabled(&core));
    for _ in 0..3 {
        for carrier in [false, true] {
            let event = bench.kernel.change("eth1", |link| link.carrier = carrier);
            core.netdev_events(vec![event]);
            assert_eq!(enabled(&core), carrier);
            let state = if carrier { "up" } else { "down" };
            let last = messages(&core.ctx).pop();
            assert_eq!(last, Some(format!("UPDOWN: Interface eth1, changed state to {state}")));
        }
    }
}

/// `no logging event link-status` affects only the log.
#[test]
fn links_that_are_not_logged() {
    let (bench, mut core) = running(&format!("{BEFORE}\ninterface eth1\n no logging event link-status\n"));
    let before = messages(&core.ctx).len();
    core.netdev_events(vec![bench.kernel.change("eth1", |link| link.carrier = false)]);
    assert!(core.ctx.plane.state().ports.values().all(|port| port.name != "eth1" || !port.enabled));
    assert_eq!(messages(&core.ctx).split_off(before), Vec::<String>::new());
}

#[test]
fn a_netdev_that_comes_back_is_a_port_again() {
    let (bench, mut core) = running(BEFORE);
    let old = bench.kernel.get("eth1");
    bench.kernel.state().links.remove(&(None, "eth1".into()));
    core.netdev_events(vec![Event::LinkGone { ifindex: old.ifindex, name: "eth1".into() }]);
    assert!(core.ctx.plane.state().ports.values().all(|port| port.ifindex == 0 && !port.enabled));
    let index = bench.kernel.add("eth1");
    bench.kernel.state().fail_at = Some(1);
    core.netdev_events(vec![bench.kernel.change("eth1", |_| {})]);
    assert!(!bench.kernel.get("eth1").admin_up, "the first attempt failed");
    core.netdev_events(vec![bench.kernel.change("eth1", |_| {})]);
    assert!(bench.kernel.get("eth1").admin_up, "tried again at the next event");
    let ports: Vec<_> = core.ctx.plane.state().ports.values().map(|p| (p.ifindex, p.enabled)).collect();
    assert_eq!(ports, [(index, true)]);
}

/// A command may read all facts again between the kernel's event and its handling.
#[test]
fn a_netdev_that_the_facts_have_before_its_event_is_a_port_again() {
    let (bench, mut core) = running(BEFORE);
    let old = bench.kernel.get("eth1");
    bench.kernel.state().links.remove(&(None, "eth1".into()));
    let index = bench.kernel.add("eth1");
    let came = bench.kernel.change("eth1", |_| {});
    core.netdev_events(vec![Event::LinkGone { ifindex: old.ifindex, name: "eth1".into() }]);
    core.ctx.refresh();
    core.netdev_events(vec![came]);
    assert!(bench.kernel.get("eth1").admin_up);
    let ports: Vec<_> = core.ctx.plane.state().ports.values().map(|p| (p.ifindex, p.enabled)).collect();
    assert_eq!(ports, [(index, true)]);
}

#[test]
fn a_vlan_interface_that_was_deleted_by_hand_is_made_again() {
    let (bench, mut core) = running(AFTER);
    let gone: Vec<u32> = ["vlan10", "ly10"].map(|name| bench.kernel.get(name).ifindex).into();
    bench.kernel.state().links.retain(|(_, name), _| !["vlan10", "ly10"].contains(&name.as_str()));
    let gone = gone.into_iter().map(|ifindex| Event::LinkGone { ifindex, name: String::new() });
    core.netdev_events(gone.collect());
    assert!(bench.kernel.get("vlan10").admin_up);
    assert!(bench.kernel.state().addresses.iter().any(|(name, _)| name == "vlan10"));
}

#[test]
fn a_restart_changes_no_netdev() {
    let (bench, core) = running(AFTER);
    drop(core);
    bench.kernel.state().done.clear();
    let mut core = bench.core();
    core.take(config(AFTER)).expect("taken");
    let done = bench.kernel.state().done.clone();
    let harmless = |action: &Action| matches!(action, Action::Address { add: true, .. });
    assert!(done.iter().all(harmless), "{done:?}");
}

#[test]
fn detach_puts_everything_back() {
    let bench = Bench::new();
    for name in ["eth1", "eth2", "eth3"] {
        bench.kernel.add(name);
    }
    let found = bench.kernel.state().links.clone();
    let mut core = bench.core();
    core.take(config(&format!("{AFTER}\nip route 10.9.0.0 255.255.0.0 10.0.0.9"))).expect("taken");
    assert_ne!(bench.kernel.state().links, found);
    assert_eq!(bench.kernel.state().routes[&None].len(), 1);
    core.detach().expect("undone");
    assert_eq!(bench.kernel.state().links, found);
    assert_eq!(bench.kernel.state().routes[&None].len(), 0);
    assert!(!bench.paths().record().exists());
    assert!(matches!(core.take(config(BEFORE)), Err(CommitError::Detached)));
}

#[test]
fn routes_of_the_kernel_are_in_the_plane_while_it_has_them() {
    let (bench, mut core) =
        running("ip routing\ninterface eth1\n no switchport\n ip address 10.0.0.1 255.255.255.0");
    let follow = |core: &mut Core| {
        let turns = (0..100).take_while(|_| core.routing_turn()).count();
        assert!(turns < 100, "it comes to an end");
    };
    let target = |core: &mut Core| {
        let found = core.ctx.plane.route_lookup(lanyard_types::VrfId::DEFAULT, [10, 9, 1, 1].into());
        found.target.map(|target| format!("{target:?}")).unwrap_or_default()
    };
    follow(&mut core);
    assert!(!core.following.syncs(), "the tables have been listed once");
    bench.kernel.say(FakeNotification::Link(Box::new(bench.kernel.get("eth1"))));
    bench.kernel.say(FakeNotification::Neighbour(Neighbour {
        ifindex: 1,
        addr: [10, 0, 0, 9].into(),
        mac: Some(MacAddr([2, 0, 0, 0, 0, 9])),
        state: NeighbourState::Reachable,
        router: false,
        proxy: false,
    }));
    bench.kernel.say(FakeNotification::Route(route("10.9.0.0/16", &[[10, 0, 0, 9]], 1), false));
    follow(&mut core);
    assert!(target(&mut core).starts_with("Group"), "{}", target(&mut core));
    bench.kernel.say(FakeNotification::Route(route("10.9.0.0/16", &[[10, 0, 0, 9]], 1), true));
    follow(&mut core);
    assert!(!target(&mut core).starts_with("Group"), "{}", target(&mut core));
}

#[test]
fn hellos_leave_by_ports_that_have_a_link() {
    let (bench, mut core) =
        running("spanning-tree mode rstp\ninterface eth1\n switchport\ninterface eth2\n switchport");
    let hellos =
        |bench: &Bench| bench.plane.injected.lock().drain(..).map(|(port, _)| port).collect::<BTreeSet<_>>();
    assert_eq!(hellos(&bench).len(), 2);
    let at_ms = core.ctx.protocols.next_ms().expect("a timer runs");
    bench.clock.set(at_ms.max(2000));
    core.tick();
    assert_eq!(hellos(&bench).len(), 2);
    core.netdev_events(vec![bench.kernel.change("eth2", |link| link.carrier = false)]);
    hellos(&bench);
    bench.clock.set(at_ms.max(2000) + 2000);
    core.tick();
    assert_eq!(hellos(&bench).len(), 1, "a port without a link sends none");
    assert!(bench.paths().run.join("spanning-tree.json").exists(), "a restart goes on from here");
}
