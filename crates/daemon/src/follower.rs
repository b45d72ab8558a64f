//! Follows the routing of one network namespace: the events of its sockets, and audits, which list all tables, one after the
//! other.
//!
//! Read `lanyard_netdev::follow` first. Invariant: events and listings go to the mirror in the order in which the kernel sent
//! them; an audit that events contradict is repeated.

use crate::kernel::RouteSource;
use crate::packet_filter::Watch;
use lanyard_netdev::NeighbourState;
use lanyard_netdev::follow::{Notification, Progress, Table};
use lanyard_switch::Router;
use lanyard_switch::forwarding::PacketFilter;
use lanyard_switch::routing::{Neighbour, Origin, Routing};
use lanyard_types::{MacAddr, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Messages read, and changes programmed, in one turn.
pub(crate) const TURN: usize = 4096;
/// The least time between two audits of one namespace, in milliseconds. After N inconsistent audits in a row (at most
/// [`TRIES`] count), it is at least 10 N times as long as the last audit took.
pub(crate) const AUDIT_GAP_MS: u64 = 500;
/// The number of inconsistent audits in a row after which the result is used nevertheless.
pub(crate) const TRIES: u32 = 8;

/// The tables that an audit lists, in this order, because routes depend on the tables before them.
const STAGES: [Table; 10] = [
    Table::Links,
    Table::Addresses,
    Table::Forwarding4,
    Table::Forwarding6,
    Table::Rules4,
    Table::Rules6,
    Table::NextHops,
    Table::Neighbours,
    Table::Routes4,
    Table::Routes6,
];

/// The index of the first stage whose table only routes depend on; router interfaces depend on the tables before it.
const ROUTING_STAGES: usize = 6;

/// Counters of following one namespace.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) audits: u64,
    pub(crate) overruns: u64,
}

/// The follower of one namespace.
pub(crate) struct Follow {
    pub(crate) id: VrfId,
    pub(crate) follower: Box<dyn RouteSource>,
    /// The packet filter.
    pub(crate) watch: Watch,
    pub(crate) seen: Seen,
    /// The result of the running listing so far.
    fresh: Seen,
    /// [`Seen::events`] when the audit began.
    events_before: u64,
    /// The current stage of the running audit.
    pub(crate) stage: Option<usize>,
    consistent: bool,
    tries: u32,
    began_ms: u64,
    pub(crate) next_audit_ms: u64,
    pub(crate) first_done: bool,
    /// True after the kernel has dropped events, until the events that were waiting then have been read. These are older than
    /// the result of a listing, and until they are read the kernel drops further events without another report.
    pub(crate) behind: bool,
    pub(crate) tally: Tally,
}

/// The state that router interfaces depend on.
#[derive(Default)]
pub(crate) struct Seen {
    /// macvlan devices: the parent, whether it is up with carrier, and the MAC address.
    children: BTreeMap<u32, Child>,
    addresses: BTreeMap<u32, BTreeSet<IpAddr>>,
    forwarding: BTreeMap<(Option<u32>, bool), bool>,
    /// For each family: the tables of the default rules that exist, and the number of other rules.
    rules: [(BTreeSet<u32>, usize); 2],
    /// True if a rule was added or removed since the last audit began, so that the rules have to be counted again.
    rules_changed: bool,
    /// The number of events about links, addresses and rules.
    events: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Child {
    pub(crate) parent: u32,
    up: bool,
    mac: MacAddr,
}

impl Seen {
    /// The macvlan children of running virtual routers: the protocol gives them an address while it
    /// is the master.
    pub(crate) fn active(&self) -> impl Iterator<Item = (u32, &Child)> {
        let has_address = |index: &u32, child: &Child| {
            let of = self.addresses.get(index);
            of.is_some_and(|list| list.iter().any(|address| *address != link_local(child.mac)))
        };
        self.children
            .iter()
            .filter(move |(index, child)| child.up && has_address(index, child))
            .map(|(i, c)| (*i, c))
    }
    pub(crate) fn router(&self, id: VrfId, filter: &PacketFilter) -> Router {
        let mut virtual_macs: BTreeMap<u32, BTreeSet<MacAddr>> = BTreeMap::new();
        for (_, child) in self.active() {
            virtual_macs.entry(child.parent).or_default().insert(child.mac);
        }
        let policy = [0, 1].map(|family: usize| {
            let (standard, others) = &self.rules[family];
            *others > 0 || !standard.contains(&255) || !standard.contains(&254)
        });
        let (filter, forwarding) = (filter.clone(), self.forwarding.clone());
        Router { id: Some(id), policy, filter, forwarding, virtual_macs }
    }
}

/// The address that an interface assigns to itself (RFC 4291, appendix A).
fn link_local(mac: MacAddr) -> IpAddr {
    let [a, b, c, d, e, f] = mac.0;
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    let id = [word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f)];
    std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, id[0], id[1], id[2], id[3]).into()
}

