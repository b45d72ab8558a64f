//! The facts: the known state of the netdevs in the switch's namespaces.
//!
//! Invariant: [`Facts`] is what the kernel last reported, never what was requested of it.

use lanyard_types::{ChannelId, MacAddr, PortId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
    /// `IFLA_IFALIAS`, by which Lanyard marks the netdevs that it creates.
    pub alias: Option<String>,
    /// How the kernel's own IP stack is set on it.
    pub host: HostStack,
    /// The VRF whose namespace it is in; `None` is the switch's own.
    pub vrf: Option<String>,
}

/// How a port agrees on speed and duplex with its link partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkMode {
    /// By autonegotiation (IEEE 802.3, clause 28).
    Autonegotiation,
    /// Not at all: both ends have to be set alike.
    Fixed {
        /// Mbit/s.
        speed_mbps: u32,
        /// False for half duplex.
        full_duplex: bool,
    },
}

/// How the kernel's own IP stack is set on a netdev: its sysctls, and an offload that the stack
/// itself switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStack {
    /// `net.ipv6.conf.IF.disable_ipv6`.
    pub ipv6_disabled: bool,
    /// `net.ipv4.conf.IF.arp_ignore`; 8 means that no ARP request is answered.
    pub arp_ignore: u8,
    /// `net.ipv4.conf.IF.arp_announce`; 2 means that ARP requests use the interface's own addresses
    /// only.
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
    /// The offload `rx-lro`: the NIC merges segments of a stream. The kernel switches it off when
    /// forwarding is enabled and does not switch it on again.
    pub lro: bool,
}

impl Default for HostStack {
    /// The kernel's defaults for a new netdev.
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
    /// The settings for a port of the switch: the IP stack sends nothing there by itself, and frames
    /// arrive as they were sent. Other settings keep their values.
    #[must_use]
    pub const fn silenced(self) -> Self {
        Self { ipv6_disabled: true, arp_ignore: 8, forwarding: false, lro: false, ..self }
    }
}

/// A boolean sysctl of a whole namespace that limits the sysctls of its interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Knob {
    /// `net.ipv6.conf.all.forwarding`.
    Ipv6Forwarding,
    /// `net.ipv4.conf.all.send_redirects`: while it is set, an interface cannot turn redirects off.
    Redirects,
    /// `net.ipv4.conf.all.bc_forwarding`.
    DirectedBroadcast,
}

impl Knob {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Ipv6Forwarding, Self::Redirects, Self::DirectedBroadcast];
}

/// A namespace that is named like a VRF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The mark on its loopback device: `lanyard:INSTANCE` if Lanyard created the namespace.
    pub mark: Option<String>,
    /// True if the switch itself runs in it.
    pub own: bool,
    /// Its sysctls.
    pub knobs: BTreeMap<Knob, bool>,
}

/// The observed state of the host: netdevs by name, sysctls, namespaces, link modes, and the port-channels in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6_forwarding: bool,
    /// The sysctls of the switch's own namespace, other than IPv6 forwarding.
    pub knobs: BTreeMap<Knob, bool>,
    /// The original values of sysctls of the switch's own namespace that other instances have
    /// changed.
    pub shared_knobs: BTreeMap<Knob, bool>,
    /// The existing namespaces among the VRFs of the configuration and of the record.
    pub namespaces: BTreeMap<String, Namespace>,
    /// The present link modes of the netdevs whose configuration sets one, by index.
    pub modes: BTreeMap<u32, LinkMode>,
    /// The port-channels that can send: enough of their members are in use.
    pub channels: BTreeSet<ChannelId>,
    /// The members of port-channels that are in use.
    pub bundled: BTreeSet<PortId>,
    /// The speeds in Mbit/s, by name, of the ports with a setting that is a percentage of the speed. Ports that report no speed
    /// are left out.
    pub speeds: BTreeMap<String, u32>,
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
    /// The netdev of this name, if the plane can use it as a port now: it exists, has no master,
    /// and is in the switch's own namespace.
    #[must_use]
    pub fn usable(&self, name: &str) -> Option<&LinkFacts> {
        self.free(name).filter(|link| link.vrf.is_none())
    }
    /// As [`Self::usable`], but in any namespace.
    #[must_use]
    pub fn free(&self, name: &str) -> Option<&LinkFacts> {
        self.get(name).filter(|link| link.master.is_none() && !link.loopback)
    }
    /// True if frames can be received and sent at a switch port: at a netdev that is up with link, or by a port-channel with
    /// members in use.
    #[must_use]
    pub fn forwards(&self, name: &str) -> bool {
        match lanyard_config::names::channel_of(name) {
            Some(channel) => self.channels.contains(&channel),
            None => self.usable(name).is_some_and(LinkFacts::forwards),
        }
    }
    /// Stores what the kernel reports about a netdev. A new name for a known index is a rename.
    /// Returns what was known about this index before.
    pub fn set(&mut self, link: LinkFacts) -> Option<LinkFacts> {
        let before = self.remove_in(link.vrf.as_deref(), link.ifindex);
        if let Some(ghost) = self.by_name.get(&link.name) {
            // The name was reused, and the event about its previous owner has not arrived yet.
            self.by_index.remove(&(ghost.vrf.clone(), ghost.ifindex));
        }
        self.by_index.insert((link.vrf.clone(), link.ifindex), link.name.clone());
        self.by_name.insert(link.name.clone(), link);
        before
    }
    /// Removes a netdev of the switch's own namespace.
    pub fn remove(&mut self, ifindex: u32) -> Option<LinkFacts> {
        self.remove_in(None, ifindex)
    }
    /// Removes a netdev of a VRF's namespace.
    pub fn remove_in(&mut self, vrf: Option<&str>, ifindex: u32) -> Option<LinkFacts> {
        let name = self.by_index.remove(&(vrf.map(str::to_owned), ifindex))?;
        self.by_name.remove(&name)
    }
    /// The value of a sysctl of a namespace; `None` when it is not known.
    #[must_use]
    pub fn knob(&self, vrf: Option<&str>, knob: Knob) -> Option<bool> {
        match vrf {
            None if knob == Knob::Ipv6Forwarding => Some(self.ipv6_forwarding),
            None => self.knobs.get(&knob).copied(),
            Some(vrf) => self.namespaces.get(vrf)?.knobs.get(&knob).copied(),
        }
    }
    /// All netdevs, by name.
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
        // A new netdev gets the name `b` before the removal of the old one is reported.
        facts.set(link(3, "b"));
        assert!(facts.remove(2).is_none());
        assert_eq!(name_of(&facts, 3), Some("b".into()));
        assert_eq!(facts.iter().count(), 2);
    }
}
