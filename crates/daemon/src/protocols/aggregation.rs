//! Link aggregation on the protocol thread: handles LACPDUs, markers, links and timers, gives the plane the members of
//! port-channels, and sends frames.
//!
//! A member has a link while both management and [`lanyard_netdev::LinkWatch`] report one: management learns of a change
//! later, and `LinkWatch` does not know the configuration.
//!
//! Invariants: a frame that claims that a member collects or distributes is sent after the plane has the member. The plane
//! gets a new set of members within the call that determines it, so that the frames of a lost link move to other members at
//! once.

use super::keeper::Keeper;
use super::work::{Io, Protocol, Report};
use lanyard_lacp::{Action, Lacp, Members, Snapshot};
use lanyard_plane::{ChannelMembers, ProtocolPlane};
use lanyard_switch::aggregation::{Lowered, spread};
use lanyard_types::{ChannelId, PortId, PortSet, TrapGroup};
use std::collections::{BTreeMap, BTreeSet};

/// Link aggregation on the protocol thread; see the module comment.
#[derive(Default)]
pub(crate) struct Aggregation {
    machines: Lacp,
    /// The port of each port-channel.
    channels: BTreeMap<ChannelId, PortId>,
    /// The members that the plane has; at the start those that the last daemon gave it.
    given: BTreeMap<ChannelId, ChannelMembers>,
    /// The members that have a link, as far as management knows.
    linked: BTreeSet<PortId>,
    /// The ports of `linked` whose link [`lanyard_netdev::LinkWatch`] has reported as lost since.
    lost: BTreeSet<PortId>,
    /// True once a configuration has been taken: from then on the LACP machines determine the plane's members.
    configured: bool,
    /// The last daemon's saved state, until the first configuration.
    found: Snapshot,
    keeper: Option<Keeper<Snapshot>>,
    /// The snapshot that was queued to be saved last.
    saved: Option<Snapshot>,
}

impl Aggregation {
    /// Creates link aggregation with the members that the plane has.
    pub(crate) fn over(plane: &dyn ProtocolPlane) -> Self {
        Self { given: plane.channels(), ..Self::default() }
    }
    /// Continues with the state `found` that the last daemon has saved, and saves the state for the next one with `keeper`.
    pub(crate) fn resume(&mut self, keeper: Keeper<Snapshot>, found: Option<Snapshot>) {
        (self.keeper, self.found) = (Some(keeper), found.unwrap_or_default());
    }
    /// From now on a thread writes the snapshot.
    pub(crate) fn keep_by_thread(&mut self) {
        self.keeper.iter_mut().for_each(Keeper::start);
    }
    /// The machines, for views and for `clear`.
    pub(crate) const fn machines(&self) -> &Lacp {
        &self.machines
    }
    pub(crate) const fn machines_mut(&mut self) -> &mut Lacp {
        &mut self.machines
    }
    /// The port-channels by which frames can leave.
    pub(crate) fn up(&self) -> BTreeSet<ChannelId> {
        let sends = self.given.iter().filter(|(_, members)| !members.buckets.is_empty());
        sends.map(|(channel, _)| *channel).collect()
    }
    /// The number of a port-channel's buckets that are assigned to a member.
    pub(crate) fn buckets(&self, channel: ChannelId, member: PortId) -> usize {
        let members = self.given.get(&channel);
        members.map_or(0, |members| members.buckets.iter().filter(|held| **held == member).count())
    }
    /// Takes a configuration and the states of the links.
    pub(crate) fn configure(&mut self, io: &mut Io<'_>, lowered: Lowered, links: &[(PortId, bool)]) {
        let now = io.now();
        self.channels = lowered.channels;
        if !self.configured {
            self.machines.resume(now, lowered.lacp, &std::mem::take(&mut self.found));
        } else if *self.machines.config() != lowered.lacp {
            self.machines.configure(now, lowered.lacp);
        }
        self.linked = links.iter().filter(|(_, up)| *up).map(|(port, _)| *port).collect();
        self.lost.retain(|port| self.linked.contains(port));
        for (port, up) in links {
            self.machines.handle_link(now, *port, *up && !self.lost.contains(port));
        }
        self.act(io);
        if !std::mem::replace(&mut self.configured, true) {
            self.give_up(io);
        }
    }
    /// Takes a change of a member's link of which management may not know yet.
    pub(crate) fn handle_link(&mut self, io: &mut Io<'_>, port: PortId, up: bool) {
        if !self.linked.contains(&port) {
            return;
        }
        if up {
            self.lost.remove(&port);
        } else {
            self.lost.insert(port);
        }
        let now = io.now();
        self.machines.handle_link(now, port, up);
        self.act(io);
    }
    /// Removes from the plane the members that the last daemon had in use, for each port-channel that has none in use now.
    fn give_up(&mut self, io: &mut Io<'_>) {
        let stale = |(channel, members): (&ChannelId, &ChannelMembers)| {
            let now = self.machines.members(channel.get().into());
            (now.is_empty() && *members != ChannelMembers::default()).then_some(*channel)
        };
        let stale: Vec<ChannelId> = self.given.iter().filter_map(stale).collect();
        for channel in stale {
            self.give(io, channel, &PortSet::EMPTY, &PortSet::EMPTY);
        }
    }
    /// The port that a frame belongs to which `port` received: the port itself, or its port-channel. `None` for a member that
    /// does not collect: its frames belong to no port (IEEE 802.1AX-2014, 6.2.7).
    pub(crate) fn owner(&self, port: PortId) -> Option<PortId> {
        let Some(member) = self.machines.port(port) else { return Some(port) };
        let channel = channel_id(member.config.channel)?;
        let collects = self.given.get(&channel).is_some_and(|members| members.collecting.contains(&port));
        self.channels.get(&channel).copied().filter(|_| collects)
    }

