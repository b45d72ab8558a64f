//! Compares two implementations of one pipeline: random states and frames through `lanyard_pipeline` and, by
//! BPF_PROG_TEST_RUN, through the eBPF programs: at both hooks, and at TC with the outermost tag in line and out of
//! band. Verdict, reason, VLAN, egress ports, their order and every byte must agree; so must counters, the FDB, and
//! traces.
//!
//! `LANYARD_DIFF_FRAMES` is the number of frames (60,000 by default), `LANYARD_DIFF_SEED` the first state's seed.

#![allow(clippy::panic)] // a test that panics has failed, and says why

#[path = "common/frames.rs"]
mod frames;

use frames::{conversation, kernel_refuses, with_foreign_tag};
use ipnet::IpNet;
use lanyard_ebpf::{DryMode, EbpfPlane, Options};
use lanyard_pipeline::generate::{
    MAX_GENERATED_PORTS, Rng, State, binding_change, frame, mdb_change, routes, with_low_rates,
};
use lanyard_pipeline::state::{AclBindings, PlaneState, PortState, Tpid, VlanState};
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_plane::{
    ClassCounters, Direction, FdbFilter, Flooded, Hook, MdbChange, Plane, PlaneError, PlaneEvent, RouteChange,
};
use lanyard_types::{DropReason, MacAddr, PortId, TrapReason, VlanId};
use lanyard_wire::Builder;
use lanyard_wire::ip::IpHeader;
use std::collections::BTreeMap;

/// The counts of what XDP handled itself.
#[derive(Default)]
struct AtXdp {
    forwarded: u64,
    routed: u64,
    /// Frames of groups that snooping limits to one port.
    snooped: u64,
    /// Copies for monitor sessions, all of which TC makes.
    mirrored: u64,
    /// Samples, and those of them that XDP took.
    sampled: u64,
    sampled_there: u64,
    /// Frames that access lists denied at XDP, and frames that they permitted and that XDP forwarded.
    denied: u64,
    judged: u64,
    /// Notes of access lists, and those of them that XDP sent.
    noted: u64,
    noted_there: u64,
}

/// A dry run that makes all changes to the tables, of a frame with its tags in line.
const MARKS: DryMode = DryMode { learn: true, count: true, police: true, gso_size: 0, out_of_band: false };

/// The number of frames through one state.
const FRAMES_A_STATE: u64 = 250;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
}

