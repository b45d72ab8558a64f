//! [`Manager`]: receives the routing configuration, writes to the chip, and answers each request.
//!
//! A batch passes four steps. [`Routes`] checks and stores the configuration (it refuses dangling references). Each
//! route gets its place, in the chip or hidden. The strategy decides about the resulting writes (those of the route and
//! of its cover). The writes are sent. If a step fails, the steps before it are undone. [`audit`] corrects the chip
//! after a failure.
//!
//! Invariants: see the crate. `written` is the state of the chip after all pending requests have been carried out.

mod audit;

pub use audit::removal;

use crate::cover::{Covers, Prefix};
use crate::hardware::{Failure, Hardware, Ticket};
use crate::resources::{Alarm, Alarms};
use crate::strategy::{Decision, Strategy, Write};
use lanyard_asic::object::Object;
use lanyard_asic::sdk::message::{Answer, Code, Request};
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::tables::Usage;
use lanyard_pipeline::route::{RouteChange, RouteTarget};
use lanyard_pipeline::tables::routes::{Limits, Routes};
use lanyard_types::{RifId, TrapReason, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The most operations of a batch.
pub const MAX_BATCH: usize = 16_384;
/// The number of hidden routes that are tried for a place in the chip when a route is removed.
const PROMOTED: usize = 4;
/// How often the chip is asked for its figures before a decision.
const PATIENCE: u32 = 64;

/// The treatment of routes that do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// They are refused, and their batch with them.
    #[default]
    Sync,
    /// They are hidden: the software plane forwards their packets.
    Hybrid,
    /// No route is put into the chip.
    Bypass,
}

/// The place where a route's packets are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// By the chip.
    Offloaded,
    /// By the software plane: the chip sends them to the CPU.
    Trapped,
}

/// The reason why a batch was refused. None of it is in the configuration or in the chip.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It contradicts the configuration.
    #[error("{0}")]
    Invalid(String),
    /// A table has no room.
    #[error("table {table} is full: {text}")]
    Full {
        /// The table.
        table: String,
        /// The message of the chip or of the strategy.
        text: String,
    },
    /// The chip failed.
    #[error("the chip failed: {0}")]
    Chip(String),
}

/// See the module comment.
#[derive(Debug)]
pub struct Manager<H> {
    hardware: H,
    strategy: Box<dyn Strategy>,
    policy: Policy,
    routes: Routes,
    rifs: BTreeSet<RifId>,
    /// Ports, VLANs, router interfaces and settings, by key. A chip is given these before routes.
    setup: BTreeMap<Vec<u8>, Operation>,
    covers: Covers,
    written: BTreeMap<Prefix, RouteTarget>,
    vrf_routes: BTreeMap<VrfId, u32>,
    /// The number of written routes that trap.
    trapping: usize,
    under_way: BTreeSet<Ticket>,
    /// Operations that are accepted but not sent yet: see [`Manager::flush`].
    waiting: Vec<Operation>,
    figures: Option<Ticket>,
    tables: Vec<Usage>,
    alarms: Alarms,
    news: Vec<Alarm>,
    hits: BTreeMap<Prefix, u64>,
    suspect: bool,
    down: bool,
}

