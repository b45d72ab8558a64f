//! The configuration of a bridge, as plain values. Defaults are those of IOS; [`Config::check`] checks the
//! ranges.
//!
//! Trees are keyed by a number: 0 for the only tree of STP and RSTP; the MSTID in MST mode, 0 being the CIST;
//! the VLAN in the per-VLAN modes.

use crate::bpdu::BridgeId;
use lanyard_types::{InstanceId, MacAddr, PortId, VlanId, VlanSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `spanning-tree mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mode {
    /// One tree, RSTP with ForceProtocolVersion 0.
    Stp,
    /// One tree, RSTP.
    #[default]
    Rstp,
    /// The CIST and up to 63 MSTIs.
    Mst,
    /// One STP tree for each VLAN.
    Pvst,
    /// One RSTP tree for each VLAN.
    RapidPvst,
}

impl Mode {
    /// ForceProtocolVersion (13.7.2).
    #[must_use]
    pub const fn force_version(self) -> u8 {
        match self {
            Self::Stp | Self::Pvst => 0,
            Self::Rstp | Self::RapidPvst => 2,
            Self::Mst => 3,
        }
    }
    /// True for the modes with one tree for each VLAN.
    #[must_use]
    pub const fn per_vlan(self) -> bool {
        matches!(self, Self::Pvst | Self::RapidPvst)
    }
    /// The keyword in configuration commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stp => "stp",
            Self::Rstp => "rstp",
            Self::Mst => "mst",
            Self::Pvst => "pvst",
            Self::RapidPvst => "rapid-pvst",
        }
    }
    /// `protocol` in JSON: `stp`, `rstp` or `mst`.
    #[must_use]
    pub const fn protocol(self) -> &'static str {
        match self.force_version() {
            0 => "stp",
            2 => "rstp",
            _ => "mst",
        }
    }
}

/// `spanning-tree pathcost method`. MST always uses the long method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PathCostMethod {
    /// 16 bits, 802.1D-1998: 100 Mbit/s costs 19.
    #[default]
    Short,
    /// 32 bits, 802.1Q-2018 table 13-4: 100 Mbit/s costs 200,000.
    Long,
}

impl PathCostMethod {
    /// The cost of a link of this speed; an unknown speed counts as 1 Gbit/s.
    #[must_use]
    pub fn cost(self, speed_mbps: Option<u32>) -> u32 {
        let speed = speed_mbps.filter(|speed| *speed > 0).unwrap_or(1000);
        match self {
            Self::Short => match speed {
                0..=4 => 250,
                5..=10 => 100,
                11..=16 => 62,
                17..=45 => 39,
                46..=100 => 19,
                101..=155 => 14,
                156..=622 => 6,
                623..=1000 => 4,
                1001..=9999 => 3,
                10_000..=19_999 => 2,
                _ => 1,
            },
            Self::Long => (20_000_000 / speed).max(1),
        }
    }
}

/// The whole configuration of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The mode.
    pub mode: Mode,
    /// The bridge's address, an individual one.
    pub address: MacAddr,
    /// `hello-time`, 1..=10 s.
    pub hello_time_s: u8,
    /// `forward-time`, 4..=30 s.
    pub forward_time_s: u8,
    /// `max-age`, 6..=40 s.
    pub max_age_s: u8,
    /// `mst max-hops`, 1..=255.
    pub max_hops: u8,
    /// `transmit hold-count`, 1..=20 BPDUs per second and port.
    pub transmit_hold_count: u8,
    /// `guard counting`: ignores information that circulates in a cycle of bridges for a while
    /// (`procedures/counting.rs`).
    pub counting_guard: bool,
    /// `pathcost method`.
    pub path_cost_method: PathCostMethod,
    /// The MST region.
    pub mst: MstRegion,
    /// Settings of trees that differ from the defaults.
    pub trees: BTreeMap<u16, TreeConfig>,
    /// Per-VLAN modes: the VLANs that have a tree, at most 63.
    pub vlans: VlanSet,
    /// `portfast default`: true if access ports are edge ports by default.
    pub portfast_default: bool,
    /// `portfast bpduguard default`: for ports with portfast.
    pub bpduguard_default: bool,
    /// `portfast bpdufilter default`: for ports with portfast.
    pub bpdufilter_default: bool,
    /// `loopguard default`.
    pub loopguard_default: bool,
    /// `errdisable recovery cause bpduguard` with `interval`, 30..=86400 s; `None` leaves the port down.
    pub bpduguard_recovery_s: Option<u32>,
    /// The ports that take part in spanning tree.
    pub ports: BTreeMap<PortId, PortConfig>,
}

impl Config {
    /// The default configuration for a bridge with this address, without ports.
    #[must_use]
    pub fn new(mode: Mode, address: MacAddr) -> Self {
        Self {
            mode,
            address,
            hello_time_s: 2,
            forward_time_s: 15,
            max_age_s: 20,
            max_hops: 20,
            transmit_hold_count: 6,
            counting_guard: true,
            path_cost_method: PathCostMethod::default(),
            mst: MstRegion::default(),
            trees: BTreeMap::new(),
            vlans: [VlanId::DEFAULT].into_iter().collect(),
            portfast_default: false,
            bpduguard_default: false,
            bpdufilter_default: false,
            loopguard_default: false,
            bpduguard_recovery_s: None,
            ports: BTreeMap::new(),
        }
    }

    /// The settings of a tree; the defaults where none are configured.
    #[must_use]
    pub fn tree(&self, key: u16) -> TreeConfig {
        self.trees.get(&key).cloned().unwrap_or_default()
    }

    /// The method in force: MST is always long.
    #[must_use]
    pub fn effective_path_cost_method(&self) -> PathCostMethod {
        if self.mode == Mode::Mst { PathCostMethod::Long } else { self.path_cost_method }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        use ConfigError::*;
        if self.address.is_group() || self.address.is_zero() {
            return Err(Address(self.address));
        }
        for (what, value, low, high) in [
            ("hello-time", u32::from(self.hello_time_s), 1, 10),
            ("forward-time", u32::from(self.forward_time_s), 4, 30),
            ("max-age", u32::from(self.max_age_s), 6, 40),
            ("max-hops", u32::from(self.max_hops), 1, 255),
            ("transmit hold-count", u32::from(self.transmit_hold_count), 1, 20),
            ("errdisable recovery interval", self.bpduguard_recovery_s.unwrap_or(300), 30, 86_400),
        ] {
            range(what, value, low, high)?;
        }
        check_relation(self.hello_time_s, self.forward_time_s, self.max_age_s)?;
        for (key, tree) in &self.trees {
            let hello_s = tree.hello_time_s.unwrap_or(self.hello_time_s);
            check_times(hello_s, tree.forward_time_s, tree.max_age_s)?;
            if self.mode.per_vlan() {
                let forward_s = tree.forward_time_s.unwrap_or(self.forward_time_s);
                check_relation(hello_s, forward_s, tree.max_age_s.unwrap_or(self.max_age_s))?;
            }
            if tree.priority % 4096 != 0 || tree.priority > 61440 {
                return Err(Priority { tree: *key, priority: tree.priority });
            }
        }
        self.mst.check()?;
        if self.mode.per_vlan() && self.vlans.len() >= InstanceId::MAX {
            return Err(TooManyInstances { wanted: self.vlans.len(), limit: InstanceId::MAX - 1 });
        }
        for (port, config) in &self.ports {
            config.check(*port)?;
        }
        Ok(())
    }
}

fn range(what: &'static str, value: u32, low: u32, high: u32) -> Result<(), ConfigError> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(ConfigError::Range { what, value, low, high }) }
}

fn check_times(hello: u8, forward: Option<u8>, max_age: Option<u8>) -> Result<(), ConfigError> {
    range("hello-time", hello.into(), 1, 10)?;
    range("forward-time", forward.unwrap_or(15).into(), 4, 30)?;
    range("max-age", max_age.unwrap_or(20).into(), 6, 40)
}

/// Checks IEEE 802.1D-2004, 17.14: old information is discarded everywhere before a port that waits for it
/// forwards.
fn check_relation(hello_s: u8, forward_s: u8, max_age_s: u8) -> Result<(), ConfigError> {
    let most = 2 * u32::from(forward_s).saturating_sub(1);
    let least = 2 * (u32::from(hello_s) + 1);
    if (least..=most).contains(&max_age_s.into()) {
        return Ok(());
    }
    Err(ConfigError::Times { hello_s, forward_s, max_age_s, least, most })
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("{what} {value} is not {low} to {high}")]
    Range {
        /// The setting.
        what: &'static str,
        /// The refused value.
        value: u32,
        /// The lowest value.
        low: u32,
        /// The highest value.
        high: u32,
    },
    /// The times contradict each other.
    #[error(
        "max-age {max_age_s} is not {least} to {most}: with hello-time {hello_s} and forward-time {forward_s}, \
         2 x (forward-time - 1) >= max-age >= 2 x (hello-time + 1) is to hold (IEEE 802.1D); \
         change the other time first, or both in a configure session"
    )]
    Times {
        /// hello-time.
        hello_s: u8,
        /// forward-time.
        forward_s: u8,
        /// max-age.
        max_age_s: u8,
        /// The lowest max-age with these times.
        least: u32,
        /// The highest max-age with these times.
        most: u32,
    },
    /// A bridge priority is not a multiple of 4096, or is above 61440.
    #[error("bridge priority {priority} of tree {tree} is not a multiple of 4096 up to 61440")]
    Priority {
        /// The tree's key.
        tree: u16,
        /// The refused value.
        priority: u16,
    },
    /// The bridge's address is not an individual address.
    #[error("{0} can't be the address of a bridge")]
    Address(MacAddr),
    /// A port priority is not a multiple of 16, or is above 240.
    #[error("port priority {priority} of port {port} is not a multiple of 16 up to 240")]
    PortPriority {
        /// The port.
        port: PortId,
        /// The refused value.
        priority: u8,
    },
    /// An MSTID is outside 1..=4094.
    #[error("{0} is not an MST instance: 1 to 4094")]
    Mstid(u16),
    /// There are more MSTIs or VLANs than instances.
    #[error("{wanted} instances wanted, {limit} beside instance 0 are possible")]
    TooManyInstances {
        /// The configured number.
        wanted: usize,
        /// The maximum.
        limit: usize,
    },
    /// A VLAN is in two MST instances.
    #[error("VLAN {vlan} is in MST instances {first} and {second}")]
    VlanTwice {
        /// The VLAN.
        vlan: VlanId,
        /// One instance.
        first: u16,
        /// The other.
        second: u16,
    },
    /// The name of the MST region has more than 32 bytes.
    #[error("the MST region name is longer than 32 bytes")]
    RegionName,
    /// A path cost is 0 or above 200,000,000.
    #[error("path cost {cost} of port {port} is not 1 to 200000000")]
    PathCost {
        /// The port.
        port: PortId,
        /// The refused value.
        cost: u32,
    },
}

/// `spanning-tree mst configuration`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MstRegion {
    /// `name`, at most 32 bytes.
    pub name: String,
    /// `revision`.
    pub revision: u16,
    /// `instance N vlan LIST`: N is 1..=4094; VLANs that are not named are on instance 0.
    pub instances: BTreeMap<u16, VlanSet>,
}

impl MstRegion {
    fn check(&self) -> Result<(), ConfigError> {
        if self.name.len() > 32 {
            return Err(ConfigError::RegionName);
        }
        if self.instances.len() >= InstanceId::MAX {
            let (wanted, limit) = (self.instances.len(), InstanceId::MAX - 1);
            return Err(ConfigError::TooManyInstances { wanted, limit });
        }
        let mut of: BTreeMap<VlanId, u16> = BTreeMap::new();
        for (mstid, vlans) in &self.instances {
            if !(1..=4094).contains(mstid) {
                return Err(ConfigError::Mstid(*mstid));
            }
            for vlan in vlans.iter() {
                if let Some(first) = of.insert(vlan, *mstid) {
                    return Err(ConfigError::VlanTwice { vlan, first, second: *mstid });
                }
            }
        }
        Ok(())
    }

    /// The MSTID of a VLAN.
    #[must_use]
    pub fn mstid_of(&self, vlan: VlanId) -> u16 {
        self.instances.iter().find(|(_, vlans)| vlans.contains(vlan)).map_or(0, |(mstid, _)| *mstid)
    }
}

/// Settings of one tree. The times apply in the per-VLAN modes; other modes use those of [`Config`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeConfig {
    /// `priority`, 0..=61440 in steps of 4096.
    pub priority: u16,
    /// `hello-time` of a VLAN.
    pub hello_time_s: Option<u8>,
    /// `forward-time` of a VLAN.
    pub forward_time_s: Option<u8>,
    /// `max-age` of a VLAN.
    pub max_age_s: Option<u8>,
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self { priority: 32768, hello_time_s: None, forward_time_s: None, max_age_s: None }
    }
}

/// `spanning-tree link-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LinkType {
    /// Point-to-point if the link is full duplex.
    #[default]
    Auto,
    /// `point-to-point`.
    PointToPoint,
    /// `shared`.
    Shared,
}

/// `spanning-tree portfast`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortFast {
    /// The setting of `portfast default`.
    #[default]
    Default,
    /// `portfast disable`.
    Disable,
    /// `portfast [edge]`: an edge port unless it is a trunk.
    Edge,
    /// `portfast [edge] trunk`: an edge port, trunk or not.
    Trunk,
}

