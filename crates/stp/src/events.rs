//! Events for the log, for `debug spanning-tree events` and for `monitor events stp`.
//!
//! Invariant: an event contains identifiers only; [`Event::log`] turns the notable ones into IOS log lines,
//! given the ports' names.

use crate::bpdu::{BpduError, BridgeId};
use crate::config::Mode;
use crate::vars::Role;
use lanyard_types::{ErrCause, InstanceId, PortId, StpState, VlanId};

/// An event. `vlan` is the tree's VLAN in the per-VLAN modes, else `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // instance, vlan and port mean the same in every variant
pub enum Event {
    /// A port has a new role.
    Role { instance: InstanceId, vlan: Option<VlanId>, port: PortId, role: Role },
    /// A port has a new state.
    State { instance: InstanceId, vlan: Option<VlanId>, port: PortId, state: StpState },
    /// The tree has a new root; `port` is the root port, `None` when this bridge is the root.
    RootChanged { instance: InstanceId, vlan: Option<VlanId>, root: BridgeId, port: Option<PortId> },
    /// A topology change, detected on the port or received at it.
    TopologyChange { instance: InstanceId, vlan: Option<VlanId>, port: PortId, detected: bool },
    /// The port became or ceased to be an edge port.
    Edge { vlan: Option<VlanId>, port: PortId, edge: bool },
    /// The port changed between STP and RSTP.
    Migrated { vlan: Option<VlanId>, port: PortId, to_stp: bool },
    /// An inferior neighbour learns or forwards, so it does not receive this port's BPDUs.
    Disputed { instance: InstanceId, vlan: Option<VlanId>, port: PortId },
    /// The port receives its own BPDUs, or no longer does.
    SelfLoop { vlan: Option<VlanId>, port: PortId, blocked: bool },
    /// Root guard blocks or unblocks the port.
    RootGuard { instance: InstanceId, vlan: Option<VlanId>, port: PortId, blocked: bool },
    /// Loop guard blocks or unblocks the port.
    LoopGuard { instance: InstanceId, vlan: Option<VlanId>, port: PortId, blocked: bool },
    /// PVST+: a BPDU of VLAN `peer` was received in VLAN `vlan`.
    PvidMismatch { vlan: VlanId, peer: VlanId, port: PortId },
    /// PVST+: an access port received a trunk's BPDU.
    TypeMismatch { vlan: VlanId, port: PortId },
    /// PVST+: the port receives no contradicting BPDUs any more.
    Consistent { vlan: VlanId, port: PortId },
    /// PVST simulation: VLAN `vlan` beyond a region's border claims a root that contradicts the CIST's,
    /// because it is superior or inferior; the port is blocked.
    PvstSimFail { vlan: VlanId, port: PortId, root: BridgeId, superior: bool },
    /// PVST simulation: no VLAN contradicts the CIST any more.
    PvstSimOk { port: PortId },
    /// A frame was refused. At most one event per second and port.
    Rejected { port: PortId, error: BpduError },
    /// The port was shut down.
    ErrDisabled { port: PortId, cause: ErrCause },
    /// The port is enabled again.
    Recovering { port: PortId, cause: ErrCause },
    /// The machines still had transitions after the maximum number of rounds; they continue at the next
    /// event.
    NotSettled { vlan: Option<VlanId> },
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// `SPANTREE` or `PM`.
    pub facility: &'static str,
    /// 0 (emergency) to 7 (debugging).
    pub severity: u8,
    /// The mnemonic, such as `ROOTGUARD_BLOCK`.
    pub mnemonic: &'static str,
    /// The text after the colon.
    pub text: String,
}

impl std::fmt::Display for LogLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}-{}-{}: {}", self.facility, self.severity, self.mnemonic, self.text)
    }
}

/// The name of a tree in IOS: `VLAN0010`, `MST2`.
#[must_use]
pub fn tree_name(mode: Mode, mstid: u16, vlan: Option<VlanId>) -> String {
    match (mode, vlan) {
        (_, Some(vlan)) => format!("VLAN{:04}", vlan.get()),
        (Mode::Mst, None) => format!("MST{mstid}"),
        (_, None) => "VLAN0001".into(),
    }
}

