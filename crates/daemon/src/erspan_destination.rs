//! ERSPAN destination sessions: sends the frames that packets carry out of the ports of monitor sessions.
//!
//! The kernel delivers the packets, whose addresses are its own, and puts fragments together; a thread for each address and VRF
//! reads copies of them by a raw socket, reads the headers ([`lanyard_wire::erspan::read`]), and sends the frames by packet
//! sockets, so the planes see them as frames that the port's netdev sends.
//!
//! Invariants: a thread waits for packets only. Each packet with ERSPAN for the address is received by one session or counted
//! with a reason; the kernel processes all packets as if the thread did not exist.

use crate::context::{Context, Module};
use crate::kernel::{KernelError, within};
use lanyard_cli::view::{ErspanPacketDrops, ErspanPortDrops, ErspanReceived};
use lanyard_config::Role;
use lanyard_netdev::{GreReceiver, PacketSocket};
use lanyard_wire::erspan::{Copied, Unreadable, read};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The maximum number of packets that are read before the thread looks at its sessions again.
const BATCH: usize = 64;
/// The time after which an address whose socket could not be opened is tried again.
const RETRY_MS: u64 = 5_000;

/// The VRF (`None`: the switch's own namespace) and the address to which packets are sent.
type Place = (Option<String>, Ipv4Addr);
/// The sessions of a place by ERSPAN ID.
type Sessions = BTreeMap<u16, Arc<Session>>;

/// The module for ERSPAN destination sessions.
#[derive(Debug, Default)]
pub(crate) struct ErspanDestinations {
    listeners: BTreeMap<Place, Listener>,
    /// Why a place has no listener.
    errors: BTreeMap<Place, String>,
    /// When the places in `errors` are tried again.
    retry_ms: Option<u64>,
}

/// The thread of a place. It ends when this value is dropped.
#[derive(Debug)]
struct Listener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that a thread and management share.
#[derive(Debug)]
struct Shared {
    receiver: GreReceiver,
    bell: EventFd,
    has_ended: AtomicBool,
    sessions: Mutex<Arc<Sessions>>,
    /// Why the thread has stopped.
    error: Mutex<Option<String>>,
    drops: PacketCounts,
}

/// A session that receives.
#[derive(Debug)]
struct Session {
    number: u16,
    ports: Vec<Port>,
    counts: Arc<Counts>,
}

/// A destination port.
#[derive(Debug, Clone)]
struct Port {
    name: String,
    /// 0 while the port has no netdev.
    ifindex: u32,
    socket: Option<Arc<PacketSocket>>,
}

#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    truncated: AtomicU64,
    sent: AtomicU64,
    port_down: AtomicU64,
    too_long: AtomicU64,
    queue_full: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct PacketCounts {
    unknown_id: AtomicU64,
    too_short: AtomicU64,
    gre_header: AtomicU64,
    gre_checksum: AtomicU64,
    version: AtomicU64,
    type_1: AtomicU64,
    not_ethernet: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl Module for ErspanDestinations {
    type Event<'a> = ();

    fn configure(&mut self, ctx: &mut Context) {
        let mut wanted = self.wanted(ctx);
        self.errors.retain(|place, _| wanted.contains_key(place));
        self.listeners.retain(|place, listener| wanted.contains_key(place) && listener.is_alive());
        for (place, listener) in &self.listeners {
            if let Some(sessions) = wanted.remove(place) {
                listener.shared.set(sessions);
            }
        }
        for (place, sessions) in wanted {
            match start(ctx, &place, sessions) {
                Ok(listener) => {
                    self.errors.remove(&place);
                    self.listeners.insert(place, listener);
                }
                Err(failure) => {
                    let reason = failure.to_string();
                    if self.errors.get(&place) != Some(&reason) {
                        let text = format!("Monitor sessions receive nothing at {}: {reason}", place.1);
                        ctx.log("MONITOR", 3, "ERSPAN", &text);
                    }
                    self.errors.insert(place, reason);
                }
            }
        }
        self.retry_ms = (!self.errors.is_empty()).then(|| ctx.clock.now_ms() + RETRY_MS);
    }

    fn handle(&mut self, _: &mut Context, (): ()) -> usize {
        0
    }

    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.retry_ms
    }

    fn tick(&mut self, ctx: &mut Context) {
        if self.retry_ms.is_some_and(|at_ms| at_ms <= ctx.clock.now_ms()) {
            self.configure(ctx);
        }
    }
}

