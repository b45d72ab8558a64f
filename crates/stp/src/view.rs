//! The data of `show spanning-tree` as plain values. Fields of [`InstanceView`] and [`PortView`] that are
//! documented JSON keys have the names of these keys; ports are identified by number, and the caller knows
//! their names.

use crate::bpdu::{Bpdu, BpduError, BridgeId, PortIdentifier};
use crate::vars::{Inconsistent, Role};
use lanyard_types::{ErrCause, InstanceId, PortId, StpState, VlanId};
use serde::{Deserialize, Serialize};

/// Counters of the BPDUs of one port in one entity (all trees of an MST bridge share them).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EntityCounters {
    /// Sent configuration BPDUs.
    pub tx_config: u64,
    /// Sent TCN BPDUs.
    pub tx_tcn: u64,
    /// Sent RST and MST BPDUs.
    pub tx_rapid: u64,
    /// Received configuration BPDUs.
    pub rx_config: u64,
    /// Received TCN BPDUs.
    pub rx_tcn: u64,
    /// Received RST and MST BPDUs.
    pub rx_rapid: u64,
    /// Received BPDUs with the topology change flag, which are also counted above.
    pub rx_topology_change: u64,
    /// Received BPDUs that this bridge itself sent.
    pub rx_own: u64,
}

impl EntityCounters {
    pub(crate) fn sent(&mut self, bpdu: &Bpdu) {
        *match bpdu {
            Bpdu::Config(_) => &mut self.tx_config,
            Bpdu::Tcn => &mut self.tx_tcn,
            Bpdu::Rst(_) | Bpdu::Mst(..) => &mut self.tx_rapid,
        } += 1;
    }
    pub(crate) fn received(&mut self, bpdu: &Bpdu) {
        *match bpdu {
            Bpdu::Config(_) => &mut self.rx_config,
            Bpdu::Tcn => &mut self.rx_tcn,
            Bpdu::Rst(_) | Bpdu::Mst(..) => &mut self.rx_rapid,
        } += 1;
        self.rx_topology_change += u64::from(bpdu.body().is_some_and(|body| body.flags.tc));
    }
    /// All BPDUs sent.
    #[must_use]
    pub fn tx(&self) -> u64 {
        self.tx_config + self.tx_tcn + self.tx_rapid
    }
    /// All BPDUs received.
    #[must_use]
    pub fn rx(&self) -> u64 {
        self.rx_config + self.rx_tcn + self.rx_rapid
    }
}

/// Frames that a port refused or ignored before they reached a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Refused frames, in the order of [`BpduError::ALL`].
    pub rejected: Vec<u64>,
    /// BPDUs received on a port with `bpdufilter`, or without link.
    pub filtered: u64,
    /// SSTP BPDUs received in the modes `stp` and `rstp`.
    pub sstp_ignored: u64,
    /// BPDUs received for a VLAN that has no tree or that the port does not carry.
    pub no_tree: u64,
}

impl Default for PortCounters {
    fn default() -> Self {
        Self { rejected: vec![0; BpduError::ALL.len()], filtered: 0, sstp_ignored: 0, no_tree: 0 }
    }
}

impl PortCounters {
    /// The number of frames refused for this reason.
    #[must_use]
    pub fn rejected(&self, error: BpduError) -> u64 {
        self.rejected.get(error as usize).copied().unwrap_or(0)
    }
    /// The reasons that have occurred, by name, with their numbers.
    pub fn rejected_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        BpduError::ALL
            .iter()
            .map(|error| (error.name(), self.rejected(*error)))
            .filter(|(_, count)| *count > 0)
    }
}

/// One tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceView {
    /// The instance number in the planes.
    pub instance: InstanceId,
    /// The VLAN in the per-VLAN modes.
    pub vlan: Option<VlanId>,
    /// The MSTID in MST mode, else 0.
    pub mstid: u16,
    /// `stp`, `rstp` or `mst`.
    pub protocol: &'static str,
    /// The root of the tree: the CIST root, or an MSTI's regional root.
    #[serde(serialize_with = "as_text")]
    pub root_id: BridgeId,
    /// The cost to the root: external for the CIST, internal for an MSTI.
    pub root_cost: u32,
    /// The root port; `None` when this bridge is the root.
    pub root_port: Option<PortId>,
    /// This bridge's identifier in this tree.
    #[serde(serialize_with = "as_text")]
    pub bridge_id: BridgeId,
    /// In MST mode, for the CIST: the regional root.
    #[serde(serialize_with = "as_text")]
    pub regional_root_id: BridgeId,
    /// In MST mode, for the CIST: the internal cost to the regional root.
    pub internal_root_cost: u32,
    /// Remaining hops of the root's information.
    pub remaining_hops: u8,
    /// The root's hello time in milliseconds.
    pub hello_time_ms: u64,
    /// The root's forward delay in milliseconds.
    pub forward_delay_ms: u64,
    /// The root's max age in milliseconds.
    pub max_age_ms: u64,
    /// The bridge's own hello time, forward delay and max age in milliseconds.
    pub own_times_ms: [u64; 3],
    /// The number of topology changes, detected and received.
    pub topology_changes: u64,
    /// Milliseconds since the last topology change.
    pub last_topology_change_ms: Option<u64>,
    /// The port of the last topology change.
    pub last_topology_change_port: Option<PortId>,
    /// Ports of the tree, by number.
    pub ports: Vec<PortView>,
}

