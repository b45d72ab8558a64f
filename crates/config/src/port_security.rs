//! `switchport port-security ...`: the model. Whether port security is on is a setting of the planes,
//! `PortSettings::secure`.

use lanyard_types::{MacAddr, VlanId};
use std::collections::BTreeMap;

/// The highest `maximum`.
pub const MAX_SECURE: u32 = 4096;

/// `switchport port-security ...`, besides the line that turns it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSecurity {
    /// `maximum N`, 1..=[`MAX_SECURE`]: the number of secure addresses of the port.
    pub maximum: u32,
    /// `violation`.
    pub violation: Violation,
    /// `aging time`, in minutes, at most 1440; with 0 learned addresses do not age.
    pub aging_min: u32,
    /// `mac-address sticky`: learned addresses become lines of the configuration.
    pub sticky: bool,
    /// `mac-address [sticky] M [vlan N]`. Without a VLAN: in the access VLAN, or the trunk's native VLAN.
    pub addresses: BTreeMap<(MacAddr, Option<VlanId>), SecureKind>,
}

impl Default for PortSecurity {
    fn default() -> Self {
        Self {
            maximum: 1,
            violation: Violation::default(),
            aging_min: 0,
            sticky: false,
            addresses: BTreeMap::new(),
        }
    }
}

/// The reaction to a frame that violates port security, besides its drop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Violation {
    /// Nothing besides the drop.
    Protect,
    /// The violation is logged.
    Restrict,
    /// The violation is logged, and the port is shut down (err-disable).
    #[default]
    Shutdown,
}

impl Violation {
    /// The keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Protect => "protect",
            Self::Restrict => "restrict",
            Self::Shutdown => "shutdown",
        }
    }
}

/// The kind of a secure address in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecureKind {
    /// `mac-address M`.
    Static,
    /// `mac-address sticky M`.
    Sticky,
}
