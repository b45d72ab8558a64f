//! One table of cases for each stage: a change to the base switch, a frame, and the outcome.

use crate::support::{
    BROADCAST, MULTICAST, base, describe, host, pipeline, port, reserved, run, tagged, untagged, vlan,
};
use lanyard_pipeline::state::{
    FdbTarget, PlaneState, PortState, ReservedAction, StpState, Tpid, TrapRate, VlanState,
};
use lanyard_pipeline::{Output, Timestamp, Work};
use lanyard_types::{DropReason, InstanceId, MacAddr, TrapGroup, VlanSet};

type Case = (&'static str, fn(&mut PlaneState), u16, Vec<u8>, &'static str);

fn as_is(_: &mut PlaneState) {}

fn port_of(state: &mut PlaneState, n: u16) -> &mut PortState {
    state.ports.get_mut(&port(n)).unwrap()
}

fn stp(state: &mut PlaneState, n: u16, to: StpState) {
    state.stp.insert((InstanceId::default(), port(n)), to);
}

fn check(cases: Vec<Case>) {
    for (name, change, at, frame, want) in cases {
        let mut state = base();
        change(&mut state);
        assert_eq!(run(&mut pipeline(&state), at, &frame), want, "{name}");
    }
}

#[test]
fn parse() {
    let whole = untagged(host(102), host(1));
    let with_tag = tagged(host(102), host(1), 0x8100, 0, 10);
    check(vec![
        ("no bytes", as_is, 1, vec![], "dropped truncated"),
        ("13 bytes", as_is, 1, whole[..13].to_vec(), "dropped truncated"),
        ("14 bytes", as_is, 1, whole[..14].to_vec(), "2:-"),
        ("17 bytes with a tag", as_is, 1, with_tag[..17].to_vec(), "dropped truncated"),
        ("18 bytes with a tag", as_is, 1, with_tag[..18].to_vec(), "2:-"),
        ("17 bytes with another's tag", as_is, 4, with_tag[..17].to_vec(), "dropped untagged_not_allowed"),
        ("truncated before group", as_is, 1, vec![0xff; 13], "dropped truncated"),
        ("group source", as_is, 1, untagged(host(102), MULTICAST), "dropped source_group"),
        (
            "group source before tag",
            as_is,
            1,
            tagged(host(1), BROADCAST, 0x8100, 0, 10)[..17].to_vec(),
            "dropped source_group",
        ),
        ("zero source", as_is, 1, untagged(host(102), MacAddr::default()), "dropped source_zero"),
        ("zero source, pause", as_is, 1, untagged(reserved(1), MacAddr::default()), "dropped source_zero"),
        ("another TPID is payload", as_is, 1, tagged(host(102), host(1), 0x88a8, 0, 10), "2:88a8.10.0"),
        (
            "a tunnel takes tags as payload",
            |s| port_of(s, 1).tpid = Tpid::None,
            1,
            tagged(host(102), host(1), 0x8100, 2, 99),
            "2:8100.99.2",
        ),
        ("an unknown port knows no tag", as_is, 99, with_tag[..17].to_vec(), "dropped port_down"),
    ]);
}

