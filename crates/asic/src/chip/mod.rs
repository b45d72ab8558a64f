//! The chip: the pipeline behind finite tables, its configuration, and the addresses it learns; without I/O and without
//! a clock.
//!
//! Read [`Chip::commit`] first. [`fabric`] contains the queues, [`device`] the chip as its drivers see it (sessions,
//! bus, faults), [`serve`] the process.
//!
//! Invariants: a transaction is carried out as a whole or leaves no trace. Every entry that the pipeline looks up has
//! an entry in the tables, so an entry for which there is no room is in neither. If there is no room for an address it
//! is not learned, and frames to it are flooded.

pub mod device;
pub mod fabric;
mod links;
mod segments;
pub mod serve;

use crate::platform::Platform;
use crate::sdk::cpu::CpuHeader;
use crate::sdk::message::{Code, Event, LearnedEntry, Refused};
use crate::sdk::operation::Operation;
use crate::tables::{AclRule, Item, Refusal, Tables, Usage};
use ipnet::IpNet;
use lanyard_pipeline::route::{RifState, RouteChange, VIRTUAL_MACS};
use lanyard_pipeline::state::{PlaneState, PortKind, PortState, StpState};
use lanyard_pipeline::tables::fdb::{FdbEntry, FdbEvent, FdbFilter, FdbKind};
use lanyard_pipeline::tables::routes::Refused as RouteRefused;
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Pipeline, Sink, Timestamp};
use lanyard_types::{PortId, Stage, TrapReason, VlanId, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The most learned and configured addresses that the chip's software accepts, whatever the size of its
/// tables.
const FDB_LIMIT: u32 = 1 << 20;
/// The longest name of a port or router interface, in bytes.
const MAX_NAME: usize = 64;

/// The effects of frames and commands: sent frames, frames for the CPU, events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Frames sent to front-panel ports, in the order of the pipeline.
    pub sent: Vec<(PortId, Vec<u8>)>,
    /// Frames to the CPU port.
    pub cpu: Vec<(CpuHeader, Vec<u8>)>,
    /// Events for drivers.
    pub events: Vec<Event>,
}

/// See the module comment.
#[derive(Debug)]
pub struct Chip {
    tables: Tables,
    pipeline: Pipeline,
    state: PlaneState,
    rules: BTreeMap<(u32, u32), AclRule>,
    multicast: BTreeSet<(VlanId, IpAddr, Option<IpAddr>)>,
    /// The number of router interfaces and routes of each VRF. A VRF takes an entry while this is not 0.
    vrf_users: BTreeMap<VrfId, u32>,
    learn_refused: u64,
}

