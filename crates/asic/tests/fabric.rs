//! Head-of-line blocking and its remedies: the same traffic through one queue at the ingress, through virtual output
//! queues, and with buffers at the egress. The clock is simulated, so the figures are the same on every machine.

mod common;

use common::{UFT, platform, port};
use lanyard_asic::chip::fabric::Fabric;
use lanyard_asic::platform::{Buffering, Platform};
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::generate::Rng;
use lanyard_types::PortId;

/// The bytes of a frame without FCS, and the nanoseconds that it takes at 40 Gbit/s with preamble and gap.
const BYTES: usize = 1476;
const FRAME_NS: u64 = 300;
const FRAMES: u64 = 4000;
const SATURATED: u64 = 1500;

fn fabric(at: Buffering, slices: u16, queue: u32) -> (Platform, Fabric) {
    let mut platform = platform(UFT);
    platform.buffer.at = at;
    platform.buffer.slices = slices;
    platform.buffer.queue = queue;
    let fabric = Fabric::new(&platform);
    (platform, fabric)
}

/// Port 1 sends every second frame to port 9, to which no other port sends. The other frames go to port 8, which 24
/// more ports overload. Returns the fraction of the frames for port 9 that have arrived, and the number of their drops.
fn victim(at: Buffering) -> (f64, u64) {
    let (_, mut fabric) = fabric(at, 6, 64);
    let mut arrived = 0;
    for tick in 0..FRAMES {
        let now = Timestamp::from_nanos(tick * FRAME_NS);
        fabric.enqueue(now, port(1), vec![(port(if tick % 2 == 0 { 8 } else { 9 }), vec![0; BYTES])]);
        for other in 13..=36 {
            fabric.enqueue(now, port(other), vec![(port(8), vec![0; BYTES])]);
        }
        arrived += fabric.poll(now).iter().filter(|(_, to, _)| *to == port(9)).count();
    }
    assert!(fabric.drops(port(8)) > 0, "port 8 is overloaded");
    (arrived as f64 / (FRAMES / 2) as f64, fabric.drops(port(9)))
}

#[test]
fn a_busy_port_holds_up_an_idle_one_unless_each_has_a_queue() {
    let (fifo, fifo_drops) = victim(Buffering::Fifo);
    let (voq, voq_drops) = victim(Buffering::Ingress);
    let (egress, egress_drops) = victim(Buffering::Egress);
    println!(
        "arrived of the victim's frames: fifo {fifo:.3}, virtual output queues {voq:.3}, egress {egress:.3}"
    );
    assert!(fifo < 0.5 && fifo_drops > 0, "{fifo}, {fifo_drops} dropped");
    assert!(voq > 0.99 && voq_drops == 0, "{voq}, {voq_drops} dropped");
    assert!(egress > 0.99 && egress_drops == 0, "{egress}, {egress_drops} dropped");
}

/// Every port sends at its full rate to random ports. Returns the fraction of the ports' capacity that is used.
fn saturation(at: Buffering) -> f64 {
    let (platform, mut fabric) = fabric(at, 36, 256);
    let ports: Vec<u16> = platform.ports().map(|(number, _)| number).collect();
    let mut rng = Rng::new(11);
    let mut sent = 0;
    for tick in 0..SATURATED {
        let now = Timestamp::from_nanos(tick * FRAME_NS);
        for from in &ports {
            let to = ports[(rng.next_u64() % ports.len() as u64) as usize];
            fabric.enqueue(now, port(*from), vec![(port(to), vec![0; BYTES])]);
        }
        sent += fabric.poll(now).len() as u64;
    }
    sent as f64 / (SATURATED * ports.len() as u64) as f64
}

#[test]
fn fifo_queues_saturate_at_the_theoretical_throughput() {
    let (fifo, voq) = (saturation(Buffering::Fifo), saturation(Buffering::Ingress));
    println!("throughput at saturation: fifo {fifo:.3} (theory 0.586), virtual output queues {voq:.3}");
    assert!((0.56..0.63).contains(&fifo), "{fifo}");
    assert!(voq > 0.97, "{voq}");
}

#[test]
fn a_flood_crosses_once_for_each_slice_and_nothing_is_lost_unnoticed() {
    for at in [Buffering::Fifo, Buffering::Ingress, Buffering::Egress] {
        let (platform, mut fabric) = fabric(at, 6, 8);
        let copies = |from: u16| {
            (1..=36).filter(|to| *to != from).map(|to| (port(to), vec![0; 60])).collect::<Vec<_>>()
        };
        fabric.enqueue(Timestamp::default(), port(1), copies(1));
        assert_eq!(fabric.crossings(), 6, "{at:?}");
        // Twenty floods at once into queues of eight frames: every copy is sent or counted as dropped.
        let mut dropped = 0;
        for _ in 0..20 {
            dropped += fabric.enqueue(Timestamp::default(), port(1), copies(1)).len();
        }
        let sent = fabric.poll(Timestamp::from_secs(1)).len();
        assert_eq!(sent + dropped, 21 * 35, "{at:?}");
        let counted: u64 = platform.ports().map(|(number, _)| fabric.drops(port(number))).sum();
        assert_eq!((counted as usize, fabric.waiting()), (dropped, 0));
        assert!(dropped > 0);
    }
}

