//! Sessions of users who log in: on the console (`lanyard console`), over telnet, and over SSH, whose server asks for name and
//! secret itself ([`crate::ssh_sessions`]).
//!
//! Such a session is a terminal ([`crate::terminal`]) in front of an ordinary session ([`crate::server`]): it speaks the protocol
//! of the control socket over a pair of sockets, and adds the login, line editing and paging.
//!
//! Invariant: nothing of the switch is read or changed before the login has succeeded, except banners and the limits on logins.
//! Everything here runs as tasks of management and waits for the client only between commands; hashes are computed on
//! threads of their own, [`HASHES`] at a time, and other servers are asked by processes ([`crate::pam_logins`]) or by tasks
//! ([`crate::tacacs_logins`]).

use crate::pam::{self, Verdict};
use crate::pam_logins;
use crate::protocol::{Done, Reply, Request, line};
use crate::server::{self, Shared};
use crate::tacacs_logins::{self, Shell};
use crate::terminal::{Gone, Reader, Terminal, Writer};
use crate::users::{LineName, Origin, Protocol};
use lanyard_access::editor::Key;
use lanyard_access::secret;
use lanyard_cli::Login;
use lanyard_config::access::{ExecMethod, LoginMethod, PublicKey, User};
use lanyard_config::{Banner, Config};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Semaphore;

/// How long a login may take.
const LOGIN_TIME: Duration = Duration::from_secs(60);
/// How often a connection may give a name and a secret, as in IOS.
const TRIES: u32 = 3;
/// How long the answer to a wrong secret is delayed.
const FAILURE_DELAY: Duration = Duration::from_secs(1);
/// Hashes that are computed at the same time. Each takes tens of milliseconds of a processor.
const HASHES: usize = 1;
/// Logins that wait for their hash; further ones are refused.
const MAX_WAITING: usize = 16;
/// The longest reply line of a session, in bytes.
const MAX_REPLY: usize = 16 << 20;
/// The page length with which sessions start, in lines; as long as it is unchanged, the height of the terminal is used instead.
const LENGTH_DEFAULT: u16 = 24;

static HASHING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(HASHES)));
static WAITING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_WAITING)));

/// Why the session of a terminal is over, for the user or the log.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Gone(#[from] Gone),
    #[error("the login took longer than {} s", LOGIN_TIME.as_secs())]
    Slow,
    #[error("no login")]
    NoLogin,
    #[error("it was idle for {0} s")]
    Idle(u32),
    #[error("{0}")]
    Closed(String),
    #[error("exit")]
    Exit,
}

/// Serves a connection from its login to its end.
pub(crate) async fn serve(reader: Reader, writer: Writer, origin: Origin, shared: Shared) {
    let is_telnet = origin.protocol == Protocol::Telnet;
    let Ok(mut terminal) = Terminal::open(reader, writer, is_telnet).await else { return };
    let result = match tokio::time::timeout(LOGIN_TIME, login(&mut terminal, &origin, &shared)).await {
        Ok(Ok(login)) => session(&mut terminal, login, &origin, &shared).await,
        Ok(Err(ended)) => Err(ended),
        Err(_) => Err(Ended::Slow),
    };
    end(&mut terminal, result, &origin, &shared).await;
}

/// Serves the terminal of a user who has logged in already, to its end.
pub(crate) async fn serve_user(
    reader: Reader,
    writer: Writer,
    login: Login,
    origin: &Origin,
    shared: &Shared,
) {
    let Ok(mut terminal) = Terminal::open(reader, writer, false).await else { return };
    let motd = banner(shared.core.borrow().ctx.switch.config(), Banner::Motd);
    let result = match terminal.print(&motd).await {
        Ok(()) => session(&mut terminal, login, origin, shared).await,
        Err(gone) => Err(gone.into()),
    };
    end(&mut terminal, result, origin, shared).await;
}

/// Reports the end of a session to the user, or to the log.
async fn end(terminal: &mut Terminal, result: Result<(), Ended>, origin: &Origin, shared: &Shared) {
    let Err(ended) = result else { return };
    match &ended {
        Ended::Exit | Ended::NoLogin | Ended::Gone(Gone::Closed) => {}
        Ended::Gone(Gone::Stalled) => {
            let mut core = shared.core.borrow_mut();
            core.users.stalled += 1;
            let text = format!("session from {} dropped: {ended}", origin.host);
            core.ctx.log("SYS", 4, "SESSION_DROPPED", &text);
        }
        Ended::Slow | Ended::Idle(_) | Ended::Closed(_) => {
            let _ = terminal.print(&format!("\n% The session is closed: {ended}\n")).await;
        }
    }
}

