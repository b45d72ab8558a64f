//! The contents of BPDUs (IEEE 802.1Q-2018, 13.29: txConfig, txTcn, txRstp).
//!
//! Invariant: a BPDU conveys designatedPriority and designatedTimes, whatever the port's role.

use crate::bpdu::{Bpdu, ConfigBody, Flags, MstPart, MstiMessage, WireRole};
use crate::entity::Entity;
use crate::vars::{Effect, Role};

impl Entity {
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

    /// master: true if another port of the tree leads out of the region, directly or through other bridges.
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
        let life_ms = 3 * self.hello_time(p);
        let port = &mut self.ports[p];
        port.counters.sent(&bpdu);
        port.sent_since_up = port.sent_since_up.saturating_add(1);
        port.trees.iter_mut().for_each(|tree| tree.note_conveyed(self.now, life_ms));
        let port = port.id;
        self.effects.push_back(Effect::Transmit { port, bpdu });
    }
}
