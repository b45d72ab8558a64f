//! Tests the crate against the kernel, each test in a network namespace of its own that ends with its thread.
//!
//! Without the right to make namespaces a test prints `skipped:` and the reason; `unshare -Urn` gives that
//! right.

#![allow(clippy::unwrap_used, clippy::panic)]

mod filter;
mod namespaces;

use ipnet::IpNet;
use lanyard_netdev::{
    AddressFlags, Duplex, Error, Event, Events, Link, LinkChange, NeighbourState, Netdev, NextHop, Route,
    RouteKind, TABLE_MAIN, Veth, XdpFeatures, netns, sysctl,
};
use lanyard_types::{Family, MacAddr};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

/// Runs `test` in a namespace of its own, or prints why this user may not make one.
fn in_namespace(test: impl FnOnce(&Netdev) + Send) {
    match netns::run_in_new(|| test(&Netdev::open().unwrap())) {
        Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::StorageFull) => {
            println!("skipped: no network namespace: {e}");
        }
        outcome => outcome.unwrap(),
    }
}

/// Creates the veth pair p0, p1 with the MAC addresses A and B.
fn pair(netdev: &Netdev) -> (u32, u32) {
    let veth = Veth {
        name: "p0",
        peer: "p1",
        mac: Some(MAC_A),
        peer_mac: Some(MAC_B),
        mtu: Some(1400),
        ..Veth::default()
    };
    netdev.create_veth(&veth).unwrap();
    (netdev.link("p0").unwrap().ifindex, netdev.link("p1").unwrap().ifindex)
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Reads events until `done` returns true for one.
fn wait_for(events: &mut Events, what: &str, mut done: impl FnMut(&Event) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let batch = events.read();
        if batch.iter().any(&mut done) {
            return;
        }
        assert!(Instant::now() < deadline, "no event: {what}");
        if batch.is_empty() {
            let mut fds = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(1000u16)).unwrap();
        }
    }
}

/// Checks that the kernel refused, with this kind of error, and that the message contains `text`.
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: fn(&Error) -> bool, text: &str) {
    let error = outcome.unwrap_err();
    assert!(kind(&error), "{error}: {:?}", error.errno());
    assert!(error.to_string().contains(text), "{error:?} says {error}, not {text}");
}

#[test]
fn link_round_trip() {
    in_namespace(|netdev| {
        let mut events = Events::open().unwrap();
        let (p0, p1) = pair(netdev);
        let names: Vec<_> = netdev.links().unwrap().into_iter().map(|l| l.name).collect();
        assert_eq!(names, ["lo", "p1", "p0"]);
        let link = netdev.link("p0").unwrap();
        assert_eq!(link, netdev.link_by_index(p0).unwrap());
        assert_eq!((link.mac, link.mtu, link.peer_ifindex), (MAC_A, 1400, Some(p1)));
        assert_eq!((link.kind.as_deref(), link.peer_netnsid, link.master), (Some("veth"), None, None));
        assert!(link.ethernet && !link.loopback && !link.admin_up && !link.link_up && !link.promiscuous);
        assert_eq!((link.min_mtu, link.max_mtu, link.xdp), (68, 65535, None));
        assert!(link.rx_queues >= 1 && link.tx_queues >= 1 && link.gso_max_size >= 65536);
        assert_eq!(netdev.link("p1").unwrap().mac, MAC_B);

        netdev.set_up(p0, true).unwrap();
        let half = netdev.link("p0").unwrap();
        assert!(half.admin_up && !half.link_up, "a veth without its other end has no carrier");
        netdev.set_up(p1, true).unwrap();
        wait_for(&mut events, "p0 up", |e| matches!(e, Event::Link(l) if l.ifindex == p0 && l.link_up));
        assert_eq!(netdev.link("p0").unwrap().qdisc, "noqueue");

        netdev.set_mtu(p0, 9000).unwrap();
        netdev.set_mac(p0, MacAddr([2, 0, 0, 0, 0, 0xc])).unwrap();
        netdev.set_alias(p0, "to host a").unwrap();
        netdev.set_promisc(p0, true).unwrap();
        let link = netdev.link("p0").unwrap();
        assert_eq!((link.mtu, link.mac.0[5], link.promiscuous), (9000, 0xc, true));
        assert_eq!((link.alias.as_deref(), link.promiscuity), (Some("to host a"), 1));
        netdev.set_promisc(p0, false).unwrap();
        netdev.set_alias(p0, "").unwrap();
        netdev.set_up(p0, false).unwrap();
        netdev.rename(p0, "eth0.10").unwrap();
        let link = netdev.link_by_index(p0).unwrap();
        assert_eq!((link.name.as_str(), link.alias.as_deref()), ("eth0.10", None));
        assert!(!link.admin_up && !link.promiscuous);

        netdev.delete(p1).unwrap();
        let mut gone = Vec::new();
        wait_for(&mut events, "both ends gone", |e| {
            if let Event::LinkGone { ifindex, name } = e {
                gone.push((*ifindex, name.clone()));
            }
            gone.len() == 2
        });
        gone.sort();
        assert_eq!(gone, [(p1, "p1".to_owned()), (p0, "eth0.10".to_owned())]);
    });
}

