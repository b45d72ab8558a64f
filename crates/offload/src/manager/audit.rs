//! After a failure: reads the chip's configuration back and corrects it, operation by operation.
//!
//! The order of the steps ensures that no packet is misrouted between two of them: covers begin to trap first, then routes are
//! removed, then objects and routes are added, then covers stop trapping, and at last objects that nothing refers to are removed.
//! A route whose group or adjacency gets another meaning between two steps, as after a restart that assigns other numbers, traps
//! meanwhile.

use super::{Manager, TRAP};
use crate::hardware::{Failure, Hardware, Ticket, await_answer, entries};
use crate::prefixes::Prefix;
use lanyard_asic::sdk::bytes::Writer;
use lanyard_asic::sdk::message::{Answer, Code, Event, Request};
use lanyard_asic::sdk::operation::{Operation, OperationKind};
use lanyard_pipeline::route::{RouteChange, RouteTarget};
use lanyard_pipeline::tables::mdb::Flooded;
use lanyard_types::{AdjacencyId, GroupId};
use std::collections::{BTreeMap, BTreeSet};

/// The number of attempts before the chip is given up.
const ATTEMPTS: u32 = 24;

/// The reason why the chip could not be corrected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the chip could not be brought in line with the configuration: {0}")]
pub struct OutOfLine(pub String);

/// The entries that a chip holds, or should hold, by key.
type Entries = BTreeMap<Vec<u8>, Operation>;

