//! IGMP and MLD snooping in simulated time: hosts, routers and other switches by hand.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use lanyard_snoop::{
    Action, Config, Family, Flood, MAX_SOURCES_AT_PORT, MessageError, Querier, Snooping, VlanConfig,
};
use lanyard_types::{MacAddr, PortId, PortSet, VlanId};
use lanyard_wire::ip::ones_complement_sum;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VLAN: VlanId = VlanId::DEFAULT;
const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const GROUP: &str = "239.1.1.1";

fn p(id: u16) -> PortId {
    PortId::new(id).unwrap()
}

fn set(ports: &[u16]) -> PortSet {
    ports.iter().map(|id| p(*id)).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(text: &str) -> [u8; 4] {
    text.parse::<Ipv4Addr>().unwrap().octets()
}

fn v6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

/// The address of host N.
fn host(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, n])
}

fn with_checksum(mut message: Vec<u8>, pseudo: &[u8]) -> Vec<u8> {
    let sum = !ones_complement_sum(&[pseudo, &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// A frame with an IPv4 packet of this protocol.
fn ipv4(mac: MacAddr, source: &str, to: &str, ttl: u8, protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, ttl, protocol, 0, 0];
    packet.extend(v4(source));
    packet.extend(v4(to));
    let sum = !ones_complement_sum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    lanyard_wire::Builder::new(MacAddr([1, 0, 0x5e, 0, 0, 1]), mac).ethertype(0x0800).payload(&packet).build()
}

fn igmp(n: u8, to: &str, message: Vec<u8>) -> Vec<u8> {
    ipv4(host(n), &format!("10.0.0.{n}"), to, 1, 2, with_checksum(message, &[]))
}

fn old(kind: u8, n: u8, to: &str, group: &str) -> Vec<u8> {
    igmp(n, to, [&[kind, 0, 0, 0][..], &v4(group)].concat())
}

fn join_1(n: u8, group: &str) -> Vec<u8> {
    old(0x12, n, group, group)
}

fn join_2(n: u8, group: &str) -> Vec<u8> {
    old(0x16, n, group, group)
}

fn leave_2(n: u8, group: &str) -> Vec<u8> {
    old(0x17, n, "224.0.0.2", group)
}

/// A report of version 3 with one record.
fn report_3(n: u8, kind: u8, group: &str, sources: &[&str]) -> Vec<u8> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    message.extend(v4(group));
    sources.iter().for_each(|source| message.extend(v4(source)));
    igmp(n, "224.0.0.22", message)
}

const IN: u8 = 1;
const EX: u8 = 2;
const TO_IN: u8 = 3;
const TO_EX: u8 = 4;
const ALLOW: u8 = 5;
const BLOCK: u8 = 6;

/// A general query of version 2 by a router.
fn query(source: &str) -> Vec<u8> {
    let message = with_checksum(vec![0x11, 100, 0, 0, 0, 0, 0, 0], &[]);
    ipv4(MacAddr([2, 0, 0, 0, 9, 9]), source, "224.0.0.1", 1, 2, message)
}

/// A frame with an ICMPv6 message behind the router alert option.
fn icmpv6(n: u8, source: &str, to: &str, hops: u8, message: Vec<u8>, alert: &[u8; 8]) -> Vec<u8> {
    let mut pseudo = [v6(source), v6(to)].concat();
    pseudo.extend((message.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    let message = with_checksum(message, &pseudo);
    let len = (8 + message.len()) as u16;
    let mut packet = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, 0, hops];
    packet.extend(v6(source));
    packet.extend(v6(to));
    packet.extend(alert);
    packet.extend(message);
    lanyard_wire::Builder::new(MacAddr([0x33, 0x33, 0, 0, 0, 1]), host(n))
        .ethertype(0x86dd)
        .payload(&packet)
        .build()
}

const ALERT: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];

fn mld(n: u8, to: &str, message: Vec<u8>) -> Vec<u8> {
    icmpv6(n, &format!("fe80::{n}"), to, 1, message, &ALERT)
}

fn mld_1(kind: u8, n: u8, to: &str, group: &str) -> Vec<u8> {
    mld(n, to, [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &v6(group)].concat())
}

fn mld_2(n: u8, kind: u8, group: &str, sources: &[&str]) -> Vec<u8> {
    let mut message = vec![143, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    message.extend(v6(group));
    sources.iter().for_each(|source| message.extend(v6(source)));
    mld(n, "ff02::16", message)
}

/// A frame that was sent.
#[derive(Debug, Clone)]
struct Sent {
    at: u64,
    ports: PortSet,
    frame: Vec<u8>,
}

impl Sent {
    /// The type of its IGMP or ICMPv6 message.
    fn kind(&self) -> u8 {
        if self.frame[12..14] == [0x08, 0x00] {
            self.frame[14 + usize::from(self.frame[14] & 15) * 4]
        } else {
            self.frame[62]
        }
    }
    /// The group of an IGMP message.
    fn group(&self) -> Ipv4Addr {
        let at = 14 + usize::from(self.frame[14] & 15) * 4 + 4;
        Ipv4Addr::new(self.frame[at], self.frame[at + 1], self.frame[at + 2], self.frame[at + 3])
    }
}

/// Snooping with a clock and the plane's entries as the actions have made them.
struct Sim {
    snooping: Snooping,
    config: Config,
    now: u64,
    entries: BTreeMap<(IpAddr, Option<IpAddr>), PortSet>,
    routers: BTreeMap<Family, PortSet>,
    sent: Vec<Sent>,
    full: Vec<Option<PortId>>,
    flooded: BTreeMap<Family, Flood>,
}

impl Sim {
    fn new() -> Self {
        Self::with(|_| {})
    }
    fn with(change: impl FnOnce(&mut VlanConfig)) -> Self {
        let mut settings = VlanConfig { ports: set(&[1, 2, 3, 4]), ..VlanConfig::default() };
        change(&mut settings);
        let vlans = [((VLAN, Family::V4), settings.clone()), ((VLAN, Family::V6), settings)].into();
        let mut sim = Self {
            snooping: Snooping::new(),
            config: Config { mac: SWITCH, vlans },
            now: 1000,
            entries: BTreeMap::new(),
            routers: BTreeMap::new(),
            sent: Vec::new(),
            full: Vec::new(),
            flooded: BTreeMap::new(),
        };
        sim.configure();
        sim
    }
    fn settings(&mut self) -> &mut VlanConfig {
        self.config.vlans.get_mut(&(VLAN, Family::V4)).unwrap()
    }
    fn configure(&mut self) {
        self.snooping.configure(self.now, self.config.clone());
        self.take();
    }
    fn take(&mut self) {
        while let Some(action) = self.snooping.poll_action() {
            match action {
                Action::Group { group, source, ports: Some(ports), .. } => {
                    let was = self.entries.insert((group, source), *ports.clone());
                    assert_ne!(was, Some(*ports), "nothing is announced twice");
                }
                Action::Group { group, source, ports: None, .. } => {
                    assert!(self.entries.remove(&(group, source)).is_some(), "what goes was there");
                }
                Action::Routers { family, ports, .. } => drop(self.routers.insert(family, *ports)),
                Action::Send { ports, frame, .. } => {
                    self.sent.push(Sent { at: self.now, ports: *ports, frame })
                }
                Action::Flood { family, what, .. } => {
                    let was = self.flooded.insert(family, what);
                    assert_ne!(was.unwrap_or_default(), what, "nothing is announced twice");
                }
                Action::Full { port, .. } => self.full.push(port),
            }
        }
    }
    fn hear(&mut self, port: u16, frame: &[u8]) {
        self.snooping.handle_frame(self.now, VLAN, p(port), frame).unwrap();
        self.take();
    }
    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.snooping.next_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "a deadline in the past makes the caller spin");
            self.now = at;
            self.snooping.handle_timer(at);
            self.take();
            assert!(self.snooping.next_timeout().is_none_or(|next| next > at), "a deadline stays due");
        }
        self.now = end;
    }
    /// The ports of a group, for sources that no member names.
    fn ports(&self, group: &str) -> Option<PortSet> {
        self.entries.get(&(ip(group), None)).cloned()
    }
    fn from(&self, group: &str, source: &str) -> Option<PortSet> {
        self.entries.get(&(ip(group), Some(ip(source)))).cloned()
    }
    fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }
}

