//! [`SoftPlane`]: the soft plane as the control plane sees it.

use crate::MemoryPorts;
use crate::core::{Clock, Core};
use crate::link::packet::PacketLink;
use crate::link::tap::TapLink;
use crate::link::{Link, vnet::Offload};
use crate::protocols::SoftProtocols;
use crate::worker::{self, Shared};
use lanyard_pipeline::state::{CHANNEL_BUCKETS, Delivery, HookChoice, PlaneState, PortKind, PortState};
use lanyard_pipeline::tables::bindings;
use lanyard_pipeline::{Pipeline, Timestamp};
use lanyard_plane::{
    ApplyChange, Capabilities, Change, ClassCounters, Direction, FdbEntry, FdbFilter, Hook, MAX_TRACE_FRAME,
    MDB_CAPACITY, Plane, PlaneError, PlaneEvent, PortCounters, ProtocolPlane, RifAttachment, RifState,
    RouteChange, RouteLookup, Sweep, TableUsage, Trace, TrapCounters, TreeStates, changes, transact,
};
use lanyard_types::{
    AclId, AdjacencyId, Binding, ChannelId, FrameCount, MAX_BINDINGS, MAX_PORTS, MAX_VLANS, PortId, PortSet,
    RifId, TrapGroup, TrapReason, VlanId, VrfId,
};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// FDB entries that the plane holds: the largest `fdb_limit`, and the same number of control-plane
/// entries.
pub const FDB_CAPACITY: u32 = 1 << 20;

/// All rings of a plane together take at most this part of the machine's memory, one eighth, and a
/// new ring at most this part of the memory that is available: a plane does not know how many others
/// run on the machine, and each leaves the next one less.
const RINGS_PART: u64 = 8;

/// Routing changes made at once, before the thread may process frames again.
const ROUTES_A_TURN: usize = 256;

/// The soft plane.
#[derive(Debug)]
pub struct SoftPlane {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    state: PlaneState,
    /// True once the states of ports in trees are set by [`SoftProtocols`].
    claimed: bool,
    /// TAP netdevs created for ports that do not exist yet, by ifindex.
    taps: BTreeMap<u32, TapLink>,
    in_memory: bool,
    event_fd: i32,
    capabilities: Capabilities,
}

