//! Service policies at interfaces, for `show policy-map interface`.

use serde::Serialize;

/// `show policy-map interface`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServicePolicies {
    /// The policies in force, by interface, input first.
    pub service_policies: Vec<ServicePolicyView>,
}

/// A policy map at an interface.
#[derive(Debug, Clone, Serialize)]
pub struct ServicePolicyView {
    /// The interface.
    pub interface: String,
    /// `input` or `output`.
    pub direction: &'static str,
    /// The policy map.
    pub policy: String,
    /// Its classes in the order in which a frame is compared with them, `class-default` last. The classes of a child policy
    /// follow their parent.
    pub classes: Vec<ServiceClassView>,
}

/// A class of a policy in force.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServiceClassView {
    /// The class map.
    pub class: String,
    /// True for a class of the child policy.
    pub child: bool,
    /// The frames of the class.
    pub packets: u64,
    /// Their bytes, from the destination address to the end of the payload.
    pub bytes: u64,
    /// The policer, if the class has one.
    pub police: Option<PolicerView>,
    /// The queue, if the port has one for the class.
    pub queue: Option<QueueView>,
}

/// A policer: its rates in force, and the frames and bytes of each colour.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PolicerView {
    /// The committed rate in bits per second.
    pub cir_bps: u64,
    /// The committed burst in bytes.
    pub bc_bytes: u64,
    /// The peak rate in bits per second.
    pub pir_bps: Option<u64>,
    /// The excess burst in bytes.
    pub be_bytes: Option<u64>,
    /// Frames that conformed.
    pub conformed_packets: u64,
    /// Their bytes.
    pub conformed_bytes: u64,
    /// Frames that exceeded.
    pub exceeded_packets: u64,
    /// Their bytes.
    pub exceeded_bytes: u64,
    /// Frames that violated; 0 for a policer of two colours.
    pub violated_packets: u64,
    /// Their bytes.
    pub violated_bytes: u64,
}

/// The queue of a class at a port: a class of the kernel's queueing discipline. For a port-channel, the sum over its members.
#[derive(Debug, Clone, Default, Serialize)]
pub struct QueueView {
    /// The guaranteed rate in bits per second.
    pub rate_bps: u64,
    /// The highest rate in bits per second.
    pub ceil_bps: u64,
    /// The frames that wait.
    pub depth_packets: u64,
    /// Their bytes.
    pub depth_bytes: u64,
    /// Frames that have left.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames dropped because the queue was full.
    pub dropped_packets: u64,
    /// The maximum length of the queue, in the unit `limit_unit`.
    pub limit: u64,
    /// `packets` or `bytes`.
    pub limit_unit: &'static str,
}
