//! The state machines of IEEE 802.1AB-2016, 9.2, in simulated time: each test is a list of steps with their expected results.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use lanyard_lldp::pdu::{self, Identifier, Lldpdu, Med, NetworkPolicy};
use lanyard_lldp::{
    Action, AdminStatus, Cdp, Config, Discovery, Event, Lldp, MAX_PER_PORT, PortConfig, Protocol, RxState,
    TxState, cdp,
};
use lanyard_types::{MacAddr, PortId, VlanId};

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const FROM: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn p(id: u16) -> PortId {
    PortId::new(id).unwrap()
}

fn port(name: &str) -> PortConfig {
    PortConfig {
        name: name.into(),
        cdp: true,
        mac: OWN,
        switchport: true,
        pvid: VlanId::new(1),
        full_duplex: Some(true),
        max_frame: 1518,
        ..PortConfig::default()
    }
}

/// Discovery with a clock: `eth1` and `eth2`, both up.
struct Sim {
    discovery: Discovery,
    config: Config,
    now: u64,
}

impl Sim {
    fn new(lldp: Option<Lldp>, cdp: Option<Cdp>) -> Self {
        let mut config = Config { lldp, cdp, ..Config::default() };
        config.system.chassis = OWN;
        config.system.name = "sw1".into();
        config.ports = [(p(1), port("eth1")), (p(2), port("eth2"))].into();
        let mut sim = Self { discovery: Discovery::new(), config, now: 1000 };
        sim.configure();
        sim.discovery.handle_link(sim.now, p(1), true);
        sim.discovery.handle_link(sim.now, p(2), true);
        sim
    }
    fn lldp() -> Self {
        Self::new(Some(Lldp::default()), None)
    }
    fn configure(&mut self) {
        self.discovery.configure(self.now, self.config.clone());
    }
    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.discovery.poll_action()).collect()
    }
    /// The TTLs of the frames that a port has sent since the last call, in seconds.
    fn sent(&mut self, id: PortId) -> Vec<u16> {
        let frames = self.actions().into_iter().filter_map(|action| match action {
            Action::Send(port, frame) if port == id => Some(frame),
            _ => None,
        });
        frames
            .map(|frame| match pdu::decode(&frame) {
                Ok((_, pdu)) => pdu.ttl_s,
                Err(_) => cdp::decode(&frame).unwrap().1.ttl_s.into(),
            })
            .collect()
    }
    /// Runs for `ms` milliseconds. Returns each frame that port 1 sends: milliseconds since the begin, and its TTL in seconds.
    fn run(&mut self, ms: u64) -> Vec<(u64, u16)> {
        let (begin, end) = (self.now, self.now + ms);
        let mut noted: Vec<(u64, u16)> = self.sent(p(1)).into_iter().map(|ttl| (0, ttl)).collect();
        while let Some(at) = self.discovery.next_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "a deadline in the past would make the caller spin");
            self.now = at;
            self.discovery.handle_timer(at);
            assert!(self.discovery.next_timeout().is_none_or(|next| next > at), "a deadline that stays due");
            let at = self.now - begin;
            noted.extend(self.sent(p(1)).into_iter().map(|ttl| (at, ttl)));
        }
        self.now = end;
        noted
    }
    fn receive(&mut self, id: PortId, pdu: &Lldpdu) {
        self.discovery.handle_frame(self.now, id, &pdu::encode(FROM, pdu)).unwrap();
    }
    fn events(&mut self) -> Vec<Event> {
        let events = self.actions().into_iter();
        events
            .filter_map(|action| if let Action::Event(event) = action { Some(event) } else { None })
            .collect()
    }
    fn known(&self) -> usize {
        self.discovery.neighbours().count()
    }
}

fn neighbour(name: &str, ttl_s: u16) -> Lldpdu {
    Lldpdu::new(Identifier::chassis_mac(FROM), Identifier::port_name(name), ttl_s)
}

