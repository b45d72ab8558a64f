//! Multicast snooping on the protocol thread: messages about memberships and timers in; entries of the plane's MDB, queries
//! and relayed messages out.
//!
//! Invariants: a plane that forwards without the daemon has entries only as long as this thread works: it restarts a watchdog,
//! and after the watchdog has expired every VLAN floods until its members have been queried again. When the plane has no room
//! for an entry, it has no entry for the group's other sources either, which makes the group an unregistered one, and
//! unregistered groups of that VLAN are flooded: no member gets too little.

use super::work::{Io, Protocol, Report, SnoopingEvent as Event};
use lanyard_plane::{Flooded, MdbChange, PlaneError};
use lanyard_snoop::{Action, Config, Flood};
use lanyard_switch::snooping::Classifier;
use lanyard_types::{Family, PortId, PortSet, TrapGroup, VlanId, VlanSet};
use lanyard_wire::{Frame, pop};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;

/// How long the plane limits groups to their members after this thread has ended or hangs: longer than a restart takes, and much
/// shorter than memberships last, because new members wait for this time at most.
const WATCHDOG: Duration = Duration::from_secs(10);
/// How often the watchdog is restarted.
const WATCHDOG_EVERY_MS: u64 = 3000;
/// The maximum number of refused entries that are tried again when an entry is removed.
const RETRIES: usize = 16;
/// The number of unsuccessful retries after which further removals in the same turn cause no retries. A chip takes some 60 us for
/// each, and when many members leave at once, retries after each removal would keep this thread from its other protocols for
/// seconds.
const MISSES_A_TURN: usize = 64;
/// The interval of retries without a removal, in milliseconds: the plane does not use a freed row of its table again for a
/// second.
const RETRY_MS: u64 = 1000;
/// The interval while the plane enlarges its table.
const RETRY_GROWING_MS: u64 = 20;
/// The maximum number of refused entries that are tried again when a retry interval ends. A chip takes some 60 ms for them, the
/// eBPF plane a few.
const RETRIES_EACH: usize = 1024;

/// An entry: a VLAN, a group, and a source; `None` stands for all sources without an entry of their own.
type Key = (VlanId, IpAddr, Option<IpAddr>);

/// Snooping on the protocol thread; see the module comment.
#[derive(Default)]
pub(crate) struct Snooping {
    machines: lanyard_snoop::Snooping,
    classifiers: BTreeMap<PortId, Classifier>,
    /// True once the plane's entries have been taken over.
    adopted: bool,
    /// Entries that the plane has refused, or that were removed from it because another entry of their group was refused, with
    /// their ports.
    refused: BTreeMap<Key, Box<PortSet>>,
    /// By VLAN and group: the ports for sources without an entry of their own, if the plane has that entry.
    any: BTreeMap<(VlanId, IpAddr), Box<PortSet>>,
    /// By VLAN and address family: which groups are flooded (all, the unregistered ones, or none), as the machines have decided.
    flooded: BTreeMap<(VlanId, Family), Flood>,
    /// VLANs whose flooding the plane has not taken yet.
    unsettled: BTreeSet<(VlanId, Family)>,
    /// True if a listener wants events of groups.
    pub(crate) events: bool,
    /// True if a report about a refusal has been made since the plane had every entry.
    reported_full: bool,
    /// The refused entry that was tried last. The next retry begins behind it, so that an entry whose part of the table stays
    /// full does not keep the others from being tried.
    retried: Option<Key>,
    /// The number of unsuccessful retries in this turn.
    misses: usize,
    /// True if the plane's last refusal lasts only until the plane has enlarged its table.
    growing: bool,
    /// When refused entries are tried again.
    retry_ms: Option<u64>,
    /// When the watchdog is restarted; `None`: it does not run.
    watchdog_ms: Option<u64>,
}

impl Snooping {
    /// The machines, for views and for `clear`.
    pub(crate) const fn machines(&self) -> &lanyard_snoop::Snooping {
        &self.machines
    }
    pub(crate) const fn machines_mut(&mut self) -> &mut lanyard_snoop::Snooping {
        &mut self.machines
    }

