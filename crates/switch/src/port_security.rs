//! Port security: the secure addresses of ports, and what they mean for the plane.
//!
//! The plane learns addresses at a secure port up to a limit and drops frames from others. The switch replaces a learned
//! address by an entry of its own, which neither ages nor moves, and lowers the limit. Configured and sticky addresses are
//! in the configuration; the others are here, and must outlive the daemon.
//!
//! Invariants: a port has at most `maximum` secure addresses, and the plane may learn exactly as many as are missing. Times
//! are milliseconds since the machine was started, so that they mean the same to the next daemon.

use crate::names::switchports;
use crate::ports::PortIds;
use crate::refused::Refused;
use lanyard_config::{Config, Interface, InterfaceName, SecureKind, Switchport};
use lanyard_pipeline::state::{FdbTarget, PlaneState};
use lanyard_types::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The secure addresses that were learned and are not sticky, with the time at which they were learned, by the names of
/// their interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecureAddresses {
    ports: BTreeMap<String, Vec<Learned>>,
}

/// A secure address that was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// The VLAN.
    pub vlan: VlanId,
    /// The address.
    pub mac: MacAddr,
    /// When it was learned.
    pub since_ms: u64,
}

/// The VLAN of a configured address: `vlan` if the configuration names one, otherwise the port's VLAN of untagged frames.
#[must_use]
pub fn vlan_of(port: &Switchport, vlan: Option<VlanId>) -> VlanId {
    vlan.unwrap_or(port.untagged_vlan())
}

/// The configured and sticky addresses of a port.
pub fn configured(port: &Switchport) -> impl Iterator<Item = (VlanId, MacAddr, SecureKind)> + '_ {
    port.security.addresses.iter().map(|((mac, vlan), kind)| (vlan_of(port, *vlan), *mac, *kind))
}

/// The switch ports with port security.
fn secure(config: &Config) -> impl Iterator<Item = (&str, &Interface)> {
    switchports(config).filter(|(_, interface)| interface.switchport.stages.secure)
}

impl SecureAddresses {
    /// The learned addresses of a port, oldest first.
    #[must_use]
    pub fn of(&self, name: &str) -> &[Learned] {
        self.ports.get(name).map_or(&[], Vec::as_slice)
    }
    /// Adds an address that the plane has learned. Returns false if the port has it, or as many as it may have.
    pub fn insert(&mut self, config: &Config, name: &str, learned: Learned) -> bool {
        let key = InterfaceName::Netdev(name.to_owned());
        let Some(interface) = config.interfaces.get(&key).filter(|it| it.switchport.stages.secure) else {
            return false;
        };
        let port = &interface.switchport;
        let known = |vlan: VlanId, mac: MacAddr| (vlan, mac) == (learned.vlan, learned.mac);
        let held = self.of(name);
        let total = held.len() + port.security.addresses.len();
        if total >= port.security.maximum as usize
            || held.iter().any(|held| known(held.vlan, held.mac))
            || configured(port).any(|(vlan, mac, _)| known(vlan, mac))
        {
            return false;
        }
        self.ports.entry(name.to_owned()).or_default().push(learned);
        true
    }
    /// Removes the addresses that `remove` chooses; true if there were any.
    pub fn remove(&mut self, mut remove: impl FnMut(&str, &Learned) -> bool) -> bool {
        let mut any = false;
        for (name, list) in &mut self.ports {
            let before = list.len();
            list.retain(|learned| !remove(name, learned));
            any |= list.len() != before;
        }
        self.ports.retain(|_, list| !list.is_empty());
        any
    }
    /// Removes the addresses that a configuration leaves no place for: of ports without port security, those in VLANs that
    /// the port does not carry, those that are configured now, and the newest above the maximum.
    pub fn configure(&mut self, config: &Config) {
        let ports: BTreeMap<&str, &Switchport> =
            secure(config).map(|(name, interface)| (name, &interface.switchport)).collect();
        self.ports.retain(|name, _| ports.contains_key(name.as_str()));
        for (name, list) in &mut self.ports {
            let Some(port) = ports.get(name.as_str()) else { continue };
            let fixed: BTreeSet<_> = configured(port).map(|(vlan, mac, _)| (vlan, mac)).collect();
            list.retain(|learned| {
                port.carries(learned.vlan) && !fixed.contains(&(learned.vlan, learned.mac))
            });
            list.truncate((port.security.maximum as usize).saturating_sub(fixed.len()));
        }
        self.ports.retain(|_, list| !list.is_empty());
    }
    /// When the next address expires; `None` if none ages.
    #[must_use]
    pub fn next_ms(&self, config: &Config) -> Option<u64> {
        let due = |(name, interface): (&str, &Interface)| {
            let minutes = u64::from(interface.switchport.security.aging_min);
            let oldest = self.of(name).iter().map(|learned| learned.since_ms).min()?;
            (minutes > 0).then(|| oldest + minutes * 60_000)
        };
        secure(config).filter_map(due).min()
    }

