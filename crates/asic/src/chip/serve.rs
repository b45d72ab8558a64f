//! The chip's process: its socket, its sessions, the wires of its front panel, and the clock.
//!
//! One thread waits for all of them. Only the chip and the switch may use the socket: its mode is 0600, and a peer must
//! be root or the user as which the chip runs. Drivers may connect and disconnect; meanwhile the chip continues to
//! forward and keeps its configuration and its learned addresses.

pub use super::links::Wire;

use super::links::{self, CpuWire};
use super::watch::{Watch, bell};

use super::device::{Device, Exit, SessionId};
use super::segments::Offload;
use crate::platform::Platform;
use crate::sdk::MAX_MESSAGE;
use crate::sdk::cpu::CpuHeader;
use crate::sdk::faults::FaultPlan;
use crate::sdk::message::{Request, announced};
use lanyard_netdev::Netdev;
use lanyard_pipeline::Timestamp;
use lanyard_types::{PortId, PortSet};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The most drivers at a time.
const MAX_SESSIONS: usize = 64;
/// The interval in milliseconds at which all wires and their links are checked.
const LINKS_MS: u64 = 250;
/// The time in nanoseconds before the end of a request ([`Device::awaited`]) in which the chip polls instead of sleeping.
const AWAKE_NS: u64 = 60_000;
/// The number of frames after which [`Server::receive`] returns to the main loop instead of reading the wires again.
const FRAMES: usize = 64;
/// The most bytes read from a driver in one round of the main loop.
const TURN: usize = 1 << 16;

/// The options with which a chip's process is started.
#[derive(Debug)]
pub struct Options {
    /// The platform.
    pub platform: Platform,
    /// The salt, which determines which keys collide.
    pub salt: u64,
    /// A number that differs for each start of the chip, for [`Welcome::boot`](crate::sdk::message::Welcome::boot).
    pub boot: u64,
    /// The connections of the front-panel ports. Ports without one have no link.
    pub wires: BTreeMap<PortId, Wire>,
    /// The names of netdevs: a port is connected to its netdev as soon as this exists.
    pub plugs: BTreeMap<PortId, String>,
    /// The fault plan at the start.
    pub faults: FaultPlan,
}

/// The way in which a chip ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was stopped.
    Stopped,
    /// A fault plan made it die.
    Died,
}

/// Ends a chip that runs on another thread.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<EventFd>);

impl Stopper {
    /// Ends the chip.
    pub fn stop(&self) {
        let _ = self.0.write(1);
    }
}

#[derive(Debug)]
struct Peer {
    stream: UnixStream,
    input: Vec<u8>,
    gone: bool,
}

/// See the module comment.
#[derive(Debug)]
pub struct Server {
    device: Device,
    listener: UnixListener,
    wires: BTreeMap<PortId, Wire>,
    plugs: BTreeMap<PortId, String>,
    /// Where frames for interfaces are received and sent, if a driver has chosen a netdev for them.
    cpu: Option<CpuWire>,
    peers: BTreeMap<SessionId, Peer>,
    /// The time at which the chip was started, in nanoseconds of its clock.
    origin: u64,
    links_due: u64,
    netdev: Option<Netdev>,
    /// Watches the links of members of port-channels; started with the first member.
    watch: Option<Watch>,
    /// The ports whose links are to be watched: those of [`Chip::distributing`](super::Chip::distributing).
    watched: PortSet,
    bell: Arc<EventFd>,
}

/// Where frames leave the chip.
struct Outside<'a> {
    wires: &'a BTreeMap<PortId, Wire>,
    cpu: Option<&'a CpuWire>,
}

impl Exit for Outside<'_> {
    fn front(&mut self, port: PortId, frame: &[u8], pending: &Offload) -> bool {
        // A frame for a port without a wire is lost, which is no refusal.
        self.wires.get(&port).is_none_or(|wire| wire.send(frame, pending))
    }
    fn cpu(&mut self, header: &CpuHeader, frame: &[u8], pending: &Offload) {
        if let Some(cpu) = self.cpu {
            cpu.send(header, frame, pending);
        }
    }
}

