//! The tester over wires: the result of a trial must agree with what happened.

#![allow(clippy::unwrap_used)] // a failed step fails the test

use lanyard_bench::bed::set_features;
use lanyard_bench::dut::{Executable, Kind};
use lanyard_bench::testbed::{Setup, TestBed};
use lanyard_tester::os::{Netns, cannot_measure};
use lanyard_tester::traffic::{Cast, CountAt, Hosts, Ip, Order, Stream};
use lanyard_tester::trial::{Offer, Outcome, Tester};
use lanyard_tester::{Options, Port, PortTester, SendMethod};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static ALONE: Mutex<()> = Mutex::new(());

/// Permission to send, or `None` when this machine cannot run the test; the reason is printed then.
fn alone() -> Option<MutexGuard<'static, ()>> {
    if let Some(why) = cannot_measure() {
        println!("skipped: {why}");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Two ports joined by a wire, in a namespace each.
struct Wire {
    near: Netns,
    _far: Netns,
    tester: PortTester,
}

impl Wire {
    fn new(count_at: CountAt) -> Self {
        Self::with(count_at, "")
    }

    fn with(count_at: CountAt, extra: &str) -> Self {
        let (near, far) = (Netns::new().unwrap(), Netns::new().unwrap());
        near.ip(&format!("link add t0 up {extra} type veth peer name t1 {extra} netns {}\n", far.path()))
            .unwrap();
        far.ip("link set t1 up\n").unwrap();
        for (netns, device) in [(&near, "t0"), (&far, "t1")] {
            set_features(netns, device, &["gro", "on"]).unwrap();
        }
        let ports = vec![Port::new(&near, "t0").unwrap(), Port::new(&far, "t1").unwrap()];
        let tester = PortTester::new(ports, Options { count_at, ..Options::default() }).unwrap();
        Self { near, _far: far, tester }
    }

    fn burst(&mut self, streams: Vec<(usize, Stream)>, frames: u64) -> Outcome {
        self.tester.trial(&Offer::burst(streams, frames)).unwrap()
    }
}

/// The `lanyard` that is built beside the tests.
fn lanyard() -> Executable {
    let here = std::env::current_exe().unwrap();
    Executable::new(Some(&here.parent().unwrap().with_file_name("lanyard"))).unwrap()
}

/// Asserts that no frame was lost, duplicated, late, corrupted or foreign.
#[track_caller]
fn assert_clean(outcome: &Outcome, frames: u64, what: &str) {
    assert_eq!((outcome.cut_short.as_deref(), outcome.unidentified), (None, 0), "{what}");
    for s in &outcome.streams {
        assert_eq!((s.sent, s.received, s.lost()), (frames, frames, 0), "{what}: {s:?}");
        assert_eq!((s.duplicated, s.reordered, s.corrupted), (0, 0, 0), "{what}: {s:?}");
    }
}

#[test]
fn every_kind_of_frame_crosses_a_wire() {
    let Some(_alone) = alone() else { return };
    for at in [CountAt::Tc, CountAt::Xdp, CountAt::Socket] {
        let mut wire = Wire::with(at, "mtu 9198");
        let mut check = |stream: Stream| {
            let stream = Stream { verify: stream.size >= 64, stamp: true, ..stream };
            let outcome = wire.burst(vec![(0, stream)], 500);
            assert_clean(&outcome, 500, &format!("{at:?} {stream:?}"));
            assert_eq!(outcome.streams[0].received_at, [0, 500]);
            assert_eq!(outcome.latency().count(), 500);
        };
        let many = Hosts { first: 0x1_fff0, count: 1000 };
        for size in [32, 60, 63, 64, 65, 128, 1518, 2000, 3000] {
            check(Stream::new().size(size));
        }
        for vlan in [Some(7), None] {
            for size in [84, 1518] {
                check(Stream { vlan, ip: Ip::V6, ..Stream::new() }.size(size));
                check(Stream { vlan, pcp: if vlan.is_some() { 5 } else { 0 }, ..Stream::new() }.size(size));
                check(
                    Stream { vlan, src: many, dst: many, order: Order::Random, ..Stream::new() }.size(size),
                );
                for ip in [Ip::V4, Ip::V6] {
                    check(Stream { vlan, ip, cast: Cast::Broadcast, ..Stream::new() }.size(size));
                    check(Stream { vlan, ip, cast: Cast::Multicast, dst: many, ..Stream::new() }.size(size));
                    let next_hop = Some([2, 0, 0, 0, 0, 1]);
                    check(Stream { vlan, ip, next_hop, dst: many, ..Stream::new() }.size(size));
                }
            }
        }
        // Longer than a page: through a socket.
        check(Stream::new().size(9018));
    }
}

#[test]
fn every_way_of_sending_makes_the_same_frames() {
    let Some(_alone) = alone() else { return };
    let mut wire = Wire::new(CountAt::Xdp);
    for way in [SendMethod::Live, SendMethod::Xsk, SendMethod::Socket] {
        if let Err(why) = wire.tester.send_by(way) {
            println!("skipped: {way:?}: {why:#}");
            continue;
        }
        let both = |size| {
            let one = Stream { verify: true, stamp: true, ..Stream::new() }.size(size);
            let other = Stream { id: 1, ip: Ip::V6, vlan: Some(9), rate_pps: Some(5000), ..one };
            vec![(0, one), (0, other), (1, Stream { id: 2, ..one })]
        };
        for size in [84, 1518] {
            // More frames than the queue takes at once.
            assert_clean(&wire.burst(both(size), 5000), 5000, &format!("{way:?} {size}"));
        }
    }
}

#[test]
fn a_port_that_loses_frames_redirected_by_xdp_is_sent_to_by_socket() {
    let Some(_alone) = alone() else { return };
    let (near, far) = (Netns::new().unwrap(), Netns::new().unwrap());
    near.ip(&format!("link add t0 up type veth peer name p0 netns {}\n", far.path())).unwrap();
    far.ip("link set p0 up\n").unwrap();
    let tester = PortTester::new(vec![Port::new(&near, "t0").unwrap()], Options::default()).unwrap();
    let engine = tester.about().engine;
    println!("{engine}");
    assert!(engine.contains("socket: what XDP redirects here would be lost"), "{engine}");
}

/// Root of a user namespace may not load BPF: the tester sends and receives through sockets, and the report
/// says so.
#[test]
fn without_the_right_to_load_bpf_there_are_sockets() {
    let Some(_alone) = alone() else { return };
    let here = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]);
        command.arg(here.parent().unwrap().with_file_name("lanyard")).arg("bench").args(arguments);
        let out = command.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    };
    let no_bpf = run(&["profile", "--dut", "bridge"]);
    if !no_bpf.contains("loading a BPF object") {
        println!("skipped: {no_bpf}");
        return;
    }
    let path = report.to_str().unwrap();
    let measure =
        ["--tests", "throughput", "--sizes", "64", "--rounds", "1", "--window", "100", "--json", path];
    let printed = run(&[&["rfc2544", "--dut", "bridge,lanyard-tc"], &measure[..]].concat());
    if printed.contains("another lanyard bench is running") {
        println!("skipped: {printed}");
        return;
    }
    assert!(printed.contains("through sockets, for want of BPF"), "{printed}");
    assert!(printed.contains("lanyard-tc: not measured to the end: loading a BPF"), "{printed}");
    let text = std::fs::read_to_string(&report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let bridge = &report["series"][0];
    println!("{printed}");
    assert_eq!(bridge["device"], "bridge", "{text}");
    assert!(bridge["rounds"][0].as_f64().is_some_and(|pps| pps > 1_000.0), "{text}");
}

