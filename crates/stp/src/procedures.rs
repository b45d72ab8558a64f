//! The procedures the machines call (IEEE 802.1Q-2018, 13.29), and the conditions that read more than one
//! variable (13.28). Names are the standard's.
//!
//! Invariant: a procedure changes variables and marks whose machines must run again; only the transmit
//! procedures and the state changes produce effects.

use crate::bpdu::{
    Bpdu, ConfigBody, Flags, MstPart, MstiMessage, PortIdentifier, TICKS_PER_SECOND, WireRole,
};
use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{Effect, InfoIs, RcvdInfo, Role, Timer, Times, Vector, ms};

impl Entity {
    // ------------------------------------------------------------------------------------- conditions

    /// HelloTime: of the port's designatedTimes, in milliseconds.
    pub(crate) fn hello_time(&self, p: usize) -> u64 {
        ms(self.ports[p].trees[0].designated_times.hello_time.max(TICKS_PER_SECOND))
    }
    /// FwdDelay, in milliseconds.
    pub(crate) fn fwd_delay(&self, p: usize) -> u64 {
        ms(self.ports[p].trees[0].designated_times.forward_delay)
    }
    /// MaxAge, in milliseconds.
    pub(crate) fn max_age(&self, p: usize) -> u64 {
        ms(self.ports[p].trees[0].designated_times.max_age)
    }
    /// forwardDelay: FwdDelay, as in 802.1w-2001 and on a Catalyst. 802.1D-2004 takes HelloTime where the neighbour
    /// speaks RSTP; but a neighbour that speaks it and does not agree is one that counts to infinity or does
    /// not hear, and forwarding after two hello times then closes loops.
    pub(crate) fn forward_delay(&self, p: usize) -> u64 {
        self.fwd_delay(p)
    }
    /// EdgeDelay: MigrateTime on a point-to-point link, MaxAge otherwise.
    pub(crate) fn edge_delay(&self, p: usize) -> u64 {
        let migrate = crate::vars::BridgeVars::MIGRATE_TIME_MS;
        if self.ports[p].params.point_to_point { migrate } else { self.max_age(p) }
    }
    /// reRooted: no other port was root port recently.
    pub(crate) fn re_rooted(&self, p: usize, t: usize) -> bool {
        let now = self.now;
        self.ports.iter().enumerate().all(|(q, port)| q == p || port.trees[t].rr_while.is_zero(now))
    }
    /// allSynced (13.28.1), given a valid summary. Backup ports agree as alternate ports do (802.1D-2004).
    pub(crate) fn all_synced(&self, p: usize, t: usize) -> bool {
        let sync = &self.trees[t].sync;
        let port = &self.ports[p].trees[t];
        if !sync.valid || !sync.settled {
            return false;
        }
        match port.role {
            Role::Root | Role::Alternate | Role::Backup => sync.unsynced == sync.unsynced_root,
            Role::Designated | Role::Master => sync.unsynced == u32::from(!port.synced),
            Role::Disabled => false,
        }
    }
    /// Recomputes what allSynced needs, once per change.
    pub(crate) fn refresh_sync(&mut self, t: usize) {
        if self.trees[t].sync.valid {
            return;
        }
        let mut sync = crate::vars::SyncSummary { valid: true, settled: true, unsynced: 0, unsynced_root: 0 };
        for port in &self.ports {
            let port = &port.trees[t];
            sync.settled &= port.selected && port.role == port.selected_role && !port.updt_info;
            sync.unsynced += u32::from(!port.synced);
            sync.unsynced_root += u32::from(!port.synced && port.role == Role::Root);
        }
        self.trees[t].sync = sync;
    }
    /// A guard holds the port; or it leads out of the region, where an MSTI never does more than the CIST, whose
    /// handshakes are the only ones the neighbour takes part in.
    pub(crate) fn held_back(&self, p: usize, t: usize) -> bool {
        let port = &self.ports[p];
        port.trees[t].inconsistent.blocks() || (t > 0 && port.boundary && !port.trees[0].forward)
    }
    /// rcvdXstMsg: an MSTI's message waits until the CIST's has been dealt with.
    pub(crate) fn rcvd_xst_msg(&self, p: usize, t: usize) -> bool {
        let trees = &self.ports[p].trees;
        if t == 0 { trees[0].rcvd_msg } else { !trees[0].rcvd_msg && trees[t].rcvd_msg }
    }
    /// updtXstInfo.
    pub(crate) fn updt_xst_info(&self, p: usize, t: usize) -> bool {
        let trees = &self.ports[p].trees;
        trees[t].updt_info || trees[0].updt_info
    }
    /// Nothing but silence and administration holds the port back from sending.
    pub(crate) fn may_transmit(&self, p: usize) -> bool {
        let port = &self.ports[p];
        let filtered = port.params.filter_when_edge && port.oper_edge && port.sent_since_up >= 10;
        port.params.enabled && port.params.enable_bpdu_tx && !filtered
    }

