//! Real hosts through the soft plane: namespaces, veth pairs and a TAP, ping and TCP; as root and as an unprivileged
//! user.
//!
//! The test starts itself again inside a new network namespace, or inside a new user namespace (`unshare -Urn`). Every
//! namespace belongs to a process or thread of that child, so nothing remains however the test ends.

#![allow(clippy::unwrap_used, clippy::panic)]

use lanyard_pipeline::state::{FdbTarget, HookChoice, PlaneState, PortKind, PortState, Tpid, VlanState};
use lanyard_plane::Plane;
use lanyard_soft::SoftPlane;
use lanyard_types::{DropReason, MacAddr, PortId, VlanId};
use nix::sched::{CloneFlags, unshare};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

const INSIDE: &str = "LANYARD_SOFT_TEST_INSIDE";

fn check(name: &str, arguments: &[&str]) {
    let probe = Command::new("unshare").args(arguments).arg("true").output();
    if !probe.as_ref().is_ok_and(|out| out.status.success()) {
        println!("skipped: {name}: `unshare {}` is not possible here: {probe:?}", arguments.join(" "));
        return;
    }
    let this = std::env::current_exe().unwrap();
    let child = Command::new("unshare")
        .args(arguments)
        .arg(this)
        .args(["--exact", "inside", "--ignored", "--nocapture"])
        .env(INSIDE, name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    print!("{text}");
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{name}: {}",
        String::from_utf8_lossy(&child.stderr)
    );
}

#[test]
fn as_root() {
    check("root", &["-n"]);
}

#[test]
fn rootless() {
    check("rootless", &["-Urn"]);
}

/// Runs a command in this thread's namespace; returns whether it succeeded.
fn sh(command: &str) -> bool {
    let mut words = command.split(' ');
    let out = Command::new(words.next().unwrap()).args(words).output().unwrap();
    if !out.status.success() {
        println!(
            "{command}: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
    out.status.success()
}

fn must(command: &str) {
    assert!(sh(command), "{command}");
}

type Job = Box<dyn FnOnce() + Send>;

/// A host: a thread in a network namespace of its own, which runs the jobs that it is sent.
struct Host {
    jobs: Sender<Job>,
    namespace: String,
}

impl Host {
    fn new() -> Self {
        let (jobs, todo) = channel::<Job>();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            sender.send(nix::unistd::gettid()).unwrap();
            todo.into_iter().for_each(|job| job());
        });
        let namespace = format!("/proc/{}/task/{}/ns/net", std::process::id(), receiver.recv().unwrap());
        Self { jobs, namespace }
    }
    /// Starts a job on the host's thread, and returns a function that waits for its result. A panic of the
    /// job panics there.
    fn start<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T {
        let (sender, receiver) = channel();
        self.jobs.send(Box::new(move || drop(sender.send(job())))).unwrap();
        move || receiver.recv().expect("the host's thread is alive")
    }
    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(job)()
    }
    fn ping(&self, arguments: &str) -> bool {
        let command = format!("ping -n -i 0.01 -W 2 {arguments}");
        self.run(move || sh(&command))
    }
    /// Makes a host behind `port`, with one address.
    fn behind(port: &str, address: &str) -> Self {
        let host = Self::new();
        must(&format!("ip link add {port} type veth peer name eth0 netns {}", host.namespace));
        must(&format!("ip link set {port} up"));
        let address = address.to_owned();
        host.run(move || {
            must("ip link set lo up");
            must(&format!("ip addr add {address}/24 dev eth0"));
            must("ip link set eth0 up");
        });
        host
    }
}

