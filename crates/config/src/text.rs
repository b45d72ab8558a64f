//! Pieces of the running configuration's text. The command line's tables of lines put them together.
//!
//! Invariant: no line is longer than 180 bytes of list and its keywords, or than what the user typed.

use crate::Config;
pub use crate::format::{chunks, reference};
use lanyard_types::VlanSet;

/// Access VLANs that do not exist: the ports' lines would make them.
#[must_use]
pub fn missing_vlans(config: &Config) -> Vec<String> {
    let access = config.interfaces.values().map(|interface| interface.switchport.access_vlan);
    let missing: VlanSet = access.filter(|vlan| !config.vlans.contains_key(vlan)).collect();
    chunks(&missing).into_iter().map(|part| format!("no vlan {part}")).collect()
}
