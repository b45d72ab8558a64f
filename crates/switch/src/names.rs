//! The names of netdevs that the switch creates, and the names under which interfaces of a configuration get port
//! numbers.
//!
//! A VLAN interface, a subinterface or a routed port-channel is a veth pair: the host end has the name of the interface, and
//! the name of the pipeline end begins with `ly`.

use lanyard_config::names::channel_of;
use lanyard_config::{Config, Interface, InterfaceName, Role};
use lanyard_lacp::Mode;
use lanyard_types::{ChannelId, VlanId};

/// The host end of `interface vlan N`.
#[must_use]
pub fn host_end(vlan: VlanId) -> String {
    format!("vlan{vlan}")
}

/// The pipeline end of `interface vlan N`.
#[must_use]
pub fn pipeline_end(vlan: VlanId) -> String {
    format!("ly{vlan}")
}

/// The names under which the ports of `config` are numbered: switch ports in natural order, then VLAN interfaces, then
/// routed ports and subinterfaces, then the netdevs of ERSPAN sessions.
pub fn port_names(config: &Config) -> impl Iterator<Item = String> + '_ {
    let erspan = config.erspan_tunnels().map(|(session, _)| erspan_netdev(session));
    switched_names(config).chain(routed_names(config)).chain(erspan)
}

/// The netdev to which the plane sends the copies of an ERSPAN session: a TAP that the daemon reads.
#[must_use]
pub fn erspan_netdev(session: u16) -> String {
    format!("lyerspan{session}")
}

fn switched_names(config: &Config) -> impl Iterator<Item = String> + '_ {
    config.interfaces.iter().filter_map(|(name, interface)| match name {
        InterfaceName::Netdev(name) => (interface.role == Role::Switchport).then(|| name.clone()),
        InterfaceName::Vlan(vlan) => Some(pipeline_end(*vlan)),
    })
}

/// The switch ports of `config`, in natural order: port-channels, and netdevs that are no member of one. The destinations of
/// monitor sessions are left out: they are in no VLAN and no tree.
pub fn switchports(config: &Config) -> impl Iterator<Item = (&str, &Interface)> {
    let switched = config.interfaces.iter().filter(|(name, _)| !config.is_monitor_destination(name));
    switched.filter_map(|(name, interface)| match name {
        InterfaceName::Netdev(name)
            if interface.role == Role::Switchport && interface.aggregation.group.is_none() =>
        {
            Some((name.as_str(), interface))
        }
        _ => None,
    })
}

/// The members of port-channels, in natural order, with the number of the port-channel and the mode.
pub fn members(config: &Config) -> impl Iterator<Item = (&str, ChannelId, Mode, &Interface)> {
    config.interfaces.iter().filter_map(|(name, interface)| match (name, interface.role) {
        (InterfaceName::Netdev(name), Role::Switchport | Role::Routed) => {
            let (channel, mode) = interface.aggregation.group?;
            Some((name.as_str(), channel, mode, interface))
        }
        _ => None,
    })
}

/// The netdevs that belong to the switch, bridging or routed, in the order of their names.
pub fn ports(config: &Config) -> impl Iterator<Item = &str> {
    config.interfaces.iter().filter_map(|(name, interface)| match name {
        InterfaceName::Netdev(netdev)
            if matches!(interface.role, Role::Switchport | Role::Routed) && name.channel().is_none() =>
        {
            Some(netdev.as_str())
        }
        _ => None,
    })
}

/// The subinterface (`eth1.100`) whose pipeline end is called `port` (`lyeth1.100`).
#[must_use]
pub fn subinterface(port: &str) -> &str {
    port.strip_prefix("ly").unwrap_or(port)
}

/// The pipeline end of the pair whose host end is called `name`: `ly10` for `vlan10`, `lyeth1.100` for `eth1.100`.
#[must_use]
pub fn pipeline_end_of(name: &str) -> String {
    if let Some(channel) = channel_of(name) {
        return format!("lypo{channel}");
    }
    let vlan = name.strip_prefix("vlan").and_then(|n| n.parse().ok().filter(|v: &VlanId| v.to_string() == n));
    vlan.map_or_else(|| format!("ly{name}"), pipeline_end)
}

/// The interfaces of `config` for which the switch creates a pair: VLAN interfaces, subinterfaces and routed port-channels.
pub fn made_interfaces(config: &Config) -> impl Iterator<Item = (&InterfaceName, &Interface)> {
    config.interfaces.iter().filter(|(name, interface)| {
        matches!(name, InterfaceName::Vlan(_))
            || matches!(interface.role, Role::Subinterface(_))
            || interface.role == Role::Routed && name.channel().is_some()
    })
}

/// The VLAN interfaces of `config`, ascending.
pub fn vlan_interfaces(config: &Config) -> impl Iterator<Item = (VlanId, &Interface)> {
    config.interfaces.iter().filter_map(|(name, interface)| match name {
        InterfaceName::Vlan(vlan) => Some((*vlan, interface)),
        InterfaceName::Netdev(_) => None,
    })
}

/// The pipeline end of a subinterface's pair.
#[must_use]
pub fn subinterface_end(name: &str) -> String {
    format!("ly{name}")
}

/// The names under which routed ports, subinterfaces and routed port-channels are numbered. A routed port-channel has two ports.
fn routed_names(config: &Config) -> impl Iterator<Item = String> + '_ {
    let names = config.interfaces.iter().filter_map(|(name, interface)| match (name, interface.role) {
        (InterfaceName::Netdev(name), Role::Routed) => Some(name.clone()),
        (InterfaceName::Netdev(name), Role::Subinterface(_)) => Some(subinterface_end(name)),
        _ => None,
    });
    let ends = config
        .routed_channels()
        .map(|(channel, _, _)| pipeline_end_of(&InterfaceName::of_channel(channel).to_string()));
    names.chain(ends)
}

/// The mark on the netdevs that an instance creates.
#[must_use]
pub fn alias(instance: &str) -> String {
    format!("lanyard:{instance}")
}

/// The host end of the pair that has `name` as one of its ends.
#[must_use]
pub fn host_end_of(name: &str) -> String {
    let channel = name.strip_prefix("lypo").and_then(|number| channel_of(&format!("port-channel{number}")));
    if let Some(channel) = channel {
        return InterfaceName::of_channel(channel).to_string();
    }
    match (name.strip_prefix("ly"), vlan_of(name)) {
        (Some(_), Some(vlan)) => host_end(vlan),
        (Some(rest), None) => rest.to_owned(),
        (None, _) => name.to_owned(),
    }
}

/// The VLAN whose interface has `name` as one of its ends.
#[must_use]
pub fn vlan_of(name: &str) -> Option<VlanId> {
    let number = name.strip_prefix("vlan").or_else(|| name.strip_prefix("ly"))?;
    number.parse().ok().filter(|vlan: &VlanId| vlan.to_string() == number)
}
