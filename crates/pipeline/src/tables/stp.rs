//! Spanning-tree states, stored as the sets of ports that are not forwarding.
//!
//! Invariant: a port is in at most one of an instance's two sets; in neither, it forwards. States may be set
//! before their port exists, so that a new port does not forward before its state is set.

use super::ports::put;
use crate::state::StpState;
use lanyard_types::{InstanceId, PortId, PortSet};

/// The states of every port in every instance.
#[derive(Debug)]
pub struct SpanningTree {
    discarding: Vec<PortSet>,
    learning: Vec<PortSet>,
}

impl Default for SpanningTree {
    fn default() -> Self {
        Self {
            discarding: vec![PortSet::EMPTY; InstanceId::MAX],
            learning: vec![PortSet::EMPTY; InstanceId::MAX],
        }
    }
}

impl SpanningTree {
    /// The port's state in one instance.
    #[must_use]
    pub fn get(&self, instance: InstanceId, port: PortId) -> StpState {
        if self.discarding[instance.index()].contains(port) {
            StpState::Discarding
        } else if self.learning[instance.index()].contains(port) {
            StpState::Learning
        } else {
            StpState::Forwarding
        }
    }
    /// Ports that do not forward in the instance.
    #[must_use]
    pub fn blocked(&self, instance: InstanceId) -> PortSet {
        self.discarding[instance.index()].union(&self.learning[instance.index()])
    }
    /// Sets the port's state in one instance.
    pub fn set(&mut self, instance: InstanceId, port: PortId, state: StpState) {
        put(&mut self.discarding[instance.index()], port, state == StpState::Discarding);
        put(&mut self.learning[instance.index()], port, state == StpState::Learning);
    }
    /// Makes every port forward in every instance.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
