//! The FDB through the interface of the plane: entries of every kind, filters, ageing, events, traps. There are no
//! netdevs: the frames are those of dry runs that learn.

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod common;

use common::{mac, port, vlan};
use lanyard_ebpf::{DryMode, EbpfPlane, Options};
use lanyard_pipeline::state::{FdbTarget, PlaneState, PortState, ReservedAction, VlanState};
use lanyard_plane::{FdbEntry, FdbFilter, FdbKind, Hook, Plane, PlaneEvent};
use lanyard_types::{MacAddr, TrapReason};
use lanyard_wire::{Builder, Tag};

const LEARN: DryMode = DryMode { learn: true, count: false, police: false, gso_size: 0, out_of_band: false };

/// Four access ports, two of VLAN 10 and two of VLAN 20.
fn plane(capacity: u32) -> Option<EbpfPlane> {
    let mut plane = match EbpfPlane::open_private(&Options { fdb_capacity: capacity, ..Options::new("fdb") })
    {
        Ok(plane) => plane,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let mut state = PlaneState::default();
    state.global.fdb_limit = capacity;
    for n in 1..=4 {
        let id = vlan(if n < 3 { 10 } else { 20 });
        state.vlans.insert(id, VlanState::default());
        state.ports.insert(port(n), PortState::access(&format!("e{n}"), u32::from(n), id));
    }
    plane.apply(&state).expect("applied");
    Some(plane)
}

/// Nanoseconds of CLOCK_MONOTONIC, `ago_s` seconds ago.
fn now_ns(ago_s: u64) -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    (now.tv_sec() as u64 - ago_s) * 1_000_000_000 + now.tv_nsec() as u64
}

/// True if the machine has run for longer than 400 s, so that frames of that time can be dated; prints a note
/// if not.
fn has_a_past() -> bool {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    let past = now.tv_sec() > 400;
    if !past {
        println!(
            "skipped: this machine has been up for {} s, and the test is of frames of 400 s ago",
            now.tv_sec()
        );
    }
    past
}

fn learn(plane: &mut EbpfPlane, at: u16, source: MacAddr, ago_s: u64) {
    let frame = Builder::new(MacAddr::BROADCAST, source).ethertype(0x0806).build();
    plane.dry_run(Hook::Tc, port(at), now_ns(ago_s), LEARN, &frame).expect("a dry run");
}

fn entries(plane: &mut EbpfPlane, filter: FdbFilter) -> Vec<FdbEntry> {
    let mut entries = Vec::new();
    plane.fdb_walk(&filter, &mut |entry| entries.push(entry));
    entries.sort_by_key(|entry| (entry.vlan, entry.mac));
    entries
}

fn macs(plane: &mut EbpfPlane, filter: FdbFilter) -> Vec<u8> {
    entries(plane, filter).iter().map(|entry| entry.mac.0[5]).collect()
}

#[test]
fn filters_and_flushes() {
    let Some(mut plane) = plane(10_000) else { return };
    let mut state = plane.state().clone();
    state.fdb.insert((vlan(10), mac(9)), FdbTarget::Static(port(2)));
    state.fdb.insert((vlan(20), mac(8)), FdbTarget::Blackhole);
    state.fdb.insert((vlan(20), mac(7)), FdbTarget::SelfAddress(port(4)));
    plane.apply(&state).expect("applied");
    for (at, n) in [(1, 1), (1, 2), (2, 3), (3, 1), (3, 4), (4, 5)] {
        learn(&mut plane, at, mac(n), 0);
    }
    let all = FdbFilter::default();
    assert_eq!(macs(&mut plane, all), [1, 2, 3, 9, 1, 4, 5, 7, 8]);
    for (filter, want) in [
        (FdbFilter { vlan: Some(vlan(10)), ..all }, vec![1, 2, 3, 9]),
        (FdbFilter { port: Some(port(3)), ..all }, vec![1, 4]),
        (FdbFilter { mac: Some(mac(1)), ..all }, vec![1, 1]),
        (FdbFilter { kind: Some(FdbKind::Static), ..all }, vec![9, 8]),
        (FdbFilter { kind: Some(FdbKind::SelfAddress), ..all }, vec![7]),
        (FdbFilter { vlan: Some(vlan(20)), port: Some(port(3)), mac: Some(mac(1)), ..all }, vec![1]),
    ] {
        assert_eq!(macs(&mut plane, filter), want, "{filter:?}");
    }
    let blackhole = entries(&mut plane, FdbFilter { mac: Some(mac(8)), ..all });
    assert_eq!((blackhole[0].port, blackhole[0].age_s), (None, 0));
    for (filter, removed, left) in [
        (FdbFilter { kind: Some(FdbKind::Static), ..all }, 0, vec![1, 2, 3, 9, 1, 4, 5, 7, 8]),
        (FdbFilter { port: Some(port(2)), ..all }, 1, vec![1, 2, 9, 1, 4, 5, 7, 8]),
        (FdbFilter { mac: Some(mac(1)), vlan: Some(vlan(20)), ..all }, 1, vec![1, 2, 9, 4, 5, 7, 8]),
        (FdbFilter { vlan: Some(vlan(20)), ..all }, 2, vec![1, 2, 9, 7, 8]),
        (all, 2, vec![9, 7, 8]),
    ] {
        assert_eq!(plane.fdb_flush(&filter), removed, "{filter:?}");
        assert_eq!(macs(&mut plane, all), left, "{filter:?}");
    }
    assert_eq!(plane.fdb_dynamic(), 0);
    state.fdb.clear();
    plane.apply(&state).expect("applied");
    assert_eq!(macs(&mut plane, all), Vec::<u8>::new());
}

