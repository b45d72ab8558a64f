//! The public interface of a bridge: inputs, actions, and the state that a whole port has in all trees: BPDU
//! guard and filter, counters of refused frames. The additions of PVST+ are in `per_vlan`.
//!
//! Invariants: the actions that one call to a `handle_*` method leaves in the queue belong to one transaction (a
//! link that goes down, the flush of its addresses and the new forwarding port are to be applied together); the
//! same calls with the same times give the same actions.

use crate::bpdu::{self, BpduError, BpduFrame, BridgeId, MstConfigId, PortIdentifier, TICKS_PER_SECOND};
use crate::config::{Config, ConfigError, Guard, LinkType, Mode};
use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{BridgeVars, Effect, PortParams, Times};
use crate::view::PortCounters;
use lanyard_types::{ErrCause, InstanceId, PortId, PortSet, StpState, VlanId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The actions for the owner of the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this frame out of the port unchanged: it is complete, padded to 60 octets, and tagged where
    /// necessary.
    Transmit {
        /// The port.
        port: PortId,
        /// The VLAN of its tag, if it has one; for information only.
        vlan: Option<VlanId>,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Set the port's state in a tree.
    SetState {
        /// The tree.
        instance: InstanceId,
        /// The port.
        port: PortId,
        /// The state.
        state: StpState,
    },
    /// Remove the dynamic addresses learned at these ports in the VLANs of the tree.
    Flush {
        /// The tree.
        instance: InstanceId,
        /// The ports.
        ports: Box<PortSet>,
    },
    /// Shut the port down.
    ErrDisable {
        /// The port.
        port: PortId,
        /// The reason.
        cause: ErrCause,
    },
    /// Enable the port again: the recovery interval is over.
    ErrRecover {
        /// The port.
        port: PortId,
        /// The reason for which it was shut down.
        cause: ErrCause,
    },
    /// Report an event to the log and to `monitor events`.
    Event(Event),
}

/// The duplex mode of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Duplex {
    /// Full duplex; also assumed when the netdev does not report its mode.
    #[default]
    Full,
    /// Half duplex: a shared medium.
    Half,
}

/// The state of a port that does not depend on a tree.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Link {
    pub up: bool,
    pub speed_mbps: Option<u32>,
    pub duplex: Duplex,
    /// Why a guard has shut the port down, and the time at which it recovers; `None`: it does not recover by itself.
    pub err_disabled: Option<(ErrCause, Option<u64>)>,
    pub counters: PortCounters,
    /// In MST mode, the VLANs whose PVST+ BPDUs have been received since the link came up (`per_vlan`).
    pub pvst_vlans: BTreeSet<VlanId>,
    reject_event_after_ms: u64,
}

/// A bridge's spanning trees.
#[derive(Debug, Clone)]
pub struct Bridge {
    pub(crate) config: Config,
    /// Spanning-tree entities, by tree key: 0, or the VLAN.
    pub(crate) entities: BTreeMap<u16, Entity>,
    pub(crate) links: BTreeMap<PortId, Link>,
    /// The instance of each tree, by VLAN or MSTID; it does not change while the tree exists.
    instances: BTreeMap<u16, InstanceId>,
    pub(crate) actions: VecDeque<Action>,
    generation: u64,
}

/// The state with which a restarted daemon continues the trees without a topology change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    entities: BTreeMap<u16, Entity>,
    links: BTreeMap<PortId, Link>,
    instances: BTreeMap<u16, InstanceId>,
}

