//! Procedures that read or change a whole tree (IEEE 802.1Q-2018, 13.29): sync, reRoot, topology change, and
//! the computation of roles.
//!
//! Invariant: roles follow from the ports' information alone, so computing them twice changes nothing.

use super::older_by_one;
use crate::bpdu::PortIdentifier;
use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{InfoIs, Role, Timer, Times, Vector, ms};

impl Entity {
    /// setSyncTree.
    pub(crate) fn set_sync_tree(&mut self, t: usize) {
        for p in 0..self.ports.len() {
            self.ports[p].trees[t].sync = true;
            self.mark(p, t);
        }
    }

    /// setReRootTree.
    pub(crate) fn set_re_root_tree(&mut self, t: usize) {
        for p in 0..self.ports.len() {
            self.ports[p].trees[t].re_root = true;
            self.mark(p, t);
        }
    }

    /// setTcPropTree: sets tcProp at every port except `p`, unless topology changes received at `p` must not be
    /// propagated (restrictedTcn).
    pub(crate) fn set_tc_prop_tree(&mut self, p: usize, t: usize) {
        if self.ports[p].params.restricted_tcn {
            return;
        }
        for q in (0..self.ports.len()).filter(|q| *q != p) {
            self.ports[q].trees[t].tc_prop = true;
            self.mark(q, t);
        }
    }

    /// newTcWhile.
    pub(crate) fn new_tc_while(&mut self, p: usize, t: usize) {
        if !self.ports[p].trees[t].tc_while.is_zero(self.now) {
            return;
        }
        let root = self.trees[0].root_times;
        let duration_ms = if self.ports[p].send_rstp {
            self.hello_time(p) + 1000
        } else {
            ms(root.max_age) + ms(root.forward_delay)
        };
        self.ports[p].trees[t].tc_while = Timer::start(self.now, duration_ms);
        if self.ports[p].send_rstp {
            self.new_info(p, t);
        }
    }

    /// newInfo for the CIST, newInfoMsti for an MSTI.
    pub(crate) fn new_info(&mut self, p: usize, t: usize) {
        let port = &mut self.ports[p];
        if t == 0 { port.new_info = true } else { port.new_info_msti = true }
    }

    /// syncMaster: the path to the CIST root has changed, so no agreement of an MSTI is valid.
    fn sync_master(&mut self) {
        for p in 0..self.ports.len() {
            if !self.ports[p].rcvd_internal {
                continue;
            }
            self.ports[p].region_while = Timer::start(self.now, 2 * self.fwd_delay(p));
            for t in 1..self.trees.len() {
                let tree = &mut self.ports[p].trees[t];
                tree.agree = false;
                tree.agreed = false;
                tree.synced = false;
                tree.sync = true;
                self.trees[t].sync.valid = false;
            }
            self.mark_all_trees(p);
        }
    }

    /// updtRolesTree (13.29.34): root priority vector, designated priority vectors, roles.
    pub(crate) fn updt_roles_tree(&mut self, t: usize) {
        let before = self.trees[t].root_priority;
        self.updt_root(t);
        let root_priority = self.trees[t].root_priority;
        // The standard compares the regional root only; another exit of the region through the same bridge
        // matters as much.
        if t == 0
            && before.of_region() != root_priority.of_region()
            && (before.external_cost != 0 || root_priority.external_cost != 0)
        {
            self.sync_master();
        }
        for p in 0..self.ports.len() {
            self.updt_designated(p, t);
            self.updt_role(p, t);
        }
        self.hold_infeasible(t);
        if t == 0 && (before.root, before.external_cost) != (root_priority.root, root_priority.external_cost)
            || t > 0 && before.regional_root != root_priority.regional_root
        {
            let (instance, vlan) = (self.trees[t].instance, self.vlan);
            let port = self.trees[t].root_port.map(|p| self.ports[p].id);
            let root = if t == 0 { root_priority.root } else { root_priority.regional_root };
            let was = if t == 0 { before.root } else { before.regional_root };
            if was != root {
                self.event(Event::RootChanged { instance, vlan, root, port });
            }
        }
    }

