//! [`ChipProtocols`]: the part of the plane that protocols use on a thread of their own, through a connection of their
//! own.
//!
//! Invariant: the protocol thread waits for the chip's bus for at most [`PATIENCE`], and for no lock that management
//! holds during a system call.

use crate::channels::Channels;
use crate::cpu::Shared;
use crate::groups::{self, Groups};
use crate::lower::unsupported;
use crate::trees::{self, Trees, period_ms};
use lanyard_asic::chip::serve::clock_ns;
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::message::{Code, Request};
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::sdk::{Client, SdkError};
use lanyard_pipeline::state::CHANNEL_BUCKETS;
use lanyard_plane::{
    ChannelMembers, FdbFilter, MAX_TRACE_FRAME, MdbChange, PlaneError, ProtocolPlane, Trapped, TreeStates,
};
use lanyard_types::{ChannelId, PortId, PortSet, StpState, VlanId};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most trapped frames that one call passes on.
const TRAPS_A_POLL: usize = 256;
/// The longest time that the protocol thread waits for the chip: less than a hello time.
const PATIENCE: Duration = Duration::from_millis(500);
/// The most attempts at a change of multicast groups or port-channels that the chip has not carried out, for another reason than
/// want of room, and at a change of states in trees while another chip takes over.
const ATTEMPTS: usize = 3;

/// The current chip, the states in its trees, its multicast groups and port-channels; shared with management.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The SDK socket.
    pub(crate) socket: PathBuf,
    /// Incremented with each change of `socket`.
    pub(crate) generation: u64,
    /// The states in trees, and the watchdog of spanning tree.
    pub(crate) trees: Trees,
    /// The multicast groups that snooping has learned.
    pub(crate) groups: Groups,
    /// The members in use of port-channels.
    pub(crate) channels: Channels,
}

/// See [`Endpoint`].
pub(crate) type SharedEndpoint = Arc<Mutex<Endpoint>>;

/// See the module comment.
#[derive(Debug)]
pub(crate) struct ChipProtocols {
    shared: Arc<Shared>,
    endpoint: SharedEndpoint,
    connection: Option<(u64, Client)>,
    /// The generation of a chip that has not answered in time. Groups and port-channels are not written to it until another chip
    /// takes over, snooping restarts its watchdog, or the members of a port-channel are set.
    stalled: Option<u64>,
    /// The generation of a chip that has no watchdog of snooping.
    unwatched: Option<u64>,
    /// True if the watchdog of snooping has expired since the last call of [`ProtocolPlane::snooping_expired`].
    expired: bool,
    /// The generation of the chip that was last asked whether its watchdog of spanning tree has expired.
    asked: Option<u64>,
    /// True while an expiry of the watchdog of spanning tree has to be acknowledged.
    acknowledges: bool,
    /// Stores the number of the last change for the next daemon: 8 bytes in a file of /run, which is in
    /// memory.
    mark: Option<File>,
}

impl ChipProtocols {
    pub(crate) fn new(shared: Arc<Shared>, endpoint: SharedEndpoint, mark: &Path) -> Self {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(mark);
        Self {
            shared,
            endpoint,
            connection: None,
            stalled: None,
            unwatched: None,
            expired: false,
            asked: None,
            acknowledges: false,
            mark: file.ok(),
        }
    }

