//! The plane routes between real hosts: in different VLANs, and at a routed port. The namespace's kernel does not
//! forward, so every packet that arrives has been routed by the plane.

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod common;

use common::{
    Guarded, Host, PATIENCE, SILENCE, access_state, arrives, assert_conserved, in_switch, options, port, vlan,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_netdev::{Netdev, Veth};
use lanyard_pipeline::route::{Adjacency, RifAttachment, RifState, RouteChange, RouteTarget, Urpf};
use lanyard_pipeline::state::{HookChoice, PlaneState, PortKind, PortState};
use lanyard_plane::{Hook, Plane, PlaneError};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, RifId, TrapReason, VrfId};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

const ROUTER: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
/// The host's sides of the VLAN interfaces.
const UP: [(u16, u16); 2] = [(10, 900), (20, 901)];

fn rif(n: u16) -> RifId {
    RifId::new(n).expect("an interface")
}
fn adjacency(n: u32) -> AdjacencyId {
    AdjacencyId::new(n).expect("an adjacency")
}
fn group(n: u32) -> GroupId {
    GroupId::new(n).expect("a group")
}
fn route(prefix: &str, target: Option<RouteTarget>) -> RouteChange {
    RouteChange::Route(VrfId::DEFAULT, prefix.parse::<IpNet>().expect(prefix), target)
}

/// Host 1 in VLAN 10, host 257 in VLAN 20, host 513 at a routed port: 10.0.0.1, 10.0.1.1, 10.0.2.1, with static
/// neighbour entries for the router; and router interfaces 1, 2 and 3.
struct World {
    hosts: [Host; 3],
    state: PlaneState,
}

impl World {
    /// Creates the hosts, a plane with their routes, and a socket of each host.
    fn routed() -> (Self, Guarded, Vec<std::net::UdpSocket>) {
        let world = Self::new();
        let mut guarded = Guarded::open(options());
        guarded.plane().apply(&world.state).expect("applied");
        assert_eq!(guarded.plane().route(&world.routes()), []);
        let sockets = world.hosts.iter().map(Host::socket).collect();
        (world, guarded, sockets)
    }
    fn new() -> Self {
        let hosts = [Host::new(1), Host::new(257), Host::new(513)];
        let mut state = access_state(&[(&hosts[0], 10), (&hosts[1], 20)]);
        let netdev = Netdev::open().expect("netlink");
        for (id, up) in UP {
            let (near, far) = (format!("ly{id}"), format!("vlan{id}"));
            let veth = Veth { name: &near, peer: &far, peer_mac: Some(ROUTER), ..Veth::default() };
            netdev.create_veth(&veth).expect("a veth pair");
            for name in [&near, &far] {
                netdev.set_up(netdev.link(name).expect(name).ifindex, true).expect("up");
            }
            let link = netdev.link(&near).expect("the near end");
            let mut svi = PortState::access(&near, link.ifindex, vlan(id));
            (svi.kind, svi.learning, svi.flood_unicast) = (PortKind::Svi(vlan(id)), false, false);
            state.ports.insert(port(up), svi);
            let attachment = RifAttachment::Vlan { vlan: vlan(id), up: port(up) };
            state.rifs.insert(rif(id / 10), interface(&far, attachment));
        }
        let end = &hosts[2].port;
        let routed = PortState { kind: PortKind::Routed, ..PortState::new(&end.name, end.ifindex) };
        state.ports.insert(port(513), routed);
        state.rifs.insert(rif(3), interface(&end.name, RifAttachment::Port(port(513))));
        for (net, host) in hosts.iter().enumerate() {
            let gateway = format!("10.0.{net}.254");
            host.run(
                "ip",
                &["neigh", "add", &gateway, "lladdr", "02:aa:00:00:00:01", "dev", "eth0", "nud", "permanent"],
            );
            host.run("ip", &["route", "add", "default", "via", &gateway]);
        }
        Self { hosts, state }
    }

    /// The routes: every host has an adjacency and a group, numbered by its position.
    fn routes(&self) -> Vec<RouteChange> {
        self.routes_of(32)
    }
    /// The routes, as `routes`, with prefixes of this length.
    fn routes_of(&self, len: u8) -> Vec<RouteChange> {
        let mut changes = Vec::new();
        for (n, host) in (1..).zip(&self.hosts) {
            let new = Adjacency { rif: rif(n), mac: Some(host.mac()) };
            changes.push(RouteChange::Adjacency(adjacency(n.into()), Some(new)));
            changes.push(RouteChange::Group(group(n.into()), Some(vec![adjacency(n.into())])));
            changes.push(route(&format!("{}/{len}", host.addr()), Some(RouteTarget::Group(group(n.into())))));
        }
        changes
    }
}

