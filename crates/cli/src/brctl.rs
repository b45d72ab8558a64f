//! The bridge-utils commands, for users and scripts that know them: `lanyard brctl addbr br0`.
//!
//! An instance is one bridge, and the bridge's name is its hostname: `addbr` names an instance that has no
//! name yet, the other commands require that name. Every command edits the running configuration, so `show
//! running-config` shows what `brctl` changed. Outputs have bridge-utils' columns.

use crate::args::short;
use crate::backend::{Backend, MacFilter, Refusal};
use crate::edit::put;
use crate::mac_table;
use crate::view::StpPort;
use lanyard_config::spanning_tree::DEFAULT_PRIORITY;
use lanyard_config::{Config, Interface, InterfaceName, Role, StaticTarget};
use lanyard_stp::Mode;
use lanyard_types::{MacAddr, StpState};
use std::fmt::Write;

/// The commands: the syntax of each, and what it does.
pub const COMMANDS: &[(&str, &str)] = &[
    ("addbr BRIDGE", "name this instance BRIDGE"),
    ("delbr BRIDGE", "make its ports ordinary netdevs again, and remove the name"),
    ("addif BRIDGE DEVICE...", "make devices ports of the switch"),
    ("delif BRIDGE DEVICE...", "make ports ordinary netdevs again"),
    ("show [BRIDGE]", "the bridge and its ports"),
    ("showmacs BRIDGE", "the address table"),
    ("setageing BRIDGE SECONDS", "ageing time of addresses; 0 disables ageing"),
    ("stp BRIDGE on|off", "spanning tree, IEEE 802.1D; a mode that is configured already is kept"),
    ("setbridgeprio BRIDGE PRIORITY", "the bridge priority, a multiple of 4096 up to 61440"),
    ("sethello BRIDGE SECONDS", "the hello time, 1 to 10"),
    ("setmaxage BRIDGE SECONDS", "the maximum age of BPDUs, 6 to 40"),
    ("setfd BRIDGE SECONDS", "the forward delay, 4 to 30; 0 without a spanning tree: ports forward at once"),
    ("setpathcost BRIDGE PORT COST", "the path cost of a port, 1 to 200000000"),
    ("setportprio BRIDGE PORT PRIORITY", "the priority of a port, a multiple of 4 up to 60"),
    ("showstp BRIDGE", "the spanning tree and its ports"),
    ("hairpin BRIDGE PORT on|off", "only off: a frame is never sent to its ingress port"),
];

/// Runs one command; returns its output.
///
/// # Errors
/// The reason, worded as in bridge-utils if that has a message for it.
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
            match backend.running().spanning_tree.mode {
                Some(_) => Ok(String::new()),
                None => done(configure(&["spanning-tree mode stp"], backend)),
            }
        }
        ["stp", name, "off" | "no" | "0"] => {
            is(name, backend)?;
            done(configure(&["no spanning-tree mode"], backend))
        }
        ["setfd", name, seconds] if backend.running().spanning_tree.mode.is_none() && is_zero(seconds) => {
            is(name, backend).map(|_| String::new())
        }
        ["setbridgeprio", name, priority] => {
            is(name, backend)?;
            done(configure(&[&tree_line(backend.running(), "priority", priority)], backend))
        }
        [word @ ("sethello" | "setmaxage" | "setfd"), name, seconds] => {
            is(name, backend)?;
            done(set_time(word, seconds, backend))
        }
        ["setpathcost", name, port, cost] => {
            let port = member(backend.running(), &is(name, backend)?, port)?;
            done(configure_port(&port, &format!("spanning-tree cost {cost}"), backend))
        }
        ["setportprio", name, port, priority] => {
            let port = member(backend.running(), &is(name, backend)?, port)?;
            done(set_port_priority(&port, priority, backend))
        }
        ["showstp", name] => {
            is(name, backend)?;
            showstp(backend)
        }
        ["setgcint", ..] => {
            Err("setgcint is not supported by Lanyard: the address table ages entries without a \
                                 garbage collection interval"
                .into())
        }
        ["hairpin", name, port, "off" | "no" | "0"] => {
            member(backend.running(), is(name, backend)?.as_str(), port)?;
            Ok(String::new())
        }
        ["hairpin", _, _, "on" | "yes" | "1"] => {
            Err("hairpin is not possible: a frame is never sent to its ingress port".into())
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

/// Checks that `name` is the name of this bridge, and returns it.
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

/// The switch's ports; the index in this list is the port number.
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
    // bridge-utils accepts fractions; the switch accepts whole seconds.
    let whole = seconds.parse::<f64>().ok().filter(|s| s.fract() == 0.0 && (0.0..=1_000_000.0).contains(s));
    match whole.map(|s| s as u32).filter(|s| *s == 0 || *s >= 10) {
        Some(seconds) => config.fdb.ageing_s = seconds,
        None => {
            return Err(format!("ageing time {} is not possible: 0, or 10 to 1000000", short(seconds)).into());
        }
    }
    backend.commit(config)
}

/// Enters configuration lines; all of them are accepted, or none.
fn configure(lines: &[&str], backend: &mut dyn Backend) -> Result<(), Refusal> {
    let (config, errors) = crate::apply_text(&lines.join("\n"), backend.running());
    match errors.first() {
        Some(error) => Err(error.reason.clone().into()),
        None => backend.commit(config),
    }
}

