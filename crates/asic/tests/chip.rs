//! The chip without its process: transactions, learning, the bus on a clock that the tests set, faults.

mod common;

use common::{
    APPLIANCE, SPECTRUM, UFT, bridge, frame, group, platform, port, ports, prefix, route, router, station,
    vlan,
};
use lanyard_asic::chip::device::{Device, Exit, SessionId, wants};
use lanyard_asic::chip::segments::Offload;
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::{Answer, Code, Event, Incoming, Notice, Request, announced};
use lanyard_asic::sdk::{Operation, VERSION};
use lanyard_asic::tables::{AclRule, PortRange};
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::generate::Rng;
use lanyard_pipeline::route::RouteTarget;
use lanyard_pipeline::state::FdbTarget;
use lanyard_types::{PortId, Stage, TrapReason, VrfId};

const NOW: Timestamp = Timestamp::from_secs(1);

fn chip(text: &str, list: &[Operation]) -> Chip {
    let mut chip = Chip::new(&platform(text), 7);
    chip.commit(NOW, list, &mut Effects::default()).expect("room");
    chip
}
fn used(chip: &Chip) -> Vec<u32> {
    chip.usage().iter().map(|table| table.used).collect()
}

#[test]
fn a_transaction_that_fails_leaves_no_trace() {
    let mut chip = chip(APPLIANCE, &[bridge(2), vec![route("10.0.0.0/8", None)]].concat());
    chip.frame(NOW, port(1), &frame(station(9), station(1)), &mut Effects::default());
    let (entries, tables, learned) = (chip.entries(), used(&chip), chip.learned(NOW));
    assert_eq!(learned.len(), 1);
    let list = [
        vec![Operation::Port(port(1), None), Operation::Vlan(vlan(10), None)],
        router(),
        vec![
            Operation::Fdb(vlan(10), station(1), Some(FdbTarget::Static(port(2)))),
            route("10.1.0.0/16", Some(1)),
            route("10.1.1.1/32", Some(2)),
            route("10.2.0.0/16", Some(77)),
        ],
    ]
    .concat();
    let refused = chip.commit(NOW, &list, &mut Effects::default()).expect_err("there is no group 77");
    assert_eq!((refused.code, refused.at), (Code::Invalid, list.len() as u32 - 1));
    assert_eq!((chip.entries(), used(&chip), chip.learned(NOW)), (entries, tables, learned));
}

#[test]
fn entries_read_back_configure_an_equal_chip() {
    let mut list = [
        router(),
        vec![route("10.0.0.0/8", Some(1)), route("10.0.0.1/32", Some(2)), route("2001:db8::/64", Some(1))],
    ]
    .concat();
    let rule = AclRule {
        list: 1,
        sequence: 5,
        ipv6: false,
        source: PortRange::ANY,
        destination: PortRange { low: 1, high: 9 },
    };
    list.push(Operation::Rule(rule, true));
    list.push(Operation::Multicast(
        vlan(10),
        "239.1.1.1".parse().expect("a group"),
        None,
        Some(ports([1, 2])),
    ));
    let first = chip(SPECTRUM, &list);
    let second = chip(SPECTRUM, &first.entries());
    assert_eq!(second.entries(), first.entries());
    assert_eq!(used(&second), used(&first));
}