fn interface(name: &str, attachment: RifAttachment) -> RifState {
    RifState {
        name: name.into(),
        vrf: VrfId::DEFAULT,
        attachment,
        mac: ROUTER,
        virtual_macs: BTreeSet::new(),
        mtu: 1500,
        ipv4: true,
        ipv6: true,
        urpf_ipv4: Urpf::Strict,
        urpf_ipv6: Urpf::Off,
        while_confirmed: false,
    }
}

#[test]
fn hosts_of_different_networks_talk() {
    in_switch(|| {
        let (world, mut guarded, sockets) = World::routed();
        let plane = guarded.plane();
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            assert!(
                arrives(&sockets[from], &sockets[to], &format!("{from} to {to}"), PATIENCE),
                "{from} to {to}"
            );
        }
        assert_conserved(plane);
        let mut used = Vec::new();
        plane.adjacencies_used(&mut |id, age_s| used.push((id.get(), age_s < 5)));
        assert_eq!(used, [(1, true), (2, true), (3, true)]);

        // The router is the packet's last hop, so the kernel's side of VLAN 10 receives it.
        sockets[0].set_ttl(1).expect("a TTL");
        let (before, up) = (plane.port_counters(port(1)).trapped, plane.port_counters(port(900)).tx.frames);
        assert!(!arrives(&sockets[0], &sockets[1], "too far", SILENCE));
        assert!(plane.port_counters(port(1)).trapped > before);
        assert!(plane.port_counters(port(900)).tx.frames > up);

        // The neighbour is gone; the packet is left to the kernel.
        sockets[0].set_ttl(64).expect("a TTL");
        let gone = Adjacency { rif: rif(2), mac: None };
        assert_eq!(plane.route(&[RouteChange::Adjacency(adjacency(2), Some(gone))]), []);
        assert!(!arrives(&sockets[0], &sockets[1], "unresolved", SILENCE));
        assert_eq!(plane.route(&world.routes()), []);
        assert!(arrives(&sockets[0], &sockets[1], "resolved", PATIENCE));
        assert_conserved(plane);
    });
}

/// A connection's buffers of 64 KB are routed whole, and arrive as they were.
#[test]
fn a_stream_is_routed_whole() {
    in_switch(|| {
        let world = World::new();
        let mut guarded = Guarded::open(options());
        guarded.plane().apply(&world.state).expect("applied");
        assert_eq!(guarded.plane().route(&world.routes()), []);
        for to in [1, 2] {
            let addr = SocketAddr::new(world.hosts[to].addr().into(), 8080);
            let listener = world.hosts[to].enter(|| TcpListener::bind(addr)).expect("a listener");
            let sent: Vec<u8> =
                (0..4 << 20).map(|n: u32| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
            let mut stream =
                world.hosts[0].enter(|| TcpStream::connect_timeout(&addr, PATIENCE)).expect("connected");
            let received = std::thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    let (mut stream, mut bytes) = (listener.accept().expect("accepted").0, Vec::new());
                    stream.read_to_end(&mut bytes).map(|_| bytes)
                });
                stream.write_all(&sent).expect("written");
                drop(stream);
                receiver.join().expect("the receiver").expect("read")
            });
            assert!(received == sent, "what arrived at host {to} is not what was sent");
        }
        let counters = guarded.plane().port_counters(port(1));
        assert!(
            counters.rx.bytes / counters.rx.frames > 2000,
            "no buffer was larger than a frame: {counters:?}"
        );
        assert_conserved(guarded.plane());
    });
}

#[test]
fn packets_are_routed_between_xdp_ports() {
    in_switch(|| {
        let mut world = World::new();
        for host in &world.hosts {
            host.set_feature("rx-gro", true);
            host.set_feature("tx-checksum-ip-generic", false);
            world.state.ports.get_mut(&port(host.number)).expect("a port").hook = HookChoice::Xdp;
        }
        let mut guarded = Guarded::open(options());
        match guarded.plane().apply(&world.state) {
            Err(error @ PlaneError::Unsupported { .. }) => return println!("skipped: {error}"),
            done => done.expect("applied"),
        }
        assert_eq!(guarded.plane().port_hook(port(1)), Hook::Xdp);
        assert_eq!(guarded.plane().route(&world.routes()), []);
        let sockets: Vec<_> = world.hosts.iter().map(Host::socket).collect();
        for round in 0..10 {
            for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
                assert!(arrives(&sockets[from], &sockets[to], &format!("{round} {from} {to}"), PATIENCE));
            }
        }
        assert_conserved(guarded.plane());
    });
}

