//! Command-line sessions over [`crate::protocol`]; [`crate::connections`] accepts them.
//!
//! Invariant: sessions, the length of a request, and output that waits for a reader are bounded. A client that reads nothing for
//! [`STALL`] is disconnected; the client of a user, after the time-out of their session.

mod output;

use crate::bus::{Subscription, TooManyListeners, Topics};
use crate::core::Core;
use crate::identity::NotPermitted;
use crate::os;
use crate::protocol::{Done, MAX_PIECE, MAX_REQUEST, Reply, Request, line, pieces};
use crate::snooping;
use crate::users::{LineName, Origin, Protocol, TooManyUsers};
use lanyard_access::secret;
use lanyard_cli::listing::Listing;
use lanyard_cli::{Login, Outcome, Session};
use lanyard_config::access::TerminalLine;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

/// How long a write may wait for a client that is a program. [`Seat::patience`] applies to the client of a user.
const STALL: Duration = Duration::from_secs(60);

/// The state that sessions share.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The switch.
    pub(crate) core: Rc<RefCell<Core>>,
    /// Wakes the event loop, because a session may have changed a deadline.
    pub(crate) changed: Rc<Notify>,
    /// Notified after a session has detached the switch.
    pub(crate) detached: Rc<Notify>,
}

impl Shared {
    /// The settings of a terminal line.
    pub(crate) fn settings(&self, line: LineName) -> TerminalLine {
        let core = self.core.borrow();
        let lines = &core.ctx.switch.config().access.lines;
        match line {
            LineName::Console(_) => lines.console.clone(),
            LineName::Vty(number) => lines.vty(number).clone(),
        }
    }
}

/// Why a session ended early. It is the last message to a client that still reads.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the client has closed the connection")]
    Gone,
    #[error("the client does not read")]
    Stalled,
    #[error("the line was cleared")]
    Cleared,
    #[error("no request came")]
    Silent,
    #[error("a request is longer than {MAX_REQUEST} bytes")]
    TooLong,
    #[error("not a request: {0}")]
    NotARequest(#[from] serde_json::Error),
    #[error("the first request must be hello")]
    NoHello,
    #[error("{0}")]
    Blocked(String),
    #[error("not in a session")]
    InSession,
    /// A request came while a command sends its output; the command in words.
    #[error("only interrupt may follow while {0}")]
    Busy(String),
    #[error(transparent)]
    Users(#[from] TooManyUsers),
    #[error(transparent)]
    NotPermitted(#[from] NotPermitted),
    #[error(transparent)]
    Listeners(#[from] TooManyListeners),
}

/// A client of the protocol.
pub(crate) struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    buffer: Vec<u8>,
    /// A request that came while a listing was sent, and is answered afterwards.
    ahead: Option<Result<Request, Ended>>,
    /// How long a write may wait for its reader.
    stall: Duration,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: BufReader::new(reader), writer, buffer: Vec::new(), ahead: None, stall: STALL }
    }
    /// The two halves, for a connection that carries the bytes of a terminal from now on.
    pub(crate) fn into_halves(self) -> (BufReader<OwnedReadHalf>, OwnedWriteHalf) {
        (self.reader, self.writer)
    }
    pub(crate) async fn send(&mut self, reply: &Reply) -> Result<(), Ended> {
        let text = line(reply);
        match tokio::time::timeout(self.stall, self.writer.write_all(text.as_bytes())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Ended::Gone),
            Err(_) => Err(Ended::Stalled),
        }
    }
    pub(crate) async fn send_text(&mut self, kind: fn(String) -> Reply, text: &str) -> Result<(), Ended> {
        for piece in pieces(text, MAX_PIECE) {
            self.send(&kind(piece.to_owned())).await?;
        }
        Ok(())
    }
    /// The next request. Cancel safe: a partial line stays in the buffer.
    pub(crate) async fn request(&mut self) -> Result<Request, Ended> {
        if let Some(request) = self.ahead.take() {
            return request;
        }
        let whole = read_line(&mut self.reader, &mut self.buffer, MAX_REQUEST).await?;
        Ok(serde_json::from_slice(&whole)?)
    }
    /// Lets other tasks run; returns true when the client interrupts. Another request waits until the listing has been sent.
    async fn interrupted(&mut self) -> bool {
        if self.ahead.is_some() {
            tokio::task::yield_now().await;
            return false;
        }
        tokio::select! {
            biased;
            request = self.request() => {
                let interrupts = matches!(request, Ok(Request::Interrupt));
                self.ahead = Some(request).filter(|_| !interrupts);
                interrupts
            }
            () = tokio::task::yield_now() => false,
        }
    }
}

