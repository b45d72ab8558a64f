//! FPM: the socket a routing suite connects to, and the way of its routes into the plane. What the bytes mean is decided in
//! `lanyard_fpm`, which of several routes to a prefix is used in `lanyard_switch::routing`.
//!
//! Invariants: one client at a time; another is turned away. A client that sends without end gets a piece done at a
//! time, the rest of the switch in between; one that does not read holds nobody up. `fpm server` is taken only when
//! the socket could be made.

use crate::core::Core;
use crate::server::Shared;
use lanyard_cli::view;
use lanyard_config::FpmServer;
use lanyard_fpm::{Limits, Offload, Server, Timers, Update};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Bytes read at a time: some six hundred routes.
const PIECE: usize = 64 << 10;
/// Connections that may wait to be turned away.
const BACKLOG: i32 = 8;

/// The server, its socket and its client.
pub(crate) struct Fpm {
    pub(crate) server: Server,
    listening: Option<Listening>,
    client: Option<SocketAddr>,
    /// When the session came up or was lost.
    since_ms: Option<u64>,
    turned_away: u64,
    /// Wakes the task: another socket, or something to write.
    changed: Rc<Notify>,
}

/// A socket that is bound.
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
    /// The socket that `config` wants: the one there is, or a new one.
    ///
    /// # Errors
    /// Why there can be none.
    pub(crate) fn prepare(&self, config: Option<&FpmServer>) -> Result<Option<Listening>, String> {
        let Some(config) = config else { return Ok(None) };
        if let Some(listening) = self.listening.as_ref().filter(|listening| listening.config == *config) {
            return Ok(Some(listening.clone()));
        }
        let made = make_socket(config.socket());
        let socket = made.map_err(|error| format!("fpm server: {}: {error}", config.socket()))?;
        Ok(Some(Listening { config: *config, socket: Rc::new(socket) }))
    }
    /// Uses what was prepared. A client of another socket is sent away, and comes back if it is told where to.
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

/// A listening socket. Its address may be one that the switch is to get yet.
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

impl Core {
    fn fpm_connected(&mut self, client: SocketAddr) {
        let now_ms = self.clock.now_ms();
        self.fpm.server.connected(now_ms);
        (self.fpm.client, self.fpm.since_ms) = (Some(client), Some(now_ms));
        let text = format!("session with {client} is up; routes are answered, which FRR before 10 ignores");
        self.log("FPM", 5, "UP", &text);
    }
    fn fpm_disconnected(&mut self, why: &str) {
        let now_ms = self.clock.now_ms();
        self.fpm.server.disconnected(now_ms);
        if let Some(client) = self.fpm.client.take() {
            self.fpm.since_ms = Some(now_ms);
            self.log("FPM", 4, "DOWN", &format!("session with {client} is down: {why}"));
        }
    }
    /// Takes in bytes of the client.
    ///
    /// # Errors
    /// Why the session is to be ended.
    fn fpm_input(&mut self, bytes: &[u8]) -> Result<(), String> {
        let paired = self.fpm.server.updates_in_pairs();
        let result = self.fpm.server.input(self.clock.now_ms(), bytes);
        self.fpm_settle();
        if self.fpm.server.updates_in_pairs() && !paired {
            let text = "the client updates routes as FRR before 10 does: it ignores what it is answered";
            self.log("FPM", 6, "NOFEEDBACK", text);
        }
        result.map_err(|why| why.to_string())
    }
    /// Hands on what has changed: to the mirror, and so to the plane. Where the plane does not route, the kernel does, which has
    /// the client's routes too.
    fn fpm_settle(&mut self) {
        let updates = self.fpm.server.updates();
        if self.follows_own() {
            self.fpm_routes(updates);
            return;
        }
        for update in updates {
            if let Update::Route(dest, Some(_)) = update {
                self.fpm.server.offload(dest, Offload::Trapped);
            }
        }
    }
    /// The switch's own table is followed from now on, or no more: who is to know the client's routes knows nothing.
    pub(crate) fn fpm_again(&mut self) {
        self.fpm.server.tell_again();
        self.fpm_settle();
    }
    /// Answers for routes that the plane has been told of.
    pub(crate) fn fpm_answers(&mut self, answers: Vec<(ipnet::IpNet, lanyard_switch::routing::Offload)>) {
        use lanyard_switch::routing::Offload as Found;
        for (dest, found) in answers {
            let answer = match found {
                Found::Offloaded => Offload::Offloaded,
                Found::Trapped | Found::None => Offload::Trapped,
                Found::Failed => Offload::Failed,
            };
            self.fpm.server.offload(dest, answer);
        }
        self.fpm.changed.notify_one();
    }
    /// Timers that are due.
    pub(crate) fn fpm_tick(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.fpm.server.next_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        let swept = self.fpm.server.counters().swept;
        self.fpm.server.handle_timer(now_ms);
        self.fpm_settle();
        let swept = self.fpm.server.counters().swept - swept;
        if swept > 0 {
            self.log("FPM", 6, "SWEEP", &format!("{swept} stale routes removed"));
        }
    }
    /// When [`Core::fpm_tick`] has something to do.
    pub(crate) fn fpm_due(&self) -> Option<u64> {
        self.fpm.server.next_ms()
    }
    /// `show fpm`.
    pub(crate) fn view_fpm(&self) -> view::Fpm {
        let Fpm { server, listening, client, since_ms, turned_away, .. } = &self.fpm;
        let now_ms = self.clock.now_ms();
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
            ways: server.ways() as u64,
            answers: counters.offloaded + counters.trapped + counters.failed,
            answers_read: server.updates_in_pairs().then_some(false),
            counters: named,
        }
    }
}