/// The old daemon's routes are used until the new one has written all of its own, even if both use the same
/// numbers for different things.
#[test]
fn a_restart_routes_on() {
    in_switch(|| {
        let (world, mut guarded, sockets) = World::routed();
        let arrives =
            |from: usize, to: usize, text: &str| arrives(&sockets[from], &sockets[to], text, PATIENCE);
        assert!(arrives(0, 1, "before"));
        guarded.plane = None;
        assert!(arrives(1, 0, "meanwhile"));
        guarded.restart().expect("adopted");
        let plane = guarded.plane();
        assert_eq!(*plane.state(), world.state);
        let at = |host: usize| IpAddr::from(world.hosts[host].addr());
        let found = plane.route_lookup(VrfId::DEFAULT, at(1));
        assert_eq!((found.target, found.buckets), (Some(RouteTarget::Group(group(2))), vec![adjacency(2)]));
        assert_eq!(plane.route_lookup(VrfId::DEFAULT, "10.9.9.9".parse().expect("one")).target, None);

        // The same numbers for other adjacencies, and one route less.
        let [a, b] = [0, 1].map(|n| world.hosts[n].mac());
        assert_eq!(
            plane.route(&[
                RouteChange::Adjacency(adjacency(1), Some(Adjacency { rif: rif(2), mac: Some(b) })),
                RouteChange::Adjacency(adjacency(2), Some(Adjacency { rif: rif(1), mac: Some(a) })),
                RouteChange::Group(group(1), Some(vec![adjacency(1)])),
                RouteChange::Group(group(2), Some(vec![adjacency(2)])),
                route(&format!("{}/32", at(0)), Some(RouteTarget::Group(group(2)))),
                route(&format!("{}/32", at(1)), Some(RouteTarget::Group(group(1)))),
            ]),
            []
        );
        assert!(arrives(0, 1, "by the old routes") && arrives(0, 2, "also by one that is not added again"));
        plane.route_synced().expect("published");
        assert!(arrives(0, 1, "by the new routes") && arrives(1, 0, "and back"));
        let found = plane.route_lookup(VrfId::DEFAULT, at(2));
        assert_eq!((found.target, found.buckets), (None, vec![]));
        assert_eq!(plane.route(&[route("10.0.2.0/24", Some(RouteTarget::Up(TrapReason::RoutePolicy)))]), []);
        assert_conserved(plane);
    });
}

/// A new table replaces the old one, with /24s divided in one of them, in the other, or in both.
#[test]
fn a_restart_with_routes_of_other_lengths() {
    in_switch(|| {
        let (world, mut guarded, sockets) = World::routed();
        let arrives =
            |from: usize, to: usize, text: &str| arrives(&sockets[from], &sockets[to], text, PATIENCE);
        let mut old = 32;
        for (round, new) in [32, 32, 24, 24, 32].into_iter().enumerate() {
            assert!(arrives(0, 1, &format!("{round} before")));
            guarded.restart().expect("adopted");
            let plane = guarded.plane();
            let mut look = |address: &str| {
                let found = plane.route_lookup(VrfId::DEFAULT, address.parse().expect(address));
                (found.target, found.buckets)
            };
            let to_1 = (Some(RouteTarget::Group(group(2))), vec![adjacency(2)]);
            assert_eq!(look("10.0.1.1"), to_1, "round {round}");
            assert_eq!(look("10.0.1.77") == to_1, old == 24, "round {round}");
            assert_eq!(look("10.0.3.1"), (None, vec![]), "round {round}");

            // Host 2's route is written last, after the others are in use.
            let mut routes = world.routes_of(new);
            let last = routes.pop().expect("a route");
            assert_eq!(plane.route(&routes), []);
            assert!(arrives(1, 0, &format!("{round} by the old routes")));
            assert!(arrives(0, 2, &format!("{round} by one not added again yet")));
            plane.route_synced().expect("published");
            for (from, to) in [(0, 1), (1, 0)] {
                assert!(arrives(from, to, &format!("{round} {from} {to} by the new routes")));
            }
            assert_eq!(plane.route(&[last]), []);
            assert!(arrives(0, 2, &format!("{round} once more")));
            assert_conserved(plane);
            old = new;
        }
    });
}

