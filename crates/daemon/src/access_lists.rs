//! The management thread's part of access lists: time ranges that begin and end, and log messages about rules with `log`.
//!
//! The plane sends a note about each frame that a rule with `log` has decided about, within the rate of a trap group, and
//! [`Flows`] makes log lines of the notes. Every [`LOG_EVERY_MS`] this module reads how many notes the rate limit has dropped.
//! A switch chip sends no notes: there this module reads the counters of rules with `log` at the same interval, and writes at
//! most one line for each rule, without addresses. Time ranges are evaluated once a minute.

use crate::access_flows::{Flow, Flows, Seen};
use crate::context::{Context, Module};
use lanyard_acl::Kind;
use lanyard_acl::condition::Verdict;
use lanyard_acl::note::Note;
use lanyard_acl::time::Minute;
use lanyard_types::{PortId, TrapGroup};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The interval of log messages about rules, in milliseconds.
const LOG_EVERY_MS: u64 = 5_000;
/// The interval in which time ranges are looked at, in milliseconds.
const MINUTE_MS: u64 = 60_000;
/// The maximum number of log lines at one reading of the counters.
const MAX_LINES: usize = 20;

/// The list and the number of a rule.
type RuleName = (String, u32);

/// The notes that the plane has sent, each with the port that received the frame, and the number of notes that were dropped
/// because the queue to management was full.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) notes: Vec<(PortId, Note)>,
    pub(crate) missed: u64,
}

/// The deadlines, the flows, and the counts that the log has reported.
#[derive(Debug, Default)]
pub(crate) struct AccessLists {
    /// When the dropped notes, or a chip's counters, are read next; `None` while no rule has `log`.
    log_ms: Option<u64>,
    /// When time ranges are evaluated next; `None` while no rule has one.
    times_ms: Option<u64>,
    /// The matches of each rule with `log` when it was last reported.
    reported: BTreeMap<RuleName, u64>,
    flows: Flows,
    /// When a packet was last logged or counted; packets within the configured interval after it are only added to `missed`.
    counted_ms: Option<u64>,
    /// The packets that no flow's line counts, until one line reports their number.
    missed: u64,
    /// The number of notes that the plane had dropped when it was last read; `None` before the first reading.
    left_out: Option<u64>,
}

impl Module for AccessLists {
    type Event<'a> = Notes;
    fn configure(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        let logs = ctx.plane.state().acls.values().any(|list| list.rules.iter().any(|rule| rule.log));
        let timed = |list: &lanyard_acl::AccessList| list.rules().any(|(_, rule)| rule.time_range.is_some());
        let times = ctx.switch.config().lists.access.values().any(timed);
        self.log_ms = logs.then(|| self.log_ms.unwrap_or(now_ms + LOG_EVERY_MS));
        self.times_ms = times.then(|| self.times_ms.unwrap_or(now_ms));
        if logs {
            self.left_out.get_or_insert_with(|| left_out(ctx));
        } else {
            self.reported.clear();
            self.left_out = None;
            let rest = self.flows.end();
            rest.iter().for_each(|(flow, packets)| log_flow(ctx, flow, *packets));
        }
    }
    fn handle(&mut self, ctx: &mut Context, Notes { notes, missed }: Notes) -> usize {
        self.missed += missed;
        let now_ms = ctx.clock.now_ms();
        let lists = &ctx.switch.config().lists;
        let (threshold, interval_ms) = (lists.log_threshold, u64::from(lists.log_interval_ms));
        for (port, note) in &notes {
            let Some(flow) = flow(ctx, *port, note) else {
                self.missed += 1;
                continue;
            };
            if self.counted_ms.is_some_and(|at_ms| now_ms < at_ms + interval_ms) {
                self.missed += 1;
                continue;
            }
            self.counted_ms = Some(now_ms);
            if let Some(packets) = self.flows.count(now_ms, &flow, threshold) {
                log_flow(ctx, &flow, packets);
            }
        }
        notes.len()
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        [self.log_ms, self.times_ms, self.flows.next_ms()].into_iter().flatten().min()
    }
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        let due = self.flows.due(now_ms);
        due.iter().for_each(|(flow, packets)| log_flow(ctx, flow, *packets));
        if self.log_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.log_ms = Some(now_ms + LOG_EVERY_MS);
            if ctx.plane.capabilities().acl_notes { self.log_missed(ctx) } else { self.log_counts(ctx) }
        }
    }
}

/// The flow of a frame; `None` if the list was replaced after the plane had processed the frame.
fn flow(ctx: &Context, port: PortId, note: &Note) -> Option<Flow> {
    let list = ctx.plane.state().acls.get(&note.list)?;
    let rule = list.rules.get(usize::from(note.rule)).filter(|rule| rule.log && rule.matches(&note.key))?;
    let name = list.names.get(usize::from(rule.list))?;
    let kind = ctx.switch.config().lists.access.get(name).map(|list| list.kind);
    let interface = ctx.port_name(port);
    let seen = Seen {
        list: name,
        standard: kind == Some(Kind::Standard),
        rule,
        interface: &interface,
        mac: note.src,
    };
    Some(Flow::of(&seen, &note.key))
}

fn log_flow(ctx: &mut Context, flow: &Flow, packets: u64) {
    ctx.log(flow.facility, 6, flow.mnemonic, &flow.line(packets));
}

/// The number of notes that the plane has dropped since it was created, because of the rate limit or a full queue.
fn left_out(ctx: &mut Context) -> u64 {
    let counters = ctx.plane.trap_counters()[TrapGroup::AclLog.index()];
    counters.policed + counters.lost
}

fn since_epoch_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The present minute, UTC.
pub(crate) fn minute_now() -> Minute {
    Minute((since_epoch_ms() / MINUTE_MS) as i64)
}

impl AccessLists {
    /// Passes the present minute to the switch if time ranges are due. Returns true if the caller has to settle the plane.
    pub(crate) fn times_due(&mut self, ctx: &mut Context) -> bool {
        let now_ms = ctx.clock.now_ms();
        let due = self.times_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if due {
            ctx.switch.set_minute(minute_now());
            self.times_ms = Some(now_ms + MINUTE_MS - since_epoch_ms() % MINUTE_MS);
        }
        due
    }

    /// Writes one line with the number of packets that no flow's line counts.
    fn log_missed(&mut self, ctx: &mut Context) {
        let (now, before) = (left_out(ctx), self.left_out.unwrap_or(0));
        self.left_out = Some(now);
        // The counters of a plane that was created anew begin at 0.
        let new = if now >= before { now - before } else { now };
        let missed = new + std::mem::take(&mut self.missed) + self.flows.take_missed();
        if missed > 0 {
            let text = format!(
                "access-list logging rate-limited or missed {missed} packet{}",
                if missed == 1 { "" } else { "s" }
            );
            ctx.log("SEC", 6, "IPACCESSLOGRL", &text);
        }
    }

    /// Handles that the counters of this access list, or with `None` of all, were set to 0.
    pub(crate) fn forget(&mut self, only: Option<&str>) {
        self.reported.retain(|(list, _), _| only.is_some_and(|only| list != only));
    }

    /// Writes a line about each rule with `log` that has decided about frames since the last time.
    fn log_counts(&mut self, ctx: &mut Context) {
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
            // A list that was replaced may begin to count again.
            let new = count.checked_sub(before).unwrap_or(*count);
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
