//! Connects spanning tree to the switch: translates the configuration for the bridge of
//! `lanyard_stp`, and the bridge's decisions into the plane state.
//!
//! Invariants: without `spanning-tree mode` there is no bridge, and this file does not change the
//! plane state. A port that the bridge has shut down is not enabled.

use crate::actions::{Action, LinkSettings};
use crate::facts::Facts;
use crate::identity::Identity;
use crate::names::switchports;
use crate::ports::PortIds;
use lanyard_config::spanning_tree::{Times, Tree};
use lanyard_config::{Config, Interface, SwitchportMode};
use lanyard_pipeline::state::{PlaneState, ReservedAction, TrapRate};
use lanyard_plane::{FdbFilter, TreeStates};
use lanyard_stp::{Bridge, Duplex, Event, Mode, PortConfig, PortFast, PortVlans, Snapshot, TreeConfig};
use lanyard_types::{ErrCause, InstanceId, PortId, PortSet, StpState, TrapGroup, VlanId, VlanSet};
use std::collections::BTreeMap;

/// Up to this many VLANs of a tree are flushed one by one. With more, all of the port's addresses
/// are flushed, because each flush walks the FDB.
const SINGLE_FLUSHES: usize = 4;
/// The policer's rate in the per-VLAN modes: BPDUs a second for each tree on a port, for all ports
/// together and for one port.
const BPDUS_PER_TREE: u32 = 4;
const BPDUS_PER_TREE_ON_A_PORT: u32 = 8;

/// A bridge, and the links that were reported to it.
#[derive(Debug, Clone)]
pub struct Spanning {
    bridge: Bridge,
    /// The state of each link that was last reported to the bridge.
    reported: BTreeMap<PortId, bool>,
}

/// The state of a port's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkChange {
    /// The port.
    pub port: PortId,
    /// True while the port has a link.
    pub up: bool,
    /// The speed in Mbit/s of a link that came up.
    pub speed_mbps: Option<u32>,
    /// The duplex of a link that came up.
    pub duplex: Duplex,
}

/// The effect of a change of configuration on the bridge.
#[derive(Debug, Clone)]
pub struct Reconfigure {
    /// The new settings; `None` turns the bridge off.
    pub wanted: Option<lanyard_stp::Config>,
    /// Ports for which `shutdown` has been entered: those that a guard has shut down may come up
    /// again.
    pub cleared: Vec<PortId>,
    /// The active VLANs of the switch.
    pub vlans: VlanSet,
}

/// The actions that the bridge has decided on. They must be carried out in the order of these
/// fields.
#[derive(Debug, Default)]
pub struct Todo {
    /// True if the set of edge ports has changed.
    pub edges_changed: bool,
    /// New states of ports in trees.
    pub states: Vec<(InstanceId, PortId, StpState)>,
    /// Addresses to flush.
    pub flushes: Vec<FdbFilter>,
    /// Ports to shut down for a cause, or (`None`) to bring up again.
    pub ports: Vec<(PortId, Option<ErrCause>)>,
    /// Frames to send.
    pub frames: Vec<(PortId, Vec<u8>)>,
    /// Events to report.
    pub events: Vec<Event>,
}

impl Todo {
    /// True when there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.edges_changed
            && self.states.is_empty()
            && self.flushes.is_empty()
            && self.ports.is_empty()
            && self.frames.is_empty()
            && self.events.is_empty()
    }
}

