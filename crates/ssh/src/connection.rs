//! The limits of a client: its place among the logins, and its connection, which can be ended in every state of the protocol.

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// A client's place among those that have not begun a session. Dropped when the session begins.
pub struct Login {
    _place: OwnedSemaphorePermit,
    /// Reports that the login is over, by being dropped.
    _over: oneshot::Sender<()>,
}

impl Login {
    /// Holds the place of a client, and a sender whose drop ends the wait for the login.
    pub fn new(place: OwnedSemaphorePermit, over: oneshot::Sender<()>) -> Self {
        Self { _place: place, _over: over }
    }
}

/// A handle that ends a connection in any state of the protocol.
pub struct Connection(std::net::TcpStream);

impl Connection {
    /// Ends the connection.
    pub fn end(&self) {
        // Fails if the client has closed it already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// The stream, and two handles to end it.
///
/// # Errors
/// When no descriptor is left, or the client has gone.
pub fn divide(stream: TcpStream) -> std::io::Result<(TcpStream, Connection, Connection)> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let (one, other) = (stream.try_clone()?, stream.try_clone()?);
    Ok((TcpStream::from_std(stream)?, Connection(one), Connection(other)))
}
