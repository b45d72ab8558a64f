//! `show etherchannel ...` and `show lacp ...` as text.

use super::table::{columns, wrap};
use crate::view::{
    Channel, ChannelBalance, ChannelMember, Channels, InternalVlans, LacpMember, LacpPort, LacpSystem,
};
use std::fmt::Write;

const FLAGS: &str = "Flags:  D - down        P - bundled in port-channel\n        \
    I - stand-alone s - suspended\n        \
    H - Hot-standby (LACP only)\n        \
    R - Layer3      S - Layer2\n        \
    U - in use\n        \
    w - waiting to be aggregated\n\n";
const LACP_FLAGS: &str = "Flags:  S - Device is requesting Slow LACPDUs\n        \
    F - Device is requesting Fast LACPDUs\n        \
    A - Device is in Active mode       P - Device is in Passive mode\n\n";
/// The bits of an LACP state (IEEE 802.1AX-2014, 6.4.2.3 m).
const ACTIVE: u8 = 1;
const SHORT_TIMEOUT: u8 = 2;

/// The short name of a port-channel in IOS: `Po1`.
fn short(channel: &Channel) -> String {
    format!("Po{}", channel.number)
}

/// IOS's flags of a port-channel: `S` for layer 2 or `R` for layer 3, then `U` in use or `D` down.
fn flags(channel: &Channel) -> &'static str {
    match (channel.routed, channel.up) {
        (false, true) => "SU",
        (false, false) => "SD",
        (true, true) => "RU",
        (true, false) => "RD",
    }
}

fn protocol(channel: &Channel) -> &'static str {
    if channel.runs_lacp() && !channel.members.is_empty() { "LACP" } else { "-" }
}

/// `show etherchannel summary`.
pub fn summary(view: &Channels) -> String {
    let count = view.channels.len();
    let mut out = format!(
        "{FLAGS}Number of channel-groups in use: {count}\nNumber of aggregators:           {count}\n\n"
    );
    out.push_str("Group  Port-channel  Protocol    Ports\n");
    out.push_str("------+-------------+-----------+-----------------------------------------------\n");
    for channel in &view.channels {
        let member = |member: &ChannelMember| format!("{}({})", member.interface, member.flag);
        let members: Vec<String> = channel.members.iter().map(member).collect();
        let name = format!("{}({})", short(channel), flags(channel));
        let lines = wrap(&members, 47);
        let first = lines.first().cloned().unwrap_or_default();
        let line =
            format!("{:<7}{name:<14}{:<12}{first}", channel.number, format!("  {}", protocol(channel)));
        out.push_str(line.trim_end());
        out.push('\n');
        for line in lines.iter().skip(1) {
            let _ = writeln!(out, "{:33}{line}", "");
        }
    }
    out
}

/// `show vlan internal usage`.
pub fn internal_vlans(view: &InternalVlans) -> String {
    let mut out = String::from("\nVLAN Usage\n---- --------------------\n");
    for entry in &view.internal {
        let _ = writeln!(out, "{:<4} {}", entry.vlan, entry.interface);
    }
    out
}

/// `show etherchannel port-channel`.
pub fn port_channel(view: &Channels) -> String {
    let mut out =
        String::from("                Channel-group listing:\n                ----------------------\n\n");
    for channel in &view.channels {
        let _ = writeln!(out, "Group: {}\n----------", channel.number);
        out.push_str(&one_port_channel(channel));
        out.push('\n');
    }
    out
}

fn one_port_channel(channel: &Channel) -> String {
    let in_use = channel.members.iter().filter(|member| member.bundled).count();
    let state = if channel.up { "Port-channel Ag-Inuse" } else { "Port-channel Ag-Not-Inuse" };
    let mut out = String::new();
    let _ = writeln!(out, "Port-channel: {}\n------------\n", channel.name);
    let _ = writeln!(out, "Number of ports   = {in_use}");
    let _ = writeln!(out, "Port state        = {state}");
    let _ = writeln!(out, "Protocol          =   {}", protocol(channel));
    let _ = writeln!(out, "Minimum Links     = {}", channel.min_links);
    let _ = writeln!(out, "Maximum bundle    = {}\n", channel.max_bundle);
    let row = |member: &ChannelMember| {
        vec![
            member.interface.clone(),
            member.state.to_owned(),
            member.mode.to_owned(),
            member.buckets.to_string(),
        ]
    };
    let rows: Vec<_> = channel.members.iter().map(row).collect();
    let _ = writeln!(out, "Ports in the Port-channel:\n");
    out.push_str(&columns(&["Port", "State", "Mode", "Buckets of 256"], &rows, &[3]));
    out
}

/// `show etherchannel detail`.
pub fn detail(view: &Channels) -> String {
    let mut out =
        String::from("                Channel-group listing:\n                ----------------------\n\n");
    for channel in &view.channels {
        let layer = if channel.routed { "L3" } else { "L2" };
        let state = if channel.up { "" } else { " (down)" };
        let _ = writeln!(out, "Group: {}\n----------\nGroup state = {layer}{state}", channel.number);
        let _ = writeln!(
            out,
            "Ports: {}   Maxports = {}\nPort-channels: 1 Max Port-channels = 1\nProtocol:   {}\nMinimum Links: {}\n",
            channel.members.len(),
            if channel.runs_lacp() { 16 } else { 8 },
            protocol(channel),
            channel.min_links
        );
        for member in &channel.members {
            out.push_str(&one_member(channel, member));
        }
        out.push_str(&one_port_channel(channel));
        out.push('\n');
    }
    out
}

