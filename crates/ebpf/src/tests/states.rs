//! Every transition between states, and every failing step of one.

use super::{assert_same, dump, private, state};
use crate::abi;
use lanyard_pipeline::state::{PortState, Tpid, Unregistered, VlanState};
use lanyard_plane::{Plane, PlaneError, PlaneState, changes};
use lanyard_types::{PortId, VlanGuard, VlanId};
use libbpf_rs::{MapCore, MapFlags};
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

#[test]
fn by_steps_or_at_once_the_tables_are_the_same() {
    let (Some(mut steps), Some(mut once)) = (private(), private()) else { return };
    for seed in 1..40 {
        let next = state(seed);
        steps.apply(&next).expect("applied");
        once.rewrite(&next).expect("written");
        assert_same(&dump(&steps), &dump(&once), &format!("seed {seed}"));
        once.rewrite(&next).expect("written again");
        assert_same(&dump(&steps), &dump(&once), &format!("seed {seed}, again"));
    }
    let mut empty = PlaneState::default();
    empty.global.fdb_limit = 1000;
    steps.apply(&empty).expect("emptied");
    once.rewrite(&empty).expect("emptied");
    assert_same(&dump(&steps), &dump(&once), "empty");
    let left: Vec<_> = dump(&steps)
        .into_iter()
        .map(|(table, ..)| table)
        .filter(|t| t.starts_with("port") || *t == "fdb")
        .collect();
    assert_eq!(left, Vec::<&str>::new(), "an empty state leaves rows behind");
}

#[test]
fn every_failing_step_leaves_the_tables_as_they_were() {
    let Some(mut plane) = private() else { return };
    for seed in 1..4 {
        let (old, next) = (state(seed), state(seed + 100));
        plane.apply(&old).expect("applied");
        let before = dump(&plane);
        let steps = changes(&old, &next).len();
        for step in 1..=steps {
            plane.fail_at = Some(step);
            let error = plane.apply(&next).expect_err("a step fails");
            assert_eq!(error, PlaneError::Invalid("chaos".into()));
            plane.fail_at = None;
            assert!(*plane.state() == old && !plane.rough, "seed {seed} step {step}");
            assert_same(&dump(&plane), &before, &format!("seed {seed} step {step}"));
        }
        plane.apply(&next).expect("applied in the end");
    }
}

/// With snooping and first-hop security in all 200 VLANs, a transaction writes the row of each port once when the VLANs get them
/// and once when they lose them, and twice when VLANs get and lose them.
#[test]
fn vlans_that_change_together_write_each_ports_row_once() {
    let Some(mut plane) = private() else { return };
    let vlans = |from: u16| (from..from + 200).filter_map(VlanId::new);
    let mut plain = PlaneState::default();
    plain.global.fdb_limit = 1000;
    for n in 1..=4 {
        let tagged = vlans(1000).chain(vlans(1200)).collect();
        let trunk = PortState { tagged, ..PortState::new(&format!("p{n}"), 100 + u32::from(n)) };
        plain.ports.insert(PortId::new(n).expect("a port"), trunk);
    }
    let guard = VlanGuard { dhcp: true, ..VlanGuard::default() };
    let checked = VlanState { guard, snooping: [Some(Unregistered::default()); 2], ..VlanState::default() };
    let with = |from: u16| {
        let mut next = plain.clone();
        next.vlans = vlans(from).map(|vlan| (vlan, checked.clone())).collect();
        next
    };
    plane.apply(&plain).expect("applied");
    let mut check = |next: &PlaneState, times: usize, what: &str| {
        let before = plane.rows_written.load(Relaxed);
        plane.apply(next).expect(what);
        let written = plane.rows_written.load(Relaxed) - before;
        assert_eq!(written, times * next.ports.len(), "{what}");
        let stepwise = dump(&plane);
        plane.rewrite(next).expect(what);
        assert_same(&stepwise, &dump(&plane), what);
    };
    check(&with(1000), 1, "200 VLANs with checks are added");
    check(&with(1200), 2, "they are replaced by others");
    check(&plain, 1, "they are removed");
    check(&plain, 0, "nothing changes");
}

