//! The machines of IEEE 802.1AX-2014, 6.4, in simulated time: two systems on wires, or one system and simulated partners.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use lanyard_lacp::pdu::{self, Lacpdu, Marker, Pdu, PortInfo, State};
use lanyard_lacp::{
    Action, ChannelConfig, ChurnState, Config, Event, Lacp, MemberState, Mode, MuxState, PeriodicState,
    PortConfig, RxState,
};
use lanyard_types::{MacAddr, PortId, PortSet};
use std::collections::{BTreeMap, BTreeSet};

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn p(id: u16) -> PortId {
    PortId::new(id).unwrap()
}

fn set(ports: &[u16]) -> PortSet {
    ports.iter().map(|id| p(*id)).collect()
}

/// A configuration with `ports` in channel 1.
fn config(system: MacAddr, ports: &[u16], mode: Mode) -> Config {
    let port = |id: &u16| (p(*id), PortConfig { mode, mac: system, ..PortConfig::default() });
    Config {
        system,
        system_priority: 32768,
        ports: ports.iter().map(port).collect(),
        channels: BTreeMap::new(),
    }
}

/// Two systems: port N of one is wired to port N of the other.
struct Wires {
    ends: [Lacp; 2],
    now: u64,
    /// Wires that lose every frame although their links are up.
    silent: BTreeSet<u16>,
    events: [Vec<Event>; 2],
    sent: [u64; 2],
}

impl Wires {
    fn new(left: Config, right: Config) -> Self {
        let ports: BTreeSet<PortId> = left.ports.keys().chain(right.ports.keys()).copied().collect();
        let mut wires = Self {
            ends: [Lacp::new(), Lacp::new()],
            now: 1000,
            silent: BTreeSet::new(),
            events: Default::default(),
            sent: [0; 2],
        };
        wires.ends[0].configure(1000, left);
        wires.ends[1].configure(1000, right);
        for port in ports {
            wires.ends.iter_mut().for_each(|end| end.handle_link(1000, port, true));
        }
        wires.carry();
        wires
    }
    /// Carries frames until none is left.
    fn carry(&mut self) {
        loop {
            let mut frames = Vec::new();
            for (at, end) in self.ends.iter_mut().enumerate() {
                while let Some(action) = end.poll_action() {
                    match action {
                        Action::Send(port, frame) => frames.push((at, port, frame)),
                        Action::Event(event) => self.events[at].push(event),
                        Action::Channel(members) => {
                            assert!(
                                members.distributing.iter().all(|port| members.collecting.contains(port))
                            );
                        }
                    }
                }
            }
            if frames.is_empty() {
                return;
            }
            for (at, port, frame) in frames {
                self.sent[at] += 1;
                if !self.silent.contains(&(port.index() as u16)) {
                    self.ends[1 - at].handle_frame(self.now, port, &frame).unwrap();
                }
            }
        }
    }
    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.ends.iter().filter_map(Lacp::next_timeout).min().filter(|at| *at <= end) {
            assert!(at >= self.now, "a deadline in the past makes the caller spin");
            self.now = at;
            for lacp in &mut self.ends {
                lacp.handle_timer(at);
                assert!(lacp.next_timeout().is_none_or(|next| next > at), "a deadline stays due");
            }
            self.carry();
        }
        self.now = end;
    }
    fn members(&self) -> [PortSet; 2] {
        [self.ends[0].members(1), self.ends[1].members(1)]
    }
    fn link(&mut self, port: u16, up: bool) {
        self.ends.iter_mut().for_each(|end| end.handle_link(self.now, p(port), up));
        self.carry();
    }
    fn member(&self, at: usize, port: u16) -> MemberState {
        self.ends[at].port(p(port)).unwrap().member
    }
}

fn both(mode_a: Mode, mode_b: Mode) -> Wires {
    Wires::new(config(A, &[1, 2, 3, 4], mode_a), config(B, &[1, 2, 3, 4], mode_b))
}

