//! The chip as a third implementation of the pipeline: the same states, routes and frames pass the specification and a chip,
//! which is configured by operations of the SDK after they have been encoded and decoded. Some access lists are diverted, in
//! particular long ones: the test is the driver that judges by them. Verdict, egress ports, their order, every byte, the frames
//! for the CPU and their reasons, learning, counters and the FDB must agree.
//!
//! The states are those of the eBPF programs' differential test, so all three implementations agree with each other. The chip's
//! tables are large enough for all states; other tests fill them. `LANYARD_DIFF_FRAMES` is the number of frames (60,000 by
//! default), `LANYARD_DIFF_SEED` the seed of the first state.

mod common;

use common::{UFT, platform};
use ipnet::IpNet;
use lanyard_acl::PlaneList;
use lanyard_asic::chip::device::{Device, wants};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::object::Object;
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::message::{Answer, Event, Incoming, Request, announced};
use lanyard_asic::sdk::{Operation, VERSION};
use lanyard_asic::tables::ListSize;
use lanyard_pipeline::generate::{MAX_GENERATED_PORTS, Rng, State, frame, mdb_change, routes};
use lanyard_pipeline::route::RouteChange;
use lanyard_pipeline::state::{AclBindings, PlaneState, PortKind};
use lanyard_pipeline::tables::acls::Acls;
use lanyard_pipeline::tables::fdb::{FdbEvent, FdbFilter};
use lanyard_pipeline::tables::mdb::MdbChange;
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{AclId, DropReason, PortId, Stage, TrapReason};
use std::collections::BTreeSet;

/// Slots of the TCAM for access lists.
const RULES: u32 = 1 << 17;
/// The most entries of a random access list that the chip gets; port ranges can expand to many more.
const MOST: u32 = 1 << 12;
/// The test diverts the lists whose number is a multiple of this, although they fit the chip.
const DIVERTED: u16 = 3;
/// Frames through one state.
const FRAMES_A_STATE: u64 = 250;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
}

fn diverted(id: AclId, list: &PlaneList) -> bool {
    id.get().is_multiple_of(DIVERTED) || ListSize::of(id, list).entries > MOST
}

/// A plane's state as the operations that a driver sends.
fn operations(state: &PlaneState) -> Vec<Operation> {
    let mut all = vec![Operation::Global(Box::new(state.global.clone()))];
    all.extend(
        state
            .acls
            .iter()
            .filter(|(id, list)| diverted(**id, list))
            .map(|(id, _)| Operation::Divert(*id, true)),
    );
    all.extend(state.acls.iter().map(|(id, list)| Operation::List(*id, Some(list.clone()))));
    all.extend(state.vlans.iter().map(|(vlan, state)| Operation::Vlan(*vlan, Some(state.clone()))));
    let ports = state.ports.iter();
    all.extend(ports.map(|(port, state)| Operation::Port(*port, Some(Box::new(state.clone())))));
    let channels = state.channels.iter();
    all.extend(channels.map(|(id, members)| Operation::Channel(*id, Some(Box::new(members.clone())))));
    all.extend(state.stp.iter().map(|((tree, port), stp)| Operation::Stp(*tree, *port, *stp)));
    all.extend(state.fdb.iter().map(|((vlan, mac), target)| Operation::Fdb(*vlan, *mac, Some(*target))));
    all.extend(state.rifs.iter().map(|(rif, state)| Operation::Rif(*rif, Some(Box::new(state.clone())))));
    all
}

/// A frame for the CPU: the port that it comes from, the interface that it is for, the reason, and its bytes.
type ForCpu = (PortId, Option<PortId>, Option<TrapReason>, Vec<u8>);

/// The platform with the largest tables, and a TCAM for all rules of random access lists.
fn large() -> Platform {
    let mut large = platform(UFT);
    for memory in &mut large.memory {
        for table in memory.table.iter_mut().filter(|table| table.holds.contains_key(&Object::AclIpv4)) {
            memory.size += RULES - table.size;
            table.size = RULES;
        }
    }
    large
}

