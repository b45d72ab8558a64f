//! ERSPAN: sends the copies of monitor sessions in packets. `erspan_destination.rs` receives such packets.
//!
//! The plane sends the copies of a session to a TAP of the session's own, as it does to the destination port of another session,
//! each behind a tag with the frame's VLAN. A thread for each session reads them there, makes the payload of the packets
//! ([`lanyard_wire::erspan`]) and sends these by a raw socket, so that the kernel routes them like packets of its own.
//!
//! Invariants: no copy holds ERSPAN, so none can be copied again without end. The threads wait for nothing but copies: the
//! netdev's queue is bounded, and a copy that cannot be sent at once is counted and lost.

use crate::context::{Context, Module};
use crate::kernel::{KernelError, within};
use lanyard_cli::view::{ErspanDrops, ErspanState};
use lanyard_config::{ErspanTunnel, ErspanType};
use lanyard_netdev::{GreSocket, Tap};
use lanyard_switch::monitor::{erspan_netdev, prepare_erspan};
use lanyard_wire::erspan::{self, Header, Kind};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The maximum number of copies that are sent before the thread looks at its settings again.
const BATCH: usize = 64;
/// The time after which a session that could not be started is tried again.
const RETRY_MS: u64 = 5_000;

/// The sessions.
#[derive(Debug, Default)]
pub(crate) struct Erspan {
    sessions: BTreeMap<u16, Session>,
    /// Why a session is not running, by the session's number.
    errors: BTreeMap<u16, String>,
    /// When the sessions in `errors` are tried again.
    retry_ms: Option<u64>,
}

/// A session that sends. When it is dropped, its thread ends and its netdev is removed.
#[derive(Debug)]
struct Session {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The VRF in which the packets are routed; `None` for the switch's own namespace.
    vrf: Option<String>,
}

/// The state that a session's thread and management share.
#[derive(Debug)]
struct Shared {
    tunnel: Mutex<ErspanTunnel>,
    socket: GreSocket,
    bell: EventFd,
    has_ended: AtomicBool,
    /// Why the thread has stopped.
    error: Mutex<Option<String>>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    truncated: AtomicU64,
    no_route: AtomicU64,
    no_origin: AtomicU64,
    erspan: AtomicU64,
    queue_full: AtomicU64,
    refused: AtomicU64,
}

impl Module for Erspan {
    type Event<'a> = ();

