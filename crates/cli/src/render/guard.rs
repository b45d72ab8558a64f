//! First-hop security as text, in IOS's form.

use super::ios_netdev;
use super::table::columns;
use crate::view::{GuardArp, GuardBindings, GuardDhcp, GuardPorts, GuardSources, GuardStatistics};
use lanyard_types::{VlanId, VlanSet};
use std::fmt::Write;

pub(super) fn list(vlans: &[u16]) -> String {
    let set: VlanSet = vlans.iter().filter_map(|vlan| VlanId::new(*vlan)).collect();
    if set.is_empty() { "none".into() } else { set.to_string() }
}

const fn on(on: bool) -> &'static str {
    if on { "enabled" } else { "disabled" }
}

const fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// `show ip dhcp snooping`.
pub fn dhcp(view: &GuardDhcp) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "Switch DHCP snooping is {}", on(view.enabled));
    let _ = writeln!(text, "DHCP snooping is configured on following VLANs:\n{}", list(&view.vlans));
    let operational = list(&view.operational_vlans);
    let _ = writeln!(text, "DHCP snooping is operational on following VLANs:\n{operational}");
    let _ = writeln!(text, "Insertion of option 82 is {}", on(view.information_option));
    let untrusted = if view.allow_untrusted { "allowed" } else { "not allowed" };
    let _ = writeln!(text, "Option 82 on untrusted port is {untrusted}");
    let _ = writeln!(text, "Verification of hwaddr field is {}", on(view.verify_mac));
    let _ = writeln!(text, "DHCP snooping trust/rate is configured on the following Interfaces:\n");
    let row = |port: &crate::view::GuardDhcpPort| {
        let rate = port.rate_limit_pps.map_or_else(|| "unlimited".into(), |rate| rate.to_string());
        vec![ios_netdev(&port.interface), yes(port.trusted).into(), rate]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    text + &columns(&["Interface", "Trusted", "Rate limit (pps)"], &rows, &[])
}

/// `show ip dhcp snooping binding`, `show ip source binding`.
pub fn bindings(view: &GuardBindings) -> String {
    let row = |binding: &crate::view::GuardBinding| {
        let lease = binding.lease_s.map_or_else(|| "infinite".into(), |lease| lease.to_string());
        vec![
            binding.mac.to_string(),
            binding.address.to_string(),
            lease,
            binding.kind.into(),
            binding.vlan.to_string(),
            ios_netdev(&binding.interface),
        ]
    };
    let rows: Vec<_> = view.bindings.iter().map(row).collect();
    let heads = ["MacAddress", "IpAddress", "Lease(sec)", "Type", "VLAN", "Interface"];
    format!("{}Total number of bindings: {}\n", columns(&heads, &rows, &[2, 4]), view.total)
}

/// `show ip dhcp snooping statistics`.
pub fn statistics(view: &GuardStatistics) -> String {
    let mut text = String::new();
    let dropped: u64 = view.dropped.values().sum();
    let mut line = |name: &str, count: u64| _ = writeln!(text, " {name:<50} = {count}");
    line("Packets Forwarded", view.forwarded);
    line("Packets Dropped", dropped + view.dropped_by_plane);
    line("Packets Dropped From untrusted ports, by the plane", view.dropped_by_plane);
    for (reason, count) in &view.dropped {
        line(&format!("Packets Dropped, {}", reason.replace('_', " ")), *count);
    }
    line("Bindings without room", view.refused);
    text
}

/// `show ip arp inspection`.
pub fn arp(view: &GuardArp) -> String {
    let mut text = String::new();
    let words = |on: bool| if on { "Enabled" } else { "Disabled" };
    let _ = writeln!(text, "Source Mac Validation      : {}", words(view.validate_src_mac));
    let _ = writeln!(text, "Destination Mac Validation : {}", words(view.validate_dst_mac));
    let zeros = if view.allow_zeros { " (0.0.0.0 allowed)" } else { "" };
    let _ = writeln!(text, "IP Address Validation      : {}{zeros}\n", words(view.validate_ip));
    let rows: Vec<_> = view.vlans.iter().map(|vlan| vec![vlan.to_string(), "Enabled".into()]).collect();
    text + &columns(&["Vlan", "Configuration"], &rows, &[0])
}

/// `show ip arp inspection interfaces`.
pub fn arp_interfaces(view: &GuardPorts) -> String {
    let row = |port: &crate::view::GuardPort| {
        let trust = if port.arp_trusted { "Trusted" } else { "Untrusted" };
        let (rate, burst) = match port.arp_rate_pps {
            Some(rate) => (rate.to_string(), port.arp_burst_interval_s.to_string()),
            None => ("None".into(), "N/A".into()),
        };
        vec![ios_netdev(&port.interface), trust.into(), rate, burst]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Interface", "Trust State", "Rate (pps)", "Burst Interval"], &rows, &[2, 3])
}

/// `show ip arp inspection statistics`.
pub fn arp_statistics(view: &GuardPorts) -> String {
    let row = |port: &crate::view::GuardPort| {
        let count = |reason: &str| port.dropped.get(reason).copied().unwrap_or(0).to_string();
        vec![ios_netdev(&port.interface), count("arp_inspection"), count("arp_rate")]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Interface", "Dropped", "Over Rate"], &rows, &[1, 2])
}

/// `show ipv6 nd raguard`.
pub fn guards(view: &GuardPorts) -> String {
    let row = |port: &crate::view::GuardPort| {
        let count = |reason: &str| port.dropped.get(reason).copied().unwrap_or(0).to_string();
        vec![
            ios_netdev(&port.interface),
            on(port.raguard).into(),
            count("ra_guard"),
            on(port.dhcp_guard).into(),
            count("dhcpv6_guard"),
        ]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Interface", "RA Guard", "Dropped", "DHCPv6 Guard", "Dropped"], &rows, &[2, 4])
}

/// `show ip verify source`.
pub fn sources(view: &GuardSources) -> String {
    let row = |filter: &crate::view::GuardSource| {
        let (address, mac, vlan) = match &filter.binding {
            Some(binding) => (binding.address.to_string(), binding.mac.to_string(), binding.vlan.to_string()),
            None => ("deny-all".into(), "deny-all".into(), String::new()),
        };
        let mac = if filter.filter_type == "ip-mac" { mac } else { String::new() };
        vec![
            ios_netdev(&filter.interface),
            filter.filter_type.into(),
            "active".into(),
            address,
            mac,
            vlan,
            filter.dropped.to_string(),
        ]
    };
    let rows: Vec<_> = view.filters.iter().map(row).collect();
    let heads = ["Interface", "Filter-type", "Filter-mode", "IP-address", "Mac-address", "Vlan", "Dropped"];
    columns(&heads, &rows, &[6])
}