#[test]
fn promiscuous_mode_outlives_the_socket() {
    in_namespace(|netdev| {
        let (p0, _) = pair(netdev);
        Netdev::open().unwrap().set_promisc(p0, true).unwrap();
        assert!(netdev.link("p0").unwrap().promiscuous);
    });
}

#[test]
fn masters() {
    in_namespace(|netdev| {
        let mut events = Events::open().unwrap();
        let (p0, _) = pair(netdev);
        netdev.create("br0", "bridge").unwrap();
        let bridge = netdev.link("br0").unwrap();
        assert_eq!(bridge.kind.as_deref(), Some("bridge"));
        netdev.set_master(p0, Some(bridge.ifindex)).unwrap();
        let link = netdev.link("p0").unwrap();
        assert_eq!((link.master, link.master_kind.as_deref()), (Some(bridge.ifindex), Some("bridge")));
        netdev.set_master(p0, None).unwrap();
        assert_eq!(netdev.link("p0").unwrap().master, None);
        // When a device leaves the bridge, the kernel sends an RTM_DELLINK of family AF_BRIDGE, which must
        // not count as a removed device.
        netdev.delete(bridge.ifindex).unwrap();
        wait_for(&mut events, "br0 gone", |e| match e {
            Event::LinkGone { name, .. } => {
                assert_eq!(name, "br0");
                true
            }
            _ => false,
        });
        refused(netdev.create("x0", "no-such-kind"), Error::is_unsupported, "making the no-such-kind x0");
    });
}

#[test]
fn batches() {
    in_namespace(|netdev| {
        let names: Vec<_> = (1..=48).map(|n| (format!("sw1p{n}"), format!("h{n}"))).collect();
        let mut veths: Vec<_> =
            names.iter().map(|(name, peer)| Veth { name, peer, ..Veth::default() }).collect();
        veths.insert(7, Veth { name: "a/b", peer: "c", ..Veth::default() });
        veths.insert(40, Veth { name: "sw1p1", peer: "twice", ..Veth::default() });
        for (index, made) in netdev.create_veths(&veths).into_iter().enumerate() {
            match index {
                7 => refused(made, |e| e.errno().is_none(), "naming a device \"a/b\""),
                40 => refused(made, Error::exists, "making the veth pair sw1p1, twice"),
                _ => made.unwrap(),
            }
        }
        let up = |ifindex| LinkChange { up: Some(true), promisc: Some(true), ..LinkChange::of(ifindex) };
        let mut changes: Vec<_> =
            netdev.links().unwrap().iter().filter(|l| !l.loopback).map(|l| up(l.ifindex)).collect();
        changes.insert(50, up(999_999));
        let results = netdev.change(&changes);
        assert_eq!(results.len(), 97);
        for (index, result) in results.into_iter().enumerate() {
            match index {
                50 => refused(result, Error::is_gone, "setting promiscuous mode of interface 999999"),
                _ => result.unwrap(),
            }
        }
        let links = netdev.links().unwrap();
        assert!(links.iter().filter(|l| !l.loopback).all(|l| l.admin_up && l.promiscuous));
        assert!(netdev.change(&[]).is_empty());
    });
}

