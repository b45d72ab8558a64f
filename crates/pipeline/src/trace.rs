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
