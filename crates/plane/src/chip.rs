//! The configuration of a switch chip besides the [`PlaneState`](crate::PlaneState): how its CPU port is reached, how its
//! resources are managed, and its front panel. Planes without a chip have none of it.

use std::collections::BTreeMap;

/// How frames get from the CPU port to the netdevs of interfaces and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControlPath {
    /// Inside the kernel where it loads the programs, else through the daemon.
    #[default]
    Auto,
    /// Through the daemon and TAP netdevs.
    Tun,
    /// By eBPF programs inside the kernel.
    Kernel,
}

impl ControlPath {
    /// The word used on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tun => "tun",
            Self::Kernel => "kernel",
        }
    }
}

/// How the resource manager knows whether something fits into the chip (docs/offload.md, "Strategies").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Asks the chip before each write.
    Lockstep,
    /// Fetches room for this many units at a time.
    Prefetch(u32),
    /// Keeps a bucket of free units for each table, which queries in the background refill.
    Credit,
    /// Counts units against the platform file.
    PredictFlat,
    /// Asks a twin of the chip.
    PredictModel,
    /// Counts units where a count is exact, asks a twin of the chip otherwise, and writes larger transactions.
    #[default]
    Hybrid,
}

impl Strategy {
    /// The word used on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lockstep => "lockstep",
            Self::Prefetch(_) => "prefetch",
            Self::Credit => "credit",
            Self::PredictFlat => "predict-flat",
            Self::PredictModel => "predict-model",
            Self::Hybrid => "hybrid",
        }
    }
}

/// The policy for routes or access lists that a table of the chip has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TablePolicy {
    /// They are refused, with an error to the caller.
    Sync,
    /// They are accepted, and the software forwards their packets, or judges what a list has to judge.
    #[default]
    Hybrid,
    /// None is put into the chip.
    Bypass,
}

impl TablePolicy {
    /// The word used on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Hybrid => "hybrid",
            Self::Bypass => "bypass",
        }
    }
}

/// When a table alarms, in percent of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// The alarm is raised at this use or above: 1 to 100.
    pub raise: u8,
    /// The alarm is cleared below this use: less than `raise`.
    pub clear: u8,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { raise: 90, clear: 80 }
    }
}

/// Forward error correction of a port (IEEE 802.3, clauses 74 and 91).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fec {
    /// The usual FEC of the speed and the medium.
    #[default]
    Auto,
    /// None.
    Off,
    /// Reed-Solomon, clause 91 or 108.
    Rs,
    /// Fire code (BASE-R), clause 74.
    BaseR,
}

impl Fec {
    /// The word used on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Rs => "rs",
            Self::BaseR => "base-r",
        }
    }
}

/// A split of a port into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breakout {
    /// The number of parts: 2, 4 or 8.
    pub parts: u8,
    /// The speed of each part in Mbit/s.
    pub speed_mbps: u32,
}

impl std::fmt::Display for Breakout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}g", self.parts, self.speed_mbps / 1000)
    }
}

/// A front-panel port's own settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortSettings {
    /// `breakout`; `None`: the port is not split.
    pub breakout: Option<Breakout>,
    /// `speed` in Mbit/s; `None` is autonegotiation.
    pub speed_mbps: Option<u32>,
    /// True with `duplex half`.
    pub half_duplex: bool,
    /// `fec`.
    pub fec: Fec,
}

/// A chip as it is now, for `show` commands.
#[derive(Debug, Clone, PartialEq)]
pub struct ChipStatus {
    /// The platform's name.
    pub platform: String,
    /// False while the software plane forwards because no chip answers.
    pub up: bool,
    /// The path that frames of the CPU port take: never [`ControlPath::Auto`].
    pub control_path: ControlPath,
    /// How the resource manager knows what fits.
    pub strategy: Strategy,
    /// The estimated probability that the strategy's next decision is right: 1 is certain.
    pub confidence: f64,
    /// Routes that are not in the chip: the software forwards their packets.
    pub hidden_routes: u64,
    /// Access lists that the chip has no room for, by name: the software judges what they have to judge.
    pub diverted_lists: Vec<String>,
    /// The tables.
    pub tables: Vec<ChipTable>,
    /// The ports of the front panel, including those without a netdev because of a split.
    pub ports: Vec<ChipPort>,
}

/// A table of a chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChipTable {
    /// Its path: the memory's name and its own.
    pub path: String,
    /// How entries are found: `exact`, `lpm`, `tcam`, `index`.
    pub kind: &'static str,
    /// The kinds of objects it holds, and the units of memory that one takes.
    pub holds: Vec<(&'static str, u32)>,
    /// The policy for routes or access lists that it has no room for; `None` for a table that holds neither.
    pub policy: Option<TablePolicy>,
    /// True since it has passed the upper threshold, until it falls below the lower one.
    pub alarm: bool,
}

/// A port of the front panel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChipPort {
    /// `swpN`, or `swpNsK` for a part.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// The connector: `rj45`, `sfp`, `qsfp`, `qsfpdd`.
    pub connector: &'static str,
    /// The speed in Mbit/s.
    pub speed_mbps: u32,
    /// The possible speeds in Mbit/s, the greatest first.
    pub speeds_mbps: Vec<u32>,
    /// The possible splits.
    pub splits: Vec<Breakout>,
    /// True while its wire has a link.
    pub link_up: bool,
    /// The netdev that it is connected to.
    pub wire: String,
    /// Its settings.
    pub settings: PortSettings,
    /// Why it has no netdev: it is split, or its neighbour's split has taken it away. `None` if it has one.
    pub absent: Option<String>,
}

/// The configuration of a switch chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChipSettings {
    /// `platform control-path`.
    pub control_path: ControlPath,
    /// `platform resource-manager`.
    pub strategy: Strategy,
    /// `platform policy`, by the table's path.
    pub policies: BTreeMap<String, TablePolicy>,
    /// `platform resource ... threshold`, by the table's name. Tables of planes without a chip have thresholds, too.
    pub thresholds: BTreeMap<String, Thresholds>,
    /// `platform resource ... size` in units, by the table's path; tables that are not named have the platform's sizes.
    pub sizes: BTreeMap<String, u32>,
    /// False with `no platform feedback`: refusals of the chip have no consequences, to demonstrate what follows from that.
    pub feedback: bool,
    /// Front-panel ports whose settings are not the defaults, by name.
    pub ports: BTreeMap<String, PortSettings>,
}

impl Default for ChipSettings {
    fn default() -> Self {
        Self {
            control_path: ControlPath::default(),
            strategy: Strategy::default(),
            policies: BTreeMap::new(),
            thresholds: BTreeMap::new(),
            sizes: BTreeMap::new(),
            feedback: true,
            ports: BTreeMap::new(),
        }
    }
}