impl Event {
    /// The log line that IOS writes for the event; `None` for events that only `debug` shows. `mstid`
    /// translates instances.
    #[must_use]
    pub fn log(
        &self,
        mode: Mode,
        name: &dyn Fn(PortId) -> String,
        mstid: &dyn Fn(InstanceId) -> u16,
    ) -> Option<LogLine> {
        let tree = |instance: InstanceId, vlan| tree_name(mode, mstid(instance), vlan);
        let line =
            |severity, mnemonic, text| Some(LogLine { facility: "SPANTREE", severity, mnemonic, text });
        let vlan_name = |vlan: VlanId| format!("VLAN{:04}", vlan.get());
        match *self {
            Self::RootChanged { instance, vlan, root, port } => {
                let port = port.map_or_else(|| "none".into(), name);
                let text = format!(
                    "Root Changed for {}: New Root Port is {port}. New Root Mac Address is {}",
                    tree(instance, vlan),
                    root.address()
                );
                line(5, "ROOTCHANGE", text)
            }
            Self::TopologyChange { instance, vlan, detected: true, .. } => {
                line(5, "TOPOTRAP", format!("Topology Change Trap for {}", tree(instance, vlan)))
            }
            Self::Disputed { instance, vlan, port } => {
                let text = format!("Dispute detected on port {} on {}.", name(port), tree(instance, vlan));
                line(2, "DISPUTE_DETECTED", text)
            }
            Self::SelfLoop { port, blocked, .. } => {
                let (mnemonic, what) = if blocked {
                    ("SELF_LOOP_BLOCK", "Blocking")
                } else {
                    ("SELF_LOOP_UNBLOCK", "Unblocking")
                };
                line(2, mnemonic, format!("{what} {}: the port receives its own BPDUs.", name(port)))
            }
            Self::RootGuard { instance, vlan, port, blocked } => {
                let (mnemonic, what) = if blocked {
                    ("ROOTGUARD_BLOCK", "blocking")
                } else {
                    ("ROOTGUARD_UNBLOCK", "unblocking")
                };
                let text = format!("Root guard {what} port {} on {}.", name(port), tree(instance, vlan));
                line(2, mnemonic, text)
            }
            Self::LoopGuard { instance, vlan, port, blocked } => {
                let (mnemonic, what) = if blocked {
                    ("LOOPGUARD_BLOCK", "blocking")
                } else {
                    ("LOOPGUARD_UNBLOCK", "unblocking")
                };
                let text = format!("Loop guard {what} port {} on {}.", name(port), tree(instance, vlan));
                line(2, mnemonic, text)
            }
            Self::PvidMismatch { vlan, peer, port } => {
                let text = format!(
                    "Received BPDU with inconsistent peer vlan id {peer} on {} {}.",
                    name(port),
                    vlan_name(vlan)
                );
                line(2, "RECV_PVID_ERR", text)
            }
            Self::TypeMismatch { vlan, port } => {
                let text = format!("Received 802.1Q BPDU on non trunk {} {}.", name(port), vlan_name(vlan));
                line(7, "RECV_1Q_NON_TRUNK", text)
            }
            Self::Consistent { vlan, port } => {
                let text =
                    format!("Unblocking {} on {}. Port consistency restored.", name(port), vlan_name(vlan));
                line(2, "UNBLOCK_CONSIST_PORT", text)
            }
            Self::PvstSimFail { vlan, port, root, superior } => {
                let (role, what) = if superior { ("designated", "superior") } else { ("root", "inferior") };
                let text = format!(
                    "Blocking {role} port {}: Inconsistent {what} PVST BPDU received on VLAN {vlan}, claiming root {}:{}",
                    name(port),
                    root.priority(),
                    root.address()
                );
                line(2, "PVSTSIM_FAIL", text)
            }
            Self::PvstSimOk { port } => line(
                2,
                "PVSTSIM_OK",
                format!("PVST Simulation inconsistency cleared on port {}.", name(port)),
            ),
            Self::Rejected { port, error } => {
                line(4, "BPDU_REJECTED", format!("Refused a BPDU on {}: {}.", name(port), error.name()))
            }
            Self::ErrDisabled { port, cause } => {
                let text = format!(
                    "{} error detected on {}, putting {} in err-disable state",
                    cause.name(),
                    name(port),
                    name(port)
                );
                Some(LogLine { facility: "PM", severity: 4, mnemonic: "ERR_DISABLE", text })
            }
            Self::Recovering { port, cause } => {
                let text = format!(
                    "Attempting to recover from {} err-disable state on {}",
                    cause.name(),
                    name(port)
                );
                Some(LogLine { facility: "PM", severity: 4, mnemonic: "ERR_RECOVER", text })
            }
            Self::NotSettled { .. } => {
                line(3, "NOT_SETTLED", "The state machines did not settle within their bound.".into())
            }
            Self::Role { .. }
            | Self::State { .. }
            | Self::TopologyChange { .. }
            | Self::Edge { .. }
            | Self::Migrated { .. } => None,
        }
    }
}
