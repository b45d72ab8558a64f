//! The part of the kernel interface over netlink that can be tested without rights: reading, and changes of netdevs
//! that do not exist.

use super::*;
use lanyard_netdev::{XdpAttached, XdpMode};
use lanyard_switch::facts::Knob;

/// A name that no netdev of a machine has.
const ABSENT: &str = "lanyardabsent";

fn linux() -> Linux {
    Linux::open().expect("netlink")
}

fn settings() -> LinkSettings {
    LinkSettings { up: false, promisc: false, mtu: 1500, mac: None, host: HostStack::default() }
}

fn pair() -> Pair {
    Pair { name: ABSENT.into(), mac: None, mtu: 1500, alias: "lanyard:test".into() }
}

#[test]
fn a_netlink_change_has_only_the_differences() {
    let (from, mac) = (settings(), MacAddr([2, 0, 0, 0, 0, 1]));
    assert_eq!(change(3, &from, &from), None);
    let host = LinkSettings { host: HostStack::default().silenced(), ..settings() };
    assert_eq!(change(3, &from, &host), None, "sysctls are no netlink change");
    let empty = LinkChange { ifindex: 3, ..LinkChange::default() };
    for (to, want) in [
        (LinkSettings { up: true, ..settings() }, LinkChange { up: Some(true), ..empty.clone() }),
        (LinkSettings { promisc: true, ..settings() }, LinkChange { promisc: Some(true), ..empty.clone() }),
        (LinkSettings { mtu: 9000, ..settings() }, LinkChange { mtu: Some(9000), ..empty.clone() }),
        (LinkSettings { mac: Some(mac), ..settings() }, LinkChange { mac: Some(mac), ..empty.clone() }),
    ] {
        assert_eq!(change(3, &from, &to), Some(want), "{to:?}");
    }
    let known = LinkSettings { mac: Some(mac), ..settings() };
    assert_eq!(change(3, &known, &from), None, "an address is replaced, not removed");
}

#[test]
fn the_loopback_device_is_a_fact() {
    let mut linux = linux();
    let facts = linux.facts().expect("listed");
    let lo = facts.get("lo").expect("loopback");
    assert!(lo.loopback && !lo.ethernet && lo.vrf.is_none() && lo.mac.is_none(), "{lo:?}");
    assert_eq!(Some(lo.ifindex), nix::net::if_::if_nametoindex("lo").ok());
    assert!(linux.has("lo") && !linux.has(ABSENT));
    assert!(facts.knobs.contains_key(&Knob::Redirects) && facts.namespaces.is_empty());
    assert_eq!((linux.vrfs().len(), linux.vrf_links().len(), linux.home("lo")), (0, 0, None));
    assert!(linux.vrf_event_fd().is_some() && linux.vrf_events().is_empty());
}

#[test]
fn sysctls_are_read_once_and_kept_in_the_facts() {
    let mut linux = linux();
    let mut facts = linux.facts().expect("listed");
    linux.learn_hosts(&["lo".to_owned(), ABSENT.to_owned()], &mut facts);
    let host = facts.get("lo").expect("loopback").host;
    assert_eq!(host, read_host("lo"));
    assert_eq!(linux.hosts.len(), 1, "what does not exist is not remembered");
    assert_eq!(linux.facts().expect("listed").get("lo").expect("loopback").host, host);
    assert_eq!(read_host(ABSENT).arp_timeout_s, 30, "the kernel's default");
}

#[test]
fn removing_an_absent_object_is_no_error() {
    let mut linux = linux();
    let net = "10.0.0.1/24".parse().expect("a net");
    let remove = Action::Address { name: ABSENT.into(), net, add: false };
    assert!(linux.act(&[remove, Action::DeletePair(pair())]).iter().all(std::result::Result::is_ok));
    let gone = sysctl::ipv4_conf(ABSENT, "forwarding").map(drop);
    assert!(gone.is_err() && gone_is_fine(gone).is_ok());
    let other = sysctl::get(&["ipv4", "conf"]).map(drop);
    assert_eq!(gone_is_fine(other).expect_err("a directory").errno(), Some(libc::EISDIR));
}