#[test]
fn control_entries_stand_above_learned_ones() {
    let Some(mut plane) = plane(10_000) else { return };
    learn(&mut plane, 1, mac(1), 0);
    let mut state = plane.state().clone();
    state.fdb.insert((vlan(10), mac(1)), FdbTarget::Static(port(2)));
    plane.apply(&state).expect("applied");
    assert_eq!(plane.fdb_dynamic(), 0, "the learned entry gave way");
    learn(&mut plane, 1, mac(1), 0);
    let found = entries(&mut plane, FdbFilter::default());
    assert_eq!(
        found.iter().map(|entry| (entry.port, entry.kind)).collect::<Vec<_>>(),
        [(Some(port(2)), FdbKind::Static)]
    );
    assert_eq!(plane.fdb_flush(&FdbFilter::default()), 0);
}

#[test]
fn ageing_goes_by_the_last_frame() {
    if !has_a_past() {
        return;
    }
    let Some(mut plane) = plane(10_000) else { return };
    assert_eq!(plane.fdb_sweep(Some(300)).next_in_s, None, "an empty FDB has no next expiry");
    for (n, ago_s) in [(1, 400), (2, 301), (3, 200), (4, 0)] {
        learn(&mut plane, 1, mac(n), ago_s);
    }
    let sweep = plane.fdb_sweep(None);
    assert_eq!((sweep.aged, sweep.next_in_s), (0, None), "ageing is off");
    let sweep = plane.fdb_sweep(Some(300));
    assert_eq!(sweep.aged, 2);
    assert!(matches!(sweep.next_in_s, Some(98..=100)), "{sweep:?}");
    let ages: Vec<u32> = entries(&mut plane, FdbFilter::default()).iter().map(|entry| entry.age_s).collect();
    assert!(matches!(ages[..], [200..=202, 0..=2]), "{ages:?}");
    let mut aged = Vec::new();
    plane.poll_events(&mut |event| {
        if let PlaneEvent::FdbAged(entry) = event {
            aged.push(entry.mac);
        }
    });
    aged.sort();
    assert_eq!(aged, [mac(1), mac(2)]);
}

#[test]
fn a_full_table_refuses_and_counts() {
    let Some(mut plane) = plane(8) else { return };
    for n in 1..=20 {
        learn(&mut plane, 1, mac(n), 0);
    }
    assert_eq!(plane.fdb_dynamic(), 8);
    let table = plane.resources().into_iter().find(|table| table.name == "fdb").expect("the FDB");
    assert_eq!((table.size, table.used, table.high_water, table.refused), (8, 8, 8, 12));
    assert!(table.bytes > 0);
}

#[test]
fn a_hundred_thousand_hosts() {
    let Some(mut plane) = plane(300_000) else { return };
    let address = |n: u32| MacAddr::from_u64(0x0200_0000_0000 | (u64::from(n) * 7));
    let mut waiting = 0;
    for n in 0..100_000_u32 {
        learn(&mut plane, 1 + (n % 2) as u16, address(n), 0);
        if n % 4000 == 0 {
            plane.poll_events(&mut |_| waiting += 1);
        }
    }
    while {
        let before = waiting;
        plane.poll_events(&mut |_| waiting += 1);
        waiting > before
    } {}
    assert_eq!(plane.fdb_dynamic(), 100_000, "all have room");
    let mut seen = 0;
    plane.fdb_walk(&FdbFilter { port: Some(port(2)), ..FdbFilter::default() }, &mut |_| seen += 1);
    assert_eq!(seen, 50_000);
    assert_eq!(plane.fdb_flush(&FdbFilter { port: Some(port(1)), ..FdbFilter::default() }), 50_000);
    assert_eq!(plane.fdb_dynamic(), 50_000);
}

