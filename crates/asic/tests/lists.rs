//! Access lists on a chip: the TCAM entries that they take, that a list is accepted or refused as a whole, and that its rules
//! judge frames and are counted.

mod common;

use common::{APPLIANCE, bridge, platform, port, station};
use lanyard_acl::{Condition, FlatRule, FrameFamily, PlaneList, Purpose, Verdict};
use lanyard_asic::chip::device::{Device, wants};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::object::Object;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::{
    Code, Incoming, Notice, Question, Refused, Request, Verdict as Judgement, announced,
};
use lanyard_asic::sdk::{Operation, OperationKind, VERSION};
use lanyard_asic::tables::ListSize;
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::state::PortState;
use lanyard_pipeline::tables::acls::Acls;
use lanyard_pipeline::trace::Verdict as FrameVerdict;
use lanyard_types::{AclId, DropReason, TrapReason};
use std::sync::Arc;

/// The indices of the destination and the source port among the halves of a key (`lanyard_acl::key`).
const DESTINATION_PORT: u8 = 17;
const SOURCE_PORT: u8 = 16;

fn id(number: u16) -> AclId {
    AclId::new(number).expect("a list")
}
fn rule(verdict: Verdict, conditions: Vec<(u8, Condition)>) -> FlatRule {
    FlatRule {
        verdict,
        fragments: verdict == Verdict::Permit,
        log: false,
        log_input: false,
        list: 0,
        seq: 10,
        conditions,
    }
}
fn list(family: FrameFamily, rules: Vec<FlatRule>) -> PlaneList {
    PlaneList {
        name: "access list web".into(),
        purpose: Purpose::Filter,
        family,
        names: vec!["web".into()],
        rules,
        otherwise_permit: true,
    }
}
fn ports(half: u8, low: u16, high: u16) -> (u8, Condition) {
    (half, Condition::Ranges(vec![(low, high)]))
}
fn set(number: u16, list: PlaneList) -> Operation {
    Operation::List(id(number), Some(Arc::new(list)))
}
fn chip() -> Chip {
    let mut chip = Chip::new(&platform(APPLIANCE), 1);
    commit(&mut chip, &bridge(3)).expect("a bridge");
    chip
}
fn commit(chip: &mut Chip, list: &[Operation]) -> Result<u32, Refused> {
    chip.commit(Timestamp::from_secs(1), list, &mut Effects::default())
}
fn used(chip: &Chip) -> u32 {
    chip.usage()
        .into_iter()
        .find(|table| table.holds.iter().any(|(object, _)| *object == Object::AclIpv4))
        .expect("a table")
        .used
}
/// Sets port 1 with the access list `number` for the IPv4 frames that it receives.
fn bound(number: u16) -> Operation {
    let mut state = PortState::access("swp1", 0, common::vlan(10));
    state.acl_in[FrameFamily::Ipv4.index()] = Some(id(number));
    Operation::Port(port(1), Some(Box::new(state)))
}
/// A UDP packet from port 1000 to port `to`, from station 1 to station 2.
fn udp(to: u16) -> Vec<u8> {
    let mut frame = [station(2).0, station(1).0].concat();
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(1000_u16.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.resize(60, 0);
    frame
}
fn sent(chip: &mut Chip, frame: &[u8]) -> (FrameVerdict, usize) {
    let mut effects = Effects::default();
    let verdict = chip.frame(Timestamp::from_secs(2), port(1), frame, &mut effects);
    (verdict, effects.sent.len())
}

#[test]
fn ranges_expand_and_ipv6_is_wide() {
    let size = |list: &PlaneList| ListSize::of(id(1), list).entries;
    assert_eq!(size(&list(FrameFamily::Ipv4, Vec::new())), 1, "what no rule matches");
    let deny =
        rule(Verdict::Deny, vec![ports(SOURCE_PORT, 1, 65_534), ports(DESTINATION_PORT, 1024, 65_535)]);
    assert_eq!(size(&list(FrameFamily::Ipv4, vec![deny])), 30 * 6 + 1);
    let permit = rule(Verdict::Permit, vec![ports(DESTINATION_PORT, 80, 80)]);
    assert_eq!(size(&list(FrameFamily::Ipv4, vec![permit.clone()])), 3, "later fragments have no ports");
    let mut chip = chip();
    assert_eq!(commit(&mut chip, &[set(1, list(FrameFamily::Ipv4, vec![permit.clone()]))]), Ok(3));
    assert_eq!(used(&chip), 3);
    commit(&mut chip, &[set(2, list(FrameFamily::Ipv6, vec![permit]))]).expect("room");
    assert_eq!(used(&chip), 3 + 3 * 4, "an IPv6 entry takes four slots of the appliance");
    commit(&mut chip, &[Operation::List(id(1), None), Operation::List(id(2), None)]).expect("removed");
    assert_eq!(used(&chip), 0);
}

#[test]
fn rules_judge_frames_and_are_counted() {
    let mut chip = chip();
    let web = list(FrameFamily::Ipv4, vec![rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 80, 80)])]);
    commit(&mut chip, &[set(5, web.clone()), bound(5)]).expect("room");
    assert_eq!(sent(&mut chip, &udp(80)), (FrameVerdict::Dropped(DropReason::AclPortIn), 0));
    assert_eq!(sent(&mut chip, &udp(53)), (FrameVerdict::Forwarded, 2));
    assert_eq!(chip.list_matches(id(5), false), [1, 1]);
    // A list that gets another rule keeps the counts of its existing rules.
    let mut longer = web;
    longer.rules.push(rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 53, 53)]));
    commit(&mut chip, &[set(5, longer)]).expect("room");
    assert_eq!(sent(&mut chip, &udp(53)).1, 0);
    assert_eq!(chip.list_matches(id(5), true), [1, 1, 1]);
    assert_eq!(chip.list_matches(id(5), false), [0, 0, 0]);
    assert_eq!(chip.list_matches(id(6), false), [0_u64; 0]);
    // The list is part of the configuration that a driver reads back.
    let mut other = Chip::new(&platform(APPLIANCE), 2);
    commit(&mut other, &chip.entries()).expect("the same configuration");
    assert_eq!((other.entries(), used(&other)), (chip.entries(), used(&chip)));
    assert_eq!(sent(&mut other, &udp(80)).1, 0);
    let Err(refused) = commit(&mut chip, &[Operation::List(id(5), None)]) else {
        unreachable!("it is in use")
    };
    assert!(refused.text.contains("access list 5 does not exist"), "{refused}");
    assert_eq!(sent(&mut chip, &udp(80)).1, 0, "the list stays");
}