/// Two systems agree after Aggregate_Wait_Time, and both report each port as bundled once.
#[test]
fn two_systems_agree() {
    for (a, b) in [(Mode::Active, Mode::Active), (Mode::Active, Mode::Passive), (Mode::Passive, Mode::Active)]
    {
        let mut wires = both(a, b);
        wires.run(1900);
        assert_eq!(wires.members(), [set(&[]), set(&[])], "the ports wait for each other");
        // Three PDUs of each side follow. If another one was due in the same second, the limit delays the last one by a second.
        wires.run(1200);
        assert_eq!(wires.members(), [set(&[1, 2, 3, 4]), set(&[1, 2, 3, 4])], "{a:?} {b:?}");
        for at in 0..2 {
            let port = wires.ends[at].port(p(2)).unwrap();
            assert_eq!(
                (port.rx, port.mux, port.member),
                (RxState::Current, MuxState::Distributing, MemberState::Bundled)
            );
            assert_eq!(port.churn, (ChurnState::None, ChurnState::None));
            let bundled =
                wires.events[at].iter().filter(|event| matches!(event, Event::Bundled { .. })).count();
            assert_eq!(bundled, 4);
            assert!(wires.events[at].contains(&Event::Channel { channel: 1, up: true }));
        }
    }
}

/// 6.4.13: two passive ports are silent, and no channel comes up.
#[test]
fn two_passive_systems_are_silent() {
    let mut wires = both(Mode::Passive, Mode::Passive);
    wires.run(200_000);
    assert_eq!((wires.sent, wires.members()), ([0, 0], [set(&[]), set(&[])]));
    assert_eq!(wires.member(0, 1), MemberState::Individual);
}

/// `on`: no protocol, every port with a link is a member at once.
#[test]
fn static_channels() {
    let mut wires = both(Mode::On, Mode::On);
    assert_eq!(wires.members(), [set(&[1, 2, 3, 4]), set(&[1, 2, 3, 4])]);
    wires.link(3, false);
    assert_eq!(wires.members(), [set(&[1, 2, 4]), set(&[1, 2, 4])]);
    wires.run(200_000);
    assert_eq!(wires.sent, [0, 0]);
}

/// LACP against a static channel: the partner sends nothing, so no port is bundled on the side with LACP.
#[test]
fn lacp_against_a_static_channel() {
    let mut wires = both(Mode::Active, Mode::On);
    wires.run(60_000);
    assert_eq!(wires.members()[0], set(&[]));
    assert_eq!(wires.member(0, 1), MemberState::Individual);
    assert_eq!(wires.ends[0].port(p(1)).unwrap().rx, RxState::Defaulted);
}

/// A port whose link goes down leaves the channel at once, and joins again after the wait.
#[test]
fn links_come_and_go() {
    let mut wires = both(Mode::Active, Mode::Active);
    wires.run(3000);
    wires.link(2, false);
    assert_eq!(wires.members(), [set(&[1, 3, 4]), set(&[1, 3, 4])]);
    assert_eq!(wires.member(0, 2), MemberState::Down);
    assert_eq!(wires.ends[0].port(p(2)).unwrap().counters.lost, 1);
    wires.link(2, true);
    wires.run(2100);
    assert_eq!(wires.members(), [set(&[1, 2, 3, 4]), set(&[1, 2, 3, 4])]);
}

/// A partner that falls silent: Short_Timeout (3 s) and Long_Timeout (90 s), as the port has asked for.
#[test]
fn a_silent_partner_expires() {
    for (fast, timeout) in [(true, 3000), (false, 90_000)] {
        let mut left = config(A, &[1, 2], Mode::Active);
        left.ports.values_mut().for_each(|port| port.fast = fast);
        let mut wires = Wires::new(left, config(B, &[1, 2], Mode::Active));
        wires.run(100_000);
        // The partner sends as often as this side has asked for.
        let periodic = if fast { PeriodicState::Fast } else { PeriodicState::Slow };
        assert_eq!(wires.ends[1].port(p(1)).unwrap().periodic, periodic);
        // The timeout runs from the partner's last frame, which arrived at most one interval ago.
        wires.silent.insert(1);
        wires.run(timeout - if fast { 1000 } else { 30_000 } - 1);
        assert_eq!(wires.ends[0].members(1), set(&[1, 2]), "fast {fast}");
        wires.run(if fast { 1001 } else { 30_001 });
        assert_eq!(wires.ends[0].members(1), set(&[2]), "fast {fast}");
        assert_ne!(wires.ends[0].port(p(1)).unwrap().rx, RxState::Current);
        wires.run(3000);
        assert_eq!(wires.ends[0].port(p(1)).unwrap().rx, RxState::Defaulted);
        wires.silent.clear();
        wires.run(40_000);
        assert_eq!(wires.members(), [set(&[1, 2]), set(&[1, 2])], "the partner comes back");
    }
}

