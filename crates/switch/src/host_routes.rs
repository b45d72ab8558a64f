//! Routes that the switch asks the kernel to install.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A next hop of a static route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hop {
    /// The router.
    pub via: Option<IpAddr>,
    /// The egress netdev.
    pub interface: Option<String>,
}

/// A static route for the kernel. Those of the configuration that lead to one prefix with one distance are one route with several
/// next hops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// The routing table.
    pub vrf: Option<String>,
    /// The destination.
    pub prefix: IpNet,
    /// The metric: IOS's administrative distance.
    pub metric: u32,
    /// Where packets go; without any they are dropped.
    pub hops: BTreeSet<Hop>,
}