#[test]
fn refusals_name_device_and_reason() {
    in_namespace(|netdev| {
        let (p0, p1) = pair(netdev);
        let any = |_: &Error| true;
        refused(netdev.set_mtu(p0, 70_000), any, "setting the MTU of p0: mtu greater than device maximum (");
        refused(netdev.set_mac(p0, MacAddr::BROADCAST), any, "setting the MAC address of p0: ");
        refused(netdev.rename(p0, "p1"), Error::exists, "renaming p0: ");
        for name in ["", "sixteen-bytes-xx", "a b", "eth%d", "..", "a/b", "a\0b"] {
            refused(netdev.rename(p0, name), |e| e.errno().is_none(), "a name is 1 to 15 bytes");
            refused(netdev.link(name), |e| e.errno().is_none(), "a name is 1 to 15 bytes");
        }
        refused(netdev.set_alias(p0, &"x".repeat(256)), any, "an alias is up to 255 bytes");
        refused(netdev.delete(0), Error::is_gone, "deleting interface 0");

        // The device is removed between a listing and its use.
        let stale: Link = netdev.links().unwrap().into_iter().find(|l| l.name == "p0").unwrap();
        Netdev::open().unwrap().delete(p1).unwrap();
        let gone = Error::is_gone;
        let label = format!("interface {p0}");
        refused(netdev.link("p0"), gone, "looking up p0: ");
        refused(netdev.link_by_index(stale.ifindex), gone, &label);
        refused(netdev.set_up(stale.ifindex, true), gone, &format!("bringing up {label}: "));
        refused(netdev.set_mtu(stale.ifindex, 1500), gone, &label);
        refused(netdev.set_addrgen_none(stale.ifindex), gone, &label);
        refused(netdev.delete(stale.ifindex), gone, &label);
        refused(netdev.add_address(stale.ifindex, net("10.0.0.1/24"), AddressFlags::default()), gone, &label);
        refused(netdev.set_neighbour(stale.ifindex, ip("10.0.0.9"), MAC_B), gone, &label);
        refused(netdev.xdp_features(stale.ifindex), gone, &label);
        refused(netdev.settings("p0"), gone, "link settings of p0");
        refused(netdev.features("p0"), gone, "offloads of p0");
        refused(netdev.driver("p0"), gone, "driver of p0");
        refused(sysctl::ipv6_conf("p0", "accept_ra"), gone, "ipv6.conf.p0.accept_ra");
    });
}

#[test]
fn addresses() {
    in_namespace(|netdev| {
        let mut events = Events::open().unwrap();
        let (p0, p1) = pair(netdev);
        netdev.set_up(p0, true).unwrap();
        netdev.set_up(p1, true).unwrap();
        let quick = AddressFlags { no_dad: true, ..AddressFlags::default() };
        for text in ["192.0.2.1/24", "192.0.2.2/24", "198.51.100.0/31", "2001:db8::1/64"] {
            netdev.add_address(p0, net(text), quick).unwrap();
            let listed = netdev.addresses(Some(p0)).unwrap();
            let address = listed.iter().find(|a| a.net == net(text)).unwrap();
            assert!(address.permanent && !address.tentative && address.scope == 0, "{address:?}");
            assert_eq!(address.secondary, text == "192.0.2.2/24");
            wait_for(&mut events, text, |e| matches!(e, Event::Address(a) if a == address));
            let again = netdev.add_address(p0, net(text), quick);
            refused(again, Error::exists, &format!("adding {text} to p0"));
        }
        assert!(netdev.addresses(Some(p1)).unwrap().iter().all(|a| a.scope == 253), "link-local alone");
        let bare = AddressFlags { no_prefix_route: true, no_dad: true };
        netdev.add_address(p1, net("203.0.113.1/24"), bare).unwrap();
        let routes = netdev.routes(Family::V4, TABLE_MAIN).unwrap();
        let dests: Vec<_> = routes.iter().map(|r| r.dest).collect();
        assert!(dests.contains(&net("192.0.2.0/24")) && !dests.contains(&net("203.0.113.0/24")), "{dests:?}");

        netdev.del_address(p0, net("2001:db8::1/64")).unwrap();
        wait_for(
            &mut events,
            "2001:db8::1 gone",
            |e| matches!(e, Event::AddressGone(a) if a.net == net("2001:db8::1/64")),
        );
        refused(netdev.del_address(p0, net("2001:db8::1/64")), Error::is_gone, "from p0");
    });
}

