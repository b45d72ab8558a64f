//! FPM: the socket to which a routing suite connects, and the path of its routes to the plane. `lanyard_fpm` parses the
//! protocol; `lanyard_switch::routing` selects among several routes to a prefix.
//!
//! Invariants: there is one client at a time; another one is rejected. Input of a client is processed in bounded
//! pieces, between which the rest of the switch runs. A client that does not read delays nothing. A configuration with
//! `fpm server` is taken only when the socket could be opened.

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
    /// When the session began, or when it ended if there is none now; `None` before the first session.
    since_ms: Option<u64>,
    turned_away: u64,
    /// Wakes the task when the socket has changed or there is something to write.
    changed: Rc<Notify>,
}

/// The reason why there is no socket.
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
    /// Notified when the socket has changed or there is something to write.
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
    /// The reason why it cannot be opened.
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
    /// Handles bytes from the client. [`Fpm::updates`] returns the resulting changes.
    ///
    /// # Errors
    /// The reason why the session has to be ended.
    pub(crate) fn input(&mut self, ctx: &mut Context, bytes: &[u8]) -> Result<(), lanyard_fpm::Framing> {
        let paired = self.server.updates_in_pairs();
        let result = self.server.input(ctx.clock.now_ms(), bytes);
        if self.server.updates_in_pairs() && !paired {
            let text = "the client updates routes as FRR before 10 does: it ignores the answers";
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
    pub(crate) fn report_again(&mut self) {
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
            next_hop_sets: server.next_hop_sets() as u64,
            answers: counters.offloaded + counters.trapped + counters.failed,
            answers_read: server.updates_in_pairs().then_some(false),
            counters: named,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, config, messages};
    use lanyard_wire::rtnetlink::{self, Hop, Writer};
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4711);

    /// A frame of a routing suite: messages of these kinds about a route to 10.9.0.0/16.
    fn frame(kinds: &[u16]) -> Vec<u8> {
        let body: Vec<u8> = kinds.iter().flat_map(|kind| message(*kind)).collect();
        let length = u16::try_from(body.len() + 4).expect("short").to_be_bytes();
        [&[1, 1], &length[..], &body].concat()
    }
    fn route(kind: u16) -> Vec<u8> {
        frame(&[kind])
    }
    fn message(kind: u16) -> Vec<u8> {
        let mut route = rtnetlink::Route::to("10.9.0.0/16".parse().expect("a prefix"));
        (route.table, route.protocol, route.metric) = (lanyard_netdev::TABLE_MAIN, 186, 20);
        let mut body = Vec::new();
        let mut writer = Writer::route(&mut body, kind, 0x501, &route);
        writer.hops(route.dest, &[Hop { via: Some([10, 0, 0, 9].into()), ifindex: 1, weight: 1, flags: 0 }]);
        writer.end();
        body
    }
    /// The routes among the updates: whether each was added.
    fn routes(updates: &[Update]) -> Vec<bool> {
        let added = |update: &Update| match update {
            Update::Route(_, route) => Some(route.is_some()),
            Update::NextHops(..) | Update::NextHopsRemoved(_) => None,
        };
        updates.iter().filter_map(added).collect()
    }

    /// A server with a connected client.
    fn connected() -> (World, Fpm) {
        let (mut world, mut fpm) = (World::new(), Fpm::default());
        world.clock.set(5000);
        fpm.handle(&mut world.ctx, Event::Connected(CLIENT));
        (world, fpm)
    }

    #[test]
    fn the_socket_is_that_of_the_configuration() {
        let mut fpm = Fpm::default();
        assert!(fpm.prepare(None).expect("nothing to open").is_none());
        let taken = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = taken.local_addr().expect("an address").port();
        let text = config(&format!("fpm server port {port}"));
        let error = fpm.prepare(text.fpm.as_ref()).map(drop).expect_err("taken by another");
        assert!(error.to_string().starts_with(&format!("fpm server: 127.0.0.1:{port}: ")), "{error}");
        drop(taken);
        let opened = fpm.prepare(text.fpm.as_ref()).expect("free");
        assert_eq!(fpm.address(), None, "prepared is not adopted");
        fpm.adopt(0, opened);
        assert_eq!(fpm.address(), text.fpm);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok() && fpm.socket().is_some());
        let same = fpm.prepare(text.fpm.as_ref()).expect("its own").expect("a socket");
        let own = fpm.listening.as_ref().expect("a socket");
        assert!(Rc::ptr_eq(&own.socket, &same.socket), "not opened twice");
        drop(same);
        fpm.adopt(0, None);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "closed");
    }

    #[test]
    fn a_session_is_logged_and_shown() {
        let (mut world, mut fpm) = connected();
        world.clock.set(8000);
        fpm.handle(&mut world.ctx, Event::TurnedAway);
        let view = fpm.view(&world.ctx);
        assert_eq!((view.client, view.since_s), (Some(CLIENT.to_string()), Some(3)));
        assert!(view.counters.contains(&("clients_turned_away", 1)));
        fpm.handle(&mut world.ctx, Event::Disconnected("the cable"));
        fpm.handle(&mut world.ctx, Event::Disconnected("again"));
        let logged = messages(&world.ctx);
        assert_eq!(logged.len(), 2, "a session ends once: {logged:?}");
        assert!(logged[0].starts_with("UP: session with 127.0.0.1:4711 is up"), "{logged:?}");
        assert_eq!(logged[1], "DOWN: session with 127.0.0.1:4711 is down: the cable");
        assert_eq!(fpm.view(&world.ctx).client, None);
    }

    #[test]
    fn routes_are_passed_on_and_answered() {
        let (mut world, mut fpm) = connected();
        fpm.input(&mut world.ctx, &route(rtnetlink::NEW_ROUTE)).expect("understood");
        assert_eq!(routes(&fpm.updates()), [true]);
        assert!(fpm.updates().is_empty(), "each is passed on once");
        fpm.report_again();
        assert_eq!(routes(&fpm.updates()), [true], "and again to a new follower");
        let sent = fpm.output().len();
        fpm.sent(sent);
        let dest = "10.9.0.0/16".parse().expect("a prefix");
        for (found, want) in [
            (Found::Trapped, (0, 1, 0)),
            (Found::Offloaded, (1, 0, 0)),
            (Found::Failed, (0, 0, 1)),
            (Found::None, (0, 1, 0)),
        ] {
            fpm.answer(vec![(dest, found)]);
            let routes = fpm.view(&world.ctx).routes;
            assert_eq!((routes.offloaded, routes.trapped, routes.failed), want, "{found:?}");
            assert!(!fpm.output().is_empty(), "{found:?} is answered");
            let length = fpm.output().len();
            fpm.sent(length);
        }
    }

    #[test]
    fn without_routing_the_kernel_has_the_routes() {
        let (mut world, mut fpm) = connected();
        fpm.input(&mut world.ctx, &route(rtnetlink::NEW_ROUTE)).expect("understood");
        let updates = fpm.updates();
        fpm.not_followed(updates);
        let routes = fpm.view(&world.ctx).routes;
        assert_eq!((routes.total, routes.trapped), (1, 1));
    }

    #[test]
    fn routes_of_a_lost_client_go_after_a_while() {
        let (mut world, mut fpm) = connected();
        fpm.input(&mut world.ctx, &route(rtnetlink::NEW_ROUTE)).expect("understood");
        fpm.updates();
        fpm.handle(&mut world.ctx, Event::Disconnected("gone"));
        let due_ms = fpm.next_ms(&world.ctx).expect("a deadline");
        world.clock.set(due_ms - 1);
        fpm.tick(&mut world.ctx);
        assert_eq!((fpm.view(&world.ctx).routes.total, fpm.updates().len()), (1, 0), "not due yet");
        world.clock.set(due_ms);
        fpm.tick(&mut world.ctx);
        assert_eq!(routes(&fpm.updates()), [false]);
        assert_eq!(messages(&world.ctx).pop(), Some("SWEEP: 1 stale routes removed".into()));
    }

    #[test]
    fn an_invalid_message_ends_the_session_and_a_partial_one_does_not() {
        for bytes in [&[9, 9, 0, 8, 0, 0, 0, 0][..], &[1, 1, 0, 0]] {
            let (mut world, mut fpm) = connected();
            assert!(fpm.input(&mut world.ctx, bytes).is_err(), "{bytes:?}");
        }
        let (mut world, mut fpm) = connected();
        let message = route(rtnetlink::NEW_ROUTE);
        for byte in &message {
            fpm.input(&mut world.ctx, std::slice::from_ref(byte)).expect("a part is no error");
        }
        assert_eq!(routes(&fpm.updates()), [true]);
    }

    /// FRR before version 10 replaces a route by a deletion and an addition, and does not read answers.
    #[test]
    fn an_old_client_is_named_once() {
        let (mut world, mut fpm) = connected();
        let pair = frame(&[rtnetlink::DEL_ROUTE, rtnetlink::NEW_ROUTE]);
        fpm.input(&mut world.ctx, &route(rtnetlink::NEW_ROUTE)).expect("understood");
        for _ in 0..3 {
            fpm.input(&mut world.ctx, &pair).expect("understood");
        }
        let named = messages(&world.ctx).iter().filter(|text| text.starts_with("NOFEEDBACK")).count();
        assert_eq!(named, 1, "{:?}", messages(&world.ctx));
        assert_eq!(fpm.view(&world.ctx).answers_read, Some(false));
    }
}
