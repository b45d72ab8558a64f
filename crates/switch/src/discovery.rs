//! Connects neighbour discovery to the switch: the information that LLDP and CDP send about it, and the frames that the
//! plane traps for them.

use crate::facts::Facts;
use crate::identity::Identity;
use crate::names::host_end;
use crate::ports::PortIds;
use lanyard_config::{Config, Interface, InterfaceName, Role, SwitchportMode, Voice};
use lanyard_lldp::{AdminStatus, NetworkPolicy, PortConfig, System};
use lanyard_pipeline::state::{GlobalState, ReservedAction};
use lanyard_types::{PortId, VlanId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The last nibble of LLDP's address, 01:80:C2:00:00:0E: the index among the reserved addresses.
const LLDP: usize = 0xe;
/// Bytes of an Ethernet header, one tag and the FCS around a packet of the MTU's length.
const OVERHEAD: u32 = 14 + 4 + 4;
/// The 802.1Q priority and the DSCP (expedited forwarding) of voice, with which IOS answers telephones.
const VOICE_PRIORITY: u8 = 5;
const VOICE_DSCP: u8 = 46;
/// Most VLANs whose names are sent.
const MAX_VLAN_NAMES: usize = 16;

/// A port's link as it was negotiated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Medium {
    /// The speed in Mbit/s, if known.
    pub speed_mbps: Option<u32>,
    /// True for full duplex, if known.
    pub full_duplex: Option<bool>,
    /// True if the link negotiates, if known.
    pub autoneg: Option<bool>,
}

/// Makes the plane trap the frames of the protocols that run.
pub(crate) fn overlay(config: &Config, global: &mut GlobalState) {
    if config.discovery.lldp_runs {
        global.reserved[LLDP] = ReservedAction::Trap;
    }
    global.trap_cdp = config.discovery.cdp_runs;
}

/// The configuration of discovery: the ports of `config` that have a number and a usable netdev. `system` has the information
/// that does not follow from the configuration: description, platform and software.
#[must_use]
pub fn lower(
    config: &Config,
    facts: &Facts,
    ports: &PortIds,
    identity: &Identity,
    system: &System,
    medium: &mut dyn FnMut(&str) -> Medium,
) -> lanyard_lldp::Config {
    let settings = &config.discovery;
    let mut lowered = lanyard_lldp::Config {
        lldp: settings.lldp_runs.then(|| settings.lldp.clone()),
        cdp: settings.cdp_runs.then_some(settings.cdp),
        system: System {
            chassis: identity.base_mac,
            name: config.hostname.clone(),
            routes: config.ip_routing || config.ipv6_routing,
            ..system.clone()
        },
        ports: BTreeMap::new(),
    };
    if lowered.lldp.is_none() && lowered.cdp.is_none() {
        return lowered;
    }
    let shared = vlan_addresses(config, facts);
    for (name, interface) in &config.interfaces {
        let InterfaceName::Netdev(name) = name else { continue };
        let key = InterfaceName::Netdev(name.clone());
        if !matches!(interface.role, Role::Switchport | Role::Routed) || config.is_monitor_destination(&key) {
            continue;
        }
        if let (Some(id), Some(link)) = (ports.get(name), facts.usable(name)) {
            let medium = medium(name);
            let settings = &interface.discovery;
            // A member carries the VLANs of its port-channel.
            let channel = interface.aggregation.group.map(|(channel, _)| channel);
            let layer2 = channel
                .map(InterfaceName::of_channel)
                .and_then(|name| config.interfaces.get(&name))
                .unwrap_or(interface);
            let port = PortConfig {
                lldp: AdminStatus::new(settings.lldp_transmit, settings.lldp_receive),
                cdp: settings.cdp,
                name: name.clone(),
                description: interface.description.clone(),
                mac: link.mac.unwrap_or(identity.base_mac),
                switchport: interface.role == Role::Switchport,
                pvid: (interface.role == Role::Switchport).then(|| native(layer2)),
                voice: voice(layer2),
                locations: config.locations.sent(settings.civic, settings.elin),
                vlans: vlan_names(config, layer2),
                speed_mbps: medium.speed_mbps,
                full_duplex: medium.full_duplex,
                autoneg: medium.autoneg,
                bundle: channel.filter(|_| facts.bundled.contains(&id)).map(|channel| channel.get().into()),
                max_frame: u16::try_from(link.mtu.saturating_add(OVERHEAD)).unwrap_or(u16::MAX),
                management: if interface.role == Role::Routed {
                    addresses(interface, link.ifindex)
                } else {
                    shared.clone()
                },
            };
            lowered.ports.insert(id, port);
        }
    }
    lowered
}

/// The ports of `lowered`, each with true if it has a link.
#[must_use]
pub fn links(lowered: &lanyard_lldp::Config, facts: &Facts) -> Vec<(PortId, bool)> {
    let up = |name: &str| facts.usable(name).is_some_and(|link| link.admin_up && link.carrier);
    lowered.ports.iter().map(|(id, port)| (*id, up(&port.name))).collect()
}

fn native(interface: &Interface) -> VlanId {
    interface.switchport.untagged_vlan()
}

/// The tag, VLAN, priority and DSCP of voice, for a telephone at the port; `None` if no voice VLAN or mark is configured.
fn voice(interface: &Interface) -> Option<NetworkPolicy> {
    let port = &interface.switchport;
    let wanted =
        port.voice.filter(|_| interface.role == Role::Switchport && port.mode == SwitchportMode::Access)?;
    let (tagged, vlan, priority) = match wanted {
        Voice::Vlan(vlan) => (true, vlan.get(), VOICE_PRIORITY),
        Voice::Dot1p => (true, 0, VOICE_PRIORITY),
        Voice::Untagged => (false, 0, 0),
    };
    Some(NetworkPolicy { application: 1, unknown: false, tagged, vlan, priority, dscp: VOICE_DSCP })
}

/// The VLANs of a switch port with their names, the lowest first.
fn vlan_names(config: &Config, interface: &Interface) -> Vec<(VlanId, String)> {
    let carried = |vlan: VlanId| interface.role == Role::Switchport && interface.switchport.carries(vlan);
    let vlans = config.vlans.iter().filter(|(vlan, _)| carried(**vlan));
    vlans.map(|(vlan, settings)| (*vlan, settings.display_name(*vlan))).take(MAX_VLAN_NAMES).collect()
}

/// The first IPv4 and IPv6 addresses of the lowest VLAN interface that has any: where the switch is managed.
fn vlan_addresses(config: &Config, facts: &Facts) -> Vec<(IpAddr, u32)> {
    let interfaces = config.interfaces.iter().filter_map(|(name, interface)| match name {
        InterfaceName::Vlan(vlan) => Some((vlan, interface)),
        InterfaceName::Netdev(_) => None,
    });
    let found = interfaces.map(|(vlan, interface)| {
        addresses(interface, facts.get(&host_end(*vlan)).map_or(0, |link| link.ifindex))
    });
    found.into_iter().find(|list| !list.is_empty()).unwrap_or_default()
}

/// An interface's first address of each family.
fn addresses(interface: &Interface, ifindex: u32) -> Vec<(IpAddr, u32)> {
    let v4 = interface.ipv4.first().map(|net| IpAddr::V4(net.addr()));
    let v6 = interface.ipv6.first().map(|net| IpAddr::V6(net.addr()));
    v4.into_iter().chain(v6).map(|address| (address, ifindex)).collect()
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