/// TX_LLDP_INITIALIZE, TX_IDLE, TX_TIMER_EXPIRES, SIGNAL_TX: one frame at once, then one each msgTxInterval.
#[test]
fn frames_leave_at_the_interval() {
    let mut sim = Sim::lldp();
    assert_eq!(sim.discovery.states(p(1)), Some((TxState::Idle, RxState::WaitForFrame)));
    assert_eq!(sim.run(95_000), [(0, 120), (30_000, 120), (60_000, 120), (90_000, 120)]);
}

/// Without a link nothing leaves; a link that comes up begins at once.
#[test]
fn a_port_without_a_link_waits() {
    let mut sim = Sim::lldp();
    sim.run(10_000);
    sim.discovery.handle_link(sim.now, p(1), false);
    assert_eq!(sim.discovery.states(p(1)), Some((TxState::Initialize, RxState::WaitPortOperational)));
    assert_eq!(sim.run(100_000), []);
    sim.discovery.handle_link(sim.now, p(1), true);
    assert_eq!(sim.run(29_000), [(0, 120)]);
}

/// TX_FAST_START: a new neighbour causes a frame at once and three more, a second apart; a known one does not.
#[test]
fn a_new_neighbour_causes_fast_transmission() {
    let mut sim = Sim::lldp();
    sim.run(10_000);
    sim.receive(p(1), &neighbour("g1", 120));
    assert_eq!(sim.run(20_000), [(0, 120), (1000, 120), (2000, 120), (3000, 120)]);
    sim.receive(p(1), &neighbour("g1", 120));
    assert_eq!(sim.run(12_000), [], "the next one is 30 s after the last");
    assert_eq!(sim.run(2000), [(1000, 120)]);
}

/// txCredit: changes in a burst cost at most txCreditMax frames at once, then one a second.
#[test]
fn a_burst_of_changes_is_paced() {
    let mut sim = Sim::lldp();
    sim.run(10_000);
    for change in 0..20 {
        sim.config.system.name = format!("sw{change}");
        sim.configure();
    }
    let sent = sim.run(10_000);
    assert_eq!(sent, [(0, 120), (0, 120), (0, 120), (0, 120), (0, 120), (1000, 120)]);
    let frames = sim.discovery.counters(p(1), Protocol::Lldp).unwrap().sent;
    assert_eq!(frames, 7);
}

/// TX_SHUTDOWN_FRAME: `no lldp transmit` withdraws, and reinitDelay passes before the port sends again.
#[test]
fn a_port_that_ends_withdraws_and_waits_before_it_begins_anew() {
    let mut sim = Sim::lldp();
    sim.run(5000);
    sim.config.ports.get_mut(&p(1)).unwrap().lldp = AdminStatus::RxOnly;
    sim.configure();
    assert_eq!(sim.sent(p(1)), [0]);
    assert_eq!(sim.discovery.states(p(1)), Some((TxState::Shutdown, RxState::WaitForFrame)));
    sim.config.ports.get_mut(&p(1)).unwrap().lldp = AdminStatus::TxRx;
    sim.configure();
    assert_eq!(sim.run(5000), [(2000, 120)]);
}

/// The four admin modes: which side sends, which receives.
#[test]
fn admin_modes() {
    for (transmit, receive) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut sim = Sim::lldp();
        sim.run(1000);
        sim.config.ports.get_mut(&p(1)).unwrap().lldp = AdminStatus::new(transmit, receive);
        sim.configure();
        sim.actions();
        sim.receive(p(1), &neighbour("g1", 120));
        assert_eq!(sim.known(), usize::from(receive), "{transmit} {receive}");
        assert_eq!(sim.run(31_000).is_empty(), !transmit, "{transmit} {receive}");
        let states = sim.discovery.states(p(1)).unwrap();
        assert_eq!(states.1 == RxState::WaitForFrame, receive);
    }
}

