//! The kernel's network configuration over netlink and /proc/sys: [`Linux`], the daemon's [`Kernel`].
//!
//! Invariant: the sysctls stored here, of netdevs that the configuration names, are those that were last read or
//! written; everything else is read again at each call.

use crate::faults;
use crate::kernel::{FilterSource, Kernel, KernelError, Result, RouteSource};
use crate::os;
use crate::queues;
use crate::spaces::{self, Spaces};
use lanyard_netdev::{
    Address, AddressFlags, Duplex, Event, FilterWatch, Follower, Link, LinkChange, Neighbour, Netdev, Route,
    Settings, Veth, sysctl,
};
use lanyard_switch::compile::pipeline_end_of;
use lanyard_switch::facts::{HostStack, LinkMode};
use lanyard_switch::links::{LinkSettings, Netdevs, Pair};
use lanyard_switch::{Action, Facts, LinkFacts};
use lanyard_types::{Family, MacAddr, QueueStats, QueueTree, RootQueue};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

/// The kernel's name for large receive offload.
const LRO: &str = "rx-lro";

/// The kernel, in the network namespace of the opening thread and in those of VRFs.
#[derive(Debug)]
pub struct Linux {
    netdev: Netdev,
    /// The namespaces of VRFs, and the switch's netdevs that are in them.
    spaces: Spaces,
    /// True if VLAN interfaces and subinterfaces compute checksums and segment packets before they send, because
    /// the receiver, a chip, does neither.
    whole_frames: bool,
    /// Sysctls by VRF and index, of netdevs that the configuration names.
    hosts: BTreeMap<(Option<String>, u32), HostStack>,
}

