//! One spanning-tree protocol entity (IEEE 802.1Q-2018, 13.24): STP, RSTP or MSTP with all its trees, or the
//! single tree of one VLAN. It owns the variables, runs the machines until no transition is possible, and keeps
//! the timers.
//!
//! Invariants: machines run only for ports and trees that are marked; one call runs a bounded number of rounds;
//! BPDUs are sent at the end of a run, so that several changes within the run cause only one BPDU.

mod holds;
mod scheduling;

use crate::bpdu::{Bpdu, BridgeId, PortIdentifier};
use crate::events::Event;
use crate::machines::bridge_detection;
use crate::vars::{
    BridgeVars, Effect, EntityVlan, InfoIs, PortParams, PortTreeVars, PortVars, Role, Timer, Times, TreeVars,
    Vector,
};
use lanyard_types::{InstanceId, PortId, PortSet, StpState};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Why a PVST+ BPDU blocks a port: it belongs to another VLAN, a trunk sent it to an access port, or it
/// contradicts the CIST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Pvid,
    Type,
    Pvst,
}

/// See the module's documentation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entity {
    pub vlan: EntityVlan,
    pub bridge: BridgeVars,
    pub trees: Vec<TreeVars>,
    pub ports: Vec<PortVars>,
    slots: BTreeMap<PortId, usize>,
    pub now: u64,
    /// The number of runs that reached the limit of rounds.
    pub unsettled: u64,
    /// A time at which to run for a reason other than a port's timer: deferred flushes, or a run that reached
    /// its limit.
    wake_ms: Option<u64>,
    #[serde(skip)]
    queue: Vec<usize>,
    #[serde(skip)]
    touched: Vec<usize>,
    #[serde(skip)]
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    #[serde(skip)]
    sync_moved: u64,
    #[serde(skip)]
    pub effects: VecDeque<Effect>,
}

impl Entity {
    /// `trees` has instance, MSTID and bridge identifier of each tree, the CIST or the only tree first.
    pub(crate) fn new(
        now: u64,
        vlan: EntityVlan,
        bridge: BridgeVars,
        trees: impl IntoIterator<Item = (InstanceId, u16, BridgeId)>,
    ) -> Self {
        let trees = trees
            .into_iter()
            .take(InstanceId::MAX)
            .map(|(instance, mstid, bridge_id)| TreeVars {
                instance,
                mstid,
                bridge_id,
                root_priority: Vector::default(),
                root_times: Times::default(),
                root_port: None,
                masters: 0,
                reselect: true,
                topology_changes: 0,
                last_change_ms: None,
                last_change_port: None,
                last_heard_ms: None,
                counting: Default::default(),
                flush: PortSet::EMPTY,
                flush_urgent: false,
                flush_window_ms: 0,
                flushes_in_window: 0,
                sync: Default::default(),
            })
            .collect();
        let mut entity = Self {
            vlan,
            bridge,
            trees,
            ports: Vec::new(),
            slots: BTreeMap::new(),
            now,
            unsettled: 0,
            wake_ms: None,
            queue: Vec::new(),
            touched: Vec::new(),
            heap: BinaryHeap::new(),
            sync_moved: 0,
            effects: VecDeque::new(),
        };
        entity.run(None);
        entity
    }

    pub(crate) fn slot(&self, port: PortId) -> Option<usize> {
        self.slots.get(&port).copied()
    }

    pub(crate) fn present(&self) -> impl Iterator<Item = (PortId, &PortVars)> {
        self.slots.iter().map(|(id, slot)| (*id, &self.ports[*slot]))
    }

    pub(crate) fn tree_of_mstid(&self, mstid: u16) -> Option<usize> {
        // The trees are sorted by MSTID: the CIST comes first and has 0.
        self.trees.binary_search_by_key(&mstid, |tree| tree.mstid).ok().filter(|t| *t > 0)
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.effects.push_back(Effect::Event(event));
    }

    // ------------------------------------------------------------------------------------------ inputs

    /// Adds a port, without link; `trees` has path cost and identifier for each tree.
    pub(crate) fn add_port(
        &mut self,
        now: u64,
        id: PortId,
        trees: impl Iterator<Item = (u32, PortIdentifier)>,
    ) {
        if self.slots.contains_key(&id) {
            return;
        }
        self.now = now;
        let mut port = PortVars::new(id);
        port.new_info = true;
        port.new_info_msti = true;
        port.trees = trees.take(self.trees.len()).map(|(cost, id)| PortTreeVars::new(cost, id)).collect();
        let slot = self.ports.iter().position(|port| !port.present).unwrap_or(self.ports.len());
        if slot == self.ports.len() {
            self.ports.push(port)
        } else {
            self.ports[slot] = port
        }
        self.slots.insert(id, slot);
        for t in 0..self.trees.len() {
            let (instance, state) = (self.trees[t].instance, StpState::Discarding);
            self.effects.push_back(Effect::SetState { instance, port: id, state });
            self.reselect(slot, t);
        }
        self.run(None);
    }

