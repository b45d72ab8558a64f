//! The chip behind its socket: a thread with datagram sockets as wires, real drivers, and a real clock.

mod common;

use common::{APPLIANCE, bridge, bundle, channel, frame, platform, port, route, router, station};
use lanyard_asic::chip::device::wants;
use lanyard_asic::chip::serve::{End, Options, Server, Stopper, Wire, listen};
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::{Event, Notice, Request};
use lanyard_asic::sdk::{Client, Operation, SdkError, VERSION};
use lanyard_netdev::Netdev;
use lanyard_types::InstanceId;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

struct Fixture {
    dir: tempfile::TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<End>>,
    /// The far ends of the wires of ports 1 to 3.
    far: Vec<UnixDatagram>,
}

impl Fixture {
    fn new(faults: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = listen(&dir.path().join("sdk.sock")).expect("a socket");
        let (mut wires, mut far) = (BTreeMap::new(), Vec::new());
        for number in 1..=3 {
            let (near, end) = UnixDatagram::pair().expect("a pair");
            end.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            wires.insert(port(number), Wire::datagram(near).expect("a wire"));
            far.push(end);
        }
        let faults = FaultPlan::parse(faults).expect("a plan");
        let options = Options {
            platform: platform(APPLIANCE),
            salt: 7,
            boot: 42,
            wires,
            plugs: BTreeMap::new(),
            faults,
        };
        let server = Server::new(options, listener).expect("a chip");
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run().expect("it runs")));
        Self { dir, stopper, thread, far }
    }
    fn socket(&self) -> PathBuf {
        self.dir.path().join("sdk.sock")
    }
    fn client(&self) -> Client {
        Client::connect(&self.socket(), "test").expect("a chip")
    }
    /// Sends a frame into the wire `from` and waits for it at the wire `to`.
    fn passes(&self, from: usize, to: usize, bytes: &[u8]) {
        self.far[from].send(bytes).expect("sent");
        let mut frame = [0; 2000];
        let length = self.far[to].recv(&mut frame).expect("a frame");
        assert_eq!(&frame[..length], bytes);
    }
    fn end(mut self) -> End {
        self.stopper.stop();
        self.thread.take().expect("a thread").join().expect("no panic")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_chip_outlives_its_drivers_and_forwards_on() {
    let fixture = Fixture::new("");
    let mode = std::fs::metadata(fixture.socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(listen(&fixture.socket()).is_err(), "the chip's socket is not taken away from it");
    let mut first = fixture.client();
    assert_eq!((first.welcome().boot, first.welcome().write_us), (42, 60));
    first.number(&Request::Subscribe(wants::LEARNING)).expect("a chip");
    first.commit(&bridge(3)).expect("room");
    fixture.passes(0, 1, &frame(station(2), station(1)));
    let Ok(Some(Notice::Event(Event::Learned(entry)))) = first.notice(PATIENCE) else {
        unreachable!("no event")
    };
    assert_eq!((entry.mac, entry.port), (station(1), port(1)));
    let entries = first.entries().expect("a chip");
    drop(first);
    // No driver is connected: each of 1,000 frames is delivered.
    let to_it = frame(station(1), station(2));
    (0..1000).for_each(|_| fixture.passes(1, 0, &to_it));
    let mut second = fixture.client();
    assert_eq!(second.welcome().boot, 42, "the same run of the chip");
    assert_eq!(second.entries().expect("a chip"), entries);
    assert_eq!(second.learned().expect("a chip").len(), 2);
    // The driver writes its configuration again while frames pass, and none is lost.
    for _ in 0..20 {
        second.commit(&entries).expect("room");
        (0..10).for_each(|_| fixture.passes(1, 0, &to_it));
    }
    assert_eq!(fixture.end(), End::Stopped);
}

/// The socket's mode refuses other users. If somebody changes the mode, the chip itself closes their connections.
#[test]
fn a_peer_with_another_uid_is_turned_away() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    // In /tmp, because the configured directory of temporary files may be closed to other users.
    let dir = tempfile::Builder::new().prefix("lanyard-uid").tempdir_in("/tmp").expect("a directory");
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    open(dir.path(), 0o755);
    let socket = dir.path().join("sdk.sock");
    let listener = listen(&socket).expect("a socket");
    let options = Options {
        platform: platform(APPLIANCE),
        salt: 7,
        boot: 1,
        wires: BTreeMap::new(),
        plugs: BTreeMap::new(),
        faults: FaultPlan::default(),
    };
    let server = Server::new(options, listener).expect("a chip");
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run().expect("it runs"));
    // The script prints "refused" (by the mode), "closed" (by the chip), or "welcome".
    let script = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
try:
    s.connect(sys.argv[1])
except PermissionError:
    sys.exit(print("refused"))
try:
    s.sendall(bytes.fromhex("0000001400010000000000014c595344" + sys.argv[2] + "0000"))
    answer = s.recv(64)
except OSError:
    answer = b""
print("welcome" if answer[4:6] == bytes([0x80, 1]) else "closed")
"#;
    let version = format!("{VERSION:04x}");
    let ask = |uid: u32| {
        use std::os::unix::process::CommandExt;
        let output = Command::new("python3")
            .arg("-c")
            .arg(script)
            .arg(&socket)
            .arg(&version)
            .uid(uid)
            .gid(uid)
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Ok(own) = ask(0) else {
        println!("skipped: no python3");
        stopper.stop();
        return;
    };
    assert_eq!(own, "welcome");
    assert_eq!(ask(65_534).expect("python3"), "refused", "the mode is 0600");
    open(&socket, 0o666);
    assert_eq!(ask(65_534).expect("python3"), "closed", "the peer's user is looked at");
    assert_eq!(ask(0).expect("python3"), "welcome");
    stopper.stop();
    assert_eq!(thread.join().expect("no panic"), End::Stopped);
}

/// Sends the request of the round with this number to the chip.
type Ask = Box<dyn FnMut(&mut Client, u32)>;

#[test]
fn a_write_and_a_query_take_at_least_the_time_of_the_platform_file() {
    let fixture = Fixture::new("");
    let mut client = fixture.client();
    client.commit(&router()).expect("room");
    let mut per = |rounds: u32, mut ask: Ask| {
        let start = Instant::now();
        (0..rounds).for_each(|round| ask(&mut client, round));
        start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    };
    let write = per(
        300,
        Box::new(|client, round| {
            client
                .commit(&[route(&format!("10.{}.{}.0/24", round / 250, round % 250), Some(1))])
                .expect("room");
        }),
    );
    let query = per(300, Box::new(|client, _| _ = client.usage().expect("a chip")));
    println!("a write took {write:.0} us (60 and the way there), a query {query:.0} us (35)");
    // Never faster than specified; slower only by delays of the machine.
    assert!(write >= 60.0 && query >= 35.0, "{write} {query}");
}

#[test]
fn a_fault_plan_ends_the_chip() {
    let fixture = Fixture::new("die route at 2");
    let mut client = fixture.client();
    client.commit(&router()).expect("room");
    client.commit(&[route("10.0.0.0/8", Some(1))]).expect("room");
    let error = client.commit(&[route("11.0.0.0/8", Some(1))]).expect_err("it died");
    assert!(matches!(error, SdkError::Gone(_)), "{error}");
    let mut fixture = fixture;
    assert_eq!(fixture.thread.take().expect("a thread").join().expect("no panic"), End::Died);
}

#[test]
fn invalid_messages_end_only_the_connection_of_their_sender() {
    let fixture = Fixture::new("");
    let mut good = fixture.client();
    for nonsense in [&[0xff; 64][..], &[0, 0, 0, 12, 0, 99, 0, 0, 0, 0, 0, 1], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = UnixStream::connect(fixture.socket()).expect("a chip");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(nonsense).expect("sent");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the end of the connection");
    }
    good.commit(&bridge(2)).expect("room");
}

#[test]
fn many_requests_under_way_are_all_answered_in_order() {
    let fixture = Fixture::new("");
    let mut client = fixture.client();
    client.number(&Request::Faults(String::new())).expect("a chip");
    let (mut sender, mut receiver) = client.split();
    let writer = std::thread::spawn(move || {
        (0..20_000).for_each(|_| _ = sender.send(&Request::Subscribe(0)).expect("sent"));
        sender
    });
    for number in 3..20_003 {
        let Ok(Some(lanyard_asic::sdk::Incoming::Answer(to, _))) = receiver.receive(Some(PATIENCE)) else {
            unreachable!("no answer {number}")
        };
        assert_eq!(to, number);
    }
    writer.join().expect("no panic");
}

/// Runs `test` with a chip whose ports 1 and 2 are in VLAN 10 and have netdevs of a namespace as wires. `test` gets the indices
/// of the wires' other ends, which are down, and a driver that has subscribed to events of links.
fn with_wires(test: impl FnOnce(&Netdev, [u32; 2], &mut Client) + Send) {
    let outcome = lanyard_netdev::netns::run_in_new(|| {
        lanyard_netdev::sysctl::set_disable_ipv6("default", true).expect("IPv6 off");
        let netdev = Netdev::open().expect("netlink");
        let ends = [("p1", "q1"), ("p2", "q2")].map(|(name, peer)| {
            netdev.create_veth(&lanyard_netdev::Veth { name, peer, ..Default::default() }).expect("a wire");
            let [near, far] = [name, peer].map(|name| netdev.link(name).expect("its end").ifindex);
            netdev.set_up(near, true).expect("up");
            far
        });
        let dir = tempfile::tempdir().expect("a directory");
        let listener = listen(&dir.path().join("sdk.sock")).expect("a socket");
        let wires = [(port(1), "p1"), (port(2), "p2")]
            .map(|(port, name)| (port, Wire::netdev(name).expect("a netdev")));
        let options = Options {
            platform: platform(APPLIANCE),
            salt: 7,
            boot: 1,
            wires: wires.into(),
            plugs: BTreeMap::new(),
            faults: FaultPlan::default(),
        };
        let server = Server::new(options, listener).expect("a chip");
        let stopper = server.stopper();
        let thread = std::thread::spawn(move || server.run().expect("it runs"));
        let mut client = Client::connect(&dir.path().join("sdk.sock"), "test").expect("a chip");
        client.number(&Request::Subscribe(wants::LINKS)).expect("a chip");
        client.commit(&bridge(2)).expect("room");
        test(&netdev, ends, &mut client);
        stopper.stop();
        assert_eq!(thread.join().expect("no panic"), End::Stopped);
    });
    match outcome {
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::StorageFull
            ) =>
        {
            println!("skipped: no network namespace: {error}");
        }
        outcome => outcome.expect("a namespace"),
    }
}
/// Brings both links up.
fn link_up(netdev: &Netdev, ends: [u32; 2], client: &mut Client) {
    ends.iter().for_each(|end| netdev.set_up(*end, true).expect("up"));
    for _ in 0..2 {
        let up = client.notice(PATIENCE).expect("a chip");
        assert!(matches!(up, Some(Notice::Event(Event::Link(_, true)))), "{up:?}");
    }
}