pub(crate) async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    buffer: &mut Vec<u8>,
    limit: usize,
) -> Result<Vec<u8>, Ended> {
    loop {
        let available = reader.fill_buf().await.map_err(|_| Ended::Gone)?;
        if available.is_empty() {
            return Err(Ended::Gone);
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |at| at + 1);
        buffer.extend_from_slice(&available[..taken]);
        reader.consume(taken);
        if buffer.len() > limit {
            return Err(Ended::TooLong);
        }
        if end.is_some() {
            return Ok(std::mem::take(buffer));
        }
    }
}

/// The terminal line of a session, which is released however the session ends.
pub(crate) struct Seat {
    pub(crate) line: LineName,
    pub(crate) shared: Shared,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut core = self.shared.core.borrow_mut();
        core.users.remove(self.line);
        core.session_ended(self.line);
    }
}

impl Seat {
    fn done(&self, session: &Session, refused: bool, close: bool) -> Reply {
        let prompt = session.prompt(&*self.shared.core.borrow());
        Reply::Done(Done { refused, close, prompt, length: session.terminal().length, hidden: false })
    }
    /// Runs a line on the switch; the switch's notices precede the output.
    fn execute(&self, session: &mut Session, line: &str) -> (String, Outcome) {
        self.on_core(|core| {
            let now_ms = core.ctx.clock.now_ms();
            core.users.touch(self.line, now_ms);
            core.ctx.notices.clear();
            let outcome = session.execute(line, core);
            let notices = core.ctx.notices.drain(..).map(|notice| format!("% {notice}\n")).collect();
            (notices, outcome)
        })
    }
    /// Leaves the configuration modes of a session whose connection has ended.
    fn close(&self, session: &mut Session) {
        self.on_core(|core| session.close(core));
    }
    /// Lets this line's session change the switch, and wakes the event loop, which waits for changes.
    fn on_core<T>(&self, work: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.shared.core.borrow_mut();
        core.users.current = Some(self.line);
        let result = os::ordinary(|| work(&mut core));
        core.users.current = None;
        drop(core);
        self.shared.changed.notify_one();
        result
    }
    /// The next part of a listing. Nobody else waits for longer than one part takes.
    fn part(&self, listing: &mut Listing) -> Option<String> {
        let mut core = self.shared.core.borrow_mut();
        os::ordinary(|| listing.next(&mut *core))
    }
    /// How long the client of an interactive session may read nothing: as long as its user may be idle, because a pager that waits
    /// for its user reads nothing either.
    fn patience(&self) -> Duration {
        match self.shared.settings(self.line).exec_timeout_s {
            0 => Duration::MAX,
            seconds => STALL.max(Duration::from_secs(seconds.into())),
        }
    }
}

/// Assigns a terminal line that permits the user's protocol.
///
/// # Errors
/// When there are too many sessions.
pub(crate) fn seat_of(
    shared: &Shared,
    login: Login,
    origin: &Origin,
) -> Result<(Seat, Session), TooManyUsers> {
    let line = {
        let mut core = shared.core.borrow_mut();
        let now_ms = core.ctx.clock.now_ms();
        let lines = core.ctx.switch.config().access.lines.clone();
        let fits = |number| match origin.protocol {
            Protocol::Ssh => lines.vty(number).transport.ssh(),
            Protocol::Telnet | Protocol::Serial => lines.vty(number).transport.telnet(),
        };
        core.users.add(origin.line, &login.user, &login.host, now_ms, fits)?
    };
    let seat = Seat { line, shared: shared.clone() };
    Ok((seat, Session::new(Login { line: line.to_string(), ..login })))
}

/// Opens a session for a user who has logged in on a remote terminal; returns its client's side of a pair of sockets, and the
/// terminal line.
///
/// # Errors
/// When there are too many sessions.
pub(crate) fn attach(
    shared: &Shared,
    login: Login,
    origin: &Origin,
) -> Result<(UnixStream, LineName), AttachError> {
    let (client, server) = UnixStream::pair()?;
    let (seat, session) = seat_of(shared, login, origin)?;
    let line = seat.line;
    tokio::task::spawn_local(async move {
        let mut connection = Connection::new(server);
        if let Err(reason) = seated(&mut connection, &seat, session, "").await {
            let _ = connection.send(&Reply::Error(reason.to_string())).await;
        }
    });
    Ok((client, line))
}

