//! The facts about the routing of each VRF: the input for router interfaces and for the choice of a forwarder.

use crate::packet_filter::PacketFilter;
use lanyard_types::{MacAddr, VrfId};
use std::collections::{BTreeMap, BTreeSet};

/// The facts about the VRFs whose routing is followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routers {
    /// True if the plane can route.
    pub able: bool,
    /// The VRFs by name; the switch's own namespace is `None`. A VRF that is not listed is not followed and not routed.
    pub vrfs: BTreeMap<Option<String>, Router>,
}

/// The facts about the routing of one VRF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Router {
    /// The number of the VRF in the plane.
    pub id: Option<VrfId>,
    /// For IPv4 and IPv6: true if the kernel routes by more than the destination.
    pub policy: [bool; 2],
    /// The kernel's hooks for forwarded packets.
    pub filter: PacketFilter,
    /// The sysctl `forwarding` by interface index (`None` is `all`) and family (`true` is IPv6).
    pub forwarding: BTreeMap<(Option<u32>, bool), bool>,
    /// Virtual router addresses by interface index: those of macvlan children that are up and have an IP address.
    pub virtual_macs: BTreeMap<u32, BTreeSet<MacAddr>>,
}

impl Router {
    /// True unless the kernel is known not to forward packets received at this interface.
    pub(crate) fn forwards(&self, ifindex: u32, ipv6: bool) -> bool {
        let on = |index| self.forwarding.get(&(index, ipv6)).copied().unwrap_or(true);
        on(Some(ifindex)) && (!ipv6 || on(None))
    }
}
