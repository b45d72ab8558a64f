//! Access control of ports.

use lanyard_types::MacAddr;
use serde::Serialize;

/// The contents of `show dot1x`, `show authentication sessions`, `show mab` and `show aaa servers`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessControl {
    /// `dot1x system-auth-control`.
    pub system_auth_control: bool,
    /// The ports with lines of access control, in natural order.
    pub ports: Vec<AccessPort>,
    /// The sessions, in the order of their ports.
    pub sessions: Vec<AuthenticationSession>,
    /// The servers, in the order in which they are asked.
    pub servers: Vec<RadiusServerView>,
}

/// A port with access control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessPort {
    /// Its name.
    pub interface: String,
    /// `auto`, `force-authorized` or `force-unauthorized`.
    pub port_control: &'static str,
    /// `single-host`, `multi-host` or `multi-auth`.
    pub host_mode: &'static str,
    /// The port is open for somebody.
    pub authorized: bool,
    /// Its VLAN at present.
    pub vlan: u16,
    /// 802.1X is spoken.
    pub authenticator: bool,
    /// MAC authentication bypass is used.
    pub mab: bool,
    /// Hosts are authenticated again.
    pub periodic: bool,
    /// The interval of that in seconds; `null`: the server names it.
    pub reauthenticate_s: Option<u32>,
    /// After a failure of 802.1X, the seconds until the next attempt.
    pub quiet_period_s: u32,
    /// Seconds between two requests for an identity.
    pub tx_period_s: u32,
    /// Seconds that a host has for an answer.
    pub supp_timeout_s: u32,
    /// The most repetitions of a request.
    pub max_req: u8,
    /// The most repetitions of a request for an identity.
    pub max_reauth_req: u8,
    /// Frames that were dropped because the port was not open for their source.
    pub dropped: u64,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthenticationSession {
    /// Its port.
    pub interface: String,
    /// Its host.
    pub mac: MacAddr,
    /// Its name in the log.
    pub session_id: String,
    /// `dot1x` or `mab`.
    pub method: &'static str,
    /// `running`, `authorized` or `failed`.
    pub status: &'static str,
    /// Why the port is open for the host: a method, `fail`, `no-response` or `server-dead`; `null` if it is not.
    pub authorized_by: Option<&'static str>,
    /// The VLAN; `null` while the port is not open for the host.
    pub vlan: Option<u16>,
    /// The user's name.
    pub user: String,
    /// Seconds since the port was opened for the host, or the session began.
    pub age_s: u64,
    /// Seconds until the host is authenticated again, or loses its permission; `null`: never.
    pub timeout_s: Option<u64>,
    /// The action then: `reauthenticate` or `terminate`.
    pub timeout_action: &'static str,
}

/// `show authentication sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthenticationSessions {
    /// The sessions.
    pub sessions: Vec<AuthenticationSession>,
    /// Their number.
    pub total: usize,
}

/// `show dot1x`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dot1x {
    /// `dot1x system-auth-control`.
    pub system_auth_control: bool,
    /// The ports that speak 802.1X.
    pub interfaces: Vec<AccessPort>,
}

/// `show mab`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mab {
    /// The ports with MAC authentication bypass.
    pub interfaces: Vec<AccessPort>,
    /// Their sessions by that method.
    pub sessions: Vec<AuthenticationSession>,
}

/// `show aaa servers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RadiusServers {
    /// The servers.
    pub servers: Vec<RadiusServerView>,
}

/// A RADIUS server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RadiusServerView {
    /// Its address.
    pub address: String,
    /// Its UDP port.
    pub auth_port: u16,
    /// `up` or `dead`.
    pub state: &'static str,
    /// Requests, without repetitions.
    pub requests: u64,
    /// Repetitions.
    pub retransmissions: u64,
    /// Requests without an answer.
    pub timeouts: u64,
    /// Answers by kind.
    pub accepts: u64,
    /// The same.
    pub rejects: u64,
    /// The same.
    pub challenges: u64,
    /// Datagrams that were no valid answers.
    pub invalid: u64,
}