fn neighbour(known: &lanyard_netdev::Neighbour) -> Neighbour {
    let mac = known.mac.filter(|mac| known.state.is_valid() && !mac.is_zero() && !mac.is_group());
    Neighbour {
        mac,
        failed: known.state == NeighbourState::Failed,
        stale: known.state == NeighbourState::Stale,
    }
}

/// Handles one message of the kernel. `listed` says that it is part of a listing.
fn take_in(mirror: &mut Routing, id: VrfId, seen: &mut Seen, received: Notification<'_>, listed: bool) {
    match received {
        Notification::Route { route, flags, gone, .. } => {
            let origin = match (listed, gone) {
                (true, _) => Origin::Listed,
                (false, true) => Origin::Gone,
                (false, false) => Origin::New(flags),
            };
            mirror.route(id, &route, origin);
        }
        Notification::NextHop(object, _) if listed => mirror.listed_nexthop(id, &object),
        Notification::NextHop(object, gone) => mirror.nexthop(id, &object, gone),
        Notification::Neighbour(known, _) if known.proxy => {}
        Notification::Neighbour(known, _) if listed => {
            mirror.listed_neighbour(id, known.ifindex, known.addr, neighbour(&known));
        }
        Notification::Neighbour(known, gone) => {
            mirror.neighbour(id, known.ifindex, known.addr, (!gone).then(|| neighbour(&known)));
        }
        Notification::Link(link, gone) => {
            let up = link.admin_up && link.carrier && !gone;
            let child = link
                .peer_ifindex
                .filter(|_| link.kind.as_deref() == Some("macvlan") && link.peer_netnsid.is_none());
            match child.filter(|_| !gone) {
                Some(parent) => drop(seen.children.insert(link.ifindex, Child { parent, up, mac: link.mac })),
                None => drop(seen.children.remove(&link.ifindex)),
            }
            match (listed, gone) {
                (true, _) => mirror.listed_link(id, link.ifindex, up),
                (false, false) => mirror.link(id, link.ifindex, up),
                (false, true) => {
                    mirror.link_gone(id, link.ifindex);
                    seen.addresses.remove(&link.ifindex);
                    seen.forwarding.retain(|(ifindex, _), _| *ifindex != Some(link.ifindex));
                }
            }
        }
        Notification::Address(address, true) => {
            if let Some(list) = seen.addresses.get_mut(&address.ifindex) {
                list.remove(&address.net.addr());
            }
            // The kernel removes routes with this source address without an event.
            mirror.overrun(id);
        }
        Notification::Address(address, false) => {
            seen.addresses.entry(address.ifindex).or_default().insert(address.net.addr());
        }
        Notification::Rule(rule, _) if listed => {
            let (standard, others) = &mut seen.rules[usize::from(rule.ipv6)];
            match rule.standard {
                Some(table) => drop(standard.insert(table)),
                None => *others += 1,
            }
        }
        Notification::Rule(rule, gone) => {
            // From now on a packet's route depends on more than its destination. After a rule has been
            // removed, the rules are counted to see whether that is still so.
            seen.rules[usize::from(rule.ipv6)].1 += usize::from(!gone && rule.standard.is_none());
            seen.rules_changed = true;
        }
        Notification::Forwarding(it) => drop(seen.forwarding.insert((it.ifindex, it.ipv6), it.on)),
        Notification::Unreadable | Notification::Overrun => mirror.overrun(id),
    }
}