/// 6.7.1: of more ports than `max-bundle` both systems choose the same, by the better system's priorities; a member that
/// fails is replaced.
#[test]
fn hot_standby() {
    let (mut left, mut right) =
        (config(A, &[1, 2, 3, 4], Mode::Active), config(B, &[1, 2, 3, 4], Mode::Active));
    for config in [&mut left, &mut right] {
        config.channels.insert(1, ChannelConfig { max_bundle: 2, ..ChannelConfig::default() });
    }
    // The better system (the lower address) prefers 4 and 3, the other one 1 and 2.
    for (port, priority) in [(4, 100), (3, 200)] {
        left.ports.get_mut(&p(port)).unwrap().priority = priority;
    }
    right.ports.get_mut(&p(1)).unwrap().priority = 1;
    let mut wires = Wires::new(left, right);
    wires.run(5000);
    assert_eq!(wires.members(), [set(&[3, 4]), set(&[3, 4])]);
    assert_eq!([wires.member(0, 1), wires.member(1, 2)], [MemberState::HotStandby, MemberState::HotStandby]);
    wires.link(4, false);
    wires.run(100);
    assert_eq!(wires.members(), [set(&[1, 3]), set(&[1, 3])], "standby ports have waited already");
    wires.link(4, true);
    wires.run(5000);
    assert_eq!(wires.members(), [set(&[3, 4]), set(&[3, 4])]);
}

/// `port-channel min-links`: with fewer members the channel is down, and this is reported.
#[test]
fn min_links() {
    let mut left = config(A, &[1, 2], Mode::Active);
    left.channels.insert(1, ChannelConfig { min_links: 2, ..ChannelConfig::default() });
    let mut wires = Wires::new(left, config(B, &[1, 2], Mode::Active));
    wires.run(3000);
    assert_eq!(wires.members(), [set(&[1, 2]), set(&[1, 2])]);
    wires.link(1, false);
    assert_eq!(wires.members(), [set(&[]), set(&[2])]);
    assert_eq!(wires.events[0].last(), Some(&Event::Channel { channel: 1, up: false }));
}

/// Ports of one channel that lead to two systems: one partner is the channel's, the others' ports are suspended.
#[test]
fn two_partners_do_not_share_a_channel() {
    let mut lacp = Lacp::new();
    lacp.configure(0, config(A, &[1, 2, 3], Mode::Active));
    let mut partners = Partners::new(&[(1, B), (2, MacAddr([2, 0, 0, 0, 0, 7])), (3, B)]);
    partners.run(&mut lacp, 0, 5000);
    assert_eq!(lacp.members(1), set(&[1, 3]));
    assert_eq!(lacp.port(p(2)).unwrap().member, MemberState::Suspended);
    // The partner at port 2 becomes the same system: the port is taken.
    partners.systems.insert(p(2), B);
    partners.run(&mut lacp, 5000, 10_000);
    assert_eq!(lacp.members(1), set(&[1, 2, 3]));
}

