//! Access lists for management: time ranges that begin and end, and log messages about rules with `log`.
//!
//! The plane counts what rules decide. While a rule with `log` is in force, this module reads the counters once in
//! [`LOG_EVERY_MS`] and writes at most one line for each such rule, so a flood of denied frames fills no log. A time range is
//! looked at once a minute.

use crate::context::{Context, Module};
use lanyard_acl::condition::Verdict;
use lanyard_acl::time::Minute;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The interval of log messages about rules, in milliseconds.
const LOG_EVERY_MS: u64 = 5_000;
/// The interval in which time ranges are looked at, in milliseconds.
const MINUTE_MS: u64 = 60_000;
/// The most log lines at once.
const MAX_LINES: usize = 20;

/// The list and the number of a rule.
type RuleName = (String, u32);

/// The deadlines, and the counts that the log has reported.
#[derive(Debug, Default)]
pub(crate) struct AccessLists {
    /// When the log is due; `None` while no rule has `log`.
    log_ms: Option<u64>,
    /// When time ranges are due; `None` while no rule has one.
    times_ms: Option<u64>,
    /// The matches of each rule with `log` when it was last reported.
    reported: BTreeMap<RuleName, u64>,
}

impl Module for AccessLists {
    type Event<'a> = ();
    fn configure(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        let logs = ctx.plane.state().acls.values().any(|list| list.rules.iter().any(|rule| rule.log));
        let timed = |list: &lanyard_acl::AccessList| list.rules().any(|(_, rule)| rule.time_range.is_some());
        let times = ctx.switch.config().lists.access.values().any(timed);
        self.log_ms = logs.then(|| self.log_ms.unwrap_or(now_ms + LOG_EVERY_MS));
        self.times_ms = times.then(|| self.times_ms.unwrap_or(now_ms));
        if !logs {
            self.reported.clear();
        }
    }
    fn handle(&mut self, _ctx: &mut Context, (): ()) -> usize {
        0
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        [self.log_ms, self.times_ms].into_iter().flatten().min()
    }
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.log_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.log_ms = Some(now_ms + LOG_EVERY_MS);
            self.log(ctx);
        }
    }
}

fn since_epoch_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The present minute, UTC.
pub(crate) fn minute_now() -> Minute {
    Minute((since_epoch_ms() / MINUTE_MS) as i64)
}

impl AccessLists {
    /// Tells the switch the time if time ranges are due; true if the caller has to settle the plane.
    pub(crate) fn times_due(&mut self, ctx: &mut Context) -> bool {
        let now_ms = ctx.clock.now_ms();
        let due = self.times_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if due {
            ctx.switch.set_minute(minute_now());
            self.times_ms = Some(now_ms + MINUTE_MS - since_epoch_ms() % MINUTE_MS);
        }
        due
    }

    fn log(&mut self, ctx: &mut Context) {
        let mut now: BTreeMap<RuleName, (u64, bool)> = BTreeMap::new();
        let lists = ctx.plane.state().acls.clone();
        for (id, list) in &lists {
            let matches = ctx.plane.acl_matches(*id);
            for (rule, count) in list.rules.iter().zip(matches).filter(|(rule, _)| rule.log) {
                let name = list.names.get(usize::from(rule.list)).cloned().unwrap_or_default();
                let denies = rule.verdict == Verdict::Deny;
                now.entry((name, rule.seq)).or_insert((0, denies)).0 += count;
            }
        }
        let mut lines = Vec::new();
        for ((name, seq), (count, denies)) in &now {
            let before = self.reported.get(&(name.clone(), *seq)).copied().unwrap_or(0);
            // Counters that were cleared begin again.
            let new = if *count >= before { count - before } else { *count };
            if new > 0 {
                let did = if *denies { "denied" } else { "permitted" };
                lines.push(format!("list {name} {did} {new} packets by rule {seq}"));
            }
        }
        let more = lines.len().saturating_sub(MAX_LINES);
        lines.truncate(MAX_LINES);
        if more > 0 {
            lines.push(format!("and {more} more rules with log have matched: see show access-lists"));
        }
        lines.iter().for_each(|line| ctx.log("SEC", 6, "IPACCESSLOGS", line));
        self.reported = now.into_iter().map(|(rule, (count, _))| (rule, count)).collect();
    }
}

#[cfg(test)]
#[path = "access_lists_tests.rs"]
mod tests;
