//! The CPU port in this process: the thread that carries frames between the chip's connection and netdevs, and its
//! reports to the rest of the driver.
//!
//! From the chip, a frame for an interface goes to that interface's netdev, a frame for the control plane waits for the
//! protocols, a diverted frame is judged here by the access lists and goes back, and an event waits for management. From the
//! kernel, a frame sent to `swpN` leaves the chip at that port unchanged; a frame sent to a VLAN interface or a subinterface
//! enters the chip's pipeline there.
//!
//! Invariants: every queue is bounded, and losses are counted and reported. No lock is held while a frame is read or
//! written.

use crate::chip::PATIENCE;
use lanyard_acl::PlaneList;
use lanyard_asic::chip::device::wants;
use lanyard_asic::sdk::Client;
use lanyard_asic::sdk::client::{Receiver, Sender};
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::message::{Event, Incoming, LearnedEntry, Notice, Question, Request, Verdict};
use lanyard_netdev::{Netdev, PacketSocket, Tap};
use lanyard_pipeline::tables::acls::Acls;
use lanyard_plane::{FdbEntry, FdbKind, PlaneEvent, Trapped};
use lanyard_types::{AclId, PortId, Stage, TrapGroup, TrapReason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most events that wait for management.
const MAX_EVENTS: usize = 1 << 16;
/// The most trapped frames that wait for the protocols.
const MAX_TRAPS: usize = 1024;
/// The most frames taken from one netdev, and messages from the chip, in one turn.
const TURN: usize = 64;
/// The longest time for which BPDUs are discarded after an expiry of the watchdog, in case the notice that ends this is lost.
const STALE: Duration = Duration::from_secs(1);
/// The longest frame that the CPU port takes, in bytes.
const MAX_FRAME: usize = lanyard_asic::sdk::MAX_FRAME;

/// A netdev connected to the CPU port.
#[derive(Debug)]
pub(crate) enum Outlet {
    /// A port of the front panel.
    Tap(Tap),
    /// The pipeline's side of a VLAN interface or a subinterface, with its index.
    Socket(u32, PacketSocket),
    /// The far end of a port's veth pair, by its index: programs in the kernel carry its frames, and setting it up or down sets
    /// the port's carrier.
    Far(u32),
}

impl Outlet {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tap(tap) => Some(tap.as_fd()),
            Self::Socket(_, socket) => Some(socket.as_fd()),
            Self::Far(_) => None,
        }
    }
    fn send(&self, frame: &[u8]) -> bool {
        match self {
            Self::Tap(tap) => tap.send(frame).is_ok(),
            Self::Socket(_, socket) => socket.send(frame).is_ok(),
            Self::Far(_) => false,
        }
    }
    /// The header of a frame that the kernel has sent to this netdev.
    fn header(&self, port: PortId) -> CpuHeader {
        let pipeline = matches!(self, Self::Socket(..));
        CpuHeader { pipeline, to: Some(port), ..CpuHeader::default() }
    }
}

/// The data that the thread shares with management and with the protocols.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// Readable while events wait.
    pub(crate) bell: EventFd,
    /// Readable while trapped frames wait.
    pub(crate) trap_bell: EventFd,
    /// Wakes the thread that carries frames.
    wake: EventFd,
}

/// Counters of frames for the control plane.
#[derive(Debug, Clone)]
pub(crate) struct TrapCounts {
    pub(crate) reasons: [u64; TrapReason::SLOTS],
    pub(crate) lost: [u64; TrapGroup::SLOTS],
}

#[derive(Debug)]
struct Inner {
    events: Vec<PlaneEvent>,
    lost: u64,
    traps: VecDeque<Trapped>,
    counts: TrapCounts,
    outlets: BTreeMap<PortId, Arc<Outlet>>,
    /// Incremented whenever `outlets` changes.
    generation: u64,
    /// The number of frames for interfaces that were lost because there was no netdev for them, or it refused them.
    undelivered: u64,
    /// Access lists, by which diverted frames are judged.
    lists: Acls,
    /// The time until which BPDUs are discarded at the latest, because they are older than an expiry of the watchdog; `None`
    /// while they are not discarded.
    stale_until: Option<Instant>,
    /// True if the chip's connection has ended.
    gone: bool,
    stop: bool,
}