#[test]
fn addresses_without_room_are_not_learned_and_their_frames_are_flooded() {
    let mut chip = chip(APPLIANCE, &bridge(3));
    let (mut sent, mut events) = (0_u32, 0);
    while chip.learn_refused() < 10 {
        let frame = frame(station(0), station(1000 + sent));
        let mut effects = Effects::default();
        chip.frame(NOW, port(1), &frame, &mut effects);
        assert_eq!(effects.sent.len(), 2, "each is flooded to two ports");
        events += effects.events.len();
        sent += 1;
    }
    let learned = chip.learned(NOW).len();
    assert_eq!(learned as u32 + 10, sent);
    assert_eq!(events, learned);
    assert_eq!(chip.usage()[0].used, learned as u32);
    // Removing entries makes room.
    let (frame, mut effects) = (frame(station(0), station(1)), Effects::default());
    chip.flush(&Default::default(), NOW, &mut effects);
    assert_eq!((chip.usage()[0].used, chip.learned(NOW).len()), (0, 0));
    // A configured entry replaces a learned one; removing the configured entry frees its place.
    chip.frame(NOW, port(1), &frame, &mut effects);
    let fixed = |target| Operation::Fdb(vlan(10), station(1), target);
    chip.commit(NOW, &[fixed(Some(FdbTarget::Static(port(2))))], &mut effects).expect("room");
    assert_eq!(chip.usage()[0].used, 1);
    chip.commit(NOW, &[fixed(None)], &mut effects).expect("room");
    assert_eq!(chip.usage()[0].used, 0);
}

#[test]
fn random_transactions_are_whole_or_nothing_on_every_platform() {
    for (text, seed) in [(APPLIANCE, 1), (SPECTRUM, 2), (UFT, 3)] {
        let mut rng = Rng::new(seed);
        let mut chip = chip(text, &[bridge(4), router()[2..].to_vec()].concat()[..5]);
        chip.commit(NOW, &router(), &mut Effects::default()).expect("room");
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..400 {
            let list: Vec<Operation> = (0..1 + rng.next_u64() % 24).map(|_| random(&mut rng)).collect();
            let (entries, tables) = (chip.entries(), used(&chip));
            if chip.commit(NOW, &list, &mut Effects::default()).is_ok() {
                taken += 1;
            } else {
                refused += 1;
                assert_eq!((chip.entries(), used(&chip)), (entries, tables));
            }
        }
        assert!(taken > 20 && refused > 20, "{taken} taken, {refused} refused");
        // The tables contain only what the configuration needs: an empty chip accepts it and then has the same
        // figures.
        let mut again = Chip::new(&platform(text), 7);
        again.commit(NOW, &chip.entries(), &mut Effects::default()).expect("room");
        assert_eq!(used(&again), used(&chip));
    }
}

/// A random operation. It may be refused, because it refers to a group that does not exist, or a table of the small platform is
/// full.
fn random(rng: &mut Rng) -> Operation {
    let number = rng.next_u64() % 1200;
    let by = (!rng.next_u64().is_multiple_of(4)).then_some(if number.is_multiple_of(25) {
        99
    } else {
        1 + (number % 2) as u32
    });
    match rng.next_u64() % 6 {
        0 => route(&format!("10.{}.{}.0/24", number / 100, number % 100), by),
        1 => route(&format!("10.9.{}.{}/32", number / 100, number % 100), by),
        2 => route(&format!("2001:db8:{number:x}::/64"), by),
        3 => route(&format!("2001:db8:{number:x}::1/128"), by),
        4 => Operation::Group(
            group(1 + (number % 3) as u32),
            Some(vec![lanyard_types::AdjacencyId::new(1).expect("one"); 1 << (number % 6)]),
        ),
        _ => {
            let range = PortRange { low: number as u16, high: 3 * number as u16 + 1 };
            let rule = AclRule {
                list: 1,
                sequence: number as u32 % 40,
                ipv6: false,
                source: range,
                destination: PortRange::ANY,
            };
            Operation::Rule(rule, !number.is_multiple_of(3))
        }
    }
}

/// A device with a clock that the test sets, and one session.
struct Bench {
    device: Device,
    session: SessionId,
    now_us: u64,
}

