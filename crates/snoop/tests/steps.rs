//! IGMP and MLD snooping in simulated time, with messages of simulated hosts, routers and other switches.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod sim;

use lanyard_snoop::{Config, Family, Flood, MAX_SOURCES_AT_PORT, MessageError, Querier};
use lanyard_wire::ip::ones_complement_sum;
use sim::*;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

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
        sim.receive(2, &frame);
        assert_eq!(sim.ports(group), Some(set(&[2])));
        sim.receive(3, &frame);
        assert_eq!(sim.ports(group), Some(set(&[2, 3])));
        // Group Membership Interval: 2 x 125 s + 10 s.
        sim.run(259_999);
        assert_eq!(sim.ports(group), Some(set(&[2, 3])));
        sim.run(1);
        assert_eq!(sim.ports(group), None, "a membership without reports ends");
    }
}

/// A leave: the last member query time passes, with two queries at the port; another host's report keeps the membership.
#[test]
fn a_leave_causes_queries_and_ends_an_unanswered_membership() {
    for frame in [leave_2(9, GROUP), report_3(9, TO_IN, GROUP, &[])] {
        let mut sim = Sim::new();
        sim.receive(2, &report_3(9, EX, GROUP, &[]));
        sim.sent();
        sim.receive(2, &frame);
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
        sim.receive(2, &report_3(9, EX, GROUP, &[]));
        sim.receive(2, &frame);
        sim.run(1500);
        sim.receive(2, &report_3(8, EX, GROUP, &[]));
        sim.run(10_000);
        assert_eq!(sim.ports(GROUP), Some(set(&[2])), "another host has answered");
    }
}

/// Immediate leave cuts the port off at once, unless another host there is known to be a member.
#[test]
fn immediate_leave() {
    let mut sim = Sim::with(|vlan| vlan.immediate_leave = true);
    sim.receive(2, &join_2(9, GROUP));
    sim.receive(2, &leave_2(9, GROUP));
    assert_eq!((sim.ports(GROUP), sim.sent().len()), (None, 0));
    sim.receive(2, &join_2(9, GROUP));
    sim.receive(2, &join_2(8, GROUP));
    sim.receive(2, &leave_2(9, GROUP));
    assert_eq!(sim.ports(GROUP), Some(set(&[2])));
    sim.receive(2, &join_2(8, GROUP));
    sim.run(10_000);
    assert_eq!(sim.ports(GROUP), Some(set(&[2])), "the other host has answered");
    sim.receive(2, &leave_2(8, GROUP));
    assert_eq!(sim.ports(GROUP), None);
}

/// RFC 3376, 7.3.2: while a host of version 1 is a member, leaves are ignored, because it sends no leave.
#[test]
fn leaves_beside_a_host_of_version_1() {
    let mut sim = Sim::with(|vlan| vlan.immediate_leave = true);
    sim.receive(2, &join_1(9, GROUP));
    sim.receive(2, &join_2(8, GROUP));
    sim.receive(2, &leave_2(8, GROUP));
    sim.run(20_000);
    assert_eq!(sim.ports(GROUP), Some(set(&[2])));
}

