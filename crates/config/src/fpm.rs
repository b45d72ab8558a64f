//! `fpm server`: where a routing suite connects to hand over its routes.
//!
//! Invariant: the text, read back, gives an equal value; a value that equals its default is not printed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// FRR's default port for FPM.
pub const PORT: u16 = 2620;

/// `fpm server [address A] [port N]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FpmServer {
    /// The address to listen at, in the switch's namespace; 127.0.0.1 by default.
    pub address: IpAddr,
    /// The TCP port, 1..=65535.
    pub port: u16,
}

impl Default for FpmServer {
    fn default() -> Self {
        Self { address: Ipv4Addr::LOCALHOST.into(), port: PORT }
    }
}

impl FpmServer {
    /// The socket address to listen at.
    #[must_use]
    pub const fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// The section of the running configuration.
pub fn lines(server: Option<&FpmServer>) -> Vec<String> {
    let default = FpmServer::default();
    let line = |server: &FpmServer| {
        let mut line = "fpm server".to_owned();
        if server.address != default.address {
            line += &format!(" address {}", server.address);
        }
        if server.port != default.port {
            line += &format!(" port {}", server.port);
        }
        line
    };
    server.map(line).into_iter().collect()
}