/// A step of a transaction that has been carried out, with the data that undoes its effects outside the
/// tables.
struct Done {
    inverse: Operation,
    vrf: Option<(VrfId, bool)>,
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
            multicast: BTreeSet::new(),
            vrf_users: BTreeMap::new(),
            learn_refused: 0,
        }
    }

    /// Carries out a transaction; returns the number of entries written.
    ///
    /// # Errors
    /// The first operation that was refused, and the reason. Nothing has changed then.
    pub fn commit(
        &mut self,
        now: Timestamp,
        list: &[Operation],
        effects: &mut Effects,
    ) -> Result<u32, Refused> {
        self.tables.begin();
        let mut done: Vec<Done> = Vec::with_capacity(list.len());
        let mut writes = 0;
        for (at, operation) in list.iter().enumerate() {
            match self.step(operation) {
                Ok((written, step)) => {
                    writes += written;
                    done.push(step);
                }
                Err(refused) => return self.unwind(done, Refused { at: at as u32, ..refused }),
            }
        }
        let checked =
            list.iter().rposition(|operation| matches!(operation, Operation::Port(..) | Operation::Rif(..)));
        if let Some(at) = checked
            && let Err(text) = lanyard_pipeline::validate::check(&self.state)
        {
            return self.unwind(done, Refused { at: at as u32, text, ..blank() });
        }
        self.tables.commit();
        self.settle(now, list, effects);
        Ok(writes)
    }

    fn unwind(&mut self, done: Vec<Done>, refused: Refused) -> Result<u32, Refused> {
        done.into_iter().rev().for_each(|step| self.undo(step));
        self.tables.rollback();
        Err(refused)
    }

    /// Applies the part of a transaction to the pipeline that cannot fail, and that would lose learned
    /// entries if it were undone.
    fn settle(&mut self, now: Timestamp, list: &[Operation], effects: &mut Effects) {
        let mut gone = Vec::new();
        let mut on = |event| gone.push(event);
        for operation in list {
            match operation {
                Operation::Global(_) => self.pipeline.set_global(self.state.global.clone()),
                Operation::Vlan(vlan, _) => {
                    self.pipeline.set_vlan(*vlan, self.state.vlans.get(vlan).cloned(), now, &mut on);
                }
                Operation::Port(port, _) => {
                    self.pipeline.set_port(*port, self.state.ports.get(port).cloned(), now, &mut on);
                }
                Operation::Stp(instance, port, _) => {
                    let state = self.state.stp.get(&(*instance, *port)).copied().unwrap_or_default();
                    self.pipeline.set_stp(*instance, *port, state);
                }
                Operation::Fdb(vlan, mac, _) => {
                    let target = self.state.fdb.get(&(*vlan, *mac)).copied();
                    self.pipeline.set_fdb(*vlan, *mac, target, now, &mut on);
                }
                _ => {}
            }
        }
        gone.into_iter().for_each(|event| self.fdb_event(event, now, effects));
    }

    fn step(&mut self, operation: &Operation) -> Result<(u32, Done), Refused> {
        let plain = |inverse| Done { inverse, vrf: None };
        let (writes, inverse) = match operation {
            Operation::Global(new) => {
                if !(1..=FDB_LIMIT).contains(&new.fdb_limit) {
                    return invalid(format!("FDB limit {}: 1 to {FDB_LIMIT}", new.fdb_limit));
                }
                (1, Operation::Global(Box::new(std::mem::replace(&mut self.state.global, (**new).clone()))))
            }
            Operation::Port(port, new) => {
                match new {
                    Some(new) => check_port(new)?,
                    None if self.state.fdb.values().any(|target| target.port() == Some(*port)) => {
                        return invalid(format!("port {port} has FDB entries"));
                    }
                    None => {}
                }
                let old = set(&mut self.state.ports, *port, new.as_deref().cloned());
                (1, Operation::Port(*port, old.map(Box::new)))
            }
            Operation::Vlan(vlan, new) => {
                (1, Operation::Vlan(*vlan, set(&mut self.state.vlans, *vlan, new.clone())))
            }
            Operation::Stp(instance, port, new) => {
                let kept = Some(*new).filter(|new| *new != StpState::Forwarding);
                let old = set(&mut self.state.stp, (*instance, *port), kept);
                (1, Operation::Stp(*instance, *port, old.unwrap_or_default()))
            }
            Operation::Fdb(vlan, mac, new) => {
                if let Some(port) = new.and_then(|new| new.port())
                    && !self.state.ports.contains_key(&port)
                {
                    return invalid(format!("FDB entry {mac} in VLAN {vlan} names no port: {port}"));
                }
                let item = Item::Mac(*vlan, *mac);
                let writes = match (new.is_some(), self.tables.contains(&item)) {
                    (true, false) => self.insert(&item)?,
                    (false, true) if self.state.fdb.contains_key(&(*vlan, *mac)) => {
                        self.tables.remove(&item);
                        1
                    }
                    _ => 1,
                };
                (writes, Operation::Fdb(*vlan, *mac, set(&mut self.state.fdb, (*vlan, *mac), *new)))
            }
            Operation::Rif(rif, new) => return self.step_rif(*rif, new.as_deref()),
            Operation::Adjacency(id, new) => {
                let old = self.pipeline.tables().routes.adjacency(*id);
                self.route(&RouteChange::Adjacency(*id, *new))?;
                (1, Operation::Adjacency(*id, old))
            }
            Operation::Group(id, new) => self.step_group(*id, new.as_deref())?,
            Operation::Route(vrf, prefix, new) => return self.step_route(*vrf, *prefix, *new),
            Operation::Rule(rule, present) => self.step_rule(rule, *present)?,
            Operation::Multicast(vlan, group, source, present) => {
                let key = (*vlan, *group, *source);
                let item = Item::Group(*vlan, *group, *source);
                let had = self.multicast.contains(&key);
                let writes = match (*present, had) {
                    (true, false) => self.insert(&item)?,
                    (false, true) => u32::from(self.tables.remove(&item)),
                    _ => 1,
                };
                if *present {
                    self.multicast.insert(key)
                } else {
                    self.multicast.remove(&key)
                };
                (writes, Operation::Multicast(*vlan, *group, *source, had))
            }
        };
        Ok((writes, plain(inverse)))
    }

    fn step_rif(
        &mut self,
        rif: lanyard_types::RifId,
        new: Option<&RifState>,
    ) -> Result<(u32, Done), Refused> {
        if let Some(new) = new
            && (new.name.len() > MAX_NAME
                || new.virtual_macs.len() > VIRTUAL_MACS
                || !(68..=65_535).contains(&new.mtu))
        {
            return invalid(format!("router interface {rif}: name, virtual addresses or MTU out of range"));
        }
        let old = self.state.rifs.get(&rif).cloned();
        if let (Some(old), Some(new)) = (&old, new)
            && old.vrf != new.vrf
        {
            return invalid(format!("router interface {rif} is in VRF {}: remove it first", old.vrf));
        }
        let (writes, vrf) = match (&old, new) {
            (None, Some(new)) => {
                let writes = self.use_vrf(new.vrf)?
                    + self.insert(&Item::Rif(rif)).inspect_err(|_| self.forget_vrf(new.vrf))?;
                (writes, Some((new.vrf, true)))
            }
            (Some(old), None) => {
                self.tables.remove(&Item::Rif(rif));
                self.leave_vrf(old.vrf);
                (1, Some((old.vrf, false)))
            }
            _ => (1, None),
        };
        set(&mut self.state.rifs, rif, new.cloned());
        self.pipeline.set_rif(rif, new.cloned());
        Ok((writes, Done { inverse: Operation::Rif(rif, old.map(Box::new)), vrf }))
    }

    fn step_group(
        &mut self,
        id: lanyard_types::GroupId,
        new: Option<&[lanyard_types::AdjacencyId]>,
    ) -> Result<(u32, Operation), Refused> {
        let old = self.pipeline.tables().routes.buckets(id).to_vec();
        let had = if old.is_empty() { None } else { Some(old.len() as u32) };
        let has = new.map(|new| new.len() as u32);
        self.route(&RouteChange::Group(id, new.map(<[_]>::to_vec)))?;
        let mut writes = has.unwrap_or(1);
        if had != has {
            if let Some(had) = had {
                self.tables.remove(&Item::NextHops(id, had));
            }
            if let Some(has) = has {
                match self.insert(&Item::NextHops(id, has)) {
                    Ok(written) => writes = written,
                    Err(refused) => {
                        // The tables are rolled back with the transaction; restore the pipeline here.
                        let _ = self.route(&RouteChange::Group(id, had.map(|_| old)));
                        return Err(refused);
                    }
                }
            }
        }
        Ok((writes, Operation::Group(id, had.map(|_| old))))
    }

    fn step_route(
        &mut self,
        vrf: VrfId,
        prefix: IpNet,
        new: Option<lanyard_pipeline::route::RouteTarget>,
    ) -> Result<(u32, Done), Refused> {
        let old = self.pipeline.tables().routes.get(vrf, prefix);
        let change = RouteChange::Route(vrf, prefix, new);
        let item = item_of(vrf, prefix);
        let (mut writes, mut used) = (1, None);
        if old.is_none() && new.is_some() {
            writes = self.use_vrf(vrf)? + self.insert(&item).inspect_err(|_| self.forget_vrf(vrf))?;
            self.route(&change).inspect_err(|_| self.forget_vrf(vrf))?;
            used = Some((vrf, true));
        } else {
            self.route(&change)?;
            if old.is_some() && new.is_none() {
                self.tables.remove(&item);
                self.leave_vrf(vrf);
                used = Some((vrf, false));
            }
        }
        Ok((writes, Done { inverse: Operation::Route(vrf, prefix, old), vrf: used }))
    }

    fn step_rule(&mut self, rule: &AclRule, present: bool) -> Result<(u32, Operation), Refused> {
        let key = (rule.list, rule.sequence);
        let old = self.rules.get(&key).cloned();
        let inverse = match &old {
            Some(old) => Operation::Rule(old.clone(), true),
            None => Operation::Rule(rule.clone(), false),
        };
        if let Some(old) = &old {
            self.tables.remove(&Item::Rule(old.clone()));
            self.rules.remove(&key);
        }
        let mut writes = 1;
        if present {
            match self.insert(&Item::Rule(rule.clone())) {
                Ok(written) => writes = written,
                Err(refused) => {
                    self.rules.extend(old.map(|old| (key, old)));
                    return Err(refused);
                }
            }
            self.rules.insert(key, rule.clone());
        }
        Ok((writes, inverse))
    }

    /// Undoes the effects of a step outside the tables. The tables are rolled back as a whole.
    fn undo(&mut self, step: Done) {
        match step.inverse {
            Operation::Global(old) => self.state.global = *old,
            Operation::Port(port, old) => _ = set(&mut self.state.ports, port, old.map(|old| *old)),
            Operation::Vlan(vlan, old) => _ = set(&mut self.state.vlans, vlan, old),
            Operation::Stp(instance, port, old) => {
                set(
                    &mut self.state.stp,
                    (instance, port),
                    Some(old).filter(|old| *old != StpState::Forwarding),
                );
            }
            Operation::Fdb(vlan, mac, old) => _ = set(&mut self.state.fdb, (vlan, mac), old),
            Operation::Rif(rif, old) => {
                self.pipeline.set_rif(rif, old.as_deref().cloned());
                set(&mut self.state.rifs, rif, old.map(|old| *old));
            }
            // In reverse order the old value is always valid, because the objects it refers to have been
            // restored before.
            Operation::Adjacency(id, old) => _ = self.pipeline.route(&RouteChange::Adjacency(id, old)),
            Operation::Group(id, old) => _ = self.pipeline.route(&RouteChange::Group(id, old)),
            Operation::Route(vrf, prefix, old) => {
                _ = self.pipeline.route(&RouteChange::Route(vrf, prefix, old))
            }
            Operation::Rule(old, present) => {
                self.rules.remove(&(old.list, old.sequence));
                if present {
                    self.rules.insert((old.list, old.sequence), old);
                }
            }
            Operation::Multicast(vlan, group, source, present) => {
                let key = (vlan, group, source);
                if present {
                    self.multicast.insert(key)
                } else {
                    self.multicast.remove(&key)
                };
            }
        }
        match step.vrf {
            Some((vrf, true)) => self.forget_vrf(vrf),
            Some((vrf, false)) => *self.vrf_users.entry(vrf).or_default() += 1,
            None => {}
        }
    }

    fn insert(&mut self, item: &Item) -> Result<u32, Refused> {
        self.tables.insert(item).map_err(refusal)
    }
    fn route(&mut self, change: &RouteChange) -> Result<(), Refused> {
        self.pipeline.route(change).map_err(|refused| Refused {
            code: if matches!(refused, RouteRefused::Full { .. }) { Code::NoRoom } else { Code::Invalid },
            text: refused.to_string(),
            ..blank()
        })
    }
    /// Counts a user of a VRF; the first one takes the entry.
    fn use_vrf(&mut self, vrf: VrfId) -> Result<u32, Refused> {
        let first = self.vrf_users.get(&vrf).is_none_or(|users| *users == 0);
        let writes = if first { self.insert(&Item::Vrf(vrf))? } else { 0 };
        *self.vrf_users.entry(vrf).or_default() += 1;
        Ok(writes)
    }
    fn leave_vrf(&mut self, vrf: VrfId) {
        self.forget_vrf(vrf);
        if self.vrf_users.get(&vrf) == Some(&0) {
            self.tables.remove(&Item::Vrf(vrf));
        }
    }
    fn forget_vrf(&mut self, vrf: VrfId) {
        if let Some(users) = self.vrf_users.get_mut(&vrf) {
            *users = users.saturating_sub(1);
        }
    }

    /// The configuration as operations that recreate it in an empty chip.
    #[must_use]
    pub fn entries(&self) -> Vec<Operation> {
        let (state, routes) = (&self.state, &self.pipeline.tables().routes);
        let mut all = vec![Operation::Global(Box::new(state.global.clone()))];
        all.extend(state.vlans.iter().map(|(vlan, state)| Operation::Vlan(*vlan, Some(state.clone()))));
        all.extend(
            state.ports.iter().map(|(port, state)| Operation::Port(*port, Some(Box::new(state.clone())))),
        );
        all.extend(state.stp.iter().map(|((instance, port), stp)| Operation::Stp(*instance, *port, *stp)));
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
        all.extend(
            self.multicast
                .iter()
                .map(|(vlan, group, source)| Operation::Multicast(*vlan, *group, *source, true)),
        );
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
    /// Changes the size of a table.
    ///
    /// # Errors
    /// See [`Tables::resize`].
    pub fn resize(&mut self, path: &str, size: u32) -> Result<(), Refused> {
        self.tables.resize(path, size).map_err(refusal)
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
    pub fn frame(&mut self, now: Timestamp, port: PortId, frame: &[u8], effects: &mut Effects) -> Verdict {
        let mut out = Out { to_cpu: &self.state, from: port, effects, first: 0, learned: None };
        out.first = out.effects.sent.len();
        let first_cpu = out.effects.cpu.len();
        let verdict = self.pipeline.process(now, port, frame, &mut out);
        let (first, learned) = (out.first, out.learned);
        let forwarded = effects.sent.len() > first;
        effects.cpu[first_cpu..].iter_mut().for_each(|(header, _)| header.forwarded = forwarded);
        if let Verdict::Trapped(reason) = verdict
            && reason.stage() == Stage::Route
            && effects.cpu.len() == first_cpu
        {
            let header = CpuHeader { reason: Some(reason), port: Some(port), ..CpuHeader::default() };
            effects.cpu.push((header, frame.to_vec()));
        }
        if let Some(event) = learned {
            self.fdb_event(event, now, effects);
        }
        verdict
    }

    /// Counts a frame that the CPU sends out of a port without the pipeline.
    pub fn count_injected(&mut self, port: PortId, len: usize, sent: bool) {
        self.pipeline.count_injected(port, len, sent);
    }
    /// Corrects the counters of a frame that was counted as sent, but found no room in the port's queue.
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
                // A control-plane entry displaces the learned one. Removing it again removes both.
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

/// The table item of a route: a host route is an exact match.
#[must_use]
pub fn item_of(vrf: VrfId, prefix: IpNet) -> Item {
    if prefix.prefix_len() == prefix.max_prefix_len() {
        Item::Host(vrf, prefix.addr())
    } else {
        Item::Prefix(vrf, prefix)
    }
}

/// Collects the results of the pipeline for one frame.
struct Out<'a> {
    to_cpu: &'a PlaneState,
    from: PortId,
    effects: &'a mut Effects,
    first: usize,
    learned: Option<FdbEvent>,
}

impl Sink for Out<'_> {
    fn send(&mut self, port: PortId, frame: &[u8]) -> bool {
        match self.to_cpu.ports.get(&port).map(|state| state.kind) {
            Some(PortKind::Svi(_) | PortKind::Subinterface { .. }) => {
                let header = CpuHeader { port: Some(self.from), to: Some(port), ..CpuHeader::default() };
                self.effects.cpu.push((header, frame.to_vec()));
            }
            _ => self.effects.sent.push((port, frame.to_vec())),
        }
        true
    }
    fn trap(&mut self, port: PortId, reason: TrapReason, frame: &[u8]) {
        let header = CpuHeader { reason: Some(reason), port: Some(port), ..CpuHeader::default() };
        self.effects.cpu.push((header, frame.to_vec()));
    }
    fn fdb(&mut self, event: FdbEvent) {
        self.learned = Some(event);
    }
}

