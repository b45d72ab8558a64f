//! [`AsicPlane`]: a switch chip as a plane.
//!
//! There are four connections to the chip: the resource manager's, which writes the configuration; one for requests of
//! management; one for events and frames of the CPU port ([`crate::cpu`]); and that of the protocols
//! ([`crate::protocols`]).
//!
//! Invariants: a state is one transaction of the chip, carried out as a whole or refused without any change. A chip
//! that has ended is replaced by the pipeline in this process, with the same state, trees and routes, and this is
//! reported.

mod cpu_port;

use crate::channels::Channels;
use crate::chip::{self, Place, Software};
use crate::cpu::{Carrier, Shared, entry_of};
use crate::figures::{capabilities, check_len, counters, intern};
use crate::front::Panel;
use crate::groups::Groups;
use crate::lower::{self, SETUP};
use crate::protocols::{ChipProtocols, Endpoint, SharedEndpoint};
use crate::routes::{Routing, error_of};
use crate::trees::{self, Trees};
use crate::{kept, partitions, policies, splits};
use ipnet::IpNet;
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::platform::{Front, Platform};
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::message::{Answer, LearnedEntry, PortCounts, Request};
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::sdk::{Client, SdkError};
use lanyard_ebpf::CpuPort;
use lanyard_netdev::Netdev;
use lanyard_offload::live::Live;
use lanyard_offload::strategy::by_name;
use lanyard_offload::{Manager, Policy};
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::state::{FdbTarget, PlaneState};
use lanyard_plane::{
    Capabilities, ChipSettings, ChipStatus, ControlPath, FdbEntry, FdbFilter, FdbKind, Hook, Plane,
    PlaneError, PlaneEvent, PortCounters, ProtocolPlane, RouteChange, RouteLookup, Sweep, TableUsage, Trace,
    TrapCounters, TreeStates, changes,
};
use lanyard_types::{AclId, AdjacencyId, FrameCount, PortId, StpState, TrapGroup, TrapReason, VlanId, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most hidden routes that the manager tries to put into the chip each time that the daemon asks for the tables.
const PROMOTED: usize = 1024;
/// With this many transactions under way or more, management uses the chip's last figures instead of waiting for new ones.
const FEW: usize = 64;

/// The options for opening a plane.
#[derive(Debug, Clone)]
pub struct Options {
    /// The instance's name, with which its netdevs are marked.
    pub instance: String,
    /// The chip.
    pub place: Place,
    /// The directory for this plane's files; it must be in memory.
    pub run: PathBuf,
}

/// See the module comment.
#[derive(Debug)]
pub struct AsicPlane {
    pub(crate) options: Options,
    pub(crate) platform: Platform,
    /// The ports that the front panel has, and their numbers.
    pub(crate) front_ports: Vec<Front>,
    front: BTreeSet<PortId>,
    netdev: Netdev,
    panel: Panel,
    /// The programs of the CPU port in the kernel; `None` if this process carries the frames.
    pub(crate) kernel: Option<CpuPort>,
    /// The ports of VLAN interfaces and subinterfaces that are connected to the CPU port in the kernel, with their netdevs'
    /// indices.
    made: BTreeMap<PortId, u32>,
    pub(crate) settings: ChipSettings,
    pub(crate) manager: Manager<Live>,
    pub(crate) routing: Routing,
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) carrier: Option<Carrier>,
    pub(crate) endpoint: SharedEndpoint,
    pub(crate) state: PlaneState,
    /// True once the states of ports in trees are set by [`ChipProtocols`].
    pub(crate) claimed: bool,
    /// The pipeline in this process, while no chip answers.
    pub(crate) software: Option<Software>,
    child: Option<Child>,
    /// The speeds that the chip has accepted, in Mbit/s.
    pub(crate) speeds: BTreeMap<PortId, u32>,
    /// The counters of the chip at the time when a port's counters were set to zero.
    cleared: BTreeMap<PortId, PortCounts>,
    capabilities: Capabilities,
}