/// A cable between two ports of one system is not aggregated.
#[test]
fn a_loop_is_not_aggregated() {
    let mut lacp = Lacp::new();
    lacp.configure(0, config(A, &[1, 2], Mode::Active));
    lacp.handle_link(0, p(1), true);
    lacp.handle_link(0, p(2), true);
    for now in (0..10_000).step_by(500) {
        lacp.handle_timer(now);
        let frames: Vec<_> = std::iter::from_fn(|| lacp.poll_action()).collect();
        for action in frames {
            if let Action::Send(port, frame) = action {
                let other = if port == p(1) { p(2) } else { p(1) };
                lacp.handle_frame(now, other, &frame).unwrap();
            }
        }
    }
    assert_eq!(lacp.members(1), set(&[]));
    assert_eq!(lacp.port(p(1)).unwrap().member, MemberState::Suspended);
}

/// 6.4.16: at most three PDUs in a second, however much changes.
#[test]
fn transmission_is_limited() {
    let mut wires = both(Mode::Active, Mode::Active);
    wires.run(5000);
    let before = wires.ends[0].port(p(1)).unwrap().counters.sent;
    for priority in 0..50 {
        let mut next = wires.ends[0].config().clone();
        next.system_priority = priority;
        wires.ends[0].configure(wires.now, next);
        wires.carry();
    }
    assert!(wires.ends[0].port(p(1)).unwrap().counters.sent - before <= 3);
    wires.run(10_000);
    assert_eq!(wires.members(), [set(&[1, 2, 3, 4]), set(&[1, 2, 3, 4])]);
}

/// A change of the key takes the port out of its channel and into the new one.
#[test]
fn a_port_changes_its_channel() {
    let mut wires = both(Mode::Active, Mode::Active);
    wires.run(3000);
    for at in 0..2 {
        let mut next = wires.ends[at].config().clone();
        next.ports.get_mut(&p(4)).unwrap().channel = 2;
        wires.ends[at].configure(wires.now, next);
        wires.carry();
    }
    assert_eq!(wires.ends[0].members(1), set(&[1, 2, 3]));
    wires.run(5000);
    assert_eq!([wires.ends[0].members(2), wires.ends[1].members(2)], [set(&[4]), set(&[4])]);
    let mut none = wires.ends[0].config().clone();
    none.ports.clear();
    wires.ends[0].configure(wires.now, none);
    assert_eq!((wires.ends[0].members(1), wires.ends[0].members(2)), (set(&[]), set(&[])));
}

/// 6.4.17: a partner that never gets in sync is reported after a minute, once.
#[test]
fn churn_is_detected() {
    let mut lacp = Lacp::new();
    lacp.configure(0, config(A, &[1], Mode::Active));
    let mut partners = Partners::new(&[(1, B)]);
    partners.in_sync = false;
    partners.run(&mut lacp, 0, 59_000);
    assert!(partners.events.iter().all(|event| !matches!(event, Event::Churn { .. })));
    partners.run(&mut lacp, 59_000, 200_000);
    let churns = partners.events.iter().filter(|event| matches!(event, Event::Churn { .. })).count();
    assert_eq!((churns, lacp.port(p(1)).unwrap().churn.1), (1, ChurnState::Churn));
    assert_eq!(lacp.members(1), set(&[]));
    partners.in_sync = true;
    partners.run(&mut lacp, 200_000, 210_000);
    assert_eq!((lacp.members(1), lacp.port(p(1)).unwrap().churn.1), (set(&[1]), ChurnState::None));
}

/// A partner that is in sync and does not collect yet: this side collects and does not distribute (independent control).
#[test]
fn distribution_starts_only_when_the_partner_collects() {
    let mut lacp = Lacp::new();
    lacp.configure(0, config(A, &[1], Mode::Active));
    let mut partners = Partners::new(&[(1, B)]);
    partners.collecting = false;
    partners.run(&mut lacp, 0, 5000);
    assert_eq!(lacp.port(p(1)).unwrap().mux, MuxState::Collecting);
    assert_eq!(lacp.members(1), set(&[]));
    partners.collecting = true;
    partners.run(&mut lacp, 5000, 6000);
    assert_eq!(lacp.members(1), set(&[1]));
}

