//! Routes that the switch asks the kernel to install.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A next hop of a static route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hop {
    /// The gateway.
    pub via: Option<IpAddr>,
    /// The egress netdev.
    pub interface: Option<String>,
}

/// A static route for the kernel. Configured routes to one prefix with one distance form one route with several next
/// hops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// The VRF.
    pub vrf: Option<String>,
    /// The destination.
    pub prefix: IpNet,
    /// The metric: IOS's administrative distance.
    pub metric: u32,
    /// The next hops. A route without any drops its packets.
    pub hops: BTreeSet<Hop>,
}
