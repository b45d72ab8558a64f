//! Monitor sessions (SPAN, RSPAN, ERSPAN): `monitor session ...`, `show monitor`. `erspan_source.rs` and
//! `erspan_destination.rs` have the modes of ERSPAN sessions.

use super::monitor_sources::{
    FILTER, SOURCE_INTERFACE, SOURCE_VLAN, direction_words, netdevs, no_sources, session,
};
use super::{erspan_destination, erspan_source, need};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::outcome::Outcome;
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use crate::view::{ErspanReceived, ErspanState};
use lanyard_config::{Config, ErspanType, MAX_MONITOR_SESSION, MonitorSession};
use serde::Serialize;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("monitor", "Monitor sessions (SPAN)")];

/// In global configuration. The sessions refer to interfaces, so they follow them.
pub const LINES: &[Line<Config>] = &[Line::own(
    "monitor",
    kw("session", "Configure a SPAN session").then(&[
        kw("all", "Remove all SPAN sessions").no(remove_all),
        number(1, MAX_MONITOR_SESSION as u64, "SPAN session number").no(remove).then(&[
            SOURCE,
            DESTINATION,
            FILTER,
            kw("type", "Configure a monitor session type")
                .then(&[erspan_destination::TYPE, erspan_source::TYPE]),
        ]),
    ]),
    print,
)];

const SOURCE: Node = kw("source", "SPAN source interface, VLAN").no(no_sources).then(&[
    kw("remote", "SPAN source Remote").then(&[kw("vlan", "Remote SPAN source RSPAN VLAN").then(&[arg(
        Kind::Vlan,
        "Remote SPAN source RSPAN VLAN number",
    )
    .run(remote_source)])]),
    SOURCE_INTERFACE,
    SOURCE_VLAN,
]);

const DESTINATION: Node =
    kw("destination", "SPAN destination interface or VLAN").no(no_destinations).then(&[
        kw("interface", "SPAN destination interface").then(&[arg(Kind::InterfaceList, "Interfaces")
            .run(destination)
            .then(&[kw("encapsulation", "Set encapsulation for destination interface").then(&[kw(
                "replicate",
                "Copies keep the tags of the frames",
            )
            .run(destination_replicate)])])]),
        kw("remote", "SPAN destination Remote").then(&[kw("vlan", "Remote SPAN destination RSPAN VLAN")
            .then(&[arg(Kind::Vlan, "Remote SPAN destination RSPAN VLAN number").run(remote_destination)])]),
    ]);

fn remove_all(edit: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    edit.config.monitor.clear();
    Ok(())
}

fn remove(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = need(args.number().and_then(|number| u16::try_from(number).ok()))?;
    edit.config.monitor.remove(&number);
    Ok(())
}

fn no_destinations(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    session(edit, args, |session| {
        session.destinations.clear();
        session.keep_tag = false;
        session.remote_destination = None;
        Ok(())
    })
}

fn remote_source(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan = need(args.vlan())?;
    session(edit, args, |session| {
        session.remote_source = (args.form == Form::Set).then_some(vlan);
        Ok(())
    })
}

fn remote_destination(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan = need(args.vlan())?;
    session(edit, args, |session| {
        session.remote_destination = (args.form == Form::Set).then_some(vlan);
        Ok(())
    })
}

fn destination(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    destinations(edit, args, false)
}

fn destination_replicate(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    destinations(edit, args, true)
}

/// Adds or removes destination ports. All destinations of a session have the same encapsulation: that of the last line.
fn destinations(edit: &mut Edit<'_>, args: &Args, keep_tag: bool) -> Result<(), Refusal> {
    let names = netdevs(args)?;
    session(edit, args, |session| {
        for name in names {
            match args.form {
                Form::Set => _ = session.destinations.insert(name),
                Form::No | Form::Default => _ = session.destinations.remove(&name),
            }
        }
        session.keep_tag = match args.form {
            Form::Set => keep_tag,
            Form::No | Form::Default => session.keep_tag && !session.destinations.is_empty(),
        };
        Ok(())
    })
}