    /// Saves what the next daemon needs, if it has changed.
    fn keep(&mut self, io: &mut Io<'_>) {
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.configured) else { return };
        let snapshot = self.machines.snapshot();
        if self.saved.as_ref() == Some(&snapshot) {
            return;
        }
        self.saved = Some(snapshot.clone());
        if let Some(reason) = keeper.put(Some(snapshot)) {
            io.reports.add(Report::NotKept { facility: "EC", reason });
        }
    }

    /// Gives the plane the members of a port-channel.
    fn give(&mut self, io: &mut Io<'_>, channel: ChannelId, collecting: &PortSet, distributing: &PortSet) {
        let held = self.given.get(&channel).map(|members| members.buckets.as_slice()).unwrap_or_default();
        let members =
            ChannelMembers { collecting: collecting.iter().collect(), buckets: spread(held, distributing) };
        match io.plane.set_channel(channel, &members) {
            Ok(()) => _ = self.given.insert(channel, members),
            Err(error) => io.reports.add(Report::ChannelRefused(channel, error.to_string())),
        }
    }
}

impl Protocol for Aggregation {
    fn takes(&self, group: TrapGroup) -> bool {
        group == TrapGroup::Slow
    }
    fn handle_frame(&mut self, now: u64, port: PortId, frame: &[u8]) {
        // A refused frame has been counted.
        let _ = self.machines.handle_frame(now, port, frame);
    }
    fn next_ms(&self) -> Option<u64> {
        self.machines.next_timeout()
    }
    fn act(&mut self, io: &mut Io<'_>) {
        let now = io.now();
        if self.machines.next_timeout().is_some_and(|at| at <= now) {
            self.machines.handle_timer(now);
        }
        while let Some(action) = self.machines.poll_action() {
            match action {
                Action::Channel(members) => {
                    let Members { channel, collecting, distributing } = *members;
                    if let Some(channel) = channel_id(channel) {
                        self.give(io, channel, &collecting, &distributing);
                    }
                }
                // Sending fails at a port that is being removed; LACPDUs are repeated.
                Action::Send(port, frame) => drop(io.plane.inject(port, &frame)),
                Action::Event(event) => io.reports.add(Report::Aggregation(event)),
            }
        }
        self.keep(io);
    }
}

/// Converts a channel number of the LACP machines; `None` if it is beyond the range of the planes.
pub(crate) fn channel_id(number: u16) -> Option<ChannelId> {
    u8::try_from(number).ok().and_then(ChannelId::new)
}
