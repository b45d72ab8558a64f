//! Blocks ports because of what they receive: their own BPDUs, or BPDUs of another VLAN or tree.

use super::{Entity, Hold};
use crate::bpdu::{Bpdu, BridgeId, WireRole};
use crate::events::Event;
use crate::vars::{InfoIs, Timer};
use lanyard_types::PortId;

impl Entity {
    /// True for the port's own BPDU, which some device beyond it has sent back (802.1D-2004, 9.3.4 a 3).
    pub(super) fn hears_itself(&mut self, p: usize, bpdu: &Bpdu) -> bool {
        let Some(body) = bpdu.body() else { return false };
        let sender = match bpdu {
            Bpdu::Mst(_, mst) => mst.bridge,
            _ => body.bridge,
        };
        let port = &mut self.ports[p];
        let own = sender.address() == self.bridge.address;
        port.counters.rx_own += u64::from(own);
        own && body.port.number() == port.trees[0].port_id.number() && port.params.enabled
    }

    pub(super) fn self_loop(&mut self, p: usize) {
        let hold_ms = 3 * self.hello_time(p);
        let port = &mut self.ports[p];
        port.self_loop_while = Timer::start(self.now, hold_ms);
        port.oper_edge = false;
        self.apply_holds(p);
        self.mark_all_trees(p);
        self.run(None);
    }

    /// Blocks a port that received a contradicting PVST+ BPDU. True when the port was not blocked for this reason
    /// before.
    pub(crate) fn hold(&mut self, now: u64, id: PortId, hold: Hold) -> bool {
        let Some(p) = self.slot(id) else { return false };
        self.now = now;
        let hold_ms = 3 * self.hello_time(p);
        let port = &mut self.ports[p];
        let timer = match hold {
            Hold::Pvid => &mut port.pvid_while,
            Hold::Type => &mut port.type_while,
            Hold::Pvst => &mut port.pvst_while,
        };
        let fresh = timer.is_zero(now);
        *timer = Timer::start(now, hold_ms);
        port.oper_edge = false;
        self.apply_holds(p);
        self.mark_all_trees(p);
        self.run(None);
        fresh
    }

    /// Sends the port's BPDU again, as soon as the hold count allows.
    pub(crate) fn announce(&mut self, now: u64, id: PortId) {
        let Some(p) = self.slot(id) else { return };
        self.now = now;
        self.ports[p].new_info = true;
        self.mark(p, 0);
        self.run(None);
    }

    /// PVST simulation: returns the root, and whether it is superior, if a VLAN's tree beyond the region's border
    /// contradicts the CIST. If the CIST root is beyond the border, the information of every VLAN must be at least
    /// as good as the CIST's; if it is not, no VLAN may have superior information.
    pub(crate) fn contradicts(&self, id: PortId, bpdu: &Bpdu) -> Option<(BridgeId, bool)> {
        let tree = &self.ports[self.slot(id)?].trees[0];
        let body = bpdu.body()?;
        let designated = matches!(bpdu, Bpdu::Config(_)) || body.flags.role == WireRole::Designated;
        let outside = tree.info_is == InfoIs::Received && tree.port_priority < tree.designated_priority;
        let (held, designated_priority) = (&tree.port_priority, &tree.designated_priority);
        let claim = (body.root, body.root_path_cost, body.bridge);
        match outside {
            _ if !designated => None,
            true => (claim > held.of_region()).then_some((body.root, false)),
            false => (claim < designated_priority.of_region()).then_some((body.root, true)),
        }
    }

    /// Copies the port's reasons for blocking into its trees.
    pub(super) fn apply_holds(&mut self, p: usize) {
        let now = self.now;
        let port = &mut self.ports[p];
        let id = port.id;
        let self_loop = !port.self_loop_while.is_zero(now);
        let (pvid, port_type) = (!port.pvid_while.is_zero(now), !port.type_while.is_zero(now));
        let pvst = !port.pvst_while.is_zero(now);
        let before = port.trees[0].inconsistent;
        for tree in &mut port.trees {
            tree.inconsistent.self_loop = self_loop;
            tree.inconsistent.pvid = pvid;
            tree.inconsistent.port_type = port_type;
            tree.inconsistent.pvst = pvst;
        }
        if before.self_loop != self_loop {
            self.event(Event::SelfLoop { vlan: self.vlan, port: id, blocked: self_loop });
        }
        if before.pvst && !pvst {
            self.event(Event::PvstSimOk { port: id });
        }
        if let Some(vlan) = self.vlan
            && (before.pvid || before.port_type)
            && !pvid
            && !port_type
        {
            self.event(Event::Consistent { vlan, port: id });
        }
        if before != self.ports[p].trees[0].inconsistent {
            for t in 0..self.trees.len() {
                self.reselect(p, t);
            }
        }
    }
}