/// The bridge's configuration for `config`; `None` when spanning tree is off.
#[must_use]
pub fn lower(config: &Config, ports: &PortIds, identity: &Identity) -> Option<lanyard_stp::Config> {
    let tree = &config.spanning_tree;
    let mode = tree.mode?;
    let mut bridge = lanyard_stp::Config::new(mode, identity.base_mac);
    let one = tree.vlans.get(&VlanId::DEFAULT).copied().unwrap_or_default();
    let times = match mode {
        Mode::Stp | Mode::Rstp => one.times,
        Mode::Mst => tree.mst_times,
        Mode::Pvst | Mode::RapidPvst => Times::default(),
    };
    bridge.hello_time_s = times.hello_s.unwrap_or(bridge.hello_time_s);
    bridge.forward_time_s = times.forward_s.unwrap_or(bridge.forward_time_s);
    bridge.max_age_s = times.max_age_s.unwrap_or(bridge.max_age_s);
    bridge.max_hops = tree.max_hops;
    bridge.transmit_hold_count = tree.hold_count;
    bridge.counting_guard = tree.counting_guard;
    bridge.path_cost_method = tree.path_cost;
    bridge.mst = tree.region.clone();
    bridge.trees = match mode {
        Mode::Stp | Mode::Rstp => [(0, lower_tree(one))].into(),
        Mode::Mst => {
            let of = |priority| TreeConfig { priority, ..TreeConfig::default() };
            tree.instances.iter().map(|(instance, priority)| (*instance, of(*priority))).collect()
        }
        Mode::Pvst | Mode::RapidPvst => {
            tree.vlans.iter().map(|(vlan, settings)| (vlan.get(), lower_tree(*settings))).collect()
        }
    };
    bridge.vlans =
        live_vlans(config).difference(&tree.no_tree).difference(&crate::private_trees::without_tree(config));
    bridge.portfast_default = tree.portfast_default;
    bridge.bpduguard_default = tree.bpduguard_default;
    bridge.bpdufilter_default = tree.bpdufilter_default;
    bridge.loopguard_default = tree.loopguard_default;
    let recovery = &config.errdisable;
    bridge.bpduguard_recovery_s =
        recovery.recovery.contains(&ErrCause::BpduGuard).then_some(recovery.interval_s);
    bridge.ports = switchports(config)
        .filter_map(|(name, interface)| Some((ports.get(name)?, lower_port(interface, mode))))
        .collect();
    Some(bridge)
}

/// The VLANs that are active.
#[must_use]
pub fn live_vlans(config: &Config) -> VlanSet {
    let live = config.vlans.iter().filter(|(_, vlan)| !vlan.suspended && !vlan.shutdown);
    live.map(|(id, _)| *id).collect()
}

fn lower_tree(tree: Tree) -> TreeConfig {
    TreeConfig {
        priority: tree.priority.unwrap_or(lanyard_config::spanning_tree::DEFAULT_PRIORITY),
        hello_time_s: tree.times.hello_s,
        forward_time_s: tree.times.forward_s,
        max_age_s: tree.times.max_age_s,
    }
}

fn lower_port(interface: &Interface, mode: Mode) -> PortConfig {
    let (words, port) = (&interface.spanning_tree, &interface.switchport);
    let pair = |tree: &lanyard_config::spanning_tree::PortTree| (tree.cost, tree.priority);
    let vlan_one = words.vlans.get(&VlanId::DEFAULT);
    let default = PortConfig::default();
    PortConfig {
        link_type: words.link_type,
        portfast: words.portfast,
        // `portfast disable` is AutoEdge FALSE (IEEE 802.1D-2004, 17.13.3).
        auto_edge: words.portfast != PortFast::Disable,
        bpdu_guard: words.bpdu_guard,
        // A tunnel's customer has trees of its own, which never meet this switch's.
        bpdu_filter: if port.mode == SwitchportMode::Tunnel { Some(true) } else { words.bpdu_filter },
        guard: words.guard,
        cost: words.all.cost,
        priority: words.all.priority.unwrap_or(default.priority),
        trees: match mode {
            Mode::Stp | Mode::Rstp => vlan_one.map(|tree| (0, pair(tree))).into_iter().collect(),
            Mode::Mst => words.instances.iter().map(|(instance, tree)| (*instance, pair(tree))).collect(),
            Mode::Pvst | Mode::RapidPvst => {
                words.vlans.iter().map(|(vlan, tree)| (vlan.get(), pair(tree))).collect()
            }
        },
        vlans: match port.mode {
            SwitchportMode::Trunk => {
                PortVlans::Trunk { native: port.native_vlan, allowed: port.allowed_vlans.clone() }
            }
            // A telephone with a switch in it sends and receives the trees of both VLANs.
            SwitchportMode::Access if port.voice_vlan().is_some() => PortVlans::Trunk {
                native: port.access_vlan,
                allowed: [port.access_vlan].into_iter().chain(port.voice_vlan()).collect(),
            },
            _ => PortVlans::Access(port.untagged_vlan()),
        },
        ..default
    }
}

