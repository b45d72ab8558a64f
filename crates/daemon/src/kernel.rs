//! The kernel's network configuration: facts read from it, and the switch's actions carried out on it.
//!
//! Invariant: what is remembered here (sysctls of managed netdevs, routes of ours) is what the kernel was last
//! seen with or last took.

use lanyard_netdev::{
    AddressFlags, Duplex, Error, Family, Link, LinkChange, Netdev, ROUTE_PROTOCOL, TABLE_MAIN, Veth, sysctl,
};
use lanyard_switch::compile::{host_end, pipeline_end};
use lanyard_switch::facts::HostStack;
use lanyard_switch::links::{LinkSettings, Netdevs, Pair};
use lanyard_switch::{Action, Facts, LinkFacts, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The kernel, in the namespace of this thread.
#[derive(Debug)]
pub struct Kernel {
    netdev: Netdev,
    /// Sysctls by index, of netdevs the configuration names.
    hosts: BTreeMap<u32, HostStack>,
    /// Our routes that the kernel has.
    routes: BTreeSet<Route>,
}

impl Kernel {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        Ok(Self { netdev: Netdev::open()?, hosts: BTreeMap::new(), routes: BTreeSet::new() })
    }
    /// For what has no place here: ethtool, neighbours, addresses.
    #[must_use]
    pub const fn netdev(&self) -> &Netdev {
        &self.netdev
    }
    /// The kernel as a VRF has it; `None` is the switch's own namespace.
    ///
    /// # Errors
    /// When the VRF's namespace is not there.
    pub fn netdev_of(&self, vrf: Option<&str>) -> Result<&Netdev, String> {
        match vrf {
            None => Ok(&self.netdev),
            Some(vrf) => Err(format!("VRF {vrf} has no namespace")),
        }
    }
    /// The facts about every netdev.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn facts(&mut self) -> Result<Facts, String> {
        let links = self.netdev.links().map_err(|error| error.to_string())?;
        let mut facts: Facts = links.iter().map(|link| self.link_facts(link)).collect();
        self.hosts.retain(|ifindex, _| facts.by_index(*ifindex).is_some());
        facts.ipv6_forwarding = sysctl::ipv6_conf("all", "forwarding").is_ok_and(|value| value.trim() != "0");
        Ok(facts)
    }
    /// One netdev as the switch sees it.
    #[must_use]
    pub fn link_facts(&self, link: &Link) -> LinkFacts {
        LinkFacts {
            ifindex: link.ifindex,
            name: link.name.clone(),
            mac: (!link.mac.is_zero()).then_some(link.mac),
            mtu: link.mtu,
            admin_up: link.admin_up,
            // Not the operational state: the kernel may take a second to work that out.
            carrier: link.carrier,
            loopback: link.loopback,
            ethernet: link.ethernet,
            master: link.master,
            promisc: link.promiscuous,
            alias: link.alias.clone(),
            host: self.hosts.get(&link.ifindex).copied().unwrap_or_default(),
        }
    }
    /// Reads the sysctls of the netdevs called `names`, so that `facts` has them as they are.
    pub fn learn_hosts<'a>(&mut self, names: impl Iterator<Item = &'a str>, facts: &mut Facts) {
        for name in names {
            let Some(link) = facts.get(name) else { continue };
            let (ifindex, mut link) = (link.ifindex, link.clone());
            let host = *self.hosts.entry(ifindex).or_insert_with(|| read_host(name));
            if link.host != host {
                link.host = host;
                facts.set(link);
            }
        }
    }

    /// Brings our routes in the kernel to `wanted`. A route whose next hop can't be reached now is left for the
    /// next call: IOS takes it and uses it when it can.
    pub fn sync_routes(&mut self, wanted: &BTreeSet<Route>, facts: &Facts) {
        let installed = self.routes.clone();
        for route in installed.difference(wanted) {
            match lower(route, facts).map(|lowered| self.netdev.del_route(&lowered)) {
                Some(Err(error)) if !error.is_gone() => {}
                _ => drop(self.routes.remove(route)),
            }
        }
        for route in wanted.difference(&installed) {
            if let Some(lowered) = lower(route, facts)
                && self.netdev.replace_route(&lowered).is_ok()
            {
                self.routes.insert(route.clone());
            }
        }
    }
    /// Our routes that an earlier run left in the kernel: kept where `wanted` has them, known as superfluous
    /// where not.
    pub fn adopt_routes(&mut self, wanted: &BTreeSet<Route>, facts: &Facts) {
        for family in [Family::V4, Family::V6] {
            for route in self.netdev.routes(family, TABLE_MAIN).unwrap_or_default() {
                if route.protocol == ROUTE_PROTOCOL
                    && let Some(route) = raise(&route, facts)
                {
                    self.routes.insert(wanted.iter().find(|ours| is(ours, &route)).cloned().unwrap_or(route));
                }
            }
        }
    }
    /// The kernel says one of our routes is gone (its interface went down): it is wanted again at the next sync.
    pub fn route_gone(&mut self, route: &lanyard_netdev::Route, facts: &Facts) {
        if route.protocol == ROUTE_PROTOCOL
            && let Some(route) = raise(route, facts)
        {
            self.routes.retain(|ours| !is(ours, &route));
        }
    }
    /// True when not every route of `wanted` is in the kernel.
    #[must_use]
    pub fn misses_routes(&self, wanted: &BTreeSet<Route>) -> bool {
        self.routes != *wanted
    }

    /// True when there is such a netdev at this moment.
    #[must_use]
    pub fn has(name: &str) -> bool {
        nix::net::if_::if_nametoindex(name).is_ok()
    }

    fn index(&self, name: &str) -> Result<u32, String> {
        nix::net::if_::if_nametoindex(name).map_err(|_| format!("interface {name} is not present"))
    }

    fn create_pairs(&mut self, pairs: &[&Pair]) -> Vec<Result<(), String>> {
        let names: Vec<_> = pairs.iter().map(|pair| (host_end(pair.vlan), pipeline_end(pair.vlan))).collect();
        let mut veths = Vec::with_capacity(pairs.len());
        for (pair, (name, peer)) in pairs.iter().zip(&names) {
            veths.push(Veth { name, peer, mac: Some(pair.mac), mtu: Some(pair.mtu), ..Veth::default() });
        }
        let mut results = Vec::with_capacity(pairs.len());
        for (made, (pair, (name, peer))) in
            self.netdev.create_veths(&veths).into_iter().zip(pairs.iter().zip(&names))
        {
            let made = made.map_err(|error| error.to_string());
            results.push(made.and_then(|()| {
                self.mark_pair(name, peer, &pair.alias).inspect_err(|_| {
                    // Half made is not made.
                    let _ = self.index(name).map(|ifindex| self.netdev.delete(ifindex));
                })
            }));
        }
        results
    }

    fn mark_pair(&self, name: &str, peer: &str, alias: &str) -> Result<(), String> {
        // A pair starts with no forwarding, whatever the namespace's default is.
        let _ = sysctl::set_ipv4_conf(name, "forwarding", "0");
        for end in [name, peer] {
            self.netdev.set_alias(self.index(end)?, alias).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn delete_pair(&self, pair: &Pair) -> Result<(), String> {
        let Ok(ifindex) = self.index(&host_end(pair.vlan)) else { return Ok(()) };
        gone_is_fine(self.netdev.delete(ifindex))
    }

    /// Settings of many netdevs: sysctls first, so that the stack is silent before the netdev comes up, then
    /// everything else in few system calls.
    fn change_links(&mut self, links: &[(&String, &LinkSettings, &LinkSettings)]) -> Vec<Result<(), String>> {
        let mut results: Vec<Result<(), String>> = Vec::with_capacity(links.len());
        let (mut changes, mut owners) = (Vec::new(), Vec::new());
        for (at, (name, from, to)) in links.iter().enumerate() {
            let prepared = self.index(name).and_then(|ifindex| {
                self.write_host(ifindex, name, from.host, to.host)?;
                Ok(ifindex)
            });
            match prepared {
                Ok(ifindex) => {
                    results.push(Ok(()));
                    changes.extend(change(ifindex, from, to).inspect(|_| owners.push(at)));
                }
                Err(text) => results.push(Err(text)),
            }
        }
        for (at, result) in owners.into_iter().zip(self.netdev.change(&changes)) {
            if let Err(error) = result {
                let (name, from, to) = links[at];
                let _ = self.index(name).map(|ifindex| self.write_host(ifindex, name, to.host, from.host));
                results[at] = Err(error.to_string());
            }
        }
        results
    }

    fn write_host(&mut self, ifindex: u32, name: &str, from: HostStack, to: HostStack) -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        let digit = |on: bool| if on { "1" } else { "0" };
        // A kernel without IPv6 has nothing to silence.
        let v6 = (from.ipv6_disabled != to.ipv6_disabled)
            .then(|| sysctl::set_disable_ipv6(name, to.ipv6_disabled));
        if let Some(Err(error)) = v6
            && !error.is_gone()
        {
            return Err(error.to_string());
        }
        let set = |key: &str, value: &str| {
            sysctl::set_ipv4_conf(name, key, value).map_err(|error| error.to_string())
        };
        if from.arp_ignore != to.arp_ignore {
            set("arp_ignore", &to.arp_ignore.to_string())?;
        }
        if from.forwarding != to.forwarding {
            set("forwarding", digit(to.forwarding))?;
        }
        self.hosts.insert(ifindex, to);
        Ok(())
    }

    fn one(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::CreatePair(pair) => self.create_pairs(&[pair]).into_iter().collect(),
            Action::DeletePair(pair) => self.delete_pair(pair),
            Action::Link { name, from, to } => self.change_links(&[(name, from, to)]).into_iter().collect(),
            Action::Address { name, net, add: true } => {
                let ifindex = self.index(name)?;
                match self.netdev.add_address(ifindex, *net, AddressFlags::default()) {
                    Err(error) if error.exists() => Ok(()),
                    result => result.map_err(|error| error.to_string()),
                }
            }
            Action::Address { name, net, add: false } => match self.index(name) {
                Ok(ifindex) => gone_is_fine(self.netdev.del_address(ifindex, *net)),
                Err(_) => Ok(()),
            },
            Action::Ipv6Forwarding { to, .. } => {
                sysctl::set_ipv6_forwarding(*to).map_err(|error| error.to_string())
            }
            Action::Speed { name, to, .. } => match to {
                Some((speed_mbps, full)) => {
                    let duplex = if *full { Duplex::Full } else { Duplex::Half };
                    self.netdev.set_speed(name, *speed_mbps, duplex).map_err(|error| error.to_string())
                }
                None => self.netdev.set_autoneg(name).map_err(|error| error.to_string()),
            },
        }
    }
}

