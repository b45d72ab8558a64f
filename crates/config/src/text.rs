//! Helpers for the text of the running configuration. The command line's tables of lines combine them.
//!
//! Invariant: a line that is made here has at most 180 bytes of list besides its keywords; other lines are as
//! long as the user typed them.

pub use crate::format::{chunks, reference};
use crate::{Config, Voice};
use lanyard_types::VlanSet;

/// Lines `no vlan` for access and voice VLANs that do not exist: reading back a port's line would otherwise create
/// them.
#[must_use]
pub fn missing_vlans(config: &Config) -> Vec<String> {
    let ports = || config.interfaces.values().map(|interface| &interface.switchport);
    let voice = ports().filter_map(|port| match port.voice {
        Some(Voice::Vlan(vlan)) => Some(vlan),
        _ => None,
    });
    let created = ports().map(|port| port.access_vlan).chain(voice);
    let missing: VlanSet = created.filter(|vlan| !config.vlans.contains_key(vlan)).collect();
    chunks(&missing).into_iter().map(|part| format!("no vlan {part}")).collect()
}
