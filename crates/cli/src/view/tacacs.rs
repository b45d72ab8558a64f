//! TACACS+ servers.

use serde::Serialize;

/// `show tacacs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TacacsServers {
    /// The servers that can be asked, in the order of the configuration.
    pub servers: Vec<TacacsServerView>,
}

/// A TACACS+ server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TacacsServerView {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its TCP port.
    pub port: u16,
    /// `up`, or `dead`: it has not answered, and is asked after the others.
    pub state: &'static str,
    /// Connections that were begun.
    pub socket_opens: u64,
    /// Connections that the switch has closed.
    pub socket_closes: u64,
    /// Connections that the server has closed before it had answered.
    pub socket_aborts: u64,
    /// Connections that have failed in another way.
    pub socket_errors: u64,
    /// Connections and replies that took too long.
    pub socket_timeouts: u64,
    /// Connections that were refused, or for which there was no way.
    pub failed_connects: u64,
    /// Packets to the server.
    pub packets_sent: u64,
    /// Replies of the server.
    pub packets_received: u64,
    /// Packets of the server that were no valid replies.
    pub invalid: u64,
    /// Logins and shells that the server has permitted.
    pub accepts: u64,
    /// Logins and shells that it has not.
    pub rejects: u64,
}
