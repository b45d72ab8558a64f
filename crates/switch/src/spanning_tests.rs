//! Two switches in simulated time, whose frames are passed from one to the other.

use super::*;
use crate::compile::port_names;
use crate::testing::{config, facts, identity};
use lanyard_types::MacAddr;

/// A configured switch, its bridge, and its plane state.
struct Sim {
    config: Config,
    ports: PortIds,
    identity: Identity,
    facts: Facts,
    spanning: Spanning,
}

impl Sim {
    /// A switch with this configuration and address, and with the links in `links`.
    fn new(number: u8, mode: Mode, text: &str, links: &str) -> Self {
        let mut config = config(text);
        config.spanning_tree.mode = Some(mode);
        let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
        let identity = Identity { base_mac: MacAddr([2, 0, 0, number, 0x10, 0]), ..identity() };
        let wanted = lower(&config, &ports, &identity);
        let spanning =
            next(0, None, None, &to(wanted)).expect("a good configuration").expect("spanning tree is on");
        let mut sim = Self { config, ports, identity, facts: facts(links), spanning };
        sim.links(0);
        sim
    }
    fn links(&mut self, now: u64) {
        let Self { config, ports, facts, spanning, .. } = self;
        let changes = spanning.unreported(config, facts, ports, &mut |_| (Some(1000), Duplex::Full));
        spanning.links(now, &changes);
    }
    fn plain(&self) -> PlaneState {
        crate::compile::compile(&self.config, &self.facts, &self.ports, &self.identity)
    }
    fn state(&self) -> PlaneState {
        let mut state = self.plain();
        self.spanning.overlay(&mut state);
        (state.stp, state.watched) = (self.spanning.decided().stp, self.spanning.decided().watched);
        state
    }
    fn todo(&mut self) -> Todo {
        let vlans = live_vlans(&self.config);
        self.spanning.todo(&vlans)
    }
    fn port(&self, name: &str) -> PortId {
        self.ports.get(name).expect("a port")
    }
    /// The ports that are not forwarding in instance 0, as text.
    fn held(&self) -> String {
        let state = self.state();
        let name = |port: &PortId| self.ports.name(*port).unwrap_or_default().to_owned();
        state.stp.keys().map(|(_, port)| name(port)).collect::<Vec<_>>().join(" ")
    }
}

/// A change of the settings alone.
fn to(wanted: Option<lanyard_stp::Config>) -> Reconfigure {
    Reconfigure { wanted, cleared: Vec::new(), vlans: VlanSet::EMPTY }
}

/// Runs two switches until `until`, with `eth1` connected to `eth1` and `eth2` to `eth2`. Returns
/// the number of states that changed.
fn run(switches: &mut [Sim; 2], mut now: u64, until: u64) -> usize {
    let mut changes = 0;
    loop {
        let mut quiet = true;
        for at in 0..2 {
            let todo = switches[at].todo();
            changes += todo.states.len();
            for (port, frame) in todo.frames {
                quiet = false;
                let name = switches[at].ports.name(port).expect("a port").to_owned();
                let other = &mut switches[1 - at];
                let port = other.port(&name);
                let _ = other.spanning.bridge_mut().handle_bpdu(now, port, &frame);
            }
        }
        if !quiet {
            continue;
        }
        let due = switches.iter().filter_map(|switch| switch.spanning.bridge().next_timeout()).min();
        match due.filter(|due| *due <= until) {
            Some(due) => now = now.max(due),
            None => return changes,
        }
        switches.iter_mut().for_each(|switch| switch.spanning.bridge_mut().handle_timer(now));
    }
}

const PAIR: &str = "eth1: trunk\neth2: trunk";

#[test]
fn without_a_mode_there_is_nothing() {
    let config = config(PAIR);
    let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
    assert!(lower(&config, &ports, &identity()).is_none());
    assert!(next(0, None, None, &to(None)).expect("nothing to refuse").is_none());
}

#[test]
fn a_lone_port_waits_and_forwards() {
    let mut sim = Sim::new(1, Mode::Rstp, "eth1: access 1\neth2: access 1", "eth1, eth2 no-carrier");
    assert_eq!(sim.held(), "eth1 eth2");
    assert_eq!(sim.state().global.reserved[0], ReservedAction::Trap);
    assert!(sim.state().global.trap_pvst.is_empty());
    while let Some(at) = sim.spanning.bridge().next_timeout().filter(|at| *at < 4000) {
        sim.spanning.bridge_mut().handle_timer(at);
    }
    assert_eq!(sim.held(), "eth2", "an edge port forwards, one without link does not");
    assert!(!sim.todo().is_empty());
    assert!(sim.todo().is_empty());
}

#[test]
fn a_loop_is_cut_and_a_cut_is_healed() {
    let mut pair = [Sim::new(1, Mode::Rstp, PAIR, "eth1, eth2"), Sim::new(2, Mode::Rstp, PAIR, "eth1, eth2")];
    run(&mut pair, 0, 10_000);
    assert_eq!((pair[0].held(), pair[1].held()), (String::new(), "eth2".into()));
    for switch in &mut pair {
        switch.facts = facts("eth1 no-carrier, eth2");
        switch.links(10_000);
    }
    // One step contains the old port's state, the new port's and the flushes.
    let todo = pair[1].todo();
    assert_eq!(pair[1].held(), "eth1");
    assert!(todo.flushes.iter().all(|filter| filter.vlan.is_none()) && !todo.flushes.is_empty());
}

