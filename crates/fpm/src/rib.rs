//! The routes of the client: which way each goes, which session had it last, what became of it in the plane.
//!
//! Invariant: `changed` names every prefix whose route is not what the last [`Rib::flush`] told.

use crate::counters::{Counters, Ignored};
use crate::ways::{Way, WayId, Ways};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_wire::rtnetlink::Route as Message;
use std::collections::BTreeMap;
use std::ops::Bound;

/// RT_TABLE_MAIN.
const TABLE_MAIN: u32 = 254;

/// What a client may make the server remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Routes, IPv4 and IPv6 together.
    pub routes: usize,
    /// Next-hop objects, and as many ways that routes go.
    pub nexthops: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { routes: 4_000_000, nexthops: 65_536 }
    }
}

/// What became of a route in the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Offload {
    /// The plane forwards by it.
    Offloaded = 1,
    /// The plane leaves its packets to the kernel, as it should or must.
    Trapped = 2,
    /// The plane had no room for it.
    Failed = 3,
}

/// A route, as the switch is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// RTPROT_*.
    pub protocol: u8,
    /// The metric; 0 is none.
    pub metric: u32,
    /// Where to.
    pub way: WayId,
}

/// What has changed. A batch is in order: ways, routes, ways that have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A way is new, or goes elsewhere from now on with all its routes.
    Way(WayId, Way),
    /// A route is new or has changed; `None`, it is gone. It may be told again without a change, or as gone when it was
    /// never there.
    Route(IpNet, Option<Route>),
    /// No route goes this way any more; the number may be used again.
    WayGone(WayId),
}

/// Small: there are a million of them.
#[derive(Debug, Clone, Copy)]
struct Entry {
    way: WayId,
    metric: u32,
    protocol: u8,
    kind: u8,
    /// The session that had it last is this one.
    current: bool,
    /// `Offload`, or 0: not known yet.
    offload: u8,
    /// What the client was told of it in this session, likewise.
    told: u8,
}

/// An answer that is due.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub dest: IpNet,
    pub protocol: u8,
    pub kind: u8,
    pub metric: u32,
    pub way: Option<&'a Way>,
    pub offload: Offload,
}

#[derive(Debug, Default)]
pub(crate) struct Rib {
    v4: BTreeMap<Ipv4Net, Entry>,
    v6: BTreeMap<Ipv6Net, Entry>,
    pub(crate) ways: Ways,
    changed: Vec<IpNet>,
    limit: usize,
    /// Routes by what became of them: not known, and as in [`Offload`].
    pub(crate) states: [usize; 4],
}

