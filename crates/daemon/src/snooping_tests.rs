//! Multicast snooping of a whole switch, with a kernel and a plane in memory: messages pass through the plane's traps.

use super::*;
use crate::bus::Topics;
use crate::core::Core;
use crate::testing::{Bench, config, messages, received};
use lanyard_cli::backend::{Configuration, Multicast};
use lanyard_plane::{Flooded, MdbChange, PlaneError};
use lanyard_wire::ip::ones_complement_sum;
use std::sync::atomic::Ordering;

const PORTS: &str = "interface eth1\n switchport\ninterface eth2\n switchport\ninterface eth3\n switchport";
const REPORT: u8 = 0x16;
const LEAVE: u8 = 0x17;

/// A switch with three ports in VLAN 1.
fn switch(lines: &str) -> (Bench, Core) {
    let bench = Bench::new();
    let mut core = bench.core();
    bench.plug(&mut core, &["eth1", "eth2", "eth3"]);
    core.commit(config(&format!("{PORTS}\n{lines}"))).expect("taken");
    (bench, core)
}

/// A host at a port sends an IGMP message about the group 239.1.1.`group`.
fn send(bench: &Bench, core: &mut Core, name: &str, kind: u8, group: u8) {
    igmp(bench, core, name, [239, 1, 1, group], vec![kind, 0, 0, 0, 239, 1, 1, group]);
}

/// A host at a port reports by IGMPv3 that it wants the group from the source 10.0.0.`source` as well.
fn allow(bench: &Bench, core: &mut Core, name: &str, group: u8, source: u8) {
    const ALLOW_NEW_SOURCES: u8 = 5;
    let record = [ALLOW_NEW_SOURCES, 0, 0, 1, 239, 1, 1, group, 10, 0, 0, source];
    igmp(bench, core, name, [224, 0, 0, 22], [&[0x22, 0, 0, 0, 0, 0, 0, 1][..], &record].concat());
}

/// A host at a port sends an IGMP message, whose checksum is added.
fn igmp(bench: &Bench, core: &mut Core, name: &str, to: [u8; 4], mut igmp: Vec<u8>) {
    let sum = !ones_complement_sum(&igmp);
    igmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let [a, b, c, d] = to;
    let length = 24 + igmp.len() as u8;
    let mut packet = vec![0x46, 0, 0, length, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 9, a, b, c, d, 0x94, 4, 0, 0];
    let sum = !ones_complement_sum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![1, 0, 0x5e, b & 0x7f, c, d, 2, 0, 0, 0, 0, 9, 0x08, 0x00];
    frame.extend(packet);
    frame.extend(igmp);
    frame.resize(60, 0);
    let port = core.ctx.switch.ports().get(name).expect("a port");
    bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
    core.plane_events();
    core.tick();
}

/// The groups of VLAN 1 with their ports.
fn groups(core: &mut Core) -> Vec<(String, Vec<String>)> {
    let vlans = core.snooping(Family::V4).vlans.into_iter();
    vlans.flat_map(|vlan| vlan.groups).map(|group| (group.group.0.to_string(), group.ports)).collect()
}

fn group(last: u8, ports: &[&str]) -> (String, Vec<String>) {
    (format!("239.1.1.{last}"), ports.iter().map(|port| (*port).to_owned()).collect())
}

#[test]
fn members_come_and_go() {
    let (bench, mut core) = switch("");
    send(&bench, &mut core, "eth1", REPORT, 1);
    send(&bench, &mut core, "eth2", REPORT, 1);
    send(&bench, &mut core, "eth2", REPORT, 2);
    assert_eq!(groups(&mut core), [group(1, &["eth1", "eth2"]), group(2, &["eth2"])]);
    // A host that does not answer the queries after its leave is no member any more.
    bench.clock.set(10);
    send(&bench, &mut core, "eth2", LEAVE, 1);
    for now in (100..5_000).step_by(100) {
        bench.clock.set(now);
        core.tick();
    }
    assert_eq!(groups(&mut core), [group(1, &["eth1"]), group(2, &["eth2"])]);
    // A port without a link has no members.
    let event = bench.kernel.change("eth1", |link| link.carrier = false);
    core.netdev_events(vec![event]);
    core.tick();
    assert_eq!(groups(&mut core), [group(2, &["eth2"])]);
    core.commit(config(&format!("no ip igmp snooping\n{PORTS}"))).expect("taken");
    assert_eq!(groups(&mut core), []);
}

#[test]
fn an_unchanged_configuration_leaves_the_plane_alone() {
    let (bench, mut core) = switch("");
    send(&bench, &mut core, "eth1", REPORT, 1);
    let held =
        |core: &Core| core.ctx.protocols.with(|engine| engine.snooping_and_io().1.plane.multicast_held());
    let entries = held(&core);
    assert!(!entries.is_empty());
    // The same configuration again changes nothing in the plane.
    core.commit(config(PORTS)).expect("taken");
    assert_eq!(held(&core), entries);
}

#[test]
fn a_limit_is_logged_once() {
    let (bench, mut core) = switch("interface eth1\n ip igmp max-groups 1");
    for last in 1..=3 {
        send(&bench, &mut core, "eth1", REPORT, last);
    }
    assert_eq!(groups(&mut core), [group(1, &["eth1"])]);
    let limits =
        messages(&core.ctx).into_iter().filter(|line| line.starts_with("LIMIT: ")).collect::<Vec<_>>();
    assert_eq!(
        limits,
        [
            "LIMIT: Interface eth1: a host in VLAN 1 was refused a group, because the interface has as many as max-groups allows"
        ]
    );
}

