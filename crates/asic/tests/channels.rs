//! Port-channels on a chip: one port with several members, the choice of the member, lost links, and refusals for want of room.

mod common;

use common::{
    APPLIANCE, NOW, UFT, bridge, bundle, channel, channel_id, chip, commit, frame, incoming, platform, port,
    ports, station, vlan,
};
use lanyard_asic::chip::device::{Device, wants};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::{Answer, Code, Event, Incoming, Notice, Request};
use lanyard_asic::sdk::{Operation, VERSION};
use lanyard_asic::tables::Usage;
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::balance::spread;
use lanyard_pipeline::state::{ChannelMembers, GlobalState, PortState, ReservedAction, VlanState};
use lanyard_pipeline::trace::Verdict;
use lanyard_types::{DropReason, MacAddr, PortId, TrapReason};
use std::collections::{BTreeMap, BTreeSet};

/// The port of port-channel 1.
const CHANNEL: u16 = 101;

/// Ports 1 and 2 are port-channel 1, ports 3 and 4 are access ports; all are in VLAN 10.
fn setup() -> Vec<Operation> {
    let mut list = bridge(4);
    list.retain(|operation| !matches!(operation, Operation::Port(at, _) if at.get() < 3));
    list.extend(bundle(1, &[1, 2]));
    list.push(channel(1, &[1, 2], &[1, 2]));
    list
}
fn usage(chip: &Chip, path: &str) -> Usage {
    chip.usage().into_iter().find(|table| table.path == path).expect(path)
}

/// Processes a frame; returns the ports by which it leaves, its verdict, and the events.
fn passes(chip: &mut Chip, from: u16, to: MacAddr, source: MacAddr) -> (Vec<u16>, Verdict, Vec<Event>) {
    let (frame, mut effects) = (frame(to, source), Effects::default());
    let verdict = chip.frame(NOW, port(from), &frame, &mut effects);
    (effects.sent.iter().map(|(port, _)| port.get()).collect(), verdict, effects.events)
}
fn leaves(chip: &mut Chip, from: u16, to: MacAddr, source: MacAddr) -> Vec<u16> {
    passes(chip, from, to, source).0
}

/// A device with the configuration `list` and links at the ports `linked`, and a session that gets frames of the CPU port.
fn device(list: Vec<Operation>, linked: &[u16]) -> (Device, u64) {
    device_of(&platform(APPLIANCE), list, linked)
}
fn device_of(platform: &Platform, list: Vec<Operation>, linked: &[u16]) -> (Device, u64) {
    let mut device = Device::new(platform, 1, 1);
    linked.iter().for_each(|number| device.link(port(*number), true));
    let session = device.open();
    device.request(NOW, session, 1, Request::Hello(VERSION, "test".into()));
    device.request(NOW, session, 2, Request::Subscribe(wants::PACKETS));
    device.request(NOW, session, 3, Request::Commit(list));
    device.advance(Timestamp::from_secs(1001));
    let refused = |message: &Incoming| matches!(message, Incoming::Answer(_, Answer::Refused(_)));
    assert!(!incoming(&mut device, session).iter().any(refused));
    (device, session)
}
/// The ports by which frames leave when `bytes` comes in at the time `seconds`, until one second later: long enough for every
/// port to send all of its frames.
fn through(device: &mut Device, seconds: u32, from: u16, bytes: &[u8]) -> Vec<u16> {
    device.frame(Timestamp::from_secs(seconds), port(from), bytes);
    left(device, seconds + 1)
}
fn left(device: &mut Device, seconds: u32) -> Vec<u16> {
    device.departures(Timestamp::from_secs(seconds)).iter().map(|(port, _)| port.get()).collect()
}

#[test]
fn the_members_are_one_port() {
    let mut chip = chip(&setup());
    let (everyone, host) = (MacAddr([0xff; 6]), station(1));
    // The address is learned at the port-channel, whichever member receives the frame, and a flood does not leave by the other
    // member.
    let (sent, _, events) = passes(&mut chip, 1, everyone, host);
    assert_eq!(sent, [3, 4]);
    assert!(matches!(&events[..], [Event::Learned(entry)] if entry.port == port(CHANNEL)), "{events:?}");
    let (sent, _, events) = passes(&mut chip, 2, everyone, host);
    assert_eq!((sent, events), (vec![3, 4], vec![]), "another member is no move");
    assert_eq!(passes(&mut chip, 2, host, station(2)).1, Verdict::Dropped(DropReason::SamePort));
    // Each frame, known or flooded, leaves the port-channel once, by the member that its hash selects.
    let mut used = BTreeSet::new();
    for n in 100..140 {
        let known = leaves(&mut chip, 3, host, station(n));
        assert_eq!(known.len(), 1, "{known:?}");
        used.insert(known[0]);
        let flooded = leaves(&mut chip, 3, everyone, station(n));
        assert_eq!(flooded.len(), 2, "port 4 and one member: {flooded:?}");
    }
    assert_eq!(used, [1, 2].into());
    // A member that does not collect receives nothing for the port-channel.
    commit(&mut chip, &[channel(1, &[1], &[1])]).expect("taken");
    let (sent, verdict, _) = passes(&mut chip, 2, everyone, station(7));
    assert_eq!((sent, verdict), (vec![], Verdict::Dropped(DropReason::NotCollecting)));
    // Without a distributing member nothing leaves by the port-channel.
    commit(&mut chip, &[channel(1, &[1], &[])]).expect("taken");
    assert_eq!(leaves(&mut chip, 3, everyone, station(8)), [4]);
    assert_eq!(leaves(&mut chip, 3, host, station(8)), Vec::<u16>::new());
}

