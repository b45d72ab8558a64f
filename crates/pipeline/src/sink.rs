//! The receiver of the pipeline's output: [`Sink`], and [`Output`], which stores it.

use crate::stages::sample::Sample;
use crate::tables::acls::Question;
use crate::tables::fdb::FdbEvent;
use ipnet::IpNet;
use lanyard_types::{MacAddr, PortId, SamplingRate, TrapReason, VlanId, VrfId};

/// Receives what the processing of a frame produces, in order.
pub trait Sink {
    /// Sends `frame` out of `port`; false when it could not be sent.
    fn send(&mut self, port: PortId, frame: &[u8]) -> bool;
    /// Sends a copy for a monitor session out of `port`; false when it could not be sent.
    fn mirror(&mut self, port: PortId, frame: &[u8]) -> bool {
        self.send(port, frame)
    }
    /// Passes a frame that `port` received to the control plane; for [`TrapReason::AclLog`] the note about it
    /// (`lanyard_acl::note`).
    fn trap(&mut self, port: PortId, reason: TrapReason, frame: &[u8]);
    /// Gives the software a frame that `port` received and that diverted lists have to judge; it comes back with the answers to
    /// [`Pipeline::process_answered`](crate::Pipeline::process_answered). False: there is no such software, and the frame is
    /// dropped. Only a chip diverts.
    fn divert(&mut self, _port: PortId, _questions: &[Question], _frame: &[u8]) -> bool {
        false
    }
    /// Reports a change to the FDB.
    fn fdb(&mut self, event: FdbEvent);
    /// Reports a violation of port security.
    fn violation(&mut self, _port: PortId, _vlan: VlanId, _mac: MacAddr) {}
    /// Reports a frame that was drawn at random.
    fn sample(&mut self, _sample: Sample, _frame: &[u8]) {}
    /// Reports the route by which the frame was forwarded.
    fn routed(&mut self, _vrf: VrfId, _prefix: IpNet) {}
}

/// A sink that stores everything, for tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Frames sent, in emission order.
    pub sent: Vec<(PortId, Vec<u8>)>,
    /// Copies sent for monitor sessions.
    pub mirrored: Vec<(PortId, Vec<u8>)>,
    /// Frames trapped.
    pub trapped: Vec<(PortId, TrapReason, Vec<u8>)>,
    /// Changes to the FDB.
    pub events: Vec<FdbEvent>,
    /// Violations of port security.
    pub violations: Vec<(PortId, VlanId, MacAddr)>,
    /// Frames sampled, with their length and their head.
    pub sampled: Vec<(Sample, usize, Vec<u8>)>,
}

impl Sink for Output {
    fn send(&mut self, port: PortId, frame: &[u8]) -> bool {
        self.sent.push((port, frame.to_vec()));
        true
    }
    fn mirror(&mut self, port: PortId, frame: &[u8]) -> bool {
        self.mirrored.push((port, frame.to_vec()));
        true
    }
    fn trap(&mut self, port: PortId, reason: TrapReason, frame: &[u8]) {
        self.trapped.push((port, reason, frame.to_vec()));
    }
    fn fdb(&mut self, event: FdbEvent) {
        self.events.push(event);
    }
    fn violation(&mut self, port: PortId, vlan: VlanId, mac: MacAddr) {
        self.violations.push((port, vlan, mac));
    }
    fn sample(&mut self, sample: Sample, frame: &[u8]) {
        self.sampled.push((sample, frame.len(), frame[..frame.len().min(SamplingRate::HEAD)].to_vec()));
    }
}
