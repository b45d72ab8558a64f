//! The watchdog of spanning tree: which ports the chip blocks when no driver restarts it, and when they may forward again.

mod common;

use common::{APPLIANCE, NOW, bridge, chip, commit, frame, incoming, platform, port, station};
use lanyard_asic::chip::device::{Device, SessionId, wants};
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::{Answer, Code, Event, Incoming, Notice, Request};
use lanyard_asic::sdk::{Operation, VERSION};
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::state::{GlobalState, ReservedAction};
use lanyard_types::{InstanceId, StpState};

const TREE: InstanceId = match InstanceId::new(0) {
    Some(tree) => tree,
    None => panic!("tree 0"),
};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000_000 + ms * 1_000_000)
}
fn watched(number: u16, on: bool) -> Operation {
    Operation::Watched(TREE, port(number), on)
}
fn state(number: u16, state: StpState) -> Operation {
    Operation::Stp(TREE, port(number), state)
}
/// Four ports; 3 and 4 lead to other bridges, and 4 is discarding.
fn trees() -> Vec<Operation> {
    [bridge(4), vec![watched(3, true), watched(4, true), state(4, StpState::Discarding)]].concat()
}

/// A chip with these entries, and a driver's session.
fn device(list: Vec<Operation>) -> (Device, SessionId) {
    let mut device = Device::new(&platform(APPLIANCE), 1, 1);
    let session = greet(&mut device, NOW);
    assert!(matches!(ask(&mut device, session, NOW, Request::Commit(list)), Answer::Done(_)));
    (device, session)
}
fn greet(device: &mut Device, now: Timestamp) -> SessionId {
    let session = device.open();
    ask(device, session, now, Request::Hello(VERSION, "test".into()));
    session
}
/// Sends a request at `now`, lets the bus take the time that it needs, and returns the answer.
fn ask(device: &mut Device, session: SessionId, now: Timestamp, request: Request) -> Answer {
    device.request(now, session, 7, request);
    if let Some(due) = device.next_on_bus() {
        device.advance(due);
        device.advance(due);
    }
    let answer = incoming(device, session).into_iter().find_map(|incoming| match incoming {
        Incoming::Answer(7, answer) => Some(answer),
        _ => None,
    });
    answer.expect("an answer")
}
fn number(device: &mut Device, session: SessionId, now: Timestamp, request: Request) -> u64 {
    match ask(device, session, now, request) {
        Answer::Done(number) => number,
        other => unreachable!("{other:?}"),
    }
}
/// The ports by which a broadcast leaves that port 1 receives at the time `ms`.
fn reaches(device: &mut Device, ms: u64) -> Vec<u16> {
    let all = lanyard_types::MacAddr([0xff; 6]);
    device.advance(at(ms));
    device.frame(at(ms), port(1), &frame(all, station(1)));
    let mut ports: Vec<u16> = device.departures(at(ms + 1)).iter().map(|(port, _)| port.get()).collect();
    ports.sort_unstable();
    ports
}

#[test]
fn watched_ports_discard_when_no_driver_restarts_the_watchdog() {
    let (mut device, session) = device(trees());
    number(&mut device, session, at(1000), Request::TreeWatchdog(3000));
    assert_eq!(reaches(&mut device, 3900), [2, 3]);
    number(&mut device, session, at(3950), Request::TreeWatchdog(3000));
    assert_eq!(reaches(&mut device, 6940), [2, 3]);
    let before = device.chip().entries();
    // The driver has ended; the chip wakes up by itself.
    device.close(session);
    assert_eq!(device.next(), Some(at(6950)));
    assert_eq!(reaches(&mut device, 6950), [2], "a port that is not watched goes on");
    assert_eq!(device.next(), None, "it expires once");
    let mut blocked = before;
    let position = blocked.iter().position(|entry| *entry == state(4, StpState::Discarding));
    blocked.insert(position.expect("port 4"), state(3, StpState::Discarding));
    assert_eq!(device.chip().entries(), blocked, "the next driver reads the state");
    // A frame of another bridge is not forwarded either.
    device.frame(at(7000), port(3), &frame(station(1), station(3)));
    assert_eq!(device.departures(at(7001)), []);
}

