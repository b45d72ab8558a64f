//! Logins over SSH, for the SSH server ([`crate::ssh_server`]): the server opens a connection to the control socket for each
//! of its clients, has the user verified on it, and then hands the connection over to the client's session.
//!
//! Invariant: a connection reaches a session only after a proof has been accepted on this connection. Failed proofs count for
//! the same limits as those of other logins.

use crate::protocol::{Done, Proof, Reply, Request};
use crate::remote::{self, Verified};
use crate::server::{self, Connection, Ended, Shared};
use crate::users::Origin;
use lanyard_cli::Login;
use lanyard_config::access::PublicKey;
use std::time::Duration;

/// How long a client has from its connection to its session.
const LOGIN_TIME: Duration = Duration::from_secs(60);
/// How many requests a client has for its login. Each key that it offers takes one.
const MAX_REQUESTS: usize = 32;

/// Serves a client of the SSH server.
pub(crate) async fn serve(mut connection: Connection, origin: Origin, shared: Shared) {
    let login = async {
        let login = log_in(&mut connection, &origin, &shared).await?;
        Ok((login, connection.request().await?))
    };
    let begun = tokio::time::timeout(LOGIN_TIME, login).await;
    let result = match begun.unwrap_or(Err(Ended::Silent)) {
        Ok((login, Request::Hello { .. })) => run_commands(&mut connection, login, &origin, &shared).await,
        Ok((login, Request::Terminal)) => {
            let (reader, writer) = connection.into_halves();
            return remote::serve_user(Box::new(reader), Box::new(writer), login, &origin, &shared).await;
        }
        Ok(_) => Err(Ended::NoHello),
        Err(ended) => Err(ended),
    };
    match result {
        Ok(()) | Err(Ended::Gone | Ended::Stalled) => {}
        Err(reason) => drop(connection.send(&Reply::Error(reason.to_string())).await),
    }
}

/// A session of the control socket's protocol, without a terminal.
async fn run_commands(
    connection: &mut Connection,
    login: Login,
    origin: &Origin,
    shared: &Shared,
) -> Result<(), Ended> {
    let (seat, session) = server::seat_of(shared, Login { interactive: false, ..login }, origin)?;
    server::seated(connection, &seat, session, "").await
}

/// Sends the banner, and verifies proofs until one is accepted.
async fn log_in(connection: &mut Connection, origin: &Origin, shared: &Shared) -> Result<Login, Ended> {
    if let Some(seconds) = remote::blocked_s(shared, origin) {
        let text = format!("too many failed logins from {}: wait {seconds} seconds", origin.host);
        return Err(Ended::Blocked(text));
    }
    connection.send_text(Reply::Text, &remote::login_banner(shared)).await?;
    connection.send(&Reply::Done(Done::default())).await?;
    for _ in 0..MAX_REQUESTS {
        let Request::Authenticate { user, proof } = connection.request().await? else {
            return Err(Ended::NoHello);
        };
        let accepted = match proof {
            _ if remote::blocked_s(shared, origin).is_some() => Verified::Rejected,
            Proof::Password(secret) => remote::verify(shared, origin, &user, secret).await,
            Proof::Key(key) => {
                remote::verify_key(shared, origin, &user, PublicKey::parse(&key).ok().as_ref()).await
            }
            Proof::Offer(key) => {
                let known = PublicKey::parse(&key).is_ok_and(|key| remote::has_key(shared, &user, &key));
                connection.send(&Reply::Authenticated(known)).await?;
                continue;
            }
        };
        let is_user = matches!(accepted, Verified::User(_));
        connection.send(&Reply::Authenticated(is_user)).await?;
        if let Verified::User(accepted) = accepted {
            return Ok(remote::login_of(user, &accepted, origin));
        }
    }
    Err(Ended::NoHello)
}
