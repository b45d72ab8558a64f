//! Frames of the control plane for the ports of a VLAN, such as the messages about memberships that multicast snooping passes on.
//!
//! Invariant: such a frame leaves by no port by which a frame of its VLAN that is flooded from the same port would not leave.

use crate::state::Tpid;
use crate::tables::Tables;
use lanyard_types::{PortId, PortSet, VlanId};
use lanyard_wire::{Tag, push};

/// The copies of a frame without a tag for those of `ports` that forward in the VLAN and are not `from`, the port that received
/// the frame: tagged as each port sends the VLAN, and none from one protected port to another. A port-channel has one copy.
#[must_use]
pub fn copies(
    tables: &Tables,
    vlan: VlanId,
    from: Option<PortId>,
    ports: &PortSet,
    frame: &[u8],
) -> Vec<(PortId, Vec<u8>)> {
    let Some(state) = tables.vlans.get(vlan) else { return Vec::new() };
    let mut set = ports.intersection(tables.vlans.members(vlan)).intersection(&tables.ports.enabled);
    set = set.difference(&tables.stp.blocked(state.instance));
    if let Some(from) = from {
        set.remove(from);
        if tables.ports.isolated.contains(from) {
            set = set.difference(&tables.ports.isolated);
        }
    }
    let copy = |port: PortId| {
        let tagged = tables.ports.get(port).filter(|port| port.tagged.contains(vlan));
        let tpid = tagged.map_or(Tpid::None, |port| port.tpid).ethertype();
        let mut bytes = frame.to_vec();
        let tag = Tag { vid: vlan.get(), ..Tag::default() };
        // A frame that is too short for a tag is not sent.
        let sent = tpid.is_none_or(|tpid| push(&mut bytes, tpid, tag).is_ok());
        sent.then_some((port, bytes))
    };
    set.iter().filter_map(copy).collect()
}
