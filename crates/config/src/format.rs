//! Formats single values as IOS text, for all sections of the configuration.

use crate::InterfaceName;
use lanyard_types::VlanSet;

/// The longest list of VLANs in one line, in bytes; a longer list is divided into several lines.
const MAX_LIST: usize = 180;

/// An interface as commands name it: `eth1`, `vlan 10`, and `netdev vlan` for a netdev whose name the command line
/// would parse as a keyword.
#[must_use]
pub fn reference(name: &InterfaceName) -> String {
    match name {
        InterfaceName::Vlan(vlan) => format!("vlan {vlan}"),
        InterfaceName::Netdev(name) => {
            let lower = name.to_ascii_lowercase();
            let mistaken = ["vlan", "range", "netdev", "port-channel", "null0"]
                .iter()
                .any(|word| word.starts_with(&lower))
                || lower.strip_prefix("vlan").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
            let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            // `po1` is short for `port-channel1`.
            let mistaken = mistaken || lower.strip_prefix("po").is_some_and(is_number);
            let mistaken = mistaken || (name.split('.').count() == 4 && name.split('.').all(is_number));
            if mistaken { format!("netdev {name}") } else { name.clone() }
        }
    }
}

/// Divides a list of VLANs into parts that each fit one line.
#[must_use]
pub fn chunks(set: &VlanSet) -> Vec<String> {
    let text = set.to_string();
    let mut parts: Vec<String> = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        match parts.last_mut().filter(|part| part.len() + item.len() < MAX_LIST) {
            Some(part) => {
                part.push(',');
                part.push_str(item);
            }
            None => parts.push(item.to_owned()),
        }
    }
    parts
}