impl Bridge {
    /// Makes a bridge. Its ports have no link until [`Bridge::handle_link`] reports one. Times are
    /// milliseconds of any monotonic clock.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn new(now: u64, config: Config) -> Result<Self, ConfigError> {
        let empty =
            Snapshot { entities: BTreeMap::new(), links: BTreeMap::new(), instances: BTreeMap::new() };
        Self::restore(now, config, empty)
    }

    /// Makes a bridge that continues from a snapshot: trees whose identity (mode, address, region, VLAN) is unchanged
    /// keep their roles and states, others start from their initial state. `now` is a time of the clock of the
    /// snapshot's times. Links are as in the snapshot until [`Bridge::handle_link`] reports otherwise.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn restore(now: u64, config: Config, snapshot: Snapshot) -> Result<Self, ConfigError> {
        config.check()?;
        let Snapshot { entities, links, instances } = snapshot;
        let mut bridge = Self { config, entities, links, instances, actions: VecDeque::new(), generation: 0 };
        bridge.rebuild(now);
        for key in bridge.keys() {
            if let Some(entity) = bridge.entities.get_mut(&key) {
                entity.resume(now);
            }
            bridge.drain(key);
        }
        Ok(bridge)
    }

    /// The state for [`Bridge::restore`]. It should be saved whenever [`Bridge::generation`] has changed.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            entities: self.entities.clone(),
            links: self.links.clone(),
            instances: self.instances.clone(),
        }
    }

    /// A number that grows with every change of a role, a state or a root, and not with BPDUs that repeat
    /// known information.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Replaces the configuration. A new mode, address or MST region resets every tree; other changes are
    /// made in place. [`Bridge::instance_of`] and [`Bridge::states`] may return different values afterwards.
    ///
    /// # Errors
    /// The first setting out of its range; nothing has changed then.
    pub fn handle_config(&mut self, now: u64, config: Config) -> Result<(), ConfigError> {
        config.check()?;
        self.config = config;
        self.rebuild(now);
        Ok(())
    }

    /// A port's link. Ports that are not configured are ignored.
    pub fn handle_link(&mut self, now: u64, port: PortId, up: bool, speed_mbps: Option<u32>, duplex: Duplex) {
        if !self.config.ports.contains_key(&port) {
            return;
        }
        let link = self.links.entry(port).or_default();
        let speed_mbps = if up { speed_mbps } else { link.speed_mbps };
        (link.up, link.speed_mbps, link.duplex) = (up, speed_mbps, duplex);
        if !up {
            link.pvst_vlans.clear();
        }
        self.apply_port(now, port);
    }

    /// Processes a frame for the bridge group address or the SSTP address, as it was on the wire, with its
    /// tag.
    ///
    /// # Errors
    /// The reason for which the frame was refused; it has been counted.
    pub fn handle_bpdu(&mut self, now: u64, port: PortId, frame: &[u8]) -> Result<(), BpduError> {
        let Some(config) = self.config.ports.get(&port) else { return Ok(()) };
        let guard = config
            .bpdu_guard
            .unwrap_or(self.config.bpduguard_default && config.admin_edge(self.config.portfast_default));
        let filtered = config.bpdu_filter == Some(true);
        let link = self.links.entry(port).or_default();
        if filtered || !link.up || link.err_disabled.is_some() {
            link.counters.filtered += 1;
            return Ok(());
        }
        let decoded = bpdu::decode(frame);
        if guard && decoded != Err(BpduError::Destination) {
            self.err_disable(now, port, ErrCause::BpduGuard);
            return Ok(());
        }
        match decoded {
            Ok(frame) => {
                self.dispatch(now, port, &frame);
                Ok(())
            }
            Err(error) => {
                link.counters.rejected[error as usize] += 1;
                if now >= link.reject_event_after_ms {
                    link.reject_event_after_ms = now + 1000;
                    self.actions.push_back(Action::Event(Event::Rejected { port, error }));
                }
                Err(error)
            }
        }
    }

    /// Does everything that is due; to be called at [`Bridge::next_timeout`] or soon after.
    pub fn handle_timer(&mut self, now: u64) {
        let recovered: Vec<(PortId, ErrCause)> = self
            .links
            .iter()
            .filter_map(|(port, link)| match link.err_disabled {
                Some((cause, Some(until))) if until <= now => Some((*port, cause)),
                _ => None,
            })
            .collect();
        for (port, cause) in recovered {
            self.actions.push_back(Action::Event(Event::Recovering { port, cause }));
            self.actions.push_back(Action::ErrRecover { port, cause });
            self.clear_err_disable(now, port);
        }
        for key in self.keys() {
            let Some(entity) = self.entities.get_mut(&key) else { continue };
            if entity.next_timeout().is_some_and(|at| at <= now) {
                entity.handle_timer(now);
                self.drain(key);
            }
        }
    }

    /// The time at which [`Bridge::handle_timer`] must be called; `None` when no timer runs.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        let errors = self.links.values().filter_map(|link| link.err_disabled.and_then(|(_, until)| until));
        self.entities.values().filter_map(Entity::next_timeout).chain(errors).min()
    }

    /// `clear spanning-tree detected-protocols`: on one port, or on all.
    pub fn handle_mcheck(&mut self, now: u64, port: Option<PortId>) {
        let ports: Vec<PortId> = match port {
            Some(port) => vec![port],
            None => self.config.ports.keys().copied().collect(),
        };
        for port in &ports {
            if let Some(link) = self.links.get_mut(port) {
                link.pvst_vlans.clear();
            }
        }
        for key in self.keys() {
            if let Some(entity) = self.entities.get_mut(&key) {
                ports.iter().for_each(|port| entity.mcheck(now, *port));
            }
            self.drain(key);
        }
    }

    /// `shutdown` and `no shutdown`: clears the error-disabled state of a port. Returns true when a guard had
    /// shut it down.
    pub fn clear_err_disable(&mut self, now: u64, port: PortId) -> bool {
        let was = self.links.get_mut(&port).and_then(|link| link.err_disabled.take());
        self.apply_port(now, port);
        was.is_some()
    }

    /// The ports that are shut down, with the reason.
    pub fn err_disabled(&self) -> impl Iterator<Item = (PortId, ErrCause)> + '_ {
        self.links.iter().filter_map(|(port, link)| link.err_disabled.map(|(cause, _)| (*port, cause)))
    }

    /// `clear spanning-tree counters`: clears the counters of BPDUs, refused frames, transitions and topology changes
    /// of one port, or of all ports and the trees.
    pub fn clear_counters(&mut self, only: Option<PortId>) {
        let is_meant = |port: PortId| only.is_none_or(|only| only == port);
        for (_, link) in self.links.iter_mut().filter(|(port, _)| is_meant(**port)) {
            link.counters = PortCounters::default();
        }
        self.entities.values_mut().for_each(|entity| entity.clear_counters(only));
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The plane instance of a VLAN. In the per-VLAN modes a VLAN without a tree is on instance 0, in which
    /// all ports forward.
    #[must_use]
    pub fn instance_of(&self, vlan: VlanId) -> InstanceId {
        let key = match self.config.mode {
            Mode::Stp | Mode::Rstp => 0,
            Mode::Mst => self.config.mst.mstid_of(vlan),
            Mode::Pvst | Mode::RapidPvst => vlan.get(),
        };
        self.instances.get(&key).copied().unwrap_or_default()
    }

    /// The state of every port in every tree, for the plane. A port that is not listed in a tree is not blocked by
    /// it.
    pub fn states(&self) -> impl Iterator<Item = (InstanceId, PortId, StpState)> + '_ {
        self.entities.values().flat_map(|entity| {
            entity.present().flat_map(move |(id, port)| {
                let states = entity.trees.iter().zip(&port.trees);
                states.map(move |(tree, port)| (tree.instance, id, port.stp_state()))
            })
        })
    }

    /// Every tree and port behind which another bridge may be: all except edge ports and ports that filter
    /// BPDUs.
    pub fn bridged(&self) -> impl Iterator<Item = (InstanceId, PortId)> + '_ {
        self.entities.values().flat_map(|entity| {
            let trees = &entity.trees;
            entity.bridged().flat_map(move |(id, _)| trees.iter().map(move |tree| (tree.instance, id)))
        })
    }

    /// The time until which all neighbours hold the information that this bridge sent last; `None` without a
    /// tree.
    #[must_use]
    pub fn believed_until(&self, now: u64) -> Option<u64> {
        self.entities.values().map(|entity| entity.believed_until(now)).min()
    }

    /// Reports that the bridge was silent beyond [`Bridge::believed_until`], so the neighbours have acted without it.
    /// Ports that are not edge ports discard, and start from their initial state.
    pub fn handle_silence(&mut self, now: u64) {
        for key in self.keys() {
            if let Some(entity) = self.entities.get_mut(&key) {
                entity.begin_anew(now);
            }
            self.drain(key);
        }
    }

    // ---------------------------------------------------------------------------------------- receiving

    fn dispatch(&mut self, now: u64, port: PortId, frame: &BpduFrame) {
        let key = match self.route(now, port, frame) {
            Ok(key) => key,
            Err(count) => {
                if let Some(link) = self.links.get_mut(&port) {
                    *count(&mut link.counters) += 1;
                }
                return;
            }
        };
        let Some(key) = key else { return };
        let taken = self.entities.get_mut(&key).is_some_and(|entity| entity.receive(now, port, &frame.bpdu));
        if !taken && let Some(link) = self.links.get_mut(&port) {
            link.counters.no_tree += 1;
        }
        self.drain(key);
    }

    fn err_disable(&mut self, now: u64, port: PortId, cause: ErrCause) {
        let until = self.config.bpduguard_recovery_s.map(|seconds| now + u64::from(seconds) * 1000);
        if let Some(link) = self.links.get_mut(&port) {
            link.err_disabled = Some((cause, until));
        }
        self.actions.push_back(Action::Event(Event::ErrDisabled { port, cause }));
        self.actions.push_back(Action::ErrDisable { port, cause });
        self.apply_port(now, port);
    }

    // ------------------------------------------------------------------------------------ configuration

    fn keys(&self) -> Vec<u16> {
        self.entities.keys().copied().collect()
    }

    /// The tree keys of an entity, its first tree first.
    fn tree_keys(&self, key: u16) -> Vec<u16> {
        let mstis = (self.config.mode == Mode::Mst).then(|| self.config.mst.instances.keys().copied());
        [key].into_iter().chain(mstis.into_iter().flatten()).collect()
    }

    fn bridge_id(&self, key: u16) -> BridgeId {
        BridgeId::new(self.config.tree(key).priority, key, self.config.address)
    }

    fn bridge_vars(&self, key: u16) -> BridgeVars {
        let config = &self.config;
        let tree = if config.mode.per_vlan() { config.tree(key) } else { Default::default() };
        let ticks = |seconds: u8| u16::from(seconds) * TICKS_PER_SECOND;
        let instances = config.mst.instances.iter().map(|(mstid, vlans)| (*mstid, vlans));
        BridgeVars {
            force_version: config.mode.force_version(),
            address: config.address,
            tx_hold_count: config.transmit_hold_count,
            counting_guard: config.counting_guard,
            max_hops: config.max_hops,
            times: Times {
                message_age: 0,
                max_age: ticks(tree.max_age_s.unwrap_or(config.max_age_s)),
                hello_time: ticks(tree.hello_time_s.unwrap_or(config.hello_time_s)),
                forward_delay: ticks(tree.forward_time_s.unwrap_or(config.forward_time_s)),
                remaining_hops: config.max_hops,
            },
            mst_config_id: if config.mode == Mode::Mst {
                MstConfigId::new(&config.mst.name, config.mst.revision, instances)
            } else {
                MstConfigId { name: [0; 32], revision: 0, digest: [0; 16] }
            },
        }
    }

    fn port_tree(&self, port: PortId, key: u16) -> (u32, PortIdentifier) {
        let config = self.config.ports.get(&port).cloned().unwrap_or_default();
        let (cost, priority) = config.trees.get(&key).copied().unwrap_or_default();
        let speed = self.links.get(&port).and_then(|link| link.speed_mbps);
        let cost =
            cost.or(config.cost).unwrap_or_else(|| self.config.effective_path_cost_method().cost(speed));
        (cost, PortIdentifier::new(priority.unwrap_or(config.priority), port.get()))
    }

    pub(crate) fn params(&self, port: PortId) -> PortParams {
        let Some(config) = self.config.ports.get(&port) else { return PortParams::default() };
        let link = self.links.get(&port).cloned().unwrap_or_default();
        let admin_edge = config.admin_edge(self.config.portfast_default);
        let point_to_point = match config.link_type {
            LinkType::Auto => link.duplex == Duplex::Full,
            LinkType::PointToPoint => true,
            LinkType::Shared => false,
        };
        let loop_guard = match config.guard {
            Guard::Loop => true,
            Guard::Default => self.config.loopguard_default,
            Guard::None | Guard::Root => false,
        };
        let filter = config.bpdu_filter == Some(true);
        PortParams {
            enabled: link.up && link.err_disabled.is_none(),
            admin_edge,
            auto_edge: config.auto_edge,
            point_to_point,
            restricted_role: config.guard == Guard::Root,
            restricted_tcn: config.restricted_tcn,
            loop_guard: loop_guard && point_to_point && !admin_edge,
            enable_bpdu_rx: !filter,
            enable_bpdu_tx: !filter,
            filter_when_edge: config.bpdu_filter.is_none() && self.config.bpdufilter_default && admin_edge,
        }
    }

    /// Makes entities and their ports match the configuration.
    fn rebuild(&mut self, now: u64) {
        self.links.retain(|port, _| self.config.ports.contains_key(port));
        let wanted: Vec<u16> = if self.config.mode.per_vlan() {
            self.config.vlans.iter().map(VlanId::get).collect()
        } else {
            vec![0]
        };
        self.assign_instances(&wanted);
        self.entities.retain(|key, _| wanted.contains(key));
        for key in wanted {
            let vars = self.bridge_vars(key);
            let trees = self.tree_keys(key);
            let fits = self.entities.get(&key).is_some_and(|entity| {
                entity.bridge.force_version == vars.force_version
                    && entity.vlan.is_some() == self.config.mode.per_vlan()
                    && entity.bridge.address == vars.address
                    && entity.bridge.mst_config_id == vars.mst_config_id
                    && entity.trees.len() == trees.len()
                    && trees.iter().zip(&entity.trees).all(|(key, tree)| {
                        self.instances.get(key) == Some(&tree.instance)
                            && (entity.vlan.is_some() || tree.mstid == *key)
                    })
            });
            if !fits {
                let vlan = if self.config.mode.per_vlan() { VlanId::new(key) } else { None };
                let specs: Vec<_> = trees
                    .iter()
                    .map(|tree| {
                        let instance = self.instances.get(tree).copied().unwrap_or_default();
                        let mstid = if vlan.is_some() { 0 } else { *tree };
                        (instance, mstid, self.bridge_id(*tree))
                    })
                    .collect();
                self.entities.insert(key, Entity::new(now, vlan, vars, specs));
            } else {
                let ids: Vec<BridgeId> = trees.iter().map(|tree| self.bridge_id(*tree)).collect();
                if let Some(entity) = self.entities.get_mut(&key) {
                    entity.set_bridge(now, vars, ids.into_iter());
                }
            }
            self.rebuild_ports(now, key);
        }
        let ports: Vec<PortId> = self.config.ports.keys().copied().collect();
        for port in ports {
            self.apply_port(now, port);
        }
    }

    /// Adds and removes an entity's ports.
    fn rebuild_ports(&mut self, now: u64, key: u16) {
        let vlan = VlanId::new(key).filter(|_| self.config.mode.per_vlan());
        let wanted: Vec<PortId> = (self.config.ports.iter())
            .filter(|(_, config)| vlan.is_none_or(|vlan| config.vlans.carries(vlan)))
            .map(|(port, _)| *port)
            .collect();
        let trees = self.tree_keys(key);
        let additions: Vec<(PortId, Vec<(u32, PortIdentifier)>)> = wanted
            .iter()
            .map(|port| (*port, trees.iter().map(|tree| self.port_tree(*port, *tree)).collect()))
            .collect();
        if let Some(entity) = self.entities.get_mut(&key) {
            let gone: Vec<PortId> =
                entity.present().map(|(id, _)| id).filter(|id| wanted.binary_search(id).is_err()).collect();
            gone.into_iter().for_each(|id| entity.remove_port(now, id));
            for (port, trees) in additions {
                entity.add_port(now, port, trees.into_iter());
            }
        }
        self.drain(key);
    }

    /// Applies costs, priorities and parameters of a port in every entity.
    fn apply_port(&mut self, now: u64, port: PortId) {
        let params = self.params(port);
        for key in self.keys() {
            let trees: Vec<_> =
                self.tree_keys(key).into_iter().map(|tree| self.port_tree(port, tree)).collect();
            let Some(entity) = self.entities.get_mut(&key) else { continue };
            for (t, (cost, id)) in trees.into_iter().enumerate() {
                entity.set_port_tree(now, port, t, cost, id);
            }
            entity.set_params(now, port, params);
            self.drain(key);
        }
    }

    /// Assigns plane instances. A tree keeps its instance while it exists; a new tree gets the lowest free
    /// one. Instance 0 is the CIST or the only tree; in the per-VLAN modes no tree has it.
    fn assign_instances(&mut self, wanted: &[u16]) {
        let keys: Vec<u16> = if self.config.mode.per_vlan() { wanted.to_vec() } else { self.tree_keys(0) };
        self.instances.retain(|key, instance| keys.contains(key) && (*key == 0) == (instance.get() == 0));
        for key in keys {
            if self.instances.contains_key(&key) {
                continue;
            }
            let free = |instance: &InstanceId| !self.instances.values().any(|used| used == instance);
            let candidates = (u8::from(key != 0)..InstanceId::MAX as u8).filter_map(InstanceId::new);
            if let Some(instance) = candidates.into_iter().find(free) {
                self.instances.insert(key, instance);
            }
        }
    }

    // ------------------------------------------------------------------------------------------ sending

    /// Turns an entity's effects into actions.
    pub(crate) fn drain(&mut self, key: u16) {
        let Some(entity) = self.entities.get_mut(&key) else { return };
        let effects = std::mem::take(&mut entity.effects);
        let vlan = entity.vlan;
        for effect in effects {
            match effect {
                Effect::Transmit { port, bpdu } => self.transmit(port, vlan, &bpdu),
                Effect::SetState { instance, port, state } => {
                    self.generation += 1;
                    self.actions.push_back(Action::SetState { instance, port, state });
                }
                Effect::Flush { instance, ports } => {
                    self.actions.push_back(Action::Flush { instance, ports: Box::new(ports) });
                }
                Effect::Event(event) => {
                    let kept = matches!(
                        event,
                        Event::Role { .. } | Event::RootChanged { .. } | Event::TopologyChange { .. }
                    );
                    self.generation += u64::from(kept);
                    self.actions.push_back(Action::Event(event));
                }
                Effect::Remember => self.generation += 1,
            }
        }
    }
}

pub(crate) type Counter = fn(&mut PortCounters) -> &mut u64;