/// The tables of RFC 3376, 6.4.1 and 6.4.2: the sources of A, B, C and another one, D, whose frames reach the port.
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
        ("IN(A,B) BLOCK(A), no answer", &[(IN, &[A, B]), (BLOCK, &[A])], "B"),
        ("IN(A,B) TO_IN(B), no answer", &[(IN, &[A, B]), (TO_IN, &[B])], "B"),
        ("EX() BLOCK(A), no answer", &[(EX, &[]), (BLOCK, &[A])], "BCD"),
        ("EX(A) TO_IN(B), no answer", &[(EX, &[A]), (TO_IN, &[B])], "B"),
        ("EX(A) TO_EX(A,B), no answer", &[(EX, &[A]), (TO_EX, &[A, B])], "CD"),
        ("IN(A,B) TO_EX(B,C), no answer", &[(IN, &[A, B]), (TO_EX, &[B, C])], "AD"),
        ("IN(A) TO_IN()", &[(IN, &[A]), (TO_IN, &[])], ""),
    ];
    for (name, steps, wanted) in cases {
        let mut sim = Sim::new();
        for (kind, sources) in *steps {
            sim.receive(2, &report_3(9, *kind, GROUP, sources));
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
    sim.receive(1, &report_3(1, EX, GROUP, &["10.9.0.1"]));
    sim.receive(2, &report_3(2, IN, GROUP, &["10.9.0.1", "10.9.0.2"]));
    sim.receive(3, &report_3(3, EX, GROUP, &[]));
    assert_eq!(sim.ports(GROUP), Some(set(&[1, 3])));
    assert_eq!(sim.from(GROUP, "10.9.0.1"), Some(set(&[2, 3])));
    assert_eq!(sim.from(GROUP, "10.9.0.2"), Some(set(&[1, 2, 3])));
    let groups = sim.snooping.groups(VLAN, Family::V4);
    assert_eq!((groups.len(), groups[0].exclude, groups[0].sources.len()), (1, true, 0), "port 3 wants all");
    assert_eq!(groups[0].ports, set(&[1, 2, 3]));
}

/// The filter of a group is that of all its ports together, with a static member or without.
#[test]
fn the_filter_of_several_ports() {
    const A: &str = "10.9.0.1";
    const B: &str = "10.9.0.2";
    const C: &str = "10.9.0.3";
    type Report = (u8, &'static [&'static str]);
    type Case = (&'static [Report], bool, &'static [&'static str]);
    let cases: &[Case] = &[
        (&[(IN, &[A]), (IN, &[B])], false, &[A, B]),
        (&[(IN, &[A]), (EX, &[])], true, &[]),
        (&[(IN, &[A]), (EX, &[A, B])], true, &[B]),
        (&[(EX, &[A, B]), (EX, &[B, C])], true, &[B]),
        (&[(EX, &[A, B])], true, &[A, B]),
    ];
    for (reports, exclude, sources) in cases {
        for fixed in [false, true] {
            let mut sim = Sim::with(|vlan| {
                if fixed {
                    vlan.static_groups = [(ip(GROUP), set(&[4]))].into();
                }
            });
            for (port, (kind, sources)) in (1..).zip(*reports) {
                sim.receive(port, &report_3(port as u8, *kind, GROUP, sources));
            }
            let groups = sim.snooping.groups(VLAN, Family::V4);
            let want: (bool, Vec<_>) = if fixed {
                (true, Vec::new())
            } else {
                (*exclude, sources.iter().map(|it| ip(it)).collect())
            };
            assert_eq!((groups[0].exclude, groups[0].sources.clone()), want, "{reports:?}, static: {fixed}");
        }
    }
    // The static members are at no enabled port.
    let sim = Sim::with(|vlan| vlan.static_groups = [(ip(GROUP), set(&[]))].into());
    let groups = sim.snooping.groups(VLAN, Family::V4);
    assert_eq!((groups[0].exclude, groups[0].sources.len()), (true, 0));
}

/// Queries and PIM hellos show where routers are; reports go there and nowhere else.
#[test]
fn router_ports() {
    let mut sim = Sim::new();
    sim.receive(1, &query("10.0.0.254"));
    assert_eq!(sim.routers[&Family::V4], set(&[1]));
    assert_eq!(sim.sent()[0].ports, set(&[2, 3, 4]), "a query goes to everybody");
    sim.receive(3, &join_2(9, GROUP));
    assert_eq!(sim.sent()[0].ports, set(&[1]));
    // A hello with a holdtime of 60 s.
    let hello = with_checksum(vec![0x20, 0, 0, 0, 0, 1, 0, 2, 0, 60], &[]);
    sim.receive(2, &ipv4(host(7), "10.0.0.7", "224.0.0.13", 1, 103, hello));
    assert_eq!(sim.routers[&Family::V4], set(&[1, 2]));
    sim.run(60_000);
    assert_eq!(sim.routers[&Family::V4], set(&[1]));
    // Other Querier Present Interval: 2 x 125 s + 5 s.
    sim.run(195_000);
    assert_eq!(sim.routers[&Family::V4], set(&[]));
    // RFC 4286: an advertisement each 20 s, then a termination.
    sim.receive(4, &igmp(9, "224.0.0.106", vec![0x30, 20, 0, 0, 0, 0, 0, 0]));
    assert_eq!(sim.routers[&Family::V4], set(&[4]));
    sim.receive(4, &igmp(9, "224.0.0.106", vec![0x32, 0, 0, 0]));
    assert_eq!(sim.routers[&Family::V4], set(&[]));
    sim.settings().static_routers = set(&[3]);
    sim.configure();
    assert_eq!(sim.snooping.routers(VLAN, Family::V4), [(p(3), None)]);
}

/// A query from 0.0.0.0 is a proxy's: no router is there (RFC 4541, 2.1.1).
#[test]
fn a_query_without_an_address_shows_no_router() {
    let mut sim = Sim::new();
    sim.receive(1, &query("0.0.0.0"));
    assert!(sim.routers.is_empty() && sim.snooping.querier(VLAN, Family::V4).is_none());
}

/// Report suppression: of one group routers get one report for each query.
#[test]
fn report_suppression() {
    for suppress in [true, false] {
        let mut sim = Sim::with(|vlan| vlan.report_suppression = suppress);
        for _ in 0..2 {
            sim.receive(1, &query("10.0.0.254"));
            sim.sent();
            for port in [2, 3, 4] {
                sim.receive(port, &join_2(port as u8, GROUP));
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
    sim.receive(1, &query("10.0.0.9"));
    assert_eq!(
        sim.snooping.querier(VLAN, Family::V4),
        Some((ip("10.0.0.5"), true)),
        "a higher address loses"
    );
    sim.receive(1, &query("10.0.0.2"));
    assert_eq!(sim.snooping.querier(VLAN, Family::V4), Some((ip("10.0.0.2"), false)));
    sim.sent();
    sim.run(254_999);
    assert_eq!(sim.sent().len(), 0, "the other one sends the queries");
    sim.run(2);
    assert_eq!(sim.snooping.querier(VLAN, Family::V4), Some((ip("10.0.0.5"), true)));
    assert_eq!(sim.sent().len(), 1);
}

/// 224.0.0.0/24, ff02::/16 and the solicited-node addresses are always flooded: no entry is made for them.
#[test]
fn groups_of_the_link_have_no_entries() {
    let mut sim = Sim::new();
    sim.receive(2, &join_2(9, "224.0.0.251"));
    sim.receive(2, &mld_2(9, EX, "ff02::fb", &[]));
    sim.receive(2, &mld_2(9, EX, "ff02::1:ff00:1", &[]));
    sim.receive(2, &mld_2(9, EX, "ff01::1", &[]));
    assert!(sim.entries.is_empty());
}

/// Limits: of a port, and of the sources of a group.
#[test]
fn limits() {
    let mut sim = Sim::with(|vlan| vlan.limits = [(p(2), 2)].into());
    for last in 1..6 {
        sim.receive(2, &join_2(9, &format!("239.1.1.{last}")));
        sim.receive(3, &join_2(9, &format!("239.1.1.{last}")));
    }
    assert_eq!((sim.ports("239.1.1.2"), sim.ports("239.1.1.3")), (Some(set(&[2, 3])), Some(set(&[3]))));
    assert_eq!((sim.full.len(), sim.snooping.counters(VLAN, Family::V4).unwrap().refused), (3, 3));
    sim.receive(2, &leave_2(9, "239.1.1.1"));
    sim.run(3000);
    sim.receive(2, &join_2(9, "239.1.1.5"));
    assert_eq!(sim.ports("239.1.1.5"), Some(set(&[2, 3])), "a group that has gone makes room");
    for block in 0..=(MAX_SOURCES_AT_PORT / 100) as u8 {
        let sources: Vec<String> = (1..=100).map(|n| format!("10.{block}.0.{n}")).collect();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        sim.receive(4, &report_3(9, ALLOW, "239.9.9.9", &sources));
    }
    assert_eq!(sim.ports("239.9.9.9"), Some(set(&[4])), "with too many sources the port gets all");
}

/// The limit of a port's sources: with one more the port gets all sources, and the other port keeps its choice.
#[test]
fn source_limit_of_a_port() {
    let mut sim = Sim::with(|vlan| vlan.source_limits = [(p(4), 2)].into());
    for port in [3, 4] {
        sim.receive(port, &report_3(9, ALLOW, "239.9.9.9", &["10.0.0.1", "10.0.0.2"]));
    }
    assert_eq!(sim.ports("239.9.9.9"), Some(set(&[])), "no host wants all sources");
    for port in [3, 4] {
        sim.receive(port, &report_3(9, ALLOW, "239.9.9.9", &["10.0.0.3"]));
    }
    assert_eq!(sim.ports("239.9.9.9"), Some(set(&[4])));
}

#[test]
fn static_groups() {
    let mut sim = Sim::with(|vlan| vlan.static_groups = [(ip(GROUP), set(&[4]))].into());
    assert_eq!(sim.ports(GROUP), Some(set(&[4])));
    sim.receive(2, &join_2(9, GROUP));
    assert_eq!(sim.ports(GROUP), Some(set(&[2, 4])));
    sim.run(300_000);
    assert_eq!(sim.ports(GROUP), Some(set(&[4])));
    sim.settings().static_groups.clear();
    sim.configure();
    assert_eq!(sim.ports(GROUP), None);
}

/// A port that leaves the VLAN or loses its link, `clear`, and the end of snooping.
#[test]
fn port_loss_clear_and_end_of_snooping_remove_memberships() {
    let mut sim = Sim::new();
    for port in 1..=4 {
        sim.receive(port, &join_2(9, GROUP));
        sim.receive(port, &query("10.0.0.254"));
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
    sim.receive(1, &join_2(9, GROUP));
    sim.config.vlans.clear();
    sim.configure();
    assert!(sim.entries.is_empty() && sim.snooping.next_timeout().is_none());
}

/// A change of topology: the querier sends a query; another switch solicits one with a leave of all groups.
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
    sim.receive(1, &query("10.0.0.254"));
    sim.sent();
    sim.snooping.handle_topology_change(sim.now, VLAN);
    sim.take();
    let sent = sim.sent();
    assert_eq!((sent.len(), sent[0].kind(), sent[0].ports.clone()), (1, 0x17, set(&[1])));
    assert_eq!(sent[0].group(), Ipv4Addr::UNSPECIFIED);
    sim.receive(1, &query("10.0.0.254"));
    sim.receive(1, &query("10.0.0.254"));
    sim.run(10_000);
    assert_eq!(sim.flooded[&Family::V4], Flood::Nothing, "the router has sent two queries");
    assert_eq!(sim.flooded[&Family::V6], Flood::All);
    sim.run(250_000);
    assert_eq!(
        sim.flooded[&Family::V6],
        Flood::Nothing,
        "without queries for IPv6 the memberships would have ended"
    );
    // Not configured: nothing is sent.
    let mut sim = Sim::new();
    sim.receive(1, &query("10.0.0.254"));
    sim.sent();
    sim.snooping.handle_topology_change(sim.now, VLAN);
    sim.take();
    assert_eq!(sim.sent().len(), 0);
}

/// Flooding ends with snooping: it would otherwise last in the plane when the VLAN is snooped again.
#[test]
fn the_end_of_snooping_ends_flooding() {
    let mut sim = Sim::new();
    let config = sim.config.clone();
    sim.snooping.handle_topology_change(sim.now, VLAN);
    sim.take();
    assert_eq!(sim.flooded[&Family::V4], Flood::All);
    for (next, when) in [(Config::default(), "snooping has ended"), (config, "snooping begins again")] {
        sim.config = next;
        sim.configure();
        assert_eq!(sim.flooded[&Family::V4], Flood::Nothing, "{when}");
    }
}

/// A restart: the next run takes over the entries that the plane has kept, and announces only what has become different.
#[test]
fn restarts_keep_members_and_routers() {
    let mut first = Sim::new();
    first.receive(1, &query("10.0.0.254"));
    first.receive(2, &join_2(9, GROUP));
    first.receive(3, &report_3(8, IN, GROUP, &["10.9.0.1"]));
    first.receive(4, &report_3(7, EX, GROUP, &["10.9.0.1"]));
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
    // A leave does not end a membership whose hosts are not known: a last-member query is sent.
    next.receive(2, &leave_2(9, GROUP));
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
    sim.receive(1, &query("10.0.0.254"));
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
    sim.receive(2, &icmpv6(9, "::", "ff05::1:3", 1, message, &ALERT));
    assert_eq!(sim.ports("ff05::1:3"), Some(set(&[2])));
    sim.receive(2, &mld_1(132, 9, "ff02::2", "ff05::1:3"));
    let sent = sim.sent();
    assert_eq!(
        (sent[0].kind(), sent[0].ports.clone()),
        (130, set(&[2])),
        "the switch queries for the last member"
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
        sim.receive(2, &join_2(9, &group(n)));
    }
    assert_eq!(sim.entries.len(), 10_000);
    for n in 0..10_000 {
        sim.receive(2, &leave_2(9, &group(n)));
    }
    assert!(sim.entries.is_empty());
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(data in proptest::collection::vec(any::<u8>(), 0..600)) {
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
                sim.receive(port, &report_3(host, kind, GROUP, &sources));
                sim.run(ms);
            }
            sim.run(300_000);
            prop_assert!(sim.entries.is_empty(), "{:?}", sim.entries);
            prop_assert_eq!(sim.snooping.next_timeout(), None);
        }
    }
}
