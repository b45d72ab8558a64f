//! Properties that hold for any configuration and for any line.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Fake, picks, session};
use lanyard_cli::mode::{ConfigMode, Mode};
use lanyard_cli::{Outcome, apply_text, fuzz_line, generate, text};
use lanyard_config::access::LineRange;
use lanyard_config::{Config, InterfaceName};
use lanyard_types::VlanSet;
use proptest::prelude::*;
use proptest::sample::Index;

/// The lines that lead to the `n`th mode, and this mode.
fn lead(n: usize) -> (&'static str, ConfigMode) {
    let interface =
        || ConfigMode::Interface { names: vec![InterfaceName::Netdev("eth0".into())], range: false };
    match n {
        0 => ("interface eth0\n switchport", interface()),
        1 => ("interface eth1\n switchport mode trunk", interface()),
        2 => ("interface eth10\n no switchport", interface()),
        3 => ("interface netdev vlan7\n no switchport", interface()),
        4 => ("interface vlan 10", interface()),
        5 => ("interface vlan 20", interface()),
        6 => ("interface eth10.5\n encapsulation dot1q 5", interface()),
        7 => ("interface status", interface()),
        8 => ("vlan 10", ConfigMode::Vlan(VlanSet::EMPTY)),
        9 => ("vlan 20,30-40", ConfigMode::Vlan(VlanSet::EMPTY)),
        10 => ("vrf definition red", ConfigMode::Vrf { name: "red".into(), family: None }),
        11 => ("track 1 ip route 10.0.0.0/8 reachability", ConfigMode::Track(1)),
        12 => ("track 2 interface eth0 line-protocol", ConfigMode::Track(2)),
        16 => ("ip ssh pubkey-chain\n username ann", ConfigMode::SshKeys(Some("ann".into()))),
        14 => ("line vty 2 7", ConfigMode::Line(LineRange::Vty(2, 7))),
        15 => ("line vty 0 15", ConfigMode::Line(LineRange::Vty(0, 15))),
        17 => ("class-map match-any red", ConfigMode::ClassMap("red".into())),
        18 => ("policy-map blue-2", ConfigMode::PolicyMap("blue-2".into())),
        19 => ("policy-map red\n class red", ConfigMode::PolicyClass("red".into(), "red".into())),
        20 => (
            "policy-map v.3\n class class-default",
            ConfigMode::PolicyClass("v.3".into(), "class-default".into()),
        ),
        21 => ("monitor session 7 type erspan-source", ConfigMode::ErspanSource(7)),
        22 => ("monitor session 7 type erspan-source\n destination", ConfigMode::ErspanSourceDestination(7)),
        23 => ("monitor session 8 type erspan-destination", ConfigMode::ErspanDestination(8)),
        24 => ("monitor session 8 type erspan-destination\n source", ConfigMode::ErspanDestinationSource(8)),
        13 => ("spanning-tree mst configuration", ConfigMode::Mst),
        _ => ("", ConfigMode::Global),
    }
}

/// A configuration made of random lines of the command tree; refused lines change nothing.
fn config() -> impl Strategy<Value = Config> {
    (any::<u64>(), 1usize..40).prop_map(|(seed, sections)| {
        let mut pick = picks(seed);
        let mut lines = vec![
            "class-map red".to_owned(),
            "policy-map red".to_owned(),
            "vrf definition red".to_owned(),
            "vrf definition blue-2".to_owned(),
        ];
        for _ in 0..sections {
            let (head, mode) = lead(pick(29));
            lines.push(head.to_owned());
            for _ in 0..pick(12) {
                let no = ["", "", "", "", "no ", "default "][pick(6)];
                lines.push(format!(" {no}{}", generate::line(&mode, &mut pick)));
            }
        }
        apply_text(&lines.join("\n"), &Config::default()).0
    })
}