/// `spanning-tree guard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guard {
    /// The setting of `loopguard default`.
    #[default]
    Default,
    /// `guard none`.
    None,
    /// `guard root`.
    Root,
    /// `guard loop`.
    Loop,
}

/// The VLANs that a port carries. The per-VLAN modes and `portfast` depend on them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // 512 octets per port, and ports are few
pub enum PortVlans {
    /// One VLAN, untagged.
    Access(VlanId),
    /// Many VLANs.
    Trunk {
        /// The VLAN that is sent untagged.
        native: VlanId,
        /// The VLANs that are allowed.
        allowed: VlanSet,
    },
}

impl PortVlans {
    /// True when the port carries the VLAN.
    #[must_use]
    pub fn carries(&self, vlan: VlanId) -> bool {
        match self {
            Self::Access(access) => *access == vlan,
            Self::Trunk { allowed, .. } => allowed.contains(vlan),
        }
    }
}

/// Settings of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// The source address of its BPDUs; `None` uses the bridge's address.
    pub address: Option<MacAddr>,
    /// `link-type`.
    pub link_type: LinkType,
    /// `portfast`.
    pub portfast: PortFast,
    /// Automatic edge detection.
    pub auto_edge: bool,
    /// `bpduguard enable|disable`; `None` uses the global default.
    pub bpdu_guard: Option<bool>,
    /// `bpdufilter enable|disable`; `None` uses the global default.
    pub bpdu_filter: Option<bool>,
    /// `guard`.
    pub guard: Guard,
    /// restrictedTcn: topology changes received at this port are not propagated.
    pub restricted_tcn: bool,
    /// `cost`, 1..=200,000,000; `None` derives the cost from the speed.
    pub cost: Option<u32>,
    /// `port-priority`, 0..=240 in steps of 16.
    pub priority: u8,
    /// `vlan N cost`, `mst N cost`, `... port-priority`: `(cost, priority)` by tree.
    pub trees: BTreeMap<u16, (Option<u32>, Option<u8>)>,
    /// The VLANs that the port carries.
    pub vlans: PortVlans,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            address: None,
            link_type: LinkType::Auto,
            portfast: PortFast::Default,
            auto_edge: true,
            bpdu_guard: None,
            bpdu_filter: None,
            guard: Guard::Default,
            restricted_tcn: false,
            cost: None,
            priority: 128,
            trees: BTreeMap::new(),
            vlans: PortVlans::Access(VlanId::DEFAULT),
        }
    }
}

