//! How a received BPDU changes a port's variables (IEEE 802.1Q-2018, 13.29): the procedures of the port receive
//! and port information machines.
//!
//! Invariant: an agreement is recorded only when it refers to what the port holds and has sent.

use super::older_by_one;
use crate::bpdu::{Bpdu, ConfigBody, Flags, MstPart, WireRole};
use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{InfoIs, RcvdInfo, Role, Timer, Times, Vector, ms};

impl Entity {
    /// updtBPDUVersion.
    pub(crate) fn updt_bpdu_version(&mut self, p: usize, bpdu: &Bpdu) {
        match bpdu {
            Bpdu::Config(_) | Bpdu::Tcn => self.ports[p].rcvd_stp = true,
            Bpdu::Rst(_) | Bpdu::Mst(..) => self.ports[p].rcvd_rstp = true,
        }
    }

    /// fromSameRegion.
    #[allow(clippy::wrong_self_convention)] // the standard's name
    pub(crate) fn from_same_region(&self, bpdu: &Bpdu) -> bool {
        match bpdu {
            Bpdu::Mst(_, mst) => self.bridge.force_version >= 3 && mst.config_id == self.bridge.mst_config_id,
            _ => false,
        }
    }

    /// rcvMsgs: gives each tree its message of the BPDU.
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
        // In a BPDU that leaves a region the regional root stands in place of the designated bridge; an MST BPDU
        // names the sender, too.
        let sender = if let Bpdu::Mst(_, mst) = bpdu { mst.bridge } else { body.bridge };
        self.ports[p].msg_source = (sender.address(), body.port.number());
        let cist = &mut self.ports[p].trees[0];
        cist.rcvd_msg = true;
        cist.msg_flags = body.flags;
        if !matches!(bpdu, Bpdu::Rst(_) | Bpdu::Mst(..)) || body.flags.role == WireRole::UnknownOrMaster {
            // 802.1D-2004, 9.3.3: flags with an unknown role are read as those of a configuration BPDU.
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

    /// Ages out the information of a port's MSTIs, which came from inside the region: the neighbour is
    /// outside now.
    fn age_out_mstis(&mut self, p: usize) {
        for t in 1..self.trees.len() {
            let tree = &mut self.ports[p].trees[t];
            if tree.info_is == InfoIs::Received {
                tree.rcvd_info_while = Timer::Zero;
            }
        }
    }

    /// rcvInfo: compares the message with what the port holds. The senders are compared as well as the
    /// designated bridges: when a region gets another regional root, the same neighbour sends another
    /// designated bridge. A port that took this for another sender would keep the former information until it
    /// ages out.
    pub(crate) fn rcv_info(&self, p: usize, t: usize) -> RcvdInfo {
        let port = &self.ports[p];
        let tree = &port.trees[t];
        let same_source = tree.msg_priority.same_source(&tree.port_priority)
            || (t == 0 && tree.info_is == InfoIs::Received && port.msg_source == port.info_source);
        match tree.msg_flags.role {
            WireRole::Designated => {
                let same = tree.msg_priority == tree.port_priority;
                if tree.msg_priority < tree.port_priority
                    || (!same && same_source)
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
    /// Stricter than the standard in two points, which prevent the forwarding loops that counting to infinity
    /// causes (Elmeleegy, Cox and Ng, "On Count-to-Infinity Induced Forwarding Loops in Ethernet Networks",
    /// 2006). The neighbour must agree about the root that this port conveys; and it must agree to what the
    /// port holds and has sent (`agreements_count`). An agreement that may answer something else is ignored,
    /// and the port proposes again, so no valid agreement is lost, only delayed.
    pub(crate) fn record_agreement(&mut self, p: usize, t: usize) {
        let rstp = self.bridge.rstp_version();
        let port = &mut self.ports[p];
        let internal = port.rcvd_internal;
        let timely = port.trees[t].agreements_count(self.now);
        // A designated neighbour's agreement is not an answer to a proposal; it reports that its side is
        // synced.
        let designated = port.trees[t].msg_flags.role == WireRole::Designated;
        let p2p = port.params.point_to_point && (designated || timely);
        let (message, held) = (&port.trees[0].msg_priority, &port.trees[0].port_priority);
        let same_root = message.root == held.root
            && (!internal || message.of_region() == held.of_region())
            // In an MSTI the neighbour must also agree about the path to the CIST root.
            && (t == 0 || message.of_region() == self.trees[0].root_priority.of_region());
        if t == 0 {
            let tree = &mut port.trees[0];
            let agreed = rstp && p2p && same_root && tree.msg_flags.agreement;
            tree.set_agreed(agreed);
            if agreed && !designated {
                tree.advertised = Some(tree.designated_priority);
            }
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
        let agreed = p2p && same_root && same_regional_root && tree.msg_flags.agreement;
        tree.set_agreed(agreed);
        if agreed && !designated {
            tree.advertised = Some(tree.designated_priority);
        }
    }

    /// recordDispute: an inferior designated neighbour learns or forwards, so it does not receive this port's
    /// BPDUs.
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

    /// Maintains the number of a tree's ports that are, or point to, a master port.
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
        let port = &mut self.ports[p];
        if t == 0 {
            port.info_source = port.msg_source;
        }
        let tree = &mut port.trees[t];
        tree.port_priority = tree.msg_priority;
        tree.port_times = tree.msg_times;
    }

    /// setTcFlags, except for TCN BPDUs, which `rcv_msgs` handles.
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
}
