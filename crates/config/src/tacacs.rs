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

/// The TACACS+ servers, and the settings that all of them share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tacacs {
    /// `tacacs server`: the name and the settings of each server, in the order in which the switch asks them.
    pub servers: Vec<(String, TacacsServer)>,
    /// `tacacs-server timeout`, in seconds, 1..=1000: the time that a server has for an answer.
    pub timeout_s: u32,
    /// `tacacs-server key`: the key of servers that have none of their own.
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
    /// The server with this name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&TacacsServer> {
        self.servers.iter().find(|(held, _)| held == name).map(|(_, server)| server)
    }
    /// The server with this name, to be changed.
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
    /// `key`. A server without one is asked with the key of `tacacs-server key`; without either key it is not asked.
    pub key: Option<String>,
    /// `timeout`, in seconds, 1..=1000; `None`: [`Tacacs::timeout_s`].
    pub timeout_s: Option<u32>,
}

impl Default for TacacsServer {
    fn default() -> Self {
        Self { address: None, port: TACACS_PORT, key: None, timeout_s: None }
    }
}