/// Serves the clients of whatever socket is configured, for ever.
pub(crate) async fn serve(shared: Shared) {
    let changed = shared.core.borrow().fpm.changed.clone();
    loop {
        let listening = shared.core.borrow().fpm.listening.clone();
        let socket = listening.as_ref().and_then(|listening| listening.socket.try_clone().ok());
        let Some(Ok(socket)) = socket.map(TcpListener::from_std) else {
            changed.notified().await;
            continue;
        };
        let config = listening.map(|listening| listening.config);
        while config == current(&shared) {
            tokio::select! {
                () = changed.notified() => {}
                accepted = socket.accept() => match accepted {
                    Ok((stream, client)) => {
                        shared.core.borrow_mut().fpm_connected(client);
                        shared.changed.notify_one();
                        let why = session(&shared, &changed, &socket, &stream, config).await;
                        shared.core.borrow_mut().fpm_disconnected(&why);
                        shared.changed.notify_one();
                    }
                    // Out of descriptors, say.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }
}

fn current(shared: &Shared) -> Option<FpmServer> {
    shared.core.borrow().fpm.listening.as_ref().map(|listening| listening.config)
}

/// Serves one client; answers why it ended.
async fn session(
    shared: &Shared,
    changed: &Notify,
    socket: &TcpListener,
    stream: &TcpStream,
    config: Option<FpmServer>,
) -> String {
    // A client whose machine is gone must not keep the place for ever.
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let mut piece = vec![0; PIECE];
    loop {
        if current(shared) != config {
            return "the server's address was changed".into();
        }
        let writes = !shared.core.borrow().fpm.server.output().is_empty();
        let result = tokio::select! {
            ready = stream.readable() => ready.map(|()| read(shared, stream, &mut piece)),
            ready = stream.writable(), if writes => ready.map(|()| write(shared, stream)),
            other = socket.accept() => {
                shared.core.borrow_mut().fpm.turned_away += u64::from(other.is_ok());
                Ok(Ok(()))
            }
            () = changed.notified() => Ok(Ok(())),
        };
        match result {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why,
            Err(error) => return error.to_string(),
        }
        // A deadline may have moved; and others want their turn.
        shared.changed.notify_one();
        tokio::task::yield_now().await;
    }
}

fn read(shared: &Shared, stream: &TcpStream, piece: &mut [u8]) -> Result<(), String> {
    match stream.try_read(piece) {
        Ok(0) => Err("the client has closed it".into()),
        Ok(length) => shared.core.borrow_mut().fpm_input(&piece[..length]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn write(shared: &Shared, stream: &TcpStream) -> Result<(), String> {
    let mut core = shared.core.borrow_mut();
    match stream.try_write(core.fpm.server.output()) {
        Ok(length) => {
            core.fpm.server.sent(length);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