fn print(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, session) in &config.monitor {
        if let Some(source) = &session.erspan {
            lines.extend(erspan_source::section(*number, session, source));
            continue;
        }
        if let Some(from) = &session.erspan_destination {
            lines.extend(erspan_destination::section(*number, session, from));
            continue;
        }
        let mut line = |text: String| lines.push(format!("monitor session {number} {text}"));
        let direction = direction_words;
        for (name, way) in &session.interfaces {
            line(format!("source interface {name}{}", direction(*way)));
        }
        for (vlan, way) in &session.vlans {
            line(format!("source vlan {vlan}{}", direction(*way)));
        }
        if let Some(vlan) = session.remote_source {
            line(format!("source remote vlan {vlan}"));
        }
        if let Some(vlans) = &session.filter {
            line(format!("filter vlan {vlans}"));
        }
        if let Some(vlan) = session.remote_destination {
            line(format!("destination remote vlan {vlan}"));
        }
        let keep = if session.keep_tag { " encapsulation replicate" } else { "" };
        for name in &session.destinations {
            line(format!("destination interface {name}{keep}"));
        }
    }
    lines
}

/// Under `show`.
pub const SHOW: Node = kw("monitor", "SPAN information").exec(show).then(&[kw("session", "SPAN session")
    .then(&[
        kw("all", "All SPAN sessions").exec(show),
        kw("local", "Local SPAN sessions").exec(show),
        kw("remote", "Remote SPAN sessions").exec(show),
        kw("erspan-destination", "ERSPAN destination sessions").exec(show),
        kw("erspan-source", "ERSPAN source sessions").exec(show),
        number(1, MAX_MONITOR_SESSION as u64, "SPAN session number").exec(show),
    ])]);

#[derive(Debug, Serialize)]
struct Sessions {
    sessions: Vec<Session>,
}

#[derive(Debug, Serialize)]
struct Session {
    session: u16,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Ports, or VLANs.
    sources: Vec<Source>,
    /// The RSPAN VLAN of the sources, and that of the destination; null without one.
    source_rspan_vlan: Option<u16>,
    destination_rspan_vlan: Option<u16>,
    /// `filter vlan`; null without one.
    filter_vlans: Option<String>,
    destinations: Vec<Destination>,
    /// `native`: copies have no tag; `replicate`: copies keep the tags of the frames.
    encapsulation: &'static str,
    /// True when frames that a destination receives are forwarded.
    ingress: bool,
    /// For a session of type `erspan-source`; null for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    erspan: Option<Erspan>,
    /// For a session of type `erspan-destination`; null for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    erspan_destination: Option<ErspanFrom>,
}

#[derive(Debug, Serialize)]
struct Erspan {
    /// False while the session is shut down.
    enabled: bool,
    /// Null while one is not set.
    erspan_id: Option<u16>,
    destination_address: Option<Ipv4Addr>,
    origin_address: Option<Ipv4Addr>,
    ttl: u8,
    dscp: u8,
    /// Bytes.
    mtu: u16,
    /// 2 or 3.
    header_type: u8,
    /// Null for the switch's own routing table.
    vrf: Option<String>,
    #[serde(flatten)]
    state: ErspanState,
}

#[derive(Debug, Serialize)]
struct ErspanFrom {
    /// False while the session is shut down.
    enabled: bool,
    /// Null while one is not set.
    erspan_id: Option<u16>,
    address: Option<Ipv4Addr>,
    /// Null for the switch's own routing table.
    vrf: Option<String>,
    #[serde(flatten)]
    state: ErspanReceived,
}

#[derive(Debug, Serialize)]
struct Source {
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    /// `both`, `rx` or `tx`.
    direction: &'static str,
}

#[derive(Debug, Serialize)]
struct Destination {
    interface: String,
}

/// The words for the types of sessions in the output: a session without an RSPAN VLAN, and both kinds of ERSPAN sessions.
const LOCAL: &str = "local";
const ERSPAN_SOURCE: &str = "erspan source";
const ERSPAN_DESTINATION: &str = "erspan destination";

