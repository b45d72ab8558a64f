//! The MDB while it is enlarged: look-ups by the programs meanwhile, and what the next daemon finds.

use super::{one_port, pinned, private};
use crate::abi;
use crate::dry::DryMode;
use crate::mdb::{Mdb, members};
use crate::plane::EbpfPlane;
use crate::tables::MDB;
use lanyard_pipeline::state::{PortState, Unregistered};
use lanyard_plane::{Hook, MdbChange, Plane, PlaneError, PlaneState};
use lanyard_types::{PortId, PortSet, VlanId};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn port(n: u16) -> PortId {
    PortId::new(n).expect("a port")
}

fn group(n: usize) -> Ipv4Addr {
    Ipv4Addr::from(0xef01_0000 + n as u32)
}

/// The change that gives group `n` an entry with port 2, if it `has` one, or else removes its entry.
fn entry(n: usize, has: bool) -> MdbChange {
    let ports = has.then(|| Box::new(PortSet::from_iter([port(2)])));
    MdbChange::Entry { vlan: VlanId::DEFAULT, group: group(n).into(), source: None, ports }
}

/// A packet of 60 bytes for a group.
fn packet(group: Ipv4Addr) -> Vec<u8> {
    let [_, high, middle, low] = group.octets();
    let mut bytes = vec![1, 0, 0x5e, high & 0x7f, middle, low, 2, 0, 0, 0, 0, 1, 8, 0];
    bytes.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 9, 17, 0, 0, 10, 0, 0, 1]);
    bytes.extend(group.octets());
    bytes.resize(60, 0);
    bytes
}

/// Three ports in a VLAN with snooping.
fn snooped() -> PlaneState {
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    for n in 1..=3 {
        let access = PortState::access(&format!("p{n}"), 100 + u32::from(n), VlanId::DEFAULT);
        state.ports.insert(port(n), access);
    }
    state.vlans.entry(VlanId::DEFAULT).or_default().snooping = [Some(Unregistered::Flood); 2];
    state
}

/// Makes a change; waits while the table is being enlarged for it.
fn change(mdb: &mut Mdb, wanted: &MdbChange) {
    loop {
        match mdb.change(wanted) {
            Ok(()) => return,
            Err(PlaneError::Growing { .. }) => std::thread::sleep(Duration::from_millis(1)),
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// The programs look groups up all the time, while the table grows from its first size to its last.
#[test]
fn the_programs_find_every_entry_while_the_table_is_enlarged() {
    const WATCHED: usize = 32;
    let Some(mut plane) = private() else { return };
    plane.apply(&snooped()).expect("applied");
    let mdb = plane.mdb.clone();
    (0..WATCHED).for_each(|n| change(&mut mdb.lock().expect("the writer"), &entry(n, true)));
    let limited = |plane: &mut EbpfPlane, n: usize| {
        let run =
            plane.dry_run(Hook::Tc, port(1), 0, DryMode::default(), &packet(group(n))).expect("a dry run");
        run.emitted.iter().map(|(port, ..)| port.get()).collect::<Vec<u16>>()
    };
    assert_eq!(limited(&mut plane, abi::MDB), [2, 3], "a group without an entry goes to all ports");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (WATCHED..abi::MDB).for_each(|n| change(&mut mdb.lock().expect("the writer"), &entry(n, true)));
        });
        while !writer.is_finished() {
            (0..WATCHED).for_each(|n| assert_eq!(limited(&mut plane, n), [2], "group {n}"));
        }
        writer.join().expect("every entry has got room");
    });
    let mut mdb = mdb.lock().expect("the writer");
    let full = mdb.change(&entry(abi::MDB, true));
    assert_eq!(full, Err(PlaneError::TableFull { table: "mdb", size: abi::MDB as u64 }));
    for n in 0..abi::MDB {
        let found = members(&plane.tables, VlanId::DEFAULT, group(n).into(), SOURCE);
        assert_eq!(found, Some(PortSet::from_iter([port(2)])), "group {n}");
    }
    (0..abi::MDB).for_each(|n| change(&mut mdb, &entry(n, false)));
    assert_eq!(mdb.changes(), []);
    assert_eq!(limited(&mut plane, 0), [2, 3], "an entry that was removed");
}

/// The next daemon finds all entries of an enlarged table, also if the daemon before it has died while it enlarged it.
#[test]
fn an_enlarged_table_outlives_the_daemon() {
    const GROUPS: usize = 20_000;
    pinned(|options| {
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&one_port()).expect("applied");
        let fill = |plane: &EbpfPlane, groups: std::ops::Range<usize>| {
            let mut mdb = plane.mdb.lock().expect("the writer");
            groups.for_each(|n| change(&mut mdb, &entry(n, true)));
            mdb.changes()
        };
        let written = fill(&plane, 0..GROUPS);
        assert_eq!(written.len(), GROUPS);
        let segments = plane.tables.mdb_state.u64(0, 0).load(Relaxed) + 1;
        assert!(segments > 2, "{GROUPS} entries in {segments} segments");
        // Segments that the programs do not use yet, with a copy in each.
        let tables = &plane.tables;
        tables.mdb.create(tables.map(MDB), abi::MDB_SEGMENTS).expect("segments");
        for unused in (segments as usize..abi::MDB_SEGMENTS).filter_map(|number| tables.mdb.get(number)) {
            unused.index.u32(7, 0).store(0x1_0001, Relaxed);
            unused.rows.set(1, &tables.mdb.get(0).expect("the first").rows.get(1));
        }
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        assert_eq!(plane.mdb.lock().expect("the writer").changes(), written);
        let all = fill(&plane, GROUPS..3 * GROUPS);
        assert_eq!(all.len(), 3 * GROUPS);
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        let mut mdb = plane.mdb.lock().expect("the writer");
        assert_eq!(mdb.changes(), all);
        (0..3 * GROUPS).for_each(|n| change(&mut mdb, &entry(n, false)));
        assert_eq!(mdb.changes(), []);
    });
}

/// A program may still read the entries that the daemon before removed just before it ended.
#[test]
fn rows_that_were_emptied_just_before_an_adoption_are_quarantined() {
    const GROUPS: usize = 100;
    pinned(|options| {
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&one_port()).expect("applied");
        let free = |plane: &EbpfPlane| plane.mdb.lock().expect("the writer").free_rows();
        let all = free(&plane);
        {
            let mut mdb = plane.mdb.lock().expect("the writer");
            (0..GROUPS).for_each(|n| change(&mut mdb, &entry(n, true)));
            (0..GROUPS).for_each(|n| change(&mut mdb, &entry(n, false)));
            assert_eq!(mdb.changes(), []);
        }
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        assert_eq!(free(&plane), all - GROUPS);
    });
}