#[test]
fn joins_of_each_version() {
    for (frame, group) in [
        (join_1(9, GROUP), GROUP),
        (join_2(9, GROUP), GROUP),
        (report_3(9, EX, GROUP, &[]), GROUP),
        (report_3(9, TO_EX, GROUP, &[]), GROUP),
        (mld_1(131, 9, "ff05::1:3", "ff05::1:3"), "ff05::1:3"),
        (mld_2(9, EX, "ff05::1:3", &[]), "ff05::1:3"),
    ] {
        let mut sim = Sim::new();
        assert_eq!(sim.ports(group), None, "an unknown group has no entry");
        sim.hear(2, &frame);
        assert_eq!(sim.ports(group), Some(set(&[2])));
        sim.hear(3, &frame);
        assert_eq!(sim.ports(group), Some(set(&[2, 3])));
        // Group Membership Interval: 2 x 125 s + 10 s.
        sim.run(259_999);
        assert_eq!(sim.ports(group), Some(set(&[2, 3])));
        sim.run(1);
        assert_eq!(sim.ports(group), None, "what nobody repeats ends");
    }
}

/// A leave: the last member query time passes, with two queries at the port; another host's report keeps the membership.
#[test]
fn a_leave_asks_for_the_last_member() {
    for frame in [leave_2(9, GROUP), report_3(9, TO_IN, GROUP, &[])] {
        let mut sim = Sim::new();
        sim.hear(2, &report_3(9, EX, GROUP, &[]));
        sim.sent();
        sim.hear(2, &frame);
        let sent = sim.sent();
        let [query] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(
            (query.kind(), query.group().to_string().as_str(), &query.ports),
            (0x11, GROUP, &set(&[2]))
        );
        sim.run(1000);
        assert_eq!(sim.sent().len(), 1, "Last Member Query Count is 2");
        assert_eq!(sim.ports(GROUP), Some(set(&[2])));
        sim.run(1000);
        assert_eq!((sim.ports(GROUP), sim.sent().len()), (None, 0));
        sim.hear(2, &report_3(9, EX, GROUP, &[]));
        sim.hear(2, &frame);
        sim.run(1500);
        sim.hear(2, &report_3(8, EX, GROUP, &[]));
        sim.run(10_000);
        assert_eq!(sim.ports(GROUP), Some(set(&[2])), "another host has answered");
    }
}

