//! What is known about ports besides configuration and tables.

use lanyard_netdev::LinkStats;
use std::collections::BTreeMap;

/// What is known about ports besides configuration and tables.
#[derive(Debug, Default)]
pub(crate) struct PortNotes {
    /// Ports that the plane refused, and why.
    pub(crate) faults: BTreeMap<String, String>,
    /// Netdev counters at the last `clear counters`.
    pub(crate) cleared: BTreeMap<String, LinkStats>,
}
