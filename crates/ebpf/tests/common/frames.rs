//! Frames for the tests that run the same frames through both planes.

use lanyard_pipeline::Pipeline;
use lanyard_pipeline::generate::{Rng, State, multicast_packet};
use lanyard_types::{MacAddr, PortId, VlanId};
use lanyard_wire::{Builder, Tag, push};

/// A frame between two hosts that the pipeline knows, or from one of them to a group, at the port and with the tag with which
/// the source was learned. XDP forwards such frames.
pub fn conversation(rng: &mut Rng, state: &State, pipeline: &Pipeline) -> Option<(PortId, Vec<u8>)> {
    let vlan = rng.pick(&state.vlans)?;
    let known: Vec<(MacAddr, PortId)> =
        state.hosts.iter().filter_map(|mac| Some((*mac, pipeline.fdb().get(vlan, *mac)?.port?))).collect();
    let ((src, port), (dst, _)) = (rng.pick(&known)?, rng.pick(&known)?);
    let from = state.plane.ports.get(&port)?;
    let multicast = rng.percent(25).then(|| multicast_packet(rng));
    let mut builder = Builder::new(multicast.as_ref().map_or(dst, |(group, ..)| *group), src);
    if from.pvid != Some(vlan) || rng.percent(20) {
        builder =
            builder.tag(from.tpid.ethertype()?, Tag { pcp: rng.below(8) as u8, dei: false, vid: vlan.get() });
    }
    if let Some((_, ethertype, packet)) = multicast {
        return Some((port, builder.ethertype(ethertype).payload(&packet).build()));
    }
    let len = rng.pick(&[60, 60, 64, 594, 1514, 1518])?;
    Some((port, builder.ethertype(0x0800).payload(&rng.next_u64().to_le_bytes()).pad(len).build()))
}

/// True for a frame whose payload begins with a truncated tag. When the kernel changes the tag before it, it requires
/// the payload's tag to be complete, and fails otherwise. No frame on a wire is so short. The correct result is
/// `transmit_failed`, and the specification has no kernel that could fail. (`own` is the port's EtherType; if a tag of
/// this type is truncated, the frame is `truncated`.)
pub fn kernel_refuses(bytes: &[u8], own: Option<u16>) -> bool {
    let ethertype = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let tag = |at: &usize| matches!(ethertype(*at), Some(0x8100 | 0x88a8));
    let last = (12..).step_by(4).take_while(tag).last();
    last.is_some_and(|at| bytes.len() < at + 6 && (at > 12 || ethertype(at) != own))
}

/// Puts one frame in twelve behind a tag that its port may not recognise, including packets for the router.
pub fn with_foreign_tag(rng: &mut Rng, state: &State, bytes: &mut Vec<u8>) {
    if rng.percent(8) && bytes.len() >= 14 {
        let vid = rng.pick(&state.vlans).map_or(1, VlanId::get);
        let tag = Tag { pcp: rng.below(8) as u8, dei: false, vid };
        push(bytes, rng.pick(&[0x8100, 0x88a8]).unwrap_or(0x8100), tag).expect("a whole header");
    }
}
