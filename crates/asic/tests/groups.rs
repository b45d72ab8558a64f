//! Multicast groups on a chip: forwarding by (*,G) and (S,G), messages about memberships, and groups for which a table has no
//! room.

mod common;

use common::{APPLIANCE, NOW, bridge, chip, commit, frame, incoming, platform, port, ports, station, vlan};
use lanyard_asic::chip::device::{Device, wants};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::object::Object;
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::{Answer, Code, Incoming, Notice, Request};
use lanyard_asic::sdk::{Operation, VERSION};
use lanyard_asic::tables::Usage;
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::state::{PortKind, PortState, Unregistered, VlanState};
use lanyard_pipeline::tables::mdb::Flooded;
use lanyard_types::{Family, PortId, TrapReason};
use std::collections::BTreeSet;
use std::net::IpAddr;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
fn set(group: &str, source: Option<&str>, to: &[u16]) -> Operation {
    Operation::Multicast(vlan(10), address(group), source.map(address), Some(ports(to.iter().copied())))
}
fn remove(group: &str, source: Option<&str>) -> Operation {
    Operation::Multicast(vlan(10), address(group), source.map(address), None)
}
fn flood(flooded: Flooded) -> Operation {
    Operation::Flood(vlan(10), Family::V4, flooded)
}

/// Four ports in VLAN 10, which is snooped.
fn snooped(unregistered: Unregistered) -> Vec<Operation> {
    let mut list = bridge(4);
    let state = VlanState { snooping: [Some(unregistered); 2], ..VlanState::default() };
    list[0] = Operation::Vlan(vlan(10), Some(state));
    list
}

/// A packet of a group, or an IGMP report.
fn packet(source: &str, group: &str, protocol: u8) -> Vec<u8> {
    let (dst, ethertype, mut bytes) = match (address(source), address(group)) {
        (IpAddr::V4(source), IpAddr::V4(group)) => {
            let mut bytes = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 8, protocol, 0, 0];
            bytes.extend(source.octets());
            bytes.extend(group.octets());
            let [_, b, c, d] = group.octets();
            ([1, 0, 0x5e, b & 0x7f, c, d], [8, 0], bytes)
        }
        (IpAddr::V6(source), IpAddr::V6(group)) => {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 26, protocol, 8];
            bytes.extend(source.octets());
            bytes.extend(group.octets());
            let octets = group.octets();
            ([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]], [0x86, 0xdd], bytes)
        }
        _ => unreachable!("{source} cannot send to {group}"),
    };
    bytes.extend([0x16, 0, 0, 0, 0, 26, 0, 0]);
    bytes.resize(bytes.len() + 18, 0x5a);
    [&dst[..], &station(1).0[..], &ethertype[..], &bytes[..]].concat()
}

/// The ports by which a packet from port 1 leaves.
fn leaves(chip: &mut Chip, source: &str, group: &str) -> Vec<u16> {
    let (frame, mut effects) = (packet(source, group, 17), Effects::default());
    chip.frame(NOW, port(1), &frame, &mut effects);
    effects.sent.iter().map(|(port, _)| port.get()).collect::<BTreeSet<_>>().into_iter().collect()
}
fn table(chip: &Chip) -> Usage {
    let holds = |table: &Usage| table.holds.iter().any(|(object, _)| *object == Object::Ipv4Group);
    chip.usage().into_iter().find(holds).expect("a table for groups")
}

#[test]
fn the_entry_of_the_source_or_the_group_decides() {
    let mut chip = chip(&snooped(Unregistered::Flood));
    let all = [2, 3, 4];
    assert_eq!(leaves(&mut chip, "10.0.0.1", "239.1.1.1"), all);
    let before = table(&chip).used;
    let list = [
        set("239.1.1.1", None, &[1, 2]),
        set("239.1.1.1", Some("10.0.0.9"), &[3]),
        set("ff05::1", None, &[4]),
    ];
    commit(&mut chip, &list).expect("room");
    assert!(table(&chip).used >= before + 3, "each has an entry");
    assert_eq!(leaves(&mut chip, "10.0.0.1", "239.1.1.1"), [2]);
    assert_eq!(leaves(&mut chip, "10.0.0.9", "239.1.1.1"), [3]);
    assert_eq!(leaves(&mut chip, "fd00::1", "ff05::1"), [4]);
    // Another group with the same MAC address has no entry, and link-local groups (224.0.0.0/24) are always flooded.
    assert_eq!(leaves(&mut chip, "10.0.0.1", "238.129.1.1"), all);
    assert_eq!(leaves(&mut chip, "10.0.0.1", "224.0.0.251"), all);
    // Routers get every group.
    commit(&mut chip, &[Operation::Routers(vlan(10), Family::V4, ports([4]))]).expect("taken");
    assert_eq!(leaves(&mut chip, "10.0.0.1", "239.1.1.1"), [2, 4]);
    // A change of members takes no further entry, and without an entry the group is flooded.
    let used = table(&chip).used;
    commit(&mut chip, &[set("239.1.1.1", None, &[3])]).expect("taken");
    assert_eq!((leaves(&mut chip, "10.0.0.1", "239.1.1.1"), table(&chip).used), (vec![3, 4], used));
    commit(&mut chip, &[remove("239.1.1.1", None)]).expect("taken");
    assert_eq!(leaves(&mut chip, "10.0.0.9", "239.1.1.1"), all);
    commit(&mut chip, &[remove("239.1.1.1", Some("10.0.0.9")), remove("ff05::1", None)]).expect("taken");
    assert_eq!(chip.pipeline().tables().mdb.occupancy().used, 0);
}

