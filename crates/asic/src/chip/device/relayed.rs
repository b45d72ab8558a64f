//! Frames from the CPU for the ports of a VLAN.
//!
//! Invariant: a relayed frame leaves by front-panel ports, or goes to the CPU for an interface; it does not pass the stages of
//! the pipeline.

use super::super::Effects;
use super::super::segments::NOTHING;
use super::Device;
use lanyard_pipeline::Timestamp;
use lanyard_types::{PortId, PortSet, VlanId};

impl Device {
    /// Handles a frame from the CPU for those of `ports` that forward in the VLAN. `from` is the port that received the frame;
    /// `None` if the switch has made it.
    pub(super) fn relay(
        &mut self,
        now: Timestamp,
        (vlan, from, ports): (VlanId, Option<PortId>, &PortSet),
        frame: &[u8],
    ) {
        if !self.takes_packet() {
            return;
        }
        let mut effects = Effects::default();
        self.chip.relay(vlan, from, ports, frame, &mut effects);
        effects.sent.retain(|(port, _)| self.speeds.contains_key(port));
        // Copies wait at the ingress slice of the port that received the frame. A frame that the switch has made was received by
        // none, so its copies wait at the slice of the first port by which it leaves.
        let port = from.or_else(|| effects.sent.first().map(|(port, _)| *port));
        let Some(port) = port.or_else(|| ports.iter().next()) else { return };
        self.leave(now, port, effects, (&NOTHING, frame.len()), None);
    }
}