impl Netdevs for Kernel {
    fn act(&mut self, run: &[Action]) -> Vec<Result<(), String>> {
        let (mut pairs, mut links) = (Vec::new(), Vec::new());
        for action in run {
            match action {
                Action::CreatePair(pair) => pairs.push(pair),
                Action::Link { name, from, to } => links.push((name, from, to)),
                _ => {}
            }
        }
        // Runs of these go to the kernel together.
        if pairs.len() == run.len() {
            return self.create_pairs(&pairs);
        }
        if links.len() == run.len() {
            return self.change_links(&links);
        }
        run.iter().map(|action| self.one(action)).collect()
    }
}

fn gone_is_fine(result: Result<(), Error>) -> Result<(), String> {
    match result {
        Err(error) if !error.is_gone() => Err(error.to_string()),
        _ => Ok(()),
    }
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
    HostStack {
        ipv6_disabled: number(sysctl::ipv6_conf(name, "disable_ipv6")) == Some(1),
        arp_ignore: number(sysctl::ipv4_conf(name, "arp_ignore")).unwrap_or(0),
        forwarding: number(sysctl::ipv4_conf(name, "forwarding")) == Some(1),
    }
}

/// The switch's route as the kernel's; `None` while its interface does not exist.
fn lower(route: &Route, facts: &Facts) -> Option<lanyard_netdev::Route> {
    let ifindex = match &route.interface {
        Some(name) => Some(facts.get(name)?.ifindex),
        None => None,
    };
    let lowered = lanyard_netdev::Route { metric: route.metric, ..lanyard_netdev::Route::new(route.prefix) };
    Some(lowered.via(route.via, ifindex))
}

/// The kernel's route as the switch's, its egress always named.
fn raise(route: &lanyard_netdev::Route, facts: &Facts) -> Option<Route> {
    let hop = route.next_hops.first()?;
    let interface = hop.ifindex.and_then(|ifindex| facts.by_index(ifindex)).map(|link| link.name.clone());
    Some(Route { prefix: route.dest, via: hop.via, interface, metric: route.metric })
}

/// Is the kernel's route `theirs` this one of ours, which may leave the egress to the kernel?
fn is(ours: &Route, theirs: &Route) -> bool {
    (ours.prefix, ours.via, ours.metric) == (theirs.prefix, theirs.via, theirs.metric)
        && (ours.interface.is_none() || ours.interface == theirs.interface)
}
