//! Learning, limits and ageing in cases; then the FDB in random steps against a model: a map without any optimisation.

use crate::support::{BROADCAST, base, host, pipeline, port, untagged, vlan};
use lanyard_pipeline::state::{FdbTarget, PlaneState, StpState};
use lanyard_pipeline::tables::fdb::{FdbEvent, FdbFilter, FdbKind, Refusals, Sweep};
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{InstanceId, MacAddr, PortId, VlanId};
use proptest::option::of;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Processes a broadcast from host `n` at a port, `at_s` seconds after the start; returns the events as text.
fn learn(pipeline: &mut Pipeline, at_s: u32, at: u16, n: u8) -> Vec<String> {
    let mut out = Output::default();
    pipeline.process(Timestamp::from_secs(at_s), port(at), &untagged(BROADCAST, host(n)), &mut out);
    out.events.iter().map(show).collect()
}

fn show(event: &FdbEvent) -> String {
    let what = |entry: &lanyard_pipeline::tables::fdb::FdbEntry| {
        format!("{} {} at {}", entry.vlan, entry.mac.0[5], entry.port.map_or(0, PortId::get))
    };
    match event {
        FdbEvent::Added(entry) => format!("added {}", what(entry)),
        FdbEvent::Moved { entry, from } => format!("moved {} from {from}", what(entry)),
        FdbEvent::Aged(entry) => format!("aged {} after {} s", what(entry), entry.age_s),
        FdbEvent::Deleted(entry) => format!("deleted {}", what(entry)),
    }
}

#[test]
fn learned_refreshed_moved_and_aged() {
    let mut p = pipeline(&base());
    assert_eq!(learn(&mut p, 5, 1, 1), ["added 10 1 at 1"]);
    assert_eq!(learn(&mut p, 7, 1, 1), [""; 0]);
    assert_eq!(p.fdb().get(vlan(10), host(1)).unwrap().updated_s, 7);
    assert_eq!(learn(&mut p, 9, 2, 1), ["moved 10 1 at 2 from 1"]);
    assert_eq!(learn(&mut p, 10, 6, 1), ["added 20 1 at 6"]);
    let mut events = Vec::new();
    let mut sweep = |p: &mut Pipeline, ageing_s, at_s| {
        events.clear();
        let swept = p.sweep(ageing_s, Timestamp::from_secs(at_s), &mut |event| events.push(show(&event)));
        (swept, events.clone())
    };
    let nothing = |next_in_s| (Sweep { aged: 0, next_in_s }, vec![]);
    assert_eq!(sweep(&mut p, None, 5000), nothing(None));
    assert_eq!(sweep(&mut p, Some(300), 308), nothing(Some(1)));
    assert_eq!(
        sweep(&mut p, Some(300), 309),
        (Sweep { aged: 1, next_in_s: Some(1) }, vec!["aged 10 1 at 2 after 300 s".into()])
    );
    assert_eq!(
        sweep(&mut p, Some(300), 400),
        (Sweep { aged: 1, next_in_s: None }, vec!["aged 20 1 at 6 after 390 s".into()])
    );
    assert_eq!(p.fdb().dynamic(), 0);
}

#[test]
fn learning_depends_on_port_vlan_and_stp_state() {
    fn stp(state: &mut PlaneState, to: StpState) {
        state.stp.insert((InstanceId::default(), port(1)), to);
    }
    let cases: [(&str, fn(&mut PlaneState), u16, u64); 7] = [
        ("an ordinary port", |_| {}, 1, 1),
        ("learning off at the port", |s| s.ports.get_mut(&port(1)).unwrap().learning = false, 1, 0),
        ("learning off in the VLAN", |s| s.vlans.get_mut(&vlan(10)).unwrap().learning = false, 1, 0),
        ("a VLAN interface", |_| {}, 5, 0),
        ("STP learning", |s| stp(s, StpState::Learning), 1, 1),
        ("STP discarding", |s| stp(s, StpState::Discarding), 1, 0),
        ("a disallowed VLAN", |s| drop(s.vlans.remove(&vlan(10))), 1, 0),
    ];
    for (name, change, at, want) in cases {
        let mut state = base();
        change(&mut state);
        let mut p = pipeline(&state);
        learn(&mut p, 0, at, 1);
        assert_eq!(p.fdb().dynamic(), want, "{name}");
    }
}

#[test]
fn control_plane_entries_stay() {
    for target in [FdbTarget::Static(port(2)), FdbTarget::Sticky(port(2)), FdbTarget::SelfAddress(port(5))] {
        let mut state = base();
        state.fdb.insert((vlan(10), host(1)), target);
        let mut p = pipeline(&state);
        assert_eq!(learn(&mut p, 0, 1, 1), [""; 0]);
        assert_eq!(p.fdb().get(vlan(10), host(1)).unwrap().port, target.port());
        assert_eq!(p.flush(&FdbFilter::default(), Timestamp::default(), &mut |_| {}), 0);
    }
}