impl Manager<dyn Hardware> {
    /// Waits until no request is pending and, after a failure, corrects the chip. When this succeeds, configuration,
    /// manager and chip agree. Routes that turn out not to fit are hidden whatever the policy, because they were
    /// accepted. A chip that no longer answers is given up: the software plane forwards everything, and
    /// [`Manager::is_down`] returns true.
    ///
    /// # Errors
    /// When the chip fails again and again. The configuration is unchanged.
    pub fn settle(&mut self) -> Result<(), OutOfLine> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            self.drain();
            if !self.suspect || self.down || self.held {
                return Ok(());
            }
            match self.audit() {
                Ok(true) => {
                    self.suspect = false;
                    return Ok(());
                }
                Ok(false) => why = "a write failed".into(),
                Err(Failure::Refused(refused)) => why = refused.text,
                Err(Failure::Gone(text)) => {
                    why = text;
                    if !self.reconnect() {
                        self.give_up();
                        return Ok(());
                    }
                }
            }
        }
        Err(OutOfLine(why))
    }

    /// Makes the chip's present configuration the manager's. Only for a manager that has received no request yet. The
    /// real target of a route that traps is not in the chip; the route traps until it is requested again.
    ///
    /// # Errors
    /// When the chip does not answer. The manager is unchanged.
    pub fn take_over(&mut self) -> Result<Vec<Operation>, Failure> {
        let actual = entries(&mut self.hardware)?;
        for operation in &actual {
            let change = match operation {
                of_protocols if of_protocols.kind().is_of_protocols() => continue,
                Operation::Divert(id, _) => {
                    self.diverted.insert(*id);
                    continue;
                }
                Operation::Adjacency(id, new) => RouteChange::Adjacency(*id, *new),
                Operation::Group(id, new) => RouteChange::Group(*id, new.clone()),
                Operation::Route(vrf, prefix, new) => {
                    self.covers.program((*vrf, *prefix));
                    RouteChange::Route(*vrf, *prefix, *new)
                }
                other => {
                    if let Operation::Rif(rif, Some(_)) = other {
                        self.rifs.insert(*rif);
                    }
                    self.setup.insert(key(other), other.clone());
                    continue;
                }
            };
            // This does not fail: the chip has accepted these entries, and returns them in an order in which they can be created.
            let _ = self.routes.change(&change, |_| true);
        }
        self.adopt(&actual);
        // Another manager may have given tables other sizes, and this one has missed the chip's events of learned addresses.
        self.refresh();
        self.strategy.resync(&actual);
        self.strategy.received(&Event::Lost(1));
        Ok(actual)
    }

    /// The entries that the chip should hold, by key.
    fn wanted(&self) -> Entries {
        let mut all = self.setup.clone();
        all.retain(|_, operation| removal(operation).is_none_or(|removal| removal != *operation));
        all.retain(|_, operation| !operation.kind().is_of_protocols());
        let routes = &self.routes;
        let mut add = |operation: Operation| _ = all.insert(key(&operation), operation);
        routes.adjacencies().for_each(|id| add(Operation::Adjacency(id, routes.adjacency(id))));
        routes.groups().for_each(|(id, buckets)| add(Operation::Group(id, Some(buckets.to_vec()))));
        for prefix in self.covers.programmed() {
            if let Some(target) = self.desired(prefix) {
                add(Operation::Route(prefix.0, prefix.1, Some(target)));
            }
        }
        self.diverted.iter().for_each(|id| add(Operation::Divert(*id, true)));
        all
    }

    /// Runs one pass; returns true when the chip's contents are as wanted.
    fn audit(&mut self) -> Result<bool, Failure> {
        let sized = self.restore_sizes()?;
        let mut actual = entries(&mut self.hardware)?;
        // With the multicast groups of the protocols, which take room in the tables, too.
        self.strategy.resync(&actual);
        // From here on without them: the protocols correct them themselves, through a connection of their own.
        actual.retain(|operation| !operation.kind().is_of_protocols());
        let had: Entries = actual.iter().map(|operation| (key(operation), operation.clone())).collect();
        let steps = steps(&had, &self.wanted());
        if steps.is_empty() && sized {
            self.adopt(&actual);
            return Ok(true);
        }
        for part in steps.chunk_by(|one, other| one.0 == other.0) {
            let mut tickets = BTreeMap::new();
            for (_, step) in part {
                tickets.insert(self.hardware.send(Request::Commit(vec![step.clone()])), step);
            }
            if !self.take_steps(tickets)? {
                // A route that did not fit is hidden now, so the next pass must first let its cover trap.
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Waits for the answers to one part of a pass. Routes and lists that did not fit are hidden or diverted; returns false if
    /// there were any.
    fn take_steps(&mut self, mut tickets: BTreeMap<Ticket, &Operation>) -> Result<bool, Failure> {
        let mut fits = true;
        while !tickets.is_empty() {
            let Some((ticket, outcome)) = self.hardware.poll(true) else {
                return Err(Failure::Gone("no answer".into()));
            };
            let Some(step) = tickets.remove(&ticket) else { continue };
            match outcome {
                Err(Failure::Refused(refused)) if refused.code == Code::NoRoom => match step {
                    Operation::Route(vrf, prefix, Some(_)) => {
                        self.covers.hide((*vrf, *prefix));
                        fits = false;
                    }
                    Operation::List(id, Some(_)) | Operation::Divert(id, false) => {
                        self.diverted.insert(*id);
                        fits = false;
                    }
                    _ => {}
                },
                // Any other refusal is ignored: the next pass finds what is missing.
                Ok(_) | Err(Failure::Refused(_)) => {}
                Err(gone) => return Err(gone),
            }
        }
        Ok(fits)
    }

    /// Gives the tables their sizes of `sizes`, which a restarted chip has lost; tables that shrink come first. Returns false if
    /// a size was refused.
    fn restore_sizes(&mut self) -> Result<bool, Failure> {
        if self.sizes.is_empty() {
            return Ok(true);
        }
        let ticket = self.hardware.send(Request::Usage);
        let Answer::Usage(tables) = await_answer(&mut self.hardware, ticket)? else { return Ok(false) };
        let of = |path: &str| tables.iter().find(|table| table.path == path).map_or(0, |table| table.size);
        let mut wrong: Vec<(bool, String, u32)> = self
            .sizes
            .iter()
            .filter(|(path, size)| of(path) != **size)
            .map(|(path, size)| (*size > of(path), path.clone(), *size))
            .collect();
        wrong.sort();
        let mut done = true;
        for (_, path, size) in wrong {
            let ticket = self.hardware.send(Request::Resize(path, size));
            match await_answer(&mut self.hardware, ticket) {
                Ok(_) => {}
                Err(Failure::Refused(_)) => done = false,
                Err(gone) => return Err(gone),
            }
        }
        Ok(done)
    }

    /// Sets `written`, and the counts that belong to it, to the entries that the chip holds.
    pub(super) fn adopt(&mut self, actual: &[Operation]) {
        self.written.clear();
        self.written_groups.clear();
        self.written_adjacencies.clear();
        self.vrf_routes.clear();
        self.trapping = 0;
        for operation in actual {
            match operation {
                Operation::Route(vrf, prefix, Some(target)) => {
                    self.written.insert((*vrf, *prefix), *target);
                    *self.vrf_routes.entry(*vrf).or_default() += 1;
                    self.trapping += usize::from(*target == TRAP);
                }
                Operation::Group(id, Some(buckets)) => {
                    self.written_groups.insert(*id, buckets.len() as u32);
                }
                Operation::Adjacency(id, Some(_)) => _ = self.written_adjacencies.insert(*id),
                _ => {}
            }
        }
    }
}

/// The steps from the entries that the chip has to the wanted ones, with their ranks, in the order of the module comment.
fn steps(had: &Entries, wanted: &Entries) -> Vec<(u8, Operation)> {
    let mut steps: Vec<(u8, Operation)> = Vec::new();
    for (prefix, target) in detours(had, wanted) {
        steps.push((0, Operation::Route(prefix.0, prefix.1, Some(TRAP))));
        steps.push((9, Operation::Route(prefix.0, prefix.1, Some(target))));
    }
    for (key, operation) in wanted {
        let was = had.get(key);
        if was != Some(operation) {
            steps.push((rank(operation, was.is_some()), operation.clone()));
        }
    }
    for (key, operation) in had {
        if !wanted.contains_key(key)
            && let Some(removal) = removal(operation)
        {
            let rank = match operation.kind() {
                OperationKind::Route | OperationKind::Rule => 1,
                OperationKind::Group => 10,
                OperationKind::Adjacency => 11,
                _ if is_channel(operation) => 13,
                _ => 12,
            };
            steps.push((rank, removal));
        }
    }
    // Members refer to the port of their port-channel: it is added before them, and (rank 13) removed after them.
    steps.sort_by_key(|(rank, operation)| (*rank, !is_channel(operation)));
    steps
}

/// True for the port of a port-channel.
fn is_channel(operation: &Operation) -> bool {
    matches!(operation, Operation::Port(_, Some(port)) if port.aggregation.channel().is_some())
}

/// The routes that would lead to a wrong next hop between two steps, because their group or its adjacencies change before they
/// do; with the final target of each.
fn detours(had: &Entries, wanted: &Entries) -> Vec<(Prefix, RouteTarget)> {
    let mut groups: BTreeMap<GroupId, &[AdjacencyId]> = BTreeMap::new();
    let mut changed_groups = BTreeSet::new();
    let mut changed_adjacencies = BTreeSet::new();
    for (key, operation) in had {
        match operation {
            Operation::Group(id, Some(buckets)) => {
                groups.insert(*id, buckets);
                if wanted.get(key) != Some(operation) {
                    changed_groups.insert(*id);
                }
            }
            Operation::Adjacency(id, Some(_)) if wanted.get(key) != Some(operation) => {
                changed_adjacencies.insert(*id);
            }
            _ => {}
        }
    }
    if changed_groups.is_empty() && changed_adjacencies.is_empty() {
        return Vec::new();
    }
    let shifts = |id: &GroupId| {
        groups.get(id).is_some_and(|buckets| buckets.iter().any(|hop| changed_adjacencies.contains(hop)))
    };
    let unsafe_way = |id: &GroupId, stays: bool| {
        let changes = changed_groups.contains(id);
        if stays { changes && shifts(id) } else { changes || shifts(id) }
    };
    let mut all = Vec::new();
    for (key, operation) in had {
        let Operation::Route(vrf, prefix, Some(RouteTarget::Group(id))) = operation else { continue };
        let Some(Operation::Route(_, _, Some(to))) = wanted.get(key) else { continue };
        if *to != TRAP && unsafe_way(id, *to == RouteTarget::Group(*id)) {
            all.push(((*vrf, *prefix), *to));
        }
    }
    all
}

fn rank(operation: &Operation, present: bool) -> u8 {
    match operation {
        Operation::Route(_, _, Some(target)) if present && *target == TRAP => 0,
        // Before the list, which may not fit unless it is diverted.
        Operation::Divert(..) => 1,
        Operation::List(..) => 2,
        Operation::Global(_) | Operation::Vlan(..) => 3,
        Operation::Port(..) => 4,
        Operation::Rif(..) => 5,
        Operation::Adjacency(..) => 6,
        Operation::Group(..) => 7,
        Operation::Route(..) if !present => 8,
        // Covers stop trapping after the routes that they trapped for have been added.
        Operation::Route(..) => 9,
        _ => 5,
    }
}

/// The key that identifies the object of an operation: the first bytes of its encoding.
pub(super) fn key(operation: &Operation) -> Vec<u8> {
    let mut writer = Writer::default();
    operation.write(&mut writer);
    let mut bytes = writer.0;
    match operation {
        Operation::Global(_) => bytes.truncate(1),
        Operation::Port(..)
        | Operation::Vlan(..)
        | Operation::Rif(..)
        | Operation::List(..)
        | Operation::Divert(..) => bytes.truncate(3),
        Operation::Stp(..) | Operation::Watched(..) => bytes.truncate(4),
        Operation::Fdb(..) => bytes.truncate(9),
        Operation::Adjacency(..) | Operation::Group(..) => bytes.truncate(5),
        Operation::Route(..) => bytes.truncate(bytes.len() - 5),
        Operation::Rule(..) => {
            bytes.truncate(10);
            bytes[1] = 0;
        }
        Operation::Multicast(vlan, group, source, _) => {
            let mut writer = Writer::default();
            Operation::Multicast(*vlan, *group, *source, None).write(&mut writer);
            bytes = writer.0;
        }
        Operation::Routers(..) | Operation::Flood(..) => bytes.truncate(4),
        Operation::Channel(..) => bytes.truncate(2),
    }
    bytes
}

/// The operation that removes what another one sets; `None` where there is no such operation.
#[must_use]
pub fn removal(operation: &Operation) -> Option<Operation> {
    Some(match operation {
        Operation::Global(_) => return None,
        Operation::Port(port, _) => Operation::Port(*port, None),
        Operation::Vlan(vlan, _) => Operation::Vlan(*vlan, None),
        Operation::Stp(instance, port, _) => {
            Operation::Stp(*instance, *port, lanyard_types::StpState::Forwarding)
        }
        Operation::Fdb(vlan, mac, _) => Operation::Fdb(*vlan, *mac, None),
        Operation::Rif(rif, _) => Operation::Rif(*rif, None),
        Operation::Adjacency(id, _) => Operation::Adjacency(*id, None),
        Operation::Group(id, _) => Operation::Group(*id, None),
        Operation::Route(vrf, prefix, _) => Operation::Route(*vrf, *prefix, None),
        Operation::Rule(rule, _) => Operation::Rule(rule.clone(), false),
        Operation::Multicast(vlan, group, source, _) => Operation::Multicast(*vlan, *group, *source, None),
        Operation::Routers(vlan, family, _) => Operation::Routers(*vlan, *family, Box::default()),
        Operation::Flood(vlan, family, _) => Operation::Flood(*vlan, *family, Flooded::Nothing),
        Operation::List(id, _) => Operation::List(*id, None),
        Operation::Divert(id, _) => Operation::Divert(*id, false),
        Operation::Channel(id, _) => Operation::Channel(*id, None),
        Operation::Watched(instance, port, _) => Operation::Watched(*instance, *port, false),
    })
}
