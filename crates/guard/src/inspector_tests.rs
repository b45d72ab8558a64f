use super::*;
use crate::config::NdPort;
use crate::discovery::message;
use lanyard_types::MacAddr;

const VLAN: VlanId = VlanId::DEFAULT;
const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xee]);
const NONE: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn port(n: u16) -> PortId {
    PortId::new(n).expect("a port")
}
fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}
fn six(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)
}
fn solicited(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, n)
}

/// Ports 1 to 3 lead to hosts and may have three addresses each; ports 4 and 5 are trusted.
fn configuration() -> NdConfig {
    let ports = (1..=5).map(|n| (port(n), NdPort { trusted: n > 3, limit: 3, private: false }));
    NdConfig {
        vlans: [(VLAN, (1..=5).map(port).collect())].into(),
        ports: ports.collect(),
        mac: SWITCH,
        ..NdConfig::default()
    }
}

struct Bench {
    inspector: Inspector,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        let mut inspector = Inspector::default();
        inspector.configure(configuration());
        Self { inspector, now: 0 }
    }
    fn frame(&mut self, at: u16, frame: &[u8]) -> Vec<String> {
        self.inspector.handle_frame(self.now, VLAN, port(at), frame);
        self.actions()
    }
    /// Host `n` at port `n` detects duplicates of an address.
    fn detects(&mut self, n: u8, address: u16) -> Vec<String> {
        self.frame(n.into(), &message(135, mac(n), [NONE, solicited(address)], six(address), &[]))
    }
    /// Host `n` solicits another host from this address.
    fn solicits(&mut self, n: u8, address: u16) -> Vec<String> {
        self.frame(n.into(), &message(135, mac(n), [six(address), solicited(99)], six(99), &[]))
    }
    /// Host `n` advertises an address to all nodes.
    fn advertises(&mut self, n: u8, address: u16) -> Vec<String> {
        self.frame(n.into(), &message(136, mac(n), [six(address), ALL], six(address), &[]))
    }
    fn later(&mut self, ms: u64) -> Vec<String> {
        let end = self.now + ms;
        let mut said = Vec::new();
        while let Some(at_ms) = self.inspector.next_timeout().filter(|at_ms| *at_ms <= end) {
            self.now = at_ms;
            self.inspector.handle_timer(at_ms);
            said.extend(self.actions());
        }
        self.now = end;
        said
    }
    /// Host `n` gets an address, and ends its own detection of duplicates.
    fn gets(&mut self, n: u8, address: u16) {
        self.detects(n, address);
        self.later(DETECTION_MS);
        assert!(self.bound().contains(&format!("{address} {n} {n}")), "{:?}", self.bound());
    }
    fn actions(&mut self) -> Vec<String> {
        let ports = |ports: &PortSet| ports.iter().map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        let last = |address: Ipv6Addr| address.segments()[7];
        let mut said = Vec::new();
        while let Some(action) = self.inspector.poll_action() {
            said.push(match action {
                Action::Send { from: Some(_), ports: to, .. } => format!("sends to {}", ports(&to)),
                Action::Send { ports: to, frame, .. } => {
                    let read = Message::read(&frame).expect("valid");
                    assert_eq!((read.mac, read.src), (SWITCH, NONE));
                    format!("asks {} for {}", ports(&to), last(read.target))
                }
                Action::Bind(key, mac) => {
                    let IpAddr::V6(address) = key.address else { unreachable!("{key:?}") };
                    let verb = if mac.is_some() { "binds" } else { "frees" };
                    format!("{verb} {} at {}", last(address), key.port)
                }
                Action::NdDropped { neighbour, reason, kind } => {
                    format!("drops {kind} of {}: {}", last(neighbour.address), reason.name())
                }
                Action::Neighbour(change, neighbour) => {
                    format!("{change:?} {} at {}", last(neighbour.address), neighbour.owner.port)
                }
                Action::Dropped { .. } | Action::Full { .. } => unreachable!("{action:?}"),
            });
        }
        said
    }
    /// The bindings of the plane, as the address, the port and the last octet of the MAC address.
    fn bound(&self) -> Vec<String> {
        let valid = self.inspector.neighbours().filter(|(_, state, _)| *state != State::Tentative);
        let text = |neighbour: Neighbour| {
            let Neighbour { address, owner, .. } = neighbour;
            format!("{} {} {}", address.segments()[7], owner.port, owner.mac.0[5])
        };
        valid.map(|(neighbour, ..)| text(neighbour)).collect()
    }
    fn state(&self, address: u16) -> Option<State> {
        let found = self.inspector.neighbours().find(|(neighbour, ..)| neighbour.address == six(address));
        found.map(|(_, state, _)| state)
    }
    fn dropped(&self, reason: NdDrop) -> u64 {
        self.inspector.counters().dropped[reason as usize]
    }
}

