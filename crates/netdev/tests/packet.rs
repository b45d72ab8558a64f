//! Tests packet sockets and rings against the kernel, each test in a network namespace of its own that ends with its
//! thread.
//!
//! Without the right to make namespaces a test prints `skipped:` and the reason; `unshare -Urn` gives that right.

#![allow(clippy::unwrap_used, clippy::panic)]

use lanyard_netdev::{Netdev, PacketRing, PacketSocket, RingShape, Veth, netns, sysctl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const SHAPE: RingShape = RingShape { blocks: 4, block_size: 16 << 10, block_age_ms: 1, vnet_header: false };
/// The length of a frame, and the number of frames that the ring cannot hold.
const LONG: usize = 1400;
const MANY: usize = 200;

/// Runs `test` with both ends of an idle veth pair, or prints why this user may not make a namespace.
fn at_a_wire(test: impl FnOnce(&Netdev, u32, u32) + Send) {
    let outcome = netns::run_in_new(|| {
        sysctl::set_disable_ipv6("default", true).unwrap();
        let netdev = Netdev::open().unwrap();
        netdev.create_veth(&Veth { name: "p0", peer: "p1", ..Veth::default() }).unwrap();
        let [p0, p1] = ["p0", "p1"].map(|name| netdev.link(name).unwrap().ifindex);
        netdev.set_up(p0, true).unwrap();
        netdev.set_up(p1, true).unwrap();
        test(&netdev, p0, p1);
    });
    match outcome {
        Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::StorageFull) => {
            println!("skipped: no network namespace: {e}");
        }
        outcome => outcome.unwrap(),
    }
}

/// A frame with this number; every second one is tagged.
fn frame(n: usize, len: usize) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &(n as u32).to_be_bytes()].concat();
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    if n % 2 == 1 {
        frame.splice(12..12, [0x81, 0, 0x60, 10]);
    }
    frame.extend_from_slice(&(n as u32).to_be_bytes());
    frame.resize(len, 0xa5);
    frame
}

/// Waits until `done` returns true, and calls it whenever the socket may have received something.
fn until(socket: &impl AsFd, what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: never");
        poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::from(10u16)).unwrap();
    }
}

#[test]
fn frames_without_room_in_the_ring_are_counted_as_missed() {
    at_a_wire(|_, p0, p1| {
        let sender = PacketSocket::sender(p0).unwrap();
        let mut ring = PacketRing::open(p1, SHAPE).unwrap();
        let tap = PacketSocket::open(p1).unwrap();
        let (mut seen, mut numbers, mut missed) = (0, Vec::new(), 0);
        for round in 1..=2 {
            for n in 0..MANY {
                sender.send(&frame(n, LONG)).unwrap();
                // Wait until the frame has passed the kernel's queue before sending the next, so that none is
                // lost there.
                until(&tap, "the frame's arrival", || {
                    seen += usize::from(tap.receive().unwrap().is_some());
                    seen == (round - 1) * MANY + n + 1
                });
            }
            let socket = ring.socket().clone();
            until(&socket, "the end of every frame", || {
                while let Some(taken) = ring.take(|frame| numbers.push(frame.in_line().to_vec())) {
                    assert!(taken > 0);
                }
                missed += ring.missed().unwrap() as usize;
                numbers.len() + missed == round * MANY
            });
            let most = (SHAPE.blocks * SHAPE.block_size) as usize / LONG;
            assert!(missed >= round * (MANY - most), "{missed} missed, {} taken", numbers.len());
        }
        // The ring has the first frames of each round, in the order in which they were sent.
        assert_eq!(numbers[0], frame(0, LONG));
        assert_eq!(numbers[1], frame(1, LONG));
        let all: Vec<Vec<u8>> = (0..MANY).map(|n| frame(n, LONG)).collect();
        assert!(numbers.iter().all(|frame| all.contains(frame)));
        assert_eq!(ring.missed().unwrap(), 0, "reported once");
    });
}

#[test]
fn a_frame_longer_than_a_block_is_missed() {
    at_a_wire(|netdev, p0, p1| {
        let shape = RingShape { block_size: 4096, ..SHAPE };
        netdev.set_mtu(p0, 9000).unwrap();
        netdev.set_mtu(p1, 9000).unwrap();
        let sender = PacketSocket::sender(p0).unwrap();
        let mut ring = PacketRing::open(p1, shape).unwrap();
        sender.send(&frame(0, 9000)).unwrap();
        sender.send(&frame(2, 60)).unwrap();
        let socket = ring.socket().clone();
        let (mut got, mut missed) = (Vec::new(), 0);
        until(&socket, "both", || {
            ring.take(|frame| got.push(frame.bytes().to_vec()));
            missed += ring.missed().unwrap();
            got.len() as u64 + missed == 2
        });
        assert_eq!((got, missed), (vec![frame(2, 60)], 1));
    });
}

#[test]
fn a_ring_goes_on_after_its_link_was_down() {
    at_a_wire(|netdev, p0, p1| {
        let sender = PacketSocket::sender(p0).unwrap();
        let mut ring = PacketRing::open(p1, RingShape { vnet_header: true, ..SHAPE }).unwrap();
        let socket = ring.socket().clone();
        netdev.set_up(p1, false).unwrap();
        let reported = |socket: &std::os::fd::OwnedFd| {
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::ZERO).unwrap();
            fds[0].revents().unwrap().contains(PollFlags::POLLERR)
        };
        assert!(reported(&socket), "the link is down");
        ring.clear_error();
        assert!(!reported(&socket), "reported once");
        netdev.set_up(p1, true).unwrap();
        until(&socket, "the link", || netdev.link("p0").unwrap().link_up);
        sender.send(&frame(1, 60)).unwrap();
        let mut got = Vec::new();
        until(&socket, "a frame", || {
            ring.take(|frame| {
                assert_eq!((frame.tag(), frame.vnet_header()), (Some([0x81, 0, 0x60, 10]), [0; 10]));
                got.push(frame.in_line().to_vec());
            });
            !got.is_empty()
        });
        assert_eq!(got, [frame(1, 60)]);
        assert_eq!(ring.missed().unwrap(), 0);
    });
}

#[test]
fn refusals() {
    at_a_wire(|_, _, p1| {
        assert!(PacketRing::open(99_999, SHAPE).is_err(), "no such netdev");
        assert!(PacketRing::open(u32::MAX, SHAPE).is_err(), "nor ever one");
        for (blocks, block_size) in [(0, 16 << 10), (4, 0), (4, 1000), (4, 3000)] {
            let refused = PacketRing::open(p1, RingShape { blocks, block_size, ..SHAPE });
            assert!(refused.is_err(), "{blocks} blocks of {block_size} bytes");
        }
    });
}
