//! [`AsicPlane`]: a switch chip as a plane.
//!
//! There are four connections to the chip: the resource manager's, which writes the configuration; one for requests of
//! management; one for events and frames of the CPU port ([`crate::cpu`]); and that of the protocols
//! ([`crate::protocols`]).
//!
//! Invariants: a state is one transaction of the chip, carried out as a whole or refused without any change. A chip
//! that has ended is replaced by the pipeline in this process, with the same state, trees and routes, and this is
//! reported.

use crate::chip::{self, Place, Software};
use crate::cpu::{Carrier, Outlet, Shared, entry_of};
use crate::front::Panel;
use crate::lower;
use crate::protocols::{ChipProtocols, Endpoint, SharedEndpoint, steps};
use crate::routes::{Routing, error_of};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::message::{Answer, LearnedEntry, PortCounts, Request};
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::sdk::{Client, SdkError};
use lanyard_netdev::{Netdev, PacketSocket};
use lanyard_offload::live::Live;
use lanyard_offload::strategy::by_name;
use lanyard_offload::{Manager, Policy};
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::state::{FdbTarget, PlaneState, PortKind};
use lanyard_plane::{
    Capabilities, FdbEntry, FdbFilter, FdbKind, Hook, MAX_TRACE_FRAME, Plane, PlaneError, PlaneEvent,
    PortCounters, ProtocolPlane, RouteChange, RouteLookup, Sweep, TableUsage, Trace, TrapCounters,
    TreeStates, changes,
};
use lanyard_types::{
    AdjacencyId, DropReason, FrameCount, MAX_PORTS, PortId, StpState, TrapGroup, TrapReason, VlanId, VrfId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

/// The strategy by which the resource manager determines whether an entry fits.
const STRATEGY: &str = "hybrid";
/// The most operations of one transaction when a whole state is written to a chip.
const SETUP: usize = 4096;

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
    options: Options,
    platform: Platform,
    front: BTreeSet<PortId>,
    netdev: Netdev,
    panel: Panel,
    manager: Manager<Live>,
    routing: Routing,
    client: Client,
    shared: Arc<Shared>,
    carrier: Option<Carrier>,
    endpoint: SharedEndpoint,
    state: PlaneState,
    /// True once the states of ports in trees are set by [`ChipProtocols`].
    claimed: bool,
    /// The pipeline in this process, while no chip answers.
    software: Option<Software>,
    child: Option<Child>,
    /// The counters of each port when they were last cleared.
    cleared: BTreeMap<PortId, PortCounts>,
    capabilities: Capabilities,
}

fn system(what: &str) -> impl FnOnce(String) -> PlaneError + use<> {
    let what = what.to_owned();
    move |cause| PlaneError::System { what, cause }
}
fn asked(error: SdkError) -> PlaneError {
    PlaneError::System { what: "asking the chip".into(), cause: error.to_string() }
}

/// A manager of the chip at a socket.
fn manager_at(socket: &Path, platform: &Platform, strategy: &str) -> Result<Manager<Live>, PlaneError> {
    let live = Live::connect(socket).map_err(system("connecting to the chip"))?;
    let salt = lanyard_offload::Hardware::welcome(&live).salt;
    let strategy = by_name(strategy, platform, salt, 64).map_err(PlaneError::Invalid)?;
    Ok(Manager::new(live, strategy, Policy::Hybrid))
}

