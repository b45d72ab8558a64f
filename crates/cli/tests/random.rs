//! What must hold for any configuration and for any line.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Fake, session};
use lanyard_cli::{Outcome, apply_text, fuzz_line};
use lanyard_config::layer3::{
    ForwardingPlane, Helper, HelperVrf, Layer3, Nd, NdPrefix, RaSuppress, RelayDestination, RelayInformation,
    RelayPolicy, Track, TrackObject, Vrf, Vrrp,
};
use lanyard_config::spanning_tree::{PortTree, SpanningTree, SpanningTreePort, Times, Tree};
use lanyard_config::{
    Config, Duplex, FpmServer, Interface, InterfaceName, Role, StaticRoute, StaticTarget, Switchport,
    SwitchportMode, Vlan, text,
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
        flags in any::<[bool; 6]>(),
    ) -> SpanningTree {
        let [long, portfast_default, bpduguard_default, bpdufilter_default, loopguard_default, counting_guard] = flags;
        let tree = |(vlan, (priority, times))| (vlan, Tree { priority, times });
        SpanningTree {
            mode,
            vlans: vlans.into_iter().map(tree).filter(|(_, tree)| *tree != Tree::default()).collect(),
            no_tree, instances, mst_times, max_hops, region,
            path_cost: if long { PathCostMethod::Long } else { PathCostMethod::Short },
            portfast_default, bpduguard_default, bpdufilter_default, loopguard_default, hold_count,
            counting_guard,
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

/// What of layer 3 an interface may have.
fn fitting(layer3: Layer3, role: Role, mtu: Option<u32>) -> Layer3 {
    let ip_mtu = layer3.ip_mtu.filter(|ip| mtu.is_none_or(|mtu| *ip <= mtu));
    if role == Role::Routed { Layer3 { ip_mtu, ..layer3 } } else { Layer3::default() }
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
        layer3 in layer3(),
    ) -> Interface {
        let learning = port.learning;
        let port = if role == Role::Unset { Switchport { learning, ..Switchport::default() } } else { port };
        let switchport = Switchport { tpid, fdb_limit, ..port };
        Interface { description, shutdown, mtu, mac, role, switchport, hook, delivery, speed_mbps, duplex, spanning_tree, layer3: fitting(layer3, role, mtu), ..Interface::default() }
    }
}

/// Lifetimes and flags of an advertised prefix.
type PrefixSeed = (Option<(u32, u32)>, [bool; 3]);

const VRFS: &[&str] = &["red", "blue-2", "v.3"];

prop_compose! {
    fn vrf()(
        description in proptest::option::of("[!-~][ -~]{0,40}[!-~]"), rd in proptest::option::of("[0-9]{1,5}:[0-9]{1,5}"),
        (ipv4, ipv6) in any::<(bool, bool)>(), forwarding_plane in proptest::option::of(forwarding_plane()),
    ) -> Vrf {
        Vrf { description, rd, ipv4, ipv6, forwarding_plane }
    }
}

prop_compose! {
    fn vrrp()(
        hosts in proptest::collection::btree_set(2u8..200, 0..4),
        description in proptest::option::of("[!-~][ -~]{0,40}[!-~]"),
        (priority, advertise_s) in (1u8..=254, 1u8..=255),
        (preempt, preempt_delay_s, shutdown) in (any::<bool>(), 0u16..=1000, any::<bool>()),
        tracks in proptest::collection::btree_map(1u16..=1000, 1u8..=255, 0..3),
    ) -> Vrrp {
        let addresses = hosts.into_iter().map(|host| [192, 0, 2, host].into()).collect();
        let preempt_delay_s = if preempt { preempt_delay_s } else { 0 };
        Vrrp { addresses, description, priority, advertise_s, preempt, preempt_delay_s, tracks, shutdown }
    }
}

prop_compose! {
    fn nd()(
        suppress in select(&[RaSuppress::No, RaSuppress::Periodic, RaSuppress::All][..]),
        (managed, other) in any::<(bool, bool)>(),
        interval_s in proptest::option::of((4u16..=1800, any::<bool>())),
        lifetime_s in proptest::option::of(1800u16..=9000),
        prefixes in proptest::collection::btree_map(any::<u16>(), (proptest::option::of((any::<u32>(), any::<u32>())), any::<[bool; 3]>()), 0..3),
    ) -> Nd {
        let prefix = |(n, (lifetimes, [no_advertise, off_link, no_autoconfig])): (u16, PrefixSeed)| {
            let lifetimes_s = lifetimes.map(|(a, b): (u32, u32)| (a.max(b), a.min(b)));
            (format!("2001:db8:{n:x}::/64").parse().unwrap(), NdPrefix { lifetimes_s, no_advertise, off_link, no_autoconfig })
        };
        let interval_s = interval_s.map(|(max, with_min)| (max, with_min.then_some((max * 3 / 4).max(3))));
        Nd { suppress, managed, other, interval_s, lifetime_s, prefixes: prefixes.into_iter().map(prefix).collect() }
    }
}

fn urpf() -> impl Strategy<Value = lanyard_pipeline::route::Urpf> {
    use lanyard_pipeline::route::Urpf::{Loose, Off, Strict};
    select(&[Off, Loose, Strict][..])
}

fn forwarding_plane() -> impl Strategy<Value = ForwardingPlane> {
    select(&ForwardingPlane::ALL[..])
}

/// `vrf` is put in where VRFs are known.
fn layer3() -> impl Strategy<Value = Layer3> {
    let helper = (0u8..3, 1u8..=254).prop_map(|(kind, host)| Helper {
        vrf: if kind == 0 { HelperVrf::Own } else { HelperVrf::Global },
        address: [203, 0, 113, host].into(),
    });
    let destination = (1u16.., any::<bool>()).prop_map(|(n, link_local)| RelayDestination {
        address: format!("{}::{n:x}", if link_local { "fe80" } else { "2001:db8" }).parse().unwrap(),
        interface: link_local.then(|| InterfaceName::Netdev("eth0".into())),
    });
    let groups = proptest::collection::btree_map(1u8..=255, vrrp(), 0..3);
    let flags = any::<[bool; 5]>();
    let times = (proptest::option::of(68u32..=9216), proptest::option::of(1u32..=2_147_483));
    let lists = (proptest::collection::vec(helper, 0..4), proptest::collection::vec(destination, 0..3));
    let plane = proptest::option::of(forwarding_plane());
    (flags, times, (urpf(), urpf()), lists, nd(), groups, plane).prop_map(
        |(flags, times, urpf, lists, nd, groups, forwarding_plane)| {
            let [proxy_arp, local_proxy_arp, directed_broadcast, redirects, relay_trusted] = flags;
            let (mut helpers, mut relay_destinations) = lists;
            helpers.dedup_by_key(|helper| helper.address);
            helpers.sort_by_key(|helper| helper.address);
            helpers.dedup_by_key(|helper| helper.address);
            relay_destinations.sort_by_key(|destination| destination.address);
            relay_destinations.dedup_by_key(|destination| destination.address);
            let vrrp = groups.into_iter().filter(|(_, vrrp)| *vrrp != Vrrp::default()).collect();
            let (ip_mtu, arp_timeout_s) = times;
            Layer3 {
                vrf: None,
                ip_mtu,
                proxy_arp,
                local_proxy_arp,
                directed_broadcast,
                redirects,
                forwarding_plane,
                urpf_ipv4: urpf.0,
                urpf_ipv6: urpf.1,
                arp_timeout_s,
                helpers,
                relay_trusted,
                relay_destinations,
                nd,
                vrrp,
            }
        },
    )
}

/// What of layer 3 belongs to no interface.
type Globals =
    (RelayInformation, BTreeMap<u16, Track>, BTreeMap<(Option<String>, std::net::Ipv4Addr), MacAddr>);

fn globals() -> impl Strategy<Value = Globals> {
    let policy = select(&[RelayPolicy::Replace, RelayPolicy::Keep, RelayPolicy::Drop][..]);
    let relay = (any::<(bool, bool)>(), policy).prop_map(|((option, trust_all), policy)| RelayInformation {
        option,
        policy,
        trust_all,
    });
    let object = prop_oneof![
        netdev().prop_map(TrackObject::LineProtocol),
        vlan_id().prop_map(|vlan| TrackObject::LineProtocol(InterfaceName::Vlan(vlan))),
        (any::<u32>(), 0u8..=32, proptest::option::of(select(VRFS))).prop_map(|(address, len, vrf)| {
            TrackObject::Route {
                vrf: vrf.map(str::to_owned),
                prefix: ipnet::IpNet::new(std::net::Ipv4Addr::from(address).into(), len).unwrap().trunc(),
            }
        }),
        any::<u16>().prop_map(|n| TrackObject::Route {
            vrf: None,
            prefix: format!("2001:db8:{n:x}::/48").parse().unwrap()
        }),
    ];
    let track =
        (object, 0u8..=180, 0u8..=180).prop_map(|(object, up_s, down_s)| Track { object, up_s, down_s });
    let arps = proptest::collection::btree_map((proptest::option::of(select(VRFS)), 1u8..=254), mac(), 0..4);
    let arps = arps.prop_map(|arps| {
        let entry = |((vrf, host), mac): ((Option<&str>, u8), MacAddr)| {
            ((vrf.map(str::to_owned), [198, 51, 100, host].into()), mac)
        };
        arps.into_iter().map(entry).collect()
    });
    (relay, proptest::collection::btree_map(1u16..=1000, track, 0..4), arps)
}

/// A static route without its VRF.
fn static_route() -> impl Strategy<Value = StaticRoute> {
    let way = (0u8..4, netdev());
    let options =
        (1u8..=255, proptest::option::of(1u32..), proptest::option::of("[!-~]{1,50}"), 0u8..3, 1u16..=1000);
    (any::<u32>(), 0u8..=32, way, options, proptest::option::of(select(VRFS))).prop_map(
        |(address, len, way, options, vrf)| {
            let prefix = ipnet::IpNet::new(std::net::Ipv4Addr::from(address).into(), len).unwrap().trunc();
            let (distance, tag, name, keep, track) = options;
            StaticRoute {
                vrf: vrf.map(str::to_owned),
                discard: way.0 == 0,
                via: (way.0 & 1 == 1).then(|| "192.0.2.1".parse().unwrap()),
                interface: (way.0 >= 2).then_some(way.1),
                distance,
                tag,
                name,
                permanent: keep == 1,
                track: (keep == 2).then_some(track),
                ..StaticRoute::new(prefix)
            }
        },
    )
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
        svis in proptest::collection::btree_map(vlan_id(), (any::<bool>(), proptest::option::of(0usize..4), layer3()), 0..8),
        statics in proptest::collection::btree_map((vlan_id(), mac()), proptest::option::of(netdev()), 0..6),
        routes in proptest::collection::vec(static_route(), 0..8),
        (vrfs, globals) in (proptest::collection::btree_map(select(VRFS), vrf(), 0..3), globals()),
        subinterfaces in proptest::collection::btree_map(1u16..=99, (vlan_id(), layer3(), any::<bool>()), 0..4),
        (flags, forwarding_plane) in (any::<[bool; 4]>(), forwarding_plane()),
        (no_learning, vlan_limits) in (vlan_set(), proptest::collection::btree_map(vlan_id(), 1u32..=1_000_000, 0..4)),
        (ageing_s, limit) in (prop_oneof![Just(0), 10u32..=1_000_000], 1u32..=1_000_000),
        (reserved, spanning_tree) in (proptest::collection::btree_map(0u8..16, Just(()), 0..4), spanning_tree()),
        (recovery, fpm) in ((any::<bool>(), 30u32..=86_400), proptest::option::of((any::<Option<std::net::Ipv6Addr>>(), 1u16..))),
    ) -> Config {
        let mut config = Config { hostname, ip_routing: flags[0], ipv6_routing: flags[1], tag_native: flags[2], ..Config::default() };
        config.spanning_tree = spanning_tree;
        config.forwarding_plane = forwarding_plane;
        config.fpm = fpm.map(|(address, port)| {
            let address = address.filter(|address| !address.is_multicast()).map(Into::into);
            FpmServer { address: address.unwrap_or(FpmServer::default().address), port }
        });
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
        config.vrfs = vrfs.into_iter().map(|(name, vrf)| (name.to_owned(), vrf)).collect();
        (config.relay, config.tracks, config.arps) = globals;
        let known = |vrf: &Option<String>, config: &Config| vrf.as_ref().is_none_or(|vrf| config.vrfs.contains_key(vrf));
        let all = config.clone();
        config.arps.retain(|(vrf, _), _| known(vrf, &all));
        config.tracks.retain(|_, track| match &track.object {
            TrackObject::Route { vrf, .. } => known(vrf, &all),
            TrackObject::LineProtocol(_) => true,
        });
        let vrf_of = |n: usize| all.vrfs.keys().nth(n % 4).cloned();
        if !subinterfaces.is_empty() {
            let parent = Interface { role: Role::Routed, ..Interface::default() };
            config.interfaces.insert(InterfaceName::Netdev("xe7".into()), parent);
        }
        let mut tags = std::collections::BTreeSet::new();
        for (n, (number, (vlan, layer3, addressed))) in subinterfaces.into_iter().enumerate() {
            if tags.insert(vlan) {
                let mut interface = Interface { role: Role::Subinterface(vlan), layer3, ..Interface::default() };
                interface.layer3.vrf = vrf_of(n);
                if addressed {
                    address(&mut interface, 2000 + n, 0);
                }
                config.interfaces.insert(InterfaceName::Netdev(format!("xe7.{number}")), interface);
            }
        }
        for (n, (id, (shutdown, addresses, layer3))) in svis.into_iter().enumerate() {
            let mut interface = Interface { shutdown, layer3, ..Interface::default() };
            interface.layer3.vrf = vrf_of(n);
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
        for route in routes {
            if known(&route.vrf, &config) && !config.routes.iter().any(|other| other.same_way(&route)) {
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
    "interface eth0.100",
    "encapsulation dot1q 100",
    "vrf definition red",
    "track 1 interface eth0 line-protocol",
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
