//! The context of configuration handlers: [`Edit`].
//!
//! Invariant: a refused line leaves the configuration as it was. Handlers check everything first;
//! [`Edit::each_interface`] and [`Edit::each_vlan`] edit copies, and store them only when every edit has succeeded.

use crate::args::{Names, short};
use crate::mode::ConfigMode;
use crate::refusal::Refusal;
use lanyard_config::names::split_subinterface;
use lanyard_config::{Config, Interface, InterfaceName, Vlan};
use lanyard_types::VlanId;

/// The context of a configuration handler.
pub struct Edit<'a> {
    /// The candidate configuration.
    pub config: &'a mut Config,
    /// The mode in which the line was entered. A handler of a line that leads to a mode sets that mode.
    pub mode: &'a mut ConfigMode,
    /// Messages to the user about a line that is accepted.
    pub notices: Vec<String>,
    /// Tells whether a netdev exists; `None` for a startup-config, which may name netdevs that do not exist
    /// yet.
    pub exists: Option<&'a dyn Names>,
}

impl Edit<'_> {
    /// Edits every interface of the mode, or none.
    ///
    /// # Errors
    /// The first refusal of `edit`.
    pub fn each_interface(
        &mut self,
        mut edit: impl FnMut(&mut Interface, &InterfaceName) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let ConfigMode::Interface { names, .. } = &*self.mode else {
            return Err("this command needs an interface mode: enter interface first".into());
        };
        let mut edited = Vec::with_capacity(names.len());
        for name in names {
            let mut interface = self.config.interfaces.get(name).cloned().unwrap_or_default();
            edit(&mut interface, name)?;
            edited.push((name.clone(), interface));
        }
        for (name, interface) in edited {
            put(self.config, name, interface);
        }
        Ok(())
    }

    /// Edits every VLAN of the mode, or none.
    ///
    /// # Errors
    /// The first refusal of `edit`.
    pub fn each_vlan(
        &mut self,
        mut edit: impl FnMut(&mut Vlan, VlanId) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let ConfigMode::Vlan(set) = &*self.mode else {
            return Err("this command needs a VLAN mode: enter vlan first".into());
        };
        let mut edited = Vec::new();
        for vlan in set.iter() {
            let mut entry = self.config.vlans.get(&vlan).cloned().unwrap_or_default();
            edit(&mut entry, vlan)?;
            edited.push((vlan, entry));
        }
        self.config.vlans.extend(edited);
        Ok(())
    }
}

/// Stores an interface in the configuration; a netdev without any setting is removed from it.
pub fn put(config: &mut Config, name: InterfaceName, interface: Interface) {
    if matches!(name, InterfaceName::Netdev(_)) && interface == Interface::default() {
        config.interfaces.remove(&name);
    } else {
        config.interfaces.insert(name, interface);
    }
}

/// The interface names that an import accepts: the netdevs of its map, and the Catalyst's names that the map assigns to them.
pub struct MappedNames<'a>(pub &'a Config);

impl Names for MappedNames<'_> {
    fn is_netdev(&self, name: &str) -> bool {
        self.0.appliance.interface_names.contains_key(name)
    }
    fn netdev_of(&self, name: &str) -> Option<String> {
        self.0.appliance.netdev_of(name)
    }
    fn unmapped(&self, name: &str) -> Option<String> {
        let device = split_subinterface(name).map_or(name.into(), |(parent, _)| parent);
        let name = short(name);
        (!self.is_netdev(&device))
            .then(|| format!("no netdev takes the place of {name}: give --map {name}=NETDEV"))
    }
    fn netdevs(&self) -> Vec<String> {
        self.0.appliance.interface_names.keys().cloned().collect()
    }
}

/// The netdevs that are interfaces of a configuration.
pub struct ConfigNames<'a>(pub &'a Config);

impl Names for ConfigNames<'_> {
    fn is_netdev(&self, name: &str) -> bool {
        self.0.interfaces.contains_key(&InterfaceName::Netdev(name.to_owned()))
    }
    fn netdev_of(&self, name: &str) -> Option<String> {
        self.0.appliance.netdev_of(name)
    }
    fn netdevs(&self) -> Vec<String> {
        let netdev =
            |name: &InterfaceName| matches!(name, InterfaceName::Netdev(_)).then(|| name.to_string());
        self.0.interfaces.keys().filter_map(netdev).collect()
    }
}