#[test]
fn tables_that_were_left_in_between_are_put_right() {
    let Some(mut plane) = private() else { return };
    let want = state(7);
    plane.apply(&want).expect("applied");
    let right = dump(&plane);
    for at in [1, 2, 5, 900] {
        plane.tables.port_vlans.u8(at, 10).store(0xff, Relaxed);
        plane.tables.ports.u32(at, 4).store(0xff, Relaxed);
        plane.tables.vlan_ports.u64(at, 8 * (at % 60)).store(u64::MAX - 1, Relaxed);
        plane.tables.if_slots.u64(at, 0).store(u64::MAX, Relaxed);
    }
    assert!(dump(&plane) != right);
    plane.adopt_state(want).expect("put right");
    assert_same(&dump(&plane), &right, "put right");
}

#[test]
fn refused_states_change_nothing() {
    let Some(mut plane) = private() else { return };
    let good = state(3);
    plane.apply(&good).expect("applied");
    let before = dump(&plane);
    let with = |edit: fn(&mut PlaneState)| {
        let mut next = good.clone();
        edit(&mut next);
        next
    };
    for (next, text) in [
        (with(|state| state.global.fdb_limit = 0), "an FDB limit of 0 entries"),
        (with(|state| state.global.fdb_limit = u32::MAX), "an FDB limit of 4294967295 entries"),
        (with(|state| state.ports.values_mut().for_each(|port| port.tpid = Tpid::Stacked9100)), "0x9100"),
        (with(|state| state.ports.values_mut().for_each(|port| port.ifindex = 5)), "are both interface 5"),
        (with(|state| state.ports.clear()), "names a port that is not of its kind"),
        (
            with(|state| {
                state.rifs.clear();
                state.ports.clear();
            }),
            "names no port",
        ),
    ] {
        let error = plane.apply(&next).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
        assert_same(&dump(&plane), &before, text);
    }
}

#[test]
fn a_state_is_read_back_from_the_tables() {
    let Some(mut plane) = private() else { return };
    let mut want = state(11);
    want.stp.clear();
    plane.apply(&want).expect("applied");
    let got = crate::recover::state(&plane.tables, &[]).expect("read back");
    assert_eq!(got.ports.keys().collect::<Vec<_>>(), want.ports.keys().collect::<Vec<_>>());
    for (id, port) in &want.ports {
        let found = &got.ports[id];
        assert_eq!(
            (&found.tagged, &found.untagged, found.pvid),
            (&port.tagged, &port.untagged, port.pvid),
            "port {id}"
        );
        assert_eq!((found.mtu, found.tpid, found.enabled), (port.mtu, port.tpid, port.enabled), "port {id}");
        assert_eq!(found.aggregation, port.aggregation, "port {id}");
    }
    assert!(!want.channels.is_empty(), "a state with port-channels");
    assert_eq!(got.channels, want.channels);
    assert_eq!(got.fdb, want.fdb);
    assert_eq!(got.vlans.keys().collect::<Vec<_>>(), want.vlans.keys().collect::<Vec<_>>());
}

#[test]
fn a_slot_that_is_taken_has_a_way_round() {
    let Some(plane) = private() else { return };
    let port = |n| PortId::new(n).expect("a port");
    let (one, same) = (77, 77 + abi::IFMAP);
    plane.tables.set_ifindex(one, port(1)).expect("a free slot");
    plane.tables.set_ifindex(same, port(2)).expect("round it");
    let slot = plane.tables.if_slots.get(77);
    assert_eq!((slot.ifindex, slot.port), (one, 1));
    plane.tables.clear_ifindex(same, port(1));
    plane.tables.clear_ifindex(one, port(1));
    assert_eq!(plane.tables.if_slots.get(77).ifindex, 0);
    let map = plane.tables.map("if_ports");
    assert!(
        map.lookup(same.as_bytes(), MapFlags::ANY).expect("read").is_some(),
        "another port's entry was removed"
    );
    plane.tables.clear_ifindex(same, port(2));
    assert!(map.lookup(same.as_bytes(), MapFlags::ANY).expect("read").is_none());
}
