//! The hooks at which the kernel of a namespace handles forwarded packets: packet filter, NAT, connection tracking,
//! IPsec.

use std::collections::BTreeSet;
use std::sync::Arc;

/// A hook at which the kernel handles forwarded packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// For IPv4 and IPv6: true if the hook sees such packets.
    pub families: [bool; 2],
    /// Where in the packet's path it is.
    pub point: HookPoint,
    /// The owner of the hook, for messages: `nftables chain inet filter forward`.
    pub owner: String,
}

/// Where in the packet's path a hook is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPoint {
    /// All forwarded packets pass it.
    Forwarding,
    /// At the ingress of these netdevs. A name that ends in `*` is a prefix.
    Ingress(Vec<String>),
    /// At the egress of these netdevs.
    Egress(Vec<String>),
}

/// The hooks of one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketFilter {
    /// Its hooks.
    pub hooks: Arc<BTreeSet<Hook>>,
    /// Why the hooks are not known, if they are not.
    pub unknown: Option<String>,
}
