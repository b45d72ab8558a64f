//! `show lldp ...` and `show cdp ...` as text.

use super::table::columns;
use crate::view::{
    CivicLocations, DiscoveryDetails, DiscoveryEntries, DiscoveryErrors, DiscoveryInterface,
    DiscoveryNeighbour, DiscoveryNeighbours, DiscoveryState, ElinLocations,
};
use std::fmt::Write;

const LLDP_CODES: &str = "Capability codes:\n    \
    (R) Router, (B) Bridge, (T) Telephone, (C) DOCSIS Cable Device\n    \
    (W) WLAN Access Point, (P) Repeater, (S) Station, (O) Other\n\n";
const CDP_CODES: &str = "Capability Codes: R - Router, T - Trans Bridge, B - Source Route Bridge\n                  \
    S - Switch, H - Host, I - IGMP, r - Repeater, P - Phone,\n                  \
    D - Remote, C - CVTA, M - Two-port Mac Relay\n\n";
const LINE: &str = "------------------------------------------------\n";

/// `show lldp neighbors`.
pub fn lldp_neighbors(view: &DiscoveryNeighbours) -> String {
    let row = |known: &DiscoveryNeighbour| {
        vec![
            known.system_name.clone().unwrap_or_else(|| known.chassis_id.clone()),
            known.interface.clone(),
            known.details.hold_time_s.to_string(),
            known.details.enabled_capabilities.clone(),
            known.port_id.clone(),
        ]
    };
    let rows: Vec<_> = view.neighbors.iter().map(row).collect();
    let table = columns(&["Device ID", "Local Intf", "Hold-time", "Capability", "Port ID"], &rows, &[]);
    format!("{LLDP_CODES}{table}\nTotal entries displayed: {}\n", rows.len())
}

/// `show cdp neighbors`.
pub fn cdp_neighbors(view: &DiscoveryNeighbours) -> String {
    let row = |known: &DiscoveryNeighbour| {
        vec![
            known.chassis_id.clone(),
            known.interface.clone(),
            known.ttl_s.to_string(),
            known.details.capabilities.clone(),
            known.details.platform.clone().unwrap_or_default(),
            known.port_id.clone(),
        ]
    };
    let rows: Vec<_> = view.neighbors.iter().map(row).collect();
    let head = ["Device ID", "Local Intrfce", "Holdtme", "Capability", "Platform", "Port ID"];
    format!("{CDP_CODES}{}\nTotal cdp entries displayed : {}\n", columns(&head, &rows, &[]), rows.len())
}

/// `show lldp neighbors detail`.
pub fn lldp_detail(view: &DiscoveryNeighbours) -> String {
    let entries = view.neighbors.iter().map(|known| lldp_entry(known, &known.details));
    total(entries.collect(), "Total entries displayed:")
}

/// `show lldp entry`.
pub fn lldp_entries(view: &DiscoveryEntries) -> String {
    let entries = view.entries.iter().map(|entry| lldp_entry(&entry.neighbor, &entry.details));
    total(entries.collect(), "Total entries displayed:")
}

/// `show cdp neighbors detail`.
pub fn cdp_detail(view: &DiscoveryNeighbours) -> String {
    let entries = view.neighbors.iter().map(|known| cdp_entry(known, &known.details));
    total(entries.collect(), "Total cdp entries displayed :")
}

/// `show cdp entry`.
pub fn cdp_entries(view: &DiscoveryEntries) -> String {
    let entries = view.entries.iter().map(|entry| cdp_entry(&entry.neighbor, &entry.details));
    total(entries.collect(), "Total cdp entries displayed :")
}

fn total(entries: Vec<String>, words: &str) -> String {
    format!("{}\n{words} {}\n", entries.concat(), entries.len())
}

/// The value, or the text that IOS prints for a TLV that was not sent.
fn sent(text: Option<&String>) -> &str {
    text.map_or("- not advertised", String::as_str)
}

