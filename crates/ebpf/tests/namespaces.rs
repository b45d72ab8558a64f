//! Netdevs of ports that are moved to another network namespace, and take their programs along.

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod common;

use common::{Guarded, Host, PATIENCE, SILENCE, access_state, arrives, in_switch, options};
use lanyard_pipeline::state::HookChoice;
use lanyard_plane::{Plane, PlaneError};
use std::net::UdpSocket;
use std::process::Command;

fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().expect("ip");
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Moves `sw1`, which was a port, into the namespace of `other`, and gives it an address. Returns a socket with that address.
fn stranger(other: &Host) -> UdpSocket {
    other.take("sw1");
    other.run("ip", &["addr", "add", "10.0.0.101/24", "dev", "sw1"]);
    other.run("ip", &["link", "set", "sw1", "up"]);
    other.enter(|| UdpSocket::bind("10.0.0.101:7777")).expect("a socket")
}

/// The next daemon detaches the program, also where another netdev has the index of the one that was moved.
fn moved_without_a_daemon(hook: HookChoice) {
    in_switch(|| {
        let (a, b, other) = (Host::new(1), Host::new(2), Host::new(3));
        for host in [&a, &b] {
            host.set_feature("rx-gro", true);
            host.set_feature("tx-checksum-ip-generic", false);
        }
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10), (&b, 10)]);
        state.ports.values_mut().for_each(|port| port.hook = hook);
        match guarded.plane().apply(&state) {
            Err(error @ PlaneError::Unsupported { .. }) => return println!("skipped: {error}"),
            done => done.expect("applied"),
        }
        assert!(arrives(&a.socket(), &b.socket(), "hello", PATIENCE));
        guarded.plane = None;
        let at_sw1 = stranger(&other);
        let at_a = a.socket();
        assert!(!arrives(&at_a, &at_sw1, "with the program", SILENCE), "docs/operations.md says otherwise");
        // A new netdev has the name and the index.
        let index = a.port.ifindex;
        ip(&format!("link add sw1 index {index} type veth peer name eth9"));
        ip("link set sw1 up");
        guarded.restart().expect("adopted");
        assert!(arrives(&at_a, &at_sw1, "without the program", PATIENCE), "the program is still there");
        drop((at_a, at_sw1));
        // The new netdev is the port now, so it has got the program.
        a.take("eth9");
        a.run("ip", &["address", "flush", "dev", "eth0"]);
        a.run("ip", &["address", "add", "10.0.0.1/24", "dev", "eth9"]);
        a.run("ip", &["link", "set", "eth9", "up"]);
        assert!(arrives(&a.socket(), &b.socket(), "by the new netdev", PATIENCE), "it has no program");
    });
}

#[test]
fn a_port_moved_away_without_a_daemon_loses_the_program_at_the_next_start() {
    moved_without_a_daemon(HookChoice::Tc);
}

#[test]
fn the_same_at_xdp() {
    moved_without_a_daemon(HookChoice::Xdp);
}
