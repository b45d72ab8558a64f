//! [`MemoryPorts`]: a plane whose ports are queues, for tests and simulation. Nothing happens but when told.

use crate::core::Clock;
use crate::link::{Link, Received, vnet::Offload};
use crate::worker::Shared;
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::trace::Verdict;
use lanyard_types::PortId;
use std::sync::Arc;

/// The outside of an in-memory plane's ports.
#[derive(Debug, Clone)]
pub struct MemoryPorts {
    pub(crate) shared: Arc<Shared>,
}

impl MemoryPorts {
    /// A frame comes in at `port`, and is through the pipeline when this returns.
    pub fn push(&self, port: PortId, frame: &[u8]) -> Verdict {
        self.shared.control().process(port, Received { bytes: frame, offload: Offload::default() })
    }
    /// The frames sent out of `port` since the last call, oldest first; at most 4,096 wait, further ones are refused.
    #[must_use]
    pub fn take(&self, port: PortId) -> Vec<Vec<u8>> {
        match &mut self.shared.control().links[port.index()] {
            Link::Memory(queue) => queue.drain(..).collect(),
            Link::Gone | Link::Packet(_) | Link::Tap(_) => Vec::new(),
        }
    }
    /// Sets the plane's clock.
    pub fn set_time(&self, now: Timestamp) {
        self.shared.control().clock = Clock::Manual(now);
    }
}
