//! What is counted: per port, per VLAN, per drop reason.
//!
//! Invariant (conservation): at every port, received = forwarded + trapped + the sum of dropped by reason.

use lanyard_types::{DropReason, FrameCount, MAX_PORTS, MAX_VLANS, PortId, VlanId};

/// What a port has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortCounters {
    /// Received, whatever became of them. Of frames dropped for `Overrun` the bytes are not known, and not counted.
    pub rx: FrameCount,
    /// Sent: a frame flooded to three ports counts at each.
    pub tx: FrameCount,
    /// Received and only trapped.
    pub trapped: u64,
    /// Received and forwarded to at least one port.
    pub forwarded: u64,
    /// Received and dropped, by `DropReason::index()`. rx.frames = forwarded + trapped + their sum.
    pub dropped: [u64; DropReason::SLOTS],
    /// Copies not sent to this port by vlan_egress although a flood reached for it (MTU), and copies the kernel refused.
    pub tx_dropped: u64,
}

impl Default for PortCounters {
    fn default() -> Self {
        Self {
            rx: FrameCount::default(),
            tx: FrameCount::default(),
            trapped: 0,
            forwarded: 0,
            dropped: [0; DropReason::SLOTS],
            tx_dropped: 0,
        }
    }
}

impl PortCounters {
    /// True when every frame received is accounted for.
    #[must_use]
    pub fn conserved(&self) -> bool {
        self.rx.frames == self.forwarded + self.trapped + self.dropped.iter().sum::<u64>()
    }
}

/// All counters of a plane.
#[derive(Debug)]
pub struct Counters {
    ports: Vec<PortCounters>,
    vlans: Vec<FrameCount>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            ports: vec![PortCounters::default(); MAX_PORTS],
            vlans: vec![FrameCount::default(); MAX_VLANS],
        }
    }
}

impl Counters {
    /// The port's counters.
    #[must_use]
    pub fn port(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index()]
    }
    /// The port's counters, to count.
    pub fn port_mut(&mut self, port: PortId) -> &mut PortCounters {
        &mut self.ports[port.index()]
    }
    /// Frames that entered the VLAN: those vlan_ingress let in.
    #[must_use]
    pub fn vlan(&self, vlan: VlanId) -> FrameCount {
        self.vlans[vlan.index()]
    }
    /// The VLAN's counter, to count.
    pub fn vlan_mut(&mut self, vlan: VlanId) -> &mut FrameCount {
        &mut self.vlans[vlan.index()]
    }
    /// Sets a port's counters to zero.
    pub fn clear(&mut self, port: PortId) {
        self.ports[port.index()] = PortCounters::default();
    }
}