/// RX_FRAME, UPDATE_INFO, DELETE_INFO: a neighbour appears, changes, and withdraws itself.
#[test]
fn a_neighbour_comes_changes_and_goes() {
    let mut sim = Sim::lldp();
    sim.actions();
    let mut pdu = neighbour("g1", 120);
    sim.receive(p(1), &pdu);
    assert!(matches!(sim.events().as_slice(), [Event::Added(known)] if known.port == p(1)));
    sim.receive(p(1), &pdu);
    assert_eq!(sim.events(), [], "rxChanges is false");
    pdu.system_name = Some("sw2".into());
    sim.receive(p(1), &pdu);
    assert!(matches!(sim.events().as_slice(), [Event::Changed(_)]));
    sim.receive(p(2), &pdu);
    assert_eq!(sim.known(), 2, "one neighbour at two ports is known at each");
    sim.actions();
    pdu.ttl_s = 0;
    sim.receive(p(1), &pdu);
    assert!(matches!(sim.events().as_slice(), [Event::Removed { aged: false, .. }]));
    assert_eq!(sim.known(), 1);
    sim.receive(p(1), &pdu);
    assert_eq!(sim.events(), [], "a stranger's withdrawal");
}

/// rxInfoAge: information that is not repeated ends with its time to live, also at a port without a link.
#[test]
fn neighbours_age() {
    let mut sim = Sim::lldp();
    sim.receive(p(1), &neighbour("g1", 10));
    sim.receive(p(2), &neighbour("g2", 20));
    sim.discovery.handle_link(sim.now, p(1), false);
    sim.run(9_999);
    assert_eq!(sim.known(), 2);
    sim.run(1);
    assert_eq!(sim.known(), 1);
    assert_eq!(sim.discovery.counters(p(1), Protocol::Lldp).unwrap().aged_out, 1);
    sim.receive(p(2), &neighbour("g2", 20));
    sim.run(19_000);
    assert_eq!(sim.known(), 1, "a repeated frame begins the time anew");
    sim.run(1000);
    assert_eq!(sim.known(), 0);
}

/// tooManyNeighbors: the table is bounded, the loss is counted and reported once, known neighbours stay.
#[test]
fn a_flood_of_neighbours_is_bounded() {
    let mut sim = Sim::lldp();
    for number in 0..1000 {
        sim.receive(p(1), &neighbour(&format!("g{number}"), 120));
    }
    assert_eq!(sim.known(), MAX_PER_PORT);
    let full = sim.events().into_iter().filter(|event| matches!(event, Event::TooMany { .. })).count();
    assert_eq!(full, 1);
    assert_eq!(sim.discovery.counters(p(1), Protocol::Lldp).unwrap().too_many, 1000 - MAX_PER_PORT as u64);
    sim.receive(p(1), &neighbour("g0", 60));
    sim.receive(p(2), &neighbour("other", 60));
    assert_eq!(sim.known(), MAX_PER_PORT + 1);
}

/// A refused frame is counted by its reason and changes nothing.
#[test]
fn refused_frames_change_nothing() {
    let mut sim = Sim::lldp();
    sim.receive(p(1), &neighbour("g1", 120));
    sim.run(5000);
    let mut bad = pdu::encode(FROM, &neighbour("g1", 0));
    bad[14] = 0;
    assert!(sim.discovery.handle_frame(sim.now, p(1), &bad).is_err());
    assert_eq!((sim.events(), sim.known()), (vec![], 1));
    let counters = sim.discovery.counters(p(1), Protocol::Lldp).unwrap();
    assert_eq!((counters.received, counters.in_error(), counters.discarded), (2, 1, 1));
}

/// TIA-1057, 11.2.1: LLDP-MED is sent where an endpoint was heard, and only there.
#[test]
fn med_is_sent_to_endpoints() {
    let mut sim = Sim::lldp();
    let last = |sim: &mut Sim, id: PortId| {
        sim.now += 31_000;
        sim.discovery.handle_timer(sim.now);
        let frames = sim.actions().into_iter().filter_map(|action| match action {
            Action::Send(port, frame) if port == id => pdu::decode(&frame).ok(),
            _ => None,
        });
        frames.collect::<Vec<_>>().pop().unwrap().1
    };
    assert_eq!(last(&mut sim, p(1)).med, None);
    let mut phone = neighbour("phone", 3600);
    phone.med = Some(Med { capabilities: 1, device_type: 3, ..Med::default() });
    sim.receive(p(1), &phone);
    let med = last(&mut sim, p(1)).med.unwrap();
    assert_eq!((med.device_type, med.policies), (4, vec![]));
    assert_eq!(last(&mut sim, p(2)).med, None);
    // Voice in VLAN 30 (TIA-1057, 10.2.3).
    let voice =
        NetworkPolicy { application: 1, unknown: false, tagged: true, vlan: 30, priority: 5, dscp: 46 };
    sim.config.ports.get_mut(&p(1)).unwrap().voice = Some(voice);
    sim.configure();
    assert_eq!(last(&mut sim, p(1)).med.unwrap().policies, [voice]);
}