impl Linux {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the kernel refuses a netlink socket.
    pub fn open() -> io::Result<Self> {
        let (netdev, spaces) = (Netdev::open()?, Spaces::open()?);
        Ok(Self { netdev, spaces, whole_frames: false, hosts: BTreeMap::new() })
    }
    /// Sets whether new VLAN interfaces and subinterfaces compute checksums and segment packets before they send,
    /// because a chip does neither.
    pub fn whole_frames(&mut self, whole: bool) {
        self.whole_frames = whole;
    }
    /// Takes over the record of an earlier run: the VRF of each netdev of the switch, and the
    /// namespaces it created.
    pub fn adopt<'a>(
        &mut self,
        homes: &BTreeMap<String, String>,
        namespaces: impl Iterator<Item = &'a String>,
    ) {
        self.spaces.adopt(homes);
        for vrf in namespaces {
            self.spaces.find(vrf);
        }
    }
    /// The netlink connection of a namespace.
    fn netdev_of(&self, vrf: Option<&str>) -> Result<&Netdev> {
        faults::stall("netlink");
        match vrf {
            None => Ok(&self.netdev),
            Some(vrf) => self.spaces.netdev(vrf).ok_or_else(|| KernelError::NoNamespace(vrf.to_owned())),
        }
    }

    fn index(&self, name: &str) -> Result<u32> {
        let absent = || KernelError::NoInterface(name.to_owned());
        match self.spaces.home(name) {
            None => nix::net::if_::if_nametoindex(name).map_err(|_| absent()),
            Some(vrf) => self.netdev_of(Some(vrf))?.link(name).map(|link| link.ifindex).map_err(|_| absent()),
        }
    }
    /// The netlink connection of the namespace that a netdev of the switch is in.
    fn netdev_with(&self, name: &str) -> Result<&Netdev> {
        self.netdev_of(self.spaces.home(name))
    }

    fn create_pairs(&mut self, pairs: &[&Pair]) -> Vec<Result<()>> {
        let peers: Vec<String> = pairs.iter().map(|pair| pipeline_end_of(&pair.name)).collect();
        let mut veths = Vec::with_capacity(pairs.len());
        for (pair, peer) in pairs.iter().zip(&peers) {
            veths.push(Veth {
                name: &pair.name,
                peer,
                mac: pair.mac,
                mtu: Some(pair.mtu),
                ..Veth::default()
            });
        }
        let mut results = Vec::with_capacity(pairs.len());
        for (made, (pair, peer)) in self.netdev.create_veths(&veths).into_iter().zip(pairs.iter().zip(&peers))
        {
            results.push(made.map_err(KernelError::from).and_then(|()| {
                self.mark_pair(&pair.name, peer, &pair.alias).inspect_err(|_| {
                    // Delete a pair whose creation failed half way.
                    let _ = self.index(&pair.name).map(|ifindex| self.netdev.delete(ifindex));
                })
            }));
        }
        results
    }

    fn mark_pair(&self, name: &str, peer: &str, alias: &str) -> Result<()> {
        // Forwarding is off on a new pair, whatever the namespace's default is.
        let _ = os::ordinary(|| sysctl::set_ipv4_conf(name, "forwarding", "0"));
        if self.whole_frames {
            let off = ["tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation"];
            self.netdev.set_features(name, &off.map(|feature| (feature, false)))?;
        }
        for end in [name, peer] {
            self.netdev.set_alias(self.index(end)?, alias)?;
        }
        Ok(())
    }

    /// Deletes both ends of a pair. The pipeline end is in the switch's own namespace, wherever the host end is.
    fn delete_pair(&mut self, pair: &Pair) -> Result<()> {
        let ends = [pipeline_end_of(&pair.name), pair.name.clone()];
        self.spaces.set_home(&pair.name, None);
        let found = ends.iter().find_map(|end| nix::net::if_::if_nametoindex(end.as_str()).ok());
        found.map_or(Ok(()), |ifindex| gone_is_fine(self.netdev.delete(ifindex)))
    }

    /// Changes settings of many netdevs: sysctls first, so that the kernel's network stack sends nothing before the
    /// netdev comes up, and then everything else in few system calls.
    fn change_links(&mut self, links: &[(&String, &LinkSettings, &LinkSettings)]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = Vec::with_capacity(links.len());
        let mut places: BTreeMap<Option<String>, (Vec<LinkChange>, Vec<usize>)> = BTreeMap::new();
        for (at, (name, from, to)) in links.iter().enumerate() {
            let prepared = self.index(name).and_then(|ifindex| {
                self.write_host(ifindex, name, from.host, to.host)?;
                Ok(ifindex)
            });
            match prepared {
                Ok(ifindex) => {
                    results.push(Ok(()));
                    let (changes, owners) =
                        places.entry(self.spaces.home(name).map(str::to_owned)).or_default();
                    changes.extend(change(ifindex, from, to).inspect(|_| owners.push(at)));
                }
                Err(error) => results.push(Err(error)),
            }
        }
        for (vrf, (changes, owners)) in places {
            let answers: Vec<Result<()>> = match self.netdev_of(vrf.as_deref()) {
                Ok(netdev) => netdev
                    .change(&changes)
                    .into_iter()
                    .map(|result| result.map_err(KernelError::from))
                    .collect(),
                Err(_) => {
                    let absent = || KernelError::NoNamespace(vrf.clone().unwrap_or_default());
                    changes.iter().map(|_| Err(absent())).collect()
                }
            };
            for (at, result) in owners.into_iter().zip(answers) {
                if let Err(error) = result {
                    let (name, from, to) = links[at];
                    let _ = self.index(name).map(|index| self.write_host(index, name, to.host, from.host));
                    let why = (from.mtu != to.mtu).then(|| self.mtu_limit(name, to.mtu)).flatten();
                    results[at] = Err(match why {
                        Some(why) => error.because(why),
                        None => error,
                    });
                }
            }
        }
        results
    }

    /// Why a netdev does not accept an MTU, as far as the kernel reports it.
    fn mtu_limit(&self, name: &str, mtu: u32) -> Option<String> {
        let netdev = self.netdev_with(name).ok()?;
        let link = netdev.link(name).ok()?;
        let driver = netdev.driver(name).unwrap_or_else(|_| "unknown".into());
        mtu_limit(&link, &driver, mtu)
    }

    fn write_host(&mut self, ifindex: u32, name: &str, from: HostStack, to: HostStack) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let vrf = self.spaces.home(name).map(str::to_owned);
        if from.lro && !to.lro {
            self.netdev_of(vrf.as_deref())?.set_features(name, &[(LRO, false)])?;
        }
        self.spaces.run(vrf.as_deref(), || os::ordinary(|| write_host(name, from, to))).and_then(|r| r)?;
        if to.lro && !from.lro {
            // Write this after the sysctls, because the kernel switches LRO off where forwarding is enabled. If the
            // driver refuses LRO, nothing remains to be done.
            let _ = self.netdev_of(vrf.as_deref())?.set_features(name, &[(LRO, true)]);
        }
        self.hosts.insert((vrf, ifindex), to);
        Ok(())
    }

    fn one(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Namespace { vrf, mark, add: true } => self.spaces.create(vrf, mark),
            Action::Namespace { vrf, add: false, .. } => self.spaces.delete(vrf),
            Action::Move { name, from, to } => self.relocate(name, from.as_deref(), to.as_deref()),
            Action::Knob { vrf, knob, to, .. } => {
                let write = || os::ordinary(|| spaces::write_knob(*knob, *to));
                self.spaces.run(vrf.as_deref(), write).and_then(|result| result)
            }
            Action::CreatePair(pair) => self.create_pairs(&[pair]).into_iter().collect(),
            Action::DeletePair(pair) => self.delete_pair(pair),
            Action::Link { name, from, to } => self.change_links(&[(name, from, to)]).into_iter().collect(),
            Action::Address { name, net, add: true } => {
                let ifindex = self.index(name)?;
                match self.netdev_with(name)?.add_address(ifindex, *net, AddressFlags::default()) {
                    Err(error) if error.exists() => Ok(()),
                    result => Ok(result?),
                }
            }
            Action::Address { name, net, add: false } => match self.index(name) {
                Ok(ifindex) => gone_is_fine(self.netdev_with(name)?.del_address(ifindex, *net)),
                Err(_) => Ok(()),
            },
            // The chip sets the speed of its front-panel ports.
            Action::Speed { name, .. } if self.whole_frames && name.starts_with("swp") => Ok(()),
            Action::Speed { name, to, .. } => match to {
                LinkMode::Fixed { speed_mbps, full_duplex } => {
                    let duplex = if *full_duplex { Duplex::Full } else { Duplex::Half };
                    Ok(self.netdev_with(name)?.set_speed(name, *speed_mbps, duplex)?)
                }
                LinkMode::Autonegotiation => Ok(self.netdev_with(name)?.set_autoneg(name)?),
            },
        }
    }

    /// Moves a netdev from one namespace to another.
    fn relocate(&mut self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<()> {
        let netdev = self.netdev_of(from)?;
        let link = netdev.link(name)?;
        let target = self.spaces.file(to)?;
        netdev.move_to_netns(link.ifindex, target)?;
        self.spaces.set_home(name, to);
        Ok(())
    }
}

