//! First-hop security: DHCP snooping, ND inspection, and the log's description of frames that a plane has dropped.
//!
//! Nothing here does I/O or reads a clock: [`Snooper`] takes the DHCP messages that a plane has trapped, [`Inspector`] those of
//! neighbour discovery, both configuration and the time in milliseconds. They answer with [`Action`]s: messages to send on,
//! bindings for the plane, events for the log. The planes themselves judge ARP, sources, router advertisements, DHCPv6, and
//! messages of neighbour discovery whose sender and address match a binding (`lanyard_pipeline::stages::guard`).
//!
//! Read first: RFC 2131 (DHCP), RFC 3046 (option 82), RFC 7513 (SAVI for DHCP, which has the same database), RFC 4861
//! (neighbour discovery), RFC 6620 (FCFS SAVI). Invariants: a message of a server goes on only if it came in at a trusted port;
//! a client's message goes to trusted ports only; at a port that is not trusted a message of neighbour discovery goes on only
//! if the address that it claims belongs to its sender, or to nobody yet. Every table is bounded. No bytes from outside cause a
//! panic, and every message is counted once, as sent on or as dropped for a reason.

mod bound;
mod config;
mod denied;
mod discovery;
mod fuzz;
mod inspector;
mod neighbour;
mod option82;
mod packet;
mod snooper;

pub use config::{Config, NdConfig, NdPort, PortConfig};
pub use denied::{Denied, Denied6, describe};
pub use fuzz::fuzz;
pub use inspector::{Inspector, MAX_WAITING};
pub use neighbour::{Change, NdCounters, NdDrop, Neighbour, Owner, State};
pub use snooper::{Action, Counters, Drop, Lease, MAX_PENDING, Snooper};
