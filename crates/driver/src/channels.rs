//! [`Channels`]: the members in use of port-channels, and those that still have to be written to the chip.
//!
//! The protocol thread notes each change here before it writes it to the chip, so that a chip, or the software plane, that takes
//! the place of another gets all of it.
//!
//! Invariant: the chip that forwards holds the wanted members of each port-channel that is not in `pending`.

use lanyard_asic::sdk::operation::Operation;
use lanyard_plane::ChannelMembers;
use lanyard_types::ChannelId;
use std::collections::{BTreeMap, BTreeSet};

/// See the module comment.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    wanted: BTreeMap<ChannelId, ChannelMembers>,
    pending: BTreeSet<ChannelId>,
}

/// A port-channel before a change of its members.
#[derive(Debug, Default)]
pub(crate) struct Before {
    members: Option<ChannelMembers>,
    pending: bool,
}

impl Channels {
    /// Creates it with the members that a chip holds.
    pub(crate) fn of(held: BTreeMap<ChannelId, ChannelMembers>) -> Self {
        Self { wanted: held, pending: BTreeSet::new() }
    }
    /// The members that are wanted.
    pub(crate) const fn wanted(&self) -> &BTreeMap<ChannelId, ChannelMembers> {
        &self.wanted
    }
    /// Sets members, which then have to be written to the chip; returns the state before, for [`Channels::restore`].
    pub(crate) fn set(&mut self, channel: ChannelId, members: ChannelMembers) -> Before {
        let pending = !self.pending.insert(channel);
        Before { members: self.wanted.insert(channel, members), pending }
    }
    /// Undoes a change that the chip refuses as invalid. An earlier change of the port-channel that has not been written to the
    /// chip stays pending.
    pub(crate) fn restore(&mut self, channel: ChannelId, before: Before) {
        if !before.pending {
            self.pending.remove(&channel);
        }
        match before.members {
            Some(members) => _ = self.wanted.insert(channel, members),
            None => _ = self.wanted.remove(&channel),
        }
    }
    /// The operations that set all members in an empty chip.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.wanted.keys().map(|channel| self.operation(*channel)).collect()
    }
    /// The operations that still have to be written to the chip.
    pub(crate) fn pending(&self) -> Vec<Operation> {
        self.pending.iter().map(|channel| self.operation(*channel)).collect()
    }
    /// Notes that the chip has carried out an operation. Members that have changed meanwhile stay pending.
    pub(crate) fn taken(&mut self, operation: &Operation) {
        if let Operation::Channel(channel, _) = operation
            && self.operation(*channel) == *operation
        {
            self.pending.remove(channel);
        }
    }
    /// Notes that another chip has taken over, and that it holds the members of these operations only.
    pub(crate) fn moved(&mut self, held: &[Operation]) {
        self.pending = self.wanted.keys().copied().collect();
        held.iter().for_each(|operation| self.taken(operation));
    }

    fn operation(&self, channel: ChannelId) -> Operation {
        let members = self.wanted.get(&channel).filter(|members| **members != ChannelMembers::default());
        Operation::Channel(channel, members.cloned().map(Box::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_types::PortId;

    fn members(number: u16) -> ChannelMembers {
        let port = PortId::new(number).expect("a port");
        ChannelMembers { collecting: [port].into(), buckets: vec![port; 256] }
    }
    fn channel(number: u8) -> ChannelId {
        ChannelId::new(number).expect("a port-channel")
    }

    #[test]
    fn a_change_is_pending_until_the_chip_has_taken_it() {
        let mut channels = Channels::of([(channel(1), members(1))].into());
        assert_eq!(channels.pending(), []);
        channels.set(channel(1), members(2));
        let first = channels.pending();
        assert_eq!(first, [Operation::Channel(channel(1), Some(Box::new(members(2))))]);
        // The members change again before the chip has answered.
        channels.set(channel(1), ChannelMembers::default());
        channels.taken(&first[0]);
        assert_eq!(channels.pending(), [Operation::Channel(channel(1), None)]);
        channels.taken(&channels.pending()[0].clone());
        assert_eq!(channels.pending(), []);
    }

    #[test]
    fn another_chip_gets_all_of_it() {
        let mut channels = Channels::default();
        channels.set(channel(1), members(1));
        channels.set(channel(2), members(2));
        let held = channels.operations();
        assert_eq!(held.len(), 2);
        // The protocol thread changes members after all have been written to the chip that takes over.
        channels.set(channel(2), members(3));
        channels.moved(&held);
        assert_eq!(channels.pending(), [Operation::Channel(channel(2), Some(Box::new(members(3))))]);
        channels.restore(channel(2), Before::default());
        assert_eq!((channels.pending(), channels.wanted().len()), (vec![], 1));
        // Undoing a change leaves an earlier one pending that has not been written to the chip.
        channels.set(channel(1), members(4));
        let waiting = channels.pending();
        let before = channels.set(channel(1), members(5));
        channels.restore(channel(1), before);
        assert_eq!(channels.pending(), waiting);
    }
}
