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
