//! The switch as values, without input and output: what a configuration means for a plane and for the kernel.
//!
//! A [`Switch`] holds the running configuration and the facts about netdevs. It answers questions: may this
//! configuration be taken ([`check`]), which changes of netdevs does it need ([`links`]), which
//! [`PlaneState`](lanyard_plane::PlaneState) does it mean ([`compile`]), which dynamic addresses become stale
//! ([`flush`]), when is the FDB swept next ([`ageing`]). The daemon carries the answers out.
//!
//! Invariants: nothing here does I/O or reads a clock; time is an argument. The same configuration, facts and port
//! numbers give the same plane state.

mod acl_numbers;
pub mod acls;
mod actions;
pub mod ageing;
pub mod aggregation;
pub mod check;
pub mod chip;
pub mod compile;
pub mod discovery;
pub mod dot1x;
pub mod err_disable;
pub mod facts;
pub mod flush;
pub mod forwarding;
pub mod guard;
mod host_routes;
mod identity;
pub mod layer3;
mod leftovers;
pub mod links;
mod membership;
pub mod monitor;
mod names;
mod packet_filter;
pub mod port_security;
pub mod ports;
mod private_trees;
mod private_vlan;
pub mod qos;
mod qos_classes;
mod refused;
pub mod rifs;
mod routers;
pub mod routing;
pub mod services;
pub mod sflow;
pub mod snooping;
pub mod spanning;
mod switch;
pub mod track;

pub use ageing::Ageing;
pub use dot1x::Admitted;
pub use err_disable::ErrDisabled;
pub use facts::{Facts, LinkFacts};
pub use identity::Identity;
pub use layer3::{Arp, Route};
pub use links::{Action, Original, Record};
pub use port_security::SecureAddresses;
pub use ports::PortIds;
pub use refused::{Refused, Unusable};
pub use routers::{Router, Routers};
pub use routing::Routing;
pub use spanning::Spanning;
pub use switch::{Plan, Switch};

#[cfg(test)]
#[allow(clippy::panic)] // only a mistake in a test gets here
mod testing;