#[test]
fn streams_of_both_ways_and_all_sizes_at_once() {
    let Some(_alone) = alone() else { return };
    let mut wire = Wire::new(CountAt::Xdp);
    let stream = |id: u16, size| Stream { id, verify: true, stamp: true, ..Stream::new() }.size(size);
    let streams: Vec<(usize, Stream)> =
        (0..40).map(|n| (usize::from(n) % 2, stream(1000 + n, 64 + 36 * usize::from(n)))).collect();
    let outcome = wire.burst(streams, 300);
    assert_clean(&outcome, 300, "forty streams");
    let arrived: Vec<&[u64]> = outcome.streams.iter().map(|s| &s.received_at[..]).collect();
    for (n, arrived) in arrived.iter().enumerate() {
        assert_eq!(*arrived, if n % 2 == 0 { [0, 300] } else { [300, 0] }, "stream {n}");
    }
    assert_eq!(outcome.streams[7].id, 1007);
}

#[test]
fn a_rate_is_kept_within_one_percent() {
    let Some(_alone) = alone() else { return };
    let mut wire = Wire::new(CountAt::Xdp);
    for rate in [100, 7_000, 250_000] {
        let stream = Stream { rate_pps: Some(rate), ..Stream::new() };
        let outcome = wire.tester.trial(&Offer::new(vec![(0, stream)], Duration::from_millis(500))).unwrap();
        let (sent, due) = (outcome.streams[0].sent as f64, f64::from(rate) / 2.0);
        println!("{rate}: sent {sent} of {due}, {:.1}/s", outcome.streams[0].tx_pps());
        // Never too many frames, however loaded the machine is; too few only when the machine gave the sender
        // no time.
        assert!(sent <= due + 2.0, "{rate}: {sent} sent, {due} due");
        assert_clean(&outcome, outcome.streams[0].sent, "a paced stream");
    }
}