/// The state without the access lists that have more than [`MOST`] entries.
fn without_large_lists(mut state: State) -> State {
    let acls = &mut state.plane.acls;
    acls.retain(|id, list| ListSize::of(*id, list).entries <= MOST);
    let unbind = |lists: &mut AclBindings| {
        lists.iter_mut().filter(|id| id.is_some_and(|id| !acls.contains_key(&id))).for_each(|id| *id = None);
    };
    let ports = state.plane.ports.values_mut().flat_map(|port| [&mut port.acl_in, &mut port.acl_out]);
    ports.chain(state.plane.vlans.values_mut().map(|vlan| &mut vlan.acl)).for_each(unbind);
    state
}

/// A change of routing as operations. The SDK has no operation that removes all routes of a VRF, so each route is removed by one.
fn operation(change: &RouteChange, pipeline: &Pipeline) -> Vec<Operation> {
    vec![match change.clone() {
        RouteChange::Adjacency(id, new) => Operation::Adjacency(id, new),
        RouteChange::Group(id, new) => Operation::Group(id, new),
        RouteChange::Route(vrf, prefix, new) => Operation::Route(vrf, prefix, new),
        RouteChange::VrfGone(gone) => {
            let tables = pipeline.tables().routes.vrfs().filter(|(vrf, _)| *vrf == gone);
            let prefixes = tables.flat_map(|(_, tables)| {
                let four = tables.ipv4.iter().map(|(prefix, _)| IpNet::from(prefix));
                four.chain(tables.ipv6.iter().map(|(prefix, _)| IpNet::from(prefix)))
            });
            return prefixes.map(|prefix| Operation::Route(gone, prefix, None)).collect();
        }
    }]
}

/// A transaction after encoding and decoding.
fn over_the_wire(list: Vec<Operation>) -> Vec<Operation> {
    match Request::decode(&Request::Commit(list).encode(1)) {
        Ok((1, Request::Commit(list))) => list,
        other => unreachable!("{other:?}"),
    }
}

struct Pair {
    chip: Chip,
    pipeline: Pipeline,
    /// Ports whose frames the chip hands to the CPU: VLAN interfaces and subinterfaces.
    hosts: BTreeSet<PortId>,
    now: Timestamp,
    /// The access lists of the driver, which the test plays; `judged` counts the frames that it has judged.
    lists: Acls,
    judged: u64,
}

impl Pair {
    fn new(state: &State, salt: u64, now: Timestamp) -> Self {
        let mut pipeline = Pipeline::new(salt);
        pipeline.set_state(&state.plane, now, &mut |_| {});
        let mut chip = Chip::new(&large(), salt);
        chip.commit(now, &over_the_wire(operations(&state.plane)), &mut Effects::default()).expect("room");
        let is_host = |kind| matches!(kind, PortKind::Svi(_) | PortKind::Subinterface { .. });
        let hosts = state.plane.ports.iter().filter(|(_, port)| is_host(port.kind)).map(|(id, _)| *id);
        let mut lists = Acls::default();
        for (id, list) in &state.plane.acls {
            lists.set(*id, Some(list.clone())).expect("a list");
        }
        Self { chip, pipeline, hosts: hosts.collect(), now, lists, judged: 0 }
    }

    /// Makes a change of routing in both implementations; checks that both accept it or both refuse it.
    fn route(&mut self, change: &RouteChange, what: &str) {
        let list = over_the_wire(operation(change, &self.pipeline));
        let wanted = self.pipeline.route(change).is_ok();
        let taken = self.chip.commit(self.now, &list, &mut Effects::default());
        assert_eq!(taken.is_ok(), wanted, "{what}: {change:?}: {taken:?}");
    }

