//! `show mac address-table`, `show vlan`.

use super::table::{columns, wrap};
use crate::config_view::Learning;
use crate::view::{MacCount, MacEntry, MacTotal, VlanTable};
use lanyard_types::VlanId;
use std::fmt::Write;

/// The first lines of `show mac address-table`.
pub const MAC_HEADING: &str = "          Mac Address Table\n-------------------------------------------\n\n\
    Vlan    Mac Address       Type        Ports\n----    -----------       --------    -----\n";

/// Appends an entry of `show mac address-table`.
pub fn mac_entry(entry: &MacEntry, out: &mut String) {
    let port = entry.interface.as_deref().map_or_else(|| "Drop".into(), super::ios_netdev);
    let kind = entry.kind.to_ascii_uppercase();
    let _ = writeln!(out, "{:>4}    {}    {kind:<8}    {port}", entry.vlan, entry.mac);
}

/// Appends the last line of `show mac address-table`.
pub fn mac_total(view: &MacTotal, out: &mut String) {
    let _ = writeln!(out, "Total Mac Addresses for this criterion: {}", view.total);
}

/// `show mac address-table count`.
pub fn mac_count(view: &MacCount, vlan: Option<VlanId>) -> String {
    let title = vlan.map_or_else(|| "all vlans".into(), |vlan| format!("Vlan {vlan}"));
    let free = view.capacity.saturating_sub(view.dynamic);
    let mut out = format!("Mac Entries for {title}:\n---------------------------\n");
    for (label, count) in [
        ("Dynamic Address Count", view.dynamic),
        ("Static  Address Count", view.fixed),
        ("Sticky  Address Count", view.sticky),
        ("Self    Address Count", view.own),
        ("Total Mac Addresses  ", view.total),
        ("Refused Addresses    ", view.refused),
    ] {
        let _ = writeln!(out, "{label}  : {count}");
    }
    let _ = writeln!(out, "\nTotal Mac Address Space Available: {free}");
    out
}

/// `show mac address-table learning`.
pub fn learning(view: &Learning) -> String {
    let row = |entry: &crate::config_view::LearningVlan| {
        let limit = entry.limit.map_or_else(|| "-".into(), |limit| limit.to_string());
        vec![entry.vlan.to_string(), if entry.learning { "yes" } else { "no" }.into(), limit]
    };
    let rows: Vec<_> = view.vlans.iter().map(row).collect();
    columns(&["VLAN", "Learning Enabled", "Limit"], &rows, &[0])
}

/// `show vlan [brief]`: trunks are not listed, as in IOS.
pub fn vlans(view: &VlanTable, width: usize) -> String {
    let mut out = String::from("\nVLAN Name                             Status    Ports\n");
    out.push_str("---- -------------------------------- --------- -------------------------------\n");
    let indent = 48;
    for entry in &view.vlans {
        let ports: Vec<String> =
            entry.ports.iter().filter(|p| !p.trunk).map(|p| p.interface.clone()).collect();
        let mut lines = wrap(&ports, width.saturating_sub(indent).max(31)).into_iter();
        let first = lines.next().unwrap_or_default();
        let line = format!("{:<4} {:<32} {:<9} {first}", entry.vlan, entry.name, entry.status);
        let _ = writeln!(out, "{}", line.trim_end());
        for line in lines {
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
    }
    out
}
