//! The local sockets: accepts connections, determines their users, and hands them to a session, a console's login, or the
//! request that they make.
//!
//! Invariant: nothing but the kernel's credentials of a connection decides what its client may do.

use crate::identity::{self, LocalSocket};
use crate::os;
use crate::protocol::{Done, Reply, Request};
use crate::remote;
use crate::server::{Connection, Ended, Seat, Shared, seated};
use crate::ssh_sessions;
use crate::users::{LineName, MAX_USERS, Origin, Protocol};
use lanyard_cli::backend::{Access, Entered};
use lanyard_cli::{Login, Session, brctl};
use lanyard_config::access::LEVEL_MAX;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// How long a new connection may be silent.
const HELLO: Duration = Duration::from_secs(10);

/// The most clients of SSH that have not logged in; the SSH server has the same limit.
const MAX_SSH_LOGINS: usize = 16;

/// Most connections: the users, some that make a single request, and clients of SSH during their login.
const MAX_CONNECTIONS: usize = MAX_USERS + 28 + MAX_SSH_LOGINS;

/// Accepts sessions for ever.
pub(crate) async fn serve(listener: UnixListener, shared: Shared, socket: LocalSocket) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, socket) = (shared.clone(), socket.clone());
                tokio::task::spawn_local(async move {
                    session(stream, shared, &socket).await;
                    drop(place);
                });
            }
            // Probably out of descriptors; try again when some have been released.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Serves the sessions of `platform socket group` for ever.
pub(crate) async fn serve_group(shared: Shared) {
    let changed = shared.core.borrow().group_socket.changed();
    loop {
        let listening = shared.core.borrow().group_socket.listening();
        let socket =
            listening.and_then(|(group, socket)| Some((group, UnixListener::from_std(socket).ok()?)));
        match socket {
            Some((group, socket)) => {
                tokio::select! {
                    () = serve(socket, shared.clone(), LocalSocket::Group(group)) => {}
                    () = changed.notified() => {}
                }
            }
            None => changed.notified().await,
        }
    }
}

pub(crate) async fn session(stream: UnixStream, shared: Shared, socket: &LocalSocket) {
    let uid = stream.peer_cred().ok().map(|peer| peer.uid());
    let mut connection = Connection::new(stream);
    let first = match first_request(&mut connection).await {
        Ok(Request::Console { terminal }) => {
            match identity::login(socket, uid, nix::unistd::geteuid().as_raw()) {
                // Only root and the user of the daemon may open consoles: whoever opens one decides on its name.
                Ok(login) if login.level == LEVEL_MAX => {
                    let host = printable(&terminal);
                    let origin = Origin { line: LineName::Console(0), host, protocol: Protocol::Serial };
                    let (reader, writer) = connection.into_halves();
                    return remote::serve(Box::new(reader), Box::new(writer), origin, shared).await;
                }
                _ => Ok(Request::Console { terminal }),
            }
        }
        Ok(Request::Ssh { host }) => {
            match identity::login(socket, uid, nix::unistd::geteuid().as_raw()) {
                // As above: only root and the user of the daemon may be the SSH server.
                Ok(login) if login.level == LEVEL_MAX => {
                    let origin =
                        Origin { line: LineName::Vty(0), host: printable(&host), protocol: Protocol::Ssh };
                    return ssh_sessions::serve(connection, origin, shared).await;
                }
                _ => Ok(Request::Ssh { host }),
            }
        }
        first => first,
    };
    match greet(&mut connection, &shared, socket, uid, first).await {
        Ok(()) | Err(Ended::Gone | Ended::Stalled) => {}
        Err(reason) => drop(connection.send(&Reply::Error(reason.to_string())).await),
    }
}

/// The first request of a connection.
async fn first_request(connection: &mut Connection) -> Result<Request, Ended> {
    tokio::time::timeout(HELLO, connection.request()).await.map_err(|_| Ended::Silent)?
}

/// The name of a terminal, for `show users`.
fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control() && !c.is_whitespace()).take(32).collect()
}

async fn greet(
    connection: &mut Connection,
    shared: &Shared,
    socket: &LocalSocket,
    uid: Option<u32>,
    first: Result<Request, Ended>,
) -> Result<(), Ended> {
    let login = identity::login(socket, uid, nix::unistd::geteuid().as_raw())?;
    match first? {
        Request::Hello { user: _, interactive } => {
            let now_ms = shared.core.borrow().ctx.clock.now_ms();
            let line = shared.core.borrow_mut().users.add_vty(&login.user, &login.host, now_ms)?;
            let seat = Seat { line, shared: shared.clone() };
            let session = Session::new(Login { line: line.to_string(), interactive, ..login });
            let greeting = session.greeting(&*shared.core.borrow());
            seated(connection, &seat, session, &greeting).await
        }
        Request::Console { .. } | Request::Ssh { .. } | Request::Detach | Request::Brctl { .. }
            if login.level < LEVEL_MAX =>
        {
            let text = format!(
                "% {} has privilege level {}: this needs level {LEVEL_MAX}\n",
                login.user, login.level
            );
            connection.send(&Reply::Refusal(text)).await?;
            connection.send(&Reply::Done(Done { refused: true, close: true, ..Done::default() })).await
        }
        Request::Detach => {
            // Detach with ordinary priority, as commands run: the kernel takes long to detach many ports, and may need
            // other threads for it.
            let result = os::ordinary(|| shared.core.borrow_mut().detach());
            shared.detached.notify_one();
            if let Err(reason) = &result {
                connection.send(&Reply::Refusal(format!("% {reason}\n"))).await?;
            }
            connection
                .send(&Reply::Done(Done { refused: result.is_err(), close: true, ..Done::default() }))
                .await
        }
        Request::Brctl { words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let command = format!("!exec: brctl {}", words.join(" "));
            let entered = Entered { user: &login.user, line: "brctl", host: &login.host, command: &command };
            shared.core.borrow_mut().audit(entered);
            let result = brctl::run(&words, &mut *shared.core.borrow_mut());
            shared.changed.notify_one();
            match &result {
                Ok(text) => connection.send_text(Reply::Text, text).await?,
                Err(refusal) => connection.send_text(Reply::Refusal, &format!("{refusal}\n")).await?,
            }
            connection
                .send(&Reply::Done(Done { refused: result.is_err(), close: true, ..Done::default() }))
                .await
        }
        // `session` handles these requests before it calls this function.
        Request::Console { .. } | Request::Ssh { .. } => Err(Ended::InSession),
        _ => Err(Ended::NoHello),
    }
}
