//! The whole switch without its input and output: what a configuration means for a plane and for the kernel.
//!
//! A [`Switch`] holds the running configuration and the facts about netdevs. It answers questions as values:
//! may this configuration be taken ([`check`]), which netdev actions does it need ([`links`]), which
//! [`PlaneState`](lanyard_plane::PlaneState) is it ([`compile`]), which dynamic addresses are stale
//! ([`flush`]), when is the FDB swept next ([`ageing`]). The daemon carries the answers out.
//!
//! Invariant: nothing here does I/O or reads a clock; time is an argument. Equal configuration, facts and
//! port numbers give an equal plane state.

mod actions;
pub mod ageing;
pub mod check;
pub mod compile;
pub mod facts;
pub mod flush;
pub mod forwarding;
mod host_routes;
mod identity;
pub mod layer3;
pub mod links;
mod names;
mod packet_filter;
pub mod ports;
pub mod rifs;
mod routers;
pub mod routing;
pub mod services;
pub mod spanning;
mod switch;
pub mod track;

pub use ageing::Ageing;
pub use facts::{Facts, LinkFacts};
pub use identity::Identity;
pub use layer3::{Arp, Route};
pub use links::{Action, Original, Record};
pub use ports::PortIds;
pub use routers::{Router, Routers};
pub use routing::Routing;
pub use spanning::Spanning;
pub use switch::{Plan, Switch};

#[cfg(test)]
#[allow(clippy::panic)] // a test that is written wrong
mod testing;