fn banner(config: &Config, which: Banner) -> String {
    let text = config.banners.get(&which).map(|text| text.strip_suffix('\n').unwrap_or(text));
    text.map_or_else(String::new, |text| format!("{text}\n"))
}

/// Asks for name and secret until they are right; returns the user's login.
async fn login(terminal: &mut Terminal, origin: &Origin, shared: &Shared) -> Result<Login, Ended> {
    let line = shared.settings(origin.line);
    let (text, has_users) = {
        let core = shared.core.borrow();
        let config = core.ctx.switch.config();
        let text = banner(config, Banner::Motd) + &banner(config, Banner::Login);
        let access = &config.access;
        let asks_others = access.login_methods.iter().any(|method| *method != LoginMethod::Local);
        (text, asks_others || !access.users.is_empty())
    };
    terminal.print(&text).await?;
    if line.no_login {
        return Ok(login_of(String::new(), &User::default(), origin));
    }
    if !has_users {
        terminal
            .print("% No users are configured: configure username on the switch itself, with lanyard cli\n")
            .await?;
        return Err(Ended::NoLogin);
    }
    terminal.print("\nUser Access Verification\n\n").await?;
    for _ in 0..TRIES {
        refuse_blocked(terminal, origin, shared).await?;
        let Some(name) = terminal.ask("Username: ", false).await? else { continue };
        let Some(given) = terminal.ask("Password: ", true).await? else { continue };
        match verify(shared, origin, name.trim(), given).await {
            Verified::User(user) => return Ok(login_of(name.trim().to_owned(), &user, origin)),
            Verified::NotAuthorized => {
                terminal.print("% Authorization failed.\n").await?;
                return Err(Ended::NoLogin);
            }
            Verified::Rejected => {}
        }
        tokio::time::sleep(FAILURE_DELAY).await;
        terminal.print("% Login invalid\n\n").await?;
    }
    Err(Ended::NoLogin)
}

/// The banner that precedes a login.
pub(crate) fn login_banner(shared: &Shared) -> String {
    banner(shared.core.borrow().ctx.switch.config(), Banner::Login)
}

/// The number of seconds for which no user of the host may log in, after too many failed logins; `None` when they may.
pub(crate) fn blocked_s(shared: &Shared, origin: &Origin) -> Option<u64> {
    let core = shared.core.borrow();
    let left_ms = core.throttle.blocked_ms(core.ctx.clock.now_ms(), &origin.host)?;
    Some(left_ms.div_ceil(1000))
}

/// The login of a configured user.
pub(crate) fn login_of(name: String, user: &User, origin: &Origin) -> Login {
    Login { user: name, level: user.level, interactive: true, host: origin.host.clone(), ..Login::default() }
}

async fn refuse_blocked(terminal: &mut Terminal, origin: &Origin, shared: &Shared) -> Result<(), Ended> {
    let Some(left_s) = blocked_s(shared, origin) else { return Ok(()) };
    terminal
        .print(&format!("% Too many failed logins from {}: wait {left_s} seconds\n", origin.host))
        .await?;
    Err(Ended::NoLogin)
}

/// The result of a login.
#[derive(Debug)]
pub(crate) enum Verified {
    /// The user, with the level of the session.
    User(User),
    /// The name or the proof is wrong.
    Rejected,
    /// The name and the proof are right, but `aaa authorization exec` does not permit a session.
    NotAuthorized,
}

/// Verifies a name and a secret by the methods of `aaa authentication login default`, and authorizes the user by those of
/// `aaa authorization exec default`. The result is logged and counts for the limits on failed logins.
pub(crate) async fn verify(shared: &Shared, origin: &Origin, name: &str, given: String) -> Verified {
    let (user, methods) = {
        let core = shared.core.borrow();
        let access = &core.ctx.switch.config().access;
        (access.users.get(name).cloned(), access.login_methods.clone())
    };
    let mut found = None;
    let mut by_server = false;
    for method in &methods {
        let verdict = match method {
            LoginMethod::Local => local(user.as_ref(), given.clone()).await,
            LoginMethod::Tacacs => Some(tacacs_logins::verify(shared, origin, name, &given).await),
            LoginMethod::Group(group) => {
                let login = pam::Login {
                    service: pam_logins::service(group),
                    user: name.to_owned(),
                    secret: given.clone(),
                    host: origin.host.clone(),
                    line: origin.line.kind().to_owned(),
                };
                Some(pam_logins::verify(login).await)
            }
        };
        match verdict {
            Some(Verdict::Accepted(level)) => {
                let own = user.clone().unwrap_or_default();
                found = Some(User { level: level.unwrap_or(own.level), ..own });
                by_server = *method == LoginMethod::Tacacs;
                break;
            }
            Some(Verdict::Rejected) => break,
            Some(Verdict::Unavailable(reason)) => unavailable(shared, "login", &method.words(), &reason),
            None => {}
        }
    }
    authorize(shared, origin, name, record(shared, origin, name, found), by_server).await
}

