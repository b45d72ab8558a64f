//! TACACS+ servers.

use serde::Serialize;

/// `show tacacs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TacacsServers {
    /// The servers that logins can use, in the order of the configuration.
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
    /// `up`, or `dead` for a server that has not answered; it is tried after the others.
    pub state: &'static str,
    /// Connections that were begun.
    pub socket_opens: u64,
    /// Connections that the switch has closed.
    pub socket_closes: u64,
    /// Connections that the server has closed before it answered.
    pub socket_aborts: u64,
    /// Connections that have failed in another way after they were open.
    pub socket_errors: u64,
    /// Exchanges in which the connection or a reply took too long.
    pub socket_timeouts: u64,
    /// Connections that were refused, or could not be attempted, for example without a route.
    pub failed_connects: u64,
    /// Packets sent to the server.
    pub packets_sent: u64,
    /// Replies received from the server.
    pub packets_received: u64,
    /// Packets received from the server that were no valid replies.
    pub invalid: u64,
    /// Logins and shells that the server has permitted.
    pub accepts: u64,
    /// Logins and shells that the server has rejected.
    pub rejects: u64,
}