impl Rib {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { ways: Ways::new(limits.nexthops), limit: limits.routes, ..Self::default() }
    }
    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Takes in RTM_NEWROUTE. True when its answer is known at once.
    pub(crate) fn set(&mut self, message: &Message<'_>, counters: &mut Counters) -> Taken {
        if !self.ours(message, counters) {
            return Taken::Ignored;
        }
        counters.routes_set += 1;
        let (len, limit) = (self.len(), self.limit);
        let old = self.entry(message.dest).copied();
        if old.is_none() && len >= limit {
            counters.routes_refused += 1;
            return Taken::Refused;
        }
        let Some(way) = self.ways.take(message) else {
            counters.routes_refused += 1;
            // What was there is not what the client wants.
            self.delete(message.dest);
            return Taken::Refused;
        };
        let same = old.filter(|old| {
            (old.way, old.metric, old.protocol, old.kind)
                == (way, message.metric, message.protocol, message.kind)
        });
        let offload = same.map_or(0, |old| old.offload);
        let entry = Entry {
            way,
            metric: message.metric,
            protocol: message.protocol,
            kind: message.kind,
            current: true,
            offload,
            told: 0,
        };
        match message.dest {
            IpNet::V4(dest) => drop(self.v4.insert(dest, entry)),
            IpNet::V6(dest) => drop(self.v6.insert(dest, entry)),
        }
        self.states[usize::from(offload)] += 1;
        if let Some(old) = old {
            self.states[usize::from(old.offload)] -= 1;
            self.ways.release(old.way);
        }
        if same.is_none() {
            self.changed.push(message.dest);
        }
        if offload == 0 { Taken::Pending } else { Taken::Known }
    }
    /// Takes in RTM_DELROUTE.
    pub(crate) fn unset(&mut self, message: &Message<'_>, counters: &mut Counters) {
        if self.ours(message, counters) {
            counters.routes_deleted += 1;
            self.delete(message.dest);
        }
    }

    fn ours(&self, message: &Message<'_>, counters: &mut Counters) -> bool {
        let why = match message.table {
            0 | TABLE_MAIN if message.source_specific || message.tos != 0 => Ignored::Selective,
            0 | TABLE_MAIN => return true,
            _ => Ignored::Table,
        };
        counters.ignored[why as usize] += 1;
        false
    }

    fn delete(&mut self, dest: IpNet) {
        let old = match dest {
            IpNet::V4(dest) => self.v4.remove(&dest),
            IpNet::V6(dest) => self.v6.remove(&dest),
        };
        if let Some(old) = old {
            self.states[usize::from(old.offload)] -= 1;
            self.ways.release(old.way);
            self.changed.push(dest);
        }
    }

    /// Nothing has been seen in the session that begins, and its client has been told nothing.
    pub(crate) fn age(&mut self) {
        for entry in self.v4.values_mut().chain(self.v6.values_mut()) {
            (entry.current, entry.told) = (false, 0);
        }
        self.ways.age();
    }
    /// Removes what this session has not had, looking at `max` routes from `from` on. Answers where to go on, and how
    /// many were removed; next-hop objects come last.
    pub(crate) fn sweep(&mut self, from: Option<IpNet>, max: usize) -> (Option<IpNet>, u64) {
        let (seen, next) = self.after(from, max);
        let stale: Vec<IpNet> =
            seen.iter().filter(|(_, entry)| !entry.current).map(|(dest, _)| *dest).collect();
        let removed = stale.len() as u64;
        for dest in stale {
            self.delete(dest);
        }
        if next.is_none() {
            self.ways.sweep();
        }
        (next, removed)
    }

    /// At most `max` routes behind `from`, and the last of them when there may be more.
    fn after(&self, from: Option<IpNet>, max: usize) -> (Vec<(IpNet, Entry)>, Option<IpNet>) {
        let low4 = match from {
            None => Some(Bound::Unbounded),
            Some(IpNet::V4(last)) => Some(Bound::Excluded(last)),
            Some(IpNet::V6(_)) => None,
        };
        let low6 = match from {
            Some(IpNet::V6(last)) => Bound::Excluded(last),
            _ => Bound::Unbounded,
        };
        let v4 = low4.map(|low| self.v4.range((low, Bound::Unbounded))).into_iter().flatten();
        let v4 = v4.map(|(dest, entry)| (IpNet::V4(*dest), *entry));
        let v6 = self.v6.range((low6, Bound::Unbounded)).map(|(dest, entry)| (IpNet::V6(*dest), *entry));
        let seen: Vec<_> = v4.chain(v6).take(max).collect();
        let next = seen.last().filter(|_| seen.len() == max).map(|(dest, _)| *dest);
        (seen, next)
    }

    /// What has changed since the last call.
    pub(crate) fn flush(&mut self) -> Vec<Update> {
        let (ways, ended) = self.ways.flush();
        let changed = std::mem::take(&mut self.changed);
        let mut batch = Vec::with_capacity(ways.len() + changed.len() + ended.len());
        batch.extend(ways.into_iter().map(|(id, way)| Update::Way(id, way)));
        for dest in changed {
            let route = self.entry(dest).map(|entry| Route {
                protocol: entry.protocol,
                metric: entry.metric,
                way: entry.way,
            });
            batch.push(Update::Route(dest, route));
        }
        batch.extend(ended.into_iter().map(Update::WayGone));
        batch
    }

    /// Everything has changed for somebody who knows nothing.
    pub(crate) fn tell_again(&mut self) {
        self.changed.extend(self.v4.keys().map(|dest| IpNet::V4(*dest)));
        self.changed.extend(self.v6.keys().map(|dest| IpNet::V6(*dest)));
        self.ways.tell_again();
    }
    /// The plane has said what became of a route. True when the client is to be told.
    pub(crate) fn offload(&mut self, dest: IpNet, offload: Offload) -> bool {
        let Some(entry) = self.entry_mut(dest) else { return false };
        let before = std::mem::replace(&mut entry.offload, offload as u8);
        let news = entry.told != entry.offload;
        self.states[usize::from(before)] -= 1;
        self.states[offload as usize] += 1;
        news
    }
    /// The answer that is due for a route, which is taken to be told from here on.
    pub(crate) fn answer(&mut self, dest: IpNet) -> Option<Answer<'_>> {
        let entry = self.entry_mut(dest)?;
        if entry.told == entry.offload {
            return None;
        }
        entry.told = entry.offload;
        let Entry { way, metric, protocol, kind, offload, .. } = *entry;
        let offload = match offload {
            1 => Offload::Offloaded,
            2 => Offload::Trapped,
            _ => Offload::Failed,
        };
        Some(Answer { dest, protocol, kind, metric, way: self.ways.get(way), offload })
    }
    fn entry(&self, dest: IpNet) -> Option<&Entry> {
        match dest {
            IpNet::V4(dest) => self.v4.get(&dest),
            IpNet::V6(dest) => self.v6.get(&dest),
        }
    }
    fn entry_mut(&mut self, dest: IpNet) -> Option<&mut Entry> {
        match dest {
            IpNet::V4(dest) => self.v4.get_mut(&dest),
            IpNet::V6(dest) => self.v6.get_mut(&dest),
        }
    }
}

/// What became of RTM_NEWROUTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Not for us.
    Ignored,
    /// No room.
    Refused,
    /// The switch will say.
    Pending,
    /// It has not changed, and the switch has said already.
    Known,
}