#[test]
fn events_are_made_only_for_a_listener() {
    let (bench, mut core) = switch("");
    send(&bench, &mut core, "eth1", REPORT, 1);
    let mut listener = core.ctx.bus.subscribe(Topics::Events([EventKind::Multicast].into())).expect("room");
    listen(&core.ctx);
    send(&bench, &mut core, "eth2", REPORT, 1);
    let events = received(&mut listener);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["event"], &events[0]["group"], &events[0]["ports"]),
        (&json!("group"), &json!("239.1.1.1"), &json!(["eth1", "eth2"]))
    );
}

/// The plane's entries, and the groups that it floods in VLAN 1.
fn held(core: &Core) -> (usize, Flooded) {
    let changes = core.ctx.protocols.with(|engine| engine.snooping_and_io().1.plane.multicast_held());
    let entries = changes.iter().filter(|change| matches!(change, MdbChange::Entry { .. })).count();
    let flooded = changes.into_iter().find_map(|change| match change {
        MdbChange::Flood { family: Family::V4, flooded, .. } => Some(flooded),
        _ => None,
    });
    (entries, flooded.unwrap_or_default())
}

/// While the plane has no room for an entry, the group is flooded and the entry is tried again. Only a table that cannot grow is
/// logged as full.
#[test]
fn a_refused_entry_is_flooded_and_tried_again() {
    let full = PlaneError::TableFull { table: "mdb", size: 1 };
    for (reason, again_ms, logged) in [(PlaneError::Growing { table: "mdb" }, 20, 0), (full, 1000, 1)] {
        let (bench, mut core) = switch("");
        *bench.plane.refuses_groups.lock() = Some(reason.clone());
        send(&bench, &mut core, "eth1", REPORT, 1);
        send(&bench, &mut core, "eth2", REPORT, 2);
        assert_eq!(held(&core), (0, Flooded::Unregistered), "{reason}");
        *bench.plane.refuses_groups.lock() = None;
        bench.clock.set(again_ms - 1);
        core.tick();
        assert_eq!(held(&core), (0, Flooded::Unregistered), "{reason}");
        bench.clock.set(again_ms);
        core.tick();
        assert_eq!(held(&core), (2, Flooded::Nothing), "{reason}");
        let lines = messages(&core.ctx).into_iter().filter(|line| line.starts_with("TABLE_FULL: ")).count();
        assert_eq!(lines, logged, "{reason}");
    }
}

/// When many members leave at once while the table stays full, the entries that have no room are not tried again for each of them.
#[test]
fn members_that_leave_together_cause_few_retries() {
    const GROUPS: u8 = 100;
    let (bench, mut core) = switch("");
    for last in 1..=GROUPS {
        send(&bench, &mut core, "eth1", REPORT, last);
    }
    *bench.plane.refuses_groups.lock() = Some(PlaneError::TableFull { table: "mdb", size: 100 });
    for last in 1..=GROUPS {
        send(&bench, &mut core, "eth2", REPORT, GROUPS + last);
    }
    assert_eq!(held(&core), (GROUPS.into(), Flooded::Unregistered));
    let before = bench.plane.refused_groups.load(Ordering::Relaxed);
    // The port loses its link, and so all its members.
    let event = bench.kernel.change("eth1", |link| link.carrier = false);
    core.netdev_events(vec![event]);
    core.tick();
    assert_eq!(held(&core), (0, Flooded::Unregistered));
    let tried = bench.plane.refused_groups.load(Ordering::Relaxed) - before;
    assert!((1..=2 * usize::from(GROUPS)).contains(&tried), "{tried} retries for {GROUPS} removals");
    // Once there is room, the timer makes the switch give the plane all entries.
    *bench.plane.refuses_groups.lock() = None;
    bench.clock.set(2000);
    core.tick();
    assert_eq!(held(&core), (GROUPS.into(), Flooded::Nothing));
}

/// If there is no room for a source of a group, the group's other entry is removed too, and the group is flooded.
#[test]
fn a_group_with_a_refused_source_is_flooded_as_a_whole() {
    let (bench, mut core) = switch("ip igmp snooping unregistered mrouter");
    send(&bench, &mut core, "eth1", REPORT, 1);
    assert_eq!(held(&core), (1, Flooded::Nothing));
    *bench.plane.refuses_groups.lock() = Some(PlaneError::TableFull { table: "mdb", size: 1 });
    allow(&bench, &mut core, "eth2", 1, 7);
    assert_eq!(held(&core), (0, Flooded::Unregistered), "the entry of the group is gone");
    // A further member changes nothing about that.
    send(&bench, &mut core, "eth3", REPORT, 1);
    assert_eq!(held(&core), (0, Flooded::Unregistered));
    // With room the group has both of its entries.
    *bench.plane.refuses_groups.lock() = None;
    bench.clock.set(1000);
    core.tick();
    assert_eq!(held(&core), (2, Flooded::Nothing));
    let changes = core.ctx.protocols.with(|engine| engine.snooping_and_io().1.plane.multicast_held());
    let ports = |of: Option<u8>| {
        changes.iter().find_map(|change| match change {
            MdbChange::Entry { source, ports, .. } if *source == of.map(|last| [10, 0, 0, last].into()) => {
                ports.as_ref().map(|ports| ports.len())
            }
            _ => None,
        })
    };
    assert_eq!((ports(None), ports(Some(7))), (Some(2), Some(3)));
}