fn connect(socket: &Path, name: &str) -> Result<Client, PlaneError> {
    let mut client = Client::connect(socket, name).map_err(asked)?;
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
        let (panel, taps) =
            Panel::open(&netdev, &platform, &options.instance).map_err(system("making the front panel"))?;
        let (client, child) =
            chip::join(&options.place, &platform).map_err(system("starting or joining the chip"))?;
        let mut manager = manager_at(&options.place.socket, &platform, STRATEGY)?;
        let entries = manager.take_over().map_err(|error| system("reading the chip")(error.to_string()))?;
        let adopts = entries.iter().any(|entry| matches!(entry, Operation::Route(..)));
        let state = lower::state_of(&entries);
        let shared = Shared::new().map_err(|errno| system("making an eventfd")(errno.to_string()))?;
        let shared = Arc::new(shared);
        for (port, tap) in taps {
            shared.set_outlet(port, Some(Outlet::Tap(tap)));
        }
        let trees = TreeStates { stp: state.stp.clone(), watched: BTreeSet::new() };
        let socket = options.place.socket.clone();
        let endpoint = Arc::new(Mutex::new(Endpoint { socket, generation: 1, trees }));
        let mac_table = platform.table_of(lanyard_asic::object::Object::Mac);
        let fdb = mac_table.map_or(0, |(_, table, width)| table.size / width.units().max(1));
        let mut plane = Self {
            front: platform.front().map(|port| port.id).collect(),
            capabilities: capabilities(&platform, fdb),
            options,
            platform,
            netdev,
            panel,
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
            cleared: BTreeMap::new(),
        };
        plane.carry()?;
        plane.open_sockets(&plane.state.clone())?;
        Ok(plane)
    }

    /// Starts to carry frames of the CPU port of the current chip.
    fn carry(&mut self) -> Result<(), PlaneError> {
        self.carrier = None;
        let socket = self.socket();
        let carrier = Carrier::start(connect(&socket, "cpu")?, self.shared.clone());
        self.carrier = Some(carrier.map_err(system("carrying frames of the CPU port"))?);
        let Ok(Answer::Ports(ports)) = self.client.ask(&Request::Ports) else {
            return Err(system("asking the chip for its ports")("no answer".into()));
        };
        ports.iter().for_each(|port| self.shared.set_carrier(port.port, port.up));
        Ok(())
    }
    fn socket(&self) -> PathBuf {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).socket.clone()
    }

    /// Connects the pipeline's sides of VLAN interfaces and subinterfaces to the CPU port.
    fn open_sockets(&self, state: &PlaneState) -> Result<(), PlaneError> {
        let made = state.ports.iter().filter(|(_, port)| {
            matches!(port.kind, PortKind::Svi(_) | PortKind::Subinterface { .. }) && port.ifindex != 0
        });
        let wanted: BTreeMap<PortId, u32> = made.map(|(id, port)| (*id, port.ifindex)).collect();
        for port in self.shared.sockets() {
            if !wanted.contains_key(&port) {
                self.shared.set_outlet(port, None);
            }
        }
        for (port, ifindex) in wanted {
            if self.shared.socket_at(port) == Some(ifindex) {
                continue;
            }
            let name = &state.ports[&port].name;
            let socket = PacketSocket::open(ifindex)
                .map_err(|error| system(&format!("opening {name}"))(error.to_string()))?;
            self.shared.set_outlet(port, Some(Outlet::Socket(ifindex, socket)));
        }
        Ok(())
    }

    /// Replaces a chip that has ended by the pipeline in this process, at the same wires.
    fn take_over(&mut self) {
        let text = match self.move_to_software() {
            Ok(()) => "the chip does not answer: the software plane forwards".to_owned(),
            Err(error) => {
                format!("the chip does not answer, and the software plane cannot take over: {error}")
            }
        };
        self.shared.push(PlaneEvent::Chip { up: false, what: text });
    }

    fn move_to_software(&mut self) -> Result<(), PlaneError> {
        self.carrier = None;
        let socket = self.options.run.join("software.sock");
        let plugs = self.plugs();
        let watched = self.options.place.socket.clone();
        let found = self.shared.clone();
        let software = Software::start(&self.platform, plugs, &socket, watched, move || found.ring())
            .map_err(|error| system("starting the software plane")(error.to_string()))?;
        // Keep it even if writing the state fails: forwarding with a part of the state is better than none.
        self.software = Some(software);
        let platform = chip::unlimited(&self.platform);
        self.drive(socket, &platform, "predict-flat")
    }

    /// The netdev for each port: the one given at the start, else the port's default.
    fn plugs(&self) -> BTreeMap<PortId, String> {
        let mut plugs: BTreeMap<PortId, String> =
            self.platform.front().map(|port| (port.id, port.wire())).collect();
        for wire in &self.options.place.wires {
            let port = wire.split_once('=').and_then(|(port, netdev)| {
                Some((port.strip_prefix("swp").unwrap_or(port).parse().ok().and_then(PortId::new)?, netdev))
            });
            if let Some((port, netdev)) = port {
                plugs.insert(port, netdev.to_owned());
            }
        }
        plugs
    }

    /// Writes the whole state to the chip at a socket, which becomes the current chip.
    fn drive(&mut self, socket: PathBuf, platform: &Platform, strategy: &str) -> Result<(), PlaneError> {
        let mut manager = manager_at(&socket, platform, strategy)?;
        let client = connect(&socket, "switch")?;
        let list = lower::operations(changes(&PlaneState::default(), &self.state));
        let global = Operation::Global(Box::new(self.state.global.clone()));
        let setup: Vec<Operation> = std::iter::once(global).chain(list.setup).collect();
        for part in setup.chunks(SETUP) {
            manager.setup(part).map_err(|refusal| error_of(&refusal))?;
        }
        Routing::copy(&mut self.manager, &mut manager)?;
        self.client = client;
        self.manager = manager;
        self.push_trees()?;
        {
            let mut endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            endpoint.socket = socket;
            endpoint.generation += 1;
        }
        // The protocols may have changed states meanwhile, through the connection that has ended.
        self.push_trees()?;
        self.carry()
    }

    fn push_trees(&mut self) -> Result<(), PlaneError> {
        let trees = match self.claimed {
            true => self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).trees.clone(),
            false => TreeStates { stp: self.state.stp.clone(), watched: BTreeSet::new() },
        };
        let list = steps(&TreeStates::default(), &trees);
        if list.is_empty() {
            return Ok(());
        }
        self.client.commit(&list).map(drop).map_err(asked)
    }

    /// Returns to a chip that answers again.
    fn rejoin(&mut self) {
        let socket = self.options.place.socket.clone();
        let Ok(client) = Client::connect(&socket, "switch") else { return };
        if client.welcome().platform != self.platform.name {
            return;
        }
        drop(client);
        let platform = self.platform.clone();
        // End the pipeline first: two of them at the same wires would forward each frame twice.
        let software = self.software.take();
        drop(software);
        let what = match self.drive(socket, &platform, STRATEGY) {
            Ok(()) => "the chip answers again and forwards".to_owned(),
            Err(error) => {
                self.take_over();
                format!("the chip answers again, and cannot be given its state: {error}")
            }
        };
        self.shared.push(PlaneEvent::Chip { up: self.software.is_none(), what });
    }

    fn counts(&mut self, port: PortId) -> PortCounts {
        match self.client.ask(&Request::Counters(port)) {
            Ok(Answer::Counters(counts)) => counts,
            _ => PortCounts::default(),
        }
    }

    fn learned(&mut self) -> Vec<LearnedEntry> {
        self.client.learned().unwrap_or_default()
    }
}

