//! Views of sessions for `show` commands.

use crate::session::{GrantKind, Method, Session, State};
use lanyard_types::{MacAddr, PortId, VlanId};

/// The state of a session in the words of IOS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatus {
    /// A method is running.
    Running,
    /// The port is open for the host.
    Authorized,
    /// The last attempt has failed.
    Failed,
}

impl SessionStatus {
    pub(crate) const fn of(session: &Session) -> Self {
        match (&session.grant, session.state) {
            (Some(_), _) => Self::Authorized,
            (None, State::Held) => Self::Failed,
            (None, _) => Self::Running,
        }
    }
    /// The name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Authorized => "authorized",
            Self::Failed => "failed",
        }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its port.
    pub port: PortId,
    /// Its host.
    pub mac: MacAddr,
    /// Its number.
    pub id: u32,
    /// The running method, or the last one.
    pub method: Method,
    /// Its state.
    pub status: SessionStatus,
    /// Why the port is open for the host; `None` if it is not.
    pub grant: Option<GrantKind>,
    /// The VLAN, if it is not the port's own.
    pub vlan: Option<VlanId>,
    /// The user's name; empty while it is not known.
    pub user: String,
    /// Since when the port is open for the host, or the session exists, in milliseconds.
    pub since_ms: u64,
    /// When the grant ends, in milliseconds, and true if the host is authenticated again then, false if it loses the grant.
    pub ends: Option<(u64, bool)>,
}