fn lldp_entry(known: &DiscoveryNeighbour, details: &DiscoveryDetails) -> String {
    let mut out = LINE.to_owned();
    let _ = writeln!(out, "Local Intf: {}", known.interface);
    let _ = writeln!(out, "Chassis id: {}", known.chassis_id);
    let _ = writeln!(out, "Port id: {}", known.port_id);
    let _ = writeln!(out, "Port Description: {}", sent(details.port_description.as_ref()));
    let _ = writeln!(out, "System Name: {}\n", sent(known.system_name.as_ref()));
    let _ = writeln!(out, "System Description:\n{}\n", sent(details.system_description.as_ref()));
    let _ = writeln!(out, "Time remaining: {} seconds", known.ttl_s);
    let _ = writeln!(out, "System Capabilities: {}", details.capabilities);
    let _ = writeln!(out, "Enabled Capabilities: {}", details.enabled_capabilities);
    out.push_str("Management Addresses");
    if details.management_addresses.is_empty() {
        out.push_str(" - not advertised\n");
    } else {
        out.push_str(":\n");
        addresses(&mut out, "    ", &details.management_addresses);
    }
    let able = |supported: bool| if supported { "supported" } else { "not supported" };
    let _ = match details.auto_negotiation {
        None => writeln!(out, "Auto Negotiation - not advertised"),
        Some(link) => {
            let (supported, mau) = (able(link.supported), link.mau_type);
            let enabled = if link.enabled { "enabled" } else { "disabled" };
            writeln!(out, "Auto Negotiation - {supported}, {enabled}\nMedia Attachment Unit type: {mau}")
        }
    };
    if let Some(link) = details.link_aggregation {
        let supported = able(link.supported);
        let enabled = if link.enabled { format!("enabled, port {}", link.port) } else { "disabled".into() };
        let _ = writeln!(out, "Link Aggregation - {supported}, {enabled}");
    }
    if let Some(size) = details.max_frame_size {
        let _ = writeln!(out, "Maximum Frame Size: {size} bytes");
    }
    let _ = match details.vlan {
        None => writeln!(out, "Vlan ID: - not advertised"),
        Some(vlan) => writeln!(out, "Vlan ID: {vlan}"),
    };
    if let Some(med) = &details.med {
        let class = match med.device_type {
            4 => "Network Connectivity Device".to_owned(),
            class => format!("Endpoint Class {class}"),
        };
        let _ = writeln!(out, "\nMED Information:\n    Device type: {class}");
        for policy in &med.policies {
            let _ = writeln!(out, "    Network Policy: {policy}");
        }
        for location in &med.locations {
            let _ = writeln!(out, "    Location: {location}");
        }
        for (name, value) in &med.inventory {
            let _ = writeln!(out, "    {name}: {value}");
        }
    }
    out.push('\n');
    out
}

/// `show location civic-location`.
pub fn civic_locations(view: &CivicLocations) -> String {
    let mut out = String::new();
    for entry in &view.civic_locations {
        let _ = writeln!(out, "Civic location {}", entry.identifier);
        for (keyword, value) in &entry.elements {
            let _ = writeln!(out, "  {keyword:<31} : {value}");
        }
        let _ = writeln!(out, "  {:<31} : {}", "Interfaces", entry.interfaces.join(", "));
    }
    out
}

/// `show location elin-location`.
pub fn elin_locations(view: &ElinLocations) -> String {
    let mut out = String::new();
    for entry in &view.elin_locations {
        let interfaces = entry.interfaces.join(", ");
        let _ = writeln!(out, "Elin location {}\n  Elin       : {}", entry.identifier, entry.elin);
        let _ = writeln!(out, "  Interfaces : {interfaces}");
    }
    out
}

fn addresses(out: &mut String, indent: &str, list: &[std::net::IpAddr]) {
    for address in list {
        let family = if address.is_ipv4() { "IP" } else { "IPV6" };
        let _ = writeln!(out, "{indent}{family}: {address}");
    }
}

fn cdp_entry(known: &DiscoveryNeighbour, details: &DiscoveryDetails) -> String {
    let mut out = "-------------------------\n".to_owned();
    let _ = writeln!(out, "Device ID: {}\nEntry address(es):", known.chassis_id);
    addresses(&mut out, "  ", &details.addresses);
    let platform = details.platform.as_deref().unwrap_or("unknown");
    let _ = writeln!(out, "Platform: {platform},  Capabilities: {}", details.capabilities);
    let _ = writeln!(out, "Interface: {},  Port ID (outgoing port): {}", known.interface, known.port_id);
    let _ = writeln!(out, "Holdtime : {} sec\n", known.ttl_s);
    let _ = writeln!(out, "Version :\n{}\n", details.system_description.as_deref().unwrap_or_default());
    if let Some(version) = details.version {
        let _ = writeln!(out, "advertisement version: {version}");
    }
    if let Some(vlan) = details.vlan {
        let _ = writeln!(out, "Native VLAN: {vlan}");
    }
    if let Some(full) = details.full_duplex {
        let _ = writeln!(out, "Duplex: {}", if full { "full" } else { "half" });
    }
    if !details.management_addresses.is_empty() {
        out.push_str("Management address(es):\n");
        addresses(&mut out, "  ", &details.management_addresses);
    }
    out.push('\n');
    out
}

