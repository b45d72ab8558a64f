//! The kernel in memory.

use crate::kernel::{FilterSource, Kernel, KernelError, Result, RouteSource};
use lanyard_netdev::follow::{Notification, Progress, Rule, Table};
use lanyard_netdev::{Address, Duplex, Event, Hook as FilterHook, Link, Neighbour, Route, Settings};
use lanyard_switch::compile::pipeline_end_of;
use lanyard_switch::facts::{HostStack, Knob, LinkMode, Namespace};
use lanyard_switch::links::Netdevs;
use lanyard_switch::{Action, Facts, LinkFacts};
use lanyard_types::{Family, MacAddr, QueueStats, QueueTree, RootQueue};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::rc::Rc;

/// A kernel in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeKernel(Rc<RefCell<State>>);

/// The contents of the kernel in memory.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The netdevs, by VRF and name.
    pub(crate) links: BTreeMap<(Option<String>, String), Link>,
    pub(crate) hosts: BTreeMap<String, HostStack>,
    pub(crate) addresses: BTreeSet<(String, ipnet::IpNet)>,
    pub(crate) namespaces: BTreeMap<String, String>,
    pub(crate) knobs: BTreeMap<(Option<String>, Knob), bool>,
    pub(crate) routes: BTreeMap<Option<String>, Vec<Route>>,
    pub(crate) neighbours: BTreeMap<(u32, IpAddr), MacAddr>,
    /// Routes to these gateways are refused as unreachable.
    pub(crate) unreachable: BTreeSet<IpAddr>,
    /// The link modes of netdevs; others negotiate.
    pub(crate) modes: BTreeMap<String, LinkMode>,
    /// Every action that was carried out.
    pub(crate) done: Vec<Action>,
    /// The number of the action that fails, counted from 1 since this was set.
    pub(crate) fail_at: Option<usize>,
    /// The value that [`State::fail_at`] gets after the first failure.
    pub(crate) then_fail_at: Option<usize>,
    /// Prefixes whose routes the kernel refuses to add and to delete: after this number of changes, and with this
    /// error number.
    pub(crate) refused_routes: BTreeMap<ipnet::IpNet, (usize, i32)>,
    /// The neighbours that the kernel has learned.
    pub(crate) learned: Vec<Neighbour>,
    /// True if no namespace can be followed.
    pub(crate) unfollowable: bool,
    /// The contents of listings of the routing sockets, besides netdevs and the default rules.
    pub(crate) listed: Vec<(Table, FakeNotification)>,
    /// True if changes interrupt every listing.
    pub(crate) interrupted: bool,
    /// The error number with which every listing fails; `None` for success.
    pub(crate) unlistable: Option<i32>,
    /// The neighbours that the kernel was asked to resolve.
    pub(crate) asked: Vec<(u32, IpAddr)>,
    /// A file or directory that is renamed at the next action.
    pub(crate) renames: Option<(PathBuf, PathBuf)>,
    /// By gateway: the netdev and the address without which the gateway is not reachable.
    pub(crate) behind: BTreeMap<IpAddr, (String, ipnet::IpNet)>,
    /// Queueing disciplines at the roots of netdevs: the switch's own, or the kind of another.
    pub(crate) queues: BTreeMap<String, std::result::Result<QueueTree, String>>,
    /// How often a table of routes was listed.
    pub(crate) dumps: usize,
    /// Messages that the routing sockets deliver next.
    printed: Vec<FakeNotification>,
    last_index: u32,
}

/// A message of a routing socket.
#[derive(Debug, Clone)]
pub(crate) enum FakeNotification {
    Link(Box<Link>),
    Neighbour(Neighbour),
    /// The body of a route message, and whether the route was removed.
    Route(Vec<u8>, bool),
    Rule(Rule, bool),
    Overrun,
}

