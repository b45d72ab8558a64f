//! Counters per port, per VLAN and per drop reason.
//!
//! Invariant (conservation): at every port, received = forwarded + trapped + the sum of dropped by reason.

use lanyard_types::{DropReason, FrameCount, MAX_PORTS, MAX_VLANS, PortId, VlanId};

/// The counters of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortCounters {
    /// Received frames, whatever their verdict. The bytes of frames dropped for `Overrun` are not known and not
    /// counted.
    pub rx: FrameCount,
    /// Sent frames: a frame flooded to three ports counts at each.
    pub tx: FrameCount,
    /// Received frames that were only trapped.
    pub trapped: u64,
    /// Received frames that were forwarded to at least one port.
    pub forwarded: u64,
    /// Received frames that were dropped, by `DropReason::index()`. rx.frames = forwarded + trapped + their
    /// sum.
    pub dropped: [u64; DropReason::SLOTS],
    /// Copies for this port that vlan_egress removed from a flood (MTU), and copies that the kernel refused.
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
    /// True when every received frame is counted under exactly one verdict.
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
    /// The port's counters, mutable.
    pub fn port_mut(&mut self, port: PortId) -> &mut PortCounters {
        &mut self.ports[port.index()]
    }
    /// Frames that vlan_ingress admitted to the VLAN.
    #[must_use]
    pub fn vlan(&self, vlan: VlanId) -> FrameCount {
        self.vlans[vlan.index()]
    }
    /// The VLAN's counter, mutable.
    pub fn vlan_mut(&mut self, vlan: VlanId) -> &mut FrameCount {
        &mut self.vlans[vlan.index()]
    }
    /// Sets a port's counters to zero.
    pub fn clear(&mut self, port: PortId) {
        self.ports[port.index()] = PortCounters::default();
    }
}