    /// Takes a configuration. The first one also takes over the entries that an adopted plane has kept.
    pub(crate) fn configure(
        &mut self,
        io: &mut Io<'_>,
        config: Config,
        classifiers: BTreeMap<PortId, Classifier>,
    ) {
        let now = io.now();
        self.classifiers = classifiers;
        self.machines.configure(now, config);
        if !std::mem::replace(&mut self.adopted, true) {
            let (mut entries, mut routers) = (Vec::new(), Vec::new());
            let mut unknown = VlanSet::EMPTY;
            for change in io.plane.multicast_held() {
                match change {
                    MdbChange::Entry { vlan, group, source, ports } => {
                        let ports = ports.unwrap_or_default();
                        if source.is_none() {
                            self.any.insert((vlan, group), ports.clone());
                        }
                        entries.push((vlan, group, source, *ports));
                    }
                    MdbChange::Routers { vlan, family, ports } => routers.push((vlan, family, *ports)),
                    MdbChange::Flood { vlan, family, flooded } => {
                        self.unsettled.insert((vlan, family));
                        if flooded != Flooded::Nothing {
                            unknown.insert(vlan);
                        }
                    }
                }
            }
            // The actions of the configuration itself are carried out first: static entries replace what was found.
            self.act(io);
            self.machines.restore(now, &entries, &routers);
            // The plane has no entries for groups that had no room or whose ports were not known: query for their members.
            self.topology_changed(now, &unknown);
        }
        if self.machines.config().vlans.is_empty() {
            self.watchdog_ms = None;
            // If the watchdog cannot be stopped, it does no harm: it only ends limits, and there are none.
            let _ = io.plane.snooping_watchdog(None);
        } else if self.watchdog_ms.is_none() {
            self.watchdog_ms = Some(now);
        }
        self.act(io);
    }

    /// Handles changes of topology in these VLANs.
    pub(crate) fn topology_changed(&mut self, now: u64, vlans: &VlanSet) {
        vlans.iter().for_each(|vlan| self.machines.handle_topology_change(now, vlan));
    }

    fn watch(&mut self, io: &mut Io<'_>) {
        let now = io.now();
        if self.watchdog_ms.is_none_or(|at| at > now) {
            return;
        }
        self.watchdog_ms = Some(now + WATCHDOG_EVERY_MS);
        // Without a watchdog groups stay limited when the daemon ends; snooping itself works.
        let _ = io.plane.snooping_watchdog(Some(WATCHDOG));
        if io.plane.snooping_expired() {
            // Members may have come and gone without a message to this thread: query for them.
            let vlans: VlanSet = self.machines.config().vlans.keys().map(|(vlan, _)| *vlan).collect();
            self.topology_changed(now, &vlans);
        }
    }

    fn set(&mut self, io: &mut Io<'_>, (vlan, group, source): Key, ports: Option<Box<PortSet>>) {
        let key = (vlan, group, source);
        if self.refused.remove(&key).is_some() {
            self.unsettled.insert((vlan, Family::of(group)));
        }
        if let Some(ports) = ports.clone().filter(|_| source.is_none() && self.lacks_sources(vlan, group)) {
            self.refuse(io, key, ports);
            return;
        }
        let change = MdbChange::Entry { vlan, group, source, ports: ports.clone() };
        let given = io.plane.multicast(&change);
        match (given, ports) {
            (Ok(()), None) => {
                self.took(key, None);
                self.retry(io, RETRIES.min(MISSES_A_TURN.saturating_sub(self.misses)));
            }
            (Ok(()), ports) => {
                self.took(key, ports);
                // In a hash table with collisions an entry may have room after another one had none.
                self.reported_full &= !self.refused.is_empty();
            }
            // The plane has not removed the entry: the next configuration removes it, or the watchdog ends its effect.
            (Err(_), None) => {}
            (Err(reason), Some(ports)) => {
                self.refuse(io, key, ports);
                self.note(&reason);
                if !self.growing && !std::mem::replace(&mut self.reported_full, true) {
                    io.reports.add(Report::Snooping(Event::Refused { vlan, group, reason }));
                }
            }
        }
    }