/// Sends `bytes` from one host to another over TCP, and compares them at the other end.
fn tcp(from: &Host, to: &Host, address: &'static str, bytes: usize) {
    let (sender, receiver) = channel();
    let received = to.start(move || {
        let listener = TcpListener::bind((address, 5001)).unwrap();
        sender.send(()).unwrap();
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all
    });
    receiver.recv().unwrap();
    let sent = pattern(bytes);
    let wanted = sent.clone();
    let started = Instant::now();
    from.run(move || {
        let mut stream = TcpStream::connect((address, 5001)).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let received = received();
    let seconds = started.elapsed().as_secs_f64();
    assert!(received == wanted, "TCP to {address}: not what was sent");
    println!("TCP to {address}: {:.2} Gbit/s", bytes as f64 * 8e-9 / seconds);
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn port(n: u16) -> PortId {
    PortId::new(n).unwrap()
}

fn vlan(n: u16) -> VlanId {
    VlanId::new(n).unwrap()
}

fn ifindex(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

fn access(name: &str, n: u16) -> PortState {
    PortState::access(name, ifindex(name), vlan(n))
}

/// Waits for a condition.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed().as_secs() < 10, "{what}: never happened");
        std::thread::yield_now();
    }
}

fn flags(name: &str) -> String {
    let out = Command::new("ip").args(["-o", "link", "show", name]).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

#[test]
#[ignore = "started by the other tests, in a namespace"]
fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        println!("skipped: not in a namespace of its own");
        return;
    }
    must("ip link set lo up");
    let hosts: Vec<Host> = (1..=3).map(|n| Host::behind(&format!("p{n}"), &format!("10.9.0.{n}"))).collect();
    let mut plane = SoftPlane::new().unwrap();
    let mut state = PlaneState::default();
    state.vlans.insert(vlan(10), VlanState::default());
    state.vlans.insert(vlan(20), VlanState::default());
    state.ports.insert(port(1), access("p1", 10));
    state.ports.insert(port(2), access("p2", 10));
    state.ports.insert(port(3), access("p3", 20));
    plane.apply(&state).unwrap();
    assert!(flags("p1").contains("NOARP"));

    assert!(hosts[0].ping("-c 5 10.9.0.2"), "ping between two ports");
    assert!(!hosts[0].ping("-c 1 -W 1 10.9.0.3"), "another VLAN must not answer");
    tcp(&hosts[0], &hosts[1], "10.9.0.2", 32 << 20);
    assert_eq!(plane.fdb_dynamic(), 3);

    jumbo(&mut plane, &mut state, &hosts);
    trunk(&mut plane, &mut state, &hosts);
    vlan_interface(&mut plane, &mut state, &hosts);
    tap(&mut plane, &mut state, &hosts);
    vanish(&mut plane, &mut state, &hosts);

    for n in 1..=5 {
        let counters = plane.port_counters(port(n));
        assert!(counters.conserved(), "port {n}: {counters:?}");
    }
    plane.detach().unwrap();
    assert!(!flags("p1").contains("NOARP"), "the port is left as it was");
    assert!(!flags("p2").contains("NOARP"), "also after a move");
    assert!(!hosts[0].ping("-c 1 -W 1 10.9.0.2"), "detached");
}

/// Hosts exchange frames of 9,000 bytes once the ports' MTU allows it.
fn jumbo(plane: &mut SoftPlane, state: &mut PlaneState, hosts: &[Host]) {
    let before = plane.port_counters(port(1)).dropped[DropReason::MtuExceeded.index()];
    for n in 1..=2 {
        must(&format!("ip link set p{n} mtu 9000"));
        hosts[n - 1].run(|| must("ip link set eth0 mtu 9000"));
    }
    assert!(!hosts[0].ping("-c 1 -W 1 -M do -s 8972 10.9.0.2"), "longer than the ports' MTU");
    assert!(plane.port_counters(port(1)).dropped[DropReason::MtuExceeded.index()] > before);
    state.ports.values_mut().for_each(|port| port.mtu = 9000);
    plane.apply(state).unwrap();
    assert!(hosts[0].ping("-c 3 -M do -s 8972 10.9.0.2"), "jumbo frames");
    tcp(&hosts[0], &hosts[1], "10.9.0.2", 8 << 20);
}

/// A second switch behind a trunk: tagged frames cross a real device, with incomplete TCP checksums and segmentation
/// buffers, and arrive with their tags out of band.
fn trunk(plane: &mut SoftPlane, state: &mut PlaneState, hosts: &[Host]) {
    must("ip link add t1 mtu 9100 type veth peer name t2 mtu 9100");
    must("ip link set t1 up");
    must("ip link set t2 up");
    let far = Host::behind("p5", "10.9.0.5");
    let mut second = SoftPlane::new().unwrap();
    for tpid in [Tpid::Dot1q, Tpid::Dot1ad] {
        let end = |name| {
            let tagged = "10,20".parse().unwrap();
            PortState { tpid, tagged, mtu: 9000, ..PortState::new(name, ifindex(name)) }
        };
        state.ports.insert(port(6), end("t1"));
        plane.apply(state).unwrap();
        let vlans = [(vlan(10), VlanState::default())].into();
        let ports = [(port(1), access("p5", 10)), (port(2), end("t2"))].into();
        second.apply(&PlaneState { vlans, ports, ..PlaneState::default() }).unwrap();
        assert!(hosts[0].ping("-c 3 10.9.0.5"), "over the trunk, {tpid:?}");
        tcp(&hosts[0], &far, "10.9.0.5", 8 << 20);
        tcp(&far, &hosts[0], "10.9.0.1", 8 << 20);
        // VLAN 20's broadcasts cross the wire with their tag; the second switch does not have the VLAN and
        // drops them.
        hosts[2].ping("-c 1 -W 1 10.9.0.5");
        let inactive = DropReason::VlanInactive.index();
        until("VLAN 20 refused at the far end", || second.port_counters(port(2)).dropped[inactive] > 0);
        second.clear_counters(port(2));
    }
    second.detach().unwrap();
    state.ports.remove(&port(6));
    plane.apply(state).unwrap();
    must("ip link del t1");
}

/// The switch's own address in VLAN 10: the host's stack answers at `vlan10`, and at no other netdev.
fn vlan_interface(plane: &mut SoftPlane, state: &mut PlaneState, hosts: &[Host]) {
    must("ip link add vlan10 address 02:00:00:00:0a:01 type veth peer name ly10");
    must("ip link set ly10 up");
    must("ip link set vlan10 up");
    must("ip addr add 10.9.0.254/24 dev vlan10");
    let mac = MacAddr([2, 0, 0, 0, 10, 1]);
    let inside = PortState {
        kind: PortKind::Svi(vlan(10)),
        flood_unicast: false,
        mtu: 9000,
        hook: HookChoice::Tc,
        ..access("ly10", 10)
    };
    state.ports.insert(port(5), inside);
    state.fdb.insert((vlan(10), mac), FdbTarget::SelfAddress(port(5)));
    plane.apply(state).unwrap();
    for (n, host) in hosts[..2].iter().enumerate() {
        assert!(host.ping("-c 3 10.9.0.254"), "host {n} to the VLAN interface");
        let neighbour =
            host.run(|| Command::new("ip").args(["neigh", "show", "10.9.0.254"]).output().unwrap());
        let neighbour = String::from_utf8(neighbour.stdout).unwrap();
        assert!(neighbour.contains(&mac.colon()), "another of the switch's netdevs answered: {neighbour}");
    }
    assert!(!hosts[2].ping("-c 1 -W 1 10.9.0.254"), "another VLAN");
    assert!(sh("ping -n -c 3 -i 0.01 -W 2 -I vlan10 10.9.0.1"), "from the switch");
    state.fdb.clear();
    state.ports.remove(&port(5));
    plane.apply(state).unwrap();
    must("ip link del vlan10");
}

/// A TAP netdev in the switch's own namespace makes the host's stack one more station.
fn tap(plane: &mut SoftPlane, state: &mut PlaneState, hosts: &[Host]) {
    let ifindex = plane.add_tap("tap0").unwrap();
    assert!(plane.add_tap("tap0").is_err());
    state.ports.insert(port(4), PortState::access("tap0", ifindex, vlan(10)));
    plane.apply(state).unwrap();
    must("ip addr add 10.9.0.100/24 dev tap0");
    must("ip link set tap0 up");
    assert!(hosts[0].ping("-c 3 10.9.0.100"), "up through the TAP");
    assert!(sh("ping -n -c 3 -i 0.01 -W 2 10.9.0.2"), "down through the TAP");
    let listener = TcpListener::bind(("10.9.0.100", 5002)).unwrap();
    let sent = hosts[1].start(|| {
        let mut stream = TcpStream::connect(("10.9.0.100", 5002)).unwrap();
        stream.write_all(&pattern(8 << 20)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        back == pattern(4 << 20)
    });
    let mut stream = listener.accept().unwrap().0;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all == pattern(8 << 20));
    stream.write_all(&pattern(4 << 20)).unwrap();
    drop(stream);
    assert!(sent(), "what came back over the TAP");
    state.ports.remove(&port(4));
    plane.apply(state).unwrap();
    assert!(nix::net::if_::if_nametoindex("tap0").is_err(), "the TAP goes with its port");
}

/// A netdev is taken down and removed while the plane runs; the other ports go on, and the netdev can come
/// back.
fn vanish(plane: &mut SoftPlane, state: &mut PlaneState, hosts: &[Host]) {
    must("ip link set p3 down");
    must("ip link set p3 up");
    must("ip link del p3");
    assert!(hosts[0].ping("-c 3 10.9.0.2"), "the others go on");
    state.ports.get_mut(&port(3)).unwrap().ifindex = 99_999;
    assert!(plane.apply(state).is_err(), "no such netdev");
    state.ports.get_mut(&port(3)).unwrap().ifindex = 0;
    plane.apply(state).unwrap();
    let back = Host::behind("p3", "10.9.0.3");
    state.ports.insert(port(3), PortState { mtu: 9000, ..access("p3", 10) });
    plane.apply(state).unwrap();
    assert!(back.ping("-c 3 10.9.0.1"), "it came back, in another VLAN");
    // The link goes down and up again: the socket reports an error, and works again when the link is up.
    must("ip link set p2 down");
    must("ip link set p2 up");
    until("forwarding after a flap", || hosts[0].ping("-c 1 10.9.0.2"));
    tcp(&back, &hosts[1], "10.9.0.2", 1 << 20);
    // The netdev is moved to another namespace and comes back with the same index, before anybody has noticed: the kernel has ended
    // the socket's binding.
    let (elsewhere, index) = (Host::new(), ifindex("p2"));
    must(&format!("ip link set p2 netns {}", elsewhere.namespace));
    let home = format!("ip link set p2 netns /proc/{}/ns/net", std::process::id());
    elsewhere.run(move || must(&home));
    must("ip link set p2 up");
    assert_eq!(ifindex("p2"), index, "the kernel keeps an index that is free");
    until("forwarding after a move", || hosts[0].ping("-c 1 10.9.0.2"));
    assert!(flags("p2").contains("NOARP"), "the host's stack is kept off again");
}