#[test]
fn a_list_that_does_not_fit_leaves_no_trace() {
    let mut chip = chip();
    let small = list(FrameFamily::Ipv4, vec![rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 80, 80)])]);
    commit(&mut chip, &[set(5, small.clone()), bound(5)]).expect("room");
    let before = (chip.entries(), used(&chip));
    let worst =
        || rule(Verdict::Deny, vec![ports(SOURCE_PORT, 1, 65_534), ports(DESTINATION_PORT, 1, 65_534)]);
    // Two rules of 900 entries each do not fit 1,024 slots: as a new list, and as a new value of an existing one.
    for number in [6, 5] {
        let large = set(number, list(FrameFamily::Ipv4, vec![worst(), worst()]));
        let steps = [set(7, small.clone()), large];
        let Err(refused) = commit(&mut chip, &steps) else { unreachable!("1,801 entries") };
        assert_eq!(
            (refused.code, refused.at, refused.table.as_str()),
            (Code::NoRoom, 1, "tcam/rules"),
            "{refused:?}"
        );
        assert!(
            refused.text.contains("access list web takes 1801 entries: table tcam/rules has no room"),
            "{refused}"
        );
        assert_eq!((chip.entries(), used(&chip)), before);
        assert_eq!(sent(&mut chip, &udp(80)).1, 0, "the old list judges");
    }
    commit(&mut chip, &[set(6, list(FrameFamily::Ipv4, vec![worst()]))]).expect("900 fit");
    // A list whose number of entries exceeds every counter is refused like any other that is too large.
    let many: Vec<(u8, Condition)> = (0..24).map(|half| ports(half, 1, 65_534)).collect();
    let Err(refused) = commit(&mut chip, &[set(8, list(FrameFamily::Ipv4, vec![rule(Verdict::Deny, many)]))])
    else {
        unreachable!("30 to the power of 24")
    };
    assert_eq!(refused.code, Code::NoRoom);
}

#[test]
fn lists_and_their_counts_survive_their_bytes() {
    let some = set(9, list(FrameFamily::Mac, vec![rule(Verdict::Permit, vec![ports(20, 0x88cc, 0x88cc)])]));
    assert_eq!(some.kind(), OperationKind::List);
    for request in [Request::Commit(vec![some, Operation::List(id(9), None)]), Request::Matches(id(9), true)]
    {
        assert_eq!(Request::decode(&request.encode(3)), Ok((3, request)));
    }
}

