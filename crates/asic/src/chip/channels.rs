//! Port-channels: which members send.
//!
//! A driver sets which members are in use. The chip leaves out those without a link at once, without waiting for the driver, and
//! gives the remaining members to the pipeline.
//!
//! Invariant: no bucket of a port-channel that has a distributing member with a link belongs to a member without one. The buckets
//! of the other members are those that the driver has given them.

use super::Chip;
use lanyard_pipeline::balance::spread;
use lanyard_pipeline::state::ChannelMembers;
use lanyard_types::{ChannelId, PortId, PortSet};

impl Chip {
    /// Updates the port-channels that send by `port` when its link has come up (`up`) or gone down.
    pub fn set_link(&mut self, port: PortId, up: bool) {
        if up {
            self.down.remove(port);
        } else {
            self.down.insert(port);
        }
        let channels = self.state.channels.iter();
        let concerned: Vec<ChannelId> =
            channels.filter(|(_, members)| members.buckets.contains(&port)).map(|(id, _)| *id).collect();
        concerned.into_iter().for_each(|channel| self.refresh_channel(channel));
    }
    /// The ports by which port-channels send, as a driver has set them, with or without a link. The loss of one of these links
    /// must be noticed at once.
    #[must_use]
    pub fn distributing(&self) -> &PortSet {
        &self.distributing
    }
    /// Gives the pipeline the members of a port-channel that are in use and have a link.
    pub(super) fn refresh_channel(&mut self, channel: ChannelId) {
        let linked = self.state.channels.get(&channel).map(|given| ChannelMembers {
            collecting: given.collecting.clone(),
            buckets: linked(&given.buckets, &self.down),
        });
        self.pipeline.set_channel(channel, linked);
        self.distributing =
            self.state.channels.values().flat_map(|members| members.buckets.iter().copied()).collect();
    }
    /// The port by which a frame of the CPU for `port` leaves: a member in use if `port` is a port-channel, otherwise `port`
    /// itself.
    pub(super) fn sender(&self, port: PortId) -> PortId {
        let tables = self.pipeline.tables();
        let member = tables.ports.channel(port).and_then(|channel| tables.channels.member(channel, 0));
        member.unwrap_or(port)
    }
}

/// The buckets after those of members without a link have been given to the other members. A driver that learns of the loss
/// assigns them in the same way.
fn linked(buckets: &[PortId], down: &PortSet) -> Vec<PortId> {
    if !buckets.iter().any(|member| down.contains(*member)) {
        return buckets.to_vec();
    }
    let up: PortSet = buckets.iter().copied().filter(|member| !down.contains(*member)).collect();
    spread(buckets, &up)
}