impl Bench {
    fn new(faults: &str) -> Self {
        Self::on(APPLIANCE, faults)
    }
    fn on(text: &str, faults: &str) -> Self {
        let mut device = Device::new(&platform(text), 7, 1);
        device.set_faults(FaultPlan::parse(faults).expect("a plan"));
        let session = device.open();
        let mut bench = Self { device, session, now_us: 0 };
        bench.ask(0, Request::Hello(VERSION, "test".into()));
        assert!(matches!(bench.until(0)[..], [Incoming::Answer(0, Answer::Welcome(_))]));
        bench
    }
    fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now_us * 1000)
    }
    fn ask(&mut self, number: u32, request: Request) {
        self.device.request(self.at(), self.session, number, request);
    }
    /// Sets the clock, and returns what the session has received by then.
    fn until(&mut self, us: u64) -> Vec<Incoming> {
        self.now_us = us;
        self.device.advance(self.at());
        let output = self.device.output(self.session).expect("a session");
        let bytes: Vec<u8> = output.drain(..).collect();
        let mut rest = &bytes[..];
        let mut all = Vec::new();
        while let Some(length) = announced(rest).expect("messages") {
            all.push(Incoming::decode(&rest[..length]).expect("a message"));
            rest = &rest[length..];
        }
        all
    }
}

#[test]
fn the_bus_takes_its_time_and_keeps_the_order() {
    let mut bench = Bench::new("");
    bench.ask(1, Request::Commit(router()));
    bench.ask(2, Request::Usage);
    bench.ask(3, Request::Commit(vec![route("10.0.0.0/8", Some(1))]));
    // Eight writes of 60 us; a query of 35 us; a write.
    assert!(bench.until(479).is_empty());
    assert_eq!(bench.device.chip().entries().len(), 1, "nothing takes effect before its time");
    assert!(bench.until(480).is_empty());
    assert!(bench.device.chip().entries().len() > 1);
    // The VRF and one member of each group are three more entries, which occupy the bus for another 180 us.
    assert_eq!(bench.until(660), [Incoming::Answer(1, Answer::Done(11))]);
    assert!(bench.until(660 + 34).is_empty());
    assert!(matches!(bench.until(660 + 35)[..], [Incoming::Answer(2, Answer::Usage(_))]));
    assert_eq!(bench.device.next(), Some(Timestamp::from_nanos((660 + 95) * 1000)));
    assert_eq!(bench.until(660 + 95), [Incoming::Answer(3, Answer::Done(1))]);
    assert_eq!(bench.device.next(), None);
}

#[test]
fn planned_faults_fail_delay_disconnect_and_end_the_chip() {
    let mut bench = Bench::new("fail route at 2\nslow 1000 query at 1\ncut route at 4\ndie port at 3");
    bench.ask(1, Request::Commit(router()));
    bench.ask(2, Request::Commit(vec![route("10.0.0.0/8", Some(1)), route("11.0.0.0/8", Some(1))]));
    let answers = bench.until(10_000);
    let [_, Incoming::Answer(2, Answer::Refused(refused))] = &answers[..] else {
        unreachable!("{answers:?}")
    };
    assert_eq!((refused.code, refused.at), (Code::Fault, 1));
    assert!(
        bench.device.chip().pipeline().tables().routes.get(VrfId::DEFAULT, prefix("10.0.0.0/8")).is_none()
    );
    bench.ask(3, Request::Usage);
    assert!(bench.until(11_034).is_empty());
    assert_eq!(bench.until(11_035).len(), 1);
    bench.ask(4, Request::Commit(vec![route("10.0.0.0/8", Some(1))]));
    assert_eq!(bench.until(20_000).len(), 1);
    // The fourth route is written, and the connection ends before the answer.
    bench.ask(5, Request::Commit(vec![route("12.0.0.0/8", Some(1))]));
    assert!(bench.until(30_000).is_empty() && bench.device.closing(bench.session));
    assert!(
        bench.device.chip().pipeline().tables().routes.get(VrfId::DEFAULT, prefix("12.0.0.0/8")).is_some()
    );
    bench.session = bench.device.open();
    bench.ask(6, Request::Hello(VERSION, "again".into()));
    bench.ask(7, Request::Commit(bridge(1)));
    bench.until(40_000);
    assert!(bench.device.is_dead(), "the third port of the plan's count");
}

