//! Running-configuration text, in IOS layout: [`render`], and [`diff`] of two configurations.
//!
//! Invariant: what is printed, fed back through the command line, gives an equal [`Config`]. Sections are
//! separated by `!`, a setting that equals its default is not printed, and no line is longer than
//! 180 bytes of list and its keywords, or than what the user typed.

use crate::format::chunks;
pub use crate::format::reference;
use crate::{
    Config, Duplex, Interface, InterfaceName, Role, StaticTarget, Switchport, SwitchportMode, Vlan, layer3,
};
use lanyard_pipeline::state::{Delivery, FDB_LIMIT_DEFAULT, HookChoice, ReservedAction, Tpid};
use lanyard_types::{VlanId, VlanSet};
use std::collections::HashMap;

/// The whole configuration.
#[must_use]
pub fn render(config: &Config) -> String {
    let mut out = String::from("!\n");
    for section in sections(config) {
        for line in section {
            out.push_str(&line);
            out.push('\n');
        }
        out.push_str("!\n");
    }
    out.push_str("end\n");
    out
}

impl std::fmt::Display for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&render(self))
    }
}

/// The sections, in order; none is empty. The first line of a section that leads into a mode has the others,
/// indented, under it.
#[must_use]
pub fn sections(config: &Config) -> Vec<Vec<String>> {
    sections_by(config, vlans(config))
}

fn sections_by(config: &Config, vlans: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let mut list = vec![vec![format!("hostname {}", config.hostname)], globals(config)];
    list.extend(crate::spanning_tree::sections(config));
    list.extend(vlans);
    list.extend(layer3::vrf_sections(config));
    list.extend(layer3::track_sections(config));
    list.extend(config.interfaces.iter().map(|(name, interface)| section(name, interface)));
    list.push(missing_vlans(config));
    list.push(config.routes.iter().map(layer3::route_line).collect());
    list.push(layer3::arp_lines(&config.arps));
    list.push(crate::fpm::lines(config.fpm.as_ref()));
    list.push(fdb(config));
    list.retain(|section| !section.is_empty());
    list
}

fn globals(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |on: bool, line: &str| {
        if on {
            lines.push(line.to_owned());
        }
    };
    add(config.ip_routing, "ip routing");
    add(config.ipv6_routing, "ipv6 unicast-routing");
    let plane = config.forwarding_plane;
    add(plane != Default::default(), &plane.line());
    add(config.tag_native, "vlan dot1q tag native");
    lines.extend(layer3::relay_lines(&config.relay));
    for (number, action) in &config.reserved {
        let action = if *action == ReservedAction::Forward { "forward" } else { "drop" };
        lines.push(format!("reserved-address {number} {action}"));
    }
    lines
}

/// VLANs with nothing but a number share lines; the others have a section each.
#[must_use]
pub fn vlans(config: &Config) -> Vec<Vec<String>> {
    let plain = |vlan: VlanId, settings: &Vlan| vlan != VlanId::DEFAULT && *settings == Vlan::default();
    let bare: VlanSet = config.vlans.iter().filter(|(id, v)| plain(**id, v)).map(|(id, _)| *id).collect();
    let named = config.vlans.iter().filter(|(_, vlan)| **vlan != Vlan::default());
    let mut list: Vec<Vec<String>> =
        chunks(&bare).into_iter().map(|part| vec![format!("vlan {part}")]).collect();
    list.extend(named.map(|(id, vlan)| vlan_section(*id, vlan)));
    list
}

/// Every VLAN but VLAN 1 as it comes has a section.
fn vlans_apart(config: &Config) -> Vec<Vec<String>> {
    let shown = |(id, vlan): &(&VlanId, &Vlan)| **id != VlanId::DEFAULT || **vlan != Vlan::default();
    config.vlans.iter().filter(shown).map(|(id, vlan)| vlan_section(*id, vlan)).collect()
}

/// Access VLANs that do not exist: the ports' lines would make them.
fn missing_vlans(config: &Config) -> Vec<String> {
    let access = config.interfaces.values().map(|interface| interface.switchport.access_vlan);
    let missing: VlanSet = access.filter(|vlan| !config.vlans.contains_key(vlan)).collect();
    chunks(&missing).into_iter().map(|part| format!("no vlan {part}")).collect()
}

/// One VLAN's section.
#[must_use]
pub fn vlan_section(id: VlanId, vlan: &Vlan) -> Vec<String> {
    let mut lines = vec![format!("vlan {id}")];
    lines.extend(vlan.name.iter().map(|name| format!(" name {name}")));
    if vlan.suspended {
        lines.push(" state suspend".into());
    }
    if vlan.shutdown {
        lines.push(" shutdown".into());
    }
    lines
}

