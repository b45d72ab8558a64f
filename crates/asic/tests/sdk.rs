//! The protocol: a message that is written is read as the same, and invalid bytes do no harm.

mod common;

use common::{bridge, channel, group, port, ports, prefix, route, router, station, vlan};
use lanyard_acl::key::Key;
use lanyard_acl::{Condition, FlatRule, PlaneList, Purpose, Verdict};
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::message::{
    Answer, Event, Frame, Incoming, LearnedEntry, Notice, Question, Request, Verdict as Judgement, announced,
};
use lanyard_asic::sdk::{self, HEADER, MAX_MESSAGE, Operation, VERSION};
use lanyard_asic::tables::{AclRule, PortRange};
use lanyard_pipeline::route::RouteTarget;
use lanyard_pipeline::state::{FdbTarget, GlobalState};
use lanyard_pipeline::tables::mdb::Flooded;
use lanyard_types::{AclId, ChannelId, Family, InstanceId, RifId, StpState, TrapReason, VrfId};
use proptest::prelude::*;
use std::sync::Arc;

fn every_operation() -> Vec<Operation> {
    let mut all = [bridge(3), router()].concat();
    let target = |target| Operation::Route(VrfId::DEFAULT, prefix("2001:db8::/32"), Some(target));
    let rif = RifId::new(7).expect("an interface");
    all.extend([
        Operation::Global(Box::new(GlobalState { fdb_limit: 7, ..GlobalState::default() })),
        Operation::Port(port(3), None),
        Operation::Vlan(vlan(10), None),
        Operation::Rif(rif, None),
        Operation::Stp(InstanceId::default(), port(1), StpState::Learning),
        Operation::Watched(InstanceId::default(), port(1), true),
        Operation::Watched(InstanceId::default(), port(2), false),
        Operation::Fdb(vlan(10), station(1), Some(FdbTarget::Sticky(port(2)))),
        Operation::Fdb(vlan(10), station(2), Some(FdbTarget::Blackhole)),
        Operation::Fdb(vlan(10), station(2), None),
        Operation::Adjacency(lanyard_types::AdjacencyId::MAX, None),
        Operation::Group(group(65_535), None),
        route("10.0.0.0/8", Some(1)),
        route("::/0", None),
        target(RouteTarget::Up(TrapReason::RoutePolicy)),
        target(RouteTarget::Connected(rif)),
        target(RouteTarget::Blackhole),
        Operation::Rule(
            AclRule {
                list: 1,
                sequence: 10,
                ipv6: true,
                source: PortRange::ANY,
                destination: PortRange { low: 80, high: 81 },
            },
            true,
        ),
        Operation::Multicast(
            vlan(10),
            "239.1.1.1".parse().expect("a group"),
            Some("10.0.0.1".parse().expect("an address")),
            Some(ports([1, 7, 1023])),
        ),
        Operation::Multicast(vlan(10), "ff05::1".parse().expect("a group"), None, Some(ports([]))),
        Operation::Multicast(vlan(10), "ff05::1".parse().expect("a group"), None, None),
        Operation::Routers(vlan(10), Family::V4, ports([3, 4])),
        Operation::Routers(vlan(10), Family::V6, ports([])),
        Operation::Flood(vlan(10), Family::V6, Flooded::All),
        Operation::List(AclId::MAX, None),
        Operation::Divert(AclId::MAX, true),
        Operation::Channel(ChannelId::MAX, None),
        channel(2, &[1, 2], &[1, 2]),
        channel(3, &[7], &[]),
        Operation::Divert(AclId::MAX, false),
        Operation::List(AclId::MAX, Some(Arc::new(access_list()))),
    ]);
    all
}

fn access_list() -> PlaneList {
    let web = (17, Condition::Ranges(vec![(80, 80), (8000, 8080)]));
    let rule = FlatRule {
        verdict: Verdict::Skip(1),
        fragments: true,
        log: true,
        log_input: false,
        list: 0,
        seq: 10,
        conditions: vec![(0, Condition::Mask { value: 0x0a00, mask: 0xff00 }), web],
    };
    let name = "access list web".to_owned();
    PlaneList {
        names: vec!["web".into()],
        purpose: Purpose::Filter,
        family: lanyard_acl::FrameFamily::Mac,
        rules: vec![rule],
        otherwise_permit: true,
        name,
    }
}

/// A frame on its way to the driver and back, and a judgement about it.
fn diverted() -> Frame {
    Frame { port: port(3), pending: [1, 0, 2, 0, 3, 0, 4, 0, 5, 0], bytes: vec![7; 60] }
}
fn judged(list: u16, permit: bool) -> Judgement {
    let mut key = Key { absent: 1 << 16, unknown: 1 << 22, ..Key::default() };
    key.half.iter_mut().enumerate().for_each(|(n, half)| *half = 0x100 + n as u16);
    Judgement { list: AclId::new(list).expect("a list"), key, permit }
}

