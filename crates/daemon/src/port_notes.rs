//! Data about ports that is in neither the configuration nor the plane's tables.

use lanyard_netdev::LinkStats;
use std::collections::BTreeMap;

/// Data about ports that is in neither the configuration nor the plane's tables.
#[derive(Debug, Default)]
pub(crate) struct PortNotes {
    /// Ports that the plane refused, with the reasons.
    pub(crate) faults: BTreeMap<String, String>,
    /// Netdev counters at the last `clear counters`.
    pub(crate) cleared: BTreeMap<String, LinkStats>,
}