/// Tables grow while frames pass, report their occupancy, and free the memory of removed routes.
#[test]
fn tables_grow_and_shrink() {
    in_switch(|| {
        let (_world, mut guarded, sockets) = World::routed();
        let plane = guarded.plane();
        let many: Vec<String> = (0..3000_u32)
            .flat_map(|n| {
                [format!("10.{}.{}.128/25", 16 + (n >> 8), n & 255), format!("2001:db8:{n:x}:8000::/49")]
            })
            .collect();
        let to =
            |target: Option<RouteTarget>| many.iter().map(|prefix| route(prefix, target)).collect::<Vec<_>>();
        let used = |plane: &mut dyn Plane, name: &str| {
            plane.resources().into_iter().find(|row| row.name == name).expect("a table").used
        };
        for part in to(Some(RouteTarget::Group(group(2)))).chunks(500) {
            assert_eq!(plane.route(part), []);
            assert!(arrives(&sockets[0], &sockets[1], "still there", PATIENCE));
        }
        assert_eq!((used(plane, "routes_ipv4"), used(plane, "routes_ipv6")), (3003, 3000));
        // A node for each route, the 768 buckets of the hash table, and entries.
        let lines = used(plane, "fib4_lines");
        assert!((3000 + 768..4300).contains(&lines), "{lines}");
        for address in ["10.20.7.129", "2001:db8:123:8000::5"] {
            let found = plane.route_lookup(VrfId::DEFAULT, address.parse().expect(address));
            assert_eq!(found.target, Some(RouteTarget::Group(group(2))), "{address}");
        }
        assert_eq!(plane.route(&to(None)), []);
        // The buckets stay, including further lines of a bucket.
        for name in ["fib4_lines", "fib6_lines"] {
            let lines = used(plane, name);
            assert!(lines < 1024 * 5 / 4, "{name}: {lines}");
        }
        assert!(arrives(&sockets[1], &sockets[0], "and back", PATIENCE));
    });
}

/// Tables of the largest kind, for which the programs call a function per look-up.
#[test]
fn large_tables() {
    in_switch(|| {
        let (_world, mut guarded, sockets) = World::routed();
        let plane = guarded.plane();
        // None of them contains a host's address.
        let nets = |n: u32| -> [IpNet; 2] {
            let four = Ipv4Net::new_assert(Ipv4Addr::from(0x2000_0080 + (n << 8)), 25);
            let six = 0x2002_u128 << 112 | u128::from(n) << 80 | 0x8000 << 64;
            [four.into(), Ipv6Net::new_assert(Ipv6Addr::from(six), 49).into()]
        };
        let to = Some(RouteTarget::Group(group(2)));
        let change = |prefix| RouteChange::Route(VrfId::DEFAULT, prefix, to);
        let all: Vec<_> = (0..262_144).flat_map(nets).map(change).collect();
        assert_eq!(plane.route(&all), []);
        for name in ["fib4_lines", "fib6_lines"] {
            let row = plane.resources().into_iter().find(|row| row.name == name).expect("a table");
            assert!(row.used > 262_144 && row.bytes >= 32 << 20, "{name}: {row:?}");
        }
        assert!(arrives(&sockets[0], &sockets[1], "there", PATIENCE));
        assert!(arrives(&sockets[1], &sockets[0], "and back", PATIENCE));
        assert_conserved(plane);
        for (low, want) in [(0x8000, "is in 2002:3:7:8000::/49"), (0x7fff, "has no route")] {
            let to = Ipv6Addr::new(0x2002, 3, 7, low, 0, 0, 0, 1).octets();
            let from = Ipv6Addr::new(0x2002, 0, 0, 0x8000, 0, 0, 0, 1).octets();
            let addresses = [&ROUTER.0[..], &[2, 0, 0, 0, 9, 9], &[0x86, 0xdd]].concat();
            let frame = [&addresses[..], &[0x60, 0, 0, 0, 0, 0, 59, 64], &from, &to, &[0; 6]].concat();
            let trace = plane.trace(port(1), &frame).expect("a trace");
            let printed = trace.stages.iter().any(|step| step.detail().contains(want));
            assert!(printed, "{want}: {trace:?}");
        }
    });
}