#[test]
fn trap() {
    fn trap_all(state: &mut PlaneState) {
        state.global.reserved = [ReservedAction::Trap; 16];
        state.global.trap_pvst = VlanSet::all();
    }
    fn trap_10(state: &mut PlaneState) {
        state.global.trap_pvst = [vlan(10)].into_iter().collect();
    }
    fn tunnel(state: &mut PlaneState) {
        trap_all(state);
        port_of(state, 1).tpid = Tpid::None;
    }
    fn trap_all_down(state: &mut PlaneState) {
        trap_all(state);
        port_of(state, 1).enabled = false;
    }
    let to = |n| untagged(reserved(n), host(1));
    fn cdp(state: &mut PlaneState) {
        state.global.trap_cdp = true;
    }
    let pvst = untagged(MacAddr::SSTP, host(1));
    let cisco = || untagged(MacAddr::CISCO_DISCOVERY, host(1));
    check(vec![
        ("pause", as_is, 1, to(1), "dropped pause"),
        ("pause, trap asked", trap_all, 1, to(1), "dropped pause"),
        (
            "pause, forward asked",
            |s| s.global.reserved[1] = ReservedAction::Forward,
            1,
            to(1),
            "dropped pause",
        ),
        ("pause at a port that is down", |s| port_of(s, 1).enabled = false, 1, to(1), "dropped pause"),
        ("pause at no port", as_is, 99, to(1), "dropped pause"),
        ("reserved at no port", as_is, 99, to(3), "dropped reserved_address"),
        ("reserved, default", as_is, 1, to(0xe), "dropped reserved_address"),
        ("last of the block", as_is, 1, to(0xf), "dropped reserved_address"),
        ("past the block", as_is, 1, to(0x10), "2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0"),
        ("BPDU, spanning tree off", as_is, 1, to(0), "2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0"),
        ("BPDU", trap_all, 1, to(0), "trapped bpdu"),
        ("slow protocol", trap_all, 1, to(2), "trapped slow_protocol"),
        ("802.1X", trap_all, 1, to(3), "trapped eapol"),
        ("LLDP", trap_all, 1, to(0xe), "trapped lldp"),
        ("CDP", cdp, 1, cisco(), "trapped cdp"),
        ("CDP, tagged", cdp, 3, tagged(MacAddr::CISCO_DISCOVERY, host(1), 0x8100, 0, 1), "trapped cdp"),
        ("PVST beside CDP", cdp, 6, pvst.clone(), "3:8100.20.0 7:8100.20.0"),
        ("PVST", trap_all, 1, pvst.clone(), "trapped pvst_bpdu"),
        ("PVST, tagged", trap_all, 3, tagged(MacAddr::SSTP, host(1), 0x8100, 7, 10), "trapped pvst_bpdu"),
        ("PVST in a VLAN with a tree", trap_10, 1, pvst.clone(), "trapped pvst_bpdu"),
        ("PVST in a VLAN without a tree", trap_10, 6, pvst.clone(), "3:8100.20.0 7:8100.20.0"),
        (
            "PVST, tagged with a VLAN without a tree",
            trap_10,
            3,
            tagged(MacAddr::SSTP, host(1), 0x8100, 7, 20),
            "7:8100.20.7d 6:-",
        ),
        ("PVST, spanning tree off", as_is, 6, pvst.clone(), "3:8100.20.0 7:8100.20.0"),
        ("a customer's BPDU", tunnel, 1, to(0), "dropped tunnel_protocol"),
        ("a customer's PVST BPDU", tunnel, 1, pvst, "dropped tunnel_protocol"),
        ("a customer's LLDP", tunnel, 1, to(0xe), "dropped tunnel_protocol"),
        (
            "a customer's CDP",
            tunnel,
            1,
            untagged(MacAddr::CISCO_DISCOVERY, host(1)),
            "dropped tunnel_protocol",
        ),
        ("a customer's LACP is the port's", tunnel, 1, to(2), "trapped slow_protocol"),
        (
            "a customer's BPDU, spanning tree off",
            |s| port_of(s, 1).tpid = Tpid::None,
            1,
            to(0),
            "dropped tunnel_protocol",
        ),
        (
            "CDP elsewhere is multicast",
            as_is,
            6,
            untagged(MacAddr::CISCO_DISCOVERY, host(1)),
            "3:8100.20.0 7:8100.20.0",
        ),
        ("trapped at a down port", trap_all_down, 1, to(0), "dropped port_down"),
        ("trapped at no port", trap_all, 99, to(0), "dropped port_down"),
        ("trapped whatever the VLAN", |s| (trap_all(s), s.vlans.clear()).1, 1, to(0), "trapped bpdu"),
        (
            "trapped at a discarding port",
            |s| (trap_all(s), stp(s, 1, StpState::Discarding)).1,
            1,
            to(0),
            "trapped bpdu",
        ),
        (
            "over the rate",
            |s| {
                (trap_all(s), s.global.trap_rate[TrapGroup::Stp.index()] = TrapRate { rate_pps: 0, burst: 9 })
                    .1
            },
            1,
            to(0),
            "dropped trap_policed",
        ),
        (
            "another group's rate",
            |s| {
                (
                    trap_all(s),
                    s.global.trap_rate[TrapGroup::Slow.index()] = TrapRate { rate_pps: 0, burst: 9 },
                )
                    .1
            },
            1,
            to(0),
            "trapped bpdu",
        ),
    ]);
}

