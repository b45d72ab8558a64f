//! Proxy reporting in simulated time: the reports that routers get from the switch instead of those of hosts.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, dead_code)]

mod sim;

use lanyard_snoop::Family;
use sim::*;

const A: &str = "10.9.0.1";
const B: &str = "10.9.0.2";
const C: &str = "10.9.0.3";
const OTHER: &str = "239.2.2.2";

/// A switch with a router at port 1, whose queries have version 3.
fn sim() -> Sim {
    let mut sim = Sim::with(|vlan| vlan.proxy = true);
    sim.receive(1, &query_3("0.0.0.0", &[]));
    sim.sent();
    sim
}

fn query_3(group: &str, sources: &[&str]) -> Vec<u8> {
    let mut message = vec![0x11, 100, 0, 0];
    message.extend(v4(group));
    message.extend([2, 125, 0, sources.len() as u8]);
    sources.iter().for_each(|source| message.extend(v4(source)));
    let to = if group == "0.0.0.0" { "224.0.0.1" } else { group };
    ipv4(host(99), "10.0.0.254", to, 1, 2, with_checksum(message, &[]))
}

/// The frames of reports and leaves with their ports, as lines; queries are left out.
fn reports(sim: &mut Sim) -> Vec<String> {
    sim.sent()
        .iter()
        .filter_map(|sent| Some(format!("{} to {}", records(&sent.frame)?, sent.ports)))
        .collect()
}

fn records(frame: &[u8]) -> Option<String> {
    let at = 14 + usize::from(frame[14] & 15) * 4;
    let igmp = &frame[at..];
    if igmp[0] == 0x11 {
        return None;
    }
    assert_eq!(lanyard_wire::ip::ones_complement_sum(igmp), 0xffff, "the checksum");
    assert_eq!((&frame[26..30], frame[22]), (&[0, 0, 0, 0][..], 1), "source and TTL");
    let address = |at: usize| format!("{}.{}.{}.{}", igmp[at], igmp[at + 1], igmp[at + 2], igmp[at + 3]);
    let to = format!("{}.{}.{}.{}", frame[30], frame[31], frame[32], frame[33]);
    match igmp[0] {
        0x22 => {
            assert_eq!(to, "224.0.0.22");
            let (mut texts, mut at) = (Vec::new(), 8);
            for _ in 0..u16::from_be_bytes([igmp[6], igmp[7]]) {
                let kind = ["", "IN", "EX", "TO_IN", "TO_EX", "ALLOW", "BLOCK"][usize::from(igmp[at])];
                let count = usize::from(u16::from_be_bytes([igmp[at + 2], igmp[at + 3]]));
                let sources: Vec<String> = (0..count).map(|n| address(at + 8 + 4 * n)).collect();
                texts.push(format!("{kind} {} [{}]", address(at + 4), sources.join(",")));
                at += 8 + 4 * count;
            }
            Some(texts.join("; "))
        }
        kind => {
            let wanted = if kind == 0x17 { "224.0.0.2".to_owned() } else { address(4) };
            assert_eq!(to, wanted);
            Some(format!("{kind:#x} {}", address(4)))
        }
    }
}

/// Routers get a report of the first join and of the last leave, twice each, and none between.
#[test]
fn changes_of_the_union_are_reported() {
    let mut sim = sim();
    let joined = format!("TO_EX {GROUP} [] to 1");
    let left = format!("TO_IN {GROUP} [] to 1");
    sim.receive(2, &join_2(9, GROUP));
    assert_eq!(reports(&mut sim), [joined.as_str()]);
    sim.run(999);
    assert_eq!(reports(&mut sim), [""; 0]);
    sim.run(1);
    assert_eq!(reports(&mut sim), [joined.as_str()], "the robustness variable is 2");
    sim.run(60_000);
    sim.receive(3, &join_2(8, GROUP));
    sim.receive(3, &leave_2(8, GROUP));
    sim.run(10_000);
    assert_eq!(reports(&mut sim), [""; 0], "another member changes nothing");
    sim.receive(2, &leave_2(9, GROUP));
    sim.run(1999);
    assert_eq!(reports(&mut sim), [""; 0], "the last member query time is not over");
    sim.run(1001);
    assert_eq!(reports(&mut sim), [left.as_str(), left.as_str()]);
    sim.run(60_000);
    assert_eq!(reports(&mut sim), [""; 0]);
    let counters = sim.snooping.counters(VLAN, Family::V4).unwrap();
    assert_eq!(counters.proxied, 4);
}

