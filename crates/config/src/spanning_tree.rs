//! `spanning-tree ...` and `errdisable recovery ...`: the model and its text.
//!
//! Invariant: settings of a mode that is not in force are kept and printed, as in IOS; a value that equals its
//! default is not printed. The ranges are those of [`lanyard_stp::Config::check`].

use crate::format::chunks;
use lanyard_stp::{Guard, LinkType, Mode, MstRegion, PathCostMethod, PortFast};
use lanyard_types::{ErrCause, VlanId, VlanSet};
use std::collections::{BTreeMap, BTreeSet};

/// The default of the bridge's priority.
pub const DEFAULT_PRIORITY: u16 = 32768;
/// The default of `max-age`, in seconds.
const DEFAULT_MAX_AGE_S: u32 = 20;
/// The default of `errdisable recovery interval`, in seconds.
pub const DEFAULT_RECOVERY_S: u32 = 300;

/// `spanning-tree ...`, globally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanningTree {
    /// `mode`; `None` means that spanning tree is off.
    pub mode: Option<Mode>,
    /// `vlan LIST ...`; the settings of VLAN 1 are those of the single tree in modes stp and rstp.
    pub vlans: BTreeMap<VlanId, Tree>,
    /// `no spanning-tree vlan LIST`: VLANs without a tree in the per-VLAN modes.
    pub no_tree: VlanSet,
    /// `mst N priority`.
    pub instances: BTreeMap<u16, u16>,
    /// `mst hello-time|forward-time|max-age`.
    pub mst_times: Times,
    /// `mst max-hops`, 1..=255.
    pub max_hops: u8,
    /// `mst configuration`.
    pub region: MstRegion,
    /// `pathcost method`.
    pub path_cost: PathCostMethod,
    /// `portfast [edge] default`.
    pub portfast_default: bool,
    /// `portfast [edge] bpduguard default`.
    pub bpduguard_default: bool,
    /// `portfast [edge] bpdufilter default`.
    pub bpdufilter_default: bool,
    /// `loopguard default`.
    pub loopguard_default: bool,
    /// `transmit hold-count`, 1..=20.
    pub hold_count: u8,
    /// `guard counting`.
    pub counting_guard: bool,
}

impl Default for SpanningTree {
    fn default() -> Self {
        Self {
            mode: None,
            vlans: BTreeMap::new(),
            no_tree: VlanSet::EMPTY,
            instances: BTreeMap::new(),
            mst_times: Times::default(),
            max_hops: 20,
            region: MstRegion::default(),
            path_cost: PathCostMethod::default(),
            portfast_default: false,
            bpduguard_default: false,
            bpdufilter_default: false,
            loopguard_default: false,
            hold_count: 6,
            counting_guard: true,
        }
    }
}

/// Times in seconds; `None` means the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// `hello-time`, 1..=10; 2 by default.
    pub hello_s: Option<u8>,
    /// `forward-time`, 4..=30; 15 by default.
    pub forward_s: Option<u8>,
    /// `max-age`, 6..=40; 20 by default.
    pub max_age_s: Option<u8>,
}

impl Times {
    fn words(self) -> impl Iterator<Item = (&'static str, u8)> {
        let all =
            [("hello-time", self.hello_s), ("forward-time", self.forward_s), ("max-age", self.max_age_s)];
        let mut words: Vec<(&str, u8)> =
            all.into_iter().filter_map(|(word, value)| value.map(|value| (word, value))).collect();
        words.sort_by_key(|(word, value)| turn(word, u32::from(*value)));
        words.into_iter()
    }
}

/// A VLAN's tree; `None` means the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tree {
    /// `priority`, a multiple of 4096 up to 61440.
    pub priority: Option<u16>,
    /// Its times.
    pub times: Times,
}

/// `spanning-tree ...` under an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanningTreePort {
    /// `link-type`.
    pub link_type: LinkType,
    /// `portfast`.
    pub portfast: PortFast,
    /// `bpduguard enable|disable`; `None`: the global default.
    pub bpdu_guard: Option<bool>,
    /// `bpdufilter enable|disable`; `None`: the global default.
    pub bpdu_filter: Option<bool>,
    /// `guard`.
    pub guard: Guard,
    /// `cost` and `port-priority`.
    pub all: PortTree,
    /// `vlan LIST cost|port-priority`.
    pub vlans: BTreeMap<VlanId, PortTree>,
    /// `mst N cost|port-priority`.
    pub instances: BTreeMap<u16, PortTree>,
}