impl Shared {
    pub(crate) fn new() -> nix::Result<Self> {
        let bell = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let counts = TrapCounts { reasons: [0; TrapReason::SLOTS], lost: [0; TrapGroup::SLOTS] };
        let inner = Inner {
            events: Vec::new(),
            lost: 0,
            traps: VecDeque::new(),
            counts,
            outlets: BTreeMap::new(),
            generation: 0,
            undelivered: 0,
            lists: Acls::default(),
            stale_until: None,
            gone: false,
            stop: false,
        };
        Ok(Self { inner: Mutex::new(inner), bell: bell()?, trap_bell: bell()?, wake: bell()? })
    }
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Connects a netdev to the CPU port, or (`None`) disconnects the port's netdev.
    pub(crate) fn set_outlet(&self, port: PortId, outlet: Option<Outlet>) {
        let mut inner = self.lock();
        match outlet {
            Some(outlet) => inner.outlets.insert(port, Arc::new(outlet)),
            None => inner.outlets.remove(&port),
        };
        inner.generation += 1;
        drop(inner);
        let _ = self.wake.write(1);
    }
    /// The index of the netdev of a VLAN interface's or subinterface's port; `None` for other ports.
    pub(crate) fn socket_at(&self, port: PortId) -> Option<u32> {
        match self.lock().outlets.get(&port)?.as_ref() {
            Outlet::Socket(ifindex, _) => Some(*ifindex),
            Outlet::Tap(_) | Outlet::Far(_) => None,
        }
    }
    /// The ports that have a netdev.
    pub(crate) fn outlets(&self) -> Vec<PortId> {
        self.lock().outlets.keys().copied().collect()
    }
    /// The ports whose netdevs are sockets.
    pub(crate) fn sockets(&self) -> Vec<PortId> {
        let inner = self.lock();
        let is_socket = |(port, outlet): (&PortId, &Arc<Outlet>)| {
            matches!(outlet.as_ref(), Outlet::Socket(..)).then_some(*port)
        };
        inner.outlets.iter().filter_map(is_socket).collect()
    }
    /// Sets the carrier of a front-panel port's netdev.
    pub(crate) fn set_carrier(&self, port: PortId, on: bool) {
        let outlet = self.lock().outlets.get(&port).cloned();
        match outlet.as_deref() {
            // An error is ignored: setting the carrier worked when the port was made.
            Some(Outlet::Tap(tap)) => drop(tap.set_carrier(on)),
            Some(Outlet::Far(ifindex)) => {
                let netdev = Netdev::open().ok();
                drop(netdev.map(|netdev| netdev.set_up(*ifindex, on)));
            }
            Some(Outlet::Socket(..)) | None => {}
        }
    }
    /// Makes management check for events, although there may be none.
    pub(crate) fn ring(&self) {
        let _ = self.bell.write(1);
    }
    /// Makes the protocols poll, although there may be no frame.
    pub(crate) fn ring_protocols(&self) {
        let _ = self.trap_bell.write(1);
    }
    /// Adds an event for management.
    pub(crate) fn push(&self, event: PlaneEvent) {
        let mut inner = self.lock();
        if inner.events.len() >= MAX_EVENTS {
            inner.lost += 1;
            return;
        }
        if inner.events.is_empty() {
            // The counter cannot overflow: it is incremented again only after it has been read.
            let _ = self.bell.write(1);
        }
        inner.events.push(event);
    }
    /// Returns the events since the last call, followed by the number of lost ones.
    pub(crate) fn events(&self) -> Vec<PlaneEvent> {
        let mut inner = self.lock();
        let _ = self.bell.read();
        let mut events = std::mem::take(&mut inner.events);
        match std::mem::take(&mut inner.lost) {
            0 => {}
            lost => events.push(PlaneEvent::Lost(lost)),
        }
        events
    }
    /// Returns at most `most` of the waiting trapped frames.
    pub(crate) fn traps(&self, most: usize) -> Vec<Trapped> {
        let mut inner = self.lock();
        let count = most.min(inner.traps.len());
        let taken = inner.traps.drain(..count).collect();
        if inner.traps.is_empty() {
            let _ = self.trap_bell.read();
        }
        taken
    }
    /// Discards the BPDUs that wait here, and from now on those that arrive on the chip's connection: the protocols are about to
    /// acknowledge an expiry of the watchdog of spanning tree. The chip's notice of the acknowledgement ends the discarding.
    pub(crate) fn discard_bpdus(&self) {
        let mut inner = self.lock();
        let before = inner.traps.len();
        inner.traps.retain(|trapped| trapped.reason.group() != TrapGroup::Stp);
        let discarded = before - inner.traps.len();
        inner.counts.lost[TrapGroup::Stp.index()] += discarded as u64;
        inner.stale_until = Some(Instant::now() + STALE);
    }
    /// The numbers of frames that came to the CPU, by reason, and of those that were lost, by trap group.
    pub(crate) fn counts(&self) -> TrapCounts {
        self.lock().counts.clone()
    }
    /// True once the chip's connection has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock().gone
    }

    /// Adds, replaces or removes an access list.
    pub(crate) fn set_list(&self, id: AclId, list: Option<Arc<PlaneList>>) {
        // This does not fail: a state with a list that exceeds a limit is not accepted.
        let _ = self.lock().lists.set(id, list);
    }
    /// True if there is such a list.
    pub(crate) fn has_list(&self, id: AclId) -> bool {
        self.lock().lists.matches(id).is_some()
    }
    /// The counts that this process has of a list: how often each rule has decided about diverted frames, and what
    /// [`Shared::add_matches`] has added.
    pub(crate) fn matches(&self, id: AclId) -> Vec<u64> {
        self.lock().lists.matches(id).map(<[u64]>::to_vec).unwrap_or_default()
    }
    /// Sets counts of a list to 0: see [`Acls::clear`].
    pub(crate) fn clear_matches(&self, id: AclId, of: Option<&str>) {
        self.lock().lists.clear(id, of);
    }
    /// Adds to the counts of a list.
    pub(crate) fn add_matches(&self, id: AclId, counts: &[u64]) {
        self.lock().lists.add(id, counts);
    }

    /// Judges a diverted frame by the lists that the chip has asked for.
    fn judge(&self, questions: &[Question]) -> Vec<Verdict> {
        let mut inner = self.lock();
        inner.counts.reasons[TrapReason::AclDiverted.index()] += 1;
        inner.lists.answer(questions)
    }

    /// Handles a frame from the chip.
    fn deliver(&self, header: CpuHeader, frame: Vec<u8>) {
        let Some(port) = header.port else { return };
        let mut inner = self.lock();
        if let Some(reason) = header.reason {
            inner.counts.reasons[reason.index()] += 1;
        }
        let upwards = header.to.or_else(|| {
            let reason = header.reason?;
            (reason.stage() == Stage::Route).then_some(port)
        });
        if let Some(interface) = upwards {
            let outlet = inner.outlets.get(&interface).cloned();
            drop(inner);
            if outlet.is_none_or(|outlet| !outlet.send(&frame)) {
                self.lock().undelivered += 1;
            }
            return;
        }
        let Some(reason) = header.reason else { return };
        let stale = inner.stale_until.is_some_and(|until| Instant::now() < until);
        if inner.traps.len() >= MAX_TRAPS || (stale && reason.group() == TrapGroup::Stp) {
            inner.counts.lost[reason.group().index()] += 1;
            return;
        }
        if inner.traps.is_empty() {
            let _ = self.trap_bell.write(1);
        }
        inner.traps.push_back(Trapped { port, reason, frame });
    }

    fn received(&self, event: Event) {
        match event {
            Event::Learned(entry) => self.push(PlaneEvent::FdbAdded(entry_of(&entry))),
            Event::Moved(entry, from) => self.push(PlaneEvent::FdbMoved { entry: entry_of(&entry), from }),
            Event::Gone(entry) => self.push(PlaneEvent::FdbDeleted(entry_of(&entry))),
            Event::Link(port, up) => self.set_carrier(port, up),
            Event::Lost(lost) => {
                self.lock().stale_until = None;
                self.push(PlaneEvent::Lost(lost));
            }
            Event::ExpiryAcknowledged => self.lock().stale_until = None,
        }
    }
}