/// Immediate leave cuts the port off at once, unless another host there is known to be a member.
#[test]
fn immediate_leave() {
    let mut sim = Sim::with(|vlan| vlan.immediate_leave = true);
    sim.hear(2, &join_2(9, GROUP));
    sim.hear(2, &leave_2(9, GROUP));
    assert_eq!((sim.ports(GROUP), sim.sent().len()), (None, 0));
    sim.hear(2, &join_2(9, GROUP));
    sim.hear(2, &join_2(8, GROUP));
    sim.hear(2, &leave_2(9, GROUP));
    assert_eq!(sim.ports(GROUP), Some(set(&[2])));
    sim.hear(2, &join_2(8, GROUP));
    sim.run(10_000);
    assert_eq!(sim.ports(GROUP), Some(set(&[2])), "the other host has answered");
    sim.hear(2, &leave_2(8, GROUP));
    assert_eq!(sim.ports(GROUP), None);
}

/// RFC 3376, 7.3.2: while a host of version 1 is a member, leaves are ignored, because it would not be heard to leave.
#[test]
fn leaves_beside_a_host_of_version_1() {
    let mut sim = Sim::with(|vlan| vlan.immediate_leave = true);
    sim.hear(2, &join_1(9, GROUP));
    sim.hear(2, &join_2(8, GROUP));
    sim.hear(2, &leave_2(8, GROUP));
    sim.run(20_000);
    assert_eq!(sim.ports(GROUP), Some(set(&[2])));
}

