//! The trace of one frame: `show platform packet-trace` prints it, and the differential test compares it.
//!
//! A pipeline reports [`Fact`]s. The specification notes them while its stages run; the eBPF plane derives
//! them from the journal of its programs. Invariant: [`Fact`]'s `Display` is the only place that puts the
//! findings of a stage into words.

use crate::route::RouteTarget;
use crate::state::CHANNEL_BUCKETS;
use ipnet::IpNet;
use lanyard_types::{
    AdjacencyId, DropReason, GroupId, MacAddr, PortId, Stage, TrapReason, TunnelledProtocol, VlanId,
};
use lanyard_wire::Tag;
use std::fmt;
use std::net::IpAddr;

/// The verdict on a frame: exactly one for every frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Sent to at least one port; VLAN interfaces count as ports (delivered up).
    Forwarded,
    /// To the control plane only.
    Trapped(TrapReason),
    /// Dropped.
    Dropped(DropReason),
}

/// Something that a stage found or decided. Netdevs and interfaces are given by name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the comment of a variant describes its fields
pub enum Fact {
    /// `parse`: the tag that the port recognises, the EtherType on the wire and behind that tag, and
    /// the length in bytes.
    Frame { tag: Option<Tag>, outer: u16, inner: u16, len: usize },
    /// `mirror`, `replicate`: a copy for a monitor session.
    Mirrored { to: String },
    /// `trap`: the frame is not for the control plane.
    NotTrapped,
    /// `trap`: the frame goes to the control plane.
    Trapped { dst: MacAddr, reason: TrapReason },
    /// `trap`: the frame would go to the control plane if the port were up.
    TrapAtDownPort(TrapReason),
    /// `trap`: a customer's control frame, which is carried through the provider's VLAN.
    EntersTunnel(TunnelledProtocol),
    /// `port`: the state of the ingress port.
    Port { name: String, up: bool },
    /// `port`: the ingress port is a member of this port-channel.
    MemberOf(String),
    /// `vlan_ingress`: the VLAN, from the frame's tag or the port's PVID.
    Vlan { vlan: VlanId, tagged: bool },
    /// `learn`: the port, the VLAN or this kind of port does not learn.
    LearningOff,
    /// `learn`: the source address is not in the FDB.
    SourceNew { mac: MacAddr, on: String },
    /// `learn`: the source address is in the FDB at this port.
    SourceKnown { mac: MacAddr, on: String },
    /// `learn`: the source address is in the FDB at another port.
    SourceMoved { mac: MacAddr, from: String, to: String },
    /// `learn`: the source address has an entry of the control plane, of this kind.
    SourceFixed { mac: MacAddr, kind: &'static str },
    /// `learn`: the limit of the table, the port or the VLAN is reached.
    SourceRefused { mac: MacAddr, on: String, limit: &'static str },
    /// `route`: the frame comes from the host's end of a subinterface and leaves by its routed port.
    FromHost { parent: String, vlan: VlanId },
    /// `route`: the frame is for the router on this interface.
    ForRouter(String),
    /// `route`: the longest match.
    Route { dst: IpAddr, found: Option<(IpNet, RouteTarget)> },
    /// `route`: the bucket of the group that was chosen.
    NextHop { group: GroupId, bucket: usize, buckets: usize, adjacency: AdjacencyId },
    /// `route`: the next hop, the egress interface and the TTL after the decrement.
    Rewritten { mac: MacAddr, rif: String, ttl: u8 },
    /// `route`: the frame goes to the kernel, by this port or by the ingress netdev's own stack.
    Up { reason: TrapReason, port: Option<String> },
    /// `snoop`: a group's frame is limited to this number of ports, those of routers included.
    Members { group: IpAddr, source: IpAddr, ports: usize },
    /// `bridge`: the destination is known at a port.
    Destination { mac: MacAddr, on: String },
    /// `bridge`: the frame is flooded to this number of ports.
    Flood { class: Flood, ports: usize },
    /// `vlan_egress`: the frame may leave by the port.
    Allowed(String),
    /// `vlan_egress`: the frame is longer than the MTU of this port of a flood set.
    TooLong(String),
    /// `vlan_egress`: no member of this port-channel of a flood set can send.
    NoMember(String),
    /// `vlan_egress`: the frame may leave by this number of ports of a flood set.
    AllowedPorts(usize),
    /// `replicate`: the bucket of the frame, by which the members of port-channels are chosen.
    Balanced { bucket: usize, by: &'static str },
    /// `replicate`: a copy, with the TPID and VLAN of its tag.
    Copy { port: String, tag: Option<(u16, u16)> },
    /// `count`: the ingress port and the number of copies sent.
    Counted { port: String, copies: usize },
    /// The last fact of a frame that is dropped.
    Dropped(DropReason),
}

/// The class of a flooded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// The destination is the broadcast address.
    Broadcast,
    /// The destination is a group address.
    Multicast,
    /// The destination is not in the FDB.
    Unknown,
}

impl Flood {
    /// The class of frames for `dst`.
    #[must_use]
    pub fn of(dst: MacAddr) -> Self {
        match (dst.is_broadcast(), dst.is_group()) {
            (true, _) => Self::Broadcast,
            (_, true) => Self::Multicast,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broadcast => "broadcast",
            Self::Multicast => "multicast",
            Self::Unknown => "unknown",
        })
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { tag: None, outer, len, .. } => {
                write!(f, "untagged, EtherType {outer:#06x}, {len} bytes")
            }
            Self::Frame { tag: Some(Tag { pcp, dei, vid }), outer, inner, len } => {
                let dei = if *dei { ", drop eligible" } else { "" };
                write!(
                    f,
                    "tag {outer:#06x} vlan {vid} priority {pcp}{dei}, EtherType {inner:#06x}, {len} bytes"
                )
            }
            Self::Mirrored { to } => write!(f, "copy for a monitor session to {to}"),
            Self::NotTrapped => f.write_str("not for the control plane"),
            Self::Trapped { dst, reason } => write!(f, "{dst} is {reason}: to the control plane"),
            Self::TrapAtDownPort(reason) => write!(f, "{reason}, but the port is down"),
            Self::EntersTunnel(protocol) => {
                write!(f, "a customer's {protocol}: to {} through the tunnel", MacAddr::TUNNEL)
            }
            Self::Port { name, up } => write!(f, "{name} is {}", if *up { "up" } else { "down" }),
            Self::MemberOf(channel) => write!(f, "member of {channel}"),
            Self::Vlan { vlan, tagged: true } => write!(f, "vlan {vlan} from its tag"),
            Self::Vlan { vlan, tagged: false } => write!(f, "vlan {vlan} from the port's PVID"),
            Self::LearningOff => f.write_str("learning is off here"),
            Self::SourceNew { mac, on } => write!(f, "{mac} is new on {on}: would be learned"),
            Self::SourceKnown { mac, on } => write!(f, "{mac} is known on {on}"),
            Self::SourceMoved { mac, from, to } => write!(f, "{mac} was on {from}: would move to {to}"),
            Self::SourceFixed { mac, kind } => write!(f, "{mac} has a {kind} entry: stays as it is"),
            Self::SourceRefused { mac, on, limit } => {
                write!(f, "{mac} would not be learned on {on}: the {limit}'s limit is reached")
            }
            Self::FromHost { parent, vlan } => write!(f, "from the host: out of {parent} in vlan {vlan}"),
            Self::ForRouter(rif) => write!(f, "for the router on {rif}"),
            Self::Route { dst, found } => route(f, *dst, found.as_ref()),
            Self::NextHop { group, bucket, buckets, adjacency } => {
                write!(f, "bucket {bucket} of {buckets} in group {group}: adjacency {adjacency}")
            }
            Self::Rewritten { mac, rif, ttl } => write!(f, "to {mac} out of {rif}, TTL {ttl}"),
            Self::Up { reason, port: Some(port) } => write!(f, "{reason}: up to the kernel at {port}"),
            Self::Up { reason, port: None } => write!(f, "{reason}: up the netdev's own stack"),
            Self::Members { group, source, ports: 1 } => write!(f, "group {group} from {source}: 1 port"),
            Self::Members { group, source, ports } => {
                write!(f, "group {group} from {source}: {ports} ports")
            }
            Self::Destination { mac, on } => write!(f, "{mac} is on {on}"),
            Self::Flood { class, ports: 1 } => write!(f, "{class}: flood to 1 port"),
            Self::Flood { class, ports } => write!(f, "{class}: flood to {ports} ports"),
            Self::Allowed(port) => write!(f, "{port}: allowed"),
            Self::TooLong(port) => write!(f, "{port}: longer than its MTU"),
            Self::NoMember(port) => write!(f, "{port}: no member can send"),
            Self::AllowedPorts(count) => write!(f, "{count} allowed"),
            Self::Balanced { bucket, by } => write!(f, "{by}: bucket {bucket} of {CHANNEL_BUCKETS}"),
            Self::Copy { port, tag: None } => write!(f, "{port}: untagged"),
            Self::Copy { port, tag: Some((tpid, vid)) } => write!(f, "{port}: tagged {tpid:#06x} vlan {vid}"),
            Self::Counted { port, copies: 1 } => write!(f, "received by {port}, 1 copy sent"),
            Self::Counted { port, copies } => write!(f, "received by {port}, {copies} copies sent"),
            Self::Dropped(reason) => write!(f, "dropped: {reason}"),
        }
    }
}

