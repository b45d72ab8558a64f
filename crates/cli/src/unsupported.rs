//! IOS commands that Lanyard lacks: a line that begins with one is refused as unsupported, not as a typing error.
//!
//! The command tree decides first: an entry of these tables counts only where the tree does not accept the line.
//! Cisco's "Catalyst 3750-X and 3560-X Switch Command Reference" and the IOS master command list contain the commands.

use crate::feature::Feature;
use crate::line::{Failure, Word};

/// Exec commands.
const EXEC: &[&str] = &[
    "boot",
    "cd",
    "clock",
    "connect",
    "delete",
    "dir",
    "disconnect",
    "format",
    "license",
    "login",
    "mkdir",
    "more",
    "pwd",
    "rename",
    "renew",
    "resume",
    "rmdir",
    "send",
    "setup",
    "ssh",
    "telnet",
    "test",
    "tclsh",
    "udld",
    "undebug",
    "upgrade",
    "verify",
    "vtp",
    "where",
    "clear ip bgp",
    "clear ip dhcp binding",
    "clear ip dhcp conflict",
    "clear ip dhcp server",
    "clear ip dhcp snooping database",
    "clear ip arp inspection",
    "clear ip ospf",
    "show boot",
    "show controllers",
    "show crypto",
    "show dtp",
    "show env",
    "show environment",
    "show file",
    "show flash",
    "show flash:",
    "show ip bgp",
    "show ip dhcp binding",
    "show ip dhcp snooping database",
    "show ip arp inspection log",
    "show ip eigrp",
    "show ip igmp groups",
    "show ip igmp interface",
    "show ip igmp membership",
    "show ip mroute",
    "show ip nat",
    "show ip ospf",
    "show ip pim",
    "show ip protocols",
    "show ip rip",
    "show ip ssh",
    "show ipv6 mld groups",
    "show ipv6 mld interface",
    "show ipv6 ospf",
    "show license",
    "show memory",
    "show mls qos interface",
    "show mls qos maps",
    "show mls qos queue-set",
    "show mls rate-limit",
    "show module",
    "show pagp",
    "show power",
    "show processes cpu",
    "show processes memory",
    "show protocols",
    "show route-map",
    "show sdm",
    "show snmp",
    "show ssh",
    "show stacks",
    "show standby",
    "show switch",
    "show udld",
    "show vtp",
];

/// Global configuration commands that lead to no mode.
const GLOBAL: &[&str] = &[
    "aaa accounting",
    "aaa authentication enable",
    "aaa authorization auth-proxy",
    "aaa authorization commands",
    "aaa authorization config-commands",
    "aaa server radius",
    "aaa session-id",
    "alias",
    "boot",
    "buffers",
    "call-home",
    "dot1x critical",
    "dot1x guest-vlan",
    "dot1x logging",
    "dot1x test",
    "authentication",
    "exception",
    "file",
    "ip as-path",
    "ip community-list",
    "ip default-gateway",
    "ip default-network",
    "ip dhcp excluded-address",
    "ip dhcp snooping database",
    "ip dhcp snooping detect",
    "ip dhcp snooping glean",
    "ip dhcp snooping information option format",
    "ip dhcp snooping wireless",
    "ip arp inspection filter",
    "ip arp inspection log-buffer",
    "ip domain-name",
    "ip forward-protocol",
    "clock summer-time",
    "ip domain list",
    "ip domain name",
    "ip ftp",
    "ip http authentication",
    "ip http client",
    "ip host",
    "ip igmp filter",
    "ip igmp profile",
    "ip igmp ssm-map",
    "ip igmp vrf",
    "ip local",
    "ip multicast-routing",
    "ip name-server",
    "ip nat",
    "ip pim",
    "ip prefix-list",
    "ip scp",
    "ip ssh authentication-retries",
    "ip ssh source-interface",
    "ip ssh time-out",
    "ip tcp",
    "ip tftp",
    "ip telnet",
    "ipv6 cef",
    "ipv6 mld host-proxy",
    "ipv6 mld ssm-map",
    "ipv6 mld state-limit",
    "ipv6 multicast-routing",
    "ipv6 prefix-list",
    "logging console",
    "logging discriminator",
    "logging facility",
    "logging monitor",
    "logging on",
    "logging origin-id",
    "logging source-interface",
    "login",
    "mls aclmerge",
    "mls cef",
    "mls ip",
    "mls qos aggregate-policer",
    "mls qos map cos-input-q",
    "mls qos map cos-output-q",
    "mls qos map dscp-cos",
    "mls qos map dscp-mutation",
    "mls qos map ip-prec-dscp",
    "mls qos map policed-dscp",
    "mls qos queue-set",
    "mls qos rewrite",
    "mls qos srr-queue",
    "mls rate-limit",
    "ntp access-group",
    "ntp authenticate",
    "ntp authentication-key",
    "ntp logging",
    "ntp master",
    "ntp peer",
    "ntp source",
    "ntp trusted-key",
    "ntp update-calendar",
    "password",
    "power",
    "prompt",
    "qos",
    "scheduler",
    "sdm",
    "security",
    "service call-home",
    "service compress-config",
    "service dhcp",
    "service internal",
    "service password-encryption",
    "service sequence-numbers",
    "service tcp-keepalives-in",
    "service tcp-keepalives-out",
    "service timestamps debug",
    "service unsupported-transceiver",
    "sntp",
    "snmp",
    "snmp-server",
    "stack-mac",
    "switch",
    "system",
    "send-nat-address",
    "single-connection",
    "tacacs-server administration",
    "tacacs-server cache",
    "tacacs-server directed-request",
    "tacacs-server dns-alias-lookup",
    "tacacs-server packet",
    "radius-server accounting",
    "radius-server dead-criteria",
    "radius-server host",
    "radius-server key",
    "radius-server load-balance",
    "tftp-server",
    "udld",
    "vtp",
    "auto",
    "memory",
    "macro",
    "define",
    "device-sensor",
    "diagnostic",
    "process",
    "energywise",
    "mac-address-table",
    "spanning-tree backbonefast",
    "spanning-tree uplinkfast",
    "spanning-tree etherchannel",
    "errdisable detect",
    "errdisable flap-setting",
    "arp access-list",
    // In a class map or a policy map.
    "fair-queue",
    "match class-map",
    "match destination-address",
    "match discard-class",
    "match flow",
    "match input-interface",
    "match ip rtp",
    "match mpls",
    "match packet",
    "match qos-group",
    "match source-address",
    "netflow-sampler",
    "police aggregate",
    "random-detect",
    "set discard-class",
    "set mpls",
    "set qos-group",
    "trust",
];

