//! The interface of a protocol on the protocol thread ([`Protocol`]), the objects it acts on ([`Io`]), and
//! its reports to management ([`Reports`]).

use crate::clock::Clock;
use lanyard_acl::note::Note;
use lanyard_guard::{Change, Denied, Lease, NdDrop, Neighbour};
use lanyard_plane::{PlaneError, ProtocolPlane};
use lanyard_stp::{Event, Mode};
use lanyard_types::{BindingKey, ChannelId, ErrCause, Family, MacAddr, PortId, PortSet, TrapGroup, VlanId};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// The most reports that wait for management; further ones are counted.
const MAX_REPORTS: usize = 4096;
/// The most notes of access lists that wait for management; further ones are counted.
const MAX_NOTES: usize = 1024;

/// A protocol that runs on the protocol thread. Times are milliseconds since the machine was
/// started.
pub(crate) trait Protocol {
    /// True for the trap groups whose frames it handles.
    fn takes(&self, group: TrapGroup) -> bool;
    /// Handles a frame; the next [`Protocol::act`] carries out the consequences.
    fn handle_frame(&mut self, now: u64, port: PortId, frame: &[u8]);
    /// The next deadline: when [`Protocol::act`] is to be called even if nothing happens until then.
    fn next_ms(&self) -> Option<u64>;
    /// Does the work that is due and the work caused by frames, links and configuration.
    fn act(&mut self, io: &mut Io<'_>);
}

/// The objects that a protocol acts on.
pub(crate) struct Io<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) plane: &'a mut dyn ProtocolPlane,
    pub(crate) reports: &'a mut Reports,
}

impl Io<'_> {
    /// Milliseconds since the machine was started.
    pub(crate) fn now(&self) -> u64 {
        self.clock.boot_ms()
    }
}

/// An event of multicast snooping.
#[derive(Debug)]
pub(crate) enum SnoopingEvent {
    /// The ports of a group, or of one of its sources; `None`: it has no members any more.
    Group { vlan: VlanId, group: IpAddr, source: Option<IpAddr>, ports: Option<Box<PortSet>> },
    /// The ports of routers.
    Routers { vlan: VlanId, family: Family, ports: Box<PortSet> },
    /// A port, or the switch (`None`), has as many groups as it may have.
    Full { vlan: VlanId, port: Option<PortId> },
    /// The plane has no room for a group.
    Refused { vlan: VlanId, group: IpAddr, reason: PlaneError },
}

/// An event of first-hop security. `frames` is the number of such frames since the last report.
#[derive(Debug)]
pub(crate) enum GuardEvent {
    /// The plane has dropped a frame.
    Denied { port: PortId, vlan: VlanId, denied: Denied, frames: u64 },
    /// DHCP snooping has dropped a message.
    Dropped {
        port: PortId,
        vlan: VlanId,
        reason: lanyard_guard::Drop,
        kind: &'static str,
        src: MacAddr,
        client: Option<MacAddr>,
        frames: u64,
    },
    /// There is no room for a lease.
    Full { lease: Lease },
    /// The plane has refused a binding.
    Refused { key: BindingKey, reason: PlaneError, frames: u64 },
    /// ND inspection has dropped a message.
    NdDropped { neighbour: Neighbour, reason: NdDrop, kind: &'static str, frames: u64 },
    /// A binding of ND inspection has changed. `changes` is the number of changes of this kind at the port since
    /// the last report.
    Neighbour { change: Change, neighbour: Neighbour, changes: u64 },
    /// The leases and neighbours could not be written to their file, for this reason.
    NotKept(String),
}

/// Events of hosts at ports with access control.
#[derive(Debug)]
pub(crate) enum AccessEvent {
    /// A frame for the PAE group address, without a tag.
    Eapol(PortId, Vec<u8>),
    /// The plane has dropped a frame of this host.
    Host(PortId, MacAddr),
}

/// A report of a protocol to management.
#[derive(Debug)]
pub(crate) enum Report {
    /// Spanning tree: an event, the mode at that time, and the number (MSTID) of the tree that the event is
    /// about; 0 if it is about none.
    Tree { event: Event, mode: Mode, mstid: u16 },
    /// Link aggregation: an event.
    Aggregation(lanyard_lacp::Event),
    /// The plane refused the members of a port-channel, for this reason.
    ChannelRefused(ChannelId, String),
    /// Neighbour discovery: an event.
    Discovery(lanyard_lldp::Event),
    /// Multicast snooping: an event.
    Snooping(SnoopingEvent),
    /// First-hop security: an event.
    Guard(GuardEvent),
    /// Access control of ports: an event.
    Access(AccessEvent),
    /// The watchdog has blocked these ports.
    Expired(Vec<PortId>),
    /// The plane refused the state of a port, for this reason.
    Refused(String),
    /// The plane's watchdog could not be started again, for this reason.
    Unwatched(String),
    /// A protocol's snapshot for a restart could not be written. `facility` is that of the protocol's messages in the log.
    NotKept { facility: &'static str, reason: String },
}

/// The reports that wait for management.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) waiting: VecDeque<Report>,
    /// The number of reports for which there was no room.
    pub(crate) lost: u64,
    /// The notes of access lists for the log, with the ports that have received the frames.
    pub(crate) notes: Vec<(PortId, Note)>,
    /// The number of notes for which there was no room.
    pub(crate) notes_missed: u64,
    /// Ports to shut down, or (`None`) to bring up again: the last decision for each port.
    pub(crate) ports: BTreeMap<PortId, Option<ErrCause>>,
}

impl Reports {
    pub(crate) fn add(&mut self, report: Report) {
        if self.waiting.len() < MAX_REPORTS {
            self.waiting.push_back(report);
        } else {
            self.lost += 1;
        }
    }
    /// Adds a note of an access list. Their number has a limit of its own, so they take no room of other reports.
    pub(crate) fn add_note(&mut self, port: PortId, bytes: &[u8]) {
        let note = Note::read(bytes).filter(|_| self.notes.len() < MAX_NOTES);
        self.notes_missed += u64::from(note.is_none());
        self.notes.extend(note.map(|note| (port, note)));
    }
    pub(crate) fn is_empty(&self) -> bool {
        let none = self.notes.is_empty() && self.notes_missed == 0;
        none && self.waiting.is_empty() && self.ports.is_empty() && self.lost == 0
    }
}