/// The plane, or `None` if this machine or process cannot have it; the reason is printed then.
fn plane() -> Option<EbpfPlane> {
    let options = Options { fdb_capacity: 1_000_000, ..Options::new("differential") };
    match EbpfPlane::open_private(&options) {
        Ok(plane) => Some(plane),
        Err(error @ PlaneError::Unsupported { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn both_planes_agree() {
    let Some(mut plane) = plane() else { return };
    let (frames, seed) = (number("LANYARD_DIFF_FRAMES", 60_000), number("LANYARD_DIFF_SEED", 1));
    let (mut at_xdp, mut pipeline) = (AtXdp::default(), Pipeline::new(0));
    for n in 0..frames.div_ceil(FRAMES_A_STATE) {
        forget(&mut plane, &pipeline);
        let frames = (frames - n * FRAMES_A_STATE).min(FRAMES_A_STATE);
        one_state(&mut plane, &mut pipeline, seed + n, frames, &mut at_xdp);
    }
    let AtXdp {
        forwarded,
        routed,
        snooped,
        mirrored,
        sampled,
        sampled_there,
        denied,
        judged,
        noted,
        noted_there,
    } = at_xdp;
    println!(
        "{frames} frames agreed, {forwarded} of them forwarded by XDP, {routed} of these routed, {snooped} of a group; \
         {mirrored} copies for monitor sessions; {sampled} samples, {sampled_there} of them taken by XDP; \
         access lists at XDP denied {denied} and permitted {judged}; {noted} notes of access lists, {noted_there} of them by XDP"
    );
    assert!(
        noted > noted_there && noted_there > 0 || frames < 10_000,
        "notes of access lists: {noted}, {noted_there} by XDP"
    );
    assert!(denied > 0 || frames < 10_000, "access lists at XDP have denied nothing");
    assert!(
        sampled > sampled_there && sampled_there > 0 || frames < 10_000,
        "samples: {sampled}, {sampled_there} by XDP"
    );
    assert!(
        routed > 0 && snooped > 0 && mirrored > 0 && forwarded > routed || frames < 10_000,
        "XDP did not do its part"
    );
}

/// Seeds whose frames were once treated differently. The plane's salt, by which flows choose next hops, differs in each
/// run.
#[test]
fn seeds_that_once_differed_agree() {
    // 80: a trunk with a secondary private VLAN and without the primary one, which is snooped.
    for seed in [5_000_100, 5_000_100, 5_000_100, 5_000_100, 80] {
        let Some(mut plane) = plane() else { return };
        one_state(&mut plane, &mut Pipeline::new(0), seed, FRAMES_A_STATE, &mut AtXdp::default());
    }
}

/// With frames above the rates of ports, both planes let the same frames pass.
#[test]
fn rates_agree() {
    let Some(mut plane) = plane() else { return };
    let state = with_low_rates();
    let first = *state.ports.keys().next().expect("a port");
    plane.apply(&state).expect("applied");
    let mut now = Timestamp::from_secs(1_000_000);
    let mut pipeline = Pipeline::new(plane.salt());
    pipeline.set_state(&state, now, &mut |_| {});
    let mut rng = Rng::new(7);
    for n in 0..2000 {
        now = Timestamp::from_nanos(now.as_nanos() + 1_000_000 * rng.below(40));
        let unknown = MacAddr([2, 0, 0, 0, 0, 99]);
        let dst = rng.pick(&[MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 1, 2, 3]), unknown]).unwrap_or(unknown);
        let frame = Builder::new(dst, MacAddr([2, 0, 0, 0, 0, 1]));
        // ARP, and a DHCP message of a client: their rates are those of first-hop security.
        let mut dhcp = [0u8; 28];
        (dhcp[0], dhcp[9], dhcp[23]) = (0x45, 17, 67);
        let frame = match rng.below(3) {
            0 => frame.ethertype(0x0806).build(),
            1 => frame.ethertype(0x0800).payload(&dhcp).build(),
            _ => frame.ethertype(0x88b5).build(),
        };
        frames_agree(
            &mut plane,
            &mut pipeline,
            first,
            &frame,
            now,
            (Hook::Tc, MARKS),
            &mut AtXdp::default(),
            &format!("frame {n}"),
        );
    }
    let dropped = pipeline.counters().port(first).dropped;
    let over = DropReason::ALL.iter().filter(|reason| reason.is_over_rate());
    let over: u64 = over.map(|reason| dropped[reason.index()]).sum();
    let second = *state.ports.keys().nth(1).expect("two ports");
    for (port, direction) in [(first, Direction::Input), (second, Direction::Output)] {
        let counted = pipeline.class_counters(port, direction);
        assert!(counted[0].frames.iter().all(|frames| *frames > 0), "port {port}: {counted:?}");
        assert_eq!(plane.class_counters(port, direction), counted, "port {port} {direction:?}");
    }
    assert!(over > 100 && over < 1900, "{over} of 2,000 frames were over a rate");
}

/// Frames between two known stations, so that XDP forwards those that the inbound list of the first port permits.
#[test]
fn lists_agree_at_xdp() {
    const STATIONS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let Some(mut plane) = plane() else { return };
    let now = Timestamp::from_secs(1_000_000);
    let mut at_xdp = AtXdp::default();
    for seed in 0..60 {
        let random = State::new(seed);
        let mut bindings = random.plane.ports.values().map(|port| port.acl_in);
        let Some(lists) = bindings.find(|lists| *lists != AclBindings::default()) else { continue };
        let mut state = PlaneState { acls: random.plane.acls.clone(), ..PlaneState::default() };
        state.vlans.insert(VlanId::DEFAULT, VlanState::default());
        for (id, acl_in) in PortId::all().zip([lists, AclBindings::default()]) {
            let port = PortState::access(&format!("p{id}"), 100 + u32::from(id.get()), VlanId::DEFAULT);
            state.ports.insert(id, PortState { acl_in, ..port });
        }
        let mut pipeline = Pipeline::new(plane.salt());
        pipeline.set_state(&state, now, &mut |_| {});
        plane.apply(&state).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        plane.fdb_flush(&FdbFilter::default());
        let mut rng = Rng::new(seed);
        let mut send = |port: PortId, dst: MacAddr, src: MacAddr, bytes: &[u8]| {
            let bytes = [&dst.0[..], &src.0, &bytes[12..]].concat();
            let what = format!("seed {seed} port {port}: {bytes:02x?}");
            frames_agree(
                &mut plane,
                &mut pipeline,
                port,
                &bytes,
                now,
                (Hook::Xdp, MARKS),
                &mut at_xdp,
                &what,
            );
        };
        let ports: Vec<PortId> = PortId::all().take(2).collect();
        let other = Builder::new(STATIONS[0], STATIONS[1]).ethertype(0x88b5).build();
        for n in 0..60 {
            // The list may deny the frame by which the first station would be learned.
            send(ports[1], STATIONS[0], STATIONS[1], &other);
            let bytes = frame(&mut rng, &random).1;
            let known = bytes.len() >= 60 && !kernel_refuses(&bytes, Tpid::Dot1q.ethertype());
            send(ports[0], STATIONS[1], STATIONS[0], if known && n > 0 { &bytes } else { &other });
        }
    }
    let AtXdp { denied, judged, .. } = at_xdp;
    println!("access lists at XDP denied {denied} frames and permitted {judged}");
    assert!(denied > 100 && judged > 100, "{denied} denied, {judged} permitted");
}

/// Changes the MDB of both planes.
fn multicast(plane: &mut EbpfPlane, pipeline: &mut Pipeline, change: &MdbChange, seed: u64) {
    plane.multicast(change).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    pipeline.multicast(change).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

fn one_state(plane: &mut EbpfPlane, pipeline: &mut Pipeline, seed: u64, frames: u64, at_xdp: &mut AtXdp) {
    let mut state = State::new(seed);
    // The kernel supports no tags of 0x9100, and the plane refuses them.
    for port in state.plane.ports.values_mut().filter(|port| port.tpid == Tpid::Stacked9100) {
        port.tpid = Tpid::Dot1q;
    }
    // The kernel lets every buffer of segments through a port, while the specification checks its length. In states
    // with such buffers only the MTUs of router interfaces may therefore limit them.
    let segments = seed.is_multiple_of(4);
    if segments {
        state.plane.ports.values_mut().for_each(|port| port.mtu = 9000);
    }
    let mut now = Timestamp::from_secs(1_000 * (1_000 + (seed % 1_000_000) as u32));
    *pipeline = Pipeline::new(plane.salt());
    pipeline.set_state(&state.plane, now, &mut |_| {});
    plane.apply(&state.plane).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    route(plane, pipeline, &state.routes, seed);
    plane.fdb_flush(&FdbFilter::default());
    assert_eq!(plane.fdb_dynamic(), 0, "seed {seed}");
    for port in PortId::all().take(MAX_GENERATED_PORTS.into()) {
        plane.clear_counters(port);
    }
    state.plane.acls.keys().for_each(|id| plane.clear_acl_matches(*id, None));
    state.plane.ports.keys().for_each(|id| plane.clear_class_counters(*id));
    let (mut rng, mut form) = (Rng::new(seed), Rng::new(!seed));
    for n in 0..frames {
        now = Timestamp::from_nanos(now.as_nanos() + 1_000_000 * rng.below(1500));
        let (port, mut bytes) = match rng.percent(50) {
            true => conversation(&mut rng, &state, pipeline).unwrap_or_else(|| frame(&mut rng, &state)),
            false => frame(&mut rng, &state),
        };
        with_foreign_tag(&mut form, &state, &mut bytes);
        if let Some(change) = rng.percent(5).then(|| routes::churn(&mut rng, &state)).flatten() {
            route(plane, pipeline, &[change], seed);
        }
        if rng.percent(if n < 40 { 90 } else { 5 }) {
            multicast(plane, pipeline, &mdb_change(&mut rng, &state), seed);
        }
        if let Some((key, mac)) =
            rng.percent(if n < 40 { 90 } else { 5 }).then(|| binding_change(&mut rng, &state)).flatten()
        {
            plane.bind(key, mac).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            pipeline.bind(key, mac).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        let what = format!("seed {seed} frame {n} port {port}: {bytes:02x?}");
        if bytes.len() < 14 {
            let dry = plane.dry_run(Hook::Tc, port, now.as_nanos(), DryMode::default(), &bytes).expect(&what);
            assert_eq!(dry.verdict, Some(Verdict::Dropped(DropReason::Truncated)), "{what}");
            continue;
        }
        if kernel_refuses(&bytes, state.plane.ports.get(&port).and_then(|port| port.tpid.ethertype())) {
            continue;
        }
        if let Some((gso_size, longest)) = gso(&mut rng, &state, port, &bytes).filter(|_| segments) {
            let mode = DryMode { gso_size, out_of_band: form.percent(50), ..MARKS };
            let mut want = Output::default();
            let verdict = pipeline.process_segments(now, port, &bytes, longest, &mut want);
            let dry = plane.dry_run(Hook::Tc, port, now.as_nanos(), mode, &bytes).expect(&what);
            assert_eq!(notes(plane), noted(&want), "{what}: notes of access lists");
            assert_eq!(
                (dry.verdict, dry.sent(false), dry.sent(true)),
                (Some(verdict), want.sent, want.mirrored),
                "{what}: GSO {gso_size}"
            );
            continue;
        }
        traces_agree(plane, pipeline, port, &bytes, &what);
        let hook = if rng.percent(50) { Hook::Xdp } else { Hook::Tc };
        let mode = DryMode { out_of_band: form.percent(50), ..MARKS };
        frames_agree(plane, pipeline, port, &bytes, now, (hook, mode), at_xdp, &what);
    }
    tables_agree(plane, pipeline, &state, seed);
    plane.poll_events(&mut |_| {});
}

/// Makes a packet a buffer of segments if possible. Returns the bytes of payload per segment, and the length of the
/// longest frame.
fn gso(rng: &mut Rng, state: &State, port: PortId, bytes: &[u8]) -> Option<(u32, usize)> {
    let tpid = state.plane.ports.get(&port).and_then(|port| port.tpid.ethertype());
    let own = tpid.is_some_and(|tpid| bytes[12..14] == tpid.to_be_bytes());
    let at = if own { 18 } else { 14 };
    let ethertype = u16::from_be_bytes([*bytes.get(at - 2)?, *bytes.get(at - 1)?]);
    let header = IpHeader::read(ethertype, bytes.get(at..)?, false).ok().filter(|header| !header.options)?;
    let l4 = at + if ethertype == 0x0800 { 20 } else { 40 };
    let data = l4
        + match header.protocol {
            6 => usize::from(*bytes.get(l4 + 12)? >> 4) * 4,
            17 => 8,
            _ => return None,
        };
    let payload = bytes.len().checked_sub(data + 1).filter(|payload| *payload > 0)?;
    let gso_size = 1 + rng.below(payload as u64) as usize;
    Some((gso_size as u32, data + gso_size))
}

/// Removes the routes of the previous state.
fn forget(plane: &mut EbpfPlane, pipeline: &Pipeline) {
    let routes = &pipeline.tables().routes;
    for (vrf, tables) in routes.vrfs() {
        let four = tables.ipv4.iter().map(|(prefix, _)| prefix.into());
        let all: Vec<IpNet> = four.chain(tables.ipv6.iter().map(|(prefix, _)| prefix.into())).collect();
        let changes: Vec<_> = all.into_iter().map(|prefix| RouteChange::Route(vrf, prefix, None)).collect();
        assert_eq!(plane.route(&changes), []);
    }
    for (key, _) in pipeline.tables().bindings.iter() {
        plane.bind(key, None).expect("removed");
    }
    for change in pipeline.tables().mdb.changes() {
        let undo = match change {
            MdbChange::Entry { vlan, group, source, .. } => {
                MdbChange::Entry { vlan, group, source, ports: None }
            }
            MdbChange::Routers { vlan, family, .. } => {
                MdbChange::Routers { vlan, family, ports: Box::default() }
            }
            MdbChange::Flood { vlan, family, .. } => {
                MdbChange::Flood { vlan, family, flooded: Flooded::Nothing }
            }
        };
        plane.multicast(&undo).expect("removed");
    }
}

/// Makes the same changes to the routes of both planes. Both must accept them, or both refuse them.
fn route(plane: &mut EbpfPlane, pipeline: &mut Pipeline, changes: &[RouteChange], seed: u64) {
    let refused: Vec<usize> = plane.route(changes).into_iter().map(|(at, _)| at).collect();
    let wanted = (0..changes.len()).filter(|at| pipeline.route(&changes[*at]).is_err()).collect::<Vec<_>>();
    assert_eq!(refused, wanted, "seed {seed}: {changes:?}");
}

/// Runs one frame through both planes and compares the results.
#[allow(clippy::too_many_arguments)]
fn frames_agree(
    plane: &mut EbpfPlane,
    pipeline: &mut Pipeline,
    port: PortId,
    bytes: &[u8],
    now: Timestamp,
    (hook, mode): (Hook, DryMode),
    at_xdp: &mut AtXdp,
    what: &str,
) {
    let work = pipeline.work();
    let mut want = Output::default();
    let hits = matches(pipeline);
    let verdict = pipeline.process(now, port, bytes, &mut want);
    let judged = matches(pipeline) > hits;
    let mut dry = plane.dry_run(hook, port, now.as_nanos(), mode, bytes).expect(what);
    let passed = dry.verdict.is_none();
    if passed {
        assert!(dry.emitted.is_empty(), "{what}: XDP passed it up and sent it");
        dry = plane.dry_run(Hook::Tc, port, now.as_nanos(), mode, bytes).expect(what);
    }
    assert_eq!(dry.verdict, Some(verdict), "{what}: verdict");
    at_xdp.mirrored += want.mirrored.len() as u64;
    assert_eq!(
        (dry.sent(false), dry.sent(true)),
        (want.sent.clone(), want.mirrored.clone()),
        "{what}: egress"
    );
    assert_eq!(dry.sampled, sampled(&want), "{what}: sample");
    let notes = notes(plane);
    assert_eq!(notes, noted(&want), "{what}: notes of access lists");
    let there = if passed || hook == Hook::Tc { 0 } else { notes.len() as u64 };
    (at_xdp.noted, at_xdp.noted_there) = (at_xdp.noted + notes.len() as u64, at_xdp.noted_there + there);
    at_xdp.sampled += u64::from(!want.sampled.is_empty());
    if passed || hook == Hook::Tc {
        let clones = pipeline.work().clones - work.clones;
        assert_eq!(u64::from(dry.clones), clones, "{what}: clones");
    } else {
        at_xdp.sampled_there += u64::from(!want.sampled.is_empty());
        if verdict != Verdict::Forwarded {
            at_xdp.denied += 1;
            return;
        }
        at_xdp.forwarded += 1;
        at_xdp.judged += u64::from(judged);
        // In a dry run XDP leaves floods to TC.
        at_xdp.snooped += u64::from(bytes[0] & 1);
        at_xdp.routed += u64::from(want.sent.iter().any(|(_, sent)| sent[..12] != bytes[..12]));
    }
}

/// How often rules of all lists have decided.
fn matches(pipeline: &Pipeline) -> u64 {
    let acls = &pipeline.tables().acls;
    acls.ids().filter_map(|id| acls.matches(id)).flatten().sum()
}

/// The notes of access lists that the plane has sent, sorted: a flood takes its ports in another order.
fn notes(plane: &mut EbpfPlane) -> Vec<(PortId, Vec<u8>)> {
    let mut notes = Vec::new();
    plane.poll_events(&mut |event| {
        if let PlaneEvent::Trapped { port, reason: TrapReason::AclLog, frame, .. } = event {
            notes.push((port, frame));
        }
    });
    notes.sort();
    notes
}

/// The notes of access lists in the output of the specification.
fn noted(out: &Output) -> Vec<(PortId, Vec<u8>)> {
    let notes = out.trapped.iter().filter(|(_, reason, _)| *reason == TrapReason::AclLog);
    let mut notes: Vec<_> = notes.map(|(port, _, note)| (*port, note.clone())).collect();
    notes.sort();
    notes
}

/// The sample in the output of the specification.
fn sampled(out: &Output) -> Option<(PortId, usize, Vec<u8>)> {
    out.sampled.first().map(|(sample, len, head)| (sample.port, *len, head.clone()))
}

fn traces_agree(plane: &mut EbpfPlane, pipeline: &Pipeline, port: PortId, bytes: &[u8], what: &str) {
    // A plane traces only frames at ports that exist.
    if plane.state().ports.contains_key(&port) && bytes.len() <= lanyard_plane::MAX_TRACE_FRAME {
        assert_eq!(plane.trace(port, bytes).as_ref(), Ok(&pipeline.trace(port, bytes)), "{what}: trace");
    }
}

fn tables_agree(plane: &mut EbpfPlane, pipeline: &Pipeline, state: &State, seed: u64) {
    for port in PortId::all().take(MAX_GENERATED_PORTS.into()) {
        let (got, want) = (plane.port_counters(port), pipeline.counters().port(port).clone());
        assert_eq!(format!("{got:?}"), format!("{want:?}"), "seed {seed} port {port}");
        let ends = got.forwarded + got.trapped + got.dropped.iter().sum::<u64>();
        assert_eq!(got.rx.frames, ends, "seed {seed} port {port}: conservation");
    }
    for id in state.plane.acls.keys() {
        let want = pipeline.tables().acls.matches(*id).map(<[u64]>::to_vec).unwrap_or_default();
        assert_eq!(plane.acl_matches(*id), want, "seed {seed}: access list {id}");
    }
    for port in PortId::all().take(MAX_GENERATED_PORTS.into()) {
        for direction in [Direction::Input, Direction::Output] {
            let mut want = pipeline.class_counters(port, direction);
            let got = plane.class_counters(port, direction);
            want.resize(got.len().max(want.len()), ClassCounters::default());
            assert_eq!(got, want, "seed {seed} port {port}: service policy {direction:?}");
        }
    }
    let mut got: BTreeMap<(VlanId, MacAddr), (Option<PortId>, u8)> = BTreeMap::new();
    plane.fdb_walk(&FdbFilter::default(), &mut |entry| {
        let twice = got.insert((entry.vlan, entry.mac), (entry.port, entry.kind as u8));
        assert_eq!(twice, None, "seed {seed}: an entry stands twice");
    });
    let mut want = BTreeMap::new();
    for vlan in &state.vlans {
        for mac in &state.hosts {
            if let Some(found) = pipeline.fdb().get(*vlan, *mac) {
                want.insert((*vlan, *mac), (found.port, found.kind as u8));
            }
        }
    }
    got.retain(|at, _| state.vlans.contains(&at.0) && state.hosts.contains(&at.1));
    assert_eq!(got, want, "seed {seed}: FDB");
    assert_eq!(plane.fdb_dynamic(), pipeline.fdb().dynamic(), "seed {seed}: dynamic entries");
}
