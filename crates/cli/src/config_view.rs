//! Views that are made from the configuration, or from the configuration and the state of the interfaces.

mod layer3;
mod qos;

pub use layer3::*;
pub use qos::*;

use crate::view::{Counters, InterfaceKind, InterfaceView, Interfaces, VlanEntry, VlanPort, VlanTable};
use lanyard_config::{Config, Interface, InterfaceName, PrivateKind, Role, SwitchportMode, Voice};
use lanyard_types::{VlanId, VlanSet};
use serde::Serialize;

/// The configuration name of a reported interface.
#[must_use]
pub fn name_of(view: &InterfaceView) -> InterfaceName {
    let vlan = view.name.strip_prefix("vlan").and_then(|number| number.parse::<VlanId>().ok());
    match (view.kind, vlan) {
        (InterfaceKind::Svi, Some(vlan)) => InterfaceName::Vlan(vlan),
        _ => InterfaceName::Netdev(view.name.clone()),
    }
}

pub(crate) fn configured<'a>(config: &'a Config, view: &InterfaceView) -> Option<&'a Interface> {
    config.interfaces.get(&name_of(view))
}

/// True for a switch port that carries VLANs itself. A member of a port-channel does not: the port-channel carries them. The
/// destination of a monitor session is in no VLAN.
fn carries_vlans(config: &Config, name: &InterfaceName, interface: &Interface) -> bool {
    interface.role == Role::Switchport
        && interface.aggregation.group.is_none()
        && !config.is_monitor_destination(name)
}

/// `show vlan`: every VLAN and the ports that are configured to carry it.
#[must_use]
pub fn vlans(config: &Config) -> VlanTable {
    let ports: Vec<(&InterfaceName, &Interface)> =
        config.interfaces.iter().filter(|(name, interface)| carries_vlans(config, name, interface)).collect();
    let vlans = config.vlans.iter().map(|(id, vlan)| VlanEntry {
        vlan: id.get(),
        name: vlan.display_name(*id),
        status: match (vlan.suspended, vlan.shutdown) {
            (false, false) => "active",
            (false, true) => "act/lshut",
            (true, false) => "suspended",
            (true, true) => "sus/lshut",
        },
        ports: ports
            .iter()
            .filter_map(|(name, interface)| membership(config, *id, name, interface))
            .collect(),
    });
    VlanTable { vlans: vlans.collect() }
}

fn membership(
    config: &Config,
    vlan: VlanId,
    name: &InterfaceName,
    interface: &Interface,
) -> Option<VlanPort> {
    let port = &interface.switchport;
    let trunk = port.mode == SwitchportMode::Trunk;
    let (is_member, tagged) = if trunk {
        (port.allowed_vlans.contains(vlan), vlan != port.native_vlan || config.tag_native)
    } else {
        // As in IOS, `show vlan private-vlan` lists the ports of private VLANs.
        let plain = matches!(port.mode, SwitchportMode::Access | SwitchportMode::Tunnel);
        (plain && port.carries(vlan), port.voice_vlan() == Some(vlan))
    };
    is_member.then(|| VlanPort { interface: name.to_string(), tagged, trunk })
}

/// `show mac address-table aging-time`.
#[derive(Debug, Clone, Serialize)]
pub struct Ageing {
    /// The ageing time in seconds; 0 means that entries never age out.
    pub ageing_time_s: u32,
}

/// `show mac address-table learning`.
#[derive(Debug, Clone, Serialize)]
pub struct Learning {
    /// All VLANs.
    pub vlans: Vec<LearningVlan>,
}

/// Whether a VLAN learns addresses.
#[derive(Debug, Clone, Serialize)]
pub struct LearningVlan {
    /// The VLAN.
    pub vlan: u16,
    /// True when addresses are learned.
    pub learning: bool,
    /// `mac address-table limit N vlan V`.
    pub limit: Option<u32>,
}

/// `show mac address-table learning`.
#[must_use]
pub fn learning(config: &Config) -> Learning {
    let entry = |id: &VlanId| LearningVlan {
        vlan: id.get(),
        learning: !config.fdb.no_learning.contains(*id),
        limit: config.fdb.vlan_limits.get(id).copied(),
    };
    Learning { vlans: config.vlans.keys().map(entry).collect() }
}

