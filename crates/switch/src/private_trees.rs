//! The spanning trees of private VLANs: a secondary VLAN belongs to the tree of its primary VLAN.

use lanyard_config::Config;
use lanyard_pipeline::state::PlaneState;
use lanyard_types::VlanSet;
use std::collections::BTreeMap;

/// Gives secondary VLANs the spanning tree of their primary VLANs.
pub(crate) fn follow_trees(state: &mut PlaneState) {
    let instances: BTreeMap<_, _> = state.vlans.iter().map(|(id, vlan)| (*id, vlan.instance)).collect();
    for vlan in state.vlans.values_mut() {
        if let Some(instance) = vlan.shares.and_then(|shares| instances.get(&shares.primary)) {
            vlan.instance = *instance;
        }
    }
}

/// The secondary VLANs that have no spanning tree of their own.
pub(crate) fn without_tree(config: &Config) -> VlanSet {
    config.vlans.keys().copied().filter(|vlan| config.primary_of(*vlan).is_some()).collect()
}
