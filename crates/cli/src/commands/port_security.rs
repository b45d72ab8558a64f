//! Port security: `switchport port-security ...` under an interface, `show port-security ...`, `clear port-security ...`.

use super::interface::port;
use super::need;
use super::shared::get_interfaces;
use crate::args::{Args, Form, Kind};
use crate::backend::{Refusal, SecureFilter};
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::{columns, ios_netdev};
use crate::setting::{Choice, Flag, Line, Number, Setting};
use crate::tree::{Node, arg, kw};
use crate::view::{PortSecurityView, SecureAddressView, SecurePort};
use lanyard_config::{Interface, MAX_SECURE, SecureKind, Violation};
use lanyard_types::{MacAddr, VlanId};
use serde::Serialize;
use std::fmt::Write;

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("switchport port-security aging", "Port-security aging commands")];

/// Under an interface.
pub const LINES: &[Line<Interface>] = &[
    Setting::of(
        "switchport port-security",
        "Security related command",
        &Flag(field!(Interface, switchport.stages.secure)),
    )
    .on(port)
    .line(),
    Setting::of(
        "switchport port-security maximum",
        "Max secure addresses",
        &Number::any(
            field!(Interface, switchport.security.maximum),
            1,
            MAX_SECURE as u64,
            "Maximum addresses",
        ),
    )
    .on(port)
    .line(),
    Setting::of(
        "switchport port-security violation",
        "Security violation mode",
        &Choice {
            field: field!(Interface, switchport.security.violation),
            of: &[
                ("protect", Violation::Protect, "Security violation protect mode"),
                ("restrict", Violation::Restrict, "Security violation restrict mode"),
                ("shutdown", Violation::Shutdown, "Security violation shutdown mode"),
            ],
        },
    )
    .on(port)
    .line(),
    Setting::of(
        "switchport port-security aging time",
        "Port-security aging time",
        &Number::any(field!(Interface, switchport.security.aging_min), 1, 1440, "Aging time in minutes"),
    )
    .on(port)
    .line(),
    Line::own("switchport port-security", ADDRESSES, print),
];

const ADDRESSES: Node = kw("mac-address", "Secure mac address").then(&[
    kw("sticky", "Configure dynamic secure addresses as sticky").run(sticky).then(&[STICKY]),
    STATIC,
]);

const STATIC: Node = arg(Kind::Mac, "48 bit mac address")
    .run(static_address)
    .then(&[kw("vlan", VLAN_HELP).then(&[arg(Kind::Vlan, "VLAN ID").run(static_address)])]);

const STICKY: Node = arg(Kind::Mac, "48 bit mac address")
    .run(sticky_address)
    .then(&[kw("vlan", VLAN_HELP).then(&[arg(Kind::Vlan, "VLAN ID").run(sticky_address)])]);

const VLAN_HELP: &str = "set VLAN ID of the VLAN on which this address can be learned";

fn sticky(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let on = args.form == Form::Set;
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            let security = &mut interface.switchport.security;
            security.sticky = on;
            if !on {
                security.addresses.retain(|_, kind| *kind != SecureKind::Sticky);
            }
        }
        Ok(())
    })
}

fn static_address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    address(edit, args, SecureKind::Static)
}

fn sticky_address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    address(edit, args, SecureKind::Sticky)
}

fn address(edit: &mut Edit<'_>, args: &Args, kind: SecureKind) -> Result<(), Refusal> {
    let (mac, vlan): (MacAddr, Option<VlanId>) = (need(args.mac())?, args.vlan());
    if mac.is_group() || mac.is_zero() {
        return Err(format!("{mac} is not the address of a station: enter a unicast address").into());
    }
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            let addresses = &mut interface.switchport.security.addresses;
            match args.form {
                Form::Set => _ = addresses.insert((mac, vlan), kind),
                Form::No | Form::Default => _ = addresses.remove(&(mac, vlan)),
            }
        }
        Ok(())
    })
}

fn print(interface: &Interface) -> Vec<String> {
    let security = &interface.switchport.security;
    let mut lines = Vec::new();
    if security.sticky {
        lines.push("switchport port-security mac-address sticky".to_owned());
    }
    lines.extend(security.addresses.iter().map(|((mac, vlan), kind)| {
        let sticky = if *kind == SecureKind::Sticky { "sticky " } else { "" };
        let vlan = vlan.map_or(String::new(), |vlan| format!(" vlan {vlan}"));
        format!("switchport port-security mac-address {sticky}{mac}{vlan}")
    }));
    lines
}

/// Under `show`.
pub const SHOW: Node = kw("port-security", "Show secure port information").exec(show).then(&[
    kw("address", "Show secure address").exec(show_addresses),
    kw("interface", "Show secure interface").then(&[arg(Kind::Interface, "Interface")
        .exec(show_one)
        .then(&[kw("address", "Show secure address").exec(show_addresses)])]),
]);