/// 6.5.4: a marker is answered with the same content, a response is not; answers are limited.
#[test]
fn markers_are_answered() {
    let mut lacp = Lacp::new();
    lacp.configure(0, config(A, &[1], Mode::Active));
    lacp.handle_link(0, p(1), true);
    while lacp.poll_action().is_some() {}
    let now = 10_000;
    let marker = Marker { response: false, port: 7, system: B, transaction: 0x1234_5678 };
    lacp.handle_frame(now, p(1), &pdu::encode_marker(B, &marker)).unwrap();
    let Some(Action::Send(port, frame)) = lacp.poll_action() else { panic!("no answer") };
    let answer = Pdu::Marker(Marker { response: true, ..marker });
    assert_eq!((port, pdu::decode(&frame)), (p(1), Ok((A, answer))));
    lacp.handle_frame(now, p(1), &pdu::encode_marker(B, &Marker { response: true, ..marker })).unwrap();
    assert_eq!(lacp.poll_action(), None);
    for _ in 0..100 {
        lacp.handle_frame(now, p(1), &pdu::encode_marker(B, &marker)).unwrap();
    }
    let counters = lacp.port(p(1)).unwrap().counters;
    assert_eq!((counters.markers, counters.marker_responses), (102, 3));
}

/// Refused frames are counted by reason and change nothing.
#[test]
fn refused_frames_change_nothing() {
    let mut wires = both(Mode::Active, Mode::Active);
    wires.run(3000);
    let before = wires.ends[0].port(p(1)).unwrap();
    let good = pdu::encode(B, &Lacpdu { actor: before.partner, partner: before.actor, max_delay: 0 });
    for (at, value) in [(0, 3), (6, 1), (12, 0), (14, 10), (15, 0), (16, 9), (36, 9), (56, 9)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(wires.ends[0].handle_frame(wires.now, p(1), &bad).is_err(), "{at}");
    }
    assert!(wires.ends[0].handle_frame(wires.now, p(1), &good[..60]).is_err());
    let after = wires.ends[0].port(p(1)).unwrap();
    assert_eq!((after.partner, after.counters.received), (before.partner, before.counters.received));
    assert_eq!(after.counters.errors.iter().sum::<u64>(), 9);
    assert_eq!(wires.ends[0].poll_action(), None);
}

#[test]
fn a_pdu_of_another_maker() {
    let mut bytes = vec![0x01, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x88, 0x09, 1, 1];
    bytes.extend([1, 20, 0x80, 0, 2, 0, 0, 0, 0, 9, 0, 13, 0, 0xff, 0, 2, 0x3d, 0, 0, 0]);
    bytes.extend([2, 20, 0x80, 0, 2, 0, 0, 0, 0, 1, 0, 1, 0x80, 0, 0, 1, 0x3f, 0, 0, 0]);
    bytes.extend([3, 16, 0, 50]);
    bytes.resize(124, 0);
    let Ok((from, Pdu::Lacp(pdu))) = pdu::decode(&bytes) else { panic!("refused") };
    assert_eq!((from, pdu.actor.system, pdu.actor.key, pdu.actor.port_priority), (B, B, 13, 255));
    assert_eq!(
        (pdu.actor.state.letters(), pdu.partner.state.letters()),
        ("A-GSCD--".into(), "ATGSCD--".into())
    );
    assert_eq!((pdu.partner.system, pdu.max_delay), (A, 50));
    assert_eq!(pdu::encode(B, &pdu), bytes);
}

/// Simulated partners: each sends an LACPDU every 250 ms, with the port's present information as that of its partner.
struct Partners {
    systems: BTreeMap<PortId, MacAddr>,
    in_sync: bool,
    collecting: bool,
    events: Vec<Event>,
}