#[test]
fn a_restart_changes_nothing() {
    let new = || [Sim::new(1, Mode::Rstp, PAIR, "eth1, eth2"), Sim::new(2, Mode::Rstp, PAIR, "eth1, eth2")];
    let mut pair = new();
    run(&mut pair, 0, 10_000);
    for (at, now) in [(0, 11_000), (1, 31_000)] {
        let snapshot = pair[at].spanning.bridge().snapshot();
        let wanted = lower(&pair[at].config, &pair[at].ports, &pair[at].identity);
        let resumed = next(now, None, Some(&snapshot), &to(wanted)).expect("as before").expect("on");
        let before = pair[at].state();
        pair[at].spanning = resumed;
        assert_eq!(pair[at].state(), before, "before anything was received");
        pair[at].links(now);
        assert_eq!(run(&mut pair, now, now + 19_000), 0, "no port changes its state");
        assert_eq!(pair[at].state(), before);
    }
}

#[test]
fn a_guarded_port_is_shut_down_and_stays_down() {
    let mut pair = [Sim::new(1, Mode::Rstp, PAIR, "eth1, eth2"), Sim::new(2, Mode::Rstp, PAIR, "eth1, eth2")];
    let name = lanyard_config::InterfaceName::Netdev("eth1".into());
    let guarded = &mut pair[0];
    guarded.config.interfaces.get_mut(&name).expect("eth1").spanning_tree.bpdu_guard = Some(true);
    let wanted = lower(&guarded.config, &guarded.ports, &guarded.identity);
    guarded.spanning = next(0, Some(&guarded.spanning), None, &to(wanted)).expect("good").expect("on");
    let frames = pair[1].todo().frames;
    let eth1 = pair[1].port("eth1");
    let (_, frame) = frames.iter().find(|(port, _)| *port == eth1).expect("a BPDU");
    let guarded = &mut pair[0];
    guarded.todo();
    let eth1 = guarded.port("eth1");
    let _ = guarded.spanning.bridge_mut().handle_bpdu(1, eth1, frame);
    assert_eq!(guarded.todo().ports, [(eth1, Some(ErrCause::BpduGuard))]);
    assert!(!guarded.state().ports[&eth1].enabled && guarded.plain().ports[&eth1].enabled);
    let mut up = [set_up(&facts("eth1 down"), "eth1", true).expect("it is down")];
    guarded.spanning.hold_down(&mut up, &guarded.ports);
    assert!(matches!(&up[0], Action::Link { to, .. } if !to.up), "nothing else brings it up");
    let mut shut = guarded.config.clone();
    shut.interfaces.get_mut(&name).expect("eth1").shutdown = true;
    let cleared = super::shut(&guarded.config, &shut, &guarded.ports);
    let change = Reconfigure { cleared, ..to(lower(&guarded.config, &guarded.ports, &guarded.identity)) };
    guarded.spanning = next(2, Some(&guarded.spanning), None, &change).expect("good").expect("on");
    assert!(guarded.state().ports[&eth1].enabled);
}

#[test]
fn vlans_have_their_trees() {
    let text = "vlan 10\nvlan 20\neth1: trunk";
    let mut sim = Sim::new(1, Mode::RapidPvst, text, "eth1");
    let state = sim.state();
    let with_tree: Vec<u16> = state.global.trap_pvst.iter().map(VlanId::get).collect();
    assert_eq!(with_tree, [1, 10, 20]);
    let trees: std::collections::BTreeSet<InstanceId> =
        state.vlans.values().map(|vlan| vlan.instance).collect();
    assert_eq!(trees.len(), 3);
    assert!(!trees.contains(&InstanceId::default()), "nobody's");
    sim.config.spanning_tree.no_tree = [VlanId::DEFAULT].into_iter().collect();
    let wanted = lower(&sim.config, &sim.ports, &sim.identity);
    sim.spanning = next(0, Some(&sim.spanning), None, &to(wanted)).expect("good").expect("on");
    assert_eq!(sim.state().vlans[&VlanId::DEFAULT].instance, InstanceId::default());
    let ports = [sim.port("eth1")].into_iter().collect();
    let instance = sim.spanning.bridge().instance_of(VlanId::new(10).expect("a VLAN"));
    let flushes = sim.spanning.flush(instance, &ports, &live_vlans(&sim.config));
    assert_eq!(flushes.iter().map(|filter| filter.vlan.map(VlanId::get)).collect::<Vec<_>>(), [Some(10)]);
}

#[test]
fn more_trees_than_instances_are_refused() {
    let vlans: String = (1..=64).map(|vlan| format!("vlan {vlan}\n")).collect();
    let mut config = config(&vlans);
    config.spanning_tree.mode = Some(Mode::Pvst);
    let refused = check(&config, &PortIds::default(), &identity()).expect_err("64 trees").to_string();
    assert!(refused.starts_with("64 spanning trees: 63 are possible"), "{refused}");
    config.spanning_tree.no_tree = [VlanId::DEFAULT].into_iter().collect();
    assert_eq!(check(&config, &PortIds::default(), &identity()), Ok(()));
}

#[test]
fn the_stricter_of_two_holds_back_more() {
    let pair = |n| (InstanceId::default(), PortId::new(n).expect("a port"));
    let states = |list: &[(u16, StpState)], watched: &[u16]| TreeStates {
        stp: list.iter().map(|(port, state)| (pair(*port), *state)).collect(),
        watched: watched.iter().map(|port| pair(*port)).collect(),
    };
    let (d, l) = (StpState::Discarding, StpState::Learning);
    let one = states(&[(1, d), (2, l), (3, l)], &[1]);
    let other = states(&[(2, d), (3, l), (4, l)], &[2]);
    let both = states(&[(1, d), (2, d), (3, l), (4, l)], &[1, 2]);
    assert_eq!(stricter(&one, &other), both);
    assert_eq!(stricter(&other, &one), both);
}
