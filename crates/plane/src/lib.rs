//! The interface between the control plane and a forwarding plane: [`Plane`], its events, its finite tables.
//!
//! A plane is given complete [`PlaneState`]s and finds the differences itself ([`change`]); a state is taken
//! entirely or not at all. Nothing here names a kernel, a chip or a socket.

pub mod change;
mod chip;
mod protocols;

pub use chip::{
    Breakout, ChipPort, ChipSettings, ChipStatus, ChipTable, ControlPath, Fec, PortSettings, Strategy,
    TablePolicy, Thresholds,
};

pub use protocols::{ProtocolPlane, TRAP_WAKE, Trapped, TreeStates};

pub use change::{ApplyChange, Change, changes, transact};
pub use lanyard_pipeline::qos::{ClassCounters, Direction};
pub use lanyard_pipeline::route::{
    Adjacency, BUCKETS, RifAttachment, RifState, RouteChange, RouteLookup, RouteTarget, Urpf,
};
pub use lanyard_pipeline::state::{ChannelMembers, PlaneState};
pub use lanyard_pipeline::tables::counters::PortCounters;
pub use lanyard_pipeline::tables::fdb::{FdbEntry, FdbFilter, FdbKind, Sweep};
pub use lanyard_pipeline::tables::mdb::{Flooded, MDB_CAPACITY, MdbChange};
pub use lanyard_pipeline::tables::routes::Refused;
pub use lanyard_pipeline::tables::trap::TrapCounters;
pub use lanyard_pipeline::trace::Trace;