/// Logs that a method cannot be asked.
fn unavailable(shared: &Shared, what: &str, method: &str, reason: &str) {
    let text = format!("{what} {method}: {reason}");
    shared.core.borrow_mut().ctx.log("AAA", 4, "UNAVAILABLE", &text);
}

/// Authorizes the session of a user whose login was verified (`None`: rejected), by the methods of
/// `aaa authorization exec default`. Consoles are exempt without `aaa authorization console`, so that a mistake in the
/// configuration or at a server locks nobody out.
async fn authorize(
    shared: &Shared,
    origin: &Origin,
    name: &str,
    user: Option<User>,
    by_server: bool,
) -> Verified {
    let Some(user) = user else { return Verified::Rejected };
    let (own, methods) = {
        let core = shared.core.borrow();
        let access = &core.ctx.switch.config().access;
        let exempt = matches!(origin.line, LineName::Console(_)) && !access.console_authorization;
        let methods = if exempt { Vec::new() } else { access.exec_methods.clone() };
        (access.users.get(name).cloned(), methods)
    };
    if methods.is_empty() {
        return Verified::User(user);
    }
    for method in methods {
        match method {
            ExecMethod::Tacacs => match tacacs_logins::shell(shared, origin, name, by_server).await {
                Shell::Permitted(level) => return Verified::User(User { level, ..user }),
                Shell::Denied => break,
                Shell::Unavailable(reason) => unavailable(shared, "exec", method.words(), &reason),
            },
            ExecMethod::Local => {
                if let Some(own) = &own {
                    return Verified::User(User { level: own.level, ..user });
                }
            }
            ExecMethod::IfAuthenticated | ExecMethod::None => return Verified::User(user),
        }
    }
    let text = format!("user {name} from {} may not have a session", origin.host);
    shared.core.borrow_mut().ctx.log("AAA", 4, "NOT_AUTHORIZED", &text);
    Verified::NotAuthorized
}

/// Compares with the secret of a user of the configuration; `None` when there is no such user, or the user has no secret.
async fn local(user: Option<&User>, given: String) -> Option<Verdict> {
    let secret = user.and_then(|user| user.secret.clone());
    let is_known = secret.is_some();
    let Ok(_waiting) = WAITING.clone().try_acquire_owned() else { return Some(Verdict::Rejected) };
    let _turn = HASHING.clone().acquire_owned().await.ok()?;
    let checked = tokio::task::spawn_blocking(move || match secret {
        Some(secret) => secret::matches(&secret, &given),
        None => {
            secret::match_nobody(&given);
            false
        }
    });
    let right = checked.await.unwrap_or(false);
    is_known.then_some(if right { Verdict::Accepted(None) } else { Verdict::Rejected })
}

/// Verifies that a user may log in with this public key, and authorizes the session. The result is logged and counts for the
/// limits on failed logins.
pub(crate) async fn verify_key(
    shared: &Shared,
    origin: &Origin,
    name: &str,
    key: Option<&PublicKey>,
) -> Verified {
    let user = shared.core.borrow().ctx.switch.config().access.users.get(name).cloned();
    let user = user.filter(|_| key.is_some_and(|key| has_key(shared, name, key)));
    authorize(shared, origin, name, record(shared, origin, name, user), false).await
}

/// True when a user of this name may log in with a public key.
pub(crate) fn has_key(shared: &Shared, name: &str, key: &PublicKey) -> bool {
    let core = shared.core.borrow();
    let access = &core.ctx.switch.config().access;
    access.users.contains_key(name) && access.ssh_keys.get(name).is_some_and(|keys| keys.contains(key))
}

