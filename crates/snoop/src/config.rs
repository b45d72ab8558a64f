//! The configuration of snooping.

use crate::message::Family;
use lanyard_types::{MacAddr, PortId, PortSet, VlanId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A querier: the switch sends queries itself while no multicast router does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Querier {
    /// The source address of queries. With an IPv4 address of 0.0.0.0 the switch never wins an election (RFC 4541, 2.1.1).
    pub address: IpAddr,
    /// The version of the queries: 1 to 3 for IGMP, 1 or 2 for MLD.
    pub version: u8,
}

/// The settings of one family in one VLAN. Times follow RFC 3376, 8, and RFC 3810, 9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanConfig {
    /// `querier`; `None`: the switch is not a querier.
    pub querier: Option<Querier>,
    /// `immediate-leave`: a leave ends a port's membership at once, unless another host at the port is a member.
    pub immediate_leave: bool,
    /// `report-suppression`: routers get one report of each group for each query.
    pub report_suppression: bool,
    /// `proxy`: the switch reports for its hosts, and no report of theirs reaches a router.
    pub proxy: bool,
    /// Robustness variable, 1 to 7. Default 2.
    pub robustness: u8,
    /// Seconds between two general queries, 1 to 18000. Default 125.
    pub query_interval_s: u32,
    /// Milliseconds within which hosts answer a general query, less than the interval. Default 10,000.
    pub max_response_ms: u32,
    /// Milliseconds within which hosts answer a query for the last member, 100 to 32,767. Default 1000.
    pub last_member_ms: u32,
    /// Queries for the last member, 1 to 7. Default 2.
    pub last_member_count: u8,
    /// Seconds after which another querier, and a router that has sent queries, count as gone; `None`: the Other Querier Present
    /// Interval that follows from the other settings.
    pub other_querier_s: Option<u32>,
    /// The number of general queries after a change of topology until which all groups are flooded, 1 to 10. Default 2.
    pub tcn_flood_count: u8,
    /// True if the switch solicits a general query after a change of topology when it is not the querier, by a leave of all
    /// groups (IGMP only).
    pub tcn_solicit: bool,
    /// Groups with the ports that are always members.
    pub static_groups: BTreeMap<IpAddr, PortSet>,
    /// Ports that always lead to a router.
    pub static_routers: PortSet,
    /// The ports of the VLAN.
    pub ports: PortSet,
    /// Most groups of a port; ports that are not listed have no limit of their own.
    pub limits: BTreeMap<PortId, u32>,
    /// Most sources of a group at a port, 1 to [`MAX_SOURCES_AT_PORT`](crate::MAX_SOURCES_AT_PORT), which is the limit of ports
    /// that are not listed.
    pub source_limits: BTreeMap<PortId, u32>,
}

impl Default for VlanConfig {
    fn default() -> Self {
        Self {
            querier: None,
            immediate_leave: false,
            report_suppression: true,
            proxy: false,
            robustness: 2,
            query_interval_s: 125,
            max_response_ms: 10_000,
            last_member_ms: 1000,
            last_member_count: 2,
            other_querier_s: None,
            tcn_flood_count: 2,
            tcn_solicit: false,
            static_groups: BTreeMap::new(),
            static_routers: PortSet::EMPTY,
            ports: PortSet::EMPTY,
            limits: BTreeMap::new(),
            source_limits: BTreeMap::new(),
        }
    }
}

impl VlanConfig {
    /// Group Membership Interval: how long a report is valid, in milliseconds.
    #[must_use]
    pub fn membership_ms(&self) -> u64 {
        u64::from(self.robustness) * u64::from(self.query_interval_s) * 1000 + u64::from(self.max_response_ms)
    }
    /// Other Querier Present Interval, in milliseconds; also how long a port counts as a router port after a query.
    #[must_use]
    pub fn other_querier_ms(&self) -> u64 {
        if let Some(seconds) = self.other_querier_s {
            return u64::from(seconds) * 1000;
        }
        u64::from(self.robustness) * u64::from(self.query_interval_s) * 1000
            + u64::from(self.max_response_ms) / 2
    }
    /// Last Member Query Time, in milliseconds.
    #[must_use]
    pub fn last_member_time_ms(&self) -> u64 {
        u64::from(self.last_member_ms) * u64::from(self.last_member_count)
    }
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The source MAC address of queries.
    pub mac: MacAddr,
    /// The settings of each VLAN and family that is snooped. Static groups and a querier's address of the other family are
    /// ignored.
    pub vlans: BTreeMap<(VlanId, Family), VlanConfig>,
}
