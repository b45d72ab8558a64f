//! [`EbpfPlane`]: the plane's parts, and the [`Plane`] trait over them.

use crate::abi::{self, FdbCall};
use crate::acl::Acls;
use crate::acl_layout::ACLS;
use crate::attach::Hooks;
use crate::bindings::{self, Bindings};
use crate::bpffs::Pins;
use crate::chains::Chains;
use crate::clock::{now_ns, now_s, of_monotonic};
use crate::dry::{Dry, DryFrame, DryMode, DryRun};
use crate::error::{Doing, Result, system};
use crate::events::Events;
use crate::fdb::flush_call;
use crate::follow::Follower;
use crate::hurry::Hurry;
use crate::inject::Injector;
use crate::lower::{PortFacts, VlanSets};
use crate::mdb::{self, Mdb};
use crate::object::Programs;
use crate::pairs::Pairs;
use crate::protocols::EbpfProtocols;
use crate::qos::{self, Policies};
use crate::routing::Routing;
use crate::saved::{Counts, StateFile};
use crate::tables::{Tables, run_call};
use crate::watchdog;
use crate::words;
use lanyard_netdev::Netdev;
use lanyard_pipeline::qos::{ClassCounters, Direction};
use lanyard_plane::{
    Capabilities, FdbEntry, FdbFilter, Hook, MAX_TRACE_FRAME, MdbChange, Plane, PlaneError, PlaneEvent,
    PlaneState, PortCounters, ProtocolPlane, RouteChange, RouteLookup, Sweep, TableUsage, Trace,
    TrapCounters,
};
use lanyard_types::{
    AclId, AdjacencyId, BindingKey, FrameCount, MAX_PORTS, MacAddr, PortId, RifId, TrapGroup, TrapReason,
    VlanId, VrfId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The forwarding plane in the kernel. Dropping it leaves its objects in the kernel; [`Plane::detach`] removes
/// them.
#[derive(Debug)]
pub struct EbpfPlane {
    pub(crate) tables: Arc<Tables>,
    /// The writer of the tables of (port, VLAN) pairs.
    pub(crate) pairs: Arc<Pairs>,
    /// The writer of the MDB, which the protocols use.
    pub(crate) mdb: Arc<Mutex<Mdb>>,
    /// The writer of the bindings of first-hop security, which the protocols use.
    pub(crate) bindings: Arc<Mutex<Bindings>>,
    pub(crate) programs: Programs,
    /// The parts of a plane that outlive the daemon. A private plane has none.
    pub(crate) kept: Option<Kept>,
    pub(crate) state: PlaneState,
    /// The facts about the ports' netdevs.
    pub(crate) facts: BTreeMap<PortId, PortFacts>,
    /// How many packet captures run at each port.
    pub(crate) captures: BTreeMap<PortId, u32>,
    /// The values of counters when they were last cleared.
    pub(crate) cleared: BTreeMap<PortId, Counts>,
    /// Ports that are removed or replaced if the transaction in progress succeeds.
    pub(crate) leaving: BTreeSet<PortId>,
    /// VLANs that are removed if the transaction in progress succeeds.
    pub(crate) emptied: Vec<VlanId>,
    /// The VLANs of both states for which ports have flags, while a transaction is in progress.
    pub(crate) vlan_flags: VlanSets,
    /// True if the tables may not hold `state`: the next state is then written completely.
    pub(crate) rough: bool,
    pub(crate) events: Events,
    /// Reports changes of netdevs; `None` in a private plane, and while changes are being
    /// processed.
    pub(crate) follower: Option<Follower>,
    pub(crate) dry: Dry,
    pub(crate) injector: Option<Injector>,
    pub(crate) capabilities: Capabilities,
    /// The highest occupancy of each table that this process has seen.
    pub(crate) peaks: BTreeMap<&'static str, u64>,
    pub(crate) routing: Routing,
    pub(crate) acls: Acls,
    pub(crate) policies: Policies,
    /// True if a VLAN or VLAN interface has access lists.
    pub(crate) vlan_lists: bool,
    /// The change that fails next, counted from 1.
    #[cfg(test)]
    pub(crate) fail_at: Option<usize>,
    /// How many rows of ports have been written.
    #[cfg(test)]
    pub(crate) rows_written: std::sync::atomic::AtomicUsize,
}

/// Pins, hooks, and the connection to the netdevs.
#[derive(Debug)]
pub(crate) struct Kept {
    pub pins: Pins,
    pub file: StateFile,
    pub hooks: Hooks,
    pub netdev: Netdev,
    pub chains: Chains,
}

impl EbpfPlane {
    fn entry(&self, key: u64, value: abi::FdbValue, now: u32) -> Option<FdbEntry> {
        words::fdb_entry(key, value, now)
    }

    /// Moves FDB entries to their new places after the programs have begun to use more of the
    /// table.
    pub(crate) fn migrate(&self) {
        let (now, was) = self.tables.fdb_masks();
        if now == was {
            return;
        }
        // A few rounds: entries that still wait for room are found at their old places, and moved
        // later.
        for _ in 0..8 {
            let mut call = FdbCall::default();
            if run_call(&self.programs.fdb_migrate, &mut call).is_err() || call.removed == 0 {
                return;
            }
        }
    }

    /// Changes the MDB of a plane whose protocols have no thread of their own, such as one for dry runs. See
    /// [`ProtocolPlane::multicast`].
    ///
    /// # Errors
    /// As there.
    pub fn multicast(&mut self, change: &MdbChange) -> Result<()> {
        self.mdb.lock().unwrap_or_else(PoisonError::into_inner).change(change)
    }

    /// Enters, replaces or removes a binding of a plane whose protocols have no thread of their own. See
    /// [`ProtocolPlane::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<()> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner).set(key, mac)
    }

    fn scan(&self, mut call: FdbCall) -> Option<FdbCall> {
        // The call does not fail over existing tables; if it did, nothing would have been removed.
        run_call(&self.programs.fdb_scan, &mut call).ok().map(|()| call)
    }

    fn counted(&self, port: PortId) -> PortCounters {
        let stats = self.tables.port_stats(port);
        let mut counters = PortCounters {
            rx: FrameCount { frames: stats.rx_frames, bytes: stats.rx_bytes },
            tx: FrameCount { frames: stats.tx_frames, bytes: stats.tx_bytes },
            trapped: stats.trapped,
            forwarded: stats.forwarded,
            tx_dropped: stats.tx_dropped,
            ..PortCounters::default()
        };
        counters.dropped.iter_mut().zip(stats.dropped).for_each(|(to, from)| *to = from);
        counters
    }

    /// Saves the present values of a port's counters as their zero.
    pub(crate) fn set_zero(&mut self, port: PortId) {
        let zero = Counts::of(&self.counted(port));
        self.cleared.insert(port, zero);
    }

    /// Reports routing tables: routes use memory of this process and of the shared structures; the other
    /// tables are arrays of their own.
    fn routing_resources(&mut self) -> Vec<TableUsage> {
        let bytes = self.tables.bytes(&["rifs", "vlan_rifs", "sub_rifs"]);
        let rifs = self.usage("rifs", RifId::MAX.index() as u64, self.state.rifs.len() as u64, bytes);
        let array = |name: &str| match name {
            "next_hop_groups" => self.tables.bytes(&["nh_groups"]),
            "next_hop_buckets" => self.tables.bytes(&["nh_buckets"]),
            "adjacencies" => self.tables.bytes(&["adjacencies"]),
            name => self.routing.rib.bytes(name) as u64,
        };
        let row = |name, size, used, high_water, refused, bytes| {
            let shared_with = Vec::new();
            TableUsage { name, size, used, high_water, refused, bytes, shared_with }
        };
        let rib = self.routing.rib.occupancy().map(|(name, size, now)| {
            row(name, size as u64, now.used as u64, now.high_water as u64, now.refused, array(name))
        });
        let structures = self
            .routing
            .structures()
            .into_iter()
            .map(|s| row(s.name, s.size, s.used, s.high_water, s.refused, s.bytes));
        std::iter::once(rifs).chain(rib).chain(structures).collect()
    }

    fn usage(&mut self, name: &'static str, size: u64, used: u64, bytes: u64) -> TableUsage {
        let peak = self.peaks.entry(name).or_default();
        *peak = (*peak).max(used);
        TableUsage { name, size, used, high_water: *peak, refused: 0, bytes, shared_with: Vec::new() }
    }
}

