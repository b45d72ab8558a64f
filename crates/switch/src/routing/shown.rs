//! The mirror's data for `show` commands, and the use of its tables.

use super::program::Programmed;
use super::rib::{FAILED, NONE, Rank};
use super::{Ask, Limits, Offload, Routing, Usage};
use ipnet::IpNet;
use lanyard_plane::RouteLookup;
use lanyard_types::{AdjacencyId, MacAddr, VrfId};
use std::net::IpAddr;

impl Routing {
    /// The neighbour of an adjacency that the plane has just used; `None` if its use need not be reported to the kernel.
    /// The kernel does not see the plane's packets, and would otherwise remove a neighbour that seems unused.
    #[must_use]
    pub fn used(&self, id: AdjacencyId) -> Option<Ask> {
        let adj = self.hops.adj_of(id)?;
        let ask = Ask { vrf: adj.vrf, ifindex: adj.ifindex, address: adj.address };
        let neighbour = self.vrfs.get(&ask.vrf)?.around.neighbours.get(&(ask.address, ask.ifindex))?;
        neighbour.stale.then_some(ask)
    }
    /// The neighbour of an adjacency, and its MAC address as the plane has it.
    #[must_use]
    pub fn adjacency(&self, id: AdjacencyId) -> Option<(Ask, Option<MacAddr>)> {
        let adj = self.hops.adj_of(id)?;
        Some((Ask { vrf: adj.vrf, ifindex: adj.ifindex, address: adj.address }, adj.mac()))
    }
    /// The longest prefix in the plane that contains `address`.
    #[must_use]
    pub fn matched(&self, vrf: VrfId, address: IpAddr) -> Option<IpNet> {
        let mut matching = self.vrfs.get(&vrf)?.rib.matching(address);
        matching.find(|(_, entry)| entry.programmed != NONE).map(|(prefix, _)| prefix)
    }
    /// The plane's routes: the target of each prefix, and the buckets of its group.
    #[must_use]
    pub fn programmed(&self, vrf: VrfId, ipv6: bool) -> Vec<(IpNet, RouteLookup)> {
        let Some(known) = self.vrfs.get(&vrf) else { return Vec::new() };
        let all =
            known.rib.walk(None, usize::MAX).into_iter().filter(|prefix| prefix.addr().is_ipv6() == ipv6);
        let lookup = |prefix: IpNet| {
            let programmed = Programmed::unpack(known.rib.get(prefix)?.programmed);
            let buckets =
                if let Programmed::Group(set) = programmed { self.hops.programmed(set) } else { Vec::new() };
            Some((prefix, RouteLookup { target: Some(programmed.target(&self.hops)?), buckets }))
        };
        all.filter_map(lookup).collect()
    }

    /// The state in the plane of the kernel's route to `prefix` with this metric, in table 255 (`local`) or 254.
    #[must_use]
    pub fn offload(&self, vrf: VrfId, prefix: IpNet, metric: u32, local: bool) -> Offload {
        let Some(known) = self.vrfs.get(&vrf) else { return Offload::None };
        let Some(entry) = known.rib.get(prefix) else { return Offload::None };
        let rank = if local { Rank::Local } else { Rank::Main };
        let best = &entry.best;
        // A route from FPM is also in the kernel, where it is the main table's.
        let is_it = (best.rank, best.metric) == (rank, metric) || best.rank == Rank::Fpm && !local;
        if !is_it {
            return Offload::None;
        }
        let ipv6 = !prefix.addr().is_ipv4();
        match Programmed::unpack(entry.programmed) {
            _ if entry.flags & FAILED != 0 => Offload::Failed,
            Programmed::Nothing => Offload::None,
            _ if known.policy[usize::from(ipv6)] => Offload::Trapped,
            Programmed::Group(_) | Programmed::Blackhole | Programmed::Connected(_) => Offload::Offloaded,
            Programmed::Up(_) => Offload::Trapped,
        }
    }
    /// The state in the plane of the preferred route to `prefix`, whatever its origin; `None` while nothing is programmed.
    #[must_use]
    pub fn best_offload(&self, vrf: VrfId, prefix: IpNet) -> Offload {
        let Some(entry) = self.vrfs.get(&vrf).and_then(|known| known.rib.get(prefix)) else {
            return Offload::None;
        };
        match Programmed::unpack(entry.programmed) {
            _ if entry.flags & FAILED != 0 => Offload::Failed,
            Programmed::Nothing => Offload::None,
            Programmed::Group(_) | Programmed::Blackhole | Programmed::Connected(_) => Offload::Offloaded,
            Programmed::Up(_) => Offload::Trapped,
        }
    }
    /// The state of this neighbour's address in the plane.
    #[must_use]
    pub fn neighbour_offload(&self, vrf: VrfId, ifindex: u32, address: IpAddr) -> Offload {
        match self.hops.adj_at(vrf, ifindex, address).and_then(|slot| self.hops.adj(slot)) {
            Some(adj) if adj.is_programmed() => Offload::Offloaded,
            _ => Offload::None,
        }
    }
    /// The number of prefixes of a VRF.
    #[must_use]
    pub fn prefixes(&self, vrf: VrfId) -> u64 {
        self.vrfs.get(&vrf).map_or(0, |vrf| vrf.rib.len() as u64)
    }
    /// How many entries there are of each kind.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (groups, adjacencies) = self.hops.used();
        Usage {
            prefixes: self.vrfs.values().map(|vrf| vrf.rib.len() as u64).sum(),
            groups: groups as u64,
            adjacencies: adjacencies as u64,
            refused_groups: self.hops.refused_groups,
            failed: self.vrfs.values().map(|vrf| vrf.failed.len() as u64).sum(),
        }
    }
    /// The limits that the mirror was created with.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }
}
