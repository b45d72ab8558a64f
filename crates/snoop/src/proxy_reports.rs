//! Proxy reporting (RFC 4541, 2.1.1, 1; the merge of RFC 3376, 3.2, over ports): the switch answers the queries of routers
//! from its own table, and no report of a host reaches a router.
//!
//! The switch reports a group when the union of the sources that its hosts want changes, and in answer to queries. Reports have
//! the version of the oldest querier from which a query was received in the Other Querier Present Interval (RFC 3376, 7.2.1).
//! Invariant: a call sends a bounded number of frames; the rest waits for [`PAUSE_MS`].

use crate::message::{Family, Query, Record, RecordKind};
use crate::proxy::{Proxy, Report, Reported};
use crate::vlan::Vlan;
use lanyard_types::PortId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Unsolicited Report Interval (RFC 3376, 8.11): the time between two reports of one change.
const REPEAT_MS: u64 = 1000;
/// The most records that one call sends with the newest version, which puts many into a frame, and the most reports that it sends
/// with an old one. 16,384 groups take 6.4 s with an old version, less than the default time for answers.
const RECORDS: usize = 2048;
const OLD_REPORTS: usize = 128;
const PAUSE_MS: u64 = 50;
/// Bytes of records that a frame has room for, of an MTU of 1500: behind the IPv4 header with router alert, and behind the IPv6
/// header with the hop-by-hop header; the report's own header has 8.
const ROOM: [usize; 2] = [1500 - 24 - 8, 1500 - 48 - 8];

const fn newest(family: Family) -> u8 {
    match family {
        Family::V4 => 3,
        Family::V6 => 2,
    }
}

impl Vlan {
    /// Takes a query of a router.
    pub(crate) fn answer(&mut self, now: u64, family: Family, query: &Query) {
        if query.version < newest(family) {
            let known = self.proxy.old.filter(|(_, until)| *until > now).map(|(version, _)| version);
            let version = known.unwrap_or(query.version).min(query.version);
            self.proxy.old = Some((version, now + self.config.other_querier_ms()));
        }
        match query.group {
            None => self.proxy.answers = self.proxy.reported.keys().map(|g| (*g, BTreeSet::new())).collect(),
            Some(group) if self.proxy.reported.contains_key(&group) => {
                let sources: BTreeSet<IpAddr> = query.sources.iter().copied().collect();
                let asked = self.proxy.answers.entry(group).or_insert_with(|| sources.clone());
                // The answer to two queries of one group covers the sources of both.
                if asked.is_empty() || sources.is_empty() {
                    asked.clear();
                } else {
                    asked.extend(sources);
                }
            }
            Some(_) => {}
        }
    }

    /// The filter mode and the sources of a group for the hosts of all ports together; `None`: no host wants the group.
    pub(crate) fn wanted(&self, group: IpAddr) -> Option<Reported> {
        let exclude = !self.ports(group, None).is_empty();
        let sources: BTreeSet<IpAddr> = self
            .sources(group)
            .into_iter()
            .filter(|source| self.ports(group, Some(*source)).is_empty() == exclude)
            .collect();
        (exclude || !sources.is_empty()).then_some((exclude, sources))
    }

    /// The only port with members of a group, if it leads to a router.
    fn only_port(&self, group: IpAddr) -> Option<PortId> {
        let mut ports = self.config.static_groups.get(&group).cloned().unwrap_or_default();
        for (port, _) in self.members(group) {
            ports.insert(port);
        }
        let mut ports = ports.iter();
        let only = ports.next().filter(|_| ports.next().is_none())?;
        let routes = self.config.static_routers.contains(only) || self.router_expires(only).is_some();
        routes.then_some(only)
    }