impl FakeNotification {
    fn deliver(self, each: &mut dyn FnMut(Notification<'_>)) {
        match self {
            Self::Link(link) => each(Notification::Link(link, false)),
            Self::Neighbour(neighbour) => each(Notification::Neighbour(neighbour, false)),
            Self::Route(body, gone) => {
                let route = lanyard_wire::rtnetlink::Route::new(&body).expect("a route");
                each(Notification::Route { route, flags: 0, gone });
            }
            Self::Rule(rule, gone) => each(Notification::Rule(rule, gone)),
            Self::Overrun => each(Notification::Overrun),
        }
    }
}

impl FakeKernel {
    pub(crate) fn state(&self) -> std::cell::RefMut<'_, State> {
        self.0.borrow_mut()
    }
    /// Adds an Ethernet netdev that is down, with link once it is up. Returns its index.
    pub(crate) fn add(&self, name: &str) -> u32 {
        self.state().add(None, name)
    }
    /// A netdev of the switch's own namespace.
    pub(crate) fn get(&self, name: &str) -> Link {
        self.state().links[&(None, name.to_owned())].clone()
    }
    /// Changes a netdev of the switch's own namespace, as an administrator or a cable does. Returns
    /// the event.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Link)) -> Event {
        let mut state = self.state();
        let link = state.links.get_mut(&(None, name.to_owned())).expect("a netdev");
        change(link);
        Event::Link(Box::new(link.clone()))
    }
    /// Makes the routing sockets deliver a message.
    pub(crate) fn say(&self, printed: FakeNotification) {
        self.state().printed.push(printed);
    }
}