use ipnet::IpNet;
use lanyard_types::{AclId, AdjacencyId, FrameCount, MacAddr, PortId, TrapGroup, TrapReason, VlanId, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// A forwarding plane.
pub trait Plane {
    /// The description and the capabilities of this plane.
    fn capabilities(&self) -> &Capabilities;
    /// The state in force: that of the last successful [`Plane::apply`], or the state that the plane had when it
    /// was adopted.
    fn state(&self) -> &PlaneState;
    /// Puts `next` into force entirely, or changes nothing and returns the reason. The plane forwards
    /// meanwhile.
    ///
    /// # Errors
    /// [`PlaneError`] names the table, port or right that was missing.
    fn apply(&mut self, next: &PlaneState) -> Result<(), PlaneError>;

    /// Restarts the watchdog. Unless this is called again within `after`, the plane itself blocks every port of
    /// [`PlaneState::watched`] in its trees, even if the control plane is gone. `None` stops the watchdog. A plane that
    /// ends with the control plane's process needs no watchdog and does nothing.
    ///
    /// # Errors
    /// When the operating system refuses the timer.
    fn watchdog(&mut self, _after: Option<Duration>) -> Result<(), PlaneError> {
        Ok(())
    }
    /// Returns true once after the watchdog has expired. [`Plane::state`] then has the watched ports discarding, and
    /// BPDUs that were waiting for the control plane have been thrown away.
    fn watchdog_expired(&mut self) -> bool {
        false
    }

    /// Confirms that no hook of the kernel sees the packets that this plane routes. Unless this is called again within `hold`,
    /// the plane itself leaves to the kernel all packets that interfaces with
    /// [`RifState::while_confirmed`](lanyard_pipeline::route::RifState::while_confirmed) receive, even if the control plane is
    /// gone, until this is called again. Returns the number of interfaces whose packets were left to the kernel. A plane that
    /// ends with the control plane's process has nothing to confirm.
    ///
    /// # Errors
    /// When the operating system refuses the timer. Packets that the kernel has got meanwhile remain the kernel's.
    fn confirm_routing(&mut self, _hold: Duration) -> Result<u64, PlaneError> {
        Ok(0)
    }

    /// Returns the part that protocols use on a thread of their own; to be called once. From then on only that part changes the
    /// states of ports in trees and the members in use of port-channels: [`Plane::apply`] ignores `stp`, `watched` and `channels`
    /// of its argument, and leaves them empty in [`Plane::state`]. [`Plane::poll_events`] reports no trapped frames any more.
    ///
    /// # Errors
    /// When the operating system refuses a descriptor, or when the part was returned before.
    fn protocols(&mut self) -> Result<Box<dyn ProtocolPlane>, PlaneError>;

    /// Visits the FDB entries that match `filter` in one part of the table, the part that begins at `from`; the first
    /// part begins at 0. Returns where the next part begins; `None` after the last one. A part is small, so that the
    /// plane is not occupied for long. An entry that moves during a walk may be visited once, twice or not at all, as
    /// may one that is learned or removed meanwhile.
    fn fdb_part(&mut self, filter: &FdbFilter, from: u32, visit: &mut dyn FnMut(FdbEntry)) -> Option<u32>;
    /// Visits every FDB entry that matches `filter`, part by part.
    fn fdb_walk(&mut self, filter: &FdbFilter, visit: &mut dyn FnMut(FdbEntry)) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.fdb_part(filter, from, visit);
        }
    }
    /// Removes the dynamic entries that match `filter`, with one event for each; returns their number.
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64;
    /// Removes the dynamic entries that were not updated for `ageing_s` seconds, with one event for each; returns
    /// when the next sweep is due. `None` (ageing off) removes nothing.
    fn fdb_sweep(&mut self, ageing_s: Option<u32>) -> Sweep;
    /// The number of dynamic entries in the FDB.
    fn fdb_dynamic(&mut self) -> u64;

    /// The counters of a port since the plane was created; they survive a restart of the daemon.
    fn port_counters(&mut self, port: PortId) -> PortCounters;
    /// The frames counted in a VLAN at ingress.
    fn vlan_counters(&mut self, vlan: VlanId) -> FrameCount;
    /// The frames trapped for the control plane, by `TrapGroup::index()`, since the plane was created.
    fn trap_counters(&mut self) -> [TrapCounters; TrapGroup::SLOTS];
    /// The frames trapped within the rate limits, by `TrapReason::index()`.
    fn trap_reasons(&mut self) -> [u64; TrapReason::SLOTS];
    /// Size, use and refusals of every finite table.
    fn resources(&mut self) -> Vec<TableUsage>;
    /// How often each rule of an access list has decided, by its index, and last the frames that no rule matched; empty when
    /// there is no such list. Counts continue when a list is replaced by one that still has the rule.
    fn acl_matches(&mut self, _id: AclId) -> Vec<u64> {
        Vec::new()
    }
    /// Sets counts of a list to zero (`clear access-list counters`): those of the rules that come from the access list `of`, of
    /// which a VLAN map may have several; with `None` all, including that of the frames that no rule matched.
    fn clear_acl_matches(&mut self, _id: AclId, _of: Option<&str>) {}
    /// The frames and bytes of each class of a service policy, by the index of the class. Those at the end may be missing; a port
    /// without a policy in this direction has none.
    fn class_counters(&mut self, _port: PortId, _direction: Direction) -> Vec<ClassCounters> {
        Vec::new()
    }
    /// Sets the counters of the service policies of a port to 0.
    fn clear_class_counters(&mut self, _port: PortId) {}
    /// Sets a port's counters to zero (`clear counters`).
    fn clear_counters(&mut self, port: PortId);
    /// The hook at which the port's frames enter the pipeline now.
    fn port_hook(&self, port: PortId) -> Hook;

    /// Configures a switch chip: its CPU port, its resource manager, its front panel. A change may replace netdevs of ports, and
    /// takes effect whole or not at all. `configured` names the interfaces that are ports of the switch: no change takes one of
    /// them away.
    ///
    /// # Errors
    /// The refusal of the chip or the kernel. A plane without a chip refuses everything but thresholds.
    fn configure_chip(
        &mut self,
        settings: &ChipSettings,
        _configured: &BTreeSet<String>,
    ) -> Result<(), PlaneError> {
        // The daemon watches the thresholds of tables itself, with every plane.
        if *settings == (ChipSettings { thresholds: settings.thresholds.clone(), ..ChipSettings::default() })
        {
            return Ok(());
        }
        let plane = self.capabilities().name;
        Err(PlaneError::Unsupported { plane, what: "be configured with `platform`: it has no chip".into() })
    }
    /// The switch chip as it is now; `None` for a plane without one.
    fn chip(&mut self) -> Option<ChipStatus> {
        None
    }
    /// True when a route that was accepted is not in the chip, so that the software forwards its packets.
    fn is_hidden(&self, _vrf: VrfId, _prefix: IpNet) -> bool {
        false
    }
    /// Ports whose numbers the plane decides, by the names of their netdevs: those of a chip's front panel.
    fn fixed_ports(&self) -> BTreeMap<String, PortId> {
        BTreeMap::new()
    }

    /// Remarks on how the port's frames are forwarded now, one sentence each, for `show interfaces`.
    fn port_notes(&self, _port: PortId) -> Vec<String> {
        Vec::new()
    }

    /// Begins or ends a packet capture at a port. During a capture every frame that the port receives or sends passes
    /// the netdev's packet sockets. Captures are counted: the end of the last one restores the usual forwarding.
    ///
    /// # Errors
    /// When the port does not exist, or its hook cannot be changed.
    fn capture(&mut self, _port: PortId, _on: bool) -> Result<(), PlaneError> {
        Ok(())
    }

    /// A descriptor that is readable when [`Plane::poll_events`] has events; `None` if the caller has to
    /// poll.
    fn event_fd(&self) -> Option<i32>;
    /// Passes the events since the last call to `handle`, in order; does not wait.
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent));
    /// Sends a control-plane frame out of one port, unchanged.
    ///
    /// # Errors
    /// When the port does not exist or the kernel refuses the frame.
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError>;
    /// Runs `frame` through the live tables as if `port` had received it, without learning, sending or counting.
    ///
    /// # Errors
    /// When the port does not exist, or the frame is longer than [`MAX_TRACE_FRAME`].
    fn trace(&mut self, port: PortId, frame: &[u8]) -> Result<Trace, PlaneError>;
    /// Carries out routing changes, in order. A change that is refused changes nothing, and the later ones are still
    /// carried out; the result lists the refused changes by their index in `changes`. A frame that is forwarded
    /// meanwhile uses either the old value or the new one.
    fn route(&mut self, changes: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        let plane = self.capabilities().name;
        let refuse = || PlaneError::Unsupported { plane, what: "route".into() };
        (0..changes.len()).map(|at| (at, refuse())).collect()
    }
    /// Ends the adoption of routes. Until this call an adopted plane routes by the routes it was found with; from then
    /// on by those that [`Plane::route`] has written since the plane was opened. The swap leaves no gap. Does nothing
    /// for a plane that began empty.
    ///
    /// # Errors
    /// When the kernel refuses; the plane then continues as before.
    fn route_synced(&mut self) -> Result<(), PlaneError> {
        Ok(())
    }
    /// The route and adjacency that the live tables hold for `address`.
    fn route_lookup(&mut self, _vrf: VrfId, _address: IpAddr) -> RouteLookup {
        RouteLookup { target: None, buckets: Vec::new() }
    }
    /// The salt of the hash that distributes flows over next hops ([`lanyard_pipeline::route::flow_bucket`]).
    fn flow_salt(&mut self) -> u64 {
        0
    }
    /// Visits each adjacency that has forwarded a frame, with the seconds since the last one, accurate to one or
    /// two seconds.
    fn adjacencies_used(&mut self, _visit: &mut dyn FnMut(AdjacencyId, u32)) {}
    /// Removes the plane for good: hooks, pins and memory. Ports are left without a hook.
    ///
    /// # Errors
    /// When something could not be removed; everything else is removed.
    fn detach(&mut self) -> Result<(), PlaneError>;
}