pub(crate) fn system(what: &str) -> impl FnOnce(String) -> PlaneError + use<> {
    let what = what.to_owned();
    move |cause| PlaneError::System { what, cause }
}
pub(crate) fn plane_error(error: SdkError) -> PlaneError {
    PlaneError::System { what: "asking the chip".into(), cause: error.to_string() }
}

/// A manager of the chip at a socket.
pub(crate) fn manager_at(
    socket: &Path,
    platform: &Platform,
    strategy: &str,
    units: u32,
) -> Result<Manager<Live>, PlaneError> {
    let live = Live::connect(socket).map_err(system("connecting to the chip"))?;
    let salt = lanyard_offload::Hardware::welcome(&live).salt;
    let strategy = by_name(strategy, platform, salt, units).map_err(PlaneError::Invalid)?;
    Ok(Manager::new(live, strategy, Policy::Hybrid))
}

pub(crate) fn connect(socket: &Path, name: &str) -> Result<Client, PlaneError> {
    let mut client = Client::connect(socket, name).map_err(plane_error)?;
    client.set_patience(chip::PATIENCE);
    Ok(client)
}

impl AsicPlane {
    /// True when a chip answers for this instance.
    #[must_use]
    pub fn is_live(place: &Place) -> bool {
        Client::connect(&place.socket, "probe").is_ok()
    }

    /// Starts or joins the chip, creates the netdevs of its front panel in the calling thread's network namespace, and
    /// adopts the chip's configuration.
    ///
    /// # Errors
    /// When the platform file is not valid, no chip is available, or a netdev cannot be created.
    pub fn open(options: Options) -> Result<Self, PlaneError> {
        let file = &options.place.platform;
        let text = std::fs::read_to_string(file)
            .map_err(|error| system(&format!("reading {}", file.display()))(error.to_string()))?;
        let platform = Platform::parse(&text)
            .map_err(|error| PlaneError::Invalid(format!("{}: {error}", file.display())))?;
        let netdev = Netdev::open().map_err(|error| system("netlink")(error.to_string()))?;
        let mut kept = kept::read(&options.run.join(kept::FILE), &platform);
        let front_ports = splits::active(&platform, &kept).map_err(PlaneError::Invalid)?;
        // If the programs cannot be loaded, for want of permission or because of the kernel, the daemon carries the frames.
        let kernel = CpuPort::load().ok().filter(|_| kept.control_path != ControlPath::Tun);
        let (panel, taps) = Panel::open(&netdev, &front_ports, &options.instance, kernel.is_some())
            .map_err(system("making the front panel"))?;
        let (client, child) =
            chip::join(&options.place, &platform).map_err(system("starting or joining the chip"))?;
        let mut manager = manager_at(&options.place.socket, &platform, kept.strategy.name(), 1)?;
        if partitions::resize(&mut manager, &kept.sizes).is_err() {
            // It is another chip, which has the sizes of the platform file until it is configured.
            kept.sizes.clear();
        }
        let (policy, kinds) = policies::lower(&platform, &kept).map_err(PlaneError::Invalid)?;
        policies::apply(&mut manager, policy, &kinds);
        let entries = manager.take_over().map_err(|error| system("reading the chip")(error.to_string()))?;
        let adopts = entries.iter().any(|entry| matches!(entry, Operation::Route(..)));
        let state = lower::state_of(&entries);
        let shared = Shared::new().map_err(|errno| system("making an eventfd")(errno.to_string()))?;
        let shared = Arc::new(shared);
        state.acls.iter().for_each(|(id, list)| shared.set_list(*id, Some(list.clone())));
        let held = TreeStates { stp: state.stp.clone(), watched: state.watched.clone() };
        let watchdog = trees::has_watchdog(&options.place.socket);
        let trees = Trees::of(held, watchdog);
        let socket = options.place.socket.clone();
        let groups = Groups::of(&entries);
        let channels = Channels::of(state.channels.clone());
        let endpoint = Arc::new(Mutex::new(Endpoint { socket, generation: 1, trees, groups, channels }));
        let mac_table = platform.table_of(lanyard_asic::object::Object::Mac);
        let fdb = mac_table.map_or(0, |(_, table, width)| table.size / width.units().max(1));
        let mut plane = Self {
            front: front_ports.iter().map(|port| port.id).collect(),
            front_ports,
            capabilities: capabilities(&platform, fdb, watchdog),
            options,
            platform,
            netdev,
            panel,
            kernel,
            made: BTreeMap::new(),
            settings: kept,
            manager,
            routing: Routing::new(adopts),
            client,
            shared,
            carrier: None,
            endpoint,
            state,
            claimed: false,
            software: None,
            child,
            speeds: BTreeMap::new(),
            cleared: BTreeMap::new(),
        };
        plane.connect_panel(taps)?;
        if let Err(error) = plane.carry() {
            // A chip in another network namespace, or a device that does not know the request, has no netdev for its CPU port.
            if plane.kernel.is_none() {
                return Err(error);
            }
            plane.rebuild_panel(None)?;
        }
        plane.open_sockets(&plane.state.clone())?;
        Ok(plane)
    }

