//! The members in use of each port-channel.
//!
//! Invariant: a port-channel has either no bucket or [`CHANNEL_BUCKETS`].

use crate::state::{CHANNEL_BUCKETS, ChannelMembers};
use lanyard_types::{ChannelId, PortId};
use std::collections::BTreeMap;

/// The port-channels with members in use.
#[derive(Debug, Default)]
pub struct Channels {
    members: BTreeMap<ChannelId, ChannelMembers>,
    high_water: usize,
}

impl Channels {
    /// True if frames that `member` receives belong to the port-channel.
    #[must_use]
    pub fn collects(&self, channel: ChannelId, member: PortId) -> bool {
        self.members.get(&channel).is_some_and(|members| members.collecting.contains(&member))
    }
    /// The member by which frames of this bucket leave; `None` while the port-channel cannot send.
    #[must_use]
    pub fn member(&self, channel: ChannelId, bucket: usize) -> Option<PortId> {
        self.members.get(&channel)?.buckets.get(bucket % CHANNEL_BUCKETS).copied()
    }
    /// True if frames can leave by the port-channel.
    #[must_use]
    pub fn sends(&self, channel: ChannelId) -> bool {
        self.member(channel, 0).is_some()
    }
    /// Sets the members in use; `None` means that no member is.
    pub fn set(&mut self, channel: ChannelId, members: Option<ChannelMembers>) {
        match members {
            Some(members) => _ = self.members.insert(channel, members),
            None => _ = self.members.remove(&channel),
        }
        self.high_water = self.high_water.max(self.members.len());
    }
    /// Removes the members of every port-channel.
    pub fn clear(&mut self) {
        self.members.clear();
    }
    /// The port-channels with members in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }
    /// The largest number of port-channels that had members at once.
    #[must_use]
    pub const fn high_water(&self) -> usize {
        self.high_water
    }
    /// True when no port-channel has members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}
