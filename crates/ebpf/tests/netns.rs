//! The plane between real hosts: each test makes its own namespaces, netdevs and pins, and leaves nothing.

mod common;

use common::{Guarded, Host, PATIENCE, SILENCE, access_state, arrives, assert_conserved, fdb, in_switch, options, port};
use lanyard_netdev::Netdev;
use lanyard_pipeline::state::{Delivery, HookChoice};
use lanyard_plane::{Hook, Plane, PlaneError, PlaneEvent, PlaneState};
use lanyard_types::DropReason;

#[test]
fn hosts_of_a_vlan_talk_and_others_do_not_hear() {
    in_switch(|| {
        let (a, b, c) = (Host::new(1), Host::new(2), Host::new(3));
        let mut guarded = Guarded::open(options());
        let plane = guarded.plane();
        plane.apply(&access_state(&[(&a, 10), (&b, 10), (&c, 20)])).expect("applied");
        assert_eq!(plane.port_hook(port(1)), Hook::Tc);
        let (at_a, at_b, at_c) = (a.socket(), b.socket(), c.socket());
        assert!(arrives(&at_a, &at_b, "there", PATIENCE));
        assert!(arrives(&at_b, &at_a, "and back", PATIENCE));
        assert!(!arrives(&at_a, &at_c, "nowhere", SILENCE), "another VLAN heard it");
        assert_eq!(fdb(plane), ["0200.0000.0001 10 1 dynamic", "0200.0000.0002 10 2 dynamic"]);
        assert_eq!(plane.fdb_dynamic(), 2);
        assert_eq!(plane.port_counters(port(3)).tx.frames, 0, "frames of another VLAN left port 3");
        assert_conserved(plane);
        let mut learned = Vec::new();
        plane.poll_events(&mut |event| {
            if let PlaneEvent::FdbAdded(entry) = event {
                learned.push((entry.mac, entry.port));
            }
        });
        assert_eq!(learned, [(a.mac(), Some(port(1))), (b.mac(), Some(port(2)))]);
    });
}

#[test]
fn a_restart_loses_nothing() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        let state = access_state(&[(&a, 10), (&b, 10)]);
        guarded.plane().apply(&state).expect("applied");
        let (at_a, at_b) = (a.socket(), b.socket());
        assert!(arrives(&at_a, &at_b, "before", PATIENCE));
        let (entries, counters) = (fdb(guarded.plane()), guarded.plane().port_counters(port(1)));
        guarded.plane = None;
        assert!(arrives(&at_a, &at_b, "meanwhile", PATIENCE), "forwarding ended with the plane's owner");
        guarded.restart().expect("adopted");
        let plane = guarded.plane();
        assert_eq!(*plane.state(), state);
        assert_eq!(plane.capabilities().notes, Vec::<String>::new());
        assert_eq!(fdb(plane), entries);
        assert!(plane.port_counters(port(1)).forwarded > counters.forwarded);
        assert_eq!(plane.port_hook(port(1)), Hook::Tc);
        plane.apply(&state).expect("applied again");
        assert!(arrives(&at_b, &at_a, "after", PATIENCE));
        assert_conserved(plane);
    });
}

#[test]
fn cleared_counters_stay_cleared() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        guarded.plane().apply(&access_state(&[(&a, 10), (&b, 10)])).expect("applied");
        assert!(arrives(&a.socket(), &b.socket(), "counted", PATIENCE));
        guarded.plane().clear_counters(port(1));
        guarded.restart().expect("adopted");
        assert_eq!(guarded.plane().port_counters(port(1)).rx.frames, 0);
        assert!(guarded.plane().port_counters(port(2)).tx.frames > 0);
    });
}

