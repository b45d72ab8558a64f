//! The client's routes: the next hops of each, whether the current session has sent it, and what the plane did with it.
//!
//! Invariant: `changed` contains every prefix whose route differs from what the last [`Rib::flush`] returned.

use crate::counters::{Counters, Ignored};
use crate::next_hops::{NextHopSet, NextHopSetId, NextHopSets};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_wire::rtnetlink::Route as Message;
use std::collections::BTreeMap;
use std::ops::Bound;

/// RT_TABLE_MAIN.
pub(crate) const TABLE_MAIN: u32 = 254;

/// The limits of what a client can make the server store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Routes, IPv4 and IPv6 together.
    pub routes: usize,
    /// Next-hop objects; the same limit holds for next-hop sets.
    pub nexthops: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { routes: 4_000_000, nexthops: 65_536 }
    }
}

/// The result of programming a route into the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Offload {
    /// The plane forwards by it.
    Offloaded = 1,
    /// The plane leaves the route's packets to the kernel, because the route says so or because the plane cannot
    /// forward by it.
    Trapped = 2,
    /// The plane had no room for the route.
    Failed = 3,
}

/// A route, as it is handed to the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// RTPROT_*.
    pub protocol: u8,
    /// The metric; 0 is none.
    pub metric: u32,
    /// Its next hops.
    pub next_hops: NextHopSetId,
}

/// One change for the switch. In the list of [`crate::Server::updates`] new and changed next-hop sets come first, then
/// routes, then removed sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A next-hop set is new, or all routes that use it have these next hops from now on.
    NextHops(NextHopSetId, NextHopSet),
    /// A route is new or has changed; `None` when it was removed. A route may be repeated without a change, and the
    /// removal of an unknown route may be reported.
    Route(IpNet, Option<Route>),
    /// No route uses this set any more; its number may be used again.
    NextHopsRemoved(NextHopSetId),
}

/// The stored state of a route. It is kept small, because a client may send a million routes.
#[derive(Debug, Clone, Copy)]
struct Entry {
    next_hops: NextHopSetId,
    metric: u32,
    protocol: u8,
    kind: u8,
    /// True when the client has sent this route in the current session.
    current: bool,
    /// An `Offload` as a number, or 0 while the switch has not reported it.
    offload: u8,
    /// The `Offload` last reported to the client in this session, as a number, or 0.
    answered: u8,
}

/// An answer to be sent to the client.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub dest: IpNet,
    pub protocol: u8,
    pub kind: u8,
    pub metric: u32,
    pub next_hops: Option<&'a NextHopSet>,
    pub offload: Offload,
}

#[derive(Debug, Default)]
pub(crate) struct Rib {
    v4: BTreeMap<Ipv4Net, Entry>,
    v6: BTreeMap<Ipv6Net, Entry>,
    pub(crate) next_hop_sets: NextHopSets,
    changed: Vec<IpNet>,
    limit: usize,
    /// The number of routes by what the plane did with them; index 0 counts those not reported yet.
    pub(crate) states: [usize; 4],
}