#[test]
fn limits_refuse_and_count() {
    // Each case: the limit that is set; the received frames, as ingress port and host; the number of entries learned; the
    // refusals.
    let set_global = |s: &mut PlaneState| s.global.fdb_limit = 2;
    let set_port = |s: &mut PlaneState| s.ports.get_mut(&port(2)).unwrap().fdb_limit = Some(1);
    let set_vlan = |s: &mut PlaneState| s.vlans.get_mut(&vlan(10)).unwrap().fdb_limit = Some(2);
    let cases: [(&str, fn(&mut PlaneState), &[(u16, u8)], u64, Refusals); 6] = [
        (
            "table",
            set_global,
            &[(1, 1), (2, 2), (1, 3), (6, 4)],
            2,
            Refusals { table: 2, ..Refusals::default() },
        ),
        (
            "table, refresh and move go on",
            set_global,
            &[(1, 1), (2, 2), (1, 1), (1, 2)],
            2,
            Refusals::default(),
        ),
        ("port", set_port, &[(2, 1), (2, 2), (1, 2)], 2, Refusals { port: 1, ..Refusals::default() }),
        (
            "port, move refused",
            set_port,
            &[(1, 1), (2, 2), (2, 1)],
            2,
            Refusals { port: 1, ..Refusals::default() },
        ),
        ("VLAN", set_vlan, &[(1, 1), (2, 2), (1, 3), (6, 3)], 3, Refusals { vlan: 1, ..Refusals::default() }),
        ("VLAN, a move goes on", set_vlan, &[(1, 1), (2, 2), (1, 2)], 2, Refusals::default()),
    ];
    for (name, change, received, learned, refused) in cases {
        let mut state = base();
        change(&mut state);
        let mut p = pipeline(&state);
        for (at, n) in received {
            learn(&mut p, 0, *at, *n);
        }
        assert_eq!((p.fdb().dynamic(), p.fdb().refusals()), (learned, refused), "{name}");
        if name == "port, move refused" {
            assert_eq!(p.fdb().get(vlan(10), host(1)).unwrap().port, Some(port(1)));
        }
    }
}

#[test]
fn high_water_stays() {
    let mut p = pipeline(&PlaneState { fdb: BTreeMap::new(), ..base() });
    (1..=9).for_each(|n| drop(learn(&mut p, 0, 1, n)));
    p.flush(&FdbFilter::default(), Timestamp::default(), &mut |_| {});
    learn(&mut p, 0, 1, 1);
    assert_eq!((p.fdb().high_water(), p.fdb().len()), (9, 1));
}

