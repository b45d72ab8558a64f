//! Quality of service: `class-map`, `policy-map`, `service-policy` and `mls qos`, as on Catalyst switches (modular QoS CLI).
//!
//! A class map names frames, a policy map gives actions to classes, and a service policy applies a policy map to the frames
//! that an interface receives (`input`) or sends (`output`). The first class of a policy map that matches a frame decides;
//! every other frame is in `class-default`, which each policy map has.
//!
//! Read first: RFC 2475 (differentiated services), RFC 2697 and RFC 2698 (the policers).

use lanyard_types::VlanSet;
use std::collections::{BTreeMap, BTreeSet};

/// The name of the class of all frames that no other class matches.
pub const CLASS_DEFAULT: &str = "class-default";
/// The most classes of a policy map, `class-default` included.
pub const MAX_POLICY_CLASSES: usize = 32;
/// The most class maps of a configuration, and likewise the most policy maps.
pub const MAX_QOS_MAPS: usize = 256;
/// The longest name of a class map or policy map, in bytes.
pub const MAX_QOS_NAME: usize = 40;
/// The most `match` lines of a class map.
pub const MAX_CRITERIA: usize = 32;

/// `class-map`, `policy-map`, `mls qos`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qos {
    /// `class-map`, by name; at most [`MAX_QOS_MAPS`].
    pub classes: BTreeMap<String, ClassMap>,
    /// `policy-map`, by name; at most [`MAX_QOS_MAPS`].
    pub policies: BTreeMap<String, PolicyMap>,
    /// `mls qos`: the DSCP and the class of service of frames from ports without `mls qos trust` and without an input policy are
    /// set to 0.
    pub untrusted: bool,
    /// `mls qos map cos-dscp`: the DSCP of a frame, by its class of service, at ports with `mls qos trust cos`.
    pub cos_dscp: [u8; 8],
}

/// The default of `mls qos map cos-dscp`.
pub const COS_DSCP_DEFAULT: [u8; 8] = [0, 8, 16, 24, 32, 40, 48, 56];

impl Default for Qos {
    fn default() -> Self {
        Self {
            classes: BTreeMap::new(),
            policies: BTreeMap::new(),
            untrusted: false,
            cos_dscp: COS_DSCP_DEFAULT,
        }
    }
}

/// `class-map`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassMap {
    /// `match-any`: one criterion suffices. False: `match-all`, IOS's default; all must hold. A class map without criteria matches
    /// no frame.
    pub any: bool,
    /// `description`.
    pub description: Option<String>,
    /// The `match` lines in the order in which they were entered; at most [`MAX_CRITERIA`], none twice.
    pub criteria: Vec<Criterion>,
}

/// A `match` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Criterion {
    /// `match not`.
    pub negated: bool,
    /// The property of a frame that is compared.
    pub of: Match,
}

/// The property that a `match` line compares. A configuration has few values of this type, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// `any`: every frame.
    Any,
    /// `access-group LIST`, `access-group name LIST`: frames that the list permits. A list that does not exist matches no frame.
    AccessGroup(String),
    /// `dscp V...` (IPv4 and IPv6), `ip dscp V...` (IPv4 only): 1 to 8 values, 0..=63.
    Dscp {
        /// The values.
        values: BTreeSet<u8>,
        /// `ip`: IPv4 only.
        ipv4: bool,
    },
    /// `precedence V...`, `ip precedence V...`: 1 to 8 values, 0..=7, the upper three bits of the DSCP.
    Precedence {
        /// The values.
        values: BTreeSet<u8>,
        /// `ip`: IPv4 only.
        ipv4: bool,
    },
    /// `cos V...`: 1 to 8 values, 0..=7. A frame without a tag has 0.
    Cos(BTreeSet<u8>),
    /// `vlan LIST`: the VLAN in which the frame is.
    Vlan(VlanSet),
    /// `protocol ip|ipv6|arp`.
    Protocol(QosProtocol),
}

/// The protocols of `match protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosProtocol {
    /// IPv4.
    Ip,
    /// IPv6.
    Ipv6,
    /// ARP.
    Arp,
}

impl QosProtocol {
    /// Every protocol.
    pub const ALL: [Self; 3] = [Self::Ip, Self::Ipv6, Self::Arp];
    /// The keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ipv6 => "ipv6",
            Self::Arp => "arp",
        }
    }
}

/// `policy-map`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyMap {
    /// `description`.
    pub description: Option<String>,
    /// `class NAME`: the classes, in the order in which frames are compared with them. [`CLASS_DEFAULT`] is in `default`.
    pub classes: Vec<(String, ClassActions)>,
    /// `class class-default`.
    pub default: ClassActions,
}

impl PolicyMap {
    /// True if a class has an action that needs a queue of the egress port; an input policy cannot have such actions.
    #[must_use]
    pub fn queues(&self) -> bool {
        self.actions().any(|(_, actions)| actions.queues())
    }
    /// Every class with its name, in the order in which frames are compared with them; `class-default` is the last.
    pub fn actions(&self) -> impl Iterator<Item = (&str, &ClassActions)> {
        let named = self.classes.iter().map(|(name, actions)| (name.as_str(), actions));
        named.chain([(CLASS_DEFAULT, &self.default)])
    }
}