/// `no lldp run` withdraws the information of all ports and removes all neighbours; `shutdown` does the same when the switch
/// ends.
#[test]
fn the_end_of_lldp() {
    for whole in [false, true] {
        let mut sim = Sim::lldp();
        sim.receive(p(1), &neighbour("g1", 120));
        sim.run(5000);
        if whole {
            sim.discovery.shutdown(sim.now);
        } else {
            sim.config.lldp = None;
            sim.configure();
        }
        let actions = sim.actions();
        let withdrawn = actions.iter().filter(
            |action| matches!(action, Action::Send(_, frame) if pdu::decode(frame).unwrap().1.ttl_s == 0),
        );
        assert_eq!(withdrawn.count(), 2, "{actions:?}");
        assert_eq!(sim.known(), 0);
        assert_eq!(sim.run(100_000), []);
    }
}

/// CDP: three frames a second apart, then one each timer; neighbours age; withdrawal by a TTL of 0.
#[test]
fn cdp_frames_leave_at_the_timer() {
    let mut sim = Sim::new(None, Some(Cdp::default()));
    assert_eq!(sim.run(130_000), [(0, 180), (1000, 180), (2000, 180), (62_000, 180), (122_000, 180)]);
    sim.config.cdp = Some(Cdp { timer_s: 5, holdtime_s: 20 });
    sim.configure();
    assert_eq!(sim.run(11_000), [(5000, 20), (10_000, 20)], "a shorter timer takes effect at once");
    sim.config.ports.get_mut(&p(1)).unwrap().cdp = false;
    sim.configure();
    assert_eq!(sim.run(100_000), [(0, 0)]);
}

#[test]
fn a_cdp_neighbour_with_differing_vlan_or_duplex_is_reported_once() {
    let mut sim = Sim::new(None, Some(Cdp::default()));
    sim.actions();
    let mut pdu = cdp::Cdpdu {
        version: 2,
        ttl_s: 20,
        device_id: "sw2".into(),
        port_id: "Gi0/1".into(),
        native_vlan: Some(1),
        full_duplex: Some(true),
        ..cdp::Cdpdu::default()
    };
    sim.discovery.handle_frame(sim.now, p(1), &cdp::encode(FROM, &pdu)).unwrap();
    assert!(matches!(sim.events().as_slice(), [Event::Added(_)]));
    (pdu.native_vlan, pdu.full_duplex) = (Some(20), Some(false));
    for _ in 0..3 {
        sim.discovery.handle_frame(sim.now, p(1), &cdp::encode(FROM, &pdu)).unwrap();
    }
    let neighbour = ("sw2".to_owned(), "Gi0/1".to_owned());
    let events = sim.events();
    assert_eq!(
        events[1..],
        [
            Event::NativeVlanMismatch { port: p(1), own: 1, theirs: 20, neighbour: neighbour.clone() },
            Event::DuplexMismatch { port: p(1), own_full: true, neighbour },
        ],
        "each is reported once"
    );
    sim.run(20_000);
    assert_eq!(sim.known(), 0);
}

/// Frames of a protocol that does not run, and frames at unknown ports, are ignored.
#[test]
fn frames_of_disabled_protocols_and_unknown_ports_are_ignored() {
    let mut sim = Sim::new(None, None);
    sim.receive(p(1), &neighbour("g1", 120));
    sim.receive(p(9), &neighbour("g1", 120));
    assert_eq!((sim.known(), sim.actions(), sim.discovery.next_timeout()), (0, vec![], None));
}

mod random {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            lanyard_lldp::fuzz(&data);
        }
    }
}