#[test]
fn frames_pass_between_netdevs_and_links_are_followed() {
    with_wires(|netdev, ends, client| {
        link_up(netdev, ends, client);
        let [from, to] = ends.map(|end| lanyard_netdev::PacketSocket::open(end).expect("a socket"));
        let bytes = frame(station(2), station(1));
        from.send(&bytes).expect("sent");
        let start = Instant::now();
        loop {
            match to.receive().expect("up") {
                Some(packet) if packet.frame == bytes => break,
                Some(_) => {}
                None => assert!(start.elapsed() < PATIENCE, "no frame"),
            }
            std::thread::yield_now();
        }
    });
}

/// The links of members of a port-channel are checked every few milliseconds: docs/etherchannel.md, "Times".
#[test]
fn a_lost_link_of_a_member_is_noticed_at_once() {
    with_wires(|netdev, ends, client| {
        link_up(netdev, ends, client);
        client.commit(&bundle(1, &[1, 2])).expect("room");
        client.commit(&[channel(1, &[1, 2], &[1, 2])]).expect("taken");
        let mut times = Vec::new();
        for round in 0..9 {
            let (end, member) = (ends[round % 2], port(1 + (round % 2) as u16));
            for up in [false, true] {
                let start = Instant::now();
                netdev.set_up(end, up).expect("set");
                assert_eq!(
                    client.notice(PATIENCE).expect("a chip"),
                    Some(Notice::Event(Event::Link(member, up)))
                );
                if !up {
                    times.push(start.elapsed());
                }
            }
        }
        times.sort_unstable();
        println!("a lost link is noticed after {:?} (median), {times:?}", times[4]);
        assert!(times[4] < Duration::from_millis(20), "{times:?}");
    });
}

