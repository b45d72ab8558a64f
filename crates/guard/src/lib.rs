//! First-hop security: DHCP snooping, and what the log says about frames that a plane has dropped.
//!
//! Nothing here does I/O or reads a clock: [`Snooper`] takes the DHCP messages that a plane has trapped, configuration and the
//! time in milliseconds, and answers with [`Action`]s: messages to send on, bindings for the plane, what to log. The planes
//! themselves judge ARP, IPv4 sources, router advertisements and DHCPv6 (`lanyard_pipeline::stages::guard`).
//!
//! Read first: RFC 2131 (DHCP), RFC 3046 (option 82), RFC 7513 (SAVI for DHCP, which has the same database). Invariants: a
//! message of a server goes on only if it came in at a trusted port; a client's message goes to trusted ports only. Every
//! table is bounded. Bytes from outside never panic, and every message is counted once, as sent on or as dropped for a reason.

mod config;
mod denied;
mod fuzz;
mod option82;
mod packet;
mod snooper;

pub use config::{Config, PortConfig};
pub use denied::{Denied, describe};
pub use fuzz::fuzz;
pub use snooper::{Action, Counters, Drop, Lease, MAX_PENDING, Snooper};
