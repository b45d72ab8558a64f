//! The views of the spanning trees.

use lanyard_stp::view::{InstanceView, PortSummary, PortView};
use lanyard_types::VlanId;
use serde::Serialize;

/// Selects a tree for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKey {
    /// The tree of a VLAN; in modes stp and rstp VLAN 1 stands for the only tree.
    Vlan(VlanId),
    /// The tree of an MST instance.
    Mst(u16),
}

/// `show spanning-tree`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SpanningTree {
    /// The trees: by VLAN in the per-VLAN modes, by MSTID in mode mst, else one.
    pub instances: Vec<StpInstance>,
    /// The mode; `None` when spanning tree is off.
    #[serde(skip)]
    pub mode: Option<lanyard_stp::Mode>,
    /// The ports, with the state that does not depend on a tree.
    #[serde(skip)]
    pub ports: Vec<StpPortState>,
    /// The plane's watchdog; `None` when spanning tree is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<StpWatchdog>,
}

/// The plane's watchdog, which blocks ports when the daemon has ended or hangs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StpWatchdog {
    /// The ports that the watchdog blocks when it expires.
    pub ports: Vec<String>,
    /// Seconds until it expires unless a BPDU is sent; `None` while it is stopped.
    pub expires_in_s: Option<f64>,
    /// How often this daemon has found the watchdog expired.
    pub expiries: u64,
    /// The time at which this daemon last found the watchdog expired, RFC 3339; `None` if it never did.
    pub last_expiry: Option<String>,
    /// True while the daemon withholds BPDUs because the plane refuses a port's state.
    #[serde(rename = "bpdus_withheld")]
    pub withheld: bool,
}

impl SpanningTree {
    /// Makes the view of a bridge at `now`, in milliseconds of the bridge's clock; `name` returns the name of a
    /// port.
    #[must_use]
    pub fn of(
        bridge: &lanyard_stp::Bridge,
        now: u64,
        name: &dyn Fn(lanyard_types::PortId) -> String,
    ) -> Self {
        let mode = bridge.config().mode;
        let natural = |port: &StpPort| lanyard_config::InterfaceName::Netdev(port.interface.clone());
        let instance = |detail: InstanceView| {
            let port = |detail: PortView| StpPort {
                interface: name(detail.port),
                role: detail.role.name(),
                state: lanyard_stp::view::stp_state_name(detail.state),
                cost: detail.cost,
                priority: detail.priority,
                edge: detail.edge,
                detail,
            };
            let mut ports: Vec<StpPort> = detail.ports.iter().cloned().map(port).collect();
            ports.sort_by_key(natural);
            StpInstance {
                instance: detail.vlan.map_or(detail.mstid, VlanId::get),
                protocol: detail.protocol,
                root_id: detail.root_id.to_string(),
                root_cost: detail.root_cost,
                root_port: detail.root_port.map(name),
                bridge_id: detail.bridge_id.to_string(),
                topology_changes: detail.topology_changes,
                topology_change_port: detail
                    .last_topology_change_port
                    .filter(|port| detail.ports.iter().any(|view| view.port == *port))
                    .map(name),
                ports,
                name: lanyard_stp::tree_name(mode, detail.mstid, detail.vlan),
                detail,
            }
        };
        let mut instances: Vec<StpInstance> = bridge.view(now).into_iter().map(instance).collect();
        instances.sort_by_key(|instance| instance.instance);
        let summary = |summary: PortSummary| StpPortState { interface: name(summary.port), summary };
        let mut ports: Vec<StpPortState> = bridge.port_summaries(now).into_iter().map(summary).collect();
        ports.sort_by_key(|port| lanyard_config::InterfaceName::Netdev(port.interface.clone()));
        Self { instances, mode: Some(mode), ports, watchdog: None }
    }
}

/// One tree.
#[derive(Debug, Clone, Serialize)]
pub struct StpInstance {
    /// The VLAN in the per-VLAN modes, the MSTID in mode mst, else 0.
    pub instance: u16,
    /// `stp`, `rstp` or `mst`.
    pub protocol: &'static str,
    /// The root, `PRIO.MAC`.
    pub root_id: String,
    /// The cost of the path to the root.
    pub root_cost: u32,
    /// The root port; `None` when this bridge is the root.
    pub root_port: Option<String>,
    /// This bridge's identifier, `PRIO.MAC`.
    pub bridge_id: String,
    /// The number of topology changes, detected and received.
    pub topology_changes: u64,
    /// The port of the last topology change; `None` if there was none, or the port is no longer in the tree.
    #[serde(skip)]
    pub topology_change_port: Option<String>,
    /// Its ports, in natural order.
    pub ports: Vec<StpPort>,
    /// The name of the tree in IOS: `VLAN0001`, `MST0`.
    #[serde(skip)]
    pub name: String,
    /// All other data.
    #[serde(skip)]
    pub detail: InstanceView,
}

/// A port's state in a tree.
#[derive(Debug, Clone, Serialize)]
pub struct StpPort {
    /// The port.
    pub interface: String,
    /// Its role.
    pub role: &'static str,
    /// `discarding`, `learning` or `forwarding`.
    pub state: &'static str,
    /// The path cost in force.
    pub cost: u32,
    /// The port priority, 0..=240.
    pub priority: u8,
    /// True for an edge port, configured or detected.
    pub edge: bool,
    /// All other data.
    #[serde(skip)]
    pub detail: PortView,
}

/// The state of a port that does not depend on a tree.
#[derive(Debug, Clone)]
pub struct StpPortState {
    /// The port.
    pub interface: String,
    /// Its guards, its counters, and the cause if a guard has shut it down.
    pub summary: PortSummary,
}