/// Checks whether the bridge accepts the configuration.
///
/// # Errors
/// The reason for which the bridge refuses it.
pub fn check(config: &Config, ports: &PortIds, identity: &Identity) -> Result<(), SpanningError> {
    lower(config, ports, identity).map_or(Ok(()), |wanted| Ok(wanted.check()?))
}

/// Why the bridge refuses a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpanningError {
    /// More trees than there are instances.
    #[error(
        "{wanted} spanning trees: {limit} are possible (no spanning-tree vlan LIST takes the tree from VLANs)"
    )]
    TooManyTrees {
        /// The number of configured trees.
        wanted: usize,
        /// The largest possible number.
        limit: usize,
    },
    /// The bridge refuses a setting.
    #[error(transparent)]
    Config(lanyard_stp::ConfigError),
}

impl From<lanyard_stp::ConfigError> for SpanningError {
    fn from(error: lanyard_stp::ConfigError) -> Self {
        match error {
            lanyard_stp::ConfigError::TooManyInstances { wanted, limit } => {
                Self::TooManyTrees { wanted, limit }
            }
            other => Self::Config(other),
        }
    }
}

/// The bridge after a change of configuration: `old` with new settings, a bridge resumed from
/// `found`, or a new one.
///
/// # Errors
/// Why the configuration is refused.
pub fn next(
    now: u64,
    old: Option<&Spanning>,
    found: Option<&Snapshot>,
    change: &Reconfigure,
) -> Result<Option<Spanning>, SpanningError> {
    let Some(wanted) = change.wanted.clone() else { return Ok(None) };
    let Some(old) = old else {
        let bridge = match found {
            Some(snapshot) => Bridge::restore(now, wanted, snapshot.clone()),
            None => Bridge::new(now, wanted),
        };
        return Ok(Some(Spanning { bridge: bridge?, reported: BTreeMap::new() }));
    };
    let mut next = old.clone();
    if *next.bridge.config() != wanted {
        next.reported.retain(|port, _| wanted.ports.contains_key(port));
        next.bridge.handle_config(now, wanted)?;
    }
    next.clear(now, &change.cleared);
    Ok(Some(next))
}

/// The ports that `next` shuts down and `old` does not.
#[must_use]
pub fn shut(old: &Config, next: &Config, ports: &PortIds) -> Vec<PortId> {
    let mut list = Vec::new();
    for (name, interface) in switchports(next) {
        let key = lanyard_config::InterfaceName::Netdev(name.to_owned());
        let before = old.interfaces.get(&key).is_some_and(|before| before.shutdown);
        list.extend(ports.get(name).filter(|_| interface.shutdown && !before));
    }
    list
}

/// Combines two sets of states into the more restrictive one: each pair of tree and port has the state that forwards less, and
/// is watched if it is watched in either set.
#[must_use]
pub fn stricter(one: &TreeStates, other: &TreeStates) -> TreeStates {
    let mut both = one.clone();
    for (pair, state) in &other.stp {
        let held = both.stp.entry(*pair).or_insert(*state);
        if *state == StpState::Discarding {
            *held = StpState::Discarding;
        }
    }
    both.watched.extend(other.watched.iter().copied());
    both
}

