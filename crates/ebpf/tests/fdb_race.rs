//! The FDB while several processors change the same entries: in user space, where `race/fdb.c` compiles the programs'
//! source with threads, and in the kernel, with real frames on two processors.
//!
//! `LANYARD_FDB_OPERATIONS` is the number of operations in user space (500,000 by default; 100,000,000 for a thorough
//! run).

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod common;

use common::{Guarded, Host, access_state, in_switch, options, port, vlan};
use lanyard_netdev::{Netdev, PacketSocket};
use lanyard_plane::{FdbFilter, Plane};
use lanyard_types::MacAddr;
use lanyard_wire::Builder;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of threads that learn in user space: more than processors, so that a thread is also interrupted
/// at any point.
const THREADS: &str = "4";

#[test]
fn counts_equal_contents_in_user_space() {
    let operations = std::env::var("LANYARD_FDB_OPERATIONS").unwrap_or_else(|_| "500000".into());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/race/fdb.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fdb-race-{}", std::process::id()));
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let compiled = Command::new(clang)
        .args(["-O2", "-g", "-Wall", "-Werror", "-pthread"])
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status()
        .expect("clang, which has built this crate");
    assert!(compiled.success(), "clang refuses {}", source.display());
    let run = Command::new(&program).args([operations.as_str(), THREADS]).output().expect("the program runs");
    let _ = std::fs::remove_file(&program);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    print!("{}", String::from_utf8_lossy(&run.stdout));
}

/// The number of stations that both hosts send from: few, so that the processors often change the same
/// entries.
const STATIONS: u16 = 6;

/// Sends frames of all stations out of eth0 from one processor until `done`.
fn send(cpu: usize, done: &AtomicBool) -> u64 {
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(cpu).expect("a processor's number");
    // On a machine with one processor the threads still interrupt each other.
    let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus);
    let ifindex = Netdev::open().expect("netlink").link("eth0").expect("eth0").ifindex;
    let socket = PacketSocket::sender(ifindex).expect("a packet socket");
    let mut sent = 0;
    while !done.load(Ordering::Relaxed) {
        for n in 0..STATIONS {
            let station = MacAddr([2, 0, 0, 1, 0, ((sent * 7 + u64::from(n)) % u64::from(STATIONS)) as u8]);
            let frame = Builder::new(common::mac(99), station).ethertype(0x88b5).build();
            // A full queue refuses a frame; the loop sends another one.
            let _ = socket.send(&frame);
        }
        sent += u64::from(STATIONS);
    }
    sent
}

#[test]
fn counts_equal_contents_in_the_kernel() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10), (&b, 10)]);
        guarded.plane().apply(&state).expect("applied");
        let (done, began) = (AtomicBool::new(false), Instant::now());
        let sent = std::thread::scope(|scope| {
            let hosts = [(&a, 0), (&b, 1)];
            let senders: Vec<_> = hosts
                .into_iter()
                .map(|(host, cpu)| {
                    let done = &done;
                    scope.spawn(move || host.enter(|| send(cpu, done)))
                })
                .collect();
            while began.elapsed() < Duration::from_secs(2) {
                guarded.plane().fdb_flush(&FdbFilter::default());
                guarded.plane().poll_events(&mut |_| {});
            }
            done.store(true, Ordering::Relaxed);
            senders.into_iter().map(|sender| sender.join().expect("a sender")).sum::<u64>()
        });
        println!("{sent} frames of {STATIONS} stations at two ports");
        let plane = guarded.plane();
        let mut stations = BTreeSet::new();
        plane.fdb_walk(&FdbFilter::default(), &mut |entry| {
            assert!(stations.insert(entry.mac), "{} stands twice", entry.mac);
        });
        assert_eq!(plane.fdb_dynamic(), stations.len() as u64, "the table's count");
        plane.fdb_flush(&FdbFilter::default());
        assert_eq!(plane.fdb_dynamic(), 0);
        // Wrong counts of a port or of the VLAN would show in the number of addresses that their limits
        // admit.
        state.vlans.get_mut(&vlan(10)).expect("VLAN 10").fdb_limit = Some(2);
        state.ports.get_mut(&port(1)).expect("port 1").fdb_limit = Some(1);
        state.ports.get_mut(&port(2)).expect("port 2").fdb_limit = Some(1);
        plane.apply(&state).expect("applied");
        for (host, first) in [(&a, 10), (&b, 20)] {
            host.enter(|| {
                let ifindex = Netdev::open().expect("netlink").link("eth0").expect("eth0").ifindex;
                let socket = PacketSocket::sender(ifindex).expect("a packet socket");
                for n in first..first + 3 {
                    let frame = Builder::new(common::mac(99), common::mac(n)).ethertype(0x88b5).build();
                    socket.send(&frame).expect("sent");
                }
            });
        }
        let end = Instant::now() + common::PATIENCE;
        while plane.fdb_dynamic() < 2 && Instant::now() < end {
            std::thread::yield_now();
        }
        let learned: Vec<String> = common::fdb(plane);
        assert_eq!(learned, ["0200.0000.000a 10 1 dynamic", "0200.0000.0014 10 2 dynamic"]);
    });
}