impl ErspanDestinations {
    /// The sessions that the configuration wants, with the counts and sockets that they have already.
    fn wanted(&self, ctx: &Context) -> BTreeMap<Place, Sessions> {
        let config = ctx.switch.config();
        let mut wanted: BTreeMap<Place, Sessions> = BTreeMap::new();
        for (number, session) in &config.monitor {
            let Some(from) = &session.erspan_destination else { continue };
            let Some((id, address)) = from.receives() else { continue };
            let place = (from.vrf.clone(), address);
            let held = self.listeners.get(&place).and_then(|listener| listener.shared.session(*number));
            let is_port =
                |name: &&_| config.interfaces.get(name).is_some_and(|it| it.role == Role::Switchport);
            let port = |name: String| {
                let ifindex = ctx.facts().usable(&name).map_or(0, |link| link.ifindex);
                let same =
                    |port: &&Port| port.name == name && port.ifindex == ifindex && port.socket.is_some();
                let found = held.as_ref().and_then(|held| held.ports.iter().find(same)).cloned();
                found.unwrap_or_else(|| Port::open(name, ifindex))
            };
            let ports =
                session.destinations.iter().filter(is_port).map(|name| port(name.to_string())).collect();
            let counts = held.as_ref().map(|held| held.counts.clone()).unwrap_or_default();
            wanted.entry(place).or_default().insert(id, Arc::new(Session { number: *number, ports, counts }));
        }
        wanted
    }

    /// The state of a session, for `show monitor`.
    pub(crate) fn view(&self, ctx: &Context, number: u16) -> ErspanReceived {
        let session = ctx.switch.config().monitor.get(&number);
        let from = session.and_then(|session| session.erspan_destination.as_ref());
        let Some((_, address)) = from.and_then(|from| from.receives()) else {
            return ErspanReceived::default();
        };
        let place = (from.and_then(|from| from.vrf.clone()), address);
        let error = self.errors.get(&place).cloned();
        let Some(listener) = self.listeners.get(&place) else {
            return ErspanReceived { error, ..ErspanReceived::default() };
        };
        let shared = &listener.shared;
        let state = ErspanReceived {
            running: listener.is_alive(),
            error: error.or_else(|| shared.error.lock().ok().and_then(|text| text.clone())),
            packets_dropped: shared.drops.view(shared.receiver.missed().unwrap_or_default()),
            ..ErspanReceived::default()
        };
        let Some(session) = shared.session(number) else { return state };
        let counts = &session.counts;
        ErspanReceived {
            received: get(&counts.received),
            truncated: get(&counts.truncated),
            sent: get(&counts.sent),
            dropped: ErspanPortDrops {
                port_down: get(&counts.port_down),
                too_long: get(&counts.too_long),
                queue_full: get(&counts.queue_full),
                refused: get(&counts.refused),
            },
            ..state
        }
    }
}

/// The reason why a place has no listener.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0} is no address of the switch")]
    NoAddress(Ipv4Addr),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Opens the socket of a place and starts its thread.
fn start(ctx: &Context, (vrf, address): &Place, sessions: Sessions) -> Result<Listener, Failure> {
    let failed =
        |step: &str, cause: io::Error| KernelError::Io { doing: format!("{step} for {address}"), cause };
    let opened = within(&*ctx.kernel, vrf.as_deref(), || GreReceiver::open(*address))?;
    let receiver = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL) => Failure::NoAddress(*address),
        _ => failed("opening the socket", error).into(),
    })?;
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|error| failed("preparing the thread", error.into()))?;
    let shared = Arc::new(Shared {
        receiver,
        bell,
        has_ended: AtomicBool::new(false),
        sessions: Mutex::new(Arc::new(sessions)),
        error: Mutex::new(None),
        drops: PacketCounts::default(),
    });
    let own = shared.clone();
    let thread = std::thread::Builder::new()
        .name("lanyard-erspan".into())
        .spawn(move || own.work())
        .map_err(|error| failed("starting the thread", error))?;
    Ok(Listener { shared, thread: Some(thread) })
}