/// One interface's section.
#[must_use]
pub fn section(name: &InterfaceName, interface: &Interface) -> Vec<String> {
    let mut lines = vec![format!("interface {}", reference(name))];
    let mut add = |line: String| lines.push(format!(" {line}"));
    if let Some(text) = &interface.description {
        add(format!("description {text}"));
    }
    for line in switchport(interface) {
        add(line);
    }
    for line in layer3::head_lines(interface) {
        add(line);
    }
    if let Some(mtu) = interface.mtu {
        add(format!("mtu {mtu}"));
    }
    if let Some(mac) = interface.mac {
        add(format!("mac-address {mac}"));
    }
    if let Some(speed) = interface.speed_mbps {
        add(format!("speed {speed}"));
    }
    match interface.duplex {
        Duplex::Auto => {}
        Duplex::Half => add("duplex half".into()),
        Duplex::Full => add("duplex full".into()),
    }
    match interface.hook {
        HookChoice::Auto => {}
        HookChoice::Tc => add("hook tc".into()),
        HookChoice::Xdp => add("hook xdp".into()),
    }
    match interface.delivery {
        Delivery::Auto => {}
        Delivery::Peer => add("delivery peer".into()),
        Delivery::Device => add("delivery device".into()),
    }
    for line in crate::spanning_tree::port_lines(&interface.spanning_tree) {
        add(line);
    }
    for (at, net) in interface.ipv4.iter().enumerate() {
        let secondary = if at == 0 { "" } else { " secondary" };
        add(format!("ip address {} {}{secondary}", net.addr(), net.netmask()));
    }
    for net in &interface.ipv6 {
        add(format!("ipv6 address {net}"));
    }
    for line in layer3::interface_lines(&interface.layer3) {
        add(line);
    }
    if interface.shutdown {
        add("shutdown".into());
    }
    lines
}

/// The layer-2 lines. `no switchport` comes last: the others make the port a switch port.
fn switchport(interface: &Interface) -> Vec<String> {
    let port = &interface.switchport;
    let default = Switchport::default();
    let mut lines = Vec::new();
    if port.access_vlan != default.access_vlan {
        lines.push(format!("switchport access vlan {}", port.access_vlan));
    }
    if port.native_vlan != default.native_vlan {
        lines.push(format!("switchport trunk native vlan {}", port.native_vlan));
    }
    if port.allowed_vlans != default.allowed_vlans {
        let parts = chunks(&port.allowed_vlans);
        if parts.is_empty() {
            lines.push("switchport trunk allowed vlan none".into());
        }
        for (at, part) in parts.into_iter().enumerate() {
            let add = if at == 0 { "" } else { "add " };
            lines.push(format!("switchport trunk allowed vlan {add}{part}"));
        }
    }
    let mode = match port.mode {
        SwitchportMode::Access => "access",
        SwitchportMode::Trunk => "trunk",
        SwitchportMode::Tunnel => "dot1q-tunnel",
    };
    if interface.role == Role::Switchport || port.mode != default.mode {
        lines.push(format!("switchport mode {mode}"));
    }
    for (on, line) in [
        (port.protected, "switchport protected"),
        (port.block_unicast, "switchport block unicast"),
        (port.block_multicast, "switchport block multicast"),
        (interface.role == Role::Routed, "no switchport"),
        (!port.learning, "no mac address-table learning"),
    ] {
        if on {
            lines.push(line.to_owned());
        }
    }
    if let Some(limit) = port.fdb_limit {
        lines.push(format!("mac address-table limit {limit}"));
    }
    if let Some(ethertype) = port.tpid.ethertype().filter(|_| port.tpid != Tpid::Dot1q) {
        lines.push(format!("dot1q tunneling ethertype 0x{ethertype:04X}"));
    }
    lines
}

fn fdb(config: &Config) -> Vec<String> {
    let fdb = &config.fdb;
    let mut lines = Vec::new();
    if fdb.ageing_s != crate::FdbConfig::default().ageing_s {
        lines.push(format!("mac address-table aging-time {}", fdb.ageing_s));
    }
    if fdb.limit != FDB_LIMIT_DEFAULT {
        lines.push(format!("mac address-table limit {}", fdb.limit));
    }
    for (vlan, limit) in &fdb.vlan_limits {
        lines.push(format!("mac address-table limit {limit} vlan {vlan}"));
    }
    for part in chunks(&fdb.no_learning) {
        lines.push(format!("no mac address-table learning vlan {part}"));
    }
    for ((vlan, mac), target) in &fdb.statics {
        let target = match target {
            StaticTarget::Interface(name) => format!("interface {}", reference(name)),
            StaticTarget::Drop => "drop".into(),
        };
        lines.push(format!("mac address-table static {mac} vlan {vlan} {target}"));
    }
    lines
}

/// What differs between two configurations, as lines: those of `old` with `-`, those of `new` with `+`, the
/// head of a changed section with a space. Empty when they are equal.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (blocks(old), blocks(new));
    let index = |blocks: &[Block]| -> HashMap<String, Vec<String>> { blocks.iter().cloned().collect() };
    let (had, has) = (index(&old), index(&new));
    let mut lines = Vec::new();
    for (head, children) in &old {
        let Some(now) = has.get(head) else {
            lines.push(format!("-{head}"));
            lines.extend(children.iter().map(|line| format!("-{line}")));
            continue;
        };
        if now != children {
            lines.push(format!(" {head}"));
            lines.extend(children.iter().filter(|line| !now.contains(line)).map(|line| format!("-{line}")));
            lines.extend(now.iter().filter(|line| !children.contains(line)).map(|line| format!("+{line}")));
        }
    }
    for (head, children) in new.iter().filter(|(head, _)| !had.contains_key(head)) {
        lines.push(format!("+{head}"));
        lines.extend(children.iter().map(|line| format!("+{line}")));
    }
    lines
}

/// A line at the left margin, and those under it.
type Block = (String, Vec<String>);

/// The configuration as blocks, every VLAN by itself.
fn blocks(config: &Config) -> Vec<Block> {
    let mut list: Vec<Block> = Vec::new();
    for line in sections_by(config, vlans_apart(config)).into_iter().flatten() {
        match list.last_mut().filter(|_| line.starts_with(' ')) {
            Some((_, children)) => children.push(line),
            None => list.push((line, Vec::new())),
        }
    }
    list
}
