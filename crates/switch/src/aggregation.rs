//! Connects link aggregation to the switch: what LACP is configured with, and which links its ports have.
//!
//! Invariants: the port of a port-channel is part of the plane state while its interface is configured, with the layer-2 settings
//! of that interface, or with a VLAN to itself if it is routed; its members have no VLAN.

use crate::facts::{Facts, LinkFacts};
use crate::identity::Identity;
use crate::names::members;
use crate::ports::PortIds;
use lanyard_config::{Config, Interface, InterfaceName, Role, Switchport};
use lanyard_lacp::{ChannelConfig, Mode, PortConfig};
pub use lanyard_pipeline::balance::spread;
use lanyard_pipeline::state::{Aggregation, GlobalState, PortState, ReservedAction};
use lanyard_types::{ChannelId, LoadBalance, MacAddr, PortId, VlanSet};
use std::collections::BTreeMap;

/// The last nibble of the slow protocols' address, 01:80:C2:00:00:02: the index among the reserved addresses.
const SLOW_PROTOCOLS: usize = 0x2;

/// Link aggregation as the protocol thread runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lowered {
    /// The members and port-channels.
    pub lacp: lanyard_lacp::Config,
    /// The port of each port-channel.
    pub channels: BTreeMap<ChannelId, PortId>,
}

/// The configuration of link aggregation: the port-channels of `config`, and the members whose port-channel is configured.
#[must_use]
pub fn lower(config: &Config, facts: &Facts, ports: &PortIds, identity: &Identity) -> Lowered {
    let mut lowered = Lowered::default();
    lowered.lacp.system = identity.base_mac;
    lowered.lacp.system_priority = config.aggregation.system_priority;
    for (channel, interface) in config.channels() {
        let Some(port) = ports.get(&InterfaceName::of_channel(channel).to_string()) else { continue };
        let settings = &interface.aggregation;
        let bundle = ChannelConfig { min_links: settings.min_links, max_bundle: settings.max_bundle };
        lowered.channels.insert(channel, port);
        lowered.lacp.channels.insert(channel.get().into(), bundle);
    }
    for (name, channel, mode, interface) in members(config) {
        let Some(port) = ports.get(name).filter(|_| lowered.channels.contains_key(&channel)) else {
            continue;
        };
        let mac = facts.usable(name).and_then(|link| link.mac).unwrap_or(identity.base_mac);
        let settings = PortConfig {
            channel: channel.get().into(),
            mode,
            fast: interface.aggregation.fast,
            priority: interface.aggregation.priority,
            mac,
        };
        lowered.lacp.ports.insert(port, settings);
    }
    lowered
}

/// For each member of a port-channel, true if its link can be aggregated: it is up and not in half duplex, and neither the
/// member nor the port-channel is shut down. `is_half` returns true for a netdev whose link is in half duplex.
#[must_use]
pub fn links(
    config: &Config,
    facts: &Facts,
    ports: &PortIds,
    is_half: &mut dyn FnMut(&str) -> bool,
) -> Vec<(PortId, bool)> {
    let mut list = Vec::new();
    for (name, channel, _, interface) in members(config) {
        let channel = config.interfaces.get(&InterfaceName::of_channel(channel));
        let open = !interface.shutdown && channel.is_some_and(|channel| !channel.shutdown);
        let up = open && facts.usable(name).is_some_and(LinkFacts::forwards) && !is_half(name);
        list.extend(ports.get(name).map(|port| (port, up)));
    }
    list
}

/// Sets by which fields frames are distributed over members, and traps LACP's frames if any member runs LACP.
pub(crate) fn overlay(config: &Config, global: &mut GlobalState) {
    let settings = &config.aggregation;
    global.load_balance = LoadBalance { symmetric: settings.symmetric, ..settings.load_balance };
    if members(config).any(|(_, _, mode, _)| mode != Mode::On) {
        global.reserved[SLOW_PROTOCOLS] = ReservedAction::Trap;
    }
}

/// The layer-2 settings of a port-channel: its own, or those of an access port in its internal VLAN if it is routed.
pub(crate) fn switchport(channel: ChannelId, interface: &Interface) -> Switchport {
    match channel.internal_vlan().filter(|_| interface.role == Role::Routed) {
        Some(vlan) => Switchport { access_vlan: vlan, ..Switchport::default() },
        None => interface.switchport.clone(),
    }
}

/// Returns `port`, which belongs to a routed port-channel or to its member, with the tags of the port-channel's subinterfaces
/// accepted.
pub(crate) fn with_tags(config: &Config, channel: ChannelId, port: PortState) -> PortState {
    let tags = config.channel_tags(channel);
    if tags.is_empty() { port } else { PortState { tagged: tags, access: false, ..port } }
}

/// The MAC address of a routed port-channel and of its subinterfaces, unless they have their own.
pub(crate) fn mac(config: &Config, channel: ChannelId, identity: &Identity) -> Option<MacAddr> {
    let own = config.interfaces.get(&InterfaceName::of_channel(channel))?.mac;
    own.or_else(|| channel.internal_vlan().map(|vlan| identity.vlan_mac(vlan)))
}

/// The MTU of a port-channel: the smallest of its members, or 1500 without members.
pub(crate) fn mtu(config: &Config, facts: &Facts, channel: ChannelId) -> u32 {
    let members = config.members(channel);
    members.filter_map(|(name, _)| Some(facts.usable(&name.to_string())?.mtu)).min().unwrap_or(1500)
}

/// Makes the port of a port-channel from `port`, a switch port with the settings of the port-channel's interface.
pub(crate) fn channel_port(config: &Config, facts: &Facts, channel: ChannelId, port: PortState) -> PortState {
    let shutdown = config.interfaces.get(&InterfaceName::of_channel(channel)).is_none_or(|it| it.shutdown);
    PortState {
        ifindex: 0,
        enabled: !shutdown && facts.channels.contains(&channel),
        mtu: mtu(config, facts, channel).clamp(68, 65_535),
        aggregation: Aggregation::Channel(channel),
        ..port
    }
}

/// Makes the port of a member from `port`, which has the layer-2 settings of the port-channel; `of` is the port-channel's port.
pub(crate) fn member_port(of: PortId, channel: ChannelId, port: PortState) -> PortState {
    PortState {
        tagged: VlanSet::EMPTY,
        untagged: VlanSet::EMPTY,
        fdb_limit: None,
        stages: Default::default(),
        aggregation: Aggregation::Member { of, channel },
        ..port
    }
}

#[cfg(test)]
#[path = "aggregation_tests.rs"]
mod tests;