    // --------------------------------------------------------------------------------------- receiving

    /// updtBPDUVersion.
    pub(crate) fn updt_bpdu_version(&mut self, p: usize, bpdu: &Bpdu) {
        match bpdu {
            Bpdu::Config(_) | Bpdu::Tcn => self.ports[p].rcvd_stp = true,
            Bpdu::Rst(_) | Bpdu::Mst(..) => self.ports[p].rcvd_rstp = true,
        }
    }

    /// fromSameRegion.
    pub(crate) fn from_same_region(&self, bpdu: &Bpdu) -> bool {
        match bpdu {
            Bpdu::Mst(_, mst) => self.bridge.force_version >= 3 && mst.config_id == self.bridge.mst_config_id,
            _ => false,
        }
    }

    /// rcvMsgs: hands each tree the message the BPDU has for it.
    pub(crate) fn rcv_msgs(&mut self, p: usize, bpdu: &Bpdu) {
        let internal = self.ports[p].rcvd_internal;
        let Some(body) = bpdu.body() else {
            // A TCN BPDU conveys nothing but the notification (setTcFlags).
            self.ports[p].rcvd_tcn = true;
            for t in 1..self.trees.len() {
                self.ports[p].trees[t].rcvd_tc = true;
            }
            self.mark_all_trees(p);
            return;
        };
        let max_hops = self.bridge.max_hops;
        let cist = &mut self.ports[p].trees[0];
        cist.rcvd_msg = true;
        cist.msg_flags = body.flags;
        if !matches!(bpdu, Bpdu::Rst(_) | Bpdu::Mst(..)) || body.flags.role == WireRole::UnknownOrMaster {
            // 802.1D-2004, 9.3.3: an unknown role is read as a configuration BPDU's.
            cist.msg_flags = Flags {
                tc: body.flags.tc,
                ack_or_master: body.flags.ack_or_master,
                role: WireRole::Designated,
                ..Flags::default()
            };
        }
        cist.msg_priority = Vector {
            root: body.root,
            external_cost: body.root_path_cost,
            regional_root: body.bridge,
            internal_cost: 0,
            designated_bridge: body.bridge,
            designated_port: body.port,
        };
        cist.msg_times = Times {
            message_age: body.message_age,
            max_age: body.max_age,
            hello_time: body.hello_time,
            forward_delay: body.forward_delay,
            remaining_hops: max_hops,
        };
        match bpdu {
            Bpdu::Mst(body, mst) if internal => self.rcv_internal(p, body, mst),
            _ => self.age_out_mstis(p),
        }
        self.mark_all_trees(p);
    }

    fn rcv_internal(&mut self, p: usize, body: &ConfigBody, mst: &MstPart) {
        let cist = &mut self.ports[p].trees[0];
        cist.msg_priority.internal_cost = mst.internal_root_path_cost;
        cist.msg_priority.designated_bridge = mst.bridge;
        cist.msg_times.remaining_hops = mst.remaining_hops;
        for message in &mst.mstis {
            let Some(t) = self.tree_of_mstid(message.regional_root.extension()) else { continue };
            let tree = &mut self.ports[p].trees[t];
            tree.rcvd_msg = true;
            tree.msg_flags = message.flags;
            tree.msg_priority = Vector {
                regional_root: message.regional_root,
                internal_cost: message.internal_root_path_cost,
                designated_bridge: message.bridge(mst.bridge),
                designated_port: message.port(body.port),
                ..Vector::default()
            };
            tree.msg_times = Times { remaining_hops: message.remaining_hops, ..Times::default() };
        }
    }

