//! Pieces of the running configuration's text. The command line puts them together.
//!
//! Invariant: a setting that equals its default is not printed, and no line is longer than 180 bytes of list and
//! its keywords, or than what the user typed.

pub use crate::format::{chunks, reference};
use crate::{Config, StaticTarget, Vlan, layer3};
use lanyard_pipeline::state::{FDB_LIMIT_DEFAULT, ReservedAction};
use lanyard_types::{VlanId, VlanSet};

/// The lines of global configuration that belong to no topic of their own.
#[must_use]
pub fn globals(config: &Config) -> Vec<String> {
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
#[must_use]
pub fn vlans_apart(config: &Config) -> Vec<Vec<String>> {
    let shown = |(id, vlan): &(&VlanId, &Vlan)| **id != VlanId::DEFAULT || **vlan != Vlan::default();
    config.vlans.iter().filter(shown).map(|(id, vlan)| vlan_section(*id, vlan)).collect()
}

/// Access VLANs that do not exist: the ports' lines would make them.
#[must_use]
pub fn missing_vlans(config: &Config) -> Vec<String> {
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

/// The lines of `mac address-table`.
#[must_use]
pub fn fdb(config: &Config) -> Vec<String> {
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
