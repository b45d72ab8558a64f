//! The foundation of the daemon's unit tests: a kernel, a plane and a clock in memory.
//!
//! Invariant: a test that uses only these needs no rights, no namespace and no real time.

use crate::clock::Clock;
use crate::context::Context;
use crate::core::{Core, Parts};
use crate::kernel::{FilterSource, Kernel, KernelError, Result, RouteSource};
use crate::log::Log;
use crate::paths::Paths;
use crate::routing::Following;
use lanyard_config::Config;
use lanyard_netdev::follow::{Heard, Progress, Table};
use lanyard_netdev::{Address, Event, Family, Hook as FilterHook, Link, Neighbour, Route, Settings};
use lanyard_plane::{
    Capabilities, FdbEntry, FdbFilter, Hook, Plane, PlaneError, PlaneEvent, PlaneState, PortCounters,
    RouteChange, RouteLookup, Sweep, TableUsage, Trace, TrapCounters,
};
use lanyard_soft::{MemoryPorts, SoftPlane};
use lanyard_switch::compile::pipeline_end_of;
use lanyard_switch::facts::{HostStack, Knob, Namespace};
use lanyard_switch::links::Netdevs;
use lanyard_switch::{Action, Facts, Identity, LinkFacts, Record, Switch};
use lanyard_types::{FrameCount, MacAddr, PortId, TrapGroup, TrapReason, VlanId, VrfId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::SystemTime;

/// A clock that a test sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestClock(Rc<Cell<u64>>);

impl TestClock {
    pub(crate) fn set(&self, now_ms: u64) {
        self.0.set(now_ms);
    }
    pub(crate) fn clock(&self) -> Clock {
        Clock::manual(self.0.clone())
    }
}

/// A context with a kernel and a plane in memory.
pub(crate) struct World {
    pub(crate) ctx: Context,
    pub(crate) kernel: FakeKernel,
    pub(crate) clock: TestClock,
    _directory: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let bench = Bench::new();
        let Parts { switch, plane, kernel, clock, paths, log, .. } = bench.parts();
        let ctx = Context::new(switch, plane, kernel, clock, log, paths);
        Self { ctx, kernel: bench.kernel, clock: bench.clock, _directory: bench.directory }
    }
}

/// The parts of a core, from which it can be created again for a restart.
pub(crate) struct Bench {
    pub(crate) kernel: FakeKernel,
    pub(crate) plane: Faults,
    pub(crate) clock: TestClock,
    pub(crate) directory: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            kernel: FakeKernel::default(),
            plane: Faults::default(),
            clock: TestClock::default(),
            directory: tempfile::tempdir().expect("a directory"),
        }
    }
    pub(crate) fn paths(&self) -> Paths {
        Paths::below(self.directory.path())
    }
    /// The parts of a core, with the record that an earlier one has left.
    pub(crate) fn parts(&self) -> Parts {
        let paths = self.paths();
        std::fs::create_dir_all(&paths.run).expect("made");
        let record = std::fs::read(paths.record()).ok();
        let record: Record =
            record.map(|text| serde_json::from_slice(&text).expect("a record")).unwrap_or_default();
        let (soft, _ports) = SoftPlane::in_memory().expect("a plane");
        let plane = FaultyPlane { soft, _ports, faults: self.plane.clone() };
        let identity = Identity { instance: "test".into(), base_mac: MacAddr([2, 0, 0, 0, 0, 0]) };
        let facts = self.kernel.clone().facts().expect("facts");
        Parts {
            switch: Switch::new(identity, facts, plane.state(), record),
            plane: Box::new(plane),
            kernel: Box::new(self.kernel.clone()),
            clock: self.clock.clock(),
            startup_file: paths.startup_config(),
            paths,
            log: Log::new(true),
            plane_since: SystemTime::now(),
            following: Following::new().expect("a descriptor"),
        }
    }
    pub(crate) fn core(&self) -> Core {
        Core::new(self.parts())
    }
}

/// Parses a configuration in the command line's language.
pub(crate) fn config(text: &str) -> Config {
    let (config, refused) = lanyard_cli::edit::apply_text(text, &Config::default());
    assert!(refused.is_empty(), "{refused:?}");
    config
}

/// Makes `config` the running configuration without carrying anything out.
pub(crate) fn accept(ctx: &mut Context, config: Config) {
    let plan = ctx.switch.plan(0, config).expect("a plan");
    ctx.switch.accept(plan);
}

