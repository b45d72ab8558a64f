//! The types that every other crate uses: identifiers, addresses, reasons, counters.
//!
//! Nothing here does I/O, reads a clock or knows a frame's layout. An index is a newtype, a set is bounded by
//! its index, and every reason has one name that the text output, the JSON output, the counters and the eBPF
//! programs share (`bpf/abi.h` repeats the numbers; `crates/ebpf/src/abi.rs` asserts that they agree).

mod addr;
mod balance;
mod err_cause;
mod guard;
mod id;
mod mirror;
mod queue;
mod reason;
mod rng;
mod sampling;
mod set;
pub mod text;

pub use addr::{Family, MacAddr, ParseMacError};
pub use balance::{BalanceFields, LoadBalance};
pub use err_cause::ErrCause;
pub use guard::{
    ArpLimit, ArpValidation, Binding, BindingKey, MAX_BINDINGS, PortGuard, PortLock, VerifySource, VlanGuard,
};
pub use id::{
    AclId, AdjacencyId, ChannelId, GroupId, InstanceId, MAX_PORTS, MAX_VLANS, PortId, RifId, StpState,
    VlanId, VlanIdError, VrfId,
};
pub use mirror::{MirrorCopy, PortMirror};
pub use queue::*;
pub use reason::*;
pub use rng::Rng;
pub use sampling::SamplingRate;
pub use set::{ParseVlanSetError, PortSet, VlanSet};

/// Frames and bytes counted at one port in one direction. Bytes count the frame as it is on the wire, from
/// the destination address to the end of the payload, with its tags and without the FCS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct FrameCount {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

impl FrameCount {
    /// Counts one frame of `len` bytes.
    pub fn add(&mut self, len: usize) {
        self.frames = self.frames.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len as u64);
    }
}

impl std::ops::AddAssign for FrameCount {
    fn add_assign(&mut self, other: Self) {
        self.frames = self.frames.wrapping_add(other.frames);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}
