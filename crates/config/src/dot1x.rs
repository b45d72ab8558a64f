//! Access control of ports: `dot1x ...`, `authentication ...`, `mab`; and the RADIUS servers that authenticate hosts: `radius
//! server`, `radius-server ...`, `ip radius source-interface`.
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

/// The RADIUS servers, and the settings that all of them share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Radius {
    /// `radius server`: the name and the settings of each server, in the order in which the switch asks them.
    pub servers: Vec<(String, RadiusServer)>,
    /// `radius-server timeout`, in seconds, 1..=1000: the time that a server has for an answer.
    pub timeout_s: u32,
    /// `radius-server retransmit`, 0..=100: how often a request without an answer is repeated.
    pub retransmit: u8,
    /// `radius-server deadtime`, in minutes, 0..=1440: the time in which a server that did not answer is not asked.
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
    /// The server with this name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&RadiusServer> {
        self.servers.iter().find(|(held, _)| held == name).map(|(_, server)| server)
    }
    /// The server with this name, to be changed.
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
    /// `timeout`, in seconds, 1..=1000; `None`: [`Radius::timeout_s`].
    pub timeout_s: Option<u32>,
    /// `retransmit`, 0..=100; `None`: [`Radius::retransmit`].
    pub retransmit: Option<u8>,
}

/// The address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RadiusAddress {
    /// The address.
    pub address: IpAddr,
    /// The UDP port for access requests.
    pub auth_port: u16,
    /// The UDP port for accounting requests, which the switch does not send.
    pub acct_port: u16,
}

impl RadiusAddress {
    /// The default ports: for authentication (RFC 2865) and for accounting (RFC 2866).
    pub const PORTS: (u16, u16) = (1812, 1813);
}

/// The access-control settings of an interface.
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
    /// `authentication order mab dot1x`: true if MAC authentication bypass is tried before 802.1X.
    pub mab_first: bool,
    /// `authentication periodic`: true if hosts are authenticated again, at the times of `reauthenticate`.
    pub periodic: bool,
    /// `authentication timer reauthenticate`.
    pub reauthenticate: Reauthenticate,
    /// `authentication timer restart`, in seconds, 1..=65,535: after a failure, the wait of a host that does not speak 802.1X.
    pub restart_s: u32,
    /// `authentication event fail action`.
    pub fail: Fail,
    /// `authentication event no-response action authorize vlan`: the VLAN of hosts that no method can authenticate.
    pub no_response: Option<VlanId>,
    /// `authentication event server dead action authorize vlan`: the VLAN of hosts while no server answers.
    pub server_dead: Option<VlanId>,
    /// `authentication event server alive action reinitialize`: true if hosts in the VLAN of `server_dead` are authenticated
    /// once a server answers.
    pub reinitialize: bool,
    /// `dot1x timeout quiet-period`, in seconds, 1..=65,535: after a failure, the wait of a host that speaks 802.1X.
    pub quiet_s: u32,
    /// `dot1x timeout tx-period`, in seconds, 1..=65,535: the time between two requests for an identity.
    pub tx_s: u32,
    /// `dot1x timeout supp-timeout`, in seconds, 1..=65,535: the time that a host has for an answer.
    pub supplicant_s: u32,
    /// `dot1x max-req`, 1..=10: the most repetitions of a request.
    pub max_req: u8,
    /// `dot1x max-reauth-req`, 1..=10: the most repetitions of a request for an identity.
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
