//! The variables of a port (IEEE 802.1AX-2014, 6.4.6 to 6.4.8), under the standard's names.
//!
//! Times are milliseconds; a timer is the time at which it expires, `None` while it does not run.

use crate::config::{Mode, PortConfig};
use crate::pdu::{PduError, PortInfo, State};
use lanyard_types::MacAddr;
use serde::{Deserialize, Serialize};

/// Timer intervals (6.4.4), in milliseconds.
pub mod intervals {
    /// Fast_Periodic_Time: between two PDUs to a partner with a short timeout.
    pub const FAST_PERIODIC_MS: u64 = 1000;
    /// Slow_Periodic_Time: between two PDUs to a partner with a long timeout.
    pub const SLOW_PERIODIC_MS: u64 = 30_000;
    /// Short_Timeout_Time.
    pub const SHORT_TIMEOUT_MS: u64 = 3000;
    /// Long_Timeout_Time.
    pub const LONG_TIMEOUT_MS: u64 = 90_000;
    /// Churn_Detection_Time.
    pub const CHURN_DETECTION_MS: u64 = 60_000;
    /// Aggregate_Wait_Time.
    pub const AGGREGATE_WAIT_MS: u64 = 2000;
    /// Most PDUs in one Fast_Periodic_Time (6.4.16).
    pub const TX_LIMIT: u8 = 3;
}

/// Selected (6.4.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selected {
    /// No aggregator has been selected.
    #[default]
    Unselected,
    /// The channel's aggregator has been selected.
    Selected,
    /// The channel's aggregator has been selected, but it has as many members as it may have.
    Standby,
}

/// States of the receive machine (figure 6-18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RxState {
    /// INITIALIZE.
    #[default]
    Initialize,
    /// PORT_DISABLED.
    PortDisabled,
    /// EXPIRED.
    Expired,
    /// LACP_DISABLED.
    LacpDisabled,
    /// DEFAULTED.
    Defaulted,
    /// CURRENT.
    Current,
}

/// States of the periodic transmission machine (figure 6-19). PERIODIC_TX is missing, because it is left as soon as it is
/// entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeriodicState {
    /// NO_PERIODIC.
    #[default]
    None,
    /// FAST_PERIODIC.
    Fast,
    /// SLOW_PERIODIC.
    Slow,
}

/// States of the mux machine with independent control (figure 6-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum MuxState {
    /// DETACHED.
    #[default]
    Detached,
    /// WAITING.
    Waiting,
    /// ATTACHED.
    Attached,
    /// COLLECTING.
    Collecting,
    /// DISTRIBUTING.
    Distributing,
}

/// States of a churn machine (figures 6-23 and 6-24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChurnState {
    /// NO_CHURN: the port is in sync.
    None,
    /// CHURN_MONITOR: the port is out of sync, for less than Churn_Detection_Time so far.
    #[default]
    Monitor,
    /// CHURN: the port has been out of sync for Churn_Detection_Time or longer.
    Churn,
}

/// The statistics of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// LACPDUs received.
    pub received: u64,
    /// LACPDUs sent.
    pub sent: u64,
    /// Marker PDUs received.
    pub markers: u64,
    /// Responses sent to Marker PDUs.
    pub marker_responses: u64,
    /// Frames refused, by reason in the order of [`PduError::ALL`].
    pub errors: [u64; PduError::ALL.len()],
    /// How often the port has ceased to be a member (aPortOperLinkDowns of the aggregation).
    pub lost: u64,
}

/// A port.
#[derive(Debug, Clone, Default)]
pub(crate) struct Port {
    pub(crate) config: PortConfig,
    /// port_enabled: true if the port has a link in full duplex.
    pub(crate) enabled: bool,
    /// Actor_Oper: the information that is sent about this port.
    pub(crate) actor: PortInfo,
    /// Partner_Oper: the known information about the partner.
    pub(crate) partner: PortInfo,
    pub(crate) selected: Selected,
    pub(crate) ntt: bool,
    pub(crate) rx: RxState,
    pub(crate) periodic: PeriodicState,
    pub(crate) mux: MuxState,
    pub(crate) actor_churn: ChurnState,
    pub(crate) partner_churn: ChurnState,
    pub(crate) current_while: Option<u64>,
    pub(crate) periodic_timer: Option<u64>,
    pub(crate) wait_while: Option<u64>,
    pub(crate) actor_churn_timer: Option<u64>,
    pub(crate) partner_churn_timer: Option<u64>,
    /// When the present interval of [`intervals::TX_LIMIT`] ends, and the PDUs sent in it.
    pub(crate) tx_window: u64,
    pub(crate) tx_count: u8,
    pub(crate) counters: Counters,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { channel: 1, mode: Mode::Active, fast: false, priority: 32768, mac: MacAddr::default() }
    }
}

impl Port {
    /// True if the port speaks LACP (LACP_Enabled).
    pub(crate) fn lacp_enabled(&self) -> bool {
        self.config.mode != Mode::On
    }
    /// The information that is assumed for a partner that sends nothing (Partner_Admin): passive, short timeout,
    /// individual.
    pub(crate) fn partner_admin() -> PortInfo {
        PortInfo { state: State(State::TIMEOUT), ..PortInfo::default() }
    }
    /// The earliest of the timers.
    pub(crate) fn next(&self) -> Option<u64> {
        // Transmission waits for the end of the interval when the limit is reached.
        let held =
            (self.ntt && self.may_talk() && self.tx_count >= intervals::TX_LIMIT).then_some(self.tx_window);
        let waiting = self.wait_while.filter(|_| self.selected == Selected::Selected);
        [
            self.current_while,
            self.periodic_timer,
            waiting,
            self.actor_churn_timer,
            self.partner_churn_timer,
            held,
        ]
        .into_iter()
        .flatten()
        .min()
    }
    /// True if LACPDUs leave at all: 6.4.16 with 6.4.13, a passive port is silent to a passive partner.
    pub(crate) fn may_talk(&self) -> bool {
        let active = |info: &PortInfo| info.state.has(State::ACTIVITY);
        self.enabled && self.lacp_enabled() && (active(&self.actor) || active(&self.partner))
    }
}
