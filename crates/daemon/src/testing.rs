//! The foundation of the daemon's unit tests: a kernel, a plane and a clock in memory.
//!
//! Invariant: a test that uses only these needs no rights, no namespace and no real time.

mod kernel;

pub(crate) use kernel::{FakeKernel, FakeNotification};

use crate::bus::Subscription;
use crate::clock::Clock;
use crate::context::Context;
use crate::core::{Core, Parts};
use crate::kernel::Kernel;
use crate::log::Log;
use crate::paths::Paths;
use crate::protocols::Protocols;
use crate::protocols::keeper::Keeper;
use crate::protocols::trees::Trees;
use crate::routing::Following;
use lanyard_config::Config;
use lanyard_plane::{
    Capabilities, ChannelMembers, ChipSettings, ChipStatus, FdbEntry, FdbFilter, Hook, MdbChange, Plane,
    PlaneError, PlaneEvent, PlaneState, PortCounters, ProtocolPlane, RouteChange, RouteLookup, Sweep,
    TableUsage, Trace, TrapCounters, Trapped, TreeStates,
};
use lanyard_soft::{MemoryPorts, SoftPlane};
use lanyard_switch::{Identity, Record, Switch};
use lanyard_types::{
    AclId, Binding, BindingKey, ChannelId, FrameCount, InstanceId, MacAddr, PortId, PortSet, StpState,
    TrapGroup, TrapReason, VlanId, VrfId,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

/// The events that a listener has not read yet.
pub(crate) fn received(listener: &mut Subscription) -> Vec<serde_json::Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut events = Vec::new();
    runtime.block_on(async {
        loop {
            tokio::select! {
                biased;
                line = listener.next() => {
                    events.push(serde_json::from_str(&line.expect("the bus is there")).expect("JSON"));
                }
                () = std::future::ready(()) => return,
            }
        }
    });
    events
}

/// A route message as the kernel sends it, with these gateways.
pub(crate) fn route(dest: &str, via: &[[u8; 4]], ifindex: u32) -> Vec<u8> {
    use lanyard_wire::rtnetlink::{HEADER_LEN, Hop, NEW_ROUTE, Route, Writer};
    let mut route = Route::to(dest.parse().expect("a prefix"));
    route.table = lanyard_netdev::TABLE_MAIN;
    let hop = |via: &[u8; 4]| Hop { via: Some((*via).into()), ifindex, weight: 1, flags: 0 };
    let hops: Vec<Hop> = via.iter().map(hop).collect();
    let mut message = Vec::new();
    let mut writer = Writer::route(&mut message, NEW_ROUTE, 0, &route);
    writer.hops(route.dest, &hops);
    writer.end();
    message.split_off(HEADER_LEN)
}

/// A clock that a test sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
    pub(crate) fn clock(&self) -> Clock {
        Clock::manual(self.0.clone())
    }
}

/// A context with a kernel and a plane in memory.
pub(crate) struct World {
    pub(crate) ctx: Context,
    pub(crate) kernel: FakeKernel,
    pub(crate) plane: Faults,
    pub(crate) clock: TestClock,
    _directory: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let bench = Bench::new();
        let Parts { switch, plane, protocols, kernel, clock, paths, log, .. } = bench.parts();
        let ctx = Context::new(switch, plane, protocols, kernel, clock, log, paths);
        let Bench { kernel, plane, clock, directory, .. } = bench;
        Self { ctx, kernel, plane, clock, _directory: directory }
    }
}