    /// Makes a change of multicast groups in both implementations; both must accept it.
    fn multicast(&mut self, change: &MdbChange, what: &str) {
        let done = self.pipeline.multicast(change);
        assert!(done.is_ok(), "{what}: {change:?}: {done:?}");
        let list = over_the_wire(vec![Operation::from(change)]);
        let taken = self.chip.commit(self.now, &list, &mut Effects::default());
        assert!(taken.is_ok(), "{what}: {change:?}: {taken:?}");
    }

    /// Processes a frame in both implementations, checks that they agree, and returns the verdict.
    fn frame(&mut self, port: PortId, bytes: &[u8], what: &str) -> Verdict {
        let mut want = Output::default();
        let verdict = self.pipeline.process(self.now, port, bytes, &mut want);
        let diverted;
        let mut got = Effects::default();
        let mut found = self.chip.frame(self.now, port, bytes, &mut got);
        if found == Verdict::Trapped(TrapReason::AclDiverted) {
            let nothing = [got.sent.len(), got.cpu.len(), got.events.len()];
            assert_eq!(nothing, [0; 3], "{what}: a frame that nothing has judged");
            diverted = std::mem::take(&mut got.diverted);
            let [(from, questions, frame)] = &diverted[..] else {
                unreachable!("{what}: one frame is diverted")
            };
            assert_eq!((*from, &frame[..]), (port, bytes), "{what}: it is diverted as it came");
            let answers = self.lists.answer(questions);
            found = self.chip.judged(self.now, port, (frame, frame.len()), &answers, &mut got);
            self.judged += 1;
        }
        assert_eq!(found, verdict, "{what}: verdict");
        assert_eq!(got.diverted, [], "{what}: one answer is enough");
        let (to_host, to_wire): (Vec<_>, Vec<_>) =
            want.sent.into_iter().partition(|(to, _)| self.hosts.contains(to));
        let to_wire: Vec<_> = to_wire.into_iter().map(|(to, bytes)| (to, bytes.into())).collect();
        assert_eq!(got.sent, to_wire, "{what}: egress");
        // A frame that is trapped for a port-channel names the port-channel; every other frame names the port that has received
        // it.
        let mut cpu: Vec<ForCpu> =
            to_host.into_iter().map(|(to, bytes)| (port, Some(to), None, bytes)).collect();
        // The chip sends no notes of access lists.
        let trapped = want.trapped.into_iter().filter(|(_, reason, _)| *reason != TrapReason::AclLog);
        cpu.extend(trapped.map(|(from, reason, bytes)| (from, None, Some(reason), bytes)));
        if let Verdict::Trapped(reason) = verdict
            && reason.stage() == Stage::Route
            && cpu.is_empty()
        {
            // The frame goes up the stack of the netdev at which it came in; with a chip this is the CPU.
            cpu.push((port, None, Some(reason), bytes.to_vec()));
        }
        let from = |header: &CpuHeader| header.port.expect("a port");
        let seen: Vec<_> = got
            .cpu
            .iter()
            .map(|(header, bytes)| (from(header), header.to, header.reason, bytes.to_vec()))
            .collect();
        assert_eq!(seen, cpu, "{what}: CPU");
        let forwarded = !got.sent.is_empty();
        for (header, _) in &got.cpu {
            assert_eq!(header.forwarded, forwarded, "{what}: CPU header");
        }
        events_agree(&got.events, &want.events, what);
        verdict
    }

    fn tables_agree(&self, what: &str) {
        for port in PortId::all().take(MAX_GENERATED_PORTS.into()) {
            let counted = |pipeline: &Pipeline| format!("{:?}", pipeline.counters().port(port));
            assert_eq!(counted(self.chip.pipeline()), counted(&self.pipeline), "{what}: port {port}");
        }
        let entries = |pipeline: &Pipeline| {
            let mut all = Vec::new();
            pipeline.fdb().walk(&FdbFilter::default(), self.now, &mut |entry| {
                all.push((entry.vlan, entry.mac, entry.port, entry.kind as u8));
            });
            all.sort();
            all
        };
        let groups = |pipeline: &Pipeline| pipeline.tables().mdb.changes();
        assert_eq!(groups(self.chip.pipeline()), groups(&self.pipeline), "{what}: groups");
        let known = entries(self.chip.pipeline());
        assert_eq!(known, entries(&self.pipeline), "{what}: FDB");
        let usage = self.chip.usage();
        let exact = usage.iter().find(|table| table.path == "uft/exact").expect("a table");
        let known = known.len() + self.pipeline.tables().mdb.occupancy().used;
        assert!(exact.used as usize >= known, "{what}: every address and every group has its entry");
    }
}

