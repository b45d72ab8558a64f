//! Access control of ports (802.1X) on the management thread: the authenticator, its sockets to the RADIUS servers, its file and
//! its log lines.
//!
//! Invariants: a port is locked in the plane until the authenticator has opened it, and [`Outcome`] makes the caller lock or open
//! ports before frames are sent. The authorized hosts are in a file, so that a restart of the daemon closes no port; the new
//! daemon authenticates each of them again. Sending never waits.

use crate::context::{Context, Module};
use crate::files::{self, FileError};
use crate::os;
use crate::protocols::work::AccessEvent;
use lanyard_config::{Config, InterfaceName};
use lanyard_dot1x::{
    Access, Action, Authenticator, Event, GrantKind, Invalid, Kept, ServerView, SessionView,
};
use lanyard_switch::Admitted;
use lanyard_switch::dot1x::lower;
use lanyard_types::{MacAddr, PortId};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

/// The longest file that is read, in bytes: more than all sessions need.
const MAX_FILE: usize = 4 * 1024 * 1024;
/// The longest datagram of a server, in bytes (RFC 2865, 3).
const MAX_DATAGRAM: usize = 4096;
/// The most datagrams read in one turn.
const TURN: usize = 256;

/// The content of the file: the open ports by interface name, each with its access and its authorized hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    ports: BTreeMap<String, (Access, Vec<Kept>)>,
}

/// The actions for the caller.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// True if the caller has to give the plane the changed locks of ports.
    pub(crate) settle: bool,
    /// The frames that the caller has to send after that.
    pub(crate) frames: Vec<(PortId, Vec<u8>)>,
    /// The ports that the caller has to shut down.
    pub(crate) shut: Vec<PortId>,
}

/// The module.
pub(crate) struct AccessControl {
    authenticator: Authenticator,
    /// The last daemon's saved state, until the first configuration.
    found: Option<File>,
    /// The contents of the file.
    saved: File,
    /// True if ports had access control at the last configuration.
    active: bool,
    /// True if the authenticator may have actions that the next tick carries out.
    pending: bool,
    sockets: Sockets,
    /// The switch's IPv4 address towards the RADIUS servers; `None` if it is not known.
    address: Option<Ipv4Addr>,
    /// Why the sockets to the RADIUS servers could not be opened, so that the log reports each reason once.
    error: Option<String>,
}

