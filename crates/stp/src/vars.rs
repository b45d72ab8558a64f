//! The variables that the state machines share, under the standard's names (IEEE 802.1Q-2018, 13.25 to
//! 13.28).
//!
//! There are three scopes: [`BridgeVars`] and [`TreeVars`] per bridge and per bridge and tree, [`PortVars`]
//! per port, [`PortTreeVars`] per port and tree. Tree 0 is the CIST, or the only tree.
//!
//! The standard counts timers down once a second. Here a [`Timer`] is a deadline, so an idle port costs
//! nothing; [`Timer::Held`] stands for a timer that the standard reloads at every tick.

use crate::bpdu::{BridgeId, Flags, MstConfigId, PortIdentifier, TICKS_PER_SECOND};
use lanyard_types::{InstanceId, MacAddr, PortId, PortSet, StpState, VlanId};
use serde::{Deserialize, Serialize};

/// Converts a time in 1/256 s, the unit of BPDUs, to milliseconds.
pub(crate) fn ms(ticks: u16) -> u64 {
    u64::from(ticks) * 1000 / u64::from(TICKS_PER_SECOND)
}

/// A down-counting timer (13.25).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// The timer is zero.
    #[default]
    Zero,
    /// The timer is held at this number of milliseconds while the machine stays in its state.
    Held(u64),
    /// The timer reaches zero at this time in milliseconds.
    Until(u64),
}

impl Timer {
    pub(crate) fn start(now: u64, duration_ms: u64) -> Self {
        if duration_ms == 0 { Self::Zero } else { Self::Until(now + duration_ms) }
    }
    pub(crate) fn is_zero(self, now: u64) -> bool {
        match self {
            Self::Zero => true,
            Self::Held(_) => false,
            Self::Until(at) => at <= now,
        }
    }
    /// Lets a held timer run.
    pub(crate) fn release(&mut self, now: u64) {
        if let Self::Held(duration_ms) = *self {
            *self = Self::start(now, duration_ms);
        }
    }
    /// The time at which it reaches zero, if it is running.
    pub(crate) fn deadline(self, now: u64) -> Option<u64> {
        match self {
            Self::Until(at) if at > now => Some(at),
            _ => None,
        }
    }
}

/// A port's role in a tree (13.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The port is not part of the active topology: it has no link, or is shut down.
    #[default]
    Disabled,
    /// The port has the bridge's best path to the root.
    Root,
    /// The port has the best path to the root for its LAN.
    Designated,
    /// The port has another path to the root.
    Alternate,
    /// Another port of this bridge serves the LAN.
    Backup,
    /// In MSTIs only: the port is the region's path to the CIST root.
    Master,
}

impl Role {
    /// The name in JSON and text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Root => "root",
            Self::Designated => "designated",
            Self::Alternate => "alternate",
            Self::Backup => "backup",
            Self::Master => "master",
        }
    }
    /// Alternate and backup ports share the machine's states (13.37).
    pub(crate) fn blocks(self) -> bool {
        matches!(self, Self::Alternate | Self::Backup)
    }
    /// True for the roles that carry traffic: root, designated, master.
    pub(crate) fn active(self) -> bool {
        matches!(self, Self::Root | Self::Designated | Self::Master)
    }
}

/// infoIs (13.27.31): the source of the information that a port holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum InfoIs {
    #[default]
    Disabled,
    Aged,
    Mine,
    Received,
}

/// rcvdInfo (13.27.57): how the last message compares with the port's own information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum RcvdInfo {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    #[default]
    Other,
}

/// A priority vector (13.10, 13.11); smaller is better. In an MSTI's vector `root` and `external_cost` are
/// zero, so both kinds are compared alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct Vector {
    pub root: BridgeId,
    pub external_cost: u32,
    pub regional_root: BridgeId,
    pub internal_cost: u32,
    pub designated_bridge: BridgeId,
    pub designated_port: PortIdentifier,
}

impl Vector {
    /// The parts that all bridges of a region share: the CIST root, the cost to it, and the regional root.
    pub(crate) fn of_region(&self) -> (BridgeId, u32, BridgeId) {
        (self.root, self.external_cost, self.regional_root)
    }
    /// True if both come from the same designated bridge and port (13.10, 13.11).
    pub(crate) fn same_source(&self, held: &Self) -> bool {
        self.designated_bridge.address() == held.designated_bridge.address()
            && self.designated_port.number() == held.designated_port.number()
    }
}

/// Timer parameter values (BridgeTimes, rootTimes, designatedTimes, msgTimes, portTimes), in 1/256 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    pub message_age: u16,
    pub max_age: u16,
    pub hello_time: u16,
    pub forward_delay: u16,
    pub remaining_hops: u8,
}

