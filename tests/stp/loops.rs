//! Probes that find loops, and the kernel's bridge as a neighbour. The tests of switches on a chip use them as well.

use crate::harness::{BROADCAST, Bed, DEADLINE, Frame, Host, Net, frame, wait_for, wait_until};
use lanyard_netdev::PacketSocket;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Detects loops: frames that return to their sender, or arrive twice.
pub struct Loops<'a> {
    from: &'a Host,
    to: &'a Host,
    pub sent: Vec<Frame>,
    seen: Vec<Frame>,
}

impl<'a> Loops<'a> {
    /// Detects loops between two hosts of one switch.
    pub fn at(bed: &'a Bed) -> Self {
        Self::between(bed.host(1), bed.host(2))
    }
    /// Detects loops on the way from one host to another.
    pub fn between(from: &'a Host, to: &'a Host) -> Self {
        from.drain();
        to.drain();
        Self { from, to, sent: Vec::new(), seen: Vec::new() }
    }
    /// Sends one broadcast; every broadcast must arrive once, and none may return.
    pub fn probe(&mut self) {
        let this = frame(BROADCAST, self.from.mac);
        self.from.send(&this);
        self.sent.push(this.clone());
        wait_for("a broadcast at the other host", || {
            while let Some(received) = self.to.next() {
                if self.sent.contains(&received) {
                    assert!(!self.seen.contains(&received), "a broadcast arrived twice: a loop");
                    self.seen.push(received);
                }
            }
            self.seen.contains(&this).then_some(())
        });
        while let Some(received) = self.from.next() {
            assert!(!self.sent.contains(&received), "a broadcast came back to its sender: a loop");
        }
    }
    /// Sends broadcasts until `done`.
    pub fn until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let found = wait_until(2 * DEADLINE, || {
            self.probe();
            done().then_some(())
        });
        assert!(found.is_some(), "waiting for {what}");
        (0..20).for_each(|_| self.probe());
    }
}

/// The shortest times that the standard and both sides allow.
pub const SHORT: &str =
    "spanning-tree vlan 1 hello-time 1\nspanning-tree vlan 1 forward-time 4\nspanning-tree vlan 1 max-age 6";

/// Makes a bridge of the kernel from `k1` and `k2`.
pub fn kernel_bridge(peer: &Net, priority: u16) {
    peer.ip(&format!(
        "link add br0 type bridge stp_state 1 priority {priority} forward_delay 200 hello_time 100 max_age 600\n\
         link set k1 master br0\nlink set k2 master br0\nlink set br0 up"
    ));
}

/// A host behind the other implementation; port `k3` belongs to its bridge.
pub struct Beyond(pub PacketSocket);

impl Beyond {
    pub fn new(peer: &Net) -> Self {
        peer.ip("link add k3 type veth peer name h3\nlink set k3 up\nlink set h3 up");
        let index = peer.index("h3");
        Self(peer.run(|| PacketSocket::open(index).expect("a packet socket")))
    }
    /// Sends broadcasts from a host of the switch until one arrives, and prints how long that took.
    pub fn hears(&self, host: &Host, what: &str) {
        let start = Instant::now();
        let sent = frame(BROADCAST, host.mac);
        let received = wait_until(DEADLINE, || {
            host.send(&sent);
            while let Ok(packet) = self.0.receive() {
                if packet?.frame == sent.0 {
                    return Some(());
                }
            }
            None
        });
        assert!(received.is_some(), "no frame gets through {what}");
        println!("{what}: frames flow after {:?}", start.elapsed());
    }
}

/// The state of a port of the kernel's bridge.
pub fn kernel_state(peer: &Net, port: &str) -> String {
    let output = peer.output(Command::new("bridge").args(["-j", "link", "show", "dev", port]));
    let view: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    view[0]["state"].as_str().unwrap_or_default().to_owned()
}

pub fn kernel_becomes(peer: &Net, port: &str, state: &str) {
    let found = wait_until(DEADLINE * 2, || (kernel_state(peer, port) == state).then_some(()));
    assert!(found.is_some(), "{port} should be {state}, is {}", kernel_state(peer, port));
}

/// The daemon dies, and the other implementation takes both wires over. A frame of the host behind that implementation returns to
/// this host only through a loop.
pub fn takes_over(beyond: &Beyond, die: impl FnOnce(), mut done: impl FnMut() -> bool) {
    let probe = || {
        let this = frame(BROADCAST, [2, 0, 0, 0, 0xbe, 1]);
        beyond.0.send(&this.0).unwrap();
        while let Ok(packet) = beyond.0.receive() {
            let Some(packet) = packet else { break };
            assert!(packet.outgoing || packet.frame != this.0, "a broadcast came back to its sender: a loop");
        }
    };
    die();
    let found = wait_until(3 * DEADLINE, || {
        probe();
        std::thread::sleep(Duration::from_millis(20));
        done().then_some(())
    });
    assert!(found.is_some(), "the other make should have taken both wires over");
    (0..100).for_each(|_| {
        probe();
        std::thread::sleep(Duration::from_millis(5));
    });
}
