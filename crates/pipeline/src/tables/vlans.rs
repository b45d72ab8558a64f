//! The VLANs and, for each, its member ports.
//!
//! Invariant: `members(vlan)` holds exactly the ports whose `tagged` or `untagged` set has the VLAN, whether
//! or not the VLAN is active: membership and activity are independent.

use super::ports::put;
use crate::state::{PortState, VlanState};
use lanyard_types::{MAX_VLANS, PortId, PortSet, VlanId};

/// The VLAN table.
#[derive(Debug)]
pub struct Vlans {
    active: Vec<Option<VlanState>>,
    count: usize,
    high_water: usize,
    members: Vec<PortSet>,
}

impl Default for Vlans {
    fn default() -> Self {
        Self {
            active: vec![None; MAX_VLANS],
            count: 0,
            high_water: 0,
            members: vec![PortSet::EMPTY; MAX_VLANS],
        }
    }
}

impl Vlans {
    /// The VLAN's state; `None` when it is not active.
    #[must_use]
    pub fn get(&self, vlan: VlanId) -> Option<&VlanState> {
        self.active[vlan.index()].as_ref()
    }
    /// The VLAN under which the FDB and the MDB have the addresses and groups of `vlan`: for a secondary private VLAN, its
    /// primary VLAN.
    #[must_use]
    pub fn shared(&self, vlan: VlanId) -> VlanId {
        self.get(vlan).and_then(|state| state.shares).map_or(vlan, |shares| shares.primary)
    }
    /// The VLAN whose router interface `vlan` uses: its own, or for a secondary private VLAN that of its primary VLAN, if it
    /// may reach it.
    #[must_use]
    pub fn routed(&self, vlan: VlanId) -> VlanId {
        let shares = self.get(vlan).and_then(|state| state.shares).filter(|shares| shares.routed);
        shares.map_or(vlan, |shares| shares.primary)
    }
    /// The number of active VLANs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }
    /// The largest number of VLANs that were active at once.
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.high_water
    }
    /// True when no VLAN is active.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Ports that carry the VLAN, tagged or untagged.
    #[must_use]
    pub fn members(&self, vlan: VlanId) -> &PortSet {
        &self.members[vlan.index()]
    }
    /// The active VLANs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (VlanId, &VlanState)> {
        VlanId::all().filter_map(|vlan| self.get(vlan).map(|state| (vlan, state)))
    }
    /// Activates, changes or removes a VLAN; returns the previous state.
    pub fn set(&mut self, vlan: VlanId, state: Option<VlanState>) -> Option<VlanState> {
        let came = usize::from(state.is_some());
        let was = std::mem::replace(&mut self.active[vlan.index()], state);
        self.count = self.count + came - usize::from(was.is_some());
        self.high_water = self.high_water.max(self.count);
        was
    }
    /// Makes a port a member of the VLANs that its state names, and of no other.
    pub fn set_membership(&mut self, port: PortId, state: Option<&PortState>) {
        for vlan in VlanId::all() {
            let member = state.is_some_and(|s| s.tagged.contains(vlan) || s.untagged.contains(vlan));
            put(&mut self.members[vlan.index()], port, member);
        }
    }
}
