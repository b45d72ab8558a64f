//! Connects link aggregation to the switch: what LACP is configured with, which links its ports have, and how the buckets
//! of a port-channel are assigned to its members.
//!
//! Invariants: the port of a port-channel is part of the plane state while its interface is configured, with the layer-2 settings
//! of that interface, or with a VLAN to itself if it is routed; its members have no VLAN. The buckets of a member stay with it
//! until it leaves, or until another one has fewer.

use crate::facts::{Facts, LinkFacts};
use crate::identity::Identity;
use crate::names::members;
use crate::ports::PortIds;
use lanyard_config::{Config, Interface, InterfaceName, Role, Switchport};
use lanyard_lacp::{ChannelConfig, Mode, PortConfig};
use lanyard_pipeline::state::{Aggregation, CHANNEL_BUCKETS, GlobalState, PortState, ReservedAction};
use lanyard_types::{ChannelId, LoadBalance, MacAddr, PortId, PortSet, VlanSet};
use std::collections::BTreeMap;

/// The nibble of the slow protocols' address among the reserved ones.
const SLOW_PROTOCOLS: usize = 0x2;

/// Link aggregation as the protocol thread runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lowered {
    /// The members and port-channels.
    pub lacp: lanyard_lacp::Config,
    /// The port of each port-channel.
    pub channels: BTreeMap<ChannelId, PortId>,
}

/// The configuration of link aggregation: the members of `config` whose port-channel is configured, too.
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

/// The members with whether they have a link that can be aggregated: up at both ends, in full duplex, and the port-channel
/// not shut down. `is_half` says whether a netdev's link is in half duplex.
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

/// Sets how members are chosen, and traps LACP's frames where a member has LACP.
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

/// The port of a routed port-channel or of its member: the tags of subinterfaces are accepted there, too.
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

/// Makes the ports of port-channels and of their members from those of switch ports: `name` is the port's, `port` has the
/// settings of the port-channel's interface.
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

/// The port of a member of the port-channel at `of`: `port` has the layer-2 settings of the port-channel.
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

/// Assigns the buckets of a port-channel to `members`, from the assignment `now`: a member keeps its buckets unless there are
/// too many. The numbers of buckets of two members differ by one at most. Empty without members.
#[must_use]
pub fn spread(now: &[PortId], members: &PortSet) -> Vec<PortId> {
    let list: Vec<PortId> = members.iter().take(CHANNEL_BUCKETS).collect();
    if list.is_empty() {
        return Vec::new();
    }
    let count = |member: &PortId| now.iter().filter(|held| *held == member).count();
    let mut order: Vec<(usize, PortId)> = list.iter().map(|member| (count(member), *member)).collect();
    // Those with the most keep one more, so that as few buckets as possible move.
    order.sort_by_key(|(held, member)| (std::cmp::Reverse(*held), *member));
    let (share, more) = (CHANNEL_BUCKETS / list.len(), CHANNEL_BUCKETS % list.len());
    let quota = order.iter().enumerate().map(|(at, (_, member))| (*member, share + usize::from(at < more)));
    let mut room: BTreeMap<PortId, usize> = quota.collect();
    let mut buckets: Vec<Option<PortId>> = vec![None; CHANNEL_BUCKETS];
    for (bucket, held) in buckets.iter_mut().zip(now) {
        if let Some(room) = room.get_mut(held).filter(|room| **room > 0) {
            *room -= 1;
            *bucket = Some(*held);
        }
    }
    // Free buckets go to the members in turn, so that neighbouring buckets do not all move to one member.
    let mut turn = 0;
    for bucket in buckets.iter_mut().filter(|bucket| bucket.is_none()) {
        let next = (turn..turn + list.len()).find(|at| room[&list[at % list.len()]] > 0).unwrap_or(turn);
        let member = list[next % list.len()];
        if let Some(room) = room.get_mut(&member) {
            *room = room.saturating_sub(1);
        }
        *bucket = Some(member);
        turn = next + 1;
    }
    buckets.into_iter().flatten().collect()
}

#[cfg(test)]
#[path = "aggregation_tests.rs"]
mod tests;