fn capabilities(platform: &Platform, fdb: u32) -> Capabilities {
    Capabilities {
        name: "asic",
        survives_daemon: true,
        hooks: false,
        ports: MAX_PORTS - 1,
        fdb,
        routing: true,
        notes: vec![
            format!("the chip is {} ({} ports)", platform.name, platform.ports().count()),
            "ports are those of the front panel; they have no choice of hook or delivery".into(),
            "the chip has no watchdog: ports towards other bridges go on forwarding when the daemon has ended".into(),
            "the chip counts no frames of VLANs".into(),
        ],
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
        next.watched = BTreeSet::new();
        if self.claimed {
            next.stp = BTreeMap::new();
        }
        lanyard_pipeline::validate::check(&next).map_err(PlaneError::Invalid)?;
        lower::check(&next, &self.front)?;
        let lowered = lower::operations(changes(&self.state, &next));
        self.open_sockets(&next)?;
        let blocks =
            |operation: &&Operation| !matches!(operation, Operation::Stp(_, _, StpState::Forwarding));
        let (first, then): (Vec<&Operation>, Vec<&Operation>) = lowered.trees.iter().partition(blocks);
        let trees = |list: Vec<&Operation>| list.into_iter().cloned().collect::<Vec<_>>();
        let (first, then) = (trees(first), trees(then));
        if !first.is_empty() {
            self.client.commit(&first).map_err(asked)?;
        }
        if !lowered.setup.is_empty()
            && let Err(refusal) = self.manager.setup(&lowered.setup)
        {
            let state = self.state.clone();
            self.open_sockets(&state)?;
            return Err(error_of(&refusal));
        }
        if !then.is_empty() {
            self.client.commit(&then).map_err(asked)?;
        }
        self.state = next;
        Ok(())
    }
    fn protocols(&mut self) -> Result<Box<dyn ProtocolPlane>, PlaneError> {
        if self.claimed {
            return Err(PlaneError::Invalid("the protocols have their part of the plane already".into()));
        }
        self.claimed = true;
        let stp = std::mem::take(&mut self.state.stp);
        self.state.watched = BTreeSet::new();
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).trees =
            TreeStates { stp, watched: BTreeSet::new() };
        let mark = self.options.run.join("chip-mark");
        Ok(Box::new(ChipProtocols::new(self.shared.clone(), self.endpoint.clone(), &mark)))
    }

    fn fdb_walk(&mut self, filter: &FdbFilter, visit: &mut dyn FnMut(FdbEntry)) {
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
        self.manager.refresh();
        let resource = |resource: lanyard_offload::resources::Resource| TableUsage {
            name: intern(&resource.usage.path),
            size: resource.usage.size.into(),
            used: resource.usage.used.into(),
            high_water: resource.usage.high_water.into(),
            refused: resource.usage.refused,
            bytes: 0,
            shared_with: resource.shared_with.iter().map(|name| intern(name)).collect(),
        };
        self.manager.resources().into_iter().map(resource).collect()
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
    fn fixed_ports(&self) -> BTreeMap<String, PortId> {
        self.platform.front().map(|port| (port.name, port.id)).collect()
    }
    fn event_fd(&self) -> Option<i32> {
        Some(self.shared.bell.as_fd().as_raw_fd())
    }
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        if let Some(child) = &mut self.child {
            // Nothing else waits for the end of this process.
            let _ = child.try_wait();
        }
        if self.software.is_some() {
            self.rejoin();
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
        self.client.packet(header, frame).map_err(asked)
    }
    fn trace(&mut self, port: PortId, frame: &[u8]) -> Result<Trace, PlaneError> {
        if !self.state.ports.contains_key(&port) {
            return Err(PlaneError::NoSuchPort(port));
        }
        check_len(frame)?;
        // The frame runs through a copy of the chip, made from the entries it reports. The chip itself
        // forwards nothing.
        let mut copy = Chip::new(&self.platform, self.client.welcome().salt);
        let entries = self.client.entries().map_err(asked)?;
        for part in entries.chunks(SETUP) {
            let done = copy.commit(Timestamp::default(), part, &mut Effects::default());
            done.map_err(|refused| system("copying the chip")(refused.to_string()))?;
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
        for port in self.shared.sockets() {
            self.shared.set_outlet(port, None);
        }
        if let Ok(mut client) = connect(&self.options.place.socket, "switch") {
            // A chip that was started by hand continues to run, with an empty configuration.
            let entries = client.entries().unwrap_or_default();
            let removals: Vec<Operation> =
                entries.iter().rev().filter_map(lanyard_offload::manager::removal).collect();
            for part in removals.chunks(SETUP) {
                let _ = client.commit(part);
            }
        }
        chip::end(&self.options.place);
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.options.run.join("chip-mark"));
        self.panel
            .remove(&self.netdev, &self.options.instance)
            .map_err(system("removing the netdevs of the front panel"))
    }
}

