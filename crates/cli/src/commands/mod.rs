//! The commands: one tree for each mode, put together from one file for each topic.

mod exec;
mod files;
mod forwarding;
mod fpm;
mod global;
mod interface;
mod ip;
mod layer3;
mod mac;
mod route;
mod session;
mod show;
mod show_ip;
mod show_stp;
mod spanning_tree;
mod track;
mod vlan;
mod vrf;
mod vrrp;

use crate::backend::Refusal;
use crate::tree::{Node, Special, join, kw};

/// What every configuration mode has.
const COMMON: &[Node] = &[
    kw("default", "Set a command to its defaults").special(Special::Default),
    kw("do", "To run exec commands in config mode").special(Special::Do),
    kw("end", "Exit from configure mode").exec(exec::end),
    kw("exit", "Exit from the current mode").exec(exec::exit),
    kw("no", "Negate a command or set its defaults").special(Special::No),
];

/// `>` and `#`.
pub const EXEC: &[Node] = exec::TREE;
/// `(config)#`.
pub const GLOBAL: &[Node] = &join::<{ global::TREE.len() + COMMON.len() }>(global::TREE, COMMON);
/// `(config-if)#`.
pub const INTERFACE: &[Node] = &join::<{ interface::TREE.len() + COMMON.len() }>(interface::TREE, COMMON);
/// `(config-vlan)#`.
pub const VLAN: &[Node] = &join::<{ vlan::TREE.len() + COMMON.len() }>(vlan::TREE, COMMON);
/// `(config-mst)#`.
pub const MST: &[Node] =
    &join::<{ spanning_tree::REGION.len() + COMMON.len() }>(spanning_tree::REGION, COMMON);
/// `(config-vrf)#`, `(config-vrf-af)#`.
pub const VRF: &[Node] = &join::<{ vrf::TREE.len() + COMMON.len() }>(vrf::TREE, COMMON);
/// `(config-track)#`.
pub const TRACK: &[Node] = &join::<{ track::TREE.len() + COMMON.len() }>(track::TREE, COMMON);
/// `(config-s-NAME)#`.
pub const SESSION: &[Node] = &join::<{ session::TREE.len() + GLOBAL.len() }>(session::TREE, GLOBAL);

/// True for what every configuration mode has.
pub fn is_common(node: &Node) -> bool {
    COMMON.iter().any(|common| common.label() == node.label())
}

/// What a handler's argument is when the line does not have it, which the tree allows only in `no` forms.
fn need<T>(value: Option<T>) -> Result<T, Refusal> {
    value.ok_or_else(|| "Incomplete command.".into())
}