    /// True while no chip answers and the software plane forwards.
    pub(crate) fn by_software(&self) -> bool {
        self.software.is_some()
    }
    /// Sends a request of management to the chip and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer, PlaneError> {
        self.client.ask(request).map_err(plane_error)
    }
    /// As [`AsicPlane::ask`], for a request that is answered with a number.
    pub(crate) fn ask_number(&mut self, request: &Request) -> Result<u64, PlaneError> {
        self.client.number(request).map_err(plane_error)
    }

    /// The name of the netdev that is each port's wire: the one given at the start, otherwise the port's name with `-wire`.
    pub(crate) fn plugs(&self) -> BTreeMap<PortId, String> {
        let all = splits::all_ports(&self.platform);
        let mut plugs: BTreeMap<PortId, String> =
            all.iter().map(|(name, port)| (*port, format!("{name}-wire"))).collect();
        for (name, netdev) in self.options.place.wires.iter().filter_map(|wire| wire.split_once('=')) {
            if let Some(port) = all.get(name) {
                plugs.insert(*port, netdev.to_owned());
            }
        }
        plugs
    }

    fn counts(&mut self, port: PortId) -> PortCounts {
        match self.client.ask(&Request::Counters(port)) {
            Ok(Answer::Counters(counts)) => counts,
            _ => PortCounts::default(),
        }
    }

    /// Reports the access lists that have moved between the chip and the software.
    pub(crate) fn report_moves(&mut self) {
        for moved in self.manager.moves() {
            let diverted = moved.place == lanyard_offload::Place::Trapped;
            self.shared.push(PlaneEvent::ListMoved { name: moved.name, diverted });
        }
    }

    /// The row of the multicast groups in `show platform resources`. The table in which they take room has another row.
    fn group_usage(&self) -> Option<TableUsage> {
        let (memory, table, width) = self.platform.table_of(lanyard_asic::object::Object::Ipv4Group)?;
        let path = intern(&format!("{}/{}", memory.name, table.name));
        let (used, high_water, refused) = self.endpoint().groups.figures();
        Some(TableUsage {
            name: "mdb",
            size: (table.size / width.units().max(1)).into(),
            used: used as u64,
            high_water: high_water as u64,
            refused,
            bytes: 0,
            shared_with: vec![path],
        })
    }
    pub(crate) fn endpoint(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learned(&mut self) -> Vec<LearnedEntry> {
        self.client.learned().unwrap_or_default()
    }
}

