//! Reads a state back from the tables when the state file is lost.
//!
//! The parts of a state that the tables do not contain (spanning-tree instances, the user's choice of a hook) are not
//! recovered. The result is used to keep port numbers and to identify the existing ports; the next state is written
//! completely.

use crate::abi;
use crate::error::Result;
use crate::lower;
use crate::tables::Tables;
use lanyard_netdev::Link;
use lanyard_pipeline::state::{Aggregation, PortKind, PortState, StpState, Tpid, VlanState};
use lanyard_plane::PlaneState;
use lanyard_types::{ChannelId, PortId, RifId, VlanId};
use lanyard_wire::{HEADER_LEN, TAG_LEN};

/// The state as far as the tables contain it; `links` provides the netdevs' names.
pub(crate) fn state(tables: &Tables, links: &[Link]) -> Result<PlaneState> {
    let mut state = PlaneState::default();
    for id in PortId::all() {
        let row = tables.ports.get(id.index());
        let channel = ChannelId::new(row.channel).filter(|_| row.flags & abi::PORT_CHANNEL != 0);
        if row.ifindex == 0 && channel.is_none() {
            continue;
        }
        let link = links.iter().find(|link| link.ifindex == row.ifindex);
        let name = match (link, channel) {
            (_, Some(channel)) => format!("port-channel{channel}"),
            (Some(link), None) => link.name.clone(),
            (None, None) => format!("interface {}", row.ifindex),
        };
        let vlans = tables.port_vlans.get(id.index());
        let with = |bit: u8, none: u8| -> Vec<VlanId> {
            let has = |vlan: &VlanId| vlans.bits[vlan.index()] & (bit | none) == bit;
            VlanId::all().filter(has).collect()
        };
        for vlan in with(abi::PV_ACTIVE, 0) {
            state.vlans.entry(vlan).or_insert_with(VlanState::default);
        }
        let mut port = PortState::new(&name, row.ifindex);
        port.untagged = with(abi::PV_MEMBER | abi::PV_UNTAGGED, 0).into_iter().collect();
        port.tagged = with(abi::PV_MEMBER, abi::PV_UNTAGGED).into_iter().collect();
        port.learning = !with(abi::PV_LEARN, 0).is_empty();
        port.enabled = row.flags & abi::PORT_ENABLED != 0;
        port.access = row.flags & abi::PORT_ACCESS != 0;
        port.private = row.private != 0;
        port.isolated = row.flags & abi::PORT_ISOLATED != 0;
        port.pvid = VlanId::new(row.pvid);
        port.tpid = match row.tpid {
            0x8100 => Tpid::Dot1q,
            0x88a8 => Tpid::Dot1ad,
            _ => Tpid::None,
        };
        port.mtu = row.max_len.saturating_sub((HEADER_LEN + TAG_LEN) as u32);
        port.fdb_limit =
            Some(tables.fdb_usage.get(abi::usage_port(id)).limit).filter(|limit| *limit != abi::UNLIMITED);
        let svi = name
            .strip_prefix("ly")
            .and_then(|number| number.parse().ok())
            .filter(|_| row.flags & abi::PORT_SVI != 0);
        port.kind = svi.map_or(PortKind::Netdev, PortKind::Svi);
        if row.flags & abi::PORT_ROUTED != 0 {
            port.kind = PortKind::Routed;
        } else if let (true, Some(parent), Some(vlan)) = (
            row.flags & abi::PORT_SUB != 0,
            PortId::new(row.parent),
            port.pvid.take_if(|_| row.flags & abi::PORT_SUB != 0),
        ) {
            port.kind = PortKind::Subinterface { parent, vlan };
        }
        port.aggregation = match (channel, PortId::new(row.parent), ChannelId::new(row.channel)) {
            (Some(channel), ..) => Aggregation::Channel(channel),
            (None, Some(of), Some(channel)) if row.flags & abi::PORT_MEMBER != 0 => {
                Aggregation::Member { of, channel }
            }
            _ => Aggregation::None,
        };
        state.ports.insert(id, port);
    }
    for id in (1..abi::RIFS).filter_map(|id| RifId::new(id as u16)) {
        let rif = lower::rif_of(&tables.rifs.get(id.index()), format!("interface {id}"));
        state.rifs.extend(rif.map(|rif| (id, rif)));
    }
    let mut fixed = Vec::new();
    tables.fdb_walk(&mut |key, value| fixed.extend(abi::split_key(key).zip(lower::fdb_target(value))));
    state.fdb = fixed.into_iter().collect();
    channels(tables, &mut state);
    state.global.fdb_limit = tables.usage_table().limit;
    Ok(state)
}

/// Reads the members in use of port-channels back.
pub(crate) fn channels(tables: &Tables, state: &mut PlaneState) {
    let numbers = (1..=ChannelId::MAX.get()).filter_map(ChannelId::new);
    let members =
        |number: ChannelId| Some((number, lower::channel_of(&tables.channels.get(number.index()))?));
    state.channels = numbers.filter_map(members).collect();
}

/// Reads the states of ports in trees back: those of the tables, which a daemon that runs spanning
/// tree writes without writing the state file. A daemon that was killed while it wrote may have
/// left the VLANs of a tree in different states: the most restrictive of them is taken.
pub(crate) fn trees(tables: &Tables, state: &mut PlaneState) {
    state.stp.clear();
    state.watched.clear();
    for id in state.ports.keys() {
        let row = tables.port_vlans.get(id.index());
        for (vlan, settings) in &state.vlans {
            let bits = row.bits[vlan.index()];
            let found = match () {
                () if bits & abi::PV_FORWARD != 0 => StpState::Forwarding,
                () if bits & abi::PV_STP_LEARNING != 0 => StpState::Learning,
                () => StpState::Discarding,
            };
            let pair = (settings.instance, *id);
            if bits & abi::PV_WATCHED != 0 {
                state.watched.insert(pair);
            }
            let held = state.stp.get(&pair).copied();
            if found != StpState::Forwarding && held != Some(StpState::Discarding) {
                state.stp.insert(pair, found);
            }
        }
    }
}