impl Netdevs for Linux {
    type Error = KernelError;
    fn act(&mut self, run: &[Action]) -> Vec<Result<()>> {
        faults::stall("netlink");
        let (mut pairs, mut links) = (Vec::new(), Vec::new());
        for action in run {
            match action {
                Action::CreatePair(pair) => pairs.push(pair),
                Action::Link { name, from, to } => links.push((name, from, to)),
                _ => {}
            }
        }
        // If all actions are of one of these kinds, they go to the kernel together.
        if pairs.len() == run.len() {
            return self.create_pairs(&pairs);
        }
        if links.len() == run.len() {
            return self.change_links(&links);
        }
        run.iter().map(|action| self.one(action)).collect()
    }
}

impl Kernel for Linux {
    fn facts(&mut self) -> Result<Facts> {
        faults::stall("netlink");
        let links = self.netdev.links()?;
        let mut facts: Facts = links.iter().map(|link| self.link_facts(None, link)).collect();
        for (vrf, link) in self.spaces.links() {
            facts.set(self.link_facts(Some(&vrf), &link));
        }
        self.hosts.retain(|(vrf, ifindex), _| facts.by_index_in(vrf.as_deref(), *ifindex).is_some());
        facts.ipv6_forwarding = sysctl::ipv6_conf("all", "forwarding").is_ok_and(|value| value.trim() != "0");
        facts.knobs = spaces::read_knobs();
        facts.namespaces = self.spaces.facts();
        Ok(facts)
    }
    fn link_facts(&self, vrf: Option<&str>, link: &Link) -> LinkFacts {
        let vrf = vrf.map(str::to_owned);
        LinkFacts {
            ifindex: link.ifindex,
            name: link.name.clone(),
            mac: (!link.mac.is_zero()).then_some(link.mac),
            mtu: link.mtu,
            admin_up: link.admin_up,
            // The carrier and not the operational state, which the kernel may take a second to
            // determine.
            carrier: link.carrier,
            loopback: link.loopback,
            ethernet: link.ethernet,
            master: link.master,
            promisc: link.promiscuous,
            alias: link.alias.clone(),
            host: self.hosts.get(&(vrf.clone(), link.ifindex)).copied().unwrap_or_default(),
            vrf,
        }
    }
    fn learn_hosts(&mut self, names: &[String], facts: &mut Facts) {
        for name in names {
            let Some(link) = facts.get(name) else { continue };
            let mut link = link.clone();
            let key = (link.vrf.clone(), link.ifindex);
            if !self.hosts.contains_key(&key) {
                let host = self.spaces.run(link.vrf.as_deref(), || read_host(name)).unwrap_or_default();
                let netdev = self.netdev_of(link.vrf.as_deref()).ok();
                let lro = netdev.and_then(|netdev| netdev.feature(name, LRO).ok().flatten());
                let host = HostStack { lro: lro.unwrap_or(false), ..host };
                self.hosts.insert(key.clone(), host);
            }
            let host = self.hosts.get(&key).copied().unwrap_or_default();
            if link.host != host {
                link.host = host;
                facts.set(link);
            }
        }
    }
    fn learn_namespaces(&mut self, vrfs: &[String], facts: &mut Facts) {
        for vrf in vrfs {
            self.spaces.find(vrf);
        }
        facts.namespaces = self.spaces.facts();
    }

