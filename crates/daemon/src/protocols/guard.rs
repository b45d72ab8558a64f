//! First-hop security on the protocol thread: DHCP messages in VLANs with DHCP snooping and messages of neighbour discovery in
//! VLANs with ND inspection are inspected and sent on, leases and neighbours become bindings in the plane, and what planes and
//! inspection drop is reported for the log.
//!
//! Invariants: a message that does not pass inspection is sent nowhere. Hosts cause at most one report for each port and kind of
//! frame in [`REPORT_EVERY_MS`]. Leases and neighbours are in two files, which threads of their own write: one in the run
//! directory, for a restart of the daemon, and one in the state directory, for a start of the machine, which is written less
//! often.

use super::keeper::{Keeper, KeptLease, KeptLeases, KeptNeighbour, Moment};
use super::work::{GuardEvent as Event, Io, Protocol, Report};
use crate::clock::Clock;
use lanyard_guard::{
    Action, Config, Denied, Denied6, Inspector, Lease, NdConfig, Neighbour, Owner, Snooper, State, describe,
};
use lanyard_pipeline::tables::bindings::family;
use lanyard_switch::snooping::Classifier;
use lanyard_types::{Family, PortId, TrapGroup, TrapReason, VlanId};
use lanyard_wire::{Frame, pop};
use std::collections::BTreeMap;

/// The least time between two reports about frames of one kind at one port, in milliseconds.
const REPORT_EVERY_MS: u64 = 5_000;
/// The first kind of reports about DHCP snooping; the kinds of frames that planes drop ([`Denied::kind`]) are below it.
const INSPECTED: u8 = 8;
/// The first kind of reports about messages that ND inspection drops, and the first kind about changes of its bindings.
const DISCOVERED: u8 = 24;
const CHANGED: u8 = 40;

/// The least time between two writes of the file in the state directory, in milliseconds.
const LASTING_EVERY_MS: u64 = 60_000;
/// The pause between two writes of the file in the run directory is one millisecond for each of this many leases and neighbours.
const LEASES_A_MS: usize = 16;

/// The writers of the files of leases, and what they need.
struct Kept {
    clock: Clock,
    /// See [`Moment::boot`].
    boot: String,
    files: [File; 2],
}

struct File {
    keeper: Keeper<KeptLeases>,
    /// The version ([`Guard::version`]) of the leases and neighbours that the file contains.
    version: u64,
    /// When it may be written again.
    next_ms: u64,
    /// The least time between two writes, for a number of leases and neighbours.
    every_ms: fn(usize) -> u64,
}

/// First-hop security on the protocol thread; see the module comment.
#[derive(Default)]
pub(crate) struct Guard {
    snooper: Snooper,
    inspector: Inspector,
    classifiers: BTreeMap<PortId, Classifier>,
    /// The names of the ports, which stand for them in the files.
    names: BTreeMap<PortId, String>,
    kept: Option<Kept>,
    /// The last run's saved state, until the first configuration.
    found: Option<KeptLeases>,
    adopted: bool,
    /// The frames that planes have dropped, until the next [`Protocol::act`].
    denied: Vec<(PortId, VlanId, Denied)>,
    /// By port and kind: when the next report is due, and the number of frames since the last one. Bounded by the number of
    /// ports.
    reported: BTreeMap<(PortId, u8), (u64, u64)>,
    /// Bindings of IPv4 and of IPv6 that the plane has refused.
    refused: [u64; 2],
}

impl Guard {
    /// DHCP snooping, for views and `clear`.
    pub(crate) const fn snooper(&self) -> &Snooper {
        &self.snooper
    }
    pub(crate) const fn snooper_mut(&mut self) -> &mut Snooper {
        &mut self.snooper
    }
    /// ND inspection, for views and `clear`.
    pub(crate) const fn inspector(&self) -> &Inspector {
        &self.inspector
    }
    pub(crate) const fn inspector_mut(&mut self) -> &mut Inspector {
        &mut self.inspector
    }
    /// The bindings of IPv4 and of IPv6 that the plane has refused since the daemon was started or the counts were
    /// cleared.
    pub(crate) const fn refused(&self) -> [u64; 2] {
        self.refused
    }
    /// Sets the count of refused bindings of a family to 0.
    pub(crate) fn clear_refused(&mut self, family: Family) {
        self.refused[family as usize] = 0;
    }

    /// Continues with the state `found` that an earlier run has left, and saves the leases with these writers: `restart` for a
    /// restart of the daemon, `start` for a start of the machine.
    pub(crate) fn resume(
        &mut self,
        clock: Clock,
        boot: String,
        [restart, start]: [Keeper<KeptLeases>; 2],
        found: Option<KeptLeases>,
    ) {
        let file = |keeper, every_ms| File { keeper, version: 0, next_ms: 0, every_ms };
        let files =
            [file(restart, |leases| (leases / LEASES_A_MS) as u64), file(start, |_| LASTING_EVERY_MS)];
        (self.kept, self.found) = (Some(Kept { clock, boot, files }), found);
    }
    /// Makes the next configuration the first one.
    #[cfg(test)]
    pub(crate) fn forget_adoption(&mut self) {
        self.adopted = false;
    }
    /// From now on threads write the files.
    pub(crate) fn keep_by_thread(&mut self) {
        self.kept.iter_mut().flat_map(|kept| &mut kept.files).for_each(|file| file.keeper.start());
    }

