//! The generator, the receiver and the devices in the kernel. An error of the tester makes all its figures wrong,
//! so it is tested first: exactly the frames that were sent arrive, to the byte, over a wire that cannot lose
//! any.

#![allow(clippy::unwrap_used)] // a failed step fails the test

use lanyard_bench::bed::{Bed, Traffic, set_features};
use lanyard_bench::dut::{Executable, Kind, PortMode};
use lanyard_bench::rows::forward::{Arm, FrameLoad, Load, SILENT, Settings, Sinks, Source};
use lanyard_tester::os::{Netns, Pinned, cannot_measure, cores, wait_until};
use lanyard_tester::traffic::{CountAt, Generator, Hosts, Order, Receiver, Stream};
use std::net::UdpSocket;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs one test at a time: all namespaces share each core's queue of received frames, and it overflows.
static ALONE: Mutex<()> = Mutex::new(());

/// Permission to send, or `None` when this machine cannot run the test; the reason is printed then.
fn alone() -> Option<MutexGuard<'static, ()>> {
    if let Some(why) = cannot_measure() {
        println!("skipped: {why}");
        return None;
    }
    // The namespaces of a failed test are gone, so its poisoned lock does no harm.
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Two namespaces joined by `tx0` and `rx1`, with NAPI at both ends.
fn wire() -> (Netns, Netns) {
    let (near, far) = (Netns::new().unwrap(), Netns::new().unwrap());
    near.ip(&format!("link add tx0 up type veth peer name rx1 netns {}\n", far.path())).unwrap();
    far.ip("link set rx1 up\n").unwrap();
    set_features(&far, "rx1", &["gro", "on"]).unwrap();
    (near, far)
}

fn settings() -> Settings {
    Settings {
        lanyard: Executable::new(None).unwrap(),
        other: None,
        window: Duration::from_millis(50),
        core: 0,
        other_core: 1 % cores(),
    }
}

#[test]
fn sent_frames_arrive_with_exact_frame_and_byte_counts() {
    let Some(_alone) = alone() else { return };
    let check = |stream: Stream, at: CountAt, bytes_each: u64| {
        let (near, far) = wire();
        let receiver = Receiver::new(&far, &["rx1".to_owned()], at, true).unwrap();
        let mut generator = Generator::new(&near, "tx0", &stream).unwrap();
        let _core = Pinned::to(0).unwrap();
        generator.send(10_000).unwrap();
        assert_eq!(generator.sent().unwrap(), 10_000, "{stream:?}");
        let seen = receiver.arrivals().unwrap();
        let what = (seen.frames, seen.bytes, seen.missing, seen.late);
        assert_eq!(what, (10_000, 10_000 * bytes_each, 0, 0), "{stream:?} {at:?}");
        assert_eq!(receiver.arrivals_at(0).unwrap(), seen);
        assert!(seen.first_ns > 0);
    };
    for at in [CountAt::Tc, CountAt::Xdp] {
        check(Stream::new(), at, 60);
        check(Stream::new().size(1518), at, 1514);
        check(Stream::among(2048).size(512), at, 508);
        check(Stream { dst: SILENT, stamp: true, ..Stream::new() }, at, 60);
        // The tag is in the frame, and XDP sees it. For TC the kernel has removed it and does not count it.
        check(Stream { vlan: Some(7), ..Stream::new() }, at, if at == CountAt::Xdp { 60 } else { 56 });
    }
}

#[test]
fn a_hole_is_seen() {
    let Some(_alone) = alone() else { return };
    let (near, far) = wire();
    let mut generator = Generator::new(&near, "tx0", &Stream::new()).unwrap();
    let receiver = Receiver::new(&far, &["rx1".to_owned()], CountAt::Xdp, true).unwrap();
    // Sequences are checked on each CPU separately, so stay on one CPU.
    let _core = Pinned::to(0).unwrap();
    generator.send(100).unwrap();
    near.ip("link set tx0 down\n").unwrap();
    generator.send(30).unwrap();
    near.ip("link set tx0 up\n").unwrap();
    generator.send(100).unwrap();
    let seen = receiver.arrivals().unwrap();
    assert_eq!((seen.frames, seen.missing, seen.late), (200, 30, 0));
}