/// `show interfaces counters`.
#[derive(Debug, Clone, Serialize)]
pub struct CounterTable {
    /// The interfaces, in natural order.
    pub interfaces: Vec<CounterRow>,
}

/// One interface's counters.
#[derive(Debug, Clone, Serialize)]
pub struct CounterRow {
    /// The interface's name.
    pub interface: String,
    /// Received frames.
    pub rx: Counters,
    /// Sent frames.
    pub tx: Counters,
    /// Frames that the plane received and forwarded to at least one port. For a VLAN interface these are the
    /// frames that it sent, because the plane received them from it.
    pub forwarded: u64,
    /// Frames that the plane received and passed to the control plane only.
    pub trapped: u64,
}

/// `show interfaces counters`.
#[must_use]
pub fn counters(view: &Interfaces) -> CounterTable {
    let row = |i: &InterfaceView| CounterRow {
        interface: i.name.clone(),
        rx: i.rx,
        tx: i.tx,
        forwarded: i.forwarded,
        trapped: i.trapped,
    };
    CounterTable { interfaces: view.interfaces.iter().map(row).collect() }
}

/// `show interfaces description`.
#[derive(Debug, Clone, Serialize)]
pub struct Descriptions {
    /// The interfaces, in natural order.
    pub interfaces: Vec<Description>,
}

/// One interface's description.
#[derive(Debug, Clone, Serialize)]
pub struct Description {
    /// The interface's name.
    pub interface: String,
    /// True when it is not `shutdown`.
    pub admin_up: bool,
    /// True when it has carrier.
    pub link_up: bool,
    /// `description`; empty when there is none.
    pub description: String,
}

/// `show interfaces description`.
#[must_use]
pub fn descriptions(view: &Interfaces, config: &Config) -> Descriptions {
    let row = |i: &InterfaceView| Description {
        interface: i.name.clone(),
        admin_up: i.admin_up,
        link_up: i.link_up,
        description: configured(config, i).and_then(|c| c.description.clone()).unwrap_or_default(),
    };
    Descriptions { interfaces: view.interfaces.iter().map(row).collect() }
}

/// `show interfaces status`.
#[derive(Debug, Clone, Serialize)]
pub struct StatusTable {
    /// The interfaces, in natural order, without VLAN interfaces.
    pub interfaces: Vec<Status>,
}

/// One port's status.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The port's name.
    pub interface: String,
    /// `description`.
    pub description: String,
    /// `connected`, `monitoring` (the destination of a monitor session), `notconnect`, `disabled`, `err-disabled`, `absent` (there
    /// is no such netdev) or `unusable` (see `error`).
    pub status: &'static str,
    /// The access VLAN's number, `trunk`, `tunnel` or `routed`.
    pub vlan: String,
    /// `full`, `half` or `unknown`.
    pub duplex: &'static str,
    /// The speed in Mbit/s.
    pub speed_mbps: Option<u32>,
    /// The hook at which its frames enter the pipeline.
    pub hook: Option<&'static str>,
    /// Why the port is unusable.
    pub error: Option<String>,
}

/// `show interfaces status`.
#[must_use]
pub fn status(view: &Interfaces, config: &Config) -> StatusTable {
    let row = |i: &InterfaceView| {
        let settings = configured(config, i);
        let port = settings.map(|c| c.switchport.clone()).unwrap_or_default();
        let vlan = match (i.kind, port.mode) {
            (InterfaceKind::Routed, _) => "routed".into(),
            (_, SwitchportMode::Trunk) => "trunk".into(),
            (_, SwitchportMode::Tunnel) => "tunnel".into(),
            (_, SwitchportMode::Access) => port.access_vlan.to_string(),
            (_, SwitchportMode::PrivateHost | SwitchportMode::PrivatePromiscuous) => {
                private_vlans(config, &port).unwrap_or_else(|| "none".into())
            }
        };
        Status {
            interface: i.name.clone(),
            description: settings.and_then(|c| c.description.clone()).unwrap_or_default(),
            status: link_word(i, config),
            vlan,
            duplex: i.duplex,
            speed_mbps: i.speed_mbps,
            hook: i.hook,
            error: i.error.clone(),
        }
    };
    let ports = view.interfaces.iter().filter(|i| i.kind != InterfaceKind::Svi);
    StatusTable { interfaces: ports.map(row).collect() }
}

