//! The connection to the switch for one client: the protocol of the control socket ([`lanyard_daemon::protocol`]).

use lanyard_daemon::protocol::{Proof, Reply, Request, line};
use std::io;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The longest reply line, in bytes: a piece of output in JSON, in which a byte takes up to six.
const MAX_REPLY: u64 = 1 << 20;

/// Why the session cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The connection is closed.
    #[error("the switch has closed the session")]
    Closed,
    /// The switch has refused, for this reason.
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for LinkError {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// The connection to the switch for one client.
pub struct Link {
    /// Bytes from the switch.
    pub reader: BufReader<OwnedReadHalf>,
    /// Bytes to the switch.
    pub writer: OwnedWriteHalf,
    partial: Vec<u8>,
}

impl Link {
    /// Begins a login of a client at `host`; returns the link and the banner.
    ///
    /// # Errors
    /// When the switch does not run, or does not serve this host now.
    pub async fn open(control: &Path, host: &str) -> Result<(Self, String), LinkError> {
        let (reader, writer) = UnixStream::connect(control).await?.into_split();
        let mut link = Self { reader: BufReader::new(reader), writer, partial: Vec::new() };
        link.send(&Request::Ssh { host: host.to_owned() }).await?;
        let mut banner = String::new();
        loop {
            match link.reply().await? {
                Reply::Text(text) => banner.push_str(&text),
                Reply::Done(_) => return Ok((link, banner)),
                Reply::Error(reason) => return Err(LinkError::Refused(reason)),
                _ => {}
            }
        }
    }
    /// True when the switch accepts the proof of a user.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn authenticate(&mut self, user: &str, proof: Proof) -> Result<bool, LinkError> {
        self.send(&Request::Authenticate { user: user.to_owned(), proof }).await?;
        loop {
            match self.reply().await? {
                Reply::Authenticated(accepted) => return Ok(accepted),
                Reply::Error(reason) => return Err(LinkError::Refused(reason)),
                _ => {}
            }
        }
    }
    /// Sends a request.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn send(&mut self, request: &Request) -> Result<(), LinkError> {
        Ok(self.writer.write_all(line(request).as_bytes()).await?)
    }
    /// The next reply. Cancel safe: a partial line is kept.
    ///
    /// # Errors
    /// When the connection is closed, or the line is not a valid reply.
    pub async fn reply(&mut self) -> Result<Reply, LinkError> {
        let room = MAX_REPLY.saturating_sub(self.partial.len() as u64);
        (&mut self.reader).take(room).read_until(b'\n', &mut self.partial).await?;
        if !self.partial.ends_with(b"\n") {
            return Err(LinkError::Closed);
        }
        serde_json::from_slice(&std::mem::take(&mut self.partial)).map_err(|_| LinkError::Closed)
    }
}