    /// Stores the ports of an entry that the plane has accepted or removed (`None`), if it is the entry for other sources.
    fn took(&mut self, (vlan, group, source): Key, ports: Option<Box<PortSet>>) {
        match ports {
            _ if source.is_some() => {}
            Some(ports) => _ = self.any.insert((vlan, group), ports),
            None => _ = self.any.remove(&(vlan, group)),
        }
    }
    /// True if a source of the group has no entry because it was refused.
    fn lacks_sources(&self, vlan: VlanId, group: IpAddr) -> bool {
        let first = (vlan, group, None);
        let behind = (Bound::Excluded(first), Bound::Unbounded);
        let next = self.refused.range::<Key, _>(behind).next();
        next.is_some_and(|((of, refused, _), _)| (*of, *refused) == (vlan, group))
    }
    /// Stores an entry that the plane does not have. The whole group is flooded then: without the entry for other sources a group
    /// is an unregistered one, and the flooding of unregistered groups is set before that entry is removed.
    fn refuse(&mut self, io: &mut Io<'_>, key: Key, ports: Box<PortSet>) {
        let (vlan, group, _) = key;
        self.refused.insert(key, ports);
        self.unsettled.insert((vlan, Family::of(group)));
        if let Some(ports) = self.any.remove(&(vlan, group)) {
            self.settle(io);
            self.refused.entry((vlan, group, None)).or_insert(ports);
            // A plane that cannot remove the entry continues to forward to the members in it.
            let _ = io.plane.multicast(&MdbChange::Entry { vlan, group, source: None, ports: None });
        }
    }
    /// Stores the entries that the plane has lost, to try them again.
    fn take_back(&mut self, io: &mut Io<'_>) {
        for change in io.plane.multicast_lost() {
            let MdbChange::Entry { vlan, group, source, ports: Some(ports) } = change else { continue };
            self.took((vlan, group, source), None);
            self.refused.entry((vlan, group, source)).or_insert(ports);
            self.unsettled.insert((vlan, Family::of(group)));
            if !std::mem::replace(&mut self.reported_full, true) {
                let reason = PlaneError::Invalid("the chip that took over has less room".into());
                io.reports.add(Report::Snooping(Event::Refused { vlan, group, reason }));
            }
        }
    }

    /// Tries entries again that had no room, at most `most` of them.
    fn retry(&mut self, io: &mut Io<'_>, most: usize) {
        for _ in 0..most.min(self.refused.len()) {
            let behind = |last| self.refused.range((Bound::Excluded(last), Bound::Unbounded)).next();
            let next = self.retried.and_then(behind).or_else(|| self.refused.first_key_value());
            let Some((&key, ports)) = next else { return };
            let (vlan, group, source) = key;
            let ports = ports.clone();
            self.retried = Some(key);
            if source.is_none() && self.lacks_sources(vlan, group) {
                continue;
            }
            self.give(io, key, ports);
            // If this was the last refused source of the group, give the plane the entry for other sources as well, which ends
            // the group's flooding.
            let whole = (vlan, group, None);
            if source.is_some()
                && !self.lacks_sources(vlan, group)
                && let Some(ports) = self.refused.get(&whole).cloned()
            {
                self.give(io, whole, ports);
            }
        }
    }
    /// Gives the plane an entry again that it has refused.
    fn give(&mut self, io: &mut Io<'_>, key: Key, ports: Box<PortSet>) {
        let (vlan, group, source) = key;
        let change = MdbChange::Entry { vlan, group, source, ports: Some(ports.clone()) };
        match io.plane.multicast(&change) {
            Ok(()) => {
                self.took(key, Some(ports));
                self.refused.remove(&key);
                self.unsettled.insert((vlan, Family::of(group)));
            }
            Err(reason) => {
                self.misses += 1;
                self.note(&reason);
            }
        }
    }