#[test]
fn the_first_host_gets_the_address() {
    let mut bench = Bench::new();
    assert_eq!(bench.detects(1, 7), ["sends to 4,5"]);
    assert_eq!(bench.state(7), Some(State::Tentative));
    // The host sends its solicitation twice; another host claims the address too late.
    assert_eq!(bench.detects(1, 7), ["sends to 4,5"]);
    assert_eq!(bench.detects(2, 7), ["drops NDP::NS of 7: binding_mismatch"]);
    assert_eq!(bench.later(TEST_MS), ["Created 7 at 1", "binds 7 at 1"]);
    assert_eq!(bench.bound(), ["7 1 1"]);
    assert_eq!(bench.solicits(1, 7), ["sends to 2,3,4,5"]);
}

#[test]
fn a_host_that_has_an_address_already_keeps_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.solicits(1, 7), ["asks 4,5 for 7"]);
    assert_eq!(bench.inspector.waiting(), 1);
    assert_eq!(bench.solicits(1, 7), ["drops NDP::NS of 7: tentative"]);
    assert_eq!(bench.later(RETRY_MS), ["asks 4,5 for 7"]);
    assert_eq!(bench.later(RETRY_MS), ["Created 7 at 1", "sends to 2,3,4,5", "binds 7 at 1"]);
    assert_eq!((bench.inspector.waiting(), bench.inspector.counters().probes), (0, 2));
    // A packet that IPv6 source guard has dropped starts the same test, but is not sent on.
    bench.inspector.handle_data(bench.now, VLAN, port(2), mac(2), six(8));
    assert_eq!(bench.actions(), ["asks 4,5 for 8"]);
    assert_eq!(bench.later(TEST_MS), ["asks 4,5 for 8", "Created 8 at 2", "binds 8 at 2"]);
    bench.inspector.handle_data(bench.now, VLAN, port(4), mac(4), six(9));
    bench.inspector.handle_data(bench.now, VLAN, port(1), mac(1), ALL);
    assert_eq!(bench.bound(), ["7 1 1", "8 2 2"]);
}

#[test]
fn an_address_behind_a_trusted_port_stays_there() {
    let mut bench = Bench::new();
    bench.solicits(1, 7);
    assert_eq!(bench.advertises(4, 7), ["drops NDP of 7: duplicate", "sends to 1,2,3,5"]);
    assert_eq!(bench.state(7), None);
    assert_eq!(bench.later(2 * TEST_MS), [""; 0]);
    // If the address has a binding, its owner is asked, and the answer decides.
    bench.gets(1, 8);
    assert_eq!(bench.advertises(4, 8), ["asks 1 for 8", "sends to 1,2,3,5"]);
    assert_eq!(bench.state(8), Some(State::TestingTrusted));
    assert_eq!(bench.advertises(1, 8), ["sends to 4,5"]);
    assert_eq!(bench.state(8), Some(State::Valid));
    bench.advertises(4, 8);
    assert_eq!(bench.later(TEST_MS), ["asks 1 for 8", "Deleted 8 at 1", "frees 8 at 1"]);
}

#[test]
fn an_attacker_does_not_get_the_address_of_a_host_that_answers() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    assert_eq!(bench.advertises(2, 7), ["asks 1 for 7", "drops NDP::NA of 7: binding_mismatch"]);
    assert_eq!(bench.state(7), Some(State::TestingClaim));
    // During the test the owner is not asked again, and nobody else can claim the address.
    assert_eq!(bench.advertises(2, 7), ["drops NDP::NA of 7: binding_mismatch"]);
    assert_eq!(bench.detects(3, 7), ["drops NDP::NS of 7: binding_mismatch"]);
    assert_eq!(bench.advertises(1, 7), ["sends to 2,4,5"]);
    assert_eq!(bench.state(7), Some(State::Valid));
    assert_eq!(bench.later(2 * TEST_MS), [""; 0]);
    assert_eq!(bench.bound(), ["7 1 1"]);
    // Another station at the owner's port claims the address.
    let spoofed = message(136, mac(9), [six(7), ALL], six(7), &[]);
    assert_eq!(bench.frame(1, &spoofed), ["asks 1 for 7", "drops NDP::NA of 7: binding_mismatch"]);
    assert_eq!(bench.solicits(1, 7), ["sends to 2,3,4,5"]);
    assert_eq!(bench.state(7), Some(State::Valid));
}