/// Each action of a run has a result of its own, whether the run is sent to the kernel together or one by
/// one.
#[test]
fn changes_of_a_netdev_that_does_not_exist() {
    let mut linux = linux();
    let net = "10.0.0.1/24".parse().expect("a net");
    let link =
        Action::Link { name: ABSENT.into(), from: settings(), to: LinkSettings { up: true, ..settings() } };
    let address = Action::Address { name: ABSENT.into(), net, add: true };
    let speed = Action::Speed {
        name: ABSENT.into(),
        from: LinkMode::Autonegotiation,
        to: LinkMode::Fixed { speed_mbps: 1000, full_duplex: true },
    };
    let into = Action::Move { name: ABSENT.into(), from: None, to: Some("lanyard-test-absent".into()) };
    let same = Action::Link { name: "lo".into(), from: settings(), to: settings() };
    for run in [vec![link.clone(), link.clone()], vec![link, address, speed, into]] {
        let results = linux.act(&run);
        assert_eq!(results.len(), run.len());
        for (action, result) in run.iter().zip(results) {
            let error = result.expect_err("there is none");
            assert!(error.is_gone(), "{action:?}: {error}");
            assert!(error.to_string().contains(ABSENT) || !matches!(action, Action::Link { .. }), "{error}");
        }
    }
    assert!(linux.act(&[same])[0].is_ok(), "nothing differs, nothing is asked of the kernel");
}

#[test]
fn a_vrf_without_a_namespace() {
    let linux = linux();
    let vrf = Some("lanyard-test-absent");
    let errors = [
        linux.links(vrf).map(drop),
        linux.link(vrf, "lo").map(drop),
        linux.addresses(vrf, None).map(drop),
        linux.routes(vrf, Family::V4, 254).map(drop),
        linux.neighbours(vrf, Family::V6).map(drop),
        linux.follow(vrf).map(drop),
        linux.watch_filter(vrf).map(drop),
        linux.enter(vrf, &mut || unreachable!("in no namespace")),
    ];
    for result in errors {
        let error = result.expect_err("no namespace");
        assert_eq!(error.to_string(), "VRF lanyard-test-absent has no namespace");
    }
}

#[test]
fn sysctls_that_do_not_differ_are_not_written() {
    let host = HostStack::default();
    assert!(write_host(ABSENT, host, host).is_ok());
    let error = write_host(ABSENT, host, HostStack { arp_ignore: 8, ..host }).expect_err("no netdev");
    assert!(error.is_gone(), "{error}");
    assert!(
        write_host(ABSENT, host, HostStack { ipv6_disabled: true, ..host }).is_ok(),
        "no IPv6 to silence"
    );
}

#[test]
fn a_refused_mtu_names_the_limit_and_the_way_out() {
    let bare = Link { name: "p1".into(), mtu: 1500, min_mtu: 68, max_mtu: 9216, ..Link::default() };
    let xdp = XdpAttached { mode: XdpMode::Driver, prog_id: 1 };
    let hooked = Link { xdp: Some(xdp), ..bare.clone() };
    for (link, mtu, want) in [
        (&bare, 9000, None),
        (&bare, 9300, Some("the driver of p1 (igb) takes 68 to 9216, not 9300")),
        (&bare, 60, Some("the driver of p1 (igb) takes 68 to 9216, not 60")),
        (
            &hooked,
            9000,
            Some(
                "the driver of p1 (igb) does not take 9000 while XDP runs there (it takes 1500, and 9216 without \
                 XDP): configure a smaller `mtu`, or `hook tc`",
            ),
        ),
    ] {
        assert_eq!(mtu_limit(link, "igb", mtu).as_deref(), want, "{mtu}");
    }
}