impl SoftPlane {
    /// A plane over netdevs. Ports are opened by the ifindex in the state, in the network namespace
    /// of the thread that applies it.
    ///
    /// # Errors
    /// When the system has no descriptor or no thread left.
    pub fn new() -> Result<Self, PlaneError> {
        let salt = RandomState::new().hash_one(0u8);
        let mut plane = Self::build(salt, Clock::Real(Instant::now()), false)?;
        let shared = plane.shared.clone();
        let thread =
            std::thread::Builder::new().name("lanyard-soft".into()).spawn(move || worker::run(&shared));
        plane.thread = Some(thread.map_err(system("starting the soft plane's thread"))?);
        Ok(plane)
    }
    /// A plane whose ports are queues, without a thread. Time stands still until it is set.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn in_memory() -> Result<(Self, MemoryPorts), PlaneError> {
        let plane = Self::build(0, Clock::Manual(Timestamp::default()), true)?;
        let ports = MemoryPorts { shared: plane.shared.clone() };
        Ok((plane, ports))
    }
    /// Creates a TAP netdev, down at first, and returns its ifindex. The port whose state has this
    /// ifindex takes it over. The netdev is removed with that port, or with the plane.
    ///
    /// # Errors
    /// When the name is taken or invalid, or the kernel refuses.
    pub fn add_tap(&mut self, name: &str) -> Result<u32, PlaneError> {
        let tap = TapLink::create(name).map_err(system(&format!("making TAP netdev {name}")))?;
        let ifindex = tap.ifindex();
        self.taps.insert(ifindex, tap);
        Ok(ifindex)
    }

    fn build(salt: u64, clock: Clock, in_memory: bool) -> Result<Self, PlaneError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = || EventFd::from_flags(flags).map_err(|errno| system("making an eventfd")(errno.into()));
        let (bell, events) = (event()?, event()?);
        let event_fd = events.as_raw_fd();
        let shared = Arc::new(Shared::new(Core::new(salt, events, clock), bell));
        let capabilities = Capabilities {
            name: "soft",
            survives_daemon: false,
            hooks: false,
            ports: MAX_PORTS - 1,
            fdb: FDB_CAPACITY,
            multicast: true,
            policies: true,
            acl_notes: true,
            queues: false,
            routing: true,
            notes: vec![
                "stops forwarding when the daemon stops".into(),
                "untagged packets at a routed port are routed by the kernel, which receives them in any case; it \
                 has no access lists and no service policies"
                    .into(),
                "ports have no choice of hook or delivery".into(),
                "frames longer than their netdev's MTU (and one 802.1Q tag) are refused by the kernel".into(),
            ],
        };
        let state = PlaneState::default();
        Ok(Self {
            shared,
            thread: None,
            state,
            claimed: false,
            taps: BTreeMap::new(),
            in_memory,
            event_fd,
            capabilities,
        })
    }

    /// The new link for a port in this state; `None` when its present link is the right one.
    fn link(&mut self, port: PortId, state: &PortState) -> Result<Option<Link>, PlaneError> {
        if self.in_memory {
            let has = matches!(self.shared.control().links[port.index()], Link::Memory(_));
            return Ok((!has).then(|| Link::Memory(VecDeque::new())));
        }
        if state.ifindex == 0 {
            return Ok(Some(Link::Gone));
        }
        let routed = state.kind == PortKind::Routed;
        let what = format!("opening {} for the soft plane", state.name);
        let mut core = self.shared.control();
        if core.links[port.index()].ifindex() == state.ifindex {
            if let Link::Packet(link) = &mut core.links[port.index()] {
                link.keep_host_off(!routed).map_err(system(&what))?;
            }
            return Ok(None);
        }
        drop(core);
        if let Some(tap) = self.taps.remove(&state.ifindex) {
            return Ok(Some(Link::Tap(tap)));
        }
        let used: u64 = self.shared.control().links.iter().map(Link::memory).sum();
        let room = Memory::of_machine().room_for_ring(used);
        let mut link = PacketLink::open(state.ifindex, room).map_err(system(&what))?;
        link.keep_host_off(!routed).map_err(system(&what))?;
        Ok(Some(Link::Packet(link)))
    }

    fn change_port(&mut self, port: PortId, new: Option<&PortState>) -> Result<(), PlaneError> {
        let link = match new {
            Some(state) => {
                check_choices(state)?;
                if !self.in_memory {
                    check_routed(state)?;
                }
                self.link(port, state)?
            }
            None => Some(Link::Gone),
        };
        let was = {
            let mut core = self.shared.control();
            let core = &mut *core;
            let now = core.clock.now();
            core.pipeline.set_port(port, new.cloned(), now, &mut |event| core.events.fdb(event));
            link.map(|link| core.connect(port, link))
        };
        // A TAP is kept while its port is removed and added within one transaction; `apply` closes
        // those that are left.
        if let Some(Link::Tap(tap)) = was {
            self.taps.insert(tap.ifindex(), tap);
        }
        Ok(())
    }
}