impl Listener {
    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        let _ = self.shared.bell.write(1);
        // The bell ends the thread's only wait, so this does not block.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn sessions(&self) -> Arc<Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The session with this number.
    fn session(&self, number: u16) -> Option<Arc<Session>> {
        self.sessions().values().find(|session| session.number == number).cloned()
    }
    fn set(&self, sessions: Sessions) {
        *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(sessions);
    }

    /// Receives packets until the place is not wanted any more.
    fn work(&self) {
        let mut buffer = Vec::new();
        while !self.has_ended.load(Ordering::Acquire) {
            let sessions = self.sessions();
            for _ in 0..BATCH {
                match self.receiver.receive(&mut buffer) {
                    Ok(Some(packet)) => self.packet(&sessions, packet),
                    Ok(None) => {
                        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
                        let mut both = [watch(self.receiver.as_fd()), watch(self.bell.as_fd())];
                        let _ = poll(&mut both, PollTimeout::NONE);
                        break;
                    }
                    Err(error) => {
                        let text = format!("receiving packets: {error}");
                        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                        return;
                    }
                }
            }
        }
    }

    /// Handles a GRE packet. Packets without ERSPAN are ignored.
    fn packet(&self, sessions: &Sessions, packet: &[u8]) {
        match read(packet) {
            None => {}
            Some(Ok(copied)) => match sessions.get(&copied.session) {
                Some(session) => session.send(copied),
                None => add(&self.drops.unknown_id),
            },
            Some(Err(reason)) => add(self.drops.of(reason)),
        }
    }
}

impl Session {
    fn send(&self, copied: Copied<'_>) {
        add(&self.counts.received);
        if copied.truncated {
            add(&self.counts.truncated);
        }
        for port in &self.ports {
            let sent = match &port.socket {
                Some(socket) => socket.send(copied.frame),
                None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
            };
            add(sent.map_or_else(|error| self.counts.of(&error), |()| &self.counts.sent));
        }
    }
}

impl Port {
    fn open(name: String, ifindex: u32) -> Self {
        let socket = (ifindex != 0).then(|| PacketSocket::sender(ifindex).ok().map(Arc::new)).flatten();
        Self { name, ifindex, socket }
    }
}

impl Counts {
    /// The count of copies that a port has not sent because of this error.
    fn of(&self, error: &io::Error) -> &AtomicU64 {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV) => &self.port_down,
            Some(Errno::EMSGSIZE) => &self.too_long,
            Some(Errno::EAGAIN | Errno::ENOBUFS) => &self.queue_full,
            _ => &self.refused,
        }
    }
}

impl PacketCounts {
    /// The count of packets that cannot be read for this reason.
    fn of(&self, reason: Unreadable) -> &AtomicU64 {
        match reason {
            Unreadable::Short => &self.too_short,
            Unreadable::Gre => &self.gre_header,
            Unreadable::Checksum => &self.gre_checksum,
            Unreadable::Version => &self.version,
            Unreadable::TypeOne => &self.type_1,
            Unreadable::NotEthernet => &self.not_ethernet,
        }
    }
    fn view(&self, overflow: u32) -> ErspanPacketDrops {
        ErspanPacketDrops {
            unknown_id: get(&self.unknown_id),
            overflow: u64::from(overflow),
            too_short: get(&self.too_short),
            gre_header: get(&self.gre_header),
            gre_checksum: get(&self.gre_checksum),
            version: get(&self.version),
            type_1: get(&self.type_1),
            not_ethernet: get(&self.not_ethernet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_count() {
        let counts = Counts::default();
        for (errno, count) in [
            (libc::ENETDOWN, &counts.port_down),
            (libc::ENXIO, &counts.port_down),
            (libc::EMSGSIZE, &counts.too_long),
            (libc::ENOBUFS, &counts.queue_full),
            (libc::EAGAIN, &counts.queue_full),
            (libc::EPERM, &counts.refused),
        ] {
            assert!(std::ptr::eq(counts.of(&io::Error::from_raw_os_error(errno)), count), "{errno}");
        }
    }
}