#[test]
fn a_lost_question_does_not_give_the_address_away() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    // The attacker's own message, or the answer to it, is lost.
    assert_eq!(bench.detects(2, 7), ["sends to 1"]);
    assert_eq!(bench.later(RETRY_MS), ["asks 1 for 7"]);
    assert_eq!(bench.advertises(1, 7), ["sends to 2,4,5"]);
    assert_eq!(bench.later(2 * TEST_MS), [""; 0]);
    assert_eq!(bench.bound(), ["7 1 1"]);
}

#[test]
fn a_late_timer_solicits_the_owner_before_the_binding_is_removed() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    assert_eq!(bench.detects(2, 7), ["sends to 1"]);
    bench.now += 4 * TEST_MS;
    bench.inspector.handle_timer(bench.now);
    assert_eq!(bench.actions(), ["asks 1 for 7"]);
    assert_eq!(bench.later(TEST_MS - RETRY_MS - 1), [""; 0]);
    assert_eq!(bench.state(7), Some(State::TestingClaim));
    assert_eq!(bench.advertises(1, 7), ["sends to 2,4,5"]);
    assert_eq!(bench.bound(), ["7 1 1"]);
}

#[test]
fn a_host_that_detects_duplicates_is_not_asked() {
    let mut bench = Bench::new();
    assert_eq!(bench.detects(1, 7), ["sends to 4,5"]);
    assert_eq!(bench.later(TEST_MS), ["Created 7 at 1", "binds 7 at 1"]);
    // The host gets neither a solicitation of the switch nor the attacker's own message: it would give up the address.
    assert_eq!(bench.advertises(2, 7), ["drops NDP::NA of 7: binding_mismatch"]);
    assert_eq!(bench.detects(2, 7), ["drops NDP::NS of 7: binding_mismatch"]);
    assert_eq!(bench.state(7), Some(State::TestingClaim));
    assert_eq!(bench.later(DETECTION_MS - TEST_MS - 1), [""; 0]);
    // The host sends a second message, which goes to the trusted ports only. The test begins when its detection has ended.
    assert_eq!(bench.detects(1, 7), ["sends to 4,5"]);
    assert_eq!(bench.later(DETECTION_MS - 1), [""; 0]);
    assert_eq!(bench.detects(2, 7), ["drops NDP::NS of 7: binding_mismatch"]);
    assert_eq!(bench.later(1), ["asks 1 for 7"]);
    assert_eq!(bench.later(RETRY_MS), ["asks 1 for 7"]);
    assert_eq!(bench.advertises(1, 7), ["sends to 2,4,5"]);
    assert_eq!(bench.later(2 * TEST_MS), [""; 0]);
    assert_eq!(bench.bound(), ["7 1 1"]);
    // A host that has left loses its address to the claimant.
    bench.detects(1, 7);
    bench.detects(2, 7);
    let asked = ["asks 1 for 7", "asks 1 for 7", "Changed 7 at 2", "frees 7 at 1", "binds 7 at 2"];
    assert_eq!(bench.later(DETECTION_MS + TEST_MS), asked);
    // Nor is the new owner asked before its own detection has ended.
    assert_eq!(bench.advertises(3, 7), ["drops NDP::NA of 7: binding_mismatch"]);
    assert_eq!(bench.later(DETECTION_MS), ["asks 2 for 7"]);
}

#[test]
fn a_host_that_has_moved_gets_its_address_back() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    let moved = |n: u16| message(135, mac(1), [NONE, solicited(7)], six(7), &[14, 1, 0, 0, 0, 0, 0, n as u8]);
    assert_eq!(bench.frame(2, &moved(2)), ["sends to 1"]);
    assert_eq!(bench.frame(2, &moved(3)), ["sends to 1"]);
    assert_eq!(bench.later(TEST_MS), ["asks 1 for 7", "Changed 7 at 2", "frees 7 at 1", "binds 7 at 2"]);
    assert_eq!(bench.bound(), ["7 2 1"]);
    assert_eq!((bench.inspector.count(port(1)), bench.inspector.count(port(2))), (0, 1));
}

