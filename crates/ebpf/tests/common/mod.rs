//! A switch's namespace with hosts around it, for tests that need a kernel. Everything is removed when the
//! process ends.

#![allow(clippy::panic)] // a test that panics has failed, and says why
#![allow(dead_code)] // each test file uses its part

pub mod wires;

use lanyard_ebpf::{EbpfPlane, Options};
use lanyard_netdev::{Link, LinkChange, Netdev, Veth, netns};
use lanyard_pipeline::state::{PlaneState, PortState, VlanState};
use lanyard_plane::{Plane, PlaneError};
use lanyard_types::{MacAddr, PortId, VlanId};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The wait for something that must not happen.
pub const SILENCE: Duration = Duration::from_millis(200);

pub fn port(n: u16) -> PortId {
    PortId::new(n).expect("a port number")
}

pub fn vlan(n: u16) -> VlanId {
    VlanId::new(n).expect("a VLAN")
}

/// The address of host `n`.
pub fn mac(n: u16) -> MacAddr {
    let [a, b] = n.to_be_bytes();
    MacAddr([2, 0, 0, 0, a, b])
}

/// Runs `test` in a namespace of its own, or prints the reason why it can't.
pub fn in_switch(test: impl FnOnce() + Send) {
    if let Err(why) = lanyard_ebpf::available() {
        println!("skipped: {why}");
        return;
    }
    match netns::run_in_new(test) {
        Ok(()) => {}
        Err(why) => println!("skipped: no network namespace can be made ({why})"),
    }
}

/// Options with an instance name of this test's own.
pub fn options() -> Options {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    Options {
        state_dir: std::env::temp_dir().join(format!("lanyard-{name}")),
        fdb_capacity: 10_000,
        ..Options::new(&name)
    }
}

/// A plane that is detached even if the test fails.
pub struct Guarded {
    options: Options,
    pub plane: Option<EbpfPlane>,
}

impl Guarded {
    pub fn open(options: Options) -> Self {
        let plane = EbpfPlane::open(&options).expect("the plane opens");
        Self { options, plane: Some(plane) }
    }
    pub fn options(&self) -> &Options {
        &self.options
    }
    pub fn plane(&mut self) -> &mut EbpfPlane {
        self.plane.as_mut().expect("it is open")
    }
    /// Acts like a daemon that dies and is started again.
    pub fn restart(&mut self) -> Result<(), PlaneError> {
        self.plane = None;
        self.plane = Some(EbpfPlane::open(&self.options)?);
        Ok(())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let plane = self.plane.take().map(Ok).unwrap_or_else(|| EbpfPlane::open(&self.options));
        if let Ok(mut plane) = plane {
            let _ = plane.detach();
        }
        let _ = std::fs::remove_dir_all(&self.options.state_dir);
    }
}

/// A host in a namespace of its own, with one interface `eth0` whose other end is a netdev of the switch.
pub struct Host {
    pub number: u16,
    pub port: Link,
    ns: File,
}