fn learned(entry: &FdbEntry) -> Option<LearnedEntry> {
    Some(LearnedEntry { vlan: entry.vlan, mac: entry.mac, port: entry.port?, age_s: entry.age_s })
}

fn check_port(state: &PortState) -> Result<(), Refused> {
    if state.name.len() > MAX_NAME || !(68..=65_535).contains(&state.mtu) {
        return invalid(format!(
            "port {:.64}: a name of at most {MAX_NAME} bytes and an MTU of 68 to 65535",
            state.name
        ));
    }
    let both = state.tagged.intersection(&state.untagged);
    if !both.is_empty() {
        return invalid(format!("port {}: VLANs {both} are both tagged and untagged", state.name));
    }
    Ok(())
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

fn blank() -> Refused {
    Refused {
        code: Code::Invalid,
        at: 0,
        table: String::new(),
        shortage: None,
        units: (0, 0),
        text: String::new(),
    }
}

fn invalid<T>(text: String) -> Result<T, Refused> {
    Err(Refused { text, ..blank() })
}

fn refusal(refusal: Refusal) -> Refused {
    let text = refusal.to_string();
    match refusal {
        Refusal::NoRoom { table, shortage, used, size } => Refused {
            code: Code::NoRoom,
            table,
            shortage: Some(shortage),
            units: (used, size),
            text,
            ..blank()
        },
        _ => Refused { text, ..blank() },
    }
}
