//! Diverted frames, on their way to the driver that judges them, and back.
//!
//! Invariant: a diverted frame continues in the pipeline with the driver's judgements, or is counted as dropped, at the latest
//! when the driver's connection ends.

use super::super::Effects;
use super::super::segments;
use super::{Device, MAX_NOTICES, Session, wants};
use crate::sdk::message::{Frame, Notice, Question, Verdict};
use lanyard_pipeline::Timestamp;

/// The most bytes of waiting output with which a diverted frame is still sent to the session; others are dropped. Less than
/// [`MAX_NOTICES`], which leaves room for the frames of protocols.
const MAX_DIVERTED: usize = MAX_NOTICES / 2;

impl Device {
    /// Handles a diverted frame that the driver has given back with its judgements.
    pub(super) fn judged(&mut self, now: Timestamp, frame: &Frame, answers: &[Verdict]) {
        if let Some(away) = self.diverted.get_mut(&frame.port) {
            *away = away.saturating_sub(1);
        }
        if !self.takes_packet() {
            return self.chip.count_unjudged(frame.port);
        }
        let mut effects = Effects::default();
        let longest = segments::longest(&frame.pending, &frame.bytes);
        self.chip.judged(now, frame.port, (&frame.bytes, longest), answers, &mut effects);
        let came = (&frame.pending, frame.bytes.len());
        self.leave(now, frame.port, effects, came, None);
    }

    /// Sends a diverted frame to the session that has subscribed to them; drops it if there is none or its output has no room.
    pub(super) fn divert(&mut self, frame: Frame, questions: Vec<Question>) {
        let judges = |session: &&mut Session| session.wants & wants::DIVERTED != 0 && !session.closed;
        let (port, length) = (frame.port, frame.bytes.len());
        if let Some(session) = self.sessions.values_mut().find(judges)
            && length <= Frame::MAX
        {
            let bytes = Notice::Diverted(frame, questions).encode();
            if session.out.len() + bytes.len() <= MAX_DIVERTED {
                session.out.extend(bytes);
                *self.diverted.entry(port).or_default() += 1;
                return;
            }
        }
        self.chip.count_unjudged(port);
    }

    /// Counts as dropped the diverted frames that the driver has not given back before its connection ended.
    pub(super) fn count_lost_diverted(&mut self) {
        for (port, frames) in std::mem::take(&mut self.diverted) {
            (0..frames).for_each(|_| self.chip.count_unjudged(port));
        }
    }
}