impl Plane for EbpfPlane {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn state(&self) -> &PlaneState {
        &self.state
    }
    fn apply(&mut self, next: &PlaneState) -> Result<(), PlaneError> {
        self.apply_state(next)
    }

    fn watchdog(&mut self, after: Option<Duration>) -> Result<(), PlaneError> {
        watchdog::set(&self.programs.watchdog_set, abi::WATCHDOG_TREES, after)
    }
    fn watchdog_expired(&mut self) -> bool {
        watchdog::take_expired(&self.pairs, &mut self.events, &mut self.state)
    }
    fn confirm_routing(&mut self, hold: Duration) -> Result<u64, PlaneError> {
        EbpfPlane::confirm_routing(self, hold)
    }
    fn protocols(&mut self) -> Result<Box<dyn ProtocolPlane>, PlaneError> {
        let writers = (self.mdb.clone(), self.bindings.clone());
        let part = EbpfProtocols::open(self.tables.clone(), self.pairs.clone(), writers, &self.programs)?;
        self.events.leave_traps(&self.tables)?;
        self.pairs.lock().claim();
        self.state.stp.clear();
        self.state.watched.clear();
        self.state.channels.clear();
        Ok(Box::new(part))
    }

    fn fdb_part(&mut self, filter: &FdbFilter, from: u32, visit: &mut dyn FnMut(FdbEntry)) -> Option<u32> {
        let now = now_s();
        self.tables.fdb_part(from, &mut |key, value| {
            if let Some(entry) = self.entry(key, value, now).filter(|entry| filter.matches(entry)) {
                visit(entry);
            }
        })
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        let Some(call) = flush_call(filter) else { return 0 };
        self.scan(call).map_or(0, |call| call.removed)
    }
    fn fdb_sweep(&mut self, ageing_s: Option<u32>) -> Sweep {
        self.migrate();
        let ageing = ageing_s.unwrap_or(abi::NO_AGE);
        let call = FdbCall { scan: abi::SCAN_SWEEP, ageing_s: ageing, ..FdbCall::default() };
        let Some(call) = self.scan(call) else { return Sweep::default() };
        let oldest = Some(call.oldest_s).filter(|age| *age != abi::NO_AGE);
        let next_in_s = ageing_s.and_then(|ageing| Some(ageing.saturating_sub(oldest?)));
        Sweep { aged: call.removed, next_in_s }
    }
    fn fdb_dynamic(&mut self) -> u64 {
        u64::try_from(self.tables.usage_table().count).unwrap_or(0)
    }