/// The tables of RFC 3376, 6.4.1 and 6.4.2, by what reaches the port from sources A, B, C and from another one.
#[test]
fn filter_modes() {
    const A: &str = "10.9.0.1";
    const B: &str = "10.9.0.2";
    const C: &str = "10.9.0.3";
    const D: &str = "10.9.0.4";
    type Step = (u8, &'static [&'static str]);
    let cases: &[(&str, &[Step], &str)] = &[
        ("IN(A)", &[(IN, &[A])], "A"),
        ("IN(A) IN(B)", &[(IN, &[A]), (IN, &[B])], "AB"),
        ("IN(A) ALLOW(B)", &[(IN, &[A]), (ALLOW, &[B])], "AB"),
        ("IN(A,B) EX(B,C)", &[(IN, &[A, B]), (EX, &[B, C])], "ABD"),
        ("EX(C) EX(A)", &[(EX, &[C]), (EX, &[A])], "ABCD"),
        ("EX(A,B) IN(A)", &[(EX, &[A, B]), (IN, &[A])], "ACD"),
        ("EX(A,B) ALLOW(B)", &[(EX, &[A, B]), (ALLOW, &[B])], "BCD"),
        ("IN(A,B) BLOCK(A), nobody answers", &[(IN, &[A, B]), (BLOCK, &[A])], "B"),
        ("IN(A,B) TO_IN(B), nobody answers", &[(IN, &[A, B]), (TO_IN, &[B])], "B"),
        ("EX() BLOCK(A), nobody answers", &[(EX, &[]), (BLOCK, &[A])], "BCD"),
        ("EX(A) TO_IN(B), nobody answers", &[(EX, &[A]), (TO_IN, &[B])], "B"),
        ("EX(A) TO_EX(A,B), nobody answers", &[(EX, &[A]), (TO_EX, &[A, B])], "CD"),
        ("IN(A,B) TO_EX(B,C), nobody answers", &[(IN, &[A, B]), (TO_EX, &[B, C])], "AD"),
        ("IN(A) TO_IN()", &[(IN, &[A]), (TO_IN, &[])], ""),
    ];
    for (name, steps, wanted) in cases {
        let mut sim = Sim::new();
        for (kind, sources) in *steps {
            sim.hear(2, &report_3(9, *kind, GROUP, sources));
        }
        // The last member query time.
        sim.run(2001);
        let other = sim.ports(GROUP).is_some_and(|ports| ports.contains(p(2)));
        let reaches: String = [("A", A), ("B", B), ("C", C), ("D", D)]
            .iter()
            .filter(|(_, source)| sim.from(GROUP, source).map_or(other, |ports| ports.contains(p(2))))
            .map(|(letter, _)| *letter)
            .collect();
        assert_eq!(reaches, *wanted, "{name}");
    }
}

/// Each source has the ports whose hosts want it.
#[test]
fn sources_of_several_ports() {
    let mut sim = Sim::new();
    sim.hear(1, &report_3(1, EX, GROUP, &["10.9.0.1"]));
    sim.hear(2, &report_3(2, IN, GROUP, &["10.9.0.1", "10.9.0.2"]));
    sim.hear(3, &report_3(3, EX, GROUP, &[]));
    assert_eq!(sim.ports(GROUP), Some(set(&[1, 3])));
    assert_eq!(sim.from(GROUP, "10.9.0.1"), Some(set(&[2, 3])));
    assert_eq!(sim.from(GROUP, "10.9.0.2"), Some(set(&[1, 2, 3])));
    let groups = sim.snooping.groups(VLAN, Family::V4);
    assert_eq!((groups.len(), groups[0].sources.len(), groups[0].exclude), (1, 2, true));
    assert_eq!(groups[0].ports, set(&[1, 2, 3]));
}

/// Queries and PIM hellos show where routers are; reports go there and nowhere else.
#[test]
fn router_ports() {
    let mut sim = Sim::new();
    sim.hear(1, &query("10.0.0.254"));
    assert_eq!(sim.routers[&Family::V4], set(&[1]));
    assert_eq!(sim.sent()[0].ports, set(&[2, 3, 4]), "a query goes to everybody");
    sim.hear(3, &join_2(9, GROUP));
    assert_eq!(sim.sent()[0].ports, set(&[1]));
    // A hello with a holdtime of 60 s.
    let hello = with_checksum(vec![0x20, 0, 0, 0, 0, 1, 0, 2, 0, 60], &[]);
    sim.hear(2, &ipv4(host(7), "10.0.0.7", "224.0.0.13", 1, 103, hello));
    assert_eq!(sim.routers[&Family::V4], set(&[1, 2]));
    sim.run(60_000);
    assert_eq!(sim.routers[&Family::V4], set(&[1]));
    // Other Querier Present Interval: 2 x 125 s + 5 s.
    sim.run(195_000);
    assert_eq!(sim.routers[&Family::V4], set(&[]));
    // RFC 4286: an advertisement each 20 s, then a termination.
    sim.hear(4, &igmp(9, "224.0.0.106", vec![0x30, 20, 0, 0, 0, 0, 0, 0]));
    assert_eq!(sim.routers[&Family::V4], set(&[4]));
    sim.hear(4, &igmp(9, "224.0.0.106", vec![0x32, 0, 0, 0]));
    assert_eq!(sim.routers[&Family::V4], set(&[]));
    sim.settings().static_routers = set(&[3]);
    sim.configure();
    assert_eq!(sim.snooping.routers(VLAN, Family::V4), [(p(3), None)]);
}