/// Converts a learned entry to the plane's form.
pub(crate) fn entry_of(entry: &LearnedEntry) -> FdbEntry {
    FdbEntry {
        vlan: entry.vlan,
        mac: entry.mac,
        port: Some(entry.port),
        kind: FdbKind::Dynamic,
        age_s: entry.age_s,
    }
}

/// The thread that serves one connection to a chip.
#[derive(Debug)]
pub(crate) struct Carrier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    /// Subscribes to all of the chip's notices, and starts the thread. If `probes` is set, the thread sends a request to a chip
    /// from which no message has arrived for [`SILENT`], and reports the chip as gone if no message arrives within [`PATIENCE`]
    /// after that. Set it only for a chip with a watchdog of spanning tree, which answers this request without waiting for its
    /// bus.
    ///
    /// # Errors
    /// When the chip does not answer, or the system has no thread left.
    pub(crate) fn start(mut client: Client, shared: Arc<Shared>, probes: bool) -> Result<Self, String> {
        let mask = wants::LEARNING | wants::LINKS | wants::PACKETS | wants::DIVERTED | wants::EXPIRY;
        client.number(&Request::Subscribe(mask)).map_err(|error| error.to_string())?;
        {
            let mut inner = shared.lock();
            (inner.gone, inner.stop, inner.stale_until) = (false, false, None);
        }
        let early = client.notices();
        let (sender, receiver) = client.split();
        sender.set_patience(PATIENCE).map_err(|error| error.to_string())?;
        let carried = shared.clone();
        let run = move || {
            let mut sender = sender;
            let back: Vec<Request> = early.into_iter().filter_map(|notice| carried.take(notice)).collect();
            // If the connection has ended, this is noticed when it is read.
            let _ = sender.send_all(&back);
            carry(&carried, sender, receiver, probes.then(Silence::default));
        };
        let thread = std::thread::Builder::new().name("lanyard-cpu".into()).spawn(run);
        Ok(Self { shared, thread: Some(thread.map_err(|error| error.to_string())?) })
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        let _ = self.shared.wake.write(1);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Handles a notice; returns the request with which a diverted frame goes back to the chip.
    fn take(&self, notice: Notice) -> Option<Request> {
        match notice {
            Notice::Event(event) => self.received(event),
            Notice::Packet(header, frame) => self.deliver(header, frame),
            Notice::Diverted(frame, questions) => {
                return Some(Request::Judged(frame, self.judge(&questions)));
            }
        }
        None
    }
}