#[test]
fn a_port_that_leaves_is_left_as_it_was() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        // The near end has an address of its own, which nobody reaches while it is a port.
        let near = std::process::Command::new("ip").args(["addr", "add", "10.0.0.101/24", "dev", "sw1"]).status();
        assert!(near.expect("ip").success());
        let at_near = std::net::UdpSocket::bind("10.0.0.101:7777").expect("a socket");
        let mut guarded = Guarded::open(options());
        let both = access_state(&[(&a, 10), (&b, 10)]);
        guarded.plane().apply(&both).expect("applied");
        let (at_a, at_b) = (a.socket(), b.socket());
        assert!(arrives(&at_a, &at_b, "switched", PATIENCE));
        assert!(!arrives(&at_a, &at_near, "not delivered", SILENCE));
        guarded.plane().apply(&access_state(&[(&b, 10)])).expect("one port left");
        assert!(arrives(&at_a, &at_near, "delivered", PATIENCE), "the hook is still there");
        assert_eq!(fdb(guarded.plane()), ["0200.0000.0002 10 2 dynamic"], "its entries went with it");
        assert_eq!(guarded.plane().port_hook(port(1)), Hook::None);
        // And again, with everything.
        guarded.plane().apply(&both).expect("back");
        assert!(arrives(&at_a, &at_b, "switched again", PATIENCE));
        let options = options_of(&guarded);
        guarded.plane().detach().expect("detached");
        assert!(arrives(&at_a, &at_near, "delivered again", PATIENCE));
        assert!(!options.0.exists(), "the state file is still there");
        assert!(!options.1.exists(), "the pins are still there");
    });
}

/// Where a plane keeps its state file and its pins.
fn options_of(guarded: &Guarded) -> (std::path::PathBuf, std::path::PathBuf) {
    let options = guarded.options();
    (options.state_dir.join("plane.json"), std::path::Path::new("/run/lanyard/bpf").join(&options.instance))
}

#[test]
fn a_netdev_that_is_not_there_changes_nothing() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        let state = access_state(&[(&a, 10), (&b, 10)]);
        guarded.plane().apply(&state).expect("applied");
        let mut next = state.clone();
        let mut ghost = next.ports[&port(1)].clone();
        (ghost.name, ghost.ifindex) = ("ghost".into(), 99_999);
        next.ports.insert(port(3), ghost);
        next.ports.remove(&port(1));
        let error = guarded.plane().apply(&next).expect_err("interface 99999");
        assert!(error.to_string().contains("ghost"), "{error}");
        assert_eq!(*guarded.plane().state(), state);
        assert!(arrives(&a.socket(), &b.socket(), "still here", PATIENCE));
    });
}

#[test]
fn vanishing_netdevs_come_back() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        let state = access_state(&[(&a, 10), (&b, 10)]);
        guarded.plane().apply(&state).expect("applied");
        Netdev::open().expect("netlink").delete(a.port.ifindex).expect("deleted");
        let mut without = state.clone();
        without.ports.get_mut(&port(1)).expect("port 1").ifindex = 0;
        guarded.plane().apply(&without).expect("a port without a netdev");
        assert_eq!(guarded.plane().port_hook(port(1)), Hook::None);
        let a = Host::new(1);
        guarded.plane().apply(&access_state(&[(&a, 10), (&b, 10)])).expect("back");
        assert!(arrives(&a.socket(), &b.socket(), "back again", PATIENCE));
        guarded.restart().expect("adopted");
        assert!(guarded.plane().capabilities().notes.is_empty());
    });
}

#[test]
fn delivery_is_chosen_by_what_is_there() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10), (&b, 10)]);
        for delivery in [Delivery::Auto, Delivery::Device, Delivery::Peer] {
            for host in [1, 2] {
                state.ports.get_mut(&port(host)).expect("a port").delivery = delivery;
            }
            guarded.plane().apply(&state).expect("applied");
            let near = Netdev::open().expect("netlink");
            let sent = || near.link_by_index(b.port.ifindex).expect("the near end").stats.tx.frames;
            assert!(arrives(&a.socket(), &b.socket(), "hello", PATIENCE), "{delivery:?}");
            assert!(arrives(&b.socket(), &a.socket(), "hello", PATIENCE), "{delivery:?}");
            let before = sent();
            assert!(arrives(&a.socket(), &b.socket(), "known", PATIENCE), "{delivery:?}");
            // A frame handed to the far end never passes this end's transmit path, so its counter tells.
            assert_eq!(sent() == before, delivery != Delivery::Device, "{delivery:?}");
        }
        // A port whose other end is in this namespace has no peer to deliver to.
        let netdev = Netdev::open().expect("netlink");
        let veth = lanyard_netdev::Veth { name: "here0", peer: "here1", ..Default::default() };
        netdev.create_veth(&veth).expect("a veth pair");
        let link = netdev.link("here0").expect("here0");
        let mut local = lanyard_pipeline::state::PortState::access("here0", link.ifindex, common::vlan(10));
        local.delivery = Delivery::Peer;
        state.ports.insert(port(3), local);
        let error = guarded.plane().apply(&state).expect_err("no peer");
        assert!(matches!(error, PlaneError::Unsupported { .. }) && error.to_string().contains("here0"), "{error}");
    });
}

