//! Where the kernel of a namespace handles packets that it forwards: packet filter, NAT, connection tracking, IPsec.

use std::collections::BTreeSet;
use std::sync::Arc;

/// One place where the kernel handles packets on their way through it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// It sees IPv4 packets, IPv6 packets.
    pub families: [bool; 2],
    /// Where it stands.
    pub point: HookPoint,
    /// What stands there, for people.
    pub owner: String,
}

/// Where a hook stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPoint {
    /// All packets that are forwarded pass it.
    Forwarding,
    /// At the ingress of these netdevs; a name that ends in `*` stands for all that begin so.
    Ingress(Vec<String>),
    /// At the egress of these netdevs.
    Egress(Vec<String>),
}

/// What the kernel of one namespace does with packets that it forwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketFilter {
    /// Its hooks.
    pub hooks: Arc<BTreeSet<Hook>>,
    /// Why they are not known.
    pub unknown: Option<String>,
}
