//! One VLAN and family: its groups, the ports that lead to routers, and its querier.

use crate::config::VlanConfig;
use crate::membership::{Ask, Membership, Timing};
use crate::message::{Family, Message, Query, Received, Record, RecordKind, is_always_flooded};
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
    /// To no port.
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
    /// When the next general query leaves; `None` while another querier is present, and when the switch is none.
    next: Option<u64>,
    /// General queries that leave at the shorter startup interval.
    startup: u8,
    /// The other querier, and until when it counts as present.
    other: Option<(IpAddr, u64)>,
}

/// Why a report was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The port has as many groups as it may have.
    Port,
    /// The switch has.
    Switch,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Vlan {
    pub(crate) config: VlanConfig,
    /// Members: dynamic ones.
    groups: BTreeMap<IpAddr, BTreeMap<PortId, Membership>>,
    /// Groups of each port.
    at_port: BTreeMap<PortId, u32>,
    /// Ports that lead to routers, until when.
    routers: BTreeMap<PortId, u64>,
    querier: QuerierState,
    repeats: Vec<Repeat>,
    /// Groups whose report has been passed on since the last query, and until when that counts.
    reported: BTreeMap<IpAddr, u64>,
    /// Queries that are to be sent.
    pub(crate) to_send: Vec<Sent>,
    /// Groups whose ports may have changed.
    pub(crate) touched: BTreeSet<IpAddr>,
}

/// Most queries for last members that wait to be repeated in a VLAN; further leaves are asked about once.
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
        let querier_changed = self.config.querier != config.querier;
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
        self.at_port.remove(&port);
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
        self.at_port.clear();
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
    /// True if a router was heard at the port.
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
    pub(crate) fn memberships(&self) -> usize {
        self.at_port.values().map(|count| *count as usize).sum()
    }

    /// True if a group has members, static ones too.
    pub(crate) fn has_group(&self, group: IpAddr) -> bool {
        self.groups.contains_key(&group) || self.config.static_groups.contains_key(&group)
    }
    /// The groups with members, static ones too.
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
    /// The ports that get a group's frames, without those that lead to routers: from `source`, or from a source that no
    /// member names.
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
                self.take_query(now, port, received.source, query);
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

    fn take_query(&mut self, now: u64, port: PortId, source: IpAddr, query: &Query) {
        if query.group.is_none() {
            self.reported.clear();
        }
        // A query from 0.0.0.0 is another switch's: no router is there (RFC 4541, 2.1.1).
        if source.is_unspecified() {
            return;
        }
        self.routers.insert(port, now + self.config.other_querier_ms());
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
            // The querier asks for last members, so their timers are lowered here as they are there (6.6.1).
            let ask =
                Ask { group: query.sources.is_empty(), sources: query.sources.iter().copied().collect() };
            let time = self.timing();
            for membership in self.groups.get_mut(&group).into_iter().flat_map(BTreeMap::values_mut) {
                membership.asked(now, &ask, time);
            }
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
        for record in records.iter().filter(|record| !is_always_flooded(record.group)) {
            match self.take_record(now, family, port, host, version, record, room) {
                Ok(()) => {}
                Err(no_room) => refused = Some(no_room),
            }
            let until = now + u64::from(self.config.max_response_ms);
            let is_new = self.reported.get(&record.group).is_none_or(|until| *until <= now);
            // A leave is forwarded only when no member is left, which the querier finds out by its queries.
            let leaves = matches!(record.kind, RecordKind::ToInclude | RecordKind::Block)
                && self.groups.contains_key(&record.group);
            if is_new && !leaves {
                news = true;
                self.reported.insert(record.group, until);
            }
            news |= !leaves && !matches!(record.kind, RecordKind::IsInclude | RecordKind::IsExclude);
        }
        (if news { Relay::Routers } else { Relay::Nobody }, refused)
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
                return Err(NoRoom::Switch);
            }
            *count += 1;
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
        let ask = membership.take(now, record.kind, &record.sources, time);
        if leaves {
            let last = membership.leaves(host);
            if self.config.immediate_leave && last {
                membership.end();
                self.drop_if_over(group, port);
                self.touched.insert(group);
                return Ok(());
            }
        } else {
            membership.note(host);
        }
        self.touched.insert(group);
        self.ask(now, family, port, group, ask);
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
        // Members of version 1 do not say when they leave: leaves of others are ignored (RFC 3376, 7.3.2).
        if members.and_then(|members| members.get(&port)).is_some_and(version_1) {
            return Relay::Nobody;
        }
        // No room is needed: a leave makes no membership.
        let _ = self.take_record(now, family, port, host, 2, &record, false);
        // The routers hear of it when no port is left.
        if self.groups.contains_key(&group) { Relay::Nobody } else { Relay::Routers }
    }

    /// Sends a query for the last members at a port, if this switch is to, and lowers their timers. A switch that is no
    /// querier asks too, with the unspecified address, so that a port is cut off within the last member query time.
    fn ask(&mut self, now: u64, family: Family, port: PortId, group: IpAddr, ask: Ask) {
        if !ask.group && ask.sources.is_empty() {
            return;
        }
        let time = self.timing();
        if let Some(membership) = self.groups.get_mut(&group).and_then(|members| members.get_mut(&port)) {
            membership.asked(now, &ask, time);
        }
        let mut lists = Vec::new();
        if ask.group {
            lists.push(BTreeSet::new());
        }
        if !ask.sources.is_empty() {
            lists.push(ask.sources);
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
            members.remove(&port);
            if members.is_empty() {
                self.groups.remove(&group);
            }
            if let Some(count) = self.at_port.get_mut(&port) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// A general query now, after a change of topology; false if this switch is no querier.
    pub(crate) fn ask_all(&mut self, now: u64) -> bool {
        if self.querier.next.is_none() {
            return false;
        }
        (self.querier.next, self.querier.startup) = (Some(now), self.config.robustness);
        true
    }

    /// Does the work that is due.
    pub(crate) fn expire(&mut self, now: u64, family: Family) {
        self.routers.retain(|_, until| *until > now);
        self.reported.retain(|_, until| *until > now);
        let mut over = Vec::new();
        for (group, members) in &mut self.groups {
            for (port, membership) in members {
                if membership.next().is_some_and(|at| at <= now) && membership.expire(now) {
                    self.touched.insert(*group);
                    over.push((*group, *port));
                }
            }
        }
        for (group, port) in over {
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

    /// When [`Vlan::expire`] is to be called next.
    pub(crate) fn next(&self) -> Option<u64> {
        let members = self.groups.values().flat_map(BTreeMap::values).filter_map(Membership::next).min();
        let routers = self.routers.values().copied().min();
        let repeats = self.repeats.iter().map(|repeat| repeat.next).min();
        let other = self.querier.other.map(|(_, until)| until);
        [members, routers, repeats, other, self.querier.next].into_iter().flatten().min()
    }
}