    /// Takes a configuration. The first one also takes over the leases of the last run and the bindings of an adopted plane.
    pub(crate) fn configure(
        &mut self,
        io: &mut Io<'_>,
        (config, nd_config): (Config, NdConfig),
        classifiers: BTreeMap<PortId, Classifier>,
        names: BTreeMap<PortId, String>,
    ) {
        (self.classifiers, self.names) = (classifiers, names);
        self.snooper.configure(config);
        self.inspector.configure(nd_config);
        if !std::mem::replace(&mut self.adopted, true) {
            self.adopt(io);
        }
        let ports = &self.names;
        self.reported.retain(|(port, _), _| ports.contains_key(port));
        self.act(io);
    }

    /// Takes over the leases and neighbours of the last run, and the bindings of an adopted plane.
    fn adopt(&mut self, io: &mut Io<'_>) {
        let numbers: BTreeMap<&str, PortId> =
            self.names.iter().map(|(port, name)| (name.as_str(), *port)).collect();
        let (leases, neighbours) =
            self.found.take().map(|found| (found.leases, found.neighbours)).unwrap_or_default();
        let lease = |kept: &KeptLease| {
            Some(Lease {
                vlan: kept.vlan,
                mac: kept.mac,
                address: kept.address,
                port: *numbers.get(kept.interface.as_str())?,
                expires_ms: kept.expires_ms,
            })
        };
        let neighbour = |kept: &KeptNeighbour| {
            let owner = Owner { port: *numbers.get(kept.interface.as_str())?, mac: kept.mac };
            Some(Neighbour { vlan: kept.vlan, address: kept.address, owner })
        };
        let leases: Vec<Lease> = leases.iter().filter_map(lease).collect();
        let neighbours: Vec<Neighbour> = neighbours.iter().filter_map(neighbour).collect();
        // Discard the actions for the bindings of the configuration: `restore` compares these as well.
        while self.snooper.poll_action().or_else(|| self.inspector.poll_action()).is_some() {}
        let held = io.plane.bindings();
        self.snooper.restore(io.now(), &leases, &held);
        self.inspector.restore(io.now(), &neighbours, &held);
    }

    /// The VLAN of a frame, for a secondary private VLAN its primary one, and the frame without its tag.
    fn classify(&self, port: PortId, frame: &[u8]) -> Option<(VlanId, Vec<u8>)> {
        let classifier = self.classifiers.get(&port)?;
        let tag = classifier.tpid.and_then(|tpid| Frame::new(frame).ok()?.tag(tpid).ok().flatten());
        let vlan = classifier.vlan(tag.map(|tag| tag.vid))?;
        let mut bare = frame.to_vec();
        if tag.is_some() {
            pop(&mut bare).ok()?;
        }
        Some((vlan, bare))
    }

    /// Handles a frame that was trapped for `reason`.
    pub(crate) fn handle_trapped(&mut self, now: u64, port: PortId, reason: TrapReason, frame: &[u8]) {
        if reason == TrapReason::Dhcp {
            return self.handle_frame(now, port, frame);
        }
        let Some((vlan, bare)) = self.classify(port, frame) else { return };
        if reason == TrapReason::Nd {
            return self.inspector.handle_frame(now, vlan, port, &bare);
        }
        let Some(denied) = describe(&bare) else { return };
        if let Denied::Ipv6 { address, src, kind: Denied6::Source } = denied {
            self.inspector.handle_data(now, vlan, port, src, address);
        }
        self.denied.push((port, vlan, denied));
    }

    /// Counts a frame of `kind` at a port. Returns the number of frames since the last report if a report is due, otherwise
    /// `None`.
    fn due(&mut self, now: u64, port: PortId, kind: u8) -> Option<u64> {
        let (at_ms, unsaid) = self.reported.entry((port, kind)).or_default();
        *unsaid += 1;
        if *at_ms > now {
            return None;
        }
        *at_ms = now + REPORT_EVERY_MS;
        Some(std::mem::take(unsaid))
    }

    /// A number that differs when the leases or the neighbours have changed.
    const fn version(&self) -> u64 {
        self.snooper.version() + self.inspector.version()
    }