/// The time without a message from the chip after which the thread sends it a request.
const SILENT: Duration = Duration::from_secs(1);

/// The time since the last message from the chip.
#[derive(Debug)]
struct Silence {
    /// When the last message arrived, or, if `asked` is true, when the request was sent.
    since: Instant,
    /// True if the request has been sent since that message.
    asked: bool,
}

impl Default for Silence {
    fn default() -> Self {
        Self { since: Instant::now(), asked: false }
    }
}

impl Silence {
    /// Sends the request when it is due; returns true if the chip hangs, because no message has arrived within [`PATIENCE`] after
    /// it. The connections of a process that hangs stay open, so only this distinguishes a chip that hangs from an idle one.
    fn is_hung(&mut self, sender: &mut Sender) -> bool {
        if self.asked {
            return self.since.elapsed() >= PATIENCE;
        }
        if self.since.elapsed() >= SILENT {
            *self = Self { asked: true, ..Self::default() };
            return !sends(sender, &[Request::TreeExpiry(false)]);
        }
        false
    }
}

/// Sends requests; returns false if the chip does not read them. An ended connection is not noticed here but when it is read,
/// after the messages that arrived before.
fn sends(sender: &mut Sender, requests: &[Request]) -> bool {
    let sent = sender.send_all(requests);
    sent.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |()| true)
}