impl ApplyChange for SoftPlane {
    fn change(&mut self, change: &Change) -> Result<(), PlaneError> {
        if let Change::Port { port, new, .. } = change {
            return self.change_port(*port, new.as_deref());
        }
        let mut core = self.shared.control();
        let core = &mut *core;
        let now = core.clock.now();
        let events = &mut core.events;
        let pipeline = &mut core.pipeline;
        let mut on = |event| events.fdb(event);
        match change {
            Change::Global { new, .. } if !(1..=FDB_CAPACITY).contains(&new.fdb_limit) => {
                return Err(PlaneError::Invalid(format!(
                    "FDB limit {} is not 1 to {FDB_CAPACITY}",
                    new.fdb_limit
                )));
            }
            Change::Global { new, .. } => pipeline.set_global((**new).clone()),
            Change::Vlan { vlan, new, .. } => pipeline.set_vlan(*vlan, new.clone(), now, &mut on),
            Change::Channel { channel, new, .. } => pipeline.set_channel(*channel, new.as_deref().cloned()),
            Change::Stp { instance, port, new, .. } => pipeline.set_stp(*instance, *port, *new),
            Change::Fdb { vlan, mac, old, new } => {
                let controlled = pipeline.fdb().len() - pipeline.fdb().dynamic();
                if old.is_none() && new.is_some() && controlled >= u64::from(FDB_CAPACITY) {
                    return Err(PlaneError::TableFull { table: "fdb", size: FDB_CAPACITY.into() });
                }
                pipeline.set_fdb(*vlan, *mac, *new, now, &mut on);
            }
            Change::Acl { id, new, .. } => {
                let name = new.as_ref().map_or_else(String::new, |list| list.name.clone());
                pipeline
                    .set_acl(*id, new.clone())
                    .map_err(|why| PlaneError::Invalid(format!("{name} is refused: {why}")))?;
            }
            Change::Rif { rif, new, .. } => {
                pipeline.set_rif(*rif, new.as_deref().map(|new| rif_here(new, self.in_memory)));
            }
            // This plane ends together with the control plane's process, so it needs no watchdog.
            Change::Port { .. } | Change::Watched { .. } => {}
        }
        Ok(())
    }
}