/// `show lldp`.
pub fn lldp_settings(view: &DiscoveryState) -> String {
    let mut out = "Global LLDP Information:\n    Status: ACTIVE\n".to_owned();
    let _ = writeln!(out, "    LLDP advertisements are sent every {} seconds", view.timer_s);
    let _ = writeln!(out, "    LLDP hold time advertised is {} seconds", view.holdtime_s);
    let reinit = view.reinit_s.unwrap_or_default();
    let _ = writeln!(out, "    LLDP interface reinitialisation delay is {reinit} seconds");
    out
}

/// `show cdp`.
pub fn cdp_settings(view: &DiscoveryState) -> String {
    format!(
        "Global CDP information:\n        Sending CDP packets every {} seconds\n        \
         Sending a holdtime value of {} seconds\n        Sending CDPv2 advertisements is  enabled\n",
        view.timer_s, view.holdtime_s
    )
}

/// `show lldp interface`.
pub fn lldp_interfaces(view: &DiscoveryState) -> String {
    let word = |on: bool| if on { "enabled" } else { "disabled" };
    let port = |port: &DiscoveryInterface| {
        format!(
            "{}:\n    Tx: {}\n    Rx: {}\n    Tx state: {}\n    Rx state: {}\n\n",
            port.interface,
            word(port.transmit),
            word(port.receive),
            port.tx_state.unwrap_or_default(),
            port.rx_state.unwrap_or_default()
        )
    };
    view.interfaces.iter().map(port).collect()
}

/// `show cdp interface`.
pub fn cdp_interfaces(view: &DiscoveryState) -> String {
    let port = |port: &DiscoveryInterface| {
        let line = if port.link_up { "up" } else { "down" };
        format!(
            "{} is {line}, line protocol is {line}\n  Encapsulation ARPA\n  Sending CDP packets every {} seconds\n  \
             Holdtime is {} seconds\n",
            port.interface, view.timer_s, view.holdtime_s
        )
    };
    let ports: Vec<_> = view.interfaces.iter().filter(|interface| interface.transmit).map(port).collect();
    let up = view.interfaces.iter().filter(|interface| interface.transmit && interface.link_up).count();
    format!(
        "{}\n cdp enabled interfaces : {}\n interfaces up          : {up}\n interfaces down        : {}\n",
        ports.concat(),
        ports.len(),
        ports.len() - up
    )
}

/// `show lldp traffic`.
pub fn lldp_traffic(view: &DiscoveryState) -> String {
    format!(
        "LLDP traffic statistics:\n    Total frames out: {}\n    Total entries aged: {}\n    Total frames in: {}\n    \
         Total frames received in error: {}\n    Total frames discarded: {}\n    Total TLVs discarded: {}\n    \
         Total TLVs unrecognized: {}\n",
        view.total(|port| port.frames_out),
        view.total(|port| port.aged_out),
        view.total(|port| port.frames_in),
        view.total(|port| port.errors.values().sum()),
        view.total(|port| port.frames_discarded),
        view.total(|port| port.tlvs_discarded),
        view.total(|port| port.tlvs_unrecognized)
    )
}

/// `show cdp traffic`.
pub fn cdp_traffic(view: &DiscoveryState) -> String {
    let error = |name: &str| view.total(|port| port.errors.get(name).copied().unwrap_or(0));
    let errors = view.total(|port| port.errors.values().sum());
    format!(
        "CDP counters :\n        Total packets output: {}, Input: {}\n        Hdr syntax: {}, Chksum error: {}, Encaps \
         failed: {}\n        No memory: {}, Invalid packet: {}\n",
        view.total(|port| port.frames_out),
        view.total(|port| port.frames_in),
        error("frame_truncated") + error("version"),
        error("checksum"),
        error("encapsulation"),
        view.total(|port| port.table_full),
        errors
    )
}

/// `show lldp errors`.
pub fn errors(view: &DiscoveryErrors) -> String {
    let row = |error: &crate::view::DiscoveryError| {
        vec![error.interface.clone(), error.reason.to_owned(), error.frames.to_string()]
    };
    let rows: Vec<_> = view.errors.iter().map(row).collect();
    format!(
        "LLDP errors/overflows:\n    Total table overflows: {}\n\n{}",
        view.table_full,
        columns(&["Interface", "Reason", "Frames"], &rows, &[2])
    )
}
