//! acl_egress: judges a frame by the outbound access lists: of a routed frame those of its egress VLAN interface and VLAN,
//! then those of each egress port.
//!
//! A port of a flood whose list denies the frame is removed from the flood; if none is left, the frame is dropped. The end of
//! a VLAN interface at the pipeline is a port whose outbound list is the interface's inbound one.

use super::acl_ingress::{Judged, Scope};
use super::bridge::Egress;
use crate::state::{PortKind, PortState};
use crate::tables::Tables;
use crate::tables::acls::Hit;
use lanyard_types::{DropReason, PortId, VlanId};

/// Removes the egress ports whose lists deny the frame. `routed_into` is the VLAN into which a routed frame was sent.
pub(super) fn run(
    tables: &Tables,
    judged: &mut Judged<'_>,
    routed_into: Option<VlanId>,
    egress: Egress,
    hits: &mut Vec<Hit>,
) -> Result<Egress, DropReason> {
    if let Some(vlan) = routed_into {
        let up = tables.rifs.on_vlan(vlan).and_then(|(_, rif)| rif.attachment.up());
        let lists = up.and_then(|up| tables.ports.get(up)).map(|up| &up.acl_in);
        if lists.is_some_and(|lists| !judged.passes(tables, lists, Scope::Frame, hits)) {
            return Err(DropReason::AclRouterOut);
        }
        let map = tables.vlans.get(vlan).map(|vlan| &vlan.acl);
        if map.is_some_and(|map| !judged.passes(tables, map, Scope::Frame, hits)) {
            return Err(DropReason::AclVlanOut);
        }
    }
    let mut ports = match egress {
        Egress::Unicast(port) => {
            straight(tables, judged, port, Scope::Frame, hits)?;
            return Ok(Egress::Unicast(port));
        }
        Egress::Flood(ports) => ports,
    };
    let mut reason = DropReason::AclHostIn;
    for port in ports.iter().collect::<Vec<_>>() {
        if let Err(why) = straight(tables, judged, port, Scope::Copy, hits) {
            ports.remove(port);
            if why == DropReason::AclPortOut {
                reason = why;
            }
        }
    }
    if ports.is_empty() { Err(reason) } else { Ok(Egress::Flood(ports)) }
}

/// Judges a frame by the list of one egress port.
pub(super) fn straight(
    tables: &Tables,
    judged: &mut Judged<'_>,
    port: PortId,
    scope: Scope,
    hits: &mut Vec<Hit>,
) -> Result<(), DropReason> {
    let Some(PortState { kind, acl_out, .. }) = tables.ports.get(port) else { return Ok(()) };
    match judged.passes(tables, acl_out, scope, hits) {
        true => Ok(()),
        false if matches!(kind, PortKind::Svi(_)) => Err(DropReason::AclHostIn),
        false => Err(DropReason::AclPortOut),
    }
}
