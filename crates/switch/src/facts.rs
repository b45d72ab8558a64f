//! What is known about the netdevs of the namespace.
//!
//! Invariant: [`Facts`] is what the kernel last said, never what was asked of it.

use lanyard_types::MacAddr;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One netdev.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// The kernel's index.
    pub ifindex: u32,
    /// The netdev's name.
    pub name: String,
    /// Its MAC address, for Ethernet devices.
    pub mac: Option<MacAddr>,
    /// Layer-3 MTU in bytes.
    pub mtu: u32,
    /// Administratively up (`IFF_UP`).
    pub admin_up: bool,
    /// Link present.
    pub carrier: bool,
    /// True for the loopback device.
    pub loopback: bool,
    /// True for a device with Ethernet framing.
    pub ethernet: bool,
    /// Index of the bridge, bond, team or VRF it is enslaved to.
    pub master: Option<u32>,
    /// The user's promiscuous flag.
    pub promisc: bool,
    /// `IFLA_IFALIAS`: how Lanyard marks the netdevs it makes.
    pub alias: Option<String>,
    /// What the kernel's own stack does on it.
    pub host: HostStack,
}

/// What the kernel's own IP stack does on a netdev: three of its sysctls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStack {
    /// `net.ipv6.conf.IF.disable_ipv6`.
    pub ipv6_disabled: bool,
    /// `net.ipv4.conf.IF.arp_ignore`; 8 answers no ARP request at all.
    pub arp_ignore: u8,
    /// `net.ipv4.conf.IF.forwarding`.
    pub forwarding: bool,
}

impl HostStack {
    /// A port of the switch: the stack says nothing there by itself.
    pub const SILENT: Self = Self { ipv6_disabled: true, arp_ignore: 8, forwarding: false };
}

/// Every netdev, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6_forwarding: bool,
    by_name: BTreeMap<String, LinkFacts>,
    by_index: BTreeMap<u32, String>,
}

impl Facts {
    /// The netdev of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LinkFacts> {
        self.by_name.get(name)
    }
    /// The netdev with this index.
    #[must_use]
    pub fn by_index(&self, ifindex: u32) -> Option<&LinkFacts> {
        self.by_index.get(&ifindex).and_then(|name| self.by_name.get(name))
    }
    /// The netdev of this name if a port can use it now: it is there, and nothing else has enslaved it.
    #[must_use]
    pub fn usable(&self, name: &str) -> Option<&LinkFacts> {
        self.get(name).filter(|link| link.master.is_none() && !link.loopback)
    }
    /// Takes in what the kernel says about one netdev; a new name for a known index is a rename. Answers what
    /// was known about this index before.
    pub fn set(&mut self, link: LinkFacts) -> Option<LinkFacts> {
        let before = self.remove(link.ifindex);
        if let Some(ghost) = self.by_name.get(&link.name) {
            // The name was handed on and the event for its old owner is still to come.
            self.by_index.remove(&ghost.ifindex);
        }
        self.by_index.insert(link.ifindex, link.name.clone());
        self.by_name.insert(link.name.clone(), link);
        before
    }
    /// Forgets a netdev.
    pub fn remove(&mut self, ifindex: u32) -> Option<LinkFacts> {
        let name = self.by_index.remove(&ifindex)?;
        self.by_name.remove(&name)
    }
    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &LinkFacts> {
        self.by_name.values()
    }
}

impl FromIterator<LinkFacts> for Facts {
    fn from_iter<T: IntoIterator<Item = LinkFacts>>(links: T) -> Self {
        let mut facts = Self::default();
        for link in links {
            facts.set(link);
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(ifindex: u32, name: &str) -> LinkFacts {
        LinkFacts { ifindex, name: name.into(), ..LinkFacts::default() }
    }

    #[test]
    fn renames_and_returns() {
        let mut facts: Facts = [link(1, "a"), link(2, "b")].into_iter().collect();
        let name_of = |facts: &Facts, ifindex| facts.by_index(ifindex).map(|link| link.name.clone());
        facts.set(link(1, "c"));
        assert_eq!((facts.get("a"), name_of(&facts, 1)), (None, Some("c".into())));
        // `b` is taken by a new netdev before the old one's removal is heard of.
        facts.set(link(3, "b"));
        assert!(facts.remove(2).is_none());
        assert_eq!(name_of(&facts, 3), Some("b".into()));
        assert_eq!(facts.iter().count(), 2);
    }
}