    /// The connection to the current chip.
    fn client(&mut self) -> Result<&mut Client, SdkError> {
        let (socket, generation) = {
            let endpoint = self.endpoint();
            (endpoint.socket.clone(), endpoint.generation)
        };
        if self.connection.as_ref().is_none_or(|(of, _)| *of != generation) {
            let mut client = Client::connect(&socket, "protocols")?;
            client.set_patience(PATIENCE);
            self.connection = Some((generation, client));
        }
        match &mut self.connection {
            Some((_, client)) => Ok(client),
            None => Err(SdkError::Protocol("no connection".into())),
        }
    }
    fn endpoint(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Writes to the current chip; returns the generation of the chip to which it has written.
    fn write<T>(&mut self, ask: impl Fn(&mut Client) -> Result<T, SdkError>) -> (u64, Result<T, SdkError>) {
        let before = self.endpoint().generation;
        if self.stalled == Some(before) {
            return (before, Err(SdkError::Gone(std::io::ErrorKind::TimedOut.into())));
        }
        let outcome = self.client().and_then(ask);
        // Another chip may have taken over before the connection was made.
        let of = self.connection.as_ref().map_or(before, |(of, _)| *of);
        match &outcome {
            Ok(_) | Err(SdkError::Refused(_)) => {}
            Err(error) => {
                self.connection = None;
                let late =
                    matches!(error, SdkError::Gone(error) if error.kind() == std::io::ErrorKind::TimedOut);
                self.stalled = late.then_some(of);
            }
        }
        (of, outcome)
    }
    /// Writes the pending members and groups to the chip. Those that fail are tried again at the next call.
    fn mend(&mut self) {
        // The result is ignored: members that the chip refuses as invalid are reported when they are set.
        let _ = self.mend_channels();
        self.mend_groups();
    }
    /// Writes the pending members to the chip. Returns the port-channels whose members it refuses as invalid, with the reason.
    fn mend_channels(&mut self) -> BTreeMap<ChannelId, String> {
        let mut invalid = BTreeMap::new();
        for _ in 0..ATTEMPTS {
            let pending = self.endpoint().channels.pending();
            if pending.is_empty() {
                break;
            }
            for operation in pending {
                let Operation::Channel(channel, _) = operation else { continue };
                let (of, outcome) = self.write(|client| client.commit(std::slice::from_ref(&operation)));
                match outcome {
                    Ok(_) => {
                        let mut endpoint = self.endpoint();
                        if endpoint.generation == of {
                            endpoint.channels.taken(&operation);
                        }
                    }
                    Err(SdkError::Refused(refused)) if refused.code == Code::Invalid => {
                        invalid.insert(channel, refused.text);
                    }
                    Err(_) => {}
                }
            }
        }
        invalid
    }
    fn mend_groups(&mut self) {
        for _ in 0..ATTEMPTS {
            let pending = self.endpoint().groups.pending();
            if pending.is_empty() {
                return;
            }
            let (of, outcome) = self.write(|client| groups::write(client, &pending));
            let mut endpoint = self.endpoint();
            match outcome {
                Ok(lost) if endpoint.generation == of => {
                    endpoint.groups.taken(&pending, &lost);
                    endpoint.groups.lose(&lost);
                }
                // It is not known which of them the current chip holds: the write failed, or another chip has taken over.
                _ => endpoint.groups.doubt(&pending),
            }
        }
    }
    /// Runs `ask` on the connection, and drops the connection if that fails.
    fn with<T>(&mut self, ask: impl Fn(&mut Client) -> Result<T, SdkError>) -> Result<T, PlaneError> {
        let outcome = self.client().and_then(ask).map_err(gone);
        if outcome.is_err() {
            self.connection = None;
        }
        outcome
    }
}

impl ChipProtocols {
    /// See [`lanyard_plane::ProtocolPlane::set_trees`].
    fn write_trees(&mut self, wanted: &TreeStates) -> Result<(), PlaneError> {
        self.endpoint().trees.wanted = wanted.clone();
        let mut outcome = Ok(());
        // If another chip takes over during the last attempt as well, the next change reads the states from the chip.
        for _ in 0..ATTEMPTS {
            let (generation, next, held) = {
                let mut endpoint = self.endpoint();
                (endpoint.generation, endpoint.trees.for_chip(wanted), endpoint.trees.held.take())
            };
            if held.as_ref() == Some(&next) {
                self.endpoint().trees.held = held;
                return Ok(());
            }
            outcome = self.with(|client| {
                let from = match &held {
                    Some(held) => held.clone(),
                    None => trees::held_by(client)?,
                };
                trees::write(client, &from, &next)
            });
            let mut endpoint = self.endpoint();
            if endpoint.generation == generation {
                endpoint.trees.held = outcome.is_ok().then_some(next);
                break;
            }
            // Another chip has taken over meanwhile, perhaps with the states from before this change.
        }
        outcome
    }

