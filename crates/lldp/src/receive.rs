//! The receive state machine of LLDP (IEEE 802.1AB-2016, 9.2.10, figure 9-4) and the port's statistics (9.2.6).
//!
//! RX_FRAME, DELETE_INFO, UPDATE_INFO and DELETE_AGED_INFO end as soon as they are entered, so a port is always in one of
//! the three other states, which follow from its link and its admin status.

use crate::agent::Agent;
use crate::pdu::PduError;

/// The states in which a port waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxState {
    /// LLDP_WAIT_PORT_OPERATIONAL: the port has no link. Its neighbours continue to age.
    WaitPortOperational,
    /// RX_LLDP_INITIALIZE: the port does not receive, and has no neighbours.
    Initialize,
    /// RX_WAIT_FOR_FRAME.
    WaitForFrame,
}

impl RxState {
    pub(crate) const fn of(agent: &Agent) -> Self {
        match (agent.port_enabled, agent.admin.receives()) {
            (false, _) => Self::WaitPortOperational,
            (true, false) => Self::Initialize,
            (true, true) => Self::WaitForFrame,
        }
    }
}

/// The statistics of a port for one protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent (statsFramesOutTotal).
    pub sent: u64,
    /// Frames received (statsFramesInTotal), including those in error.
    pub received: u64,
    /// Frames refused (statsFramesInErrorsTotal), by reason in the order of [`PduError::ALL`].
    pub errors: [u64; PduError::ALL.len()],
    /// Frames discarded: in error, or of a neighbour for which there was no room (statsFramesDiscardedTotal).
    pub discarded: u64,
    /// TLVs discarded (statsTLVsDiscardedTotal).
    pub tlvs_discarded: u64,
    /// TLVs of unknown types (statsTLVsUnrecognizedTotal).
    pub tlvs_unrecognized: u64,
    /// Neighbours whose time to live has ended (statsAgeoutsTotal).
    pub aged_out: u64,
    /// Frames of neighbours for which there was no room.
    pub too_many: u64,
}

impl Counters {
    /// All frames in error.
    #[must_use]
    pub fn in_error(&self) -> u64 {
        self.errors.iter().sum()
    }
    pub(crate) fn refuse(&mut self, error: PduError) {
        self.errors[error as usize] += 1;
        self.discarded += 1;
    }
}