/// A port's settings in one tree; `None` means the setting for all trees of the port, and then the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortTree {
    /// `cost`, 1..=200,000,000.
    pub cost: Option<u32>,
    /// `port-priority`, a multiple of 16 up to 240.
    pub priority: Option<u8>,
}

impl PortTree {
    fn words(self) -> impl Iterator<Item = (&'static str, u32)> {
        let all = [("cost", self.cost), ("port-priority", self.priority.map(u32::from))];
        all.into_iter().filter_map(|(word, value)| value.map(|value| (word, value)))
    }
}

/// `errdisable recovery ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrDisable {
    /// `cause C`: ports that were shut down for these causes are enabled again after the interval.
    pub recovery: BTreeSet<ErrCause>,
    /// `interval`, 30..=86,400 seconds.
    pub interval_s: u32,
}

impl Default for ErrDisable {
    fn default() -> Self {
        Self { recovery: BTreeSet::new(), interval_s: DEFAULT_RECOVERY_S }
    }
}

/// The lines `[no] spanning-tree vlan ...`.
#[must_use]
pub fn vlan_lines(tree: &SpanningTree) -> Vec<String> {
    let none = chunks(&tree.no_tree).into_iter().map(|list| format!("no spanning-tree vlan {list}"));
    let settings = grouped(&tree.vlans, |tree| {
        let priority = tree.priority.map(|priority| ("priority", u32::from(priority)));
        priority.into_iter().chain(tree.times.words().map(|(word, value)| (word, u32::from(value)))).collect()
    });
    none.chain(settings).collect()
}

/// The lines `spanning-tree mst ...`: the instances' priorities and the times.
#[must_use]
pub fn mst_lines(tree: &SpanningTree) -> Vec<String> {
    let priority =
        |(instance, priority): (&u16, &u16)| format!("spanning-tree mst {instance} priority {priority}");
    let time = |(word, value): (&str, u8)| format!("spanning-tree mst {word} {value}");
    tree.instances.iter().map(priority).chain(tree.mst_times.words().map(time)).collect()
}

/// The lines `instance N vlan LIST` under `spanning-tree mst configuration`.
#[must_use]
pub fn instance_lines(region: &MstRegion) -> Vec<String> {
    let lines = |(instance, vlans): (&u16, &VlanSet)| {
        let line = |list: String| format!("instance {instance} vlan {list}");
        chunks(vlans).into_iter().map(line).collect::<Vec<_>>()
    };
    region.instances.iter().flat_map(lines).collect()
}

/// The lines under an interface for the port's cost and priority: for all trees, for VLANs and for MST
/// instances.
#[must_use]
pub fn port_tree_lines(port: &SpanningTreePort) -> Vec<String> {
    let own = port.all.words().map(|(word, value)| format!("spanning-tree {word} {value}"));
    let mut lines: Vec<String> = own.collect();
    lines.extend(grouped(&port.vlans, |tree| tree.words().collect()));
    for (instance, tree) in &port.instances {
        lines
            .extend(tree.words().map(|(word, value)| format!("spanning-tree mst {instance} {word} {value}")));
    }
    lines
}

/// The sort key of a setting among a tree's lines. When a switch with default times reads the lines in this order, the
/// times never contradict each other (2 x (forward-time - 1) >= max-age >= 2 x (hello-time + 1)) after any line.
fn turn(word: &str, value: u32) -> u8 {
    match word {
        "max-age" if value <= DEFAULT_MAX_AGE_S => 0,
        "forward-time" => 1,
        "max-age" => 2,
        "hello-time" => 3,
        _ => 4,
    }
}

/// The lines `spanning-tree vlan LIST WORD VALUE`, with as many VLANs of the same value in one line as fit.
fn grouped<T>(vlans: &BTreeMap<VlanId, T>, words: impl Fn(&T) -> Vec<(&'static str, u32)>) -> Vec<String> {
    let mut groups: BTreeMap<(u8, &str, u32), Vec<VlanId>> = BTreeMap::new();
    for (vlan, settings) in vlans {
        for (word, value) in words(settings) {
            groups.entry((turn(word, value), word, value)).or_default().push(*vlan);
        }
    }
    let mut lines = Vec::new();
    for ((_, word, value), list) in groups {
        let set: VlanSet = list.into_iter().collect();
        lines
            .extend(chunks(&set).into_iter().map(|list| format!("spanning-tree vlan {list} {word} {value}")));
    }
    lines
}