impl<H: Hardware> Manager<H> {
    /// A manager of an empty chip.
    #[must_use]
    pub fn new(hardware: H, strategy: Box<dyn Strategy>, policy: Policy) -> Self {
        Self {
            hardware,
            strategy,
            policy,
            routes: Routes::new(Limits::default()),
            rifs: BTreeSet::new(),
            setup: BTreeMap::new(),
            covers: Covers::default(),
            written: BTreeMap::new(),
            vrf_routes: BTreeMap::new(),
            trapping: 0,
            under_way: BTreeSet::new(),
            waiting: Vec::new(),
            figures: None,
            tables: Vec::new(),
            alarms: Alarms::default(),
            news: Vec::new(),
            hits: BTreeMap::new(),
            suspect: false,
            down: false,
        }
    }
    /// The chip.
    pub fn hardware(&mut self) -> &mut H {
        &mut self.hardware
    }
    /// The strategy, for inspection.
    #[must_use]
    pub fn strategy(&self) -> &dyn Strategy {
        self.strategy.as_ref()
    }
    /// The configuration.
    #[must_use]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }
    /// The routes that the manager believes to be in the chip, with their programmed targets.
    #[must_use]
    pub fn written(&self) -> &BTreeMap<Prefix, RouteTarget> {
        &self.written
    }
    /// True if the chip has been given up: the software plane forwards everything.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down
    }
    /// Where a route's packets are forwarded; `None` for a prefix without a route.
    #[must_use]
    pub fn place(&self, vrf: VrfId, prefix: ipnet::IpNet) -> Option<Place> {
        let target = self.routes.get(vrf, prefix)?;
        let offloaded = !self.down && self.written.get(&(vrf, prefix)) == Some(&target);
        Some(if offloaded { Place::Offloaded } else { Place::Trapped })
    }
    /// Routes that are not in the chip.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.covers.hidden().len()
    }
    /// Alarms since the last call.
    pub fn alarms(&mut self) -> Vec<Alarm> {
        std::mem::take(&mut self.news)
    }
    /// The chip's tables according to its last figures.
    #[must_use]
    pub fn resources(&self) -> Vec<crate::resources::Resource> {
        self.alarms.resources(&self.tables)
    }

    /// Configures ports, VLANs, router interfaces and settings. They are written at once, all or nothing.
    ///
    /// # Errors
    /// The operation that the chip refused.
    pub fn setup(&mut self, operations: &[Operation]) -> Result<(), Refusal> {
        self.verify(operations.to_vec())?;
        self.strategy.wrote(operations);
        for operation in operations {
            if let Operation::Rif(rif, state) = operation {
                if state.is_some() {
                    self.rifs.insert(*rif)
                } else {
                    self.rifs.remove(rif)
                };
            }
            self.setup.insert(audit::key(operation), operation.clone());
        }
        Ok(())
    }

    /// Handles a batch of adjacencies, groups and routes, as a whole or not at all. With [`Policy::Hybrid`] a route
    /// that does not fit is accepted and hidden. When this returns the request has been answered; writes may still be
    /// pending.
    ///
    /// # Errors
    /// The reason why the batch was refused.
    pub fn request(&mut self, batch: &[Operation]) -> Result<(), Refusal> {
        self.pump(false);
        if self.suspect && !self.down {
            let _ = self.settle();
        }
        let undo = self.configure(batch)?;
        let places: Vec<(Prefix, bool, bool)> = touched(batch).map(|prefix| self.remember(prefix)).collect();
        let outcome = match self.policy {
            _ if self.down => {
                self.hide_all(batch);
                Ok(())
            }
            Policy::Sync => self.together(batch),
            Policy::Hybrid | Policy::Bypass => self.one_by_one(batch),
        };
        let Err(refusal) = outcome else {
            let freed = batch.iter().any(|operation| matches!(operation, Operation::Route(_, _, None)));
            if freed && self.policy == Policy::Hybrid && self.hidden() > 0 {
                self.promote(PROMOTED);
            }
            return Ok(());
        };
        for change in undo.into_iter().rev() {
            // Undoing a change that was accepted does not fail.
            let _ = self.routes.change(&change, |_| true);
        }
        for (prefix, programmed, hidden) in places {
            match (programmed, hidden) {
                (true, _) => self.covers.program(prefix),
                (false, true) => self.covers.hide(prefix),
                (false, false) => self.covers.forget(prefix),
            }
        }
        if matches!(refusal, Refusal::Chip(_)) || self.policy != Policy::Sync {
            self.suspect = true;
            let _ = self.settle();
        }
        Err(refusal)
    }

    fn remember(&self, prefix: Prefix) -> (Prefix, bool, bool) {
        (prefix, self.covers.is_programmed(prefix), self.covers.hidden().contains(&prefix))
    }

    /// Stores the batch in the configuration and returns the changes that undo it.
    fn configure(&mut self, batch: &[Operation]) -> Result<Vec<RouteChange>, Refusal> {
        if batch.len() > MAX_BATCH {
            return Err(Refusal::Invalid(format!(
                "a batch of {} operations; {MAX_BATCH} is the most",
                batch.len()
            )));
        }
        let mut undo = Vec::with_capacity(batch.len());
        for operation in batch {
            let change = match operation {
                Operation::Adjacency(id, new) => RouteChange::Adjacency(*id, *new),
                Operation::Group(id, new) => RouteChange::Group(*id, new.clone()),
                Operation::Route(vrf, prefix, new) => RouteChange::Route(*vrf, *prefix, *new),
                other => {
                    undo.into_iter().rev().for_each(|change| _ = self.routes.change(&change, |_| true));
                    return Err(Refusal::Invalid(format!(
                        "a {} is no part of a batch of routes",
                        other.kind().name()
                    )));
                }
            };
            match self.routes.change(&change, |rif| self.rifs.contains(&rif)) {
                Ok(inverse) => undo.push(inverse),
                Err(refused) => {
                    undo.into_iter().rev().for_each(|change| _ = self.routes.change(&change, |_| true));
                    return Err(Refusal::Invalid(refused.to_string()));
                }
            }
        }
        Ok(undo)
    }

    /// Writes all operations of a batch in one transaction.
    fn together(&mut self, batch: &[Operation]) -> Result<(), Refusal> {
        for (prefix, new) in routes_of(batch) {
            if new { self.covers.program(prefix) } else { self.covers.forget(prefix) }
        }
        let writes = self.plan(batch);
        self.drive(&writes)
    }

    /// Writes each operation by itself, so that a route that does not fit does not prevent the others.
    fn one_by_one(&mut self, batch: &[Operation]) -> Result<(), Refusal> {
        for operation in batch {
            let operation = std::slice::from_ref(operation);
            let Some((prefix, new)) = routes_of(operation).next() else {
                let writes = self.plan(operation);
                self.drive(&writes)?;
                continue;
            };
            if !new {
                self.covers.forget(prefix);
            } else if self.policy == Policy::Bypass {
                self.covers.hide(prefix);
            } else {
                self.covers.program(prefix);
            }
            let writes = self.plan(operation);
            match self.drive(&writes) {
                Err(Refusal::Full { .. } | Refusal::Chip(_))
                    if new && !self.down && self.policy == Policy::Hybrid =>
                {
                    self.covers.hide(prefix);
                    let writes = self.plan(operation);
                    self.drive(&writes)?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn hide_all(&mut self, batch: &[Operation]) {
        for (prefix, new) in routes_of(batch) {
            if new { self.covers.hide(prefix) } else { self.covers.forget(prefix) }
        }
    }

    /// The target that a programmed route should have in the chip.
    fn desired(&self, prefix: Prefix) -> Option<RouteTarget> {
        if !self.covers.is_programmed(prefix) {
            return None;
        }
        if self.covers.traps(prefix) { Some(TRAP) } else { self.routes.get(prefix.0, prefix.1) }
    }

    /// The writes that take the chip from `written` to the batch. Objects come before the routes that refer to them,
    /// covers begin to trap before routes are removed, and routes are added before covers stop trapping.
    fn plan(&self, batch: &[Operation]) -> Vec<Write> {
        let plain = |operation: &Operation, adds, removes| Write {
            operation: operation.clone(),
            adds,
            removes,
            unsure: false,
        };
        let mut writes = Vec::new();
        let mut last = Vec::new();
        for operation in batch {
            match operation {
                Operation::Group(_, Some(buckets)) => {
                    let adds = vec![(Object::EcmpGroup, 1), (Object::EcmpMember, buckets.len() as u32)];
                    writes.push(plain(operation, adds, Vec::new()));
                }
                Operation::Adjacency(_, Some(_)) => writes.push(plain(operation, Vec::new(), Vec::new())),
                Operation::Route(..) => {}
                _ => last.push(plain(operation, Vec::new(), Vec::new())),
            }
        }
        let mut affected: BTreeSet<Prefix> = touched(batch).collect();
        if !self.covers.hidden().is_empty() || self.trapping > 0 {
            let covers: Vec<Prefix> =
                affected.iter().filter_map(|prefix| self.covers.cover(*prefix)).collect();
            affected.extend(covers);
        }
        let mut routes: Vec<(u8, Write)> = Vec::new();
        for prefix in affected {
            let (was, is) = (self.written.get(&prefix).copied(), self.desired(prefix));
            let rank = match (was, is) {
                _ if was == is => continue,
                (Some(_), Some(TRAP)) => 0,
                (None, Some(_)) => 1,
                (Some(_), Some(_)) => 2,
                _ => 3,
            };
            let object = object_of(prefix.1);
            let write = Write {
                operation: Operation::Route(prefix.0, prefix.1, is),
                adds: if was.is_none() { vec![(object, 1)] } else { Vec::new() },
                removes: if is.is_none() { vec![(object, 1)] } else { Vec::new() },
                unsure: was.is_none() && self.vrf_routes.get(&prefix.0).is_none_or(|count| *count == 0),
            };
            routes.push((rank, write));
        }
        routes.sort_by_key(|(rank, _)| *rank);
        writes.extend(routes.into_iter().map(|(_, write)| write));
        writes.extend(last);
        writes
    }

    /// Asks the strategy for a decision and carries it out.
    fn drive(&mut self, writes: &[Write]) -> Result<(), Refusal> {
        if writes.is_empty() {
            return Ok(());
        }
        for _ in 0..PATIENCE {
            let decision = self.strategy.admit(writes);
            if self.strategy.wants_figures() && self.figures.is_none() {
                self.ask_figures();
            }
            match decision {
                Decision::Accept => {
                    self.waiting.extend(writes.iter().map(|write| write.operation.clone()));
                    if self.waiting.len() >= self.strategy.chunk() || self.under_way.is_empty() {
                        self.flush();
                    }
                    self.note(writes);
                    return Ok(());
                }
                Decision::Verify => {
                    let operations: Vec<Operation> =
                        writes.iter().map(|write| write.operation.clone()).collect();
                    self.verify(operations.clone())?;
                    self.strategy.wrote(&operations);
                    self.note(writes);
                    return Ok(());
                }
                Decision::Refuse(refused) => {
                    return Err(Refusal::Full { table: refused.table, text: refused.text });
                }
                Decision::Query | Decision::Wait => {
                    if self.figures.is_none() {
                        self.ask_figures();
                    }
                    while self.figures.is_some() {
                        self.pump(true);
                    }
                    if self.suspect {
                        return Err(Refusal::Chip("it has not carried out an earlier write".into()));
                    }
                }
            }
        }
        Err(Refusal::Chip("its figures do not settle".into()))
    }

    /// Sends operations that were accepted and wait. While earlier writes are pending, further ones are collected into
    /// transactions of the strategy's size. A caller that has no further requests calls this, as [`Manager::settle`]
    /// does.
    pub fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for part in waiting.chunks(self.strategy.chunk()) {
            let ticket = self.hardware.send(Request::Commit(part.to_vec()));
            self.under_way.insert(ticket);
        }
    }

    fn ask_figures(&mut self) {
        self.flush();
        self.figures = Some(self.hardware.send(Request::Usage));
        self.strategy.asked();
    }

    /// Writes, and waits for the chip's answer.
    fn verify(&mut self, operations: Vec<Operation>) -> Result<(), Refusal> {
        self.flush();
        let ticket = self.hardware.send(Request::Commit(operations));
        loop {
            match self.hardware.poll(true) {
                Some((answered, outcome)) if answered == ticket => {
                    return match outcome {
                        Ok(_) => Ok(()),
                        Err(Failure::Refused(refused)) if refused.code == Code::NoRoom => {
                            Err(Refusal::Full { table: refused.table, text: refused.text })
                        }
                        Err(Failure::Refused(refused)) => Err(Refusal::Chip(refused.text)),
                        Err(Failure::Gone(why)) => {
                            self.suspect = true;
                            Err(Refusal::Chip(why))
                        }
                    };
                }
                Some((other, outcome)) => self.answered(other, outcome),
                None => {
                    self.suspect = true;
                    return Err(Refusal::Chip("no answer".into()));
                }
            }
        }
    }

    /// Records writes that the chip carries out.
    fn note(&mut self, writes: &[Write]) {
        for write in writes {
            let Operation::Route(vrf, prefix, target) = &write.operation else { continue };
            let count = self.vrf_routes.entry(*vrf).or_default();
            let was = match target {
                Some(target) => self.written.insert((*vrf, *prefix), *target),
                None => self.written.remove(&(*vrf, *prefix)),
            };
            *count = *count + u32::from(target.is_some()) - u32::from(was.is_some());
            self.trapping =
                self.trapping + usize::from(*target == Some(TRAP)) - usize::from(was == Some(TRAP));
        }
    }

    /// Handles the answers that have arrived; with `wait`, at least one if a request is pending.
    fn pump(&mut self, wait: bool) {
        let mut wait = wait;
        loop {
            let Some((ticket, outcome)) = self.hardware.poll(wait) else {
                if wait && self.figures.is_some() {
                    // No request is pending although an answer is missing.
                    self.figures = None;
                    self.suspect = true;
                }
                break;
            };
            wait = false;
            self.answered(ticket, outcome);
        }
        for event in self.hardware.events() {
            self.strategy.heard(&event);
        }
    }

    fn answered(&mut self, ticket: Ticket, outcome: Result<Answer, Failure>) {
        if self.figures == Some(ticket) {
            self.figures = None;
            match outcome {
                Ok(Answer::Usage(tables)) => {
                    self.strategy.figures(&tables);
                    self.news.extend(self.alarms.update(&tables));
                    self.tables = tables;
                }
                _ => self.suspect = true,
            }
            return;
        }
        if self.under_way.remove(&ticket) && outcome.is_err() {
            self.suspect = true;
        }
        if self.suspect {
            self.strategy.distrust();
        }
    }

    /// Asks the chip for its figures and waits for them.
    pub fn refresh(&mut self) {
        if self.figures.is_none() {
            self.ask_figures();
        }
        while self.figures.is_some() {
            self.pump(true);
        }
    }

    /// Waits until no request is pending.
    pub fn drain(&mut self) {
        self.flush();
        while !self.under_way.is_empty() || self.figures.is_some() {
            let before = (self.under_way.len(), self.figures);
            self.pump(true);
            if before == (self.under_way.len(), self.figures) {
                self.under_way.clear();
                self.figures = None;
                self.suspect = true;
            }
        }
    }

    /// Records that packets to this address came to the CPU, which makes their hidden route more important.
    pub fn hit(&mut self, vrf: VrfId, address: IpAddr, packets: u64) {
        let Some((prefix, _)) = self.routes.longest(vrf, address) else { return };
        let prefix = (vrf, prefix);
        if self.covers.hidden().contains(&prefix) {
            *self.hits.entry(prefix).or_default() += packets;
        }
    }

    /// Tries to put the most used hidden routes into the chip; returns how many were.
    pub fn promote(&mut self, most: usize) -> usize {
        let hits = |prefix: &Prefix| self.hits.get(prefix).copied().unwrap_or(0);
        let mut hidden: Vec<Prefix> = self.covers.hidden().iter().copied().collect();
        hidden.sort_by_key(|prefix| std::cmp::Reverse(hits(prefix)));
        let mut promoted = 0;
        for prefix in hidden.into_iter().take(most) {
            self.covers.program(prefix);
            // A route that has to trap for others gains nothing from a place in the chip.
            if self.covers.traps(prefix) {
                self.covers.hide(prefix);
                continue;
            }
            let operation = Operation::Route(prefix.0, prefix.1, self.routes.get(prefix.0, prefix.1));
            let writes = self.plan(&[operation]);
            if self.drive(&writes).is_err() {
                self.covers.hide(prefix);
                break;
            }
            self.hits.remove(&prefix);
            promoted += 1;
        }
        promoted
    }
}

/// The target of a cover in the chip.
const TRAP: RouteTarget = RouteTarget::Up(TrapReason::RoutePolicy);

/// The kind of object for a prefix.
fn object_of(prefix: ipnet::IpNet) -> Object {
    let full = prefix.prefix_len() == prefix.max_prefix_len();
    match (prefix.addr().is_ipv4(), full) {
        (true, true) => Object::Ipv4Host,
        (true, false) => Object::Ipv4Prefix,
        (false, true) => Object::Ipv6Host,
        (false, false) if prefix.prefix_len() <= 64 => Object::Ipv6Prefix64,
        (false, false) => Object::Ipv6Prefix128,
    }
}

fn routes_of(batch: &[Operation]) -> impl Iterator<Item = (Prefix, bool)> + '_ {
    batch.iter().filter_map(|operation| match operation {
        Operation::Route(vrf, prefix, target) => Some(((*vrf, *prefix), target.is_some())),
        _ => None,
    })
}

fn touched(batch: &[Operation]) -> impl Iterator<Item = Prefix> + '_ {
    routes_of(batch).map(|(prefix, _)| prefix)
}
