//! The kernel's bridge is the oracle: the same frames go into both, and the same frames must come out of both, byte for
//! byte.
//!
//! The differences, with their reasons: the kernel's bridge has no VLAN filtering here, so it relays tagged frames
//! unchanged and learns their senders. Lanyard's ports are access ports of VLAN 1: a frame tagged with VLAN 1 or with a
//! priority only (VLAN 0) leaves without that tag, and a frame with any other tag is refused and not learned (IEEE
//! 802.1Q-2018, 6.9 and 8.6.2). Tagged frames therefore come from separate senders, and the bridge's output for them is
//! translated accordingly. The bridge is configured not to learn from the reserved addresses that it does not relay
//! (`no_linklocal_learn`), as Lanyard never does. No frame is sent to the bridge's own addresses: they go up, and
//! Lanyard has no interface in this VLAN.

use crate::harness::frame::{DOT1AD, DOT1Q, Mac, reserved};
use crate::harness::{BROADCAST, Bed, Frame, Host, Net, Plane, frame, mac, scenarios};

scenarios! {
    as_the_kernel_bridge: ebpf soft;
    as_the_kernel_bridge_at_xdp: ebpf;
}

const PORTS: usize = 4;
const ROUNDS: usize = 40;
const FRAMES: usize = 25;

/// A pseudo-random sequence that is the same in each run.
struct Seeded {
    state: u64,
    /// The number of frame lengths in use.
    lengths: usize,
}

impl Seeded {
    fn below(&mut self, count: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % count
    }
    /// One of eight stations that move between the ports; some of them never send.
    fn station(&mut self) -> Mac {
        mac(0x100 + self.below(8) as u16)
    }
    fn destination(&mut self) -> Mac {
        match self.below(12) {
            0 => BROADCAST,
            1 => [0x01, 0, 0x5e, 0, 0, 0xfb],
            2 => [0x33, 0x33, 0, 0, 0, 1],
            3 => reserved(self.below(16) as u8),
            4 => [0x01, 0x80, 0xc2, 0, 0, 0x10 + self.below(32) as u8],
            5 => mac(0x900),
            _ => self.station(),
        }
    }
    fn frame(&mut self) -> Frame {
        let source = match self.below(40) {
            0 => [0; 6],
            1 => [0x01, 0, 0x5e, 0, 0, 1],
            _ => self.station(),
        };
        // The soft plane cannot send frames of the last two lengths: a packet socket has no room for them
        // (packet(7)).
        let lengths = [14, 15, 20, 46, 59, 60, 61, 64, 128, 577, 1500, 1513, 1514, 1515, 1518];
        let len = lengths[self.below(self.lengths)];
        let bare = frame(self.destination(), source).len(len);
        match self.below(12) {
            // An EtherType that is a length, and EtherTypes of IPv4, ARP and IPv6 in front of other data.
            0 => bare.ethertype(46),
            1 => bare.ethertype(0x0800),
            2 => bare.ethertype(0x0806),
            3 => bare.ethertype(0x86dd),
            4 if len >= 20 => bare.len(len.min(lengths[self.lengths - 1] - 4)).tag(DOT1AD, 3, 7),
            5 if len >= 20 => self.tagged(len.min(lengths[self.lengths - 1] - 4)),
            _ => bare,
        }
    }
    fn tagged(&mut self, len: usize) -> Frame {
        let vid = [0, 1, 2, 4094, 4095][self.below(5)];
        let (dst, pcp) = (self.destination(), self.below(8) as u16);
        frame(dst, mac(0x500 + self.below(4) as u16)).len(len).tag(DOT1Q, pcp, vid)
    }
}

/// The form in which Lanyard forwards a frame that the bridge has relayed unchanged; `None` if Lanyard
/// refuses it.
fn translated(frame: &Frame) -> Option<Frame> {
    let tagged = frame.0.get(12..14) == Some(&DOT1Q.to_be_bytes()[..]);
    match frame.0.get(14..16) {
        Some(tci) if tagged => {
            let vid = u16::from_be_bytes([tci[0], tci[1]]) & 0xfff;
            (vid <= 1).then(|| frame.untagged())
        }
        _ => Some(frame.clone()),
    }
}

