//! `show ip igmp snooping ...` and `show ipv6 mld snooping ...`.

use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `show ip igmp snooping`, `show ipv6 mld snooping`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snooping {
    /// `igmp` or `mld`.
    pub protocol: &'static str,
    /// True if it is configured.
    pub enabled: bool,
    /// False if the plane has no table of groups, and floods.
    pub supported: bool,
    /// One report of each group goes to routers.
    pub report_suppression: bool,
    /// The switch reports to routers for its hosts.
    pub proxy: bool,
    /// General queries until whose end groups are flooded after a change of topology.
    pub tcn_flood_query_count: u8,
    /// After a topology change a switch that is not the querier solicits a general query.
    pub tcn_query_solicit: bool,
    /// The memberships of both families (a group at a port counts once), and the most there may be.
    pub memberships: usize,
    /// Most memberships.
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
    /// A leave ends a membership at once.
    pub immediate_leave: bool,
    /// Robustness variable.
    pub robustness: u8,
    /// Queries for a last member.
    pub last_member_query_count: u8,
    /// The time between them in milliseconds.
    pub last_member_query_interval_ms: u32,
    /// The treatment of frames of groups without members: `flood` or `mrouter`.
    pub unregistered: &'static str,
    /// The groups that are flooded for the time being: `none`, `unregistered`, because entries were refused, or `all`, after a
    /// change of topology.
    pub flooding: &'static str,
    /// Statistics by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// The querier.
    #[serde(flatten)]
    pub querier: SnoopingQuerier,
    /// The groups, for `groups`.
    #[serde(skip)]
    pub groups: Vec<SnoopingGroup>,
    /// The ports of routers, for `mrouter`.
    #[serde(skip)]
    pub mrouters: Vec<SnoopingRouter>,
}

/// The querier of a VLAN.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnoopingQuerier {
    /// True if the switch sends queries while the VLAN has no other querier.
    pub querier_enabled: bool,
    /// The querier's address; none while there is no querier.
    pub querier_address: Option<IpAddr>,
    /// True if that is the switch.
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
    /// By VLAN and group.
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
    /// The sources that members name.
    pub sources: Vec<IpAddr>,
    /// `include`: these sources only; `exclude`: all others; `any`: all sources.
    pub mode: &'static str,
    /// The ports with members.
    pub ports: Vec<String>,
    /// Seconds until the last membership ends; none for a static one.
    pub expires_s: Option<u64>,
}

/// An address as text, with a default.
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
    /// By VLAN and port.
    pub mrouters: Vec<SnoopingRouter>,
}

impl SnoopingRouters {
    /// The ports of all VLANs.
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
