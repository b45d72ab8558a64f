//! Global configuration.

use super::{banner, fpm, interface, mac, need, route, spanning_tree, track, vlan, vrf};
use crate::args::{Args, Kind, MAX_WORD, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::parse::Form;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::Config;
use lanyard_pipeline::state::{GlobalState, ReservedAction};

/// `(config)#`.
pub const TREE: &[Node] = &[
    route::ARP,
    banner::ENTRY,
    fpm::ENTRY,
    kw("hostname", "Set system's network name").no(hostname).then(&[arg(
        Kind::Word("WORD", MAX_WORD),
        "This system's network name",
    )
    .run(hostname)]),
    spanning_tree::ERRDISABLE,
    interface::ENTRY,
    route::IPV4,
    route::IPV6,
    mac::ENTRY,
    kw("reserved-address", "What happens to frames for 01:80:C2:00:00:0X").then(&[number(
        0,
        15,
        "The address's last digit, as a decimal number",
    )
    .no(reserved)
    .then(&[
        kw("drop", "Drop them").run(reserved),
        kw("forward", "Forward them as multicast").run(reserved),
    ])]),
    spanning_tree::ENTRY,
    track::ENTRY,
    vlan::ENTRY,
    vrf::ENTRY,
];

/// Longest hostname: a DNS label.
const MAX_HOSTNAME: usize = 63;

fn hostname(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        edit.config.hostname = Config::default().hostname;
        return Ok(());
    }
    let name = need(args.text())?;
    // RFC 1123, 2.1, and the underscore that people use.
    let inner = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let ends = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && !name.ends_with(['-', '.']);
    if !inner || !ends || name.len() > MAX_HOSTNAME {
        let rule = "letters, digits, -, _ and ., at most 63, beginning with a letter or digit";
        return Err(format!("{} is not a hostname: {rule}", short(&name)).into());
    }
    edit.config.hostname = name;
    Ok(())
}

fn reserved(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = need(args.number())? as u8;
    let default = GlobalState::default().reserved.get(usize::from(number)).copied().unwrap_or_default();
    let action = match args.form {
        Form::Set if args.has("forward") => ReservedAction::Forward,
        Form::Set => ReservedAction::Drop,
        Form::No | Form::Default => default,
    };
    if number == 1 && action == ReservedAction::Forward {
        return Err("reserved address 1 is PAUSE, which no bridge forwards (IEEE 802.1Q, 8.6.3)".into());
    }
    if action == default {
        edit.config.reserved.remove(&number);
    } else {
        edit.config.reserved.insert(number, action);
    }
    Ok(())
}