    /// Queues the present leases and neighbours for each file that does not contain them: for every such file if `all`,
    /// otherwise for those that may be written again. Returns why earlier writes failed.
    fn keep(&mut self, all: bool) -> Vec<String> {
        let (version, names) = (self.version(), &self.names);
        let (snooper, inspector) = (&self.snooper, &self.inspector);
        let Some(Kept { clock, boot, files }) = self.kept.as_mut().filter(|_| self.adopted) else {
            return Vec::new();
        };
        let now = clock.boot_ms();
        let leases = || -> Vec<KeptLease> {
            let kept = snooper.leases().filter_map(|lease| {
                Some(KeptLease {
                    interface: names.get(&lease.port)?.clone(),
                    vlan: lease.vlan,
                    mac: lease.mac,
                    address: lease.address,
                    expires_ms: lease.expires_ms,
                })
            });
            kept.collect()
        };
        let neighbours = || -> Vec<KeptNeighbour> {
            let kept = inspector.neighbours().filter(|(_, state, _)| *state != State::Tentative);
            let kept = kept.filter_map(|(Neighbour { vlan, address, owner }, ..)| {
                let interface = names.get(&owner.port)?.clone();
                Some(KeptNeighbour { interface, vlan, mac: owner.mac, address })
            });
            kept.collect()
        };
        let mut failures = Vec::new();
        for file in files.iter_mut().filter(|file| file.version != version && (all || file.next_ms <= now)) {
            let (leases, neighbours) = (leases(), neighbours());
            let every_ms = (file.every_ms)(leases.len() + neighbours.len());
            (file.version, file.next_ms) = (version, now + every_ms);
            let at = Moment { boot: boot.clone(), boot_ms: now, unix_ms: clock.unix_ms() };
            failures.extend(file.keeper.put(Some(KeptLeases { at, leases, neighbours })));
        }
        failures
    }
}

/// Writes the files when the daemon ends.
impl Drop for Guard {
    fn drop(&mut self) {
        // The reasons of failed writes cannot be reported any more.
        let _ = self.keep(true);
    }
}

impl Protocol for Guard {
    fn takes(&self, group: TrapGroup) -> bool {
        matches!(group, TrapGroup::Dhcp | TrapGroup::Nd | TrapGroup::Guarded)
    }
    fn handle_frame(&mut self, now: u64, port: PortId, frame: &[u8]) {
        if let Some((vlan, bare)) = self.classify(port, frame) {
            self.snooper.handle_frame(now, vlan, port, &bare);
        }
    }
    fn next_ms(&self) -> Option<u64> {
        let version = self.version();
        let files = self.kept.iter().filter(|_| self.adopted).flat_map(|kept| &kept.files);
        let writes = files.filter(|file| file.version != version).map(|file| file.next_ms);
        self.snooper.next_timeout().into_iter().chain(self.inspector.next_timeout()).chain(writes).min()
    }
    fn act(&mut self, io: &mut Io<'_>) {
        let now = io.now();
        if self.snooper.next_timeout().is_some_and(|at| at <= now) {
            self.snooper.handle_timer(now);
        }
        if self.inspector.next_timeout().is_some_and(|at| at <= now) {
            self.inspector.handle_timer(now);
        }
        for (port, vlan, denied) in std::mem::take(&mut self.denied) {
            if let Some(frames) = self.due(now, port, denied.kind()) {
                io.reports.add(Report::Guard(Event::Denied { port, vlan, denied, frames }));
            }
        }
        while let Some(action) = self.snooper.poll_action().or_else(|| self.inspector.poll_action()) {
            let report = self.carry_out(now, io, action);
            report.into_iter().for_each(|event| io.reports.add(Report::Guard(event)));
        }
        for reason in self.keep(false) {
            io.reports.add(Report::Guard(Event::NotKept(reason)));
        }
    }
}

impl Guard {
    /// Carries out what a machine asks for. Returns what is to be reported.
    fn carry_out(&mut self, now: u64, io: &mut Io<'_>, action: Action) -> Option<Event> {
        match action {
            Action::Send { vlan, from, ports, frame } => {
                io.plane.relay(vlan, from, &ports, &frame);
                None
            }
            Action::Bind(key, mac) => {
                let reason = io.plane.bind(key, mac).err()?;
                self.refused[family(&key.address)] += 1;
                let frames = self.due(now, key.port, INSPECTED + 1)?;
                Some(Event::Refused { key, reason, frames })
            }
            Action::Dropped { port, vlan, reason, kind, src, client } => {
                let frames = self.due(now, port, INSPECTED + 2 + reason as u8)?;
                Some(Event::Dropped { port, vlan, reason, kind, src, client, frames })
            }
            Action::NdDropped { neighbour, reason, kind } => {
                let frames = self.due(now, neighbour.owner.port, DISCOVERED + reason as u8)?;
                Some(Event::NdDropped { neighbour, reason, kind, frames })
            }
            Action::Neighbour(change, neighbour) => {
                let changes = self.due(now, neighbour.owner.port, CHANGED + change as u8)?;
                Some(Event::Neighbour { change, neighbour, changes })
            }
            Action::Full { lease } => {
                self.due(now, lease.port, INSPECTED)?;
                Some(Event::Full { lease })
            }
        }
    }
}
