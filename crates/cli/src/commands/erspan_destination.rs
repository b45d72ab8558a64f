//! ERSPAN destination sessions: `monitor session N type erspan-destination`, and the lines under it and under its `source`.

use super::monitor_sources::netdevs;
use super::{erspan_source, need, vrf};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::mode::ConfigMode;
use crate::setting::{Change, Line, Number, Setting, Target, print};
use crate::tree::{Node, arg, kw};
use lanyard_config::{ErspanDestination, MAX_ERSPAN_ID, MonitorSession};

/// The keyword after `monitor session N type`.
pub(super) const TYPE: Node = kw("erspan-destination", "Configure ERSPAN destination session").run(enter);

/// `(config-mon-erspan-dst)#`.
pub const TREE: &[Node] = &[
    kw("destination", "ERSPAN destination interface").no(no_ports).then(&[kw(
        "interface",
        "ERSPAN destination interface",
    )
    .then(&[arg(Kind::InterfaceList, "Interfaces").run(ports)])]),
    kw("shutdown", "Shutdown this session").run(shutdown),
    kw("source", "ERSPAN source configuration").run(source),
];

/// `(config-mon-erspan-dst-src)#`.
pub const LINES: &[Line<ErspanDestination>] = &[
    Setting::of(
        "erspan-id",
        "Specify ERSPAN ID",
        &Number::any(field!(ErspanDestination, id), 1, MAX_ERSPAN_ID as u64, "ERSPAN ID"),
    )
    .line(),
    Line::own(
        "ip",
        kw("address", "Specify the IP address to which ERSPAN packets are sent").no(address).then(&[arg(
            Kind::Ipv4,
            "IP address of the switch",
        )
        .run(address)]),
        |from| from.address.iter().map(|address| format!("ip address {address}")).collect(),
    ),
    Line::own(
        "",
        kw("vrf", "Specify the VRF that receives ERSPAN packets").no(set_vrf).then(&[vrf::NAME.run(set_vrf)]),
        |from| from.vrf.iter().map(|name| format!("vrf {name}")).collect(),
    ),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("ip", "Configure IP properties of ERSPAN packets")];

impl Target for ErspanDestination {
    type Key = u16;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let (number, mut from) = {
            let (number, session) = of_mode(edit)?;
            (number, from_of(session, number)?.clone())
        };
        change(&mut from, &number)?;
        *from_of(of_mode(edit)?.1, number)? = from;
        Ok(())
    }
}

/// The session that the mode configures, with its number: `(config-mon-erspan-dst)#` or its submode
/// `(config-mon-erspan-dst-src)#`.
fn of_mode<'a>(edit: &'a mut Edit<'_>) -> Result<(u16, &'a mut MonitorSession), Refusal> {
    let (ConfigMode::ErspanDestination(number) | ConfigMode::ErspanDestinationSource(number)) = *edit.mode
    else {
        return Err("this command needs an ERSPAN session's mode: enter monitor session first".into());
    };
    let session = edit.config.monitor.get_mut(&number).filter(|session| session.erspan_destination.is_some());
    session.map(|session| (number, session)).ok_or_else(|| gone(number))
}

fn gone(number: u16) -> Refusal {
    format!("there is no ERSPAN destination session {number} any more").into()
}

fn from_of(session: &mut MonitorSession, number: u16) -> Result<&mut ErspanDestination, Refusal> {
    session.erspan_destination.as_mut().ok_or_else(|| gone(number))
}

fn change(edit: &mut Edit<'_>, set: impl FnOnce(&mut ErspanDestination)) -> Result<(), Refusal> {
    let (number, session) = of_mode(edit)?;
    set(from_of(session, number)?);
    Ok(())
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = need(args.number().and_then(|number| u16::try_from(number).ok()))?;
    let held = edit.config.monitor.get(&number);
    if args.form != Form::Set {
        if held.is_some_and(|session| session.erspan_destination.is_some()) {
            edit.config.monitor.remove(&number);
        }
        return Ok(());
    }
    if held.is_some_and(|session| session.erspan_destination.is_none()) {
        return Err(erspan_source::other_type(number, "an ERSPAN destination session"));
    }
    let made = || MonitorSession {
        erspan_destination: Some(ErspanDestination::default()),
        ..MonitorSession::default()
    };
    edit.config.monitor.entry(number).or_insert_with(made);
    *edit.mode = ConfigMode::ErspanDestination(number);
    Ok(())
}

fn ports(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let names = netdevs(args)?;
    let (_, session) = of_mode(edit)?;
    for name in names {
        match args.form {
            Form::Set => _ = session.destinations.insert(name),
            Form::No | Form::Default => _ = session.destinations.remove(&name),
        }
    }
    Ok(())
}

fn no_ports(edit: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    of_mode(edit)?.1.destinations.clear();
    Ok(())
}

fn shutdown(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change(edit, |from| from.enabled = args.form == Form::No)
}

fn source(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let (number, _) = of_mode(edit)?;
    if args.form == Form::Set {
        *edit.mode = ConfigMode::ErspanDestinationSource(number);
        return Ok(());
    }
    change(edit, |from| *from = ErspanDestination { enabled: from.enabled, ..ErspanDestination::default() })
}

fn address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let made = erspan_source::station(args)?;
    change(edit, |from| from.address = made)
}

fn set_vrf(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let chosen = if args.form == Form::Set { vrf::known(edit.config, args)? } else { None };
    change(edit, |from| from.vrf = chosen)
}

/// The section of an ERSPAN destination session in the running configuration.
pub(super) fn section(number: u16, session: &MonitorSession, from: &ErspanDestination) -> Vec<String> {
    let mut lines = vec![format!("monitor session {number} type erspan-destination")];
    lines.extend(session.destinations.iter().map(|name| format!(" destination interface {name}")));
    lines.extend(from.enabled.then(|| " no shutdown".to_owned()));
    let under = print(LINES, from);
    if !under.is_empty() {
        lines.push(" source".into());
        lines.extend(under.into_iter().map(|line| format!("  {line}")));
    }
    lines
}
