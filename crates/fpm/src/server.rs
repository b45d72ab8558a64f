//! The FPM session: divides the received bytes into frames, writes answers for the client, and has the two timers.
//!
//! Invariant: [`Server::output`] never holds more than [`MAX_OUTPUT`] bytes plus one frame; further answers wait.

use crate::counters::{Counters, Framing, Ignored};
use crate::rib::{Limits, Offload, Rib, Taken, Update};
use crate::{MAX_FRAME, Malformed, answer};
use ipnet::IpNet;
use lanyard_wire::rtnetlink::{
    DEL_NEXTHOP, DEL_ROUTE, Message, NEW_NEXTHOP, NEW_ROUTE, NextHopObject, Route, messages,
};
use std::collections::VecDeque;

/// Length of the frame header in bytes.
const HEADER_LEN: usize = 4;
/// Answers wait when the output buffer holds this many bytes.
pub const MAX_OUTPUT: usize = 1 << 20;
/// How many answers may wait for a client that reads slowly. Beyond this number answers are not sent at all.
pub const MAX_OWED: usize = 1 << 20;
/// Routes examined in one step of a sweep.
const STEP: usize = 10_000;

/// Timeouts, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// A new session without input for this time means that the client has sent all its routes.
    pub quiet_ms: u64,
    /// Without a session for this time the routes are removed.
    pub hold_ms: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self { quiet_ms: 10_000, hold_ms: 120_000 }
    }
}

/// The state of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No client is connected, and there are no routes.
    Idle,
    /// A client is connected and may still be sending its routes: routes of earlier sessions are kept.
    Replaying,
    /// Routes of earlier sessions are being removed.
    Sweeping,
    /// All routes were sent in this session.
    Synced,
    /// No client is connected; the routes are kept for a client that reconnects.
    Holding,
}

impl Phase {
    /// The name of the phase.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Replaying => "replaying",
            Self::Sweeping => "sweeping",
            Self::Synced => "synced",
            Self::Holding => "holding",
        }
    }
}

/// An FPM server for one client at a time.
#[derive(Debug)]
pub struct Server {
    rib: Rib,
    timers: Timers,
    counters: Counters,
    connected: bool,
    phase: Phase,
    /// When the phase ends.
    due_ms: u64,
    /// The last prefix that the running sweep has examined; `None` at its start.
    swept: Option<IpNet>,
    /// The start of a frame whose rest has not been received yet.
    partial: Vec<u8>,
    output: Vec<u8>,
    /// Routes whose answers wait for room in `output`.
    owed: VecDeque<IpNet>,
    updates_in_pairs: bool,
}

impl Server {
    /// A server without a client and without routes.
    #[must_use]
    pub fn new(limits: Limits, timers: Timers) -> Self {
        Self {
            rib: Rib::new(limits),
            timers,
            counters: Counters::default(),
            connected: false,
            phase: Phase::Idle,
            due_ms: 0,
            swept: None,
            partial: Vec::new(),
            output: Vec::new(),
            owed: VecDeque::new(),
            updates_in_pairs: false,
        }
    }

    /// Handles a new connection. It replaces an earlier one.
    pub fn connected(&mut self, now_ms: u64) {
        self.end_session();
        self.connected = true;
        self.counters.sessions += 1;
        self.updates_in_pairs = false;
        self.rib.age();
        self.wait(Phase::Replaying, now_ms + self.timers.quiet_ms);
    }
    /// Handles the end of the connection.
    pub fn disconnected(&mut self, now_ms: u64) {
        if self.connected {
            self.end_session();
            self.wait(Phase::Holding, now_ms + self.timers.hold_ms);
        }
    }
    /// Ends the session because the operator has turned the server off: [`Server::handle_timer`] removes all routes from
    /// `now_ms` on, as after the hold time.
    pub fn stop(&mut self, now_ms: u64) {
        self.end_session();
        self.wait(Phase::Holding, now_ms);
    }
    fn end_session(&mut self) {
        self.connected = false;
        self.partial = Vec::new();
        self.output = Vec::new();
        self.owed = VecDeque::new();
    }
    fn wait(&mut self, phase: Phase, due_ms: u64) {
        (self.phase, self.due_ms, self.swept) = (phase, due_ms, None);
    }

