//! The router interfaces, with look-ups by VLAN, port and tag.
//!
//! Invariant: at most one interface is attached to a VLAN, a routed port, or a tag of one (`validate::check` enforces
//! it).

use crate::route::{RifAttachment, RifState};
use lanyard_types::{PortId, RifId, VlanId};
use std::collections::BTreeMap;

/// The router interfaces.
#[derive(Debug, Default)]
pub struct Rifs {
    slots: BTreeMap<RifId, RifState>,
    vlans: BTreeMap<VlanId, RifId>,
    ports: BTreeMap<PortId, RifId>,
    high_water: usize,
}

impl Rifs {
    /// The interface.
    #[must_use]
    pub fn get(&self, rif: RifId) -> Option<&RifState> {
        self.slots.get(&rif)
    }
    /// The interface's name; its number when there is none.
    #[must_use]
    pub fn name(&self, rif: RifId) -> String {
        self.get(rif).map_or_else(|| format!("interface {rif}"), |state| state.name.clone())
    }
    /// The interface of a VLAN.
    #[must_use]
    pub fn on_vlan(&self, vlan: VlanId) -> Option<(RifId, &RifState)> {
        self.found(self.vlans.get(&vlan))
    }
    /// The interface of a routed port, or of a subinterface by its `up` port.
    #[must_use]
    pub fn on_port(&self, port: PortId) -> Option<(RifId, &RifState)> {
        self.found(self.ports.get(&port))
    }
    /// The number of interfaces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// True when there is no interface.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// The largest number of interfaces so far.
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.high_water
    }
    /// Adds, replaces or removes an interface.
    pub fn set(&mut self, rif: RifId, state: Option<RifState>) {
        self.vlans.retain(|_, on| *on != rif);
        self.ports.retain(|_, on| *on != rif);
        match &state {
            Some(state) => match state.attachment {
                RifAttachment::Vlan { vlan, .. } => _ = self.vlans.insert(vlan, rif),
                RifAttachment::Port(port) | RifAttachment::Subinterface { up: port, .. } => {
                    self.ports.insert(port, rif);
                }
            },
            None => _ = self.slots.remove(&rif),
        }
        self.slots.extend(state.map(|state| (rif, state)));
        self.high_water = self.high_water.max(self.slots.len());
    }
    /// The identifiers, ascending.
    pub fn ids(&self) -> impl Iterator<Item = RifId> + '_ {
        self.slots.keys().copied()
    }

    fn found(&self, rif: Option<&RifId>) -> Option<(RifId, &RifState)> {
        rif.and_then(|rif| self.slots.get(rif).map(|state| (*rif, state)))
    }
}