    /// Gives the plane the secure addresses, and lets it learn as many as are missing up to the port's maximum. A static
    /// address of `mac address-table static` takes precedence.
    pub(crate) fn overlay(&self, config: &Config, ids: &PortIds, state: &mut PlaneState) {
        for (name, interface) in secure(config) {
            let Some(id) = ids.get(name).filter(|id| state.ports.contains_key(id)) else { continue };
            let port = &interface.switchport;
            let fixed = configured(port).map(|(vlan, mac, kind)| match kind {
                SecureKind::Static => (vlan, mac, FdbTarget::Static(id)),
                SecureKind::Sticky => (vlan, mac, FdbTarget::Sticky(id)),
            });
            let learned = self.of(name).iter().map(|it| (it.vlan, it.mac, FdbTarget::Sticky(id)));
            let mut count = 0;
            for (vlan, mac, target) in fixed.chain(learned) {
                count += 1;
                if state.vlans.contains_key(&vlan) {
                    state.fdb.entry((vlan, mac)).or_insert(target);
                }
            }
            if let Some(to) = state.ports.get_mut(&id) {
                let missing = port.security.maximum.saturating_sub(count);
                to.fdb_limit = Some(to.fdb_limit.map_or(missing, |limit| limit.min(missing)));
            }
        }
    }
}

