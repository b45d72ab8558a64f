//! The typed configuration of a switch and its IOS text.
//!
//! [`Config`] is the whole running or startup configuration as plain values. The command line (`lanyard-cli`) declares
//! the lines that parse and print it; [`text`] has helpers that those lines share. A command changes a copy; the switch
//! accepts the copy or refuses it, so a command takes effect everywhere or nowhere.

pub mod access;
pub mod aggregation;
mod appliance;
mod discovery;
pub mod dot1x;
mod format;
pub mod fpm;
mod guard;
pub mod layer3;
mod location;
mod model;
mod monitor;
pub mod names;
mod port_security;
mod private_domain;
mod private_vlan;
mod qos;
mod qos_check;
mod sflow;
mod snooping;
pub mod spanning_tree;
pub mod tacacs;
pub mod text;

pub use access::{Access, Secret, User};
pub use aggregation::{Aggregation, AggregationPort};
pub use appliance::*;
pub use discovery::{Discovery, DiscoveryPort};
pub use dot1x::{PortAccess, Radius};
pub use fpm::FpmServer;
pub use guard::{Guard, StaticBinding};
pub use layer3::StaticRoute;
pub use location::*;
pub use model::*;
pub use monitor::*;
pub use port_security::*;
pub use private_vlan::{PrivateKind, PrivatePort};
pub use qos::*;
pub use qos_check::*;
pub use sflow::*;
pub use snooping::{FamilySnooping, Snooping, SnoopingSettings, VlanSnooping};