/// Records the result of a login in the log and in the limits.
fn record(shared: &Shared, origin: &Origin, name: &str, user: Option<User>) -> Option<User> {
    let mut core = shared.core.borrow_mut();
    let now_ms = core.ctx.clock.now_ms();
    let shown: String = name.chars().take(lanyard_config::access::MAX_NAME).collect();
    let of = format!("[user: {shown}] [Source: {}] [line: {}]", origin.host, origin.line.kind());
    if user.is_some() {
        core.throttle.succeeded(&origin.host);
        core.ctx.log("SEC_LOGIN", 5, "LOGIN_SUCCESS", &format!("Login Success {of}"));
        return user;
    }
    let is_blocked = core.throttle.failed(now_ms, &origin.host);
    core.ctx.log("SEC_LOGIN", 4, "LOGIN_FAILED", &format!("Login failed {of}"));
    if is_blocked {
        core.ctx.log("SEC_LOGIN", 1, "QUIET_MODE_ON", &format!("too many failed logins: blocked {of}"));
    }
    None
}

/// The session behind a terminal.
struct Link {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    buffer: Vec<u8>,
}

impl Link {
    fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: BufReader::new(reader), writer, buffer: Vec::new() }
    }
    async fn send(&mut self, request: &Request) -> Result<(), Ended> {
        let sent = self.writer.write_all(line(request).as_bytes()).await;
        sent.map_err(|_| Ended::Closed("the switch has closed the session".into()))
    }
    /// The next reply. Cancel safe: a partial line stays in the buffer.
    async fn reply(&mut self) -> Result<Reply, Ended> {
        let closed = || Ended::Closed("the switch has closed the session".into());
        let text =
            server::read_line(&mut self.reader, &mut self.buffer, MAX_REPLY).await.map_err(|_| closed())?;
        serde_json::from_slice(&text).map_err(|_| closed())
    }
}

/// Runs a session until it ends.
async fn session(
    terminal: &mut Terminal,
    login: Login,
    origin: &Origin,
    shared: &Shared,
) -> Result<(), Ended> {
    let exec_banner = banner(shared.core.borrow().ctx.switch.config(), Banner::Exec);
    let (stream, line) =
        server::attach(shared, login, origin).map_err(|reason| Ended::Closed(reason.to_string()))?;
    terminal.print(&exec_banner).await?;
    let mut link = Link::new(stream);
    let mut done = answer(terminal, &mut link, 0, 0).await?;
    loop {
        if done.close {
            return Err(Ended::Exit);
        }
        let idle_s = shared.settings(line).exec_timeout_s;
        terminal.print(&done.prompt).await?;
        terminal.editor().hide(done.hidden);
        let Entered { line, leaves } = command(terminal, &mut link, &done, idle_s).await?;
        terminal.editor().hide(false);
        let length =
            if done.length == LENGTH_DEFAULT && terminal.rows() > 1 { terminal.rows() } else { done.length };
        // A user does not type further input while a line is being handled: input that has arrived already was pasted.
        let pasted = terminal.has_input();
        link.send(&Request::Exec { line, pasted }).await?;
        done = answer(terminal, &mut link, length, idle_s).await?;
        if leaves && !done.close && done.prompt.contains("(config") {
            link.send(&Request::Exec { line: "end".into(), pasted: false }).await?;
            done = answer(terminal, &mut link, length, idle_s).await?;
        }
    }
}

/// What a user has entered.
struct Entered {
    line: String,
    /// Ctrl-Z: the session leaves the configuration modes after the line.
    leaves: bool,
}

impl From<String> for Entered {
    fn from(line: String) -> Self {
        Self { line, leaves: false }
    }
}

/// Reads one line: edits it, answers `?` and TAB meanwhile, and prints messages of `terminal monitor`.
async fn command(
    terminal: &mut Terminal,
    link: &mut Link,
    done: &Done,
    idle_s: u32,
) -> Result<Entered, Ended> {
    let in_config = done.prompt.contains("(config");
    loop {
        match terminal.edit().await? {
            Some(Key::Enter(line)) => return Ok(line.into()),
            Some(Key::End(line)) if in_config => return Ok(Entered { line, leaves: true }),
            Some(Key::Interrupt) if in_config => return Ok(Entered::from("end".to_owned())),
            Some(Key::Interrupt) if done.hidden => return Ok(Entered::from(String::new())),
            Some(Key::Close) => return Ok(Entered::from("exit".to_owned())),
            Some(Key::Interrupt | Key::End(_)) => terminal.print(&done.prompt).await?,
            Some(Key::Help) => {
                let before = terminal.editor().before_cursor();
                link.send(&Request::Help { line: before }).await?;
                if let Reply::Help(lines) = reply_of(terminal, link).await? {
                    terminal
                        .print(&lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>())
                        .await?;
                }
                redraw(terminal, done).await?;
            }
            Some(Key::Complete) => {
                let before = terminal.editor().before_cursor();
                link.send(&Request::Complete { line: before }).await?;
                if let Reply::Completion { start, candidates } = reply_of(terminal, link).await?
                    && let [one] = candidates.as_slice()
                {
                    let mut echo = Vec::new();
                    terminal.editor().complete(start, &format!("{one} "), &mut echo);
                    terminal.print(&String::from_utf8_lossy(&echo)).await?;
                }
            }
            Some(Key::None) => {}
            None => tokio::select! {
                arrived = terminal.wait() => arrived?,
                reply = link.reply() => match reply? {
                    Reply::Monitor(text) => {
                        terminal.print(&format!("\n{text}\n")).await?;
                        redraw(terminal, done).await?;
                    }
                    Reply::Error(reason) => return Err(Ended::Closed(reason)),
                    _ => {}
                },
                () = idle(idle_s) => return Err(Ended::Idle(idle_s)),
            },
        }
    }
}

