//! Logins that TACACS+ servers verify, and the privilege levels that they give (`aaa authentication login default group tacacs+`,
//! `aaa authorization exec default group tacacs+`). [`lanyard_access::tacacs`] has the protocol; this module has the connections.
//!
//! Invariants: everything here runs as tasks of management, which never wait for a server; at most [`MAX_WAITING`] users wait.
//! Each question has a connection of its own, and all servers together have [`PATIENCE`] for the answer. A server whose reply is
//! invalid counts as one that does not answer.

use crate::access_control;
use crate::core::Core;
use crate::os;
use crate::pam::Verdict;
use crate::server::Shared;
use crate::users::Origin;
use lanyard_access::tacacs::{Answer, Counters, Exchange, Invalid, Login, Server, Step};
use lanyard_cli::backend;
use lanyard_cli::view;
use lanyard_config::access::{LEVEL_USER, MAX_NAME};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// The time that all servers together have for a question. A login may cause two questions; the rest of the minute that it may
/// take is left for the next method.
const PATIENCE: Duration = Duration::from_secs(20);
/// Users that wait for servers; further ones are rejected.
const MAX_WAITING: usize = 16;
/// The longest secret, in bytes.
const MAX_SECRET: usize = 512;

static WAITING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_WAITING)));

/// The question to the servers about a user.
enum Question<'a> {
    /// Whether this is the user's secret.
    Secret(&'a str),
    /// Authorization: may the user have a session, and at which level? The value is true if a TACACS+ server has verified the
    /// login.
    Shell(bool),
}

/// The answer to the question whether a user may have a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    /// The user gets a session at this privilege level.
    Permitted(u8),
    Denied,
    /// No server has answered; why.
    Unavailable(String),
}

/// Asks the servers whether a secret is that of a user.
pub(crate) async fn verify(shared: &Shared, origin: &Origin, user: &str, secret: &str) -> Verdict {
    if secret.len() > MAX_SECRET {
        return Verdict::Rejected;
    }
    match ask(shared, origin, user, &Question::Secret(secret)).await {
        Ok(Answer::Accepted) => Verdict::Accepted(None),
        Ok(_) => Verdict::Rejected,
        Err(unanswered) => Verdict::Unavailable(unanswered.to_string()),
    }
}

/// Asks the servers whether a user may have a session. If the server sends no privilege level, it is that of users
/// ([`LEVEL_USER`]).
pub(crate) async fn shell(shared: &Shared, origin: &Origin, user: &str, by_server: bool) -> Shell {
    match ask(shared, origin, user, &Question::Shell(by_server)).await {
        Ok(Answer::Permitted(level)) => Shell::Permitted(level.unwrap_or(LEVEL_USER)),
        Ok(_) => Shell::Denied,
        Err(unanswered) => Shell::Unavailable(unanswered.to_string()),
    }
}

/// The reason why no server has answered.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("no tacacs server has an address and a key")]
    NoServer,
    /// Each server's address and reason.
    #[error("{}", .0.join("; "))]
    ByAny(Vec<String>),
}

/// Asks one server after the other, until one of them answers.
///
/// # Errors
/// When none of them does; the reason is for the log.
async fn ask(
    shared: &Shared,
    origin: &Origin,
    user: &str,
    question: &Question<'_>,
) -> Result<Answer, Unanswered> {
    let is_name = !user.is_empty() && user.len() <= MAX_NAME && !user.chars().any(char::is_control);
    if !is_name {
        return Ok(Answer::Rejected("this is no name".into()));
    }
    let Ok(_waiting) = WAITING.clone().try_acquire_owned() else {
        return Ok(Answer::Rejected("too many users wait".into()));
    };
    let login =
        Login { user: user.to_owned(), line: origin.line.kind().to_owned(), host: origin.host.clone() };
    let servers = {
        let core = shared.core.borrow();
        core.tacacs.order(&core.ctx)
    };
    if servers.is_empty() {
        return Err(Unanswered::NoServer);
    }
    let end = Instant::now() + PATIENCE;
    let mut reasons = Vec::new();
    for server in servers.iter().take_while(|_| Instant::now() < end) {
        let first = begin(server, &login, question);
        let source = source(&shared.core.borrow(), server);
        let mut talk = Talk { server, end, counters: Counters::default() };
        let result = talk.whole(source, first).await;
        let core = &mut *shared.core.borrow_mut();
        let reason = core.tacacs.record(&mut core.ctx, server, user, &result, &talk.counters);
        match (result, reason) {
            (Ok(answer), None) => return Ok(answer),
            (_, reason) => reasons.push(format!("{}: {}", server.address, reason.unwrap_or_default())),
        }
    }
    Err(Unanswered::ByAny(reasons))
}

