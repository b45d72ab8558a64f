//! ND inspection as text, in IOS's form.

use super::guard::list;
use super::ios_netdev;
use super::table::columns;
use crate::view::{NdInspection, NdPort, NeighborBinding, NeighborBindings};
use std::fmt::Write;

/// `show ipv6 nd inspection`.
pub fn inspection(view: &NdInspection) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "ND inspection is configured on following VLANs:\n{}", list(&view.vlans));
    let operational = list(&view.operational_vlans);
    let _ = writeln!(text, "ND inspection is operational on following VLANs:\n{operational}");
    let dropped: u64 = view.dropped.values().sum();
    let mut line = |name: &str, count: u64| _ = writeln!(text, " {name:<40} = {count}");
    line("Messages Forwarded", view.forwarded);
    line("Messages Dropped", dropped + view.dropped_by_plane);
    line("Messages Dropped, hidden, by the plane", view.dropped_by_plane);
    for (reason, count) in &view.dropped {
        line(&format!("Messages Dropped, {}", reason.replace('_', " ")), *count);
    }
    line("Questions sent", view.probes);
    line("Bindings without room", view.refused);
    text.push('\n');
    let row = |port: &NdPort| {
        let count = |reason: &str| port.dropped.get(reason).copied().unwrap_or(0).to_string();
        vec![
            ios_netdev(&port.interface),
            if port.trusted { "Trusted" } else { "Untrusted" }.into(),
            port.addresses.to_string(),
            port.address_limit.to_string(),
            count("nd_inspection"),
            if port.source_guard { "enabled" } else { "disabled" }.into(),
            count("source_guard"),
        ]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    let heads = ["Interface", "Trust State", "Addresses", "Limit", "Dropped", "Source Guard", "Dropped"];
    text + &columns(&heads, &rows, &[2, 3, 4, 6])
}

/// `show ipv6 neighbors binding`.
pub fn bindings(view: &NeighborBindings) -> String {
    let statics = view.bindings.iter().filter(|binding| binding.kind == "static").count();
    let row = |binding: &NeighborBinding| {
        vec![
            if binding.kind == "static" { "S" } else { "ND" }.into(),
            binding.address.to_string(),
            binding.mac.to_string(),
            ios_netdev(&binding.interface),
            binding.vlan.to_string(),
            binding.state.into(),
            binding.left_s.map_or_else(|| "N/A".into(), |left_s| format!("{left_s} s")),
        ]
    };
    let rows: Vec<_> = view.bindings.iter().map(row).collect();
    let heads =
        ["Code", "Network Layer Address", "Link Layer Address", "Interface", "vlan", "state", "Time left"];
    format!(
        "Binding Table has {} entries, {} dynamic (limit {})\nCodes: S - Static, ND - Neighbor Discovery\n\n{}",
        view.total,
        view.total - statics,
        view.capacity,
        columns(&heads, &rows, &[4, 6])
    )
}
