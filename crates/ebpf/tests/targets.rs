//! Ports whose netdev is deleted while no daemon removes them from the tables: the treatment of frames for them by XDP.

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod common;

use common::{
    Guarded, Host, PATIENCE, SILENCE, access_state, assert_conserved, in_switch, mac, options, port, vlan,
};
use lanyard_netdev::{Netdev, PacketSocket};
use lanyard_pipeline::state::{HookChoice, PortState};
use lanyard_plane::{Plane, PlaneError};
use lanyard_types::MacAddr;
use lanyard_wire::{Builder, Tag};
use std::time::{Duration, Instant};

/// A host's network interface, to send and to see frames at.
fn interface(host: &Host) -> PacketSocket {
    host.enter(|| {
        let link = Netdev::open().expect("netlink").link("eth0").expect("eth0");
        PacketSocket::open(link.ifindex).expect("a packet socket")
    })
}

/// A frame with the test's EtherType and `text`, tagged with `tag` unless that is 0.
fn frame(dst: MacAddr, src: MacAddr, tag: u16, text: &str) -> Vec<u8> {
    let mut builder = Builder::new(dst, src);
    if tag != 0 {
        builder = builder.tag(0x8100, Tag { pcp: 0, dei: false, vid: tag });
    }
    builder.ethertype(0x88b5).payload(text.as_bytes()).build()
}

/// True when a frame with `text` is received within `patience`.
fn hears(socket: &PacketSocket, text: &str, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        match socket.receive().expect("received") {
            Some(packet) if packet.outgoing => {}
            Some(packet) if packet.frame.windows(text.len()).any(|at| at == text.as_bytes()) => return true,
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    false
}

#[test]
fn frames_for_a_deleted_netdev_reach_no_other_vlan() {
    in_switch(|| {
        let (trunk, gone, native) = (Host::new(1), Host::new(2), Host::new(3));
        for host in [&trunk, &gone] {
            host.set_feature("rx-gro", true);
        }
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&gone, 10), (&native, 1)]);
        let mut uplink = PortState::access(&trunk.port.name, trunk.port.ifindex, vlan(1));
        uplink.access = false;
        uplink.tagged = [vlan(10)].into_iter().collect();
        state.ports.insert(port(1), uplink);
        for id in [1, 2] {
            state.ports.get_mut(&port(id)).expect("a port").hook = HookChoice::Xdp;
        }
        match guarded.plane().apply(&state) {
            Err(error @ PlaneError::Unsupported { .. }) => return println!("skipped: {error}"),
            done => done.expect("applied"),
        }
        let (at_trunk, at_gone, at_native) = (interface(&trunk), interface(&gone), interface(&native));
        at_gone.send(&frame(mac(1), mac(2), 0, "learn")).expect("sent");
        assert!(hears(&at_trunk, "learn", PATIENCE));
        let to_gone = |text: &str| at_trunk.send(&frame(mac(2), mac(1), 10, text)).expect("sent");
        to_gone("by TC, and learned");
        assert!(hears(&at_gone, "by TC, and learned", PATIENCE));
        // A capture at the port's TC hook does not see frames that XDP forwards.
        let captured = PacketSocket::open(trunk.port.ifindex).expect("a capture");
        to_gone("by XDP");
        assert!(hears(&at_gone, "by XDP", PATIENCE));
        assert!(!hears(&captured, "by XDP", SILENCE), "XDP passed a known unicast frame to TC");
        let before = guarded.plane().port_counters(port(1));
        // The daemon dies, then the egress netdev goes.
        guarded.plane = None;
        Netdev::open().expect("netlink").delete(gone.port.ifindex).expect("deleted");
        for n in 0..10 {
            to_gone(&format!("to nobody {n}"));
        }
        assert!(!hears(&at_native, "to nobody", SILENCE), "a frame of VLAN 10 arrived in the native VLAN");
        assert!(!hears(&at_trunk, "to nobody", SILENCE), "a frame came back");
        guarded.restart().expect("adopted");
        let plane = guarded.plane();
        let after = plane.port_counters(port(1));
        assert_eq!(after.rx.frames - before.rx.frames, 10, "each frame is counted once");
        assert_conserved(plane);
    });
}
