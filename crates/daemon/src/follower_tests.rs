//! The part of each message that a follower takes in, tested in memory.

use super::*;
use lanyard_netdev::follow::Forwarding;
use lanyard_netdev::{Address, Link};

const ID: VrfId = VrfId::DEFAULT;

/// The macvlan device of a virtual router below the device with index 1.
pub(crate) fn macvlan(up: bool) -> Link {
    Link {
        ifindex: 7,
        name: "vr1.7".into(),
        kind: Some("macvlan".into()),
        peer_ifindex: Some(1),
        mac: MacAddr([0, 0, 0x5e, 0, 1, 7]),
        admin_up: up,
        carrier: up,
        ..Link::default()
    }
}

pub(crate) fn address(ifindex: u32, net: &str) -> Address {
    Address {
        ifindex,
        net: net.parse().expect("a net"),
        permanent: true,
        secondary: false,
        tentative: false,
        dad_failed: false,
        deprecated: false,
        scope: 0,
    }
}

pub(crate) fn neighbour_message(last: u8, state: NeighbourState) -> lanyard_netdev::Neighbour {
    lanyard_netdev::Neighbour {
        ifindex: 1,
        addr: [10, 0, 0, last].into(),
        mac: Some(MacAddr([2, 0, 0, 0, 0, last])),
        state,
        router: false,
        proxy: false,
    }
}

fn received(seen: &mut Seen, received: Notification<'_>, listed: bool) -> Routing {
    let mut mirror = Routing::default();
    take_in(&mut mirror, ID, seen, received, listed);
    mirror
}

#[test]
fn a_virtual_router_is_one_while_it_has_an_address() {
    let mut seen = Seen::default();
    let macs =
        |seen: &Seen| seen.router(ID, &PacketFilter::default()).virtual_macs.get(&1).map_or(0, BTreeSet::len);
    received(&mut seen, Notification::Link(Box::new(macvlan(true)), false), false);
    assert_eq!(macs(&seen), 0, "the backup has none");
    let own = link_local(macvlan(true).mac);
    assert_eq!(own, "fe80::200:5eff:fe00:107".parse::<IpAddr>().expect("an address"));
    received(&mut seen, Notification::Address(address(7, &format!("{own}/64")), false), false);
    assert_eq!(macs(&seen), 0, "the one that the kernel gives it does not count");
    received(&mut seen, Notification::Address(address(7, "10.0.0.254/32"), false), false);
    assert_eq!(macs(&seen), 1);
    received(&mut seen, Notification::Link(Box::new(macvlan(false)), false), false);
    assert_eq!(macs(&seen), 0, "it is down");
    received(&mut seen, Notification::Link(Box::new(macvlan(true)), false), false);
    assert_eq!(macs(&seen), 1);
    let mirror = received(&mut seen, Notification::Address(address(7, "10.0.0.254/32"), true), false);
    assert_eq!(macs(&seen), 0);
    assert!(mirror.audit_wanted(ID), "routes with this source address go without an event");
    // A macvlan of another namespace, and another kind of device.
    for other in [Link { peer_netnsid: Some(1), ..macvlan(true) }, Link { kind: None, ..macvlan(true) }] {
        let mut seen = Seen::default();
        received(&mut seen, Notification::Link(Box::new(other), false), false);
        assert!(seen.children.is_empty());
    }
}

#[test]
fn a_device_that_goes_leaves_nothing() {
    let mut seen = Seen::default();
    let on = Forwarding { ipv6: false, ifindex: Some(7), on: true };
    let all = Forwarding { ifindex: None, ..on };
    for message in [
        Notification::Link(Box::new(macvlan(true)), false),
        Notification::Address(address(7, "10.0.0.254/32"), false),
        Notification::Forwarding(on),
        Notification::Forwarding(all),
    ] {
        received(&mut seen, message, false);
    }
    assert_eq!((seen.children.len(), seen.addresses.len(), seen.forwarding.len()), (1, 1, 2));
    received(&mut seen, Notification::Link(Box::new(macvlan(true)), true), false);
    assert!(seen.children.is_empty() && seen.addresses.is_empty());
    assert_eq!(seen.forwarding.keys().collect::<Vec<_>>(), [&(None, false)]);
}

#[test]
fn unreadable_messages_and_overruns_request_an_audit() {
    for message in [Notification::Unreadable, Notification::Overrun] {
        let mirror = received(&mut Seen::default(), message, false);
        assert!(mirror.audit_wanted(ID));
    }
    let proxy = lanyard_netdev::Neighbour { proxy: true, ..neighbour_message(9, NeighbourState::Permanent) };
    assert!(!received(&mut Seen::default(), Notification::Neighbour(proxy, false), false).audit_wanted(ID));
}

#[test]
fn a_neighbour_counts_with_a_usable_address_only() {
    let known = |state, mac: [u8; 6]| {
        neighbour(&lanyard_netdev::Neighbour { mac: Some(MacAddr(mac)), ..neighbour_message(9, state) })
    };
    assert!(known(NeighbourState::Reachable, [2, 0, 0, 0, 0, 9]).mac.is_some());
    assert!(known(NeighbourState::Incomplete, [2, 0, 0, 0, 0, 9]).mac.is_none());
    assert!(known(NeighbourState::Permanent, [0; 6]).mac.is_none());
    assert!(known(NeighbourState::Permanent, [1, 0, 0x5e, 0, 0, 1]).mac.is_none());
    assert!(known(NeighbourState::Failed, [2, 0, 0, 0, 0, 9]).failed);
    assert!(known(NeighbourState::Stale, [2, 0, 0, 0, 0, 9]).stale);
}
