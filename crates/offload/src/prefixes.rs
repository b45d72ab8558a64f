//! [`Prefixes`]: a table with the prefixes of all VRFs as its keys. A prefix, the next shorter one and the longer ones inside it
//! are each found by one walk down a tree of bits, whatever the number of entries.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_types::VrfId;
use prefix_trie::PrefixMap;
use std::collections::BTreeMap;

/// A route's key. Bits of the address behind the prefix are ignored.
pub type Prefix = (VrfId, IpNet);

/// See the module comment.
#[derive(Debug, Clone)]
pub struct Prefixes<T> {
    ipv4: BTreeMap<VrfId, PrefixMap<Ipv4Net, T>>,
    ipv6: BTreeMap<VrfId, PrefixMap<Ipv6Net, T>>,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self { ipv4: BTreeMap::new(), ipv6: BTreeMap::new() }
    }
}

impl<T> Prefixes<T> {
    /// The value of exactly this prefix.
    #[must_use]
    pub fn get(&self, (vrf, net): Prefix) -> Option<&T> {
        match net {
            IpNet::V4(net) => self.ipv4.get(&vrf)?.get(&net),
            IpNet::V6(net) => self.ipv6.get(&vrf)?.get(&net),
        }
    }
    /// As [`Prefixes::get`], to change it.
    pub fn get_mut(&mut self, (vrf, net): Prefix) -> Option<&mut T> {
        match net {
            IpNet::V4(net) => self.ipv4.get_mut(&vrf)?.get_mut(&net),
            IpNet::V6(net) => self.ipv6.get_mut(&vrf)?.get_mut(&net),
        }
    }
    /// True if the prefix is in the table.
    #[must_use]
    pub fn contains(&self, prefix: Prefix) -> bool {
        self.get(prefix).is_some()
    }
    /// Adds a prefix or replaces its value; returns the previous value.
    pub fn insert(&mut self, (vrf, net): Prefix, value: T) -> Option<T> {
        match net {
            IpNet::V4(net) => self.ipv4.entry(vrf).or_default().insert(net, value),
            IpNet::V6(net) => self.ipv6.entry(vrf).or_default().insert(net, value),
        }
    }
    /// Removes a prefix; returns its value.
    pub fn remove(&mut self, (vrf, net): Prefix) -> Option<T> {
        match net {
            IpNet::V4(net) => self.ipv4.get_mut(&vrf)?.remove(&net),
            IpNet::V6(net) => self.ipv6.get_mut(&vrf)?.remove(&net),
        }
    }
    /// The longest prefix in the table that contains this one and is shorter.
    #[must_use]
    pub fn shorter(&self, (vrf, net): Prefix) -> Option<Prefix> {
        let found = match net {
            IpNet::V4(net) => IpNet::V4(self.ipv4.get(&vrf)?.get_lpm_prefix(&net.supernet()?)?),
            IpNet::V6(net) => IpNet::V6(self.ipv6.get(&vrf)?.get_lpm_prefix(&net.supernet()?)?),
        };
        Some((vrf, found))
    }
    /// The prefixes in the table that are inside this one and longer.
    pub fn longer(&self, (vrf, net): Prefix) -> impl Iterator<Item = Prefix> + '_ {
        let (ipv4, ipv6) = match net {
            IpNet::V4(net) => (self.ipv4.get(&vrf).map(|table| table.children(&net)), None),
            IpNet::V6(net) => (None, self.ipv6.get(&vrf).map(|table| table.children(&net))),
        };
        let ipv4 = ipv4.into_iter().flatten().map(|(found, _)| IpNet::V4(found));
        let ipv6 = ipv6.into_iter().flatten().map(|(found, _)| IpNet::V6(found));
        let longer = move |found: &IpNet| found.prefix_len() > net.prefix_len();
        ipv4.chain(ipv6).filter(longer).map(move |found| (vrf, found))
    }
    /// All entries: those of IPv4 before those of IPv6, by VRF and address.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &T)> {
        let ipv4 = self
            .ipv4
            .iter()
            .flat_map(|(vrf, table)| table.iter().map(|(net, value)| ((*vrf, IpNet::V4(net)), value)));
        let ipv6 = self
            .ipv6
            .iter()
            .flat_map(|(vrf, table)| table.iter().map(|(net, value)| ((*vrf, IpNet::V6(net)), value)));
        ipv4.chain(ipv6)
    }
    /// The prefixes, in the order of [`Prefixes::iter`].
    pub fn keys(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.iter().map(|(prefix, _)| prefix)
    }
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        let ipv4: usize = self.ipv4.values().map(PrefixMap::len).sum();
        ipv4 + self.ipv6.values().map(PrefixMap::len).sum::<usize>()
    }
    /// True if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ipv4.values().all(PrefixMap::is_empty) && self.ipv6.values().all(PrefixMap::is_empty)
    }
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.ipv4.clear();
        self.ipv6.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(vrf: u8, text: &str) -> Prefix {
        (VrfId::new(vrf).expect("a VRF"), text.parse().expect("a prefix"))
    }

    #[test]
    fn shorter_and_longer_prefixes_are_those_of_the_same_vrf_and_family() {
        let mut table = Prefixes::default();
        let all =
            ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "::/0", "2001:db8::/32"];
        for (value, text) in all.iter().enumerate() {
            assert_eq!(table.insert(key(0, text), value), None);
        }
        table.insert(key(1, "10.1.0.0/17"), 99);
        let shorter = |text| table.shorter(key(0, text));
        assert_eq!(shorter("10.1.2.0/24"), Some(key(0, "10.1.0.0/16")));
        assert_eq!(shorter("10.1.2.3/32"), Some(key(0, "10.1.2.0/24")));
        assert_eq!(shorter("192.0.2.0/24"), Some(key(0, "0.0.0.0/0")));
        assert_eq!(shorter("0.0.0.0/0"), None);
        assert_eq!(shorter("2001:db8::/32"), Some(key(0, "::/0")));
        assert_eq!(table.shorter(key(1, "10.1.2.0/24")), Some(key(1, "10.1.0.0/17")));
        let longer: Vec<Prefix> = table.longer(key(0, "10.0.0.0/8")).collect();
        assert_eq!(longer, ["10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16"].map(|text| key(0, text)));
        assert_eq!(table.longer(key(0, "::/0")).collect::<Vec<_>>(), [key(0, "2001:db8::/32")]);
        assert_eq!((table.len(), table.remove(key(0, "10.0.0.0/8"))), (8, Some(1)));
        assert_eq!((table.len(), table.get(key(0, "10.0.0.0/8"))), (7, None));
        assert_eq!(table.shorter(key(0, "10.1.0.0/16")), Some(key(0, "0.0.0.0/0")));
        table.clear();
        assert!(table.is_empty() && table.keys().next().is_none());
    }
}