/// The chip's counters of port 1: received, forwarded, trapped, dropped by the list, dropped because nobody judged.
fn counted(chip: &Chip) -> [u64; 5] {
    let of = chip.pipeline().counters().port(port(1));
    let dropped = |reason: DropReason| of.dropped[reason.index()];
    let (denied, unjudged) = (dropped(DropReason::AclPortIn), dropped(DropReason::AclUnjudged));
    [of.rx.frames, of.forwarded, of.trapped, denied, unjudged]
}

#[test]
fn frames_for_a_diverted_list_wait_for_the_judgement_of_the_driver() {
    let mut chip = chip();
    let worst = |half| rule(Verdict::Deny, vec![ports(half, 1, 65_534)]);
    let web = rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 80, 80)]);
    let rules = vec![web, worst(SOURCE_PORT)];
    let long = list(FrameFamily::Ipv4, [rules.clone(), vec![worst(20); 40]].concat());
    assert!(commit(&mut chip, &[set(5, long.clone()), bound(5)]).is_err(), "1,200 entries");
    commit(&mut chip, &[Operation::Divert(id(5), true), set(5, long.clone()), bound(5)]).expect("no entries");
    assert_eq!(used(&chip), 0);
    let trapped = FrameVerdict::Trapped(TrapReason::AclDiverted);
    let denied = FrameVerdict::Dropped(DropReason::AclPortIn);
    let mut lists = Acls::default();
    lists.set(id(5), Some(Arc::new(long.clone()))).expect("a list");
    let now = Timestamp::from_secs(2);
    for to in [80, 53] {
        let (arrived, mut effects) = (udp(to), Effects::default());
        assert_eq!(chip.frame(now, port(1), &arrived, &mut effects), trapped);
        assert_eq!((effects.sent.len(), effects.events.len()), (0, 0), "it is neither sent nor learned");
        let (from, questions, frame) = effects.diverted.remove(0);
        assert_eq!((from, &frame), (port(1), &udp(to)));
        let answers = lists.answer(&questions);
        let mut effects = Effects::default();
        assert_eq!(chip.judged(now, from, (&frame, frame.len()), &answers, &mut effects), denied);
        assert_eq!(effects.sent.len(), 0);
    }
    assert_eq!(counted(&chip), [2, 0, 0, 2, 0], "each frame is counted once");
    assert_eq!(lists.matches(id(5)).expect("a list")[..2], [1, 1]);
    assert_eq!(chip.list_matches(id(5), false)[..2], [0, 0], "the chip has judged nothing");
    // A frame without a valid IP header is dropped by every list, diverted or not.
    let mut short = udp(53);
    short[14] = 0x44;
    assert_eq!(sent(&mut chip, &short), (FrameVerdict::Dropped(DropReason::AclPortIn), 0));
    // A shorter list permits the frame, and the chip continues its processing: it is flooded, and its source is learned.
    let shorter = list(FrameFamily::Ipv4, rules[..1].to_vec());
    commit(&mut chip, &[set(5, shorter.clone())]).expect("diverted still");
    lists.set(id(5), Some(Arc::new(shorter))).expect("a list");
    let (arrived, mut effects) = (udp(53), Effects::default());
    assert_eq!(chip.frame(now, port(1), &arrived, &mut effects), trapped);
    let (from, questions, frame) = effects.diverted.remove(0);
    let mut answers = lists.answer(&questions);
    // A judgement about another frame does not count for this one: it is diverted anew.
    answers[0].key.half[0] ^= 1;
    let mut effects = Effects::default();
    assert_eq!(chip.judged(now, from, (&frame, frame.len()), &answers, &mut effects), trapped);
    let (from, questions, frame) = effects.diverted.remove(0);
    let answers = lists.answer(&questions);
    let mut effects = Effects::default();
    let verdict = chip.judged(now, from, (&frame, frame.len()), &answers, &mut effects);
    assert_eq!((verdict, effects.sent.len(), effects.events.len()), (FrameVerdict::Forwarded, 2, 1));
    // A diverted list that has become short enough gets its entries; one that is too long is refused and leaves no trace.
    assert_eq!(commit(&mut chip, &[Operation::Divert(id(5), false)]), Ok(2));
    assert_eq!(sent(&mut chip, &udp(80)), (FrameVerdict::Dropped(DropReason::AclPortIn), 0));
    commit(&mut chip, &[Operation::Divert(id(5), true), set(5, long)]).expect("no entries");
    let before = (chip.entries(), used(&chip));
    let refused = commit(
        &mut chip,
        &[Operation::Vlan(common::vlan(77), Some(Default::default())), Operation::Divert(id(5), false)],
    );
    assert_eq!(refused.map_err(|refused| refused.code), Err(Code::NoRoom));
    assert_eq!((chip.entries(), used(&chip)), before);
    assert_eq!(sent(&mut chip, &udp(53)), (trapped, 0), "it is diverted as before");
    // Whether a list is diverted is part of the configuration that a driver reads back.
    let mut other = Chip::new(&platform(APPLIANCE), 2);
    commit(&mut other, &chip.entries()).expect("the same configuration");
    assert_eq!((other.entries(), used(&other)), before);
    assert_eq!(sent(&mut other, &udp(53)), (trapped, 0));
}

