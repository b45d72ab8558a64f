//! Private VLANs (RFC 5517): `private-vlan ...` under VLANs, and the settings of switch ports for them.
//!
//! `private_domain` has the functions that need the whole configuration.

use lanyard_types::{VlanId, VlanSet};

/// `private-vlan primary|isolated|community`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateKind {
    /// The VLAN of frames that arrive at promiscuous ports; all host ports send them.
    Primary,
    /// A secondary VLAN whose host ports reach promiscuous ports only.
    Isolated,
    /// A secondary VLAN whose host ports also reach each other.
    Community,
}

impl PrivateKind {
    /// Its keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Isolated => "isolated",
            Self::Community => "community",
        }
    }
}

/// `switchport private-vlan ...`: settings that take effect in the modes `private-vlan host` and `private-vlan promiscuous`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivatePort {
    /// `host-association P S`: primary and secondary VLAN.
    pub host: Option<(VlanId, VlanId)>,
    /// `mapping P LIST`: primary VLAN and the secondary VLANs that the port reaches.
    pub mapping: Option<(VlanId, VlanSet)>,
}