#[test]
fn port_stage() {
    check(vec![
        ("down", |s| port_of(s, 1).enabled = false, 1, untagged(host(102), host(1)), "dropped port_down"),
        ("no port", as_is, 99, untagged(host(102), host(1)), "dropped port_down"),
    ]);
}

#[test]
fn vlan_ingress() {
    let plain = || untagged(host(102), host(1));
    let tag = |vid| tagged(host(102), host(1), 0x8100, 0, vid);
    check(vec![
        ("PVID", as_is, 1, plain(), "2:-"),
        ("priority tag", as_is, 1, tag(0), "2:-"),
        ("own tag on access", as_is, 1, tag(10), "2:-"),
        ("foreign tag on access", as_is, 1, tag(20), "dropped tagged_on_access"),
        ("foreign tag on a trunk", as_is, 3, tag(11), "dropped vlan_not_allowed"),
        ("allowed tag", as_is, 3, tag(10), "2:-"),
        ("native tag", as_is, 3, tag(1), "dropped no_egress"),
        ("4095", as_is, 3, tag(4095), "dropped vlan_invalid"),
        ("4095 on access", as_is, 1, tag(4095), "dropped vlan_invalid"),
        ("no PVID", as_is, 7, plain(), "dropped untagged_not_allowed"),
        ("no PVID, priority tag", as_is, 7, tag(0), "dropped untagged_not_allowed"),
        (
            "PVID of no membership",
            |s| port_of(s, 7).pvid = Some(vlan(30)),
            7,
            plain(),
            "dropped vlan_not_allowed",
        ),
        (
            "PVID of no membership on access",
            |s| port_of(s, 1).untagged.remove(vlan(10)).then_some(()).unwrap(),
            1,
            plain(),
            "dropped vlan_not_allowed",
        ),
        ("inactive", |s| drop(s.vlans.remove(&vlan(10))), 1, plain(), "dropped vlan_inactive"),
        (
            "membership before activity",
            |s| drop(s.vlans.remove(&vlan(20))),
            1,
            tag(20),
            "dropped tagged_on_access",
        ),
        ("discarding", |s| stp(s, 1, StpState::Discarding), 1, plain(), "dropped stp_discarding"),
        (
            "inactive before discarding",
            |s| (stp(s, 1, StpState::Discarding), s.vlans.clear()).1,
            1,
            plain(),
            "dropped vlan_inactive",
        ),
        (
            "another instance's state",
            |s| {
                (
                    stp(s, 1, StpState::Discarding),
                    s.vlans.get_mut(&vlan(10)).unwrap().instance = InstanceId::new(5).unwrap(),
                )
                    .1
            },
            1,
            plain(),
            "2:-",
        ),
    ]);
}

#[test]
fn learn_drops() {
    check(vec![
        ("blackhole source", as_is, 1, untagged(host(102), host(110)), "dropped source_blackhole"),
        (
            "blackhole source, learning off",
            |s| port_of(s, 1).learning = false,
            1,
            untagged(host(102), host(110)),
            "dropped source_blackhole",
        ),
        (
            "blackhole source, STP learning",
            |s| stp(s, 1, StpState::Learning),
            1,
            untagged(host(102), host(110)),
            "dropped source_blackhole",
        ),
        (
            "STP learning",
            |s| stp(s, 1, StpState::Learning),
            1,
            untagged(host(102), host(1)),
            "dropped stp_learning",
        ),
        ("a static address elsewhere goes on", as_is, 1, untagged(host(102), host(103)), "2:-"),
    ]);
}

