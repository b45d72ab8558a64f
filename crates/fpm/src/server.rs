//! The session: frames out of bytes, answers into bytes, and the two timers.
//!
//! Invariant: [`Server::output`] holds less than [`MAX_OUTPUT`] and one frame; what does not fit is told when it does.

use crate::counters::{Counters, Framing, Ignored};
use crate::rib::{Limits, Offload, Rib, Taken, Update};
use crate::{MAX_FRAME, Malformed, answer};
use ipnet::IpNet;
use lanyard_wire::rtnetlink::{
    DEL_NEXTHOP, DEL_ROUTE, Message, NEW_NEXTHOP, NEW_ROUTE, NextHopObject, Route, messages,
};
use std::collections::VecDeque;

/// Bytes of a frame's header.
const HEADER_LEN: usize = 4;
/// Answers waiting to be written, in bytes.
pub const MAX_OUTPUT: usize = 1 << 20;
/// Answers that wait for a client that reads slowly; more than these it is never told.
pub const MAX_OWED: usize = 1 << 20;
/// Routes looked at in one step of a sweep.
const STEP: usize = 10_000;

/// How long to wait, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// After a session has come up, so long without a message means that the client has sent all it has.
    pub quiet_ms: u64,
    /// So long without a session, and the routes are given up.
    pub hold_ms: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self { quiet_ms: 10_000, hold_ms: 120_000 }
    }
}

/// Where the server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nobody is connected, and nothing is remembered.
    Idle,
    /// A client is connected and may still be sending what it had: stale routes are kept.
    Replaying,
    /// Stale routes are being removed.
    Sweeping,
    /// Everything there is came in this session.
    Synced,
    /// Nobody is connected; the routes are held for a client to come back.
    Holding,
}

impl Phase {
    /// Its name.
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

/// The server.
#[derive(Debug)]
pub struct Server {
    rib: Rib,
    timers: Timers,
    counters: Counters,
    connected: bool,
    phase: Phase,
    /// When the phase ends.
    due_ms: u64,
    /// How far a sweep has come.
    swept: Option<IpNet>,
    /// A frame that has not come whole.
    partial: Vec<u8>,
    output: Vec<u8>,
    /// Routes whose answers wait for room in `output`.
    owed: VecDeque<IpNet>,
    updates_in_pairs: bool,
}

impl Server {
    /// A server that nobody is connected to.
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

    /// A client has connected. One that was connected before is gone.
    pub fn connected(&mut self, now_ms: u64) {
        self.end_session();
        self.connected = true;
        self.counters.sessions += 1;
        self.updates_in_pairs = false;
        self.rib.age();
        self.wait(Phase::Replaying, now_ms + self.timers.quiet_ms);
    }
    /// The client is gone.
    pub fn disconnected(&mut self, now_ms: u64) {
        if self.connected {
            self.end_session();
            self.wait(Phase::Holding, now_ms + self.timers.hold_ms);
        }
    }
    /// Gives up everything, as if nobody had come back: the server is being switched off.
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

    /// Takes in bytes of the client, as they come. What changed is answered by [`Server::updates`].
    ///
    /// # Errors
    /// When the client can't be understood any more: the session is to be ended.
    pub fn input(&mut self, now_ms: u64, bytes: &[u8]) -> Result<(), Framing> {
        self.counters.bytes += bytes.len() as u64;
        if self.phase == Phase::Replaying {
            self.due_ms = now_ms + self.timers.quiet_ms;
        }
        let mut partial = std::mem::take(&mut self.partial);
        let result = if partial.is_empty() {
            self.frames(bytes).map(|rest| rest.to_vec())
        } else {
            // Only the first frame is in two pieces.
            partial.extend(bytes);
            self.frames(&partial).map(|rest| rest.to_vec())
        };
        self.partial = result.inspect_err(|why| self.counters.framing[*why as usize] += 1)?;
        Ok(())
    }
    /// All whole frames; answers what is left.
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
                    Taken::Known => self.tell(route.dest),
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
                if !self.rib.ways.set_object(&NextHopObject::new(message.body)?) {
                    self.counters.nexthops_refused += 1;
                }
            }
            DEL_NEXTHOP => {
                self.counters.nexthops_deleted += 1;
                self.rib.ways.delete_object(NextHopObject::new(message.body)?.id);
            }
            _ => self.counters.ignored[Ignored::Message as usize] += 1,
        }
        Ok(None)
    }

    /// What has changed since the last call; to be called after [`Server::input`] and [`Server::handle_timer`].
    pub fn updates(&mut self) -> Vec<Update> {
        self.rib.flush()
    }
    /// The next [`Server::updates`] tell everything, as to somebody who knows nothing.
    pub fn tell_again(&mut self) {
        self.rib.tell_again();
    }
    /// What became of a route that an update was about. The client is told when that is news to it.
    pub fn offload(&mut self, dest: IpNet, offload: Offload) {
        if self.rib.offload(dest, offload) {
            self.tell(dest);
        }
    }

    fn tell(&mut self, dest: IpNet) {
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
    /// A route there was no room for is answered from its message, if the client reads at all.
    fn refuse(&mut self, route: &Route<'_>) {
        if self.output.len() >= MAX_OUTPUT {
            self.counters.unanswered += 1;
        } else if self.connected {
            self.counters.failed += 1;
            answer::refuse(&mut self.output, route);
        }
    }

    /// Bytes for the client.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }
    /// So many bytes of [`Server::output`] have been sent.
    pub fn sent(&mut self, bytes: usize) {
        self.output.drain(..bytes.min(self.output.len()));
        while self.output.len() < MAX_OUTPUT
            && let Some(dest) = self.owed.pop_front()
        {
            self.answer(dest);
        }
    }

    /// When [`Server::handle_timer`] is to be called next.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Idle | Phase::Synced => None,
            Phase::Replaying | Phase::Holding | Phase::Sweeping => Some(self.due_ms),
        }
    }
    /// The time is `now_ms`. What changed is answered by [`Server::updates`].
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

    /// Where the server stands.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }
    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Routes known.
    #[must_use]
    pub fn routes(&self) -> usize {
        self.rib.len()
    }
    /// Routes of which the switch has said that this became of them.
    #[must_use]
    pub const fn routes_that_are(&self, offload: Offload) -> usize {
        self.rib.states[offload as usize]
    }
    /// Next-hop objects known.
    #[must_use]
    pub fn nexthops(&self) -> usize {
        self.rib.ways.objects()
    }
    /// Ways that routes go.
    #[must_use]
    pub fn ways(&self) -> usize {
        self.rib.ways.len()
    }
    /// True when the client has sent an update as a deletion and an addition: FRR before 10 does, and reads no answers.
    #[must_use]
    pub const fn updates_in_pairs(&self) -> bool {
        self.updates_in_pairs
    }
}
