//! Access lists of a whole switch, with a kernel and a plane in memory.

use super::*;
use crate::access_flows::SUMMARY_MS;
use crate::core::Core;
use crate::testing::{Bench, config, messages};
use lanyard_cli::backend::AccessLists as _;

/// A switch with ports eth1 and eth2; the list `a` with these rules judges what eth1 receives.
fn switch(rules: &str) -> (Bench, Core) {
    let bench = Bench::new();
    bench.kernel.add("eth1");
    bench.kernel.add("eth2");
    let mut core = bench.core();
    core.take(config(&text(rules))).expect("good");
    (bench, core)
}

fn text(rules: &str) -> String {
    format!(
        "ip access-list extended a\n{rules}\ninterface eth2\n switchport\ninterface eth1\n switchport\n ip access-group a in"
    )
}

/// Sends packets of UDP to this port from a host at eth1.
fn send(bench: &Bench, core: &Core, dst_port: u16, count: usize) {
    let port = core.ctx.switch.ports().get("eth1").expect("a port");
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([1, 0]);
    frame.extend(dst_port.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame.resize(60, 0);
    for _ in 0..count {
        bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
    }
}

/// Advances the clock to `now_ms` and returns the log lines about access lists that this causes.
fn logged(bench: &Bench, core: &mut Core, now_ms: u64) -> Vec<String> {
    let old = messages(&core.ctx).len();
    bench.clock.set(now_ms);
    core.plane_events();
    core.ctx.protocols.turn();
    core.tick();
    let new = messages(&core.ctx).into_iter().skip(old);
    new.filter_map(|line| Some(line.strip_prefix("IPACCESSLOG")?.to_owned())).collect()
}

#[test]
fn a_flow_is_reported_at_once_and_then_every_five_minutes() {
    let (bench, mut core) =
        switch(" 10 deny udp any any eq 53 log\n 20 deny udp any any eq 54\n 30 permit ip any any log-input");
    send(&bench, &core, 53, 3);
    send(&bench, &core, 54, 5);
    send(&bench, &core, 55, 1);
    assert_eq!(
        logged(&bench, &mut core, 1_000),
        [
            "P: list a denied udp 10.0.0.1(256) -> 10.0.0.2(53), 1 packet",
            "P: list a permitted udp 10.0.0.1(256) (eth1 0200.0000.0001) -> 10.0.0.2(55), 1 packet"
        ]
    );
    assert_eq!(logged(&bench, &mut core, 1_000 + SUMMARY_MS - 1), [""; 0]);
    assert_eq!(
        logged(&bench, &mut core, 1_000 + SUMMARY_MS),
        ["P: list a denied udp 10.0.0.1(256) -> 10.0.0.2(53), 2 packets"]
    );
    // The flow without packets has been forgotten: its next packet is the first one of a flow.
    send(&bench, &core, 55, 1);
    send(&bench, &core, 53, 1);
    assert_eq!(
        logged(&bench, &mut core, 1_000 + SUMMARY_MS + 1),
        ["P: list a permitted udp 10.0.0.1(256) (eth1 0200.0000.0001) -> 10.0.0.2(55), 1 packet"]
    );
    // Without a rule with log, the packets that no line has counted are reported.
    let before = messages(&core.ctx).len();
    core.take(config(&text(" 10 deny udp any any eq 53"))).expect("good");
    let new: Vec<String> = messages(&core.ctx).into_iter().skip(before).collect();
    assert!(
        new.iter()
            .any(|line| line == "IPACCESSLOGP: list a denied udp 10.0.0.1(256) -> 10.0.0.2(53), 1 packet"),
        "{new:?}"
    );
}

#[test]
fn a_threshold_shortens_the_time_between_lines() {
    let (bench, mut core) = switch(" 10 deny udp any any eq 53 log");
    let threshold =
        format!("ip access-list log-update threshold 2\n{}", text(" 10 deny udp any any eq 53 log"));
    core.take(config(&threshold)).expect("good");
    send(&bench, &core, 53, 6);
    let line = |count: &str| format!("P: list a denied udp 10.0.0.1(256) -> 10.0.0.2(53), {count}");
    assert_eq!(logged(&bench, &mut core, 1), [line("1 packet"), line("2 packets"), line("2 packets")]);
    assert_eq!(logged(&bench, &mut core, 1 + SUMMARY_MS), [line("1 packet")]);
}

/// Of the packets within the interval only the first is logged; the others are reported with their number.
#[test]
fn an_interval_limits_the_packets_that_are_logged() {
    let (bench, mut core) = switch(" 10 deny udp any any log");
    let interval = format!("ip access-list logging interval 200\n{}", text(" 10 deny udp any any log"));
    core.take(config(&interval)).expect("good");
    let line = |port: u16| format!("P: list a denied udp 10.0.0.1(256) -> 10.0.0.2({port}), 1 packet");
    (50..54).for_each(|port| send(&bench, &core, port, 1));
    assert_eq!(logged(&bench, &mut core, 1), [line(50)]);
    send(&bench, &core, 54, 1);
    assert_eq!(logged(&bench, &mut core, 200), [""; 0], "199 ms later");
    send(&bench, &core, 55, 2);
    assert_eq!(logged(&bench, &mut core, 201), [line(55)]);
    let missed = "RL: access-list logging rate-limited or missed 5 packets";
    assert_eq!(logged(&bench, &mut core, LOG_EVERY_MS), [missed]);
    core.take(config(&text(" 10 deny udp any any log"))).expect("good");
    (60..62).for_each(|port| send(&bench, &core, port, 1));
    assert_eq!(logged(&bench, &mut core, LOG_EVERY_MS + 1), [line(60), line(61)], "no interval");
}

/// The plane sends notes within the rate of their trap group; one log line has the number of the notes that
/// were dropped.
#[test]
fn the_number_of_rate_limited_notes_is_logged() {
    let (bench, mut core) = switch(" 10 deny udp any any log");
    let burst = core.ctx.plane.state().global.trap_port_rate[TrapGroup::AclLog.index()].burst as usize;
    (0..burst as u16 + 40).for_each(|port| send(&bench, &core, port, 1));
    let lines = logged(&bench, &mut core, 1);
    assert_eq!(lines.len(), burst);
    assert_eq!(
        logged(&bench, &mut core, LOG_EVERY_MS),
        ["RL: access-list logging rate-limited or missed 40 packets"]
    );
    assert_eq!(logged(&bench, &mut core, 2 * LOG_EVERY_MS), [""; 0]);
}

/// A note about a rule that is no longer there is counted, and makes no line.
#[test]
fn a_note_from_before_a_change_has_no_line() {
    let (bench, mut core) = switch(" 10 deny udp any any eq 53 log");
    send(&bench, &core, 53, 1);
    core.take(config(&text(" 10 deny udp any any eq 99 log"))).expect("good");
    assert_eq!(logged(&bench, &mut core, 1), [""; 0]);
    assert_eq!(
        logged(&bench, &mut core, LOG_EVERY_MS),
        ["RL: access-list logging rate-limited or missed 1 packet"]
    );
}

/// A switch chip sends no notes: lines are made of its counters, at most [`MAX_LINES`] of them.
#[test]
fn counters_make_a_bounded_number_of_lines() {
    let rules = (1..=30).map(|n| format!(" {n} deny udp any any eq {n} log")).collect::<Vec<_>>().join("\n");
    let (bench, mut core) = switch(&rules);
    let lines = |core: &mut Core| {
        let old = messages(&core.ctx).len();
        core.access_lists.log_counts(&mut core.ctx);
        messages(&core.ctx).into_iter().skip(old).collect::<Vec<_>>()
    };
    (1..=30).for_each(|port| send(&bench, &core, port, 1));
    core.plane_events();
    let first = lines(&mut core);
    assert_eq!(first.len(), MAX_LINES + 1);
    assert_eq!(first[0], "IPACCESSLOGS: list a denied 1 packets by rule 1");
    assert_eq!(
        first[MAX_LINES],
        "IPACCESSLOGS: and 10 more rules with log have matched: see show access-lists"
    );
    assert_eq!(lines(&mut core), [""; 0]);
    // Counters that were cleared begin again.
    core.clear_access_list_matches(None);
    send(&bench, &core, 2, 3);
    core.plane_events();
    assert_eq!(lines(&mut core), ["IPACCESSLOGS: list a denied 3 packets by rule 2"]);
}

#[test]
fn deadlines_exist_only_while_a_rule_needs_them() {
    let (_bench, mut core) = switch(" 10 permit ip any any");
    assert_eq!(core.access_lists.next_ms(&core.ctx), None);
    core.take(config(&text(" 10 permit ip any any log"))).expect("good");
    assert_eq!(core.access_lists.next_ms(&core.ctx), Some(LOG_EVERY_MS));
    core.take(config(&text(" 10 permit ip any any"))).expect("good");
    assert_eq!(core.access_lists.next_ms(&core.ctx), None);
    let timed = format!(
        "time-range t\n periodic daily 8:00 to 17:00\n{}",
        text(" 10 permit ip any any time-range t")
    );
    core.take(config(&timed)).expect("good");
    // Time ranges are looked at once at the commit, then at the beginning of each minute.
    core.tick();
    let at_ms = core.access_lists.next_ms(&core.ctx).expect("a deadline");
    assert!((1..=MINUTE_MS).contains(&at_ms), "{at_ms}");
}
