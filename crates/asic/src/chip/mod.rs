//! The chip: the pipeline behind finite tables, its configuration, and the addresses it learns; without I/O and without
//! a clock.
//!
//! Read [`Chip::commit`] (in `transaction.rs`) first. [`fabric`] is where frames wait, [`device`] the chip as its drivers see it
//! (sessions, bus, faults), [`serve`] the process.
//!
//! Invariants: a transaction is carried out as a whole or leaves no trace. Every entry that the pipeline looks up has
//! an entry in the tables, so an entry for which there is no room is in neither. If there is no room for an address it
//! is not learned, and frames to it are flooded.

mod channels;
pub mod device;
pub mod fabric;
mod links;
pub mod segments;
pub mod serve;
mod transaction;
mod trees;
mod watch;

use crate::platform::Platform;
use crate::sdk::cpu::CpuHeader;
use crate::sdk::message::{Event, LearnedEntry, Refused};
use crate::sdk::operation::Operation;
use crate::tables::{AclRule, Item, Tables, Usage};
use ipnet::IpNet;
use lanyard_pipeline::state::{PlaneState, PortKind, VlanState};
use lanyard_pipeline::tables::acls::{Answer, Question};
use lanyard_pipeline::tables::fdb::{FdbEntry, FdbEvent, FdbFilter, FdbKind};
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Pipeline, Sink, Timestamp, relay};
use lanyard_types::{AclId, InstanceId, PortId, PortSet, Stage, TrapReason, VlanId, VrfId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The effects of frames and commands: sent frames, frames for the CPU, events. A frame that leaves as it arrived is borrowed:
/// a buffer of segments has up to 64 KB, and a copy of it costs more than the rest of its way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects<'a> {
    /// Frames sent to front-panel ports, in the order of the pipeline.
    pub sent: Vec<(PortId, Cow<'a, [u8]>)>,
    /// Frames to the CPU port.
    pub cpu: Vec<(CpuHeader, Cow<'a, [u8]>)>,
    /// Events for drivers.
    pub events: Vec<Event>,
    /// Frames for the driver that diverted lists have to judge, and the ports that have received them.
    pub diverted: Vec<(PortId, Vec<Question>, Vec<u8>)>,
}

/// See the module comment.
#[derive(Debug)]
pub struct Chip {
    tables: Tables,
    pipeline: Pipeline,
    state: PlaneState,
    rules: BTreeMap<(u32, u32), AclRule>,
    /// Diverted lists: they take no entries, and the driver judges frames by them.
    diverted: BTreeSet<AclId>,
    /// Ports without a link, by which no port-channel sends.
    down: PortSet,
    /// See [`Chip::distributing`].
    distributing: PortSet,
    /// The number of router interfaces and routes of each VRF. A VRF takes an entry while this is not 0.
    vrf_users: BTreeMap<VrfId, u32>,
    learn_refused: u64,
    /// True while no VLAN is snooped, even where the configuration says so: see [`Chip::set_snooping`].
    unsnooped: bool,
    /// The ports that an expiry of the watchdog has blocked in trees; `None` once it has been acknowledged: see
    /// [`Chip::expire_trees`].
    blocked: Option<BTreeSet<(InstanceId, PortId)>>,
    /// Packets that each route has forwarded since [`Chip::take_activity`].
    activity: BTreeMap<(VrfId, IpNet), u64>,
}

impl Chip {
    /// Creates a chip without configuration. `salt` determines which keys collide.
    #[must_use]
    pub fn new(platform: &Platform, salt: u64) -> Self {
        let mut pipeline = Pipeline::new(salt);
        let state = PlaneState::default();
        pipeline.set_global(state.global.clone());
        Self {
            tables: Tables::new(platform, salt),
            pipeline,
            state,
            rules: BTreeMap::new(),
            diverted: BTreeSet::new(),
            down: PortSet::EMPTY,
            distributing: PortSet::EMPTY,
            vrf_users: BTreeMap::new(),
            learn_refused: 0,
            unsnooped: false,
            blocked: None,
            activity: BTreeMap::new(),
        }
    }

    /// The configuration as operations. Carried out in this order, they recreate it in an empty chip.
    #[must_use]
    pub fn entries(&self) -> Vec<Operation> {
        let (state, routes) = (&self.state, &self.pipeline.tables().routes);
        let mut all = vec![Operation::Global(Box::new(state.global.clone()))];
        // `Divert` comes before the lists, because a diverted list may be too long for the tables; ports and VLANs, which refer
        // to lists, come after them.
        all.extend(self.diverted.iter().map(|id| Operation::Divert(*id, true)));
        all.extend(state.acls.iter().map(|(id, list)| Operation::List(*id, Some(list.clone()))));
        all.extend(state.vlans.iter().map(|(vlan, state)| Operation::Vlan(*vlan, Some(state.clone()))));
        // The ports of port-channels come first, because their members refer to them.
        let (channels, others): (Vec<_>, Vec<_>) =
            state.ports.iter().partition(|(_, state)| state.aggregation.channel().is_some());
        let ports = channels.into_iter().chain(others);
        all.extend(ports.map(|(port, state)| Operation::Port(*port, Some(Box::new(state.clone())))));
        all.extend(state.stp.iter().map(|((instance, port), stp)| Operation::Stp(*instance, *port, *stp)));
        all.extend(state.watched.iter().map(|(instance, port)| Operation::Watched(*instance, *port, true)));
        all.extend(state.fdb.iter().map(|((vlan, mac), target)| Operation::Fdb(*vlan, *mac, Some(*target))));
        all.extend(state.rifs.iter().map(|(rif, state)| Operation::Rif(*rif, Some(Box::new(state.clone())))));
        all.extend(routes.adjacencies().map(|id| Operation::Adjacency(id, routes.adjacency(id))));
        all.extend(routes.groups().map(|(id, buckets)| Operation::Group(id, Some(buckets.to_vec()))));
        for (vrf, tables) in routes.vrfs() {
            let ipv4 = tables.ipv4.iter().map(|(prefix, target)| (IpNet::V4(prefix), *target));
            let ipv6 = tables.ipv6.iter().map(|(prefix, target)| (IpNet::V6(prefix), *target));
            all.extend(ipv4.chain(ipv6).map(|(prefix, target)| Operation::Route(vrf, prefix, Some(target))));
        }
        all.extend(self.rules.values().map(|rule| Operation::Rule(rule.clone(), true)));
        all.extend(self.pipeline.tables().mdb.changes().iter().map(Operation::from));
        let channels = state.channels.iter();
        all.extend(channels.map(|(id, members)| Operation::Channel(*id, Some(Box::new(members.clone())))));
        all
    }

    /// The learned addresses.
    #[must_use]
    pub fn learned(&self, now: Timestamp) -> Vec<LearnedEntry> {
        let mut all = Vec::new();
        let filter = FdbFilter { kind: Some(FdbKind::Dynamic), ..FdbFilter::default() };
        self.pipeline.fdb().walk(&filter, now, &mut |entry| all.extend(learned(&entry)));
        all
    }
    /// The tables' figures.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        self.tables.usage()
    }
    /// The number of addresses that were not learned because a table had no room.
    #[must_use]
    pub fn learn_refused(&self) -> u64 {
        self.learn_refused
    }
    /// The pipeline, for inspection.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }
    /// How many packets each route has forwarded since the last call; routes without any are left out.
    pub fn take_activity(&mut self) -> Vec<(VrfId, IpNet, u64)> {
        let all = std::mem::take(&mut self.activity);
        all.into_iter().map(|((vrf, prefix), packets)| (vrf, prefix, packets)).collect()
    }
    /// How often each rule of an access list has decided, then the number of frames that no rule matched; empty if the list does
    /// not exist. With `clear` the counts are set to zero after they have been read.
    pub fn list_matches(&mut self, id: AclId, clear: bool) -> Vec<u64> {
        let counts = self.pipeline.tables().acls.matches(id).map(<[u64]>::to_vec).unwrap_or_default();
        if clear {
            self.pipeline.clear_acl_matches(id, None);
        }
        counts
    }
    /// Changes the size of a table.
    ///
    /// # Errors
    /// See [`Tables::resize`].
    pub fn resize(&mut self, path: &str, size: u32) -> Result<(), Refused> {
        self.tables.resize(path, size).map_err(transaction::refusal)
    }
    /// Stops (`on` is false) or resumes multicast snooping in all VLANs; returns true if that is a change. The configuration and
    /// the entries stay as they are.
    pub fn set_snooping(&mut self, on: bool, now: Timestamp) -> bool {
        if self.unsnooped != on {
            return false;
        }
        self.unsnooped = !on;
        let vlans: Vec<VlanId> = self.state.vlans.keys().copied().collect();
        for vlan in vlans {
            // The events are ignored: `set_vlan` removes addresses only together with the VLAN.
            self.pipeline.set_vlan(vlan, self.vlan_in_force(vlan), now, &mut |_| ());
        }
        true
    }
    /// The settings of a VLAN for the pipeline: those of the configuration, without snooping while it is stopped.
    fn vlan_in_force(&self, vlan: VlanId) -> Option<VlanState> {
        let state = self.state.vlans.get(&vlan)?.clone();
        Some(if self.unsnooped { VlanState { snooping: [None; 2], ..state } } else { state })
    }
    /// Removes learned entries; returns their number.
    pub fn flush(&mut self, filter: &FdbFilter, now: Timestamp, effects: &mut Effects) -> u64 {
        let mut gone = Vec::new();
        let count = self.pipeline.flush(filter, now, &mut |event| gone.push(event));
        gone.into_iter().for_each(|event| self.fdb_event(event, now, effects));
        count
    }
    /// Removes learned entries not seen for `seconds`; returns their number.
    pub fn age(&mut self, seconds: u32, now: Timestamp, effects: &mut Effects) -> u64 {
        let mut gone = Vec::new();
        let sweep = self.pipeline.sweep(Some(seconds), now, &mut |event| gone.push(event));
        gone.into_iter().for_each(|event| self.fdb_event(event, now, effects));
        sweep.aged
    }

    /// Processes a frame received at `port`.
    pub fn frame<'a>(
        &mut self,
        now: Timestamp,
        port: PortId,
        frame: &'a [u8],
        effects: &mut Effects<'a>,
    ) -> Verdict {
        self.segments(now, port, frame, frame.len(), effects)
    }
    /// Processes a buffer of segments received at `port` as one frame; its longest segment has `longest` bytes.
    pub fn segments<'a>(
        &mut self,
        now: Timestamp,
        port: PortId,
        frame: &'a [u8],
        longest: usize,
        effects: &mut Effects<'a>,
    ) -> Verdict {
        self.arrived(now, port, (frame, longest), None, effects)
    }
    /// Continues the processing of a diverted frame with the driver's judgements, `answers`.
    pub fn judged<'a>(
        &mut self,
        now: Timestamp,
        port: PortId,
        (frame, longest): (&'a [u8], usize),
        answers: &[Answer],
        effects: &mut Effects<'a>,
    ) -> Verdict {
        self.arrived(now, port, (frame, longest), Some(answers), effects)
    }

    fn arrived<'a>(
        &mut self,
        now: Timestamp,
        port: PortId,
        (frame, longest): (&'a [u8], usize),
        answers: Option<&[Answer]>,
        effects: &mut Effects<'a>,
    ) -> Verdict {
        let mut out =
            Out { to_cpu: &self.state, from: port, frame, effects, first: 0, learned: None, routed: None };
        out.first = out.effects.sent.len();
        let first_cpu = out.effects.cpu.len();
        let verdict = match answers {
            None => self.pipeline.process_segments(now, port, frame, longest, &mut out),
            Some(answers) => self.pipeline.process_answered(now, port, (frame, longest), answers, &mut out),
        };
        let (first, learned, routed) = (out.first, out.learned, out.routed);
        if let Some(route) = routed {
            *self.activity.entry(route).or_default() += 1;
        }
        let forwarded = effects.sent.len() > first;
        effects.cpu[first_cpu..].iter_mut().for_each(|(header, _)| header.forwarded = forwarded);
        if let Verdict::Trapped(reason) = verdict
            && reason.stage() == Stage::Route
            && effects.cpu.len() == first_cpu
        {
            let header = CpuHeader { reason: Some(reason), port: Some(port), ..CpuHeader::default() };
            effects.cpu.push((header, Cow::Borrowed(frame)));
        }
        if let Some(event) = learned {
            self.fdb_event(event, now, effects);
        }
        verdict
    }

    /// Sends a frame of the control plane in a VLAN: see [`relay::copies`]. Copies for interfaces go to the CPU.
    pub fn relay(
        &mut self,
        vlan: VlanId,
        from: Option<PortId>,
        ports: &PortSet,
        frame: &[u8],
        effects: &mut Effects<'_>,
    ) {
        for (port, bytes) in relay::copies(self.pipeline.tables(), vlan, from, ports, frame) {
            let port = self.sender(port);
            self.pipeline.count_injected(port, bytes.len(), true);
            if is_interface(&self.state, port) {
                let header = CpuHeader { port: from, to: Some(port), ..CpuHeader::default() };
                effects.cpu.push((header, Cow::Owned(bytes)));
            } else {
                effects.sent.push((port, Cow::Owned(bytes)));
            }
        }
    }
    /// Counts a frame of `len` bytes that the CPU sends at `port` without passing the stages; `sent` is false if it was dropped.
    pub fn count_injected(&mut self, port: PortId, len: usize, sent: bool) {
        self.pipeline.count_injected(port, len, sent);
    }
    /// Counts as dropped a diverted frame that `port` received and that no driver has judged; it was counted as trapped before.
    pub fn count_unjudged(&mut self, port: PortId) {
        self.pipeline.count_unjudged(port);
    }
    /// Corrects the counters for a frame that was counted as sent, but for which the port's queue had no room.
    pub fn count_tail_drop(&mut self, port: PortId, len: usize) {
        self.pipeline.count_refused(port, len);
    }

    /// Updates the tables after a change of the FDB, and reports it.
    fn fdb_event(&mut self, event: FdbEvent, now: Timestamp, effects: &mut Effects) {
        match event {
            FdbEvent::Added(entry) => {
                if self.tables.insert(&Item::Mac(entry.vlan, entry.mac)).is_ok() {
                    effects.events.extend(learned(&entry).map(Event::Learned));
                    return;
                }
                self.learn_refused += 1;
                // Setting a control-plane entry displaces the learned one; removing it then leaves no entry for the address.
                let target = Some(lanyard_pipeline::state::FdbTarget::Blackhole);
                self.pipeline.set_fdb(entry.vlan, entry.mac, target, now, &mut |_| ());
                self.pipeline.set_fdb(entry.vlan, entry.mac, None, now, &mut |_| ());
            }
            FdbEvent::Moved { entry, from } => {
                effects.events.extend(learned(&entry).map(|entry| Event::Moved(entry, from)));
            }
            FdbEvent::Aged(entry) | FdbEvent::Deleted(entry) => {
                if !self.state.fdb.contains_key(&(entry.vlan, entry.mac)) {
                    self.tables.remove(&Item::Mac(entry.vlan, entry.mac));
                }
                effects.events.extend(learned(&entry).map(Event::Gone));
            }
        }
    }
}