#[test]
fn an_operation_selects_which_multicast_groups_are_flooded() {
    let mut chip = chip(&snooped(Unregistered::Routers));
    commit(&mut chip, &[set("239.1.1.1", None, &[2])]).expect("room");
    assert!(leaves(&mut chip, "10.0.0.1", "239.2.2.2").is_empty());
    commit(&mut chip, &[flood(Flooded::Unregistered)]).expect("taken");
    assert_eq!(leaves(&mut chip, "10.0.0.1", "239.2.2.2"), [2, 3, 4]);
    assert_eq!(leaves(&mut chip, "10.0.0.1", "239.1.1.1"), [2]);
    commit(&mut chip, &[flood(Flooded::All)]).expect("taken");
    assert_eq!(leaves(&mut chip, "10.0.0.1", "239.1.1.1"), [2, 3, 4]);
    commit(&mut chip, &[flood(Flooded::Nothing)]).expect("taken");
    assert!(leaves(&mut chip, "10.0.0.1", "239.2.2.2").is_empty());
}

#[test]
fn an_entry_without_room_is_refused_and_another_one_makes_room() {
    let mut chip = chip(&snooped(Unregistered::Flood));
    let group = |n: u32| format!("239.{}.{}.{}", 1 + (n >> 16), (n >> 8) & 255, n & 255);
    let mut taken = Vec::new();
    let refused = (0..).find_map(|n| match commit(&mut chip, &[set(&group(n), None, &[2])]) {
        Ok(_) => {
            taken.push(n);
            None
        }
        Err(refused) => Some((n, refused)),
    });
    let (without, refused) = refused.expect("a table is finite");
    let full = table(&chip);
    assert_eq!((refused.code, &refused.table, full.refused), (Code::NoRoom, &full.path, 1), "{refused:?}");
    assert!(taken.len() > 500, "{} groups", taken.len());
    assert_eq!(
        chip.pipeline().tables().mdb.occupancy().used,
        taken.len(),
        "an entry for each key in the tables"
    );
    assert_eq!(leaves(&mut chip, "10.0.0.1", &group(without)), [2, 3, 4]);
    // A transaction with an entry that has no room leaves no trace: no changed group, no removed group, no changed flooding.
    let list = [
        set(&group(0), None, &[4]),
        remove(&group(1), None),
        Operation::Routers(vlan(10), Family::V4, ports([3])),
        flood(Flooded::All),
        set(&group(1), Some("10.0.0.1"), &[4]),
        set(&group(without), None, &[4]),
        set(&group(without), Some("10.0.0.1"), &[4]),
        set(&group(without), Some("10.0.0.2"), &[4]),
    ];
    let (entries, used) = (chip.entries(), table(&chip).used);
    let refused = commit(&mut chip, &list).expect_err("one was removed and four were added");
    assert_eq!(refused.code, Code::NoRoom);
    assert_eq!(table(&chip).used, used);
    // `assert_eq!` would print all groups of the chip.
    assert!(chip.entries() == entries, "the refused transaction has changed the chip");
    assert_eq!(leaves(&mut chip, "10.0.0.1", &group(0)), [2]);
    // A key must find room in its own buckets of the hash table, so removing a single other entry may not be enough.
    let freed = taken.iter().position(|n| {
        commit(&mut chip, &[remove(&group(*n), None)]).expect("removed");
        commit(&mut chip, &[set(&group(without), None, &[3])]).is_ok()
    });
    assert!(freed.is_some(), "no room after all groups have left");
    assert_eq!(leaves(&mut chip, "10.0.0.1", &group(without)), [3]);
}