/// Why a remote terminal gets no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    #[error(transparent)]
    Users(#[from] TooManyUsers),
    #[error("no descriptor is left: {0}")]
    System(#[from] io::Error),
}

/// Runs a session until it ends, or its line is cleared.
pub(crate) async fn seated(
    connection: &mut Connection,
    seat: &Seat,
    mut session: Session,
    greeting: &str,
) -> Result<(), Ended> {
    let cleared = seat.shared.core.borrow().users.cleared(seat.line);
    let ended = tokio::select! {
        ended = converse(connection, seat, &mut session, greeting) => ended,
        () = cleared.notified() => Err(Ended::Cleared),
    };
    seat.close(&mut session);
    if matches!(ended, Err(Ended::Stalled)) {
        let mut core = seat.shared.core.borrow_mut();
        core.users.stalled += 1;
        let text = format!("the session on {} is dropped: its client does not read", seat.line);
        core.ctx.log("SYS", 4, "SESSION_DROPPED", &text);
    }
    ended
}

async fn converse(
    connection: &mut Connection,
    seat: &Seat,
    session: &mut Session,
    greeting: &str,
) -> Result<(), Ended> {
    connection.send_text(Reply::Text, greeting).await?;
    connection.send(&seat.done(session, false, false)).await?;
    let mut monitor: Option<Subscription> = None;
    let mut asked: Option<Asked> = None;
    loop {
        let request = tokio::select! {
            request = connection.request() => request?,
            Some(line) = next(&mut monitor) => {
                connection.send(&Reply::Monitor(line.to_string())).await?;
                continue;
            }
        };
        match request {
            Request::Exec { line, .. } if asked.is_some() => {
                asked = answer(connection, seat, session, asked, &line).await?;
            }
            Request::Exec { line, pasted } => {
                session.set_pasted(pasted);
                match execute(connection, seat, session, &line).await? {
                    Next::Closed => return Ok(()),
                    Next::Line => {}
                    Next::Secret(level) => asked = Some(Asked { level, tries: 0 }),
                }
                follow_monitor(&mut monitor, session, seat)?;
            }
            Request::Complete { line } => {
                let completion = session.complete(&line, &*seat.shared.core.borrow());
                let (start, candidates) = (completion.start, completion.candidates);
                connection.send(&Reply::Completion { start, candidates }).await?;
            }
            Request::Help { line } => {
                let lines = session.help(&line, &*seat.shared.core.borrow());
                connection.send(&Reply::Help(lines)).await?;
            }
            Request::Interrupt => {}
            Request::Hello { .. }
            | Request::Console { .. }
            | Request::Ssh { .. }
            | Request::Authenticate { .. }
            | Request::Terminal
            | Request::Brctl { .. }
            | Request::Detach => {
                return Err(Ended::InSession);
            }
        }
    }
}

async fn next(subscription: &mut Option<Subscription>) -> Option<Rc<str>> {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}

/// Subscribes to log messages, or ends the subscription, as `terminal monitor` and `terminal no monitor` have set.
fn follow_monitor(
    monitor: &mut Option<Subscription>,
    session: &Session,
    seat: &Seat,
) -> Result<(), TooManyListeners> {
    if session.terminal().monitor && monitor.is_none() {
        *monitor = Some(seat.shared.core.borrow_mut().ctx.bus.subscribe(Topics::Log)?);
    } else if !session.terminal().monitor {
        *monitor = None;
    }
    Ok(())
}

/// The input that a session expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Another line.
    Line,
    /// The secret of this privilege level.
    Secret(u8),
    /// Nothing: the session has ended.
    Closed,
}

/// A request for the secret of a privilege level, and the number of wrong answers.
#[derive(Debug, Clone, Copy)]
struct Asked {
    level: u8,
    tries: u32,
}

/// How often a session may give a secret for one `enable`, as in IOS.
const SECRET_TRIES: u32 = 3;