    fn has(&self, name: &str) -> bool {
        self.index(name).is_ok()
    }
    fn home(&self, name: &str) -> Option<&str> {
        self.spaces.home(name)
    }
    fn vrfs(&self) -> Vec<String> {
        self.spaces.names().map(str::to_owned).collect()
    }
    fn vrf_links(&self) -> Vec<(String, Link)> {
        self.spaces.links()
    }
    fn vrf_event_fd(&self) -> Option<RawFd> {
        Some(self.spaces.as_raw_fd())
    }
    fn vrf_events(&mut self) -> Vec<(String, Vec<Event>)> {
        self.spaces.events()
    }
    fn enter(&self, vrf: Option<&str>, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        self.spaces.run(vrf, work)
    }

    fn links(&self, vrf: Option<&str>) -> Result<Vec<Link>> {
        Ok(self.netdev_of(vrf)?.links()?)
    }
    fn link(&self, vrf: Option<&str>, name: &str) -> Result<Link> {
        Ok(self.netdev_of(vrf)?.link(name)?)
    }
    fn addresses(&self, vrf: Option<&str>, ifindex: Option<u32>) -> Result<Vec<Address>> {
        Ok(self.netdev_of(vrf)?.addresses(ifindex)?)
    }
    fn routes(&self, vrf: Option<&str>, family: Family, table: u32) -> Result<Vec<Route>> {
        Ok(self.netdev_of(vrf)?.routes(family, table)?)
    }
    fn routes_of(&self, vrf: Option<&str>, family: Family, protocol: u8) -> Result<Vec<Route>> {
        Ok(self.netdev_of(vrf)?.routes_of(family, protocol)?)
    }
    fn add_route(&self, vrf: Option<&str>, route: &Route) -> Result<()> {
        Ok(self.netdev_of(vrf)?.add_route(route)?)
    }
    fn replace_route(&self, vrf: Option<&str>, route: &Route) -> Result<()> {
        Ok(self.netdev_of(vrf)?.replace_route(route)?)
    }
    fn del_route(&self, vrf: Option<&str>, route: &Route) -> Result<()> {
        Ok(self.netdev_of(vrf)?.del_route(route)?)
    }
    fn neighbours(&self, vrf: Option<&str>, family: Family) -> Result<Vec<Neighbour>> {
        Ok(self.netdev_of(vrf)?.neighbours(family)?)
    }
    fn set_neighbour(&self, vrf: Option<&str>, ifindex: u32, address: IpAddr, mac: MacAddr) -> Result<()> {
        Ok(self.netdev_of(vrf)?.set_neighbour(ifindex, address, mac)?)
    }
    fn del_neighbour(&self, vrf: Option<&str>, ifindex: u32, address: IpAddr) -> Result<()> {
        Ok(self.netdev_of(vrf)?.del_neighbour(ifindex, address)?)
    }
    fn settings(&self, name: &str) -> Result<Settings> {
        faults::stall("netlink");
        Ok(self.netdev_with(name)?.settings(name)?)
    }
    fn root_queue(&self, name: &str) -> Result<RootQueue> {
        let netdev = self.netdev_with(name)?;
        Ok(netdev.root_queue(self.index(name)?, queues::MAJOR)?)
    }
    fn set_queues(&self, name: &str, tree: &QueueTree) -> Result<()> {
        let netdev = self.netdev_with(name)?;
        let set = netdev.set_queues(self.index(name)?, queues::MAJOR, tree);
        set.map_err(KernelError::from).map_err(|error| match error.errno() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => {
                error.because("the kernel has no htb, bfifo or pfifo (module sch_htb)")
            }
            _ => error,
        })
    }
    fn clear_queues(&self, name: &str) -> Result<()> {
        let netdev = self.netdev_with(name)?;
        Ok(netdev.clear_queues(self.index(name)?, queues::MAJOR)?)
    }
    fn queue_stats(&self, name: &str) -> Result<Vec<QueueStats>> {
        let netdev = self.netdev_with(name)?;
        Ok(netdev.queue_stats(self.index(name)?, queues::MAJOR)?)
    }
    fn driver(&self, name: &str) -> Result<String> {
        Ok(self.netdev.driver(name)?)
    }
    fn follow(&self, vrf: Option<&str>) -> Result<Box<dyn RouteSource>> {
        let opened = self.spaces.run(vrf, Follower::open)?;
        let doing = |error| KernelError::io("subscribing to routes", error);
        Ok(Box::new(opened.map_err(doing)?))
    }
    fn watch_filter(&self, vrf: Option<&str>) -> Result<Box<dyn FilterSource>> {
        let opened = self.spaces.run(vrf, FilterWatch::open)?;
        let doing = |error| KernelError::io("subscribing to the packet filter", error);
        Ok(Box::new(opened.map_err(doing)?))
    }
}