    /// Handles bytes from the client, in any portions. [`Server::updates`] returns what changed.
    ///
    /// # Errors
    /// A malformed frame: the caller has to end the session.
    pub fn input(&mut self, now_ms: u64, bytes: &[u8]) -> Result<(), Framing> {
        self.counters.bytes += bytes.len() as u64;
        if self.phase == Phase::Replaying {
            self.due_ms = now_ms + self.timers.quiet_ms;
        }
        let mut partial = std::mem::take(&mut self.partial);
        let result = if partial.is_empty() {
            self.frames(bytes).map(|rest| rest.to_vec())
        } else {
            // Only the first frame can have begun in an earlier call.
            partial.extend(bytes);
            self.frames(&partial).map(|rest| rest.to_vec())
        };
        self.partial = result.inspect_err(|why| self.counters.framing[*why as usize] += 1)?;
        Ok(())
    }
    /// Handles all complete frames; returns the bytes that are left.
    fn frames<'a>(&mut self, mut bytes: &'a [u8]) -> Result<&'a [u8], Framing> {
        while let [version, kind, high, low, ..] = *bytes {
            let length = usize::from(u16::from_be_bytes([high, low]));
            match (version, kind) {
                (1, 1) if length < HEADER_LEN => return Err(Framing::Length),
                (1, 1) => {}
                (1, _) => return Err(Framing::Type),
                _ => return Err(Framing::Version),
            }
            let Some((frame, rest)) = bytes.split_at_checked(length) else { break };
            self.counters.frames += 1;
            self.frame(&frame[HEADER_LEN..]);
            bytes = rest;
        }
        debug_assert!(bytes.len() < MAX_FRAME);
        Ok(bytes)
    }
    fn frame(&mut self, frame: &[u8]) {
        let mut deleted = None;
        for message in messages(frame) {
            self.counters.messages += 1;
            match message.and_then(|message| self.message(&message)) {
                Ok(Some((DEL_ROUTE, dest))) => deleted = Some(dest),
                Ok(Some((_, dest))) => self.updates_in_pairs |= deleted == Some(dest),
                Ok(None) => {}
                Err(why) => self.counters.malformed[why as usize] += 1,
            }
        }
    }
    fn message(&mut self, message: &Message<'_>) -> Result<Option<(u16, IpNet)>, Malformed> {
        match message.kind {
            NEW_ROUTE => {
                let route = Route::new(message.body)?;
                match self.rib.set(&route, &mut self.counters) {
                    Taken::Ignored | Taken::Pending => {}
                    Taken::Known => self.queue_answer(route.dest),
                    Taken::Refused => self.refuse(&route),
                }
                return Ok(Some((NEW_ROUTE, route.dest)));
            }
            DEL_ROUTE => {
                let route = Route::new(message.body)?;
                self.rib.unset(&route, &mut self.counters);
                return Ok(Some((DEL_ROUTE, route.dest)));
            }
            NEW_NEXTHOP => {
                self.counters.nexthops_set += 1;
                if !self.rib.next_hop_sets.set_object(&NextHopObject::new(message.body)?) {
                    self.counters.nexthops_refused += 1;
                }
            }
            DEL_NEXTHOP => {
                self.counters.nexthops_deleted += 1;
                self.rib.next_hop_sets.delete_object(NextHopObject::new(message.body)?.id);
            }
            _ => self.counters.ignored[Ignored::Message as usize] += 1,
        }
        Ok(None)
    }

    /// Returns the changes since the last call. Call it after [`Server::input`] and [`Server::handle_timer`].
    pub fn updates(&mut self) -> Vec<Update> {
        self.rib.flush()
    }
    /// Makes the next [`Server::updates`] return all routes and next-hop sets, for a receiver that has lost its state.
    pub fn announce_all(&mut self) {
        self.rib.announce_all();
    }
    /// Records what the plane did with a route. The client is answered if the result differs from its last answer.
    pub fn offload(&mut self, dest: IpNet, offload: Offload) {
        if self.rib.offload(dest, offload) {
            self.queue_answer(dest);
        }
    }

    fn queue_answer(&mut self, dest: IpNet) {
        if !self.connected {
            return;
        }
        if self.output.len() < MAX_OUTPUT && self.owed.is_empty() {
            return self.answer(dest);
        }
        self.counters.held_back += 1;
        if self.owed.len() < MAX_OWED {
            self.owed.push_back(dest);
        } else {
            self.counters.unanswered += 1;
        }
    }
    fn answer(&mut self, dest: IpNet) {
        if let Some(answer) = self.rib.answer(dest) {
            let count = match answer.offload {
                Offload::Offloaded => &mut self.counters.offloaded,
                Offload::Trapped => &mut self.counters.trapped,
                Offload::Failed => &mut self.counters.failed,
            };
            *count += 1;
            answer::write(&mut self.output, &answer);
        }
    }
    /// Answers "failed" for a route that there was no room for. The answer is made from the message, because the route
    /// is not stored.
    fn refuse(&mut self, route: &Route<'_>) {
        if self.output.len() >= MAX_OUTPUT {
            self.counters.unanswered += 1;
        } else if self.connected {
            self.counters.failed += 1;
            answer::refuse(&mut self.output, route);
        }
    }

    /// The bytes to send to the client.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }
    /// Removes the first `bytes` bytes of [`Server::output`], which were sent, and appends waiting answers.
    pub fn sent(&mut self, bytes: usize) {
        self.output.drain(..bytes.min(self.output.len()));
        while self.output.len() < MAX_OUTPUT
            && let Some(dest) = self.owed.pop_front()
        {
            self.answer(dest);
        }
    }

    /// When to call [`Server::handle_timer`] next.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Idle | Phase::Synced => None,
            Phase::Replaying | Phase::Holding | Phase::Sweeping => Some(self.due_ms),
        }
    }
    /// Handles the passing of time. [`Server::updates`] returns what changed.
    pub fn handle_timer(&mut self, now_ms: u64) {
        if self.next_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return;
        }
        match self.phase {
            Phase::Idle | Phase::Synced => return,
            Phase::Replaying => self.wait(Phase::Sweeping, now_ms),
            Phase::Holding => {
                self.rib.age();
                self.wait(Phase::Sweeping, now_ms);
            }
            Phase::Sweeping => {}
        }
        let (next, removed) = self.rib.sweep(self.swept, STEP);
        self.counters.swept += removed;
        self.swept = next;
        if next.is_none() {
            self.phase = if self.connected { Phase::Synced } else { Phase::Idle };
        }
    }

    /// The state of the server.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }
    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// The number of routes.
    #[must_use]
    pub fn routes(&self) -> usize {
        self.rib.len()
    }
    /// The number of routes for which the switch has reported this result.
    #[must_use]
    pub const fn routes_that_are(&self, offload: Offload) -> usize {
        self.rib.states[offload as usize]
    }
    /// The number of next-hop objects.
    #[must_use]
    pub fn nexthops(&self) -> usize {
        self.rib.next_hop_sets.objects()
    }
    /// The number of next-hop sets.
    #[must_use]
    pub fn next_hop_sets(&self) -> usize {
        self.rib.next_hop_sets.len()
    }
    /// True if the client sends an update as a deletion and an addition, as FRR before version 10 does. Such a client
    /// does not read answers.
    #[must_use]
    pub const fn updates_in_pairs(&self) -> bool {
        self.updates_in_pairs
    }
}
