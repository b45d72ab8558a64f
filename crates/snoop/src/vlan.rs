//! One VLAN and family: its groups, the ports that lead to routers, and its querier.

use crate::config::VlanConfig;
use crate::membership::{LastMemberQueries, MAX_SOURCES_AT_PORT, Membership, Timing};
use crate::message::{Family, Message, Query, Received, Record, RecordKind, is_always_flooded};
use crate::proxy::Proxy;
use lanyard_types::{MacAddr, PortId, PortSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The ports to which a received frame is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relay {
    /// All other ports of the VLAN.
    All,
    /// The other ports that lead to routers.
    Routers,
    /// No port.
    Nobody,
}

/// A query that this switch sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The port; `None` is every port of the VLAN.
    pub(crate) port: Option<PortId>,
    pub(crate) query: Query,
}

/// A query for a last member, to be repeated.
#[derive(Debug, Clone)]
struct Repeat {
    port: PortId,
    group: IpAddr,
    sources: BTreeSet<IpAddr>,
    left: u8,
    next: u64,
}

/// The querier's state (RFC 3376, 6.6.2).
#[derive(Debug, Clone, Copy, Default)]
struct QuerierState {
    /// When the next general query leaves; `None` while another querier is present, and when the switch is not a querier.
    next: Option<u64>,
    /// The number of general queries that are still sent at the shorter startup interval.
    startup: u8,
    /// The other querier, and until when it counts as present.
    other: Option<(IpAddr, u64)>,
}

/// The groups that are flooded in spite of snooping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flood {
    /// Nothing.
    #[default]
    Nothing,
    /// Groups without members, because memberships were refused: one of the refused may be a member.
    Unregistered,
    /// All groups, because members may be at other ports since the topology has changed.
    All,
}

/// Why a report was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The port has as many groups as it may have.
    Port,
    /// The switch has as many memberships as it may have.
    Switch,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Vlan {
    pub(crate) config: VlanConfig,
    /// The dynamic members of each group.
    groups: BTreeMap<IpAddr, BTreeMap<PortId, Membership>>,
    /// The number of groups of each port, and the sum over all ports.
    at_port: BTreeMap<PortId, u32>,
    memberships: usize,
    /// The memberships by a time that is not later than their next timer, so that the work of a timer does not grow with the
    /// number of memberships. If a timer has been moved to a later time, its membership is entered again when the old time has
    /// come.
    schedule: BTreeSet<(u64, IpAddr, PortId)>,
    /// The learned ports that lead to routers, and until when they count as such.
    routers: BTreeMap<PortId, u64>,
    querier: QuerierState,
    repeats: Vec<Repeat>,
    /// The state of proxy reporting.
    pub(crate) proxy: Proxy,
    /// Groups whose report has been passed on since the last query, and until when that counts.
    reported: BTreeMap<IpAddr, u64>,
    /// After a change of topology: the number of general queries that are still to follow before the flooding of all groups ends,
    /// and the time at which it ends at the latest.
    tcn: Option<(u8, u64)>,
    /// Until when groups without an entry are flooded, because memberships were refused.
    overflow: Option<u64>,
    /// True if there may be changes, besides those of `touched`, that have not been announced to the caller.
    pub(crate) fresh: bool,
    /// Queries that are to be sent.
    pub(crate) to_send: Vec<Sent>,
    /// Groups whose ports may have changed.
    pub(crate) touched: BTreeSet<IpAddr>,
}

/// Most queries for last members that wait to be repeated in a VLAN; further leaves cause one query each.
const MAX_REPEATS: usize = 4096;

impl Vlan {
    fn timing(&self) -> Timing {
        Timing {
            membership_ms: self.config.membership_ms(),
            last_member_ms: self.config.last_member_time_ms(),
        }
    }
    fn version(&self, family: Family) -> u8 {
        self.config.querier.map_or(if family == Family::V4 { 3 } else { 2 }, |querier| querier.version)
    }