#[test]
fn two_hosts_that_detect_duplicates_at_once() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    assert_eq!(bench.detects(2, 7), ["sends to 1"]);
    assert_eq!(bench.detects(1, 7), ["sends to 2"]);
    assert_eq!(bench.state(7), Some(State::TestingBoth));
    assert_eq!(bench.later(TEST_MS), ["Deleted 7 at 1", "frees 7 at 1"]);
    // The claimant gets the address when it uses it.
    bench.gets(1, 8);
    bench.detects(2, 8);
    bench.detects(1, 8);
    assert_eq!(bench.solicits(2, 8), ["Changed 8 at 2", "sends to 1,3,4,5", "frees 8 at 1", "binds 8 at 2"]);
    bench.detects(1, 8);
    bench.detects(2, 8);
    assert_eq!(bench.solicits(2, 8), ["sends to 1,3,4,5"]);
    assert_eq!(bench.bound(), ["8 2 2"]);
}

#[test]
fn an_owner_that_does_not_answer_loses_its_address() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    // The binding has been valid since the end of the switch's test.
    assert_eq!(bench.later(LIFETIME_MS - (DETECTION_MS - TEST_MS) - 1), [""; 0]);
    assert_eq!(bench.later(1), ["asks 1 for 7"]);
    assert_eq!(bench.advertises(1, 7), ["sends to 4,5"]);
    assert_eq!(bench.later(LIFETIME_MS), ["asks 1 for 7"]);
    assert_eq!(bench.later(TEST_MS), ["asks 1 for 7", "Deleted 7 at 1", "frees 7 at 1"]);
}

#[test]
fn a_port_has_a_limited_number_of_addresses() {
    let mut bench = Bench::new();
    (1..=3).for_each(|address| bench.gets(1, address));
    assert_eq!(bench.detects(1, 4), ["drops NDP::NS of 4: address_limit"]);
    bench.gets(2, 5);
    assert_eq!(bench.solicits(1, 5), ["drops NDP::NS of 5: address_limit"]);
    bench.inspector.clear(|neighbour| neighbour.address == six(3));
    assert_eq!(bench.actions(), ["frees 3 at 1"]);
    bench.gets(1, 4);
    assert_eq!(bench.dropped(NdDrop::Limit), 2);
}

#[test]
fn messages_that_name_others_are_dropped() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    let with = |kind: u8, n: u8, from: u16, to: Ipv6Addr, target: u16, option: u8| {
        let options = if option == 0 { Vec::new() } else { [&[option, 1][..], &mac(9).0].concat() };
        message(kind, mac(n), [six(from), to], six(target), &options)
    };
    let mismatch = ["drops NDP::NS of 7: link_address_mismatch"];
    assert_eq!(bench.frame(1, &with(135, 1, 7, solicited(9), 9, 1)), mismatch);
    assert_eq!(bench.frame(1, &with(136, 1, 7, six(9), 7, 2)), ["drops NDP::NA of 7: link_address_mismatch"]);
    // Host 2 advertises from an address that is not its own; host 1 advertises a new address from its own one.
    assert_eq!(bench.frame(2, &with(136, 2, 7, six(9), 8, 0)), ["drops NDP::NA of 8: binding_mismatch"]);
    assert_eq!(bench.frame(1, &with(136, 1, 7, six(9), 8, 0)), ["asks 4,5 for 8"]);
    assert_eq!(bench.frame(1, &[0; 70]), ["drops NDP of 0: malformed"]);
    let loopback = message(135, mac(1), [Ipv6Addr::LOCALHOST, solicited(9)], six(9), &[]);
    assert_eq!(bench.frame(1, &loopback), ["drops NDP::NS of 1: malformed"]);
    // A router solicitation claims its source.
    let router = |from: Ipv6Addr| message(133, mac(1), [from, ALL], NONE, &[]);
    assert_eq!(bench.frame(1, &router(NONE)), ["sends to 2,3,4,5"]);
    assert_eq!(bench.frame(1, &router(six(7))), ["sends to 2,3,4,5"]);
    assert_eq!(bench.frame(2, &message(133, mac(2), [six(7), ALL], NONE, &[])).len(), 2);
    bench.inspector.handle_frame(0, VlanId::new(9).expect("a VLAN"), port(1), &router(NONE));
    assert_eq!(bench.actions(), ["drops NDP::RS of 0: no_output_port"]);
}

