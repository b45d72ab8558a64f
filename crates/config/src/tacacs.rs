//! TACACS+ servers, which verify logins and give privilege levels: `tacacs server`, `tacacs-server ...`, `ip tacacs
//! source-interface`, and the methods of `aaa authorization exec`.
//!
//! Invariant: the text, read back, gives an equal value. The keys of servers are stored as they were entered, because the switch
//! needs them in plain text.

use crate::InterfaceName;
use std::net::IpAddr;

/// The maximum number of TACACS+ servers.
pub const MAX_TACACS_SERVERS: usize = 8;
/// The maximum length of a server's name, in bytes.
pub const MAX_TACACS_NAME: usize = 32;
/// The maximum length of a key, in bytes.
pub const MAX_TACACS_KEY: usize = 128;
/// The TCP port of TACACS+ (RFC 8907, 4.3).
pub const TACACS_PORT: u16 = 49;

/// `tacacs ...` of the whole switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tacacs {
    /// `tacacs server`, in the order in which they are asked, by name.
    pub servers: Vec<(String, TacacsServer)>,
    /// `tacacs-server timeout`, in seconds.
    pub timeout_s: u32,
    /// `tacacs-server key`: of servers that have none.
    pub key: Option<String>,
    /// `ip tacacs source-interface`.
    pub source: Option<InterfaceName>,
}

impl Default for Tacacs {
    fn default() -> Self {
        Self { servers: Vec::new(), timeout_s: 5, key: None, source: None }
    }
}

impl Tacacs {
    /// The server of a name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&TacacsServer> {
        self.servers.iter().find(|(held, _)| held == name).map(|(_, server)| server)
    }
    /// The same, for changes.
    pub fn server_mut(&mut self, name: &str) -> Option<&mut TacacsServer> {
        self.servers.iter_mut().find(|(held, _)| held == name).map(|(_, server)| server)
    }
}

/// The lines under `tacacs server`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TacacsServer {
    /// `address ipv4|ipv6 A`; a server without an address is not asked.
    pub address: Option<IpAddr>,
    /// `port`: the TCP port.
    pub port: u16,
    /// `key`; a server without a key is asked with that of `tacacs-server key`, and without both not at all.
    pub key: Option<String>,
    /// `timeout`, in seconds.
    pub timeout_s: Option<u32>,
}

impl Default for TacacsServer {
    fn default() -> Self {
        Self { address: None, port: TACACS_PORT, key: None, timeout_s: None }
    }
}