    fn port_counters(&mut self, port: PortId) -> PortCounters {
        let now = self.counted(port);
        self.cleared.get(&port).map_or_else(|| Counts::default().since(&now), |zero| zero.since(&now))
    }
    fn vlan_counters(&mut self, vlan: VlanId) -> FrameCount {
        let stats = self.tables.vlan_stats(vlan);
        FrameCount { frames: stats.frames, bytes: stats.bytes }
    }
    fn trap_counters(&mut self) -> [TrapCounters; TrapGroup::SLOTS] {
        std::array::from_fn(|row| {
            let group = self.tables.trap_groups.get(row);
            TrapCounters { passed: group.passed, policed: group.policed, lost: group.lost }
        })
    }
    fn trap_reasons(&mut self) -> [u64; TrapReason::SLOTS] {
        std::array::from_fn(|reason| self.tables.trap_reasons.get(reason))
    }
    fn resources(&mut self) -> Vec<TableUsage> {
        let fixed = self.state.fdb.len() as u64;
        let usage = self.tables.usage_table();
        let dynamic = u64::try_from(usage.count).unwrap_or(0);
        let limit = u64::from(self.state.global.fdb_limit);
        let mut fdb = self.usage(
            "fdb",
            limit,
            dynamic + fixed,
            self.tables.bytes(&["fdb", "fdb_near", "fdb_times", "fdb_state", "fdb_usage"]),
        );
        fdb.high_water = fdb.high_water.max(u64::from(usage.high_water) + fixed);
        fdb.refused = usage.refused;
        let ports = ["if_slots", "if_ports", "ports", "port_vlans", "port_stats", "xdp_ports", "xdp_flood"];
        let (used, bytes) = (self.state.ports.len() as u64, self.tables.bytes(&ports));
        let ports = self.usage("ports", MAX_PORTS as u64 - 1, used, bytes);
        let (used, bytes) = (self.state.vlans.len() as u64, self.tables.bytes(&["vlan_ports", "vlan_stats"]));
        let vlans = self.usage("vlans", 4094, used, bytes);
        let used = self.state.ports.values().filter(|port| port.aggregation.channel().is_some()).count();
        let bytes = self.tables.bytes(&["channels"]);
        let channels = self.usage("port_channels", abi::CHANNELS as u64 - 1, used as u64, bytes);
        let queues = self.events.queues(&self.tables);
        let queues = queues.map(|queue| {
            let mut row = self.usage(queue.name, queue.size, queue.used, queue.bytes);
            row.refused = queue.lost;
            row
        });
        let (used, bytes) = self.acls.usage();
        let bytes = bytes + self.tables.bytes(&["acl_ports", "acl_vlans"]);
        let lists = self.usage("access_lists", ACLS as u64 - 1, used, bytes);
        let bytes = self.tables.bytes(&["qos_rows", "qos_policies"]);
        let policies =
            self.usage("service_policies", qos::MAX_POLICIES as u64, qos::count(&self.state) as u64, bytes);
        let routing = self.routing_resources();
        let mdb = mdb::usage(&self.tables);
        let [bindings, bindings6] = bindings::usage(&self.tables);
        [fdb, mdb, bindings, bindings6, ports, vlans, channels, lists, policies]
            .into_iter()
            .chain(queues)
            .chain(routing)
            .collect()
    }
    fn acl_matches(&mut self, id: AclId) -> Vec<u64> {
        self.acls.matches(id)
    }
    fn clear_acl_matches(&mut self, id: AclId, of: Option<&str>) {
        self.acls.clear_matches(id, of);
    }
    fn class_counters(&mut self, port: PortId, direction: Direction) -> Vec<ClassCounters> {
        qos::counters(&self.tables, port, direction)
    }
    fn clear_class_counters(&mut self, port: PortId) {
        qos::clear(&self.tables, port);
    }
    fn clear_counters(&mut self, port: PortId) {
        self.set_zero(port);
        // The zeros are saved so that a restart does not show the old counts again.
        let _ = self.save();
    }
    fn port_hook(&self, port: PortId) -> Hook {
        let ifindex = self.state.ports.get(&port).map_or(0, |state| state.ifindex);
        let held = self.kept.as_ref().and_then(|kept| kept.hooks.held.get(&ifindex));
        match held {
            Some(held) if held.xdp.is_some() => Hook::Xdp,
            Some(held) if held.tc => Hook::Tc,
            _ => Hook::None,
        }
    }