impl Spanning {
    /// The bridge.
    #[must_use]
    pub const fn bridge(&self) -> &Bridge {
        &self.bridge
    }
    /// The bridge, for passing events to it.
    pub const fn bridge_mut(&mut self) -> &mut Bridge {
        &mut self.bridge
    }

    /// The links whose state has not been reported to the bridge. `medium` returns the speed in Mbit/s
    /// and the duplex of a link that came up.
    pub fn unreported(
        &self,
        config: &Config,
        facts: &Facts,
        ports: &PortIds,
        medium: &mut dyn FnMut(&str) -> (Option<u32>, Duplex),
    ) -> Vec<LinkChange> {
        let mut list = Vec::new();
        for (name, interface) in switchports(config) {
            let Some(port) = ports.get(name) else { continue };
            let up = !interface.shutdown && facts.forwards(name);
            if self.reported.get(&port) == Some(&up) {
                continue;
            }
            let (speed_mbps, duplex) = if up { medium(name) } else { (None, Duplex::Full) };
            list.push(LinkChange { port, up, speed_mbps, duplex });
        }
        list
    }
    /// Reports changed links to the bridge.
    pub fn links(&mut self, now: u64, changes: &[LinkChange]) {
        for LinkChange { port, up, speed_mbps, duplex } in changes {
            self.reported.insert(*port, *up);
            self.bridge.handle_link(now, *port, *up, *speed_mbps, *duplex);
        }
    }

    /// Takes the actions that the bridge has decided on.
    pub fn todo(&mut self, vlans: &VlanSet) -> Todo {
        let mut todo = Todo::default();
        self.todo_more(vlans, &mut todo);
        todo
    }

    /// Restarts all ports after the bridge was silent for longer than its neighbours keep its
    /// BPDUs. BPDUs that were waiting are not sent.
    pub fn silence(&mut self, now: u64, vlans: &VlanSet, todo: &mut Todo) {
        todo.frames.clear();
        self.bridge.handle_silence(now);
        self.todo_more(vlans, todo);
    }

    fn todo_more(&mut self, vlans: &VlanSet, todo: &mut Todo) {
        while let Some(action) = self.bridge.poll_action() {
            match action {
                lanyard_stp::Action::Transmit { port, frame, .. } => todo.frames.push((port, frame)),
                lanyard_stp::Action::SetState { instance, port, state } => {
                    todo.states.push((instance, port, state));
                }
                lanyard_stp::Action::Flush { instance, ports } => {
                    todo.flushes.extend(self.flush(instance, &ports, vlans));
                }
                lanyard_stp::Action::ErrDisable { port, cause } => todo.ports.push((port, Some(cause))),
                lanyard_stp::Action::ErrRecover { port, .. } => todo.ports.push((port, None)),
                lanyard_stp::Action::Event(event) => {
                    todo.edges_changed |= matches!(event, Event::Edge { .. });
                    todo.events.push(event);
                }
            }
        }
    }

    /// The VLANs among `known` that belong to a tree.
    #[must_use]
    pub fn vlans_of(&self, instance: InstanceId, known: &VlanSet) -> VlanSet {
        known.iter().filter(|vlan| self.bridge.instance_of(*vlan) == instance).collect()
    }

    /// The flushes of ports in the VLANs of a tree.
    fn flush(&self, instance: InstanceId, ports: &PortSet, known: &VlanSet) -> Vec<FdbFilter> {
        let vlans: Vec<VlanId> = self.vlans_of(instance, known).iter().collect();
        let all = vlans.len() > SINGLE_FLUSHES || vlans.len() == known.len();
        let mut list = Vec::new();
        for port in ports.iter() {
            let at = FdbFilter { port: Some(port), ..FdbFilter::default() };
            if all {
                list.push(at);
            } else {
                list.extend(vlans.iter().map(|vlan| FdbFilter { vlan: Some(*vlan), ..at }));
            }
        }
        list
    }

