//! The frames that the soft plane holds and loses: bursts from new stations, and a restart. docs/operations.md has the figures.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::PacketSocket;
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

scenarios! {
    a_burst_of_new_stations: soft;
    frames_lost_by_a_restart: soft;
}

const CONFIG: &str = "vlan 10\ninterface range p1 - 2\n switchport access vlan 10\n";
const BURST: u32 = 10_000;
/// Frames a second across the restart.
const RATE: u32 = 500;
/// Behind its addresses a frame has the EtherType and a mark, and behind these its number.
const MARK: &[u8] = b"\x88\xb5soft";
const NUMBER: std::ops::Range<usize> = 18..22;

/// A frame of `len` bytes from the station with this number.
fn numbered(number: u32, source: [u8; 6], len: usize) -> Frame {
    let mut bytes = [&mac(2)[..], &source, MARK, &number.to_be_bytes()].concat();
    bytes.resize(len, 0);
    Frame(bytes)
}

/// The frames that have arrived so far.
#[derive(Default)]
struct Progress {
    frames: AtomicU32,
    /// The number of the last frame that has arrived, plus one.
    next: AtomicU32,
}

/// Runs `traffic` while a thread takes the frames at host 2, so that its socket never fills. Returns for each of `count` numbers
/// whether its frame has arrived; none may arrive twice.
fn received(bed: &Bed, count: u32, traffic: impl FnOnce(&Progress)) -> Vec<bool> {
    let (over, progress) = (AtomicBool::new(false), Progress::default());
    let host = &bed.host(2).net;
    let wire = host.run(|| PacketSocket::open(host.index("eth0")).unwrap());
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut seen = vec![false; count as usize];
            loop {
                // Read the flag before the socket, so that frames that arrived before the end are still taken.
                let last = over.load(Ordering::Acquire);
                match wire.receive().unwrap() {
                    Some(packet) if packet.outgoing || packet.frame.get(12..18) != Some(MARK) => {}
                    Some(packet) => {
                        let number: [u8; 4] = packet.frame[NUMBER].try_into().unwrap();
                        let number = u32::from_be_bytes(number);
                        let slot = &mut seen[number as usize];
                        assert!(!std::mem::replace(slot, true), "frame {number} arrived twice");
                        progress.frames.fetch_add(1, Ordering::Release);
                        progress.next.store(number + 1, Ordering::Release);
                    }
                    None if last => return seen,
                    None => std::thread::sleep(Duration::from_micros(100)),
                }
            }
        });
        traffic(&progress);
        over.store(true, Ordering::Release);
        receiver.join().unwrap()
    })
}

fn a_burst_of_new_stations(plane: Plane) {
    for len in [60, 1514] {
        let bed = Bed::new(plane, 2, CONFIG);
        bed.exact.set(false);
        bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1]);
        let mut took = Duration::ZERO;
        let seen = received(&bed, BURST, |progress| {
            let began = Instant::now();
            for number in 0..BURST {
                let [.., a, b] = number.to_be_bytes();
                bed.host(1).send(&numbered(number, [2, 0, 0, 0x50, a, b], len));
            }
            took = began.elapsed();
            wait_for("the port to count the frames", || {
                (bed.counters()["p1"].rx >= u64::from(BURST)).then_some(())
            });
            // The frames that the switch has not dropped are still on their way.
            let lost = bed.drops(1, "overrun");
            wait_for("the frames to arrive", || {
                (u64::from(progress.frames.load(Ordering::Acquire)) + lost >= u64::from(BURST)).then_some(())
            });
        });
        let lost = seen.iter().filter(|seen| !**seen).count();
        let rate = f64::from(BURST) / took.as_secs_f64();
        println!(
            "{BURST} frames of {len} bytes from as many new stations at {rate:.0} frames/s: {lost} lost"
        );
        assert_eq!(lost, 0);
        let known = bed.show("show mac address-table dynamic")["total"].as_u64().unwrap();
        assert!(known >= u64::from(BURST), "{known} stations are known");
    }
}

fn frames_lost_by_a_restart(plane: Plane) {
    let bed = Bed::new(plane, 2, CONFIG);
    bed.exact.set(false);
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1]);
    let (stop, sent) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut restart = Duration::ZERO;
    // The number of frames that the ring had no room for: on a busy machine the plane's thread may be off the processor for
    // longer than the ring holds frames. A restart begins counting at 0.
    let mut overruns = 0;
    // Allow for far more frames than are sent during the restart.
    let seen = received(&bed, 600 * RATE, |progress| {
        let flows = |count: u32| {
            let arrived = || progress.frames.load(Ordering::Acquire);
            let wanted = arrived() + count;
            wait_for("frames to arrive", || (arrived() >= wanted).then_some(()));
        };
        let index = bed.host(1).net.index("eth0");
        let sender = bed.host(1).net.run(|| PacketSocket::sender(index)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let began = Instant::now();
                while !stop.load(Ordering::Acquire) {
                    // Send `RATE` frames a second, without drift.
                    let number = sent.load(Ordering::Acquire);
                    let due = Duration::from_secs(1) * number / RATE;
                    std::thread::sleep(due.saturating_sub(began.elapsed()));
                    sender.send(&numbered(number, mac(1), 60).0).unwrap();
                    sent.store(number + 1, Ordering::Release);
                }
            });
            flows(RATE);
            overruns += bed.drops(1, "overrun");
            let began = Instant::now();
            bed.end_daemon(Signal::SIGKILL);
            bed.start();
            restart = began.elapsed();
            flows(RATE);
            stop.store(true, Ordering::Release);
        });
        let all = sent.load(Ordering::Acquire);
        wait_for("the last frame to arrive", || (progress.next.load(Ordering::Acquire) == all).then_some(()));
    });
    let sent = sent.load(Ordering::Acquire) as usize;
    let lost = |number: &usize| !seen[*number];
    let all = (0..sent).filter(lost).count();
    let gap = longest_run((0..sent).map(|number| lost(&number)));
    overruns += bed.drops(1, "overrun");
    println!("a restart of {restart:?} under {RATE} frames/s lost {gap} frames; {overruns} overruns");
    assert!(gap > 0, "the plane forwards without its process: docs/operations.md says otherwise");
    let besides = (all - gap) as u64;
    assert!(besides <= overruns, "{besides} frames were lost besides the restart's, and {overruns} counted");
    let most = restart.as_secs_f64() * f64::from(RATE) * 1.2 + 10.0;
    assert!((gap as f64) < most + overruns as f64, "{gap} frames were lost in {restart:?}");
}

/// The longest run of `true`.
fn longest_run(values: impl Iterator<Item = bool>) -> usize {
    let (mut run, mut longest) = (0, 0);
    for value in values {
        run = if value { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}