#[test]
fn blocked_ports_discard_until_a_driver_acknowledges_the_expiry() {
    let (mut device, session) = device(trees());
    number(&mut device, session, at(0), Request::TreeWatchdog(1000));
    assert_eq!(number(&mut device, session, at(10), Request::TreeExpiry(false)), 0);
    assert_eq!(reaches(&mut device, 2000), [2]);
    // Changes that a driver may have sent before it knew of the expiry: none of them lets a port forward that was watched or is
    // now.
    for list in [
        vec![state(3, StpState::Forwarding), state(4, StpState::Forwarding)],
        vec![watched(3, false), state(3, StpState::Forwarding)],
        vec![watched(2, true)],
        bridge(4),
    ] {
        assert!(matches!(ask(&mut device, session, at(2100), Request::Commit(list)), Answer::Done(_)));
        assert_eq!(reaches(&mut device, 2200)[..].iter().filter(|port| **port > 2).count(), 0);
    }
    assert_eq!(reaches(&mut device, 2300), [] as [u16; 0], "port 2 is watched as well");
    // Restarting the watchdog acknowledges nothing, because the driver may not know of the expiry yet; nor does asking for it.
    number(&mut device, session, at(2400), Request::TreeWatchdog(1000));
    assert_eq!(number(&mut device, session, at(2400), Request::TreeExpiry(false)), 1);
    assert_eq!(number(&mut device, session, at(2400), Request::TreeExpiry(false)), 1);
    let open = vec![state(3, StpState::Forwarding)];
    assert!(matches!(ask(&mut device, session, at(2400), Request::Commit(open.clone())), Answer::Done(_)));
    assert_eq!(reaches(&mut device, 2500), [] as [u16; 0]);
    assert_eq!(number(&mut device, session, at(2600), Request::TreeExpiry(true)), 1);
    assert_eq!(number(&mut device, session, at(2600), Request::TreeExpiry(true)), 0);
    assert_eq!(
        reaches(&mut device, 2610),
        [] as [u16; 0],
        "they wait for the states that the driver decides on"
    );
    assert!(matches!(ask(&mut device, session, at(2620), Request::Commit(open)), Answer::Done(_)));
    assert_eq!(reaches(&mut device, 2700), [3]);
    // The restarted watchdog expires: port 3, which is not watched any more, keeps forwarding, port 2 is blocked.
    let open = vec![state(2, StpState::Forwarding)];
    assert!(matches!(ask(&mut device, session, at(2700), Request::Commit(open)), Answer::Done(_)));
    assert_eq!(reaches(&mut device, 3300), [2, 3]);
    assert_eq!(reaches(&mut device, 3400), [3]);
    // A watchdog that was stopped never expires.
    assert_eq!(number(&mut device, session, at(3500), Request::TreeExpiry(true)), 1);
    number(&mut device, session, at(3500), Request::TreeWatchdog(1000));
    number(&mut device, session, at(3600), Request::TreeWatchdog(0));
    assert_eq!((reaches(&mut device, 90_000), device.next()), (vec![3], None));
    assert_eq!(number(&mut device, session, at(90_100), Request::TreeExpiry(false)), 0);
}

/// A restart that arrives after the period has passed does not hide the expiry.
#[test]
fn a_late_restart_finds_the_expiry() {
    let (mut device, session) = device(trees());
    number(&mut device, session, at(0), Request::TreeWatchdog(1000));
    number(&mut device, session, at(1000), Request::TreeWatchdog(1000));
    assert_eq!(number(&mut device, session, at(1001), Request::TreeExpiry(false)), 1);
    assert_eq!(reaches(&mut device, 1002), [2]);
}

/// Other drivers keep the bus busy for longer than the watchdog's period: the ports keep forwarding, because the driver of
/// spanning tree is alive.
#[test]
fn requests_about_the_watchdog_do_not_wait_for_the_bus() {
    let (mut device, session) = device(trees());
    let other = greet(&mut device, at(0));
    number(&mut device, session, at(0), Request::TreeWatchdog(1000));
    device.set_faults(FaultPlan::parse("slow 5000000 vlan every 1").expect("a plan"));
    device.request(at(10), other, 8, Request::Commit(bridge(1)));
    for ms in (500..5000).step_by(500) {
        device.advance(at(ms));
        for (request, wanted) in [(Request::TreeExpiry(false), 0), (Request::TreeWatchdog(1000), 0)] {
            device.request(at(ms), session, 9, request);
            assert_eq!(incoming(&mut device, session), [Incoming::Answer(9, Answer::Done(wanted))], "{ms}");
        }
    }
    assert_eq!(incoming(&mut device, other), [], "the bus is busy");
    assert_eq!(reaches(&mut device, 4900), [2, 3]);
    // Answers keep the order of a session's requests.
    device.request(at(4950), session, 10, Request::Usage);
    device.request(at(4950), session, 11, Request::TreeWatchdog(1000));
    assert_eq!(incoming(&mut device, session), []);
    device.advance(at(5100));
    let numbers: Vec<u32> = incoming(&mut device, session)
        .into_iter()
        .filter_map(|incoming| match incoming {
            Incoming::Answer(number, _) => Some(number),
            Incoming::Notice(_) => None,
        })
        .collect();
    assert_eq!(numbers, [10, 11]);
}

