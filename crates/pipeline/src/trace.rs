//! One frame's journey in words: what `show platform packet-trace` prints and the differential test compares.

use lanyard_types::{DropReason, PortId, Stage, TrapReason};

/// How a frame ended: exactly one for every frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Sent to at least one port; VLAN interfaces count (delivered up).
    Forwarded,
    /// To the control plane only.
    Trapped(TrapReason),
    /// Dropped.
    Dropped(DropReason),
}

/// What one stage found or decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// The stage.
    pub stage: Stage,
    /// One line for people, e.g. `vlan 10 from the port's PVID`.
    pub detail: String,
}

/// The whole journey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Stages in the order they ran; a drop ends the list at its stage.
    pub stages: Vec<TraceStep>,
    /// The end.
    pub verdict: Verdict,
    /// The frames sent, in emission order: port and bytes, tags in line.
    pub egress: Vec<(PortId, Vec<u8>)>,
}

/// Takes down what the stages say, if anybody wants to know: forwarding pays one branch for it.
#[derive(Debug, Default)]
pub(crate) struct Notes(Option<Vec<TraceStep>>);

impl Notes {
    /// Notes that are kept.
    pub(crate) fn kept() -> Self {
        Self(Some(Vec::new()))
    }
    /// Adds what `stage` has to say; a stage that speaks again goes on in its line.
    pub(crate) fn say(&mut self, stage: Stage, detail: impl FnOnce() -> String) {
        let Some(steps) = &mut self.0 else { return };
        match steps.last_mut().filter(|last| last.stage == stage) {
            Some(last) => last.detail = format!("{}; {}", last.detail, detail()),
            None => steps.push(TraceStep { stage, detail: detail() }),
        }
    }
    /// The steps taken down.
    pub(crate) fn into_steps(self) -> Vec<TraceStep> {
        self.0.unwrap_or_default()
    }
}
