//! count: counts every frame once at its ingress port and VLAN, and every copy once at its egress port.
//!
//! Frames of a member of a port-channel are also counted at the port-channel: received frames once the stage `port` has assigned
//! them to it, and sent frames that were copies for it. Bytes are those of the frame as received and as sent; the bytes of a
//! frame that was lost before the pipeline are not known. Invariant: conservation (`tables::counters`).

use super::{Arrival, Decision};
use crate::tables::counters::Counters;
use crate::trace::Verdict;
use lanyard_types::{DropReason, PortId};

/// Counts a frame with its verdict. One that the software has `returned` has been counted as received and as trapped before: it
/// is not trapped any more.
pub(crate) fn ended(
    counters: &mut Counters,
    arrival: &Arrival<'_>,
    decision: &Decision,
    verdict: Verdict,
    returned: bool,
) {
    if let Some(vlan) = decision.vlan.filter(|_| !returned) {
        counters.vlan_mut(vlan).add(arrival.bytes.len());
    }
    for port in &decision.left_out {
        counters.port_mut(*port).tx_dropped += 1;
    }
    let channel = (decision.port != arrival.port).then_some(decision.port);
    for port in [Some(arrival.port), channel].into_iter().flatten() {
        let port = counters.port_mut(port);
        if returned {
            port.trapped = port.trapped.saturating_sub(1);
        } else {
            port.rx.add(arrival.bytes.len());
        }
        match verdict {
            Verdict::Forwarded => port.forwarded += 1,
            Verdict::Trapped(_) => port.trapped += 1,
            Verdict::Dropped(reason) => port.dropped[reason.index()] += 1,
        }
    }
}

/// Counts a diverted frame that the software did not take as dropped at these ports, at which it was counted as trapped.
pub(crate) fn unjudged(counters: &mut Counters, ports: [Option<PortId>; 2]) {
    for port in ports.into_iter().flatten() {
        let port = counters.port_mut(port);
        port.trapped = port.trapped.saturating_sub(1);
        port.dropped[DropReason::AclUnjudged.index()] += 1;
    }
}

/// Counts frames that were lost at `port` before the pipeline.
pub(crate) fn overrun(counters: &mut Counters, port: PortId, frames: u64) {
    let port = counters.port_mut(port);
    port.rx.frames += frames;
    port.dropped[DropReason::Overrun.index()] += frames;
}

/// Counts one copy of `len` bytes for `port`; `sent` is false when it was refused.
pub(crate) fn copy(counters: &mut Counters, port: PortId, len: usize, sent: bool) {
    let port = counters.port_mut(port);
    if sent {
        port.tx.add(len);
    } else {
        port.tx_dropped += 1;
    }
}

/// Counts a copy of `len` bytes as refused that had been counted as sent.
pub(crate) fn refused(counters: &mut Counters, port: PortId, len: usize) {
    let port = counters.port_mut(port);
    port.tx.frames = port.tx.frames.saturating_sub(1);
    port.tx.bytes = port.tx.bytes.saturating_sub(len as u64);
    port.tx_dropped += 1;
}
