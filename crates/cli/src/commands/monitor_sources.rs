//! The common parts of all types of monitor sessions: sources and a filter of VLANs.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::render::ios_name;
use crate::tree::{Node, arg, kw};
use lanyard_config::{InterfaceName, MonitorDirection, MonitorSession};

/// `filter vlan`.
pub(super) const FILTER: Node =
    kw("filter", "SPAN filter").no(no_filter).then(&[kw("vlan", "SPAN filter VLAN")
        .no(no_filter)
        .then(&[arg(Kind::VlanList, "VLAN IDs").run(filter)])]);

/// The words after `source` for interfaces.
pub(super) const SOURCE_INTERFACE: Node =
    kw("interface", "SPAN source interface").then(&[arg(Kind::InterfaceList, "Interfaces")
        .run(source_interfaces)
        .then(&[
            kw("both", "Monitor received and transmitted traffic").run(source_interfaces),
            kw("rx", "Monitor received traffic only").run(source_interfaces),
            kw("tx", "Monitor transmitted traffic only").run(source_interfaces),
        ])]);

/// The words after `source` for VLANs.
pub(super) const SOURCE_VLAN: Node =
    kw("vlan", "SPAN source VLAN").then(&[arg(Kind::VlanList, "VLAN IDs").run(source_vlans).then(&[
        kw("both", "Monitor received and transmitted traffic").run(source_vlans),
        kw("rx", "Monitor received traffic only").run(source_vlans),
        kw("tx", "Monitor transmitted traffic only").run(source_vlans),
    ])]);

const DIRECTIONS: &[(&str, MonitorDirection)] =
    &[("both", MonitorDirection::Both), ("rx", MonitorDirection::Rx), ("tx", MonitorDirection::Tx)];

/// Changes the session that the line or the mode names. A session that is left without any setting is removed.
pub(super) fn session(
    edit: &mut Edit<'_>,
    args: &Args,
    change: impl FnOnce(&mut MonitorSession) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let in_mode = if let ConfigMode::ErspanSource(number) = *edit.mode { Some(number) } else { None };
    let in_line = || args.number().and_then(|number| u16::try_from(number).ok());
    let number = need(in_mode.or_else(in_line))?;
    let mut session = edit.config.monitor.get(&number).cloned().unwrap_or_default();
    let kind = match (&session.erspan, &session.erspan_destination) {
        (Some(_), _) => Some("erspan-source"),
        (None, Some(_)) => Some("erspan-destination"),
        (None, None) => None,
    };
    if let Some(kind) = kind.filter(|_| in_mode.is_none()) {
        let text = format!(
            "monitor session {number} is an ERSPAN session: enter monitor session {number} type {kind} first"
        );
        return Err(text.into());
    }
    change(&mut session)?;
    if session == MonitorSession::default() {
        edit.config.monitor.remove(&number);
    } else {
        edit.config.monitor.insert(number, session);
    }
    Ok(())
}

pub(super) fn no_sources(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    session(edit, args, |session| {
        session.interfaces.clear();
        session.vlans.clear();
        session.remote_source = None;
        Ok(())
    })
}

fn source_interfaces(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let names = netdevs(args)?;
    let direction = args.among(DIRECTIONS).unwrap_or_default();
    session(edit, args, |session| {
        for name in names {
            match args.form {
                Form::Set => _ = session.interfaces.insert(name, direction),
                Form::No | Form::Default => _ = session.interfaces.remove(&name),
            }
        }
        Ok(())
    })
}

fn source_vlans(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlans = need(args.vlans())?;
    let direction = args.among(DIRECTIONS).unwrap_or_default();
    session(edit, args, |session| {
        for vlan in vlans.iter() {
            match args.form {
                Form::Set => _ = session.vlans.insert(vlan, direction),
                Form::No | Form::Default => _ = session.vlans.remove(&vlan),
            }
        }
        Ok(())
    })
}

pub(super) fn netdevs(args: &Args) -> Result<Vec<InterfaceName>, Refusal> {
    let names = need(args.interfaces())?;
    match names.iter().find(|name| matches!(name, InterfaceName::Vlan(_))) {
        Some(name) => {
            let name = ios_name(name);
            Err(format!("{name} is no port: enter source vlan to monitor the frames of a VLAN").into())
        }
        None => Ok(names),
    }
}

fn filter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlans = need(args.vlans())?;
    session(edit, args, |session| {
        let held = session.filter.take().unwrap_or(lanyard_types::VlanSet::EMPTY);
        let next = match args.form {
            Form::Set => held.union(&vlans),
            Form::No | Form::Default => held.difference(&vlans),
        };
        session.filter = (!next.is_empty()).then_some(next);
        Ok(())
    })
}

fn no_filter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    session(edit, args, |session| {
        session.filter = None;
        Ok(())
    })
}

/// The words after a source in the running configuration; none for both directions.
pub(super) fn direction_words(direction: MonitorDirection) -> String {
    match direction {
        MonitorDirection::Both => String::new(),
        one => format!(" {}", one.name()),
    }
}
