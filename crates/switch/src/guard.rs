//! Connects first-hop security to the switch: what the plane checks in a VLAN, and the settings of DHCP snooping and ND inspection
//! in the protocol crate, from the configuration and the plane's state.

use crate::identity::Identity;
use crate::ports::PortIds;
use lanyard_config::names::channel_of;
use lanyard_config::{Config, InterfaceName};
use lanyard_guard::{NdConfig, NdPort, Owner, PortConfig};
use lanyard_pipeline::state::{PlaneState, PortKind, PortState};
use lanyard_types::{ArpValidation, BindingKey, MacAddr, PortId, PortSet, VlanGuard, VlanId};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The plane's checks in a VLAN.
#[must_use]
pub fn of_vlan(config: &Config, vlan: VlanId) -> VlanGuard {
    let arp = config.guard.arp_vlans.contains(vlan);
    let validate = if arp { config.guard.validate } else { ArpValidation::default() };
    VlanGuard { dhcp: config.guard.snoops(vlan), arp, validate, nd: config.guard.nd_vlans.contains(vlan) }
}

/// The configuration of DHCP snooping: the VLANs of `state` that are snooped, and their ports. The switch's own stack is
/// trusted.
#[must_use]
pub fn lower(
    config: &Config,
    state: &PlaneState,
    ports: &PortIds,
    identity: &Identity,
) -> lanyard_guard::Config {
    let vlans = members(state, |guard| guard.dhcp);
    let of_port = |port: &PortState| PortConfig {
        trusted: matches!(port.kind, PortKind::Svi(_)) || port.stages.guard.dhcp_trust,
    };
    let used = |id: PortId| vlans.values().any(|ports| ports.contains(id));
    lanyard_guard::Config {
        ports: state
            .ports
            .iter()
            .filter(|(id, _)| used(**id))
            .map(|(id, port)| (*id, of_port(port)))
            .collect(),
        vlans,
        verify_mac: config.guard.verify_mac,
        insert_option: config.guard.option,
        allow_untrusted: config.guard.allow_untrusted,
        mac: identity.base_mac,
        statics: statics(config, state, ports),
    }
}

/// The configuration of ND inspection: the VLANs of `state` that are inspected, and their ports. The switch's own stack is
/// trusted.
#[must_use]
pub fn lower_nd(config: &Config, state: &PlaneState, ports: &PortIds, identity: &Identity) -> NdConfig {
    let vlans = members(state, |guard| guard.nd);
    let of_port = |port: &PortState| NdPort {
        trusted: matches!(port.kind, PortKind::Svi(_)) || port.stages.guard.nd_trust,
        limit: port.stages.guard.nd_limit,
        private: port.private,
    };
    let used = state.ports.iter().filter(|(id, _)| vlans.values().any(|ports| ports.contains(**id)));
    NdConfig {
        ports: used.map(|(id, port)| (*id, of_port(port))).collect(),
        vlans,
        mac: identity.base_mac,
        statics: neighbors(config, state, ports),
    }
}

/// The VLANs whose settings `wanted` chooses, each with its ports. Messages of a secondary private VLAN are handled in its primary
/// VLAN.
fn members(state: &PlaneState, wanted: fn(&VlanGuard) -> bool) -> BTreeMap<VlanId, PortSet> {
    let vlans = state.vlans.iter().filter(|(_, vlan)| wanted(&vlan.guard) && vlan.shares.is_none());
    let members = |vlan: VlanId| -> PortSet {
        let ports = state.ports.iter().filter(|(_, port)| bridges(port) && is_member(port, vlan));
        ports.map(|(id, _)| *id).collect()
    };
    vlans.map(|(vlan, _)| (*vlan, members(*vlan))).collect()
}

/// The static bindings of IPv6 addresses at ports that exist.
fn neighbors(config: &Config, state: &PlaneState, ports: &PortIds) -> BTreeMap<(VlanId, Ipv6Addr), Owner> {
    let of = |((vlan, address), binding): (&(VlanId, Ipv6Addr), &lanyard_config::StaticBinding)| {
        let port = ports.get(&reached(config, &binding.interface)?)?;
        let owner = Owner { port, mac: binding.mac };
        state.ports.contains_key(&port).then_some(((state.shared(*vlan), *address), owner))
    };
    config.guard.neighbors.iter().filter_map(of).collect()
}

