//! ND inspection and IPv6 source guard: `ipv6 nd inspection ...`, `ipv6 neighbor binding`, `ipv6 source-guard`; the commands that
//! show and clear bindings and statistics.

use super::guard::{FILTERS, change_bindings, change_vlans, vlan_lines};
use super::interface::port;
use crate::args::{Args, Kind};
use crate::backend::{Refusal, SnoopedFilter};
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::nd_inspection as text;
use crate::setting::{Flag, Line, Number, Setting};
use crate::tree::{Node, arg, kw};
use crate::view::{NdInspection, NeighborBindings};
use lanyard_config::text::reference;
use lanyard_config::{Config, Interface};
use lanyard_types::MAX_BINDINGS;
use std::net::IpAddr;

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[Line::own("ipv6 nd inspection", VLANS, |config| {
    vlan_lines("ipv6 nd inspection", &config.guard.nd_vlans)
})];

/// In global configuration. The lines name interfaces, so the running configuration prints them after the interfaces.
pub const AFTER: &[Line<Config>] = &[Line::own("ipv6 neighbor", BINDING, binding_lines)];

/// Under an interface.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "ipv6 nd inspection trust",
        "Do not inspect neighbor discovery of the port",
        &Flag(field!(Interface, switchport.stages.guard.nd_trust)),
    )
    .on(port)
    .line(),
    Setting::of(
        "ipv6 nd inspection limit address-count",
        "Limit the IPv6 addresses that are learned at the port",
        &Number::any(
            field!(Interface, switchport.stages.guard.nd_limit),
            1,
            MAX_BINDINGS as u64,
            "IPv6 addresses",
        ),
    )
    .on(port)
    .line(),
    Setting::of(
        "ipv6 source-guard",
        "Verify the source of IPv6 packets",
        &Flag(field!(Interface, switchport.stages.guard.verify_ipv6)),
    )
    .on(port)
    .line(),
];

/// Help for keywords that end no line, in global configuration.
pub const GROUPS: &[(&str, &str)] = &[
    ("ipv6 nd", "Neighbor discovery"),
    ("ipv6 nd inspection", "ND inspection"),
    ("ipv6 neighbor", "IPv6 neighbors"),
];

/// Help for keywords that end no line, under an interface.
pub const PORT_GROUPS: &[(&str, &str)] =
    &[("ipv6 nd inspection", "ND inspection"), ("ipv6 nd inspection limit", "Limits of ND inspection")];

const VLANS: Node = kw("vlan", "Enable/Disable ND inspection on vlans").then(&[arg(
    Kind::VlanList,
    "vlan range, example: 1,3-5,7,9-11",
)
.run(vlans)]);

const BINDING: Node =
    kw("binding", "Static binding").then(&[kw("vlan", "binding VLAN").then(&[arg(Kind::Vlan, "VLAN ID")
        .then(&[arg(Kind::Ipv6, "binding IPv6 address").then(&[kw("interface", "binding interface")
            .then(&[arg(Kind::Interface, "Interface").then(&[arg(
                Kind::Mac,
                "binding MAC address",
            )
            .run(binding)])])])])])]);

fn vlans(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    change_vlans(&mut edit.config.guard.nd_vlans, args)
}

fn binding(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let Some(IpAddr::V6(address)) = args.addresses().first().copied() else {
        return Err("Incomplete command.".into());
    };
    let nobody = address.is_unspecified() || address.is_multicast() || address.is_loopback();
    change_bindings("ipv6 neighbor binding", &mut edit.config.guard.neighbors, args, address, !nobody)
}

fn binding_lines(config: &Config) -> Vec<String> {
    let bindings = config.guard.neighbors.iter();
    bindings
        .map(|((vlan, address), binding)| {
            let (mac, interface) = (binding.mac, reference(&binding.interface));
            format!("ipv6 neighbor binding vlan {vlan} {address} interface {interface} {mac}")
        })
        .collect()
}

/// `show ipv6 nd inspection`.
pub const SHOW: Node = kw("inspection", "ND inspection").exec(inspection);
/// `show ipv6 neighbors binding`.
pub const SHOW_BINDINGS: Node =
    kw("binding", "Addresses of hosts, as ND inspection has learned them").exec(bindings).options(FILTERS);
/// `clear ipv6 neighbors binding`.
pub const CLEAR_BINDINGS: Node =
    kw("binding", "Forget the addresses that ND inspection has learned").exec(clear).options(FILTERS);
/// `clear ipv6 nd inspection statistics`.
pub const CLEAR: Node = kw("nd", "Neighbor discovery").then(&[kw("inspection", "ND inspection")
    .then(&[kw("statistics", "Set the statistics to zero").exec(clear_statistics)])]);

fn inspection(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.nd_inspection();
    Ok(exec.present(&view, text::inspection))
}

fn bindings(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let (vlan, interface) = (args.vlan(), args.interface().map(|name| name.to_string()));
    let NdInspection { mut bindings, capacity, .. } = exec.backend.nd_inspection();
    bindings.retain(|binding| {
        vlan.is_none_or(|vlan| vlan.get() == binding.vlan)
            && interface.as_ref().is_none_or(|name| *name == binding.interface)
    });
    let total = bindings.len();
    Ok(exec.present(&NeighborBindings { bindings, total, capacity }, text::bindings))
}

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let filter = SnoopedFilter { interface: args.interface(), vlan: args.vlan(), address: None };
    exec.backend.clear_neighbor_bindings(&filter);
    Ok(Outcome::Text(String::new()))
}

fn clear_statistics(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    exec.backend.clear_nd_statistics();
    Ok(Outcome::Text(String::new()))
}