/// The longest time between two calls of [`Plane::fdb_sweep`] while there are dynamic entries and ageing is on, in
/// seconds. A plane may store times modulo a small number; this limit is less than half of that number in every plane.
pub const SWEEP_WITHIN_S: u32 = 120;

/// The longest frame that can be traced or injected, in bytes (a jumbo frame).
pub const MAX_TRACE_FRAME: usize = 9_234;

/// A plane's name and capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// `ebpf`, `soft` or `asic`.
    pub name: &'static str,
    /// True when the plane continues to forward without the daemon.
    pub survives_daemon: bool,
    /// True when the hook and the delivery of a port can be chosen.
    pub hooks: bool,
    /// The maximum number of ports.
    pub ports: usize,
    /// The maximum number of FDB entries, static and dynamic.
    pub fdb: u32,
    /// True when the plane snoops: `VlanState::snooping` and [`ProtocolPlane::multicast`] have an effect.
    pub multicast: bool,
    /// True when the plane routes: [`Plane::route`] and router interfaces have an effect.
    pub routing: bool,
    /// True when the plane applies service policies (`PortState::qos`).
    pub policies: bool,
    /// True when it sends a note about each frame that a rule of an access list with `log` has decided about
    /// (`TrapReason::AclLog`), within the rate of the trap group.
    pub acl_notes: bool,
    /// True when frames that it sends pass the queueing discipline of their port's netdev with the queue of their class
    /// (`QosClass::queue`).
    pub queues: bool,
    /// The limits of this plane on this machine with their reasons, one line each, for `lanyard version` and `show
    /// platform`.
    pub notes: Vec<String>,
}

