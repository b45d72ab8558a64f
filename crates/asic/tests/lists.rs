//! Access lists on a chip: what they take of the TCAM, that a list is carried out whole or refused whole, and that its rules
//! judge frames and are counted.

mod common;

use common::{APPLIANCE, bridge, platform, port, station};
use lanyard_acl::{Condition, Family, FlatRule, PlaneList, Verdict};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::object::Object;
use lanyard_asic::sdk::message::{Code, Refused, Request};
use lanyard_asic::sdk::{Operation, OperationKind};
use lanyard_asic::tables::ListSize;
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::state::PortState;
use lanyard_pipeline::trace::Verdict as FrameVerdict;
use lanyard_types::{AclId, DropReason};
use std::sync::Arc;

/// The destination port among the fields of a frame, and the last halves of the addresses.
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
fn list(family: Family, rules: Vec<FlatRule>) -> PlaneList {
    PlaneList {
        name: "access list web".into(),
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
/// Port 1 with a list for the IPv4 frames that it receives.
fn bound(number: u16) -> Operation {
    let mut state = PortState::access("swp1", 0, common::vlan(10));
    state.acl_in[Family::Ipv4.index()] = Some(id(number));
    Operation::Port(port(1), Some(Box::new(state)))
}
/// UDP from port 1000 to `to`, from station 1 to station 2.
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
    assert_eq!(size(&list(Family::Ipv4, Vec::new())), 1, "what no rule matches");
    let deny =
        rule(Verdict::Deny, vec![ports(SOURCE_PORT, 1, 65_534), ports(DESTINATION_PORT, 1024, 65_535)]);
    assert_eq!(size(&list(Family::Ipv4, vec![deny])), 30 * 6 + 1);
    let permit = rule(Verdict::Permit, vec![ports(DESTINATION_PORT, 80, 80)]);
    assert_eq!(size(&list(Family::Ipv4, vec![permit.clone()])), 3, "later fragments have no ports");
    let mut chip = chip();
    assert_eq!(commit(&mut chip, &[set(1, list(Family::Ipv4, vec![permit.clone()]))]), Ok(3));
    assert_eq!(used(&chip), 3);
    commit(&mut chip, &[set(2, list(Family::Ipv6, vec![permit]))]).expect("room");
    assert_eq!(used(&chip), 3 + 3 * 4, "an IPv6 entry takes four slots of the appliance");
    commit(&mut chip, &[Operation::List(id(1), None), Operation::List(id(2), None)]).expect("removed");
    assert_eq!(used(&chip), 0);
}

#[test]
fn rules_judge_frames_and_are_counted() {
    let mut chip = chip();
    let web = list(Family::Ipv4, vec![rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 80, 80)])]);
    commit(&mut chip, &[set(5, web.clone()), bound(5)]).expect("room");
    assert_eq!(sent(&mut chip, &udp(80)), (FrameVerdict::Dropped(DropReason::AclPortIn), 0));
    assert_eq!(sent(&mut chip, &udp(53)), (FrameVerdict::Forwarded, 2));
    assert_eq!(chip.list_matches(id(5), false), [1, 1]);
    // A list that gets another rule keeps the counts of the rule that stays.
    let mut longer = web;
    longer.rules.push(rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 53, 53)]));
    commit(&mut chip, &[set(5, longer)]).expect("room");
    assert_eq!(sent(&mut chip, &udp(53)).1, 0);
    assert_eq!(chip.list_matches(id(5), true), [1, 1, 1]);
    assert_eq!(chip.list_matches(id(5), false), [0, 0, 0]);
    assert_eq!(chip.list_matches(id(6), false), [0_u64; 0]);
    // It is part of what a driver reads back.
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
    let small = list(Family::Ipv4, vec![rule(Verdict::Deny, vec![ports(DESTINATION_PORT, 80, 80)])]);
    commit(&mut chip, &[set(5, small.clone()), bound(5)]).expect("room");
    let before = (chip.entries(), used(&chip));
    let worst =
        || rule(Verdict::Deny, vec![ports(SOURCE_PORT, 1, 65_534), ports(DESTINATION_PORT, 1, 65_534)]);
    // Twice 900 entries in 1,024 slots; a new list, and one that takes the place of another.
    for number in [6, 5] {
        let large = set(number, list(Family::Ipv4, vec![worst(), worst()]));
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
    commit(&mut chip, &[set(6, list(Family::Ipv4, vec![worst()]))]).expect("900 fit");
    // A number of combinations that no counter holds is refused like any other.
    let many: Vec<(u8, Condition)> = (0..24).map(|half| ports(half, 1, 65_534)).collect();
    let Err(refused) = commit(&mut chip, &[set(8, list(Family::Ipv4, vec![rule(Verdict::Deny, many)]))])
    else {
        unreachable!("30 to the power of 24")
    };
    assert_eq!(refused.code, Code::NoRoom);
}

#[test]
fn lists_and_their_counts_survive_their_bytes() {
    let some = set(9, list(Family::Mac, vec![rule(Verdict::Permit, vec![ports(20, 0x88cc, 0x88cc)])]));
    assert_eq!(some.kind(), OperationKind::List);
    for request in [Request::Commit(vec![some, Operation::List(id(9), None)]), Request::Matches(id(9), true)]
    {
        assert_eq!(Request::decode(&request.encode(3)), Ok((3, request)));
    }
}