/// A query from 0.0.0.0 is a proxy's: no router is there (RFC 4541, 2.1.1).
#[test]
fn a_query_without_an_address_shows_no_router() {
    let mut sim = Sim::new();
    sim.hear(1, &query("0.0.0.0"));
    assert!(sim.routers.is_empty() && sim.snooping.querier(VLAN, Family::V4).is_none());
}

/// Report suppression: of one group routers get one report for each query.
#[test]
fn report_suppression() {
    for suppress in [true, false] {
        let mut sim = Sim::with(|vlan| vlan.report_suppression = suppress);
        for _ in 0..2 {
            sim.hear(1, &query("10.0.0.254"));
            sim.sent();
            for port in [2, 3, 4] {
                sim.hear(port, &join_2(port as u8, GROUP));
            }
            assert_eq!(sim.sent().len(), if suppress { 1 } else { 3 }, "suppress {suppress}");
            sim.run(125_000);
        }
    }
}

/// The querier: startup queries at a quarter of the interval, then one each interval; a lower address takes over.
#[test]
fn querier_and_election() {
    let own = Querier { address: ip("10.0.0.5"), version: 3 };
    let mut sim = Sim::with(|vlan| vlan.querier = Some(own));
    sim.config.vlans.remove(&(VLAN, Family::V6));
    sim.configure();
    sim.run(300_000);
    let times: Vec<u64> = sim.sent().iter().map(|query| query.at - 1000).collect();
    assert_eq!(times, [0, 31_250, 156_250, 281_250]);
    assert_eq!(sim.snooping.querier(VLAN, Family::V4), Some((ip("10.0.0.5"), true)));
    sim.hear(1, &query("10.0.0.9"));
    assert_eq!(
        sim.snooping.querier(VLAN, Family::V4),
        Some((ip("10.0.0.5"), true)),
        "a higher address loses"
    );
    sim.hear(1, &query("10.0.0.2"));
    assert_eq!(sim.snooping.querier(VLAN, Family::V4), Some((ip("10.0.0.2"), false)));
    sim.sent();
    sim.run(254_999);
    assert_eq!(sim.sent().len(), 0, "the other one asks");
    sim.run(2);
    assert_eq!(sim.snooping.querier(VLAN, Family::V4), Some((ip("10.0.0.5"), true)));
    assert_eq!(sim.sent().len(), 1);
}

/// 224.0.0.0/24, ff02::/16 and the solicited-node addresses are always flooded: no entry is made for them.
#[test]
fn groups_of_the_link_have_no_entries() {
    let mut sim = Sim::new();
    sim.hear(2, &join_2(9, "224.0.0.251"));
    sim.hear(2, &mld_2(9, EX, "ff02::fb", &[]));
    sim.hear(2, &mld_2(9, EX, "ff02::1:ff00:1", &[]));
    sim.hear(2, &mld_2(9, EX, "ff01::1", &[]));
    assert!(sim.entries.is_empty());
}

/// Limits: of a port, and of the sources of a group.
#[test]
fn limits() {
    let mut sim = Sim::with(|vlan| vlan.limits = [(p(2), 2)].into());
    for last in 1..6 {
        sim.hear(2, &join_2(9, &format!("239.1.1.{last}")));
        sim.hear(3, &join_2(9, &format!("239.1.1.{last}")));
    }
    assert_eq!((sim.ports("239.1.1.2"), sim.ports("239.1.1.3")), (Some(set(&[2, 3])), Some(set(&[3]))));
    assert_eq!((sim.full.len(), sim.snooping.counters(VLAN, Family::V4).unwrap().refused), (3, 3));
    sim.hear(2, &leave_2(9, "239.1.1.1"));
    sim.run(3000);
    sim.hear(2, &join_2(9, "239.1.1.5"));
    assert_eq!(sim.ports("239.1.1.5"), Some(set(&[2, 3])), "a group that has gone makes room");
    for block in 0..=(MAX_SOURCES_AT_PORT / 100) as u8 {
        let sources: Vec<String> = (1..=100).map(|n| format!("10.{block}.0.{n}")).collect();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        sim.hear(4, &report_3(9, ALLOW, "239.9.9.9", &sources));
    }
    assert_eq!(sim.ports("239.9.9.9"), Some(set(&[4])), "with too many sources the port gets all");
}

