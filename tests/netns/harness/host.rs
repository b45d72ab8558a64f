//! A host: a namespace, its `eth0`, and a socket there that sees every frame.
//!
//! A host without an address sends nothing: it has no IPv6 and does no ARP, so only frames of the scenario
//! arrive.

use super::frame::{Frame, Mac, mac};
use super::net::Net;
use lanyard_netdev::{Netdev, PacketSocket};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

/// A host behind one port.
pub struct Host {
    pub net: Net,
    pub mac: Mac,
    wire: PacketSocket,
    netdev: Netdev,
    /// The number of frames that have arrived since the host was made.
    pub arrived: Cell<u64>,
    /// True when its end of the wire belongs to another host now.
    pub away: Cell<bool>,
}

/// True for a configuration test frame, by which the plane tests whether a port takes frames from XDP.
fn is_test(frame: &[u8]) -> bool {
    frame.get(..6) == frame.get(6..12) && frame.get(12..14) == Some(&[0x90, 0x00])
}

impl Host {
    /// Makes a host of `net`, whose `eth0` exists and is up.
    pub fn new(net: Net, number: u16) -> Self {
        let wire = net.run(|| {
            let index = nix::net::if_::if_nametoindex("eth0").expect("the host has its port");
            PacketSocket::open(index).expect("a packet socket")
        });
        let netdev = net.run(|| Netdev::open().expect("netlink"));
        Self { netdev, net, mac: mac(number), wire, arrived: Cell::new(0), away: Cell::new(false) }
    }
    /// True when the host can send: the kernel activates a netdev some time after its carrier comes up.
    pub fn is_linked(&self) -> bool {
        self.netdev.link("eth0").is_ok_and(|link| link.link_up)
    }
    /// Sends a frame.
    pub fn send(&self, frame: &Frame) {
        self.try_send(frame).unwrap_or_else(|error| panic!("sending {frame:?}: {error}"));
    }
    /// Sends a frame; fails when the netdev is down.
    pub fn try_send(&self, frame: &Frame) -> std::io::Result<()> {
        self.wire.send(&frame.0)
    }
    /// The next frame that has arrived; `None` if there is none.
    pub fn next(&self) -> Option<Frame> {
        loop {
            match self.wire.receive() {
                Ok(Some(packet)) if packet.outgoing || is_test(&packet.frame) => {}
                Ok(Some(packet)) => {
                    self.arrived.set(self.arrived.get() + 1);
                    return Some(Frame(packet.frame));
                }
                Ok(None) => return None,
                // The netdev went down, or came up again; this is reported once.
                Err(_) => {}
            }
        }
    }
    /// Discards the frames that have arrived.
    pub fn drain(&self) {
        while self.next().is_some() {}
    }
    /// The number of frames for which the socket had no room.
    pub fn missed(&self) -> u32 {
        self.wire.missed().expect("a live socket")
    }
    /// Gives `eth0` the addresses 10.0.VLAN.1 and fd00:VLAN::1, and default routes by the switch's addresses there, which
    /// end in 254.
    pub fn join_vlan(&self, vlan: u16) {
        self.address(&format!("10.0.{vlan}.1/24"));
        self.address(&format!("fd00:{vlan}::1/64"));
        // No second address from a router advertisement of the switch: the kernel would send from that one instead.
        self.net.run(|| std::fs::write("/proc/sys/net/ipv6/conf/eth0/autoconf", "0")).expect("a sysctl");
        self.net.ip(&format!(
            "route add default via 10.0.{vlan}.254\nroute replace default via fd00:{vlan}::254"
        ));
    }
    /// Gives `eth0` an address with its prefix length.
    pub fn address(&self, address: &str) {
        if address.contains(':') {
            self.net
                .run(|| std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0"))
                .expect("IPv6 on");
            self.net.ip(&format!("address add {address} dev eth0 nodad"));
        } else {
            self.net.ip(&format!("address add {address} dev eth0"));
        }
    }
    /// Pings with small gaps; returns true when an answer arrived.
    pub fn ping(&self, arguments: &str) -> bool {
        let mut command = Command::new("ping");
        command.args(["-n", "-i", "0.01", "-W", "5"]).args(arguments.split(' '));
        let output = self.net.output(&mut command);
        output.status.success()
    }
    /// Asserts that a ping is answered within the deadline: an address or a route may need a moment to
    /// settle.
    pub fn reaches(&self, address: &str) {
        super::wait_for(&format!("an answer from {address}"), || {
            self.ping(&format!("-c 1 -W 1 {address}")).then_some(())
        });
    }
    /// Sends `bytes` bytes over TCP to `server`, which must receive exactly these.
    pub fn tcp(&self, server: &Self, address: &str, bytes: usize) {
        let address = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), 5001);
        // A process that another test has just forked holds the previous listener until it executes its program, so the port may
        // still be in use.
        let bind = || server.net.run(|| TcpListener::bind(address)).ok();
        let listener = super::wait_for("the server's port", bind);
        // The length of the pattern is a prime number, so a segment never equals the one that should be in its place.
        let pattern: Vec<u8> = (0..65_521_usize).map(|at| (at ^ at >> 8) as u8).collect();
        let mut data = pattern.repeat(bytes / pattern.len() + 1);
        data.truncate(bytes);
        let received = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut all = Vec::new();
                listener.accept().expect("a connection").0.read_to_end(&mut all).expect("read");
                all
            });
            let mut stream = self.net.run(|| TcpStream::connect(address)).expect("connected");
            stream.write_all(&data).expect("written");
            stream.shutdown(Shutdown::Write).expect("shut down");
            reader.join().expect("the reader")
        });
        assert!(received == data, "{} of {bytes} bytes arrived, or others", received.len());
    }
}
