//! `show interfaces ...`.

use super::ios_name;
use super::table::{columns, enabled};
use crate::config_view::{
    CounterTable, Descriptions, StatusTable, SwitchportTable, SwitchportView, Trunks, link_word, name_of,
};
use crate::view::{Drops, InterfaceKind, InterfaceView, Interfaces};
use lanyard_config::Config;
use std::fmt::Write;

/// `show interfaces [I]`.
pub fn interfaces(view: &Interfaces, config: &Config) -> String {
    view.interfaces.iter().map(|i| block(i, config)).collect()
}

fn block(i: &InterfaceView, config: &Config) -> String {
    let name = name_of(i);
    let settings = config.interfaces.get(&name);
    let admin = match (i.present, i.admin_up) {
        (false, _) => "absent",
        (true, true) if i.link_up => "up",
        (true, true) => "down",
        (true, false) => "administratively down",
    };
    let word = link_word(i, config);
    let protocol = if i.link_up && i.admin_up && word != "monitoring" { "up" } else { "down" };
    let mut out = format!("{} is {admin}, line protocol is {protocol} ({word})\n", ios_name(&name));
    if let Some(error) = &i.error {
        let _ = writeln!(out, "  Not used: {error}");
    }
    let hardware = match (i.kind, &i.driver) {
        (InterfaceKind::Svi, _) => "EtherSVI",
        (InterfaceKind::Lag, _) => "EtherChannel",
        (_, Some(driver)) => driver,
        (_, None) => "Ethernet",
    };
    if let Some(mac) = i.mac {
        let _ = writeln!(out, "  Hardware is {hardware}, address is {mac} (bia {mac})");
    }
    if let Some(text) = settings.and_then(|s| s.description.as_ref()) {
        let _ = writeln!(out, "  Description: {text}");
    }
    if matches!(i.kind, InterfaceKind::Svi | InterfaceKind::Routed) {
        for net in &i.addresses {
            let _ = writeln!(out, "  Internet address is {net}");
        }
    }
    for (family, forwarder) in ["IPv4", "IPv6"].iter().zip(i.routed_by.iter().flatten()) {
        if let Some(by) = forwarder.text() {
            let _ = writeln!(out, "  {family} packets received here are routed by {by}");
        }
    }
    let bandwidth =
        i.speed_mbps.map_or_else(|| "unknown".into(), |mbps| format!("{} Kbit/sec", u64::from(mbps) * 1000));
    let _ = writeln!(out, "  MTU {} bytes, BW {bandwidth}", i.mtu);
    if i.kind != InterfaceKind::Svi {
        let duplex = match i.duplex {
            "full" => "Full-duplex",
            "half" => "Half-duplex",
            _ => "Unknown duplex",
        };
        let speed = i.speed_mbps.map_or_else(|| "unknown speed".into(), |mbps| format!("{mbps}Mb/s"));
        let _ = writeln!(out, "  {duplex}, {speed}, hook {}", i.hook.unwrap_or("none"));
    }
    for note in &i.notes {
        let _ = writeln!(out, "  {note}");
    }
    let _ = writeln!(out, "     {} packets input, {} bytes", i.rx.frames, i.rx.bytes);
    let _ = writeln!(out, "     {} input errors, {} dropped", i.rx.errors, i.rx.dropped);
    let _ = writeln!(out, "     {} packets output, {} bytes", i.tx.frames, i.tx.bytes);
    let _ = writeln!(out, "     {} output errors, {} dropped", i.tx.errors, i.tx.dropped);
    out
}

/// `show interfaces counters`.
pub fn counters(view: &CounterTable) -> String {
    let side = |head: [&str; 5], pick: &dyn Fn(&crate::config_view::CounterRow) -> crate::view::Counters| {
        let row = |row: &crate::config_view::CounterRow| {
            let c = pick(row);
            let numbers = [c.bytes, c.frames, c.dropped, c.errors].map(|n| n.to_string());
            std::iter::once(super::ios_netdev(&row.interface)).chain(numbers).collect()
        };
        let rows: Vec<Vec<String>> = view.interfaces.iter().map(row).collect();
        columns(&head, &rows, &[1, 2, 3, 4])
    };
    let rx = side(["Port", "InOctets", "InPkts", "InDrops", "InErrors"], &|row| row.rx);
    let tx = side(["Port", "OutOctets", "OutPkts", "OutDrops", "OutErrors"], &|row| row.tx);
    format!("\n{rx}\n{tx}")
}

/// `show interfaces counters errors`.
pub fn errors(view: &CounterTable) -> String {
    let row = |row: &crate::config_view::CounterRow| {
        let numbers = [row.tx.errors, row.rx.errors, row.rx.dropped, row.tx.dropped].map(|n| n.to_string());
        std::iter::once(super::ios_netdev(&row.interface)).chain(numbers).collect()
    };
    let rows: Vec<Vec<String>> = view.interfaces.iter().map(row).collect();
    columns(&["Port", "Xmit-Err", "Rcv-Err", "InDiscards", "OutDiscards"], &rows, &[1, 2, 3, 4])
}

/// `show interfaces counters drops`.
pub fn drops(view: &Drops) -> String {
    let row = |d: &crate::view::DropEntry| vec![d.interface.clone(), d.reason.into(), d.frames.to_string()];
    let rows: Vec<_> = view.drops.iter().map(row).collect();
    columns(&["Port", "Reason", "Frames"], &rows, &[2])
}

