//! Multicast snooping: IGMP versions 1 to 3 and MLD versions 1 and 2 (RFC 4541, 2236, 3376, 2710, 3810), multicast router
//! discovery (RFC 4286) and PIM hellos.
//!
//! Nothing here does I/O or reads a clock: [`Snooping`] takes frames, link changes, configuration and the time in
//! milliseconds, and answers with [`Action`]s: which ports get a group's frames, which ports lead to routers, and frames
//! to send. Every table is bounded.
//!
//! Reading order: `config`, `snooping` (the public interface), `vlan`, `membership` with the tables of RFC 3376, 6.4
//! beside it, `proxy` (reports of the switch's own), then the formats `message`, `igmp` and `mld`.

mod config;
mod fuzz;
mod igmp;
mod membership;
pub mod message;
mod mld;
mod proxy;
mod proxy_reports;
mod snooping;
mod vlan;

pub use config::{Config, Querier, VlanConfig};
pub use fuzz::fuzz;
pub use membership::MAX_SOURCES_AT_PORT;
pub use message::{Family, MessageError};
pub use snooping::{Action, Counters, GroupView, MAX_MEMBERSHIPS, Snooping, link_local};
pub use vlan::Flood;
