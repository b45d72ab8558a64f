//! The bridge-utils commands, for fingers and scripts that know them: `lanyard brctl addbr br0`.
//!
//! An instance is one bridge, and the bridge's name is its hostname: `addbr` names an instance that has no
//! name yet, the other commands ask for that name. Everything is done by editing the running configuration,
//! so `show running-config` shows what `brctl` did. Outputs have bridge-utils' columns.

use crate::args::short;
use crate::backend::{Backend, MacFilter, Refusal};
use crate::edit::put;
use lanyard_config::{Config, Interface, InterfaceName, Role, StaticTarget};
use lanyard_types::MacAddr;
use std::fmt::Write;

/// The commands: how each is written, and what it does.
pub const COMMANDS: &[(&str, &str)] = &[
    ("addbr BRIDGE", "name this instance BRIDGE"),
    ("delbr BRIDGE", "make its ports ordinary netdevs again, and forget the name"),
    ("addif BRIDGE DEVICE...", "make devices ports of the switch"),
    ("delif BRIDGE DEVICE...", "make ports ordinary netdevs again"),
    ("show [BRIDGE]", "the bridge and its ports"),
    ("showmacs BRIDGE", "the address table"),
    ("setageing BRIDGE SECONDS", "the time an address stays unseen; 0 is for ever"),
    ("stp BRIDGE on|off", "on is refused: use the spanning-tree commands of lanyard cli"),
    ("setfd BRIDGE SECONDS", "only 0: ports forward at once"),
    ("hairpin BRIDGE PORT on|off", "only off: a frame never goes out where it came in"),
];

/// Commands of bridge-utils that only mean something to a spanning tree.
const SPANNING_TREE: &[&str] =
    &["sethello", "setmaxage", "setbridgeprio", "setpathcost", "setportprio", "showstp", "setgcint"];

/// Runs one command; answers its output.
///
/// # Errors
/// The reason, worded as bridge-utils does where it has words for it.
pub fn run(words: &[&str], backend: &mut dyn Backend) -> Result<String, Refusal> {
    let done = |result: Result<(), Refusal>| result.map(|()| String::new());
    match words {
        ["addbr", name] => done(addbr(name, backend)),
        ["delbr", name] => done(delbr(is(name, backend)?, backend)),
        ["addif", name, devices @ ..] if !devices.is_empty() => {
            done(addif(is(name, backend)?, devices, backend))
        }
        ["delif", name, devices @ ..] if !devices.is_empty() => {
            done(delif(is(name, backend)?, devices, backend))
        }
        ["show"] => Ok(show(backend)),
        ["show", name] => {
            is(name, backend)?;
            Ok(show(backend))
        }
        ["showmacs", name] => {
            is(name, backend)?;
            Ok(showmacs(backend))
        }
        ["setageing", name, seconds] => {
            is(name, backend)?;
            done(setageing(seconds, backend))
        }
        ["stp", name, "on" | "yes" | "1"] => {
            is(name, backend)?;
            Err("spanning tree is not switched on here: use spanning-tree mode in lanyard cli".into())
        }
        ["stp", name, "off" | "no" | "0"] => is(name, backend).map(|_| String::new()),
        ["setfd", name, seconds] => {
            is(name, backend)?;
            match seconds.parse::<f64>() {
                Ok(0.0) => Ok(String::new()),
                _ => Err(format!(
                    "forward delay {} is not possible: ports forward at once (0)",
                    short(seconds)
                )
                .into()),
            }
        }
        ["hairpin", name, port, "off" | "no" | "0"] => {
            member(backend.running(), is(name, backend)?.as_str(), port)?;
            Ok(String::new())
        }
        ["hairpin", _, _, "on" | "yes" | "1"] => {
            Err("hairpin is not possible: a frame never goes out where it came in".into())
        }
        [word, ..] if SPANNING_TREE.contains(word) => {
            Err(format!("{word} is about the spanning tree, which is off: use lanyard cli").into())
        }
        _ => Err(usage(words)),
    }
}

fn usage(words: &[&str]) -> Refusal {
    let known =
        words.first().and_then(|word| COMMANDS.iter().find(|(form, _)| form.split(' ').next() == Some(word)));
    match (known, words.first()) {
        (Some((form, _)), _) => format!("Incorrect number of arguments for command: brctl {form}").into(),
        (None, Some(word)) => format!("never heard of command [{}]", short(word)).into(),
        (None, None) => {
            let forms: Vec<&str> = COMMANDS.iter().map(|(form, _)| *form).collect();
            format!("brctl needs a command: {}", forms.join(", ")).into()
        }
    }
}

/// The bridge's name, when it is this one's.
fn is(name: &str, backend: &dyn Backend) -> Result<String, Refusal> {
    if backend.running().hostname == name {
        Ok(name.to_owned())
    } else {
        Err(format!("bridge {} does not exist!", short(name)).into())
    }
}