#[test]
fn clsact_does_what_tcx_does() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(lanyard_ebpf::Options { tcx: false, ..options() });
        guarded.plane().apply(&access_state(&[(&a, 10), (&b, 10)])).expect("applied");
        let (at_a, at_b) = (a.socket(), b.socket());
        assert!(arrives(&at_a, &at_b, "through a filter", PATIENCE));
        guarded.plane = None;
        assert!(arrives(&at_b, &at_a, "without an owner", PATIENCE));
        guarded.restart().expect("adopted");
        assert!(arrives(&at_a, &at_b, "adopted", PATIENCE));
        guarded.plane().detach().expect("detached");
        let left = Netdev::open().expect("netlink").qdiscs().expect("qdiscs");
        assert!(!left.iter().any(|(_, kind)| kind == "clsact"), "{left:?}");
    });
}

#[test]
fn a_port_that_is_disabled_is_silent() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10), (&b, 10)]);
        state.ports.get_mut(&port(1)).expect("port 1").enabled = false;
        let plane = guarded.plane();
        plane.apply(&state).expect("applied");
        assert!(!arrives(&a.socket(), &b.socket(), "shut", SILENCE));
        assert!(plane.port_counters(port(1)).dropped[DropReason::PortDown.index()] > 0);
        assert!(fdb(plane).iter().all(|line| !line.starts_with("0200.0000.0001")));
        assert_conserved(plane);
        plane.apply(&access_state(&[(&a, 10), (&b, 10)])).expect("applied");
        assert!(arrives(&a.socket(), &b.socket(), "open", PATIENCE));
        plane.apply(&PlaneState { ports: Default::default(), ..state }).expect("no ports");
        assert!(plane.fdb_dynamic() == 0);
    });
}

#[test]
fn xdp_on_veth_ports() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        for host in [&a, &b] {
            // The far end must run NAPI to take frames from XDP, and nothing fills in a checksum for them on the way.
            host.set_feature("rx-gro", true);
            host.set_feature("tx-checksum-ip-generic", false);
        }
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10), (&b, 10)]);
        for host in [1, 2] {
            state.ports.get_mut(&port(host)).expect("a port").hook = HookChoice::Xdp;
        }
        match guarded.plane().apply(&state) {
            Err(error @ PlaneError::Unsupported { .. }) => return println!("skipped: {error}"),
            done => done.expect("applied"),
        }
        assert_eq!(guarded.plane().port_hook(port(1)), Hook::Xdp);
        let (at_a, at_b) = (a.socket(), b.socket());
        for round in 0..20 {
            assert!(arrives(&at_a, &at_b, &format!("there {round}"), PATIENCE));
            assert!(arrives(&at_b, &at_a, &format!("back {round}"), PATIENCE));
        }
        assert_conserved(guarded.plane());
        guarded.restart().expect("adopted");
        assert_eq!(guarded.plane().port_hook(port(2)), Hook::Xdp);
        assert!(arrives(&at_a, &at_b, "adopted", PATIENCE));
        state.ports.get_mut(&port(1)).expect("port 1").hook = HookChoice::Tc;
        guarded.plane().apply(&state).expect("back to TC");
        assert_eq!(guarded.plane().port_hook(port(1)), Hook::Tc);
        assert!(arrives(&at_b, &at_a, "by TC", PATIENCE));
        let error = {
            let netdev = Netdev::open().expect("netlink");
            netdev.create("br0", "bridge").expect("a bridge");
            let link = netdev.link("br0").expect("br0");
            let mut bridge = lanyard_pipeline::state::PortState::access("br0", link.ifindex, common::vlan(10));
            bridge.hook = HookChoice::Xdp;
            state.ports.insert(port(3), bridge);
            guarded.plane().apply(&state).expect_err("a bridge has no native XDP")
        };
        assert!(matches!(error, PlaneError::Unsupported { .. }) && error.to_string().contains("br0"), "{error}");
    });
}