/// The source address for connections to a server, from `ip tacacs source-interface`; `None` without that line.
fn source(core: &Core, server: &Server) -> io::Result<Option<IpAddr>> {
    let config = core.ctx.switch.config();
    let is_ipv4 = server.address.is_ipv4();
    access_control::source(config, config.tacacs.source.as_ref(), "ip tacacs", |ip| ip.is_ipv4() == is_ipv4)
}

fn begin(server: &Server, login: &Login, question: &Question<'_>) -> (Exchange, Vec<u8>) {
    let [a, b, c, d, ..] = os::secret();
    let session = u32::from_be_bytes([a, b, c, d]);
    match question {
        Question::Secret(secret) => Exchange::authentication(session, &server.key, login, secret),
        Question::Shell(by_server) => Exchange::authorization(session, &server.key, login, *by_server),
    }
}

/// Why a server has not answered.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no answer within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("no connection: {0}")]
    Connect(io::Error),
    #[error("the server has closed the connection")]
    Closed,
    #[error("the connection has failed: {0}")]
    Broken(io::Error),
    #[error("{0}")]
    Invalid(#[from] Invalid),
}

/// A connection to a server for one question.
struct Talk<'a> {
    server: &'a Server,
    /// The end of the time for all servers together.
    end: Instant,
    counters: Counters,
}

impl Talk<'_> {
    /// The deadline for the server's next step: connection, or a complete reply.
    fn until(&self) -> Instant {
        (Instant::now() + Duration::from_millis(self.server.timeout_ms)).min(self.end)
    }
    fn slow(&self) -> Failure {
        Failure::Slow(Duration::from_millis(self.server.timeout_ms).min(PATIENCE))
    }
    /// Connects, exchanges the packets, and counts the result.
    async fn whole(
        &mut self,
        source: io::Result<Option<IpAddr>>,
        (exchange, first): (Exchange, Vec<u8>),
    ) -> Result<Answer, Failure> {
        self.counters.opens += 1;
        let result = match self.connect(source).await {
            Ok(stream) => self.exchange(stream, exchange, first).await,
            Err(failure) => Err(failure),
        };
        let counters = &mut self.counters;
        match &result {
            Ok(Answer::Accepted | Answer::Permitted(_)) => counters.accepts += 1,
            Ok(Answer::Rejected(_)) => counters.rejects += 1,
            Ok(Answer::Unable(_)) => {}
            Err(Failure::Slow(_)) => counters.timeouts += 1,
            Err(Failure::Connect(_)) => counters.failed_connects += 1,
            Err(Failure::Closed) => counters.aborts += 1,
            Err(Failure::Broken(_)) => counters.errors += 1,
            Err(Failure::Invalid(_)) => counters.invalid += 1,
        }
        if !matches!(result, Err(Failure::Connect(_) | Failure::Closed)) {
            counters.closes += 1;
        }
        result
    }
    async fn connect(&self, source: io::Result<Option<IpAddr>>) -> Result<TcpStream, Failure> {
        let address = self.server.address;
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(Failure::Connect)?;
        if let Some(source) = source.map_err(Failure::Connect)? {
            socket.bind(SocketAddr::from((source, 0))).map_err(Failure::Connect)?;
        }
        let connected = timeout_at(self.until(), socket.connect(address)).await;
        connected.map_err(|_| self.slow())?.map_err(Failure::Connect)
    }
    async fn exchange(
        &mut self,
        mut stream: TcpStream,
        mut exchange: Exchange,
        mut packet: Vec<u8>,
    ) -> Result<Answer, Failure> {
        let mut buffer = [0; 4096];
        loop {
            // The time applies to the whole reply, however many reads it takes.
            let until = self.until();
            let sent = timeout_at(until, stream.write_all(&packet)).await;
            sent.map_err(|_| self.slow())?.map_err(Failure::Broken)?;
            self.counters.sent += 1;
            packet = loop {
                let read = timeout_at(until, stream.read(&mut buffer)).await;
                let length = read.map_err(|_| self.slow())?.map_err(Failure::Broken)?;
                if length == 0 {
                    return Err(Failure::Closed);
                }
                let step = exchange.receive(&buffer[..length])?;
                if step != Step::Wait {
                    self.counters.received += 1;
                }
                match step {
                    Step::Wait => {}
                    Step::Send(next) => break next,
                    Step::Done(answer) => return Ok(answer),
                }
            };
        }
    }
}

impl backend::LoginServers for Core {
    fn tacacs(&mut self) -> view::TacacsServers {
        self.tacacs.view()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config, messages};
    use crate::users::{LineName, Protocol};
    use std::cell::RefCell;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::process::{Command, Stdio};
    use std::rc::Rc;
    use tokio::sync::Notify;

