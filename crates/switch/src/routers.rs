//! What is known about the routing of each VRF: the input of router interfaces and of the choice of a forwarder.

use crate::packet_filter::PacketFilter;
use lanyard_types::{MacAddr, VrfId};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the routing tables that are followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routers {
    /// The plane routes.
    pub able: bool,
    /// By the VRF's name; the switch's own has none. One that is not here is not followed, and not routed.
    pub vrfs: BTreeMap<Option<String>, Router>,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Router {
    /// Its number.
    pub id: Option<VrfId>,
    /// The kernel routes IPv4 or IPv6 by more than the destination.
    pub policy: [bool; 2],
    /// What the kernel does with packets that it forwards.
    pub filter: PacketFilter,
    /// `forwarding` of an interface (`None` is `all`), of IPv4 or IPv6.
    pub forwarding: BTreeMap<(Option<u32>, bool), bool>,
    /// Virtual routers' addresses on an interface: of its macvlan children that are up and have an address.
    pub virtual_macs: BTreeMap<u32, BTreeSet<MacAddr>>,
}

impl Router {
    /// True unless the kernel is known not to forward what comes in there.
    pub(crate) fn forwards(&self, ifindex: u32, ipv6: bool) -> bool {
        let on = |index| self.forwarding.get(&(index, ipv6)).copied().unwrap_or(true);
        on(Some(ifindex)) && (!ipv6 || on(None))
    }
}
