//! Spanning tree without a driver: the chip blocks the watched ports when the watchdog has expired.
//!
//! Invariant: from an expiry until a driver acknowledges it, no transaction lets a watched port forward in its tree, because the
//! transaction may have been sent before the driver knew of the expiry. The configuration shows the ports as discarding.

use super::Chip;
use lanyard_pipeline::state::StpState;

impl Chip {
    /// Blocks the watched ports in their trees, because the watchdog of spanning tree has expired.
    pub fn expire_trees(&mut self) {
        self.blocked.get_or_insert_default();
        self.block_trees();
    }
    /// True from an expiry until it is acknowledged.
    #[must_use]
    pub fn trees_expired(&self) -> bool {
        self.blocked.is_some()
    }
    /// Acknowledges an expiry: from now on operations can change the state of the blocked ports. Returns true if there was an
    /// expiry to acknowledge.
    pub fn acknowledge_expiry(&mut self) -> bool {
        self.blocked.take().is_some()
    }

    /// While an expiry is not acknowledged, blocks all ports that have been watched at any time since it; otherwise does nothing.
    pub(super) fn block_trees(&mut self) {
        let Some(blocked) = &mut self.blocked else { return };
        blocked.extend(self.state.watched.iter().copied());
        for (instance, port) in blocked.iter() {
            self.state.stp.insert((*instance, *port), StpState::Discarding);
            self.pipeline.set_stp(*instance, *port, StpState::Discarding);
        }
    }
}