    fn port_notes(&self, port: PortId) -> Vec<String> {
        self.facts.get(&port).map(PortFacts::notes).unwrap_or_default()
    }

    fn capture(&mut self, port: PortId, on: bool) -> Result<(), PlaneError> {
        let running = self.captures.entry(port).or_default();
        *running = if on { *running + 1 } else { running.saturating_sub(1) };
        if *running == 0 {
            self.captures.remove(&port);
        }
        match self.refresh_port(port) {
            Err(error) if on => {
                self.captures.remove(&port);
                Err(error)
            }
            // A port that was removed meanwhile needs nothing restored.
            Err(PlaneError::NoSuchPort(_)) => Ok(()),
            done => done.map(drop),
        }
    }

    fn event_fd(&self) -> Option<i32> {
        Some(self.events.fd())
    }
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        self.migrate();
        self.events.poll(&self.tables, handle);
        self.follow(handle);
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError> {
        let state = self.state.ports.get(&port).ok_or(PlaneError::NoSuchPort(port))?;
        let doing = || format!("sending a frame of {} bytes out of {}", frame.len(), state.name);
        if state.ifindex == 0 {
            return Err(system(doing(), "it has no netdev"));
        }
        let injector = match self.injector.take() {
            Some(injector) => injector,
            None => Injector::open().doing(doing)?,
        };
        let sent = injector.send(state.ifindex, frame).doing(doing);
        self.injector = Some(injector);
        sent
    }
    fn trace(&mut self, port: PortId, frame: &[u8]) -> Result<Trace, PlaneError> {
        if !self.state.ports.contains_key(&port) {
            return Err(PlaneError::NoSuchPort(port));
        }
        if frame.len() > MAX_TRACE_FRAME {
            let len = frame.len();
            return Err(PlaneError::Invalid(format!(
                "a frame of {len} bytes is too long: {MAX_TRACE_FRAME} at most"
            )));
        }
        let mode = DryMode { out_of_band: true, ..DryMode::default() };
        let dry = DryFrame { hook: Hook::Tc, port, bytes: frame };
        let (journal, run) = self.dry.run(&self.tables, dry, now_ns(), mode)?;
        Ok(words::trace(&self.tables, &self.routing, &self.state, port, frame, &journal, run))
    }
    fn route(&mut self, changes: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        let mut refused = Vec::new();
        let (routing, rifs) = (&mut self.routing, &self.state.rifs);
        for (at, change) in changes.iter().enumerate() {
            if let Err(why) = routing.change(&self.tables, change, |rif| rifs.contains_key(&rif)) {
                refused.push((at, why));
            }
        }
        refused
    }
    fn route_synced(&mut self) -> Result<(), PlaneError> {
        self.routing.publish(&self.tables)
    }
    fn route_lookup(&mut self, vrf: VrfId, address: IpAddr) -> RouteLookup {
        self.routing.lookup(&self.tables, vrf, address)
    }
    fn flow_salt(&mut self) -> u64 {
        self.salt()
    }
    fn adjacencies_used(&mut self, visit: &mut dyn FnMut(AdjacencyId, u32)) {
        self.routing.used(&self.tables, visit);
    }
    fn detach(&mut self) -> Result<(), PlaneError> {
        if self.kept.is_none() {
            return Ok(());
        }
        let stop = |kind| watchdog::set(&self.programs.watchdog_set, kind, None);
        let kinds =
            [abi::WATCHDOG_TREES, abi::WATCHDOG_LEASES, abi::WATCHDOG_SNOOPING, abi::WATCHDOG_ROUTING];
        let mut result = kinds.map(stop).into_iter().collect::<Result<()>>();
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let held: Vec<u32> = kept.hooks.held.keys().copied().collect();
        let _hurry = Hurry::for_changes(held.len());
        for ifindex in held {
            result = result.and(kept.hooks.clear(&kept.netdev, ifindex));
        }
        let dir = kept.pins.dir().display().to_string();
        result = result.and(kept.pins.remove().doing(|| format!("removing {dir}")));
        result = result.and(kept.file.remove().doing(|| "removing the state file".into()));
        self.state = PlaneState::default();
        self.facts.clear();
        result
    }
}

/// Functions for tests and benchmarks.
impl EbpfPlane {
    /// The salt of its hashes. With the same salt, the specification distributes flows in the same way.
    #[must_use]
    pub fn salt(&self) -> u64 {
        self.tables.meta.get(0).salt
    }
    /// Runs `frame` through the live tables as if it had arrived at `port` at `now_ns` of CLOCK_MONOTONIC, and makes
    /// the changes to the tables that `mode` selects. [`Hook::Xdp`] runs the XDP program alone.
    ///
    /// # Errors
    /// When the hook has no dry run, the programs cannot be loaded, or the kernel's test run rejects the frame.
    pub fn dry_run(
        &mut self,
        hook: Hook,
        port: PortId,
        now_ns: u64,
        mode: DryMode,
        frame: &[u8],
    ) -> Result<DryRun, PlaneError> {
        let frame = DryFrame { hook, port, bytes: frame };
        self.dry.run(&self.tables, frame, of_monotonic(now_ns), mode).map(|(_, run)| run)
    }
    /// The TC program, for benchmarks that run it.
    #[must_use]
    pub fn tc_program(&self) -> impl AsFd + '_ {
        self.programs.tc.as_fd()
    }
}
