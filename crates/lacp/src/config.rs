//! The configuration of link aggregation.

use lanyard_types::{MacAddr, PortId};
use std::collections::BTreeMap;

/// `channel-group N mode M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// `active`: LACP, sends whether or not the partner does.
    #[default]
    Active,
    /// `passive`: LACP, sends to a partner that is active.
    Passive,
    /// `on`: no protocol; the port belongs to the channel while it has a link.
    On,
}

/// A member of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// The channel, 1 to 4096, which is also the key.
    pub channel: u16,
    /// The mode.
    pub mode: Mode,
    /// `lacp rate fast`: true if the partner is asked to send a PDU each second, false: every 30 s.
    pub fast: bool,
    /// `lacp port-priority`, 0 to 65535; less is better. Default 32768.
    pub priority: u16,
    /// The source address of the frames that the port sends.
    pub mac: MacAddr,
}

/// A channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelConfig {
    /// `port-channel min-links`: with fewer members the channel is down. 1 to 8.
    pub min_links: u8,
    /// `lacp max-bundle`: the most members; further ports are hot standby. 1 to 8.
    pub max_bundle: u8,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self { min_links: 1, max_bundle: 8 }
    }
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The system's address.
    pub system: MacAddr,
    /// `lacp system-priority`, 0 to 65535; less is better. IOS's default is 32768.
    pub system_priority: u16,
    /// The members of channels.
    pub ports: BTreeMap<PortId, PortConfig>,
    /// Channels whose settings are not the defaults.
    pub channels: BTreeMap<u16, ChannelConfig>,
}