#[test]
fn a_member_that_loses_its_link_is_replaced_by_the_chip() {
    let (mut device, _) = device(setup(), &[1, 2, 3, 4]);
    let host = station(1);
    through(&mut device, 2000, 1, &frame(MacAddr([0xff; 6]), host));
    let mut at = 3000;
    let mut ways = |device: &mut Device| -> Vec<u16> {
        let way = |n: u32| {
            at += 2;
            let left = through(device, at, 3, &frame(host, station(n)));
            assert!(left.len() <= 1, "{left:?}");
            left.first().copied().unwrap_or(0)
        };
        (100..140).map(way).collect()
    };
    let before = ways(&mut device);
    assert!(before.contains(&1) && before.contains(&2));
    device.link(port(1), false);
    let without = ways(&mut device);
    assert!(without.iter().all(|by| *by == 2), "{without:?}");
    device.link(port(2), false);
    assert!(ways(&mut device).iter().all(|by| *by == 0), "no member has a link");
    device.link(port(1), true);
    assert!(ways(&mut device).iter().all(|by| *by == 1));
    device.link(port(2), true);
    assert_eq!(ways(&mut device), before, "the buckets are those that the driver has given");
    // The chip reports the buckets as the driver has set them, although a link is lost.
    let told = channel(1, &[1, 2], &[1, 2]);
    device.link(port(1), false);
    assert!(device.chip().entries().contains(&told));
}

/// A port-channel with three members: a driver that later learns of a lost link assigns the buckets as the chip has done by
/// itself.
#[test]
fn the_chip_chooses_as_the_driver_does() {
    let mut list = bridge(4);
    list.retain(|operation| !matches!(operation, Operation::Port(at, _) if at.get() < 4));
    list.extend(bundle(1, &[1, 2, 3]));
    list.push(channel(1, &[1, 2, 3], &[1, 2, 3]));
    let mut chip = chip(&list);
    let ways = |chip: &mut Chip| -> Vec<Vec<u16>> {
        (0..200).map(|n| leaves(chip, 4, MacAddr([0xff; 6]), station(500 + n))).collect()
    };
    let before = ways(&mut chip);
    chip.set_link(port(2), false);
    let lost = ways(&mut chip);
    let stays = |(was, is): (&Vec<u16>, &Vec<u16>)| was == is || *was == [2];
    assert!(before.iter().zip(&lost).all(stays), "no other flow moves");
    let [one, three] = [1, 3].map(|member| lost.iter().filter(|way| **way == [member]).count());
    assert!(one + three == 200 && one.abs_diff(three) < 60, "{one} and {three} flows");
    let was = spread(&[], &ports([1, 2, 3]));
    let members =
        ChannelMembers { collecting: [port(1), port(3)].into(), buckets: spread(&was, &ports([1, 3])) };
    commit(&mut chip, &[Operation::Channel(channel_id(1), Some(Box::new(members)))]).expect("taken");
    assert_eq!(ways(&mut chip), lost);
}

