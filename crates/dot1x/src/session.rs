//! One host at one port: the states of its authentication.
//!
//! The names are those of the authenticator's state machine (IEEE 802.1X-2004, 8.2.4) and of its backend (8.2.9). A session has
//! a grant while the port is open for its host; a repeated authentication keeps it until it fails.

use lanyard_types::VlanId;
use serde::{Deserialize, Serialize};

/// How a host is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Method {
    /// By 802.1X.
    Dot1x,
    /// By its MAC address.
    Mab,
}

impl Method {
    /// The name in IOS's output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dot1x => "dot1x",
            Self::Mab => "mab",
        }
    }
}

/// Why a host is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantKind {
    /// A server has accepted it.
    Method(Method),
    /// `authentication event fail`.
    Fail,
    /// `authentication event no-response`.
    NoResponse,
    /// `authentication event server dead`.
    ServerDead,
}

impl GrantKind {
    /// The name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Method(method) => method.name(),
            Self::Fail => "fail",
            Self::NoResponse => "no-response",
            Self::ServerDead => "server-dead",
        }
    }
}

/// The permission of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub kind: GrantKind,
    /// The VLAN assigned to the host; `None`: the port's configured one.
    pub vlan: Option<VlanId>,
    pub user: String,
    pub since_ms: u64,
    /// When the grant ends, in milliseconds, and true if the host is authenticated again then, false if it loses the grant.
    pub ends: Option<(u64, bool)>,
}

/// The state of an authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// CONNECTING: the host has been asked for its identity.
    Connecting,
    /// AUTHENTICATING, backend REQUEST: an EAP request of the server's method has been sent to the host.
    Request,
    /// AUTHENTICATING, backend RESPONSE: the server has been asked.
    Response,
    /// The server has been asked whether it accepts the host's MAC address.
    Mab,
    /// AUTHENTICATED.
    Authenticated,
    /// HELD: the last attempt has failed, and the next one waits.
    Held,
}

/// A session.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: u32,
    pub state: State,
    /// The running method, or the last one.
    pub method: Method,
    /// The methods that have been tried since the session began or was repeated.
    pub tried: Vec<Method>,
    /// When the state times out, or an unsent query is tried again, in milliseconds; `None`: never.
    pub due_ms: Option<u64>,
    /// How often the request that waits for the host's answer has been repeated.
    pub repeated: u8,
    /// The identifier of the packet in `eap`.
    pub eap_id: u8,
    /// The last EAP packet: the request to the host or, in state [`State::Response`], the host's response.
    pub eap: Vec<u8>,
    /// The value of the State attribute, which the next request to the server has to repeat.
    pub radius_state: Option<Vec<u8>>,
    /// The identity that the host has given.
    pub identity: Vec<u8>,
    pub grant: Option<Grant>,
    /// Attempts that the server has rejected.
    pub failures: u8,
    /// True if the host has sent EAPOL.
    pub speaks_eap: bool,
    /// When the session began, in milliseconds.
    pub began_ms: u64,
    /// True if its query to the server could not be sent yet.
    pub unsent: bool,
}

impl Session {
    pub const fn new(id: u32, now: u64) -> Self {
        Self {
            id,
            state: State::Held,
            method: Method::Dot1x,
            tried: Vec::new(),
            due_ms: None,
            repeated: 0,
            eap_id: 0,
            eap: Vec::new(),
            radius_state: None,
            identity: Vec::new(),
            grant: None,
            failures: 0,
            speaks_eap: false,
            began_ms: now,
            unsent: false,
        }
    }
    /// The next deadline of the session, in milliseconds; `None` if there is none.
    pub fn next_ms(&self) -> Option<u64> {
        let ends = self.grant.as_ref().and_then(|grant| grant.ends).map(|(at, _)| at);
        let ends = ends.filter(|_| self.state == State::Authenticated);
        self.due_ms.into_iter().chain(ends).min()
    }
    /// Enters a state that ends at `due_ms`.
    pub fn enter(&mut self, state: State, due_ms: Option<u64>) {
        (self.state, self.due_ms, self.repeated) = (state, due_ms, 0);
    }
}