/// Under `clear`.
pub const CLEAR: Node = kw("port-security", "Clear secure addresses").then(&[
    kw("all", "All secure addresses").exec(clear).options(ONLY),
    kw("configured", "Configured secure addresses").exec(clear).options(ONLY),
    kw("dynamic", "Secure addresses that were learned").exec(clear).options(ONLY),
    kw("sticky", "Sticky secure addresses").exec(clear).options(ONLY),
]);

const ONLY: &[Node] = &[
    kw("address", "One address").then(&[arg(Kind::Mac, "48 bit mac address")]),
    kw("interface", "Of one interface").then(&[arg(Kind::Interface, "Interface")]),
];

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    get_interfaces(exec, args)?;
    const KINDS: &[(&str, [bool; 3])] = &[
        ("all", [true; 3]),
        ("configured", [true, false, false]),
        ("dynamic", [false, true, false]),
        ("sticky", [false, false, true]),
    ];
    let [configured, dynamic, sticky] = need(args.among(KINDS))?;
    let filter = SecureFilter { dynamic, sticky, configured, interface: args.interface(), mac: args.mac() };
    exec.backend.clear_port_security(&filter);
    Ok(Outcome::Text(String::new()))
}

#[derive(Debug, Serialize)]
struct Ports {
    ports: Vec<SecurePort>,
    /// The number of secure addresses of all ports.
    total: usize,
}

fn show(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let PortSecurityView { ports, addresses } = exec.backend.port_security();
    Ok(exec.present(&Ports { ports, total: addresses.len() }, text))
}

fn text(view: &Ports) -> String {
    let row = |port: &SecurePort| {
        vec![
            ios_netdev(&port.interface),
            port.maximum.to_string(),
            port.total.to_string(),
            port.violations.to_string(),
            capital(port.violation),
        ]
    };
    let rows: Vec<_> = view.ports.iter().map(row).collect();
    let heads = ["Secure Port", "MaxSecureAddr", "CurrentAddr", "SecurityViolation", "Security Action"];
    format!("{}Total Addresses in System : {}\n", columns(&heads, &rows, &[1, 2, 3]), view.total)
}

/// The word with its first letter in upper case, as IOS shows it.
fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn show_one(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let found = get_interfaces(exec, args)?;
    let name = need(found.interfaces.first().map(|view| view.name.clone()))?;
    let port = exec.backend.port_security().ports.into_iter().find(|port| port.interface == name);
    let port = port.ok_or_else(|| {
        Refusal::from(format!("{name} has no port security: enter switchport port-security"))
    })?;
    Ok(exec.present(&port, one))
}

fn one(port: &SecurePort) -> String {
    let mut out = String::new();
    let mut line = |head: &str, value: String| _ = writeln!(out, "{head:<27}: {value}");
    line("Port Security", "Enabled".into());
    line("Port Status", capital(port.status));
    line("Violation Mode", capital(port.violation));
    line("Aging Time", format!("{} mins", port.aging_min));
    line("Aging Type", "Absolute".into());
    line("Maximum MAC Addresses", port.maximum.to_string());
    line("Total MAC Addresses", port.total.to_string());
    line("Configured MAC Addresses", port.configured.to_string());
    line("Sticky MAC Addresses", port.sticky.to_string());
    let last = port.last_source.map_or_else(|| "0000.0000.0000".into(), |mac| mac.to_string());
    line("Last Source Address:Vlan", format!("{last}:{}", port.last_vlan.unwrap_or(0)));
    line("Security Violation Count", port.violations.to_string());
    line("Dropped Frames", port.dropped.to_string());
    out
}

#[derive(Debug, Serialize)]
struct Addresses {
    addresses: Vec<SecureAddressView>,
}

fn show_addresses(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    get_interfaces(exec, args)?;
    let only = args.interface().map(|name| name.to_string());
    let mut addresses = exec.backend.port_security().addresses;
    addresses.retain(|address| only.as_ref().is_none_or(|only| *only == address.interface));
    Ok(exec.present(&Addresses { addresses }, address_text))
}

fn address_text(view: &Addresses) -> String {
    let row = |address: &SecureAddressView| {
        let kind = format!("Secure{}", capital(address.kind));
        let left = address.remaining_s.map_or_else(|| "-".into(), |left| left.div_ceil(60).to_string());
        vec![address.vlan.to_string(), address.mac.to_string(), kind, ios_netdev(&address.interface), left]
    };
    let rows: Vec<_> = view.addresses.iter().map(row).collect();
    let table = columns(&["Vlan", "Mac Address", "Type", "Ports", "Remaining Age (mins)"], &rows, &[0, 4]);
    format!("{table}Total Addresses in System : {}\n", view.addresses.len())
}
