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
    /// The RADIUS servers, in the order in which they are tried.
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
    /// True if the port is open for all hosts, or for at least one.
    pub authorized: bool,
    /// The VLAN of the port's untagged frames at present.
    pub vlan: u16,
    /// True if the port is an authenticator of 802.1X.
    pub authenticator: bool,
    /// True if the port uses MAC authentication bypass.
    pub mab: bool,
    /// True if hosts are reauthenticated periodically.
    pub periodic: bool,
    /// The interval of reauthentication in seconds; `null` if the RADIUS server determines it.
    pub reauthenticate_s: Option<u32>,
    /// After a failure of 802.1X, the seconds until the next attempt.
    pub quiet_period_s: u32,
    /// Seconds between two requests for an identity.
    pub tx_period_s: u32,
    /// Seconds within which a host has to answer a request.
    pub supp_timeout_s: u32,
    /// The maximum number of repetitions of a request.
    pub max_req: u8,
    /// The maximum number of repetitions of a request for an identity.
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
    /// The identifier of the session in log messages.
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
    /// Seconds since the port was opened for the host; while it is not open, seconds since the session began.
    pub age_s: u64,
    /// Seconds until the host is reauthenticated, or the port is closed for it; `null`: never.
    pub timeout_s: Option<u64>,
    /// The action after `timeout_s`: `reauthenticate` or `terminate`.
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
    /// The sessions whose method is MAC authentication bypass.
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
    /// Requests sent, not counting repetitions.
    pub requests: u64,
    /// Repetitions of requests sent.
    pub retransmissions: u64,
    /// Requests without an answer.
    pub timeouts: u64,
    /// Access-Accept answers received.
    pub accepts: u64,
    /// Access-Reject answers received.
    pub rejects: u64,
    /// Access-Challenge answers received.
    pub challenges: u64,
    /// Datagrams received that were no valid answers.
    pub invalid: u64,
}