/// The words that random lines consist of in addition to the keywords of the trees: keywords that are often right, and
/// valid and invalid values.
const WORDS: &[&str] = &[
    "no",
    "default",
    "do",
    "show",
    "sh",
    "interface",
    "int",
    "range",
    "vlan",
    "vlan10",
    "10",
    "20-30",
    "1,2",
    "4095",
    "0",
    "eth0",
    "eth1",
    "swp1",
    "-",
    "4",
    ",",
    "netdev",
    "switchport",
    "mode",
    "access",
    "trunk",
    "allowed",
    "native",
    "add",
    "remove",
    "except",
    "all",
    "none",
    "dot1q-tunnel",
    "protected",
    "block",
    "unicast",
    "multicast",
    "mac",
    "address-table",
    "aging-time",
    "static",
    "0200.0000.0001",
    "02:00:00:00:00:02",
    "0100.5e00.0001",
    "drop",
    "learning",
    "limit",
    "300",
    "ip",
    "ipv6",
    "address",
    "route",
    "routing",
    "unicast-routing",
    "10.0.0.1",
    "255.255.255.0",
    "10.0.0.1/24",
    "10.0.0.0/8",
    "2001:db8::1/64",
    "fe80::1",
    "secondary",
    "hostname",
    "sw",
    "name",
    "users",
    "state",
    "suspend",
    "active",
    "VLAN0010",
    "shutdown",
    "description",
    "a text",
    "mtu",
    "1500",
    "mac-address",
    "speed",
    "1000",
    "duplex",
    "full",
    "hook",
    "xdp",
    "delivery",
    "peer",
    "dot1q",
    "tunneling",
    "ethertype",
    "0x88A8",
    "tag",
    "reserved-address",
    "fpm",
    "server",
    "port",
    "2620",
    "counters",
    "forward",
    "end",
    "exit",
    "configure",
    "terminal",
    "session",
    "work",
    "commit",
    "abort",
    "confirmed",
    "diff",
    "confirm",
    "enable",
    "disable",
    "copy",
    "running-config",
    "startup-config",
    "write",
    "memory",
    "erase",
    "clear",
    "counters",
    "dynamic",
    "monitor",
    "events",
    "fdb",
    "ping",
    "repeat",
    "brctl",
    "addbr",
    "br0",
    "addif",
    "showmacs",
    "platform",
    "packet-trace",
    "hex",
    "ffff",
    "interfaces",
    "status",
    "brief",
    "|",
    "json",
    "include",
    "(",
    "count",
    "section",
    "history",
    "size",
    "?",
    "!",
    "é",
    "\u{1b}[0m",
    "...",
    "|json",
    "replace",
    "logging",
    "users",
    "version",
    "spanning-tree",
    "mst",
    "configuration",
    "rapid-pvst",
    "rstp",
    "priority",
    "4096",
    "root",
    "primary",
    "secondary",
    "hello-time",
    "max-age",
    "cost",
    "port-priority",
    "16",
    "portfast",
    "edge",
    "bpduguard",
    "bpdufilter",
    "guard",
    "loop",
    "loopguard",
    "link-type",
    "shared",
    "instance",
    "revision",
    "errdisable",
    "recovery",
    "cause",
    "interval",
    "detected-protocols",
    "detail",
    "summary",
    "vrf",
    "definition",
    "forwarding",
    "red",
    "rd",
    "65000:1",
    "address-family",
    "exit-address-family",
    "track",
    "line-protocol",
    "reachability",
    "delay",
    "up",
    "down",
    "null0",
    "permanent",
    "tag",
    "arp",
    "arpa",
    "timeout",
    "helper-address",
    "global",
    "dhcp",
    "relay",
    "information",
    "option",
    "policy",
    "keep",
    "trusted",
    "destination",
    "nd",
    "ra",
    "prefix",
    "suppress",
    "infinite",
    "lifetime",
    "managed-config-flag",
    "proxy-arp",
    "redirects",
    "forwarding",
    "plane",
    "never",
    "unreachables",
    "verify",
    "source",
    "reachable-via",
    "rx",
    "any",
    "vrrp",
    "preempt",
    "minimum",
    "timers",
    "advertise",
    "decrement",
    "encapsulation",
    "eth0.100",
    "eth0.123456789",
    "cef",
    "exact-route",
    "arp-cache",
    "neighbors",
    "class-map",
    "policy-map",
    "class",
    "match",
    "dscp",
    "police",
    "cir",
    "1000000",
    "bandwidth",
    "percent",
    "remaining",
    "shape",
    "average",
    "service-policy",
    "input",
    "output",
    "mls",
    "qos",
];

