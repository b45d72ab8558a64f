//! `show ip igmp snooping ...` and `show ipv6 mld snooping ...`.

use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `show ip igmp snooping`, `show ipv6 mld snooping`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snooping {
    /// `igmp` or `mld`.
    pub protocol: &'static str,
    /// True if snooping is configured.
    pub enabled: bool,
    /// False if the plane has no MDB and floods multicast.
    pub supported: bool,
    /// True if only one report of each group is forwarded to routers.
    pub report_suppression: bool,
    /// True for proxy reporting: the switch itself sends reports to routers for its hosts.
    pub proxy: bool,
    /// The number of general queries until which all groups are flooded after a topology change.
    pub tcn_flood_query_count: u8,
    /// True if after a topology change the switch solicits a general query when it is not the querier.
    pub tcn_query_solicit: bool,
    /// The number of memberships of both families; a group at a port counts once.
    pub memberships: usize,
    /// The maximum number of memberships of both families.
    pub max_memberships: usize,
    /// The VLANs, ascending.
    pub vlans: Vec<SnoopingVlan>,
}

/// A VLAN.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingVlan {
    /// The VLAN.
    pub vlan: u16,
    /// True if it is snooped.
    pub enabled: bool,
    /// True if a leave ends a membership at once.
    pub immediate_leave: bool,
    /// Robustness variable.
    pub robustness: u8,
    /// The number of queries for the last member of a group.
    pub last_member_query_count: u8,
    /// The time between two queries for the last member, in milliseconds.
    pub last_member_query_interval_ms: u32,
    /// The treatment of frames to unregistered groups: `flood`, or `mrouter` to send them to router ports only.
    pub unregistered: &'static str,
    /// The groups that are flooded at present: `none`; `unregistered` after an entry was refused; `all` after a topology change,
    /// or if the VLAN is not snooped.
    pub flooding: &'static str,
    /// Statistics by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// The querier.
    #[serde(flatten)]
    pub querier: SnoopingQuerier,
    /// The groups, for `show ... snooping groups`.
    #[serde(skip)]
    pub groups: Vec<SnoopingGroup>,
    /// The router ports, for `show ... snooping mrouter`.
    #[serde(skip)]
    pub mrouters: Vec<SnoopingRouter>,
}

/// The querier of a VLAN.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingQuerier {
    /// True if the switch sends queries while the VLAN has no other querier.
    pub querier_enabled: bool,
    /// The querier's address; `None` while there is no querier.
    pub querier_address: Option<IpAddr>,
    /// True if the switch is the querier.
    pub querier_is_self: bool,
    /// The version of the switch's own queries.
    pub querier_version: u8,
    /// Seconds between its general queries.
    pub query_interval_s: u32,
    /// Seconds within which members answer.
    pub max_response_time_s: u32,
}

/// `show ... snooping groups`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingGroups {
    /// The groups, by VLAN and address.
    pub groups: Vec<SnoopingGroup>,
}

impl SnoopingGroups {
    /// The groups of all VLANs.
    #[must_use]
    pub fn of(view: Snooping) -> Self {
        Self { groups: view.vlans.into_iter().flat_map(|vlan| vlan.groups).collect() }
    }
}

/// A group.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingGroup {
    /// The VLAN.
    pub vlan: u16,
    /// The group.
    pub group: IpAddrText,
    /// The sources of the filter `mode`.
    pub sources: Vec<IpAddr>,
    /// The filter mode: `include` for frames of `sources` only, `exclude` for frames of all other sources, `any` for all frames.
    pub mode: &'static str,
    /// The ports with members.
    pub ports: Vec<String>,
    /// Seconds until the last membership ends; `None` for a static one.
    pub expires_s: Option<u64>,
}

/// An IP address; the default is 0.0.0.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct IpAddrText(pub IpAddr);

impl Default for IpAddrText {
    fn default() -> Self {
        Self(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }
}

/// `show ... snooping mrouter`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingRouters {
    /// The router ports, by VLAN and port.
    pub mrouters: Vec<SnoopingRouter>,
}

impl SnoopingRouters {
    /// The router ports of all VLANs.
    #[must_use]
    pub fn of(view: Snooping) -> Self {
        Self { mrouters: view.vlans.into_iter().flat_map(|vlan| vlan.mrouters).collect() }
    }
}

/// A port that leads to a multicast router.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingRouter {
    /// The VLAN.
    pub vlan: u16,
    /// The port.
    pub interface: String,
    /// `dynamic` or `static`.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// `show ... snooping querier`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingQueriers {
    /// The VLANs that are snooped.
    pub queriers: Vec<SnoopingVlanQuerier>,
}

/// A VLAN's querier.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingVlanQuerier {
    /// The VLAN.
    pub vlan: u16,
    /// Its querier.
    #[serde(flatten)]
    pub querier: SnoopingQuerier,
}

impl SnoopingQueriers {
    /// The queriers of the snooped VLANs.
    #[must_use]
    pub fn of(view: Snooping) -> Self {
        let snooped = view.vlans.into_iter().filter(|vlan| vlan.enabled);
        let one = |vlan: SnoopingVlan| SnoopingVlanQuerier { vlan: vlan.vlan, querier: vlan.querier };
        Self { queriers: snooped.map(one).collect() }
    }
}