/// The time since the machine was started, in nanoseconds: the clock of the chip's watchdogs. The time of a suspended machine
/// counts, because neighbours did not get a BPDU during it. Every kernel that runs a chip has this clock.
#[must_use]
pub fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |now| now.num_nanoseconds());
    u64::try_from(now).unwrap_or_default()
}

/// The time that has passed since `origin`.
fn since(origin: u64) -> Timestamp {
    Timestamp::from_nanos(clock_ns().saturating_sub(origin))
}

/// Listens at a socket with mode 0600. An existing socket whose process has ended is replaced.
///
/// # Errors
/// When another chip listens at `path`, or the process may not create a socket in its directory.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixStream::connect(path) {
        Ok(_) => {
            return Err(io::Error::new(
                ErrorKind::AddrInUse,
                format!("{}: a chip listens there", path.display()),
            ));
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
        Err(_) => {}
    }
    // With the umask the socket has its mode from the moment of its creation.
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

impl Server {
    /// Creates a chip that answers at `listener`.
    ///
    /// # Errors
    /// When a port of [`Options::wires`] or [`Options::plugs`] is not in the platform, or the system has no descriptor left.
    pub fn new(options: Options, listener: UnixListener) -> io::Result<Self> {
        let mut device = Device::new(&options.platform, options.salt, options.boot);
        device.set_faults(options.faults);
        if let Some(stray) = options
            .wires
            .keys()
            .chain(options.plugs.keys())
            .find(|port| !device.fabric().ports().any(|known| known == **port))
        {
            return Err(io::Error::other(format!("platform {} has no port {stray}", options.platform.name)));
        }
        listener.set_nonblocking(true)?;
        let bell = bell()?;
        Ok(Self {
            device,
            listener,
            netdev: (!options.plugs.is_empty()
                || options.wires.values().any(|wire| matches!(wire, Wire::Netdev { .. })))
            .then(Netdev::open)
            .transpose()?,
            wires: options.wires,
            plugs: options.plugs,
            cpu: None,
            peers: BTreeMap::new(),
            origin: clock_ns(),
            links_due: 0,
            watch: None,
            watched: PortSet::EMPTY,
            bell: Arc::new(bell),
        })
    }

