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
    /// The VRF whose namespace it is in; `None` is the switch's own.
    pub vrf: Option<String>,
}

/// What the kernel's own IP stack does on a netdev: its sysctls, and an offload that the stack itself switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStack {
    /// `net.ipv6.conf.IF.disable_ipv6`.
    pub ipv6_disabled: bool,
    /// `net.ipv4.conf.IF.arp_ignore`; 8 answers no ARP request at all.
    pub arp_ignore: u8,
    /// `net.ipv4.conf.IF.arp_announce`; 2 asks in the name of the interface's own addresses only.
    pub arp_announce: u8,
    /// `net.ipv4.conf.IF.forwarding`.
    pub forwarding: bool,
    /// `net.ipv4.conf.IF.proxy_arp`.
    pub proxy_arp: bool,
    /// `net.ipv4.conf.IF.proxy_arp_pvlan`.
    pub local_proxy_arp: bool,
    /// `net.ipv4.conf.IF.bc_forwarding`.
    pub directed_broadcast: bool,
    /// `net.ipv4.conf.IF.send_redirects`.
    pub redirects: bool,
    /// `net.ipv4.conf.IF.accept_redirects`.
    pub accept_redirects: bool,
    /// `net.ipv4.conf.IF.rp_filter`: 0 off, 1 strict, 2 loose.
    pub rp_filter: u8,
    /// `net.ipv4.conf.IF.ignore_routes_with_linkdown` and the same of IPv6.
    pub ignore_linkdown: bool,
    /// `net.ipv4.neigh.IF.base_reachable_time_ms` in seconds.
    pub arp_timeout_s: u32,
    /// The offload `rx-lro`: the NIC merges segments of a stream. The kernel switches it off when it is told to forward, and does
    /// not switch it on again.
    pub lro: bool,
}

impl Default for HostStack {
    /// What the kernel gives a new netdev.
    fn default() -> Self {
        Self {
            ipv6_disabled: false,
            arp_ignore: 0,
            arp_announce: 0,
            forwarding: false,
            proxy_arp: false,
            local_proxy_arp: false,
            directed_broadcast: false,
            redirects: true,
            accept_redirects: true,
            rp_filter: 0,
            ignore_linkdown: false,
            arp_timeout_s: 30,
            lro: false,
        }
    }
}

impl HostStack {
    /// A port of the switch: the stack says nothing there by itself, and frames arrive as they were sent. The rest is as it was.
    #[must_use]
    pub const fn silenced(self) -> Self {
        Self { ipv6_disabled: true, arp_ignore: 8, forwarding: false, lro: false, ..self }
    }
}

/// A switch of a whole namespace: a sysctl that the interfaces' own can't do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Knob {
    /// `net.ipv6.conf.all.forwarding`.
    Ipv6Forwarding,
    /// `net.ipv4.conf.all.send_redirects`: while it is set an interface can't do without.
    Redirects,
    /// `net.ipv4.conf.all.bc_forwarding`.
    DirectedBroadcast,
}

impl Knob {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ipv6Forwarding, Self::Redirects, Self::DirectedBroadcast];
}

/// A namespace that has the name of a VRF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The mark on its loopback device: `lanyard:INSTANCE` where Lanyard has made it.
    pub mark: Option<String>,
    /// It is the one the switch itself lives in.
    pub own: bool,
    /// Its switches.
    pub knobs: BTreeMap<Knob, bool>,
}

/// Every netdev, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6_forwarding: bool,
    /// The switches of the switch's own namespace, IPv6 forwarding left out.
    pub knobs: BTreeMap<Knob, bool>,
    /// The namespaces there are, of those that are VRFs of the configuration or of the record.
    pub namespaces: BTreeMap<String, Namespace>,
    by_name: BTreeMap<String, LinkFacts>,
    by_index: BTreeMap<(Option<String>, u32), String>,
}

impl Facts {
    /// The netdev of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LinkFacts> {
        self.by_name.get(name)
    }
    /// The netdev with this index in the switch's own namespace.
    #[must_use]
    pub fn by_index(&self, ifindex: u32) -> Option<&LinkFacts> {
        self.by_index_in(None, ifindex)
    }
    /// The netdev with this index in a VRF's namespace.
    #[must_use]
    pub fn by_index_in(&self, vrf: Option<&str>, ifindex: u32) -> Option<&LinkFacts> {
        self.by_index.get(&(vrf.map(str::to_owned), ifindex)).and_then(|name| self.by_name.get(name))
    }
    /// The netdev of this name if the plane can use it as a port now: it is there, nothing else has enslaved it, and it is
    /// in the switch's own namespace.
    #[must_use]
    pub fn usable(&self, name: &str) -> Option<&LinkFacts> {
        self.free(name).filter(|link| link.vrf.is_none())
    }
    /// As [`Self::usable`], in whichever namespace.
    #[must_use]
    pub fn free(&self, name: &str) -> Option<&LinkFacts> {
        self.get(name).filter(|link| link.master.is_none() && !link.loopback)
    }
    /// Takes in what the kernel says about one netdev; a new name for a known index is a rename. Answers what
    /// was known about this index before.
    pub fn set(&mut self, link: LinkFacts) -> Option<LinkFacts> {
        let before = self.remove_in(link.vrf.as_deref(), link.ifindex);
        if let Some(ghost) = self.by_name.get(&link.name) {
            // The name was handed on and the event for its old owner is still to come.
            self.by_index.remove(&(ghost.vrf.clone(), ghost.ifindex));
        }
        self.by_index.insert((link.vrf.clone(), link.ifindex), link.name.clone());
        self.by_name.insert(link.name.clone(), link);
        before
    }
    /// Forgets a netdev of the switch's own namespace.
    pub fn remove(&mut self, ifindex: u32) -> Option<LinkFacts> {
        self.remove_in(None, ifindex)
    }
    /// Forgets a netdev of a VRF's namespace.
    pub fn remove_in(&mut self, vrf: Option<&str>, ifindex: u32) -> Option<LinkFacts> {
        let name = self.by_index.remove(&(vrf.map(str::to_owned), ifindex))?;
        self.by_name.remove(&name)
    }
    /// A switch of a namespace; `None` when it is not known.
    #[must_use]
    pub fn knob(&self, vrf: Option<&str>, knob: Knob) -> Option<bool> {
        match vrf {
            None if knob == Knob::Ipv6Forwarding => Some(self.ipv6_forwarding),
            None => self.knobs.get(&knob).copied(),
            Some(vrf) => self.namespaces.get(vrf)?.knobs.get(&knob).copied(),
        }
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