impl State {
    fn add(&mut self, vrf: Option<&str>, name: &str) -> u32 {
        self.last_index += 1;
        let link = Link {
            ifindex: self.last_index,
            name: name.to_owned(),
            ethernet: true,
            mac: MacAddr([2, 0, 0, 0, 1, self.last_index as u8]),
            mtu: 1500,
            ..Link::default()
        };
        self.links.insert((vrf.map(str::to_owned), name.to_owned()), link);
        self.last_index
    }
    fn find(&mut self, name: &str) -> Result<&mut Link> {
        let found = self.links.iter_mut().find(|((_, known), _)| known == name);
        found.map(|(_, link)| link).ok_or_else(|| KernelError::NoInterface(name.to_owned()))
    }
    fn refuse(&mut self, route: &Route) -> Result<()> {
        match self.refused_routes.get_mut(&route.dest) {
            None => Ok(()),
            Some((0, errno)) => {
                Err(KernelError::io("the fault of the test", io::Error::from_raw_os_error(*errno)))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }
    fn act(&mut self, action: &Action) -> Result<()> {
        if let Some((from, to)) = self.renames.take() {
            std::fs::rename(from, to).expect("renamed");
        }
        if let Some(left) = &mut self.fail_at {
            *left -= 1;
            if *left == 0 {
                self.fail_at = self.then_fail_at.take();
                return Err(KernelError::io("the fault of the test", io::Error::other("refused")));
            }
        }
        match action {
            Action::Namespace { vrf, mark, add: true } => {
                drop(self.namespaces.insert(vrf.clone(), mark.clone()))
            }
            Action::Namespace { vrf, .. } => {
                self.namespaces.remove(vrf);
                self.knobs.retain(|(of, _), _| of.as_ref() != Some(vrf));
            }
            Action::CreatePair(pair) => {
                for end in [pair.name.clone(), pipeline_end_of(&pair.name)] {
                    self.add(None, &end);
                    let link = self.find(&end)?;
                    (link.alias, link.mtu) = (Some(pair.alias.clone()), pair.mtu);
                }
                let mac = pair.mac;
                let link = self.find(&pair.name)?;
                link.mac = mac.unwrap_or(link.mac);
            }
            Action::DeletePair(pair) => {
                let ends = [pair.name.clone(), pipeline_end_of(&pair.name)];
                self.links.retain(|(_, name), _| !ends.contains(name));
                self.hosts.retain(|name, _| !ends.contains(name));
                self.addresses.retain(|(name, _)| !ends.contains(name));
            }
            Action::Move { name, from, to } => {
                let link = self.links.remove(&(from.clone(), name.clone()));
                let mut link = link.ok_or_else(|| KernelError::NoInterface(name.clone()))?;
                (link.admin_up, link.carrier) = (false, false);
                self.links.insert((to.clone(), name.clone()), link);
            }
            Action::Link { name, from: _, to } => {
                let link = self.find(name)?;
                (link.admin_up, link.carrier) = (to.up, to.up);
                (link.promiscuous, link.mtu) = (to.promisc, to.mtu);
                link.mac = to.mac.unwrap_or(link.mac);
                self.hosts.insert(name.clone(), to.host);
            }
            Action::Address { name, net, add: true } => drop(self.addresses.insert((name.clone(), *net))),
            Action::Address { name, net, .. } => {
                let on = (name.clone(), *net);
                self.addresses.remove(&on);
                // The kernel flushes routes over the address without an event.
                let behind = &self.behind;
                let stays = |hop: &lanyard_netdev::NextHop| {
                    hop.via.and_then(|via| behind.get(&via)).is_none_or(|at| *at != on)
                };
                for routes in self.routes.values_mut() {
                    routes.retain(|route| route.next_hops.iter().all(stays));
                }
            }
            Action::Knob { vrf, knob, to, .. } => drop(self.knobs.insert((vrf.clone(), *knob), *to)),
            Action::Speed { name, to, .. } => drop(self.modes.insert(name.clone(), *to)),
        }
        self.done.push(action.clone());
        Ok(())
    }
}

impl Netdevs for FakeKernel {
    type Error = KernelError;
    fn act(&mut self, run: &[Action]) -> Vec<Result<()>> {
        run.iter().map(|action| self.state().act(action)).collect()
    }
}

impl Kernel for FakeKernel {
    fn facts(&mut self) -> Result<Facts> {
        let links: Vec<_> = self.state().links.clone().into_iter().collect();
        let facts = links.iter().map(|((vrf, _), link)| self.link_facts(vrf.as_deref(), link));
        let mut facts: Facts = facts.collect();
        let state = self.state();
        for ((vrf, knob), on) in &state.knobs {
            match (vrf, knob) {
                (None, Knob::Ipv6Forwarding) => facts.ipv6_forwarding = *on,
                (None, knob) => drop(facts.knobs.insert(*knob, *on)),
                _ => {}
            }
        }
        for (vrf, mark) in &state.namespaces {
            let namespace = Namespace { mark: Some(mark.clone()), ..Namespace::default() };
            facts.namespaces.insert(vrf.clone(), namespace);
        }
        Ok(facts)
    }
    fn link_facts(&self, vrf: Option<&str>, link: &Link) -> LinkFacts {
        LinkFacts {
            ifindex: link.ifindex,
            name: link.name.clone(),
            mac: Some(link.mac),
            mtu: link.mtu,
            admin_up: link.admin_up,
            carrier: link.carrier,
            loopback: link.loopback,
            ethernet: link.ethernet,
            master: link.master,
            promisc: link.promiscuous,
            alias: link.alias.clone(),
            host: self.state().hosts.get(&link.name).copied().unwrap_or_default(),
            vrf: vrf.map(str::to_owned),
        }
    }
    fn learn_hosts(&mut self, _names: &[String], _facts: &mut Facts) {}
    fn learn_namespaces(&mut self, _vrfs: &[String], _facts: &mut Facts) {}
    fn has(&self, name: &str) -> bool {
        self.state().find(name).is_ok()
    }
    fn home(&self, _name: &str) -> Option<&str> {
        None
    }
    fn vrfs(&self) -> Vec<String> {
        self.state().namespaces.keys().cloned().collect()
    }
    fn vrf_links(&self) -> Vec<(String, Link)> {
        Vec::new()
    }
    fn vrf_event_fd(&self) -> Option<RawFd> {
        None
    }
    fn vrf_events(&mut self) -> Vec<(String, Vec<Event>)> {
        Vec::new()
    }
    fn enter(&self, _vrf: Option<&str>, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        work();
        Ok(())
    }
    fn links(&self, vrf: Option<&str>) -> Result<Vec<Link>> {
        let vrf = vrf.map(str::to_owned);
        Ok(self.state().links.iter().filter(|((home, _), _)| *home == vrf).map(|(_, l)| l.clone()).collect())
    }
    fn link(&self, vrf: Option<&str>, name: &str) -> Result<Link> {
        let key = (vrf.map(str::to_owned), name.to_owned());
        self.state().links.get(&key).cloned().ok_or(KernelError::NoInterface(key.1))
    }
    fn addresses(&self, _vrf: Option<&str>, ifindex: Option<u32>) -> Result<Vec<Address>> {
        let state = &mut *self.state();
        let mut found = Vec::new();
        for (name, net) in state.addresses.clone() {
            let at = state.find(&name)?.ifindex;
            if ifindex.is_none_or(|wanted| wanted == at) {
                found.push(Address {
                    ifindex: at,
                    net,
                    permanent: true,
                    secondary: false,
                    tentative: false,
                    dad_failed: false,
                    deprecated: false,
                    scope: 0,
                });
            }
        }
        Ok(found)
    }
    fn routes(&self, vrf: Option<&str>, family: Family, table: u32) -> Result<Vec<Route>> {
        let mut state = self.state();
        state.dumps += 1;
        let routes = state.routes.get(&vrf.map(str::to_owned)).cloned().unwrap_or_default();
        let of_family = |route: &Route| (family == Family::V4) == route.dest.addr().is_ipv4();
        Ok(routes.into_iter().filter(|route| route.table == table && of_family(route)).collect())
    }
    fn routes_of(&self, vrf: Option<&str>, family: Family, protocol: u8) -> Result<Vec<Route>> {
        let mut routes = self.routes(vrf, family, lanyard_netdev::TABLE_MAIN)?;
        routes.retain(|route| route.protocol == protocol);
        Ok(routes)
    }
    fn add_route(&self, vrf: Option<&str>, route: &Route) -> Result<()> {
        let same = |known: &Route| (known.dest, known.metric) == (route.dest, route.metric);
        let vrf_routes = self.state().routes.get(&vrf.map(str::to_owned)).cloned().unwrap_or_default();
        if vrf_routes.iter().any(same) {
            return Err(KernelError::io("adding a route", io::Error::from_raw_os_error(libc::EEXIST)));
        }
        self.replace_route(vrf, route)
    }
    fn replace_route(&self, vrf: Option<&str>, route: &Route) -> Result<()> {
        let mut state = self.state();
        let via = route.next_hops.first().and_then(|hop| hop.via);
        let lost = |via| state.behind.get(&via).is_some_and(|on| !state.addresses.contains(on));
        if via.is_some_and(|via| state.unreachable.contains(&via) || lost(via)) {
            return Err(KernelError::io("adding a route", io::Error::from_raw_os_error(libc::EHOSTUNREACH)));
        }
        state.refuse(route)?;
        let routes = state.routes.entry(vrf.map(str::to_owned)).or_default();
        routes.retain(|known| (known.dest, known.metric) != (route.dest, route.metric));
        routes.push(route.clone());
        Ok(())
    }
    fn del_route(&self, vrf: Option<&str>, route: &Route) -> Result<()> {
        let mut state = self.state();
        state.refuse(route)?;
        let routes = state.routes.entry(vrf.map(str::to_owned)).or_default();
        routes.retain(|known| (known.dest, known.metric) != (route.dest, route.metric));
        Ok(())
    }
    fn neighbours(&self, _vrf: Option<&str>, family: Family) -> Result<Vec<Neighbour>> {
        let learned = self.state().learned.clone();
        Ok(learned.into_iter().filter(|known| Family::of(known.addr) == family).collect())
    }
    fn set_neighbour(&self, _vrf: Option<&str>, ifindex: u32, address: IpAddr, mac: MacAddr) -> Result<()> {
        self.state().neighbours.insert((ifindex, address), mac);
        Ok(())
    }
    fn del_neighbour(&self, _vrf: Option<&str>, ifindex: u32, address: IpAddr) -> Result<()> {
        let state = &mut *self.state();
        state.neighbours.remove(&(ifindex, address));
        state.learned.retain(|known| (known.ifindex, known.addr) != (ifindex, address));
        Ok(())
    }
    fn settings(&self, name: &str) -> Result<Settings> {
        Ok(match self.state().modes.get(name) {
            Some(LinkMode::Fixed { speed_mbps, full_duplex }) => Settings {
                speed_mbps: Some(*speed_mbps),
                duplex: Some(if *full_duplex { Duplex::Full } else { Duplex::Half }),
                ..Settings::default()
            },
            _ => Settings { speed_mbps: Some(1000), autoneg: true, ..Settings::default() },
        })
    }
    fn root_queue(&self, name: &str) -> Result<RootQueue> {
        let state = self.state();
        Ok(match state.queues.get(name) {
            None => RootQueue::Default,
            Some(Ok(_)) => RootQueue::Own,
            Some(Err(kind)) => RootQueue::Foreign(kind.clone()),
        })
    }
    fn set_queues(&self, name: &str, tree: &QueueTree) -> Result<()> {
        self.state().queues.insert(name.to_owned(), Ok(tree.clone()));
        Ok(())
    }
    fn clear_queues(&self, name: &str) -> Result<()> {
        let mut state = self.state();
        if matches!(state.queues.get(name), Some(Ok(_))) {
            state.queues.remove(name);
        }
        Ok(())
    }
    fn queue_stats(&self, name: &str) -> Result<Vec<QueueStats>> {
        let state = self.state();
        let classes =
            state.queues.get(name).and_then(|held| held.as_ref().ok()).map(|tree| tree.classes.clone());
        let stats =
            |class: lanyard_types::QueueClass| QueueStats { minor: class.minor, ..QueueStats::default() };
        Ok(classes.into_iter().flatten().map(stats).collect())
    }
    fn driver(&self, _name: &str) -> Result<String> {
        Ok("test".into())
    }
    fn follow(&self, vrf: Option<&str>) -> Result<Box<dyn RouteSource>> {
        if self.state().unfollowable {
            return Err(KernelError::NoNamespace(vrf.unwrap_or("default").to_owned()));
        }
        Ok(Box::new(FakeSource { kernel: self.clone(), listing: None }))
    }
    fn watch_filter(&self, _vrf: Option<&str>) -> Result<Box<dyn FilterSource>> {
        Ok(Box::new(NoFilter))
    }
}

/// A namespace without packet filter.
struct NoFilter;

impl FilterSource for NoFilter {
    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }
    fn events(&mut self, _new: &mut BTreeSet<FilterHook>) -> bool {
        false
    }
    fn list(&mut self) -> lanyard_netdev::Result<BTreeSet<FilterHook>> {
        Ok(BTreeSet::new())
    }
    fn unannounced(&mut self) -> lanyard_netdev::Result<BTreeSet<FilterHook>> {
        Ok(BTreeSet::new())
    }
}

/// The routing sockets of the kernel in memory.
struct FakeSource {
    kernel: FakeKernel,
    listing: Option<Table>,
}

impl RouteSource for FakeSource {
    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }
    fn read(&mut self, most: usize, each: &mut dyn FnMut(Notification<'_>)) -> usize {
        let mut state = self.kernel.state();
        let count = state.printed.len().min(most);
        let printed: Vec<FakeNotification> = state.printed.drain(..count).collect();
        drop(state);
        for printed in printed {
            printed.deliver(each);
        }
        count
    }
    fn list(&mut self, table: Table) -> io::Result<()> {
        self.listing = Some(table);
        Ok(())
    }
    fn read_listing(&mut self, _most: usize, each: &mut dyn FnMut(Notification<'_>)) -> io::Result<Progress> {
        let table = self.listing.take();
        if let Some(errno) = self.kernel.state().unlistable {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if table == Some(Table::Links) {
            for link in self.kernel.links(None).unwrap_or_default() {
                each(Notification::Link(Box::new(link), false));
            }
        }
        if let Some(ipv6) = [(Table::Rules4, false), (Table::Rules6, true)]
            .into_iter()
            .find_map(|(of, ipv6)| (Some(of) == table).then_some(ipv6))
        {
            for standard in [255, 254] {
                each(Notification::Rule(Rule { ipv6, standard: Some(standard) }, false));
            }
        }
        let listed = self.kernel.state().listed.clone();
        for (_, printed) in listed.into_iter().filter(|(of, _)| Some(*of) == table) {
            printed.deliver(each);
        }
        Ok(Progress::Done { consistent: !self.kernel.state().interrupted })
    }
    fn use_neighbours(&mut self, neighbours: &[(u32, IpAddr)]) {
        self.kernel.state().asked.extend(neighbours);
    }
}
