//! After a failure: reads the chip's configuration back and corrects it, operation by operation.
//!
//! The order keeps forwarding correct at every moment. First covers begin to trap, then routes are removed, then
//! objects and routes are added, then covers stop trapping. At last objects that nothing refers to are removed.

use super::{Manager, TRAP};
use crate::cover::Prefix;
use crate::hardware::{Failure, Hardware, await_answer, entries};
use lanyard_asic::sdk::bytes::Writer;
use lanyard_asic::sdk::message::{Code, Request};
use lanyard_asic::sdk::operation::{Operation, OperationKind};
use lanyard_pipeline::route::{RouteChange, RouteTarget};
use std::collections::BTreeMap;

/// The number of attempts before the chip is given up.
const ATTEMPTS: u32 = 24;

/// The reason why the chip could not be corrected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the chip could not be brought in line with the configuration: {0}")]
pub struct OutOfLine(pub String);

impl<H: Hardware> Manager<H> {
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
            if !self.suspect || self.down {
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
                    if self.hardware.reconnect().is_err() {
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
                Operation::Stp(..) => continue,
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
            // The chip returns entries in an order in which they can be created, and has created them.
            let _ = self.routes.change(&change, |_| true);
        }
        self.adopt(&actual);
        if !actual.is_empty() {
            self.strategy.resync(&actual);
        }
        Ok(actual)
    }

    fn give_up(&mut self) {
        self.down = true;
        self.waiting.clear();
        self.written.clear();
        self.vrf_routes.clear();
        self.trapping = 0;
        let programmed: Vec<Prefix> = self.configured().into_keys().collect();
        programmed.into_iter().for_each(|prefix| self.covers.hide(prefix));
    }

    /// The routes of the configuration.
    fn configured(&self) -> BTreeMap<Prefix, RouteTarget> {
        let mut all = BTreeMap::new();
        for (vrf, tables) in self.routes.vrfs() {
            all.extend(tables.ipv4.iter().map(|(prefix, target)| ((vrf, prefix.into()), *target)));
            all.extend(tables.ipv6.iter().map(|(prefix, target)| ((vrf, prefix.into()), *target)));
        }
        all
    }

    /// What the chip should hold, by key.
    fn wanted(&self) -> BTreeMap<Vec<u8>, Operation> {
        let mut all = self.setup.clone();
        all.retain(|_, operation| removal(operation).is_none_or(|removal| removal != *operation));
        let routes = &self.routes;
        let mut add = |operation: Operation| _ = all.insert(key(&operation), operation);
        routes.adjacencies().for_each(|id| add(Operation::Adjacency(id, routes.adjacency(id))));
        routes.groups().for_each(|(id, buckets)| add(Operation::Group(id, Some(buckets.to_vec()))));
        for prefix in self.configured().into_keys() {
            if let Some(target) = self.desired(prefix) {
                add(Operation::Route(prefix.0, prefix.1, Some(target)));
            }
        }
        all
    }

    /// Runs one pass; returns true when the chip's contents are as wanted.
    fn audit(&mut self) -> Result<bool, Failure> {
        // The states of ports in trees belong to the protocols, which write them through a connection of
        // their own.
        let mut actual = entries(&mut self.hardware)?;
        actual.retain(|operation| operation.kind() != OperationKind::Stp);
        self.strategy.resync(&actual);
        let had: BTreeMap<Vec<u8>, Operation> =
            actual.iter().map(|operation| (key(operation), operation.clone())).collect();
        let wanted = self.wanted();
        let mut steps: Vec<(u8, Operation)> = Vec::new();
        for (key, operation) in &wanted {
            let was = had.get(key);
            if was == Some(operation) {
                continue;
            }
            steps.push((rank(operation, was.is_some()), operation.clone()));
        }
        for (key, operation) in &had {
            if !wanted.contains_key(key)
                && let Some(removal) = removal(operation)
            {
                let rank = match operation.kind() {
                    OperationKind::Route => 1,
                    OperationKind::Group => 8,
                    OperationKind::Adjacency => 9,
                    _ => 10,
                };
                steps.push((rank, removal));
            }
        }
        if steps.is_empty() {
            self.adopt(&actual);
            return Ok(true);
        }
        steps.sort_by_key(|(rank, _)| *rank);
        for (_, step) in steps {
            let ticket = self.hardware.send(Request::Commit(vec![step.clone()]));
            match await_answer(&mut self.hardware, ticket) {
                Ok(_) => {}
                Err(Failure::Refused(refused)) if refused.code == Code::NoRoom => {
                    if let Operation::Route(vrf, prefix, Some(_)) = step {
                        self.covers.hide((vrf, prefix));
                        // The route's cover must trap before anything else is done.
                        return Ok(false);
                    }
                }
                // The next pass finds what is missing.
                Err(Failure::Refused(_)) => {}
                Err(gone) => return Err(gone),
            }
        }
        Ok(false)
    }

    fn adopt(&mut self, actual: &[Operation]) {
        self.written.clear();
        self.vrf_routes.clear();
        self.trapping = 0;
        for operation in actual {
            if let Operation::Route(vrf, prefix, Some(target)) = operation {
                self.written.insert((*vrf, *prefix), *target);
                *self.vrf_routes.entry(*vrf).or_default() += 1;
                self.trapping += usize::from(*target == TRAP);
            }
        }
    }
}

fn rank(operation: &Operation, present: bool) -> u8 {
    match operation {
        Operation::Route(_, _, Some(target)) if present && *target == TRAP => 0,
        Operation::Global(_) | Operation::Vlan(..) => 2,
        Operation::Port(..) => 3,
        Operation::Rif(..) => 4,
        Operation::Adjacency(..) => 5,
        Operation::Group(..) => 6,
        Operation::Route(..) if !present => 7,
        // Covers stop trapping after the routes that they trapped for have been added.
        Operation::Route(..) => 8,
        _ => 4,
    }
}

/// The key that identifies the object of an operation: the front of its encoding.
pub(super) fn key(operation: &Operation) -> Vec<u8> {
    let mut writer = Writer::default();
    operation.write(&mut writer);
    let mut bytes = writer.0;
    match operation {
        Operation::Global(_) => bytes.truncate(1),
        Operation::Port(..) | Operation::Vlan(..) | Operation::Rif(..) => bytes.truncate(3),
        Operation::Stp(..) => bytes.truncate(4),
        Operation::Fdb(..) => bytes.truncate(9),
        Operation::Adjacency(..) | Operation::Group(..) => bytes.truncate(5),
        Operation::Route(..) => bytes.truncate(bytes.len() - 5),
        Operation::Rule(..) => {
            bytes.truncate(10);
            bytes[1] = 0;
        }
        Operation::Multicast(..) => bytes[1] = 0,
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
        Operation::Multicast(vlan, group, source, _) => Operation::Multicast(*vlan, *group, *source, false),
    })
}