/// One random step of the comparison with the model.
#[derive(Debug, Clone)]
enum Step {
    Hear { port: u16, host: u8 },
    Set { vlan: u16, host: u8, target: Option<u16> },
    Flush { vlan: Option<u16>, port: Option<u16>, host: Option<u8> },
    Sweep { ageing_s: u32 },
    Wait { s: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let (a_port, a_vlan, a_host) =
        (prop_oneof![Just(1u16), Just(2), Just(6)], prop_oneof![Just(10u16), Just(20)], 1u8..12);
    prop_oneof![
        8 => (a_port.clone(), a_host.clone()).prop_map(|(port, host)| Step::Hear { port, host }),
        1 => (a_vlan.clone(), a_host.clone(), of(0u16..8)).prop_map(|(vlan, host, target)| Step::Set { vlan, host, target }),
        1 => (of(a_vlan), of(a_port), of(a_host)).prop_map(|(vlan, port, host)| Step::Flush { vlan, port, host }),
        1 => (1u32..30).prop_map(|ageing_s| Step::Sweep { ageing_s }),
        3 => (0u32..9).prop_map(|s| Step::Wait { s }),
    ]
}

/// The model: by VLAN and host, the port (0 for an entry that drops), true for a dynamic entry, and the time of the last frame in
/// seconds.
type Model = BTreeMap<(u16, u8), (u16, bool, u32)>;

/// Learns in the model, with limits of 6 entries in total, 3 at port 1 and 4 in VLAN 10.
fn model_hear(model: &mut Model, at: u16, n: u8, now_s: u32) {
    let v = if at == 6 { 20 } else { 10 };
    let count = |test: &dyn Fn(u16, u16) -> bool| {
        model.iter().filter(|((v, _), (p, dynamic, _))| *dynamic && test(*v, *p)).count()
    };
    let (port_full, vlan_full) =
        (at == 1 && count(&|_, p| p == 1) >= 3, v == 10 && count(&|v, _| v == 10) >= 4);
    let full = count(&|_, _| true) >= 6;
    match model.get(&(v, n)).copied() {
        Some((_, false, _)) => {}
        Some((p, true, _)) if p == at => drop(model.insert((v, n), (at, true, now_s))),
        Some(_) if port_full => {}
        None if full || port_full || vlan_full => {}
        _ => drop(model.insert((v, n), (at, true, now_s))),
    }
}

fn real(p: &Pipeline, now: Timestamp) -> Model {
    let mut found = Model::new();
    p.fdb().walk(&FdbFilter::default(), now, &mut |e| {
        let dynamic = e.kind == FdbKind::Dynamic;
        let heard_s = if dynamic { now.as_secs() - e.age_s } else { 0 };
        found.insert((e.vlan.get(), e.mac.0[5]), (e.port.map_or(0, PortId::get), dynamic, heard_s));
    });
    found
}

proptest! {
    #[test]
    fn agrees_with_the_model(steps in proptest::collection::vec(step(), 1..150)) {
        let mut state = PlaneState { fdb: BTreeMap::new(), ..base() };
        state.global.fdb_limit = 6;
        state.ports.get_mut(&port(1)).unwrap().fdb_limit = Some(3);
        state.vlans.get_mut(&vlan(10)).unwrap().fdb_limit = Some(4);
        let (mut p, mut model, mut now_s) = (pipeline(&state), Model::new(), 0);
        for step in steps {
            let now = Timestamp::from_secs(now_s);
            match step {
                Step::Hear { port, host } => {
                    let was = model.get(&(if port == 6 { 20 } else { 10 }, host)).copied();
                    if was.is_none_or(|(p, _, _)| p != 0) {
                        model_hear(&mut model, port, host, now_s);
                    }
                    learn(&mut p, now_s, port, host);
                }
                Step::Set { vlan: v, host: n, target } => {
                    let to = target.map(|n| PortId::new(n).map_or(FdbTarget::Blackhole, FdbTarget::Static));
                    p.set_fdb(vlan(v), host(n), to, now, &mut |_| {});
                    match target {
                        Some(at) => drop(model.insert((v, n), (at, false, 0))),
                        None => model.retain(|key, (_, dynamic, _)| *key != (v, n) || *dynamic),
                    }
                }
                Step::Flush { vlan: v, port: at, host: n } => {
                    let filter = FdbFilter { vlan: v.and_then(VlanId::new), port: at.and_then(PortId::new), mac: n.map(host), kind: None };
                    let before = model.len();
                    model.retain(|(mv, mn), (mp, dynamic, _)| {
                        !*dynamic || v.is_some_and(|v| v != *mv) || n.is_some_and(|n| n != *mn) || at.is_some_and(|at| at != *mp)
                    });
                    let mut events = 0;
                    let gone = p.flush(&filter, now, &mut |_| events += 1);
                    prop_assert_eq!((gone, events), ((before - model.len()) as u64, gone));
                }
                Step::Sweep { ageing_s } => {
                    let before = model.len();
                    model.retain(|_, (_, dynamic, heard_s)| !*dynamic || now_s - *heard_s < ageing_s);
                    let next = model.values().filter(|e| e.1).map(|e| e.2 + ageing_s - now_s).min();
                    let sweep = p.sweep(Some(ageing_s), now, &mut |_| {});
                    prop_assert_eq!(sweep, Sweep { aged: (before - model.len()) as u64, next_in_s: next });
                }
                Step::Wait { s } => now_s += s,
            }
            let now = Timestamp::from_secs(now_s);
            prop_assert_eq!(&real(&p, now), &model);
            let dynamic = |test: &dyn Fn(&(u16, u8), u16) -> bool| model.iter().filter(|(k, e)| e.1 && test(k, e.0)).count();
            prop_assert_eq!(p.fdb().dynamic(), dynamic(&|_, _| true) as u64);
            prop_assert_eq!(p.fdb().dynamic_at(port(1)), dynamic(&|_, at| at == 1) as u32);
            prop_assert_eq!(p.fdb().dynamic_in(vlan(10)), dynamic(&|key, _| key.0 == 10) as u32);
        }
    }
}

#[test]
fn a_walk_by_vlan_and_address_equals_a_walk_by_address() {
    let p = pipeline(&base());
    for n in [101, 110, 9] {
        let filter = FdbFilter { vlan: Some(vlan(10)), mac: Some(host(n)), ..FdbFilter::default() };
        let (mut direct, mut all) = (Vec::new(), Vec::new());
        p.fdb().walk(&filter, Timestamp::default(), &mut |e| direct.push(e));
        let by_mac = FdbFilter { mac: Some(host(n)), ..FdbFilter::default() };
        p.fdb().walk(&by_mac, Timestamp::default(), &mut |e| all.push(e));
        assert_eq!(direct, all);
    }
}

/// A walk in parts visits each entry once, and no part visits a large share of a large table.
#[test]
fn a_walk_in_parts() {
    const COUNT: u64 = 30_000;
    let mut p = pipeline(&base());
    for n in 0..COUNT {
        let target = Some(FdbTarget::Blackhole);
        p.set_fdb(
            vlan(10),
            MacAddr::from_u64(0x0200_0000_0000 + n),
            target,
            Timestamp::default(),
            &mut |_| {},
        );
    }
    let (mut found, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let before = found.len();
        next = p
            .fdb()
            .part(&FdbFilter::default(), from, Timestamp::default(), &mut |e| found.push((e.vlan, e.mac)));
        assert!(found.len() - before < 6000, "{}", found.len() - before);
    }
    assert_eq!(found.len() as u64, p.fdb().len());
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len() as u64, p.fdb().len());
    assert!(p.fdb().len() >= COUNT);
}
