//! Connects multicast snooping to the switch: which VLANs the plane snoops, and the settings of the state machines in the
//! protocol crate, from the configuration and the plane's state.

use crate::identity::Identity;
use crate::ports::PortIds;
use lanyard_config::{Config, FamilySnooping, Interface, InterfaceName, SnoopingSettings, VlanSnooping};
use lanyard_pipeline::state::{PlaneState, PortKind, PortState, Unregistered, VlanState};
use lanyard_snoop::{Querier, VlanConfig, link_local};
use lanyard_types::{Family, PortId, PortSet, VlanId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Default seconds between two general queries (RFC 3376, 8.2; RFC 3810, 9.2).
const QUERY_INTERVAL_S: u16 = 125;
/// Default seconds within which members answer (RFC 3376, 8.3; RFC 3810, 9.3).
const MAX_RESPONSE_S: u8 = 10;
/// Default milliseconds within which members answer when a host has left (RFC 3376, 8.8; RFC 3810, 9.8).
const LAST_MEMBER_MS: u16 = 1000;
/// Default robustness variable, and number of queries for a last member (RFC 3376, 8.1 and 8.9).
const ROBUSTNESS: u8 = 2;

/// How a port classifies frames: the EtherType of its tag, and the VLAN of frames without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classifier {
    /// `None`: the port recognises no tag.
    pub tpid: Option<u16>,
    /// `None`: frames without a tag are not accepted.
    pub pvid: Option<VlanId>,
    /// Secondary private VLANs, with the primary VLANs in which their groups are.
    pub primaries: Arc<BTreeMap<VlanId, VlanId>>,
}

impl Classifier {
    /// The VLAN in which the groups of a frame with the VID `vid` are. `vid` is `None` for a frame without a tag, and 0 for
    /// one with a priority tag. Returns `None` if the frame belongs to no VLAN.
    #[must_use]
    pub fn vlan(&self, vid: Option<u16>) -> Option<VlanId> {
        let vlan = vid.filter(|vid| *vid != 0).map_or(self.pvid, VlanId::new)?;
        Some(self.primaries.get(&vlan).copied().unwrap_or(vlan))
    }
}

/// The plane's treatment of unregistered groups in a VLAN, by `Family::index()`; `None` if the family is not snooped there.
#[must_use]
pub fn of_vlan(config: &Config, vlan: VlanId) -> [Option<Unregistered>; 2] {
    Family::ALL.map(|family| {
        let snooping = config.snooping.of(family);
        snooping.is_on(vlan).then(|| snooping.settings(vlan).unregistered.unwrap_or_default())
    })
}

/// The ports that bridge, and how they classify frames.
#[must_use]
pub fn classifiers(state: &PlaneState) -> BTreeMap<PortId, Classifier> {
    let bridges =
        state.ports.iter().filter(|(_, port)| matches!(port.kind, PortKind::Netdev | PortKind::Svi(_)));
    let primary = |(id, vlan): (&VlanId, &VlanState)| Some((*id, vlan.shares?.primary));
    let primaries = Arc::new(state.vlans.iter().filter_map(primary).collect());
    let classifier = |port: &PortState| Classifier {
        tpid: port.tpid.ethertype(),
        pvid: port.pvid,
        primaries: Arc::clone(&primaries),
    };
    bridges.map(|(id, port)| (*id, classifier(port))).collect()
}

/// The configuration of the snooping machines: the VLANs of `state` that are snooped, each with its enabled ports.
#[must_use]
pub fn lower(
    config: &Config,
    state: &PlaneState,
    ports: &PortIds,
    identity: &Identity,
) -> lanyard_snoop::Config {
    let mut lowered = lanyard_snoop::Config { mac: identity.base_mac, vlans: BTreeMap::new() };
    for family in Family::ALL {
        let snooping = config.snooping.of(family);
        let snooped = state.vlans.iter().filter(|(vlan, own)| own.shares.is_none() && snooping.is_on(**vlan));
        for (vlan, _) in snooped {
            let vlan_config = one(config, state, ports, identity, family, *vlan);
            lowered.vlans.insert((*vlan, family), vlan_config);
        }
    }
    lowered
}

fn one(
    config: &Config,
    state: &PlaneState,
    ports: &PortIds,
    identity: &Identity,
    family: Family,
    vlan: VlanId,
) -> VlanConfig {
    let snooping: &FamilySnooping = config.snooping.of(family);
    let settings: SnoopingSettings = snooping.settings(vlan);
    let own = snooping.vlans.get(&vlan).cloned().unwrap_or_default();
    let VlanSnooping { immediate_leave, mrouters, statics, .. } = &own;
    let members = state
        .ports
        .iter()
        .filter(|(_, port)| port.enabled && (port.tagged.contains(vlan) || port.untagged.contains(vlan)));
    let members: PortSet = members.map(|(id, _)| *id).collect();
    let named = |names: &BTreeSet<InterfaceName>| -> PortSet {
        let ids = names.iter().filter_map(|name| match name {
            InterfaceName::Netdev(name) => ports.get(name),
            InterfaceName::Vlan(_) => None,
        });
        ids.filter(|port| members.contains(*port)).collect()
    };
    let limits = |of: fn(&Interface) -> &[Option<u32>; 2]| {
        let limit = |(name, interface): (&InterfaceName, &Interface)| {
            let InterfaceName::Netdev(name) = name else { return None };
            Some((ports.get(name)?, of(interface)[family.index()]?))
        };
        config.interfaces.iter().filter_map(limit).collect()
    };
    let version = settings.querier_version.unwrap_or(match family {
        Family::V4 => 3,
        Family::V6 => 2,
    });
    let address = querier_address(config, identity, family, vlan, &settings);
    VlanConfig {
        querier: settings.querier.unwrap_or(false).then_some(Querier { address, version }),
        immediate_leave: *immediate_leave,
        report_suppression: snooping.report_suppression,
        proxy: snooping.proxy,
        robustness: settings.robustness.unwrap_or(ROBUSTNESS),
        query_interval_s: settings.query_interval_s.unwrap_or(QUERY_INTERVAL_S).into(),
        max_response_ms: u32::from(settings.max_response_s.unwrap_or(MAX_RESPONSE_S)) * 1000,
        last_member_ms: settings.last_member_ms.unwrap_or(LAST_MEMBER_MS).into(),
        last_member_count: settings.last_member_count.unwrap_or(ROBUSTNESS),
        other_querier_s: settings.querier_expiry_s.map(Into::into),
        tcn_flood_count: snooping.tcn_flood_count,
        tcn_solicit: snooping.tcn_solicit,
        static_groups: statics.iter().map(|(group, names)| (*group, named(names))).collect(),
        static_routers: named(mrouters),
        limits: limits(|interface| &interface.max_groups),
        source_limits: limits(|interface| &interface.max_sources),
        ports: members,
    }
}

/// The source of the switch's queries: the configured address, that of the VLAN's interface, or one that wins no election.
/// MLD requires a link-local address (RFC 3810, 5.1.14).
fn querier_address(
    config: &Config,
    identity: &Identity,
    family: Family,
    vlan: VlanId,
    settings: &SnoopingSettings,
) -> IpAddr {
    let interface = config.interfaces.get(&InterfaceName::Vlan(vlan));
    let own = || match family {
        Family::V4 => {
            interface.and_then(|interface| interface.ipv4.first()).map(|net| IpAddr::V4(net.addr()))
        }
        Family::V6 => Some(IpAddr::V6(link_local(identity.base_mac))),
    };
    settings.querier_address.or_else(own).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

#[cfg(test)]
#[path = "snooping_tests.rs"]
mod tests;
