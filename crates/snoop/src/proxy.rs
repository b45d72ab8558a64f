//! The state of proxy reporting of a VLAN and family; `proxy_reports` acts on it.
//!
//! Invariant: `queue` and `changes` have the same groups and times.

use crate::message::Record;
use lanyard_types::PortId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The state of a group last reported to routers: true (mode EXCLUDE) and the sources that no host wants, or false (mode
/// INCLUDE) and the only sources that hosts want.
pub(crate) type Reported = (bool, BTreeSet<IpAddr>);

/// A report of the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) version: u8,
    /// A router port to which the report is not sent: it is the only port with members, so the router receives their own reports.
    pub(crate) not_to: Option<PortId>,
    /// One record, unless the version is the newest.
    pub(crate) records: Vec<Record>,
}

/// The state of a VLAN and family.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxy {
    /// The groups that hosts want, with the state last reported to routers.
    pub(crate) reported: BTreeMap<IpAddr, Reported>,
    /// Groups whose change is to be reported: how many more times, and when next. `queue` has the same groups ordered by time.
    pub(crate) changes: BTreeMap<IpAddr, (u8, u64)>,
    pub(crate) queue: BTreeSet<(u64, IpAddr)>,
    /// Groups that a router has queried, with the sources of its query; empty: the whole group.
    pub(crate) answers: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    /// Until when nothing is sent, because the last call has sent as many reports as a call may.
    pub(crate) paused: Option<u64>,
    /// The version of the oldest querier, and until when reports have this version.
    pub(crate) old: Option<(u8, u64)>,
}

impl Proxy {
    /// When [`Vlan::report`] has something to do.
    pub(crate) fn next(&self) -> Option<u64> {
        let due = || {
            let change = self.queue.first().map(|(at, _)| *at);
            // Answers need no time of their own: they leave with the call that takes the query, or after a pause.
            change.into_iter().chain(self.old.map(|(_, until)| until)).min()
        };
        self.paused.or_else(due)
    }
    /// Schedules a change of a group to be reported `left` more times, next at `at`; `left` 0: no more.
    pub(crate) fn schedule(&mut self, group: IpAddr, left: u8, at: u64) {
        if let Some((_, was)) = self.changes.remove(&group) {
            self.queue.remove(&(was, group));
        }
        if left > 0 {
            self.changes.insert(group, (left, at));
            self.queue.insert((at, group));
        }
    }
}
