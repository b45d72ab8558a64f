//! FPM: the socket a routing suite connects to, and the way of its routes into the plane. What the bytes mean is decided in
//! `lanyard_fpm`, which of several routes to a prefix is used in `lanyard_switch::routing`.
//!
//! Invariants: one client at a time; another is turned away. A client that sends without end gets a piece done at a
//! time, the rest of the switch in between; one that does not read holds nobody up. `fpm server` is taken only when
//! the socket could be made.

use crate::context::{Context, Module};
use lanyard_cli::view;
use lanyard_config::FpmServer;
use lanyard_fpm::{Limits, Offload, Server, Timers, Update};
use lanyard_switch::routing::Offload as Found;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use tokio::sync::Notify;

/// Connections that may wait to be rejected.
const BACKLOG: i32 = 8;

/// The server, its socket and its client.
pub(crate) struct Fpm {
    server: Server,
    listening: Option<Listening>,
    client: Option<SocketAddr>,
    /// When the session began or was lost.
    since_ms: Option<u64>,
    turned_away: u64,
    /// Wakes the task when the socket has changed or there is something to write.
    changed: Rc<Notify>,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
#[error("fpm server: {address}: {cause}")]
pub(crate) struct ListenError {
    address: SocketAddr,
    #[source]
    cause: io::Error,
}

/// A bound socket.
#[derive(Clone)]
pub(crate) struct Listening {
    config: FpmServer,
    socket: Rc<std::net::TcpListener>,
}

impl Default for Fpm {
    fn default() -> Self {
        Self {
            server: Server::new(Limits::default(), Timers::default()),
            listening: None,
            client: None,
            since_ms: None,
            turned_away: 0,
            changed: Rc::default(),
        }
    }
}

impl Fpm {
    /// The configured socket; `None` when there is none, or it cannot be duplicated.
    pub(crate) fn socket(&self) -> Option<std::net::TcpListener> {
        self.listening.as_ref().and_then(|listening| listening.socket.try_clone().ok())
    }
    /// The address of that socket.
    pub(crate) fn address(&self) -> Option<FpmServer> {
        self.listening.as_ref().map(|listening| listening.config)
    }
    /// Notifies of a changed socket and of something to write.
    pub(crate) fn changed(&self) -> Rc<Notify> {
        self.changed.clone()
    }
    /// The bytes to be written to the client.
    pub(crate) fn output(&self) -> &[u8] {
        self.server.output()
    }
    /// Removes bytes that have been written.
    pub(crate) fn sent(&mut self, length: usize) {
        self.server.sent(length);
    }
    /// Returns the socket that `config` requires: the present one, or a new one.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(crate) fn prepare(&self, config: Option<&FpmServer>) -> Result<Option<Listening>, ListenError> {
        let Some(config) = config else { return Ok(None) };
        if let Some(listening) = self.listening.as_ref().filter(|listening| listening.config == *config) {
            return Ok(Some(listening.clone()));
        }
        let made = make_socket(config.socket());
        let socket = made.map_err(|cause| ListenError { address: config.socket(), cause })?;
        Ok(Some(Listening { config: *config, socket: Rc::new(socket) }))
    }
    /// Uses the socket that was prepared. A client of another socket is disconnected; it comes back
    /// if it is configured for the new address.
    pub(crate) fn adopt(&mut self, now_ms: u64, listening: Option<Listening>) {
        let old = self.listening.as_ref().map(|listening| listening.config);
        if old == listening.as_ref().map(|listening| listening.config) {
            return;
        }
        if listening.is_none() {
            self.client = None;
            self.server.stop(now_ms);
        }
        self.listening = listening;
        self.changed.notify_one();
    }
}

/// Opens a listening socket. The switch may not have its address yet.
fn make_socket(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    setsockopt(&fd, sockopt::IpFreebind, &true)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(fd.into())
}

/// Events of the session with a client.
pub(crate) enum Event<'a> {
    /// A client has connected.
    Connected(SocketAddr),
    /// The session has ended, for this reason.
    Disconnected(&'a str),
    /// Another client was rejected during a session.
    TurnedAway,
}