#[test]
fn strangers_are_turned_away() {
    for request in [Request::Usage, Request::Hello(VERSION + 1, "new".into())] {
        let mut device = Device::new(&platform(APPLIANCE), 7, 1);
        let session = device.open();
        device.request(NOW, session, 1, request);
        assert!(device.closing(session) && !device.takes(session));
        let bytes: Vec<u8> = device.output(session).expect("a session").drain(..).collect();
        let Ok(Incoming::Answer(1, Answer::Refused(refused))) = Incoming::decode(&bytes) else {
            unreachable!("{bytes:?}")
        };
        assert_eq!(refused.code, Code::Version);
    }
}

#[test]
fn drivers_hear_of_learning_links_and_frames_for_the_cpu() {
    let mut bench = Bench::new("");
    let mut list = bridge(2);
    let mut global = lanyard_pipeline::state::GlobalState::default();
    global.reserved[0] = lanyard_pipeline::state::ReservedAction::Trap;
    list.push(Operation::Global(Box::new(global)));
    bench.ask(1, Request::Commit(list));
    bench.ask(2, Request::Subscribe(wants::LEARNING | wants::LINKS | wants::PACKETS));
    bench.until(10_000);
    bench.device.link(port(1), true);
    bench.device.link(port(1), true);
    let at = bench.at();
    bench.device.frame(at, port(1), &frame(station(2), station(1)));
    let bpdu = frame(lanyard_types::MacAddr::BRIDGE_GROUP, station(1));
    bench.device.frame(at, port(1), &bpdu);
    let received = bench.until(10_001);
    let header = CpuHeader { reason: Some(TrapReason::Bpdu), port: Some(port(1)), ..CpuHeader::default() };
    let [
        Incoming::Notice(Notice::Event(link)),
        Incoming::Notice(Notice::Event(Event::Learned(entry))),
        packet,
    ] = &received[..]
    else {
        unreachable!("{received:?}")
    };
    assert_eq!((*link, entry.mac, entry.port), (Event::Link(port(1), true), station(1), port(1)));
    assert_eq!(*packet, Incoming::Notice(Notice::Packet(header, bpdu)));
    // In the other direction, a frame of the CPU leaves at once, even while the bus is busy.
    bench.ask(3, Request::Commit(vec![route("10.0.0.0/8", None); 100]));
    let out = CpuHeader { to: Some(port(2)), ..CpuHeader::default() };
    bench.ask(4, Request::Packet(out, vec![1; 60]));
    let left = bench.device.departures(bench.at());
    assert!(left.contains(&(port(2), vec![1; 60])), "{left:?}");
}

/// The configuration of [`router`], with a route to 10.0.0.0/8 that hands packets to the CPU.
fn router_to_cpu() -> Vec<Operation> {
    let target = RouteTarget::Up(TrapReason::RoutePolicy);
    let route = Operation::Route(VrfId::DEFAULT, prefix("10.0.0.0/8"), Some(target));
    [router(), vec![route]].concat()
}

/// An IPv4 packet of `length` bytes for the route of [`router_to_cpu`], as it arrives at port 1.
fn packet(length: u16) -> Vec<u8> {
    let mut packet = [&station(1).0[..], &station(0x101).0[..], &[8, 0, 0x45, 0]].concat();
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 0, 0, 1]);
    let sum: u32 =
        packet[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet.resize(14 + usize::from(length), 0);
    packet
}

#[test]
fn a_route_to_the_cpu_traps() {
    let mut chip = chip(APPLIANCE, &router_to_cpu());
    let mut packet = packet(28);
    packet.resize(60, 0);
    let mut effects = Effects::default();
    chip.frame(NOW, port(1), &packet, &mut effects);
    let header =
        CpuHeader { reason: Some(TrapReason::RoutePolicy), port: Some(port(1)), ..CpuHeader::default() };
    assert_eq!((effects.sent, effects.cpu), (vec![], vec![(header, packet.as_slice().into())]));
}

