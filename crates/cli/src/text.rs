//! Running-configuration text, in IOS layout: [`render`], and [`diff`] of two configurations.
//!
//! Invariant: what is printed, fed back through the command line, gives an equal [`Config`]. Sections are separated by
//! `!`. What stands under an interface is printed by the same table that reads it ([`crate::setting`]).

use crate::commands::{banner, interface};
use lanyard_config::text::{fdb, globals, missing_vlans, reference, vlans, vlans_apart};
use lanyard_config::{Config, Interface, InterfaceName, fpm, layer3, spanning_tree};
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

/// What an interface or VLAN mode would read as its own, such as `mac address-table limit`, stands before their sections.
fn sections_by(config: &Config, vlans: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let mut list = vec![vec![format!("hostname {}", config.hostname)], globals(config), fdb(config)];
    list.extend(spanning_tree::sections(config));
    list.extend(vlans);
    list.extend(layer3::vrf_sections(config));
    list.extend(layer3::track_sections(config));
    list.extend(config.interfaces.iter().map(|(name, interface)| section(name, interface)));
    list.push(missing_vlans(config));
    list.push(config.routes.iter().map(layer3::route_line).collect());
    list.push(layer3::arp_lines(&config.arps));
    list.push(fpm::lines(config.fpm.as_ref()));
    list.push(banner::print(config));
    list.retain(|section| !section.is_empty());
    list
}

/// One interface's section.
#[must_use]
pub fn section(name: &InterfaceName, interface: &Interface) -> Vec<String> {
    let lines = interface::LINES.iter().copied().flatten().flat_map(|line| line.print(interface));
    let head = format!("interface {}", reference(name));
    std::iter::once(head).chain(lines.map(|line| format!(" {line}"))).collect()
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