    /// Removes a port; for the rest of the tree this is a lost link.
    pub(crate) fn remove_port(&mut self, now: u64, id: PortId) {
        let Some(slot) = self.slots.get(&id).copied() else { return };
        self.set_params(now, id, PortParams::default());
        self.ports[slot].present = false;
        self.slots.remove(&id);
        for tree in &mut self.trees {
            tree.flush.remove(id);
        }
        self.effects.retain(|effect| !matches!(effect, Effect::SetState { port, .. } if *port == id));
    }

    /// Sets link and administrative parameters of a port.
    pub(crate) fn set_params(&mut self, now: u64, id: PortId, params: PortParams) {
        let Some(p) = self.slot(id) else { return };
        self.now = now;
        let port = &mut self.ports[p];
        let old = std::mem::replace(&mut port.params, params);
        if old == params {
            return;
        }
        if params.enabled && !old.enabled {
            port.edge_delay_while.release(now);
            port.mdelay_while.release(now);
            port.sent_since_up = 0;
        }
        if !params.enabled {
            (port.self_loop_while, port.pvst_while) = (Timer::Zero, Timer::Zero);
            (port.pvid_while, port.type_while) = (Timer::Zero, Timer::Zero);
        }
        let heard_nobody = port.trees[0].info_is != InfoIs::Received;
        if params.enabled && params.admin_edge && !old.admin_edge && heard_nobody {
            // Portfast takes effect at once if no BPDU has been received from another bridge.
            port.detection = bridge_detection::State::Edge;
            port.oper_edge = true;
        } else if !params.admin_edge && !params.auto_edge && (old.admin_edge || old.auto_edge) {
            port.oper_edge = false;
        }
        for t in 0..self.trees.len() {
            if old.restricted_role != params.restricted_role {
                self.reselect(p, t);
            }
            let tree = &mut self.ports[p].trees[t];
            if !params.loop_guard && std::mem::take(&mut tree.inconsistent.loop_guard) {
                self.reselect(p, t);
            }
        }
        self.mark_all_trees(p);
        self.run(None);
    }

    /// Sets path cost and identifier of a port in a tree.
    pub(crate) fn set_port_tree(
        &mut self,
        now: u64,
        id: PortId,
        t: usize,
        cost: u32,
        port_id: PortIdentifier,
    ) {
        let Some(p) = self.slot(id) else { return };
        let tree = &mut self.ports[p].trees[t];
        if (tree.path_cost, tree.port_id) == (cost, port_id) {
            return;
        }
        self.now = now;
        tree.path_cost = cost;
        tree.port_id = port_id;
        self.reselect(p, t);
        self.run(None);
    }

    /// Sets the bridge identifiers and all parameters of the bridge except address, version and region.
    pub(crate) fn set_bridge(&mut self, now: u64, bridge: BridgeVars, ids: impl Iterator<Item = BridgeId>) {
        self.now = now;
        let times_changed = bridge.times != self.bridge.times || bridge.max_hops != self.bridge.max_hops;
        self.bridge = bridge;
        let mut changed = times_changed;
        for (t, id) in ids.take(self.trees.len()).enumerate() {
            if times_changed || self.trees[t].bridge_id != id {
                self.trees[t].bridge_id = id;
                self.reselect_all(t);
                changed = true;
            }
        }
        if changed {
            self.run(None);
        }
    }

    /// Processes a BPDU. Returns false when the port does not belong to this entity.
    pub(crate) fn receive(&mut self, now: u64, id: PortId, bpdu: &Bpdu) -> bool {
        let Some(p) = self.slot(id) else { return false };
        self.now = now;
        self.ports[p].counters.received(bpdu);
        if !self.bridge.rstp_version() && matches!(bpdu, Bpdu::Rst(_) | Bpdu::Mst(..)) {
            // An STP bridge does not know this type. It does not answer, so the neighbour changes to STP
            // (17.24).
            return true;
        }
        if self.hears_itself(p, bpdu) {
            self.self_loop(p);
            return true;
        }
        self.ports[p].rcvd_bpdu = true;
        self.mark(p, 0);
        self.run(Some((p, bpdu)));
        true
    }

    /// mcheck: makes the port try RSTP again.
    pub(crate) fn mcheck(&mut self, now: u64, id: PortId) {
        let Some(p) = self.slot(id) else { return };
        self.now = now;
        self.ports[p].mcheck = self.bridge.rstp_version();
        self.mark(p, 0);
        self.run(None);
    }