fn addbr(name: &str, backend: &mut dyn Backend) -> Result<(), Refusal> {
    let mut config = backend.running().clone();
    if config.hostname == name {
        return Err(format!("device {name} already exists; can't create bridge with the same name").into());
    }
    if config.hostname != Config::default().hostname {
        let other = &config.hostname;
        return Err(format!(
            "this instance is bridge {other}: an instance is one bridge, run another for {}",
            short(name)
        )
        .into());
    }
    let (text, errors) = crate::apply_text(&format!("hostname {name}"), &config);
    if let Some(error) = errors.first() {
        return Err(error.reason.clone().into());
    }
    config = text;
    backend.commit(config)
}

fn delbr(_: String, backend: &mut dyn Backend) -> Result<(), Refusal> {
    let mut config = backend.running().clone();
    config.hostname = Config::default().hostname;
    for name in ports(&config) {
        leave(&mut config, &name);
    }
    backend.commit(config)
}

/// The switch's ports, in the order that numbers them.
fn ports(config: &Config) -> Vec<InterfaceName> {
    let ports = config.interfaces.iter().filter(|(_, interface)| interface.role == Role::Switchport);
    ports.map(|(name, _)| name.clone()).collect()
}

/// Makes a port an ordinary netdev.
fn leave(config: &mut Config, name: &InterfaceName) {
    config.interfaces.remove(name);
    config.fdb.statics.retain(|_, target| *target != StaticTarget::Interface(name.clone()));
}

fn member(config: &Config, bridge: &str, device: &str) -> Result<InterfaceName, Refusal> {
    let name = InterfaceName::Netdev(device.to_owned());
    match config.interfaces.get(&name) {
        Some(interface) if interface.role == Role::Switchport => Ok(name),
        _ => Err(format!("device {} is not a slave of {bridge}", short(device)).into()),
    }
}

fn addif(bridge: String, devices: &[&str], backend: &mut dyn Backend) -> Result<(), Refusal> {
    let mut config = backend.running().clone();
    let netdevs = backend.netdev_names();
    for device in devices {
        let name = crate::args::netdev(device)?;
        if !netdevs.iter().any(|netdev| netdev == device) {
            return Err(format!("interface {} does not exist!", short(device)).into());
        }
        if member(&config, &bridge, device).is_ok() {
            let text = "is already a member of a bridge; can't enslave it to bridge";
            return Err(format!("device {device} {text} {bridge}.").into());
        }
        let interface = config.interfaces.get(&name).cloned().unwrap_or_default();
        let port = Interface { role: Role::Switchport, ipv4: Vec::new(), ipv6: Vec::new(), ..interface };
        put(&mut config, name, port);
    }
    backend.commit(config)
}

fn delif(bridge: String, devices: &[&str], backend: &mut dyn Backend) -> Result<(), Refusal> {
    let mut config = backend.running().clone();
    for device in devices {
        let name = member(&config, &bridge, device)?;
        leave(&mut config, &name);
    }
    backend.commit(config)
}

fn setageing(seconds: &str, backend: &mut dyn Backend) -> Result<(), Refusal> {
    let mut config = backend.running().clone();
    // bridge-utils takes fractions; the switch counts whole seconds.
    let whole = seconds.parse::<f64>().ok().filter(|s| s.fract() == 0.0 && (0.0..=1_000_000.0).contains(s));
    match whole.map(|s| s as u32).filter(|s| *s == 0 || *s >= 10) {
        Some(seconds) => config.fdb.ageing_s = seconds,
        None => {
            return Err(format!("ageing time {} is not possible: 0, or 10 to 1000000", short(seconds)).into());
        }
    }
    backend.commit(config)
}

fn show(backend: &mut dyn Backend) -> String {
    let mac = backend.version().base_mac.unwrap_or_default().colon().replace(':', "");
    let config = backend.running();
    let mut out = String::from("bridge name\tbridge id\t\tSTP enabled\tinterfaces\n");
    let _ = write!(out, "{}\t\t8000.{mac}\tno\t\t", config.hostname);
    let ports: Vec<String> = ports(config).iter().map(ToString::to_string).collect();
    out.push_str(&ports.join("\n\t\t\t\t\t\t\t"));
    out.push('\n');
    out
}

fn showmacs(backend: &mut dyn Backend) -> String {
    let ports = ports(backend.running());
    let number = |name: &str| ports.iter().position(|port| port.to_string() == name).map_or(0, |at| at + 1);
    let mut rows: Vec<(usize, MacAddr, bool, u32)> = Vec::new();
    for interface in backend.interfaces(None).interfaces {
        if let (Some(mac), at @ 1..) = (interface.mac, number(&interface.name)) {
            rows.push((at, mac, true, 0));
        }
    }
    for entry in backend.mac_table(&MacFilter::default()).entries {
        if let at @ 1.. = entry.interface.as_deref().map_or(0, number) {
            rows.push((at, entry.mac, entry.kind == "self", entry.age_s));
        }
    }
    rows.sort_by_key(|(port, mac, local, _)| (*mac, *port, !*local));
    rows.dedup_by_key(|(port, mac, ..)| (*port, *mac));
    let mut out = String::from("port no\tmac addr\t\tis local?\tageing timer\n");
    for (port, mac, is_local, age) in rows {
        let local = if is_local { "yes" } else { "no" };
        let _ = writeln!(out, "{port:>3}\t{}\t{local}\t\t{age:>4}.00", mac.colon());
    }
    out
}