#[test]
fn static_groups() {
    let mut sim = Sim::with(|vlan| vlan.static_groups = [(ip(GROUP), set(&[4]))].into());
    assert_eq!(sim.ports(GROUP), Some(set(&[4])));
    sim.hear(2, &join_2(9, GROUP));
    assert_eq!(sim.ports(GROUP), Some(set(&[2, 4])));
    sim.run(300_000);
    assert_eq!(sim.ports(GROUP), Some(set(&[4])));
    sim.settings().static_groups.clear();
    sim.configure();
    assert_eq!(sim.ports(GROUP), None);
}

/// A port that leaves the VLAN or loses its link, `clear`, and the end of snooping.
#[test]
fn what_is_forgotten() {
    let mut sim = Sim::new();
    for port in 1..=4 {
        sim.hear(port, &join_2(9, GROUP));
        sim.hear(port, &query("10.0.0.254"));
    }
    sim.snooping.handle_link_down(p(4));
    sim.take();
    assert_eq!(
        (sim.ports(GROUP), sim.routers[&Family::V4].clone()),
        (Some(set(&[1, 2, 3])), set(&[1, 2, 3]))
    );
    sim.settings().ports = set(&[1, 2, 4]);
    sim.configure();
    assert_eq!((sim.ports(GROUP), sim.routers[&Family::V4].clone()), (Some(set(&[1, 2])), set(&[1, 2])));
    sim.snooping.clear(Family::V4);
    sim.take();
    assert_eq!(sim.ports(GROUP), None);
    sim.hear(1, &join_2(9, GROUP));
    sim.config.vlans.clear();
    sim.configure();
    assert!(sim.entries.is_empty() && sim.snooping.next_timeout().is_none());
}

/// A change of topology: the querier asks; another switch asks the querier with a leave of all groups.
#[test]
fn topology_changes() {
    let own = Querier { address: ip("10.0.0.5"), version: 3 };
    let mut sim = Sim::with(|vlan| vlan.querier = Some(own));
    sim.config.vlans.remove(&(VLAN, Family::V6));
    sim.configure();
    sim.run(400_000);
    sim.sent();
    sim.snooping.handle_topology_change(sim.now, VLAN);
    sim.take();
    let sent = sim.sent();
    assert_eq!((sent.len(), sent[0].kind(), sent[0].ports.clone()), (1, 0x11, set(&[1, 2, 3, 4])));
    assert_eq!(sim.flooded[&Family::V4], Flood::All);
    // The second query leaves a quarter of the interval later; then the members have 10 s.
    sim.run(31_250 + 9_999);
    assert_eq!((sim.flooded[&Family::V4], sim.sent().len()), (Flood::All, 1));
    sim.run(1);
    assert_eq!(sim.flooded[&Family::V4], Flood::Nothing);
    let mut sim = Sim::with(|vlan| vlan.tcn_solicit = true);
    sim.hear(1, &query("10.0.0.254"));
    sim.sent();
    sim.snooping.handle_topology_change(sim.now, VLAN);
    sim.take();
    let sent = sim.sent();
    assert_eq!((sent.len(), sent[0].kind(), sent[0].ports.clone()), (1, 0x17, set(&[1])));
    assert_eq!(sent[0].group(), Ipv4Addr::UNSPECIFIED);
    sim.hear(1, &query("10.0.0.254"));
    sim.hear(1, &query("10.0.0.254"));
    sim.run(10_000);
    assert_eq!(sim.flooded[&Family::V4], Flood::Nothing, "the router has asked twice");
    assert_eq!(sim.flooded[&Family::V6], Flood::All);
    sim.run(250_000);
    assert_eq!(
        sim.flooded[&Family::V6],
        Flood::Nothing,
        "nobody asks for IPv6: the memberships would have ended"
    );
    // Not configured: nothing is sent.
    let mut sim = Sim::new();
    sim.hear(1, &query("10.0.0.254"));
    sim.sent();
    sim.snooping.handle_topology_change(sim.now, VLAN);
    sim.take();
    assert_eq!(sim.sent().len(), 0);
}

