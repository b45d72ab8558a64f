//! The RADIUS client (RFC 2865, 2.4-2.5): repeats requests, asks the next server, and leaves servers alone that do not answer.
//!
//! Invariants: at most [`MAX_REQUESTS`] requests wait for an answer, each with an identifier of its own; a repetition is the same
//! packet. A datagram counts only if it comes from the server that was asked last and its authenticators are right. The answer to
//! a request with an EAP packet needs a Message-Authenticator (RFC 3579, 3.2). The answer to a request with a password needs one
//! only after the server has sent one in an answer of this kind, because not every server does.

use crate::config::Server;
use crate::radius::{self, Answer, Attributes, Code, Invalid};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The most requests that wait for an answer: RADIUS has as many identifiers.
pub const MAX_REQUESTS: usize = 256;

/// The content of a request.
#[derive(Debug, Clone)]
pub struct Query {
    pub attributes: Attributes,
    pub password: Option<Vec<u8>>,
}

/// The result of a request.
#[derive(Debug)]
pub enum Outcome<T> {
    /// A server has answered.
    Answered(T, Box<Answer>),
    /// No server has answered, or none could be asked.
    NoServer(T),
    /// A server does not answer any more.
    Dead(SocketAddr),
    /// A server answers again.
    Alive(SocketAddr),
    /// Datagrams from a server's address were not valid answers: the reason of the last one, and their number since the last
    /// report.
    Invalid(SocketAddr, Invalid, u64),
}

/// A server's state and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerView {
    /// Its address and port.
    pub address: SocketAddr,
    /// True while the server is not asked, because it has not answered.
    pub dead: bool,
    /// Requests, without repetitions.
    pub requests: u64,
    /// Repetitions.
    pub retransmissions: u64,
    /// Requests that it has not answered.
    pub timeouts: u64,
    /// Its answers of type Access-Accept.
    pub accepts: u64,
    /// Its answers of type Access-Reject.
    pub rejects: u64,
    /// Its answers of type Access-Challenge.
    pub challenges: u64,
    /// Datagrams from its address that were not valid answers.
    pub invalid: u64,
}

struct Known {
    server: Server,
    view: ServerView,
    /// Until when the server is not asked, because it has not answered; `None` while it is asked.
    dead_until: Option<u64>,
    /// True after a request that it has not answered, until an answer.
    silent: bool,
    /// True once it has sent a Message-Authenticator in an answer to a request with a password.
    signs: bool,
    /// When the next report about invalid datagrams is due, and how many there were since the last one.
    reports: (u64, u64),
}

struct Waiting<T> {
    token: T,
    query: Query,
    /// The servers that have not been asked, the next one last.
    left: Vec<SocketAddr>,
    asked: SocketAddr,
    authenticator: [u8; 16],
    packet: Vec<u8>,
    sent: u8,
    due_ms: u64,
}

/// The least time between two reports about invalid datagrams of a server, in milliseconds.
const REPORT_EVERY_MS: u64 = 60_000;

/// The client; `T` names the session that waits for an answer.
pub struct Client<T> {
    servers: Vec<Known>,
    deadtime_ms: u64,
    waiting: BTreeMap<u8, Waiting<T>>,
    /// The identifier of the next request.
    next_id: u8,
    /// The key from which the authenticators of requests are derived: it makes them unpredictable.
    secret: [u8; 16],
    made: u64,
    out: Vec<(SocketAddr, Vec<u8>)>,
    outcomes: Vec<Outcome<T>>,
}

