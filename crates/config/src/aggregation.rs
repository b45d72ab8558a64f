//! `channel-group`, `port-channel ...` and `lacp ...`: link aggregation.
//!
//! `interface port-channel N` is an interface named `port-channelN`. Its settings hold for all its members: a member's own
//! layer-2 settings are kept, and have no effect while it is a member.

use crate::{Config, Interface, InterfaceName, Role};
use lanyard_lacp::Mode;
use lanyard_types::{ChannelId, LoadBalance, VlanId};

/// The most members of a port-channel with LACP: eight in use, eight hot standby.
pub const MAX_LACP_MEMBERS: usize = 16;
/// The most members of a port-channel without a protocol, and the most in use with one.
pub const MAX_BUNDLED: u8 = 8;

/// The global settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregation {
    /// `lacp system-priority`, 0 to 65535; less is better.
    pub system_priority: u16,
    /// `port-channel load-balance`; never symmetric here.
    pub load_balance: LoadBalance,
    /// `port-channel load-balance symmetric`.
    pub symmetric: bool,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self { system_priority: 32_768, load_balance: LoadBalance::default(), symmetric: false }
    }
}

/// The settings of an interface: of a member, and of a port-channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregationPort {
    /// `channel-group N mode M`.
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

impl InterfaceName {
    /// The interface of a port-channel: `port-channelN`.
    #[must_use]
    pub fn of_channel(channel: ChannelId) -> Self {
        Self::Netdev(format!("port-channel{channel}"))
    }
    /// The number of a port-channel's interface; `None` for other interfaces.
    #[must_use]
    pub fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Netdev(name) => channel_of(name),
            Self::Vlan(_) => None,
        }
    }
}

/// The number of the port-channel whose interface has this name; `None` for other names.
#[must_use]
pub fn channel_of(name: &str) -> Option<ChannelId> {
    let number = name.strip_prefix("port-channel")?;
    number.parse().ok().and_then(ChannelId::new).filter(|channel| channel.to_string() == number)
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
    /// The port-channels, ascending.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, &Interface)> {
        self.interfaces.iter().filter_map(|(name, interface)| Some((name.channel()?, interface)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_port_channels() {
        let of = |name: &str| channel_of(name).map(ChannelId::get);
        for (name, number) in [
            ("port-channel1", Some(1)),
            ("port-channel255", Some(255)),
            ("port-channel256", None),
            ("port-channel0", None),
            ("port-channel01", None),
            ("port-channel", None),
            ("po1", None),
        ] {
            assert_eq!(of(name), number, "{name}");
        }
    }
}
