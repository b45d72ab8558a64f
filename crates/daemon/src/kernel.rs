//! The kernel's network configuration: facts read from it, and the switch's actions carried out on it.
//!
//! Invariant: what is remembered here (sysctls of managed netdevs, routes of ours) is what the kernel was last
//! seen with or last took.

use crate::spaces::{self, Spaces};
use lanyard_netdev::{
    AddressFlags, Duplex, Error, Family, Link, LinkChange, Netdev, ROUTE_PROTOCOL, RouteKind, TABLE_MAIN,
    Veth, sysctl,
};
use lanyard_switch::compile::pipeline_end_of;
use lanyard_switch::facts::HostStack;
use lanyard_switch::links::{LinkSettings, Netdevs, Pair};
use lanyard_switch::{Action, Arp, Facts, LinkFacts, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The kernel's name of the offload that merges the segments of a stream.
const LRO: &str = "rx-lro";

/// The kernel, in the namespace of this thread, and in those of VRFs.
#[derive(Debug)]
pub struct Kernel {
    netdev: Netdev,
    /// The namespaces of VRFs, and what of ours is in them.
    pub(crate) spaces: Spaces,
    /// Sysctls by VRF and index, of netdevs the configuration names.
    hosts: BTreeMap<(Option<String>, u32), HostStack>,
    /// Our routes that the kernel has.
    routes: BTreeSet<Route>,
    /// Our permanent neighbours that the kernel has.
    arps: BTreeSet<Arp>,
}

impl Kernel {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            netdev: Netdev::open()?,
            spaces: Spaces::open()?,
            hosts: BTreeMap::new(),
            routes: BTreeSet::new(),
            arps: BTreeSet::new(),
        })
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
            Some(vrf) => self.spaces.netdev(vrf).ok_or_else(|| format!("VRF {vrf} has no namespace")),
        }
    }
    /// The facts about every netdev of the switch's own namespace, and about those of ours in VRFs.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn facts(&mut self) -> Result<Facts, String> {
        let links = self.netdev.links().map_err(|error| error.to_string())?;
        let mut facts: Facts = links.iter().map(|link| self.link_facts(link)).collect();
        for (vrf, link) in self.spaces.links() {
            facts.set(self.link_facts_in(Some(vrf), &link));
        }
        self.hosts.retain(|(vrf, ifindex), _| facts.by_index_in(vrf.as_deref(), *ifindex).is_some());
        facts.ipv6_forwarding = sysctl::ipv6_conf("all", "forwarding").is_ok_and(|value| value.trim() != "0");
        facts.knobs = spaces::read_knobs();
        facts.namespaces = self.spaces.facts();
        Ok(facts)
    }
    /// One netdev of the switch's own namespace as the switch sees it.
    #[must_use]
    pub fn link_facts(&self, link: &Link) -> LinkFacts {
        self.link_facts_in(None, link)
    }
    /// One netdev of a VRF's namespace as the switch sees it.
    #[must_use]
    pub fn link_facts_in(&self, vrf: Option<String>, link: &Link) -> LinkFacts {
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
            host: self.hosts.get(&(vrf.clone(), link.ifindex)).copied().unwrap_or_default(),
            vrf,
        }
    }
    /// Reads the sysctls and offloads of the netdevs called `names`, so that `facts` has them as they are.
    pub fn learn_hosts<'a>(&mut self, names: impl Iterator<Item = &'a str>, facts: &mut Facts) {
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
    /// Looks for the namespaces of these VRFs, so that `facts` has those that are there.
    pub fn learn_namespaces<'a>(&mut self, vrfs: impl Iterator<Item = &'a str>, facts: &mut Facts) {
        for vrf in vrfs {
            self.spaces.find(vrf);
        }
        facts.namespaces = self.spaces.facts();
    }

    /// Brings our routes in the kernel to `wanted`. A route whose next hop can't be reached now is left for the
    /// next call: IOS takes it and uses it when it can.
    pub fn sync_routes(&mut self, wanted: &BTreeSet<Route>, facts: &Facts) {
        let installed = self.routes.clone();
        for route in installed.difference(wanted) {
            let Ok(netdev) = self.netdev_of(route.vrf.as_deref()) else {
                self.routes.remove(route);
                continue;
            };
            match lower(route, facts).map(|lowered| netdev.del_route(&lowered)) {
                Some(Err(error)) if !error.is_gone() => {}
                _ => drop(self.routes.remove(route)),
            }
        }
        for route in wanted.difference(&installed) {
            if let Some(lowered) = lower(route, facts)
                && self
                    .netdev_of(route.vrf.as_deref())
                    .is_ok_and(|netdev| netdev.replace_route(&lowered).is_ok())
            {
                self.routes.insert(route.clone());
            }
        }
    }
    /// Our routes that an earlier run left in the kernel: kept where `wanted` has them, known as superfluous
    /// where not.
    pub fn adopt_routes(&mut self, wanted: &BTreeSet<Route>, facts: &Facts) {
        let vrfs: Vec<Option<String>> =
            std::iter::once(None).chain(self.spaces.names().map(|vrf| Some(vrf.to_owned()))).collect();
        for vrf in vrfs {
            for family in [Family::V4, Family::V6] {
                let routes =
                    self.netdev_of(vrf.as_deref()).ok().map(|netdev| netdev.routes(family, TABLE_MAIN));
                for route in routes.and_then(Result::ok).unwrap_or_default() {
                    if route.protocol == ROUTE_PROTOCOL
                        && let Some(route) = raise(vrf.as_deref(), &route, facts)
                    {
                        let ours = wanted.iter().find(|ours| is(ours, &route)).cloned();
                        self.routes.insert(ours.unwrap_or(route));
                    }
                }
            }
        }
    }
    /// The kernel says one of our routes is gone (its interface went down): it is wanted again at the next sync.
    pub fn route_gone(&mut self, vrf: Option<&str>, route: &lanyard_netdev::Route, facts: &Facts) {
        if route.protocol == ROUTE_PROTOCOL
            && let Some(route) = raise(vrf, route, facts)
        {
            self.routes.retain(|ours| !is(ours, &route));
        }
    }
    /// True when not every route of `wanted` is in the kernel.
    #[must_use]
    pub fn misses_routes(&self, wanted: &BTreeSet<Route>) -> bool {
        self.routes != *wanted
    }

    /// Brings our permanent neighbours to `wanted`; those whose netdev is not there are left for the next call.
    pub fn sync_arps(&mut self, wanted: &BTreeSet<Arp>, facts: &Facts) {
        if self.arps == *wanted {
            return;
        }
        let installed = self.arps.clone();
        for arp in installed.difference(wanted) {
            if let Some((netdev, ifindex)) = self.place(&arp.interface, facts) {
                let _ = netdev.del_neighbour(ifindex, arp.address.into());
            }
            self.arps.remove(arp);
        }
        for arp in wanted.difference(&installed) {
            let set = self.place(&arp.interface, facts);
            let set = set.map(|(netdev, ifindex)| netdev.set_neighbour(ifindex, arp.address.into(), arp.mac));
            if set.is_some_and(|result| result.is_ok()) {
                self.arps.insert(arp.clone());
            }
        }
    }
    /// The kernel says a neighbour is gone or has changed: when it was ours, it is wanted again at the next sync.
    pub fn neighbour_changed(
        &mut self,
        vrf: Option<&str>,
        ifindex: u32,
        address: std::net::IpAddr,
        facts: &Facts,
    ) {
        let name = facts.by_index_in(vrf, ifindex).map(|link| link.name.as_str());
        self.arps.retain(|arp| Some(arp.interface.as_str()) != name || address != arp.address);
    }
    /// A netdev's namespace and index.
    fn place(&self, name: &str, facts: &Facts) -> Option<(&Netdev, u32)> {
        let link = facts.get(name).filter(|link| link.admin_up)?;
        Some((self.netdev_of(link.vrf.as_deref()).ok()?, link.ifindex))
    }

    /// True when there is such a netdev at this moment.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.index(name).is_ok()
    }

    fn index(&self, name: &str) -> Result<u32, String> {
        let absent = || format!("interface {name} is not present");
        match self.spaces.home(name) {
            None => nix::net::if_::if_nametoindex(name).map_err(|_| absent()),
            Some(vrf) => self.netdev_of(Some(vrf))?.link(name).map(|link| link.ifindex).map_err(|_| absent()),
        }
    }
    /// The namespace a netdev is in.
    fn home(&self, name: &str) -> Result<&Netdev, String> {
        self.netdev_of(self.spaces.home(name))
    }

    fn create_pairs(&mut self, pairs: &[&Pair]) -> Vec<Result<(), String>> {
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
            let made = made.map_err(|error| error.to_string());
            results.push(made.and_then(|()| {
                self.mark_pair(&pair.name, peer, &pair.alias).inspect_err(|_| {
                    // Half made is not made.
                    let _ = self.index(&pair.name).map(|ifindex| self.netdev.delete(ifindex));
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

    /// Both ends go with one; the pipeline's is in our namespace, wherever the host's is.
    fn delete_pair(&mut self, pair: &Pair) -> Result<(), String> {
        let ends = [pipeline_end_of(&pair.name), pair.name.clone()];
        self.spaces.set_home(&pair.name, None);
        let found = ends.iter().find_map(|end| nix::net::if_::if_nametoindex(end.as_str()).ok());
        found.map_or(Ok(()), |ifindex| gone_is_fine(self.netdev.delete(ifindex)))
    }

    /// Settings of many netdevs: sysctls first, so that the stack is silent before the netdev comes up, then
    /// everything else in few system calls.
    fn change_links(&mut self, links: &[(&String, &LinkSettings, &LinkSettings)]) -> Vec<Result<(), String>> {
        let mut results: Vec<Result<(), String>> = Vec::with_capacity(links.len());
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
                Err(text) => results.push(Err(text)),
            }
        }
        for (vrf, (changes, owners)) in places {
            let answers = match self.netdev_of(vrf.as_deref()) {
                Ok(netdev) => {
                    netdev.change(&changes).into_iter().map(|r| r.map_err(|e| e.to_string())).collect()
                }
                Err(text) => vec![Err(text); changes.len()],
            };
            for (at, result) in owners.into_iter().zip(answers) {
                if let Err(error) = result {
                    let (name, from, to) = links[at];
                    let _ = self.index(name).map(|index| self.write_host(index, name, to.host, from.host));
                    let why = (from.mtu != to.mtu).then(|| self.mtu_limit(name, to.mtu)).flatten();
                    results[at] = Err(why.map_or(error.clone(), |why| format!("{error}: {why}")));
                }
            }
        }
        results
    }

    /// What keeps a netdev from an MTU, as far as the kernel shows it.
    fn mtu_limit(&self, name: &str, mtu: u32) -> Option<String> {
        let netdev = self.home(name).ok()?;
        let link = netdev.link(name).ok()?;
        let driver = netdev.driver(name).unwrap_or_else(|_| "unknown".into());
        mtu_limit(&link, &driver, mtu)
    }

    fn write_host(&mut self, ifindex: u32, name: &str, from: HostStack, to: HostStack) -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        let vrf = self.spaces.home(name).map(str::to_owned);
        if from.lro && !to.lro {
            self.netdev_of(vrf.as_deref())?.set_features(name, &[(LRO, false)]).map_err(|e| e.to_string())?;
        }
        self.spaces.run(vrf.as_deref(), || write_host(name, from, to)).and_then(|result| result)?;
        if to.lro && !from.lro {
            // Only now: the kernel would switch it off again. A driver that refuses to have it back leaves nothing to be done.
            let _ = self.netdev_of(vrf.as_deref())?.set_features(name, &[(LRO, true)]);
        }
        self.hosts.insert((vrf, ifindex), to);
        Ok(())
    }

    fn one(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Namespace { vrf, mark, add: true } => self.spaces.create(vrf, mark),
            Action::Namespace { vrf, add: false, .. } => self.spaces.delete(vrf),
            Action::Move { name, from, to } => self.relocate(name, from.as_deref(), to.as_deref()),
            Action::Knob { vrf, knob, to, .. } => {
                self.spaces.run(vrf.as_deref(), || spaces::write_knob(*knob, *to)).and_then(|result| result)
            }
            Action::CreatePair(pair) => self.create_pairs(&[pair]).into_iter().collect(),
            Action::DeletePair(pair) => self.delete_pair(pair),
            Action::Link { name, from, to } => self.change_links(&[(name, from, to)]).into_iter().collect(),
            Action::Address { name, net, add: true } => {
                let ifindex = self.index(name)?;
                match self.home(name)?.add_address(ifindex, *net, AddressFlags::default()) {
                    Err(error) if error.exists() => Ok(()),
                    result => result.map_err(|error| error.to_string()),
                }
            }
            Action::Address { name, net, add: false } => match self.index(name) {
                Ok(ifindex) => gone_is_fine(self.home(name)?.del_address(ifindex, *net)),
                Err(_) => Ok(()),
            },
            Action::Speed { name, to, .. } => match to {
                Some((speed_mbps, full)) => {
                    let duplex = if *full { Duplex::Full } else { Duplex::Half };
                    self.home(name)?.set_speed(name, *speed_mbps, duplex).map_err(|error| error.to_string())
                }
                None => self.home(name)?.set_autoneg(name).map_err(|error| error.to_string()),
            },
        }
    }

    /// Moves a netdev from one namespace to another.
    fn relocate(&mut self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<(), String> {
        let netdev = self.netdev_of(from)?;
        let link = netdev.link(name).map_err(|error| error.to_string())?;
        let target = self.spaces.file(to)?;
        netdev.move_to_netns(link.ifindex, target).map_err(|error| error.to_string())?;
        self.spaces.set_home(name, to);
        Ok(())
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

fn mtu_limit(link: &Link, driver: &str, mtu: u32) -> Option<String> {
    let Link { name, min_mtu, max_mtu, .. } = link;
    if mtu < *min_mtu || *max_mtu > 0 && mtu > *max_mtu {
        return Some(format!("the driver of {name} ({driver}) takes {min_mtu} to {max_mtu}, not {mtu}"));
    }
    // The kernel does not show where a driver's limit with XDP is; the MTU of now is below it.
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
        // An offload, and no sysctl: `learn_hosts` asks for it.
        lro: false,
    }
}

/// Writes what differs, in the calling thread's namespace.
fn write_host(name: &str, from: HostStack, to: HostStack) -> Result<(), String> {
    let digit = |on: bool| if on { "1" } else { "0" }.to_owned();
    // A kernel without IPv6 has nothing to silence.
    let v6 = |key: &str, value: &str| match sysctl::set_ipv6_conf(name, key, value) {
        Err(error) if !error.is_gone() => Err(error.to_string()),
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
        sysctl::set_ipv4_conf(name, key, &value).map_err(|error| error.to_string())?;
    }
    if from.arp_timeout_s != to.arp_timeout_s {
        let ms = (u64::from(to.arp_timeout_s) * 1000).min(i32::MAX as u64).to_string();
        let key = ["ipv4", "neigh", name, "base_reachable_time_ms"];
        sysctl::set(&key, &ms).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The switch's route as the kernel's; `None` while its interface does not exist.
fn lower(route: &Route, facts: &Facts) -> Option<lanyard_netdev::Route> {
    let lowered = lanyard_netdev::Route { metric: route.metric, ..lanyard_netdev::Route::new(route.prefix) };
    if route.discard {
        return Some(lanyard_netdev::Route { kind: RouteKind::Blackhole, ..lowered });
    }
    let ifindex = match &route.interface {
        Some(name) => Some(facts.get(name)?.ifindex),
        None => None,
    };
    Some(lowered.via(route.via, ifindex))
}

/// The kernel's route as the switch's, its egress always named.
fn raise(vrf: Option<&str>, route: &lanyard_netdev::Route, facts: &Facts) -> Option<Route> {
    let discard = route.kind == RouteKind::Blackhole;
    let hop = route.next_hops.first().filter(|_| !discard);
    let egress = hop.and_then(|hop| facts.by_index_in(vrf, hop.ifindex?));
    (discard || hop.is_some()).then(|| Route {
        vrf: vrf.map(str::to_owned),
        prefix: route.dest,
        via: hop.and_then(|hop| hop.via),
        interface: egress.map(|link| link.name.clone()),
        discard,
        metric: route.metric,
    })
}

/// Is the kernel's route `theirs` this one of ours, which may leave the egress to the kernel?
fn is(ours: &Route, theirs: &Route) -> bool {
    let key = |route: &Route| (route.vrf.clone(), route.prefix, route.via, route.discard, route.metric);
    key(ours) == key(theirs) && (ours.interface.is_none() || ours.interface == theirs.interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_netdev::{XdpAttached, XdpMode};

    #[test]
    fn a_refused_mtu_names_the_limit_and_the_way_out() {
        let bare = Link { name: "p1".into(), mtu: 1500, min_mtu: 68, max_mtu: 9216, ..Link::default() };
        let xdp = XdpAttached { mode: XdpMode::Driver, prog_id: 1 };
        let hooked = Link { xdp: Some(xdp), ..bare.clone() };
        for (link, mtu, want) in [
            (&bare, 9000, None),
            (&bare, 9300, Some("the driver of p1 (igb) takes 68 to 9216, not 9300")),
            (&bare, 60, Some("the driver of p1 (igb) takes 68 to 9216, not 60")),
            (
                &hooked,
                9000,
                Some(
                    "the driver of p1 (igb) does not take 9000 while XDP runs there (it takes 1500, and 9216 without \
                     XDP): configure a smaller `mtu`, or `hook tc`",
                ),
            ),
        ] {
            assert_eq!(mtu_limit(link, "igb", mtu).as_deref(), want, "{mtu}");
        }
    }
}
