//! Random configuration lines from the command tree, for the round-trip tests. A line that is added to the tree is
//! generated without a change of any test.

use crate::args::Kind;
use crate::commands;
use crate::mode::ConfigMode;
use crate::tree::{Node, Run, Special, Token};
use std::collections::BTreeSet;

/// Chooses an index less than the given count.
pub type Pick<'a> = &'a mut dyn FnMut(usize) -> usize;

/// A line for each path in which a configuration line of a mode can end. Values are random and may be refused.
pub fn every_line(at: &ConfigMode, pick: Pick<'_>) -> Vec<String> {
    command_paths(at).iter().map(|path| text(path, pick)).collect()
}

/// A random line of a mode.
pub fn line(at: &ConfigMode, pick: Pick<'_>) -> String {
    let command_paths = command_paths(at);
    command_paths.get(pick(command_paths.len())).map_or_else(String::new, |path| text(path, pick))
}

/// Every keyword of every mode, sorted.
pub fn keywords() -> Vec<&'static str> {
    fn collect(nodes: &'static [Node], all: &mut BTreeSet<&'static str>) {
        for node in nodes {
            if let Token::Word(word) = node.token {
                all.insert(word);
            }
            collect(node.next, all);
            collect(node.options, all);
        }
    }
    let trees = &commands::TREES;
    let mut all = BTreeSet::new();
    let modes = [
        trees.exec,
        trees.session,
        trees.interface,
        trees.vlan,
        trees.mst,
        trees.vrf,
        trees.track,
        trees.access_list,
        trees.network_group,
        trees.service_group,
        trees.time_range,
        trees.access_map,
        trees.class_map,
        trees.policy_map,
        trees.policy_class,
        trees.civic_location,
        trees.line,
    ];
    modes.into_iter().for_each(|tree| collect(tree, &mut all));
    all.into_iter().collect()
}

type CommandPath = Vec<&'static Node>;

/// The paths to the nodes of a mode's own tree at which a configuration line may end.
fn command_paths(at: &ConfigMode) -> Vec<CommandPath> {
    let mut all = Vec::new();
    if let Some(own) = commands::config_root(at).first() {
        collect(own, &mut Vec::new(), &mut all);
    }
    all
}

fn collect(nodes: &'static [Node], before: &mut CommandPath, all: &mut Vec<CommandPath>) {
    for node in nodes.iter().filter(|node| node.special == Special::None) {
        before.push(node);
        if matches!(node.run, Some(Run::Edit(_) | Run::Set(_))) {
            all.push(before.clone());
        }
        collect(node.next, before, all);
        before.pop();
    }
}

fn text(path: &CommandPath, pick: Pick<'_>) -> String {
    let mut words: Vec<String> = path.iter().map(|node| word(node, pick)).collect();
    for option in path.last().map_or(&[] as &[Node], |node| node.options) {
        if pick(3) == 0 {
            words.push(word(option, pick));
            words.extend(option.next.first().map(|argument| word(argument, pick)));
        }
    }
    words.join(" ")
}

fn word(node: &Node, pick: Pick<'_>) -> String {
    match node.token {
        Token::Word(keyword) => keyword.to_owned(),
        Token::Arg(kind) => sample(kind, pick),
    }
}