    const KEY: &str = "between-us";
    /// Bodies of replies (RFC 8907, 5.2 and 6.2). `PASS` also permits a session without sending a level.
    const PASS: &[u8] = &[1, 0, 0, 0, 0, 0];
    const FAIL: &[u8] = &[2, 0, 0, 0, 0, 0];
    const GET_PASS: &[u8] = &[5, 1, 0, 0, 0, 0];
    const ERROR: &[u8] = &[7, 0, 0, 0, 0, 0];
    const UNKNOWN: &[u8] = &[9, 0, 0, 0, 0, 0];
    const LEVEL_7: &[u8] = b"\x01\x01\0\0\0\0\x0apriv-lvl=7";
    /// Instead of a reply, the server resets the connection.
    const RESET: &[u8] = b"";

    /// The bodies of the replies of a server on one connection. The server closes the connection when it has read one packet more.
    type Script = &'static [&'static [u8]];

    /// Starts a server on 127.0.0.1 that has one connection for each script.
    fn start(scripts: &'static [Script]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for script in scripts {
                // The client may close the connection first.
                let _ = listener.accept().and_then(|(stream, _)| reply(stream, script));
            }
        });
        address
    }

    fn reply(mut stream: std::net::TcpStream, script: Script) -> io::Result<()> {
        let mut replies = script.iter();
        loop {
            let body = replies.next();
            if body == Some(&RESET) {
                // Closing a connection with input that was not read resets it.
                return stream.peek(&mut [0]).map(drop);
            }
            let mut header = [0; 12];
            stream.read_exact(&mut header)?;
            let [.., a, b, c, d] = header;
            stream.read_exact(&mut vec![0; u32::from_be_bytes([a, b, c, d]) as usize])?;
            let Some(body) = body else { return Ok(()) };
            header[2] += 1;
            header[8..].copy_from_slice(&(body.len() as u32).to_be_bytes());
            let mut pad = Vec::new();
            while pad.len() < body.len() {
                let last = &pad[pad.len().saturating_sub(16)..];
                let sum = md5(&[&header[4..8], KEY.as_bytes(), &[header[0], header[2]], last].concat());
                pad.extend(sum);
            }
            let hidden = body.iter().zip(pad).map(|(byte, pad)| byte ^ pad);
            stream.write_all(&header.into_iter().chain(hidden).collect::<Vec<u8>>())?;
        }
    }

    /// The sum that hides the body of a packet (RFC 8907, 4.5), by a program that is part of every system.
    fn md5(text: &[u8]) -> Vec<u8> {
        let mut program = Command::new("md5sum");
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("md5sum");
        child.stdin.take().expect("a pipe").write_all(text).expect("sent");
        let output = child.wait_with_output().expect("a sum").stdout;
        let digits = String::from_utf8(output).expect("text");
        (0..16).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("a byte")).collect()
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work)
    }

    /// Asks a server whether a secret is right, while `left` is left for the question; returns the result and the counters.
    fn talk(scripts: &'static [Script], source: Option<&str>, left: Duration) -> (String, Counters) {
        let server =
            Server { name: "S".into(), address: start(scripts), key: KEY.into(), timeout_ms: 60_000 };
        let login = Login { user: "ann".into(), line: "vty".into(), host: "192.0.2.1".into() };
        let first = begin(&server, &login, &Question::Secret("tiger"));
        let mut talk = Talk { server: &server, end: Instant::now() + left, counters: Counters::default() };
        let source = source.map_or(Ok(None), |error| Err(io::Error::other(error)));
        let result = block_on(talk.whole(source, first));
        let text = result.map_or_else(|failure| failure.to_string(), |answer| format!("{answer:?}"));
        (text, talk.counters)
    }

    #[test]
    fn each_result_of_a_connection_has_its_counter() {
        let counted = |sent, received| Counters { opens: 1, sent, received, ..Counters::default() };
        let rows: [(&'static [Script], &str, Counters); 7] = [
            (&[&[GET_PASS, PASS]], "Accepted", Counters { closes: 1, accepts: 1, ..counted(2, 2) }),
            (&[&[GET_PASS, FAIL]], "Rejected(", Counters { closes: 1, rejects: 1, ..counted(2, 2) }),
            (&[&[ERROR]], "Unable(", Counters { closes: 1, ..counted(1, 1) }),
            (&[&[UNKNOWN]], "a reply with the unknown", Counters { closes: 1, invalid: 1, ..counted(1, 0) }),
            (&[&[]], "the server has closed the", Counters { aborts: 1, ..counted(1, 0) }),
            (&[&[GET_PASS]], "the server has closed the", Counters { aborts: 1, ..counted(2, 1) }),
            (&[&[RESET]], "the connection has failed: ", Counters { closes: 1, errors: 1, ..counted(1, 0) }),
        ];
        for (scripts, text, counters) in rows {
            let (result, found) = talk(scripts, None, PATIENCE);
            assert!(result.starts_with(text), "{text}: {result}");
            assert_eq!(found, counters, "{text}");
        }
        let (result, found) = talk(&[], Some("vlan10 has no address"), PATIENCE);
        assert_eq!(result, "no connection: vlan10 has no address");
        assert_eq!(found, Counters { failed_connects: 1, ..counted(0, 0) });
        // The servers before this one have taken all the time.
        let (result, found) = talk(&[&[PASS]], None, Duration::ZERO);
        assert_eq!(result, "no answer within 20 s");
        assert_eq!(found, Counters { closes: 1, timeouts: 1, ..counted(0, 0) });
    }

    /// A switch with these servers in its configuration.
    fn switch(bench: &Bench, servers: &str) -> Shared {
        let mut core = bench.core();
        core.take(config(servers)).expect("taken");
        let core = Rc::new(RefCell::new(core));
        Shared { core, changed: Rc::default(), detached: Rc::new(Notify::new()) }
    }

    fn server(address: SocketAddr, key: &str) -> String {
        let (port, time) = (address.port(), "timeout 60");
        format!("tacacs server S{port}\n address ipv4 127.0.0.1\n port {port}\n key 0 {key}\n {time}\n")
    }

    fn origin() -> Origin {
        Origin { line: LineName::Vty(0), protocol: Protocol::Telnet, host: "192.0.2.1".into() }
    }

    #[test]
    fn a_server_that_has_not_answered_is_asked_last_for_a_minute() {
        let failed = start(&[&[], &[PASS]]);
        let other = start(&[&[GET_PASS, PASS], &[LEVEL_7]]);
        let bench = Bench::new();
        let shared = switch(&bench, &(server(failed, KEY) + &server(other, KEY)));
        let ask = || block_on(shell(&shared, &origin(), "ann", true));
        let verdict = block_on(verify(&shared, &origin(), "ann", "tiger"));
        assert_eq!(verdict, Verdict::Accepted(None), "by the other server");
        bench.clock.set(59_999);
        assert_eq!(ask(), Shell::Permitted(7), "the level of the other server");
        bench.clock.set(60_000);
        assert_eq!(ask(), Shell::Permitted(LEVEL_USER), "a reply without a level");
        let core = shared.core.borrow();
        let logged = messages(&core.ctx).into_iter().filter(|line| line.starts_with("TACACS_"));
        let dead = format!(
            "TACACS_DEAD: TACACS+ server {failed} is not responding: the server has closed the connection."
        );
        let alive = format!("TACACS_ALIVE: TACACS+ server {failed} is being marked alive.");
        assert_eq!(logged.collect::<Vec<_>>(), [dead, alive]);
        let opens = core.tacacs.view().servers.into_iter().map(|server| server.socket_opens);
        assert_eq!(opens.collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn without_an_answer_the_reason_of_each_server_is_given() {
        let closed = start(&[&[]]);
        let other_key = start(&[&[GET_PASS]]);
        let both = server(closed, KEY) + &server(other_key, "another");
        let reasons = format!(
            "{closed}: the server has closed the connection; \
             {other_key}: a malformed reply: compare the keys of switch and server"
        );
        for (servers, reason) in [
            ("tacacs server S\n address ipv4 127.0.0.1\n", "no tacacs server has an address and a key"),
            (
                "ip tacacs source-interface vlan 10\ntacacs server S\n address ipv4 127.0.0.1\n key 0 key\n",
                "127.0.0.1:49: no connection: vlan10 has no address: give it one, or enter \
                 `no ip tacacs source-interface`",
            ),
            (&both, &reasons),
        ] {
            let shared = switch(&Bench::new(), servers);
            let verdict = block_on(verify(&shared, &origin(), "ann", "tiger"));
            assert_eq!(verdict, Verdict::Unavailable(reason.to_owned()));
        }
    }

    #[test]
    fn names_and_secrets_that_cannot_be_right_are_rejected_without_a_server() {
        let servers = "tacacs server S\n address ipv4 127.0.0.1\n key 0 key\n";
        let shared = switch(&Bench::new(), servers);
        let (long_name, long_secret) = ("x".repeat(MAX_NAME + 1), "x".repeat(MAX_SECRET + 1));
        for (name, given) in [("", "x"), ("a\nb", "x"), (&long_name, "x"), ("ann", &long_secret)] {
            let verdict = block_on(verify(&shared, &origin(), name, given));
            assert_eq!(verdict, Verdict::Rejected, "{name:?}");
        }
        assert_eq!(block_on(shell(&shared, &origin(), "a\nb", false)), Shell::Denied);
        assert_eq!(shared.core.borrow().tacacs.view().servers[0].socket_opens, 0);
    }
}
