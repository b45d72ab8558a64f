//! The watchdogs: what the chip does when no driver restarts them in time.
//!
//! Snooping: without a driver no host can join a group, so the chip floods groups, and messages about memberships go to all
//! ports, until a driver restarts the watchdog. The entries stay as they are.
//!
//! Spanning tree: without a driver no BPDU is sent, and neighbours unblock ports when the information of the last one has aged
//! out (IEEE 802.1Q-2018, 13.29.31), so the chip blocks the watched ports ([`Chip::expire_trees`](super::Chip::expire_trees)).
//! Requests about this watchdog are answered at once: a driver that is alive must not lose its ports because others keep the bus
//! busy.
//!
//! Invariant: the watchdogs add no work to the processing of a frame.

use super::{Device, Request, SessionId, refused, wants};
use crate::sdk::faults::Fault;
use crate::sdk::message::{Answer, Code, Event, Notice};
use crate::sdk::operation::OperationKind;
use lanyard_pipeline::Timestamp;

/// When each watchdog expires, in nanoseconds of the chip's clock; `None` if it does not run.
#[derive(Debug, Default)]
pub(super) struct Watchdogs {
    snooping: Option<u64>,
    trees: Option<u64>,
}

impl Watchdogs {
    /// When the next watchdog expires; `None` if none runs.
    pub(super) fn next(&self) -> Option<Timestamp> {
        [self.snooping, self.trees].into_iter().flatten().min().map(Timestamp::from_nanos)
    }
}

/// When a watchdog that is restarted at `now` expires, in nanoseconds; `None` if `after_ms` is 0, which stops it.
fn due(now: Timestamp, after_ms: u32) -> Option<u64> {
    (after_ms > 0).then(|| now.as_nanos() + u64::from(after_ms) * 1_000_000)
}

impl Device {
    /// Restarts the watchdog of snooping with a period of `after_ms` milliseconds; 0 stops it. Returns true if the watchdog had
    /// expired: the chip then resumes snooping.
    pub(super) fn restart_snooping_watchdog(&mut self, now: Timestamp, after_ms: u32) -> bool {
        self.watchdogs.snooping = due(now, after_ms);
        after_ms > 0 && self.chip.set_snooping(true, now)
    }

    /// Carries out a request about the watchdog of spanning tree.
    pub(super) fn tree_watchdog(&mut self, now: Timestamp, request: &Request) -> Answer {
        // A watchdog that was due before the request has expired, although the clock is only looked at now.
        self.watch(now);
        let expired = match request {
            Request::TreeWatchdog(after_ms) => {
                self.watchdogs.trees = due(now, *after_ms);
                false
            }
            Request::TreeExpiry(true) => {
                let expired = self.chip.acknowledge_expiry();
                if expired {
                    self.notify(wants::EXPIRY, &Notice::Event(Event::ExpiryAcknowledged));
                }
                expired
            }
            _ => self.chip.trees_expired(),
        };
        Answer::Done(expired.into())
    }
    /// Answers a request about the watchdog of spanning tree without the bus, if the session waits for no other answer. Returns
    /// false if the request has to take its turn.
    pub(super) fn answers_at_once(
        &mut self,
        now: Timestamp,
        id: SessionId,
        number: u32,
        request: &Request,
    ) -> bool {
        let idle = self.sessions.get(&id).is_some_and(|session| session.waiting == 0);
        if !idle || !matches!(request, Request::TreeWatchdog(_) | Request::TreeExpiry(_)) {
            return false;
        }
        let answer = match self.faults.next(OperationKind::Watchdog).1 {
            Some(Fault::Die) => {
                self.dead = true;
                return true;
            }
            Some(Fault::Fail) => Some(Answer::Refused(refused(Code::Fault, "a fault was planned".into()))),
            Some(Fault::Cut) => {
                self.tree_watchdog(now, request);
                None
            }
            Some(Fault::Slow(_)) | None => Some(self.tree_watchdog(now, request)),
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            match answer {
                Some(answer) => session.out.extend(answer.encode(number)),
                None => session.closed = true,
            }
        }
        true
    }

    /// Carries out the effects of each watchdog that has expired by `now`.
    pub fn watch(&mut self, now: Timestamp) {
        let is_due = |due: &mut Option<u64>| due.take_if(|due| *due <= now.as_nanos()).is_some();
        if is_due(&mut self.watchdogs.snooping) {
            self.chip.set_snooping(false, now);
        }
        if is_due(&mut self.watchdogs.trees) {
            self.chip.expire_trees();
        }
    }
}