/// The table item of a route: a host route (/32 or /128) is an exact match, any other one a prefix.
#[must_use]
pub fn item_of(vrf: VrfId, prefix: IpNet) -> Item {
    if prefix.prefix_len() == prefix.max_prefix_len() {
        Item::Host(vrf, prefix.addr())
    } else {
        Item::Prefix(vrf, prefix)
    }
}

/// Collects the results of the pipeline for one frame.
struct Out<'s, 'a> {
    to_cpu: &'s PlaneState,
    from: PortId,
    /// The frame as it arrived.
    frame: &'a [u8],
    effects: &'s mut Effects<'a>,
    first: usize,
    learned: Option<FdbEvent>,
    routed: Option<(VrfId, IpNet)>,
}

impl<'a> Out<'_, 'a> {
    /// The leaving frame: the arrived one itself if the pipeline has not changed it, otherwise a copy.
    fn leaves(&self, frame: &[u8]) -> Cow<'a, [u8]> {
        if std::ptr::eq(frame, self.frame) { Cow::Borrowed(self.frame) } else { Cow::Owned(frame.to_vec()) }
    }
}

impl Sink for Out<'_, '_> {
    fn send(&mut self, port: PortId, frame: &[u8]) -> bool {
        if is_interface(self.to_cpu, port) {
            let header = CpuHeader { port: Some(self.from), to: Some(port), ..CpuHeader::default() };
            self.effects.cpu.push((header, self.leaves(frame)));
        } else {
            self.effects.sent.push((port, self.leaves(frame)));
        }
        true
    }
    fn trap(&mut self, port: PortId, reason: TrapReason, frame: &[u8]) {
        // A chip sends no notes: it only counts the packets that rules with `log` match.
        if reason == TrapReason::AclLog {
            return;
        }
        let header = CpuHeader { reason: Some(reason), port: Some(port), ..CpuHeader::default() };
        self.effects.cpu.push((header, self.leaves(frame)));
    }
    fn divert(&mut self, port: PortId, questions: &[Question], frame: &[u8]) -> bool {
        self.effects.diverted.push((port, questions.to_vec(), frame.to_vec()));
        true
    }
    fn fdb(&mut self, event: FdbEvent) {
        self.learned = Some(event);
    }
    fn routed(&mut self, vrf: VrfId, prefix: IpNet) {
        self.routed = Some((vrf, prefix));
    }
}

/// True for the port of a VLAN interface or a subinterface: its frames go to the CPU.
fn is_interface(state: &PlaneState, port: PortId) -> bool {
    let kind = state.ports.get(&port).map(|state| state.kind);
    matches!(kind, Some(PortKind::Svi(_) | PortKind::Subinterface { .. }))
}

fn learned(entry: &FdbEntry) -> Option<LearnedEntry> {
    Some(LearnedEntry { vlan: entry.vlan, mac: entry.mac, port: entry.port?, age_s: entry.age_s })
}