/// If a change is undone before its report is repeated, the repetition reports the new state.
#[test]
fn a_repeated_report_has_the_current_state() {
    let mut sim = sim();
    sim.settings().immediate_leave = true;
    sim.configure();
    sim.receive(2, &join_2(9, GROUP));
    sim.receive(2, &leave_2(9, GROUP));
    sim.run(5000);
    let (joined, left) = (format!("TO_EX {GROUP} [] to 1"), format!("TO_IN {GROUP} [] to 1"));
    assert_eq!(reports(&mut sim), [joined, left.clone(), left]);
}

/// The merge of RFC 3376, 3.2: sources that no port wants are excluded, those that one includes are not.
#[test]
fn sources_of_all_ports_are_merged() {
    let mut sim = sim();
    sim.receive(2, &report_3(9, IN, GROUP, &[A, B]));
    assert_eq!(reports(&mut sim), [format!("TO_IN {GROUP} [{A},{B}] to 1")]);
    sim.receive(3, &report_3(8, EX, GROUP, &[B, C]));
    assert_eq!(reports(&mut sim), [format!("TO_EX {GROUP} [{C}] to 1")]);
    sim.receive(4, &report_3(7, EX, GROUP, &[]));
    assert_eq!(reports(&mut sim), [format!("TO_EX {GROUP} [] to 1")]);
}

/// Answers to queries: to general ones for all groups in few frames, to those of a group, and to those of sources of a group.
#[test]
fn queries_are_answered_from_the_table() {
    let mut sim = sim();
    sim.receive(2, &report_3(9, EX, GROUP, &[A]));
    sim.receive(3, &report_3(8, IN, OTHER, &[A, B]));
    sim.run(10_000);
    sim.sent();
    sim.receive(1, &query_3("0.0.0.0", &[]));
    assert_eq!(reports(&mut sim), [format!("EX {GROUP} [{A}]; IN {OTHER} [{A},{B}] to 1")]);
    sim.receive(1, &query_3(OTHER, &[]));
    assert_eq!(reports(&mut sim), [format!("IN {OTHER} [{A},{B}] to 1")]);
    sim.receive(1, &query_3(OTHER, &[B, C]));
    assert_eq!(reports(&mut sim), [format!("IN {OTHER} [{B}] to 1")]);
    sim.receive(1, &query_3(GROUP, &[A, C]));
    assert_eq!(reports(&mut sim), [format!("IN {GROUP} [{C}] to 1")]);
    sim.receive(1, &query_3(GROUP, &[A]));
    sim.receive(1, &query_3("239.3.3.3", &[]));
    assert_eq!(reports(&mut sim), [""; 0], "nobody wants what was asked for");
    // Hosts get the query as well, and their answers keep the membership.
    sim.receive(1, &query_3("0.0.0.0", &[]));
    let sent = sim.sent();
    assert!(sent.iter().any(|sent| sent.kind() == 0x11 && sent.ports == set(&[2, 3, 4])), "{sent:?}");
}

/// The version of an old querier holds until it has been silent for the Other Querier Present Interval.
#[test]
fn reports_have_the_version_of_the_oldest_querier() {
    let mut sim = sim();
    sim.receive(1, &query("10.0.0.254"));
    sim.receive(2, &join_2(9, GROUP));
    sim.receive(2, &report_3(9, IN, OTHER, &[A]));
    assert_eq!(reports(&mut sim), [format!("0x16 {GROUP} to 1"), format!("0x16 {OTHER} to 1")]);
    sim.receive(2, &leave_2(9, GROUP));
    sim.run(4000);
    assert!(reports(&mut sim).contains(&format!("0x17 {GROUP} to 1")));
    let old = with_checksum([&[0x11, 0, 0, 0][..], &[0; 4]].concat(), &[]);
    sim.receive(1, &ipv4(host(99), "10.0.0.254", "224.0.0.1", 1, 2, old));
    assert_eq!(reports(&mut sim), [format!("0x12 {OTHER} to 1")]);
    sim.receive(2, &report_3(9, TO_IN, OTHER, &[]));
    sim.run(4000);
    assert_eq!(reports(&mut sim), [""; 0], "version 1 has no leave");
    sim.run(255_000);
    sim.receive(1, &query_3("0.0.0.0", &[]));
    sim.receive(3, &join_2(9, GROUP));
    assert_eq!(reports(&mut sim), [format!("TO_EX {GROUP} [] to 1")]);
}