    /// See [`lanyard_plane::Plane::watchdog`].
    fn restart_tree_watchdog(&mut self, after: Option<Duration>) -> Result<(), PlaneError> {
        if !self.endpoint().trees.watchdog {
            let what = "block ports without a daemon: the chip has no watchdog of spanning tree";
            return if after.is_some() { Err(unsupported(what.into())) } else { Ok(()) };
        }
        let now = clock_ns();
        self.with(|client| client.number(&Request::TreeWatchdog(period_ms(after))))?;
        let due = |after: Duration| now.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        self.endpoint().trees.due_ns = after.map(due);
        Ok(())
    }

    /// See [`lanyard_plane::Plane::watchdog_expired`]. The chip is only asked when its watchdog may have expired: at the start,
    /// after another chip has taken over, and when the period has passed. An expiry is reported as soon as it has been
    /// acknowledged.
    fn tree_watchdog_expired(&mut self) -> bool {
        let (generation, due) = {
            let endpoint = self.endpoint();
            if !endpoint.trees.watchdog {
                return false;
            }
            (endpoint.generation, endpoint.trees.due_ns)
        };
        if !self.acknowledges {
            if self.asked == Some(generation) && due.is_none_or(|due| clock_ns() < due) {
                return false;
            }
            let Ok(expired) = self.with(|client| client.number(&Request::TreeExpiry(false))) else {
                return false;
            };
            self.asked = Some(generation);
            self.acknowledges = expired == 1;
        }
        if !self.acknowledges {
            return false;
        }
        self.shared.discard_bpdus();
        if self.with(|client| client.number(&Request::TreeExpiry(true))).is_err() {
            return false;
        }
        self.acknowledges = false;
        let mut endpoint = self.endpoint();
        (endpoint.trees.held, endpoint.trees.due_ns) = (None, None);
        let blocked: Vec<_> = endpoint.trees.wanted.watched.iter().copied().collect();
        endpoint.trees.wanted.stp.extend(blocked.into_iter().map(|pair| (pair, StpState::Discarding)));
        true
    }
}

/// Writes the groups to the chip at `socket`, which takes over, and makes it the current one. Groups for which it has no room are
/// flooded. `channels` are the members of port-channels that have been written to it. Changes that the protocol thread makes
/// meanwhile stay pending until its next call.
///
/// # Errors
/// When the chip fails; the endpoint is unchanged.
pub(crate) fn move_groups(
    endpoint: &SharedEndpoint,
    client: &mut Client,
    socket: PathBuf,
    channels: &[Operation],
) -> Result<(), SdkError> {
    let locked = || endpoint.lock().unwrap_or_else(PoisonError::into_inner);
    let learned = locked().groups.changes();
    let lost = groups::write(client, &learned)?;
    let mut endpoint = locked();
    endpoint.socket = socket;
    endpoint.generation += 1;
    endpoint.trees.held = None;
    endpoint.channels.moved(channels);
    endpoint.groups.lose(&lost);
    endpoint
        .groups
        .moved(&learned.into_iter().filter(|change| !groups::is_of(change, &lost)).collect::<Vec<_>>());
    Ok(())
}

fn gone(error: impl ToString) -> PlaneError {
    PlaneError::System { what: "the chip".into(), cause: error.to_string() }
}

impl ProtocolPlane for ChipProtocols {
    fn event_fd(&self) -> RawFd {
        self.shared.trap_bell.as_fd().as_raw_fd()
    }
    fn poll_traps(&mut self, handle: &mut dyn FnMut(Trapped)) -> usize {
        self.mend();
        let frames = self.shared.traps(TRAPS_A_POLL);
        let count = frames.len();
        frames.into_iter().for_each(handle);
        count
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError> {
        if frame.len() > MAX_TRACE_FRAME {
            return Err(PlaneError::Invalid(format!(
                "a frame of {} bytes; {MAX_TRACE_FRAME} is the most",
                frame.len()
            )));
        }
        let header = CpuHeader { to: Some(port), ..CpuHeader::default() };
        self.with(|client| client.packet(header, frame))
    }
    fn relay(&mut self, vlan: VlanId, from: Option<PortId>, ports: &PortSet, frame: &[u8]) -> usize {
        if frame.len() > MAX_TRACE_FRAME {
            return 0;
        }
        let sent = self.with(|client| client.relay(vlan, from, ports, frame));
        if sent.is_ok() { ports.len() } else { 0 }
    }
    fn multicast(&mut self, change: &MdbChange) -> Result<(), PlaneError> {
        self.mend();
        let operation = [Operation::from(change)];
        for _ in 0..ATTEMPTS {
            let (of, outcome) = self.write(|client| client.commit(&operation));
            let mut endpoint = self.endpoint();
            if endpoint.generation != of {
                continue;
            }
            match outcome {
                Ok(_) => return endpoint.groups.note(change, true),
                Err(SdkError::Refused(refused)) if refused.code == Code::NoRoom => {
                    return Err(endpoint.groups.refuse(change, &refused));
                }
                Err(SdkError::Refused(refused)) if refused.code == Code::Invalid => {
                    return Err(PlaneError::Invalid(refused.text));
                }
                Err(_) => {}
            }
        }
        // The chip has failed, or another one takes over: the change stays pending.
        self.endpoint().groups.note(change, false)
    }
    fn multicast_held(&self) -> Vec<MdbChange> {
        self.endpoint().groups.changes()
    }
    fn multicast_lost(&mut self) -> Vec<MdbChange> {
        self.endpoint().groups.take_lost()
    }
    fn snooping_watchdog(&mut self, after: Option<Duration>) -> Result<(), PlaneError> {
        self.stalled = None;
        self.mend();
        if self.unwatched == Some(self.endpoint().generation) {
            return Ok(());
        }
        let request = Request::SnoopingWatchdog(period_ms(after));
        let (of, outcome) = self.write(|client| client.number(&request));
        match outcome {
            Ok(expired) => self.expired |= expired == 1,
            // A device that does not know the request refuses it, or ends the connection as after any message that it cannot
            // read.
            Err(SdkError::Refused(_)) => self.unwatched = Some(of),
            Err(error) => {
                self.unwatched = self.stalled.is_none().then_some(of);
                return Err(gone(error));
            }
        }
        Ok(())
    }
    fn snooping_expired(&mut self) -> bool {
        std::mem::take(&mut self.expired)
    }
    fn trees(&self) -> TreeStates {
        self.endpoint().trees.wanted.clone()
    }
    fn set_trees(&mut self, trees: &TreeStates) -> Result<(), PlaneError> {
        self.write_trees(trees)
    }
    fn watchdog(&mut self, after: Option<Duration>) -> Result<(), PlaneError> {
        self.restart_tree_watchdog(after)
    }
    fn watchdog_expired(&mut self) -> bool {
        self.tree_watchdog_expired()
    }
    fn channels(&self) -> BTreeMap<ChannelId, ChannelMembers> {
        self.endpoint().channels.wanted().clone()
    }
    /// If the chip fails, the members stay pending, and are written to it or to the next chip later.
    fn set_channel(&mut self, channel: ChannelId, members: &ChannelMembers) -> Result<(), PlaneError> {
        let count = members.buckets.len();
        if count != 0 && count != CHANNEL_BUCKETS {
            let text = format!("port-channel {channel} has {count} buckets, not {CHANNEL_BUCKETS}");
            return Err(PlaneError::Invalid(text));
        }
        let before = self.endpoint().channels.set(channel, members.clone());
        self.stalled = None;
        match self.mend_channels().remove(&channel) {
            None => Ok(()),
            Some(text) => {
                self.endpoint().channels.restore(channel, before);
                Err(PlaneError::Invalid(text))
            }
        }
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        let (vlan, port, mac) = (filter.vlan, filter.port, filter.mac);
        self.with(|client| client.number(&Request::Flush(vlan, port, mac))).unwrap_or(0)
    }
    fn mark(&mut self, mark: u64) {
        if let Some(file) = &self.mark {
            // Without the number the next daemon starts its trees from the beginning, which is safe.
            let _ = file.write_all_at(&mark.to_le_bytes(), 0);
        }
    }
    fn marked(&self) -> u64 {
        let mut bytes = [0; 8];
        let read = self.mark.as_ref().is_some_and(|file| file.read_exact_at(&mut bytes, 0).is_ok());
        if read { u64::from_le_bytes(bytes) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::Channels;
    use crate::group_faults::Running;
    use lanyard_asic::platform::Platform;
    use lanyard_types::Rng;
    use std::collections::BTreeMap;

    const APPLIANCE: &str = include_str!("../../../platforms/appliance.toml");

    fn random(rng: &mut Rng) -> (ChannelId, ChannelMembers) {
        let channel = ChannelId::new(1 + rng.below(5) as u8).expect("a port-channel");
        let members: Vec<PortId> = (1..=4).filter_map(PortId::new).filter(|_| rng.percent(50)).collect();
        let bucket = |n: usize| members.get(n % members.len().max(1)).copied();
        let buckets = (0..256).map_while(bucket).collect();
        (channel, ChannelMembers { collecting: members.iter().copied().collect(), buckets })
    }

    /// Whatever fails, in the end the chip has the members that the protocols have set last, and the next daemon reads them.
    #[test]
    fn the_chip_has_the_members_that_were_set_whatever_fails() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("asic.sock");
        let chip = Running::start(&Platform::parse(APPLIANCE).expect("a platform"), socket.clone(), 1);
        let endpoint = Endpoint {
            socket: socket.clone(),
            generation: 1,
            trees: Trees::of(TreeStates::default(), true),
            groups: Groups::default(),
            channels: Channels::default(),
        };
        let endpoint = Arc::new(Mutex::new(endpoint));
        let shared = Arc::new(Shared::new().expect("eventfds"));
        let mut protocols = ChipProtocols::new(shared, endpoint, &directory.path().join("mark"));
        let mut client = Client::connect(&socket, "test").expect("a chip");
        let (mut rng, mut wanted) = (Rng::new(3), BTreeMap::new());
        for plan in
            ["", "fail channel every 2", "fail channel every 1", "cut channel every 3", "fail operation at 7"]
        {
            client.number(&Request::Faults(plan.into())).expect("a plan");
            for _ in 0..30 {
                let (channel, members) = random(&mut rng);
                protocols.set_channel(channel, &members).expect("it is given to the chip later");
                wanted.insert(channel, members);
            }
            assert_eq!(protocols.channels(), wanted, "{plan}");
            client.number(&Request::Faults(String::new())).expect("no plan");
            protocols.poll_traps(&mut |_| ());
            let entries = client.entries().expect("entries");
            let held = crate::lower::state_of(&entries).channels;
            let some = wanted.iter().filter(|(_, members)| **members != ChannelMembers::default());
            assert_eq!(held, some.map(|(id, members)| (*id, members.clone())).collect(), "{plan}");
        }
        // A chip cannot read such members: it would end the connection at each attempt.
        let channel = ChannelId::new(1).expect("a port-channel");
        let port = PortId::new(1).expect("a port");
        let stray = ChannelMembers { buckets: vec![port; 3], ..ChannelMembers::default() };
        let refused = protocols.set_channel(channel, &stray).expect_err("three buckets");
        assert!(refused.to_string().contains("3 buckets"), "{refused}");
        assert_eq!(protocols.channels(), wanted);
        chip.end();
    }
}