#[test]
fn no_link_local_address() {
    in_namespace(|netdev| {
        let (p0, p1) = pair(netdev);
        // Without accept_dad the kernel announces an address as soon as the device is ready for one.
        let mut events = Events::open().unwrap();
        sysctl::set_ipv6_conf("p0", "accept_dad", "0").unwrap();
        sysctl::set_ipv6_conf("p1", "accept_dad", "0").unwrap();
        let quiet = LinkChange { addrgen_none: Some(true), up: Some(true), ..LinkChange::of(p0) };
        let loud = LinkChange { up: Some(true), ..LinkChange::of(p1) };
        for result in netdev.change(&[quiet, loud]) {
            result.unwrap();
        }
        let (mut ready, mut announced) = (false, false);
        wait_for(&mut events, "p0 ready, an address of p1", |e| {
            ready |= matches!(e, Event::Link(l) if l.ifindex == p0 && l.link_up);
            announced |= matches!(e, Event::Address(a) if a.ifindex == p1);
            ready && announced
        });
        assert_eq!(netdev.addresses(Some(p0)).unwrap(), []);
        assert_eq!(sysctl::ipv6_conf("p0", "addr_gen_mode").unwrap(), "1");
    });
}

#[test]
fn routes() {
    in_namespace(|netdev| {
        let mut events = Events::open().unwrap();
        let (p0, p1) = pair(netdev);
        let quick = AddressFlags { no_dad: true, ..AddressFlags::default() };
        for (ifindex, v4, v6) in
            [(p0, "10.0.0.1/24", "2001:db8:a::1/64"), (p1, "10.0.1.1/24", "2001:db8:b::1/64")]
        {
            netdev.set_up(ifindex, true).unwrap();
            netdev.add_address(ifindex, net(v4), quick).unwrap();
            netdev.add_address(ifindex, net(v6), quick).unwrap();
        }
        let (via_a, via_b) = (Some(ip("10.0.0.2")), Some(ip("10.0.1.2")));
        let (via6_a, via6_b) = (Some(ip("2001:db8:a::2")), Some(ip("2001:db8:b::2")));
        let weighted = |via, weight| NextHop { via, weight, ..NextHop::default() };
        let cases = [
            Route::new(net("0.0.0.0/0")).via(via_a, None),
            Route { metric: 20, ..Route::new(net("172.16.0.0/12")).via(via_a, Some(p0)) },
            Route::new(net("172.31.0.0/16")).via(None, Some(p1)),
            Route {
                next_hops: vec![weighted(via_a, 1), weighted(via_b, 256)],
                ..Route::new(net("192.0.2.0/24"))
            },
            Route { kind: RouteKind::Blackhole, ..Route::new(net("198.51.100.0/24")) },
            Route { source: Some(ip("10.0.1.1")), ..Route::new(net("203.0.113.7/32")).via(via_a, Some(p0)) },
            Route::new(net("203.0.113.8/32")).via(via6_a, Some(p0)),
            Route { table: 1000, ..Route::new(net("10.99.0.0/16")).via(via_a, None) },
            Route { protocol: 186, metric: 5, ..Route::new(net("::/0")).via(via6_a, None) },
            Route {
                metric: 7,
                next_hops: vec![weighted(via6_a, 1), weighted(via6_b, 3)],
                ..Route::new(net("2001:db8:9::/48"))
            },
            Route { metric: 9, kind: RouteKind::Unreachable, ..Route::new(net("2001:db8:8::/48")) },
        ];
        for wanted in &cases {
            let family = Family::of(wanted.dest.addr());
            let listed = || {
                let routes = netdev.routes(family, wanted.table).unwrap();
                routes
                    .into_iter()
                    .filter(|r| r.dest == wanted.dest && r.protocol == wanted.protocol)
                    .collect::<Vec<_>>()
            };
            netdev.add_route(wanted).unwrap();
            refused(netdev.add_route(wanted), Error::exists, &format!("adding the route to {}", wanted.dest));
            netdev.replace_route(wanted).unwrap();
            let found = listed();
            assert_eq!(found.len(), 1, "{found:?}");
            let found = &found[0];
            assert_eq!((found.table, found.kind, found.metric), (wanted.table, wanted.kind, wanted.metric));
            assert_eq!(found.source, wanted.source);
            // For IPv6 the kernel gives a route without next hop the loopback device.
            if wanted.kind == RouteKind::Unicast {
                let hops = |r: &Route| r.next_hops.iter().map(|h| (h.via, h.weight)).collect::<Vec<_>>();
                assert_eq!(hops(found), hops(wanted));
                assert!(found.next_hops.iter().all(|h| h.ifindex == Some(p0) || h.ifindex == Some(p1)));
            }
            wait_for(&mut events, "route", |e| matches!(e, Event::Route(r) if r.dest == wanted.dest));
            netdev.del_route(wanted).unwrap();
            assert_eq!(listed(), []);
            refused(
                netdev.del_route(wanted),
                Error::is_gone,
                &format!("removing the route to {}", wanted.dest),
            );
            wait_for(
                &mut events,
                "route gone",
                |e| matches!(e, Event::RouteGone(r) if r.dest == wanted.dest),
            );
        }
        let lost = Route::new(net("192.0.2.0/24")).via(Some(ip("10.7.7.7")), None);
        refused(netdev.add_route(&lost), |e| !e.exists(), "192.0.2.0/24: Nexthop has invalid gateway");
    });
}

