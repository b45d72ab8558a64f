//! Port-channels: what members receive, by which member frames leave, and what is counted where.

use crate::support::{BROADCAST, base, host, pipeline, port, tags, untagged, vlan};
use lanyard_pipeline::state::{Aggregation, CHANNEL_BUCKETS, ChannelMembers, PlaneState, PortState};
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Output, Pipeline, Timestamp, validate};
use lanyard_types::{ChannelId, DropReason, LoadBalance, PortId, VlanSet};

/// The switch of `base`, whose port 3 (trunk 10,20 native 1) is port-channel 5 with the members 11, 12 and 13. Members 11
/// and 12 are in use.
fn aggregated() -> PlaneState {
    let mut state = base();
    let channel = ChannelId::new(5).unwrap();
    let trunk = state.ports.get_mut(&port(3)).unwrap();
    (trunk.aggregation, trunk.ifindex) = (Aggregation::Channel(channel), 0);
    let aggregation = Aggregation::Member { of: port(3), channel };
    let member = PortState { aggregation, tagged: VlanSet::EMPTY, untagged: VlanSet::EMPTY, ..trunk.clone() };
    for n in [11, 12, 13] {
        state
            .ports
            .insert(port(n), PortState { name: format!("eth{n}"), ifindex: n.into(), ..member.clone() });
    }
    let in_use = [port(11), port(12)];
    let buckets = (0..CHANNEL_BUCKETS).map(|bucket| in_use[bucket % 2]).collect();
    state.channels.insert(channel, ChannelMembers { collecting: in_use.into(), buckets });
    state.global.load_balance =
        *LoadBalance::KEYWORDS.iter().find(|(word, _)| *word == "src-mac").map(|(_, by)| by).unwrap();
    state
}

fn run(pipeline: &mut Pipeline, from: u16, frame: &[u8]) -> (Verdict, Vec<(u16, String)>) {
    let mut output = Output::default();
    let verdict = pipeline.process(Timestamp::from_secs(1), port(from), frame, &mut output);
    (verdict, output.sent.iter().map(|(port, bytes)| (port.get(), tags(bytes))).collect())
}

/// An untagged frame for the native VLAN is learned at the port-channel, whichever member received it, and goes to no member.
#[test]
fn members_receive_for_the_port_channel() {
    let mut pipeline = pipeline(&aggregated());
    for member in [11, 12] {
        let tagged = crate::support::tagged(BROADCAST, host(1), 0x8100, 0, 10);
        let (verdict, sent) = run(&mut pipeline, member, &tagged);
        assert_eq!(verdict, Verdict::Forwarded);
        let ports: Vec<u16> = sent.iter().map(|(port, _)| *port).collect();
        assert!(ports.contains(&1) && !ports.iter().any(|port| [3, 11, 12, 13].contains(port)), "{ports:?}");
        assert_eq!(pipeline.fdb().get(vlan(10), host(1)).and_then(|found| found.port), Some(port(3)));
    }
    // The frame for a host behind the port-channel does not go back to it by another member.
    let back = crate::support::tagged(host(1), host(2), 0x8100, 0, 10);
    assert_eq!(run(&mut pipeline, 12, &back).0, Verdict::Dropped(DropReason::SamePort));
}

#[test]
fn a_member_that_does_not_collect_receives_nothing() {
    let mut pipeline = pipeline(&aggregated());
    let frame = untagged(BROADCAST, host(1));
    assert_eq!(run(&mut pipeline, 13, &frame), (Verdict::Dropped(DropReason::NotCollecting), vec![]));
    assert!(pipeline.fdb().get(vlan(1), host(1)).is_none(), "nothing is learned");
    let counters = |n| pipeline.counters().port(port(n)).clone();
    assert_eq!(counters(13).dropped[DropReason::NotCollecting.index()], 1);
    assert_eq!(counters(3).rx.frames, 0, "the frame is not the port-channel's");
}

/// A frame leaves by one member, in the form of the port-channel; both are counted. Many sources use all members in use.
#[test]
fn one_member_sends() {
    let mut pipeline = pipeline(&aggregated());
    let mut used = [0; 16];
    for n in 1..100 {
        let (verdict, sent) = run(&mut pipeline, 1, &untagged(host(103), host(n)));
        assert_eq!(verdict, Verdict::Forwarded);
        let [(member, tags)] = &sent[..] else { unreachable!("{sent:?}") };
        assert_eq!(tags, "8100.10.0");
        used[usize::from(*member)] += 1;
        assert_eq!(run(&mut pipeline, 1, &untagged(host(103), host(n))).1, sent, "one flow, one member");
    }
    assert!(used[11] > 30 && used[12] > 30 && used[11] + used[12] == 99, "{used:?}");
    let sent = |n: PortId| pipeline.counters().port(n).tx.frames;
    assert_eq!(sent(port(3)), 198);
    assert_eq!((sent(port(11)) + sent(port(12)), sent(port(13))), (198, 0));
}

#[test]
fn a_flood_takes_one_copy_for_a_port_channel() {
    let mut pipeline = pipeline(&aggregated());
    let (_, sent) = run(&mut pipeline, 1, &untagged(BROADCAST, host(1)));
    let members = sent.iter().filter(|(port, _)| [3, 11, 12, 13].contains(port)).count();
    assert_eq!(members, 1, "{sent:?}");
}

#[test]
fn without_members_nothing_leaves() {
    let mut state = aggregated();
    state.channels.clear();
    let mut pipeline = pipeline(&state);
    let known = run(&mut pipeline, 1, &untagged(host(103), host(1)));
    assert_eq!(known, (Verdict::Dropped(DropReason::EgressDown), vec![]));
    let (verdict, sent) = run(&mut pipeline, 1, &untagged(BROADCAST, host(1)));
    assert!(
        verdict == Verdict::Forwarded && !sent.is_empty(),
        "the other ports of the flood get it: {verdict:?}"
    );
    assert_eq!(pipeline.counters().port(port(3)).tx_dropped, 1);
    // Remove the other ports, so that the port-channel is the only port of the flood.
    for n in [2, 4, 5, 7] {
        pipeline.set_port(port(n), None, Timestamp::from_secs(1), &mut |_| {});
    }
    let flood = run(&mut pipeline, 1, &untagged(BROADCAST, host(1)));
    assert_eq!(flood, (Verdict::Dropped(DropReason::EgressDown), vec![]));
}

#[test]
fn states_that_contradict_themselves_are_refused() {
    let check = |change: &dyn Fn(&mut PlaneState), want: &str| {
        let mut state = aggregated();
        change(&mut state);
        let refused = validate::check(&state);
        assert!(refused.as_ref().is_err_and(|why| why.contains(want)), "{want}: {refused:?}");
    };
    assert_eq!(validate::check(&aggregated()), Ok(()));
    check(&|state| drop(state.ports.remove(&port(3))), "is not port-channel 5");
    check(
        &|state| state.ports.get_mut(&port(11)).unwrap().tagged = "10".parse().unwrap(),
        "in a VLAN itself",
    );
    check(
        &|state| state.ports.get_mut(&port(3)).unwrap().kind = lanyard_pipeline::state::PortKind::Routed,
        "is no switch port",
    );
    check(
        &|state| _ = state.channels.get_mut(&ChannelId::new(5).unwrap()).unwrap().buckets.pop(),
        "255 buckets",
    );
}