impl Follow {
    /// Follows a namespace by this source and this watch of its packet filter; nothing is listed yet.
    pub(crate) fn new(id: VrfId, follower: Box<dyn RouteSource>, watch: Watch) -> Self {
        // Until the rules are listed, assume the kernel's default rules.
        let standard = (BTreeSet::from([255, 254]), 0);
        Self {
            id,
            follower,
            watch,
            seen: Seen { rules: [standard.clone(), standard], ..Seen::default() },
            fresh: Seen::default(),
            events_before: 0,
            stage: None,
            consistent: true,
            tries: 0,
            began_ms: 0,
            next_audit_ms: 0,
            first_done: false,
            behind: false,
            tally: Tally::default(),
        }
    }
    /// True while an audit lists the tables that only routes depend on: those that router interfaces depend on have been
    /// listed.
    pub(crate) fn knows_routers(&self) -> bool {
        self.stage.is_some_and(|at| at >= ROUTING_STAGES)
    }
    /// When the next audit is due; `None` while one runs or none is wanted.
    pub(crate) fn next_audit_ms(&self, mirror: &Routing) -> Option<u64> {
        let wanted = mirror.audit_wanted(self.id) || self.seen.rules_changed;
        (self.stage.is_none() && wanted).then_some(self.next_audit_ms)
    }
    /// The facts about this VRF besides its routes.
    pub(crate) fn router(&self) -> Router {
        self.seen.router(self.id, self.watch.filter())
    }
    /// Reads events; returns their number.
    pub(crate) fn events(&mut self, mirror: &mut Routing) -> usize {
        let Self { id, follower, seen, tally, behind, .. } = self;
        let count = follower.read(TURN, &mut |received| {
            if matches!(received, Notification::Overrun) {
                tally.overruns += 1;
                *behind = true;
            }
            seen.events += u64::from(matches!(
                received,
                Notification::Link(..) | Notification::Address(..) | Notification::Rule(..)
            ));
            take_in(mirror, *id, seen, received, false);
        });
        self.behind &= count >= TURN;
        count
    }

    /// Begins an audit when one is due, and reads a part of the running one. Returns true when
    /// there was progress.
    pub(crate) fn listing(&mut self, mirror: &mut Routing, now_ms: u64) -> bool {
        let Some(at) = self.stage else {
            let wanted = mirror.audit_wanted(self.id) || self.seen.rules_changed;
            if !wanted || self.behind || now_ms < self.next_audit_ms || mirror.auditing(self.id) {
                return false;
            }
            self.seen.rules_changed = false;
            (self.fresh, self.events_before) = (Seen::default(), self.seen.events);
            (self.began_ms, self.consistent) = (now_ms, true);
            mirror.audit(self.id);
            self.begin(0);
            return true;
        };
        let Self { id, follower, fresh, .. } = self;
        let mut count = 0;
        let progress = follower.read_listing(TURN, &mut |received| {
            count += 1;
            take_in(mirror, *id, fresh, received, true);
        });
        match progress {
            Ok(Progress::More) => return count > 0,
            Ok(Progress::Done { consistent }) => self.consistent &= consistent,
            // The kernel does not have this table: that does not make the audit inconsistent, whereas a lost answer (ENOBUFS)
            // does.
            Err(error) => self.consistent &= error.raw_os_error() != Some(nix::libc::ENOBUFS),
        }
        self.keep(STAGES[at]);
        self.begin(at + 1);
        if self.stage.is_none() {
            if self.seen.events != self.events_before {
                // Events changed this state while it was listed, and it is not known whether an event or the listing is newer.
                mirror.overrun(self.id);
            }
            self.tries = if self.consistent { 0 } else { self.tries + 1 };
            mirror.audited(self.id, self.consistent);
            self.tally.audits += 1;
            self.next_audit_ms =
                now_ms + AUDIT_GAP_MS.max((now_ms - self.began_ms) * 10 * u64::from(self.tries.min(TRIES)));
            self.first_done |= self.consistent || self.tries >= TRIES;
        }
        true
    }
    /// Takes over the result of a stage.
    fn keep(&mut self, table: Table) {
        let (seen, fresh) = (&mut self.seen, &mut self.fresh);
        match table {
            Table::Links => seen.children = std::mem::take(&mut fresh.children),
            Table::Addresses => seen.addresses = std::mem::take(&mut fresh.addresses),
            Table::Forwarding6 => seen.forwarding = std::mem::take(&mut fresh.forwarding),
            Table::Rules4 => seen.rules[0] = std::mem::take(&mut fresh.rules[0]),
            Table::Rules6 => seen.rules[1] = std::mem::take(&mut fresh.rules[1]),
            _ => {}
        }
    }
    /// Begins the first stage from `first` on whose listing can be started; `stage` is `None` if there is none.
    fn begin(&mut self, first: usize) {
        self.stage = None;
        for (at, table) in STAGES.iter().enumerate().skip(first) {
            if self.follower.list(*table).is_ok() {
                self.stage = Some(at);
                return;
            }
            self.consistent = false;
        }
    }
}

#[cfg(test)]
#[path = "follower_tests.rs"]
pub(crate) mod tests;
