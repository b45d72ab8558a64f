//! `lldp ...` and `cdp ...`: the discovery of neighbours.

use lanyard_lldp::{Cdp, Lldp};

/// The global settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// `lldp run`.
    pub lldp_runs: bool,
    /// `lldp timer|holdtime|reinit|tlv-select`.
    pub lldp: Lldp,
    /// `cdp run`. IOS runs CDP by default; Lanyard sends nothing that was not configured.
    pub cdp_runs: bool,
    /// `cdp timer|holdtime`.
    pub cdp: Cdp,
}

/// The settings of an interface; they have an effect while the protocol runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryPort {
    /// `lldp transmit`, on by default.
    pub lldp_transmit: bool,
    /// `lldp receive`, on by default.
    pub lldp_receive: bool,
    /// `cdp enable`, on by default.
    pub cdp: bool,
    /// `location civic-location-id`: the number of the civic location that LLDP-MED sends here, if any.
    pub civic: Option<u16>,
    /// `location elin-location-id`: the number of the ELIN location that LLDP-MED sends here, if any.
    pub elin: Option<u16>,
}

impl Default for DiscoveryPort {
    fn default() -> Self {
        Self { lldp_transmit: true, lldp_receive: true, cdp: true, civic: None, elin: None }
    }
}
