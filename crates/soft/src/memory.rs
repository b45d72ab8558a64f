//! [`MemoryPorts`]: a plane whose ports are queues in memory, for tests and simulation. It has no thread and
//! no clock of its own.

use crate::core::Clock;
use crate::link::{Link, Received, vnet::Offload};
use crate::worker::Shared;
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::trace::Verdict;
use lanyard_types::PortId;
use std::sync::Arc;

/// Access to the ports of an in-memory plane.
#[derive(Debug, Clone)]
pub struct MemoryPorts {
    pub(crate) shared: Arc<Shared>,
}

impl MemoryPorts {
    /// Receives a frame at `port`, and returns when it has been processed.
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