fn gone_is_fine(result: lanyard_netdev::Result<()>) -> Result<()> {
    match result {
        Err(error) if !error.is_gone() => Err(error.into()),
        _ => Ok(()),
    }
}

fn mtu_limit(link: &Link, driver: &str, mtu: u32) -> Option<String> {
    let Link { name, min_mtu, max_mtu, .. } = link;
    if mtu < *min_mtu || *max_mtu > 0 && mtu > *max_mtu {
        return Some(format!("the driver of {name} ({driver}) takes {min_mtu} to {max_mtu}, not {mtu}"));
    }
    // The kernel does not report a driver's MTU limit with XDP; the current MTU is below it.
    link.xdp.is_some().then(|| {
        let now = link.mtu;
        format!(
            "the driver of {name} ({driver}) does not take {mtu} while XDP runs there (it takes {now}, and {max_mtu} without \
             XDP): configure a smaller `mtu`, or `hook tc`"
        )
    })
}

/// The netlink part of a change of settings; `None` when there is none.
fn change(ifindex: u32, from: &LinkSettings, to: &LinkSettings) -> Option<LinkChange> {
    let empty = LinkChange { ifindex, ..LinkChange::default() };
    let change = LinkChange {
        mac: to.mac.filter(|_| from.mac != to.mac),
        mtu: (from.mtu != to.mtu).then_some(to.mtu),
        promisc: (from.promisc != to.promisc).then_some(to.promisc),
        up: (from.up != to.up).then_some(to.up),
        ..empty.clone()
    };
    (change != empty).then_some(change)
}