impl Host {
    /// Host `number` behind `swN`, with address 10.0.0.N.
    pub fn new(number: u16) -> Self {
        let netdev = Netdev::open().expect("netlink");
        let ns = netns::run_in_new(netns::current).and_then(|ns| ns).expect("a namespace");
        let name = format!("sw{number}");
        let veth = Veth {
            name: &name,
            peer: "eth0",
            mac: None,
            peer_mac: Some(mac(number)),
            mtu: None,
            peer_netns: Some(ns.as_fd()),
        };
        let quiet =
            |ifindex| LinkChange { addrgen_none: Some(true), up: Some(true), ..LinkChange::of(ifindex) };
        netdev.create_veth(&veth).expect("a veth pair");
        let link = netdev.link(&name).expect("the near end");
        netdev
            .change(&[quiet(link.ifindex)])
            .into_iter()
            .for_each(|done| done.expect("the near end comes up"));
        netns::run_in(&ns, || {
            let netdev = Netdev::open().expect("netlink");
            let eth0 = netdev.link("eth0").expect("the far end");
            netdev
                .change(&[quiet(eth0.ifindex)])
                .into_iter()
                .for_each(|done| done.expect("the far end comes up"));
        })
        .expect("the host's namespace");
        let host = Self { number, port: netdev.link(&name).expect("the near end"), ns };
        host.run("ip", &["addr", "add", &format!("{}/24", host.addr()), "dev", "eth0"]);
        host
    }
    pub fn addr(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, (self.number >> 8) as u8, self.number as u8)
    }
    pub fn mac(&self) -> MacAddr {
        mac(self.number)
    }
    /// Moves a netdev of the calling thread's namespace into the host's.
    pub fn take(&self, name: &str) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.ns.as_raw_fd());
        let output = std::process::Command::new("ip").args(["link", "set", name, "netns", &path]).output();
        let output = output.unwrap_or_else(|why| panic!("ip: {why}"));
        assert!(output.status.success(), "{name} to {path}: {}", String::from_utf8_lossy(&output.stderr));
    }
    /// Runs `f` in the host's namespace.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        netns::run_in(&self.ns, f).expect("the host's namespace")
    }
    pub fn run(&self, program: &str, args: &[&str]) {
        let output = self.enter(|| std::process::Command::new(program).args(args).output());
        let output = output.unwrap_or_else(|why| panic!("{program}: {why}"));
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    pub fn set_feature(&self, feature: &str, on: bool) {
        self.enter(|| Netdev::open().expect("netlink").set_features("eth0", &[(feature, on)]))
            .expect(feature);
    }
    /// A UDP socket of the host. Opening it may fail for a moment after another one was closed, because a process that
    /// another test has just forked still holds that one.
    pub fn socket(&self) -> UdpSocket {
        let (addr, began) = (self.addr(), Instant::now());
        self.enter(|| {
            loop {
                match UdpSocket::bind((addr, 7777)) {
                    Err(why) if why.kind() == ErrorKind::AddrInUse && began.elapsed() < PATIENCE => {
                        std::thread::yield_now();
                    }
                    bound => break bound,
                }
            }
        })
        .expect("a socket")
    }
}

/// Sends a datagram and returns true if it arrives within `patience`.
pub fn arrives(from: &UdpSocket, to: &UdpSocket, text: &str, patience: Duration) -> bool {
    let addr = to.local_addr().expect("an address");
    if from.send_to(text.as_bytes(), addr).is_err() {
        return false;
    }
    // Earlier datagrams may arrive first, which waited for an address to be resolved.
    let end = std::time::Instant::now() + patience;
    let mut bytes = [0; 2048];
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now()).max(Duration::from_millis(1));
        to.set_read_timeout(Some(left)).expect("a timeout");
        match to.recv(&mut bytes) {
            Ok(len) if &bytes[..len] == text.as_bytes() => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// A state with access ports, from (host, VLAN) pairs; a port has the number of its host.
pub fn access_state(hosts: &[(&Host, u16)]) -> PlaneState {
    let mut state = PlaneState::default();
    state.global.fdb_limit = 10_000;
    for (host, id) in hosts {
        state.vlans.insert(vlan(*id), VlanState::default());
        state
            .ports
            .insert(port(host.number), PortState::access(&host.port.name, host.port.ifindex, vlan(*id)));
    }
    state
}

/// Asserts that every received frame of every port is counted with an outcome.
pub fn assert_conserved(plane: &mut EbpfPlane) {
    for id in plane.state().ports.keys().copied().collect::<Vec<_>>() {
        let counters = plane.port_counters(id);
        let ends = counters.forwarded + counters.trapped + counters.dropped.iter().sum::<u64>();
        assert_eq!(counters.rx.frames, ends, "port {id}: {counters:?}");
    }
}

/// The FDB as `MAC vlan port` lines, sorted.
pub fn fdb(plane: &mut EbpfPlane) -> Vec<String> {
    let mut lines = Vec::new();
    plane.fdb_walk(&lanyard_plane::FdbFilter::default(), &mut |entry| {
        let port = entry.port.map_or_else(|| "drop".into(), |port| port.to_string());
        lines.push(format!("{} {} {port} {}", entry.mac, entry.vlan, entry.kind.name()));
    });
    lines.sort();
    lines
}