/// The parts of a core, from which it can be created again for a restart.
pub(crate) struct Bench {
    pub(crate) kernel: FakeKernel,
    pub(crate) plane: Faults,
    pub(crate) clock: TestClock,
    pub(crate) directory: tempfile::TempDir,
    /// The ports of the present plane.
    pub(crate) ports: RefCell<Option<MemoryPorts>>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            kernel: FakeKernel::default(),
            plane: Faults::default(),
            clock: TestClock::default(),
            directory: tempfile::tempdir().expect("a directory"),
            ports: RefCell::default(),
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
        let (soft, ports) = SoftPlane::in_memory().expect("a plane");
        *self.ports.borrow_mut() = Some(ports.clone());
        let queued = Capabilities { queues: true, ..soft.capabilities().clone() };
        let mut plane = FaultyPlane { soft, _ports: ports, faults: self.plane.clone(), queued };
        let clock = self.clock.clock();
        let protocols = Protocols::new(&mut plane, clock.clone(), |_| Trees::new(Keeper::new(&paths), None));
        let identity = Identity { instance: "test".into(), base_mac: MacAddr([2, 0, 0, 0, 0, 0]) };
        let facts = self.kernel.clone().facts().expect("facts");
        Parts {
            switch: Switch::new(identity, facts, plane.state(), record),
            plane: Box::new(plane),
            protocols: protocols.expect("a descriptor"),
            kernel: Box::new(self.kernel.clone()),
            clock,
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
    /// Adds netdevs whose links are up, and reports their links to the switch.
    pub(crate) fn plug(&self, core: &mut Core, names: &[&str]) {
        for name in names {
            self.kernel.add(name);
            let event = self.kernel.change(name, |link| (link.admin_up, link.carrier) = (true, true));
            core.netdev_events(vec![event]);
        }
    }
}

/// Parses a configuration in the command line's language.
pub(crate) fn config(text: &str) -> Config {
    let (config, refused) = lanyard_cli::apply_text(text, &Config::default());
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

/// Frames, and the ports they leave by.
pub(crate) type Frames = Vec<(PortId, Vec<u8>)>;

/// A value that a test and the switch share, on whatever thread.
#[derive(Debug, Default)]
pub(crate) struct Common<T>(Arc<Mutex<T>>);

impl<T> Clone for Common<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Common<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("nobody panicked")
    }
}

/// The calls of a plane that fail, and a record of what it did. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// The name of a port: states in which it has a netdev are refused.
    pub(crate) refused_port: Common<Option<String>>,
    /// The number of calls of [`Plane::apply`] so far.
    pub(crate) applied: Arc<AtomicUsize>,
    /// Numbers of those calls that are refused, counted from 1.
    pub(crate) refused_calls: Common<BTreeSet<usize>>,
    /// How often routing was confirmed.
    pub(crate) confirmed: Arc<AtomicUsize>,
    /// The number of interfaces that the next confirmation of routing reports, at which routing had ended.
    pub(crate) ended: Arc<AtomicUsize>,
    /// The settings of the plane's chip; `None` if it has no chip.
    pub(crate) chip: Common<Option<ChipSettings>>,
    /// Each begin (true) and end (false) of a packet capture.
    pub(crate) captures: Common<Vec<(PortId, bool)>>,
    /// True while states of ports in trees are refused.
    pub(crate) refuses_trees: Common<bool>,
    /// Why entries of multicast groups are refused.
    pub(crate) refuses_groups: Common<Option<PlaneError>>,
    /// The number of entries of multicast groups that were refused so far.
    pub(crate) refused_groups: Arc<AtomicUsize>,
    /// Why all changes of the next call of [`Plane::route`] are refused.
    pub(crate) refuses_routes: Common<Option<PlaneError>>,
    /// The states of ports in trees that the plane has.
    pub(crate) trees: Common<TreeStates>,
    /// The members of port-channels that the plane has.
    pub(crate) channels: Common<BTreeMap<ChannelId, ChannelMembers>>,
    /// The mark for the next daemon.
    pub(crate) mark: Common<u64>,
    /// Frames that were injected.
    pub(crate) injected: Common<Frames>,
    /// The injected frames, each with the state that its port had in the tree 0 at that time.
    pub(crate) sent_in: Common<Vec<(PortId, Vec<u8>, StpState)>>,
    /// The frames that the protocols receive next.
    pub(crate) trapped: Common<Vec<Trapped>>,
    /// The descriptor that is to be readable while frames wait, in place of the soft plane's.
    pub(crate) trap_fd: Common<Option<OwnedFd>>,
    /// The number of calls of [`ProtocolPlane::poll_traps`] so far.
    pub(crate) polls: Arc<AtomicUsize>,
    /// The events that the plane reports next.
    pub(crate) events: Common<Vec<PlaneEvent>>,
    /// True if the plane uses the queues of its ports, which the soft plane does not.
    pub(crate) queues: Arc<AtomicBool>,
}