impl Plane for SoftPlane {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn state(&self) -> &PlaneState {
        &self.state
    }
    fn apply(&mut self, next: &PlaneState) -> Result<(), PlaneError> {
        let own = self.claimed.then(|| PlaneState {
            stp: BTreeMap::new(),
            watched: BTreeSet::new(),
            channels: BTreeMap::new(),
            ..next.clone()
        });
        let next = own.as_ref().unwrap_or(next);
        lanyard_pipeline::validate::check(next).map_err(PlaneError::Invalid)?;
        let list = changes(&self.state, next);
        let had: Vec<u32> = self.state.ports.values().map(|port| port.ifindex).collect();
        let done = transact(self, list);
        if done.is_ok() {
            self.state = next.clone();
            // Close TAPs whose port was removed. Those that have had no port yet stay.
            self.taps.retain(|ifindex, _| !had.contains(ifindex));
        }
        self.settle();
        done
    }
    fn protocols(&mut self) -> Result<Box<dyn ProtocolPlane>, PlaneError> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.map_err(|errno| system("making an eventfd")(errno.into()))?);
        self.shared.control().events.separate_traps(bell.clone());
        self.claimed = true;
        let trees = TreeStates {
            stp: std::mem::take(&mut self.state.stp),
            watched: std::mem::take(&mut self.state.watched),
        };
        let channels = std::mem::take(&mut self.state.channels);
        Ok(Box::new(SoftProtocols { shared: self.shared.clone(), bell, trees, channels }))
    }
    fn fdb_part(&mut self, filter: &FdbFilter, from: u32, visit: &mut dyn FnMut(FdbEntry)) -> Option<u32> {
        let core = self.shared.control();
        let mut found = Vec::new();
        let next = core.pipeline.fdb().part(filter, from, core.clock.now(), &mut |entry| found.push(entry));
        drop(core); // the visitor may take long
        found.into_iter().for_each(visit);
        next
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        let mut core = self.shared.control();
        let core = &mut *core;
        core.pipeline.flush(filter, core.clock.now(), &mut |event| core.events.fdb(event))
    }
    fn fdb_sweep(&mut self, ageing_s: Option<u32>) -> Sweep {
        let mut core = self.shared.control();
        let core = &mut *core;
        core.pipeline.sweep(ageing_s, core.clock.now(), &mut |event| core.events.fdb(event))
    }
    fn fdb_dynamic(&mut self) -> u64 {
        self.shared.control().pipeline.fdb().dynamic()
    }
    fn port_counters(&mut self, port: PortId) -> PortCounters {
        let mut core = self.shared.control();
        core.count_missed(port);
        core.pipeline.counters().port(port).clone()
    }
    fn vlan_counters(&mut self, vlan: VlanId) -> FrameCount {
        self.shared.control().pipeline.counters().vlan(vlan)
    }
    fn trap_counters(&mut self) -> [TrapCounters; TrapGroup::SLOTS] {
        let core = self.shared.control();
        let mut counters = core.pipeline.trap_counters();
        counters.iter_mut().zip(core.events.lost_traps).for_each(|(group, lost)| group.lost = lost);
        counters
    }
    fn trap_reasons(&mut self) -> [u64; TrapReason::SLOTS] {
        *self.shared.control().pipeline.tables().trap.reasons()
    }
    fn resources(&mut self) -> Vec<TableUsage> {
        usage(&self.shared.control().pipeline)
    }
    fn acl_matches(&mut self, id: AclId) -> Vec<u64> {
        let core = self.shared.control();
        core.pipeline.tables().acls.matches(id).map(<[u64]>::to_vec).unwrap_or_default()
    }
    fn clear_acl_matches(&mut self, id: AclId, of: Option<&str>) {
        self.shared.control().pipeline.clear_acl_matches(id, of);
    }
    fn class_counters(&mut self, port: PortId, direction: Direction) -> Vec<ClassCounters> {
        self.shared.control().pipeline.class_counters(port, direction)
    }
    fn clear_class_counters(&mut self, port: PortId) {
        self.shared.control().pipeline.clear_class_counters(port);
    }
    fn clear_counters(&mut self, port: PortId) {
        let mut core = self.shared.control();
        core.count_missed(port);
        core.pipeline.clear_counters(port);
    }
    fn port_hook(&self, port: PortId) -> Hook {
        match self.shared.control().links[port.index()] {
            Link::Gone => Hook::None,
            Link::Memory(_) | Link::Packet(_) | Link::Tap(_) => Hook::Soft,
        }
    }
    fn event_fd(&self) -> Option<i32> {
        Some(self.event_fd)
    }
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        let events = self.shared.control().events.fetch();
        events.into_iter().for_each(handle);
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError> {
        let name = &self.state.ports.get(&port).ok_or(PlaneError::NoSuchPort(port))?.name;
        check_len(frame)?;
        let mut core = self.shared.control();
        let sent = core.links[port.index()].send(frame, Offload::default());
        core.pipeline.count_injected(port, frame.len(), sent);
        let refused = || PlaneError::System { what: format!("sending on {name}"), cause: "refused".into() };
        if sent { Ok(()) } else { Err(refused()) }
    }
    fn trace(&mut self, port: PortId, frame: &[u8]) -> Result<Trace, PlaneError> {
        if !self.state.ports.contains_key(&port) {
            return Err(PlaneError::NoSuchPort(port));
        }
        check_len(frame)?;
        Ok(self.shared.control().pipeline.trace(port, frame))
    }
    fn route(&mut self, changes: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        let mut refused = Vec::new();
        // Between the parts of a long list the thread may process frames.
        for (part, changes) in changes.chunks(ROUTES_A_TURN).enumerate() {
            let mut core = self.shared.control();
            for (at, change) in changes.iter().enumerate() {
                if let Err(why) = core.pipeline.route(change) {
                    refused.push((part * ROUTES_A_TURN + at, why.into()));
                }
            }
        }
        refused
    }
    fn route_lookup(&mut self, vrf: VrfId, address: IpAddr) -> RouteLookup {
        let core = self.shared.control();
        core.pipeline.tables().routes.lookup(vrf, address)
    }
    fn flow_salt(&mut self) -> u64 {
        self.shared.control().pipeline.tables().salt
    }
    fn adjacencies_used(&mut self, visit: &mut dyn FnMut(AdjacencyId, u32)) {
        let core = self.shared.control();
        let now = core.clock.now().as_nanos();
        let age_s = |at: Timestamp| u32::try_from(now.saturating_sub(at.as_nanos()) / 1_000_000_000);
        let used: Vec<_> =
            core.pipeline.adjacencies_used().map(|(id, at)| (id, age_s(at).unwrap_or(u32::MAX))).collect();
        drop(core);
        used.into_iter().for_each(|(id, age_s)| visit(id, age_s));
    }
    fn detach(&mut self) -> Result<(), PlaneError> {
        self.apply(&PlaneState::default())?;
        self.taps.clear();
        self.stop();
        Ok(())
    }
}