#[test]
fn requests_are_read_as_they_were_written() {
    let header = CpuHeader { pipeline: true, to: Some(port(9)), ..CpuHeader::default() };
    for request in [
        Request::Hello(VERSION, "a driver".into()),
        Request::Commit(every_operation()),
        Request::Commit(Vec::new()),
        Request::Usage,
        Request::Entries(true),
        Request::Learned(false),
        Request::Counters(port(1)),
        Request::Ports,
        Request::Subscribe(7),
        Request::Packet(header, vec![1, 2, 3]),
        Request::Faults("fail route at 1".into()),
        Request::Resize("kvd/linear".into(), 128),
        Request::Flush(Some(vlan(1)), None, Some(station(3))),
        Request::Age(300),
        Request::SnoopingWatchdog(10_000),
        Request::TreeWatchdog(3000),
        Request::TreeExpiry(true),
        Request::CpuNetdev("lycpu-chip".into()),
        Request::Speed(port(3), 25_000),
        Request::Matches(AclId::MAX, true),
        Request::Relay(vlan(10), Some(port(3)), ports([1, 2, 3]), vec![4; 60]),
        Request::Relay(vlan(4094), None, ports([]), Vec::new()),
        Request::Judged(diverted(), vec![judged(7, true), judged(8, false)]),
    ] {
        let message = request.encode(77);
        assert_eq!(announced(&message), Ok(Some(message.len())));
        assert_eq!(Request::decode(&message), Ok((77, request)));
    }
}

#[test]
fn every_cut_and_every_longer_message_is_refused() {
    let message = Request::Commit(every_operation()).encode(1);
    for length in 0..message.len() {
        let mut cut = message[..length].to_vec();
        assert!(Request::decode(&cut).is_err(), "{length} bytes");
        // The same bytes with a header whose length matches.
        if length >= HEADER {
            cut[..4].copy_from_slice(&(length as u32).to_be_bytes());
            assert!(Request::decode(&cut).is_err(), "{length} bytes");
        }
    }
    let mut long = message.clone();
    long.push(0);
    let length = (long.len() as u32).to_be_bytes();
    long[..4].copy_from_slice(&length);
    assert!(Request::decode(&long).is_err());
}

#[test]
fn lengths_are_bounded() {
    let header = |length: usize| (length as u32).to_be_bytes();
    assert!(announced(&header(HEADER - 1)).is_err());
    assert!(announced(&header(MAX_MESSAGE + 1)).is_err());
    assert_eq!(announced(&header(MAX_MESSAGE)), Ok(Some(MAX_MESSAGE)));
    assert_eq!(announced(&[0, 0]), Ok(None));
    // A count that exceeds the contents reserves no memory and is refused.
    let mut message = Request::Commit(Vec::new()).encode(1);
    message[HEADER..HEADER + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(Request::decode(&message).is_err());
}

#[test]
fn notices_are_read_as_they_were_written() {
    let entry = LearnedEntry { vlan: vlan(10), mac: station(1), port: port(2), age_s: 9 };
    let Judgement { list, key, permit: ends } = judged(9, true);
    let question = Question { list, key, ends };
    let header = CpuHeader {
        forwarded: true,
        reason: Some(TrapReason::Glean),
        port: Some(port(1)),
        ..CpuHeader::default()
    };
    for notice in [
        Notice::Event(Event::Learned(entry)),
        Notice::Event(Event::Moved(entry, port(1))),
        Notice::Event(Event::Gone(entry)),
        Notice::Event(Event::Link(port(3), true)),
        Notice::Event(Event::Lost(5)),
        Notice::Event(Event::ExpiryAcknowledged),
        Notice::Packet(header, vec![0; 60]),
        Notice::Diverted(diverted(), vec![question]),
    ] {
        assert_eq!(Incoming::decode(&notice.encode()), Ok(Incoming::Notice(notice)));
    }
    let answer = Answer::Learned(true, vec![entry]);
    assert_eq!(Incoming::decode(&answer.encode(3)), Ok(Incoming::Answer(3, answer)));
}

proptest! {
    #[test]
    fn no_bytes_do_harm(kind in prop::sample::select(vec![1_u16, 2, 4, 9, 12, 0x8001, 0x8003, 0x8004, 0x8006, 0x8008, 0xc001, 0xc002, 0xc003, 18, 19]),
                        body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut message = ((HEADER + body.len()) as u32).to_be_bytes().to_vec();
        message.extend(kind.to_be_bytes());
        message.extend([0, 0, 0, 0, 0, 1]);
        message.extend(body);
        sdk::fuzz(&message);
    }

    /// A valid message in which one byte is changed is read as another message or refused, and nothing
    /// panics.
    #[test]
    fn changed_bytes_do_no_harm(at in any::<prop::sample::Index>(), value: u8) {
        let mut message = Request::Commit(every_operation()).encode(1);
        let at = at.index(message.len());
        message[at] = value;
        sdk::fuzz(&message);
    }
}