impl Plane for AsicPlane {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn state(&self) -> &PlaneState {
        &self.state
    }
    fn apply(&mut self, next: &PlaneState) -> Result<(), PlaneError> {
        let mut next = next.clone();
        if self.claimed || !self.endpoint().trees.watchdog {
            next.watched = BTreeSet::new();
        }
        if self.claimed {
            next.stp = BTreeMap::new();
            next.channels = BTreeMap::new();
        }
        lanyard_pipeline::validate::check(&next).map_err(PlaneError::Invalid)?;
        lower::check(&next, &self.front)?;
        let lowered = lower::operations(changes(&self.state, &next));
        lower::fits_a_transaction(&lowered.setup)?;
        self.open_sockets(&next)?;
        let blocks = |operation: &&Operation| {
            !matches!(operation, Operation::Stp(_, _, StpState::Forwarding) | Operation::Watched(_, _, false))
        };
        let (first, then): (Vec<&Operation>, Vec<&Operation>) = lowered.trees.iter().partition(blocks);
        let trees = |list: Vec<&Operation>| list.into_iter().cloned().collect::<Vec<_>>();
        let (first, then) = (trees(first), trees(then));
        if !first.is_empty() {
            self.client.commit(&first).map_err(plane_error)?;
        }
        // The software gets new lists first, because the chip may divert frames to it as soon as it has them.
        let new: Vec<AclId> = next.acls.keys().copied().filter(|id| !self.shared.has_list(*id)).collect();
        new.iter().for_each(|id| self.shared.set_list(*id, next.acls.get(id).cloned()));
        if !lowered.setup.is_empty()
            && let Err(refusal) = self.manager.setup(&lowered.setup)
        {
            new.iter().for_each(|id| self.shared.set_list(*id, None));
            let state = self.state.clone();
            self.open_sockets(&state)?;
            return Err(error_of(&refusal));
        }
        let then = [lowered.channels, then].concat();
        if !then.is_empty() {
            self.client.commit(&then).map_err(plane_error)?;
        }
        let known = self.state.acls.keys().chain(next.acls.keys());
        let changed = known.filter(|id| self.state.acls.get(id) != next.acls.get(id));
        changed.for_each(|id| self.shared.set_list(*id, next.acls.get(id).cloned()));
        self.state = next;
        self.report_moves();
        Ok(())
    }
    fn watchdog(&mut self, after: Option<Duration>) -> Result<(), PlaneError> {
        if !self.endpoint().trees.watchdog {
            return Ok(());
        }
        self.ask_number(&Request::TreeWatchdog(trees::period_ms(after))).map(drop)
    }
    fn watchdog_expired(&mut self) -> bool {
        if self.claimed || !self.endpoint().trees.watchdog {
            return false;
        }
        let expired = self.ask_number(&Request::TreeExpiry(true)) == Ok(1);
        if expired && let Ok(entries) = self.client.entries() {
            self.state.stp = lower::state_of(&entries).stp;
        }
        expired
    }
    fn protocols(&mut self) -> Result<Box<dyn ProtocolPlane>, PlaneError> {
        if self.claimed {
            return Err(PlaneError::Invalid("the protocols have their part of the plane already".into()));
        }
        self.claimed = true;
        let stp = std::mem::take(&mut self.state.stp);
        let watched = std::mem::take(&mut self.state.watched);
        let channels = Channels::of(std::mem::take(&mut self.state.channels));
        {
            let mut endpoint = self.endpoint();
            endpoint.trees = Trees::of(TreeStates { stp, watched }, endpoint.trees.watchdog);
            endpoint.channels = channels;
        }
        let mark = self.options.run.join("chip-mark");
        Ok(Box::new(ChipProtocols::new(self.shared.clone(), self.endpoint.clone(), &mark)))
    }

    /// The whole table is one part, because the chip answers with all addresses that it has learned.
    fn fdb_part(&mut self, filter: &FdbFilter, _from: u32, visit: &mut dyn FnMut(FdbEntry)) -> Option<u32> {
        let configured = self.state.fdb.iter().map(|((vlan, mac), target)| FdbEntry {
            vlan: *vlan,
            mac: *mac,
            port: target.port(),
            kind: match target {
                FdbTarget::Static(_) | FdbTarget::Blackhole => FdbKind::Static,
                FdbTarget::Sticky(_) => FdbKind::Sticky,
                FdbTarget::SelfAddress(_) => FdbKind::SelfAddress,
            },
            age_s: 0,
        });
        let mut all: Vec<FdbEntry> = configured.collect();
        all.extend(self.learned().iter().map(entry_of));
        all.into_iter().filter(|entry| filter.matches(entry)).for_each(visit);
        None
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        if filter.kind.is_some_and(|kind| kind != FdbKind::Dynamic) {
            return 0;
        }
        self.client.number(&Request::Flush(filter.vlan, filter.port, filter.mac)).unwrap_or(0)
    }
    fn fdb_sweep(&mut self, ageing_s: Option<u32>) -> Sweep {
        let Some(seconds) = ageing_s else { return Sweep { aged: 0, next_in_s: None } };
        let aged = self.client.number(&Request::Age(seconds)).unwrap_or(0);
        let oldest = self.learned().iter().map(|entry| entry.age_s).max();
        Sweep { aged, next_in_s: oldest.map(|age| seconds.saturating_sub(age).max(1)) }
    }
    fn fdb_dynamic(&mut self) -> u64 {
        self.learned().len() as u64
    }