#[test]
fn a_replaced_route_is_one_route() {
    in_namespace(|netdev| {
        let (p0, p1) = pair(netdev);
        netdev.set_up(p0, true).unwrap();
        netdev.set_up(p1, true).unwrap();
        let dest = net("192.0.2.0/24");
        netdev.add_route(&Route::new(dest).via(None, Some(p0))).unwrap();
        netdev.replace_route(&Route::new(dest).via(None, Some(p1))).unwrap();
        let routes = netdev.routes(Family::V4, TABLE_MAIN).unwrap();
        assert_eq!(routes.len(), 1);
        assert_eq!(routes[0].next_hops[0].ifindex, Some(p1));
        // A route of another protocol to the same destination is not removed.
        let theirs = Route { protocol: 4, ..routes[0].clone() };
        refused(netdev.del_route(&theirs), Error::is_gone, "192.0.2.0/24");
    });
}

#[test]
fn neighbours() {
    in_namespace(|netdev| {
        let mut events = Events::open().unwrap();
        let (p0, p1) = pair(netdev);
        netdev.set_up(p0, true).unwrap();
        netdev.set_up(p1, true).unwrap();
        for text in ["10.0.0.9", "2001:db8::9"] {
            let addr = ip(text);
            let listed = || {
                let all = netdev.neighbours(Family::of(addr)).unwrap();
                all.into_iter().filter(|n| n.addr == addr).collect::<Vec<_>>()
            };
            netdev.set_neighbour(p0, addr, MAC_A).unwrap();
            netdev.set_neighbour(p0, addr, MAC_B).unwrap();
            let found = listed();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].ifindex, found[0].mac), (p0, Some(MAC_B)));
            assert_eq!((found[0].state, found[0].state.name()), (NeighbourState::Permanent, "permanent"));
            assert!(found[0].state.is_valid() && !found[0].proxy);
            wait_for(&mut events, text, |e| matches!(e, Event::Neighbour(n) if n == &found[0]));
            netdev.del_neighbour(p0, addr).unwrap();
            assert!(listed().iter().all(|n| !n.state.is_valid()), "{:?}", listed());
        }
        refused(netdev.del_neighbour(p0, ip("10.0.0.77")), Error::is_gone, "neighbour 10.0.0.77 of p0");
    });
}

#[test]
fn an_overrun_of_events_is_reported() {
    in_namespace(|netdev| {
        let mut events = Events::open().unwrap();
        let (p0, _) = pair(netdev);
        // Cause more events than the receive buffer can hold, whatever size the kernel allows for it.
        let flip = |n: u32| LinkChange { mtu: Some(1300 + n % 2), ..LinkChange::of(p0) };
        let changes: Vec<_> = (0..6000).map(flip).collect();
        let mut overrun = false;
        for burst in 1..=32 {
            for _ in 0..burst {
                assert!(netdev.change(&changes).iter().all(Result::is_ok));
            }
            loop {
                let batch = events.read();
                overrun |= batch.contains(&Event::Overrun);
                if batch.is_empty() {
                    break;
                }
            }
            if overrun {
                break;
            }
        }
        assert!(overrun);
        // The subscription continues after the loss.
        netdev.set_mtu(p0, 1234).unwrap();
        wait_for(&mut events, "mtu 1234", |e| matches!(e, Event::Link(l) if l.mtu == 1234));
    });
}