fn show(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let config = exec.backend.running();
    let only = args.number();
    if let Some(number) = only.filter(|only| !config.monitor.keys().any(|held| u64::from(*held) == *only)) {
        return Err(format!("no monitor session {number} is configured").into());
    }
    let chosen = config.monitor.iter().filter(|(held, _)| only.is_none_or(|only| only == u64::from(**held)));
    let mut sessions: Vec<Session> = chosen.map(|(number, session)| view(*number, session)).collect();
    let kinds: [(&str, &[&str]); 4] = [
        ("local", &[LOCAL]),
        ("remote", &["remote source", "remote destination"]),
        ("erspan-destination", &[ERSPAN_DESTINATION]),
        ("erspan-source", &[ERSPAN_SOURCE]),
    ];
    if let Some(kinds) = args.among(&kinds) {
        sessions.retain(|session| kinds.contains(&session.kind));
    }
    for session in &mut sessions {
        if let Some(erspan) = &mut session.erspan {
            erspan.state = exec.backend.erspan(session.session);
        }
        if let Some(from) = &mut session.erspan_destination {
            from.state = exec.backend.erspan_received(session.session);
        }
    }
    let view = Sessions { sessions };
    Ok(exec.present(&view, text))
}

fn view(session: u16, from: &MonitorSession) -> Session {
    let interfaces = from.interfaces.iter().map(|(name, direction)| Source {
        interface: Some(name.to_string()),
        vlan: None,
        direction: direction.name(),
    });
    let vlans = from.vlans.iter().map(|(vlan, direction)| Source {
        interface: None,
        vlan: Some(vlan.get()),
        direction: direction.name(),
    });
    let destinations = from.destinations.iter().map(|name| Destination { interface: name.to_string() });
    let keeps_tags = from.keep_tag || from.erspan.is_some() || from.erspan_destination.is_some();
    Session {
        session,
        kind: match (from.remote_source, from.remote_destination) {
            _ if from.erspan.is_some() => ERSPAN_SOURCE,
            _ if from.erspan_destination.is_some() => ERSPAN_DESTINATION,
            (Some(_), _) => "remote destination",
            (None, Some(_)) => "remote source",
            (None, None) => LOCAL,
        },
        source_rspan_vlan: from.remote_source.map(|vlan| vlan.get()),
        destination_rspan_vlan: from.remote_destination.map(|vlan| vlan.get()),
        sources: interfaces.chain(vlans).collect(),
        filter_vlans: from.filter.as_ref().map(ToString::to_string),
        destinations: destinations.collect(),
        encapsulation: if keeps_tags { "replicate" } else { "native" },
        ingress: false,
        erspan: from.erspan.as_ref().map(|source| Erspan {
            enabled: source.enabled,
            erspan_id: source.id,
            destination_address: source.destination,
            origin_address: source.origin,
            ttl: source.ttl,
            dscp: source.dscp,
            mtu: source.mtu,
            header_type: if source.header == ErspanType::Three { 3 } else { 2 },
            vrf: source.vrf.clone(),
            state: ErspanState::default(),
        }),
        erspan_destination: from.erspan_destination.as_ref().map(|from| ErspanFrom {
            enabled: from.enabled,
            erspan_id: from.id,
            address: from.address,
            vrf: from.vrf.clone(),
            state: ErspanReceived::default(),
        }),
    }
}

