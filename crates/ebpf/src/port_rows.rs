//! The rows of ports, whose flags depend on the VLANs that the ports are in.
//!
//! Invariant: while a VLAN has snooping, first-hop security or a primary VLAN, the ports in it have the flags for these settings,
//! because the programs read a VLAN's settings only at ports with the flags. A flag that no VLAN needs costs only a look-up. So a
//! transaction sets the flags for the VLANs of the old and of the new state before its first change, and clears those that are
//! not needed after its last one. It writes the row of each port at most twice for this, however many VLANs change.

use crate::acl;
use crate::error::Result;
use crate::lower::{self, VlanSets};
use crate::plane::EbpfPlane;
use crate::watchdog;
use lanyard_plane::{PlaneState, changes, transact};
use lanyard_types::PortId;

impl EbpfPlane {
    /// Carries out the changes from `before`, which the tables have, to `next`.
    pub(crate) fn change_to(&mut self, before: &PlaneState, next: &PlaneState) -> Result<()> {
        let (was, is) = (VlanSets::of(before), VlanSets::of(next));
        let both = was.union(&is);
        self.vlan_flags = both.clone();
        if both != was {
            self.write_rows();
        }
        let done = transact(self, changes(before, next));
        self.vlan_flags = VlanSets::default();
        let left = if done.is_ok() { is } else { was };
        if both != left {
            self.write_rows();
        }
        done
    }

    /// Writes the rows of a port.
    pub(crate) fn write_row(&self, id: PortId) {
        self.write_row_in(id, &self.flagged());
    }

    /// Writes the rows of all ports of the state.
    pub(crate) fn write_rows(&self) {
        let sets = self.flagged();
        self.state.ports.keys().for_each(|id| self.write_row_in(*id, &sets));
    }

    /// Writes the rows of a port, given the sets of VLANs of the state.
    pub(crate) fn write_row_in(&self, id: PortId, sets: &VlanSets) {
        #[cfg(test)]
        self.rows_written.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let facts = self.facts.get(&id).cloned().unwrap_or_default();
        let port = self.state.ports.get(&id);
        self.tables.stages.write(id, port);
        acl::write_port(&self.tables, id, port);
        self.policies.write(&self.tables, id, port);
        let rif = self.rif_on(id);
        let row = port.map(|port| {
            let flags = acl::flags(port, self.vlan_lists);
            lower::port_row(port, self.ifindex(id, port), &facts, rif, sets, flags)
        });
        let row = row.unwrap_or_default();
        self.tables.ports.set(id.index(), &row);
        watchdog::end_lease_again(&self.tables, id);
    }

    /// The VLANs for which ports have flags at present.
    fn flagged(&self) -> VlanSets {
        VlanSets::of(&self.state).union(&self.vlan_flags)
    }
}