#[test]
fn refused_port_channel_changes_leave_the_chip_unchanged() {
    let mut chip = chip(&bridge(10));
    for number in 1..=4 {
        commit(&mut chip, &bundle(number, &[u16::from(number) * 2 - 1, u16::from(number) * 2]))
            .expect("room");
    }
    let (channels, members) = ("aggregation/port_channels", "aggregation/channel_members");
    let used = |chip: &Chip| (usage(chip, channels).used, usage(chip, members).used);
    assert_eq!(used(&chip), (4, 8));
    let before = chip.entries();
    let refused = commit(&mut chip, &bundle(5, &[9])).expect_err("five port-channels");
    assert_eq!(
        (refused.code, refused.table.as_str(), refused.at),
        (Code::NoRoom, channels, 0),
        "{refused:?}"
    );
    // A ninth member for an existing port-channel, after another change in the same transaction.
    let list = [channel(1, &[1], &[1]), bundle(1, &[9]).remove(1)];
    let refused = commit(&mut chip, &list).expect_err("nine members");
    assert_eq!((refused.code, refused.table.as_str(), refused.at), (Code::NoRoom, members, 1), "{refused:?}");
    assert!(chip.entries() == before && used(&chip) == (4, 8), "a refused transaction has changed the chip");
    assert_eq!((usage(&chip, channels).refused, usage(&chip, members).refused), (1, 1));
    // Removing a member or a port-channel makes room. A port-channel to which members refer cannot be removed.
    let mut freed: Vec<Operation> = vec![Operation::Port(port(104), None)];
    let refused = commit(&mut chip, &freed).expect_err("it has members");
    assert_eq!(refused.code, Code::Invalid, "{refused:?}");
    freed.extend([7, 8].map(|number| Operation::Port(port(number), None)));
    commit(&mut chip, &freed).expect("removed");
    assert_eq!(used(&chip), (3, 6));
    commit(&mut chip, &bundle(5, &[9])).expect("there is room");
    assert_eq!(used(&chip), (4, 7));
}

/// The entries, in the order in which they are reported and each in a transaction of its own, create the same chip.
#[test]
fn the_entries_recreate_the_port_channels() {
    let original = chip(&setup());
    let mut copy = Chip::new(&platform(APPLIANCE), 2);
    for entry in original.entries() {
        commit(&mut copy, std::slice::from_ref(&entry))
            .unwrap_or_else(|refused| unreachable!("{entry:?}: {refused}"));
    }
    assert_eq!(copy.entries(), original.entries());
    assert_eq!(copy.distributing(), &*ports([1, 2]));
    commit(&mut copy, &[Operation::Channel(channel_id(1), None)]).expect("removed");
    assert!(copy.distributing().is_empty());
}

#[test]
fn frames_of_the_cpu_name_the_member() {
    let mut list = setup();
    let mut global = GlobalState::default();
    global.reserved[2] = ReservedAction::Trap;
    list.push(Operation::Global(Box::new(global)));
    // LACP of a member that does not collect: its partner is not there yet.
    list.push(channel(1, &[2], &[2]));
    let (mut device, session) = device(list, &[1, 2, 3]);
    let mut lacpdu = [&[1, 0x80, 0xc2, 0, 0, 2][..], &station(9).0, &[0x88, 0x09, 1, 1]].concat();
    lacpdu.resize(124, 0);
    for member in [1, 2] {
        device.frame(Timestamp::from_secs(1100), port(member), &lacpdu);
        let [Incoming::Notice(Notice::Packet(header, bytes))] = &incoming(&mut device, session)[..] else {
            unreachable!("one frame for the CPU")
        };
        assert_eq!(
            (header.port, header.reason, bytes),
            (Some(port(member)), Some(TrapReason::SlowProtocol), &lacpdu)
        );
    }
    // A frame for a member leaves by this member, even if it is not in use; a frame for the port-channel leaves by a member in
    // use.
    let mut send = |to: u16, at: u32| {
        let header = CpuHeader { to: Some(port(to)), ..CpuHeader::default() };
        device.request(Timestamp::from_secs(at), session, 9, Request::Packet(header, lacpdu.clone()));
        left(&mut device, at + 1)
    };
    assert_eq!((send(1, 1200), send(2, 1300), send(CHANNEL, 1400)), (vec![1], vec![2], vec![2]));
    // A frame for the ports of a VLAN leaves by one member, and not at all when the port-channel has received it.
    let mut relay = |from: Option<PortId>, at: u32| {
        let request = Request::Relay(vlan(10), from, ports([3, CHANNEL]), frame(station(1), station(2)));
        device.request(Timestamp::from_secs(at), session, 10, request);
        left(&mut device, at + 1)
    };
    let sorted = |mut list: Vec<u16>| {
        list.sort_unstable();
        list
    };
    assert_eq!(sorted(relay(Some(port(4)), 1500)), [2, 3]);
    assert_eq!(relay(Some(port(CHANNEL)), 1600), [3]);
}

/// Frames wait in the queue of the member by which they leave, and their tail drops are counted at that member.
#[test]
fn each_member_has_its_queue() {
    let (mut device, _) = device(setup(), &[1, 2, 3, 4]);
    let host = station(1);
    through(&mut device, 2000, 1, &frame(MacAddr([0xff; 6]), host));
    let by =
        |device: &mut Device, n: u32| through(device, 3000 + 2 * n, 3, &frame(host, station(100 + n)))[0];
    let source = (0..100).find(|n| by(&mut device, *n) == 2).expect("a flow by port 2");
    let burst = Timestamp::from_secs(5000);
    let limit = platform(APPLIANCE).buffer.queue as usize;
    let sent = limit + 100;
    (0..sent).for_each(|_| device.frame(burst, port(3), &frame(host, station(100 + source))));
    let all = left(&mut device, 6000);
    assert!(all.len() < sent && all.iter().all(|by| *by == 2), "{} frames left", all.len());
    assert_eq!(device.fabric().drops(port(2)) as usize, sent - all.len());
    assert_eq!(device.fabric().drops(port(1)), 0);
    let counted = |number| device.chip().pipeline().counters().port(port(number)).tx_dropped as usize;
    assert_eq!(counted(2), sent - all.len(), "the drops are the member's");
}