impl Module for Fpm {
    type Event<'a> = Event<'a>;
    /// Does nothing: the socket is opened before a configuration is taken ([`Fpm::prepare`]) and
    /// used afterwards ([`Fpm::adopt`]).
    fn configure(&mut self, _ctx: &mut Context) {}
    fn handle(&mut self, ctx: &mut Context, event: Event<'_>) -> usize {
        let now_ms = ctx.clock.now_ms();
        match event {
            Event::Connected(client) => {
                self.server.connected(now_ms);
                (self.client, self.since_ms) = (Some(client), Some(now_ms));
                let text =
                    format!("session with {client} is up; routes are answered, which FRR before 10 ignores");
                ctx.log("FPM", 5, "UP", &text);
            }
            Event::Disconnected(why) => {
                self.server.disconnected(now_ms);
                if let Some(client) = self.client.take() {
                    self.since_ms = Some(now_ms);
                    ctx.log("FPM", 4, "DOWN", &format!("session with {client} is down: {why}"));
                }
            }
            Event::TurnedAway => self.turned_away += 1,
        }
        1
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.server.next_ms()
    }
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.server.next_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        let swept = self.server.counters().swept;
        self.server.handle_timer(now_ms);
        let swept = self.server.counters().swept - swept;
        if swept > 0 {
            ctx.log("FPM", 6, "SWEEP", &format!("{swept} stale routes removed"));
        }
    }
}

impl Fpm {
    /// Handles bytes from the client. [`Fpm::updates`] returns what changed.
    ///
    /// # Errors
    /// Why the session has to be ended.
    pub(crate) fn input(&mut self, ctx: &mut Context, bytes: &[u8]) -> Result<(), lanyard_fpm::Framing> {
        let paired = self.server.updates_in_pairs();
        let result = self.server.input(ctx.clock.now_ms(), bytes);
        if self.server.updates_in_pairs() && !paired {
            let text = "the client updates routes as FRR before 10 does: it ignores what it is answered";
            ctx.log("FPM", 6, "NOFEEDBACK", text);
        }
        result
    }
    /// The changes since the last call, for the mirror of the kernel's routing and so for the
    /// plane.
    pub(crate) fn updates(&mut self) -> Vec<Update> {
        self.server.updates()
    }
    /// Answers updates that are not passed on because the plane does not route. The kernel does; it
    /// has the client's routes too.
    pub(crate) fn not_followed(&mut self, updates: Vec<Update>) {
        for update in updates {
            if let Update::Route(dest, Some(_)) = update {
                self.server.offload(dest, Offload::Trapped);
            }
        }
    }
    /// Makes the next [`Fpm::updates`] contain every route, for a follower that starts with none.
    pub(crate) fn tell_again(&mut self) {
        self.server.announce_all();
    }
    /// Answers for routes that the plane has processed.
    pub(crate) fn answer(&mut self, answers: Vec<(ipnet::IpNet, Found)>) {
        if answers.is_empty() {
            return;
        }
        for (dest, found) in answers {
            let answer = match found {
                Found::Offloaded => Offload::Offloaded,
                Found::Trapped | Found::None => Offload::Trapped,
                Found::Failed => Offload::Failed,
            };
            self.server.offload(dest, answer);
        }
        self.changed.notify_one();
    }
    /// `show fpm`.
    pub(crate) fn view(&self, ctx: &Context) -> view::Fpm {
        let Fpm { server, listening, client, since_ms, turned_away, .. } = self;
        let now_ms = ctx.clock.now_ms();
        let count = |offload| server.routes_that_are(offload) as u64;
        let counters = server.counters();
        let mut named = counters.named();
        named.push(("clients_turned_away", *turned_away));
        view::Fpm {
            listening: listening.as_ref().map(|listening| listening.config.socket().to_string()),
            phase: server.phase().name(),
            client: client.map(|client| client.to_string()),
            since_s: since_ms.map(|since_ms| now_ms.saturating_sub(since_ms) / 1000),
            routes: view::FpmRoutes {
                total: server.routes() as u64,
                offloaded: count(Offload::Offloaded),
                trapped: count(Offload::Trapped),
                failed: count(Offload::Failed),
            },
            next_hops: server.nexthops() as u64,
            ways: server.next_hop_sets() as u64,
            answers: counters.offloaded + counters.trapped + counters.failed,
            answers_read: server.updates_in_pairs().then_some(false),
            counters: named,
        }
    }
}