fn text(view: &Sessions) -> String {
    let mut out = String::new();
    for session in &view.sessions {
        let head = format!("Session {}", session.session);
        let _ = writeln!(out, "{head}\n{}", "-".repeat(head.len()));
        let mut line = |head: &str, value: &str| _ = writeln!(out, "{head:<23}: {value}");
        let kind = match session.kind {
            "remote source" => "Remote Source Session",
            "remote destination" => "Remote Destination Session",
            ERSPAN_SOURCE => "ERSPAN Source Session",
            ERSPAN_DESTINATION => "ERSPAN Destination Session",
            _ => "Local Session",
        };
        line("Type", kind);
        if let Some(erspan) = &session.erspan {
            line("Status", status(erspan.enabled, erspan.state.running, "Admin Enabled, not sending"));
        }
        if let Some(from) = &session.erspan_destination {
            line("Status", status(from.enabled, from.state.running, "Admin Enabled, not receiving"));
        }
        for (head, of) in
            [("Source Ports", source_port as fn(&Source) -> Option<String>), ("Source VLANs", source_vlan)]
        {
            let mut first = true;
            for (direction, label) in [("both", "    Both"), ("rx", "    RX Only"), ("tx", "    TX Only")] {
                let names: Vec<String> = session
                    .sources
                    .iter()
                    .filter(|source| source.direction == direction)
                    .filter_map(of)
                    .collect();
                if names.is_empty() {
                    continue;
                }
                if std::mem::take(&mut first) {
                    line(head, "");
                }
                line(label, &names.join(","));
            }
        }
        if let Some(vlan) = session.source_rspan_vlan {
            line("Source RSPAN VLAN", &vlan.to_string());
        }
        if let Some(vlans) = &session.filter_vlans {
            line("Filter VLANs", vlans);
        }
        if let Some(vlan) = session.destination_rspan_vlan {
            line("Dest RSPAN VLAN", &vlan.to_string());
        }
        let names: Vec<&str> = session.destinations.iter().map(|to| to.interface.as_str()).collect();
        if !names.is_empty() {
            line("Destination Ports", &names.join(","));
            line(
                "    Encapsulation",
                if session.encapsulation == "replicate" { "Replicate" } else { "Native" },
            );
            line("          Ingress", "Disabled");
        }
        if let Some(erspan) = &session.erspan {
            erspan_text(erspan, &mut line);
        }
        if let Some(from) = &session.erspan_destination {
            received_text(from, &mut line);
        }
        out.push('\n');
    }
    if view.sessions.is_empty() {
        out.push_str("No SPAN configuration is present in the system.\n");
    }
    out.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The status of an ERSPAN session; `waiting` is the one of a session that is enabled and does not run.
fn status(enabled: bool, running: bool, waiting: &'static str) -> &'static str {
    match (enabled, running) {
        (false, _) => "Admin Disabled",
        (true, true) => "Admin Enabled",
        (true, false) => waiting,
    }
}

/// The numbers of frames by reason, as text, without reasons whose number is 0.
fn counts(each: &[(&str, u64)]) -> String {
    let some: Vec<String> = each
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    if some.is_empty() { "0".to_owned() } else { some.join(", ") }
}

/// The lines of an ERSPAN destination session that follow its ports.
fn received_text(from: &ErspanFrom, line: &mut impl FnMut(&str, &str)) {
    if let Some(address) = from.address {
        line("Source IP Address", &address.to_string());
    }
    if let Some(id) = from.erspan_id {
        line("Source ERSPAN ID", &id.to_string());
    }
    if let Some(vrf) = &from.vrf {
        line("Source VRF", vrf);
    }
    let state = &from.state;
    if let Some(error) = &state.error {
        line("Error", error);
    }
    line("Copies received", &format!("{} ({} truncated)", state.received, state.truncated));
    line("Copies sent", &state.sent.to_string());
    line("Copies dropped", &counts(&state.dropped.each()));
    line("Packets dropped", &counts(&state.packets_dropped.each()));
}

/// The lines of an ERSPAN source session that follow its sources.
fn erspan_text(erspan: &Erspan, line: &mut impl FnMut(&str, &str)) {
    if let Some(address) = erspan.destination_address {
        line("Destination IP Address", &address.to_string());
    }
    line("MTU", &erspan.mtu.to_string());
    if let Some(id) = erspan.erspan_id {
        line("Destination ERSPAN ID", &id.to_string());
    }
    if let Some(address) = erspan.origin_address {
        line("Origin IP Address", &address.to_string());
    }
    line("IP TTL", &erspan.ttl.to_string());
    line("IP DSCP", &erspan.dscp.to_string());
    line("Header Type", &erspan.header_type.to_string());
    if let Some(vrf) = &erspan.vrf {
        line("VRF", vrf);
    }
    let state = &erspan.state;
    if let Some(error) = &state.error {
        line("Error", error);
    }
    line("Copies sent", &format!("{} ({} truncated)", state.sent, state.truncated));
    line("Copies dropped", &counts(&state.dropped.each()));
}

fn source_port(source: &Source) -> Option<String> {
    source.interface.clone()
}

fn source_vlan(source: &Source) -> Option<String> {
    source.vlan.map(|vlan| vlan.to_string())
}
