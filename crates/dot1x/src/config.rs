//! The configuration of the authenticator. The defaults are those of IOS.

use lanyard_types::{MacAddr, PortId, VlanId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// `authentication port-control`: how a port is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Control {
    /// The port is open for all hosts.
    #[default]
    ForceAuthorized,
    /// The port is closed for all hosts.
    ForceUnauthorized,
    /// Authentication decides which hosts the port is open for.
    Auto,
}

/// `authentication host-mode`: whom an authenticated host opens the port for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HostMode {
    /// For itself; a second host violates the mode.
    #[default]
    Single,
    /// For all hosts.
    Multi,
    /// For itself; each further host has to be authenticated.
    MultiAuth,
}

/// `authentication violation`: what happens when a second host is seen at a port for one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Violation {
    /// The port is shut down.
    #[default]
    Shutdown,
    /// The frames of the second host are dropped, and it is logged.
    Restrict,
    /// The frames of the second host are dropped.
    Protect,
}

/// `authentication timer reauthenticate`: when a host is authenticated again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reauthenticate {
    /// After this number of seconds.
    After(u32),
    /// After the seconds that the server names (Session-Timeout).
    Server,
}

impl Default for Reauthenticate {
    fn default() -> Self {
        Self::After(3600)
    }
}

/// `authentication event fail action`: what happens after the server has rejected a host that speaks 802.1X.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Fail {
    /// The host has to wait, and may then try again.
    #[default]
    Restart,
    /// The next method is tried.
    NextMethod,
    /// The host is let into this VLAN, after this number of retries has been rejected as well.
    Authorize(VlanId, u8),
}

/// The configuration of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // lines of the configuration
pub struct PortConfig {
    /// The port's name, which servers get as NAS-Port-Id.
    pub name: String,
    /// The port's number, which servers get as NAS-Port.
    pub number: u32,
    /// True if the port can receive and send.
    pub up: bool,
    /// How the port is opened.
    pub control: Control,
    /// Whom an authenticated host opens the port for.
    pub host_mode: HostMode,
    /// The reaction to a second host.
    pub violation: Violation,
    /// True if the port speaks 802.1X (`dot1x pae authenticator`).
    pub eap: bool,
    /// True if hosts that do not speak 802.1X are authenticated by their MAC address (`mab`).
    pub mab: bool,
    /// True if MAC authentication bypass is tried before 802.1X.
    pub mab_first: bool,
    /// When hosts are authenticated again; `None`: never.
    pub periodic: Option<Reauthenticate>,
    /// After a failure, the time until a host that speaks 802.1X may try again (quietPeriod), in milliseconds.
    pub quiet_ms: u64,
    /// After a failure, the time until a host that does not speak 802.1X may try again, in milliseconds.
    pub restart_ms: u64,
    /// The time between two requests for an identity (txPeriod), in milliseconds.
    pub tx_ms: u64,
    /// The time that a host has for an answer (suppTimeout), in milliseconds.
    pub supplicant_ms: u64,
    /// The most repetitions of an EAP request of the method (maxReq).
    pub max_req: u8,
    /// The most repetitions of a request for an identity (reAuthMax).
    pub max_reauth_req: u8,
    /// The reaction to a rejection.
    pub fail: Fail,
    /// The VLAN for hosts that do not speak 802.1X and that no method has authenticated; `None`: they are not let in.
    pub no_response: Option<VlanId>,
    /// The VLAN for hosts that cannot be authenticated because no server answers; `None`: they are not let in.
    pub server_dead: Option<VlanId>,
    /// True if the hosts in the VLAN `server_dead` are authenticated once a server answers.
    pub reinitialize: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            number: 0,
            up: false,
            control: Control::default(),
            host_mode: HostMode::default(),
            violation: Violation::default(),
            eap: false,
            mab: false,
            mab_first: false,
            periodic: None,
            quiet_ms: 60_000,
            restart_ms: 60_000,
            tx_ms: 30_000,
            supplicant_ms: 30_000,
            max_req: 2,
            max_reauth_req: 2,
            fail: Fail::default(),
            no_response: None,
            server_dead: None,
            reinitialize: false,
        }
    }
}

/// A RADIUS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its address and port.
    pub address: SocketAddr,
    /// The shared secret.
    pub key: Vec<u8>,
    /// The time for an answer, in milliseconds.
    pub timeout_ms: u64,
    /// The most repetitions of a request.
    pub retransmit: u8,
}

/// The switch's attributes in requests to servers (RFC 2865, 5.4 and 5.32).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nas {
    /// The switch's name (NAS-Identifier).
    pub identifier: String,
    /// The address from which the switch asks (NAS-IP-Address); `None`: requests do not name one.
    pub address: Option<Ipv4Addr>,
    /// Its MAC address, which is also the source of its EAPOL frames.
    pub mac: MacAddr,
}

/// The configuration of the authenticator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The ports with access control.
    pub ports: BTreeMap<PortId, PortConfig>,
    /// The servers, in the order in which they are asked.
    pub servers: Vec<Server>,
    /// How long a server that has not answered is not asked, in milliseconds; 0: no server is skipped.
    pub deadtime_ms: u64,
    /// The VLANs that a server may assign, by number and name.
    pub vlans: BTreeMap<VlanId, String>,
    /// The switch.
    pub nas: Nas,
}
