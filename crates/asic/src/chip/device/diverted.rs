//! Diverted frames, on their way to the driver that judges them, and back.
//!
//! Invariant: a diverted frame goes on by the driver's judgements, or is counted as dropped.

use super::super::Effects;
use super::super::segments;
use super::{Device, MAX_NOTICES, Session, wants};
use crate::sdk::message::{Frame, Notice, Question, Verdict};
use lanyard_pipeline::Timestamp;

/// Beyond these bytes diverted frames are dropped, which leaves room for the frames of protocols.
const MAX_DIVERTED: usize = MAX_NOTICES / 2;

impl Device {
    /// A diverted frame comes back.
    pub(super) fn judged(&mut self, now: Timestamp, frame: &Frame, answers: &[Verdict]) {
        if !self.takes_packet() {
            return self.chip.count_unjudged(frame.port);
        }
        let mut effects = Effects::default();
        let longest = segments::longest(&frame.pending, &frame.bytes);
        self.chip.judged(now, frame.port, (&frame.bytes, longest), answers, &mut effects);
        let came = (&frame.pending, frame.bytes.len());
        self.leave(now, frame.port, effects, came, None);
    }

    /// Gives a diverted frame to the session that judges.
    pub(super) fn divert(&mut self, frame: Frame, questions: Vec<Question>) {
        let judges = |session: &&mut Session| session.wants & wants::DIVERTED != 0 && !session.closed;
        let (port, length) = (frame.port, frame.bytes.len());
        if let Some(session) = self.sessions.values_mut().find(judges)
            && length <= Frame::MAX
        {
            let bytes = Notice::Diverted(frame, questions).encode();
            if session.out.len() + bytes.len() <= MAX_DIVERTED {
                session.out.extend(bytes);
                return;
            }
        }
        self.chip.count_unjudged(port);
    }
}