impl Partners {
    fn new(systems: &[(u16, MacAddr)]) -> Self {
        let systems = systems.iter().map(|(port, system)| (p(*port), *system)).collect();
        Self { systems, in_sync: true, collecting: true, events: Vec::new() }
    }
    fn run(&mut self, lacp: &mut Lacp, from: u64, to: u64) {
        for (port, _) in self.systems.clone() {
            lacp.handle_link(from, port, true);
        }
        for now in (from..to).step_by(250) {
            lacp.handle_timer(now);
            for (port, system) in &self.systems {
                let of = lacp.port(*port).unwrap();
                let mut state = State(State::ACTIVITY | State::AGGREGATION);
                state.set(State::SYNCHRONIZATION, self.in_sync);
                state.set(State::COLLECTING | State::DISTRIBUTING, self.in_sync && self.collecting);
                let number = port.index() as u16;
                let actor = PortInfo {
                    system_priority: 40_000,
                    system: *system,
                    key: 5,
                    port_priority: 1,
                    port: number,
                    state,
                };
                let pdu = Lacpdu { actor, partner: of.actor, max_delay: 0 };
                lacp.handle_frame(now, *port, &pdu::encode(*system, &pdu)).unwrap();
            }
            while let Some(action) = lacp.poll_action() {
                if let Action::Event(event) = action {
                    self.events.push(event);
                }
            }
        }
    }
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            lanyard_lacp::fuzz(&data);
        }

        /// After any sequence of link changes and silent wires, both sides have the same members once every wire works.
        #[test]
        fn both_sides_agree_in_the_end(
            steps in proptest::collection::vec((1u16..5, 0u8..3, 0u64..4000), 0..40),
        ) {
            let mut wires = both(Mode::Active, Mode::Passive);
            for (port, what, ms) in steps {
                match what {
                    0 => wires.link(port, false),
                    1 => wires.link(port, true),
                    _ => {
                        if !wires.silent.remove(&port) {
                            wires.silent.insert(port);
                        }
                    }
                }
                wires.run(ms);
            }
            wires.silent.clear();
            for port in 1..5 {
                wires.link(port, true);
            }
            wires.run(200_000);
            prop_assert_eq!(wires.members(), [set(&[1, 2, 3, 4]), set(&[1, 2, 3, 4])]);
        }
    }
}

/// If a system continues from its snapshot, neither it nor its partner loses a member. Without the snapshot the partner loses
/// its members and has to begin anew.
#[test]
fn a_restart_with_the_snapshot_is_not_noticed() {
    for kept in [true, false] {
        let (left, right) = (config(A, &[1, 2], Mode::Active), config(B, &[1, 2], Mode::Passive));
        let mut wires = Wires::new(left.clone(), right);
        wires.run(10_000);
        assert_eq!(wires.ends[0].members(1), set(&[1, 2]));
        let snapshot = wires.ends[0].snapshot();
        let events = wires.events[1].len();
        let mut next = Lacp::new();
        if kept {
            next.resume(wires.now, left, &snapshot);
        } else {
            next.configure(wires.now, left);
        }
        for id in [1, 2] {
            next.handle_link(wires.now, p(id), true);
        }
        wires.ends[0] = next;
        if kept {
            assert_eq!(wires.ends[0].members(1), set(&[1, 2]), "at once");
        }
        wires.run(10_000);
        assert_eq!(wires.ends[0].members(1), set(&[1, 2]));
        assert_eq!(wires.events[1].len() == events, kept, "{:?}", &wires.events[1][events..]);
    }
}

/// A port whose partner has gone while the system was away expires as without a restart; a port with other settings begins
/// anew, and so does one without a link.
#[test]
fn a_snapshot_that_does_not_hold_ends() {
    let fast = |mut config: Config| {
        config.ports.values_mut().for_each(|port| port.fast = true);
        config
    };
    let left = fast(config(A, &[1, 2, 3], Mode::Active));
    let mut wires = Wires::new(left.clone(), config(B, &[1, 2, 3], Mode::Active));
    wires.run(10_000);
    let snapshot = wires.ends[0].snapshot();
    let (now, mut changed) = (wires.now, left);
    changed.ports.get_mut(&p(3)).unwrap().priority = 7;
    let mut next = Lacp::new();
    next.resume(now, changed, &snapshot);
    assert_eq!(next.members(1), set(&[1, 2]));
    next.handle_link(now, p(2), false);
    assert_eq!(next.members(1), set(&[1]));
    next.handle_timer(now + 2999);
    assert_eq!(next.members(1), set(&[1]));
    next.handle_timer(now + 3000);
    assert_eq!(next.members(1), set(&[]), "the partner is silent");
}
