//! The bindings of first-hop security: which MAC address belongs to an IP address at a port, in a VLAN. DHCP snooping, ND
//! inspection and the static bindings write them one at a time; they are no part of `PlaneState`, because hosts change them.
//!
//! Invariant: of each family there are at most [`MAX_BINDINGS`]; one more is refused, counted, and changes nothing.

use super::routes::{Occupancy, Refused};
use lanyard_types::{Binding, BindingKey, MAX_BINDINGS, MacAddr};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The table.
#[derive(Debug, Default)]
pub struct Bindings {
    entries: BTreeMap<BindingKey, MacAddr>,
    /// Of IPv4 and of IPv6.
    occupancy: [Occupancy; 2],
}

/// The names under which the tables of both families are listed.
pub const NAMES: [&str; 2] = ["bindings", "bindings_ipv6"];

/// The family of an address, as an index of [`NAMES`].
#[must_use]
pub const fn family(address: &IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

impl Bindings {
    /// Enters, replaces or (`None`) removes a binding.
    ///
    /// # Errors
    /// [`Refused::Full`] when a new binding has no room.
    pub fn set(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<(), Refused> {
        let family = family(&key.address);
        let occupancy = &mut self.occupancy[family];
        match mac {
            None => occupancy.used -= usize::from(self.entries.remove(&key).is_some()),
            Some(_) if occupancy.used >= MAX_BINDINGS && !self.entries.contains_key(&key) => {
                occupancy.refused += 1;
                return Err(Refused::Full { table: NAMES[family], size: MAX_BINDINGS });
            }
            Some(mac) => occupancy.used += usize::from(self.entries.insert(key, mac).is_none()),
        }
        occupancy.high_water = occupancy.high_water.max(occupancy.used);
        Ok(())
    }
    /// The MAC address that belongs to an address.
    #[must_use]
    pub fn get(&self, key: &BindingKey) -> Option<MacAddr> {
        self.entries.get(key).copied()
    }
    /// Every binding, in order.
    pub fn iter(&self) -> impl Iterator<Item = Binding> + '_ {
        self.entries.iter().map(|(key, mac)| (*key, *mac))
    }
    /// Of each family, by [`family`]: the number of bindings, the largest number so far, and those that were refused.
    #[must_use]
    pub fn occupancy(&self) -> [Occupancy; 2] {
        self.occupancy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_types::{PortId, VlanId};
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_full_table_refuses_new_bindings_and_replaces_old_ones() {
        let port = PortId::new(1).expect("a port");
        let key =
            |n: usize| BindingKey { port, vlan: VlanId::DEFAULT, address: Ipv4Addr::from(n as u32).into() };
        let six = |n: usize| BindingKey { address: Ipv6Addr::from(n as u128).into(), ..key(0) };
        let mac = |n: u8| Some(MacAddr([2, 0, 0, 0, 0, n]));
        let mut table = Bindings::default();
        (0..MAX_BINDINGS).for_each(|n| table.set(key(n), mac(1)).expect("room"));
        let full = Err(Refused::Full { table: "bindings", size: MAX_BINDINGS });
        assert_eq!(table.set(key(MAX_BINDINGS), mac(1)), full);
        table.set(key(3), mac(2)).expect("no new binding");
        assert_eq!(table.get(&key(3)), mac(2));
        table.set(key(4), None).expect("removed");
        table.set(key(MAX_BINDINGS), mac(3)).expect("room again");
        (0..MAX_BINDINGS).for_each(|n| table.set(six(n), mac(1)).expect("room of its own"));
        let full = Err(Refused::Full { table: "bindings_ipv6", size: MAX_BINDINGS });
        assert_eq!(table.set(six(MAX_BINDINGS), mac(1)), full);
        (0..MAX_BINDINGS).for_each(|n| table.set(six(n), None).expect("removed"));
        table.set(six(0), None).expect("there is none");
        let [counts, six] = table.occupancy();
        assert_eq!((six.used, six.high_water, six.refused), (0, MAX_BINDINGS, 1));
        assert_eq!((counts.used, counts.high_water, counts.refused), (MAX_BINDINGS, MAX_BINDINGS, 1));
        assert_eq!(table.iter().count(), MAX_BINDINGS);
    }
}