    fn port_counters(&mut self, port: PortId) -> PortCounters {
        let now = self.counts(port);
        let was = self.cleared.get(&port).cloned().unwrap_or_default();
        counters(&now, &was)
    }
    fn vlan_counters(&mut self, _vlan: VlanId) -> FrameCount {
        FrameCount::default()
    }
    fn trap_counters(&mut self) -> [TrapCounters; TrapGroup::SLOTS] {
        let counts = self.shared.counts();
        let mut counters = [TrapCounters::default(); TrapGroup::SLOTS];
        for reason in TrapReason::ALL {
            counters[reason.group().index()].passed += counts.reasons[reason.index()];
        }
        counters.iter_mut().zip(counts.lost).for_each(|(group, lost)| group.lost = lost);
        counters
    }
    fn trap_reasons(&mut self) -> [u64; TrapReason::SLOTS] {
        self.shared.counts().reasons
    }
    fn resources(&mut self) -> Vec<TableUsage> {
        self.manager.mend();
        // Many routes may have been removed at once, and by itself the manager tries only a few hidden ones for each request.
        if self.manager.hidden() > 0 && self.settings.feedback && !self.manager.is_down() {
            self.manager.promote(PROMOTED);
        }
        // While many writes are under way the answer would have to wait for all of them.
        if self.manager.under_way() < FEW && !self.manager.is_down() {
            self.manager.refresh();
        }
        self.report_moves();
        let resource = |resource: lanyard_offload::resources::Resource| TableUsage {
            name: intern(&resource.usage.path),
            size: resource.usage.size.into(),
            used: resource.usage.used.into(),
            high_water: resource.usage.high_water.into(),
            refused: resource.usage.refused,
            bytes: 0,
            shared_with: resource.shared_with.iter().map(|name| intern(name)).collect(),
        };
        let mut all: Vec<TableUsage> = self.manager.resources().into_iter().map(resource).collect();
        all.extend(self.group_usage());
        all
    }
    fn acl_matches(&mut self, id: AclId) -> Vec<u64> {
        // The sum of the counts here, of decisions made while the list was diverted and of those kept by `clear_acl_matches`, and
        // of the chip's.
        let judged = self.shared.matches(id);
        match self.client.ask(&Request::Matches(id, false)) {
            Ok(Answer::Matches(mut counts)) => {
                counts.iter_mut().zip(judged).for_each(|(count, more)| *count = count.wrapping_add(more));
                counts
            }
            // A device that does not know the request counts nothing.
            _ => judged,
        }
    }
    fn clear_acl_matches(&mut self, id: AclId, of: Option<&str>) {
        self.shared.clear_matches(id, of);
        let Ok(Answer::Matches(mut counts)) = self.client.ask(&Request::Matches(id, true)) else { return };
        let Some(list) = self.state.acls.get(&id).filter(|_| of.is_some()) else { return };
        // The request has cleared the chip's counts of all rules. Those of other access lists continue here, until this process
        // ends.
        let cleared = counts.iter_mut().zip(list.counts_of(of)).filter(|(_, cleared)| *cleared);
        cleared.for_each(|(count, _)| *count = 0);
        self.shared.add_matches(id, &counts);
    }
    fn clear_counters(&mut self, port: PortId) {
        let now = self.counts(port);
        self.cleared.insert(port, now);
    }
    fn port_hook(&self, port: PortId) -> Hook {
        match self.state.ports.get(&port) {
            Some(state) if state.ifindex != 0 => Hook::Asic,
            _ => Hook::None,
        }
    }
    fn configure_chip(
        &mut self,
        settings: &ChipSettings,
        configured: &BTreeSet<String>,
    ) -> Result<(), PlaneError> {
        self.configure(settings, configured)
    }
    fn chip(&mut self) -> Option<ChipStatus> {
        Some(self.status())
    }
    fn is_hidden(&self, vrf: VrfId, prefix: IpNet) -> bool {
        self.manager.place(vrf, prefix) == Some(lanyard_offload::Place::Trapped)
    }
    fn fixed_ports(&self) -> BTreeMap<String, PortId> {
        splits::all_ports(&self.platform)
    }
    fn event_fd(&self) -> Option<i32> {
        Some(self.shared.bell.as_fd().as_raw_fd())
    }
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        if let Some(child) = &mut self.child {
            // Collects the exit status of a chip that has ended, because nothing else does.
            let _ = child.try_wait();
        }
        if let Some(software) = &self.software {
            if software.takes_found() {
                self.rejoin();
            }
        } else if self.shared.is_gone() || self.manager.is_down() {
            self.take_over();
        }
        self.shared.events().into_iter().for_each(handle);
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError> {
        if !self.state.ports.contains_key(&port) {
            return Err(PlaneError::NoSuchPort(port));
        }
        check_len(frame)?;
        let header = CpuHeader { to: Some(port), ..CpuHeader::default() };
        self.client.packet(header, frame).map_err(plane_error)
    }
    fn trace(&mut self, port: PortId, frame: &[u8]) -> Result<Trace, PlaneError> {
        if !self.state.ports.contains_key(&port) {
            return Err(PlaneError::NoSuchPort(port));
        }
        check_len(frame)?;
        // The frame runs through a copy of the chip, made from the entries it reports. The chip itself
        // forwards nothing.
        let mut copy = Chip::new(&self.platform, self.client.welcome().salt);
        let entries = self.client.entries().map_err(plane_error)?;
        for part in entries.chunks(SETUP) {
            let done = copy.commit(Timestamp::default(), part, &mut Effects::default());
            done.map_err(|refused| system("copying the chip")(refused.to_string()))?;
        }
        if let Answer::Ports(ports) = self.ask(&Request::Ports)? {
            ports.iter().for_each(|port| copy.set_link(port.port, port.up));
        }
        for entry in self.learned() {
            let learned = Operation::Fdb(entry.vlan, entry.mac, Some(FdbTarget::Sticky(entry.port)));
            let _ = copy.commit(Timestamp::default(), &[learned], &mut Effects::default());
        }
        Ok(copy.pipeline().trace(port, frame))
    }

