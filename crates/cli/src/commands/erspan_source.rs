//! ERSPAN source sessions: `monitor session N type erspan-source`, and the lines under it and under its `destination`.

use super::monitor_sources::{FILTER, SOURCE_INTERFACE, SOURCE_VLAN, direction_words, no_sources};
use super::{need, vrf};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::mode::ConfigMode;
use crate::setting::{Change, Line, Number, Setting, Target, print};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{ERSPAN_MTU, ErspanSource, ErspanType, MAX_ERSPAN_ID, MonitorSession};
use std::net::{IpAddr, Ipv4Addr};

/// The keyword after `monitor session N type`.
pub(super) const TYPE: Node = kw("erspan-source", "Configure ERSPAN source session").run(enter);

/// `(config-mon-erspan-src)#`.
pub const TREE: &[Node] = &[
    kw("destination", "ERSPAN destination configuration").run(destination),
    FILTER,
    kw("header-type", "ERSPAN header type configuration").no(header_type).then(&[number(
        2,
        3,
        "ERSPAN header type (default 2)",
    )
    .run(header_type)]),
    kw("shutdown", "Shutdown this session").run(shutdown),
    kw("source", "ERSPAN source interface, VLAN").no(no_sources).then(&[SOURCE_INTERFACE, SOURCE_VLAN]),
];

/// `(config-mon-erspan-src-dst)#`.
pub const LINES: &[Line<ErspanSource>] = &[
    Setting::of(
        "erspan-id",
        "Specify ERSPAN ID",
        &Number::any(field!(ErspanSource, id), 1, MAX_ERSPAN_ID as u64, "ERSPAN ID"),
    )
    .line(),
    Line::own(
        "ip",
        kw("address", "Specify ERSPAN destination IP address").no(address).then(&[arg(
            Kind::Ipv4,
            "IP address",
        )
        .run(address)]),
        |source| source.destination.iter().map(|address| format!("ip address {address}")).collect(),
    ),
    Setting::of(
        "ip dscp",
        "Specify DSCP value for ERSPAN packets",
        &Number::any(field!(ErspanSource, dscp), 0, 63, "DSCP value"),
    )
    .line(),
    Line::unprinted(
        "ip",
        kw("prec", "Specify precedence value for ERSPAN packets").no(precedence).then(&[number(
            0,
            7,
            "Precedence value; kept as the DSCP that means the same",
        )
        .run(precedence)]),
    ),
    Setting::of(
        "ip ttl",
        "Specify TTL value for ERSPAN packets",
        &Number::any(field!(ErspanSource, ttl), 1, 255, "TTL value (default 255)"),
    )
    .line(),
    Setting::of(
        "mtu",
        "Truncate copies so that packets have at most this length",
        &Number::any(
            field!(ErspanSource, mtu),
            ERSPAN_MTU.0 as u64,
            ERSPAN_MTU.1 as u64,
            "Bytes with the IPv4 header (default 9000)",
        ),
    )
    .line(),
    Line::own(
        "origin ip",
        kw("address", "Configure the source IP address of ERSPAN packets").no(origin).then(&[arg(
            Kind::Ipv4,
            "IP address of the switch",
        )
        .run(origin)]),
        |source| source.origin.iter().map(|address| format!("origin ip address {address}")).collect(),
    ),
    Line::own(
        "",
        kw("vrf", "Specify the VRF by which ERSPAN packets are sent")
            .no(set_vrf)
            .then(&[vrf::NAME.run(set_vrf)]),
        |source| source.vrf.iter().map(|name| format!("vrf {name}")).collect(),
    ),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[
    ("ip", "Configure IP properties of ERSPAN packets"),
    ("origin", "Configure the origin of ERSPAN packets"),
    ("origin ip", "Configure IP properties of the origin"),
];

impl Target for ErspanSource {
    type Key = u16;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let ConfigMode::ErspanSourceDestination(number) = *edit.mode else {
            return Err("this command needs an ERSPAN destination's mode: enter destination first".into());
        };
        let mut source = of_session(edit, number)?.clone();
        change(&mut source, &number)?;
        *of_session(edit, number)? = source;
        Ok(())
    }
}