/// A port's counters since they were last cleared.
fn counters(now: &PortCounts, was: &PortCounts) -> PortCounters {
    let count = |now: FrameCount, was: FrameCount| FrameCount {
        frames: now.frames.saturating_sub(was.frames),
        bytes: now.bytes.saturating_sub(was.bytes),
    };
    let mut counters = PortCounters {
        rx: count(now.rx, was.rx),
        tx: count(now.tx, was.tx),
        forwarded: now.forwarded.saturating_sub(was.forwarded),
        trapped: now.trapped.saturating_sub(was.trapped),
        tx_dropped: now.tx_dropped.saturating_sub(was.tx_dropped),
        ..PortCounters::default()
    };
    let before: BTreeMap<u8, u64> = was.dropped.iter().copied().collect();
    for (reason, frames) in &now.dropped {
        if let Some(slot) = counters.dropped.get_mut(usize::from(*reason)) {
            *slot = frames.saturating_sub(before.get(reason).copied().unwrap_or(0));
        }
    }
    counters
}

fn check_len(frame: &[u8]) -> Result<(), PlaneError> {
    match frame.len() {
        len if len > MAX_TRACE_FRAME => {
            Err(PlaneError::Invalid(format!("a frame of {len} bytes; {MAX_TRACE_FRAME} is the most")))
        }
        _ => Ok(()),
    }
}

/// Returns a table's name with the lifetime of the process. A platform has few names, and each is stored
/// once.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}

/// The drop reasons of a chip are those of the pipeline.
const _: () = assert!(DropReason::SLOTS <= 256);
