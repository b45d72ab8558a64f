//! Frames for the tests that run the same ones through both planes.

use lanyard_pipeline::Pipeline;
use lanyard_pipeline::generate::{Rng, State};
use lanyard_types::{MacAddr, PortId, VlanId};
use lanyard_wire::{Builder, Tag, push};

/// A frame between two hosts that the pipeline knows, at the port and with the tag the source was learned with: what XDP
/// forwards.
pub fn conversation(rng: &mut Rng, state: &State, pipeline: &Pipeline) -> Option<(PortId, Vec<u8>)> {
    let vlan = rng.pick(&state.vlans)?;
    let known: Vec<(MacAddr, PortId)> =
        state.hosts.iter().filter_map(|mac| Some((*mac, pipeline.fdb().get(vlan, *mac)?.port?))).collect();
    let ((src, port), (dst, _)) = (rng.pick(&known)?, rng.pick(&known)?);
    let from = state.plane.ports.get(&port)?;
    let mut builder = Builder::new(dst, src);
    if from.pvid != Some(vlan) || rng.percent(20) {
        builder =
            builder.tag(from.tpid.ethertype()?, Tag { pcp: rng.below(8) as u8, dei: false, vid: vlan.get() });
    }
    let len = rng.pick(&[60, 60, 64, 594, 1514, 1518])?;
    Some((port, builder.ethertype(0x0800).payload(&rng.next_u64().to_le_bytes()).pad(len).build()))
}

/// A payload that begins with a tag that is cut off: when the kernel changes the tag before it, it wants this one whole,
/// and says no. No wire carries a frame so short; `transmit_failed` is its right name, and the specification has no
/// kernel to fail. (`own`: the port's EtherType; cut off, that one makes the frame `truncated`.)
pub fn kernel_refuses(bytes: &[u8], own: Option<u16>) -> bool {
    let ethertype = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let tag = |at: &usize| matches!(ethertype(*at), Some(0x8100 | 0x88a8));
    let last = (12..).step_by(4).take_while(tag).last();
    last.is_some_and(|at| bytes.len() < at + 6 && (at > 12 || ethertype(at) != own))
}

/// Puts one frame in twelve behind a tag that its port may not recognise: also a packet for the router.
pub fn with_foreign_tag(rng: &mut Rng, state: &State, bytes: &mut Vec<u8>) {
    if rng.percent(8) && bytes.len() >= 14 {
        let vid = rng.pick(&state.vlans).map_or(1, VlanId::get);
        let tag = Tag { pcp: rng.below(8) as u8, dei: false, vid };
        push(bytes, rng.pick(&[0x8100, 0x88a8]).unwrap_or(0x8100), tag).expect("a whole header");
    }
}
