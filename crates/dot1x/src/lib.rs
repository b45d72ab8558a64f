//! Port-based access control: an 802.1X authenticator (IEEE 802.1X-2004, clause 8) with MAC authentication bypass, and its
//! RADIUS client (RFC 2865, RFC 3579, RFC 3580).
//!
//! Nothing here does I/O or reads a clock: [`Authenticator`] takes EAPOL frames, sources of frames that a plane has dropped,
//! datagrams of servers, configuration and the time in milliseconds, and answers with [`Action`]s. [`Authenticator::access`]
//! says which ports are open, in which VLAN, and for which hosts; the planes lock the ports.
//!
//! The switch passes EAP messages between host and server and knows no EAP method (RFC 3748, 2.3). Invariants: a host is let in
//! only by an answer whose authenticators prove that a configured server has sent it (RFC 2865, 3; RFC 3579, 3.2), or by a line
//! of the configuration that names a VLAN for hosts without authentication. Every table is bounded, and no bytes from outside
//! cause a panic.

mod authenticator;
mod client;
mod config;
mod eapol;
mod events;
mod fuzz;
mod radius;
mod session;
mod view;

pub use authenticator::{Authenticator, MAX_HOSTS, MAX_SESSIONS};
pub use client::ServerView;
pub use config::{Config, Control, Fail, HostMode, Nas, PortConfig, Reauthenticate, Server, Violation};
pub use events::{Access, Action, Event, Kept};
pub use fuzz::fuzz;
pub use radius::Invalid;
pub use session::{GrantKind, Method};
pub use view::{SessionStatus, SessionView};