/// The default for snapshots of older versions, which lack this field.
const fn counting_guard() -> bool {
    true
}

/// The variables per bridge (13.26).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BridgeVars {
    /// ForceProtocolVersion: 0 STP, 2 RSTP, 3 MSTP (13.7.2).
    pub force_version: u8,
    pub address: MacAddr,
    pub tx_hold_count: u8,
    /// Ignores information that circulates in a cycle for a while (`procedures::counting`).
    #[serde(default = "counting_guard")]
    pub counting_guard: bool,
    pub max_hops: u8,
    /// BridgeTimes of the CIST.
    pub times: Times,
    pub mst_config_id: MstConfigId,
}

impl BridgeVars {
    /// MigrateTime (table 13-5): 3 s, not configurable.
    pub(crate) const MIGRATE_TIME_MS: u64 = 3000;
    /// rstpVersion (17.20.11 of 802.1D-2004).
    pub(crate) fn rstp_version(&self) -> bool {
        self.force_version >= 2
    }
}

/// The variables per bridge and tree (13.26).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TreeVars {
    pub instance: InstanceId,
    /// MSTID, or 0 for the CIST and for a VLAN's only tree.
    pub mstid: u16,
    pub bridge_id: BridgeId,
    pub root_priority: Vector,
    pub root_times: Times,
    /// The slot of the root port.
    pub root_port: Option<usize>,
    /// Ports with the master role or with mastered set.
    pub masters: u32,
    /// True when the port role selection machine must run: some port's reselect is set (13.36).
    pub reselect: bool,
    /// The number of topology changes, detected here or received, the time of the last, and its port.
    pub topology_changes: u64,
    pub last_change_ms: Option<u64>,
    pub last_change_port: Option<PortId>,
    /// The time at which a neighbour last reported a change.
    pub last_heard_ms: Option<u64>,
    pub counting: Counting,
    /// Ports whose addresses are to be flushed, and the limiter's window.
    #[serde(skip)]
    pub flush: PortSet,
    #[serde(skip)]
    pub flush_urgent: bool,
    pub flush_window_ms: u64,
    pub flushes_in_window: u32,
    /// The summary for allSynced, recomputed when it is not valid.
    #[serde(skip)]
    pub sync: SyncSummary,
}

/// The record of a tree's information that may count to infinity (`procedures::counting`).
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counting {
    /// The best information that the bridge has sent about the recorded root.
    pub advertised: Vector,
    /// The number of times that information about the recorded root followed that was no better, and the time
    /// of the last one.
    pub times: u8,
    pub last_ms: u64,
    /// While it runs, information about the recorded root that is no better than `advertised` is ignored.
    pub hold: Timer,
}

/// The parts of allSynced (13.28.1) that are the same for all ports of a tree.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SyncSummary {
    pub valid: bool,
    /// True if every port has selected set, role equal to selectedRole, and updtInfo clear.
    pub settled: bool,
    /// The number of ports that are not synced.
    pub unsynced: u32,
    /// The number of root ports among them.
    pub unsynced_root: u32,
}

/// The reasons that keep a port from learning and forwarding whatever its role is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inconsistent {
    /// Loop guard: the neighbour's BPDUs are missing.
    #[serde(rename = "loop")]
    pub loop_guard: bool,
    /// Root guard: the port received a superior BPDU and is an alternate port.
    pub root: bool,
    /// PVST+: the port received a BPDU of another VLAN.
    pub pvid: bool,
    /// PVST+: an access port received a trunk's BPDU.
    #[serde(rename = "type")]
    pub port_type: bool,
    /// PVST simulation: a VLAN beyond the region's border contradicts the CIST.
    #[serde(default)]
    pub pvst: bool,
    /// The port receives its own BPDUs.
    pub self_loop: bool,
}

impl Inconsistent {
    /// True if any reason blocks the port here; root guard blocks through the role instead.
    pub(crate) fn blocks(self) -> bool {
        self.loop_guard || self.pvid || self.port_type || self.pvst || self.self_loop
    }
    /// True if there is any reason.
    #[must_use]
    pub fn any(self) -> bool {
        self.blocks() || self.root
    }
}

/// Point-to-point determination (adminPointToPointMAC) and link properties of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct PortParams {
    pub enabled: bool,
    pub admin_edge: bool,
    pub auto_edge: bool,
    pub point_to_point: bool,
    pub restricted_role: bool,
    pub restricted_tcn: bool,
    pub loop_guard: bool,
    pub enable_bpdu_rx: bool,
    pub enable_bpdu_tx: bool,
    /// True when global `bpdufilter default` applies: the port sends ten BPDUs and is then silent while it is
    /// an edge port.
    pub filter_when_edge: bool,
}

