//! Formats views as text in IOS's layout.

mod access;
pub mod aggregation;
mod change;
pub mod discovery;
pub mod dot1x;
mod fpm;
pub mod guard;
mod interface;
mod layer2;
mod layer3;
mod machine;
pub mod nd_inspection;
mod ntp;
mod platform;
mod qos;
mod route;
mod services;
pub mod snooping;
mod spanning_tree;
mod system;
mod table;
pub mod tacacs;

pub use access::{audit_log, privilege};
pub use change::{archive, configuration_lock, scheduled_reload};
pub use fpm::{fpm, fpm_counters};
pub use interface::{
    counters, descriptions, drops, err_disabled, errors, interfaces, status, switchports, trunks,
};
pub use layer2::{MAC_HEADING, learning, mac_count, mac_entry, mac_total, vlans};
pub use layer3::{ip_brief, ip_interfaces, ipv6_brief, neighbors};
pub use machine::{clock, inventory, log_persistent, processes};
pub use ntp::{ntp_associations, ntp_status};
pub use platform::{front_panel, pipeline, transceivers};
pub use qos::{class_maps, mls_qos, policy_maps, service_policies};
pub use route::{cef, cef_detail, cef_exact, cef_summary, route_entries, route_summary, routes};
pub use services::{dhcp_relay, tracks, tracks_brief, vrfs, vrrp, vrrp_brief};
pub use spanning_tree::{
    mst, mst_configuration, spanning_tree, spanning_tree_blocked, spanning_tree_detail,
    spanning_tree_inconsistent, spanning_tree_interface, spanning_tree_root, spanning_tree_summary,
};
pub use system::{logging, packet_trace, platform, resources, sessions, traps, users, version};
pub(crate) use table::{columns, enabled};

use lanyard_config::InterfaceName;

/// A number and what it counts: `1 minute`, `2 minutes`. The plural of `noun` ends in `s`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The name of an interface in IOS's form: `Vlan10`; netdevs keep their name.
#[must_use]
pub fn ios_name(name: &InterfaceName) -> String {
    match name {
        InterfaceName::Netdev(name) => name.clone(),
        InterfaceName::Vlan(vlan) => format!("Vlan{vlan}"),
    }
}

/// The name of a netdev in IOS's form: `Vlan10` for `vlan10`.
#[must_use]
pub fn ios_netdev(name: &str) -> String {
    match name.strip_prefix("vlan").and_then(|number| number.parse::<lanyard_types::VlanId>().ok()) {
        Some(vlan) => format!("Vlan{vlan}"),
        None => name.to_owned(),
    }
}