/// The state of a port's link in IOS's words.
#[must_use]
pub fn link_word(i: &InterfaceView, config: &Config) -> &'static str {
    if i.admin_up && i.error.as_deref().is_some_and(|error| error.starts_with("err-disabled")) {
        return "err-disabled";
    }
    match (i.present, i.error.is_some(), i.admin_up, i.link_up) {
        (false, ..) => "absent",
        (_, true, ..) => "unusable",
        (_, _, false, _) => "disabled",
        (_, _, true, true) if config.is_monitor_destination(&name_of(i)) => "monitoring",
        (_, _, true, true) => "connected",
        (_, _, true, false) => "notconnect",
    }
}

/// `show interfaces switchport`.
#[derive(Debug, Clone, Serialize)]
pub struct SwitchportTable {
    /// The switch ports and routed ports, in natural order.
    pub interfaces: Vec<SwitchportView>,
}

/// One port's layer-2 settings.
#[derive(Debug, Clone, Serialize)]
pub struct SwitchportView {
    /// The port's name.
    pub interface: String,
    /// False for a routed port.
    pub switchport: bool,
    /// `access`, `trunk`, `dot1q-tunnel`, `private-vlan host` or `private-vlan promiscuous`.
    pub mode: &'static str,
    /// The private VLANs in which it is, `PRIMARY,SECONDARIES`; `None` in other modes, and if they do not fit together.
    pub private_vlans: Option<String>,
    /// True when it forwards: enabled, with link.
    pub operational: bool,
    /// `switchport access vlan`.
    pub access_vlan: u16,
    /// The name of the access VLAN; `None` when the VLAN does not exist.
    pub access_vlan_name: Option<String>,
    /// `switchport voice vlan`: a number, `dot1p` or `untagged`.
    pub voice_vlan: Option<String>,
    /// `switchport trunk native vlan`.
    pub native_vlan: u16,
    /// The name of the native VLAN; `None` when the VLAN does not exist.
    pub native_vlan_name: Option<String>,
    /// True when frames of the native VLAN are sent with a tag.
    pub native_tagged: bool,
    /// `switchport trunk allowed vlan`, as a list.
    pub allowed_vlans: String,
    /// The EtherType of its tags, such as `0x8100`.
    pub ethertype: String,
    /// `switchport protected`.
    pub protected: bool,
    /// `switchport block unicast`.
    pub block_unicast: bool,
    /// `switchport block multicast`.
    pub block_multicast: bool,
    /// `mac address-table learning`.
    pub learning: bool,
    /// `mac address-table limit`.
    pub mac_limit: Option<u32>,
}

/// The keyword of a mode in commands and JSON.
#[must_use]
pub fn mode_word(mode: SwitchportMode) -> &'static str {
    match mode {
        SwitchportMode::Access => "access",
        SwitchportMode::Trunk => "trunk",
        SwitchportMode::Tunnel => "dot1q-tunnel",
        SwitchportMode::PrivateHost => "private-vlan host",
        SwitchportMode::PrivatePromiscuous => "private-vlan promiscuous",
    }
}

/// The primary and the secondary VLANs in which a port of private VLANs is; `None` for one whose VLANs do not fit together, and
/// which is therefore in no VLAN.
fn private_vlans(config: &Config, port: &lanyard_config::Switchport) -> Option<String> {
    match port.mode {
        SwitchportMode::PrivateHost => {
            let (primary, secondary) = port.private.host?;
            (config.primary_of(secondary) == Some(primary)).then(|| format!("{primary},{secondary}"))
        }
        SwitchportMode::PrivatePromiscuous => {
            let (primary, list) = port.private.mapping.as_ref()?;
            let secondaries = config.secondaries(*primary, list);
            match config.vlans.get(primary)?.private? {
                PrivateKind::Primary if secondaries.is_empty() => Some(primary.to_string()),
                PrivateKind::Primary => Some(format!("{primary},{secondaries}")),
                PrivateKind::Isolated | PrivateKind::Community => None,
            }
        }
        _ => None,
    }
}