/// The static bindings of IPv4 addresses at ports that exist.
fn statics(config: &Config, state: &PlaneState, ports: &PortIds) -> BTreeMap<BindingKey, MacAddr> {
    let of = |((vlan, address), binding): (&(VlanId, Ipv4Addr), &lanyard_config::StaticBinding)| {
        let port = ports.get(&reached(config, &binding.interface)?)?;
        let key = BindingKey { port, vlan: state.shared(*vlan), address: (*address).into() };
        state.ports.contains_key(&port).then_some((key, binding.mac))
    };
    config.guard.bindings.iter().filter_map(of).collect()
}

/// The name of the port through which hosts behind an interface are reached: for a member of a port-channel, that of the
/// port-channel. `None` for a VLAN interface.
fn reached(config: &Config, name: &InterfaceName) -> Option<String> {
    let InterfaceName::Netdev(netdev) = name else { return None };
    let group = config.interfaces.get(name).and_then(|interface| interface.aggregation.group);
    Some(match group {
        Some((channel, _)) if channel_of(netdev).is_none() => InterfaceName::of_channel(channel).to_string(),
        _ => netdev.clone(),
    })
}

fn bridges(port: &PortState) -> bool {
    matches!(port.kind, PortKind::Netdev | PortKind::Svi(_))
}

fn is_member(port: &PortState, vlan: VlanId) -> bool {
    port.tagged.contains(vlan) || port.untagged.contains(vlan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::testing::{config, facts, identity};
    use lanyard_config::StaticBinding;

    #[test]
    fn vlans_and_ports_are_lowered() {
        let mut config = config("vlan 10\neth1: access 10\neth2: access 10\neth3: access 1\nvlan10:");
        let ten = VlanId::new(10).expect("a VLAN");
        (config.guard.dhcp, config.guard.dhcp_vlans) = (true, [ten].into_iter().collect());
        let eth2 = InterfaceName::Netdev("eth2".into());
        config.interfaces.get_mut(&eth2).expect("eth2").switchport.stages.guard.dhcp_trust = true;
        let mac = MacAddr([2, 0, 0, 0, 0, 5]);
        let binding = StaticBinding { mac, interface: InterfaceName::Netdev("eth1".into()) };
        config.guard.bindings.insert((ten, [10, 0, 0, 5].into()), binding.clone());
        let six: Ipv6Addr = "2001:db8::5".parse().expect("an address");
        let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
        let state = compile(&config, &facts("eth1, eth2, eth3, vlan10, ly10"), &ports, &identity());
        assert!(state.vlans[&ten].guard.dhcp && state.vlans[&VlanId::DEFAULT].guard.is_off());
        let lowered = lower(&config, &state, &ports, &identity());
        let port = |name: &str| ports.get(name).expect("a port");
        let want: PortSet = ["eth1", "eth2", "ly10"].map(port).into_iter().collect();
        assert_eq!(lowered.vlans, [(ten, want.clone())].into());
        let trusted = lowered.ports.iter().filter(|(_, of)| of.trusted).map(|(id, _)| *id);
        assert_eq!(trusted.collect::<PortSet>(), ["eth2", "ly10"].map(port).into_iter().collect());
        let key = BindingKey { port: port("eth1"), vlan: ten, address: Ipv4Addr::new(10, 0, 0, 5).into() };
        assert_eq!(lowered.statics, [(key, mac)].into());
        config.guard.dhcp = false;
        assert!(of_vlan(&config, ten).is_off(), "named VLANs alone turn nothing on");
        config.guard.nd_vlans = [ten].into_iter().collect();
        config.guard.neighbors.insert((ten, six), binding);
        config.interfaces.get_mut(&eth2).expect("eth2").switchport.stages.guard.nd_trust = true;
        let state = compile(&config, &facts("eth1, eth2, eth3, vlan10, ly10"), &ports, &identity());
        let lowered = lower_nd(&config, &state, &ports, &identity());
        assert_eq!(lowered.vlans, [(ten, want)].into());
        let trusted = lowered.ports.iter().filter(|(_, of)| of.trusted).map(|(id, _)| *id);
        assert_eq!(trusted.collect::<PortSet>(), ["eth2", "ly10"].map(port).into_iter().collect());
        assert!(lowered.ports.values().all(|of| of.limit == 128 && !of.private));
        assert_eq!(lowered.statics, [((ten, six), Owner { port: port("eth1"), mac })].into());
    }
}
