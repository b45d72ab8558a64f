//! Properties that hold for every generated state and frame: conservation, flood sets, minimum copy, tags.

use crate::support::tags;
use lanyard_pipeline::generate::{Rng, State, frame};
use lanyard_pipeline::state::{PlaneState, PortState, StpState, Tpid};
use lanyard_pipeline::tables::fdb::FdbFilter;
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{MacAddr, PortId, Stage, TrapReason, TunnelledProtocol, VlanId};
use lanyard_wire::{Frame, tunnelled_protocol};
use proptest::prelude::*;
use std::collections::BTreeSet;

const FRAMES: u32 = 300;

fn over(seed: u64, each: impl FnMut(&mut Pipeline, &PlaneState, Timestamp, PortId, &[u8])) -> Pipeline {
    let state = State::new(seed).bridging().without_policies().without_access_lists().without_channels();
    over_state(seed, &state.with_all_copies(), each)
}

fn over_state(
    seed: u64,
    state: &State,
    mut each: impl FnMut(&mut Pipeline, &PlaneState, Timestamp, PortId, &[u8]),
) -> Pipeline {
    let mut pipeline = Pipeline::new(seed);
    pipeline.set_state(&state.plane, Timestamp::default(), &mut |_| {});
    let mut rng = Rng::new(!seed);
    for n in 0..FRAMES {
        let (port, bytes) = frame(&mut rng, state);
        each(&mut pipeline, &state.plane, Timestamp::from_nanos(u64::from(n) * 50_000_000), port, &bytes);
    }
    pipeline
}

/// The VID of the tag that the port recognises, computed from the state alone.
fn recognised(port: &PortState, bytes: &[u8]) -> Option<u16> {
    let tpid = port.tpid.ethertype()?.to_be_bytes();
    (bytes.len() >= 18 && bytes[12..14] == tpid).then(|| u16::from_be_bytes([bytes[14], bytes[15]]) & 0xfff)
}

fn carries(port: &PortState, vlan: VlanId) -> bool {
    port.tagged.contains(vlan) || port.untagged.contains(vlan)
}

/// `None` for a frame outside tunnels. For a customer's control frame or a frame to the tunnel address: the protocol of its
/// payload, with that protocol's destination address, if there is one.
type Carried = Option<Option<(TunnelledProtocol, MacAddr)>>;

fn carried(port: &PortState, bytes: &[u8]) -> Carried {
    let dst = Frame::new(bytes).unwrap().dst();
    let enters = port.is_tunnel() && dst.is_layer2_protocol();
    (enters || dst == MacAddr::TUNNEL).then(|| tunnelled_protocol(bytes, recognised(port, bytes).is_some()))
}

/// The destination with which a frame leaves by a port; `None` if it must not leave there.
fn leaves_for(port: &PortState, dst: MacAddr, carried: Carried) -> Option<MacAddr> {
    match carried {
        None => Some(dst),
        Some(_) if !port.is_tunnel() => Some(MacAddr::TUNNEL),
        Some(found) => found.filter(|(protocol, _)| port.tunnelled.carries(*protocol)).map(|(_, own)| own),
    }
}