    fn route(&mut self, changes: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        self.routing.change(&mut self.manager, changes)
    }
    fn route_synced(&mut self) -> Result<(), PlaneError> {
        self.routing.sync(&mut self.manager)
    }
    fn route_lookup(&mut self, vrf: VrfId, address: IpAddr) -> RouteLookup {
        self.routing.lookup(&self.manager, vrf, address)
    }
    fn flow_salt(&mut self) -> u64 {
        self.client.welcome().salt
    }
    fn adjacencies_used(&mut self, _visit: &mut dyn FnMut(AdjacencyId, u32)) {}

    fn detach(&mut self) -> Result<(), PlaneError> {
        self.carrier = None;
        self.software = None;
        self.forget_outlets();
        self.kernel = None;
        if let Ok(mut client) = connect(&self.options.place.socket, "switch") {
            // A chip that was started by hand continues to run, with an empty configuration.
            let _ = chip::empty(&mut client);
            if trees::has_watchdog(&self.options.place.socket) {
                let _ = client.number(&Request::TreeWatchdog(0));
                let _ = client.number(&Request::TreeExpiry(true));
            }
        }
        chip::end(&self.options.place);
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.options.run.join("chip-mark"));
        self.panel.remove(&self.netdev).map_err(system("removing the netdevs of the front panel"))
    }
}
