//! The reasons for which the switch shuts a port down by itself ("err-disable").

use serde::{Deserialize, Serialize};
use std::fmt;

/// A reason for which the switch shuts a port down. The port stays down until `shutdown` and `no shutdown` are entered,
/// or until the recovery interval of its cause has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ErrCause {
    /// A port with BPDU guard received a BPDU.
    #[serde(rename = "bpduguard")]
    BpduGuard,
    /// Storm control with `action shutdown` dropped frames.
    #[serde(rename = "storm-control")]
    StormControl,
    /// A frame violated port security at a port with `violation shutdown`.
    #[serde(rename = "psecure-violation")]
    PsecureViolation,
    /// More ARP packets than `ip arp inspection limit` allows.
    #[serde(rename = "arp-inspection")]
    ArpInspection,
    /// A port in 802.1X host mode `single-host` received frames of a second host.
    #[serde(rename = "security-violation")]
    SecurityViolation,
    /// More DHCP messages than `ip dhcp snooping limit rate` allows.
    #[serde(rename = "dhcp-rate-limit")]
    DhcpRateLimit,
}

impl ErrCause {
    /// Every cause, in the order in which the command line lists them.
    pub const ALL: &'static [Self] = &[
        Self::ArpInspection,
        Self::BpduGuard,
        Self::DhcpRateLimit,
        Self::PsecureViolation,
        Self::SecurityViolation,
        Self::StormControl,
    ];

    /// The keyword in `errdisable recovery cause`, which the log, `show` commands and JSON use too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BpduGuard => "bpduguard",
            Self::StormControl => "storm-control",
            Self::PsecureViolation => "psecure-violation",
            Self::SecurityViolation => "security-violation",
            Self::ArpInspection => "arp-inspection",
            Self::DhcpRateLimit => "dhcp-rate-limit",
        }
    }
}

impl ErrCause {
    /// The help text that `?` shows for the cause in `errdisable recovery cause`.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::BpduGuard => "Enable timer to recover from BPDU Guard error",
            Self::StormControl => "Enable timer to recover from storm-control error",
            Self::SecurityViolation => "Enable timer to recover from 802.1x violation error",
            Self::PsecureViolation => "Enable timer to recover from psecure violation error",
            Self::ArpInspection => "Enable timer to recover from arp inspection error disable state",
            Self::DhcpRateLimit => "Enable timer to recover from dhcp-rate-limit error",
        }
    }
}

impl fmt::Display for ErrCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