/// Checks the configured addresses of `next`.
///
/// # Errors
/// When a port has more than its maximum, or two ports have the same address.
pub(crate) fn check(next: &Config) -> Result<(), Refused> {
    let mut owners: BTreeMap<(VlanId, MacAddr), &str> = BTreeMap::new();
    for (name, interface) in secure(next) {
        let port = &interface.switchport;
        let (count, maximum) = (port.security.addresses.len(), port.security.maximum);
        if count > maximum as usize {
            return Err(Refused::SecureMaximum { interface: name.to_owned(), count, maximum });
        }
        for (vlan, mac, _) in configured(port) {
            if let Some(other) = owners.insert((vlan, mac), name) {
                let (interface, other) = (name.to_owned(), other.to_owned());
                return Err(Refused::SecureTwice { mac, vlan, interface, other });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::testing::{config as parse, facts, identity};

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    fn learned(n: u8, since_ms: u64) -> Learned {
        Learned { vlan: VlanId::DEFAULT, mac: mac(n), since_ms }
    }

    /// Two access ports with port security, for up to three addresses; eth1 has a static one, number 9.
    fn config() -> Config {
        let mut config = parse("vlan 10\neth1: access 1\neth2: access 1");
        for interface in config.interfaces.values_mut() {
            interface.switchport.stages.secure = true;
            interface.switchport.security.maximum = 3;
        }
        port(&mut config, "eth1").security.addresses.insert((mac(9), None), SecureKind::Static);
        config
    }

    fn port<'a>(config: &'a mut Config, name: &str) -> &'a mut Switchport {
        &mut config.interfaces.get_mut(&InterfaceName::Netdev(name.into())).expect("a port").switchport
    }

    fn held(addresses: &SecureAddresses, name: &str) -> Vec<u8> {
        addresses.of(name).iter().map(|learned| learned.mac.0[5]).collect()
    }

    #[test]
    fn a_port_takes_up_to_its_maximum() {
        let config = config();
        let mut addresses = SecureAddresses::default();
        let mut add = |name: &str, n: u8| addresses.insert(&config, name, learned(n, 0));
        assert!(!add("eth1", 9), "it is configured");
        assert!(add("eth1", 1) && !add("eth1", 1), "once");
        assert!(add("eth1", 2) && !add("eth1", 3), "three with the configured one");
        assert!(add("eth2", 3) && !add("eth7", 4), "no port");
        assert_eq!((held(&addresses, "eth1"), held(&addresses, "eth2")), (vec![1, 2], vec![3]));
    }

    #[test]
    fn the_plane_has_the_addresses_and_learns_those_that_are_missing() {
        let mut config = config();
        let mut addresses = SecureAddresses::default();
        addresses.insert(&config, "eth1", learned(1, 0));
        let ten = VlanId::new(10).expect("a VLAN");
        port(&mut config, "eth2").security.addresses.insert((mac(8), Some(ten)), SecureKind::Sticky);
        port(&mut config, "eth2").fdb_limit = Some(1);
        config.vlans.remove(&ten);
        let ids = PortIds::default().assign(port_names(&config)).expect("few ports");
        let mut state = compile(&config, &facts("eth1, eth2"), &ids, &identity());
        addresses.overlay(&config, &ids, &mut state);
        let eth1 = ids.get("eth1").expect("a port");
        let want: BTreeMap<_, _> = [
            ((VlanId::DEFAULT, mac(1)), FdbTarget::Sticky(eth1)),
            ((VlanId::DEFAULT, mac(9)), FdbTarget::Static(eth1)),
        ]
        .into();
        assert_eq!(state.fdb, want, "VLAN 10 does not exist");
        let limits: Vec<_> = state.ports.values().map(|port| (port.stages.secure, port.fdb_limit)).collect();
        assert_eq!(limits, [(true, Some(1)), (true, Some(1))], "the lower of two limits");
    }

    #[test]
    fn secure_addresses_the_configuration_no_longer_allows_are_removed() {
        let mut config = config();
        let mut addresses = SecureAddresses::default();
        for n in 1..=2 {
            addresses.insert(&config, "eth1", learned(n, u64::from(n)));
            addresses.insert(&config, "eth2", learned(n + 2, 0));
        }
        addresses.configure(&config);
        assert_eq!((held(&addresses, "eth1"), held(&addresses, "eth2")), (vec![1, 2], vec![3, 4]));
        port(&mut config, "eth1").security.maximum = 2;
        port(&mut config, "eth2").access_vlan = VlanId::new(10).expect("a VLAN");
        addresses.configure(&config);
        assert_eq!(
            (held(&addresses, "eth1"), held(&addresses, "eth2")),
            (vec![1], vec![]),
            "the newest goes"
        );
        port(&mut config, "eth1").stages.secure = false;
        addresses.configure(&config);
        assert_eq!(addresses, SecureAddresses::default());
    }

    #[test]
    fn learned_addresses_age_at_ports_with_a_time() {
        let mut config = config();
        let mut addresses = SecureAddresses::default();
        addresses.insert(&config, "eth1", learned(1, 1_000));
        addresses.insert(&config, "eth1", learned(2, 5_000));
        assert_eq!(addresses.next_ms(&config), None);
        port(&mut config, "eth1").security.aging_min = 2;
        assert_eq!(addresses.next_ms(&config), Some(121_000));
        assert!(addresses.remove(|name, learned| name == "eth1" && learned.since_ms + 120_000 <= 121_000));
        assert_eq!((held(&addresses, "eth1"), addresses.next_ms(&config)), (vec![2], Some(125_000)));
    }

    #[test]
    fn more_than_the_maximum_and_the_same_address_twice_are_refused() {
        let mut config = config();
        assert_eq!(check(&config), Ok(()));
        port(&mut config, "eth2").security.addresses.insert((mac(9), None), SecureKind::Sticky);
        let refused = check(&config).expect_err("eth1 has it").to_string();
        assert!(refused.contains("0200.0000.0009") && refused.contains("eth1"), "{refused}");
        port(&mut config, "eth2").access_vlan = VlanId::new(10).expect("a VLAN");
        assert_eq!(check(&config), Ok(()), "in another VLAN");
        for n in 10..13 {
            port(&mut config, "eth2").security.addresses.insert((mac(n), None), SecureKind::Static);
        }
        let refused = check(&config).expect_err("four").to_string();
        assert!(refused.starts_with("eth2 has 4 secure addresses, and its maximum is 3"), "{refused}");
    }
}