fn events_agree(got: &[Event], want: &[FdbEvent], what: &str) {
    let got_events: Vec<_> = got
        .iter()
        .map(|event| match event {
            Event::Learned(entry) => (0, entry.vlan, entry.mac, entry.port),
            Event::Moved(entry, _) => (1, entry.vlan, entry.mac, entry.port),
            other => unreachable!("{what}: {other:?}"),
        })
        .collect();
    let wanted: Vec<_> = want
        .iter()
        .filter_map(|event| match event {
            FdbEvent::Added(entry) => Some((0, entry.vlan, entry.mac, entry.port?)),
            FdbEvent::Moved { entry, .. } => Some((1, entry.vlan, entry.mac, entry.port?)),
            _ => None,
        })
        .collect();
    assert_eq!(got_events, wanted, "{what}: events");
}

#[test]
fn the_chip_is_a_third_implementation_of_the_pipeline() {
    let (frames, seed) = (number("LANYARD_DIFF_FRAMES", 60_000), number("LANYARD_DIFF_SEED", 1));
    let [mut forwarded, mut routed, mut dropped, mut judged, mut bundled] = [0_u64; 5];
    for n in 0..frames.div_ceil(FRAMES_A_STATE) {
        let seed = seed + n;
        let state = State::new(seed).without_policies().without_monitor_sessions().without_sampling();
        let now = Timestamp::from_secs(1_000 * (1_000 + (seed % 1_000_000) as u32));
        let mut pair = Pair::new(&state, seed, now);
        for change in &state.routes {
            pair.route(change, &format!("seed {seed}"));
        }
        let mut rng = Rng::new(seed);
        for at in 0..(frames - n * FRAMES_A_STATE).min(FRAMES_A_STATE) {
            pair.now = Timestamp::from_nanos(pair.now.as_nanos() + 1_000_000 * rng.below(1500));
            let (port, bytes) = frame(&mut rng, &state);
            let what = format!("seed {seed} frame {at} port {port}: {bytes:02x?}");
            if let Some(change) = rng.percent(5).then(|| routes::churn(&mut rng, &state)).flatten() {
                pair.route(&change, &what);
            }
            if rng.percent(20) {
                pair.multicast(&mdb_change(&mut rng, &state), &what);
            }
            match pair.frame(port, &bytes, &what) {
                Verdict::Forwarded => forwarded += 1,
                Verdict::Dropped(_) => dropped += 1,
                Verdict::Trapped(_) => {}
            }
        }
        pair.tables_agree(&format!("seed {seed}"));
        judged += pair.judged;
        let channels = state.plane.ports.iter().filter(|(_, port)| port.aggregation.channel().is_some());
        let counters = pair.chip.pipeline().counters();
        bundled += channels.map(|(id, _)| counters.port(*id).tx.frames).sum::<u64>();
        routed += pair.chip.take_activity().iter().map(|(_, _, packets)| packets).sum::<u64>();
    }
    println!(
        "{frames} frames agreed: {forwarded} forwarded, {routed} of them routed, {dropped} dropped; {judged} diverted; {bundled} copies by port-channels"
    );
    assert!(
        frames < 10_000
            || routed > 0
                && forwarded > routed
                && dropped > 0
                && judged > frames / 100
                && bundled > frames / 100,
        "a kind of frames is missing"
    );
}