/// Four hosts around a bridge of the kernel.
struct Oracle {
    _net: Net,
    hosts: Vec<Host>,
}

impl Oracle {
    fn new() -> Self {
        let net = Net::new(false);
        net.ip("link add br0 type bridge stp_state 0 mcast_snooping 0 no_linklocal_learn 1\nlink set br0 up");
        // Where netfilter examines bridged frames, it drops invalid IP packets.
        for key in ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"] {
            let path = format!("/proc/sys/net/bridge/{key}");
            net.run(|| {
                if std::path::Path::new(&path).exists() {
                    std::fs::write(&path, "0").unwrap()
                }
            });
        }
        let hosts = (1..=PORTS as u16)
            .map(|n| {
                let host = Net::new(false);
                net.ip(&format!(
                    "link add p{n} type veth peer name eth0 netns {}\nlink set p{n} master br0 up",
                    host.path()
                ));
                host.ip("link set eth0 mtu 2000 up");
                Host::new(host, n)
            })
            .collect();
        let this = Self { _net: net, hosts };
        this.await_links();
        this
    }
    /// Waits until the bridge forwards to all ports, which it does some time after their links have come up.
    fn await_links(&self) {
        for (at, host) in self.hosts.iter().enumerate() {
            let others = || self.hosts.iter().enumerate().filter(move |(other, _)| *other != at);
            let mut received = [false; PORTS];
            crate::harness::wait_for("the bridge to forward", || {
                host.send(&frame(BROADCAST, mac(0xfff)));
                others().for_each(|(other, host)| received[other] |= host.next().is_some());
                (received.iter().filter(|received| **received).count() == PORTS - 1).then_some(())
            });
        }
    }
    /// Sends a frame; when the call returns, the bridge and all hosts have processed it.
    fn exchange(&self, from: usize, frames: &[Frame]) -> Vec<Vec<Frame>> {
        self.hosts.iter().for_each(Host::drain);
        for frame in frames {
            self.hosts[from - 1].send(frame);
        }
        // A mark reaches everyone but the sender through the bridge, after everything else; its source is unknown to
        // the bridge.
        let mark = frame(BROADCAST, [0x02, 0xfe, 0, 0, 0, from as u8]);
        self.hosts[from - 1].send(&mark);
        let arrived = |(at, host): (usize, &Host)| {
            let mut list = Vec::new();
            crate::harness::wait_for("the mark to arrive", || {
                while let Some(frame) = host.next() {
                    if frame == mark {
                        return Some(());
                    }
                    list.push(frame);
                }
                (at + 1 == from).then_some(())
            });
            list
        };
        self.hosts.iter().enumerate().map(arrived).collect()
    }
}

fn as_the_kernel_bridge(plane: Plane) {
    compare(plane, "");
}

fn as_the_kernel_bridge_at_xdp(plane: Plane) {
    compare(plane, " hook xdp\n");
}

fn compare(plane: Plane, more: &str) {
    let bed = Bed::new(plane, PORTS, &format!("interface range p1 - 4\n switchport\n{more}"));
    bed.hosts.iter().for_each(|host| host.net.ip("link set eth0 mtu 2000"));
    let oracle = Oracle::new();
    let mut seeded = Seeded { state: 20_240_229, lengths: if plane == Plane::soft { 13 } else { 15 } };
    let mut relayed = 0;
    for round in 0..ROUNDS {
        let from = 1 + seeded.below(PORTS);
        let frames: Vec<Frame> = (0..FRAMES).map(|_| seeded.frame()).collect();
        let wanted: Vec<Vec<Frame>> = oracle
            .exchange(from, &frames)
            .iter()
            .map(|list| list.iter().filter_map(translated).collect())
            .collect();
        let got = bed.exchange(from, &frames);
        for port in 0..PORTS {
            relayed += got[port].len();
            assert_eq!(got[port], wanted[port], "round {round}, from host {from} to host {}", port + 1);
        }
    }
    assert!(relayed > ROUNDS * FRAMES, "only {relayed} frames came out: this compares nothing");
}
