//! The bindings of first-hop security: which MAC address belongs to an IPv4 address at a port, in a VLAN. DHCP snooping and
//! `ip source binding` write them one at a time; they are no part of `PlaneState`, because hosts change them.
//!
//! Invariant: there are at most [`MAX_BINDINGS`]; one more is refused, counted, and changes nothing.

use super::routes::{Occupancy, Refused};
use lanyard_types::{Binding, BindingKey, MAX_BINDINGS, MacAddr};
use std::collections::BTreeMap;

/// The table.
#[derive(Debug, Default)]
pub struct Bindings {
    entries: BTreeMap<BindingKey, MacAddr>,
    occupancy: Occupancy,
}

impl Bindings {
    /// Enters, replaces or (`None`) removes a binding.
    ///
    /// # Errors
    /// [`Refused::Full`] when a new binding has no room.
    pub fn set(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<(), Refused> {
        match mac {
            None => _ = self.entries.remove(&key),
            Some(_) if self.entries.len() >= MAX_BINDINGS && !self.entries.contains_key(&key) => {
                self.occupancy.refused += 1;
                return Err(Refused::Full { table: "bindings", size: MAX_BINDINGS });
            }
            Some(mac) => _ = self.entries.insert(key, mac),
        }
        self.occupancy.used = self.entries.len();
        self.occupancy.high_water = self.occupancy.high_water.max(self.occupancy.used);
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
    /// The number of bindings, the largest number so far, and those that were refused.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        self.occupancy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_types::{PortId, VlanId};

    #[test]
    fn a_full_table_refuses_new_bindings_and_replaces_old_ones() {
        let port = PortId::new(1).expect("a port");
        let key = |n: usize| BindingKey { port, vlan: VlanId::DEFAULT, address: (n as u32).into() };
        let mac = |n: u8| Some(MacAddr([2, 0, 0, 0, 0, n]));
        let mut table = Bindings::default();
        (0..MAX_BINDINGS).for_each(|n| table.set(key(n), mac(1)).expect("room"));
        let full = Err(Refused::Full { table: "bindings", size: MAX_BINDINGS });
        assert_eq!(table.set(key(MAX_BINDINGS), mac(1)), full);
        table.set(key(3), mac(2)).expect("no new binding");
        assert_eq!(table.get(&key(3)), mac(2));
        table.set(key(4), None).expect("removed");
        table.set(key(MAX_BINDINGS), mac(3)).expect("room again");
        let counts = table.occupancy();
        assert_eq!((counts.used, counts.high_water, counts.refused), (MAX_BINDINGS, MAX_BINDINGS, 1));
        assert_eq!(table.iter().count(), MAX_BINDINGS);
    }
}
