//! Helpers for the text of the running configuration. The command line's tables of lines combine them.
//!
//! Invariant: a line that is made here has at most 180 bytes of list besides its keywords; other lines are as
//! long as the user typed them.

use crate::Config;
pub use crate::format::{chunks, reference};
use lanyard_types::VlanSet;

/// Lines `no vlan` for access VLANs that do not exist: reading back a port's access line would otherwise
/// create them.
#[must_use]
pub fn missing_vlans(config: &Config) -> Vec<String> {
    let access = config.interfaces.values().map(|interface| interface.switchport.access_vlan);
    let missing: VlanSet = access.filter(|vlan| !config.vlans.contains_key(vlan)).collect();
    chunks(&missing).into_iter().map(|part| format!("no vlan {part}")).collect()
}
