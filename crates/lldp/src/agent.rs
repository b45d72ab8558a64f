//! The LLDP agent of a port: the transmit timer and transmit state machines of IEEE 802.1AB-2016, 9.2.8 and 9.2.9.
//! (The receive machine's states follow from a frame alone and are in [`crate::receive`].)
//!
//! Times are milliseconds; a timer of the standard, which counts seconds down, is here the time at which it is 0.

use crate::config::{AdminStatus, Lldp};

/// The number of frames that are sent quickly because of a new neighbour (txFastInit, 9.2.5.19).
pub(crate) const TX_FAST_INIT: u8 = 4;
/// The time between two of these frames in milliseconds (msgFastTx, 9.2.5.5).
const MSG_FAST_TX_MS: u64 = 1000;
/// The most frames that a port sends at once (txCreditMax, 9.2.5.17). Each second adds one.
const TX_CREDIT_MAX: u8 = 5;
const CREDIT_MS: u64 = 1000;

/// States of the transmit state machine (figure 9-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TxState {
    /// TX_LLDP_INITIALIZE: the port does not send.
    #[default]
    Initialize,
    /// TX_IDLE: the port sends when it is time.
    Idle,
    /// TX_SHUTDOWN_FRAME: the port has withdrawn its information and waits for reinitDelay.
    Shutdown,
}

/// A frame that the machines request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Send {
    /// The port's information (mibConstrInfoLLDPDU).
    Info,
    /// The withdrawal of the port's information (mibConstrShutdownLLDPDU).
    Shutdown,
}

/// The variables of a port (9.2.5).
#[derive(Debug, Clone, Default)]
pub(crate) struct Agent {
    /// portEnabled: the port has a link.
    pub(crate) port_enabled: bool,
    pub(crate) admin: AdminStatus,
    pub(crate) state: TxState,
    /// localChange.
    pub(crate) local_change: bool,
    /// newNeighbor.
    pub(crate) new_neighbor: bool,
    /// txNow.
    tx_now: bool,
    /// txTTR.
    tx_ttr: u64,
    /// txFast.
    tx_fast: u8,
    /// txCredit, as it was at `credit_at`.
    tx_credit: u8,
    credit_at: u64,
    /// txShutdownWhile.
    tx_shutdown_while: u64,
}

impl Agent {
    /// Runs both machines until nothing changes; returns the frames to send, in order.
    pub(crate) fn run(&mut self, now: u64, settings: &Lldp) -> Vec<Send> {
        let mut frames = Vec::new();
        // Each round ends a state. More than a few rounds are a bug, which then delays a frame but causes no
        // endless loop.
        for _ in 0..8 {
            let before =
                (self.state, self.tx_now, self.new_neighbor, self.local_change, self.tx_fast, self.tx_ttr);
            self.transmit_timer(now, settings);
            frames.extend(self.transmit(now, settings));
            if before
                == (self.state, self.tx_now, self.new_neighbor, self.local_change, self.tx_fast, self.tx_ttr)
            {
                break;
            }
        }
        frames
    }

    /// The transmit timer state machine (figure 9-3): sets txNow when it is time.
    fn transmit_timer(&mut self, now: u64, settings: &Lldp) {
        if self.state != TxState::Idle {
            // TX_TIMER_INITIALIZE.
            (self.tx_now, self.local_change, self.new_neighbor) = (false, false, false);
            (self.tx_fast, self.tx_ttr) = (0, now);
            (self.tx_credit, self.credit_at) = (TX_CREDIT_MAX, now);
            return;
        }
        // TX_TICK: adds one credit per second.
        let seconds = now.saturating_sub(self.credit_at) / CREDIT_MS;
        self.credit_at += seconds * CREDIT_MS;
        self.tx_credit = self.tx_credit.saturating_add(seconds.min(255) as u8).min(TX_CREDIT_MAX);
        let mut signal = self.local_change;
        if self.new_neighbor {
            // TX_FAST_START.
            self.new_neighbor = false;
            if self.tx_fast == 0 {
                self.tx_fast = TX_FAST_INIT;
            }
            self.tx_ttr = now;
        }
        if self.tx_ttr <= now {
            // TX_TIMER_EXPIRES.
            self.tx_fast = self.tx_fast.saturating_sub(1);
            signal = true;
        }
        if signal {
            // SIGNAL_TX.
            self.tx_now = true;
            self.local_change = false;
            let interval = if self.tx_fast > 0 { MSG_FAST_TX_MS } else { u64::from(settings.timer_s) * 1000 };
            self.tx_ttr = now + interval;
        }
    }

    /// The transmit state machine (figure 9-2).
    fn transmit(&mut self, now: u64, settings: &Lldp) -> Option<Send> {
        let wanted = self.admin.transmits();
        match self.state {
            _ if !self.port_enabled => self.state = TxState::Initialize,
            TxState::Initialize if wanted => self.state = TxState::Idle,
            TxState::Idle if !wanted => {
                self.state = TxState::Shutdown;
                self.tx_shutdown_while = now + u64::from(settings.reinit_s) * 1000;
                return Some(Send::Shutdown);
            }
            TxState::Idle if self.tx_now && self.tx_credit > 0 => {
                self.tx_now = false;
                self.tx_credit -= 1;
                return Some(Send::Info);
            }
            TxState::Shutdown if self.tx_shutdown_while <= now => self.state = TxState::Initialize,
            TxState::Initialize | TxState::Idle | TxState::Shutdown => {}
        }
        None
    }

    /// When [`Agent::run`] is to be called next.
    pub(crate) fn next(&self) -> Option<u64> {
        match self.state {
            TxState::Initialize => None,
            TxState::Shutdown => Some(self.tx_shutdown_while),
            TxState::Idle if self.tx_now => Some(self.tx_ttr.min(self.credit_at + CREDIT_MS)),
            TxState::Idle => Some(self.tx_ttr),
        }
    }
}