/// Global configuration commands that lead to a mode: the lines under them are meant for that mode.
const MODES: &[&str] = &[
    "aaa group server",
    "archive",
    "class-map type control",
    "class-map type inspect",
    "class-map type traffic",
    "control-plane",
    "crypto",
    "event manager",
    "flow exporter",
    "flow monitor",
    "flow record",
    "ip dhcp pool",
    "ip sla",
    "ip vrf",
    "ipv6 dhcp guard policy",
    "ipv6 dhcp pool",
    "ipv6 nd inspection policy",
    "ipv6 nd raguard policy",
    "ipv6 router",
    "ipv6 source-guard policy",
    "key chain",
    "policy-map type control",
    "policy-map type inspect",
    "redundancy",
    "route-map",
    "router",
    "template",
    "vlan configuration",
];

/// Interface configuration commands.
const INTERFACE: &[&str] = &[
    "access-session",
    "authentication control-direction",
    "authentication event linksec",
    "authentication fallback",
    "authentication host-mode multi-domain",
    "authentication linksec",
    "authentication open",
    "authentication priority",
    "authentication timer inactivity",
    "authentication timer unauthorized",
    "auto",
    "bandwidth",
    "carrier-delay",
    "channel-protocol",
    "delay",
    "dot1x credentials",
    "dot1x default",
    "dot1x guest-vlan",
    "dot1x supplicant",
    "flowcontrol",
    "hold-queue",
    "ip address dhcp",
    "ip bandwidth-percent",
    "ip igmp access-group",
    "ip igmp filter",
    "ip igmp join-group",
    "ip igmp query-interval",
    "ip igmp static-group",
    "ip igmp version",
    "ip nat",
    "ip ospf",
    "ip pim",
    "ip policy",
    "ip rip",
    "ip split-horizon",
    "ip tcp",
    "ip unnumbered",
    "ip verify source tracking",
    "ip verify source vlan",
    "ipv6 dhcp guard attach-policy",
    "ipv6 enable",
    "ipv6 nd inspection attach-policy",
    "ipv6 nd raguard attach-policy",
    "ipv6 snooping",
    "ipv6 source-guard attach-policy",
    "ipv6 ospf",
    "ipv6 mld access-group",
    "ipv6 mld join-group",
    "ipv6 mld query-interval",
    "ipv6 mld static-group",
    "keepalive",
    "load-interval",
    "macro",
    "mls qos cos",
    "mls qos dscp-mutation",
    "mls qos ipe",
    "mls qos trust device",
    "mls qos trust ip-precedence",
    "mls qos vlan-based",
    "negotiation",
    "ntp broadcast",
    "ntp disable",
    "ntp multicast",
    "pagp",
    "power",
    "priority-queue",
    "queue-set",
    "rmon",
    "service-policy type",
    "snmp",
    "spanning-tree stack-port",
    "srr-queue",
    "standby",
    "switchport backup",
    "switchport dot1q",
    "switchport host",
    "switchport mode dynamic",
    "switchport priority",
    "switchport mode private-vlan trunk",
    "switchport private-vlan association",
    "switchport private-vlan trunk",
    "switchport trunk pruning",
    "udld",
    "vtp",
];