    /// Not in the standard: keeps the tree free of loops while information changes. Across a link that forwards, a
    /// bridge must hold better information than its downstream neighbour may still act on. Then no loop is possible,
    /// because in a loop every bridge would be downstream of itself (the feasibility condition of Garcia-Luna-Aceves,
    /// "Loop-Free Routing Using Diffusing Computations", 1993). Where the bridge now holds no better information, the
    /// port waits for the neighbour's agreement to the new information. An alternate port's information is better
    /// than what the bridge sends, so rapid failover does not wait.
    fn hold_infeasible(&mut self, t: usize) {
        let Some(r) = self.trees[t].root_port else { return };
        let held = self.ports[r].trees[t].port_priority;
        let root_internal = t > 0 || self.ports[r].info_internal;
        let prefix = Vector::of_region;
        for p in (0..self.ports.len()).filter(|p| *p != r) {
            let port = &self.ports[p];
            let outside = t == 0 && (port.boundary || self.bridge.force_version < 3);
            let tree = &port.trees[t];
            let active = tree.role == Role::Designated && tree.selected_role == Role::Designated;
            let bound = port.params.point_to_point && port.send_rstp && !port.oper_edge;
            if !active || !bound || !(tree.learn || tree.forward) {
                continue;
            }
            let infeasible = tree.advertised.is_some_and(|advertised| match (outside, root_internal) {
                (false, _) => advertised <= held,
                (true, true) => prefix(&advertised) < prefix(&held),
                (true, false) => prefix(&advertised) <= prefix(&held),
            });
            if infeasible {
                let tree = &mut self.ports[p].trees[t];
                tree.agreed = false;
                tree.synced = false;
                tree.sync = true;
                self.trees[t].sync.valid = false;
                self.mark(p, t);
            }
        }
    }

    /// Items a) to d): selects the best of the bridge's own vector and the root path vectors.
    fn updt_root(&mut self, t: usize) {
        let (mut best, mut root_port) = self.best_root(t);
        if let Some(p) = root_port {
            let held = self.ports[p].trees[t].port_priority;
            let offer = Vector { designated_bridge: self.trees[t].bridge_id, ..best };
            if self.counts_to_infinity(t, &held, &offer) {
                (best, root_port) = self.best_root(t);
            }
        }
        let max_hops = self.bridge.max_hops;
        let tree = &mut self.trees[t];
        tree.root_priority = best;
        tree.root_port = root_port;
        tree.root_times = match root_port {
            None => Times {
                remaining_hops: max_hops,
                ..if t == 0 { self.bridge.times } else { Times::default() }
            },
            Some(p) => {
                let port = &self.ports[p];
                let mut times = port.trees[t].port_times;
                // An MSTI's information always comes from within the region.
                if port.info_internal || t > 0 {
                    times.remaining_hops = times.remaining_hops.saturating_sub(1);
                } else {
                    times.message_age = older_by_one(times.message_age);
                    times.remaining_hops = max_hops;
                }
                times
            }
        };
    }

    /// The root priority vector and the root port that follow from the ports' information.
    fn best_root(&self, t: usize) -> (Vector, Option<usize>) {
        let mut best = (self.bridge_priority(t), PortIdentifier::default());
        let mut root_port = None;
        for (p, port) in self.ports.iter().enumerate() {
            let tree = &port.trees[t];
            let usable = tree.info_is == InfoIs::Received
                && !port.params.restricted_role
                && !tree.inconsistent.blocks()
                && (t == 0 || port.info_internal || port.trees[0].info_is != InfoIs::Received)
                && tree.port_priority.designated_bridge.address() != self.bridge.address
                && !self.is_echo(t, port.info_internal, &tree.port_priority)
                && self.believable(t, &tree.port_priority);
            if !usable {
                continue;
            }
            let mut path = tree.port_priority;
            if t == 0 && !port.info_internal {
                path.external_cost = path.external_cost.saturating_add(tree.path_cost);
                path.regional_root = self.trees[0].bridge_id;
                path.internal_cost = 0;
            } else {
                path.internal_cost = path.internal_cost.saturating_add(tree.path_cost);
            }
            if (path, tree.port_id) < best {
                best = (path, tree.port_id);
                root_port = Some(p);
            }
        }
        (best.0, root_port)
    }