impl Rib {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { next_hop_sets: NextHopSets::new(limits.nexthops), limit: limits.routes, ..Self::default() }
    }
    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Handles RTM_NEWROUTE.
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
        let Some(next_hops) = self.next_hop_sets.take(message) else {
            counters.routes_refused += 1;
            // The client has replaced the old route, so the old route must not stay either.
            self.delete(message.dest);
            return Taken::Refused;
        };
        let same = old.filter(|old| {
            (old.next_hops, old.metric, old.protocol, old.kind)
                == (next_hops, message.metric, message.protocol, message.kind)
        });
        let offload = same.map_or(0, |old| old.offload);
        let entry = Entry {
            next_hops,
            metric: message.metric,
            protocol: message.protocol,
            kind: message.kind,
            current: true,
            offload,
            answered: 0,
        };
        match message.dest {
            IpNet::V4(dest) => drop(self.v4.insert(dest, entry)),
            IpNet::V6(dest) => drop(self.v6.insert(dest, entry)),
        }
        self.states[usize::from(offload)] += 1;
        if let Some(old) = old {
            self.states[usize::from(old.offload)] -= 1;
            self.next_hop_sets.release(old.next_hops);
        }
        if same.is_none() {
            self.changed.push(message.dest);
        }
        if offload == 0 { Taken::Pending } else { Taken::Known }
    }
    /// Handles RTM_DELROUTE.
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
            self.next_hop_sets.release(old.next_hops);
            self.changed.push(dest);
        }
    }

    /// Marks all routes as not yet sent by the client, and not yet answered, in the session that begins.
    pub(crate) fn age(&mut self) {
        for entry in self.v4.values_mut().chain(self.v6.values_mut()) {
            (entry.current, entry.answered) = (false, 0);
        }
        self.next_hop_sets.age();
    }
    /// Removes routes that the client has not sent in this session, examining at most `max` routes after `from`.
    /// Returns the prefix after which to continue (`None` if all routes have been examined), and the number of routes
    /// removed. Next-hop objects are swept after the last route.
    pub(crate) fn sweep(&mut self, from: Option<IpNet>, max: usize) -> (Option<IpNet>, u64) {
        let (seen, next) = self.after(from, max);
        let stale: Vec<IpNet> =
            seen.iter().filter(|(_, entry)| !entry.current).map(|(dest, _)| *dest).collect();
        let removed = stale.len() as u64;
        for dest in stale {
            self.delete(dest);
        }
        if next.is_none() {
            self.next_hop_sets.sweep();
        }
        (next, removed)
    }

    /// At most `max` routes after `from`, and the prefix to continue from if there may be more.
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

    /// Returns the changes since the last call.
    pub(crate) fn flush(&mut self) -> Vec<Update> {
        let (next_hop_sets, ended) = self.next_hop_sets.flush();
        let changed = std::mem::take(&mut self.changed);
        let mut batch = Vec::with_capacity(next_hop_sets.len() + changed.len() + ended.len());
        batch.extend(next_hop_sets.into_iter().map(|(id, next_hops)| Update::NextHops(id, next_hops)));
        for dest in changed {
            let route = self.entry(dest).map(|entry| Route {
                protocol: entry.protocol,
                metric: entry.metric,
                next_hops: entry.next_hops,
            });
            batch.push(Update::Route(dest, route));
        }
        batch.extend(ended.into_iter().map(Update::NextHopsRemoved));
        batch
    }

    /// Makes the next [`Rib::flush`] return everything.
    pub(crate) fn announce_all(&mut self) {
        self.changed.extend(self.v4.keys().map(|dest| IpNet::V4(*dest)));
        self.changed.extend(self.v6.keys().map(|dest| IpNet::V6(*dest)));
        self.next_hop_sets.announce_all();
    }
    /// Records what the plane did with a route. Returns true if the client has to be answered.
    pub(crate) fn offload(&mut self, dest: IpNet, offload: Offload) -> bool {
        let Some(entry) = self.entry_mut(dest) else { return false };
        let before = std::mem::replace(&mut entry.offload, offload as u8);
        let news = entry.answered != entry.offload;
        self.states[usize::from(before)] -= 1;
        self.states[offload as usize] += 1;
        news
    }
    /// The answer that is due for a route, if any. The route counts as answered from here on.
    pub(crate) fn answer(&mut self, dest: IpNet) -> Option<Answer<'_>> {
        let entry = self.entry_mut(dest)?;
        if entry.answered == entry.offload {
            return None;
        }
        entry.answered = entry.offload;
        let Entry { next_hops, metric, protocol, kind, offload, .. } = *entry;
        let offload = match offload {
            1 => Offload::Offloaded,
            2 => Offload::Trapped,
            _ => Offload::Failed,
        };
        Some(Answer { dest, protocol, kind, metric, next_hops: self.next_hop_sets.get(next_hops), offload })
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

/// The result of an RTM_NEWROUTE message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Not a route that this server handles.
    Ignored,
    /// There was no room for the route.
    Refused,
    /// The switch has yet to report what the plane did with it.
    Pending,
    /// The route has not changed, and the switch has reported it already.
    Known,
}
