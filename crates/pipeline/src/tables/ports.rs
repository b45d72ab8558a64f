//! The ports, and the sets that decide floods.
//!
//! Invariant: a port is in a set exactly when its state says so; a port that does not exist is in none.

use crate::state::{PortKind, PortState};
use lanyard_types::{ChannelId, MAX_PORTS, PortId, PortSet, VlanId};
use std::collections::BTreeMap;

/// The ports of the plane.
#[derive(Debug)]
pub struct Ports {
    slots: Vec<Option<PortState>>,
    high_water: usize,
    /// Ports that may receive and send.
    pub enabled: PortSet,
    /// Protected ports.
    pub isolated: PortSet,
    /// Ports that receive floods of unknown unicast.
    pub flood_unicast: PortSet,
    /// Ports that receive floods of multicast.
    pub flood_multicast: PortSet,
    /// The pipeline's port of each subinterface, by routed port and tag.
    subinterfaces: BTreeMap<(PortId, VlanId), PortId>,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            slots: vec![None; MAX_PORTS],
            high_water: 0,
            enabled: PortSet::EMPTY,
            isolated: PortSet::EMPTY,
            flood_unicast: PortSet::EMPTY,
            flood_multicast: PortSet::EMPTY,
            subinterfaces: BTreeMap::new(),
        }
    }
}

impl Ports {
    /// The port's state.
    #[must_use]
    pub fn get(&self, port: PortId) -> Option<&PortState> {
        self.slots[port.index()].as_ref()
    }
    /// The port's netdev name; its number when there is no such port.
    #[must_use]
    pub fn name(&self, port: PortId) -> String {
        self.get(port).map_or_else(|| format!("port {port}"), |state| state.name.clone())
    }
    /// The number of the port-channel whose port this is; `None` for other ports.
    #[must_use]
    pub fn channel(&self, port: PortId) -> Option<ChannelId> {
        self.get(port).and_then(|state| state.aggregation.channel())
    }
    /// True for the pipeline's end of a VLAN interface.
    #[must_use]
    pub fn is_svi(&self, port: PortId) -> bool {
        self.get(port).is_some_and(|state| matches!(state.kind, PortKind::Svi(_)))
    }
    /// The number of ports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }
    /// The largest number of ports so far.
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.high_water
    }
    /// True when there is no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The ports, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (PortId, &PortState)> {
        PortId::all().filter_map(|port| self.get(port).map(|state| (port, state)))
    }
    /// The subinterface's port for this tag of a routed port.
    #[must_use]
    pub fn subinterface(&self, parent: PortId, vlan: VlanId) -> Option<PortId> {
        self.subinterfaces.get(&(parent, vlan)).copied()
    }
    /// Adds, replaces or removes a port; returns the previous state.
    pub fn set(&mut self, port: PortId, state: Option<PortState>) -> Option<PortState> {
        let is = |test: fn(&PortState) -> bool| state.as_ref().is_some_and(test);
        put(&mut self.enabled, port, is(|state| state.enabled));
        put(&mut self.isolated, port, is(|state| state.isolated));
        put(&mut self.flood_unicast, port, is(|state| state.flood_unicast));
        put(&mut self.flood_multicast, port, is(|state| state.flood_multicast));
        self.subinterfaces.retain(|_, end| *end != port);
        if let Some(PortKind::Subinterface { parent, vlan }) = state.as_ref().map(|state| state.kind) {
            self.subinterfaces.insert((parent, vlan), port);
        }
        let was = std::mem::replace(&mut self.slots[port.index()], state);
        self.high_water = self.high_water.max(self.len());
        was
    }
}

/// Adds `port` to `set`, or removes it.
pub(crate) fn put(set: &mut PortSet, port: PortId, member: bool) {
    if member {
        set.insert(port);
    } else {
        set.remove(port);
    }
}