/// Checks the secret that a user gives for `enable`. Returns the next request for a secret; `None` when no further one is made.
/// The hash is computed on a thread of its own, because it takes tens of milliseconds. After too many wrong secrets the user is
/// blocked for some time.
async fn answer(
    connection: &mut Connection,
    seat: &Seat,
    session: &mut Session,
    asked: Option<Asked>,
    line: &str,
) -> Result<Option<Asked>, Ended> {
    let Some(Asked { level, tries }) = asked else { return Ok(None) };
    let Login { user, host, line: terminal, .. } = session.login().clone();
    let source = format!("{user}@{host}");
    let (blocked_ms, secret) = {
        let core = seat.shared.core.borrow();
        let blocked_ms = core.throttle.blocked_ms(core.ctx.clock.now_ms(), &source);
        (blocked_ms, core.ctx.switch.config().access.enable.get(&level).cloned())
    };
    let right = match (blocked_ms, secret) {
        (Some(left_ms), _) => {
            let left_s = left_ms.div_ceil(1000);
            let text = format!("% Too many wrong secrets from {source}: wait {left_s} seconds\n");
            connection.send(&Reply::Refusal(text)).await?;
            connection.send(&seat.done(session, true, false)).await?;
            return Ok(None);
        }
        (None, None) => false,
        (None, Some(secret)) => {
            let text = line.trim_end_matches(['\r', '\n']).to_owned();
            tokio::task::spawn_blocking(move || secret::matches(&secret, &text)).await.unwrap_or(false)
        }
    };
    if right {
        seat.shared.core.borrow_mut().throttle.succeeded(&source);
        session.raise(level);
        connection.send(&seat.done(session, false, false)).await?;
        return Ok(None);
    }
    let is_blocked = {
        let mut core = seat.shared.core.borrow_mut();
        let now_ms = core.ctx.clock.now_ms();
        let text = format!(
            "wrong secret for privilege level {level} [user: {user}] [Source: {host}] [line: {terminal}]"
        );
        core.ctx.log("SEC_LOGIN", 4, "ENABLE_FAILED", &text);
        core.throttle.failed(now_ms, &source)
    };
    let tries = tries + 1;
    if tries >= SECRET_TRIES || is_blocked {
        connection.send(&Reply::Refusal("% Bad secrets\n".into())).await?;
        connection.send(&seat.done(session, true, false)).await?;
        return Ok(None);
    }
    connection.send(&ask()).await?;
    Ok(Some(Asked { level, tries }))
}

/// Asks for a secret: the line that follows is not shown.
fn ask() -> Reply {
    Reply::Done(Done { prompt: "Password: ".into(), hidden: true, ..Done::default() })
}

/// Runs one line to its end.
async fn execute(
    connection: &mut Connection,
    seat: &Seat,
    session: &mut Session,
    line: &str,
) -> Result<Next, Ended> {
    connection.stall = if session.login().interactive { seat.patience() } else { STALL };
    let (notices, outcome) = seat.execute(session, line);
    connection.send_text(Reply::Text, &notices).await?;
    let (mut refused, mut close) = (false, false);
    match outcome {
        Outcome::Text(text) => connection.send_text(Reply::Text, &text).await?,
        Outcome::Refused(text) => {
            refused = true;
            connection.send_text(Reply::Refusal, &text).await?;
        }
        Outcome::Listing(listing) => output::list(connection, seat, listing).await?,
        Outcome::Ntp(query) => match output::ask_ntp(connection)
            .await?
            .map(|answer| answer.map(|view| query.print(&view)))
        {
            // The client has interrupted the command.
            None => {}
            Some(Ok(Ok(text))) => connection.send_text(Reply::Text, &text).await?,
            Some(Ok(Err(error))) => {
                refused = true;
                connection
                    .send_text(Reply::Refusal, &format!("% The output can't be written as JSON: {error}\n"))
                    .await?;
            }
            Some(Err(failure)) => {
                refused = true;
                connection.send_text(Reply::Refusal, &format!("% {failure}\n")).await?;
            }
        },
        Outcome::Stream(kinds) => {
            let topics = Topics::Events(kinds.into_iter().collect());
            let subscription = {
                let mut core = seat.shared.core.borrow_mut();
                let subscription = core.ctx.bus.subscribe(topics);
                snooping::listen(&core.ctx);
                subscription
            };
            match subscription {
                Ok(subscription) => output::stream(connection, subscription).await?,
                Err(reason) => {
                    refused = true;
                    connection.send_text(Reply::Refusal, &format!("% {reason}\n")).await?;
                }
            }
        }
        Outcome::Capture(wanted) => {
            if let Err(reason) = output::capture(connection, seat, &wanted).await? {
                refused = true;
                connection.send_text(Reply::Refusal, &format!("% {reason}\n")).await?;
            }
        }
        Outcome::Run(program) => {
            if let Err(reason) = output::run(connection, &program).await? {
                refused = true;
                connection.send_text(Reply::Refusal, &format!("% {reason}\n")).await?;
            }
        }
        Outcome::Password(level) => {
            connection.send(&ask()).await?;
            return Ok(Next::Secret(level));
        }
        Outcome::Close => close = true,
    }
    connection.send(&seat.done(session, refused, close)).await?;
    Ok(if close { Next::Closed } else { Next::Line })
}

#[cfg(test)]
#[allow(clippy::panic)] // a mistake in a test
#[path = "server_tests.rs"]
mod tests;
