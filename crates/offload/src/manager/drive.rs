//! Writes on their way to the chip: the strategy's decision, transactions, answers and figures.

use super::{Manager, Refusal, TRAP};
use crate::hardware::{Failure, Hardware, Ticket};
use crate::strategy::{Decision, Write};
use lanyard_asic::sdk::message::{Answer, Code, Request};
use lanyard_asic::sdk::operation::Operation;

/// How often a strategy may request the chip's figures before it has to decide about a write.
const PATIENCE: u32 = 64;

impl Manager<dyn Hardware> {
    /// Lets the strategy decide about writes, and carries out its decision. With `whole` the writes are one transaction,
    /// otherwise they may be several.
    pub(super) fn drive(&mut self, writes: &[Write], whole: bool) -> Result<(), Refusal> {
        if writes.is_empty() {
            return Ok(());
        }
        let outcome = self.decide(writes, whole);
        // Only after the writes have been sent: the strategy has spent their units, which earlier figures would not include.
        if self.figures.is_none() && self.strategy.wants_figures() {
            self.ask_figures(false);
        }
        outcome
    }

    fn decide(&mut self, writes: &[Write], whole: bool) -> Result<(), Refusal> {
        for _ in 0..PATIENCE {
            match self.strategy.admit(writes) {
                Decision::Accept => {
                    let operations = writes.iter().map(|write| write.operation.clone());
                    if whole && writes.len() > 1 {
                        self.flush();
                        self.send(operations.collect());
                        self.note(writes);
                        return Ok(());
                    }
                    self.waiting.extend(operations);
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
                        self.ask_figures(true);
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
        Err(Refusal::Chip("its figures keep changing".into()))
    }

    /// Sends operations that were accepted and wait. While earlier writes are pending, further ones are collected into
    /// transactions of the strategy's size. A caller that has no further requests calls this, as [`Manager::settle`]
    /// does.
    pub fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for part in waiting.chunks(self.strategy.chunk()) {
            self.send(part.to_vec());
        }
    }

    /// Sends a transaction without waiting for its answer.
    fn send(&mut self, operations: Vec<Operation>) {
        let ticket = self.hardware.send(Request::Commit(operations));
        self.under_way.insert(ticket);
    }

    fn ask_figures(&mut self, awaited: bool) {
        self.flush();
        let hardware = &mut self.hardware;
        self.figures =
            Some(if awaited { hardware.ask(Request::Usage) } else { hardware.send(Request::Usage) });
        self.strategy.asked();
    }

    /// Writes, and waits for the chip's answer.
    pub(super) fn verify(&mut self, operations: Vec<Operation>) -> Result<(), Refusal> {
        self.carry_out(Request::Commit(operations))
    }

    /// Sends a request that is answered by a number, and waits for the answer.
    pub(super) fn carry_out(&mut self, request: Request) -> Result<(), Refusal> {
        Ok(self.await_done(request)?)
    }
    /// As [`Manager::verify`], for a caller that acts on the refused operation.
    pub(super) fn try_commit(&mut self, operations: Vec<Operation>) -> Result<(), Failure> {
        self.await_done(Request::Commit(operations))
    }

    fn await_done(&mut self, request: Request) -> Result<(), Failure> {
        self.flush();
        let ticket = self.hardware.ask(request);
        loop {
            match self.hardware.poll(true) {
                Some((answered, outcome)) if answered == ticket => {
                    self.suspect |= matches!(outcome, Err(Failure::Gone(_)));
                    return outcome.map(drop);
                }
                Some((other, outcome)) => self.answered(other, outcome),
                None => {
                    self.suspect = true;
                    return Err(Failure::Gone("no answer".into()));
                }
            }
        }
    }

    /// Records in `written`, and in the counts that belong to it, the writes that the chip carries out.
    fn note(&mut self, writes: &[Write]) {
        for write in writes {
            match &write.operation {
                Operation::Route(vrf, prefix, target) => {
                    let count = self.vrf_routes.entry(*vrf).or_default();
                    let was = match target {
                        Some(target) => self.written.insert((*vrf, *prefix), *target),
                        None => self.written.remove((*vrf, *prefix)),
                    };
                    *count = *count + u32::from(target.is_some()) - u32::from(was.is_some());
                    self.trapping =
                        self.trapping + usize::from(*target == Some(TRAP)) - usize::from(was == Some(TRAP));
                }
                Operation::Group(id, Some(buckets)) => {
                    self.written_groups.insert(*id, buckets.len() as u32);
                }
                Operation::Group(id, None) => _ = self.written_groups.remove(id),
                Operation::Adjacency(id, Some(_)) => _ = self.written_adjacencies.insert(*id),
                Operation::Adjacency(id, None) => _ = self.written_adjacencies.remove(id),
                _ => {}
            }
        }
    }

    /// Handles the answers that have arrived; with `wait`, at least one if a request is pending.
    pub(super) fn pump(&mut self, wait: bool) {
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
            self.strategy.received(&event);
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
        if self.activity == Some(ticket) {
            self.activity = None;
            self.take_activity(outcome);
            return;
        }
        if self.under_way.remove(&ticket) && outcome.is_err() {
            self.suspect = true;
        }
        if self.suspect {
            self.strategy.distrust();
        }
    }

    /// Handles the answers that have arrived, and corrects the chip after a failure.
    pub fn mend(&mut self) {
        self.pump(false);
        if self.suspect && !self.down && !self.held {
            let _ = self.settle();
        }
    }

    /// The number of transactions that have not been answered.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Handles the answers that have arrived.
    pub fn poll_answers(&mut self) {
        self.pump(false);
    }

    /// Handles the answers that have arrived, and queries the use of tables and routes, without waiting: to be called about once
    /// a second. Alarms, [`Manager::resources`] and [`Manager::rebalance`] use the answers.
    pub fn poll(&mut self) {
        self.pump(false);
        if self.down {
            return;
        }
        self.flush();
        if self.figures.is_none() {
            self.ask_figures(false);
        }
        if self.activity.is_none() {
            self.ask_activity(true);
        }
    }

    /// Asks the chip for its figures and waits for them.
    pub fn refresh(&mut self) {
        if self.down {
            return;
        }
        if self.figures.is_none() {
            self.ask_figures(true);
        }
        while self.figures.is_some() {
            self.pump(true);
        }
    }

    /// Waits until no request is pending.
    pub fn drain(&mut self) {
        self.flush();
        let left = |manager: &Self| (manager.under_way.len(), manager.figures, manager.activity);
        while !self.under_way.is_empty() || self.figures.is_some() || self.activity.is_some() {
            let before = left(self);
            self.pump(true);
            if before == left(self) {
                self.under_way.clear();
                self.figures = None;
                self.activity = None;
                self.suspect = true;
            }
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refused) if refused.code == Code::NoRoom => {
                Self::Full { table: refused.table, text: refused.text }
            }
            Failure::Refused(refused) => Self::Chip(refused.text),
            Failure::Gone(why) => Self::Chip(why),
        }
    }
}