#[test]
fn the_acknowledgement_follows_the_frames_from_before() {
    let mut global = GlobalState::default();
    global.reserved[0] = ReservedAction::Trap;
    let list = [trees(), vec![Operation::Global(Box::new(global))]].concat();
    let (mut device, session) = device(list);
    let cpu = greet(&mut device, at(0));
    let other = greet(&mut device, at(0));
    number(&mut device, cpu, at(0), Request::Subscribe(wants::PACKETS | wants::EXPIRY));
    number(&mut device, other, at(0), Request::Subscribe(wants::PACKETS));
    number(&mut device, session, at(0), Request::TreeWatchdog(1000));
    assert_eq!(number(&mut device, session, at(500), Request::TreeExpiry(true)), 0);
    assert_eq!(incoming(&mut device, cpu), [], "nothing was acknowledged");
    let mut bpdu = vec![1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 39, 0x42, 0x42, 3];
    bpdu.resize(60, 0);
    device.advance(at(2000));
    device.frame(at(2000), port(3), &bpdu);
    assert_eq!(number(&mut device, session, at(2100), Request::TreeExpiry(true)), 1);
    device.frame(at(2200), port(3), &bpdu);
    let kinds = |device: &mut Device, session| {
        let kind = |incoming| match incoming {
            Incoming::Notice(Notice::Packet(..)) => "frame",
            Incoming::Notice(Notice::Event(Event::ExpiryAcknowledged)) => "acknowledged",
            _ => "other",
        };
        incoming(device, session).into_iter().map(kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&mut device, cpu), ["frame", "acknowledged", "frame"]);
    assert_eq!(kinds(&mut device, other), ["frame", "frame"], "a driver that does not know the notice");
}

#[test]
fn a_transaction_that_fails_leaves_the_watch_as_it_was() {
    let mut chip = chip(&trees());
    let before = chip.entries();
    let refused = [
        watched(3, false),
        watched(1, true),
        state(4, StpState::Forwarding),
        Operation::Rif(lanyard_types::RifId::new(1).expect("an interface"), None),
        common::route("10.0.0.0/8", Some(99)),
    ];
    commit(&mut chip, &refused).expect_err("there is no such group");
    assert_eq!(chip.entries(), before);
    // In an empty chip, the entries create the same configuration.
    assert_eq!(common::chip(&before).entries(), before);
    commit(&mut chip, &[watched(3, false), watched(3, false), watched(1, true)]).expect("taken");
    let all: Vec<Operation> =
        chip.entries().into_iter().filter(|entry| matches!(entry, Operation::Watched(..))).collect();
    assert_eq!(all, [watched(1, true), watched(4, true)]);
}

#[test]
fn faults_of_the_watchdog() {
    let (mut device, session) = device(trees());
    device.set_faults(
        FaultPlan::parse("fail watchdog at 1\ncut watchdog at 3\nfail watched at 1").expect("a plan"),
    );
    let Answer::Refused(refused) = ask(&mut device, session, at(0), Request::TreeWatchdog(1000)) else {
        unreachable!("it was to fail")
    };
    assert_eq!(refused.code, Code::Fault);
    assert_eq!(device.next(), None, "the watchdog was not started");
    let list = vec![state(1, StpState::Discarding), watched(1, true)];
    let Answer::Refused(refused) = ask(&mut device, session, at(1), Request::Commit(list)) else {
        unreachable!("it was to fail")
    };
    assert_eq!((refused.code, refused.at), (Code::Fault, 1));
    number(&mut device, session, at(2), Request::TreeWatchdog(1000));
    device.request(at(3), session, 9, Request::TreeWatchdog(2000));
    assert!(device.closing(session), "the connection ends without an answer");
    assert_eq!(device.next(), Some(at(2003)), "the request was carried out");
}