/// `show interfaces description`.
pub fn descriptions(view: &Descriptions) -> String {
    let row = |d: &crate::config_view::Description| {
        let status = if d.admin_up { if d.link_up { "up" } else { "down" } } else { "admin down" };
        let protocol = if d.admin_up && d.link_up { "up" } else { "down" };
        vec![super::ios_netdev(&d.interface), status.into(), protocol.into(), d.description.clone()]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Interface", "Status", "Protocol", "Description"], &rows, &[])
}

/// `show interfaces status`.
pub fn status(view: &StatusTable) -> String {
    let row = |s: &crate::config_view::Status| {
        let name: String = s.description.chars().take(18).collect();
        let speed = s.speed_mbps.map_or_else(|| "auto".into(), |mbps| mbps.to_string());
        let duplex = if s.duplex == "unknown" { "auto" } else { s.duplex };
        let hook = s.hook.unwrap_or("-");
        vec![s.interface.clone(), name, s.status.into(), s.vlan.clone(), duplex.into(), speed, hook.into()]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    let table = columns(&["Port", "Name", "Status", "Vlan", "Duplex", "Speed", "Hook"], &rows, &[5]);
    let errors =
        view.interfaces.iter().filter_map(|s| Some(format!("{}: {}\n", s.interface, s.error.as_ref()?)));
    format!("\n{table}{}", errors.collect::<String>())
}

/// `show interfaces status err-disabled`.
pub fn err_disabled(view: &StatusTable) -> String {
    let reason = |s: &crate::config_view::Status| {
        let error = s.error.as_deref().unwrap_or_default();
        error.trim_start_matches("err-disabled (").trim_end_matches(')').to_owned()
    };
    let row = |s: &crate::config_view::Status| {
        let name: String = s.description.chars().take(18).collect();
        vec![s.interface.clone(), name, s.status.into(), reason(s)]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    format!("\n{}", columns(&["Port", "Name", "Status", "Reason"], &rows, &[]))
}

/// `show interfaces switchport`.
pub fn switchports(view: &SwitchportTable) -> String {
    view.interfaces.iter().map(switchport).collect()
}

fn switchport(s: &SwitchportView) -> String {
    let mut out = format!("Name: {}\nSwitchport: {}\n", s.interface, enabled(s.switchport));
    if !s.switchport {
        out.push('\n');
        return out;
    }
    let mode = match s.mode {
        "access" => "static access",
        "dot1q-tunnel" => "tunnel",
        other => other,
    };
    let vlan = |id: u16, name: &Option<String>| match name {
        Some(name) => format!("{id} ({name})"),
        None => format!("{id} (Inactive)"),
    };
    let allowed = if s.allowed_vlans == "1-4094" { "ALL".into() } else { s.allowed_vlans.to_uppercase() };
    let limit = s.mac_limit.map_or_else(|| "none".into(), |limit| limit.to_string());
    let operational = if s.operational { mode } else { "down" };
    for (label, value) in [
        ("Administrative Mode", mode.to_owned()),
        ("Operational Mode", operational.to_owned()),
        (
            "Administrative Trunking Encapsulation",
            if s.ethertype == "0x8100" { "dot1q".into() } else { s.ethertype.clone() },
        ),
        ("Negotiation of Trunking", "Off".into()),
        ("Access Mode VLAN", vlan(s.access_vlan, &s.access_vlan_name)),
        ("Trunking Native Mode VLAN", vlan(s.native_vlan, &s.native_vlan_name)),
        ("Voice VLAN", s.voice_vlan.clone().unwrap_or_else(|| "none".into())),
        ("Administrative Native VLAN tagging", enabled(s.native_tagged).to_lowercase()),
        ("Trunking VLANs Enabled", allowed),
        ("Operational private-vlan", s.private_vlans.clone().unwrap_or_else(|| "none".into())),
        ("Protected", s.protected.to_string()),
        ("Unknown unicast blocked", enabled(s.block_unicast).to_lowercase()),
        ("Unknown multicast blocked", enabled(s.block_multicast).to_lowercase()),
        ("MAC learning", enabled(s.learning).to_lowercase()),
        ("MAC address limit", limit),
    ] {
        let _ = writeln!(out, "{label}: {value}");
    }
    out.push('\n');
    out
}

/// `show interfaces trunk`.
pub fn trunks(view: &Trunks) -> String {
    let table = |head: &[&str], pick: &dyn Fn(&crate::config_view::Trunk) -> Vec<String>| {
        let rows: Vec<_> =
            view.trunks.iter().map(|t| [vec![t.interface.clone()], pick(t)].concat()).collect();
        columns(head, &rows, &[])
    };
    if view.trunks.is_empty() {
        return String::new();
    }
    let first = table(&["Port", "Mode", "Encapsulation", "Status", "Native vlan"], &|t| {
        vec![t.mode.into(), t.encapsulation.clone(), t.status.into(), t.native_vlan.to_string()]
    });
    let second = table(&["Port", "Vlans allowed on trunk"], &|t| vec![t.allowed_vlans.clone()]);
    let third =
        table(&["Port", "Vlans allowed and active in management domain"], &|t| vec![t.active_vlans.clone()]);
    format!("\n{first}\n{second}\n{third}")
}
