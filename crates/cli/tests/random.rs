//! What must hold for any configuration and for any line.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Fake, session};
use lanyard_cli::{Outcome, apply_text, fuzz_line};
use lanyard_config::spanning_tree::{PortTree, SpanningTree, SpanningTreePort, Times, Tree};
use lanyard_config::{
    Config, Duplex, Interface, InterfaceName, Role, StaticRoute, StaticTarget, Switchport, SwitchportMode,
    Vlan, text,
};
use lanyard_pipeline::state::{Delivery, GlobalState, HookChoice, ReservedAction, Tpid};
use lanyard_stp::{ErrCause, Guard, LinkType, Mode, MstRegion, PathCostMethod, PortFast};
use lanyard_types::{MacAddr, VlanId, VlanSet};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::BTreeMap;

fn vlan_id() -> impl Strategy<Value = VlanId> {
    (1u16..=4094).prop_map(|n| VlanId::new(n).unwrap())
}

fn vlan_set() -> impl Strategy<Value = VlanSet> {
    let some = proptest::collection::vec((vlan_id(), 1u16..200), 0..12).prop_map(|ranges| {
        ranges
            .into_iter()
            .flat_map(|(v, n)| (v.get()..v.get().saturating_add(n)).filter_map(VlanId::new))
            .collect()
    });
    let scattered = Just((1..=4094).step_by(2).filter_map(VlanId::new).collect());
    prop_oneof![4 => some, 1 => scattered, 1 => Just(VlanSet::all())]
}

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(|mut m| {
        m[0] = m[0] & 0xfe | 2;
        MacAddr(m)
    })
}

/// Netdevs, some named to be mistaken for something else.
const NAMES: &[&str] = &[
    "eth0", "eth10", "vlan", "vlan7", "Vlan5000", "range", "r", "netdev", "a-1", "swp1-4", "10.0.0.1", "7",
    "status", "é1",
];

fn netdev() -> impl Strategy<Value = InterfaceName> {
    prop_oneof![select(NAMES).prop_map(str::to_owned), "[a-z]{1,8}[0-9]{0,4}"].prop_map(InterfaceName::Netdev)
}

prop_compose! {
    fn switchport()(
        mode in select(&[SwitchportMode::Access, SwitchportMode::Trunk, SwitchportMode::Tunnel][..]),
        access_vlan in vlan_id(), native_vlan in vlan_id(), allowed_vlans in vlan_set(),
        flags in any::<[bool; 4]>(),
    ) -> Switchport {
        let [protected, block_unicast, block_multicast, learning] = flags;
        Switchport { mode, access_vlan, native_vlan, allowed_vlans, protected, block_unicast, block_multicast, learning, ..Switchport::default() }
    }
}

fn region() -> impl Strategy<Value = MstRegion> {
    let lists = proptest::collection::btree_map(1u16..=4094, vlan_set(), 0..5);
    ("[!-~]{0,32}", any::<u16>(), lists).prop_map(|(name, revision, lists)| {
        let mut taken = VlanSet::EMPTY;
        let mut instances = BTreeMap::new();
        for (instance, vlans) in lists {
            let vlans = vlans.difference(&taken);
            taken = taken.union(&vlans);
            if !vlans.is_empty() {
                instances.insert(instance, vlans);
            }
        }
        MstRegion { name, revision, instances }
    })
}

prop_compose! {
    fn times()(
        hello_s in proptest::option::of(1u8..=10), forward_s in proptest::option::of(4u8..=30),
        max_age_s in proptest::option::of(6u8..=40),
    ) -> Times {
        Times { hello_s, forward_s, max_age_s }
    }
}

fn priority() -> impl Strategy<Value = u16> {
    (0u16..=15).prop_map(|n| n * 4096)
}