/// The ports that a flood of this frame may reach, computed from the definition for one port at a time.
fn may_flood(state: &PlaneState, from: PortId, vlan: VlanId, bytes: &[u8]) -> BTreeSet<PortId> {
    let ingress = &state.ports[&from];
    let (dst, carried) = (Frame::new(bytes).unwrap().dst(), carried(ingress, bytes));
    let len = bytes.len() - if recognised(ingress, bytes).is_some() { 4 } else { 0 };
    let instance = state.vlans[&vlan].instance;
    let wanted = |p: &PortState| {
        if dst.is_broadcast() {
            true
        } else if dst.is_group() {
            p.flood_multicast
        } else {
            p.flood_unicast
        }
    };
    let passes = |(id, p): &(&PortId, &PortState)| {
        **id != from
            && p.enabled
            && carries(p, vlan)
            && state.stp.get(&(instance, **id)).is_none_or(|s| *s == StpState::Forwarding)
            && !(ingress.isolated && p.isolated)
            && wanted(p)
            && leaves_for(p, dst, carried).is_some()
            && len <= p.mtu as usize + 18
    };
    state.ports.iter().filter(passes).map(|(id, _)| *id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn conservation(seed: u64) {
        let (mut received, mut sent, mut trapped, mut early) = (0, 0, 0, 0);
        // The state keeps its limits for copies to the kernel's stack: conservation holds also where copies are left out.
        let state = State::new(seed).bridging().without_policies().without_access_lists().without_channels();
        let pipeline = over_state(seed, &state, |pipeline, _, now, port, bytes| {
            // Count the frames that end before they belong to a VLAN. The verdict of `process` does not show the stage of a frame
            // that is over a rate; the trace does.
            early += u64::from(match pipeline.trace(port, bytes).verdict {
                Verdict::Trapped(reason) => reason.stage() <= Stage::VlanIngress,
                Verdict::Dropped(reason) => reason.stage() <= Stage::VlanIngress,
                Verdict::Forwarded => false,
            });
            let mut out = Output::default();
            let verdict = pipeline.process(now, port, bytes, &mut out);
            // Access lists trap notes, which are not frames.
            out.trapped.retain(|(_, reason, _)| *reason != TrapReason::AclLog);
            received += 1;
            sent += (out.sent.len() + out.mirrored.len()) as u64;
            // The log gets a copy of some frames that first-hop security drops; such a copy is not counted as trapped.
            let reported = matches!(verdict, Verdict::Dropped(reason) if reason.report().is_some());
            trapped += if reported { 0 } else { out.trapped.len() as u64 };
            assert_eq!(verdict == Verdict::Forwarded, !out.sent.is_empty());
            assert!(reported || matches!(verdict, Verdict::Trapped(_)) != out.trapped.is_empty());
        });
        let all = || PortId::all().map(|port| pipeline.counters().port(port));
        prop_assert!(all().all(|counters| counters.conserved()));
        prop_assert_eq!(all().map(|c| c.rx.frames).sum::<u64>(), received);
        prop_assert_eq!(all().map(|c| c.tx.frames).sum::<u64>(), sent);
        prop_assert_eq!(all().map(|c| c.trapped).sum::<u64>(), trapped);
        let counted = VlanId::all().map(|vlan| pipeline.counters().vlan(vlan).frames).sum::<u64>();
        prop_assert_eq!(counted + early, received);
    }

    #[test]
    fn flood_sets(seed: u64) {
        over(seed, |pipeline, state, now, from, bytes| {
            let mut out = Output::default();
            let verdict = pipeline.process(now, from, bytes, &mut out);
            if verdict != Verdict::Forwarded {
                return;
            }
            let ingress = &state.ports[&from];
            let vid = recognised(ingress, bytes);
            let vlan = vid.and_then(VlanId::new).or(ingress.pvid).unwrap();
            let dst = Frame::new(bytes).unwrap().dst();
            let got: BTreeSet<PortId> = out.sent.iter().map(|(port, _)| *port).collect();
            assert_eq!(got.len(), out.sent.len(), "a port twice");
            let receives = if ingress.private { ingress.pvid == Some(vlan) } else { carries(ingress, vlan) };
            assert!(state.vlans.contains_key(&vlan) && receives && ingress.enabled);
            let shared = state.vlans[&vlan].shares.map_or(vlan, |shares| shares.primary);
            match pipeline.fdb().get(shared, dst).filter(|_| !dst.is_group()) {
                Some(found) => assert_eq!(got, found.port.into_iter().collect()),
                None => assert_eq!(got, may_flood(state, from, vlan, bytes)),
            }
        });
    }

    /// Copies of one form are sent one after the other, the arrived form first, and each form in port order; the tags
    /// are those that the egress port requires, and the payload is unchanged.
    #[test]
    fn minimum_copy_and_tags(seed: u64) {
        over(seed, |pipeline, state, now, from, bytes| {
            let before = pipeline.work();
            let mut out = Output::default();
            if pipeline.process(now, from, bytes, &mut out) != Verdict::Forwarded {
                return;
            }
            let ingress = &state.ports[&from];
            let vid = recognised(ingress, bytes);
            let vlan = vid.and_then(VlanId::new).or(ingress.pvid).unwrap();
            let tci = vid.map_or(0, |_| u16::from_be_bytes([bytes[14], bytes[15]]) & 0xf000);
            let mut bare = [&bytes[..12], &bytes[if vid.is_some() { 16 } else { 12 }..]].concat();
            let mut runs: Vec<(Option<u16>, Vec<PortId>)> = Vec::new();
            for (port, sent) in &out.sent {
                let egress = &state.ports[port];
                let tpid = egress.tpid.ethertype().filter(|_| egress.tagged.contains(vlan));
                let dst = leaves_for(egress, Frame::new(bytes).unwrap().dst(), carried(ingress, bytes)).unwrap();
                bare[..6].copy_from_slice(&dst.0);
                let want = match tpid {
                    None => bare.clone(),
                    Some(tpid) => {
                        let tag = [tpid.to_be_bytes(), (tci | vlan.get()).to_be_bytes()].concat();
                        [&bare[..12], &tag, &bare[12..]].concat()
                    }
                };
                assert_eq!(*sent, want, "port {port}: {} for {}", tags(sent), tags(bytes));
                match runs.last_mut().filter(|run| run.0 == tpid) {
                    Some(run) => run.1.push(*port),
                    None => runs.push((tpid, vec![*port])),
                }
            }
            let forms: BTreeSet<Option<u16>> = runs.iter().map(|run| run.0).collect();
            assert_eq!(forms.len(), runs.len(), "a form twice: {runs:?}");
            assert!(runs.iter().all(|run| run.1.is_sorted()));
            let arrived = if vid == Some(0) { None } else { Some(vid.and_then(|_| ingress.tpid.ethertype())) };
            let as_arrived = arrived.is_some_and(|form| forms.contains(&form));
            assert!(!as_arrived || Some(runs[0].0) == arrived, "{runs:?}");
            let work = pipeline.work();
            assert_eq!(work.clones - before.clones, out.sent.len() as u64 - 1);
            assert_eq!(work.tag_operations - before.tag_operations, (runs.len() - usize::from(as_arrived)) as u64);
        });
    }

    #[test]
    fn trace_and_process_agree(seed: u64) {
        over(seed, |pipeline, _, now, from, bytes| {
            let trace = pipeline.trace(from, bytes);
            let mut out = Output::default();
            let verdict = pipeline.process(now, from, bytes, &mut out);
            if let Verdict::Dropped(reason) = verdict && reason.is_over_rate() {
                // A trace takes no token: it shows as trapped what a trap group over its rate drops.
                let trapped = matches!(trace.verdict, Verdict::Trapped(_));
                assert!(trapped || reason != lanyard_types::DropReason::TrapPoliced);
                return;
            }
            assert_eq!((trace.verdict, &trace.egress, &trace.mirrored), (verdict, &out.sent, &out.mirrored));
            assert!(trace.stages.is_sorted_by(|a, b| a.stage < b.stage), "{:?}", trace.stages);
            let last = trace.stages.last().unwrap().stage;
            match verdict {
                Verdict::Forwarded => assert_eq!(last, Stage::Count),
                Verdict::Trapped(reason) => assert_eq!(last, reason.stage()),
                Verdict::Dropped(reason) => assert_eq!(last, reason.stage()),
            }
        });
    }

    /// A state does not depend on the states before it: changes in between leave nothing behind.
    #[test]
    fn states_do_not_leak(first: u64, second: u64) {
        let now = Timestamp::default();
        let (one, two) = (State::new(first), State::new(second));
        let (mut direct, mut detour) = (Pipeline::new(7), Pipeline::new(7));
        direct.set_state(&two.plane, now, &mut |_| {});
        detour.set_state(&one.plane, now, &mut |_| {});
        detour.set_state(&two.plane, now, &mut |_| {});
        let mut rng = Rng::new(first ^ second);
        for _ in 0..FRAMES {
            let (port, bytes) = frame(&mut rng, &two);
            prop_assert_eq!(direct.trace(port, &bytes), detour.trace(port, &bytes));
        }
        prop_assert_eq!(direct.fdb().len(), detour.fdb().len());
    }
}

/// The generated frames cause every drop reason of the pipeline itself, and every form.
#[test]
fn generated_frames_reach_everything() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for seed in 0..400 {
        over(seed, |pipeline, state, now, from, bytes| {
            let mut out = Output::default();
            seen.insert(match pipeline.process(now, from, bytes, &mut out) {
                Verdict::Dropped(reason) => reason.name().into(),
                Verdict::Trapped(reason) => format!("trapped {reason}"),
                Verdict::Forwarded => format!("forwarded {}", out.sent.len().min(3)),
            });
            if state.ports.get(&from).is_some_and(|p| p.tpid == Tpid::None) {
                seen.insert("tunnel".into());
            }
            pipeline.fdb().walk(&FdbFilter::default(), now, &mut |entry| {
                seen.insert(entry.kind.name().into());
            });
        });
    }
    assert!(seen.contains("tunnel_protocol"));
    // Check the first 24 reasons only: the later ones include those of routing, and this test routes no frames.
    for reason in &lanyard_types::DropReason::ALL[..24] {
        // A port's dynamic entries are removed with it, and the generator's sink never refuses a frame.
        let out_of_reach = *reason == lanyard_types::DropReason::TransmitFailed;
        assert_eq!(seen.contains(reason.name()), !out_of_reach, "{reason}");
    }
    let snooped = lanyard_types::TrapReason::ALL.iter().filter(|reason| reason.stage() == Stage::Snoop);
    for reason in lanyard_types::TrapReason::ALL[..5].iter().chain(snooped) {
        assert!(seen.contains(&format!("trapped {reason}")), "{reason}");
    }
    for other in
        ["forwarded 1", "forwarded 2", "forwarded 3", "tunnel", "dynamic", "static", "sticky", "self"]
    {
        assert!(seen.contains(other), "{other}");
    }
}