    /// What the MSTIs of a port knew came from inside the region; the neighbour turns out to be outside.
    fn age_out_mstis(&mut self, p: usize) {
        for t in 1..self.trees.len() {
            let tree = &mut self.ports[p].trees[t];
            if tree.info_is == InfoIs::Received {
                tree.rcvd_info_while = Timer::Zero;
            }
        }
    }

    /// rcvInfo: compares the message with what the port holds.
    pub(crate) fn rcv_info(&self, p: usize, t: usize) -> RcvdInfo {
        let tree = &self.ports[p].trees[t];
        match tree.msg_flags.role {
            WireRole::Designated => {
                let same = tree.msg_priority == tree.port_priority;
                if tree.msg_priority.superior_to(&tree.port_priority)
                    || (same && tree.msg_times != tree.port_times && tree.info_is == InfoIs::Received)
                {
                    RcvdInfo::SuperiorDesignated
                } else if same && tree.info_is == InfoIs::Received {
                    RcvdInfo::RepeatedDesignated
                } else if tree.msg_priority > tree.port_priority {
                    RcvdInfo::InferiorDesignated
                } else {
                    RcvdInfo::Other
                }
            }
            WireRole::Root | WireRole::AlternateBackup if tree.msg_priority >= tree.port_priority => {
                RcvdInfo::InferiorRootAlternate
            }
            _ => RcvdInfo::Other,
        }
    }

    /// betterorsameInfo.
    pub(crate) fn better_or_same_info(&self, p: usize, t: usize, new_info_is: InfoIs) -> bool {
        let tree = &self.ports[p].trees[t];
        match (new_info_is, tree.info_is) {
            (InfoIs::Received, InfoIs::Received) => tree.msg_priority <= tree.port_priority,
            (InfoIs::Mine, InfoIs::Mine) => tree.designated_priority <= tree.port_priority,
            _ => false,
        }
    }

    /// recordAgreement.
    ///
    /// Stricter than the standard in two points, which close the forwarding loops that counting to infinity is
    /// known for (Elmeleegy, Cox and Ng, "On Count-to-Infinity Induced Forwarding Loops in Ethernet Networks",
    /// 2006). The neighbour must agree about the root this port conveys; and what it agrees to must be what
    /// the port holds and has told (`agreements_count`). An agreement that may be the answer to something
    /// else is not taken, and the port proposes again, so no good agreement is lost, only delayed.
    pub(crate) fn record_agreement(&mut self, p: usize, t: usize) {
        let rstp = self.bridge.rstp_version();
        let port = &mut self.ports[p];
        let internal = port.rcvd_internal;
        let timely = port.trees[t].agreements_count(self.now);
        // A designated neighbour's agreement answers nothing; it tells that its side is synced.
        let designated = port.trees[t].msg_flags.role == WireRole::Designated;
        let p2p = port.params.point_to_point && (designated || timely);
        // For an MSTI, too: the neighbour must agree about the way to the CIST root.
        let (message, held) = (&port.trees[0].msg_priority, &port.trees[0].port_priority);
        let same_root = message.root == held.root
            && (!internal
                || (message.external_cost == held.external_cost
                    && message.regional_root == held.regional_root));
        if t == 0 {
            let tree = &mut port.trees[0];
            let agreed = rstp && p2p && same_root && tree.msg_flags.agreement;
            tree.set_agreed(agreed);
            if !internal {
                let proposing = tree.proposing;
                for tree in &mut port.trees[1..] {
                    tree.set_agreed(agreed);
                    tree.proposing = proposing;
                }
            }
            return;
        }
        let tree = &mut port.trees[t];
        let same_regional_root = tree.msg_flags.role == WireRole::Designated
            || tree.msg_priority.regional_root == tree.port_priority.regional_root;
        tree.set_agreed(p2p && same_root && same_regional_root && tree.msg_flags.agreement);
    }

    /// recordDispute: an inferior designated neighbour learns or forwards, so it does not hear this port.
    pub(crate) fn record_dispute(&mut self, p: usize, t: usize) {
        if !self.ports[p].trees[t].msg_flags.learning {
            return;
        }
        self.dispute(p, t);
        if t == 0 && !self.ports[p].rcvd_internal {
            for t in 1..self.trees.len() {
                self.dispute(p, t);
                self.mark(p, t);
            }
        }
    }