prop_compose! {
    fn spanning_tree()(
        mode in select(&[None, Some(Mode::Stp), Some(Mode::Rstp), Some(Mode::Mst), Some(Mode::Pvst), Some(Mode::RapidPvst)][..]),
        vlans in proptest::collection::btree_map(vlan_id(), (proptest::option::of(priority()), times()), 0..6),
        no_tree in vlan_set(),
        instances in proptest::collection::btree_map(0u16..=4094, priority(), 0..4),
        mst_times in times(),
        (max_hops, hold_count) in (1u8..=255, 1u8..=20),
        region in region(),
        flags in any::<[bool; 5]>(),
    ) -> SpanningTree {
        let [long, portfast_default, bpduguard_default, bpdufilter_default, loopguard_default] = flags;
        let tree = |(vlan, (priority, times))| (vlan, Tree { priority, times });
        SpanningTree {
            mode,
            vlans: vlans.into_iter().map(tree).filter(|(_, tree)| *tree != Tree::default()).collect(),
            no_tree, instances, mst_times, max_hops, region,
            path_cost: if long { PathCostMethod::Long } else { PathCostMethod::Short },
            portfast_default, bpduguard_default, bpdufilter_default, loopguard_default, hold_count,
        }
    }
}

prop_compose! {
    fn port_tree()(
        cost in proptest::option::of(1u32..=200_000_000),
        priority in proptest::option::of((0u8..=15).prop_map(|n| n * 16)),
    ) -> PortTree {
        PortTree { cost, priority }
    }
}

prop_compose! {
    fn spanning_tree_port()(
        link_type in select(&[LinkType::Auto, LinkType::PointToPoint, LinkType::Shared][..]),
        portfast in select(&[PortFast::Default, PortFast::Disable, PortFast::Edge, PortFast::Trunk][..]),
        (bpdu_guard, bpdu_filter) in any::<(Option<bool>, Option<bool>)>(),
        guard in select(&[Guard::Default, Guard::None, Guard::Root, Guard::Loop][..]),
        all in port_tree(),
        vlans in proptest::collection::btree_map(vlan_id(), port_tree(), 0..4),
        instances in proptest::collection::btree_map(0u16..=4094, port_tree(), 0..4),
    ) -> SpanningTreePort {
        let mut port = SpanningTreePort { link_type, portfast, bpdu_guard, bpdu_filter, guard, all, vlans, instances };
        port.vlans.retain(|_, tree| *tree != PortTree::default());
        port.instances.retain(|_, tree| *tree != PortTree::default());
        port
    }
}

prop_compose! {
    fn interface()(
        role in select(&[Role::Unset, Role::Switchport, Role::Routed][..]),
        port in prop_oneof![Just(Switchport::default()), switchport()],
        description in proptest::option::of("[!-~][ -~]{0,100}[!-~]"),
        (shutdown, mtu, mac) in (any::<bool>(), proptest::option::of(68u32..=9216), proptest::option::of(mac())),
        tpid in select(&[Tpid::Dot1q, Tpid::Dot1ad, Tpid::Stacked9100][..]),
        fdb_limit in proptest::option::of(1u32..=1_000_000),
        hook in select(&[HookChoice::Auto, HookChoice::Tc, HookChoice::Xdp][..]),
        delivery in select(&[Delivery::Auto, Delivery::Peer, Delivery::Device][..]),
        speed_mbps in proptest::option::of(select(&[10u32, 1000, 400_000][..])),
        duplex in select(&[Duplex::Auto, Duplex::Half, Duplex::Full][..]),
        spanning_tree in prop_oneof![Just(SpanningTreePort::default()), spanning_tree_port()],
    ) -> Interface {
        let learning = port.learning;
        let port = if role == Role::Unset { Switchport { learning, ..Switchport::default() } } else { port };
        let switchport = Switchport { tpid, fdb_limit, ..port };
        Interface { description, shutdown, mtu, mac, role, switchport, hook, delivery, speed_mbps, duplex, spanning_tree, ..Interface::default() }
    }
}

/// Interface number `n`'s addresses: subnets that no other has.
fn address(interface: &mut Interface, n: usize, secondary: usize) {
    let net = |m: usize| format!("10.{}.{}.{}/28", n / 256, n % 256, m * 16 + 1).parse().unwrap();
    interface.ipv4 = (0..=secondary).map(net).collect();
    interface.ipv6 = vec![format!("2001:db8:{n:x}::1/64").parse().unwrap(), "fe80::1/64".parse().unwrap()];
}