    /// Stores whether the plane has refused an entry because it enlarges its table, which determines when entries are tried
    /// again.
    fn note(&mut self, reason: &PlaneError) {
        self.growing = matches!(reason, PlaneError::Growing { .. });
        if self.growing {
            self.retry_ms = None;
        }
    }

    /// True while the plane refuses an entry of a VLAN, which then floods unregistered groups.
    pub(crate) fn has_refused(&self, vlan: VlanId, family: Family) -> bool {
        self.refused.keys().any(|(refused, group, _)| (*refused, Family::of(*group)) == (vlan, family))
    }

    /// Writes to the plane which frames the changed VLANs flood.
    fn settle(&mut self, io: &mut Io<'_>) {
        for (vlan, family) in std::mem::take(&mut self.unsettled) {
            let flooded = match self.flooded.get(&(vlan, family)).copied().unwrap_or_default() {
                Flood::All => Flooded::All,
                Flood::Unregistered => Flooded::Unregistered,
                Flood::Nothing if self.has_refused(vlan, family) => Flooded::Unregistered,
                Flood::Nothing => Flooded::Nothing,
            };
            // Only a plane without an MDB refuses this, and it floods everything.
            let _ = io.plane.multicast(&MdbChange::Flood { vlan, family, flooded });
        }
    }
}

impl Protocol for Snooping {
    fn takes(&self, group: TrapGroup) -> bool {
        group == TrapGroup::Multicast
    }
    fn handle_frame(&mut self, now: u64, port: PortId, frame: &[u8]) {
        let Some(classifier) = self.classifiers.get(&port) else { return };
        let tag = classifier.tpid.and_then(|tpid| Frame::new(frame).ok()?.tag(tpid).ok().flatten());
        let Some(vlan) = classifier.vlan(tag.map(|tag| tag.vid)) else { return };
        // A refused message has been counted.
        if tag.is_none() {
            let _ = self.machines.handle_frame(now, vlan, port, frame);
            return;
        }
        let mut bare = frame.to_vec();
        if pop(&mut bare).is_ok() {
            let _ = self.machines.handle_frame(now, vlan, port, &bare);
        }
    }
    fn next_ms(&self) -> Option<u64> {
        self.machines.next_timeout().into_iter().chain(self.watchdog_ms).chain(self.retry_ms).min()
    }
    fn act(&mut self, io: &mut Io<'_>) {
        let now = io.now();
        self.misses = 0;
        if self.machines.next_timeout().is_some_and(|at| at <= now) {
            self.machines.handle_timer(now);
        }
        self.watch(io);
        self.take_back(io);
        while let Some(action) = self.machines.poll_action() {
            match action {
                Action::Group { vlan, group, source, ports } => {
                    if self.events {
                        let ports = ports.clone();
                        io.reports.add(Report::Snooping(Event::Group { vlan, group, source, ports }));
                    }
                    self.set(io, (vlan, group, source), ports);
                }
                Action::Routers { vlan, family, ports } => {
                    // Only a plane without an MDB refuses this, and it floods everything.
                    let _ = io.plane.multicast(&MdbChange::Routers { vlan, family, ports: ports.clone() });
                    if self.events {
                        io.reports.add(Report::Snooping(Event::Routers { vlan, family, ports }));
                    }
                }
                Action::Flood { vlan, family, what } => {
                    self.flooded.insert((vlan, family), what);
                    self.unsettled.insert((vlan, family));
                }
                Action::Send { vlan, from, ports, frame } => {
                    io.plane.relay(vlan, from, &ports, &frame);
                }
                Action::Full { vlan, port } => {
                    if !std::mem::replace(&mut self.reported_full, true) {
                        io.reports.add(Report::Snooping(Event::Full { vlan, port }));
                    }
                }
            }
        }
        if self.retry_ms.is_some_and(|at| at <= now) {
            self.retry_ms = None;
            self.retry(io, RETRIES_EACH);
        }
        if self.retry_ms.is_none() && !self.refused.is_empty() {
            self.retry_ms = Some(now + if self.growing { RETRY_GROWING_MS } else { RETRY_MS });
        }
        self.settle(io);
    }
}