#[test]
fn ethtool() {
    in_namespace(|netdev| {
        let (p0, p1) = pair(netdev);
        netdev.set_up(p0, true).unwrap();
        netdev.set_up(p1, true).unwrap();
        assert_eq!(netdev.driver("p0").unwrap(), "veth");
        let settings = netdev.settings("p0").unwrap();
        assert_eq!((settings.speed_mbps, settings.duplex), (Some(10_000), Some(Duplex::Full)));
        assert_eq!((settings.port.as_deref(), settings.autoneg), (Some("tp"), false));
        assert_eq!(netdev.settings("lo").unwrap(), lanyard_netdev::Settings::default());
        refused(
            netdev.set_speed("p0", 100, Duplex::Half),
            Error::is_unsupported,
            "p0 to 100 Mbit/s, half duplex",
        );
        refused(netdev.set_autoneg("p0"), Error::is_unsupported, "autonegotiation of p0");
        refused(netdev.driver("lo"), Error::is_unsupported, "driver of lo");

        let features = netdev.features("p0").unwrap();
        let find = |name: &str| features.iter().find(|f| f.name == name).unwrap();
        assert!(find("rx-vlan-hw-parse").on && !find("rx-gro").on && find("rx-gro").changeable);
        assert!(!find("highdma").changeable || find("highdma").on);
        // With GRO on, one end of a veth pair runs NAPI, so the other end can transmit redirected frames.
        assert!(!netdev.xdp_features(p1).unwrap().has(XdpFeatures::NDO_XMIT));
        netdev.set_features("p0", &[("rx-gro", true), ("rx-vlan-hw-parse", false)]).unwrap();
        assert_eq!(netdev.feature("p0", "rx-gro").unwrap(), Some(true));
        assert_eq!(netdev.feature("p0", "rx-vlan-hw-parse").unwrap(), Some(false));
        assert_eq!(netdev.feature("p0", "no-such-thing").unwrap(), None);
        let xdp = netdev.xdp_features(p1).unwrap();
        assert!(xdp.has(XdpFeatures::BASIC) && xdp.has(XdpFeatures::NDO_XMIT), "{xdp:?}");
        let any = |_: &Error| true;
        refused(
            netdev.set_features("p0", &[("no-such-thing", true)]),
            any,
            "setting no-such-thing on of p0: ",
        );
        let fixed = features.iter().find(|f| !f.changeable).unwrap();
        let name = fixed.name.as_str();
        refused(netdev.set_features("p0", &[(name, !fixed.on)]), Error::is_unsupported, name);
    });
}

#[test]
fn sysctls() {
    in_namespace(|netdev| {
        let (p0, _) = pair(netdev);
        netdev.rename(p0, "p0.10").unwrap();
        assert!(!sysctl::disable_ipv6("p0.10").unwrap());
        if let Err(e) = sysctl::set_disable_ipv6("p0.10", true) {
            assert!(e.is_permission() || e.errno() == Some(30), "{e}");
            return println!("skipped: sysctls cannot be written: {e}");
        }
        assert!(sysctl::disable_ipv6("p0.10").unwrap());
        for key in ["accept_ra", "addr_gen_mode"] {
            sysctl::set_ipv6_conf("p0.10", key, "0").unwrap();
            assert_eq!(sysctl::ipv6_conf("p0.10", key).unwrap(), "0");
        }
        sysctl::set_ipv4_conf("p0.10", "proxy_arp", "1").unwrap();
        assert_eq!(sysctl::ipv4_conf("p0.10", "proxy_arp").unwrap(), "1");
        for on in [true, false] {
            sysctl::set_ipv4_forwarding(on).unwrap();
            sysctl::set_ipv6_forwarding(on).unwrap();
            assert_eq!((sysctl::ipv4_forwarding().unwrap(), sysctl::ipv6_forwarding().unwrap()), (on, on));
        }
        for name in ["../all", "..", ".", "", "a/b"] {
            refused(sysctl::ipv4_conf(name, "proxy_arp"), Error::is_gone, "finding the sysctls of");
            refused(
                sysctl::set_ipv4_conf("p0.10", name, "1"),
                |e| e.errno().is_none(),
                "is no sysctl's name",
            );
        }
        refused(sysctl::ipv4_conf("absent", "proxy_arp"), Error::is_gone, "net.ipv4.conf.absent.proxy_arp");
    });
}