/// Interface commands that protect the network, in addition to those of features: an interface that should have one must
/// not forward without it.
const SAFETY: &[&str] = &[
    "access-session",
    "authentication",
    "channel-group",
    "dot1x",
    "ip access-group",
    "mab",
    "ip arp inspection",
    "ip dhcp snooping",
    "ip verify",
    "ipv6 dhcp guard",
    "ipv6 nd inspection",
    "ipv6 nd raguard",
    "ipv6 snooping",
    "ipv6 source-guard",
    "ipv6 traffic-filter",
    "ipv6 verify",
    "mac access-group",
    "spanning-tree bpdufilter",
    "spanning-tree bpduguard",
    "spanning-tree guard",
    "switchport block",
    "switchport port-security",
    "switchport protected",
];

/// Lines that lead to a mode that Lanyard has.
const OWN_MODES: &[&str] = &[
    "interface",
    "radius server",
    "tacacs server",
    "vlan",
    "vrf definition",
    "track",
    "spanning-tree mst configuration",
    "ip access-list",
    "ipv6 access-list",
    "mac access-list",
    "object-group",
    "time-range",
    "class-map",
    "policy-map",
    "class",
    "monitor session N type erspan-destination",
    "monitor session N type erspan-source",
];

/// The number of words of the line that belong to the command, each in full or an abbreviation of at least
/// three letters; `N` stands for a number.
pub(crate) fn begins(command: &str, words: &[Word<'_>]) -> Option<usize> {
    let mut count = 0;
    for keyword in command.split(' ') {
        let word = words.get(count)?.text.to_ascii_lowercase();
        if keyword == "N" && word.bytes().all(|byte| byte.is_ascii_digit()) {
            count += 1;
            continue;
        }
        if !keyword.starts_with(&word) || word.len() < keyword.len().min(3) {
            return None;
        }
        count += 1;
    }
    Some(count)
}

/// The line's words without `no` or `default` before them.
fn plain<'a, 'b>(words: &'b [Word<'a>]) -> &'b [Word<'a>] {
    match words.split_first() {
        Some((first, rest)) if ["no", "default"].contains(&first.text) => rest,
        _ => words,
    }
}

/// The mode in which a line was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// An exec mode.
    Exec,
    /// An interface mode.
    Interface,
    /// Another configuration mode.
    Global,
}

/// Replaces a failure by a better explanation if the command is one of IOS that Lanyard does not have.
pub fn explain(failure: Failure, words: &[Word<'_>], place: Place) -> Failure {
    let Failure::Invalid(at) = failure else { return failure };
    let words = plain(words);
    let tables: &[&[&str]] = match place {
        Place::Exec => &[EXEC],
        Place::Interface => &[INTERFACE, GLOBAL, MODES],
        Place::Global => &[GLOBAL, MODES],
    };
    let known = tables.iter().copied().flatten().filter_map(|command| {
        let count = begins(command, words)?;
        // Words that the tree has accepted do not belong to the missing command.
        (words.get(count - 1)?.at >= at).then_some((count, *command))
    });
    match known.max_by_key(|(count, _)| *count) {
        Some((_, command)) => {
            let first = words.first().map_or(at, |word| word.at);
            Failure::Reason(first, format!("{command} is not supported by Lanyard"))
        }
        None => Failure::Invalid(at),
    }
}

/// True for a line that leads to a mode, in Lanyard or in IOS: the lines under it are meant for that mode only.
pub fn leads_to_mode(words: &[Word<'_>]) -> bool {
    OWN_MODES.iter().chain(MODES).any(|command| begins(command, words).is_some())
}

/// True for a plain line that protects the network from what is connected to an interface.
pub fn is_safety(words: &[Word<'_>], features: &[Feature]) -> bool {
    let features = features.iter().filter(|feature| feature.safety).map(|feature| feature.name);
    SAFETY.iter().copied().chain(features).any(|command| begins(command, words).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use crate::line::words;
    use crate::parse::Reader;
    use crate::privilege::Authority;

    #[test]
    fn the_tables_name_only_what_the_tree_lacks() {
        let trees = &commands::TREES;
        let roots = [
            (EXEC, vec![trees.exec]),
            (GLOBAL, vec![trees.global]),
            (MODES, vec![trees.global]),
            (INTERFACE, vec![trees.interface, trees.global]),
        ];
        let mut known = Vec::new();
        for (table, root) in roots {
            for command in table {
                let list = words(command).expect("words");
                let names = &crate::args::NoNames;
                let reader = Reader {
                    line: command,
                    words: &list,
                    names,
                    authority: Authority::full(),
                    exec: trees.exec,
                };
                if reader.expected(&root).is_ok() {
                    known.push(*command);
                }
            }
        }
        assert!(known.is_empty(), "the command tree has {known:?}: take them from the tables");
    }

    #[test]
    fn abbreviations() {
        let list = words("swi port-sec maximum 3").expect("words");
        assert!(is_safety(&list, commands::FEATURES) && !leads_to_mode(&list));
        let list = words("int gi1/0/1").expect("words");
        assert!(leads_to_mode(&list) && !is_safety(&list, commands::FEATURES));
        assert!(!leads_to_mode(&words("ip route 0.0.0.0 0.0.0.0 10.0.0.1").expect("words")));
    }
}