/// The variables per port (13.27).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PortVars {
    pub id: PortId,
    /// False when the slot is free; its machines are then in their disabled states.
    pub present: bool,
    pub params: PortParams,
    pub oper_edge: bool,
    pub rcvd_bpdu: bool,
    pub rcvd_rstp: bool,
    pub rcvd_stp: bool,
    pub rcvd_internal: bool,
    pub info_internal: bool,
    /// True when the last BPDU came from outside the region.
    pub boundary: bool,
    /// True when a BPDU has been received since the link came up.
    pub heard_bridge: bool,
    /// Address and port number of the sender of the CIST's message, and of the sender of what the port holds.
    pub msg_source: (MacAddr, u16),
    pub info_source: (MacAddr, u16),
    pub rcvd_tc_ack: bool,
    pub rcvd_tcn: bool,
    pub tc_ack: bool,
    pub send_rstp: bool,
    pub mcheck: bool,
    pub new_info: bool,
    pub new_info_msti: bool,
    pub tx_count: u8,
    /// The time at which txCount is next decremented.
    pub tx_count_down: Timer,
    pub hello_when: Timer,
    pub mdelay_while: Timer,
    pub edge_delay_while: Timer,
    /// Runs for three hello times after the port's own BPDU, or a contradicting PVST+ BPDU, was received.
    pub self_loop_while: Timer,
    pub pvid_while: Timer,
    pub type_while: Timer,
    pub pvst_while: Timer,
    /// Runs while the region's path to the CIST root is new and the neighbour may not know it
    /// (`region_in_doubt`).
    pub region_while: Timer,
    /// The number of BPDUs sent since the link came up, for `bpdufilter default`.
    pub sent_since_up: u32,
    pub receive: crate::machines::port_receive::State,
    pub migration: crate::machines::port_migration::State,
    pub detection: crate::machines::bridge_detection::State,
    pub transmit: crate::machines::port_transmit::State,
    pub trees: Vec<PortTreeVars>,
    pub counters: crate::view::EntityCounters,
    /// A bitmap of the trees whose machines must run, and whether the port is in the run queue.
    #[serde(skip)]
    pub dirty: u64,
    #[serde(skip)]
    pub queued: bool,
    #[serde(skip)]
    pub touched: bool,
    /// The earliest time of this port in the timer heap.
    #[serde(skip)]
    pub scheduled_ms: Option<u64>,
}

/// The variables per port and tree (13.27).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PortTreeVars {
    /// InternalPortPathCost; for tree 0 also ExternalPortPathCost.
    pub path_cost: u32,
    pub port_id: PortIdentifier,
    pub agree: bool,
    pub agreed: bool,
    pub disputed: bool,
    pub forward: bool,
    pub forwarding: bool,
    pub learn: bool,
    pub learning: bool,
    pub info_is: InfoIs,
    pub mastered: bool,
    /// True when the port is counted in [`TreeVars::masters`].
    pub counted_master: bool,
    pub proposed: bool,
    pub proposing: bool,
    pub rcvd_info: RcvdInfo,
    pub rcvd_msg: bool,
    pub rcvd_tc: bool,
    pub re_root: bool,
    pub selected: bool,
    pub sync: bool,
    pub synced: bool,
    pub tc_prop: bool,
    pub updt_info: bool,
    pub role: Role,
    pub selected_role: Role,
    pub inconsistent: Inconsistent,
    pub designated_priority: Vector,
    pub designated_times: Times,
    pub msg_priority: Vector,
    pub msg_times: Times,
    pub msg_flags: Flags,
    pub port_priority: Vector,
    pub port_times: Times,
    pub fd_while: Timer,
    pub rr_while: Timer,
    pub rb_while: Timer,
    pub tc_while: Timer,
    pub rcvd_info_while: Timer,
    /// Runs for three hello times after a neighbour disputed the port's designated role.
    pub dispute_while: Timer,
    /// The information that the port last conveyed as a designated port, and the time in milliseconds.
    pub conveyed: Option<(Vector, u64)>,
    /// The best information that the port has sent as a designated port and that the neighbour may still act
    /// on: since the last agreement, or since the port became designated.
    pub advertised: Option<Vector>,
    /// True if the port has sent an agreement in another role since it last conveyed information as a
    /// designated port.
    pub promised: bool,
    /// Runs while agreements may be in flight that answer what the port conveyed, or agreed to, before.
    pub stale_while: Timer,
    pub information: crate::machines::port_information::State,
    pub roles: crate::machines::role_transitions::State,
    pub state: crate::machines::state_transition::State,
    pub change: crate::machines::topology_change::State,
    pub forward_transitions: u64,
    pub topology_changes: u64,
}

