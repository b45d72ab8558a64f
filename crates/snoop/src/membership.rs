//! The membership of the hosts at one port in one group: the filter mode and source timers of a router (RFC 3376, 6.2
//! and 6.4; RFC 3810, 7.2 and 7.4).
//!
//! In mode EXCLUDE(X, Y) a source of X is wanted by some host and has a timer; no host wants a source of Y. In mode
//! INCLUDE(A) every source of A has a timer. Times are milliseconds.

use crate::message::RecordKind;
use lanyard_types::MacAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Most sources of a group at a port, unless the port has a lower limit; a record that would need more leaves the group open
/// for all sources.
pub const MAX_SOURCES_AT_PORT: usize = 128;
/// Most hosts of a group at a port that are stored, for `immediate-leave`. With more hosts, a leave is handled as if
/// others remained.
const MAX_HOSTS: usize = 32;

/// Queries that the state change calls for (the Q of RFC 3376, 6.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LastMemberQueries {
    /// A group-specific query.
    pub(crate) group: bool,
    /// A group-and-source-specific query for these sources; empty: none.
    pub(crate) sources: BTreeSet<IpAddr>,
}

/// Durations for the timers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Group Membership Interval.
    pub(crate) membership_ms: u64,
    /// Last Member Query Time.
    pub(crate) last_member_ms: u64,
}

/// The membership of the hosts at one port in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    /// The group timer: set in mode EXCLUDE.
    group_timer: Option<u64>,
    /// The sources with timers, X or A, and when the timers expire.
    wanted: BTreeMap<IpAddr, u64>,
    /// The sources that no host wants, Y.
    excluded: BTreeSet<IpAddr>,
    /// Until when hosts of old versions are assumed to be present (RFC 3376, 7.3.2): of version 1 (IGMP), whose members send no
    /// leave, and of a version without sources, because of which sources cannot be blocked.
    pub(crate) version_1: Option<u64>,
    pub(crate) without_sources: Option<u64>,
    /// The time under which the VLAN's schedule has this membership; `None` if it has it not.
    pub(crate) scheduled: Option<u64>,
    /// The hosts that have reported; `None` if they are not known: there are more than are stored, or the membership was taken
    /// over after a restart.
    hosts: Option<BTreeSet<MacAddr>>,
}

/// A membership without members. Its set of hosts is empty, not unknown.
impl Default for Membership {
    fn default() -> Self {
        Self {
            group_timer: None,
            wanted: BTreeMap::new(),
            excluded: BTreeSet::new(),
            version_1: None,
            without_sources: None,
            scheduled: None,
            hosts: Some(BTreeSet::new()),
        }
    }
}

impl Membership {
    /// True if no host wants any source.
    pub(crate) fn is_over(&self) -> bool {
        self.group_timer.is_none() && self.wanted.is_empty()
    }
    /// True in mode EXCLUDE.
    pub(crate) fn is_exclude(&self) -> bool {
        self.group_timer.is_some()
    }
    /// True if frames of the group are wanted from `source`; `None`: from sources that no record names.
    pub(crate) fn wants(&self, source: Option<IpAddr>) -> bool {
        match source {
            None => self.is_exclude(),
            Some(source) => {
                self.wanted.contains_key(&source) || self.is_exclude() && !self.excluded.contains(&source)
            }
        }
    }
    /// Every source that is wanted or excluded by name.
    pub(crate) fn sources(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.wanted.keys().chain(&self.excluded).copied()
    }
    /// When the last member is removed if no report arrives.
    pub(crate) fn expires(&self) -> Option<u64> {
        self.group_timer.into_iter().chain(self.wanted.values().copied()).max()
    }
    /// The earliest timer.
    pub(crate) fn next(&self) -> Option<u64> {
        self.group_timer.into_iter().chain(self.wanted.values().copied()).min()
    }

    /// The membership that a plane's entries show after a restart: mode EXCLUDE or INCLUDE with these sources. Its hosts are
    /// not known, so no leave ends it at once.
    pub(crate) fn found(
        exclude: bool,
        wanted: BTreeSet<IpAddr>,
        excluded: BTreeSet<IpAddr>,
        until: u64,
    ) -> Self {
        Self {
            group_timer: exclude.then_some(until),
            wanted: wanted.into_iter().map(|source| (source, until)).collect(),
            excluded,
            hosts: None,
            ..Self::default()
        }
    }

    /// Records that a host has reported.
    pub(crate) fn note(&mut self, host: MacAddr) {
        if let Some(hosts) = &mut self.hosts {
            hosts.insert(host);
            if hosts.len() > MAX_HOSTS {
                self.hosts = None;
            }
        }
    }
    /// Removes a host that leaves; true if no other host is known to be a member.
    pub(crate) fn leaves(&mut self, host: MacAddr) -> bool {
        self.hosts.as_mut().is_some_and(|hosts| {
            hosts.remove(&host);
            hosts.is_empty()
        })
    }
    /// Ends the membership.
    pub(crate) fn end(&mut self) {
        *self = Self { scheduled: self.scheduled, ..Self::default() };
    }

