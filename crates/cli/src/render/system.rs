//! The views of the switch itself: version, users, log, platform.

use super::table::{columns, duration};
use crate::config_view::PendingSessions;
use crate::view::{Logging, PacketTrace, Platform, Resource, Resources, Traps, Users, Version};
use std::fmt::Write;

/// `show version`.
pub fn version(view: &Version) -> String {
    let mut out = format!("Lanyard Software, Version {}\n\n", view.version);
    let _ = writeln!(out, "{} uptime is {}", view.hostname, duration(view.uptime_s));
    if let Some(seconds) = view.plane_uptime_s {
        let _ = writeln!(out, "The {} plane has been forwarding for {}", view.plane, duration(seconds));
    }
    let startup = view.startup_config.as_deref().unwrap_or("none");
    let _ = writeln!(out, "Startup configuration file is \"{startup}\"\n");
    for (label, value) in [
        ("Instance", view.instance.clone()),
        ("Plane", view.plane.clone()),
        ("Kernel", view.kernel.clone()),
        ("Switch ports", view.ports.to_string()),
        ("Base ethernet MAC Address", view.base_mac.map_or_else(|| "none".into(), |mac| mac.to_string())),
    ] {
        let _ = writeln!(out, "{label:<32}: {value}");
    }
    out
}

/// `show users`.
pub fn users(view: &Users) -> String {
    let row = |u: &crate::view::User| {
        let (h, m, s) = (u.idle_s / 3600, u.idle_s / 60 % 60, u.idle_s % 60);
        let mark = if u.own { "*" } else { " " };
        vec![format!("{mark} {}", u.line), u.user.clone(), u.host.clone(), format!("{h:02}:{m:02}:{s:02}")]
    };
    let rows: Vec<_> = view.users.iter().map(row).collect();
    let table = columns(&["  Line", "User", "Host(s)", "Idle"], &rows, &[]);
    match (view.stalled, view.turned_away) {
        (0, 0) => table,
        (stalled, away) => {
            format!(
                "{table}\n{stalled} sessions dropped because the client did not read, {away} connections refused\n"
            )
        }
    }
}

/// `show logging`.
pub fn logging(view: &Logging) -> String {
    let mut out = super::machine::log_receivers(&view.receivers);
    out.push_str(&super::machine::log_settings(view));
    let level = view.level.map_or_else(|| "off".into(), |level| format!("severities 0 to {level}"));
    let _ = writeln!(out, "Buffer logging: {level}");
    let _ = write!(out, "Log Buffer ({} messages, {} overwritten):\n\n", view.capacity, view.overwritten);
    for m in &view.messages {
        let _ = writeln!(out, "{}: %{}-{}-{}: {}", m.time, m.facility, m.severity, m.mnemonic, m.text);
    }
    out
}

/// `show platform`.
pub fn platform(view: &Platform) -> String {
    let survives = if view.survives_daemon { "yes" } else { "no" };
    let mut out = format!("Plane: {}\nForwards without the daemon: {survives}\n", view.plane);
    let _ =
        writeln!(out, "Maximum ports: {}\nMaximum MAC addresses: {}", view.max_ports, view.max_mac_addresses);
    if let Some(chip) = &view.chip {
        let _ = writeln!(
            out,
            "Chip: {}\nForwarded by: {}\nControl path: {}\nResource manager: {}, confidence {:.2}\nRoutes in software: {}",
            chip.platform,
            chip.forwards,
            chip.control_path,
            chip.manager,
            chip.confidence,
            chip.hidden_routes
        );
        if !chip.diverted_lists.is_empty() {
            let _ = writeln!(out, "Lists in software: {}", chip.diverted_lists.join(", "));
        }
    }
    for note in &view.notes {
        let _ = writeln!(out, "Note: {note}");
    }
    out
}

/// `show platform resources`.
pub fn resources(view: &Resources) -> String {
    let row = |t: &Resource| {
        let numbers = [t.size, t.used, t.high_water, t.refused, t.bytes / 1024].map(|n| n.to_string());
        let rest = [t.unit.clone(), t.policy.unwrap_or("-").to_owned(), t.shared_with.join(",")];
        std::iter::once(t.name.clone()).chain(numbers).chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = view.tables.iter().map(row).collect();
    let head = ["Table", "Size", "Used", "High", "Refused", "KiB", "Unit", "Policy", "Shared with"];
    format!("Manager: {}\n\n{}", view.manager, columns(&head, &rows, &[1, 2, 3, 4, 5]))
}

/// `show platform traps`.
pub fn traps(view: &Traps) -> String {
    let row = |t: &crate::view::Trap| {
        // Traffic for the kernel's own stack is not policed.
        let limit = |n: u32| if n == u32::MAX { "-".to_owned() } else { n.to_string() };
        let limits = [t.rate_pps, t.burst, t.port_rate_pps, t.port_burst].map(limit);
        let counts = [t.trapped, t.policed, t.lost].map(|n| n.to_string());
        std::iter::once(t.group.to_owned()).chain(limits).chain(counts).collect()
    };
    let rows: Vec<Vec<String>> = view.traps.iter().map(row).collect();
    let head = ["Group", "Rate (pps)", "Burst", "Port rate", "Port burst", "Trapped", "Policed", "Lost"];
    let mut out = columns(&head, &rows, &[1, 2, 3, 4, 5, 6, 7]);
    let seen = view.reasons.iter().filter(|reason| reason.frames > 0);
    let rows: Vec<_> = seen
        .map(|seen| vec![seen.reason.to_owned(), seen.group.to_owned(), seen.frames.to_string()])
        .collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&columns(&["Reason", "Group", "Frames"], &rows, &[2]));
    }
    out
}

/// `show platform packet-trace`.
pub fn packet_trace(view: &PacketTrace) -> String {
    let rows: Vec<_> = view.stages.iter().map(|s| vec![s.stage.to_owned(), s.detail.clone()]).collect();
    let mut out = columns(&["Stage", "Detail"], &rows, &[]);
    let reason = view.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let _ = writeln!(out, "\nVerdict: {}{reason}", view.verdict);
    for frame in &view.egress {
        let _ = writeln!(out, "Out of {}: {}", frame.interface, frame.hex);
    }
    out
}

/// `show configuration sessions`.
pub fn sessions(view: &PendingSessions) -> String {
    let rows: Vec<_> = view.sessions.iter().map(|s| vec![s.name.clone(), s.lines.to_string()]).collect();
    let mut out = columns(&["Session", "Lines"], &rows, &[1]);
    if let Some(seconds) = view.rollback_in_s {
        let _ = writeln!(out, "\nRollback in {seconds} seconds unless confirmed");
    }
    out
}
