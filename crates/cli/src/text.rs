//! The text of the running configuration in IOS's layout: [`render`], and [`diff`] of two configurations.
//!
//! Invariant: the text, entered at the command line, gives an equal [`Config`]. Sections are separated by `!`. Every
//! line is printed by the table that parses it ([`crate::setting`]).

use crate::commands::{global, interface, line, radius, spanning_tree, ssh, tacacs, track, vlan, vrf};
use crate::setting::{Line, Target, print};
use lanyard_config::layer3::track_object;
use lanyard_config::text::{chunks, missing_vlans, reference};
use lanyard_config::{Config, Interface, InterfaceName, Vlan};
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

/// The sections, in order; none is empty. The first line of a section that leads into a mode has the others,
/// indented, under it.
#[must_use]
pub fn sections(config: &Config) -> Vec<Vec<String>> {
    sections_by(config, vlans(config))
}

fn sections_by(config: &Config, vlans: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let mut list: Vec<Vec<String>> = global::BEFORE.iter().map(|lines| print(lines, config)).collect();
    list.extend(region_section(config));
    list.extend(vlans);
    let servers = config.radius.servers.iter();
    list.extend(
        servers.map(|(name, server)| headed(format!("radius server {name}"), &[radius::SERVER], server)),
    );
    let servers = config.tacacs.servers.iter();
    list.extend(
        servers.map(|(name, server)| headed(format!("tacacs server {name}"), &[tacacs::SERVER], server)),
    );
    let vrfs = config.vrfs.iter();
    list.extend(vrfs.map(|(name, vrf)| headed(format!("vrf definition {name}"), &[vrf::LINES], vrf)));
    let tracks = config.tracks.iter();
    list.extend(tracks.map(|(number, track)| {
        headed(format!("track {number} {}", track_object(&track.object)), &[track::LINES], track)
    }));
    // Port-channels come first: the line `channel-group` of a member creates a port-channel that does not exist yet, with the
    // member's settings.
    for is_channel in [true, false] {
        let interfaces = config.interfaces.iter().filter(|(name, _)| name.channel().is_some() == is_channel);
        list.extend(interfaces.map(|(name, interface)| section(name, interface)));
    }
    list.push(missing_vlans(config));
    list.extend(global::AFTER.iter().map(|lines| print(lines, config)));
    list.extend(line::sections(config));
    list.push(ssh::section(config));
    list.retain(|section| !section.is_empty());
    list
}

/// The line that leads to a mode, and the lines that the mode's tables print under it.
fn headed<T: Target>(head: String, lines: &[&[Line<T>]], target: &T) -> Vec<String> {
    let under = lines.iter().flat_map(|lines| print(lines, target));
    std::iter::once(head).chain(under.map(|line| format!(" {line}"))).collect()
}

/// The section of the MST region; `None` when the region has its defaults.
fn region_section(config: &Config) -> Option<Vec<String>> {
    let region = &config.spanning_tree.region;
    let section = headed("spanning-tree mst configuration".into(), &[spanning_tree::REGION], region);
    (section.len() > 1).then_some(section)
}

/// The sections of VLANs. VLANs that have nothing but a number share lines; the others have a section each.
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

/// A separate section for every VLAN, except VLAN 1 with its defaults.
fn vlans_apart(config: &Config) -> Vec<Vec<String>> {
    let shown = |(id, vlan): &(&VlanId, &Vlan)| **id != VlanId::DEFAULT || **vlan != Vlan::default();
    config.vlans.iter().filter(shown).map(|(id, vlan)| vlan_section(*id, vlan)).collect()
}

/// One VLAN's section.
#[must_use]
pub fn vlan_section(id: VlanId, vlan: &Vlan) -> Vec<String> {
    headed(format!("vlan {id}"), vlan::TABLES, vlan)
}

/// One interface's section.
#[must_use]
pub fn section(name: &InterfaceName, interface: &Interface) -> Vec<String> {
    headed(format!("interface {}", reference(name)), &interface::LINES, interface)
}

/// The differences between two configurations as lines: those of `old` with `-`, those of `new` with `+`, and
/// the head of a changed section with a space. Empty when they are equal.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (blocks(old), blocks(new));
    let index = |blocks: &[Block]| -> HashMap<String, Vec<String>> { blocks.iter().cloned().collect() };
    let (had, has) = (index(&old), index(&new));
    let mut lines = Vec::new();
    for (head, children) in &old {
        let Some(now) = has.get(head) else {
            lines.push(format!("-{}", head.replace('\n', "\n-")));
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
        lines.push(format!("+{}", head.replace('\n', "\n+")));
        lines.extend(children.iter().map(|line| format!("+{line}")));
    }
    lines
}

/// A line at the left margin, and the lines under it.
type Block = (String, Vec<String>);

/// The configuration as blocks, with a block for every VLAN.
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