/// The same comparison with a complete device: its session, its fabric, its CPU port. Exactly the frames that the specification
/// sends to a front-panel port leave there.
#[test]
fn a_device_sends_exactly_the_frames_of_the_specification() {
    let (mut sent, mut punted) = (0, 0);
    for seed in 1..=40 {
        let state = without_large_lists(State::new(seed))
            .without_policies()
            .without_monitor_sessions()
            .without_sampling();
        let now = Timestamp::from_secs(1_000_000);
        let mut pipeline = Pipeline::new(seed);
        pipeline.set_state(&state.plane, now, &mut |_| {});
        let mut device = Device::new(&large(), seed, 1);
        let front: Vec<PortId> = device.fabric().ports().collect();
        front.iter().for_each(|port| device.link(*port, true));
        let session = device.open();
        device.request(now, session, 1, Request::Hello(VERSION, "test".into()));
        device.request(now, session, 2, Request::Subscribe(wants::PACKETS));
        let changes = state.routes.iter().flat_map(|change| operation(change, &pipeline)).collect();
        let mut setup = operations(&state.plane);
        setup.retain(|operation| !matches!(operation, Operation::Divert(..)));
        device.request(now, session, 3, Request::Commit(setup));
        device.request(now, session, 4, Request::Commit(changes));
        state.routes.iter().for_each(|change| pipeline.route(change).expect("a route"));
        let mut now = Timestamp::from_nanos(now.as_nanos() + 60_000_000_000);
        device.advance(now);
        let (answers, _) = received(&mut device, session);
        assert!(
            !answers.iter().any(|answer| matches!(answer, Answer::Refused(_))),
            "seed {seed}: {answers:?}"
        );
        let mut rng = Rng::new(seed);
        for at in 0..100 {
            now = Timestamp::from_nanos(now.as_nanos() + 1_000_000);
            let (port, bytes) = frame(&mut rng, &state);
            let mut want = Output::default();
            let verdict = pipeline.process(now, port, &bytes, &mut want);
            device.frame(now, port, &bytes);
            // Long enough for every port to send all of its frames.
            now = Timestamp::from_nanos(now.as_nanos() + 1_000_000);
            let mut left = device.departures(now);
            let front: BTreeSet<PortId> = device.fabric().ports().collect();
            let is_host = |port: &PortId| {
                state.plane.ports.get(port).is_some_and(|state| {
                    matches!(state.kind, PortKind::Svi(_) | PortKind::Subinterface { .. })
                })
            };
            let mut wanted: Vec<_> =
                want.sent.into_iter().filter(|(to, _)| front.contains(to) && !is_host(to)).collect();
            left.sort();
            wanted.sort();
            let what = format!("seed {seed} frame {at} port {port}: {bytes:02x?}");
            assert_eq!(left, wanted, "{what}");
            let (_, packets) = received(&mut device, session);
            assert!(
                packets > 0 || !matches!(verdict, Verdict::Trapped(_)),
                "{what}: it has not reached the CPU"
            );
            assert!(packets == 0 || verdict != Verdict::Dropped(DropReason::PortDown), "{what}");
            sent += left.len();
            punted += packets;
        }
    }
    println!("{sent} frames left, {punted} reached the CPU");
    assert!(sent > 500 && punted > 100, "{sent} {punted}");
}

/// The messages that a session has received: the answers, and the number of notices, all of which are frames.
fn received(device: &mut Device, session: u64) -> (Vec<Answer>, usize) {
    let bytes: Vec<u8> = device.output(session).expect("a session").drain(..).collect();
    let (mut rest, mut answers, mut packets) = (&bytes[..], Vec::new(), 0);
    while let Some(length) = announced(rest).expect("messages") {
        match Incoming::decode(&rest[..length]).expect("a message") {
            Incoming::Answer(_, answer) => answers.push(answer),
            Incoming::Notice(_) => packets += 1,
        }
        rest = &rest[length..];
    }
    (answers, packets)
}