#[test]
fn bridge() {
    let unknown = || untagged(host(9), host(1));
    check(vec![
        ("known", as_is, 1, untagged(host(102), host(1)), "2:-"),
        ("blackhole", as_is, 1, untagged(host(110), host(1)), "dropped destination_blackhole"),
        ("same port", as_is, 1, untagged(host(101), host(1)), "dropped same_port"),
        ("to itself, new", as_is, 1, untagged(host(1), host(1)), "dropped same_port"),
        (
            "to itself, not learned",
            |s| port_of(s, 1).learning = false,
            1,
            untagged(host(1), host(1)),
            "2:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0",
        ),
        ("another VLAN's entry", as_is, 6, untagged(host(102), host(1)), "3:8100.20.0 7:8100.20.0"),
        ("unknown", as_is, 1, unknown(), "2:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0"),
        (
            "unknown, blocked",
            |s| port_of(s, 2).flood_unicast = false,
            1,
            unknown(),
            "3:8100.10.0 7:8100.10.0 4:88a8.10.0",
        ),
        (
            "multicast, blocked",
            |s| port_of(s, 2).flood_multicast = false,
            1,
            untagged(MULTICAST, host(1)),
            "5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0",
        ),
        (
            "broadcast, all blocked",
            |s| s.ports.values_mut().for_each(|p| (p.flood_unicast, p.flood_multicast) = (false, false)),
            1,
            untagged(BROADCAST, host(1)),
            "2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0",
        ),
        ("a down port", |s| port_of(s, 3).enabled = false, 1, unknown(), "2:- 7:8100.10.0 4:88a8.10.0"),
        (
            "a discarding port",
            |s| stp(s, 3, StpState::Discarding),
            1,
            unknown(),
            "2:- 7:8100.10.0 4:88a8.10.0",
        ),
        ("a learning port", |s| stp(s, 3, StpState::Learning), 1, unknown(), "2:- 7:8100.10.0 4:88a8.10.0"),
        (
            "protected both",
            |s| (port_of(s, 1).isolated = true, port_of(s, 2).isolated = true).1,
            1,
            unknown(),
            "3:8100.10.0 7:8100.10.0 4:88a8.10.0",
        ),
        (
            "protected egress only",
            |s| port_of(s, 2).isolated = true,
            1,
            unknown(),
            "2:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0",
        ),
        (
            "nobody",
            |s| s.ports.retain(|n, _| *n == port(1)),
            1,
            untagged(BROADCAST, host(1)),
            "dropped no_egress",
        ),
    ]);
}

#[test]
fn vlan_egress() {
    fn long(len: usize) -> Vec<u8> {
        let mut frame = untagged(host(102), host(1));
        frame.resize(len, 0);
        frame
    }
    fn long_tagged(len: usize) -> Vec<u8> {
        let mut frame = tagged(host(102), host(1), 0x8100, 0, 10);
        frame.resize(len, 0);
        frame
    }
    fn everything(state: &mut PlaneState, but: usize) {
        let wrong: [fn(&mut PlaneState); 5] = [
            |s| port_of(s, 2).enabled = false,
            |s| port_of(s, 2).untagged = "20".parse().unwrap(),
            |s| stp(s, 2, StpState::Learning),
            |s| (port_of(s, 1).isolated, port_of(s, 2).isolated) = (true, true),
            |s| port_of(s, 2).mtu = 68,
        ];
        wrong.iter().skip(but).for_each(|change| change(state));
    }
    check(vec![
        ("port gone", |s| drop(s.ports.remove(&port(2))), 1, long(60), "dropped egress_down"),
        ("first check", |s| everything(s, 0), 1, long(100), "dropped egress_down"),
        ("second", |s| everything(s, 1), 1, long(100), "dropped egress_not_member"),
        ("third", |s| everything(s, 2), 1, long(100), "dropped egress_stp"),
        ("fourth", |s| everything(s, 3), 1, long(100), "dropped isolated"),
        ("fifth", |s| everything(s, 4), 1, long(100), "dropped mtu_exceeded"),
        ("the MTU's edge", as_is, 1, long(1518), "2:-"),
        ("past it", as_is, 1, long(1519), "dropped mtu_exceeded"),
        ("the edge, own tag not counted", as_is, 3, long_tagged(1522), "2:-"),
        ("past it, tagged", as_is, 3, long_tagged(1523), "dropped mtu_exceeded"),
        ("a foreign tag is payload", |s| port_of(s, 3).tpid = Tpid::None, 1, long_tagged(1522), "2:-"),
        (
            "one of a flood",
            |s| port_of(s, 2).mtu = 68,
            6,
            {
                let mut f = untagged(BROADCAST, host(1));
                f.resize(200, 0);
                f
            },
            "3:8100.20.0 7:8100.20.0",
        ),
    ]);
}