#[test]
fn a_burst_is_exact_and_a_rate_can_change() {
    let Some(_alone) = alone() else { return };
    let mut wire = Wire::new(CountAt::Xdp);
    assert_clean(&wire.burst(vec![(0, Stream::new())], 1), 1, "one frame");
    let stream = Stream { rate_pps: Some(20_000), ..Stream::new() };
    let mut offer = Offer::new(vec![(0, stream)], Duration::from_millis(400));
    let change = lanyard_tester::trial::RateChange { after: Duration::from_millis(200), factor: 0.5 };
    offer.change = Some(change);
    let outcome = wire.tester.trial(&offer).unwrap();
    let sent = outcome.streams[0].sent;
    assert!(sent <= 6003, "{sent}");
}

#[test]
fn a_link_that_goes_down_ends_the_trial_and_keeps_its_counts() {
    let Some(_alone) = alone() else { return };
    let mut wire = Wire::new(CountAt::Xdp);
    let near = wire.near.try_clone().unwrap();
    let stream = Stream { rate_pps: Some(10_000), ..Stream::new() };
    let offer = Offer::new(vec![(0, stream)], Duration::from_secs(60));
    let down = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        near.ip("link set t0 down\n").unwrap();
    });
    let outcome = wire.tester.trial(&offer).unwrap();
    down.join().unwrap();
    let why = outcome.cut_short.unwrap();
    assert!(why.contains("t0 is down") || why.contains("t1 has no link"), "{why}");
    assert!(outcome.streams[0].received > 0);
    // A port that is down: an error before anything is sent.
    let why = wire.tester.trial(&offer).unwrap_err().to_string();
    assert!(why.contains("t0 is down"), "{why}");
    wire.near.ip("link set t0 up\n").unwrap();
    assert_clean(&wire.burst(vec![(0, Stream::new())], 10), 10, "up again");
}

#[test]
fn impossible_streams_and_ports_are_refused() {
    let Some(_alone) = alone() else { return };
    let mut wire = Wire::new(CountAt::Xdp);
    let mut check = |streams: Vec<(usize, Stream)>, word: &str| {
        let why = wire.tester.trial(&Offer::new(streams, Duration::from_secs(1))).unwrap_err();
        assert!(format!("{why:#}").contains(word), "{why:#}");
    };
    check(vec![], "no stream");
    check(vec![(2, Stream::new())], "no port 2");
    check(vec![(0, Stream::new()), (1, Stream::new())], "the number 0");
    check(vec![(0, Stream::new().size(10))], "frame size 10");
    assert!(Port::new(&wire.near, "no-such").is_err());
    wire.near.ip("link add idle type veth peer name other\n").unwrap();
    let idle = Port::new(&wire.near, "idle").unwrap();
    let why = PortTester::new(vec![idle], Options::default()).err().unwrap();
    assert!(format!("{why:#}").contains("idle is down"), "{why:#}");
}

#[test]
fn every_device_under_test_is_crossed() {
    let Some(_alone) = alone() else { return };
    let setup = Setup { ports: 3, lanyard: lanyard(), ..Setup::new().unwrap() };
    for kind in Kind::ALL {
        if let Some(why) = kind.unavailable(&setup.lanyard) {
            println!("skipped: {}: {why}", kind.name());
            continue;
        }
        let wire = matches!(kind, Kind::BareTc | Kind::BareTcPeer | Kind::BareXdp);
        let ports = if wire { 2 } else { 3 };
        let mut bed = TestBed::up(kind, &Setup { ports, ..setup.clone() }).unwrap();
        let six = if bed.routes() { Ip::V6 } else { Ip::V4 };
        for ip in [Ip::V4, six] {
            bed.learn(20, ip).unwrap();
            let stream = |(id, from, to)| {
                let stream = bed.stream(from, to, 20);
                (
                    from,
                    Stream { id, ip, verify: true, stamp: true, rate_pps: Some(2_000), ..stream }.size(128),
                )
            };
            let ways: &[(u16, usize, usize)] =
                if wire { &[(0, 0, 1), (1, 1, 0)] } else { &[(0, 0, 1), (1, 1, 2), (2, 2, 0)] };
            let offer = Offer::burst(ways.iter().copied().map(stream).collect(), 200);
            let mut outcome = bed.trial(&offer).unwrap();
            // A device that forwards in a program may get no processor time on a busy machine.
            for _ in 0..if kind.own_threads() { 10 } else { 0 } {
                if outcome.total(|s| s.lost()) > 0 {
                    outcome = bed.trial(&offer).unwrap();
                }
            }
            assert_clean(&outcome, 200, kind.name());
            for (s, (_, _, to)) in outcome.streams.iter().zip(ways) {
                assert_eq!(s.received_at[*to], 200, "{}", kind.name());
            }
        }
        println!("{}: {}", kind.name(), bed.detail());
    }
}
