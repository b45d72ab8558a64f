//! What a forwarding plane is to the control plane: [`Plane`], its events, its finite tables.
//!
//! A plane is given whole [`PlaneState`]s and finds out itself what changed ([`change`]); a state is taken
//! entirely or not at all. Nothing here names a kernel, a chip or a socket.

pub mod change;
mod protocols;

pub use protocols::{ProtocolPlane, Trapped, TreeStates};

pub use change::{Backend, Change, changes, transact};
pub use lanyard_pipeline::route::{
    Adjacency, BUCKETS, RifAttachment, RifState, RouteChange, RouteLookup, RouteTarget, Urpf,
};
pub use lanyard_pipeline::state::PlaneState;
pub use lanyard_pipeline::tables::counters::PortCounters;
pub use lanyard_pipeline::tables::fdb::{FdbEntry, FdbFilter, FdbKind, Sweep};
pub use lanyard_pipeline::tables::routes::Refused;
pub use lanyard_pipeline::tables::trap::TrapCounters;
pub use lanyard_pipeline::trace::Trace;

use lanyard_types::{AdjacencyId, FrameCount, PortId, TrapGroup, TrapReason, VlanId, VrfId};
use std::net::IpAddr;
use std::time::Duration;

/// A forwarding plane.
pub trait Plane {
    /// What this plane is and can do.
    fn capabilities(&self) -> &Capabilities;
    /// The state it runs: what the last successful [`Plane::apply`] gave it, or what it found when it was adopted.
    fn state(&self) -> &PlaneState;
    /// Makes `next` the state: all of it, or none of it and the reason. Frames keep flowing meanwhile.
    ///
    /// # Errors
    /// [`PlaneError`] names the table, port or right that was missing.
    fn apply(&mut self, next: &PlaneState) -> Result<(), PlaneError>;

    /// Starts the watchdog anew: unless this is called again within `after`, the plane blocks every port of
    /// [`PlaneState::watched`] in its trees by itself, whatever has become of the control plane. `None` stops the watchdog.
    /// A plane that ends with the control plane's process needs none and does nothing.
    ///
    /// # Errors
    /// When the system refuses the timer.
    fn watchdog(&mut self, _after: Option<Duration>) -> Result<(), PlaneError> {
        Ok(())
    }
    /// True once after the watchdog has expired. [`Plane::state`] then has the watched ports discarding, and BPDUs that
    /// waited for the control plane meanwhile have been thrown away.
    fn watchdog_expired(&mut self) -> bool {
        false
    }

    /// Returns the part that protocols use on a thread of their own; to be called once. From then
    /// on only that part changes the states of ports in trees: [`Plane::apply`] ignores `stp` and
    /// `watched` of its argument, and [`Plane::state`] has none. [`Plane::poll_events`] reports no
    /// trapped frames any more.
    ///
    /// # Errors
    /// When the system refuses a descriptor, or the part was returned before.
    fn protocols(&mut self) -> Result<Box<dyn ProtocolPlane>, PlaneError>;

    /// Visits every FDB entry that passes `filter`; entries that move meanwhile are seen once, twice or not at all.
    fn fdb_walk(&mut self, filter: &FdbFilter, visit: &mut dyn FnMut(FdbEntry));
    /// Removes the dynamic entries that pass `filter`, with an event each; answers how many.
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64;
    /// Removes dynamic entries not updated for `ageing_s` seconds, with an event each, and says when the next is due.
    /// `None` removes nothing (ageing off).
    fn fdb_sweep(&mut self, ageing_s: Option<u32>) -> Sweep;
    /// How many dynamic entries the FDB holds.
    fn fdb_dynamic(&mut self) -> u64;

    /// Frames counted at a port since the plane was created (they survive a restart of the daemon).
    fn port_counters(&mut self, port: PortId) -> PortCounters;
    /// Frames counted in a VLAN, at ingress.
    fn vlan_counters(&mut self, vlan: VlanId) -> FrameCount;
    /// Frames for the control plane, by `TrapGroup::index()`, since the plane was created.
    fn trap_counters(&mut self) -> [TrapCounters; TrapGroup::SLOTS];
    /// Frames that went up within the rates, by `TrapReason::index()`.
    fn trap_reasons(&mut self) -> [u64; TrapReason::SLOTS];
    /// Every finite table: size, use, refusals.
    fn resources(&mut self) -> Vec<TableUsage>;
    /// Sets a port's counters to zero (`clear counters`).
    fn clear_counters(&mut self, port: PortId);
    /// The hook a port runs at now.
    fn port_hook(&self, port: PortId) -> Hook;

    /// What is worth knowing about the way a port is forwarded now, a sentence each, for `show interfaces`.
    fn port_notes(&self, _port: PortId) -> Vec<String> {
        Vec::new()
    }

    /// Begins or ends a packet capture at a port: while one runs, every frame that the port receives and sends passes its
    /// netdev where a packet socket sees it. Captures are counted; the last that ends restores the usual way.
    ///
    /// # Errors
    /// When the port does not exist, or its hook cannot be changed.
    fn capture(&mut self, _port: PortId, _on: bool) -> Result<(), PlaneError> {
        Ok(())
    }