fn of_session<'a>(edit: &'a mut Edit<'_>, number: u16) -> Result<&'a mut ErspanSource, Refusal> {
    let session = edit.config.monitor.get_mut(&number);
    session
        .and_then(|session| session.erspan.as_mut())
        .ok_or_else(|| format!("there is no ERSPAN session {number} any more").into())
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = need(args.number().and_then(|number| u16::try_from(number).ok()))?;
    let held = edit.config.monitor.get(&number);
    if args.form != Form::Set {
        if held.is_some_and(|session| session.erspan.is_some()) {
            edit.config.monitor.remove(&number);
        }
        return Ok(());
    }
    if held.is_some_and(|session| session.erspan.is_none()) {
        return Err(other_type(number, "an ERSPAN source session"));
    }
    let made = || MonitorSession { erspan: Some(ErspanSource::default()), ..MonitorSession::default() };
    edit.config.monitor.entry(number).or_insert_with(made);
    *edit.mode = ConfigMode::ErspanSource(number);
    Ok(())
}

/// The refusal of the line that begins a session of the type `wanted`, because the session `number` has another type.
pub(super) fn other_type(number: u16, wanted: &str) -> Refusal {
    format!(
        "monitor session {number} is not {wanted}: enter no monitor session {number} first, or choose another number"
    )
    .into()
}

/// The number of the session that the mode configures: `(config-mon-erspan-src)#` or its submode `(config-mon-erspan-src-dst)#`.
fn number_of(edit: &Edit<'_>) -> Result<u16, Refusal> {
    match *edit.mode {
        ConfigMode::ErspanSource(number) | ConfigMode::ErspanSourceDestination(number) => Ok(number),
        _ => Err("this command needs an ERSPAN session's mode: enter monitor session first".into()),
    }
}

fn destination(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = number_of(edit)?;
    let source = of_session(edit, number)?;
    if args.form == Form::Set {
        *edit.mode = ConfigMode::ErspanSourceDestination(number);
    } else {
        let ErspanSource { enabled, header, .. } = *source;
        *source = ErspanSource { enabled, header, ..ErspanSource::default() };
    }
    Ok(())
}

fn shutdown(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = number_of(edit)?;
    of_session(edit, number)?.enabled = args.form == Form::No;
    Ok(())
}

fn header_type(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = number_of(edit)?;
    let chosen = args.number().filter(|_| args.form == Form::Set);
    of_session(edit, number)?.header = if chosen == Some(3) { ErspanType::Three } else { ErspanType::Two };
    Ok(())
}

fn set_vrf(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let chosen = if args.form == Form::Set { vrf::known(edit.config, args)? } else { None };
    change(edit, |source| source.vrf = chosen)
}

/// The unicast address of a line; `None` for its `no` form.
pub(super) fn station(args: &Args) -> Result<Option<Ipv4Addr>, Refusal> {
    if args.form != Form::Set {
        return Ok(None);
    }
    match need(args.addresses().first().copied())? {
        IpAddr::V4(made) if !made.is_unspecified() && !made.is_multicast() && !made.is_broadcast() => {
            Ok(Some(made))
        }
        made => Err(format!("{made} is not the address of a station: enter a unicast address").into()),
    }
}

fn change(edit: &mut Edit<'_>, set: impl FnOnce(&mut ErspanSource)) -> Result<(), Refusal> {
    let number = number_of(edit)?;
    set(of_session(edit, number)?);
    Ok(())
}

fn address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let made = station(args)?;
    change(edit, |source| source.destination = made)
}

fn origin(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let made = station(args)?;
    change(edit, |source| source.origin = made)
}

fn precedence(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let precedence = args.number().filter(|_| args.form == Form::Set).unwrap_or_default();
    change(edit, |source| source.dscp = (precedence as u8 & 7) << 3)
}

/// The section of an ERSPAN session in the running configuration.
pub(super) fn section(number: u16, session: &MonitorSession, source: &ErspanSource) -> Vec<String> {
    let mut lines = vec![format!("monitor session {number} type erspan-source")];
    let interfaces = session.interfaces.iter();
    lines.extend(interfaces.map(|(name, way)| format!(" source interface {name}{}", direction_words(*way))));
    let vlans = session.vlans.iter();
    lines.extend(vlans.map(|(vlan, way)| format!(" source vlan {vlan}{}", direction_words(*way))));
    lines.extend(session.filter.iter().map(|vlans| format!(" filter vlan {vlans}")));
    lines.extend((source.header == ErspanType::Three).then(|| " header-type 3".to_owned()));
    lines.extend(source.enabled.then(|| " no shutdown".to_owned()));
    let under = print(LINES, source);
    if !under.is_empty() {
        lines.push(" destination".into());
        lines.extend(under.into_iter().map(|line| format!("  {line}")));
    }
    lines
}