/// `show interfaces switchport`.
#[must_use]
pub fn switchports(view: &Interfaces, config: &Config) -> SwitchportTable {
    let name = |id: VlanId| config.vlans.get(&id).map(|vlan| vlan.display_name(id));
    let row = |i: &InterfaceView| {
        let port = configured(config, i).map(|c| c.switchport.clone()).unwrap_or_default();
        SwitchportView {
            interface: i.name.clone(),
            switchport: matches!(i.kind, InterfaceKind::Switchport | InterfaceKind::Lag),
            mode: mode_word(port.mode),
            private_vlans: private_vlans(config, &port),
            operational: link_word(i, config) == "connected",
            access_vlan: port.access_vlan.get(),
            access_vlan_name: name(port.access_vlan),
            voice_vlan: port.voice.map(|voice| match voice {
                Voice::Vlan(vlan) => vlan.to_string(),
                Voice::Dot1p => "dot1p".into(),
                Voice::Untagged => "untagged".into(),
            }),
            native_vlan: port.native_vlan.get(),
            native_vlan_name: name(port.native_vlan),
            native_tagged: config.tag_native,
            allowed_vlans: list(&port.allowed_vlans),
            ethertype: port.tpid.ethertype().map_or_else(|| "none".into(), |t| format!("0x{t:04x}")),
            protected: port.protected,
            block_unicast: port.block_unicast,
            block_multicast: port.block_multicast,
            learning: port.learning,
            mac_limit: port.fdb_limit,
        }
    };
    let ports = view.interfaces.iter().filter(|i| i.kind != InterfaceKind::Svi);
    SwitchportTable { interfaces: ports.map(row).collect() }
}

fn list(set: &VlanSet) -> String {
    if set.is_empty() { "none".into() } else { set.to_string() }
}

/// `show interfaces trunk`.
#[derive(Debug, Clone, Serialize)]
pub struct Trunks {
    /// The trunks, in natural order.
    pub trunks: Vec<Trunk>,
}

/// One trunk.
#[derive(Debug, Clone, Serialize)]
pub struct Trunk {
    /// The port's name.
    pub interface: String,
    /// `on`, or `off` for a port that is no trunk.
    pub mode: &'static str,
    /// `802.1q`, or the EtherType of its tags.
    pub encapsulation: String,
    /// `trunking`, or `not-trunking` while the port is down or is no trunk.
    pub status: &'static str,
    /// The native VLAN.
    pub native_vlan: u16,
    /// The allowed list.
    pub allowed_vlans: String,
    /// Allowed VLANs that exist and are active.
    pub active_vlans: String,
}

/// `show interfaces trunk`. With `every` also switchports that are no trunks are listed, as for a port that is named: they carry
/// their access VLAN.
#[must_use]
pub fn trunks(view: &Interfaces, config: &Config, every: bool) -> Trunks {
    let live = |(_, vlan): &(&VlanId, &lanyard_config::Vlan)| !vlan.suspended && !vlan.shutdown;
    let active: VlanSet = config.vlans.iter().filter(live).map(|(id, _)| *id).collect();
    let trunk = |i: &InterfaceView| {
        let interface = configured(config, i)?;
        let port = &interface.switchport;
        let is_trunk = port.mode == SwitchportMode::Trunk;
        let allowed =
            if is_trunk { port.allowed_vlans.clone() } else { [port.access_vlan].into_iter().collect() };
        let is_up = is_trunk && link_word(i, config) == "connected";
        (carries_vlans(config, &name_of(i), interface) && (is_trunk || every)).then(|| Trunk {
            interface: i.name.clone(),
            mode: if is_trunk { "on" } else { "off" },
            encapsulation: match port.tpid.ethertype() {
                Some(0x8100) | None => "802.1q".into(),
                Some(other) => format!("0x{other:04x}"),
            },
            status: if is_up { "trunking" } else { "not-trunking" },
            native_vlan: port.native_vlan.get(),
            allowed_vlans: list(&allowed),
            active_vlans: list(&allowed.intersection(&active)),
        })
    };
    Trunks { trunks: view.interfaces.iter().filter_map(trunk).collect() }
}

/// `show history`.
#[derive(Debug, Clone, Serialize)]
pub struct History {
    /// The lines, the oldest first.
    pub lines: Vec<String>,
}

/// `show configuration sessions`.
#[derive(Debug, Clone, Serialize)]
pub struct PendingSessions {
    /// The sessions, by name.
    pub sessions: Vec<PendingSession>,
    /// Seconds until an unconfirmed commit is rolled back.
    pub rollback_in_s: Option<u64>,
}

/// One pending session.
#[derive(Debug, Clone, Serialize)]
pub struct PendingSession {
    /// The session's name.
    pub name: String,
    /// The number of lines in it.
    pub lines: u64,
}