/// Where a port's frames enter the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// TC ingress.
    Tc,
    /// Native XDP, which passes the frames that it does not forward to TC.
    Xdp,
    /// A packet socket of the soft plane.
    Soft,
    /// A switch chip.
    Asic,
    /// No hook (the netdev is missing).
    None,
}

impl Hook {
    /// The keyword used in text and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::Soft => "soft",
            Self::Asic => "asic",
            Self::None => "none",
        }
    }
}

/// Why a plane refused a request. The message names what was refused and the reason.
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
    /// A finite table has no room until it has been enlarged, which takes a second or two.
    #[error("table {table} is being enlarged; try again")]
    Growing {
        /// The table's name in `show platform resources`.
        table: &'static str,
    },
    /// The plane does not support the request.
    #[error("the {plane} plane cannot {what}")]
    Unsupported {
        /// The plane.
        plane: &'static str,
        /// The missing capability, as the end of a sentence.
        what: String,
    },
    /// A port that is not in the state.
    #[error("port {0} does not exist")]
    NoSuchPort(PortId),
    /// The operating system refused a call.
    #[error("{what}: {cause}")]
    System {
        /// The failed operation, with the object concerned.
        what: String,
        /// The operating system's error.
        cause: String,
    },
    /// The state contradicts itself or exceeds a limit.
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
    /// The number of entries it can hold.
    pub size: u64,
    /// The number of entries it holds.
    pub used: u64,
    /// The largest number of entries it has held.
    pub high_water: u64,
    /// Insertions refused because the table, or a limit on it, was full.
    pub refused: u64,
    /// Bytes of memory that the table occupies, used or not.
    pub bytes: u64,
    /// Other tables in the same memory.
    pub shared_with: Vec<&'static str>,
}

/// An event that the plane reports to the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaneEvent {
    /// A dynamic entry was learned.
    FdbAdded(FdbEntry),
    /// A dynamic entry moved to another port.
    FdbMoved {
        /// The entry with its new port.
        entry: FdbEntry,
        /// The port it was at before.
        from: PortId,
    },
    /// A dynamic entry aged out.
    FdbAged(FdbEntry),
    /// A dynamic entry was flushed.
    FdbDeleted(FdbEntry),
    /// A port with port security has dropped a frame because of its source. A plane reports at most four violations of a
    /// port in a second; its counters have all of them.
    Violation {
        /// The port.
        port: PortId,
        /// The VLAN of the frame.
        vlan: VlanId,
        /// The source.
        mac: MacAddr,
    },
    /// A frame trapped for the control plane.
    Trapped {
        /// The port that received it.
        port: PortId,
        /// Its VLAN, if the frame was classified before it was trapped.
        vlan: Option<VlanId>,
        /// Why it was trapped.
        reason: TrapReason,
        /// The frame, tags in line.
        frame: Vec<u8>,
    },
    /// A received frame that was drawn at random.
    Sampled {
        /// The port that received it; a member of a port-channel, not the port-channel.
        port: PortId,
        /// Its length in bytes, tags included.
        len: u32,
        /// The number of frames, this one included, that the plane has considered since its last report of this kind.
        pool: u32,
        /// Frames that were drawn since then and could not be reported.
        drops: u32,
        /// Its first bytes, tags in line, at most `SamplingRate::HEAD`.
        head: Vec<u8>,
    },
    /// A port's hook or delivery has changed because its netdev has changed.
    PortChanged {
        /// The port.
        port: PortId,
        /// The change and its reason, as part of a sentence.
        what: String,
    },
    /// An access list moved between a chip and the software. The software judges by it when it is `diverted`.
    ListMoved {
        /// The list's name.
        name: String,
        /// True when the chip has no room for it.
        diverted: bool,
    },
    /// The switch chip has ended and the software plane forwards, or a chip forwards again.
    Chip {
        /// True when the chip forwards.
        up: bool,
        /// The event, as a sentence without its full stop.
        what: String,
    },
    /// The number of events that were lost because the ring was full.
    Lost(u64),
}
