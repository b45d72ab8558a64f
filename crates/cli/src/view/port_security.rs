//! The data about port security.

use lanyard_types::MacAddr;
use serde::Serialize;

/// `show port-security`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PortSecurityView {
    /// The ports with port security.
    pub ports: Vec<SecurePort>,
    /// Their secure addresses, by VLAN and address.
    pub addresses: Vec<SecureAddressView>,
}

/// A port with port security.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecurePort {
    /// The port's name.
    pub interface: String,
    /// `secure-up`, `secure-down` or `secure-shutdown`.
    pub status: &'static str,
    /// `protect`, `restrict` or `shutdown`.
    pub violation: &'static str,
    /// The maximum number of secure addresses.
    pub maximum: u32,
    /// The number of secure addresses.
    pub total: usize,
    /// The number of secure addresses that were entered as lines.
    pub configured: usize,
    /// The number of sticky secure addresses.
    pub sticky: usize,
    /// True if learned addresses become sticky.
    pub sticky_learning: bool,
    /// The age at which learned addresses are removed, in minutes; 0: never.
    pub aging_min: u32,
    /// The number of violations; always 0 with `violation protect`.
    pub violations: u64,
    /// Frames that port security has dropped.
    pub dropped: u64,
    /// The source address of the last violation that was reported.
    pub last_source: Option<MacAddr>,
    /// The VLAN of this violation.
    pub last_vlan: Option<u16>,
}

/// A secure address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecureAddressView {
    /// The port.
    pub interface: String,
    /// The VLAN.
    pub vlan: u16,
    /// The address.
    pub mac: MacAddr,
    /// `configured`, `sticky` or `dynamic`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Seconds until it is removed; `None` if it does not age.
    pub remaining_s: Option<u64>,
}
