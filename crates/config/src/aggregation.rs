//! `channel-group`, `port-channel ...` and `lacp ...`: link aggregation.
//!
//! `interface port-channel N` is an interface named `port-channelN`. Its settings hold for all its members: a member's own
//! layer-2 settings are kept, and have no effect while it is a member.

use crate::names::{channel_of, split_subinterface};
use crate::{Config, Interface, InterfaceName, Role};
use lanyard_lacp::Mode;
use lanyard_types::{ChannelId, LoadBalance, VlanId, VlanSet};

/// The most members of a port-channel with LACP: eight in use, eight hot standby.
pub const MAX_LACP_MEMBERS: usize = 16;
/// The most members of a port-channel without LACP, and the most members in use at a time with LACP.
pub const MAX_BUNDLED: u8 = 8;

/// The global settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregation {
    /// `lacp system-priority`, 0 to 65535; less is better.
    pub system_priority: u16,
    /// `port-channel load-balance`. Its field `symmetric` is always false; see [`Aggregation::symmetric`].
    pub load_balance: LoadBalance,
    /// `port-channel load-balance symmetric`: true if both directions of a conversation use the same member.
    pub symmetric: bool,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self { system_priority: 32_768, load_balance: LoadBalance::default(), symmetric: false }
    }
}

/// The link-aggregation settings of an interface, which may be a member or a port-channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregationPort {
    /// `channel-group N mode M`; `None`: the interface is not a member.
    pub group: Option<(ChannelId, Mode)>,
    /// `lacp rate fast`.
    pub fast: bool,
    /// `lacp port-priority`, 0 to 65535; less is better.
    pub priority: u16,
    /// `port-channel min-links`, 1 to 8: with fewer members in use the port-channel is down.
    pub min_links: u8,
    /// `lacp max-bundle`, 1 to 8: the most members in use.
    pub max_bundle: u8,
}

impl Default for AggregationPort {
    fn default() -> Self {
        Self { group: None, fast: false, priority: 32_768, min_links: 1, max_bundle: MAX_BUNDLED }
    }
}

/// A VLAN that a routed port-channel or a subinterface of one has to itself: no other port is a member, and no line of the
/// configuration may name it.
#[derive(Debug)]
pub struct InternalVlan<'a> {
    /// The VLAN.
    pub vlan: VlanId,
    /// The port-channel.
    pub channel: ChannelId,
    /// The interface that has the VLAN to itself: the port-channel's own, or a subinterface.
    pub name: InterfaceName,
    /// The interface's settings.
    pub interface: &'a Interface,
}

impl Config {
    /// The members of a port-channel, in the order of their names.
    pub fn members(&self, channel: ChannelId) -> impl Iterator<Item = (&InterfaceName, &Interface)> {
        let is_member = move |interface: &Interface| {
            interface.aggregation.group.is_some_and(|(group, _)| group == channel)
        };
        self.interfaces.iter().filter(move |(_, interface)| is_member(interface))
    }
    /// The port-channels that are routed, with the VLAN that each has to itself ([`ChannelId::internal_vlan`]), ascending.
    pub fn routed_channels(&self) -> impl Iterator<Item = (ChannelId, VlanId, &Interface)> {
        let routed = self.channels().filter(|(_, interface)| interface.role == Role::Routed);
        routed.filter_map(|(channel, interface)| Some((channel, channel.internal_vlan()?, interface)))
    }
    /// The VLANs that routed port-channels and their subinterfaces have to themselves. A subinterface has the VLAN of its tag.
    pub fn internal_vlans(&self) -> impl Iterator<Item = InternalVlan<'_>> {
        let whole = self
            .channels()
            .filter_map(|(channel, _)| self.internal_vlan(&InterfaceName::of_channel(channel)));
        let others = self.interfaces.keys().filter(|name| name.channel().is_none());
        whole.chain(others.filter_map(|name| self.internal_vlan(name)))
    }
    /// The VLAN that an interface has to itself: see [`Config::internal_vlans`].
    #[must_use]
    pub fn internal_vlan(&self, name: &InterfaceName) -> Option<InternalVlan<'_>> {
        let interface = self.interfaces.get(name)?;
        let (channel, vlan) = match (name, interface.role) {
            (_, Role::Routed) => {
                name.channel().and_then(|channel| Some((channel, channel.internal_vlan()?)))?
            }
            (InterfaceName::Netdev(text), Role::Subinterface(vlan)) => {
                let channel = channel_of(&split_subinterface(text)?.0)?;
                let parent = self.interfaces.get(&InterfaceName::of_channel(channel))?;
                (parent.role == Role::Routed).then_some((channel, vlan))?
            }
            _ => return None,
        };
        Some(InternalVlan { vlan, channel, name: name.clone(), interface })
    }
    /// The tags of a port-channel's subinterfaces.
    #[must_use]
    pub fn channel_tags(&self, channel: ChannelId) -> VlanSet {
        let own = InterfaceName::of_channel(channel);
        let subinterfaces = self.internal_vlans().filter(|it| it.channel == channel && it.name != own);
        subinterfaces.map(|it| it.vlan).collect()
    }
    /// The port-channels, ascending.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, &Interface)> {
        self.interfaces.iter().filter_map(|(name, interface)| Some((name.channel()?, interface)))
    }
}