prop_compose! {
    fn config()(
        hostname in "[A-Za-z][A-Za-z0-9-]{0,20}[a-z]",
        vlans in proptest::collection::btree_map(vlan_id(), (any::<bool>(), any::<bool>(), any::<bool>()), 0..40),
        netdevs in proptest::collection::btree_map(netdev(), interface(), 0..8),
        svis in proptest::collection::btree_map(vlan_id(), (any::<bool>(), proptest::option::of(0usize..4)), 0..8),
        statics in proptest::collection::btree_map((vlan_id(), mac()), proptest::option::of(netdev()), 0..6),
        routes in proptest::collection::btree_set((any::<u32>(), 0u8..=32, 1u8..=255, proptest::option::of(netdev())), 0..6),
        flags in any::<[bool; 4]>(),
        (no_learning, vlan_limits) in (vlan_set(), proptest::collection::btree_map(vlan_id(), 1u32..=1_000_000, 0..4)),
        (ageing_s, limit) in (prop_oneof![Just(0), 10u32..=1_000_000], 1u32..=1_000_000),
        (reserved, spanning_tree) in (proptest::collection::btree_map(0u8..16, Just(()), 0..4), spanning_tree()),
        recovery in (any::<bool>(), 30u32..=86_400),
    ) -> Config {
        let mut config = Config { hostname, ip_routing: flags[0], ipv6_routing: flags[1], tag_native: flags[2], ..Config::default() };
        config.spanning_tree = spanning_tree;
        config.errdisable.recovery.extend(recovery.0.then_some(ErrCause::BpduGuard));
        config.errdisable.interval_s = recovery.1;
        for (id, (named, suspended, shutdown)) in vlans {
            if id != VlanId::DEFAULT {
                config.vlans.insert(id, Vlan { name: named.then(|| format!("v{id}")), suspended, shutdown });
            }
        }
        for (n, (name, mut interface)) in netdevs.into_iter().enumerate() {
            if interface.role == Role::Routed && flags[3] {
                address(&mut interface, n, n % 3);
            }
            if interface != Interface::default() {
                config.interfaces.insert(name, interface);
            }
        }
        for (n, (id, (shutdown, addresses))) in svis.into_iter().enumerate() {
            let mut interface = Interface { shutdown, ..Interface::default() };
            if let Some(secondary) = addresses {
                address(&mut interface, 1000 + n, secondary);
            }
            config.interfaces.insert(InterfaceName::Vlan(id), interface);
        }
        let target = |name: Option<InterfaceName>| name.map_or(StaticTarget::Drop, StaticTarget::Interface);
        config.fdb.statics = statics.into_iter().map(|(key, name)| (key, target(name))).collect();
        config.fdb.no_learning = no_learning;
        config.fdb.vlan_limits = vlan_limits;
        (config.fdb.ageing_s, config.fdb.limit) = (ageing_s, limit);
        for (number, ()) in reserved {
            let default = GlobalState::default().reserved[usize::from(number)];
            let other = if default == ReservedAction::Drop { ReservedAction::Forward } else { ReservedAction::Drop };
            if number != 1 {
                config.reserved.insert(number, other);
            }
        }
        for (address, len, distance, interface) in routes {
            let prefix = ipnet::IpNet::new(std::net::Ipv4Addr::from(address).into(), len).unwrap().trunc();
            let via = Some("192.0.2.1".parse().unwrap()).filter(|_| interface.is_none() || distance % 2 == 0);
            let route = StaticRoute { prefix, via, interface, distance };
            let same = |other: &StaticRoute| (other.prefix, other.via, &other.interface) == (route.prefix, route.via, &route.interface);
            if !config.routes.iter().any(same) {
                config.routes.push(route);
            }
        }
        config.routes.sort();
        config
    }
}

/// Words that lines are made of: every keyword's beginning, and values right and wrong.
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
];

fn line() -> impl Strategy<Value = String> {
    let word = (any::<Index>(), 1usize..12, any::<bool>()).prop_map(|(at, keep, whole)| {
        let word = at.get(WORDS);
        if whole { (*word).to_owned() } else { word.chars().take(keep).collect() }
    });
    let words = proptest::collection::vec(word, 0..9).prop_map(|words| words.join(" "));
    prop_oneof![8 => words, 1 => "\\PC{0,60}", 1 => any::<String>()]
}

/// Beginnings that lead somewhere, so that what follows is read in every mode.
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
    "end",
    "disable",
    "enable",
];

/// `PROPTEST_CASES`, or a number that takes a second or two.
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
                    prop_assert_eq!(&mode, session.mode());
                }
                Outcome::Run(program) => prop_assert!(["ping", "traceroute"].contains(&program.argv[0].as_str())),
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