/// The actions of a class in a policy map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassActions {
    /// `set dscp V`, `set precedence V`. A policer's `set-...-transmit` takes precedence.
    pub set: Option<SetIp>,
    /// `set cos V`, 0..=7.
    pub set_cos: Option<u8>,
    /// `police ...`.
    pub police: Option<Police>,
    /// `priority ...`: the class is served before all others.
    pub priority: Option<Priority>,
    /// `bandwidth ...`: the share of the class while the port is congested.
    pub bandwidth: Option<Bandwidth>,
    /// `shape average ...`: the highest rate at which frames of the class are sent.
    pub shape: Option<QosRate>,
    /// `queue-limit N packets|bytes`.
    pub queue_limit: Option<QueueLimit>,
    /// `service-policy NAME`: the policy map that divides this class's shaped rate among its own classes. Only `class-default`
    /// with `shape`, as the only class of its policy map, may have one.
    pub child: Option<String>,
}

impl ClassActions {
    /// True if an action of the class needs a queue of the egress port.
    #[must_use]
    pub fn queues(&self) -> bool {
        self.priority.is_some()
            || self.bandwidth.is_some()
            || self.shape.is_some()
            || self.queue_limit.is_some()
            || self.child.is_some()
    }
}

/// `set dscp`, `set precedence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetIp {
    /// The DSCP, 0..=63.
    Dscp(u8),
    /// The precedence, 0..=7; the other bits of the DSCP become 0.
    Precedence(u8),
}

impl SetIp {
    /// The DSCP that is written.
    #[must_use]
    pub const fn dscp(self) -> u8 {
        match self {
            Self::Dscp(value) => value,
            Self::Precedence(value) => value << 3,
        }
    }
}

/// A rate: in bits per second, or as a share of the port's speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosRate {
    /// Bits per second, [`MIN_QOS_BPS`]..=[`MAX_QOS_BPS`].
    Bps(u64),
    /// Percent of the port's speed, 1..=100.
    Percent(u8),
}

/// The lowest rate of a policer or shaper, in bits per second.
pub const MIN_QOS_BPS: u64 = 8_000;
/// The highest rate of a policer or shaper, in bits per second.
pub const MAX_QOS_BPS: u64 = 100_000_000_000;
/// The smallest burst of a policer, in bytes.
pub const MIN_QOS_BURST: u32 = 1_000;
/// The largest burst of a policer, in bytes.
pub const MAX_QOS_BURST: u32 = 512_000_000;

/// `police ...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Police {
    /// The committed rate (CIR).
    pub cir: QosRate,
    /// The committed burst in bytes (Bc); `None`: the bytes that the committed rate gives in 250 ms, but 1,518 at least.
    pub bc: Option<u32>,
    /// The peak rate (PIR). With it, the policer has two rates (RFC 2698).
    pub pir: Option<QosRate>,
    /// The excess burst in bytes (Be). Without PIR, with [`Police::violate`]: the second bucket of RFC 2697. `None`: the same as
    /// Bc.
    pub be: Option<u32>,
    /// `conform-action`; transmit by default.
    pub conform: PoliceAction,
    /// `exceed-action`; drop by default.
    pub exceed: PoliceAction,
    /// `violate-action`; `None` means the exceed action. With it, or with PIR, there are three colours.
    pub violate: Option<PoliceAction>,
}

/// The most values of a `match dscp`, `match precedence` or `match cos` line.
pub const MAX_MATCH_VALUES: usize = 8;
/// The highest limit of a queue in frames.
pub const MAX_QUEUE_PACKETS: u16 = 8192;
/// The lowest limit of a queue in bytes: it leaves room for one frame of any usual size.
pub const MIN_QUEUE_BYTES: u32 = 2_000;
/// The highest limit of a queue in bytes.
pub const MAX_QUEUE_BYTES: u32 = 512_000_000;
/// The highest `bandwidth remaining ratio`.
pub const MAX_QOS_RATIO: u16 = 1_000;

/// An action of a policer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoliceAction {
    /// `transmit`.
    Transmit,
    /// `drop`.
    Drop,
    /// `set-dscp-transmit V`.
    SetDscp(u8),
    /// `set-prec-transmit V`.
    SetPrecedence(u8),
    /// `set-cos-transmit V`.
    SetCos(u8),
}

/// `priority [level N] [KBPS | percent N]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 1 or 2; classes of level 1 are served first.
    pub level: u8,
    /// The highest rate of the class; `None`: the port's whole rate. The class is policed at this rate even while the port is not
    /// congested.
    pub rate: Option<QosRate>,
}

/// `bandwidth ...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bandwidth {
    /// `bandwidth KBPS`, in bits per second here; a multiple of 1,000.
    Bps(u64),
    /// `bandwidth percent N`, 1..=100.
    Percent(u8),
    /// `bandwidth remaining percent N`, 1..=100: of what the guaranteed classes leave.
    RemainingPercent(u8),
    /// `bandwidth remaining ratio N`, 1..=1000.
    RemainingRatio(u16),
}

/// `queue-limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// Frames, 1..=8192.
    Packets(u16),
    /// Bytes, 2,000..=512,000,000.
    Bytes(u32),
}

/// `service-policy` and `mls qos trust` under an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QosPort {
    /// `service-policy input NAME`.
    pub input: Option<String>,
    /// `service-policy output NAME`.
    pub output: Option<String>,
    /// `mls qos trust cos|dscp`.
    pub trust: Option<QosTrust>,
}

/// `mls qos trust`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosTrust {
    /// The class of service decides: the DSCP of IP packets is set by `mls qos map cos-dscp`.
    Cos,
    /// The DSCP decides: the class of service is set to its upper three bits.
    Dscp,
}