/// A value of an argument.
fn sample(kind: Kind, pick: Pick<'_>) -> String {
    let values: &[&str] = match kind {
        Kind::Vlan => return (1 + pick(4094)).to_string(),
        Kind::VlanList => return vlans(pick),
        Kind::Number(min, max) => return number(min, max, pick),
        Kind::Instances => &["0", "1", "5", "1-3,7", "4094"],
        Kind::Mac => &["0200.0000.0001", "02aa.bbcc.dd02", "0200.0000.0003"],
        Kind::Ipv4 => &[
            "10.0.0.1",
            "255.255.255.0",
            "192.0.2.1",
            "10.1.0.0",
            "255.255.0.0",
            "198.51.100.7",
            "239.1.1.1",
        ],
        Kind::Ipv4Prefix => &["10.0.0.1/24", "10.1.0.0/16", "0.0.0.0/0", "192.0.2.1/28"],
        Kind::Ipv6 => &["2001:db8::1", "fe80::1", "2001:db8:1::7", "ff1e::7"],
        Kind::Ipv6Prefix => &["2001:db8::1/64", "2001:db8:1::/64", "::/0", "fe80::1/64"],
        Kind::Lifetime => &["infinite", "86400", "0", "4294967294"],
        Kind::Word("NAME", 40) => &["GigabitEthernet1/0/1", "Te1/1/2", "x"],
        Kind::Word("HOURS", _) => &["1", "-3", "+5", "0", "red"],
        Kind::Word("NETDEV", _) => &["eth0", "eth10"],
        // The name of such a word is its range: a number with a suffix, or with decimals.
        Kind::Word(name, _) if name.ends_with("[k|m|g]") => &["0", "64k", "20m"],
        Kind::Word(name, _) if name.starts_with("0.00-") => &["0.00", "5", "12.5", "100.00"],
        Kind::Command(_) => {
            &["show running-config", "clear counters", "ip routing", "shutdown", "description"]
        }
        Kind::Word("HASH", _) => &[
            "$1$mERr$hx5rVt7rPNoS4wqbXKX7m0",
            "$8$dsYGNam3K1SIJO$7nv/35M/qr6t.dVc7UY9zrJDWRVqncHub1PE9UlMQFs",
            "$9$nhEmQVczB7dqsO$X.HsgL6x1il0RxkOSSvyQYwucySCt7qFm4v7pqCxkKM",
        ],
        Kind::Word("DSCP", _) => &["ef", "af31", "0", "63", "cs1", "default"],
        Kind::Word("PRECEDENCE", _) => &["5", "routine", "network"],
        Kind::Word("PROTOCOL", _) => &["arp", "ip", "ipv6"],
        Kind::Word("ELIN", _) => &["4930901820", "1234567890123456789012345", "110"],
        Kind::Word("XX", _) => &["DE", "us", "1"],
        Kind::Word("HIDDEN", _) => &["094F471A1A0A", "02050D480809"],
        Kind::Word(..) => &["red", "blue-2", "65000:1", "v.3", "!x"],
        // Public keys of SSH; the last one is invalid.
        Kind::Line(lanyard_config::access::MAX_KEY) => &[
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
            "AAAAC3NzaC1lZDI1NTE5AAAAIKAl0dh2l9GKJlOMqqnkVzrm0SdG6UOoqKLsabgH5C9o ann@host",
            "ssh-rsa AAAA",
        ],
        Kind::Line(_) => &["text", "several words, \"quoted\"", "! no comment", "VLAN0010"],
        Kind::Rule(_) => &[
            "any",
            "10.0.0.0 0.0.0.255",
            "tcp any host 10.0.0.1 eq www 443 established log",
            "udp 10.0.0.0 0.255.0.255 range 10 20 any neq ntp dscp ef",
            "icmp any any echo",
            "host 0200.0000.0001 any 0x806 0x0 vlan 10",
        ],
        Kind::Interface => &[
            "eth0",
            "eth10",
            "vlan 10",
            "netdev vlan",
            "netdev vlan7",
            "Vlan5000",
            "status",
            "netdev 10.0.0.1",
        ],
        Kind::InterfaceRange => &["eth0 , eth1", "swp1 - 4"],
        Kind::InterfaceList => &["eth0", "eth0 , eth1", "eth1,eth10", "swp1 - 4", "port-channel 1"],
        Kind::Hex => &["ff"],
        Kind::Host => &["192.0.2.1"],
    };
    values[pick(values.len())].to_owned()
}

fn number(min: u64, max: u64, pick: Pick<'_>) -> String {
    let span = usize::try_from(max - min).unwrap_or(usize::MAX).saturating_add(1);
    let any = min + pick(span) as u64;
    // The last two candidates are multiples of 16 and of 4096, as priorities in spanning tree have to be.
    let numbers = [min, max, any, (any & !0xf).max(min), (any & !0xfff).max(min)];
    numbers[pick(numbers.len())].to_string()
}

/// A VLAN, a range, or a list that is longer than one line.
fn vlans(pick: Pick<'_>) -> String {
    let first = 1 + pick(4000);
    match pick(4) {
        0 => first.to_string(),
        1 => format!("{first}-{}", first + pick(90)),
        2 => format!("{first},{}-{}", first + 2, first + 2 + pick(90)),
        _ => (0..80).map(|n| (first + n).to_string()).step_by(2).collect::<Vec<_>>().join(","),
    }
}