impl AccessControl {
    /// The module, with the hosts that the last daemon has let in.
    pub(crate) fn new(ctx: &mut Context) -> Self {
        let text = files::read_text(&ctx.paths.admitted(), MAX_FILE).unwrap_or_default();
        let found: File = serde_json::from_str(&text).unwrap_or_default();
        let ports = found.ports.iter().map(|(name, (access, _))| (name.clone(), access.clone()));
        ctx.switch.set_admitted(Admitted { ports: ports.collect() });
        Self {
            authenticator: Authenticator::new(os::secret()),
            saved: found.clone(),
            found: Some(found),
            active: false,
            pending: false,
            sockets: Sockets::default(),
            address: None,
            error: None,
        }
    }
    /// Becomes readable when a server has answered; `None` when the process has no descriptor left.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.sockets.epoll.as_ref().map(|epoll| epoll.0.as_raw_fd())
    }
    /// The sessions.
    pub(crate) fn sessions(&self) -> Vec<SessionView> {
        self.authenticator.sessions()
    }
    /// The servers.
    pub(crate) fn servers(&self) -> Vec<ServerView> {
        self.authenticator.servers()
    }
    /// Ends sessions.
    pub(crate) fn clear(&mut self, ctx: &mut Context, port: Option<PortId>, mac: Option<MacAddr>) -> Outcome {
        self.authenticator.clear(ctx.clock.boot_ms(), port, mac);
        self.carry_out(ctx)
    }
    /// The identifier of a session in log lines, after IOS's AuditSessionID: the switch's IPv4 address and the session's number,
    /// both in hexadecimal.
    pub(crate) fn session_id(&self, id: u32) -> String {
        let address = self.address.map_or(0, u32::from);
        format!("{address:08X}{id:08X}")
    }

    /// Handles the events of hosts at ports with access control.
    pub(crate) fn handle_all(&mut self, ctx: &mut Context, events: Vec<AccessEvent>) -> Outcome {
        let now = ctx.clock.boot_ms();
        for event in events {
            match event {
                AccessEvent::Eapol(port, frame) => self.authenticator.handle_eapol(now, port, &frame),
                AccessEvent::Host(port, mac) => self.authenticator.handle_host(now, port, mac),
            }
        }
        self.carry_out(ctx)
    }
    /// Reads the answers of RADIUS servers. Returns their number, and the actions for the caller.
    pub(crate) fn receive(&mut self, ctx: &mut Context) -> (usize, Outcome) {
        let now = ctx.clock.boot_ms();
        let mut count = 0;
        let mut buffer = [0; MAX_DATAGRAM];
        for socket in self.sockets.open.values() {
            while count < TURN {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { break };
                count += 1;
                self.authenticator.handle_datagram(now, from, &buffer[..len]);
            }
        }
        (count, self.carry_out(ctx))
    }
    /// Handles the authenticator's expired timers.
    pub(crate) fn due(&mut self, ctx: &mut Context) -> Outcome {
        self.pending = false;
        self.authenticator.handle_timer(ctx.clock.boot_ms());
        self.carry_out(ctx)
    }

    /// Takes the authenticator's actions: sends the requests to servers, writes the log lines, and returns the rest to the
    /// caller.
    fn carry_out(&mut self, ctx: &mut Context) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(action) = self.authenticator.poll_action() {
            match action {
                Action::Send(port, frame) => outcome.frames.push((port, frame)),
                Action::Ask(server, datagram) => self.sockets.send(server, &datagram),
                Action::Shut(port) => outcome.shut.push(port),
                Action::Log(event) => self.log(ctx, &event),
            }
        }
        outcome.settle = self.admit(ctx);
        outcome
    }
    /// Gives the switch the open ports, and writes them to the file if they or their hosts have changed. Returns true if the
    /// switch's set of open ports has changed: the caller then settles the plane.
    fn admit(&mut self, ctx: &mut Context) -> bool {
        let mut file = File::default();
        for (port, access) in self.authenticator.access().into_iter().filter(|(_, access)| access.open) {
            if let Some(name) = ctx.switch.ports().name(port) {
                file.ports.insert(name.to_owned(), (access, self.authenticator.kept(port)));
            }
        }
        if file == self.saved {
            return false;
        }
        let path = ctx.paths.admitted();
        let text = serde_json::to_vec(&file).unwrap_or_default();
        if let Err(error) = files::replace_quickly(&path, &text).map_err(FileError::at(&path)) {
            let text = format!("a restart of the daemon would close ports to authenticated hosts: {error}");
            ctx.log("AUTHMGR", 3, "FILE", &text);
        }
        self.saved = file;
        let ports = self.saved.ports.iter().map(|(name, (access, _))| (name.clone(), access.clone()));
        let admitted = Admitted { ports: ports.collect() };
        let changed = admitted != *ctx.switch.admitted();
        ctx.switch.set_admitted(admitted);
        changed
    }

    fn log(&self, ctx: &mut Context, event: &Event) {
        let name = |port: PortId| ctx.port_name(port).to_string();
        let of = |port: PortId, mac: MacAddr, id: u32| {
            format!("for client ({mac}) on Interface {} AuditSessionID {}", name(port), self.session_id(id))
        };
        let (facility, severity, mnemonic, text) = match event {
            Event::Started(port, mac, id, method) => {
                ("AUTHMGR", 5, "START", format!("Starting '{}' {}", method.name(), of(*port, *mac, *id)))
            }
            Event::Result(port, mac, id, method, success) => {
                let facility = if method.name() == "mab" { "MAB" } else { "DOT1X" };
                let of = of(*port, *mac, *id);
                if *success {
                    (facility, 5, "SUCCESS", format!("Authentication successful {of}"))
                } else {
                    (facility, 5, "FAIL", format!("Authentication failed {of}"))
                }
            }
            Event::NoVlan(port, mac, id, vlan) => {
                let text = format!(
                    "Attempt to assign non-existent or shutdown VLAN {vlan} to 802.1x port {}",
                    name(*port)
                );
                ("DOT1X_SWITCH", 5, "ERR_VLAN_NOT_FOUND", format!("{text}, {}", of(*port, *mac, *id)))
            }
            Event::OtherVlan(port, mac, id, vlan) => {
                let text = format!("VLAN {vlan} is not that of the other hosts at the port");
                ("AUTHMGR", 5, "VLANASSIGN", format!("{text}: no authorization {}", of(*port, *mac, *id)))
            }
            Event::Authorized(port, mac, id, kind, vlan) => {
                if let Some(vlan) = vlan {
                    let session = self.session_id(*id);
                    let text =
                        format!("VLAN {vlan} assigned to Interface {} AuditSessionID {session}", name(*port));
                    ctx.log("AUTHMGR", 5, "VLANASSIGN", &text);
                }
                let why = match kind {
                    GrantKind::Method(_) => String::new(),
                    other => format!(" by authentication event {}", other.name()),
                };
                let of = of_session(ctx, self, *port, *mac, *id);
                ("AUTHMGR", 5, "SUCCESS", format!("Authorization succeeded{why} {of}"))
            }
            Event::Unauthorized(port, mac, id) => {
                ("AUTHMGR", 5, "FAIL", format!("Authorization failed or unapplied {}", of(*port, *mac, *id)))
            }
            Event::Violation(port, mac) => {
                let text = format!(
                    "Security violation on the interface {}, new MAC address ({mac}) is seen.",
                    name(*port)
                );
                ("AUTHMGR", 5, "SECURITY_VIOLATION", text)
            }
            Event::Full(port, mac) => {
                let text = format!(
                    "no session for client ({mac}) on Interface {}: it has as many as it may have",
                    name(*port)
                );
                ("AUTHMGR", 4, "FULL", text)
            }
            Event::Suppressed(port, count) => {
                let text = format!("{count} messages about Interface {} were suppressed", name(*port));
                ("AUTHMGR", 4, "SUPPRESSED", text)
            }
            Event::Dead(server) => {
                ("RADIUS", 4, "RADIUS_DEAD", format!("RADIUS server {} is not responding.", shown(*server)))
            }
            Event::Alive(server) => (
                "RADIUS",
                4,
                "RADIUS_ALIVE",
                format!("RADIUS server {} is being marked alive.", shown(*server)),
            ),
            Event::Invalid(server, reason, count) => {
                let why = match reason {
                    Invalid::Malformed => "they are malformed",
                    Invalid::Authenticator => "their authenticators are wrong: check the key of the server",
                    Invalid::Unsigned => "they have no Message-Authenticator: let the server send it",
                };
                let text = format!("{count} answers of RADIUS server {} were dropped: {why}", shown(*server));
                ("RADIUS", 4, "INVALID", text)
            }
        };
        ctx.log(facility, severity, mnemonic, &text);
    }
}