fn read_host(name: &str) -> HostStack {
    let number =
        |value: lanyard_netdev::Result<String>| value.ok().and_then(|text| text.trim().parse::<u8>().ok());
    let v4 = |key: &str| number(sysctl::ipv4_conf(name, key)).unwrap_or(0);
    let reachable_ms = sysctl::get(&["ipv4", "neigh", name, "base_reachable_time_ms"]);
    let reachable_ms = reachable_ms.ok().and_then(|text| text.trim().parse::<u32>().ok());
    HostStack {
        ipv6_disabled: number(sysctl::ipv6_conf(name, "disable_ipv6")) == Some(1),
        arp_ignore: v4("arp_ignore"),
        arp_announce: v4("arp_announce"),
        forwarding: v4("forwarding") == 1,
        proxy_arp: v4("proxy_arp") == 1,
        local_proxy_arp: v4("proxy_arp_pvlan") == 1,
        directed_broadcast: v4("bc_forwarding") == 1,
        redirects: v4("send_redirects") == 1,
        accept_redirects: v4("accept_redirects") == 1,
        rp_filter: v4("rp_filter"),
        ignore_linkdown: v4("ignore_routes_with_linkdown") == 1,
        arp_timeout_s: reachable_ms.map_or(30, |ms| ms / 1000),
        // This is an offload and not a sysctl: `learn_hosts` reads it.
        lro: false,
    }
}

/// Writes the differences, in the calling thread's namespace.
fn write_host(name: &str, from: HostStack, to: HostStack) -> Result<()> {
    let digit = |on: bool| if on { "1" } else { "0" }.to_owned();
    // A kernel without IPv6 has no IPv6 sysctls to set.
    let v6 = |key: &str, value: &str| match sysctl::set_ipv6_conf(name, key, value) {
        Err(error) if !error.is_gone() => Err(KernelError::from(error)),
        _ => Ok(()),
    };
    if from.ipv6_disabled != to.ipv6_disabled {
        v6("disable_ipv6", &digit(to.ipv6_disabled))?;
    }
    if from.ignore_linkdown != to.ignore_linkdown {
        v6("ignore_routes_with_linkdown", &digit(to.ignore_linkdown))?;
    }
    let flag = |key, from: bool, to: bool| (from != to).then(|| (key, digit(to)));
    let number = |key, from: u8, to: u8| (from != to).then(|| (key, to.to_string()));
    let changes = [
        number("arp_ignore", from.arp_ignore, to.arp_ignore),
        number("arp_announce", from.arp_announce, to.arp_announce),
        flag("forwarding", from.forwarding, to.forwarding),
        flag("proxy_arp", from.proxy_arp, to.proxy_arp),
        flag("proxy_arp_pvlan", from.local_proxy_arp, to.local_proxy_arp),
        flag("bc_forwarding", from.directed_broadcast, to.directed_broadcast),
        flag("send_redirects", from.redirects, to.redirects),
        flag("accept_redirects", from.accept_redirects, to.accept_redirects),
        number("rp_filter", from.rp_filter, to.rp_filter),
        flag("ignore_routes_with_linkdown", from.ignore_linkdown, to.ignore_linkdown),
    ];
    for (key, value) in changes.into_iter().flatten() {
        sysctl::set_ipv4_conf(name, key, &value)?;
    }
    if from.arp_timeout_s != to.arp_timeout_s {
        let ms = (u64::from(to.arp_timeout_s) * 1000).min(i32::MAX as u64).to_string();
        let key = ["ipv4", "neigh", name, "base_reachable_time_ms"];
        sysctl::set(&key, &ms)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "linux_tests.rs"]
mod tests;
