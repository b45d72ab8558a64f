//! Where the pipeline puts what comes out of it: [`Sink`], and [`Output`], which just keeps it.

use crate::tables::fdb::FdbEvent;
use lanyard_types::{PortId, TrapReason};

/// What a frame's way through the pipeline produces, in order.
pub trait Sink {
    /// Sends `frame` out of `port`; false when it could not be sent.
    fn send(&mut self, port: PortId, frame: &[u8]) -> bool;
    /// Takes a frame that came in at `port` up to the control plane.
    fn trap(&mut self, port: PortId, reason: TrapReason, frame: &[u8]);
    /// Hears of a change to the FDB.
    fn fdb(&mut self, event: FdbEvent);
}

/// A sink that keeps everything, for tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Frames sent, in emission order.
    pub sent: Vec<(PortId, Vec<u8>)>,
    /// Frames trapped.
    pub trapped: Vec<(PortId, TrapReason, Vec<u8>)>,
    /// Changes to the FDB.
    pub events: Vec<FdbEvent>,
}

impl Sink for Output {
    fn send(&mut self, port: PortId, frame: &[u8]) -> bool {
        self.sent.push((port, frame.to_vec()));
        true
    }
    fn trap(&mut self, port: PortId, reason: TrapReason, frame: &[u8]) {
        self.trapped.push((port, reason, frame.to_vec()));
    }
    fn fdb(&mut self, event: FdbEvent) {
        self.events.push(event);
    }
}