    /// A handle that ends this chip from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.bell.clone())
    }

    /// Runs until the chip is stopped or dies.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn run(mut self) -> io::Result<End> {
        // To save power the kernel may wake a sleeping thread 50 us late, which is as long as a write takes.
        let _ = nix::sys::prctl::set_timerslack(1);
        loop {
            let now = self.now();
            if now.as_nanos() >= self.links_due {
                self.links_due = now.as_nanos() + LINKS_MS * 1_000_000;
                self.look_at_wires();
            }
            self.device.advance(now);
            if self.device.is_dead() {
                return Ok(End::Died);
            }
            if *self.device.chip().distributing() != self.watched {
                self.watch_members();
            }
            self.send(now);
            // Requests that were read but could not be taken yet.
            let held: Vec<SessionId> =
                self.peers.iter().filter(|(_, peer)| !peer.input.is_empty()).map(|(id, _)| *id).collect();
            held.into_iter().for_each(|id| self.take(id));
            if self.wait()? {
                return Ok(End::Stopped);
            }
        }
    }

    /// Connects ports to netdevs that have appeared, disconnects ports whose netdev has disappeared, and updates the
    /// links.
    fn look_at_wires(&mut self) {
        let netdev = self.netdev.as_ref();
        let gone = |wire: &Wire| netdev.is_some_and(|netdev| wire.is_gone(netdev));
        let lost: Vec<PortId> =
            self.wires.iter().filter(|(_, wire)| gone(wire)).map(|(port, _)| *port).collect();
        for port in lost {
            self.wires.remove(&port);
            self.device.link(port, false);
        }
        if self.cpu.as_ref().zip(netdev).is_some_and(|(cpu, netdev)| cpu.is_gone(netdev)) {
            self.cpu = None;
            self.device.set_cpu_netdev(Ok(false));
        }
        for (port, name) in &self.plugs {
            if self.wires.contains_key(port) || !links::exists(name) {
                continue;
            }
            // After a failure (no permission, or a netdev that is just being created) the next call tries again.
            if let Ok(wire) = Wire::plug(name) {
                self.wires.insert(*port, wire);
            }
        }
        self.wires.iter().for_each(|(port, wire)| self.device.link(*port, wire.is_up(netdev)));
        self.watch_members();
    }

    /// Sets the links to watch: those of the members by which port-channels send now.
    fn watch_members(&mut self) {
        self.watched = self.device.chip().distributing().clone();
        if self.watch.is_none() && !self.watched.is_empty() && self.netdev.is_some() {
            // If the thread cannot be started, these links are only checked like all others, every `LINKS_MS`.
            self.watch = Watch::start().ok();
        }
        if let Some(watch) = &self.watch {
            watch.set(self.watched.iter().filter_map(|port| Some((port, self.wires.get(&port)?))));
        }
    }

    fn now(&self) -> Timestamp {
        since(self.origin)
    }

    /// Sends waiting output: frames out of the front panel, answers and notices.
    fn send(&mut self, now: Timestamp) {
        let mut out = Outside { wires: &self.wires, cpu: self.cpu.as_ref() };
        for (port, frame, pending) in self.device.leaving(now) {
            if !out.front(port, &frame, &pending) {
                self.device.count_refused(port, frame.len());
            }
        }
        for (header, frame, pending) in self.device.cpu_frames() {
            out.cpu(&header, &frame, &pending);
        }
        for (id, peer) in &mut self.peers {
            if let Some(output) = self.device.output(*id) {
                peer.flush(output);
            }
            peer.gone |=
                self.device.closing(*id) && self.device.output(*id).is_none_or(|output| output.is_empty());
        }
        let gone: Vec<SessionId> =
            self.peers.iter().filter(|(_, peer)| peer.gone).map(|(id, _)| *id).collect();
        for id in gone {
            self.peers.remove(&id);
            self.device.close(id);
        }
    }

    /// Waits for something to do, and reads it; returns true when the chip must stop.
    fn wait(&mut self) -> io::Result<bool> {
        let due = self.device.next().map_or(self.links_due, |next| next.as_nanos().min(self.links_due));
        let mut wait = due.saturating_sub(self.now().as_nanos());
        if self.device.awaited().is_some_and(|awaited| awaited.as_nanos() <= due) {
            // The kernel wakes a sleeping thread late, by as much as a query takes: the last part of the time is spent polling.
            wait = wait.saturating_sub(AWAKE_NS);
        }
        let wait = Duration::from_nanos(wait);
        let ids: Vec<SessionId> = self.peers.keys().copied().collect();
        let ports: Vec<PortId> = self.wires.keys().copied().collect();
        let mut fds = vec![
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        for id in &ids {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, self.device.takes(*id));
            flags.set(PollFlags::POLLOUT, self.device.output(*id).is_some_and(|output| !output.is_empty()));
            fds.push(PollFd::new(self.peers[id].stream.as_fd(), flags));
        }
        fds.extend(self.wires.values().map(|wire| PollFd::new(wire.fd(), PollFlags::POLLIN)));
        if let Some(cpu) = &self.cpu {
            fds.push(PollFd::new(cpu.fd(), PollFlags::POLLIN));
        }
        fds.extend(self.watch.iter().map(|watch| PollFd::new(watch.bell().as_fd(), PollFlags::POLLIN)));
        match ppoll(&mut fds, Some(TimeSpec::from_duration(wait)), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> =
            fds.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty())).collect();
        drop(fds);
        if ready[0] {
            return Ok(true);
        }
        // Expired watchdogs first: a process that was stopped meanwhile (SIGSTOP) blocks the ports before it forwards frames that
        // have waited.
        self.device.watch(self.now());
        if ready[1] {
            self.accept();
        }
        for (id, _) in ids.iter().zip(&ready[2..]).filter(|(_, ready)| **ready) {
            self.read(*id);
        }
        let links = 2 + ids.len() + ports.len() + usize::from(self.cpu.is_some());
        if let (Some(watch), Some(true)) = (&self.watch, ready.get(links)) {
            for (port, up) in watch.changes() {
                // The port may have been disconnected since the change was observed; then it has no link any more.
                if self.wires.contains_key(&port) {
                    self.device.link(port, up);
                }
            }
        }
        let cpu = ready.get(2 + ids.len() + ports.len()) == Some(&true);
        let ports = ports.iter().zip(&ready[2 + ids.len()..]).filter(|(_, ready)| **ready);
        self.receive(cpu, &ports.map(|(port, _)| *port).collect::<Vec<_>>());
        Ok(false)
    }

    /// Handles the frames that wait at the CPU port, if `cpu` is set, and at the wires of `ports`. Then it reads these wires and
    /// the CPU port again, until none has a frame, [`FRAMES`] frames have been handled or something else is due: the next frame
    /// often arrives while one is handled, and reading two sockets costs a third of a `ppoll` of all descriptors.
    fn receive(&mut self, cpu: bool, ports: &[PortId]) {
        let origin = self.origin;
        let (device, wires) = (&mut self.device, &self.wires);
        let (mut look_at_cpu, mut handled) = (cpu, 0);
        loop {
            let mut taken = 0;
            if let Some(cpu) = self.cpu.as_ref().filter(|_| look_at_cpu) {
                let mut out = Outside { wires, cpu: Some(cpu) };
                // The clock is read for each frame: a port may have become free since the previous one.
                taken += cpu.receive(|header, frame, pending| {
                    device.cpu_buffer(since(origin), header, pending, frame, Some(&mut out));
                });
            }
            for port in ports {
                let mut out = Outside { wires, cpu: self.cpu.as_ref() };
                taken += wires[port].receive(|frame, pending| {
                    device.buffer(since(origin), *port, pending, frame, Some(&mut out));
                });
            }
            handled += taken;
            let is_due = || device.next().is_some_and(|next| next <= since(origin));
            if taken == 0 || handled >= FRAMES || device.is_dead() || is_due() {
                return;
            }
            look_at_cpu = true;
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let own = nix::unistd::geteuid().as_raw();
            let allowed =
                getsockopt(&stream, PeerCredentials).is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own);
            if !allowed || self.peers.len() >= MAX_SESSIONS || stream.set_nonblocking(true).is_err() {
                continue; // closed
            }
            self.peers.insert(self.device.open(), Peer { stream, input: Vec::new(), gone: false });
        }
    }

    fn read(&mut self, id: SessionId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.fill();
        }
        self.take(id);
    }

    /// Handles requests that have been read. A driver that sends an invalid request is disconnected.
    fn take(&mut self, id: SessionId) {
        let now = self.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let mut taken = 0;
        // The input is processed in parts, so that a session never has many more waiting requests than permitted.
        while self.device.takes(id) {
            let waiting = &peer.input[taken..];
            let message = match announced(waiting) {
                Ok(length) => length.and_then(|length| waiting.get(..length)),
                Err(_) => {
                    peer.gone = true;
                    break;
                }
            };
            let Some(message) = message else { break };
            taken += message.len();
            match Request::decode(message) {
                Ok((number, request)) => {
                    if let Request::CpuNetdev(name) = &request
                        && self.device.is_greeted(id)
                    {
                        let opened = if name.is_empty() { Ok(None) } else { CpuWire::open(name).map(Some) };
                        let outcome = opened.map(|cpu| self.cpu = cpu).map_err(|error| error.to_string());
                        self.device.set_cpu_netdev(outcome.map(|()| self.cpu.is_some()));
                    }
                    self.device.request(now, id, number, request);
                }
                Err(_) => {
                    peer.gone = true;
                    break;
                }
            }
        }
        peer.input.drain(..taken);
    }
}

impl Peer {
    fn fill(&mut self) {
        let mut chunk = [0; TURN];
        if self.input.len() >= MAX_MESSAGE {
            return;
        }
        match self.stream.read(&mut chunk) {
            Ok(0) => self.gone = true,
            Ok(count) => self.input.extend_from_slice(&chunk[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.gone = true,
        }
    }

    fn flush(&mut self, output: &mut VecDeque<u8>) {
        while !output.is_empty() {
            match self.stream.write(output.as_slices().0) {
                Ok(0) => break,
                Ok(count) => drop(output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }
}