/// A port's state in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortView {
    /// The port.
    pub port: PortId,
    /// Its role.
    pub role: Role,
    /// Its state.
    #[serde(serialize_with = "state_name")]
    pub state: StpState,
    /// The path cost in force.
    pub cost: u32,
    /// Port priority, 0..=240.
    pub priority: u8,
    /// True when the port is operating as an edge port.
    pub edge: bool,
    /// True when the link is operating as point-to-point.
    pub point_to_point: bool,
    /// True when the port sends STP to its neighbour.
    pub stp_neighbour: bool,
    /// In MST mode: true when the neighbour is in another region.
    pub boundary: bool,
    /// The guards that block the port.
    pub inconsistent: Inconsistent,
    /// True when the neighbour does not receive this port's BPDUs.
    pub disputed: bool,
    /// True when the neighbour has agreed.
    pub agreed: bool,
    /// True when the port is proposing.
    pub proposing: bool,
    /// Port identifier.
    #[serde(serialize_with = "as_text")]
    pub port_id: PortIdentifier,
    /// The designated root in the information that the port holds.
    #[serde(serialize_with = "as_text")]
    pub designated_root: BridgeId,
    /// The designated cost in that information.
    pub designated_cost: u32,
    /// The designated bridge in that information.
    #[serde(serialize_with = "as_text")]
    pub designated_bridge: BridgeId,
    /// The designated port in that information.
    #[serde(serialize_with = "as_text")]
    pub designated_port: PortIdentifier,
    /// The number of times that the port began to forward.
    pub forward_transitions: u64,
    /// The number of topology changes that the port detected.
    pub topology_changes: u64,
    /// Milliseconds until the neighbour's information ages out.
    pub message_age_timer_ms: Option<u64>,
    /// Milliseconds until the forward delay timer (fdWhile) runs out.
    pub forward_delay_timer_ms: Option<u64>,
    /// The BPDU counters of the entity.
    pub bpdus: EntityCounters,
}

/// The state of a port that does not depend on a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortSummary {
    /// The port.
    pub port: PortId,
    /// True when the link is up.
    pub up: bool,
    /// The reason for which a guard has shut the port down, and the milliseconds until it recovers; `None`: it
    /// does not recover by itself.
    pub err_disabled: Option<(ErrCause, Option<u64>)>,
    /// True when portfast is configured.
    pub portfast: bool,
    /// True when BPDU guard is in force.
    pub bpdu_guard: bool,
    /// True when BPDU filter is in force.
    pub bpdu_filter: bool,
    /// True when root guard is in force.
    pub root_guard: bool,
    /// True when loop guard is in force.
    pub loop_guard: bool,
    /// The frames that it refused.
    pub counters: PortCounters,
}

/// The state's name in JSON.
#[must_use]
pub fn stp_state_name(state: StpState) -> &'static str {
    match state {
        StpState::Discarding => "discarding",
        StpState::Learning => "learning",
        StpState::Forwarding => "forwarding",
    }
}

fn state_name<S: serde::Serializer>(state: &StpState, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(stp_state_name(*state))
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(value)
}

impl crate::Bridge {
    /// Every tree, by instance.
    #[must_use]
    pub fn view(&self, now: u64) -> Vec<InstanceView> {
        let mut views: Vec<InstanceView> = self
            .entities
            .values()
            .flat_map(|entity| {
                (0..entity.trees.len()).map(move |t| instance_view(entity, t, now, self.config.mode))
            })
            .collect();
        views.sort_by_key(|view| view.instance);
        views
    }

    /// Every port, by number.
    #[must_use]
    pub fn port_summaries(&self, now: u64) -> Vec<PortSummary> {
        let config = self.config();
        config
            .ports
            .iter()
            .map(|(id, port)| {
                let params = self.params(*id);
                let link = self.links.get(id).cloned().unwrap_or_default();
                let edge = port.admin_edge(config.portfast_default);
                PortSummary {
                    port: *id,
                    up: link.up,
                    err_disabled: link
                        .err_disabled
                        .map(|(cause, until)| (cause, until.map(|until| until.saturating_sub(now)))),
                    portfast: edge,
                    bpdu_guard: port.bpdu_guard.unwrap_or(config.bpduguard_default && edge),
                    bpdu_filter: !params.enable_bpdu_rx || params.filter_when_edge,
                    root_guard: params.restricted_role,
                    loop_guard: params.loop_guard,
                    counters: link.counters,
                }
            })
            .collect()
    }

