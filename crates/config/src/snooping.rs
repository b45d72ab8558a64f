//! `ip igmp snooping ...` and `ipv6 mld snooping ...`: multicast snooping.

use crate::InterfaceName;
use lanyard_pipeline::state::Unregistered;
use lanyard_types::{Family, VlanId, VlanSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The settings of IGMP and of MLD snooping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snooping {
    /// `ip igmp snooping`, on by default as in IOS.
    pub igmp: FamilySnooping,
    /// `ipv6 mld snooping`, off by default as in IOS.
    pub mld: FamilySnooping,
}

impl Default for Snooping {
    fn default() -> Self {
        Self {
            igmp: FamilySnooping { on: true, ..FamilySnooping::default() },
            mld: FamilySnooping::default(),
        }
    }
}

impl Snooping {
    /// The settings of a family.
    #[must_use]
    pub const fn of(&self, family: Family) -> &FamilySnooping {
        match family {
            Family::V4 => &self.igmp,
            Family::V6 => &self.mld,
        }
    }
    /// The settings of a family, to be changed.
    pub const fn of_mut(&mut self, family: Family) -> &mut FamilySnooping {
        match family {
            Family::V4 => &mut self.igmp,
            Family::V6 => &mut self.mld,
        }
    }
}

/// The settings of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilySnooping {
    /// True if snooping runs.
    pub on: bool,
    /// `no ... snooping vlan N`: VLANs without snooping.
    pub off_vlans: VlanSet,
    /// `report-suppression`, `listener-message-suppression`: on by default.
    pub report_suppression: bool,
    /// `proxy`, which IOS does not have: true if the switch reports to routers what its hosts want together (RFC 4541,
    /// 2.1.1).
    pub proxy: bool,
    /// `tcn flood query count`, 1..=10: after a change of topology all groups are flooded until this many general
    /// queries have been sent or received, and hosts have had the time to answer the last one.
    pub tcn_flood_count: u8,
    /// `tcn query solicit`: a switch that is not the querier solicits a general query after a change of topology.
    pub tcn_solicit: bool,
    /// Settings of all VLANs that have none of their own.
    pub common: SnoopingSettings,
    /// Settings of single VLANs.
    pub vlans: BTreeMap<VlanId, VlanSnooping>,
}

impl Default for FamilySnooping {
    fn default() -> Self {
        Self {
            on: false,
            off_vlans: VlanSet::EMPTY,
            report_suppression: true,
            proxy: false,
            tcn_flood_count: 2,
            tcn_solicit: false,
            common: SnoopingSettings::default(),
            vlans: BTreeMap::new(),
        }
    }
}

/// Settings that a line can make for all VLANs or for a single one; `None`: not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnoopingSettings {
    /// `last-member-query-count`, 1..=7.
    pub last_member_count: Option<u8>,
    /// `last-member-query-interval`, 100..=32,767 milliseconds.
    pub last_member_ms: Option<u16>,
    /// `robustness-variable`, 1..=7.
    pub robustness: Option<u8>,
    /// `querier`: the switch sends queries while no router does.
    pub querier: Option<bool>,
    /// `querier address`.
    pub querier_address: Option<IpAddr>,
    /// `querier query-interval`, 1..=18,000 seconds.
    pub query_interval_s: Option<u16>,
    /// `querier max-response-time`, 1..=25 seconds.
    pub max_response_s: Option<u8>,
    /// `querier timer expiry`, 60..=300 seconds.
    pub querier_expiry_s: Option<u16>,
    /// `querier version`, 1..=3 for IGMP, 1..=2 for MLD.
    pub querier_version: Option<u8>,
    /// `unregistered`, which IOS does not have: where the packets of unregistered groups are sent.
    pub unregistered: Option<Unregistered>,
}

impl SnoopingSettings {
    /// These settings; where one is not set, that of `other`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            last_member_count: self.last_member_count.or(other.last_member_count),
            last_member_ms: self.last_member_ms.or(other.last_member_ms),
            robustness: self.robustness.or(other.robustness),
            querier: self.querier.or(other.querier),
            querier_address: self.querier_address.or(other.querier_address),
            query_interval_s: self.query_interval_s.or(other.query_interval_s),
            max_response_s: self.max_response_s.or(other.max_response_s),
            querier_expiry_s: self.querier_expiry_s.or(other.querier_expiry_s),
            querier_version: self.querier_version.or(other.querier_version),
            unregistered: self.unregistered.or(other.unregistered),
        }
    }
}

/// The settings of one VLAN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VlanSnooping {
    /// The settings that can also be made for all VLANs.
    pub settings: SnoopingSettings,
    /// `immediate-leave`.
    pub immediate_leave: bool,
    /// `mrouter interface`.
    pub mrouters: BTreeSet<InterfaceName>,
    /// `static GROUP interface`.
    pub statics: BTreeMap<IpAddr, BTreeSet<InterfaceName>>,
}

impl FamilySnooping {
    /// True if a VLAN is snooped.
    #[must_use]
    pub fn is_on(&self, vlan: VlanId) -> bool {
        self.on && !self.off_vlans.contains(vlan)
    }
    /// The settings of a VLAN, with those of all VLANs where it has none.
    #[must_use]
    pub fn settings(&self, vlan: VlanId) -> SnoopingSettings {
        self.vlans.get(&vlan).map_or(self.common, |own| own.settings.or(&self.common))
    }
    /// Changes the settings of a VLAN; an entry with default settings is removed.
    pub fn change_vlan(&mut self, vlan: VlanId, change: impl FnOnce(&mut VlanSnooping)) {
        let mut own = self.vlans.remove(&vlan).unwrap_or_default();
        change(&mut own);
        if own != VlanSnooping::default() {
            self.vlans.insert(vlan, own);
        }
    }
}