/// Members in different slices: a known frame crosses once, a flood once to each slice that has a port, the members' queues are
/// independent, and a stream keeps its member and its order.
#[test]
fn members_may_be_in_different_slices() {
    let platform = platform(UFT);
    let fabric = Device::new(&platform, 1, 1);
    let first_of = |slice: u16| {
        fabric
            .fabric()
            .ports()
            .find(|port| fabric.fabric().slice(*port) == Some(slice))
            .expect("a port")
            .get()
    };
    let (near, far, host, other) = (first_of(0), first_of(1), first_of(2), first_of(3));
    let access = |number: u16| {
        let state = PortState::access(&format!("swp{number}"), 0, vlan(10));
        Operation::Port(port(number), Some(Box::new(state)))
    };
    let mut list = vec![Operation::Vlan(vlan(10), Some(VlanState::default())), access(host), access(other)];
    list.extend(bundle(1, &[near, far]));
    list.push(channel(1, &[near, far], &[near, far]));
    let (mut device, _) = device_of(&platform, list, &[near, far, host, other]);
    let (everyone, server) = (MacAddr([0xff; 6]), station(1));
    assert_eq!(through(&mut device, 2000, near, &frame(everyone, server)).len(), 2, "{host} and {other}");
    let mut at = 3000;
    let mut crossing = |device: &mut Device, to: MacAddr, n: u32| {
        at += 2;
        let before = device.fabric().crossings();
        let left = through(device, at, host, &frame(to, station(n)));
        (left, device.fabric().crossings() - before)
    };
    let mut flows = BTreeMap::new();
    for n in 100..140 {
        let (known, crossed) = crossing(&mut device, server, n);
        assert_eq!((known.len(), crossed), (1, 1), "{known:?}");
        flows.insert(known[0], n);
        assert_eq!(crossing(&mut device, server, n).0, known, "a stream keeps its member");
        let (flood, crossed) = crossing(&mut device, everyone, n);
        assert!(flood.contains(&other) && flood.len() == 2 && crossed == 2, "{flood:?} {crossed}");
    }
    assert_eq!(flows.keys().copied().collect::<BTreeSet<_>>(), [near, far].into());
    // The queue of one member is full; the flow by the other member, which is in another slice, is not delayed.
    let burst = Timestamp::from_secs(at + 100);
    let limit = platform.buffer.queue as usize;
    (0..limit + 100).for_each(|_| device.frame(burst, port(host), &frame(server, station(flows[&near]))));
    device.frame(burst, port(host), &frame(server, station(flows[&far])));
    let sent = left(&mut device, at + 200);
    assert_eq!(sent.iter().filter(|by| **by == far).count(), 1);
    let lost = device.fabric().drops(port(near)) as usize;
    assert!(lost > 0 && sent.len() == limit + 101 - lost, "{lost} of {} lost", limit + 101);
    assert_eq!(device.fabric().drops(port(far)), 0);
}

#[test]
fn a_fault_at_a_port_channel_leaves_no_trace() {
    let (mut device, session) = device(setup(), &[1, 2, 3, 4]);
    let before = device.chip().entries();
    let list = vec![channel(1, &[1], &[1]), channel(2, &[3], &[3])];
    for (number, plan, at) in [(4, "fail channel at 1", 0), (5, "fail channel at 2", 1)] {
        device.set_faults(FaultPlan::parse(plan).expect("a plan"));
        device.request(Timestamp::from_secs(1002), session, number, Request::Commit(list.clone()));
        device.advance(Timestamp::from_secs(1003));
        let answers = incoming(&mut device, session);
        let [Incoming::Answer(to, Answer::Refused(refused))] = &answers[..] else {
            unreachable!("{plan}: {answers:?}")
        };
        assert_eq!((*to, refused.code, refused.at), (number, Code::Fault, at), "{plan}");
        assert_eq!(device.chip().entries(), before, "{plan}");
        assert_eq!(device.chip().distributing(), &*ports([1, 2]), "{plan}");
    }
    device.set_faults(FaultPlan::default());
    device.request(Timestamp::from_secs(1004), session, 6, Request::Commit(list.clone()));
    device.advance(Timestamp::from_secs(1005));
    let entries = device.chip().entries();
    assert!(list.iter().all(|operation| entries.contains(operation)));
}