    /// The MSTID of an instance in MST mode, else 0.
    #[must_use]
    pub fn mstid_of(&self, instance: InstanceId) -> u16 {
        let trees = self.entities.values().flat_map(|entity| &entity.trees);
        trees.into_iter().find(|tree| tree.instance == instance).map_or(0, |tree| tree.mstid)
    }

    /// The MST configuration identification in force: `show spanning-tree mst configuration digest`.
    #[must_use]
    pub fn mst_config_id(&self) -> Option<&crate::bpdu::MstConfigId> {
        self.entities.get(&0).map(|entity| &entity.bridge.mst_config_id)
    }

    /// The priority that `root primary` sets for a tree (see [`crate::root_primary_priority`]); `None` also for an
    /// unknown tree.
    #[must_use]
    pub fn root_primary_priority(&self, instance: InstanceId) -> Option<u16> {
        self.entities
            .values()
            .flat_map(|entity| &entity.trees)
            .find(|tree| tree.instance == instance)
            .and_then(|tree| {
                let cist = tree.mstid == 0;
                let root = if cist { tree.root_priority.root } else { tree.root_priority.regional_root };
                crate::root_primary_priority(root, tree.bridge_id)
            })
    }

    /// The number of runs of the machines that reached their limit of rounds; it should always be 0.
    #[must_use]
    pub fn unsettled_runs(&self) -> u64 {
        self.entities.values().map(|entity| entity.unsettled).sum()
    }
}

fn instance_view(
    entity: &crate::entity::Entity,
    t: usize,
    now: u64,
    mode: crate::config::Mode,
) -> InstanceView {
    use crate::vars::ms;
    let tree = &entity.trees[t];
    let root = tree.root_priority;
    let cist = entity.trees[0].root_times;
    let own = entity.bridge.times;
    InstanceView {
        instance: tree.instance,
        vlan: entity.vlan,
        mstid: tree.mstid,
        protocol: mode.protocol(),
        root_id: if t == 0 { root.root } else { root.regional_root },
        root_cost: if t == 0 { root.external_cost } else { root.internal_cost },
        root_port: tree.root_port.map(|p| entity.ports[p].id),
        bridge_id: tree.bridge_id,
        regional_root_id: root.regional_root,
        internal_root_cost: root.internal_cost,
        remaining_hops: tree.root_times.remaining_hops,
        hello_time_ms: ms(cist.hello_time),
        forward_delay_ms: ms(cist.forward_delay),
        max_age_ms: ms(cist.max_age),
        own_times_ms: [ms(own.hello_time), ms(own.forward_delay), ms(own.max_age)],
        topology_changes: tree.topology_changes,
        last_topology_change_ms: tree.last_change_ms.map(|at| now.saturating_sub(at)),
        last_topology_change_port: tree.last_change_port,
        ports: entity
            .present()
            .map(|(id, port)| port_view(id, port, t, mode == crate::config::Mode::Mst, now))
            .collect(),
    }
}

fn port_view(id: PortId, port: &crate::vars::PortVars, t: usize, mst: bool, now: u64) -> PortView {
    let tree = &port.trees[t];
    let held = tree.port_priority;
    let left = |timer: crate::vars::Timer| timer.deadline(now).map(|at| at - now);
    PortView {
        port: id,
        role: tree.role,
        state: tree.stp_state(),
        cost: tree.path_cost,
        priority: tree.port_id.priority(),
        edge: port.oper_edge,
        point_to_point: port.params.point_to_point,
        stp_neighbour: port.params.enabled && !port.send_rstp,
        boundary: mst && port.boundary,
        inconsistent: tree.inconsistent,
        disputed: !tree.dispute_while.is_zero(now),
        agreed: tree.agreed,
        proposing: tree.proposing,
        port_id: tree.port_id,
        designated_root: if t == 0 { held.root } else { held.regional_root },
        designated_cost: if t == 0 { held.external_cost } else { held.internal_cost },
        designated_bridge: held.designated_bridge,
        designated_port: held.designated_port,
        forward_transitions: tree.forward_transitions,
        topology_changes: tree.topology_changes,
        message_age_timer_ms: left(tree.rcvd_info_while),
        forward_delay_timer_ms: left(tree.fd_while),
        bpdus: port.counters,
    }
}