    /// Does everything that is due.
    pub(crate) fn handle_timer(&mut self, now: u64) {
        self.now = now;
        while let Some(Reverse((at, p))) = self.heap.peek().copied() {
            if at > now {
                break;
            }
            self.heap.pop();
            if self.ports[p].scheduled_ms == Some(at) {
                self.ports[p].scheduled_ms = None;
                self.expire(p);
            }
        }
        if self.wake_ms.is_some_and(|at| at <= now) {
            self.wake_ms = None;
            self.end_holds();
        }
        self.run(None);
    }

    /// The time at which `handle_timer` must be called.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let port = self.heap.peek().map(|Reverse((at, _))| *at);
        port.into_iter().chain(self.wake_ms).min()
    }

    /// Clears the counters of one port, or of all ports and the trees.
    pub(crate) fn clear_counters(&mut self, only: Option<PortId>) {
        for port in self.ports.iter_mut().filter(|port| only.is_none_or(|only| only == port.id)) {
            port.counters = crate::view::EntityCounters::default();
            for tree in &mut port.trees {
                (tree.forward_transitions, tree.topology_changes) = (0, 0);
            }
        }
        if only.is_none() {
            self.trees.iter_mut().for_each(|tree| tree.topology_changes = 0);
        }
    }

    /// Continues after a restart. It is not known how long the timers have run, so the neighbours'
    /// information is valid for another three hello times, and this bridge sends BPDUs at once.
    pub(crate) fn resume(&mut self, now: u64) {
        self.now = now;
        for p in 0..self.ports.len() {
            let port = &mut self.ports[p];
            port.tx_count = 0;
            port.tx_count_down = Timer::Zero;
            port.hello_when = Timer::Zero;
            let hello = crate::vars::ms(port.trees[0].port_times.hello_time);
            for tree in &mut port.trees {
                if tree.info_is == InfoIs::Received {
                    tree.rcvd_info_while = Timer::start(now, 3 * hello.max(1000));
                }
            }
            self.mark_all_trees(p);
        }
        let root = self.trees[0].root_times;
        let longest_ms = crate::vars::ms(root.max_age) + crate::vars::ms(root.forward_delay);
        for tree in &mut self.trees {
            tree.sync.valid = false;
            // A neighbour that speaks STP has repeated the topology change flag for this time, even while no
            // daemon received it.
            tree.last_heard_ms =
                tree.last_heard_ms.map(|last| if now <= last + longest_ms { now } else { last });
        }
        self.run(None);
        for p in 0..self.ports.len() {
            self.schedule(p);
        }
    }

    /// The ports behind which another bridge may be that exchanges BPDUs with this one: all that are not edge ports. If
    /// this bridge becomes silent, the other bridge may take over the link and forward.
    pub(crate) fn bridged(&self) -> impl Iterator<Item = (PortId, &PortVars)> {
        let speaks = |port: &PortVars| port.params.enable_bpdu_tx && port.params.enable_bpdu_rx;
        self.present().filter(move |(_, port)| !port.oper_edge && speaks(port))
    }

    /// The time until which all neighbours hold the information that this bridge sent last: three hello times after the
    /// transmission of the designated port that has been silent longest (802.1Q-2018, 13.29.31). For a bridge without
    /// designated ports the three hello times begin now.
    pub(crate) fn believed_until(&self, now: u64) -> u64 {
        let designated = self.bridged().filter(|(_, port)| {
            port.params.enabled && port.trees.iter().any(|tree| tree.role == Role::Designated)
        });
        let until = |(id, port): (PortId, &PortVars)| {
            let hello = self.slot(id).map_or(0, |p| self.hello_time(p));
            port.hello_when.deadline(now).unwrap_or(now) + 2 * hello
        };
        let hello = crate::vars::ms(self.trees[0].root_times.hello_time).max(1000);
        designated.map(until).min().unwrap_or(now + 3 * hello)
    }

    /// Resets all ports that are not edge ports, as if their links had been down, because the bridge has been
    /// silent for longer than its neighbours hold its information.
    pub(crate) fn begin_anew(&mut self, now: u64) {
        self.now = now;
        let slots: Vec<usize> = self.bridged().filter_map(|(id, _)| self.slot(id)).collect();
        let enabled: Vec<usize> = slots.into_iter().filter(|p| self.ports[*p].params.enabled).collect();
        for up in [false, true] {
            for p in &enabled {
                self.ports[*p].params.enabled = up;
                self.mark_all_trees(*p);
            }
            if up {
                for p in &enabled {
                    let port = &mut self.ports[*p];
                    port.edge_delay_while.release(now);
                    port.mdelay_while.release(now);
                    port.sent_since_up = 0;
                }
            }
            self.run(None);
        }
    }
}