#[test]
fn static_bindings_go_before_learned_ones() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    let mut config = configuration();
    config.statics = [((VLAN, six(7)), Owner { port: port(2), mac: mac(2) })].into();
    bench.inspector.configure(config.clone());
    assert_eq!(bench.actions(), ["frees 7 at 1", "binds 7 at 2"]);
    assert_eq!(bench.solicits(1, 7), ["drops NDP::NS of 7: binding_mismatch"]);
    assert_eq!(bench.solicits(2, 7), ["sends to 1,3,4,5"]);
    bench.inspector.handle_data(bench.now, VLAN, port(1), mac(1), six(7));
    assert_eq!(bench.actions(), [""; 0]);
    config.statics.clear();
    bench.inspector.configure(config);
    assert_eq!(bench.actions(), ["frees 7 at 2"]);
}

#[test]
fn a_new_configuration_removes_bindings_that_it_does_not_cover() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    bench.gets(2, 8);
    bench.gets(3, 9);
    bench.detects(3, 8);
    let mut config = configuration();
    config.ports.insert(port(1), NdPort { trusted: true, limit: 3, private: false });
    config.vlans = [(VLAN, [1, 2, 4, 5].map(port).into_iter().collect())].into();
    bench.inspector.configure(config);
    assert_eq!(bench.actions(), ["frees 7 at 1", "frees 9 at 3"]);
    // The claimant is gone; the owner is still asked.
    assert_eq!(bench.later(TEST_MS), ["asks 2 for 8", "Deleted 8 at 2", "frees 8 at 2"]);
    bench.inspector.configure(NdConfig::default());
    assert_eq!(bench.inspector.neighbours().count(), 0);
}

#[test]
fn hosts_of_a_private_vlan_reach_trusted_ports_only() {
    let mut bench = Bench::new();
    let mut config = configuration();
    config.ports.insert(port(1), NdPort { trusted: false, limit: 3, private: true });
    bench.inspector.configure(config);
    bench.gets(1, 7);
    assert_eq!(bench.solicits(1, 7), ["sends to 4,5"]);
}

#[test]
fn bindings_outlive_a_restart() {
    let mut bench = Bench::new();
    bench.gets(1, 7);
    bench.gets(2, 8);
    bench.detects(3, 9);
    let valid = bench.inspector.neighbours().filter(|(_, state, _)| *state == State::Valid);
    let kept: Vec<Neighbour> = valid.map(|(neighbour, ..)| neighbour).collect();
    let key = |address: u16, at: u16| binding(VLAN, six(address), port(at));
    // The plane has one of these bindings, and one that no longer exists.
    let held = [(key(7, 1), mac(1)), (key(6, 3), mac(3))];
    let mut next = Bench::new();
    next.inspector.restore(0, &kept, &held);
    assert_eq!(next.actions(), ["frees 6 at 3", "binds 8 at 2"]);
    assert_eq!(next.bound(), ["7 1 1", "8 2 2"]);
    // Their owners are asked one after the other.
    assert_eq!(next.later(LIFETIME_MS / 2), ["asks 1 for 7"]);
    next.advertises(1, 7);
    assert_eq!(next.later(LIFETIME_MS / 4), ["asks 2 for 8"]);
    next.advertises(2, 8);
    assert_eq!(next.bound(), ["7 1 1", "8 2 2"]);
}

#[test]
fn a_full_table_takes_no_further_address() {
    let mut bench = Bench::new();
    let mut config = configuration();
    let owner = Owner { port: port(2), mac: mac(2) };
    let many = (0..MAX_BINDINGS - 1).map(|n| ((VLAN, Ipv6Addr::from(1 + n as u128)), owner));
    config.statics = many.collect();
    bench.inspector.configure(config);
    bench.actions();
    bench.gets(1, 7);
    assert_eq!(bench.detects(1, 8), ["drops NDP::NS of 8: table_full"]);
}