impl<T: Copy + PartialEq> Client<T> {
    /// A client without servers; `secret` is random.
    pub const fn new(secret: [u8; 16]) -> Self {
        Self {
            servers: Vec::new(),
            deadtime_ms: 0,
            waiting: BTreeMap::new(),
            next_id: 0,
            secret,
            made: 0,
            out: Vec::new(),
            outcomes: Vec::new(),
        }
    }
    /// Takes the list of servers. A request that waits for a removed server is sent to the next one.
    pub fn configure(&mut self, now: u64, servers: &[Server], deadtime_ms: u64) {
        self.deadtime_ms = deadtime_ms;
        let mut held = std::mem::take(&mut self.servers);
        for server in servers {
            let known = held.iter().position(|known| known.server.address == server.address);
            let view = ServerView {
                address: server.address,
                dead: false,
                requests: 0,
                retransmissions: 0,
                timeouts: 0,
                accepts: 0,
                rejects: 0,
                challenges: 0,
                invalid: 0,
            };
            self.servers.push(match known {
                Some(at) => Known { server: server.clone(), ..held.swap_remove(at) },
                None => Known {
                    server: server.clone(),
                    view,
                    dead_until: None,
                    silent: false,
                    signs: false,
                    reports: (0, 0),
                },
            });
        }
        let gone: Vec<u8> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| self.known(waiting.asked).is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.next_server(now, id);
        }
    }
    fn known(&self, address: SocketAddr) -> Option<usize> {
        self.servers.iter().position(|known| known.server.address == address)
    }
    /// Sends a request to the first server that is not dead. Returns false if [`MAX_REQUESTS`] requests wait already.
    pub fn ask(&mut self, now: u64, token: T, query: Query) -> bool {
        let Some(id) = self.free_id() else { return false };
        let alive = |known: &&Known| known.dead_until.is_none_or(|until| until <= now);
        let left: Vec<SocketAddr> =
            self.servers.iter().filter(alive).map(|known| known.server.address).rev().collect();
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let waiting = Waiting {
            token,
            query,
            left,
            asked: nobody,
            authenticator: [0; 16],
            packet: Vec::new(),
            sent: 0,
            due_ms: 0,
        };
        self.waiting.insert(id, waiting);
        self.next_server(now, id);
        true
    }
    /// Forgets the requests of `token`.
    pub fn forget(&mut self, token: T) {
        self.waiting.retain(|_, waiting| waiting.token != token);
    }
    fn free_id(&mut self) -> Option<u8> {
        for _ in 0..MAX_REQUESTS {
            let id = self.next_id;
            self.next_id = id.wrapping_add(1);
            if !self.waiting.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }
    fn authenticator(&mut self) -> [u8; 16] {
        self.made += 1;
        // A key of any length is valid.
        let Ok(mut mac) = Hmac::<Md5>::new_from_slice(&self.secret) else { return [0; 16] };
        mac.update(&self.made.to_be_bytes());
        mac.finalize().into_bytes().into()
    }
    /// Sends a request to the next server. If there is none, the request ends with [`Outcome::NoServer`].
    fn next_server(&mut self, now: u64, id: u8) {
        let authenticator = self.authenticator();
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        while let Some(address) = waiting.left.pop() {
            let Some(known) = self.servers.iter_mut().find(|known| known.server.address == address) else {
                continue;
            };
            let password = waiting.query.password.as_deref();
            let key = &known.server.key;
            let made = radius::request(id, &authenticator, key, &waiting.query.attributes, password);
            let Some(packet) = made else { break };
            known.view.requests += 1;
            (waiting.asked, waiting.authenticator, waiting.sent) = (address, authenticator, 1);
            waiting.due_ms = now + known.server.timeout_ms;
            self.out.push((address, packet.clone()));
            waiting.packet = packet;
            return;
        }
        if let Some(waiting) = self.waiting.remove(&id) {
            self.outcomes.push(Outcome::NoServer(waiting.token));
        }
    }
    /// Handles a datagram.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, packet: &[u8]) {
        let Some(at) = self.known(from) else { return };
        let waiting = radius::identifier(packet).and_then(|id| Some((id, self.waiting.get(&id)?)));
        // A server's answer that arrives after the next server was asked is late. It is ignored, not counted as invalid.
        let Some((id, waiting)) = waiting.filter(|(_, waiting)| waiting.asked == from) else { return };
        let known = &mut self.servers[at];
        let by_password = waiting.query.password.is_some();
        let checked = radius::answer(packet, &known.server.key, &waiting.authenticator).and_then(|answer| {
            let may_be_unsigned = by_password && !known.signs;
            if answer.signed || may_be_unsigned { Ok(answer) } else { Err(Invalid::Unsigned) }
        });
        match checked {
            Ok(answer) => {
                known.signs |= by_password && answer.signed;
                let view = &mut known.view;
                *match answer.code {
                    Code::Accept => &mut view.accepts,
                    Code::Reject => &mut view.rejects,
                    Code::Challenge => &mut view.challenges,
                } += 1;
                (known.dead_until, view.dead) = (None, false);
                if std::mem::take(&mut known.silent) {
                    self.outcomes.push(Outcome::Alive(from));
                }
                let token = waiting.token;
                self.waiting.remove(&id);
                self.outcomes.push(Outcome::Answered(token, Box::new(answer)));
            }
            Err(reason) => {
                known.view.invalid += 1;
                known.reports.1 += 1;
                if known.reports.0 <= now {
                    let count = std::mem::take(&mut known.reports.1);
                    known.reports.0 = now + REPORT_EVERY_MS;
                    self.outcomes.push(Outcome::Invalid(from, reason, count));
                }
            }
        }
    }
    /// Handles every deadline that has passed: ends dead times of servers, and repeats requests or sends them to the next server.
    pub fn handle_timer(&mut self, now: u64) {
        for known in &mut self.servers {
            if known.dead_until.is_some_and(|until| until <= now) {
                (known.dead_until, known.view.dead) = (None, false);
            }
        }
        let due: Vec<u8> =
            self.waiting.iter().filter(|(_, waiting)| waiting.due_ms <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.repeat(now, id);
        }
    }
    fn repeat(&mut self, now: u64, id: u8) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let asked = waiting.asked;
        let Some(known) = self.servers.iter_mut().find(|known| known.server.address == asked) else {
            return self.next_server(now, id);
        };
        let dead = known.dead_until.is_some();
        if !dead && waiting.sent <= known.server.retransmit {
            waiting.sent += 1;
            waiting.due_ms = now + known.server.timeout_ms;
            known.view.retransmissions += 1;
            self.out.push((asked, waiting.packet.clone()));
            return;
        }
        known.view.timeouts += 1;
        if self.deadtime_ms > 0 {
            (known.dead_until, known.view.dead) = (Some(now + self.deadtime_ms), true);
        }
        if !std::mem::replace(&mut known.silent, true) {
            self.outcomes.push(Outcome::Dead(asked));
        }
        self.next_server(now, id);
    }
    /// The next deadline in milliseconds; `None` if there is none.
    pub fn next_timeout(&self) -> Option<u64> {
        let waiting = self.waiting.values().map(|waiting| waiting.due_ms);
        waiting.chain(self.servers.iter().filter_map(|known| known.dead_until)).min()
    }
    /// The datagrams to send.
    pub fn take_datagrams(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.out)
    }
    /// The results of requests.
    pub fn take_outcomes(&mut self) -> Vec<Outcome<T>> {
        std::mem::take(&mut self.outcomes)
    }
    /// The servers, in order.
    pub fn view(&self) -> Vec<ServerView> {
        self.servers.iter().map(|known| known.view.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radius::{respond, unsigned_accept};

    fn server(n: u8) -> Server {
        let address = SocketAddr::from(([10, 0, 0, n], 1812));
        Server { address, key: vec![n; 8], timeout_ms: 5000, retransmit: 2 }
    }

    fn query() -> Query {
        Query { attributes: Attributes::default(), password: Some(b"secret".to_vec()) }
    }

    fn client(deadtime_ms: u64) -> Client<u32> {
        let mut client = Client::new([3; 16]);
        client.configure(0, &[server(1), server(2)], deadtime_ms);
        client
    }

    /// Lets time pass until `end`. Returns for each datagram sent its time and the last byte of the server's address.
    fn sent(client: &mut Client<u32>, end: u64) -> Vec<(u64, u8)> {
        let mut all = Vec::new();
        let mut note = |now: u64, client: &mut Client<u32>| {
            for (to, _) in client.take_datagrams() {
                let SocketAddr::V4(to) = to else { continue };
                all.push((now, to.ip().octets()[3]));
            }
        };
        note(0, client);
        while let Some(at) = client.next_timeout().filter(|at| *at <= end) {
            client.handle_timer(at);
            note(at, client);
        }
        all
    }

    #[test]
    fn requests_are_repeated_and_then_sent_to_the_next_server() {
        let mut client = client(0);
        assert!(client.ask(0, 7, query()));
        let want = [(0, 1), (5000, 1), (10_000, 1), (15_000, 2), (20_000, 2), (25_000, 2)];
        assert_eq!(sent(&mut client, 100_000), want);
        let outcomes = client.take_outcomes();
        let [Outcome::Dead(one), Outcome::Dead(two), Outcome::NoServer(7)] = &outcomes[..] else {
            unreachable!("{outcomes:?}")
        };
        assert_eq!((*one, *two), (server(1).address, server(2).address));
        // Without a dead time the first server is asked first again.
        assert!(client.ask(200_000, 8, query()));
        assert_eq!(client.take_datagrams()[0].0, server(1).address);
    }

    #[test]
    fn a_dead_server_is_left_alone() {
        let mut client = client(60_000);
        assert!(client.ask(0, 7, query()));
        sent(&mut client, 16_000);
        assert!(client.view()[0].dead && !client.view()[1].dead);
        assert!(client.ask(17_000, 8, query()));
        assert_eq!(client.take_datagrams()[0].0, server(2).address);
        sent(&mut client, 60_000);
        assert!(client.view()[1].dead);
        client.take_outcomes();
        assert!(client.ask(61_000, 9, query()));
        assert!(matches!(client.take_outcomes()[..], [Outcome::NoServer(9)]), "all are dead");
        client.handle_timer(200_000);
        assert!(client.ask(200_000, 10, query()));
        let (to, packet) = client.take_datagrams().remove(0);
        assert_eq!(to, server(1).address);
        let answer = respond(&packet, &[1; 8], Code::Accept, &Attributes::default());
        client.handle_datagram(200_001, to, &answer);
        let outcomes = client.take_outcomes();
        assert!(matches!(outcomes[..], [Outcome::Alive(_), Outcome::Answered(10, _)]), "{outcomes:?}");
    }

    #[test]
    fn only_the_asked_server_answers() {
        let mut client = client(0);
        assert!(client.ask(0, 7, query()));
        let (to, packet) = client.take_datagrams().remove(0);
        let good = respond(&packet, &[1; 8], Code::Reject, &Attributes::default());
        client.handle_datagram(1, server(2).address, &good);
        client.handle_datagram(1, SocketAddr::from(([10, 0, 0, 9], 1812)), &good);
        assert!(client.take_outcomes().is_empty());
        for _ in 0..3 {
            client.handle_datagram(1, to, &respond(&packet, &[2; 8], Code::Accept, &Attributes::default()));
        }
        assert!(matches!(client.take_outcomes()[..], [Outcome::Invalid(_, Invalid::Authenticator, 1)]));
        assert_eq!(client.view()[0].invalid, 3);
        client.handle_datagram(2, to, &good);
        assert!(matches!(client.take_outcomes()[..], [Outcome::Answered(7, _)]));
        // A second copy of the answer is ignored.
        client.handle_datagram(3, to, &good);
        assert!(client.take_outcomes().is_empty());
    }

    #[test]
    fn where_a_signature_may_be_missing() {
        let mut client = client(0);
        let by_eap = || Query { attributes: Attributes::default(), password: None };
        let mut answered = |query: Query, signed: bool| {
            assert!(client.ask(0, 7, query));
            let (to, packet) = client.take_datagrams().remove(0);
            let accept = if signed {
                respond(&packet, &[1; 8], Code::Accept, &Attributes::default())
            } else {
                unsigned_accept(&packet, &[1; 8])
            };
            client.handle_datagram(1, to, &accept);
            client.forget(7);
            client.take_outcomes().iter().any(|outcome| matches!(outcome, Outcome::Answered(..)))
        };
        assert!(!answered(by_eap(), false), "EAP needs one");
        assert!(answered(by_eap(), true));
        assert!(answered(query(), false), "the server has not signed such an answer yet");
        assert!(answered(query(), true));
        assert!(!answered(query(), false), "it signs them");
    }

    #[test]
    fn requests_are_bounded_and_differ() {
        let mut client = client(0);
        assert!((0..256).all(|token| client.ask(0, token, query())));
        assert!(!client.ask(0, 256, query()));
        let all = client.take_datagrams();
        let authenticators: std::collections::BTreeSet<&[u8]> =
            all.iter().map(|(_, packet)| &packet[4..20]).collect();
        assert_eq!(authenticators.len(), 256);
        client.forget(9);
        assert!(client.ask(0, 256, query()));
        // The servers are removed: every request ends.
        client.configure(1, &[], 0);
        assert_eq!(client.take_outcomes().len(), 256);
        assert_eq!(client.next_timeout(), None);
    }
}