#[test]
fn a_flood_that_is_too_long() {
    let mut frame = untagged(BROADCAST, host(1));
    frame.resize(200, 0);
    for (short, want) in
        [(vec![2, 7], "5:- 3:8100.10.0 4:88a8.10.0"), (vec![2, 3, 4, 5, 7], "dropped mtu_exceeded")]
    {
        let mut state = base();
        short.iter().for_each(|n| port_of(&mut state, *n).mtu = 68);
        let mut pipeline = pipeline(&state);
        assert_eq!(run(&mut pipeline, 1, &frame), want);
        for n in 1..=7 {
            let dropped = pipeline.counters().port(port(n)).tx_dropped;
            assert_eq!(dropped, u64::from(short.contains(&n)), "port {n}");
        }
    }
}

#[test]
fn segments_are_measured_not_the_buffer() {
    let mut frame = untagged(host(102), host(1));
    frame.resize(60_000, 0);
    for (longest, want) in [(1514, "2:-"), (1518, "2:-"), (1519, "dropped mtu_exceeded")] {
        let mut out = Output::default();
        let mut pipeline = pipeline(&base());
        let verdict = pipeline.process_segments(Timestamp::default(), port(1), &frame, longest, &mut out);
        assert_eq!(describe(verdict, &out.sent), want, "{longest}");
    }
}

/// The order of emission, tags, clones and tag operations.
#[test]
fn replicate() {
    fn more(state: &mut PlaneState) {
        // Port 8 tags with TPID 0x9100, port 9 with 0x88a8.
        for (n, tpid) in [(8, Tpid::Stacked9100), (9, Tpid::Dot1ad)] {
            let tagged = "10".parse().unwrap();
            state
                .ports
                .insert(port(n), PortState { tpid, tagged, ..PortState::new(&format!("eth{n}"), n.into()) });
        }
    }
    fn only_tagged(state: &mut PlaneState) {
        more(state);
        state.ports.retain(|n, p| *n == port(1) || p.pvid.is_none());
    }
    let flood = |tpid, pcp, vid| tagged(BROADCAST, host(1), tpid, pcp, vid);
    let cases: Vec<(&str, fn(&mut PlaneState), u16, Vec<u8>, &str, u64)> = vec![
        (
            "untagged, one form",
            |s| s.ports.retain(|n, _| *n <= port(2)),
            1,
            untagged(BROADCAST, host(1)),
            "2:-",
            0,
        ),
        (
            "untagged",
            more,
            1,
            untagged(BROADCAST, host(1)),
            "2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0 9:88a8.10.0 8:9100.10.0",
            3,
        ),
        (
            "untagged where tags are 0x88a8",
            |s| {
                (more(s), port_of(s, 4).pvid = Some(vlan(10)), port_of(s, 4).untagged = "10".parse().unwrap())
                    .0
            },
            4,
            untagged(BROADCAST, host(1)),
            "1:- 2:- 5:- 3:8100.10.0 7:8100.10.0 9:88a8.10.0 8:9100.10.0",
            3,
        ),
        (
            "tagged in 0x8100",
            more,
            3,
            flood(0x8100, 3, 10),
            "7:8100.10.3d 1:- 2:- 5:- 4:88a8.10.3d 9:88a8.10.3d 8:9100.10.3d",
            3,
        ),
        (
            "tagged in 0x88a8",
            more,
            4,
            flood(0x88a8, 2, 10),
            "9:88a8.10.2 1:- 2:- 5:- 3:8100.10.2 7:8100.10.2 8:9100.10.2",
            3,
        ),
        (
            "tagged in 0x9100",
            more,
            8,
            flood(0x9100, 0, 10),
            "1:- 2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0 9:88a8.10.0",
            3,
        ),
        (
            "priority tag keeps its priority",
            more,
            1,
            flood(0x8100, 5, 0),
            "2:- 5:- 3:8100.10.5d 7:8100.10.5d 4:88a8.10.5d 9:88a8.10.5d 8:9100.10.5d",
            4,
        ),
        (
            "priority tag, tagged ports only",
            only_tagged,
            1,
            flood(0x8100, 5, 0),
            "7:8100.10.5d 4:88a8.10.5d 9:88a8.10.5d 8:9100.10.5d",
            3,
        ),
        ("tagged to one tagged", as_is, 3, tagged(host(107), host(1), 0x8100, 1, 10), "7:8100.10.1d", 0),
        ("tagged to one untagged", as_is, 3, tagged(host(101), host(1), 0x8100, 1, 10), "1:-", 1),
        ("tagged to another TPID", as_is, 3, tagged(host(104), host(1), 0x8100, 6, 10), "4:88a8.10.6", 1),
        ("untagged to one tagged", as_is, 1, untagged(host(103), host(1)), "3:8100.10.0", 1),
        ("up to the VLAN interface", as_is, 3, tagged(host(105), host(1), 0x8100, 0, 10), "5:-", 1),
        ("a tag inside stays", as_is, 1, tagged(host(103), host(1), 0x88a8, 2, 7), "3:8100.10.0+88a8.7.2", 1),
    ];
    for (name, change, at, frame, want, tag_operations) in cases {
        let mut state = base();
        change(&mut state);
        let mut pipeline = pipeline(&state);
        assert_eq!(run(&mut pipeline, at, &frame), want, "{name}");
        let clones = want.split(' ').count() as u64 - 1;
        assert_eq!(pipeline.work(), Work { clones, tag_operations }, "{name}");
    }
}