    fn configure(&mut self, ctx: &mut Context) {
        let config = ctx.switch.config();
        let vrf = |number| config.monitor.get(&number)?.erspan.as_ref()?.vrf.clone();
        let wanted: BTreeMap<u16, (Option<String>, ErspanTunnel)> =
            config.erspan_tunnels().map(|(number, tunnel)| (number, (vrf(number), tunnel))).collect();
        self.errors.retain(|number, _| wanted.contains_key(number));
        // A session that has lost its netdev gets a new one. Its thread may not have noticed the loss yet.
        let kernel = &*ctx.kernel;
        let stays = |number: &u16, session: &mut Session| {
            wanted.get(number).is_some_and(|(vrf, _)| *vrf == session.vrf)
                && session.is_alive()
                && kernel.link(None, &erspan_netdev(*number)).is_ok()
        };
        self.sessions.retain(stays);
        for (number, (vrf, tunnel)) in wanted {
            let result = match self.sessions.get(&number) {
                Some(session) => session.set(tunnel),
                None => {
                    start(ctx, number, vrf, tunnel).map(|session| _ = self.sessions.insert(number, session))
                }
            };
            match result {
                Ok(()) => _ = self.errors.remove(&number),
                Err(error) => {
                    let reason = error.to_string();
                    if self.errors.get(&number) != Some(&reason) {
                        let text = format!("Monitor session {number} sends nothing: {reason}");
                        ctx.log("MONITOR", 3, "ERSPAN", &text);
                    }
                    self.errors.insert(number, reason);
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

impl Erspan {
    /// The state of a session, for `show monitor`.
    pub(crate) fn view(&self, ctx: &mut Context, number: u16) -> ErspanState {
        let error = self.errors.get(&number).cloned();
        let Some(session) = self.sessions.get(&number) else {
            return ErspanState { error, ..ErspanState::default() };
        };
        let name = erspan_netdev(number);
        let counts = &session.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let port = ctx.switch.ports().get(&name);
        let is_enabled = port
            .and_then(|port| ctx.plane.state().ports.get(&port))
            .is_some_and(|port| port.enabled && port.ifindex != 0);
        let dropped = ErspanDrops {
            no_route: read(&counts.no_route),
            no_origin: read(&counts.no_origin),
            erspan: read(&counts.erspan),
            queue_full: read(&counts.queue_full),
            overflow: ctx.kernel.link(None, &name).map_or(0, |link| link.stats.tx.dropped),
            not_running: port.map_or(0, |port| ctx.plane.port_counters(port).tx_dropped),
            refused: read(&counts.refused),
        };
        ErspanState {
            running: session.is_alive() && is_enabled,
            error: error.or_else(|| session.shared.error.lock().ok().and_then(|text| text.clone())),
            sent: read(&counts.sent),
            truncated: read(&counts.truncated),
            dropped,
        }
    }
}

/// Makes a session's netdev and starts its thread.
fn start(
    ctx: &mut Context,
    number: u16,
    vrf: Option<String>,
    tunnel: ErspanTunnel,
) -> Result<Session, KernelError> {
    let name = erspan_netdev(number);
    let doing = |step: &str| {
        let doing = format!("{step} {name}");
        move |cause: io::Error| KernelError::Io { doing, cause }
    };
    let tap = Tap::temporary(&name).map_err(doing("making the netdev"))?;
    let link = ctx.kernel.link(None, &name)?;
    let found = ctx.kernel.link_facts(None, &link);
    ctx.switch.facts_mut().set(found);
    ctx.kernel.learn_hosts(std::slice::from_ref(&name), ctx.switch.facts_mut());
    if let Some(found) = ctx.facts().get(&name) {
        let action = prepare_erspan(found);
        let results = ctx.kernel.act(std::slice::from_ref(&action));
        results.into_iter().collect::<Result<(), _>>()?;
    }
    let kernel = &*ctx.kernel;
    let opened = within(kernel, vrf.as_deref(), GreSocket::open)?;
    let socket = opened.map_err(doing("opening the socket for the packets of"))?;
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|error| doing("preparing the thread of")(error.into()))?;
    let shared = Arc::new(Shared {
        tunnel: Mutex::new(tunnel),
        socket,
        bell,
        has_ended: AtomicBool::new(false),
        error: Mutex::new(None),
        counts: Counts::default(),
    });
    let own = shared.clone();
    // A new thread is in the namespace of the thread that starts it. This one has to be in the VRF's namespace, where
    // [`Counts::of`] looks for addresses.
    let spawn =
        move || std::thread::Builder::new().name("lanyard-erspan".into()).spawn(move || own.work(&tap));
    let thread = within(kernel, vrf.as_deref(), spawn)?.map_err(doing("starting the thread of"))?;
    let session = Session { shared, thread: Some(thread), vrf };
    session.set(tunnel)?;
    Ok(session)
}

impl Session {
    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
    /// Sends with these settings from now on.
    fn set(&self, tunnel: ErspanTunnel) -> Result<(), KernelError> {
        let shared = &self.shared;
        *shared.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = tunnel;
        shared.socket.set(tunnel.ttl, tunnel.dscp).map_err(|cause| KernelError::Io {
            doing: format!("setting TTL {} and DSCP {}", tunnel.ttl, tunnel.dscp),
            cause,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        let _ = self.shared.bell.write(1);
        // The bell ends the thread's only wait, so this does not block. The netdev's name is free once the thread has ended.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The state of a session's thread.
struct Sender {
    /// The sequence number of the next packet.
    sequence: u32,
    /// When the thread began: the times of type III count from there.
    since: Instant,
    frame: Vec<u8>,
    packet: Vec<u8>,
}

impl Shared {
    /// Sends the copies that arrive at the session's netdev until the session ends.
    fn work(&self, tap: &Tap) {
        let (mut sender, mut buffer) = (
            Sender { sequence: 0, since: Instant::now(), frame: Vec::new(), packet: Vec::new() },
            Vec::new(),
        );
        while !self.has_ended.load(Ordering::Acquire) {
            let tunnel = *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..BATCH {
                match tap.receive(&mut buffer) {
                    Ok(Some(copy)) => sender.copy(self, tunnel, copy),
                    Ok(None) => {
                        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
                        let mut both = [watch(tap.as_fd()), watch(self.bell.as_fd())];
                        let _ = poll(&mut both, PollTimeout::NONE);
                        break;
                    }
                    Err(error) => {
                        let text = format!("reading the session's netdev: {error}");
                        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                        return;
                    }
                }
            }
        }
    }
}

impl Sender {
    /// Sends one copy.
    fn copy(&mut self, shared: &Shared, tunnel: ErspanTunnel, copy: &[u8]) {
        let counts = &shared.counts;
        let add = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
        // A frame without the VLAN's mark does not come from the plane, but from a program on this machine.
        let Some(vlan) = erspan::unmark(copy, &mut self.frame) else { return };
        if erspan::is_erspan(&self.frame) {
            return add(&counts.erspan);
        }
        let kind = match tunnel.header {
            ErspanType::Two => Kind::Two,
            ErspanType::Three => Kind::Three { ticks: (self.since.elapsed().as_micros() / 100) as u32 },
        };
        let room = usize::from(tunnel.mtu).saturating_sub(erspan::IPV4_LEN + kind.overhead());
        let header = Header { kind, sequence: self.sequence, session: tunnel.id, vlan };
        erspan::payload(header, &self.frame, room, &mut self.packet);
        match shared.socket.send(tunnel.origin, tunnel.destination, &self.packet) {
            Ok(()) => {
                self.sequence = self.sequence.wrapping_add(1);
                if self.frame.len() > room {
                    add(&counts.truncated);
                }
                add(&counts.sent);
            }
            Err(error) => add(counts.of(&error, tunnel.origin)),
        }
    }
}

impl Counts {
    /// The count of copies from `origin` that were not sent because of this error.
    fn of(&self, error: &io::Error, origin: Ipv4Addr) -> &AtomicU64 {
        match error.raw_os_error().map(Errno::from_raw) {
            // The kernel also reports this error for a source address that it does not have.
            Some(Errno::ENETUNREACH) if UdpSocket::bind((origin, 0)).is_err() => &self.no_origin,
            Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN) => &self.no_route,
            Some(Errno::EINVAL | Errno::EADDRNOTAVAIL) => &self.no_origin,
            Some(Errno::EAGAIN | Errno::ENOBUFS) => &self.queue_full,
            _ => &self.refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_count() {
        let counts = Counts::default();
        let (own, other) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 99));
        for (errno, origin, count) in [
            (libc::ENETUNREACH, own, &counts.no_route),
            (libc::ENETUNREACH, other, &counts.no_origin),
            (libc::EHOSTUNREACH, own, &counts.no_route),
            (libc::EINVAL, other, &counts.no_origin),
            (libc::ENOBUFS, own, &counts.queue_full),
            (libc::EAGAIN, own, &counts.queue_full),
            (libc::EPERM, own, &counts.refused),
        ] {
            let found = counts.of(&io::Error::from_raw_os_error(errno), origin);
            assert!(std::ptr::eq(found, count), "{errno} from {origin}");
        }
    }
}