fn of_session(ctx: &Context, module: &AccessControl, port: PortId, mac: MacAddr, id: u32) -> String {
    let name = ctx.port_name(port);
    format!("for client ({mac}) on Interface {name} AuditSessionID {}", module.session_id(id))
}

/// A server in a log line.
fn shown(server: SocketAddr) -> String {
    format!("{}:{}", server.ip(), server.port())
}

impl Module for AccessControl {
    type Event<'a> = ();

    fn configure(&mut self, ctx: &mut Context) {
        let active = ctx.switch.config().dot1x;
        if !active && !self.active && self.saved == File::default() {
            self.found = None;
            return;
        }
        self.active = active;
        self.open(ctx);
        let now = ctx.clock.boot_ms();
        let (switch, state) = (&ctx.switch, ctx.plane.state());
        let config = lower(switch.config(), state, switch.ports(), switch.identity(), self.address);
        self.authenticator.configure(now, config);
        if let Some(found) = self.found.take() {
            for (name, (_, kept)) in &found.ports {
                if let Some(port) = ctx.switch.ports().get(name) {
                    self.authenticator.restore(now, port, kept);
                }
            }
        }
        // The caller may be applying a plane state at this moment, so the next tick carries out the authenticator's actions.
        self.pending = true;
    }

    fn handle(&mut self, _ctx: &mut Context, (): ()) -> usize {
        0
    }

    fn next_ms(&self, ctx: &Context) -> Option<u64> {
        if self.pending {
            return Some(ctx.clock.now_ms());
        }
        self.authenticator.next_timeout().map(|at_ms| ctx.clock.of_boot(at_ms))
    }
}