impl SoftPlane {
    /// Waits until the thread has closed netdevs that are no longer ports: at most one link's turn.
    fn settle(&self) {
        self.shared.ring();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && !self.shared.released() {}
    }
    /// Ends the thread.
    fn stop(&mut self) {
        self.shared.control().stop = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed its message, and there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl Drop for SoftPlane {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The use of every finite table.
fn usage(pipeline: &Pipeline) -> Vec<TableUsage> {
    let tables = pipeline.tables();
    let (fdb, ports, vlans) = (&tables.fdb, &tables.ports, &tables.vlans);
    let (refusals, mdb) = (fdb.refusals(), tables.mdb.occupancy());
    let table = |name, size, used: usize, high_water: usize, bytes: usize| TableUsage {
        name,
        size: size as u64,
        used: used as u64,
        high_water: high_water as u64,
        refused: 0,
        bytes: bytes as u64,
        shared_with: Vec::new(),
    };
    let bindings = |family: usize| {
        let now = tables.bindings.occupancy()[family];
        let bytes = now.used * size_of::<Binding>();
        TableUsage {
            refused: now.refused,
            ..table(bindings::NAMES[family], MAX_BINDINGS, now.used, now.high_water, bytes)
        }
    };
    let mut all = vec![
        TableUsage {
            name: "fdb",
            size: tables.trap.global().fdb_limit.into(),
            used: fdb.len(),
            high_water: fdb.high_water(),
            refused: refusals.table + refusals.port + refusals.vlan,
            bytes: fdb.bytes(),
            shared_with: Vec::new(),
        },
        TableUsage {
            refused: mdb.refused,
            ..table("mdb", MDB_CAPACITY, mdb.used, mdb.high_water, mdb.used * size_of::<PortSet>())
        },
        bindings(0),
        bindings(1),
        table("ports", MAX_PORTS - 1, ports.len(), ports.high_water(), MAX_PORTS * size_of::<PortState>()),
        table("vlans", MAX_VLANS - 2, vlans.len(), vlans.high_water(), MAX_VLANS * size_of::<PortSet>()),
        table(
            "port_channels",
            ChannelId::MAX.index(),
            tables.channels.len(),
            tables.channels.high_water(),
            tables.channels.len() * CHANNEL_BUCKETS * size_of::<PortId>(),
        ),
        table(
            "rifs",
            RifId::MAX.index(),
            tables.rifs.len(),
            tables.rifs.high_water(),
            tables.rifs.len() * size_of::<RifState>(),
        ),
    ];
    all.extend(tables.routes.occupancy().map(|(name, size, now)| TableUsage {
        name,
        size: size as u64,
        used: now.used as u64,
        high_water: now.high_water as u64,
        refused: now.refused,
        bytes: tables.routes.bytes(name) as u64,
        shared_with: Vec::new(),
    }));
    all
}

/// The router interface as this plane uses it. Frames received at a routed port that is a netdev
/// also reach the kernel, which routes them, so the plane must not.
fn rif_here(rif: &RifState, in_memory: bool) -> RifState {
    match rif.attachment {
        RifAttachment::Port(_) if !in_memory => RifState { ipv4: false, ipv6: false, ..rif.clone() },
        _ => rif.clone(),
    }
}

/// Refuses a hook or a delivery that was configured and that this plane does not have. At the
/// pipeline end of a VLAN interface nothing is configured: the control plane sets what suits the
/// eBPF plane.
fn check_choices(state: &PortState) -> Result<(), PlaneError> {
    let what = match (state.kind, state.hook, state.delivery) {
        (PortKind::Svi(_), _, _) | (_, HookChoice::Auto, Delivery::Auto | Delivery::Device) => return Ok(()),
        (_, HookChoice::Tc, _) => "at the TC hook",
        (_, HookChoice::Xdp, _) => "at the XDP hook",
        (_, HookChoice::Auto, Delivery::Peer) => "with delivery to the peer",
    };
    Err(PlaneError::Unsupported { plane: "soft", what: format!("run {} {what}", state.name) })
}

/// Refuses access lists and service policies at a routed port: the kernel receives its packets in any case, and routes them past
/// the pipeline, so a list that denied them would have no effect.
fn check_routed(state: &PortState) -> Result<(), PlaneError> {
    let lists = state.acl_in.iter().chain(state.acl_out.iter()).any(Option::is_some);
    let what = match state.kind {
        PortKind::Routed if lists => "access lists",
        PortKind::Routed if state.qos.input.is_some() || state.qos.output.is_some() => "service policies",
        _ => return Ok(()),
    };
    let name = &state.name;
    let what = format!("apply {what} at the routed port {name}, whose packets the kernel routes");
    Err(PlaneError::Unsupported { plane: "soft", what })
}

/// The machine's memory in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    total: u64,
    /// The memory that the kernel expects to be free without swapping; 0 if it does not report it.
    available: u64,
}

impl Memory {
    fn of_machine() -> Self {
        std::fs::read_to_string("/proc/meminfo").map(|text| Self::parse(&text)).unwrap_or_default()
    }
    /// Reads /proc/meminfo (proc_meminfo(5)), whose lines are in kibibytes.
    fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Self { total: value("MemTotal").unwrap_or(0), available: value("MemAvailable").unwrap_or(0) }
    }
    /// The most that a new ring may take when this plane's rings take `used` bytes already.
    fn room_for_ring(self, used: u64) -> u64 {
        (self.total / RINGS_PART).saturating_sub(used).min(self.available / RINGS_PART)
    }
}

fn check_len(frame: &[u8]) -> Result<(), PlaneError> {
    match frame.len() {
        len if len > MAX_TRACE_FRAME => {
            Err(PlaneError::Invalid(format!("a frame of {len} bytes is longer than {MAX_TRACE_FRAME}")))
        }
        _ => Ok(()),
    }
}

/// Turns a system error into a `PlaneError` that names the operation.
fn system(what: &str) -> impl FnOnce(std::io::Error) -> PlaneError + use<> {
    let what = what.to_owned();
    move |cause| PlaneError::System { what, cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_policies_at_routed_ports_are_refused() {
        let mut port = PortState { kind: PortKind::Routed, ..PortState::new("p1", 1) };
        assert_eq!(check_routed(&port), Ok(()));
        port.qos.output = Some(Arc::default());
        let refused = |port: &PortState| check_routed(port).expect_err("refused").to_string();
        assert!(refused(&port).contains("service policies at the routed port p1"), "{}", refused(&port));
        port.acl_in[0] = lanyard_types::AclId::new(1);
        assert!(refused(&port).contains("access lists at the routed port p1"), "{}", refused(&port));
        let switched = PortState { kind: PortKind::Netdev, ..port };
        assert_eq!(check_routed(&switched), Ok(()));
    }

    #[test]
    fn rings_leave_memory_for_others() {
        let memory = Memory::parse("MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\n");
        assert_eq!((memory.total, memory.available), (16 << 20, 8 << 20));
        // The plane's own rings, and what is available.
        for (used, room) in [(0, 1 << 20), (1 << 20, 1 << 20), (3 << 19, 1 << 19), (2 << 20, 0), (3 << 20, 0)]
        {
            assert_eq!(memory.room_for_ring(used), room, "{used}");
        }
        for text in ["", "MemTotal: 5\n", "MemTotal: x kB\nMemAvailable: 99999999999999999999 kB"] {
            assert_eq!(Memory::parse(text).room_for_ring(0), 0, "{text}");
        }
    }
}