/// A restart: the next run takes over the entries that the plane has kept, and announces only what has become different.
#[test]
fn restarts_keep_members_and_routers() {
    let mut first = Sim::new();
    first.hear(1, &query("10.0.0.254"));
    first.hear(2, &join_2(9, GROUP));
    first.hear(3, &report_3(8, IN, GROUP, &["10.9.0.1"]));
    first.hear(4, &report_3(7, EX, GROUP, &["10.9.0.1"]));
    let kept: Vec<_> =
        first.entries.iter().map(|((group, source), ports)| (VLAN, *group, *source, ports.clone())).collect();
    let mut next = Sim::with(|vlan| vlan.immediate_leave = true);
    next.entries = first.entries.clone();
    next.snooping.restore(next.now, &kept, &[(VLAN, Family::V4, set(&[1]))]);
    next.take();
    assert_eq!(next.entries, first.entries);
    assert_eq!(next.routers, BTreeMap::new(), "what is as before is not announced");
    assert_eq!(next.snooping.routers(VLAN, Family::V4).len(), 1);
    assert_eq!(next.snooping.memberships(), 3);
    // A leave does not end a membership whose hosts are not known: the last member is asked for.
    next.hear(2, &leave_2(9, GROUP));
    assert_eq!(next.ports(GROUP), Some(set(&[2, 4])));
    next.run(2000);
    assert_eq!(next.ports(GROUP), Some(set(&[4])));
    next.run(260_000);
    assert_eq!((next.entries.len(), next.snooping.memberships()), (0, 0));
    assert_eq!(next.routers[&Family::V4], set(&[]));
    // Entries of a VLAN that is not snooped any more are removed.
    let mut off = Sim::new();
    off.config.vlans.clear();
    off.configure();
    off.entries = first.entries.clone();
    off.snooping.restore(off.now, &kept, &[(VLAN, Family::V4, set(&[1]))]);
    off.take();
    assert_eq!((off.entries.len(), &off.routers[&Family::V4]), (0, &set(&[])));
}

/// Types of IGMP that snooping does not know belong to other protocols, such as DVMRP: their frames go to all ports.
#[test]
fn unknown_types_are_passed_on() {
    let mut sim = Sim::new();
    let frame = igmp(9, "224.0.0.4", vec![0x13, 1, 0, 0, 0, 0, 0, 0]);
    let taken = sim.snooping.handle_frame(sim.now, VLAN, p(2), &frame);
    assert_eq!(taken, Err(MessageError::Type));
    sim.take();
    let sent = sim.sent();
    assert_eq!((sent.len(), &sent[0].ports), (1, &set(&[1, 3, 4])));
}