async fn idle(idle_s: u32) {
    match idle_s {
        0 => std::future::pending().await,
        seconds => tokio::time::sleep(Duration::from_secs(seconds.into())).await,
    }
}

async fn redraw(terminal: &mut Terminal, done: &Done) -> Result<(), Ended> {
    let line = terminal.editor().redraw();
    Ok(terminal.print(&format!("{}{}", done.prompt, String::from_utf8_lossy(&line))).await?)
}

/// The reply to a request, after messages of `terminal monitor` that precede it have been printed.
async fn reply_of(terminal: &mut Terminal, link: &mut Link) -> Result<Reply, Ended> {
    loop {
        match link.reply().await? {
            Reply::Monitor(text) => terminal.print(&format!("\n{text}\n")).await?,
            Reply::Error(reason) => return Err(Ended::Closed(reason)),
            reply => return Ok(reply),
        }
    }
}

/// Prints the answer to a command, in pages of `length` lines (0 for no pages), until its end. Ctrl-C interrupts the command.
async fn answer(terminal: &mut Terminal, link: &mut Link, length: u16, idle_s: u32) -> Result<Done, Ended> {
    let mut pager = Pager { length: length.into(), printed: 0, quits: false, idle_s };
    loop {
        let reply = tokio::select! {
            reply = link.reply() => reply?,
            arrived = terminal.wait() => {
                arrived?;
                terminal.print("").await?;
                if terminal.take_interrupt() {
                    pager.quits = true;
                    terminal.print("^C\n").await?;
                    link.send(&Request::Interrupt).await?;
                }
                continue;
            }
        };
        match reply {
            Reply::Text(_) if pager.quits => {}
            Reply::Text(text) => {
                pager.print(terminal, &text).await?;
                if pager.quits {
                    link.send(&Request::Interrupt).await?;
                }
            }
            Reply::Stream(text) | Reply::Refusal(text) => terminal.print(&text).await?,
            Reply::Monitor(text) => terminal.print(&format!("{text}\n")).await?,
            Reply::Done(done) => return Ok(done),
            Reply::Error(reason) => return Err(Ended::Closed(reason)),
            Reply::Completion { .. } | Reply::Help(_) | Reply::Bytes(_) | Reply::Authenticated(_) => {}
        }
    }
}

/// Output in pages.
struct Pager {
    length: usize,
    printed: usize,
    quits: bool,
    idle_s: u32,
}

impl Pager {
    async fn print(&mut self, terminal: &mut Terminal, mut text: &str) -> Result<(), Ended> {
        while !text.is_empty() {
            if self.length > 1 && self.printed + 1 >= self.length {
                self.pause(terminal).await?;
            }
            if self.quits {
                return Ok(());
            }
            let lines = if self.length > 1 { self.length - 1 - self.printed } else { usize::MAX };
            let end = text.match_indices('\n').nth(lines - 1).map_or(text.len(), |(at, _)| at + 1);
            let (page, rest) = text.split_at(end);
            terminal.print(page).await?;
            self.printed += page.matches('\n').count();
            text = rest;
        }
        Ok(())
    }
    /// Waits for a key, as IOS does: blank for a page, return for a line, any other key to end.
    async fn pause(&mut self, terminal: &mut Terminal) -> Result<(), Ended> {
        terminal.print(" --More-- ").await?;
        let key = loop {
            match terminal.next_byte() {
                Some(key) => break key,
                None => tokio::select! {
                    arrived = terminal.wait() => arrived?,
                    () = idle(self.idle_s) => return Err(Ended::Idle(self.idle_s)),
                },
            }
        };
        terminal.print("\r         \r").await?;
        match key {
            b' ' => self.printed = 0,
            b'\r' | b'\n' => self.printed = self.length.saturating_sub(2),
            _ => self.quits = true,
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