fn line() -> impl Strategy<Value = String> {
    let keywords = generate::keywords();
    let any_word = prop_oneof![
        4 => any::<Index>().prop_map(|at| *at.get(WORDS)),
        1 => any::<Index>().prop_map(move |at| *at.get(&keywords)),
    ];
    let word = (any_word, 1usize..12, any::<bool>()).prop_map(|(word, keep, whole)| {
        if whole { (*word).to_owned() } else { word.chars().take(keep).collect() }
    });
    let words = proptest::collection::vec(word, 0..9).prop_map(|words| words.join(" "));
    prop_oneof![8 => words, 1 => "\\PC{0,60}", 1 => any::<String>()]
}

/// Lines that lead to each mode, so that the following lines are parsed in every mode.
const LEADS: &[&str] = &[
    "",
    "configure terminal",
    "interface eth0",
    "interface range swp1 - 4",
    "interface vlan 10",
    "vlan 10",
    "vlan 10,20",
    "configure session work",
    "spanning-tree mst configuration",
    "spanning-tree mode mst",
    "switchport",
    "no switchport",
    "interface eth0.100",
    "encapsulation dot1q 100",
    "vrf definition red",
    "class-map match-any red",
    "policy-map red",
    "class red",
    "track 1 interface eth0 line-protocol",
    "end",
    "disable",
    "enable",
];

/// `PROPTEST_CASES`, or a number of cases that takes one or two seconds.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_configuration_survives_its_text(config in config()) {
        let text = text::render(&config);
        let (again, errors) = apply_text(&text, &Config::default());
        prop_assert_eq!(&errors, &vec![], "{}", text);
        prop_assert_eq!(text::render(&again), text);
        prop_assert_eq!(again, config);
    }

    #[test]
    fn a_difference_is_empty_only_between_equals(a in config(), b in config()) {
        prop_assert!(text::diff(&a, &a).is_empty());
        prop_assert_eq!(text::diff(&a, &b).is_empty(), a == b);
    }

    #[test]
    fn any_line_in_any_mode(lines in proptest::collection::vec((any::<Index>(), line()), 1..24)) {
        let (mut fake, mut session) = (Fake::new(&["eth0", "eth1", "swp1", "swp2", "swp3", "swp4"]), session());
        for (lead, line) in lines {
            let lead: &&str = lead.get(LEADS);
            session.execute(lead, &mut fake);
            let (before, mode) = (fake.config.clone(), session.mode().clone());
            prop_assert!(!session.help(&line, &fake).is_empty());
            let completion = session.complete(&line, &fake);
            prop_assert!(line.is_char_boundary(completion.start));
            match session.execute(&line, &mut fake) {
                Outcome::Refused(text) => {
                    prop_assert!(text.lines().any(|line| line.starts_with('%')), "{text}");
                    prop_assert_eq!(&before, &fake.config);
                    // Behind a refused line that leads to a mode: global configuration mode, or for `class` its policy map.
                    let around = matches!(
                        session.mode(),
                        Mode::Config { at: ConfigMode::Global | ConfigMode::PolicyMap(_), .. }
                    );
                    prop_assert!(mode == *session.mode() || around);
                }
                Outcome::Run(program) => prop_assert!(["ping", "traceroute", "nsenter"].contains(&program.argv[0].as_str())),
                _ => {}
            }
            let (again, errors) = apply_text(&text::render(&fake.config), &Config::default());
            prop_assert_eq!(errors, vec![], "after {}", line);
            prop_assert_eq!(&again, &fake.config, "after {}", line);
        }
    }

    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz_line(&data);
    }

    #[test]
    fn any_lines(lines in proptest::collection::vec(line(), 0..12)) {
        fuzz_line(lines.join("\n").as_bytes());
    }
}