    fn dispute(&mut self, p: usize, t: usize) {
        let until = Timer::start(self.now, 3 * self.hello_time(p));
        let tree = &mut self.ports[p].trees[t];
        tree.disputed = true;
        tree.agreed = false;
        let first = tree.dispute_while.is_zero(self.now);
        tree.dispute_while = until;
        if first {
            let (instance, port) = (self.trees[t].instance, self.ports[p].id);
            self.event(Event::Disputed { instance, vlan: self.vlan, port });
        }
    }

    /// recordMastered.
    pub(crate) fn record_mastered(&mut self, p: usize, t: usize) {
        let port = &mut self.ports[p];
        if t > 0 {
            let tree = &mut port.trees[t];
            tree.mastered = port.params.point_to_point && tree.msg_flags.ack_or_master;
            self.count_masters(p, t);
        } else if !port.rcvd_internal {
            for t in 1..self.trees.len() {
                self.ports[p].trees[t].mastered = false;
                self.count_masters(p, t);
            }
        }
    }

    /// Keeps the number of a tree's ports that are, or point to, a master port.
    pub(crate) fn count_masters(&mut self, p: usize, t: usize) {
        let tree = &mut self.ports[p].trees[t];
        let counts = tree.role == Role::Master || tree.mastered;
        if counts != tree.counted_master {
            tree.counted_master = counts;
            let masters = &mut self.trees[t].masters;
            *masters = if counts { *masters + 1 } else { masters.saturating_sub(1) };
        }
    }

    /// recordProposal.
    pub(crate) fn record_proposal(&mut self, p: usize, t: usize) {
        let port = &mut self.ports[p];
        let internal = port.rcvd_internal;
        let flags = port.trees[t].msg_flags;
        if flags.role == WireRole::Designated && flags.proposal {
            port.trees[t].proposed = true;
            if t == 0 && !internal {
                port.trees[1..].iter_mut().for_each(|tree| tree.proposed = true);
            }
        }
    }

    /// recordPriority and recordTimes.
    pub(crate) fn record_priority_and_times(&mut self, p: usize, t: usize) {
        let tree = &mut self.ports[p].trees[t];
        tree.port_priority = tree.msg_priority;
        tree.port_times = tree.msg_times;
    }

    /// setTcFlags, but for TCN BPDUs, which `rcv_msgs` deals with.
    pub(crate) fn set_tc_flags(&mut self, p: usize, t: usize) {
        let port = &mut self.ports[p];
        let flags = port.trees[t].msg_flags;
        if flags.tc {
            port.trees[t].rcvd_tc = true;
            if t == 0 && !port.rcvd_internal {
                port.trees[1..].iter_mut().for_each(|tree| tree.rcvd_tc = true);
            }
        }
        if t == 0 && flags.ack_or_master {
            port.rcvd_tc_ack = true;
        }
    }

    /// updtRcvdInfoWhile.
    pub(crate) fn updt_rcvd_info_while(&mut self, p: usize, t: usize) {
        let now = self.now;
        let port = &mut self.ports[p];
        let cist = port.trees[0].port_times;
        let usable = if port.rcvd_internal {
            port.trees[t].port_times.remaining_hops > 1 && cist.message_age < cist.max_age
        } else {
            older_by_one(cist.message_age) < cist.max_age
        };
        let duration_ms = if usable { 3 * ms(cist.hello_time) } else { 0 };
        port.trees[t].rcvd_info_while = Timer::start(now, duration_ms);
    }

    // --------------------------------------------------------------------------------------- the tree

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

    /// setTcPropTree: tells every other port, unless the port's topology changes are not to be spread.
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

    /// syncMaster: the way to the CIST root leaves the region elsewhere, so no MSTI agreement holds.
    fn sync_master(&mut self) {
        for t in 1..self.trees.len() {
            for p in 0..self.ports.len() {
                if self.ports[p].info_internal {
                    let tree = &mut self.ports[p].trees[t];
                    tree.agree = false;
                    tree.agreed = false;
                    tree.synced = false;
                    tree.sync = true;
                    self.mark(p, t);
                }
            }
            self.trees[t].sync.valid = false;
        }
    }