#[test]
fn events_of_an_entrys_life() {
    let Some(mut plane) = plane(10_000) else { return };
    let fd = plane.event_fd().expect("a descriptor");
    assert!(!readable(fd));
    learn(&mut plane, 1, mac(1), 0);
    assert!(readable(fd));
    learn(&mut plane, 1, mac(1), 0);
    learn(&mut plane, 2, mac(1), 0);
    plane.fdb_flush(&FdbFilter::default());
    let mut events = Vec::new();
    plane.poll_events(&mut |event| events.push(event));
    let entry = |at: u16| FdbEntry {
        vlan: vlan(10),
        mac: mac(1),
        port: Some(port(at)),
        kind: FdbKind::Dynamic,
        age_s: 0,
    };
    let [added, moved, deleted] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*added, PlaneEvent::FdbAdded(entry(1)));
    assert_eq!(*moved, PlaneEvent::FdbMoved { entry: entry(2), from: port(1) });
    assert!(matches!(deleted, PlaneEvent::FdbDeleted(deleted) if deleted.port == Some(port(2))));
    assert!(!readable(fd), "everything was taken");
}

/// True when a descriptor is readable now.
fn readable(fd: i32) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::BorrowedFd;
    // SAFETY: the plane keeps the descriptor open while it lives, and it lives in every caller.
    #[allow(unsafe_code)]
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).expect("poll") > 0
}

#[test]
fn lost_events_are_counted_and_reported() {
    let Some(mut plane) = plane(100_000) else { return };
    for n in 0..40_000_u32 {
        learn(&mut plane, 1, MacAddr::from_u64(0x0200_0000_0000 | u64::from(n)), 0);
    }
    let (mut reported, mut lost) = (0, 0);
    for _ in 0..20 {
        plane.poll_events(&mut |event| match event {
            PlaneEvent::Lost(count) => lost += count,
            _ => reported += 1,
        });
    }
    assert!(lost > 0, "40,000 events fit a ring for 16,000");
    assert_eq!(reported + lost, 40_000);
    let ring = plane.resources().into_iter().find(|table| table.name == "fdb_events").expect("the ring");
    assert_eq!((ring.used, ring.refused), (0, lost));
}

#[test]
fn trapped_frames_go_up_with_their_tags() {
    let Some(mut plane) = plane(10_000) else { return };
    let mut state = plane.state().clone();
    state.global.reserved[0] = ReservedAction::Trap;
    state.global.trap_rate[lanyard_types::TrapGroup::Stp.index()].burst = 3;
    state.global.trap_rate[lanyard_types::TrapGroup::Stp.index()].rate_pps = 1;
    plane.apply(&state).expect("applied");
    let police = DryMode { police: true, ..DryMode::default() };
    let tag = Tag { pcp: 7, dei: false, vid: 10 };
    let frame = Builder::new(MacAddr::BRIDGE_GROUP, mac(1))
        .tag(0x8100, tag)
        .ethertype(0x0026)
        .payload(b"bpdu")
        .build();
    let now = now_ns(0);
    for _ in 0..5 {
        plane.dry_run(Hook::Tc, port(3), now, police, &frame).expect("a dry run");
    }
    let mut trapped = Vec::new();
    plane.poll_events(&mut |event| trapped.push(event));
    let want = PlaneEvent::Trapped { port: port(3), vlan: None, reason: TrapReason::Bpdu, frame };
    assert_eq!(trapped, vec![want; 3], "the burst, and no more");
}

/// The word of an entry contains its time modulo 251 s. An address that is seen again after exactly that time is
/// refreshed nevertheless, because a sweep in between has marked the entry as old.
#[test]
fn times_that_come_round() {
    if !has_a_past() {
        return;
    }
    let Some(mut plane) = plane(1000) else { return };
    learn(&mut plane, 1, mac(1), 400);
    learn(&mut plane, 1, mac(2), 140);
    plane.fdb_sweep(None);
    for source in [mac(1), mac(2)] {
        learn(&mut plane, 1, source, 149 - 20 * u64::from(source == mac(2)));
    }
    let ages: Vec<u32> =
        entries(&mut plane, FdbFilter::default()).iter().map(|entry| entry.age_s.div_ceil(10) * 10).collect();
    assert_eq!(ages, [150, 130]);
    assert_eq!(plane.fdb_sweep(Some(300)).aged, 0);
}