    /// Takes new settings.
    pub(crate) fn configure(&mut self, now: u64, config: VlanConfig) {
        let gone: Vec<PortId> =
            self.config.ports.iter().filter(|port| !config.ports.contains(*port)).collect();
        self.touched.extend(self.config.static_groups.keys().chain(config.static_groups.keys()));
        if config.proxy && !self.config.proxy {
            self.touched.extend(self.groups.keys());
        }
        let querier_changed = self.config.querier != config.querier;
        self.fresh = true;
        self.config = config;
        for port in gone {
            self.forget(port);
        }
        if querier_changed {
            self.querier.next = None;
            self.begin_querier(now);
        }
    }
    fn begin_querier(&mut self, now: u64) {
        if self.config.querier.is_some() && self.querier.other.is_none() && self.querier.next.is_none() {
            (self.querier.next, self.querier.startup) = (Some(now), self.config.robustness);
        }
    }

    /// Removes the state learned at a port, because the port has left the VLAN or its link is down.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.routers.remove(&port);
        self.repeats.retain(|repeat| repeat.port != port);
        self.memberships -= self.at_port.remove(&port).unwrap_or(0) as usize;
        let touched = &mut self.touched;
        self.groups.retain(|group, members| {
            if members.remove(&port).is_some() {
                touched.insert(*group);
            }
            !members.is_empty()
        });
    }

    /// Forgets all members, for `clear ip igmp snooping membership`.
    pub(crate) fn clear(&mut self) {
        self.touched.extend(self.groups.keys());
        self.groups.clear();
        self.schedule.clear();
        self.at_port.clear();
        self.memberships = 0;
        self.repeats.clear();
    }

    /// The ports that lead to routers.
    pub(crate) fn routers(&self) -> PortSet {
        let mut all = self.config.static_routers.clone();
        for port in self.routers.keys() {
            all.insert(*port);
        }
        all
    }
    /// Until when the port counts as one that leads to a router; `None` if it has received no message of a router.
    pub(crate) fn router_expires(&self, port: PortId) -> Option<u64> {
        self.routers.get(&port).copied()
    }
    /// The querier of the VLAN and whether it is this switch.
    pub(crate) fn querier(&self) -> Option<(IpAddr, bool)> {
        match self.querier.other {
            Some((address, _)) => Some((address, false)),
            None => self.config.querier.map(|querier| (querier.address, true)),
        }
    }
    /// The number of memberships: a group at a port counts once.
    pub(crate) const fn memberships(&self) -> usize {
        self.memberships
    }
    /// The groups that are flooded in spite of snooping.
    pub(crate) const fn flooded(&self) -> Flood {
        match (self.tcn, self.overflow) {
            (Some(_), _) => Flood::All,
            (None, Some(_)) => Flood::Unregistered,
            (None, None) => Flood::Nothing,
        }
    }

    /// Takes over a membership that the plane's entries show after a restart.
    pub(crate) fn restore(&mut self, group: IpAddr, port: PortId, membership: Membership) {
        if membership.is_over() || !self.config.ports.contains(port) {
            return;
        }
        if self.groups.entry(group).or_default().insert(port, membership).is_none() {
            *self.at_port.entry(port).or_default() += 1;
            self.memberships += 1;
        }
        self.plan(group, port);
        self.touched.insert(group);
    }
    /// Takes over a port that led to a router before a restart.
    pub(crate) fn restore_router(&mut self, now: u64, port: PortId) {
        if self.config.ports.contains(port) && !self.config.static_routers.contains(port) {
            self.routers.insert(port, now + self.config.other_querier_ms());
            self.fresh = true;
        }
    }

    /// Enters a membership into the schedule, unless it is there for an earlier time.
    fn plan(&mut self, group: IpAddr, port: PortId) {
        let Some(membership) = self.groups.get_mut(&group).and_then(|members| members.get_mut(&port)) else {
            return;
        };
        if let Some(next) = membership.next()
            && membership.scheduled.is_none_or(|at| next < at)
        {
            if let Some(at) = membership.scheduled.replace(next) {
                self.schedule.remove(&(at, group, port));
            }
            self.schedule.insert((next, group, port));
        }
    }

    /// True if a group has members, including static ones.
    pub(crate) fn has_group(&self, group: IpAddr) -> bool {
        self.groups.contains_key(&group) || self.config.static_groups.contains_key(&group)
    }
    /// The groups with members, including static ones.
    pub(crate) fn group_names(&self) -> BTreeSet<IpAddr> {
        self.groups.keys().chain(self.config.static_groups.keys()).copied().collect()
    }
    /// The dynamic members of a group.
    pub(crate) fn members(&self, group: IpAddr) -> impl Iterator<Item = (PortId, &Membership)> {
        self.groups.get(&group).into_iter().flatten().map(|(port, membership)| (*port, membership))
    }
    /// The sources that members of a group name.
    pub(crate) fn sources(&self, group: IpAddr) -> BTreeSet<IpAddr> {
        self.members(group).flat_map(|(_, membership)| membership.sources()).collect()
    }
    /// The ports that get a group's frames from `source` (`None`: from a source that no member names), without those that lead to
    /// routers.
    pub(crate) fn ports(&self, group: IpAddr, source: Option<IpAddr>) -> PortSet {
        let mut ports = self.config.static_groups.get(&group).cloned().unwrap_or(PortSet::EMPTY);
        for (port, membership) in self.members(group) {
            if membership.wants(source) {
                ports.insert(port);
            }
        }
        ports
    }

    /// Handles a message; returns the ports to which its frame is forwarded. `room` is false when the switch has no room
    /// for another membership.
    pub(crate) fn take(
        &mut self,
        now: u64,
        family: Family,
        port: PortId,
        received: &Received,
        room: bool,
    ) -> (Relay, Option<NoRoom>) {
        match &received.message {
            Message::Query(query) => {
                self.take_query(now, family, port, received.source, query);
                (Relay::All, None)
            }
            Message::PimHello(0) | Message::RouterTermination => {
                self.routers.remove(&port);
                (Relay::All, None)
            }
            Message::PimHello(holdtime) => {
                self.routers.insert(port, now + u64::from(*holdtime) * 1000);
                (Relay::All, None)
            }
            Message::RouterAdvertisement(interval) => {
                // RFC 4286, 3: three times the interval.
                self.routers.insert(port, now + 3000 * u64::from(*interval).max(1));
                (Relay::All, None)
            }
            Message::Leave(group) => (self.take_leave(now, family, port, received.mac, *group), None),
            Message::Report { version, records } => {
                self.take_report(now, family, port, received.mac, *version, records, room)
            }
        }
    }

    fn take_query(&mut self, now: u64, family: Family, port: PortId, source: IpAddr, query: &Query) {
        if query.group.is_none() {
            self.reported.clear();
            self.count_query(now);
        }
        // A query from 0.0.0.0 is another switch's: no router is there (RFC 4541, 2.1.1).
        if source.is_unspecified() {
            return;
        }
        self.routers.insert(port, now + self.config.other_querier_ms());
        if self.config.proxy {
            self.answer(now, family, query);
        }
        // The lower address wins (RFC 3376, 6.6.2).
        let loses =
            self.config.querier.is_none_or(|own| own.address.is_unspecified() || source < own.address);
        if loses {
            self.querier.other = Some((source, now + self.config.other_querier_ms()));
            self.querier.next = None;
        }
        if loses
            && !query.suppress
            && let Some(group) = query.group
        {
            // The querier's last-member queries lower the timers of this switch as they lower the querier's own (6.6.1).
            let queries = LastMemberQueries {
                group: query.sources.is_empty(),
                sources: query.sources.iter().copied().collect(),
            };
            let time = self.timing();
            let mut ports = Vec::new();
            for (port, membership) in self.groups.get_mut(&group).into_iter().flatten() {
                membership.queried(now, &queries, time);
                ports.push(*port);
            }
            ports.into_iter().for_each(|port| self.plan(group, port));
        }
    }

    #[allow(clippy::too_many_arguments)] // a report, where it came from, and what there is room for
    fn take_report(
        &mut self,
        now: u64,
        family: Family,
        port: PortId,
        host: MacAddr,
        version: u8,
        records: &[Record],
        room: bool,
    ) -> (Relay, Option<NoRoom>) {
        let mut refused = None;
        let mut news = !self.config.report_suppression;
        let proxy = self.config.proxy;
        for record in records.iter().filter(|record| !is_always_flooded(record.group)) {
            match self.take_record(now, family, port, host, version, record, room) {
                Ok(()) => {}
                Err(no_room) => refused = Some(no_room),
            }
            let until = now + u64::from(self.config.max_response_ms);
            let is_new = self.reported.get(&record.group).is_none_or(|until| *until <= now);
            // A leave is relayed unless other ports have members. The querier then queries for members that are left at this one.
            let leaves = matches!(record.kind, RecordKind::ToInclude | RecordKind::Block)
                && self.has_others(record.group, port);
            if is_new && !leaves {
                news = true;
                self.reported.insert(record.group, until);
            }
            news |= !leaves && !matches!(record.kind, RecordKind::IsInclude | RecordKind::IsExclude);
        }
        (if news && !proxy { Relay::Routers } else { Relay::Nobody }, refused)
    }

    #[allow(clippy::too_many_arguments)]
    fn take_record(
        &mut self,
        now: u64,
        family: Family,
        port: PortId,
        host: MacAddr,
        version: u8,
        record: &Record,
        room: bool,
    ) -> Result<(), NoRoom> {
        let (group, time) = (record.group, self.timing());
        let known = self.groups.get(&group).is_some_and(|members| members.contains_key(&port));
        let leaves = record.kind == RecordKind::ToInclude && record.sources.is_empty();
        if !known {
            let adds = !leaves
                && !matches!(
                    (record.kind, record.sources.as_slice()),
                    (RecordKind::Block, _)
                        | (RecordKind::IsInclude | RecordKind::Allow | RecordKind::ToInclude, [])
                );
            if !adds {
                return Ok(());
            }
            let count = self.at_port.entry(port).or_default();
            if self.config.limits.get(&port).is_some_and(|limit| *count >= *limit) {
                return Err(NoRoom::Port);
            }
            if !room {
                self.overflow = Some(now + self.config.membership_ms());
                return Err(NoRoom::Switch);
            }
            *count += 1;
            self.memberships += 1;
        }
        let membership = self.groups.entry(group).or_default().entry(port).or_default();
        let old = u8::from(family == Family::V4);
        if version <= 1 + old && record.kind == RecordKind::IsExclude && record.sources.is_empty() {
            // Version 1 of IGMP has no leave; the version before the last has no sources.
            if family == Family::V4 && version == 1 {
                membership.version_1 = Some(now + time.membership_ms);
            }
            membership.without_sources = Some(now + time.membership_ms);
        }
        let limit = self.config.source_limits.get(&port).and_then(|limit| usize::try_from(*limit).ok());
        let most = limit.unwrap_or(MAX_SOURCES_AT_PORT).min(MAX_SOURCES_AT_PORT);
        let queries = membership.take(now, record.kind, &record.sources, time, most);
        if leaves {
            let is_last = membership.leaves(host);
            if self.config.immediate_leave && is_last {
                membership.end();
                self.drop_if_over(group, port);
                self.touched.insert(group);
                return Ok(());
            }
        } else {
            membership.note(host);
        }
        self.touched.insert(group);
        self.plan(group, port);
        self.query_last_member(now, family, port, group, queries);
        self.drop_if_over(group, port);
        Ok(())
    }

    fn take_leave(&mut self, now: u64, family: Family, port: PortId, host: MacAddr, group: IpAddr) -> Relay {
        if is_always_flooded(group) {
            return Relay::Nobody;
        }
        let record = Record { kind: RecordKind::ToInclude, group, sources: Vec::new() };
        let version_1 = |membership: &Membership| membership.version_1.is_some_and(|until| until > now);
        let members = self.groups.get(&group);
        // Members of version 1 send no leave: leaves of others are ignored (RFC 3376, 7.3.2).
        if members.and_then(|members| members.get(&port)).is_some_and(version_1) {
            return Relay::Nobody;
        }
        // No room is needed: a leave makes no membership.
        let _ = self.take_record(now, family, port, host, 2, &record, false);
        // Routers get the leave unless other ports have members; their queries find members that are left at this one.
        if self.config.proxy || self.has_others(group, port) { Relay::Nobody } else { Relay::Routers }
    }

    /// True if a group has members at other ports.
    fn has_others(&self, group: IpAddr, port: PortId) -> bool {
        self.groups.get(&group).is_some_and(|members| members.keys().any(|other| *other != port))
    }

    /// Sends a query for the last members at a port and lowers their timers. A switch that is not the querier sends it too, with
    /// the unspecified address, so that a port is cut off within the last member query time.
    fn query_last_member(
        &mut self,
        now: u64,
        family: Family,
        port: PortId,
        group: IpAddr,
        queries: LastMemberQueries,
    ) {
        if !queries.group && queries.sources.is_empty() {
            return;
        }
        let time = self.timing();
        if let Some(membership) = self.groups.get_mut(&group).and_then(|members| members.get_mut(&port)) {
            membership.queried(now, &queries, time);
        }
        self.plan(group, port);
        let mut lists = Vec::new();
        if queries.group {
            lists.push(BTreeSet::new());
        }
        if !queries.sources.is_empty() {
            lists.push(queries.sources);
        }
        for sources in lists {
            self.to_send.push(self.last_member_query(family, port, group, &sources));
            let left = self.config.last_member_count.saturating_sub(1);
            if left > 0 && self.repeats.len() < MAX_REPEATS {
                let next = now + u64::from(self.config.last_member_ms);
                self.repeats.push(Repeat { port, group, sources, left, next });
            }
        }
    }

    fn last_member_query(
        &self,
        family: Family,
        port: PortId,
        group: IpAddr,
        sources: &BTreeSet<IpAddr>,
    ) -> Sent {
        let query = Query {
            version: self.version(family),
            group: Some(group),
            sources: sources.iter().copied().collect(),
            max_response_ms: self.config.last_member_ms,
            suppress: false,
        };
        Sent { port: Some(port), query }
    }

    fn drop_if_over(&mut self, group: IpAddr, port: PortId) {
        let Some(members) = self.groups.get_mut(&group) else { return };
        if members.get(&port).is_some_and(Membership::is_over) {
            let scheduled = members.remove(&port).and_then(|membership| membership.scheduled);
            if members.is_empty() {
                self.groups.remove(&group);
            }
            if let Some(at) = scheduled {
                self.schedule.remove(&(at, group, port));
            }
            if let Some(count) = self.at_port.get_mut(&port) {
                *count = count.saturating_sub(1);
                self.memberships -= 1;
            }
        }
    }

    /// Floods all groups until the members have been queried again, after a change of topology. The flooding ends at the latest
    /// when their memberships would end without reports.
    pub(crate) fn flood_all(&mut self, now: u64) {
        self.fresh = true;
        self.tcn = Some((self.config.tcn_flood_count.max(1), now + self.config.membership_ms()));
    }
    /// Ends the flooding of groups, because the VLAN is no longer snooped.
    pub(crate) const fn end_flooding(&mut self) {
        self.tcn = None;
        self.overflow = None;
    }
    /// Counts a general query that was received or sent. After the last one that the flooding waits for, members have the time
    /// for answers; then the flooding ends.
    fn count_query(&mut self, now: u64) {
        if let Some((left, until)) = &mut self.tcn {
            *left = left.saturating_sub(1);
            if *left == 0 {
                *until = (*until).min(now + u64::from(self.config.max_response_ms));
            }
        }
    }

    /// Makes a general query due now, after a change of topology; false if this switch is not the querier at present.
    pub(crate) fn ask_all(&mut self, now: u64) -> bool {
        if self.querier.next.is_none() {
            return false;
        }
        (self.querier.next, self.querier.startup) = (Some(now), self.config.robustness);
        true
    }

    /// Does the work that is due.
    pub(crate) fn expire(&mut self, now: u64, family: Family) {
        self.fresh = false;
        self.routers.retain(|_, until| *until > now);
        self.reported.retain(|_, until| *until > now);
        self.tcn = self.tcn.filter(|(_, until)| *until > now);
        self.overflow = self.overflow.filter(|until| *until > now);
        while let Some((at, group, port)) = self.schedule.first().copied().filter(|(at, ..)| *at <= now) {
            self.schedule.remove(&(at, group, port));
            let members = self.groups.get_mut(&group);
            let Some(membership) = members.and_then(|members| members.get_mut(&port)) else { continue };
            membership.scheduled = None;
            if membership.next().is_some_and(|at| at <= now) && membership.expire(now) {
                self.touched.insert(group);
            }
            self.plan(group, port);
            self.drop_if_over(group, port);
        }
        self.repeat(now, family);
        if self.querier.other.is_some_and(|(_, until)| until <= now) {
            self.querier.other = None;
            self.begin_querier(now);
        }
        if self.querier.next.is_some_and(|at| at <= now) {
            let interval = u64::from(self.config.query_interval_s) * 1000;
            self.querier.startup = self.querier.startup.saturating_sub(1);
            // Startup Query Interval is a quarter (8.6).
            let wait = if self.querier.startup > 0 { interval / 4 } else { interval };
            self.querier.next = Some(now + wait.max(1));
            self.reported.clear();
            self.count_query(now);
            let max_response_ms = self.config.max_response_ms;
            let query = Query {
                version: self.version(family),
                group: None,
                sources: Vec::new(),
                max_response_ms,
                suppress: false,
            };
            self.to_send.push(Sent { port: None, query });
        }
    }

    fn repeat(&mut self, now: u64, family: Family) {
        let mut due = Vec::new();
        for repeat in &mut self.repeats {
            if repeat.next <= now {
                due.push((repeat.port, repeat.group, repeat.sources.clone()));
                repeat.left -= 1;
                repeat.next = now + u64::from(self.config.last_member_ms);
            }
        }
        self.repeats.retain(|repeat| repeat.left > 0);
        for (port, group, sources) in due {
            // No query is sent about a membership that has ended.
            if self.groups.get(&group).is_some_and(|members| members.contains_key(&port)) {
                self.to_send.push(self.last_member_query(family, port, group, &sources));
            }
        }
    }

    /// True if [`Vlan::expire`] has something to do, or something is to be announced.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        !self.touched.is_empty()
            || !self.to_send.is_empty()
            || self.fresh
            || self.next().is_some_and(|at| at <= now)
    }
    /// When [`Vlan::expire`] is to be called next.
    pub(crate) fn next(&self) -> Option<u64> {
        let members = self.schedule.first().map(|(at, ..)| *at);
        let routers = self.routers.values().copied().min();
        let repeats = self.repeats.iter().map(|repeat| repeat.next).min();
        let other = self.querier.other.map(|(_, until)| until);
        let tcn = self.tcn.map(|(_, until)| until);
        let proxy = self.proxy.next();
        [members, routers, repeats, other, tcn, proxy, self.overflow, self.querier.next]
            .into_iter()
            .flatten()
            .min()
    }
}