/// Carries frames until it is stopped, the chip's connection ends, or the chip hangs.
fn carry(shared: &Shared, mut sender: Sender, mut receiver: Receiver, mut silence: Option<Silence>) {
    let mut generation = u64::MAX;
    let mut outlets: Vec<(PortId, Arc<Outlet>)> = Vec::new();
    let mut buffer = Vec::new();
    loop {
        {
            let inner = shared.lock();
            if inner.stop {
                return;
            }
            if inner.generation != generation {
                generation = inner.generation;
                let read = inner.outlets.iter().filter(|(_, outlet)| outlet.fd().is_some());
                outlets = read.map(|(port, outlet)| (*port, outlet.clone())).collect();
            }
        }
        let Ok(ready) = wait(shared, &receiver, &outlets, silence.is_some()) else { continue };
        if ready[0] {
            let _ = shared.wake.read();
        }
        let mut gone = ready[1] && !from_chip(shared, &mut receiver, &mut sender);
        if let Some(silence) = &mut silence {
            if ready[1] {
                *silence = Silence::default();
            }
            gone = gone || silence.is_hung(&mut sender);
        }
        for ((port, outlet), _) in outlets.iter().zip(&ready[2..]).filter(|(_, ready)| **ready) {
            gone = gone || !sends(&mut sender, &from_netdev(*port, outlet, &mut buffer));
        }
        if gone {
            shared.lock().gone = true;
            let _ = shared.bell.write(1);
            return;
        }
    }
}

/// Waits, with `briefly` at most [`SILENT`]; returns for the wake-up, the chip and each netdev whether it is ready.
fn wait(
    shared: &Shared,
    receiver: &Receiver,
    outlets: &[(PortId, Arc<Outlet>)],
    briefly: bool,
) -> nix::Result<Vec<bool>> {
    let mut fds = vec![
        PollFd::new(shared.wake.as_fd(), PollFlags::POLLIN),
        PollFd::new(receiver.as_fd(), PollFlags::POLLIN),
    ];
    fds.extend(
        outlets.iter().filter_map(|(_, outlet)| outlet.fd()).map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
    );
    let limit =
        if briefly { PollTimeout::try_from(SILENT).unwrap_or(PollTimeout::NONE) } else { PollTimeout::NONE };
    poll(&mut fds, limit)?;
    let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
    Ok(fds.iter().map(ready).collect())
}

/// Handles the chip's messages; returns false if its connection has ended or it does not read.
fn from_chip(shared: &Shared, receiver: &mut Receiver, sender: &mut Sender) -> bool {
    let mut back = Vec::new();
    let mut alive = true;
    for _ in 0..TURN {
        match receiver.ready() {
            Ok(Some(Incoming::Notice(notice))) => back.extend(shared.take(notice)),
            // The answer to the request of `Silence`, the only one that is answered: like any message it shows that the chip
            // works.
            Ok(Some(Incoming::Answer(..))) => {}
            Ok(None) => break,
            Err(_) => {
                alive = false;
                break;
            }
        }
    }
    sends(sender, &back) && alive
}

/// Reads the frames that the kernel has sent to a netdev, as requests for the chip.
fn from_netdev(port: PortId, outlet: &Outlet, buffer: &mut Vec<u8>) -> Vec<Request> {
    let mut frames = Vec::new();
    while frames.len() < TURN {
        let frame = match outlet {
            Outlet::Tap(tap) => match tap.receive(buffer) {
                Ok(Some(frame)) => frame.to_vec(),
                Ok(None) | Err(_) => break,
            },
            Outlet::Socket(_, socket) => match socket.receive() {
                Ok(Some(packet)) if packet.outgoing => continue,
                Ok(Some(packet)) => packet.frame,
                Ok(None) | Err(_) => break,
            },
            Outlet::Far(_) => break,
        };
        if frame.len() <= MAX_FRAME {
            frames.push(Request::Packet(outlet.header(port), frame));
        }
    }
    frames
}