fn configure_port(port: &InterfaceName, line: &str, backend: &mut dyn Backend) -> Result<(), Refusal> {
    let head = format!("interface {}", lanyard_config::text::reference(port));
    configure(&[&head, &format!(" {line}")], backend)
}

fn is_zero(seconds: &str) -> bool {
    seconds.parse::<f64>().is_ok_and(|seconds| seconds == 0.0)
}

/// The line for a setting of the bridge's tree: MST instance 0 in mode mst, else the tree of VLAN 1.
fn tree_line(config: &Config, word: &str, value: &str) -> String {
    match (config.spanning_tree.mode, word) {
        (Some(Mode::Mst), "priority") => format!("spanning-tree mst 0 priority {value}"),
        (Some(Mode::Mst), word) => format!("spanning-tree mst {word} {value}"),
        (_, word) => format!("spanning-tree vlan 1 {word} {value}"),
    }
}

fn set_time(command: &str, seconds: &str, backend: &mut dyn Backend) -> Result<(), Refusal> {
    let word = match command {
        "sethello" => "hello-time",
        "setmaxage" => "max-age",
        _ => "forward-time",
    };
    // bridge-utils accepts fractions; the switch accepts whole seconds.
    let whole = seconds.parse::<f64>().ok().filter(|s| s.fract() == 0.0 && (0.0..=255.0).contains(s));
    let Some(whole) = whole else {
        return Err(format!("{command} {}: enter whole seconds", short(seconds)).into());
    };
    configure(&[&tree_line(backend.running(), word, &whole.to_string())], backend)
}

/// Sets a port priority. `brctl` counts it in steps of 4 from 0 to 60, because the kernel's bridge stores it in six bits; the
/// switch counts it in steps of 16 from 0 to 240, the upper four of eight bits (IEEE 802.1D-2004).
fn set_port_priority(port: &InterfaceName, priority: &str, backend: &mut dyn Backend) -> Result<(), Refusal> {
    match priority.parse::<u32>().ok().filter(|priority| *priority <= 60 && priority % 4 == 0) {
        Some(priority) => {
            configure_port(port, &format!("spanning-tree port-priority {}", priority * 4), backend)
        }
        None => {
            let value = short(priority);
            Err(format!("port priority {value} is not possible: a multiple of 4 from 0 to 60").into())
        }
    }
}

/// The name of a port's state in IEEE 802.1D.
fn state(port: &StpPort) -> &'static str {
    match port.detail.state {
        StpState::Forwarding => "forwarding",
        StpState::Learning => "learning",
        StpState::Discarding if port.detail.role == lanyard_stp::Role::Disabled => "disabled",
        StpState::Discarding => "blocking",
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{:02}", ms / 1000, ms % 1000 / 10)
}

fn showstp(backend: &mut dyn Backend) -> Result<String, Refusal> {
    let view = backend.spanning_tree();
    let name = &backend.running().hostname;
    let Some(tree) = view.instances.first() else {
        return Err(format!("spanning tree is off: enter brctl stp {name} on").into());
    };
    let detail = &tree.detail;
    let [hello, forward, max_age] = detail.own_times_ms;
    let mut out = format!("{name}\n bridge id\t\t{}\n", tree.bridge_id);
    let _ = writeln!(out, " designated root\t{}", tree.root_id);
    let root_port = tree.root_port.as_deref().unwrap_or("0");
    let _ = writeln!(out, " root port\t\t{root_port}\t\t\tpath cost\t\t{}", tree.root_cost);
    for (label, now, own) in [
        ("max age\t", detail.max_age_ms, max_age),
        ("hello time", detail.hello_time_ms, hello),
        ("forward delay", detail.forward_delay_ms, forward),
    ] {
        let _ = writeln!(out, " {label}\t\t{}\t\t\tbridge {}\t{}", seconds(now), label.trim(), seconds(own));
    }
    for port in &tree.ports {
        let view = &port.detail;
        let _ = writeln!(out, "\n{} ({})", port.interface, view.port_id.number());
        let _ = writeln!(out, " port id\t\t{}\t\t\tstate\t\t\t{}", view.port_id, state(port));
        let _ = writeln!(out, " designated root\t{}\tpath cost\t\t{}", view.designated_root, port.cost);
        let _ = writeln!(
            out,
            " designated bridge\t{}\tmessage age timer\t{}",
            view.designated_bridge,
            seconds(view.message_age_timer_ms.unwrap_or(0))
        );
        let _ = writeln!(
            out,
            " designated port\t{}\t\t\tforward delay timer\t{}",
            view.designated_port,
            seconds(view.forward_delay_timer_ms.unwrap_or(0))
        );
        let _ = writeln!(out, " designated cost\t{}", view.designated_cost);
    }
    Ok(out)
}

fn show(backend: &mut dyn Backend) -> String {
    let mac = backend.version().base_mac.unwrap_or_default().colon().replace(':', "");
    let tree = backend.spanning_tree();
    let priority = tree.instances.first().map_or(DEFAULT_PRIORITY, |tree| tree.detail.bridge_id.priority());
    let enabled = if tree.mode.is_some() { "yes" } else { "no" };
    let config = backend.running();
    let mut out = String::from("bridge name\tbridge id\t\tSTP enabled\tinterfaces\n");
    let _ = write!(out, "{}\t\t{priority:04x}.{mac}\t{enabled}\t\t", config.hostname);
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
    for entry in mac_table::all(&MacFilter::default(), backend) {
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
