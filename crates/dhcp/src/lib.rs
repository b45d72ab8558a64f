//! DHCP relay agents without a socket or a clock: received messages in, messages to send out.
//!
//! Read first: RFC 2131, RFC 1542 section 4 and RFC 3046 for IPv4 ([`Relay4`]); RFC 8415, section 19, for IPv6
//! ([`Relay6`]). Invariants: reads of received bytes are checked against their bounds and cause no panic. The relays keep
//! no state for messages, so their memory does not grow with the number of messages. Every message is counted once, as
//! forwarded or as dropped for a named reason.

mod bootp;
mod counters;
mod frame;
mod fuzz;
mod relay4;
mod relay6;

pub use bootp::{MAX_MESSAGE, Message, REPLY, REQUEST};
pub use counters::{Counter, Counters};
pub use frame::reply_frame;
pub use fuzz::fuzz;
pub use relay4::{Config4, Delivery, Interface4, Policy, Relay4, Send4, Server4, Source4};
pub use relay6::{Config6, Interface6, Relay6, Send6, Server6};
