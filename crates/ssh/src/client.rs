//! A client: its login, and the channel of its session (RFC 4252, RFC 4254).
//!
//! Invariant: a channel is opened only after the switch has accepted a proof, and once for each connection. Forwarding of ports,
//! of X11 and of agents, and subsystems are refused.

use crate::connection::{self, Connection, Login};
use crate::link::Link;
use crate::session;
use lanyard_daemon::protocol::Proof;
use russh::keys::{Algorithm, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, MethodKind, MethodSet, Pty};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// How long a client has from its connection to its session; the daemon has the same limit.
const LOGIN_TIME: Duration = Duration::from_secs(60);

/// The state of a client's connection.
struct Client {
    link: Option<Link>,
    banner: String,
    login: Option<Login>,
    connection: Option<Connection>,
}

/// Serves a client until its connection ends.
pub async fn serve(
    stream: TcpStream,
    host: IpAddr,
    config: Arc<Config>,
    control: &Path,
    place: OwnedSemaphorePermit,
) {
    let Ok((stream, connection, again)) = connection::divide(stream) else { return };
    // A host that is blocked gets no key exchange, which would cost processor time.
    let Ok((link, banner)) = Link::open(control, &host.to_string()).await else { return };
    let (sender, over) = oneshot::channel();
    let login = Login::new(place, sender);
    let client = Client { link: Some(link), banner, login: Some(login), connection: Some(connection) };
    let running = async {
        if let Ok(running) = russh::server::run_stream(config, stream, client).await {
            let _ = running.await;
        }
    };
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => return,
        over = tokio::time::timeout(LOGIN_TIME, over) => if over.is_err() {
            again.end();
        }
    }
    running.await;
}

impl Client {
    /// Has the switch verify a proof.
    ///
    /// # Errors
    /// When the link to the switch has ended. The connection to the client ends then.
    async fn prove(&mut self, user: &str, proof: Proof) -> Result<Auth, russh::Error> {
        let link = self.link.as_mut().ok_or(russh::Error::Disconnect)?;
        match link.authenticate(user, proof).await {
            Ok(true) => Ok(Auth::Accept),
            Ok(false) => Ok(rejection()),
            Err(_) => Err(russh::Error::Disconnect),
        }
    }
}

/// The methods of authentication.
pub fn methods() -> MethodSet {
    MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password][..])
}

/// A rejection after which every method may be tried again; without the list the server would no longer offer the failed one.
fn rejection() -> Auth {
    Auth::Reject { proceed_with_methods: Some(methods()), partial_success: false }
}

/// True for signatures by RSA with SHA-1, which can be forged (RFC 8332).
fn is_sha1(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Rsa { hash: None })
}

/// A key in the form of OpenSSH's files, without a comment.
fn text(key: &PublicKey) -> String {
    let text = key.to_openssh().unwrap_or_default();
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

impl Handler for Client {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, Self::Error> {
        let banner = std::mem::take(&mut self.banner);
        Ok(Some(banner.replace('\n', "\r\n")).filter(|text| !text.is_empty()))
    }
    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        self.prove(user, Proof::Password(password.to_owned())).await
    }
    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        if is_sha1(offer.algorithm) {
            return Ok(rejection());
        }
        self.prove(user, Proof::Offer(text(offer.public_key))).await
    }
    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if is_sha1(key.algorithm) {
            return Ok(rejection());
        }
        self.prove(user, Proof::Key(text(key.public_key))).await
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        // A `reply` that is dropped without `accept` refuses the channel.
        if let Some(link) = self.link.take() {
            reply.accept().await;
            tokio::spawn(session::serve(channel, link, self.login.take(), self.connection.take()));
        }
        Ok(())
    }
    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }
    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }
    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }
    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }
    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }
    async fn agent_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<bool, Self::Error> {
        session.channel_failure(channel)?;
        Ok(false)
    }
    async fn env_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        _: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }
}
