//! `platform interface-name NETDEV NAME`: the name that a Catalyst would give an interface. Lines and commands accept it, in full
//! and abbreviated as in IOS; output has the name of the netdev.

use super::need;
use crate::args::{Args, Form, Kind, netdev, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::setting::Line;
use crate::tree::{Node, arg, kw};
use lanyard_config::{Config, InterfaceName};

/// The maximum length of a name, in bytes.
const MAX_NAME: usize = 40;

/// In global configuration.
pub const LINES: &[Line<Config>] = &[Line::own("platform", ENTRY, print)];

const ENTRY: Node = kw("interface-name", "Let an interface be named as on a Catalyst, too").then(&[arg(
    Kind::Word("NETDEV", 15),
    "The netdev",
)
.no(name)
.then(&[arg(Kind::Word("NAME", MAX_NAME), "Such as GigabitEthernet1/0/1").run(name)])]);

fn print(config: &Config) -> Vec<String> {
    let names = &config.appliance.interface_names;
    names.iter().map(|(netdev, name)| format!("platform interface-name {netdev} {name}")).collect()
}

fn name(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let texts = args.texts();
    let InterfaceName::Netdev(netdev) = netdev(need(texts.first())?)? else { return Ok(()) };
    let names = &mut edit.config.appliance.interface_names;
    if args.form != Form::Set {
        names.remove(&netdev);
        return Ok(());
    }
    let name = need(texts.get(1))?;
    let at = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (kind, number) = name.split_at(at);
    let is_name = kind.len() >= 2
        && kind.bytes().all(|byte| byte.is_ascii_alphabetic())
        && !number.is_empty()
        && number.split('/').all(|part| part.parse::<u16>().is_ok());
    // `vlan` and `po` begin the names of Lanyard's VLAN interfaces and port-channels.
    let is_own = ["vlan", "po"].into_iter().any(|own| kind.eq_ignore_ascii_case(own));
    if !is_name || is_own {
        return Err(format!(
            "{} is not such a name: letters, then numbers, as in GigabitEthernet1/0/1",
            short(name)
        )
        .into());
    }
    let is_taken = |(of, other): (&String, &String)| *of != netdev && other.eq_ignore_ascii_case(name);
    if let Some((of, _)) = names.iter().find(|entry| is_taken(*entry)) {
        return Err(format!("{name} is the name of {of} already").into());
    }
    names.insert(netdev, name.clone());
    Ok(())
}