impl PortConfig {
    fn check(&self, port: PortId) -> Result<(), ConfigError> {
        let costs = self.cost.into_iter().chain(self.trees.values().filter_map(|(cost, _)| *cost));
        for cost in costs {
            if !(1..=200_000_000).contains(&cost) {
                return Err(ConfigError::PathCost { port, cost });
            }
        }
        let priorities = self.trees.values().filter_map(|(_, priority)| *priority).chain([self.priority]);
        for priority in priorities {
            if priority % 16 != 0 {
                return Err(ConfigError::PortPriority { port, priority });
            }
        }
        Ok(())
    }

    /// adminEdge: the configured portfast setting, with the default applied.
    #[must_use]
    pub fn admin_edge(&self, portfast_default: bool) -> bool {
        let access = matches!(self.vlans, PortVlans::Access(_));
        match self.portfast {
            PortFast::Default => portfast_default && access,
            PortFast::Disable => false,
            PortFast::Edge => access,
            PortFast::Trunk => true,
        }
    }
}

/// `root primary`: the priority that makes the bridge the root (IOS: 24576, or 4096 below a root that has less).
/// `None` when no such priority exists because the root's is 0.
#[must_use]
pub fn root_primary_priority(root: BridgeId, own: BridgeId) -> Option<u16> {
    let current = root.priority() & 0xf000;
    if root.address() == own.address() {
        return Some(current.min(24576));
    }
    if current > 24576 { Some(24576) } else { current.checked_sub(4096) }
}

/// The priority that `root secondary` sets.
pub const ROOT_SECONDARY_PRIORITY: u16 = 28672;
