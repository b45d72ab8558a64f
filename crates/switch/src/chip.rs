//! The effect of a configuration on a switch chip: its settings, and the ports that are in use.

use lanyard_config::{Config, Duplex, Interface, InterfaceName, Role};
use lanyard_plane::{ChipSettings, PortSettings};
use std::collections::BTreeSet;

/// The chip's settings. Settings of ports that equal the defaults are left out.
#[must_use]
pub fn settings(config: &Config) -> ChipSettings {
    let port = |(name, interface): (&InterfaceName, &Interface)| {
        let InterfaceName::Netdev(name) = name else { return None };
        let settings = PortSettings {
            breakout: interface.breakout,
            // Without a chip speed and duplex are the netdev's.
            speed_mbps: interface.speed_mbps.filter(|_| name.starts_with("swp")),
            half_duplex: interface.duplex == Duplex::Half && name.starts_with("swp"),
            fec: interface.fec,
        };
        (settings != PortSettings::default()).then(|| (name.clone(), settings))
    };
    ChipSettings { ports: config.interfaces.iter().filter_map(port).collect(), ..config.chip.clone() }
}

/// The netdevs that are ports of the switch, or carry subinterfaces.
#[must_use]
pub fn ports_in_use(config: &Config) -> BTreeSet<String> {
    let in_use = config.interfaces.iter().filter(|(_, interface)| interface.role != Role::Unset);
    in_use
        .filter(|(name, _)| matches!(name, InterfaceName::Netdev(_)))
        .map(|(name, _)| name.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_config::Breakout;

    #[test]
    fn settings_of_front_panel_ports_are_the_chips() {
        let mut config = Config::default();
        let mut set = |name: &str, interface: Interface| {
            config.interfaces.insert(InterfaceName::Netdev(name.into()), interface);
        };
        let breakout = Some(Breakout { parts: 4, speed_mbps: 25_000 });
        set("swp1", Interface { breakout, ..Interface::default() });
        set("swp3", Interface { speed_mbps: Some(40_000), role: Role::Switchport, ..Interface::default() });
        set("eth1", Interface { speed_mbps: Some(100), role: Role::Routed, ..Interface::default() });
        let found = settings(&config);
        assert_eq!(found.ports.keys().collect::<Vec<_>>(), ["swp1", "swp3"], "eth1's speed is its netdev's");
        assert_eq!((found.ports["swp1"].breakout, found.ports["swp3"].speed_mbps), (breakout, Some(40_000)));
        assert_eq!(ports_in_use(&config).into_iter().collect::<Vec<_>>(), ["eth1", "swp3"]);
        assert_eq!(settings(&Config::default()), ChipSettings::default());
    }
}
