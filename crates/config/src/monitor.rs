//! `monitor session ...`: the model. A session copies the frames of its sources to its destination ports (SPAN).

use crate::{Config, InterfaceName};
use lanyard_types::{VlanId, VlanSet};
use std::collections::{BTreeMap, BTreeSet};

/// The highest number of a session.
pub const MAX_MONITOR_SESSION: u16 = 66;

/// `monitor session N ...`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MonitorSession {
    /// `source interface I`: switch ports, port-channels and routed ports.
    pub interfaces: BTreeMap<InterfaceName, MonitorDirection>,
    /// `source vlan V`: the frames of all switch ports in these VLANs. A session has either these or interfaces.
    pub vlans: BTreeMap<VlanId, MonitorDirection>,
    /// `source remote vlan V`: the frames of an RSPAN VLAN. A session has no other sources then.
    pub remote_source: Option<VlanId>,
    /// `destination remote vlan V`: the copies leave in this RSPAN VLAN. A session has no destination ports then.
    pub remote_destination: Option<VlanId>,
    /// `filter vlan LIST`: of the frames of interfaces only those in these VLANs are copied.
    pub filter: Option<VlanSet>,
    /// `destination interface I`: switch ports.
    pub destinations: BTreeSet<InterfaceName>,
    /// `destination ... encapsulation replicate`: the copies keep their tags.
    pub keep_tag: bool,
}

impl Config {
    /// True if a port is the destination of a monitor session.
    #[must_use]
    pub fn is_monitor_destination(&self, name: &InterfaceName) -> bool {
        self.monitor.values().any(|session| session.destinations.contains(name))
    }
}

/// The frames of a source that are copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MonitorDirection {
    /// Those that it receives.
    Rx,
    /// Those that it sends.
    Tx,
    /// Both.
    #[default]
    Both,
}

impl MonitorDirection {
    /// The keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::Both => "both",
        }
    }
    /// True if received frames are copied.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rx | Self::Both)
    }
    /// True if sent frames are copied.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Tx | Self::Both)
    }
}