    /// updtRolesTree (13.29.34): root priority vector, designated priority vectors, roles.
    pub(crate) fn updt_roles_tree(&mut self, t: usize) {
        let before = self.trees[t].root_priority;
        self.updt_root(t);
        let root_priority = self.trees[t].root_priority;
        if t == 0
            && before.regional_root != root_priority.regional_root
            && (before.external_cost != 0 || root_priority.external_cost != 0)
        {
            self.sync_master();
        }
        for p in 0..self.ports.len() {
            self.updt_designated(p, t);
            self.updt_role(p, t);
        }
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

    /// Items a) to d): the best of the bridge's own vector and the root path vectors.
    fn updt_root(&mut self, t: usize) {
        let own = self.bridge_priority(t);
        let mut best = (own, PortIdentifier::default());
        let mut root_port = None;
        for (p, port) in self.ports.iter().enumerate() {
            let tree = &port.trees[t];
            let usable = tree.info_is == InfoIs::Received
                && !port.params.restricted_role
                && !tree.inconsistent.blocks()
                && (t == 0 || port.info_internal || port.trees[0].info_is != InfoIs::Received)
                && tree.port_priority.designated_bridge.address() != self.bridge.address
                && !self.is_echo(t, port.info_internal, &tree.port_priority);
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
        let max_hops = self.bridge.max_hops;
        let tree = &mut self.trees[t];
        tree.root_priority = best.0;
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

    /// What is left of this bridge's own claim to be the (regional) root, and comes back to it.
    fn is_echo(&self, t: usize, internal: bool, vector: &Vector) -> bool {
        let own = self.bridge.address;
        let regional = (t > 0 || internal) && vector.regional_root.address() == own;
        regional || (t == 0 && vector.root.address() == own)
    }

    /// The bridge priority vector: this bridge as root.
    fn bridge_priority(&self, t: usize) -> Vector {
        let id = self.trees[t].bridge_id;
        let root = if t == 0 { id } else { Default::default() };
        Vector { root, regional_root: id, designated_bridge: id, ..Vector::default() }
    }

    /// Items e) and f): what the port would send.
    fn updt_designated(&mut self, p: usize, t: usize) {
        let tree = &self.trees[t];
        let mut priority = tree.root_priority;
        let mut times = tree.root_times;
        priority.designated_bridge = tree.bridge_id;
        priority.designated_port = self.ports[p].trees[t].port_id;
        if t == 0 && !self.ports[p].send_rstp {
            // An STP bridge reads the regional root identifier as the designated bridge (13.10).
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

    /// Items g) to l): the role, and whether the port's information is to be replaced by the bridge's own.
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

    // ---------------------------------------------------------------------------------------- sending

    fn cist_body(&self, p: usize, flags: Flags) -> ConfigBody {
        let tree = &self.ports[p].trees[0];
        let priority = tree.designated_priority;
        ConfigBody {
            flags,
            root: priority.root,
            root_path_cost: priority.external_cost,
            bridge: if self.bridge.force_version >= 3 {
                priority.regional_root
            } else {
                priority.designated_bridge
            },
            port: priority.designated_port,
            message_age: tree.designated_times.message_age,
            max_age: tree.designated_times.max_age,
            hello_time: tree.designated_times.hello_time,
            forward_delay: tree.designated_times.forward_delay,
        }
    }

    fn flags(&self, p: usize, t: usize) -> Flags {
        let tree = &self.ports[p].trees[t];
        Flags {
            tc: !tree.tc_while.is_zero(self.now),
            proposal: tree.proposing,
            role: match tree.role {
                Role::Root => WireRole::Root,
                Role::Designated => WireRole::Designated,
                Role::Alternate | Role::Backup => WireRole::AlternateBackup,
                Role::Master | Role::Disabled => WireRole::UnknownOrMaster,
            },
            learning: tree.learning,
            forwarding: tree.forwarding,
            agreement: tree.agree,
            ack_or_master: t > 0 && self.master(p, t),
        }
    }

    /// master: another port of the tree leads out of the region, here or further on.
    fn master(&self, p: usize, t: usize) -> bool {
        let tree = &self.ports[p].trees[t];
        matches!(tree.role, Role::Root | Role::Designated)
            && self.trees[t].masters > u32::from(tree.counted_master)
    }

    /// txConfig.
    pub(crate) fn tx_config(&mut self, p: usize) {
        let tc = !self.ports[p].trees[0].tc_while.is_zero(self.now);
        let flags = Flags { tc, ack_or_master: self.ports[p].tc_ack, ..Flags::default() };
        let body = self.cist_body(p, flags);
        self.transmit(p, Bpdu::Config(body));
    }

    /// txTcn.
    pub(crate) fn tx_tcn(&mut self, p: usize) {
        self.transmit(p, Bpdu::Tcn);
    }

    /// txRstp: an RST BPDU, or an MST BPDU with one message for each MSTI.
    pub(crate) fn tx_rstp(&mut self, p: usize) {
        let body = self.cist_body(p, self.flags(p, 0));
        if self.bridge.force_version < 3 {
            self.transmit(p, Bpdu::Rst(body));
            return;
        }
        let mstis = (1..self.trees.len())
            .map(|t| {
                let tree = &self.ports[p].trees[t];
                MstiMessage {
                    flags: self.flags(p, t),
                    regional_root: tree.designated_priority.regional_root,
                    internal_root_path_cost: tree.designated_priority.internal_cost,
                    bridge_priority: self.trees[t].bridge_id.priority() & 0xf000,
                    port_priority: tree.port_id.priority(),
                    remaining_hops: tree.designated_times.remaining_hops,
                }
            })
            .collect();
        let cist = &self.ports[p].trees[0];
        let mst = MstPart {
            config_id: self.bridge.mst_config_id.clone(),
            internal_root_path_cost: cist.designated_priority.internal_cost,
            bridge: self.trees[0].bridge_id,
            remaining_hops: cist.designated_times.remaining_hops,
            mstis,
        };
        self.transmit(p, Bpdu::Mst(body, mst));
    }

    fn transmit(&mut self, p: usize, bpdu: Bpdu) {
        let port = &mut self.ports[p];
        port.counters.sent(&bpdu);
        port.sent_since_up = port.sent_since_up.saturating_add(1);
        port.trees.iter_mut().for_each(|tree| tree.note_conveyed(self.now));
        let port = port.id;
        self.effects.push_back(Effect::Transmit { port, bpdu });
    }
}

/// How long an agreement may be on its way: both directions of a link, and the neighbour's thinking.
const STALE_AGREEMENT_MS: u64 = 10;
/// How long the neighbour may act on what the port conveyed: the life of information, three hello times.
const CONVEYED_LIFE_MS: u64 = 6000;

impl crate::vars::PortTreeVars {
    /// An agreement that comes now answers what the port holds, or something worse.
    fn agreements_count(&self, now: u64) -> bool {
        let told = self.conveyed.is_some_and(|(conveyed, _)| conveyed == self.designated_priority);
        told && self.stale_while.is_zero(now)
    }

    /// A BPDU leaves. When a designated port now conveys something worse than a moment ago, or has been a root or
    /// alternate port that agreed in between, answers to the former may still be on their way.
    fn note_conveyed(&mut self, now: u64) {
        if self.role != Role::Designated {
            self.promised |= self.agree;
            return;
        }
        let recent = self.conveyed.filter(|(_, at)| now < at + CONVEYED_LIFE_MS);
        if recent.is_some_and(|(before, _)| self.promised || self.designated_priority > before) {
            self.stale_while = Timer::start(now, STALE_AGREEMENT_MS);
        }
        self.promised = false;
        self.conveyed = Some((self.designated_priority, now));
    }

    fn set_agreed(&mut self, agreed: bool) {
        self.agreed = agreed;
        if agreed {
            self.proposing = false;
            // Whoever agrees has heard this port: the dispute is over.
            self.disputed = false;
            self.dispute_while = Timer::Zero;
        }
    }
}

/// Message age plus one second, rounded to the nearest second (13.29.34).
fn older_by_one(message_age: u16) -> u16 {
    let seconds = (u32::from(message_age) + 256 + 128) / 256;
    u16::try_from(seconds * 256).unwrap_or(u16::MAX)
}