/// All copies carry the same frame, apart from their tags.
#[test]
fn payload_is_untouched() {
    let frame = tagged(BROADCAST, host(1), 0x8100, 3, 10);
    let mut out = Output::default();
    pipeline(&base()).process(Timestamp::default(), port(3), &frame, &mut out);
    assert_eq!(out.sent.len(), 5);
    for (port, sent) in &out.sent {
        assert_eq!(sent[..12], frame[..12], "port {port}");
        assert!(sent.ends_with(&frame[16..]), "port {port}");
    }
}

struct Refusing(Vec<u16>);

impl lanyard_pipeline::Sink for Refusing {
    fn send(&mut self, port: lanyard_types::PortId, _: &[u8]) -> bool {
        !self.0.contains(&port.get())
    }
    fn trap(&mut self, _: lanyard_types::PortId, _: lanyard_types::TrapReason, _: &[u8]) {}
    fn fdb(&mut self, _: lanyard_pipeline::tables::fdb::FdbEvent) {}
}

#[test]
fn refused_copies() {
    for (refusing, want) in [(vec![2], ""), (vec![2, 3, 4, 5, 7], "dropped transmit_failed")] {
        let mut pipeline = pipeline(&base());
        let frame = untagged(BROADCAST, host(1));
        let verdict =
            pipeline.process(Timestamp::default(), port(1), &frame, &mut Refusing(refusing.clone()));
        assert_eq!(describe(verdict, &[]), want);
        for n in 2..=7 {
            let counters = pipeline.counters().port(port(n));
            let refused = u64::from(refusing.contains(&n));
            let member = u64::from(n != 6);
            assert_eq!((counters.tx_dropped, counters.tx.frames), (refused, member - refused), "port {n}");
        }
        assert!(pipeline.counters().port(port(1)).conserved());
    }
}