#[test]
fn groups_and_addresses_share_a_table() {
    let mut chip = chip(&snooped(Unregistered::Flood));
    let group = |n: u32| format!("239.{}.{}.{}", 1 + (n >> 16), (n >> 8) & 255, n & 255);
    let mut at = 0;
    while chip.learn_refused() < 10 {
        let learned = frame(station(0), station(1000 + at));
        chip.frame(NOW, port(1), &learned, &mut Effects::default());
        at += 1;
    }
    let size = table(&chip).size;
    let refused = (0..size).find_map(|n| commit(&mut chip, &[set(&group(n), None, &[2])]).err());
    let refused = refused.expect("addresses have taken the room");
    assert_eq!((refused.code, refused.table), (Code::NoRoom, table(&chip).path));
}

#[test]
fn messages_about_memberships_go_up_the_cpu_port_and_are_relayed() {
    let mut device = Device::new(&platform(APPLIANCE), 1, 1);
    let session = device.open();
    let mut list = snooped(Unregistered::Flood);
    // Port 3 sends the VLAN with a tag, and port 20 is the pipeline's end of a VLAN interface.
    let mut trunk = PortState::new("swp3", 0);
    trunk.tagged.insert(vlan(10));
    let svi = PortState { kind: PortKind::Svi(vlan(10)), ..PortState::access("vlan10", 0, vlan(10)) };
    list.push(Operation::Port(port(3), Some(Box::new(trunk))));
    list.push(Operation::Port(port(20), Some(Box::new(svi))));
    device.request(NOW, session, 1, Request::Hello(VERSION, "test".into()));
    device.request(NOW, session, 2, Request::Subscribe(wants::PACKETS));
    device.request(NOW, session, 3, Request::Commit(list));
    let later = Timestamp::from_secs(1001);
    device.advance(later);
    let report = packet("10.0.0.1", "239.1.1.1", 2);
    device.frame(later, port(1), &report);
    assert_eq!(left(&mut device, later), [], "the chip does not pass it on by itself");
    let header = CpuHeader { reason: Some(TrapReason::Igmp), port: Some(port(1)), ..CpuHeader::default() };
    assert_eq!(packets(&mut device, session), [(header, report.clone())]);
    // Nothing is sent to ports that are not in the VLAN, nor to the port that received the frame.
    let to = ports([1, 2, 3, 7, 20]);
    device.request(later, session, 4, Request::Relay(vlan(10), Some(port(1)), to, report.clone()));
    let tagged = [&report[..12], &[0x81, 0, 0, 10], &report[12..]].concat();
    let after = Timestamp::from_secs(1002);
    assert_eq!(left(&mut device, after), [(port(2), report.clone()), (port(3), tagged)]);
    let header = CpuHeader { port: Some(port(1)), to: Some(port(20)), ..CpuHeader::default() };
    assert_eq!(packets(&mut device, session), [(header, report)]);
}

fn left(device: &mut Device, now: Timestamp) -> Vec<(PortId, Vec<u8>)> {
    let mut all = device.departures(now);
    all.sort();
    all
}
fn packets(device: &mut Device, session: u64) -> Vec<(CpuHeader, Vec<u8>)> {
    let packet = |incoming| match incoming {
        Incoming::Notice(Notice::Packet(header, frame)) => Some((header, frame)),
        _ => None,
    };
    incoming(device, session).into_iter().filter_map(packet).collect()
}