/// A router gets no report about members that are all behind its own port; static members are reported; without `proxy` the
/// hosts' own reports are passed on.
#[test]
fn where_reports_go() {
    let mut sim = sim();
    sim.settings().static_routers = set(&[4]);
    sim.settings().static_groups = [(ip(OTHER), set(&[2]))].into();
    sim.configure();
    assert_eq!(reports(&mut sim), [format!("TO_EX {OTHER} [] to 1,4")]);
    sim.run(2000);
    sim.sent();
    sim.receive(4, &join_2(9, GROUP));
    assert_eq!(reports(&mut sim), [format!("TO_EX {GROUP} [] to 1")]);
    sim.snooping.handle_link_down(p(4));
    sim.take();
    assert_eq!(reports(&mut sim), [format!("TO_IN {GROUP} [] to 1,4")]);
    sim.settings().proxy = false;
    sim.configure();
    sim.run(10_000);
    assert_eq!(reports(&mut sim), [""; 0]);
    sim.receive(3, &report_3(8, EX, GROUP, &[]));
    assert_eq!(sim.sent().iter().map(|sent| sent.ports.clone()).collect::<Vec<_>>(), [set(&[1, 4])]);
}

/// 10,000 groups are answered in few frames of version 3, and at a limited rate of version 2, within the time for answers.
#[test]
fn many_groups_are_answered_at_a_limited_rate() {
    const GROUPS: usize = 10_000;
    let mut sim = sim();
    for n in 0..GROUPS as u32 {
        sim.receive(2, &join_2(9, &std::net::Ipv4Addr::from(0xef01_0000 + n).to_string()));
    }
    sim.run(30_000);
    sim.sent();
    sim.receive(1, &query_3("0.0.0.0", &[]));
    sim.run(1000);
    let answers = reports(&mut sim);
    let groups: usize = answers.iter().map(|answer| answer.split(';').count()).sum();
    assert!(groups == GROUPS && answers.len() < 70, "{groups} groups in {} frames", answers.len());
    let begin = sim.now;
    sim.receive(1, &query("10.0.0.254"));
    sim.run(10_000);
    let sent: Vec<Sent> = sim.sent().into_iter().filter(|sent| sent.kind() == 0x16).collect();
    assert_eq!(sent.len(), GROUPS);
    let most = (0..100).map(|tenth| {
        let at = begin + tenth * 100..begin + (tenth + 1) * 100;
        sent.iter().filter(|sent| at.contains(&sent.at)).count()
    });
    assert_eq!(most.max(), Some(256), "reports in a tenth of a second");
}

/// Proxy reporting of MLD, in its formats and from the link-local address of the switch.
#[test]
fn mld() {
    let mut sim = Sim::with(|vlan| vlan.proxy = true);
    let group = "ff05::1:3";
    let query = [&[130, 0, 0, 0, 0x27, 0x10, 0, 0][..], &[0; 16], &[2, 125, 0, 0]].concat();
    sim.receive(1, &icmpv6(99, "fe80::99", "ff02::1", 1, query, &ALERT));
    sim.sent();
    sim.receive(2, &mld_1(131, 9, group, group));
    let sent = sim.sent();
    assert_eq!((sent.len(), sent[0].kind(), &sent[0].ports), (1, 143, &set(&[1])));
    let frame = &sent[0].frame;
    assert_eq!((&frame[22..24], frame[21]), (&[0xfe, 0x80][..], 1));
    assert_eq!(
        (&frame[38..54], &frame[70..90]),
        (&v6("ff02::16")[..], &[&[4, 0, 0, 0][..], &v6(group)].concat()[..])
    );
    // A querier of version 1.
    let old = [&[130, 0, 0, 0, 0x27, 0x10, 0, 0][..], &[0; 16]].concat();
    sim.receive(1, &icmpv6(99, "fe80::99", "ff02::1", 1, old, &ALERT));
    assert!(sim.sent().iter().any(|sent| sent.kind() == 131 && sent.ports == set(&[1])));
    sim.receive(2, &mld_1(132, 9, "ff02::2", group));
    sim.run(4000);
    assert!(sim.sent().iter().any(|sent| sent.kind() == 132 && sent.frame[38..54] == v6("ff02::2")));
}