/// `show spanning-tree mst configuration`.
#[derive(Debug, Clone, Serialize)]
pub struct MstConfiguration {
    /// The region's name.
    pub name: String,
    /// Its revision.
    pub revision: u16,
    /// The digest of its mapping, hexadecimal in capitals (IEEE 802.1Q-2018, 13.8).
    pub digest: String,
    /// The instances; instance 0 comes first.
    pub instances: Vec<MstMapping>,
}

/// The VLANs of an MST instance.
#[derive(Debug, Clone, Serialize)]
pub struct MstMapping {
    /// The MSTID.
    pub instance: u16,
    /// Its VLANs, as a list; `none` when it has none.
    pub vlans: String,
}

/// `show spanning-tree mst configuration`.
#[must_use]
pub fn mst_configuration(config: &Config) -> MstConfiguration {
    let region = &config.spanning_tree.region;
    let mapped = region.instances.values().fold(VlanSet::EMPTY, |all, vlans| all.union(vlans));
    let rest = VlanSet::all().difference(&mapped);
    let row = |(instance, vlans): (u16, &VlanSet)| MstMapping { instance, vlans: list(vlans) };
    let others = region.instances.iter().map(|(instance, vlans)| row((*instance, vlans)));
    let pairs = region.instances.iter().map(|(instance, vlans)| (*instance, vlans));
    let id = lanyard_stp::bpdu::MstConfigId::new(&region.name, region.revision, pairs);
    MstConfiguration {
        name: region.name.clone(),
        revision: region.revision,
        digest: id.digest.iter().map(|byte| format!("{byte:02X}")).collect(),
        instances: std::iter::once(row((0, &rest))).chain(others).collect(),
    }
}

/// `show spanning-tree summary`.
#[derive(Debug, Clone, Serialize)]
pub struct StpSummary {
    /// The mode; `None` when spanning tree is off.
    pub mode: Option<&'static str>,
    /// The trees whose root is this bridge.
    pub root_for: Vec<String>,
    /// `portfast default`.
    pub portfast_default: bool,
    /// `portfast bpduguard default`.
    pub bpduguard_default: bool,
    /// `portfast bpdufilter default`.
    pub bpdufilter_default: bool,
    /// `loopguard default`.
    pub loopguard_default: bool,
    /// The method in force, `short` or `long`.
    pub path_cost_method: &'static str,
    /// The trees.
    pub instances: Vec<StpCounts>,
}

/// The numbers of a tree's ports by state. Ports without link are not counted.
#[derive(Debug, Clone, Serialize)]
pub struct StpCounts {
    /// The name of the tree in IOS.
    pub name: String,
    /// Discarding.
    pub blocking: u64,
    /// Learning.
    pub learning: u64,
    /// Forwarding.
    pub forwarding: u64,
    /// All ports with link.
    pub active: u64,
}

/// `show spanning-tree summary`.
#[must_use]
pub fn stp_summary(view: &crate::view::SpanningTree, config: &Config) -> StpSummary {
    use lanyard_types::StpState::{Discarding, Forwarding, Learning};
    let tree = &config.spanning_tree;
    let counts = |instance: &crate::view::StpInstance| {
        let active = || instance.ports.iter().filter(|port| port.detail.role != lanyard_stp::Role::Disabled);
        let count = |state| active().filter(|port| port.detail.state == state).count() as u64;
        StpCounts {
            name: instance.name.clone(),
            blocking: count(Discarding),
            learning: count(Learning),
            forwarding: count(Forwarding),
            active: active().count() as u64,
        }
    };
    let is_root = |instance: &&crate::view::StpInstance| instance.root_port.is_none();
    let long =
        tree.mode == Some(lanyard_stp::Mode::Mst) || tree.path_cost == lanyard_stp::PathCostMethod::Long;
    StpSummary {
        mode: view.mode.map(lanyard_stp::Mode::name),
        root_for: view.instances.iter().filter(is_root).map(|instance| instance.name.clone()).collect(),
        portfast_default: tree.portfast_default,
        bpduguard_default: tree.bpduguard_default,
        bpdufilter_default: tree.bpdufilter_default,
        loopguard_default: tree.loopguard_default,
        path_cost_method: if long { "long" } else { "short" },
        instances: view.instances.iter().map(counts).collect(),
    }
}
