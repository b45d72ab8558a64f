//! Access control of ports: `dot1x ...`, `authentication ...`, `mab`, and the RADIUS servers that it asks: `radius server`,
//! `radius-server ...`, `ip radius source-interface`.
//!
//! Invariant: the text, read back, gives an equal value. The keys of servers are stored as they were entered, because the switch
//! needs them in plain text.

use crate::InterfaceName;
use lanyard_dot1x::{Control, Fail, HostMode, Reauthenticate, Violation};
use lanyard_types::VlanId;
use std::net::IpAddr;

/// The maximum number of RADIUS servers.
pub const MAX_RADIUS_SERVERS: usize = 16;
/// The maximum length of a server's name, in bytes.
pub const MAX_RADIUS_NAME: usize = 32;
/// The maximum length of a server's key, in bytes.
pub const MAX_RADIUS_KEY: usize = 128;

/// `radius ...` of the whole switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Radius {
    /// `radius server`, in the order in which they are asked, by name.
    pub servers: Vec<(String, RadiusServer)>,
    /// `radius-server timeout`, in seconds.
    pub timeout_s: u32,
    /// `radius-server retransmit`.
    pub retransmit: u8,
    /// `radius-server deadtime`, in minutes.
    pub deadtime_min: u32,
    /// `ip radius source-interface`.
    pub source: Option<InterfaceName>,
}

impl Default for Radius {
    fn default() -> Self {
        Self { servers: Vec::new(), timeout_s: 5, retransmit: 3, deadtime_min: 0, source: None }
    }
}

impl Radius {
    /// The server of a name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&RadiusServer> {
        self.servers.iter().find(|(held, _)| held == name).map(|(_, server)| server)
    }
    /// The same, for changes.
    pub fn server_mut(&mut self, name: &str) -> Option<&mut RadiusServer> {
        self.servers.iter_mut().find(|(held, _)| held == name).map(|(_, server)| server)
    }
}

/// The lines under `radius server`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RadiusServer {
    /// `address ipv4|ipv6 A [auth-port N] [acct-port N]`; a server without an address is not asked.
    pub address: Option<RadiusAddress>,
    /// `key`; a server without a key is not asked.
    pub key: Option<String>,
    /// `timeout`, in seconds.
    pub timeout_s: Option<u32>,
    /// `retransmit`.
    pub retransmit: Option<u8>,
}

/// The address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RadiusAddress {
    /// The address.
    pub address: IpAddr,
    /// The UDP port of requests for access.
    pub auth_port: u16,
    /// The UDP port of accounting, which the switch does not send.
    pub acct_port: u16,
}

impl RadiusAddress {
    /// The ports of RFC 2865 and RFC 2866.
    pub const PORTS: (u16, u16) = (1812, 1813);
}

/// The lines of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAccess {
    /// `dot1x pae authenticator`.
    pub authenticator: bool,
    /// `authentication port-control`.
    pub control: Control,
    /// `authentication host-mode`.
    pub host_mode: HostMode,
    /// `authentication violation`.
    pub violation: Violation,
    /// `mab`.
    pub mab: bool,
    /// `authentication order mab dot1x`.
    pub mab_first: bool,
    /// `authentication periodic`.
    pub periodic: bool,
    /// `authentication timer reauthenticate`.
    pub reauthenticate: Reauthenticate,
    /// `authentication timer restart`, in seconds.
    pub restart_s: u32,
    /// `authentication event fail action`.
    pub fail: Fail,
    /// `authentication event no-response action authorize vlan`.
    pub no_response: Option<VlanId>,
    /// `authentication event server dead action authorize vlan`.
    pub server_dead: Option<VlanId>,
    /// `authentication event server alive action reinitialize`.
    pub reinitialize: bool,
    /// `dot1x timeout quiet-period`, in seconds.
    pub quiet_s: u32,
    /// `dot1x timeout tx-period`, in seconds.
    pub tx_s: u32,
    /// `dot1x timeout supp-timeout`, in seconds.
    pub supplicant_s: u32,
    /// `dot1x max-req`.
    pub max_req: u8,
    /// `dot1x max-reauth-req`.
    pub max_reauth_req: u8,
}

impl Default for PortAccess {
    fn default() -> Self {
        Self {
            authenticator: false,
            control: Control::default(),
            host_mode: HostMode::default(),
            violation: Violation::default(),
            mab: false,
            mab_first: false,
            periodic: false,
            reauthenticate: Reauthenticate::default(),
            restart_s: 60,
            fail: Fail::default(),
            no_response: None,
            server_dead: None,
            reinitialize: false,
            quiet_s: 60,
            tx_s: 30,
            supplicant_s: 30,
            max_req: 2,
            max_reauth_req: 2,
        }
    }
}