    /// True for information that derives from this bridge's own earlier claim to be the (regional) root.
    fn is_echo(&self, t: usize, internal: bool, vector: &Vector) -> bool {
        let own = self.bridge.address;
        let regional = (t > 0 || internal) && vector.regional_root.address() == own;
        regional || (t == 0 && vector.root.address() == own)
    }

    /// The bridge priority vector, with this bridge as root.
    fn bridge_priority(&self, t: usize) -> Vector {
        let id = self.trees[t].bridge_id;
        let root = if t == 0 { id } else { Default::default() };
        Vector { root, regional_root: id, designated_bridge: id, ..Vector::default() }
    }

    /// Items e) and f): computes what the port would send.
    fn updt_designated(&mut self, p: usize, t: usize) {
        let tree = &self.trees[t];
        let mut priority = tree.root_priority;
        let mut times = tree.root_times;
        priority.designated_bridge = tree.bridge_id;
        priority.designated_port = self.ports[p].trees[t].port_id;
        if t == 0 && !self.ports[p].send_rstp {
            // An STP bridge reads the field of the regional root identifier as the designated bridge (13.10).
            priority.regional_root = tree.bridge_id;
            priority.internal_cost = 0;
        }
        if t == 0 && self.bridge.force_version >= 3 {
            times.hello_time = self.bridge.times.hello_time;
        }
        let port = &mut self.ports[p].trees[t];
        port.designated_priority = priority;
        port.designated_times = times;
    }

    /// Items g) to l): the role, and whether the bridge's own information replaces the port's.
    fn updt_role(&mut self, p: usize, t: usize) {
        let cist = &self.ports[p].trees[0];
        let boundary = t > 0 && cist.info_is == InfoIs::Received && !self.ports[p].info_internal;
        let cist_role = cist.selected_role;
        let tree = &self.ports[p].trees[t];
        let differs =
            tree.port_priority != tree.designated_priority || tree.port_times != tree.designated_times;
        let own = tree.port_priority.designated_bridge.address() == self.bridge.address
            && tree.port_priority.designated_port.number() != tree.port_id.number();
        let (role, updt_info) = match tree.info_is {
            InfoIs::Disabled => (Role::Disabled, tree.updt_info),
            _ if boundary && cist_role == Role::Root => (Role::Master, differs),
            _ if boundary && cist_role.blocks() => (cist_role, differs),
            InfoIs::Aged => (Role::Designated, true),
            InfoIs::Mine => (Role::Designated, differs),
            InfoIs::Received if self.trees[t].root_port == Some(p) => (Role::Root, false),
            InfoIs::Received if tree.designated_priority < tree.port_priority => (Role::Designated, true),
            InfoIs::Received if own => (Role::Backup, false),
            InfoIs::Received => (Role::Alternate, false),
        };
        let guarded = self.ports[p].params.restricted_role && role == Role::Alternate;
        let tree = &mut self.ports[p].trees[t];
        let news = !tree.selected
            || tree.selected_role != role
            || tree.updt_info != updt_info
            || tree.inconsistent.root != guarded;
        tree.selected_role = role;
        tree.updt_info = updt_info;
        let guard_moved = tree.inconsistent.root != guarded;
        tree.inconsistent.root = guarded;
        if guard_moved {
            let (instance, port) = (self.trees[t].instance, self.ports[p].id);
            self.event(Event::RootGuard { instance, vlan: self.vlan, port, blocked: guarded });
        }
        if news {
            self.mark(p, t);
        }
    }
}