/// A device in another language, written from docs/sdk.md: tests/sdk/device.py.
#[test]
fn a_device_in_python_speaks_the_protocol() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("sdk.sock");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/sdk/device.py");
    let child = Command::new("python3").arg(script).arg(&socket).stdout(std::process::Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        println!("skipped: no python3");
        return;
    };
    let mut line = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("its first line");
    assert_eq!(&line, b"ready\n");
    let outcome = std::panic::catch_unwind(|| drive(&socket));
    let _ = child.kill();
    let _ = child.wait();
    outcome.expect("the device does what docs/sdk.md says");
}

fn drive(socket: &std::path::Path) {
    let mut client = Client::connect(socket, "test").expect("a device");
    assert_eq!((client.welcome().platform.as_str(), client.welcome().bulk), ("trampoline", 64));
    client.number(&Request::Subscribe(wants::LINKS)).expect("a device");
    let routes: Vec<_> =
        (0..600).map(|n| route(&format!("10.{}.{}.0/24", n / 250, n % 250), Some(1))).collect();
    let members =
        vec![channel(1, &[1, 2], &[1, 2]), Operation::Watched(InstanceId::default(), port(2), true)];
    let setup = [bridge(2), router()[4..].to_vec(), router()[..4].to_vec(), members].concat();
    client.commit(&setup).expect("room");
    client.commit(&routes[..500]).expect("room");
    // The device has room for 512 routes: a transaction that exceeds it changes nothing.
    let SdkError::Refused(refused) = client.commit(&routes[500..]).expect_err("no room") else {
        unreachable!("gone")
    };
    assert_eq!((refused.at, refused.table.as_str(), refused.units), (12, "trampoline/routes", (512, 512)));
    assert_eq!(refused.shortage.map(|shortage| shortage.name()), Some("full"));
    let usage = client.usage().expect("a device");
    assert_eq!(
        (usage[0].path.as_str(), usage[0].used, usage[0].size, usage[0].refused),
        ("trampoline/routes", 500, 512, 1)
    );
    // The configuration is read back in pages, unchanged.
    let entries = client.entries().expect("a device");
    assert_eq!(entries.len(), setup.len() - duplicates() + 500);
    assert!(routes[..500].iter().all(|route| entries.contains(route)));
    client
        .commit(&routes[..1].iter().map(|_| route("10.0.0.0/24", None)).collect::<Vec<_>>())
        .expect("a device");
    assert_eq!(client.usage().expect("a device")[0].used, 499);
    // The device brings a link up when it gets this frame to send.
    client
        .packet(
            lanyard_asic::sdk::cpu::CpuHeader { to: Some(port(1)), ..Default::default() },
            &frame(station(1), station(2)),
        )
        .expect("sent");
    assert_eq!(client.notice(PATIENCE).expect("a device"), Some(Notice::Event(Event::Link(port(1), true))));
    let Ok(Some(Notice::Packet(header, bytes))) = client.notice(PATIENCE) else { unreachable!("no frame") };
    assert_eq!((header.port, bytes), (Some(port(1)), frame(station(1), station(2))));
}

/// The number of operations that occur twice in the set-up: ports 1 and 2 are in both of its lists.
fn duplicates() -> usize {
    2
}