/// Collects the frames that leave a chip through an [`Exit`].
#[derive(Default)]
struct Outside {
    front: Vec<(PortId, Vec<u8>, Offload)>,
    cpu: Vec<(CpuHeader, Vec<u8>, Offload)>,
    refuses: bool,
}

impl Exit for Outside {
    fn front(&mut self, port: PortId, frame: &[u8], pending: &Offload) -> bool {
        self.front.push((port, frame.to_vec(), *pending));
        !self.refuses
    }
    fn cpu(&mut self, header: &CpuHeader, frame: &[u8], pending: &Offload) {
        self.cpu.push((*header, frame.to_vec(), *pending));
    }
}

/// A buffer of UDP datagrams for the route of [`router_to_cpu`], and the work that is pending on it.
fn segments() -> (Vec<u8>, Offload) {
    let [size, start, offset] = [1472_u16, 34, 6].map(u16::to_ne_bytes);
    (packet(3000), [1, 5, 42, 0, size[0], size[1], start[0], start[1], offset[0], offset[1]])
}

#[test]
fn frames_that_leave_at_once_are_those_that_would_wait() {
    let list = [bridge(3), vec![Operation::Global(Box::default())]].concat();
    let [mut waits, mut at_once] = [1, 2].map(|_| {
        let mut bench = Bench::on(SPECTRUM, "");
        bench.ask(1, Request::Commit(list.clone()));
        bench.until(10_000);
        bench.device.set_cpu_netdev(Ok(true));
        bench
    });
    let now = waits.at();
    let mut out = Outside::default();
    // A flooded frame, a known one, two for the port that is busy with it, and one from the CPU.
    for (from, to, by) in [(1, 2, 1), (2, 1, 2), (3, 1, 3), (2, 1, 2)] {
        let frame = frame(station(to), station(from));
        waits.device.frame(now, port(by), &frame);
        at_once.device.buffer(now, port(by), &[0; 10], &frame, Some(&mut out));
    }
    let header = CpuHeader { to: Some(port(4)), ..CpuHeader::default() };
    let (buffer, pending) = segments();
    waits.device.cpu_buffer(now, header, &pending, &buffer, None);
    at_once.device.cpu_buffer(now, header, &pending, &buffer, Some(&mut out));
    assert_eq!(out.front.len(), 2, "frames for idle ports leave at once");
    let later = Timestamp::from_secs(1);
    let mut want = waits.device.leaving(later);
    out.front.extend(at_once.device.leaving(later));
    assert_eq!(want.len(), 6, "two copies of the flooded frame");
    want.sort();
    out.front.sort();
    assert_eq!(out.front, want);
    // A frame that its wire refuses is counted as a drop.
    out.refuses = true;
    at_once.device.buffer(
        Timestamp::from_secs(2),
        port(2),
        &[0; 10],
        &frame(station(1), station(2)),
        Some(&mut out),
    );
    let refusals =
        |bench: &Bench, number| bench.device.chip().pipeline().counters().port(port(number)).tx_dropped;
    assert_eq!((refusals(&at_once, 1), refusals(&waits, 1)), (1, 0));
}

#[test]
fn a_buffer_goes_up_whole_and_unchanged() {
    let mut bench = Bench::new("");
    bench.ask(1, Request::Commit(router_to_cpu()));
    bench.until(10_000);
    bench.device.set_cpu_netdev(Ok(true));
    let (buffer, pending) = segments();
    let mut out = Outside::default();
    bench.device.buffer(bench.at(), port(1), &pending, &buffer, Some(&mut out));
    bench.device.buffer(bench.at(), port(1), &pending, &buffer, None);
    let stored = bench.device.cpu_frames();
    assert_eq!(out.cpu.len(), 1, "by the reason of its route");
    assert_eq!((&out.cpu, &stored[0].1, stored[0].2), (&stored, &buffer, pending));
    assert!(out.cpu[0].0.reason.is_some_and(|reason| reason.stage() == Stage::Route));
}