fn route(f: &mut fmt::Formatter<'_>, dst: IpAddr, found: Option<&(IpNet, RouteTarget)>) -> fmt::Result {
    match found {
        None => write!(f, "{dst} has no route"),
        Some((prefix, RouteTarget::Group(group))) => write!(f, "{dst} is in {prefix}: group {group}"),
        Some((prefix, RouteTarget::Connected(_))) => write!(f, "{dst} is in {prefix}: connected"),
        Some((prefix, RouteTarget::Up(reason))) => write!(f, "{dst} is in {prefix}: {reason}"),
        Some((prefix, RouteTarget::Blackhole)) => write!(f, "{dst} is in {prefix}: blackhole"),
    }
}

/// The findings of one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// The stage.
    pub stage: Stage,
    /// Its facts, in the order in which it found them; at least one.
    pub facts: Vec<Fact>,
}

impl TraceStep {
    /// One line of text, such as `vlan 10 from the port's PVID`.
    #[must_use]
    pub fn detail(&self) -> String {
        self.facts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// The trace of one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Stages in the order they ran; a drop ends the list at its stage.
    pub stages: Vec<TraceStep>,
    /// The verdict.
    pub verdict: Verdict,
    /// The frames sent, in emission order: port and bytes, tags in line.
    pub egress: Vec<(PortId, Vec<u8>)>,
    /// The copies sent for monitor sessions, in the same form.
    pub mirrored: Vec<(PortId, Vec<u8>)>,
}

/// Collects the facts of the stages if a trace is wanted. Forwarding passes `None` and pays one branch.
#[derive(Debug, Default)]
pub(crate) struct Notes(Option<Vec<TraceStep>>);

impl Notes {
    /// Returns notes that collect facts.
    pub(crate) fn kept() -> Self {
        Self(Some(Vec::new()))
    }
    /// Adds a fact of `stage`.
    pub(crate) fn say(&mut self, stage: Stage, fact: impl FnOnce() -> Fact) {
        let Some(steps) = &mut self.0 else { return };
        match steps.last_mut().filter(|last| last.stage == stage) {
            Some(last) => last.facts.push(fact()),
            None => steps.push(TraceStep { stage, facts: vec![fact()] }),
        }
    }
    /// The collected steps.
    pub(crate) fn into_steps(self) -> Vec<TraceStep> {
        self.0.unwrap_or_default()
    }
}