impl AccessControl {
    /// Opens the sockets that the servers need.
    fn open(&mut self, ctx: &mut Context) {
        let config = ctx.switch.config();
        let servers = config.radius.servers.iter();
        let wanted: Vec<SocketAddr> = servers
            .filter_map(|(_, server)| server.address.map(|at| SocketAddr::from((at.address, at.auth_port))))
            .collect();
        let source = source(config, config.radius.source.as_ref(), "ip radius", |_| true);
        let opened = source.and_then(|source| self.sockets.configure(&wanted, source));
        self.address = self.sockets.address(&wanted);
        let text = opened.err().map(|error| error.to_string());
        if text.is_some() && self.error != text {
            let text = text.clone().unwrap_or_default();
            ctx.log("RADIUS", 3, "NOSOCKET", &format!("RADIUS servers cannot be asked: {text}"));
        }
        self.error = text;
    }
}

/// The source address of packets to servers: the first address that `fits` of the interface `name`, IPv4 before IPv6. `command`
/// precedes `source-interface` in the line that names the interface. `None` without such a line.
pub(crate) fn source(
    config: &Config,
    name: Option<&InterfaceName>,
    command: &str,
    fits: impl Fn(IpAddr) -> bool,
) -> io::Result<Option<IpAddr>> {
    let Some(name) = name else { return Ok(None) };
    let interface = config.interfaces.get(name);
    let v4 = interface.and_then(|it| it.ipv4.first()).map(|net| IpAddr::V4(net.addr()));
    let v6 = interface.and_then(|it| it.ipv6.first()).map(|net| IpAddr::V6(net.addr()));
    let address = [v4, v6].into_iter().flatten().find(|address| fits(*address));
    let missing = || {
        let text = format!("{name} has no address: give it one, or enter `no {command} source-interface`");
        io::Error::other(text)
    };
    address.map(Some).ok_or_else(missing)
}

/// The UDP sockets to the RADIUS servers.
struct Sockets {
    /// One socket for each address family of a server; the key is true for IPv6.
    open: BTreeMap<bool, UdpSocket>,
    /// The source address that is configured; `None`: the kernel chooses one.
    source: Option<IpAddr>,
    epoll: Option<Epoll>,
}

impl Default for Sockets {
    fn default() -> Self {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok();
        Self { open: BTreeMap::new(), source: None, epoll }
    }
}

impl Sockets {
    fn configure(&mut self, servers: &[SocketAddr], source: Option<IpAddr>) -> io::Result<()> {
        if self.source != source {
            self.open.clear();
            self.source = source;
        }
        let wanted = |is_v6: bool| servers.iter().any(|server| server.is_ipv6() == is_v6);
        self.open.retain(|is_v6, _| wanted(*is_v6));
        for is_v6 in [false, true] {
            if !wanted(is_v6) || self.open.contains_key(&is_v6) {
                continue;
            }
            let any =
                if is_v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
            let at = source.filter(|source| source.is_ipv6() == is_v6).unwrap_or(any);
            let socket = UdpSocket::bind((at, 0))
                .map_err(|error| io::Error::other(format!("opening a UDP socket at {at}: {error}")))?;
            socket.set_nonblocking(true)?;
            if let Some(epoll) = &self.epoll {
                epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            self.open.insert(is_v6, socket);
        }
        Ok(())
    }
    /// Sends a datagram. One that the kernel refuses is lost; the authenticator repeats requests without an answer.
    fn send(&self, server: SocketAddr, datagram: &[u8]) {
        if let Some(socket) = self.open.get(&server.is_ipv6()) {
            let _ = socket.send_to(datagram, server);
        }
    }
    /// The configured IPv4 source address, otherwise the one that the kernel chooses for the first IPv4 server; `None` if there
    /// is no such server.
    fn address(&self, servers: &[SocketAddr]) -> Option<Ipv4Addr> {
        if let Some(IpAddr::V4(source)) = self.source {
            return Some(source);
        }
        let server = servers.iter().find(|server| server.is_ipv4())?;
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        probe.connect(server).ok()?;
        match probe.local_addr().ok()? {
            SocketAddr::V4(local) => Some(*local.ip()),
            SocketAddr::V6(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "access_control_tests.rs"]
mod tests;