#[test]
fn a_fault_at_a_group_leaves_no_trace() {
    let mut device = Device::new(&platform(APPLIANCE), 1, 1);
    let session = device.open();
    device.request(NOW, session, 1, Request::Hello(VERSION, "test".into()));
    device.request(NOW, session, 2, Request::Commit(snooped(Unregistered::Flood)));
    let later = Timestamp::from_secs(1001);
    device.advance(later);
    let before = device.chip().entries();
    let list = vec![
        set("239.1.1.1", None, &[2]),
        Operation::Routers(vlan(10), Family::V4, ports([3])),
        flood(Flooded::All),
        set("239.1.1.1", Some("10.0.0.1"), &[3]),
    ];
    for (number, plan, at) in
        [(3, "fail multicast at 2", 3), (4, "fail routers at 1", 1), (5, "fail flood at 1", 2)]
    {
        device.set_faults(FaultPlan::parse(plan).expect("a plan"));
        incoming(&mut device, session);
        device.request(later, session, number, Request::Commit(list.clone()));
        device.advance(Timestamp::from_secs(1002));
        let answers = incoming(&mut device, session);
        let [Incoming::Answer(to, Answer::Refused(refused))] = &answers[..] else {
            unreachable!("{plan}: {answers:?}")
        };
        assert_eq!((*to, refused.code, refused.at), (number, Code::Fault, at), "{plan}");
        assert_eq!(device.chip().entries(), before, "{plan}");
    }
    device.set_faults(FaultPlan::default());
    device.request(later, session, 6, Request::Commit(list.clone()));
    device.advance(Timestamp::from_secs(1003));
    let groups = device.chip().entries().into_iter().filter(|entry| entry.kind().is_of_protocols());
    let wanted: BTreeSet<String> = list.iter().map(|operation| format!("{operation:?}")).collect();
    assert_eq!(groups.map(|entry| format!("{entry:?}")).collect::<BTreeSet<_>>(), wanted);
}

/// Restarts the watchdog by a request that arrives at `now`; returns its answer, which comes after the time of one write.
fn restart(device: &mut Device, session: u64, now: Timestamp, after_ms: u32) -> u64 {
    device.request(now, session, 99, Request::SnoopingWatchdog(after_ms));
    device.advance(Timestamp::from_nanos(now.as_nanos() + 100_000));
    let done = incoming(device, session).into_iter().find_map(|incoming| match incoming {
        Incoming::Answer(99, Answer::Done(expired)) => Some(expired),
        _ => None,
    });
    done.expect("an answer")
}

#[test]
fn without_a_driver_groups_are_flooded_when_the_watchdog_has_expired() {
    let mut device = Device::new(&platform(APPLIANCE), 1, 1);
    let session = device.open();
    device.request(NOW, session, 1, Request::Hello(VERSION, "test".into()));
    let list = [snooped(Unregistered::Routers), vec![set("239.1.1.1", None, &[2])]].concat();
    device.request(NOW, session, 2, Request::Commit(list));
    device.advance(Timestamp::from_secs(1001));
    let reaches = |device: &mut Device, at: Timestamp, protocol: u8| {
        device.advance(at);
        device.frame(at, port(1), &packet("10.0.0.1", "239.1.1.1", protocol));
        let later = Timestamp::from_nanos(at.as_nanos() + 1_000_000);
        left(device, later).into_iter().map(|(port, _)| port.get()).collect::<Vec<_>>()
    };
    let at = |ms: u64| Timestamp::from_nanos(1_000_000_000_000 + ms * 1_000_000);
    assert_eq!(restart(&mut device, session, at(2000), 10_000), 0);
    assert_eq!(reaches(&mut device, at(11_900), 17), [2]);
    assert_eq!(restart(&mut device, session, at(11_950), 10_000), 0, "it had not expired");
    assert_eq!(reaches(&mut device, at(21_940), 17), [2]);
    let before = device.chip().entries();
    // The driver has ended; the chip wakes up by itself when the watchdog expires.
    device.close(session);
    let next = device.next().expect("the watchdog runs").as_nanos();
    assert!((at(21_950).as_nanos()..at(21_951).as_nanos()).contains(&next), "{next}");
    assert_eq!(reaches(&mut device, at(21_960), 17), [2, 3, 4]);
    assert_eq!(reaches(&mut device, at(21_970), 2), [2, 3, 4], "so are messages about memberships");
    assert_eq!((device.chip().entries(), device.next()), (before, None), "the entries stay");
    // A VLAN that is set before a driver restarts the watchdog is not snooped either.
    let session = device.open();
    device.request(at(22_000), session, 1, Request::Hello(VERSION, "test".into()));
    device.request(at(22_000), session, 2, Request::Commit(snooped(Unregistered::Routers)));
    assert_eq!(reaches(&mut device, at(22_010), 17), [2, 3, 4]);
    // The chip reports the expiry to the next driver once, and forwards by its entries again.
    assert_eq!(restart(&mut device, session, at(22_100), 10_000), 1);
    assert_eq!(reaches(&mut device, at(22_200), 17), [2]);
    assert_eq!(reaches(&mut device, at(22_210), 2), [] as [u16; 0]);
    assert_eq!(restart(&mut device, session, at(22_300), 10_000), 0);
    // A watchdog that was stopped never expires.
    assert_eq!(restart(&mut device, session, at(22_400), 0), 0);
    assert_eq!(reaches(&mut device, at(100_000), 17), [2]);
}