fn one_member(channel: &Channel, member: &ChannelMember) -> String {
    let mut out = format!("Port: {}\n------------\n\n", member.interface);
    let _ = writeln!(out, "Port state    = {}", member.state);
    let _ = writeln!(out, "Channel group = {}    Mode = {}", channel.number, member.mode);
    let Some(lacp) = &member.lacp else {
        out.push('\n');
        return out;
    };
    let _ = writeln!(out, "Receive state = {}    Mux state = {}", lacp.receive, lacp.mux);
    let _ = writeln!(out, "Actor churn   = {}    Partner churn = {}\n", lacp.actor_churn, lacp.partner_churn);
    let side = |name: &str, port: &LacpPort| {
        vec![
            name.to_owned(),
            port.system_priority.to_string(),
            port.system.to_string(),
            format!("{:#x}", port.key),
            port.port_priority.to_string(),
            format!("{:#x}", port.port),
            port.state.clone(),
        ]
    };
    let head = ["", "Priority", "System", "Key", "Port priority", "Port", "State"];
    out.push_str(&columns(&head, &[side("Actor", &lacp.actor), side("Partner", &lacp.partner)], &[1, 4]));
    out.push('\n');
    out
}

/// `show etherchannel load-balance`.
pub fn load_balance(view: &ChannelBalance) -> String {
    let symmetric = if view.symmetric { ", the same for both directions" } else { "" };
    let method = view.method;
    let ip = if method.ends_with("mac") {
        "  IPv4: by MAC addresses\n  IPv6: by MAC addresses\n".to_owned()
    } else {
        let what = method.trim_start_matches("src-").trim_start_matches("dst-");
        let of = match what {
            "ip" => "IP addresses",
            "port" => "transport ports, IP addresses where there are none",
            _ => "IP addresses and transport ports",
        };
        format!("  IPv4: by {of}\n  IPv6: by {of}\n")
    };
    format!(
        "EtherChannel Load-Balancing Configuration:\n        {method}{symmetric}\n\n\
         EtherChannel Load-Balancing Addresses Used Per-Protocol:\nNon-IP: by MAC addresses\n{ip}"
    )
}

/// A table of the members with LACP for each port-channel that has some, under a line with its number.
fn by_channel(
    view: &Channels,
    head: &[&str],
    right: &[usize],
    row: impl Fn(&ChannelMember, &LacpMember) -> Vec<String>,
) -> String {
    let mut out = String::new();
    for channel in &view.channels {
        let of = |member: &ChannelMember| member.lacp.as_ref().map(|lacp| row(member, lacp));
        let rows: Vec<_> = channel.members.iter().filter_map(of).collect();
        if !rows.is_empty() {
            let _ = writeln!(out, "Channel group {}", channel.number);
            out.push_str(&columns(head, &rows, right));
            out.push('\n');
        }
    }
    out
}

/// The LACP flags of one side in IOS: `S` (slow) or `F` (fast), then `A` (active) or `P` (passive).
fn mode(bits: u8) -> String {
    let rate = if bits & SHORT_TIMEOUT != 0 { 'F' } else { 'S' };
    let activity = if bits & ACTIVE != 0 { 'A' } else { 'P' };
    format!("{rate}{activity}")
}

/// `show lacp neighbor`.
pub fn neighbor(view: &Channels) -> String {
    let head = ["Port", "Flags", "Priority", "Dev ID", "Oper Key", "Port Number", "Port State"];
    let table = by_channel(view, &head, &[2], |member, lacp| {
        let partner = &lacp.partner;
        vec![
            member.interface.clone(),
            mode(partner.state_bits),
            partner.port_priority.to_string(),
            partner.system.to_string(),
            format!("{:#x}", partner.key),
            format!("{:#x}", partner.port),
            format!("{:#x}", partner.state_bits),
        ]
    });
    format!("{LACP_FLAGS}{table}")
}

/// `show lacp internal`.
pub fn internal(view: &Channels) -> String {
    let head = ["Port", "Flags", "State", "Priority", "Oper Key", "Port Number", "Port State"];
    let table = by_channel(view, &head, &[3], |member, lacp| {
        let actor = &lacp.actor;
        vec![
            member.interface.clone(),
            mode(actor.state_bits),
            member.state.to_owned(),
            actor.port_priority.to_string(),
            format!("{:#x}", actor.key),
            format!("{:#x}", actor.port),
            format!("{:#x}", actor.state_bits),
        ]
    });
    format!("{LACP_FLAGS}{table}")
}

/// `show lacp counters`.
pub fn counters(view: &Channels) -> String {
    let head = ["Port", "LACPDUs Sent", "Recv", "Marker Recv", "Marker Response Sent", "LACPDUs Pkts Err"];
    by_channel(view, &head, &[1, 2, 3, 4, 5], |member, lacp| {
        let errors: u64 = lacp.errors.values().sum();
        vec![
            member.interface.clone(),
            lacp.sent.to_string(),
            lacp.received.to_string(),
            lacp.markers.to_string(),
            lacp.marker_responses.to_string(),
            errors.to_string(),
        ]
    })
}

/// `show lacp sys-id`.
pub fn sys_id(view: &LacpSystem) -> String {
    format!("{}, {}\n", view.priority, view.mac)
}
