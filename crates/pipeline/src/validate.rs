//! Validation of a [`PlaneState`] by rules that no single type can express.

use crate::qos::{Direction, MAX_CLASSES};
use crate::route::{RifAttachment, VIRTUAL_MACS};
use crate::state::{Aggregation, CHANNEL_BUCKETS, PlaneState, PortKind};
use lanyard_acl::{FrameFamily, PlaneList};
use lanyard_types::PortId;
use std::collections::{BTreeMap, BTreeSet};

/// Checks the router interfaces, port-channels and access lists of a plane state before a plane accepts it.
///
/// # Errors
/// When an interface names a port of another kind, two interfaces share a VLAN, port or tag, a number is out of range, a
/// member of a port-channel is in a VLAN or names no port-channel, or a port or VLAN refers to a list that does not exist.
/// Planes refuse the state with this text.
pub fn check(state: &PlaneState) -> Result<(), String> {
    check_channels(state)?;
    let kind = |port: PortId| state.ports.get(&port).map(|port| port.kind);
    let mut seen = BTreeMap::new();
    for (id, rif) in &state.rifs {
        let name = &rif.name;
        let (fits, key) = match rif.attachment {
            RifAttachment::Vlan { vlan, up } => (kind(up) == Some(PortKind::Svi(vlan)), (None, Some(vlan))),
            RifAttachment::Port(port) => (kind(port) == Some(PortKind::Routed), (Some(port), None)),
            RifAttachment::Subinterface { parent, vlan, up } => {
                let fits = kind(parent) == Some(PortKind::Routed)
                    && kind(up) == Some(PortKind::Subinterface { parent, vlan });
                (fits, (Some(parent), Some(vlan)))
            }
        };
        if !fits {
            return Err(format!("router interface {name} names a port that is not of its kind"));
        }
        if let Some(other) = seen.insert(key, *id) {
            return Err(format!("router interface {name} uses the VLAN, port or tag of interface {other}"));
        }
        if rif.virtual_macs.len() > VIRTUAL_MACS {
            return Err(format!("router interface {name} has more than {VIRTUAL_MACS} virtual addresses"));
        }
        if !(68..=65_535).contains(&rif.mtu) {
            return Err(format!("router interface {name} has an MTU of {}, not 68 to 65535", rif.mtu));
        }
    }
    acls(state)?;
    check_policies(state)?;
    check_shares(state)?;
    let mut tags = BTreeSet::new();
    for port in state.ports.values() {
        let PortKind::Subinterface { parent, vlan } = port.kind else { continue };
        if kind(parent) != Some(PortKind::Routed) || !tags.insert((parent, vlan)) {
            return Err(format!(
                "subinterface {} has no routed port, or another subinterface has its tag",
                port.name
            ));
        }
    }
    Ok(())
}

fn check_shares(state: &PlaneState) -> Result<(), String> {
    for (vlan, own) in &state.vlans {
        let Some(shares) = own.shares else { continue };
        let primary = state.vlans.get(&shares.primary);
        if shares.primary == *vlan || primary.is_none_or(|primary| primary.shares.is_some()) {
            return Err(format!(
                "VLAN {vlan} shares the addresses of VLAN {}, which is no primary VLAN",
                shares.primary
            ));
        }
        if primary.is_some_and(|primary| primary.instance != own.instance) {
            return Err(format!(
                "VLAN {vlan} is in another spanning tree than its primary VLAN {}",
                shares.primary
            ));
        }
        let on = |rif: &crate::route::RifState| matches!(rif.attachment, RifAttachment::Vlan { vlan: at, .. } if at == *vlan);
        if state.rifs.values().any(on) {
            return Err(format!(
                "VLAN {vlan} is a secondary private VLAN and has a router interface of its own"
            ));
        }
    }
    Ok(())
}

fn acls(state: &PlaneState) -> Result<(), String> {
    let ports = state.ports.values().flat_map(|port| [&port.acl_in, &port.acl_out]);
    let bound = ports.chain(state.vlans.values().map(|vlan| &vlan.acl));
    for (family, id) in bound.flat_map(|lists| FrameFamily::ALL.into_iter().zip(lists)) {
        let Some(id) = id else { continue };
        if state.acls.get(id).is_none_or(|list| list.family != family) {
            return Err(format!("access list {id} does not exist, or is for other frames"));
        }
    }
    Ok(())
}

fn check_policies(state: &PlaneState) -> Result<(), String> {
    for port in state.ports.values() {
        for policy in Direction::ALL.into_iter().filter_map(|direction| port.qos.of(direction)) {
            let refused = |why: &str| Err(format!("policy {} at {}: {why}", policy.name, port.name));
            if !matches!(port.kind, PortKind::Netdev | PortKind::Routed) {
                return refused("it is neither a switch port nor a routed port");
            }
            if policy.classes.is_empty() || policy.classes.len() > MAX_CLASSES {
                return refused("it has no class, or too many");
            }
            for (family, id) in FrameFamily::ALL.into_iter().zip(policy.lists) {
                let Some(id) = id else { continue };
                let classes = policy.classes.len();
                let fits = |list: &&std::sync::Arc<PlaneList>| {
                    list.family == family && list.rules.iter().all(|rule| usize::from(rule.list) < classes)
                };
                if state.acls.get(&id).filter(fits).is_none() {
                    return refused("its list does not exist, or is for other frames or classes");
                }
            }
        }
    }
    Ok(())
}

fn check_channels(state: &PlaneState) -> Result<(), String> {
    let mut numbers = BTreeSet::new();
    for port in state.ports.values() {
        match port.aggregation {
            Aggregation::None => {}
            Aggregation::Channel(number) => {
                if port.kind != PortKind::Netdev || !numbers.insert(number) {
                    return Err(format!(
                        "port-channel {number} is no switch port, or another port has its number"
                    ));
                }
            }
            Aggregation::Member { of, channel } => {
                if state.ports.get(&of).and_then(|port| port.aggregation.channel()) != Some(channel) {
                    return Err(format!(
                        "{} is a member of port {of}, which is not port-channel {channel}",
                        port.name
                    ));
                }
                if port.kind != PortKind::Netdev || !port.tagged.is_empty() || !port.untagged.is_empty() {
                    return Err(format!("{} is a member of a port-channel and in a VLAN itself", port.name));
                }
            }
        }
    }
    for (channel, members) in &state.channels {
        if !members.buckets.is_empty() && members.buckets.len() != CHANNEL_BUCKETS {
            let count = members.buckets.len();
            return Err(format!("port-channel {channel} has {count} buckets, not {CHANNEL_BUCKETS}"));
        }
    }
    Ok(())
}