/// Messages that are refused change nothing, are not forwarded, and are counted by reason.
#[test]
fn refused_messages() {
    let mut sim = Sim::new();
    sim.hear(1, &query("10.0.0.254"));
    sim.sent();
    let report = |to: &str, ttl: u8, source: &str| {
        let message = with_checksum([&[0x16, 0, 0, 0][..], &v4(GROUP)].concat(), &[]);
        ipv4(host(9), source, to, ttl, 2, message)
    };
    let mut bad_sum = join_2(9, GROUP);
    bad_sum[36] ^= 1;
    let mut bad_header = join_2(9, GROUP);
    bad_header[24] ^= 1;
    let mut fragment = report(GROUP, 1, "10.0.0.9");
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let sum = !ones_complement_sum(&fragment[14..34]);
    fragment[24..26].copy_from_slice(&sum.to_be_bytes());
    let long = {
        let mut m = vec![0x22, 0, 0, 0, 0, 0, 0, 2, EX, 0, 0, 0];
        m.extend(v4(GROUP));
        igmp(9, "224.0.0.22", m)
    };
    let many = {
        let mut m = vec![0x22, 0, 0, 0, 0, 0, 0, 1, EX, 0, 0xff, 0xff];
        m.extend(v4(GROUP));
        igmp(9, "224.0.0.22", m)
    };
    let group = v6("ff05::1:3");
    let mld_report = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &group].concat();
    let cases = [
        (report(GROUP, 2, "10.0.0.9"), MessageError::HopLimit),
        (report("239.1.1.2", 1, "10.0.0.9"), MessageError::Destination),
        (report(GROUP, 1, "224.0.0.9"), MessageError::Source),
        (old(0x16, 9, "10.0.0.1", "10.0.0.1"), MessageError::Group),
        (old(0x99, 9, GROUP, GROUP), MessageError::Type),
        (igmp(9, GROUP, vec![0x16, 0, 0, 0]), MessageError::Length),
        (igmp(9, "224.0.0.1", vec![0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0]), MessageError::Length),
        (ipv4(host(9), "10.0.0.9", GROUP, 1, 17, vec![0; 8]), MessageError::Protocol),
        (bad_sum, MessageError::Checksum),
        (bad_header, MessageError::IpHeader),
        (fragment, MessageError::Fragment),
        (long, MessageError::Length),
        (many, MessageError::Length),
        (icmpv6(9, "fe80::9", "ff05::1:3", 2, mld_report.clone(), &ALERT), MessageError::HopLimit),
        (icmpv6(9, "2001:db8::9", "ff05::1:3", 1, mld_report.clone(), &ALERT), MessageError::Source),
        (
            icmpv6(9, "fe80::9", "ff05::1:3", 1, mld_report.clone(), &[58, 0, 1, 4, 0, 0, 0, 0]),
            MessageError::RouterAlert,
        ),
        (icmpv6(9, "fe80::9", "ff05::1:4", 1, mld_report, &ALERT), MessageError::Destination),
    ];
    for (at, (frame, error)) in cases.iter().enumerate() {
        let refused = sim.snooping.handle_frame(sim.now, VLAN, p(2), frame);
        assert_eq!(refused, Err(*error), "case {at}");
        sim.take();
        // A frame of an unknown type is another protocol's (`unknown_types_are_passed_on`).
        assert_eq!(sim.sent().len(), usize::from(*error == MessageError::Type), "case {at}");
    }
    assert!(sim.entries.is_empty());
    let counted = |family| sim.snooping.counters(VLAN, family).unwrap().errors.iter().sum::<u64>();
    assert_eq!(counted(Family::V4) + counted(Family::V6), cases.len() as u64);
}

/// A host that has no address yet reports from the unspecified one (RFC 3590).
#[test]
fn mld_reports_without_an_address() {
    let mut sim = Sim::new();
    let message = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &v6("ff05::1:3")].concat();
    sim.hear(2, &icmpv6(9, "::", "ff05::1:3", 1, message, &ALERT));
    assert_eq!(sim.ports("ff05::1:3"), Some(set(&[2])));
    sim.hear(2, &mld_1(132, 9, "ff02::2", "ff05::1:3"));
    let sent = sim.sent();
    assert_eq!(
        (sent[0].kind(), sent[0].ports.clone()),
        (130, set(&[2])),
        "the switch asks for the last member"
    );
    sim.run(2000);
    assert_eq!(sim.ports("ff05::1:3"), None);
}

/// 10,000 groups are joined, refreshed and left.
#[test]
fn many_groups() {
    let mut sim = Sim::with(|vlan| vlan.immediate_leave = true);
    let group = |n: u32| Ipv4Addr::from(0xef01_0000 + n).to_string();
    for n in 0..10_000 {
        sim.hear(2, &join_2(9, &group(n)));
    }
    assert_eq!(sim.entries.len(), 10_000);
    for n in 0..10_000 {
        sim.hear(2, &leave_2(9, &group(n)));
    }
    assert!(sim.entries.is_empty());
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_panics(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            lanyard_snoop::fuzz(&data);
        }

        /// After any reports, all memberships end when no host repeats them, and the entries end with them.
        #[test]
        fn everything_ages(
            steps in proptest::collection::vec((1u16..5, 1u8..4, 1u8..7, 0u8..4, 0u64..20_000), 0..60),
        ) {
            let mut sim = Sim::new();
            for (port, host, kind, sources, ms) in steps {
                let sources: Vec<String> = (0..sources).map(|n| format!("10.9.0.{n}")).collect();
                let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
                sim.hear(port, &report_3(host, kind, GROUP, &sources));
                sim.run(ms);
            }
            sim.run(300_000);
            prop_assert!(sim.entries.is_empty(), "{:?}", sim.entries);
            prop_assert_eq!(sim.snooping.next_timeout(), None);
        }
    }
}
