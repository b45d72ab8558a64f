//! Access lists of a whole switch, with a kernel and a plane in memory.

use super::*;
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

/// The lines that the log got about rules when this time was reached.
fn logged(bench: &Bench, core: &mut Core, now_ms: u64) -> Vec<String> {
    let old = messages(&core.ctx).len();
    bench.clock.set(now_ms);
    core.plane_events();
    core.tick();
    let new = messages(&core.ctx).into_iter().skip(old);
    new.filter_map(|line| Some(line.strip_prefix("IPACCESSLOGS: ")?.to_owned())).collect()
}

#[test]
fn rules_with_log_are_reported_once_in_an_interval() {
    let (bench, mut core) =
        switch(" 10 deny udp any any eq 53 log\n 20 deny udp any any eq 54\n 30 permit ip any any log");
    send(&bench, &core, 53, 3);
    send(&bench, &core, 54, 5);
    send(&bench, &core, 55, 2);
    assert_eq!(logged(&bench, &mut core, LOG_EVERY_MS - 1), [""; 0]);
    assert_eq!(
        logged(&bench, &mut core, LOG_EVERY_MS),
        ["list a denied 3 packets by rule 10", "list a permitted 2 packets by rule 30"]
    );
    // Nothing new, then one packet more, then counters that were cleared.
    assert_eq!(logged(&bench, &mut core, 2 * LOG_EVERY_MS), [""; 0]);
    send(&bench, &core, 53, 1);
    assert_eq!(logged(&bench, &mut core, 3 * LOG_EVERY_MS), ["list a denied 1 packets by rule 10"]);
    core.clear_access_list_matches(None);
    send(&bench, &core, 53, 2);
    assert_eq!(logged(&bench, &mut core, 4 * LOG_EVERY_MS), ["list a denied 2 packets by rule 10"]);
}

#[test]
fn a_flood_over_many_rules_makes_a_bounded_number_of_lines() {
    let rules = (1..=30).map(|n| format!(" {n} deny udp any any eq {n} log")).collect::<Vec<_>>().join("\n");
    let (bench, mut core) = switch(&rules);
    (1..=30).for_each(|port| send(&bench, &core, port, 1));
    let lines = logged(&bench, &mut core, LOG_EVERY_MS);
    assert_eq!(lines.len(), MAX_LINES + 1);
    assert_eq!(lines[MAX_LINES], "and 10 more rules with log have matched: see show access-lists");
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