/// Without a driver that judges, or while the driver does not read, the frames that it would have to judge are dropped and
/// counted.
#[test]
fn diverted_frames_without_a_judging_driver_are_dropped() {
    let mut device = Device::new(&platform(APPLIANCE), 1, 1);
    let now = Timestamp::from_secs(1);
    let session = device.open();
    let web = list(FrameFamily::Ipv4, vec![rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 80, 80)])]);
    let setup = [bridge(3), vec![Operation::Divert(id(5), true), set(5, web), bound(5)]].concat();
    device.request(now, session, 1, Request::Hello(VERSION, "test".into()));
    device.request(now, session, 2, Request::Commit(setup));
    device.advance(Timestamp::from_secs(2));
    let now = Timestamp::from_secs(3);
    device.frame(now, port(1), &udp(53));
    assert_eq!(counted(device.chip()), [1, 0, 0, 0, 1]);
    device.request(now, session, 3, Request::Subscribe(wants::PACKETS | wants::DIVERTED));
    // A second session that subscribes to diverted frames gets none, because otherwise each frame would come back twice.
    let second = device.open();
    device.request(now, second, 1, Request::Hello(VERSION, "test".into()));
    device.request(now, second, 2, Request::Subscribe(wants::DIVERTED));
    device.advance(Timestamp::from_secs(4));
    device.output(second).expect("a session").clear();
    let frames = 10_000;
    (0..frames).for_each(|_| device.frame(Timestamp::from_secs(4), port(1), &udp(53)));
    let [received, _, waiting, _, lost] = counted(device.chip());
    assert_eq!((received, waiting + lost), (frames + 1, frames + 1));
    assert!(waiting > 1000 && lost > 1000, "{waiting} wait, {lost} found no room");
    assert!(device.takes(session), "notices alone do not keep a driver from sending what it has judged");
    assert!(device.output(second).expect("a session").is_empty());
    // A frame that the driver gives back is forwarded; one that is lost on the way back is counted as dropped.
    let bytes: Vec<u8> = device.output(session).expect("a session").drain(..).collect();
    let mut rest = &bytes[..];
    let mut back = Vec::new();
    while let Some(length) = announced(rest).expect("messages") {
        if let Incoming::Notice(Notice::Diverted(frame, questions)) =
            Incoming::decode(&rest[..length]).expect("one")
        {
            let permit = |of: &Question| Judgement { list: of.list, key: of.key, permit: true };
            back.push(Request::Judged(frame, questions.iter().map(permit).collect()));
        }
        rest = &rest[length..];
    }
    assert_eq!(back.len() as u64, waiting);
    device.set_faults(FaultPlan::parse("fail packet at 2").expect("a plan"));
    back.drain(..2).for_each(|request| device.request(now, session, 9, request));
    let [received, forwarded, trapped, _, dropped] = counted(device.chip());
    assert_eq!([received, forwarded, trapped, dropped], [frames + 1, 1, waiting - 2, lost + 1]);
    assert_eq!(device.departures(Timestamp::from_secs(5)).len(), 2, "flooded to the two other ports");
    // The driver ends: the frames that it has received and those that wait for it are counted as dropped. The second session
    // judges from now on.
    device.close(session);
    assert_eq!(counted(device.chip()), [frames + 1, 1, 0, 0, frames]);
    device.frame(Timestamp::from_secs(6), port(1), &udp(53));
    assert_eq!(counted(device.chip()), [frames + 2, 1, 1, 0, frames]);
    device.close(second);
    assert_eq!(counted(device.chip()), [frames + 2, 1, 0, 0, frames + 1]);
}