    /// Compares the groups in `touched` with the state last reported to routers, and makes the reports that are due.
    pub(crate) fn report(&mut self, now: u64, family: Family) -> Vec<Report> {
        if !self.config.proxy {
            self.proxy = Proxy::default();
            return Vec::new();
        }
        for group in self.touched.clone() {
            let wanted = self.wanted(group);
            if wanted.as_ref() != self.proxy.reported.get(&group) {
                match wanted {
                    Some(wanted) => _ = self.proxy.reported.insert(group, wanted),
                    None => _ = self.proxy.reported.remove(&group),
                }
                self.proxy.schedule(group, self.config.robustness.max(1), now);
            }
        }
        self.proxy.old = self.proxy.old.filter(|(_, until)| *until > now);
        if self.proxy.paused.is_some_and(|until| until > now) {
            return Vec::new();
        }
        self.proxy.paused = None;
        let version = self.proxy.old.map_or(newest(family), |(version, _)| version);
        let mut packer = Packer { version, family, done: Vec::new(), open: BTreeMap::new() };
        let most = if version == newest(family) { RECORDS } else { OLD_REPORTS };
        for _ in 0..most {
            if let Some((at, group)) = self.proxy.queue.first().copied().filter(|(at, _)| *at <= now) {
                let left = self.proxy.changes.get(&group).map_or(0, |(left, _)| *left);
                debug_assert!(left > 0 && at <= now);
                self.proxy.schedule(group, left.saturating_sub(1), now + REPEAT_MS);
                // The report of a change has the whole state of the group, so a query of it needs no further answer.
                self.proxy.answers.remove(&group);
                let reported = self.proxy.reported.get(&group).cloned().unwrap_or_default();
                packer.put(self.only_port(group), group, reported, true);
            } else if let Some((group, asked)) = self.proxy.answers.pop_first() {
                let Some((exclude, sources)) = self.proxy.reported.get(&group).cloned() else { continue };
                // RFC 3376, 5.2: of the sources that were asked for, those that are wanted.
                let state = match (asked.is_empty(), exclude) {
                    (true, _) => (exclude, sources),
                    (false, true) => (false, &asked - &sources),
                    (false, false) => (false, &asked & &sources),
                };
                if state.0 || !state.1.is_empty() {
                    packer.put(self.only_port(group), group, state, false);
                }
            } else {
                return packer.finish();
            }
        }
        self.proxy.paused = Some(now + PAUSE_MS);
        packer.finish()
    }
}

/// Fills reports with records.
struct Packer {
    version: u8,
    family: Family,
    done: Vec<Report>,
    /// For each `not_to`, the report that still has room: the bytes of its records, and the records.
    open: BTreeMap<Option<PortId>, (usize, Vec<Record>)>,
}

impl Packer {
    fn put(&mut self, not_to: Option<PortId>, group: IpAddr, (exclude, sources): Reported, changed: bool) {
        let kind = match (exclude, changed) {
            (true, true) => RecordKind::ToExclude,
            (true, false) => RecordKind::IsExclude,
            (false, true) => RecordKind::ToInclude,
            (false, false) => RecordKind::IsInclude,
        };
        if self.version < newest(self.family) {
            // Members of IGMPv1 leave silently.
            let leaves = !exclude && sources.is_empty();
            if !(leaves && self.family == Family::V4 && self.version == 1) {
                let records = vec![Record { kind, group, sources: sources.into_iter().collect() }];
                self.done.push(Report { version: self.version, not_to, records });
            }
            return;
        }
        let (head, each, room) = match self.family {
            Family::V4 => (8, 4, ROOM[0]),
            Family::V6 => (20, 16, ROOM[1]),
        };
        let sources: Vec<IpAddr> = sources.into_iter().collect();
        let mut parts = sources.chunks((room - head) / each);
        let first = parts.next().unwrap_or_default();
        self.add(not_to, head + each * first.len(), Record { kind, group, sources: first.to_vec() }, room);
        // If the sources do not fit into one frame, further wanted ones follow in ALLOW records, and further excluded ones are
        // left out (RFC 3376, 4.2.16).
        for part in parts.filter(|_| !exclude) {
            let record = Record { kind: RecordKind::Allow, group, sources: part.to_vec() };
            self.add(not_to, head + each * part.len(), record, room);
        }
    }
    fn add(&mut self, not_to: Option<PortId>, bytes: usize, record: Record, room: usize) {
        let (used, records) = self.open.entry(not_to).or_default();
        if *used + bytes > room {
            self.done.push(Report { version: self.version, not_to, records: std::mem::take(records) });
            *used = 0;
        }
        *used += bytes;
        records.push(record);
    }
    fn finish(self) -> Vec<Report> {
        let mut done = self.done;
        let last = self.open.into_iter().filter(|(_, (_, records))| !records.is_empty());
        done.extend(last.map(|(not_to, (_, records))| Report { version: self.version, not_to, records }));
        done
    }
}
