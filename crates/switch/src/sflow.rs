//! Sampling of frames (sFlow): what `sflow ...` means for the plane.
//!
//! Invariant: nothing is sampled without a collector. A port-channel is no netdev; its members are sampled by their own lines.

use crate::ports::PortIds;
use lanyard_config::{Config, InterfaceName};
use lanyard_pipeline::state::PlaneState;

/// Sets the rates of sampled ports.
pub(crate) fn overlay(config: &Config, ids: &PortIds, state: &mut PlaneState) {
    let Some(rate) = config.sflow.sampling() else { return };
    for (name, _) in sampled(config) {
        if let Some(port) = ids.get(&name.to_string()).and_then(|id| state.ports.get_mut(&id)) {
            port.stages.sample = Some(rate);
        }
    }
}

/// The interfaces with `sflow enable`.
pub fn sampled(config: &Config) -> impl Iterator<Item = (&InterfaceName, &lanyard_config::Interface)> {
    let is_sampled = |(name, interface): &(&InterfaceName, &lanyard_config::Interface)| {
        interface.sflow && matches!(name, InterfaceName::Netdev(_)) && name.channel().is_none()
    };
    config.interfaces.iter().filter(is_sampled)
}
