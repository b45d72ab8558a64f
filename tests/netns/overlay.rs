//! Tunnels between hosts, through the router: each segment of a GSO buffer repeats the tunnel's headers and the inner
//! headers, so it is longer on the wire than one header and `gso_size` bytes.
//!
//! Read first: RFC 7348 (VXLAN), RFC 2784 (GRE); the kernel's Documentation/networking/segmentation-offloads.rst.

use crate::harness::{Bed, Plane, scenarios};
use lanyard_netdev::PacketSocket;
use nix::net::if_::if_nametoindex;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

scenarios! {
    vxlan: ebpf soft;
    gre: ebpf soft;
}

/// The MTU of the egress VLAN interface. The wires have a larger one, so a packet that is too long would arrive.
const NARROW: usize = 1300;
const CONFIG: &str = "\
vlan 10,20
ip routing
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 20
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
interface vlan 20
 ip address 10.0.20.254 255.255.255.0
";

fn vxlan(plane: Plane) {
    // An inner packet of 1,290 bytes has 1,340 outside; a calculation without the inner headers would give 1,266.
    tunnel(plane, 1290, "type vxlan id 7 dstport 4789 dev eth0 df unset");
}

fn gre(plane: Plane) {
    // The packet has 1,314 bytes outside; a calculation without the inner IPv4 header would give 1,270.
    // Without `ignore-df` the outer header takes the DF bit of the inner one, and the sender learns the path MTU.
    tunnel(plane, 1290, "type gre nopmtudisc ignore-df");
}

fn tunnel(plane: Plane, inner_mtu: usize, kind: &str) {
    let bed = Bed::without_switch(plane, 2, 1500);
    std::fs::write(bed.config_file(), CONFIG).unwrap();
    bed.start();
    bed.chatter.set(true);
    bed.exact.set(false);
    for (n, vlan) in [(1, 10), (2, 20)] {
        bed.host(n).address(&format!("10.0.{vlan}.1/24"));
        bed.host(n).net.ip(&format!("route add default via 10.0.{vlan}.254"));
    }
    // The soft plane drops such buffers: a packet socket cannot describe them (docs/operations.md, "Limits").
    let whole = matches!(plane, Plane::ebpf);
    for (n, from, to) in [(1, 10, 20), (2, 20, 10)] {
        let link = format!("link add tunnel {kind} local 10.0.{from}.1 remote 10.0.{to}.1");
        if !whole {
            let offloads = ["tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation", "tx-gre-segmentation"];
            let words = offloads.iter().flat_map(|feature| [*feature, "off"]);
            let done = bed.host(n).net.output(Command::new("ethtool").args(["-K", "eth0"]).args(words));
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        if let Err(error) = bed.host(n).net.try_ip(&link) {
            return println!("skipped: this kernel has no such tunnel ({kind}): {error}");
        }
        bed.host(n)
            .net
            .ip(&format!("link set tunnel mtu {inner_mtu} up\naddress add 192.168.0.{n}/24 dev tunnel"));
    }
    bed.host(1).reaches("192.168.0.2");
    let wide = longest_at_host_2(&bed);
    assert!(!whole || wide > 2 * inner_mtu, "GSO buffers should arrive whole, the longest has {wide} bytes");

    bed.configure(&format!("interface vlan 20\nmtu {NARROW}"));
    bed.host(1).reaches("192.168.0.2");
    let before = bed.routed(1).1;
    let narrow = longest_at_host_2(&bed);
    assert!(narrow <= 14 + NARROW, "a frame of {narrow} bytes left by an interface whose MTU is {NARROW}");
    assert!(bed.routed(1).1 > before, "the kernel cuts up what is too long");
}

/// Sends a stream through the tunnel; returns the length of the longest frame that arrived at host 2.
fn longest_at_host_2(bed: &Bed) -> usize {
    let done = AtomicBool::new(false);
    let wire = bed.host(2).net.run(|| PacketSocket::open(if_nametoindex("eth0").unwrap()).unwrap());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut longest = 0;
            loop {
                // Read the flag before the socket, so that everything that arrived before the end of the
                // stream is still read.
                let last = done.load(Ordering::Acquire);
                match wire.receive().unwrap() {
                    Some(packet) if packet.outgoing => {}
                    Some(packet) => longest = longest.max(packet.frame.len()),
                    None if last => return longest,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        bed.host(1).tcp(bed.host(2), "192.168.0.2", 4 << 20);
        done.store(true, Ordering::Release);
        reader.join().unwrap()
    })
}
