//! A TACACS+ client (RFC 8907) for the logins of a switch, sans-IO: one [`Exchange`] is one session on one TCP connection, and
//! [`Servers`] has the order in which servers are asked, and their counters.
//!
//! Invariants: no packet is sent or accepted in plain text. A reply is accepted only if its header continues the session, and its
//! lengths add up, which a wrong key makes improbable. The body of a reply has at most [`packet::MAX_BODY`] bytes, and an
//! exchange at most three replies.

mod exchange;
mod packet;
mod servers;

pub use exchange::{Answer, Exchange, Login, Step};
pub use packet::{Invalid, MAX_BODY, MAX_FIELD};
pub use servers::{Counters, Report, Server, ServerView, Servers};

pub(crate) use packet::testing;