/// The part of a [`FaultyPlane`] that protocols use.
struct FaultyProtocols {
    soft: Box<dyn ProtocolPlane>,
    faults: Faults,
}

impl ProtocolPlane for FaultyProtocols {
    fn event_fd(&self) -> RawFd {
        self.faults.trap_fd.lock().as_ref().map_or_else(|| self.soft.event_fd(), AsRawFd::as_raw_fd)
    }
    fn poll_traps(&mut self, handle: &mut dyn FnMut(Trapped)) -> usize {
        self.faults.polls.fetch_add(1, Ordering::Relaxed);
        let frames = std::mem::take(&mut *self.faults.trapped.lock());
        let count = frames.len();
        frames.into_iter().for_each(&mut *handle);
        count + self.soft.poll_traps(handle)
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> std::result::Result<(), PlaneError> {
        let pair = (InstanceId::default(), port);
        let state = self.faults.trees.lock().stp.get(&pair).copied().unwrap_or_default();
        self.faults.sent_in.lock().push((port, frame.to_vec(), state));
        self.faults.injected.lock().push((port, frame.to_vec()));
        Ok(())
    }
    fn relay(&mut self, vlan: VlanId, from: Option<PortId>, ports: &PortSet, frame: &[u8]) -> usize {
        self.soft.relay(vlan, from, ports, frame)
    }
    fn multicast(&mut self, change: &MdbChange) -> std::result::Result<(), PlaneError> {
        match (&*self.faults.refuses_groups.lock(), change) {
            (Some(reason), MdbChange::Entry { ports: Some(_), .. }) => {
                self.faults.refused_groups.fetch_add(1, Ordering::Relaxed);
                Err(reason.clone())
            }
            _ => self.soft.multicast(change),
        }
    }
    fn multicast_held(&self) -> Vec<MdbChange> {
        self.soft.multicast_held()
    }
    fn bind(&mut self, key: BindingKey, mac: Option<MacAddr>) -> std::result::Result<(), PlaneError> {
        self.soft.bind(key, mac)
    }
    fn bindings(&self) -> Vec<Binding> {
        self.soft.bindings()
    }
    fn trees(&self) -> TreeStates {
        self.soft.trees()
    }
    fn set_trees(&mut self, trees: &TreeStates) -> std::result::Result<(), PlaneError> {
        if *self.faults.refuses_trees.lock() {
            return Err(PlaneError::Invalid("no space left on the device".into()));
        }
        self.faults.trees.lock().clone_from(trees);
        self.soft.set_trees(trees)
    }
    fn channels(&self) -> BTreeMap<ChannelId, ChannelMembers> {
        self.faults.channels.lock().clone()
    }
    fn set_channel(
        &mut self,
        channel: ChannelId,
        members: &ChannelMembers,
    ) -> std::result::Result<(), PlaneError> {
        self.faults.channels.lock().insert(channel, members.clone());
        self.soft.set_channel(channel, members)
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        self.soft.fdb_flush(filter)
    }
    fn mark(&mut self, mark: u64) {
        *self.faults.mark.lock() = mark;
    }
    fn marked(&self) -> u64 {
        *self.faults.mark.lock()
    }
}

/// The soft plane in memory, with faults.
struct FaultyPlane {
    soft: SoftPlane,
    _ports: MemoryPorts,
    faults: Faults,
    /// The capabilities while [`Faults::queues`] is set.
    queued: Capabilities,
}

impl Plane for FaultyPlane {
    fn capabilities(&self) -> &Capabilities {
        if self.faults.queues.load(Ordering::Relaxed) { &self.queued } else { self.soft.capabilities() }
    }
    fn state(&self) -> &PlaneState {
        self.soft.state()
    }
    fn apply(&mut self, next: &PlaneState) -> std::result::Result<(), PlaneError> {
        let refused = self.faults.refused_port.lock().clone();
        let hit = |port: &&lanyard_pipeline::state::PortState| {
            port.ifindex != 0 && Some(&port.name) == refused.as_ref()
        };
        let call = self.faults.applied.fetch_add(1, Ordering::Relaxed) + 1;
        if self.faults.refused_calls.lock().contains(&call) {
            return Err(PlaneError::Invalid("the call is refused by the test".into()));
        }
        match next.ports.values().find(hit) {
            Some(port) => Err(PlaneError::Invalid(format!("{} is refused by the test", port.name))),
            None => self.soft.apply(next),
        }
    }
    fn confirm_routing(&mut self, _hold: std::time::Duration) -> std::result::Result<u64, PlaneError> {
        self.faults.confirmed.fetch_add(1, Ordering::Relaxed);
        Ok(self.faults.ended.swap(0, Ordering::Relaxed) as u64)
    }
    fn protocols(&mut self) -> std::result::Result<Box<dyn ProtocolPlane>, PlaneError> {
        Ok(Box::new(FaultyProtocols { soft: self.soft.protocols()?, faults: self.faults.clone() }))
    }
    fn acl_matches(&mut self, id: AclId) -> Vec<u64> {
        self.soft.acl_matches(id)
    }
    fn clear_acl_matches(&mut self, id: AclId, of: Option<&str>) {
        self.soft.clear_acl_matches(id, of);
    }
    fn class_counters(
        &mut self,
        port: PortId,
        direction: lanyard_plane::Direction,
    ) -> Vec<lanyard_plane::ClassCounters> {
        self.soft.class_counters(port, direction)
    }
    fn clear_class_counters(&mut self, port: PortId) {
        self.soft.clear_class_counters(port);
    }
    fn fdb_part(&mut self, filter: &FdbFilter, from: u32, visit: &mut dyn FnMut(FdbEntry)) -> Option<u32> {
        self.soft.fdb_part(filter, from, visit)
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
    fn configure_chip(
        &mut self,
        settings: &ChipSettings,
        configured: &BTreeSet<String>,
    ) -> std::result::Result<(), PlaneError> {
        match &mut *self.faults.chip.lock() {
            Some(chip) => {
                chip.clone_from(settings);
                Ok(())
            }
            None => self.soft.configure_chip(settings, configured),
        }
    }
    fn chip(&mut self) -> Option<ChipStatus> {
        self.faults.chip.lock().as_ref().map(|chip| ChipStatus {
            platform: "test".into(),
            up: true,
            control_path: chip.control_path,
            strategy: chip.strategy,
            confidence: 1.0,
            hidden_routes: 0,
            diverted_lists: Vec::new(),
            tables: Vec::new(),
            ports: Vec::new(),
        })
    }
    fn capture(&mut self, port: PortId, on: bool) -> std::result::Result<(), PlaneError> {
        self.faults.captures.lock().push((port, on));
        Ok(())
    }
    fn event_fd(&self) -> Option<i32> {
        self.soft.event_fd()
    }
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        self.faults.events.lock().drain(..).for_each(&mut *handle);
        self.soft.poll_events(handle);
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> std::result::Result<(), PlaneError> {
        self.soft.inject(port, frame)
    }
    fn trace(&mut self, port: PortId, frame: &[u8]) -> std::result::Result<Trace, PlaneError> {
        self.soft.trace(port, frame)
    }
    fn route(&mut self, changes: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        match self.faults.refuses_routes.lock().take() {
            Some(reason) => (0..changes.len()).map(|at| (at, reason.clone())).collect(),
            None => self.soft.route(changes),
        }
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