#[test]
fn frames_are_good_udp() {
    let Some(_alone) = alone() else { return };
    let (near, far) = wire();
    // Host 1001 is a real host here: its stack accepts the frames only if addresses, lengths and checksum are
    // correct.
    far.ip("link set rx1 address 02:4c:00:00:03:e9\naddr add 10.0.3.233/8 dev rx1\n").unwrap();
    let socket = {
        let _inside = far.enter().unwrap();
        UdpSocket::bind("10.0.3.233:7").unwrap()
    };
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for size in [64, 65, 700, 1518] {
        let stream =
            Stream { src: Hosts::one(1000), dst: Hosts::one(1001), id: 9, ..Stream::new() }.size(size);
        Generator::new(&near, "tx0", &stream).unwrap().send(1).unwrap();
        let mut payload = [0; 2000];
        let (length, from) = socket.recv_from(&mut payload).unwrap();
        assert_eq!(length, size - 4 - 42);
        assert_eq!(from.to_string(), "10.0.3.232:49184");
        assert_eq!(payload[..8], [0x4c, 0x59, 9, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn every_host_speaks() {
    let Some(_alone) = alone() else { return };
    let check = |order: Order, first: u32, count: u32, frames: u32| {
        let bed = Bed::new(1, Traffic::Frames).unwrap();
        let _bridge = Kind::Bridge.up(&bed, &settings().lanyard, PortMode::Access).unwrap();
        let stream = Stream { src: Hosts { first, count }, dst: SILENT, order, ..Stream::new() };
        Generator::new(&bed.sender, "tx0", &stream).unwrap().send(frames).unwrap();
        let table = bed.switch.run("bridge", &["fdb", "show", "dev", "p0", "dynamic"], "").unwrap();
        let mut learned: Vec<&str> = table.lines().filter_map(|line| line.split(' ').next()).collect();
        learned.sort_unstable();
        let mac = |n: u32| format!("02:4c:00:{:02x}:{:02x}:{:02x}", n >> 16 & 0xff, n >> 8 & 0xff, n & 0xff);
        let expected: Vec<String> = (first..first + count).map(mac).collect();
        assert_eq!(learned, expected);
    };
    check(Order::Sequential, 0, 300, 300);
    check(Order::Sequential, 0x1_ff80, 256, 256);
    // 64 hosts in 4,096 draws: the probability that one host is never drawn is 1 in 10^26, and the sequence is the
    // same in each run.
    check(Order::Random, 500, 64, 4096);
}

#[test]
fn a_paced_stream_keeps_its_rate() {
    let Some(_alone) = alone() else { return };
    let (near, _far) = wire();
    let rate = 20_000;
    let mut generator =
        Generator::new(&near, "tx0", &Stream { rate_pps: Some(rate), ..Stream::new() }).unwrap();
    let start = Instant::now();
    generator.run_for(Duration::from_millis(100)).unwrap();
    // Never too many, even on a slow machine: at most a delay of 50 us (one frame) is caught up.
    let due = start.elapsed().as_secs_f64() * f64::from(rate);
    let sent = generator.sent().unwrap() as f64;
    assert!(sent <= due + 2.0, "{sent} frames, {due} due");
    assert!(sent > 0.0);
}

#[test]
fn bad_streams_are_refused() {
    let Some(_alone) = alone() else { return };
    let (near, _far) = wire();
    let check = |stream: Stream, device: &str, word: &str| {
        let why = Generator::new(&near, device, &stream).err().map(|e| format!("{e:#}"));
        assert!(why.as_ref().is_some_and(|w| w.contains(word)), "{stream:?}: {why:?}");
    };
    check(Stream::new().size(63), "tx0", "size 63");
    check(Stream::new().size(1519), "tx0", "size 1519");
    check(Stream { src: Hosts { first: 0, count: 0 }, ..Stream::new() }, "tx0", "hosts");
    check(Stream { src: Hosts { first: 1 << 24, count: 1 }, ..Stream::new() }, "tx0", "hosts");
    check(Stream { vlan: Some(4095), ..Stream::new() }, "tx0", "VLAN");
    check(Stream { rate_pps: Some(1), ..Stream::new() }, "tx0", "rate");
    check(Stream::new(), "no-such", "no device no-such");
}

#[test]
fn devices_under_test_pass_frames() {
    let Some(_alone) = alone() else { return };
    let check = |kind: Kind, load: Load| {
        if let Some(why) = kind.unavailable(&settings().lanyard) {
            println!("skipped: {}: {why}", kind.name());
            return;
        }
        let mut rig = Arm { kind, note: "", load }.up(&settings()).unwrap();
        assert!(rig.round().unwrap() > 0.0, "{} {load:?}", kind.name());
    };
    let frames = |stream, count_at, outputs| {
        Load::Frames(FrameLoad {
            stream,
            count_at,
            outputs,
            ports: PortMode::Access,
            source: Source::Xdp,
            sinks: Sinks::Early,
            attack: None,
        })
    };
    check(Kind::Bridge, frames(Stream::new(), CountAt::Tc, 1));
    check(Kind::Bridge, frames(Stream::among(2048), CountAt::Xdp, 1));
    check(Kind::Bridge, frames(Stream { dst: SILENT, ..Stream::new() }, CountAt::Tc, 4));
    check(Kind::BareTc, frames(Stream::new(), CountAt::Tc, 1));
    check(Kind::BareTcPeer, frames(Stream::new(), CountAt::Tc, 1));
    check(Kind::BareXdp, frames(Stream::new(), CountAt::Xdp, 1));
    check(Kind::Bridge, Load::Ping);
    check(Kind::BareTcPeer, Load::Ping);
}

#[test]
fn a_flood_reaches_every_port_once() {
    let Some(_alone) = alone() else { return };
    let bed = Bed::new(16, Traffic::Frames).unwrap();
    let receiver = Receiver::new(&bed.sink, &bed.receivers(), CountAt::Tc, false).unwrap();
    let _bridge = Kind::Bridge.up(&bed, &settings().lanyard, PortMode::Access).unwrap();
    let stream = Stream { dst: SILENT, ..Stream::new() };
    Generator::new(&bed.sender, "tx0", &stream).unwrap().with_copies(16).send(1000).unwrap();
    let counts = || -> Vec<u64> { (0..16).map(|n| receiver.arrivals_at(n).unwrap().frames).collect() };
    // The last copies may still be queued when the sender returns.
    let all = |counts: &[u64]| counts.iter().all(|frames| *frames >= 1000);
    let _ = wait_until("the copies to arrive", Duration::from_secs(10), || Ok(all(&counts())));
    assert_eq!(counts(), [1000; 16]);
}

#[test]
fn open_vswitch_passes_frames() {
    let Some(_alone) = alone() else { return };
    if let Some(why) = Kind::Ovs.unavailable(&settings().lanyard) {
        println!("skipped: {why}");
        return;
    }
    let load = FrameLoad {
        stream: Stream::among(256),
        count_at: CountAt::Tc,
        outputs: 1,
        ports: PortMode::Access,
        source: Source::Xdp,
        sinks: Sinks::Early,
        attack: None,
    };
    let mut rig = Arm { kind: Kind::Ovs, note: "", load: Load::Frames(load) }.up(&settings()).unwrap();
    assert!(rig.round().unwrap() > 0.0);
    assert!(rig.detail().contains("vSwitch"), "{}", rig.detail());
}
