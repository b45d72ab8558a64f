//! `show vrf`, `show track`, `show vrrp`, `show ip dhcp relay`.

use super::ios_netdev;
use super::table::{columns, duration, enabled};
use crate::view::{Relay, RelayServer, TrackView, Tracks, Vrfs, VrrpView, Vrrps};
use lanyard_types::Family;
use std::fmt::Write;

/// `show vrf`.
pub fn vrfs(view: &Vrfs) -> String {
    let mut rows = Vec::new();
    for vrf in &view.vrfs {
        let rd = vrf.rd.clone().unwrap_or_else(|| "<not set>".into());
        let mut interfaces = vrf.interfaces.iter().map(|name| ios_netdev(name));
        let state = if vrf.present { "up" } else { "absent" };
        let first = interfaces.next().unwrap_or_default();
        rows.push(vec![vrf.name.clone(), rd, vrf.protocols.join(","), state.into(), first]);
        let further = |name| vec![String::new(), String::new(), String::new(), String::new(), name];
        rows.extend(interfaces.map(further));
    }
    columns(&["Name", "Default RD", "Protocols", "Namespace", "Interfaces"], &rows, &[])
}

/// `show track`.
pub fn tracks(view: &Tracks) -> String {
    let mut out = String::new();
    for track in &view.tracks {
        let _ = writeln!(out, "Track {}\n  {}", track.track, object(track));
        let what = if track.object.starts_with("interface") { "Line protocol" } else { "Reachability" };
        let word = if track.up { "Up" } else { "Down" };
        let _ = match track.pending_s {
            Some(seconds) => {
                let to = if track.up { "Down" } else { "Up" };
                writeln!(out, "  {what} is {word}, delayed {to} ({seconds} secs remaining)")
            }
            None => writeln!(out, "  {what} is {word}"),
        };
        let changes = if track.changes == 1 { "change" } else { "changes" };
        let _ = writeln!(
            out,
            "    {} {changes}, last change {} ago",
            track.changes,
            duration(track.last_change_s)
        );
        for (word, seconds) in [("up", track.delay_up_s), ("down", track.delay_down_s)] {
            if seconds > 0 {
                let _ = writeln!(out, "  Delay {word} {seconds} secs");
            }
        }
        if !track.tracked_by.is_empty() {
            out.push_str("  Tracked by:\n");
            for who in &track.tracked_by {
                let _ = writeln!(out, "    {who}");
            }
        }
    }
    out
}

/// `Interface eth1 line-protocol`, `IP route 10.0.0.0/8 reachability`.
fn object(track: &TrackView) -> String {
    let text = &track.object;
    for (word, instead) in
        [("interface ", "Interface "), ("ip route ", "IP route "), ("ipv6 route ", "IPv6 route ")]
    {
        if let Some(rest) = text.strip_prefix(word) {
            return format!("{instead}{rest}");
        }
    }
    text.clone()
}

/// `show track brief`.
pub fn tracks_brief(view: &Tracks) -> String {
    let row = |track: &TrackView| {
        let state = if track.up { "Up" } else { "Down" };
        vec![track.track.to_string(), object(track), state.into(), duration(track.last_change_s)]
    };
    let rows: Vec<_> = view.tracks.iter().map(row).collect();
    columns(&["Track", "Object", "State", "Last Change"], &rows, &[0])
}

fn state(group: &VrrpView) -> &'static str {
    match group.state {
        "master" => "Master",
        "backup" => "Backup",
        "unavailable" => "Unavailable",
        _ => "Init",
    }
}

/// `show vrrp`.
pub fn vrrp(view: &Vrrps) -> String {
    let mut out = String::new();
    for group in &view.groups {
        let _ = writeln!(out, "{} - Group {}", ios_netdev(&group.interface), group.group);
        if let Some(description) = &group.description {
            let _ = writeln!(out, "  {description}");
        }
        let _ = match group.state {
            _ if group.shutdown => writeln!(out, "  State is Init (shut down)"),
            "unavailable" => writeln!(out, "  State is Init (keepalived does not run)"),
            _ => writeln!(out, "  State is {}", state(group)),
        };
        let address = group.address.map_or_else(|| "not set".into(), |address| address.to_string());
        let _ = writeln!(out, "  Virtual IP address is {address}");
        for address in &group.secondary_addresses {
            let _ = writeln!(out, "    Secondary Virtual IP address is {address}");
        }
        let _ = writeln!(out, "  Virtual MAC address is {}", group.mac);
        let _ = writeln!(out, "  Advertisement interval is {}.000 sec", group.advertise_s);
        let _ = writeln!(out, "  Preemption {}", enabled(group.preempt).to_lowercase());
        let _ = match group.priority == group.configured_priority {
            true => writeln!(out, "  Priority is {}", group.priority),
            false => {
                writeln!(out, "  Priority is {} (cfgd {})", group.priority, group.configured_priority)
            }
        };
        for object in &group.tracks_down {
            let _ = writeln!(out, "    Track object {object} state Down");
        }
    }
    out
}

/// `show vrrp brief`.
pub fn vrrp_brief(view: &Vrrps) -> String {
    let row = |group: &VrrpView| {
        vec![
            ios_netdev(&group.interface),
            group.group.to_string(),
            group.priority.to_string(),
            if group.preempt { "Y".into() } else { String::new() },
            state(group).into(),
            group.address.map_or_else(|| "-".into(), |address| address.to_string()),
        ]
    };
    let rows: Vec<_> = view.groups.iter().map(row).collect();
    columns(&["Interface", "Grp", "Pri", "Pre", "State", "Group addr"], &rows, &[1, 2])
}

fn server(server: &RelayServer) -> String {
    let mut text = server.address.to_string();
    if let Some(interface) = &server.interface {
        let _ = write!(text, " via {}", ios_netdev(interface));
    }
    if let Some(vrf) = &server.vrf {
        let _ = write!(text, " (VRF {vrf})");
    }
    text
}

/// `show ip dhcp relay`, `show ipv6 dhcp relay`.
pub fn dhcp_relay(view: &Relay, family: Family) -> String {
    let mut out = String::new();
    if let Some(error) = &view.error {
        let _ = writeln!(out, "The relay does not work: {error}\n");
    }
    let mut rows = Vec::new();
    for interface in &view.interfaces {
        for (at, each) in interface.servers.iter().enumerate() {
            let name = if at == 0 { ios_netdev(&interface.interface) } else { String::new() };
            let trusted = if at == 0 && interface.trusted { "yes" } else { "" };
            rows.push(match family {
                Family::V4 => vec![name, server(each), trusted.into()],
                Family::V6 => vec![name, server(each)],
            });
        }
    }
    out.push_str(&match family {
        Family::V4 => columns(&["Interface", "Server", "Trusted"], &rows, &[]),
        Family::V6 => columns(&["Interface", "Server"], &rows, &[]),
    });
    if !view.counters.is_empty() {
        let row = |counter: &crate::view::RelayCounter| {
            vec![counter.counter.replace('_', " "), counter.messages.to_string()]
        };
        let rows: Vec<_> = view.counters.iter().map(row).collect();
        out.push('\n');
        out.push_str(&columns(&["Messages", "Count"], &rows, &[1]));
    }
    out
}