    /// Takes a record (the tables of RFC 3376, 6.4.1 and 6.4.2); returns the last-member queries that are due before sources or
    /// the group are cut off. With more than `most` sources the group is open for all of them.
    pub(crate) fn take(
        &mut self,
        now: u64,
        kind: RecordKind,
        sources: &[IpAddr],
        time: Timing,
        most: usize,
    ) -> LastMemberQueries {
        let old = self.without_sources.is_some_and(|until| until > now);
        let mut list: BTreeSet<IpAddr> = sources.iter().copied().collect();
        match kind {
            RecordKind::Block if old => return LastMemberQueries::default(),
            RecordKind::ToExclude if old => list.clear(),
            _ => {}
        }
        let until = now + time.membership_ms;
        let mut queries = LastMemberQueries::default();
        match (self.is_exclude(), kind) {
            (_, RecordKind::IsInclude | RecordKind::Allow) => self.want(&list, until),
            (false, RecordKind::ToInclude) => {
                queries.sources =
                    self.wanted.keys().filter(|source| !list.contains(source)).copied().collect();
                self.want(&list, until);
            }
            (true, RecordKind::ToInclude) => {
                queries.sources =
                    self.wanted.keys().filter(|source| !list.contains(source)).copied().collect();
                queries.group = true;
                self.want(&list, until);
            }
            (false, RecordKind::Block) => {
                queries.sources = self.wanted.keys().filter(|source| list.contains(source)).copied().collect()
            }
            (true, RecordKind::Block) => {
                let timer = self.group_timer.unwrap_or(until);
                let fresh: Vec<IpAddr> = list
                    .iter()
                    .filter(|source| !self.wanted.contains_key(source) && !self.excluded.contains(source))
                    .copied()
                    .collect();
                queries.sources =
                    list.iter().filter(|source| !self.excluded.contains(source)).copied().collect();
                self.wanted.extend(fresh.into_iter().map(|source| (source, timer)));
            }
            (false, RecordKind::IsExclude | RecordKind::ToExclude) => {
                self.wanted.retain(|source, _| list.contains(source));
                self.excluded =
                    list.iter().filter(|source| !self.wanted.contains_key(source)).copied().collect();
                if kind == RecordKind::ToExclude {
                    queries.sources = self.wanted.keys().copied().collect();
                }
                self.group_timer = Some(until);
            }
            (true, RecordKind::IsExclude | RecordKind::ToExclude) => {
                let timer =
                    if kind == RecordKind::ToExclude { self.group_timer.unwrap_or(until) } else { until };
                self.excluded.retain(|source| list.contains(source));
                self.wanted.retain(|source, _| list.contains(source));
                for source in list.iter().filter(|source| !self.excluded.contains(source)) {
                    self.wanted.entry(*source).or_insert(timer);
                }
                if kind == RecordKind::ToExclude {
                    queries.sources = self.wanted.keys().copied().collect();
                }
                self.group_timer = Some(until);
            }
        }
        self.bound(until, most);
        queries
    }

    fn want(&mut self, list: &BTreeSet<IpAddr>, until: u64) {
        for source in list {
            self.excluded.remove(source);
            self.wanted.insert(*source, until);
        }
    }

    /// With more than `most` sources, wants all sources instead, so that no host misses frames.
    fn bound(&mut self, until: u64, most: usize) {
        if self.wanted.len() + self.excluded.len() > most {
            self.wanted.clear();
            self.excluded.clear();
            self.group_timer = Some(self.group_timer.unwrap_or(until));
        }
    }

    /// A query was sent for these sources, or for the group: timers are lowered to the time within which members answer
    /// (6.6.3).
    pub(crate) fn queried(&mut self, now: u64, queries: &LastMemberQueries, time: Timing) {
        let until = now + time.last_member_ms;
        if queries.group {
            self.group_timer = self.group_timer.map(|timer| timer.min(until));
        }
        for source in &queries.sources {
            if let Some(timer) = self.wanted.get_mut(source) {
                *timer = (*timer).min(until);
            }
        }
    }

    /// Carries out timers that are due (6.3, 6.5); true if the state has changed.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        let gone: Vec<IpAddr> =
            self.wanted.iter().filter(|(_, at)| **at <= now).map(|(source, _)| *source).collect();
        let group = self.group_timer.is_some_and(|at| at <= now);
        for source in &gone {
            self.wanted.remove(source);
            // In mode EXCLUDE no host wants a source whose timer has run out.
            if self.is_exclude() {
                self.excluded.insert(*source);
            }
        }
        if group {
            // Change to mode INCLUDE with the sources that have timers.
            self.group_timer = None;
            self.excluded.clear();
        }
        group || !gone.is_empty()
    }
}