#[test]
fn count() {
    let mut pipeline = pipeline(&base());
    let long = [untagged(host(103), host(1)), vec![0; 40]].concat();
    run(&mut pipeline, 1, &long);
    run(&mut pipeline, 1, &tagged(host(102), host(1), 0x8100, 0, 20));
    run(&mut pipeline, 1, &untagged(reserved(1), host(1)));
    let counters = pipeline.counters();
    let one = counters.port(port(1));
    assert_eq!((one.rx.frames, one.rx.bytes, one.forwarded), (3, 100 + 60 + 60, 1));
    assert_eq!(one.dropped.iter().sum::<u64>(), 2);
    assert!(one.conserved());
    let three = counters.port(port(3));
    assert_eq!((three.tx.frames, three.tx.bytes), (1, 104));
    assert_eq!((counters.vlan(vlan(10)).frames, counters.vlan(vlan(10)).bytes), (1, 100));
    assert_eq!(counters.vlan(vlan(20)).frames, 0);
    pipeline.count_overrun(port(1), 5);
    let one = pipeline.counters().port(port(1));
    assert_eq!((one.rx.frames, one.rx.bytes, one.dropped[DropReason::Overrun.index()]), (8, 220, 5));
    assert!(one.conserved());
    pipeline.clear_counters(port(1));
    assert_eq!(pipeline.counters().port(port(1)).rx.frames, 0);
}

fn lines(pipeline: &lanyard_pipeline::Pipeline, at: u16, frame: &[u8]) -> Vec<String> {
    let trace = pipeline.trace(port(at), frame);
    trace.stages.iter().map(|step| format!("{}: {}", step.stage, step.detail())).collect()
}

#[test]
fn traces_read_like_this() {
    let pipeline = pipeline(&base());
    assert_eq!(
        lines(&pipeline, 1, &untagged(host(102), host(1))),
        [
            "parse: untagged, EtherType 0x0800, 60 bytes",
            "trap: not for the control plane",
            "port: eth1 is up",
            "vlan_ingress: vlan 10 from the port's PVID",
            "learn: 0200.0000.0001 is new on eth1: would be learned",
            "bridge: 0200.0000.0066 is on eth2",
            "vlan_egress: eth2: allowed",
            "replicate: eth2: untagged",
            "count: received by eth1, 1 copy sent",
        ]
    );
    let refused = tagged(host(9), host(1), 0x8100, 3, 11);
    assert_eq!(
        lines(&pipeline, 3, &refused),
        [
            "parse: tag 0x8100 vlan 11 priority 3, drop eligible, EtherType 0x0800, 60 bytes",
            "trap: not for the control plane",
            "port: eth3 is up",
            "vlan_ingress: vlan 11 from its tag; dropped: vlan_not_allowed",
        ]
    );
    assert_eq!(pipeline.trace(port(1), &[]).stages.len(), 1);
}

#[test]
fn a_trace_changes_nothing() {
    let pipeline = pipeline(&base());
    let before = format!("{pipeline:?}");
    for dst in [host(9), host(102), BROADCAST, reserved(0)] {
        drop(pipeline.trace(port(1), &untagged(dst, host(1))));
    }
    assert_eq!(format!("{pipeline:?}"), before);
}

#[test]
fn removing_a_port_or_a_vlan_removes_its_learned_addresses() {
    let mut state = base();
    let mut pipeline = pipeline(&state);
    run(&mut pipeline, 1, &untagged(BROADCAST, host(1)));
    run(&mut pipeline, 2, &untagged(BROADCAST, host(2)));
    run(&mut pipeline, 6, &untagged(BROADCAST, host(3)));
    assert_eq!(pipeline.fdb().dynamic(), 3);
    let mut events = 0;
    state.ports.remove(&port(1));
    state.fdb.remove(&(vlan(10), host(101)));
    pipeline.set_state(&state, Timestamp::default(), &mut |_| events += 1);
    assert_eq!((pipeline.fdb().dynamic(), events), (2, 1));
    assert_eq!(pipeline.fdb().get(vlan(10), host(101)), None);
    state.vlans.insert(vlan(10), VlanState { learning: false, ..VlanState::default() });
    state.vlans.remove(&vlan(20));
    pipeline.set_state(&state, Timestamp::default(), &mut |_| events += 1);
    assert_eq!((pipeline.fdb().dynamic(), events), (1, 2));
    state.fdb.insert((vlan(10), host(2)), FdbTarget::Blackhole);
    pipeline.set_state(&state, Timestamp::default(), &mut |_| events += 1);
    assert_eq!((pipeline.fdb().dynamic(), events), (0, 3));
}