/// The log's messages, as `MNEMONIC: text`.
pub(crate) fn messages(ctx: &Context) -> Vec<String> {
    let messages = ctx.log.view().messages;
    messages.into_iter().map(|message| format!("{}: {}", message.mnemonic, message.text)).collect()
}

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
    /// Every action that was carried out.
    pub(crate) done: Vec<Action>,
    /// The number of the action that fails, counted from 1 since it was set.
    pub(crate) fail_at: Option<usize>,
    /// How often a table of routes was listed.
    pub(crate) dumps: usize,
    /// Messages that the routing sockets deliver next.
    said: Vec<Said>,
    last_index: u32,
}

/// A message of a routing socket.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    Link(Box<Link>),
    Neighbour(Neighbour),
    /// The body of a route message, and whether the route was removed.
    Route(Vec<u8>, bool),
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
    pub(crate) fn say(&self, said: Said) {
        self.state().said.push(said);
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
    fn act(&mut self, action: &Action) -> Result<()> {
        if let Some(left) = &mut self.fail_at {
            *left -= 1;
            if *left == 0 {
                self.fail_at = None;
                return Err(KernelError::io("the fault of the test", io::Error::other("refused")));
            }
        }
        match action {
            Action::Namespace { vrf, mark, add: true } => {
                drop(self.namespaces.insert(vrf.clone(), mark.clone()))
            }
            Action::Namespace { vrf, .. } => drop(self.namespaces.remove(vrf)),
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
            Action::Address { name, net, .. } => drop(self.addresses.remove(&(name.clone(), *net))),
            Action::Knob { vrf, knob, to, .. } => drop(self.knobs.insert((vrf.clone(), *knob), *to)),
            Action::Speed { .. } => {}
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
    fn addresses(&self, _vrf: Option<&str>, _ifindex: Option<u32>) -> Result<Vec<Address>> {
        Ok(Vec::new())
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
        if via.is_some_and(|via| state.unreachable.contains(&via)) {
            return Err(KernelError::io("adding a route", io::Error::from_raw_os_error(libc::EHOSTUNREACH)));
        }
        let routes = state.routes.entry(vrf.map(str::to_owned)).or_default();
        routes.retain(|known| (known.dest, known.metric) != (route.dest, route.metric));
        routes.push(route.clone());
        Ok(())
    }
    fn del_route(&self, vrf: Option<&str>, route: &Route) -> Result<()> {
        let mut state = self.state();
        let routes = state.routes.entry(vrf.map(str::to_owned)).or_default();
        routes.retain(|known| (known.dest, known.metric) != (route.dest, route.metric));
        Ok(())
    }
    fn neighbours(&self, _vrf: Option<&str>, _family: Family) -> Result<Vec<Neighbour>> {
        Ok(Vec::new())
    }
    fn set_neighbour(&self, _vrf: Option<&str>, ifindex: u32, address: IpAddr, mac: MacAddr) -> Result<()> {
        self.state().neighbours.insert((ifindex, address), mac);
        Ok(())
    }
    fn del_neighbour(&self, _vrf: Option<&str>, ifindex: u32, address: IpAddr) -> Result<()> {
        self.state().neighbours.remove(&(ifindex, address));
        Ok(())
    }
    fn settings(&self, _name: &str) -> Result<Settings> {
        Ok(Settings { speed_mbps: Some(1000), ..Settings::default() })
    }
    fn driver(&self, _name: &str) -> Result<String> {
        Ok("test".into())
    }
    fn follow(&self, _vrf: Option<&str>) -> Result<Box<dyn RouteSource>> {
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
    fn legacy(&self) -> lanyard_netdev::Result<BTreeSet<FilterHook>> {
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
    fn read(&mut self, most: usize, each: &mut dyn FnMut(Heard<'_>)) -> usize {
        let mut state = self.kernel.state();
        let count = state.said.len().min(most);
        let said: Vec<Said> = state.said.drain(..count).collect();
        drop(state);
        for said in said {
            match said {
                Said::Link(link) => each(Heard::Link(link, false)),
                Said::Neighbour(neighbour) => each(Heard::Neighbour(neighbour, false)),
                Said::Route(body, gone) => {
                    let route = lanyard_wire::rtnetlink::Route::new(&body).expect("a route");
                    each(Heard::Route { route, flags: 0, gone });
                }
            }
        }
        count
    }
    fn list(&mut self, table: Table) -> io::Result<()> {
        self.listing = Some(table);
        Ok(())
    }
    fn read_listing(&mut self, _most: usize, each: &mut dyn FnMut(Heard<'_>)) -> io::Result<Progress> {
        if self.listing.take() == Some(Table::Links) {
            for link in self.kernel.links(None).unwrap_or_default() {
                each(Heard::Link(Box::new(link), false));
            }
        }
        Ok(Progress::Done { consistent: true })
    }
    fn use_neighbours(&mut self, _neighbours: &[(u32, IpAddr)]) {}
}

/// Frames, and the ports they leave by.
pub(crate) type Frames = Vec<(PortId, Vec<u8>)>;

/// Selects which calls of a plane fail, and records what it did. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// A state is refused if it has a port of this name with a netdev.
    pub(crate) refused_port: Rc<RefCell<Option<String>>>,
    /// Frames that were injected.
    pub(crate) injected: Rc<RefCell<Frames>>,
    /// Events that the plane reports next.
    pub(crate) events: Rc<RefCell<Vec<PlaneEvent>>>,
}

/// The soft plane in memory, with faults.
struct FaultyPlane {
    soft: SoftPlane,
    _ports: MemoryPorts,
    faults: Faults,
}

impl Plane for FaultyPlane {
    fn capabilities(&self) -> &Capabilities {
        self.soft.capabilities()
    }
    fn state(&self) -> &PlaneState {
        self.soft.state()
    }
    fn apply(&mut self, next: &PlaneState) -> std::result::Result<(), PlaneError> {
        let refused = self.faults.refused_port.borrow().clone();
        let hit = |port: &&lanyard_pipeline::state::PortState| {
            port.ifindex != 0 && Some(&port.name) == refused.as_ref()
        };
        match next.ports.values().find(hit) {
            Some(port) => Err(PlaneError::Invalid(format!("{} is refused by the test", port.name))),
            None => self.soft.apply(next),
        }
    }
    fn fdb_walk(&mut self, filter: &FdbFilter, visit: &mut dyn FnMut(FdbEntry)) {
        self.soft.fdb_walk(filter, visit);
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        self.soft.fdb_flush(filter)
    }
    fn fdb_sweep(&mut self, ageing_s: Option<u32>) -> Sweep {
        self.soft.fdb_sweep(ageing_s)
    }
    fn fdb_dynamic(&mut self) -> u64 {
        self.soft.fdb_dynamic()
    }
    fn port_counters(&mut self, port: PortId) -> PortCounters {
        self.soft.port_counters(port)
    }
    fn vlan_counters(&mut self, vlan: VlanId) -> FrameCount {
        self.soft.vlan_counters(vlan)
    }
    fn trap_counters(&mut self) -> [TrapCounters; TrapGroup::SLOTS] {
        self.soft.trap_counters()
    }
    fn trap_reasons(&mut self) -> [u64; TrapReason::SLOTS] {
        self.soft.trap_reasons()
    }
    fn resources(&mut self) -> Vec<TableUsage> {
        self.soft.resources()
    }
    fn clear_counters(&mut self, port: PortId) {
        self.soft.clear_counters(port);
    }
    fn port_hook(&self, port: PortId) -> Hook {
        self.soft.port_hook(port)
    }
    fn event_fd(&self) -> Option<i32> {
        self.soft.event_fd()
    }
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        self.faults.events.borrow_mut().drain(..).for_each(&mut *handle);
        self.soft.poll_events(handle);
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> std::result::Result<(), PlaneError> {
        self.faults.injected.borrow_mut().push((port, frame.to_vec()));
        Ok(())
    }
    fn trace(&mut self, port: PortId, frame: &[u8]) -> std::result::Result<Trace, PlaneError> {
        self.soft.trace(port, frame)
    }
    fn route(&mut self, changes: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        self.soft.route(changes)
    }
    fn route_synced(&mut self) -> std::result::Result<(), PlaneError> {
        self.soft.route_synced()
    }
    fn route_lookup(&mut self, vrf: VrfId, address: IpAddr) -> RouteLookup {
        self.soft.route_lookup(vrf, address)
    }
    fn adjacencies_used(&mut self, visit: &mut dyn FnMut(lanyard_types::AdjacencyId, u32)) {
        self.soft.adjacencies_used(visit);
    }
    fn detach(&mut self) -> std::result::Result<(), PlaneError> {
        self.soft.detach()
    }
}