/// A port sends frames for one port as well as floods: however full that port's queues are, they leave it in the order in which
/// they came.
#[test]
fn no_frame_of_a_stream_overtakes_another_one() {
    for at in [Buffering::Ingress, Buffering::Egress] {
        let (_, mut fabric) = fabric(at, 6, 4096);
        let mut rng = Rng::new(3);
        let (mut now_ns, mut sent, mut left) = (0, [0_u32; 37], [0_u32; 37]);
        let mut floods = 0;
        let mut check = |frames: Vec<(Timestamp, PortId, Vec<u8>)>| {
            for (_, to, frame) in frames.iter().filter(|(_, to, _)| *to == port(2)) {
                let (from, number) =
                    (usize::from(frame[0]), u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]));
                assert!(
                    number > left[from],
                    "{at:?}: frame {number} of port {from} leaves {to} behind {}",
                    left[from]
                );
                left[from] = number;
            }
        };
        for _ in 0..FRAMES {
            now_ns += rng.next_u64() % FRAME_NS;
            let now = Timestamp::from_nanos(now_ns);
            // Ports of several slices overload port 2.
            for from in [1, 3, 9, 20] {
                let number = sent[usize::from(from)] + 1;
                sent[usize::from(from)] = number;
                let mut frame = vec![from as u8];
                frame.extend(number.to_be_bytes());
                frame.resize(60 + (rng.next_u64() % 1400) as usize, 0);
                let flood = rng.next_u64().is_multiple_of(4);
                floods += u32::from(flood);
                let to = if flood { vec![2, 5, 30] } else { vec![2] };
                let copies = to.into_iter().map(|to| (port(to), frame.clone())).collect();
                fabric.enqueue(now, port(from), copies);
            }
            check(fabric.poll(now));
        }
        check(fabric.poll(Timestamp::from_secs(10)));
        assert!(
            floods > 1000 && fabric.drops(port(2)) > 0 && fabric.waiting() == 0,
            "{at:?}: {floods} floods"
        );
    }
}

#[test]
fn a_port_sends_no_faster_than_it_can() {
    let (_, mut fabric) = fabric(Buffering::Ingress, 6, 4096);
    for _ in 0..1000 {
        fabric.enqueue(Timestamp::default(), port(1), vec![(port(2), vec![0; BYTES])]);
    }
    assert_eq!(fabric.poll(Timestamp::from_nanos(99 * FRAME_NS)).len(), 100);
    assert_eq!(fabric.next(), Some(Timestamp::from_nanos(100 * FRAME_NS)));
}

#[test]
fn frames_that_pass_leave_as_if_they_had_waited() {
    for at in [Buffering::Ingress, Buffering::Egress, Buffering::Fifo] {
        let ((_, mut queues), (_, mut passes)) = (fabric(at, 4, 4), fabric(at, 4, 4));
        let mut rng = Rng::new(5);
        let (mut now_ns, mut passed) = (0, 0);
        for _ in 0..FRAMES {
            // Sometimes the ports get idle, and sometimes their queues get full.
            now_ns += rng.next_u64() % (FRAME_NS / 4);
            let now = Timestamp::from_nanos(now_ns);
            let [from, to] = [1, 2].map(|_| port(1 + (rng.next_u64() % 8) as u16));
            let frame = vec![0; 60 + (rng.next_u64() % 1400) as usize];
            let lost = queues.enqueue(now, from, vec![(to, frame.clone())]);
            let want = queues.poll(now);
            let mut left = Vec::new();
            if passes.pass(now, from, to, frame.len()) {
                assert!(lost.is_empty(), "{at:?}");
                passed += 1;
                left.push((now, to, frame));
            } else {
                assert_eq!(passes.enqueue(now, from, vec![(to, frame)]), lost, "{at:?}");
            }
            left.extend(passes.poll(now));
            // Frames that leave different ports at one time have no order.
            let sorted = |mut left: Vec<(Timestamp, PortId, Vec<u8>)>| {
                left.sort();
                left
            };
            assert_eq!(sorted(left), sorted(want), "{at:?}");
            assert_eq!((passes.next(), passes.crossings()), (queues.next(), queues.crossings()), "{at:?}");
        }
        let drops = |fabric: &Fabric| (1..=8).map(|at| fabric.drops(port(at))).sum::<u64>();
        assert_eq!(drops(&passes), drops(&queues));
        println!("{at:?}: {passed} of {FRAMES} passed, {} dropped", drops(&passes));
        assert_eq!(passed > 0, at != Buffering::Fifo);
        assert!(drops(&passes) > 0, "{at:?}: no queue was full");
    }
}