    /// A descriptor that is readable when [`Plane::poll_events`] has something; `None` if polling is needed.
    fn event_fd(&self) -> Option<i32>;
    /// Hands over what happened since the last call, in order; returns without waiting.
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent));
    /// Sends a control-plane frame out of one port, as it is.
    ///
    /// # Errors
    /// When the port does not exist or the kernel refuses.
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError>;
    /// Runs `frame` through the live tables as if it came in at `port`: learns nothing, sends nothing, counts nothing.
    ///
    /// # Errors
    /// When the port does not exist, or the frame is longer than [`MAX_TRACE_FRAME`].
    fn trace(&mut self, port: PortId, frame: &[u8]) -> Result<Trace, PlaneError>;
    /// Carries out routing changes, in order. One that is refused changes nothing and does not keep the later ones back;
    /// the answer names those refused, by their place in `changes`. Frames keep flowing meanwhile, each by the old value or the new.
    fn route(&mut self, changes: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        let plane = self.capabilities().name;
        let refuse = || PlaneError::Unsupported { plane, what: "route".into() };
        (0..changes.len()).map(|at| (at, refuse())).collect()
    }
    /// A plane that was adopted goes on routing by what it was left with until this is called: then by what
    /// [`Plane::route`] was told since it was opened, without a moment between. Does nothing for a plane that began empty.
    ///
    /// # Errors
    /// When the kernel refuses; the plane then goes on as before.
    fn route_synced(&mut self) -> Result<(), PlaneError> {
        Ok(())
    }
    /// What frames for `address` meet, by the live tables.
    fn route_lookup(&mut self, _vrf: VrfId, _address: IpAddr) -> RouteLookup {
        RouteLookup { target: None, buckets: Vec::new() }
    }
    /// The salt with which flows choose among next hops ([`lanyard_pipeline::route::flow_bucket`]).
    fn flow_salt(&mut self) -> u64 {
        0
    }
    /// Seconds since each adjacency last forwarded a frame; those never used are left out. Good to a second or two.
    fn adjacencies_used(&mut self, _visit: &mut dyn FnMut(AdjacencyId, u32)) {}
    /// Takes the plane down for good: hooks, pins and memory. Ports are left with no hook.
    ///
    /// # Errors
    /// When something could not be removed; the rest is.
    fn detach(&mut self) -> Result<(), PlaneError>;
}

/// Seconds within which [`Plane::fdb_sweep`] is called again while there are dynamic entries and ageing is on. A plane may keep
/// times modulo some small number; this is less than half of any.
pub const SWEEP_WITHIN_S: u32 = 120;

/// Longest frame that can be traced or injected, in bytes: a jumbo frame.
pub const MAX_TRACE_FRAME: usize = 9_234;

/// What a plane is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// `ebpf`, `soft` or `asic`.
    pub name: &'static str,
    /// True when it goes on forwarding without the daemon.
    pub survives_daemon: bool,
    /// True when ports can choose a hook and a delivery.
    pub hooks: bool,
    /// Most ports.
    pub ports: usize,
    /// Most FDB entries, static and dynamic.
    pub fdb: u32,
    /// True when it routes: [`Plane::route`] is carried out, and router interfaces mean something.
    pub routing: bool,
    /// What this plane can't do here and why, one line each, for `lanyard version` and `show platform`.
    pub notes: Vec<String>,
}

/// Where a port is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// TC ingress.
    Tc,
    /// Native XDP, with TC behind it.
    Xdp,
    /// The soft plane.
    Soft,
    /// Nothing attached (no netdev).
    None,
}

impl Hook {
    /// The word used in text and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::Soft => "soft",
            Self::None => "none",
        }
    }
}

/// Why a plane refused. The text says what was wrong and names the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaneError {
    /// A finite table is full.
    #[error("table {table} is full ({size} entries)")]
    TableFull {
        /// The table's name in `show platform resources`.
        table: &'static str,
        /// Its size in entries.
        size: u64,
    },
    /// The plane can't do what was asked.
    #[error("the {plane} plane cannot {what}")]
    Unsupported {
        /// The plane.
        plane: &'static str,
        /// What it can't do, as the end of a sentence.
        what: String,
    },
    /// A port that is not in the state.
    #[error("port {0} does not exist")]
    NoSuchPort(PortId),
    /// The operating system refused.
    #[error("{what}: {cause}")]
    System {
        /// What was being done, naming its object.
        what: String,
        /// The system's answer.
        cause: String,
    },
    /// The state contradicts itself or goes past a limit.
    #[error("{0}")]
    Invalid(String),
}

impl From<Refused> for PlaneError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(why) => Self::Invalid(why),
            Refused::Full { table, size } => Self::TableFull { table, size: size as u64 },
        }
    }
}

/// A finite table, for `show platform resources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableUsage {
    /// The table's name.
    pub name: &'static str,
    /// Entries it can hold.
    pub size: u64,
    /// Entries it holds.
    pub used: u64,
    /// The most it has held.
    pub high_water: u64,
    /// Entries refused because it, or a limit on it, was full.
    pub refused: u64,
    /// Bytes of memory the table occupies (all of it, not just what is used).
    pub bytes: u64,
    /// Tables that share its memory.
    pub shared_with: Vec<&'static str>,
}

/// What the plane tells the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaneEvent {
    /// A dynamic entry was learned.
    FdbAdded(FdbEntry),
    /// A dynamic entry moved; the entry says where to, `from` says where from.
    FdbMoved {
        /// The entry as it is now.
        entry: FdbEntry,
        /// The port it was at.
        from: PortId,
    },
    /// A dynamic entry aged out.
    FdbAged(FdbEntry),
    /// A dynamic entry was flushed.
    FdbDeleted(FdbEntry),
    /// A frame for the control plane.
    Trapped {
        /// Where it came in.
        port: PortId,
        /// Its VLAN, when it got far enough to have one.
        vlan: Option<VlanId>,
        /// Why it is here.
        reason: TrapReason,
        /// The frame, tags in line.
        frame: Vec<u8>,
    },
    /// A port forwards in another way than before because its netdev has changed.
    PortChanged {
        /// The port.
        port: PortId,
        /// What is different and why, as a part of a sentence.
        what: String,
    },
    /// Events were lost because the ring was full: how many.
    Lost(u64),
}