    /// Applies the bridge's decisions to a plane state that was compiled without them: the tree of
    /// each VLAN, which frames are trapped and at what rate, and the ports that a guard has shut
    /// down. The states of ports in trees are given to the plane separately
    /// ([`Spanning::decided`]).
    pub fn overlay(&self, state: &mut PlaneState) {
        let mode = self.bridge.config().mode;
        let per_vlan = mode.per_vlan();
        state.global.reserved[0] = ReservedAction::Trap;
        // In MST mode a neighbour with a tree for each VLAN is outside the region (PVST
        // simulation).
        state.global.trap_pvst = match mode {
            lanyard_stp::Mode::Mst => VlanSet::all(),
            // Only in VLANs with a tree here: in others the BPDUs of neighbours pass through this switch to each other.
            _ if per_vlan => self.bridge.config().vlans.clone(),
            _ => VlanSet::EMPTY,
        };
        for (vlan, settings) in &mut state.vlans {
            settings.instance = self.bridge.instance_of(*vlan);
        }
        crate::private_trees::follow_trees(state);
        let mut trees = 0;
        let mut at_port: BTreeMap<PortId, u32> = BTreeMap::new();
        for (_, port, _) in self.bridge.states() {
            trees += 1;
            *at_port.entry(port).or_default() += 1;
        }
        if per_vlan {
            let rate = &mut state.global.trap_rate[TrapGroup::Stp.index()];
            rate.rate_pps = rate.rate_pps.max(BPDUS_PER_TREE * trees);
            rate.burst = rate.burst.max(trees);
            let most = BPDUS_PER_TREE_ON_A_PORT * at_port.into_values().max().unwrap_or(0);
            let share = &mut state.global.trap_port_rate[TrapGroup::Stp.index()];
            *share = TrapRate { rate_pps: share.rate_pps.max(most), burst: share.burst.max(most) };
        }
        for (port, _) in self.bridge.err_disabled() {
            if let Some(port) = state.ports.get_mut(&port) {
                port.enabled = false;
            }
        }
    }

    /// The states of ports in trees, and the ports that the plane's watchdog has to block.
    #[must_use]
    pub fn decided(&self) -> TreeStates {
        let held = self.bridge.states().filter(|(_, _, to)| *to != StpState::Forwarding);
        TreeStates {
            stp: held.map(|(instance, port, to)| ((instance, port), to)).collect(),
            watched: self.bridge.bridged().collect(),
        }
    }

    /// Clears the shutdown by a guard of `ports`.
    fn clear(&mut self, now: u64, ports: &[PortId]) {
        for port in ports {
            self.bridge.clear_err_disable(now, *port);
        }
    }

    /// Changes `actions` so that they do not bring up ports that a guard has shut down.
    pub fn hold_down(&self, actions: &mut [Action], ports: &PortIds) {
        for action in actions {
            if let Action::Link { name, to, .. } = action
                && ports.get(name).is_some_and(|port| self.err_cause(port).is_some())
            {
                to.up = false;
            }
        }
    }

    /// Why a guard has shut the port down; `None` if none has.
    #[must_use]
    pub fn err_cause(&self, port: PortId) -> Option<ErrCause> {
        self.bridge.err_disabled().find_map(|(held, cause)| (held == port).then_some(cause))
    }
}

/// The action that sets a port's netdev up or down; `None` when the netdev is in that state already or does not exist.
#[must_use]
pub fn set_up(facts: &Facts, name: &str, up: bool) -> Option<Action> {
    let link = facts.usable(name).filter(|link| link.admin_up != up)?;
    let from = LinkSettings {
        up: link.admin_up,
        promisc: link.promisc,
        mtu: link.mtu,
        mac: link.mac,
        host: link.host,
    };
    let to = LinkSettings { up, ..from.clone() };
    Some(Action::Link { name: name.to_owned(), from, to })
}

#[cfg(test)]
#[path = "spanning_tests.rs"]
mod tests;