impl PortTreeVars {
    pub(crate) fn new(path_cost: u32, port_id: PortIdentifier) -> Self {
        Self {
            path_cost,
            port_id,
            agree: false,
            agreed: false,
            disputed: false,
            forward: false,
            forwarding: false,
            learn: false,
            learning: false,
            info_is: InfoIs::Disabled,
            mastered: false,
            counted_master: false,
            proposed: false,
            proposing: false,
            rcvd_info: RcvdInfo::Other,
            rcvd_msg: false,
            rcvd_tc: false,
            re_root: false,
            selected: false,
            sync: false,
            synced: false,
            tc_prop: false,
            updt_info: false,
            role: Role::Disabled,
            selected_role: Role::Disabled,
            inconsistent: Inconsistent::default(),
            designated_priority: Vector::default(),
            designated_times: Times::default(),
            msg_priority: Vector::default(),
            msg_times: Times::default(),
            msg_flags: Flags::default(),
            port_priority: Vector::default(),
            port_times: Times::default(),
            fd_while: Timer::Zero,
            rr_while: Timer::Zero,
            rb_while: Timer::Zero,
            tc_while: Timer::Zero,
            rcvd_info_while: Timer::Zero,
            dispute_while: Timer::Zero,
            conveyed: None,
            advertised: None,
            promised: false,
            stale_while: Timer::Zero,
            information: Default::default(),
            roles: Default::default(),
            state: Default::default(),
            change: Default::default(),
            forward_transitions: 0,
            topology_changes: 0,
        }
    }

    /// The port state as the planes define it.
    pub(crate) fn stp_state(&self) -> StpState {
        match (self.learning, self.forwarding) {
            (_, true) => StpState::Forwarding,
            (true, false) => StpState::Learning,
            (false, false) => StpState::Discarding,
        }
    }
    pub(crate) fn timers(&self) -> [Timer; 7] {
        [
            self.fd_while,
            self.rr_while,
            self.rb_while,
            self.tc_while,
            self.rcvd_info_while,
            self.dispute_while,
            self.stale_while,
        ]
    }
}

impl PortVars {
    pub(crate) fn new(id: PortId) -> Self {
        Self {
            id,
            present: true,
            params: PortParams::default(),
            oper_edge: false,
            rcvd_bpdu: false,
            rcvd_rstp: false,
            rcvd_stp: false,
            rcvd_internal: false,
            info_internal: false,
            boundary: false,
            heard_bridge: false,
            msg_source: Default::default(),
            info_source: Default::default(),
            rcvd_tc_ack: false,
            rcvd_tcn: false,
            tc_ack: false,
            send_rstp: false,
            mcheck: false,
            new_info: false,
            new_info_msti: false,
            tx_count: 0,
            tx_count_down: Timer::Zero,
            hello_when: Timer::Zero,
            mdelay_while: Timer::Zero,
            edge_delay_while: Timer::Zero,
            self_loop_while: Timer::Zero,
            pvid_while: Timer::Zero,
            type_while: Timer::Zero,
            pvst_while: Timer::Zero,
            region_while: Timer::Zero,
            sent_since_up: 0,
            receive: Default::default(),
            migration: Default::default(),
            detection: Default::default(),
            transmit: Default::default(),
            trees: Vec::new(),
            counters: Default::default(),
            dirty: 0,
            queued: false,
            touched: false,
            scheduled_ms: None,
        }
    }

    pub(crate) fn timers(&self) -> [Timer; 9] {
        [
            self.tx_count_down,
            self.hello_when,
            self.mdelay_while,
            self.edge_delay_while,
            self.self_loop_while,
            self.pvid_while,
            self.type_while,
            self.pvst_while,
            self.region_while,
        ]
    }
}

/// The requests of an entity to its bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Transmit {
        port: PortId,
        bpdu: crate::bpdu::Bpdu,
    },
    SetState {
        instance: InstanceId,
        port: PortId,
        state: StpState,
    },
    Flush {
        instance: InstanceId,
        ports: PortSet,
    },
    Event(crate::events::Event),
    /// No visible effect, but a restarted bridge must know the new value.
    Remember,
}

/// The VLAN whose tree an entity is; `None` for STP, RSTP and MSTP.
pub(crate) type EntityVlan = Option<VlanId>;
